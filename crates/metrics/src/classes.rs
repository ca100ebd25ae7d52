//! The ledger of each class of service: how many requests were offered, how they ended, how long they waited.
//!
//! The ledger is exact at rest: every offered request was answered, cut or refused. While the server runs,
//! the difference is in flight.

use crate::cell::bump;
use crate::histogram::{Bucketed, DurationRow, DurationTotals};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of classes that can have a ledger.
pub const MOST_CLASSES: usize = 16;

/// The index of a class's ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClassSlot(pub u8);

impl ClassSlot {
    fn index(self) -> usize {
        usize::from(self.0).min(MOST_CLASSES - 1)
    }
}

/// The point at which a connection or request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedAt {
    /// When a connection is accepted.
    Accept,
    /// When the head of a request has arrived.
    Request,
}

impl RefusedAt {
    /// All points, in order.
    pub const ALL: [RefusedAt; 2] = [RefusedAt::Accept, RefusedAt::Request];

    /// The point's label.
    pub fn as_str(self) -> &'static str {
        match self {
            RefusedAt::Accept => "accept",
            RefusedAt::Request => "request",
        }
    }
}

/// The reason for which a connection or request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// The action of a rule, whatever the load.
    Action,
    /// The rate of connections is over a limit.
    Connections,
    /// The rate of requests is over a limit.
    Requests,
    /// The number of requests at once is over a limit.
    InFlight,
    /// The wait for its turn would be too long, or too many requests wait.
    Queue,
    /// The client is ignored after a refusal.
    Ignored,
    /// The agent limits the class to what the machine can serve.
    Agent,
    /// The request has waited too long for a worker or for its job, or too many waited.
    Expired,
    /// An operator has banned the client.
    Banned,
}

impl RefusalReason {
    /// All reasons, in order.
    pub const ALL: [RefusalReason; 9] = [
        RefusalReason::Action,
        RefusalReason::Connections,
        RefusalReason::Requests,
        RefusalReason::InFlight,
        RefusalReason::Queue,
        RefusalReason::Ignored,
        RefusalReason::Agent,
        RefusalReason::Expired,
        RefusalReason::Banned,
    ];

    /// Whether this can be the reason at this point.
    pub fn is_at(self, place: RefusedAt) -> bool {
        match self {
            RefusalReason::Action | RefusalReason::Agent | RefusalReason::Banned => true,
            RefusalReason::Connections | RefusalReason::Ignored => place == RefusedAt::Accept,
            RefusalReason::Requests
            | RefusalReason::InFlight
            | RefusalReason::Queue
            | RefusalReason::Expired => place == RefusedAt::Request,
        }
    }

    /// The reason's label.
    pub fn as_str(self) -> &'static str {
        match self {
            RefusalReason::Action => "action",
            RefusalReason::Connections => "connections",
            RefusalReason::Requests => "requests",
            RefusalReason::InFlight => "in_flight",
            RefusalReason::Queue => "queue",
            RefusalReason::Ignored => "ignored",
            RefusalReason::Agent => "agent",
            RefusalReason::Expired => "expired",
            RefusalReason::Banned => "banned",
        }
    }
}

/// The error that a client got because an application did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unanswered {
    /// 502: the application could not be reached, closed the connection, or sent an invalid answer.
    Failed,
    /// 503: the application had no room, or is out of service.
    Unavailable,
    /// 504: the application was late.
    Late,
}

impl Unanswered {
    /// All errors, in order.
    pub const ALL: [Unanswered; 3] =
        [Unanswered::Failed, Unanswered::Unavailable, Unanswered::Late];

    /// The status, as a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Unanswered::Failed => "502",
            Unanswered::Unavailable => "503",
            Unanswered::Late => "504",
        }
    }
}

/// Upper bounds of the delay histogram's buckets, in microseconds; one more bucket is for longer delays.
pub const DELAY_BOUNDS_US: [u64; 13] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
    5_000_000,
];

const DELAYS: usize = DELAY_BOUNDS_US.len() + 1;

