//! An exchange with another server: it is asked for an answer, and what it says is passed on.
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
//! One that is dropped before that is cancelled.

use crate::request::Passed;
use crate::socket::{SocketId, Wants};
use crate::step::Await;
use crate::wake::WakeSlot;
use std::os::fd::BorrowedFd;

/// An exchange with another server.
pub trait Relay: Send {
    /// The socket that it waits for now, and for what: nothing that is known to be there already.
    fn socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)>;

    /// Another socket that it waits for at the same time, in the same way.
    fn other_socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        None
    }

    /// Where the engine leaves what wakes the request, if code of this process does. An engine that leaves nothing
    /// there waits for the [socket](Relay::socket).
    fn wake_slot(&self) -> Option<&WakeSlot> {
        None
    }

    /// A socket of it is ready, or has failed: it is to be tried. Or code of this process has woken the request.
    fn ready(&mut self);

    /// How many bytes of the request's body it takes now; none once it is known that they are not wanted.
    fn capacity(&self) -> usize;

    /// Whether the body of the request is for it, and not for another that follows it.
    fn takes_body(&self) -> bool;

    /// The next bytes of the request's body: at most as many as there is [capacity](Relay::capacity) for.
    fn give(&mut self, bytes: &[u8]);

    /// What has come of other requests waits, and until it goes on the client may send nothing of this one: it is
    /// not to blame for that.
    fn held_back(&mut self) {}

    /// Whether the client's socket is to leave for another process now: the protocol asks for that by
    /// [`Step::Lend`](crate::Step::Lend) before anything else, and then [lends](Relay::lend) it.
    fn wants_client(&self) -> bool {
        false
    }

    /// Whether the client's socket does not come back: the other process is given all that has come on it.
    fn keeps_client(&self) -> bool {
        false
    }

    /// Whether the client's socket is with another process.
    fn has_client(&self) -> bool {
        false
    }

    /// The client's socket may leave: nothing else waits for it. Not before it is [wanted](Relay::wants_client).
    fn lend(&mut self, _client: BorrowedFd<'_>, _request: LentRequest<'_>) {}

    /// The request's body is whole, and these were its trailers; or the client's end of a tunnel has come. Not
    /// told of a request without a body.
    fn finish<'t>(&mut self, trailers: &mut dyn Iterator<Item = (&'t str, &'t [u8])>);

    /// The client's end of a tunnel has broken off: the other server is to see that, not an orderly end. Nothing
    /// is asked of the exchange afterwards.
    fn cut(&mut self);

    /// Goes as far as its sockets allow with what it was given, and as far as the head of the answer. It is
    /// `now_ms` on a clock that never goes back.
    fn advance(&mut self, now_ms: u64) -> RelayNext;

    /// The sender of the request wants to be told that it is here
    /// ([`acknowledges`](super::Process::acknowledges)). Says whether the exchange does that, by an interim answer
    /// if its answer takes long: one that comes at once says as much.
    fn acknowledge(&mut self) -> bool {
        false
    }

    /// An interim answer: the lines of its head, without the empty one.
    fn interim(&self) -> &[u8] {
        b""
    }

    /// How many bytes the body of the answer has, if that is known.
    fn length(&self) -> Option<u64>;

    /// Until now its client had something else to take: only from now on its silence counts.
    fn resume(&mut self, now_ms: u64);

    /// Its client takes nothing for now. What has come of the answer may be set aside, so that whoever sends it is
    /// done if that is all of it.
    fn run_ahead(&mut self, _now_ms: u64) {}

    /// Appends at most `most` of the next bytes of the answer's body, at least one.
    fn read(&mut self, out: &mut Vec<u8>, most: usize, now_ms: u64) -> RelayRead;

    /// What followed the body of the answer.
    fn trailers(&self) -> Vec<(&str, &[u8])> {
        Vec::new()
    }

    /// Whether it is given up when its client has shut down writing, as when it has left. Not asked of a
    /// tunnel.
    fn aborts_on_close(&self) -> bool;

    /// What is waited for, if nothing is there: `Slot`, `Connect`, `Answer`, `Flow` or `Ending`; or `Link` for all of
    /// them, and `Rest` if no upstream has it.
    fn awaits(&self) -> Await;

    /// Until when, on the clock of [`advance`](Relay::advance). It moves later when something moves, and may when it
    /// has come and is asked for again.
    fn deadline_ms(&self) -> u64;

    /// Until when it may last, whatever is waited for, on the same clock; also while its client takes nothing.
    fn ends_ms(&self) -> u64 {
        u64::MAX
    }

    /// The [deadline](Relay::deadline_ms) has come. Whether that was only the time to look whether the
    /// server that answers still lives; then the exchange goes on, with the same or another.
    fn looks(&mut self, _now_ms: u64) -> bool {
        false
    }

    /// The time for what was waited for is over, and it was not the client's to give. Nothing was answered
    /// yet: it goes on elsewhere, or [`advance`](Relay::advance) says [`RelayNext::Answer`] now.
    fn expire(&mut self);

    /// Neither end of a tunnel has sent anything for as long as that may be: it ends now.
    fn expire_tunnel(&mut self) {}
}

