//! Goodput over the offered load: answers in time, at parts and multiples of the capacity; the cost
//! of a refusal; and the requests that are too cheap for user space to hold.

use super::bench::{Bench, cpu, group, open};
use super::row::{self, Row, middle, shown};
use super::server::Server;
use super::{CROWD, SITE_HEADERS, SITE_PAGES};
use crate::Error;
use std::fmt::Write;
use std::time::Duration;

/// The part's name.
pub const PART: &str = "goodput";
/// The name of the search for the end of user space.
pub const SEARCH: &str = "search";
/// Loads of the search.
const ENDS: [f64; 2] = [1.0, 10.0];
/// The share of the peak that has to be left.
const HELD: f64 = 0.95;
/// The mark of measurements of the search in which the site has pages of its own for refusals.
const PAGES: &str = ": the site's error pages";

/// One class for all, and the agent keeps its queue short.
pub(super) const POLICY: &str =
    "agent = \"on\"\n[[class]]\nname = \"all\"\npriority = 0\ndelay = \"20ms\"\n";

/// The same, with pages and header rules of the site.
pub(super) fn with_pages() -> String {
    format!("{SITE_PAGES}{POLICY}{SITE_HEADERS}")
}

fn case(cost: Duration, load: f64) -> String {
    format!("{} ×{load}", cpu(cost))
}

/// The points: all costs with all loads, then those of the search.
pub fn points(
    costs: &[String],
    loads: &[String],
    search: &[String],
) -> Vec<(&'static str, String)> {
    let of = |part, costs: &[String], loads: &[String]| {
        let at =
            costs.iter().flat_map(|cost| loads.iter().map(move |load| format!("{cost} ×{load}")));
        at.map(|at| (part, at)).collect::<Vec<_>>()
    };
    let ends = ENDS.map(|load| load.to_string());
    [of(PART, costs, loads), of(SEARCH, search, &ends)].concat()
}

/// Reads cost and load from a case.
fn read(case: &str) -> Option<(Duration, f64)> {
    let (cost, load) = case.split_once(" ×")?;
    let load = load.split(':').next()?.parse().ok()?;
    Some((forebay_load::units::duration(cost).ok()?, load))
}