/// The counts of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTotals {
    /// Connections that arrived, however they ended.
    pub connections: u64,
    /// Requests that arrived.
    pub offered: u64,
    /// Requests whose answer was sent.
    pub answered: u64,
    /// Requests whose connection ended before.
    pub cut: u64,
    /// Refused connections and requests, by point and reason.
    pub refused: [[u64; RefusalReason::ALL.len()]; RefusedAt::ALL.len()],
    /// Requests that an application did not answer, by the error their clients got. They are included in the
    /// answered ones, or in the refused ones where the class had to give way.
    pub unanswered: [u64; Unanswered::ALL.len()],
    /// Waits for a worker: of requests for their loop, and of their jobs for a helper thread.
    pub delays: [u64; DELAYS],
    /// The sum of the waits, in nanoseconds.
    pub delay_ns: u64,
    /// The time that workers, both loops and helper threads, spent on requests that were not refused, in
    /// nanoseconds.
    pub worked_ns: u64,
    /// Bytes of bodies that were sent.
    pub body_bytes: u64,
    /// The durations of requests, where they are counted.
    pub durations: DurationTotals,
}

/// The agent's present limits on a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassLimits {
    /// Jobs that are admitted and not done, of those that compute.
    pub unfinished_jobs: u64,
    /// The largest number of such jobs; `None` for no limit.
    pub window_jobs: Option<u64>,
    /// The number of connections that may begin per second; `None` for no limit.
    pub connections_per_s: Option<u64>,
}

impl ClassTotals {
    /// Requests and connections refused at this point.
    pub fn refused_at(&self, place: RefusedAt) -> u64 {
        self.refused[place as usize].iter().sum()
    }

    /// Requests that are neither answered nor cut nor refused so far.
    pub fn in_flight(&self) -> u64 {
        let ended = self.answered + self.cut + self.refused_at(RefusedAt::Request);
        self.offered.saturating_sub(ended)
    }

    /// The number of waits.
    pub fn waits(&self) -> u64 {
        self.delays.iter().sum()
    }

    /// The counts since `base`.
    pub(crate) fn since(&self, base: &ClassTotals) -> ClassTotals {
        let less = |sum: u64, base: u64| sum.wrapping_sub(base);
        let mut news = ClassTotals {
            connections: less(self.connections, base.connections),
            offered: less(self.offered, base.offered),
            answered: less(self.answered, base.answered),
            cut: less(self.cut, base.cut),
            delay_ns: less(self.delay_ns, base.delay_ns),
            worked_ns: less(self.worked_ns, base.worked_ns),
            body_bytes: less(self.body_bytes, base.body_bytes),
            durations: self.durations.since(&base.durations),
            ..*self
        };
        let refused = news.refused.iter_mut().flatten().zip(base.refused.iter().flatten());
        let unanswered = news.unanswered.iter_mut().zip(&base.unanswered);
        refused.chain(unanswered).chain(news.delays.iter_mut().zip(&base.delays)).for_each(
            |(new, old)| {
                *new = less(*new, *old);
            },
        );
        news
    }
}

/// The ledger of one class, kept by one writer.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct ClassRow {
    connections: AtomicU64,
    offered: AtomicU64,
    answered: AtomicU64,
    cut: AtomicU64,
    refused: [[AtomicU64; RefusalReason::ALL.len()]; RefusedAt::ALL.len()],
    /// Refused requests, for any reason; kept apart because each turn reads the sum twice.
    refused_requests: AtomicU64,
    unanswered: [AtomicU64; Unanswered::ALL.len()],
    delays: [AtomicU64; DELAYS],
    delay_ns: AtomicU64,
    worked_ns: AtomicU64,
    body_bytes: AtomicU64,
    /// The durations, allocated when the first is counted.
    durations: OnceLock<Box<DurationRow>>,
}

impl ClassRow {
    /// The numbers of answered and of refused requests.
    #[inline]
    fn ends(&self) -> (u64, u64) {
        (self.answered.load(Relaxed), self.refused_requests.load(Relaxed))
    }
}

/// The rows of one writer, allocated when the first is written to.
#[derive(Debug, Default)]
pub(crate) struct ClassRows(OnceLock<Box<[ClassRow; MOST_CLASSES]>>);

