//! Threads for the four phases of a pipeline, by feedback (keta §4.2).
//!
//! Once per period an engine hands a [`Sample`] of each phase to [`Controller::step`] and gets back how many
//! threads each phase should have. The engine lowers counts before it raises others, parks threads instead of
//! ending threads, and keeps the [`AllocationDecision`] for its metrics.
//!
//! Rules for both laws:
//!
//! - The targets never add up to more than `M`, and each phase has at least one thread.
//! - A phase grows only while tasks wait in its list, and to no more threads than it has tasks (plus one
//!   where the engine reserves one, see [`PhaseLoad::kept`]).
//! - No phase grows past what the cores can use: `cores · (1 + 3 · blocked / (1 − blocked))` threads, where
//!   `blocked` is the share of their busy time in which its threads waited for something other than a core.
//!   `cores / (1 − blocked)` would keep the cores busy if the threads waited in turns. But they wait at
//!   random: with that many threads, all of them wait at once a third of the time (`e⁻¹`), with three times
//!   as many waiting threads a twentieth. A phase that only computes ends at `cores`, one that is blocked
//!   nine tenths of its time at 28 times that. A phase that has more, because its work was of another kind
//!   before, gives them back.
//! - At low load every phase without waiting tasks returns to its initial count. A phase that has fewer gets
//!   free threads only; threads move from phase to phase only where tasks wait.
//! - A phase gives threads back after half a second in which fewer would have done, and keeps the most that
//!   were needed in that time. Each time it soon needs them again, the half second is doubled, up to 16 s.
//!
//! The laws are tried out in `simulation.rs`.

mod delay;
mod queue;
mod settings;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use settings::{AllocationSettings, AllocationSettingsError, Law};

use crate::utilisation::{MeasuredLoad, Monitor};

/// The number of phases.
pub const PHASES: usize = 4;

/// A phase of the pipeline, in the order in which a request passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Takes connections from the listener.
    Accept,
    /// Receives and parses heads.
    Receive,
    /// Produces the answer.
    Process,
    /// Sends the answer.
    Send,
}

impl Phase {
    /// All phases, in the order in which a request passes them.
    pub const ALL: [Phase; PHASES] = [Phase::Accept, Phase::Receive, Phase::Process, Phase::Send];

    /// The phase's index in arrays of [`PHASES`] elements: keta's `k`, 0 for accept.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The phase's name in metrics and settings.
    pub fn name(self) -> &'static str {
        ["accept", "receive", "process", "send"][self.index()]
    }
}

/// The measurements of one phase in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhaseLoad {
    /// `T`: tasks in the phase's list at the end of the period.
    pub waiting: u32,
    /// Threads of the phase, without parked ones.
    pub threads: u32,
    /// The number of threads that had a task, as the mean over the period (time with a task, summed over the
    /// threads, divided by the length of the period). A count at one moment will do, but makes the delay law
    /// less exact.
    pub busy: f64,
    /// The share of that time, 0 to 1, in which the threads waited for something other than a core: a disk, a
    /// receiver, a lock. See [`blocked_share`].
    pub blocked: f64,
    /// Tasks put into the phase's list in the period.
    pub arrivals: u64,
    /// Tasks finished by its threads in the period.
    pub completions: u64,
    /// How long the tasks taken from the list in the period had waited there, as the mean; 0 if none
    /// was taken.
    pub delay_ns: u64,
    /// Threads that the engine reserves, that is keeps from tasks like those of this period, if the phase has
    /// more than one.
    pub kept: u32,
}

/// The share of their busy time in which threads were blocked.
///
/// All three are sums over a phase's threads for one period: `busy_ns` by the wall clock, `run_ns` on a core,
/// `runnable_ns` waiting for a core (the latter two are the first two numbers of Linux's
/// `/proc/thread-self/schedstat`). Waiting for a core does not count as being blocked: otherwise an
/// overcrowded machine would ask for yet more threads.
pub fn blocked_share(busy_ns: u64, run_ns: u64, runnable_ns: u64) -> f64 {
    if busy_ns == 0 {
        return 0.0;
    }
    let blocked_ns = busy_ns.saturating_sub(run_ns.saturating_add(runnable_ns));
    blocked_ns as f64 / busy_ns as f64
}

/// The measurements of the server in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The actual length of the period.
    pub period_ns: u64,
    /// `W`: requests per second.
    pub requests_per_s: f64,
    /// `R`: bytes per second.
    pub bytes_per_s: f64,
    /// The phases, by [`Phase::index`].
    pub phases: [PhaseLoad; PHASES],
}

