//! What the engines with a thread per connection share: waiting in poll, or for a permit to answer,
//! and the stock of workers.

use crate::accept::Listener;
use crate::admission::Admission;
use crate::control::{Control, Ended, Order};
use crate::helpers::Claim;
use crate::permits::{Permit, Permits};
use crate::ranks::Ranks;
use crate::settings::Live;
use crate::straight::{self, Answers, Deadline, Gone, JobEnd, LinedUp, Wait, Worked};
use crate::watch::Watch;
use crate::worker::{Served, Worker};
use forebay_conn::{Await, Closing, Handler, Job, Kind};
use forebay_metrics::Local;
use forebay_sys::poll::{self, Interest, Readiness};
use forebay_sys::process;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A wait that lasts longer than this lets the handler rest.
const REST_MS: u64 = 100;

/// Who waits for a permit looks this often whether its client is still there, and at the order.
const LOOK_MS: u64 = 500;

/// A job that blocks waits no longer than this for those before it. Files whose reads hang do not keep
/// other files from being read.
const JOB_PATIENCE: Duration = Duration::from_millis(200);

/// Blocks the thread: in poll on the socket and the bell, at the permits, or in the job itself.
pub struct Blocking<'c, H: Handler> {
    worker: &'c mut Worker<H>,
    control: &'c Control,
    stock: &'c Stock<H>,
    beat: Option<usize>,
    permit: Option<Permit>,
    job_permit: Option<Permit>,
}

impl<'c, H: Handler> Blocking<'c, H> {
    /// Works with `worker`, listens to the orders of `control` while it waits, shares permits and the
    /// bound on lingering with all others of `stock`, and shows in beat `beat` of the control's
    /// threads that it turns, if there is one.
    pub fn new(
        worker: &'c mut Worker<H>,
        control: &'c Control,
        stock: &'c Stock<H>,
        beat: Option<usize>,
    ) -> Blocking<'c, H> {
        Blocking { worker, control, stock, beat, permit: None, job_permit: None }
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

    /// Until this thread has a permit, the time is over, or there is an order to stop.
    fn await_permit(&mut self, served: &Served<H>, timeout_ms: u64) -> Result<(), Gone> {
        let Some(permits) = &self.stock.permits else { return Ok(()) };
        self.rest();
        let standing = served.standing(&self.stock.ranks);
        let mut asked = permits.ask(standing);
        let mut left_ms = timeout_ms;
        let mut step_ms = REST_MS;
        loop {
            let most_ms = left_ms.min(step_ms);
            let result = asked.wait(Duration::from_millis(most_ms));
            let has_waited = !matches!(&result, Ok(permit) if permit.waited_ns < 1_000_000);
            match result {
                Ok(permit) => {
                    let slot = self.stock.ranks.slot(permit.rank());
                    self.worker.metrics.waited(slot, permit.waited_ns);
                    let is_gone = has_waited && served.is_gone();
                    self.permit = Some(permit);
                    return if is_gone { Err(Gone) } else { Ok(()) };
                }
                Err(_) if served.is_gone() => return Err(Gone),
                Err(still) => asked = still,
            }
            left_ms -= most_ms;
            if left_ms == 0 || self.control.order() == Order::Stop {
                return Ok(());
            }
            self.worker.handler.rest();
            step_ms = LOOK_MS;
        }
    }

    /// Until one more job that blocks may begin, or has waited long enough.
    fn await_job_permit(&mut self, served: &Served<H>) {
        let Some(permits) = &self.stock.job_permits else { return };
        let asked = permits.ask(served.standing(&self.stock.ranks));
        if let Ok(permit) = asked.wait(JOB_PATIENCE) {
            let slot = self.stock.ranks.slot(permit.rank());
            self.worker.metrics.waited(slot, permit.waited_ns);
            self.job_permit = Some(permit);
        }
    }

