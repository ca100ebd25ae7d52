//! What an engine is given: the handler that knows the answers, and what it may say.

use crate::reply::Reply;
use forebay_http::head::Head;
use forebay_metrics::{Local, Stopwatch};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The process stage: decides who is admitted and what is answered.
///
/// A loop owns its handler; methods must neither block nor take noticeable CPU time. What would is
/// returned as a [`Job`] and comes back to [`process`](Handler::process) as its result.
pub trait Handler {
    /// The part of an answer that is not copied into [`Out`](crate::Out): a large cached body, a
    /// file. The engine asks for it [`piece`](Handler::piece) by piece.
    type Body;
    /// Work that may block or takes CPU time.
    type Job: Job;
    /// A log line that waits for its number of bytes.
    type Line;
    /// Goes with an admitted request until it is [settled](Handler::settle). If its connection is
    /// dropped it may be dropped without that.
    type Ticket: Send;

    /// Whether this peer is a proxy whose word about its clients counts. Asked right after accept.
    fn trusts(&mut self, _peer: &Peer) -> bool {
        false
    }

    /// Whether the address that clients reached must be known where a listener is bound to all
    /// addresses of the machine.
    fn asks_local(&self) -> bool {
        false
    }

    /// Whether a new connection is admitted. Asked once: right after accept or, where a proxy states
    /// its client, when it has done so.
    fn admit(&mut self, _peer: &Peer) -> Verdict<()> {
        Verdict::Admit(Admitted::at_once(Rank::FIRST, ()))
    }

    /// Whether a request is admitted. Asked once after every head, before its body is waited for and
    /// before anything else is done for it.
    fn verdict(&mut self, request: &Request<'_>) -> Verdict<Self::Ticket>;

    /// Whether an admitted request may line up to be answered. Asked once for each, when it is whole
    /// and its moment has come: until then it waits for its client or for its turn, from then on for
    /// nobody but the server.
    ///
    /// # Errors
    /// What its client is told.
    fn line_up(&mut self, _ticket: &mut Self::Ticket) -> Result<(), Refusal> {
        Ok(())
    }

    /// An admitted request is not waited for any more by those it was counted among: its answer has
    /// been sent, or never will be. Of answers that leave together only the last waits for that. One
    /// that has [expired](Settled::Expired) is settled right before its client is told so.
    fn settle(&mut self, _ticket: Self::Ticket, _end: Settled) {}

    /// Answers `request` by writing into `reply`, or says what must happen first.
    ///
    /// `ticket` came with its admission; `done` is the result of the job this request was waiting for.
    /// A request may be processed more than once, but is answered exactly once.
    fn process(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Self::Ticket,
        done: Option<<Self::Job as Job>::Done>,
        reply: &mut Reply<'_, Self::Body>,
    ) -> Outcome<Self::Job>;

    /// Answers something that never became a request or may not be served: a malformed head, a
    /// limit. The connection is closed after it if the caller said so in `reply`.
    fn refuse(&mut self, status: u16, reason: &'static str, reply: &mut Reply<'_, Self::Body>);

    /// Answers what was [not admitted](Verdict::Refuse). In overload nothing is done more often.
    fn turn_away(&mut self, refusal: Refusal, reply: &mut Reply<'_, Self::Body>) {
        reply.retry_after_s = refusal.retry_after_s;
        self.refuse(refusal.status, "refused by policy", reply);
    }

    /// The next bytes of `body`; `None` when all were [`advance`](Handler::advance)d over.
    fn piece<'b>(&'b self, body: &'b Self::Body) -> Option<Piece<'b>>;

    /// `count` bytes of the current piece were sent.
    fn advance(&self, body: &mut Self::Body, count: u64);

    /// Whether the file behind the current piece is still the one the head was written for. Asked
    /// before the head, each piece of a file and its last byte. If not before the head, the request is
    /// processed again.
    fn is_intact(&self, body: &Self::Body) -> bool;

    /// The body outlives this turn: from now on it may not depend on the handler's own state.
    fn hold(&mut self, body: &mut Self::Body);

    /// How many bytes of the current piece, which is a file, can be sent without waiting for a
    /// disk. At 0 a job must [`warm`](Handler::warm) it first.
    fn warm_bytes(&self, body: &Self::Body) -> u64;

    /// A job that brings the next bytes of a file piece into memory.
    fn warm(&mut self, body: &Self::Body) -> Self::Job;

    /// Nanoseconds of a clock that never goes back, if the handler wants to know how long the stages
    /// of a request take; else 0. Asked twice or three times for each request.
    fn tick(&mut self) -> u64 {
        0
    }

    /// Begins a log line for a request that is being answered; `None` if nothing is logged.
    /// `request` is `None` when no head could be read, `ticket` when it was not admitted, or has been
    /// [settled](Handler::settle) because its time is over.
    fn line(
        &mut self,
        peer: &Peer,
        request: Option<&Request<'_>>,
        ticket: Option<&Self::Ticket>,
        status: u16,
        stages: Stages,
    ) -> Option<Self::Line>;

    /// Ends a log line: the answer was sent, with `body_bytes` of its body, or never will be. Of
    /// answers that leave together only the last waits for that.
    fn log(&mut self, line: Self::Line, body_bytes: u64);

    /// A request that is not ours leaves with its socket and all bytes read so far.
    fn hand_over(&mut self, socket: std::os::fd::OwnedFd, received: Vec<u8>, peer: &Peer);

    /// Called at the beginning of each turn of the loop, and at least twice a second while there is one:
    /// this is the time now; flush logs, sweep caches.
    fn turn(&mut self, _now: Now) {}

    /// How long a loop that has nothing more to do should rest before it looks for news, so that it finds
    /// several at once; `None`, not at all. Asked once per turn.
    fn pause(&mut self) -> Option<Duration> {
        None
    }

    /// Called when there may be no turn for a while: write out what is held back.
    fn rest(&mut self) {}
}

/// Work for a helper thread.
pub trait Job: Send + 'static {
    /// What comes back to the handler.
    type Done: Send + 'static;

