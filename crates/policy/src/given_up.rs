//! Requests that clients give up, counted over all connections of each client: a client that may not give up
//! more on one HTTP/2 connection cannot escape that limit by opening new ones.
//!
//! Each client has a bucket. When it is full, the client takes turns for some seconds: its connections have
//! one request looked at in a turn of the engine, and each of its requests waits for one of its places in
//! time. No client is measured until one gives something up, and none waits until one has given up too much,
//! so all others pay one load of a word.

use crate::bucket::BucketTerms;
use crate::clients::ClientTable;
use forebay_http::client::ClientKey;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How many requests the clients of one address may give up at once. A browser that leaves a page gives up at
/// most 128 requests, and there may be many browsers behind one address.
pub const BURST: u32 = 4000;

/// How many requests the clients of one address may give up continuously, per second.
pub const PER_S: u32 = 200;

/// How long a client takes turns once it has given up more than that, in seconds.
pub const TURNS_S: u64 = 5;

const TURNS_NS: u64 = TURNS_S * 1_000_000_000;

/// The time between two requests of clients of one address that take turns, in nanoseconds.
const TURN_NS: u64 = 2_000_000;

/// The shortest wait of a request for its turn, in nanoseconds: within it, most of the requests that are
/// given up at once have been given up.
const LEAST_WAIT_NS: u64 = 20_000_000;

/// The longest wait of a request for its turn, in nanoseconds, so that other clients of the address are
/// served.
const MOST_WAIT_NS: u64 = 250_000_000;

/// How many clients are known at a time, a power of two.
const CLIENTS: usize = 1 << 12;

/// The numbers in the client table of a client's bucket, and of the time for which it takes turns.
const GIVEN_UP: u64 = 1;
const TURNS: u64 = 2;

/// The number in the client table of the bucket whose places in time are turns.
const TURN: u64 = 3;

/// What all clients have given up.
#[derive(Debug)]
pub struct GivenUpSums {
    /// The table of clients, made when a client first gives something up.
    table: OnceLock<ClientTable>,
    terms: BucketTerms,
    turn: BucketTerms,
    /// Until when some client takes turns.
    turns_until_ns: AtomicU64,
}

impl Default for GivenUpSums {
    fn default() -> GivenUpSums {
        GivenUpSums {
            table: OnceLock::new(),
            terms: BucketTerms::new(1_000_000_000 / u64::from(PER_S), BURST),
            turn: BucketTerms { most_wait_ns: MOST_WAIT_NS, ..BucketTerms::new(TURN_NS, 1) },
            turns_until_ns: AtomicU64::new(0),
        }
    }
}

impl GivenUpSums {
    /// Counts `count` requests that a client has given up. Returns whether the client is within its limit.
    pub fn charge(&self, client: ClientKey, count: usize, now_ns: u64) -> bool {
        let table = self.table.get_or_init(|| ClientTable::new(CLIENTS));
        let key = table.key_of(GIVEN_UP, client);
        // this many fill the bucket, so more need not be charged
        let mut each = 0..count.min(BURST as usize + 1);
        if each.all(|_| table.charge(key, now_ns, &self.terms).is_ok()) {
            return true;
        }
        table.ignore(table.key_of(TURNS, client), now_ns, TURNS_NS, TURNS_NS);
        self.turns_until_ns.fetch_max(now_ns + TURNS_NS, Relaxed);
        false
    }

    /// Whether a client takes turns.
    #[inline]
    pub fn takes_turns(&self, client: ClientKey, now_ns: u64) -> bool {
        now_ns < self.turns_until_ns.load(Relaxed) && self.is_known_to(client, now_ns)
    }

    /// How long a request of a client waits for its turn, in milliseconds; 0 if the client does not take
    /// turns.
    #[inline]
    pub fn turn_ms(&self, client: ClientKey, now_ns: u64) -> u32 {
        if self.takes_turns(client, now_ns) { self.next_turn_ms(client, now_ns) } else { 0 }
    }

    #[cold]
    fn next_turn_ms(&self, client: ClientKey, now_ns: u64) -> u32 {
        let Some(table) = self.table.get() else { return 0 };
        let wait_ns = table.charge(table.key_of(TURN, client), now_ns, &self.turn);
        let wait_ns = wait_ns.unwrap_or(MOST_WAIT_NS).max(LEAST_WAIT_NS);
        (wait_ns / 1_000_000) as u32
    }

    #[cold]
    fn is_known_to(&self, client: ClientKey, now_ns: u64) -> bool {
        self.table.get().is_some_and(|table| {
            table.ignored_ns(table.key_of(TURNS, client), now_ns, TURNS_NS) > 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    const S: u64 = 1_000_000_000;

    fn client(text: &str) -> ClientKey {
        ClientKey::of(text.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn who_gives_up_too_much_takes_turns_and_nobody_else_does() {
        let (sums, one, other) = (GivenUpSums::default(), client("192.0.2.1"), client("192.0.2.2"));
        assert!((0..BURST).all(|_| sums.charge(one, 1, 1000 * S)));
        assert!(!sums.takes_turns(one, 1000 * S));
        assert!(!sums.charge(one, 1, 1000 * S));
        assert!(sums.takes_turns(one, 1000 * S) && !sums.takes_turns(other, 1000 * S));
        assert!(sums.charge(other, 1, 1000 * S));
        assert!(sums.takes_turns(one, (1000 + TURNS_S) * S - S / 2));
        assert!(!sums.takes_turns(one, (1000 + TURNS_S) * S + S / 2));
    }

    #[test]
    fn requests_of_who_takes_turns_wait_for_them() {
        let (sums, one, other) = (GivenUpSums::default(), client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!(sums.turn_ms(one, 1000 * S), 0);
        assert!(!sums.charge(one, BURST as usize + 1, 1000 * S));
        let waits: Vec<u32> = (0..200).map(|_| sums.turn_ms(one, 1000 * S)).collect();
        assert_eq!((waits[0], waits[9]), (20, 20));
        assert!((98..=102).contains(&waits[50]), "{}", waits[50]);
        assert_eq!((waits[140], waits[199]), (250, 250));
        assert_eq!(sums.turn_ms(other, 1000 * S), 0);
        // the client's turns are over
        assert_eq!(sums.turn_ms(one, 1001 * S), 20);
        assert_eq!(sums.turn_ms(one, (1001 + TURNS_S) * S), 0);
    }

    #[test]
    fn a_connection_that_ends_is_charged_with_all_it_had() {
        let (sums, one) = (GivenUpSums::default(), client("2001:db8::1"));
        assert!((0..BURST / 100).all(|_| sums.charge(one, 100, 1000 * S)));
        assert!(!sums.charge(one, 100, 1000 * S));
        // and the bucket fills up again; a little later than the rate says, because time is counted in units
        assert!(sums.charge(one, PER_S as usize - 1, 1001 * S));
        assert!(!sums.charge(one, usize::MAX, 1010 * S));
    }
}
