//! Settings that user space changes while the program runs: rates, the rate of a class, pages.

use super::first_packets::{judging, limited, refusing};
use super::in_namespace;
use super::packets::Packet;
use super::steer::{PUBLIC, Steered, gold_and_silver, head, policy};
use super::vectors::{DROPPED, REDIRECTED, UNTOUCHED};
use crate::{Count, FirstCount};
use forebay_policy::GivenWord;
use forebay_policy::rule::{Action, Over};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;

const HOUR_NS: u64 = 3_600_000_000_000;

/// The verdict on the first request with this path, of a client with this port.
fn ask(steered: &Steered, port: u16, path: &str) -> u32 {
    let client = SocketAddr::new([127, 0, 0, 9].into(), port);
    let segment = steered.begin(client, PUBLIC[0].parse().unwrap(), true, head(path));
    steered.gate.run_on(&segment.bytes()).unwrap().0
}

#[test]
fn a_class_is_limited_to_what_its_word_says() {
    in_namespace(|| {
        let steered = judging(&policy(gold_and_silver()));
        let gate = &steered.gate;
        let interval = gate.word("silver", GivenWord::ClassInterval).unwrap();
        let word = gate.word("silver", GivenWord::ClassConnections).unwrap();
        assert!(gate.word("nobody", GivenWord::ClassInterval).is_none());
        assert_eq!(ask(&steered, 1, "/silver"), UNTOUCHED);
        assert_eq!(gate.paced("silver"), (0, 0), "there is no limit");
        interval.store(HOUR_NS, Relaxed);
        assert_eq!(ask(&steered, 2, "/silver"), UNTOUCHED);
        for port in 3..6 {
            assert_eq!(ask(&steered, port, "/silver"), DROPPED);
        }
        assert_eq!(gate.paced("silver"), (1, 3));
        // the other classes are not limited, and no rule has refused anything
        assert_eq!(ask(&steered, 6, "/gold/a"), UNTOUCHED);
        assert_eq!(ask(&steered, 7, "/other"), UNTOUCHED);
        assert_eq!((gate.paced("gold"), gate.paced("bulk")), ((0, 0), (0, 0)));
        assert!(
            gate.tallies()
                .iter()
                .all(|(name, tally)| { !name.contains("silver") || tally.dropped == 0 })
        );
        assert_eq!(steered.counted(Count::Paced), 3);
        // the program and user space have the same bucket
        word.store(0, Relaxed);
        assert_eq!(ask(&steered, 3, "/silver"), UNTOUCHED);
        assert!(word.load(Relaxed) > HOUR_NS);
        interval.store(0, Relaxed);
        assert_eq!(ask(&steered, 4, "/silver"), UNTOUCHED);
        assert_eq!(gate.paced("silver"), (2, 3));
        // classes in another order are the same classes
        interval.store(HOUR_NS, Relaxed);
        let other = policy(Vec::new());
        gate.enforce(&gate.lower(&other).unwrap()).unwrap();
        assert!(std::ptr::eq(interval, gate.word("silver", GivenWord::ClassInterval).unwrap()));
    });
}

#[test]
fn what_is_dropped_for_its_class_is_charged_once() {
    in_namespace(|| {
        let mut rules = gold_and_silver();
        rules.push(limited("slow", "/silver", 2, Over::Reset));
        let steered = judging(&policy(rules));
        let interval = steered.gate.word("silver", GivenWord::ClassInterval).unwrap();
        let word = steered.gate.word("silver", GivenWord::ClassConnections).unwrap();
        interval.store(HOUR_NS, Relaxed);
        word.store(u64::MAX, Relaxed);
        let client = "127.0.0.9:7".parse().unwrap();
        let segment =
            steered.begin(client, PUBLIC[0].parse().unwrap(), true, head("/silver")).bytes();
        for _ in 0..5 {
            assert_eq!(steered.gate.run_on(&segment).unwrap().0, DROPPED);
        }
        assert_eq!(steered.gate.tally("slow").admitted, 1);
        word.store(0, Relaxed);
        assert_eq!(steered.gate.run_on(&segment).unwrap().0, UNTOUCHED);
        assert_eq!(steered.gate.tally("slow").admitted, 1);
    });
}

