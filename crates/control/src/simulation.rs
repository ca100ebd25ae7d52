//! Four phases, their lists, threads and cores in virtual time, to try a controller out without a machine,
//! and to search for its constants (keta's "off-line experiment", §4.2).
//!
//! Tasks arrive at random (Poisson) and pass the phases in order. In each one a task first takes
//! CPU time, which all threads that want a core share equally, and then time in which its thread is
//! blocked: by a disk, by a receiver. A list is served first come, first served. Nothing else costs
//! time: no cache, no switch between threads, no wake-up.

use crate::allocation::{
    AllocationSettings, AllocationSettingsError, Controller, PHASES, Phase, Sample, blocked_share,
};
use std::collections::VecDeque;

/// The tasks of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedWork {
    /// The number of tasks that arrive per second, on average.
    pub per_s: f64,
    /// The CPU time in each phase, by [`Phase::index`], in nanoseconds.
    pub cpu_ns: [u64; PHASES],
    /// The time after that in which the thread is blocked, in nanoseconds.
    pub blocked_ns: [u64; PHASES],
}

impl SimulatedWork {
    /// The least time to an answer, in nanoseconds, if a request never waits for a thread or a core.
    pub fn least_ns(&self) -> u64 {
        self.cpu_ns.iter().chain(&self.blocked_ns).sum()
    }
}

/// Remaining work below this counts as none: rounding leaves fractions of a nanosecond.
const NOTHING_NS: f64 = 1e-3;

#[derive(Clone, Copy, Debug)]
struct SimulatedTask {
    work: SimulatedWork,
    came_ns: f64,
    listed_ns: f64,
    cpu_ns: f64,
    blocked_ns: f64,
    /// Whether the task blocks in process, so that the reserved thread must not take it.
    is_job: bool,
}

#[derive(Clone, Debug, Default)]
struct SimulatedPhase {
    list: VecDeque<SimulatedTask>,
    running: Vec<SimulatedTask>,
    busy_ns: f64,
    core_ns: f64,
    runnable_ns: f64,
    arrivals: u64,
    completions: u64,
    taken: u64,
    waited_ns: f64,
}

impl SimulatedPhase {
    /// The first task that may begin, if at most `jobs` threads may have tasks that block.
    fn next(&mut self, jobs: usize) -> Option<SimulatedTask> {
        let has_room = self.running.iter().filter(|task| task.is_job).count() < jobs;
        let place = self.list.iter().position(|task| has_room || !task.is_job)?;
        self.list.remove(place)
    }
}

/// A pipeline, and the measurements of it.
#[derive(Clone, Debug)]
pub struct PipelineSimulation {
    controller: Option<Controller>,
    cores: f64,
    period_ns: f64,
    targets: [u32; PHASES],
    lines: [SimulatedPhase; PHASES],
    now_ns: f64,
    next_period_ns: f64,
    next_arrival_ns: f64,
    random: u64,
    keeps_one: bool,
    history: Vec<[u32; PHASES]>,
    /// For each answer, when its task arrived, and how long it took.
    answered: Vec<(f64, f64)>,
    period_answers: u64,
}

impl PipelineSimulation {
    /// A pipeline steered by a controller with these settings, on as many cores as they name.
    ///
    /// # Errors
    /// The settings contradict each other.
    pub fn steered(
        settings: AllocationSettings,
    ) -> Result<PipelineSimulation, AllocationSettingsError> {
        let (cores, period_ms) = (settings.cores, settings.period_ms);
        let controller = Controller::new(settings)?;
        let fixed = PipelineSimulation::fixed(controller.targets(), cores, period_ms);
        Ok(PipelineSimulation { controller: Some(controller), ..fixed })
    }

