//! First requests that are judged: real connections over the loopback, buckets that user space shares, and
//! the same verdict as user space.

use super::agree::{AskedFirst, agrees, outcome};
use super::filters::soon;
use super::first_packets::{judging, limited, refusing};
use super::in_namespace;
use super::steer::{PUBLIC, Steered, first, head, policy, rule};
use super::vectors::{DROPPED, REDIRECTED, UNTOUCHED};
use crate::{Count, FirstCount};
use forebay_http::cidr::CidrBlock;
use forebay_policy::bucket::BucketTerms;
use forebay_policy::condition::Conditions;
use forebay_policy::decision::RefusalAnswer;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::first::{FirstRequest, FirstSegment};
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, InFlight, Limit, Over, Per, Rule};
use forebay_policy::spared::{SparedAs, SparedClients};
use forebay_policy::{GivenWord, Policy};
use proptest::prelude::*;
use proptest::sample::select;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

impl Steered {
    /// The answer to a client that sends `data`.
    fn get(&self, family: usize, data: &[u8]) -> std::io::Result<String> {
        let mut client = TcpStream::connect(PUBLIC[family]).unwrap();
        client.set_read_timeout(Some(super::steer::PATIENCE)).unwrap();
        client.write_all(data)?;
        let mut answer = String::new();
        client.read_to_string(&mut answer)?;
        Ok(answer)
    }

