//! What is charged, what is given back, and what a reload keeps.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use forebay_http::client::ClientKey;
use forebay_policy::class::Class;
use forebay_policy::decision::{Decisions, PolicyRefusal, RefusalAnswer, RefusalReason};
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, Bounds, InFlight, Limit, Over, Per, Rule};
use forebay_policy::{
    ArrivedCharge, ChargeOutcome, ChargedWork, ConnectionCounts, GivenWord, InFlightGuard, Paces,
    Policy, State,
};
use proptest::prelude::*;
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const START: u64 = 1000 * SECOND;

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

fn state(rules: Vec<Rule>) -> State {
    after(rules, None)
}

fn after(rules: Vec<Rule>, before: Option<&State>) -> State {
    let policy = Policy::new(&[Class::new("gold", 0), Class::new("bulk", 1)], rules).unwrap();
    State::new(Arc::new(policy), before, START)
}

fn rule(name: &str) -> Rule {
    Rule { name: name.to_owned(), ..Rule::default() }
}

fn limit(per_second: u32, burst: u32) -> Limit {
    Limit::new(Rate::per_second(per_second), burst)
}

/// Decisions in which the rule with that number decides everything it names.
fn all_of(state: &State, number: u32) -> Decisions {
    let rule = &state.policy().rules()[number as usize];
    Decisions {
        rank: 1,
        class: None,
        connections: rule.connections.map(|_| number),
        requests: rule.requests.map(|_| number),
        in_flight: rule.in_flight.map(|_| number),
        per_connection: rule.requests_per_connection.map(|_| number),
        action: rule.action.map(|_| number),
    }
}

fn request(state: &State, client: IpAddr, now_ns: u64) -> ChargeOutcome {
    state.charge_request(&all_of(state, 0), client, now_ns)
}

fn connection(state: &State, client: IpAddr, now_ns: u64) -> ChargeOutcome {
    state.charge_connection(&all_of(state, 0), client, now_ns)
}

#[track_caller]
fn admitted(charge: ChargeOutcome) -> ChargedWork {
    match charge {
        ChargeOutcome::Admit(admitted) => admitted,
        ChargeOutcome::Refuse(refused) => panic!("{refused:?}"),
    }
}

#[track_caller]
fn refused(charge: ChargeOutcome) -> PolicyRefusal {
    match charge {
        ChargeOutcome::Admit(admitted) => panic!("{admitted:?}"),
        ChargeOutcome::Refuse(refused) => refused,
    }
}

fn refusal(reason: RefusalReason, answer: RefusalAnswer) -> PolicyRefusal {
    PolicyRefusal { rank: 1, rule: Some(0), reason, answer }
}

fn reject(status: u16, retry_after_s: u32) -> RefusalAnswer {
    RefusalAnswer::Reject { status, retry_after_s }
}

#[test]
fn actions() {
    for (action, answer) in [
        (Action::Reject(403), Some(reject(403, 0))),
        (Action::Reset, Some(RefusalAnswer::Reset)),
        (Action::Drop, Some(RefusalAnswer::Drop)),
        (Action::Allow, None),
    ] {
        let state = state(vec![Rule { action: Some(action), ..rule("r") }]);
        for charge in [request(&state, A, START), connection(&state, A, START)] {
            match answer {
                Some(answer) => assert_eq!(refused(charge), refusal(RefusalReason::Action, answer)),
                None => assert!(admitted(charge).ticket.is_empty()),
            }
        }
    }
}

