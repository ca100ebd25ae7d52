//! Words of memory that several processes share.
//!
//! In: the number of words. Out: the words, zero at first, and a descriptor by which another
//! process gets the same ones. The memory cannot be made shorter or longer, so that no process can
//! take a page away from another.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;

/// Words that other processes may have, too. They stay mapped until the process ends.
#[derive(Debug)]
pub struct SharedWords {
    words: &'static [AtomicU64],
    memory: OwnedFd,
}

impl SharedWords {
    /// New words, all zero. Pages that are never touched take no memory.
    ///
    /// # Errors
    /// Lack of descriptors or memory, or a kernel without the calls.
    pub fn new(count: usize) -> io::Result<SharedWords> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create(c"forebay", flags)?;
        rustix::fs::ftruncate(&memory, bytes(count)? as u64)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memory, seals)?;
        SharedWords::map(memory, count)
    }

    /// The words of another process.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the memory is of another size, or could become shorter;
    /// lack of memory.
    pub fn of(memory: OwnedFd, count: usize) -> io::Result<SharedWords> {
        let (size, seals) =
            (rustix::fs::fstat(&memory)?.st_size, rustix::fs::fcntl_get_seals(&memory)?);
        let is_sealed = seals.contains(SealFlags::SHRINK);
        if !is_sealed || u64::try_from(size).ok() != Some(bytes(count)? as u64) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        SharedWords::map(memory, count)
    }

    fn map(memory: OwnedFd, count: usize) -> io::Result<SharedWords> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let length = bytes(count)?;
        // SAFETY: a mapping of its own, wherever the kernel puts it.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, &memory, 0)
        }?;
        // SAFETY: `count` words are mapped there, aligned to pages; they are never unmapped, and
        // the seals keep the memory as long as it is. Any bits are a word, and all access is
        // atomic.
        let words = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), count) };
        Ok(SharedWords { words, memory })
    }

    /// The words.
    pub fn words(&self) -> &'static [AtomicU64] {
        self.words
    }

    /// A descriptor by which another process gets the same words.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn hand(&self) -> io::Result<OwnedFd> {
        self.memory.as_fd().try_clone_to_owned()
    }
}

fn bytes(count: usize) -> io::Result<usize> {
    count.checked_mul(size_of::<AtomicU64>()).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn what_one_writes_the_other_reads() {
        let own = SharedWords::new(1000).unwrap();
        own.words()[999].store(7, Relaxed);
        let other = SharedWords::of(own.hand().unwrap(), 1000).unwrap();
        assert_eq!(other.words()[999].load(Relaxed), 7);
        other.words()[0].fetch_add(1, Relaxed);
        assert_eq!(own.words()[0].load(Relaxed), 1);
        assert_ne!(own.words().as_ptr(), other.words().as_ptr());
    }

    #[test]
    fn other_memory_is_none() {
        let own = SharedWords::new(1000).unwrap();
        assert!(SharedWords::of(own.hand().unwrap(), 1001).is_err());
        assert!(rustix::fs::ftruncate(own.hand().unwrap(), 8).is_err());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let loose = rustix::fs::memfd_create(c"loose", flags).unwrap();
        rustix::fs::ftruncate(&loose, 8000).unwrap();
        assert!(SharedWords::of(loose, 1000).is_err());
        assert!(SharedWords::of(io::pipe().unwrap().0.into(), 1000).is_err());
    }
}
