//! HTTP/2 on one connection: many requests beside one another, each through the four stages.
//!
//! Frames, windows and budgets are those of [`forebay_http2::Connection`], which has no requests; requests
//! are here, and know nothing of frames. A request that can be answered at once borrows the decoded fields
//! and leaves nothing behind. One that must wait, and one whose answer does, is kept.

mod answer;
mod head;
mod receive;
mod relay;
mod send;

pub use head::{HeadBuffer, bake};
pub(crate) use head::{encode_head, encode_lines};

use crate::context::Context;
use crate::handler::{GivenUp, HandlerRoles, HandlerTypes, Job, Relay, Settled};
use crate::input::Input;
use crate::limits::ConnectionLimits;
use crate::peer::Peer;
use crate::protocol::{Awaited, Protocol};
use crate::rank::Rank;
use crate::request::{KeptRequest, RequestId};
use crate::socket::SocketId;
use crate::socket::Wants;
use crate::step::{Await, Closing, RequestEvent, Step};
use forebay_http::path::NormalPath;
use forebay_http2::error::Fault;
use forebay_http2::{ById, Connection, ErrorCode, FieldLimits};
use forebay_metrics::Stopwatch;
use relay::{Http2Relaying, Http2Upload};
use send::Sending;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// Once this many bytes wait in [`Out`](crate::Out), they are sent before anything is added.
const BATCH_BYTES: usize = 48 * 1024;

/// How often a request is answered whose file changes, or leaves the memory, before its answer is begun.
const MOST_ATTEMPTS: u8 = 3;

/// So many requests that policy resets are one by one; then the connection is.
const MOST_RESETS: u32 = 16;

/// So long after the first step of a goodbye comes the second, though the client has not said that it knows:
/// requests that it sent before are here by then.
const GOODBYE_MS: u64 = 1_000;

/// That second step, as what is awaited. There is no such stream.
const GOODBYE: RequestId = RequestId(0);

/// What every client sends first (RFC 9113 §3.4), as far as no request of HTTP/1 can be meant.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// Whether these first bytes of a connection are the beginning of HTTP/2.
#[inline]
pub(crate) fn is_preface(bytes: &[u8]) -> bool {
    bytes.first() == Some(&b'P') && bytes.starts_with(PREFACE)
}

/// What a job of this handler brings.
type DoneOf<H> = <<H as HandlerTypes>::Job as Job>::Done;

/// One connection as a state machine. The number of a request is that of its stream.
pub struct Http2<H: HandlerRoles> {
    machine: Connection,
    /// Received and not yet used, while another connection has the loop's buffer.
    held: Vec<u8>,
    live: ById<Live<H>>,
    /// Requests that want something of the engine.
    asking: VecDeque<u32>,
    /// Answers in [`Out`](crate::Out) to their last byte.
    leaving: Vec<Leaving<H>>,
    /// The rank of the last request, and its client.
    rank: Rank,
    client: Option<IpAddr>,
    record: H::Record,
    served: u32,
    /// Bytes of bodies that were written since [`Protocol::taken`] asked.
    body_bytes: u64,
    /// Requests that other servers answer.
    relays: u32,
    /// Requests that policy has reset.
    resets: u32,
    closing: Option<Closing>,
    /// When the second step of the goodbye comes at the latest.
    goodbye_ms: u64,
    input_ended: bool,
    /// Nothing is taken from the input before the client takes something.
    is_stuck: bool,
}

/// A request that is not over.
struct Live<H: HandlerRoles> {
    /// More of its body may come.
    is_open: bool,
    phase: Phase<H>,
    /// Its body, if that is to be passed on and is not yet.
    upload: Option<Box<Http2Upload>>,
}

/// A request that is kept.
type Kept<H> = Box<KeptRequest<<H as HandlerTypes>::Ticket, Stage<<H as HandlerTypes>::Job>>>;

enum Phase<H: HandlerRoles> {
    /// It is not answered.
    Asked(Kept<H>),
    /// Its answer is not written to its end.
    Answered(Box<Sending<H>>),
    /// Another server answers it.
    Relaying(Box<Http2Relaying<H>>),
}

/// What a request that is not answered waits for.
enum Stage<J> {
    /// For this job, which is to be started, or which is running if it is gone: then it is known what
    /// answers.
    Deciding(Option<J>),
    /// For its body, of which so many bytes were discarded.
    Body(u64),
    /// For the first of its body, or its end: before, the stage that sends it may yet take it elsewhere.
    Begin,
    /// Until it may be answered, in so many milliseconds.
    Early(u32),
    /// For nothing but the server from here on: it is to be enqueued.
    Whole,
    /// For its turn.
    Ready,
    /// For this job, which is to be started, or which is running if it is gone.
    Job(Option<J>),
    /// For the same; then it is answered anew, because its file was not in memory.
    Again(Option<J>),
}

