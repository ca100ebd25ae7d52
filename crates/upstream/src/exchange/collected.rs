//! A body that is collected before an application is asked: what of it is in memory, and what is on disk.

use crate::spool::{NoSpool, PART_BYTES, Spool, SpoolDone, SpoolFile};
use std::sync::Arc;

/// What has come of a body that is collected.
pub(super) struct CollectedBody {
    /// What is not on disk.
    pub(super) bytes: Vec<u8>,
    /// So much of a body is in memory alone.
    memory_bytes: usize,
    /// Where the rest may be.
    spool: Option<Arc<Spool>>,
    pub(super) file: Option<SpoolFile>,
    /// Nothing more comes.
    pub(super) is_whole: bool,
}

/// A body on disk, on its way to an upstream.
pub(super) struct BodyOnDisk {
    file: SpoolFile,
    /// What is behind it, in memory.
    tail: Vec<u8>,
    /// What was taken of both.
    at: u64,
    /// Bytes of the head of the request, which go before it.
    pub(super) head: usize,
}

impl CollectedBody {
    /// Of which nothing has come.
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

    /// How much more may come now.
    pub(super) fn capacity(&self) -> usize {
        match self.is_busy() {
            true => PART_BYTES.saturating_sub(self.bytes.len()),
            false => PART_BYTES,
        }
    }

    /// Its file, while something is being done with it.
    pub(super) fn busy_file(&self) -> Option<&SpoolFile> {
        self.file.as_ref().filter(|file| file.is_busy())
    }

    /// Has written what is too much for memory.
    pub(super) fn write(&mut self) -> Result<(), NoSpool> {
        let Some(spool) = self.spool.as_ref().filter(|_| !self.is_whole && !self.is_busy()) else {
            return Ok(());
        };
        let most = if self.file.is_some() { 0 } else { self.memory_bytes };
        // a small part is not worth the way
        if self.bytes.len() <= most || self.bytes.len() < PART_BYTES {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(spool.file()?),
        };
        file.write(std::mem::take(&mut self.bytes))
    }

    /// What the disk has done is seen.
    pub(super) fn look(&mut self) -> Result<(), NoSpool> {
        let done = self.file.as_mut().and_then(SpoolFile::take);
        if let Some(SpoolDone::Failed) = done {
            return Err(NoSpool::Full);
        }
        self.write()
    }
}

impl BodyOnDisk {
    /// Of which nothing was taken, behind so many bytes of a head.
    pub(super) fn new(file: SpoolFile, tail: Vec<u8>, head: usize) -> BodyOnDisk {
        BodyOnDisk { file, tail, at: 0, head }
    }

    /// It is taken from its beginning again.
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

    /// Its file, while something is being done with it.
    pub(super) fn busy_file(&self) -> Option<&SpoolFile> {
        Some(&self.file).filter(|file| file.is_busy())
    }

    /// The next part of it, or that there is none yet.
    pub(super) fn take(&mut self) -> Result<Option<Vec<u8>>, NoSpool> {
        let mut part = None;
        if self.file.is_busy() {
            match self.file.take() {
                None => return Ok(None),
                Some(SpoolDone::Failed) => return Err(NoSpool::Full),
                // another attempt has begun meanwhile
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
