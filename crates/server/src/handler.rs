//! The handler of the fast lane, in its five roles: which requests are served, what the answer is, where
//! its bytes are, what is logged, and what else happens on a loop.

use crate::acme;
use crate::applications::{
    Applications, ExchangeTag, Hidden, NO_TUNNEL, Pools, Standpoint, ask, ask_authority, ask_stage,
    before, failed, refused, said_of, summary,
};
use crate::certificates::{Certificates, OTHER_CONNECTION};
use crate::client::{TrustedProxies, client_of};
use crate::detour::{Detour, WaitsForPlace};
use crate::isolated::Role;
use crate::job::{ServerJob, ServerJobDone};
use crate::listen::TLS;
use crate::live::{LiveSnapshot, ServingSnapshot};
use crate::log::request_id::RequestIds;
use crate::log::{LogEntry, Logger, PendingLine};
use crate::passing::PassingExchange;
use crate::policy::at_once;
use crate::policy::{ConnectionRecord, Judge, JudgeContext, Ticket, WindowPoint};
use crate::upstream_threads::ThreadShare;
use crate::websocket;
use forebay_conn::handler::body::BodyRead;
use forebay_conn::handler::relay::RelayRead;
use forebay_conn::{
    Admission, Admitted, Answered, Bodies, BodyDecision, ConnectionLimits, GivenUp, Handler,
    HandlerTypes, Hooks, Http, InternalRedirect, Job as _, JobKind, Journal, Listening, Passed,
    Peer, Piece, Process, ProcessOutcome, Rank, Refusal, Relay, Relayed, Reply, Request, Settled,
    Stages, TurnTime, Verdict,
};
use forebay_control::versioned::Reader;
use forebay_http::head::{Head, Method, RequestTarget};
use forebay_http::path::NormalPath;
use forebay_http::response::Response;
use forebay_http::status::reason;
use forebay_metrics::{Counter, Local, Unanswered};
use forebay_site::{Body, Destination, FilesLocation, Routed, Site, host_of};
use forebay_sys::clock;
use forebay_tls::Channel;
use forebay_upstream::exchange::{Exchange, Failed};
use forebay_upstream::group::Unavailable;
use forebay_upstream::link::LinkFailure;
use forebay_upstream::response::{self, Moved};
use forebay_upstream::settings::Errors;
use forebay_upstream::stage;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// Fields of an application that stand for those of what it has sent, as with nginx.
const KEPT: [&str; 5] =
    ["Content-Type", "Content-Disposition", "Set-Cookie", "Cache-Control", "Expires"];

/// At most so much of an answer that is not wanted is received at a time, so that its connection is kept.
const DROPPED_BYTES: usize = 16 * 1024;

const NOT_ACCEPTED: &str = "The application has not accepted the WebSocket as it must";
const NOT_CHANGED: &str = "The application has not changed to the protocol of the tunnel";
const NO_DECISION: &str = "It could not be found out whether this is for you";
const NOT_TO_BE_SENT: &str = "The application may not have that sent";

/// What one loop or thread serves.
pub struct FastLane {
    /// The snapshot in force; the fields below are made from it.
    live: Reader<Arc<ServingSnapshot>>,
    site: Site,
    logger: Logger,
    trusted: Arc<TrustedProxies>,
    certificates: Arc<Certificates>,
    applications: Arc<Applications>,
    /// Connections to applications that wait for their next request.
    pools: Pools,
    /// What requests for applications keep, where each connection keeps a thread.
    thread: Option<ThreadShare>,
    ids: RequestIds,
    /// Room for the head of an answer.
    head: Vec<u8>,
    /// `None` if there is no policy.
    judge: Option<Judge>,
    /// When requests enter the windows of their classes.
    window_point: WindowPoint,
    metrics: Arc<Local>,
    /// Paths the site finds without asking the shared cache.
    paths: usize,
    now: TurnTime,
}

impl FastLane {
    /// Serves the snapshot in force. The loop's own table has room for about `paths` paths.
    pub fn new(
        live: &Arc<LiveSnapshot>,
        metrics: Arc<Local>,
        paths: usize,
        window_point: WindowPoint,
        pools: Pools,
        now: TurnTime,
    ) -> FastLane {
        let (live, snapshot) = live.reader();
        let site = Site::new(Arc::clone(&snapshot.content), Arc::clone(&metrics), now, paths);
        let logger = snapshot.logs.logger(Arc::clone(&metrics));
        let trusted = Arc::clone(&snapshot.trusted);
        let certificates = Arc::clone(&snapshot.certificates);
        let applications = Arc::clone(&snapshot.applications);
        let judge = Judge::new(&snapshot.policy, &metrics, window_point);
        FastLane {
            live,
            site,
            logger,
            trusted,
            certificates,
            applications,
            pools,
            thread: None,
            ids: RequestIds::default(),
            head: Vec::new(),
            judge,
            window_point,
            metrics,
            paths,
            now,
        }
    }

    /// The same in a thread that serves one connection at a time.
    pub fn with_thread(self, thread: ThreadShare) -> FastLane {
        FastLane { thread: Some(thread), ..self }
    }

