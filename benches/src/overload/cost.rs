//! What saying no costs: a 503 on a connection that stays beside a small file from memory, and a
//! reset at accept beside a connection that is served.
//!
//! Twice: the processor time of the server alone, and, as root, what its core did in all while the
//! kernel's work on what comes in is steered to that core. Over loopback the sender's core does that
//! work otherwise, and a refusal looks cheaper than it is.

use super::bench::{Bench, Trial, client, group, turn};
use super::row::{self, Row, shown};
use super::{SITE_HEADERS, SITE_PAGES};
use crate::Error;
use crate::network::Steered;
use crate::summary::Spread;
use forebay_load::GroupDraft;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// The part's name.
pub const PART: &str = "cost";
/// What is compared: a name, what is asked, from where, and whether each request has a connection
/// of its own.
const CASES: [(&str, &str, &str, bool); 5] = [
    ("1 KB hit", "/1k.html", "127.0.4.1", false),
    ("503", "/refused/1k.html", "127.0.4.1", false),
    (SITE_PAGE, "/refused/1k.html", "127.0.4.1", false),
    ("served connection", "/1k.html", "127.0.4.1", true),
    ("reset at accept", "/1k.html", "127.0.4.2", true),
];
/// The same refusal with a page of 1 KB and header rules of the site.
const SITE_PAGE: &str = "503 with the site's page";
/// What costs at most how much of what.
const GOALS: [(&str, &str, f64); 3] = [
    ("503", "1 KB hit", 1.0),
    (SITE_PAGE, "1 KB hit", 1.0),
    ("reset at accept", "served connection", 0.5),
];
const CONNECTIONS: &str = "64";
/// Marks cases in which the kernel's part counts.
const WITH_KERNEL: &str = ": with the kernel's part";
/// Repetitions in a round: ratios are of the same repetition.
const REPEATED: u32 = 3;

/// All that is served and refused in the cases.
pub(super) const POLICY: &str = "[[class]]\nname = \"all\"\npriority = 0\n\
    [[rule]]\nname = \"too many\"\npath = \"/refused/*\"\n\
    requests = { rate = \"1/m\", burst = 1, over = \"reject\" }\n\
    [[rule]]\nname = \"not you\"\nclient = [\"127.0.4.2\"]\naction = \"reset\"\n";

/// The policy, and the site's own pages for what it refuses.
pub(super) fn with_pages() -> String {
    format!("{SITE_PAGES}{POLICY}{SITE_HEADERS}")
}

/// One round: every server with a policy, every case in turn.
///
/// # Errors
/// When a server does not come up or the load cannot be made.
pub fn measure(bench: &mut Bench<'_>, round: u32) -> Result<(), Error> {
    let repeated = if bench.settings.quick { 1 } else { REPEATED };
    (1..=repeated).try_for_each(|turn| {
        let round = (round - 1) * repeated + turn;
        once(bench, round, "")?;
        match Steered::to(bench.settings.server_core) {
            Ok(_steered) => once(bench, round, WITH_KERNEL),
            Err(error) => {
                eprintln!("overload: the kernel's part of refusals is not measured: {error}");
                Ok(())
            }
        }
    })
}

fn once(bench: &mut Bench<'_>, round: u32, mode: &str) -> Result<(), Error> {
    let servers: Vec<_> = bench.settings.with_policy().collect();
    for server in turn(&servers, round) {
        for (case, url, source, own) in CASES {
            let name = format!("{case}{mode}");
            let trial = bench.trial(PART, round, &name, server, Duration::from_millis(1));
            let lines = if case == SITE_PAGE { with_pages() } else { POLICY.to_owned() };
            let trial = Trial { lines: &lines, ..trial };
            let (watched, mut rows) = bench.run(&trial, |base| {
                let mut all = GroupDraft::new("closed", Some(base));
                all.set("connections", CONNECTIONS);
                all.set("url", url);
                all.set("source", source);
                all.set("pause", "0s");
                if own {
                    all.set("per_connection", "1");
                }
                Ok(vec![group(all)?])
            })?;
            for row in &mut rows {
                if mode == WITH_KERNEL {
                    row.server_cores = row.core_busy;
                }
                row.figure = Some(row.server_cores / ended(row).max(1e-9) * 1e6);
            }
            check(case, &rows[0], &watched.report.groups[0].statuses)?;
            bench.keep(rows);
        }
    }
    Ok(())
}

