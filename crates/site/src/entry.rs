//! One cached answer: everything about one normalised path.

use crate::compress::OnDemand;
use crate::disk::DiskFile;
use forebay_http::coding::Coding;
use forebay_sys::file::{self, Stamp};
use std::hash::{Hash, Hasher};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What an entry costs besides its bytes: itself, its key, its place in the cache, and the names
/// under which changes find it. An estimate.
const OVERHEAD_BYTES: u64 = 1024;

/// What the answer depends on: the site and the decoded, dot-free path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) site: u32,
    pub(crate) path: Arc<[u8]>,
}

impl Key {
    pub(crate) fn asked(&self) -> Asked<'_> {
        Asked { site: self.site, path: &self.path }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.asked().hash(state);
    }
}

/// A [`Key`] that borrows, for looking up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked<'k> {
    pub(crate) site: u32,
    pub(crate) path: &'k [u8],
}

impl quick_cache::Equivalent<Key> for Asked<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self == key.asked()
    }
}

/// Everything about one path.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) what: What,
    /// Whether a body is sent from an open file.
    pub(crate) is_on_disk: bool,
    /// Until when it may be answered with, in the loops' milliseconds: [`DEAD`] or an instant. Then
    /// its files are looked at again.
    fresh_until_ms: AtomicU64,
    /// What was made of it since it was put into the store. Changed by the store only.
    pub(crate) made_bytes: AtomicU64,
}

/// Its files changed, or it was evicted.
pub(crate) const DEAD: u64 = 0;

/// What is at the path.
#[derive(Debug)]
pub(crate) enum What {
    /// A file.
    Found(Found),
    /// A directory, but the path lacks the slash at its end. The head up to the end of `Location`.
    Redirect(Box<[u8]>),
    /// Nothing that is served. 404.
    Missing,
    /// A file that may not be read. 403.
    Denied,
    /// The file system failed with this status; never cached.
    Failed(u16),
}

/// A file and its precompressed siblings.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) identity: Variant,
    pub(crate) encoded: Vec<Variant>,
    /// What can be made of it besides.
    pub(crate) on_demand: Option<Box<OnDemand>>,
}

impl Found {
    /// Variant 0 is the identity; those made on demand come after those that files have.
    #[inline]
    pub(crate) fn variant(&self, index: usize) -> Option<&Variant> {
        let Some(index) = index.checked_sub(1) else { return Some(&self.identity) };
        match index.checked_sub(self.encoded.len()) {
            None => self.encoded.get(index),
            Some(place) => self.on_demand.as_ref()?.variant(place),
        }
    }

    /// The number of the variant that is made on demand for this place.
    pub(crate) fn made_index(&self, place: usize) -> usize {
        1 + self.encoded.len() + place
    }

    /// The variants that files have.
    pub(crate) fn variants(&self) -> impl Iterator<Item = &Variant> + Clone {
        std::iter::once(&self.identity).chain(&self.encoded)
    }
}

/// The answer in one content coding.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) coding: Coding,
    /// The file as it was when the head was written.
    pub(crate) stamp: Stamp,
    /// Bytes of the body.
    pub(crate) size: u64,
    /// Seconds since 1970, as the head says.
    pub(crate) last_modified: u64,
    pub(crate) etag: Box<[u8]>,
    /// The head of a 304.
    pub(crate) not_modified: Box<[u8]>,
    /// Where the parts of the 200 head end.
    pub(crate) layout: Layout,
    /// The 200 head, and behind it the body unless there is a `file`.
    pub(crate) ready: Box<[u8]>,
    /// The open file, if it is too large for memory.
    pub(crate) file: Option<DiskFile>,
}

/// Where the parts of a 200 head end: status line, `Content-Type`, fields that a 206 has too,
/// `Content-Length`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) status_end: usize,
    pub(crate) type_end: usize,
    pub(crate) fields_end: usize,
    pub(crate) head_end: usize,
}

