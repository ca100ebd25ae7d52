//! A heap of timers: the times at which a loop must look at clients.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The times at which clients must be looked at.
///
/// An entry is not removed when a client's plans change: the client keeps the time it waits for,
/// and an entry with another time is skipped.
#[derive(Debug, Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<(u64, u32)>>);

impl Timers {
    pub(crate) fn add(&mut self, at_ns: u64, slot: u32) {
        self.0.push(Reverse((at_ns, slot)));
    }

    /// The earliest time.
    #[inline]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.0.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// The earliest entry, if it is due.
    #[inline]
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.0.pop().map(|Reverse(entry)| entry)
    }
}