impl Sample {
    /// A period in which nothing happened, with these threads in each phase.
    pub fn of(period_ns: u64, threads: [u32; PHASES]) -> Sample {
        let phases = threads.map(|threads| PhaseLoad { threads, ..PhaseLoad::default() });
        Sample { period_ns, requests_per_s: 0.0, bytes_per_s: 0.0, phases }
    }
}

/// Why a phase's target is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing asks for another count.
    Steady,
    /// Tasks wait, and there were threads left to give.
    Grew,
    /// Tasks wait, and another phase gave threads because none were free.
    Took,
    /// The phase gave threads to another, which needed them more.
    Gave,
    /// The phase had more threads than the law computes for it.
    Shrank,
    /// The load is low: the phase returns to its initial count, or is on the way.
    Returned,
    /// Tasks wait, but more threads would only compete for the cores.
    HeldByCores,
    /// Tasks wait, but all `M` threads are in use and no phase could give one.
    HeldByTotal,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 8] = [
        Reason::Steady,
        Reason::Grew,
        Reason::Took,
        Reason::Gave,
        Reason::Shrank,
        Reason::Returned,
        Reason::HeldByCores,
        Reason::HeldByTotal,
    ];

    /// The reason's name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Steady => "steady",
            Reason::Grew => "grew",
            Reason::Took => "took",
            Reason::Gave => "gave",
            Reason::Shrank => "shrank",
            Reason::Returned => "returned",
            Reason::HeldByCores => "held_by_cores",
            Reason::HeldByTotal => "held_by_total",
        }
    }
}

/// The decision for one phase, and its inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseDecision {
    /// The measurements.
    pub load: PhaseLoad,
    /// The target before this step: keta's `P_k(i)`.
    pub before: u32,
    /// The result of the law, before rounding and limits.
    pub computed: f64,
    /// The most threads that the cores can use in this phase now.
    pub limit: u32,
    /// The new target: keta's `P_k(i+1)`.
    pub target: u32,
    /// The reason for the target.
    pub reason: Reason,
}

/// The decision of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllocationDecision {
    /// How many threads each phase should have, by [`Phase::index`].
    pub targets: [u32; PHASES],
    /// The load at which the decision was taken.
    pub load: MeasuredLoad,
    /// The details of each phase, by [`Phase::index`].
    pub phases: [PhaseDecision; PHASES],
}

/// The controller: it decides in each period how many threads each phase gets.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: AllocationSettings,
    monitor: Monitor,
    targets: [u32; PHASES],
    memories: [Memory; PHASES],
}

/// The memory of a phase: sums in which older periods count less and less, because a single period may see
/// few tasks, or none that ends.
#[derive(Clone, Copy, Debug)]
struct Memory {
    busy_ns: f64,
    blocked_ns: f64,
    completions: f64,
    arrivals_per_s: f64,
    /// The number of threads that the delay law would give the phase if there were enough.
    need: f64,
    /// The number of threads with a task, as a moving average.
    busy: f64,
    /// How long fewer threads would have been enough, and the most that were needed in that time.
    calm_ns: u64,
    calm_need: f64,
    /// How long that must last before threads are given back.
    patience_ns: u64,
    /// The time since the phase last gave threads back.
    since_less_ns: u64,
    /// How long the phase has had more threads than the cores can use.
    crowded_ns: u64,
    /// The length of the last period.
    period_ns: u64,
}

/// The time after which a remembered sum has fallen to 1/e.
const MEMORY_NS: f64 = 300e6;

/// How long fewer threads must have been enough before a phase gives some back: if it gave them back at the
/// first empty list, they would only be woken again in the next period. A phase that soon needs again what it
/// gave waits twice as long the next time, so that it does not oscillate.
const PATIENCE_NS: u64 = 500_000_000;

/// The number of threads for each one that would be enough if threads waited in turns and not at random.
const IN_TURN: f64 = 3.0;
/// The number of busy threads from which on a single period shows how much of its time a phase is blocked.
const BUSY_ENOUGH: f64 = 0.5;

/// The longest such time.
const MOST_PATIENCE_NS: u64 = 32 * PATIENCE_NS;

impl Memory {
    const NEW: Memory = Memory {
        busy_ns: 0.0,
        blocked_ns: 0.0,
        completions: 0.0,
        arrivals_per_s: 0.0,
        need: 0.0,
        busy: 0.0,
        calm_ns: 0,
        calm_need: 0.0,
        patience_ns: PATIENCE_NS,
        since_less_ns: u64::MAX,
        crowded_ns: 0,
        period_ns: 0,
    };