#[test]
fn a_limit_for_all() {
    let requests = Some(Limit { over: Over::Reset, ..limit(1, 2) });
    let connections = Some(limit(10, 1));
    let state = state(vec![Rule { requests, connections, ..rule("r") }]);
    for client in [A, B] {
        assert_eq!(admitted(request(&state, client, START)).wait_ns, 0);
    }
    assert_eq!(
        refused(request(&state, A, START)),
        refusal(RefusalReason::Requests, RefusalAnswer::Reset)
    );
    assert_eq!(state.requests_left(0, START + SECOND), Some(1));
    let _ = admitted(request(&state, A, START + SECOND));

    let _ = admitted(connection(&state, A, START));
    let expected = refusal(RefusalReason::Connections, reject(503, 1));
    assert_eq!(refused(connection(&state, B, START)), expected);
    assert_eq!(state.connections_left(0, START), Some(0));
}

#[test]
fn a_limit_for_each_client() {
    let per_minute = Limit { rate: Rate::parse("2/m").unwrap(), per: Per::Client, ..limit(1, 1) };
    let state = state(vec![Rule { requests: Some(per_minute), ..rule("r") }]);
    for client in [A, B] {
        let _ = admitted(request(&state, client, START));
        let expected = refusal(RefusalReason::Requests, reject(429, 31));
        // the tables of clients keep time in units of four microseconds
        assert_eq!(refused(request(&state, client, START)).reason, expected.reason);
    }
    assert_eq!(state.requests_left(0, START), None);
    let _ = admitted(request(&state, A, START + 31 * SECOND));
}

#[test]
fn retry_after_is_when_the_bucket_has_something_again() {
    let per_minute = Limit { rate: Rate::parse("2/m").unwrap(), ..limit(1, 1) };
    let state = state(vec![Rule { requests: Some(per_minute), ..rule("r") }]);
    let _ = admitted(request(&state, A, START));
    let retry = |at| refused(request(&state, A, at)).answer;
    assert_eq!(retry(START), reject(503, 30));
    assert_eq!(retry(START + SECOND), reject(503, 29));
    assert_eq!(retry(START + SECOND + 1), reject(503, 29));
    assert_eq!(retry(START + 30 * SECOND - 1), reject(503, 1));
}

#[test]
fn a_queue_is_reserved_places() {
    let over = Over::Queue { deadline_ms: 1000, most: 2 };
    let state = state(vec![Rule { requests: Some(Limit { over, ..limit(10, 1) }), ..rule("r") }]);
    let waits = [0; 3].map(|_| admitted(request(&state, A, START)).wait_ns);
    assert_eq!(waits, [0, 100 * MS, 200 * MS]);
    let expected = refusal(RefusalReason::Queue, reject(503, 1));
    assert_eq!(refused(request(&state, A, START)), expected);
}

#[test]
fn so_many_at_once() {
    for (per, status) in [(Per::Rule, 503), (Per::Client, 429)] {
        let in_flight = Some(InFlight { most: 2, per, over: Over::default() });
        let state = state(vec![Rule { in_flight, ..rule("r") }]);
        let first = admitted(request(&state, A, START));
        let second = admitted(request(&state, A, START));
        assert!(!first.ticket.is_empty());
        let expected = refusal(RefusalReason::InFlight, reject(status, 1));
        assert_eq!(refused(request(&state, A, START)), expected);
        let other = request(&state, B, START);
        assert_eq!(matches!(other, ChargeOutcome::Admit(_)), per == Per::Client);
        drop(second);
        drop(admitted(request(&state, A, START)));
        drop((first, other));
        assert_eq!(state.in_flight(0), (per == Per::Rule).then_some(0));
        assert_eq!(state.clients().in_flight, 0);
    }
}

#[test]
fn who_was_refused_is_ignored_for_a_while() {
    let requests = Some(Limit { ignore_ms: Some(1000), ..limit(1, 1) });
    let state = state(vec![Rule { requests, ..rule("r") }]);
    let connect = |client, at| state.charge_connection(&all_of(&state, 0), client, at);
    let _ = admitted(request(&state, A, START));
    let _ = admitted(connect(A, START));
    let _ = refused(request(&state, A, START));
    let expected =
        PolicyRefusal { rule: None, ..refusal(RefusalReason::Ignored, RefusalAnswer::Drop) };
    assert_eq!(refused(connect(A, START + 999 * MS)), expected);
    let _ = admitted(connect(B, START));
    let _ = admitted(connect(A, START + 1001 * MS));
}

