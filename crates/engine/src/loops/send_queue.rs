//! Connections of a loop whose answer is partly sent, and whose client takes more of it; which of
//! them goes on first.
//!
//! By default there is no such queue: a connection whose socket has room goes on when the loop
//! hears of it. In another [order](SendOrder) it waits here until the loop has heard of all that is
//! ready. Then the connections of the first rank go on first, within a rank in that order, and a
//! batch later the loop polls again. Ranks with shares have them here too, as shares of the time
//! for sending on; within a rank no connection starves: see *Numbers* in
//! [`ranked`](forebay_control::ranked).

use crate::connection::served::Served;
use crate::connection::worker::Worker;
use crate::order::ranks::{Ranks, Shares};
use crate::settings::SendOrder;
use forebay_conn::{Handler, RequestId};
use forebay_control::ranked::{Key, Ranked, Turn};
use forebay_sys::clock;

/// The connections that go on before a loop polls again.
pub(crate) const BATCH: usize = 32;

/// Connections that wait to go on, by their tokens.
pub(crate) struct SendQueue {
    queue: Ranked<u64>,
    shares: Shares,
    ranks: Ranks,
}

/// A connection that is going on.
#[must_use = "worker time that is not reported counts for nothing"]
pub(crate) struct GoesOn {
    turn: Turn,
    began_ns: u64,
}

/// The number of a connection in the configured order; the smallest goes first.
fn number<H: Handler>(served: &Served<H>, worker: &Worker<H>) -> u64 {
    match worker.settings.send_order {
        SendOrder::Arrival => 0,
        SendOrder::Fastest => u64::MAX - served.taken_per_s(worker.now_ms()),
        SendOrder::Shortest => served.left(&worker.handler),
    }
}

impl SendQueue {
    /// An empty queue.
    pub(crate) fn new(ranks: &Ranks) -> SendQueue {
        let (queue, shares) = ranks.number_queue();
        SendQueue { queue, shares, ranks: ranks.clone() }
    }

    /// Whether no connection waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Puts this connection, whose client takes more, into the queue. Returns `None` if there is no
    /// room; there always is room for the largest number of connections.
    pub(crate) fn join<H: Handler>(
        &mut self,
        served: &Served<H>,
        worker: &Worker<H>,
        token: u64,
    ) -> Option<Key> {
        let rank = served.ranked_client(&self.ranks, RequestId::SENDING).rank;
        self.queue.push_number(rank, number(served, worker), token).ok()
    }

    /// Removes the connection, if it still waits.
    pub(crate) fn leave(&mut self, key: Key) {
        self.queue.remove(key);
    }

    /// Takes over shares that have changed; called once per turn of the loop.
    pub(crate) fn keep_up(&mut self) {
        self.shares.keep_up(&mut self.queue);
    }

    /// Takes the connection that goes on next.
    pub(crate) fn next(&mut self) -> Option<(u64, GoesOn)> {
        let (token, turn) = self.queue.pop()?;
        Some((token, GoesOn { turn, began_ns: clock::monotonic_ns() }))
    }

    /// Ends the turn of a connection that has gone on as far as its client let it.
    pub(crate) fn went_on(&mut self, goes_on: GoesOn) {
        let ns = clock::monotonic_ns().saturating_sub(goes_on.began_ns);
        self.queue.ran(goes_on.turn, ns);
    }
}
