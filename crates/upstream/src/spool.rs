//! The spool: bodies of requests on disk, which are collected before an application is asked and do
//! not fit in memory.
//!
//! Each body is an unnamed file in one directory: no other process finds it, and nothing of it is
//! left when the exchange is over or the process is killed. All bodies together have a limit, and so
//! do their descriptors.
//!
//! A disk may be slow, so one thread does all of this: it starts with the first body, and makes,
//! writes, reads and closes the files. A loop, thread or fiber waits for the thread by a bell, as it
//! waits for a socket. Only what is in the page cache is read directly.

use forebay_conn::SocketId;
use forebay_sys::epoll::Bell;
use forebay_sys::file::{open_directory, read_at};
use forebay_sys::stderr::say;
use forebay_sys::{clock, pages, unnamed};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

/// The least time between two lines that tell the operator that the spool is full, in milliseconds.
const TELL_MS: u64 = 10_000;

/// How much of a body is written or read at a time.
pub(crate) const PART_BYTES: usize = 64 * 1024;

/// The directory for bodies of requests, and its limits.
#[derive(Debug)]
pub struct Spool {
    directory: OwnedFd,
    most_bytes: AtomicU64,
    bytes: AtomicU64,
    most_files: AtomicU64,
    files: AtomicU64,
    /// When the operator last got a line that there is no room.
    told_ms: AtomicU64,
    /// The tasks for the thread; `None` if no thread could be started.
    tasks: OnceLock<Option<Sender<SpoolTask>>>,
}

/// Why a body cannot be on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSpool {
    /// The bodies have reached their limit, or the disk is full or has failed.
    Full,
    /// There are no more descriptors for bodies.
    Descriptors,
}

/// The file of one body. Only one operation is under way on it at a time.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    /// `None` only while it is dropped.
    shared: Option<Arc<SharedFile>>,
    socket_id: SocketId,
    is_busy: bool,
    /// The number of bytes that were given to be written.
    len: u64,
}

/// The part of a file that the thread shares.
#[derive(Debug)]
struct SharedFile {
    spool: Arc<Spool>,
    bell: Bell,
    file: OnceLock<OwnedFd>,
    done: Mutex<Option<SpoolDone>>,
    reserved_bytes: AtomicU64,
}

/// The result of a task.
#[derive(Debug)]
pub(crate) enum SpoolDone {
    /// All bytes are written.
    Written,
    /// These bytes are in the file from `at` on.
    Read { at: u64, bytes: Vec<u8> },
    /// The task has failed.
    Failed,
}

/// A task of the thread.
#[derive(Debug)]
enum SpoolTask {
    Write {
        to: Arc<SharedFile>,
        at: u64,
        bytes: Vec<u8>,
    },
    Read {
        from: Arc<SharedFile>,
        at: u64,
    },
    /// closing a large file may take long, too
    Close(Arc<SharedFile>),
}

impl Spool {
    /// A spool in this directory, which is opened now. Its file system must support unnamed files
    /// ([`try_out`](Spool::try_out)).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(path: &Path, most_bytes: u64, most_files: u64) -> io::Result<Arc<Spool>> {
        Ok(Arc::new(Spool {
            directory: open_directory(path)?,
            most_bytes: AtomicU64::new(most_bytes),
            bytes: AtomicU64::default(),
            most_files: AtomicU64::new(most_files),
            files: AtomicU64::default(),
            told_ms: AtomicU64::default(),
            tasks: OnceLock::new(),
        }))
    }

    /// Makes a file in the directory, with the rights that this process has now.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where the file system has no unnamed files; otherwise what the
    /// kernel says.
    pub fn try_out(&self) -> io::Result<()> {
        unnamed::create(self.directory.as_fd()).map(drop)
    }

    /// Whether the file system is in memory.
    pub fn is_in_memory(&self) -> bool {
        unnamed::is_in_memory(self.directory.as_fd()).unwrap_or_default()
    }

    /// Changes the limits. Bodies that are there stay.
    pub fn set(&self, most_bytes: u64, most_files: u64) {
        self.most_bytes.store(most_bytes, Ordering::Relaxed);
        self.most_files.store(most_files, Ordering::Relaxed);
    }

    /// The number of bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A new, empty file for a body.
    pub(crate) fn file(self: &Arc<Self>) -> Result<SpoolFile, NoSpool> {
        if !charge(&self.files, 1, &self.most_files) {
            return Err(NoSpool::Descriptors);
        }
        let Ok(bell) = Bell::new() else {
            self.files.fetch_sub(1, Ordering::Relaxed);
            return Err(NoSpool::Descriptors);
        };
        let shared = SharedFile {
            spool: Arc::clone(self),
            bell,
            file: OnceLock::new(),
            done: Mutex::default(),
            reserved_bytes: AtomicU64::default(),
        };
        Ok(SpoolFile {
            shared: Some(Arc::new(shared)),
            socket_id: SocketId::new(),
            is_busy: false,
            len: 0,
        })
    }

    fn give(&self, task: SpoolTask) -> Result<(), NoSpool> {
        let tasks = self.tasks.get_or_init(|| {
            let (tasks, given) = mpsc::channel();
            let started = thread::Builder::new().name("spool".to_owned()).spawn(|| run(given));
            started.is_ok().then_some(tasks)
        });
        let sent = tasks.as_ref().map(|tasks| tasks.send(task));
        sent.and_then(Result::ok).ok_or(NoSpool::Full)
    }

    /// Writes a line for the operator that there is no room, and why; not for each body.
    fn tell(&self, why: impl FnOnce() -> String) {
        let (now_ms, told_ms) = (clock::coarse_ms(), self.told_ms.load(Ordering::Relaxed));
        let is_due = told_ms == 0 || now_ms.saturating_sub(told_ms) >= TELL_MS;
        let exchanged =
            self.told_ms.compare_exchange(told_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed);
        if is_due && exchanged.is_ok() {
            say(format_args!("spool_dir: {}: request bodies get 507", why()));
        }
    }
}