fn ended(row: &Row) -> f64 {
    row.good + row.refused + row.reset
}

/// A fast wrong answer is no result.
fn check(case: &str, row: &Row, statuses: &BTreeMap<u16, u64>) -> Result<(), Error> {
    let (happened, only) = match case {
        "503" | SITE_PAGE => (row.refused, Some(503)),
        "reset at accept" => (row.reset, None),
        _ => (row.good, Some(200)),
    };
    let others = statuses.keys().any(|status| Some(*status) != only);
    if others || happened < 0.99 * ended(row) || happened <= 0.0 {
        return Err(client(format!("{case} is not what happened: {statuses:?}, {}", row.csv())));
    }
    Ok(())
}

/// Ratios of the same round and server.
fn ratio(rows: &[&Row], server: &str, of: &str, to: &str) -> Option<Spread> {
    let rounds = rows.iter().filter(|row| row.is(of, server));
    Spread::of(rounds.filter_map(|row| {
        let other = rows.iter().find(|other| other.is(to, server) && other.round == row.round)?;
        Some(row.figure? / other.figure?)
    }))
}

/// The table, with what the issue asks for.
pub fn report(bench: &Bench<'_>) -> String {
    let rows = bench.rows_of(PART);
    if rows.is_empty() {
        return String::new();
    }
    let mut text = "\n## What saying no costs\n\nProcessor time of the server for each, µs. With the \
                    kernel's part: all that the server's core did, with what comes in steered to it; \
                    that includes what the clients receive, which a network would not.\n\n| server | \
                    case | CPU µs | per second | ratio | goal | |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    let cases = ["", WITH_KERNEL].into_iter().flat_map(|mode| CASES.map(|(case, ..)| (case, mode)));
    for server in row::each(rows.iter().copied(), |row| &row.server) {
        for (case, mode) in cases.clone() {
            let name = format!("{case}{mode}");
            let mine = rows.iter().copied().filter(|row| row.is(&name, server));
            if mine.clone().next().is_none() {
                continue;
            }
            let goal = GOALS.iter().find(|(of, ..)| *of == case);
            let seen = goal.and_then(|(_, to, at_most)| {
                let ratio = ratio(&rows, server, &name, &format!("{to}{mode}"))?;
                let verdict = if ratio.median <= *at_most { "met" } else { "**missed**" };
                Some(format!("{ratio:.2} | ≤ {at_most} of a {to} | {verdict}"))
            });
            // writing to a string does not fail
            let _ = writeln!(
                text,
                "| {server} | {name} | {} | {} | {} |",
                shown(mine.clone(), 2, |row| row.figure),
                shown(mine, 0, |row| Some(ended(row))),
                seen.unwrap_or_else(|| "| |".to_owned()),
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overload::row::tests::row;

    #[test]
    fn ratios_are_made_within_a_round() {
        let hit = Row { figure: Some(4.0), ..row("1 KB hit", "s", "closed", 1.0) };
        let refusal = Row { figure: Some(3.0), ..row("503", "s", "closed", 0.0) };
        let later = Row { round: 2, figure: Some(9.0), ..refusal.clone() };
        let rows = [&hit, &refusal, &later];
        assert_eq!(
            ratio(&rows, "s", "503", "1 KB hit").map(|r| (r.least, r.most)),
            Some((0.75, 0.75))
        );
    }

    #[test]
    fn what_did_not_happen_is_an_error() {
        let refused = Row { refused: 100.0, ..row("503", "s", "closed", 0.0) };
        assert!(check("503", &refused, &BTreeMap::from([(503, 100)])).is_ok());
        assert!(check("503", &refused, &BTreeMap::from([(404, 100)])).is_err());
        assert!(check("1 KB hit", &refused, &BTreeMap::from([(503, 100)])).is_err());
        let reset = Row { reset: 100.0, ..row("reset at accept", "s", "closed", 0.0) };
        assert!(check("reset at accept", &reset, &BTreeMap::new()).is_ok());
    }
}