/// A request whose socket leaves.
#[derive(Clone, Copy, Debug)]
pub struct LentRequest<'r> {
    /// Its head, as it came.
    pub head: &'r [u8],
    /// What of its body has come, as it came; and what is behind that, if the client is [kept](Relay::keeps_client).
    pub body: &'r [u8],
    /// How many bytes of its body are still to come; `None` if only its framing tells.
    pub body_left: Option<u64>,
    /// The connection is closed after it.
    pub is_last: bool,
    /// It has no body, the client has said that it sends nothing behind it, and nothing has come.
    pub is_all: bool,
    /// What was sent on the connection so far; `None` if that is not known.
    pub sent_bytes: Option<u64>,
}

/// What the client is told next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayNext {
    /// Nothing before something has happened.
    Wait,
    /// An interim answer with this status, other than 101: see [`Relay::interim`].
    Interim(u16),
    /// The answer: its head is there, or there is none and never will be. Said until it was looked at.
    Answer,
}

/// What [`Relay::read`] has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayRead {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing before something has happened.
    Nothing,
    /// There are no more.
    End,
    /// There should be more, and never will be.
    Broken,
}

/// What [`Process::relayed`](super::Process::relayed) has written.
#[derive(Debug)]
pub enum Relayed<J> {
    /// A head, by [`Reply::relayed`](crate::Reply::relayed): the body of the exchange follows.
    Body,
    /// A head, by [`Reply::switch`](crate::Reply::switch): from here on bytes are passed on as they are.
    Switched,
    /// An answer of its own: that of the exchange is not wanted.
    Own,
    /// Nothing: the exchange is not wanted, and this must be done first; then the request is processed again
    /// with the result, and this is known of it from now on.
    Job(J, Box<Passed>),
    /// Nothing: the exchange is not wanted any more, and the request is processed again, of which this is
    /// known from now on.
    Again(Box<Passed>),
    /// Nothing: another exchange is in the place of this one, has begun, and is driven from now on.
    GoesOn,
    /// Nothing: another process has answered on the client's own socket, and this has become of that.
    Elsewhere(ClientReturn),
    /// Nothing, and nobody knows what another process has written: the client must see that the answer is broken.
    Broken,
    /// Nothing: the client is to ask again over HTTP/1.1. Only for a request of HTTP/2.
    NeedsHttp1,
}

/// What has become of the client's socket that another process had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientReturn {
    /// Where it is.
    pub place: ClientPlace,
    /// The status of the answer, as that process says; 0 if it has not said it.
    pub status: u16,
    /// Bytes of the body of the answer, as it says.
    pub body_bytes: u64,
}

/// Where the socket of a client is that another process had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientPlace {
    /// Here, at the next request.
    Back,
    /// Here, at its end.
    Ended {
        /// The client has sent something that nobody has received.
        is_unread: bool,
    },
    /// There, for good.
    Gone,
}

/// The exchange of a handler that has none; no value of it exists.
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
