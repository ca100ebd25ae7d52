//! One group of clients in one measurement, and tables of medians.

use crate::rows::{NOISY, RawRow};
use crate::summary::{Spread, shown as spread_shown};
use forebay_load::report::GroupReport;

/// The share of a core's time that other programs may have; above it a row is noisy.
const NOISE: f64 = 0.05;

/// The outcome of a group's requests, per second of the measured time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The part of the bench.
    pub part: String,
    /// The round's number.
    pub round: u32,
    /// The requests, in the words of the part.
    pub case: String,
    /// The server.
    pub server: String,
    /// The group of clients.
    pub group: String,
    /// Requests that were due.
    pub offered: f64,
    /// Good answers, in time or not.
    pub good: f64,
    /// Good answers in time.
    pub goodput: f64,
    /// Refusals: 503, 429, 502.
    pub refused: f64,
    /// Connections refused, reset or closed instead of an answer.
    pub reset: f64,
    /// Requests that were neither answered nor refused in the measured time: given up, or waiting.
    pub lost: f64,
    /// Median of the time from when a request was due to its good answer, or to the end of
    /// patience, ms.
    pub p50_ms: f64,
    /// 99th percentile of that, ms.
    pub p99_ms: f64,
    /// The longest, ms.
    pub max_ms: f64,
    /// Processor time of all the server's processes per second, for all groups together.
    pub server_cores: f64,
    /// The work of the server's core in processes and interrupts, per second.
    pub core_busy: f64,
    /// The load of the load generator's core, 0 to 1.
    pub client: f64,
    /// The share of the time in which the load generator could run but had no core, 0 to 1.
    pub starved: f64,
    /// A figure of the part's own; its table says which.
    pub figure: Option<f64>,
}

impl Row {
    /// The row of a group's part in a report, without server, case and round.
    pub fn of(group: &GroupReport) -> Row {
        let per_s = |count: u64| count as f64 / group.seconds;
        let failures = |kinds: &[&str]| {
            let counts = kinds.iter().filter_map(|kind| group.failures.get(*kind));
            per_s(counts.sum())
        };
        let (offered, refused) = (per_s(group.offered), group.rate - group.good_rate);
        let reset = failures(&["refused", "reset", "closed", "short"]);
        Row {
            group: group.name.clone(),
            offered,
            good: group.good_rate,
            goodput: group.goodput,
            refused,
            reset,
            lost: (offered - group.rate - reset).max(0.0),
            p50_ms: group.latency.p50_us / 1e3,
            p99_ms: group.latency.p99_us / 1e3,
            max_ms: group.latency.max_us / 1e3,
            ..Row::default()
        }
    }

    /// The row in the form that all experiments have.
    pub fn record(&self) -> RawRow {
        let row = RawRow::default()
            .word("part", &self.part)
            .word("case", &self.case)
            .word("server", &self.server)
            .word("group", &self.group)
            .figure("offered_per_s", self.offered)
            .figure("good_per_s", self.good)
            .figure("goodput_per_s", self.goodput)
            .figure("refused_per_s", self.refused)
            .figure("reset_per_s", self.reset)
            .figure("lost_per_s", self.lost)
            .figure("p50_ms", self.p50_ms)
            .figure("p99_ms", self.p99_ms)
            .figure("max_ms", self.max_ms)
            .figure("server_cores", self.server_cores)
            .figure("core_busy", self.core_busy)
            .figure("client", self.client)
            .figure("starved", self.starved)
            .figure("figure", self.figure.unwrap_or(f64::NAN));
        let mut row = row.flag(NOISY, self.is_noisy());
        row.round = self.round;
        row
    }

    /// Reads a row of that form.
    pub fn read(row: &RawRow) -> Row {
        let of = |name: &str| row.get(name).unwrap_or_default();
        Row {
            part: row.text("part").to_owned(),
            round: row.round,
            case: row.text("case").to_owned(),
            server: row.text("server").to_owned(),
            group: row.text("group").to_owned(),
            offered: of("offered_per_s"),
            good: of("good_per_s"),
            goodput: of("goodput_per_s"),
            refused: of("refused_per_s"),
            reset: of("reset_per_s"),
            lost: of("lost_per_s"),
            p50_ms: of("p50_ms"),
            p99_ms: of("p99_ms"),
            max_ms: of("max_ms"),
            server_cores: of("server_cores"),
            core_busy: of("core_busy"),
            client: of("client"),
            starved: of("starved"),
            figure: row.get("figure"),
        }
    }

    /// Whether something else ran on the cores of server or clients for more than 5 % of the time.
    pub fn is_noisy(&self) -> bool {
        self.core_busy - self.server_cores > NOISE || self.starved > NOISE
    }

    /// Whether the row is of this case and server.
    pub fn is(&self, case: &str, server: &str) -> bool {
        self.case == case && self.server == server
    }
}

/// The median and spread of a figure as a table shows it.
pub fn shown<'r>(
    rows: impl IntoIterator<Item = &'r Row>,
    digits: usize,
    figure: impl Fn(&Row) -> Option<f64>,
) -> String {
    spread_shown(Spread::of(rows.into_iter().filter_map(figure)).as_ref(), digits)
}

/// The median of a figure.
pub fn middle<'r>(
    rows: impl IntoIterator<Item = &'r Row>,
    figure: impl Fn(&Row) -> f64,
) -> Option<f64> {
    Spread::of(rows.into_iter().map(figure)).map(|spread| spread.median)
}

/// The values of a column, each once, in the order of the rows.
pub fn each<'r>(
    rows: impl IntoIterator<Item = &'r Row>,
    column: impl Fn(&'r Row) -> &'r str,
) -> Vec<&'r str> {
    let mut found = Vec::new();
    for value in rows.into_iter().map(column) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row of a group with this goodput.
    pub(crate) fn row(case: &str, server: &str, group: &str, goodput: f64) -> Row {
        Row {
            part: "goodput".to_owned(),
            round: 1,
            case: case.to_owned(),
            server: server.to_owned(),
            group: group.to_owned(),
            goodput,
            good: goodput,
            ..Row::default()
        }
    }

    #[test]
    fn a_row_is_read_back() {
        let row = Row { figure: Some(1.0), p99_ms: 2.0, ..row("a, b", "s", "g", 3.0) };
        assert_eq!(Row::read(&row.record()), row);
        assert_eq!(Row::read(&Row::default().record()), Row::default());
    }
}
