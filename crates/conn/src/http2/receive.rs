//! Receive and verdict: what has come, for which request, and whether the request is served.

use super::answer::RequestUnderWay;
use super::relay::Trailing;
use super::{
    DoneOf, Http2, Http2Upload, KeptFor, Live, LiveState, MOST_LOOKS, MOST_RESETS, TOO_LARGE,
};
use crate::context::Context;
use crate::handler::{Admitted, BodyDecision, HandlerRoles, Settled, Verdict};
use crate::input::Input;
use crate::request::{ArrivalTimes, Grant, KeptRequest, Request, RequestId};
use crate::step::{Closing, Step};
use forebay_http::framing::Framing;
use forebay_http2::hpack::encode;
use forebay_http2::{ErrorCode, Http2Event, MessagePart};
use forebay_metrics::{Activity, Counter, Stopwatch};

/// Whether the declared length of a body exceeds the limit. A body without a length is refused when it
/// has grown too large.
fn declares_more(framing: Framing, most: u64) -> bool {
    matches!(framing, Framing::Sized(bytes) if bytes > most)
}

/// What has been received; the bytes stay in the input.
enum Came {
    Request {
        stream: u32,
        ends: bool,
    },
    TooLarge {
        stream: u32,
        ends: bool,
    },
    Body(u32, usize, bool),
    /// Some bytes of a body that is passed on; whether they are within its limit.
    Upload {
        stream: u32,
        fits: bool,
        ends: bool,
    },
    Reset(u32),
    /// A frame that is not allowed in a tunnel.
    Misused(u32),
    Failed,
    /// Nothing that concerns a request.
    Nothing,
    /// Only a part of a frame.
    Part,
}

impl<H: HandlerRoles> Http2<H> {
    /// Takes received frames, up to the next request.
    pub(super) fn receive<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Option<Step<H::Job>> {
        if let Some(closing) = self.closing {
            return Some(Step::Close(closing));
        }
        if self.machine.fault().is_some() {
            // sending has used up a budget of the protocol
            self.closing = Some(Closing::Linger);
            return None;
        }
        if input.is_empty() {
            return self.all_used(cx);
        }
        if cx.budget == 0 {
            return Some(Step::Yield);
        }
        let fields = &mut cx.head_buffer.head.get_or_insert_default().fields;
        let received = self.machine.receive(input.bytes(), fields, cx.now_ms);
        let used = received.used;
        let came = match received.event {
            Some(Http2Event::Request { stream, ends }) => Came::Request { stream, ends },
            Some(Http2Event::TooLarge { stream, ends }) => Came::TooLarge { stream, ends },
            Some(Http2Event::Data { stream, bytes, ends }) => {
                match self.receive_upload(stream, bytes, ends) {
                    Some(fits) => Came::Upload { stream, fits, ends },
                    // the stream does not expect these bytes: they are discarded
                    None => Came::Body(stream, bytes.len(), ends),
                }
            }
            Some(Http2Event::Trailers { stream }) => match self.receive_trailers(stream, fields) {
                Trailing::PassedOn => Came::Upload { stream, fits: true, ends: true },
                Trailing::Dropped => Came::Body(stream, 0, true),
                Trailing::Misplaced => Came::Misused(stream),
            },
            Some(Http2Event::Reset { stream, .. }) => Came::Reset(stream),
            Some(Http2Event::Failed(_)) => Came::Failed,
            Some(_) => Came::Nothing,
            None => Came::Part,
        };
        input.consume(used);
        // an acknowledgement must be sent before frames that rely on it
        self.machine.flush(&mut cx.out.bytes);
        match came {
            Came::Request { stream, ends } => {
                cx.watch.lap(Activity::Parse);
                self.judge(cx, stream, ends);
                // judging costs time, whether or not the request is answered
                if cx.handler.takes_turns(cx.peer) {
                    cx.budget = 0;
                }
            }
            Came::TooLarge { stream, ends } => {
                self.refuse_unread(cx, stream, !ends, 431, "the request head is too large");
            }
            Came::Upload { stream, fits: true, ends } => {
                self.begin_body(stream);
                match ends {
                    // an exchange that waits for the end of the body can begin now
                    true => self.begin_later(stream),
                    false => self.pump(cx, stream),
                }
                self.hold_back();
            }
            Came::Upload { stream, .. } => self.refuse_upload(cx, stream),
            Came::Body(stream, count, ends) => self.discard(cx, stream, count, ends),
            Came::Reset(stream) => {
                self.cut_tunnel(stream);
                if let Some(live) = self.live.remove(stream) {
                    self.give_up(cx.handler, cx.peer, stream, live);
                    if !cx.handler.charge_given_up(cx.peer, 1) {
                        self.fail(ErrorCode::ENHANCE_YOUR_CALM, "the client gives up too much");
                    }
                    return Some(Step::Forget(RequestId(stream)));
                }
            }
            Came::Misused(stream) => {
                self.reset(cx.handler, cx.peer, stream, ErrorCode::PROTOCOL_ERROR);
            }
            Came::Failed => self.closing = Some(Closing::Linger),
            Came::Nothing => {}
            // the frame may have opened windows
            Came::Part if used > 0 => {}
            Came::Part => return self.all_used(cx),
        }
        None
    }

