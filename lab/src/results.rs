//! Results of rows: claims, and a table of medians, spreads and ratios for each point.

use crate::benchmark::Benchmark;
use crate::claim;
use crate::columns::Column;
use crate::reference::ratio;
use crate::rows::{RawRow, each};
use crate::summary::{Spread, shown};
use std::fmt::Write;

/// Claims, and a table for each point.
pub fn results(experiment: &Benchmark, rows: &[RawRow]) -> String {
    let verdicts: Vec<_> =
        experiment.claims.iter().flat_map(|claim| claim.verdicts(rows)).collect();
    let mut text = claim::table(&verdicts);
    for values in each(rows, experiment.tables) {
        let names = experiment.tables.iter().zip(&values);
        let heading: Vec<_> = names.map(|(name, value)| format!("{name} {value}")).collect();
        let heading = if heading.is_empty() { "Results".to_owned() } else { heading.join(", ") };
        let is_here = |row: &&RawRow| {
            experiment.tables.iter().zip(&values).all(|(name, value)| row.text(name) == *value)
        };
        let here: Vec<&RawRow> = rows.iter().filter(is_here).collect();
        let _ = write!(text, "\n### {heading}\n\n{}", table(experiment, rows, &here));
    }
    text + &(experiment.more)(rows)
}

/// One table: a line for each combination of the words of lines.
fn table(experiment: &Benchmark, all: &[RawRow], here: &[&RawRow]) -> String {
    let is_said = |column: &&Column| here.iter().any(|row| row.get(column.name).is_some());
    let columns = experiment.columns.iter().filter(|column| column.shown.is_some());
    let columns: Vec<_> = columns.filter(is_said).collect();
    let first = here.first().copied();
    let mut heads: Vec<String> = experiment.lines.iter().map(|&name| name.to_owned()).collect();
    heads.extend(columns.iter().map(|column| column.title.to_owned()));
    heads.extend(
        experiment
            .ratios
            .iter()
            .map(|ratio| format!("{} ÷ {}", ratio.figure, ratio.to.text(all, first, ratio.figure))),
    );
    heads.push("flags".to_owned());
    let mut text = format!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    // the server that comes first in the file comes first in each table
    for values in each(all, experiment.lines) {
        let is_mine = |row: &&&RawRow| {
            experiment.lines.iter().zip(&values).all(|(name, value)| row.text(name) == *value)
        };
        let mine: Vec<&RawRow> = here.iter().filter(is_mine).copied().collect();
        if mine.is_empty() {
            continue;
        }
        let valid = || mine.iter().copied().filter(|row| row.is_valid());
        let mut cells: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
        cells.extend(columns.iter().map(|column| {
            let spread = Spread::of(valid().filter_map(|row| row.get(column.name)));
            shown(spread.as_ref(), column.shown.unwrap_or_default())
        }));
        cells.extend(
            experiment
                .ratios
                .iter()
                .map(|of| shown(ratio(all, valid(), of.figure, of.to).as_ref(), 2)),
        );
        cells.push(flags(&mine));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// The flags and how often each was raised, as `2 × noisy, 1 × errors`.
fn flags(rows: &[&RawRow]) -> String {
    let all: Vec<&String> = rows.iter().flat_map(|row| row.flags()).collect();
    let mut names = all.clone();
    names.sort();
    names.dedup();
    let count = |name: &&String| all.iter().filter(|flag| flag == &name).count();
    names.iter().map(|name| format!("{} × {name}", count(name))).collect::<Vec<_>>().join(", ")
}
