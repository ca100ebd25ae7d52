//! The part of a policy that changes while it is in force: how much of each limit is used.
//!
//! Everything is atomic; all loops share one state. A connection is checked in this order: the rule's action,
//! whether the client is ignored, the rule's limit, the agent's. A request: the action, the number at once,
//! the rule's limit, the agent's. When a later check refuses, what the earlier ones charged is given back.

use crate::bucket::{self, BucketTerms};
use crate::class::Class;
use crate::clients::ClientTable;
use crate::decision::{Decisions, PolicyRefusal, RefusalAnswer, RefusalReason};
use crate::meter::{CacheLine, GivenWord, InFlightGuard, Rated, RuleMeters, Words};
use crate::per_connection::{ConnectionCounts, PerConnectionLimit};
use crate::policy::Policy;
use crate::rule::{Action, Over, Per, Rule};
use crate::trace::{MostRefused, Traces};
use forebay_control::shared::SharedCounts;
use forebay_http::client::ClientKey;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

mod first_request;

/// The tolerance of the agent's limit on a class: events that come within this time of one another are let
/// through together. Loops read the clock once per turn, so it must be several turns.
const CLASS_TOLERANCE_NS: u64 = 10_000_000;

/// The number under which the table of clients keeps ignored clients.
const IGNORED: u64 = 0;

/// How much of each limit of a policy is used.
#[derive(Debug)]
pub struct State {
    policy: Arc<Policy>,
    /// Buckets and counts of each rule, indexed by the rule's number.
    meters: Box<[RuleMeters]>,
    traces: Traces,
    /// The agent's limits, by rank.
    classes: Box<[Arc<ClassMeter>]>,
    /// After how many requests of a class its connection ends, by rank.
    class_requests: Box<[Option<PerConnectionLimit>]>,
    /// Whether any rule or class limits the requests of a connection.
    counts_requests: bool,
    clients: Arc<ClientTable>,
    /// The longest time for which any rule has clients ignored, in nanoseconds; 0 if none does.
    most_ignored_ns: u64,
}

/// The agent's limits on a class.
#[derive(Debug, Default)]
struct ClassMeter {
    connections: CacheLine<Paced>,
    requests: CacheLine<Paced>,
}

/// A bucket whose terms change.
#[derive(Debug, Default)]
struct Paced {
    /// The interval between two events, in nanoseconds; 0 for no limit.
    interval_ns: PacedWord,
    word: PacedWord,
}

#[derive(Debug)]
enum PacedWord {
    Own(AtomicU64),
    /// A word in memory that the kernel charges, too.
    Given(&'static AtomicU64),
}

impl Default for PacedWord {
    fn default() -> PacedWord {
        PacedWord::Own(AtomicU64::new(0))
    }
}

impl PacedWord {
    fn of(given: Option<&'static AtomicU64>) -> PacedWord {
        given.map_or_else(PacedWord::default, PacedWord::Given)
    }

    #[inline]
    fn get(&self) -> &AtomicU64 {
        match self {
            PacedWord::Own(word) => word,
            PacedWord::Given(word) => word,
        }
    }
}

/// A charge that the kernel may have made for a connection before the server accepted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivedCharge {
    /// This rule's limit on connections.
    Rule(u32),
    /// The agent's limit on the connection's class.
    Class,
}

/// What became of a connection or a request.
#[derive(Debug)]
pub enum ChargeOutcome {
    /// The connection or request is served.
    Admit(ChargedWork),
    /// The connection or request is refused.
    Refuse(PolicyRefusal),
}

/// An admitted connection or request.
#[derive(Debug)]
pub struct ChargedWork {
    /// The rank of the class; 0 is served first.
    pub rank: u8,
    /// How long the request must wait for its turn, in nanoseconds; 0 for not at all.
    pub wait_ns: u64,
    /// The rule whose limit on requests at once has a queue: the caller must get a place there for the
    /// request, wait for it if necessary, and count it.
    pub queued_by: Option<u32>,
    /// A guard that the caller keeps until the answer is sent or the connection is closed.
    pub ticket: InFlightGuard,
}

/// The events that a limit of the agent counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paces {
    /// New connections.
    Connections,
    /// Requests.
    Requests,
}

/// How full the tables for clients are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientsReport {
    /// Requests that are counted for clients at present.
    pub in_flight: u64,
    /// Buckets that were replaced before they were full again, since the start.
    pub evicted: u64,
    /// Requests that were admitted without being counted, because there was no place, since the start.
    pub uncounted: u64,
}

