//! Packets of every kind, and the verdicts on them.

use super::filters::soon;
use super::packets::{ACK, FIN, Packet, RST, SYN, assert_reset};
use super::{in_namespace, listen, load};
use crate::{Charge, Count, Gate, Tally};
use forebay_policy::condition::Conditions;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, Limit, Over, Rule};
use forebay_policy::{GivenWord, Policy};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;

pub(super) const UNTOUCHED: u32 = u32::MAX;
pub(super) const DROPPED: u32 = 2;
pub(super) const REDIRECTED: u32 = 7;

fn rule(name: &str, client: &str) -> Rule {
    let client = vec![Endpoint::parse(client).unwrap()];
    let conditions = Conditions { client, ..Conditions::default() };
    Rule { name: name.to_owned(), conditions, ..Rule::default() }
}

fn limit(over: Over, burst: u32) -> Option<Limit> {
    Some(Limit { over, ..Limit::new(Rate::parse("1/h").unwrap(), burst) })
}

fn gate(charge: Charge, rules: Vec<Rule>) -> Gate {
    let gate = load(charge);
    gate.enforce(&gate.lower(&Policy::new(&[], rules).unwrap()).unwrap()).unwrap();
    gate
}

/// A gate with listeners that it knows and that are open.
struct Set {
    gate: Gate,
    sockets: Vec<TcpListener>,
}

impl Set {
    fn new(charge: Charge, rules: Vec<Rule>) -> Set {
        let (sockets, addresses) = listen(&[8080]);
        let gate = gate(charge, rules);
        gate.attach(&addresses).unwrap();
        Set { gate, sockets }
    }

    #[track_caller]
    fn expect(&self, packet: &Packet, verdict: u32, counted: &[Count]) -> Vec<u8> {
        let before = self.gate.counts();
        let (found, bytes) = self.gate.run_on(&packet.bytes()).unwrap();
        assert_eq!(found, verdict, "{packet:?}");
        let after = self.gate.counts();
        for (at, count) in Count::ALL.into_iter().enumerate() {
            let expected = u64::from(counted.contains(&count));
            assert_eq!(after[at] - before[at], expected, "{count:?} of {packet:?}");
        }
        if verdict == UNTOUCHED {
            assert_eq!(bytes, packet.bytes());
        }
        bytes
    }
}

const PASSED: &[Count] = &[Count::Syns, Count::Passed];

/// Whether a connection of port 8080 is in TIME_WAIT.
fn has_time_wait() -> bool {
    let tables = ["tcp", "tcp6"].map(|name| format!("/proc/thread-self/net/{name}"));
    tables.iter().any(|table| {
        fs::read_to_string(table).unwrap().lines().any(|line| {
            // number, local end, remote end, state (proc_net_tcp(5))
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| local.ends_with(":1F90")) && words.nth(1) == Some("06")
        })
    })
}

/// The server closes first, and has TIME_WAIT: rules hold for a SYN there, too.
#[test]
fn a_syn_in_the_place_of_an_ended_connection_is_judged() {
    in_namespace(|| {
        let set = Set::new(Charge::AtHandshake, vec![]);
        let client = TcpStream::connect("127.0.0.1:8080").unwrap();
        let from = client.local_addr().unwrap().to_string();
        drop(set.sockets[0].accept().unwrap());
        drop(client);
        // the segments that end the connection may be under way
        assert!(soon(has_time_wait));
        let syn = Packet::syn(&from, "127.0.0.1:8080");
        set.expect(&syn, UNTOUCHED, PASSED);
        let drops = vec![Rule { action: Some(Action::Drop), ..rule("foes", "127.0.0.0/8") }];
        let drops = Policy::new(&[], drops).unwrap();
        set.gate.enforce(&set.gate.lower(&drops).unwrap()).unwrap();
        set.expect(&syn, DROPPED, &[Count::Syns, Count::Dropped]);
    });
}

