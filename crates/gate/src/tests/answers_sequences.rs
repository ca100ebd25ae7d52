//! Clients that send requests, lose segments, retransmit, overlap and close, in random order: each byte that
//! they receive is that of the answers to their requests, and the first request without an answer becomes a
//! connection.

use super::answers::{BODY, KEPT, LAST, LINES, SENT, answer, answering, request, variant};
use super::in_namespace;
use super::packets::{ACK, FIN, Packet, RST, SentBack, sent_back};
use super::steer::{PUBLIC, Steered, policy};
use super::vectors::{DROPPED, REDIRECTED, UNTOUCHED};
use crate::AnswerCount;
use forebay_http::coding::Coding;
use std::net::SocketAddr;

/// A client's own view of its connection.
struct Client {
    /// The first segment; offsets in the streams count from its numbers.
    first: Packet,
    /// The bytes that the client sends, and the offsets at which requests end.
    sent: Vec<u8>,
    ends: Vec<usize>,
    /// The bytes that the client has to receive.
    expected: Vec<u8>,
    /// How much of its bytes was acknowledged, and how much it has received.
    acked: usize,
    got: usize,
    /// Whether the other side's FIN has come, and whether its own was sent.
    is_ended: bool,
    has_ended: bool,
    /// Whether the kernel was left to make the connection, or a reset ended it.
    is_over: bool,
}

impl Client {
    fn new(steered: &Steered, port: u16, random: &mut fastrand::Rng) -> Client {
        let (mut sent, mut expected, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..random.usize(1..5) {
            let is_last = random.u8(..) < 40;
            let path = ["/a", "/b", "/large"][random.usize(..3)];
            sent.extend(request(path, if is_last { "Connection: close\r\n" } else { "" }));
            ends.push(sent.len());
            let body = if path == "/large" { &[b'x'; 900][..] } else { BODY };
            expected.extend(answer(LINES, if is_last { LAST } else { KEPT }, body));
            if is_last {
                break;
            }
        }
        let client = SocketAddr::new("127.0.0.1".parse().unwrap(), port);
        let local = PUBLIC[0].parse().unwrap();
        let first = steered.begin(client, local, random.bool(), Vec::new());
        let first = Packet { flags: ACK, ..first };
        Client {
            first,
            sent,
            ends,
            expected,
            acked: 0,
            got: 0,
            is_ended: false,
            has_ended: false,
            is_over: false,
        }
    }

    /// The offset at which the request under way ends, or the next one.
    fn end(&self) -> usize {
        *self.ends.iter().find(|end| **end > self.acked).unwrap_or(&self.sent.len())
    }

    /// A segment that the client may send now: new, a retransmission, a part of one, a longer one.
    fn segment(&mut self, random: &mut fastrand::Rng) -> Packet {
        let end = self.end();
        let (from, to) = match random.u8(..16) {
            0 => (random.usize(..=self.acked), end),
            1 => (random.usize(..=self.acked), random.usize(self.acked..=end)),
            2 => (self.acked, self.sent.len()),
            3 => (end, self.sent.len()),
            4 | 5 => (self.acked, self.acked),
            6 => (self.acked.saturating_sub(1), self.acked),
            _ => (self.acked, end),
        };
        let from = from.min(to);
        let is_all = to == self.sent.len();
        let ends = is_all && (self.has_ended || self.is_ended || random.u8(..) < 40);
        self.has_ended |= ends;
        let late = if random.u8(..16) == 0 { random.usize(..=self.got) } else { self.got };
        let fin = u32::from(self.is_ended && late == self.got);
        Packet {
            sequence: self.first.sequence.wrapping_add(from as u32),
            acknowledged: self.first.acknowledged.wrapping_add(late as u32 + fin),
            flags: if ends { ACK | FIN } else { ACK },
            data: self.sent[from..to].to_vec(),
            ..self.first.clone()
        }
    }

    /// Receives a segment as TCP does.
    fn take(&mut self, back: &SentBack) {
        if back.flags & RST != 0 {
            self.is_over = true;
            return;
        }
        let acked = back.acknowledged.wrapping_sub(self.first.sequence) as usize;
        let most = self.sent.len() + usize::from(self.has_ended);
        assert!(acked <= most, "{acked} of {most}, {} before: {back:?}", self.acked);
        self.acked = self.acked.max(acked.min(self.sent.len()));
        let from = back.sequence.wrapping_sub(self.first.acknowledged) as usize;
        let to = from + back.data.len();
        assert!(from <= self.got + usize::from(self.is_ended), "a hole: {back:?}");
        if back.data.is_empty() && back.flags & FIN == 0 {
            return;
        }
        // the bytes at an offset are the same however often they come
        assert!(to <= self.expected.len(), "{back:?}");
        let text = String::from_utf8_lossy(&back.data);
        assert_eq!(text, String::from_utf8_lossy(&self.expected[from..to]));
        self.got = self.got.max(to);
        if back.flags & FIN != 0 {
            assert!(!self.is_ended || to == self.got);
            self.is_ended |= to == self.got;
        }
    }
}

#[test]
fn each_byte_is_that_of_the_answers() {
    in_namespace(|| {
        let steered = answering(&policy(Vec::new()));
        let large = crate::SentVariant { body: &[b'x'; 900], ..SENT };
        steered.learn("/large", &[variant(Coding::Identity, large)]);
        let seed = std::env::var("NOISE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        println!("NOISE_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut records = steered.gate.records().unwrap();
        let (mut whole, mut all) = (0, 0);
        for round in 0..4000_u16 {
            let mut client = Client::new(&steered, 1000 + round, &mut random);
            for _ in 0..40 {
                let segment = client.segment(&mut random);
                let (verdict, packet) = steered.ask(&segment);
                let is_lost = random.u8(..) < 40;
                match verdict {
                    UNTOUCHED => {
                        // the stack gets the segment unchanged, without any byte that was answered
                        assert_eq!(packet, segment.bytes());
                        client.is_over = true;
                    }
                    DROPPED => {}
                    REDIRECTED if is_lost => {}
                    REDIRECTED => client.take(&sent_back(&packet, &segment)),
                    verdict => panic!("verdict {verdict}: {segment:?}"),
                }
                if client.is_over {
                    break;
                }
            }
            all += 1;
            whole += u32::from(client.got == client.expected.len());
            records.read(|_| ()).unwrap();
        }
        println!("{whole} of {all} got everything: {:?}", steered.gate.answer_counts());
        for reached in [
            AnswerCount::Ok,
            AnswerCount::LeftHead,
            AnswerCount::LeftUnknown,
            AnswerCount::Repeated,
            AnswerCount::Acked,
            AnswerCount::Held,
            AnswerCount::Ended,
            AnswerCount::Early,
            AnswerCount::Adopted,
        ] {
            assert!(steered.answered(reached) > 0, "none was {reached:?}");
        }
        assert_eq!(steered.answered(AnswerCount::Lost), 0);
        assert!(whole > 500);
    });
}
