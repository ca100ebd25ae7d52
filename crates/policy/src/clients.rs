//! Buckets and counts of clients, in memory that does not grow.
//!
//! Each is a table of sets. A set is a cache line of eight words, and what is kept for a client is one word
//! of the set that the client's hash selects. The word begins with a part of the hash, so one
//! compare-and-swap checks whose word it is and changes it: there is no lock, and no client is charged for
//! another. The hash is keyed with a secret: a client cannot choose which others share its set.
//!
//! A bucket that is full again carries no information and is replaced first. If all eight are in use, the one
//! that will be full soonest is replaced, and that is counted. A count above zero is never replaced; if all
//! eight are in use, a new client is not counted at all, and that is counted, too.
//!
//! Time is kept in units of 4.096 µs, and an interval is rounded up to them: at 1,000 per second a client
//! gets 0.4 % less than its limit. Two clients of one set are mistaken for one another with a probability of
//! 1 in 16 million. After 52 days a word's time wraps around: a client that comes back after exactly that
//! time, and whose word was not replaced, finds the charge it had then.
//!
//! The memory may be [shared](ClientTable::shared) with other processes. All of them then use the same
//! buckets. Each keeps its counts in a table of its own, and adds what a client has in the others'.

use crate::bucket::BucketTerms;
use forebay_control::shared::{SharedClients, SharedCounts};
use forebay_http::client::ClientKey;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

/// Words in each of the two tables.
const WORDS: usize = 1 << 16;
const WAYS: usize = 8;

/// A unit of time is 2 to the power of this, in nanoseconds.
const UNIT_BITS: u32 = 12;
/// The bits of the time in a bucket's word: 52 days until it wraps around.
const TIME_BITS: u32 = 40;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// The bits of the count in a count's word.
const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// The furthest that a bucket is charged ahead or a client is ignored: a day, and a minute for requests that
/// queue. A time that seems to be further ahead lies in the past.
const MOST_AHEAD: u64 = ((86_400 + 60 + 3600) * 1_000_000_000) >> UNIT_BITS;

/// How far the clocks of callers may lie apart.
const LAG: u64 = 10_000_000_000 >> UNIT_BITS;