#[test]
fn the_agent_has_the_last_word() {
    let in_flight = Some(InFlight { most: 2, per: Per::Rule, over: Over::default() });
    let rules = vec![Rule { requests: Some(limit(1, 10)), in_flight, ..rule("r") }];
    let state = state(rules);
    state.set_class_rate(1, Paces::Requests, Some(10.0), START);
    assert_eq!(state.class_rate(1, Paces::Requests), Some(10.0));
    assert_eq!(state.class_rate(1, Paces::Connections), None);
    let first = admitted(request(&state, A, START));
    let expected = PolicyRefusal { rule: None, ..refusal(RefusalReason::Agent, reject(503, 1)) };
    assert_eq!(refused(request(&state, A, START)), expected);
    // what the rule had charged is given back
    assert_eq!((state.requests_left(0, START), state.in_flight(0)), (Some(9), Some(1)));
    drop(first);
    // another class, and no class
    let gold = Decisions { rank: 0, ..Decisions::default() };
    let _ = admitted(state.charge_request(&gold, A, START));
    state.set_class_rate(1, Paces::Requests, None, START);
    let _ = admitted(request(&state, A, START));

    state.set_class_rate(0, Paces::Connections, Some(0.001), START);
    let _ = admitted(state.charge_connection(&gold, A, START));
    let expected = PolicyRefusal {
        rank: 0,
        rule: None,
        reason: RefusalReason::Agent,
        answer: RefusalAnswer::Drop,
    };
    assert_eq!(refused(state.charge_connection(&gold, A, START)), expected);
    // the charge at the low rate does not make a connection wait for a quarter of an hour
    state.set_class_rate(0, Paces::Connections, Some(100.0), START);
    let _ = admitted(state.charge_connection(&gold, A, START + 20 * MS));
    // no such rate panics
    for per_s in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        state.set_class_rate(0, Paces::Requests, Some(per_s), START);
        let _ = state.charge_request(&gold, A, START);
    }
    state.set_class_rate(9, Paces::Requests, Some(1.0), START);
}

#[test]
fn a_class_may_be_late_by_a_turn() {
    let state = state(Vec::new());
    state.set_class_rate(0, Paces::Requests, Some(10_000.0), START);
    let decisions = Decisions::default();
    let admitted = |at| {
        let charges = (0..1000).map(|_| state.charge_request(&decisions, A, at));
        charges.filter(|charge| matches!(charge, ChargeOutcome::Admit(_))).count()
    };
    // all requests in a turn of 5 ms come at the same time
    assert_eq!(admitted(START), 100);
    assert_eq!(admitted(START + 5 * MS), 50);
}

