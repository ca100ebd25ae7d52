//! Tests of handshakes without state: packets, the same verdict as user space, and real connections over
//! the loopback.

use super::filters::soon;
use super::in_namespace;
use super::packets::{ACK, FIN, Packet, SYN};
use super::vectors::{DROPPED, REDIRECTED, UNTOUCHED};
use crate::{Charge, ClassSockets, Count, Gate};
use forebay_policy::Policy;
use forebay_policy::class::Class;
use forebay_policy::condition::Conditions;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::facts::ConnectionFacts;
use forebay_policy::field::FieldCondition;
use forebay_policy::first::{FirstHello, FirstSegment};
use forebay_policy::pattern::{MethodPattern, PathPattern, SitePattern};
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, Degree, Limit, Over, Rule, When};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::TestRunner;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const PATIENCE: Duration = Duration::from_secs(30);
pub(super) const PUBLIC: [&str; 2] = ["127.0.0.1:8080", "[::1]:8080"];

/// A gate that steers, its public listeners, and for each of them two sockets of each class.
pub(super) struct Steered {
    pub(super) gate: Gate,
    pub(super) public: Vec<TcpListener>,
    pub(super) classes: Vec<Vec<Vec<TcpListener>>>,
}

impl Steered {
    pub(super) fn new(policy: &Policy) -> Steered {
        Steered::by(Gate::load_steering(Charge::AtHandshake).unwrap(), policy)
    }

    pub(super) fn by(gate: Gate, policy: &Policy) -> Steered {
        gate.enforce(&gate.lower(policy).unwrap()).unwrap();
        let public = PUBLIC.map(|address| TcpListener::bind(address).unwrap());
        let mut steered = Steered { gate, public: public.into(), classes: Vec::new() };
        steered.renew(policy.classes().len());
        steered
    }

    /// Makes new sockets for the classes; returns the earlier ones.
    pub(super) fn renew(&mut self, ranks: usize) -> Vec<Vec<Vec<TcpListener>>> {
        let one = |public: &TcpListener| {
            let listener =
                TcpListener::bind(SocketAddr::new(public.local_addr().unwrap().ip(), 0)).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        };
        let of_rank = |public| (0..2).map(|_| one(public)).collect::<Vec<_>>();
        let of = |public| (0..ranks).map(|_| of_rank(public)).collect::<Vec<_>>();
        let new: Vec<_> = self.public.iter().map(of).collect();
        let addresses: Vec<_> =
            self.public.iter().map(|public| public.local_addr().unwrap()).collect();
        self.gate.attach(&addresses).unwrap();
        self.place(&new, false);
        self.public.iter().for_each(|public| public.set_nonblocking(true).unwrap());
        std::mem::replace(&mut self.classes, new)
    }

    /// Has another gate take the place of this one; returns the earlier sockets of classes.
    pub(super) fn take_place(&mut self, next: Gate) -> Vec<Vec<Vec<TcpListener>>> {
        let ranks = self.classes.first().map_or(0, Vec::len);
        next.enforce(&next.lower(&policy(gold_and_silver())).unwrap()).unwrap();
        self.gate = next;
        let before = self.renew(ranks);
        self.gate.settle();
        before
    }

    /// Gives the listeners these sockets of classes.
    pub(super) fn place(&self, classes: &[Vec<Vec<TcpListener>>], speaks_tls: bool) {
        let placed = self.public.iter().zip(classes).map(|(public, classes)| ClassSockets {
            address: public.local_addr().unwrap(),
            speaks_tls,
            sockets: classes.iter().map(|all| all.iter().map(AsFd::as_fd).collect()).collect(),
        });
        self.gate.place(&placed.collect::<Vec<_>>()).unwrap();
    }

    pub(super) fn counted(&self, count: Count) -> u64 {
        self.gate.counts()[count as usize]
    }

