//! Gold under a flood: how much longer cheap requests of few clients take when others flood the
//! server with costly ones.

use super::bench::{Bench, Trial, group, open};
use super::server::Server;
use super::{CROWD, GOLD, SITE_HEADERS, SITE_PAGES};
use crate::Error;
use std::time::Duration;

/// The part's name.
pub const PART: &str = "gold";
const GOLD_COST: Duration = Duration::from_millis(1);
const FLOOD_COST: Duration = Duration::from_millis(20);
/// Gold's load as a part of the capacity for its requests.
const GOLD_LOAD: f64 = 0.2;
/// The flood's load as a part of the capacity for its own.
const FLOOD_LOAD: f64 = 10.0;

/// The policy: gold first, the others a small share, and `reserve` threads kept for gold.
fn policy(reserve: u32, pages: &str) -> String {
    format!(
        "{pages}agent = \"on\"\nhelpers.reserve = {reserve}\n\
         [[class]]\nname = \"gold\"\npriority = 0\ndelay = \"5ms\"\n\
         [[class]]\nname = \"others\"\npriority = 1\nshare = \"5%\"\ndelay = \"50ms\"\ndefault = true\n\
         [[rule]]\nname = \"gold\"\nclient = [\"{GOLD}\"]\nclass = \"gold\"\n"
    )
}

/// A server that keeps nothing in reserve for gold; gold waits for the longest running job.
const NO_RESERVE: &str = ": no reserve";

/// The forms in which a server is measured, and the lines of its configuration.
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

/// Measures one server, alone with gold and then with the flood.
///
/// # Errors
/// When a server does not come up or the load cannot be made.
pub fn measure(bench: &mut Bench<'_>, round: u32, server: Server) -> Result<(), Error> {
    let gold = bench.capacity(server, GOLD_COST)?.per_s * GOLD_LOAD;
    let flood = bench.capacity(server, FLOOD_COST)?.per_s * FLOOD_LOAD;
    for (variant, lines) in variants(server) {
        for (load, flood) in [("alone", 0.0), ("flooded", flood)] {
            let case = format!("{load}{variant}");
            // limits and queues of others are made for the requests that are most of the load
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
    Ok(())
}