#[test]
fn a_rate_is_charged_at_the_interval_it_is_moved_to() {
    in_namespace(|| {
        let steered = judging(&policy(vec![limited("slow", "/slow", 3, Over::Reset)]));
        let gate = &steered.gate;
        let interval = gate.word("slow", GivenWord::Interval).unwrap();
        let word = gate.word("slow", GivenWord::Requests).unwrap();
        let now = super::same::now_ns();
        assert_eq!(ask(&steered, 1, "/slow"), UNTOUCHED);
        let stated = word.swap(0, Relaxed) - now;
        assert!((HOUR_NS..HOUR_NS + HOUR_NS / 10).contains(&stated), "{stated}");
        // an interval of a day, and a burst of three as before
        interval.store(24 * HOUR_NS, Relaxed);
        let verdicts: Vec<u32> = (2..6).map(|port| ask(&steered, port, "/slow")).collect();
        assert_eq!(verdicts, [UNTOUCHED, UNTOUCHED, UNTOUCHED, REDIRECTED]);
        let moved = word.load(Relaxed) - now;
        assert!((72 * HOUR_NS..73 * HOUR_NS).contains(&moved), "{moved}");
        // even the largest interval does not overflow
        word.store(0, Relaxed);
        interval.store(u64::MAX / 2, Relaxed);
        assert_eq!(ask(&steered, 7, "/slow"), UNTOUCHED);
    });
}

/// A segment that the kernel would drop is dropped before anything is charged.
#[test]
fn nothing_is_charged_while_the_common_queue_is_full() {
    in_namespace(|| {
        let steered = judging(&policy(vec![limited("slow", "/slow", 9, Over::Reset)]));
        steered.place(&[Vec::new(), Vec::new()], false);
        // SAFETY: it listens already, and only its backlog becomes another.
        let result = unsafe {
            use std::os::fd::AsRawFd;
            libc::listen(steered.public[0].as_raw_fd(), 0)
        };
        assert_eq!(result, 0);
        assert_eq!(ask(&steered, 1, "/slow"), UNTOUCHED);
        assert_eq!(steered.gate.tally("slow").admitted, 1);
        let mut filling = TcpStream::connect(PUBLIC[0]).unwrap();
        std::io::Write::write_all(&mut filling, &head("/other")).unwrap();
        assert!(super::filters::soon(|| steered.counted(Count::MadePublic) == 1));
        assert_eq!(ask(&steered, 2, "/slow"), DROPPED);
        assert_eq!(steered.gate.tally("slow").admitted, 1);
        assert_eq!(steered.counted(Count::FullDropped), 1);
        let (_accepted, _) = steered.public[0].accept().unwrap();
        assert_eq!(ask(&steered, 2, "/slow"), UNTOUCHED);
        assert_eq!(steered.gate.tally("slow").admitted, 2);
    });
}

/// The window behind a page is 32 KiB, scaled or not.
#[test]
fn what_may_come_behind_an_error_does_not_depend_on_scaling() {
    in_namespace(|| {
        let steered = judging(&policy(vec![refusing("no", "/no", Action::Reject(403))]));
        let client = |port| SocketAddr::new([127, 0, 0, 9].into(), port);
        let local = PUBLIC[0].parse().unwrap();
        let window = |packet: &Packet| {
            let (verdict, answer) = steered.gate.run_on(&packet.bytes()).unwrap();
            assert_eq!(verdict, REDIRECTED);
            u16::from_be_bytes([answer[48], answer[49]])
        };
        for (port, scaled, expected) in [(1, true, 256), (2, false, 32_768)] {
            // a client with timestamps has a window scale, too
            let first = steered.begin(client(port), local, scaled, head("/no"));
            assert_eq!(window(&first), expected);
            let behind = Packet {
                sequence: first.sequence + first.data.len() as u32,
                data: vec![b'x'; 100],
                ..first
            };
            assert_eq!(window(&behind), expected);
        }
        assert_eq!(steered.first(FirstCount::Repeated), 2);
    });
}

#[test]
fn pages_change_their_half_with_the_time_of_day() {
    in_namespace(|| {
        let steered = judging(&policy(vec![refusing("no", "/no", Action::Reject(403))]));
        let date = |port| {
            let client = SocketAddr::new([127, 0, 0, 9].into(), port);
            let segment = steered.begin(client, PUBLIC[0].parse().unwrap(), true, head("/no"));
            let (_, answer) = steered.gate.run_on(&segment.bytes()).unwrap();
            let text = String::from_utf8_lossy(&answer).into_owned();
            text.split("\r\n").find(|line| line.starts_with("Date: ")).unwrap().to_owned()
        };
        let first = date(1);
        let mut port = 1;
        let is_other = || {
            steered.gate.keep_up_steering();
            port += 1;
            date(port) != first
        };
        assert!(super::filters::soon(is_other));
    });
}
