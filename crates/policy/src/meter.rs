//! The buckets and counts that are charged for each rule, or for each of its clients.

use crate::bucket::{self, BucketTerms};
use crate::clients::{ClientHash, ClientSlot, ClientTable, number};
use crate::per_connection::PerConnectionLimit;
use crate::rule::{Bounds, InFlight, Limit, Over, Per, Rule};
use forebay_control::shared::{SharedCount, SharedCounts};
use forebay_http::client::ClientKey;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The meters of one rule.
#[derive(Debug, Default)]
pub(crate) struct RuleMeters {
    pub(crate) connections: Option<Rated>,
    pub(crate) requests: Option<Rated>,
    pub(crate) in_flight: Option<InFlightMeter>,
    pub(crate) per_connection: Option<PerConnectionLimit>,
    /// The word in which an earlier process may have left a moved rate, for a rule whose own rate cannot be
    /// moved.
    unmoved: Option<&'static AtomicU64>,
}

/// A limit on how often, with its bucket.
#[derive(Debug)]
pub(crate) struct Rated {
    pub(crate) limit: Limit,
    terms: BucketTerms,
    bucket: Bucket,
    /// The rate that an agent has moved; `None` if the rule has no bounds.
    moved: Option<Arc<MovedRate>>,
}

/// A rate that an agent moves.
#[derive(Debug)]
struct MovedRate {
    bounds: Bounds,
    /// The interval that applies now.
    interval_ns: IntervalWord,
}

/// The interval of a rate that is moved.
#[derive(Debug)]
enum IntervalWord {
    Own(AtomicU64),
    /// A word in memory that the kernel reads, too.
    Given(&'static AtomicU64),
}

impl IntervalWord {
    fn new(given: Option<&'static AtomicU64>, interval_ns: u64) -> IntervalWord {
        match given {
            None => IntervalWord::Own(AtomicU64::new(interval_ns)),
            Some(word) => {
                word.store(interval_ns, Relaxed);
                IntervalWord::Given(word)
            }
        }
    }

    #[inline]
    fn get(&self) -> &AtomicU64 {
        match self {
            IntervalWord::Own(word) => word,
            IntervalWord::Given(word) => word,
        }
    }

    fn is_given(&self) -> bool {
        matches!(self, IntervalWord::Given(_))
    }
}

#[derive(Debug)]
enum Bucket {
    /// One bucket for all clients of the rule.
    Rule(BucketWord),
    /// A bucket for each client, kept under this number in the table of clients.
    Client(u64),
}

#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct CacheLine<T>(pub(crate) T);

/// The word of a bucket, on a cache line of its own, because every loop writes to it.
#[derive(Clone, Debug)]
enum BucketWord {
    Own(Arc<CacheLine<AtomicU64>>),
    /// A word in memory that the kernel charges, too.
    Given(&'static AtomicU64),
}

impl BucketWord {
    #[inline]
    fn get(&self) -> &AtomicU64 {
        match self {
            BucketWord::Own(word) => &word.0,
            BucketWord::Given(word) => word,
        }
    }

    fn of(arrival: u64) -> BucketWord {
        BucketWord::Own(Arc::new(CacheLine(AtomicU64::new(arrival))))
    }

