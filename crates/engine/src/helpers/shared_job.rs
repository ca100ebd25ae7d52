//! The owner of a job that waits for a thread: the first that takes it, which is the thread that does
//! it, or the connection that ends and needs it no more.
//!
//! A queue and the request share a job. A job that is taken back is dropped at once, with all it holds; its
//! place stays in the queue until its turn comes, and is passed over then.

use forebay_conn::{Job, JobKind};
use std::sync::{Arc, Mutex, PoisonError};

/// A job that a queue and a request share: the first that takes it has it.
pub struct SharedJob<J>(Arc<SharedJobCell<J>>);

struct SharedJobCell<J> {
    lane: u64,
    kind: JobKind,
    job: Mutex<Option<J>>,
}

impl<J> Clone for SharedJob<J> {
    fn clone(&self) -> Self {
        SharedJob(Arc::clone(&self.0))
    }
}

impl<J: Job> SharedJob<J> {
    /// A job to share.
    pub fn new(job: J) -> SharedJob<J> {
        let (lane, kind) = (job.lane(), job.kind());
        SharedJob(Arc::new(SharedJobCell { lane, kind, job: Mutex::new(Some(job)) }))
    }

    /// The lane of the job, also when the job is taken.
    pub fn lane(&self) -> u64 {
        self.0.lane
    }

    /// The kind of the job.
    pub fn kind(&self) -> JobKind {
        self.0.kind
    }

    /// Takes the job; `None` if it was taken.
    pub fn take(&self) -> Option<J> {
        // locked for no longer than this
        self.0.job.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
