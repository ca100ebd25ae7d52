//! Where the time of a request goes (duke §VI.F, figure 7), and what opening the listening socket takes.
//!
//! The server times each request, activity by activity (`sample = 1`); what it has counted is read from
//! its metrics.

use crate::Error;
use crate::forebay::value;
use forebay_load::plan::{RequestsPerConnection, StatedVersion};
use forebay_load::{ClientGroup, LoadModel, LoadPlan, LoadTarget};
use std::fmt::Write;
use std::time::Duration;

/// Bytes of the file: what duke flooded his server with.
pub const FILE_BYTES: usize = 8192;

/// Activities of a request by the names of the metrics, in their order, and what duke's figure has for them.
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

/// What is kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Nothing: each request opens its file, as duke's server did.
    Off,
    /// The file, after the first request.
    On,
}

impl Cache {
    /// Both.
    pub const ALL: [Cache; 2] = [Cache::Off, Cache::On];

    /// What the table calls it.
    pub fn name(self) -> &'static str {
        match self {
            Cache::Off => "each request opens its file",
            Cache::On => "the file is in memory",
        }
    }

    /// What the configuration says of it.
    pub fn lines(self) -> &'static str {
        match self {
            Cache::Off => "cache.bytes = \"0B\"\n",
            Cache::On => "",
        }
    }
}

/// The flood: so many clients that wait for their answers, a connection for each request.
///
/// # Errors
/// When the address cannot be used.
pub fn plan(port: u16, clients: u32, seconds: u64, core: usize) -> Result<LoadPlan, Error> {
    let target = LoadTarget::parse(&format!("http://127.0.0.1:{port}/file.html"));
    let target = target.map_err(|error| Error::Client(error.to_string()))?;
    let mut group = ClientGroup::new("clients", target);
    let (think, ramp) = (Duration::ZERO..=Duration::ZERO, Duration::ZERO);
    group.load = LoadModel::Closed { connections: clients, think, ramp };
    group.per_connection = RequestsPerConnection::Exactly(1);
    group.version = StatedVersion::Http10;
    Ok(LoadPlan {
        duration: Duration::from_secs(seconds),
        cores: vec![core],
        groups: vec![group],
        ..LoadPlan::default()
    })
}

/// What a server has counted of its activities.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Connections that it has accepted, which is requests here.
    pub requests: f64,
    /// For each of the activities: seconds in all, and how often.
    activities: Vec<(f64, f64)>,
    /// For each of the steps at the start: seconds.
    steps: Vec<f64>,
}

impl Profile {
    /// From its metrics; what they lack is 0.
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

    /// What was counted since `before`; the steps are those of the start.
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

    /// As markdown: µs per request of each activity, and its share of their sum; then the steps.
    pub fn table(&self) -> String {
        let mut text =
            "\n| activity | duke's figure 7 | times per request | µs each | µs per request \
                        | share |\n|---|---|---|---|---|---|\n"
                .to_owned();
        let sum: f64 = self.activities.iter().map(|(seconds, _)| seconds).sum();
        let requests = self.requests.max(1.0);
        // writing to a string does not fail
        for ((name, duke), (seconds, count)) in ACTIVITIES.iter().zip(&self.activities) {
            let _ = writeln!(
                text,
                "| {name} | {duke} | {:.2} | {:.2} | {:.2} | {:.1} % |",
                count / requests,
                seconds * 1e6 / count.max(1.0),
                seconds * 1e6 / requests,
                seconds * 100.0 / sum.max(1e-12),
            );
        }
        let _ = writeln!(text, "| sum | | | | {:.2} | 100 % |", sum * 1e6 / requests);
        text += "\n| step at the start, once | µs |\n|---|---|\n";
        for (name, seconds) in STEPS.iter().zip(&self.steps) {
            let _ = writeln!(text, "| {name} | {:.2} |", seconds * 1e6);
        }
        text
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
        let text = profile.table();
        assert!(text.contains("| open | open file | 1.00 | 10.00 | 10.00 | 50.0 % |"), "{text}");
        assert!(text.contains("| parse | parse | 0.00 | 0.00 | 0.00 | 0.0 % |"), "{text}");
        assert!(text.contains("| sum | | | | 20.00 | 100 % |"), "{text}");
        assert!(text.contains("| bind | 7.50 |"), "{text}");
    }

    #[test]
    fn clients_of_the_flood_connect_for_each_request() {
        let plan = plan(1, 15, 5, 0).expect("a plan");
        assert!(plan.check().is_ok());
        assert_eq!(plan.groups[0].version, StatedVersion::Http10);
    }
}
