//! The handler of the fast lane, in its five roles: who is served, what the answer is, where its bytes
//! are, what is logged, and what else happens on a loop.

use crate::applications::{Applications, Asked, Pools, ask, failed, full};
use crate::certificates::{Certificates, OTHER_CONNECTION};
use crate::client::{TrustedProxies, client_of};
use crate::job::{Done, Job};
use crate::listen::TLS;
use crate::live::{Arrangement, Live};
use crate::log::request_id::RequestIds;
use crate::log::{Entry, Line, Logger};
use crate::policy::{Entrance, Judge, Ticket};
use forebay_conn::handler::body::Read;
use forebay_conn::{
    Admission, Admitted, Answered, Bodies, Decision, GivenUp, Handler, Hooks, Http, Job as _,
    Journal, Kind, Limits, Listening, Now, Outcome, Parts, Peer, Piece, Process, Rank, Refusal,
    Relay, Relayed, Reply, Request, Settled, Stages, Verdict,
};
use forebay_control::versioned::Reader;
use forebay_http::status::reason;
use forebay_metrics::{Counter, Local};
use forebay_policy::Standing;
use forebay_site::{Body, Destination, Routed, Site, host_of};
use forebay_sys::clock;
use forebay_tls::Channel;
use forebay_upstream::exchange::Exchange;
use forebay_upstream::response::{self, Moved};
use forebay_upstream::settings::Errors;
use std::sync::Arc;
use std::time::Duration;

/// What one loop or thread serves.
pub struct FastLane {
    /// The arrangement in force; the fields below are made from it.
    live: Reader<Arc<Arrangement>>,
    site: Site,
    logger: Logger,
    trusted: Arc<TrustedProxies>,
    certificates: Arc<Certificates>,
    applications: Arc<Applications>,
    /// Connections to applications that wait for their next request.
    pools: Pools,
    ids: RequestIds,
    /// Room for the head of an answer.
    head: Vec<u8>,
    /// `None` if there is no policy.
    judge: Option<Judge>,
    /// When requests enter the windows of their classes.
    entrance: Entrance,
    metrics: Arc<Local>,
    /// Paths the site finds without asking the shared cache.
    paths: usize,
    now: Now,
}

impl FastLane {
    /// Serves the arrangement in force. The loop's own table has room for about `paths` paths.
    pub fn new(
        live: &Arc<Live>,
        metrics: Arc<Local>,
        paths: usize,
        entrance: Entrance,
        pools: Pools,
        now: Now,
    ) -> FastLane {
        let (live, arrangement) = live.reader();
        let site = Site::new(Arc::clone(&arrangement.content), Arc::clone(&metrics), now, paths);
        let logger = arrangement.logs.logger(Arc::clone(&metrics));
        let trusted = Arc::clone(&arrangement.trusted);
        let certificates = Arc::clone(&arrangement.certificates);
        let applications = Arc::clone(&arrangement.applications);
        let judge = Judge::new(&arrangement.policy, &metrics, entrance);
        FastLane {
            live,
            site,
            logger,
            trusted,
            certificates,
            applications,
            pools,
            ids: RequestIds::default(),
            head: Vec::new(),
            judge,
            entrance,
            metrics,
            paths,
            now,
        }
    }

    /// Takes over another arrangement. Nothing that is still being sent depends on the one before:
    /// bodies that outlive a turn are [held](Bodies::hold). Where the content stays, so does what this
    /// loop or thread knows of it: paths and credentials.
    #[cold]
    fn take_over(&mut self, arrangement: &Arrangement) {
        if !self.site.serves(&arrangement.content) {
            let (content, metrics) = (Arc::clone(&arrangement.content), Arc::clone(&self.metrics));
            self.site = Site::new(content, metrics, self.now, self.paths);
        } else {
            self.site.take_pages();
        }
        self.logger.update(&arrangement.logs);
        self.trusted = Arc::clone(&arrangement.trusted);
        self.certificates = Arc::clone(&arrangement.certificates);
        self.applications = Arc::clone(&arrangement.applications);
        self.judge = Judge::new(&arrangement.policy, &self.metrics, self.entrance);
    }

    #[inline]
    fn keep_up(&mut self) {
        if let Some(arrangement) = self.live.newer() {
            self.take_over(&arrangement);
        }
    }
}

impl Parts for FastLane {
    type Body = Body;
    type Job = Job;
    type Relay = Exchange<Asked>;
    type Line = Line;
    /// `None` where there is no policy.
    type Ticket = Option<Ticket>;
    type Standing = Standing;
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

    fn protocol(&mut self, transport: &Channel, limits: &Limits) -> Http<FastLane> {
        if transport.is_for_http2() { Http::two(limits) } else { Http::default() }
    }
}

