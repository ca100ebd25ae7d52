//! Sets that lie inside one another or apart, and which of them hold a value: prefixes of paths and
//! of addresses.
//!
//! Sorted, a set stands before those inside it. The last set that is not behind a value is then the
//! innermost that can hold it, and all others that can are around that one.

/// A set, ordered so that it stands before the sets inside it.
pub(crate) trait Set: Ord {
    /// What it holds.
    type Value: ?Sized;
    /// Whether it stands behind all sets that hold this value.
    fn is_behind(&self, value: &Self::Value) -> bool;
    fn holds(&self, value: &Self::Value) -> bool;
    /// Whether all of `inner` is in it.
    fn surrounds(&self, inner: &Self) -> bool;
}

/// All texts that begin with this one.
impl Set for Box<[u8]> {
    type Value = [u8];
    #[inline]
    fn is_behind(&self, value: &[u8]) -> bool {
        **self > *value
    }
    #[inline]
    fn holds(&self, value: &[u8]) -> bool {
        value.starts_with(self)
    }
    fn surrounds(&self, inner: &Self) -> bool {
        inner.starts_with(self)
    }
}

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Network {
    pub(crate) bits: u128,
    pub(crate) len: u8,
}

impl Network {
    /// The bits that count.
    #[inline]
    pub(crate) fn mask(len: u8) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
    }
}

impl Set for Network {
    type Value = u128;
    #[inline]
    fn is_behind(&self, value: &u128) -> bool {
        self.bits > *value
    }
    #[inline]
    fn holds(&self, value: &u128) -> bool {
        value & Network::mask(self.len) == self.bits
    }
    fn surrounds(&self, inner: &Self) -> bool {
        self.len <= inner.len && self.holds(&inner.bits)
    }
}

/// Sets, and what is kept for each.
#[derive(Clone, Debug)]
pub(crate) struct Nested<S, V> {
    sets: Box<[S]>,
    /// The innermost set around each, or [`NONE`].
    around: Box<[u32]>,
    values: Box<[V]>,
}

const NONE: u32 = u32::MAX;

impl<S, V> Default for Nested<S, V> {
    fn default() -> Nested<S, V> {
        Nested { sets: Box::default(), around: Box::default(), values: Box::default() }
    }
}

impl<S: Set, V> Nested<S, V> {
    /// No set may be there twice.
    pub(crate) fn new(mut pairs: Vec<(S, V)>) -> Nested<S, V> {
        pairs.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let (sets, values): (Vec<S>, Vec<V>) = pairs.into_iter().unzip();
        let mut around = Vec::with_capacity(sets.len());
        let mut open: Vec<u32> = Vec::new();
        for (number, set) in (0..).zip(&sets) {
            while open.last().is_some_and(|outer| !sets[*outer as usize].surrounds(set)) {
                open.pop();
            }
            around.push(open.last().copied().unwrap_or(NONE));
            open.push(number);
        }
        Nested { sets: sets.into(), around: around.into(), values: values.into() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// What is kept for the sets that hold `value`, the innermost first.
    #[inline]
    pub(crate) fn holding<'n>(&'n self, value: &'n S::Value) -> impl Iterator<Item = &'n V> {
        let after = self.sets.partition_point(|set| !set.is_behind(value));
        let mut next = (after as u32).wrapping_sub(1);
        // the sets around one that holds the value hold it, too
        while self.sets.get(next as usize).is_some_and(|set| !set.holds(value)) {
            next = self.around[next as usize];
        }
        std::iter::from_fn(move || {
            let kept = self.values.get(next as usize)?;
            next = self.around[next as usize];
            Some(kept)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn all_prefixes_of_a_text_are_found(sets: BTreeSet<Vec<u8>>, texts: Vec<Vec<u8>>) {
            // two letters, so that there are many prefixes
            let narrow = |text: &Vec<u8>| text.iter().map(|byte| byte & 1).collect::<Box<[u8]>>();
            let sets: BTreeSet<Box<[u8]>> = sets.iter().map(narrow).collect();
            let nested = Nested::new(sets.iter().cloned().map(|set| (set.clone(), set)).collect());
            for text in texts.iter().map(narrow).chain(sets.iter().cloned()) {
                let mut found: Vec<_> = nested.holding(&text).cloned().collect();
                found.reverse();
                let expected: Vec<_> =
                    sets.iter().filter(|set| text.starts_with(set)).cloned().collect();
                prop_assert_eq!(found, expected);
            }
        }

        #[test]
        fn all_networks_of_an_address_are_found(
            sets in prop::collection::btree_set((any::<u128>(), 0u8..12), 0..40),
            others: Vec<u128>,
        ) {
            let network = |(bits, len): &(u128, u8)| {
                Network { bits: bits & Network::mask(*len), len: *len }
            };
            let sets: BTreeSet<Network> = sets.iter().map(network).collect();
            let nested = Nested::new(sets.iter().map(|set| (*set, *set)).collect());
            let ends = sets.iter().flat_map(|set| [set.bits, set.bits | !Network::mask(set.len)]);
            for address in ends.chain(others) {
                let mut found: Vec<_> = nested.holding(&address).copied().collect();
                found.reverse();
                let expected: Vec<_> =
                    sets.iter().filter(|set| set.holds(&address)).copied().collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
