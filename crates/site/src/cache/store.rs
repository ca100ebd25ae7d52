//! The cache all loops share: bounded in bytes, looked up by [`EntryKey`].

use crate::cache::entry::Entry;
use crate::cache::entry_key::{EntryKey, KeyRef};
use crate::settings;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The size of an ordinary answer, by which the cache sizes its tables.
const TYPICAL_BYTES: u64 = 8 * 1024;

/// The shared cache, or nothing if it is switched off.
pub(crate) struct Store {
    cache: Option<Cache<EntryKey, Arc<Entry>, Weigh, DefaultHashBuilder, Evictions>>,
    evicted: Arc<Evicted>,
    /// Held while an entry grows, so that its weight changes by one variant at a time.
    growing: Mutex<()>,
}

/// Counters of evictions since the start.
#[derive(Default)]
struct Evicted {
    entries: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Clone)]
struct Weigh {
    file_bytes: u64,
}

impl Weighter<EntryKey, Arc<Entry>> for Weigh {
    fn weight(&self, _: &EntryKey, entry: &Arc<Entry>) -> u64 {
        entry.weight(self.file_bytes)
    }
}

/// Marks what is evicted as dead, so that the loops' own tables let go of it.
#[derive(Clone)]
struct Evictions {
    weigh: Weigh,
    count: Arc<Evicted>,
}

impl Lifecycle<EntryKey, Arc<Entry>> for Evictions {
    /// The entries that were evicted. They are dropped when the cache's lock has been released.
    type RequestState = Vec<Arc<Entry>>;

    fn on_evict(&self, evicted: &mut Vec<Arc<Entry>>, key: EntryKey, entry: Arc<Entry>) {
        entry.kill();
        self.count.entries.fetch_add(1, Relaxed);
        self.count.bytes.fetch_add(self.weigh.weight(&key, &entry), Relaxed);
        evicted.push(entry);
    }
}

