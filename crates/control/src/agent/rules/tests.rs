//! Moved rates in virtual time.

use super::*;
use crate::agent::simulation::{AgentSimulation, Machine, Outcome, SimulatedLoad};
use crate::agent::{Feedback, FeedbackSettings, Seen};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
/// One core, requests of 5 ms.
const CAPACITY: f64 = 200.0;

fn class(name: &str) -> AgentClass {
    AgentClass { name: name.to_owned(), share: 0.0, target_ns: 20 * MS }
}

fn movable(rank: u8, least: f64, stated: f64, most: f64) -> Movable {
    Movable { rank, stated_per_s: stated, least_per_s: least, most_per_s: most, now_per_s: stated }
}

fn server(classes: &[&str], rules: &[Movable], seed: u64) -> AgentSimulation<Feedback> {
    let classes: Vec<_> = classes.iter().map(|name| class(name)).collect();
    let shares = vec![0.0; classes.len()];
    let machine = Machine { cores: 1, threads: 1, shares, refusal_ns: 5_000, period_ns: 10 * MS };
    let agent =
        Feedback::new(FeedbackSettings { rules: rules.to_vec(), ..FeedbackSettings::new(classes) });
    let rates: Vec<_> = rules.iter().map(|rule| rule.now_per_s).collect();
    AgentSimulation::new(machine, agent.unwrap(), seed).unwrap().with_rules(&rates)
}

/// A load of requests, in multiples of what the machine can do.
fn load(rank: u8, times: f64, rule: Option<usize>) -> SimulatedLoad {
    SimulatedLoad { rule, ..SimulatedLoad::new(rank, times * CAPACITY, 5 * MS) }
}

/// The refused part of the requests that came in this time, and the part of the core's time that
/// answers took.
fn since(outcomes: &[Outcome], from_s: f64, to_s: f64, rank: u8) -> (f64, f64) {
    let came = |one: &&Outcome| (from_s * 1e9..to_s * 1e9).contains(&one.came_ns);
    let of: Vec<_> = outcomes.iter().filter(came).collect();
    let cpu_ns: f64 = of.iter().map(|one| one.cpu_ns).sum();
    let of: Vec<_> = of.iter().filter(|one| one.rank == rank).collect();
    let refused = of.iter().filter(|one| one.done_ns.is_none()).count();
    (refused as f64 / of.len().max(1) as f64, cpu_ns / ((to_s - from_s) * 1e9))
}

#[test]
fn a_crowd_that_a_rule_knows_gives_way_to_the_others_of_its_class() {
    // the other requests take half of the machine and are in the class of the flood; only their own
    // rule, which is as wide as can be, marks them in the outcomes
    let wide = movable(0, 1e6, 1e6, 1e6);
    let refused_of_others = |flood: Movable| {
        let mut server = server(&["only"], &[flood, wide.clone()], 7);
        server.run(&[load(0, 0.5, Some(1)), load(0, 5.0, Some(0))], 30.0);
        let others = server.rates()[0];
        let (_, goodput) = since(server.outcomes(), 10.0, 30.0, 0);
        (others, goodput, server)
    };
    let (rate, goodput, mut moved) =
        refused_of_others(movable(0, 0.05 * CAPACITY, CAPACITY, CAPACITY));
    assert!((0.3..0.6).contains(&(rate / CAPACITY)), "{rate}");
    assert!(goodput > 0.93, "{goodput}");
    // the part that the window still refuses, over all clients of the class
    let window = moved.agent.history().records().rev().take(100);
    let (offered, refused) = window.fold((0, 0), |sum, record| {
        (sum.0 + record.classes[0].offered, sum.1 + record.classes[0].refused)
    });
    assert!((refused as f64) < 0.06 * offered as f64, "{refused} of {offered}");
    // a rate that is not moved lets in a third too much
    let (rate, _, fixed) = refused_of_others(movable(0, CAPACITY, CAPACITY, CAPACITY));
    assert_eq!(rate, CAPACITY);
    let window = fixed.agent.history().records().rev().take(100);
    let (offered, refused) = window.fold((0, 0), |sum, record| {
        (sum.0 + record.classes[0].offered, sum.1 + record.classes[0].refused)
    });
    assert!(refused as f64 > 0.25 * offered as f64, "{refused} of {offered}");
    // after the flood, the rate returns to the stated one
    moved.run(&[load(0, 0.5, Some(1))], 12.0);
    assert_eq!(moved.rates()[0], CAPACITY);
}

