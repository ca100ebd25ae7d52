//! The handler of the fast lane: static content, and the access log of what was answered.

use crate::client::{TrustedProxies, client_of};
use crate::live::{Arrangement, Live};
use crate::log::{Entry, Line, Logger};
use crate::policy::{Entrance, Judge, Pass, Ticket};
use forebay_conn::{
    Admitted, Handler, Job, Kind, Now, Outcome, Peer, Piece, Rank, Refusal, Reply, Request,
    Settled, Stages, Verdict,
};
use forebay_control::versioned::Reader;
use forebay_metrics::{Local, Stopwatch};
use forebay_site::Site;
use forebay_sys::clock;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// What one loop or thread serves.
pub struct FastLane {
    /// The arrangement in force; the fields below are made from it.
    live: Reader<Arc<Arrangement>>,
    site: Site,
    logger: Logger,
    trusted: Arc<TrustedProxies>,
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
        let judge = Judge::new(&arrangement.policy, &metrics, entrance);
        FastLane { live, site, logger, trusted, judge, entrance, metrics, paths, now }
    }

    /// Takes over another arrangement. Nothing that is still being sent depends on the one before:
    /// bodies that outlive a turn are [held](Handler::hold). Where the content stays, so does what this
    /// loop or thread knows of it: paths and credentials.
    #[cold]
    fn take_over(&mut self, arrangement: &Arrangement) {
        if !self.site.serves(&arrangement.content) {
            let (content, metrics) = (Arc::clone(&arrangement.content), Arc::clone(&self.metrics));
            self.site = Site::new(content, metrics, self.now, self.paths);
        }
        self.logger.update(&arrangement.logs);
        self.trusted = Arc::clone(&arrangement.trusted);
        self.judge = Judge::new(&arrangement.policy, &self.metrics, self.entrance);
    }

    /// A request cannot be answered without a worker: it gets one, unless its class has had enough.
    fn needs_worker(
        &mut self,
        job: forebay_site::Job,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, forebay_site::Body>,
    ) -> Outcome<Errand> {
        let (Some(judge), Some(ticket), Kind::Computes) = (&mut self.judge, ticket, job.kind())
        else {
            return Outcome::Job(Errand { job, pass: None });
        };
        match judge.needs_worker(ticket) {
            Ok(pass) => Outcome::Job(Errand { job, pass }),
            Err(refusal) => {
                self.site.turn_away(refusal, reply);
                Outcome::Replied
            }
        }
    }

    #[inline]
    fn keep_up(&mut self) {
        if let Some(arrangement) = self.live.newer() {
            self.take_over(&arrangement);
        }
    }
}

/// A job of the site, with its request's place among the unfinished work of its class.
pub struct Errand {
    job: forebay_site::Job,
    pass: Option<Pass>,
}

impl Job for Errand {
    type Done = forebay_site::Done;

    fn run(self, metrics: &Local, watch: &mut dyn Stopwatch) -> forebay_site::Done {
        let Errand { job, pass } = self;
        match pass {
            None => job.run(metrics, watch),
            Some(pass) => pass.run(|| job.run(metrics, watch)),
        }
    }

    fn lane(&self) -> u64 {
        self.job.lane()
    }

    fn kind(&self) -> Kind {
        self.job.kind()
    }
}

impl Handler for FastLane {
    type Body = forebay_site::Body;
    type Job = Errand;
    type Line = Line;
    /// `None` where there is no policy.
    type Ticket = Option<Ticket>;

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
    fn line_up(&mut self, ticket: &mut Option<Ticket>) -> Result<(), Refusal> {
        match (&mut self.judge, ticket) {
            (Some(judge), Some(ticket)) => judge.line_up(ticket),
            _ => Ok(()),
        }
    }

    #[inline]
    fn settle(&mut self, ticket: Option<Ticket>, end: Settled) {
        let Some(ticket) = ticket else { return };
        if let (Settled::Expired, Some(judge)) = (end, &mut self.judge) {
            judge.expired(&ticket);
        }
        ticket.settle(end, &self.metrics);
    }

    #[inline]
    fn process(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        done: Option<forebay_site::Done>,
        reply: &mut Reply<'_, Self::Body>,
    ) -> Outcome<Errand> {
        let FastLane { site, trusted, .. } = self;
        if let Some(ticket) = ticket {
            ticket.begin();
        }
        let client = || client_of(request.peer, request.head, trusted);
        match site.process(request, client, done, reply) {
            Outcome::Replied => {
                if let Some(ticket) = ticket {
                    ticket.end();
                }
                Outcome::Replied
            }
            Outcome::HandOver => Outcome::HandOver,
            Outcome::Job(job) => self.needs_worker(job, ticket, reply),
        }
    }

    fn refuse(&mut self, status: u16, reason: &'static str, reply: &mut Reply<'_, Self::Body>) {
        self.site.refuse(status, reason, reply);
    }

    fn turn_away(&mut self, refusal: Refusal, reply: &mut Reply<'_, Self::Body>) {
        self.site.turn_away(refusal, reply);
    }

    #[inline]
    fn piece<'b>(&'b self, body: &'b Self::Body) -> Option<Piece<'b>> {
        self.site.piece(body)
    }

    #[inline]
    fn advance(&self, body: &mut Self::Body, count: u64) {
        self.site.advance(body, count);
    }

    fn is_intact(&self, body: &Self::Body) -> bool {
        self.site.is_intact(body)
    }

    fn hold(&mut self, body: &mut Self::Body) {
        self.site.hold(body);
    }

    fn warm_bytes(&self, body: &Self::Body) -> u64 {
        self.site.warm_bytes(body)
    }

    fn warm(&mut self, body: &Self::Body) -> Errand {
        Errand { job: self.site.warm(body), pass: None }
    }

    #[inline]
    fn tick(&mut self) -> u64 {
        self.logger.tick()
    }

    #[inline]
    fn line(
        &mut self,
        peer: &Peer,
        request: Option<&Request<'_>>,
        ticket: Option<&Option<Ticket>>,
        status: u16,
        stages: Stages,
    ) -> Option<Line> {
        let client = match request {
            Some(request) => client_of(peer, request.head, &self.trusted),
            None => peer.address().ip(),
        };
        let site = request.and_then(|request| self.site.site_of(request)).map(|site| site as usize);
        let via_proxy = self.trusted.trust(peer);
        let ticket = ticket.and_then(Option::as_ref);
        let judged = self.judge.as_mut().and_then(|judge| judge.judged(ticket));
        let entry = Entry { site, client, via_proxy, request, judged, status, stages };
        Some(self.logger.line(&entry))
    }

    #[inline]
    fn log(&mut self, line: Line, body_bytes: u64) {
        self.logger.log(line, body_bytes);
    }

    /// Nothing is handed over until there is a general lane; closing is all that can be done.
    fn hand_over(&mut self, socket: OwnedFd, _: Vec<u8>, _: &Peer) {
        drop(socket);
    }

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
