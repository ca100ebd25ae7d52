//! One connection: what is remembered between two events, and what is to be done next.

use crate::handler::{
    Admitted, Handler, Outcome, Piece, Rank, Refusal, Request, Settled, Stages, Verdict,
};
use crate::input::Input;
use crate::proxy;
use crate::reply::Reply;
use crate::step::{Await, Closing, Context, Step};
use forebay_http::framing::{Framing, Skipper};
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
pub struct Conn<H: Handler> {
    state: State,
    /// Received and not yet used, while another connection has the loop's buffer.
    held: Vec<u8>,
    /// How much of the head at the front of the input is known not to hold its end.
    searched: usize,
    /// The head of a request that cannot be answered yet, or whose answer may still be withdrawn.
    parked: Vec<u8>,
    /// How many answers to it were withdrawn.
    withdrawn: u8,
    job: Option<H::Job>,
    /// The log line of the last answer written, until that is sent.
    line: Option<H::Line>,
    /// Of the admitted request, until it is answered.
    ticket: Option<H::Ticket>,
    /// Of the last answer written, until that is sent.
    answered: Option<H::Ticket>,
    /// The order of that request, or of the connection while there is none.
    rank: Rank,
    /// Whose request it is, if a proxy's connection brings those of many.
    client: Option<IpAddr>,
    /// How long that request must wait before it may be answered.
    wait_ms: u32,
    body_sent_bytes: u64,
    /// Of the request that is being received or processed; 0 where it has not come to that.
    stages: Stages,
    served: u32,
    /// Seconds the client was told that the connection is kept.
    announced_s: u32,
    input_ended: bool,
}

#[derive(Debug)]
enum State {
    /// What a proxy must say before the first head, or nothing yet.
    Proxy,
    /// A head, or nothing yet.
    Head,
    /// The parked request's body is being discarded.
    Body(Skipper),
    /// The parked request may not be answered yet.
    Early,
    /// The parked request is whole and may be answered: it is to line up.
    Whole,
    /// The parked request's job is to be started, or, if it has none, it is to be answered.
    Parked,
    /// The parked request's job is running.
    Waiting,
    /// The parked request is somebody else's.
    HandOver,
    /// The last answer is written.
    Last(Closing),
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

impl<H: Handler> Default for Conn<H> {
    fn default() -> Self {
        Conn {
            state: State::Head,
            held: Vec::new(),
            searched: 0,
            parked: Vec::new(),
            withdrawn: 0,
            job: None,
            line: None,
            ticket: None,
            answered: None,
            rank: Rank::FIRST,
            client: None,
            wait_ms: 0,
            body_sent_bytes: 0,
            stages: Stages::default(),
            served: 0,
            announced_s: 0,
            input_ended: false,
        }
    }
}

impl<H: Handler> Conn<H> {
    /// A connection on which a proxy first states its client (PROXY protocol, version 1 or 2).
    pub fn behind_proxy() -> Self {
        Conn { state: State::Proxy, ..Conn::default() }
    }

    /// Goes as far as the input and what the turn [answers](Context::answers) allow, and says what is
    /// needed to go on.
    pub fn advance<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Step<H::Job> {
        loop {
            if cx.out.body.is_some() || cx.out.bytes.len() >= BATCH_BYTES {
                return Step::Send;
            }
            let blocked = match &mut self.state {
                State::Proxy => self.receive_proxy_header(cx, input),
                State::Head => self.receive(cx, input),
                State::Body(_) => self.discard(cx, input),
                State::Waiting if cx.done.is_some() => self.answer_parked(cx, input),
                State::Waiting | State::Early => Some(Step::Wait),
                // what was answered before goes out before anything that may take long
                _ if !cx.out.is_empty() => Some(Step::Send),
                State::Whole => self.line_up(cx),
                State::Parked => match self.job.take() {
                    Some(job) => {
                        self.state = State::Waiting;
                        Some(Step::Process(job))
                    }
                    None if self.is_answered(cx) => self.answer_parked(cx, input),
                    None => Some(Step::Answer),
                },
                State::HandOver => Some(Step::HandOver),
                State::Last(closing) => Some(Step::Close(*closing)),
            };
            match blocked {
                None => continue,
                Some(Step::Receive | Step::Yield | Step::Wait) if !cx.out.is_empty() => {
                    return Step::Send;
                }
                Some(Step::Receive) if self.input_ended => return Step::Close(Closing::Now),
                Some(step) => return step,
            }
        }
    }

