//! Connections of a loop whose request is there, in the order in which they are answered: by rank,
//! and fair between the clients of a rank.
//!
//! With more than one rank a loop first receives and parses all that is ready, then answers in this
//! order, a batch at a time; in between it looks for what has come meanwhile. With one rank a
//! connection is answered as soon as it is ready, and there is no queue.
//!
//! A listener whose connections all have one rank is in the queue, too, as a client of its own:
//! what it has queued costs no descriptor until it is its turn.

use crate::loops::watched_listeners::FIRST_LISTENER;
use crate::order::ranks::{RankedClient, Ranks, RequestKey, Shares};
use forebay_conn::{Rank, RequestId};
use forebay_control::ranked::{Key, Ranked, Turn};
use forebay_metrics::{ClassSlot, ClassTurn, Local};
use forebay_sys::clock;

/// The requests that are answered before a loop polls again.
pub(crate) const BATCH: usize = 32;

/// Requests that wait to be answered.
pub(crate) struct ReadyQueue {
    /// The requests, each with the time at which it was there.
    queue: Ranked<(RequestKey, u64)>,
    shares: Shares,
    ranks: Ranks,
}

/// A request that is being answered.
#[must_use = "worker time that is not reported counts for nothing"]
pub(crate) struct Called {
    turn: Turn,
    of_class: ClassTurn,
    began_ns: u64,
}

impl ReadyQueue {
    /// A queue in this order; `None` if there is one rank.
    pub(crate) fn new(ranks: &Ranks) -> Option<ReadyQueue> {
        let ready_queue = || {
            let (queue, shares) = ranks.queue();
            ReadyQueue { queue, shares, ranks: ranks.clone() }
        };
        ranks.is_ordered().then(ready_queue)
    }

    /// Takes over shares that have changed; called once per turn of the loop.
    #[inline]
    pub(crate) fn keep_up(&mut self) {
        self.shares.keep_up(&mut self.queue);
    }

    /// Whether no request waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Puts this request into the queue. Returns `None` if there is no room; there always is room
    /// for the largest number of requests.
    pub(crate) fn join(&mut self, ranked_client: RankedClient, request: RequestKey) -> Option<Key> {
        let RankedClient { rank, client } = ranked_client;
        self.queue.push(rank, client, 1, (request, clock::monotonic_ns())).ok()
    }

    /// Puts a listener of this rank, which has connections, into the queue.
    pub(crate) fn join_listener(&mut self, rank: Rank, index: usize) {
        let token = FIRST_LISTENER + index as u64;
        let request = RequestKey { connection: token, request: RequestId::default() };
        let Rank(rank) = rank;
        // there is room for the largest number of listeners
        let _ = self.queue.push(rank, token, 1, (request, clock::monotonic_ns()));
    }

    /// Removes the request, if it still waits.
    pub(crate) fn leave(&mut self, key: Key) {
        self.queue.remove(key);
    }

    /// Takes the next request, and counts how long it has waited until `now_ns`.
    pub(crate) fn call(&mut self, now_ns: u64, metrics: &Local) -> Option<(RequestKey, Called)> {
        let ((request, since_ns), turn) = self.queue.pop()?;
        let slot = self.slot(turn);
        metrics.waited(slot, now_ns.saturating_sub(since_ns));
        Some((request, Called { turn, of_class: metrics.begin_turn(slot), began_ns: now_ns }))
    }

    /// Ends the turn of a request that was answered as far as that was possible. Returns the time.
    /// The order charges the class for a refusal, too: a flood that is refused must not go first
    /// because it got nothing.
    pub(crate) fn answered(&mut self, called: Called, metrics: &Local) -> u64 {
        let now_ns = clock::monotonic_ns();
        let ns = now_ns.saturating_sub(called.began_ns);
        metrics.end_turn(called.of_class, ns);
        self.queue.ran(called.turn, ns);
        now_ns
    }

    fn slot(&self, turn: Turn) -> ClassSlot {
        self.ranks.slot(turn.rank())
    }
}

/// The number of the listener that is in the ready queue as this request, if it is one.
#[inline]
pub(crate) fn listener_of(request: RequestKey) -> Option<usize> {
    request.connection.checked_sub(FIRST_LISTENER).map(|index| index as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::ranks::OrderSettings;
    use forebay_metrics::{ClassEvent, RefusalReason, RefusedAt, Totals};
    use std::sync::Arc;

    #[test]
    fn a_refusal_is_charged_in_the_order_and_not_in_the_ledger() {
        let (shares, slots) = (Arc::new([0.0, 0.05]), Arc::new([ClassSlot(3), ClassSlot(4)]));
        let ranks = Ranks::new(&OrderSettings { shares, slots, ..OrderSettings::default() });
        let mut ready_queue = ReadyQueue::new(&ranks).unwrap();
        let metrics = Local::default();
        for event in
            [ClassEvent::Refused(RefusedAt::Request, RefusalReason::Agent), ClassEvent::Answered]
        {
            let request = RequestKey { connection: 7, ..RequestKey::default() };
            ready_queue.join(RankedClient { rank: 1, client: 1 }, request).unwrap();
            let (called_request, called) =
                ready_queue.call(clock::monotonic_ns(), &metrics).unwrap();
            assert_eq!(called_request, request);
            let in_order = || ready_queue.queue.worked_ns().nth(1).unwrap();
            let before = in_order();
            std::thread::sleep(std::time::Duration::from_millis(1));
            metrics.enter(ClassSlot(4), event);
            let _ = ready_queue.answered(called, &metrics);
            let in_ledger = Totals::of([&metrics]).class(ClassSlot(4)).worked_ns;
            assert!(ready_queue.queue.worked_ns().nth(1).unwrap() > before);
            assert_eq!(in_ledger > 0, event == ClassEvent::Answered);
        }
    }
}
