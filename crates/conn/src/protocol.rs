//! What an engine is told by what is spoken on a connection, and what it tells it.
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
    /// Goes as far as the input, the [event](Context::event) and what the turn
    /// [answers](Context::answers) allow, and says what is needed to go on. What it has asked for on
    /// behalf of a request ([`Step::Job`], [`Step::Enqueue`], [`Step::NotBefore`]) does not keep it from
    /// going on with others: see [`goes_on`](Protocol::goes_on).
    fn advance<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Step<H::Job>;

    /// Puts what was kept in front of the loop's input. Called before anything else in a turn.
    fn resume(&mut self, input: &mut Input);

    /// Keeps what is left in the loop's input. Called at the end of a turn.
    fn suspend(&mut self, input: &mut Input);

    /// The client will send no more. What it asked for before is still answered. From now on
    /// [`Step::Receive`] is not returned.
    fn end_input(&mut self);

    /// Whether received bytes would be looked at now.
    fn wants_input(&self) -> bool;

    /// Whether what is under way ends as soon as the client has shut down writing, whatever is left to
    /// receive. Only where nothing is received meanwhile: elsewhere [`end_input`](Protocol::end_input) tells.
    fn aborts_on_close(&self) -> bool {
        false
    }

    /// Whether there is more to be done while a request waits for a job, its turn or its time, and
    /// while the client takes nothing. Then it is advanced with something in [`Out`](crate::Out), may add
    /// to its bytes unless there is a body, and returns [`Step::Send`] when there are enough of them.
    fn goes_on(&self) -> bool {
        false
    }

    /// `count` bytes of the body in [`Out`](crate::Out) have been sent.
    fn body_sent(&mut self, count: u64);

    /// The last `count` bytes that were to be sent never will be, short bodies among them, which
    /// [`body_sent`](Protocol::body_sent) is not told of. The connection is about to end.
    fn not_sent(&mut self, _count: u64) {}

    /// All of [`Out`](crate::Out) has been sent: what was answered is over.
    fn sent(&mut self, handler: &mut H);

    /// The file of the last answer in [`Out`](crate::Out) has changed, and nothing of that answer was
    /// sent: it is taken out again, and its request is answered anew; if that has happened often
    /// already, with a 503. The answer that is withdrawn has no log line, but stays counted by its
    /// status. Returns `false` if the answer cannot be withdrawn, and nothing is changed.
    fn withdraw<S: Stopwatch>(&mut self, _cx: &mut Context<'_, H, S>) -> bool {
        false
    }

    /// The connection ends, whatever is under way.
    fn abandon(&mut self, handler: &mut H, peer: &Peer);

    /// The time for what was awaited is over. Writes an answer where one helps. Says how the connection
    /// is closed after it; `None` if only a request is over.
    fn expire<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
        awaited: Awaited,
    ) -> Option<Closing>;

    /// What the connection is waiting for, apart from a send that is under way, which the engine knows.
    /// If its requests wait as well, for the first of them to be over.
    fn awaits(&self) -> Awaited;

    /// What all its requests are waiting for, each with a deadline of its own; the first may be the one
    /// that [`awaits`](Protocol::awaits) tells. Asked if it [goes on](Protocol::goes_on).
    fn also_awaits(&self, _tell: &mut dyn FnMut(Awaited)) {}

    /// How many bytes of this answer, or for [`RequestId::SENDING`] of all of them, the client has made room
    /// for since this was last asked. Asked if it [goes on](Protocol::goes_on) and told
    /// that it waits for the client to take something: not by its socket, which the engine knows.
    fn taken(&mut self, _id: RequestId) -> u64 {
        0
    }

    /// Bytes of answers that are left to be sent, beside those in [`Out`](crate::Out), as far as their
    /// number is known.
    fn left(&self) -> u64 {
        0
    }

    /// Until when this may last, in milliseconds of the clock of turns; asked for what an exchange with
    /// another server waits for. It may move later while that is waited for.
    fn deadline_ms(&self, _awaited: Awaited) -> u64 {
        u64::MAX
    }

    /// Until when it may last, whatever is waited for, on the same clock.
    fn ends_ms(&self) -> u64 {
        u64::MAX
    }

    /// The sockets that its requests wait for besides the client's, each for what: nothing that is known
    /// to be there already, or threads would ask the kernel for it again and again. One that is told with no
    /// wish is kept in mind, and not waited for. When one of them is
    /// ready, its request gets [`RequestEvent::Socket`](crate::RequestEvent::Socket): it is read and written until
    /// that would block, or until there is no room; no second event tells of what was left.
    fn sockets<'s>(&'s self, _tell: &mut dyn FnMut(RequestId, SocketId, BorrowedFd<'s>, Wants)) {}

    /// The slots of requests that code of this process wakes ([`Relay::wake_slot`](crate::Relay::wake_slot)). One
    /// that is woken gets [`RequestEvent::Socket`](crate::RequestEvent::Socket), too.
    fn wake_slots<'s>(&'s self, _tell: &mut dyn FnMut(RequestId, &'s WakeSlot)) {}

    /// Whether there are such sockets or slots. Asked after each turn.
    #[inline]
    fn has_sockets(&self) -> bool {
        false
    }

    /// The rank of a request, and its client, if that is not the connection's.
    fn rank_and_client(&self, id: RequestId) -> (Rank, Option<IpAddr>);

    /// The same for the connection while it has no request: for the last one.
    fn rank(&self) -> Rank;

    /// The order of all it asks for until a request says otherwise.
    fn set_rank(&mut self, rank: Rank);

    /// Whether a request waits for its time or its turn, and nothing was done for it.
    fn is_queued(&self) -> bool;

    /// Whether nothing of a request has been received.
    fn is_at_rest(&self) -> bool;

    /// Seconds the client was told that the connection is kept, with the last answer; 0 if it was
    /// told nothing.
    fn announced_s(&self) -> u32;

    /// Whether the client's socket is with another process: until it is back nothing here waits for it, receives from it
    /// or sends on it.
    #[inline]
    fn is_lent(&self) -> bool {
        false
    }

    /// Whether it is known of a connection that closes that its client has sent nothing which nobody has received.
    fn is_drained(&self) -> bool {
        false
    }

    /// Whether what happens to the request under way is looked at where requests are received, because another process
    /// has the rest of it.
    #[inline]
    fn stays_in_receive(&self) -> bool {
        false
    }

    /// The client's socket leaves, as [`Step::Lend`] asks for; nothing here waits for it. Of what was sent on it so
    /// far there are so many bytes, if that is known.
    fn lend(
        &mut self,
        _socket: BorrowedFd<'_>,
        _sent_bytes: Option<u64>,
        _may_stay: bool,
        _limits: &ConnectionLimits,
        _input: &mut Input,
    ) {
    }

    /// Takes what goes to another process: all bytes from the head of the request on, and what it owns.
    fn take_handed(&mut self, input: &mut Input) -> (Vec<u8>, H::Ticket);
}

/// What is waited for, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// What.
    pub what: Await,
    /// For this request, or, where it is none's, after this one.
    pub id: RequestId,
}
