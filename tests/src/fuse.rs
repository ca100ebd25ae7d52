//! A file system (FUSE) in which names are always found, but opening or reading some files hangs
//! until released.
//!
//! The file system stands for a failing disk or a lost network mount: a thread that reads such a file
//! waits in the kernel until the test releases it. Needs `/dev/fuse` and the right to mount.

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry,
    ReplyOpen, Request, SessionACL,
};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time for which the kernel may cache names and sizes. They never change here.
const TTL: Duration = Duration::from_secs(3600);

/// One file of a [`HangingFiles`].
#[derive(Clone, Debug)]
pub struct HangingFile {
    /// The file's name, in the only directory there is.
    pub name: String,
    /// The file's length in bytes.
    pub len: u64,
    /// The calls that hang.
    pub hangs: Hangs,
}

/// The calls on a file that hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hangs {
    /// No call.
    Never,
    /// Each open.
    Open,
    /// Each read that reaches this offset or beyond.
    ReadFrom(u64),
}

impl HangingFile {
    /// A file of `len` bytes whose calls hang as `hangs` says.
    pub fn new(name: impl Into<String>, len: u64, hangs: Hangs) -> HangingFile {
        HangingFile { name: name.into(), len, hangs }
    }

    /// All bytes of the file.
    pub fn content(&self) -> Vec<u8> {
        (0..self.len).map(byte_at).collect()
    }
}

/// The byte of every file at `offset`. Its period is prime, so that a piece from the wrong place is
/// noticed.
fn byte_at(offset: u64) -> u8 {
    b'a' + (offset % 251 % 26) as u8
}

/// The mounted file system. It is unmounted when this is dropped; calls that still hang fail.
#[derive(Debug)]
pub struct HangingFiles {
    session: Option<BackgroundSession>,
    waiting: Arc<Mutex<HangingCalls>>,
}

/// The calls that hang, and whether all were released.
#[derive(Debug, Default)]
struct HangingCalls {
    released: bool,
    opens: Vec<ReplyOpen>,
    reads: Vec<(ReplyData, Vec<u8>)>,
}

impl HangingFiles {
    /// Mounts `files` on the existing directory `at`.
    ///
    /// # Errors
    /// The error of the kernel: no `/dev/fuse`, no right to mount.
    pub fn mount(at: &Path, files: Vec<HangingFile>) -> io::Result<HangingFiles> {
        let waiting = Arc::new(Mutex::new(HangingCalls::default()));
        let tree = Tree { files, waiting: Arc::clone(&waiting), born: SystemTime::now() - TTL };
        let mut config = Config::default();
        // The server under test may have given up the identity it was started with.
        config.acl = SessionACL::All;
        let session = fuser::spawn_mount(tree, at, &config)?;
        Ok(HangingFiles { session: Some(session), waiting })
    }

    /// The number of calls that hang now.
    pub fn hanging(&self) -> usize {
        let waiting = lock(&self.waiting);
        waiting.opens.len() + waiting.reads.len()
    }

    /// Answers all calls that hang, and from now on every call at once.
    pub fn release(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.released = true;
        for reply in waiting.opens.drain(..) {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        }
        for (reply, bytes) in waiting.reads.drain(..) {
            reply.data(&bytes);
        }
    }

    /// Releases all calls when dropped, on failure too. This is made after the server was started, so
    /// that it is dropped first: a process in such a read cannot even be killed.
    pub fn release_at_end(&self) -> Releasing<'_> {
        Releasing(self)
    }
}

/// See [`HangingFiles::release_at_end`].
#[derive(Debug)]
pub struct Releasing<'f>(&'f HangingFiles);

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Drop for HangingFiles {
    fn drop(&mut self) {
        self.release();
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}

fn lock(waiting: &Mutex<HangingCalls>) -> std::sync::MutexGuard<'_, HangingCalls> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tree that answers the kernel. Inode 1 is the directory, inode `i + 2` is file `i`.
struct Tree {
    files: Vec<HangingFile>,
    waiting: Arc<Mutex<HangingCalls>>,
    born: SystemTime,
}

impl Tree {
    fn file(&self, ino: INodeNo) -> Option<&HangingFile> {
        let index = usize::try_from(ino.0.checked_sub(2)?).ok()?;
        self.files.get(index)
    }

    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o755, 0),
            _ => (FileType::RegularFile, 0o644, self.file(ino)?.len),
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
}

impl Filesystem for Tree {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Reads ahead that hang must not use up what the kernel lets be under way at once, or the
        // files beside them would hang for a reason of ours.
        let _ = config.set_max_background(1024);
        let _ = config.set_congestion_threshold(1024);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.files.iter().position(|file| OsStr::new(&file.name) == name);
        let ino = found.map(|index| INodeNo(index as u64 + 2));
        match ino.filter(|_| parent == INodeNo::ROOT).and_then(|ino| self.attributes(ino)) {
            Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut waiting = lock(&self.waiting);
        if !waiting.released && self.file(ino).is_some_and(|file| file.hangs == Hangs::Open) {
            waiting.opens.push(reply);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        }
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
        let Some(file) = self.file(ino) else { return reply.error(Errno::ENOENT) };
        let end = (offset + u64::from(size)).min(file.len);
        let bytes: Vec<u8> = (offset..end).map(byte_at).collect();
        let mut waiting = lock(&self.waiting);
        let does_hang = matches!(file.hangs, Hangs::ReadFrom(from) if end > from);
        if does_hang && !waiting.released {
            waiting.reads.push((reply, bytes));
        } else {
            reply.data(&bytes);
        }
    }
}
