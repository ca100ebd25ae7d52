//! HTTP/1 on one connection: requests one after another, each through the four stages.
//!
//! A request that can be answered at once borrows the received bytes and leaves nothing behind. One that
//! must wait is kept as an [`Exchange`], with all it owns; what it waits for is its `Stage`.

use crate::handler::{
    Admitted, Answered, Decision, Handler, Job, Outcome, Parts, Piece, Rank, Refusal, Settled,
    Stages, Verdict,
};
use crate::input::Input;
use crate::protocol::{Awaited, Protocol};
use crate::reply::Reply;
use crate::request::{Exchange, Grant, Request, RequestId};
use crate::step::{Await, Closing, Context, Event, Step};
use forebay_http::body::{BodyError, Decoder, Trailers};
use forebay_http::framing::Framing;
use forebay_http::head::{Head, Lines, Method, Parsed};
use forebay_metrics::{Activity, Counter, Stopwatch};
use std::net::IpAddr;

/// Once this many bytes of answers are waiting in [`Out`](crate::Out), they are sent before the next request
/// of a pipeline is looked at.
const BATCH_BYTES: usize = 48 * 1024;

/// How often a request is answered whose file changes each time before its answer is begun.
const MOST_ATTEMPTS: u8 = 3;

/// One connection as a state machine.
///
/// An idle one owns no heap memory.
pub struct Http1<H: Handler> {
    state: State<H>,
    /// Received and not yet used, while another connection has the loop's buffer.
    held: Vec<u8>,
    sending: Sending<H>,
    /// The order of the last request, and whose it was if a proxy's connection brings those of many.
    rank: Rank,
    client: Option<IpAddr>,
    served: u32,
    /// Seconds the client was told that the connection is kept.
    announced_s: u32,
    input_ended: bool,
}

enum State<H: Handler> {
    /// A head is received, or nothing yet.
    Head(Partial),
    /// A request waits.
    Kept(Kept<H>),
    /// The last answer is written.
    Last(Closing),
}

/// A request that is kept.
type Kept<H> = Box<Exchange<<H as Parts>::Ticket, Stage<<H as Parts>::Job>>>;

/// The beginning of a head.
#[derive(Clone, Copy, Default)]
struct Partial {
    /// How many bytes are known not to hold its end.
    searched: usize,
    /// When the first of them was seen; 0 if none was, or time does not matter.
    begun_ns: u64,
}

/// What a request that is kept waits for.
enum Stage<J> {
    /// For this job, which is to be started, or which is running if it is gone: then it is known who
    /// answers. Until then nothing of the body is received.
    Deciding(Option<J>),
    /// For its body, which is discarded.
    Body(Decoder),
    /// For the moment from which it may be answered, in so many milliseconds.
    Early(u32),
    /// For nothing but the server from here on: it is to be enqueued.
    Whole,
    /// For its turn.
    Ready,
    /// For this job, which is to be started, or which is running if it is gone.
    Job(Option<J>),
    /// To be handed over.
    HandOver,
}

/// What is left of the last answer written, until that is sent.
struct Sending<H: Handler> {
    line: Option<H::Line>,
    ticket: Option<H::Ticket>,
    body_sent_bytes: u64,
    /// Its request, if its file may turn out to have changed before anything of the answer was sent.
    request: Option<Kept<H>>,
}

/// How an attempt to answer one request ended.
enum Answer<J> {
    /// Written; the connection is kept.
    Next,
    /// Written; the connection ends with it.
    Last,
    Job(J),
    HandOver,
}

/// The ticket of a request that is refused.
enum Owned<T> {
    /// It was not judged.
    Nothing,
    /// To be settled when the answer is sent.
    Ticket(T),
    /// Settled already.
    Settled(T),
}

impl<H: Handler> Default for State<H> {
    fn default() -> Self {
        State::Head(Partial::default())
    }
}

impl<H: Handler> Default for Http1<H> {
    fn default() -> Self {
        Http1 {
            state: State::default(),
            held: Vec::new(),
            sending: Sending { line: None, ticket: None, body_sent_bytes: 0, request: None },
            rank: Rank::FIRST,
            client: None,
            served: 0,
            announced_s: 0,
            input_ended: false,
        }
    }
}