    /// Takes over another snapshot. Nothing that is still being sent depends on the one before:
    /// bodies that outlive a turn are [held](Bodies::hold). Where the content stays, so does what this
    /// loop or thread knows of it: paths and credentials.
    #[cold]
    fn take_over(&mut self, snapshot: &ServingSnapshot) {
        if !self.site.serves(&snapshot.content) {
            let (content, metrics) = (Arc::clone(&snapshot.content), Arc::clone(&self.metrics));
            self.site = Site::new(content, metrics, self.now, self.paths);
        } else {
            self.site.take_pages();
        }
        self.logger.update(&snapshot.logs);
        self.trusted = Arc::clone(&snapshot.trusted);
        self.certificates = Arc::clone(&snapshot.certificates);
        self.applications = Arc::clone(&snapshot.applications);
        self.judge = Judge::new(&snapshot.policy, &self.metrics, self.window_point);
    }

    #[inline]
    fn keep_up(&mut self) {
        if let Some(snapshot) = self.live.newer() {
            self.take_over(&snapshot);
        }
    }
}

/// What a client is told that has waited for a place among the requests at once of its rule: nobody knows
/// when one is free, a second is as good as anything.
const NO_PLACE: Refusal = Refusal { status: 503, retry_after_s: 1 };

/// An exchange has begun for this request.
fn applied(exchange: Box<Exchange<ExchangeTag>>) -> Box<Detour> {
    Box::new(Detour::Application(PassingExchange::new(exchange)))
}

/// Writes the first line of a head over what is there.
fn begin_head(status: u16, head: &mut Vec<u8>) {
    head.clear();
    // writing into a vector does not fail
    let _ = write!(head, "HTTP/1.1 {status} {}\r\n", reason(status));
}

/// Whether another stage may answer a request. Tunnels and traces end where the client is.
fn is_passed_on(request: &Request<'_>) -> bool {
    !matches!(request.head.method, Method::Connect | Method::Trace)
}

/// Why the answer to a request for a tunnel is none that its client may get, if that is so: a 2xx would mean
/// that there is one (RFC 8441 §4).
fn refuses_tunnel(relay: &Exchange<ExchangeTag>, status: u16) -> Option<&'static str> {
    match status {
        101 => {
            let id = relay.tag.id;
            let is_accepted = relay.with_answer(|answer| websocket::is_accepted(answer, id));
            let is_accepted = is_accepted.unwrap_or_default();
            (!is_accepted).then_some(NOT_ACCEPTED)
        }
        200..300 => Some(NOT_CHANGED),
        _ => None,
    }
}

/// What a client is told of a request that no instance of the next stage has answered.
fn unanswered(reason: LinkFailure) -> &'static str {
    match reason {
        LinkFailure::Unknown => {
            "A process of the server has ended, and it is not known whether it has done this"
        }
        LinkFailure::Exhausted => "No process of the server has answered",
        LinkFailure::Quarantined => "Processes of the server have ended while they did this",
    }
}

impl HandlerTypes for FastLane {
    type Body = Body;
    type Job = ServerJob;
    type Relay = Detour;
    type Line = PendingLine;
    /// `None` where there is no policy.
    type Ticket = Option<Ticket>;
    type Record = ConnectionRecord;
}

impl Handler for FastLane {
    type Protocol = Http<FastLane>;
    type Transport = Channel;

    fn transport(&mut self, listening: Listening) -> Channel {
        self.keep_up();
        match listening {
            TLS => Channel::sealed(&self.certificates.identities),
            _ => Channel::Plain,
        }
    }

    fn protocol(&mut self, transport: &Channel, limits: &ConnectionLimits) -> Http<FastLane> {
        if transport.is_for_http2() { Http::two(limits) } else { Http::default() }
    }
}

impl Admission for FastLane {
    fn trusts(&mut self, peer: &Peer) -> bool {
        self.keep_up();
        self.trusted.trust(peer)
    }

    fn asks_local(&self) -> bool {
        self.judge.as_ref().is_some_and(Judge::asks_local) || self.applications.tell_local()
    }

    fn admit(&mut self, peer: &Peer) -> Verdict<()> {
        self.keep_up();
        match &mut self.judge {
            None => Verdict::Admit(Admitted::at_once(Rank::FIRST, ())),
            Some(judge) => judge.connection(peer, clock::monotonic_ns()),
        }
    }

    #[inline]
    fn verdict(
        &mut self,
        request: &Request<'_>,
        record: &mut ConnectionRecord,
    ) -> Verdict<Option<Ticket>> {
        self.keep_up();
        match &mut self.judge {
            None => Verdict::Admit(Admitted::at_once(Rank::FIRST, None)),
            Some(judge) => {
                let verifier = self.certificates.verifier.as_ref();
                let (trusted, unix_ms) = (&*self.trusted, self.now.unix_ms);
                let bare = if judge.asks_path() { self.site.bare_path(request) } else { None };
                let known = JudgeContext { trusted, verifier, unix_ms, bare_path: bare.as_deref() };
                judge.request(request, record, known, clock::monotonic_ns())
            }
        }
    }

    #[inline]
    fn enqueue(&mut self, ticket: &mut Option<Ticket>) -> Result<(), Refusal> {
        match (&mut self.judge, ticket) {
            (Some(judge), Some(ticket)) => judge.enqueue(ticket),
            _ => Ok(()),
        }
    }