#[test]
fn actions_are_silence_and_resets() {
    in_namespace(|| {
        let set = Set::new(
            Charge::AtHandshake,
            vec![
                Rule { action: Some(Action::Allow), ..rule("friend", "10.0.0.7") },
                Rule { action: Some(Action::Drop), ..rule("foes", "10.0.0.0/8") },
                Rule { action: Some(Action::Drop), ..rule("foes6", "fd00::/8") },
                Rule { action: Some(Action::Reset), ..rule("told", "192.0.2.0/24") },
                Rule { action: Some(Action::Reset), ..rule("told6", "2001:db8::/32") },
                Rule { action: Some(Action::Reject(403)), ..rule("403", "198.51.100.0/24") },
            ],
        );
        let at4 = "127.0.0.1:8080";
        set.expect(&Packet::syn("10.0.0.7:4000", at4), UNTOUCHED, PASSED);
        set.expect(&Packet::syn("203.0.113.1:4000", at4), UNTOUCHED, PASSED);
        let dropped = &[Count::Syns, Count::Dropped];
        set.expect(&Packet::syn("10.0.0.8:4000", at4), DROPPED, dropped);
        set.expect(&Packet::syn("[fd00::1]:4000", "[::1]:8080"), DROPPED, dropped);
        let left = &[Count::Syns, Count::LeftUser];
        set.expect(&Packet::syn("198.51.100.1:4000", at4), UNTOUCHED, left);
        for (client, local) in [("192.0.2.1:4000", at4), ("[2001:db8::1]:4000", "[::1]:8080")] {
            for options in [vec![], vec![2, 4, 5, 0xb4], vec![1; 40]] {
                let packet = Packet { options, ..Packet::syn(client, local) };
                let answer = set.expect(&packet, REDIRECTED, &[Count::Syns, Count::Reset]);
                assert_eq!(assert_reset(&answer, &packet), (0, 1001, RST | ACK));
            }
        }
        assert_eq!(set.gate.tally("foes"), Tally { dropped: 1, ..Tally::default() });
        assert_eq!(set.gate.tally("told"), Tally { reset: 3, ..Tally::default() });
    });
}

#[test]
fn what_is_no_syn_for_us_is_left_alone() {
    in_namespace(|| {
        let rules = vec![Rule { action: Some(Action::Drop), ..rule("all", "*") }];
        let set = Set::new(Charge::AtHandshake, rules);
        let syn4 = Packet::syn("10.0.0.1:4000", "127.0.0.1:8080");
        let syn6 = Packet::syn("[fd00::1]:4000", "[::1]:8080");
        for syn in [&syn4, &syn6] {
            set.expect(syn, DROPPED, &[Count::Syns, Count::Dropped]);
            for flags in
                [0, ACK, RST, RST | ACK, FIN, FIN | ACK, SYN | ACK, SYN | FIN, SYN | RST, 8 | ACK]
            {
                set.expect(&Packet { flags, ..syn.clone() }, UNTOUCHED, &[]);
            }
            // with flags of congestion control or PSH it is still a SYN
            for flags in [SYN | 0xc0, SYN | 8] {
                let packet = Packet { flags, ..syn.clone() };
                set.expect(&packet, DROPPED, &[Count::Syns, Count::Dropped]);
            }
            let data = b"GET / HTTP/1.0\r\n\r\n".to_vec();
            let packet = Packet { data, ..syn.clone() };
            set.expect(&packet, DROPPED, &[Count::Syns, Count::Dropped]);
            // no listener of ours; then another program's
            let mut other = syn.clone();
            other.local.set_port(8081);
            set.expect(&other, UNTOUCHED, &[]);
            let _stranger = TcpListener::bind(other.local).unwrap();
            set.expect(&other, UNTOUCHED, &[]);
        }
        // a packet that is only forwarded
        set.expect(&Packet::syn("10.0.0.1:4000", "192.0.2.1:8080"), UNTOUCHED, &[]);

        let options = Packet { between: vec![1, 1, 1, 0], ..syn4.clone() };
        set.expect(&options, UNTOUCHED, &[Count::LeftOptions]);
        for kind in [0, 43, 60] {
            let between = vec![kind, 6, 0, 1, 4, 0, 0, 0, 0];
            let packet = Packet { between, ..syn6.clone() };
            set.expect(&packet, UNTOUCHED, &[Count::LeftOptions]);
        }
        // not TCP
        let packet = Packet { between: vec![0, 58, 0, 5, 2, 0, 0, 1, 0], ..syn6.clone() };
        set.expect(&packet, UNTOUCHED, &[]);
        let packet = Packet { between: vec![44, 6, 0, 0, 1, 0, 0, 0, 1], ..syn6.clone() };
        set.expect(&packet, UNTOUCHED, &[Count::LeftFragment]);
        for fragment in [0x2000, 1, 0x2001] {
            let packet = Packet { fragment, ..syn4.clone() };
            set.expect(&packet, UNTOUCHED, &[Count::LeftFragment]);
        }
        // a frame of a VLAN is judged on the VLAN's device
        let mut tagged = syn4.bytes();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(set.gate.run_on(&tagged).unwrap(), (UNTOUCHED, tagged));
        // not a fragment: "don't"
        let packet = Packet { fragment: 0x4000, ..syn4.clone() };
        set.expect(&packet, DROPPED, &[Count::Syns, Count::Dropped]);
    });
}

