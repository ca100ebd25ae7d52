//! What a thread does with the tasks of its phase.

use super::Shared;
use super::pipeline_connection::PipelineConnection;
use super::send::Waited;
use super::slab::Locked;
use crate::connection::accept::{AcceptOutcome, BATCH, PAUSE_MS};
use crate::connection::served::{DoneOf, EventOf, Served};
use crate::connection::turn::Fate;
use crate::connection::waits::RequestWait;
use crate::connection::worker::Worker;
use crate::control::LoopOrder;
use crate::helpers::{JobContext, JobRunner, Results, SharedJob};
use crate::order::lanes::{LaneClaim, LaneEntry, first_left};
use crate::order::ranks::{RankedClient, RequestKey};
use crate::pipeline::list::{TaskRun, WorkerSlot};
use crate::pipeline::lists::{JobTask, Task};
use crate::pipeline::thread::PhaseThread;
use forebay_conn::{Closing, Handler, JobKind, Protocol, RequestEvent, RequestId};
use forebay_control::allocation::Phase;
use forebay_metrics::Counter;
use forebay_sys::clock;
use forebay_sys::epoll::Once;
use std::sync::{Arc, PoisonError};

/// What becomes of a connection after a task.
enum After {
    /// The connection stays open.
    Stays,
    /// The watcher is about to close the connection.
    Stops,
    HandOver,
    Ends(Closing),
}

/// The outcome of a task, for when its connection is unlocked.
struct TaskOutcome<J> {
    /// The phase in which the connection goes on.
    turn: Option<Phase>,
    /// The request that is answered next.
    answer: Option<(RequestKey, RankedClient)>,
    /// The jobs that must be done.
    jobs: Vec<(SharedJob<J>, JobContext)>,
}

impl<J> Default for TaskOutcome<J> {
    fn default() -> TaskOutcome<J> {
        TaskOutcome { turn: None, answer: None, jobs: Vec::new() }
    }
}

impl<H: Handler> Shared<H> {
    /// Runs a thread of a phase, from beginning to end.
    pub(super) fn work(&self, phase: Phase, worker_slot: WorkerSlot) {
        let ranks = &self.lists.ranks;
        let mut thread = PhaseThread::new(&self.lists, phase, worker_slot);
        let mut worker = self.stock.take();
        let mut ended = None;
        while let Some((task, mut task_run)) = thread.next(ended.take(), || worker.handler.rest()) {
            let phase = thread.phase();
            let is_counted = phase == Phase::Process && ranks.is_ordered();
            let of_class = is_counted.then(|| {
                let slot = ranks.slot(task_run.rank());
                (slot, worker.metrics.begin_turn(slot))
            });
            worker.draining = self.control.order() >= LoopOrder::Drain;
            worker.read_clocks();
            worker.begin_turn();
            if phase != Phase::Process {
                // handshakes begin in process, where there is an order
                worker.handshakes = [0; 2];
            }
            worker.observe(|| self.admission.load());
            match task {
                Task::Accept(index) => self.accept(phase, index, &mut worker),
                Task::Turn(token) => self.turn(phase, token, &mut worker, &mut task_run),
                Task::Run(claim) => {
                    task_run.in_vain = !self.run(phase, claim, &mut worker, &mut task_run);
                }
                Task::Answer(key) => self.answer(key, &mut worker, &mut task_run),
                Task::Due(key) => self.not_before_has_come(key, &mut worker, &mut task_run),
                Task::Done(key, done) => {
                    let done = done.map(|done| *done);
                    self.job_done(key, done, &mut worker, &mut task_run);
                }
            }
            if let Some((slot, of_class)) = of_class {
                if !task_run.in_vain {
                    worker.metrics.waited(slot, task_run.waited_ns);
                }
                worker.metrics.end_turn(of_class, task_run.ns());
            }
            ended = Some(task_run);
        }
        worker.handler.rest();
        self.stock.give_back(worker);
    }

