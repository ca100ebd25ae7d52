//! What passes between a connection and the engine: bounds and a turn's tools in, the next step out.

use crate::handler::{Handler, Job, Rank};
use crate::http2::HeadBuffer;
use crate::peer::Peer;
use crate::reply::Out;
use crate::request::RequestId;
use forebay_http::date::IMF_LEN;
use forebay_http::head;
use forebay_http::path::NormalPath;
use forebay_metrics::Local;

/// Bounds on what one connection may ask for.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Size of a request head, and of the trailer section of a chunked body.
    pub head: head::HeadLimits,
    /// Bytes of a request body that are read and discarded, framing included.
    pub body_bytes: u64,
    /// Requests on one connection; the last answer says `Connection: close`.
    pub requests: u32,
    /// Requests that a client may have under way at once on a connection of HTTP/2; 0 if that is not
    /// spoken.
    pub streams: u32,
    /// Whether requests of HTTP/2 may open tunnels (RFC 8441), because an application may take them.
    pub tunnels: bool,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            head: head::HeadLimits::default(),
            body_bytes: 1024 * 1024,
            requests: 10_000,
            streams: 128,
            tunnels: false,
        }
    }
}

/// What the engine does next.
#[derive(Debug)]
pub enum Step<J> {
    /// Receive more bytes into the input, then advance.
    Receive,
    /// Send all of [`Out`], then tell [`sent`](crate::Protocol::sent) and advance.
    Send,
    /// Have this done for the request, then advance with [`RequestEvent::Done`].
    Job(RequestId, J),
    /// This request is ready: it is to be answered in a turn that [answers](Context::answers) its rank,
    /// with [`RequestEvent::Called`].
    Enqueue(RequestId),
    /// This request may not be answered before so many milliseconds have passed; then advance with
    /// [`RequestEvent::Due`].
    NotBefore(RequestId, u32),
    /// This request is given up: a job that was not begun for it never is. Then advance.
    Forget(RequestId),
    /// Nothing until there is an event.
    Wait,
    /// The turn's budget is used up; advance again after the neighbours had theirs.
    Yield,
    /// End our direction: nothing more is sent, but the client may go on. Only when all of [`Out`] has
    /// been sent, and once; then advance.
    End,
    /// Give socket and received bytes to [`hand_over`](crate::Hooks::hand_over).
    HandOver,
    /// Close the connection.
    Close(Closing),
}

/// What has happened to a request.
#[derive(Debug)]
pub enum RequestEvent<D> {
    /// Its job is done, with this result.
    Done(RequestId, D),
    /// Its job has panicked.
    Failed(RequestId),
    /// Its turn to be answered has come.
    Called(RequestId),
    /// The time has come from which it may be answered.
    Due(RequestId),
    /// The socket it waits for can be read or written, or has failed: it is tried.
    Socket(RequestId),
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Everything received was used: a plain close sends FIN.
    Now,
    /// Input may be unread, and closing on it would send a RST that destroys the answer on its way
    /// (RFC 9112 §9.6): shut down writing, read and drop for a while, then close.
    Linger,
    /// Send a RST.
    Reset,
}

/// What is waited for, which decides the time it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Await {
    /// The first byte of the next request.
    Idle,
    /// The rest of a head; also the first byte on a new connection, a PROXY header, a handshake.
    Head,
    /// The rest of a request body.
    Body,
    /// A job, or a turn in which the request is answered.
    Job,
    /// The time from which an admitted request may be answered.
    Admission,
    /// Room in the client's receive window.
    Send,
    /// A place among the requests at once of a rule: until when this and the next five may last, the
    /// protocol [says](crate::Protocol::deadline_ms).
    Place,
    /// That another server may be asked.
    Slot,
    /// A connection to another server.
    Connect,
    /// The head of another server's answer.
    Answer,
    /// That a body moves that is passed on.
    Flow,
    /// Any of the last three, and the time at which an exchange looks whether its upstream still lives: when
    /// it has come, nothing need be wrong (see [`Relay::looks`](crate::Relay::looks)).
    Link,
    /// The same, of an exchange that no upstream has: it is over sooner than what was waited for before.
    Rest,
}

/// How long clients are told that idle connections are kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Announce<'c> {
    /// In seconds; 0 tells no client.
    pub all_s: u32,
    /// The same by rank, in milliseconds, as far as ranks have a time of their own.
    pub by_rank_ms: &'c [u64],
}

impl Announce<'_> {
    /// What a client of this rank is told, in seconds.
    #[inline]
    pub fn of(&self, rank: Rank) -> u32 {
        let own_ms = self.by_rank_ms.get(usize::from(rank.0));
        own_ms.map_or(self.all_s, |ms| u32::try_from(ms / 1000).unwrap_or(u32::MAX))
    }
}

/// What a turn of an engine lends to a connection.
pub struct Context<'c, H: Handler, S> {
    /// Knows the answers.
    pub handler: &'c mut H,
    /// Where answers are written.
    pub out: &'c mut Out<H::Body>,
    /// Both ends of the connection.
    pub peer: &'c Peer,
    /// Room for the normal form of one request's path.
    pub path: &'c NormalPath,
    /// Where a head of HTTP/2 is taken apart.
    pub head_buffer: &'c mut HeadBuffer,
    /// Bounds in force.
    pub limits: &'c ConnectionLimits,
    /// Now, as the Date field writes it.
    pub date: &'c [u8; IMF_LEN],
    /// Now, in milliseconds of a clock that never goes back.
    pub now_ms: u64,
    /// The server is about to stop: every answer is the connection's last.
    pub draining: bool,
    /// How long idle connections are kept, for clients that are told (`Keep-Alive: timeout=`).
    pub announce: Announce<'c>,
    /// Requests that may still be answered in this turn.
    pub budget: u32,
    /// Of these ranks only: this one and those before it. Others are put aside ([`Step::Enqueue`]);
    /// `None` puts all aside.
    pub answers: Option<Rank>,
    /// What has happened to a request; taken when it was looked at.
    pub event: Option<RequestEvent<<H::Job as Job>::Done>>,
    /// The engine's counters.
    pub metrics: &'c Local,
    /// Times this turn, or does nothing.
    pub watch: &'c mut S,
}
