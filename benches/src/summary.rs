//! Medians, spreads, ratios and goals as markdown.

use crate::case::{Against, Case};
use crate::peer::{BEFORE, FOREBAY, LIMIT};
use crate::row::{Flag, Row};
use std::fmt::{self, Write};

/// The middle of some values, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

impl Spread {
    /// Of `values`; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2.0
        };
        Some(Spread { median, least, most })
    }
}

impl fmt::Display for Spread {
    /// `median (least–most)` with the precision asked for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let Spread { median, least, most } = self;
        write!(f, "{median:.digits$} ({least:.digits$}–{most:.digits$})")
    }
}

fn rows_of<'r>(
    rows: &'r [Row],
    case: &'r str,
    server: &'r str,
) -> impl Iterator<Item = &'r Row> + Clone {
    let same = move |row: &&Row| row.case == case && row.server == server;
    rows.iter().filter(same).filter(|row| row.is_valid())
}

fn cpu(rows: &[Row], case: &str, server: &str) -> Option<Spread> {
    Spread::of(rows_of(rows, case, server).map(Row::cpu_us))
}

/// CPU time per request of `server` divided by `other`'s: the ratio of each round, then its spread.
pub fn ratio(rows: &[Row], case: &str, server: &str, other: &str) -> Option<Spread> {
    Spread::of(rows_of(rows, case, server).filter_map(|row| {
        let other = rows_of(rows, case, other).find(|other| other.round == row.round)?;
        Some(row.cpu_us() / other.cpu_us())
    }))
}

/// The server other than ours and the floor with the least CPU time per request.
pub fn best_peer(rows: &[Row], case: &str) -> Option<&'static str> {
    let is_ours = |name: &&str| [FOREBAY, BEFORE, LIMIT].contains(name);
    let peers = servers(rows, case).into_iter().filter(|name| !is_ours(name));
    let medians = peers.filter_map(|name| Some((cpu(rows, case, name)?.median, name)));
    medians.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// The servers that have rows in `case`, each once.
fn servers(rows: &[Row], case: &str) -> Vec<&'static str> {
    let mut names = Vec::new();
    for row in rows.iter().filter(|row| row.case == case) {
        if !names.contains(&row.server) {
            names.push(row.server);
        }
    }
    names
}

