//! How a thread waits that has one connection: in poll, for a permit to answer, or in the job
//! itself.

use crate::connection::served::{DoneOf, EventOf, Served};
use crate::connection::waits::RequestWait;
use crate::connection::worker::Worker;
use crate::control::{Ended, EngineControl, LoopOrder};
use crate::helpers::SharedJob;
use crate::loops::deadlines::ConnectionTimer;
use crate::order::permits::Permit;
use crate::straight::away::ToServe;
use crate::straight::stock::Stock;
use crate::straight::{self, AfterWait, Answerable, Gone, Wait};
use crate::watch::TurnStopwatch;
use forebay_conn::{
    Awaited, Closing, Handler, Job, JobKind, Protocol, RequestEvent, RequestId, Wants,
};
use forebay_metrics::Counter;
use forebay_sys::poll::{self, PollInterest, Readiness};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The length of a wait after which the handler rests.
const REST_MS: u64 = 100;

/// The interval at which a thread that waits for a permit looks whether its client is still there,
/// and at the order; and at which one whose client is slow looks whether others wait for its
/// thread.
const LOOK_MS: u64 = 500;

/// The longest time that a job that blocks waits for those before it. Files whose reads hang do not
/// keep other files from being read.
const JOB_PATIENCE: Duration = Duration::from_millis(200);

/// The waits of a thread: in poll on the sockets and the bell, at the permits, or in the job
/// itself.
///
/// The thread itself does what requests wait for, one after another, in the order in which they
/// asked. Before each it looks at what the client has sent meanwhile, if the protocol goes on with
/// that.
pub(crate) struct Blocking<'c, H: Handler> {
    worker: &'c mut Worker<H>,
    control: &'c EngineControl,
    stock: &'c Stock<H>,
    heartbeat: Option<usize>,
    timer: ConnectionTimer,
    todo: VecDeque<(RequestId, Todo<H::Job>)>,
    /// Requests that may not be answered yet, each with its time.
    early: Vec<(u64, RequestId)>,
    /// The socket had room to write at the last poll.
    writable: bool,
    /// The permit of the thread, and the request that it may answer with it.
    permit: Option<(RequestId, Permit)>,
    job_permit: Option<Permit>,
    /// A function that is called now and then while the client is slow.
    make_room: &'c dyn Fn(&Worker<H>),
}

/// What a request waits for this thread to do.
enum Todo<J> {
    /// Get a permit to answer the request.
    Answer,
    /// Do this job.
    Job(SharedJob<J>),
}

/// How a job has ended.
enum JobEnd<D> {
    /// The job has this result.
    Done(D),
    /// The job panicked.
    Panicked,
    /// The job has not begun, and there is no time for it, or an order to stop.
    Late,
    /// The connection is gone, so the job was not begun.
    Gone,
}

