//! One run under the load that shifts, and the tables of medians.

use super::load::{KINDS, Kind};
use crate::summary::Spread;
use std::fmt::Write;

/// Who says how many threads process and send have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A law of the controller, by its name in the configuration.
    Law(&'static str),
    /// Nobody: as many as at the start.
    Fixed {
        /// Threads of process.
        process: u32,
        /// Threads of send.
        send: u32,
    },
}

impl Policy {
    /// As tables show it.
    pub fn name(self) -> String {
        match self {
            Policy::Law(law) => law.to_owned(),
            Policy::Fixed { process, send } => format!("fixed {process}×{send}"),
        }
    }

    /// Whether its counts stay.
    pub fn is_fixed(self) -> bool {
        matches!(self, Policy::Fixed { .. })
    }
}

/// What was seen of one kind of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Answers, and requests that were given up.
    pub requests: u64,
    /// The mean time from when a request was due to its answer, ms.
    pub mean_ms: f64,
    /// The 99th percentile of that, ms.
    pub p99_ms: f64,
    /// Answers per second in its phases.
    pub rate: f64,
    /// Failed requests.
    pub failed: u64,
    /// Threads of process in its phases, the mean of samples.
    pub process: f64,
    /// Threads of send in its phases, the mean of samples.
    pub send: f64,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which of the repetitions.
    pub round: u32,
    /// The place in its order.
    pub place: usize,
    /// Who decided about threads.
    pub policy: Policy,
    /// What was seen of each kind, in the order of [`KINDS`].
    pub kinds: [Seen; 3],
    /// Most threads of the server, all told.
    pub threads: u64,
    /// How busy the load generator's core was, 0 to 1.
    pub client: f64,
}

impl Row {
    /// The names of the columns, for a file: a line for each kind.
    pub const HEAD: &'static str = "round,place,policy,kind,requests,mean_ms,p99_ms,rate_per_s,\
                                    failed,process,send,threads,client";

    /// As lines of a file.
    pub fn csv(&self) -> String {
        let Row { round, place, policy, threads, client, .. } = self;
        let mut text = String::new();
        for (kind, seen) in KINDS.iter().zip(&self.kinds) {
            // writing to a string does not fail
            let _ = writeln!(
                text,
                "{round},{place},{},{},{},{:.4},{:.4},{:.1},{},{:.2},{:.2},{threads},{client:.2}",
                policy.name(),
                kind.name(),
                seen.requests,
                seen.mean_ms,
                seen.p99_ms,
                seen.rate,
                seen.failed,
                seen.process,
                seen.send,
            );
        }
        text
    }

    /// The mean time to an answer over all requests, ms.
    pub fn mean_ms(&self) -> f64 {
        let requests: u64 = self.kinds.iter().map(|seen| seen.requests).sum();
        let total: f64 = self.kinds.iter().map(|seen| seen.requests as f64 * seen.mean_ms).sum();
        total / requests.max(1) as f64
    }

    /// The mean time to an answer of one kind, ms.
    pub fn kind_ms(&self, kind: Kind) -> f64 {
        self.kinds[kind as usize].mean_ms
    }
}

/// The policies that have rows, each once.
pub fn policies(rows: &[Row]) -> Vec<Policy> {
    let mut found = Vec::new();
    for row in rows {
        if !found.contains(&row.policy) {
            found.push(row.policy);
        }
    }
    found
}

/// The spread of a figure over the rows of one policy.
pub fn spread(rows: &[Row], policy: Policy, figure: impl Fn(&Row) -> f64) -> Option<Spread> {
    Spread::of(rows.iter().filter(|row| row.policy == policy).map(figure))
}

/// Medians and spreads as markdown: times, then throughput and threads.
pub fn tables(rows: &[Row]) -> String {
    let shown = |policy, digits: usize, figure: &dyn Fn(&Row) -> f64| {
        let spread = spread(rows, policy, figure);
        spread.map_or("–".to_owned(), |spread| format!("{spread:.digits$}"))
    };
    let middle = |policy, figure: &dyn Fn(&Row) -> f64| {
        spread(rows, policy, figure).map_or(0.0, |spread| spread.median)
    };
    let mut text = "\n## Mean time to an answer, ms\n\n| threads by | all | hot | cold | slow | \
                    failed |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for policy in policies(rows) {
        let _ = write!(text, "| {} | {} |", policy.name(), shown(policy, 2, &Row::mean_ms));
        for kind in KINDS {
            let _ = write!(text, " {} |", shown(policy, 2, &|row| row.kind_ms(kind)));
        }
        let of_policy = rows.iter().filter(|row| row.policy == policy);
        let failed: u64 = of_policy.flat_map(|row| &row.kinds).map(|seen| seen.failed).sum();
        let _ = writeln!(text, " {failed} |");
    }
    text.push_str(
        "\n## Answers per second, and threads (process × send, mean)\n\n| threads by | hot | cold \
         | slow | hot | cold | slow | most, all told |\n|---|---|---|---|---|---|---|---|\n",
    );
    for policy in policies(rows) {
        let _ = write!(text, "| {} |", policy.name());
        for kind in KINDS {
            let _ = write!(text, " {} |", shown(policy, 0, &|row| row.kinds[kind as usize].rate));
        }
        for kind in KINDS {
            let of = |row: &Row| row.kinds[kind as usize];
            let process = middle(policy, &|row| of(row).process);
            let send = middle(policy, &|row| of(row).send);
            let _ = write!(text, " {process:.1} × {send:.1} |");
        }
        let _ = writeln!(text, " {} |", shown(policy, 0, &|row| row.threads as f64));
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run in which answers of each kind took so long.
    pub(crate) fn row(round: u32, policy: Policy, means_ms: [f64; 3]) -> Row {
        let seen = |mean_ms| Seen { requests: 100, mean_ms, ..Seen::default() };
        Row { round, place: 0, policy, kinds: means_ms.map(seen), threads: 9, client: 0.1 }
    }

    #[test]
    fn the_mean_is_over_requests_and_not_over_kinds() {
        let mut row = row(1, Policy::Law("queue"), [1.0, 2.0, 6.0]);
        assert!((row.mean_ms() - 3.0).abs() < 1e-9);
        row.kinds[2].requests = 0;
        assert!((row.mean_ms() - 1.5).abs() < 1e-9);
    }

    #[test]
    fn a_row_has_a_line_for_each_kind_with_all_columns() {
        let text = row(1, Policy::Fixed { process: 2, send: 8 }, [1.0; 3]).csv();
        assert_eq!(text.lines().count(), 3);
        let columns = Row::HEAD.split(',').count();
        assert!(text.lines().all(|line| line.split(',').count() == columns), "{text}");
    }

    #[test]
    fn every_policy_has_a_line_in_both_tables() {
        let fixed = Policy::Fixed { process: 1, send: 4 };
        let rows = [row(1, fixed, [1.0; 3]), row(2, fixed, [3.0; 3])];
        let text = tables(&rows);
        assert_eq!(text.lines().filter(|line| line.starts_with("| fixed 1×4 |")).count(), 2);
        assert!(text.contains("| fixed 1×4 | 2.00 (1.00–3.00) |"), "{text}");
    }
}
