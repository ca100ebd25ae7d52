//! Lanes: work of one lane is done one after another (ADR 0005), so that a file whose read hangs
//! holds one thread, not all of them.

use std::collections::{HashMap, VecDeque};

/// Tasks of one lane that may wait. Their connections may be gone long before a file that hangs lets
/// go of them.
const MOST_WAITING: usize = 16 * 1024;

/// Lanes with a task under way, and what waits behind it.
#[derive(Debug)]
pub struct Lanes<T>(HashMap<u64, VecDeque<T>>);

/// What becomes of a task that comes to its lane.
#[derive(Debug, PartialEq, Eq)]
pub enum LaneEntry<T> {
    /// The lane is free, and now this task's until [`Lanes::leave`].
    Free(T),
    /// It waits for those before it.
    Waits,
    /// Too many wait already; the task is dropped.
    Full,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Lanes(HashMap::new())
    }
}

impl<T> Lanes<T> {
    /// `task` comes to its lane.
    pub fn enter(&mut self, lane: u64, task: T) -> LaneEntry<T> {
        match self.0.get_mut(&lane) {
            None => {
                self.0.insert(lane, VecDeque::new());
                LaneEntry::Free(task)
            }
            Some(waiting) if waiting.len() < MOST_WAITING => {
                waiting.push_back(task);
                LaneEntry::Waits
            }
            Some(_) => LaneEntry::Full,
        }
    }

    /// The task under way has ended. The next one of its lane, if one waits, is under way now.
    pub fn leave(&mut self, lane: u64) -> Option<T> {
        let next = self.0.get_mut(&lane).and_then(VecDeque::pop_front);
        if next.is_none() {
            self.0.remove(&lane);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_free_again_when_the_last_has_left() {
        let mut lanes = Lanes::default();
        assert_eq!(lanes.enter(1, 'a'), LaneEntry::Free('a'));
        assert_eq!(lanes.enter(2, 'b'), LaneEntry::Free('b'));
        assert_eq!(lanes.enter(1, 'c'), LaneEntry::Waits);
        assert_eq!(lanes.leave(1), Some('c'));
        assert_eq!(lanes.leave(1), None);
        assert_eq!(lanes.enter(1, 'd'), LaneEntry::Free('d'));
    }

    #[test]
    fn a_lane_takes_only_so_many() {
        let mut lanes = Lanes::default();
        for task in 0..=MOST_WAITING {
            assert_ne!(lanes.enter(7, task), LaneEntry::Full);
        }
        assert_eq!(lanes.enter(7, 0), LaneEntry::Full);
        assert_eq!(lanes.leave(7), Some(1));
        assert_eq!(lanes.enter(7, 0), LaneEntry::Waits);
    }
}
