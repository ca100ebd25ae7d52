//! Compares learned limits with the best fixed ones, in virtual time. `cargo run -p forebay-control --example
//! concurrency 4 1000` uses 4 seeds from 1000 on. Constants were chosen with seeds from 1000; they are judged
//! with others.

use forebay_control::concurrency::UsefulConcurrency;
use forebay_control::concurrency::simulation::{
    FixedLimit, ServiceTimes, Shortage, SimulatedApplication, SimulatedRun, Simulation,
};

/// The part of the best goodput that counts as the best.
const BEST: f64 = 0.985;

fn main() {
    let number = |at: usize| std::env::args().nth(at).and_then(|text| text.parse().ok());
    let (seeds, first): (u64, u64) = (number(1).unwrap_or(4), number(2).unwrap_or(77_000));
    println!(
        "application, service times, ms, best fixed, its goodput, of it: least of the seeds, mean, p99 of it: mean, most, limit"
    );
    for (name, shortage) in [
        ("sleeping", Shortage::Workers),
        ("2 processors", Shortage::Processors(2.0)),
        ("lock 1/6", Shortage::Lock(1.0 / 6.0)),
        ("lock 1/24", Shortage::Lock(1.0 / 24.0)),
    ] {
        for workers in [4, 8, 64] {
            for times in [ServiceTimes::Equal, ServiceTimes::Even, ServiceTimes::Exponential] {
                for service_s in [0.005, 0.05, 0.5] {
                    let application = SimulatedApplication {
                        workers,
                        service_s,
                        times,
                        shortage,
                        failing: 0.0,
                        refuses: false,
                        others: 0,
                    };
                    row(name, application, first..first + seeds);
                }
            }
        }
    }
}

fn row(name: &str, application: SimulatedApplication, seeds: std::ops::Range<u64>) {
    let (best, fixed) = best_fixed(application);
    let learnt = |seed| {
        let mut limit = UsefulConcurrency::new(1, 1000, 0);
        let mut simulation = Simulation::new(application, &mut limit, high_each_s(&fixed), seed);
        simulation.run(10.0, 500);
        simulation.run(20.0, 3000)
    };
    let runs: Vec<SimulatedRun> = seeds.map(learnt).collect();
    let ratios: Vec<f64> = runs.iter().map(|run| run.goodput / fixed.goodput).collect();
    let p99: Vec<f64> = runs.iter().map(|run| run.high_p99_s / fixed.high_p99_s).collect();
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    println!(
        "{name} {}, {:?}, {}, {best}, {:.1}, {:.3}, {:.3}, {:.2}, {:.2}, {:?}",
        application.workers,
        application.times,
        application.service_s * 1000.0,
        fixed.goodput,
        ratios.iter().copied().fold(f64::MAX, f64::min),
        mean(&ratios),
        mean(&p99),
        p99.iter().copied().fold(0.0, f64::max),
        runs.iter().map(|run| run.limit.round() as u32).collect::<Vec<_>>(),
    );
}

/// The interval of high requests at which they are one in twenty of all.
fn high_each_s(run: &SimulatedRun) -> f64 {
    20.0 / run.goodput
}

/// The least fixed limit that gives nearly the best goodput.
fn best_fixed(application: SimulatedApplication) -> (u32, SimulatedRun) {
    let run = |limit: u32, each_s: f64| {
        let mut limit = FixedLimit(limit);
        let mut simulation = Simulation::new(application, &mut limit, each_s, 7);
        simulation.run(2.0, 200);
        simulation.run(20.0, 3000)
    };
    let limits = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80];
    let runs: Vec<_> = limits.iter().map(|limit| (*limit, run(*limit, 1.0).goodput)).collect();
    let most = runs.iter().map(|run| run.1).fold(0.0, f64::max);
    let (best, goodput) =
        *runs.iter().find(|run| run.1 >= BEST * most).expect("one is the most itself");
    (best, run(best, 20.0 / goodput))
}
