//! Work for helper threads: making an answer, and bringing a part of a file into memory.

use crate::content::Content;
use crate::entry::{Entry, Key, What};
use crate::load::load;
use foldhash::fast::FixedState;
use forebay_metrics::{Activity, Local, Stopwatch};
use std::hash::BuildHasher;
use std::num::NonZero;
use std::sync::{Arc, OnceLock};

/// Work that may block.
pub struct Job(pub(crate) Work);

pub(crate) enum Work {
    /// Make the answer for a key.
    Load { content: Arc<Content>, key: Key, asked_ms: u64 },
    /// Make the variant of an answer that belongs in this place.
    Compress { content: Arc<Content>, entry: Arc<Entry>, place: usize },
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
            Work::Compress { content, entry, place } => {
                compress(&content, &entry, place);
                watch.lap(Activity::Compute);
                Done(Some(entry))
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
            // few at a time, whatever is asked for: they take CPU time
            Work::Compress { entry, .. } => {
                hasher.hash_one(("compress", hasher.hash_one(&entry.key) % cores()))
            }
            Work::Warm { entry, .. } => hasher.hash_one(entry.as_ref().map(|entry| &entry.key)),
        }
    }
}

fn compress(content: &Content, entry: &Arc<Entry>, place: usize) {
    if let What::Found(found) = &entry.what
        && let Some(on_demand) = &found.on_demand
    {
        let bytes = on_demand.make(place, &found.identity);
        if bytes > 0 {
            content.store.grow(entry, bytes);
        }
    }
}

/// How many threads can compute at a time.
pub(crate) fn cores() -> u64 {
    static CORES: OnceLock<u64> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get) as u64)
}

fn warm(entry: &Entry, variant: usize, offset: u64) {
    if let What::Found(found) = &entry.what
        && let Some(file) = found.variant(variant).and_then(|variant| variant.file.as_ref())
    {
        file.warm(offset);
    }
}