    /// Accepts the next connection; returns it with the number of its class, or `None` if it came to the
    /// public socket.
    pub(super) fn next(&self, family: usize) -> (Option<usize>, TcpStream) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let classes = self.classes[family].iter().enumerate();
            let of_class =
                classes.flat_map(|(rank, all)| all.iter().map(move |it| (Some(rank), it)));
            for (rank, listener) in of_class.chain([(None, &self.public[family])]) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        stream.set_nonblocking(false).unwrap();
                        stream.set_read_timeout(Some(PATIENCE)).unwrap();
                        return (rank, stream);
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            assert!(Instant::now() < deadline, "{:?}", self.gate.counts());
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Connects, sends `data` in pieces, and accepts the connection as [`next`](Steered::next) does.
    pub(super) fn send(
        &self,
        family: usize,
        pieces: &[&[u8]],
    ) -> (Option<usize>, TcpStream, TcpStream) {
        let mut client = TcpStream::connect(PUBLIC[family]).unwrap();
        client.set_nodelay(true).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        for piece in pieces {
            client.write_all(piece).unwrap();
        }
        let (rank, server) = self.next(family);
        assert_eq!(server.local_addr().unwrap(), PUBLIC[family].parse().unwrap());
        assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
        (rank, client, server)
    }
}

pub(super) fn rule(name: &str, class: &str, paths: &[&str]) -> Rule {
    let path = paths.iter().map(|text| PathPattern::parse(text).unwrap()).collect();
    let conditions = Conditions { path, ..Conditions::default() };
    Rule { name: name.to_owned(), class: Some(class.to_owned()), conditions, ..Rule::default() }
}

pub(super) fn policy(rules: Vec<Rule>) -> Policy {
    let classes = [Class::new("gold", 0), Class::new("silver", 1), Class::new("bulk", 2)];
    Policy::new(&classes, rules).unwrap()
}

pub(super) fn gold_and_silver() -> Vec<Rule> {
    vec![rule("gold", "gold", &["/gold/*"]), rule("silver", "silver", &["/silver"])]
}

pub(super) fn head(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// The options that both ends of a connection have agreed on: timestamps, selective acknowledgements, window
/// scale.
fn options(stream: &TcpStream) -> u8 {
    // SAFETY: all bytes zero are a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and so many bytes are writable.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut bytes,
        )
    };
    assert_eq!(result, 0);
    info.tcpi_options & 7
}

#[test]
fn connections_come_to_the_socket_of_their_class() {
    in_namespace(|| {
        let mut steered = Steered::new(&policy(gold_and_silver()));
        for family in 0..2 {
            for turn in 0..60 {
                let (path, rank) =
                    [("/gold/x", Some(0)), ("/silver", Some(1)), ("/other", Some(2))][turn % 3];
                let data = head(path);
                let (found, mut client, mut server) = steered.send(family, &[&data]);
                assert_eq!(found, rank, "{path}");
                let mut read = vec![0; data.len()];
                server.read_exact(&mut read).unwrap();
                assert_eq!(read, data);
                assert_eq!((options(&server), options(&client)), (7, 7));
                server.write_all(b"hello").unwrap();
                let mut answer = [0; 5];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(&answer, b"hello");
                // the client closes first, and so has TIME_WAIT: a SYN that meets TIME_WAIT of the server is
                // left to the stack, and the kernel reuses ports
                drop(client);
                assert_eq!(server.read(&mut [0]).unwrap(), 0);
            }
        }
        assert_eq!(steered.counted(Count::Made), 120);
        assert_eq!(steered.gate.judged(3), (vec![40, 40, 40], 0));

        // a megabyte each way, whose first segment is only the beginning
        let body = vec![b'x'; 1 << 20];
        let (rank, client, mut server) = steered.send(0, &[&head("/gold/large")]);
        assert_eq!(rank, Some(0));
        let sent = body.clone();
        let sender = thread::spawn(move || {
            (&client).write_all(&sent).unwrap();
            let mut answer = vec![0; sent.len()];
            (&client).read_exact(&mut answer).unwrap();
            answer
        });
        let mut read = vec![0; head("/gold/large").len() + body.len()];
        server.read_exact(&mut read).unwrap();
        server.write_all(&body).unwrap();
        assert!(sender.join().unwrap() == body);

        // other sockets replace these, as after a reload
        drop(steered.renew(3));
        assert_eq!(steered.send(1, &[&head("/gold/x")]).0, Some(0));
        // a class without a socket
        drop(steered.renew(1));
        assert_eq!(steered.send(0, &[&head("/gold/x")]).0, Some(0));
        assert_eq!(steered.send(0, &[&head("/silver")]).0, None);
        assert_eq!(steered.counted(Count::MadePublic), 1);
        // its socket was closed
        let sockets = steered.classes.iter().flatten().flatten();
        let closed: Vec<_> = sockets.map(|socket| socket.local_addr().unwrap()).collect();
        steered.classes = vec![Vec::new(), Vec::new()];
        // a process that another test is starting has a copy for a moment
        assert!(soon(|| closed.iter().all(|address| TcpStream::connect(address).is_err())));
        assert_eq!(steered.send(0, &[&head("/gold/x")]).0, None);
        assert_eq!(steered.counted(Count::NotMade), 0);
    });
}

