//! The laws in virtual time ([`crate::simulation`]): two cores, hot files, cold files and slow receivers.

use super::*;
use crate::simulation::{PipelineSimulation, SimulatedWork};

const CORES: u32 = 2;
const PERIODS_PER_S: usize = 50;

const MS: u64 = 1_000_000;
const LIGHT: [u64; PHASES] = [100_000; PHASES];

/// Answers that take 200 ms in send: 20 threads are busy sending on average.
const SLOW_RECEIVERS: SimulatedWork =
    SimulatedWork { per_s: 100.0, cpu_ns: LIGHT, blocked_ns: [0, 0, 0, 200 * MS] };
/// Requests that take 20 ms in process: 6 threads wait for the disk on average.
const COLD_FILES: SimulatedWork =
    SimulatedWork { per_s: 300.0, cpu_ns: LIGHT, blocked_ns: [0, 0, 20 * MS, 0] };
/// Requests of 2.3 ms of CPU time, of which 2 in process: 80 % of two cores.
const COMPUTING: SimulatedWork = SimulatedWork {
    per_s: 700.0,
    cpu_ns: [100_000, 100_000, 2 * MS, 100_000],
    blocked_ns: [0; PHASES],
};
const NOTHING: SimulatedWork = SimulatedWork { per_s: 0.0, ..COMPUTING };

/// A pipeline steered by a law.
fn steered(settings: AllocationSettings) -> PipelineSimulation {
    PipelineSimulation::steered(settings).unwrap()
}

/// The least and the most threads of `phase` in the last `seconds`, and how often the direction of
/// change was reversed.
fn swing(simulation: &PipelineSimulation, phase: Phase, seconds: usize) -> (u32, u32, usize) {
    let history = simulation.history();
    let late = &history[history.len() - PERIODS_PER_S * seconds..];
    let counts: Vec<_> = late.iter().map(|targets| targets[phase.index()]).collect();
    let steps = counts.windows(2).map(|pair| pair[1].cmp(&pair[0]));
    let steps: Vec<_> = steps.filter(|step| step.is_ne()).collect();
    let reversals = steps.windows(2).filter(|pair| pair[0] != pair[1]).count();
    (*counts.iter().min().unwrap(), *counts.iter().max().unwrap(), reversals)
}

fn settings(law: Law, most: u32) -> AllocationSettings {
    AllocationSettings { law, most, ..AllocationSettings::for_cores(CORES) }
}

const LAWS: [Law; 2] = [Law::Queue, Law::Delay];

#[test]
fn counts_settle_where_nobody_waits() {
    for law in LAWS {
        for (work, phase) in [(SLOW_RECEIVERS, Phase::Send), (COLD_FILES, Phase::Process)] {
            let mut simulation = steered(settings(law, 40));
            simulation.run(&work, 30.0);
            let mean_ms = simulation.mean_ms(20.0);
            assert!(mean_ms < 1.02 * work.least_ns() as f64 / 1e6, "{law:?}, {phase:?}: {mean_ms}");
            let (least, most, reversals) = swing(&simulation, phase, 20);
            assert!(most - least <= 7 && reversals <= 8, "{law:?}, {phase:?}: {least} to {most}");
        }
    }
}

#[test]
fn a_law_is_quick() {
    for (law, seconds) in [(Law::Queue, 3.0), (Law::Delay, 2.0)] {
        let mut simulation = steered(settings(law, 40));
        simulation.run(&NOTHING, 5.0).run(&SLOW_RECEIVERS, seconds);
        let sending = simulation.targets()[Phase::Send.index()];
        assert!(sending >= 20, "{law:?}: {sending}");
        assert!(simulation.waiting(Phase::Send) == 0, "{law:?}");
    }
}

#[test]
fn a_phase_that_computes_never_has_more_threads_than_cores() {
    let overload = SimulatedWork { per_s: 1_500.0, ..COMPUTING };
    for law in LAWS {
        for work in [COMPUTING, overload] {
            let mut simulation = steered(settings(law, 40));
            simulation.run(&work, 10.0);
            let (_, most, reversals) = swing(&simulation, Phase::Process, 10);
            assert_eq!((most, reversals), (CORES, 0), "{law:?}");
        }
        // threads that the phase has for another reason are given back when they only compute
        let mut simulation = steered(settings(law, 40));
        simulation.run(&COLD_FILES, 5.0);
        assert!(simulation.targets()[Phase::Process.index()] >= 6);
        simulation.run(&overload, 10.0);
        assert_eq!(simulation.targets()[Phase::Process.index()], CORES, "{law:?}");
    }
}

#[test]
fn at_low_load_everything_returns() {
    for law in LAWS {
        let initial = [1, 2, 3, 2];
        let mut simulation = steered(AllocationSettings { initial, ..settings(law, 40) });
        simulation.run(&SLOW_RECEIVERS, 20.0);
        assert!(simulation.targets()[3] > 20);
        simulation.run(&NOTHING, 30.0);
        assert_eq!(simulation.targets(), initial, "{law:?}");
    }
}

