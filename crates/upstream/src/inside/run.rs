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

    /// Runs it to its end. A panic ends the request alone.
    pub(super) fn run(mut self) {
        let Some((mut request, mut response)) = self.ends.take() else { return };
        if request.is_left() {
            return;
        }
        let code: &dyn RequestCode = &*self.code.code;
        let answer = AssertUnwindSafe(|| code.answer(&mut request, &mut response));
        let returned = catch_unwind(answer).ok();
        let returned = response.end(returned);
        if let Some(Err(error)) = returned
            && !request.is_left()
        {
            say(format_args!("the handler {} has failed: {error}", self.code.name));
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
