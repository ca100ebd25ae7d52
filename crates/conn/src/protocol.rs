//! The interface between an engine and what is spoken on a connection.
//!
//! In: bytes, events, what was sent. Out: a [`Step`] at a time. A protocol has no socket, clock or
//! thread. HTTP/1 ([`Http1`](crate::Http1)) has one request under way, others have many: jobs, turns and
//! deadlines belong to a [`RequestId`]; idle time and sending belong to the connection.

use crate::context::Context;
use crate::handler::HandlerRoles;
use crate::input::Input;
use crate::limits::ConnectionLimits;
use crate::peer::Peer;
use crate::rank::Rank;
use crate::request::RequestId;
use crate::socket::{SocketId, Wants};
use crate::step::{Await, Closing, Step};
use crate::wake::WakeSlot;
use forebay_metrics::Stopwatch;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// One connection's state machine.
pub trait Protocol<H: HandlerRoles> {
    /// Goes as far as the input, the [event](Context::event) and the turn's [ranks](Context::answers)
    /// allow, and returns what is needed to go on. Steps for one request ([`Step::Job`],
    /// [`Step::Enqueue`], [`Step::NotBefore`]) do not keep the protocol from going on with others: see
    /// [`goes_on`](Protocol::goes_on).
    fn advance<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Step<H::Job>;

    /// Puts the bytes that were kept in front of the loop's input. Called before anything else in a turn.
    fn resume(&mut self, input: &mut Input);

    /// Keeps the bytes that are left in the loop's input. Called at the end of a turn.
    fn suspend(&mut self, input: &mut Input);

    /// Notes that the client will send no more. Earlier requests are still answered. From now on
    /// [`Step::Receive`] is not returned.
    fn end_input(&mut self);

    /// Whether received bytes would be looked at now.
    fn wants_input(&self) -> bool;

    /// Whether the request under way ends as soon as the client has shut down writing, whatever is left
    /// to receive. Only asked while nothing is received: elsewhere the engine calls
    /// [`end_input`](Protocol::end_input).
    fn aborts_on_close(&self) -> bool {
        false
    }

    /// Whether the protocol has more to do while a request waits for a job, its turn or its time, and
    /// while the client takes nothing. Then it is advanced with something in [`Out`](crate::Out), may add
    /// to its bytes unless there is a body, and returns [`Step::Send`] when there are enough of them.
    fn goes_on(&self) -> bool {
        false
    }

    /// Notes that `count` bytes of the body in [`Out`](crate::Out) have been sent.
    fn body_sent(&mut self, count: u64);

    /// Notes that the last `count` bytes of those to be sent never will be sent. They include short
    /// bodies, which are not reported to [`body_sent`](Protocol::body_sent). The connection is about to
    /// end.
    fn not_sent(&mut self, _count: u64) {}

    /// Ends the answers in [`Out`](crate::Out), all of which has been sent.
    fn sent(&mut self, handler: &mut H);

    /// Takes the last answer out of [`Out`](crate::Out), because its file has changed and nothing of the
    /// answer was sent. Its request is answered anew; after too many attempts, with a 503. The withdrawn
    /// answer has no log line, but stays counted by its status. Returns `false`, and changes nothing, if
    /// the answer cannot be withdrawn.
    fn withdraw<S: Stopwatch>(&mut self, _cx: &mut Context<'_, H, S>) -> bool {
        false
    }

    /// Ends the connection, whatever is under way.
    fn abandon(&mut self, handler: &mut H, peer: &Peer);

