//! A handler with its request, and what becomes of it when it ends.

use super::request::InsideRequest;
use super::response::InsideResponse;
use super::{InsideCode, RequestCode};
use forebay_sys::stderr::say;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A handler with its request, ready to run. One that is dropped unrun has failed.
pub(super) struct HandlerRun {
    code: InsideCode,
    ends: Option<(InsideRequest, InsideResponse)>,
}

impl HandlerRun {
    pub(super) fn new(
        code: InsideCode,
        request: InsideRequest,
        response: InsideResponse,
    ) -> HandlerRun {
        HandlerRun { code, ends: Some((request, response)) }
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.code.name)
    }

    /// Whether its client has left.
    pub(super) fn is_left(&self) -> bool {
        self.ends.as_ref().is_some_and(|(request, _)| request.is_left())
    }

    /// Runs it to its end. A panic ends the request alone.
    pub(super) fn run(mut self) {
        let Some((mut request, mut response)) = self.ends.take() else { return };
        if request.is_left() {
            return;
        }
        let code: &dyn RequestCode = &*self.code.code;
        let answer = AssertUnwindSafe(|| code.answer(&mut request, &mut response));
        // what a panic has left is dropped last: it may panic as well
        let (returned, _panic) = match catch_unwind(answer) {
            Ok(returned) => (Some(returned), None),
            Err(panic) => (None, Some(panic)),
        };
        // one whose client has left has failed because of that; one that answers may lose its client by it
        let (was_left, was_good) = (request.is_left(), matches!(returned, Some(Ok(()))));
        let name = &self.code.name;
        match response.end(returned) {
            Some(Ok(())) => {}
            Some(Err(_)) if was_left || (was_good && request.is_left()) => {}
            Some(Err(error)) => say(format_args!("the handler {name} has failed: {error}")),
            None => say(format_args!("the handler {name} has panicked")),
        }
    }
}

impl Drop for HandlerRun {
    fn drop(&mut self) {
        if let Some((_, response)) = self.ends.take() {
            response.end(Some(Err("it was not begun".into())));
        }
    }
}
