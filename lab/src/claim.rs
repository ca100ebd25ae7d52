//! Claims: a figure of some rows, compared with another of the same round, and the goal that it meets or misses.

use crate::reference::{Reference, RowKeys, other_of};
use crate::rows::{RawRow, each};
use crate::summary::{Spread, brief};
use std::fmt::Write;

/// A claim that a figure is at most, or at least, as large as a bound.
#[derive(Clone, Copy, Debug)]
pub struct BenchmarkClaim {
    /// The claim, in a few words.
    pub what: &'static str,
    /// The rows that it is about; each combination of their other words has a verdict.
    pub of: RowKeys,
    /// The figure.
    pub figure: &'static str,
    /// The figure that it is compared with.
    pub against: Against,
    /// The bound.
    pub goal: Goal,
    /// The rounds that decide.
    pub by: DecidedBy,
}

/// The figure that another is compared with.
#[derive(Clone, Copy, Debug)]
pub enum Against {
    /// None; the bound is absolute.
    Nothing,
    /// The same figure of other rows.
    Others(Reference),
    /// Another figure of the same row.
    Column(&'static str),
}

/// A bound: a factor for the compared figure, and a number that is added.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// At most this.
    AtMost(f64, f64),
    /// At least this.
    AtLeast(f64, f64),
}

/// The rounds that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// The median of all.
    Median,
    /// Every single one.
    Each,
}

/// Claims that a figure is at most `times` that of the rows which differ in these words.
pub const fn at_most(
    what: &'static str,
    of: RowKeys,
    figure: &'static str,
    times: f64,
    to: Reference,
) -> BenchmarkClaim {
    let against = Against::Others(to);
    BenchmarkClaim {
        what,
        of,
        figure,
        against,
        goal: Goal::AtMost(times, 0.0),
        by: DecidedBy::Median,
    }
}

/// The outcome of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimResult {
    /// The claim, and the rows it is about.
    pub what: String,
    /// The figure it is compared with.
    pub against: String,
    /// The goal.
    pub goal: String,
    /// The measured value.
    pub measured: String,
    /// Whether the goal is met; `None` if that was not measured.
    pub met: Option<bool>,
}

impl Goal {
    fn text(self) -> String {
        let (sign, times, more) = match self {
            Goal::AtMost(times, more) => ("≤", times, more),
            Goal::AtLeast(times, more) => ("≥", times, more),
        };
        match (times == 0.0, more == 0.0) {
            (true, _) => format!("{sign} {more}"),
            (_, true) => format!("{sign} {times} ×"),
            _ => format!("{sign} {times} × + {more}"),
        }
    }

    fn is_met(self, spread: &Spread, by: DecidedBy) -> bool {
        match (self, by) {
            (Goal::AtMost(times, _), DecidedBy::Median) => spread.median <= times,
            (Goal::AtMost(times, _), DecidedBy::Each) => spread.most <= times,
            (Goal::AtLeast(times, _), DecidedBy::Median) => spread.median >= times,
            (Goal::AtLeast(times, _), DecidedBy::Each) => spread.least >= times,
        }
    }

    fn more(self) -> f64 {
        let (Goal::AtMost(_, more) | Goal::AtLeast(_, more)) = self;
        more
    }
}

impl BenchmarkClaim {
    /// A verdict for each combination of words that the rows of the claim have.
    pub fn verdicts(&self, rows: &[RawRow]) -> Vec<ClaimResult> {
        let mine: Vec<&RawRow> = rows.iter().filter(|row| row.is(self.of)).collect();
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in mine.iter().flat_map(|row| row.words()) {
            if !names.contains(&name.as_str()) && !self.of.iter().any(|(known, _)| known == name) {
                names.push(name);
            }
        }
        let all = each(mine.iter().copied(), &names);
        let verdict = |values: &Vec<&str>| {
            let is_same = |row: &&&RawRow| {
                row.is_valid()
                    && names.iter().zip(values).all(|(name, value)| row.text(name) == *value)
            };
            let group: Vec<&RawRow> = mine.iter().filter(is_same).copied().collect();
            self.verdict(rows, &group, &values.join(", "))
        };
        all.iter().map(verdict).collect()
    }

    /// The claim, and the rows it is about.
    fn what_of(&self, place: &str) -> String {
        let words = self.of.iter().map(|(_, word)| *word).chain([place]);
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        match words.is_empty() {
            true => self.what.to_owned(),
            false => format!("{}: {}", self.what, words.join(", ")),
        }
    }

