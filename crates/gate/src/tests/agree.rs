//! The program and the policy agree about first segments: random rules and segments, for our listeners and
//! for other servers.

use super::steer::{Steered, conditions, policy, rule};
use super::vectors::UNTOUCHED;
use crate::FirstCount;
use forebay_policy::bucket::BucketTerms;
use forebay_policy::decision::RefusalAnswer;
use forebay_policy::facts::ConnectionFacts;
use forebay_policy::first::FirstRequest;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, Degree, InFlight, Limit, Over, Per, Rule, When};
use forebay_policy::syn::Syn;
use forebay_policy::{GivenWord, Policy};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

/// A first segment that is judged. The rule `full` has reached its limit of requests at once.
#[derive(Clone, Copy)]
pub(super) struct AskedFirst<'a> {
    pub(super) policy: &'a Policy,
    pub(super) ends: &'a ConnectionFacts,
    pub(super) data: &'a [u8],
    pub(super) degree: Degree,
    pub(super) full: u32,
}

/// The program's verdict on a first request that the policy has judged, and the counter.
pub(super) fn outcome(
    steered: &Steered,
    policy: &Policy,
    found: FirstRequest,
    refused: impl Fn(RefusalAnswer) -> (u32, FirstCount),
) -> (u32, FirstCount) {
    match found {
        FirstRequest::Pass => (UNTOUCHED, FirstCount::Passed),
        FirstRequest::Refuse(_, answer) => refused(answer),
        FirstRequest::CannotTell => (UNTOUCHED, FirstCount::Left),
        FirstRequest::Charge(rule, answer) => {
            let rule = &policy.rules()[rule as usize];
            let terms = BucketTerms::of(rule.requests.as_ref().unwrap());
            let word = steered.gate.word(&rule.name, GivenWord::Requests).unwrap();
            match forebay_policy::bucket::available(word, super::same::now_ns(), &terms) {
                0 => refused(answer),
                _ => (UNTOUCHED, FirstCount::Charged),
            }
        }
    }
}

/// Asserts that the program's verdict is the `expected` one for segments of these clients to these addresses.
pub(super) fn agrees(
    steered: &Steered,
    client: impl Strategy<Value = (&'static str, &'static str)>,
    data: impl Strategy<Value = Vec<u8>>,
    expected: impl Fn(&AskedFirst<'_>) -> (u32, FirstCount),
) {
    let gate = &steered.gate;
    let asked = prop::collection::vec((client, data, 0..4_u8, 0..9_u32), 1..24);
    let mut runner = TestRunner::new(ProptestConfig { cases: 250, ..Default::default() });
    let port = std::cell::Cell::new(0_u16);
    let judged = runner.run(&(rules(), asked), |(mut rules, asked)| {
        for (number, rule) in rules.iter_mut().enumerate() {
            rule.name = number.to_string();
            for of in [GivenWord::Requests, GivenWord::FullUntil] {
                gate.word(&rule.name, of).inspect(|word| word.store(0, Relaxed));
            }
        }
        // without a class nothing is answered
        rules.push(rule("last", "silver", &["/b"]));
        let policy = Policy::new(policy(Vec::new()).classes(), rules);
        prop_assume!(policy.is_ok());
        let policy = policy.unwrap();
        gate.enforce(&gate.lower(&policy).unwrap()).unwrap();
        for ((client, local), data, degree, full) in asked {
            let degree = Degree::of(degree);
            gate.set_degree(degree);
            let full_word = policy
                .rules()
                .get(full as usize)
                .and_then(|rule| gate.word(&rule.name, GivenWord::FullUntil));
            // each has a port of its own, because refused connections are remembered
            port.set(port.get() % 60_000 + 1);
            let client = SocketAddr::new(client.parse().unwrap(), port.get());
            let ends = ConnectionFacts { client, local: local.parse().unwrap() };
            let by_syn = policy.syn(&ends, degree);
            if data.is_empty() || !matches!(by_syn, Syn::Pass | Syn::CannotTell(_)) {
                continue;
            }
            let segment = steered.begin(client, ends.local, false, data.clone());
            full_word.inspect(|word| word.store(u64::MAX, Relaxed));
            let asked = AskedFirst { policy: &policy, ends: &ends, data: &data, degree, full };
            let (verdict, count) = expected(&asked);
            let before = gate.first_counts();
            let (found, _) = gate.run_on(&segment.bytes()).unwrap();
            full_word.inspect(|word| word.store(0, Relaxed));
            let text = String::from_utf8_lossy(&data);
            prop_assert_eq!(found, verdict, "{:?} {:?}: {:?}", text, ends, count);
            let after = gate.first_counts();
            for one in FirstCount::ALL {
                let more = after[one as usize] - before[one as usize];
                prop_assert_eq!(more, u64::from(one == count), "{:?} of {:?}", one, text);
            }
        }
        Ok(())
    });
    judged.unwrap();
}

fn over() -> impl Strategy<Value = Over> {
    prop_oneof![
        Just(Over::Drop),
        Just(Over::Reset),
        Just(Over::default()),
        Just(Over::Reject { status: Some(429) }),
        Just(Over::Queue { deadline_ms: 1000, most: 3 }),
    ]
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let when = prop_oneof![
        4 => Just(When::Always),
        1 => Just(When::Overload),
        1 => (1..4_u8).prop_map(|number| When::From(Degree::of(number))),
    ];
    let action = select(vec![Action::Allow, Action::Drop, Action::Reset, Action::Reject(403)]);
    let per = || prop_oneof![4 => Just(Per::Rule), 1 => Just(Per::Client)];
    let limit = (over(), per(), 1..3_u32).prop_map(|(over, per, burst)| Limit {
        over,
        per,
        ..Limit::new(Rate::parse("1/h").unwrap(), burst)
    });
    let at_once = (over(), per()).prop_map(|(over, per)| InFlight { most: 1, per, over });
    let says = (
        prop::option::weighted(0.3, select(vec!["gold", "silver", "bulk"])),
        prop::option::weighted(0.2, action),
        prop::option::weighted(0.4, limit),
        prop::option::weighted(0.2, at_once),
    );
    let rule = (conditions(), says, prop::bool::weighted(0.1), when).prop_map(
        |(conditions, (class, action, requests, in_flight), stop, when)| {
            let mut rule = Rule {
                conditions,
                class: class.map(str::to_owned),
                action,
                requests,
                in_flight,
                stop,
                when,
                ..Rule::default()
            };
            let is_silent = class.is_none() && requests.is_none() && in_flight.is_none();
            if is_silent && action.is_none() {
                rule.action = Some(Action::Allow);
            }
            rule
        },
    );
    prop::collection::vec(rule, 0..8)
}
