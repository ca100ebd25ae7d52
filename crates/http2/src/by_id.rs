//! A table of streams: the stream's value, and a small number for each stream, both found in one
//! step.

/// A value for each open stream. The table grows with the number of streams open at once, and
/// allocates nothing while that number stays below its maximum so far.
#[derive(Debug)]
pub struct ById<T> {
    slots: Vec<IdSlot<T>>,
    free: Vec<u16>,
    /// A hash table indexed by the lower bits of `id / 2`: the place plus one, or 0. An entry whose
    /// slot is taken is in the next free one.
    index: Box<[u16]>,
}

#[derive(Debug)]
struct IdSlot<T> {
    id: u32,
    value: Option<T>,
}

/// The largest number of streams in a table.
pub const MOST_STREAMS: u32 = 16_384;

impl<T> Default for ById<T> {
    fn default() -> Self {
        ById { slots: Vec::new(), free: Vec::new(), index: Box::default() }
    }
}

impl<T> ById<T> {
    /// The number of streams.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there are no streams.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of this stream.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&T> {
        self.slots[usize::from(self.place(id)?)].value.as_ref()
    }

    /// The value of this stream, to be changed.
    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let place = self.place(id)?;
        self.slots[usize::from(place)].value.as_mut()
    }

    /// Adds a stream that is not in the table, and returns its place. Up to [`MOST_STREAMS`]
    /// streams.
    pub fn insert(&mut self, id: u32, value: T) -> u16 {
        if self.index.len() < (self.len() + 1) * 2 {
            self.grow();
        }
        let slot = IdSlot { id, value: Some(value) };
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[usize::from(place)] = slot;
                place
            }
            None => {
                // by half: clients have many connections with many streams each
                if self.slots.len() == self.slots.capacity() {
                    self.slots.reserve_exact(self.slots.len() / 2 + 4);
                }
                self.slots.push(slot);
                (self.slots.len() - 1) as u16
            }
        };
        self.enter(id, place);
        place
    }

    /// Removes a stream.
    pub fn remove(&mut self, id: u32) -> Option<T> {
        let mask = self.index.len().wrapping_sub(1);
        let mut hole = self.find(id)?;
        let place = self.index[hole] - 1;
        // close the gap: entries that had moved on because their slot was taken move back
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let Some(other) = self.index[at].checked_sub(1) else { break };
            let home = home(self.slots[usize::from(other)].id) & mask;
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.index[hole] = self.index[at];
                hole = at;
            }
        }
        self.index[hole] = 0;
        self.free.push(place);
        self.slots[usize::from(place)].value.take()
    }

    /// The place of a stream: a number below the largest number of streams that were open at once.
    #[inline]
    pub fn place(&self, id: u32) -> Option<u16> {
        Some(self.index[self.find(id)?] - 1)
    }

    /// The stream in a place.
    #[inline]
    pub fn at(&self, place: u16) -> Option<(u32, &T)> {
        let slot = self.slots.get(usize::from(place))?;
        Some((slot.id, slot.value.as_ref()?))
    }

    /// All streams, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().filter_map(|slot| Some((slot.id, slot.value.as_ref()?)))
    }

    /// All streams with their places, in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u16, u32, &mut T)> {
        let slots = self.slots.iter_mut().enumerate();
        slots.filter_map(|(at, slot)| Some((at as u16, slot.id, slot.value.as_mut()?)))
    }

    /// The heap memory of the table, without that of the values.
    pub fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<IdSlot<T>>()
            + (self.free.capacity() + self.index.len()) * size_of::<u16>()
    }

    /// The most heap memory of a table with up to `streams` streams at once.
    pub const fn most_heap_bytes(streams: usize) -> usize {
        // vectors double, from 4 on; the index is at most four times the streams, from 16 on
        let capacity = streams.next_power_of_two() + 4;
        capacity * (size_of::<IdSlot<T>>() + size_of::<u16>())
            + (4 * capacity + 16) * size_of::<u16>()
    }

    #[inline]
    fn find(&self, id: u32) -> Option<usize> {
        let mask = self.index.len().checked_sub(1)?;
        let mut at = home(id) & mask;
        loop {
            let place = self.index[at].checked_sub(1)?;
            if self.slots[usize::from(place)].id == id {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    fn enter(&mut self, id: u32, place: u16) {
        let mask = self.index.len() - 1;
        let mut at = home(id) & mask;
        while self.index[at] != 0 {
            at = (at + 1) & mask;
        }
        self.index[at] = place + 1;
    }

    fn grow(&mut self) {
        self.index = vec![0; (self.index.len() * 2).max(16)].into();
        for place in 0..self.slots.len() {
            if self.slots[place].value.is_some() {
                self.enter(self.slots[place].id, place as u16);
            }
        }
    }
}

/// The slot where the search for an id begins. Ids of one side are all odd or all even and mostly
/// consecutive.
#[inline]
fn home(id: u32) -> usize {
    (id >> 1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn it_is_a_map() {
        let mut random = fastrand::Rng::with_seed(1);
        for spread in [1, 16, 64] {
            let mut map = ById::default();
            let mut model = HashMap::new();
            for round in 0..20_000u32 {
                // also ids with the same first slot
                let id = (random.u32(..100) * spread) << 1 | 1;
                if let Some(value) = model.remove(&id) {
                    assert_eq!(map.remove(id), Some(value));
                } else {
                    let place = map.insert(id, round);
                    model.insert(id, round);
                    assert_eq!(map.at(place), Some((id, &round)));
                }
                let other = (random.u32(..100) * spread) << 1 | 1;
                assert_eq!(map.get(other), model.get(&other));
                assert_eq!(map.get_mut(other).copied(), model.get(&other).copied());
                assert_eq!(map.len(), model.len());
            }
            assert_eq!(map.iter().count(), model.len());
            assert!(map.heap_bytes() <= ById::<u32>::most_heap_bytes(100));
            assert!(map.slots.len() <= 100);
        }
    }

    #[test]
    fn an_empty_one_has_no_memory_and_finds_nothing() {
        let mut map = ById::<u8>::default();
        assert_eq!((map.get(1), map.heap_bytes()), (None, 0));
        assert_eq!(map.remove(1), None);
        assert!(map.is_empty() && map.at(0).is_none());
    }
}
