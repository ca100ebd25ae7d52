//! A loop's own table in front of the shared cache, looked up by the path as it was sent.
//!
//! A hit decodes nothing, takes no lock and counts no reference: it compares the bytes of the path
//! and asks the entry whether it is fresh.

use crate::cache::entry::Entry;
use foldhash::fast::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The number of slots in which a path may be.
const WAYS: usize = 4;
/// The longest path in the table, which bounds its memory; longer ones go to the shared cache every
/// time.
const MOST_PATH_BYTES: usize = 512;
/// The number of hits of a slot after which it reports to the shared cache that its entry is in
/// use.
const TOUCH_EVERY: u32 = 64;
/// The number of hits from which a path counts as asked for again and again.
const HOT_HITS: u32 = 2;

/// A second piece of a body that would be smaller than this goes with the first.
const CRUMB_BYTES: usize = 8 * 1024;
/// Room for the head in the first piece.
const HEAD_BYTES: usize = 1024;

/// Spreads the numbers of sites over all bits (the golden ratio, made odd).
const SITE_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The table.
pub(crate) struct Front {
    /// Sets of [`WAYS`] slots, a power of two of them.
    slots: Box<[FrontSlot]>,
    hasher: RandomState,
    /// See [`CacheSettings::segment_bytes`](crate::settings::CacheSettings::segment_bytes).
    segment_bytes: usize,
}

#[derive(Default)]
struct FrontSlot {
    hash: u64,
    site: u32,
    /// The number of hits, which shrinks when others in the set need room.
    uses: u32,
    /// Moves whenever the slot gets or loses an entry.
    version: u32,
    raw: Box<[u8]>,
    entry: Option<Arc<Entry>>,
}

/// A slot as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRef {
    index: u32,
    version: u32,
}

/// A hit in the table.
pub(crate) struct Hit<'f> {
    pub(crate) ticket: SlotRef,
    /// The shared cache should be informed now.
    pub(crate) tell: bool,
    /// Whether the path is asked for again and again; only reported now and then.
    pub(crate) is_hot: bool,
    pub(crate) entry: &'f Arc<Entry>,
}

/// The place in the table where a path is looked for.
#[derive(Clone, Copy)]
pub(crate) struct FrontKey {
    hash: u64,
    first: usize,
}

impl Front {
    /// Creates a table with room for about `paths` paths.
    pub(crate) fn new(paths: usize) -> Front {
        let sets = paths.div_ceil(WAYS).next_power_of_two();
        let slots = (0..sets * WAYS).map(|_| FrontSlot::default()).collect();
        Front { slots, hasher: RandomState::default(), segment_bytes: 0 }
    }

    /// The same, for bodies that are sent in pieces of about this many bytes.
    pub(crate) fn with_segments(self, bytes: u64) -> Front {
        Front { segment_bytes: bytes.try_into().unwrap_or(usize::MAX), ..self }
    }

    /// The number of bytes, of `len` in memory, that are given to the kernel at once.
    pub(crate) fn piece_bytes(&self, len: usize) -> usize {
        let segment = self.segment_bytes;
        let is_in_two =
            len > segment.saturating_add(CRUMB_BYTES) && len <= segment.saturating_mul(2);
        if is_in_two { segment - HEAD_BYTES.min(segment / 2) } else { len }
    }

    #[inline]
    pub(crate) fn front_key(&self, site: u32, raw: &[u8]) -> FrontKey {
        // a path that many sites have is in many places
        let hash = self.hasher.hash_one(raw) ^ u64::from(site).wrapping_mul(SITE_FACTOR);
        let sets = self.slots.len() / WAYS;
        FrontKey { hash, first: (hash as usize & (sets - 1)) * WAYS }
    }

    /// The fresh entry for the path.
    #[inline]
    pub(crate) fn find(
        &mut self,
        front_key: FrontKey,
        site: u32,
        raw: &[u8],
        now_ms: u64,
    ) -> Option<Hit<'_>> {
        let set = &mut self.slots[front_key.first..front_key.first + WAYS];
        let is_it = |slot: &FrontSlot| {
            slot.hash == front_key.hash
                && slot.site == site
                && slot.entry.is_some()
                && *slot.raw == *raw
        };
        let at = set.iter().position(is_it)?;
        let slot = &mut set[at];
        if !slot.entry.as_ref()?.is_fresh(now_ms) {
            slot.clear();
            return None;
        }
        slot.uses = slot.uses.wrapping_add(1);
        let tell = slot.uses.is_multiple_of(TOUCH_EVERY);
        let is_hot = tell || slot.uses == HOT_HITS;
        let ticket = SlotRef { index: (front_key.first + at) as u32, version: slot.version };
        Some(Hit { ticket, tell, is_hot, entry: slot.entry.as_ref()? })
    }

    /// The fresh entry for the path, without counting a hit.
    #[inline]
    pub(crate) fn peek(
        &self,
        front_key: FrontKey,
        site: u32,
        raw: &[u8],
        now_ms: u64,
    ) -> Option<&Entry> {
        let set = &self.slots[front_key.first..front_key.first + WAYS];
        let is_it = |slot: &&FrontSlot| {
            slot.hash == front_key.hash
                && slot.site == site
                && slot.entry.is_some()
                && *slot.raw == *raw
        };
        let entry = set.iter().find(is_it)?.entry.as_deref()?;
        entry.is_fresh(now_ms).then_some(entry)
    }

    /// The entry in the slot, unless the slot has changed since `ticket` was given.
    #[inline]
    pub(crate) fn entry(&self, ticket: SlotRef) -> Option<&Arc<Entry>> {
        let slot = self.slots.get(ticket.index as usize)?;
        slot.entry.as_ref().filter(|_| slot.version == ticket.version)
    }

    /// Puts an entry where the path will be looked for. `None` if the path is too long.
    pub(crate) fn insert(
        &mut self,
        front_key: FrontKey,
        site: u32,
        raw: &[u8],
        entry: Arc<Entry>,
    ) -> Option<SlotRef> {
        if raw.len() > MOST_PATH_BYTES {
            return None;
        }
        let set = &mut self.slots[front_key.first..front_key.first + WAYS];
        let mine = |slot: &FrontSlot| {
            slot.hash == front_key.hash && slot.site == site && *slot.raw == *raw
        };
        let at = set.iter().position(mine).unwrap_or_else(|| least_used(set));
        let slot = &mut set[at];
        slot.hash = front_key.hash;
        slot.site = site;
        slot.uses = 1;
        slot.version = slot.version.wrapping_add(1);
        slot.raw = raw.into();
        slot.entry = Some(entry);
        Some(SlotRef { index: (front_key.first + at) as u32, version: slot.version })
    }

    /// Lets go of everything.
    pub(crate) fn clear(&mut self) {
        self.slots.iter_mut().filter(|slot| slot.entry.is_some()).for_each(FrontSlot::clear);
    }

    /// Lets go of entries that are not fresh, so that they hold no memory and no files.
    pub(crate) fn sweep(&mut self, now_ms: u64) {
        for slot in &mut self.slots {
            if slot.entry.as_ref().is_some_and(|entry| !entry.is_fresh(now_ms)) {
                slot.clear();
            }
        }
    }
}

