//! First requests that are judged, packet by packet: numbers of the answer, retransmissions, the end of the
//! connection, and packets that are left alone.

use super::in_namespace;
use super::packets::{ACK, FIN, Packet, RST, SentBack, sent_back};
use super::steer::{PUBLIC, Steered, head, policy, rule, sequence_of};
use super::vectors::{DROPPED, REDIRECTED, UNTOUCHED};
use crate::{Charge, FirstCount, Gate};
use forebay_policy::Policy;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, Limit, Over, Rule};
use std::net::SocketAddr;

pub(super) const PSH: u8 = 8;
/// The timestamp option of a client.
pub(super) const TIMES: [u8; 12] = [1, 1, 8, 10, 0, 0, 0x30, 0x39, 0, 0, 0, 0];
const SYN_OPTIONS: [u8; 20] =
    [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0x30, 0x39, 0, 0, 0, 0, 1, 3, 3, 7];

pub(super) fn judging(policy: &Policy) -> Steered {
    let gate = Gate::load_steering(Charge::AtHandshake).unwrap().judging_requests();
    Steered::by(gate, policy)
}

pub(super) fn refusing(name: &str, path: &str, action: Action) -> Rule {
    Rule { class: None, action: Some(action), ..rule(name, "bulk", &[path]) }
}

pub(super) fn limited(name: &str, path: &str, burst: u32, over: Over) -> Rule {
    let limit = Limit { over, ..Limit::new(Rate::parse("1/h").unwrap(), burst) };
    Rule { class: None, requests: Some(limit), ..rule(name, "bulk", &[path]) }
}

/// The rules for the tests of packets.
fn rules() -> Vec<Rule> {
    vec![
        refusing("no", "/no", Action::Reject(403)),
        refusing("reset", "/reset", Action::Reset),
        refusing("silent", "/silent", Action::Drop),
        limited("slow", "/slow", 1, Over::Reject { status: None }),
    ]
}

impl Steered {
    pub(super) fn first(&self, count: FirstCount) -> u64 {
        self.gate.first_counts()[count as usize]
    }

    /// The first segment with this data of a client whose handshake was answered, with times or without.
    pub(super) fn begin(
        &self,
        client: SocketAddr,
        local: SocketAddr,
        times: bool,
        data: Vec<u8>,
    ) -> Packet {
        let options = if times { SYN_OPTIONS.to_vec() } else { vec![2, 4, 5, 0xb4] };
        let syn = Packet { sequence: 77, options, ..Packet::between(client, local) };
        let (verdict, answer) = self.gate.run_on(&syn.bytes()).unwrap();
        assert_eq!(verdict, REDIRECTED);
        let acknowledged = sequence_of(&answer).wrapping_add(1);
        let options = if times { TIMES.to_vec() } else { Vec::new() };
        Packet { sequence: 78, acknowledged, flags: ACK | PSH, options, data, ..syn }
    }

    pub(super) fn ask(&self, packet: &Packet) -> (u32, Vec<u8>) {
        self.gate.run_on(&packet.bytes()).unwrap()
    }

    pub(super) fn answer_to(&self, packet: &Packet) -> SentBack {
        let (verdict, answer) = self.ask(packet);
        assert_eq!(verdict, REDIRECTED, "{packet:?}: {:?}", self.gate.first_counts());
        sent_back(&answer, packet)
    }

    /// Asserts the packet's verdict and the counter that it adds to.
    fn expect(&self, packet: &Packet, verdict: u32, count: FirstCount) {
        let before = self.gate.first_counts();
        assert_eq!(self.ask(packet).0, verdict, "{packet:?}");
        let after = self.gate.first_counts();
        for one in FirstCount::ALL {
            let more = after[one as usize] - before[one as usize];
            assert_eq!(more, u64::from(one == count), "{one:?} of {packet:?}");
        }
    }
}

pub(super) fn ends(port: u16) -> [(SocketAddr, SocketAddr); 2] {
    [("127.0.0.1", PUBLIC[0]), ("[::1]", PUBLIC[1])].map(|(client, local)| {
        (format!("{client}:{port}").parse().unwrap(), local.parse().unwrap())
    })
}

pub(super) fn text(answer: &SentBack) -> &str {
    std::str::from_utf8(&answer.data).unwrap()
}

