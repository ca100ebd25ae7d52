//! The slots for variants in the kernel. A freed slot is reused only after a while: until then a client whose
//! answer was lost gets the same bytes again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a freed slot is kept from being reused.
const RESTS: Duration = Duration::from_secs(3);

/// The free slots.
#[derive(Debug)]
pub(crate) struct ObjectSlots {
    never: std::ops::Range<u32>,
    /// Freed slots with the time of that, the oldest first.
    free: VecDeque<(Instant, u32)>,
}

impl ObjectSlots {
    pub(crate) fn new(all: u32) -> ObjectSlots {
        ObjectSlots { never: 0..all, free: VecDeque::new() }
    }

    /// Takes `many` slots, or none if fewer are ready.
    pub(crate) fn take(&mut self, many: usize, now: Instant) -> Option<Vec<u32>> {
        let rested = |(since, _): &&(Instant, u32)| now.duration_since(*since) >= RESTS;
        let ready = self.free.iter().take_while(rested).count();
        let new = self.never.len().min(many);
        if new + ready < many {
            return None;
        }
        let mut taken: Vec<u32> = self.never.by_ref().take(new).collect();
        taken.extend(self.free.drain(..many - new).map(|(_, slot)| slot));
        Some(taken)
    }

    pub(crate) fn give_back(&mut self, slot: u32, now: Instant) {
        self.free.push_back((now, slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_rests_before_it_is_given_again() {
        let begin = Instant::now();
        let mut slots = ObjectSlots::new(3);
        assert_eq!(slots.take(2, begin), Some(vec![0, 1]));
        assert_eq!(slots.take(2, begin), None);
        slots.give_back(1, begin);
        assert_eq!(slots.take(2, begin), None);
        assert_eq!(slots.take(2, begin + RESTS), Some(vec![2, 1]));
        slots.give_back(0, begin + RESTS);
        assert_eq!(slots.take(1, begin + RESTS), None);
        assert_eq!(slots.take(1, begin + 2 * RESTS), Some(vec![0]));
    }
}
