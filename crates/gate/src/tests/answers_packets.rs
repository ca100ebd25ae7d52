//! Answers from the cache, packet by packet: sequence numbers, retransmissions, ends of connections, and
//! requests that are left to the server.

use super::answers::{
    BODY, KEPT, LAST, LINES, NOT_MODIFIED, SENT, answer, answering, request, variant,
};
use super::first_packets::{PSH, TIMES, ends, limited};
use super::in_namespace;
use super::packets::{ACK, FIN, Packet, RST, SentBack};
use super::steer::{PUBLIC, Steered, policy, sequence_of};
use super::vectors::{DROPPED, REDIRECTED, UNTOUCHED};
use crate::{AnswerCount, AnswerName, Count, FirstCount, SentVariant};
use forebay_http::coding::Coding;
use forebay_policy::rule::{Action, Over};
use std::net::SocketAddr;
use std::time::Duration;

impl Steered {
    /// Asserts the packet's verdict and the counter that it adds to; returns the packet as the program left
    /// it.
    #[track_caller]
    fn serves(&self, packet: &Packet, verdict: u32, count: Option<AnswerCount>) -> Vec<u8> {
        let before = self.gate.answer_counts();
        let (found, after) = self.ask(packet);
        let counts = self.gate.answer_counts();
        for one in AnswerCount::ALL {
            let more = counts[one as usize] - before[one as usize];
            assert_eq!(more, u64::from(Some(one) == count), "{one:?} of {packet:?}");
        }
        assert_eq!(found, verdict, "{packet:?}: {counts:?}");
        after
    }

    /// Asserts that a segment is sent back, and returns it.
    #[track_caller]
    fn sends(&self, packet: &Packet, count: AnswerCount) -> SentBack {
        super::packets::sent_back(&self.serves(packet, REDIRECTED, Some(count)), packet)
    }

    /// Asserts that a first request is left to the server unchanged.
    #[track_caller]
    fn leaves(&self, port: u16, data: &[u8], count: AnswerCount) {
        for (client, local) in ends(port) {
            let segment = self.begin(client, local, true, data.to_vec());
            let made = self.counted(Count::NotMade);
            let after = self.serves(&segment, UNTOUCHED, Some(count));
            assert_eq!(after, segment.bytes());
            assert_eq!(self.counted(Count::NotMade), made + 1);
        }
    }
}

/// The next segment of a client that has received `answer` to `segment`, which it acknowledges completely.
fn behind(segment: &Packet, answer: &SentBack) -> Packet {
    let fin = u32::from(answer.flags & FIN != 0);
    Packet {
        sequence: answer.acknowledged,
        acknowledged: answer.sequence + answer.data.len() as u32 + fin,
        flags: ACK,
        data: Vec::new(),
        ..segment.clone()
    }
}

fn with(packet: &Packet, flags: u8, data: &[u8]) -> Packet {
    Packet { flags, data: data.to_vec(), ..packet.clone() }
}

