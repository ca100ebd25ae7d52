//! Packets for tests, built and checked byte by byte.

use std::net::{IpAddr, SocketAddr};

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;

/// A TCP segment to build.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) client: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) flags: u8,
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    /// The options of TCP, a multiple of four bytes.
    pub(super) options: Vec<u8>,
    /// The options of IPv4, or the extension header of IPv6 with its type first.
    pub(super) between: Vec<u8>,
    /// The flags and offset of an IPv4 fragment.
    pub(super) fragment: u16,
    pub(super) window: u16,
    pub(super) data: Vec<u8>,
}

impl Packet {
    pub(super) fn syn(client: &str, local: &str) -> Packet {
        Packet::between(client.parse().unwrap(), local.parse().unwrap())
    }

    pub(super) fn between(client: SocketAddr, local: SocketAddr) -> Packet {
        Packet {
            client,
            local,
            flags: SYN,
            sequence: 1000,
            acknowledged: 0,
            options: vec![2, 4, 5, 0xb4],
            between: Vec::new(),
            fragment: 0,
            window: 0xffff,
            data: Vec::new(),
        }
    }

    /// The packet with its Ethernet header and right checksums.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let tcp = self.tcp();
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        match (self.client.ip(), self.local.ip()) {
            (IpAddr::V4(client), IpAddr::V4(local)) => {
                bytes.extend([8, 0]);
                let head_bytes = 20 + self.between.len();
                let mut ip = vec![0x40 | (head_bytes / 4) as u8, 0];
                ip.extend(((head_bytes + tcp.len()) as u16).to_be_bytes());
                ip.extend([0, 1]);
                ip.extend(self.fragment.to_be_bytes());
                ip.extend([64, 6, 0, 0]);
                ip.extend(client.octets());
                ip.extend(local.octets());
                ip.extend(&self.between);
                let sum = !fold(sum(&ip));
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                bytes.extend(ip);
            }
            (IpAddr::V6(client), IpAddr::V6(local)) => {
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                let rest = self.between.get(1..).unwrap_or_default();
                bytes.extend(((rest.len() + tcp.len()) as u16).to_be_bytes());
                bytes.extend([self.between.first().copied().unwrap_or(6), 64]);
                bytes.extend(client.octets());
                bytes.extend(local.octets());
                bytes.extend(rest);
            }
            _ => panic!("{self:?}"),
        }
        bytes.extend(tcp);
        bytes
    }

    fn tcp(&self) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(self.client.port().to_be_bytes());
        tcp.extend(self.local.port().to_be_bytes());
        tcp.extend(self.sequence.to_be_bytes());
        tcp.extend(self.acknowledged.to_be_bytes());
        tcp.extend([((20 + self.options.len()) / 4) as u8 * 16, self.flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0, 0, 0, 0]);
        tcp.extend(&self.options);
        tcp.extend(&self.data);
        let sum = !fold(sum(&tcp) + pseudo(self.client.ip(), self.local.ip(), tcp.len()));
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        tcp
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn pseudo(from: IpAddr, to: IpAddr, bytes: usize) -> u32 {
    sum(&octets(from)) + sum(&octets(to)) + bytes as u32 + 6
}

fn sum(bytes: &[u8]) -> u32 {
    let words =
        bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | two.get(1).map_or(0, |b| u32::from(*b)));
    words.sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A segment that was sent back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SentBack {
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    pub(super) flags: u8,
    pub(super) options: Vec<u8>,
    pub(super) data: Vec<u8>,
}

/// Checks that a packet is a whole segment with right checksums, in answer to `packet`.
pub(super) fn sent_back(answer: &[u8], packet: &Packet) -> SentBack {
    let ip_bytes = if packet.client.is_ipv4() { 20 } else { 40 };
    let sent = packet.bytes();
    assert_eq!((&answer[..6], &answer[6..12]), (&sent[6..12], &sent[..6]));
    let ip = &answer[14..14 + ip_bytes];
    let number = |bytes: &[u8]| usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    if packet.client.is_ipv4() {
        assert_eq!(fold(sum(ip)), 0xffff, "{answer:x?}");
        assert_eq!((&ip[12..16], &ip[16..20]), (&sent[30..34], &sent[26..30]));
        assert_eq!(number(&ip[2..4]), answer.len() - 14);
    } else {
        assert_eq!((&ip[8..24], &ip[24..40]), (&sent[38..54], &sent[22..38]));
        assert_eq!(number(&ip[4..6]), answer.len() - 54);
    }
    let tcp = &answer[14 + ip_bytes..];
    let all = sum(tcp) + pseudo(packet.local.ip(), packet.client.ip(), tcp.len());
    assert_eq!(fold(all), 0xffff, "{answer:x?}");
    assert_eq!(tcp[..2], packet.local.port().to_be_bytes());
    assert_eq!(tcp[2..4], packet.client.port().to_be_bytes());
    let number = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
    let (head, data) = tcp.split_at(usize::from(tcp[12] >> 4) * 4);
    SentBack {
        sequence: number(4),
        acknowledged: number(8),
        flags: tcp[13],
        options: head[20..].to_vec(),
        data: data.to_vec(),
    }
}

/// Checks that a packet is a whole reset with right checksums, in answer to `packet`; returns its
/// numbers.
pub(super) fn assert_reset(answer: &[u8], packet: &Packet) -> (u32, u32, u8) {
    let sent = sent_back(answer, packet);
    assert!(sent.options.is_empty() && sent.data.is_empty(), "{sent:?}");
    (sent.sequence, sent.acknowledged, sent.flags)
}
