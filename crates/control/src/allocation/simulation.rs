//! Four phases, their lists, two cores and slow receivers in virtual time, steered by the controller.
//!
//! Tasks arrive at random (Poisson). In each phase a task takes CPU time, shared by all threads that
//! want a core, and then time in which its thread is blocked: a disk, a receiver.

use super::*;
use std::collections::VecDeque;

/// The steps of the simulation.
const STEP_NS: u64 = 100_000;
const CORES: u32 = 2;
const PERIOD_NS: u64 = 20 * MS;
const PERIODS_PER_S: usize = 50;

/// What the tasks of an interval are like.
#[derive(Clone, Copy, Debug)]
struct Work {
    per_s: f64,
    /// By phase, in nanoseconds.
    cpu_ns: [u64; PHASES],
    blocked_ns: [u64; PHASES],
}

const MS: u64 = 1_000_000;
const LIGHT: [u64; PHASES] = [100_000; PHASES];

/// 200 ms in each send: 20 threads are busy sending on average.
const SLOW_RECEIVERS: Work = Work { per_s: 100.0, cpu_ns: LIGHT, blocked_ns: [0, 0, 0, 200 * MS] };
/// 20 ms in each process: 6 threads wait for the disk on average.
const COLD_FILES: Work = Work { per_s: 300.0, cpu_ns: LIGHT, blocked_ns: [0, 0, 20 * MS, 0] };
/// 2.3 ms of CPU time each, of which 2 in process: 80 % of two cores.
const COMPUTING: Work =
    Work { per_s: 700.0, cpu_ns: [100_000, 100_000, 2 * MS, 100_000], blocked_ns: [0; PHASES] };
const NOTHING: Work = Work { per_s: 0.0, ..COMPUTING };

#[derive(Clone, Copy, Debug)]
struct Task {
    came_ns: u64,
    listed_ns: u64,
    cpu_ns: u64,
    blocked_ns: u64,
}

#[derive(Debug, Default)]
struct Line {
    list: VecDeque<Task>,
    running: Vec<Task>,
    busy_ns: u64,
    core_ns: u64,
    runnable_ns: u64,
    arrivals: u64,
    completions: u64,
    taken: u64,
    waited_ns: u64,
}

/// The system and what was seen of it.
struct Simulation {
    controller: Option<Controller>,
    targets: [u32; PHASES],
    lines: [Line; PHASES],
    now_ns: u64,
    random: u64,
    /// Targets after each period.
    history: Vec<[u32; PHASES]>,
    /// When each answer was complete, and how long it took.
    answered: Vec<(u64, u64)>,
    period_answers: u64,
}

impl Simulation {
    fn new(settings: Settings) -> Simulation {
        let controller = Controller::new(settings).unwrap();
        Simulation { controller: Some(controller), ..Simulation::fixed([1; PHASES]) }
    }

    /// Without a controller.
    fn fixed(targets: [u32; PHASES]) -> Simulation {
        Simulation {
            controller: None,
            targets,
            lines: Default::default(),
            now_ns: 0,
            random: 0x2545_f491_4f6c_dd1d,
            history: Vec::new(),
            answered: Vec::new(),
            period_answers: 0,
        }
    }

    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    fn run(&mut self, work: Work, seconds: u64) -> &mut Simulation {
        let end_ns = self.now_ns + seconds * 1_000 * MS;
        let period_ns = PERIOD_NS;
        while self.now_ns < end_ns {
            if self.uniform() < work.per_s * STEP_NS as f64 / 1e9 {
                self.list(0, self.now_ns, &work);
            }
            self.step(&work);
            self.now_ns += STEP_NS;
            if self.now_ns.is_multiple_of(period_ns) {
                self.decide(period_ns);
            }
        }
        self
    }

    fn list(&mut self, phase: usize, came_ns: u64, work: &Work) {
        let (cpu_ns, blocked_ns) = (work.cpu_ns[phase], work.blocked_ns[phase]);
        let task = Task { came_ns, listed_ns: self.now_ns, cpu_ns, blocked_ns };
        self.lines[phase].list.push_back(task);
        self.lines[phase].arrivals += 1;
    }