    #[inline]
    fn settle(&mut self, ticket: &mut Option<Ticket>, end: Settled) {
        if let Some(ticket) = ticket {
            ticket.settle(end, &self.metrics);
        }
    }
}

impl Process for FastLane {
    fn decide(
        &mut self,
        request: &Request<'_>,
        _: &mut Option<Ticket>,
        _: Option<ServerJobDone>,
    ) -> BodyDecision<ServerJob> {
        if let Some(next) = self.applications.next_stage()
            && is_passed_on(request)
        {
            return BodyDecision::Stream(next.settings().bodies().most_bytes);
        }
        match self.site.may_be_for_application(request) {
            // applications have limits of their own, and nothing is kept here
            true => BodyDecision::Stream(u64::MAX),
            false => BodyDecision::Here,
        }
    }

    #[inline]
    fn process(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        done: Option<ServerJobDone>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        if let Some(ticket) = ticket {
            ticket.begin();
        }
        if self.answers_authority(request, reply) {
            if let Some(ticket) = ticket {
                ticket.end();
            }
            return ProcessOutcome::Replied;
        }
        if let Some((status, reason)) = self.wrong_way(request) {
            if let Some(ticket) = ticket {
                ticket.end();
            }
            self.refuse(status, reason, reply);
            return ProcessOutcome::Replied;
        }
        if let Some(ticket) = ticket
            && ticket.needs_place()
            && let Some(outcome) = self.ask_for_place(request, ticket, reply)
        {
            return outcome;
        }
        if let Some(role) = self.applications.role() {
            let waited_ms = done.as_ref().map_or(0, ServerJobDone::waited_ms);
            let done = done.and_then(ServerJobDone::of_site);
            self.tell_delay(request, waited_ms, reply);
            return match self.process_stage(role, request, ticket, done, reply) {
                ProcessOutcome::Job(job) => ProcessOutcome::Job(job.timed()),
                other => other,
            };
        }
        let done = done.and_then(ServerJobDone::of_site);
        self.process_here(request, ticket, done, reply)
    }

    fn acknowledges(&self, head: &Head<'_>) -> bool {
        let is_behind = matches!(self.applications.role(), Some(Role::Process | Role::Respond));
        is_behind && stage::asks_for_acknowledgement(head)
    }

    fn relayed(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        detour: &mut Detour,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        let passing = match detour {
            Detour::Application(passing) => passing,
            Detour::Place(waits) => {
                return self.place_decided(request, ticket, &mut waits.wait, reply);
            }
        };
        let relay = &mut passing.exchange;
        relay.tell();
        if relay.application().is_stage() {
            let again = u64::from(relay.attempts().saturating_sub(1));
            self.metrics.add(Counter::UpstreamRetries, again);
            return self.relayed_stage(request, passing, reply);
        }
        let count = |counter| self.metrics.add(counter, 1);
        if relay.attempts() > 1 {
            self.metrics.add(Counter::UpstreamRetries, u64::from(relay.attempts() - 1));
        }
        let asked = &relay.tag;
        let destination = &asked.destination;
        if let Some(failure) = relay.failure() {
            let (status, text) = failed(failure);
            let unanswered = match status {
                413 => None,
                502 => Some((Counter::UpstreamFailed, Unanswered::Failed)),
                504 => Some((Counter::UpstreamLate, Unanswered::Late)),
                _ => Some((Counter::UpstreamUnavailable, Unanswered::Unavailable)),
            };
            if let Some((counter, unanswered)) = unanswered {
                count(counter);
                if let (Some(judge), Some(ticket)) = (&mut self.judge, &*ticket) {
                    judge.unanswered(ticket, unanswered);
                }
            }
            if let Failed::Unasked(unavailable) = failure {
                self.unavailable(unavailable, ticket, reply);
            }
            return self.refuse_for(asked, request, status, text, reply);
        }
        count(Counter::UpstreamAnswered);
        let status = relay.status().unwrap_or_default();
        let is_tunnel = self.standpoint().tunnel_of(request.head).is_some();
        if let Some(rule) = relay.tag.rule {
            match status {
                200..300 => return self.allowed(rule, request, relay),
                401 | 403 => {}
                _ => return self.refuse_for(&relay.tag, request, 502, NO_DECISION, reply),
            }
        } else if is_tunnel && let Some(text) = refuses_tunnel(relay, status) {
            return self.refuse_for(&relay.tag, request, 502, text, reply);
        } else if !is_tunnel && let Some(sent) = self.sent_instead(relay) {
            return match sent {
                Ok(sent) => {
                    self.give_back(relay);
                    let (id, given) = (Some(relay.tag.id), request.passed.cloned());
                    let given = given.unwrap_or_default();
                    Relayed::Again(Box::new(Passed { id, sent: Some(sent), ..given }))
                }
                Err(text) => self.refuse_for(&relay.tag, request, 502, text, reply),
            };
        }
        let settings = relay.application().settings();
        if settings.errors() == Errors::Ours && status >= 400 {
            let kept = relay.with_answer(kept_of_error).unwrap_or_default();
            return self.refuse_with(&relay.tag, request, status, reason(status), kept, reply);
        }
        let authorities = [relay.application().authority(relay.upstream())];
        let moved = settings.proxy().filter(|proxy| proxy.rewrites).map(|proxy| Moved {
            authorities: &authorities,
            client: request.head.authority,
            strip: &proxy.request.strip,
            prefix: &proxy.request.prefix,
        });
        let FastLane { site, head, .. } = self;
        begin_head(status, head);
        let length = relay.length();
        let (mut coding, mut holds) = (None, true);
        let has_date = relay.with_answer(|answer| {
            let mut said = Vec::with_capacity(16);
            let notes = response::fields(answer, moved.as_ref(), |name, value| {
                said.push((name, value));
            });
            if is_tunnel {
                said.retain(|(name, _)| !name.eq_ignore_ascii_case(websocket::ACCEPT));
            }
            holds = notes.buffering != Some(false);
            coding = site.recode(destination, request, status, length, &mut said);
            site.write_fields(destination, request, status, said, head);
            notes.has_date
        });
        if request.peer.secured.is_some() {
            reply.hsts = site.hsts_of(destination);
        }
        if status == 101 {
            reply.switch(head);
            return Relayed::Switched;
        }
        let buffer_bytes = if holds { settings.buffer_bytes() } else { 0 };
        passing.begin(buffer_bytes, coding.filter(|_| request.head.method != Method::Head));
        let length = length.filter(|_| coding.is_none());
        reply.relayed(status, head, length, has_date.unwrap_or_default());
        Relayed::Body
    }

