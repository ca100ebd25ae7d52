//! Tests of other servers that are protected: packets, and real connections over the loopback.

use super::first_packets::{judging, refusing};
use super::in_namespace;
use super::packets::Packet;
use super::steer::{PATIENCE, Steered, gold_and_silver, head, policy};
use super::vectors::{DROPPED, UNTOUCHED};
use crate::{Charge, Count, FirstCount, Gate, GateError, OtherServer};
use forebay_policy::condition::Conditions;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, Limit, Over, Rule};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

pub(super) const OTHER: &str = "127.0.0.1:9090";

pub(super) fn here(queue: u32) -> OtherServer {
    OtherServer { forwarded_to: None, port: 9090, queue, speaks_first: false }
}

/// A gate that judges for its own listeners and for another server.
pub(super) fn protecting(rules: Vec<Rule>, queue: u32) -> (Steered, TcpListener) {
    let other = TcpListener::bind(OTHER).unwrap();
    let steered = judging(&policy(rules));
    steered.gate.protect(&[here(queue)]).unwrap();
    let own: Vec<_> = steered.public.iter().map(|one| one.local_addr().unwrap()).collect();
    steered.gate.attach(&own).unwrap();
    steered.place(&steered.classes, false);
    (steered, other)
}

/// The verdict on the first request with this path, of a client with this port.
pub(super) fn ask(steered: &Steered, port: u16, path: &str) -> u32 {
    let client = SocketAddr::new([127, 0, 0, 9].into(), port);
    let segment = steered.begin(client, OTHER.parse().unwrap(), true, head(path));
    steered.gate.run_on(&segment.bytes()).unwrap().0
}

pub(super) fn send(path: &str) -> TcpStream {
    let mut client = TcpStream::connect(OTHER).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(&head(path)).unwrap();
    client
}

#[test]
fn its_connections_are_made_on_its_own_socket() {
    in_namespace(|| {
        let mut rules = gold_and_silver();
        rules.push(refusing("no", "/no", Action::Reject(403)));
        let (steered, other) = protecting(rules, 1);
        for path in ["/gold/a", "/silver", "/other", "/%6fther"] {
            let mut client = send(path);
            let (mut server, from) = other.accept().unwrap();
            assert_eq!(from, client.local_addr().unwrap());
            assert_eq!(server.local_addr().unwrap(), OTHER.parse().unwrap());
            let mut asked = vec![0; head(path).len()];
            server.read_exact(&mut asked).unwrap();
            assert_eq!(asked, head(path));
            server.write_all(b"answer").unwrap();
            drop(server);
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "answer");
        }
        let mut refused = send("/no");
        let mut answer = String::new();
        refused.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert_eq!(steered.counted(Count::MadeOther), 4);
        assert_eq!(steered.first(FirstCount::Answered), 1);
        // no server is protected any more: the stack does everything
        steered.gate.protect(&[]).unwrap();
        let own: Vec<_> = steered.public.iter().map(|one| one.local_addr().unwrap()).collect();
        steered.gate.attach(&own).unwrap();
        let _client = send("/no");
        other.accept().unwrap();
        assert_eq!(steered.counted(Count::MadeOther), 4);
        let many = vec![here(1); 65];
        assert!(matches!(steered.gate.protect(&many), Err(GateError::TooMany)));
    });
}

/// One socket for both families, as Apache listens.
#[test]
fn a_socket_of_both_families_is_protected_for_both() {
    in_namespace(|| {
        let steered = judging(&policy(vec![refusing("no", "/no", Action::Reject(403))]));
        let other = TcpListener::bind("[::]:9090").unwrap();
        steered.gate.protect(&[here(1)]).unwrap();
        let own: Vec<_> = steered.public.iter().map(|one| one.local_addr().unwrap()).collect();
        steered.gate.attach(&own).unwrap();
        steered.place(&steered.classes, false);
        for (made, address) in (1..).zip([OTHER, "[::1]:9090"]) {
            let mut client = TcpStream::connect(address).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.write_all(&head("/yes")).unwrap();
            let (mut server, from) = other.accept().unwrap();
            assert_eq!(from.ip().to_canonical(), client.local_addr().unwrap().ip());
            // unread data would turn the close into a reset
            server.read_exact(&mut vec![0; head("/yes").len()]).unwrap();
            server.write_all(b"answer").unwrap();
            drop(server);
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "answer");
            assert_eq!(steered.counted(Count::MadeOther), made);
            let mut refused = TcpStream::connect(address).unwrap();
            refused.set_read_timeout(Some(PATIENCE)).unwrap();
            refused.write_all(&head("/no")).unwrap();
            let mut answer = String::new();
            refused.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        }
    });
}

