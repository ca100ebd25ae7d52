//! Applications behind: php-fpm, Python and Node with a few workers, which wait rather than
//! compute, at a multiple of their capacity. Gold offers a fifth of that.
//!
//! An answer in time is useful. The peak is that of as many clients as there are workers, each of
//! which waits for its answer.

use super::bench::{Bench, Trial, group, open};
use super::row::{self, Row, middle, shown};
use super::server::Server;
use super::server::application::{ApplicationKind, WORKERS};
use super::{CROWD, GOLD};
use crate::Error;
use crate::load::client;
use forebay_load::GroupDraft;
use std::fmt::Write;
use std::time::Duration;

/// The part's name.
pub const PART: &str = "scripts";
/// The time that a script waits.
const SLEEP: Duration = Duration::from_millis(20);
const URL: &str = "/work?sleep=20ms";
/// Loads as multiples of the peak.
const GOLD_LOAD: f64 = 0.2;
const LOAD: f64 = 10.0;

/// Gold first, and the others for as long as their answers are wanted.
const POLICY: &str = "[[class]]\nname = \"gold\"\npriority = 0\ndelay = \"20ms\"\n\
     [[class]]\nname = \"others\"\npriority = 1\nshare = \"5%\"\ndelay = \"100ms\"\ndefault = true\n";

/// One way to run a server, as the table shows it.
struct ServerSetup {
    /// The text behind the server's name, and behind the cases' names.
    name: String,
    application: ApplicationKind,
    /// Lines of Forebay's configuration.
    lines: String,
}

/// All ways to run a server.
fn variants(server: Server) -> Vec<ServerSetup> {
    let rule = format!("[[rule]]\nname = \"gold\"\nclient = [\"{GOLD}\"]\nclass = \"gold\"\n");
    let mut all = Vec::new();
    for application in ApplicationKind::ALL {
        let name = match application {
            ApplicationKind::Php => "",
            ApplicationKind::Python => ", Python",
            ApplicationKind::Node => ", Node",
        };
        let table = application.table();
        let mut add = |more: &str, lines: String| {
            all.push(ServerSetup { name: format!("{name}{more}"), application, lines });
        };
        let queue = |agent: &str, queue: &str| {
            format!("agent = \"{agent}\"\n{table}in_flight = {WORKERS}\n{queue}{POLICY}{rule}")
        };
        match server {
            Server::Forebay { policy: true, .. } => {
                // as many as are answered in time
                add("", queue("off", "queue = { requests = 80, time = \"250ms\" }\n"));
                add(": the agent", queue("on", ""));
            }
            Server::Forebay { policy: false, .. } => add("", table.to_owned()),
            _ => add("", String::new()),
        }
    }
    all
}

/// Measures one server at its peak, with gold alone, and with all clients.
///
/// # Errors
/// When a server does not come up or the load cannot be made.
pub fn measure(bench: &mut Bench<'_>, round: u32, server: Server) -> Result<(), Error> {
    for ServerSetup { name, application, lines } in variants(server) {
        let trial = |bench: &Bench<'_>, case: &'static str| Trial {
            application: Some(application),
            lines: &lines,
            ..bench.trial(PART, round, case, server, SLEEP)
        };
        let peak = trial(bench, "peak");
        let (_, mut rows) = bench.run(&peak, |base| {
            let mut all = GroupDraft::new("closed", Some(base));
            all.set("connections", &WORKERS.to_string());
            all.set("url", URL);
            Ok(vec![all.finish().map_err(client)?])
        })?;
        let per_s = rows[0].good;
        rows.iter_mut().for_each(|row| row.case.push_str(&name));
        bench.keep(rows);
        for (case, others) in [("alone", 0.0), ("all", LOAD - GOLD_LOAD)] {
            let trial = trial(bench, case);
            let (_, mut rows) = bench.run(&trial, |base| {
                let mut gold = open("gold", base, per_s * GOLD_LOAD, SLEEP);
                gold.set("source", GOLD);
                gold.set("url", URL);
                let mut groups = vec![group(gold)?];
                if others > 0.0 {
                    let mut all = open("others", base, per_s * others, SLEEP);
                    all.set("source", CROWD);
                    all.set("url", URL);
                    groups.push(group(all)?);
                }
                Ok(groups)
            })?;
            rows.iter_mut().for_each(|row| row.case.push_str(&name));
            bench.keep(rows);
        }
    }
    Ok(())
}

/// The table, with the verdicts.
pub fn report(all: &[Row]) -> String {
    let rows: Vec<&Row> = all.iter().filter(|row| row.part == PART).collect();
    if rows.is_empty() {
        return String::new();
    }
    let sleep_ms = SLEEP.as_millis() as f64;
    let mut text = format!(
        "\n## Applications behind\n\nphp-fpm with {WORKERS} workers, as many of Python, Node with as many \
         connections to a database; requests wait for {sleep_ms} ms; {LOAD} times the peak, of which {GOLD} offers {GOLD_LOAD} of the peak. Useful: answered within {} ms. Goals: \
         useful answers ≥ 95 % of the peak, p99 of gold ≤ 2 × alone + {sleep_ms} ms.\n\n\
         | server | peak/s | useful/s | of the peak | gold alone: p99 ms | p50 ms | p99 ms | gold not \
         answered/s | goal ms | |\n|---|---|---|---|---|---|---|---|---|---|\n",
        super::bench::deadline(SLEEP).as_millis(),
    );
    for server in row::each(rows.iter().copied(), |row| &row.server) {
        let Some(known) = Server::find(server) else { continue };
        for ServerSetup { name: variant, .. } in variants(known) {
            let of = |case: &str, group: &'static str| {
                let case = format!("{case}{variant}");
                let mine = move |row: &&&Row| row.is(&case, server) && row.group == group;
                rows.iter().filter(mine).copied().collect::<Vec<_>>()
            };
            let (peak, alone) = (of("peak", "closed"), of("alone", "gold"));
            let (gold, others) = (of("all", "gold"), of("all", "others"));
            let of_rows =
                |rows: &[&Row], figure: fn(&Row) -> f64| middle(rows.iter().copied(), figure);
            let (Some(most), Some(mine), Some(theirs)) = (
                of_rows(&peak, |row| row.good),
                of_rows(&gold, |row| row.goodput),
                of_rows(&others, |row| row.goodput),
            ) else {
                continue;
            };
            let (Some(before), Some(after)) =
                (of_rows(&alone, |row| row.p99_ms), of_rows(&gold, |row| row.p99_ms))
            else {
                continue;
            };
            let (goal, part) = (2.0 * before + sleep_ms, (mine + theirs) / most);
            let is_met = after <= goal && part >= 0.95;
            // writing to a string does not fail
            let _ = writeln!(
                text,
                "| {server}{variant} | {most:.0} | {:.0} | {:.0} % | {} | {} | {} | {} | {goal:.0} | {} |",
                mine + theirs,
                100.0 * part,
                shown(alone.iter().copied(), 1, |row| Some(row.p99_ms)),
                shown(gold.iter().copied(), 1, |row| Some(row.p50_ms)),
                shown(gold.iter().copied(), 1, |row| Some(row.p99_ms)),
                shown(gold.iter().copied(), 1, |row| Some(row.offered - row.good)),
                if is_met { "met" } else { "**missed**" },
            );
        }
    }
    text
}
