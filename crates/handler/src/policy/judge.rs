//! One loop's view of the policy: facts in, a verdict out, entries in the ledger.

use super::enforced::Enforced;
use super::ticket::{AtOnceHold, RequestCharge, Ticket};
use super::window::{Pass, WindowPoint};
use super::{Facts, InForce, Judged, RuleNumber, Trace};
use crate::client::TrustedProxies;
use crate::identity::{PresentedToken, Remembered, Verifier};
use forebay_conn::{Admitted, Peer, Rank, Refusal, Request, Verdict};
use forebay_control::gather::Gather;
use forebay_control::level::Level;
use forebay_http::client::ClientKey;
use forebay_metrics::{
    ClassEvent, ClassSlot, Counter, Local, RefusalReason, RefusedAt, Unanswered,
};
use forebay_policy::bans::{BanTable, ClientBan};
use forebay_policy::decision::{Decisions, PolicyRefusal, RefusalAnswer};
use forebay_policy::facts::ConnectionFacts;
use forebay_policy::{self as policy, ArrivedCharge, ChargeOutcome, FactsNeeded};
use forebay_sys::clock;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Judges connections and requests for one loop or thread.
pub struct Judge {
    in_force: Arc<InForce>,
    /// The clients that an operator bans, whatever the policy says.
    bans: Option<Arc<BanTable>>,
    needs: FactsNeeded,
    metrics: Arc<Local>,
    facts: Facts,
    window_point: WindowPoint,
    gather: Gather,
    /// The number of the counters in which matches of rules are counted.
    lane: usize,
}

/// The facts about a client besides its request.
#[derive(Clone, Copy)]
pub struct JudgeContext<'k> {
    /// The proxies whose statements about clients are trusted.
    pub trusted: &'k TrustedProxies,
    /// The verifier of identities, if there are any.
    pub verifier: Option<&'k Verifier>,
    /// The time, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The rank of the request, where the stage before has decided it.
    pub rank: Option<u8>,
    /// The paths that rules go by, if not the request's own: several, if applications may read the path
    /// in several ways.
    pub paths: &'k [Vec<u8>],
}

/// The decision of the rules about a request.
struct Judgement {
    decisions: Decisions,
    /// Whether the rules decide differently about another reading of its path. Then the request is not
    /// answered.
    is_divided: bool,
}

/// The data kept with a connection from one request to the next.
#[derive(Debug, Default)]
pub struct ConnectionRecord {
    /// The connection's counts of requests, as far as rules need them.
    pub counts: policy::ConnectionCounts,
    /// The identity that the client has proved.
    pub identity: Remembered,
    /// Whether the kernel was asked if it has charged the first request.
    has_asked: bool,
}

impl Judge {
    /// A judge by the policy in force and these bans; `None` if there is nothing to judge by.
    pub fn new(
        in_force: &Arc<InForce>,
        bans: &Option<Arc<BanTable>>,
        metrics: &Arc<Local>,
        window_point: WindowPoint,
    ) -> Option<Judge> {
        if in_force.is_empty() && bans.is_none() {
            return None;
        }
        Some(Judge {
            needs: in_force.policy.needs(),
            in_force: Arc::clone(in_force),
            bans: bans.clone(),
            metrics: Arc::clone(metrics),
            facts: Facts::default(),
            window_point,
            gather: Gather::default(),
            lane: in_force.lane(),
        })
    }

    /// Whether rules ask for the address that a client has reached, or the kernel knows connections by
    /// it.
    pub fn asks_local(&self) -> bool {
        self.needs.local || self.in_force.gate.as_ref().is_some_and(Enforced::charges)
    }

