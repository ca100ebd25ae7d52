//! What a thread does with the tasks of its phase.

use super::Shared;
use super::slab::{Connection, Locked, State};
use crate::accept::{Arrival, BATCH, PAUSE_MS};
use crate::blocking::Blocking;
use crate::control::Order;
use crate::helpers::{Ask, Claim, Crew, Results};
use crate::lanes::Entry;
use crate::pipeline::give_way;
use crate::pipeline::list::{Seat, Stint};
use crate::pipeline::lists::{Errand, Task};
use crate::straight::{self, Deadline, Wait};
use crate::worker::{Fate, Served, Worker};
use forebay_conn::{Await, Closing, Handler, Job, Kind};
use forebay_control::allocation::Phase;
use forebay_metrics::Counter;
use std::sync::{Arc, PoisonError};

/// What becomes of a connection after a task.
enum After<J> {
    /// The epoll has it, or the watcher is about to close it.
    Stays,
    /// It goes to this list.
    Goes(Phase),
    /// It waits for this job.
    Job(J),
    HandOver,
    Ends(Closing),
}

impl<H: Handler> Shared<H> {
    /// A thread of a phase, from begin to end.
    pub(super) fn work(&self, phase: Phase, seat: Seat) {
        let list = self.lists.of(phase);
        let ranks = &self.lists.ranks;
        let _meter = list.enlist();
        give_way(phase, list.level(seat), ranks);
        let mut worker = self.stock.take();
        let mut ended = None;
        while let Some((task, mut stint)) = list.next(seat, ended.take(), || worker.handler.rest())
        {
            let is_counted = phase == Phase::Process && ranks.is_ordered();
            let of_class = is_counted.then(|| {
                let slot = ranks.slot(stint.rank());
                worker.metrics.waited(slot, stint.waited_ns);
                worker.metrics.begin_turn(slot)
            });
            worker.draining = self.control.order() >= Order::Drain;
            worker.read_clocks();
            worker.begin_turn();
            worker.observe(|| self.admission.load());
            match task {
                Task::Accept(index) => self.accept(phase, index, &mut worker),
                Task::Turn(token) => self.turn(phase, token, &mut worker, &mut stint),
                Task::Run(errand) => self.run(errand, &mut worker, &mut stint),
                Task::Done(token, done) => {
                    let done = done.map(|done| *done);
                    self.job_done(phase, token, done, &mut worker, &mut stint);
                }
            }
            if let Some(of_class) = of_class {
                worker.metrics.end_turn(of_class, stint.ns());
            }
            ended = Some(stint);
        }
        worker.handler.rest();
        self.stock.give_back(worker);
    }

    /// The accept phase: a batch from listener `index`. When all places are taken it comes after those
    /// in the list of receive: they may be about to leave, and nobody is to be refused for them.
    fn accept(&self, phase: Phase, index: usize, worker: &mut Worker<H>) {
        let entrance = self.entrance.read().unwrap_or_else(PoisonError::into_inner);
        let mut may_leave = phase == Phase::Accept;
        for _ in 0..BATCH {
            if may_leave && self.admission.load() >= 1.0 {
                return self.lists.push_accept(Phase::Receive, index);
            }
            let may_make_room =
                self.lists.ranks.is_ordered() && !worker.draining && !self.idle().is_empty();
            let arrival = if may_make_room {
                entrance.next_or_crowded(index, worker).unwrap_or_else(|served| {
                    self.make_room(served.conn.rank(), worker);
                    entrance.take_place(*served, worker)
                })
            } else {
                entrance.next(index, worker)
            };
            match arrival {
                Arrival::Served(served) => {
                    self.admit(served, worker);
                    may_leave = true;
                }
                Arrival::Refused(served, closing) => self.refuse(served, closing, worker),
                Arrival::Gone => {}
                Arrival::Nobody => {
                    if let Some(listener) = entrance.listener(index) {
                        let _ = self
                            .epoll
                            .watch_again(&listener.socket, super::watcher::token_of(index));
                    }
                    return;
                }
                Arrival::Exhausted => {
                    self.paused().push((index, worker.now_ms() + PAUSE_MS));
                    return self.ring();
                }
            }
        }
        self.lists.push_accept(Phase::Accept, index);
    }

    /// A new connection goes to receive: its request is likely to be there already.
    pub(super) fn admit(&self, served: Served<H>, worker: &mut Worker<H>) {
        match self.slab.insert(served) {
            Ok(mut slot) => {
                if let Some(connection) = slot.connection() {
                    let token = connection.token;
                    drop(slot);
                    self.lists.push_receive(token);
                }
            }
            Err(served) => worker.close(*served, Closing::Reset),
        }
    }

    /// A connection that was told no is closed.
    pub(super) fn refuse(&self, served: Served<H>, closing: Closing, worker: &mut Worker<H>) {
        match self.slab.insert(served) {
            Ok(slot) => self.end(slot, closing, worker),
            Err(served) => worker.close(*served, closing),
        }
    }

    /// The connection with this token has come to the head of this phase's list.
    fn turn(&self, phase: Phase, token: u64, worker: &mut Worker<H>, stint: &mut Stint) {
        let Some(mut slot) = self.slab.lock(token) else { return };
        let Some(connection) = slot.connection() else { return };
        match connection.state {
            State::Moving => self.go_on(slot, phase, None, worker, stint),
            State::Lingering(left) if phase == Phase::Receive => {
                self.drop_input(slot, left, worker);
            }
            // its time was over while it waited here
            State::Lingering(_) | State::Watched | State::InJob => {}
        }
    }

