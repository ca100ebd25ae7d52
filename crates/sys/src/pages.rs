//! The parts of a file that are in memory: the page cache, reading through it and around it.

use crate::file::stamp_known;
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Appends up to `most` bytes of the file from `offset` on to `buffer`; 0 at the end of the file, or
/// if the buffer has no room left. Nothing is allocated. May block.
///
/// # Errors
/// The error of the kernel; an interruption is not an error.
pub fn append_at(
    file: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    most: usize,
    offset: u64,
) -> io::Result<usize> {
    append_with(file, buffer, most, offset, 0)
}

/// Appends like [`append_at`], but only what is in memory: does not wait for a disk.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if the first byte is not in memory,
/// [`io::ErrorKind::Unsupported`] where that cannot be known (overlayfs, network file systems).
pub fn append_resident_at(
    file: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    most: usize,
    offset: u64,
) -> io::Result<usize> {
    append_with(file, buffer, most, offset, libc::RWF_NOWAIT)
}

/// Reads the part of the file from `offset` on that is in memory into `buffer`, at most up to the
/// first byte that is not; 0 at the end of the file. Does not wait for a disk.
///
/// # Errors
/// The errors of [`append_resident_at`].
pub fn read_resident_at(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let buffers = &mut [IoSliceMut::new(buffer)];
    match rustix::io::preadv2(file, buffers, offset, ReadWriteFlags::NOWAIT) {
        Ok(count) => Ok(count),
        // an interruption shows that the call began to wait
        Err(Errno::AGAIN | Errno::INTR) => Err(io::ErrorKind::WouldBlock.into()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            Err(io::ErrorKind::Unsupported.into())
        }
        Err(error) => Err(error.into()),
    }
}

fn append_with(
    file: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    most: usize,
    offset: u64,
    flags: i32,
) -> io::Result<usize> {
    let spare = buffer.spare_capacity_mut();
    let len = most.min(spare.len());
    if len == 0 {
        return Ok(0);
    }
    let part = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: len };
    if i64::try_from(offset).is_err() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        // SAFETY: `part` describes the first `len` bytes of the buffer's spare capacity, which is
        // borrowed mutably and lives across the call; the kernel only writes there.
        let count = unsafe {
            libc::syscall(
                libc::SYS_preadv2,
                file.as_raw_fd(),
                &raw const part,
                1 as libc::c_long,
                // the offset in two halves, of which the second counts where a word has 32 bits
                offset as libc::c_long,
                (offset >> 32) as libc::c_long,
                flags,
            )
        };
        if let Ok(count) = usize::try_from(count) {
            // SAFETY: the kernel has written the first `count` bytes behind what was there, and
            // returns no more than it was given room for.
            unsafe { buffer.set_len(buffer.len() + count) };
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => {
                return Err(io::ErrorKind::Unsupported.into());
            }
            _ => return Err(error),
        }
    }
}

/// The number of bytes that offsets, lengths and addresses must be multiples of for
/// [`read_around`]. Few disks and file systems need a larger one; reading fails there with
/// `EINVAL`.
pub const AROUND_BYTES: usize = 4096;

/// Has reads of the open regular file go around the page cache, or through it again: straight from
/// the disk into the buffer, and no page is kept. What others have written and is not on the disk
/// yet is written there first. Place in the buffer, offset and length must be multiples of
/// [`AROUND_BYTES`].
///
/// # Errors
/// `EINVAL` where the file system cannot do that.
pub fn read_around(file: BorrowedFd<'_>, around: bool) -> io::Result<()> {
    // the other flags that could be set have no effect on reads of a regular file
    let flags = if around { OFlags::DIRECT } else { OFlags::empty() };
    Ok(rustix::fs::fcntl_setfl(file, flags)?)
}

/// Asks the kernel to begin reading a part of a file that will be needed soon.
///
/// # Errors
/// The error of the kernel; harmless to ignore.
pub fn will_need(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let len = std::num::NonZeroU64::new(len);
    Ok(rustix::fs::fadvise(file, offset, len, rustix::fs::Advice::WillNeed)?)
}

/// Turns off the kernel's read-ahead for the file.
///
/// # Errors
/// The error of the kernel; harmless to ignore.
pub fn read_no_further(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random)?)
}