/// What is left of an answer that is written.
struct Leaving<H: HandlerTypes> {
    line: Option<H::Line>,
    ticket: Option<H::Ticket>,
    body_bytes: u64,
}

impl<H: HandlerRoles> Live<H> {
    /// What it waits for, if there is a time for that. Where the window of the connection is closed, it is the
    /// connection that waits.
    fn awaits(&self, stream: u32, machine: &Connection) -> Option<Awaited> {
        let what = match &self.phase {
            Phase::Asked(kept) => match kept.stage {
                Stage::Early(_) => Await::Admission,
                Stage::Body(_) | Stage::Begin => Await::Body,
                _ => Await::Job,
            },
            Phase::Answered(sending) if sending.is_warming => Await::Job,
            Phase::Answered(_) if machine.is_blocked(stream) => Await::Send,
            Phase::Relaying(relaying) if relaying.is_held && machine.is_blocked(stream) => {
                Await::Send
            }
            Phase::Answered(_) => return None,
            Phase::Relaying(relaying) => relaying.awaits()?,
        };
        Some(Awaited { what, id: RequestId(stream) })
    }

    /// Whether some of an answer is to be sent, and is there.
    fn is_sending(&self) -> bool {
        match &self.phase {
            Phase::Asked(_) => false,
            Phase::Answered(sending) => !sending.is_warming,
            Phase::Relaying(relaying) => relaying.is_held,
        }
    }

    /// Whether only its client keeps it from going on: by a body that has not come, or by its windows.
    fn waits_for_client(&self) -> bool {
        match &self.phase {
            Phase::Asked(kept) => matches!(kept.stage, Stage::Body(_) | Stage::Begin),
            Phase::Answered(_) => self.is_sending(),
            Phase::Relaying(relaying) => relaying.waits_for_client(),
        }
    }

    /// The body of its request, if that is to be passed on and is not yet.
    fn upload(&mut self) -> Option<&mut Http2Upload> {
        match &mut self.phase {
            Phase::Relaying(relaying) => relaying.upload.as_deref_mut(),
            Phase::Asked(_) => self.upload.as_deref_mut(),
            Phase::Answered(_) => None,
        }
    }

    fn kept(&mut self) -> Option<&mut Kept<H>> {
        match &mut self.phase {
            Phase::Asked(kept) => Some(kept),
            Phase::Answered(_) | Phase::Relaying(_) => None,
        }
    }
}

impl<H: HandlerRoles> Http2<H> {
    /// A connection of which nothing was received.
    pub fn new(limits: &ConnectionLimits, rank: Rank) -> Http2<H> {
        let fields = FieldLimits { bytes: limits.head.head_bytes, fields: limits.head.head_lines };
        let limits = forebay_http2::Http2Limits {
            fields,
            streams: limits.streams,
            extended_connect: limits.tunnels,
            ..forebay_http2::Http2Limits::default()
        };
        Http2 {
            machine: Connection::server(limits),
            held: Vec::new(),
            live: ById::default(),
            asking: VecDeque::new(),
            leaving: Vec::new(),
            rank,
            client: None,
            record: H::Record::default(),
            served: 0,
            body_bytes: 0,
            relays: 0,
            resets: 0,
            closing: None,
            goodbye_ms: u64::MAX,
            input_ended: false,
            is_stuck: false,
        }
    }

    /// What requests wait for, as far as there is a time for that.
    fn waiting(&self) -> impl Iterator<Item = Awaited> {
        self.live.iter().filter_map(|(stream, live)| live.awaits(stream, &self.machine))
    }

