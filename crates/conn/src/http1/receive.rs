//! Receive and verdict: a head is found and judged, and its body discarded.

use super::relay::{Http1Relaying, passing};
use super::{
    AnswerOutcome, BehindRefused, Http1, Kept, KeptFor, Owned, Partial, RequestState, Unserved,
    last, may_be_outdated,
};
use crate::context::Context;
use crate::handler::{Admitted, BodyDecision, HandlerRoles, Verdict};
use crate::input::Input;
use crate::protocol::Protocol;
use crate::request::{ArrivalTimes, Grant, KeptRequest, Request, RequestId};
use crate::step::{Closing, Step};
use forebay_http::body::{BodyDecoder, BodyError, Trailers};
use forebay_http::framing::Framing;
use forebay_http::head::{Head, Lines, ParsedHead};
use forebay_metrics::{Activity, Counter, Stopwatch};

impl<H: HandlerRoles> Http1<H> {
    /// Finds the next head, and has its request answered.
    pub(super) fn receive<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Option<Step<H::Job>> {
        let RequestState::Head(Partial { searched, begun_ns }) = self.state else { return None };
        if input.is_empty() {
            return Some(Step::Receive);
        }
        if cx.budget == 0 {
            return Some(Step::Yield);
        }
        if searched > 0
            && input.len() < cx.limits.head.head_bytes
            && !is_worth_parsing(input.bytes(), searched)
        {
            self.state = RequestState::Head(Partial { searched: input.len(), begun_ns });
            return Some(Step::Receive);
        }
        let mut lines = Lines::new();
        // borrowed, because moving such a large head would cost measurable time
        let used = match &Head::parse(input.bytes(), &mut lines, &cx.limits.head) {
            Ok(ParsedHead::Partial) => {
                let begun_ns = if begun_ns == 0 { cx.handler.tick() } else { begun_ns };
                self.state = RequestState::Head(Partial { searched: input.len(), begun_ns });
                return Some(Step::Receive);
            }
            Ok(ParsedHead::Complete(head)) => {
                cx.watch.lap(Activity::Parse);
                self.complete(cx, head, input, begun_ns);
                head.len
            }
            Err(error) => {
                let is_head = is_head(input.bytes());
                let stages = whole(cx, begun_ns);
                let (status, reason) = (error.status(), error.reason());
                self.refuse(cx, Unserved::Bytes { is_head }, stages, status, reason);
                0
            }
        };
        input.consume(used);
        None
    }

