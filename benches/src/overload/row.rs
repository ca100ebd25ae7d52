//! One group of clients in one measurement, and tables of medians.

use crate::summary::Spread;
use forebay_load::report::GroupReport;

/// More than this of a core's time belongs to somebody else.
const NOISE: f64 = 0.05;

/// What became of a group's requests, per second of the measured time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The part of the bench.
    pub part: &'static str,
    /// Which of the rounds.
    pub round: u32,
    /// What was asked of the server, in the words of the part.
    pub case: String,
    /// Who answered.
    pub server: String,
    /// Which clients.
    pub group: String,
    /// Requests that were due.
    pub offered: f64,
    /// Good answers, in time or not.
    pub good: f64,
    /// Good answers in time.
    pub goodput: f64,
    /// Answers that said no: 503, 429, 502.
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
    /// What the server's core did in processes and interrupts, per second.
    pub core_busy: f64,
    /// How busy the load generator's core was, 0 to 1.
    pub client: f64,
    /// The share of the time in which the load generator could run but had no core, 0 to 1.
    pub starved: f64,
    /// What a part measures besides; its table says what.
    pub figure: Option<f64>,
}

impl Row {
    /// The names of the columns, for a file.
    pub const HEAD: &'static str = "part,round,case,server,group,offered_per_s,good_per_s,\
                                    goodput_per_s,refused_per_s,reset_per_s,lost_per_s,p50_ms,\
                                    p99_ms,max_ms,server_cores,core_busy,client,starved,figure";

    /// Of a group's part in a report; who and what is left to be said.
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

    /// As a line of a file.
    pub fn csv(&self) -> String {
        let figure = self.figure.map_or(String::new(), |figure| format!("{figure:.4}"));
        format!(
            "{},{},{},{},{},{:.2},{:.2},{:.2},{:.2},{:.2},{:.2},{:.3},{:.3},{:.3},{:.4},{:.4},{:.2},{:.3},{}",
            self.part,
            self.round,
            self.case,
            self.server,
            self.group,
            self.offered,
            self.good,
            self.goodput,
            self.refused,
            self.reset,
            self.lost,
            self.p50_ms,
            self.p99_ms,
            self.max_ms,
            self.server_cores,
            self.core_busy,
            self.client,
            self.starved,
            figure
        )
    }

    /// Whether something else ran on the cores of server or clients for more than 5 % of the time.
    pub fn is_noisy(&self) -> bool {
        self.core_busy - self.server_cores > NOISE || self.starved > NOISE
    }

    /// Whether it is of this case and server.
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
    match Spread::of(rows.into_iter().filter_map(figure)) {
        // one round has no spread
        Some(one) if one.least.total_cmp(&one.most).is_eq() => format!("{:.digits$}", one.median),
        Some(spread) => format!("{spread:.digits$}"),
        None => "–".to_owned(),
    }
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

/// Every column that all parts share, a line for each case, server and group.
pub fn table(rows: &[&Row], figure: &str) -> String {
    let mut text = format!(
        "\n| case | server | clients | offered/s | good/s | in time/s | refused/s | reset/s | \
         lost/s | p50 ms | p99 ms | {figure} |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for case in each(rows.iter().copied(), |row| &row.case) {
        let of_case = rows.iter().copied().filter(|row| row.case == case);
        for server in each(of_case.clone(), |row| &row.server) {
            let of_server = of_case.clone().filter(|row| row.server == server);
            for group in each(of_server.clone(), |row| &row.group) {
                let mine = of_server.clone().filter(|row| row.group == group);
                let cell = |digits, figure: fn(&Row) -> f64| {
                    shown(mine.clone(), digits, |row| Some(figure(row)))
                };
                text.push_str(&format!(
                    "| {case} | {server} | {group} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
                    cell(1, |row| row.offered),
                    cell(1, |row| row.good),
                    cell(1, |row| row.goodput),
                    cell(1, |row| row.refused),
                    cell(1, |row| row.reset),
                    cell(1, |row| row.lost),
                    cell(1, |row| row.p50_ms),
                    cell(1, |row| row.p99_ms),
                    shown(mine.clone(), 2, |row| row.figure),
                ));
            }
        }
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row of a group with so much goodput.
    pub(crate) fn row(case: &str, server: &str, group: &str, goodput: f64) -> Row {
        Row {
            part: "goodput",
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
    fn a_row_has_all_columns() {
        let text = Row { figure: Some(1.0), ..row("a", "b", "c", 1.0) }.csv();
        assert_eq!(text.split(',').count(), Row::HEAD.split(',').count());
        assert_eq!(Row::default().csv().split(',').count(), Row::HEAD.split(',').count());
    }

    #[test]
    fn rounds_share_a_line_and_one_round_has_no_spread() {
        let rows = [row("1", "s", "g", 1.0), row("1", "s", "g", 3.0), row("1", "s", "h", 5.0)];
        let text = table(&rows.iter().collect::<Vec<_>>(), "x");
        assert!(text.contains("| 1 | s | g | 0.0 | 2.0 (1.0–3.0) |"), "{text}");
        assert!(text.contains("| 1 | s | h | 0.0 | 5.0 |"), "{text}");
    }
}