    /// Every request that asked for something of the engine gets it.
    fn go_on<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        is_fresh: bool,
    ) -> Option<Step<H::Job>> {
        while let Some(&stream) = self.asking.front() {
            // what was answered before goes out before anything that may take long
            if is_fresh && !cx.out.is_empty() {
                return Some(Step::Send);
            }
            self.asking.pop_front();
            let Some(live) = self.live.get_mut(stream) else { continue };
            let id = RequestId(stream);
            let kept = match &mut live.phase {
                Phase::Asked(kept) => kept,
                Phase::Answered(sending) => match sending.job.take() {
                    Some(job) => return Some(Step::Job(id, job)),
                    None => continue,
                },
                Phase::Relaying(_) => continue,
            };
            match &mut kept.stage {
                Stage::Early(wait_ms) => return Some(Step::NotBefore(id, *wait_ms)),
                Stage::Deciding(job) | Stage::Job(job) | Stage::Again(job) => {
                    if let Some(job) = job.take() {
                        return Some(Step::Job(id, job));
                    }
                }
                Stage::Whole => {
                    if let Err(refusal) = cx.handler.enqueue(&mut kept.grant.ticket) {
                        self.turn_away_kept(cx, stream, refusal);
                        continue;
                    }
                    kept.stage = Stage::Ready;
                    if cx.answers.is_none_or(|last| kept.grant.rank > last) {
                        return Some(Step::Enqueue(id));
                    }
                    self.answer_kept(cx, stream, None);
                }
                Stage::Body(_) | Stage::Begin | Stage::Ready => {}
            }
        }
        None
    }

    /// Whether frames are looked at before bodies are written.
    fn may_receive<S>(&self, cx: &Context<'_, H, S>, input: &Input) -> bool {
        let is_over = self.closing.is_some() || self.machine.fault().is_some();
        !input.is_empty() && !is_over && cx.budget > 0 && cx.out.bytes.len() < BATCH_BYTES
    }

    /// Something has happened to a request, if that is still there.
    fn happened<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        event: RequestEvent<DoneOf<H>>,
    ) {
        let (RequestEvent::Done(RequestId(stream), _)
        | RequestEvent::Failed(RequestId(stream))
        | RequestEvent::Called(RequestId(stream))
        | RequestEvent::Due(RequestId(stream))
        | RequestEvent::Socket(RequestId(stream))) = event;
        if let RequestEvent::Socket(_) = event {
            return self.socket_ready(cx, stream);
        }
        let Some(live) = self.live.get_mut(stream) else { return };
        let kept = match &mut live.phase {
            Phase::Relaying(_) => return,
            Phase::Asked(kept) => kept,
            Phase::Answered(sending) => {
                return match event {
                    RequestEvent::Done(..) => {
                        sending.is_warming = false;
                        self.machine.offer(stream);
                    }
                    _ => self.reset(cx.handler, cx.peer, stream, ErrorCode::INTERNAL_ERROR),
                };
            }
        };
        match (event, &kept.stage) {
            (RequestEvent::Done(_, done), Stage::Deciding(None)) => self.decide(cx, stream, done),
            (RequestEvent::Done(_, done), Stage::Job(None)) => {
                self.answer_kept(cx, stream, Some(done))
            }
            (RequestEvent::Done(..), Stage::Again(None))
            | (RequestEvent::Called(_), Stage::Ready) => {
                self.answer_kept(cx, stream, None);
            }
            (RequestEvent::Due(_), Stage::Early(_)) => {
                kept.stage = Stage::Whole;
                self.asking.push_back(stream);
            }
            (RequestEvent::Failed(_), _) => {
                self.reset(cx.handler, cx.peer, stream, ErrorCode::INTERNAL_ERROR);
            }
            _ => {}
        }
    }

    /// Ends a request without an answer, or within it, and tells its client.
    fn reset(&mut self, handler: &mut H, peer: &Peer, stream: u32, code: ErrorCode) {
        self.machine.reset(stream, code);
        if let Some(live) = self.live.remove(stream) {
            self.give_up(handler, peer, stream, live);
        }
    }

    /// A request is over before its answer is.
    fn give_up(&mut self, handler: &mut H, peer: &Peer, stream: u32, mut live: Live<H>) {
        self.drop_upload(stream, live.upload.take());
        if let Phase::Relaying(_) = live.phase {
            self.relays -= 1;
        }
        give_up(handler, peer, live);
    }

    /// The first step of a goodbye.
    fn say_goodbye(&mut self, now_ms: u64) {
        if !self.machine.is_draining() {
            self.machine.drain();
            self.goodbye_ms = now_ms + GOODBYE_MS;
        }
    }

    /// The connection ends with this.
    fn fail(&mut self, code: ErrorCode, reason: &'static str) {
        self.machine.fail(Fault { code, reason });
        self.closing = Some(Closing::Linger);
    }

    fn end_all(&mut self, handler: &mut H, end: Settled) {
        self.leaving.drain(..).for_each(|leaving| leaving.end(handler, end));
    }
}