    fn release(&mut self, relay: Detour) {
        if let Detour::Application(mut passing) = relay {
            self.pools.with(|pool| passing.exchange.give_back(pool));
        }
    }

    fn refuse(&mut self, status: u16, reason: &'static str, reply: &mut Reply<'_, Body>) {
        self.site.refuse(status, reason, reply);
    }

    fn turn_away(
        &mut self,
        refusal: Refusal,
        request: Option<&Request<'_>>,
        reply: &mut Reply<'_, Body>,
    ) {
        self.site.turn_away(refusal, request, reply);
    }
}

impl FastLane {
    /// Answers a request of which this process is to find all of the answer.
    #[inline]
    fn process_here(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        done: Option<forebay_site::SiteJobDone>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        if let Some(sent) = request.passed.and_then(|passed| passed.sent.as_ref()) {
            return self.send_instead(sent, request, ticket, done, reply);
        }
        let FastLane { site, trusted, .. } = self;
        let client = || client_of(request.peer, request.head, trusted);
        let done = match site.route(request, client, done, reply) {
            Routed::Here(_) if self.standpoint().tunnel_of(request.head).is_some() => {
                if let Some(ticket) = ticket {
                    ticket.end();
                }
                self.refuse(501, NO_TUNNEL, reply);
                return ProcessOutcome::Replied;
            }
            Routed::Here(done) => done,
            Routed::Replied => {
                if let Some(ticket) = ticket {
                    ticket.end();
                }
                return ProcessOutcome::Replied;
            }
            Routed::Job(work) => return self.needs_worker(work, request, ticket, reply),
            Routed::To(destination) => {
                return self.relay(destination, None, request, ticket, reply);
            }
        };
        self.find(request, ticket, done, reply)
    }

    /// Answers with what the site has for a request that is let through.
    #[inline]
    fn find(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        done: Option<forebay_site::SiteJobDone>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        let FastLane { site, trusted, .. } = self;
        let client = || client_of(request.peer, request.head, trusted);
        match site.process(request, client, done, reply) {
            ProcessOutcome::Replied => {
                if let Some(ticket) = ticket {
                    ticket.end();
                }
                ProcessOutcome::Replied
            }
            ProcessOutcome::HandOver => ProcessOutcome::HandOver,
            ProcessOutcome::Relay(none) => match *none {},
            ProcessOutcome::Job(work) => self.needs_worker(work, request, ticket, reply),
        }
    }

    /// A request needs a place among those at once of its rule. `None` if it has one now.
    #[cold]
    fn ask_for_place(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Ticket,
        reply: &mut Reply<'_, Body>,
    ) -> Option<ProcessOutcome<ServerJob, Detour>> {
        match ticket.ask_for_place(self.now.monotonic_ms) {
            Ok(None) => None,
            Ok(Some(wait)) => {
                // until it is processed again it is no work
                ticket.end();
                Some(ProcessOutcome::Relay(Box::new(Detour::Place(WaitsForPlace::new(wait)))))
            }
            Err(at_once::NoPlace) => {
                ticket.end();
                self.turn_away_queued(request, ticket, reply);
                Some(ProcessOutcome::Replied)
            }
        }
    }

    /// One that has waited for a place has it, and is processed again; or gets none.
    #[cold]
    fn place_decided(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        wait: &mut at_once::PlaceWait,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        match (wait.take(), ticket) {
            (Ok(place), ticket) => {
                if let Some(ticket) = ticket {
                    ticket.has_place(place);
                }
                Relayed::Again(Box::new(request.passed.cloned().unwrap_or_default()))
            }
            (Err(at_once::NoPlace), ticket) => {
                if let Some(ticket) = ticket {
                    self.turn_away_queued(request, ticket, reply);
                }
                Relayed::Own
            }
        }
    }