    /// Whether a new connection is admitted.
    pub fn connection(
        &mut self,
        peer: &Peer,
        trusted: &TrustedProxies,
        now_ns: u64,
    ) -> Verdict<()> {
        let ends = ConnectionFacts { client: peer.address(), local: peer.local };
        let InForce { policy, state, slots, gate, .. } = &*self.in_force;
        let mut decisions = policy.connection(&ends, self.in_force.degree());
        if let Some(Rank(rank)) = peer.queued {
            // the rank of its first request, which rules about addresses do not know
            decisions.rank = rank;
        }
        let slot = slots.get(usize::from(decisions.rank)).copied().unwrap_or_default();
        self.metrics.enter(slot, ClassEvent::Connection);
        if self.is_banned(ends.client.ip(), RefusedAt::Accept) {
            self.refund_first(&ends, now_ns);
            self.refused(slot, RefusedAt::Accept, RefusalReason::Banned);
            return Verdict::Reset;
        }
        state.note(&decisions, self.lane);
        if trusted.speaks_for_itself(peer, ends.client.ip()) {
            // the clients behind a proxy are not known yet: that is no reason for a warning here
            state.spare_proxy(&mut decisions);
        }
        let charge = match gate {
            None => state.charge_connection(&decisions, ends.client.ip(), now_ns),
            Some(gate) => {
                state.charge_arrived(&decisions, ends.client.ip(), now_ns, |of| match of {
                    ArrivedCharge::Rule(rule) => gate.take_charged(&ends, rule),
                    // the kernel has queued the connection by its class, within what the agent admits
                    ArrivedCharge::Class => peer.queued.is_some(),
                })
            }
        };
        match charge {
            ChargeOutcome::Admit(policy::ChargedWork { rank, .. }) => {
                Verdict::Admit(Admitted::at_once(Rank(rank), ()))
            }
            ChargeOutcome::Refuse(refused) => {
                self.tell_ignored(peer, ends.client.ip(), now_ns);
                self.refund_first(&ends, now_ns);
                self.refused(slot, RefusedAt::Accept, refused.reason);
                verdict(&refused, ())
            }
        }
    }

    /// Whether a request is admitted, with its ticket, which keeps the reason if it is not.
    pub fn request(
        &mut self,
        request: &Request<'_>,
        record: &mut ConnectionRecord,
        known: JudgeContext<'_>,
        now_ns: u64,
    ) -> Verdict<Option<Ticket>> {
        let charged = self.charged_in_kernel(request.peer, record);
        let ConnectionRecord { counts, identity, has_asked: _ } = record;
        let (judgement, client, brought) = self.decide(request, known, identity);
        let Judgement { mut decisions, is_divided } = judgement;
        if let Some(rank) = known.rank {
            decisions.rank = rank;
        }
        let InForce { state, slots, number, .. } = &*self.in_force;
        let slot = slots.get(usize::from(decisions.rank)).copied().unwrap_or_default();
        let rule = decisions.class.and_then(RuleNumber::of);
        let trace = Trace { slot, rule, refused: None, brought, policy: *number };
        self.metrics.enter(slot, ClassEvent::Offered);
        // a ban comes before every rule: what the kernel has charged for the request is given back
        if self.is_banned(client.ip(), RefusedAt::Request) {
            if let Some(rule) = charged {
                state.refund_request(rule, ClientKey::of(client.ip()), now_ns);
            }
            self.refused(slot, RefusedAt::Request, RefusalReason::Banned);
            // a proxy's connection has requests of other clients, too, and is not reset
            if is_own_connection(request.peer, client.ip()) {
                return Verdict::Reset;
            }
            let trace = Trace { refused: Some((RefusalReason::Banned, None)), ..trace };
            let ticket = Ticket::new(decisions.rank, trace, AtOnceHold::default(), None);
            return Verdict::Refuse(Refusal::status(403), Some(ticket));
        }
        state.note(&decisions, self.lane);
        if known.trusted.speaks_for_itself(request.peer, client.ip())
            && state.spare_proxy(&mut decisions)
        {
            self.in_force.say_unnamed(client.ip());
        }
        match state.charge_first_request(&decisions, client.ip(), now_ns, charged) {
            ChargeOutcome::Admit(policy::ChargedWork { rank, wait_ns, queued_by, ticket }) => {
                let key = || ClientKey::of(client.ip());
                let charged = decisions.requests.and_then(RuleNumber::of);
                let mut charged = charged.map(|rule| RequestCharge { rule, client: key() });
                let held = match queued_by {
                    None => AtOnceHold::Counted(ticket),
                    Some(rule) => self.in_force.queued(rule, client.ip(), ticket, &mut charged),
                };
                let mut ticket = Ticket::new(rank, trace, held, charged);
                ticket.is_divided = is_divided;
                if wait_ns > 0 {
                    ticket.wait_until(now_ns.saturating_add(wait_ns));
                }
                let wait_ms = wait_ns.div_ceil(1_000_000).try_into().unwrap_or(u32::MAX);
                let (rank, client) = (Rank(rank), Some(client.ip()));
                let is_last = state.is_last(&decisions, counts);
                Verdict::Admit(Admitted { rank, client, wait_ms, is_last, ticket: Some(ticket) })
            }
            ChargeOutcome::Refuse(refused) => {
                self.tell_ignored(request.peer, client.ip(), now_ns);
                self.refused(slot, RefusedAt::Request, refused.reason);
                let reason = (refused.reason, refused.rule.and_then(RuleNumber::of));
                let trace = Trace { refused: Some(reason), ..trace };
                let ticket = Ticket::new(refused.rank, trace, AtOnceHold::default(), None);
                verdict(&refused, Some(ticket))
            }
        }
    }