/// A request is over before its answer is.
fn give_up<H: HandlerRoles>(handler: &mut H, peer: &Peer, live: Live<H>) {
    let (kept, relay) = match live.phase {
        Phase::Asked(kept) => (Some(kept), None),
        Phase::Relaying(mut relaying) => {
            let is_told = Http2::abandon_relay(handler, &mut relaying);
            let Http2Relaying { kept, relay, .. } = *relaying;
            ((!is_told).then_some(kept), Some(relay))
        }
        Phase::Answered(sending) => {
            sending.end().end(handler, Settled::Cut);
            (None, None)
        }
    };
    if let Some(mut kept) = kept {
        let stages = kept.stages;
        kept.with(peer, &NormalPath::default(), |request, grant, _| {
            let asked = GivenUp { peer, request, ticket: &grant.ticket, stages };
            handler.given_up(&asked, relay.as_deref());
        });
        handler.settle(&mut kept.grant.ticket, Settled::Cut);
    }
}

impl<H: HandlerRoles> Leaving<H> {
    fn end(self, handler: &mut H, end: Settled) {
        if let Some(line) = self.line {
            handler.log(line, self.body_bytes);
        }
        if let Some(mut ticket) = self.ticket {
            handler.settle(&mut ticket, end);
        }
    }
}

impl<H: HandlerRoles> Protocol<H> for Http2<H> {
    fn advance<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Step<H::Job> {
        // else the client takes nothing, and what can be done besides is done
        let is_fresh = cx.out.is_empty();
        self.is_stuck = false;
        if cx.draining || self.served >= cx.limits.requests {
            self.say_goodbye(cx.now_ms);
        }
        if self.input_ended && self.relays > 0 {
            self.abort_relays(cx);
        }
        let step = loop {
            if let Some(event) = cx.event.take() {
                self.happened(cx, event);
            }
            if let Some(step) = self.go_on(cx, is_fresh) {
                break step;
            }
            // what has come may be more urgent than what is being sent, or may end it
            if self.may_receive(cx, input) {
                match self.receive(cx, input) {
                    None => continue,
                    // a part of a frame is there
                    Some(Step::Receive | Step::Wait | Step::Close(_)) => {}
                    Some(step) => break step,
                }
            }
            self.fill(cx);
            // a file may have to be read first
            if !self.asking.is_empty() {
                continue;
            }
            if cx.out.bytes.len() >= BATCH_BYTES {
                self.is_stuck = !is_fresh;
                break if is_fresh { Step::Send } else { Step::Wait };
            }
            match self.receive(cx, input) {
                None => {}
                Some(step) => break step,
            }
        };
        self.machine.flush(&mut cx.out.bytes);
        match step {
            Step::Receive | Step::Wait | Step::Yield | Step::Close(_)
                if is_fresh && !cx.out.is_empty() =>
            {
                Step::Send
            }
            step => step,
        }
    }

    fn resume(&mut self, input: &mut Input) {
        input.clear();
        if !self.held.is_empty() {
            input.fill(&std::mem::take(&mut self.held));
        }
    }

    fn suspend(&mut self, input: &mut Input) {
        if !input.is_empty() {
            self.held = input.bytes().to_vec();
            input.clear();
        }
    }

    fn end_input(&mut self) {
        self.input_ended = true;
    }

    fn wants_input(&self) -> bool {
        !self.input_ended && !self.is_stuck && self.closing.is_none()
    }

    fn goes_on(&self) -> bool {
        true
    }

    fn body_sent(&mut self, _: u64) {}

    fn sent(&mut self, handler: &mut H) {
        self.end_all(handler, Settled::Answered);
    }

    fn abandon(&mut self, handler: &mut H, peer: &Peer) {
        self.end_all(handler, Settled::Cut);
        let streams: Vec<u32> = self.live.iter().map(|(stream, _)| stream).collect();
        for stream in streams {
            if let Some(live) = self.live.remove(stream) {
                self.give_up(handler, peer, stream, live);
            }
        }
    }

