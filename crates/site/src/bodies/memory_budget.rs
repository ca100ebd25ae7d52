//! The budget of bytes of files that are in memory as bodies of answers.
//!
//! The cache bounds what it holds. But an answer lives on when it is evicted, or is never kept: in the
//! result of a job, with a client that takes it slowly, in a loop's own table. Thousands of clients that
//! ask for as many files would have as many bodies in memory at once. So each body that is read from a
//! file takes memory of the budget first, and gives it back when the last reference goes. Where there is
//! none left, the file is sent from the disk: no request waits for memory, so none can keep others
//! waiting.
//!
//! Only a job that reads files counts here, and the drop of the last reference; a hit does neither.

use crate::bodies::spare::Spare;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The memory for all bodies.
#[derive(Debug)]
pub(crate) struct MemoryBudget(Arc<BudgetUse>);

#[derive(Debug)]
struct BudgetUse {
    most_bytes: u64,
    bytes: AtomicU64,
    refused: AtomicU64,
    spare: Spare,
}

/// A reservation for one body, which is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryReservation {
    count: Arc<BudgetUse>,
    bytes: u64,
}

impl MemoryBudget {
    /// Creates a budget of `most_bytes` in all.
    pub(crate) fn new(most_bytes: u64) -> MemoryBudget {
        let (bytes, refused, spare) = (AtomicU64::new(0), AtomicU64::new(0), Spare::default());
        MemoryBudget(Arc::new(BudgetUse { most_bytes, bytes, refused, spare }))
    }

    /// Reserves memory for a body; `None` if less is left.
    pub(crate) fn take(&self, bytes: u64) -> Option<MemoryReservation> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.0.most_bytes);
        if self.0.bytes.fetch_update(Relaxed, Relaxed, more).is_err() {
            self.0.refused.fetch_add(1, Relaxed);
            return None;
        }
        Some(MemoryReservation { count: Arc::clone(&self.0), bytes })
    }

    /// Memory of bodies that are gone.
    pub(crate) fn spare(&self) -> &Spare {
        &self.0.spare
    }

    /// Bytes taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.load(Relaxed)
    }

    /// The number of reservations for which not enough was left.
    pub(crate) fn refused(&self) -> u64 {
        self.0.refused.load(Relaxed)
    }
}

impl MemoryReservation {
    /// Keeps the memory of a body that is gone, for another one.
    pub(crate) fn vacate(&self, memory: Vec<u8>) {
        self.count.spare.give(memory);
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.count.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back() {
        let memory_budget = MemoryBudget::new(100);
        let (first, second) = (memory_budget.take(60), memory_budget.take(40));
        assert!(first.is_some() && second.is_some());
        assert!(memory_budget.take(1).is_none() && memory_budget.take(u64::MAX).is_none());
        assert_eq!((memory_budget.bytes(), memory_budget.refused()), (100, 2));
        drop(first);
        assert!(memory_budget.take(61).is_none());
        assert_eq!(memory_budget.take(60).map(|reservation| reservation.bytes), Some(60));
        drop(second);
        assert_eq!((memory_budget.bytes(), memory_budget.refused()), (0, 3));
    }
}