    /// A request got no place among those at once of its rule.
    fn turn_away_queued(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Ticket,
        reply: &mut Reply<'_, Body>,
    ) {
        if let Some(judge) = &mut self.judge {
            judge.refused_queued(ticket);
        }
        self.site.turn_away(NO_PLACE, Some(request), reply);
    }

    /// Does this stage's part of a request.
    #[cold]
    fn process_stage(
        &mut self,
        role: Role,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        done: Option<forebay_site::SiteJobDone>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        let is_replied = match role {
            _ if !is_passed_on(request) => return self.process_here(request, ticket, done, reply),
            Role::Receive => self.site.secures(request, reply),
            Role::Process | Role::Respond if stage::is_ping(request.head) => {
                reply.head(204, b"HTTP/1.1 204 No Content\r\n");
                true
            }
            Role::Respond => return self.process_here(request, ticket, done, reply),
            Role::Process => {
                let FastLane { site, trusted, .. } = self;
                let client = || client_of(request.peer, request.head, trusted);
                match site.decide(request, client, done, reply) {
                    Routed::Replied => true,
                    Routed::Job(work) => return self.needs_worker(work, request, ticket, reply),
                    // the page of an error
                    Routed::Here(Some(done)) => {
                        return self.process_here(request, ticket, Some(done), reply);
                    }
                    Routed::Here(None) | Routed::To(_) => false,
                }
            }
        };
        if let Some(ticket) = ticket {
            ticket.end();
        }
        if is_replied { ProcessOutcome::Replied } else { self.pass_on(request, reply) }
    }

