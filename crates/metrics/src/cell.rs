//! A number that one thread writes and any thread may read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Adds `n`. A plain load and store: exact as long as one thread writes.
#[inline]
pub(crate) fn bump(cell: &AtomicU64, n: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
}