#[test]
fn a_reload_keeps_what_has_a_name() {
    let in_flight = Some(InFlight { most: 1, per: Per::Rule, over: Over::default() });
    let client = Some(InFlight { most: 1, per: Per::Client, over: Over::default() });
    let rules = |burst| {
        vec![
            Rule { requests: Some(limit(1, burst)), in_flight, ..rule("a") },
            Rule { requests: Some(Limit { per: Per::Client, ..limit(1, 3) }), ..rule("b") },
            Rule { in_flight: client, ..rule("c") },
        ]
    };
    let old = state(rules(3));
    old.set_class_rate(0, Paces::Requests, Some(8.0), START);
    let charge = |state: &State, number| state.charge_request(&all_of(state, number), A, START);
    let tickets: Vec<InFlightGuard> =
        (0..3).map(|number| admitted(charge(&old, number)).ticket).collect();

    // the same rules in another order, and a new one
    let mut others = rules(3);
    others.reverse();
    others.insert(0, rule("new"));
    others[0].stop = true;
    let new = after(others, Some(&old));
    assert_eq!(new.requests_left(3, START), Some(2));
    assert_eq!(new.in_flight(3), Some(1));
    assert_eq!(refused(charge(&new, 3)).reason, RefusalReason::InFlight);
    assert_eq!(refused(charge(&new, 1)).reason, RefusalReason::InFlight);
    // two of the client's three remain
    let left: Vec<bool> =
        (0..4).map(|_| matches!(charge(&new, 2), ChargeOutcome::Admit(_))).collect();
    assert_eq!(left, [true, true, false, false]);
    assert_eq!(new.class_rate(0, Paces::Requests), Some(8.0));
    // both states charge one bucket as long as both are in use
    drop(tickets);
    assert_eq!((new.in_flight(3), new.clients().in_flight), (Some(0), 0));
    let _ = admitted(charge(&old, 0));
    assert_eq!(new.requests_left(3, START), Some(1));

    // another burst: what was used stays used, as far as there is room for it
    let small = after(rules(1), Some(&new));
    assert_eq!(small.requests_left(0, START), Some(0));
    assert_eq!(small.requests_left(0, START + SECOND - 1), Some(0));
    assert_eq!(small.requests_left(0, START + SECOND), Some(1));
    let large = after(rules(10), Some(&new));
    assert_eq!(large.requests_left(0, START), Some(8));

    // names that are gone are forgotten
    let empty = after(Vec::new(), Some(&new));
    assert_eq!(after(rules(3), Some(&empty)).requests_left(0, START), Some(3));
}

/// An event in the life of a server.
#[derive(Clone, Debug)]
enum Event {
    Request { rule: u32, client: u8, step_ms: u16 },
    Ends { which: prop::sample::Index },
    Reload { most: u32, per_client: bool },
    Agent { per_s: Option<f64> },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0u32..3, 0u8..3, 0u16..300)
            .prop_map(|(rule, client, step_ms)| Event::Request { rule, client, step_ms }),
        4 => any::<prop::sample::Index>().prop_map(|which| Event::Ends { which }),
        1 => (1u32..4, any::<bool>()).prop_map(|(most, per_client)| Event::Reload { most, per_client }),
        1 => prop::option::of(1.0..20.0).prop_map(|per_s| Event::Agent { per_s }),
    ]
}

