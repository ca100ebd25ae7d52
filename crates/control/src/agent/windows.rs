//! A window for each class: the largest number of its unfinished requests.
//!
//! # The window
//!
//! The window of a class holds as many requests as keep the workers busy, and as many more as make one wait
//! for the class's target delay `T`. With `σ` as the time in which the machine does one of its requests:
//!
//! ```text
//! σ = max(cpu / cores, busy / threads)        model = e·(T/π + busy/σ)        most = f·model
//! π = max(σ, e·(quiet − before) / max(e·busy/σ, 1))
//! ```
//!
//! `cpu` and `busy` are measured means per request; `busy/σ` requests are at work when all workers are. `e`
//! is the part of the machine that is left to the class: what the admitted work of the classes above does not
//! take, less the shares of those below, and never less than its own share.
//!
//! `π` is `σ` unless the class is slower than that: for the time `quiet`, requests of it have waited and none
//! has finished. A single long job that keeps none waiting does not count. The measured mean cost is that of
//! requests that have ended. Of a class that gets a twentieth of a worker, one ends every twenty service
//! times; before that, a flood of dear requests after some cheap ones would have been let in, as many as if
//! they were cheap. `before` is the delay that may occur in any case: a request of the class itself, and one
//! of each class below.
//!
//! `f` is moved by feedback, by the law that SEDA and Breakwater use for rates and credits. With `d` as the
//! delay:
//!
//! ```text
//! d ≤ T:  f += a                              d > T:  f *= max(1 − b·(d − T)/T, ½)
//! ```
//!
//! - `d` is the measured delay, smoothed, or the time that the present backlog will take, if that is more: so
//!   a flood shows when it arrives, not when its first request has waited.
//! - While more is unfinished than the window lets in, `f` stays: what was admitted before the last cut is no
//!   reason for another.
//! - While the load does not use the window, it cannot show whether the window is right. `f` returns to a
//!   size that holds a burst, so that an idle server does not refuse a page that asks for ten things at once.
//!   The first cut starts from what is in use, not from that size.
//! - No window closes: as many requests as the class has workers' time for, and one that waits, so that no
//!   worker idles, may always be unfinished. A target shorter than a service time ends there. Jobs that have
//!   not ended yet count as workers' time, too; otherwise a job that runs long would close the window of its
//!   class.
//!
//! # Classes
//!
//! Waiting work is ordered by [`ranked`](crate::ranked): when more arrives than can be served, the delay of
//! the lowest class grows first, so that class is cut first. Classes can also hinder each other in ways that
//! this order does not prevent (when more threads than cores share the cores). Then, for a class above its
//! target, the windows of those below are cut to their floors first, the lowest first, before its own is. A
//! request must wait for whatever runs when it arrives, so the longest work of the lower classes does not
//! count as delay of the higher ones. A class with a share keeps a window that can use it.

use super::{AgentClass, Limits, Observation, Seen, part_of};

/// The constants of the feedback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// `a`: the part of the model's window that is added in 10 ms.
    pub growth: f64,
    /// `b`: how strongly a delay above the target cuts.
    pub cut: f64,
    /// The work that may arrive at once at a server that is not overloaded, beyond a class's target, in
    /// nanoseconds of waiting.
    pub burst_ns: u64,
}

impl Default for Constants {
    /// The constants that the simulation found.
    fn default() -> Constants {
        Constants { growth: 0.02, cut: 0.25, burst_ns: 100_000_000 }
    }
}

/// The time for which `growth` is stated, in nanoseconds.
const STEP_NS: f64 = 10e6;
/// The time over which the measured delay is smoothed.
const DELAY_OVER_NS: f64 = 50e6;
/// The time over which the part of the machine that a class wants is smoothed.
const WANTED_OVER_NS: f64 = 50e6;
/// The largest part of the machine that a class is assumed to want.
const MOST_WANTED: f64 = 4.0;
/// The time over which a class's use of the machine, and the part taken by long jobs, are smoothed.
const USE_OVER_NS: f64 = 200e6;
/// The time in which a window that is not used returns to its full size.
const RETURN_OVER_NS: f64 = 250e6;
/// The number of requests over which the mean cost is smoothed …
const COST_OVER: f64 = 16.0;
/// … and the time over which it is smoothed at most, so that a class with few requests need not wait for 16
/// of them.
const COST_OVER_NS: f64 = 500e6;
/// The excess of the used workers' time over the class's share from which the class counts as above its
/// floor.
const ABOVE_SHARE: f64 = 0.02;
/// The largest `Retry-After`, in seconds.
const MOST_RETRY_S: u64 = 60;
/// The assumed cost of a request while none of the class has finished; if one has waited for longer, that
/// time counts instead. If the first one that finishes was cheaper, this cost still counts as one of the
/// [`COST_OVER`].
const FIRST_COST_NS: f64 = 5e6;
/// The least value of `f`.
const LEAST: f64 = 1.0 / 64.0;

