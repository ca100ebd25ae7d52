//! Connections that were accepted ahead of a thread that serves them, in the order of their ranks
//! (voigt §3.2), for engines in which each connection keeps a thread.
//!
//! The class that rules give by address alone is known when a connection comes. So the thread that
//! will serve the next connection first accepts what the kernel has queued, as far as there is
//! room, and then takes the first of them: by rank, no rank below its share of the threads' time,
//! by turns between the clients of a rank; or in the order of arrival while threads are free for
//! all of them (`thread_queue.rs`). Connections that arrive while all threads serve are looked at
//! when the first thread is free. Those for which there is no room, or no place among all
//! connections, wait in the kernel's queue, in the order of arrival.
//!
//! A listener whose connections all have one rank is not accepted from ahead. Each connection that
//! the kernel has queued there is in the list by the listener's number, and when its turn comes the
//! thread accepts one. So such connections are counted, and put in order, as if they had been
//! accepted.
//!
//! A connection through a proxy that states its client is of the first rank until its PROXY header
//! is read.
//!
//! The limit on one client's connections counts those that have a thread: a connection that waits
//! for one keeps no other connection of the client out.
//!
//! With one rank no connection is accepted for which there is no thread.

use crate::connection::accept::{self, AcceptOutcome, BATCH, DRAIN_BATCHES, Listener, ListenerSet};
use crate::connection::served::Served;
use crate::connection::worker::Worker;
use crate::control::Ended;
use crate::order::ranks::{RankedClient, Ranks};
use crate::order::thread_queue::ThreadQueue;
use crate::straight::away::ToServe;
use forebay_conn::{Closing, Handler, Rank};
use forebay_control::ranked::Turn;
use forebay_sys::clock;
use forebay_sys::socket::accept_queue;
use std::os::fd::AsFd;

/// The wait after which a client may have left, so that the thread looks.
const LOOK_NS: u64 = 1_000_000;

/// Connections without a thread: those that were accepted, and those in the queues of listeners of one rank.
pub(crate) struct Ahead<H: Handler> {
    /// The connections in order, each with the time since when it waits.
    waiting: ThreadQueue<(Waiting<H>, u64)>,
    /// How many of them are in the queue of each listener, by its number.
    queued: Vec<usize>,
    /// The listeners are being closed, or are closed.
    leaves: bool,
    /// The number of further connections that are accepted from listeners that are being closed. It
    /// is bounded, as clients that connect again at once would keep the thread busy for ever.
    last: usize,
    ranks: Ranks,
    most: usize,
}

/// A connection that waits for a thread.
enum Waiting<H: Handler> {
    Accepted(Box<Served<H>>),
    /// A connection that was accepted and charged before, and whose socket another process had.
    Back(Box<ToServe<H>>),
    /// The next connection of the kernel's queue at the listener with this number.
    Queued(usize),
}

/// The next thing to do.
pub(crate) enum NextAccepted<H: Handler> {
    /// This connection is served. The time for which it has its thread goes back to [`Ahead::ran`].
    Serve(ToServe<H>, Turn),
    /// This connection was refused, and is closed in this way.
    Refused(Box<Served<H>>, Closing),
    /// There is no descriptor to accept with.
    Exhausted,
}

/// The reason why no more connections were accepted.
pub(crate) enum AcceptStop<H: Handler> {
    /// No connection waits to be accepted.
    Nobody,
    /// There are as many as may wait.
    Full,
    /// This connection was refused, and is closed in this way.
    Refused(Box<Served<H>>, Closing),
    /// There is no descriptor to accept with.
    Exhausted,
}

impl<H: Handler> Ahead<H> {
    /// A list in this order, with room for `most` connections.
    pub(crate) fn new(ranks: &Ranks, most: usize) -> Ahead<H> {
        let waiting = ThreadQueue::new(ranks);
        let most = if ranks.is_ordered() { most } else { 0 };
        let (ranks, queued) = (ranks.clone(), Vec::new());
        let (leaves, last) = (false, DRAIN_BATCHES * BATCH);
        Ahead { waiting, queued, leaves, last, ranks, most }
    }