fn rules_of(most: u32, per_client: bool) -> Vec<Rule> {
    let at_once = |per| Some(InFlight { most, per, over: Over::Drop });
    let queue = Over::Queue { deadline_ms: 200, most: 2 };
    let per = if per_client { Per::Client } else { Per::Rule };
    vec![
        Rule { in_flight: at_once(Per::Rule), requests: Some(limit(5, 2)), ..rule("a") },
        Rule { in_flight: at_once(per), requests: Some(Limit { per, ..limit(5, 2) }), ..rule("b") },
        Rule {
            in_flight: at_once(Per::Client),
            requests: Some(Limit { over: queue, ..limit(5, 2) }),
            ..rule("c")
        },
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever is admitted, refused, ended and reloaded: at the end the counts are zero.
    #[test]
    fn every_admission_is_released(events in prop::collection::vec(event(), 0..200)) {
        let mut states = vec![state(rules_of(2, false))];
        let mut tickets: Vec<(u32, u8, InFlightGuard)> = Vec::new();
        let mut now_ns = START;
        for event in events {
            let state = states.last().unwrap();
            match event {
                Event::Request { rule, client, step_ms } => {
                    now_ns += u64::from(step_ms) * MS;
                    let left = state.requests_left(rule, now_ns);
                    let ip = IpAddr::from([10, 0, 0, client]);
                    match state.charge_request(&all_of(state, rule), ip, now_ns) {
                        ChargeOutcome::Admit(admitted) => {
                            tickets.push((rule, client, admitted.ticket));
                        }
                        // a refusal, whatever its reason, costs nothing
                        ChargeOutcome::Refuse(_) => {
                            prop_assert_eq!(state.requests_left(rule, now_ns), left);
                        }
                    }
                }
                Event::Ends { which } if !tickets.is_empty() => {
                    drop(tickets.swap_remove(which.index(tickets.len())));
                }
                Event::Ends { .. } => {}
                Event::Reload { most, per_client } => {
                    let new = after(rules_of(most, per_client), Some(state));
                    states.push(new);
                }
                Event::Agent { per_s } => {
                    state.set_class_rate(1, Paces::Requests, per_s, now_ns);
                }
            }
            let state = states.last().unwrap();
            let of_rule = tickets.iter().filter(|(rule, ..)| *rule == 0).count();
            prop_assert_eq!(state.in_flight(0), Some(of_rule as u32));
        }
        drop(tickets);
        for state in states {
            prop_assert_eq!(state.in_flight(0), Some(0));
            prop_assert!(state.in_flight(1).is_none_or(|count| count == 0));
            prop_assert_eq!(state.clients().in_flight, 0);
        }
    }
}

#[test]
fn an_unlimited_rate_is_no_limit() {
    let free = Rule { requests: Some(Limit::new(Rate::UNLIMITED, 1)), ..rule("free") };
    let state = state(vec![free]);
    let charge = || request(&state, A, START);
    assert!(
        (0..1000).all(|_| matches!(charge(), ChargeOutcome::Admit(ChargedWork { wait_ns: 0, .. })))
    );
    assert_eq!(state.requests_left(0, START), None);
}

#[test]
fn a_connection_ends_after_so_many_requests_of_a_rule_or_a_class() {
    let images = || Rule { requests_per_connection: Some(3), ..rule("images") };
    let other = || Rule { class: Some("gold".to_owned()), ..rule("other") };
    let gold = Class { requests_per_connection: Some(5), ..Class::new("gold", 0) };
    let classes = [gold, Class::new("bulk", 1)];
    let new = |before: Option<&State>| {
        let policy = Policy::new(&classes, vec![images(), other()]).unwrap();
        State::new(Arc::new(policy), before, START)
    };
    let (first, mut counts) = (new(None), ConnectionCounts::default());
    let of_rule = all_of(&first, 0);
    let of_class = Decisions { rank: 0, ..Decisions::default() };
    let of_none = Decisions { rank: 1, ..Decisions::default() };
    assert!(!first.is_last(&of_rule, &mut counts));
    assert!((0..100).all(|_| !first.is_last(&of_none, &mut counts)));
    assert!(!first.is_last(&of_rule, &mut counts));
    // counts continue under the names of rules and classes
    let second = new(Some(&first));
    assert!(second.is_last(&of_rule, &mut counts));
    assert!((0..4).all(|_| !second.is_last(&of_class, &mut counts)));
    assert!(second.is_last(&of_class, &mut counts));
    assert!(!second.is_last(&of_rule, &mut ConnectionCounts::default()));
}

#[test]
fn a_connection_counts_for_a_bounded_number_of_rules() {
    let rules = (0..100)
        .map(|number| Rule { requests_per_connection: Some(1000), ..rule(&number.to_string()) });
    let (state, mut counts) = (state(rules.collect()), ConnectionCounts::default());
    let mut last = (0..100).map(|number| state.is_last(&all_of(&state, number), &mut counts));
    assert_eq!(last.position(|is_last| is_last), Some(32));
}

#[test]
fn a_bucket_can_lie_where_somebody_else_charges_it() {
    static WORDS: [AtomicU64; 2] = [AtomicU64::new(7), AtomicU64::new(7)];
    let shared = Limit { over: Over::Drop, ..limit(1, 2) };
    let rules = |burst| {
        let connections = Some(Limit { burst, ..shared });
        let each = Some(Limit { per: Per::Client, ..shared });
        vec![
            Rule { connections, ..rule("shared") },
            Rule { connections, ..rule("own") },
            Rule { connections: each, ..rule("each") },
        ]
    };
    let make = |burst, before: Option<&State>, word: Option<&'static AtomicU64>| {
        let policy = Policy::new(&[Class::new("gold", 0)], rules(burst)).unwrap();
        let mut words = |name: &str, of: GivenWord| {
            if name == "gold" {
                return None;
            }
            assert_eq!((name == "each", of), (false, GivenWord::Connections));
            word.filter(|_| name == "shared")
        };
        State::with_words(Arc::new(policy), before, START, &mut words, None)
    };
    let arrive = |state: &State, rule, is_charged: bool| {
        let asked = Cell::new(None);
        let charge = state.charge_arrived(&all_of(state, rule), A, START, |of| {
            let ArrivedCharge::Rule(rule) = of else { panic!("the class has a word of its own") };
            asked.set(Some(rule));
            is_charged
        });
        (matches!(charge, ChargeOutcome::Admit(_)), asked.get())
    };
    let state = make(2, None, Some(&WORDS[0]));
    assert_eq!(WORDS[0].load(Relaxed), 7, "another process may have charged it");
    assert_eq!(arrive(&state, 0, true), (true, Some(0)));
    assert_eq!(WORDS[0].load(Relaxed), 7);
    assert_eq!(arrive(&state, 0, false), (true, Some(0)));
    assert_eq!(WORDS[0].load(Relaxed), START + SECOND);
    // only this process charges these buckets, so `is_charged` is not called
    assert_eq!(arrive(&state, 1, true), (true, None));
    assert_eq!(arrive(&state, 2, true), (true, None));
    // another process charges the last one
    WORDS[0].store(START + 2 * SECOND, Relaxed);
    assert_eq!(arrive(&state, 0, false), (false, Some(0)));
    assert_eq!(state.connections_left(0, START), Some(0));
    // the same word, under terms that do not allow it to be charged so far ahead
    let next = make(1, Some(&state), Some(&WORDS[0]));
    assert_eq!(WORDS[0].load(Relaxed), START + SECOND);
    // another word, none, and one again: the charge is carried along each time
    let moved = make(1, Some(&next), Some(&WORDS[1]));
    assert_eq!(WORDS[1].load(Relaxed), START + SECOND);
    let alone = make(1, Some(&moved), None);
    assert_eq!(arrive(&alone, 0, true), (false, None));
    WORDS[0].store(0, Relaxed);
    make(1, Some(&alone), Some(&WORDS[0]));
    assert_eq!(WORDS[0].load(Relaxed), START + SECOND);
}

