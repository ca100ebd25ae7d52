//! Threads for one kind of job, and the order in which jobs are taken.
//!
//! A thread has a *level*: it takes jobs of that rank and of higher ones. Threads of the lowest level
//! take all; each higher rank has a reserve of threads that take nothing below it, so that its jobs
//! need not wait for those of lower ranks to end. The lower a thread's level, the less of the CPU the
//! kernel gives it beside others: a job of the reserve interrupts the ones it did not wait for.
//! A reserve does not eat up floors: while a lower rank is due, it takes nothing.
//!
//! The order is one of claims of lanes, which hold the jobs ([`lanes`](crate::order::lanes)). The
//! lane decides which of its jobs a claim begins: now and then it is one of a lower rank than the
//! claim.

use super::{JobContext, Results, SharedJob};
use crate::order::lanes::{LaneClaim, LaneEntry, Lanes, first_left};
use crate::order::ranks::{RankedClient, Ranks, Shares};
use crate::watch::TurnStopwatch;
use forebay_conn::{Job, JobKind};
use forebay_control::ranked::{Ranked, Turn};
use forebay_metrics::Local;
use forebay_sys::{clock, process};
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time without work after which a thread ends.
const IDLE: Duration = Duration::from_secs(10);

/// The time after which a failed start of a thread is tried again, if no other thread does the
/// jobs.
const AGAIN: Duration = Duration::from_millis(50);

/// The threads for one kind of job.
pub(super) struct HelperPool<J: Job> {
    kind: JobKind,
    state: Mutex<PoolState<J>>,
    /// The places where idle threads of each level sleep.
    work: Box<[Condvar]>,
    ranks: Ranks,
    metrics: Arc<[Local]>,
    sample: u32,
    /// `None` if there are never any threads.
    starter: Option<Starter>,
}

/// Starts threads from one that keeps its priority: a thread inherits the nice value of the thread
/// that starts it, and could not raise its own again.
#[derive(Clone)]
pub(super) struct Starter(Sender<Box<dyn FnOnce() + Send>>);

impl Starter {
    /// A starter with the nice value of the caller.
    pub(super) fn new() -> io::Result<Starter> {
        let (starts, ordered) = channel::<Box<dyn FnOnce() + Send>>();
        let start_all = move || ordered.into_iter().for_each(|start| start());
        std::thread::Builder::new().name("helpers".to_owned()).spawn(start_all)?;
        Ok(Starter(starts))
    }

    fn start(&self, start: impl FnOnce() + Send + 'static) {
        // the starting thread lives as long as a sender is left
        let _ = self.0.send(Box::new(start));
    }
}

struct PoolState<J: Job> {
    /// Claims of the lanes whose next job may begin.
    ready: Ranked<LaneClaim>,
    shares: Shares,
    lanes: Lanes<QueuedJob<J>>,
    levels: Box<[LevelThreads]>,
    /// The metrics that no thread uses.
    free: Vec<usize>,
    /// Whether the pool is closed and takes no more jobs.
    is_closed: bool,
}

/// The threads of one level.
#[derive(Debug)]
struct LevelThreads {
    most: usize,
    threads: usize,
    idle: usize,
    /// The idle threads that were woken, and do not run yet.
    woken: usize,
}

/// A job on its way.
pub(super) struct QueuedJob<J: Job> {
    job: SharedJob<J>,
    ask: JobContext,
    results: Arc<dyn Results<J::Done>>,
    /// The time when the job was given.
    since_ns: u64,
}

impl<J: Job> QueuedJob<J> {
    pub(super) fn new(
        job: SharedJob<J>,
        ask: JobContext,
        results: Arc<dyn Results<J::Done>>,
    ) -> QueuedJob<J> {
        QueuedJob { job, ask, results, since_ns: clock::monotonic_ns() }
    }
}

impl<J: Job> HelperPool<J> {
    /// A pool of at most `most` threads that take all jobs, and the reserves; their counters are
    /// those of `metrics` in `numbers`.
    pub(super) fn new(
        kind: JobKind,
        most: usize,
        ranks: &Ranks,
        metrics: Arc<[Local]>,
        numbers: Range<usize>,
        sample: u32,
        starter: Option<Starter>,
    ) -> HelperPool<J> {
        let last = ranks.count() - 1;
        let level = |level| LevelThreads {
            most: if level == last { most } else { ranks.reserve },
            threads: 0,
            idle: 0,
            woken: 0,
        };
        let (ready, shares) = ranks.queue();
        let state = PoolState {
            ready,
            shares,
            lanes: Lanes::default(),
            levels: (0..=last).map(level).collect(),
            free: numbers.collect(),
            is_closed: false,
        };
        HelperPool {
            kind,
            state: Mutex::new(state),
            work: (0..=last).map(|_| Condvar::new()).collect(),
            ranks: ranks.clone(),
            metrics,
            sample,
            starter,
        }
    }

    pub(super) fn threads(&self) -> usize {
        self.lock().levels.iter().map(|level| level.threads).sum()
    }