/// Receive and verdict.
impl<H: Handler> Http1<H> {
    /// Finds the next head and has it answered.
    fn receive<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Option<Step<H::Job>> {
        let State::Head(Partial { searched, begun_ns }) = self.state else { return None };
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
            self.state = State::Head(Partial { searched: input.len(), begun_ns });
            return Some(Step::Receive);
        }
        let mut lines = Lines::new();
        let used = match Head::parse(input.bytes(), &mut lines, &cx.limits.head) {
            Ok(Parsed::Partial) => {
                let begun_ns = if begun_ns == 0 { cx.handler.tick() } else { begun_ns };
                self.state = State::Head(Partial { searched: input.len(), begun_ns });
                return Some(Step::Receive);
            }
            Ok(Parsed::Complete(head)) => {
                cx.watch.lap(Activity::Parse);
                self.complete(cx, &head, input, begun_ns);
                head.len
            }
            Err(error) => {
                let is_head = is_head(input.bytes());
                let stages = whole(cx, begun_ns);
                self.refuse(
                    cx,
                    is_head,
                    None,
                    Owned::Nothing,
                    stages,
                    error.status(),
                    error.reason(),
                );
                0
            }
        };
        input.consume(used);
        None
    }

    /// A whole head is there: it is judged, and answered if it need not wait.
    fn complete<S: Stopwatch>(
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
        let Admitted { rank, client, wait_ms, mut ticket } = match cx.handler.verdict(&request) {
            Verdict::Admit(admitted) => admitted,
            Verdict::Refuse(refusal, ticket) => {
                let is_whole = head.framing == Framing::None;
                return self.refuse_request(cx, &request, refusal, ticket, stages, is_whole);
            }
            Verdict::Reset => return self.state = State::Last(Closing::Reset),
        };
        (self.rank, self.client) = (rank, client);
        let keep = |conn: &mut Self, ticket, stage| {
            let grant = Grant { rank, client, wait_ms, ticket };
            let id = RequestId(conn.served);
            let kept = Exchange::keep(id, &request, input.bytes(), grant, stages, stage);
            conn.state = State::Kept(Box::new(kept));
        };
        if head.framing != Framing::None {
            return match cx.handler.decide(&request, &mut ticket, None) {
                Decision::Job(job) => keep(self, ticket, Stage::Deciding(Some(job))),
                Decision::HandOver => keep(self, ticket, Stage::HandOver),
                Decision::Here => match discarding(cx, head.framing) {
                    Ok(decoder) => {
                        ask_for_body(cx, head, input.len() > head.len);
                        keep(self, ticket, Stage::Body(decoder));
                    }
                    Err(error) => {
                        let (status, reason) = (error.status(), error.reason());
                        let owned = Owned::Ticket(ticket);
                        let head_only = head.method == Method::Head;
                        self.refuse(cx, head_only, Some(&request), owned, stages, status, reason);
                    }
                },
            };
        }
        if wait_ms > 0 || !self.is_answered(cx) {
            let stage = if wait_ms > 0 { Stage::Early(wait_ms) } else { Stage::Whole };
            return keep(self, ticket, stage);
        }
        if let Err(refusal) = cx.handler.enqueue(&mut ticket) {
            return self.refuse_request(cx, &request, refusal, ticket, stages, true);
        }
        let answer = self.answer(cx, &request, &mut ticket, None, stages);
        if let Answer::Next | Answer::Last = answer
            && may_be_outdated(cx)
        {
            let grant = Grant { rank, client, wait_ms, ticket: H::Ticket::default() };
            let id = RequestId(self.served);
            let kept = Exchange::keep(id, &request, input.bytes(), grant, stages, Stage::Ready);
            self.sending.request = Some(Box::new(kept));
        }
        match answer {
            Answer::Next => self.state = State::default(),
            Answer::Last => self.state = last(input.len() > head.len),
            Answer::Job(job) => keep(self, ticket, Stage::Job(Some(job))),
            Answer::HandOver => keep(self, ticket, Stage::HandOver),
        }
    }

    /// Discards the body of the request that is kept.
    fn discard<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Option<Step<H::Job>> {
        let State::Kept(kept) = &mut self.state else { return None };
        let Stage::Body(decoder) = &mut kept.stage else { return None };
        match decoder.skip(input.bytes()) {
            Ok(skipped) => {
                let is_done = decoder.is_done();
                input.consume(skipped);
                if !is_done {
                    return Some(Step::Receive);
                }
                kept.stages.complete_ns = cx.handler.tick();
                kept.stage = match kept.grant.wait_ms {
                    0 => Stage::Whole,
                    wait_ms => Stage::Early(wait_ms),
                };
            }
            Err(error) => self.refuse_kept(cx, error.status(), error.reason()),
        }
        None
    }
}