    /// Accepts a batch from listener `index`. When all places are taken, the listener comes after
    /// the connections in the list of receive: they may be about to leave, and no client should be
    /// refused for them.
    fn accept(&self, phase: Phase, index: usize, worker: &mut Worker<H>) {
        let listener_set = self.listener_set.read().unwrap_or_else(PoisonError::into_inner);
        let mut may_leave = phase == Phase::Accept;
        for _ in 0..BATCH {
            if may_leave && self.admission.load() >= 1.0 {
                return self.lists.push_accept_last(index);
            }
            let may_make_room =
                self.lists.ranks.is_ordered() && !worker.draining && !self.idle().is_empty();
            let arrival = if may_make_room {
                listener_set.next_or_full(index, worker).unwrap_or_else(|served| {
                    self.make_room(served.conn.rank(), worker);
                    listener_set.take_place(*served, worker)
                })
            } else {
                listener_set.next(index, worker)
            };
            match arrival {
                AcceptOutcome::Served(served) => {
                    self.admit(served, worker);
                    may_leave = true;
                }
                AcceptOutcome::Refused(served, closing) => self.refuse(served, closing, worker),
                AcceptOutcome::Gone => {}
                AcceptOutcome::Nobody => {
                    if let Some(listener) = listener_set.listener(index) {
                        let token = super::watcher::token_of(index);
                        let _ = self.epoll.watch_again(&listener.socket, token, Once::Read);
                    }
                    return;
                }
                AcceptOutcome::Exhausted => {
                    self.paused().push((index, worker.now_ms() + PAUSE_MS));
                    return self.ring();
                }
            }
        }
        drop(listener_set);
        self.enlist(index);
    }

    /// Puts listener `index`, which has connections, into the list of accept.
    pub(super) fn enlist(&self, index: usize) {
        let listener_set = self.listener_set.read().unwrap_or_else(PoisonError::into_inner);
        let rank = listener_set.listener(index).and_then(|listener| listener.rank);
        self.lists.push_accept(rank, index);
    }

    /// Puts a new connection into the list of receive, as its request is likely to be there
    /// already.
    pub(super) fn admit(&self, served: Served<H>, worker: &mut Worker<H>) {
        match self.slab.insert(served) {
            Ok(slot) => self.list(slot, Phase::Receive),
            Err(served) => worker.close(*served, Closing::Reset),
        }
    }

    /// Closes a connection that was refused.
    pub(super) fn refuse(&self, served: Served<H>, closing: Closing, worker: &mut Worker<H>) {
        match self.slab.insert(served) {
            Ok(slot) => self.end(slot, closing, worker),
            Err(served) => worker.close(*served, closing),
        }
    }

    /// Goes on with the connection with this token, which has come to the head of this phase's
    /// list.
    fn turn(&self, phase: Phase, token: u64, worker: &mut Worker<H>, task_run: &mut TaskRun) {
        let Some(mut slot) = self.slab.lock(token) else { return };
        let Some(connection) = slot.connection() else { return };
        connection.was_taken(phase);
        // while a job is done for it, the connection goes on after the job
        if !connection.is_held() {
            self.go_on(slot, phase, None, worker, task_run);
        }
    }

    /// Answers a request whose turn has come, unless it was over while it waited.
    fn answer(&self, key: RequestKey, worker: &mut Worker<H>, task_run: &mut TaskRun) {
        let Some(mut slot) = self.slab.lock(key.connection) else { return };
        let Some(connection) = slot.connection() else { return };
        if connection.awaits_turn(key.request) {
            connection.served.waits.remove(key.request);
            self.tell(slot, Phase::Process, RequestEvent::Called(key.request), worker, task_run);
        }
    }

    /// Goes on with a request whose time has come.
    fn not_before_has_come(&self, key: RequestKey, worker: &mut Worker<H>, task_run: &mut TaskRun) {
        let Some(mut slot) = self.slab.lock(key.connection) else { return };
        let Some(connection) = slot.connection() else { return };
        if connection.awaits_not_before(key.request) {
            connection.served.waits.remove(key.request);
            self.tell(slot, Phase::Receive, RequestEvent::Due(key.request), worker, task_run);
        }
    }

    /// Goes on with a connection to whose request something has happened, unless a job is done for
    /// the connection first.
    fn tell(
        &self,
        mut slot: Locked<'_, H>,
        phase: Phase,
        event: EventOf<H>,
        worker: &mut Worker<H>,
        task_run: &mut TaskRun,
    ) {
        let Some(connection) = slot.connection() else { return };
        match connection.is_held() {
            true => connection.served.keep_event(event),
            false => self.go_on(slot, phase, Some(event), worker, task_run),
        }
    }