    /// Acts when all received bytes are used: exchanges begin whose requests were not ended by any of
    /// them, if the socket has no more bytes either.
    fn all_used<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>) -> Option<Step<H::Job>> {
        if self.beginning.is_empty() {
            return Some(self.nothing_more());
        }
        let may_look = self.looks < MOST_LOOKS && !self.input_ended;
        if may_look && !std::mem::replace(&mut self.has_looked, true) {
            self.looks += 1;
            return Some(Step::Look);
        }
        self.begin_exchanges(cx);
        // the next exchange of a client that takes turns
        (!self.beginning.is_empty()).then_some(Step::Yield)
    }

    /// The next step when all received bytes are used and no exchange must begin.
    fn nothing_more(&self) -> Step<H::Job> {
        match self.input_ended {
            // requests that wait for the client would wait for ever once its direction has ended
            true if self.live.iter().all(|(_, live)| live.waits_for_client()) => {
                Step::Close(Closing::Now)
            }
            true => Step::Wait,
            // the client still opens windows while it reads the last answer, and must not be reset for
            // that
            false if self.live.is_empty() && self.machine.is_drained() => {
                Step::Close(Closing::Linger)
            }
            false => Step::Receive,
        }
    }

    /// Judges a request whose head is complete, and answers it if it need not wait.
    fn judge<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>, stream: u32, ends: bool) {
        let Some(mut head_buffer) = cx.head_buffer.head.take() else { return };
        let path = cx.path;
        path.forget();
        match head_buffer.head(ends, &cx.limits.head) {
            Ok(head) => {
                let request = Request::new(&head, cx.peer, path);
                self.judge_request(cx, stream, ends, &request);
            }
            Err(error) => self.refuse_unread(cx, stream, !ends, error.status(), error.reason()),
        }
        cx.head_buffer.head = Some(head_buffer);
    }

    fn judge_request<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        stream: u32,
        ends: bool,
        request: &Request<'_>,
    ) {
        let complete_ns = cx.handler.tick();
        let stages = ArrivalTimes { begun_ns: complete_ns, complete_ns };
        let verdict = cx.handler.verdict(request, &mut self.record);
        let Admitted { rank, client, wait_ms, is_last, mut ticket } = match verdict {
            Verdict::Admit(admitted) => admitted,
            Verdict::Refuse(refusal, ticket) => {
                let grant = Grant { rank: self.rank, client: None, wait_ms: 0, ticket };
                let asked = RequestUnderWay::new(stream, !ends, request, stages, grant);
                return self.turn_away(cx, asked, refusal);
            }
            Verdict::Reset => return self.reset_by_policy(stream),
        };
        let wait_ms = wait_ms.max(cx.handler.turn_ms(cx.peer));
        (self.rank, self.client) = (rank, client);
        if is_last {
            self.say_goodbye(cx.now_ms);
        }
        self.machine.set_rank(stream, rank.0);
        let acknowledges = cx.handler.acknowledges(request.head);
        if !ends && acknowledges {
            // a request that is answered at once needs no acknowledgement besides
            self.acknowledge(cx, stream);
        }
        let keep = |conn: &mut Self, ticket, stage| {
            let grant = Grant { rank, client, wait_ms, ticket };
            let kept = KeptRequest::keep(RequestId(stream), request, b"", grant, stages, stage);
            let phase = LiveState::Asked(Box::new(kept));
            conn.live.insert(stream, Live { is_open: !ends, phase, upload: None });
            conn.asking.push_back(stream);
        };
        if request.head.tunnel.is_some() {
            let stage = if wait_ms > 0 { KeptFor::Early(wait_ms) } else { KeptFor::Whole };
            keep(self, ticket, stage);
            return self.expect_tunnel(stream, ends);
        }
        if !ends {
            return match cx.handler.decide(request, &mut ticket, None) {
                BodyDecision::Job(job) => {
                    keep(self, ticket, KeptFor::Deciding(Some(Box::new(job))));
                    // the body is kept until it is known whether it is wanted
                    self.expect_upload(stream, u64::MAX);
                }
                BodyDecision::HandOver => self.hand_back(cx, stream, ticket),
                BodyDecision::Stream(most) if declares_more(request.head.framing, most) => {
                    let grant = Grant { rank, client, wait_ms, ticket };
                    self.refuse_body(
                        cx,
                        RequestUnderWay::new(stream, true, request, stages, grant),
                    );
                }
                BodyDecision::Here if declares_more(request.head.framing, cx.limits.body_bytes) => {
                    let grant = Grant { rank, client, wait_ms, ticket };
                    self.refuse_body(
                        cx,
                        RequestUnderWay::new(stream, true, request, stages, grant),
                    );
                }
                BodyDecision::Stream(most) => {
                    let stage = match wait_ms {
                        // until its body begins, the stage before may still take the request elsewhere
                        _ if acknowledges && !request.head.expects_continue => KeptFor::Begin,
                        0 => KeptFor::Whole,
                        _ => KeptFor::Early(wait_ms),
                    };
                    keep(self, ticket, stage);
                    self.expect_upload(stream, most);
                }
                BodyDecision::Here => {
                    keep(self, ticket, KeptFor::Body(0));
                    self.ask_for_body(cx, stream, request.head.expects_continue);
                }
            };
        }
        if wait_ms > 0 || cx.answers.is_none_or(|last| rank > last) {
            if acknowledges {
                self.acknowledge(cx, stream);
            }
            let stage = if wait_ms > 0 { KeptFor::Early(wait_ms) } else { KeptFor::Whole };
            return keep(self, ticket, stage);
        }
        let enqueued = cx.handler.enqueue(&mut ticket);
        let grant = Grant { rank, client, wait_ms, ticket };
        let asked = RequestUnderWay::new(stream, false, request, stages, grant);
        match enqueued {
            Ok(()) => self.answer(cx, asked),
            Err(refusal) => self.turn_away(cx, asked, refusal),
        }
    }

    /// Sends the interim answer (102) by which the stage before learns that the request is here.
    #[cold]
    pub(super) fn acknowledge<S>(&mut self, cx: &mut Context<'_, H, S>, stream: u32) {
        self.machine.head(&mut cx.out.bytes, stream, MessagePart::Informational, |block| {
            encode::status(block, 102);
        });
        cx.metrics.add(Counter::Status1xx, 1);
    }

    /// Starts a request that has waited for the first bytes of its body.
    fn begin_body(&mut self, stream: u32) {
        if let Some(kept) = self.live.get_mut(stream).and_then(Live::kept)
            && let KeptFor::Begin = kept.stage
        {
            kept.stage = match kept.grant.wait_ms {
                0 => KeptFor::Whole,
                wait_ms => KeptFor::Early(wait_ms),
            };
            self.asking.push_back(stream);
        }
    }

    /// Asks for the body: a client that waits for `100 Continue` gets it.
    fn ask_for_body<S>(&mut self, cx: &mut Context<'_, H, S>, stream: u32, expects: bool) {
        if expects {
            self.machine.head(&mut cx.out.bytes, stream, MessagePart::Informational, |block| {
                encode::status(block, 100);
            });
            cx.metrics.add(Counter::Status1xx, 1);
        }
    }

    /// Continues with a kept request when its job is done and the handler can decide what answers it.
    pub(super) fn decide<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        stream: u32,
        done: DoneOf<H>,
    ) {
        let Some(live) = self.live.get_mut(stream) else { return };
        let is_open = live.is_open;
        let Some(kept) = live.kept() else { return };
        let framing = kept.head.framing();
        let handler = &mut *cx.handler;
        let (decision, expects) = kept.with(cx.peer, cx.path, |request, grant, _| {
            let decision = handler.decide(request, &mut grant.ticket, Some(done));
            (decision, request.head.expects_continue)
        });
        match decision {
            BodyDecision::Job(job) => {
                kept.stage = KeptFor::Deciding(Some(Box::new(job)));
                self.asking.push_back(stream);
            }
            BodyDecision::Stream(most) if declares_more(framing, most) => {
                self.refuse_kept(cx, stream, 413, TOO_LARGE);
            }
            BodyDecision::Here if declares_more(framing, cx.limits.body_bytes) => {
                self.refuse_kept(cx, stream, 413, TOO_LARGE);
            }
            BodyDecision::Stream(most) => {
                kept.stage = match kept.grant.wait_ms {
                    0 => KeptFor::Whole,
                    wait_ms => KeptFor::Early(wait_ms),
                };
                self.asking.push_back(stream);
                if live.upload.as_mut().is_some_and(|upload| !upload.bound(most)) {
                    self.refuse_upload(cx, stream);
                }
            }
            BodyDecision::HandOver => {
                self.reset(cx.handler, cx.peer, stream, ErrorCode::HTTP_1_1_REQUIRED);
            }
            BodyDecision::Here => {
                // bytes that came meanwhile are discarded
                let upload = live.upload.take();
                let count = upload.as_ref().map_or(0, |upload| upload.bytes.len());
                if let Some(kept) = live.kept() {
                    kept.stage = KeptFor::Body(count as u64);
                }
                self.drop_upload(stream, upload);
                if is_open {
                    self.ask_for_body(cx, stream, expects && count == 0);
                } else {
                    self.complete(cx, stream);
                }
            }
        }
    }

    /// Keeps the body of a request until it is passed on, as far as the stream's window allows.
    fn expect_upload(&mut self, stream: u32, most: u64) {
        if let Some(live) = self.live.get_mut(stream) {
            live.upload = Some(Box::new(Http2Upload::new(most)));
        }
    }

    /// Keeps what the client sends into a tunnel until the tunnel exists, as far as the stream's window
    /// allows.
    fn expect_tunnel(&mut self, stream: u32, ends: bool) {
        if let Some(live) = self.live.get_mut(stream) {
            live.upload = Some(Box::new(Http2Upload::of_tunnel(ends)));
        }
    }

    /// Discards some bytes of a body that is not read.
    fn discard<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        stream: u32,
        count: usize,
        ends: bool,
    ) {
        self.machine.consumed(stream, count);
        let Some(live) = self.live.get_mut(stream) else { return };
        if ends {
            live.is_open = false;
        }
        let Some(kept) = live.kept() else { return };
        if let KeptFor::Body(discarded) = &mut kept.stage {
            *discarded += count as u64;
            if *discarded > cx.limits.body_bytes {
                return self.refuse_kept(cx, stream, 413, TOO_LARGE);
            }
            if ends {
                self.complete(cx, stream);
            }
        }
    }

    /// Marks a request as completely received.
    fn complete<S>(&mut self, cx: &mut Context<'_, H, S>, stream: u32) {
        let Some(kept) = self.live.get_mut(stream).and_then(Live::kept) else { return };
        kept.stages.complete_ns = cx.handler.tick();
        kept.stage = match kept.grant.wait_ms {
            0 => KeptFor::Whole,
            wait_ms => KeptFor::Early(wait_ms),
        };
        self.asking.push_back(stream);
    }

    /// Refuses a request that another process would answer: such a process takes whole connections only,
    /// so that the client must ask again on a connection of the request's own.
    pub(super) fn hand_back<S>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        stream: u32,
        mut ticket: H::Ticket,
    ) {
        cx.handler.settle(&mut ticket, Settled::Cut);
        self.machine.reset(stream, ErrorCode::HTTP_1_1_REQUIRED);
    }

    /// Resets a request that the policy does not want answered. A client that goes on loses its
    /// connection.
    fn reset_by_policy(&mut self, stream: u32) {
        // REFUSED_STREAM would invite the client to try again at once
        self.machine.reset(stream, ErrorCode::ENHANCE_YOUR_CALM);
        self.resets += 1;
        if self.resets >= MOST_RESETS {
            self.fail(ErrorCode::ENHANCE_YOUR_CALM, "refused by policy");
        }
    }
}
