//! The search for the factors `a_k` and `b_k`, in the simulation of a pipeline with this machine's times.
//!
//! keta finds them "by some off-line experiment". On the real server each of hundreds of candidates would
//! have to run under a shifting load long enough to differ from its neighbour by more than the noise. In the
//! simulation all have the same arrivals, and nothing else runs.

use super::phases::PhaseTimes;
use forebay_control::allocation::{AllocationSettings, Law, PHASES, Phase};
use forebay_control::simulation::{PipelineSimulation, SimulatedWork};

/// The time that a thread of send waits for a slow receiver. It depends on clients, not on this machine: a
/// tenth of a megabyte more than the socket takes, at 4 Mbit/s.
const RECEIVER_NS: u64 = 200_000_000;
/// The number of send threads that slow receivers keep busy.
const RECEIVERS: f64 = 10.0;
/// The number of process threads that cold files keep busy, if the cores can do the rest of the work.
const READERS: f64 = 6.0;
/// The most requests per second: more would only make the search slow, since they do not wait.
const MOST_PER_S: f64 = 2_000.0;
/// The length of a phase of the load, seconds.
const SECONDS: f64 = 3.0;
/// The least part of the mean time to an answer that another factor must save to replace the present one.
const WORTH: f64 = 0.01;

/// The values that are tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub(super) per_waiting: &'static [f64],
    pub(super) per_rate: &'static [f64],
    /// The number of passes over all factors.
    pub(super) sweeps: u32,
}

pub(super) const FULL: Grid = Grid {
    per_waiting: &[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0],
    per_rate: &[0.0, 1e-5, 1e-4, 1e-3, 1e-2],
    sweeps: 2,
};
pub(super) const QUICK: Grid =
    Grid { per_waiting: &[0.02, 0.1, 0.5], per_rate: &[0.0, 1e-3], sweeps: 1 };

impl Grid {
    /// The number of pipelines that are simulated.
    pub(super) fn runs(&self) -> u32 {
        1 + self.sweeps * (PHASES * (self.per_waiting.len() + self.per_rate.len())) as u32
    }
}

/// The load that shifts between hot files, cold files and slow receivers.
pub(super) fn shifting(hot: PhaseTimes, cold: PhaseTimes, cores: u32) -> [SimulatedWork; 6] {
    let cores = f64::from(cores.max(1));
    // so that six tenths of the cores at most are used
    let most_per_s = |times: &PhaseTimes| {
        let cpu_ns: u64 = times.cpu_ns.iter().sum();
        (0.6 * cores * 1e9 / cpu_ns.max(1) as f64).min(MOST_PER_S)
    };
    let work = |times: PhaseTimes, per_s| SimulatedWork {
        per_s,
        cpu_ns: times.cpu_ns,
        blocked_ns: times.blocked_ns,
    };
    let longest_ns =
        Phase::ALL.map(|phase| cold.cpu_ns[phase.index()] + cold.blocked_ns[phase.index()]);
    let longest_ns = longest_ns.into_iter().max().unwrap_or(0).max(1) as f64;
    let mut receivers = hot;
    receivers.blocked_ns[Phase::Send.index()] += RECEIVER_NS;
    let hot = work(hot, most_per_s(&hot));
    let cold = work(cold, (READERS * 1e9 / longest_ns).min(most_per_s(&cold)));
    let slow = work(receivers, RECEIVERS * 1e9 / RECEIVER_NS as f64);
    [hot, cold, slow, hot, slow, cold]
}

/// The factors that were found, with the mean times to an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Factors {
    pub(super) per_waiting: [f64; PHASES],
    pub(super) per_rate: [f64; PHASES],
    /// The mean time with the factors that the search began with, ms.
    pub(super) before_ms: f64,
    /// The mean time with these factors, ms.
    pub(super) after_ms: f64,
}