    /// What this process believes of those it stands behind.
    fn standpoint(&self) -> Standpoint<'_> {
        Standpoint { trusted: &self.trusted, role: self.applications.role() }
    }

    /// The stage before is told how long a request has waited here: for a thread, and in this turn of the
    /// loop for those before it.
    fn tell_delay(&self, request: &Request<'_>, waited_ms: u64, reply: &mut Reply<'_, Body>) {
        if self.acknowledges(request.head) {
            let turn_ms = clock::coarse_ms().saturating_sub(self.now.monotonic_ms);
            reply.waited_ms = Some(u32::try_from(waited_ms + turn_ms).unwrap_or(u32::MAX));
        }
    }

    /// The next stage answers.
    fn pass_on(
        &mut self,
        request: &Request<'_>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        let id = self.ids.number();
        let site = self.site.site_of(request);
        let destination = Destination { site: site.unwrap_or(u32::MAX), ..Destination::default() };
        let repeats = self.applications.repeats_idempotent(site);
        let Some(next) = self.applications.next_stage().map(Arc::clone) else {
            self.refuse(502, "There is no next stage", reply);
            return ProcessOutcome::Replied;
        };
        let knows_no_rules = self.site.files() == FilesLocation::Elsewhere;
        let ask = ask_stage(request, id, self.standpoint(), &self.applications, knows_no_rules);
        let mut ask = match ask {
            Ok(ask) => ask,
            Err(refused) => {
                self.refuse(refused.status(), refused.reason(), reply);
                return ProcessOutcome::Replied;
            }
        };
        if let Some(copy) = &mut ask.copy {
            copy.repeats_idempotent = repeats;
        }
        let asked = ExchangeTag { destination, id, rule: None };
        let now_ms = self.now.monotonic_ms;
        match self.pools.with(|pool| Exchange::begin(&next, ask, asked, pool, now_ms)) {
            Ok(exchange) => ProcessOutcome::Relay(applied(exchange)),
            Err(unavailable) => {
                self.metrics.add(Counter::UpstreamUnavailable, 1);
                let (status, text) = failed(Failed::Unasked(unavailable));
                self.refuse(status, text, reply);
                ProcessOutcome::Replied
            }
        }
    }

    /// The next stage has answered, or none of its instances has. Its answer is passed on as it is.
    #[cold]
    fn relayed_stage(
        &mut self,
        request: &Request<'_>,
        passing: &mut PassingExchange,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        let relay = &passing.exchange;
        if let Some(failure) = relay.failure() {
            let (status, text) = match relay.reason() {
                Some(reason) => (reason.status(), unanswered(reason)),
                None if failure == Failed::TooLarge => (413, "the request body is too large"),
                None => failed(failure),
            };
            let is_unknown = relay.reason() == Some(LinkFailure::Unknown);
            let count = |counter| self.metrics.add(counter, 1);
            count(if is_unknown { Counter::LinkUnknown } else { Counter::UpstreamFailed });
            self.refuse(status, text, reply);
            return Relayed::Own;
        }
        self.metrics.add(Counter::UpstreamAnswered, 1);
        let status = relay.status().unwrap_or_default();
        // respond lets none of these by; other software may
        if request.head.tunnel.is_some() && (200..300).contains(&status) {
            self.refuse(502, NOT_CHANGED, reply);
            return Relayed::Own;
        }
        let FastLane { site, head, .. } = self;
        begin_head(status, head);
        let has_date = relay.with_answer(|answer| {
            let notes = response::fields(answer, None, |name, value| {
                for part in [name.as_bytes(), b": ", &value, b"\r\n"] {
                    head.extend_from_slice(part);
                }
            });
            notes.has_date
        });
        if request.peer.secured.is_some() {
            reply.hsts = site.hsts_of(&relay.tag.destination);
        }
        if status == 101 {
            reply.switch(head);
            return Relayed::Switched;
        }
        let length = relay.length();
        self.tell_delay(request, 0, reply);
        reply.relayed(status, &self.head, length, has_date.unwrap_or_default());
        Relayed::Body
    }

    /// A request is for an application, and rules have let it through.
    #[cold]
    fn relay(
        &mut self,
        destination: Destination,
        rule: Option<u16>,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        if let Some(ticket) = ticket {
            ticket.end();
        }
        // one that was asked about before keeps its number
        let known = request.passed.and_then(|passed| passed.id);
        let id = known.unwrap_or_else(|| self.ids.number());
        let asked = ExchangeTag { destination: destination.clone(), id, rule };
        let Some(application) = self.applications.get(&asked.destination) else {
            // content and applications are replaced together
            self.refuse(502, "There is no such application", reply);
            return ProcessOutcome::Replied;
        };
        let application = Arc::clone(application);
        let now_ms = self.now.monotonic_ms;
        let rank = ticket.as_ref().map_or(Rank::FIRST, Ticket::rank);
        let verifier = self.certificates.verifier.as_ref().filter(|verifier| verifier.remove);
        let hidden = Hidden {
            cookie: verifier.map(|verifier| &*verifier.cookie),
            fields: self.applications.given(destination.site),
        };
        let authority = application.settings().proxy().and_then(|proxy| proxy.authority.as_ref());
        let standpoint = self.standpoint();
        let ask = match authority {
            Some(authority) => {
                ask_authority(authority, &application, request, id, rank, standpoint, hidden)
            }
            None => ask(&application, request, &asked, rank, standpoint, hidden),
        };
        let (status, text) = match ask {
            Err(unasked) => unasked.told(),
            Ok(mut ask) => {
                let is_tunnel = ask.written.asked.upgrade;
                let held = match self.thread.as_mut().map(|thread| thread.take(is_tunnel)) {
                    Some(Err(unavailable)) => {
                        ask.may_ask = Err(unavailable);
                        None
                    }
                    Some(Ok(held)) => Some(held),
                    None => None,
                };
                let begin = |pool: &mut _| Exchange::begin(&application, ask, asked, pool, now_ms);
                match self.pools.with(begin) {
                    // one that cannot be asked is an exchange, too, so that the log has its line
                    Ok(exchange) => {
                        let passing = PassingExchange::new(exchange).keeping(held);
                        return ProcessOutcome::Relay(Box::new(Detour::Application(passing)));
                    }
                    Err(unavailable) => failed(Failed::Unasked(unavailable)),
                }
            }
        };
        let refused = ExchangeTag { destination, id, rule: None };
        match self.refuse_for(&refused, request, status, text, reply) {
            Relayed::Job(job, _) => ProcessOutcome::Job(job),
            _ => ProcessOutcome::Replied,
        }
    }

    /// A server that was asked has let a request through.
    fn allowed(
        &mut self,
        rule: u16,
        request: &Request<'_>,
        relay: &mut Exchange<ExchangeTag>,
    ) -> Relayed<ServerJob> {
        let mut passed = request.passed.cloned().unwrap_or_default();
        passed.allowed.push(rule);
        passed.id = Some(relay.tag.id);
        let application = Arc::clone(relay.application());
        let authority = application.settings().proxy().and_then(|proxy| proxy.authority.as_ref());
        for name in authority.iter().flat_map(|authority| &authority.copy) {
            let value = relay.with_answer(|answer| {
                let values: Vec<_> = answer.values(name.as_str()).collect();
                (!values.is_empty()).then(|| values.join(b", ".as_slice()).into_boxed_slice())
            });
            passed.given.retain(|(known, _)| !name.is(known));
            passed.given.push((name.as_str().into(), value.flatten()));
        }
        self.give_back(relay);
        Relayed::Again(Box::new(passed))
    }

    /// What an application wants to be sent instead of its answer, if it may say that at all; or why it is
    /// not.
    fn sent_instead(
        &self,
        relay: &Exchange<ExchangeTag>,
    ) -> Option<Result<InternalRedirect, &'static str>> {
        let destination = &relay.tag.destination;
        if !self.site.sends(destination) {
            return None;
        }
        let sent = relay.with_answer(|answer| {
            let mut fields = Vec::new();
            let notes = response::fields(answer, None, |name, value| {
                if KEPT.iter().any(|kept| name.eq_ignore_ascii_case(kept)) {
                    for part in [name.as_bytes(), b": ", &value, b"\r\n"] {
                        fields.extend_from_slice(part);
                    }
                }
            });
            let target = notes.accel_redirect?;
            let by = summary(relay);
            let end = target.iter().position(|&b| b == b'?');
            let (path, query) = target.split_at(end.unwrap_or(target.len()));
            let query = query.strip_prefix(b"?").map(Into::into);
            Some(InternalRedirect { path: path.into(), query, fields: fields.into(), by })
        });
        let sent = sent.flatten()?;
        let may_be = self.site.may_send(destination, &sent.path);
        Some(if may_be { Ok(sent) } else { Err(NOT_TO_BE_SENT) })
    }

    /// Nothing more is needed of an exchange. What little there is besides is not waited for.
    fn give_back(&mut self, relay: &mut Exchange<ExchangeTag>) {
        let mut dropped = Vec::new();
        let mut drop_some = || relay.read(&mut dropped, DROPPED_BYTES, self.now.monotonic_ms);
        for _ in 0..4 {
            if !matches!(drop_some(), RelayRead::Bytes(_)) {
                break;
            }
        }
        self.pools.with(|pool| relay.give_back(pool));
    }

    /// Answers with what an application wants to be sent, if rules about clients let it through.
    #[cold]
    fn send_instead(
        &mut self,
        sent: &InternalRedirect,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        done: Option<forebay_site::SiteJobDone>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        let method = match request.head.method {
            Method::Head => Method::Head,
            _ => Method::Get,
        };
        let head = request
            .head
            .redirected(method, RequestTarget { path: &sent.path, query: sent.query.as_deref() });
        let path = NormalPath::default();
        let request = Request::new(&head, request.peer, &path).with(request.passed);
        reply.instead = Some(Arc::clone(&sent.fields));
        self.find(&request, ticket, done, reply)
    }

    /// An application could not be asked: the class is told, and the client when to come back.
    fn unavailable(
        &mut self,
        unavailable: Unavailable,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, Body>,
    ) {
        let (reason, retry_after_s) = refused(unavailable);
        reply.retry_after_s = retry_after_s;
        if let (Some(judge), Some(ticket), Some(reason)) = (&mut self.judge, ticket, reason) {
            judge.refused_later(ticket, reason);
        }
    }

    /// Answers in the place of an application.
    fn refuse_for(
        &mut self,
        asked: &ExchangeTag,
        request: &Request<'_>,
        status: u16,
        text: &'static str,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        self.refuse_with(asked, request, status, text, Vec::new(), reply)
    }

    /// The same, with these fields.
    fn refuse_with(
        &mut self,
        asked: &ExchangeTag,
        request: &Request<'_>,
        status: u16,
        text: &'static str,
        fields: Vec<(&'static str, Vec<u8>)>,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        match self.site.refuse_for(&asked.destination, request, status, text, fields, reply) {
            ProcessOutcome::Job(work) => {
                let given = request.passed.cloned().unwrap_or_default();
                let passed = Passed { id: Some(asked.id), ..given };
                Relayed::Job(ServerJob::uncounted(work), Box::new(passed))
            }
            _ => Relayed::Own,
        }
    }

    /// Whether this is the request of an authority that looks whether a name is ours, which is answered then
    /// whatever the site says about its path.
    #[inline]
    fn answers_authority(&mut self, request: &Request<'_>, reply: &mut Reply<'_, Body>) -> bool {
        let Some(plan) = self.certificates.acme() else { return false };
        if !acme::AcmePlan::is_for(request.head.path)
            || !matches!(request.head.method, Method::Get | Method::Head)
            || request.head.tunnel.is_some()
        {
            return false;
        }
        let Some(site) = self.site.site_of(request) else { return false };
        let Some(text) = plan.answer(site as usize, request.head.path) else { return false };
        self.site.tell(&text, reply);
        true
    }

    /// Why a request cannot be answered on its connection: that is of another host, or shows less of the
    /// client than the site asks for.
    #[inline]
    fn wrong_way(&mut self, request: &Request<'_>) -> Option<(u16, &'static str)> {
        let secured = request.peer.secured.as_deref();
        let asks = self.certificates.ask_clients();
        if secured.is_none() && !asks {
            return None;
        }
        let host = host_of(request.head.authority);
        let identities = &self.certificates.identities;
        if secured.is_some_and(|secured| identities.is_misdirected(secured, host)) {
            return Some((421, OTHER_CONNECTION));
        }
        let site = if asks { self.site.site_of(request) } else { None };
        self.certificates.refusal(secured, site? as usize, host)
    }

    /// A request cannot be answered without a worker: it gets one, unless its class has had enough.
    fn needs_worker(
        &mut self,
        work: forebay_site::SiteJob,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        if let Some((site, rule)) = work.asks() {
            let authority = self.site.authority(site, rule);
            return self.relay(authority, Some(rule), request, ticket, reply);
        }
        let (Some(judge), Some(ticket), JobKind::Computes) = (&mut self.judge, ticket, work.kind())
        else {
            return ProcessOutcome::Job(ServerJob::uncounted(work));
        };
        match judge.needs_worker(ticket) {
            Ok(pass) => ProcessOutcome::Job(ServerJob::counted(work, pass)),
            Err(refusal) => {
                self.site.turn_away(refusal, Some(request), reply);
                ProcessOutcome::Replied
            }
        }
    }
}

