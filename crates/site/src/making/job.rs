//! Work for helper threads: making an answer, and bringing a part of a file into memory.

use crate::access::auth::{Verification, VerifiedPassword};
use crate::bodies::piped::Piped;
use crate::cache::entry::{Entry, EntryKind, FoundFile};
use crate::cache::entry_key::EntryKey;
use crate::content::{AwaitedLook, Content};
use crate::heads::pages::RefusalPage;
use crate::making::load::{Loaded, Want, load};
use crate::work::{Effort, WorkSlot, Worked};
use foldhash::fast::FixedState;
use forebay_conn::JobKind;
use forebay_metrics::{Activity, Local, Stopwatch};
use std::hash::BuildHasher;
use std::sync::Arc;

/// The number that no content has.
const NO_CONTENT: u64 = u64::MAX;

/// Work that may block.
pub struct SiteJob(pub(crate) SiteWork);

pub(crate) enum SiteWork {
    /// Make the answer for a key, and the one it leads to. A refusal is passed on to the result:
    /// the key is that of its page.
    Load { content: Arc<Content>, key: EntryKey, want: Want, refusal: Option<Box<RefusalPage>> },
    /// Make the variant that belongs in this place, of an answer or of the one it leads to.
    Compress { content: Arc<Content>, entry: Arc<Entry>, inner: Option<Arc<Entry>>, place: usize },
    /// Verify credentials.
    Verify { content: u64, verification: Box<Verification> },
    /// Wait until the roots were looked at, before the request is processed.
    Roots { content: Arc<Content>, awaited: AwaitedLook },
    /// Do the work that a query asks for, and answer with the entry.
    Perform { content: u64, entry: Arc<Entry>, effort: Effort, place: WorkSlot },
    /// Ask another server whether a request may pass, by the rule of the site with this number. The
    /// handler that gets this job asks; the job is never run.
    Ask { site: u32, rule: u16 },
    /// Read a part of a file that is about to be sent.
    Warm { entry: Arc<Entry>, variant: usize, offset: u64 },
}

/// The result of a [`SiteJob`] for [`Site::process`](crate::Site::process).
///
/// A single pointer, because every hit passes by the place where it would be.
pub struct SiteJobDone(pub(crate) Box<JobOutput>);

pub(crate) struct JobOutput {
    /// The content that the job was for, by number.
    pub(crate) content: u64,
    pub(crate) outcome: JobResult,
}

impl SiteJobDone {
    fn new(content: u64, outcome: JobResult) -> SiteJobDone {
        SiteJobDone(Box::new(JobOutput { content, outcome }))
    }
}

/// The result of a job.
pub(crate) enum JobResult {
    /// The entry for the key, with the one it leads to if it is an alias, and the body, if that is
    /// not in memory. With a refusal the entry is the page of the error.
    Loaded {
        entry: Arc<Entry>,
        inner: Option<Arc<Entry>>,
        piped: Option<Box<Piped>>,
        refusal: Option<Box<RefusalPage>>,
    },
    /// The outcome of verifying the credentials of the request.
    Verified(VerifiedPassword),
    /// The work that was done for the entry; `None` if there was too little memory.
    Worked { entry: Arc<Entry>, worked: Option<Worked> },
    /// A condition of the request is met: a part of a file is in memory, or the roots were looked
    /// at.
    Ready,
}

impl SiteJob {
    /// The site and the number of its rule, if another server must be asked whether a request may
    /// pass.
    pub fn asks(&self) -> Option<(u32, u16)> {
        match self.0 {
            SiteWork::Ask { site, rule } => Some((site, rule)),
            _ => None,
        }
    }
}

impl forebay_conn::Job for SiteJob {
    type Done = SiteJobDone;

