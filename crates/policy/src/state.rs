//! What changes while a policy is in force: how much of each limit is used.
//!
//! Everything is atomic; all loops share one state. What is asked in which order, for a connection:
//! the rule's action, whether the client is ignored, the rule's limit, the agent's. For a request: the
//! action, the number at once, the rule's limit, the agent's. What was charged before a refusal is
//! given back.

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

/// How much the agent's limit on a class lets through at once, as time: what comes within it may come
/// together. Loops know the time to the turn, so it must be several turns.
const CLASS_TOLERANCE_NS: u64 = 10_000_000;

/// The number under which clients are ignored.
const IGNORED: u64 = 0;

/// How much is used of the limits of a policy.
#[derive(Debug)]
pub struct State {
    policy: Arc<Policy>,
    /// By the number of the rule.
    meters: Box<[RuleMeters]>,
    traces: Traces,
    /// By rank.
    classes: Box<[Arc<ClassMeter>]>,
    /// By rank: after how many of its requests a connection ends.
    class_requests: Box<[Option<PerConnectionLimit>]>,
    /// Whether any rule or class says that.
    counts_requests: bool,
    clients: Arc<ClientTable>,
    /// The longest time for which a rule has clients ignored, in nanoseconds; 0 if none does.
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
    /// 0 for no limit.
    interval_ns: PacedWord,
    word: PacedWord,
}

#[derive(Debug)]
enum PacedWord {
    Own(AtomicU64),
    /// In memory that the kernel charges, too.
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

/// What may have been charged for a connection before it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivedCharge {
    /// This rule's limit on connections.
    Rule(u32),
    /// What the agent admits of its class.
    Class,
}

/// What became of a connection or a request.
#[derive(Debug)]
pub enum ChargeOutcome {
    /// It is served.
    Admit(ChargedWork),
    /// It is not.
    Refuse(PolicyRefusal),
}

/// Something that is served.
#[derive(Debug)]
pub struct ChargedWork {
    /// Its class, as its place in the order.
    pub rank: u8,
    /// How long it must wait for its turn, in nanoseconds; 0 for not at all.
    pub wait_ns: u64,
    /// The rule among whose requests at once it needs a place, for which it may have to wait: the caller sees
    /// to that, and counts it.
    pub queued_by: Option<u32>,
    /// To be kept until its answer is sent or its connection is closed.
    pub ticket: InFlightGuard,
}

/// What an agent's limit is on.
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
    /// Requests that are counted for clients now.
    pub in_flight: u64,
    /// Buckets that had to give way before they were full again, since the start.
    pub evicted: u64,
    /// Requests that were admitted without being counted, because there was no place, since the start.
    pub uncounted: u64,
}

/// What a bucket that all clients of a rule share is charged for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargedBucket {
    /// The name of the rule.
    pub rule: String,
    /// Whether it is that for connections, and not that for requests.
    pub is_connections: bool,
    /// Until when, on the clock of the machine.
    pub charged: u64,
}

impl State {
    /// Nothing is used yet, but for what `before` knows of rules and classes with the same names:
    /// limits that have not changed go on as if nothing had happened; a bucket whose limit has
    /// changed keeps what it is charged for, as far as it can be under the new one; tickets that are
    /// out are counted on, and so is what rules have refused. `now_ns` is the time of a clock that never goes back, the same in all calls.
    pub fn new(policy: Arc<Policy>, before: Option<&State>, now_ns: u64) -> State {
        State::with_words(policy, before, now_ns, &mut |_, _| None, None)
    }

    /// The same, but buckets that all share lie in the words that `words` gives, by the
    /// name of the rule; only a rule of that name may have had such a word. Where it gives
    /// none, a bucket has a word of its own. What is counted and charged for clients, and what rules count, is
    /// `shared` with other processes, if that is there.
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

    /// What the buckets that all clients of a rule share are charged for, as far as they lie in this process alone, for
    /// the state of [another](State::charge_as).
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

    /// The buckets of rules with the same names are charged for as much at least.
    pub fn charge_as(&self, buckets: &[ChargedBucket], now_ns: u64) {
        for ChargedBucket { rule, is_connections, charged } in buckets {
            let Some(meters) = self.meters_of(rule) else { continue };
            let [connections, requests] = meters.rated();
            let rated = if *is_connections { connections } else { requests };
            rated.into_iter().for_each(|rated| rated.charge_as(*charged, now_ns));
        }
    }

    /// What it is the state of.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Takes away limits that count each client by itself, for what comes from a trusted proxy that names no client:
    /// it may be anybody's, and a limit reached would be one for everybody behind the proxy. Says whether there were
    /// any. A limit that all share holds.
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

    /// The same, where the connection may have been charged before it arrived. Where the bucket of the
    /// rule, or of the class, lies in a [given word](State::with_words), `is_charged` says whether that has been
    /// charged for this connection; it is asked once at most for each.
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

    /// `charged` is the rule whose limit on requests need not be charged.
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

    /// Counts a request that was admitted for its connection, and says whether it is its last: its rule
    /// or its class has had enough of them. Counts go on under another state.
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