    /// The result for rows with the same words.
    fn verdict(&self, rows: &[RawRow], group: &[&RawRow], place: &str) -> ClaimResult {
        let more = self.goal.more();
        let pairs: Vec<(f64, f64)> = group
            .iter()
            .filter_map(|row| {
                let other = match self.against {
                    // as if it were compared with 1, of which the goal allows none
                    Against::Nothing => 1.0,
                    Against::Column(name) => row.get(name)?,
                    Against::Others(to) => {
                        other_of(rows, row, self.figure, to)?.get(self.figure)?
                    }
                };
                Some((row.get(self.figure)?, other))
            })
            .collect();
        let parts = pairs.iter().map(|(mine, other)| (mine - more) / other.max(1e-12));
        let parts = Spread::of(parts);
        let against = match self.against {
            Against::Nothing => "–".to_owned(),
            Against::Column(name) => name.to_owned(),
            Against::Others(to) => to.text(rows, group.first().copied(), self.figure),
        };
        let side = |of: fn(&(f64, f64)) -> f64| Spread::of(pairs.iter().map(of));
        let (mine, other) = (side(|pair| pair.0), side(|pair| pair.1));
        let measured = match (&parts, &mine, &other) {
            (Some(parts), ..) if more == 0.0 && !matches!(self.against, Against::Nothing) => {
                brief(parts, 2)
            }
            (_, Some(mine), _) if matches!(self.against, Against::Nothing) => brief(mine, 2),
            (_, Some(mine), Some(other)) => {
                format!("{} against {}", brief(mine, 2), brief(other, 2))
            }
            _ => "–".to_owned(),
        };
        ClaimResult {
            what: self.what_of(place),
            against,
            goal: self.goal.text(),
            measured,
            met: parts.map(|parts| self.goal.is_met(&parts, self.by)),
        }
    }
}

/// The verdicts as markdown; empty if there are none.
pub fn table(verdicts: &[ClaimResult]) -> String {
    if verdicts.is_empty() {
        return String::new();
    }
    let mut text =
        "\n## Claims\n\nWhat is compared is of the same round.\n\n| what | compared with | goal | \
                    median (least–most) | |\n|---|---|---|---|---|\n"
            .to_owned();
    for ClaimResult { what, against, goal, measured, met } in verdicts {
        let met = match met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured",
        };
        // writing to a string does not fail
        let _ = writeln!(text, "| {what} | {against} | {goal} | {measured} | {met} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(round: u32, server: &str, load: &str, p99: f64) -> RawRow {
        let row = RawRow::default().word("server", server).word("load", load).figure("p99", p99);
        let mut row = row.figure("before", 1.0);
        row.round = round;
        row
    }

    const BESIDE: BenchmarkClaim = BenchmarkClaim {
        what: "beside others",
        of: &[("load", "stuck")],
        figure: "p99",
        against: Against::Others(Reference::Rows(&[("load", "alone")])),
        goal: Goal::AtMost(2.0, 10.0),
        by: DecidedBy::Median,
    };

    #[test]
    fn rows_are_compared_within_a_round_and_each_server_has_a_verdict() {
        let rows = [
            row(1, "event", "alone", 1.0),
            row(1, "event", "stuck", 12.0),
            row(2, "event", "alone", 100.0),
            row(2, "event", "stuck", 210.0),
            row(1, "pool", "alone", 1.0),
            row(1, "pool", "stuck", 12.1),
            row(1, "fibers", "stuck", 1.0),
        ];
        let verdicts = BESIDE.verdicts(&rows);
        let met: Vec<_> = verdicts.iter().map(|verdict| verdict.met).collect();
        assert_eq!(met, [Some(true), Some(false), None]);
        let text = table(&verdicts);
        assert!(
            text.contains(
                "| beside others: stuck, pool | alone | ≤ 2 × + 10 | 12.10 against 1.00 | **missed** |"
            ),
            "{text}"
        );
    }

    #[test]
    fn each_round_can_decide_and_another_figure_or_nothing_be_compared() {
        let rows = [row(1, "a", "x", 0.0), row(2, "a", "x", 2.0), row(3, "a", "x", 0.0)];
        let none = BenchmarkClaim {
            of: &[],
            against: Against::Nothing,
            goal: Goal::AtMost(0.0, 0.0),
            ..BESIDE
        };
        assert_eq!(none.verdicts(&rows)[0].met, Some(true));
        assert_eq!(
            BenchmarkClaim { by: DecidedBy::Each, ..none }.verdicts(&rows)[0].met,
            Some(false)
        );
        let column = BenchmarkClaim {
            against: Against::Column("before"),
            goal: Goal::AtLeast(0.0, 1.0),
            ..none
        };
        assert_eq!(column.verdicts(&rows)[0].met, Some(false));
        assert!(table(&BESIDE.verdicts(&rows)).is_empty());
    }
}