/// Decision, order, process.
impl<H: Handler> Http1<H> {
    /// The request that is kept goes on if it can.
    fn go_on<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Option<Step<H::Job>> {
        let is_answered = self.is_answered(cx);
        let State::Kept(kept) = &mut self.state else { return None };
        let id = kept.id;
        match &mut kept.stage {
            Stage::Body(_) => return self.discard(cx, input),
            Stage::Deciding(None) => match cx.event.take() {
                Some(Event::Done(of, done)) if of == id => self.decide(cx, input, done),
                Some(Event::Failed(of)) if of == id => return Some(Step::Close(Closing::Reset)),
                _ => return Some(Step::Wait),
            },
            Stage::Job(None) => match cx.event.take() {
                Some(Event::Done(of, done)) if of == id => self.answer_kept(cx, input, Some(done)),
                Some(Event::Failed(of)) if of == id => return Some(Step::Close(Closing::Reset)),
                _ => return Some(Step::Wait),
            },
            Stage::Early(wait_ms) => match cx.event.take() {
                Some(Event::Due(of)) if of == id => kept.stage = Stage::Whole,
                _ => return Some(Step::NotBefore(id, *wait_ms)),
            },
            // what was answered before goes out before anything that may take long
            _ if !cx.out.is_empty() => return Some(Step::Send),
            Stage::Whole => match cx.handler.enqueue(&mut kept.grant.ticket) {
                Ok(()) => kept.stage = Stage::Ready,
                Err(refusal) => self.turn_away_kept(cx, refusal),
            },
            Stage::Deciding(job) | Stage::Job(job) => return Some(Step::Job(id, job.take()?)),
            Stage::Ready if is_answered => {
                cx.event = None;
                self.answer_kept(cx, input, None);
            }
            Stage::Ready => return Some(Step::Enqueue(id)),
            Stage::HandOver => return Some(Step::HandOver),
        }
        None
    }

    /// The job is done after which it is known who answers the request that is kept.
    fn decide<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &Input,
        done: <H::Job as Job>::Done,
    ) {
        let State::Kept(kept) = &mut self.state else { return };
        let (framing, handler) = (kept.head.framing(), &mut *cx.handler);
        let decision = kept.with(cx.peer, cx.path, |request, grant, _| {
            handler.decide(request, &mut grant.ticket, Some(done))
        });
        kept.stage = match decision {
            Decision::Job(job) => Stage::Deciding(Some(job)),
            Decision::HandOver => Stage::HandOver,
            Decision::Here => match discarding(cx, framing) {
                Ok(decoder) => {
                    ask_for_body(cx, &kept.head.view(), !input.is_empty());
                    Stage::Body(decoder)
                }
                Err(error) => return self.refuse_kept(cx, error.status(), error.reason()),
            },
        };
    }

    /// Whether requests of this one's rank are answered in this turn.
    #[inline]
    fn is_answered<S>(&self, cx: &Context<'_, H, S>) -> bool {
        cx.answers.is_some_and(|last| self.rank <= last)
    }

    /// The process stage for a request that was kept.
    fn answer_kept<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &Input,
        done: Option<<H::Job as Job>::Done>,
    ) {
        let State::Kept(mut kept) = std::mem::take(&mut self.state) else { return };
        let (stages, framing) = (kept.stages, kept.head.framing());
        let answer = kept.with(cx.peer, cx.path, |request, grant, _| {
            self.answer(cx, request, &mut grant.ticket, done, stages)
        });
        kept.stage = match answer {
            Answer::Next | Answer::Last => {
                if let Answer::Last = answer {
                    self.state = last(!input.is_empty());
                }
                if may_be_outdated(cx) {
                    kept.stage = Stage::Ready;
                    self.sending.request = Some(kept);
                }
                return;
            }
            Answer::Job(job) => Stage::Job(Some(job)),
            Answer::HandOver => Stage::HandOver,
        };
        let is_late = matches!(kept.stage, Stage::HandOver) && framing != Framing::None;
        self.state = State::Kept(kept);
        if is_late {
            // its body is gone: that was to be decided before
            self.refuse_kept(cx, 500, "the request cannot be handed over any more");
        }
    }

    /// The process stage: the handler's answer to an admitted request.
    fn answer<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        request: &Request<'_>,
        ticket: &mut H::Ticket,
        done: Option<<H::Job as Job>::Done>,
        stages: Stages,
    ) -> Answer<H::Job> {
        let keeps_alive = self.keeps_alive(request.head, cx);
        let mut reply = Reply::new(cx.out, cx.date, keeps_alive);
        reply.answers(request.head);
        reply.timeout_s = cx.announce_s;
        match cx.handler.process(request, ticket, done, &mut reply) {
            Outcome::Replied => {}
            Outcome::Job(job) => return Answer::Job(job),
            Outcome::HandOver => return Answer::HandOver,
        }
        cx.watch.lap(Activity::Process);
        let (status, bytes, keep_alive) = (reply.status, reply.body_bytes, reply.keep_alive);
        let owned = Owned::Ticket(std::mem::take(ticket));
        self.written(cx, Some(request), owned, stages, status, bytes);
        self.announced_s = cx.announce_s;
        if keep_alive { Answer::Next } else { Answer::Last }
    }

    /// Whether the connection may stay open after the answer to this request.
    fn keeps_alive<S>(&self, head: &Head<'_>, cx: &Context<'_, H, S>) -> bool {
        head.keep_alive && !cx.draining && !self.input_ended && self.served + 1 < cx.limits.requests
    }
}

