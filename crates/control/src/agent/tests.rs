//! Agents in virtual time.

use super::simulation::{AgentSimulation, Machine, Outcome, Rates, SimulatedLoad};
use super::*;
use crate::level::{Cause, Level};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn class(name: &str, share: f64, target_ms: u64) -> AgentClass {
    AgentClass { name: name.to_owned(), share, target_ns: target_ms * MS }
}

fn machine(cores: u32, shares: &[f64]) -> Machine {
    Machine { cores, threads: cores, shares: shares.to_vec(), refusal_ns: 0, period_ns: 10 * MS }
}

fn feedback(classes: Vec<AgentClass>) -> Feedback {
    Feedback::new(FeedbackSettings::new(classes)).unwrap()
}

/// What a class achieved between two moments.
#[derive(Debug)]
struct Got {
    /// The processor time of answers, as a part of `cores`.
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

/// One class with `times` the load that the machine can do, from an idle machine on.
fn flooded(
    cores: u32,
    cpu_us: u64,
    target_ms: u64,
    times: f64,
    seed: u64,
) -> AgentSimulation<Feedback> {
    let agent = feedback(vec![class("only", 0.0, target_ms)]);
    let machine = Machine { refusal_ns: 5_000, ..machine(cores, &[0.0]) };
    let mut simulation = AgentSimulation::new(machine, agent, seed).unwrap();
    let per_s = f64::from(cores) * 1e6 / cpu_us as f64 * times;
    simulation.run(&[SimulatedLoad::new(0, per_s, cpu_us * 1_000)], 10.0);
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
fn a_flood_of_something_unknown_is_bounded_from_the_start() {
    for cores in [1, 2] {
        let simulation = flooded(cores, 20_000, 20, 10.0, 12);
        let first = got(simulation.outcomes(), 0, 0.0, 1.0, cores);
        assert!(first.goodput > 0.95 && first.p99_wait_ms < 500.0, "{cores}: {first:?}");
        let then = got(simulation.outcomes(), 0, 1.0, 2.0, cores);
        assert!(then.p99_wait_ms < 41.0, "{cores}: {then:?}");
    }
}

#[test]
fn rates_alone_lose_what_windows_keep() {
    // with the constants that suit rates best: examples/agent.rs
    let agent = Rates::new(vec![class("only", 0.0, 20)], 0.01, 0.02);
    let mut simulation = AgentSimulation::new(machine(1, &[0.0]), agent, 3).unwrap();
    simulation.run(&[SimulatedLoad::new(0, 500.0, 20 * MS)], 10.0);
    let rates = got(simulation.outcomes(), 0, 1.0, 10.0, 1);
    let windows = got(flooded(1, 20_000, 20, 10.0, 3).outcomes(), 0, 1.0, 10.0, 1);
    assert!(windows.goodput > 0.99 && rates.goodput < 0.97, "{rates:?} {windows:?}");
    assert!(rates.p99_wait_ms > windows.p99_wait_ms, "{rates:?} {windows:?}");
}

#[test]
fn the_first_class_is_untouched_by_a_flood_of_the_others_and_floors_are_kept() {
    let shares = [0.0, 0.2, 0.05];
    let classes =
        vec![class("gold", 0.0, 20), class("standard", 0.2, 50), class("bulk", 0.05, 200)];
    for cores in [1, 2] {
        let capacity = f64::from(cores) * 50.0;
        let gold = SimulatedLoad::new(0, f64::from(cores) * 200.0, MS);
        let flood = |rank| SimulatedLoad::new(rank, 5.0 * capacity, 20 * MS);
        let mut simulation =
            AgentSimulation::new(machine(cores, &shares), feedback(classes.clone()), 5).unwrap();
        simulation.run(&[gold], 2.0).run(&[gold, flood(1), flood(2)], 10.0);
        let of = |rank| got(simulation.outcomes(), rank, 2.0, 12.0, cores);
        // it waits only for what runs when it comes, and for classes with a floor
        assert!(of(0).refused == 0.0 && of(0).p99_wait_ms < 41.0, "{cores}: {:?}", of(0));
        assert!((35.0..60.0).contains(&of(1).mean_wait_ms), "{cores}: {:?}", of(1));
        assert!((0.045..0.06).contains(&of(2).goodput), "{cores}: {:?}", of(2));
        let sum: f64 = (0..3).map(|rank| of(rank).goodput).sum();
        assert!(sum > 0.99, "{cores}: {sum}");
        // the highest class wants everything, but the others get their shares
        let all = SimulatedLoad::new(0, 10.0 * capacity * 20.0, MS);
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
            let agent = feedback(vec![class("only", 0.0, 20)]);
            let mut simulation = AgentSimulation::new(machine(cores, &[0.0]), agent, 11).unwrap();
            let capacity = f64::from(cores) * 1e6 / cpu_us as f64;
            let load = |times| {
                [SimulatedLoad {
                    is_even: true,
                    ..SimulatedLoad::new(0, times * capacity, cpu_us * 1_000)
                }]
            };
            simulation.run(&load(0.5), 3.0).run(&load(times), 3.0).run(&load(0.5), 3.0);
            let admitted = |from_s: f64, to_s: f64| {
                let came = |one: &&Outcome| (from_s * 1e9..to_s * 1e9).contains(&one.came_ns);
                let all = simulation.outcomes().iter().filter(came);
                all.filter(|one| one.done_ns.is_some()).count() as f64 / (to_s - from_s)
            };
            // a difference of one request in an interval does not count as a movement
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
    let work = (number(), number(), number(), number(), number(), number());
    let now = (any::<u32>(), any::<u32>());
    (work, now, number(), number(), number()).prop_map(
        |(work, (unfinished, running), connections, connections_refused, queued_ns)| {
            let (offered, refused, finished, cpu_ns, busy_ns, delay_ns) = work;
            Seen {
                offered,
                refused,
                finished,
                cpu_ns,
                busy_ns,
                unfinished,
                running,
                delay_ns,
                connections,
                connections_refused,
                queued_ns,
            }
        },
    )
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![Just(f64::NAN), Just(f64::INFINITY), -1.0f64..1.0, any::<f64>()]
}

/// Classes, lag, time of refusals, and length of the period.
fn any_period() -> impl Strategy<Value = (Vec<Seen>, u64, f64, u64)> {
    let lag_ns = prop_oneof![Just(0u64), Just(100 * MS), any::<u64>()];
    (prop::collection::vec(any_seen(), 0..5), lag_ns, any_number(), 0u64..2_000 * MS)
}

fn is_sound(limits: &Limits) -> bool {
    limits.most.is_none_or(|most| most >= 1)
        && limits.per_s.is_none()
        && (1..=60).contains(&limits.retry_after_s)
        && limits.connections_per_s.is_none_or(|rate| (1.0..=1e9).contains(&rate))
}

proptest! {
    /// Whatever the measurements: every class is let in a little, no rate is odd, and after a while
    /// with little to do nothing is limited except by windows that hold a burst.
    #[test]
    fn no_observation_closes_a_class_for_good(
        periods in prop::collection::vec(any_period(), 0..60),
        cores: u32,
        threads: u32,
    ) {
        let classes =
            vec![class("gold", 0.0, 20), class("standard", 0.2, 50), class("bulk", 0.05, 200)];
        let mut agent = Feedback::new(FeedbackSettings::new(classes)).unwrap();
        let mut now_ns = 0u64;
        for (classes, lag_ns, refusing, elapsed_ns) in &periods {
            now_ns += elapsed_ns;
            let (lag_ns, refusing) = (*lag_ns, *refusing);
            let seen =
                Observation { now_ns, cores, threads, classes, rules: &[], lag_ns, refusing, applications: None };
            let decision = agent.tick(&seen);
            prop_assert!(decision.limits.iter().all(is_sound), "{decision:?}");
        }
        let quiet = [Seen { offered: 1, finished: 1, cpu_ns: MS, busy_ns: MS, ..Seen::default() }; 3];
        let seen = Observation { cores: 8, threads: 8, classes: &quiet, ..Observation::default() };
        for _ in 0..2_000 {
            now_ns += 10 * MS;
            agent.tick(&Observation { now_ns, ..seen });
        }
        let decision = agent.tick(&Observation { now_ns, ..seen });
        prop_assert_eq!((decision.level, decision.cause), (Level::Normal, Cause::None));
        prop_assert!(decision.limits.iter().all(|limits| limits.most.unwrap() >= 100));
        prop_assert!(decision.limits.iter().all(|limits| limits.connections_per_s.is_none()));
        prop_assert!(agent.history().records().len() <= history::RECORDS);
    }

    /// Admitted requests are answered, and the count of unfinished ones returns to zero.
    #[test]
    fn every_admission_is_released(seed: u64, times in prop::collection::vec(0.0f64..12.0, 1..6)) {
        let classes = vec![class("gold", 0.0, 20), class("bulk", 0.1, 50)];
        let mut simulation = AgentSimulation::new(machine(2, &[0.0, 0.1]), feedback(classes), seed).unwrap();
        for times in times {
            let loads = [SimulatedLoad::new(0, times * 30.0, 20 * MS), SimulatedLoad::new(1, times * 200.0, 5 * MS)];
            simulation.run(&loads, 0.3);
        }
        simulation.run(&[], 30.0);
        prop_assert_eq!(simulation.unfinished(), &[0, 0]);
    }
}

#[test]
fn each_decision_is_kept_with_what_followed() {
    let mut simulation = flooded(1, 20_000, 20, 10.0, 5);
    let records: Vec<_> = simulation.agent.history().records().cloned().collect();
    assert!((95..=105).contains(&records.len()), "{}", records.len());
    let late = &records[80];
    assert_eq!((late.level, late.cause.name()), (Level::ClassOrder, "load"));
    assert_eq!(late.classes[0].most, Some(2));
    assert!((85.0..115.0).contains(&(late.lasted_ns as f64 / 1e6)), "{late:?}");
    assert!((20..90).contains(&late.classes[0].offered) && late.classes[0].refused > 0, "{late:?}");
    assert!((7.0..13.0).contains(&late.load), "{late:?}");
    simulation.run(&[], 70.0);
    let history = simulation.agent.history();
    assert_eq!(history.records().len(), history::RECORDS);
    assert_eq!(history.records().next_back().unwrap().level, Level::Normal);
}

#[test]
fn other_classes_leave_what_was_learned() {
    let before = flooded(1, 20_000, 20, 10.0, 6).agent;
    let classes = vec![class("new", 0.0, 5), class("only", 0.1, 20)];
    let mut after = before.replace(FeedbackSettings::new(classes)).unwrap();
    let seen = [Seen::default(), Seen { unfinished: 2, ..Seen::default() }];
    let (now_ns, cores, threads, classes) = (10_010 * MS, 1, 1, &seen[..]);
    let seen = Observation { now_ns, cores, threads, classes, ..Observation::default() };
    let decision = after.tick(&seen);
    assert_eq!(decision.level, Level::ClassOrder);
    assert_eq!(decision.limits[1].most, Some(2));
    assert!(decision.limits[0].most.unwrap() > 10, "{decision:?}");
    assert!(after.history().records().len() > 90);
}

#[test]
fn settings_that_make_no_sense_are_errors() {
    let error = |settings: FeedbackSettings| Feedback::new(settings).unwrap_err().to_string();
    let settings = FeedbackSettings::new;
    assert_eq!(error(settings(vec![])), "an agent needs at least one class");
    let text = "the share 1.5 of class a must lie between 0 and 1";
    assert_eq!(error(settings(vec![class("a", 1.5, 20)])), text);
    let text = "the target delay of class a must be above 0";
    assert_eq!(error(settings(vec![class("a", 0.5, 0)])), text);
    let odd = FeedbackSettings { refusing: f64::NAN, ..settings(vec![class("a", 0.5, 1)]) };
    assert_eq!(error(odd), "refusing must be above 0 and at most 1, not NaN");
}

#[test]
fn threads_beyond_the_cores_do_not_hide_a_queue() {
    // 32 threads on two cores: nothing ever waits for a thread, but all wait for a core
    let machine = Machine { threads: 32, ..machine(2, &[0.0]) };
    let mut simulation =
        AgentSimulation::new(machine, feedback(vec![class("only", 0.0, 20)]), 8).unwrap();
    simulation.run(&[SimulatedLoad::new(0, 1_000.0, 20 * MS)], 10.0);
    let got = got(simulation.outcomes(), 0, 1.0, 10.0, 2);
    assert!(got.goodput > 0.98 && got.mean_wait_ms < 30.0, "{got:?}");
}

/// An agent that lets everything in.
struct Open(AgentDecision);

impl Agent for Open {
    fn tick(&mut self, seen: &Observation<'_>) -> &AgentDecision {
        self.0.limits.resize(seen.classes.len(), Limits::default());
        &self.0
    }
}

#[test]
fn threads_that_wait_for_a_disk_are_all_used() {
    // 1 ms of a core, 9 ms of a disk: 16 threads can do 1,600 per second, two cores 2,000
    let load = SimulatedLoad { blocked_ns: 9 * MS, ..SimulatedLoad::new(0, 16_000.0, MS) };
    fn run(agent: impl Agent, load: SimulatedLoad, seed: u64) -> Got {
        let machine = Machine { threads: 16, ..machine(2, &[0.0]) };
        let mut simulation = AgentSimulation::new(machine, agent, seed).unwrap();
        simulation.run(&[load], 5.0);
        got(simulation.outcomes(), 0, 1.0, 5.0, 2)
    }
    // how well cores and disk overlap depends on chance
    const SEEDS: u32 = 12;
    let (mut goodput, mut open) = (0.0, 0.0);
    for seed in 1..=u64::from(SEEDS) {
        let got = run(feedback(vec![class("only", 0.0, 20)]), load, seed);
        assert!(got.goodput > 0.7 && (10.0..30.0).contains(&got.mean_wait_ms), "{got:?}");
        goodput += got.goodput / f64::from(SEEDS);
        open += run(Open(AgentDecision::default()), load, seed).goodput / f64::from(SEEDS);
    }
    assert!(goodput > 0.74 && goodput > open, "{goodput}, open {open}");
}

#[test]
fn the_lowest_of_three_classes_that_want_all_has_its_turns_and_waits_for_them() {
    let shares = [0.0, 0.2, 0.05];
    let names = ["gold", "standard", "bulk"];
    for (cores, has_cheap) in [(1, false), (1, true), (2, false), (2, true)] {
        let classes = names.iter().zip(shares).map(|(name, share)| class(name, share, 50));
        let agent = feedback(classes.collect());
        let mut simulation = AgentSimulation::new(machine(cores, &shares), agent, 7).unwrap();
        // a few cheap requests of the lowest class, like health checks
        let cheap = SimulatedLoad {
            is_even: true,
            ..SimulatedLoad::new(2, f64::from(has_cheap) * 2.0, 1_000)
        };
        let capacity = f64::from(cores) * 200.0;
        let flood = [0, 1, 2].map(|rank| SimulatedLoad::new(rank, 3.0 * capacity, 5 * MS));
        simulation.run(&[cheap], 1.0).run(&flood, 12.0);
        let case = format!("{cores} cores, cheap: {has_cheap}");
        let longest = simulation.outcomes().iter().filter(|one| one.rank == 2);
        let longest_ms = longest.map(|one| one.waited_ns / 1e6).fold(0.0, f64::max);
        assert!(longest_ms < 700.0, "{case}: {longest_ms} ms");
        let bulk = got(simulation.outcomes(), 2, 3.0, 13.0, cores);
        let per_s = bulk.goodput * capacity;
        assert!((0.97..=1.01).contains(&(per_s / (0.05 * capacity))), "{case}: {per_s}/s {bulk:?}");
        // its turn comes every 100 ms, whatever its target
        assert!(bulk.mean_wait_ms < 100.0 && bulk.p99_wait_ms < 105.0, "{case}: {bulk:?}");
        let standard = got(simulation.outcomes(), 1, 3.0, 13.0, cores);
        assert!((40.0..60.0).contains(&standard.mean_wait_ms), "{case}: {standard:?}");
    }
}

/// `per_s` requests per second, at even intervals.
fn even(per_s: f64, cpu_ns: u64) -> [SimulatedLoad; 1] {
    [SimulatedLoad { is_even: true, ..SimulatedLoad::new(0, per_s, cpu_ns) }]
}

#[test]
fn a_job_that_runs_on_after_a_wait_leaves_the_free_places_to_others() {
    let agent = feedback(vec![class("only", 0.0, 20)]);
    let mut simulation = AgentSimulation::new(machine(4, &[0.0]), agent, 13).unwrap();
    // four of 300 ms, and after them one that runs for 10 s
    simulation.run(&even(1_000.0, 300 * MS), 0.0045).run(&even(1_000.0, 10_000 * MS), 0.0015);
    simulation.run(&[], 0.394);
    assert_eq!(simulation.unfinished(), &[1]);
    // as many requests at once as there are places beside it
    simulation.run(&even(1_000.0, 5 * MS), 0.0035).run(&[], 0.1);
    let answered = simulation.outcomes().iter().filter(|one| one.done_ns.is_some()).count();
    assert_eq!((answered, simulation.outcomes().len()), (7, 7));
}

#[test]
fn one_waits_beside_jobs_that_run_for_long() {
    let agent = feedback(vec![class("only", 0.0, 20)]);
    let mut simulation = AgentSimulation::new(machine(2, &[0.0]), agent, 13).unwrap();
    simulation.run(&even(100.0, 10_000 * MS), 0.025);
    assert_eq!(simulation.unfinished(), &[2]);
    simulation.run(&[SimulatedLoad::new(0, 100.0, MS)], 3.0);
    let (_, limits) = simulation.decisions().last().unwrap();
    assert_eq!(limits[0].most, Some(3));
}

#[test]
fn a_burst_beside_a_job_that_runs_for_long_is_let_in() {
    let agent = feedback(vec![class("only", 0.0, 20)]);
    let mut simulation = AgentSimulation::new(machine(2, &[0.0]), agent, 13).unwrap();
    simulation.run(&even(100.0, MS), 0.255).run(&even(100.0, 1_500 * MS), 0.015).run(&[], 1.0);
    assert_eq!(simulation.unfinished(), &[1]);
    let (_, limits) = simulation.decisions().last().unwrap();
    assert!(limits[0].most.unwrap() > 40, "{limits:?}");
    simulation.run(&even(2_000.0, MS), 0.00525);
    // some at random, until it has ended
    simulation.run(&[SimulatedLoad::new(0, 200.0, MS)], 2.0).run(&[], 0.1);
    assert_eq!(simulation.unfinished(), &[0]);
    assert!(simulation.outcomes().iter().all(|one| one.done_ns.is_some()));
}

#[test]
fn a_flood_beside_a_job_that_runs_for_long_waits_for_the_target() {
    let agent = feedback(vec![class("only", 0.0, 20)]);
    let mut simulation = AgentSimulation::new(machine(2, &[0.0]), agent, 13).unwrap();
    simulation.run(&even(100.0, 10_000 * MS), 0.015);
    simulation.run(&[SimulatedLoad::new(0, 4_000.0, 5 * MS)], 5.0);
    let got = got(simulation.outcomes(), 0, 1.0, 5.0, 2);
    // one of the two workers is left
    assert!(got.goodput > 0.48 && got.refused > 3_000.0, "{got:?}");
    assert!((10.0..30.0).contains(&got.mean_wait_ms) && got.p99_wait_ms < 60.0, "{got:?}");
}
