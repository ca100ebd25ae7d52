//! What a thread does with the tasks of its phase.

use super::Shared;
use super::slab::{Connection, Locked, State};
use crate::accept::{Arrival, BATCH, PAUSE_MS};
use crate::blocking::Blocking;
use crate::control::Order;
use crate::lanes::Entry;
use crate::pipeline::lists::{Errand, Task};
use crate::straight::{self, Deadline, Wait};
use crate::worker::{Fate, Served, Worker};
use forebay_conn::{Await, Closing, Handler, Job};
use forebay_control::allocation::Phase;
use forebay_metrics::Counter;
use std::sync::PoisonError;

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
    /// Thread `number` of a phase, from begin to end.
    pub(super) fn work(&self, phase: Phase, number: u32) {
        let list = self.lists.of(phase);
        let _meter = list.enlist();
        let mut worker = self.stock.take();
        let mut finished = false;
        while let Some(task) = list.next(number, finished, || worker.handler.rest()) {
            finished = true;
            worker.draining = self.control.order() >= Order::Drain;
            worker.read_clocks();
            worker.begin_turn();
            worker.observe(|| self.admission.load());
            match task {
                Task::Accept(index) => self.accept(phase, index, &mut worker),
                Task::Turn(token) => self.turn(phase, token, &mut worker),
                Task::Run(errand) => self.run(errand, &mut worker),
            }
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
                return self.lists.of(Phase::Receive).push(Task::Accept(index));
            }
            match entrance.next(index, worker) {
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
        self.lists.of(Phase::Accept).push(Task::Accept(index));
    }

    /// A new connection goes to receive: its request is likely to be there already.
    pub(super) fn admit(&self, served: Served<H>, worker: &mut Worker<H>) {
        match self.slab.insert(served) {
            Ok(mut slot) => {
                if let Some(connection) = slot.connection() {
                    let token = connection.token;
                    drop(slot);
                    self.lists.push_turn(Phase::Receive, token);
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
    fn turn(&self, phase: Phase, token: u64, worker: &mut Worker<H>) {
        let Some(mut slot) = self.slab.lock(token) else { return };
        let Some(connection) = slot.connection() else { return };
        match connection.state {
            State::Moving => self.go_on(slot, phase, None, worker),
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
    ) {
        let Some(connection) = slot.connection() else { return };
        let token = connection.token;
        match self.serve(connection, phase, done, worker) {
            After::Stays => {}
            After::Goes(next) => {
                drop(slot);
                self.lists.push_turn(next, token);
            }
            After::Job(job) => {
                connection.state = State::InJob;
                self.set_deadline(connection, worker);
                drop(slot);
                worker.count(Counter::Jobs);
                match self.lists.enter(Errand { job, phase, token, mailbox: None }) {
                    Entry::Free(errand) => self.run(errand, worker),
                    Entry::Waits => {}
                    Entry::Full => self.give_up(token, worker),
                }
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

    /// Does a job whose lane is free, and goes on with the connection if it is still waiting.
    fn run(&self, errand: Errand<H::Job>, worker: &mut Worker<H>) {
        let list = self.lists.of(errand.phase);
        let Some(Task::Run(errand)) = list.begin_job(Task::Run(errand)) else { return };
        let Errand { job, phase, token, .. } = errand;
        let lane = job.lane();
        let sampled = worker.is_sampled();
        let done = self.lists.run(job, &worker.metrics, sampled);
        list.end_job();
        self.lists.leave(lane);
        worker.read_clocks();
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
        match done {
            Some(done) => {
                connection.state = State::Moving;
                self.go_on(slot, phase, Some(done), worker);
            }
            None => self.close(slot, Closing::Reset, worker),
        }
    }

    /// Too many wait for the same file.
    fn give_up(&self, token: u64, worker: &mut Worker<H>) {
        let Some(mut slot) = self.slab.lock(token) else { return };
        let Some(connection) = slot.connection() else { return };
        let closing = worker.expire(&mut connection.served, Await::Job);
        self.end(slot, closing, worker);
    }
}