#[test]
fn a_rate_rises_as_far_as_it_may_while_there_is_room() {
    let mut server = server(&["only"], &[movable(0, 10.0, 20.0, 150.0)], 2);
    server.run(&[load(0, 2.0, Some(0))], 90.0);
    let rate = server.rates()[0];
    assert_eq!(rate, 150.0, "there is room for 200");
    let (refused, _) = since(server.outcomes(), 80.0, 90.0, 0);
    assert!((0.55..0.7).contains(&refused), "{refused}: 150 of 400 are let in");
    server.run(&[load(0, 0.01, Some(0))], 90.0);
    assert_eq!(server.rates()[0], 20.0, "what nobody uses is no experience");
}

#[test]
fn the_last_class_gives_way_first_and_no_rate_leaves_its_bounds() {
    let rules = [movable(0, 60.0, 100.0, 100.0), movable(1, 10.0, 100.0, 100.0)];
    let mut server = server(&["gold", "bulk"], &rules, 9);
    // gold takes all that it may, and a little more than the rest is left for bulk
    server.run(&[load(0, 2.0, Some(0)), load(1, 2.0, Some(1)), load(0, 0.3, None)], 30.0);
    let [gold, bulk] = server.rates() else { panic!() };
    assert_eq!(*gold, 100.0, "bulk at {bulk}");
    assert!((10.0..70.0).contains(bulk), "{bulk}");
    // now gold alone is more than the machine can do
    server.run(&[load(0, 2.0, Some(0)), load(1, 2.0, Some(1)), load(0, 0.9, None)], 30.0);
    let [gold, bulk] = server.rates() else { panic!() };
    assert_eq!(*gold, 60.0, "its least");
    assert!((10.0..40.0).contains(bulk), "{bulk}");
}

#[test]
fn a_burst_moves_nothing() {
    let mut server = server(&["only"], &[movable(0, 1.0, 50.0, 50.0)], 4);
    for _ in 0..20 {
        server.run(&[load(0, 3.0, Some(0))], 0.03).run(&[load(0, 0.3, Some(0))], 1.0);
        assert_eq!(server.rates()[0], 50.0);
    }
}

proptest! {
    /// Whatever the measurements: every rate stays within its bounds, and returns to the stated one
    /// after a quiet time.
    #[test]
    fn rates_stay_within_their_bounds(
        steps in prop::collection::vec(
            (0u64..5, prop::array::uniform4(0u64..1000), prop::num::f64::ANY, any::<bool>()), 1..80),
        ranks in prop::array::uniform2(0u8..9),
    ) {
        let rules = vec![movable(ranks[0], 1.0, 10.0, 20.0), movable(ranks[1], 5.0, 5.0, 50.0)];
        let mut all = Rules::new(&[class("gold"), class("bulk")], rules.clone());
        let mut now_ns = 0;
        let within = |all: &Rules| {
            rules.iter().zip(all.rates()).all(|(rule, rate)| {
                (rule.least_per_s..=rule.most_per_s).contains(rate)
            })
        };
        for (step, [offered, refused, matched, more], excess, is_overload) in steps {
            now_ns += step * PERIOD_NS / 2;
            let classes = [Seen { offered, refused, ..Seen::default() }; 2];
            let seen_rules = [SeenRule { matched, refused: more }; 2];
            let seen = Observation { now_ns, classes: &classes, rules: &seen_rules, ..Observation::default() };
            all.tick(&seen, |_| excess, is_overload);
            prop_assert!(within(&all), "{:?}", all.rates());
        }
        for _ in 0..1000 {
            now_ns += PERIOD_NS;
            all.tick(&Observation { now_ns, ..Observation::default() }, |_| 0.0, false);
        }
        prop_assert_eq!(all.rates(), &[10.0, 5.0][..]);
    }
}
