//! How a loop accepts: a few connections at a time, each served at once. When all places are taken,
//! an idle connection is closed for a new one, by rank. Where the kernel queues connections by
//! rank, a loop accepts them in the order of its ready queue.

use crate::connection::accept::{AcceptOutcome, BATCH, DRAIN_BATCHES};
use crate::connection::served::Served;
use crate::connection::worker::Worker;
use crate::loops::watched_listeners::WatchedListeners;
use crate::room::idle::{Idle, TRIES};
use forebay_conn::{Closing, Handler, Protocol, Rank};
use forebay_metrics::Counter;
use forebay_sys::epoll::Epoll;

/// The connections that are accepted from a listener of one rank before the ready queue is asked
/// again.
const RANK_BATCH: usize = 8;

/// A loop that accepts.
pub(crate) trait Accepting<H: Handler> {
    /// Runs `f` with the listening sockets, the epoll that watches them, and the worker.
    fn with_listeners<R>(
        &mut self,
        f: impl FnOnce(&mut WatchedListeners, &Epoll, &mut Worker<H>) -> R,
    ) -> R;

    /// Runs `f` with the order of idle connections.
    fn with_idle<R>(&mut self, f: impl FnOnce(&mut Idle) -> R) -> R;

    /// Adds a connection and gives it its first turn.
    fn serve_new(&mut self, served: Served<H>);

    /// Adds a connection that was refused, and ends it.
    fn end_new(&mut self, served: Served<H>, closing: Closing);

    /// Closes the connection with this token if it is really idle; returns whether it was.
    fn close_idle(&mut self, token: u64) -> bool;

    /// Puts a listener of this rank into the ready queue.
    fn queue_listener(&mut self, rank: Rank, index: usize);

    /// Accepts from listener `index`, which has connections, or queues it.
    fn arrived(&mut self, index: usize) {
        if self.with_listeners(|watched_listeners, _, _| watched_listeners.is_ordered(index)) {
            let rank =
                self.with_listeners(|watched_listeners, _, _| watched_listeners.queue(index));
            return rank.into_iter().for_each(|rank| self.queue_listener(rank, index));
        }
        let most = self.with_listeners(|watched_listeners, _, _| watched_listeners.turn(index));
        self.accept(index, most);
        self.with_listeners(|watched_listeners, epoll, worker| {
            watched_listeners.give_way(index, epoll, worker.now_ms())
        });
    }

    /// Accepts from listener `index`, whose turn in the ready queue it is. If it has more, it joins
    /// the queue again at once; otherwise the ranks below would have turns before epoll reports it
    /// again.
    fn accept_in_turn(&mut self, index: usize) {
        self.with_listeners(|watched_listeners, _, _| watched_listeners.called(index));
        if self.accept(index, RANK_BATCH) {
            self.arrived(index);
        }
    }

    /// Accepts at most `most` connections from listener `index`. Returns whether more may be
    /// waiting.
    fn accept(&mut self, index: usize, most: usize) -> bool {
        for _ in 0..most {
            match self.next_arrival(index) {
                AcceptOutcome::Served(served) => self.serve_new(served),
                AcceptOutcome::Refused(served, closing) => self.end_new(served, closing),
                AcceptOutcome::Gone => {}
                AcceptOutcome::Nobody => return false,
                AcceptOutcome::Exhausted => {
                    self.with_listeners(|watched_listeners, epoll, worker| {
                        watched_listeners.rest(index, epoll, worker.now_ms());
                    });
                    return false;
                }
            }
        }
        true
    }

    /// Accepts a connection of listener `index`. When all places are taken, an idle connection is
    /// closed for it.
    fn next_arrival(&mut self, index: usize) -> AcceptOutcome<H> {
        let nobody_is_idle = self.with_idle(|idle| idle.is_empty());
        let arrival = self.with_listeners(|watched_listeners, _, worker| {
            match worker.draining || nobody_is_idle {
                true => Ok(watched_listeners.next(index, worker)),
                false => watched_listeners.next_or_full(index, worker),
            }
        });
        arrival.unwrap_or_else(|served| {
            self.make_room(served.conn.rank());
            self.with_listeners(|watched_listeners, _, worker| {
                watched_listeners.take_place(*served, worker)
            })
        })
    }

    /// Closes the idle connection of the lowest rank, if that is not above this rank.
    #[cold]
    fn make_room(&mut self, rank: Rank) {
        for _ in 0..TRIES {
            let Some(token) = self.with_idle(|idle| idle.take(rank)) else { return };
            if self.close_idle(token) {
                return self.with_listeners(|_, _, worker| worker.count(Counter::MadeRoom));
            }
        }
    }

    /// Takes what the listeners have queued, and closes them.
    fn leave_listeners(&mut self) {
        for index in 0..self.with_listeners(|watched_listeners, _, _| watched_listeners.count()) {
            self.with_listeners(|watched_listeners, epoll, _| {
                watched_listeners.unwatch(index, epoll)
            });
            // bounded, as clients that connect again at once would keep the loop busy for ever
            for _ in 0..DRAIN_BATCHES {
                if !self.accept(index, BATCH) {
                    break;
                }
            }
        }
        self.with_listeners(|watched_listeners, _, _| watched_listeners.close());
    }
}
