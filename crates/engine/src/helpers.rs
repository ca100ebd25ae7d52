//! Threads for work that may block: the file system, above all.
//!
//! Threads are made on demand and end when there has been nothing to do for a while. Jobs of one
//! lane run one after another, so that a file whose read hangs holds one thread.

use crate::control::Control;
use crate::lanes::{Entry, Lanes};
use crate::watch::Watch;
use forebay_conn::Job;
use forebay_control::allocation::Phase;
use forebay_metrics::Local;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A thread ends after this long without work.
const IDLE: Duration = Duration::from_secs(10);

/// Where a loop finds the results of its jobs.
#[derive(Debug)]
pub struct Mailbox<D> {
    results: Mutex<Vec<(u64, Option<D>)>>,
    control: Arc<Control>,
    loop_index: usize,
}

impl<D> Mailbox<D> {
    /// The mailbox of loop `loop_index`, whose bell `control` knows.
    pub fn new(control: Arc<Control>, loop_index: usize) -> Arc<Mailbox<D>> {
        Arc::new(Mailbox { results: Mutex::new(Vec::new()), control, loop_index })
    }

    /// Takes everything that has arrived: the token given with the job, and its result or `None`
    /// if it panicked.
    pub fn take(&self) -> Vec<(u64, Option<D>)> {
        std::mem::take(&mut *self.results.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a result in; the loop is woken.
    pub fn post(&self, token: u64, result: Option<D>) {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.push((token, result));
        if results.len() == 1 {
            self.control.bell(self.loop_index).ring();
        }
    }
}

/// The helper threads of one engine.
pub struct Helpers<J: Job> {
    shared: Arc<Shared<J>>,
}

impl<J: Job> Clone for Helpers<J> {
    fn clone(&self) -> Self {
        Helpers { shared: Arc::clone(&self.shared) }
    }
}

struct Shared<J: Job> {
    state: Mutex<State<J>>,
    work: Condvar,
    /// One for each thread there may be.
    metrics: Arc<[Local]>,
    sample: u32,
}

struct State<J: Job> {
    ready: VecDeque<Task<J>>,
    lanes: Lanes<Task<J>>,
    idle: usize,
    threads: usize,
    /// Which of `metrics` no thread uses.
    free: Vec<usize>,
}

struct Task<J: Job> {
    job: J,
    lane: u64,
    token: u64,
    mailbox: Arc<Mailbox<J::Done>>,
}

impl<J: Job> Helpers<J> {
    /// As many threads at most as there are elements in `metrics`; one job in `sample` is timed.
    pub fn new(metrics: Arc<[Local]>, sample: u32) -> Helpers<J> {
        let state = State {
            ready: VecDeque::new(),
            lanes: Lanes::default(),
            idle: 0,
            threads: 0,
            free: (0..metrics.len()).collect(),
        };
        let shared = Shared { state: Mutex::new(state), work: Condvar::new(), metrics, sample };
        Helpers { shared: Arc::new(shared) }
    }

    /// Threads alive.
    pub fn threads(&self) -> usize {
        self.shared.lock().threads
    }
}

/// Threads that do the jobs of loops.
pub trait Crew<J: Job> {
    /// Has `job` done; its result comes to `mailbox` with `token`. `false` if too many jobs of its
    /// lane are waiting; then it is not done. `phase` is what the request needs it for:
    /// [`Phase::Process`] to be answered, [`Phase::Send`] to have more of its answer in memory.
    #[must_use]
    fn submit(&self, job: J, phase: Phase, token: u64, mailbox: &Arc<Mailbox<J::Done>>) -> bool;
}

impl<J: Job> Crew<J> for Helpers<J> {
    fn submit(&self, job: J, _: Phase, token: u64, mailbox: &Arc<Mailbox<J::Done>>) -> bool {
        let task = Task { lane: job.lane(), job, token, mailbox: Arc::clone(mailbox) };
        let mut state = self.shared.lock();
        match state.lanes.enter(task.lane, task) {
            Entry::Full => return false,
            Entry::Waits => {}
            Entry::Free(task) => {
                state.ready.push_back(task);
                self.shared.wake_or_spawn(&mut state, &self.shared);
            }
        }
        true
    }
}

impl<J: Job> Shared<J> {
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that somebody takes the job that was just made ready.
    fn wake_or_spawn(&self, state: &mut State<J>, shared: &Arc<Shared<J>>) {
        if state.idle >= state.ready.len() {
            return self.work.notify_one();
        }
        let Some(index) = state.free.pop() else { return };
        let shared = Arc::clone(shared);
        let name = format!("helper-{index}");
        match std::thread::Builder::new().name(name).spawn(move || shared.work(index)) {
            Ok(_) => state.threads += 1,
            // no thread to be had: those that live will come to it
            Err(_) => state.free.push(index),
        }
    }

    fn work(&self, index: usize) {
        let metrics = &self.metrics[index];
        let mut jobs = 0u32;
        while let Some(task) = self.next(index) {
            jobs = jobs.wrapping_add(1);
            let sampled = self.sample != 0 && jobs.is_multiple_of(self.sample);
            let Task { job, lane, token, mailbox } = task;
            let mut watch = Watch::new(metrics, sampled);
            let run = AssertUnwindSafe(|| job.run(metrics, &mut watch));
            mailbox.post(token, catch_unwind(run).ok());
            self.finish(lane);
        }
    }

    /// The next job, or `None` when thread `index` is no longer needed and no longer counted.
    fn next(&self, index: usize) -> Option<Task<J>> {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.ready.pop_front() {
                return Some(task);
            }
            state.idle += 1;
            let (guard, waited) =
                self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            if waited.timed_out() && state.ready.is_empty() {
                state.threads -= 1;
                state.free.push(index);
                return None;
            }
        }
    }

    /// A job of this lane has ended: the next one may run.
    fn finish(&self, lane: u64) {
        let mut state = self.lock();
        if let Some(task) = state.lanes.leave(lane) {
            // this thread comes for it itself
            state.ready.push_back(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_metrics::Stopwatch;
    use std::sync::mpsc::{Receiver, Sender, channel};

    struct Call {
        lane: u64,
        gate: Option<Receiver<()>>,
        started: Sender<u64>,
    }

    impl Job for Call {
        type Done = u64;

        fn run(self, _: &Local, _: &mut dyn Stopwatch) -> u64 {
            self.started.send(self.lane).unwrap();
            if let Some(gate) = self.gate {
                gate.recv().unwrap();
            }
            assert!(self.lane != 666, "a job that panics");
            self.lane
        }

        fn lane(&self) -> u64 {
            self.lane
        }
    }

    fn helpers(threads: usize) -> (Helpers<Call>, Arc<Mailbox<u64>>) {
        let metrics: Arc<[Local]> = (0..threads).map(|_| Local::default()).collect();
        let control = Arc::new(Control::new(1).unwrap());
        (Helpers::new(metrics, 0), Mailbox::new(control, 0))
    }

    fn give(helpers: &Helpers<Call>, call: Call, token: u64, mailbox: &Arc<Mailbox<u64>>) {
        assert!(helpers.submit(call, Phase::Process, token, mailbox));
    }

    #[test]
    fn a_lane_that_hangs_holds_one_thread() {
        let (helpers, mailbox) = helpers(2);
        let (started, starts) = channel();
        let (open, gate) = channel();
        let mut gates = vec![gate];
        for token in 0..5 {
            let call = Call { lane: 1, gate: gates.pop(), started: started.clone() };
            give(&helpers, call, token, &mailbox);
        }
        assert_eq!(starts.recv().unwrap(), 1);
        for token in 10..20 {
            give(
                &helpers,
                Call { lane: token, gate: None, started: started.clone() },
                token,
                &mailbox,
            );
        }
        for token in 10..20 {
            assert_eq!(starts.recv().unwrap(), token);
        }
        open.send(()).unwrap();
        for _ in 0..4 {
            assert_eq!(starts.recv().unwrap(), 1);
        }
        assert!(helpers.threads() <= 2);
    }

    #[test]
    fn a_panic_comes_back_as_none_and_frees_its_lane() {
        let (helpers, mailbox) = helpers(1);
        let (started, starts) = channel();
        for token in 0..2 {
            give(
                &helpers,
                Call { lane: 666, gate: None, started: started.clone() },
                token,
                &mailbox,
            );
        }
        give(&helpers, Call { lane: 7, gate: None, started }, 2, &mailbox);
        assert_eq!(starts.iter().take(3).count(), 3);
        let mut results = Vec::new();
        while results.len() < 3 {
            results.append(&mut mailbox.take());
        }
        results.sort();
        assert_eq!(results, [(0, None), (1, None), (2, Some(7))]);
    }
}
