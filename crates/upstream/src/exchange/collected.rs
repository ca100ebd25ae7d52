//! Bodies that are collected before an application is asked: what of them is in memory, and what is
//! on disk.

use crate::spool::{NoSpool, PART_BYTES, Spool, SpoolDone, SpoolFile};
use std::sync::Arc;

/// A body that is being collected.
pub(super) struct CollectedBody {
    /// The bytes that are not on disk.
    pub(super) bytes: Vec<u8>,
    /// The largest number of bytes in memory alone.
    memory_bytes: usize,
    /// The spool for the rest.
    spool: Option<Arc<Spool>>,
    pub(super) file: Option<SpoolFile>,
    /// Whether all of the body has come.
    pub(super) is_whole: bool,
}

/// A body on disk, on its way to an upstream.
pub(super) struct BodyOnDisk {
    file: SpoolFile,
    /// The bytes after those on disk, in memory.
    tail: Vec<u8>,
    /// The number of bytes that were taken, of both together.
    at: u64,
    /// The length of the request's head, which goes before the body.
    pub(super) head: usize,
}

impl CollectedBody {
    /// A body of which nothing has come yet.
    pub(super) fn new(memory_bytes: u64, spool: Option<Arc<Spool>>) -> CollectedBody {
        CollectedBody {
            bytes: Vec::new(),
            memory_bytes: usize::try_from(memory_bytes).unwrap_or(usize::MAX),
            spool,
            file: None,
            is_whole: false,
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.file.as_ref().is_some_and(SpoolFile::is_busy)
    }

    /// The number of bytes that may come now.
    pub(super) fn capacity(&self) -> usize {
        match self.is_busy() {
            true => PART_BYTES.saturating_sub(self.bytes.len()),
            false => PART_BYTES,
        }
    }

    /// The body's file, while the disk works on it.
    pub(super) fn busy_file(&self) -> Option<&SpoolFile> {
        self.file.as_ref().filter(|file| file.is_busy())
    }

    /// Has the disk write what does not fit in memory.
    pub(super) fn write(&mut self) -> Result<(), NoSpool> {
        let Some(spool) = self.spool.as_ref().filter(|_| !self.is_whole && !self.is_busy()) else {
            return Ok(());
        };
        let most = if self.file.is_some() { 0 } else { self.memory_bytes };
        // a small part is not worth a write of its own
        if self.bytes.len() <= most || self.bytes.len() < PART_BYTES {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(spool.file()?),
        };
        file.write(std::mem::take(&mut self.bytes))
    }

    /// Takes the result of the disk's work.
    pub(super) fn look(&mut self) -> Result<(), NoSpool> {
        let done = self.file.as_mut().and_then(SpoolFile::take);
        if let Some(SpoolDone::Failed) = done {
            return Err(NoSpool::Full);
        }
        self.write()
    }
}

impl BodyOnDisk {
    /// A body on disk of which nothing was taken, behind a head of `head` bytes.
    pub(super) fn new(file: SpoolFile, tail: Vec<u8>, head: usize) -> BodyOnDisk {
        BodyOnDisk { file, tail, at: 0, head }
    }

    /// Goes back to the beginning.
    pub(super) fn rewind(&mut self) {
        self.at = 0;
    }

    /// Whether all of it was taken.
    pub(super) fn is_over(&self) -> bool {
        self.at == self.len()
    }

    fn len(&self) -> u64 {
        self.file.len() + self.tail.len() as u64
    }

    /// The body's file, while the disk works on it.
    pub(super) fn busy_file(&self) -> Option<&SpoolFile> {
        Some(&self.file).filter(|file| file.is_busy())
    }

    /// The next part of the body; `None` while it is being read.
    pub(super) fn take(&mut self) -> Result<Option<Vec<u8>>, NoSpool> {
        let mut part = None;
        if self.file.is_busy() {
            match self.file.take() {
                None => return Ok(None),
                Some(SpoolDone::Failed) => return Err(NoSpool::Full),
                // another attempt has begun since that part was asked for
                Some(SpoolDone::Read { at, .. }) if at != self.at => {}
                Some(SpoolDone::Read { bytes, .. }) => part = Some(bytes),
                Some(SpoolDone::Written) => {}
            }
        }
        let part = match part {
            Some(part) => part,
            None if self.at >= self.file.len() => self.tail.clone(),
            None => {
                let mut part = Vec::with_capacity(PART_BYTES);
                if self.file.append(self.at, &mut part) == 0 {
                    self.file.read(self.at)?;
                    return Ok(None);
                }
                part
            }
        };
        self.at += part.len() as u64;
        Ok(Some(part))
    }
}
