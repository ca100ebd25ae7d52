//! What the engines with a thread per connection share: waiting in poll, and the stock of workers.

use crate::accept::Listener;
use crate::admission::Admission;
use crate::control::{Control, Order};
use crate::settings::Live;
use crate::straight::Wait;
use crate::watch::Watch;
use crate::worker::Worker;
use forebay_conn::{Handler, Job};
use forebay_metrics::Local;
use forebay_sys::poll::{self, Interest, Readiness};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Blocks the thread: in poll on the socket and the bell, or in the job itself.
pub struct Blocking<'c> {
    control: &'c Control,
    lingering: &'c AtomicUsize,
    most_lingering: usize,
    busy: &'c AtomicUsize,
    threads: usize,
}

impl<'c> Blocking<'c> {
    /// Listens to the orders of `control` while it waits; shares the bound on lingering with all
    /// others of `stock`.
    pub fn new<H: Handler>(control: &'c Control, stock: &'c Stock<H>) -> Blocking<'c> {
        let most_lingering = stock.settings.get().lingering;
        let (lingering, busy, threads) = (&stock.lingering, &stock.busy, stock.threads);
        Blocking { control, lingering, most_lingering, busy, threads }
    }
}

impl<H: Handler> Wait<H> for Blocking<'_> {
    fn ready(
        &mut self,
        socket: BorrowedFd<'_>,
        interest: Interest,
        timeout_ms: u64,
        known: Order,
    ) -> Readiness {
        let result = if known == Order::Stop {
            poll::wait([(socket, interest)], timeout_ms).map(|[socket]| socket)
        } else {
            let bell = self.control.stronger_than(known).as_fd();
            poll::wait([(socket, interest), (bell, Interest::Read)], timeout_ms)
                .map(|[socket, _]| socket)
        };
        // without memory for poll there is none for the answer
        result.unwrap_or(Readiness { broken: true, ..Readiness::default() })
    }

    fn job(&mut self, job: H::Job, worker: &mut Worker<H>) -> Option<<H::Job as Job>::Done> {
        let sampled = worker.is_sampled();
        let metrics = &worker.metrics;
        let mut watch = Watch::new(metrics, sampled);
        catch_unwind(AssertUnwindSafe(|| job.run(metrics, &mut watch))).ok()
    }

    fn pass(&mut self) {
        std::thread::yield_now();
    }

    fn load(&self) -> f64 {
        self.busy.load(Relaxed) as f64 / self.threads as f64
    }

    fn begin_linger(&mut self) -> bool {
        let may = self.lingering.fetch_add(1, Relaxed) < self.most_lingering;
        if !may {
            self.lingering.fetch_sub(1, Relaxed);
        }
        may
    }

    fn end_linger(&mut self) {
        self.lingering.fetch_sub(1, Relaxed);
    }
}

/// Makes a handler and the counters it writes to.
pub type Make<H> = Box<dyn Fn() -> (H, Arc<Local>) + Send + Sync>;

/// Everything an engine with a thread per connection is made of.
pub struct Parts<H: Handler> {
    /// Where connections come from.
    pub listeners: Vec<Listener>,
    /// Makes the handlers.
    pub make: Make<H>,
    /// Timeouts and bounds.
    pub settings: Arc<Live>,
    /// The count of connections.
    pub admission: Arc<Admission>,
    /// Where orders come from.
    pub control: Arc<Control>,
    /// Threads of the pool, or most threads at once; at least 1.
    pub threads: usize,
}

/// Workers that no thread uses, and how to make more.
pub struct Stock<H: Handler> {
    make: Make<H>,
    settings: Arc<Live>,
    idle: Mutex<Vec<Worker<H>>>,
    /// Connections that linger now.
    lingering: AtomicUsize,
    /// Threads that have a connection, of how many.
    busy: AtomicUsize,
    threads: usize,
}

impl<H: Handler> Stock<H> {
    /// An empty stock for so many threads.
    pub fn new(make: Make<H>, settings: Arc<Live>, threads: usize) -> Stock<H> {
        Stock {
            make,
            settings,
            idle: Mutex::new(Vec::new()),
            lingering: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            threads: threads.max(1),
        }
    }

    /// A thread has a connection until the result is dropped.
    pub fn occupy(&self) -> Occupied<'_> {
        self.busy.fetch_add(1, Relaxed);
        Occupied(&self.busy)
    }

    /// A worker, for one thread.
    pub fn take(&self) -> Worker<H> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| {
            let (handler, metrics) = (self.make)();
            Worker::new(handler, Arc::clone(&self.settings), metrics)
        })
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
pub struct Occupied<'s>(&'s AtomicUsize);

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
