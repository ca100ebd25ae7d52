//! The protocol: messages of many requests, interleaved. Some requests go to an upstream, and a
//! connection may become a tunnel to one.

use super::client::{ANSWER, ASK, CHUNK, DATA, DONE, END, HEADER, RESET, UPGRADE, header, message};
use super::handler::{Body, Done, Mode, Ticket, ToyHandler, Work};
use super::kit::Kit;
use forebay_conn::handler::body::BodyRead;
use forebay_conn::*;
use forebay_http::head::{Head, Lines, ParsedHead};
use forebay_metrics::{Counter, Stopwatch};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The bytes waiting for the client from which on nothing is added that can wait.
const OUT_BYTES: usize = 64 * 1024;
/// The most bytes that are held for an upstream.
const UP_BYTES: usize = 64 * 1024;
/// The largest number of requests at a time.
const MOST: usize = 64;
const CHUNK_BYTES: usize = 16 * 1024;

/// The reasons for which requests are reset.
pub(super) const FAILED: u8 = 1;
pub(super) const EXPIRED: u8 = 2;
pub(super) const DRAINING: u8 = 3;
pub(super) const UNFIT: u8 = 4;
pub(super) const POLICY: u8 = 5;

type Cx<'c, M, S> = Context<'c, ToyHandler<M>, S>;

#[derive(Default)]
pub(super) struct Toy {
    held: Vec<u8>,
    requests: Vec<Kept>,
    tunnel: Option<Tunnel>,
    /// Answers in [`Out`]: the log line of each, with its ticket and the bytes of its body.
    leaving: Vec<(Option<u16>, Ticket, u64)>,
    next: u32,
    rank: Rank,
    input_ended: bool,
    /// The next message cannot be taken yet.
    is_stuck: bool,
    closing: Option<Closing>,
}

struct Kept {
    /// The client's number for the request.
    number: u32,
    exchange: KeptRequest<Ticket, Stage>,
    line: Option<u16>,
    body_bytes: u64,
}

enum Stage {
    /// The request was judged.
    New,
    /// The request waits for its time.
    Early,
    /// The request waits for nothing but the server, and is enqueued next.
    Whole,
    /// The request waits for its turn.
    Ready,
    /// The request waits for this job; `None` while it is running.
    Job(Option<Work>),
    /// The body of the answer is being sent.
    Body(Body),
    /// The body is sent after this job; `None` while it is running.
    Warming(Body, Option<Work>),
    /// An upstream answers.
    Up(Upstream),
}

/// A socket to an upstream.
struct Upstream {
    socket: UnixStream,
    socket_id: SocketId,
    /// Bytes for the upstream.
    to: Vec<u8>,
    can_read: bool,
    can_write: bool,
    /// The client has sent all.
    is_whole: bool,
    /// The upstream has learned that.
    is_told: bool,
    /// Something has arrived from the upstream.
    has_begun: bool,
    has_ended: bool,
}

struct Tunnel {
    kept: Kept,
    up: Upstream,
    /// The client has learned that the upstream has ended.
    said_end: bool,
}

impl Upstream {
    fn new(socket: UnixStream) -> Upstream {
        Upstream {
            socket,
            socket_id: SocketId::new(),
            to: Vec::new(),
            can_read: true,
            can_write: true,
            is_whole: false,
            is_told: false,
            has_begun: false,
            has_ended: false,
        }
    }