    /// Whether both are the same word.
    fn is(&self, other: &BucketWord) -> bool {
        std::ptr::eq(self.get(), other.get())
    }
}

/// The purpose of a word in memory that the kernel reads or charges, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenWord {
    /// The bucket for connections that all clients of a rule share.
    Connections,
    /// The bucket for requests that all clients of a rule share.
    Requests,
    /// The time until which a rule is full, that is has as many requests at once as it may. The kernel, which
    /// does not count them, reads it.
    FullUntil,
    /// The interval between requests, where an agent moves the rate; 0 if the stated rate applies.
    Interval,
    /// The bucket for a class's connections, which the agent limits.
    ClassConnections,
    /// The interval between a class's connections; 0 for no limit.
    ClassInterval,
}

/// A function that gives a rule or a class, by its name, a word in shared memory; `None` for a word of its
/// own.
pub(crate) type Words<'w> = dyn FnMut(&str, GivenWord) -> Option<&'static AtomicU64> + 'w;

/// How long a rule is assumed to be full without a fresh check, in nanoseconds: after that the kernel lets
/// one request through, so that the server counts again.
const FULL_NS: u64 = 50_000_000;

/// A limit on how many at once.
#[derive(Debug)]
pub(crate) struct InFlightMeter {
    pub(crate) limit: InFlight,
    count: InFlightCount,
    /// The word that announces that the limit is reached.
    full_until: FullUntil,
}

/// A word that says until when a rule is full; `None` if no process reads it.
#[derive(Clone, Copy, Debug, Default)]
struct FullUntil(Option<&'static AtomicU64>);

impl FullUntil {
    /// Announces that a request has found no place. A place that is given back at the same time either clears
    /// the word after this store, or is seen by `is_full`.
    #[cold]
    fn set(self, until_ns: u64, is_full: impl FnOnce() -> bool) {
        let Some(word) = self.0 else { return };
        word.store(until_ns, SeqCst);
        if !is_full() {
            word.store(0, SeqCst);
        }
    }

    /// Announces that a place is free again.
    #[inline]
    fn clear(self) {
        if let Some(word) = self.0 {
            word.store(0, SeqCst);
        }
    }
}

#[derive(Debug)]
enum InFlightCount {
    Rule(RuleCount),
    Client(u64),
}

/// The number of requests that all clients of a rule have, on a cache line of its own.
#[derive(Clone, Debug)]
enum RuleCount {
    Own(Arc<CacheLine<AtomicU32>>),
    /// A count in memory that other processes read, too.
    Shared(SharedCount),
}

impl RuleCount {
    #[inline]
    fn enter(&self, most: u32, full: FullUntil) -> Option<Held> {
        match self {
            RuleCount::Own(count) => {
                let more = |now: u32| (now < most).then_some(now + 1);
                count.0.fetch_update(Relaxed, Relaxed, more).ok()?;
                Some(Held::Rule(Arc::clone(count)).telling(full))
            }
            RuleCount::Shared(count) => {
                if !count.take_below(most) {
                    return None;
                }
                let is_room = u64::from(count.own()) + u64::from(count.others()) <= most.into();
                if !is_room {
                    count.give_back();
                }
                is_room.then(|| Held::Shared(count.word()).telling(full))
            }
        }
    }

    fn get(&self) -> u32 {
        match self {
            RuleCount::Own(count) => count.0.load(Relaxed),
            RuleCount::Shared(count) => count.own(),
        }
    }

    /// Whether all processes together have as many requests as the limit allows.
    fn is_full(&self, most: u32) -> bool {
        match self {
            RuleCount::Own(count) => count.0.load(SeqCst) >= most,
            RuleCount::Shared(count) => {
                u64::from(count.own()) + u64::from(count.others()) >= most.into()
            }
        }
    }
}

impl RuleMeters {
    /// The meters of a rule. `before` holds those of the rule that had the same name until now. `words` gives
    /// the bucket for connections its word; its content comes from another process if this is the `first`
    /// state.
    pub(crate) fn new(
        rule: &Rule,
        (before, is_first): (Option<&RuleMeters>, bool),
        now_ns: u64,
        words: &mut Words<'_>,
        shared: Option<&SharedCounts>,
    ) -> RuleMeters {
        let rated = |setting, limit: &Option<Limit>, before: Option<&Option<Rated>>, given| {
            let before = before.and_then(Option::as_ref);
            let limit = limit.filter(|limit| !limit.rate.is_unlimited());
            limit.map(|limit| Rated::new(&rule.name, setting, limit, before, now_ns, given))
        };
        let tally = before.and_then(|before| before.in_flight.as_ref());
        let mut given = |limit: &Option<Limit>, of| {
            let is_shared =
                limit.is_some_and(|limit| limit.per == Per::Rule && !limit.rate.is_unlimited());
            let word = if is_shared { words(&rule.name, of) } else { None };
            word.map(|word| (word, is_first))
        };
        let of_connections = given(&rule.connections, GivenWord::Connections);
        let of_requests = given(&rule.requests, GivenWord::Requests);
        let interval = of_requests.and_then(|_| words(&rule.name, GivenWord::Interval));
        if let (Some(word), None) = (interval, rule.bounds) {
            word.store(0, Relaxed);
        }
        let connections = before.map(|before| &before.connections);
        let requests = before.map(|before| &before.requests);
        RuleMeters {
            connections: rated(1, &rule.connections, connections, of_connections),
            requests: rated(2, &rule.requests, requests, of_requests)
                .map(|rated| rated.bounded(rule.bounds, before, interval, now_ns)),
            in_flight: rule.in_flight.map(|limit| {
                let full_until = match limit.per {
                    Per::Rule => words(&rule.name, GivenWord::FullUntil),
                    Per::Client => None,
                };
                InFlightMeter {
                    full_until: FullUntil(full_until),
                    ..InFlightMeter::new(&rule.name, limit, tally, shared)
                }
            }),
            per_connection: PerConnectionLimit::new(4, &rule.name, rule.requests_per_connection),
            unmoved: interval.filter(|_| rule.bounds.is_none()),
        }
    }

    /// Resets a rate that cannot be moved to the stated one, whatever another process has left in the word.
    pub(crate) fn forget_moved(&self) {
        self.unmoved.inspect(|word| word.store(0, Relaxed));
    }

    /// The limits on how often: for connections, and for requests.
    pub(crate) fn rated(&self) -> [Option<&Rated>; 2] {
        [&self.connections, &self.requests].map(Option::as_ref)
    }

    /// Whether the rule keeps something for each client.
    pub(crate) fn needs_clients(rule: &Rule) -> bool {
        let mut limits = [&rule.connections, &rule.requests].into_iter().flatten();
        limits.any(|limit| limit.per == Per::Client)
            || rule.in_flight.is_some_and(|limit| limit.per == Per::Client)
            || RuleMeters::ignored_ns(rule) > 0
    }

    /// How long clients are ignored after a refusal, in nanoseconds; 0 if they are not.
    pub(crate) fn ignored_ns(rule: &Rule) -> u64 {
        let limits = [&rule.connections, &rule.requests].into_iter().flatten();
        limits.filter_map(Limit::ignored_ns).max().unwrap_or(0)
    }
}

impl Rated {
    fn new(
        name: &str,
        setting: u8,
        limit: Limit,
        before: Option<&Rated>,
        now_ns: u64,
        given: Option<(&'static AtomicU64, bool)>,
    ) -> Rated {
        let terms = BucketTerms::of(&limit);
        let before = before.and_then(|before| match &before.bucket {
            Bucket::Rule(word) => Some((word, before.terms)),
            Bucket::Client(_) => None,
        });
        let (given, goes_on) = given.unzip();
        let bucket = match (limit.per, before, given.map(BucketWord::Given)) {
            (Per::Client, ..) => {
                Bucket::Client(number((name, setting, terms.interval_ns, limit.burst)))
            }
            (Per::Rule, Some((word, old)), None) => Bucket::Rule(match (old == terms, word) {
                (true, BucketWord::Own(_)) => word.clone(),
                _ => BucketWord::of(bucket::fit(word.get().load(Relaxed), now_ns, &terms)),
            }),
            (Per::Rule, None, None) => Bucket::Rule(BucketWord::of(0)),
            (Per::Rule, Some((word, _)), Some(given)) => {
                if !given.is(word) {
                    given.get().store(word.get().load(Relaxed), Relaxed);
                }
                let fit = |arrival| Some(bucket::fit(arrival, now_ns, &terms));
                let _ = given.get().fetch_update(Relaxed, Relaxed, fit);
                Bucket::Rule(given)
            }
            (Per::Rule, None, Some(given)) => {
                if goes_on == Some(true) {
                    // another process may still charge it, for its rule of the same name
                    let fit = |arrival| Some(bucket::fit(arrival, now_ns, &terms));
                    let _ = given.get().fetch_update(Relaxed, Relaxed, fit);
                } else {
                    // a limit that is new, or comes back, begins anew
                    given.get().store(0, Relaxed);
                }
                Bucket::Rule(given)
            }
        };
        Rated { limit, terms, bucket, moved: None }
    }

    /// The bucket with a rate that can be moved, if the rule has bounds. A rate that an agent has moved
    /// continues with its bucket if terms and bounds are the same. Otherwise the stated rate applies, and
    /// what is used of the burst stays used.
    fn bounded(
        mut self,
        bounds: Option<Bounds>,
        before: Option<&RuleMeters>,
        given: Option<&'static AtomicU64>,
        now_ns: u64,
    ) -> Rated {
        let before = before.and_then(|before| before.requests.as_ref());
        let same = before.filter(|before| before.terms == self.terms);
        let known = same.and_then(|before| before.moved.as_ref());
        let goes_on = |known: &&Arc<MovedRate>| {
            Some(known.bounds) == bounds && known.interval_ns.is_given() == given.is_some()
        };
        if let Some(known) = known.filter(goes_on) {
            self.moved = Some(Arc::clone(known));
            return self;
        }
        if let Some(arrival) = before.and_then(|before| before.unmoved(now_ns)) {
            let arrival = bucket::fit(arrival, now_ns, &self.terms);
            match &self.bucket {
                // a word of its own: the other one is charged at the moved rate until the last state that
                // uses it is gone
                Bucket::Rule(BucketWord::Own(_)) => {
                    self.bucket = Bucket::Rule(BucketWord::of(arrival));
                }
                // there is only one word, the one that the kernel knows
                Bucket::Rule(BucketWord::Given(word)) => word.store(arrival, Relaxed),
                Bucket::Client(_) => {}
            }
        }
        let interval_ns = self.terms.interval_ns;
        let moved =
            |bounds| MovedRate { bounds, interval_ns: IntervalWord::new(given, interval_ns) };
        self.moved = bounds.map(|bounds| Arc::new(moved(bounds)));
        self
    }

    /// The bucket's word, converted to the stated rate; `None` if an agent has not moved the rate.
    fn unmoved(&self, now_ns: u64) -> Option<u64> {
        let (moved, Bucket::Rule(word)) = (self.moved.as_ref()?, &self.bucket) else { return None };
        let (moved_ns, stated_ns) = (moved.interval_ns.get().load(Relaxed), self.terms.interval_ns);
        let arrival = || bucket::rescale(word.get().load(Relaxed), now_ns, moved_ns, stated_ns);
        (moved_ns != stated_ns).then(arrival)
    }

    /// The terms that apply to the bucket now.
    #[inline]
    fn terms(&self) -> BucketTerms {
        match &self.moved {
            None => self.terms,
            Some(moved) => {
                BucketTerms::of_interval(&self.limit, moved.interval_ns.get().load(Relaxed))
            }
        }
    }

    /// The bucket's word at the stated rate; `None` if the word is shared with the kernel or another process.
    pub(crate) fn charged(&self, now_ns: u64) -> Option<u64> {
        let Bucket::Rule(word @ BucketWord::Own(_)) = &self.bucket else { return None };
        Some(self.unmoved(now_ns).unwrap_or_else(|| word.get().load(Relaxed)))
    }

    /// Raises the bucket's charge to at least `charged`.
    pub(crate) fn charge_as(&self, charged: u64, now_ns: u64) {
        if let Bucket::Rule(word @ BucketWord::Own(_)) = &self.bucket {
            word.get().fetch_max(bucket::fit(charged, now_ns, &self.terms), Relaxed);
        }
    }

    /// The current rate per second; `None` if the rate cannot be moved.
    pub(crate) fn rate_per_s(&self) -> Option<f64> {
        let interval_ns = self.moved.as_ref()?.interval_ns.get().load(Relaxed);
        Some(1e9 / interval_ns as f64)
    }

    /// Moves the rate, as far as its bounds allow. What is used of the burst stays used.
    pub(crate) fn set_rate(&self, per_s: f64, now_ns: u64) {
        let (Some(moved), Bucket::Rule(word)) = (&self.moved, &self.bucket) else { return };
        let Bounds { least, most } = moved.bounds;
        // the bounds also catch odd rates, such as NaN
        let interval_ns = (1e9 / per_s.max(0.0)) as u64;
        let interval_ns = interval_ns.clamp(most.interval_ns(), least.interval_ns());
        let before_ns = moved.interval_ns.get().swap(interval_ns, Relaxed);
        let rescale = |arrival| Some(bucket::rescale(arrival, now_ns, before_ns, interval_ns));
        if before_ns != interval_ns {
            let _ = word.get().fetch_update(Relaxed, Relaxed, rescale);
        }
    }

    /// Whether the kernel charges the bucket's word, too.
    pub(crate) fn is_given(&self) -> bool {
        matches!(self.bucket, Bucket::Rule(BucketWord::Given(_)))
    }

    /// # Errors
    /// The event is not admitted; the error is the time after which it would be, in nanoseconds.
    #[inline]
    pub(crate) fn charge(
        &self,
        clients: &ClientTable,
        client: IpAddr,
        now_ns: u64,
    ) -> Result<u64, u64> {
        match &self.bucket {
            Bucket::Rule(word) => bucket::charge(word.get(), now_ns, &self.terms()),
            Bucket::Client(number) => {
                clients.charge(clients.key(*number, client), now_ns, &self.terms)
            }
        }
    }

    pub(crate) fn refund(&self, clients: &ClientTable, client: ClientKey, now_ns: u64) {
        match &self.bucket {
            Bucket::Rule(word) => bucket::refund(word.get(), &self.terms()),
            Bucket::Client(number) => {
                clients.refund(clients.key_of(*number, client), now_ns, &self.terms);
            }
        }
    }

    pub(crate) fn give_up(&self, clients: &ClientTable, client: ClientKey, turn_ns: u64) {
        match &self.bucket {
            Bucket::Rule(word) => bucket::give_up(word.get(), turn_ns, &self.terms()),
            Bucket::Client(number) => {
                clients.give_up(clients.key_of(*number, client), turn_ns, &self.terms);
            }
        }
    }

    /// How many events the bucket would admit now; `None` if each client has a bucket of its own.
    pub(crate) fn available(&self, now_ns: u64) -> Option<u32> {
        match &self.bucket {
            Bucket::Rule(word) => Some(bucket::available(word.get(), now_ns, &self.terms())),
            Bucket::Client(_) => None,
        }
    }
}

impl InFlightMeter {
    fn new(
        name: &str,
        limit: InFlight,
        before: Option<&InFlightMeter>,
        shared: Option<&SharedCounts>,
    ) -> InFlightMeter {
        let own = || RuleCount::Own(Arc::default());
        let of_rule = || shared.and_then(|shared| shared.of(&format!("rule {name}")));
        let count = match (limit.per, before) {
            (Per::Client, _) => InFlightCount::Client(number((name, 3_u8))),
            (Per::Rule, Some(InFlightMeter { count: InFlightCount::Rule(count), .. })) => {
                InFlightCount::Rule(count.clone())
            }
            (Per::Rule, _) => InFlightCount::Rule(of_rule().map_or_else(own, RuleCount::Shared)),
        };
        InFlightMeter { limit, count, full_until: FullUntil::default() }
    }

    /// Counts one request, until the guard is dropped.
    #[inline]
    pub(crate) fn enter(
        &self,
        clients: &Arc<ClientTable>,
        client: IpAddr,
        now_ns: u64,
    ) -> Option<InFlightGuard> {
        match &self.count {
            InFlightCount::Rule(count) => {
                let held = count.enter(self.limit.most, self.full_until);
                if held.is_none() {
                    let until_ns = now_ns.saturating_add(FULL_NS);
                    self.full_until.set(until_ns, || count.is_full(self.limit.most));
                }
                Some(InFlightGuard(Some(held?)))
            }
            InFlightCount::Client(number) => {
                let key: ClientHash = clients.key(*number, client);
                let client_slot = clients.enter(key, self.limit.most).ok()?;
                Some(InFlightGuard(
                    client_slot.map(|client_slot| Held::Client(Arc::clone(clients), client_slot)),
                ))
            }
        }
    }

    /// Whether requests over the limit wait in a queue, which then also counts them.
    #[inline]
    pub(crate) fn is_queue(&self) -> bool {
        matches!(self.limit.over, Over::Queue { .. })
    }

    /// How many requests are counted; `None` if each client is counted by itself, or the queue counts them.
    pub(crate) fn count(&self) -> Option<u32> {
        match &self.count {
            _ if self.is_queue() => None,
            InFlightCount::Rule(count) => Some(count.get()),
            InFlightCount::Client(_) => None,
        }
    }
}

/// A counted request. Dropping the guard ends the count on every path, also when the rules have changed
/// meanwhile. Most guards have nothing to count.
#[derive(Debug, Default)]
#[must_use = "a request is counted only as long as its ticket is kept"]
pub struct InFlightGuard(Option<Held>);

#[derive(Debug)]
enum Held {
    Rule(Arc<CacheLine<AtomicU32>>),
    Shared(&'static AtomicU64),
    Client(Arc<ClientTable>, ClientSlot),
    /// A count whose word for "full" must be cleared when it ends. Boxed, because few requests have one.
    Told(Box<(Held, FullUntil)>),
}

impl Held {
    /// Adds the word for "full", if there is one, so that it is cleared when the request is over.
    #[inline]
    fn telling(self, full: FullUntil) -> Held {
        match full.0 {
            None => self,
            Some(_) => Held::Told(Box::new((self, full))),
        }
    }

    #[inline]
    fn leave(self) {
        match self {
            Held::Rule(count) => _ = count.0.fetch_sub(1, SeqCst),
            Held::Shared(count) => _ = count.fetch_sub(1, SeqCst),
            Held::Client(clients, client_slot) => clients.leave(client_slot),
            Held::Told(told) => {
                let (held, full) = *told;
                held.leave();
                full.clear();
            }
        }
    }
}

impl InFlightGuard {
    /// Whether the guard counts nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl Drop for InFlightGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            held.leave();
        }
    }
}
