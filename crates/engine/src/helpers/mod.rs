//! Threads for work that may block or takes CPU time.
//!
//! Threads are made on demand and end when there has been nothing to do for a while. Jobs of one
//! lane run one after another, the highest rank first, so that a file whose read hangs holds one
//! thread. Jobs that wait for devices and jobs that compute have threads of their own (`pool.rs`):
//! there may be many of the first, and as many as cores of the second.
//!
//! A job whose connection has ended is not begun (`shared_job.rs`). The result of a job goes to the
//! mailbox of its loop (`mailbox.rs`).

mod mailbox;
mod pool;
mod shared_job;

pub use mailbox::{Mailbox, Results};
pub use shared_job::SharedJob;

use crate::order::ranks::{RankedClient, Ranks, RequestKey};
use forebay_conn::{Job, JobKind};
use forebay_control::allocation::Phase;
use forebay_metrics::Local;
use pool::{HelperPool, QueuedJob, Starter};
use std::io;
use std::sync::Arc;

/// The largest numbers of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelperThreads {
    /// Threads for jobs that wait for devices.
    pub blocking: usize,
    /// Threads for jobs that compute.
    pub computing: usize,
}

impl HelperThreads {
    /// The largest number of threads in all, with the reserve of each rank.
    pub fn most(self, ranks: &Ranks) -> usize {
        self.blocking + self.computing + 2 * ranks.reserve_in_all()
    }
}

/// The helper threads of one engine.
pub struct Helpers<J: Job> {
    settings: HelperThreads,
    blocking: Arc<HelperPool<J>>,
    computing: Arc<HelperPool<J>>,
}

impl<J: Job> Clone for Helpers<J> {
    fn clone(&self) -> Self {
        let (blocking, computing) = (Arc::clone(&self.blocking), Arc::clone(&self.computing));
        Helpers { settings: self.settings, blocking, computing }
    }
}

impl<J: Job> Helpers<J> {
    /// Helper threads for `ranks`. `metrics` must have an element for each thread there may be
    /// ([`HelperThreads::most`]); one job in `sample` is timed. The calling thread must not have
    /// lowered its priority, because helpers begin with its nice value.
    ///
    /// # Errors
    /// Lack of threads.
    pub fn new(
        metrics: Arc<[Local]>,
        threads: HelperThreads,
        ranks: &Ranks,
        sample: u32,
    ) -> io::Result<Helpers<J>> {
        let first = threads.blocking + ranks.reserve_in_all();
        let starter = match threads.most(ranks) {
            0 => None,
            _ => Some(Starter::new()?),
        };
        let pool = |kind, most, numbers| {
            let (metrics, starter) = (Arc::clone(&metrics), starter.clone());
            Arc::new(HelperPool::new(kind, most, ranks, metrics, numbers, sample, starter))
        };
        let first = first.min(metrics.len());
        Ok(Helpers {
            settings: threads,
            blocking: pool(JobKind::Blocks, threads.blocking, 0..first),
            computing: pool(JobKind::Computes, threads.computing, first..metrics.len()),
        })
    }

    /// The largest numbers of threads.
    pub fn settings(&self) -> HelperThreads {
        self.settings
    }

    /// Ends idle threads now, and the others when they are idle; no job is given any more.
    pub fn close(&self) {
        self.blocking.close();
        self.computing.close();
    }

    /// The number of threads alive.
    pub fn threads(&self) -> usize {
        self.blocking.threads() + self.computing.threads()
    }
}

/// The context of a job, on which its order and the way of its result depend.
#[derive(Clone, Copy, Debug)]
pub struct JobContext {
    /// The purpose of the job: [`Phase::Process`] if the request needs it to be answered,
    /// [`Phase::Send`] if it needs more of its answer in memory.
    pub phase: Phase,
    /// The rank and the client that the job counts for.
    pub ranked_client: RankedClient,
    /// The request that the job is for; it is returned with the result.
    pub request: RequestKey,
}