#[test]
fn a_request_that_was_charged_elsewhere_is_not_charged_again() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let at_once = InFlight { most: 1, per: Per::Rule, over: Over::default() };
    let rules = vec![
        Rule { requests: Some(limit(1, 2)), ..rule("given") },
        Rule { requests: Some(limit(1, 2)), in_flight: Some(at_once), ..rule("other") },
    ];
    let policy = Policy::new(&[Class::new("gold", 0)], rules).unwrap();
    let mut words =
        |name: &str, of| Some(&WORD).filter(|_| (name, of) == ("given", GivenWord::Requests));
    let state = State::with_words(Arc::new(policy), None, START, &mut words, None);
    let ask =
        |decisions: &Decisions, charged| state.charge_first_request(decisions, A, START, charged);
    let of = |rule| Decisions { requests: Some(rule), ..Decisions::default() };
    let left = |rule| state.requests_left(rule, START).unwrap();
    // the kernel has charged the first of two
    WORD.store(START + SECOND, Relaxed);
    assert!(matches!(ask(&of(0), Some(0)), ChargeOutcome::Admit(_)));
    assert_eq!(left(0), 1);
    assert!(matches!(ask(&of(0), None), ChargeOutcome::Admit(_)));
    assert_eq!(left(0), 0);
    // the bucket had one left, and the request is admitted all the same
    assert!(matches!(ask(&of(0), Some(0)), ChargeOutcome::Admit(_)));
    assert_eq!(left(0), 0);
    // another rule decides by now: it is charged, and the first rule gets its charge back
    assert!(matches!(ask(&of(1), Some(0)), ChargeOutcome::Admit(_)));
    assert_eq!((left(0), left(1)), (1, 1));
    // the request is refused for another reason
    WORD.store(START + SECOND, Relaxed);
    let busy = Decisions { in_flight: Some(1), ..of(0) };
    let _one = match ask(&busy, Some(0)) {
        ChargeOutcome::Admit(admitted) => admitted.ticket,
        ChargeOutcome::Refuse(refused) => panic!("{refused:?}"),
    };
    assert_eq!(left(0), 1);
    assert!(matches!(ask(&busy, Some(0)), ChargeOutcome::Refuse(_)));
    assert_eq!(left(0), 2);
    // the agent's limit is reached: the charge is given back once
    WORD.store(START + SECOND, Relaxed);
    state.set_class_rate(0, Paces::Requests, Some(1e-9), START);
    assert!(matches!(ask(&of(0), None), ChargeOutcome::Admit(_)));
    assert!(matches!(ask(&of(0), Some(0)), ChargeOutcome::Refuse(_)));
    assert_eq!(left(0), 1);
}

