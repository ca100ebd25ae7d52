//! Tests of the tables against a model that keeps everything.

use super::*;
use crate::bucket;
use proptest::prelude::*;
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Barrier;

const UNIT: u64 = 1 << UNIT_BITS;
const START: u64 = 1_000_000 * UNIT;

fn ip(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(number).into()
}

#[test]
fn a_client_is_an_address_or_a_64() {
    let clients = ClientTable::new(64);
    let key = |text: &str| clients.key(1, text.parse().unwrap());
    assert_eq!(key("10.0.0.1"), key("::ffff:10.0.0.1"));
    assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
    assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
    assert_ne!(key("10.0.0.1"), key("10.0.0.2"));
    assert_ne!(key("10.0.0.1"), clients.key(2, ip(0x0a00_0001)));
    // the key is secret
    let other = ClientTable::new(64);
    assert_ne!(key("10.0.0.1"), other.key(1, ip(0x0a00_0001)));
}

/// Several threads are at the first request of a client at once, and both tables have few places.
#[test]
fn clients_that_are_new_to_several_threads_have_one_word() {
    const THREADS: u64 = 4;
    let clients = ClientTable::new(1 << 12);
    let terms =
        bucket::BucketTerms { interval_ns: 1_000_000 * UNIT, tolerance_ns: 0, most_wait_ns: 0 };
    let step = Barrier::new(THREADS as usize);
    let (admitted, entered, wrong) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for number in 0..5_000 {
                    let key = clients.key(7, ip(number));
                    // what was charged for earlier clients has passed
                    let now = START + u64::from(number) * 2_000_000 * UNIT;
                    step.wait();
                    admitted.fetch_add(clients.charge(key, now, &terms).is_ok().into(), Relaxed);
                    let client_slot = clients.enter(key, 1);
                    entered.fetch_add(client_slot.is_ok().into(), Relaxed);
                    if step.wait().is_leader() {
                        let is_wrong =
                            (admitted.swap(0, Relaxed), entered.swap(0, Relaxed)) != (1, 1);
                        wrong.fetch_add(is_wrong.into(), Relaxed);
                    }
                    step.wait();
                    if let Ok(Some(client_slot)) = client_slot {
                        clients.leave(client_slot);
                    }
                }
            });
        }
    });
    assert_eq!(wrong.into_inner(), 0);
    assert_eq!((clients.counted(), clients.evicted(), clients.uncounted()), (0, 0, 0));
}

impl ClientTable {
    fn is_ignored(&self, key: ClientHash, now_ns: u64, most_ns: u64) -> bool {
        self.ignored_ns(key, now_ns, most_ns) > 0
    }
}

#[test]
fn a_client_is_ignored_for_a_while() {
    let clients = ClientTable::new(64);
    let key = clients.key(0, Ipv6Addr::LOCALHOST.into());
    let (second, day) = (1_000_000_000, 86_400_000_000_000);
    assert!(!clients.is_ignored(key, START, day));
    clients.ignore(key, START, 5 * second, day);
    assert!(clients.is_ignored(key, START, day));
    assert!(clients.is_ignored(key, START + 5 * second - UNIT, day));
    let left_ns = clients.ignored_ns(key, START + 2 * second, day);
    assert!(left_ns.abs_diff(3 * second) <= 2 * UNIT, "{left_ns}");
    assert!(!clients.is_ignored(key, START + 5 * second + UNIT, day));
    // a shorter time does not shorten it
    clients.ignore(key, START, second, day);
    assert!(clients.is_ignored(key, START + 4 * second, day));
    clients.ignore(key, START, day, day);
    assert!(clients.is_ignored(key, START + day - second, day));
}

/// An ignored client is ignored no more once its time is over, except once in 52 days when the time
/// of a word wraps around, and then for no longer than before.
#[test]
fn being_ignored_is_over_for_good() {
    let clients = ClientTable::new(64);
    let key = clients.key(0, Ipv6Addr::LOCALHOST.into());
    let (second, hour) = (1_000_000_000, 3_600_000_000_000);
    let most = 5 * second;
    clients.ignore(key, START, most, most);
    let is_ignored = |hours: &u64| clients.is_ignored(key, START + hours * hour, most);
    assert!((1..2000).filter(is_ignored).count() <= 1);
    // and a client that is refused again is ignored again
    assert!((1..2000).all(|hours| {
        let now = START + hours * hour;
        clients.ignore(key, now, most, most);
        clients.is_ignored(key, now + second, most)
    }));
}

#[test]
fn what_is_full_again_is_replaced_first() {
    let clients = ClientTable::new(WAYS);
    let terms = BucketTerms::new(1000 * UNIT, 2);
    let keys: Vec<ClientHash> = (0..9).map(|number| clients.key(1, ip(number))).collect();
    for (number, key) in keys[..8].iter().enumerate() {
        let now = START + number as u64 * UNIT;
        assert_eq!(clients.charge(*key, now, &terms), Ok(0));
        assert_eq!(clients.charge(*key, now, &terms), Ok(0));
        assert!(clients.charge(*key, now, &terms).is_err());
    }
    assert_eq!(clients.evicted(), 0);
    // all eight are in use: the one that would have been full soonest is replaced
    assert_eq!(clients.charge(keys[8], START + 100 * UNIT, &terms), Ok(0));
    assert_eq!(clients.evicted(), 1);
    assert!(clients.charge(keys[1], START + 100 * UNIT, &terms).is_err());
    // when they are full again, any of them may be replaced
    assert_eq!(clients.charge(keys[0], START + 3000 * UNIT, &terms), Ok(0));
    assert_eq!(clients.evicted(), 1);
}

