//! The most frequent names in the last minute, ten minutes and hour.

use forebay_metrics::top::{TopCount, TopKind, TopTables};
use std::collections::VecDeque;

/// The minutes of each window, and the seconds of one of its slots. All windows together have at
/// most 30 tables of each kind: 9 MB at most, and a tenth of that if no name is as long as 96 bytes.
const WINDOWS: [(u64, u64); 3] = [(1, 10), (10, 60), (60, 360)];

/// The tables of all windows.
#[derive(Debug)]
pub(super) struct TopWindows([TopWindow; WINDOWS.len()]);

#[derive(Debug)]
struct TopWindow {
    minutes: u64,
    slot_s: u64,
    /// The complete slots, the oldest first.
    slots: VecDeque<TopTables>,
    /// The current slot.
    current: TopTables,
    /// The number of the current slot: the time divided by the length of a slot.
    number: u64,
}

impl Default for TopWindows {
    fn default() -> TopWindows {
        TopWindows(WINDOWS.map(|(minutes, slot_s)| TopWindow {
            minutes,
            slot_s,
            slots: VecDeque::new(),
            current: TopTables::default(),
            number: 0,
        }))
    }
}

impl TopWindows {
    /// Adds what was counted since the last call, up to `unix_s`.
    pub(super) fn add(&mut self, unix_s: u64, fresh: &TopTables) {
        self.0.iter_mut().for_each(|window| window.add(unix_s, fresh));
    }

    /// The largest counts of the window with this many minutes, or the next longer one.
    pub(super) fn largest(&self, minutes: u64, most: usize) -> Vec<(TopKind, Vec<TopCount>)> {
        let longest = &self.0[WINDOWS.len() - 1];
        let window = self.0.iter().find(|one| one.minutes >= minutes).unwrap_or(longest);
        let mut all = TopTables::default();
        window.slots.iter().chain([&window.current]).for_each(|slot| all.merge(slot));
        TopKind::ALL.map(|kind| (kind, all.largest(kind, most))).into()
    }
}

impl TopWindow {
    fn add(&mut self, unix_s: u64, fresh: &TopTables) {
        let number = unix_s / self.slot_s;
        let most = (self.minutes * 60 / self.slot_s) as usize - 1;
        // a clock that was set back ends a slot, too
        if number != self.number {
            let passed = number.saturating_sub(self.number).clamp(1, most as u64 + 1);
            for _ in 0..passed {
                self.slots.push_back(std::mem::take(&mut self.current));
                if self.slots.len() > most {
                    self.slots.pop_front();
                }
            }
            self.number = number;
        }
        self.current.merge(fresh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_metrics::top::SeenAs;
    use std::hash::RandomState;

    #[test]
    fn a_window_forgets_what_is_older() {
        let (mut windows, keys) = (TopWindows::default(), RandomState::new());
        for (unix_s, name) in [(1_000_000, "early"), (1_000_300, "later"), (1_000_330, "last")] {
            let mut fresh = TopTables::default();
            fresh.add(&keys, TopKind::Path, name.as_bytes(), SeenAs::Refused);
            windows.add(unix_s, &fresh);
        }
        let names = |minutes: u64| {
            let all = windows.largest(minutes, 9);
            let (_, paths) = all.into_iter().find(|(kind, _)| *kind == TopKind::Path).unwrap();
            paths.into_iter().map(|one| String::from_utf8(one.name).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(names(1), ["last", "later"]);
        assert_eq!(names(10), ["early", "last", "later"]);
        assert_eq!(names(99), names(60));
        windows.add(1_000_330 + 7200, &TopTables::default());
        let after: usize = windows.largest(60, 9).iter().map(|(_, found)| found.len()).sum();
        assert_eq!(after, 0);
    }
}