    /// Does the work; may block. `watch` and `metrics` are the helper thread's own.
    fn run(self, metrics: &Local, watch: &mut dyn Stopwatch) -> Self::Done;

    /// Jobs of the same lane run one after another: work on one file that hangs holds one helper
    /// thread, not all of them.
    fn lane(&self) -> u64;

    /// What it uses up.
    fn kind(&self) -> Kind {
        Kind::Blocks
    }
}

/// What a [`Job`] uses up, which decides how many may run at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It waits for devices: many may.
    Blocks,
    /// It computes: more at a time than there are cores only slow each other down.
    Computes,
}

/// What [`Handler::process`] decided.
#[derive(Debug)]
pub enum Outcome<J> {
    /// The answer is written.
    Replied,
    /// This must be done first; then process the request again with the result.
    Job(J),
    /// The request is for somebody else; see [`Handler::hand_over`].
    HandOver,
}

/// What is decided about a connection or a request before anything is done for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    /// Serve it.
    Admit(Admitted<T>),
    /// Answer with this and keep the connection if possible.
    Refuse(Refusal),
    /// Reset the connection without an answer.
    Reset,
}

/// How an admitted connection or request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted<T> {
    /// In this order relative to others.
    pub rank: Rank,
    /// Whose turn it takes; `None` if the connection's client is who asks.
    pub client: Option<IpAddr>,
    /// Not before so many milliseconds have passed. Connections never wait.
    pub wait_ms: u32,
    /// What is given back at its end.
    pub ticket: T,
}

impl<T> Admitted<T> {
    /// Without waiting.
    pub fn at_once(rank: Rank, ticket: T) -> Admitted<T> {
        Admitted { rank, client: None, wait_ms: 0, ticket }
    }
}

/// What somebody who is not served is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the answer.
    pub status: u16,
    /// Seconds after which it may go better (`Retry-After`); 0 says nothing about it.
    pub retry_after_s: u32,
}

impl Refusal {
    /// A status and nothing about later.
    pub fn status(status: u16) -> Refusal {
        Refusal { status, retry_after_s: 0 }
    }
}

/// How it ended with an admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Its answer was given to the kernel whole, or follows other bytes that wait to be.
    Answered,
    /// Its connection ended before.
    Cut,
    /// It was not answered in time, or too many waited: its client is told so instead.
    Expired,
}

/// Who is served first: 0 before 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub u8);

impl Rank {
    /// The rank served first, and the only one until there are classes.
    pub const FIRST: Rank = Rank(0);
    /// No rank is served later.
    pub const LAST: Rank = Rank(u8::MAX);
}

/// When a request came, as [`Handler::tick`] told it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// When its first bytes were there.
    pub begun_ns: u64,
    /// When all of it was there, its body too. The same as `begun_ns` if its head came in one piece
    /// and it had no body.
    pub complete_ns: u64,
}

/// The time, read once per turn of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a clock that never goes back.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
}

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address and port the connection comes from; [`UNIX`](Peer::UNIX) if it came through a
    /// Unix socket.
    pub remote: SocketAddr,
    /// The address and port of the listener it came through; unspecified (`0.0.0.0`, `::`) if that
    /// listens on all addresses, and [`UNIX`](Peer::UNIX) if it is a Unix socket.
    pub local: SocketAddr,
    /// The client's address and port, if a trusted proxy has stated them in a PROXY header.
    pub stated: Option<SocketAddr>,
}

impl Peer {
    /// What stands for either end of a Unix socket, which has no address and port.
    pub const UNIX: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

    /// Both ends as the kernel knows them.
    pub fn new(remote: SocketAddr, local: SocketAddr) -> Peer {
        Peer { remote, local, stated: None }
    }

    /// Whether the connection came through a Unix socket.
    pub fn is_unix(&self) -> bool {
        self.remote == Peer::UNIX
    }

    /// The client's address and port: what a trusted proxy has stated, or where the connection comes
    /// from.
    #[inline]
    pub fn address(&self) -> SocketAddr {
        self.stated.unwrap_or(self.remote)
    }

    /// The client as Forebay counts clients: an IPv4 address or an IPv6 /64.
    pub fn client(&self) -> IpAddr {
        match self.address().ip().to_canonical() {
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            v4 => v4,
        }
    }
}

/// One request, as the handler sees it.
#[derive(Debug)]
pub struct Request<'r> {
    /// What the client sent.
    pub head: &'r Head<'r>,
    /// Who sent it, and where to.
    pub peer: &'r Peer,
}

/// Bytes of a body that can be sent next.
#[derive(Debug)]
pub enum Piece<'b> {
    /// In memory.
    Memory(&'b [u8]),
    /// In a file.
    File {
        /// The open file.
        file: BorrowedFd<'b>,
        /// Where the bytes begin.
        offset: u64,
        /// How many there are.
        len: u64,
        /// Nothing follows them.
        is_last: bool,
    },
    /// In a pipe, read already: they cannot change any more.
    Pipe {
        /// The end they come out of.
        pipe: BorrowedFd<'b>,
        /// How many there are.
        len: u64,
    },
}