/// Threads that do the jobs of loops.
pub trait JobRunner<J: Job> {
    /// Has a job done, unless it is taken back before; its result goes to `results`. Returns
    /// `false` if too many jobs are waiting; then it is not done.
    #[must_use]
    fn submit(
        &self,
        job: SharedJob<J>,
        ask: JobContext,
        results: Arc<dyn Results<J::Done>>,
    ) -> bool;
}

impl<J: Job> JobRunner<J> for Helpers<J> {
    fn submit(
        &self,
        job: SharedJob<J>,
        ask: JobContext,
        results: Arc<dyn Results<J::Done>>,
    ) -> bool {
        let pool = match job.kind() {
            JobKind::Blocks => &self.blocking,
            JobKind::Computes => &self.computing,
        };
        pool.submit(QueuedJob::new(job, ask, results))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::EngineControl;
    use crate::order::ranks::OrderSettings;
    use forebay_metrics::Stopwatch;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    pub(super) struct Call {
        pub(super) lane: u64,
        pub(super) gate: Option<Receiver<()>>,
        pub(super) started: Sender<u64>,
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

    /// The results that have arrived, by connection.
    pub(super) fn taken(mailbox: &Mailbox<u64>) -> Vec<(u64, Option<u64>)> {
        let results = mailbox.take().into_iter();
        results.map(|(request, result)| (request.connection, result)).collect()
    }

    pub(super) fn helpers(threads: usize) -> (Helpers<Call>, Arc<Mailbox<u64>>) {
        ranked_helpers(threads, &Ranks::default())
    }

    fn ranked_helpers(threads: usize, ranks: &Ranks) -> (Helpers<Call>, Arc<Mailbox<u64>>) {
        let threads = HelperThreads { blocking: threads, computing: 1 };
        let metrics: Arc<[Local]> = (0..threads.most(ranks)).map(|_| Local::default()).collect();
        let control = Arc::new(EngineControl::new(1).unwrap());
        (Helpers::new(metrics, threads, ranks, 0).unwrap(), Mailbox::new(control, 0))
    }

    pub(super) fn give(
        helpers: &Helpers<Call>,
        call: Call,
        token: u64,
        mailbox: &Arc<Mailbox<u64>>,
    ) -> SharedJob<Call> {
        give_as(0, helpers, call, token, mailbox)
    }

    fn give_as(
        rank: u8,
        helpers: &Helpers<Call>,
        call: Call,
        token: u64,
        mailbox: &Arc<Mailbox<u64>>,
    ) -> SharedJob<Call> {
        // one client, as between two clients chance may decide which comes first
        let ranked_client = RankedClient { rank, client: 1 };
        let request = RequestKey { connection: token, ..RequestKey::default() };
        let ask = JobContext { phase: Phase::Process, ranked_client, request };
        let (call, results) = (SharedJob::new(call), Arc::clone(mailbox) as Arc<dyn Results<_>>);
        assert!(helpers.submit(call.clone(), ask, results));
        call
    }

    #[test]
    fn helpers_that_are_there_follow_shares_that_change() {
        let with = |share: f64| OrderSettings {
            shares: Arc::new([0.0, share]),
            reserve: 0,
            ..OrderSettings::default()
        };
        let ranks = Ranks::new(&with(0.0));
        let (helpers, mailbox) = ranked_helpers(1, &ranks);
        let (started, starts) = channel();
        for (round, (share, first)) in [(0.9, 2), (0.0, 1)].into_iter().enumerate() {
            let (open, gate) = channel();
            let held = 10 * (round as u64 + 1);
            for (rank, lane, gate) in [(0, held, Some(gate)), (0, 1, None), (1, 2, None)] {
                let call = Call { lane, gate, started: started.clone() };
                give_as(rank, &helpers, call, lane, &mailbox);
                if lane == held {
                    assert_eq!(starts.recv().unwrap(), held);
                }
            }
            ranks.set(&with(share));
            open.send(()).unwrap();
            assert_eq!([starts.recv().unwrap(), starts.recv().unwrap()], [first, 3 - first]);
        }
    }

    #[test]
    fn a_high_rank_is_first_and_has_a_thread_that_low_ranks_never_take() {
        let ranks = OrderSettings { shares: Arc::new([0.0, 0.0]), ..OrderSettings::default() };
        let ranks = Ranks::new(&ranks);
        let (helpers, mailbox) = ranked_helpers(1, &ranks);
        let (started, starts) = channel();
        let (open, gate) = channel();
        let mut gates = vec![gate];
        // the thread for all ranks is busy, and low ranks wait behind it
        for token in 0..3 {
            let call = Call { lane: 100 + token, gate: gates.pop(), started: started.clone() };
            give_as(1, &helpers, call, token, &mailbox);
        }
        assert_eq!(starts.recv().unwrap(), 100);
        let call = |lane, gate| Call { lane, gate, started: started.clone() };
        let (open_high, gate) = channel();
        give_as(0, &helpers, call(1, Some(gate)), 10, &mailbox);
        assert_eq!(starts.recv().unwrap(), 1);
        give_as(0, &helpers, call(2, None), 11, &mailbox);
        assert_eq!(helpers.threads(), 2);
        open.send(()).unwrap();
        assert_eq!((0..3).map(|_| starts.recv().unwrap()).collect::<Vec<_>>(), [2, 101, 102]);
        open_high.send(()).unwrap();
    }

    /// A claim waits at its own rank, not behind the lower ones that came to the lane before.
    #[test]
    fn a_high_rank_waits_for_no_lower_one_of_its_lane() {
        let ranks = Arc::new([0.0; 3]);
        let ranks = OrderSettings { shares: ranks, reserve: 0, ..OrderSettings::default() };
        let (helpers, mailbox) = ranked_helpers(1, &Ranks::new(&ranks));
        let (started, starts) = channel();
        let (open, gate) = channel();
        let held = Call { lane: 9, gate: Some(gate), started: started.clone() };
        give_as(0, &helpers, held, 0, &mailbox);
        assert_eq!(starts.recv().unwrap(), 9);
        for (token, rank, lane) in [(1, 2, 1), (2, 2, 1), (3, 1, 2), (4, 0, 1), (5, 2, 1)] {
            let call = Call { lane, gate: None, started: started.clone() };
            give_as(rank, &helpers, call, token, &mailbox);
        }
        open.send(()).unwrap();
        let mut order = Vec::new();
        while order.len() < 6 {
            order.extend(taken(&mailbox).into_iter().map(|(token, _)| token));
        }
        assert_eq!(order, [0, 4, 3, 1, 2, 5]);
    }

    /// A job that finds out whether another one of its lane runs beside it.
    struct Alone {
        lane: u64,
        are_busy: Arc<[AtomicBool]>,
    }

    impl Job for Alone {
        type Done = u64;

        fn run(self, _: &Local, _: &mut dyn Stopwatch) -> u64 {
            let is_busy = &self.are_busy[self.lane as usize];
            assert!(!is_busy.swap(true, Ordering::SeqCst), "two of one lane at once");
            std::thread::yield_now();
            is_busy.store(false, Ordering::SeqCst);
            self.lane
        }

        fn lane(&self) -> u64 {
            self.lane
        }
    }

    #[test]
    fn each_job_is_done_once_and_alone_in_its_lane() {
        const JOBS: u64 = 3_000;
        let shares = Arc::new([0.0, 0.2, 0.1]);
        let ranks = Ranks::new(&OrderSettings { shares, ..OrderSettings::default() });
        let threads = HelperThreads { blocking: 4, computing: 0 };
        let metrics: Arc<[Local]> = (0..threads.most(&ranks)).map(|_| Local::default()).collect();
        let helpers = Helpers::new(metrics, threads, &ranks, 0).unwrap();
        let mailbox = Mailbox::new(Arc::new(EngineControl::new(1).unwrap()), 0);
        let are_busy: Arc<[AtomicBool]> = (0..5).map(|_| AtomicBool::new(false)).collect();
        let mut done = Vec::new();
        for token in 0..JOBS {
            let job = Alone { lane: token % 5, are_busy: Arc::clone(&are_busy) };
            let ranked_client = RankedClient { rank: (token % 3) as u8, client: token % 2 };
            let request = RequestKey { connection: token, ..RequestKey::default() };
            let ask = JobContext { phase: Phase::Process, ranked_client, request };
            let results = Arc::clone(&mailbox) as Arc<dyn Results<_>>;
            assert!(helpers.submit(SharedJob::new(job), ask, results));
            done.append(&mut taken(&mailbox));
        }
        while done.len() < JOBS as usize {
            done.append(&mut taken(&mailbox));
        }
        done.sort_unstable();
        assert!(done.into_iter().eq((0..JOBS).map(|token| (token, Some(token % 5)))));
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

    /// Other jobs, of its lane and of other lanes, go on; what it held is freed at once.
    #[test]
    fn a_job_that_is_taken_back_is_not_begun() {
        let (helpers, mailbox) = helpers(1);
        let (started, starts) = channel();
        let (open, gate) = channel();
        let mut gates = vec![gate];
        let lanes = [1, 1, 2, 1, 3];
        let shared_jobs = lanes.map(|lane| {
            let call = Call { lane, gate: gates.pop(), started: started.clone() };
            give(&helpers, call, 10 * lane, &mailbox)
        });
        drop(started);
        assert_eq!(starts.recv().unwrap(), 1);
        assert!(shared_jobs[0].take().is_none(), "it has begun");
        assert!(shared_jobs[1].take().is_some_and(|call| call.lane == 1));
        assert!(shared_jobs[2].take().is_some());
        open.send(()).unwrap();
        assert_eq!(starts.iter().collect::<Vec<_>>(), [3, 1], "and no other holds a sender");
        let mut results = Vec::new();
        while results.len() < 3 {
            results.append(&mut taken(&mailbox));
        }
        assert_eq!(results, [(10, Some(1)), (30, Some(3)), (10, Some(1))]);
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
            results.append(&mut taken(&mailbox));
        }
        results.sort();
        assert_eq!(results, [(0, None), (1, None), (2, Some(7))]);
    }

    /// A job that reports the nice value of its thread, and holds the thread until the gate opens.
    struct Niceness {
        tell: Sender<i32>,
        gate: Receiver<()>,
        lane: u64,
    }

    impl Job for Niceness {
        type Done = ();

        fn run(self, _: &Local, _: &mut dyn Stopwatch) {
            self.tell.send(forebay_sys::process::niceness()).unwrap();
            let _ = self.gate.recv();
        }

        fn lane(&self) -> u64 {
            self.lane
        }
    }

    #[test]
    fn helpers_do_not_inherit_that_somebody_gives_way() {
        let ranks = OrderSettings { shares: Arc::new([0.0, 0.0]), ..OrderSettings::default() };
        let ranks = Ranks::new(&ranks);
        let threads = HelperThreads { blocking: 1, computing: 0 };
        let metrics: Arc<[Local]> = (0..threads.most(&ranks)).map(|_| Local::default()).collect();
        let control = Arc::new(EngineControl::new(1).unwrap());
        let helpers = Helpers::new(metrics, threads, &ranks, 0).unwrap();
        let mailbox = Mailbox::new(control, 0);
        let own = forebay_sys::process::niceness();
        let (tell, told) = channel();
        let give_way_and_submit = move || {
            forebay_sys::process::give_way(5).unwrap();
            let mut held = Vec::new();
            for rank in [1, 0] {
                let ranked_client = RankedClient { rank, client: 0 };
                let ask = JobContext {
                    phase: Phase::Process,
                    ranked_client,
                    request: RequestKey::default(),
                };
                let results = Arc::clone(&mailbox) as Arc<dyn Results<_>>;
                let (hold, gate) = channel();
                held.push(hold);
                let niceness = Niceness { tell: tell.clone(), gate, lane: rank.into() };
                assert!(helpers.submit(SharedJob::new(niceness), ask, results));
                let expected = (own + 10 * i32::from(rank)).min(19);
                assert_eq!(told.recv().unwrap(), expected, "rank {rank}");
            }
        };
        std::thread::spawn(give_way_and_submit).join().unwrap();
    }
}