/// The charge of a bucket that all clients of a rule share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargedBucket {
    /// The name of the rule.
    pub rule: String,
    /// Whether the bucket is the one for connections; otherwise it is the one for requests.
    pub is_connections: bool,
    /// The time until which the bucket is charged, in nanoseconds of the machine's clock.
    pub charged: u64,
}

impl State {
    /// A state in which nothing is used yet, except for what `before` knows of rules and classes with the
    /// same names. Limits that have not changed continue without a break. A bucket whose limit has changed
    /// keeps its charge, as far as the new limit allows. Guards that are out are still counted, and so are
    /// the refusals of each rule. `now_ns` is the time of a clock that never goes back, the same in all
    /// calls.
    pub fn new(policy: Arc<Policy>, before: Option<&State>, now_ns: u64) -> State {
        State::with_words(policy, before, now_ns, &mut |_, _| None, None)
    }

    /// The same, with the buckets that all clients of a rule share in the words that `words` gives, by the
    /// name of the rule; a word must never have been another rule's. Where `words` gives none, a bucket has a
    /// word of its own. With `shared`, the buckets and counts of clients, and the counts of rules, are shared
    /// with other processes.
    pub fn with_words(
        policy: Arc<Policy>,
        before: Option<&State>,
        now_ns: u64,
        words: &mut dyn FnMut(&str, GivenWord) -> Option<&'static AtomicU64>,
        shared: Option<&SharedCounts>,
    ) -> State {
        let meters = policy.rules().iter().map(|rule| {
            let known = before.and_then(|before| before.meters_of(&rule.name));
            RuleMeters::new(rule, (known, before.is_none()), now_ns, words, shared)
        });
        let meters: Box<[_]> = meters.collect();
        let classes = policy.classes().iter().map(|class| {
            let before = before.and_then(|before| before.class_of(&class.name));
            before.cloned().unwrap_or_else(|| Arc::new(ClassMeter::new(&class.name, words)))
        });
        let classes: Box<[_]> = classes.collect();
        let needs_clients = policy.rules().iter().any(RuleMeters::needs_clients);
        let clients = match before {
            Some(before) if before.clients.is_there() || !needs_clients => {
                Arc::clone(&before.clients)
            }
            _ if needs_clients => {
                Arc::new(shared.map_or_else(ClientTable::default, ClientTable::shared))
            }
            _ => Arc::new(ClientTable::none()),
        };
        let most_ignored_ns = policy.rules().iter().map(RuleMeters::ignored_ns).max().unwrap_or(0);
        let meters: Box<[RuleMeters]> = meters;
        let of_class =
            |class: &Class| PerConnectionLimit::new(5, &class.name, class.requests_per_connection);
        let class_requests: Box<[_]> = policy.classes().iter().map(of_class).collect();
        let counts_requests = class_requests.iter().any(Option::is_some)
            || meters.iter().any(|meters| meters.per_connection.is_some());
        let traces = Traces::new(&policy, before.map(|before| (&*before.policy, &before.traces)));
        State {
            policy,
            meters,
            traces,
            classes,
            class_requests,
            counts_requests,
            clients,
            most_ignored_ns,
        }
    }

    /// The charge of the buckets that all clients of a rule share, as far as they lie in this process alone,
    /// to be passed to [`charge_as`](State::charge_as) of another state.
    pub fn charged(&self, now_ns: u64) -> Vec<ChargedBucket> {
        let rules = self.policy.rules().iter().zip(&self.meters);
        let buckets = rules.flat_map(|(rule, meters)| {
            let [connections, requests] = meters.rated().map(|rated| rated?.charged(now_ns));
            let of = |is_connections| {
                move |charged| ChargedBucket { rule: rule.name.clone(), is_connections, charged }
            };
            connections.map(of(true)).into_iter().chain(requests.map(of(false)))
        });
        buckets.collect()
    }

    /// Raises the charge of the buckets of rules with the same names to at least what `buckets` says.
    pub fn charge_as(&self, buckets: &[ChargedBucket], now_ns: u64) {
        for ChargedBucket { rule, is_connections, charged } in buckets {
            let Some(meters) = self.meters_of(rule) else { continue };
            let [connections, requests] = meters.rated();
            let rated = if *is_connections { connections } else { requests };
            rated.into_iter().for_each(|rated| rated.charge_as(*charged, now_ns));
        }
    }

