//! The dynamic table (RFC 7541 §2.3.2): a ring of bytes and a ring of entries, without an allocation for each
//! entry.

use crate::known_names::KnownName;
use std::collections::VecDeque;

/// The size that an entry counts besides its bytes (RFC 7541 §4.1).
pub(crate) const ENTRY_BYTES: usize = 32;

/// The smallest ring, in bytes: most clients send their User-Agent and a host or two.
const FIRST_BYTES: usize = 512;

/// One entry of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct HpackEntry {
    /// The position of its first byte, counted over all bytes ever added, modulo 2³².
    at: u32,
    pub(super) name_len: u32,
    pub(super) value_len: u32,
    pub(super) known: KnownName,
    pub(super) faults: Faults,
}

/// Faults of a field: a message that uses it is malformed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    pub(super) name: bool,
    pub(super) value: bool,
}

impl Faults {
    pub(super) fn any(self) -> bool {
        self.name || self.value
    }
}

impl HpackEntry {
    fn len(self) -> usize {
        (self.name_len + self.value_len) as usize
    }
}

/// The dynamic table. Its memory grows with its entries, up to what its owner allows.
#[derive(Debug, Default)]
pub(super) struct DynamicTable {
    /// The bytes of the entries; the length is a power of two, or 0.
    ring: Box<[u8]>,
    /// The position of the next byte, counted like [`HpackEntry::at`].
    end: u32,
    /// The entries, the newest first.
    entries: VecDeque<HpackEntry>,
    /// The number of bytes of all entries.
    len: usize,
    /// The largest [`size`](DynamicTable::size) allowed.
    most: usize,
}

impl DynamicTable {
    pub(super) fn new(most: usize) -> DynamicTable {
        DynamicTable { most, ..DynamicTable::default() }
    }

    /// The size as counted by the RFC.
    pub(super) fn size(&self) -> usize {
        self.len + self.entries.len() * ENTRY_BYTES
    }

    /// Changes the largest size (§4.3).
    pub(super) fn resize(&mut self, most: usize) {
        self.most = most;
        self.make_room(0);
    }

    /// The entry that was added `age` entries ago.
    #[inline]
    pub(super) fn get(&self, age: usize) -> Option<HpackEntry> {
        self.entries.get(age).copied()
    }

    /// Appends the name of an entry to `out`.
    #[inline]
    pub(super) fn copy_name(&self, entry: HpackEntry, out: &mut Vec<u8>) {
        self.copy(entry.at, entry.name_len, out);
    }

    /// Appends the value of an entry to `out`.
    #[inline]
    pub(super) fn copy_value(&self, entry: HpackEntry, out: &mut Vec<u8>) {
        self.copy(entry.at.wrapping_add(entry.name_len), entry.value_len, out);
    }

    /// Adds a field (§4.4): older entries are evicted until it fits. If it can never fit, all are evicted and
    /// it is not added.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], known: KnownName, faults: Faults) {
        let len = name.len() + value.len();
        if !self.make_room(len + ENTRY_BYTES) {
            return;
        }
        self.grow(len);
        let (name_len, value_len) = (name.len() as u32, value.len() as u32);
        self.entries.push_front(HpackEntry { at: self.end, name_len, value_len, known, faults });
        self.put(name);
        self.put(value);
        self.len += len;
    }

    /// The heap memory of the table.
    pub(super) fn heap_bytes(&self) -> usize {
        self.ring.len() + self.entries.capacity() * size_of::<HpackEntry>()
    }

    /// The most heap memory of a table of this size: the ring, and twice the number of entries that fit,
    /// since their ring doubles.
    pub(super) const fn most_heap_bytes(most: usize) -> usize {
        let ring = if most == 0 { 0 } else { most.next_power_of_two() };
        let ring = if ring < FIRST_BYTES { FIRST_BYTES } else { ring };
        ring + (2 * (most / ENTRY_BYTES) + 4) * size_of::<HpackEntry>()
    }

    fn make_room(&mut self, wanted: usize) -> bool {
        while self.size() + wanted > self.most {
            let Some(oldest) = self.entries.pop_back() else { return false };
            self.len -= oldest.len();
        }
        true
    }

    /// Enlarges the ring for `more` bytes.
    fn grow(&mut self, more: usize) {
        let wanted = self.len + more;
        if wanted <= self.ring.len() {
            return;
        }
        let mut all = Vec::with_capacity(wanted.next_power_of_two().max(FIRST_BYTES));
        let begin = self.end.wrapping_sub(self.len as u32);
        self.copy(begin, self.len as u32, &mut all);
        for entry in &mut self.entries {
            entry.at = entry.at.wrapping_sub(begin);
        }
        self.end = self.len as u32;
        all.resize(all.capacity(), 0);
        self.ring = all.into_boxed_slice();
    }

    #[inline]
    fn copy(&self, at: u32, len: u32, out: &mut Vec<u8>) {
        if len == 0 {
            return;
        }
        let (at, len) = (at as usize & (self.ring.len() - 1), len as usize);
        match self.ring.get(at..at + len) {
            Some(bytes) => out.extend_from_slice(bytes),
            None => {
                out.extend_from_slice(&self.ring[at..]);
                out.extend_from_slice(&self.ring[..at + len - self.ring.len()]);
            }
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let at = self.end as usize & (self.ring.len() - 1);
        let (first, rest) = bytes.split_at(bytes.len().min(self.ring.len() - at));
        self.ring[at..at + first.len()].copy_from_slice(first);
        self.ring[..rest.len()].copy_from_slice(rest);
        self.end = self.end.wrapping_add(bytes.len() as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(table: &DynamicTable) -> Vec<(Vec<u8>, Vec<u8>)> {
        let all = (0..).map_while(|age| table.get(age));
        all.map(|entry| {
            let (mut name, mut value) = (Vec::new(), Vec::new());
            table.copy_name(entry, &mut name);
            table.copy_value(entry, &mut value);
            (name, value)
        })
        .collect()
    }

    #[test]
    fn it_is_a_queue_bounded_by_its_size() {
        let mut random = fastrand::Rng::with_seed(3);
        for most in [0, 31, 32, 100, 700, 4096, 5000] {
            let mut table = DynamicTable::new(most);
            // wraps around 2³² during the test
            table.end = u32::MAX - 2000;
            let mut model: VecDeque<(Vec<u8>, Vec<u8>)> = VecDeque::new();
            for round in 0..2000u32 {
                let text = |random: &mut fastrand::Rng, most| {
                    (0..random.usize(..most)).map(|_| random.alphanumeric() as u8).collect()
                };
                let field: (Vec<u8>, Vec<u8>) = (text(&mut random, 30), text(&mut random, 300));
                let limit = if round % 100 == 50 { most / 2 } else { most };
                table.resize(limit);
                table.insert(&field.0, &field.1, KnownName::OTHER, Faults::default());
                model.push_front(field);
                let size = |model: &VecDeque<(Vec<u8>, Vec<u8>)>| -> usize {
                    model.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
                };
                while size(&model) > limit {
                    model.pop_back();
                }
                assert_eq!(table.size(), size(&model));
                assert_eq!(fields(&table), Vec::from(model.clone()), "{most} {round}");
                assert!(table.heap_bytes() <= DynamicTable::most_heap_bytes(most), "{most}");
            }
        }
    }

    #[test]
    fn a_new_table_has_no_memory_of_its_own() {
        assert_eq!(DynamicTable::new(4096).heap_bytes(), 0);
    }
}