#[test]
fn who_does_not_count_requests_at_once_is_told_when_there_are_enough() {
    static FULL_UNTIL: AtomicU64 = AtomicU64::new(0);
    let at_once = InFlight { most: 1, per: Per::Rule, over: Over::default() };
    let rules = vec![Rule { in_flight: Some(at_once), ..rule("one") }];
    let policy = Policy::new(&[Class::new("gold", 0)], rules).unwrap();
    let mut words = |_: &str, of| Some(&FULL_UNTIL).filter(|_| of == GivenWord::FullUntil);
    let state = State::with_words(Arc::new(policy), None, START, &mut words, None);
    let first = request(&state, A, START);
    assert!(matches!(first, ChargeOutcome::Admit(_)));
    assert_eq!(FULL_UNTIL.load(Relaxed), 0, "nobody was refused yet");
    assert!(matches!(request(&state, B, START), ChargeOutcome::Refuse(_)));
    assert_eq!(FULL_UNTIL.load(Relaxed), START + 50 * MS);
    drop(first);
    assert_eq!(FULL_UNTIL.load(Relaxed), 0);
    assert!(matches!(request(&state, B, START), ChargeOutcome::Admit(_)));
}

#[test]
fn a_rate_is_moved_within_its_bounds_and_what_is_used_stays_used() {
    let rate = |text: &str| Rate::parse(text).unwrap();
    let movable = |stated: u32| Rule {
        requests: Some(limit(stated, 10)),
        bounds: Some(Bounds { least: rate("5/s"), most: rate("200/s") }),
        ..rule("r")
    };
    let state = state(vec![movable(100), Rule { requests: Some(limit(1, 1)), ..rule("fixed") }]);
    assert_eq!((state.rate(0), state.rate(1), state.rate(2)), (Some(100.0), None, None));
    let admits = |state: &State, now_ns| {
        let is_admitted = || matches!(request(state, A, now_ns), ChargeOutcome::Admit(_));
        std::iter::repeat_with(is_admitted).take_while(|admitted| *admitted).count()
    };
    (0..4).for_each(|_| drop(request(&state, A, START)));
    for (asked, expected) in
        [(20.0, 20.0), (0.0, 5.0), (-1.0, 5.0), (1e9, 200.0), (f64::INFINITY, 200.0), (10.0, 10.0)]
    {
        state.set_rate(0, asked, START);
        assert!((state.rate(0).unwrap() - expected).abs() < 1e-3, "{asked}");
        assert_eq!(state.requests_left(0, START), Some(6), "{asked}");
    }
    assert_eq!((admits(&state, START), admits(&state, START)), (6, 0));
    assert_eq!(admits(&state, START + SECOND), 10, "at 10 per second, all that fits the burst");
    assert_eq!(admits(&state, START + SECOND + SECOND / 2), 5);
    state.set_rate(1, 5.0, START);
    assert_eq!(state.rate(1), None);
    // after a reload that says the same, the bucket continues; the old state uses it, too, while it
    // still serves
    let same = after(vec![movable(100)], Some(&state));
    assert!((same.rate(0).unwrap() - 10.0).abs() < 1e-3);
    assert_eq!(admits(&same, START + SECOND + SECOND / 2), 0);
    same.set_rate(0, 20.0, START + 2 * SECOND);
    assert!((state.rate(0).unwrap() - 20.0).abs() < 1e-3);
    let other = after(vec![movable(50)], Some(&same));
    assert!((other.rate(0).unwrap() - 50.0).abs() < 1e-3);
}