#[test]
fn what_cannot_be_told_comes_to_the_public_listener() {
    in_namespace(|| {
        let steered = Steered::new(&policy(gold_and_silver()));
        for (family, public) in PUBLIC.into_iter().enumerate() {
            let hello = [&[0x16_u8, 3, 1, 2, 0, 1][..], &[7; 300]].concat();
            for pieces in [&[&hello[..]][..], &[&b"GET /go"[..], b"ld/x HTTP/1.1\r\n\r\n"]] {
                let (rank, _client, mut server) = steered.send(family, pieces);
                assert_eq!(rank, None);
                let whole = pieces.concat();
                let mut read = vec![0; whole.len()];
                server.read_exact(&mut read).unwrap();
                assert_eq!(read, whole);
            }
            // the first byte comes late
            let mut late = TcpStream::connect(public).unwrap();
            thread::sleep(Duration::from_millis(300));
            late.write_all(&head("/silver")).unwrap();
            assert_eq!(steered.next(family).0, Some(1));
            // no byte comes at all, as from the health check of a load balancer
            let mut none = TcpStream::connect(public).unwrap();
            none.shutdown(std::net::Shutdown::Write).unwrap();
            let (rank, mut server) = steered.next(family);
            assert_eq!(rank, None);
            assert_eq!(server.read(&mut [0]).unwrap(), 0);
            drop(server);
            none.set_read_timeout(Some(PATIENCE)).unwrap();
            assert_eq!(none.read(&mut [0]).unwrap(), 0);
        }
        // connections without data are not made
        let open: Vec<_> = (0..50).map(|_| TcpStream::connect(PUBLIC[0]).unwrap()).collect();
        let error = steered.public[0].accept().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        drop(open);
    });
}

/// The sequence number in an answer.
pub(super) fn sequence_of(answer: &[u8]) -> u32 {
    let ip_bytes = if answer[12..14] == [8, 0] { 20 } else { 40 };
    let at = 14 + ip_bytes + 4;
    u32::from_be_bytes(answer[at..at + 4].try_into().unwrap())
}