#[test]
fn when_the_load_shifts_threads_move() {
    // 11 threads, of which send takes at most 9: 8 are busy sending on average, and before that 6 wait for
    // the disk
    let slow = SimulatedWork { per_s: 40.0, ..SLOW_RECEIVERS };
    for law in LAWS {
        let mut simulation = steered(settings(law, 11));
        simulation.run(&COLD_FILES, 10.0);
        assert!(simulation.targets()[2] >= 7, "{law:?}: {:?}", simulation.targets());
        simulation.run(&slow, 10.0);
        assert_eq!(simulation.targets(), [1, 1, 1, 8], "{law:?}");
        simulation.run(&COLD_FILES, 20.0);
        assert!(simulation.targets()[2] >= 7, "{law:?}: {:?}", simulation.targets());
    }
}

#[test]
fn a_shifting_load_is_served_better_than_by_any_fixed_counts() {
    // ten threads are busy sending on average: more than any fixed allocation here has for it; the laws have
    // as many threads in all as the largest of these
    let slow = SimulatedWork { per_s: 50.0, ..SLOW_RECEIVERS };
    let shift = |simulation: &mut PipelineSimulation| {
        for work in [COLD_FILES, slow, COMPUTING, slow, COLD_FILES] {
            simulation.run(&work, 6.0);
        }
        // requests that are not answered by then count with the time they have taken so far
        simulation.mean_of_all_ms()
    };
    let counts = [2, 4, 8];
    let fixed = counts.iter().flat_map(|process| counts.map(|send| [1, 1, *process, send]));
    let fixed: Vec<_> = fixed
        .map(|targets| (shift(&mut PipelineSimulation::fixed(targets, CORES, 20)), targets))
        .collect();
    let best = fixed.iter().min_by(|one, other| one.0.total_cmp(&other.0)).unwrap();
    for law in LAWS {
        let mean_ms = shift(&mut steered(settings(law, 18)));
        assert!(mean_ms < best.0 / 2.0, "{law:?}: {mean_ms} ms, but {best:?}");
    }
}

/// The load of `make bench-shift`, with fewer hot requests, which would only make the test slow.
const SHIFT: [SimulatedWork; 3] = [
    SimulatedWork { per_s: 1_000.0, cpu_ns: [0, 40_000, 40_000, 60_000], blocked_ns: [0; PHASES] },
    SimulatedWork {
        per_s: 500.0,
        cpu_ns: [0, 10_000, 100_000, 30_000],
        blocked_ns: [0, 0, 10 * MS, 0],
    },
    SimulatedWork {
        per_s: 50.0,
        cpu_ns: [0, 10_000, 10_000, 500_000],
        blocked_ns: [0, 0, 0, 210 * MS],
    },
];
const SHIFT_S: f64 = 1.5;

/// Plays [`SHIFT`] twice on one core; returns the mean time over the whole, and in each of the six parts.
fn play_shift(simulation: PipelineSimulation) -> (f64, [f64; 6]) {
    let mut simulation = simulation.keeping_one();
    for turn in 0..6 {
        simulation.run(&SHIFT[turn % 3], SHIFT_S);
    }
    simulation.run(&NOTHING, 2.0);
    let phases = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    let phases = phases.map(|at| simulation.mean_of_ms(at * SHIFT_S, (at + 1.0) * SHIFT_S));
    (simulation.mean_of_all_ms(), phases)
}

#[test]
fn a_law_is_close_to_the_best_fixed_counts_in_each_phase_and_ahead_of_all_over_the_whole() {
    let counts = [1, 2, 4, 8];
    let fixed = counts.iter().flat_map(|process| counts.map(|send| [1, 1, *process, send]));
    let fixed: Vec<_> =
        fixed.map(|targets| play_shift(PipelineSimulation::fixed(targets, 1, 20))).collect();
    for law in LAWS {
        let settings = AllocationSettings { law, most: 18, ..AllocationSettings::for_cores(1) };
        let (whole_ms, phases) = play_shift(steered(settings));
        assert!(fixed.iter().all(|one| whole_ms < 0.9 * one.0), "{law:?}: {whole_ms}, {fixed:?}");
        for (at, ms) in phases.into_iter().enumerate() {
            let best_ms = fixed.iter().map(|one| one.1[at]).fold(f64::INFINITY, f64::min);
            assert!(ms <= 1.1 * best_ms, "{law:?}, phase {at}: {ms} ms, but {best_ms} ms");
        }
    }
}

#[test]
fn tasks_of_another_kind_get_their_threads_within_three_periods() {
    for law in LAWS {
        let settings = AllocationSettings { law, most: 18, ..AllocationSettings::for_cores(1) };
        let mut simulation = steered(settings).keeping_one();
        simulation.run(&SimulatedWork { per_s: 5_000.0, ..SHIFT[0] }, 3.0);
        assert_eq!(simulation.targets()[Phase::Process.index()], 1, "{law:?}");
        simulation.run(&SHIFT[1], 0.06);
        let process = simulation.targets()[Phase::Process.index()];
        assert!(process >= 6, "{law:?}: {process}");
    }
}
