//! Clients that take their answers too slowly. When connections, descriptors or threads are short,
//! the slowest is cut, lowest class first.
//!
//! While there is room they have a whole window of sending (`timeouts.send_window`): a receiver
//! whose window opens in lumps acknowledges nothing for many seconds, and is not slow. Where room
//! is short, one look that finds too little taken is enough (ADR 0074).

use forebay_conn::Rank;
use forebay_sys::socket::SocketNumber;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A connection whose client is slow. The least in this order is cut first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlowReader {
    rank: Reverse<u8>,
    /// Bytes taken since `since_ms`.
    taken: u64,
    since_ms: u64,
    socket: SocketNumber,
}

impl SlowReader {
    /// A slow reader of this rank that has taken `taken` bytes since `since_ms`.
    pub(crate) fn new(rank: Rank, taken: u64, since_ms: u64, socket: SocketNumber) -> SlowReader {
        SlowReader { rank: Reverse(rank.0), taken, since_ms, socket }
    }
}

/// The slow readers of all loops and threads.
#[derive(Debug, Default)]
pub(crate) struct SlowReaders(Mutex<BTreeSet<SlowReader>>);

impl SlowReaders {
    fn all(&self) -> MutexGuard<'_, BTreeSet<SlowReader>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are no slow readers.
    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Adds this reader, until it is [removed](SlowReaders::remove), which is before its socket is
    /// closed.
    pub(crate) fn add(&self, reader: SlowReader) {
        self.all().insert(reader);
    }

    /// Removes this reader, which is no longer slow, or ends. Returns `false` if it was cut.
    pub(crate) fn remove(&self, reader: SlowReader) -> bool {
        self.all().remove(&reader)
    }

    /// Cuts the first reader, if it is not above this rank. Returns whether there was one.
    pub(crate) fn cut(&self, rank: Rank) -> bool {
        let mut all = self.all();
        let Some(first) = all.first().copied().filter(|first| first.rank.0 >= rank.0) else {
            return false;
        };
        all.remove(&first);
        // under the lock: the socket's owner removes it from here before it closes it, so the
        // number is still its own
        first.socket.cut();
        true
    }
}