    fn go_on(
        &self,
        mut slot: Locked<'_, H>,
        phase: Phase,
        event: Option<EventOf<H>>,
        worker: &mut Worker<H>,
        task_run: &mut TaskRun,
    ) {
        let Some(connection) = slot.connection() else { return };
        let mut next = TaskOutcome::default();
        match self.serve(connection, phase, event, worker, &mut next) {
            After::Stops => return,
            After::HandOver => return self.hand_over(slot, worker),
            After::Ends(closing) => return self.end(slot, closing, worker),
            After::Stays => {}
        }
        let has_room = connection.has_to_send() && !connection.is_full;
        let sends = has_room.then_some(Phase::Send);
        let turns = [next.turn, sends].map(|turn| turn.filter(|phase| connection.enlist(*phase)));
        if !self.leave(connection, worker) {
            return self.end(slot, Closing::Reset, worker);
        }
        let (token, ranked_client) = (connection.token, self.ranked_client_at_rest(connection));
        drop(slot);
        if let Some((key, ranked_client)) = next.answer {
            self.lists.push_answer(key, ranked_client);
        }
        for phase in turns.into_iter().flatten() {
            self.lists.push_turn(phase, token, ranked_client);
        }
        if !next.jobs.is_empty() {
            self.have_done(next.jobs, phase, worker, task_run);
        }
    }

    /// Takes the steps of `phase`, and waits for a while for a client that takes nothing.
    fn serve(
        &self,
        connection: &mut PipelineConnection<H>,
        phase: Phase,
        mut event: Option<EventOf<H>>,
        worker: &mut Worker<H>,
        next: &mut TaskOutcome<H::Job>,
    ) -> After {
        let mut left_ms = self.send_wait_ms;
        loop {
            let order = self.control.order();
            if order == LoopOrder::Stop {
                return After::Stops;
            }
            worker.draining = order >= LoopOrder::Drain;
            let fate = worker.phase(phase, &mut connection.served, event.take());
            if phase == Phase::Send {
                connection.is_full = connection.has_to_send() && !matches!(fate, Fate::Yields);
            }
            match fate {
                // the connection stays locked during the wait, so nothing else may be left to do
                // for it
                Fate::Waits if connection.is_full && connection.is_single() => {
                    match self.wait_for_client(connection, worker, order, &mut left_ms) {
                        Waited::Over => continue,
                        Waited::TooLong => return After::Stays,
                        Waited::Ends(closing) => return After::Ends(closing),
                    }
                }
                Fate::Waits => return After::Stays,
                Fate::Yields => {
                    next.turn = Some(phase);
                    return After::Stays;
                }
                Fate::Shakes => {
                    if connection.shaking.is_none() {
                        connection.shaking = self.shaking.enter(connection.served.conn.rank());
                    }
                    if connection.shaking.is_none() {
                        worker.count(Counter::RefusedHandshake);
                        return After::Ends(Closing::Reset);
                    }
                    next.turn = Some(Phase::Process);
                    return After::Stays;
                }
                Fate::Next(phase) => {
                    next.turn = Some(phase);
                    return After::Stays;
                }
                Fate::Enqueue(id) => self.enqueue(connection, id, next),
                Fate::NotBefore(id, wait_ms) => self.keep_early(connection, id, wait_ms, worker),
                Fate::Job(id, job) => {
                    worker.count(Counter::Jobs);
                    let phase = if id == RequestId::SENDING { Phase::Send } else { Phase::Process };
                    let (ranked_client, request) =
                        (self.ranked_client(connection, id), connection.key(id));
                    let job = connection.served.wait_for(id, job);
                    next.jobs.push((job, JobContext { phase, ranked_client, request }));
                }
                Fate::Lends => self.lend(connection, worker),
                Fate::HandOver => return After::HandOver,
                Fate::Closes(closing) => return After::Ends(closing),
            }
            if !connection.served.goes_on() {
                return After::Stays;
            }
        }
    }

    /// Puts a request that is there into the list of process, where it waits until it is answered.
    fn enqueue(
        &self,
        connection: &mut PipelineConnection<H>,
        id: RequestId,
        next: &mut TaskOutcome<H::Job>,
    ) {
        if connection.served.waits.contains(id) {
            return;
        }
        connection.served.waits.add(id, RequestWait::Turn(None));
        let answer = (connection.key(id), self.ranked_client(connection, id));
        if let Some((key, ranked_client)) = next.answer.replace(answer) {
            self.lists.push_answer(key, ranked_client);
        }
    }