    fn step(&mut self, work: &Work) {
        for (line, target) in self.lines.iter_mut().zip(self.targets) {
            while line.running.len() < target as usize
                && let Some(task) = line.list.pop_front()
            {
                line.taken += 1;
                line.waited_ns += self.now_ns - task.listed_ns;
                line.running.push(task);
            }
        }
        let wanting = self.lines.iter().flat_map(|line| &line.running);
        let wanting = wanting.filter(|task| task.cpu_ns > 0).count().max(1);
        let speed = (f64::from(CORES) / wanting as f64).min(1.0);
        let core_ns = (STEP_NS as f64 * speed) as u64;
        for phase in 0..PHASES {
            let line = &mut self.lines[phase];
            let mut done = Vec::new();
            line.running.retain_mut(|task| {
                line.busy_ns += STEP_NS;
                if task.cpu_ns > 0 {
                    line.core_ns += core_ns;
                    line.runnable_ns += STEP_NS - core_ns;
                    task.cpu_ns = task.cpu_ns.saturating_sub(core_ns);
                } else {
                    task.blocked_ns = task.blocked_ns.saturating_sub(STEP_NS);
                }
                let is_done = task.cpu_ns == 0 && task.blocked_ns == 0;
                if is_done {
                    done.push(task.came_ns);
                }
                !is_done
            });
            line.completions += done.len() as u64;
            for came_ns in done {
                if phase + 1 < PHASES {
                    self.list(phase + 1, came_ns, work);
                } else {
                    self.answered.push((self.now_ns, self.now_ns - came_ns));
                    self.period_answers += 1;
                }
            }
        }
    }

    fn decide(&mut self, period_ns: u64) {
        let requests_per_s = self.period_answers as f64 * 1e9 / period_ns as f64;
        self.period_answers = 0;
        let mut sample = Sample { requests_per_s, ..Sample::of(period_ns, self.targets) };
        for (phase, line) in sample.phases.iter_mut().zip(&mut self.lines) {
            phase.waiting = line.list.len() as u32;
            phase.busy = line.busy_ns as f64 / period_ns as f64;
            phase.blocked = blocked_share(line.busy_ns, line.core_ns, line.runnable_ns);
            phase.arrivals = line.arrivals;
            phase.completions = line.completions;
            phase.delay_ns = line.waited_ns.checked_div(line.taken).unwrap_or(0);
            *line = Line {
                list: std::mem::take(&mut line.list),
                running: std::mem::take(&mut line.running),
                ..Line::default()
            };
        }
        if let Some(controller) = &mut self.controller {
            let decision = controller.step(&sample);
            assert!(decision.targets.iter().sum::<u32>() <= controller.settings().most);
            self.targets = decision.targets;
        }
        self.history.push(self.targets);
    }

    /// The mean time to an answer, in milliseconds, of those complete in the last `seconds`.
    fn mean_ms(&self, seconds: u64) -> f64 {
        let since_ns = self.now_ns - seconds * 1_000 * MS;
        let late = self.answered.iter().filter(|(at_ns, _)| *at_ns >= since_ns);
        let (mut count, mut sum_ns) = (0u64, 0);
        for (_, took_ns) in late {
            count += 1;
            sum_ns += took_ns;
        }
        sum_ns as f64 / count.max(1) as f64 / MS as f64
    }

    /// The least and the most threads of `phase` in the last `seconds`, and how often the direction of
    /// change was reversed.
    fn swing(&self, phase: Phase, seconds: usize) -> (u32, u32, usize) {
        let late = &self.history[self.history.len() - PERIODS_PER_S * seconds..];
        let counts: Vec<_> = late.iter().map(|targets| targets[phase.index()]).collect();
        let steps = counts.windows(2).map(|pair| pair[1].cmp(&pair[0]));
        let steps: Vec<_> = steps.filter(|step| step.is_ne()).collect();
        let reversals = steps.windows(2).filter(|pair| pair[0] != pair[1]).count();
        (*counts.iter().min().unwrap(), *counts.iter().max().unwrap(), reversals)
    }
}

fn settings(law: Law, most: u32) -> Settings {
    Settings { law, most, ..Settings::for_cores(CORES) }
}

const LAWS: [Law; 2] = [Law::Queue, Law::Delay];

/// The least mean time to an answer: nobody ever waits for a thread or a core.
fn least_ms(work: &Work) -> f64 {
    work.cpu_ns.iter().chain(&work.blocked_ns).sum::<u64>() as f64 / MS as f64
}