impl Bodies for FastLane {
    #[inline]
    fn piece<'b>(&'b self, body: &'b Body) -> Option<Piece<'b>> {
        self.site.piece(body)
    }

    fn left(&self, body: &Body) -> u64 {
        self.site.left(body)
    }

    #[inline]
    fn advance(&self, body: &mut Body, count: u64) {
        self.site.advance(body, count);
    }

    fn read(&self, body: &mut Body, buffer: &mut [u8]) -> BodyRead {
        self.site.read(body, buffer)
    }

    fn is_intact(&self, body: &Body) -> bool {
        self.site.is_intact(body)
    }

    fn hold(&mut self, body: &mut Body) {
        self.site.hold(body);
    }

    fn warm_bytes(&self, body: &Body) -> u64 {
        self.site.warm_bytes(body)
    }

    fn warm(&mut self, body: &Body) -> Option<ServerJob> {
        self.site.warm(body).map(ServerJob::uncounted)
    }
}

impl Journal for FastLane {
    #[inline]
    fn tick(&mut self) -> u64 {
        self.logger.tick()
    }

    #[inline]
    fn line(&mut self, answered: &Answered<'_, Option<Ticket>>) -> Option<PendingLine> {
        let Answered { peer, request, ticket, status, stages } = *answered;
        let ticket = ticket.and_then(Option::as_ref);
        Some(self.begin_line(peer, request, ticket, None, Some(status), stages))
    }

