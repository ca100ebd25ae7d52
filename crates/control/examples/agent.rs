//! Prints what agents do in floods, in virtual time: the tables of ADR 0013.
//!
//! `cargo run --release -p forebay-control --example agent [rates]`

use forebay_control::agent::simulation::{AgentSimulation, Machine, Outcome, Rates, SimulatedLoad};
use forebay_control::agent::{Agent, AgentClass, Feedback, FeedbackSettings};

const MS: u64 = 1_000_000;
/// The time of a refusal: the CPU time of a hit of 1 KB.
const REFUSAL_NS: u64 = 5_000;
const SEEDS: u64 = 3;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("rates") => rates(),
        _ => table(),
    }
}

fn class(name: &str, share: f64, target_ms: u64) -> AgentClass {
    AgentClass { name: name.to_owned(), share, target_ns: target_ms * MS }
}

/// Goodput as a part of the cores' time, and mean and 99th percentile of the waits in ms, over ten
/// seconds after the first two, as means over seeds.
fn flood<A: Agent>(cores: u32, cpu_us: u64, times: f64, make: impl Fn() -> A) -> (f64, f64, f64) {
    let mut sums = (0.0, 0.0, 0.0);
    for seed in 0..SEEDS {
        let machine = Machine {
            cores,
            threads: cores,
            shares: vec![0.0],
            refusal_ns: REFUSAL_NS,
            period_ns: 10 * MS,
        };
        let Ok(mut simulation) = AgentSimulation::new(machine, make(), seed) else { continue };
        let per_s = f64::from(cores) * 1e6 / cpu_us as f64 * times;
        simulation.run(&[SimulatedLoad::new(0, per_s, cpu_us * 1_000)], 12.0);
        let late = |one: &&Outcome| one.done_ns.is_some_and(|done_ns| done_ns >= 2e9);
        let done: Vec<_> = simulation.outcomes().iter().filter(late).collect();
        let mut waits: Vec<_> = done.iter().map(|one| one.waited_ns / 1e6).collect();
        waits.sort_by(f64::total_cmp);
        let cpu_ns: f64 = done.iter().map(|one| one.cpu_ns).sum();
        sums.0 += cpu_ns / (10e9 * f64::from(cores));
        sums.1 += waits.iter().sum::<f64>() / waits.len().max(1) as f64;
        sums.2 += waits.get(waits.len() * 99 / 100).copied().unwrap_or_default();
    }
    let count = SEEDS as f64;
    (sums.0 / count, sums.1 / count, sums.2 / count)
}

fn table() {
    println!(
        "| cores | request | target | offered | windows: goodput, wait, p99 | rates: goodput, wait, p99 |"
    );
    println!("|---|---|---|---|---|---|");
    for (cores, cpu_us, target_ms) in [
        (1, 20_000, 20),
        (1, 20_000, 100),
        (2, 20_000, 20),
        (2, 20_000, 5),
        (2, 5_000, 20),
        (2, 1_000, 20),
        (2, 200, 20),
    ] {
        for times in [1.0, 1.4, 2.0, 10.0] {
            let classes = || vec![class("only", 0.0, target_ms)];
            let windows = flood(cores, cpu_us, times, || {
                Feedback::new(FeedbackSettings::new(classes())).expect("settings of this program")
            });
            let rates = flood(cores, cpu_us, times, || Rates::new(classes(), 0.01, 0.02));
            let cell = |(goodput, mean, p99): (f64, f64, f64)| {
                format!("{:.1} %, {mean:.1}, {p99:.1} ms", goodput * 100.0)
            };
            println!(
                "| {cores} | {} ms | {target_ms} ms | {times} | {} | {} |",
                cpu_us as f64 / 1e3,
                cell(windows),
                cell(rates)
            );
        }
    }
}

/// Finds the constants that suit rates best.
fn rates() {
    for growth in [0.001, 0.002, 0.005, 0.01, 0.02, 0.05] {
        for cut in [0.005, 0.02, 0.05, 0.1, 0.3] {
            let classes = || vec![class("only", 0.0, 20)];
            let at = |times| flood(1, 20_000, times, || Rates::new(classes(), growth, cut));
            let (some, much) = (at(1.4), at(10.0));
            println!(
                "a {growth} b {cut}: 1.4x {:.3} {:.1} {:.1}, 10x {:.3} {:.1} {:.1}",
                some.0, some.1, some.2, much.0, much.1, much.2
            );
        }
    }
}