/// Whether all of `len` bytes at `offset` have pages in memory. Does not block.
///
/// A page that is being read counts, although reading it would wait: only a caller that knows that the
/// range was read before, and is not read again, knows that it will not block.
///
/// Asks cachestat(2) (since 6.5), which counts exactly but which the kernel refuses for files that
/// the process neither owns nor may write (since 6.14 and in stable kernels). Then single bytes
/// are read with `RWF_NOWAIT` at both ends and every 64 KiB between them: a sample, but the kernel
/// reads ahead in runs about that long. Bytes past the end of the file count as present.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] where neither way works (overlayfs, some network file systems):
/// nothing is known, and asking again will not help.
pub fn is_resident(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<bool> {
    if len == 0 {
        return Ok(true);
    }
    match cached_pages(file, offset, len) {
        Some(pages) => is_covered(file, offset, len, pages),
        None => probe(file, offset, len),
    }
}

/// Whether all of `len` bytes at `offset` are known to have pages in memory. Costs less than
/// [`is_resident`] and never begins to read anything, but the kernel answers only a process that
/// owns the file or may write it; for others the result is `false`.
pub fn is_known_resident(file: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    let page = rustix::param::page_size() as u64;
    let wanted = offset.saturating_add(len).div_ceil(page).saturating_sub(offset / page);
    cached_pages(file, offset, len).is_some_and(|pages| pages >= wanted)
}

/// Has the kernel drop what it holds of a file in memory, so that its next reader waits for the
/// disk. What is not on the disk yet is written first; what a process has mapped stays.
///
/// # Errors
/// The file cannot be written to the disk. A file system that lives in memory (tmpfs) keeps
/// everything, and returns no error.
pub fn forget(file: BorrowedFd<'_>) -> io::Result<()> {
    rustix::fs::fdatasync(file)?;
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}

/// Whether `pages` are all pages that the file has between `offset` and `offset + len`.
fn is_covered(file: BorrowedFd<'_>, offset: u64, len: u64, pages: u64) -> io::Result<bool> {
    let page = rustix::param::page_size() as u64;
    let between = |end: u64| end.div_ceil(page).saturating_sub(offset / page);
    let end = offset.saturating_add(len);
    Ok(pages >= between(end) || pages >= between(end.min(stamp_known(file)?.size)))
}

/// The number of pages of the range that are in memory; `None` if the kernel does not answer.
fn cached_pages(file: BorrowedFd<'_>, offset: u64, len: u64) -> Option<u64> {
    /// The number of cachestat(2), the same on every architecture but Alpha.
    const SYS_CACHESTAT: libc::c_long = 451;
    static IS_MISSING: AtomicBool = AtomicBool::new(false);
    if IS_MISSING.load(Relaxed) {
        return None;
    }
    let range: [u64; 2] = [offset, len];
    // nr_cache, nr_dirty, nr_writeback, nr_evicted, nr_recently_evicted
    let mut counts: [u64; 5] = [0; 5];
    // SAFETY: both arrays are laid out as the kernel's `struct cachestat_range` (two u64) and
    // `struct cachestat` (five u64), and live across the call; the descriptor is borrowed.
    let outcome = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            range.as_ptr(),
            counts.as_mut_ptr(),
            0 as libc::c_uint,
        )
    };
    if outcome == 0 {
        return Some(counts[0]);
    }
    if io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
        IS_MISSING.store(true, Relaxed);
    }
    None
}

fn probe(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<bool> {
    const STRIDE: u64 = 64 * 1024;
    let last = offset.saturating_add(len - 1);
    let mut at = offset;
    loop {
        match read_resident_at(file, &mut [0], at) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        if at == last {
            return Ok(true);
        }
        at = at.saturating_add(STRIDE).min(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;

    /// Whether the file is on an overlay, where no process learns what is in memory, or in memory
    /// itself.
    fn hides_its_pages(file: &fs::File) -> bool {
        const TMPFS: i64 = 0x0102_1994;
        const OVERLAY: i64 = 0x794c_7630;
        let kind = rustix::fs::fstatfs(file).unwrap().f_type as i64;
        kind == OVERLAY || kind == TMPFS
    }

    #[test]
    fn what_is_forgotten_is_not_resident() {
        // not in /tmp, which may be in memory
        let name = format!("forget-{}", std::process::id());
        let path = std::env::current_exe().unwrap().with_file_name(name);
        fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
        let file = fs::File::open(&path).unwrap();
        if hides_its_pages(&file) {
            fs::remove_file(path).unwrap();
            return eprintln!("SKIPPED: on this file system residency is not known");
        }
        match is_resident(file.as_fd(), 0, 1 << 20) {
            Ok(resident) => assert!(resident),
            Err(error) => return eprintln!("SKIPPED: residency is not known here: {error}"),
        }
        forget(file.as_fd()).unwrap();
        assert!(!is_resident(file.as_fd(), 0, 1 << 20).unwrap());
        // the look before has begun to read ahead, and what is being read is not dropped
        let cold = (0..1000).find_map(|_| {
            forget(file.as_fd()).unwrap();
            read_resident_at(file.as_fd(), &mut [0; 10], 1 << 19).err()
        });
        let cold = cold.unwrap().kind();
        assert!(matches!(cold, io::ErrorKind::WouldBlock | io::ErrorKind::Unsupported));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_was_just_written_is_resident() {
        let path = std::env::temp_dir().join(format!("forebay-pages-{}", std::process::id()));
        fs::write(&path, vec![7; 300_000]).unwrap();
        let file = fs::File::open(&path).unwrap();
        let is_known = !hides_its_pages(&file) || is_resident(file.as_fd(), 0, 1).unwrap_or(false);
        for (offset, len) in [(0, 300_000), (0, 0), (299_999, 1), (100, 10_000_000), (400_000, 1)] {
            if is_known {
                assert!(is_resident(file.as_fd(), offset, len).unwrap(), "{offset} {len}");
            }
            if let Ok(present) = probe(file.as_fd(), offset, len.max(1)) {
                assert!(present, "{offset} {len}");
            }
        }
        let mut buffer = [0; 10];
        match read_resident_at(file.as_fd(), &mut buffer, 299_993) {
            Ok(count) => assert_eq!((count, buffer), (7, [7, 7, 7, 7, 7, 7, 7, 0, 0, 0])),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
        }
        fs::remove_file(path).unwrap();
    }
}