    /// Ends a wait whose time is over. Writes an answer where one helps. Returns how the connection is
    /// closed afterwards; `None` if only a request is over.
    fn expire<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
        awaited: Awaited,
    ) -> Option<Closing>;

    /// What the connection is waiting for, apart from a send that is under way, which the engine knows.
    /// If its requests wait as well, the wait that ends first.
    fn awaits(&self) -> Awaited;

    /// Reports what each request is waiting for, each with a deadline of its own; the first may be the
    /// one that [`awaits`](Protocol::awaits) returns. Asked if the protocol [goes on](Protocol::goes_on).
    fn also_awaits(&self, _tell: &mut dyn FnMut(Awaited)) {}

    /// How many bytes of this answer, or for [`RequestId::SENDING`] of all answers, the client has made
    /// room for since the last call. Asked if the protocol [goes on](Protocol::goes_on) and has stated
    /// that it waits for the client to take something. Room in the client's socket is not included: the
    /// engine knows that.
    fn taken(&mut self, _id: RequestId) -> u64 {
        0
    }

    /// Bytes of answers that are left to be sent, beside those in [`Out`](crate::Out), as far as their
    /// number is known.
    fn left(&self) -> u64 {
        0
    }

    /// The deadline of this wait, in milliseconds of the clock of turns; asked for waits of an exchange
    /// with another server. It may move later during the wait.
    fn deadline_ms(&self, _awaited: Awaited) -> u64 {
        u64::MAX
    }

    /// The deadline of the whole exchange, whatever is waited for, on the same clock.
    fn ends_ms(&self) -> u64 {
        u64::MAX
    }

    /// Reports the sockets that requests wait for besides the client's, and what each is waited for. What
    /// is known to be there already is not reported, or threads would ask the kernel for it again and
    /// again. A socket without a wish is kept in mind, and not waited for. When a socket is ready, its
    /// request gets [`RequestEvent::Socket`](crate::RequestEvent::Socket). The request must then read and
    /// write until that would block, or until there is no room: no second event reports the rest.
    fn sockets<'s>(&'s self, _tell: &mut dyn FnMut(RequestId, SocketId, BorrowedFd<'s>, Wants)) {}

    /// Reports the wake slots of requests that code of this process wakes
    /// ([`Relay::wake_slot`](crate::Relay::wake_slot)). A request that is woken also gets
    /// [`RequestEvent::Socket`](crate::RequestEvent::Socket).
    fn wake_slots<'s>(&'s self, _tell: &mut dyn FnMut(RequestId, &'s WakeSlot)) {}

    /// Whether requests have such sockets or slots. Asked after each turn.
    #[inline]
    fn has_sockets(&self) -> bool {
        false
    }

    /// The rank of a request, and its client, if that is not the connection's own.
    fn rank_and_client(&self, id: RequestId) -> (Rank, Option<IpAddr>);

    /// The rank of the connection while it has no request: that of the last one.
    fn rank(&self) -> Rank;

    /// Sets the rank of the connection's work until a request has a rank of its own.
    fn set_rank(&mut self, rank: Rank);

    /// Whether a request waits for its time or its turn, and nothing has been done for it yet.
    fn is_queued(&self) -> bool;

    /// Whether nothing of a request has been received.
    fn is_at_rest(&self) -> bool;

    /// The time for which the connection is kept, as the last answer has announced it, in seconds; 0 if
    /// it has announced none.
    fn announced_s(&self) -> u32;

    /// Whether the client's socket is with another process. Until it is back, nothing here waits for it,
    /// receives from it or sends on it.
    #[inline]
    fn is_lent(&self) -> bool {
        false
    }

    /// Whether a closing connection is known to have no unread bytes of its client.
    fn is_drained(&self) -> bool {
        false
    }

    /// Whether events of the request under way are handled where requests are received, because another
    /// process does the rest of it.
    #[inline]
    fn stays_in_receive(&self) -> bool {
        false
    }

    /// Lends the client's socket to another process, as [`Step::Lend`] asks; nothing here waits for it.
    /// `sent_bytes` is how many bytes were sent on it so far, if that is known.
    fn lend(
        &mut self,
        _socket: BorrowedFd<'_>,
        _sent_bytes: Option<u64>,
        _may_stay: bool,
        _limits: &ConnectionLimits,
        _input: &mut Input,
    ) {
    }

    /// Takes what goes to another process: all bytes from the head of the request on, and the request's
    /// ticket.
    fn take_handed(&mut self, input: &mut Input) -> (Vec<u8>, H::Ticket);
}

/// What is waited for, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The awaited event.
    pub what: Await,
    /// The request that waits; if none does, the request after which the connection waits.
    pub id: RequestId,
}
