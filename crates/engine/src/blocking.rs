//! What the engines with a thread per connection share: waiting in poll, and the stock of workers.

use crate::accept::Listener;
use crate::admission::Admission;
use crate::control::{Control, Ended, Order};
use crate::ranks::Ranks;
use crate::settings::Live;
use crate::straight::{self, Answers, Deadline, Gone, JobEnd, LinedUp, Wait};
use crate::watch::Watch;
use crate::worker::{Served, Worker};
use forebay_conn::{Closing, Handler, Job};
use forebay_metrics::Local;
use forebay_sys::poll::{self, Interest, Readiness};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A wait that lasts longer than this lets the handler rest.
const REST_MS: u64 = 100;

/// Blocks the thread: in poll on the socket and the bell, or in the job itself.
pub struct Blocking<'c, H: Handler> {
    worker: &'c mut Worker<H>,
    control: &'c Control,
    stock: &'c Stock<H>,
    beat: Option<usize>,
}

impl<'c, H: Handler> Blocking<'c, H> {
    /// Works with `worker`, listens to the orders of `control` while it waits, and shares the bound
    /// on lingering with all others of `stock`.
    pub fn new(
        worker: &'c mut Worker<H>,
        control: &'c Control,
        stock: &'c Stock<H>,
    ) -> Blocking<'c, H> {
        Blocking { worker, control, stock, beat: None }
    }

    /// Shows in beat `number` of the control's threads that it turns, if there is a number.
    #[must_use]
    pub fn beating(self, number: Option<usize>) -> Blocking<'c, H> {
        Blocking { beat: number, ..self }
    }

    /// This thread may be away for long, and nothing is wrong with it.
    fn rest(&self) {
        if let Some(number) = self.beat {
            self.control.thread_beat_rests(number);
        }
    }

    fn poll(
        &self,
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
}

impl<H: Handler> Wait<H> for Blocking<'_, H> {
    type Lent<'w>
        = &'w mut Worker<H>
    where
        Self: 'w;

    fn worker(&mut self) -> &mut Worker<H> {
        self.worker
    }

    fn begin_turn(&mut self, order: Order) {
        self.worker.draining = order >= Order::Drain;
        self.worker.read_clocks();
        if let Some(number) = self.beat {
            self.control.thread_beat(number, self.worker.now_ms());
        }
        self.worker.begin_turn();
        self.worker.observe(|| self.stock.load());
    }

    fn ready(
        &mut self,
        served: &mut Served<H>,
        interest: Interest,
        timeout_ms: u64,
        known: Order,
    ) -> Result<(), Gone> {
        let socket = served.socket.as_fd();
        let mut readiness = self.poll(socket, interest, timeout_ms.min(REST_MS), known);
        if readiness == Readiness::default() && timeout_ms > REST_MS {
            self.worker.handler.rest();
            self.rest();
            readiness = self.poll(socket, interest, timeout_ms - REST_MS, known);
        }
        served.readable |= readiness.ready && interest == Interest::Read;
        served.ended |= readiness.ended;
        if readiness.broken { Err(Gone) } else { Ok(()) }
    }

    fn answers(&self) -> Answers {
        Answers::All
    }

    fn line_up(&mut self, served: Box<Served<H>>, _: Deadline) -> LinedUp<H> {
        Ok(Some(served))
    }

    fn answered(&mut self) {}

    fn job(&mut self, _: &mut Served<H>, job: H::Job) -> JobEnd<<H::Job as Job>::Done> {
        self.rest();
        let sampled = self.worker.is_sampled();
        let metrics = &self.worker.metrics;
        let mut watch = Watch::new(metrics, sampled);
        match catch_unwind(AssertUnwindSafe(|| job.run(metrics, &mut watch))) {
            Ok(done) => JobEnd::Done(done),
            Err(_) => JobEnd::Panicked,
        }
    }

    fn pass(&mut self, _: &mut Served<H>) {
        std::thread::yield_now();
    }

    fn take_back(&mut self, served: Box<Served<H>>, _: Deadline) -> Option<Box<Served<H>>> {
        Some(served)
    }

    fn let_go(&mut self, _: &Served<H>) {}

    fn begin_linger(&mut self) -> bool {
        let lingering = &self.stock.lingering;
        let may = lingering.fetch_add(1, Relaxed) < self.worker.settings.lingering;
        if !may {
            lingering.fetch_sub(1, Relaxed);
        }
        may
    }

    fn end_linger(&mut self) {
        self.stock.lingering.fetch_sub(1, Relaxed);
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
    /// The order of service.
    pub ranks: Ranks,
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

    /// Serves a connection to its end on this thread, which shows in beat `number` of the control's
    /// threads that it turns, if it has one. Says how it ended, if that was in a drain.
    pub fn serve(
        &self,
        worker: &mut Worker<H>,
        served: Served<H>,
        control: &Control,
        number: Option<usize>,
    ) -> Ended {
        let _occupied = self.occupy();
        let mut wait = Blocking::new(worker, control, self).beating(number);
        let ended = straight::serve(&mut wait, Box::new(served), Deadline::default(), control);
        wait.worker().handler.rest();
        wait.rest();
        ended
    }

    /// Closes a connection on this thread.
    pub fn close(
        &self,
        worker: &mut Worker<H>,
        served: Served<H>,
        closing: Closing,
        control: &Control,
    ) {
        let _occupied = self.occupy();
        straight::close(&mut Blocking::new(worker, control, self), Box::new(served), closing);
        worker.handler.rest();
    }

    /// The share of all threads that have a connection.
    fn load(&self) -> f64 {
        self.busy.load(Relaxed) as f64 / self.threads as f64
    }

    /// A thread has a connection until the result is dropped.
    fn occupy(&self) -> Occupied<'_> {
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
struct Occupied<'s>(&'s AtomicUsize);

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