    /// The policy that this is the state of.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Removes limits that count each client by itself from the decisions for a connection or request that
    /// comes from a trusted proxy without naming its client: the limit would apply to all clients behind the
    /// proxy together. Returns whether there were any. A limit that all clients share still holds.
    pub fn spare_proxy(&self, decisions: &mut Decisions) -> bool {
        let rules = self.policy.rules();
        let has = |rule: Option<u32>, per: fn(&Rule) -> Option<Per>| {
            rule.and_then(|rule| rules.get(rule as usize)).and_then(per) == Some(Per::Client)
        };
        let mut is_spared = false;
        let mut spare = |rule: &mut Option<u32>, per: fn(&Rule) -> Option<Per>| {
            if has(*rule, per) {
                (*rule, is_spared) = (None, true);
            }
        };
        spare(&mut decisions.connections, |rule| rule.connections.map(|limit| limit.per));
        spare(&mut decisions.requests, |rule| rule.requests.map(|limit| limit.per));
        spare(&mut decisions.in_flight, |rule| rule.in_flight.map(|limit| limit.per));
        is_spared
    }

    /// Charges a connection for what [`Policy::connection`] decided. It takes no lock and allocates
    /// nothing.
    #[inline]
    pub fn charge_connection(
        &self,
        decisions: &Decisions,
        client: IpAddr,
        now_ns: u64,
    ) -> ChargeOutcome {
        self.charge_arrived(decisions, client, now_ns, |_| false)
    }

    /// The same, for a connection that may have been charged before the server accepted it. Where the bucket
    /// of the rule, or of the class, lies in a [given word](State::with_words), `is_charged` says whether
    /// that bucket has been charged for this connection; it is called at most once for each.
    #[inline]
    pub fn charge_arrived(
        &self,
        decisions: &Decisions,
        client: IpAddr,
        now_ns: u64,
        mut is_charged: impl FnMut(ArrivedCharge) -> bool,
    ) -> ChargeOutcome {
        let rank = decisions.rank;
        if let Some(refused) = self.act(decisions) {
            return self.refuse(refused, client);
        }
        if self.is_ignored(client, now_ns) {
            let reason = RefusalReason::Ignored;
            return self.refuse(
                PolicyRefusal { rank, rule: None, reason, answer: RefusalAnswer::Drop },
                client,
            );
        }
        let rated = self.rated(decisions.connections, |meters| &meters.connections);
        if let Some((rule, rated)) = rated
            && !(rated.is_given() && is_charged(ArrivedCharge::Rule(rule)))
            && let Err(retry_ns) = rated.charge(&self.clients, client, now_ns)
        {
            self.ignore(rated, client, now_ns);
            let reason = RefusalReason::Connections;
            let answer = RefusalAnswer::of(rated.limit.over, rated.limit.per, retry_ns);
            return self.refuse(PolicyRefusal { rank, rule: Some(rule), reason, answer }, client);
        }
        if !(self.is_paced_by_others(rank) && is_charged(ArrivedCharge::Class))
            && self.pace(rank, Paces::Connections, now_ns).is_err()
        {
            if let Some((_, rated)) = rated {
                rated.refund(&self.clients, ClientKey::of(client), now_ns);
            }
            let reason = RefusalReason::Agent;
            return self.refuse(
                PolicyRefusal { rank, rule: None, reason, answer: RefusalAnswer::Drop },
                client,
            );
        }
        let ticket = InFlightGuard::default();
        ChargeOutcome::Admit(ChargedWork { rank, wait_ns: 0, queued_by: None, ticket })
    }

    /// Charges a request for what [`Policy::request`] decided. It takes no lock and allocates nothing.
    #[inline]
    pub fn charge_request(
        &self,
        decisions: &Decisions,
        client: IpAddr,
        now_ns: u64,
    ) -> ChargeOutcome {
        self.charge_but(decisions, client, now_ns, None)
    }

