//! Each decision with what followed, for whoever wants to know what an agent does.

use super::{Decision, Observation};
use crate::level::{Cause, Level};
use std::collections::VecDeque;

/// How long one record lasts, unless the level changes.
pub const RECORD_NS: u64 = 100_000_000;
/// Records that are kept: a minute of them.
pub const RECORDS: usize = 600;

/// A decision and what followed while it, or one much like it, was in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// When it was taken.
    pub at_ns: u64,
    /// The level, and why.
    pub level: Level,
    /// The cause of the level.
    pub cause: Cause,
    /// How long what follows was watched.
    pub lasted_ns: u64,
    /// Work offered meanwhile, as a multiple of what the machine can do, at the end.
    pub load: f64,
    /// The classes by rank.
    pub classes: Vec<ClassRecord>,
}

/// What was decided for a class, and what followed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassRecord {
    /// How many may be unfinished, of the kind of work that had the least room.
    pub most: Option<u32>,
    /// Connections that may begin per second.
    pub connections_per_s: Option<f64>,
    /// Requests that needed a worker.
    pub offered: u64,
    /// Those that were refused.
    pub refused: u64,
    /// Those whose work ended.
    pub finished: u64,
    /// The longest delay of a period.
    pub delay_ns: u64,
    /// The most that were unfinished.
    pub unfinished: u32,
    /// Connections that came, and those that were refused.
    pub connections: u64,
    /// Connections that were refused.
    pub connections_refused: u64,
}

/// The records, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    records: VecDeque<Record>,
}

impl History {
    /// The records, the oldest first. What followed the last one is still being watched.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &Record> + ExactSizeIterator {
        self.records.iter()
    }

    /// What was seen followed the decision before; `decision` is taken now.
    pub(super) fn add(&mut self, seen: &Observation<'_>, load: f64, decision: &Decision) {
        if let Some(last) = self.records.back_mut() {
            last.follow(seen, load);
            let is_same = (last.level, last.cause) == (decision.level, decision.cause);
            if is_same && last.lasted_ns < RECORD_NS {
                return;
            }
        }
        if self.records.len() == RECORDS {
            self.records.pop_front();
        }
        self.records.push_back(Record::of(seen.now_ns, decision));
    }
}

impl Record {
    fn of(at_ns: u64, decision: &Decision) -> Record {
        let class = |(rank, rate): (usize, &Option<f64>)| ClassRecord {
            most: decision.queues.iter().filter_map(|queue| queue.get(rank)?.most).min(),
            connections_per_s: *rate,
            ..ClassRecord::default()
        };
        Record {
            at_ns,
            level: decision.level,
            cause: decision.cause,
            classes: decision.connections_per_s.iter().enumerate().map(class).collect(),
            ..Record::default()
        }
    }

    fn follow(&mut self, seen: &Observation<'_>, load: f64) {
        self.lasted_ns = seen.now_ns.saturating_sub(self.at_ns);
        self.load = load;
        for (rank, class) in self.classes.iter_mut().enumerate() {
            for seen in seen.queues.iter().filter_map(|queue| queue.classes.get(rank)) {
                class.offered = class.offered.saturating_add(seen.offered);
                class.refused = class.refused.saturating_add(seen.refused);
                class.finished = class.finished.saturating_add(seen.finished);
                class.delay_ns = class.delay_ns.max(seen.delay_ns);
                class.unfinished = class.unfinished.max(seen.unfinished);
            }
            if let Some(seen) = seen.connections.get(rank) {
                class.connections = class.connections.saturating_add(seen.offered);
                class.connections_refused = class.connections_refused.saturating_add(seen.refused);
            }
        }
    }
}
