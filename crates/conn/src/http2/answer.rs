//! Process: how a request is answered, how its answer becomes frames, and refusals.

use super::send::Sending;
use super::{DoneOf, Http2, KeptFor, Leaving, Live, LiveState, MOST_ATTEMPTS, TOO_LARGE};
use crate::context::Context;
use crate::handler::{
    Answered, HandlerRoles, HandlerTypes, Job, Piece, ProcessOutcome, Refusal, Relay, Settled,
};
use crate::reply::Reply;
use crate::request::{ArrivalTimes, Grant, KeptRequest, Request, RequestId};
use forebay_http::framing::Framing;
use forebay_http2::frame::HEADER_BYTES;
use forebay_http2::{ErrorCode, MessagePart};
use forebay_metrics::{Activity, Counter, Stopwatch};

/// How an attempt to answer ended.
enum AnswerOutcome<H: HandlerTypes> {
    /// The answer stands in [`Out`](crate::Out), without the headers of its frames.
    Written(AnswerSpan),
    Job(H::Job),
    /// This job must be done first; then the request is processed anew.
    Again(H::Job),
    HandOver,
    Relay(H::Relay),
}

/// An answer without its frames' headers: where it stands in [`Out`](crate::Out).
#[derive(Clone, Copy)]
pub(super) struct AnswerSpan {
    start: usize,
    /// Where its head ends.
    pub(super) head_end: usize,
    pub(super) status: u16,
    /// Bytes of its body: those that were copied, and those left behind for the engine.
    body_bytes: u64,
}

impl AnswerSpan {
    pub(super) fn of<B>(start: usize, reply: &Reply<'_, B>) -> AnswerSpan {
        let (status, body_bytes) = (reply.status(), reply.body_bytes());
        AnswerSpan { start, head_end: reply.head_end, status, body_bytes }
    }
}

/// A request that is being answered.
pub(super) struct RequestUnderWay<'r, T> {
    stream: u32,
    /// Whether more of its body may come.
    is_open: bool,
    /// `None` if no head could be read.
    request: Option<&'r Request<'r>>,
    stages: ArrivalTimes,
    grant: Option<Grant<T>>,
    /// Whether its ticket was settled before.
    is_settled: bool,
}

impl<'r, T> RequestUnderWay<'r, T> {
    pub(super) fn new(
        stream: u32,
        is_open: bool,
        request: &'r Request<'r>,
        stages: ArrivalTimes,
        grant: Grant<T>,
    ) -> RequestUnderWay<'r, T> {
        let (request, grant) = (Some(request), Some(grant));
        RequestUnderWay { stream, is_open, request, stages, grant, is_settled: false }
    }
}

