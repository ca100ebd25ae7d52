//! The order in which a loop answers: by rank, and fair between the clients of a rank.
//!
//! With more than one rank a loop first receives and parses all that is ready, then answers in this
//! order, a batch at a time; in between it looks for what has come meanwhile. With one rank a
//! connection is answered as soon as it is ready, and nothing here is used.

use super::EventLoop;
use super::connection::State;
use crate::helpers::Crew;
use crate::ranks::{Ranks, Standing};
use forebay_conn::Handler;
use forebay_control::ranked::{Key, Ranked};
use forebay_sys::clock;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Requests answered before the loop looks for what has come.
const BATCH: usize = 32;

/// Requests that are there and not yet answered.
pub(super) struct Waiting {
    /// Connections' tokens, and when each request was there.
    queue: Option<Ranked<(u64, u64)>>,
    /// Requests that may not be answered yet: when they may, in milliseconds, and their tokens.
    early: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Waiting {
    pub(super) fn new(ranks: &Ranks) -> Waiting {
        Waiting { queue: ranks.is_ordered().then(|| ranks.queue()), early: BinaryHeap::new() }
    }

    /// Whether requests are answered in an order at all.
    #[inline]
    pub(super) fn is_ordered(&self) -> bool {
        self.queue.is_some()
    }

    /// Whether a request can be answered now.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| !queue.is_empty())
    }

    /// Milliseconds until a request that came too early may be answered, at most `most`.
    #[inline]
    pub(super) fn sleep_ms(&self, now_ms: u64, most: u64) -> u64 {
        self.early.peek().map_or(most, |Reverse((at_ms, _))| at_ms.saturating_sub(now_ms).min(most))
    }

    pub(super) fn remove(&mut self, key: Key) {
        if let Some(queue) = &mut self.queue {
            queue.remove(key);
        }
    }

    pub(super) fn wait_until(&mut self, at_ms: u64, token: u64) {
        self.early.push(Reverse((at_ms, token)));
    }
}

impl<H: Handler, C: Crew<H::Job>> EventLoop<H, C> {
    /// A request is there; the connection is in line until it is answered.
    pub(super) fn line_up(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        let Standing { rank, client } = connection.served.standing(&self.ranks);
        let entry = (connection.token, clock::monotonic_ns());
        let queue = self.waiting.queue.as_mut();
        // there is always room: one entry per connection
        match queue.map(|queue| queue.push(rank, client, 1, entry)) {
            Some(Ok(key)) => connection.state = State::InLine(key),
            _ => {
                connection.state = State::Yielded;
                self.yielded.push_back(connection.token);
            }
        }
    }

    /// Answers those whose turn it is.
    pub(super) fn answer_in_order(&mut self) {
        if !self.waiting.has_work() {
            return;
        }
        let mut began_ns = clock::monotonic_ns();
        for _ in 0..BATCH {
            let queue = self.waiting.queue.as_mut();
            let Some(((token, since_ns), turn)) = queue.and_then(Ranked::pop) else { return };
            let slot = self.ranks.slot(turn.rank());
            self.worker.metrics.waited(slot, began_ns.saturating_sub(since_ns));
            self.answer(token);
            let now_ns = clock::monotonic_ns();
            let ns = now_ns.saturating_sub(began_ns);
            self.worker.metrics.worked(slot, ns);
            if let Some(queue) = &mut self.waiting.queue {
                queue.ran(turn, ns);
            }
            began_ns = now_ns;
        }
    }

    /// Answers those that came early and whose time has come.
    pub(super) fn answer_early(&mut self) {
        while let Some(&Reverse((at_ms, token))) = self.waiting.early.peek()
            && at_ms <= self.worker.now_ms()
        {
            self.waiting.early.pop();
            if let Some(key) = self.key(token) {
                self.connections[key].served.conn.admit();
                self.take_turn(token, None);
            }
        }
    }
}
