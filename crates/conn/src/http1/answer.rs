//! Decision, order, process: what answers a request, when, and with what.

use super::receive::{ask_for_body, discarding};
use super::relay::{Http1Relaying, passing};
use super::{AnswerOutcome, Http1, KeptFor, Owned, RequestState, last, may_be_outdated};
use crate::context::Context;
use crate::handler::{BodyDecision, HandlerRoles, Job, ProcessOutcome, Relay};
use crate::input::Input;
use crate::reply::Reply;
use crate::request::{ArrivalTimes, Request};
use crate::step::{Closing, RequestEvent, Step};
use forebay_http::body::BodyDecoder;
use forebay_http::framing::Framing;
use forebay_http::head::Head;
use forebay_metrics::{Activity, Stopwatch};

impl<H: HandlerRoles> Http1<H> {
    /// Continues with the request that is kept, if that is possible.
    pub(super) fn go_on<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Option<Step<H::Job>> {
        let is_answered = self.is_answered(cx);
        let RequestState::Kept(kept) = &mut self.state else { return None };
        let id = kept.id;
        match &mut kept.stage {
            KeptFor::Body(_) => return self.discard(cx, input),
            KeptFor::Relay(_) => return self.relay(cx, input),
            KeptFor::Deciding(None) => match cx.event.take() {
                Some(RequestEvent::Done(of, done)) if of == id => self.decide(cx, input, done),
                Some(RequestEvent::Failed(of)) if of == id => {
                    return Some(Step::Close(Closing::Reset));
                }
                _ => return Some(Step::Wait),
            },
            KeptFor::Job(None) => match cx.event.take() {
                Some(RequestEvent::Done(of, done)) if of == id => {
                    self.answer_kept(cx, input, Some(done))
                }
                Some(RequestEvent::Failed(of)) if of == id => {
                    return Some(Step::Close(Closing::Reset));
                }
                _ => return Some(Step::Wait),
            },
            KeptFor::Early(wait_ms) => match cx.event.take() {
                Some(RequestEvent::Due(of)) if of == id => kept.stage = KeptFor::Whole,
                _ => return Some(Step::NotBefore(id, *wait_ms)),
            },
            // earlier answers are sent before anything that may take long
            _ if !cx.out.is_empty() => return Some(Step::Send),
            KeptFor::Whole => match cx.handler.enqueue(&mut kept.grant.ticket) {
                Ok(()) => kept.stage = KeptFor::Ready,
                Err(refusal) => self.turn_away_kept(cx, input, refusal),
            },
            KeptFor::Deciding(job) | KeptFor::Job(job) => return Some(Step::Job(id, job.take()?)),
            KeptFor::Ready if is_answered => {
                cx.event = None;
                self.answer_kept(cx, input, None);
            }
            KeptFor::Ready => return Some(Step::Enqueue(id)),
            KeptFor::HandOver => return Some(Step::HandOver),
        }
        None
    }