#[test]
fn an_answer_has_the_numbers_of_its_connection() {
    in_namespace(|| {
        let steered = answering(&policy(Vec::new()));
        let old = b"GET /a HTTP/1.0\r\nhost: A\r\n\r\n".to_vec();
        let of_head = b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
        let known =
            "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\nIf-None-Match: W/\"abc\"\r\n";
        let cases = [
            (request("/a", ""), AnswerCount::Ok, answer(LINES, KEPT, BODY)),
            (request("/a", "connection: Close\r\n"), AnswerCount::Ok, answer(LINES, LAST, BODY)),
            (old, AnswerCount::Ok, answer(LINES, LAST, BODY)),
            (of_head, AnswerCount::Ok, answer(LINES, KEPT, b"")),
            (request("/a", known), AnswerCount::NotModified, answer(NOT_MODIFIED, KEPT, b"")),
            (
                request("/a", "If-None-Match: \"abd\"\r\n"),
                AnswerCount::Ok,
                answer(LINES, KEPT, BODY),
            ),
        ];
        for (number, (data, count, expected)) in cases.into_iter().enumerate() {
            for times in [false, true] {
                for (client, local) in ends(4000 + 2 * number as u16 + u16::from(times)) {
                    let segment = steered.begin(client, local, times, data.clone());
                    let answer = steered.sends(&segment, count);
                    assert_eq!(answer.sequence, segment.acknowledged);
                    assert_eq!(answer.acknowledged, 78 + data.len() as u32);
                    let text = String::from_utf8_lossy(&expected);
                    assert_eq!(String::from_utf8_lossy(&answer.data), text);
                    let fin = if text.contains("close") { FIN } else { 0 };
                    assert_eq!(answer.flags, ACK | PSH | fin);
                    match times {
                        true => assert_eq!(answer.options[8..], TIMES[4..8], "its own time"),
                        false => assert_eq!(answer.options, []),
                    }
                }
            }
        }
    });
}

#[test]
fn what_is_sent_again_is_answered_by_the_same_bytes() {
    in_namespace(|| {
        let slow = limited("slow", "/a", 1, Over::Drop);
        let steered = answering(&policy(vec![slow]));
        let mut records = steered.gate.records().unwrap();
        let (client, local) = ends(5000)[0];
        let segment = steered.begin(client, local, true, request("/a", ""));
        let first = steered.sends(&segment, AnswerCount::Ok);
        // the bucket is empty by now, but a retransmission is not charged again
        assert_eq!(steered.sends(&segment, AnswerCount::Repeated).data, first.data);
        // an answer that was forgotten since is sent again all the same: the client may have parts of it
        let name = AnswerName { listener: PUBLIC[0].parse().unwrap(), host: b"a", path: b"/a" };
        assert!(steered.gate.forget(&name).is_some());
        let again = steered.sends(&segment, AnswerCount::Repeated);
        assert_eq!((again.sequence, again.acknowledged), (first.sequence, first.acknowledged));
        assert_eq!((&again.data, again.flags), (&first.data, first.flags));
        // longer than before: the new part comes again
        let longer = with(&segment, ACK | PSH, &[&segment.data[..], b"GET /"].concat());
        assert_eq!(steered.sends(&longer, AnswerCount::Repeated).acknowledged, first.acknowledged);
        // a part of it, from its middle on
        let part = Packet { sequence: 80, data: segment.data[2..].to_vec(), ..segment.clone() };
        assert_eq!(steered.sends(&part, AnswerCount::Repeated).data, first.data);
        // a copy of the request that arrives after the client has acknowledged the answer
        let late =
            Packet { acknowledged: behind(&segment, &first).acknowledged, ..segment.clone() };
        let acked = steered.sends(&late, AnswerCount::Acked);
        assert_eq!((acked.sequence, acked.acknowledged), (late.acknowledged, first.acknowledged));
        assert_eq!((acked.flags, acked.data.len()), (ACK, 0));
        // a segment behind a gap
        let hole = Packet { sequence: late.sequence + 500, ..late.clone() };
        assert_eq!(steered.sends(&hole, AnswerCount::Acked).acknowledged, first.acknowledged);
        let mut charged = Vec::new();
        assert_eq!(records.read(|record| charged.push(record.charged)).unwrap(), 1);
        let tables = steered.gate.lower(&policy(vec![limited("slow", "/a", 1, Over::Drop)]));
        assert_eq!(tables.unwrap().rule_of_requests(charged[0].unwrap()), Some(0));
        assert_eq!(steered.gate.take_charged_request(client, local), None, "it is in the record");
        assert_eq!(steered.gate.tally("slow").admitted, 1);
    });
}

