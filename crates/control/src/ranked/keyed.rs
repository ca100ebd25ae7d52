//! The entries of one rank by their numbers: the least number goes first, but now and then the entry that has
//! waited longest.

use super::Key;
use super::nodes::{List, Mark, Nodes};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The number of entries taken of which the last is the one that has waited longest.
pub const FAIR_EVERY: u32 = 8;

/// The number of stale heap entries, beyond the number of valid ones, at which they are cleared.
const SPARE: usize = 64;

/// The order of the entries of a rank.
#[derive(Debug, Default)]
pub(super) struct Keyed {
    /// The entries by number, then by arrival. An entry that was taken or removed is skipped when it comes
    /// up.
    heap: BinaryHeap<Reverse<(u64, u64, UnorderedKey)>>,
    /// The number of entries ever pushed.
    pushed: u64,
    /// The number of entries taken since the longest-waiting one was.
    taken: u32,
}

/// A [`Key`] that does not take part in the order.
#[derive(Clone, Copy, Debug)]
struct UnorderedKey(Key);

impl PartialEq for UnorderedKey {
    fn eq(&self, _: &UnorderedKey) -> bool {
        true
    }
}

impl Eq for UnorderedKey {}

impl PartialOrd for UnorderedKey {
    fn partial_cmp(&self, other: &UnorderedKey) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UnorderedKey {
    fn cmp(&self, _: &UnorderedKey) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl Keyed {
    /// Adds an entry at the end of `list`, which is in order of arrival.
    pub(super) fn push<T>(
        &mut self,
        nodes: &mut Nodes<T>,
        list: &mut List,
        (rank, number): (u8, u64),
        item: T,
    ) -> Key {
        let key = nodes.push(list, item, Mark { bucket: 0, rank, weight: 1 });
        self.pushed += 1;
        self.heap.push(Reverse((number, self.pushed, UnorderedKey(key))));
        key
    }

    /// Takes the next entry of `list`, which has `len` of them.
    pub(super) fn pop<T>(
        &mut self,
        nodes: &mut Nodes<T>,
        list: &mut List,
        len: usize,
    ) -> Option<T> {
        self.taken += 1;
        if self.taken >= FAIR_EVERY {
            self.taken = 0;
            let item = nodes.pop(list);
            self.clear_away(nodes, len.saturating_sub(1));
            return item;
        }
        loop {
            let Reverse((_, _, UnorderedKey(key))) = self.heap.pop()?;
            if nodes.find(key).is_some() {
                return nodes.remove(list, key.index);
            }
        }
    }

    /// Called after an entry was taken or removed and `len` are left: clears stale heap entries when there
    /// are too many.
    pub(super) fn clear_away<T>(&mut self, nodes: &Nodes<T>, len: usize) {
        if self.heap.len() > 2 * len + SPARE {
            self.heap.retain(|Reverse((_, _, UnorderedKey(key)))| nodes.find(*key).is_some());
        }
    }
}
