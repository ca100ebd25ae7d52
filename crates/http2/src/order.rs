//! The order in which streams send: a heap of those that have something to send and may send it.

use crate::priority::Priority;

/// The key by which streams are ordered; the smallest goes first. It consists of class and urgency; then come
/// responses that are sent in one piece, in the order of their requests, and then the others by turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SendKey(u64);

const TURN_BITS: u32 = 52;

impl SendKey {
    /// A key; `turn` is a count that grows with each turn that was taken.
    pub(crate) fn new(rank: u8, priority: Priority, id: u32, turn: u64) -> SendKey {
        let class = u64::from(rank) << 4
            | u64::from(priority.urgency & 7) << 1
            | u64::from(priority.is_incremental);
        let place = if priority.is_incremental { turn } else { u64::from(id) };
        SendKey(class << TURN_BITS | place & ((1 << TURN_BITS) - 1))
    }

    /// Whether this stream goes first regardless of turns.
    pub(crate) fn is_before(self, other: SendKey) -> bool {
        self.0 >> (TURN_BITS + 1) < other.0 >> (TURN_BITS + 1)
    }
}

const NOWHERE: u16 = u16::MAX;

/// The streams that are ready to send, by their place in the table of streams.
#[derive(Debug, Default)]
pub(crate) struct SendHeap {
    heap: Vec<(SendKey, u16)>,
    /// The index in the heap of each place.
    places: Vec<u16>,
}

impl SendHeap {
    /// The stream that goes first.
    #[inline]
    pub(crate) fn first(&self) -> Option<(SendKey, u16)> {
        self.heap.first().copied()
    }

    #[inline]
    pub(crate) fn contains(&self, place: u16) -> bool {
        self.places.get(usize::from(place)).is_some_and(|&at| at != NOWHERE)
    }

    /// Adds a stream, or changes its key.
    pub(crate) fn set(&mut self, place: u16, key: SendKey) {
        if usize::from(place) >= self.places.len() {
            self.places.resize(usize::from(place) + 1, NOWHERE);
        }
        let mut at = usize::from(self.places[usize::from(place)]);
        if at == usize::from(NOWHERE) {
            at = self.heap.len();
            self.heap.push((key, place));
        } else {
            self.heap[at].0 = key;
        }
        self.settle(at);
    }

    /// Removes a stream, if it is in the heap.
    #[inline]
    pub(crate) fn remove(&mut self, place: u16) {
        if !self.contains(place) {
            return;
        }
        let at = usize::from(std::mem::replace(&mut self.places[usize::from(place)], NOWHERE));
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            self.settle(at);
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.heap.capacity() * size_of::<(SendKey, u16)>()
            + self.places.capacity() * size_of::<u16>()
    }

    pub(crate) const fn most_heap_bytes(streams: usize) -> usize {
        let capacity = streams.next_power_of_two() + 4;
        capacity * (size_of::<(SendKey, u16)>() + size_of::<u16>())
    }

    /// Moves the entry at `at` to where it belongs in the heap.
    fn settle(&mut self, mut at: usize) {
        while at > 0 && self.heap[at].0 < self.heap[(at - 1) / 2].0 {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            for child in [left, right] {
                if self.heap.get(child).is_some_and(|child| child.0 < self.heap[least].0) {
                    least = child;
                }
            }
            if least == at {
                break;
            }
            self.swap(at, least);
            at = least;
        }
        self.places[usize::from(self.heap[at].1)] = at as u16;
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.places[usize::from(self.heap[one].1)] = one as u16;
        self.places[usize::from(self.heap[other].1)] = other as u16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn class_goes_before_urgency_before_turn() {
        let of = |urgency, is_incremental| Priority { urgency, is_incremental };
        let order = [
            SendKey::new(0, of(7, true), 99, 99),
            SendKey::new(1, of(0, true), 9, 9),
            SendKey::new(1, of(3, false), 1, 9),
            SendKey::new(1, of(3, false), 3, 1),
            SendKey::new(1, of(3, true), 1, 4),
            SendKey::new(1, of(3, true), 0, 5),
            SendKey::new(255, of(0, false), 0, 0),
        ];
        assert!(order.is_sorted());
        assert!(order[0].is_before(order[1]) && order[1].is_before(order[2]));
        assert!(!order[2].is_before(order[5]) && !order[5].is_before(order[2]));
    }

    #[test]
    fn the_least_is_first_whatever_happens() {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut order, mut model) = (SendHeap::default(), BTreeMap::new());
        for _ in 0..20_000 {
            let place = random.u16(..60);
            if random.u8(..3) == 0 {
                order.remove(place);
                model.remove(&place);
            } else {
                let key = SendKey(random.u64(..1000) << 8 | u64::from(place));
                order.set(place, key);
                model.insert(place, key);
            }
            let least = model.iter().map(|(place, key)| (*key, *place)).min();
            assert_eq!(order.first(), least);
            assert_eq!(order.contains(place), model.contains_key(&place));
        }
        assert!(order.heap_bytes() <= SendHeap::most_heap_bytes(60));
    }
}
