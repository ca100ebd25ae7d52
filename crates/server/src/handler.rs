//! The handler of the fast lane: static content, and the access log of what was answered.

use crate::log::{Line, Logger};
use forebay_conn::{Handler, Job, Now, Outcome, Peer, Piece, Reply, Request};
use forebay_site::Site;
use std::os::fd::OwnedFd;

/// What one loop serves.
pub struct FastLane {
    site: Site,
    logger: Logger,
}

impl FastLane {
    /// Serves `site` and logs to `logger`.
    pub fn new(site: Site, logger: Logger) -> FastLane {
        FastLane { site, logger }
    }
}

impl Handler for FastLane {
    type Body = forebay_site::Body;
    type Job = forebay_site::Job;
    type Line = Line;

    #[inline]
    fn process(
        &mut self,
        request: &Request<'_>,
        done: Option<<Self::Job as Job>::Done>,
        reply: &mut Reply<'_, Self::Body>,
    ) -> Outcome<Self::Job> {
        self.site.process(request, done, reply)
    }

    fn refuse(&mut self, status: u16, reason: &'static str, reply: &mut Reply<'_, Self::Body>) {
        self.site.refuse(status, reason, reply);
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

    fn warm(&mut self, body: &Self::Body) -> Self::Job {
        self.site.warm(body)
    }

    #[inline]
    fn line(&mut self, peer: &Peer, request: Option<&Request<'_>>, status: u16) -> Option<Line> {
        self.logger.line(peer, request, status)
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
        self.site.turn(now);
        self.logger.turn(now.unix_ms);
    }

    fn rest(&mut self) {
        self.site.rest();
        self.logger.flush();
    }
}
