//! The parts of engines with a thread per connection, and what their threads share: idle workers
//! and permits.

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

/// The interval at which idle workers learn what has changed.
const KEEP_UP_MS: u64 = 1000;

/// Makes a handler and the counters it writes to.
pub type Make<H> = Box<dyn Fn() -> (H, Arc<Local>) + Send + Sync>;

/// All parts of an engine with a thread per connection.
pub struct StockParts<H: Handler> {
    /// The listening sockets.
    pub listeners: Vec<Listener>,
    /// Makes the handlers.
    pub make: Make<H>,
    /// Timeouts and bounds.
    pub settings: Arc<LiveSettings>,
    /// The count of connections.
    pub admission: Arc<ConnectionAdmission>,
    /// The order of service.
    pub ranks: Ranks,
    /// The orders to the engine.
    pub control: Arc<EngineControl>,
    /// The number of the pool's threads, or the largest number of threads at once; at least 1.
    pub threads: usize,
    /// About the number of jobs at once that wait for devices; at least 1.
    pub jobs: usize,
    /// The number of threads that may answer at once if there is more than one rank; at least 1.
    pub answering: usize,
    /// The largest number of connections that are accepted ahead of a thread for them, if there is
    /// more than one rank.
    pub ahead: usize,
}

/// What the threads share: idle workers and how to make more, and permits.
pub struct Stock<H: Handler> {
    make: Make<H>,
    settings: Arc<LiveSettings>,
    pub(crate) ranks: Ranks,
    /// The permits to answer; `None` if nothing is ordered.
    pub(crate) permits: Option<Permits>,
    /// The permits to do jobs that wait for devices.
    pub(crate) job_permits: Option<Permits>,
    idle: Mutex<Vec<Worker<H>>>,
    /// The connections that keep no thread meanwhile, if any can do without.
    away: Option<Arc<Away<H>>>,
    /// The time when idle workers last learned what has changed.
    kept_up_ms: AtomicU64,
    /// The connections that linger.
    lingering: Arc<Lingering>,
    /// The number of threads that have a connection, of `threads`.
    busy: AtomicUsize,
    threads: usize,
}

impl<H: Handler> Stock<H> {
    /// An empty stock for this many threads, whose requests are answered as they come.
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

    /// Has threads answer in this order, no more of them at a time than `answering`; about `jobs`
    /// of them at a time do jobs that wait for devices.
    #[must_use]
    pub fn in_order(self, ranks: Ranks, answering: usize, jobs: usize) -> Stock<H> {
        let permits = Permits::to_answer(&ranks, answering);
        let job_permits = Some(Permits::to_wait(&ranks, jobs));
        Stock { permits, job_permits, ranks, ..self }
    }

    /// Has connections whose socket another process has keep no thread; they still count as open.
    #[must_use]
    pub(crate) fn with_away(self, away: Arc<Away<H>>) -> Stock<H> {
        Stock { away: Some(away), ..self }
    }

    /// Leaves a connection to the watcher of those whose socket another process has, if it is such
    /// a connection.
    ///
    /// # Errors
    /// The connection, if its thread must wait itself.
    pub(crate) fn leave_away(&self, served: Box<Served<H>>) -> Result<(), Box<Served<H>>> {
        match &self.away {
            Some(away) if served.is_away() => {
                away.take(served, self.load(), &self.ranks, || self.take())
            }
            _ => Err(served),
        }
    }

    /// The bell that rings when connections are back from the watcher.
    pub(crate) fn away_bell(&self) -> Option<&Bell> {
        self.away.as_deref().map(Away::bell)
    }

    /// Whether any connection is with the watcher, or waits for a thread.
    pub(crate) fn has_away(&self) -> bool {
        self.away.as_ref().is_some_and(|away| !away.is_empty())
    }

    /// Whether connections are back and wait for a thread.
    pub(crate) fn has_back(&self) -> bool {
        self.away.as_ref().is_some_and(|away| away.has_back())
    }

    /// Takes the connections that are back.
    pub(crate) fn take_back(&self) -> VecDeque<ToServe<H>> {
        self.away.as_ref().map(|away| away.take_back()).unwrap_or_default()
    }

    /// Waits until the watcher has no connection, after an order to end, or has cut all, after one
    /// to stop. Returns how they ended.
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

    /// Counts a thread that has a connection, until the result is dropped.
    pub(crate) fn occupy(&self) -> Occupied<'_> {
        self.busy.fetch_add(1, Relaxed);
        Occupied(&self.busy)
    }

    /// Takes a worker, for one thread.
    pub fn take(&self) -> Worker<H> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| {
            let (handler, metrics) = (self.make)();
            let lingering = Arc::clone(&self.lingering);
            Worker::new(handler, Arc::clone(&self.settings), metrics, lingering)
        })
    }

    /// Tells the handlers of all idle workers the time and what has changed, once a second, so that
    /// a worker which serves no client does not keep what was replaced. For the thread that
    /// accepts.
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

    /// Drops all idle workers, which makes their handlers write what they have not written yet.
    pub fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Puts a worker back that its thread needs no longer.
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
