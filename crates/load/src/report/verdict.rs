//! Whether the figures are the target's or the generator's own: the rules by which it says so.

use super::{GroupReport, Report};
use crate::units::show_us;

/// A thread above this has no time left.
const BUSY: f64 = 0.95;
/// A thread that could not run this much of the time did not measure alone.
const STARVED: f64 = 0.05;
/// Planned things done later than this, at the 99th percentile, distort latencies, µs.
const LATE_US: f64 = 1_000.0;
/// Fewer requests sent than due by more than this is a schedule not kept.
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
    // The lateness of an overloaded target's clients is the target's; that of a schedule is ours.
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
