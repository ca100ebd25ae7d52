//! The time of a request, activity by activity (duke §VI.F, figure 7), and that of opening the
//! listening socket.
//!
//! The server times each request, activity by activity (`sample = 1`); the counters are read from
//! its metrics.

use crate::Error;
use crate::benchmark::{Benchmark, BenchmarkNetwork, Measure, nothing};
use crate::columns::{figure, key};
use crate::content::body;
use crate::forebay::value;
use crate::load::{self, target};
use crate::options::{Axis, Kind, Setting};
use crate::rows::{RawRow, each};
use crate::run::{Run, Trial};
use crate::serving::{Forebay, Serving};
use forebay_load::plan::{RequestsPerConnection, StatedVersion};
use forebay_load::{ClientGroup, LoadModel, LoadPlan};
use std::fs;
use std::time::Duration;

/// The size of the file with which duke flooded his server, in bytes.
pub const FILE_BYTES: usize = 8192;

/// Activities of a request by the names of the metrics, in their order, with the rows of duke's
/// figure.
const ACTIVITIES: [(&str, &str); 12] = [
    ("accept", "accept"),
    ("thread", "thread start"),
    ("read", "read request"),
    ("parse", "parse"),
    ("process", "–"),
    ("open", "open file"),
    ("fstat", "stat file"),
    ("load", "read file"),
    ("compute", "–"),
    ("sendfile", "read and send file"),
    ("send", "send"),
    ("close", "close"),
];

/// Steps of opening listening sockets, by the names of the metrics.
const STEPS: [&str; 4] = ["socket", "setsockopt", "bind", "listen"];

/// The experiment.
pub const PROFILE: Benchmark = Benchmark {
    name: "profile",
    title: "Profile of an engine that is flooded (duke's figure 7)",
    about: "Where the time of a request goes, activity by activity. Times are wall-clock.",
    servers: Axis {
        alias: Some("engine"),
        ..Axis::new("engine", "servers", "Engines", engines, "threads")
    },
    peers: &[],
    clients: &[],
    sweep: &[Axis::new(
        "cache",
        "caches",
        "Each request opens its file (off), or the file is in memory (on)",
        caches,
        "",
    )],
    points: None,
    settings: &[Setting {
        name: "clients",
        kind: Kind::Number,
        default: "15",
        help: "Clients that wait for their answers, a connection for each request",
    }],
    rounds: 1,
    measured: "5s",
    network: BenchmarkNetwork::Shared,
    pinned: true,
    columns: &[
        key("engine"),
        key("cache"),
        key("activity"),
        key("duke"),
        figure("per_request").shown("times per request", 2),
        figure("each_us").shown("µs each", 2),
        figure("us_per_request").shown("µs per request", 2),
        figure("share_pc").shown("share, %", 1),
        figure("answers_per_s").shown("answers/s", 0),
    ],
    tables: &["engine", "cache"],
    lines: &["activity", "duke"],
    ratios: &[],
    claims: &[],
    more: nothing,
    prepare,
};

/// The rows with one more for each server and cache: the file opened, and asked for its size.
pub fn with_sums(rows: Vec<RawRow>) -> Vec<RawRow> {
    let parts = ["open", "fstat"];
    let found = each(&rows, &["engine", "cache"]);
    let sum = |words: &Vec<&str>| {
        let is_part = |row: &&RawRow| {
            [row.text("engine"), row.text("cache")] == words[..]
                && parts.contains(&row.text("activity"))
        };
        let of = |name: &str| rows.iter().filter(is_part).filter_map(|row| row.get(name)).sum();
        let row = RawRow::default().word("engine", words[0]).word("cache", words[1]);
        let row = row.word("activity", "open+stat").figure("us_per_request", of("us_per_request"));
        row.figure("share_pc", of("share_pc"))
    };
    let sums: Vec<RawRow> = found.iter().map(sum).collect();
    rows.into_iter().chain(sums).collect()
}

fn engines() -> Vec<&'static str> {
    crate::engines::engines().collect()
}

fn caches() -> Vec<&'static str> {
    vec!["off", "on"]
}

struct ProfileMeasure;

fn prepare(run: &Run) -> Result<Box<dyn Measure>, Error> {
    let file = run.root.join("file.html");
    fs::write(&file, body(FILE_BYTES)).map_err(Error::io("cannot write", &file))?;
    Ok(Box::new(ProfileMeasure))
}

impl Measure for ProfileMeasure {
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Vec<RawRow>, Error> {
        let run = trial.run;
        // duke's server opened its file for each request
        let cache = if trial.at("cache") == "off" { "cache.bytes = \"0B\"\n" } else { "" };
        let engine = trial.server;
        let lines = format!("root = {:?}\nengine = \"{engine}\"\nsample = 1\n{cache}", run.root);
        let serving = Serving::forebay(run, &Forebay::new(&lines))?;
        serving.asked("file.html")?;
        let loaded = load::run(run, &serving, &plan(run, serving.port())?, &mut |_| {})?;
        let [before, after] = loaded.metrics.each_ref().map(|metrics| Profile::read(metrics));
        let group = &loaded.report.groups[0];
        let mut rows = after.since(&before).rows();
        let answers_per_s = group.good as f64 / group.seconds.max(1e-9);
        rows.iter_mut()
            .filter(|row| row.text("activity") == "sum")
            .for_each(|row| *row = row.clone().figure("answers_per_s", answers_per_s));
        Ok(rows)
    }
}