#[test]
fn an_answer_that_does_not_come_through_is_the_server_s() {
    in_namespace(|| {
        let steered = answering(&policy(Vec::new()));
        for (client, local) in ends(5200) {
            let segment = steered.begin(client, local, true, request("/a", ""));
            steered.sends(&segment, AnswerCount::Ok);
            // two retransmissions prove nothing, however late they come
            for _ in 0..2 {
                steered.sends(&segment, AnswerCount::Repeated);
            }
            let adopted = steered.answered(AnswerCount::Adopted);
            assert!(super::filters::soon(|| {
                std::thread::sleep(Duration::from_millis(160));
                steered.ask(&segment).0 == UNTOUCHED
            }));
            assert_eq!(steered.answered(AnswerCount::Adopted), adopted + 1);
        }
    });
}

#[test]
fn an_answer_whose_place_has_another_is_lost() {
    in_namespace(|| {
        let steered = answering(&policy(Vec::new()));
        let (client, local) = ends(5100)[1];
        let segment = steered.begin(client, local, true, request("/a", ""));
        steered.sends(&segment, AnswerCount::Ok);
        // freed slots are reused only after a while, and these answers need all slots
        steered.gate.forget_all();
        std::thread::sleep(Duration::from_millis(3100));
        for number in 0..512 {
            steered.learn(&format!("/{number}"), &[variant(Coding::Identity, SENT)]);
        }
        let reset = steered.sends(&segment, AnswerCount::Lost);
        assert_eq!((reset.flags, reset.sequence), (RST, segment.acknowledged));
        // its client begins anew
        let again = steered.begin(client, local, true, request("/0", ""));
        steered.sends(&again, AnswerCount::Ok);
    });
}

#[test]
fn a_connection_ends_as_its_client_wants() {
    in_namespace(|| {
        let steered = answering(&policy(Vec::new()));
        for (client, local) in ends(6000) {
            let segment = steered.begin(client, local, true, request("/a", ""));
            let first = steered.sends(&segment, AnswerCount::Ok);
            let acked = behind(&segment, &first);
            steered.serves(&acked, DROPPED, Some(AnswerCount::Held));
            steered.serves(
                &Packet { acknowledged: first.sequence, ..acked.clone() },
                DROPPED,
                Some(AnswerCount::Held),
            );
            // keep-alive probes
            for probe in [&b""[..], b"x"] {
                let probe =
                    Packet { sequence: acked.sequence - 1, data: probe.to_vec(), ..acked.clone() };
                let alive = steered.sends(&probe, AnswerCount::Acked);
                assert_eq!((alive.flags, alive.acknowledged), (ACK, acked.sequence));
                assert_eq!(alive.sequence, acked.acknowledged);
            }
            // the client's FIN, sent twice
            let fin = with(&acked, ACK | FIN, b"");
            for count in [AnswerCount::Ended, AnswerCount::Acked] {
                let end = steered.sends(&fin, count);
                assert_eq!((end.sequence, end.acknowledged), (fin.acknowledged, fin.sequence + 1));
                assert_eq!((end.flags, end.data.len()), (ACK | FIN, 0));
            }
            let last = Packet {
                sequence: fin.sequence + 1,
                acknowledged: fin.acknowledged + 1,
                ..acked.clone()
            };
            steered.serves(&last, DROPPED, Some(AnswerCount::Held));
            // a segment that acknowledges more than was ever sent belongs to another connection
            let wrong = Packet { acknowledged: last.acknowledged + 1, ..fin.clone() };
            steered.serves(&wrong, steered.ask(&wrong).0, None);
        }
    });
}

