//! Classes that all want more than there is: how much worker time each gets.

use super::bench::{Bench, Trial, group, open};
use super::server::Server;
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

/// One server with a policy, with floors and without.
///
/// # Errors
/// When a server does not come up or the load cannot be made.
pub fn measure(bench: &mut Bench<'_>, round: u32, server: Server) -> Result<(), Error> {
    if !server.has_policy() {
        return Ok(());
    }
    let rate = bench.capacity(server, COST)?.per_s * LOAD;
    for (case, floors) in VARIANTS {
        let lines = policy(floors);
        let trial = bench.trial(PART, round, case, server, COST);
        let measured = trial.measured.max(Duration::from_secs(4));
        let trial = Trial { lines: &lines, measured, ..trial };
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
    Ok(())
}