    #[track_caller]
    fn has_no_connection(&self) {
        for listener in self.public.iter().chain(self.classes.iter().flatten().flatten()) {
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    }

    fn is_refused(&self, count: FirstCount, before: u64) -> bool {
        soon(|| self.first(count) > before)
    }
}

#[test]
fn a_refused_request_makes_no_connection() {
    in_namespace(|| {
        let steered = judging(&policy(vec![
            refusing("no", "/no/*", Action::Reject(403)),
            refusing("reset", "/reset", Action::Reset),
            limited("slow", "/slow", 2, Over::Reject { status: Some(429) }),
        ]));
        for (family, public) in PUBLIC.into_iter().enumerate() {
            for _ in 0..20 {
                let answer = steered.get(family, &head("/no/a")).unwrap();
                assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
                assert!(answer.ends_with("\r\n\r\n403 Forbidden\n"), "{answer}");
            }
            let error = steered.get(family, &head("/reset")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            // a request with a body, and one with a FIN
            let post =
                [&b"POST /no/a HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n"[..], &[1; 900]];
            assert!(steered.get(family, &post.concat()).unwrap().contains(" 403 "));
            let mut half = TcpStream::connect(public).unwrap();
            half.set_read_timeout(Some(super::steer::PATIENCE)).unwrap();
            half.write_all(&head("/no/b")).unwrap();
            half.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            half.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(" 403 "), "{answer}");
            let of_head = steered.get(family, b"HEAD /no/a HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            assert!(of_head.contains("\r\nContent-Length: 14\r\n"), "{of_head}");
            assert!(of_head.ends_with("\r\n\r\n"), "{of_head}");
        }
        steered.has_no_connection();
        assert_eq!(steered.first(FirstCount::Answered), 46);
        assert_eq!(steered.gate.tally("no").answered, 46);
        // every client's FIN is acknowledged
        assert!(
            soon(|| steered.first(FirstCount::Acked) >= 44),
            "{:?}",
            steered.gate.first_counts()
        );
        // both families share the bucket
        for (family, (charged, answered)) in [(2, 1), (0, 3)].into_iter().enumerate() {
            let before = steered.first(FirstCount::Charged);
            let mut made = Vec::new();
            for _ in 0..charged {
                made.push(steered.send(family, &[&head("/slow")]));
            }
            for _ in 0..answered {
                let answer = steered.get(family, &head("/slow")).unwrap();
                assert!(answer.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{answer}");
                assert!(answer.contains("\r\nRetry-After: 3600\r\n"), "{answer}");
            }
            assert_eq!(steered.first(FirstCount::Charged), before + charged);
            assert!(made.iter().all(|(rank, ..)| *rank == Some(2)));
        }
        steered.has_no_connection();
        assert_eq!(steered.counted(Count::Made), 2);
        // a request that the program cannot judge becomes a connection, which user space judges
        let (rank, ..) = steered.send(0, &[b"GET /n", b"o/a HTTP/1.1\r\n\r\n"]);
        assert_eq!(rank, None);
        assert!(steered.is_refused(FirstCount::Left, 0));
    });
}

/// A device (GRO), or the sender itself, may merge several segments into one packet.
#[test]
fn segments_that_were_put_together_are_answered_once() {
    in_namespace(|| {
        let mtu = Command::new("ip").args(["link", "set", "lo", "mtu", "1500"]).status().unwrap();
        assert!(mtu.success());
        let steered = judging(&policy(vec![refusing("no", "/no", Action::Reject(403))]));
        let head = b"POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n";
        for family in 0..2 {
            let answer = steered.get(family, &[&head[..], &[b'x'; 9000]].concat()).unwrap();
            assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        }
        steered.has_no_connection();
        assert_eq!(steered.first(FirstCount::Answered), 2);
        assert_eq!(steered.first(FirstCount::Damaged), 0);
    });
}

#[test]
fn user_space_and_the_kernel_charge_the_same_bucket() {
    in_namespace(|| {
        let slow = limited("slow", "/slow", 3, Over::Reset);
        let terms = BucketTerms::of(slow.requests.as_ref().unwrap());
        let policy = policy(vec![slow]);
        let steered = judging(&policy);
        let tables = steered.gate.lower(&policy).unwrap();
        let word = steered.gate.word("slow", GivenWord::Requests).unwrap();
        let (_, client, server) = steered.send(0, &[&head("/slow")]);
        let (from, to) = (client.local_addr().unwrap(), server.local_addr().unwrap());
        let slot = steered.gate.take_charged_request(from, to).unwrap();
        assert_eq!(tables.rule_of_requests(slot), Some(0));
        assert_eq!(steered.gate.take_charged_request(from, to), None, "it is told once");
        // user space charges one request that it has judged by itself
        let now = super::same::now_ns();
        forebay_policy::bucket::charge(word, now, &terms).unwrap();
        let (_, _second, _) = steered.send(0, &[&head("/slow")]);
        let error = steered.get(0, &head("/slow")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(forebay_policy::bucket::available(word, now, &terms), 0);
        // a refunded charge is there for the next request
        forebay_policy::bucket::refund(word, &terms);
        steered.send(0, &[&head("/slow")]);
        assert_eq!(steered.first(FirstCount::Charged), 3);
        // the charge of an earlier connection does not count for one that was not charged
        let ends = ("127.0.0.1:1500".parse().unwrap(), PUBLIC[0].parse().unwrap());
        word.store(0, Relaxed);
        for (path, charged) in [("/slow", true), ("/slow", true), ("/free", false)] {
            let segment = steered.begin(ends.0, ends.1, true, head(path));
            assert_eq!(steered.gate.run_on(&segment.bytes()).unwrap().0, UNTOUCHED);
            if path == "/free" || steered.first(FirstCount::Charged) == 4 {
                let found = steered.gate.take_charged_request(ends.0, ends.1);
                assert_eq!(found.is_some(), charged, "{path}");
            }
        }
    });
}

#[test]
fn requests_at_once_are_refused_while_user_space_says_so() {
    in_namespace(|| {
        let at_once = InFlight { most: 1, per: Per::Rule, over: Over::default() };
        let one = Rule { class: None, in_flight: Some(at_once), ..rule("one", "bulk", &["/one"]) };
        let steered = judging(&policy(vec![one]));
        let word = steered.gate.word("one", GivenWord::FullUntil).unwrap();
        steered.send(1, &[&head("/one")]);
        word.store(u64::MAX, Relaxed);
        let answer = steered.get(1, &head("/one")).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
        assert!(answer.contains("\r\nRetry-After: 1\r\n"), "{answer}");
        steered.has_no_connection();
        // the time until which the limit is reached has passed
        word.store(1, Relaxed);
        steered.send(1, &[&head("/one")]);
        assert_eq!(steered.first(FirstCount::Answered), 1);
    });
}

#[test]
fn connections_that_a_rule_answers_cost_no_accept_either() {
    in_namespace(|| {
        let of = |client: &str| Conditions {
            client: vec![Endpoint::parse(client).unwrap()],
            ..Conditions::default()
        };
        let limit = Limit::new(Rate::parse("1/h").unwrap(), 1);
        let rules = vec![
            Rule {
                name: "told".to_owned(),
                conditions: of("127.0.0.2"),
                action: Some(Action::Reject(451)),
                ..Rule::default()
            },
            Rule {
                name: "few".to_owned(),
                conditions: of("127.0.0.3"),
                connections: Some(limit),
                ..Rule::default()
            },
            Rule {
                name: "none".to_owned(),
                conditions: of("127.0.0.4"),
                action: Some(Action::Reject(403)),
                ..Rule::default()
            },
            rule("gold", "gold", &["/gold"]),
        ];
        let mut spared = SparedClients::default();
        spared.add(CidrBlock::parse("127.0.0.4").unwrap(), SparedAs::TrustedProxy);
        let policy = policy(rules).sparing(spared);
        let steered = judging(&policy);
        let local: SocketAddr = PUBLIC[0].parse().unwrap();
        let ask = |client: &str, port: u16| {
            let client = SocketAddr::new(client.parse().unwrap(), port);
            let segment = steered.begin(client, local, true, head("/gold"));
            let verdict = steered.gate.run_on(&segment.bytes()).unwrap().0;
            // user space learns of charged connections as ever
            let tables = steered.gate.lower(&policy).unwrap();
            let few = tables.slot(1).unwrap();
            (verdict, steered.gate.take_charged(client, local, few))
        };
        assert_eq!(ask("127.0.0.2", 1), (REDIRECTED, false));
        assert_eq!(ask("127.0.0.3", 1), (UNTOUCHED, true));
        assert_eq!(ask("127.0.0.3", 2), (REDIRECTED, false));
        // a proxy forwards requests of other clients, so that its own address must not be judged
        assert_eq!(ask("127.0.0.4", 1), (UNTOUCHED, false));
        assert_eq!(ask("127.0.0.5", 1), (UNTOUCHED, false));
        let count = |count| steered.first(count);
        assert_eq!((count(FirstCount::Answered), count(FirstCount::Left)), (2, 1));
        assert_eq!(steered.gate.tally("few").admitted, 1);
        // with TLS no request can be read, and no page be sent
        steered.place(&steered.classes, true);
        assert_eq!(ask("127.0.0.2", 3), (UNTOUCHED, false));
        assert_eq!(count(FirstCount::Answered), 2);
    });
}

#[test]
fn classes_without_rules_are_enough_and_so_is_one() {
    in_namespace(|| {
        let no = Rule { class: None, ..refusing("no", "/no", Action::Reject(403)) };
        let steered = judging(&policy(vec![no.clone()]));
        assert!(steered.gate.answers());
        assert!(steered.get(0, &head("/no")).unwrap().contains(" 403 "));
        assert_eq!(steered.send(0, &[&head("/yes")]).0, Some(2));
        steered.has_no_connection();
        // without sockets for classes, admitted requests come to the public socket
        let alone = Policy::new(&[], vec![no]).unwrap();
        steered.gate.enforce(&steered.gate.lower(&alone).unwrap()).unwrap();
        steered.place(&[Vec::new(), Vec::new()], false);
        assert!(steered.gate.answers());
        let (made, answered) = (steered.counted(Count::Made), steered.first(FirstCount::Answered));
        for family in 0..2 {
            assert!(steered.get(family, &head("/no")).unwrap().contains(" 403 "));
            assert_eq!(steered.send(family, &[&head("/yes")]).0, None);
        }
        steered.has_no_connection();
        assert_eq!(steered.counted(Count::Made), made);
        assert_eq!(steered.counted(Count::MadePublic), 2);
        assert_eq!(steered.first(FirstCount::Answered), answered + 2);
        // with TLS no request can be read
        steered.place(&[Vec::new(), Vec::new()], true);
        assert_eq!(steered.send(0, &[&head("/no")]).0, None);
    });
}

/// The verdict on a first segment, and the counter, that follow from user space's decision.
fn expected(steered: &Steered, asked: &AskedFirst<'_>) -> (u32, FirstCount) {
    let AskedFirst { policy, ends, data, degree, full } = *asked;
    let refused = |answer| match answer {
        RefusalAnswer::Drop => (DROPPED, FirstCount::Dropped),
        RefusalAnswer::Reset => (REDIRECTED, FirstCount::Reset),
        RefusalAnswer::Reject { .. } => (REDIRECTED, FirstCount::Answered),
    };
    match policy.first_connection(ends, degree) {
        FirstRequest::Refuse(_, answer) => return refused(answer),
        FirstRequest::CannotTell => return (UNTOUCHED, FirstCount::Left),
        FirstRequest::Pass | FirstRequest::Charge(..) => {}
    }
    let Some(first) = FirstSegment::read(data) else { return (UNTOUCHED, FirstCount::Left) };
    let found = policy.first_request(ends, &first, degree, |rule| rule == full);
    outcome(steered, policy, found, refused)
}

#[test]
fn the_kernel_judges_first_requests_as_user_space_does() {
    in_namespace(|| {
        let steered = judging(&policy(vec![rule("gold", "gold", &["/gold"])]));
        let client = prop_oneof![
            select(vec!["127.0.0.1", "127.0.0.2"]).prop_map(|client| (client, PUBLIC[0])),
            Just(("::1", PUBLIC[1])),
        ];
        agrees(&steered, client, first(), |asked| expected(&steered, asked));
    });
}
