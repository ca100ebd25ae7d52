//! The same rules give the same verdict in the kernel and in user space: random rules, random
//! four-tuples.

use super::packets::{ACK, Packet, RST, assert_reset};
use super::vectors::{DROPPED, REDIRECTED, UNTOUCHED};
use super::{in_namespace, listen, load};
use crate::{Charge, Count, Gate};
use forebay_policy::condition::Conditions;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::facts::ConnectionFacts;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, Degree, Limit, Over, Per, Rule, When};
use forebay_policy::syn::{Refusing, Syn};
use forebay_policy::{GivenWord, Policy};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;

const PORTS: [u16; 4] = [8080, 8081, 8082, 9000];
const LOCALS: [&str; 4] = ["127.0.0.1", "127.0.0.2", "127.8.0.1", "::1"];

/// Addresses that are close to one another, so that networks hold some of them.
fn client() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0..3_u8, 0..3_u8, 0..4_u8).prop_map(|(a, b, c)| IpAddr::from([10, a, b, c])),
        (0..3_u16, 0..2_u16, 0..4_u16)
            .prop_map(|(a, b, c)| IpAddr::from([0xfd00, a, b, 0, 0, 0, 0, c])),
    ]
}

fn endpoint(address: impl Strategy<Value = IpAddr>) -> impl Strategy<Value = Endpoint> {
    let ports = prop_oneof![
        3 => Just(None),
        1 => (1..6_u16, 0..4_u16).prop_map(|(first, more)| Some((first, first + more))),
        1 => (8079..9001_u16, 0..3_u16).prop_map(|(first, more)| Some((first, first + more))),
    ];
    let addresses = prop_oneof![
        1 => Just(None),
        6 => (address, 0..=128_u8).prop_map(Some),
    ];
    (addresses, ports, any::<bool>(), 0..9_u8).prop_map(|(address, ports, is_mapped, more)| {
        let ports = ports.map(|(first, last)| format!(":{first}-{last}")).unwrap_or_default();
        let text = match address {
            None => format!("*{ports}"),
            // a range, now and then
            Some((IpAddr::V4(ip), _)) if more > 6 => {
                let last = std::net::Ipv4Addr::from_bits(ip.to_bits() + u32::from(more) * 37);
                format!("{ip}-{last}{ports}")
            }
            Some((IpAddr::V6(ip), _)) if more > 6 => {
                let last = std::net::Ipv6Addr::from_bits(ip.to_bits() + u128::from(more) * 37);
                format!("[{ip}-{last}]{ports}")
            }
            Some((IpAddr::V4(ip), len)) => {
                let len = len % 33;
                let bits = ip.to_bits() & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                let ip = std::net::Ipv4Addr::from_bits(bits);
                match is_mapped && len > 0 {
                    true => format!("[::ffff:{ip}]/{}{ports}", 96 + len),
                    false => format!("{ip}/{len}{ports}"),
                }
            }
            Some((IpAddr::V6(ip), len)) => {
                let bits = ip.to_bits() & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                format!("[{}]/{len}{ports}", std::net::Ipv6Addr::from_bits(bits))
            }
        };
        Endpoint::parse(&text).unwrap()
    })
}

fn local() -> impl Strategy<Value = IpAddr> {
    prop::sample::select(&LOCALS).prop_map(|text| text.parse().unwrap())
}

fn over() -> impl Strategy<Value = Over> {
    prop_oneof![2 => Just(Over::Drop), 2 => Just(Over::Reset), 1 => Just(Over::default())]
}

fn rule() -> impl Strategy<Value = Rule> {
    let per = prop_oneof![4 => Just(Per::Rule), 1 => Just(Per::Client)];
    let limit = (over(), per, 1..3_u32).prop_map(|(over, per, burst)| Limit {
        over,
        per,
        ..Limit::new(Rate::parse("1/h").unwrap(), burst)
    });
    let action = prop_oneof![
        Just(Action::Allow),
        Just(Action::Drop),
        Just(Action::Reset),
        Just(Action::Reject(403)),
    ];
    let when = prop_oneof![
        6 => Just(When::Always),
        1 => Just(When::Overload),
        1 => (1..4_u8).prop_map(|number| When::From(Degree::of(number))),
    ];
    let path = prop_oneof![5 => Just(Vec::new()), 1 => Just(vec!["/a".to_owned()])];
    (
        prop::collection::vec(endpoint(client()), 0..3),
        prop::collection::vec(endpoint(local()), 0..3),
        path,
        prop::option::weighted(0.6, limit),
        prop::option::weighted(0.3, action),
        prop::bool::weighted(0.2),
        when,
    )
        .prop_map(|(client, local, path, connections, action, stop, when)| {
            let is_bare = path.is_empty();
            let path =
                path.iter().map(|text| forebay_policy::pattern::PathPattern::parse(text).unwrap());
            Rule {
                conditions: Conditions {
                    client,
                    local,
                    path: path.collect(),
                    ..Conditions::default()
                },
                connections: connections.filter(|_| is_bare),
                // a rule says something
                action: action
                    .or(Some(Action::Allow).filter(|_| connections.is_none() || !is_bare)),
                stop,
                when,
                ..Rule::default()
            }
        })
}

