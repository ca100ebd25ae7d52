//! Reading a file whole into memory: through the page cache, or around it where that has proved too
//! small for the files that are asked for.
//!
//! A file that was read through the page cache, is asked for again and is not there any more,
//! belongs to a set of files that is too large for the page cache. To read it through the page
//! cache once more evicts others that will be missed as soon. Taking those pages and giving them
//! back costs more processor time than the reading itself. So while few files are found again, they
//! are read straight into the answer ([`pages::read_around`]).
//! One reading of a file in sixteen goes through the page cache all the same: it shows how many are
//! found, and it lets those files come to stay that are asked for most (the bimodal insertion of Qureshi
//! and others, ISCA 2007).
//!
//! The kernel cannot always be asked without harm whether a file is in the page cache: `cachestat`
//! answers only the file's owner, and `RWF_NOWAIT` begins to read what is not there. That is why
//! readings are sampled; where the kernel answers, bytes in the page cache are taken from there.

use crate::bodies::piped::{FilledPipe, Pipes};
use crate::bodies::spare::Spare;
use foldhash::fast::FixedState;
use forebay_sys::file::Stamp;
use forebay_sys::pages::{self, AROUND_BYTES};
use std::hash::BuildHasher;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Smaller files are always read through the page cache: there is little to be gained.
const LEAST_BYTES: usize = 4 * AROUND_BYTES;

/// Files that are remembered, a power of two; each costs four bytes.
const REMEMBERED: usize = 1 << 17;

/// The share of readings that go through the page cache, as one in this number; a power of two.
const THROUGH_EVERY: u32 = 16;

/// The note that the last reading that could have gone either way went through the page cache.
const WAS_THROUGH: u32 = THROUGH_EVERY;

/// The bits of an entry of [`missed`](PageCache::missed) that hold notes; the others tell files
/// apart.
const NOTES: u32 = 2 * THROUGH_EVERY - 1;

/// The share of files found in the page cache that stands for all.
const ALL: u32 = 1 << 16;

/// The share below which files are read around the page cache.
const LEAST_SHARE: u32 = ALL / 4;

/// The number of the last readings that the share follows.
const READINGS: u32 = 32;

/// Statistics of how well the page cache keeps what was read through it.
pub(crate) struct PageCache {
    /// The share of files that were found again, of [`ALL`].
    share: AtomicU32,
    /// Files that were missed, by a hash: other bits of the hash, [`WAS_THROUGH`], and readings since.
    missed: OnceLock<Box<[AtomicU32]>>,
    hasher: FixedState,
}

/// The place of a file that has been read.
#[derive(Debug)]
pub(crate) enum FileAt {
    /// The file is in memory; something may follow it.
    Memory {
        /// Room for the head, and the file.
        ready: Vec<u8>,
        /// The place where the file begins.
        start: usize,
    },
    /// The file is in a pipe, on its way to one client.
    Pipe(FilledPipe),
}

/// The way in which a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadMode {
    /// Through the page cache. The file being there or not says nothing, as it was not read through
    /// the page cache before, as far as is known.
    First,
    /// Through the page cache, which may have kept it.
    Again,
    Around,
}

impl Default for PageCache {
    fn default() -> PageCache {
        let share = AtomicU32::new(ALL);
        PageCache { share, missed: OnceLock::new(), hasher: FixedState::default() }
    }
}

impl PageCache {
    /// The entry for the file in the table of missed files, and the file's mark in it.
    fn place(&self, stamp: &Stamp) -> (&AtomicU32, u32) {
        let places = || (0..REMEMBERED).map(|_| AtomicU32::new(0)).collect();
        let hash = self.hasher.hash_one((stamp.device, stamp.inode));
        let mark = (hash >> 32) as u32 & !NOTES;
        (&self.missed.get_or_init(places)[hash as usize % REMEMBERED], mark)
    }

    fn way(&self, stamp: &Stamp) -> ReadMode {
        let (place, mark) = self.place(stamp);
        let noted = place.load(Relaxed);
        let keeps = self.share.load(Relaxed) >= LEAST_SHARE;
        let is_known = (noted ^ mark) <= NOTES;
        if !is_known && keeps {
            return ReadMode::First;
        }
        let readings = if is_known { (noted % THROUGH_EVERY + 1) % THROUGH_EVERY } else { 1 };
        let was_through = if is_known { noted & WAS_THROUGH } else { 0 };
        if !keeps && readings > 0 {
            place.store(mark | was_through | readings, Relaxed);
            return ReadMode::Around;
        }
        place.store(mark | WAS_THROUGH | readings, Relaxed);
        if was_through > 0 { ReadMode::Again } else { ReadMode::First }
    }