    /// The ticket of a request that the kernel has judged by the same rules and answered. The ticket has
    /// its class, rules count the request, and nothing is charged.
    pub fn given(&mut self, request: &Request<'_>, known: JudgeContext<'_>) -> Ticket {
        let (judgement, _, brought) = self.decide(request, known, &mut Remembered::default());
        let decisions = judgement.decisions;
        let InForce { state, slots, number, .. } = &*self.in_force;
        let slot = slots.get(usize::from(decisions.rank)).copied().unwrap_or_default();
        let rule = decisions.class.and_then(RuleNumber::of);
        let trace = Trace { slot, rule, refused: None, brought, policy: *number };
        self.metrics.enter(slot, ClassEvent::Offered);
        state.note(&decisions, self.lane);
        Ticket::new(decisions.rank, trace, AtOnceHold::default(), None)
    }

    /// The rule to which the kernel has charged this request, by its limit on requests. Only the first
    /// request of a connection is charged there.
    #[inline]
    fn charged_in_kernel(&self, peer: &Peer, record: &mut ConnectionRecord) -> Option<u32> {
        let gate = self.in_force.gate.as_ref()?;
        if std::mem::replace(&mut record.has_asked, true) || !gate.charges_requests() {
            return None;
        }
        gate.take_charged_request(&ConnectionFacts { client: peer.address(), local: peer.local })
    }

    /// Gives back what the kernel may have charged for the first request of a connection that is refused.
    fn refund_first(&self, ends: &ConnectionFacts, now_ns: u64) {
        let gate = self.in_force.gate.as_ref().filter(|gate| gate.charges_requests());
        if let Some(rule) = gate.and_then(|gate| gate.take_charged_request(ends)) {
            self.in_force.state.refund_request(rule, ClientKey::of(ends.client.ip()), now_ns);
        }
    }

    /// The ban that holds for a client now. A spared client is not banned, even within a banned network.
    pub fn ban_of(&self, client: IpAddr) -> Option<&ClientBan> {
        let ban = self.bans.as_ref()?.find(client, clock::unix_coarse_ms() / 1000)?;
        self.in_force.policy.spared().why(client).is_none().then_some(ban)
    }

