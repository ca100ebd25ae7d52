//! A spare buffer for answers, kept by each thread from one exchange to the next. An answer takes
//! milliseconds, and an exchange that waits for one needs no buffer.

use super::answer::RECEIVE_BYTES;
use std::cell::Cell;
use std::mem;

thread_local! {
    /// The spare buffer, cleared; empty while an exchange has it.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Gives the spare buffer to an exchange whose buffer has no capacity.
pub(super) fn furnish(buffer: &mut Vec<u8>) {
    if buffer.capacity() == 0 {
        *buffer = SPARE.try_with(Cell::take).unwrap_or_default();
    }
}

/// Takes an exchange's buffer as the thread's spare, unless it has become too large.
pub(super) fn leave(buffer: &mut Vec<u8>) {
    let mut room = mem::take(buffer);
    if (1..=2 * RECEIVE_BYTES).contains(&room.capacity()) {
        room.clear();
        // a thread that is about to end keeps none
        let _ = SPARE.try_with(|spare| spare.set(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_goes_from_one_to_the_next_and_nothing_else_does() {
        let mut first = Vec::with_capacity(RECEIVE_BYTES);
        first.extend_from_slice(b"of one client");
        leave(&mut first);
        assert_eq!(first.capacity(), 0);
        let (mut second, mut third) = (Vec::new(), Vec::new());
        furnish(&mut second);
        assert_eq!((second.len(), second.capacity()), (0, RECEIVE_BYTES));
        furnish(&mut third);
        assert_eq!(third.capacity(), 0, "one has it");
        leave(&mut third);
        let mut large = Vec::with_capacity(2 * RECEIVE_BYTES + 1);
        leave(&mut large);
        furnish(&mut third);
        assert_eq!(third.capacity(), 0, "nothing was left");
    }
}