    /// A pipeline with constant numbers of threads. The period only determines how often
    /// [`history`](PipelineSimulation::history) is recorded.
    pub fn fixed(targets: [u32; PHASES], cores: u32, period_ms: u32) -> PipelineSimulation {
        let period_ns = f64::from(period_ms.max(1)) * 1e6;
        PipelineSimulation {
            controller: None,
            cores: f64::from(cores.max(1)),
            period_ns,
            targets,
            lines: Default::default(),
            now_ns: 0.0,
            next_period_ns: period_ns,
            next_arrival_ns: f64::INFINITY,
            random: 0x2545_f491_4f6c_dd1d,
            keeps_one: false,
            history: Vec::new(),
            answered: Vec::new(),
            period_answers: 0,
        }
    }

    /// The same pipeline with other random arrivals, which depend on the seed only.
    pub fn seeded(mut self, seed: u64) -> PipelineSimulation {
        self.random ^= seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // the state 0 of xorshift never changes
        self.random = self.random.max(1);
        self
    }

    /// The same pipeline with one of several threads of process reserved, that is kept from tasks that block
    /// there, as an engine does: so files that hang leave a thread for those in memory.
    pub fn keeping_one(self) -> PipelineSimulation {
        PipelineSimulation { keeps_one: true, ..self }
    }

    /// Lets tasks of this kind arrive for `seconds`. Tasks that wait at the end continue in the next run.
    pub fn run(&mut self, work: &SimulatedWork, seconds: f64) -> &mut PipelineSimulation {
        let end_ns = self.now_ns + seconds * 1e9;
        self.next_arrival_ns = self.now_ns + self.gap_ns(work.per_s);
        while self.now_ns < end_ns {
            self.settle();
            self.advance(end_ns);
            if self.now_ns >= self.next_arrival_ns {
                self.list(0, self.now_ns, *work);
                self.next_arrival_ns = self.now_ns + self.gap_ns(work.per_s);
            }
            if self.now_ns >= self.next_period_ns {
                self.decide();
                self.next_period_ns += self.period_ns;
            }
        }
        self.settle();
        self
    }

    /// The present number of threads of each phase.
    pub fn targets(&self) -> [u32; PHASES] {
        self.targets
    }

    /// The present number of tasks in the list of a phase.
    pub fn waiting(&self, phase: Phase) -> usize {
        self.lines[phase.index()].list.len()
    }

    /// The number of threads of each phase after each period.
    pub fn history(&self) -> &[[u32; PHASES]] {
        &self.history
    }

    /// The mean time to an answer, in milliseconds, of those complete in the last `seconds`; 0 if there are
    /// none.
    pub fn mean_ms(&self, seconds: f64) -> f64 {
        let since_ns = self.now_ns - seconds * 1e9;
        let late = self.answered.iter().filter(|(came_ns, took_ns)| came_ns + took_ns >= since_ns);
        mean(late.map(|(_, took_ns)| *took_ns)) / 1e6
    }

    /// The mean time to an answer, in milliseconds, of all tasks so far. A task that is not answered yet
    /// counts with the time it has taken so far, so a scheduler gains nothing by keeping it waiting.
    pub fn mean_of_all_ms(&self) -> f64 {
        self.mean_of_ms(0.0, f64::INFINITY)
    }

    /// Like [`mean_of_all_ms`](PipelineSimulation::mean_of_all_ms), of the tasks that arrived between these
    /// times, in seconds since the start.
    pub fn mean_of_ms(&self, from_s: f64, to_s: f64) -> f64 {
        let counts = |came_ns: f64| came_ns >= from_s * 1e9 && came_ns < to_s * 1e9;
        let tasks = self.lines.iter().flat_map(|line| line.list.iter().chain(&line.running));
        let open = tasks.filter(|task| counts(task.came_ns)).map(|task| self.now_ns - task.came_ns);
        let answered = self.answered.iter().filter(|(came_ns, _)| counts(*came_ns));
        mean(answered.map(|(_, took_ns)| *took_ns).chain(open)) / 1e6
    }

    /// A random number between 0, included, and 1.
    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A random time until the next arrival.
    fn gap_ns(&mut self, per_s: f64) -> f64 {
        let uniform = self.uniform();
        if per_s > 0.0 { -(1.0 - uniform).ln() / per_s * 1e9 } else { f64::INFINITY }
    }