    /// Charges a request, except for the limit on requests of the rule `charged`.
    #[inline]
    fn charge_but(
        &self,
        decisions: &Decisions,
        client: IpAddr,
        now_ns: u64,
        charged: Option<u32>,
    ) -> ChargeOutcome {
        let rank = decisions.rank;
        if let Some(refused) = self.act(decisions) {
            return self.refuse(refused, client);
        }
        // if a later check refuses, dropping the guard gives the place back, while a bucket that was
        // charged must be refunded
        let (mut ticket, mut queued_by) = (InFlightGuard::default(), None);
        if let Some(rule) = decisions.in_flight
            && let Some(tally) =
                self.meters.get(rule as usize).and_then(|one| one.in_flight.as_ref())
        {
            if tally.is_queue() {
                queued_by = Some(rule);
            } else if let Some(counted) = tally.enter(&self.clients, client, now_ns) {
                ticket = counted;
            } else {
                let answer = RefusalAnswer::of(tally.limit.over, tally.limit.per, 0);
                let reason = RefusalReason::InFlight;
                return self
                    .refuse(PolicyRefusal { rank, rule: Some(rule), reason, answer }, client);
            }
        }
        let rated = self.rated(decisions.requests, |meters| &meters.requests);
        let mut wait_ns = 0;
        if let Some((rule, rated)) = rated
            && charged != Some(rule)
        {
            match rated.charge(&self.clients, client, now_ns) {
                Ok(wait) => wait_ns = wait,
                Err(retry_ns) => {
                    self.ignore(rated, client, now_ns);
                    let is_queue = matches!(rated.limit.over, Over::Queue { .. });
                    let reason =
                        if is_queue { RefusalReason::Queue } else { RefusalReason::Requests };
                    let answer = RefusalAnswer::of(rated.limit.over, rated.limit.per, retry_ns);
                    return self
                        .refuse(PolicyRefusal { rank, rule: Some(rule), reason, answer }, client);
                }
            }
        }
        if let Err(retry_ns) = self.pace(rank, Paces::Requests, now_ns) {
            if let Some((_, rated)) = rated {
                rated.refund(&self.clients, ClientKey::of(client), now_ns);
            }
            let retry_after_s = RefusalAnswer::seconds(retry_ns);
            let answer = RefusalAnswer::Reject { status: 503, retry_after_s };
            return self.refuse(
                PolicyRefusal { rank, rule: None, reason: RefusalReason::Agent, answer },
                client,
            );
        }
        ChargeOutcome::Admit(ChargedWork { rank, wait_ns, queued_by, ticket })
    }

    /// Counts an admitted request for its connection, and says whether it is the connection's last one: the
    /// limit of its rule or of its class is reached. The counts continue under a later state.
    #[inline]
    pub fn is_last(&self, decisions: &Decisions, counts: &mut ConnectionCounts) -> bool {
        if !self.counts_requests {
            return false;
        }
        let of_rule = decisions.per_connection.and_then(|rule| self.meters.get(rule as usize));
        let of_rule = of_rule.and_then(|meters| meters.per_connection.as_ref());
        let of_class = self.class_requests.get(usize::from(decisions.rank));
        let limits = [of_rule, of_class.and_then(Option::as_ref)];
        let mut is_last = false;
        for limit in limits.into_iter().flatten() {
            is_last |= counts.count(limit);
        }
        is_last
    }

    /// Sets the agent's limit on a class: `per_s` events per second, more than 0, or `None` for no limit. A
    /// bucket that is charged for longer than the new limit allows is made to fit it.
    pub fn set_class_rate(&self, rank: u8, of: Paces, per_s: Option<f64>, now_ns: u64) {
        let Some(class) = self.classes.get(usize::from(rank)) else { return };
        let paced = class.of(of);
        // a rate of 0 or less becomes the lowest one there is: one event a day
        let day_ns = 86_400e9;
        let interval_ns =
            per_s.map_or(0, |per_s| (1e9 / per_s.max(1e-9)).clamp(1.0, day_ns) as u64);
        paced.interval_ns.get().store(interval_ns, Relaxed);
        if let Some(terms) = paced.terms() {
            let fit = |word| Some(bucket::fit(word, now_ns, &terms));
            let _ = paced.word.get().fetch_update(Relaxed, Relaxed, fit);
        }
    }

    /// The agent's limit on a class, per second; `None` if there is none.
    pub fn class_rate(&self, rank: u8, of: Paces) -> Option<f64> {
        let terms = self.classes.get(usize::from(rank))?.of(of).terms()?;
        Some(1e9 / terms.interval_ns as f64)
    }

    /// Moves the rate of a rule's limit on requests, as far as its [bounds](crate::rule::Bounds) allow. The
    /// agent calls this. A rule without bounds keeps its rate.
    pub fn set_rate(&self, rule: u32, per_s: f64, now_ns: u64) {
        if let Some((_, rated)) = self.rated(Some(rule), |meters| &meters.requests) {
            rated.set_rate(per_s, now_ns);
        }
    }

