//! Storage that takes its time: a file system in user space (FUSE) that answers each read after as
//! long as a disk with moving parts, or one behind a network, would.
//!
//! The disk of a machine may answer in a tenth of a millisecond, in which a request computes as long as it
//! waits: then a core is full before threads are few, and every number of them is as good as another.

use crate::Error;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen,
    Request, SessionACL,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time for which the kernel may remember names and sizes, which never change here.
const REMEMBER: Duration = Duration::from_secs(3600);

/// The contents and the speed of the storage.
#[derive(Clone, Copy, Debug)]
pub struct StorageShape {
    /// Files, in one directory: `0.bin`, `1.bin` and so on.
    pub files: u64,
    /// Bytes of each.
    pub file_bytes: u64,
    /// The time that a read takes, as the mean over the files: half of it for some, half as much
    /// again for others. Any number of them are under way at once.
    pub read: Duration,
}

/// The storage, mounted. Unmounted when dropped.
#[derive(Debug)]
pub struct SlowStorage {
    session: Option<BackgroundSession>,
    due: Arc<Due>,
    clock: Option<JoinHandle<()>>,
}

impl SlowStorage {
    /// Mounts the storage on the directory `at`.
    ///
    /// # Errors
    /// Without `/dev/fuse`, or the right to mount.
    pub fn mount(at: &Path, shape: StorageShape) -> Result<SlowStorage, Error> {
        let due = Arc::<Due>::default();
        let of_clock = Arc::clone(&due);
        let clock = std::thread::Builder::new().name("storage".to_owned());
        let clock = clock.spawn(move || of_clock.answer());
        let clock = clock.map_err(Error::io("cannot begin a thread for", at))?;
        let mut storage = SlowStorage { session: None, due: Arc::clone(&due), clock: Some(clock) };
        let mut config = Config::default();
        // the server may have given up the identity it was started with
        config.acl = SessionACL::All;
        let tree = Tree { shape, due, born: SystemTime::now() - REMEMBER };
        let session = fuser::spawn_mount(tree, at, &config);
        storage.session = Some(session.map_err(Error::io("cannot mount a file system on", at))?);
        Ok(storage)
    }
}

impl Drop for SlowStorage {
    fn drop(&mut self) {
        self.due.end();
        if let Some(clock) = self.clock.take() {
            let _ = clock.join();
        }
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}

/// Reads under way, by the time at which they are answered.
#[derive(Debug, Default)]
struct Due {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The reads, with a number each, for those that are due at the same time.
    reads: BTreeMap<(Instant, u64), (ReplyData, Vec<u8>)>,
    count: u64,
    has_ended: bool,
}

impl Due {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, at: Instant, reply: ReplyData, bytes: Vec<u8>) {
        let mut state = self.lock();
        state.count += 1;
        let key = (at, state.count);
        state.reads.insert(key, (reply, bytes));
        self.changed.notify_one();
    }

    fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_one();
    }

    /// Answers the reads that are due, until the storage ends; those under way then are answered at
    /// once.
    fn answer(&self) {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let has_ended = state.has_ended;
            let wait = match state.reads.first_entry() {
                Some(first) if has_ended || first.key().0 <= now => {
                    let (reply, bytes) = first.remove();
                    drop(state);
                    reply.data(&bytes);
                    state = self.lock();
                    continue;
                }
                _ if has_ended => return,
                Some(first) => first.key().0 - now,
                None => REMEMBER,
            };
            let waited = self.changed.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The files that the kernel asks about. Inode 1 is the directory, inode `i + 2` is file `i`.
struct Tree {
    shape: StorageShape,
    due: Arc<Due>,
    born: SystemTime,
}

impl Tree {
    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o755, 0),
            INodeNo(ino) if (2..self.shape.files + 2).contains(&ino) => {
                (FileType::RegularFile, 0o644, self.shape.file_bytes)
            }
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: self.born,
            mtime: self.born,
            ctime: self.born,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// The time that a read of this file takes: always the same, so that every server finds the
    /// same storage.
    fn read_time(&self, ino: INodeNo) -> Duration {
        // multiples of the golden ratio are spread evenly
        let share = (ino.0 as f64 * 0.618_033_988_749_895).fract();
        self.shape.read.mul_f64(0.5 + share)
    }
}

/// The file that a name names.
fn number(name: &OsStr) -> Option<u64> {
    name.to_str()?.strip_suffix(".bin")?.parse().ok()
}

impl Filesystem for Tree {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ino = number(name).filter(|_| parent == INodeNo::ROOT).map(|file| INodeNo(file + 2));
        match ino.and_then(|ino| self.attributes(ino)) {
            Some(attributes) => reply.entry(&REMEMBER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&REMEMBER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // no byte stays in memory, or the file would be cold only once
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let left = self.shape.file_bytes.saturating_sub(offset).min(size.into());
        match left {
            // the end of the file is known without looking
            0 => reply.data(&[]),
            _ => {
                self.due.put(Instant::now() + self.read_time(ino), reply, vec![b'c'; left as usize])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_take_as_long_as_they_should_on_average_and_each_file_always_the_same() {
        let read = Duration::from_millis(4);
        let shape = StorageShape { files: 1000, file_bytes: 10, read };
        let tree = Tree { shape, due: Arc::default(), born: SystemTime::now() };
        let times: Vec<_> = (2..1002).map(|ino| tree.read_time(INodeNo(ino))).collect();
        let mean = times.iter().sum::<Duration>() / 1000;
        assert!((mean.as_secs_f64() / read.as_secs_f64() - 1.0).abs() < 0.01, "{mean:?}");
        assert!(times.iter().all(|time| *time >= read / 2 && *time <= read * 3 / 2));
        assert_eq!(tree.read_time(INodeNo(7)), times[5]);
    }

    #[test]
    fn only_files_that_are_there_are_found() {
        assert_eq!(number(OsStr::new("17.bin")), Some(17));
        assert_eq!(number(OsStr::new("17.bin.br")), None);
        let shape = StorageShape { files: 3, file_bytes: 10, read: Duration::ZERO };
        let tree = Tree { shape, due: Arc::default(), born: SystemTime::now() };
        let found = [1, 2, 4, 5].map(|ino| tree.attributes(INodeNo(ino)).map(|found| found.size));
        assert_eq!(found, [Some(0), Some(10), Some(10), None]);
    }
}
