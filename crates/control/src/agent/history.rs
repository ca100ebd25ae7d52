//! Each decision with its effects, so that an operator can see what an agent does.

use super::{AgentDecision, Limits, Observation};
use crate::level::{Cause, Level};
use std::collections::VecDeque;

/// The length of a record, unless the level changes.
pub const RECORD_NS: u64 = 100_000_000;
/// The number of records that are kept: a minute of them.
pub const RECORDS: usize = 600;

/// A decision, and what was measured while it, or one much like it, was in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The time of the decision.
    pub at_ns: u64,
    /// The level.
    pub level: Level,
    /// The cause of the level.
    pub cause: Cause,
    /// How long the effects were measured.
    pub lasted_ns: u64,
    /// The work offered at the end of that time, as a multiple of what the machine can do.
    pub load: f64,
    /// The classes, by rank.
    pub classes: Vec<ClassRecord>,
    /// The rules whose rates may be moved.
    pub rules: Vec<RuleRecord>,
}

/// The decision for a rule whose rate may be moved, and its effects.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RuleRecord {
    /// How many requests the rule admits per second.
    pub per_s: f64,
    /// Requests that the rule has decided about.
    pub matched: u64,
    /// Requests that the rule has refused.
    pub refused: u64,
}

/// The decision for a class, and its effects.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassRecord {
    /// The largest number of unfinished jobs.
    pub most: Option<u32>,
    /// Connections that may begin per second.
    pub connections_per_s: Option<f64>,
    /// Jobs that arrived.
    pub offered: u64,
    /// Jobs that were refused.
    pub refused: u64,
    /// Jobs that ended.
    pub finished: u64,
    /// The longest delay in any period.
    pub delay_ns: u64,
    /// The largest number of unfinished jobs in any period.
    pub unfinished: u32,
    /// Connections that arrived.
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
    /// The records, the oldest first. The last one is still being measured.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &Record> + ExactSizeIterator {
        self.records.iter()
    }

    /// Adds the measurements of a period to the record of the decision before it; `decision` is the
    /// next one.
    pub(super) fn add(&mut self, seen: &Observation<'_>, load: f64, decision: &AgentDecision) {
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
    fn of(at_ns: u64, decision: &AgentDecision) -> Record {
        let class = |limits: &Limits| ClassRecord {
            most: limits.most,
            connections_per_s: limits.connections_per_s,
            ..ClassRecord::default()
        };
        Record {
            at_ns,
            level: decision.level,
            cause: decision.cause,
            classes: decision.limits.iter().map(class).collect(),
            rules: decision
                .rates
                .iter()
                .map(|per_s| RuleRecord { per_s: *per_s, ..RuleRecord::default() })
                .collect(),
            ..Record::default()
        }
    }

    fn follow(&mut self, seen: &Observation<'_>, load: f64) {
        self.lasted_ns = seen.now_ns.saturating_sub(self.at_ns);
        self.load = load;
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        for (rule, seen) in self.rules.iter_mut().zip(seen.rules) {
            add(&mut rule.matched, seen.matched);
            add(&mut rule.refused, seen.refused);
        }
        for (rank, class) in self.classes.iter_mut().enumerate() {
            let seen = seen.class(rank);
            add(&mut class.offered, seen.offered);
            add(&mut class.refused, seen.refused);
            add(&mut class.finished, seen.finished);
            add(&mut class.connections, seen.connections);
            add(&mut class.connections_refused, seen.connections_refused);
            class.delay_ns = class.delay_ns.max(seen.delay_ns);
            class.unfinished = class.unfinished.max(seen.unfinished);
        }
    }
}