    /// Before the receive stage: finds out whom a proxy speaks for.
    fn receive_proxy_header<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Option<Step<H::Job>> {
        match proxy::parse(input.bytes()) {
            Ok(proxy::Parsed::Partial) => Some(Step::Receive),
            Ok(proxy::Parsed::Complete { client, len }) => {
                input.consume(len);
                self.state = State::Head;
                Some(Step::Stated(client))
            }
            // whoever speaks here is a proxy that is set up differently; no answer would reach
            // anybody who could read it
            Err(_) => {
                cx.metrics.add(Counter::RefusedProxyHeader, 1);
                Some(Step::Close(Closing::Reset))
            }
        }
    }

    /// The receive stage: finds the next head and has it answered.
    fn receive<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Option<Step<H::Job>> {
        if input.is_empty() {
            return Some(Step::Receive);
        }
        if cx.budget == 0 {
            return Some(Step::Yield);
        }
        if self.searched > 0
            && input.len() < cx.limits.head.head_bytes
            && !is_worth_parsing(input.bytes(), self.searched)
        {
            self.searched = input.len();
            return Some(Step::Receive);
        }
        let mut lines = Lines::new();
        let used = match Head::parse(input.bytes(), &mut lines, &cx.limits.head) {
            Ok(Parsed::Partial) => None,
            Ok(Parsed::Complete(head)) => {
                cx.watch.lap(Activity::Parse);
                self.complete(cx, &head, input);
                Some(head.len)
            }
            Err(error) => {
                self.refuse(cx, is_head(input.bytes()), None, error.status(), error.reason());
                Some(0)
            }
        };
        let Some(used) = used else {
            if self.stages.begun_ns == 0 {
                self.stages.begun_ns = cx.handler.tick();
            }
            self.searched = input.len();
            return Some(Step::Receive);
        };
        self.searched = 0;
        input.consume(used);
        None
    }

    /// A whole head is there: discard the body that follows it, or answer.
    fn complete<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        head: &Head<'_>,
        input: &Input,
    ) {
        let bytes = &input.bytes()[..head.len];
        let request = Request { head, peer: cx.peer };
        self.received(cx);
        self.withdrawn = 0;
        // the request before this one is over
        self.sent(cx.handler);
        match cx.handler.verdict(&request) {
            Verdict::Admit(Admitted { rank, client, wait_ms, ticket }) => {
                self.rank = rank;
                self.client = client;
                self.wait_ms = wait_ms;
                self.ticket = Some(ticket);
            }
            Verdict::Refuse(refusal) => return self.refuse_request(cx, &request, refusal),
            Verdict::Reset => return self.state = State::Last(Closing::Reset),
        }
        if head.framing == Framing::None {
            if self.wait_ms > 0 || !self.is_answered(cx) {
                self.park(bytes);
                self.admit_parked();
                return;
            }
            if let Some(refusal) = self.no_line(cx) {
                return self.refuse_request(cx, &request, refusal);
            }
            let answer = self.answer(cx, head);
            let unread = input.len() > head.len;
            return self.proceed(cx, answer, bytes, unread);
        }
        match Skipper::new(head.framing, cx.limits.body_bytes) {
            Err(error) => {
                let is_head = head.method == Method::Head;
                self.refuse(cx, is_head, Some(head), error.status(), error.reason());
            }
            Ok(skipper) => {
                if head.expects_continue && input.len() == head.len {
                    cx.out.bytes.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    cx.metrics.add(Counter::Status1xx, 1);
                }
                self.park(bytes);
                self.state = State::Body(skipper);
            }
        }
    }

    /// Skips the parked request's body; then the request is answered.
    fn discard<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Option<Step<H::Job>> {
        let State::Body(skipper) = &mut self.state else { return None };
        match skipper.skip(input.bytes()) {
            Ok(skipped) => {
                let done = skipper.is_done();
                input.consume(skipped);
                if !done {
                    return Some(Step::Receive);
                }
                self.received(cx);
                self.admit_parked();
                None
            }
            Err(error) => {
                let is_head = is_head(&self.parked);
                self.refuse(cx, is_head, None, error.status(), error.reason());
                None
            }
        }
    }

