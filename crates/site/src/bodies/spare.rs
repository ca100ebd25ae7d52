//! Memory of answers that were let go of, for those that come in their place.
//!
//! Where many files are asked for once, each answer needs as much memory as another has just given
//! back. To take it from the allocator each time costs more than all the rest of making an answer, and
//! leaves memory in pieces when one thread takes it and another gives it back.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Smaller pieces are left to the allocator.
const LEAST_BYTES: usize = 16 * 1024;

/// The total size of the buffers that are kept.
const MOST_BYTES: usize = 4 << 20;

/// Pieces of memory that are not used.
#[derive(Debug, Default)]
pub(crate) struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    fn pieces(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        // a panic leaves at worst a piece too few
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty buffer with room for `bytes`, and not much more.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let fits = |piece: &Vec<u8>| (bytes..=bytes + bytes / 4).contains(&piece.capacity());
        if bytes >= LEAST_BYTES {
            let mut pieces = self.pieces();
            if let Some(at) = pieces.iter().rposition(fits) {
                return pieces.swap_remove(at);
            }
        }
        Vec::with_capacity(bytes)
    }

    /// Keeps a buffer that is not needed any more. Those that were kept longest make room for it.
    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if !(LEAST_BYTES..=MOST_BYTES).contains(&bytes) {
            return;
        }
        buffer.clear();
        // goes back to the system when the lock is released
        let mut gone = Vec::new();
        let mut pieces = self.pieces();
        let mut kept: usize = pieces.iter().map(Vec::capacity).sum();
        while kept + bytes > MOST_BYTES {
            let oldest = pieces.remove(0);
            kept -= oldest.capacity();
            gone.push(oldest);
        }
        pieces.push(buffer);
        drop(pieces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_taken_by_who_needs_about_as_much() {
        let spare = Spare::default();
        spare.give(vec![7; 70_000]);
        assert_ne!(spare.take(50_000).capacity(), 70_000, "too little is needed");
        assert!(spare.take(70_001).capacity() > 70_000);
        let taken = spare.take(66_000);
        assert_eq!((taken.len(), taken.capacity()), (0, 70_000));
        assert_ne!(spare.take(66_000).capacity(), 70_000, "it is taken");
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let spare = Spare::default();
        for bytes in [100, 20_000, 300_000, 5 << 20].repeat(50) {
            spare.give(Vec::with_capacity(bytes));
            let kept: usize = spare.pieces().iter().map(Vec::capacity).sum();
            assert!(kept <= MOST_BYTES);
        }
        (0..50).for_each(|_| spare.give(Vec::with_capacity(500_000)));
        assert_eq!(spare.take(500_000).capacity(), 500_000, "the latest are kept");
    }
}
