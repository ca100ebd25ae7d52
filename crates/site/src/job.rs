//! Work for helper threads: making an answer, and bringing a part of a file into memory.

use crate::content::Content;
use crate::entry::{Entry, Key, What};
use crate::load::{Loaded, load};
use crate::pages::Refusal;
use foldhash::fast::FixedState;
use forebay_metrics::{Activity, Local, Stopwatch};
use std::hash::BuildHasher;
use std::num::NonZero;
use std::sync::{Arc, OnceLock};

/// The number of no content.
const NO_CONTENT: u64 = u64::MAX;

/// Work that may block.
pub struct Job(pub(crate) Work);

pub(crate) enum Work {
    /// Make the answer for a key, and the one it leads to. A refusal comes back as it is: the key
    /// is that of its page.
    Load {
        content: Arc<Content>,
        key: Key,
        prefers_json: bool,
        asked_ms: u64,
        refusal: Option<Box<Refusal>>,
    },
    /// Make the variant that belongs in this place, of an answer or of the one it leads to.
    Compress { content: Arc<Content>, entry: Arc<Entry>, inner: Option<Arc<Entry>>, place: usize },
    /// Read a part of a file that is about to be sent.
    Warm { entry: Option<Arc<Entry>>, variant: usize, offset: u64 },
}

/// What a [`Job`] brings back to [`Site::process`](crate::Site::process).
pub struct Done {
    /// The content that the job was for, by number.
    pub(crate) content: u64,
    pub(crate) entry: Option<Arc<Entry>>,
    /// What an alias leads to.
    pub(crate) inner: Option<Arc<Entry>>,
    pub(crate) refusal: Option<Box<Refusal>>,
}

impl forebay_conn::Job for Job {
    type Done = Done;

    fn run(self, _metrics: &Local, watch: &mut dyn Stopwatch) -> Done {
        match self.0 {
            Work::Load { content, key, prefers_json, asked_ms, refusal } => {
                let Loaded { entry, inner } = load(&content, &key, prefers_json, asked_ms, watch);
                Done { content: content.number, entry: Some(entry), inner, refusal }
            }
            Work::Compress { content, entry, inner, place } => {
                compress(&content, inner.as_ref().unwrap_or(&entry), place);
                watch.lap(Activity::Compute);
                Done { content: content.number, entry: Some(entry), inner, refusal: None }
            }
            Work::Warm { entry, variant, offset } => {
                entry.iter().for_each(|entry| warm(entry, variant, offset));
                watch.lap(Activity::Load);
                Done { content: NO_CONTENT, entry: None, inner: None, refusal: None }
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
            Work::Compress { entry, inner, .. } => {
                let key = &inner.as_ref().unwrap_or(entry).key;
                hasher.hash_one(("compress", hasher.hash_one(key) % cores()))
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