    fn list(&mut self, phase: usize, came_ns: f64, work: SimulatedWork) {
        let (cpu_ns, blocked_ns) = (work.cpu_ns[phase] as f64, work.blocked_ns[phase] as f64);
        let is_job = phase == Phase::Process.index() && blocked_ns > 0.0;
        let task =
            SimulatedTask { work, came_ns, listed_ns: self.now_ns, cpu_ns, blocked_ns, is_job };
        self.lines[phase].list.push_back(task);
        self.lines[phase].arrivals += 1;
    }

    /// Ends tasks that are done and begins those that can begin, phase by phase, so that a task passes at
    /// once through phases in which it needs no time.
    fn settle(&mut self) {
        for phase in 0..PHASES {
            loop {
                let (line, now_ns) = (&mut self.lines[phase], self.now_ns);
                let before = line.completions;
                let mut done = Vec::new();
                line.running.retain(|task| {
                    let is_done = task.cpu_ns <= NOTHING_NS && task.blocked_ns <= NOTHING_NS;
                    if is_done {
                        done.push(*task);
                    }
                    !is_done
                });
                line.completions += done.len() as u64;
                let threads = self.targets[phase] as usize;
                let jobs = if self.keeps_one { threads.saturating_sub(1).max(1) } else { threads };
                while line.running.len() < threads
                    && let Some(task) = line.next(jobs)
                {
                    line.taken += 1;
                    line.waited_ns += now_ns - task.listed_ns;
                    line.running.push(task);
                }
                let has_ended = line.completions > before;
                for SimulatedTask { work, came_ns, .. } in done {
                    if phase + 1 < PHASES {
                        self.list(phase + 1, came_ns, work);
                    } else {
                        self.answered.push((came_ns, now_ns - came_ns));
                        self.period_answers += 1;
                    }
                }
                if !has_ended {
                    break;
                }
            }
        }
    }

    /// Advances to the next event.
    fn advance(&mut self, end_ns: f64) {
        let running = self.lines.iter().flat_map(|line| &line.running);
        let wanting = running.clone().filter(|task| task.cpu_ns > NOTHING_NS).count();
        let speed = (self.cores / wanting.max(1) as f64).min(1.0);
        let ends_ns = running.map(|task| match task.cpu_ns > NOTHING_NS {
            true => task.cpu_ns / speed,
            false => task.blocked_ns,
        });
        let next_ns = self.next_arrival_ns.min(self.next_period_ns).min(end_ns) - self.now_ns;
        let step_ns = ends_ns.fold(next_ns, f64::min).max(0.0);
        for line in &mut self.lines {
            for task in &mut line.running {
                line.busy_ns += step_ns;
                if task.cpu_ns > NOTHING_NS {
                    line.core_ns += step_ns * speed;
                    line.runnable_ns += step_ns * (1.0 - speed);
                    task.cpu_ns -= step_ns * speed;
                } else {
                    task.blocked_ns -= step_ns;
                }
            }
        }
        // exactly the end, without rounding errors
        self.now_ns =
            if step_ns == next_ns { self.now_ns + next_ns } else { self.now_ns + step_ns };
    }

    fn decide(&mut self) {
        let requests_per_s = self.period_answers as f64 * 1e9 / self.period_ns;
        self.period_answers = 0;
        let period_ns = self.period_ns as u64;
        let mut sample = Sample { requests_per_s, ..Sample::of(period_ns, self.targets) };
        for (phase, line) in sample.phases.iter_mut().zip(&mut self.lines) {
            let (busy, core) = (line.busy_ns as u64, line.core_ns as u64);
            phase.waiting = line.list.len() as u32;
            phase.busy = line.busy_ns / self.period_ns;
            phase.blocked = blocked_share(busy, core, line.runnable_ns as u64);
            phase.arrivals = line.arrivals;
            phase.completions = line.completions;
            phase.delay_ns = (line.waited_ns as u64).checked_div(line.taken).unwrap_or(0);
            let has_jobs = line.running.iter().chain(&line.list).any(|task| task.is_job);
            phase.kept = u32::from(self.keeps_one && has_jobs);
            *line = SimulatedPhase {
                list: std::mem::take(&mut line.list),
                running: std::mem::take(&mut line.running),
                ..SimulatedPhase::default()
            };
        }
        if let Some(controller) = &mut self.controller {
            self.targets = controller.step(&sample).targets;
        }
        self.history.push(self.targets);
    }
}