/// Refusals, and what every answer leaves behind.
impl<H: Handler> Http1<H> {
    /// Answers a request that policy does not admit. What is missing of its body is not waited for.
    fn refuse_request<S: Stopwatch>(
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
    fn turn_away_kept<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>, refusal: Refusal) {
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
    fn refuse<S: Stopwatch>(
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
    fn refuse_kept<S: Stopwatch>(
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
    fn written<S: Stopwatch>(
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
    fn end(&mut self, handler: &mut H, end: Settled) {
        if let Some(line) = self.sending.line.take() {
            handler.log(line, self.sending.body_sent_bytes);
        }
        if let Some(mut ticket) = self.sending.ticket.take() {
            handler.settle(&mut ticket, end);
        }
    }
}

impl<H: Handler> Protocol<H> for Http1<H> {
    fn advance<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Step<H::Job> {
        loop {
            if cx.out.body.is_some() || cx.out.bytes.len() >= BATCH_BYTES {
                return Step::Send;
            }
            let blocked = match &self.state {
                State::Head(_) => self.receive(cx, input),
                State::Kept(_) => self.go_on(cx, input),
                State::Last(_) if !cx.out.is_empty() => Some(Step::Send),
                State::Last(closing) => Some(Step::Close(*closing)),
            };
            match blocked {
                None => continue,
                Some(Step::Receive | Step::Yield | Step::Wait | Step::NotBefore(..))
                    if !cx.out.is_empty() =>
                {
                    return Step::Send;
                }
                Some(Step::Receive) if self.input_ended => return Step::Close(Closing::Now),
                Some(step) => return step,
            }
        }
    }

    #[inline]
    fn resume(&mut self, input: &mut Input) {
        input.clear();
        if !self.held.is_empty() {
            input.fill(&std::mem::take(&mut self.held));
        }
    }

    #[inline]
    fn suspend(&mut self, input: &mut Input) {
        if !input.is_empty() {
            self.held = input.bytes().to_vec();
            input.clear();
        }
    }

    fn end_input(&mut self) {
        self.input_ended = true;
    }

    #[inline]
    fn wants_input(&self) -> bool {
        match &self.state {
            State::Head(_) => true,
            State::Kept(kept) => matches!(kept.stage, Stage::Body(_)),
            State::Last(_) => false,
        }
    }

    #[inline]
    fn body_sent(&mut self, count: u64) {
        self.sending.body_sent_bytes += count;
    }

    #[inline]
    fn sent(&mut self, handler: &mut H) {
        self.end(handler, Settled::Answered);
        self.sending.request = None;
    }

    #[cold]
    fn withdraw<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>) -> bool {
        if cx.out.earlier().is_none() || self.sending.ticket.is_none() {
            return false;
        }
        let Some(mut kept) = self.sending.request.take() else { return false };
        cx.out.withdraw();
        self.sending.line = None;
        kept.grant.ticket = self.sending.ticket.take().unwrap_or_default();
        kept.withdrawn += 1;
        self.served -= 1;
        let is_given_up = kept.withdrawn >= MOST_ATTEMPTS;
        if is_given_up {
            let (stages, head_only) = (kept.stages, kept.head.method() == Method::Head);
            kept.with(cx.peer, cx.path, |request, grant, _| {
                let owned = Owned::Ticket(std::mem::take(&mut grant.ticket));
                let reason = "the file changes again and again";
                self.refuse(cx, head_only, Some(request), owned, stages, 503, reason);
            });
        } else {
            self.state = State::Kept(kept);
        }
        true
    }

    fn abandon(&mut self, handler: &mut H) {
        self.end(handler, Settled::Cut);
        if let State::Kept(mut kept) = std::mem::take(&mut self.state) {
            handler.settle(&mut kept.grant.ticket, Settled::Cut);
        }
    }

    fn expire<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
        _: Awaited,
    ) -> Option<Closing> {
        match (self.awaits().what, std::mem::take(&mut self.state)) {
            (Await::Head, State::Head(partial)) if !self.held.is_empty() || !input.is_empty() => {
                let (is_head, stages) = (is_head(input.bytes()), whole(cx, partial.begun_ns));
                let reason = "the request took too long to arrive";
                self.refuse(cx, is_head, None, Owned::Nothing, stages, 408, reason);
            }
            (Await::Body, kept) => {
                self.state = kept;
                self.refuse_kept(cx, 408, "the request body took too long to arrive");
            }
            (Await::Job | Await::Admission, State::Kept(mut kept)) => {
                cx.handler.settle(&mut kept.grant.ticket, Settled::Expired);
                let head_only = kept.head.method() == Method::Head;
                let owned = Owned::Settled(kept.grant.ticket);
                let reason = "the request could not be processed in time";
                self.refuse(cx, head_only, None, owned, kept.stages, 503, reason);
            }
            (Await::Send, _) => return Some(Closing::Reset),
            _ => return Some(Closing::Now),
        }
        Some(Closing::Linger)
    }

    #[inline]
    fn awaits(&self) -> Awaited {
        let what = match &self.state {
            State::Head(partial)
                if self.held.is_empty() && partial.searched == 0 && self.served > 0 =>
            {
                Await::Idle
            }
            State::Head(_) => Await::Head,
            State::Kept(kept) => match kept.stage {
                Stage::Body(_) => Await::Body,
                Stage::Early(_) => Await::Admission,
                _ => Await::Job,
            },
            State::Last(_) => Await::Send,
        };
        Awaited { what, id: RequestId(self.served) }
    }

    #[inline]
    fn standing(&self, _: RequestId) -> (Rank, Option<IpAddr>) {
        (self.rank, self.client)
    }

    #[inline]
    fn rank(&self) -> Rank {
        self.rank
    }

    fn set_rank(&mut self, rank: Rank) {
        self.rank = rank;
    }

    fn is_queued(&self) -> bool {
        let State::Kept(kept) = &self.state else { return false };
        matches!(
            kept.stage,
            Stage::Early(_)
                | Stage::Whole
                | Stage::Ready
                | Stage::Deciding(Some(_))
                | Stage::Job(Some(_))
        )
    }

    #[inline]
    fn is_at_rest(&self) -> bool {
        matches!(self.state, State::Head(Partial { searched: 0, .. })) && self.held.is_empty()
    }

    #[inline]
    fn announced_s(&self) -> u32 {
        self.announced_s
    }

    fn take_handed(&mut self, input: &mut Input) -> (Vec<u8>, H::Ticket) {
        let (mut received, ticket) = match std::mem::take(&mut self.state) {
            State::Kept(kept) => (kept.head.received().to_vec(), kept.grant.ticket),
            // nothing was kept, so nothing is owned
            State::Head(_) | State::Last(_) => (Vec::new(), H::Ticket::default()),
        };
        received.extend_from_slice(input.bytes());
        input.clear();
        (received, ticket)
    }
}

/// What there is to receive of the request is there, at least its head.
#[inline]
fn whole<H: Handler, S>(cx: &mut Context<'_, H, S>, begun_ns: u64) -> Stages {
    let complete_ns = cx.handler.tick();
    Stages { begun_ns: if begun_ns == 0 { complete_ns } else { begun_ns }, complete_ns }
}

/// What finds the end of a body that is discarded.
fn discarding<H: Handler, S>(
    cx: &Context<'_, H, S>,
    framing: Framing,
) -> Result<Decoder, BodyError> {
    Decoder::new(framing, cx.limits.body_bytes, Trailers::Discard, &cx.limits.head)
}

/// The body is wanted: a client that waits for that is told so, unless it has begun already.
fn ask_for_body<H: Handler, S>(cx: &mut Context<'_, H, S>, head: &Head<'_>, has_begun: bool) {
    if head.expects_continue && !has_begun {
        cx.out.bytes.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        cx.metrics.add(Counter::Status1xx, 1);
    }
}

/// Whether the last answer is a file, which may turn out to have changed before the answer is begun.
fn may_be_outdated<H: Handler, S>(cx: &Context<'_, H, S>) -> bool {
    let body = cx.out.body.as_ref();
    body.is_some_and(|body| matches!(cx.handler.piece(body), Some(Piece::File { .. })))
}

/// The state after a last answer.
fn last<H: Handler>(is_unread: bool) -> State<H> {
    State::Last(if is_unread { Closing::Linger } else { Closing::Now })
}

/// Whether these bytes begin with a HEAD request, well-formed or not.
fn is_head(bytes: &[u8]) -> bool {
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
