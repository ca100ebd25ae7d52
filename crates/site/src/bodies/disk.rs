//! A file that is sent from the disk, and which parts of it can be sent without waiting for it.
//!
//! The kernel says cheaply which pages have a place in memory, but not whether their bytes have
//! arrived. So a part counts as warm only after a job has read all of it, and as long as all its
//! pages stay; before a job reads it again it is cold. The file is read in whole parts and no
//! further, so that reading one part leaves none of another half arrived.
//!
//! Some file systems (overlayfs) keep a file's pages where a process cannot ask for them. Therefore a
//! part that was just read is sent without asking, once.
//!
//! A transport that encrypts has parts copied to it a piece at a time. Then the bytes are read from
//! the kernel itself, if they are there.

use forebay_http::range::Range;
use forebay_sys::{file, pages};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The size of a part, which is read as a whole, and is warm or cold as a whole: 1 MiB.
pub(crate) const PART_BYTES: u64 = 1 << 20;

/// Bytes read at once.
const SCRATCH_BYTES: usize = 64 * 1024;

/// The largest number of parts that are remembered; a sparse file may have any size.
const MOST_PARTS: u64 = 1024;

/// An open file.
#[derive(Debug)]
pub(crate) struct DiskFile {
    file: OwnedFd,
    size: u64,
    /// Whether the file only grows: then the bytes that were promised are still there if it is
    /// longer.
    pub(crate) is_appended: bool,
    /// The parts that were read whole, each at the place of its number modulo the length: twice its
    /// number and 2, and 1 more if it was not sent since. 0 for none.
    read: Box<[AtomicU64]>,
}

impl DiskFile {
    pub(crate) fn new(file: OwnedFd, size: u64, is_appended: bool) -> DiskFile {
        // without it the kernel reads more than wanted, which costs a job later
        let _ = pages::read_no_further(file.as_fd());
        let parts = size.div_ceil(PART_BYTES).clamp(1, MOST_PARTS);
        let read = (0..parts).map(|_| AtomicU64::new(0)).collect();
        DiskFile { file, size, is_appended, read }
    }

    /// The number of bytes at the start of `range` that can be sent without waiting for the disk,
    /// up to the end of their part.
    pub(crate) fn warm_bytes(&self, range: Range) -> u64 {
        let Some(part) = self.part(range.start) else { return 0 };
        let place = self.place(part);
        let (read, just_read) = (mark(part), mark(part) | 1);
        let len = range.len.min(part.end() - range.start);
        if place.compare_exchange(just_read, read, Relaxed, Relaxed).is_ok() {
            return len;
        }
        if place.load(Relaxed) != read {
            return 0;
        }
        if pages::is_resident(self.file.as_fd(), range.start, len).unwrap_or(false) {
            return len;
        }
        // Err says only that another part has taken the place
        let _ = place.compare_exchange(read, 0, Relaxed, Relaxed);
        0
    }

    /// Reads bytes at the start of `range`, as many as there is room for, up to the end of their part;
    /// 0 at the end of the file. Does not wait for the disk, unless a part has left memory again right
    /// after it was read.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if a job must bring the part into memory first. Where the
    /// kernel does not say what is in memory, a job reads the part again after its end was read
    /// here, not after each piece of it.
    pub(crate) fn read_warm(&self, range: Range, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(part) = self.part(range.start) else { return Ok(0) };
        let (place, read) = (self.place(part), mark(part));
        let known = place.load(Relaxed);
        if known | 1 != read | 1 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let len = range.len.min(part.end() - range.start);
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = &mut buffer[..len];
        let is_unknown = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Unsupported)
        };
        let (result, next) = match pages::read_resident_at(self.file.as_fd(), buffer, range.start) {
            // the part was there a moment ago; a job for each try might go on for ever
            Err(error) if is_unknown(&error) && known != read => {
                let result = file::read_at(self.file.as_fd(), buffer, range.start);
                let end = result.as_ref().map_or(0, |count| range.start + *count as u64);
                let is_kept = error.kind() == io::ErrorKind::Unsupported && end < part.end();
                (result, if is_kept { known } else { read })
            }
            Err(error) if is_unknown(&error) => (Err(io::ErrorKind::WouldBlock.into()), 0),
            Err(error) => (Err(error), 0),
            Ok(count) => (Ok(count), read),
        };
        if next != known {
            // Err says only that another part has taken the place
            let _ = place.compare_exchange(known, next, Relaxed, Relaxed);
        }
        result
    }

    /// Brings the part at `offset` into memory, and begins with the next one.
    pub(crate) fn warm(&self, offset: u64) {
        let Some(part) = self.part(offset) else { return };
        let _ = pages::will_need(self.file.as_fd(), part.start, part.len);
        if let Some(next) = self.part(part.end())
            && self.place(next).load(Relaxed) | 1 != mark(next) | 1
        {
            let _ = pages::will_need(self.file.as_fd(), next.start, next.len);
        }
        // After an error, too: the sender meets it again, or finds the file shorter.
        let _ = self.read_part(part);
        self.place(part).store(mark(part) | 1, Relaxed);
    }

    fn read_part(&self, part: Range) -> io::Result<()> {
        let mut scratch = vec![0; SCRATCH_BYTES];
        let mut at = part.start;
        while at < part.end() {
            let want = usize::try_from(part.end() - at).unwrap_or(usize::MAX).min(SCRATCH_BYTES);
            match file::read_at(self.file.as_fd(), &mut scratch[..want], at)? {
                0 => break,
                count => at += count as u64,
            }
        }
        Ok(())
    }

    /// The part that `offset` is in.
    fn part(&self, offset: u64) -> Option<Range> {
        let start = offset / PART_BYTES * PART_BYTES;
        let len = self.size.checked_sub(offset).filter(|&left| left > 0)?;
        Some(Range { start, len: PART_BYTES.min(len + (offset - start)) })
    }

    fn place(&self, part: Range) -> &AtomicU64 {
        let number = part.start / PART_BYTES;
        &self.read[(number % self.read.len() as u64) as usize]
    }

    /// The memory this file costs besides its bytes.
    pub(crate) fn weight(&self) -> u64 {
        self.read.len() as u64 * 8
    }
}

