//! A connection of either version of HTTP. The first bytes show the version: a client of HTTP/2 sends a
//! preface that is no request of HTTP/1 (RFC 9113 §3.4). Where a handshake has agreed on HTTP/2 (ALPN)
//! nothing else is understood. A connection that is passed on as it is begins as a request of HTTP/1 that
//! the server itself makes.

use crate::context::Context;
use crate::handler::HandlerRoles;
use crate::http1::Http1;
use crate::http2::{Http2, is_preface};
use crate::input::Input;
use crate::limits::ConnectionLimits;
use crate::peer::Peer;
use crate::protocol::{Awaited, Protocol};
use crate::rank::Rank;
use crate::request::RequestId;
use crate::socket::{SocketId, Wants};
use crate::step::{Closing, Step};
use crate::wake::WakeSlot;
use forebay_metrics::Stopwatch;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// One connection as a state machine.
#[allow(clippy::large_enum_variant, reason = "most connections speak HTTP/1 and are idle")]
pub enum Http<H: HandlerRoles> {
    /// HTTP/1, or a version not known yet.
    One(Http1<H>),
    /// HTTP/2.
    Two(Box<Http2<H>>),
}

impl<H: HandlerRoles> Default for Http<H> {
    fn default() -> Http<H> {
        Http::One(Http1::default())
    }
}

impl<H: HandlerRoles> Http<H> {
    /// A connection of neither version: its bytes are passed on as they are to the server that this name
    /// and port stand for.
    pub fn passed_on(name: &str, port: u16) -> Http<H> {
        Http::One(Http1::passed_on(name, port))
    }

    /// A connection of HTTP/2, which a handshake has agreed on.
    pub fn two(limits: &ConnectionLimits) -> Http<H> {
        Http::Two(Box::new(Http2::new(limits, Rank::FIRST)))
    }
}

/// Calls the same method of either version.
macro_rules! of_either {
    ($self:ident, $http:ident => $of:expr) => {
        match $self {
            Http::One($http) => $of,
            Http::Two($http) => $of,
        }
    };
}

impl<H: HandlerRoles> Protocol<H> for Http<H> {
    #[inline]
    fn advance<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Step<H::Job> {
        match self {
            Http::One(one)
                if is_preface(input.bytes()) && one.is_new() && cx.limits.streams > 0 =>
            {
                let mut two = Box::new(Http2::new(cx.limits, one.rank()));
                let step = two.advance(cx, input);
                *self = Http::Two(two);
                step
            }
            Http::One(one) => one.advance(cx, input),
            Http::Two(two) => two.advance(cx, input),
        }
    }

    #[inline]
    fn resume(&mut self, input: &mut Input) {
        of_either!(self, http => http.resume(input));
    }

    #[inline]
    fn suspend(&mut self, input: &mut Input) {
        of_either!(self, http => http.suspend(input));
    }

    fn end_input(&mut self) {
        of_either!(self, http => http.end_input());
    }

    #[inline]
    fn wants_input(&self) -> bool {
        of_either!(self, http => http.wants_input())
    }

    fn aborts_on_close(&self) -> bool {
        of_either!(self, http => http.aborts_on_close())
    }

    #[inline]
    fn goes_on(&self) -> bool {
        of_either!(self, http => http.goes_on())
    }

    #[inline]
    fn body_sent(&mut self, count: u64) {
        of_either!(self, http => http.body_sent(count));
    }

    fn not_sent(&mut self, count: u64) {
        of_either!(self, http => http.not_sent(count));
    }

    #[inline]
    fn sent(&mut self, handler: &mut H) {
        of_either!(self, http => http.sent(handler));
    }

    fn withdraw<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>) -> bool {
        of_either!(self, http => http.withdraw(cx))
    }

    fn abandon(&mut self, handler: &mut H, peer: &Peer) {
        of_either!(self, http => http.abandon(handler, peer));
    }

    fn expire<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
        awaited: Awaited,
    ) -> Option<Closing> {
        of_either!(self, http => http.expire(cx, input, awaited))
    }

    #[inline]
    fn awaits(&self) -> Awaited {
        of_either!(self, http => http.awaits())
    }

    fn also_awaits(&self, tell: &mut dyn FnMut(Awaited)) {
        of_either!(self, http => http.also_awaits(tell));
    }

    fn taken(&mut self, id: RequestId) -> u64 {
        of_either!(self, http => http.taken(id))
    }

    fn left(&self) -> u64 {
        of_either!(self, http => http.left())
    }

    fn deadline_ms(&self, awaited: Awaited) -> u64 {
        of_either!(self, http => http.deadline_ms(awaited))
    }

    fn ends_ms(&self) -> u64 {
        of_either!(self, http => http.ends_ms())
    }

    fn sockets<'s>(&'s self, tell: &mut dyn FnMut(RequestId, SocketId, BorrowedFd<'s>, Wants)) {
        of_either!(self, http => http.sockets(tell));
    }

    fn wake_slots<'s>(&'s self, tell: &mut dyn FnMut(RequestId, &'s WakeSlot)) {
        of_either!(self, http => http.wake_slots(tell));
    }

    #[inline]
    fn has_sockets(&self) -> bool {
        of_either!(self, http => http.has_sockets())
    }

    #[inline]
    fn rank_and_client(&self, id: RequestId) -> (Rank, Option<IpAddr>) {
        of_either!(self, http => http.rank_and_client(id))
    }

    #[inline]
    fn rank(&self) -> Rank {
        of_either!(self, http => http.rank())
    }

    fn set_rank(&mut self, rank: Rank) {
        of_either!(self, http => http.set_rank(rank));
    }

    fn is_queued(&self) -> bool {
        of_either!(self, http => http.is_queued())
    }

    #[inline]
    fn is_at_rest(&self) -> bool {
        of_either!(self, http => http.is_at_rest())
    }

    #[inline]
    fn announced_s(&self) -> u32 {
        of_either!(self, http => http.announced_s())
    }

    #[inline]
    fn is_lent(&self) -> bool {
        of_either!(self, http => http.is_lent())
    }

    fn is_drained(&self) -> bool {
        of_either!(self, http => http.is_drained())
    }

    #[inline]
    fn stays_in_receive(&self) -> bool {
        of_either!(self, http => http.stays_in_receive())
    }

    fn lend(
        &mut self,
        socket: BorrowedFd<'_>,
        sent_bytes: Option<u64>,
        may_stay: bool,
        limits: &ConnectionLimits,
        input: &mut Input,
    ) {
        of_either!(self, http => http.lend(socket, sent_bytes, may_stay, limits, input));
    }

    fn take_handed(&mut self, input: &mut Input) -> (Vec<u8>, H::Ticket) {
        of_either!(self, http => http.take_handed(input))
    }
}
