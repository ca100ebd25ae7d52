//! A hashed timer wheel: tokens by the time at which they are looked at. Its entries are lazy.
//!
//! A deadline that moves later costs nothing: the entry stays where it is, and when its slot comes
//! round the owner looks at the real deadline and inserts it again.

use std::ops::RangeInclusive;

/// Milliseconds per slot; the most by which a deadline is met late.
pub(crate) const SLOT_MS: u64 = 128;
const SLOTS: u64 = 1024;

/// Milliseconds per slot for deadlines that are met more exactly.
pub(crate) const NEAR_SLOT_MS: u64 = 8;
/// The number of near slots, one bit of `near_used` each.
const NEAR_SLOTS: u64 = 64;

/// Tokens by the time at which they are looked at.
#[derive(Debug)]
pub(crate) struct Wheel {
    slots: Vec<Vec<u64>>,
    entries: usize,
    /// The tokens that are looked at soon, and more exactly.
    near: Vec<Vec<u64>>,
    /// The near slots that have entries, one bit each.
    near_used: u64,
    /// The time up to which the wheel has been looked through.
    passed_ms: u64,
}

impl Wheel {
    /// An empty wheel.
    pub(crate) fn new(now_ms: u64) -> Wheel {
        let slots = |count| vec![Vec::new(); count as usize];
        let (slots, near) = (slots(SLOTS), slots(NEAR_SLOTS));
        Wheel { slots, entries: 0, near, near_used: 0, passed_ms: now_ms }
    }

    /// Has `token` looked at when `at_ms` is over, or earlier if that is very far away. Returns the
    /// time of the look.
    pub(crate) fn insert(&mut self, at_ms: u64, token: u64) -> u64 {
        self.insert_at(at_ms / SLOT_MS + 1, token)
    }

    fn insert_at(&mut self, slot: u64, token: u64) -> u64 {
        let passed = self.passed_ms / SLOT_MS;
        let slot = slot.clamp(passed + 1, passed + SLOTS - 1);
        self.slots[(slot % SLOTS) as usize].push(token);
        self.entries += 1;
        slot * SLOT_MS
    }

    /// Has `token` looked at when `at_ms` is over, hardly later; or earlier if that is not near.
    pub(crate) fn insert_exactly(&mut self, at_ms: u64, token: u64) -> u64 {
        let passed = self.passed_ms / NEAR_SLOT_MS;
        let slot = (at_ms / NEAR_SLOT_MS + 1).max(passed + 1);
        if slot >= passed + NEAR_SLOTS {
            return self.insert_at(at_ms / SLOT_MS, token);
        }
        self.near[(slot % NEAR_SLOTS) as usize].push(token);
        self.near_used |= 1 << (slot % NEAR_SLOTS);
        slot * NEAR_SLOT_MS
    }

    /// Whether this time is over, as far as the wheel has been looked through.
    pub(crate) fn has_passed(&self, at_ms: u64) -> bool {
        at_ms <= self.passed_ms
    }

    /// Moves the tokens whose time has come to `due`.
    pub(crate) fn advance(&mut self, now_ms: u64, due: &mut Vec<u64>) {
        let before_ms = self.passed_ms;
        self.passed_ms = before_ms.max(now_ms);
        if self.near_used != 0 {
            for slot in slots_between(before_ms, now_ms, NEAR_SLOT_MS, NEAR_SLOTS) {
                self.near_used &= !(1 << (slot % NEAR_SLOTS));
                take_all(&mut self.near[(slot % NEAR_SLOTS) as usize], due);
            }
        }
        if self.entries > 0 {
            for slot in slots_between(before_ms, now_ms, SLOT_MS, SLOTS) {
                let tokens = &mut self.slots[(slot % SLOTS) as usize];
                self.entries -= tokens.len();
                take_all(tokens, due);
            }
        }
    }

    /// The longest sleep before [`advance`](Wheel::advance) has something to do.
    pub(crate) fn sleep_ms(&self, now_ms: u64, most_ms: u64) -> u64 {
        if most_ms == 0 {
            // a fiber's own time has come already; the least sleep does not apply
            return 0;
        }
        let most_ms = match self.near_used {
            0 => most_ms,
            used => {
                // the next slot becomes bit 0
                let next = self.passed_ms / NEAR_SLOT_MS + 1;
                let ahead = used.rotate_right((next % NEAR_SLOTS) as u32).trailing_zeros();
                let at_ms = (next + u64::from(ahead)) * NEAR_SLOT_MS;
                at_ms.saturating_sub(now_ms).clamp(1, most_ms)
            }
        };
        if self.entries == 0 {
            return most_ms;
        }
        let occupied = |slot: &u64| !self.slots[(slot % SLOTS) as usize].is_empty();
        let (passed, ahead) = (self.passed_ms / SLOT_MS, most_ms / SLOT_MS + 1);
        match (passed + 1..=passed + ahead).find(occupied) {
            Some(slot) => (slot * SLOT_MS).saturating_sub(now_ms).clamp(1, most_ms),
            None => most_ms,
        }
    }
}

/// The slots whose time has come since `before_ms`: at most one round, however long that was.
fn slots_between(before_ms: u64, now_ms: u64, slot_ms: u64, slots: u64) -> RangeInclusive<u64> {
    let current = now_ms / slot_ms;
    (before_ms / slot_ms + 1).max(current.saturating_sub(slots - 1))..=current
}

fn take_all(tokens: &mut Vec<u64>, due: &mut Vec<u64>) {
    due.append(tokens);
    if tokens.capacity() > 64 {
        *tokens = Vec::new();
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
    fn what_is_to_be_met_exactly_is_met_soon() {
        let mut wheel = Wheel::new(1_003);
        let mut at: Vec<u64> = (0..600).map(|step| 1_000 + step * 7 % 2_000).collect();
        for (token, at_ms) in (0..).zip(&at) {
            wheel.insert_exactly(*at_ms, token);
        }
        let (mut now_ms, mut due) = (1_003, Vec::new());
        while at.iter().any(|at_ms| *at_ms > 0) {
            let sleep_ms = wheel.sleep_ms(now_ms, 500);
            now_ms += sleep_ms;
            wheel.advance(now_ms, &mut due);
            assert!(!due.is_empty() || sleep_ms == 500, "{now_ms}");
            for token in due.drain(..) {
                match at[token as usize] {
                    0 => panic!("{token} came twice"),
                    at_ms if at_ms < now_ms => {
                        assert!(now_ms <= at_ms.max(1_003) + NEAR_SLOT_MS, "{token} came late");
                        at[token as usize] = 0;
                    }
                    at_ms => _ = wheel.insert_exactly(at_ms, token),
                }
            }
        }
        assert_eq!(wheel.sleep_ms(now_ms, 500), 500);
    }

    #[test]
    fn no_sleep_is_asked_for_beside_tokens_that_are_due() {
        let mut wheel = Wheel::new(1_000);
        wheel.insert_exactly(1_001, 1);
        wheel.insert(9_000, 2);
        assert_eq!(wheel.sleep_ms(1_000, 0), 0);
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
