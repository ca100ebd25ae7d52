//! Work for helper threads: making an answer, and bringing a part of a file into memory.

use crate::auth::{Verification, Verified};
use crate::content::Content;
use crate::entry::{Entry, Found, Key, What};
use crate::load::{Loaded, Want, load};
use crate::pages::Refusal;
use crate::piped::Piped;
use crate::work::{Effort, WorkSlot, Worked};
use foldhash::fast::FixedState;
use forebay_conn::JobKind;
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
    Load { content: Arc<Content>, key: Key, want: Want, refusal: Option<Box<Refusal>> },
    /// Make the variant that belongs in this place, of an answer or of the one it leads to.
    Compress { content: Arc<Content>, entry: Arc<Entry>, inner: Option<Arc<Entry>>, place: usize },
    /// Find out whether credentials are right.
    Verify { content: u64, verification: Box<Verification> },
    /// Do what a query asks for, and answer with the entry.
    Perform { content: u64, entry: Arc<Entry>, effort: Effort, place: WorkSlot },
    /// Have another server say whether a request may pass, by the rule of the site with this number: the
    /// handler that gets it asks, and it is never run.
    Ask { site: u32, rule: u16 },
    /// Read a part of a file that is about to be sent.
    Warm { entry: Arc<Entry>, variant: usize, offset: u64 },
}

/// What a [`Job`] brings back to [`Site::process`](crate::Site::process).
///
/// One pointer, because every hit passes by the place where it would be.
pub struct Done(pub(crate) Box<Brought>);

pub(crate) struct Brought {
    /// The content that the job was for, by number.
    pub(crate) content: u64,
    pub(crate) outcome: JobResult,
}

impl Done {
    fn new(content: u64, outcome: JobResult) -> Done {
        Done(Box::new(Brought { content, outcome }))
    }
}

/// What came of a job.
pub(crate) enum JobResult {
    /// What was asked for, and what it leads to if it is an alias; its body, if that is not in memory.
    /// With a refusal it is its page.
    Loaded {
        entry: Arc<Entry>,
        inner: Option<Arc<Entry>>,
        piped: Option<Box<Piped>>,
        refusal: Option<Box<Refusal>>,
    },
    /// What was found out about the credentials of the request.
    Verified(Verified),
    /// What was done for the entry; `None` if there is not so much memory.
    Worked { entry: Arc<Entry>, worked: Option<Worked> },
    /// A part of a file is in memory.
    Warm,
}

impl Job {
    /// If another server is to be asked whether a request may pass: the site, and the number of its rule.
    pub fn asks(&self) -> Option<(u32, u16)> {
        match self.0 {
            Work::Ask { site, rule } => Some((site, rule)),
            _ => None,
        }
    }
}

impl forebay_conn::Job for Job {
    type Done = Done;

    fn run(self, _metrics: &Local, watch: &mut dyn Stopwatch) -> Done {
        match self.0 {
            Work::Load { content, key, want, refusal } => {
                let Loaded { entry, inner, piped } = load(&content, &key, want, watch);
                let outcome = JobResult::Loaded { entry, inner, piped, refusal };
                Done::new(content.number, outcome)
            }
            Work::Compress { content, entry, inner, place } => {
                compress(&content, inner.as_ref().unwrap_or(&entry), place, watch);
                let outcome = JobResult::Loaded { entry, inner, piped: None, refusal: None };
                Done::new(content.number, outcome)
            }
            Work::Verify { content, verification } => {
                let verified = verification.run();
                watch.lap(Activity::Compute);
                Done::new(content, JobResult::Verified(verified))
            }
            Work::Perform { content, entry, effort, place } => {
                let worked = effort.make();
                drop(place);
                watch.lap(Activity::Compute);
                Done::new(content, JobResult::Worked { entry, worked })
            }
            Work::Ask { .. } => Done::new(NO_CONTENT, JobResult::Warm),
            Work::Warm { entry, variant, offset } => {
                warm(&entry, variant, offset);
                watch.lap(Activity::Load);
                Done::new(NO_CONTENT, JobResult::Warm)
            }
        }
    }

    /// Requests for one path wait for one another, so that it is loaded once; so do reads of one
    /// file.
    fn lane(&self) -> u64 {
        let hasher = FixedState::default();
        match &self.0 {
            Work::Load { key, .. } => hasher.hash_one(key),
            Work::Compress { entry, inner, .. } => {
                let key = &inner.as_ref().unwrap_or(entry).key;
                hasher.hash_one(("compress", key))
            }
            Work::Verify { verification, .. } => verification.lane(),
            Work::Perform { place, .. } => hasher.hash_one(("work", place.number())),
            Work::Ask { site, rule } => hasher.hash_one(("ask", site, rule)),
            Work::Warm { entry, .. } => hasher.hash_one(&entry.key),
        }
    }

    fn kind(&self) -> JobKind {
        match &self.0 {
            Work::Compress { entry, inner, .. } if must_read(inner.as_ref().unwrap_or(entry)) => {
                JobKind::Blocks
            }
            Work::Compress { .. } | Work::Perform { .. } | Work::Verify { .. } => JobKind::Computes,
            Work::Load { .. } | Work::Ask { .. } | Work::Warm { .. } => JobKind::Blocks,
        }
    }
}

/// Whether a file is to be read before it can be compressed.
fn must_read(entry: &Entry) -> bool {
    let What::Found(Found { on_demand: Some(on_demand), identity, .. }) = &entry.what else {
        return false;
    };
    on_demand.must_read(identity)
}

/// Makes a variant of the entry. If its file must be read first, only that is done: the request asks
/// again.
fn compress(content: &Content, entry: &Arc<Entry>, place: usize, watch: &mut dyn Stopwatch) {
    let What::Found(Found { on_demand: Some(on_demand), identity, .. }) = &entry.what else {
        return;
    };
    if on_demand.must_read(identity) {
        if on_demand.read(place, identity, &content.memory_budget).is_err() && entry.kill() {
            // when there is memory again, it is to be compressed
            content.store.remove(entry);
        }
        return watch.lap(Activity::Load);
    }
    let bytes = on_demand.make(place, identity);
    watch.lap(Activity::Compute);
    if bytes > 0 {
        content.store.grow(entry, bytes);
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