impl Variant {
    /// The head of a 200.
    #[inline]
    pub(crate) fn head(&self) -> &[u8] {
        &self.ready[..self.layout.head_end]
    }

    /// The line `Content-Type`.
    pub(crate) fn type_line(&self) -> &[u8] {
        &self.ready[self.layout.status_end..self.layout.type_end]
    }

    /// The fields that a 206 has too.
    pub(crate) fn fields(&self) -> &[u8] {
        &self.ready[self.layout.type_end..self.layout.fields_end]
    }

    /// The body, if it is in memory.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&[u8]> {
        match self.file {
            None => Some(&self.ready[self.layout.head_end..]),
            Some(_) => None,
        }
    }

    /// Whether the open file is still the one the head was written for. True without a system call
    /// if the body is in memory.
    pub(crate) fn is_intact(&self) -> bool {
        let Some(file) = &self.file else { return true };
        file::stamp_known(file.as_fd()).is_ok_and(|now| is_unchanged(&self.stamp, &now))
    }

    /// What its heads and its body in memory cost to keep, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        (self.ready.len() + self.not_modified.len()) as u64
    }

    pub(crate) fn is_weak(&self) -> bool {
        self.etag.starts_with(b"W/")
    }
}

impl Entry {
    /// An entry that is not fresh until [`freshen`](Entry::freshen) says so.
    pub(crate) fn new(key: Key, what: What) -> Entry {
        let is_on_disk = match &what {
            What::Found(found) => found.variants().any(|variant| variant.file.is_some()),
            _ => false,
        };
        let fresh_until_ms = AtomicU64::new(1);
        Entry { key, what, is_on_disk, fresh_until_ms, made_bytes: AtomicU64::new(0) }
    }

    /// Whether every open file is still what its head says. One system call for each.
    pub(crate) fn is_intact(&self) -> bool {
        match &self.what {
            What::Found(found) => found.variants().all(Variant::is_intact),
            _ => true,
        }
    }

    #[inline]
    pub(crate) fn is_fresh(&self, now_ms: u64) -> bool {
        // Relaxed: a hit needs no order with other memory; the bytes never change.
        now_ms < self.fresh_until_ms.load(Relaxed)
    }

    /// Marks it dead; whether it was alive.
    pub(crate) fn kill(&self) -> bool {
        self.fresh_until_ms.swap(DEAD, Relaxed) != DEAD
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.fresh_until_ms.load(Relaxed) == DEAD
    }

    /// Lets it be answered with until `until_ms`, unless it is dead.
    pub(crate) fn freshen(&self, until_ms: u64) {
        let alive = |old| (old != DEAD).then_some(until_ms.max(1));
        // Err only says that it is dead, which is what must stay so.
        let _ = self.fresh_until_ms.fetch_update(Relaxed, Relaxed, alive);
    }

    /// What it costs to keep, in bytes; an open file costs `file_bytes`.
    pub(crate) fn weight(&self, file_bytes: u64) -> u64 {
        // the path stands in the graph of directories once more
        let mut weight = OVERHEAD_BYTES + 2 * self.key.path.len() as u64;
        weight += self.made_bytes.load(Relaxed);
        match &self.what {
            What::Found(found) => {
                for variant in found.variants() {
                    weight += variant.weight();
                    weight += variant.file.as_ref().map_or(0, |file| file_bytes + file.weight());
                }
            }
            What::Redirect(head) => weight += head.len() as u64,
            What::Missing | What::Denied | What::Failed(_) => {}
        }
        weight
    }
}

/// Whether the content is the same. The time of the last change of attributes moves whenever
/// content does, but also when the file loses a name because another was renamed over it; then
/// the content is still whole.
pub(crate) fn is_unchanged(before: &Stamp, after: &Stamp) -> bool {
    (before.device, before.inode, before.size, before.mtime_ns)
        == (after.device, after.inode, after.size, after.mtime_ns)
        && (before.ctime_ns == after.ctime_ns || before.links != after.links)
}