/// Adds `more` to the count, if the limit allows it.
fn charge(count: &AtomicU64, more: u64, most: &AtomicU64) -> bool {
    let most = most.load(Ordering::Relaxed);
    let counted = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
        now.checked_add(more).filter(|then| *then <= most)
    });
    counted.is_ok()
}

impl SpoolFile {
    fn shared(&self) -> Option<&Arc<SharedFile>> {
        self.shared.as_ref()
    }

    /// The descriptor that becomes readable when the thread has done a task.
    pub(crate) fn bell(&self) -> Option<(SocketId, BorrowedFd<'_>)> {
        Some((self.socket_id, self.shared()?.bell.as_fd()))
    }

    /// Whether an operation is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// The number of bytes that were given to be written.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Appends these bytes to the file. Must not be called while it is busy.
    pub(crate) fn write(&mut self, bytes: Vec<u8>) -> Result<(), NoSpool> {
        let Some(shared) = self.shared() else { return Err(NoSpool::Full) };
        let (spool, more) = (&shared.spool, bytes.len() as u64);
        if !charge(&spool.bytes, more, &spool.most_bytes) {
            spool.tell(|| "request bodies have as much as they may (spool_dir_bytes)".to_owned());
            return Err(NoSpool::Full);
        }
        shared.reserved_bytes.fetch_add(more, Ordering::Relaxed);
        let task = SpoolTask::Write { to: Arc::clone(shared), at: self.len, bytes };
        spool.give(task)?;
        (self.len, self.is_busy) = (self.len + more, true);
        Ok(())
    }

    /// Appends what is in the page cache from `at` on, at most as much as `out` has room for. Appends
    /// nothing if the disk must be read: [`read`](SpoolFile::read) does that.
    pub(crate) fn append(&self, at: u64, out: &mut Vec<u8>) -> usize {
        let file = self.shared().and_then(|shared| shared.file.get());
        let most = usize::try_from(self.len - at.min(self.len)).unwrap_or(usize::MAX);
        let append = |file: &OwnedFd| {
            pages::append_resident_at(file.as_fd(), out, most.min(PART_BYTES), at).ok()
        };
        file.and_then(append).unwrap_or_default()
    }

    /// Has the next bytes from `at` on read. Must not be called while it is busy.
    pub(crate) fn read(&mut self, at: u64) -> Result<(), NoSpool> {
        let Some(shared) = self.shared() else { return Err(NoSpool::Full) };
        shared.spool.give(SpoolTask::Read { from: Arc::clone(shared), at })?;
        self.is_busy = true;
        Ok(())
    }

    /// The result of the operation, once it is done.
    pub(crate) fn take(&mut self) -> Option<SpoolDone> {
        if !self.is_busy {
            return None;
        }
        let shared = self.shared()?;
        // silenced before the look, so that a later result rings again
        shared.bell.silence();
        let done = shared.done.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        self.is_busy = false;
        Some(done)
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take()
            && shared.file.get().is_some() | self.is_busy
        {
            let spool = Arc::clone(&shared.spool);
            let _ = spool.give(SpoolTask::Close(shared));
        }
    }
}

impl SharedFile {
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let file = match self.file.get() {
            Some(file) => file,
            None => {
                let made = unnamed::create(self.spool.directory.as_fd())?;
                self.file.get_or_init(|| made)
            }
        };
        unnamed::write_all_at(file.as_fd(), bytes, at)
    }

    fn read(&self, at: u64) -> io::Result<Vec<u8>> {
        let file = self.file.get().ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; PART_BYTES];
        let count = read_at(file.as_fd(), &mut bytes, at)?;
        bytes.truncate(count);
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }

    fn tell(&self, outcome: io::Result<SpoolDone>) {
        let done = outcome.unwrap_or_else(|error| {
            self.spool.tell(|| error.to_string());
            SpoolDone::Failed
        });
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        self.bell.ring();
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // the room is free only once the file is closed
        drop(self.file.take());
        let reserved = self.reserved_bytes.load(Ordering::Relaxed);
        self.spool.bytes.fetch_sub(reserved, Ordering::Relaxed);
        self.spool.files.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The thread's loop, until no spool can send tasks any more.
fn run(tasks: Receiver<SpoolTask>) {
    for task in tasks {
        match task {
            SpoolTask::Write { to, at, bytes } => {
                let written = to.write(at, &bytes);
                drop(bytes);
                to.tell(written.map(|()| SpoolDone::Written));
            }
            SpoolTask::Read { from, at } => {
                from.tell(from.read(at).map(|bytes| SpoolDone::Read { at, bytes }));
            }
            SpoolTask::Close(file) => drop(file),
        }
    }
}

#[cfg(test)]
#[path = "spool_tests.rs"]
pub(crate) mod tests;
