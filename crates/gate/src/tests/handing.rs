//! A gate takes the place of another one: it judges the same packets, with the state of the earlier one.

use super::filters;
use super::filters::soon;
use super::packets::Packet;
use super::vectors::{DROPPED, UNTOUCHED};
use super::{in_namespace, listen};
use crate::{Charge, Count, Gate, GateError, HandedGate};
use forebay_policy::Policy;
use forebay_policy::class::Class;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, Limit, Over, Rule};
use std::net::{SocketAddr, TcpStream};

const AT: &str = "127.0.0.1:8080";

/// A rule with a burst of three, then resets; behind `others` rules of other names, so that its slot is not
/// the first.
fn few(others: usize) -> Policy {
    let ignore_ms = Some(1000);
    let limit =
        Limit { over: Over::Reset, ignore_ms, ..Limit::new(Rate::parse("1/h").unwrap(), 3) };
    let of_name = |name: String| Rule { name, connections: Some(limit), ..Rule::default() };
    let mut rules = vec![of_name("few".to_owned())];
    let unused = forebay_policy::endpoint::Endpoint::parse("203.0.113.9").unwrap();
    rules.splice(
        0..0,
        (0..others).map(|number| {
            let mut rule = of_name(format!("other{number}"));
            rule.conditions.client = vec![unused.clone()];
            rule
        }),
    );
    Policy::new(&[Class::new("default", 0)], rules).unwrap()
}

fn enforce(gate: &Gate, policy: &Policy) {
    gate.enforce(&gate.lower(policy).unwrap()).unwrap();
}

fn connects() -> bool {
    TcpStream::connect(AT).is_ok()
}

/// Runs a test with both ways of attaching, where the kernel has both.
fn each_way(test: fn(fn() -> Gate, &[SocketAddr])) {
    in_namespace(move || {
        let (_sockets, addresses) = listen(&[8080]);
        let linked: fn() -> Gate = || Gate::load(Charge::AtSyn).unwrap();
        let filtered: fn() -> Gate = || filters::load(Charge::AtSyn);
        if linked().has_links() {
            test(linked, &addresses);
        } else {
            eprintln!("SKIPPED: this kernel has no links at TC");
        }
        test(filtered, &addresses);
    });
}

#[test]
fn the_next_gate_goes_on_where_the_one_before_has_been() {
    each_way(|load, addresses| {
        let before = load();
        enforce(&before, &few(3));
        before.attach(addresses).unwrap();
        assert_eq!([connects(), connects()], [true, true]);
        before.ignore("127.7.7.7".parse().unwrap(), u64::MAX);
        let next = Gate::load_after(Charge::AtSyn, false, before.hand().unwrap()).unwrap();
        assert_eq!(next.has_filters(), before.has_filters());
        // the rules have another order
        enforce(&next, &few(0));
        next.prepare(addresses).unwrap();
        assert!(next.interfaces().is_empty());
        next.attach(addresses).unwrap();
        assert_eq!(next.interfaces(), before.interfaces());
        before.let_go();
        drop(before);
        assert_eq!([connects(), connects()], [true, false]);
        let tally = next.tally("few");
        assert_eq!((tally.admitted, tally.reset), (3, 1));
        assert_eq!(next.counts()[Count::Reset as usize], 1);
        let ignored = Packet::syn("127.7.7.7:4000", AT);
        assert_eq!(next.run_on(&ignored.bytes()).unwrap().0, DROPPED);
        // and on to a third
        let third = Gate::load_after(Charge::AtSyn, false, next.hand().unwrap()).unwrap();
        enforce(&third, &few(1));
        third.attach(addresses).unwrap();
        next.let_go();
        drop(next);
        assert!(!connects());
        drop(third);
        assert!(soon(connects), "nothing judges any more");
    });
}

/// The next gate ends before it has judged.
#[test]
fn a_gate_that_did_not_come_to_judge_leaves_the_one_before() {
    each_way(|load, addresses| {
        let before = load();
        enforce(&before, &few(0));
        before.attach(addresses).unwrap();
        drop(Gate::load_after(Charge::AtSyn, false, before.hand().unwrap()).unwrap());
        assert_eq!([connects(), connects(), connects(), connects()], [true, true, true, false]);
        let next = Gate::load_after(Charge::AtSyn, false, before.hand().unwrap()).unwrap();
        let open = Rule { name: "open".to_owned(), action: Some(Action::Allow), ..Rule::default() };
        enforce(&next, &Policy::new(&[], vec![open]).unwrap());
        next.attach(addresses).unwrap();
        assert!(connects());
        drop(next);
        before.retake().unwrap();
        before.attach(addresses).unwrap();
        assert!(!connects());
        before.detach();
        assert!(connects());
    });
}

#[test]
fn what_another_layout_keeps_is_not_taken() {
    in_namespace(|| {
        let before = super::load(Charge::AtSyn);
        enforce(&before, &few(0));
        before.ignore("10.0.0.1".parse().unwrap(), u64::MAX);
        let handed = HandedGate { layout: 0, ..before.hand().unwrap() };
        let next = Gate::load_after(Charge::AtSyn, false, handed).unwrap();
        enforce(&next, &few(0));
        let (_sockets, addresses) = listen(&[8080]);
        next.prepare(&addresses).unwrap();
        let packet = Packet::syn("10.0.0.1:4000", AT);
        assert_eq!(next.run_on(&packet.bytes()).unwrap().0, UNTOUCHED);
        // a map of another shape is rejected
        let mut handed = before.hand().unwrap();
        handed.maps.swap(0, 1);
        let (words, tallies) = (handed.maps[1].0.clone(), handed.maps[0].0.clone());
        (handed.maps[0].0, handed.maps[1].0) = (words, tallies);
        assert!(matches!(
            Gate::load_after(Charge::AtSyn, false, handed),
            Err(GateError::Load { .. } | GateError::Kernel(_))
        ));
    });
}

#[test]
fn a_gate_that_answers_is_not_followed_by_one_that_does_not() {
    in_namespace(|| {
        let handed = super::load(Charge::AtSyn).hand().unwrap();
        let handed = HandedGate { steers: true, ..handed };
        let refused = Gate::load_after(Charge::AtSyn, false, handed);
        assert!(refused.unwrap_err().to_string().contains("rung full"));
    });
}
