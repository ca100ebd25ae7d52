//! Bodies of requests on disk: what is collected before an application is asked, and is too much for memory.
//!
//! Each body is a file without a name in one directory: nobody else finds it, and nothing of it is left when the
//! exchange is over or the process is killed. All bodies together have a bound, and so have their descriptors.
//!
//! What a disk does may take its time, so one thread does it, which starts with the first body; it makes, writes,
//! reads and closes the files. A loop, thread or fiber that waits for that waits for a bell, as it waits for a
//! socket. What is in the page cache is read where it is needed.

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

/// At most every so many milliseconds an operator is told that bodies find no room.
const TELL_MS: u64 = 10_000;

/// So much of a body is written or read at a time.
pub(crate) const PART_BYTES: usize = 64 * 1024;

/// Where bodies of requests are on disk, and how much they may have there.
#[derive(Debug)]
pub struct Spool {
    directory: OwnedFd,
    most_bytes: AtomicU64,
    bytes: AtomicU64,
    most_files: AtomicU64,
    files: AtomicU64,
    /// When the operator was told last that there is no room.
    told_ms: AtomicU64,
    /// To the thread; `None` if there was none to be had.
    tasks: OnceLock<Option<Sender<SpoolTask>>>,
}

/// Why a body cannot be on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSpool {
    /// The bodies there have as much as they may, or the disk has no more, or has failed.
    Full,
    /// There are as many of them as there are descriptors for.
    Descriptors,
}

/// The file of one body. One thing is done with it at a time.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    /// `None` only while it is dropped.
    shared: Option<Arc<SharedFile>>,
    socket_id: SocketId,
    is_busy: bool,
    /// What was given to be written.
    len: u64,
}

/// What the thread has of it, too.
#[derive(Debug)]
struct SharedFile {
    spool: Arc<Spool>,
    bell: Bell,
    file: OnceLock<OwnedFd>,
    done: Mutex<Option<SpoolDone>>,
    reserved_bytes: AtomicU64,
}

/// What the thread has done.
#[derive(Debug)]
pub(crate) enum SpoolDone {
    /// All that was given is written.
    Written,
    /// These bytes are in the file from there on.
    Read { at: u64, bytes: Vec<u8> },
    /// It could not be done.
    Failed,
}

/// What the thread is to do.
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
    /// To close a large file may take its time, too.
    Close(Arc<SharedFile>),
}

impl Spool {
    /// In this directory, which is opened now and must be one in which files without a name can be made
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

    /// Makes a file there, as this process is now.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where the file system has no files without a name; else what the kernel says.
    pub fn try_out(&self) -> io::Result<()> {
        unnamed::create(self.directory.as_fd()).map(drop)
    }

    /// Whether what is written there stays in memory.
    pub fn is_in_memory(&self) -> bool {
        unnamed::is_in_memory(self.directory.as_fd()).unwrap_or_default()
    }

    /// So much may be there from now on. What is there stays.
    pub fn set(&self, most_bytes: u64, most_files: u64) {
        self.most_bytes.store(most_bytes, Ordering::Relaxed);
        self.most_files.store(most_files, Ordering::Relaxed);
    }

    /// What the bodies have there.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A file for a body, of which nothing is there yet.
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

    /// The operator is told why bodies find no room, though not for each.
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

/// Counts `more`, if it may be so much.
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

    /// Becomes readable when the thread has done something.
    pub(crate) fn bell(&self) -> Option<(SocketId, BorrowedFd<'_>)> {
        Some((self.socket_id, self.shared()?.bell.as_fd()))
    }

    /// Whether something is being done with it.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// What was given to be written, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Has this written behind what is there. Not while it is busy.
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

    /// Appends what is in memory of it from `at` on, at most as much as `out` has room for. Nothing if the disk must
    /// be asked: [`read`](SpoolFile::read) does that.
    pub(crate) fn append(&self, at: u64, out: &mut Vec<u8>) -> usize {
        let file = self.shared().and_then(|shared| shared.file.get());
        let most = usize::try_from(self.len - at.min(self.len)).unwrap_or(usize::MAX);
        let append = |file: &OwnedFd| {
            pages::append_resident_at(file.as_fd(), out, most.min(PART_BYTES), at).ok()
        };
        file.and_then(append).unwrap_or_default()
    }

    /// Has the next bytes from `at` on read. Not while it is busy.
    pub(crate) fn read(&mut self, at: u64) -> Result<(), NoSpool> {
        let Some(shared) = self.shared() else { return Err(NoSpool::Full) };
        shared.spool.give(SpoolTask::Read { from: Arc::clone(shared), at })?;
        self.is_busy = true;
        Ok(())
    }

    /// What was done since it was busy, if it was.
    pub(crate) fn take(&mut self) -> Option<SpoolDone> {
        if !self.is_busy {
            return None;
        }
        let shared = self.shared()?;
        // before it is looked: what is done afterwards rings again
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
        // its room is free when it is closed
        drop(self.file.take());
        let reserved = self.reserved_bytes.load(Ordering::Relaxed);
        self.spool.bytes.fetch_sub(reserved, Ordering::Relaxed);
        self.spool.files.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the thread does until nobody can give it anything any more.
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