    /// Judges a request whose head is complete, and answers it if it need not wait.
    pub(super) fn complete<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        head: &Head<'_>,
        input: &Input,
        begun_ns: u64,
    ) {
        cx.path.forget();
        let request = Request::new(head, cx.peer, cx.path);
        let stages = whole(cx, begun_ns);
        // the request before this one is over
        self.sent(cx.handler);
        let verdict = cx.handler.verdict(&request, &mut self.record);
        let Admitted { rank, client, wait_ms, is_last, mut ticket } = match verdict {
            Verdict::Admit(admitted) => admitted,
            Verdict::Refuse(refusal, ticket) => {
                let is_whole = head.framing == Framing::None;
                let behind = BehindRefused::of(is_whole, input.len() > head.len);
                return self.refuse_request(cx, &request, refusal, ticket, stages, behind);
            }
            Verdict::Reset => return self.state = RequestState::Last(Closing::Reset),
        };
        (self.rank, self.client, self.is_last) = (rank, client, is_last);
        self.hands_over = cx.handler.hands_over(&request);
        self.comes_back = false;
        let grant = |ticket| Grant { rank, client, wait_ms, ticket };
        if head.framing != Framing::None {
            return match cx.handler.decide(&request, &mut ticket, None) {
                BodyDecision::Job(job) => self.keep(
                    cx,
                    &request,
                    input,
                    stages,
                    grant(ticket),
                    KeptFor::Deciding(Some(job)),
                ),
                BodyDecision::HandOver => {
                    self.keep(cx, &request, input, stages, grant(ticket), KeptFor::HandOver)
                }
                BodyDecision::Stream(most) => match passing(head.framing, most, &cx.limits.head) {
                    Ok(body) => {
                        let stage =
                            if wait_ms > 0 { KeptFor::Early(wait_ms) } else { KeptFor::Whole };
                        self.keep(cx, &request, input, stages, grant(ticket), stage);
                        if let RequestState::Kept(kept) = &mut self.state {
                            kept.body = Some(body);
                        }
                    }
                    Err(error) => {
                        let (status, reason) = (error.status(), error.reason());
                        let unserved = Unserved::Request(&request, Owned::Ticket(ticket));
                        self.refuse(cx, unserved, stages, status, reason);
                    }
                },
                BodyDecision::Here => match discarding(cx, head.framing) {
                    Ok(decoder) => {
                        ask_for_body(cx, head, input.len() > head.len);
                        self.keep(
                            cx,
                            &request,
                            input,
                            stages,
                            grant(ticket),
                            KeptFor::Body(decoder),
                        );
                    }
                    Err(error) => {
                        let (status, reason) = (error.status(), error.reason());
                        let unserved = Unserved::Request(&request, Owned::Ticket(ticket));
                        self.refuse(cx, unserved, stages, status, reason);
                    }
                },
            };
        }
        // only a request that waits has its head copied: the one answered below borrows the received bytes
        if wait_ms > 0 || !self.is_answered(cx) {
            let stage = if wait_ms > 0 { KeptFor::Early(wait_ms) } else { KeptFor::Whole };
            return self.keep(cx, &request, input, stages, grant(ticket), stage);
        }
        if let Err(refusal) = cx.handler.enqueue(&mut ticket) {
            let behind = BehindRefused::of(true, input.len() > head.len);
            return self.refuse_request(cx, &request, refusal, ticket, stages, behind);
        }
        let answer = self.answer(cx, &request, &mut ticket, None, stages, true);
        if let AnswerOutcome::Next | AnswerOutcome::Last = answer
            && may_be_outdated(cx)
        {
            // copied while the input still has the head: a withdrawn answer needs its request again
            let grant = grant(H::Ticket::default());
            let kept = self.kept(&request, input, stages, grant, KeptFor::Ready);
            self.sending.request = Some(kept);
        }
        match answer {
            AnswerOutcome::Next => self.state = RequestState::default(),
            AnswerOutcome::Last => self.state = last(input.len() > head.len),
            AnswerOutcome::Job(job) => {
                self.keep(cx, &request, input, stages, grant(ticket), KeptFor::Job(Some(job)))
            }
            AnswerOutcome::HandOver => {
                self.keep(cx, &request, input, stages, grant(ticket), KeptFor::HandOver)
            }
            AnswerOutcome::Relay(relay) => {
                let stage = KeptFor::Relay(Box::new(Http1Relaying::new(relay, None)));
                self.keep(cx, &request, input, stages, grant(ticket), stage);
            }
        }
    }

    /// Keeps a request until what `stage` says has happened.
    #[cold]
    fn keep<S>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        request: &Request<'_>,
        input: &Input,
        stages: ArrivalTimes,
        grant: Grant<H::Ticket>,
        mut stage: KeptFor<H>,
    ) {
        let is_left = |stage: &mut KeptFor<H>| match stage {
            KeptFor::Relay(relaying) => relaying.acknowledge(),
            _ => false,
        };
        if cx.handler.acknowledges(request.head) && !is_left(&mut stage) {
            cx.out.bytes.extend_from_slice(b"HTTP/1.1 102 Processing\r\n\r\n");
            cx.metrics.add(Counter::Status1xx, 1);
        }
        self.state = RequestState::Kept(self.kept(request, input, stages, grant, stage));
    }

    fn kept(
        &self,
        request: &Request<'_>,
        input: &Input,
        stages: ArrivalTimes,
        grant: Grant<H::Ticket>,
        stage: KeptFor<H>,
    ) -> Kept<H> {
        let id = RequestId(self.served);
        Box::new(KeptRequest::keep(id, request, input.bytes(), grant, stages, stage))
    }

    /// Discards the body of the request that is kept.
    pub(super) fn discard<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Option<Step<H::Job>> {
        let RequestState::Kept(kept) = &mut self.state else { return None };
        let KeptFor::Body(decoder) = &mut kept.stage else { return None };
        match decoder.skip(input.bytes()) {
            Ok(skipped) => {
                let is_done = decoder.is_done();
                input.consume(skipped);
                if !is_done {
                    return Some(Step::Receive);
                }
                kept.stages.complete_ns = cx.handler.tick();
                kept.stage = match kept.grant.wait_ms {
                    0 => KeptFor::Whole,
                    wait_ms => KeptFor::Early(wait_ms),
                };
            }
            Err(error) => {
                let RequestState::Kept(mut kept) = std::mem::take(&mut self.state) else {
                    return None;
                };
                self.refuse_kept(cx, &mut kept, Owned::Ticket, error.status(), error.reason());
            }
        }
        None
    }
}

/// Notes the time at which the part of a request that must be received first, at least its head, is
/// there.
#[inline]
pub(super) fn whole<H: HandlerRoles, S>(cx: &mut Context<'_, H, S>, begun_ns: u64) -> ArrivalTimes {
    let complete_ns = cx.handler.tick();
    ArrivalTimes { begun_ns: if begun_ns == 0 { complete_ns } else { begun_ns }, complete_ns }
}

/// The decoder that finds the end of a discarded body.
pub(super) fn discarding<H: HandlerRoles, S>(
    cx: &Context<'_, H, S>,
    framing: Framing,
) -> Result<BodyDecoder, BodyError> {
    BodyDecoder::new(framing, cx.limits.body_bytes, Trailers::Discard, &cx.limits.head)
}

/// Asks for the body: a client that waits for `100 Continue` gets it, unless some of the body has come
/// already.
pub(super) fn ask_for_body<H: HandlerRoles, S>(
    cx: &mut Context<'_, H, S>,
    head: &Head<'_>,
    has_begun: bool,
) {
    if head.expects_continue && !has_begun {
        cx.out.bytes.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        cx.metrics.add(Counter::Status1xx, 1);
    }
}

/// Whether these bytes begin with a HEAD request, well-formed or not.
pub(super) fn is_head(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"HEAD ")
}

/// Whether a partial head should be parsed again now that `bytes` are there, of which `searched`
/// were looked at before: when its first line is whole and when its end has come. So a head sent
/// byte by byte costs one search each, not one parse, and nonsense is still refused early.
fn is_worth_parsing(bytes: &[u8], searched: usize) -> bool {
    let is_first_line = memchr::memchr(b'\n', bytes).is_some_and(|at| at >= searched);
    let new = &bytes[searched.saturating_sub(2)..];
    is_first_line
        || memchr::memmem::find(new, b"\n\r\n").is_some()
        || memchr::memmem::find(new, b"\n\n").is_some()
}
