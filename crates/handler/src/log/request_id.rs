//! The identifier of a request: 128 bits, made here or by a trusted proxy.

use std::hash::{BuildHasher, RandomState};

/// Makes identifiers: a sequence that starts anywhere, different for each loop and each start.
///
/// Two identifiers of one loop are never the same. They look random, and are not secret.
#[derive(Clone, Debug)]
pub struct RequestIds {
    next: u64,
    key: u64,
}

impl Default for RequestIds {
    fn default() -> RequestIds {
        // keyed by random numbers of the operating system
        let random = RandomState::new();
        RequestIds { next: random.hash_one(0), key: random.hash_one(1) }
    }
}

impl RequestIds {
    /// The next identifier, as a number.
    #[inline]
    pub fn number(&mut self) -> u128 {
        // 2⁶⁴ divided by the golden ratio: neighbours in the sequence are far apart
        self.next = self.next.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let first = mixed(self.next);
        let second = mixed(first ^ self.key);
        u128::from(first) << 64 | u128::from(second)
    }
}

/// An identifier in text: 32 hexadecimal digits.
#[inline]
pub fn text(number: u128) -> [u8; 32] {
    let mut text = [0; 32];
    for (digits, byte) in text.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        digits.copy_from_slice(&super::text::hex(byte));
    }
    text
}

/// Maps each number to another one that looks unrelated (the finaliser of SplitMix64).
#[inline]
pub(super) fn mixed(mut number: u64) -> u64 {
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_differ() {
        let mut loops: Vec<_> = (0..4).map(|_| RequestIds::default()).collect();
        let make = |number: usize| text(loops[number % 4].number());
        let names: HashSet<_> = (0..40_000).map(make).collect();
        assert_eq!(names.len(), 40_000);
        assert!(names.iter().flatten().all(|byte| b"0123456789abcdef".contains(byte)));
        // each digit position has all 16 digits
        let digits: HashSet<_> = names.iter().flat_map(|n| n.iter().enumerate()).collect();
        assert_eq!(digits.len(), 32 * 16);
    }
}
