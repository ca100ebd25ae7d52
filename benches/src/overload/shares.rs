//! Classes that all want more than there is: how much worker time each gets.

use super::bench::{Bench, Trial, cpu, group, open, turn};
use super::row::{self, Row, shown};
use crate::Error;
use crate::forebay::value;
use std::fmt::Write;
use std::time::Duration;

/// The part's name.
pub const PART: &str = "shares";
const COST: Duration = Duration::from_millis(5);
/// Classes, first one first, and where their clients come from.
const CLASSES: [(&str, &str); 3] =
    [("gold", "127.0.3.1"), ("standard", "127.0.3.2"), ("bulk", "127.0.3.3")];
/// Floors of the classes, percent of worker time, in the variants.
pub(super) const VARIANTS: [(&str, [u32; 3]); 2] = [("shares", [0, 20, 5]), ("strict", [0, 0, 0])];
/// The load of each class as a part of the capacity.
const LOAD: f64 = 3.0;
/// How far a share may be from its floor.
const WITHIN: f64 = 0.10;

pub(super) fn policy(floors: [u32; 3]) -> String {
    let mut text = "agent = \"on\"\n".to_owned();
    for (priority, ((name, _), floor)) in CLASSES.iter().zip(floors).enumerate() {
        // writing to a string does not fail
        let _ = write!(
            text,
            "[[class]]\nname = \"{name}\"\npriority = {priority}\nshare = \"{floor}%\"\ndelay = \
             \"50ms\"\n"
        );
    }
    for (name, client) in CLASSES {
        let _ = write!(
            text,
            "[[rule]]\nname = \"{name}\"\nclient = [\"{client}\"]\nclass = \"{name}\"\n"
        );
    }
    text
}

/// One round: every server with a policy, with floors and without.
///
/// # Errors
/// When a server does not come up or the load cannot be made.
pub fn measure(bench: &mut Bench<'_>, round: u32) -> Result<(), Error> {
    let servers: Vec<_> = bench.settings.with_policy().collect();
    for server in turn(&servers, round) {
        let rate = bench.capacity(server, COST)?.per_s * LOAD;
        for (case, floors) in VARIANTS {
            let lines = policy(floors);
            let trial = bench.trial(PART, round, case, server, COST);
            let measured = trial.measured.max(Duration::from_secs(4));
            let trial = Trial { lines: &lines, metrics: true, measured, ..trial };
            let (watched, mut rows) = bench.run(&trial, |base| {
                let groups = CLASSES.iter().map(|(name, client)| {
                    let mut class = open(name, base, rate, COST);
                    class.set("source", client);
                    group(class)
                });
                groups.collect()
            })?;
            let worked = |name: &str| {
                let metric = format!("forebay_class_worker_seconds_total{{class=\"{name}\"}}");
                let [before, after] = &watched.metrics;
                Some(value(after, &metric)? - value(before, &metric)?)
            };
            let all: f64 = CLASSES.iter().filter_map(|(name, _)| worked(name)).sum();
            for row in &mut rows {
                row.figure = worked(&row.group).map(|seconds| 100.0 * seconds / all.max(1e-9));
            }
            bench.keep(rows);
        }
    }
    Ok(())
}

/// The share of answers, %: all cost the same.
fn of_answers(row: &Row, rows: &[&Row]) -> f64 {
    let same =
        rows.iter().filter(|other| other.is(&row.case, &row.server) && other.round == row.round);
    100.0 * row.good / same.map(|row| row.good).sum::<f64>().max(1e-9)
}

/// The table.
pub fn report(bench: &Bench<'_>) -> String {
    let rows = bench.rows_of(PART);
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n## Worker time of classes that all want more\n\nThree classes, each asking for {LOAD} of \
         the capacity with requests of {}. A share is of worker time as the server measured it; the \
         share of answers is the clients' view.\n\n| server | case | class | floor | worker time % | \
         answers % | good/s | refused/s | |\n|---|---|---|---|---|---|---|---|---|\n",
        cpu(COST)
    );
    for server in row::each(rows.iter().copied(), |row| &row.server) {
        for (case, floors) in VARIANTS {
            for ((name, _), floor) in CLASSES.iter().zip(floors) {
                let mine = rows.iter().copied();
                let mine = mine.filter(|row| row.is(case, server) && row.group == *name);
                let share = |row: &Row| Some(row.figure.unwrap_or_else(|| of_answers(row, &rows)));
                let seen = row::middle(mine.clone(), |row| share(row).unwrap_or(0.0));
                let floor_pc = f64::from(floor);
                let verdict = match seen {
                    Some(seen) if floor > 0 && (seen - floor_pc).abs() > WITHIN * floor_pc => {
                        "**not within 10 %**"
                    }
                    Some(_) if floor > 0 => "within 10 %",
                    _ => "",
                };
                let _ = writeln!(
                    text,
                    "| {server} | {case} | {name} | {floor} % | {} | {} | {} | {} | {verdict} |",
                    shown(mine.clone(), 1, |row| row.figure),
                    shown(mine.clone(), 1, |row| Some(of_answers(row, &rows))),
                    shown(mine.clone(), 1, |row| Some(row.good)),
                    shown(mine, 1, |row| Some(row.refused + row.reset)),
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overload::row::tests::row;

    #[test]
    fn shares_of_answers_add_up_within_a_measurement() {
        let rows =
            [row("c", "s", "gold", 75.0), row("c", "s", "bulk", 25.0), row("c", "t", "gold", 9.0)];
        let rows: Vec<_> = rows.iter().collect();
        assert!((of_answers(rows[1], &rows) - 25.0).abs() < 1e-9);
        assert!((of_answers(rows[2], &rows) - 100.0).abs() < 1e-9);
    }
}
