//! The listener set of a loop: its listening sockets in its epoll. They rest when there are no
//! descriptors, and alternate with other loops that accept from the same sockets. Listeners of one
//! rank wait in the ready queue of their loop until it accepts from them.

use crate::connection::accept::{AcceptOutcome, BATCH, Listener, ListenerSet, PAUSE_MS};
use crate::connection::served::Served;
use crate::connection::worker::Worker;
use forebay_conn::{Handler, Rank};
use forebay_sys::epoll::Epoll;
use std::io;

/// The token of the bell; tokens above all connections' are those of listeners, then this one.
pub(crate) const BELL: u64 = u64::MAX;
pub(crate) const FIRST_LISTENER: u64 = u64::MAX - (1 << 20);

/// Tokens from here to the listeners' are those of other sockets.
pub(crate) const SOCKETS: u64 = 1 << 63;

/// A connection's token: generation above, place below; always below the tokens of other sockets.
pub(crate) fn token(generation: u32, key: usize) -> u64 {
    u64::from(generation & 0x7fff_ffff) << 32 | (key as u64 & 0xffff_ffff)
}

/// The listening sockets of a loop, all of them watched except those that rest.
pub(crate) struct WatchedListeners {
    listener_set: ListenerSet,
    /// The listeners that rest, and until when.
    resting: Vec<(usize, u64)>,
    /// The listeners that are in the ready queue.
    queued: Vec<usize>,
}

impl WatchedListeners {
    /// Has `epoll` watch all sockets of `listener_set`.
    ///
    /// # Errors
    /// Lack of memory or of watches.
    pub(crate) fn new(listener_set: ListenerSet, epoll: &Epoll) -> io::Result<WatchedListeners> {
        let listeners = (0..).map_while(|index| Some((index, listener_set.listener(index)?)));
        for (index, listener) in listeners {
            watch(epoll, index, listener)?;
        }
        Ok(WatchedListeners { listener_set, resting: Vec::new(), queued: Vec::new() })
    }

    /// The number of listening sockets: none when they are closed.
    pub(crate) fn count(&self) -> usize {
        self.listener_set.sockets().count()
    }

    /// The share of the places for connections that is taken, from 0 to 1.
    pub(crate) fn load(&self) -> f64 {
        self.listener_set.load()
    }

    /// Queues listener `index`, if its connections all have one rank, and it is not in the ready
    /// queue. Returns that rank; the listener is queued until it is
    /// [called](WatchedListeners::called).
    pub(crate) fn queue(&mut self, index: usize) -> Option<Rank> {
        let rank = self.listener_set.listener(index)?.rank?;
        if self.queued.contains(&index) {
            return None;
        }
        self.queued.push(index);
        Some(rank)
    }

    /// Whether connections of listener `index` are accepted in the order of the ready queue.
    pub(crate) fn is_ordered(&self, index: usize) -> bool {
        self.listener_set.listener(index).is_some_and(|listener| listener.rank.is_some())
    }

    /// Notes that listener `index` is out of the ready queue.
    pub(crate) fn called(&mut self, index: usize) {
        self.queued.retain(|queued| *queued != index);
    }

    /// Whether a listener rests, so that the loop should look again after [`PAUSE_MS`].
    pub(crate) fn any_rests(&self) -> bool {
        !self.resting.is_empty()
    }

    /// Accepts the next connection of listener `index` and decides about it.
    pub(crate) fn next<H: Handler>(
        &self,
        index: usize,
        worker: &mut Worker<H>,
    ) -> AcceptOutcome<H> {
        self.listener_set.next(index, worker)
    }

    /// Does the same as [`next`](WatchedListeners::next), for a loop that can close an idle
    /// connection for a new one.
    ///
    /// # Errors
    /// As [`ListenerSet::next_or_full`].
    pub(crate) fn next_or_full<H: Handler>(
        &self,
        index: usize,
        worker: &mut Worker<H>,
    ) -> Result<AcceptOutcome<H>, Box<Served<H>>> {
        self.listener_set.next_or_full(index, worker)
    }

    /// Gives an admitted connection a place, if there is one now.
    pub(crate) fn take_place<H: Handler>(
        &self,
        served: Served<H>,
        worker: &mut Worker<H>,
    ) -> AcceptOutcome<H> {
        self.listener_set.take_place(served, worker)
    }

    /// The number of connections that a loop takes from listener `index` when it was woken for it.
    /// From a shared listener it takes one, and the next turn is another loop's.
    pub(crate) fn turn(&self, index: usize) -> usize {
        if self.is_shared(index) { 1 } else { BATCH }
    }

    /// Ends a turn at listener `index`. The kernel wakes the loop that has watched a shared
    /// listener longest, which would always be the same; so this loop goes to the end.
    pub(crate) fn give_way(&mut self, index: usize, epoll: &Epoll, now_ms: u64) {
        let rests = self.resting.iter().any(|(resting, _)| *resting == index);
        if !self.is_shared(index) || rests {
            return;
        }
        if let Some(listener) = self.listener_set.listener(index)
            && epoll.remove(&listener.socket).is_ok()
            && watch(epoll, index, listener).is_err()
        {
            self.resting.push((index, now_ms + PAUSE_MS));
        }
    }

    /// Stops watching listener `index` for a while, because there are no descriptors for its
    /// connections.
    pub(crate) fn rest(&mut self, index: usize, epoll: &Epoll, now_ms: u64) {
        if self.unwatch(index, epoll) {
            self.resting.push((index, now_ms + PAUSE_MS));
        }
    }

    /// Watches the listeners again that have rested long enough.
    pub(crate) fn resume(&mut self, epoll: &Epoll, now_ms: u64) {
        let listener_set = &self.listener_set;
        self.resting.retain(|&(index, until_ms)| {
            if now_ms < until_ms {
                return true;
            }
            listener_set.take_reserve();
            listener_set.listener(index).is_some_and(|it| watch(epoll, index, it).is_err())
        });
    }

    /// Has the loop no longer woken for listener `index`, although the listener is still open:
    /// other processes may share the socket and keep it open. Returns whether it was watched.
    pub(crate) fn unwatch(&self, index: usize, epoll: &Epoll) -> bool {
        self.listener_set.listener(index).is_some_and(|it| epoll.remove(&it.socket).is_ok())
    }

    /// Closes all listening sockets.
    pub(crate) fn close(&mut self) {
        self.listener_set.close();
        self.resting.clear();
    }

    fn is_shared(&self, index: usize) -> bool {
        self.listener_set.listener(index).is_some_and(|listener| listener.shared)
    }
}

/// Has the loop woken when a connection arrives at listener `index`.
fn watch(epoll: &Epoll, index: usize, listener: &Listener) -> io::Result<()> {
    let token = FIRST_LISTENER + index as u64;
    if listener.shared {
        epoll.add_shared_reader(&listener.socket, token)
    } else {
        epoll.add_reader(&listener.socket, token)
    }
}