/// The windows of all classes.
#[derive(Clone, Debug)]
pub struct Windows {
    classes: Vec<AgentClass>,
    constants: Constants,
    lines: Vec<TrendLine>,
    limits: Vec<Limits>,
}

/// The measurements of a class.
#[derive(Clone, Copy, Debug, Default)]
struct TrendLine {
    /// Mean cost per request; 0 until one has finished.
    cpu_ns: f64,
    busy_ns: f64,
    /// When the mean costs were last updated.
    learned_ns: u64,
    /// The delay, smoothed.
    delay_ns: f64,
    /// The share of the machine that the class uses, smoothed: 0 to 1.
    used: f64,
    /// The part of the places at work that is taken by jobs running since the last period, smoothed: 0 to 1.
    occupied: f64,
    /// The number of jobs at work at the end of the last period.
    running: u32,
    /// The part of the machine that the admitted work takes, smoothed; above 1 in a burst.
    wanted: f64,
    /// `f`; 0 before anything is measured, which stands for the full size.
    fraction: f64,
    /// The work offered, and the part of it refused, in the last period, in parts of what the machine can do.
    offered: f64,
    refused: f64,
    /// The excess of the delay over the target, as a part of the target.
    excess: f64,
    /// Since when requests wait and none finishes.
    since_ns: Option<u64>,
}

/// The values from which a class's window is made in a period.
#[derive(Clone, Copy, Debug)]
struct Model {
    sigma_ns: f64,
    /// `π`.
    pace_ns: f64,
    /// `e`.
    entitled: f64,
    /// The number of requests at work when all workers are.
    at_once: f64,
    /// The window at `f = 1`.
    window: f64,
    /// `f` at the full size.
    full: f64,
    /// The smallest window.
    floor: u32,
}

impl Windows {
    /// Windows that know nothing of any class yet.
    pub fn new(classes: &[AgentClass], constants: Constants) -> Windows {
        Windows {
            lines: vec![TrendLine::default(); classes.len()],
            limits: vec![Limits { retry_after_s: 1, ..Limits::default() }; classes.len()],
            classes: classes.to_vec(),
            constants,
        }
    }

    /// The limits of each class.
    pub fn limits(&self) -> &[Limits] {
        &self.limits
    }

    /// The work offered in the last period, by rank, as a part of what the machine can do.
    pub fn offered(&self) -> impl Iterator<Item = f64> {
        self.lines.iter().map(|line| line.offered)
    }

    /// The part of the machine that the refused work of a class would have taken in the last period.
    pub fn refused(&self, rank: usize) -> f64 {
        self.lines[rank].refused
    }

    /// Whether a class was above its target in the last period.
    pub fn is_late(&self, rank: usize) -> bool {
        self.lines[rank].excess > 0.0
    }

    /// The excess of a class's delay over its target in the last period, as a part of the target; 0 if there
    /// was none.
    pub fn excess_of(&self, rank: usize) -> f64 {
        self.lines[rank].excess
    }

    /// Takes over what `before` knew of class `theirs` for class `ours`.
    pub(super) fn carry(&mut self, ours: usize, before: &Windows, theirs: usize) {
        self.lines[ours] = before.lines[theirs];
        self.limits[ours] = before.limits[theirs];
    }

    fn model(&self, rank: usize, seen: &Observation<'_>) -> Model {
        let (class, line) = (&self.classes[rank], &self.lines[rank]);
        let (cpu_ns, busy_ns) = line.cost_ns(seen.now_ns);
        let (cores, threads) = (f64::from(seen.cores.max(1)), f64::from(seen.threads.max(1)));
        let sigma_ns = (cpu_ns / cores.min(threads)).max(busy_ns / threads);
        let at_once = (busy_ns / sigma_ns).clamp(1.0, threads);
        let target_ns = class.target_ns as f64;
        let entitled = self.entitled(rank);
        // a running job may take its full time, and so may one of each lower class that goes first
        let below = self.lines[rank + 1..].iter().map(|line| line.cost_ns(seen.now_ns).1);
        let late_ns = (line.quiet_ns(seen.now_ns) - busy_ns - below.sum::<f64>()).max(0.0);
        let pace_ns = sigma_ns.max(entitled * late_ns / (entitled * at_once).max(1.0));
        let window = entitled * (target_ns / pace_ns + at_once);
        let burst_ns = self.constants.burst_ns as f64 + target_ns;
        let full = entitled * (burst_ns / pace_ns + at_once) / window;
        // one request waits beside those at work, unless the class has less than a tenth of a worker
        let at_work = line.used.max(line.occupied).max(class.share) * at_once;
        let floor = (at_work + 1.9) as u32;
        Model { sigma_ns, pace_ns, entitled, at_once, window, full, floor }
    }