    /// Notes whether the file was in the page cache when it was read.
    fn note(&self, stamp: &Stamp, way: ReadMode, was_there: bool) {
        match (way, was_there) {
            (ReadMode::First, false) => {
                let (place, mark) = self.place(stamp);
                place.store(mark | WAS_THROUGH, Relaxed);
            }
            (ReadMode::Again, _) => {
                // an update that is lost to another thread is one reading less
                let share = self.share.load(Relaxed);
                let more = if was_there { ALL / READINGS } else { 0 };
                self.share.store(share - share / READINGS + more, Relaxed);
            }
            _ => {}
        }
    }

    /// Reads the file behind `room` bytes for its head, into memory from `spare`; or without them into a pipe,
    /// if there are `pipes` and it is not worth keeping. `None` if it does not have the length that its
    /// stamp says; one that `is_appended` may have more. May block.
    pub(crate) fn read(
        &self,
        file: &OwnedFd,
        stamp: &Stamp,
        room: usize,
        spare: &Spare,
        pipes: Option<&Pipes>,
        is_appended: bool,
    ) -> io::Result<Option<FileAt>> {
        let size = usize::try_from(stamp.size).unwrap_or(usize::MAX);
        if size < LEAST_BYTES {
            let mut ready = Vec::with_capacity(room + size);
            ready.resize(room, 0);
            let is_whole = read_on(file, &mut ready, room, size)?;
            return Ok(is_whole.then_some(FileAt::Memory { ready, start: room }));
        }
        let way = self.way(stamp);
        let is_around = way == ReadMode::Around
            && !pages::is_known_resident(file.as_fd(), 0, stamp.size)
            && pages::read_around(file.as_fd(), true).is_ok();
        if is_around && let Some(filled) = pipes.and_then(|pipes| pipes.fill(file.as_fd(), size)) {
            return Ok(Some(FileAt::Pipe(filled)));
        }
        let blocks = size.next_multiple_of(AROUND_BYTES);
        // sizes are rounded so that there are few, and one piece of memory is as good as another
        let mut ready = spare.take((room + AROUND_BYTES).next_multiple_of(1024) + blocks);
        let end = ready.as_ptr().addr() + room;
        let start = room + (end.next_multiple_of(AROUND_BYTES) - end);
        ready.resize(start, 0);
        if is_around {
            // where reading around fails, the page cache is asked
            let _ = pages::append_at(file.as_fd(), &mut ready, blocks, 0);
            if ready.len() < start + size {
                let _ = pages::read_around(file.as_fd(), false);
            }
        } else if way != ReadMode::Around {
            match pages::append_resident_at(file.as_fd(), &mut ready, size, 0) {
                Ok(_) => self.note(stamp, way, true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.note(stamp, way, false);
                }
                // cannot be known here
                Err(_) => {}
            }
        }
        if is_appended {
            // around the page cache whole blocks are read
            ready.truncate(start + size);
        }
        // wait for what did not come
        let is_whole = read_on(file, &mut ready, start, size)?;
        // the buffer is full: it need not shrink to be kept, which would leave small holes all over
        // memory
        ready.resize(ready.capacity(), 0);
        Ok(is_whole.then_some(FileAt::Memory { ready, start }))
    }
}