    fn add(&mut self, load: &PhaseLoad, period_ns: u64) {
        self.period_ns = period_ns;
        let period_ns = period_ns as f64;
        let keep = (-period_ns / MEMORY_NS).exp();
        let busy = load.busy.max(0.0);
        self.busy_ns = keep * self.busy_ns + busy * period_ns;
        self.blocked_ns = keep * self.blocked_ns + busy * period_ns * load.blocked.clamp(0.0, 1.0);
        self.completions = keep * self.completions + load.completions as f64;
        let arrivals_per_s = load.arrivals as f64 * 1e9 / period_ns;
        self.arrivals_per_s += (1.0 - keep) * (arrivals_per_s - self.arrivals_per_s);
        self.busy += (1.0 - keep) * (busy - self.busy);
    }

    /// The most threads of this phase that `cores` can keep going: by the remembered sums, or by this period
    /// alone if enough of its threads were busy.
    fn limit(&self, load: &PhaseLoad, cores: u32) -> f64 {
        let remembered = if self.busy_ns > 0.0 { self.blocked_ns / self.busy_ns } else { 0.0 };
        let now = if load.busy >= BUSY_ENOUGH { load.blocked.clamp(0.0, 1.0) } else { 0.0 };
        // half a percent of a core is a rounding error, not the need for another thread
        let blocked = remembered.max(now);
        (f64::from(cores) * (1.0 + IN_TURN * blocked / (1.0 - blocked)) - 0.005).ceil()
    }

    /// Notes that `need` threads of `before` would have been enough in this period. Once fewer have been
    /// enough for long, returns the number that was enough at all times, and starts over.
    fn calm(&mut self, need: f64, before: u32) -> Option<f64> {
        if need.ceil() >= f64::from(before) {
            (self.calm_ns, self.calm_need) = (0, 0.0);
            return None;
        }
        self.calm_ns = self.calm_ns.saturating_add(self.period_ns);
        self.calm_need = self.calm_need.max(need);
        let has_lasted = self.calm_ns >= self.patience_ns;
        has_lasted.then(|| {
            self.calm_ns = 0;
            std::mem::take(&mut self.calm_need)
        })
    }

    /// Notes whether the phase has more threads than the cores can use. Returns whether that has lasted for
    /// long.
    fn is_crowded(&mut self, too_many: bool) -> bool {
        let crowded_ns = self.crowded_ns.saturating_add(self.period_ns);
        self.crowded_ns = if too_many { crowded_ns } else { 0 };
        self.crowded_ns >= PATIENCE_NS
    }

    /// Notes a change of the count. A phase that grows soon after it gave threads back becomes more patient.
    fn changed(&mut self, before: u32, target: u32) {
        self.since_less_ns = self.since_less_ns.saturating_add(self.period_ns);
        if target < before {
            self.since_less_ns = 0;
        } else if target > before {
            let was_rash = self.since_less_ns < 8 * self.patience_ns;
            let longer_ns = MOST_PATIENCE_NS.min(2 * self.patience_ns);
            self.patience_ns = if was_rash { longer_ns } else { PATIENCE_NS };
        }
    }
}

/// The threads that a law wants for one phase.
#[derive(Clone, Copy, Debug)]
struct PhaseWish {
    /// The number before rounding and limits.
    computed: f64,
    /// The number after rounding and limits.
    wanted: u32,
    /// The most threads that the cores can use in the phase.
    limit: u32,
    /// The reason, unless another phase changes the target.
    reason: Reason,
}

impl Controller {
    /// A controller that starts with the initial counts.
    ///
    /// # Errors
    /// The settings contradict each other.
    pub fn new(settings: AllocationSettings) -> Result<Controller, AllocationSettingsError> {
        settings.check()?;
        let monitor = Monitor::new(settings.costs, settings.thresholds);
        let targets = settings.initial;
        Ok(Controller { settings, monitor, targets, memories: [Memory::NEW; PHASES] })
    }

    /// The settings of the controller.
    pub fn settings(&self) -> &AllocationSettings {
        &self.settings
    }

    /// How many threads each phase should have now.
    pub fn targets(&self) -> [u32; PHASES] {
        self.targets
    }

