//! References: rows of the same round that others are compared with.

use crate::rows::{RawRow, each};
use crate::summary::Spread;

/// Words that a row has, by the names of their columns.
pub type RowKeys = &'static [(&'static str, &'static str)];

/// Rows that others are compared with.
#[derive(Clone, Copy, Debug)]
pub enum Reference {
    /// The rows that differ in these words only.
    Rows(RowKeys),
    /// The server with the least median of the figure, these servers left out.
    Best(&'static [&'static str]),
}

impl Reference {
    /// The reference's name in tables.
    pub fn text(self, rows: &[RawRow], of: Option<&RawRow>, figure: &str) -> String {
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

/// Whether a row has the words of another, except for those of `names`, for which it has `keys`.
fn is_beside(row: &RawRow, other: &RawRow, keys: &[(&str, &str)]) -> bool {
    let is_same = |(name, value): &(String, String)| {
        row.text(name) == *value || keys.iter().any(|(known, _)| known == name)
    };
    row.is(keys) && other.words().iter().all(is_same)
}

/// The server with the least median of a figure where `row` was measured.
fn best<'r>(rows: &'r [RawRow], row: &RawRow, figure: &str, to: Reference) -> Option<&'r str> {
    let Reference::Best(not) = to else { return None };
    let is_peer = |other: &&RawRow| {
        let server = other.text("server");
        other.is_valid() && !not.contains(&server) && is_beside(other, row, &[("server", server)])
    };
    let peers: Vec<&RawRow> = rows.iter().filter(is_peer).collect();
    let medians = each(peers.iter().copied(), &["server"]).into_iter().filter_map(|names| {
        let mine = peers.iter().filter(|row| row.text("server") == names[0]);
        Some((Spread::of(mine.filter_map(|row| row.get(figure)))?.median, names[0]))
    });
    medians.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, name)| name)
}

/// The row of the same round that a row is compared with.
pub fn other_of<'r>(
    rows: &'r [RawRow],
    row: &RawRow,
    figure: &str,
    to: Reference,
) -> Option<&'r RawRow> {
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
    all: &[RawRow],
    of: impl IntoIterator<Item = &'r RawRow>,
    figure: &str,
    to: Reference,
) -> Option<Spread> {
    Spread::of(
        of.into_iter().filter(|row| row.is_valid()).filter_map(|row| {
            Some(row.get(figure)? / other_of(all, row, figure, to)?.get(figure)?)
        }),
    )
}