    /// `e` for a class.
    fn entitled(&self, rank: usize) -> f64 {
        let above: f64 = self.lines[..rank].iter().map(|line| line.wanted).sum();
        let below = self.lines.iter().zip(&self.classes).skip(rank + 1);
        let below: f64 = below.map(|(line, class)| line.wanted.min(class.share)).sum();
        (1.0 - above - below).clamp(self.classes[rank].share.max(LEAST), 1.0)
    }

    /// The target of the class, plus the part of its delay that its own window cannot change: the longest job
    /// of the lower classes that may be running.
    fn target_ns(&self, rank: usize) -> f64 {
        let below = self.lines[rank + 1..].iter();
        let running_ns =
            below.map(|line| line.busy_ns * (2.0 * line.used).min(1.0)).fold(0.0, f64::max);
        self.classes[rank].target_ns as f64 + running_ns
    }
}

impl TrendLine {
    /// How long requests have waited without any having finished, in nanoseconds.
    fn quiet_ns(&self, now_ns: u64) -> f64 {
        self.since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns)) as f64
    }

    /// How many of the jobs at work were already at work at the end of the last period, at least.
    fn running_on(&self, seen: &Seen) -> u32 {
        let finished = u32::try_from(seen.finished).unwrap_or(u32::MAX);
        self.running.saturating_sub(finished).min(seen.running)
    }

    /// The time that a request takes of a core, and of a thread.
    fn cost_ns(&self, now_ns: u64) -> (f64, f64) {
        if self.busy_ns > 0.0 {
            return (self.cpu_ns, self.busy_ns);
        }
        let guess_ns = FIRST_COST_NS.max(self.quiet_ns(now_ns));
        (guess_ns, guess_ns)
    }

    /// Updates the measurements; `at_once` requests can be at work.
    fn learn(&mut self, seen: &Seen, at_once: f64, now_ns: u64, elapsed_ns: f64) {
        if seen.finished > 0 {
            self.learn_cost(seen, now_ns);
        }
        let since_ns = self.since_ns.filter(|_| seen.finished == 0).unwrap_or(now_ns);
        // threads beyond the number of cores wait for these
        let at_work = f64::from(seen.running).min(at_once.round());
        self.since_ns = (f64::from(seen.unfinished) > at_work).then_some(since_ns);
        let moved_ns = seen.delay_ns as f64 - self.delay_ns;
        self.delay_ns += moved_ns * part_of(elapsed_ns, DELAY_OVER_NS);
    }

    fn learn_cost(&mut self, seen: &Seen, now_ns: u64) {
        let count = seen.finished as f64;
        let cpu_ns = seen.cpu_ns as f64 / count;
        let busy_ns = cpu_ns.max(seen.busy_ns as f64 / count);
        if self.busy_ns == 0.0 {
            // if the first request was cheap, that says little about the others
            (self.cpu_ns, self.busy_ns) = (cpu_ns.max(FIRST_COST_NS), busy_ns.max(FIRST_COST_NS));
            self.learned_ns = now_ns;
        }
        let since_ns = now_ns.saturating_sub(self.learned_ns) as f64;
        let part = (count / (count + COST_OVER - 1.0)).max(part_of(since_ns, COST_OVER_NS));
        self.cpu_ns += (cpu_ns - self.cpu_ns) * part;
        self.busy_ns += (busy_ns - self.busy_ns) * part;
        self.learned_ns = now_ns;
    }
}

impl Windows {
    /// Processes the measurements of a period of `elapsed_ns`.
    pub fn tick(&mut self, elapsed_ns: f64, seen: &Observation<'_>) {
        self.learn(elapsed_ns, seen);
        let ranks = 0..self.lines.len();
        let models: Vec<_> = ranks.map(|rank| self.model(rank, seen)).collect();
        let mut states = vec![WindowState::Within; models.len()];
        for (rank, model) in models.iter().enumerate() {
            let excess = self.excess(rank, model, seen.class(rank));
            self.lines[rank].excess = excess;
            if excess <= 0.0 {
                continue;
            }
            let factor = (1.0 - self.constants.cut * excess).max(0.5);
            let whose = self.who_gives_way(rank, &models);
            states[rank] = states[rank].and(WindowState::Over);
            states[whose] = states[whose].and(WindowState::Cut(factor));
        }
        for (rank, (model, state)) in models.iter().zip(states).enumerate() {
            self.set(rank, model, state, seen.class(rank), elapsed_ns);
        }
    }