#[test]
fn a_client_may_end_before_it_has_the_answer() {
    in_namespace(|| {
        let steered = answering(&policy(Vec::new()));
        for (client, local) in ends(6100) {
            let segment = steered.begin(client, local, false, request("/a", ""));
            let first = steered.sends(&segment, AnswerCount::Ok);
            let fin = Packet { sequence: first.acknowledged, ..with(&segment, ACK | FIN, b"") };
            let both = steered.sends(&fin, AnswerCount::Ended);
            assert_eq!((both.flags, &both.data), (ACK | FIN | PSH, &first.data));
            assert_eq!((both.sequence, both.acknowledged), (first.sequence, fin.sequence + 1));
            assert_eq!(steered.sends(&fin, AnswerCount::Repeated), both);
            // the client has the answer, but not the FIN
            let end = first.sequence + first.data.len() as u32;
            let half = Packet { acknowledged: end, ..fin.clone() };
            let again = steered.sends(&half, AnswerCount::Acked);
            assert_eq!((again.flags, again.sequence, again.data.len()), (ACK | FIN, end, 0));
        }
    });
}

#[test]
fn behind_the_last_answer_comes_no_other() {
    in_namespace(|| {
        let steered = answering(&policy(Vec::new()));
        for (client, local) in ends(6200) {
            let data = request("/a", "Connection: close\r\n");
            let segment = steered.begin(client, local, true, data);
            let first = steered.sends(&segment, AnswerCount::Ok);
            let acked = behind(&segment, &first);
            // the client goes on sending, up to a limit
            let more = with(&acked, ACK | PSH, &[b'x'; 1000]);
            assert_eq!(steered.sends(&more, AnswerCount::Acked).acknowledged, more.sequence + 1000);
            let mut next = Packet { sequence: more.sequence + 1000, ..more.clone() };
            for _ in 0..64 {
                steered.sends(&next, AnswerCount::Acked);
                next.sequence += 1000;
            }
            next.data = vec![b'x'; 1400];
            assert_eq!(steered.sends(&next, AnswerCount::Cut).flags, RST);
            // another client closes as it should
            let client = SocketAddr::new(client.ip(), 6201);
            let segment =
                steered.begin(client, local, true, request("/a", "Connection: close\r\n"));
            let first = steered.sends(&segment, AnswerCount::Ok);
            let fin = with(&behind(&segment, &first), ACK | FIN, b"");
            for _ in 0..2 {
                let end = steered.sends(&fin, AnswerCount::Acked);
                assert_eq!((end.flags, end.sequence), (ACK, fin.acknowledged));
                assert_eq!(end.acknowledged, fin.sequence + 1);
            }
        }
    });
}

