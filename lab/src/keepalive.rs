//! duke §VII.D: clients that want one object each and then stay silent, on ten threads. The cost of
//! keeping their connections where each holds a thread, and the effect of a timeout that shrinks.

use crate::Error;
use crate::benchmark::{Benchmark, BenchmarkNetwork, Measure, Ratio, nothing};
use crate::columns::{Column, figure, key};
use crate::content::body;
use crate::load::{self, target};
use crate::options::{Axis, Kind, Setting, any};
use crate::reference::Reference;
use crate::rows::RawRow;
use crate::run::{Run, Trial};
use crate::serving::{Forebay, Serving};
use forebay_load::arrivals::Arrivals;
use forebay_load::plan::{RequestsPerConnection, StatedVersion};
use forebay_load::{ClientGroup, LoadModel, LoadPlan};
use std::fs;
use std::time::Duration;

/// Bytes of the object: duke's pool was measured with 8,000.
const OBJECT_BYTES: usize = 8000;
/// The time for which a client waits for its answer before it gives up.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time for which a client that was answered stays, unless the server ends it: longer than any
/// run.
const SILENCE: Duration = Duration::from_secs(600);
/// The largest number of connections open at once, waiting ones included.
const CONNECTIONS: u32 = 15_000;
/// The run without a keep-alive law: the clients speak HTTP/1.0, so connections are closed.
const OLD: &str = "HTTP/1.0";
/// The law without a floor.
const CONSTANT: &str = "constant";

/// The experiment.
pub const KEEPALIVE: Benchmark = Benchmark {
    name: "keepalive",
    title: "Clients that want one object and stay silent",
    about: "How many clients that want one object each are served, by the law that keeps their connections.",
    servers: Axis {
        alias: Some("engines"),
        ..Axis::new("engine", "servers", "Engines", engines, "pool,threads")
    },
    peers: &[],
    clients: &[],
    sweep: &[
        Axis::new(
            "law",
            "laws",
            "Laws that keep connections, and HTTP/1.0, which keeps none",
            laws,
            "",
        ),
        Axis::new(
            "floor",
            "floors",
            "What is left at full load of the time that connections are kept, by the laws that shrink it",
            any,
            "1s,0s",
        ),
    ],
    points: None,
    settings: &[
        Setting {
            name: "rate",
            kind: Kind::Number,
            default: "500",
            help: "New clients per second",
        },
        Setting {
            name: "threads",
            kind: Kind::Number,
            default: "10",
            help: "Threads of pool, and most threads of threads",
        },
        Setting {
            name: "idle",
            kind: Kind::Time,
            default: "5s",
            help: "How long a silent connection is kept at light load: as Apache does. A measurement lasts \
                   for a multiple of it, or constant shows its start",
        },
    ],
    rounds: 3,
    measured: "10s",
    network: BenchmarkNetwork::Shared,
    pinned: true,
    columns: COLUMNS,
    tables: &[],
    lines: &["engine", "keep"],
    ratios: &[Ratio { figure: "served_per_s", to: Reference::Rows(&[("keep", CONSTANT)]) }],
    claims: &[],
    more: nothing,
    prepare,
};

const COLUMNS: &[Column] = &[
    key("engine"),
    key("keep"),
    figure("offered_per_s"),
    figure("served_per_s").shown("served/s", 1),
    figure("p50_ms").shown("wait for a free thread: p50 ms", 1),
    figure("p99_ms").shown("p99 ms", 1),
    figure("lost").shown("lost, of 1", 3),
    figure("threads").shown("threads", 0),
    figure("client"),
];

fn engines() -> Vec<&'static str> {
    crate::engines::engines().collect()
}

fn laws() -> Vec<&'static str> {
    vec![CONSTANT, "linear", "exponential", OLD]
}

struct Keepalive;

fn prepare(run: &Run) -> Result<Box<dyn Measure>, Error> {
    let file = run.root.join("object.html");
    fs::write(&file, body(OBJECT_BYTES)).map_err(Error::io("cannot write", &file))?;
    Ok(Box::new(Keepalive))
}

impl Measure for Keepalive {
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Vec<RawRow>, Error> {
        let (run, law, floor) = (trial.run, trial.at("law"), trial.at("floor"));
        let options = &run.options;
        let (keep, lines) = match law {
            // there is one floor for those that have none
            CONSTANT | OLD if Some(floor) != options.sweep[1].first().map(String::as_str) => {
                return Ok(Vec::new());
            }
            OLD => (OLD.to_owned(), String::new()),
            CONSTANT => (CONSTANT.to_owned(), format!("keep_alive.law = \"{law}\"\n")),
            law => (
                format!("{law} to {floor}"),
                format!("keep_alive.law = \"{law}\"\nkeep_alive.floor = \"{floor}\"\n"),
            ),
        };
        let lines = format!(
            "root = {:?}\nengine = \"{}\"\nworkers = {}\ntimeouts.idle = \"{}ms\"\n{lines}",
            run.root,
            trial.server,
            options.number("threads"),
            options.time("idle").as_millis(),
        );
        let serving = Serving::forebay(run, &Forebay::new(&lines))?;
        // the object is in memory from now on
        serving.asked("object.html")?;
        let loaded = load::run(run, &serving, &plan(run, law, serving.port())?, &mut |_| {})?;
        let group = &loaded.report.groups[0];
        let points = group.series.len().max(1) as f64;
        let row = RawRow::default()
            .word("keep", keep)
            .figure("offered_per_s", group.offered as f64 / group.seconds.max(1e-9))
            // only the measured time counts, not answers while the run drains
            .figure(
                "served_per_s",
                group.series.iter().map(|point| point.good).sum::<f64>() / points,
            )
            .figure("p50_ms", group.latency.p50_us / 1e3)
            .figure("p99_ms", group.latency.p99_us / 1e3)
            .figure("lost", group.failed as f64 / (group.failed + group.good).max(1) as f64)
            .figure("threads", loaded.threads as f64)
            .figure("client", loaded.report.generator.busiest_thread);
        Ok(vec![row])
    }
}

/// The load: a number of new clients per second, whatever becomes of those before.
fn plan(run: &Run, law: &str, port: u16) -> Result<LoadPlan, Error> {
    let mut group = ClientGroup::new("clients", target(port, "object.html")?);
    let arrivals = Arrivals { poisson: true, ..Arrivals::constant(run.options.number("rate")) };
    group.load = LoadModel::Open { arrivals, connections: CONNECTIONS };
    group.per_connection = RequestsPerConnection::Exactly(1);
    group.timeout = PATIENCE;
    match law {
        OLD => group.version = StatedVersion::Http10,
        _ => group.hold = SILENCE,
    }
    Ok(LoadPlan {
        duration: run.options.measured,
        // clients that come to an empty server find free threads
        warmup: Duration::from_secs(1),
        drain: PATIENCE,
        cores: vec![run.options.client_core],
        groups: vec![group],
        ..LoadPlan::default()
    })
}
