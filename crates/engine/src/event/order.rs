//! When a loop answers: requests of the [ready queue](crate::loops::ready_queue) a batch at a time,
//! and early ones when their time has come. When it goes on with answers that are [partly
//! sent](crate::loops::send_queue).

use super::EventLoop;
use super::connection::ConnectionState;
use crate::connection::waits::{RequestWait as Wait, Waits};
use crate::helpers::JobRunner;
use crate::loops::accepting::Accepting;
use crate::loops::ready_queue::{self, BATCH, ReadyQueue};
use crate::loops::send_queue;
use crate::order::early::Early;
use crate::order::ranks::{Ranks, RequestKey};
use crate::settings::SendOrder;
use forebay_conn::{Handler, Job, Rank, RequestEvent, RequestId};
use forebay_sys::clock;

/// Requests that are there and not yet answered.
pub(super) struct UnansweredRequests {
    ready_queue: Option<ReadyQueue>,
    /// Requests that may not be answered yet.
    pub(super) early: Early,
}

impl UnansweredRequests {
    pub(super) fn new(ranks: &Ranks) -> UnansweredRequests {
        UnansweredRequests { ready_queue: ReadyQueue::new(ranks), early: Early::default() }
    }

    /// Whether requests are answered in an order at all.
    #[inline]
    pub(super) fn is_ordered(&self) -> bool {
        self.ready_queue.is_some()
    }

    /// Whether a request can be answered now.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.ready_queue.as_ref().is_some_and(|ready_queue| !ready_queue.is_empty())
    }

    /// Puts a listener of this rank, which has connections, into the ready queue. Without an order
    /// there are no ranks.
    pub(super) fn join_listener(&mut self, rank: Rank, index: usize) {
        if let Some(ready_queue) = &mut self.ready_queue {
            ready_queue.join_listener(rank, index);
        }
    }

    /// Removes the requests of a connection, which wait no longer.
    pub(super) fn leave<J: Job>(&mut self, waits: &Waits<J>) {
        if let Some(ready_queue) = &mut self.ready_queue {
            waits.places().for_each(|place| ready_queue.leave(place));
        }
    }
}

impl<H: Handler, C: JobRunner<H::Job>> EventLoop<H, C> {
    /// Puts a request that is there into the ready queue, until it is answered.
    pub(super) fn enqueue(&mut self, key: usize, id: RequestId) {
        let connection = &mut self.connections[key];
        if connection.served.waits.contains(id) {
            return;
        }
        let ranked_client = connection.served.ranked_client(&self.ranks, id);
        let request = RequestKey { connection: connection.token, request: id };
        let ready_queue = self.waiting.ready_queue.as_mut();
        // there is room for the largest number of connections and requests
        let place = ready_queue.and_then(|ready_queue| ready_queue.join(ranked_client, request));
        connection.served.waits.add(id, Wait::Turn(place));
    }

    /// Queues a connection whose client takes more of its answer. Returns whether it goes on in its
    /// turn.
    pub(super) fn sends_in_turn(&mut self, key: usize) -> bool {
        if self.worker.settings.send_order == SendOrder::Arrival {
            return false;
        }
        let connection = &mut self.connections[key];
        let place = self.send_queue.join(&connection.served, &self.worker, connection.token);
        if let Some(place) = place {
            connection.state = ConnectionState::Sends(place);
        }
        place.is_some()
    }

    /// Goes on with the answers whose turn it is.
    pub(super) fn send_in_order(&mut self) {
        if self.send_queue.is_empty() {
            return;
        }
        self.send_queue.keep_up();
        for _ in 0..send_queue::BATCH {
            let Some((token, goes_on)) = self.send_queue.next() else { return };
            self.take_turn(token, None);
            self.send_queue.went_on(goes_on);
        }
    }

    /// Answers the requests whose turn it is.
    pub(super) fn answer_in_order(&mut self) {
        if !self.waiting.has_work() {
            return;
        }
        if let Some(ready_queue) = &mut self.waiting.ready_queue {
            ready_queue.keep_up();
        }
        let mut now_ns = clock::monotonic_ns();
        for _ in 0..BATCH {
            let Some(ready_queue) = &mut self.waiting.ready_queue else { return };
            let Some((request, called)) = ready_queue.call(now_ns, &self.worker.metrics) else {
                return;
            };
            match ready_queue::listener_of(request) {
                None => self.answer(request),
                Some(index) => self.accept_in_turn(index),
            }
            if let Some(ready_queue) = &mut self.waiting.ready_queue {
                now_ns = ready_queue.answered(called, &self.worker.metrics);
            }
        }
    }

    /// Answers early requests whose time has come.
    pub(super) fn answer_early(&mut self) {
        while let Some(RequestKey { connection: token, request }) =
            self.waiting.early.next(self.worker.now_ms())
        {
            if let Some(key) = self.key(token) {
                self.connections[key].served.waits.remove(request);
                self.take_turn(token, Some(RequestEvent::Due(request)));
            }
        }
    }
}
