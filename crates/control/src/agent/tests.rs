//! Agents in virtual time.

use super::simulation::{Load, Machine, Outcome, Rates, Simulation};
use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn class(name: &str, share: f64, target_ms: u64) -> Class {
    Class { name: name.to_owned(), share, target_ns: target_ms * MS }
}

fn machine(cores: u32, shares: &[f64]) -> Machine {
    Machine { cores, threads: cores, shares: shares.to_vec(), refusal_ns: 0, period_ns: 10 * MS }
}

fn windows(classes: Vec<Class>) -> Windows {
    Windows::new(windows::Settings::new(classes)).unwrap()
}

/// What a class got between two moments.
#[derive(Debug)]
struct Got {
    /// Processor time of answers, as a part of `cores`.
    goodput: f64,
    mean_wait_ms: f64,
    p99_wait_ms: f64,
    refused: f64,
}

fn got(outcomes: &[Outcome], rank: u8, from_s: f64, to_s: f64, cores: u32) -> Got {
    let within = |at_ns: f64| (from_s * 1e9..to_s * 1e9).contains(&at_ns);
    let done: Vec<_> =
        outcomes.iter().filter(|one| one.rank == rank && one.done_ns.is_some_and(within)).collect();
    let cpu_ns: f64 = done.iter().map(|one| one.cpu_ns).sum();
    let mut waits: Vec<_> = done.iter().map(|one| one.waited_ns / 1e6).collect();
    waits.sort_by(f64::total_cmp);
    let refused = outcomes
        .iter()
        .filter(|one| one.rank == rank && one.done_ns.is_none() && within(one.came_ns));
    Got {
        goodput: cpu_ns / ((to_s - from_s) * 1e9 * f64::from(cores)),
        mean_wait_ms: waits.iter().sum::<f64>() / waits.len().max(1) as f64,
        p99_wait_ms: waits.get(waits.len() * 99 / 100).copied().unwrap_or(0.0),
        refused: refused.count() as f64 / (to_s - from_s),
    }
}

/// One class at so many times what the machine can do, from an idle machine on.
fn flooded(cores: u32, cpu_us: u64, target_ms: u64, times: f64, seed: u64) -> Simulation<Windows> {
    let agent = windows(vec![class("only", 0.0, target_ms)]);
    let machine = Machine { refusal_ns: 5_000, ..machine(cores, &[0.0]) };
    let mut simulation = Simulation::new(machine, agent, seed).unwrap();
    let per_s = f64::from(cores) * 1e6 / cpu_us as f64 * times;
    simulation.run(&[Load::new(0, per_s, cpu_us * 1_000)], 10.0);
    simulation
}

#[test]
fn a_flood_costs_five_percent_at_most_and_waits_for_the_target() {
    for cores in [1, 2] {
        for cpu_us in [20_000, 5_000, 1_000] {
            let outcomes = flooded(cores, cpu_us, 20, 10.0, 3);
            let got = got(outcomes.outcomes(), 0, 1.0, 10.0, cores);
            assert!(got.goodput >= 0.95, "{cores} cores, {cpu_us} us: {got:?}");
            assert!((14.0..22.0).contains(&got.mean_wait_ms), "{cores}, {cpu_us}: {got:?}");
            assert!(got.p99_wait_ms < 41.0, "{cores} cores, {cpu_us} us: {got:?}");
        }
    }
}

#[test]
fn a_target_below_one_service_keeps_the_workers_busy() {
    for cores in [1, 2] {
        let outcomes = flooded(cores, 20_000, 5, 10.0, 4);
        let got = got(outcomes.outcomes(), 0, 1.0, 10.0, cores);
        assert!(got.goodput >= 0.99, "{cores} cores: {got:?}");
        assert!(got.p99_wait_ms <= 21.0, "{cores} cores: {got:?}");
    }
}

#[test]
fn rates_alone_lose_what_windows_keep() {
    let classes = vec![class("only", 0.0, 20)];
    let mut simulation =
        Simulation::new(machine(1, &[0.0]), Rates::new(classes, 0.01, 0.1), 3).unwrap();
    simulation.run(&[Load::new(0, 500.0, 20 * MS)], 10.0);
    let rates = got(simulation.outcomes(), 0, 1.0, 10.0, 1);
    let windows = got(flooded(1, 20_000, 20, 10.0, 3).outcomes(), 0, 1.0, 10.0, 1);
    assert!(rates.goodput < 0.95 && windows.goodput > 0.99, "{rates:?} {windows:?}");
}

#[test]
fn the_first_class_is_untouched_by_a_flood_of_the_others_and_floors_are_kept() {
    let shares = [0.0, 0.2, 0.05];
    let classes =
        vec![class("gold", 0.0, 20), class("standard", 0.2, 50), class("bulk", 0.05, 200)];
    for cores in [1, 2] {
        let capacity = f64::from(cores) * 50.0;
        let gold = Load::new(0, f64::from(cores) * 200.0, MS);
        let flood = |rank| Load::new(rank, 5.0 * capacity, 20 * MS);
        let mut simulation =
            Simulation::new(machine(cores, &shares), windows(classes.clone()), 5).unwrap();
        simulation.run(&[gold], 2.0).run(&[gold, flood(1), flood(2)], 10.0);
        let of = |rank| got(simulation.outcomes(), rank, 2.0, 12.0, cores);
        // what runs when it comes, and what has its floor, is all that it waits for
        assert!(of(0).refused == 0.0 && of(0).p99_wait_ms < 41.0, "{cores}: {:?}", of(0));
        assert!((35.0..60.0).contains(&of(1).mean_wait_ms), "{cores}: {:?}", of(1));
        assert!((0.045..0.06).contains(&of(2).goodput), "{cores}: {:?}", of(2));
        let sum: f64 = (0..3).map(|rank| of(rank).goodput).sum();
        assert!(sum > 0.99, "{cores}: {sum}");
        // a first class that wants everything leaves the others their shares
        let all = Load::new(0, 10.0 * capacity * 20.0, MS);
        simulation.run(&[all, flood(1), flood(2)], 10.0);
        let of = |rank| got(simulation.outcomes(), rank, 13.0, 22.0, cores);
        assert!((0.18..0.22).contains(&of(1).goodput), "{cores}: {:?}", of(1));
        assert!((0.045..0.06).contains(&of(2).goodput), "{cores}: {:?}", of(2));
        assert!(of(0).goodput > 0.7 && of(0).mean_wait_ms < 45.0, "{cores}: {:?}", of(0));
    }
}