fn mark(part: Range) -> u64 {
    part.start / PART_BYTES * 2 + 2
}

impl AsFd for DiskFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_part_is_warm_once_it_was_read() {
        let size = 2 * PART_BYTES + 10;
        let path = std::env::temp_dir().join(format!("forebay-disk-{}", std::process::id()));
        fs::write(&path, vec![7; size as usize]).unwrap();
        let file = DiskFile::new(fs::File::open(&path).unwrap().into(), size, false);
        let whole = Range { start: 0, len: size };
        let end = Range { start: 2 * PART_BYTES + 4, len: 6 };
        assert_eq!((file.warm_bytes(whole), file.warm_bytes(end)), (0, 0));
        file.warm(5);
        assert_eq!((file.warm_bytes(whole), file.warm_bytes(end)), (PART_BYTES, 0));
        let middle = Range { start: 5, len: 10 };
        assert_eq!(file.warm_bytes(middle), 10);
        file.warm(end.start);
        assert_eq!(file.warm_bytes(end), 6);
        assert_eq!(file.warm_bytes(Range { start: size, len: 1 }), 0);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn only_what_is_warm_is_read() {
        let size = PART_BYTES + 10;
        let content: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
        let path = std::env::temp_dir().join(format!("forebay-disk-read-{}", std::process::id()));
        fs::write(&path, &content).unwrap();
        let file = DiskFile::new(fs::File::open(&path).unwrap().into(), size, false);
        let mut buffer = [0; 16 * 1024];
        let mut read = |start: u64| {
            let range = Range { start, len: size - start };
            let count = file.read_warm(range, &mut buffer).map_err(|error| error.kind())?;
            assert!(buffer[..count] == content[start as usize..][..count], "{start}");
            Ok(count)
        };
        let cold = Err(io::ErrorKind::WouldBlock);
        assert_eq!((read(0), read(PART_BYTES)), (cold, cold));
        file.warm(0);
        let pieces = PART_BYTES / (16 * 1024);
        assert!((0..pieces).all(|piece| read(piece * 16 * 1024) == Ok(16 * 1024)));
        assert_eq!(read(PART_BYTES), cold);
        file.warm(PART_BYTES);
        assert_eq!((read(PART_BYTES + 3), read(size)), (Ok(7), Ok(0)));
        file.warm(0);
        assert_eq!(read(PART_BYTES - 5), Ok(5), "a part is read to its end, not beyond");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_size_that_is_not_there_takes_no_memory() {
        let file: OwnedFd = fs::File::open("/dev/null").unwrap().into();
        let file = DiskFile::new(file, u64::MAX, false);
        assert_eq!(file.weight(), MOST_PARTS * 8);
        let far = Range { start: u64::MAX - 10, len: 10 };
        assert_eq!(file.warm_bytes(far), 0);
        file.warm(far.start);
        assert_eq!(file.warm_bytes(far), 10, "sent once, whatever is in memory");
    }
}