impl<H: HandlerRoles> Http2<H> {
    /// Processes a request that has just come.
    pub(super) fn answer<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        mut asked: RequestUnderWay<'_, H::Ticket>,
    ) {
        let (Some(request), Some(grant)) = (asked.request, &mut asked.grant) else { return };
        let mut relayed = None;
        let stage = match process(cx, request, &mut grant.ticket, None, 0) {
            AnswerOutcome::Written(page) => return self.respond(cx, asked, page, None),
            AnswerOutcome::Job(job) => KeptFor::Job(Some(Box::new(job))),
            AnswerOutcome::Again(job) => KeptFor::Again(Some(Box::new(job))),
            AnswerOutcome::HandOver => {
                let ticket = std::mem::take(&mut grant.ticket);
                return self.hand_back(cx, asked.stream, ticket);
            }
            AnswerOutcome::Relay(relay) => {
                relayed = Some(relay);
                KeptFor::Ready
            }
        };
        let RequestUnderWay { stream, is_open, stages, grant: Some(grant), .. } = asked else {
            return;
        };
        let is_left =
            |relay: &mut Option<H::Relay>| relay.as_mut().is_some_and(|relay| relay.acknowledge());
        if cx.handler.acknowledges(request.head) && !is_left(&mut relayed) {
            self.acknowledge(cx, stream);
        }
        let mut kept = KeptRequest::keep(RequestId(stream), request, b"", grant, stages, stage);
        kept.withdrawn = u8::from(matches!(kept.stage, KeptFor::Again(_)));
        let phase = LiveState::Asked(Box::new(kept));
        self.live.insert(stream, Live { is_open, phase, upload: None });
        match relayed {
            Some(relay) => self.begin_relay(stream, relay),
            None => self.asking.push_back(stream),
        }
    }

    /// Processes a request that was kept.
    pub(super) fn answer_kept<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        stream: u32,
        done: Option<DoneOf<H>>,
    ) {
        let Some(live) = self.live.get_mut(stream) else { return };
        let has_upload = live.upload.is_some();
        let Some(kept) = live.kept() else { return };
        // the body was read and discarded: another server or process would wait for it in vain
        let has_body = !matches!(kept.head.framing(), Framing::None | Framing::Sized(0));
        let is_gone = has_body && !has_upload;
        let attempts = kept.withdrawn;
        let answer = kept.with(cx.peer, cx.path, |request, grant, _| {
            process(cx, request, &mut grant.ticket, done, attempts)
        });
        kept.stage = match answer {
            AnswerOutcome::Written(page) => return self.respond_kept(cx, stream, page, false),
            AnswerOutcome::HandOver => {
                return self.reset(cx.handler, cx.peer, stream, ErrorCode::HTTP_1_1_REQUIRED);
            }
            AnswerOutcome::Relay(relay) if is_gone && relay.takes_body() => {
                let reason = "the request cannot be passed on any more";
                return self.refuse_kept(cx, stream, 500, reason);
            }
            AnswerOutcome::Relay(relay) => return self.begin_relay(stream, relay),
            AnswerOutcome::Job(job) => KeptFor::Job(Some(Box::new(job))),
            AnswerOutcome::Again(job) => {
                kept.withdrawn += 1;
                KeptFor::Again(Some(Box::new(job)))
            }
        };
        self.asking.push_back(stream);
    }

    /// Sends the answer to a request that was kept.
    fn respond_kept<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        stream: u32,
        page: AnswerSpan,
        is_settled: bool,
    ) {
        let Some(Live { is_open, phase: LiveState::Asked(mut kept), upload }) =
            self.live.remove(stream)
        else {
            return;
        };
        // the body is not needed
        self.drop_upload(stream, upload);
        let stages = kept.stages;
        kept.with(cx.peer, cx.path, |request, grant, _| {
            let ticket = std::mem::take(&mut grant.ticket);
            let grant = Grant { ticket, ..*grant };
            let asked = RequestUnderWay::new(stream, is_open, request, stages, grant);
            self.respond(cx, RequestUnderWay { is_settled, ..asked }, page, None);
        });
    }

    /// Sends the handler's own answer in place of another server's.
    pub(super) fn respond_own<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        asked: RequestUnderWay<'_, H::Ticket>,
        page: AnswerSpan,
        relay: &H::Relay,
    ) {
        self.respond(cx, asked, page, Some(relay));
    }

    /// Makes frames of an answer, counts it and begins its log line. The part for which the client's
    /// windows have no room is kept.
    fn respond<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        asked: RequestUnderWay<'_, H::Ticket>,
        page: AnswerSpan,
        relay: Option<&H::Relay>,
    ) {
        let RequestUnderWay { stream, is_open, request, stages, grant, is_settled } = asked;
        self.served += 1;
        cx.budget = cx.budget.saturating_sub(1);
        cx.metrics.add(Counter::of_status(page.status), 1);
        let (peer, status) = (cx.peer, page.status);
        let ticket = grant.as_ref().map(|grant| &grant.ticket);
        let answered = Answered { peer, request, ticket, status, stages };
        let line = match relay {
            Some(relay) => cx.handler.relayed_line(&answered, relay),
            None => cx.handler.line(&answered),
        };
        let (rank, client) = grant.as_ref().map_or((self.rank, None), |it| (it.rank, it.client));
        let ticket = grant.map(|grant| grant.ticket).filter(|_| !is_settled);

        let mut body = cx.out.body.take();
        let part = if page.body_bytes == 0 { MessagePart::Last } else { MessagePart::Head };
        let out = &mut cx.out.bytes;
        let place = page.start..page.head_end;
        // the frame's header goes into the room before the block, so that the head is not copied
        let Some(head_end) = self.machine.head_at(out, stream, part, place) else {
            out.truncate(page.start);
            self.machine.reset(stream, ErrorCode::INTERNAL_ERROR);
            return Leaving { line, ticket, body_bytes: 0 }.end(cx.handler, Settled::Cut);
        };
        let body_start = head_end + HEADER_BYTES;
        let copied = out.len().saturating_sub(body_start);
        let is_short = body.is_none() && self.machine.send_capacity(stream) as usize >= copied;
        if page.body_bytes == 0 {
            out.truncate(head_end);
        } else if is_short && let Some(header) = self.machine.data(stream, copied as u32, true) {
            out[head_end..body_start].copy_from_slice(&header);
            self.body_bytes += page.body_bytes;
        } else {
            // a long body, or one that the windows have no room for, outlives this turn
            if let Some(body) = &mut body {
                cx.handler.hold(body);
            }
            let copied = out[body_start..].into();
            out.truncate(head_end);
            let sending = Sending {
                copied,
                copied_at: 0,
                body,
                left: page.body_bytes,
                body_bytes: 0,
                told_bytes: 0,
                job: None,
                is_warming: false,
                line,
                ticket,
                rank,
                client,
            };
            let phase = LiveState::Answered(Box::new(sending));
            self.live.insert(stream, Live { is_open, phase, upload: None });
            return self.machine.offer(stream);
        }
        self.leave(stream, is_open, Leaving { line, ticket, body_bytes: page.body_bytes });
    }

    /// Answers a request that policy does not admit. The rest of its body is not waited for.
    pub(super) fn turn_away<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        asked: RequestUnderWay<'_, H::Ticket>,
        refusal: Refusal,
    ) {
        let request = asked.request;
        let page = write(cx, request, |handler, reply| handler.turn_away(refusal, request, reply));
        self.respond(cx, asked, page, None);
    }

    /// Answers a request whose body would be larger than allowed. The body is not waited for.
    pub(super) fn refuse_body<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        asked: RequestUnderWay<'_, H::Ticket>,
    ) {
        let page = write(cx, asked.request, |handler, reply| handler.refuse(413, TOO_LARGE, reply));
        self.respond(cx, asked, page, None);
    }

    /// Does what [`turn_away`](Http2::turn_away) does, for a kept request that may not be enqueued.
    pub(super) fn turn_away_kept<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        stream: u32,
        refusal: Refusal,
    ) {
        let Some(kept) = self.live.get_mut(stream).and_then(Live::kept) else { return };
        let page = kept.with(cx.peer, cx.path, |request, _, _| {
            write(cx, Some(request), |handler, reply| {
                handler.turn_away(refusal, Some(request), reply)
            })
        });
        self.respond_kept(cx, stream, page, false);
    }

    /// Answers a request that was kept and cannot be served.
    pub(super) fn refuse_kept<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        stream: u32,
        status: u16,
        reason: &'static str,
    ) {
        let page = self.refusal(cx, stream, status, reason);
        if let Some(page) = page {
            self.respond_kept(cx, stream, page, false);
        }
    }

    /// Ends a request that was not answered in time.
    pub(super) fn expire_kept<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>, stream: u32) {
        let Some(live) = self.live.get_mut(stream) else { return };
        match &mut live.phase {
            LiveState::Asked(kept) => {
                cx.handler.settle(&mut kept.grant.ticket, Settled::Expired);
                let reason = "the request could not be processed in time";
                if let Some(page) = self.refusal(cx, stream, 503, reason) {
                    self.respond_kept(cx, stream, page, true);
                }
            }
            // the file was not read in time
            LiveState::Answered(_) | LiveState::Relaying(_) => {
                self.reset(cx.handler, cx.peer, stream, ErrorCode::INTERNAL_ERROR);
            }
        }
    }

    fn refusal<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        stream: u32,
        status: u16,
        reason: &'static str,
    ) -> Option<AnswerSpan> {
        let kept = self.live.get_mut(stream).and_then(Live::kept)?;
        Some(kept.with(cx.peer, cx.path, |request, _, _| {
            write(cx, Some(request), |handler, reply| handler.refuse(status, reason, reply))
        }))
    }

    /// Answers a stream whose head is no request that could be judged.
    pub(super) fn refuse_unread<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        stream: u32,
        is_open: bool,
        status: u16,
        reason: &'static str,
    ) {
        let page = write(cx, None, |handler, reply| handler.refuse(status, reason, reply));
        let complete_ns = cx.handler.tick();
        let stages = ArrivalTimes { begun_ns: complete_ns, complete_ns };
        let asked = RequestUnderWay {
            stream,
            is_open,
            request: None,
            stages,
            grant: None,
            is_settled: false,
        };
        self.respond(cx, asked, page, None);
    }
}