#[test]
fn admission_settles_within_a_tenth_of_a_second_after_a_step() {
    for (cores, cpu_us) in [(1, 20_000), (2, 20_000), (2, 5_000), (2, 1_000)] {
        for times in [1.4, 2.0, 10.0] {
            let agent = windows(vec![class("only", 0.0, 20)]);
            let mut simulation = Simulation::new(machine(cores, &[0.0]), agent, 11).unwrap();
            let capacity = f64::from(cores) * 1e6 / cpu_us as f64;
            let load =
                |times| [Load { is_even: true, ..Load::new(0, times * capacity, cpu_us * 1_000) }];
            simulation.run(&load(0.5), 3.0).run(&load(times), 3.0).run(&load(0.5), 3.0);
            let admitted = |from_s: f64, to_s: f64| {
                let came = |one: &&Outcome| (from_s * 1e9..to_s * 1e9).contains(&one.came_ns);
                let all = simulation.outcomes().iter().filter(came);
                all.filter(|one| one.done_ns.is_some()).count() as f64 / (to_s - from_s)
            };
            // one request more or less in an interval is no movement
            let within_s = 0.2f64.max(8.0 / capacity);
            let mut from_s = 3.1;
            while from_s + within_s < 6.0 {
                let ratio = admitted(from_s, from_s + within_s) / capacity;
                let one = 2.0 / (within_s * capacity);
                assert!(
                    (0.9 - one..1.05 + one).contains(&ratio),
                    "{cores} cores, {cpu_us} us, {times}: {ratio} at {from_s}"
                );
                from_s += within_s;
            }
            let refused = |from_s, to_s| got(simulation.outcomes(), 0, from_s, to_s, cores).refused;
            assert_eq!(refused(0.0, 3.0), 0.0);
            assert_eq!(refused(6.1, 9.0), 0.0, "{cores} cores, {cpu_us} us, {times}");
        }
    }
}

fn any_seen() -> impl Strategy<Value = Seen> {
    let number = || prop_oneof![Just(0u64), 0u64..200, any::<u64>()];
    (number(), number(), number(), number(), number(), any::<u32>(), number()).prop_map(
        |(offered, refused, finished, cpu_ns, busy_ns, unfinished, delay_ns)| Seen {
            offered,
            refused,
            finished,
            cpu_ns,
            busy_ns,
            unfinished,
            delay_ns,
        },
    )
}

proptest! {
    /// Whatever is said to have been seen, a window lets at least one in, and after a second of
    /// nothing it is back at a size that holds a burst.
    #[test]
    fn no_observation_closes_a_window_for_good(
        ticks in prop::collection::vec((prop::collection::vec(any_seen(), 0..4), 0u64..50 * MS), 0..60),
        cores: u32,
        threads: u32,
    ) {
        let classes =
            vec![class("gold", 0.0, 20), class("standard", 0.2, 50), class("bulk", 0.05, 200)];
        let mut agent = windows(classes);
        let mut now_ns = 0u64;
        for (seen, elapsed_ns) in ticks {
            now_ns += elapsed_ns;
            let limits = agent.tick(&Observation { now_ns, cores, threads, classes: &seen });
            prop_assert!(limits.iter().all(|limits| limits.most.is_none_or(|most| most >= 1)));
            prop_assert!(limits.iter().all(|limits| limits.per_s.is_none_or(f64::is_finite)));
            prop_assert!(limits.iter().all(|limits| (1..=60).contains(&limits.retry_after_s)));
        }
        let quiet = vec![Seen { finished: 1, cpu_ns: MS, busy_ns: MS, ..Seen::default() }; 3];
        let mut limits = Vec::new();
        for _ in 0..1_000 {
            now_ns += 10 * MS;
            limits = agent.tick(&Observation { now_ns, cores: 2, threads: 2, classes: &quiet }).to_vec();
        }
        prop_assert!(limits.iter().all(|limits| limits.most.unwrap() >= 100), "{limits:?}");
    }

    /// What was admitted is answered, and the count of what is unfinished returns to nothing.
    #[test]
    fn every_admission_is_released(seed: u64, times in prop::collection::vec(0.0f64..12.0, 1..6)) {
        let classes = vec![class("gold", 0.0, 20), class("bulk", 0.1, 50)];
        let mut simulation = Simulation::new(machine(2, &[0.0, 0.1]), windows(classes), seed).unwrap();
        for times in times {
            let loads = [Load::new(0, times * 30.0, 20 * MS), Load::new(1, times * 200.0, 5 * MS)];
            simulation.run(&loads, 0.3);
        }
        simulation.run(&[], 30.0);
        prop_assert_eq!(simulation.unfinished(), &[0, 0]);
    }
}
