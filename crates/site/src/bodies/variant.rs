//! One form of a cached answer: as it is, or in a content coding.

use crate::bodies::disk::DiskFile;
use crate::bodies::memory_budget::MemoryReservation;
use crate::heads::entity_tag::EntityTag;
use forebay_http::coding::Coding;
use forebay_sys::file::{self, Stamp};
use std::os::fd::AsFd;

/// The answer in one content coding.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) coding: Coding,
    /// The file as it was when the head was written.
    pub(crate) stamp: Stamp,
    /// Bytes of the body.
    pub(crate) size: u64,
    /// Seconds since 1970, as the head says; `None` if it says nothing.
    pub(crate) last_modified: Option<u64>,
    pub(crate) tag: EntityTag,
    /// The head of a 304.
    pub(crate) not_modified: Box<[u8]>,
    /// The ends of the parts of the 200 head.
    pub(crate) layout: Layout,
    /// The 200 head, the same as a block of HTTP/2, and where [`Layout::body_start`] says the body, unless
    /// there is a `file`.
    pub(crate) ready: Box<[u8]>,
    /// The open file, if it is too large for memory, or if the memory budget was used up.
    pub(crate) file: Option<DiskFile>,
    /// The body's part of the memory budget, if the body was read from a file.
    pub(crate) reservation: Option<Box<MemoryReservation>>,
}

/// The ends of the parts of a 200 head: status line, `Content-Type`, fields that a 206 has too,
/// `Content-Length`, and the block; and the place where the body begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) status_end: usize,
    pub(crate) type_end: usize,
    pub(crate) fields_end: usize,
    pub(crate) head_end: usize,
    pub(crate) block_end: usize,
    /// At the end of the block, or a little behind it where the kernel wants it.
    pub(crate) body_start: usize,
}

impl Drop for Variant {
    fn drop(&mut self) {
        if let Some(reservation) = &self.reservation {
            reservation.vacate(std::mem::take(&mut self.ready).into_vec());
        }
    }
}

impl Variant {
    /// The head of a 200.
    #[inline]
    pub(crate) fn head(&self) -> &[u8] {
        &self.ready[..self.layout.head_end]
    }

    /// The same as a block of HTTP/2.
    #[inline]
    pub(crate) fn block(&self) -> &[u8] {
        &self.ready[self.layout.head_end..self.layout.block_end]
    }

    /// The line `Content-Type`.
    pub(crate) fn type_line(&self) -> &[u8] {
        &self.ready[self.layout.status_end..self.layout.type_end]
    }

    /// The fields that a 206 has too.
    pub(crate) fn fields(&self) -> &[u8] {
        &self.ready[self.layout.type_end..self.layout.fields_end]
    }

    /// The body, if it is in memory.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&[u8]> {
        match self.file {
            None => self.ready.get(self.layout.body_start..)?.get(..self.size as usize),
            Some(_) => None,
        }
    }

    /// Whether what the head promises is still in the open file. True without a system call if the
    /// body is in memory.
    pub(crate) fn is_intact(&self) -> bool {
        let Some(file) = &self.file else { return true };
        holds(file, |now| is_kept(&self.stamp, now, file.is_appended))
    }

    /// Whether the open file is still as the head says, and has no more than that. The same as
    /// [`is_intact`](Variant::is_intact), but for files that may grow.
    pub(crate) fn is_current(&self) -> bool {
        let Some(file) = &self.file else { return true };
        holds(file, |now| is_unchanged(&self.stamp, now))
    }

    /// The body, read from its file; `None` if that fails or the file has changed. May block.
    pub(crate) fn read_whole(&self) -> Option<Vec<u8>> {
        let file = self.file.as_ref()?;
        let mut body = vec![0; usize::try_from(self.size).ok()?];
        let mut done = 0;
        while done < body.len() {
            match file::read_at(file.as_fd(), &mut body[done..], done as u64) {
                Ok(0) | Err(_) => return None,
                Ok(count) => done += count,
            }
        }
        self.is_intact().then_some(body)
    }

    /// The memory that the variant's heads and its body cost, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        (self.ready.len() + self.not_modified.len()) as u64
    }

    /// Whether its tag is weak for now.
    pub(crate) fn is_young(&self) -> bool {
        self.tag.young_until_ns.is_some()
    }
}

/// Whether the stamp that the file has now is as it should be.
fn holds(file: &DiskFile, is_right: impl Fn(&Stamp) -> bool) -> bool {
    let look = || file::stamp_known(file.as_fd()).is_ok_and(|now| is_right(&now));
    // The kernel reads the number of names first and the time of change later, without a lock: a
    // look in the middle of a removal may find the one of before it and the other of after it.
    look() || look()
}

/// Whether all bytes that the file had before are unchanged. Where files only grow, that is so if
/// none is gone: no stamp tells bytes that were added from bytes that were written over.
pub(crate) fn is_kept(before: &Stamp, after: &Stamp, is_appended: bool) -> bool {
    let is_longer = (before.kind, before.device, before.inode)
        == (after.kind, after.device, after.inode)
        && before.size <= after.size;
    (is_appended && is_longer) || is_unchanged(before, after)
}

/// Whether the content is the same. The time of the last change of attributes moves whenever
/// content does, but also when the file loses a name because it was removed or another was renamed
/// over it; then the content is still whole. A file that was opened while its last name was being
/// taken has none before and none after: ext4 counts the name first and sets the time later.
pub(crate) fn is_unchanged(before: &Stamp, after: &Stamp) -> bool {
    let lost_a_name = before.links != after.links || before.links == 0;
    (before.device, before.inode, before.size, before.mtime_ns)
        == (after.device, after.inode, after.size, after.mtime_ns)
        && (before.ctime_ns == after.ctime_ns || lost_a_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_loses_its_name_is_unchanged() {
        let stamp = |links, ctime_ns, mtime_ns| Stamp {
            kind: forebay_sys::file::FileKind::Regular,
            device: 1,
            inode: 2,
            links,
            size: 3,
            mtime_ns,
            ctime_ns,
        };
        let is_unchanged =
            |before, after| is_unchanged(&stamp(before, 10, 10), &stamp(after, 20, 10));
        assert!(is_unchanged(1, 0), "removed");
        assert!(is_unchanged(0, 0), "opened in the middle of its removal");
        assert!(!is_unchanged(1, 1), "written, and its time set back");
        assert!(!super::is_unchanged(&stamp(0, 10, 10), &stamp(0, 20, 20)), "written");
    }

    #[test]
    fn what_was_promised_of_a_file_that_grows_is_kept() {
        let stamp = |inode, size, time_ns| Stamp {
            kind: forebay_sys::file::FileKind::Regular,
            device: 1,
            inode,
            links: 1,
            size,
            mtime_ns: time_ns,
            ctime_ns: time_ns,
        };
        let before = stamp(2, 3, 10);
        assert!(is_kept(&before, &stamp(2, 4, 20), true), "grown");
        assert!(is_kept(&before, &stamp(2, 3, 20), true), "grown by nothing");
        assert!(!is_kept(&before, &stamp(2, 2, 20), true), "made shorter");
        assert!(!is_kept(&before, &stamp(3, 4, 20), true), "another");
        assert!(!is_kept(&before, &stamp(2, 4, 20), false), "not said to grow only");
    }
}
