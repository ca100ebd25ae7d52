//! Limits that a server counts together with the servers that it has replaced, so that they keep
//! them together: places at upstreams, requests at once of rules, and all that is kept for clients.
//!
//! In: the shared counts that the predecessor has handed over, if there was one. Out: counts in
//! memory that both see.

use super::handed::HandedCounts;
use forebay_control::shared::SharedCounts;
use forebay_sys::shared::SharedWords;
use forebay_sys::stderr::say;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::process;
use std::sync::Arc;

/// The counts of this process, and the memory that holds them.
#[derive(Debug)]
pub struct SharedLimits {
    words: SharedWords,
    /// The counts.
    pub counts: Arc<SharedCounts>,
}

impl SharedLimits {
    /// Opens the counts that were handed over, or new ones. Where that fails, this process counts
    /// for itself and logs it.
    pub fn open(handed: Option<(HandedCounts, OwnedFd)>) -> Option<SharedLimits> {
        let joined = handed.map(|(handed, memory)| SharedLimits::join(handed, memory));
        match joined.unwrap_or_else(SharedLimits::begin) {
            Ok(limits) => Some(limits),
            Err(error) => {
                say(format_args!(
                    "what is under way is not counted together with other servers: {error}"
                ));
                None
            }
        }
    }

    fn begin() -> io::Result<SharedLimits> {
        let words = SharedWords::new(SharedCounts::WORDS)?;
        let secret = [0_u8, 1].map(|half| RandomState::new().hash_one(half));
        let counts = Arc::new(SharedCounts::new(words.words(), process::id(), secret));
        Ok(SharedLimits { words, counts })
    }

    fn join(handed: HandedCounts, memory: OwnedFd) -> io::Result<SharedLimits> {
        let HandedCounts { layout, generation, rows } = handed;
        if layout != SharedCounts::LAYOUT {
            return SharedLimits::begin();
        }
        let words = SharedWords::of(memory, SharedCounts::WORDS)?;
        let counts = SharedCounts::join(words.words(), process::id(), generation, rows);
        let counts = counts.ok_or_else(|| io::Error::other("too many of them have not ended"))?;
        Ok(SharedLimits { words, counts: Arc::new(counts) })
    }

    /// The description and the memory of the counts, for the process that takes the place of this one.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn hand(&self) -> io::Result<(HandedCounts, OwnedFd)> {
        let (generation, rows) = self.counts.hand();
        Ok((HandedCounts { layout: SharedCounts::LAYOUT, generation, rows }, self.words.hand()?))
    }
}
