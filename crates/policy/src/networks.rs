//! Values by network. Two networks are either nested or disjoint.
//!
//! In sorted order a network stands before those inside it. The last network that begins at or
//! before an address is therefore the innermost that can contain it, and all others that can are
//! around that one.

use forebay_http::cidr::mask;

/// The first bits that a network's addresses have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NetworkPrefix {
    pub(crate) bits: u128,
    pub(crate) len: u8,
}

impl NetworkPrefix {
    #[inline]
    pub(crate) fn holds(self, address: u128) -> bool {
        address & mask(self.len) == self.bits
    }

    fn surrounds(self, inner: NetworkPrefix) -> bool {
        self.len <= inner.len && self.holds(inner.bits)
    }
}

/// Networks, and the value kept for each.
#[derive(Clone, Debug)]
pub(crate) struct Networks<V> {
    /// The first address of each network.
    begins: Box<[u128]>,
    lens: Box<[u8]>,
    /// The index of the innermost network around each, or [`NONE`].
    around: Box<[u32]>,
    values: Box<[V]>,
}

const NONE: u32 = u32::MAX;

impl<V> Default for Networks<V> {
    fn default() -> Networks<V> {
        Networks::new(Vec::new())
    }
}

impl<V> Networks<V> {
    /// Sorts the networks. None may be there twice.
    pub(crate) fn new(mut pairs: Vec<(NetworkPrefix, V)>) -> Networks<V> {
        pairs.sort_unstable_by_key(|(network, _)| *network);
        let (networks, values): (Vec<NetworkPrefix>, Vec<V>) = pairs.into_iter().unzip();
        let mut around = Vec::with_capacity(networks.len());
        let mut open: Vec<u32> = Vec::new();
        for (number, network) in (0..).zip(&networks) {
            while open.pop_if(|outer| !networks[*outer as usize].surrounds(*network)).is_some() {}
            around.push(open.last().copied().unwrap_or(NONE));
            open.push(number);
        }
        Networks {
            begins: networks.iter().map(|network| network.bits).collect(),
            lens: networks.iter().map(|network| network.len).collect(),
            around: around.into(),
            values: values.into(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Calls `show` with the value of each network that contains `address`, the innermost first.
    #[inline]
    pub(crate) fn holding(&self, address: u128, mut show: impl FnMut(&V)) {
        let after = self.begins.partition_point(|begin| *begin <= address);
        let mut next = after.wrapping_sub(1);
        while let (Some(bits), Some(len)) = (self.begins.get(next), self.lens.get(next)) {
            if (NetworkPrefix { bits: *bits, len: *len }).holds(address) {
                show(&self.values[next]);
            }
            next = self.around[next] as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn all_networks_of_an_address_are_found(
            sets in prop::collection::btree_set((any::<u128>(), 0u8..12), 0..40),
            others: Vec<u128>,
        ) {
            let network = |(bits, len): &(u128, u8)| {
                NetworkPrefix { bits: bits & mask(*len), len: *len }
            };
            let sets: BTreeSet<NetworkPrefix> = sets.iter().map(network).collect();
            let networks = Networks::new(sets.iter().map(|set| (*set, *set)).collect());
            let ends = sets.iter().flat_map(|set| [set.bits, set.bits | !mask(set.len)]);
            for address in ends.chain(others) {
                let mut found = Vec::new();
                networks.holding(address, |set| found.push(*set));
                found.reverse();
                let expected: Vec<_> =
                    sets.iter().filter(|set| set.holds(address)).copied().collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