    /// Gives the upstream what it takes.
    fn write(&mut self, kit: &Kit) -> io::Result<()> {
        kit.holds(self.to.len());
        while self.can_write && !self.to.is_empty() {
            match self.socket.write(&self.to) {
                Ok(count) => _ = self.to.drain(..count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.can_write = false,
                Err(error) => return Err(error),
            }
        }
        if self.to.is_empty() && self.is_whole && !std::mem::replace(&mut self.is_told, true) {
            self.socket.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }

    /// Takes at most what fits in `buffer`; nothing if there is nothing now, or no more.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.can_read || self.has_ended {
            return Ok(0);
        }
        match self.socket.read(buffer) {
            Ok(count) => {
                self.has_begun = true;
                self.has_ended = count == 0;
                Ok(count)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.can_read = false;
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    fn wants(&self) -> Wants {
        // a direction that is ready already waits for room elsewhere
        let (read, write) = (!self.can_read, !self.can_write);
        Wants { read: read && !self.has_ended, write: write && !self.to.is_empty() }
    }
}

impl Kept {
    fn id(&self) -> RequestId {
        self.exchange.id
    }

    /// What the request waits for, if there is a time for that.
    fn awaits(&self) -> Option<Awaited> {
        let what = match &self.exchange.stage {
            Stage::Early => Await::Admission,
            Stage::Body(_) => return None,
            Stage::Up(up) if up.has_begun => return None,
            _ => Await::Job,
        };
        Some(Awaited { what, id: self.id() })
    }
}

impl Toy {
    fn at(&self, id: RequestId) -> Option<usize> {
        self.requests.iter().position(|kept| kept.id() == id)
    }

    fn numbered(&mut self, number: u32) -> Option<&mut Kept> {
        self.requests.iter_mut().find(|kept| kept.number == number)
    }

    /// Notes what has happened to a request, if that is still there.
    fn happened<M: Mode, S: Stopwatch>(
        &mut self,
        cx: &mut Cx<'_, M, S>,
        event: RequestEvent<Done>,
    ) {
        let (RequestEvent::Done(id, _)
        | RequestEvent::Failed(id)
        | RequestEvent::Called(id)
        | RequestEvent::Due(id)
        | RequestEvent::Socket(id)) = event;
        if let Some(tunnel) = &mut self.tunnel
            && tunnel.kept.id() == id
        {
            (tunnel.up.can_read, tunnel.up.can_write) = (true, true);
        }
        let Some(at) = self.at(id) else { return };
        let stage = &mut self.requests[at].exchange.stage;
        match (event, std::mem::replace(stage, Stage::New)) {
            (RequestEvent::Done(_, done), Stage::Job(None)) => self.answer(cx, at, Some(done)),
            (RequestEvent::Done(_, Done::Warm), Stage::Warming(body, None)) => {
                *stage = Stage::Body(body)
            }
            (RequestEvent::Failed(_), Stage::Job(None) | Stage::Warming(_, None)) => {
                self.reset(cx, at, FAILED, Settled::Cut);
            }
            (RequestEvent::Called(_), Stage::Ready) => self.answer(cx, at, None),
            (RequestEvent::Due(_), Stage::Early) => *stage = Stage::Whole,
            (RequestEvent::Socket(_), Stage::Up(mut up)) => {
                (up.can_read, up.can_write) = (true, true);
                *stage = Stage::Up(up);
            }
            (_, before) => *stage = before,
        }
    }

    /// Lets every request go as far as it can.
    fn go_on<M: Mode, S: Stopwatch>(
        &mut self,
        cx: &mut Cx<'_, M, S>,
        is_fresh: bool,
    ) -> Option<Step<Work>> {
        let mut at = 0;
        while at < self.requests.len() {
            let count = self.requests.len();
            let kept = &mut self.requests[at];
            let (id, rank) = (kept.id(), kept.exchange.grant.rank);
            let wait_ms = kept.exchange.grant.wait_ms;
            let first = is_fresh && !cx.out.is_empty();
            match &mut kept.exchange.stage {
                stage @ Stage::New => {
                    *stage = if wait_ms > 0 { Stage::Early } else { Stage::Whole };
                    if wait_ms > 0 {
                        return Some(Step::NotBefore(id, wait_ms));
                    }
                    continue;
                }
                // earlier answers go out before anything that may take long
                Stage::Whole | Stage::Job(Some(_)) | Stage::Warming(_, Some(_)) if first => {
                    return Some(Step::Send);
                }
                Stage::Whole => match cx.handler.enqueue(&mut kept.exchange.grant.ticket) {
                    Err(refusal) => self.refuse(cx, at, refusal),
                    Ok(()) if cx.answers.is_some_and(|last| rank <= last) => {
                        self.answer(cx, at, None);
                        continue;
                    }
                    Ok(()) => {
                        kept.exchange.stage = Stage::Ready;
                        return Some(Step::Enqueue(id));
                    }
                },
                Stage::Job(job @ Some(_)) | Stage::Warming(_, job @ Some(_)) => {
                    return Some(Step::Job(id, job.take()?));
                }
                Stage::Body(_) => self.stream(cx, at),
                Stage::Up(_) => self.pump(cx, at),
                Stage::Early | Stage::Ready | Stage::Job(None) | Stage::Warming(_, None) => {}
            }
            let is_gone = self.requests.len() < count;
            let has_job =
                !is_gone && matches!(self.requests[at].exchange.stage, Stage::Warming(_, Some(_)));
            if !is_gone && !has_job {
                at += 1;
            }
        }
        None
    }

    /// Asks the handler for the answer.
    fn answer<M: Mode, S: Stopwatch>(
        &mut self,
        cx: &mut Cx<'_, M, S>,
        at: usize,
        done: Option<Done>,
    ) {
        let kept = &mut self.requests[at];
        let mut page = Out::default();
        let (handler, date, stages) = (&mut *cx.handler, cx.date, kept.exchange.stages);
        let (peer, line) = (cx.peer, &mut kept.line);
        let (outcome, status) = kept.exchange.with(cx.peer, cx.path, |request, grant, stage| {
            if request.head.path.starts_with(b"/up") {
                let answered = Answered {
                    peer,
                    request: Some(request),
                    ticket: Some(&grant.ticket),
                    status: 200,
                    stages,
                };
                *line = handler.line(&answered);
                let socket = handler.upstream(request.head.path);
                *stage = Stage::Up(Upstream::new(socket));
                return (None, 200);
            }
            let mut reply = Reply::new(&mut page, date, true);
            reply.answers(request.head);
            let outcome = handler.process(request, &mut grant.ticket, done, &mut reply);
            let status = reply.status();
            if let ProcessOutcome::Replied = outcome {
                let ticket = Some(&grant.ticket);
                let answered = Answered { peer, request: Some(request), ticket, status, stages };
                *line = handler.line(&answered);
            }
            (Some(outcome), status)
        });
        let number = kept.number;
        match outcome {
            Some(ProcessOutcome::Relay(none)) => match none {},
            Some(ProcessOutcome::Job(job)) => kept.exchange.stage = Stage::Job(Some(job)),
            Some(ProcessOutcome::HandOver) => self.reset(cx, at, UNFIT, Settled::Cut),
            Some(ProcessOutcome::Replied) => {
                cx.budget = cx.budget.saturating_sub(1);
                let bytes = &mut cx.out.bytes;
                message(number, ANSWER, &status.to_be_bytes(), bytes);
                let head = page.bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
                for chunk in page.bytes[head..].chunks(CHUNK_BYTES) {
                    message(number, CHUNK, chunk, bytes);
                    kept.body_bytes += chunk.len() as u64;
                }
                match page.body {
                    None => self.finish(cx, at, status),
                    Some(mut body) => {
                        cx.handler.hold(&mut body);
                        kept.exchange.stage = Stage::Body(body);
                    }
                }
            }
            None => message(number, ANSWER, &status.to_be_bytes(), &mut cx.out.bytes),
        }
    }

    /// Adds more of the body of an answer.
    fn stream<M: Mode, S: Stopwatch>(&mut self, cx: &mut Cx<'_, M, S>, at: usize) {
        let kept = &mut self.requests[at];
        let mut buffer = [0; CHUNK_BYTES];
        let Stage::Body(body) = &mut kept.exchange.stage else { return };
        while cx.out.bytes.len() < OUT_BYTES {
            match cx.handler.read(body, &mut buffer) {
                BodyRead::Bytes(count) => {
                    message(kept.number, CHUNK, &buffer[..count], &mut cx.out.bytes);
                    kept.body_bytes += count as u64;
                }
                BodyRead::Cold => {
                    let Some(job) = cx.handler.warm(body) else {
                        return self.reset(cx, at, FAILED, Settled::Cut);
                    };
                    let stage = std::mem::replace(&mut kept.exchange.stage, Stage::New);
                    if let Stage::Body(body) = stage {
                        kept.exchange.stage = Stage::Warming(body, Some(job));
                    }
                    return;
                }
                BodyRead::Changed => return self.reset(cx, at, FAILED, Settled::Cut),
                BodyRead::End => return self.finish(cx, at, 200),
            }
        }
    }

    /// Passes bytes in both directions between a request and its upstream.
    fn pump<M: Mode, S: Stopwatch>(&mut self, cx: &mut Cx<'_, M, S>, at: usize) {
        let kept = &mut self.requests[at];
        let mut buffer = [0; CHUNK_BYTES];
        let Stage::Up(up) = &mut kept.exchange.stage else { return };
        // an upstream that takes no more may still answer
        let _ = up.write(&cx.handler.kit);
        while cx.out.bytes.len() < OUT_BYTES {
            match up.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    message(kept.number, CHUNK, &buffer[..count], &mut cx.out.bytes);
                    kept.body_bytes += count as u64;
                }
                Err(_) => return self.reset(cx, at, FAILED, Settled::Cut),
            }
        }
        cx.handler.kit.holds(cx.out.bytes.len());
        if up.has_ended {
            self.finish(cx, at, 200);
        }
    }

    /// Ends an answer that is written as a whole.
    fn finish<M: Mode, S>(&mut self, cx: &mut Cx<'_, M, S>, at: usize, status: u16) {
        let kept = self.requests.remove(at);
        message(kept.number, DONE, &[], &mut cx.out.bytes);
        cx.metrics.add(Counter::of_status(status), 1);
        self.leaving.push((kept.line, kept.exchange.grant.ticket, kept.body_bytes));
    }

    /// Refuses a request that policy does not admit.
    fn refuse<M: Mode, S>(&mut self, cx: &mut Cx<'_, M, S>, at: usize, refusal: Refusal) {
        let kept = &mut self.requests[at];
        let mut page = Out::default();
        let (peer, stages) = (cx.peer, kept.exchange.stages);
        let mut reply = Reply::new(&mut page, cx.date, true);
        cx.handler.turn_away(refusal, None, &mut reply);
        let status = reply.status();
        let handler = &mut *cx.handler;
        kept.line = kept.exchange.with(cx.peer, cx.path, |request, grant, _| {
            let ticket = Some(&grant.ticket);
            handler.line(&Answered { peer, request: Some(request), ticket, status, stages })
        });
        message(kept.number, ANSWER, &status.to_be_bytes(), &mut cx.out.bytes);
        self.finish(cx, at, status);
    }

    /// Resets a request without an answer, or within it.
    fn reset<M: Mode, S>(&mut self, cx: &mut Cx<'_, M, S>, at: usize, why: u8, end: Settled) {
        let mut kept = self.requests.remove(at);
        message(kept.number, RESET, &[why], &mut cx.out.bytes);
        give_up(cx.handler, &mut kept, end);
    }

    /// Takes the next message, if it is there and can be taken.
    fn receive<M: Mode, S: Stopwatch>(
        &mut self,
        cx: &mut Cx<'_, M, S>,
        input: &mut Input,
    ) -> Option<Step<Work>> {
        let whole = match header(input.bytes()) {
            Some((_, _, len)) if len > CHUNK_BYTES => {
                self.closing = Some(Closing::Reset);
                return None;
            }
            Some((number, kind, len)) if input.len() >= HEADER + len => Some((number, kind, len)),
            _ => None,
        };
        let Some((number, kind, len)) = whole else {
            return Some(match (self.input_ended, self.requests.is_empty()) {
                (false, _) => Step::Receive,
                (true, false) => Step::Wait,
                (true, true) => Step::Close(Closing::Now),
            });
        };
        let end = HEADER + len;
        match kind {
            ASK | UPGRADE if cx.budget == 0 => return Some(Step::Yield),
            ASK | UPGRADE if self.requests.len() >= MOST || cx.out.bytes.len() >= OUT_BYTES => {
                self.is_stuck = true;
                return Some(Step::Wait);
            }
            ASK | UPGRADE => {
                let path = input.bytes()[HEADER..end].to_vec();
                input.consume(end);
                self.judge(cx, number, kind, &path);
            }
            DATA | END => {
                if let Some(kept) = self.numbered(number) {
                    let Stage::Up(up) = &mut kept.exchange.stage else {
                        // the request is not answered yet, and its body waits for that
                        let is_later = kept.exchange.head.view().path.starts_with(b"/up");
                        self.is_stuck = is_later;
                        if is_later {
                            return Some(Step::Wait);
                        }
                        input.consume(end);
                        return None;
                    };
                    if !up.to.is_empty() && up.to.len() + len > UP_BYTES {
                        self.is_stuck = true;
                        return Some(Step::Wait);
                    }
                    up.to.extend(&input.bytes()[HEADER..end]);
                    up.is_whole |= kind == END;
                }
                input.consume(end);
            }
            RESET => {
                input.consume(end);
                if let Some(at) = self.requests.iter().position(|kept| kept.number == number) {
                    let mut kept = self.requests.remove(at);
                    give_up(cx.handler, &mut kept, Settled::Cut);
                    return Some(Step::Forget(kept.id()));
                }
            }
            _ => self.closing = Some(Closing::Reset),
        }
        None
    }

    /// Judges a request that is there.
    fn judge<M: Mode, S: Stopwatch>(
        &mut self,
        cx: &mut Cx<'_, M, S>,
        number: u32,
        kind: u8,
        path: &[u8],
    ) {
        let mut refuse = |why| message(number, RESET, &[why], &mut cx.out.bytes);
        if cx.draining {
            return refuse(DRAINING);
        }
        let bytes = [b"GET ", path, b" HTTP/1.1\r\nHost: toy\r\n\r\n"].concat();
        let mut lines = Lines::new();
        let Ok(ParsedHead::Complete(head)) = Head::parse(&bytes, &mut lines, &cx.limits.head)
        else {
            return refuse(UNFIT);
        };
        cx.path.forget();
        let request = Request::new(&head, cx.peer, cx.path);
        let complete_ns = cx.handler.tick();
        let stages = ArrivalTimes { begun_ns: complete_ns, complete_ns };
        let (refusal, admitted) = match cx.handler.verdict(&request, &mut ()) {
            Verdict::Admit(admitted) => (None, admitted),
            Verdict::Refuse(refusal, ticket) => {
                (Some(refusal), Admitted::at_once(self.rank, ticket))
            }
            Verdict::Reset => return refuse(POLICY),
        };
        let Admitted { rank, client, wait_ms, ticket, is_last: _ } = admitted;
        let grant = Grant { rank, client, wait_ms, ticket };
        let id = RequestId(self.next);
        (self.next, self.rank) = (self.next + 1, rank);
        let exchange = KeptRequest::keep(id, &request, &bytes, grant, stages, Stage::New);
        self.requests.push(Kept { number, exchange, line: None, body_bytes: 0 });
        let at = self.requests.len() - 1;
        match refusal {
            Some(refusal) => self.refuse(cx, at, refusal),
            None if kind == UPGRADE && at > 0 => self.reset(cx, at, UNFIT, Settled::Cut),
            None if kind == UPGRADE => {
                let Some(kept) = self.requests.pop() else { return };
                message(number, ANSWER, &101u16.to_be_bytes(), &mut cx.out.bytes);
                let up = Upstream::new(cx.handler.upstream(path));
                self.tunnel = Some(Tunnel { kept, up, said_end: false });
            }
            None => {}
        }
    }

    /// Passes bytes in both directions of a tunnel.
    fn pass_on<M: Mode, S: Stopwatch>(
        &mut self,
        cx: &mut Cx<'_, M, S>,
        input: &mut Input,
    ) -> Option<Step<Work>> {
        let Tunnel { up, said_end, .. } = self.tunnel.as_mut()?;
        loop {
            let count = UP_BYTES.saturating_sub(up.to.len()).min(input.len());
            up.to.extend(&input.bytes()[..count]);
            input.consume(count);
            up.is_whole = self.input_ended && input.is_empty();
            if up.write(&cx.handler.kit).is_err() {
                return Some(Step::Close(Closing::Reset));
            }
            if input.is_empty() || up.to.len() >= UP_BYTES {
                break;
            }
        }
        self.is_stuck = up.to.len() >= UP_BYTES;
        let mut buffer = [0; CHUNK_BYTES];
        while cx.out.bytes.len() < OUT_BYTES {
            match up.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => cx.out.bytes.extend(&buffer[..count]),
                Err(_) => return Some(Step::Close(Closing::Reset)),
            }
        }
        cx.handler.kit.holds(cx.out.bytes.len());
        if up.has_ended && cx.out.is_empty() && !std::mem::replace(said_end, true) {
            return Some(Step::End);
        }
        Some(match (self.input_ended, self.is_stuck) {
            (true, _) if up.is_told && *said_end => {
                self.closing = Some(Closing::Now);
                return None;
            }
            (true, _) | (false, true) => Step::Wait,
            (false, false) => Step::Receive,
        })
    }
}

