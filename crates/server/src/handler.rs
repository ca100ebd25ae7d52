//! The handler of the fast lane, in its five roles: who is served, what the answer is, where its bytes
//! are, what is logged, and what else happens on a loop.

use crate::certificates::Certificates;
use crate::client::{TrustedProxies, client_of};
use crate::job::{Done, Job};
use crate::listen::TLS;
use crate::live::{Arrangement, Live};
use crate::log::{Entry, Line, Logger};
use crate::policy::{Entrance, Judge, Ticket};
use forebay_conn::handler::body::Read;
use forebay_conn::{
    Admission, Admitted, Answered, Bodies, GivenUp, Handler, Hooks, Http, Job as _, Journal, Kind,
    Limits, Listening, Now, Outcome, Parts, Peer, Piece, Process, Rank, Refusal, Reply, Request,
    Settled, Stages, Verdict,
};
use forebay_control::versioned::Reader;
use forebay_metrics::Local;
use forebay_site::{Body, Site, host_of};
use forebay_sys::clock;
use forebay_tls::Channel;
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
        now: Now,
    ) -> FastLane {
        let (live, arrangement) = live.reader();
        let site = Site::new(Arc::clone(&arrangement.content), Arc::clone(&metrics), now, paths);
        let logger = arrangement.logs.logger(Arc::clone(&metrics));
        let trusted = Arc::clone(&arrangement.trusted);
        let certificates = Arc::clone(&arrangement.certificates);
        let judge = Judge::new(&arrangement.policy, &metrics, entrance);
        FastLane { live, site, logger, trusted, certificates, judge, entrance, metrics, paths, now }
    }

    /// Takes over another arrangement. Nothing that is still being sent depends on the one before:
    /// bodies that outlive a turn are [held](Bodies::hold). Where the content stays, so does what this
    /// loop or thread knows of it: paths and credentials.
    #[cold]
    fn take_over(&mut self, arrangement: &Arrangement) {
        if !self.site.serves(&arrangement.content) {
            let (content, metrics) = (Arc::clone(&arrangement.content), Arc::clone(&self.metrics));
            self.site = Site::new(content, metrics, self.now, self.paths);
        }
        self.logger.update(&arrangement.logs);
        self.trusted = Arc::clone(&arrangement.trusted);
        self.certificates = Arc::clone(&arrangement.certificates);
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
    type Line = Line;
    /// `None` where there is no policy.
    type Ticket = Option<Ticket>;
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
    fn verdict(&mut self, request: &Request<'_>) -> Verdict<Option<Ticket>> {
        self.keep_up();
        match &mut self.judge {
            None => Verdict::Admit(Admitted::at_once(Rank::FIRST, None)),
            Some(judge) => judge.request(request, &self.trusted, clock::monotonic_ns()),
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
    #[inline]
    fn process(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        done: Option<Done>,
        reply: &mut Reply<'_, Body>,
    ) -> Outcome<Job> {
        if let Some(ticket) = ticket {
            ticket.begin();
        }
        if let Some(secured) = &request.peer.secured
            && self.certificates.identities.is_misdirected(secured, host_of(request.head.authority))
        {
            if let Some(ticket) = ticket {
                ticket.end();
            }
            self.refuse(421, "This connection is for another host; open one for this", reply);
            return Outcome::Replied;
        }
        let FastLane { site, trusted, .. } = self;
        let client = || client_of(request.peer, request.head, trusted);
        match site.process(request, client, done.and_then(Done::of_site), reply) {
            Outcome::Replied => {
                if let Some(ticket) = ticket {
                    ticket.end();
                }
                Outcome::Replied
            }
            Outcome::HandOver => Outcome::HandOver,
            Outcome::Job(work) => self.needs_worker(work, ticket, reply),
        }
    }

    fn refuse(&mut self, status: u16, reason: &'static str, reply: &mut Reply<'_, Body>) {
        self.site.refuse(status, reason, reply);
    }

    fn turn_away(&mut self, refusal: Refusal, reply: &mut Reply<'_, Body>) {
        self.site.turn_away(refusal, reply);
    }
}

impl FastLane {
    /// A request cannot be answered without a worker: it gets one, unless its class has had enough.
    fn needs_worker(
        &mut self,
        work: forebay_site::Job,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, Body>,
    ) -> Outcome<Job> {
        let (Some(judge), Some(ticket), Kind::Computes) = (&mut self.judge, ticket, work.kind())
        else {
            return Outcome::Job(Job::uncounted(work));
        };
        match judge.needs_worker(ticket) {
            Ok(pass) => Outcome::Job(Job::counted(work, pass)),
            Err(refusal) => {
                self.site.turn_away(refusal, reply);
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
    }

    fn pause(&mut self) -> Option<Duration> {
        self.judge.as_mut().and_then(|judge| judge.pause(self.now.monotonic_ms))
    }

    fn rest(&mut self) {
        self.site.rest();
        self.logger.flush();
    }
}