#[test]
fn segments_are_completed_by_their_cookie_alone() {
    in_namespace(|| {
        let limit = Limit { over: Over::Drop, ..Limit::new(Rate::parse("1/h").unwrap(), 1) };
        let mut rules = gold_and_silver();
        rules.push(Rule {
            name: "few".to_owned(),
            conditions: Conditions {
                client: vec![Endpoint::parse("127.0.0.9").unwrap()],
                ..Conditions::default()
            },
            connections: Some(limit),
            ..Rule::default()
        });
        rules.push(Rule {
            name: "foe".to_owned(),
            conditions: Conditions {
                client: vec![Endpoint::parse("127.0.0.8").unwrap()],
                ..Conditions::default()
            },
            action: Some(Action::Drop),
            ..Rule::default()
        });
        let steered = Steered::new(&policy(rules));
        for (client, local) in [("127.0.0.1:4000", PUBLIC[0]), ("[::1]:4000", PUBLIC[1])] {
            let ends = (client.parse().unwrap(), local.parse().unwrap());
            let syn = Packet { sequence: 77, ..Packet::between(ends.0, ends.1) };
            assert_eq!(syn.flags, SYN);
            let (verdict, answer) = steered.gate.run_on(&syn.bytes()).unwrap();
            assert_eq!(verdict, REDIRECTED);
            // the SYN-ACK is not longer than the SYN
            assert_eq!(answer.len(), syn.bytes().len());
            let acknowledged = sequence_of(&answer).wrapping_add(1);
            let segment = Packet {
                sequence: 78,
                acknowledged,
                flags: ACK,
                data: head("/silver"),
                ..syn.clone()
            };
            let expect = |packet: Packet, verdict: u32, counted: &[Count]| {
                let before = steered.gate.counts();
                let (found, _) = steered.gate.run_on(&packet.bytes()).unwrap();
                assert_eq!(found, verdict, "{packet:?}");
                let after = steered.gate.counts();
                for one in Count::ALL {
                    let more = after[one as usize] - before[one as usize];
                    assert_eq!(more, u64::from(counted.contains(&one)), "{one:?} of {packet:?}");
                }
            };
            // a test run is not an arrival at an interface, so the kernel makes no connection
            expect(segment.clone(), UNTOUCHED, &[Count::NotMade]);
            expect(Packet { data: Vec::new(), ..segment.clone() }, DROPPED, &[Count::Bare]);
            let bare = Packet { data: Vec::new(), flags: ACK | FIN, ..segment.clone() };
            expect(bare, UNTOUCHED, &[Count::NotMade]);
            // an earlier segment was lost
            expect(Packet { sequence: 1538, ..segment.clone() }, DROPPED, &[Count::Later]);
            // cookies of other connections, or invented ones
            let other = SocketAddr::new(ends.0.ip(), 4001);
            let of_other = Packet { client: other, ..segment.clone() };
            let (verdict, _) = steered.gate.run_on(&of_other.bytes()).unwrap();
            assert!([UNTOUCHED, DROPPED].contains(&verdict));
            let (mut made, mut left) = (steered.counted(Count::NotMade), 0);
            for wrong in 1..2000_u32 {
                let acknowledged = acknowledged ^ wrong << 9;
                let packet = Packet { acknowledged, ..segment.clone() };
                let (verdict, _) = steered.gate.run_on(&packet.bytes()).unwrap();
                left += u32::from(verdict == UNTOUCHED);
            }
            made = steered.counted(Count::NotMade) - made;
            // the first MAC was not touched; the second has 18 bits, for two epochs
            assert!(made <= 2 && left == made as u32, "{made} {left}");
            left = 0;
            for wrong in 1..32_u32 {
                let acknowledged = acknowledged ^ wrong << 27;
                let packet = Packet { acknowledged, ..segment.clone() };
                let (verdict, _) = steered.gate.run_on(&packet.bytes()).unwrap();
                left += u32::from(verdict == UNTOUCHED);
            }
            // except one of 32, which is valid in the previous epoch
            assert!(left >= 25, "{left}");
        }
        // limits hold: the second finds the bucket empty when its data comes
        let local = PUBLIC[0].parse().unwrap();
        let mut segments = Vec::new();
        for port in [1, 2] {
            let client = SocketAddr::new("127.0.0.9".parse().unwrap(), port);
            let syn = Packet { sequence: 77, ..Packet::between(client, local) };
            let (verdict, answer) = steered.gate.run_on(&syn.bytes()).unwrap();
            assert_eq!(verdict, REDIRECTED);
            let acknowledged = sequence_of(&answer).wrapping_add(1);
            segments.push(Packet {
                sequence: 78,
                acknowledged,
                flags: ACK,
                data: head("/"),
                ..syn
            });
        }
        for (segment, verdict) in segments.iter().zip([UNTOUCHED, DROPPED]) {
            assert_eq!(steered.gate.run_on(&segment.bytes()).unwrap().0, verdict);
        }
        assert_eq!(steered.counted(Count::Completed), 1);
        assert_eq!(steered.counted(Count::LateDropped), 1);
        let foe = SocketAddr::new("127.0.0.8".parse().unwrap(), 1);
        let verdict = steered.gate.run_on(&Packet::between(foe, local).bytes()).unwrap().0;
        assert_eq!(verdict, DROPPED);
    });
}