/// Gives up a request that ends without an answer.
fn give_up<M: Mode>(handler: &mut ToyHandler<M>, kept: &mut Kept, end: Settled) {
    if let Some(line) = kept.line.take() {
        handler.log(line, kept.body_bytes);
    }
    handler.settle(&mut kept.exchange.grant.ticket, end);
}

impl<M: Mode> Protocol<ToyHandler<M>> for Toy {
    fn advance<S: Stopwatch>(&mut self, cx: &mut Cx<'_, M, S>, input: &mut Input) -> Step<Work> {
        assert!(cx.out.body.is_none(), "nothing is left behind here");
        // with earlier output the client takes nothing, and only what can be done besides is done
        let is_fresh = cx.out.is_empty();
        self.is_stuck = false;
        loop {
            if let Some(event) = cx.event.take() {
                self.happened(cx, event);
            }
            if let Some(step) = self.go_on(cx, is_fresh) {
                return step;
            }
            if is_fresh && cx.out.bytes.len() >= OUT_BYTES {
                return Step::Send;
            }
            let step = match self.closing {
                Some(closing) => Some(Step::Close(closing)),
                None if self.tunnel.is_some() => self.pass_on(cx, input),
                None => self.receive(cx, input),
            };
            match step {
                None => {}
                Some(Step::Receive | Step::Wait | Step::Yield | Step::Close(_))
                    if is_fresh && !cx.out.is_empty() =>
                {
                    return Step::Send;
                }
                Some(step) => return step,
            }
        }
    }