impl<'c, H: Handler> Blocking<'c, H> {
    /// The waits of a thread that works with `worker`, listens to the orders of `control` while it
    /// waits, and shares permits with all others of `stock`. Heartbeat `heartbeat` of the control's
    /// threads shows that it turns, if there is one. `make_room` is called while the client is
    /// slow.
    pub(crate) fn new(
        worker: &'c mut Worker<H>,
        control: &'c EngineControl,
        stock: &'c Stock<H>,
        heartbeat: Option<usize>,
        make_room: &'c dyn Fn(&Worker<H>),
    ) -> Blocking<'c, H> {
        Blocking {
            worker,
            control,
            stock,
            heartbeat,
            timer: ConnectionTimer::default(),
            todo: VecDeque::new(),
            early: Vec::new(),
            writable: false,
            permit: None,
            job_permit: None,
            make_room,
        }
    }

    /// Rests the heartbeat, as this thread may be away for long and nothing is wrong with it.
    pub(crate) fn rest(&self) {
        if let Some(number) = self.heartbeat {
            self.control.thread_heartbeat_rests(number);
        }
    }

    /// Waits until the client's socket is ready, or another one that a request waits for, or the
    /// time is over, or there is an order stronger than `known`. Returns the request whose socket
    /// is ready.
    fn poll(
        &self,
        served: &Served<H>,
        interest: PollInterest,
        timeout_ms: u64,
        known: LoopOrder,
    ) -> (Readiness, Option<RequestId>) {
        // if poll has no memory, the answer has none either
        let broken = Readiness { broken: true, ..Readiness::default() };
        let client = (served.stream.as_fd(), interest);
        // a socket that is over or lent reports nothing of use here
        let is_over = served.is_over() || served.conn.is_lent();
        let bell = (self.control.stronger_than(known).as_fd(), PollInterest::Read);
        if !served.conn.has_sockets() && !is_over {
            let ready = match known {
                LoopOrder::Stop => poll::wait([client], timeout_ms).map(|[client]| client),
                _ => poll::wait([client, bell], timeout_ms).map(|[client, _]| client),
            };
            return (ready.unwrap_or(broken), None);
        }
        let mut requests = Vec::new();
        let mut set = vec![bell];
        served.conn.sockets(&mut |request, _, socket, wants| {
            // poll would report the end of a socket that no request waits for again and again
            if wants != Wants::default() {
                requests.push(request);
                set.push((socket, interest_of(wants)));
            }
        });
        if !is_over {
            set.push(client);
        }
        let Ok(ready) = poll::wait_any(&set, timeout_ms) else { return (broken, None) };
        let sockets = &ready[1..=requests.len()];
        let first = sockets.iter().position(|socket| socket.ready);
        let client = ready.get(requests.len() + 1).copied().unwrap_or_default();
        (client, first.and_then(|at| requests.get(at).copied()))
    }

    /// Waits until this thread has a permit for this request, the time is over, or there is an
    /// order to stop.
    fn await_permit(
        &mut self,
        served: &Served<H>,
        id: RequestId,
        timeout_ms: u64,
    ) -> Result<(), Gone> {
        let Some(permits) = &self.stock.permits else { return Ok(()) };
        self.rest();
        let ranked_client = served.ranked_client(&self.stock.ranks, id);
        let mut asked = permits.ask(ranked_client);
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
                    self.permit = Some((id, permit));
                    return if is_gone { Err(Gone) } else { Ok(()) };
                }
                Err(_) if served.is_gone() => return Err(Gone),
                Err(still) => asked = still,
            }
            left_ms -= most_ms;
            if left_ms == 0 || self.control.order() == LoopOrder::Stop {
                return Ok(());
            }
            self.worker.handler.rest();
            step_ms = LOOK_MS;
        }
    }

    /// Waits until one more job that blocks may begin, or this one has waited long enough.
    fn await_job_permit(&mut self, served: &Served<H>, id: RequestId) {
        let Some(permits) = &self.stock.job_permits else { return };
        let asked = permits.ask(served.ranked_client(&self.stock.ranks, id));
        if let Ok(permit) = asked.wait(JOB_PATIENCE) {
            let slot = self.stock.ranks.slot(permit.rank());
            self.worker.metrics.waited(slot, permit.waited_ns);
            self.job_permit = Some(permit);
        }
    }

    /// Does a job on this thread, once it may, if the client is still there.
    fn do_job(
        &mut self,
        served: &Served<H>,
        id: RequestId,
        job: &SharedJob<H::Job>,
    ) -> JobEnd<DoneOf<H>> {
        self.give_back_job();
        match job.kind() {
            JobKind::Blocks => {
                self.give_back();
                self.rest();
                self.await_job_permit(served, id);
            }
            JobKind::Computes if self.answers() == Answerable::None => {
                match self.await_permit(served, id, self.time_left_ms()) {
                    Err(Gone) => return JobEnd::Gone,
                    Ok(()) if self.permit.is_none() => return JobEnd::Late,
                    Ok(()) => {}
                }
            }
            JobKind::Computes => {}
        }
        self.rest();
        if served.is_gone() {
            return JobEnd::Gone;
        }
        // the job was taken back if the request is over
        let Some(job) = job.take() else { return JobEnd::Late };
        let sampled = self.worker.is_sampled();
        let metrics = &self.worker.metrics;
        let mut watch = TurnStopwatch::new(metrics, sampled);
        let done = catch_unwind(AssertUnwindSafe(|| job.run(metrics, &mut watch)));
        done.map_or(JobEnd::Panicked, JobEnd::Done)
    }

    /// Waits in poll for what the connection needs of its client and of its requests' other
    /// sockets. Returns the request whose socket is ready, and notes what has arrived from the
    /// client.
    fn look(
        &mut self,
        served: &mut Served<H>,
        timeout_ms: u64,
        known: LoopOrder,
    ) -> Result<Option<RequestId>, Gone> {
        let interest = match served.pending {
            Some(_) if served.reads_meanwhile() && !served.readable => PollInterest::Both,
            Some(_) => PollInterest::Write,
            None if served.has_to_open() => PollInterest::Both,
            None if served.wants_input() => PollInterest::Read,
            None if served.conn.aborts_on_close() => PollInterest::PeerEnd,
            None => PollInterest::End,
        };
        let (readiness, request) = self.poll(served, interest, timeout_ms, known);
        let waits_for_room = served.pending.is_some() || served.has_to_open();
        self.writable = readiness.writable && waits_for_room;
        let reads = matches!(interest, PollInterest::Read | PollInterest::Both);
        served.has_come(reads && readiness.readable, readiness.ended);
        match readiness.broken {
            true if served.stream.has_ended() => served.readable = true,
            true => return Err(Gone),
            false => {}
        }
        Ok(request)
    }

    /// The milliseconds until the first deadline of the connection.
    fn time_left_ms(&self) -> u64 {
        self.timer.at_ms().saturating_sub(self.worker.now_ms())
    }

    /// Takes a request whose time has come.
    fn take_due(&mut self) -> Option<RequestId> {
        let now_ms = self.worker.now_ms();
        let at = self.early.iter().position(|(at_ms, _)| *at_ms <= now_ms)?;
        Some(self.early.swap_remove(at).1)
    }

    /// Does what the next request waits for. Returns `Ok(None)` if the protocol need not know of
    /// the outcome.
    fn do_next(&mut self, served: &mut Served<H>) -> Result<Option<EventOf<H>>, Gone> {
        let Some((id, todo)) = self.todo.pop_front() else { return Ok(None) };
        if !served.waits.contains(id) {
            // the request was over before its turn had come
            return Ok(None);
        }
        match &todo {
            Todo::Answer => {
                self.await_permit(served, id, self.time_left_ms())?;
                if self.permit.is_none() {
                    self.todo.push_front((id, todo));
                    return Ok(None);
                }
                served.waits.remove(id);
                Ok(Some(RequestEvent::Called(id)))
            }
            Todo::Job(job) => match self.do_job(served, id, job) {
                JobEnd::Done(done) => {
                    Ok(served.job_done(id).then_some(RequestEvent::Done(id, done)))
                }
                JobEnd::Panicked => {
                    self.worker.count(Counter::Panics);
                    Ok(served.job_done(id).then_some(RequestEvent::Failed(id)))
                }
                JobEnd::Late => {
                    self.todo.push_front((id, todo));
                    Ok(None)
                }
                JobEnd::Gone => Err(Gone),
            },
        }
    }

    /// Gives the permit for jobs back. This is not done before what the job has read was sent, as
    /// far as the client takes it at once; otherwise there would be as much of it in memory as
    /// there are threads.
    fn give_back_job(&mut self) {
        if let Some(permit) = self.job_permit.take()
            && let Some(permits) = &self.stock.job_permits
        {
            permits.give_back(permit);
        }
    }

    /// Gives the permit to answer back, if this thread has one.
    fn give_back(&mut self) {
        if let Some((_, permit)) = self.permit.take()
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

    fn begin_turn(&mut self, order: LoopOrder) {
        self.worker.draining = order >= LoopOrder::Drain;
        self.worker.read_clocks();
        if let Some(number) = self.heartbeat {
            self.control.thread_heartbeat(number, self.worker.now_ms());
        }
        self.worker.begin_turn();
        self.worker.observe(|| self.stock.load());
    }

    fn answers(&self) -> Answerable {
        match self.permit {
            Some((id, _)) => Answerable::Called(id),
            None if self.stock.permits.is_some() => Answerable::None,
            None => Answerable::All,
        }
    }

    fn answered(&mut self) {
        self.give_back();
        self.give_back_job();
    }

    fn enqueue(&mut self, served: &mut Served<H>, id: RequestId) -> Result<(), Gone> {
        served.waits.add(id, RequestWait::Turn(None));
        self.todo.push_back((id, Todo::Answer));
        Ok(())
    }

    fn keep_early(&mut self, served: &mut Served<H>, id: RequestId, wait_ms: u32) {
        served.waits.add(id, RequestWait::NotBefore);
        self.early.push((self.worker.not_before_ms(wait_ms), id));
    }

    fn submit(&mut self, _: &mut Served<H>, id: RequestId, job: SharedJob<H::Job>) -> bool {
        self.todo.push_back((id, Todo::Job(job)));
        true
    }

    fn time(&mut self, served: &mut Served<H>) -> Option<Awaited> {
        self.timer.set(served, self.worker);
        self.timer.over(served, self.worker)
    }

    fn next(&mut self, mut served: Box<Served<H>>, known: LoopOrder) -> AfterWait<H> {
        if let Some(id) = self.take_due() {
            served.waits.remove(id);
            return AfterWait::Event(served, RequestEvent::Due(id));
        }
        if !self.todo.is_empty() {
            if served.goes_on() {
                // a job may take long, so the thread first looks whether the client has sent more
                // or has left
                match self.look(&mut served, 0, known) {
                    Err(Gone) => return AfterWait::Gone(served),
                    Ok(Some(request)) => {
                        return AfterWait::Event(served, RequestEvent::Socket(request));
                    }
                    Ok(None) if served.can_go_on(self.writable) => {
                        return AfterWait::Ready(served);
                    }
                    Ok(None) => {}
                }
            }
            return match self.do_next(&mut served) {
                Err(Gone) => AfterWait::Gone(served),
                Ok(None) => AfterWait::Ready(served),
                Ok(Some(event)) => AfterWait::Event(served, event),
            };
        }
        if served.can_go_on(false) {
            return AfterWait::Ready(served);
        }
        // the watcher does not know these times, so a connection with such a request keeps its
        // thread
        let mut served = match self.early.is_empty() {
            true => match self.stock.leave_away(served) {
                Ok(()) => return AfterWait::Taken,
                Err(served) => served,
            },
            false => served,
        };
        let not_before_ms = self.early.iter().map(|(at_ms, _)| *at_ms).min().unwrap_or(u64::MAX);
        let until_ms = self.timer.at_ms().min(not_before_ms);
        let timeout_ms = until_ms.saturating_sub(self.worker.now_ms());
        let mut seen = self.look(&mut served, timeout_ms.min(REST_MS), known);
        if seen == Ok(None) && !served.can_go_on(self.writable) && timeout_ms > REST_MS {
            self.worker.handler.rest();
            self.rest();
            let left_ms = timeout_ms - REST_MS;
            let most_ms = if served.is_slow() { LOOK_MS } else { u64::MAX };
            seen = self.look(&mut served, left_ms.min(most_ms), known);
        }
        match seen {
            Err(Gone) => AfterWait::Gone(served),
            Ok(Some(request)) => AfterWait::Event(served, RequestEvent::Socket(request)),
            Ok(None) => {
                self.worker.read_clocks();
                if served.is_slow() {
                    (self.make_room)(self.worker);
                }
                match self.take_due() {
                    None => AfterWait::Ready(served),
                    Some(id) => {
                        served.waits.remove(id);
                        AfterWait::Event(served, RequestEvent::Due(id))
                    }
                }
            }
        }
    }

    fn pass(&mut self, _: &mut Served<H>) {
        std::thread::yield_now();
    }

    fn leave_queue(&mut self, _: &Served<H>) {
        self.todo.clear();
    }

    fn let_go(&mut self, _: &Served<H>) {}
}

