//! Clients that take their answers too slowly: when connections, descriptors or threads are short, the slowest is cut,
//! lowest class first.
//!
//! While there is room they have a whole window of sending (`timeouts.send_window`): a receiver whose window opens in
//! lumps confirms nothing for many seconds, and is not slow. Where room is short, a look that finds too little
//! taken is enough (ADR 0074).

use forebay_conn::Rank;
use forebay_sys::socket::SocketNumber;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A connection whose client is slow. The least is cut first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlowReader {
    rank: Reverse<u8>,
    /// Bytes taken since then.
    taken: u64,
    since_ms: u64,
    socket: SocketNumber,
}

impl SlowReader {
    /// One of this rank, that has taken so much since `since_ms`.
    pub(crate) fn new(rank: Rank, taken: u64, since_ms: u64, socket: SocketNumber) -> SlowReader {
        SlowReader { rank: Reverse(rank.0), taken, since_ms, socket }
    }
}

/// The slow ones of all loops and threads.
#[derive(Debug, Default)]
pub(crate) struct SlowReaders(Mutex<BTreeSet<SlowReader>>);

impl SlowReaders {
    fn all(&self) -> MutexGuard<'_, BTreeSet<SlowReader>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are any.
    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// It is slow from now on, until it is [removed](SlowReaders::remove): before its socket is closed.
    pub(crate) fn add(&self, reader: SlowReader) {
        self.all().insert(reader);
    }

    /// It is no longer slow, or ends. `false` if it was cut.
    pub(crate) fn remove(&self, reader: SlowReader) -> bool {
        self.all().remove(&reader)
    }

    /// Cuts the first, if it is not above this rank. Says whether there was one.
    pub(crate) fn cut(&self, rank: Rank) -> bool {
        let mut all = self.all();
        let Some(first) = all.first().copied().filter(|first| first.rank.0 >= rank.0) else {
            return false;
        };
        all.remove(&first);
        // While the list is locked: whoever owns the socket removes it from here before it is closed.
        first.socket.cut();
        true
    }
}
