//! Many receivers, fast and slow, of short and long answers: the effect of the order in which
//! answers go on, on the time to an answer.
//!
//! emu §2 leaves its fibers first in, first out, and believes that little is gained by serving
//! first those fibers whose clients take more. voigt §6 reports of Crovella et al. that short
//! answers are sent before long ones.

use crate::Error;
use crate::benchmark::{Benchmark, BenchmarkNetwork, Measure, Ratio, nothing};
use crate::columns::{figure, key};
use crate::content::body;
use crate::forebay::value;
use crate::load::{self, target};
use crate::options::{Axis, Kind, Setting};
use crate::reference::Reference;
use crate::rows::RawRow;
use crate::run::{Run, Trial};
use crate::serving::{Forebay, Serving};
use forebay_load::mix::{Mix, MixPath};
use forebay_load::{ClientGroup, LoadModel, LoadPlan};
use std::fs;
use std::time::Duration;

/// The send buffer of the server's sockets. With the 4 MiB of today, which loopback grants at once,
/// no answer would ever wait.
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// The receive buffer of a slow receiver.
const SLOW_BUFFER_BYTES: usize = 64 << 10;
/// Sizes of files, KB, by their names in tables.
const SIZES: [(&str, &[u64]); 3] =
    [("short", &[1, 3, 10]), ("medium", &[32, 100]), ("long", &[316, 1000])];
/// Receivers that take all at once, and those that take a number of bytes per second.
const SPEEDS: [&str; 2] = ["fast", "slow"];

/// The experiment.
pub const RECEIVERS: Benchmark = Benchmark {
    name: "receivers",
    title: "A thousand receivers",
    about: "As many receivers of each speed and size, by the order in which they go on.",
    servers: Axis {
        alias: Some("orders"),
        ..Axis::new("order", "servers", "Orders: values of send_order", orders, "")
    },
    peers: &[],
    clients: &[],
    sweep: &[],
    points: None,
    settings: &[
        Setting {
            name: "connections",
            kind: Kind::Number,
            default: "1000",
            help: "Receivers; as many of each speed and size",
        },
        Setting {
            name: "slow",
            kind: Kind::Number,
            default: "1e6",
            help: "What a slow one takes, bytes per second",
        },
        Setting {
            name: "think",
            kind: Kind::Number,
            default: "100",
            help: "How long each thinks between an answer and the next request, on average, milliseconds",
        },
        Setting { name: "engine", kind: Kind::Text, default: "event", help: "The engine" },
    ],
    rounds: 10,
    measured: "4s",
    network: BenchmarkNetwork::Own(Some(SEND_BUFFER_BYTES)),
    pinned: true,
    columns: &[
        key("order"),
        key("group"),
        figure("mean_ms").shown("mean ms", 2),
        figure("p99_ms").shown("p99 ms", 2),
        figure("answers_per_s").shown("answers/s, of all groups", 0),
        // emu figure 8
        figure("waits").shown("waits per answer", 2),
        figure("failed").shown("failed", 0),
    ],
    tables: &["group"],
    lines: &["order"],
    ratios: &[Ratio { figure: "mean_ms", to: Reference::Rows(&[("order", "arrival")]) }],
    claims: &[],
    more: nothing,
    prepare,
};

/// Orders as the configuration names them; the first is the default.
fn orders() -> Vec<&'static str> {
    vec!["arrival", "fastest", "shortest"]
}

/// The names of the groups.
fn names() -> impl Iterator<Item = String> {
    SPEEDS.iter().flat_map(|speed| SIZES.map(|(size, _)| format!("{speed} {size}")))
}

struct Receivers;

fn prepare(run: &Run) -> Result<Box<dyn Measure>, Error> {
    for kb in SIZES.iter().flat_map(|(_, sizes)| *sizes) {
        let path = run.root.join(format!("{kb}.bin"));
        let written = fs::write(&path, body(*kb as usize * 1000));
        written.map_err(Error::io("cannot write", &path))?;
    }
    Ok(Box::new(Receivers))
}

impl Measure for Receivers {
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Vec<RawRow>, Error> {
        let run = trial.run;
        let lines = format!(
            "root = {:?}\nengine = {:?}\nworkers = 1\ncache.file_bytes = \"4MiB\"\nsend_order = {:?}\n\
             timeouts.drain = \"0s\"\n",
            run.root,
            run.options.text("engine"),
            trial.server,
        );
        let serving = Serving::forebay(run, &Forebay::new(&lines))?;
        serving.asked("1000.bin")?;
        let plan = plan(run, serving.port(), trial.round)?;
        let report = load::run(run, &serving, &plan, &mut |_| {})?.report;
        let metrics = serving.metrics();
        let waits = value(&metrics, "forebay_send_waits_total").unwrap_or(0.0);
        let answers = value(&metrics, "forebay_responses_total{class=\"2xx\"}").unwrap_or(0.0);
        let groups = &report.groups;
        let row = |name: &str, mean_us: f64, p99_us: f64| {
            RawRow::default()
                .word("group", name)
                .figure("mean_ms", mean_us / 1e3)
                .figure("p99_ms", p99_us / 1e3)
                .figure("answers_per_s", groups.iter().map(|group| group.rate).sum())
                .figure("waits", waits / answers.max(1.0))
                .figure("failed", groups.iter().map(|group| group.failed as f64).sum())
        };
        let latency = |group: &forebay_load::report::GroupReport| {
            row(&group.name, group.latency.mean_us, group.latency.p99_us)
        };
        // A group counts as one, however often it asks: receivers that are served sooner ask more often, and
        // would count for more.
        let mean = |of: fn(&forebay_load::report::GroupReport) -> f64| {
            groups.iter().map(of).sum::<f64>() / groups.len().max(1) as f64
        };
        let all =
            row("all", mean(|group| group.latency.mean_us), mean(|group| group.latency.p99_us));
        Ok(groups.iter().map(latency).chain([all]).collect())
    }
}

/// The load on a server at `port`: a group for each of [`names`].
fn plan(run: &Run, port: u16, round: u32) -> Result<LoadPlan, Error> {
    let options = &run.options;
    let base = target(port, "")?;
    let think = Duration::from_secs_f64(options.number("think").max(0.0) / 1e3);
    let all = options.number("connections") as u32;
    let count = SPEEDS.len() * SIZES.len();
    let group = |(at, name): (usize, String)| {
        let mut group = ClientGroup::new(&name, base.clone());
        let connections = (all / count as u32).max(1);
        let (between, ramp) = (Duration::ZERO..=2 * think, think);
        group.load = LoadModel::Closed { connections, think: between, ramp };
        group.timeout = Duration::from_secs(60);
        group.mix = Mix::new(SIZES[at % SIZES.len()].1.iter().map(|kb| entry(*kb)).collect());
        if at >= SIZES.len() {
            group.receive = Some(options.number("slow"));
            group.receive_buffer_bytes = Some(SLOW_BUFFER_BYTES);
        }
        group
    };
    Ok(LoadPlan {
        duration: options.measured,
        warmup: options.measured / 2,
        cores: vec![options.client_core],
        seed: round.into(),
        groups: names().enumerate().map(group).collect(),
        ..LoadPlan::default()
    })
}

fn entry(kb: u64) -> MixPath {
    MixPath { path: format!("/{kb}.bin").into(), weight: 1.0, length_bytes: Some(kb * 1000) }
}
