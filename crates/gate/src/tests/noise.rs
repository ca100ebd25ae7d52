//! Random packets among meaningful ones: no answer is longer than the packet that it answers, each verdict
//! is counted once, and no state is left behind.

use super::check::{self, LISTENERS, WatchedGate};
use super::in_namespace;
use super::packets::{ACK, FIN, Packet, RST, SYN};
use super::sequences;
use super::steer::{head, sequence_of};
use crate::{AnswerCount, Count, FirstCount};
use std::fs;
use std::net::SocketAddr;

#[test]
fn seeds() {
    in_namespace(|| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/gate");
        let seeds: Vec<_> =
            fs::read_dir(folder).unwrap().map(|seed| seed.unwrap().path()).collect();
        assert!(!seeds.is_empty());
        for seed in seeds {
            println!("{}", seed.display());
            check::check(&fs::read(seed).unwrap());
        }
    });
}

#[test]
fn seeds_of_sequences() {
    in_namespace(|| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/gate_sequences");
        let mut watched = WatchedGate::new();
        for seed in fs::read_dir(folder).unwrap() {
            sequences::check(&mut watched, &fs::read(seed.unwrap().path()).unwrap());
        }
        assert!(watched.firsts(FirstCount::Repeated) > 0);
    });
}

#[test]
fn sequences_of_segments() {
    in_namespace(|| {
        let seed = std::env::var("NOISE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        println!("NOISE_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut watched = WatchedGate::new();
        for _ in 0..2000 {
            let instructions: Vec<u8> = (0..random.usize(8..200)).map(|_| random.u8(..)).collect();
            sequences::check(&mut watched, &instructions);
        }
        for reached in [FirstCount::Answered, FirstCount::Repeated, FirstCount::Acked] {
            assert!(watched.firsts(reached) > 0, "none was {reached:?}");
        }
    });
}

#[test]
fn noise() {
    in_namespace(|| run(100_000));
}

#[test]
#[ignore = "a minute; CONTRIBUTING has the command"]
fn much_noise() {
    in_namespace(|| run(10_000_000));
}

/// The number of handshakes, the latest ones, that are remembered.
const BEGUN: usize = 64;

fn run(packets: u64) {
    let seed = std::env::var("NOISE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("NOISE_SEED={seed}");
    let mut noise = Noise {
        random: fastrand::Rng::with_seed(seed),
        begun: Vec::new(),
        ending: Vec::new(),
        kept: Vec::new(),
        last: None,
    };
    let mut watched = WatchedGate::new();
    let before = held();
    for _ in 0..packets {
        let packet = noise.packet();
        let answer = watched.feed(&noise.bend(packet.bytes()));
        if let Some(behind) = answer.as_ref().and_then(|answer| behind_error(answer, &packet)) {
            let is_kept =
                answer.as_ref().is_some_and(|text| text.windows(4).any(|text| text == b" 200"));
            let behind_such = if is_kept { &mut noise.kept } else { &mut noise.ending };
            behind_such.push(behind);
            if behind_such.len() > BEGUN {
                behind_such.swap_remove(noise.random.usize(..BEGUN));
            }
        }
        // the packet that answers a SYN may be a SYN-ACK
        if let Some(answer) = answer.filter(|answer| packet.flags & ACK == 0 && answer.len() > 54) {
            noise.begun.push(Packet {
                sequence: packet.sequence.wrapping_add(1),
                acknowledged: sequence_of(&answer).wrapping_add(1),
                ..packet
            });
            if noise.begun.len() > BEGUN {
                let gone = noise.random.usize(..BEGUN);
                noise.begun.swap_remove(gone);
            }
        }
    }
    watched.add_up();
    for count in Count::ALL {
        println!("{count:?} {}", watched.counted(count));
    }
    for count in FirstCount::ALL {
        println!("first {count:?} {}", watched.firsts(count));
        // there is no limit of requests at once here, and no other CPU charges anything
        let is_reached = watched.firsts(count) > 0;
        assert!(is_reached || count == FirstCount::Contended, "none was {count:?}");
    }
    for reached in [
        Count::Passed,
        Count::Dropped,
        Count::Reset,
        Count::LeftUser,
        Count::LeftOptions,
        Count::LeftFragment,
        Count::LeftShort,
        Count::Answered,
        Count::Bare,
        Count::Completed,
        Count::LateDropped,
        Count::Later,
        Count::Repeated,
        // the kernel makes connections only from packets that come by an interface
        Count::NotMade,
    ] {
        assert!(watched.counted(reached) > 0, "none was {reached:?}");
    }
    for count in AnswerCount::ALL {
        println!("answer {count:?} {}", watched.served(count));
    }
    for reached in [
        AnswerCount::Ok,
        AnswerCount::LeftHead,
        AnswerCount::LeftUnknown,
        AnswerCount::Repeated,
        AnswerCount::Acked,
        AnswerCount::Held,
    ] {
        assert!(watched.served(reached) > 0, "none was {reached:?}");
    }
    assert_eq!(held(), before);
}

/// A segment with which the client of `packet` acknowledges a page or an answer.
fn behind_error(answer: &[u8], packet: &Packet) -> Option<Packet> {
    let tcp_at = if packet.client.is_ipv4() { 34 } else { 54 };
    let tcp = answer.get(tcp_at..).filter(|tcp| tcp.len() > 100)?;
    let number = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap_or_default());
    let bytes = tcp.len() - usize::from(tcp[12] >> 4) * 4;
    Some(Packet {
        sequence: number(8),
        acknowledged: number(4).wrapping_add(bytes as u32 + u32::from(tcp[13] & FIN)),
        flags: ACK,
        data: Vec::new(),
        ..packet.clone()
    })
}

/// The sockets of TCP that this network namespace holds.
fn held() -> String {
    let held = fs::read_to_string("/proc/thread-self/net/sockstat").unwrap();
    let held = held.lines().find(|line| line.starts_with("TCP")).unwrap();
    // the numbers behind this word are of all namespaces
    held.split(" orphan").next().unwrap().to_owned()
}

struct Noise {
    random: fastrand::Rng,
    /// Segments that complete handshakes.
    begun: Vec<Packet>,
    /// Segments that acknowledge pages.
    ending: Vec<Packet>,
    /// Segments that acknowledge answers from the cache.
    kept: Vec<Packet>,
    last: Option<Packet>,
}

impl Noise {
    /// A packet that makes sense, or nearly.
    fn packet(&mut self) -> Packet {
        let random = &mut self.random;
        // first data, whole or not, of a handshake that has begun
        if !self.begun.is_empty() && random.u8(..) < 100 {
            let begun = self.begun[random.usize(..self.begun.len())].clone();
            let flags = [ACK, ACK, ACK | 8, ACK | FIN, ACK | RST, RST][random.usize(..6)];
            let paths = [
                "/gold/a",
                "/silver",
                "/",
                "/gold",
                "/%67old/a",
                "/no",
                "/reset",
                "/silent",
                "/slow",
                "/once",
            ];
            let mut data = head(paths[random.usize(..paths.len())]);
            match random.u8(..4) {
                0 => data.clear(),
                1 => data.truncate(random.usize(..data.len())),
                2 => data = (0..random.usize(..200)).map(|_| random.u8(..)).collect(),
                _ => {}
            }
            return Packet { flags, data, ..begun };
        }
        // a segment behind a page or an answer, in order or not
        let behind = if random.bool() { &self.ending } else { &self.kept };
        if !behind.is_empty() && random.u8(..) < 60 {
            let ending = behind[random.usize(..behind.len())].clone();
            let flags = [ACK, ACK | FIN, ACK | 8][random.usize(..3)];
            let sequence = ending.sequence.wrapping_add([0, 0, 1000, 70_000][random.usize(..4)]);
            let data = match random.u8(..8) {
                0 => vec![1; 400],
                1 => head("/no"),
                2 => head("/gold"),
                3 | 4 => head("/gold/a"),
                _ => Vec::new(),
            };
            let early = [0, 0, 0, 0, 1, 40][random.usize(..6)];
            let acknowledged = ending.acknowledged.wrapping_sub(early);
            return Packet { flags, sequence, acknowledged, data, ..ending };
        }
        // a retransmitted SYN, or a new one with one thing unusual
        if let Some(last) = self.last.take().filter(|_| random.u8(..) < 20) {
            return last;
        }
        let local: SocketAddr = LISTENERS[random.usize(..2)].parse().unwrap();
        let (network, host) = (random.u8(..8), random.u8(..));
        let client = match local {
            SocketAddr::V4(_) => SocketAddr::from(([10, network, 0, host], random.u16(1..))),
            SocketAddr::V6(_) => {
                let (network, host) = (network.into(), host.into());
                SocketAddr::from(([0xfd00, network, 0, 0, 0, 0, 0, host], random.u16(1..)))
            }
        };
        let mut packet = Packet::between(client, local);
        packet.sequence = random.u32(..);
        match random.u8(..16) {
            0 => packet.options.clear(),
            1 => {
                packet.options =
                    vec![2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7]
            }
            2 => packet.options = (0..4 * random.usize(..11)).map(|_| random.u8(..)).collect(),
            3 => packet.data = head("/gold/early"),
            4 => packet.flags = random.u8(..),
            5 if local.is_ipv4() => packet.fragment = random.u16(..),
            6 if local.is_ipv4() => packet.between = vec![1; 4 * random.usize(..11)],
            6 => packet.between = [&[[0, 43, 44, 60][random.usize(..4)], 6][..], &[0; 7]].concat(),
            7 => packet.acknowledged = random.u32(..),
            8 => packet.local.set_port(random.u16(1..)),
            9 => packet.flags = SYN | 0xc0,
            _ => {}
        }
        self.last = Some(packet.clone());
        packet
    }

    /// Truncates one packet in four, or puts random bytes into it.
    fn bend(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        let random = &mut self.random;
        match random.u8(..16) {
            0 => bytes.truncate(random.usize(14..=bytes.len())),
            1..4 => {
                for _ in 0..random.usize(1..4) {
                    let at = random.usize(12..bytes.len());
                    bytes[at] = random.u8(..);
                }
            }
            _ => {}
        }
        bytes
    }
}
