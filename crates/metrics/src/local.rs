//! The counters of one writer, and the sum over all writers.

use crate::cell::bump;
use crate::classes::{
    self, ClassEvent, ClassSlot, ClassTotals, ClassTurn, MOST_CLASSES, RefusalReason,
};
use crate::histogram::Bucketed;
use crate::schema::{Activity, Counter};
use crate::sites::{SiteRows, SiteSlot, SiteTotals};
use crate::statuses::{self, AnswerTotals};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters and activity times of one thread. Only that thread writes; any thread may read.
///
/// Two of these share neither a cache line nor a pair of lines, which processors fetch together.
#[derive(Debug)]
#[repr(align(128))]
pub struct Local {
    counters: [AtomicU64; Counter::ALL.len()],
    activities: [TimeSum; Activity::ALL.len()],
    sites: SiteRows,
    classes: classes::ClassRows,
    answers: statuses::StatusRows,
}

#[derive(Debug, Default)]
struct TimeSum {
    samples: AtomicU64,
    total_ns: AtomicU64,
}

impl Default for Local {
    fn default() -> Local {
        Local {
            counters: [const { AtomicU64::new(0) }; Counter::ALL.len()],
            activities: std::array::from_fn(|_| TimeSum::default()),
            sites: SiteRows::default(),
            classes: classes::ClassRows::default(),
            answers: statuses::StatusRows::default(),
        }
    }
}

impl Local {
    /// Adds `n`. A plain load and store: exact as long as one thread writes.
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        bump(&self.counters[counter as usize], n);
    }

    /// Adds one sampled duration.
    #[inline]
    pub fn time(&self, activity: Activity, elapsed_ns: u64) {
        let timed = &self.activities[activity as usize];
        bump(&timed.samples, 1);
        bump(&timed.total_ns, elapsed_ns);
    }

    /// Counts an answer of a site, or one that belongs to no site.
    #[inline]
    pub fn answered(&self, site: SiteSlot, status: u16) {
        bump(self.sites.row(site).responses(status), 1);
        self.answers.answered(status);
    }

    /// Counts a request for a site that the policy has refused.
    pub fn refused_of(&self, site: SiteSlot, reason: RefusalReason) {
        self.sites.row(site).refused(reason);
    }

    /// Records that a part of an answer's body was sent, for its site and, if there is one, its class.
    /// `took_ns`, where it is known, is the time from the head of the request to the last byte of the answer.
    #[inline]
    pub fn sent(&self, site: SiteSlot, class: Option<ClassSlot>, bytes: u64, took_ns: Option<u64>) {
        let row = self.sites.row(site);
        bump(&row.body_bytes, bytes);
        let duration = took_ns.map(Bucketed::of);
        if let Some(duration) = duration {
            row.took(duration);
        }
        if let Some(class) = class {
            self.classes.sent(class, bytes, duration);
        }
    }

    /// Counts an event in the ledger of a class.
    #[inline]
    pub fn enter(&self, slot: ClassSlot, event: ClassEvent) {
        self.classes.enter(slot, event);
    }

    /// Records how long a request, or a job of one, has waited for its worker.
    #[inline]
    pub fn waited(&self, slot: ClassSlot, ns: u64) {
        self.classes.waited(slot, ns);
    }

    /// Records that a worker was busy for a class.
    #[inline]
    pub fn worked(&self, slot: ClassSlot, ns: u64) {
        self.classes.worked(slot, ns);
    }

    /// Begins a worker's turn at a request of a class, which it may refuse.
    #[inline]
    pub fn begin_turn(&self, slot: ClassSlot) -> ClassTurn {
        self.classes.begin_turn(slot)
    }

    /// Ends a turn that has taken `ns`. The time counts as worker time of the class, unless the turn only
    /// refused requests: a refusal is no service to the class.
    #[inline]
    pub fn end_turn(&self, turn: ClassTurn, ns: u64) {
        self.classes.end_turn(turn, ns);
    }

    /// The counter's value.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Relaxed)
    }
}

/// The sum over several writers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    counters: [u64; Counter::ALL.len()],
    activities: [(u64, u64); Activity::ALL.len()],
    /// The sums of sites, by slot.
    sites: Vec<SiteTotals>,
    /// The sums of classes, by slot.
    classes: [ClassTotals; MOST_CLASSES],
    answers: AnswerTotals,
}

impl Default for Totals {
    /// Sums of zero.
    fn default() -> Totals {
        Totals {
            counters: [0; Counter::ALL.len()],
            activities: [(0, 0); Activity::ALL.len()],
            sites: vec![SiteTotals::default(); SiteSlot::COUNT],
            classes: Default::default(),
            answers: AnswerTotals::default(),
        }
    }
}

impl Totals {
    /// Adds up the counts of all writers so far.
    pub fn of<'l>(locals: impl IntoIterator<Item = &'l Local>) -> Totals {
        let mut totals = Totals::default();
        for local in locals {
            for (sum, cell) in totals.counters.iter_mut().zip(&local.counters) {
                *sum += cell.load(Relaxed);
            }
            for (sum, timed) in totals.activities.iter_mut().zip(&local.activities) {
                sum.0 += timed.samples.load(Relaxed);
                sum.1 += timed.total_ns.load(Relaxed);
            }
            local.sites.add_to(&mut totals.sites);
            local.classes.add_to(&mut totals.classes);
            local.answers.add_to(&mut totals.answers);
        }
        // each request has a site, or the row of those without, so each is counted once
        let durations = &mut totals.answers.durations;
        totals.sites.iter().for_each(|site| durations.add(&site.durations));
        totals
    }

    /// The counter's sum.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// The counts of a site.
    pub fn site(&self, slot: SiteSlot) -> SiteTotals {
        self.sites[slot.index()]
    }

    /// The statuses of answers, and the durations of requests.
    pub fn answers(&self) -> &AnswerTotals {
        &self.answers
    }

    /// The counts of a class.
    pub fn class(&self, slot: ClassSlot) -> &ClassTotals {
        &self.classes[usize::from(slot.0).min(MOST_CLASSES - 1)]
    }

    /// The number of samples, and the sum of their times in nanoseconds.
    pub fn activity(&self, activity: Activity) -> (u64, u64) {
        self.activities[activity as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_the_sum_over_writers() {
        let (one, two) = (Local::default(), Local::default());
        one.add(Counter::Accepted, 2);
        two.add(Counter::Accepted, 3);
        two.time(Activity::Read, 40);
        let totals = Totals::of([&one, &two]);
        assert_eq!(totals.get(Counter::Accepted), 5);
        assert_eq!(totals.activity(Activity::Read), (1, 40));
        one.sent(SiteSlot::NONE, None, 1, Some(100_000));
        two.sent(SiteSlot::OTHER, Some(ClassSlot(1)), 1, Some(100_001));
        let totals = Totals::of([&one, &two]);
        assert_eq!(totals.answers().durations.buckets[..3], [1, 1, 0]);
        assert_eq!(totals.answers().durations.sum_ns, 200_001);
        assert_eq!(totals.class(ClassSlot(1)).durations.sum_ns, 100_001);
    }
}