/// Measures one server at a point.
///
/// # Errors
/// When it does not come up or the load cannot be made.
pub fn measure(
    bench: &mut Bench<'_>,
    (part, round, at): (&'static str, u32, &str),
    server: Server,
) -> Result<(), Error> {
    let Some((cost, load)) = read(at) else { return Ok(()) };
    if part == PART {
        return one(bench, PART, round, server, (cost, load, ""));
    }
    let pages = if server.has_policy() { &["", PAGES][..] } else { &[] };
    pages.iter().try_for_each(|pages| one(bench, SEARCH, round, server, (cost, load, pages)))
}

fn one(
    bench: &mut Bench<'_>,
    part: &'static str,
    round: u32,
    server: Server,
    (cost, load, pages): (Duration, f64, &str),
) -> Result<(), Error> {
    let capacity = bench.capacity(server, cost)?;
    let name = case(cost, load) + pages;
    let mut trial = bench.trial(part, round, &name, server, cost);
    let lines = match (server.has_policy(), pages) {
        (false, _) => String::new(),
        (true, PAGES) => with_pages(),
        (true, _) => POLICY.to_owned(),
    };
    trial.lines = &lines;
    let (_, mut rows) = bench.run(&trial, |base| {
        let mut crowd = open("crowd", base, load * capacity.per_s, cost);
        crowd.set("source", CROWD);
        Ok(vec![group(crowd)?])
    })?;
    for row in &mut rows {
        row.figure = refusal_us(row, capacity.cpu_s);
    }
    bench.keep(rows);
    Ok(())
}

/// Processor time of a refusal, µs: what is left of the measured time without the cost of the
/// answers at the capacity. Says nothing when there are few refusals.
fn refusal_us(row: &Row, answer_s: f64) -> Option<f64> {
    let refused = row.refused + row.reset;
    let left_s = row.server_cores - row.good * answer_s;
    (refused > row.good * 0.2).then(|| left_s / refused * 1e6)
}

/// The values of a cost or a load in cases, each once.
fn values<T: PartialEq>(rows: &[&Row], of: impl Fn((Duration, f64)) -> T) -> Vec<T> {
    let mut all = Vec::new();
    for value in rows.iter().filter_map(|row| read(&row.case)).map(of) {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

/// The tables and verdicts.
pub fn report(all: &[Row]) -> String {
    let mut text = String::new();
    let of_part = |part: &str| all.iter().filter(|row| row.part == part).collect::<Vec<_>>();
    let rows = of_part(PART);
    let loads = {
        let mut loads = values(&rows, |(_, load)| load);
        loads.sort_by(f64::total_cmp);
        loads
    };
    for cost in values(&rows, |(cost, _)| cost) {
        // writing to a string does not fail
        let _ = writeln!(text, "\n## Goodput, requests of {} CPU\n", cpu(cost));
        text += &curves(&rows, cost, &loads);
    }
    let rows = of_part(SEARCH);
    if !rows.is_empty() {
        text += "\n## The end of user space\n\nGoodput at ten times the capacity as a part of that \
                 at the capacity. Where the clients cannot make so much, the load says how much it \
                 was.\n\n| CPU of a request | server | capacity/s | load reached | held | of which \
                 refusals: µs each | |\n|---|---|---|---|---|---|---|\n";
        for cost in values(&rows, |(cost, _)| cost) {
            for server in row::each(rows.iter().copied(), |row| &row.server) {
                for pages in ["", PAGES] {
                    text += &held(all, &rows, cost, server, pages);
                }
            }
        }
    }
    text
}

/// A line for each server: goodput at each load as a part of its own peak.
fn curves(rows: &[&Row], cost: Duration, loads: &[f64]) -> String {
    let head: String = loads.iter().map(|load| format!(" ×{load} |")).collect();
    let mut text = format!(
        "In time per second, by the load as a multiple of the server's own capacity.\n\n| server \
         |{head} % held at the end | refused/s | CPU µs each | p99 ms |\n|---|{}---|---|---|---|\n",
        "---|".repeat(loads.len())
    );
    let names: Vec<_> = loads.iter().map(|load| case(cost, *load)).collect();
    let of_cost = rows.iter().copied().filter(|row| names.contains(&row.case));
    for server in row::each(of_cost, |row| &row.server) {
        let at = |name: &str| rows.iter().copied().filter(|row| row.is(name, server)).collect();
        let _ = write!(text, "| {server} |");
        let mut peak = 0.0f64;
        let mut last: Vec<&Row> = Vec::new();
        for name in &names {
            last = at(name);
            peak = peak.max(middle(last.iter().copied(), |row| row.goodput).unwrap_or(0.0));
            let _ = write!(text, " {} |", shown(last.iter().copied(), 0, |row| Some(row.goodput)));
        }
        let share = |row: &Row| (peak > 0.0).then(|| 100.0 * row.goodput / peak);
        let mine = last.iter().copied();
        let _ = writeln!(
            text,
            " {} | {} | {} | {} |",
            shown(mine.clone(), 0, share),
            shown(mine.clone(), 0, |row| Some(row.refused + row.reset)),
            shown(mine.clone(), 0, |row| row.figure),
            shown(mine, 0, |row| Some(row.p99_ms)),
        );
    }
    text
}

fn held(all: &[Row], rows: &[&Row], cost: Duration, server: &str, pages: &str) -> String {
    let at = |load| {
        let name = case(cost, load) + pages;
        rows.iter().copied().filter(|row| row.is(&name, server)).collect::<Vec<_>>()
    };
    let [low, high] = ENDS.map(at);
    let bare = Server::find(server).map_or(String::new(), |server| server.bare().name());
    let is_it = |row: &&Row| row.part == "capacity" && row.is(&cpu(cost), &bare);
    let capacity = all.iter().find(is_it).map_or(0.0, |row| row.good);
    if high.is_empty() {
        return String::new();
    }
    let peak = [&low, &high].map(|rows| middle(rows.iter().copied(), |row| row.goodput));
    let peak = peak.into_iter().flatten().fold(0.0, f64::max);
    let held = middle(high.iter().copied(), |row| row.goodput / peak.max(1e-9)).unwrap_or(0.0);
    let reached = shown(high.iter().copied(), 1, |row| Some(row.offered / capacity.max(1e-9)));
    format!(
        "| {} | {server}{pages} | {capacity:.0} | ×{reached} | {:.0} % | {} | {} |\n",
        cpu(cost),
        held * 100.0,
        shown(high.iter().copied(), 1, |row| row.figure),
        if held >= HELD { "holds" } else { "does not hold" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overload::row::tests::row;

    #[test]
    fn goodput_is_shown_against_its_own_peak() {
        let cost = Duration::from_millis(20);
        let rows = [
            row("20ms ×1", "nginx", "crowd", 40.0),
            row("20ms ×2", "nginx", "crowd", 50.0),
            row("20ms ×10", "nginx", "crowd", 5.0),
        ];
        let text = curves(&rows.iter().collect::<Vec<_>>(), cost, &[1.0, 2.0, 10.0]);
        assert!(text.contains("| nginx | 40 | 50 | 5 | 10 |"), "{text}");
    }

    #[test]
    fn refusals_pay_for_what_answers_leave() {
        let mut row = row("c", "s", "g", 100.0);
        (row.server_cores, row.refused) = (1.0, 1000.0);
        assert_eq!(refusal_us(&row, 0.008).map(f64::round), Some(200.0));
        row.refused = 1.0;
        assert_eq!(refusal_us(&row, 0.008), None);
    }

    #[test]
    fn cases_say_cost_and_load() {
        let points = points(&["5ms".to_owned()], &["0.5".to_owned()], &["100us".to_owned()]);
        let cases: Vec<_> = points.iter().map(|(_, at)| read(at)).collect();
        let us = Duration::from_micros;
        assert_eq!(cases, [Some((us(5000), 0.5)), Some((us(100), 1.0)), Some((us(100), 10.0))]);
        assert_eq!(case(us(5000), 0.5), points[0].1);
    }
}
