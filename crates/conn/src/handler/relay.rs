//! An exchange with another server: the server is asked for an answer, and the answer is passed on.
//!
//! The exchange has sockets of its own and does what there is to be done with them; the protocol of the
//! client's connection says when, and passes bytes on. Both directions hold a bounded amount: what the
//! other server does not take is not received from the client, and what the client does not take is not
//! received from the other server.
//!
//! | asked | while |
//! |---|---|
//! | [`capacity`](Relay::capacity), [`give`](Relay::give), [`finish`](Relay::finish) | the client sends the body of its request |
//! | [`advance`](Relay::advance) | there is no answer; and while the body of the request is passed on |
//! | [`Process::relayed`](super::Process::relayed) | once, when it has said [`RelayNext::Answer`] |
//! | [`length`](Relay::length), [`read`](Relay::read), [`trailers`](Relay::trailers) | the body of the answer is passed on |
//! | [`Process::release`](super::Process::release) | once, when both sides have got everything |
//!
//! An exchange that is dropped before that is cancelled.

use crate::request::Passed;
use crate::socket::{SocketId, Wants};
use crate::step::Await;
use crate::wake::WakeSlot;
use std::os::fd::BorrowedFd;

/// An exchange with another server.
pub trait Relay: Send {
    /// The socket that the exchange waits for now, and for what. The exchange has used up what is known
    /// to be there already.
    fn socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)>;

    /// A second socket that the exchange waits for at the same time, under the same conditions.
    fn other_socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        None
    }

    /// The slot where the engine leaves the waker of the request, if code of this process answers. An
    /// engine that leaves none waits for the [socket](Relay::socket).
    fn wake_slot(&self) -> Option<&WakeSlot> {
        None
    }

    /// Notes that a socket of the exchange is ready or has failed, so that it is tried, or that code of
    /// this process has woken the request.
    fn ready(&mut self);

    /// How many bytes of the request's body the exchange takes now; 0 once it is known that they are not
    /// wanted.
    fn capacity(&self) -> usize;

    /// Whether this exchange wants the body of the request, and not another one that follows it.
    fn takes_body(&self) -> bool;

    /// The next bytes of the request's body: at most as many as there is [capacity](Relay::capacity) for.
    fn give(&mut self, bytes: &[u8]);

    /// Notes that the client cannot send more of this request until what has come of other requests goes
    /// on: the delay is not the client's fault.
    fn held_back(&mut self) {}

    /// Whether the client's socket must leave for another process now: the protocol asks for that with
    /// [`Step::Lend`](crate::Step::Lend) before anything else, and then [lends](Relay::lend) it.
    fn wants_client(&self) -> bool {
        false
    }

    /// Whether the client's socket does not come back: the other process gets all that has come on it.
    fn keeps_client(&self) -> bool {
        false
    }

    /// Whether the client's socket is with another process.
    fn has_client(&self) -> bool {
        false
    }

    /// Lends the client's socket, for which nothing else waits. Not called before the socket is
    /// [wanted](Relay::wants_client).
    fn lend(&mut self, _client: BorrowedFd<'_>, _request: LentRequest<'_>) {}

    /// Ends the request's body with these trailers, or passes on that the client has ended its direction
    /// of a tunnel. Not called for a request without a body.
    fn finish<'t>(&mut self, trailers: &mut dyn Iterator<Item = (&'t str, &'t [u8])>);

    /// Passes on that the client has broken off its end of a tunnel, so that the other server does not
    /// see an orderly end. The exchange is asked for nothing afterwards.
    fn cut(&mut self);

    /// Goes as far as its sockets and the bytes given to it allow, up to the head of the answer. `now_ms`
    /// is the time on a clock that never goes back.
    fn advance(&mut self, now_ms: u64) -> RelayNext;

    /// Asks for an interim answer, which the sender of the request [wants](super::Process::acknowledges)
    /// as a sign that it is here. Returns whether the exchange gives one itself if its answer takes long;
    /// an answer that comes at once says as much.
    fn acknowledge(&mut self) -> bool {
        false
    }

    /// An interim answer: the lines of its head, without the empty one.
    fn interim(&self) -> &[u8] {
        b""
    }

    /// How many bytes the body of the answer has, if that is known.
    fn length(&self) -> Option<u64>;

    /// Starts the time allowed for the other server's silence now: until now the client had something
    /// else to take.
    fn resume(&mut self, now_ms: u64);

    /// Reads ahead while the client takes nothing: what has come of the answer may be set aside. If that
    /// is all of it, its sender is done.
    fn run_ahead(&mut self, _now_ms: u64) {}

    /// Appends at most `most` of the next bytes of the answer's body, at least one.
    fn read(&mut self, out: &mut Vec<u8>, most: usize, now_ms: u64) -> RelayRead;

    /// The trailers that followed the body of the answer.
    fn trailers(&self) -> Vec<(&str, &[u8])> {
        Vec::new()
    }

    /// Whether the exchange is given up when the client shuts down writing, as it does when it leaves.
    /// Not asked of a tunnel.
    fn aborts_on_close(&self) -> bool;

    /// What the exchange waits for, if nothing is there: `Slot`, `Connect`, `Answer`, `Flow` or `Ending`;
    /// or `Link` for all of them, and `Rest` if no upstream has it.
    fn awaits(&self) -> Await;

    /// The deadline of what is waited for, on the clock of [`advance`](Relay::advance). It moves later
    /// when something moves, and may also do so when it has come and is asked for again.
    fn deadline_ms(&self) -> u64;

    /// The deadline of the whole exchange, whatever is waited for, on the same clock; it also holds while
    /// the client takes nothing.
    fn ends_ms(&self) -> u64 {
        u64::MAX
    }

    /// Whether the [deadline](Relay::deadline_ms) that has come was only the time to check that the
    /// server that answers still lives. Then the exchange goes on, with the same server or another.
    fn looks(&mut self, _now_ms: u64) -> bool {
        false
    }

    /// Ends the wait for what the other server owed, because its time is over and nothing was answered
    /// yet. The exchange goes on elsewhere, or [`advance`](Relay::advance) returns [`RelayNext::Answer`]
    /// now.
    fn expire(&mut self);

    /// Ends a tunnel now: neither end has sent anything for as long as that is allowed.
    fn expire_tunnel(&mut self) {}
}