    /// Ends threads that have nothing to do.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.work.iter().for_each(Condvar::notify_all);
    }

    /// Has a job done. Returns `false` if too many are waiting.
    pub(super) fn submit(self: &Arc<Self>, task: QueuedJob<J>) -> bool {
        let lane = task.job.lane();
        let JobContext { phase, ranked_client, .. } = task.ask;
        let mut state = self.lock();
        match state.lanes.enter(lane, phase, ranked_client, task) {
            LaneEntry::Full => return false,
            LaneEntry::Waits => {}
            LaneEntry::Claims(claim) => {
                push(&mut state.ready, claim);
                self.wake(&mut state);
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, PoolState<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread come for the next job: a thread of the highest level that may take the job and
    /// has nothing to do, or a new one.
    fn wake(self: &Arc<Self>, state: &mut PoolState<J>) {
        let Some(rank) = state.ready.next_rank() else { return };
        for level in usize::from(rank)..state.levels.len() {
            let of_level = &mut state.levels[level];
            if of_level.idle > of_level.woken {
                of_level.woken += 1;
                return self.work[level].notify_one();
            }
            if of_level.threads < of_level.most && self.spawn(state, level) {
                return;
            }
        }
    }

    fn spawn(self: &Arc<Self>, state: &mut PoolState<J>, level: usize) -> bool {
        let Some(starter) = &self.starter else { return false };
        let Some(index) = state.free.pop() else { return false };
        state.levels[level].threads += 1;
        let name = match self.kind {
            JobKind::Blocks => format!("helper-{index}"),
            JobKind::Computes => format!("compute-{index}"),
        };
        let pool = Arc::clone(self);
        starter.start(move || {
            loop {
                let shared = Arc::clone(&pool);
                let thread = std::thread::Builder::new().name(name.clone());
                if thread.spawn(move || shared.work(level, index)).is_ok() {
                    return;
                }
                // no thread could be started; others that live will take the job, or the start is
                // tried again
                let mut state = pool.lock();
                if state.levels[level].threads > 1 || state.ready.is_empty() {
                    return state.end(level, index);
                }
                drop(state);
                std::thread::sleep(AGAIN);
            }
        });
        true
    }

    fn work(self: &Arc<Self>, level: usize, index: usize) {
        let niceness = self.ranks.niceness_of(level);
        if niceness > 0 {
            // all threads stay equal if the kernel does not allow a lower priority
            let _ = process::give_way(niceness);
        }
        let metrics = &self.metrics[index];
        let mut jobs = 0u32;
        let mut ended = None;
        while let Some((task, turn)) = self.next(level, index, ended.take()) {
            let lane = task.job.lane();
            let instead = || self.lock().lanes.instead(lane);
            let (task, job) = first_left(task, |task| task.job.take(), instead);
            let Some(job) = job else {
                ended = Some((lane, turn, 0));
                continue;
            };
            let QueuedJob { ask, results, since_ns, .. } = task;
            jobs = jobs.wrapping_add(1);
            let sampled = self.sample != 0 && jobs.is_multiple_of(self.sample);
            let began_ns = clock::monotonic_ns();
            let slot = self.ranks.slot(ask.ranked_client.rank);
            metrics.waited(slot, began_ns.saturating_sub(since_ns));
            let began_cpu_ns = self.worked_ns(began_ns);
            let mut watch = TurnStopwatch::new(metrics, sampled);
            let run = AssertUnwindSafe(|| job.run(metrics, &mut watch));
            let result = catch_unwind(run).ok();
            let ns = self.worked_ns(clock::monotonic_ns()).saturating_sub(began_cpu_ns);
            metrics.worked(slot, ns);
            results.post(&ask, result);
            ended = Some((lane, turn, ns));
        }
    }

    /// The time that a job is charged for: CPU time if it computes, since others may have had the
    /// core in between; all its time if it waits for a device, since it holds a thread.
    fn worked_ns(&self, now_ns: u64) -> u64 {
        match self.kind {
            JobKind::Blocks => now_ns,
            JobKind::Computes => clock::thread_cpu_ns(),
        }
    }

    /// The next job for thread `index`, which has `ended` one. Returns `None` when the thread is
    /// needed no longer; it is then no longer counted.
    fn next(
        self: &Arc<Self>,
        level: usize,
        index: usize,
        ended: Option<(u64, Turn, u64)>,
    ) -> Option<(QueuedJob<J>, Turn)> {
        let mut state = self.lock();
        if let Some((lane, turn, ns)) = ended {
            state.ready.ran(turn, ns);
            let claims = state.lanes.leave(lane);
            claims.into_iter().flatten().for_each(|claim| push(&mut state.ready, claim));
        }
        loop {
            let PoolState { ready, shares, lanes, .. } = &mut *state;
            shares.keep_up(ready);
            if let Some((claim, turn)) = ready.pop_down_to(level as u8) {
                let Some(task) = lanes.begin(claim) else {
                    ready.ran(turn, 0);
                    continue;
                };
                self.wake(&mut state);
                return Some((task, turn));
            }
            // what is left, if anything is, waits for a thread of a lower level
            self.wake(&mut state);
            if state.is_closed && state.ready.is_empty() {
                state.end(level, index);
                return None;
            }
            state.levels[level].idle += 1;
            let (guard, waited) =
                self.work[level].wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            let of_level = &mut state.levels[level];
            of_level.idle -= 1;
            of_level.woken = of_level.woken.saturating_sub(1);
            if (waited.timed_out() || state.is_closed) && state.ready.is_empty() {
                state.end(level, index);
                return None;
            }
        }
    }
}

impl<J: Job> PoolState<J> {
    /// Uncounts thread `index` of this level, which has ended.
    fn end(&mut self, level: usize, index: usize) {
        self.levels[level].threads -= 1;
        self.free.push(index);
    }
}

fn push(ready: &mut Ranked<LaneClaim>, claim: LaneClaim) {
    let RankedClient { rank, client } = claim.ranked_client;
    // the queue has no bound, so a push never fails
    let _ = ready.push(rank, client, 1, claim);
}