    fn go_on(
        &self,
        mut slot: Locked<'_, H>,
        phase: Phase,
        done: Option<<H::Job as Job>::Done>,
        worker: &mut Worker<H>,
        stint: &mut Stint,
    ) {
        let Some(connection) = slot.connection() else { return };
        let token = connection.token;
        match self.serve(connection, phase, done, worker) {
            After::Stays => {}
            After::Goes(next) => {
                let standing = self.standing(connection);
                drop(slot);
                self.lists.push_turn(next, token, standing);
            }
            After::Job(job) => {
                connection.state = State::InJob;
                self.set_deadline(connection, worker);
                let ask = Ask { phase, standing: self.standing(connection), token };
                let job = connection.served.wait_for(job);
                if job.kind() == Kind::Computes {
                    // without a watch it may be done for nobody, and that is all
                    self.watch_end(connection);
                }
                drop(slot);
                worker.count(Counter::Jobs);
                self.have_done(job, ask, worker, stint);
            }
            After::HandOver => self.hand_over(slot, worker),
            After::Ends(closing) => self.end(slot, closing, worker),
        }
    }

    /// Takes the steps of `phase`, and waits for a client that takes nothing.
    fn serve(
        &self,
        connection: &mut Connection<H>,
        phase: Phase,
        mut done: Option<<H::Job as Job>::Done>,
        worker: &mut Worker<H>,
    ) -> After<H::Job> {
        let mut deadline = Deadline::default();
        let mut wait = Blocking::new(worker, &self.control, &self.stock, None);
        loop {
            let order = self.control.order();
            if order == Order::Stop {
                return After::Stays;
            }
            let worker = wait.worker();
            worker.draining = order >= Order::Drain;
            match worker.phase(phase, &mut connection.served, done.take()) {
                Fate::Waits if connection.served.pending.is_some() => {
                    let served = &mut connection.served;
                    if let Some(closing) =
                        straight::wait_for_client(&mut wait, served, &mut deadline, order)
                    {
                        return After::Ends(closing);
                    }
                    wait.worker().read_clocks();
                    wait.worker().begin_turn();
                }
                Fate::Waits if self.watch(connection, worker) => return After::Stays,
                Fate::Waits => return After::Ends(Closing::Reset),
                Fate::Next(next) => {
                    if connection.served.awaits() == Await::Job {
                        self.set_deadline(connection, worker);
                    }
                    return After::Goes(next);
                }
                Fate::Yields => return After::Goes(phase),
                Fate::Job(job) => return After::Job(job),
                Fate::HandOver => return After::HandOver,
                Fate::Closes(closing) => return After::Ends(closing),
            }
        }
    }

    /// Has a job done: one that blocks by this thread, if its lane is free, one that computes by a
    /// helper thread.
    fn have_done(&self, job: Claim<H::Job>, ask: Ask, worker: &mut Worker<H>, stint: &mut Stint) {
        let taken = match job.kind() {
            Kind::Computes => {
                let results: Arc<dyn Results<_>> = Arc::clone(&self.lists) as _;
                self.lists.submit(job, ask, results)
            }
            Kind::Blocks => match self.lists.enter(Errand { job, ask, results: None }) {
                Entry::Free(errand) => return self.run(errand, worker, stint),
                Entry::Waits => true,
                Entry::Full => false,
            },
        };
        if !taken {
            self.give_up(ask.token, worker);
        }
    }

    /// Does a job whose lane is free, unless its client has left meanwhile, and goes on with the
    /// connection if it is still waiting.
    fn run(&self, errand: Errand<H::Job>, worker: &mut Worker<H>, stint: &mut Stint) {
        let Ask { phase, standing, token } = errand.ask;
        let list = self.lists.of(phase);
        let Some(Task::Run(errand)) = list.begin_job(Task::Run(errand), standing, stint) else {
            return;
        };
        self.close_if_gone(token, worker);
        let sampled = worker.is_sampled();
        let done = errand.job.take().map(|job| self.lists.run(job, &worker.metrics, sampled));
        list.end_job(stint);
        self.lists.leave(errand.job.lane());
        worker.read_clocks();
        if let Some(done) = done {
            self.job_done(phase, token, done, worker, stint);
        }
    }

    /// A job has ended, or has panicked: the connection goes on, if it is still waiting.
    fn job_done(
        &self,
        phase: Phase,
        token: u64,
        done: Option<<H::Job as Job>::Done>,
        worker: &mut Worker<H>,
        stint: &mut Stint,
    ) {
        if done.is_none() {
            worker.count(Counter::Panics);
        }
        let Some(mut slot) = self.slab.lock(token) else { return };
        let Some(connection) = slot.connection() else { return };
        if connection.state != State::InJob {
            return;
        }
        // the next job has time of its own
        connection.awaited = None;
        connection.served.job_done();
        match done {
            Some(done) => {
                connection.state = State::Moving;
                self.go_on(slot, phase, Some(done), worker, stint);
            }
            None => self.close(slot, Closing::Reset, worker),
        }
    }

    /// Too many jobs wait.
    fn give_up(&self, token: u64, worker: &mut Worker<H>) {
        let Some(mut slot) = self.slab.lock(token) else { return };
        let Some(connection) = slot.connection() else { return };
        let closing = worker.expire(&mut connection.served, Await::Job);
        self.end(slot, closing, worker);
    }
}