    /// Whether no connection waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.len() == 0
    }

    /// Accepts all that the listeners have queued, whether there is room or not, and closes them.
    /// If it returns a connection that was refused, the caller closes that in this way, and calls
    /// again.
    pub(crate) fn leave(
        &mut self,
        listener_set: &mut ListenerSet,
        worker: &mut Worker<H>,
    ) -> Option<(Box<Served<H>>, Closing)> {
        self.leaves = true;
        for index in 0..listener_set.sockets().count() {
            while self.last > 0 {
                self.last -= 1;
                match listener_set.next_ahead(index, worker) {
                    AcceptOutcome::Served(served) => self.push(served),
                    AcceptOutcome::Refused(served, closing) => {
                        return Some((Box::new(served), closing));
                    }
                    AcceptOutcome::Gone => {}
                    AcceptOutcome::Nobody | AcceptOutcome::Exhausted => break,
                }
            }
        }
        listener_set.close();
        None
    }

    /// Accepts from listener `index` while there is room; there always is room for as many
    /// connections as there are `free` threads.
    pub(crate) fn fill(
        &mut self,
        listener_set: &ListenerSet,
        index: usize,
        free: usize,
        worker: &mut Worker<H>,
    ) -> AcceptStop<H> {
        if let Some(listener) = listener_set.listener(index)
            && let Some(rank) = listener.rank
        {
            self.look_at(index, rank, listener);
            return AcceptStop::Nobody;
        }
        while self.may_take(listener_set, free) {
            let arrival = match self.most {
                0 => listener_set.next(index, worker),
                _ => listener_set.next_ahead(index, worker),
            };
            match arrival {
                AcceptOutcome::Served(served) => self.push(served),
                AcceptOutcome::Refused(served, closing) => {
                    return AcceptStop::Refused(Box::new(served), closing);
                }
                AcceptOutcome::Gone => {}
                AcceptOutcome::Nobody => return AcceptStop::Nobody,
                AcceptOutcome::Exhausted => return AcceptStop::Exhausted,
            }
        }
        AcceptStop::Full
    }

    /// Whether one more may be accepted. A connection that would be refused for want of a place
    /// among all connections stays in the kernel's queue.
    fn may_take(&self, listener_set: &ListenerSet, free: usize) -> bool {
        let count = self.waiting.len() - self.queued.iter().sum::<usize>();
        count < free || (count < self.most && listener_set.has_room())
    }

    /// Adds a connection that was accepted before and is back: it waits for a thread like new ones.
    pub(crate) fn push_back(&mut self, back: ToServe<H>) {
        let ranked_client = back.served.ranked_client_at_rest(&self.ranks);
        self.waiting.push(ranked_client, (Waiting::Back(Box::new(back)), clock::monotonic_ns()));
    }

    fn push(&mut self, served: Served<H>) {
        let ranked_client = served.ranked_client_at_rest(&self.ranks);
        self.waiting
            .push(ranked_client, (Waiting::Accepted(Box::new(served)), clock::monotonic_ns()));
    }

    /// Puts the connections that the kernel has queued at this listener into the list, as far as
    /// they are not there. The listener is ready, so there is at least one.
    fn look_at(&mut self, index: usize, rank: Rank, listener: &Listener) {
        if self.queued.len() <= index {
            self.queued.resize(index + 1, 0);
        }
        let length = accept_queue(listener.socket.as_fd()).map_or(1, |length| length as usize);
        // no client has such a number
        let ranked_client = RankedClient { rank: rank.0, client: u64::MAX - index as u64 };
        let now_ns = clock::monotonic_ns();
        for _ in self.queued[index]..length.max(1) {
            self.waiting.push(ranked_client, (Waiting::Queued(index), now_ns));
            self.queued[index] += 1;
        }
    }

    /// Takes the next connection while `free` threads are free. Connections whose clients have left
    /// meanwhile are closed.
    pub(crate) fn pop(
        &mut self,
        free: usize,
        listener_set: &ListenerSet,
        worker: &mut Worker<H>,
    ) -> Option<NextAccepted<H>> {
        loop {
            let ((waiting, since_ns), turn) = self.waiting.pop(free)?;
            let mut served = match waiting {
                Waiting::Accepted(served) => served,
                Waiting::Back(back) => match self.pop_back(*back, turn, since_ns, worker) {
                    Some(next) => return Some(next),
                    None => continue,
                },
                Waiting::Queued(index) => {
                    self.queued[index] -= 1;
                    match self.accept(listener_set, index, turn, since_ns, worker) {
                        Some(next) => return Some(next),
                        None => continue,
                    }
                }
            };
            if self.most == 0 && !self.leaves {
                return Some(NextAccepted::Serve(served.into(), turn));
            }
            let waited_ns = clock::monotonic_ns().saturating_sub(since_ns);
            if waited_ns > LOOK_NS && served.is_gone() {
                self.waiting.ran(turn, 0);
                worker.close(*served, Closing::Now);
                continue;
            }
            if let Some(closing) = accept::charge(&mut served, worker) {
                self.waiting.ran(turn, 0);
                return Some(NextAccepted::Refused(served, closing));
            }
            worker.metrics.waited(self.ranks.slot(turn.rank()), waited_ns);
            return Some(NextAccepted::Serve(served.into(), turn));
        }
    }

    /// Takes a connection that is back: nothing is charged for it again.
    fn pop_back(
        &mut self,
        back: ToServe<H>,
        turn: Turn,
        since_ns: u64,
        worker: &mut Worker<H>,
    ) -> Option<NextAccepted<H>> {
        let waited_ns = clock::monotonic_ns().saturating_sub(since_ns);
        if waited_ns > LOOK_NS && back.served.is_gone() {
            self.waiting.ran(turn, 0);
            worker.close(*back.served, Closing::Now);
            return None;
        }
        worker.metrics.waited(self.ranks.slot(turn.rank()), waited_ns);
        Some(NextAccepted::Serve(back, turn))
    }

    /// Accepts the first connection at a listener of one rank, whose turn it is. Its client may
    /// have left meanwhile.
    fn accept(
        &mut self,
        listener_set: &ListenerSet,
        index: usize,
        turn: Turn,
        since_ns: u64,
        worker: &mut Worker<H>,
    ) -> Option<NextAccepted<H>> {
        let next = match listener_set.next(index, worker) {
            AcceptOutcome::Served(served) => {
                let waited_ns = clock::monotonic_ns().saturating_sub(since_ns);
                worker.metrics.waited(self.ranks.slot(turn.rank()), waited_ns);
                return Some(NextAccepted::Serve(Box::new(served).into(), turn));
            }
            AcceptOutcome::Refused(served, closing) => {
                Some(NextAccepted::Refused(Box::new(served), closing))
            }
            AcceptOutcome::Gone | AcceptOutcome::Nobody => None,
            AcceptOutcome::Exhausted => Some(NextAccepted::Exhausted),
        };
        self.waiting.ran(turn, 0);
        next
    }

    /// Charges the time for which a connection had its thread.
    pub(crate) fn ran(&mut self, turn: Turn, ns: u64) {
        self.waiting.ran(turn, ns);
    }

    /// Cuts all connections that wait.
    pub(crate) fn cut(&mut self, worker: &mut Worker<H>) -> Ended {
        let mut ended = Ended::default();
        while let Some(((waiting, _), turn)) = self.waiting.pop(1) {
            self.waiting.ran(turn, 0);
            let served = match waiting {
                Waiting::Accepted(served) => served,
                Waiting::Back(back) => back.served,
                Waiting::Queued(_) => continue,
            };
            ended.abort(served.awaits().what);
            worker.close(*served, Closing::Reset);
        }
        ended
    }
}