fn mean(times_ns: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum_ns) = (0u64, 0.0);
    for time_ns in times_ns {
        count += 1;
        sum_ns += time_ns;
    }
    sum_ns / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A single queue for one thread that computes: the other phases take no time.
    fn one_queue(per_s: f64) -> SimulatedWork {
        SimulatedWork { per_s, cpu_ns: [0, 0, 1_000_000, 0], blocked_ns: [0; PHASES] }
    }

    #[test]
    fn a_queue_is_as_long_as_theory_says() {
        // M/D/1: the mean wait is ρ·S / (2·(1 − ρ)); with ρ = 0.8 and S = 1 ms it is 2 ms, plus 1 ms of
        // service
        let mut simulation = PipelineSimulation::fixed([1; PHASES], 1, 20);
        simulation.run(&one_queue(800.0), 400.0);
        let mean_ms = simulation.mean_of_all_ms();
        assert!((mean_ms - 3.0).abs() < 0.15, "{mean_ms}");
    }

    #[test]
    fn threads_share_the_cores_and_blocked_ones_need_none() {
        // four threads of one core, each with the whole load of a saturated queue
        let mut simulation = PipelineSimulation::fixed([1, 1, 4, 1], 1, 20);
        simulation.run(&one_queue(2_000.0), 10.0);
        let answered = simulation.answered.len() as f64 / 10.0;
        assert!((answered - 1_000.0).abs() < 5.0, "{answered}");
        let blocked =
            SimulatedWork { cpu_ns: [0; PHASES], blocked_ns: [0, 0, 1_000_000, 0], per_s: 9_000.0 };
        let mut simulation = PipelineSimulation::fixed([1, 1, 4, 1], 1, 20);
        simulation.run(&blocked, 10.0);
        let answered = simulation.answered.len() as f64 / 10.0;
        assert!((answered - 4_000.0).abs() < 5.0, "{answered}");
    }

    #[test]
    fn alone_a_task_takes_its_own_time_and_waiting_ones_count() {
        let work = SimulatedWork {
            per_s: 1.0,
            cpu_ns: [1_000_000; PHASES],
            blocked_ns: [500_000; PHASES],
        };
        let mut simulation = PipelineSimulation::fixed([4; PHASES], 4, 20);
        simulation.run(&work, 60.0);
        let least_ms = work.least_ns() as f64 / 1e6;
        let mean_ms = simulation.mean_ms(60.0);
        assert!(mean_ms >= least_ms - 1e-6 && mean_ms < 1.01 * least_ms, "{mean_ms}");
        // no task is ever answered: the longer it waits the worse
        let stuck = SimulatedWork { per_s: 10.0, blocked_ns: [0, 0, 0, u64::MAX / 4], ..work };
        let mut simulation = PipelineSimulation::fixed([1; PHASES], 4, 20);
        let early_ms = simulation.run(&stuck, 5.0).mean_of_all_ms();
        let late_ms = simulation.run(&stuck, 15.0).mean_of_all_ms();
        assert!(simulation.answered.is_empty() && late_ms > 2.0 * early_ms);
    }

    #[test]
    fn the_same_seed_brings_the_same_arrivals() {
        let times = |seed| {
            let mut simulation = PipelineSimulation::fixed([1; PHASES], 1, 20).seeded(seed);
            simulation.run(&one_queue(500.0), 2.0).answered.clone()
        };
        assert_eq!(times(7), times(7));
        assert_ne!(times(7), times(8));
    }
}
