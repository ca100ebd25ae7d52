//! Sums of what the threads counted: per group over the measured time, and per interval.

use crate::plan::LoadPlan;
use crate::tally::{GroupTally, TimeHistogram};
use crate::worker::Interval;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The shortest interval that gives a rate, in ns.
const SHORTEST_NS: u64 = 1_000_000;

/// The figures of a group in one interval, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntervalPoint {
    /// The end of the interval, in seconds after the start of the measured time.
    pub at_s: f64,
    /// Requests due per second.
    pub offered: f64,
    /// Answers per second.
    pub answered: f64,
    /// Good answers that came in time, per second.
    pub good: f64,
    /// Failed requests per second.
    pub failed: f64,
    /// Median latency of the answers in this interval, in µs; 0 without any.
    pub p50_us: f64,
    /// 99th percentile of the latency, in µs.
    pub p99_us: f64,
    /// Longest latency, in µs.
    pub max_us: f64,
}

/// The state of a run after an interval.
#[derive(Clone, Debug)]
pub struct RunProgress {
    /// The time since the start.
    pub elapsed: Duration,
    /// Warm-up and measured time together; `None` if the run ends after a number of requests.
    pub total: Option<Duration>,
    /// The state of each group.
    pub groups: Vec<GroupProgress>,
}

/// The figures of a group in the last interval.
#[derive(Clone, Debug)]
pub struct GroupProgress {
    /// The name of the group.
    pub name: String,
    /// Answers per second.
    pub rate: f64,
    /// 99th percentile of the latency from the intended start, in µs; 0 without an answer.
    pub p99_us: f64,
    /// Failed requests since the start of the measured time.
    pub failed: u64,
}

/// The sums of one group.
pub(crate) struct GroupLedger {
    /// Counts of the measured time.
    pub(crate) measured: GroupTally,
    /// Counts of the drain after it.
    pub(crate) drained: GroupTally,
    pub(crate) series: Vec<IntervalPoint>,
}

/// All sums of a run.
pub(crate) struct Ledger<'p> {
    plan: &'p LoadPlan,
    timeline: &'p [u64],
    /// The index of the first interval that counts.
    first: usize,
    pub(crate) groups: Vec<GroupLedger>,
    pub(crate) lateness: TimeHistogram,
    /// Intervals that not all threads have closed yet.
    open: BTreeMap<usize, OpenInterval>,
}

/// An interval that not all threads have closed.
struct OpenInterval {
    /// The number of threads that have closed it.
    threads: usize,
    /// The latest end that a thread gave, after the start.
    end_ns: u64,
    tallies: Vec<GroupTally>,
}

impl<'p> Ledger<'p> {
    pub(crate) fn new(plan: &'p LoadPlan, timeline: &'p [u64]) -> Ledger<'p> {
        let warmup_ns = plan.warmup.as_nanos() as u64;
        let group = |_| GroupLedger {
            measured: GroupTally::new(),
            drained: GroupTally::new(),
            series: Vec::new(),
        };
        Ledger {
            plan,
            timeline,
            first: timeline.iter().filter(|end| **end <= warmup_ns).count(),
            groups: plan.groups.iter().map(group).collect(),
            lateness: TimeHistogram::new(),
            open: BTreeMap::new(),
        }
    }

    /// Adds a thread's interval; returns the state of the run when it was the last thread's.
    pub(crate) fn take(&mut self, interval: Interval) -> Option<RunProgress> {
        let index = interval.index;
        if (self.first..self.timeline.len()).contains(&index) {
            self.lateness.add(&interval.lateness);
        }
        let mut open = self.open.remove(&index).unwrap_or_else(|| OpenInterval {
            threads: 0,
            end_ns: 0,
            tallies: vec![GroupTally::new(); self.groups.len()],
        });
        open.threads += 1;
        open.end_ns = open.end_ns.max(interval.end_ns);
        open.tallies.iter_mut().zip(&interval.tallies).for_each(|(sum, tally)| sum.add(tally));
        if open.threads < self.plan.threads {
            self.open.insert(index, open);
            return None;
        }
        let is_drain = index >= self.timeline.len();
        let progress = (!is_drain).then(|| self.progress(index, &open));
        self.close(index, &open);
        progress
    }

    /// Closes the intervals that some threads have not closed because the run ended early.
    pub(crate) fn close_open(&mut self) {
        for (index, open) in std::mem::take(&mut self.open) {
            self.close(index, &open);
        }
    }

    fn length_s(&self, index: usize, end_ns: u64) -> f64 {
        let begin_ns = index.checked_sub(1).map_or(0, |before| self.timeline[before]);
        // a very short interval has no meaningful rates
        end_ns.saturating_sub(begin_ns).max(SHORTEST_NS) as f64 / 1e9
    }

    fn close(&mut self, index: usize, open: &OpenInterval) {
        let OpenInterval { end_ns, tallies, .. } = open;
        if index < self.first {
            return;
        }
        if index >= self.timeline.len() {
            let groups = self.groups.iter_mut().zip(tallies);
            return groups.for_each(|(group, tally)| group.drained.add(tally));
        }
        let length_s = self.length_s(index, *end_ns);
        let at_s = (*end_ns as f64 / 1e9) - self.plan.warmup.as_secs_f64();
        for (group, tally) in self.groups.iter_mut().zip(tallies) {
            group.series.push(point(tally, at_s, length_s));
            group.measured.add(tally);
        }
    }

    fn progress(&self, index: usize, open: &OpenInterval) -> RunProgress {
        let OpenInterval { end_ns, tallies, .. } = open;
        let length_s = self.length_s(index, *end_ns);
        let groups = self.plan.groups.iter().zip(tallies).zip(&self.groups);
        let line =
            |((group, tally), sums): ((&crate::plan::ClientGroup, &GroupTally), &GroupLedger)| {
                let failed = sums.measured.counts.failures.iter().sum::<u64>();
                GroupProgress {
                    name: group.name.clone(),
                    rate: tally.counts.answered as f64 / length_s,
                    p99_us: latency(tally).quantile_us(0.99),
                    failed: failed + tally.counts.failures.iter().sum::<u64>(),
                }
            };
        RunProgress {
            elapsed: Duration::from_nanos(*end_ns),
            total: (!self.plan.is_counted()).then(|| self.plan.warmup + self.plan.duration),
            groups: groups.map(line).collect(),
        }
    }
}

/// The latencies from the intended start; in a closed loop that is the actual start.
pub(crate) fn latency(tally: &GroupTally) -> &TimeHistogram {
    if tally.intended.count() > 0 { &tally.intended } else { &tally.actual }
}

fn point(tally: &GroupTally, at_s: f64, length_s: f64) -> IntervalPoint {
    let (counts, times) = (&tally.counts, latency(tally));
    IntervalPoint {
        at_s,
        offered: counts.offered as f64 / length_s,
        answered: counts.answered as f64 / length_s,
        good: counts.in_time as f64 / length_s,
        failed: counts.failures.iter().sum::<u64>() as f64 / length_s,
        p50_us: times.quantile_us(0.5),
        p99_us: times.quantile_us(0.99),
        max_us: times.max_us(),
    }
}