    /// Has jobs done. Helper threads do those that compute. This thread does one that blocks and is
    /// of this phase, if it is the first of a free lane. Other threads do the others.
    fn have_done(
        &self,
        jobs: Vec<(SharedJob<H::Job>, JobContext)>,
        phase: Phase,
        worker: &mut Worker<H>,
        task_run: &mut TaskRun,
    ) {
        let mut own = None;
        for (job, ask) in jobs {
            let taken = match job.kind() {
                JobKind::Computes => {
                    let results: Arc<dyn Results<_>> = Arc::clone(&self.lists) as _;
                    self.lists.submit(job, ask, results)
                }
                JobKind::Blocks => {
                    let since_ns = clock::monotonic_ns();
                    match self.lists.enter(JobTask { job, ask, since_ns, results: None }) {
                        LaneEntry::Claims(claim) if own.is_none() && ask.phase == phase => {
                            own = Some(claim);
                            true
                        }
                        LaneEntry::Claims(claim) => {
                            self.lists.push_claim(claim);
                            true
                        }
                        LaneEntry::Waits => true,
                        LaneEntry::Full => false,
                    }
                }
            };
            if !taken {
                self.give_up(ask.request, worker);
            }
        }
        if let Some(claim) = own {
            self.run(phase, claim, worker, task_run);
        }
    }

    /// Does the first job of a lane, unless its client has left meanwhile, and goes on with the
    /// connection if the request is still waiting; if the job is of another phase, a thread of that
    /// phase goes on. Returns `false` if no job was done.
    fn run(
        &self,
        phase: Phase,
        claim: LaneClaim,
        worker: &mut Worker<H>,
        task_run: &mut TaskRun,
    ) -> bool {
        let list = self.lists.of(phase);
        if list.begin_job(Task::Run(claim), claim.ranked_client, task_run).is_none() {
            return false;
        }
        let Some(begun) = self.lists.begin(claim) else {
            list.end_job(task_run);
            return false;
        };
        let take = |begun: &JobTask<H::Job>| {
            self.close_if_gone(begun.ask.request, worker);
            begun.job.take()
        };
        let instead = || self.lists.instead(claim.lane);
        let (JobTask { ask, .. }, job) = first_left(begun, take, instead);
        let sampled = worker.is_sampled();
        let done = job.map(|job| self.lists.run(job, &worker.metrics, sampled));
        list.end_job(task_run);
        self.lists.leave(claim.lane);
        worker.read_clocks();
        let has_job = done.is_some();
        if let Some(done) = done {
            match ask.phase == phase {
                true => self.job_done(ask.request, done, worker, task_run),
                false => self.lists.post(&ask, done),
            }
        }
        has_job
    }

    /// Goes on with a connection whose job has ended, or has panicked, if the request is still
    /// waiting.
    fn job_done(
        &self,
        RequestKey { connection: token, request: id }: RequestKey,
        done: Option<DoneOf<H>>,
        worker: &mut Worker<H>,
        task_run: &mut TaskRun,
    ) {
        if done.is_none() {
            worker.count(Counter::Panics);
        }
        let Some(mut slot) = self.slab.lock(token) else { return };
        let Some(connection) = slot.connection() else { return };
        if !connection.served.job_done(id) {
            return;
        }
        match done {
            Some(done) if id == RequestId::SENDING => {
                self.go_on(slot, Phase::Send, Some(RequestEvent::Done(id, done)), worker, task_run);
            }
            Some(done) => {
                self.tell(slot, Phase::Process, RequestEvent::Done(id, done), worker, task_run)
            }
            // without the result nothing more of the connection can be sent, or received
            None if id == RequestId::SENDING || id == RequestId::OPENING => {
                self.close(slot, Closing::Reset, worker);
            }
            None => self.tell(slot, Phase::Process, RequestEvent::Failed(id), worker, task_run),
        }
    }

    /// Gives up a request, because too many jobs wait.
    fn give_up(&self, key: RequestKey, worker: &mut Worker<H>) {
        let Some(mut slot) = self.slab.lock(key.connection) else { return };
        let Some(connection) = slot.connection() else { return };
        if !connection.served.waits.has_job(key.request) {
            return;
        }
        match worker.expire_job(&mut connection.served, key.request) {
            Some(closing) => self.end(slot, closing, worker),
            None => self.go_on_after_expiry(slot),
        }
    }
}
