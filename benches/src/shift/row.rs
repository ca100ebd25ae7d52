//! One run under the load that shifts, and the tables of medians.

use super::load::{KINDS, Kind, Turn};
use crate::summary::Spread;
use std::fmt::Write;

/// Who says how many threads process and send have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A law of the controller, by its name in the configuration.
    Law(&'static str),
    /// The same law of another build, which there was before.
    Before(&'static str),
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
            Policy::Before(law) => format!("{law} before"),
            Policy::Fixed { process, send } => format!("fixed {process}×{send}"),
        }
    }

    /// Whether its counts stay.
    pub fn is_fixed(self) -> bool {
        matches!(self, Policy::Fixed { .. })
    }
}

/// What was seen of the requests of one phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The phase.
    pub turn: Turn,
    /// Answers, and requests that were given up.
    pub requests: u64,
    /// The mean time from when a request was due to its answer, ms.
    pub mean_ms: f64,
    /// The 99th percentile of that, ms.
    pub p99_ms: f64,
    /// Failed requests.
    pub failed: u64,
    /// Threads of process in the phase, the mean of samples.
    pub process: f64,
    /// Threads of send in the phase, the mean of samples.
    pub send: f64,
    /// Threads that the controller moved in the phase: to a phase of the pipeline, back, or to another.
    pub moved: f64,
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
    /// What was seen of each phase, in their order.
    pub phases: Vec<Seen>,
    /// What was seen of each kind alone, with counts that stay.
    pub alone: Vec<Seen>,
    /// Most threads of the server, all told.
    pub threads: u64,
    /// How busy the load generator's core was, 0 to 1.
    pub client: f64,
}

impl Row {
    /// The names of the columns, for a file: a line for each phase.
    pub const HEAD: &'static str =
        "round,place,policy,phase,requests,mean_ms,p99_ms,failed,process,send,moved,threads,client";

    /// As lines of a file.
    pub fn csv(&self) -> String {
        let Row { round, place, policy, threads, client, .. } = self;
        let mut text = String::new();
        for seen in self.phases.iter().chain(&self.alone) {
            // writing to a string does not fail
            let _ = writeln!(
                text,
                "{round},{place},{},{},{},{:.4},{:.4},{},{:.2},{:.2},{:.0},{threads},{client:.2}",
                policy.name(),
                seen.turn.name(),
                seen.requests,
                seen.mean_ms,
                seen.p99_ms,
                seen.failed,
                seen.process,
                seen.send,
                seen.moved,
            );
        }
        text
    }

    /// The mean time to an answer over all requests, ms.
    pub fn mean_ms(&self) -> f64 {
        let requests: u64 = self.phases.iter().map(|seen| seen.requests).sum();
        let total: f64 = self.phases.iter().map(|seen| seen.requests as f64 * seen.mean_ms).sum();
        total / requests.max(1) as f64
    }

    /// The mean time to an answer in one phase, ms.
    pub fn phase_ms(&self, turn: Turn) -> f64 {
        self.phases.iter().find(|seen| seen.turn == turn).map_or(0.0, |seen| seen.mean_ms)
    }

    /// The mean time to an answer to one kind alone, ms.
    pub fn alone_ms(&self, kind: Kind) -> Option<f64> {
        self.alone.iter().find(|seen| seen.turn.kind == kind).map(|seen| seen.mean_ms)
    }