#[test]
fn a_count_in_use_is_never_replaced() {
    let clients = ClientTable::new(WAYS);
    let keys: Vec<ClientHash> = (0..9).map(|number| clients.key(1, ip(number))).collect();
    let client_slots: Vec<ClientSlot> =
        keys[..8].iter().map(|key| clients.enter(*key, 2).unwrap().unwrap()).collect();
    assert_eq!(clients.enter(keys[8], 2), Ok(None));
    assert_eq!((clients.uncounted(), clients.counted()), (1, 8));
    let second = clients.enter(keys[0], 2).unwrap().unwrap();
    assert_eq!(clients.enter(keys[0], 2), Err(()));
    clients.leave(second);
    clients.leave(client_slots[0]);
    let client_slot = clients.enter(keys[8], 2).unwrap().unwrap();
    client_slots[1..]
        .iter()
        .chain([&client_slot])
        .for_each(|client_slot| clients.leave(*client_slot));
    assert_eq!(clients.counted(), 0);
}

proptest! {
    /// With room for all, each client gets what it would get with a bucket of its own.
    #[test]
    fn as_good_as_a_bucket_for_each(
        interval in 1u64..50,
        burst in 1u32..6,
        most_wait in 0u64..100,
        begin in prop_oneof![Just(START), Just((TIME_MASK - 500) * UNIT)],
        events in prop::collection::vec((0u32..12, 0u64..40, 0u8..3), 0..200),
    ) {
        let clients = ClientTable::new(1 << 12);
        let terms = BucketTerms { most_wait_ns: most_wait * UNIT, ..BucketTerms::new(interval * UNIT, burst) };
        let mut model: HashMap<u32, AtomicU64> = HashMap::new();
        let mut now = begin;
        for (client, step, end) in events {
            now += step * UNIT;
            let key = clients.key(7, ip(client));
            let word = model.entry(client).or_default();
            let expected = bucket::charge(word, now, &terms);
            prop_assert_eq!(clients.charge(key, now, &terms), expected);
            match (expected, end) {
                (Ok(_), 1) => {
                    bucket::refund(word, &terms);
                    clients.refund(key, now, &terms);
                }
                (Ok(wait_ns @ 1..), 2) => {
                    bucket::give_up(word, now + wait_ns, &terms);
                    clients.give_up(key, now + wait_ns, &terms);
                }
                _ => {}
            }
        }
        prop_assert_eq!(clients.evicted(), 0);
    }

    #[test]
    fn counts_are_right(moves in prop::collection::vec((0u32..6, any::<bool>()), 0..200)) {
        let clients = ClientTable::new(1 << 10);
        let mut model: HashMap<u32, Vec<ClientSlot>> = HashMap::new();
        for (client, enters) in moves {
            let client_slots = model.entry(client).or_default();
            if enters {
                match clients.enter(clients.key(7, ip(client)), 3) {
                    Ok(client_slot) => client_slots.push(client_slot.unwrap()),
                    Err(()) => prop_assert_eq!(client_slots.len(), 3),
                }
                prop_assert!(client_slots.len() <= 3);
            } else if let Some(client_slot) = client_slots.pop() {
                clients.leave(client_slot);
            }
        }
        let left: usize = model.values().map(Vec::len).sum();
        prop_assert_eq!(clients.counted(), left as u64);
    }
}

/// Two processes that share their tables, simulated in one.
#[test]
fn processes_share_buckets_and_see_what_clients_have_in_others() {
    let words: &[AtomicU64] =
        (0..SharedCounts::WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
    let of_old = SharedCounts::new(words, 1, [5, 6]);
    let (generation, rows) = of_old.hand();
    let of_new = SharedCounts::join(words, 2, generation, rows).unwrap();
    let [old, new] = [&of_old, &of_new].map(ClientTable::shared);
    let key = old.key(1, ip(7));
    assert_eq!(key, new.key(1, ip(7)));
    let terms = bucket::BucketTerms { interval_ns: 1000 * UNIT, tolerance_ns: 0, most_wait_ns: 0 };
    assert!(old.charge(key, START, &terms).is_ok() && new.charge(key, START, &terms).is_err());
    old.ignore(key, START, 50 * UNIT, 100 * UNIT);
    assert!(new.ignored_ns(key, START, 100 * UNIT) > 0);

    let first = old.enter(key, 2).unwrap().unwrap();
    let second = new.enter(key, 2).unwrap().unwrap();
    assert!(old.enter(key, 2).is_err() && new.enter(key, 2).is_err());
    assert_eq!((old.counted(), new.counted()), (1, 1));
    assert!(new.enter(new.key(1, ip(8)), 2).is_ok(), "another client");
    old.leave(first);
    let third = new.enter(key, 2).unwrap().unwrap();
    // a count of a process is free once the process has ended
    assert!(old.enter(key, 2).is_err());
    of_old.newer_ended();
    assert!(old.enter(key, 2).is_ok());
    let _ = (second, third);
}
