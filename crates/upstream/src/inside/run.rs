//! A handler with its request, and what becomes of it when it ends.

use super::request::{InsideRequest, is_body_too_large};
use super::response::InsideResponse;
use super::taken::{DetachedRun, HandlerPlace};
use super::{DetachedCode, HandlerCode, InsideCode};
use forebay_sys::stderr::say;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A handler with its request, ready to run. If it is dropped before it has run, it has failed, as
/// its response has.
pub(super) struct HandlerRun {
    code: InsideCode,
    request: InsideRequest,
    response: InsideResponse,
}

impl HandlerRun {
    pub(super) fn new(
        code: InsideCode,
        request: InsideRequest,
        response: InsideResponse,
    ) -> HandlerRun {
        HandlerRun { code, request, response }
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.code.name)
    }

    /// Whether the client has left.
    pub(super) fn is_left(&self) -> bool {
        self.request.is_left()
    }

    /// Whether the request is for a detached handler, to be [given away](HandlerRun::give_away).
    pub(super) fn is_detached(&self) -> bool {
        matches!(self.code.code, HandlerCode::Detached(_))
    }

    /// Gives the request to a detached handler, with its place. A panic ends only the request.
    pub(super) fn give_away(self, place: HandlerPlace) {
        let HandlerRun { code: InsideCode { name, code, .. }, request, mut response } = self;
        let HandlerCode::Detached(code) = code else { return };
        response.keep(DetachedRun::new(name, place));
        let code: &dyn DetachedCode = &*code;
        // the panic drops the response, whose destructor reports it
        let _ = catch_unwind(AssertUnwindSafe(|| code.take(request, response)));
    }

    /// Runs the handler to its end. A panic ends only the request.
    pub(super) fn run(self) {
        let HandlerRun { code: InsideCode { name, code, .. }, mut request, mut response } = self;
        let HandlerCode::Waits(code) = code else { return };
        if request.is_left() {
            return;
        }
        let answer = AssertUnwindSafe(|| code.answer(&mut request, &mut response));
        // the panic's payload is dropped last: dropping it may panic as well
        let (returned, _panic) = match catch_unwind(answer) {
            Ok(returned) => (Some(returned), None),
            Err(panic) => (None, Some(panic)),
        };
        // a handler whose client has left fails because of that; a handler that answers may lose its
        // client while it does
        let (was_left, was_good) = (request.is_left(), matches!(returned, Some(Ok(()))));
        match response.end(returned) {
            Some(Ok(())) => {}
            Some(Err(_)) if was_left || (was_good && request.is_left()) => {}
            // this is the client's fault, and the client gets a status for it
            Some(Err(error)) if is_body_too_large(&*error) => {}
            Some(Err(error)) => say(format_args!("the handler {name} has failed: {error}")),
            None => say(format_args!("the handler {name} has panicked")),
        }
    }
}