    /// Resets rates that have no bounds to the stated ones, in case an earlier process has left a moved rate
    /// in the kernel's memory.
    pub fn forget_moved(&self) {
        self.meters.iter().for_each(RuleMeters::forget_moved);
    }

    /// The current rate of a rule's limit on requests, per second; `None` if it cannot be moved.
    pub fn rate(&self, rule: u32) -> Option<f64> {
        self.rated(Some(rule), |meters| &meters.requests)?.1.rate_per_s()
    }

    /// How many requests a rule would admit at once now; `None` if it has no limit on them, or one for
    /// each client.
    pub fn requests_left(&self, rule: u32, now_ns: u64) -> Option<u32> {
        self.meters.get(rule as usize)?.requests.as_ref()?.available(now_ns)
    }

    /// How many connections a rule would admit at once now; `None` if it has no limit on them, or one for
    /// each client.
    pub fn connections_left(&self, rule: u32, now_ns: u64) -> Option<u32> {
        self.meters.get(rule as usize)?.connections.as_ref()?.available(now_ns)
    }

    /// Notes that a rule has refused an admitted request after all, because it got no place in the rule's
    /// queue.
    pub fn refuse_queued(&self, rule: u32, client: IpAddr) {
        self.traces.refuse(rule, client);
    }

    /// Gives back what an admitted request was charged for this rule's limit on requests, because something
    /// else refuses it. Called at most once per request. If the request has waited in between for longer than
    /// an interval of the rate, one request too many may be admitted.
    pub fn refund_request(&self, rule: u32, client: ClientKey, now_ns: u64) {
        if let Some((_, rated)) = self.rated(Some(rule), |meters| &meters.requests) {
            rated.refund(&self.clients, client, now_ns);
        }
    }

    /// Gives up the turn of a request that waits under this rule's limit on requests. `turn_ns` is the time
    /// at which the request was charged plus the time it was given [to wait](ChargedWork::wait_ns). The next
    /// request gets the turn, unless a later turn is already taken: then the turn passes unused.
    pub fn give_up_turn(&self, rule: u32, client: ClientKey, turn_ns: u64) {
        if let Some((_, rated)) = self.rated(Some(rule), |meters| &meters.requests) {
            rated.give_up(&self.clients, client, turn_ns);
        }
    }

    /// How many requests a rule counts now; `None` if it counts none, counts each client by itself, or has a
    /// [queue](ChargedWork::queued_by) that counts them.
    pub fn in_flight(&self, rule: u32) -> Option<u32> {
        self.meters.get(rule as usize)?.in_flight.as_ref()?.count()
    }

    /// Counts a connection or request for each rule that decides something about it. The counters are
    /// striped: loops with different `lane` numbers mostly write to different cache lines.
    #[inline]
    pub fn note(&self, decisions: &Decisions, lane: usize) {
        let Decisions { rank: _, class, connections, requests, in_flight, per_connection, action } =
            *decisions;
        let of = [class, connections, requests, in_flight, per_connection, action];
        for (at, rule) in of.iter().enumerate() {
            if let Some(number) = rule
                && !of[..at].contains(rule)
            {
                self.traces.matches(*number, lane);
            }
        }
    }

    /// The number of connections and requests for which a rule has decided something so far.
    pub fn matched(&self, rule: u32) -> u64 {
        self.traces.matched(rule)
    }

    /// The clients that a rule has refused most, with bounds for how often; the most refused first.
    pub fn most_refused(&self, rule: u32) -> Vec<MostRefused> {
        self.traces.clients(rule)
    }

    /// The number of connections and requests that a rule has refused so far, by a limit or an action.
    pub fn refused(&self, rule: u32) -> u64 {
        self.traces.refused(rule)
    }

    /// For how much longer new connections of a client are ignored, in nanoseconds; 0 if they are not.
    pub fn ignored_ns(&self, client: IpAddr, now_ns: u64) -> u64 {
        let ignored_ns = match self.most_ignored_ns {
            0 => 0,
            most_ns => self.clients.ignored_ns(self.clients.key(IGNORED, client), now_ns, most_ns),
        };
        // a reload may have spared a client that was ignored before
        if ignored_ns > 0 && self.policy.spared().why(client).is_some() { 0 } else { ignored_ns }
    }

    /// The longest time for which any rule has a client ignored, in nanoseconds; 0 if none does.
    pub fn most_ignored_ns(&self) -> u64 {
        self.most_ignored_ns
    }

