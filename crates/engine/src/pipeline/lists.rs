//! The four lists, and the jobs in them: one after another in their lanes.

use super::list::List;
use crate::helpers::{Ask, Crew, Mailbox};
use crate::lanes::{Entry, Lanes};
use crate::watch::Watch;
use forebay_conn::Job;
use forebay_control::allocation::{PHASES, Phase};
use forebay_metrics::Local;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What waits in a list.
pub(super) enum Task<J: Job> {
    /// This listener has connections.
    Accept(usize),
    /// The connection with this token goes on.
    Turn(u64),
    /// A job whose lane is free.
    Run(Errand<J>),
}

/// A job on its way.
pub(super) struct Errand<J: Job> {
    pub(super) job: J,
    /// The phase whose threads do it.
    pub(super) phase: Phase,
    /// The connection it is for.
    pub(super) token: u64,
    /// Where the result goes, if the connection belongs to a loop.
    pub(super) mailbox: Option<Arc<Mailbox<J::Done>>>,
}

/// The lists of all phases.
pub(super) struct Lists<J: Job> {
    lists: [List<Task<J>>; PHASES],
    lanes: Mutex<Lanes<Errand<J>>>,
    threads: Mutex<Threads>,
    ended: Condvar,
}

#[derive(Default)]
struct Threads {
    alive: usize,
    /// Those of them in a job, which may never end.
    in_job: usize,
    /// Somebody waits for them to end.
    awaited: bool,
}

impl<J: Job> Lists<J> {
    /// Empty lists for so many threads each.
    pub(super) fn new(threads: [u32; PHASES]) -> Lists<J> {
        Lists {
            lists: threads.map(List::new),
            lanes: Mutex::default(),
            threads: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// A phase's list.
    pub(super) fn of(&self, phase: Phase) -> &List<Task<J>> {
        &self.lists[phase.index()]
    }

    /// The connection with this token goes on in `phase`.
    pub(super) fn push_turn(&self, phase: Phase, token: u64) {
        self.of(phase).push(Task::Turn(token));
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes<Errand<J>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job comes to its lane. If that is free, the caller has the job done, or does it.
    pub(super) fn enter(&self, errand: Errand<J>) -> Entry<Errand<J>> {
        self.lanes().enter(errand.job.lane(), errand)
    }

    /// A job of this lane has ended: the next one goes to its list.
    pub(super) fn leave(&self, lane: u64) {
        let next = self.lanes().leave(lane);
        if let Some(errand) = next {
            self.of(errand.phase).push(Task::Run(errand));
        }
    }

    fn count_threads(&self, change: impl FnOnce(&mut Threads)) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut threads);
        if threads.awaited {
            self.ended.notify_all();
        }
    }

    /// A thread is about to begin.
    pub(super) fn thread_begins(&self) {
        self.count_threads(|threads| threads.alive += 1);
    }

    /// A thread has ended.
    pub(super) fn thread_ended(&self) {
        self.count_threads(|threads| threads.alive -= 1);
    }

    /// Does a job. It may hang; a panic gives `None`.
    pub(super) fn run(&self, job: J, metrics: &Local, sampled: bool) -> Option<J::Done> {
        self.count_threads(|threads| threads.in_job += 1);
        let mut watch = Watch::new(metrics, sampled);
        let done = catch_unwind(AssertUnwindSafe(|| job.run(metrics, &mut watch)));
        self.count_threads(|threads| threads.in_job -= 1);
        done.ok()
    }

    /// Closes all lists.
    pub(super) fn close(&self) {
        self.lists.iter().for_each(List::close);
    }

    /// Until all threads have ended, but for those in jobs.
    pub(super) fn wait_for_threads(&self) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.awaited = true;
        let left = self.ended.wait_while(threads, |threads| threads.alive > threads.in_job);
        drop(left.unwrap_or_else(PoisonError::into_inner));
    }
}

/// The jobs of loops are done by the threads of the process and send phases.
impl<J: Job> Crew<J> for Arc<Lists<J>> {
    fn submit(&self, job: J, ask: Ask, mailbox: &Arc<Mailbox<J::Done>>) -> bool {
        let Ask { phase, token, .. } = ask;
        let errand = Errand { job, phase, token, mailbox: Some(Arc::clone(mailbox)) };
        match self.enter(errand) {
            Entry::Free(errand) => self.of(phase).push(Task::Run(errand)),
            Entry::Waits => {}
            Entry::Full => return false,
        }
        true
    }
}