    fn relayed_line(
        &mut self,
        answered: &Answered<'_, Option<Ticket>>,
        relay: &Detour,
    ) -> Option<PendingLine> {
        let Answered { peer, request, ticket, status, stages } = *answered;
        let ticket = ticket.and_then(Option::as_ref);
        Some(self.begin_line(peer, request, ticket, Some(relay), Some(status), stages))
    }

    fn given_up(&mut self, asked: &GivenUp<'_, Option<Ticket>>, relay: Option<&Detour>) {
        let GivenUp { peer, request, ticket, stages } = *asked;
        let line = self.begin_line(peer, Some(request), ticket.as_ref(), relay, None, stages);
        self.logger.log(line, 0);
    }

    fn cut_off(&mut self, line: &mut PendingLine, relay: &Detour) {
        let Detour::Application(passing) = relay else { return };
        if let Some(error) = passing.exchange.cut_off()
            && !passing.exchange.application().is_stage()
        {
            line.cut_off(error);
        }
    }

    #[inline]
    fn log(&mut self, line: PendingLine, body_bytes: u64) {
        self.logger.log(line, body_bytes);
    }
}

/// The exchange with an application, or with the next stage.
fn exchange_of(detour: &Detour) -> Option<&Exchange<ExchangeTag>> {
    match detour {
        Detour::Application(passing) => Some(&passing.exchange),
        Detour::Place(_) => None,
    }
}

/// What clients need of an error whose page is the site's: how to show who they are, when to come back, and which
/// methods there are.
fn kept_of_error(answer: &Response<'_>) -> Vec<(&'static str, Vec<u8>)> {
    const KEPT: [&str; 3] = ["WWW-Authenticate", "Retry-After", "Allow"];
    let values = |name| answer.values(name).map(move |value| (name, value.to_vec()));
    KEPT.into_iter().flat_map(values).collect()
}

impl FastLane {
    #[inline]
    fn begin_line(
        &mut self,
        peer: &Peer,
        request: Option<&Request<'_>>,
        ticket: Option<&Ticket>,
        relay: Option<&Detour>,
        status: Option<u16>,
        stages: Stages,
    ) -> PendingLine {
        let site = request.and_then(|request| self.site.site_of(request)).map(|site| site as usize);
        if !self.logger.writes(site) {
            return self.logger.count(site, request.is_some(), status, stages);
        }
        let client = match request {
            Some(request) => client_of(peer, request.head, &self.trusted),
            None => peer.address().ip(),
        };
        let via_proxy = self.trusted.are_believed(peer);
        let judged = self.judge.as_ref().zip(ticket).map(|(judge, ticket)| judge.judged(ticket));
        let secured = peer.secured.as_deref();
        let user = request.filter(|_| status.is_some()).and_then(|request| self.site.user(request));
        let user = user.as_deref();
        let passed = request.and_then(|request| request.passed);
        let exchange = relay.and_then(exchange_of);
        let id = exchange.map(|exchange| exchange.tag.id);
        let id = id.or_else(|| passed?.id);
        // of the next stage, its own line tells
        let asked = exchange.filter(|exchange| !exchange.application().is_stage()).map(said_of);
        // what is sent instead of an application's answer is its answer, too
        let sent = || passed?.sent.as_ref();
        let relayed = asked.or_else(|| sent().map(|sent| before(&sent.by)));
        let entry = LogEntry {
            site,
            client,
            user,
            secured,
            via_proxy,
            id,
            request,
            judged,
            relayed,
            status,
            stages,
        };
        self.logger.line(&entry)
    }
}

/// Nothing is handed over until there is a general lane.
impl Hooks for FastLane {
    #[inline]
    fn turn(&mut self, now: TurnTime) {
        self.now = now;
        self.keep_up();
        self.site.turn(now);
        self.logger.turn(now.unix_ms);
        self.pools.look(now.monotonic_ms);
    }

    fn pause(&mut self) -> Option<Duration> {
        self.judge.as_mut().and_then(|judge| judge.pause(self.now.monotonic_ms))
    }

    fn rest(&mut self) {
        self.site.rest();
        self.logger.flush();
    }
}