#[test]
fn what_a_request_was_charged_is_given_back_if_it_is_refused_later() {
    for per in [Per::Rule, Per::Client] {
        let state = state(vec![Rule { requests: Some(Limit { per, ..limit(1, 2) }), ..rule("r") }]);
        let half = START + SECOND / 2;
        (0..2).for_each(|_| drop(admitted(request(&state, A, START))));
        assert_eq!(refused(request(&state, A, half)).reason, RefusalReason::Requests);
        state.refund_request(0, ClientKey::of(A), half);
        let _ = admitted(request(&state, A, half));
        let _ = refused(request(&state, A, half));
        // a rule that does not exist, or has no such limit, gives nothing back
        state.refund_request(1, ClientKey::of(A), half);
        let _ = refused(request(&state, A, half));
    }
}

#[test]
fn who_leaves_as_the_last_in_line_gives_its_turn_back() {
    for per in [Per::Rule, Per::Client] {
        let over = Over::Queue { deadline_ms: 350, most: 100 };
        let requests = Some(Limit { per, over, ..limit(10, 1) });
        let state = state(vec![Rule { requests, ..rule("r") }]);
        let turn = || START + admitted(request(&state, A, START)).wait_ns;
        let leave = |turn_ns| state.give_up_turn(0, ClientKey::of(A), turn_ns);
        let turns = [(); 4].map(|()| turn());
        assert_eq!(refused(request(&state, A, START)).reason, RefusalReason::Queue);
        // the later turns have been announced
        leave(turns[1]);
        let _ = refused(request(&state, A, START));
        leave(turns[3]);
        leave(turns[2]);
        assert_eq!([turn(), turn()], turns[2..]);
        let _ = refused(request(&state, A, START));
    }
}

#[test]
fn a_rate_that_is_moved_no_more_leaves_used_what_was_used() {
    let rate = |text: &str| Rate::parse(text).unwrap();
    let movable = |stated: u32, most: Option<&str>| Rule {
        requests: Some(limit(stated, 50)),
        bounds: most.map(|most| Bounds { least: rate("10/m"), most: rate(most) }),
        ..rule("r")
    };
    let state = state(vec![movable(100, Some("100/s"))]);
    (0..20).for_each(|_| drop(request(&state, A, START)));
    state.set_rate(0, 0.5, START);
    assert_eq!(state.requests_left(0, START), Some(30));
    // without bounds, with other bounds, and at another rate, under which the same time is less
    for (next, left) in [
        (movable(100, None), 30),
        (movable(100, Some("200/s")), 30),
        (movable(50, None), 40),
        (movable(50, Some("100/s")), 40),
    ] {
        let next = after(vec![next], Some(&state));
        assert_eq!(next.requests_left(0, START), Some(left));
        let _ = admitted(request(&next, A, START));
    }
    // and none of that has touched the bucket of loops that still use the old rules
    assert_eq!(state.requests_left(0, START), Some(30));
}