    fn expire<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        _: &mut Input,
        awaited: Awaited,
    ) -> Option<Closing> {
        let stream = awaited.id.0;
        match awaited.what {
            Await::Body => {
                self.refuse_kept(cx, stream, 408, "the request body took too long to arrive");
            }
            Await::Job | Await::Admission => {
                self.expire_kept(cx, stream);
            }
            Await::Send if awaited.id == RequestId::SENDING => {
                self.fail(ErrorCode::ENHANCE_YOUR_CALM, "the connection's window stays closed");
                self.machine.flush(&mut cx.out.bytes);
                return Some(Closing::Linger);
            }
            Await::Link if awaited.id == GOODBYE => self.machine.drain_now(),
            Await::Send => self.reset(cx.handler, cx.peer, stream, ErrorCode::CANCEL),
            Await::Place
            | Await::Slot
            | Await::Connect
            | Await::Answer
            | Await::Flow
            | Await::Link
            | Await::Rest => {
                self.expire_relay(cx, stream);
            }
            Await::Idle | Await::Head => {
                self.machine.drain_now();
                self.machine.flush(&mut cx.out.bytes);
                return Some(Closing::Linger);
            }
        }
        self.machine.flush(&mut cx.out.bytes);
        None
    }

    fn awaits(&self) -> Awaited {
        if let Some(awaited) = self.waiting().next() {
            return awaited;
        }
        let what = if self.closing.is_some() || !self.live.is_empty() {
            // its window is closed, or it has not taken the last words
            return Awaited { what: Await::Send, id: RequestId::SENDING };
        } else if self.held.is_empty() && self.served > 0 && !self.machine.is_within_head() {
            if self.machine.is_announced() {
                return Awaited { what: Await::Link, id: GOODBYE };
            }
            if self.machine.is_draining() { Await::Head } else { Await::Idle }
        } else {
            Await::Head
        };
        Awaited { what, id: RequestId(self.served) }
    }

    fn also_awaits(&self, tell: &mut dyn FnMut(Awaited)) {
        self.waiting().for_each(&mut *tell);
        if self.machine.is_announced() {
            tell(Awaited { what: Await::Link, id: GOODBYE });
        }
        if self.machine.is_closed() && self.live.iter().any(|(_, live)| live.is_sending()) {
            tell(Awaited { what: Await::Send, id: RequestId::SENDING });
        }
    }

    fn taken(&mut self, id: RequestId) -> u64 {
        if id == RequestId::SENDING {
            return std::mem::take(&mut self.body_bytes);
        }
        let (told_bytes, body_bytes) = match self.live.get_mut(id.0).map(|live| &mut live.phase) {
            Some(Phase::Answered(sending)) => (&mut sending.told_bytes, sending.body_bytes),
            Some(Phase::Relaying(relaying)) => (&mut relaying.told_bytes, relaying.body_bytes),
            _ => return 0,
        };
        body_bytes - std::mem::replace(told_bytes, body_bytes)
    }

    fn left(&self) -> u64 {
        let of_answer = |live: &Live<H>| match &live.phase {
            Phase::Answered(sending) => sending.left,
            Phase::Relaying(relaying) => relaying.left(),
            Phase::Asked(_) => 0,
        };
        self.live.iter().map(|(_, live)| of_answer(live)).fold(0, u64::saturating_add)
    }

    fn deadline_ms(&self, awaited: Awaited) -> u64 {
        if awaited.id == GOODBYE {
            return self.goodbye_ms;
        }
        match self.live.get(awaited.id.0).map(|live| &live.phase) {
            Some(Phase::Relaying(relaying)) => relaying.relay.deadline_ms(),
            _ => u64::MAX,
        }
    }

    fn sockets<'s>(&'s self, tell: &mut dyn FnMut(RequestId, SocketId, BorrowedFd<'s>, Wants)) {
        if self.relays == 0 {
            return;
        }
        for (stream, live) in self.live.iter() {
            if let Phase::Relaying(relaying) = &live.phase
                && let Some((socket_id, socket, wants)) = relaying.relay.socket()
            {
                tell(RequestId(stream), socket_id, socket, wants);
            }
        }
    }

    fn has_sockets(&self) -> bool {
        self.relays > 0
    }

    fn rank_and_client(&self, id: RequestId) -> (Rank, Option<IpAddr>) {
        match self.live.get(id.0).map(|live| &live.phase) {
            Some(Phase::Asked(kept)) => (kept.grant.rank, kept.grant.client),
            Some(Phase::Answered(sending)) => (sending.rank, sending.client),
            Some(Phase::Relaying(relaying)) => {
                let grant = &relaying.kept.grant;
                (grant.rank, grant.client)
            }
            None => (self.rank, self.client),
        }
    }

    fn rank(&self) -> Rank {
        self.rank
    }

    fn set_rank(&mut self, rank: Rank) {
        self.rank = rank;
    }

    fn is_queued(&self) -> bool {
        let is_queued = |live: &Live<H>| {
            let Phase::Asked(kept) = &live.phase else { return false };
            !matches!(
                kept.stage,
                Stage::Body(_)
                    | Stage::Begin
                    | Stage::Deciding(None)
                    | Stage::Job(None)
                    | Stage::Again(None)
            )
        };
        self.live.iter().any(|(_, live)| is_queued(live))
    }

    fn is_at_rest(&self) -> bool {
        self.live.is_empty() && self.held.is_empty() && !self.machine.is_within_head()
    }

    fn announced_s(&self) -> u32 {
        0
    }

    fn take_handed(&mut self, input: &mut Input) -> (Vec<u8>, H::Ticket) {
        // no request of a shared connection is handed over
        input.clear();
        (Vec::new(), H::Ticket::default())
    }
}
