//! The controller's thread: once per period it takes a sample of all phases, has the law of
//! [`forebay_control::allocation`] decide, and moves, wakes and begins threads accordingly.

use super::list::ListFigures;
use super::lists::PhaseLists;
use super::pipeline_gauges::{PhaseSpent, PipelineGauges};
use super::resting;
use super::{Counters, Fuse, PipelineSettings, Spawn};
use forebay_conn::Job;
use forebay_control::allocation::{self, PHASES, Phase, PhaseLoad, Sample, blocked_share};
use forebay_control::utilisation::{MeasuredLoad, Monitor};
use forebay_sys::clock;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Decides how many threads each phase has.
pub(super) struct PipelineController {
    allocation: allocation::Controller,
    monitor: Monitor,
    is_fixed: bool,
    /// The first phase whose number of threads the controller may change.
    first: Phase,
    counters: Arc<Counters>,
    pipeline_gauges: Arc<PipelineGauges>,
}

/// Holds the controller until the pipeline has ended.
#[derive(Default)]
pub(super) struct Hold {
    released: Mutex<bool>,
    release: Condvar,
}

impl Hold {
    /// Lets the controller end.
    pub(super) fn release(&self) {
        *self.released.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.release.notify_all();
    }

    /// Waits for this period; returns `false` when released.
    fn wait(&self, period: Duration) -> bool {
        let released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.release.wait_timeout_while(released, period, |released| !*released);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// All figures counted at one time.
struct Reading {
    at_ns: u64,
    requests: u64,
    bytes: u64,
    phases: [ListFigures; PHASES],
}

impl PipelineController {
    /// The controller of a pipeline with these settings.
    ///
    /// # Errors
    /// Settings that contradict themselves.
    pub(super) fn new(
        settings: &PipelineSettings,
        counters: Arc<Counters>,
        pipeline_gauges: Arc<PipelineGauges>,
    ) -> io::Result<PipelineController> {
        let wanted = settings.allocation.clone();
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        Ok(PipelineController {
            monitor: Monitor::new(wanted.costs, wanted.thresholds),
            allocation: allocation::Controller::new(wanted).map_err(invalid)?,
            is_fixed: settings.is_fixed,
            first: if settings.fuse == Fuse::Auto { Phase::Process } else { Phase::Accept },
            counters,
            pipeline_gauges,
        })
    }

    /// Watches and decides until released.
    pub(super) fn run<J: Job>(mut self, lists: &PhaseLists<J>, spawn: Spawn, hold: &Hold) {
        let period = Duration::from_millis(self.allocation.settings().period_ms.into());
        let mut before = self.read(lists);
        let mut times = [PhaseSpent::default(); PHASES];
        self.pipeline_gauges.show(
            &Default::default(),
            &before.phases,
            &times,
            &MeasuredLoad::default(),
            None,
        );
        while hold.wait(period) {
            let now = self.read(lists);
            let sample = sample(lists, &before, &now, &mut times);
            if self.is_fixed {
                let load = self.monitor.step(sample.requests_per_s, sample.bytes_per_s);
                self.pipeline_gauges.show(&sample.phases, &now.phases, &times, &load, None);
            } else {
                let decision = self.allocation.step(&sample);
                apply(lists, self.first, &decision.targets, &spawn);
                let decided = Some((self.first, &decision));
                let load = &decision.load;
                self.pipeline_gauges.show(&sample.phases, &now.phases, &times, load, decided);
            }
            before = now;
        }
    }

    fn read<J: Job>(&self, lists: &PhaseLists<J>) -> Reading {
        let (requests, bytes) = self.counters.work();
        let phases = Phase::ALL.map(|phase| lists.of(phase).figures());
        Reading { at_ns: clock::monotonic_ns(), requests, bytes, phases }
    }
}

/// What happened between two readings. The time that was spent meanwhile is added to `times`.
fn sample<J: Job>(
    lists: &PhaseLists<J>,
    before: &Reading,
    now: &Reading,
    times: &mut [PhaseSpent; PHASES],
) -> Sample {
    let period_ns = now.at_ns.saturating_sub(before.at_ns).max(1);
    let per_s = |count: u64| count as f64 * 1e9 / period_ns as f64;
    Sample {
        period_ns,
        requests_per_s: per_s(now.requests.saturating_sub(before.requests)),
        bytes_per_s: per_s(now.bytes.saturating_sub(before.bytes)),
        phases: Phase::ALL.map(|phase| {
            let (before, now) = (&before.phases[phase.index()], &now.phases[phase.index()]);
            let with_task_ns = now.busy_ns - before.busy_ns;
            let is_loop = now.taken == 0;
            // the scheduler has a file per thread, which is not read for threads that only slept
            let is_asked = is_loop || with_task_ns > 0;
            let spent = if is_asked { lists.of(phase).spent() } else { None };
            // loops take nothing from a list; they are busy while they do not sleep
            let busy_ns = match spent {
                Some(spent) if is_loop => spent.run_ns + spent.runnable_ns,
                _ => with_task_ns,
            };
            let taken = now.taken - before.taken;
            let spent_before = &mut times[phase.index()];
            spent_before.queued_ns += now.delay_ns - before.delay_ns;
            spent_before.busy_ns += busy_ns;
            spent_before.run_ns += spent.map_or(0, |spent| spent.run_ns);
            PhaseLoad {
                waiting: now.waiting,
                threads: now.threads,
                busy: busy_ns as f64 / period_ns as f64,
                blocked: match spent {
                    Some(spent) => blocked_share(busy_ns, spent.run_ns, spent.runnable_ns),
                    // a kernel without these figures: all threads may be blocked, and M alone is
                    // the bound
                    None if busy_ns > 0 => 1.0,
                    None => 0.0,
                },
                arrivals: now.arrivals - before.arrivals,
                completions: now.completions - before.completions,
                delay_ns: (now.delay_ns - before.delay_ns).checked_div(taken).unwrap_or(0),
                kept: u32::from(now.jobs > before.jobs),
            }
        }),
    }
}

/// Brings each phase from `first` on to its number of threads, or as near as can be had. A thread
/// that one phase has too many goes to one that lacks one; what is still lacking comes from those
/// that rest, and last from new threads.
fn apply<J: Job>(lists: &PhaseLists<J>, first: Phase, targets: &[u32; PHASES], spawn: &Spawn) {
    let phases = || Phase::ALL.into_iter().filter(|phase| *phase >= first);
    // a thread that has not come within a period is held by its task, perhaps for ever, so another
    // one is brought
    let mut late = Vec::new();
    for to in phases().flat_map(|from| lists.of(from).take_back()) {
        lists.of(to).expect_fewer(1);
        late.push(to);
    }
    let mut takers = Vec::new();
    let mut steady = Vec::new();
    // in keta's order, the later a phase is, the sooner it gets a thread
    for phase in phases().rev() {
        let lacking = lists.of(phase).raise(targets[phase.index()]);
        let late = late.iter().filter(|to| **to == phase).count() as u32;
        bring(lists, phase, lacking.min(late), spawn);
        takers.extend((late..lacking).map(|_| phase));
        if lacking == 0 {
            steady.push(phase);
        }
    }
    for from in steady {
        let may_change = |to| resting::may_change(from, to, &lists.ranks);
        lists.of(from).lower(targets[from.index()], &mut takers, may_change);
    }
    takers.into_iter().for_each(|phase| bring(lists, phase, 1, spawn));
}

/// Brings this many threads to `phase`, which expects them: threads that rest, or new ones.
fn bring<J: Job>(lists: &PhaseLists<J>, phase: Phase, threads: u32, spawn: &Spawn) {
    for missing in (1..=threads).rev() {
        let comes =
            lists.resting.of(phase, &lists.ranks).call(phase) || spawn(phase, lists.another_slot());
        if !comes {
            return lists.of(phase).expect_fewer(missing);
        }
    }
}
