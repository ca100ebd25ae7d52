//! The rules that decide whether the figures are the target's or limited by the generator itself.

use super::{GroupReport, Report};
use crate::units::show_us;

/// The part of a thread's time above which it has none left.
const BUSY: f64 = 0.95;
/// The part of the time without a core above which a thread did not measure reliably.
const STARVED: f64 = 0.05;
/// The lateness of planned actions, at the 99th percentile, above which latencies are distorted, in
/// µs.
const LATE_US: f64 = 1_000.0;
/// The ratio of sent to due requests below which a schedule was not kept.
const KEPT: f64 = 0.99;

pub(super) fn bottlenecks(report: &Report) -> Vec<String> {
    let mut found = Vec::new();
    let generator = &report.generator;
    if generator.busiest_thread > BUSY {
        found.push(format!(
            "a thread of the generator was busy {:.0} % of the time: the target may be able to do \
             more; use more threads (-t {}), or compare CPU per request",
            generator.busiest_thread * 100.0,
            report.threads + 1
        ));
    }
    if generator.starved > STARVED {
        found.push(format!(
            "a thread of the generator waited for a core {:.0} % of the time: the machine was \
             shared, and the waits are in the latencies",
            generator.starved * 100.0
        ));
    }
    // the lateness of clients of an overloaded target is the target's; that of a schedule is ours
    if generator.lateness.p99_us > LATE_US {
        found.push(format!(
            "the generator was late: p99 {} behind its schedule",
            show_us(generator.lateness.p99_us)
        ));
    }
    report.groups.iter().for_each(|group| of_group(group, &mut found));
    found
}

fn of_group(group: &GroupReport, found: &mut Vec<String>) {
    let name = &group.name;
    if let Some(count) = group.failures.get("exhausted") {
        found.push(format!(
            "{name}: {count} requests found no local port or descriptor on this machine; use more \
             source addresses (`source`), keep-alive, or a higher `ulimit -n`"
        ));
    }
    if !group.open {
        return;
    }
    if group.connections.waited > 0 {
        found.push(format!(
            "{name}: {} arrivals found all connections taken and waited; raise `connections` if \
             that bound is not what you want to measure",
            group.connections.waited
        ));
    }
    if (group.sent as f64) < group.offered as f64 * KEPT && group.connections.waited == 0 {
        found.push(format!(
            "{name}: {} of {} requests were sent in time",
            group.sent, group.offered
        ));
    }
}
