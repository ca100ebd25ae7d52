//! Gold under a flood: how much longer cheap requests of few clients take when others flood the
//! server with costly ones.

use super::bench::{Bench, Trial, cpu, group, open, turn};
use super::row::{self, middle, shown};
use super::server::Server;
use super::{CROWD, GOLD, SITE_HEADERS, SITE_PAGES};
use crate::Error;
use std::fmt::Write;
use std::time::Duration;

/// The part's name.
pub const PART: &str = "gold";
const GOLD_COST: Duration = Duration::from_millis(1);
const FLOOD_COST: Duration = Duration::from_millis(20);
/// Gold's load as a part of the capacity for its requests.
const GOLD_LOAD: f64 = 0.2;
/// The flood's load as a part of the capacity for its own.
const FLOOD_LOAD: f64 = 10.0;

/// Gold first, the others a little of the time; so many threads kept for gold.
fn policy(reserve: u32, pages: &str) -> String {
    format!(
        "{pages}agent = \"on\"\nhelpers.reserve = {reserve}\n\
         [[class]]\nname = \"gold\"\npriority = 0\ndelay = \"5ms\"\n\
         [[class]]\nname = \"others\"\npriority = 1\nshare = \"5%\"\ndelay = \"50ms\"\ndefault = true\n\
         [[rule]]\nname = \"gold\"\nclient = [\"{GOLD}\"]\nclass = \"gold\"\n"
    )
}

/// Where nothing is kept for gold, it waits for the longest running job.
const NO_RESERVE: &str = ": no reserve";

/// What is measured of a server, and the lines of its configuration.
pub(super) fn variants(server: Server) -> Vec<(&'static str, String)> {
    if server.has_policy() {
        vec![
            (": a thread in reserve", policy(1, "")),
            (": the site's error pages", policy(1, SITE_PAGES) + SITE_HEADERS),
            (NO_RESERVE, policy(0, "")),
        ]
    } else {
        vec![("", String::new())]
    }
}

/// One round: every server, alone with gold and then with the flood.
///
/// # Errors
/// When a server does not come up or the load cannot be made.
pub fn measure(bench: &mut Bench<'_>, round: u32) -> Result<(), Error> {
    for server in turn(&bench.settings.servers.clone(), round) {
        let gold = bench.capacity(server, GOLD_COST)?.per_s * GOLD_LOAD;
        let flood = bench.capacity(server, FLOOD_COST)?.per_s * FLOOD_LOAD;
        for (variant, lines) in variants(server) {
            for (load, flood) in [("alone", 0.0), ("flooded", flood)] {
                let case = format!("{load}{variant}");
                // limits and queues of others are made for what is most of the load
                let trial = bench.trial(PART, round, &case, server, FLOOD_COST);
                // a percentile of few requests says little
                let enough = Duration::from_secs_f64(1000.0 / gold).min(3 * trial.measured);
                let measured = trial.measured.max(enough);
                let trial = Trial { lines: &lines, measured, ..trial };
                let (_, rows) = bench.run(&trial, |base| {
                    let mut first = open("gold", base, gold, GOLD_COST);
                    first.set("source", GOLD);
                    let mut groups = vec![group(first)?];
                    if flood > 0.0 {
                        let mut others = open("flood", base, flood, FLOOD_COST);
                        others.set("source", CROWD);
                        groups.push(group(others)?);
                    }
                    Ok(groups)
                })?;
                bench.keep(rows);
            }
        }
    }
    Ok(())
}

/// The table, with what the issue asks for.
pub fn report(bench: &Bench<'_>) -> String {
    let rows = bench.rows_of(PART);
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n## Gold under a flood\n\nGold: requests of {} at {GOLD_LOAD} of the capacity. Flood: \
         requests of {} from others at {FLOOD_LOAD} times theirs. Goal: p99 ≤ 2 × alone + 1 ms with \
         a thread in reserve, {} ms more (the longest running job) without.\n\n| server | gold alone: \
         p99 ms | flooded: p50 ms | p99 ms | lost or refused/s | flood: good/s | goal ms | |\n\
         |---|---|---|---|---|---|---|---|\n",
        cpu(GOLD_COST),
        cpu(FLOOD_COST),
        FLOOD_COST.as_millis(),
    );
    for server in row::each(rows.iter().copied(), |row| &row.server) {
        let Some(known) = Server::find(server) else { continue };
        for (variant, _) in variants(known) {
            let of = |load: &str, group: &'static str| {
                let case = format!("{load}{variant}");
                let mine = move |row: &&&row::Row| row.is(&case, server) && row.group == group;
                rows.iter().filter(mine).copied().collect::<Vec<_>>()
            };
            let (alone, gold, flood) =
                (of("alone", "gold"), of("flooded", "gold"), of("flooded", "flood"));
            let p99 = |rows: &[&row::Row]| middle(rows.iter().copied(), |row| row.p99_ms);
            let (Some(before), Some(after)) = (p99(&alone), p99(&gold)) else { continue };
            let more_ms = if variant == NO_RESERVE { FLOOD_COST.as_millis() } else { 0 };
            let goal = 2.0 * before + 1.0 + more_ms as f64;
            let verdict = if after <= goal { "met" } else { "**missed**" };
            let missing = |row: &row::Row| Some(row.refused + row.reset + row.lost);
            // writing to a string does not fail
            let _ = writeln!(
                text,
                "| {server}{variant} | {} | {} | {} | {} | {} | {goal:.1} | {verdict} |",
                shown(alone.iter().copied(), 1, |row| Some(row.p99_ms)),
                shown(gold.iter().copied(), 1, |row| Some(row.p50_ms)),
                shown(gold.iter().copied(), 1, |row| Some(row.p99_ms)),
                shown(gold.iter().copied(), 1, missing),
                shown(flood.iter().copied(), 1, |row| Some(row.good)),
            );
        }
    }
    text
}
