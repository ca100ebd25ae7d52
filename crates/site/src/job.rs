//! Work for helper threads: making an answer, and bringing a part of a file into memory.

use crate::content::Content;
use crate::entry::{Entry, Key, What};
use crate::load::load;
use foldhash::fast::FixedState;
use forebay_metrics::{Activity, Local, Stopwatch};
use std::hash::BuildHasher;
use std::sync::Arc;

/// Work that may block.
pub struct Job(pub(crate) Work);

pub(crate) enum Work {
    /// Make the answer for a key.
    Load { content: Arc<Content>, key: Key, asked_ms: u64 },
    /// Read a part of a file that is about to be sent.
    Warm { entry: Option<Arc<Entry>>, variant: usize, offset: u64 },
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
            Work::Warm { entry, variant, offset } => {
                entry.iter().for_each(|entry| warm(entry, variant, offset));
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

fn warm(entry: &Entry, variant: usize, offset: u64) {
    if let What::Found(found) = &entry.what
        && let Some(file) = found.variant(variant).and_then(|variant| variant.file.as_ref())
    {
        file.warm(offset);
    }
}