#[test]
fn an_error_is_one_segment_with_the_numbers_of_the_connection() {
    in_namespace(|| {
        let steered = judging(&policy(rules()));
        for times in [false, true] {
            for (client, local) in ends(4000 + u16::from(times)) {
                let segment = steered.begin(client, local, times, head("/no"));
                let answer = steered.answer_to(&segment);
                assert_eq!(answer.sequence, segment.acknowledged);
                assert_eq!(answer.acknowledged, 78 + segment.data.len() as u32);
                assert_eq!(answer.flags, ACK | PSH | FIN);
                assert!(text(&answer).starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer:?}");
                assert!(text(&answer).ends_with("\r\n\r\n403 Forbidden\n"), "{answer:?}");
                assert!(!text(&answer).contains("Retry-After"), "{answer:?}");
                // the answer fits into the smallest segment size that a client may announce
                assert!(answer.data.len() + answer.options.len() <= 536);
                if times {
                    assert_eq!(answer.options[..4], [1, 1, 8, 10]);
                    assert_eq!(answer.options[8..], TIMES[4..8], "its own time comes back");
                } else {
                    assert_eq!(answer.options, []);
                }
                // a request with the FIN in the same segment
                let half = Packet { flags: ACK | FIN, sequence: 78, ..segment.clone() };
                assert_eq!(steered.answer_to(&half).acknowledged, answer.acknowledged + 1);
                // HEAD gets the head only
                let (client, local) = (SocketAddr::new(client.ip(), 4100), local);
                let data = b"HEAD /no HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
                let of_head = steered.answer_to(&steered.begin(client, local, times, data));
                assert!(text(&of_head).ends_with("\r\n\r\n"), "{of_head:?}");
                assert!(text(&answer).starts_with(&text(&of_head)[..17]));
            }
        }
        assert_eq!(steered.gate.tally("no").answered, 8);
    });
}

#[test]
fn what_is_sent_again_is_answered_again_and_charged_once() {
    in_namespace(|| {
        let steered = judging(&policy(rules()));
        for (family, (client, local)) in ends(5000).into_iter().enumerate() {
            // the first uses up the bucket, which both families share
            let verdict =
                steered.begin(SocketAddr::new(client.ip(), 1), local, true, head("/slow"));
            let count = [FirstCount::Charged, FirstCount::Answered][family];
            steered.expect(&verdict, [UNTOUCHED, REDIRECTED][family], count);
            let segment = steered.begin(client, local, true, head("/slow"));
            let answer = steered.answer_to(&segment);
            assert!(text(&answer).contains("\r\nRetry-After: 3600\r\n"), "{answer:?}");
            let answered = steered.gate.tally("slow").answered;
            // the client has not received the page, and retransmits
            assert_eq!(steered.answer_to(&segment).data, answer.data);
            assert_eq!(steered.answer_to(&segment).sequence, answer.sequence);
            // it sends more than before in the same segment, or behind it
            let mut longer = segment.clone();
            longer.data.extend(b"body");
            let again = steered.answer_to(&longer);
            assert_eq!(
                (again.acknowledged, again.flags),
                (answer.acknowledged + 4, ACK | PSH | FIN)
            );
            let more =
                Packet { sequence: answer.acknowledged, data: b"more".to_vec(), ..segment.clone() };
            let again = steered.answer_to(&more);
            assert_eq!(again.acknowledged, answer.acknowledged + 4);
            assert_eq!(again.data, answer.data);
            assert_eq!(steered.gate.tally("slow").answered, answered);
            assert_eq!(steered.first(FirstCount::Repeated), 4 * (family as u64 + 1));
            // another connection from the same port
            let syn = Packet { sequence: 9999, ..Packet::between(client, local) };
            let acknowledged = sequence_of(&steered.ask(&syn).1).wrapping_add(1);
            let next = Packet { sequence: 10_000, acknowledged, ..segment.clone() };
            steered.expect(&next, REDIRECTED, FirstCount::Answered);
        }
    });
}

#[test]
fn a_refused_client_is_led_to_the_end_of_its_connection() {
    in_namespace(|| {
        let steered = judging(&policy(rules()));
        for (client, local) in ends(6000) {
            let segment = steered.begin(client, local, true, head("/no"));
            let answer = steered.answer_to(&segment);
            let end = answer.sequence + answer.data.len() as u32 + 1;
            let behind = Packet {
                sequence: answer.acknowledged,
                acknowledged: end,
                data: vec![],
                ..segment
            };
            // the client has everything
            steered.expect(&Packet { flags: ACK, ..behind.clone() }, DROPPED, FirstCount::Held);
            let unread = Packet { flags: ACK, acknowledged: end - 1, ..behind.clone() };
            steered.expect(&unread, DROPPED, FirstCount::Held);
            // it closes, and retransmits its FIN
            for _ in 0..2 {
                let fin = Packet { flags: ACK | FIN, ..behind.clone() };
                let last = steered.answer_to(&fin);
                assert_eq!((last.sequence, last.acknowledged), (end, fin.sequence + 1));
                assert_eq!((last.flags, last.data.len()), (ACK, 0));
                assert_eq!(last.options[8..], TIMES[4..8]);
            }
            // it goes on sending data, up to a limit
            let body = Packet { data: vec![b'x'; 1000], ..behind.clone() };
            assert_eq!(steered.answer_to(&body).acknowledged, body.sequence + 1000);
            let late = Packet { sequence: body.sequence + 65_000, ..body.clone() };
            let cut = steered.answer_to(&late);
            assert_eq!((cut.flags, cut.sequence), (RST, end));
            assert_eq!(steered.first(FirstCount::Cut), steered.first(FirstCount::Answered));
            // a segment that acknowledges another number belongs to another connection
            for wrong in [end + 1, end - 2] {
                let other = Packet { acknowledged: wrong, flags: ACK | FIN, ..behind.clone() };
                let before = steered.gate.first_counts();
                steered.ask(&other);
                assert_eq!(steered.gate.first_counts(), before);
            }
        }
    });
}