    /// The parked request is whole: it is answered when it may be.
    fn admit_parked(&mut self) {
        self.state = if self.wait_ms > 0 { State::Early } else { State::Whole };
    }

    /// The moment has come from which the admitted request may be answered.
    pub fn admit(&mut self) {
        if matches!(self.state, State::Early) {
            self.wait_ms = 0;
            self.state = State::Whole;
        }
    }

    /// From here on the parked request waits for nobody but the server.
    fn line_up<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>) -> Option<Step<H::Job>> {
        match self.no_line(cx) {
            None => self.state = State::Parked,
            Some(refusal) => self.with_parked(cx, |conn, cx, head, _| {
                let request = Request { head, peer: cx.peer };
                conn.refuse_request(cx, &request, refusal);
            }),
        }
        None
    }

    /// What the admitted request is told if it may not line up.
    #[inline]
    fn no_line<S>(&mut self, cx: &mut Context<'_, H, S>) -> Option<Refusal> {
        self.ticket.as_mut().and_then(|ticket| cx.handler.line_up(ticket).err())
    }

    /// Whether requests of this one's rank are answered in this turn.
    #[inline]
    fn is_answered<S>(&self, cx: &Context<'_, H, S>) -> bool {
        cx.answers.is_some_and(|last| self.rank <= last)
    }

    /// The process stage for a request whose head was put aside.
    fn answer_parked<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Option<Step<H::Job>> {
        let unread = !input.is_empty();
        self.with_parked(cx, |conn, cx, head, bytes| {
            let answer = conn.answer(cx, head);
            conn.proceed(cx, answer, bytes, unread);
        });
        None
    }

    /// Takes the head that was put aside, and does something with it.
    fn with_parked<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        act: impl FnOnce(&mut Self, &mut Context<'_, H, S>, &Head<'_>, &[u8]),
    ) {
        let parked = std::mem::take(&mut self.parked);
        let mut lines = Lines::new();
        match Head::parse(&parked, &mut lines, &cx.limits.head) {
            Ok(Parsed::Complete(head)) => act(self, cx, &head, &parked),
            // Limits may have become tighter since it was parked.
            Ok(Parsed::Partial) => {
                self.refuse(cx, false, None, 431, "the request head is too large")
            }
            Err(error) => self.refuse(cx, false, None, error.status(), error.reason()),
        }
    }

    /// The process stage: the handler's answer to an admitted request.
    fn answer<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        head: &Head<'_>,
    ) -> Answer<H::Job> {
        let request = Request { head, peer: cx.peer };
        let keeps_alive = self.keeps_alive(head, cx);
        // every admitted request has one
        let Some(ticket) = &mut self.ticket else { return Answer::Last };
        let mut reply = Reply::new(cx.out, cx.date, keeps_alive);
        reply.answers(head);
        reply.timeout_s = cx.announce_s;
        match cx.handler.process(&request, ticket, cx.done.take(), &mut reply) {
            Outcome::Replied => {}
            Outcome::Job(job) => return Answer::Job(job),
            Outcome::HandOver => return Answer::HandOver,
        }
        cx.watch.lap(Activity::Process);
        let (status, bytes, keep_alive) = (reply.status, reply.body_bytes, reply.keep_alive);
        self.written(cx, Some(&request), status, bytes);
        self.announced_s = cx.announce_s;
        if keep_alive { Answer::Next } else { Answer::Last }
    }

    /// Answers a request that policy does not admit. What is missing of its body is not waited for.
    fn refuse_request<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        request: &Request<'_>,
        refusal: Refusal,
    ) {
        let is_whole = request.head.framing == Framing::None || matches!(self.state, State::Whole);
        let keep_alive = is_whole && self.keeps_alive(request.head, cx);
        let mut reply = Reply::new(cx.out, cx.date, keep_alive);
        reply.answers(request.head);
        cx.handler.turn_away(refusal, &mut reply);
        let (status, bytes, keep_alive) = (reply.status, reply.body_bytes, reply.keep_alive);
        self.written(cx, Some(request), status, bytes);
        self.state = if keep_alive { State::Head } else { State::Last(Closing::Linger) };
    }

    /// Whether the connection may stay open after the answer to this request.
    fn keeps_alive<S>(&self, head: &Head<'_>, cx: &Context<'_, H, S>) -> bool {
        head.keep_alive && !cx.draining && !self.input_ended && self.served + 1 < cx.limits.requests
    }

    /// Moves to the state an answer leads to. `head` is the request's head, `unread` whether more
    /// input has come after it.
    fn proceed<S>(
        &mut self,
        cx: &Context<'_, H, S>,
        answer: Answer<H::Job>,
        head: &[u8],
        unread: bool,
    ) {
        // a file may turn out to have changed before any of the answer was sent
        let body = cx.out.body.as_ref();
        if body.is_some_and(|body| matches!(cx.handler.piece(body), Some(Piece::File { .. }))) {
            self.park(head);
        }
        self.state = match answer {
            Answer::Next => State::Head,
            Answer::Last if unread => State::Last(Closing::Linger),
            Answer::Last => State::Last(Closing::Now),
            Answer::Job(job) => {
                self.park(head);
                self.job = Some(job);
                State::Parked
            }
            Answer::HandOver => {
                self.park(head);
                State::HandOver
            }
        };
    }

    /// Answers what cannot be served, and ends the connection: what follows cannot be trusted to
    /// be a request.
    fn refuse<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        head_only: bool,
        head: Option<&Head<'_>>,
        status: u16,
        reason: &'static str,
    ) {
        let mut reply = Reply::new(cx.out, cx.date, false);
        reply.head_only = head_only;
        cx.handler.refuse(status, reason, &mut reply);
        let (status, bytes) = (reply.status, reply.body_bytes);
        let request = head.map(|head| Request { head, peer: cx.peer });
        self.written(cx, request.as_ref(), status, bytes);
        self.parked = Vec::new();
        self.state = State::Last(Closing::Linger);
    }

    /// What there is to receive of the request is there.
    fn received<S>(&mut self, cx: &mut Context<'_, H, S>) {
        let complete_ns = cx.handler.tick();
        if self.stages.begun_ns == 0 {
            self.stages.begun_ns = complete_ns;
        }
        self.stages.complete_ns = complete_ns;
    }

    /// An answer is in [`Out`](crate::Out): count it and begin its log line.
    fn written<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        request: Option<&Request<'_>>,
        status: u16,
        body_bytes: u64,
    ) {
        self.served += 1;
        cx.budget = cx.budget.saturating_sub(1);
        cx.metrics.add(Counter::of_status(status), 1);
        self.sent(cx.handler);
        self.answered = self.ticket.take();
        if self.stages.complete_ns == 0 {
            self.received(cx);
        }
        let stages = std::mem::take(&mut self.stages);
        self.line = cx.handler.line(cx.peer, request, self.answered.as_ref(), status, stages);
        self.body_sent_bytes = if cx.out.body.is_some() { 0 } else { body_bytes };
    }

    fn park(&mut self, head: &[u8]) {
        if self.parked.is_empty() {
            self.parked = head.to_vec();
        }
    }

    /// Puts what was kept in front of the loop's input. Call before anything else in a turn.
    pub fn resume(&mut self, input: &mut Input) {
        input.clear();
        if !self.held.is_empty() {
            input.fill(&std::mem::take(&mut self.held));
        }
    }

    /// Keeps what is left in the loop's input. Call at the end of a turn.
    pub fn suspend(&mut self, input: &mut Input) {
        if !input.is_empty() {
            self.held = input.bytes().to_vec();
            input.clear();
        }
    }

    /// The client will send no more. What it asked for before is still answered.
    pub fn end_input(&mut self) {
        self.input_ended = true;
    }

    /// `count` bytes of the body in [`Out`](crate::Out) have been sent.
    pub fn body_sent(&mut self, count: u64) {
        self.body_sent_bytes += count;
    }

    /// All of [`Out`](crate::Out) has been sent: what was answered is over, and its log line ends.
    #[inline]
    pub fn sent(&mut self, handler: &mut H) {
        self.end(handler, Settled::Answered);
        if !self.parked.is_empty() && matches!(self.state, State::Head | State::Last(_)) {
            self.parked = Vec::new();
        }
    }

    /// The file of the last answer in [`Out`](crate::Out) has changed, and nothing of that answer was
    /// sent: it is taken out again, and its request is answered anew; if that has happened often
    /// already, with a 503. The answer that is withdrawn has no log line, but stays counted by its
    /// status. Returns `false` if the answer cannot be withdrawn, and nothing is changed.
    #[cold]
    pub fn withdraw<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>) -> bool {
        if self.parked.is_empty()
            || !matches!(self.state, State::Head | State::Last(_))
            || self.answered.is_none()
            || cx.out.earlier().is_none()
        {
            return false;
        }
        cx.out.withdraw();
        self.line = None;
        self.ticket = self.answered.take();
        self.served -= 1;
        self.withdrawn += 1;
        self.state = State::Parked;
        if self.withdrawn >= MOST_ATTEMPTS {
            self.with_parked(cx, |conn, cx, head, _| {
                let is_head = head.method == Method::Head;
                conn.refuse(cx, is_head, Some(head), 503, "the file changes again and again");
            });
        }
        true
    }

    /// The connection ends, whatever is under way.
    pub fn abandon(&mut self, handler: &mut H) {
        self.end(handler, Settled::Cut);
        if let Some(ticket) = self.ticket.take() {
            handler.settle(ticket, Settled::Cut);
        }
    }

    #[inline]
    fn end(&mut self, handler: &mut H, end: Settled) {
        if let Some(line) = self.line.take() {
            handler.log(line, self.body_sent_bytes);
        }
        if let Some(ticket) = self.answered.take() {
            handler.settle(ticket, end);
        }
    }

    /// The time for what was awaited is over. Writes a last answer where one helps.
    pub fn expire<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Step<H::Job> {
        let is_head = is_head(if self.parked.is_empty() { input.bytes() } else { &self.parked });
        match self.awaits() {
            _ if matches!(self.state, State::Proxy) => self.state = State::Last(Closing::Now),
            Await::Head if !self.held.is_empty() || !input.is_empty() => {
                self.refuse(cx, is_head, None, 408, "the request took too long to arrive");
            }
            Await::Body => {
                self.refuse(cx, is_head, None, 408, "the request body took too long to arrive")
            }
            Await::Job | Await::Admission => {
                if let Some(ticket) = self.ticket.take() {
                    cx.handler.settle(ticket, Settled::Expired);
                }
                self.refuse(cx, is_head, None, 503, "the request could not be processed in time");
            }
            Await::Idle | Await::Head => self.state = State::Last(Closing::Now),
            Await::Send => self.state = State::Last(Closing::Reset),
        }
        self.advance(cx, input)
    }

    /// What is awaited, apart from a send that is under way, which the engine knows.
    pub fn awaits(&self) -> Await {
        match self.state {
            State::Head if self.held.is_empty() && self.searched == 0 && self.served > 0 => {
                Await::Idle
            }
            State::Head | State::Proxy => Await::Head,
            State::Body(_) => Await::Body,
            State::Whole | State::Parked | State::Waiting | State::HandOver => Await::Job,
            State::Early => Await::Admission,
            State::Last(_) => Await::Send,
        }
    }

    /// Whether an admitted request waits for its moment or its turn, and nothing was done for it.
    pub fn is_in_line(&self) -> bool {
        matches!(self.state, State::Early | State::Whole | State::Parked)
    }

    /// The order in which it is served relative to others.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Whose request it is, if that is not whose connection it is.
    pub fn client(&self) -> Option<IpAddr> {
        self.client
    }

    /// The order of all it asks for until a request says otherwise.
    pub fn set_rank(&mut self, rank: Rank) {
        self.rank = rank;
    }

    /// How long it must still wait when it [awaits](Conn::awaits) [`Await::Admission`].
    pub fn wait_ms(&self) -> u32 {
        self.wait_ms
    }

    /// Whether nothing of a request has been received.
    pub fn is_at_rest(&self) -> bool {
        matches!(self.state, State::Head | State::Proxy)
            && self.held.is_empty()
            && self.searched == 0
    }

    /// Seconds the client was told that the connection is kept, with the last answer; 0 if it was
    /// told nothing.
    pub fn announced_s(&self) -> u32 {
        self.announced_s
    }

    /// How many requests were answered.
    pub fn served(&self) -> u32 {
        self.served
    }

    /// Takes the bytes of a request that is handed over: its head and all that came after it.
    pub fn take_received(&mut self, input: &mut Input) -> Vec<u8> {
        let mut received = std::mem::take(&mut self.parked);
        received.extend_from_slice(input.bytes());
        input.clear();
        received
    }
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