#[test]
fn the_next_request_is_judged_and_answered() {
    in_namespace(|| {
        let no = super::first_packets::refusing("no", "/no", Action::Reject(403));
        let reset = super::first_packets::refusing("reset", "/reset", Action::Reset);
        let silent = super::first_packets::refusing("silent", "/silent", Action::Drop);
        let slow = limited("slow", "/gold/a", 2, Over::Reject { status: None });
        let steered = answering(&policy(vec![no, reset, silent, slow]));
        for (family, (client, local)) in ends(7000).into_iter().enumerate() {
            let kept = |port: u16| {
                let client = SocketAddr::new(client.ip(), port);
                let segment = steered.begin(client, local, true, request("/a", ""));
                let first = steered.sends(&segment, AnswerCount::Ok);
                (behind(&segment, &first), first)
            };
            let (acked, first) = kept(7000);
            let next = with(&acked, ACK | PSH, &request("/gold/a", ""));
            // before the answer is acknowledged, a second one could not be sent again
            let early = Packet { acknowledged: first.sequence, ..next.clone() };
            steered.serves(&early, DROPPED, Some(AnswerCount::Early));
            if family == 0 {
                let second = steered.sends(&next, AnswerCount::Ok);
                assert_eq!(second.sequence, next.acknowledged);
                assert_eq!(second.acknowledged, next.sequence + next.data.len() as u32);
                assert_eq!(second.data, answer(LINES, KEPT, BODY));
                assert_eq!(steered.sends(&next, AnswerCount::Repeated), second);
                let third = with(&behind(&next, &second), ACK | PSH, &request("/gold/a", ""));
                steered.sends(&third, AnswerCount::Ok);
            }
            // the bucket is empty: an error page, behind which the connection ends as any refused one
            let (acked, _) = kept(7001);
            let over = with(&acked, ACK | PSH, &request("/gold/a", ""));
            let error = super::packets::sent_back(&steered.serves(&over, REDIRECTED, None), &over);
            assert!(error.data.starts_with(b"HTTP/1.1 503 "), "{error:?}");
            let fin = with(&behind(&over, &error), ACK | FIN, b"");
            let before = steered.first(FirstCount::Acked);
            steered.serves(&fin, REDIRECTED, None);
            assert_eq!(steered.first(FirstCount::Acked), before + 1);
            for (port, path, flags) in [(7002, "/no", ACK | PSH | FIN), (7003, "/reset", RST)] {
                let next = with(&kept(port).0, ACK | PSH, &request(path, ""));
                let back =
                    super::packets::sent_back(&steered.serves(&next, REDIRECTED, None), &next);
                assert_eq!(back.flags, flags, "{path}");
            }
            let next = with(&kept(7004).0, ACK | PSH, &request("/silent", ""));
            steered.serves(&next, DROPPED, None);
            // a request without an answer here, or with a FIN, becomes a connection
            let (acked, _) = kept(7005);
            let other = with(&acked, ACK | PSH, &request("/b", ""));
            let before = steered.answered(AnswerCount::LeftUnknown);
            let adopted = steered.answered(AnswerCount::Adopted);
            assert_eq!(steered.ask(&other), (UNTOUCHED, other.bytes()));
            assert_eq!(steered.answered(AnswerCount::LeftUnknown), before + 1);
            let fin = with(&acked, ACK | PSH | FIN, &request("/a", ""));
            steered.serves(&fin, UNTOUCHED, Some(AnswerCount::Adopted));
            assert_eq!(steered.answered(AnswerCount::Adopted), adopted + 2);
        }
        assert_eq!(steered.gate.tally("slow").admitted, 2);
        assert_eq!(steered.gate.tally("no").answered, 2);
    });
}

#[test]
fn a_connection_has_so_many_requests() {
    in_namespace(|| {
        let steered = answering(&policy(Vec::new()));
        let variants = [variant(Coding::Identity, SENT)];
        let few = crate::KernelAnswer { requests: 3, timeout_s: 7, variants: &variants };
        let name = AnswerName { listener: PUBLIC[0].parse().unwrap(), host: b"a", path: b"/few" };
        steered.gate.learn(&name, &few).unwrap();
        let (client, local) = ends(7100)[0];
        let mut segment = steered.begin(client, local, true, request("/few", ""));
        let kept = "\r\nConnection: keep-alive\r\nKeep-Alive: timeout=7\r\n\r\n";
        for end in [kept, kept, LAST] {
            let sent = steered.sends(&segment, AnswerCount::Ok);
            assert_eq!(sent.data, answer(LINES, end, BODY));
            segment = with(&behind(&segment, &sent), ACK | PSH, &segment.data);
        }
    });
}

