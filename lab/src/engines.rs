//! The engines beside one another: throughput, processor time per request, the 99th percentile,
//! threads and memory, in workloads that are hot, cold, or beside slow clients.

pub mod cold;
pub mod workload;

use crate::benchmark::{Benchmark, BenchmarkNetwork, Measure, Ratio, nothing};
use crate::cage::COLD;
use crate::claim::{Against, BenchmarkClaim, DecidedBy, Goal};
use crate::columns::{Column, figure, key};
use crate::options::{Axis, any};
use crate::reference::Reference;
use crate::rows::RawRow;
use crate::run::{Run, Trial};
use crate::serving::{Forebay, PeerProcess, Serving};
use crate::{Error, load};
use workload::Workload;

/// The engine that consists of three processes.
const ISOLATED: &str = "isolated";
/// The pipeline that never fuses.
const NEVER: &str = "pipeline-never";
const NGINX: &str = "nginx-aio";
const APACHE: &str = "apache";

const COLUMNS: &[Column] = &[
    key("workload"),
    key("connections"),
    key("server"),
    figure("rate_per_s").shown("answers/s", 0),
    figure("cpu_us").shown("CPU µs", 2),
    figure("p99_us").shown("p99 µs", 0),
    figure("failed").shown("failed", 0),
    figure("threads").shown("threads", 0),
    figure("memory_mib").shown("memory MiB", 1),
    figure("client"),
];

/// The experiment.
pub const ENGINES: Benchmark = Benchmark {
    name: "engines",
    title: "Engines beside one another",
    about: "The engines beside one another, in six workloads.",
    servers: Axis::new(
        "server",
        "servers",
        "Engines (pipeline-never is pipeline with fuse = \"never\"), nginx with threads, Apache",
        servers,
        "event,fibers,threads,pool,pipeline,isolated",
    ),
    peers: &[(NGINX, &["nginx-aio.conf"]), (APACHE, &["apache2.conf"])],
    clients: &[],
    sweep: &[
        Axis::new("workload", "workloads", "What the clients do", workloads, ""),
        Axis {
            quick: "50",
            ..Axis::new(
                "connections",
                "connections",
                "Connections kept busy",
                any,
                "1,10,50,1000,10000",
            )
        },
    ],
    points: None,
    settings: &[],
    rounds: 3,
    measured: "2s",
    network: BenchmarkNetwork::Shared,
    pinned: true,
    columns: COLUMNS,
    tables: &["workload", "connections"],
    lines: &["server"],
    ratios: &[Ratio { figure: "cpu_us", to: Reference::Rows(&[("server", "event")]) }],
    claims: &[BenchmarkClaim {
        what: "p99 µs beside clients that take next to nothing",
        of: &[("workload", "stuck")],
        figure: "p99_us",
        against: Against::Others(Reference::Rows(&[("workload", "10k")])),
        goal: Goal::AtMost(2.0, 10_000.0),
        by: DecidedBy::Median,
    }],
    more: nothing,
    prepare,
};

fn servers() -> Vec<&'static str> {
    engines().chain([NEVER, NGINX, APACHE]).collect()
}

/// Every engine: those that are whole in one process, and the one that is three stages.
pub fn engines() -> impl Iterator<Item = &'static str> {
    forebay_engine::NAMES.iter().copied().chain([ISOLATED])
}

fn workloads() -> Vec<&'static str> {
    workload::ALL.map(Workload::name).to_vec()
}

struct Engines;

fn prepare(run: &Run) -> Result<Box<dyn Measure>, Error> {
    workload::write(&run.root)?;
    if run.options.sweep[0].iter().any(|name| name == Workload::Cold.name()) {
        cold::write(&run.root)?;
    }
    Ok(Box::new(Engines))
}

impl Measure for Engines {
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Vec<RawRow>, Error> {
        let run = trial.run;
        let Some(workload) = Workload::find(trial.at("workload")) else { return Ok(Vec::new()) };
        let connections = trial.number("connections") as u32;
        let cage = (workload == Workload::Cold).then_some(COLD);
        let serving = match trial.server {
            NGINX => {
                Serving::peer(run, &PeerProcess { cage, ..PeerProcess::new("nginx-aio.conf") })?
            }
            APACHE => {
                let tags = ["log", "tls", "tls2"].map(|tag| (tag, false));
                let words = [("THREADS", "256".to_owned())];
                let part = PeerProcess {
                    tags: &tags,
                    words: &words,
                    cage,
                    ..PeerProcess::new("apache2.conf")
                };
                Serving::peer(run, &part)?
            }
            engine => {
                let lines = ours(run, engine, workload, connections);
                Serving::forebay(run, &Forebay { cage, admin: false, ..Forebay::new(&lines) })?
            }
        };
        let options = &run.options;
        let port = serving.port();
        let plan =
            workload.plan(port, connections, options.measured, options.client_core, &run.root)?;
        let loaded = load::run(run, &serving, &plan, &mut |_| {})?;
        let group = &loaded.report.groups[0];
        let row = RawRow::default()
            .figure("rate_per_s", group.rate)
            .figure("cpu_us", loaded.server_cores * 1e6 / group.rate.max(1e-9))
            .figure("p99_us", group.latency.p99_us)
            .figure("failed", group.failed as f64)
            .figure("threads", loaded.threads as f64)
            .figure("memory_mib", loaded.memory_mib)
            .figure("client", loaded.report.generator.busiest_thread);
        Ok(vec![row])
    }
}

/// Forebay's configuration for an engine.
fn ours(run: &Run, name: &str, workload: Workload, connections: u32) -> String {
    let (engine, fuse) = match name {
        NEVER => ("pipeline", "pipeline.fuse = \"never\"\n"),
        name => (name, ""),
    };
    // engines with a thread per connection have one for each
    let workers = match engine {
        "threads" | "pool" => connections + workload.background() + 8,
        _ => 1,
    };
    let cache = if workload == Workload::Cold { "16MiB" } else { "256MiB" };
    format!(
        "root = {:?}\nengine = \"{engine}\"\nworkers = {workers}\ncache.bytes = \"{cache}\"\n{fuse}",
        run.root,
    )
}