fn ends() -> impl Strategy<Value = ConnectionFacts> {
    let both = prop_oneof![
        (client(), local()).prop_filter("one family", |(a, b)| a.is_ipv4() == b.is_ipv4()),
    ];
    (both, 1..10_u16, prop::sample::select(&PORTS)).prop_map(|((client, local), from, to)| {
        ConnectionFacts { client: SocketAddr::new(client, from), local: SocketAddr::new(local, to) }
    })
}

/// The expected verdict on a packet.
fn expected(gate: &Gate, policy: &Policy, verdict: Syn) -> (u32, Count) {
    let refused = |refusing| match refusing {
        Refusing::Drop => (DROPPED, Count::Dropped),
        Refusing::Reset => (REDIRECTED, Count::Reset),
    };
    match verdict {
        Syn::Pass => (UNTOUCHED, Count::Passed),
        Syn::CannotTell(_) => (UNTOUCHED, Count::LeftUser),
        Syn::Refuse(_, refusing) => refused(refusing),
        Syn::Charge(rule, refusing) => {
            let rule = &policy.rules()[rule as usize];
            let terms = forebay_policy::bucket::BucketTerms::of(rule.connections.as_ref().unwrap());
            let copy = gate.word(&rule.name, GivenWord::Connections).unwrap().load(Relaxed);
            let copy = std::sync::atomic::AtomicU64::new(copy);
            match forebay_policy::bucket::charge(&copy, now_ns(), &terms) {
                Ok(_) => (UNTOUCHED, Count::Passed),
                Err(_) => refused(refusing),
            }
        }
    }
}

pub(super) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn the_kernel_judges_as_user_space_does() {
    in_namespace(|| {
        let gate = load(Charge::AtSyn);
        let (_sockets, addresses) = listen(&PORTS);
        gate.attach(&addresses).unwrap();
        let case =
            (prop::collection::vec(rule(), 0..12), prop::collection::vec((ends(), 0..4_u8), 1..24));
        let mut runner = TestRunner::new(ProptestConfig { cases: 150, ..Default::default() });
        let sent = std::cell::Cell::new(0_u32);
        let judged = runner.run(&case, |(mut rules, packets)| {
            for (number, rule) in rules.iter_mut().enumerate() {
                rule.name = number.to_string();
                gate.word(&rule.name, GivenWord::Connections)
                    .inspect(|word| word.store(0, Relaxed));
            }
            let policy = Policy::new(&[], rules);
            prop_assume!(policy.is_ok());
            let policy = policy.unwrap();
            gate.enforce(&gate.lower(&policy).unwrap()).unwrap();
            for (ends, number) in packets {
                let degree = Degree::of(number);
                gate.set_degree(degree);
                let sequence = sent.get() + 1;
                sent.set(sequence);
                let packet = Packet { sequence, ..Packet::between(ends.client, ends.local) };
                let verdict = policy.syn(&ends, degree);
                let (verdict_of_policy, count) = expected(&gate, &policy, verdict);
                let before = gate.counts();
                let (found, answer) = gate.run_on(&packet.bytes()).unwrap();
                prop_assert_eq!(found, verdict_of_policy, "{:?}: {:?}", &packet, verdict);
                let after = gate.counts();
                for one in Count::ALL {
                    let more = after[one as usize] - before[one as usize];
                    let expected = u64::from(one == count || one == Count::Syns);
                    prop_assert_eq!(more, expected, "{:?} of {:?}: {:?}", one, &packet, verdict);
                }
                if found == REDIRECTED {
                    let numbers = assert_reset(&answer, &packet);
                    prop_assert_eq!(numbers, (0, sequence.wrapping_add(1), RST | ACK));
                }
            }
            Ok(())
        });
        judged.unwrap();
    });
}
