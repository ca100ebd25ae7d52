//! Work for helper threads: making an answer, and bringing a part of a file into memory.

use crate::content::Content;
use crate::entry::{Entry, Key, What};
use crate::load::load;
use foldhash::fast::FixedState;
use forebay_http::range::Range;
use forebay_metrics::{Activity, Local, Stopwatch};
use forebay_sys::file;
use std::hash::BuildHasher;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Bytes that one [`Site::warm`](crate::Site::warm) brings into memory, at most: 1 MiB.
pub const WARM_BYTES: u64 = 1 << 20;

/// Bytes read at once while warming.
const SCRATCH_BYTES: usize = 128 * 1024;

/// Work that may block.
pub struct Job(pub(crate) Work);

pub(crate) enum Work {
    /// Make the answer for a key.
    Load { content: Arc<Content>, key: Key, asked_ms: u64 },
    /// Read a part of a file that is about to be sent.
    Warm { entry: Option<Arc<Entry>>, variant: usize, range: Range },
}

/// What a [`Job`] brings back to [`Site::process`](crate::Site::process).
pub struct Done(pub(crate) Option<Arc<Entry>>);

impl forebay_conn::Job for Job {
    type Done = Done;

    fn run(self, _metrics: &Local, watch: &mut dyn Stopwatch) -> Done {
        match self.0 {
            Work::Load { content, key, asked_ms } => {
                Done(Some(load(&content, &key, asked_ms, watch)))
            }
            Work::Warm { entry, variant, range } => {
                entry.iter().for_each(|entry| warm(entry, variant, range));
                watch.lap(Activity::Load);
                Done(None)
            }
        }
    }

    /// Requests for one path wait for one another, so that it is loaded once; so do reads of one
    /// file.
    fn lane(&self) -> u64 {
        let hasher = FixedState::default();
        match &self.0 {
            Work::Load { key, .. } => hasher.hash_one(key),
            Work::Warm { entry, .. } => hasher.hash_one(entry.as_ref().map(|entry| &entry.key)),
        }
    }
}

/// Reads a part of a file and forgets it: the kernel keeps it. An error is not told; the sender
/// meets it again.
fn warm(entry: &Entry, variant: usize, range: Range) {
    let What::Found(found) = &entry.what else { return };
    let Some(file) = found.variant(variant).and_then(|variant| variant.file.as_ref()) else {
        return;
    };
    let (mut at, end) = (range.start, range.start + range.len.min(WARM_BYTES));
    let _ = file::will_need(file.as_fd(), at, end - at);
    let mut scratch = vec![0; SCRATCH_BYTES];
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(SCRATCH_BYTES);
        match file::read_at(file.as_fd(), &mut scratch[..want], at) {
            Ok(0) | Err(_) => return,
            Ok(count) => at += count as u64,
        }
    }
}