    fn resume(&mut self, input: &mut Input) {
        input.clear();
        if !self.held.is_empty() {
            input.fill(&std::mem::take(&mut self.held));
        }
    }

    fn suspend(&mut self, input: &mut Input) {
        self.held = input.bytes().to_vec();
        input.clear();
    }

    fn end_input(&mut self) {
        assert!(!std::mem::replace(&mut self.input_ended, true), "told of the end twice");
    }

    fn wants_input(&self) -> bool {
        !self.input_ended && !self.is_stuck && self.closing.is_none()
    }

    fn goes_on(&self) -> bool {
        true
    }

    fn body_sent(&mut self, count: u64) {
        assert_eq!(count, 0, "nothing is left behind here");
    }

    fn sent(&mut self, handler: &mut ToyHandler<M>) {
        for (line, mut ticket, bytes) in self.leaving.drain(..) {
            if let Some(line) = line {
                handler.log(line, bytes);
            }
            handler.settle(&mut ticket, Settled::Answered);
        }
    }

    fn abandon(&mut self, handler: &mut ToyHandler<M>, _: &Peer) {
        for (line, mut ticket, bytes) in self.leaving.drain(..) {
            if let Some(line) = line {
                handler.log(line, bytes);
            }
            handler.settle(&mut ticket, Settled::Cut);
        }
        for mut kept in self.requests.drain(..) {
            give_up(handler, &mut kept, Settled::Cut);
        }
        if let Some(mut tunnel) = self.tunnel.take() {
            let end = if tunnel.said_end { Settled::Answered } else { Settled::Cut };
            give_up(handler, &mut tunnel.kept, end);
        }
    }