/// The results: the goals first, then a table for each case.
pub fn results(rows: &[Row], cases: &[&Case], order: &[&'static str]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = goals(&mut text, rows, cases);
    for case in cases.iter().filter(|case| rows.iter().any(|row| row.case == case.name)) {
        let _ = table(&mut text, rows, case, order);
    }
    text
}

fn goals(text: &mut String, rows: &[Row], cases: &[&Case]) -> fmt::Result {
    writeln!(text, "## Goals\n")?;
    writeln!(text, "CPU time per request of Forebay, divided by another's in the same round.\n")?;
    writeln!(
        text,
        "| case | compared with | goal | median (least–most) | |\n|---|---|---|---|---|"
    )?;
    for case in cases {
        for goal in case.goals {
            let other = match goal.against {
                Against::Limit => Some(LIMIT),
                Against::BestPeer => best_peer(rows, case.name),
                Against::Peer(name) => Some(name),
            };
            let name = match goal.against {
                Against::Limit => LIMIT.to_owned(),
                Against::Peer(name) => name.to_owned(),
                Against::BestPeer => format!("best peer: {}", other.unwrap_or("none")),
            };
            let measured = other.and_then(|other| ratio(rows, case.name, FOREBAY, other));
            let (value, verdict) = match measured {
                Some(ratio) if ratio.median <= goal.at_most => (format!("{ratio:.2}"), "met"),
                Some(ratio) => (format!("{ratio:.2}"), "**missed**"),
                None => ("–".into(), "not measured"),
            };
            let at_most = goal.at_most;
            writeln!(text, "| {} | {name} | ≤ {at_most:.2} | {value} | {verdict} |", case.title)?;
        }
    }
    Ok(())
}

fn table(text: &mut String, rows: &[Row], case: &Case, order: &[&'static str]) -> fmt::Result {
    let present = servers(rows, case.name);
    let before = present.iter().find(|name| **name == BEFORE).copied();
    let best = best_peer(rows, case.name).or(before);
    writeln!(text, "\n## {}\n", case.title)?;
    writeln!(
        text,
        "Medians (least–most) over the rounds; ÷ is the ratio of CPU time per request.\n"
    )?;
    writeln!(
        text,
        "| server | CPU µs/request | requests/s | ÷ limit | ÷ {} | client µs/request | bytes/answer | server busy | client core busy | flags |\n\
         |---|---|---|---|---|---|---|---|---|---|",
        best.unwrap_or("best peer")
    )?;
    for server in order.iter().filter(|name| present.contains(name)) {
        line(text, rows, case, server, best)?;
    }
    Ok(())
}

fn line(
    text: &mut String,
    rows: &[Row],
    case: &Case,
    server: &str,
    best: Option<&str>,
) -> fmt::Result {
    let valid = rows_of(rows, case.name, server);
    let median = |of: fn(&Row) -> f64| Spread::of(valid.clone().map(of));
    let percent =
        |of| median(of).map_or("–".into(), |share| format!("{:.0} %", share.median * 100.0));
    let one = |of, digits: usize| {
        median(of).map_or("–".into(), |value| format!("{:.digits$}", value.median))
    };
    let shown = |spread: Option<Spread>, digits: usize| {
        spread.map_or("–".into(), |spread| format!("{spread:.digits$}"))
    };
    writeln!(
        text,
        "| {server} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        shown(cpu(rows, case.name, server), 2),
        shown(median(Row::rate), 0),
        shown(ratio(rows, case.name, server, LIMIT), 2),
        shown(best.and_then(|best| ratio(rows, case.name, server, best)), 2),
        one(Row::client_us, 2),
        one(Row::bytes_per_answer, 0),
        percent(Row::server_busy),
        percent(Row::client_busy),
        flags(rows, case.name, server),
    )
}

/// How often each flag was raised, as `2 × noisy, 1 × errors`.
fn flags(rows: &[Row], case: &str, server: &str) -> String {
    let mut counts: Vec<(&Flag, usize)> = Vec::new();
    let of = rows.iter().filter(|row| row.case == case && row.server == server);
    for flag in of.flat_map(|row| &row.flags) {
        match counts.iter_mut().find(|(known, _)| *known == flag) {
            Some((_, count)) => *count += 1,
            None => counts.push((flag, 1)),
        }
    }
    let parts: Vec<String> = counts.iter().map(|(flag, n)| format!("{n} × {flag}")).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::row;

    #[test]
    fn median_of_odd_and_even_counts() {
        let odd = Spread::of([3.0, 1.0, 2.0]).expect("three");
        assert_eq!(format!("{odd:.1}"), "2.0 (1.0–3.0)");
        assert_eq!(Spread::of([4.0, 1.0]).map(|s| s.median), Some(2.5));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_are_made_within_a_round_and_leave_bad_rows_out() {
        let mut rows = vec![
            row("1k", 1, FOREBAY, 6.0),
            row("1k", 1, "h2o", 10.0),
            row("1k", 2, FOREBAY, 12.0),
            row("1k", 2, "h2o", 20.0),
            row("1k", 3, FOREBAY, 900.0),
            row("1k", 3, "h2o", 10.0),
            row("1k", 3, "nginx", 30.0),
        ];
        rows[4].flags.push(Flag::Errors);
        let both = ratio(&rows, "1k", FOREBAY, "h2o").expect("two rounds");
        assert_eq!((both.median, both.least, both.most), (0.6, 0.6, 0.6));
        assert_eq!(best_peer(&rows, "1k"), Some("h2o"));
        assert_eq!(ratio(&rows, "1k", FOREBAY, "nginx"), None);
    }

    #[test]
    fn goals_are_met_missed_or_not_measured() {
        let case = crate::case::find("1k").expect("known");
        let rows = [row("1k", 1, FOREBAY, 6.0), row("1k", 1, "h2o", 8.0), row("1k", 1, LIMIT, 5.0)];
        let text = results(&rows, &[case], &[LIMIT, FOREBAY, "h2o"]);
        assert!(text.contains("| limit | ≤ 1.10 | 1.20 (1.20–1.20) | **missed** |"), "{text}");
        assert!(text.contains("best peer: h2o | ≤ 0.85 | 0.75 (0.75–0.75) | met |"), "{text}");
        assert!(results(&rows[..1], &[case], &[FOREBAY]).contains("not measured"));
        let case = crate::case::find("1k-h2").expect("known");
        let rows = [("nginx", 7.0), (FOREBAY, 6.0), ("h2o", 8.0)];
        let text = results(&rows.map(|(server, cpu)| row("1k-h2", 1, server, cpu)), &[case], &[]);
        assert!(text.contains("| h2o | ≤ 0.70 | 0.75 (0.75–0.75) | **missed** |"), "{text}");
    }
}