/// Has an answer written.
pub(super) fn write<H: HandlerRoles, S>(
    cx: &mut Context<'_, H, S>,
    request: Option<&Request<'_>>,
    answer: impl FnOnce(&mut H, &mut Reply<'_, <H as HandlerTypes>::Body>),
) -> AnswerSpan {
    let start = cx.out.bytes.len();
    let mut reply = Reply::new(cx.out, cx.date, true);
    reply.is_http2 = true;
    if let Some(request) = request {
        reply.answers(request.head);
    }
    answer(cx.handler, &mut reply);
    AnswerSpan::of(start, &reply)
}

/// The handler's answer to an admitted request; `attempts` earlier answers were thrown away. An answer
/// with a file begins only when the first bytes of the file are in memory and the file has not changed.
fn process<H: HandlerRoles, S: Stopwatch>(
    cx: &mut Context<'_, H, S>,
    request: &Request<'_>,
    ticket: &mut H::Ticket,
    mut done: Option<<H::Job as Job>::Done>,
    attempts: u8,
) -> AnswerOutcome<H> {
    let mut attempt = attempts;
    loop {
        attempt += 1;
        let start = cx.out.bytes.len();
        let mut reply = Reply::new(cx.out, cx.date, true);
        reply.is_http2 = true;
        reply.answers(request.head);
        match cx.handler.process(request, ticket, done.take(), &mut reply) {
            ProcessOutcome::Replied => {}
            ProcessOutcome::Job(job) => return AnswerOutcome::Job(job),
            ProcessOutcome::HandOver => return AnswerOutcome::HandOver,
            ProcessOutcome::Relay(relay) => return AnswerOutcome::Relay(relay),
        }
        cx.watch.lap(Activity::Process);
        let page = AnswerSpan::of(start, &reply);
        let body = cx.out.body.as_ref();
        let file = body.filter(|body| matches!(cx.handler.piece(body), Some(Piece::File { .. })));
        let Some(body) = file.filter(|_| attempt <= MOST_ATTEMPTS) else {
            return AnswerOutcome::Written(page);
        };
        let is_intact = cx.handler.is_intact(body);
        if is_intact && cx.handler.warm_bytes(body) > 0 {
            return AnswerOutcome::Written(page);
        }
        let job = if is_intact { cx.handler.warm(body) } else { None };
        cx.out.withdraw();
        if let Some(job) = job {
            return AnswerOutcome::Again(job);
        }
    }
}
