//! Connections that give way: where a limit on connections is reached, one of the lowest class is
//! cut for one of a higher class (ADR 0081).
//!
//! A connection of the first class never gives way, and one class alone keeps no list. The thread
//! that needs the place shuts the other connection's socket down, as it does with [slow
//! readers](crate::room::slow_readers), and the thread that owns the socket finds it broken. A
//! connection is taken off the list before its socket is closed, so that its number is never
//! another's.

use crate::room::slow_readers::{SlowReader, SlowReaders};
use forebay_conn::Rank;
use forebay_sys::socket::SocketNumber;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// What other threads may know of a connection while a thread or loop has it.
#[derive(Debug)]
pub(crate) struct Standing {
    rank: AtomicU8,
    is_idle: AtomicBool,
}

impl Standing {
    pub(crate) fn new(rank: Rank, is_idle: bool) -> Standing {
        Standing { rank: AtomicU8::new(rank.0), is_idle: AtomicBool::new(is_idle) }
    }

    /// Notes the outcome of a turn. While several requests are under way, the rank is that of the
    /// highest of their classes.
    #[inline]
    pub(crate) fn note(&self, rank: Rank, is_idle: bool) {
        let was_busy = !self.is_idle.load(Relaxed);
        let is_lowered = was_busy && !is_idle && rank.0 > self.rank.load(Relaxed);
        if !is_lowered {
            self.rank.store(rank.0, Relaxed);
        }
        self.is_idle.store(is_idle, Relaxed);
    }

    /// The order of giving way: the lowest class first, and within a class the idle ones.
    fn yields(&self) -> (u8, bool) {
        (self.rank.load(Relaxed), self.is_idle.load(Relaxed))
    }
}

/// A connection that gives way.
#[derive(Debug)]
pub(crate) struct Yielding {
    pub(crate) standing: Arc<Standing>,
    pub(crate) socket: SocketNumber,
    /// The connection counts among those of its client.
    pub(crate) is_counted: bool,
    /// The connection's entry among the slow readers.
    pub(crate) slow: Option<SlowReader>,
}

/// The connections of a client.
#[derive(Debug, Default)]
pub(crate) struct ClientPlaces {
    /// The number of connections that are counted for the client.
    pub(crate) count: usize,
    /// The connections that give way.
    pub(crate) yielding: Vec<Yielding>,
}

/// The outcome of looking for a connection to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutOutcome {
    /// No connection was cut, as all are of this class or a higher one.
    None,
    /// A connection was cut.
    Cut,
    /// A connection had already been cut as a slow reader, and only the client's count did not know
    /// yet that its place is free.
    WasCut,
}

impl ClientPlaces {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && self.yielding.is_empty()
    }

    /// The connection that would give way first to one of this rank; with `only_counted`, only
    /// among those that are counted for the client.
    pub(crate) fn first(&self, above: Rank, only_counted: bool) -> Option<(usize, (u8, bool))> {
        let all = self.yielding.iter().enumerate();
        let all = all.filter(|(_, one)| one.is_counted || !only_counted);
        let all = all.map(|(at, one)| (at, one.standing.yields()));
        // of several the one that came last, as far as that is known
        all.filter(|(_, (rank, _))| *rank > above.0).max_by_key(|(_, yields)| *yields)
    }

    /// Cuts the connection that gives way first.
    pub(crate) fn cut(
        &mut self,
        above: Rank,
        only_counted: bool,
        slow_readers: &SlowReaders,
    ) -> CutOutcome {
        let Some((at, _)) = self.first(above, only_counted) else { return CutOutcome::None };
        let one = self.yielding.swap_remove(at);
        if one.is_counted {
            self.count -= 1;
        }
        if one.slow.is_some_and(|reader| !slow_readers.remove(reader)) {
            return CutOutcome::WasCut;
        }
        // under the lock: the socket's owner removes it from here before it closes it, so the
        // number is still its own
        one.socket.cut();
        CutOutcome::Cut
    }

    /// The entry of this connection.
    pub(crate) fn position(&self, standing: &Arc<Standing>) -> Option<usize> {
        self.yielding.iter().position(|one| Arc::ptr_eq(&one.standing, standing))
    }
}