#[test]
fn counts_settle_where_nobody_waits() {
    for law in LAWS {
        for (work, phase) in [(SLOW_RECEIVERS, Phase::Send), (COLD_FILES, Phase::Process)] {
            let mut simulation = Simulation::new(settings(law, 40));
            simulation.run(work, 30);
            let mean_ms = simulation.mean_ms(20);
            assert!(mean_ms < 1.02 * least_ms(&work), "{law:?}, {phase:?}: {mean_ms}");
            let (least, most, reversals) = simulation.swing(phase, 20);
            assert!(most - least <= 7 && reversals <= 8, "{law:?}, {phase:?}: {least} to {most}");
        }
    }
}

#[test]
fn a_law_is_quick() {
    for (law, seconds) in [(Law::Queue, 3), (Law::Delay, 2)] {
        let mut simulation = Simulation::new(settings(law, 40));
        simulation.run(NOTHING, 5).run(SLOW_RECEIVERS, seconds);
        let sending = simulation.targets[Phase::Send.index()];
        assert!(sending >= 20, "{law:?}: {sending}");
        assert!(simulation.lines[3].list.is_empty(), "{law:?}");
    }
}

#[test]
fn a_phase_that_computes_never_has_more_threads_than_cores() {
    let overload = Work { per_s: 1_500.0, ..COMPUTING };
    for law in LAWS {
        for work in [COMPUTING, overload] {
            let mut simulation = Simulation::new(settings(law, 40));
            simulation.run(work, 10);
            let (_, most, reversals) = simulation.swing(Phase::Process, 10);
            assert_eq!((most, reversals), (CORES, 0), "{law:?}");
        }
        // Threads it has for another reason go when they turn out to compute.
        let mut simulation = Simulation::new(settings(law, 40));
        simulation.run(COLD_FILES, 5);
        assert!(simulation.targets[Phase::Process.index()] >= 6);
        simulation.run(overload, 10);
        assert_eq!(simulation.targets[Phase::Process.index()], CORES, "{law:?}");
    }
}

#[test]
fn at_low_load_everything_returns() {
    for law in LAWS {
        let initial = [1, 2, 3, 2];
        let mut simulation = Simulation::new(Settings { initial, ..settings(law, 40) });
        simulation.run(SLOW_RECEIVERS, 20);
        assert!(simulation.targets[3] > 20);
        simulation.run(NOTHING, 30);
        assert_eq!(simulation.targets, initial, "{law:?}");
    }
}

#[test]
fn when_the_load_shifts_threads_move() {
    // 11 threads, of which send takes 9 at the most: 8 are busy sending on average, and before that
    // 6 wait for the disk.
    let slow = Work { per_s: 40.0, ..SLOW_RECEIVERS };
    for law in LAWS {
        let mut simulation = Simulation::new(settings(law, 11));
        simulation.run(COLD_FILES, 10);
        assert!(simulation.targets[2] >= 7, "{law:?}: {:?}", simulation.targets);
        simulation.run(slow, 10);
        assert_eq!(simulation.targets, [1, 1, 1, 8], "{law:?}");
        simulation.run(COLD_FILES, 20);
        assert!(simulation.targets[2] >= 7, "{law:?}: {:?}", simulation.targets);
    }
}

#[test]
fn a_shifting_load_is_served_better_than_by_any_fixed_counts() {
    // Ten threads are busy sending on average: more than any fixed count here has for it. The laws
    // have as many threads in all as the largest of them.
    let slow = Work { per_s: 50.0, ..SLOW_RECEIVERS };
    let shift = |simulation: &mut Simulation| {
        for work in [COLD_FILES, slow, COMPUTING, slow, COLD_FILES] {
            simulation.run(work, 6);
        }
        // What has not been answered by now counts with the time it has taken so far.
        let now_ns = simulation.now_ns;
        let lines = &simulation.lines;
        let tasks = lines.iter().flat_map(|line| line.list.iter().chain(&line.running));
        let open: Vec<_> = tasks.map(|task| (now_ns, now_ns - task.came_ns)).collect();
        simulation.answered.extend(open);
        simulation.mean_ms(30)
    };
    let counts = [2, 4, 8];
    let fixed = counts.iter().flat_map(|process| counts.map(|send| [1, 1, *process, send]));
    let fixed: Vec<_> =
        fixed.map(|targets| (shift(&mut Simulation::fixed(targets)), targets)).collect();
    let best = fixed.iter().min_by(|one, other| one.0.total_cmp(&other.0)).unwrap();
    for law in LAWS {
        let mean_ms = shift(&mut Simulation::new(settings(law, 18)));
        assert!(mean_ms < best.0 / 2.0, "{law:?}: {mean_ms} ms, but {best:?}");
    }
}
