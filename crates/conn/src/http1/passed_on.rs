//! A connection whose bytes are passed on as they are. The server makes up a request for a tunnel, which
//! stands for the connection: like other requests, it is judged, waits for its turn, is sent to one of
//! several servers, and is logged. Then the connection is a tunnel like that of a WebSocket, without an
//! answer before it.

use super::{Http1, RequestState};
use crate::context::Context;
use crate::handler::{HandlerRoles, Settled};
use crate::input::Input;
use crate::step::{Closing, Step};
use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
use forebay_metrics::Stopwatch;

impl<H: HandlerRoles> Http1<H> {
    /// A connection whose bytes are passed on to the server that this name, or address, and port stand
    /// for.
    pub(crate) fn passed_on(name: &str, port: u16) -> Http1<H> {
        let head = format!("CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n");
        let state = RequestState::PassesOn(head.into_bytes().into());
        Http1 { state, passes: true, ..Http1::default() }
    }

    /// Has the request that stands for the connection judged, and its server chosen.
    pub(super) fn ask_to_pass_on<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
    ) -> Option<Step<H::Job>> {
        let RequestState::PassesOn(text) = std::mem::take(&mut self.state) else { return None };
        let mut lines = Lines::new();
        match &Head::parse(&text, &mut lines, &HeadLimits::default()) {
            Ok(ParsedHead::Complete(head)) => {
                let mut input = Input::with_capacity(text.len());
                input.fill(&text);
                self.complete(cx, head, &input, 0);
            }
            // the name cannot stand in a request
            Ok(ParsedHead::Partial) | Err(_) => self.state = RequestState::Last(Closing::Reset),
        }
        None
    }

    /// Drops the answer to the made-up request, which the client has not sent. A request that is answered
    /// so ends the connection.
    pub(super) fn say_nothing<S>(&mut self, cx: &mut Context<'_, H, S>) {
        cx.out.clear();
        if let RequestState::Head(_) | RequestState::Last(_) = self.state {
            self.sending.body_sent_bytes = 0;
            self.end(cx.handler, Settled::Answered);
            self.sending.request = None;
            self.state = RequestState::Last(Closing::Reset);
        }
    }
}