    /// Threads moved in one phase.
    pub fn moved(&self, turn: Turn) -> f64 {
        self.phases.iter().find(|seen| seen.turn == turn).map_or(0.0, |seen| seen.moved)
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

/// The phases of all rows, in their order.
pub fn turns(rows: &[Row]) -> Vec<Turn> {
    rows.first().map_or_else(Vec::new, |row| row.phases.iter().map(|seen| seen.turn).collect())
}

/// Medians and spreads as markdown: times, those of one kind alone, then threads.
pub fn tables(rows: &[Row]) -> String {
    let turns = turns(rows);
    let names: String = turns.iter().map(|turn| format!(" {} |", turn.name())).collect();
    let rule = "---|".repeat(turns.len());
    let shown = |policy, digits: usize, figure: &dyn Fn(&Row) -> f64| {
        let spread = spread(rows, policy, figure);
        spread.map_or("–".to_owned(), |spread| format!("{spread:.digits$}"))
    };
    let mut text = format!(
        "\n## Mean time to an answer, ms\n\n| threads by | all |{names} failed |\n|---|---|{rule}---|\n"
    );
    for policy in policies(rows) {
        // writing to a string does not fail
        let _ = write!(text, "| {} | {} |", policy.name(), shown(policy, 2, &Row::mean_ms));
        for turn in &turns {
            let _ = write!(text, " {} |", shown(policy, 2, &|row| row.phase_ms(*turn)));
        }
        let of_policy = rows.iter().filter(|row| row.policy == policy);
        let failed: u64 = of_policy.flat_map(|row| &row.phases).map(|seen| seen.failed).sum();
        let _ = writeln!(text, " {failed} |");
    }
    text.push_str(&table_alone(rows));
    let _ = write!(
        text,
        "\n## Threads, process × send (mean)\n\n| threads by |{names} most, all told |\n|---|{rule}---|\n"
    );
    for policy in policies(rows) {
        let _ = write!(text, "| {} |", policy.name());
        let middle = |figure: &dyn Fn(&Row) -> f64| {
            spread(rows, policy, figure).map_or(0.0, |spread| spread.median)
        };
        for place in 0..turns.len() {
            let process = middle(&|row| row.phases[place].process);
            let send = middle(&|row| row.phases[place].send);
            let _ = write!(text, " {process:.1} × {send:.1} |");
        }
        let _ = writeln!(text, " {} |", shown(policy, 0, &|row| row.threads as f64));
    }
    text
}

/// Counts that stay, under each kind alone.
fn table_alone(rows: &[Row]) -> String {
    let alone: Vec<_> = rows.iter().filter(|row| !row.alone.is_empty()).cloned().collect();
    if alone.is_empty() {
        return String::new();
    }
    let names = KINDS.map(|kind| format!(" {} |", kind.name())).concat();
    let mut text = format!(
        "\n## Mean time to an answer where only one kind is asked for, ms\n\n| threads by |{names}\n|---|---|---|---|\n"
    );
    for policy in policies(&alone) {
        let of_kind = |kind| {
            let spread = spread(&alone, policy, |row| row.alone_ms(kind).unwrap_or(f64::NAN));
            spread.map_or("– |".to_owned(), |spread| format!("{spread:.2} |"))
        };
        // writing to a string does not fail
        let _ = writeln!(text, "| {} | {}", policy.name(), KINDS.map(of_kind).join(" "));
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The first phase of a kind.
    pub(crate) fn first(kind: Kind) -> Turn {
        Turn { kind, number: 1 }
    }

    /// A run in which answers of each kind took so long.
    pub(crate) fn row(round: u32, policy: Policy, means_ms: [f64; 3]) -> Row {
        let seen = |(kind, mean_ms): (Kind, f64)| {
            let (turn, requests) = (first(kind), 100);
            Seen {
                turn,
                requests,
                mean_ms,
                p99_ms: 0.0,
                failed: 0,
                process: 1.0,
                send: 1.0,
                moved: 0.0,
            }
        };
        let phases: Vec<_> = KINDS.into_iter().zip(means_ms).map(seen).collect();
        let alone = |seen: &Seen| Seen { turn: Turn { number: 0, ..seen.turn }, ..*seen };
        let alone = if policy.is_fixed() { phases.iter().map(alone).collect() } else { Vec::new() };
        Row { round, place: 0, policy, phases, alone, threads: 9, client: 0.1 }
    }

    #[test]
    fn the_mean_is_over_requests_and_not_over_phases() {
        let mut row = row(1, Policy::Law("queue"), [1.0, 2.0, 6.0]);
        assert!((row.mean_ms() - 3.0).abs() < 1e-9);
        row.phases[2].requests = 0;
        assert!((row.mean_ms() - 1.5).abs() < 1e-9);
    }

    #[test]
    fn a_row_has_a_line_for_each_phase_with_all_columns() {
        let text = row(1, Policy::Fixed { process: 2, send: 8 }, [1.0; 3]).csv();
        assert_eq!(text.lines().count(), 6);
        let columns = Row::HEAD.split(',').count();
        assert!(text.lines().all(|line| line.split(',').count() == columns), "{text}");
    }

    #[test]
    fn every_policy_has_a_line_in_all_tables() {
        let fixed = Policy::Fixed { process: 1, send: 4 };
        let rows = [row(1, fixed, [1.0; 3]), row(2, fixed, [3.0; 3])];
        let text = tables(&rows);
        assert_eq!(text.lines().filter(|line| line.starts_with("| fixed 1×4 |")).count(), 3);
        assert!(
            text.contains(
                "| fixed 1×4 | 2.00 (1.00–3.00) | 2.00 (1.00–3.00) | 2.00 (1.00–3.00) |\n"
            )
        );
        assert!(text.contains("| fixed 1×4 | 2.00 (1.00–3.00) |"), "{text}");
        let columns = |line: &&str| line.matches('|').count() == 7;
        assert!(
            text.lines().filter(|line| line.starts_with("| fixed")).take(1).all(|l| columns(&l))
        );
    }
}