impl Admission for FastLane {
    fn trusts(&mut self, peer: &Peer) -> bool {
        self.keep_up();
        self.trusted.trust(peer)
    }

    fn asks_local(&self) -> bool {
        self.judge.as_ref().is_some_and(Judge::asks_local)
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
        standing: &mut Standing,
    ) -> Verdict<Option<Ticket>> {
        self.keep_up();
        match &mut self.judge {
            None => Verdict::Admit(Admitted::at_once(Rank::FIRST, None)),
            Some(judge) => judge.request(request, standing, &self.trusted, clock::monotonic_ns()),
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
        _: Option<Done>,
    ) -> Decision<Job> {
        match self.site.may_be_for_application(request) {
            // applications have limits of their own, and nothing is kept here
            true => Decision::Stream(u64::MAX),
            false => Decision::Here,
        }
    }

    #[inline]
    fn process(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        done: Option<Done>,
        reply: &mut Reply<'_, Body>,
    ) -> Outcome<Job, Exchange<Asked>> {
        if let Some(ticket) = ticket {
            ticket.begin();
        }
        if let Some((status, reason)) = self.wrong_way(request) {
            if let Some(ticket) = ticket {
                ticket.end();
            }
            self.refuse(status, reason, reply);
            return Outcome::Replied;
        }
        let FastLane { site, trusted, .. } = self;
        let client = || client_of(request.peer, request.head, trusted);
        let done = match site.route(request, client, done.and_then(Done::of_site), reply) {
            Routed::Here(done) => done,
            Routed::Replied => {
                if let Some(ticket) = ticket {
                    ticket.end();
                }
                return Outcome::Replied;
            }
            Routed::Job(work) => return self.needs_worker(work, request, ticket, reply),
            Routed::To(destination) => return self.relay(destination, request, ticket, reply),
        };
        match site.process(request, client, done, reply) {
            Outcome::Replied => {
                if let Some(ticket) = ticket {
                    ticket.end();
                }
                Outcome::Replied
            }
            Outcome::HandOver => Outcome::HandOver,
            Outcome::Relay(none) => match *none {},
            Outcome::Job(work) => self.needs_worker(work, request, ticket, reply),
        }
    }

    fn relayed(
        &mut self,
        request: &Request<'_>,
        _: &mut Option<Ticket>,
        relay: &mut Exchange<Asked>,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<Job> {
        relay.tell();
        let count = |counter| self.metrics.add(counter, 1);
        if relay.attempts() > 1 {
            self.metrics.add(Counter::UpstreamRetries, u64::from(relay.attempts() - 1));
        }
        let destination = &relay.tag.destination;
        if let Some((failure, is_late)) = relay.failure() {
            let (status, text) = failed(failure, is_late);
            count(if status == 504 { Counter::UpstreamLate } else { Counter::UpstreamFailed });
            return self.refuse_for(destination, request, status, text, reply);
        }
        count(Counter::UpstreamAnswered);
        let status = relay.status().unwrap_or_default();
        let settings = relay.application().settings();
        if settings.errors() == Errors::Ours && status >= 400 {
            return self.refuse_for(destination, request, status, reason(status), reply);
        }
        let authorities = [relay.application().authority(relay.upstream())];
        let moved = settings.proxy().filter(|proxy| proxy.rewrites).map(|proxy| Moved {
            authorities: &authorities,
            client: request.head.authority,
            strip: &proxy.request.strip,
            prefix: &proxy.request.prefix,
        });
        let FastLane { site, head, .. } = self;
        head.clear();
        head.extend_from_slice(b"HTTP/1.1 ");
        head.extend_from_slice(status.to_string().as_bytes());
        head.push(b' ');
        head.extend_from_slice(reason(status).as_bytes());
        head.extend_from_slice(b"\r\n");
        let has_date = relay.with_answer(|answer| {
            let mut said = Vec::with_capacity(16);
            let notes = response::fields(answer, moved.as_ref(), |name, value| {
                said.push((name, value));
            });
            site.write_fields(destination, request, status, said.into_iter(), head);
            notes.has_date
        });
        if request.peer.secured.is_some() {
            reply.hsts = site.hsts_of(destination);
        }
        if status == 101 {
            reply.switch(head);
            return Relayed::Switched;
        }
        reply.relayed(status, head, relay.length(), has_date.unwrap_or_default());
        Relayed::Body
    }

    fn release(&mut self, relay: Exchange<Asked>) {
        self.pools.with(|pool| relay.keep(pool));
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
    /// A request is for an application, and rules have let it through.
    #[cold]
    fn relay(
        &mut self,
        destination: Destination,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, Body>,
    ) -> Outcome<Job, Exchange<Asked>> {
        if let Some(ticket) = ticket {
            ticket.end();
        }
        let mut asked = Asked { destination, id: self.ids.number() };
        let Some(application) = self.applications.get(&asked.destination) else {
            // content and applications are replaced together
            self.refuse(502, "There is no such application", reply);
            return Outcome::Replied;
        };
        let application = Arc::clone(application);
        let now_ms = self.now.monotonic_ms;
        let (status, text) = match ask(&application, request, &asked, &self.trusted) {
            Err(unasked) => unasked.told(),
            Ok(ask) => {
                let destination = asked.destination.clone();
                let begin = |pool: &mut _| Exchange::begin(&application, ask, asked, pool, now_ms);
                match self.pools.with(begin) {
                    Ok(exchange) => return Outcome::Relay(Box::new(exchange)),
                    Err(unavailable) => {
                        self.metrics.add(Counter::UpstreamUnavailable, 1);
                        asked = Asked { destination, id: 0 };
                        (503, full(unavailable))
                    }
                }
            }
        };
        match self.refuse_for(&asked.destination, request, status, text, reply) {
            Relayed::Job(job) => Outcome::Job(job),
            _ => Outcome::Replied,
        }
    }

    /// Answers in the place of an application.
    fn refuse_for(
        &mut self,
        destination: &Destination,
        request: &Request<'_>,
        status: u16,
        text: &'static str,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<Job> {
        match self.site.refuse_for(destination, request, status, text, reply) {
            Outcome::Job(work) => Relayed::Job(Job::uncounted(work)),
            _ => Relayed::Own,
        }
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
        work: forebay_site::Job,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, Body>,
    ) -> Outcome<Job, Exchange<Asked>> {
        let (Some(judge), Some(ticket), Kind::Computes) = (&mut self.judge, ticket, work.kind())
        else {
            return Outcome::Job(Job::uncounted(work));
        };
        match judge.needs_worker(ticket) {
            Ok(pass) => Outcome::Job(Job::counted(work, pass)),
            Err(refusal) => {
                self.site.turn_away(refusal, Some(request), reply);
                Outcome::Replied
            }
        }
    }
}

impl Bodies for FastLane {
    #[inline]
    fn piece<'b>(&'b self, body: &'b Body) -> Option<Piece<'b>> {
        self.site.piece(body)
    }

    #[inline]
    fn advance(&self, body: &mut Body, count: u64) {
        self.site.advance(body, count);
    }

    fn read(&self, body: &mut Body, room: &mut [u8]) -> Read {
        self.site.read(body, room)
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

    fn warm(&mut self, body: &Body) -> Option<Job> {
        self.site.warm(body).map(Job::uncounted)
    }
}

impl Journal for FastLane {
    #[inline]
    fn tick(&mut self) -> u64 {
        self.logger.tick()
    }

    #[inline]
    fn line(&mut self, answered: &Answered<'_, Option<Ticket>>) -> Option<Line> {
        let Answered { peer, request, ticket, status, stages } = *answered;
        let ticket = ticket.and_then(Option::as_ref);
        Some(self.begin_line(peer, request, ticket, Some(status), stages))
    }

    fn given_up(&mut self, asked: &GivenUp<'_, Option<Ticket>>) {
        let GivenUp { peer, request, ticket, stages } = *asked;
        let line = self.begin_line(peer, Some(request), ticket.as_ref(), None, stages);
        self.logger.log(line, 0);
    }

    #[inline]
    fn log(&mut self, line: Line, body_bytes: u64) {
        self.logger.log(line, body_bytes);
    }
}

impl FastLane {
    #[inline]
    fn begin_line(
        &mut self,
        peer: &Peer,
        request: Option<&Request<'_>>,
        ticket: Option<&Ticket>,
        status: Option<u16>,
        stages: Stages,
    ) -> Line {
        let client = match request {
            Some(request) => client_of(peer, request.head, &self.trusted),
            None => peer.address().ip(),
        };
        let site = request.and_then(|request| self.site.site_of(request)).map(|site| site as usize);
        let via_proxy = self.trusted.trust(peer);
        let judged = self.judge.as_ref().zip(ticket).map(|(judge, ticket)| judge.judged(ticket));
        let secured = peer.secured.as_deref();
        let user = request.filter(|_| status.is_some()).and_then(|request| self.site.user(request));
        let user = user.as_deref();
        let entry =
            Entry { site, client, user, secured, via_proxy, request, judged, status, stages };
        self.logger.line(&entry)
    }
}

/// Nothing is handed over until there is a general lane.
impl Hooks for FastLane {
    #[inline]
    fn turn(&mut self, now: Now) {
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
