//! What must hold for any sequence of segments of clients that know what they were answered: handshakes that are
//! completed, first requests in whatever pieces, what is sent again, overlaps or comes behind an error.

use super::check::{LISTENERS, WatchedGate};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
const TCP_AT: usize = 34;

/// What clients send; the rules of the watched gate know the paths.
const HEADS: [&[u8]; 10] = [
    b"GET /no HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD /no HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /reset HTTP/1.1\r\n\r\n",
    b"GET /silent HTTP/1.1\r\n\r\n",
    b"GET /slow HTTP/1.1\r\n\r\n",
    b"GET /once HTTP/1.1\r\n\r\n",
    b"GET /gold/a HTTP/1.1\r\nCookie: tier=gold; a=b\r\n\r\n",
    b"GET /other?a HTTP/1.1\r\n",
    b"POST /no HTTP/1.1\r\nContent-Length: 4000\r\n\r\n",
    b"",
];

/// A client's own view of its connection.
#[derive(Clone, Copy, Default)]
struct Connection {
    /// The number behind that of its SYN.
    first: u32,
    /// The number behind that of the SYN-ACK, if there was one.
    acknowledged: Option<u32>,
    /// The number behind the error that it got, and its FIN.
    end: Option<u32>,
}

/// Bytes of instructions, taken one after another.
struct Instructions<'b>(&'b [u8]);

impl Instructions<'_> {
    fn next(&mut self) -> Option<u8> {
        let (next, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*next)
    }
}

/// Carries out the instructions. Panics if something does not hold. It needs root.
pub(crate) fn check(watched: &mut WatchedGate, bytes: &[u8]) {
    let mut connections = [Connection::default(); 8];
    // first segments that were answered with an error: they never get anything else
    let mut answered: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut rest = Instructions(bytes);
    while let Some(what) = rest.next() {
        let number = usize::from(what & 7);
        let client = (Ipv4Addr::new(10, 9, 0, 1), 1000 + number as u16);
        let connection = &mut connections[number];
        if what & 8 == 0 {
            let Some(first) = rest.next() else { break };
            *connection = Connection { first: u32::from(first) << 24 | 1, ..Connection::default() };
            // of another start of the connection nothing is known
            answered.retain(|_, of| *of != number);
            let segment =
                Segment { flags: SYN, sequence: connection.first - 1, ..Segment::of(client) };
            let packet = segment.bytes(&[2, 4, 5, 0xb4]);
            let answer = watched.feed(&packet);
            connection.acknowledged = answer.map(|answer| {
                holds(&packet, &answer);
                assert_eq!(number_at(&answer, 8), connection.first, "it acknowledges the SYN");
                number_at(&answer, 4).wrapping_add(1)
            });
            continue;
        }
        let (Some(which), Some(at), Some(acknowledges)) = (rest.next(), rest.next(), rest.next())
        else {
            break;
        };
        let head = HEADS[usize::from(which) % HEADS.len()];
        let data = match what >> 4 & 3 {
            0 | 1 => head.to_vec(),
            2 => head[..head.len() / 2].to_vec(),
            _ => vec![b'x'; usize::from(at) * 5],
        };
        let flags = ACK
            | if which & 0x80 != 0 { FIN } else { PSH }
            | if what & 0xc0 == 0xc0 && which & 0x40 != 0 { RST } else { 0 };
        // most are right
        let offset = |byte: u8, right: RangeInclusive<u8>| {
            if right.contains(&byte) { 0 } else { i32::from(byte.cast_signed()).cast_unsigned() }
        };
        let right = match acknowledges {
            0..=150 => connection.acknowledged,
            _ => connection.end.or(connection.acknowledged),
        };
        let segment = Segment {
            flags,
            sequence: connection.first.wrapping_add(offset(at, 0..=200)),
            acknowledged: right.unwrap_or(1).wrapping_add(offset(acknowledges, 0..=220)),
            data,
            ..Segment::of(client)
        };
        let packet = segment.bytes(&[]);
        let answer = watched.feed(&packet);
        let Some(answer) = answer else {
            assert!(!answered.contains_key(&packet), "it was refused before: {packet:x?}");
            continue;
        };
        holds(&packet, &answer);
        let is_reset = answer[TCP_AT + 13] & RST != 0;
        let is_error = answer.windows(9).any(|bytes| bytes == b"HTTP/1.1 ");
        if is_error {
            assert!(answer[TCP_AT + 13] & FIN != 0);
            let behind = segment.sequence.wrapping_add(segment.data.len() as u32);
            let behind = behind.wrapping_add(u32::from(flags & FIN != 0));
            assert_eq!(number_at(&answer, 8), behind, "it acknowledges everything");
            let head = usize::from(answer[TCP_AT + 12] >> 4) * 4;
            let bytes = (answer.len() - TCP_AT - head) as u32;
            connection.end = Some(number_at(&answer, 4).wrapping_add(bytes + 1));
        }
        if let Some(before) = answered.get(&packet) {
            assert!(is_error || is_reset, "{before}: {packet:x?}");
        }
        let is_first = segment.sequence == connection.first
            && Some(segment.acknowledged) == connection.acknowledged;
        if is_error && is_first {
            answered.insert(packet, number);
        }
    }
    watched.add_up();
}

