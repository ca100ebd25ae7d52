//! Deadlines of thousands of connections: a hashed wheel of lazy entries.
//!
//! A deadline that moves later costs nothing: the entry stays where it is, and when its slot comes
//! round the owner looks at the real deadline and inserts it again.

/// Milliseconds per slot; deadlines are met this much late at most.
pub const SLOT_MS: u64 = 128;
const SLOTS: u64 = 1024;

/// Tokens by the time they are to be looked at.
#[derive(Debug)]
pub struct Wheel {
    slots: Vec<Vec<u64>>,
    /// The slot number that has been looked at last, not wrapped round.
    passed: u64,
    entries: usize,
}

impl Wheel {
    /// An empty wheel.
    pub fn new(now_ms: u64) -> Wheel {
        Wheel { slots: vec![Vec::new(); SLOTS as usize], passed: now_ms / SLOT_MS, entries: 0 }
    }

    /// Has `token` looked at when `at_ms` is over, or earlier if that is very far away. Returns
    /// when.
    pub fn insert(&mut self, at_ms: u64, token: u64) -> u64 {
        let slot = (at_ms / SLOT_MS + 1).clamp(self.passed + 1, self.passed + SLOTS - 1);
        self.slots[(slot % SLOTS) as usize].push(token);
        self.entries += 1;
        slot * SLOT_MS
    }

    /// Moves the tokens whose time has come to `due`.
    pub fn advance(&mut self, now_ms: u64, due: &mut Vec<u64>) {
        let current = now_ms / SLOT_MS;
        if self.entries == 0 {
            self.passed = self.passed.max(current);
            return;
        }
        // at most once round, however long the loop was away
        let first = (self.passed + 1).max(current.saturating_sub(SLOTS - 1));
        for slot in first..=current {
            let tokens = &mut self.slots[(slot % SLOTS) as usize];
            self.entries -= tokens.len();
            due.append(tokens);
            if tokens.capacity() > 64 {
                *tokens = Vec::new();
            }
        }
        self.passed = self.passed.max(current);
    }

    /// How long to sleep at most before [`advance`](Wheel::advance) has something to do.
    pub fn sleep_ms(&self, now_ms: u64, most_ms: u64) -> u64 {
        if self.entries == 0 {
            return most_ms;
        }
        let occupied = |slot: &u64| !self.slots[(slot % SLOTS) as usize].is_empty();
        let ahead = most_ms / SLOT_MS + 1;
        match (self.passed + 1..=self.passed + ahead).find(occupied) {
            Some(slot) => (slot * SLOT_MS).saturating_sub(now_ms).clamp(1, most_ms),
            None => most_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_comes_due_once_and_not_early() {
        let mut wheel = Wheel::new(1_000);
        let mut expected: Vec<(u64, u64)> = (0..2_000)
            .map(|token| (wheel.insert(1_000 + token * 37 % 90_000, token), token))
            .collect();
        let mut seen = Vec::new();
        for now in (1_000..140_000).step_by(50) {
            let mut due = Vec::new();
            wheel.advance(now, &mut due);
            for token in due {
                assert!(now > 1_000 + token * 37 % 90_000, "token {token} came early");
                seen.push(token);
            }
        }
        expected.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, (0..2_000).collect::<Vec<_>>());
        assert_eq!(wheel.sleep_ms(140_000, 1_000), 1_000);
    }

    #[test]
    fn a_long_absence_loses_nothing() {
        let mut wheel = Wheel::new(0);
        for token in 0..100 {
            wheel.insert(token * 1_000, token);
        }
        let mut due = Vec::new();
        wheel.advance(10_000_000, &mut due);
        assert_eq!(due.len(), 100);
    }
}