#[test]
fn what_cannot_be_answered_for_certain_is_left_to_the_server() {
    in_namespace(|| {
        let steered = answering(&policy(Vec::new()));
        let head = |fields: &str| request("/a", fields);
        let twice = [head(""), head("")].concat();
        let lines = "A: b\r\n".repeat(70);
        for (number, data) in [
            &b"POST /a HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"GET /a HTTP/1.1\r\n\r\n",
            b"GET /a HTTP/1.0\r\n\r\n",
            b"GET /a HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
            b"GET /a HTTP/1.2\r\nHost: a\r\n\r\n",
            b"GET /a HTTP/1.1\nHost: a\n\n",
            b"GET /a HTTP/1.1\r\nHost: a\r\n",
            b"GET /a HTTP/1.1\r\nHost : a\r\n\r\n",
            b"GET /a HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
            &head("Host: a\r\n"),
            &head("Range: bytes=0-1\r\n"),
            &head("content-length: 0\r\n"),
            &head("Transfer-Encoding: chunked\r\n"),
            &head("Expect: 100-continue\r\n"),
            &head("Connection: Upgrade\r\nUpgrade: h2c\r\n"),
            &head("Connection: keep-alive, close\r\n"),
            &head("Authorization: Basic eA==\r\n"),
            &head("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
            &head("If-None-Match: \"a\", \"abc\"\r\n"),
            &head("If-None-Match: *\r\n"),
            &head("If-None-Match: \"abc\r\n"),
            &head("If-Match: \"abc\"\r\n"),
            &head("Accept-Encoding: gzip\r\nAccept-Encoding: br\r\n"),
            &head("Accept-Encoding: gzip;q=2\r\n"),
            &head("Accept-Encoding: gzip;x=1\r\n"),
            &head("User-Agent: caf\u{e9}\r\n"),
            &head("User-Agent: a\u{1}\r\n"),
            &head(&lines),
            &twice,
        ]
        .into_iter()
        .enumerate()
        {
            steered.leaves(8000 + number as u16, data, AnswerCount::LeftHead);
        }
        // a path that is not in normal form, and one that the rules cannot read
        for (port, unread) in [(8100, request("/%61", "")), (8110, request(" /a", ""))] {
            for (client, local) in ends(port) {
                let segment = steered.begin(client, local, true, unread.clone());
                assert_eq!(steered.serves(&segment, UNTOUCHED, None), segment.bytes());
            }
        }
        steered.leaves(8101, &request("/a?b", ""), AnswerCount::LeftHead);
        steered.leaves(8102, &request("/b", ""), AnswerCount::LeftUnknown);
        let of_other = b"GET /a HTTP/1.1\r\nHost: b\r\n\r\n";
        steered.leaves(8103, of_other, AnswerCount::LeftUnknown);
        // a field leaves the request to the server as long as it is named
        let cookie = head("Cookie: a=b\r\n");
        steered.gate.decide_by(&["cookie", "X-Beta"]).unwrap();
        steered.leaves(8104, &cookie, AnswerCount::LeftHead);
        steered.leaves(8105, &head("x-BETA: \r\n"), AnswerCount::LeftHead);
        steered.gate.decide_by(&["x-beta"]).unwrap();
        let (client, local) = ends(8106)[0];
        steered.sends(&steered.begin(client, local, true, cookie), AnswerCount::Ok);
        assert!(steered.gate.decide_by(&["Host"]).is_err());
        // with a FIN the cache is not even asked
        let (client, local) = ends(8107)[0];
        let fin = Packet { flags: ACK | FIN, ..steered.begin(client, local, true, head("")) };
        steered.serves(&fin, UNTOUCHED, None);
        // damaged
        let mut bent = steered.begin(client, local, true, head("")).bytes();
        let last = bent.len() - 3;
        bent[last - 20] ^= 1;
        assert_eq!(steered.gate.run_on(&bent).unwrap().0, UNTOUCHED);
    });
}

#[test]
fn an_answer_is_given_only_where_there_is_room_and_while_it_counts() {
    in_namespace(|| {
        let steered = answering(&policy(Vec::new()));
        let large = vec![b'x'; 1300];
        let sent = SentVariant { body: &large, ..SENT };
        steered.learn("/large", &[variant(Coding::Identity, sent)]);
        let text = answer(LINES, KEPT, &large);
        for (client, local) in ends(9000) {
            let least = if client.is_ipv4() { 536 } else { 1220_u16 };
            for (port, largest, window, fits) in [
                (9000, 1460, 0xffff, true),
                (9001, least, 0xffff, false),
                (9002, 1460, text.len() as u16, false),
                (9003, 1460, text.len() as u16 + 1, true),
                (9004, 1460, 0, false),
            ] {
                let [high, low] = largest.to_be_bytes();
                let client = SocketAddr::new(client.ip(), port);
                let options = vec![2, 4, high, low];
                let syn = Packet { sequence: 77, options, ..Packet::between(client, local) };
                let acknowledged = sequence_of(&steered.ask(&syn).1).wrapping_add(1);
                let data = request("/large", "");
                let segment = Packet {
                    sequence: 78,
                    acknowledged,
                    flags: ACK,
                    window,
                    data,
                    options: Vec::new(),
                    ..syn
                };
                match fits {
                    true => assert_eq!(steered.sends(&segment, AnswerCount::Ok).data, text),
                    false => {
                        steered.serves(&segment, UNTOUCHED, Some(AnswerCount::LeftRoom));
                    }
                }
            }
        }
        let head = request("/a", "");
        let (client, local) = ends(9100)[0];
        let fresh =
            |port| steered.begin(SocketAddr::new(client.ip(), port), local, true, head.clone());
        // the server has not renewed the answers
        steered.gate.renew(1, Duration::ZERO).unwrap();
        steered.leaves(9101, &head, AnswerCount::LeftVoid);
        steered.gate.renew(1, Duration::from_secs(3600)).unwrap();
        let epoch = steered.sends(&fresh(9102), AnswerCount::Ok);
        let epoch = String::from_utf8(epoch.data).unwrap();
        assert!(epoch.contains("\r\nDate: Thu, 01 Jan 1970 00:00:01 GMT\r\n"), "{epoch}");
        // the client has been ignored since a moment ago
        steered.gate.ignore("127.0.0.1".parse().unwrap(), u64::MAX);
        steered.gate.ignore("::1".parse().unwrap(), u64::MAX);
        steered.leaves(9110, &head, AnswerCount::LeftVoid);
        steered.gate.ignore("127.0.0.1".parse().unwrap(), 0);
        steered.gate.ignore("::1".parse().unwrap(), 0);
        steered.gate.forget_all();
        assert_eq!(steered.gate.answers_known(), 0);
        steered.leaves(9103, &head, AnswerCount::LeftUnknown);
        // another answer under the same name
        let numbers = steered.learn("/a", &[variant(Coding::Identity, SENT)]);
        let other = SentVariant { body: b"other", ..SENT };
        let others = steered.learn("/a", &[variant(Coding::Identity, other)]);
        assert!(numbers.iter().all(|number| !others.contains(number)));
        assert!(steered.sends(&fresh(9104), AnswerCount::Ok).data.ends_with(b"\r\n\r\nother"));
    });
}

#[test]
fn a_request_whose_record_has_no_room_is_left_to_the_server() {
    in_namespace(|| {
        let room = crate::AnswerRoom { record_bytes: 4096, ..crate::AnswerRoom::default() };
        let gate = crate::Gate::load_answering(crate::Charge::AtHandshake, &room).unwrap();
        let steered = Steered::by(gate, &policy(Vec::new()));
        steered.gate.renew(1, Duration::from_secs(3600)).unwrap();
        steered.learn("/a", &[variant(Coding::Identity, SENT)]);
        let mut records = steered.gate.records().unwrap();
        let (client, local) = ends(9200)[0];
        let mut answered = 0;
        for port in 9200..9300 {
            let client = SocketAddr::new(client.ip(), port);
            let segment = steered.begin(client, local, true, request("/a", ""));
            if steered.ask(&segment).0 == REDIRECTED {
                answered += 1;
            }
        }
        assert_eq!(steered.answered(AnswerCount::Ok), answered);
        assert_eq!(steered.answered(AnswerCount::LeftRecords), 100 - answered);
        assert!((20..80).contains(&answered), "{answered}");
        assert_eq!(records.read(|_| ()).unwrap() as u64, answered);
        let client = SocketAddr::new(client.ip(), 9400);
        steered.sends(&steered.begin(client, local, true, request("/a", "")), AnswerCount::Ok);
    });
}