    /// Limits a class to so many per second from now on, more than 0, or to nothing: the agent's part.
    /// A bucket that is charged for longer than the new limit allows is made to fit it.
    pub fn set_class_rate(&self, rank: u8, of: Paces, per_s: Option<f64>, now_ns: u64) {
        let Some(class) = self.classes.get(usize::from(rank)) else { return };
        let paced = class.of(of);
        // a rate that is not above 0 is the lowest there is: none at all for a day
        let day_ns = 86_400e9;
        let interval_ns =
            per_s.map_or(0, |per_s| (1e9 / per_s.max(1e-9)).clamp(1.0, day_ns) as u64);
        paced.interval_ns.get().store(interval_ns, Relaxed);
        if let Some(terms) = paced.terms() {
            let fit = |word| Some(bucket::fit(word, now_ns, &terms));
            let _ = paced.word.get().fetch_update(Relaxed, Relaxed, fit);
        }
    }

    /// What the agent limits a class to, per second; `None` if it does not.
    pub fn class_rate(&self, rank: u8, of: Paces) -> Option<f64> {
        let terms = self.classes.get(usize::from(rank))?.of(of).terms()?;
        Some(1e9 / terms.interval_ns as f64)
    }

    /// Moves the rate of a rule's limit on requests, as far as its [bounds](crate::rule::Bounds) allow:
    /// the agent's part. A rule without bounds stays as it is.
    pub fn set_rate(&self, rule: u32, per_s: f64, now_ns: u64) {
        if let Some((_, rated)) = self.rated(Some(rule), |meters| &meters.requests) {
            rated.set_rate(per_s, now_ns);
        }
    }

    /// Rates without bounds are as they are stated, though another process has moved them in the kernel until now.
    pub fn forget_moved(&self) {
        self.meters.iter().for_each(RuleMeters::forget_moved);
    }

    /// What the rate of a rule's limit on requests is now, per second; `None` if it cannot be moved.
    pub fn rate(&self, rule: u32) -> Option<f64> {
        self.rated(Some(rule), |meters| &meters.requests)?.1.rate_per_s()
    }

    /// How many requests a rule would admit at once now; `None` if it has no limit on them, or one for
    /// each client.
    pub fn requests_left(&self, rule: u32, now_ns: u64) -> Option<u32> {
        self.meters.get(rule as usize)?.requests.as_ref()?.available(now_ns)
    }

    /// How many connections a rule would admit at once now; `None` as above.
    pub fn connections_left(&self, rule: u32, now_ns: u64) -> Option<u32> {
        self.meters.get(rule as usize)?.connections.as_ref()?.available(now_ns)
    }

    /// A request that was admitted is refused by this rule after all: it got no place among those at once.
    pub fn refuse_queued(&self, rule: u32, client: IpAddr) {
        self.traces.refuse(rule, client);
    }

    /// A request that was admitted is refused after all, by something else: gives back what it was charged
    /// for this rule's limit on requests. Called once at most; if it waited in between for longer than an interval of
    /// the rate, one more may be admitted for it.
    pub fn refund_request(&self, rule: u32, client: ClientKey, now_ns: u64) {
        if let Some((_, rated)) = self.rated(Some(rule), |meters| &meters.requests) {
            rated.refund(&self.clients, client, now_ns);
        }
    }

    /// A request that waits for its turn under this rule's limit on requests does not come: `turn_ns` is the
    /// time at which it was charged plus what it was [to wait](ChargedWork::wait_ns). The turn is the next one's, unless one
    /// behind it is taken: then it passes unused.
    pub fn give_up_turn(&self, rule: u32, client: ClientKey, turn_ns: u64) {
        if let Some((_, rated)) = self.rated(Some(rule), |meters| &meters.requests) {
            rated.give_up(&self.clients, client, turn_ns);
        }
    }

    /// How many requests a rule counts now; `None` if it does not count them, or those of each client, or
    /// if they [wait](ChargedWork::queued_by) for it.
    pub fn in_flight(&self, rule: u32) -> Option<u32> {
        self.meters.get(rule as usize)?.in_flight.as_ref()?.count()
    }

    /// Counts a connection or request for each rule that decides something about it. Callers in other
    /// lanes, as far as there are, do not disturb one another.
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

    /// For how many connections and requests a rule has decided something so far.
    pub fn matched(&self, rule: u32) -> u64 {
        self.traces.matched(rule)
    }

    /// The clients that a rule has refused most, the first first, and between which bounds how often.
    pub fn most_refused(&self, rule: u32) -> Vec<MostRefused> {
        self.traces.clients(rule)
    }

    /// How many connections and requests a rule has refused so far, by a limit or an action.
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

    /// The longest time that any rule has a client ignored, in nanoseconds; 0 if none does.
    pub fn most_ignored_ns(&self) -> u64 {
        self.most_ignored_ns
    }

    /// How full the tables for clients are. It looks at all of them.
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

    /// What a rule's action says.
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
    /// The agent's limit on the class is reached, and after how many nanoseconds it is not.
    #[inline]
    fn pace(&self, rank: u8, of: Paces, now_ns: u64) -> Result<(), u64> {
        let Some(class) = self.classes.get(usize::from(rank)) else { return Ok(()) };
        let paced = class.of(of);
        match paced.terms() {
            Some(terms) => bucket::charge(paced.word.get(), now_ns, &terms).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Whether others charge the bucket for connections of a class, too.
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
    /// Nothing is limited yet, whatever another process has left in the words.
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