#[test]
fn others_get_a_reset_or_nothing() {
    in_namespace(|| {
        let steered = judging(&policy(rules()));
        for (client, local) in ends(7000) {
            let at = |port| SocketAddr::new(client.ip(), port);
            let reset = steered.begin(client, local, true, head("/reset"));
            let answer = steered.answer_to(&reset);
            assert_eq!((answer.flags, answer.sequence), (RST, reset.acknowledged));
            let silent = steered.begin(at(7001), local, true, head("/silent"));
            steered.expect(&silent, DROPPED, FirstCount::Dropped);
            // the client retransmits, and is judged again
            steered.expect(&silent, DROPPED, FirstCount::Dropped);
            // the client's window has no room for a page
            let mut shut = steered.begin(at(7002), local, true, head("/no"));
            shut.window = 1;
            let answer = steered.answer_to(&shut);
            assert_eq!((answer.flags, answer.data.len()), (RST, 0));
            shut.window = 0;
            assert_eq!(steered.answer_to(&shut).flags, RST);
            // with its scale there is
            shut.window = 4;
            assert_eq!(steered.answer_to(&shut).flags, ACK | PSH | FIN);
            let passed = steered.begin(at(7003), local, true, head("/other"));
            steered.expect(&passed, UNTOUCHED, FirstCount::Passed);
        }
        let tally = steered.gate.tally("no");
        assert_eq!((tally.answered, tally.reset), (2, 4));
        assert_eq!(steered.gate.tally("silent").dropped, 4);
    });
}

#[test]
fn what_is_damaged_or_in_parts_is_not_judged() {
    in_namespace(|| {
        let steered = judging(&policy(rules()));
        for (client, local) in ends(8000) {
            let segment = steered.begin(client, local, true, head("/no"));
            let whole = segment.bytes();
            let heads = if client.is_ipv4() { 34 } else { 54 };
            // a damaged byte of the checksum, the numbers, the options, the data
            for at in [heads + 16, heads + 17, heads + 14, heads + 30, heads + 36, whole.len() - 1]
            {
                let mut bent = whole.clone();
                bent[at] ^= 1;
                let before = steered.first(FirstCount::Damaged);
                let (verdict, after) = steered.gate.run_on(&bent).unwrap();
                assert_eq!((verdict, &after), (UNTOUCHED, &bent), "{at}");
                assert_eq!(steered.first(FirstCount::Damaged), before + 1, "{at}");
            }
            // data of every length, over the size that is summed up at once
            for bytes in [1, 2, 3, 470, 480, 481, 482, 511, 512, 513, 993, 994, 1200] {
                let mut long = head("/no");
                long.resize(long.len().max(bytes), b'x');
                let at = SocketAddr::new(client.ip(), 8100 + bytes as u16);
                let long = steered.begin(at, local, false, long);
                steered.expect(&long, REDIRECTED, FirstCount::Answered);
            }
            let left = steered.gate.first_counts();
            if client.is_ipv4() {
                let options = Packet { between: vec![1, 1, 1, 0], ..segment.clone() };
                let fragment = Packet { fragment: 0x2000, ..segment.clone() };
                let last = Packet { fragment: 0x00ff, ..segment.clone() };
                for left in [options, fragment, last] {
                    assert_eq!(steered.ask(&left).0, UNTOUCHED, "{left:?}");
                }
            } else {
                for extension in [0, 43, 44, 60] {
                    let between = [&[extension, 6][..], &[0; 7]].concat();
                    let left = Packet { between, ..segment.clone() };
                    assert_eq!(steered.ask(&left).0, UNTOUCHED, "{left:?}");
                }
            }
            assert_eq!(steered.gate.first_counts(), left);
            // a head over two segments is left to the server, the rest of it too
            let part = Packet { data: b"GET /n".to_vec(), ..segment.clone() };
            steered.expect(&part, UNTOUCHED, FirstCount::Left);
        }
    });
}
