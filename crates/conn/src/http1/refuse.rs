//! Refusals: requests that policy does not admit, and what cannot be served.

use super::answer::whole_body;
use super::{BehindRefused, Http1, KeptFor, Owned, RequestState, Unserved, last};
use crate::context::Context;
use crate::handler::{HandlerRoles, Refusal};
use crate::input::Input;
use crate::reply::Reply;
use crate::request::{ArrivalTimes, KeptRequest, Request};
use crate::step::Closing;
use forebay_http::head::Method;
use forebay_metrics::Stopwatch;

impl<H: HandlerRoles> Http1<H> {
    /// Answers a request that policy does not admit. The rest of its body is not waited for.
    pub(super) fn refuse_request<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        request: &Request<'_>,
        refusal: Refusal,
        ticket: H::Ticket,
        stages: ArrivalTimes,
        behind: BehindRefused,
    ) {
        let is_whole = behind != BehindRefused::Rest;
        let keep_alive = is_whole && self.keeps_alive(request.head, cx);
        let mut reply = Reply::new(cx.out, cx.date, keep_alive);
        reply.answers(request.head);
        cx.handler.turn_away(refusal, Some(request), &mut reply);
        let (status, bytes, keep_alive) = (reply.status, reply.body_bytes, reply.keep_alive);
        let owned = Some(Owned::Ticket(ticket));
        self.written(cx, Some(request), owned, None, stages, (status, bytes));
        // lingering costs as much again as the refusal: a client that has said it sends nothing more needs none
        let may_send = behind != BehindRefused::Nothing || request.head.keep_alive;
        self.state = if keep_alive { RequestState::default() } else { last(may_send) };
    }

    /// Refuses a kept request that may not be enqueued.
    pub(super) fn turn_away_kept<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
        refusal: Refusal,
    ) {
        let RequestState::Kept(mut kept) = std::mem::take(&mut self.state) else { return };
        // a body that was to be passed on may still be coming: its bytes must not be taken for a request
        let rest = kept.body.as_ref().map_or(Some(0), |body| whole_body(body, input));
        input.consume(rest.unwrap_or_default());
        let behind = BehindRefused::of(rest.is_some(), !input.is_empty());
        let stages = kept.stages;
        kept.with(cx.peer, cx.path, |request, grant, _| {
            let ticket = std::mem::take(&mut grant.ticket);
            self.refuse_request(cx, request, refusal, ticket, stages, behind);
        });
    }

    /// Answers what cannot be served, and ends the connection: what follows cannot be trusted to
    /// be a request.
    pub(super) fn refuse<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        what: Unserved<'_, H::Ticket>,
        stages: ArrivalTimes,
        status: u16,
        reason: &'static str,
    ) {
        self.refuse_with(cx, what, None, stages, status, reason);
    }

    /// Does what [`refuse`](Http1::refuse) does, with the exchange that was to answer the request.
    fn refuse_with<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        what: Unserved<'_, H::Ticket>,
        relay: Option<&H::Relay>,
        stages: ArrivalTimes,
        status: u16,
        reason: &'static str,
    ) {
        let mut reply = Reply::new(cx.out, cx.date, false);
        let (request, owned) = match what {
            Unserved::Bytes { is_head } => {
                reply.head_only = is_head;
                (None, None)
            }
            Unserved::Request(request, owned) => {
                reply.head_only = request.head.method == Method::Head;
                (Some(request), Some(owned))
            }
        };
        cx.handler.refuse(status, reason, &mut reply);
        let (status, bytes) = (reply.status, reply.body_bytes);
        self.written(cx, request, owned, relay, stages, (status, bytes));
        self.state = RequestState::Last(Closing::Linger);
    }

    /// Does what [`refuse`](Http1::refuse) does, for a request that was kept.
    pub(super) fn refuse_kept<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        kept: &mut KeptRequest<H::Ticket, KeptFor<H>>,
        owned: impl FnOnce(H::Ticket) -> Owned<H::Ticket>,
        status: u16,
        reason: &'static str,
    ) {
        let stages = kept.stages;
        kept.with(cx.peer, cx.path, |request, grant, stage| {
            let owned = owned(std::mem::take(&mut grant.ticket));
            let relay = match stage {
                KeptFor::Relay(relaying) => Some(relaying.relay()),
                _ => None,
            };
            let what = Unserved::Request(request, owned);
            self.refuse_with(cx, what, relay, stages, status, reason);
        });
    }
}