impl Store {
    pub(crate) fn new(settings: &settings::CacheSettings) -> Store {
        let evicted: Arc<Evicted> = Arc::default();
        let weigh = Weigh { file_bytes: settings.bytes / u64::from(settings.open_files.max(1)) };
        let items = usize::try_from(settings.bytes / TYPICAL_BYTES).unwrap_or(usize::MAX);
        let cache = (settings.bytes > 0).then(|| {
            Cache::with(
                items.clamp(64, 1 << 20),
                settings.bytes,
                weigh.clone(),
                DefaultHashBuilder::default(),
                Evictions { weigh, count: Arc::clone(&evicted) },
            )
        });
        Store { cache, evicted, growing: Mutex::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.cache.is_some()
    }

    /// The entry, fresh or not, but not dead.
    pub(crate) fn get(&self, key: KeyRef<'_>) -> Option<Arc<Entry>> {
        self.cache.as_ref()?.get(&key).filter(|entry| !entry.is_dead())
    }

    /// Reports to the cache that the entry is in use, if the lock is free.
    pub(crate) fn touch(&self, key: KeyRef<'_>) {
        if let Some(cache) = &self.cache {
            // A lock held by another only means that this hint is lost.
            let _ = cache.try_get(&key);
        }
    }

    pub(crate) fn insert(&self, entry: Arc<Entry>) {
        let Some(cache) = &self.cache else { return };
        // the evicted entries are dropped here, after the cache's lock is released
        let mut evicted = Vec::new();
        cache.insert_with_lifecycle(entry.key.clone(), entry, &mut evicted);
    }

    /// Raises the entry's weight by `bytes`. The cache counts a weight when an entry comes and when
    /// it goes, so the entry is outside while its weight changes.
    pub(crate) fn grow(&self, entry: &Arc<Entry>, bytes: u64) {
        let Some(cache) = &self.cache else { return };
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let was_in = cache.remove_if(&entry.key, |held| Arc::ptr_eq(held, entry)).is_some();
        entry.made_bytes.fetch_add(bytes, Relaxed);
        if was_in {
            cache.insert(entry.key.clone(), Arc::clone(entry));
            // the entry's files may have changed while it could not be found
            if entry.is_dead() {
                self.remove(entry);
            }
        }
    }

    /// Removes this very entry, not a newer one with its key.
    pub(crate) fn remove(&self, entry: &Arc<Entry>) {
        if let Some(cache) = &self.cache {
            cache.remove_if(&entry.key, |held| Arc::ptr_eq(held, entry));
        }
    }

    /// Removes all entries of a site and marks them dead. Returns their number.
    pub(crate) fn flush(&self, site: u32) -> u64 {
        let flushed = AtomicU64::new(0);
        if let Some(cache) = &self.cache {
            cache.retain(|key, entry| {
                let stays = key.site != site;
                if !stays && entry.kill() {
                    flushed.fetch_add(1, Relaxed);
                }
                stays
            });
        }
        flushed.into_inner()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }

    pub(crate) fn entries(&self) -> u64 {
        self.cache.as_ref().map_or(0, |cache| cache.len() as u64)
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evicted.entries.load(Relaxed)
    }

    /// Bytes evicted since the start.
    pub(crate) fn evicted_bytes(&self) -> u64 {
        self.evicted.bytes.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::entry::EntryKind;

    fn entry(path: &str) -> Arc<Entry> {
        let key = EntryKey { site: 0, path: path.as_bytes().into() };
        let entry = Entry::new(key, EntryKind::Missing, Box::default());
        entry.freshen(u64::MAX);
        Arc::new(entry)
    }

    #[test]
    fn what_is_evicted_is_dead() {
        let store = Store::new(&settings::CacheSettings { bytes: 64 << 10, ..Default::default() });
        let entries: Vec<_> = (0..1000).map(|n| entry(&format!("/{n}"))).collect();
        entries.iter().for_each(|entry| store.insert(Arc::clone(entry)));
        assert!(store.bytes() <= 64 << 10);
        let alive = entries.iter().filter(|entry| !entry.is_dead()).count() as u64;
        assert_eq!(alive, store.entries());
        assert_eq!(store.evictions() + alive, 1000);
    }

    #[test]
    fn what_grows_stays_within_the_bound() {
        let store = Store::new(&settings::CacheSettings { bytes: 1 << 20, ..Default::default() });
        let entries: Vec<_> = (0..100).map(|n| entry(&format!("/{n}"))).collect();
        entries.iter().for_each(|entry| store.insert(Arc::clone(entry)));
        let before = store.bytes();
        store.grow(&entries[0], 5000);
        assert_eq!(store.bytes(), before + 5000);
        assert!(!entries[0].is_dead());
        entries.iter().for_each(|entry| store.grow(entry, 50_000));
        assert!(store.bytes() <= 1 << 20);
        assert!(store.evictions() > 70);
        // the weights that were counted are those that are taken off
        assert!(store.flush(0) > 5);
        assert_eq!((store.bytes(), store.entries()), (0, 0));
    }

    #[test]
    fn what_is_not_in_the_store_does_not_come_back() {
        let store = Store::new(&settings::CacheSettings::default());
        let (gone, dead) = (entry("/a"), entry("/b"));
        store.insert(Arc::clone(&dead));
        dead.kill();
        store.grow(&gone, 100);
        store.grow(&dead, 100);
        assert_eq!((store.bytes(), store.entries()), (0, 0));
    }

    #[test]
    fn only_the_very_entry_is_removed() {
        let store = Store::new(&settings::CacheSettings::default());
        let (old, new) = (entry("/a"), entry("/a"));
        store.insert(Arc::clone(&old));
        store.insert(Arc::clone(&new));
        store.remove(&old);
        assert!(Arc::ptr_eq(&store.get(new.key.asked()).unwrap(), &new));
        assert_eq!(store.flush(1), 0);
        assert_eq!(store.flush(0), 1);
        assert!(store.get(new.key.asked()).is_none());
        assert!(new.is_dead());
    }
}