/// The flood: clients that wait for their answers, a connection for each request.
fn plan(run: &Run, port: u16) -> Result<LoadPlan, Error> {
    let mut group = ClientGroup::new("clients", target(port, "file.html")?);
    let (think, ramp) = (Duration::ZERO..=Duration::ZERO, Duration::ZERO);
    let connections = run.options.number("clients") as u32;
    group.load = LoadModel::Closed { connections, think, ramp };
    group.per_connection = RequestsPerConnection::Exactly(1);
    group.version = StatedVersion::Http10;
    Ok(LoadPlan {
        duration: run.options.measured,
        cores: vec![run.options.client_core],
        groups: vec![group],
        ..LoadPlan::default()
    })
}

/// A server's counters of its activities.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The number of connections that the server has accepted, which is that of requests here.
    pub requests: f64,
    /// Each activity's total in seconds, and its count.
    activities: Vec<(f64, f64)>,
    /// The seconds of each step at the start.
    steps: Vec<f64>,
}

impl Profile {
    /// Reads the counters from a server's metrics; missing ones are 0.
    pub fn read(metrics: &str) -> Profile {
        let of = |name: &str| value(metrics, name).unwrap_or_default();
        let activity = |name: &str| {
            let series = |what| format!("forebay_activity_seconds_{what}{{activity=\"{name}\"}}");
            (of(&series("sum")), of(&series("count")))
        };
        let step = |step: &str| of(&format!("forebay_listen_nanoseconds_total{{step=\"{step}\"}}"));
        Profile {
            requests: of("forebay_responses_total{class=\"2xx\"}"),
            activities: ACTIVITIES.iter().map(|(name, _)| activity(name)).collect(),
            steps: STEPS.iter().map(|name| step(name) / 1e9).collect(),
        }
    }

    /// The counts since `before`; the steps are those of the start.
    #[must_use]
    pub fn since(&self, before: &Profile) -> Profile {
        let of = |at: usize| before.activities.get(at).copied().unwrap_or_default();
        let activities = self.activities.iter().enumerate();
        Profile {
            requests: self.requests - before.requests,
            activities: activities.map(|(at, now)| (now.0 - of(at).0, now.1 - of(at).1)).collect(),
            steps: self.steps.clone(),
        }
    }

    /// A row for each activity, for their sum, and for each step of the start.
    fn rows(&self) -> Vec<RawRow> {
        let sum: f64 = self.activities.iter().map(|(seconds, _)| seconds).sum();
        let requests = self.requests.max(1.0);
        let mut rows: Vec<RawRow> = Vec::new();
        for ((name, duke), (seconds, count)) in ACTIVITIES.iter().zip(&self.activities) {
            let row = RawRow::default()
                .word("activity", *name)
                .word("duke", *duke)
                .figure("per_request", count / requests)
                .figure("each_us", seconds * 1e6 / count.max(1.0))
                .figure("us_per_request", seconds * 1e6 / requests)
                .figure("share_pc", seconds * 100.0 / sum.max(1e-12));
            rows.push(row);
        }
        let sum = RawRow::default()
            .word("activity", "sum")
            .figure("us_per_request", sum * 1e6 / requests);
        rows.push(sum.figure("share_pc", 100.0));
        for (name, seconds) in STEPS.iter().zip(&self.steps) {
            let row = RawRow::default().word("activity", format!("{name}, once at the start"));
            rows.push(row.figure("each_us", seconds * 1e6));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_what_was_counted_in_between() {
        let metrics = |requests: u32, seconds: &str| {
            format!(
                "forebay_responses_total{{class=\"2xx\"}} {requests}\n\
                 forebay_activity_seconds_sum{{activity=\"open\"}} {seconds}\n\
                 forebay_activity_seconds_count{{activity=\"open\"}} {requests}\n\
                 forebay_activity_seconds_sum{{activity=\"send\"}} {seconds}\n\
                 forebay_activity_seconds_count{{activity=\"send\"}} {requests}\n\
                 forebay_listen_nanoseconds_total{{step=\"bind\"}} 7500\n"
            )
        };
        let before = Profile::read(&metrics(10, "0.5"));
        let profile = Profile::read(&metrics(110, "0.501")).since(&before);
        let file = crate::columns::file(PROFILE.columns);
        let rows: Vec<_> = profile.rows().iter().map(|row| file.line(row)).collect();
        let text = rows.concat();
        assert!(text.contains(",open,open file,1,10,10,50,,"), "{text}");
        assert!(text.contains(",parse,parse,0,0,0,0,,"), "{text}");
        assert!(text.contains(",sum,,,,20,100,,"), "{text}");
        assert!(text.contains("bind, once at the start\",,,7.5,"), "{text}");
    }
}