    /// The level of overload.
    pub fn level(&self) -> &'static str {
        // read without a lock, and so without the cause
        let number = usize::from(self.in_force.degree().number());
        Level::ALL.get(number).map_or("normal", |level| level.name())
    }

    /// Whether a client is banned. Refusals by bans are counted.
    #[inline]
    fn is_banned(&self, client: IpAddr, at: RefusedAt) -> bool {
        self.bans.is_some() && self.count_ban(client, at)
    }

    fn count_ban(&self, client: IpAddr, at: RefusedAt) -> bool {
        let Some(ban) = self.ban_of(client) else { return false };
        ban.count(at);
        self.metrics.add(
            match at {
                RefusedAt::Accept => Counter::BannedConnections,
                RefusedAt::Request => Counter::BannedRequests,
            },
            1,
        );
        true
    }

    /// Whether a rule asks for paths.
    #[inline]
    pub fn asks_path(&self) -> bool {
        self.needs.path
    }

    /// The judgement that the log gets for the request with this ticket.
    #[inline]
    pub fn judged(&self, ticket: &Ticket) -> Judged<'_> {
        Judged { in_force: &self.in_force, trace: ticket.trace }
    }

    /// Whether there is a policy. Without one there are only bans, and lines of served requests have no
    /// class.
    #[inline]
    pub fn has_policy(&self) -> bool {
        self.bans.is_none() || !self.in_force.is_empty()
    }

    /// The decision of the rules about a request, its client, and the token that it has brought.
    #[inline]
    fn decide(
        &mut self,
        request: &Request<'_>,
        known: JudgeContext<'_>,
        remembered: &mut Remembered,
    ) -> (Judgement, SocketAddr, PresentedToken) {
        let Judge { in_force, needs, facts, metrics, .. } = self;
        let normal = if needs.path { request.path().ok() } else { None };
        let (first, others) = match known.paths {
            [] => (None, &[][..]),
            [first, others @ ..] => (Some(first.as_slice()), others),
        };
        let path = first.or(normal.as_deref());
        let mut facts = facts.of(*needs, request, path, known.trusted);
        let (client, mut brought) = (facts.ends.client, PresentedToken::Nothing);
        if needs.identity
            && let Some(verifier) = known.verifier
        {
            let now_s = known.unix_ms / 1000;
            (facts.identity, brought) =
                verifier.identify(request.head, client.ip(), now_s, remembered);
        }
        let degree = in_force.degree();
        let mut decisions = in_force.policy.request(&facts, degree);
        let is_divided = others.iter().any(|other| {
            facts.path = other;
            in_force.policy.request(&facts, degree) != decisions
        });
        if is_divided {
            // whatever rules decide about one reading, the client learns why there are several
            decisions.action = None;
        }
        if let Some(counter) = brought.counter() {
            metrics.add(counter, 1);
        }
        (Judgement { decisions, is_divided }, client, brought)
    }

    /// Lets a request into the window before it is queued, while nothing is known of its work. Its turn
    /// has come.
    ///
    /// # Errors
    /// The answer for its client, if its class has enough unfinished work.
    #[inline]
    pub fn enqueue(&mut self, ticket: &mut Ticket) -> Result<(), Refusal> {
        ticket.end_wait();
        if self.window_point == WindowPoint::Queue {
            let pass = self.enter(ticket)?;
            ticket.keep_pass(pass);
        }
        Ok(())
    }

    /// Lets a request into the window that needs a worker which computes. The pass, if there is one, goes
    /// with the job.
    ///
    /// # Errors
    /// The answer for its client, if its class has enough unfinished work.
    pub fn needs_worker(&mut self, ticket: &mut Ticket) -> Result<Option<Pass>, Refusal> {
        match ticket.hand_on() {
            Some(pass) => Ok(Some(pass)),
            // a further job of the same request is let in
            None => self.enter(ticket),
        }
    }

    fn enter(&mut self, ticket: &mut Ticket) -> Result<Option<Pass>, Refusal> {
        match ticket.enter(&self.in_force.windows) {
            Ok(pass) => Ok(pass),
            // the charge stays: a limit also holds for clients that try on and on during an overload
            Err(retry_after_s) => {
                ticket.trace.refused = Some((RefusalReason::Agent, None));
                self.refused(ticket.trace.slot, RefusedAt::Request, RefusalReason::Agent);
                Err(Refusal { status: 503, retry_after_s })
            }
        }
    }

    /// Notes that an admitted request is refused for this reason, by something that it has waited for.
    pub fn refused_later(&mut self, ticket: &mut Ticket, reason: RefusalReason) {
        if ticket.trace.refused.is_none() {
            ticket.trace.refused = Some((reason, None));
            self.refused(ticket.trace.slot, RefusedAt::Request, reason);
        }
    }

    /// Counts a request that its application has not answered, by what its client gets instead.
    pub fn unanswered(&mut self, ticket: &Ticket, what: Unanswered) {
        self.metrics.enter(ticket.trace.slot, ClassEvent::Unanswered(what));
    }

    /// Notes that an admitted request got no place among those at once of its rule.
    pub fn refused_queued(&mut self, ticket: &mut Ticket) {
        let Some((rule, client)) = ticket.queued_by() else { return };
        self.refund(ticket);
        // rules of a policy that is no longer in force have other numbers
        let rule = (ticket.trace.policy == self.in_force.number).then_some(rule);
        if let Some(rule) = rule {
            self.in_force.state.refuse_queued(rule, client);
        }
        ticket.trace.refused = Some((RefusalReason::Queue, rule.and_then(RuleNumber::of)));
        self.refused(ticket.trace.slot, RefusedAt::Request, RefusalReason::Queue);
    }

    /// Notes that the agent of a later stage has refused a request that was admitted here.
    #[cold]
    pub fn refused_behind(&mut self, ticket: &mut Ticket) {
        if ticket.trace.refused.is_some() {
            return;
        }
        self.refund(ticket);
        ticket.trace.refused = Some((RefusalReason::Agent, None));
        self.refused(ticket.trace.slot, RefusedAt::Request, RefusalReason::Agent);
        if let Some(late) = self.in_force.behind.get(usize::from(ticket.rank().0)) {
            late.store(clock::coarse_ms(), Relaxed);
        }
    }

    /// Gives up the turn of a request that ends without an answer, if it still waits for that.
    #[inline]
    pub fn give_up_turn(&self, ticket: &mut Ticket) {
        if let Some(turn_ns) = ticket.end_wait()
            && let Some(RequestCharge { rule, client }) = self.take_charge(ticket)
        {
            self.in_force.state.give_up_turn(rule.place() as u32, client, turn_ns);
        }
    }

    /// Gives a charge for the rate back, because something else refuses the request. If the request has
    /// waited for longer than an interval of the rate, one request more is admitted than should be. That
    /// is the lesser harm: otherwise its client would be refused anew, by a limit of which it had
    /// nothing.
    fn refund(&self, ticket: &mut Ticket) {
        if let Some(RequestCharge { rule, client }) = self.take_charge(ticket) {
            let rule = rule.place() as u32;
            self.in_force.state.refund_request(rule, client, clock::monotonic_ns());
        }
    }

    /// The charge of a request; it is returned once. Rules of a policy that is no longer in force have
    /// other numbers, and their charges stay.
    fn take_charge(&self, ticket: &mut Ticket) -> Option<RequestCharge> {
        ticket.take_charge().filter(|_| ticket.trace.policy == self.in_force.number)
    }

    /// Has the kernel and the firewall ignore a client that the server ignores: a limit has refused it just
    /// now, or did before and the client has come again. A client that a proxy has stated sends no SYNs
    /// itself.
    fn tell_ignored(&self, peer: &Peer, client: IpAddr, now_ns: u64) {
        let InForce { gate, dropped, state, .. } = &*self.in_force;
        if gate.is_none() && dropped.is_none() {
            return;
        }
        let is_direct =
            peer.stated.is_none() && peer.address().ip().to_canonical() == client.to_canonical();
        let ignored_ns = state.ignored_ns(client, now_ns);
        if ignored_ns == 0 || !is_direct {
            return;
        }
        let until_ns = now_ns.saturating_add(ignored_ns);
        if let Some(gate) = gate {
            gate.ignore(client, until_ns);
        }
        if let Some(dropped) = dropped {
            dropped.drop_client(client, until_ns);
        }
    }

    fn refused(&mut self, slot: ClassSlot, place: RefusedAt, reason: RefusalReason) {
        self.metrics.enter(slot, ClassEvent::Refused(place, reason));
        self.gather.refused();
    }

    /// How long the loop should rest before it looks for news, so that threads that compute keep the cores.
    pub fn pause(&mut self, now_ms: u64) -> Option<Duration> {
        let pause = self.gather.pause(now_ms)?;
        self.in_force.windows.iter().any(|window| window.has_work()).then_some(pause)
    }
}