impl ClassRows {
    #[inline]
    fn row(&self, slot: ClassSlot) -> &ClassRow {
        &self.0.get_or_init(Box::default)[slot.index()]
    }

    pub(crate) fn add_to(&self, totals: &mut [ClassTotals]) {
        let Some(rows) = self.0.get() else { return };
        let add = |sum: &mut u64, cell: &AtomicU64| *sum += cell.load(Relaxed);
        for (row, total) in rows.iter().zip(totals) {
            // the ends before the beginnings, so that no request has an end without a beginning
            add(&mut total.answered, &row.answered);
            add(&mut total.cut, &row.cut);
            for (sums, cells) in total.refused.iter_mut().zip(&row.refused) {
                sums.iter_mut().zip(cells).for_each(|(sum, cell)| add(sum, cell));
            }
            total.unanswered.iter_mut().zip(&row.unanswered).for_each(|(sum, cell)| add(sum, cell));
            total.delays.iter_mut().zip(&row.delays).for_each(|(sum, cell)| add(sum, cell));
            add(&mut total.delay_ns, &row.delay_ns);
            add(&mut total.worked_ns, &row.worked_ns);
            add(&mut total.body_bytes, &row.body_bytes);
            if let Some(durations) = row.durations.get() {
                durations.add_to(&mut total.durations);
            }
            add(&mut total.offered, &row.offered);
            add(&mut total.connections, &row.connections);
        }
    }
}

/// An event that a class's ledger counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassEvent {
    /// A connection was accepted.
    Connection,
    /// A request arrived.
    Offered,
    /// An admitted request's answer was sent.
    Answered,
    /// The connection of an admitted request ended before its answer was sent.
    Cut,
    /// A connection or request was refused.
    Refused(RefusedAt, RefusalReason),
    /// An application did not answer, and the client got this error. The end of the request is counted as
    /// well.
    Unanswered(Unanswered),
}

impl ClassRows {
    /// Counts an event in the ledger of a class.
    #[inline]
    pub(crate) fn enter(&self, slot: ClassSlot, event: ClassEvent) {
        let row = self.row(slot);
        match event {
            ClassEvent::Connection => bump(&row.connections, 1),
            ClassEvent::Offered => bump(&row.offered, 1),
            ClassEvent::Answered => bump(&row.answered, 1),
            ClassEvent::Cut => bump(&row.cut, 1),
            ClassEvent::Refused(place, reason) => {
                bump(&row.refused[place as usize][reason as usize], 1);
                if place == RefusedAt::Request {
                    bump(&row.refused_requests, 1);
                }
            }
            ClassEvent::Unanswered(what) => bump(&row.unanswered[what as usize], 1),
        }
    }

    /// Records how long a request, or a job of one, has waited for its worker.
    #[inline]
    pub(crate) fn waited(&self, slot: ClassSlot, ns: u64) {
        let row = self.row(slot);
        let bucket = DELAY_BOUNDS_US.partition_point(|bound_us| bound_us * 1000 < ns);
        bump(&row.delays[bucket], 1);
        bump(&row.delay_ns, ns);
    }

    /// Records that a part of an answer's body was sent and, with its last byte, how long the request took.
    #[inline]
    pub(crate) fn sent(&self, slot: ClassSlot, bytes: u64, duration: Option<Bucketed>) {
        let row = self.row(slot);
        bump(&row.body_bytes, bytes);
        if let Some(duration) = duration {
            row.durations.get_or_init(Box::default).took(duration);
        }
    }

    /// Records that a worker was busy for a class.
    #[inline]
    pub(crate) fn worked(&self, slot: ClassSlot, ns: u64) {
        bump(&self.row(slot).worked_ns, ns);
    }

    /// Begins a worker's turn at a request of a class, which it may refuse.
    #[inline]
    pub(crate) fn begin_turn(&self, slot: ClassSlot) -> ClassTurn {
        let (answered, refused) = self.row(slot).ends();
        ClassTurn { slot, answered, refused }
    }