    /// Takes the measurements of the period that just ended, and decides for the next one.
    pub fn step(&mut self, sample: &Sample) -> AllocationDecision {
        let load = self.monitor.step(sample.requests_per_s, sample.bytes_per_s);
        let period_ns = sample.period_ns.max(1);
        for (memory, phase) in self.memories.iter_mut().zip(&sample.phases) {
            memory.add(phase, period_ns);
        }
        let before = self.targets;
        let wishes = Phase::ALL.map(|phase| {
            let mut wish = match self.settings.law {
                Law::Queue => self.by_queue(phase, &sample.phases[phase.index()], &load),
                Law::Delay => self.by_delay(phase, &sample.phases[phase.index()]),
            };
            self.bound(phase, &sample.phases[phase.index()], &mut wish);
            wish
        });
        let mut reasons = wishes.map(|wish| wish.reason);
        match self.settings.law {
            Law::Queue => self.settle_by_queue(sample, &wishes, &mut reasons),
            Law::Delay => self.settle_by_delay(&wishes, &mut reasons),
        }
        for (index, memory) in self.memories.iter_mut().enumerate() {
            memory.changed(before[index], self.targets[index]);
        }
        self.decision(sample, load, before, &wishes, reasons)
    }

    /// Applies to `wish` the rules for both laws.
    fn bound(&mut self, phase: Phase, load: &PhaseLoad, wish: &mut PhaseWish) {
        let (before, initial) = (self.targets[phase.index()], self.settings.initial[phase.index()]);
        let memory = &mut self.memories[phase.index()];
        let kept = if wish.computed > 1.0 { load.kept } else { 0 };
        let limit = (memory.limit(load, self.settings.cores) as u32).saturating_add(kept);
        wish.limit = limit.clamp(initial, self.settings.most);
        let mut computed = wish.computed.ceil().clamp(0.0, f64::from(self.settings.most)) as u32;
        if memory.is_crowded(before > wish.limit) {
            computed = computed.min(wish.limit);
            wish.reason = Reason::Shrank;
        }
        if computed < before && before > initial {
            wish.wanted = computed.max(initial);
            return;
        }
        wish.wanted = before;
        if computed <= before || load.waiting == 0 {
            wish.reason = Reason::Steady;
            if before < initial && load.waiting == 0 {
                // the phase gave threads to others, and gets them back as soon as there are free ones
                (wish.wanted, wish.reason) = (initial, Reason::Returned);
            }
            return;
        }
        // more threads than tasks would be idle
        let tasks = load.busy.max(0.0).ceil() as u32 + kept;
        let wanted = computed.min(tasks.saturating_add(load.waiting));
        wish.wanted = wanted.min(wish.limit).max(before);
        wish.reason = match wish.wanted {
            same if same == before && wanted > wish.limit => Reason::HeldByCores,
            same if same == before => Reason::Steady,
            _ => Reason::Grew,
        };
    }

    /// The threads that no phase has.
    fn free(&self) -> u32 {
        self.settings.most.saturating_sub(self.targets.iter().sum())
    }

    /// Lowers a phase that wants fewer threads, and raises one that wants more as far as there are free ones.
    /// Returns how many it still lacks.
    fn grant(&mut self, phase: Phase, wish: &PhaseWish) -> u32 {
        let free = self.free();
        let target = &mut self.targets[phase.index()];
        *target = wish.wanted.min(target.saturating_add(free));
        wish.wanted.saturating_sub(*target)
    }

    /// A phase that returns to its initial count takes free threads only, never those of another phase: a
    /// thread moves only to tasks that wait. Returns whether this phase is such a one.
    fn settle_return(
        &self,
        phase: Phase,
        before: u32,
        wish: &PhaseWish,
        reasons: &mut [Reason; PHASES],
    ) -> bool {
        let is_return = wish.reason == Reason::Returned && wish.wanted > before;
        if is_return && self.targets[phase.index()] == before {
            reasons[phase.index()] = Reason::Steady;
        }
        is_return
    }

    fn decision(
        &self,
        sample: &Sample,
        load: MeasuredLoad,
        before: [u32; PHASES],
        wishes: &[PhaseWish; PHASES],
        reasons: [Reason; PHASES],
    ) -> AllocationDecision {
        let phases = Phase::ALL.map(|phase| {
            let index = phase.index();
            PhaseDecision {
                load: sample.phases[index],
                before: before[index],
                computed: wishes[index].computed,
                limit: wishes[index].limit,
                target: self.targets[index],
                reason: reasons[index],
            }
        });
        AllocationDecision { targets: self.targets, load, phases }
    }
}