#[test]
fn a_socket_of_somebody_else_on_our_port_is_left_alone() {
    in_namespace(|| {
        let gate =
            gate(Charge::AtSyn, vec![Rule { action: Some(Action::Drop), ..rule("all", "*") }]);
        let (ours, stranger) = ("127.0.0.1:8080", "127.0.0.9:8080");
        let _sockets = [ours, stranger].map(|address| TcpListener::bind(address).unwrap());
        gate.attach(&[ours.parse().unwrap()]).unwrap();
        let run = |local| gate.run_on(&Packet::syn("10.0.0.1:1", local).bytes()).unwrap().0;
        assert_eq!((run(ours), run(stranger)), (DROPPED, UNTOUCHED));
        // detach and attach again
        gate.attach(&[]).unwrap();
        assert_eq!(run(ours), UNTOUCHED);
        gate.attach(&[ours.parse().unwrap(), stranger.parse().unwrap()]).unwrap();
        assert_eq!((run(ours), run(stranger)), (DROPPED, DROPPED));
    });
}

#[test]
fn packets_that_are_cut_or_bent_are_left_alone() {
    in_namespace(|| {
        let rules = vec![Rule { action: Some(Action::Reset), ..rule("all", "*") }];
        let set = Set::new(Charge::AtHandshake, rules);
        for packet in [
            Packet::syn("10.0.0.1:4000", "127.0.0.1:8080"),
            Packet::syn("[fd00::1]:4000", "[::1]:8080"),
        ] {
            let whole = packet.bytes();
            for bytes in 14..whole.len() - packet.options.len() {
                // the kernel rejects packets shorter than an Ethernet header, and some short IP headers
                if let Ok((verdict, after)) = set.gate.run_on(&whole[..bytes]) {
                    assert_eq!((verdict, &after[..]), (UNTOUCHED, &whole[..bytes]), "{bytes}");
                }
            }
            // every byte of the headers in every value: the program ends in each case
            for at in 12..whole.len() {
                for value in 0..=255 {
                    let mut bent = whole.clone();
                    bent[at] = value;
                    if let Ok((verdict, after)) = set.gate.run_on(&bent) {
                        assert!(
                            [UNTOUCHED, DROPPED, REDIRECTED].contains(&verdict),
                            "{at} {value}"
                        );
                        assert!(verdict == REDIRECTED || after == bent, "{at} {value}");
                    }
                }
            }
        }
        let counts = set.gate.counts();
        assert!(counts[Count::LeftShort as usize] > 0);
        let [syns, rest @ ..] = &counts[..=Count::LeftRace as usize] else { panic!() };
        assert_eq!(*syns, rest.iter().sum::<u64>(), "{counts:?}");
    });
}