/// The interest that poll has in a socket.
fn interest_of(wants: Wants) -> PollInterest {
    match (wants.read, wants.write) {
        (true, true) => PollInterest::Both,
        (true, false) => PollInterest::Read,
        (false, true) => PollInterest::Write,
        (false, false) => PollInterest::End,
    }
}

impl<H: Handler> Stock<H> {
    /// Serves a connection to its end on this thread, or until it is away. The thread shows in
    /// heartbeat `number` of the control's threads that it turns, if it has one. `make_room` is
    /// called now and then while the client is slow. Returns how the connection ended, if that was
    /// in a drain.
    pub(crate) fn serve(
        &self,
        worker: &mut Worker<H>,
        to_serve: ToServe<H>,
        control: &EngineControl,
        number: Option<usize>,
        make_room: &dyn Fn(&Worker<H>),
    ) -> Ended {
        let _occupied = self.occupy();
        let mut wait = Blocking::new(worker, control, self, number, make_room);
        let ToServe { served, begun } = to_serve;
        if begun.is_some() {
            wait.begin_turn(control.order());
        }
        let ended = straight::serve(&mut wait, served, begun, None, control);
        wait.worker().handler.rest();
        wait.rest();
        ended
    }

    /// Closes a connection on this thread.
    pub fn close(
        &self,
        worker: &mut Worker<H>,
        served: Box<Served<H>>,
        closing: Closing,
        control: &EngineControl,
    ) {
        let _occupied = self.occupy();
        let mut wait = Blocking::new(worker, control, self, None, &|_| ());
        straight::close(&mut wait, served, closing);
        drop(wait);
        worker.handler.rest();
    }
}