/// A number under which clients have buckets, made from what the bucket is for. Other terms give another
/// number, so that a client's old charge does not count under a new limit.
pub(crate) fn number(of: impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(of)
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

/// The buckets and counts of clients.
#[derive(Debug)]
pub(crate) struct ClientTable {
    secret: [u64; 2],
    words: TableWords,
    evicted: AtomicU64,
    uncounted: AtomicU64,
}

/// The memory in which the tables lie.
#[derive(Debug)]
enum TableWords {
    Own { buckets: Box<[Set]>, counts: Box<[Set]> },
    Shared(SharedClients),
}

/// A keyed hash of the client and of what the word is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientHash(u64);

/// The position of a client's word in the table of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientSlot(u32);

impl Default for ClientTable {
    fn default() -> ClientTable {
        ClientTable::new(WORDS)
    }
}

impl ClientTable {
    /// A table without memory, for a policy that keeps nothing for clients. No other method may be called on
    /// it, except [`is_there`](ClientTable::is_there).
    pub(crate) fn none() -> ClientTable {
        ClientTable::new(0)
    }

    /// Whether the tables have memory.
    pub(crate) fn is_there(&self) -> bool {
        self.sets() > 0
    }

    /// Tables of `words` words each, a power of two and at least eight.
    pub(crate) fn new(words: usize) -> ClientTable {
        let sets = || (0..words / WAYS).map(|_| Set::default()).collect();
        ClientTable::with([0, 1].map(random), TableWords::Own { buckets: sets(), counts: sets() })
    }

    /// Tables that other processes use, too.
    pub(crate) fn shared(counts: &SharedCounts) -> ClientTable {
        let clients = counts.clients();
        ClientTable::with(clients.secret(), TableWords::Shared(clients))
    }

    fn with(secret: [u64; 2], words: TableWords) -> ClientTable {
        ClientTable { secret, words, evicted: AtomicU64::new(0), uncounted: AtomicU64::new(0) }
    }

    /// The number of sets in each table.
    fn sets(&self) -> usize {
        match &self.words {
            TableWords::Own { buckets, .. } => buckets.len(),
            TableWords::Shared(clients) => clients.buckets().len() / WAYS,
        }
    }

    #[inline]
    fn buckets(&self, key: ClientHash) -> &[AtomicU64; WAYS] {
        let set = self.set_of(key);
        match &self.words {
            TableWords::Own { buckets, .. } => &buckets[set].0,
            TableWords::Shared(clients) => ways(clients.buckets(), set),
        }
    }

    #[inline]
    fn counts(&self, set: usize) -> &[AtomicU64; WAYS] {
        match &self.words {
            TableWords::Own { counts, .. } => &counts[set].0,
            TableWords::Shared(clients) => ways(clients.counts(), set),
        }
    }

    /// The client's counts in other processes.
    fn count_of_others(&self, key: ClientHash) -> u64 {
        let TableWords::Shared(clients) = &self.words else { return 0 };
        let (set, tag) = (self.set_of(key), key.0 << COUNT_BITS);
        let words = clients.counts_of_others().flat_map(|table| ways(table, set));
        let of_client =
            words.map(|word| word.load(SeqCst)).filter(|word| word & !COUNT_MASK == tag);
        of_client.map(|word| word & COUNT_MASK).sum()
    }

    /// The key of the client with this address; `of` is the number of what is kept for it.
    #[inline]
    pub(crate) fn key(&self, of: u64, client: IpAddr) -> ClientHash {
        self.key_of(of, ClientKey::of(client))
    }

    /// The key of a client given as a `ClientKey`.
    #[inline]
    pub(crate) fn key_of(&self, of: u64, client: ClientKey) -> ClientHash {
        ClientHash(number((self.secret, of, client.as_u64())))
    }

    /// Charges an event of a client, like [`bucket::charge`](crate::bucket::charge).
    ///
    /// # Errors
    /// The event is not admitted; the error is the time after which it would be, in nanoseconds.
    #[inline]
    pub(crate) fn charge(
        &self,
        key: ClientHash,
        now_ns: u64,
        terms: &BucketTerms,
    ) -> Result<u64, u64> {
        let terms = Units::of(terms);
        let now = now_ns >> UNIT_BITS;
        let ways = self.buckets(key);
        loop {
            let place = BucketPlace::find(ways, key, now, terms.most_ahead);
            // a word of another client is replaced by a full bucket
            let used = if place.is_own { place.ahead } else { 0 };
            let wait = used.saturating_sub(terms.tolerance);
            if wait > terms.most_wait {
                return Err((wait - terms.most_wait) << UNIT_BITS);
            }
            let next = bucket_word(key, now + used + terms.interval);
            if self.put(ways, &place, next) {
                return Ok(wait << UNIT_BITS);
            }
        }
    }

    /// Takes back what [`charge`](ClientTable::charge) has just done.
    pub(crate) fn refund(&self, key: ClientHash, now_ns: u64, terms: &BucketTerms) {
        let terms = Units::of(terms);
        let now = now_ns >> UNIT_BITS;
        let ways = self.buckets(key);
        while let Some((way, word)) = find_bucket(ways, key) {
            let used = ahead(word, now, terms.most_ahead).saturating_sub(terms.interval);
            let next = bucket_word(key, now + used);
            if ways[way].compare_exchange_weak(word, next, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Gives up a turn that [`charge`](ClientTable::charge) has reserved, like
    /// [`bucket::give_up`](crate::bucket::give_up).
    pub(crate) fn give_up(&self, key: ClientHash, turn_ns: u64, terms: &BucketTerms) {
        let terms = Units::of(terms);
        let before = (turn_ns >> UNIT_BITS) + terms.tolerance;
        let reserved = bucket_word(key, before + terms.interval);
        let ways = self.buckets(key);
        if let Some((way, word)) = find_bucket(ways, key)
            && word == reserved
        {
            let before = bucket_word(key, before);
            let _ = ways[way].compare_exchange(reserved, before, Relaxed, Relaxed);
        }
    }

    /// Ignores a client for `for_ns`, unless it is ignored for longer already. No client is ignored for
    /// longer than `most_ns`: a word further ahead lies in the past.
    pub(crate) fn ignore(&self, key: ClientHash, now_ns: u64, for_ns: u64, most_ns: u64) {
        let now = now_ns >> UNIT_BITS;
        let wanted = units(for_ns).min(MOST_AHEAD);
        let ways = self.buckets(key);
        loop {
            let place = BucketPlace::find(ways, key, now, most_ignored(most_ns));
            let is_enough = place.is_own && place.ahead >= wanted;
            if is_enough || self.put(ways, &place, bucket_word(key, now + wanted)) {
                return;
            }
        }
    }

    /// How much longer a client is ignored; 0 if it is not. No client is ignored for longer than `most_ns`.
    #[inline]
    pub(crate) fn ignored_ns(&self, key: ClientHash, now_ns: u64, most_ns: u64) -> u64 {
        let word = find_bucket(self.buckets(key), key);
        let (now, most) = (now_ns >> UNIT_BITS, most_ignored(most_ns));
        word.map_or(0, |(_, word)| ahead(word, now, most) << UNIT_BITS)
    }

    /// Counts one more request of a client that may have `most` at once. `Ok(None)` if there was no place to
    /// count it.
    ///
    /// # Errors
    /// The client has as many already.
    #[inline]
    pub(crate) fn enter(&self, key: ClientHash, most: u32) -> Result<Option<ClientSlot>, ()> {
        let most = u64::from(most).min(COUNT_MASK);
        let set = self.set_of(key);
        let ways = self.counts(set);
        let tag = key.0 << COUNT_BITS;
        loop {
            let words = || ways.iter().map(|word| word.load(Relaxed)).enumerate();
            let is_mine =
                |(_, word): &(usize, u64)| word & !COUNT_MASK == tag && word & COUNT_MASK > 0;
            let is_free = |(_, word): &(usize, u64)| word & COUNT_MASK == 0;
            let (way, seen, next) = match words().find(is_mine) {
                Some((_, word)) if word & COUNT_MASK >= most => return Err(()),
                Some((way, word)) => (way, word, word + 1),
                None => match words().find(is_free) {
                    Some((way, word)) => (way, word, tag | 1),
                    None => {
                        self.uncounted.fetch_add(1, Relaxed);
                        return Ok(None);
                    }
                },
            };
            let is_new = next == tag | 1;
            if ways[way].compare_exchange_weak(seen, next, Relaxed, Relaxed).is_err()
                || is_new && is_withdrawn(ways, way, next, !COUNT_MASK, COUNT_MASK)
            {
                continue;
            }
            let client_slot = ClientSlot((set * WAYS + way) as u32);
            // after the store here: of two processes that enter at once, at least one sees the other's count
            fence(SeqCst);
            if (next & COUNT_MASK) + self.count_of_others(key) > most {
                self.leave(client_slot);
                return Err(());
            }
            return Ok(Some(client_slot));
        }
    }

    /// Counts one request less. `client_slot` comes from [`enter`](ClientTable::enter) and is used only once:
    /// until then the count is above zero, so the word is no other client's.
    #[inline]
    pub(crate) fn leave(&self, client_slot: ClientSlot) {
        let client_slot = client_slot.0 as usize;
        self.counts(client_slot / WAYS)[client_slot % WAYS].fetch_sub(1, Relaxed);
    }

    /// How many requests are counted now. The call reads the whole table.
    pub(crate) fn counted(&self) -> u64 {
        let words = (0..self.sets()).flat_map(|set| self.counts(set));
        words.map(|word| word.load(Relaxed) & COUNT_MASK).sum()
    }

    /// Buckets that were replaced before they were full again.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// Requests that were not counted because there was no place.
    pub(crate) fn uncounted(&self) -> u64 {
        self.uncounted.load(Relaxed)
    }

    /// The set that the upper half of the hash selects; the lower half marks the client's word in it.
    #[inline]
    fn set_of(&self, key: ClientHash) -> usize {
        (key.0 >> 40) as usize & (self.sets() - 1)
    }

    /// Writes a client's word into its place. `false` if another caller was faster; the caller then searches
    /// again.
    #[inline]
    fn put(&self, ways: &[AtomicU64; WAYS], place: &BucketPlace, next: u64) -> bool {
        let BucketPlace { way, seen, ahead, is_own } = *place;
        if ways[way].compare_exchange_weak(seen, next, Relaxed, Relaxed).is_err() {
            return false;
        }
        if is_own {
            return true;
        }
        if is_withdrawn(ways, way, next, !TIME_MASK, 0) {
            return false;
        }
        if ahead > 0 {
            self.evicted.fetch_add(1, Relaxed);
        }
        true
    }
}

/// The words of a set.
#[inline]
fn ways(table: &[AtomicU64], set: usize) -> &[AtomicU64; WAYS] {
    &table.as_chunks().0[set]
}

/// A number that no client can predict.
fn random(of: u64) -> u64 {
    RandomState::new().hash_one(of)
}

/// The place of a client's bucket in its set, or the place it can take.
struct BucketPlace {
    way: usize,
    /// The word that was read there.
    seen: u64,
    /// How far the word's time lies ahead.
    ahead: u64,
    /// Whether the word is the client's, and not another's.
    is_own: bool,
}

impl BucketPlace {
    /// Finds the client's bucket, which is at most `most` ahead; if it has none, the [soonest] to be full.
    #[inline]
    fn find(ways: &[AtomicU64; WAYS], key: ClientHash, now: u64, most: u64) -> BucketPlace {
        match find_bucket(ways, key) {
            Some((way, seen)) => {
                BucketPlace { way, seen, ahead: ahead(seen, now, most), is_own: true }
            }
            None => {
                let (way, seen, ahead) = soonest(ways, now);
                BucketPlace { way, seen, ahead, is_own: false }
            }
        }
    }
}

/// A bucket's terms in the table's units of time.
struct Units {
    interval: u64,
    tolerance: u64,
    most_wait: u64,
    most_ahead: u64,
}

impl Units {
    #[inline]
    fn of(terms: &BucketTerms) -> Units {
        let interval = units(terms.interval_ns);
        let tolerance = terms.tolerance_ns / terms.interval_ns * interval;
        let most_wait = terms.most_wait_ns >> UNIT_BITS;
        let most_ahead = (interval + tolerance + most_wait + LAG).min(MOST_AHEAD);
        Units { interval, tolerance, most_wait, most_ahead }
    }
}

/// The furthest that the word of a client can be ahead if it is ignored for at most `most_ns`.
#[inline]
fn most_ignored(most_ns: u64) -> u64 {
    (units(most_ns) + LAG).min(MOST_AHEAD)
}

/// Nanoseconds in units of time, rounded up.
#[inline]
fn units(ns: u64) -> u64 {
    ns.div_ceil(1 << UNIT_BITS)
}

#[inline]
fn bucket_word(key: ClientHash, arrival: u64) -> u64 {
    key.0 << TIME_BITS | arrival & TIME_MASK
}

/// How far a word's time lies ahead; 0 if it has passed, or if the word was not used yet.
#[inline]
fn ahead(word: u64, now: u64, most: u64) -> u64 {
    let ahead = word.wrapping_sub(now) & TIME_MASK;
    if word == 0 || ahead > most { 0 } else { ahead }
}

#[inline]
fn find_bucket(ways: &[AtomicU64; WAYS], key: ClientHash) -> Option<(usize, u64)> {
    let words = ways.iter().map(|word| word.load(Relaxed)).enumerate();
    let tag = key.0 << TIME_BITS;
    words.into_iter().find(|(_, word)| word & !TIME_MASK == tag)
}

/// The bucket that is full, or will be soonest; of several the first, so that callers that look at the same
/// time choose the same.
#[cold]
fn soonest(ways: &[AtomicU64; WAYS], now: u64) -> (usize, u64, u64) {
    let words = ways.iter().map(|word| word.load(Relaxed)).enumerate();
    let aheads = words.map(|(way, word)| (way, word, ahead(word, now, MOST_AHEAD)));
    aheads.min_by_key(|(.., ahead)| *ahead).unwrap_or_default()
}

/// Called after a word was stored for a client that had none. If another caller has stored one for the same
/// client in another place meanwhile, the word is taken back, and the caller searches again. Both callers may
/// do so; the next time one of them is first. `tag` masks the bits that name the client. Another word counts
/// if any bit of `used` is set in it, or always if `used` is 0.
#[cold]
fn is_withdrawn(ways: &[AtomicU64; WAYS], way: usize, word: u64, tag: u64, used: u64) -> bool {
    // the fence: of two callers that look for each other's word at least one sees it
    fence(SeqCst);
    let is_same = |other: u64| other & tag == word & tag && (used == 0 || other & used > 0);
    let is_twice =
        ways.iter().enumerate().any(|(at, other)| at != way && is_same(other.load(Relaxed)));
    // a word that another thread has charged since is left
    is_twice && ways[way].compare_exchange(word, 0, Relaxed, Relaxed).is_ok()
}

#[cfg(test)]
mod tests;