#[test]
fn a_syn_is_charged_once() {
    in_namespace(|| {
        let rules = || {
            vec![
                Rule { connections: limit(Over::Drop, 2), ..rule("slow", "10.0.0.0/8") },
                Rule { connections: limit(Over::Reset, 1), ..rule("told", "192.0.2.0/24") },
            ]
        };
        let set = Set::new(Charge::AtSyn, rules());
        let (client, at) = (|port| format!("10.0.0.1:{port}"), "127.0.0.1:8080");
        let first = Packet::syn(&client(1), at);
        set.expect(&first, UNTOUCHED, PASSED);
        for _ in 0..3 {
            set.expect(&first, UNTOUCHED, &[Count::Syns, Count::Repeated]);
        }
        // another attempt from the same port
        set.expect(&Packet { sequence: 7, ..first.clone() }, UNTOUCHED, PASSED);
        let third = Packet::syn(&client(3), at);
        for _ in 0..2 {
            set.expect(&third, DROPPED, &[Count::Syns, Count::Dropped]);
        }
        let expected = Tally { admitted: 2, dropped: 2, ..Tally::default() };
        assert_eq!(set.gate.tally("slow"), expected);
        let told = Packet::syn("192.0.2.1:1", at);
        set.expect(&told, UNTOUCHED, PASSED);
        let told = Packet::syn("192.0.2.1:2", at);
        let answer = set.expect(&told, REDIRECTED, &[Count::Syns, Count::Reset]);
        assert_eq!(assert_reset(&answer, &told), (0, 1001, RST | ACK));

        // user space learns of the charge, once
        let slot = set.gate.slot("slow").unwrap();
        let asked = |slot| set.gate.take_charged(first.client, first.local, slot);
        assert!(asked(slot));
        assert!(!asked(slot));
        set.gate.run_on(&told.bytes()).unwrap();
        assert!(!set.gate.take_charged("192.0.2.1:1".parse().unwrap(), told.local, slot));

        // the charge survives new tables
        let tables = set.gate.lower(&Policy::new(&[], rules()).unwrap()).unwrap();
        set.gate.enforce(&tables).unwrap();
        set.expect(&third, DROPPED, &[Count::Syns, Count::Dropped]);
        set.gate.word("slow", GivenWord::Connections).unwrap().store(0, Relaxed);
        set.expect(&third, UNTOUCHED, PASSED);
        assert!(
            set.gate.word("slow", GivenWord::Connections).unwrap().load(Relaxed)
                > 3_600_000_000_000
        );
    });
}

#[test]
fn a_syn_only_looks_where_handshakes_are_charged() {
    in_namespace(|| {
        let rules = vec![Rule { connections: limit(Over::Drop, 1), ..rule("slow", "10.0.0.0/8") }];
        let set = Set::new(Charge::AtHandshake, rules);
        let word = set.gate.word("slow", GivenWord::Connections).unwrap();
        for port in 1..100 {
            let packet = Packet::syn(&format!("10.0.0.1:{port}"), "127.0.0.1:8080");
            set.expect(&packet, UNTOUCHED, PASSED);
            // no SYN-ACK was sent: these segments prove nothing
            for flags in [ACK, ACK | 8, ACK | FIN] {
                let packet = Packet { flags, sequence: 1001, acknowledged: 99, ..packet.clone() };
                set.expect(&packet, UNTOUCHED, &[]);
            }
            assert_eq!(word.load(Relaxed), 0);
            let slot = set.gate.slot("slow").unwrap();
            assert!(!set.gate.take_charged(packet.client, packet.local, slot));
        }
        // the bucket is empty, and the SYN is refused by a look at it
        word.store(u64::MAX, Relaxed);
        let packet = Packet::syn("10.0.0.1:4000", "127.0.0.1:8080");
        set.expect(&packet, DROPPED, &[Count::Syns, Count::Dropped]);
        assert_eq!(word.load(Relaxed), u64::MAX);
    });
}

#[test]
fn ignored_clients_get_nothing_for_a_while() {
    in_namespace(|| {
        let ignore = Limit { ignore_ms: Some(1000), ..limit(Over::Drop, 1000).unwrap() };
        let rules = vec![Rule { connections: Some(ignore), ..rule("all", "*") }];
        let set = Set::new(Charge::AtSyn, rules);
        for (client, neighbour, local) in [
            ("10.0.0.1:1", "10.0.0.2:1", "127.0.0.1:8080"),
            ("[2001:db8:0:1::1]:1", "[2001:db8:0:2::1]:1", "[::1]:8080"),
        ] {
            let packet = Packet::syn(client, local);
            set.gate.ignore(packet.client.ip(), u64::MAX);
            set.expect(&packet, DROPPED, &[Count::Syns, Count::Ignored]);
            set.expect(&Packet::syn(neighbour, local), UNTOUCHED, PASSED);
            set.gate.ignore(packet.client.ip(), 1);
            set.expect(&packet, UNTOUCHED, PASSED);
        }
        // a /64 is one client
        set.gate.ignore("2001:db8:0:1::1".parse().unwrap(), u64::MAX);
        let packet = Packet::syn("[2001:db8:0:1::2]:1", "[::1]:8080");
        set.expect(&packet, DROPPED, &[Count::Syns, Count::Ignored]);
    });
}

#[test]
fn nothing_stays_attached() {
    in_namespace(|| {
        let set = Set::new(Charge::AtSyn, Vec::new());
        assert_eq!(set.gate.interfaces(), [1]);
        set.gate.detach();
        assert!(set.gate.interfaces().is_empty());
    });
}
