//! The four lists, and the jobs that their threads do, one after another in their lanes. What waits
//! in a list is a claim of a lane ([`lanes`](crate::order::lanes)).
//!
//! Jobs that compute are in none of the lists: they leave the pipeline for the helper threads, of
//! which there are as many as cores, and come back to process (ADR 0023).

use super::list::{TaskList, WorkerSlot};
use super::resting::Resting;
use crate::helpers::{Helpers, JobContext, JobRunner, Results, SharedJob};
use crate::order::lanes::{LaneClaim, LaneEntry, Lanes};
use crate::order::ranks::{RankedClient, Ranks, RequestKey};
use crate::watch::TurnStopwatch;
use forebay_conn::{Job, JobKind, Rank};
use forebay_control::allocation::{PHASES, Phase};
use forebay_metrics::Local;
use forebay_sys::clock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A task that waits in a list.
pub(super) enum Task<J: Job> {
    /// Accept from this listener, which has connections.
    Accept(usize),
    /// Go on with the connection with this token.
    Turn(u64),
    /// Answer this request.
    Answer(RequestKey),
    /// Answer this request, whose time has come.
    Due(RequestKey),
    /// Do the first job of this lane.
    Run(LaneClaim),
    /// Go on with this request, whose job outside the pipeline is done, or has panicked.
    Done(RequestKey, Option<Box<J::Done>>),
}

/// A job on its way.
pub(super) struct JobTask<J: Job> {
    pub(super) job: SharedJob<J>,
    /// The purpose of the job; its phase is the one in whose list the job waits for a thread.
    pub(super) ask: JobContext,
    /// The time when the job came.
    pub(super) since_ns: u64,
    /// The receiver of the result, if the connection belongs to a loop.
    pub(super) results: Option<Arc<dyn Results<J::Done>>>,
}

/// The lists of all phases.
pub(super) struct PhaseLists<J: Job> {
    lists: [TaskList<Task<J>>; PHASES],
    /// The threads that no phase needs now.
    pub(super) resting: Resting,
    helpers: Helpers<J>,
    /// The order of receive, process and send.
    pub(super) ranks: Ranks,
    lanes: Mutex<Lanes<JobTask<J>>>,
    threads: Mutex<PhaseThreads>,
    ended: Condvar,
    /// The number of the controller's next thread.
    number: AtomicU32,
}

#[derive(Default)]
struct PhaseThreads {
    alive: usize,
    /// The number of threads in a job, which may never end.
    in_job: usize,
    /// Whether a thread waits for them to end.
    awaited: bool,
}

impl<J: Job> PhaseLists<J> {
    /// Empty lists with these numbers of threads, and a reserve in process. All lists are in order:
    /// the class that a connection has when it arrives holds until its request says more. The list
    /// of accept orders listeners: a connection through one that has no rank may be of any class.
    pub(super) fn new(threads: [u32; PHASES], ranks: Ranks, helpers: Helpers<J>) -> PhaseLists<J> {
        let list = |phase: Phase| {
            let target = threads[phase.index()];
            match phase {
                Phase::Process => TaskList::new(target, &ranks, ranks.reserve),
                Phase::Accept | Phase::Receive | Phase::Send => TaskList::new(target, &ranks, 0),
            }
        };
        PhaseLists {
            lists: Phase::ALL.map(list),
            resting: Resting::default(),
            helpers,
            lanes: Mutex::default(),
            threads: Mutex::default(),
            ended: Condvar::new(),
            number: AtomicU32::new(0),
            ranks,
        }
    }

    /// The list of this phase.
    pub(super) fn of(&self, phase: Phase) -> &TaskList<Task<J>> {
        &self.lists[phase.index()]
    }

    /// A worker slot for one more of the controller's threads.
    pub(super) fn another_slot(&self) -> WorkerSlot {
        WorkerSlot::Common(self.number.fetch_add(1, Ordering::Relaxed))
    }

    /// Queues this listener, which has connections, all of this rank if it has one: threads of
    /// accept accept them.
    pub(super) fn push_accept(&self, rank: Option<Rank>, index: usize) {
        let Rank(rank) = rank.unwrap_or_default();
        let ranked_client = RankedClient { rank, client: index as u64 };
        self.of(Phase::Accept).push(Task::Accept(index), ranked_client);
    }

    /// Queues this listener, for whose connections there is no place: threads of receive accept
    /// them, after all that waits there, whatever the ranks.
    pub(super) fn push_accept_last(&self, index: usize) {
        let ranked_client = RankedClient { rank: u8::MAX, client: 0 };
        self.of(Phase::Receive).push(Task::Accept(index), ranked_client);
    }