    /// Does a job on this thread, once it may, if its client is still there.
    fn do_job(&mut self, served: &Served<H>, job: &Claim<H::Job>) -> JobEnd<<H::Job as Job>::Done> {
        self.give_back_job();
        match job.kind() {
            Kind::Blocks => {
                self.give_back();
                self.rest();
                self.await_job_permit(served);
            }
            Kind::Computes if self.answers() == Answers::None => {
                let time_ms = self.worker.time_ms(served, Await::Job);
                match self.await_permit(served, time_ms) {
                    Err(Gone) => return JobEnd::Gone,
                    Ok(()) if self.permit.is_some() => {}
                    Ok(()) if self.control.order() == Order::Stop => return JobEnd::Stopped,
                    Ok(()) => return JobEnd::Late,
                }
            }
            Kind::Computes => {}
        }
        self.rest();
        let job = if served.is_gone() { None } else { job.take() };
        let Some(job) = job else { return JobEnd::Gone };
        let sampled = self.worker.is_sampled();
        let metrics = &self.worker.metrics;
        let mut watch = Watch::new(metrics, sampled);
        let done = catch_unwind(AssertUnwindSafe(|| job.run(metrics, &mut watch)));
        done.map_or(JobEnd::Panicked, JobEnd::Done)
    }

    /// Others may do jobs. Not before what this one has read was sent, as far as the client takes it at
    /// once: otherwise there would be as much of it in memory as there are threads.
    fn give_back_job(&mut self) {
        if let Some(permit) = self.job_permit.take()
            && let Some(permits) = &self.stock.job_permits
        {
            permits.give_back(permit);
        }
    }

    /// Others may have the permit, if this thread has one.
    fn give_back(&mut self) {
        if let Some(permit) = self.permit.take()
            && let Some(permits) = &self.stock.permits
        {
            let slot = self.stock.ranks.slot(permit.rank());
            let ns = permits.give_back(permit);
            self.worker.metrics.worked(slot, ns);
        }
    }
}

impl<H: Handler> Drop for Blocking<'_, H> {
    fn drop(&mut self) {
        self.give_back();
        self.give_back_job();
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
        match self.permit {
            Some(_) => Answers::Called,
            None if self.stock.permits.is_some() => Answers::None,
            None => Answers::All,
        }
    }

    fn line_up(&mut self, served: Box<Served<H>>, deadline: Deadline) -> LinedUp<H> {
        let timeout_ms = deadline.at_ms.saturating_sub(self.worker.now_ms());
        match self.await_permit(&served, timeout_ms) {
            Ok(()) => Ok(Some(served)),
            Err(Gone) => Err(served),
        }
    }

    fn answered(&mut self) {
        self.give_back();
        self.give_back_job();
    }

    fn job(&mut self, served: Box<Served<H>>, job: Claim<H::Job>, _: Deadline) -> Worked<H> {
        let end = self.do_job(&served, &job);
        Some((served, end))
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
    /// Jobs that wait for devices, at once, about; at least 1.
    pub jobs: usize,
}

/// What the threads share: workers that none of them uses and how to make more, and permits.
pub struct Stock<H: Handler> {
    make: Make<H>,
    settings: Arc<Live>,
    ranks: Ranks,
    permits: Option<Permits>,
    job_permits: Option<Permits>,
    idle: Mutex<Vec<Worker<H>>>,
    /// Connections that linger now.
    lingering: AtomicUsize,
    /// Threads that have a connection, of how many.
    busy: AtomicUsize,
    threads: usize,
}

impl<H: Handler> Stock<H> {
    /// An empty stock for so many threads, whose requests are answered as they come.
    pub fn new(make: Make<H>, settings: Arc<Live>, threads: usize) -> Stock<H> {
        Stock {
            make,
            settings,
            ranks: Ranks::default(),
            permits: None,
            job_permits: None,
            idle: Mutex::new(Vec::new()),
            lingering: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            threads: threads.max(1),
        }
    }

    /// Threads answer in this order, no more of them at a time than there are cores; and about `jobs`
    /// of them at a time do jobs that wait for devices.
    #[must_use]
    pub fn in_order(self, ranks: Ranks, jobs: usize) -> Stock<H> {
        let permits = Permits::to_answer(&ranks, process::usable_cores());
        let job_permits = Some(Permits::to_wait(&ranks, jobs));
        Stock { permits, job_permits, ranks, ..self }
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
        let mut wait = Blocking::new(worker, control, self, number);
        let ended =
            straight::serve(&mut wait, Box::new(served), Deadline::default(), None, control);
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
        let mut wait = Blocking::new(worker, control, self, None);
        straight::close(&mut wait, Box::new(served), closing);
        drop(wait);
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