    fn run(self, _metrics: &Local, watch: &mut dyn Stopwatch) -> SiteJobDone {
        match self.0 {
            SiteWork::Load { content, key, want, refusal } => {
                let Loaded { entry, inner, piped } = load(&content, &key, want, watch);
                let outcome = JobResult::Loaded { entry, inner, piped, refusal };
                SiteJobDone::new(content.number, outcome)
            }
            SiteWork::Compress { content, entry, inner, place } => {
                compress(&content, inner.as_ref().unwrap_or(&entry), place, watch);
                let outcome = JobResult::Loaded { entry, inner, piped: None, refusal: None };
                SiteJobDone::new(content.number, outcome)
            }
            SiteWork::Verify { content, verification } => {
                let verified = verification.run();
                watch.lap(Activity::Compute);
                SiteJobDone::new(content, JobResult::Verified(verified))
            }
            SiteWork::Roots { content, awaited } => {
                content.wait_for_roots(awaited);
                watch.lap(Activity::Load);
                SiteJobDone::new(NO_CONTENT, JobResult::Ready)
            }
            SiteWork::Perform { content, entry, effort, place } => {
                let worked = effort.make();
                drop(place);
                watch.lap(Activity::Compute);
                SiteJobDone::new(content, JobResult::Worked { entry, worked })
            }
            SiteWork::Ask { .. } => SiteJobDone::new(NO_CONTENT, JobResult::Ready),
            SiteWork::Warm { entry, variant, offset } => {
                warm(&entry, variant, offset);
                watch.lap(Activity::Load);
                SiteJobDone::new(NO_CONTENT, JobResult::Ready)
            }
        }
    }

    /// The lane of a job. Requests for one path wait for one another, so that it is loaded once; so
    /// do reads of one file.
    fn lane(&self) -> u64 {
        let hasher = FixedState::default();
        match &self.0 {
            SiteWork::Load { key, .. } => hasher.hash_one(key),
            SiteWork::Compress { entry, inner, .. } => {
                let key = &inner.as_ref().unwrap_or(entry).key;
                hasher.hash_one(("compress", key))
            }
            SiteWork::Verify { verification, .. } => verification.lane(),
            // waits for the roots of one content occupy one thread
            SiteWork::Roots { content, .. } => hasher.hash_one(("roots", content.number)),
            SiteWork::Perform { place, .. } => hasher.hash_one(("work", place.number())),
            SiteWork::Ask { site, rule } => hasher.hash_one(("ask", site, rule)),
            SiteWork::Warm { entry, .. } => hasher.hash_one(&entry.key),
        }
    }

    fn kind(&self) -> JobKind {
        match &self.0 {
            SiteWork::Compress { entry, inner, .. }
                if must_read(inner.as_ref().unwrap_or(entry)) =>
            {
                JobKind::Blocks
            }
            SiteWork::Compress { .. } | SiteWork::Perform { .. } | SiteWork::Verify { .. } => {
                JobKind::Computes
            }
            SiteWork::Load { .. }
            | SiteWork::Roots { .. }
            | SiteWork::Ask { .. }
            | SiteWork::Warm { .. } => JobKind::Blocks,
        }
    }
}

/// Whether a file must be read before it can be compressed.
fn must_read(entry: &Entry) -> bool {
    let EntryKind::Found(FoundFile { on_demand: Some(on_demand), identity, .. }) = &entry.what
    else {
        return false;
    };
    on_demand.must_read(identity)
}

/// Makes a variant of the entry. If its file must be read first, only that is done; the request
/// comes back for the rest.
fn compress(content: &Content, entry: &Arc<Entry>, place: usize, watch: &mut dyn Stopwatch) {
    let EntryKind::Found(FoundFile { on_demand: Some(on_demand), identity, .. }) = &entry.what
    else {
        return;
    };
    if on_demand.must_read(identity) {
        if on_demand.read(place, identity, &content.memory_budget).is_err() && entry.kill() {
            // when there is memory again, the entry is made anew and compressed
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

fn warm(entry: &Entry, variant: usize, offset: u64) {
    if let EntryKind::Found(found) = &entry.what
        && let Some(file) = found.variant(variant).and_then(|variant| variant.file.as_ref())
    {
        file.warm(offset);
    }
}
