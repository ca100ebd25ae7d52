//! Where the results of jobs wait for their loop, and requests that code of this process has woken.

use super::JobContext;
use crate::control::EngineControl;
use crate::order::ranks::RequestKey;
use forebay_conn::{Handler, Protocol};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::task::{Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

/// The largest number of results that wait for one loop. Each may be a whole answer, so threads
/// that are faster than the loop wait for it: memory stays bounded, and what is done next is
/// decided late, in order.
const MOST_RESULTS: usize = 64;

/// The longest that a thread waits for the loop. A loop that does not turn does not keep threads
/// from others.
const LOOP_PATIENCE: Duration = Duration::from_millis(100);

/// Takes the results of jobs.
pub trait Results<D>: Send + Sync {
    /// Takes the end of the job that was given with `ask`: its result, or `None` if it panicked.
    fn post(&self, ask: &JobContext, result: Option<D>);
}

/// The place where a loop finds the results of its jobs.
#[derive(Debug)]
pub struct Mailbox<D> {
    results: Mutex<Vec<(RequestKey, Option<D>)>>,
    /// Signals that the loop has taken results, so that a job may be given again.
    taken: Condvar,
    patience: Duration,
    /// Requests that code of this process has woken.
    woken: Mutex<Vec<RequestKey>>,
    has_woken: AtomicBool,
    /// The loop's thread, if it looks here before it sleeps: wakes from this thread ring no bell.
    home: OnceLock<ThreadId>,
    control: Arc<EngineControl>,
    loop_index: usize,
}

/// Wakes one request of a loop.
struct LoopWaker<D> {
    mailbox: Arc<Mailbox<D>>,
    request: RequestKey,
}

impl<D: Send + 'static> Wake for LoopWaker<D> {
    fn wake(self: Arc<Self>) {
        self.mailbox.wake(self.request);
    }
}

impl<D: Send + 'static> Mailbox<D> {
    /// Puts a waker for each request of a connection into its slot, where none is yet.
    pub fn leave_wakers<H: Handler>(self: &Arc<Self>, connection: u64, protocol: &H::Protocol) {
        protocol.wake_slots(&mut |request, slot| {
            if !slot.is_set() {
                let request = RequestKey { connection, request };
                let mailbox = Arc::clone(self);
                slot.set(Waker::from(Arc::new(LoopWaker { mailbox, request })));
            }
        });
    }
}

impl<D> Mailbox<D> {
    /// Notes that the calling thread is the loop's, and looks before it sleeps whether requests
    /// were [woken](Mailbox::has_woken).
    pub fn is_at_home(&self) {
        let _ = self.home.set(std::thread::current().id());
    }

    fn wake(&self, request: RequestKey) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.push(request);
        self.has_woken.store(true, Ordering::Release);
        let is_first = woken.len() == 1;
        drop(woken);
        if is_first && self.home.get() != Some(&std::thread::current().id()) {
            self.control.bell(self.loop_index).ring();
        }
    }

    /// Whether requests were woken and not yet taken.
    #[inline]
    pub fn has_woken(&self) -> bool {
        self.has_woken.load(Ordering::Acquire)
    }

    /// Takes the requests that were woken.
    #[inline]
    pub fn take_woken(&self) -> Vec<RequestKey> {
        if !self.has_woken() {
            return Vec::new();
        }
        self.has_woken.store(false, Ordering::Release);
        std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The mailbox of loop `loop_index`, whose bell `control` knows.
    pub fn new(control: Arc<EngineControl>, loop_index: usize) -> Arc<Mailbox<D>> {
        Arc::new(Mailbox {
            results: Mutex::default(),
            taken: Condvar::new(),
            patience: LOOP_PATIENCE,
            woken: Mutex::default(),
            has_woken: AtomicBool::new(false),
            home: OnceLock::new(),
            control,
            loop_index,
        })
    }

    /// Takes everything that has arrived: each request with the result of its job, or `None` if
    /// that panicked.
    pub fn take(&self) -> Vec<(RequestKey, Option<D>)> {
        let results =
            std::mem::take(&mut *self.results.lock().unwrap_or_else(PoisonError::into_inner));
        if results.len() >= MOST_RESULTS {
            self.taken.notify_all();
        }
        results
    }
}

/// Posting a result wakes the loop, and waits a little if the loop has many to take already.
impl<D: Send> Results<D> for Mailbox<D> {
    fn post(&self, ask: &JobContext, result: Option<D>) {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |results: &mut Vec<_>| results.len() >= MOST_RESULTS;
        let waited = self.taken.wait_timeout_while(results, self.patience, is_full);
        let (mut results, _) = waited.unwrap_or_else(PoisonError::into_inner);
        results.push((ask.request, result));
        if results.len() == 1 {
            self.control.bell(self.loop_index).ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Call, give, helpers, taken};
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn threads_do_not_run_far_ahead_of_a_loop() {
        let (helpers, mailbox) = helpers(4);
        let patient =
            Mailbox { patience: Duration::from_secs(600), ..Arc::into_inner(mailbox).unwrap() };
        let mailbox = Arc::new(patient);
        let (started, starts) = channel();
        let jobs = 10 * MOST_RESULTS;
        for token in 0..jobs as u64 {
            let call = Call { lane: token, gate: None, started: started.clone() };
            give(&helpers, call, token, &mailbox);
        }
        let ahead = MOST_RESULTS + helpers.threads();
        assert_eq!(starts.iter().take(ahead).count(), ahead);
        let mut all = Vec::new();
        while all.len() < jobs {
            let mut results = taken(&mailbox);
            assert!(results.len() <= MOST_RESULTS, "{}", results.len());
            all.append(&mut results);
        }
        all.sort();
        assert!(all.iter().enumerate().all(|(at, (token, _))| at as u64 == *token));
    }
}
