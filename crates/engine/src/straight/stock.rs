//! What the engines with a thread per connection are made of, and what their threads share: workers that
//! none of them uses, and permits.

use crate::connection::accept::Listener;
use crate::connection::served::Served;
use crate::connection::worker::Worker;
use crate::control::{Ended, EngineControl};
use crate::order::permits::Permits;
use crate::order::ranks::Ranks;
use crate::room::admission::ConnectionAdmission;
use crate::room::linger::Lingering;
use crate::settings::LiveSettings;
use crate::straight::away::{Away, ToServe};
use forebay_conn::Handler;
use forebay_metrics::Local;
use forebay_sys::epoll::Bell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Workers in stock are told what has changed this often.
const KEEP_UP_MS: u64 = 1000;

/// Makes a handler and the counters it writes to.
pub type Make<H> = Box<dyn Fn() -> (H, Arc<Local>) + Send + Sync>;

/// Everything an engine with a thread per connection is made of.
pub struct StockParts<H: Handler> {
    /// Where connections come from.
    pub listeners: Vec<Listener>,
    /// Makes the handlers.
    pub make: Make<H>,
    /// Timeouts and bounds.
    pub settings: Arc<LiveSettings>,
    /// The count of connections.
    pub admission: Arc<ConnectionAdmission>,
    /// The order of service.
    pub ranks: Ranks,
    /// Where orders come from.
    pub control: Arc<EngineControl>,
    /// Threads of the pool, or most threads at once; at least 1.
    pub threads: usize,
    /// Jobs that wait for devices, at once, about; at least 1.
    pub jobs: usize,
    /// Threads that may answer at once if there is more than one rank; at least 1.
    pub answering: usize,
    /// Connections accepted ahead of a thread for them, at most, if there is more than one rank.
    pub ahead: usize,
}

/// What the threads share: workers that none of them uses and how to make more, and permits.
pub struct Stock<H: Handler> {
    make: Make<H>,
    settings: Arc<LiveSettings>,
    pub(crate) ranks: Ranks,
    /// To answer; none if nothing is ordered.
    pub(crate) permits: Option<Permits>,
    /// To do jobs that wait for devices.
    pub(crate) job_permits: Option<Permits>,
    idle: Mutex<Vec<Worker<H>>>,
    /// Where connections are that keep no thread meanwhile, if they can do without.
    away: Option<Arc<Away<H>>>,
    /// When they were told last what has changed.
    kept_up_ms: AtomicU64,
    /// Where their connections linger.
    lingering: Arc<Lingering>,
    /// Threads that have a connection, of how many.
    busy: AtomicUsize,
    threads: usize,
}

impl<H: Handler> Stock<H> {
    /// An empty stock for so many threads, whose requests are answered as they come.
    pub(crate) fn new(
        make: Make<H>,
        settings: Arc<LiveSettings>,
        threads: usize,
        lingering: Arc<Lingering>,
    ) -> Stock<H> {
        Stock {
            make,
            settings,
            ranks: Ranks::default(),
            permits: None,
            job_permits: None,
            idle: Mutex::new(Vec::new()),
            away: None,
            kept_up_ms: AtomicU64::new(0),
            lingering,
            busy: AtomicUsize::new(0),
            threads: threads.max(1),
        }
    }

    /// Threads answer in this order, no more of them at a time than `answering`; and about `jobs` of them
    /// at a time do jobs that wait for devices.
    #[must_use]
    pub fn in_order(self, ranks: Ranks, answering: usize, jobs: usize) -> Stock<H> {
        let permits = Permits::to_answer(&ranks, answering);
        let job_permits = Some(Permits::to_wait(&ranks, jobs));
        Stock { permits, job_permits, ranks, ..self }
    }

    /// Connections whose socket another process has keep no thread, but are there.
    #[must_use]
    pub(crate) fn with_away(self, away: Arc<Away<H>>) -> Stock<H> {
        Stock { away: Some(away), ..self }
    }

    /// Leaves a connection to the watcher of those whose socket another process has, if it is one.
    ///
    /// # Errors
    /// The connection, if its thread is to wait itself.
    pub(crate) fn leave_away(&self, served: Box<Served<H>>) -> Result<(), Box<Served<H>>> {
        match &self.away {
            Some(away) if served.is_away() => {
                away.take(served, self.load(), &self.ranks, || self.take())
            }
            _ => Err(served),
        }
    }

    /// Rings when connections are back from there.
    pub(crate) fn away_bell(&self) -> Option<&Bell> {
        self.away.as_deref().map(Away::bell)
    }

    /// Whether any is there, or waits for a thread.
    pub(crate) fn has_away(&self) -> bool {
        self.away.as_ref().is_some_and(|away| !away.is_empty())
    }

    /// Whether connections are back and wait for a thread.
    pub(crate) fn has_back(&self) -> bool {
        self.away.as_ref().is_some_and(|away| away.has_back())
    }

    /// Those that are back.
    pub(crate) fn take_back(&self) -> VecDeque<ToServe<H>> {
        self.away.as_ref().map(|away| away.take_back()).unwrap_or_default()
    }

    /// Until none is there after an order to end, or all are cut after one to stop. Says how they have ended.
    pub(crate) fn end_away(&self) -> Ended {
        let Some(away) = &self.away else { return Ended::default() };
        let mut worker = self.take();
        let ended = away.wait(&mut worker);
        self.give_back(worker);
        ended
    }

    /// The share of all threads that have a connection.
    pub(crate) fn load(&self) -> f64 {
        self.busy.load(Relaxed) as f64 / self.threads as f64
    }

    /// A thread has a connection until the result is dropped.
    pub(crate) fn occupy(&self) -> Occupied<'_> {
        self.busy.fetch_add(1, Relaxed);
        Occupied(&self.busy)
    }

    /// A worker, for one thread.
    pub fn take(&self) -> Worker<H> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| {
            let (handler, metrics) = (self.make)();
            let lingering = Arc::clone(&self.lingering);
            Worker::new(handler, Arc::clone(&self.settings), metrics, lingering)
        })
    }

    /// Tells the handlers of all workers in stock the time and what has changed, once a second: what was
    /// replaced is not kept by a worker that serves no client. For the thread that accepts.
    pub fn keep_up(&self, now_ms: u64) {
        if now_ms < self.kept_up_ms.load(Relaxed) + KEEP_UP_MS {
            return;
        }
        self.kept_up_ms.store(now_ms, Relaxed);
        for worker in &mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner) {
            worker.read_clocks();
            worker.begin_turn();
        }
    }

    /// Lets go of all workers in stock, and so of what their handlers have not yet written.
    pub fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The thread needs it no longer.
    pub fn give_back(&self, worker: Worker<H>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    }
}

/// A thread that has a connection.
pub(crate) struct Occupied<'s>(&'s AtomicUsize);

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
