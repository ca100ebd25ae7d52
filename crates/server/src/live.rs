//! What handlers serve from: one arrangement, replaced as a whole by a reload.
//!
//! In: a new arrangement from whoever reloads. Out: each handler takes it over at its next request,
//! so that a connection that is open sees the new sites from its next request on.

use crate::client::TrustedProxies;
use crate::log::Logs;
use crate::policy::InForce;
use forebay_site::Content;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Everything a handler needs that a configuration decides.
pub struct Arrangement {
    /// What is served.
    pub content: Arc<Content>,
    /// Where it is logged.
    pub logs: Arc<Logs>,
    /// Whose word about clients counts.
    pub trusted: Arc<TrustedProxies>,
    /// Who is served, and in which order.
    pub policy: Arc<InForce>,
}

/// The arrangement in force.
pub struct Live {
    generation: AtomicU64,
    current: Mutex<Arc<Arrangement>>,
}

impl Live {
    /// The first arrangement; its generation is 1.
    pub fn new(first: Arrangement) -> Live {
        Live { generation: AtomicU64::new(1), current: Mutex::new(Arc::new(first)) }
    }

    /// How many arrangements there were. One load, made for each request.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The arrangement in force.
    pub fn current(&self) -> Arc<Arrangement> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another in force. Returns the one before.
    pub fn replace(&self, next: Arrangement) -> Arc<Arrangement> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, Arc::new(next));
        // only now: who sees the new number finds the new arrangement
        self.generation.fetch_add(1, Ordering::Release);
        before
    }
}