/// A request whose client's socket is lent to another process.
#[derive(Clone, Copy, Debug)]
pub struct LentRequest<'r> {
    /// The head of the request, as it came.
    pub head: &'r [u8],
    /// The part of its body that has come, as it came; and what is behind that, if the client is
    /// [kept](Relay::keeps_client).
    pub body: &'r [u8],
    /// How many bytes of its body are still to come; `None` if only the body's framing shows its end.
    pub body_left: Option<u64>,
    /// Whether the connection is closed after the request.
    pub is_last: bool,
    /// Whether the request has no body, its client has said that nothing follows, and nothing has come.
    pub is_all: bool,
    /// How many bytes were sent on the connection so far; `None` if that is not known.
    pub sent_bytes: Option<u64>,
}

/// What the client gets next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayNext {
    /// Nothing before something has happened.
    Wait,
    /// An interim answer with this status, other than 101: see [`Relay::interim`].
    Interim(u16),
    /// The answer: its head is there, or there is none and never will be. Returned until the answer was
    /// looked at.
    Answer,
}

/// The result of [`Relay::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayRead {
    /// This many bytes, at least one.
    Bytes(usize),
    /// Nothing before something has happened.
    Nothing,
    /// All bytes were read before.
    End,
    /// The rest of the body is missing, and will never come.
    Broken,
}

/// What [`Process::relayed`](super::Process::relayed) has written.
#[derive(Debug)]
pub enum Relayed<J> {
    /// A head, by [`Reply::relayed`](crate::Reply::relayed): the body of the exchange follows.
    Body,
    /// A head, by [`Reply::switch`](crate::Reply::switch): from here on bytes are passed on as they are.
    Switched,
    /// An answer of the handler's own: that of the exchange is not wanted.
    Own,
    /// Nothing: the exchange is not wanted, and this job must be done first. Then the request is
    /// processed again with the result and with what is known of the request from now on.
    Job(J, Box<Passed>),
    /// Nothing: the exchange is not wanted any more, and the request is processed again with what is
    /// known of it from now on.
    Again(Box<Passed>),
    /// Nothing: another exchange has taken the place of this one, has begun, and is driven from now on.
    GoesOn,
    /// Nothing: another process has answered on the client's own socket; this is the result.
    Elsewhere(ClientReturn),
    /// Nothing: it is not known what another process has written. The client must see that the answer is
    /// broken.
    Broken,
    /// Nothing: the client must ask again over HTTP/1.1. Only for a request of HTTP/2.
    NeedsHttp1,
}

/// The result of lending the client's socket to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientReturn {
    /// Where the socket is.
    pub place: ClientPlace,
    /// The status of the answer, as the other process reports it; 0 if it has not.
    pub status: u16,
    /// Bytes of the body of the answer, as the other process reports them.
    pub body_bytes: u64,
}

/// Where a client's socket is after another process had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientPlace {
    /// Here again, at the next request.
    Back,
    /// Here again, at the end of the connection.
    Ended {
        /// The client has sent something that was not received by either process.
        is_unread: bool,
    },
    /// With the other process, for good.
    Gone,
}

/// The exchange of a handler without exchanges; no value of it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRelay {}

impl Relay for NoRelay {
    fn takes_body(&self) -> bool {
        match *self {}
    }

    fn cut(&mut self) {}

    fn aborts_on_close(&self) -> bool {
        match *self {}
    }

    fn socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        match *self {}
    }

    fn ready(&mut self) {}

    fn capacity(&self) -> usize {
        match *self {}
    }

    fn give(&mut self, _: &[u8]) {}

    fn finish<'t>(&mut self, _: &mut dyn Iterator<Item = (&'t str, &'t [u8])>) {}

    fn advance(&mut self, _: u64) -> RelayNext {
        match *self {}
    }

    fn length(&self) -> Option<u64> {
        match *self {}
    }

    fn resume(&mut self, _: u64) {}

    fn read(&mut self, _: &mut Vec<u8>, _: usize, _: u64) -> RelayRead {
        match *self {}
    }

    fn awaits(&self) -> Await {
        match *self {}
    }

    fn deadline_ms(&self) -> u64 {
        match *self {}
    }

    fn expire(&mut self) {}
}
