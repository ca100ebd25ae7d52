//! What follows every answer: it is counted, and its log line is begun, and written when it has been
//! sent.

use super::{Http1, Owned};
use crate::context::Context;
use crate::handler::{Answered, HandlerRoles, Settled};
use crate::protocol::Protocol;
use crate::request::{ArrivalTimes, Request};
use forebay_metrics::{Counter, Stopwatch};

impl<H: HandlerRoles> Http1<H> {
    /// Counts an answer that is in [`Out`](crate::Out), and begins its log line.
    pub(super) fn written<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        request: Option<&Request<'_>>,
        owned: Option<Owned<H::Ticket>>,
        relay: Option<&H::Relay>,
        stages: ArrivalTimes,
        (status, body_bytes): (u16, u64),
    ) {
        self.served += 1;
        cx.budget = cx.budget.saturating_sub(1);
        if !self.passes {
            cx.metrics.add(Counter::of_status(status), 1);
        }
        self.sent(cx.handler);
        let (ticket, is_settled) = match owned {
            None => (None, false),
            Some(Owned::Ticket(ticket)) => (Some(ticket), false),
            Some(Owned::Settled(ticket)) => (Some(ticket), true),
        };
        let peer = cx.peer;
        let answered = Answered { peer, request, ticket: ticket.as_ref(), status, stages };
        self.sending.line = match relay {
            Some(relay) => cx.handler.relayed_line(&answered, relay),
            None => cx.handler.line(&answered),
        };
        self.sending.ticket = if is_settled { None } else { ticket };
        self.sending.body_sent_bytes = if cx.out.body.is_some() { 0 } else { body_bytes };
    }

    #[inline]
    pub(super) fn end(&mut self, handler: &mut H, end: Settled) {
        if let Some(line) = self.sending.line.take() {
            handler.log(line, self.sending.body_sent_bytes);
        }
        if let Some(mut ticket) = self.sending.ticket.take() {
            handler.settle(&mut ticket, end);
        }
    }
}