/// Whether a connection brings only requests of this client: no proxy names another one in a field of
/// each.
fn is_own_connection(peer: &Peer, client: IpAddr) -> bool {
    peer.address().ip().to_canonical() == client.to_canonical()
}

/// The verdict for a refusal.
fn verdict<T>(refused: &PolicyRefusal, ticket: T) -> Verdict<T> {
    match refused.answer {
        RefusalAnswer::Reject { status, retry_after_s } => {
            Verdict::Refuse(Refusal { status, retry_after_s }, ticket)
        }
        // a connection cannot be dropped silently once it is accepted
        RefusalAnswer::Reset | RefusalAnswer::Drop => Verdict::Reset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicySettings;
    use forebay_config::{Switch, parse};
    use forebay_conn::Settled;
    use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
    use forebay_http::path::NormalPath;
    use forebay_metrics::{ClassTotals, Totals};

    const POLICY: &str = r#"
root = "/site"
[[rule]]
name = "one at a time"
path = "/costly/*"
in_flight = { most = 1 }
[[rule]]
name = "never"
path = "/private"
action = "reset"
[[rule]]
name = "one after the other"
path = "/report"
in_flight = { most = 1, over = "queue", queue = 1, deadline = "1s" }
[[rule]]
name = "four"
path = ["/report", "/seldom"]
requests = { rate = "1/m", burst = 4, per = "client" }
[[rule]]
name = "in line"
path = "/line"
in_flight = { most = 1, over = "queue", queue = 1, deadline = "1s" }
requests = { rate = "10/m", over = "queue", deadline = "60s", most = 3 }
"#;

    /// A loop with the policy.
    struct Loop {
        judge: Judge,
        metrics: Arc<Local>,
        now_ns: u64,
    }

    impl Loop {
        fn new(window_point: WindowPoint) -> Loop {
            let config = parse(POLICY, "/etc/forebay.toml").unwrap();
            let policy = Arc::new(config.policy().unwrap());
            let shares = policy.classes().iter().map(|class| class.share).collect();
            let slots = [ClassSlot(0)].into();
            let agent = config.agent == Switch::On;
            let settings = PolicySettings { policy, shares, slots, agent };
            let metrics = Arc::new(Local::default());
            let in_force = Arc::new(InForce::new(settings, None));
            let judge = Judge::new(&in_force, &None, &metrics, window_point).unwrap();
            Loop { judge, metrics, now_ns: clock::monotonic_ns() }
        }

        fn ask(&mut self, path: &str) -> Verdict<Option<Ticket>> {
            let text = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
            let mut lines = Lines::new();
            let parsed = Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default());
            let Ok(ParsedHead::Complete(head)) = parsed else { panic!("{text}: {parsed:?}") };
            let peer = Peer::new(([192, 0, 2, 1], 4711).into(), ([192, 0, 2, 2], 80).into());
            let normal_path = NormalPath::default();
            let request = Request::new(&head, &peer, &normal_path);
            let (trusted, mut record) = (TrustedProxies::default(), ConnectionRecord::default());
            let trusted = &trusted;
            let known =
                JudgeContext { trusted, verifier: None, unix_ms: 0, rank: None, paths: &[] };
            self.judge.request(&request, &mut record, known, self.now_ns)
        }

        #[track_caller]
        fn admitted(&mut self, path: &str) -> Ticket {
            match self.ask(path) {
                Verdict::Admit(Admitted { ticket: Some(ticket), .. }) => ticket,
                other => panic!("{path}: {other:?}"),
            }
        }

        #[track_caller]
        fn refused(&mut self, path: &str) -> Ticket {
            match self.ask(path) {
                Verdict::Refuse(_, Some(ticket)) => ticket,
                other => panic!("{path}: {other:?}"),
            }
        }

        fn ledger(&self) -> ClassTotals {
            *Totals::of([&*self.metrics]).class(ClassSlot(0))
        }

        fn refused_for(&self, reason: RefusalReason) -> u64 {
            self.ledger().refused[RefusedAt::Request as usize][reason as usize]
        }
    }

    #[test]
    fn each_ticket_knows_why_its_own_request_is_refused() {
        let mut one = Loop::new(WindowPoint::Job);
        // rules match the normal path
        let mut first = one.admitted("/costly/a");
        let mut second = one.refused("/x/..//costly/%62");
        let mut other = one.admitted("/cheap");
        let said = one.judge.judged(&second).said();
        assert_eq!((said.refused, said.refused_by), (Some("in_flight"), Some("one at a time")));
        for ticket in [&first, &other] {
            assert_eq!(one.judge.judged(ticket).said().refused, None);
        }
        assert!(matches!(one.ask("/private"), Verdict::Reset));
        for ticket in [&mut first, &mut second, &mut other] {
            ticket.settle(Settled::Answered, &one.metrics);
        }
        let ledger = one.ledger();
        assert_eq!(
            (ledger.offered, ledger.answered, ledger.refused_at(RefusedAt::Request)),
            (4, 2, 2)
        );
        let mut third = one.admitted("/costly/a");
        third.settle(Settled::Cut, &one.metrics);
        assert_eq!(one.ledger().cut, 1);
    }

    #[test]
    fn an_expired_request_holds_nothing_and_is_still_known() {
        let mut one = Loop::new(WindowPoint::Queue);
        let mut ticket = one.admitted("/costly/a");
        assert_eq!(one.judge.enqueue(&mut ticket), Ok(()));
        let unfinished = |one: &Loop| one.judge.in_force.windows[0].counts().unfinished;
        assert_eq!(unfinished(&one), 1);
        ticket.settle(Settled::Expired, &one.metrics);
        assert_eq!((unfinished(&one), one.refused_for(RefusalReason::Expired)), (0, 1));
        assert_eq!(one.judge.judged(&ticket).said().refused, Some("expired"));
        let _next = one.admitted("/costly/b");
        drop(ticket);
        one.refused("/costly/c");
    }

    #[test]
    fn who_is_kept_out_of_a_full_window_is_counted_once() {
        let mut one = Loop::new(WindowPoint::Queue);
        one.judge.in_force.windows[0].limit(Some(1), 7);
        let mut inside = one.admitted("/");
        assert_eq!(one.judge.enqueue(&mut inside), Ok(()));
        let mut outside = one.admitted("/");
        let refusal = Refusal { status: 503, retry_after_s: 7 };
        assert_eq!(one.judge.enqueue(&mut outside), Err(refusal));
        assert_eq!(one.judge.judged(&outside).said().refused, Some("agent"));
        outside.settle(Settled::Answered, &one.metrics);
        inside.settle(Settled::Answered, &one.metrics);
        let ledger = one.ledger();
        assert_eq!((ledger.answered, one.refused_for(RefusalReason::Agent)), (1, 1));
        assert_eq!(one.judge.in_force.windows[0].counts().unfinished, 0);
    }

    #[test]
    fn who_gets_no_place_has_used_nothing_of_the_rate() {
        let mut one = Loop::new(WindowPoint::Queue);
        let asks = |one: &mut Loop| {
            let mut ticket = one.admitted("/report");
            assert_eq!(one.judge.enqueue(&mut ticket), Ok(()));
            let asked = ticket.ask_for_place(0);
            (ticket, asked)
        };
        let (_served, asked) = asks(&mut one);
        assert!(matches!(asked, Ok(None)), "{asked:?}");
        let (mut late, asked) = asks(&mut one);
        let Ok(Some(mut wait)) = asked else { panic!("{asked:?}") };
        for _ in 0..4 {
            let (mut ticket, asked) = asks(&mut one);
            assert!(asked.is_err());
            one.judge.refused_queued(&mut ticket);
            ticket.settle(Settled::Answered, &one.metrics);
        }
        assert!(wait.take().is_err());
        one.judge.refused_queued(&mut late);
        assert_eq!(one.refused_for(RefusalReason::Queue), 5);
        let _left = [(); 3].map(|()| one.admitted("/seldom"));
        one.refused("/seldom");
    }

    #[test]
    fn who_leaves_before_its_turn_gives_it_up() {
        let mut one = Loop::new(WindowPoint::Queue);
        let leave = |one: &Loop, ticket: &mut Ticket| {
            one.judge.give_up_turn(ticket);
            ticket.settle(Settled::Cut, &one.metrics);
        };
        let _first = one.admitted("/line");
        let mut waits = [(); 3].map(|()| one.admitted("/line"));
        one.refused("/line");
        // the requests behind it know their times already, and come at these
        leave(&one, &mut waits[0]);
        one.refused("/line");
        leave(&one, &mut waits[2]);
        leave(&one, &mut waits[1]);
        let [_before, mut served] = [(); 2].map(|()| one.admitted("/line"));
        one.refused("/line");
        // a request whose turn has come has had it
        assert!(!served.needs_place());
        assert_eq!(one.judge.enqueue(&mut served), Ok(()));
        assert!(served.needs_place());
        leave(&one, &mut served);
        one.refused("/line");
        assert_eq!(one.ledger().cut, 4);
    }
}
