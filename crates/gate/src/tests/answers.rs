//! Answers from the cache: real connections over the loopback, which have no socket until a request that the
//! server answers makes one in their middle.

use super::filters::soon;
use super::in_namespace;
use super::steer::{PATIENCE, PUBLIC, Steered, gold_and_silver, policy};
use crate::{
    AnswerCount, AnswerName, AnswerRoom, Charge, FirstCount, Gate, KernelAnswer, KernelVariant,
    SentVariant,
};
use forebay_http::coding::Coding;
use forebay_policy::Policy;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::Duration;

pub(super) const BODY: &[u8] = b"hello from the kernel\n";
pub(super) const LINES: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nETag: \"abc\"\r\nContent-Length: 22\r\n";
pub(super) const NOT_MODIFIED: &[u8] = b"HTTP/1.1 304 Not Modified\r\nETag: \"abc\"\r\n";
pub(super) const SENT: SentVariant<'_> =
    SentVariant { lines: LINES, not_modified: NOT_MODIFIED, etag: b"\"abc\"", body: BODY };
/// The date line of an answer.
pub(super) const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT";
pub(super) const AT_S: u64 = 784_111_777;

/// A gate that answers `/a` and `/gold/a` of the host `a`.
pub(super) fn answering(policy: &Policy) -> Steered {
    let gate = Gate::load_answering(Charge::AtHandshake, &AnswerRoom::default()).unwrap();
    let steered = Steered::by(gate, policy);
    steered.gate.renew(AT_S, Duration::from_secs(3600)).unwrap();
    for path in ["/a", "/gold/a"] {
        steered.learn(path, &[variant(Coding::Identity, SENT)]);
    }
    steered
}

