//! The role that knows where the bytes of an answer are.

use super::RequestHandler;
use crate::job::ServerJob;
use forebay_conn::handler::body::BodyRead;
use forebay_conn::{Bodies, Piece};
use forebay_site::Body;

impl Bodies for RequestHandler {
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