    /// How full the tables for clients are. The call reads the whole tables.
    pub fn clients(&self) -> ClientsReport {
        ClientsReport {
            in_flight: self.clients.counted(),
            evicted: self.clients.evicted(),
            uncounted: self.clients.uncounted(),
        }
    }

    #[inline]
    fn refuse(&self, refused: PolicyRefusal, client: IpAddr) -> ChargeOutcome {
        if let Some(rule) = refused.rule {
            self.traces.refuse(rule, client);
        }
        ChargeOutcome::Refuse(refused)
    }

    /// The refusal that a rule's action demands, if any.
    #[inline]
    fn act(&self, decisions: &Decisions) -> Option<PolicyRefusal> {
        let rule = decisions.action?;
        let answer = match self.policy.rules().get(rule as usize)?.action? {
            Action::Allow => return None,
            Action::Reject(status) => RefusalAnswer::Reject { status, retry_after_s: 0 },
            Action::Reset => RefusalAnswer::Reset,
            Action::Drop => RefusalAnswer::Drop,
        };
        let (rank, reason) = (decisions.rank, RefusalReason::Action);
        Some(PolicyRefusal { rank, rule: Some(rule), reason, answer })
    }

    #[inline]
    fn rated(
        &self,
        rule: Option<u32>,
        of: impl Fn(&RuleMeters) -> &Option<Rated>,
    ) -> Option<(u32, &Rated)> {
        let rule = rule?;
        Some((rule, of(self.meters.get(rule as usize)?).as_ref()?))
    }

    /// # Errors
    /// The agent's limit on the class is reached; the error is the time after which it is not, in
    /// nanoseconds.
    #[inline]
    fn pace(&self, rank: u8, of: Paces, now_ns: u64) -> Result<(), u64> {
        let Some(class) = self.classes.get(usize::from(rank)) else { return Ok(()) };
        let paced = class.of(of);
        match paced.terms() {
            Some(terms) => bucket::charge(paced.word.get(), now_ns, &terms).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Whether the kernel charges the bucket for connections of a class, too.
    #[inline]
    fn is_paced_by_others(&self, rank: u8) -> bool {
        let class = self.classes.get(usize::from(rank));
        class.is_some_and(|class| matches!(class.connections.0.word, PacedWord::Given(_)))
    }

    #[inline]
    fn is_ignored(&self, client: IpAddr, now_ns: u64) -> bool {
        self.most_ignored_ns > 0 && self.ignored_ns(client, now_ns) > 0
    }

    #[inline]
    fn ignore(&self, rated: &Rated, client: IpAddr, now_ns: u64) {
        if let Some(for_ns) = rated.limit.ignored_ns()
            && self.policy.spared().why(client).is_none()
        {
            let key = self.clients.key(IGNORED, client);
            self.clients.ignore(key, now_ns, for_ns, self.most_ignored_ns);
        }
    }

    fn meters_of(&self, name: &str) -> Option<&RuleMeters> {
        let number = self.policy.rule(name)?;
        self.meters.get(number as usize)
    }

    fn class_of(&self, name: &str) -> Option<&Arc<ClassMeter>> {
        let rank = self.policy.classes().iter().position(|class| class.name == name)?;
        self.classes.get(rank)
    }
}

impl ClassMeter {
    /// A meter without a limit; whatever another process has left in the words is overwritten.
    fn new(class: &str, words: &mut Words<'_>) -> ClassMeter {
        let interval = words(class, GivenWord::ClassInterval);
        interval.inspect(|word| word.store(0, Relaxed));
        let word = interval.and_then(|_| words(class, GivenWord::ClassConnections));
        let connections = Paced {
            interval_ns: PacedWord::of(interval.filter(|_| word.is_some())),
            word: PacedWord::of(word),
        };
        ClassMeter { connections: CacheLine(connections), requests: CacheLine::default() }
    }

    #[inline]
    fn of(&self, of: Paces) -> &Paced {
        match of {
            Paces::Connections => &self.connections.0,
            Paces::Requests => &self.requests.0,
        }
    }
}

impl Paced {
    #[inline]
    fn terms(&self) -> Option<BucketTerms> {
        let interval_ns = self.interval_ns.get().load(Relaxed);
        let tolerance_ns = CLASS_TOLERANCE_NS.saturating_sub(interval_ns);
        (interval_ns != 0).then_some(BucketTerms { interval_ns, tolerance_ns, most_wait_ns: 0 })
    }
}
