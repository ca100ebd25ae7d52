//! Refusals, and what every answer leaves behind.

use super::{Http1, Owned, State};
use crate::handler::{Answered, Handler, Refusal, Settled, Stages};
use crate::protocol::Protocol;
use crate::reply::Reply;
use crate::request::Request;
use crate::step::{Closing, Context};
use forebay_http::head::Method;
use forebay_metrics::{Counter, Stopwatch};

impl<H: Handler> Http1<H> {
    /// Answers a request that policy does not admit. What is missing of its body is not waited for.
    pub(super) fn refuse_request<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        request: &Request<'_>,
        refusal: Refusal,
        ticket: H::Ticket,
        stages: Stages,
        is_whole: bool,
    ) {
        let keep_alive = is_whole && self.keeps_alive(request.head, cx);
        let mut reply = Reply::new(cx.out, cx.date, keep_alive);
        reply.answers(request.head);
        cx.handler.turn_away(refusal, &mut reply);
        let (status, bytes, keep_alive) = (reply.status, reply.body_bytes, reply.keep_alive);
        self.written(cx, Some(request), Owned::Ticket(ticket), stages, status, bytes);
        self.state = if keep_alive { State::default() } else { State::Last(Closing::Linger) };
    }

    /// The request that is kept may not be enqueued.
    pub(super) fn turn_away_kept<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        refusal: Refusal,
    ) {
        let State::Kept(mut kept) = std::mem::take(&mut self.state) else { return };
        let stages = kept.stages;
        kept.with(cx.peer, cx.path, |request, grant, _| {
            let ticket = std::mem::take(&mut grant.ticket);
            self.refuse_request(cx, request, refusal, ticket, stages, true);
        });
    }

    /// Answers what cannot be served, and ends the connection: what follows cannot be trusted to
    /// be a request.
    #[allow(clippy::too_many_arguments, reason = "what is known of a request that has no type yet")]
    pub(super) fn refuse<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        head_only: bool,
        request: Option<&Request<'_>>,
        owned: Owned<H::Ticket>,
        stages: Stages,
        status: u16,
        reason: &'static str,
    ) {
        let mut reply = Reply::new(cx.out, cx.date, false);
        reply.head_only = head_only;
        cx.handler.refuse(status, reason, &mut reply);
        let (status, bytes) = (reply.status, reply.body_bytes);
        self.written(cx, request, owned, stages, status, bytes);
        self.state = State::Last(Closing::Linger);
    }

    /// As [`refuse`](Http1::refuse), for the request that is kept.
    pub(super) fn refuse_kept<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        status: u16,
        reason: &'static str,
    ) {
        let State::Kept(kept) = std::mem::take(&mut self.state) else { return };
        let head_only = kept.head.method() == Method::Head;
        let owned = Owned::Ticket(kept.grant.ticket);
        self.refuse(cx, head_only, None, owned, kept.stages, status, reason);
    }

    /// An answer is in [`Out`](crate::Out): count it and begin its log line.
    pub(super) fn written<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        request: Option<&Request<'_>>,
        owned: Owned<H::Ticket>,
        stages: Stages,
        status: u16,
        body_bytes: u64,
    ) {
        self.served += 1;
        cx.budget = cx.budget.saturating_sub(1);
        cx.metrics.add(Counter::of_status(status), 1);
        self.sent(cx.handler);
        let (ticket, is_settled) = match owned {
            Owned::Nothing => (None, false),
            Owned::Ticket(ticket) => (Some(ticket), false),
            Owned::Settled(ticket) => (Some(ticket), true),
        };
        let peer = cx.peer;
        let answered = Answered { peer, request, ticket: ticket.as_ref(), status, stages };
        self.sending.line = cx.handler.line(&answered);
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
