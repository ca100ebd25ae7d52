//! A file that is sent from the disk, and which parts of it can be sent without waiting for it.
//!
//! The kernel tells cheaply which pages have a place in memory, but not whether their bytes have
//! arrived. So a part counts as warm only after a job has read all of it, and as long as all its
//! pages stay; before a job reads it again it is cold. The file is read in whole parts and no
//! further, so that reading one part leaves none of another half arrived.

use forebay_http::range::Range;
use forebay_sys::file;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Bytes that are read, and are warm or cold, together: 1 MiB.
pub(crate) const PART_BYTES: u64 = 1 << 20;

/// Bytes read at once.
const SCRATCH_BYTES: usize = 128 * 1024;

/// An open file.
#[derive(Debug)]
pub(crate) struct DiskFile {
    file: OwnedFd,
    size: u64,
    /// Which parts were read whole.
    read: Box<[AtomicBool]>,
}

impl DiskFile {
    pub(crate) fn new(file: OwnedFd, size: u64) -> DiskFile {
        // without it more is read than wanted, which costs a job later
        let _ = file::read_no_further(file.as_fd());
        let parts = usize::try_from(size.div_ceil(PART_BYTES)).unwrap_or(0);
        DiskFile { file, size, read: (0..parts).map(|_| AtomicBool::new(false)).collect() }
    }

    /// How many bytes at the start of `range` can be sent without waiting for the disk: up to the
    /// end of their part.
    pub(crate) fn warm_bytes(&self, range: Range) -> u64 {
        let Some((read, part)) = self.part(range.start) else { return 0 };
        if !read.load(Relaxed) {
            return 0;
        }
        let len = range.len.min(part.end() - range.start);
        match file::is_resident(self.file.as_fd(), range.start, len) {
            Ok(true) => len,
            Ok(false) => {
                read.store(false, Relaxed);
                0
            }
            // where the kernel does not tell, what was read is used at once and then read again
            Err(_) if read.swap(false, Relaxed) => len,
            Err(_) => 0,
        }
    }

    /// Brings the part at `offset` into memory, and begins with the next one.
    pub(crate) fn warm(&self, offset: u64) {
        let Some((read, part)) = self.part(offset) else { return };
        let _ = file::will_need(self.file.as_fd(), part.start, part.len);
        if let Some((next_read, next)) = self.part(part.end())
            && !next_read.load(Relaxed)
        {
            let _ = file::will_need(self.file.as_fd(), next.start, next.len);
        }
        // After an error, too: the sender meets it again, or finds the file shorter.
        let _ = self.read_part(part);
        read.store(true, Relaxed);
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

    fn part(&self, offset: u64) -> Option<(&AtomicBool, Range)> {
        let index = offset / PART_BYTES;
        let start = index * PART_BYTES;
        let len = PART_BYTES.min(self.size.checked_sub(start)?);
        Some((self.read.get(usize::try_from(index).ok()?)?, Range { start, len }))
    }
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
        let file = DiskFile::new(fs::File::open(&path).unwrap().into(), size);
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
}