#[test]
fn classes_take_their_turns_while_somebody_waits() {
    in_namespace(|| {
        let (steered, other) = protecting(gold_and_silver(), 1);
        assert_eq!(ask(&steered, 1, "/other"), UNTOUCHED);
        let waiting = send("/other");
        assert!(super::filters::soon(|| steered.counted(Count::MadeOther) == 1));
        // behind the waiting connection the first class is made, the lower ones are not
        assert_eq!(ask(&steered, 2, "/other"), DROPPED);
        assert_eq!(ask(&steered, 3, "/silver"), DROPPED);
        assert_eq!(ask(&steered, 4, "/gold/a"), UNTOUCHED);
        assert_eq!(steered.counted(Count::TurnedAway), 2);
        drop(other.accept().unwrap());
        drop(waiting);
        // with no connection waiting there is nothing to order, although silver was turned away
        assert_eq!(ask(&steered, 2, "/other"), UNTOUCHED);
        assert_eq!(ask(&steered, 3, "/silver"), UNTOUCHED);
        assert_eq!(ask(&steered, 5, "/gold/a"), UNTOUCHED);
        // a request of unknown class has the default class, the last
        let _waiting = send("/other");
        assert!(super::filters::soon(|| steered.counted(Count::MadeOther) == 2));
        assert_eq!(ask(&steered, 6, "/%6fther"), DROPPED);
    });
}

#[test]
fn who_was_told_to_come_again_goes_first_while_others_wait() {
    in_namespace(|| {
        let (steered, other) = protecting(gold_and_silver(), 2);
        let _waiting: Vec<TcpStream> = (1..3)
            .map(|made| {
                let client = send("/other");
                assert!(super::filters::soon(|| steered.counted(Count::MadeOther) == made));
                client
            })
            .collect();
        assert_eq!(ask(&steered, 3, "/silver"), DROPPED);
        drop(other.accept().unwrap());
        // there is room behind the one that waits: for silver, and for bulk after silver has had its turn
        assert_eq!(ask(&steered, 2, "/other"), DROPPED);
        assert_eq!(ask(&steered, 3, "/silver"), UNTOUCHED);
        assert_eq!(ask(&steered, 2, "/other"), UNTOUCHED);
    });
}

#[test]
fn more_may_wait_where_that_is_said_and_none_beyond_the_backlog() {
    in_namespace(|| {
        let (steered, other) = protecting(gold_and_silver(), 3);
        // SAFETY: it listens already, and only its backlog becomes another.
        let result = unsafe {
            use std::os::fd::AsRawFd;
            libc::listen(other.as_raw_fd(), 3)
        };
        assert_eq!(result, 0);
        let _waiting: Vec<TcpStream> = (1..4)
            .map(|made| {
                let client = send("/other");
                assert!(super::filters::soon(|| steered.counted(Count::MadeOther) == made));
                client
            })
            .collect();
        assert_eq!(ask(&steered, 1, "/other"), DROPPED);
        let _gold = send("/gold/a");
        assert!(super::filters::soon(|| steered.counted(Count::MadeOther) == 4));
        // the kernel would drop the segment silently
        assert_eq!(ask(&steered, 2, "/gold/a"), DROPPED);
        assert_eq!(steered.counted(Count::TurnedAway), 2);
    });
}

#[test]
fn syns_are_judged_on_both_rungs_and_those_of_other_machines() {
    in_namespace(|| {
        let _other = TcpListener::bind(OTHER).unwrap();
        let limit = Limit { over: Over::Drop, ..Limit::new(Rate::parse("1/h").unwrap(), 2) };
        let of = |name: &str, local: &str| Rule {
            name: name.to_owned(),
            conditions: Conditions {
                local: vec![Endpoint::parse(local).unwrap()],
                ..Conditions::default()
            },
            connections: Some(limit),
            ..Rule::default()
        };
        let policy = policy(vec![of("here", "*:9090"), of("there", "192.0.2.7")]);
        let there = |address: &str| OtherServer {
            forwarded_to: Some(address.parse().unwrap()),
            port: 443,
            queue: 1,
            speaks_first: false,
        };
        let gate = Gate::load(Charge::AtHandshake).unwrap();
        gate.enforce(&gate.lower(&policy).unwrap()).unwrap();
        let syn = |port: u16, local: &str| {
            let client = SocketAddr::new([10, 1, 1, 1].into(), port);
            let syn = Packet::between(client, local.parse().unwrap());
            gate.run_on(&syn.bytes()).unwrap().0
        };
        gate.protect(&[here(1), there("192.0.2.7"), there("192.0.2.8")]).unwrap();
        gate.attach(&[]).unwrap();
        // a SYN for this machine only looks at the bucket; one for another machine is charged
        assert_eq!([1, 2, 3].map(|port| syn(port, OTHER)), [UNTOUCHED; 3]);
        let forwarded = [1, 2, 3, 4].map(|port| syn(port, "192.0.2.7:443"));
        assert_eq!(forwarded, [UNTOUCHED, UNTOUCHED, DROPPED, DROPPED]);
        // a retransmitted SYN was admitted before
        assert_eq!(syn(1, "192.0.2.7:443"), UNTOUCHED);
        assert_eq!([1, 2, 3].map(|port| syn(port, "192.0.2.8:443")), [UNTOUCHED; 3]);
        let before = gate.counts()[Count::Syns as usize];
        for nobodys in ["192.0.2.7:80", "192.0.2.9:443", "127.0.0.1:9091"] {
            assert_eq!(syn(9, nobodys), UNTOUCHED);
        }
        assert_eq!(gate.counts()[Count::Syns as usize], before);
        gate.protect(&[here(1)]).unwrap();
        gate.attach(&[]).unwrap();
        assert_eq!(syn(5, "192.0.2.7:443"), UNTOUCHED);
        assert_eq!(gate.counts()[Count::Syns as usize], before);
    });
}