/// Chooses the slot to give away. The counts of the others shrink a little, so that none stays for
/// ever.
fn least_used(set: &mut [FrontSlot]) -> usize {
    let uses = |slot: &FrontSlot| if slot.entry.is_some() { slot.uses } else { 0 };
    let least = (0..set.len()).min_by_key(|&at| uses(&set[at])).unwrap_or(0);
    set.iter_mut().for_each(|slot| slot.uses /= 2);
    least
}

impl FrontSlot {
    fn clear(&mut self) {
        self.entry = None;
        self.raw = Box::default();
        self.uses = 0;
        self.version = self.version.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::entry::EntryKind;
    use crate::cache::entry_key::EntryKey;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn entry(path: &[u8]) -> Arc<Entry> {
        let entry =
            Entry::new(EntryKey { site: 0, path: path.into() }, EntryKind::Missing, Box::default());
        entry.freshen(u64::MAX);
        Arc::new(entry)
    }

    fn find(front: &mut Front, raw: &[u8]) -> Option<Arc<Entry>> {
        let front_key = front.front_key(0, raw);
        front.find(front_key, 0, raw, 0).map(|hit| Arc::clone(hit.entry))
    }

    #[test]
    fn bodies_of_up_to_two_segments_leave_in_two() {
        const KIB: usize = 1024;
        assert_eq!(Front::new(4).piece_bytes(100 * KIB), 100 * KIB);
        let front = Front::new(4).with_segments(64 * KIB as u64);
        // one byte, the last size that is whole, both pieces, the last that is cut, the first that
        // is not
        let pieces =
            [1, 72 * KIB, 100 * KIB, 128 * KIB, 128 * KIB + 1].map(|len| front.piece_bytes(len));
        assert_eq!(pieces, [1, 72 * KIB, 63 * KIB, 63 * KIB, 128 * KIB + 1]);
        // the rest is not cut again
        assert_eq!(front.piece_bytes(128 * KIB - 63 * KIB), 65 * KIB);
        for odd in [1, 2, u64::MAX] {
            let front = Front::new(4).with_segments(odd);
            let pieces = [0, 1, 2, 3, 9000].map(|len| (len, front.piece_bytes(len)));
            assert!(pieces.iter().all(|(len, piece)| *len == 0 || (1..=*len).contains(piece)));
        }
    }

    #[test]
    fn the_dead_are_let_go() {
        let mut front = Front::new(4096);
        let held = entry(b"/a");
        let front_key = front.front_key(0, b"/a");
        let ticket = front.insert(front_key, 0, b"/a", Arc::clone(&held)).unwrap();
        assert!(find(&mut front, b"/a").is_some());
        assert!(front.find(front_key, 1, b"/a", 0).is_none(), "another site");
        held.kill();
        front.sweep(0);
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(front.entry(ticket).is_none());
        assert!(find(&mut front, b"/a").is_none());
    }

    #[test]
    fn a_long_path_is_not_kept() {
        let mut front = Front::new(4096);
        let long = vec![b'a'; MOST_PATH_BYTES + 1];
        let front_key = front.front_key(0, &long);
        assert!(front.insert(front_key, 0, &long, entry(&long)).is_none());
    }

    proptest! {
        #[test]
        fn never_the_entry_of_another_path(steps in prop::collection::vec((any::<bool>(), 0u16..6000), 1..4000)) {
            let mut front = Front::new(4096);
            let mut inserted = HashMap::new();
            for (is_insert, number) in steps {
                let raw = format!("/{number}").into_bytes();
                if is_insert {
                    let held = entry(&raw);
                    let front_key = front.front_key(0, &raw);
                    let ticket = front.insert(front_key, 0, &raw, Arc::clone(&held)).unwrap();
                    prop_assert!(Arc::ptr_eq(front.entry(ticket).unwrap(), &held));
                    inserted.insert(raw, held);
                } else if let Some(found) = find(&mut front, &raw) {
                    prop_assert!(Arc::ptr_eq(&found, &inserted[&raw]));
                }
            }
        }
    }
}
