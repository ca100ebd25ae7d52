//! HTTP/2 on one connection: many requests beside one another, each through the four stages.
//!
//! [`forebay_http2::Connection`] has the frames, windows and budgets, and knows no requests; requests are
//! here, and know nothing of frames. A request that can be answered at once borrows the decoded fields
//! and leaves nothing behind. A request that must wait, or whose answer must, is kept.

mod answer;
mod protocol;
mod receive;
mod relay;
mod send;

pub use crate::head_block::{HeadBuffer, bake};

use crate::context::Context;
use crate::handler::{GivenUp, HandlerRoles, HandlerTypes, Job, Settled};
use crate::input::Input;
use crate::limits::ConnectionLimits;
use crate::peer::Peer;
use crate::protocol::Awaited;
use crate::rank::Rank;
use crate::request::{KeptRequest, RequestId};
use crate::step::{Await, Closing, RequestEvent, Step};
use forebay_http::path::NormalPath;
use forebay_http2::error::Fault;
use forebay_http2::{ById, Connection, ErrorCode, FieldLimits};
use forebay_metrics::Stopwatch;
use relay::{Http2Relaying, Http2Upload};
use send::Sending;
use std::collections::VecDeque;
use std::net::IpAddr;

/// Once this many bytes wait in [`Out`](crate::Out), they are sent before anything is added.
const BATCH_BYTES: usize = 48 * 1024;

/// The largest number of attempts to answer a request whose file changes, or leaves the memory, before
/// its answer is begun.
const MOST_ATTEMPTS: u8 = 3;

/// How many times in a row the socket is looked at before exchanges begin. With this limit, a client that
/// sends without pause cannot delay its own requests any longer.
const MOST_LOOKS: u8 = 4;

/// How many requests the policy resets one by one; after that, it resets the connection.
const MOST_RESETS: u32 = 16;

/// The time from the first step of a goodbye to the second, if the client does not acknowledge the first.
/// Requests that it sent earlier have arrived by then.
const GOODBYE_MS: u64 = 1_000;

/// The second step of a goodbye, as something awaited. No stream has this number.
const GOODBYE: RequestId = RequestId(0);

/// The beginning of the preface that every client sends (RFC 9113 §3.4), up to where it cannot be a
/// request of HTTP/1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// Whether these first bytes of a connection are the beginning of HTTP/2.
#[inline]
pub(crate) fn is_preface(bytes: &[u8]) -> bool {
    bytes.first() == Some(&b'P') && bytes.starts_with(PREFACE)
}

/// The reason for refusing a body that is too large.
const TOO_LARGE: &str = "the request body is too large";

/// The result of a job of this handler.
type DoneOf<H> = <<H as HandlerTypes>::Job as Job>::Done;

/// One connection as a state machine. The number of a request is that of its stream.
pub struct Http2<H: HandlerRoles> {
    machine: Connection,
    /// Bytes received and not yet used, while another connection has the loop's buffer.
    held: Vec<u8>,
    live: ById<Live<H>>,
    /// Requests that have a next step for the engine.
    asking: VecDeque<u32>,
    /// Requests whose exchange begins, or gets the end of a body, when all received bytes are used.
    beginning: VecDeque<u32>,
    /// Whether the socket was looked at since the last of these requests came.
    has_looked: bool,
    looks: u8,
    /// Answers whose last byte is in [`Out`](crate::Out).
    leaving: Vec<Leaving<H>>,
    /// The rank of the last request, and its client.
    rank: Rank,
    client: Option<IpAddr>,
    record: H::Record,
    served: u32,
    /// Bytes of bodies written since the engine last called [`Protocol::taken`].
    body_bytes: u64,
    /// Requests that other servers answer.
    relays: u32,
    /// Requests that policy has reset.
    resets: u32,
    closing: Option<Closing>,
    /// When the second step of the goodbye comes at the latest.
    goodbye_ms: u64,
    input_ended: bool,
    /// Whether nothing is taken from the input before the client takes something.
    is_stuck: bool,
}

/// A request that is not over.
struct Live<H: HandlerRoles> {
    /// Whether more of its body may come.
    is_open: bool,
    phase: LiveState<H>,
    /// The body of the request, if that must be passed on and is not yet.
    upload: Option<Box<Http2Upload>>,
}

/// A request that is kept.
type Kept<H> = Box<KeptRequest<<H as HandlerTypes>::Ticket, KeptFor<<H as HandlerTypes>::Job>>>;

