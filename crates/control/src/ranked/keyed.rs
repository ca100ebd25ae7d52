//! The entries of one rank that have a number each: the least goes first, but now and then the one that
//! waits longest.

use super::Key;
use super::nodes::{List, Mark, Nodes};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Of so many entries that are taken, the last is the one that waits longest.
pub const FAIR_EVERY: u32 = 8;

/// Heap entries that name nothing any more, beside as many as there are of others, before they are
/// cleared away.
const SPARE: usize = 64;

/// Which entry is the next of its rank.
#[derive(Debug, Default)]
pub(super) struct Keyed {
    /// By number, then in the order they came. What was taken or removed is found out when it comes up.
    heap: BinaryHeap<Reverse<(u64, u64, UnorderedKey)>>,
    /// How many were ever put in.
    pushed: u64,
    /// Taken since the one that had waited longest.
    taken: u32,
}

/// [`Key`], and no order of its own.
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
    /// Puts an entry at the end of `list`, which is the order in which they came.
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

    /// An entry was taken or removed, and `len` are left: what names nothing does not become too much.
    pub(super) fn clear_away<T>(&mut self, nodes: &Nodes<T>, len: usize) {
        if self.heap.len() > 2 * len + SPARE {
            self.heap.retain(|Reverse((_, _, UnorderedKey(key)))| nodes.find(*key).is_some());
        }
    }
}