    /// Queues the connection with this token, which goes on in `phase`.
    pub(super) fn push_turn(&self, phase: Phase, token: u64, ranked_client: RankedClient) {
        self.of(phase).push(Task::Turn(token), ranked_client);
    }

    /// Queues this request, which is answered next.
    pub(super) fn push_answer(&self, request: RequestKey, ranked_client: RankedClient) {
        self.of(Phase::Process).push(Task::Answer(request), ranked_client);
    }

    /// Queues this request, whose time has come: it goes on in receive, before all that waits
    /// there.
    pub(super) fn push_due(&self, request: RequestKey) {
        self.of(Phase::Receive).push(Task::Due(request), RankedClient::default());
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes<JobTask<J>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job to its lane. If that makes a claim, the caller puts the claim into its list, or
    /// is its thread.
    pub(super) fn enter(&self, job_task: JobTask<J>) -> LaneEntry {
        let lane = job_task.job.lane();
        let JobContext { phase, ranked_client, .. } = job_task.ask;
        self.lanes().enter(lane, phase, ranked_client, job_task)
    }

    /// Begins a job for this claim on the calling thread. Returns the job, of whatever phase; the
    /// thread does it and then [leaves](PhaseLists::leave). Returns `None` if the lane has no job
    /// for the claim now.
    pub(super) fn begin(&self, claim: LaneClaim) -> Option<JobTask<J>> {
        self.lanes().begin(claim)
    }

    /// Replaces the job with which the calling thread has begun, and which was over: returns the
    /// next of its lane, if one waits.
    pub(super) fn instead(&self, lane: u64) -> Option<JobTask<J>> {
        self.lanes().instead(lane)
    }

    /// Ends a job of this lane, so that the lane goes on.
    pub(super) fn leave(&self, lane: u64) {
        let claims = self.lanes().leave(lane);
        claims.into_iter().flatten().for_each(|claim| self.push_claim(claim));
    }

    /// Puts a claim into the list of its phase.
    pub(super) fn push_claim(&self, claim: LaneClaim) {
        self.of(claim.phase).push(Task::Run(claim), claim.ranked_client);
    }

    fn count_threads(&self, change: impl FnOnce(&mut PhaseThreads)) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut threads);
        if threads.awaited {
            self.ended.notify_all();
        }
    }

    /// Counts a thread that is about to begin.
    pub(super) fn thread_begins(&self) {
        self.count_threads(|threads| threads.alive += 1);
    }

    /// Counts a thread that has ended.
    pub(super) fn thread_ended(&self) {
        self.count_threads(|threads| threads.alive -= 1);
    }

    /// Does a job, which may hang. Returns `None` if it panics.
    pub(super) fn run(&self, job: J, metrics: &Local, sampled: bool) -> Option<J::Done> {
        self.count_threads(|threads| threads.in_job += 1);
        let mut watch = TurnStopwatch::new(metrics, sampled);
        let done = catch_unwind(AssertUnwindSafe(|| job.run(metrics, &mut watch)));
        self.count_threads(|threads| threads.in_job -= 1);
        done.ok()
    }

    /// Closes all lists.
    pub(super) fn close(&self) {
        self.lists.iter().for_each(TaskList::close);
        self.resting.close();
        // no thread takes the jobs of the lanes any more
        let jobs = std::mem::take(&mut *self.lanes());
        drop(jobs);
    }

    /// Waits until all threads have ended, except those in jobs.
    pub(super) fn wait_for_threads(&self) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.awaited = true;
        let left = self.ended.wait_while(threads, |threads| threads.alive > threads.in_job);
        drop(left.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Jobs of loops that block: threads of the process and send phases do them.
impl<J: Job> JobRunner<J> for Arc<PhaseLists<J>> {
    fn submit(
        &self,
        job: SharedJob<J>,
        ask: JobContext,
        results: Arc<dyn Results<J::Done>>,
    ) -> bool {
        if job.kind() == JobKind::Computes {
            return self.helpers.submit(job, ask, results);
        }
        let since_ns = clock::monotonic_ns();
        match self.enter(JobTask { job, ask, since_ns, results: Some(results) }) {
            LaneEntry::Claims(claim) => self.push_claim(claim),
            LaneEntry::Waits => {}
            LaneEntry::Full => return false,
        }
        true
    }
}

/// The way back from the helper threads for connections that belong to no loop.
impl<J: Job> Results<J::Done> for PhaseLists<J> {
    fn post(&self, ask: &JobContext, result: Option<J::Done>) {
        self.of(ask.phase).push(Task::Done(ask.request, result.map(Box::new)), ask.ranked_client);
    }
}