enum LiveState<H: HandlerRoles> {
    /// The request is not answered yet.
    Asked(Kept<H>),
    /// The answer is begun, and not written to its end.
    Answered(Box<Sending<H>>),
    /// Another server answers.
    Relaying(Box<Http2Relaying<H>>),
}

/// What a request that is not answered waits for. The job is in a box, because most requests wait for
/// none.
enum KeptFor<J> {
    /// For this job, after which it is known what answers. The job must be started; without it here, it
    /// is running.
    Deciding(Option<Box<J>>),
    /// For its body, of which this many bytes were discarded.
    Body(u64),
    /// For the first bytes of its body, or its end: until then, the stage that sends it may still take it
    /// elsewhere.
    Begin,
    /// Until the request may be answered, in this many milliseconds.
    Early(u32),
    /// For nothing but the server from here on: the request must be enqueued.
    Whole,
    /// For its turn.
    Ready,
    /// For this job, which must be started; without it here, it is running.
    Job(Option<Box<J>>),
    /// For such a job, which brings its file into memory; then the request is answered anew.
    Again(Option<Box<J>>),
}

/// The rest of an answer that is written.
struct Leaving<H: HandlerTypes> {
    line: Option<H::Line>,
    ticket: Option<H::Ticket>,
    body_bytes: u64,
}

impl<H: HandlerRoles> Live<H> {
    /// What the request waits for, if that has a deadline. Where the window of the connection is closed,
    /// it is the connection that waits.
    fn awaits(&self, stream: u32, machine: &Connection) -> Option<Awaited> {
        let what = match &self.phase {
            LiveState::Asked(kept) => match kept.stage {
                KeptFor::Early(_) => Await::Admission,
                KeptFor::Body(_) | KeptFor::Begin => Await::Body,
                _ => Await::Job,
            },
            LiveState::Answered(sending) if sending.is_warming => Await::Job,
            LiveState::Answered(_) if machine.is_blocked(stream) => Await::Send,
            LiveState::Relaying(relaying) if relaying.is_held && machine.is_blocked(stream) => {
                Await::Send
            }
            LiveState::Answered(_) => return None,
            LiveState::Relaying(relaying) => relaying.awaits()?,
        };
        Some(Awaited { what, id: RequestId(stream) })
    }

    /// Whether a part of an answer is there to be sent.
    fn is_sending(&self) -> bool {
        match &self.phase {
            LiveState::Asked(_) => false,
            LiveState::Answered(sending) => !sending.is_warming,
            LiveState::Relaying(relaying) => relaying.is_held,
        }
    }

    /// Whether the request waits only for its client: for its body, or for its windows.
    fn waits_for_client(&self) -> bool {
        match &self.phase {
            LiveState::Asked(kept) => matches!(kept.stage, KeptFor::Body(_) | KeptFor::Begin),
            LiveState::Answered(_) => self.is_sending(),
            LiveState::Relaying(relaying) => relaying.waits_for_client(),
        }
    }

    /// The body of the request, if that must be passed on and is not yet.
    fn upload(&mut self) -> Option<&mut Http2Upload> {
        match &mut self.phase {
            LiveState::Relaying(relaying) => relaying.upload.as_deref_mut(),
            LiveState::Asked(_) => self.upload.as_deref_mut(),
            LiveState::Answered(_) => None,
        }
    }

    fn kept(&mut self) -> Option<&mut Kept<H>> {
        match &mut self.phase {
            LiveState::Asked(kept) => Some(kept),
            LiveState::Answered(_) | LiveState::Relaying(_) => None,
        }
    }
}

impl<H: HandlerRoles> Http2<H> {
    /// A connection on which nothing was received yet.
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
            beginning: VecDeque::new(),
            has_looked: false,
            looks: 0,
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

    /// What the requests wait for, where that has a deadline.
    fn waiting(&self) -> impl Iterator<Item = Awaited> {
        self.live.iter().filter_map(|(stream, live)| live.awaits(stream, &self.machine))
    }

