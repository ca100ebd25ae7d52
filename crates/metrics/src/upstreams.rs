//! Requests to applications and their answers, upstream by upstream.
//!
//! Several threads use the same upstream, so its counts are shared: an atomic addition costs little beside
//! the request itself. Upstreams are named by the configuration alone, and at most [`MOST_UPSTREAMS`] are
//! reported.

use crate::histogram::{DurationTotals, SharedDurations};
use crate::text::{CLASSES, announce, durations, escape, histogram, line, object};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The largest number of upstreams that are reported: those that stand first in the configuration.
pub const MOST_UPSTREAMS: usize = 100;

/// The counts of an upstream.
#[derive(Debug, Default)]
pub struct UpstreamCounts {
    answers: [AtomicU64; 5],
    failed: AtomicU64,
    connects: SharedDurations,
    heads: SharedDurations,
}

impl UpstreamCounts {
    /// Counts the head of an answer, which came `head_ns` after the request was begun.
    pub fn answered(&self, status: u16, head_ns: u64) {
        let class = usize::from(status / 100).clamp(1, 5);
        self.answers[class - 1].fetch_add(1, Relaxed);
        self.heads.took(head_ns);
    }

    /// Counts a new connection, and the time it took.
    pub fn connected(&self, ns: u64) {
        self.connects.took(ns);
    }

    /// Counts a failed attempt.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    /// The counts so far.
    pub fn totals(&self) -> UpstreamTotals {
        UpstreamTotals {
            answers: [0, 1, 2, 3, 4].map(|class| self.answers[class].load(Relaxed)),
            failed: self.failed.load(Relaxed),
            connects: self.connects.totals(),
            heads: self.heads.totals(),
        }
    }
}

/// The counts of an upstream, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTotals {
    /// Answers by status class, from 1xx to 5xx.
    pub answers: [u64; 5],
    /// Failed attempts: no connection, no answer, or an invalid one.
    pub failed: u64,
    /// The times that new connections took.
    pub connects: DurationTotals,
    /// The times from the beginning of a request to the head of its answer.
    pub heads: DurationTotals,
}

/// Whether requests go to an upstream, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamState {
    /// The upstream gets requests.
    #[default]
    Asked,
    /// The upstream is a backup: it gets requests while none of the others works.
    Backup,
    /// The upstream has failed and gets no requests for a while.
    LeftAlone,
    /// The upstream's health checks fail.
    ChecksFail,
    /// The upstream fails but gets requests all the same, because none works.
    Failing,
    /// An operator has drained the upstream.
    Drained,
}

impl UpstreamState {
    /// All states, in order.
    pub const ALL: [UpstreamState; 6] = [
        UpstreamState::Asked,
        UpstreamState::Backup,
        UpstreamState::LeftAlone,
        UpstreamState::ChecksFail,
        UpstreamState::Failing,
        UpstreamState::Drained,
    ];

    /// The state's label.
    pub fn as_str(self) -> &'static str {
        match self {
            UpstreamState::Asked => "asked",
            UpstreamState::Backup => "backup",
            UpstreamState::LeftAlone => "left_alone",
            UpstreamState::ChecksFail => "checks_fail",
            UpstreamState::Failing => "failing",
            UpstreamState::Drained => "drained",
        }
    }
}

/// The figures of an application's upstream, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamRow {
    /// The site of the application's first route.
    pub site: String,
    /// The application's first route.
    pub route: String,
    /// The name of the upstream in logs.
    pub upstream: String,
    /// Whether the upstream gets requests, and why.
    pub state: UpstreamState,
    /// How long the upstream has been in that state, in seconds; `None` if that is not known.
    pub for_s: Option<u64>,
    /// Requests that the upstream has under way.
    pub in_flight: u64,
    /// The largest number of requests under way; `None` for no limit.
    pub most: Option<u64>,
    /// Requests that wait for one of the application's upstreams.
    pub waiting: u64,
    /// The counts of the upstream.
    pub totals: UpstreamTotals,
}

impl UpstreamRow {
    fn labels(&self) -> String {
        let UpstreamRow { site, route, upstream, .. } = self;
        format!(
            "site=\"{}\",route=\"{}\",upstream=\"{}\"",
            escape(site),
            escape(route),
            escape(upstream)
        )
    }
}