pub(super) fn variant(coding: Coding, sent: SentVariant<'_>) -> KernelVariant<'_> {
    KernelVariant { coding, compared_bytes: sent.body.len() as u64, sent: Some(sent) }
}

impl Steered {
    /// Has the gate answer this path at both listeners; returns the numbers of the answers.
    pub(super) fn learn(&self, path: &str, variants: &[KernelVariant<'_>]) -> Vec<u32> {
        let answer = KernelAnswer { requests: 1000, timeout_s: 0, variants };
        let learn = |listener: &str| {
            let listener = listener.parse().unwrap();
            let name = AnswerName { listener, host: b"a", path: path.as_bytes() };
            self.gate.learn(&name, &answer).unwrap()
        };
        PUBLIC.map(learn).into()
    }

    pub(super) fn answered(&self, count: AnswerCount) -> u64 {
        self.gate.answer_counts()[count as usize]
    }

    pub(super) fn connect(&self, family: usize) -> TcpStream {
        let client = TcpStream::connect(PUBLIC[family]).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.set_nodelay(true).unwrap();
        client
    }

    #[track_caller]
    pub(super) fn has_no_socket(&self) {
        for listener in self.public.iter().chain(self.classes.iter().flatten().flatten()) {
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    }
}

pub(super) fn request(path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}

pub(super) fn answer(lines: &[u8], end: &str, body: &[u8]) -> Vec<u8> {
    [lines, DATE.as_bytes(), end.as_bytes(), body].concat()
}

pub(super) const KEPT: &str = "\r\n\r\n";
pub(super) const LAST: &str = "\r\nConnection: close\r\n\r\n";

/// Reads exactly `bytes` bytes.
pub(super) fn read(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    stream.read_exact(&mut read).unwrap();
    read
}

#[test]
fn an_answer_costs_no_socket() {
    in_namespace(|| {
        let steered = answering(&policy(gold_and_silver()));
        let mut records = steered.gate.records().unwrap();
        for family in 0..2 {
            for _ in 0..20 {
                let mut client = steered.connect(family);
                client.write_all(&request("/a", "Connection: close\r\n")).unwrap();
                let mut got = Vec::new();
                client.read_to_end(&mut got).unwrap();
                let expected = answer(LINES, LAST, BODY);
                assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(&expected));
            }
            // several requests on one connection
            let mut client = steered.connect(family);
            for _ in 0..20 {
                client.write_all(&request("/gold/a", "")).unwrap();
                let expected = answer(LINES, KEPT, BODY);
                assert_eq!(read(&mut client, expected.len()), expected);
            }
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
        }
        steered.has_no_socket();
        assert_eq!(steered.answered(AnswerCount::Ok), 80, "{:?}", steered.gate.answer_counts());
        assert!(soon(|| steered.answered(AnswerCount::Ended) == 2));
        let mut requests = Vec::new();
        let count = records.read(|record| {
            assert_eq!(
                (record.status, record.is_head, record.coding),
                (200, false, Coding::Identity)
            );
            assert_eq!(record.body_bytes as usize, BODY.len());
            assert_eq!(record.rank, if record.closes { 2 } else { 0 });
            assert!(PUBLIC.contains(&record.local.to_string().as_str()));
            assert!(record.client.ip().is_loopback() && record.charged.is_none());
            assert!(record.head.starts_with(b"GET /") && record.head.ends_with(b"\r\n\r\n"));
            requests.push(record.request);
        });
        assert_eq!(count.unwrap(), 80);
        let of_one = [vec![1; 20], (1..=20).collect()].concat();
        assert_eq!(requests, [of_one.clone(), of_one].concat());
    });
}

#[test]
fn a_connection_goes_on_with_a_socket_in_the_middle() {
    in_namespace(|| {
        let steered = answering(&policy(gold_and_silver()));
        for family in 0..2 {
            for times in 1..4 {
                let mut client = steered.connect(family);
                for _ in 0..times {
                    client.write_all(&request("/a", "")).unwrap();
                    let expected = answer(LINES, KEPT, BODY);
                    assert_eq!(read(&mut client, expected.len()), expected);
                }
                let other = request("/silver", "");
                client.write_all(&other).unwrap();
                let (rank, mut server) = steered.next(family);
                assert_eq!(rank, Some(1));
                assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
                assert_eq!(read(&mut server, other.len()), other);
                // a megabyte each way
                let much = vec![b'x'; 1 << 20];
                let sent = much.clone();
                let mut copy = server.try_clone().unwrap();
                let sender = std::thread::spawn(move || copy.write_all(&sent).unwrap());
                assert!(read(&mut client, much.len()) == much);
                sender.join().unwrap();
                client.write_all(&request("/a", "")).unwrap();
                assert_eq!(read(&mut server, 8), b"GET /a H");
                drop(client);
            }
        }
        assert_eq!(steered.answered(AnswerCount::Adopted), 6);
        assert_eq!(steered.answered(AnswerCount::Ok), 12);
        steered.has_no_socket();
    });
}

/// The client of a connection that has had `times` answers, each of them right.
fn kept(steered: &Steered, family: usize, times: usize) -> TcpStream {
    let mut client = steered.connect(family);
    for _ in 0..times {
        client.write_all(&request("/a", "")).unwrap();
        let expected = answer(LINES, KEPT, BODY);
        assert_eq!(read(&mut client, expected.len()), expected);
    }
    client
}

#[test]
fn connections_go_on_behind_the_gate_of_another_process() {
    in_namespace(|| {
        let mut steered = answering(&policy(gold_and_silver()));
        let mut clients: Vec<TcpStream> = (0..6).map(|at| kept(&steered, at % 2, 2)).collect();
        let handed = steered.gate.hand().unwrap();
        let room = AnswerRoom { connections: 99, ..AnswerRoom::default() };
        let next = Gate::load_answering_after(Charge::AtHandshake, &room, handed).unwrap();
        let ranks = steered.take_place(next);
        steered.gate.renew(AT_S, Duration::from_secs(3600)).unwrap();
        // two of the connections are answered by the next gate
        steered.learn("/a", &[variant(Coding::Identity, SENT)]);
        for client in &mut clients[..2] {
            client.write_all(&request("/a", "")).unwrap();
            let expected = answer(LINES, KEPT, BODY);
            assert_eq!(read(client, expected.len()), expected);
        }
        // the others become connections at it, and at a third gate that answers no requests
        for family in 0..2 {
            clients[2 + family].write_all(&request("/gold/x", "")).unwrap();
            assert_eq!(steered.next(family).0, Some(0));
        }
        let handed = steered.gate.hand().unwrap();
        let third = Gate::load_after(Charge::AtHandshake, true, handed).unwrap();
        assert!(!third.answers_requests());
        drop(steered.take_place(third));
        for at in [0, 1, 4, 5] {
            clients[at].write_all(&request("/silver", "")).unwrap();
            assert_eq!(steered.next(at % 2).0, Some(1), "{at}");
        }
        drop(ranks);
    });
}

#[test]
fn what_the_gate_has_forgotten_is_reset() {
    in_namespace(|| {
        // one entry for each CPU, which other connections evict
        let room = AnswerRoom { connections: 8, ..AnswerRoom::default() };
        let gate = Gate::load_answering(Charge::AtHandshake, &room).unwrap();
        let steered = Steered::by(gate, &policy(gold_and_silver()));
        steered.gate.renew(AT_S, Duration::from_secs(3600)).unwrap();
        steered.learn("/a", &[variant(Coding::Identity, SENT)]);
        let mut clients: Vec<TcpStream> = (0..1000).map(|_| kept(&steered, 0, 1)).collect();
        let mut resets = 0;
        for client in &mut clients {
            // a reset that has come in the meantime is an error of either
            let sent = client.write_all(&request("/b", ""));
            let error = sent.and_then(|()| match client.set_nonblocking(true) {
                Ok(()) => client.peek(&mut [0]).map(drop),
                error => error,
            });
            resets += u64::from(error.is_err_and(|error| error.kind() != ErrorKind::WouldBlock));
        }
        let lost = || steered.answered(AnswerCount::Lost);
        assert!(soon(|| lost() > 0), "{:?}", steered.gate.answer_counts());
        assert!(soon(|| lost() + steered.answered(AnswerCount::Adopted) >= 1000));
        println!("{} lost, {resets} resets seen at once", lost());
    });
}

/// A device (GRO), or the sender itself, may merge several segments into one packet.
#[test]
fn a_head_of_two_segments_is_answered_where_they_come_as_one() {
    in_namespace(|| {
        let mtu = Command::new("ip").args(["link", "set", "lo", "mtu", "1500"]).status().unwrap();
        assert!(mtu.success());
        let steered = answering(&policy(gold_and_silver()));
        for family in 0..2 {
            let mut client = steered.connect(family);
            for (bytes, is_answered) in [(1400, true), (1490, true), (1536, true), (1537, false)] {
                let field = format!("Cookie: {}\r\n", "c".repeat(bytes - 28 - 10));
                let data = request("/gold/a", &field)[..].to_vec();
                let data = [&b"GET /a"[..], &data[11..]].concat();
                assert_eq!(data.len(), bytes);
                client.write_all(&data).unwrap();
                if is_answered {
                    let expected = answer(LINES, KEPT, BODY);
                    assert_eq!(read(&mut client, expected.len()), expected);
                } else {
                    assert_eq!(read(&mut steered.next(family).1, bytes), data);
                }
            }
        }
        assert_eq!(steered.answered(AnswerCount::Ok), 6, "{:?}", steered.gate.answer_counts());
        assert_eq!(steered.first(FirstCount::Damaged), 0);
    });
}