    /// Takes the next step of each request that has one for the engine.
    fn go_on<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        is_fresh: bool,
    ) -> Option<Step<H::Job>> {
        while let Some(&stream) = self.asking.front() {
            // earlier answers are sent before anything that may take long
            if is_fresh && !cx.out.is_empty() {
                return Some(Step::Send);
            }
            self.asking.pop_front();
            let Some(live) = self.live.get_mut(stream) else { continue };
            let id = RequestId(stream);
            let kept = match &mut live.phase {
                LiveState::Asked(kept) => kept,
                LiveState::Answered(sending) => match sending.job.take() {
                    Some(job) => return Some(Step::Job(id, job)),
                    None => continue,
                },
                LiveState::Relaying(_) => continue,
            };
            match &mut kept.stage {
                KeptFor::Early(wait_ms) => return Some(Step::NotBefore(id, *wait_ms)),
                KeptFor::Deciding(job) | KeptFor::Job(job) | KeptFor::Again(job) => {
                    if let Some(job) = job.take() {
                        return Some(Step::Job(id, *job));
                    }
                }
                KeptFor::Whole => {
                    if let Err(refusal) = cx.handler.enqueue(&mut kept.grant.ticket) {
                        self.turn_away_kept(cx, stream, refusal);
                        continue;
                    }
                    kept.stage = KeptFor::Ready;
                    if cx.answers.is_none_or(|last| kept.grant.rank > last) {
                        return Some(Step::Enqueue(id));
                    }
                    self.answer_kept(cx, stream, None);
                }
                KeptFor::Body(_) | KeptFor::Begin | KeptFor::Ready => {}
            }
        }
        None
    }

    /// Whether frames are looked at before bodies are written.
    fn may_receive<S>(&self, cx: &Context<'_, H, S>, input: &Input) -> bool {
        let is_over = self.closing.is_some() || self.machine.fault().is_some();
        !input.is_empty() && !is_over && cx.budget > 0 && cx.out.bytes.len() < BATCH_BYTES
    }

    /// Handles what has happened to a request, if the request still exists.
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
            LiveState::Relaying(_) => return,
            LiveState::Asked(kept) => kept,
            LiveState::Answered(sending) => {
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
            (RequestEvent::Done(_, done), KeptFor::Deciding(None)) => self.decide(cx, stream, done),
            (RequestEvent::Done(_, done), KeptFor::Job(None)) => {
                self.answer_kept(cx, stream, Some(done))
            }
            (RequestEvent::Done(..), KeptFor::Again(None))
            | (RequestEvent::Called(_), KeptFor::Ready) => {
                self.answer_kept(cx, stream, None);
            }
            (RequestEvent::Due(_), KeptFor::Early(_)) => {
                kept.stage = KeptFor::Whole;
                self.asking.push_back(stream);
            }
            (RequestEvent::Failed(_), _) => {
                self.reset(cx.handler, cx.peer, stream, ErrorCode::INTERNAL_ERROR);
            }
            _ => {}
        }
    }

    /// Ends a request without an answer, or within it, and resets its stream.
    fn reset(&mut self, handler: &mut H, peer: &Peer, stream: u32, code: ErrorCode) {
        self.machine.reset(stream, code);
        if let Some(live) = self.live.remove(stream) {
            self.give_up(handler, peer, stream, live);
        }
    }

    /// Ends a request before its answer is complete.
    fn give_up(&mut self, handler: &mut H, peer: &Peer, stream: u32, mut live: Live<H>) {
        self.drop_upload(stream, live.upload.take());
        if let LiveState::Relaying(_) = live.phase {
            self.relays -= 1;
        }
        give_up(handler, peer, live);
    }

    /// Begins a goodbye, with the first of its two steps.
    fn say_goodbye(&mut self, now_ms: u64) {
        if !self.machine.is_draining() {
            self.machine.drain();
            self.goodbye_ms = now_ms + GOODBYE_MS;
        }
    }

    /// Ends the connection with this error.
    fn fail(&mut self, code: ErrorCode, reason: &'static str) {
        self.machine.fail(Fault { code, reason });
        self.closing = Some(Closing::Linger);
    }

    fn end_all(&mut self, handler: &mut H, end: Settled) {
        self.leaving.drain(..).for_each(|leaving| leaving.end(handler, end));
    }
}

/// Ends a request before its answer is complete.
fn give_up<H: HandlerRoles>(handler: &mut H, peer: &Peer, live: Live<H>) {
    let (kept, relay) = match live.phase {
        LiveState::Asked(kept) => (Some(kept), None),
        LiveState::Relaying(mut relaying) => {
            let is_told = Http2::abandon_relay(handler, &mut relaying);
            let Http2Relaying { kept, relay, .. } = *relaying;
            ((!is_told).then_some(kept), Some(relay))
        }
        LiveState::Answered(sending) => {
            sending.end().end(handler, Settled::Cut);
            (None, None)
        }
    };
    if let Some(mut kept) = kept {
        let stages = kept.stages;
        kept.with(peer, &NormalPath::default(), |request, grant, _| {
            let asked = GivenUp { peer, request, ticket: &grant.ticket, stages };
            handler.given_up(&asked, relay.as_ref());
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