    fn expire<S: Stopwatch>(
        &mut self,
        cx: &mut Cx<'_, M, S>,
        _: &mut Input,
        awaited: Awaited,
    ) -> Option<Closing> {
        match awaited.what {
            Await::Job => {
                if let Some(at) = self.at(awaited.id) {
                    self.reset(cx, at, EXPIRED, Settled::Expired);
                }
                None
            }
            Await::Send => Some(Closing::Reset),
            _ => Some(Closing::Now),
        }
    }

    fn awaits(&self) -> Awaited {
        if let Some(awaited) = self.requests.iter().find_map(Kept::awaits) {
            return awaited;
        }
        let what = if self.closing.is_some() {
            Await::Send
        } else if !self.requests.is_empty() || self.tunnel.is_some() {
            // for an upstream or its client; no time is set for either
            Await::Admission
        } else if self.held.is_empty() && self.next > 0 {
            Await::Idle
        } else {
            Await::Head
        };
        Awaited { what, id: RequestId(self.next) }
    }

    fn also_awaits(&self, tell: &mut dyn FnMut(Awaited)) {
        self.requests.iter().filter_map(Kept::awaits).for_each(tell);
    }

    fn sockets<'s>(&'s self, tell: &mut dyn FnMut(RequestId, SocketId, BorrowedFd<'s>, Wants)) {
        let mut tell = |kept: &Kept, up: &'s Upstream| {
            tell(kept.id(), up.socket_id, up.socket.as_fd(), up.wants());
        };
        for kept in &self.requests {
            if let Stage::Up(up) = &kept.exchange.stage {
                tell(kept, up);
            }
        }
        if let Some(Tunnel { kept, up, .. }) = &self.tunnel {
            tell(kept, up);
        }
    }

    fn has_sockets(&self) -> bool {
        let is_up = |kept: &Kept| matches!(kept.exchange.stage, Stage::Up(_));
        self.tunnel.is_some() || self.requests.iter().any(is_up)
    }

    fn rank_and_client(&self, id: RequestId) -> (Rank, Option<IpAddr>) {
        match self.at(id) {
            Some(at) => {
                let grant = &self.requests[at].exchange.grant;
                (grant.rank, grant.client)
            }
            None => (self.rank, None),
        }
    }

    fn rank(&self) -> Rank {
        self.rank
    }

    fn set_rank(&mut self, rank: Rank) {
        self.rank = rank;
    }

    fn is_queued(&self) -> bool {
        self.requests.iter().any(|kept| {
            matches!(
                kept.exchange.stage,
                Stage::New | Stage::Early | Stage::Whole | Stage::Ready | Stage::Job(Some(_))
            )
        })
    }

    fn is_at_rest(&self) -> bool {
        self.requests.is_empty() && self.held.is_empty() && self.tunnel.is_none()
    }

    fn announced_s(&self) -> u32 {
        0
    }

    fn take_handed(&mut self, _: &mut Input) -> (Vec<u8>, Ticket) {
        panic!("nothing is handed over")
    }
}
