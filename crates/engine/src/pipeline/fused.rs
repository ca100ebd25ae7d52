//! `fuse = "auto"`: one thread goes with a request through all phases while nothing has to wait.
//!
//! The threads of the receive phase are loops, each with listeners, connections and an epoll of its
//! own ([`crate::event`]): accept, process and send are calls, and a slow receiver goes back to
//! epoll. Work that must wait for the file system is a task for the process phase if a request
//! needs it to be answered, and for the send phase if an answer needs more of its file in memory.
//! With classes the loops answer in order as those of `event` do, and both lists are in order.

use super::list::WorkerSlot;
use super::lists::{PhaseLists, Task};
use super::thread::PhaseThread;
use super::{Counters, PipelineCore, PipelineSettings, Spawn, begin};
use crate::connection::accept::Listener;
use crate::control::{Ended, EngineControl, LoopOrder};
use crate::event::{self, EventLoop};
use crate::order::lanes::first_left;
use forebay_conn::{Handler, Job};
use forebay_control::allocation::Phase;
use forebay_sys::clock;
use std::io;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;

/// The loops, and what they share.
pub(super) struct Fused<H: Handler> {
    loops: Vec<EventLoop<H, Arc<PhaseLists<H::Job>>>>,
    job_runner: Arc<FusedThreads<H::Job>>,
}

/// The threads of the process and send phases.
struct FusedThreads<J: Job> {
    lists: Arc<PhaseLists<J>>,
    counters: Arc<Counters>,
    sample: u32,
}

impl<H> Fused<H>
where
    H: Handler + Send + 'static,
{
    /// A loop for each listener set.
    ///
    /// # Errors
    /// Lack of descriptors or memory.
    pub(super) fn new(
        core: PipelineCore<H>,
        listener_sets: Vec<Vec<Listener>>,
        settings: &PipelineSettings,
    ) -> io::Result<Fused<H>> {
        let mut initial = settings.allocation.initial;
        initial[Phase::Accept.index()] = 0;
        initial[Phase::Receive.index()] = listener_sets.len() as u32;
        let lists = Arc::new(PhaseLists::new(initial, core.ranks.clone(), core.helpers));
        let loops = listener_sets.into_iter().enumerate().map(|(index, listeners)| {
            let (handler, metrics) = (core.make)();
            core.counters.add(&metrics);
            EventLoop::new(event::LoopParts {
                listeners,
                handler,
                settings: Arc::clone(&core.settings),
                admission: Arc::clone(&core.admission),
                helpers: Arc::clone(&lists),
                ranks: core.ranks.clone(),
                control: Arc::clone(&core.control),
                index,
                metrics,
            })
        });
        let loops = loops.collect::<io::Result<_>>()?;
        let sample = core.settings.get().sample;
        let job_runner = Arc::new(FusedThreads { lists, counters: core.counters, sample });
        Ok(Fused { loops, job_runner })
    }

    /// The lists of the phases.
    pub(super) fn lists(&self) -> &Arc<PhaseLists<H::Job>> {
        &self.job_runner.lists
    }

    /// Begins a thread of the process or send phase. The other two have only their loops.
    pub(super) fn spawner(&self) -> Spawn {
        let job_runner = Arc::clone(&self.job_runner);
        Box::new(move |phase, worker_slot| {
            let of_thread = Arc::clone(&job_runner);
            let work = move || of_thread.work(phase, worker_slot);
            phase < Phase::Process || begin(&job_runner.lists, phase, worker_slot, work)
        })
    }

    /// Serves until the last loop has ended.
    ///
    /// # Errors
    /// As [`EventLoop::run`]; then the others are stopped.
    pub(super) fn run(self, control: &EngineControl) -> io::Result<Ended> {
        let list = self.job_runner.lists.of(Phase::Receive);
        let run = |event_loop: EventLoop<H, _>| {
            let _meter = list.enlist();
            event_loop.run().inspect_err(|_| control.give(LoopOrder::Stop))
        };
        std::thread::scope(|scope| {
            let threads = self.loops.into_iter().enumerate().map(|(number, event_loop)| {
                let name = format!("{}-{number}", Phase::Receive.name());
                std::thread::Builder::new().name(name).spawn_scoped(scope, || run(event_loop))
            });
            let threads = threads.collect::<Result<Vec<_>, _>>();
            let threads = threads.inspect_err(|_| control.give(LoopOrder::Stop))?;
            let join = |thread: ScopedJoinHandle<'_, io::Result<Ended>>| {
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a loop panicked")))
            };
            let ended: Vec<_> = threads.into_iter().map(join).collect();
            ended.into_iter().try_fold(Ended::default(), |sum, ended| Ok(sum + ended?))
        })
    }
}

impl<J: Job> FusedThreads<J> {
    fn work(&self, phase: Phase, worker_slot: WorkerSlot) {
        let metrics = self.counters.another();
        let ranks = &self.lists.ranks;
        let mut thread = PhaseThread::new(&self.lists, phase, worker_slot);
        let mut jobs = 0u32;
        let mut ended = None;
        while let Some((task, mut task_run)) = thread.next(ended.take(), || ()) {
            task_run.in_vain = true;
            if let Task::Run(claim) = task
                && let Some(begun) = self.lists.begin(claim)
            {
                let instead = || self.lists.instead(claim.lane);
                let (job_task, job) = first_left(begun, |begun| begun.job.take(), instead);
                if let Some(job) = job {
                    task_run.in_vain = false;
                    jobs = jobs.wrapping_add(1);
                    let sampled = self.sample != 0 && jobs.is_multiple_of(self.sample);
                    let slot = ranks.slot(job_task.ask.ranked_client.rank);
                    let waited_ns = clock::monotonic_ns().saturating_sub(job_task.since_ns);
                    metrics.waited(slot, waited_ns);
                    let done = self.lists.run(job, &metrics, sampled);
                    metrics.worked(slot, task_run.ns());
                    if let Some(results) = job_task.results {
                        results.post(&job_task.ask, done);
                    }
                }
                self.lists.leave(claim.lane);
            }
            ended = Some(task_run);
        }
    }
}