/// Reads the bytes behind those from `start` on that are there already. Returns whether exactly
/// `size` bytes are there then.
fn read_on(file: &OwnedFd, buffer: &mut Vec<u8>, start: usize, size: usize) -> io::Result<bool> {
    loop {
        let done = buffer.len() - start;
        let Some(left) = size.checked_sub(done).filter(|left| *left > 0) else {
            return Ok(done == size);
        };
        if pages::append_at(file.as_fd(), buffer, left, done as u64)? == 0 {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_sys::file::{self, FileKind};
    use std::fs;

    fn stamp(inode: u64, size: u64) -> Stamp {
        let (device, links, mtime_ns, ctime_ns) = (1, 1, 0, 0);
        Stamp { kind: FileKind::Regular, device, inode, links, size, mtime_ns, ctime_ns }
    }

    /// Asks for files in turn, of which `there` are found; how many were read around.
    fn ask(cache: &PageCache, files: u64, times: u32, there: impl Fn(u64) -> bool) -> u32 {
        let mut around = 0;
        for inode in (0..files).cycle().take(files as usize * times as usize) {
            let stamp = stamp(inode, 1 << 16);
            match cache.way(&stamp) {
                ReadMode::Around => around += 1,
                way => cache.note(&stamp, way, there(inode)),
            }
        }
        around
    }

    #[test]
    fn what_is_found_again_is_never_read_around() {
        let cache = PageCache::default();
        assert_eq!(ask(&cache, 100, 1, |_| false), 0, "nobody has read them before");
        assert_eq!(ask(&cache, 100, 100, |_| true), 0);
        assert_eq!(ask(&cache, 100, 100, |inode| inode % 2 == 0), 0);
    }

    #[test]
    fn what_is_not_kept_is_read_around_until_it_is() {
        let cache = PageCache::default();
        ask(&cache, 1000, 2, |_| false);
        let around = ask(&cache, 1000, 80, |_| false);
        assert_eq!(around, 80_000 / THROUGH_EVERY * (THROUGH_EVERY - 1));
        // there is more memory now
        ask(&cache, 1000, THROUGH_EVERY, |_| true);
        assert_eq!(ask(&cache, 1000, THROUGH_EVERY, |_| true), 0);
    }

    #[test]
    fn what_comes_while_nothing_is_kept_is_read_around_at_once() {
        let cache = PageCache::default();
        ask(&cache, 1000, 3, |_| false);
        let new = |inode: u64| cache.way(&stamp(inode + 5000, 1 << 16));
        assert!((0..100).all(|inode| new(inode) == ReadMode::Around));
        for _ in 2..THROUGH_EVERY {
            assert!((0..100).all(|inode| new(inode) == ReadMode::Around));
        }
        assert!(
            (0..100).all(|inode| new(inode) == ReadMode::First),
            "nobody knows whether it is kept"
        );
        for _ in 1..THROUGH_EVERY {
            assert!((0..100).all(|inode| new(inode) == ReadMode::Around));
        }
        assert!((0..100).all(|inode| new(inode) == ReadMode::Again));
    }

    #[test]
    fn a_file_is_whole_whichever_way_it_is_read() {
        // not in /tmp, which may live in memory
        let path = std::env::current_exe().unwrap();
        let path = path.with_file_name(format!("read-{}", std::process::id()));
        for size in [0, 1, 16_383, 16_384, 16_385, 65_535, 65_536, 100_001] {
            let content: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
            fs::write(&path, &content).unwrap();
            let file: OwnedFd = fs::File::open(&path).unwrap().into();
            let stamp = file::stamp(file.as_fd()).unwrap();
            for is_around in [false, true] {
                let cache = PageCache::default();
                if is_around {
                    // what is there is not read around
                    pages::forget(file.as_fd()).unwrap();
                    cache.share.store(0, Relaxed);
                    cache.note(&stamp, ReadMode::First, false);
                }
                let spare = Spare::default();
                let read = |stamp: &Stamp| {
                    let read = cache.read(&file, stamp, 4, &spare, None, false).unwrap();
                    read.map(|read| match read {
                        FileAt::Memory { ready, start } => (ready, start),
                        FileAt::Pipe(_) => panic!("there are no pipes"),
                    })
                };
                let (bytes, start) = read(&stamp).unwrap();
                assert!(start >= 4);
                assert!(bytes[start..][..size] == content, "{size} {is_around}");
                for other in [size as u64 + 1, size as u64 + 5000] {
                    assert!(read(&Stamp { size: other, ..stamp }).is_none(), "{size} {is_around}");
                }
            }
        }
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_has_grown_does_not_have_its_length() {
        let path = std::env::current_exe().unwrap();
        let path = path.with_file_name(format!("grown-{}", std::process::id()));
        fs::write(&path, vec![7; 70_000]).unwrap();
        let file: OwnedFd = fs::File::open(&path).unwrap().into();
        let stamp = Stamp { size: 69_000, ..file::stamp(file.as_fd()).unwrap() };
        let cache = PageCache::default();
        cache.share.store(0, Relaxed);
        cache.note(&stamp, ReadMode::First, false);
        pages::forget(file.as_fd()).unwrap();
        if let Err(error) = pages::read_around(file.as_fd(), true) {
            return eprintln!("SKIPPED: cannot be read around here: {error}");
        }
        pages::read_around(file.as_fd(), false).unwrap();
        let read = |is_appended| {
            cache.read(&file, &stamp, 0, &Spare::default(), None, is_appended).unwrap()
        };
        assert!(read(false).is_none(), "more came at once than there should be");
        let Some(FileAt::Memory { ready, start }) = read(true) else { panic!("it may grow") };
        assert!(ready[start..][..69_000] == [7; 69_000]);
        fs::remove_file(path).unwrap();
    }
}