pub(super) fn conditions() -> impl Strategy<Value = Conditions> {
    let paths = vec!["/", "/*", "/a", "/a*", "/a/*", "/a/b", "*b", "*", "/abcdefgh", "/abcdefghi*"];
    let clients =
        vec!["127.0.0.0/8", "127.0.0.1", "127.0.0.2:1000-2000", "::1", "*:1500", "0.0.0.0/0"];
    let locals = vec!["127.0.0.0/8", "0.0.0.0/0", "::/0", "::/1", "[::1-ffff::1]", "*:1"];
    (
        subsequence(paths, 0..3),
        subsequence(vec!["a.b", "*.b", "c"], 0..3),
        subsequence(vec!["GET", "POST", "PROPPATCHWITHSEARCH"], 0..3),
        subsequence(clients, 0..2),
        prop::option::weighted(0.3, select(locals)),
        subsequence(vec!["a=b", "a=c*", "a=*d", "a", "b="], 0..3),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
    )
        .prop_map(
            |(paths, sites, methods, clients, local, cookies, has_header, ignore_case)| {
                Conditions {
                    path: paths.iter().map(|text| PathPattern::parse(text).unwrap()).collect(),
                    site: sites.iter().map(|text| SitePattern::parse(text).unwrap()).collect(),
                    method: methods
                        .iter()
                        .map(|text| MethodPattern::parse(text).unwrap())
                        .collect(),
                    client: clients.iter().map(|text| Endpoint::parse(text).unwrap()).collect(),
                    local: local.iter().map(|text| Endpoint::parse(text).unwrap()).collect(),
                    cookie: cookies
                        .iter()
                        .map(|text| FieldCondition::parse(text).unwrap())
                        .collect(),
                    header: has_header
                        .then(|| FieldCondition::parse("X-Beta").unwrap())
                        .into_iter()
                        .collect(),
                    ignore_case: ignore_case && !paths.is_empty(),
                    ..Conditions::default()
                }
            },
        )
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let when = prop_oneof![
        4 => Just(When::Always),
        1 => Just(When::Overload),
        1 => (1..4_u8).prop_map(|number| When::From(Degree::of(number))),
    ];
    let class = prop::option::weighted(0.8, select(vec!["gold", "silver", "bulk"]));
    let rule = (conditions(), class, prop::bool::weighted(0.2), when).prop_map(
        |(conditions, class, stop, when)| Rule {
            conditions,
            class: class.map(str::to_owned),
            // a rule says something
            action: class.is_none().then_some(Action::Allow),
            stop,
            when,
            ..Rule::default()
        },
    );
    prop::collection::vec(rule, 0..8)
}

/// The beginning of a request, or something like it.
pub(super) fn first() -> impl Strategy<Value = Vec<u8>> {
    let paths = prop_oneof![
        6 => "/[ab/]{0,4}",
        1 => select(vec!["/abcdefgh", "/abcdefghi", "/abcdefghij", "/a.gz", "/b.br", "/.a", "*", "/a%62"])
            .prop_map(str::to_owned),
        1 => "/[ -~]{0,6}",
        1 => (150..170_usize).prop_map(|bytes| format!("/a{}", "b".repeat(bytes - 2))),
    ];
    let method = prop_oneof![
        6 => select(vec!["GET", "POST"]).prop_map(str::to_owned),
        1 => "[A-Z_a-]{0,17}",
    ];
    let query = prop_oneof![4 => Just(String::new()), 1 => "\\?[a-z ]{0,9}"];
    let host = prop_oneof![
        6 => select(vec!["Host: a.b", "host:c:80", "Host: x.b"]).prop_map(str::to_owned),
        1 => "[Hh]ost: ?\t?[a-zA-Z.:-]{0,6}",
        1 => "Accept: a",
        1 => (60..66_usize).prop_map(|bytes| format!("Host: {}", "a".repeat(bytes))),
    ];
    let cookies = prop_oneof![
        3 => Just(String::new()),
        4 => "Cookie: ?[ab]=[bcd]{1,2}; ?[ab]=?[bcd]?(; x=[a-z]{60,66})?\r\n",
        1 => "[Cc]ook?ie ?:[ -~\t\r]{0,12}\r?\n",
        1 => (14..19_usize).prop_map(|many| format!("Cookie: {}a=b\r\n", "b=c;".repeat(many))),
        1 => (1470..1520_usize)
            .prop_map(|bytes| format!("X: {}\r\nCookie: a=b\r\n", "x".repeat(bytes - 12))),
    ];
    let host = (host, cookies).prop_map(|(host, cookies)| format!("{host}\r\n{cookies}"));
    (method, paths, query, host, prop::option::weighted(0.2, 0..90_usize)).prop_map(
        |(method, path, query, host, cut)| {
            let mut text = format!("{method} {path}{query} HTTP/1.1\r\n{host}\r\n").into_bytes();
            text.truncate(cut.unwrap_or(text.len()).max(1));
            text
        },
    )
}

