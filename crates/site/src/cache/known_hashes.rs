//! Hashes of the contents of files that are not held in memory, by the files' stamps, so that a
//! file is hashed once.
//!
//! Bodies that wait in pipes or are sent from the disk pass by here unread. A stamp stands for its
//! file as long as the file's file system is mounted: the kernel gives a device's number to another
//! one only after the first has gone. When a root leads elsewhere all hashes are
//! [forgotten](KnownHashes::forget).

use crate::heads::entity_tag::ContentHash;
use forebay_sys::file::Stamp;
use quick_cache::sync::Cache;
use std::sync::OnceLock;

/// The largest number of files that are remembered; each takes about 128 bytes.
const MOST_FILES: usize = 1 << 16;

/// The least size of a file that is remembered; smaller ones are read as fast as they are found
/// here.
const LEAST_BYTES: u64 = 16 * 1024;

/// The hashes of files.
#[derive(Default)]
pub(crate) struct KnownHashes(OnceLock<Cache<FileState, ContentHash>>);

/// A file in one state.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
}

impl From<&Stamp> for FileState {
    fn from(stamp: &Stamp) -> FileState {
        let &Stamp { device, inode, size, mtime_ns, ctime_ns, .. } = stamp;
        FileState { device, inode, size, mtime_ns, ctime_ns }
    }
}

impl KnownHashes {
    pub(crate) fn get(&self, stamp: &Stamp) -> Option<ContentHash> {
        self.0.get()?.get(&FileState::from(stamp))
    }

    /// Remembers the hash of a file that had this stamp before it was read and after.
    pub(crate) fn learn(&self, stamp: &Stamp, hash: ContentHash) {
        if stamp.size >= LEAST_BYTES {
            self.0.get_or_init(|| Cache::new(MOST_FILES)).insert(FileState::from(stamp), hash);
        }
    }

    /// Forgets all hashes, as another file system may be where one was.
    pub(crate) fn forget(&self) {
        if let Some(known) = self.0.get() {
            known.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_sys::file::FileKind;

    #[test]
    fn a_hash_is_known_until_the_file_changes() {
        let (device, inode, links, size, mtime_ns, ctime_ns) = (1, 2, 1, LEAST_BYTES, 3, 4);
        let kind = FileKind::Regular;
        let stamp = Stamp { kind, device, inode, links, size, mtime_ns, ctime_ns };
        let (known, hash) = (KnownHashes::default(), ContentHash::of(b"a"));
        known.learn(&Stamp { size: LEAST_BYTES - 1, ..stamp }, hash);
        assert!(known.get(&Stamp { size: LEAST_BYTES - 1, ..stamp }).is_none());
        known.learn(&stamp, hash);
        assert_eq!(known.get(&Stamp { links: 0, ..stamp }), Some(hash), "removed, and still open");
        assert!(known.get(&Stamp { ctime_ns: 5, ..stamp }).is_none(), "its time was put back");
        known.forget();
        assert!(known.get(&stamp).is_none());
    }
}
