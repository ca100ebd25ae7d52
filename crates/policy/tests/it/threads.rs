//! Many loops use one state: limits hold, and everything is given back.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use forebay_policy::class::Class;
use forebay_policy::decision::Decisions;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{InFlight, Limit, Over, Per, Rule};
use forebay_policy::{ChargeOutcome, Paces, Policy, State};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const MS: u64 = 1_000_000;
const START: u64 = 1_000_000 * MS;
const CLIENTS: u32 = 16;
const ROUNDS: u64 = 2000;

fn state() -> State {
    let at_once = |per, most| Some(InFlight { most, per, over: Over::default() });
    let limit = Limit::new(Rate::per_second(100), 5);
    let rule = |name: &str, requests, in_flight| Rule {
        name: name.to_owned(),
        requests: Some(requests),
        in_flight,
        ..Rule::default()
    };
    let rules = vec![
        rule("all", limit, at_once(Per::Rule, 2)),
        rule("each", Limit { per: Per::Client, ..limit }, at_once(Per::Client, 3)),
    ];
    let policy = Policy::new(&[Class::new("only", 0)], rules).unwrap();
    State::new(Arc::new(policy), None, START)
}

/// Charges the rule from four threads over the same time; returns how many events of each client
/// were admitted.
fn charge(state: &State, rule: u32) -> Vec<u64> {
    let decisions =
        Decisions { requests: Some(rule), in_flight: Some(rule), ..Decisions::default() };
    let admitted: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    for (number, admitted) in (0..).zip(&admitted) {
                        let client = IpAddr::V4(Ipv4Addr::from_bits(number));
                        let now_ns = START + round * MS;
                        match state.charge_request(&decisions, client, now_ns) {
                            ChargeOutcome::Admit(_) => admitted.fetch_add(1, Relaxed),
                            ChargeOutcome::Refuse(_) => 0,
                        };
                    }
                }
            });
        }
    });
    admitted.into_iter().map(AtomicU64::into_inner).collect()
}

/// The number that 100 per second with a burst of 5 admit in that time.
const MOST: u64 = 5 + (ROUNDS - 1) / 10;

#[test]
fn one_bucket_for_all() {
    let state = state();
    let admitted: u64 = charge(&state, 0).iter().sum();
    assert!(admitted <= MOST, "{admitted} of {MOST}");
    // requests refused because two others were under way may have missed a turn
    assert!(admitted > MOST / 2, "{admitted} of {MOST}");
    assert_eq!(state.in_flight(0), Some(0));
}

#[test]
fn a_bucket_for_each() {
    let state = state();
    for admitted in charge(&state, 1) {
        assert!(admitted <= MOST, "{admitted} of {MOST}");
        assert!(admitted > MOST / 2, "{admitted} of {MOST}");
    }
    let report = state.clients();
    assert_eq!((report.in_flight, report.evicted, report.uncounted), (0, 0, 0));
}

#[test]
fn the_agent_changes_rates_under_way() {
    let state = state();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for step in 0..10_000 {
                let per_s = (step % 3 > 0).then_some(50.0 + f64::from(step));
                state.set_class_rate(0, Paces::Requests, per_s, START);
            }
        });
        let _ = charge(&state, 0);
        let _ = charge(&state, 1);
    });
    assert_eq!((state.in_flight(0), state.clients().in_flight), (Some(0), 0));
}