    /// Continues with a kept request when its job is done and the handler can decide what answers it.
    pub(super) fn decide<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &Input,
        done: <H::Job as Job>::Done,
    ) {
        let RequestState::Kept(mut kept) = std::mem::take(&mut self.state) else { return };
        let (framing, handler) = (kept.head.framing(), &mut *cx.handler);
        let decision = kept.with(cx.peer, cx.path, |request, grant, _| {
            handler.decide(request, &mut grant.ticket, Some(done))
        });
        kept.stage = match decision {
            BodyDecision::Job(job) => KeptFor::Deciding(Some(job)),
            BodyDecision::HandOver => KeptFor::HandOver,
            BodyDecision::Stream(most) => match passing(framing, most, &cx.limits.head) {
                Ok(body) => {
                    kept.body = Some(body);
                    match kept.grant.wait_ms {
                        0 => KeptFor::Whole,
                        wait_ms => KeptFor::Early(wait_ms),
                    }
                }
                Err(error) => {
                    let (status, reason) = (error.status(), error.reason());
                    return self.refuse_kept(cx, &mut kept, Owned::Ticket, status, reason);
                }
            },
            BodyDecision::Here => match discarding(cx, framing) {
                Ok(decoder) => {
                    ask_for_body(cx, &kept.head.view(), !input.is_empty());
                    KeptFor::Body(decoder)
                }
                Err(error) => {
                    let (status, reason) = (error.status(), error.reason());
                    return self.refuse_kept(cx, &mut kept, Owned::Ticket, status, reason);
                }
            },
        };
        self.state = RequestState::Kept(kept);
    }

    /// Whether requests of this rank are answered in this turn. Requests for another process are answered
    /// at once.
    #[inline]
    pub(super) fn is_answered<S>(&self, cx: &Context<'_, H, S>) -> bool {
        self.hands_over || cx.answers.is_some_and(|last| self.rank <= last)
    }

    /// Processes a request that was kept.
    pub(super) fn answer_kept<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
        done: Option<<H::Job as Job>::Done>,
    ) {
        let RequestState::Kept(mut kept) = std::mem::take(&mut self.state) else { return };
        let stages = kept.stages;
        // the body was read and discarded: another server or process would wait for it in vain
        let is_gone = kept.body.is_none() && kept.head.framing() != Framing::None;
        let rest = kept.body.as_ref().map_or(Some(0), |body| whole_body(body, input));
        let answer = kept.with(cx.peer, cx.path, |request, grant, _| {
            self.answer(cx, request, &mut grant.ticket, done, stages, rest.is_some())
        });
        kept.stage = match answer {
            AnswerOutcome::Next | AnswerOutcome::Last => {
                // the body is not needed; but if this answer is withdrawn, the rest must still count as
                // to come
                if let Some(rest) = rest {
                    input.consume(rest);
                    kept.body = None;
                }
                if let AnswerOutcome::Last = answer {
                    self.state = last(rest.is_none() || !input.is_empty());
                }
                if may_be_outdated(cx) {
                    kept.stage = KeptFor::Ready;
                    self.sending.request = Some(kept);
                }
                return;
            }
            AnswerOutcome::Job(job) => KeptFor::Job(Some(job)),
            AnswerOutcome::HandOver if is_gone => {
                let reason = "the request cannot be handed over any more";
                return self.refuse_kept(cx, &mut kept, Owned::Ticket, 500, reason);
            }
            AnswerOutcome::Relay(relay) if is_gone && relay.takes_body() => {
                let reason = "the request cannot be passed on any more";
                return self.refuse_kept(cx, &mut kept, Owned::Ticket, 500, reason);
            }
            AnswerOutcome::HandOver => KeptFor::HandOver,
            AnswerOutcome::Relay(relay) => {
                KeptFor::Relay(Box::new(Http1Relaying::new(relay, kept.body.take())))
            }
        };
        self.state = RequestState::Kept(kept);
    }

    /// Processes an admitted request. `is_whole` says that nothing of its body is still to come.
    pub(super) fn answer<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        request: &Request<'_>,
        ticket: &mut H::Ticket,
        done: Option<<H::Job as Job>::Done>,
        stages: ArrivalTimes,
        is_whole: bool,
    ) -> AnswerOutcome<H> {
        let keeps_alive = is_whole && self.keeps_alive(request.head, cx);
        let mut reply = Reply::new(cx.out, cx.date, keeps_alive);
        reply.answers(request.head);
        reply.timeout_s = cx.announce.of(self.rank);
        match cx.handler.process(request, ticket, done, &mut reply) {
            ProcessOutcome::Replied => {}
            ProcessOutcome::Job(job) => return AnswerOutcome::Job(job),
            ProcessOutcome::HandOver => return AnswerOutcome::HandOver,
            ProcessOutcome::Relay(mut relay) => {
                cx.handler.begin_exchange(&mut relay);
                return AnswerOutcome::Relay(relay);
            }
        }
        cx.watch.lap(Activity::Process);
        let (status, bytes, keep_alive) = (reply.status, reply.body_bytes, reply.keep_alive);
        let owned = Some(Owned::Ticket(std::mem::take(ticket)));
        self.written(cx, Some(request), owned, None, stages, (status, bytes));
        self.announced_s = cx.announce.of(self.rank);
        if keep_alive { AnswerOutcome::Next } else { AnswerOutcome::Last }
    }

    /// Whether the connection may stay open after the answer to this request.
    pub(super) fn keeps_alive<S>(&self, head: &Head<'_>, cx: &Context<'_, H, S>) -> bool {
        head.keep_alive
            && !cx.draining
            && !self.input_ended
            && !self.is_last
            && self.served + 1 < cx.limits.requests
    }
}

/// How many bytes of the input belong to this body; `None` unless all of it is there.
pub(super) fn whole_body(body: &BodyDecoder, input: &Input) -> Option<usize> {
    let mut body = body.clone();
    body.skip(input.bytes()).ok().filter(|_| body.is_done())
}