/// Writes the metrics in Prometheus' text format.
pub(crate) fn metrics(text: &mut String, rows: &[UpstreamRow]) {
    if rows.is_empty() {
        return;
    }
    let metric = "forebay_upstream_state";
    let help =
        "Whether an upstream is in this state: 1, or 0; by the first route of its application.";
    announce(text, metric, help, "gauge");
    for row in rows {
        for state in UpstreamState::ALL {
            let labels = format!("{},state=\"{}\"", row.labels(), state.as_str());
            line(text, metric, &labels, if row.state == state { "1" } else { "0" });
        }
    }
    let metric = "forebay_upstream_in_flight";
    announce(text, metric, "Requests under way to an upstream.", "gauge");
    for row in rows {
        line(text, metric, &row.labels(), &row.in_flight.to_string());
    }
    let metric = "forebay_upstream_waiting";
    let help = "Requests that wait for one of the upstreams of an application, by its first route.";
    announce(text, metric, help, "gauge");
    for (at, row) in rows.iter().enumerate() {
        let place = |row: &UpstreamRow| (row.site.clone(), row.route.clone());
        if rows[..at].iter().all(|before| place(before) != place(row)) {
            let labels = format!("site=\"{}\",route=\"{}\"", escape(&row.site), escape(&row.route));
            line(text, metric, &labels, &row.waiting.to_string());
        }
    }
    let metric = "forebay_upstream_answers_total";
    announce(text, metric, "Answers of an upstream by status class.", "counter");
    for row in rows {
        for (class, count) in CLASSES.iter().zip(row.totals.answers) {
            line(text, metric, &format!("{},class=\"{class}\"", row.labels()), &count.to_string());
        }
    }
    let metric = "forebay_upstream_failed_attempts_total";
    let help = "Times an upstream was asked and has not answered, or not in a way that could be understood.";
    announce(text, metric, help, "counter");
    for row in rows {
        line(text, metric, &row.labels(), &row.totals.failed.to_string());
    }
    type Times = fn(&UpstreamTotals) -> &DurationTotals;
    let times: [(&str, &str, Times); 2] = [
        (
            "forebay_upstream_connect_seconds",
            "New connections to an upstream by how long they took.",
            |totals| &totals.connects,
        ),
        (
            "forebay_upstream_head_seconds",
            "Answers of an upstream by how long it took until their head was there, from when the request was begun.",
            |totals| &totals.heads,
        ),
    ];
    for (metric, help, of) in times {
        announce(text, metric, help, "histogram");
        for row in rows {
            histogram(text, metric, &row.labels(), of(&row.totals));
        }
    }
}

/// Writes the member `upstreams` of the JSON status.
pub(crate) fn json(text: &mut String, rows: &[UpstreamRow]) {
    let number = |number: Option<u64>| number.map_or("null".to_owned(), |n| n.to_string());
    let one = |row: &UpstreamRow| {
        let UpstreamTotals { answers, failed, connects, heads } = &row.totals;
        format!(
            "{{\"site\":\"{}\",\"route\":\"{}\",\"upstream\":\"{}\",\"state\":\"{}\",\"for_s\":{},\
             \"in_flight\":{},\"most\":{},\"waiting\":{},\"answers\":{},\"failed\":{failed},\
             \"connects\":{},\"heads\":{}}}",
            escape(&row.site),
            escape(&row.route),
            escape(&row.upstream),
            row.state.as_str(),
            number(row.for_s),
            row.in_flight,
            number(row.most),
            row.waiting,
            object(CLASSES.into_iter().zip(*answers)),
            durations(connects),
            durations(heads),
        )
    };
    let rows: Vec<String> = rows.iter().map(one).collect();
    let _ = write!(text, "\"upstreams\":[{}],", rows.join(","));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_threads_count_for_one_upstream() {
        let counts = UpstreamCounts::default();
        std::thread::scope(|scope| {
            for status in [200, 404, 599] {
                let counts = &counts;
                scope.spawn(move || {
                    for _ in 0..1000 {
                        counts.answered(status, 1);
                    }
                });
            }
        });
        counts.failed();
        counts.connected(5_000_000);
        let totals = counts.totals();
        assert_eq!((totals.answers, totals.failed), ([0, 1000, 0, 1000, 1000], 1));
        assert_eq!((totals.heads.count(), totals.connects.count()), (3000, 1));
    }
}