/// The beginning of a ClientHello, or something like it.
pub(super) fn hello() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        8 => select(vec!["a.b", "x.b", "c", "a.b."]).prop_map(str::to_owned),
        1 => "[a-z.A-Z]{0,3}",
        1 => (60..66_usize).prop_map(|bytes| "a".repeat(bytes)),
    ];
    let other = || (1..90_u16, prop_oneof![3 => 0..20_usize, 1 => 300..700_usize]);
    let others = || prop::collection::vec(other(), 0..3);
    let many = prop::option::weighted(0.1, 35..45_usize);
    let bent = prop::option::weighted(0.2, (0..80_usize, any::<u8>()));
    let cut = prop::option::weighted(0.2, 0..1200_usize);
    (name, others(), others(), many, 0..34_u8, bent, cut).prop_map(
        |(name, before, behind, many, session, bent, cut)| {
            let extension = |kind: u16, held: &[u8]| {
                [&kind.to_be_bytes()[..], &(held.len() as u16).to_be_bytes(), held].concat()
            };
            let bytes = name.len() as u16;
            let named =
                [&(bytes + 3).to_be_bytes()[..], &[0], &bytes.to_be_bytes(), name.as_bytes()];
            let mut all = vec![extension(35, &[]); many.unwrap_or(0)].concat();
            let of = |(kind, bytes): &(u16, usize)| extension(*kind, &vec![1; *bytes]);
            all.extend(before.iter().flat_map(of));
            all.extend(extension(0, &named.concat()));
            all.extend(behind.iter().flat_map(of));
            let mut body = [&[3, 3][..], &[9; 32], &[session]].concat();
            body.extend(vec![5; usize::from(session)]);
            body.extend([0, 4, 0x13, 1, 0x13, 2, 1, 0]);
            body.extend((all.len() as u16).to_be_bytes());
            body.extend(all);
            let length = body.len() as u16;
            let mut data = [&[22, 3, 1][..], &(length + 4).to_be_bytes(), &[1, 0]].concat();
            data.extend(length.to_be_bytes());
            data.extend(body);
            if let Some((at, byte)) = bent {
                let at = at % data.len();
                data[at] = byte;
            }
            // the most that a packet of a test run can have
            data.truncate(cut.unwrap_or(1400).clamp(1, 1400));
            data
        },
    )
}

#[test]
fn the_kernel_tells_classes_as_user_space_does() {
    in_namespace(|| {
        let steered = Steered::new(&policy(gold_and_silver()));
        let gate = &steered.gate;
        let client = prop_oneof![
            select(vec!["127.0.0.1:1500", "127.0.0.2:1500", "127.0.0.2:9"])
                .prop_map(|client| (client, PUBLIC[0])),
            select(vec!["[::1]:1500", "[::1]:9"]).prop_map(|client| (client, PUBLIC[1])),
        ];
        let data = prop_oneof![first(), hello()];
        let asked = prop::collection::vec((client, data, 0..4_u8), 1..24);
        let mut runner = TestRunner::new(ProptestConfig { cases: 250, ..Default::default() });
        let judged =
            runner.run(&(rules(), asked, any::<bool>()), |(mut rules, asked, speaks_tls)| {
                steered.place(&steered.classes, speaks_tls);
                for (number, rule) in rules.iter_mut().enumerate() {
                    rule.name = number.to_string();
                }
                // without a class nothing is answered
                rules.push(rule("last", "silver", &["/b"]));
                let policy = Policy::new(policy(Vec::new()).classes(), rules);
                prop_assume!(policy.is_ok());
                let policy = policy.unwrap();
                gate.enforce(&gate.lower(&policy).unwrap()).unwrap();
                for ((client, local), data, degree) in asked {
                    let degree = Degree::of(degree);
                    gate.set_degree(degree);
                    let ends = ConnectionFacts {
                        client: client.parse().unwrap(),
                        local: local.parse().unwrap(),
                    };
                    let syn = Packet { sequence: 77, ..Packet::between(ends.client, ends.local) };
                    let (verdict, answer) = gate.run_on(&syn.bytes()).unwrap();
                    prop_assert_eq!(verdict, REDIRECTED);
                    let acknowledged = sequence_of(&answer).wrapping_add(1);
                    let flags = ACK;
                    let segment =
                        Packet { sequence: 78, acknowledged, flags, data: data.clone(), ..syn };
                    let (mut expected, mut unjudged) = gate.judged(3);
                    let first = match speaks_tls {
                        false => FirstSegment::read(&data)
                            .and_then(|first| policy.first_segment(&ends, &first, degree)),
                        true => FirstHello::read(&data)
                            .and_then(|hello| policy.first_hello(&ends, &hello, degree)),
                    };
                    match first {
                        Some(rank) => expected[usize::from(rank)] += 1,
                        None => unjudged += 1,
                    }
                    gate.run_on(&segment.bytes()).unwrap();
                    let text = String::from_utf8_lossy(&data);
                    prop_assert_eq!(gate.judged(3), (expected, unjudged), "{:?} {:?}", text, ends);
                }
                Ok(())
            });
        judged.unwrap();
    });
}