/// Searches the factors with which `load` is answered soonest on average: one factor after the other, in
/// keta's order of phases, `a` before `b`. Calls `each` after every simulated pipeline.
///
/// # Errors
/// An error of `each` ends the search.
pub(super) fn search<E>(
    load: &[SimulatedWork],
    settings: &AllocationSettings,
    grid: Grid,
    mut each: impl FnMut() -> Result<(), E>,
) -> Result<Factors, E> {
    let mut best = AllocationSettings { law: Law::Queue, ..settings.clone() };
    let mut least_ms = mean_ms(load, &best);
    let before_ms = least_ms;
    each()?;
    for _ in 0..grid.sweeps {
        for (is_rate, values) in [(false, grid.per_waiting), (true, grid.per_rate)] {
            for phase in Phase::ALL.into_iter().rev() {
                let mut tried: Vec<(f64, AllocationSettings)> = Vec::new();
                for &value in values {
                    let mut settings = best.clone();
                    let factors =
                        if is_rate { &mut settings.per_rate } else { &mut settings.per_waiting };
                    factors[phase.index()] = value;
                    tried.push((mean_ms(load, &settings), settings));
                    each()?;
                }
                let winner = tried.into_iter().min_by(|one, other| one.0.total_cmp(&other.0));
                if let Some((ms, settings)) = winner
                    && ms < least_ms * (1.0 - WORTH)
                {
                    (least_ms, best) = (ms, settings);
                }
            }
        }
    }
    let AllocationSettings { per_waiting, per_rate, .. } = best;
    Ok(Factors { per_waiting, per_rate, before_ms, after_ms: least_ms })
}

/// The mean time to an answer under the whole load, with two sequences of arrivals.
pub(super) fn mean_ms(load: &[SimulatedWork], settings: &AllocationSettings) -> f64 {
    let one = |seed| {
        // settings that contradict one another are never chosen
        let Ok(simulation) = PipelineSimulation::steered(settings.clone()) else {
            return f64::INFINITY;
        };
        let mut simulation = simulation.seeded(seed);
        for work in load {
            simulation.run(work, SECONDS);
        }
        simulation.mean_of_all_ms()
    };
    (one(1) + one(2)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const HOT: PhaseTimes =
        PhaseTimes { cpu_ns: [0, 20_000, 20_000, 20_000], blocked_ns: [0; PHASES] };
    const COLD: PhaseTimes =
        PhaseTimes { cpu_ns: [0, 20_000, 60_000, 20_000], blocked_ns: [0, 0, 5_000_000, 0] };

    #[test]
    fn the_load_keeps_threads_busy_and_leaves_cores() {
        let load = shifting(HOT, COLD, 2);
        for work in &load {
            let cpu_s = work.cpu_ns.iter().sum::<u64>() as f64 * 1e-9 * work.per_s;
            assert!(cpu_s <= 0.6 * 2.0 + 1e-9 && work.per_s <= MOST_PER_S, "{work:?}");
        }
        let process = Phase::Process.index();
        let busy = load[1].per_s * (COLD.cpu_ns[process] + COLD.blocked_ns[process]) as f64 * 1e-9;
        assert!((busy - READERS).abs() < 1e-6, "{busy}");
        // times of zero, which were not measured, cause no division by zero
        assert!(
            shifting(PhaseTimes::default(), PhaseTimes::default(), 0).iter().all(|w| w.per_s > 0.0)
        );
    }

    #[test]
    fn slow_factors_are_left_behind_and_what_does_not_matter_stays() {
        let slow =
            AllocationSettings { per_waiting: [0.001; PHASES], ..AllocationSettings::for_cores(2) };
        let grid = Grid { per_waiting: &[0.001, 0.1], per_rate: &[0.0], sweeps: 1 };
        let mut runs = 0;
        let count = || {
            runs += 1;
            Ok::<(), Infallible>(())
        };
        let load = shifting(HOT, COLD, 2);
        let Ok(found) = search(&load[1..3], &slow, grid, count);
        assert_eq!(runs, grid.runs());
        assert_eq!(found.per_waiting[Phase::Send.index()], 0.1, "{found:?}");
        assert_eq!(found.per_waiting[Phase::Accept.index()], 0.001, "{found:?}");
        assert!(found.after_ms < found.before_ms * (1.0 - WORTH), "{found:?}");
    }

    #[test]
    fn most_of_what_wrong_factors_lose_is_recovered() {
        let good = AllocationSettings::for_cores(2);
        let wrong = AllocationSettings { per_waiting: [0.005; PHASES], ..good.clone() };
        let load = shifting(HOT, COLD, 2);
        let Ok(found) = search(&load, &wrong, QUICK, || Ok::<(), Infallible>(()));
        let good_ms = mean_ms(&load, &AllocationSettings { law: Law::Queue, ..good });
        let lost_ms = found.before_ms - good_ms;
        assert!(lost_ms > 0.1 * good_ms, "they lose nothing: {found:?}, {good_ms}");
        let recovered = (found.before_ms - found.after_ms) / lost_ms;
        assert!(recovered >= 0.8, "{recovered}: {found:?}, {good_ms}");
    }

    #[test]
    fn a_search_can_be_ended() {
        let load = shifting(HOT, COLD, 2);
        let ended = search(&load[..1], &AllocationSettings::for_cores(2), FULL, || Err("enough"));
        assert_eq!(ended, Err("enough"));
    }
}