/// Whether an answer goes back where the packet has come from, with checksums that are right.
fn holds(packet: &[u8], answer: &[u8]) {
    assert_eq!((&answer[26..30], &answer[30..34]), (&packet[30..34], &packet[26..30]));
    assert_eq!((&answer[34..36], &answer[36..38]), (&packet[36..38], &packet[34..36]));
    assert_eq!(usize::from(u16::from_be_bytes([answer[16], answer[17]])), answer.len() - 14);
    assert_eq!(folded(&answer[14..TCP_AT], 0), 0xffff, "of IP: {answer:x?}");
    let tcp = &answer[TCP_AT..];
    assert_eq!(folded(tcp, pseudo(&answer[26..34], tcp.len())), 0xffff, "of TCP: {answer:x?}");
}

fn number_at(packet: &[u8], at: usize) -> u32 {
    let at = TCP_AT + at;
    u32::from_be_bytes(packet[at..at + 4].try_into().unwrap())
}

fn folded(bytes: &[u8], more: u32) -> u16 {
    let word = |two: &[u8]| u32::from(two[0]) << 8 | two.get(1).map_or(0, |low| u32::from(*low));
    let mut sum = bytes.chunks(2).map(word).sum::<u32>() + more;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn pseudo(addresses: &[u8], bytes: usize) -> u32 {
    u32::from(folded(addresses, 0)) + 6 + bytes as u32
}

/// A segment of IPv4 for the listener of the watched gate.
struct Segment {
    client: (Ipv4Addr, u16),
    flags: u8,
    sequence: u32,
    acknowledged: u32,
    data: Vec<u8>,
}

impl Segment {
    fn of(client: (Ipv4Addr, u16)) -> Segment {
        Segment { client, flags: 0, sequence: 0, acknowledged: 0, data: Vec::new() }
    }

    fn bytes(&self, options: &[u8]) -> Vec<u8> {
        let local: SocketAddr = LISTENERS[0].parse().unwrap();
        let SocketAddr::V4(local) = local else { unreachable!() };
        let mut tcp = Vec::new();
        tcp.extend(self.client.1.to_be_bytes());
        tcp.extend(local.port().to_be_bytes());
        tcp.extend(self.sequence.to_be_bytes());
        tcp.extend(self.acknowledged.to_be_bytes());
        tcp.extend([((20 + options.len()) * 4) as u8, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(options);
        tcp.extend(&self.data);
        let addresses = [self.client.0.octets(), local.ip().octets()].concat();
        let sum = !folded(&tcp, pseudo(&addresses, tcp.len()));
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        packet.extend(((20 + tcp.len()) as u16).to_be_bytes());
        packet.extend([0, 1, 0, 0, 64, 6, 0, 0]);
        packet.extend(addresses);
        let sum = !folded(&packet[14..TCP_AT], 0);
        packet[24..26].copy_from_slice(&sum.to_be_bytes());
        packet.extend(tcp);
        packet
    }
}