    /// Ends a turn that has taken `ns`. The time counts as worker time of the class, unless the turn only
    /// refused requests: a refusal is no service to the class.
    #[inline]
    pub(crate) fn end_turn(&self, turn: ClassTurn, ns: u64) {
        let (answered, refused) = self.row(turn.slot).ends();
        if refused == turn.refused || answered != turn.answered {
            self.worked(turn.slot, ns);
        }
    }
}

/// A worker's turn at a request, with the numbers of answered and refused requests of its class before.
#[derive(Clone, Copy, Debug)]
#[must_use = "worker time that is not reported counts for nothing"]
pub struct ClassTurn {
    slot: ClassSlot,
    answered: u64,
    refused: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClassNames, Local, Totals};

    #[test]
    fn what_was_offered_is_accounted_for() {
        let (one, two) = (Local::default(), Local::default());
        let gold = ClassSlot(1);
        one.enter(gold, ClassEvent::Connection);
        (0..3).for_each(|_| one.enter(gold, ClassEvent::Offered));
        one.enter(gold, ClassEvent::Refused(RefusedAt::Request, RefusalReason::Agent));
        one.enter(gold, ClassEvent::Refused(RefusedAt::Accept, RefusalReason::Ignored));
        two.enter(gold, ClassEvent::Answered);
        // counted in addition to the end of the request
        two.enter(gold, ClassEvent::Unanswered(Unanswered::Late));
        two.waited(gold, 100_000);
        two.waited(gold, 100_001);
        two.waited(gold, u64::MAX / 2);
        let totals = Totals::of([&one, &two]);
        let class = totals.class(gold);
        assert_eq!((class.offered, class.answered, class.in_flight()), (3, 1, 1));
        assert_eq!(
            (class.refused_at(RefusedAt::Request), class.refused_at(RefusedAt::Accept)),
            (1, 1)
        );
        assert_eq!((class.delays[0], class.delays[1], class.delays[DELAYS - 1]), (1, 1, 1));
        assert_eq!(class.unanswered, [0, 0, 1]);
        assert_eq!(*totals.class(ClassSlot(0)), ClassTotals::default());
    }

    #[test]
    fn a_turn_that_only_refuses_is_no_worker_time() {
        let (local, gold) = (Local::default(), ClassSlot(1));
        let refused = ClassEvent::Refused(RefusedAt::Request, RefusalReason::Agent);
        let turn = |events: &[ClassEvent], ns| {
            let turn = local.begin_turn(gold);
            events.iter().for_each(|event| local.enter(gold, *event));
            local.end_turn(turn, ns);
        };
        turn(&[refused], 1);
        turn(&[ClassEvent::Answered], 10);
        // the request's job is done by another thread
        turn(&[], 100);
        // several pipelined requests
        turn(&[ClassEvent::Answered, refused, refused], 1_000);
        assert_eq!(Totals::of([&local]).class(gold).worked_ns, 1_110);
    }

    #[test]
    fn a_class_keeps_its_ledger_through_reloads() {
        let local = Local::default();
        let mut names = ClassNames::default();
        let before = names.assign(&["gold", "bulk"], &Totals::default());
        local.enter(before[0], ClassEvent::Offered);
        local.worked(before[0], 7);
        let many: Vec<String> = (1..MOST_CLASSES).map(|n| format!("class{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).chain(["gold"]).collect();
        let after = names.assign(&many, &Totals::of([&local]));
        assert_eq!(after[MOST_CLASSES - 1], before[0]);
        assert!(after[..MOST_CLASSES - 1].contains(&before[1]));
        local.enter(before[0], ClassEvent::Offered);
        let counted = Totals::of([&local]);
        let next = names.assign(&["new"], &counted);
        local.enter(next[0], ClassEvent::Offered);
        let rows = names.rows(&Totals::of([&local]));
        let offered = |name| rows.iter().find(|row| row.0 == name).map(|row| row.1.offered);
        assert_eq!((offered("new"), offered("bulk")), (Some(1), None));
        assert!(offered("gold").is_none_or(|offered| offered == 2));
    }
}
