//! What rows come to: claims, and a table of medians, spreads and ratios for each point.

use crate::claim;
use crate::experiment::{Experiment, Reference};
use crate::record::{Column, Row, each};
use crate::summary::Spread;
use std::fmt::Write;

impl Reference {
    /// As tables name it.
    pub fn text(self, rows: &[Row], of: Option<&Row>, figure: &str) -> String {
        match self {
            Reference::Rows(keys) => {
                keys.iter().map(|(_, value)| *value).collect::<Vec<_>>().join(", ")
            }
            Reference::Best(_) => {
                let best = of.and_then(|row| best(rows, row, figure, self));
                format!("best peer: {}", best.unwrap_or("none"))
            }
        }
    }
}

/// Whether a row has the words of another, but for those of `names`, for which it has `keys`.
fn is_beside(row: &Row, other: &Row, keys: &[(&str, &str)]) -> bool {
    let is_same = |(name, value): &(&str, String)| {
        row.text(name) == *value || keys.iter().any(|(known, _)| known == name)
    };
    row.is(keys) && other.keys().iter().all(is_same)
}

/// The server with the least median of a figure where `row` was measured.
fn best<'r>(rows: &'r [Row], row: &Row, figure: &str, to: Reference) -> Option<&'r str> {
    let Reference::Best(not) = to else { return None };
    let is_peer = |other: &&Row| {
        let server = other.text("server");
        other.is_valid() && !not.contains(&server) && is_beside(other, row, &[("server", server)])
    };
    let peers: Vec<&Row> = rows.iter().filter(is_peer).collect();
    let medians = each(peers.iter().copied(), &["server"]).into_iter().filter_map(|names| {
        let mine = peers.iter().filter(|row| row.text("server") == names[0]);
        Some((Spread::of(mine.filter_map(|row| row.get(figure)))?.median, names[0]))
    });
    medians.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, name)| name)
}

/// The row of the same round that a row is compared with.
pub fn other_of<'r>(rows: &'r [Row], row: &Row, figure: &str, to: Reference) -> Option<&'r Row> {
    let find = |keys: &[(&str, &str)]| {
        rows.iter().find(|other| {
            other.round == row.round && other.is_valid() && is_beside(other, row, keys)
        })
    };
    match to {
        Reference::Rows(keys) => find(keys),
        Reference::Best(_) => find(&[("server", best(rows, row, figure, to)?)]),
    }
}

/// A figure of some rows, divided by that of the reference in the same round.
pub fn ratio<'r>(
    all: &[Row],
    of: impl IntoIterator<Item = &'r Row>,
    figure: &str,
    to: Reference,
) -> Option<Spread> {
    Spread::of(
        of.into_iter().filter(|row| row.is_valid()).filter_map(|row| {
            Some(row.get(figure)? / other_of(all, row, figure, to)?.get(figure)?)
        }),
    )
}

/// Claims, and a table for each point.
pub fn results(experiment: &Experiment, rows: &[Row]) -> String {
    let verdicts: Vec<_> =
        experiment.claims.iter().flat_map(|claim| claim.verdicts(rows)).collect();
    let mut text = claim::table(&verdicts);
    for values in each(rows, experiment.tables) {
        let names = experiment.tables.iter().zip(&values);
        let heading: Vec<_> = names.map(|(name, value)| format!("{name} {value}")).collect();
        let heading = if heading.is_empty() { "Results".to_owned() } else { heading.join(", ") };
        let is_here = |row: &&Row| {
            experiment.tables.iter().zip(&values).all(|(name, value)| row.text(name) == *value)
        };
        let here: Vec<&Row> = rows.iter().filter(is_here).collect();
        let _ = write!(text, "\n### {heading}\n\n{}", table(experiment, rows, &here));
    }
    text + &(experiment.more)(rows)
}

/// One table: a line for each combination of the words of lines.
fn table(experiment: &Experiment, all: &[Row], here: &[&Row]) -> String {
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
    // whoever comes first in the file comes first in each table
    for values in each(all, experiment.lines) {
        let is_mine = |row: &&&Row| {
            experiment.lines.iter().zip(&values).all(|(name, value)| row.text(name) == *value)
        };
        let mine: Vec<&Row> = here.iter().filter(is_mine).copied().collect();
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

/// How often each flag was raised, as `2 × noisy, 1 × errors`.
fn flags(rows: &[&Row]) -> String {
    let all: Vec<&String> = rows.iter().flat_map(|row| row.flags()).collect();
    let mut names = all.clone();
    names.sort();
    names.dedup();
    let count = |name: &&String| all.iter().filter(|flag| flag == &name).count();
    names.iter().map(|name| format!("{} × {name}", count(name))).collect::<Vec<_>>().join(", ")
}

/// Median and spread; one value has no spread.
pub fn brief(spread: &Spread, digits: usize) -> String {
    match spread.least.total_cmp(&spread.most).is_eq() {
        true => format!("{:.digits$}", spread.median),
        false => format!("{spread:.digits$}"),
    }
}

/// The same, or a dash.
pub fn shown(spread: Option<&Spread>, digits: usize) -> String {
    spread.map_or_else(|| "–".to_owned(), |spread| brief(spread, digits))
}