    fn learn(&mut self, elapsed_ns: f64, seen: &Observation<'_>) {
        for rank in 0..self.lines.len() {
            let of = seen.class(rank);
            let at_once = self.model(rank, seen).at_once;
            self.lines[rank].learn(of, at_once, seen.now_ns, elapsed_ns);
            let model = self.model(rank, seen);
            let of_machine = |count: u64| count as f64 * model.sigma_ns / elapsed_ns;
            let line = &mut self.lines[rank];
            let used = of_machine(of.finished).min(1.0);
            line.used += (used - line.used) * part_of(elapsed_ns, USE_OVER_NS);
            let occupied = (f64::from(line.running_on(of)) / model.at_once).min(1.0);
            line.occupied += (occupied - line.occupied) * part_of(elapsed_ns, USE_OVER_NS);
            line.running = of.running;
            let admitted = of.offered.saturating_sub(of.refused);
            let wanted = of_machine(admitted).min(MOST_WANTED);
            line.wanted += (wanted - line.wanted) * part_of(elapsed_ns, WANTED_OVER_NS);
            line.offered = of_machine(of.offered);
            line.refused = of_machine(of.refused);
        }
    }

    /// The excess of the class's delay over its target, as a part of the target; 0 if there is none.
    fn excess(&self, rank: usize, model: &Model, seen: &Seen) -> f64 {
        let waiting = f64::from(seen.unfinished) - model.entitled * model.at_once;
        let backlog_ns = waiting * model.pace_ns / model.entitled;
        let target_ns = self.target_ns(rank);
        (self.lines[rank].delay_ns.max(backlog_ns) / target_ns - 1.0).max(0.0)
    }

    /// The class that gives way to one above its target: the lowest below it that has more than its floor, or
    /// the class itself.
    fn who_gives_way(&self, rank: usize, models: &[Model]) -> usize {
        let has_more = |lower: &usize| {
            let (class, line) = (&self.classes[*lower], &self.lines[*lower]);
            let most = self.limits[*lower].most.unwrap_or(u32::MAX);
            line.used > class.share + ABOVE_SHARE && most > models[*lower].floor
        };
        (rank + 1..self.lines.len()).rev().find(has_more).unwrap_or(rank)
    }

    /// Sets the window of a class for the next period.
    fn set(&mut self, rank: usize, model: &Model, state: WindowState, of: &Seen, elapsed_ns: f64) {
        let (line, limits) = (&mut self.lines[rank], &mut self.limits[rank]);
        if line.fraction <= 0.0 {
            line.fraction = model.full;
        }
        let is_draining = limits.most.is_some_and(|most| of.unfinished > most);
        match state {
            WindowState::Cut(factor) if !is_draining => {
                let in_use = f64::from(of.unfinished) / model.window;
                line.fraction = line.fraction.min(in_use.max(1.0)) * factor;
            }
            WindowState::Cut(_) | WindowState::Over => {}
            WindowState::Within if of.refused > 0 => {
                line.fraction += self.constants.growth * elapsed_ns / STEP_NS;
            }
            WindowState::Within => {
                line.fraction += (model.full - line.fraction) * part_of(elapsed_ns, RETURN_OVER_NS);
            }
        }
        line.fraction = line.fraction.clamp(LEAST, model.full.max(1.0));
        let most = (line.fraction * model.window) as u32;
        limits.most = Some(most.max(model.floor).max(1));
        let admitted = of.offered.saturating_sub(of.refused).max(1);
        limits.retry_after_s = (of.offered.div_ceil(admitted)).clamp(1, MOST_RETRY_S) as u32;
    }
}

/// The state of a class in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WindowState {
    /// The delay is within the target.
    Within,
    /// The delay is above the target, but another class gives way.
    Over,
    /// The window is cut to this part.
    Cut(f64),
}

impl WindowState {
    /// The combination of two states: the one that leaves less.
    fn and(self, other: WindowState) -> WindowState {
        match (self, other) {
            (WindowState::Cut(one), WindowState::Cut(two)) => WindowState::Cut(one.min(two)),
            (WindowState::Cut(part), _) | (_, WindowState::Cut(part)) => WindowState::Cut(part),
            (WindowState::Within, WindowState::Within) => WindowState::Within,
            _ => WindowState::Over,
        }
    }
}
