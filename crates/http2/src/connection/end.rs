//! The ends of streams and of the connection.

use super::{Connection, DRAIN_PING, Drain, EndpointRole, Expect, Http2Event};
use crate::budget::{Abuse, MOST_CONTROL_BYTES};
use crate::closed::StreamEnd;
use crate::error::{ErrorCode, Fault};
use crate::frame::{self, flag, kind};
use crate::stream::{Incoming, Outgoing};

/// An error in a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum FrameError {
    /// An error that ends the connection (RFC 9113 §5.4.1).
    Connection(Fault),
    /// An error that ends its stream (§5.4.2).
    Stream(u32, Fault),
}

/// The payload of the PING whose answer shows that the client has read the answer on this stream.
fn decline_ping(stream: u32) -> [u8; 8] {
    let mut payload = *b"read....";
    payload[4..].copy_from_slice(&stream.to_be_bytes());
    payload
}

impl From<Fault> for FrameError {
    fn from(fault: Fault) -> FrameError {
        FrameError::Connection(fault)
    }
}

impl Connection {
    /// Resets a stream with this code. Does nothing if the stream is over.
    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        if self.streams.place(stream).is_some() {
            frame::write_reset(&mut self.control, stream, code);
            self.forget(stream, StreamEnd::Reset);
        }
    }

    /// Ends the rest of a request that the server has fully answered and does not need. The client gets
    /// RST_STREAM with NO_ERROR (§8.1), but only after it has read the answer, as its answer to a PING shows:
    /// clients that are still sending drop an answer if the reset arrives with it (curl 7.88). Until then the
    /// client may continue to send, as far as received data is [consumed](Connection::consumed).
    pub fn decline(&mut self, stream: u32) {
        if self.streams.place(stream).is_some() {
            frame::write(&mut self.control, kind::PING, 0, 0, &decline_ping(stream));
        }
    }

    /// Resets a stream on which the client has read the answer, if it is still sending the request.
    fn has_read(&mut self, stream: u32) {
        if self.streams.get(stream).is_some_and(|open| open.outgoing == Outgoing::Ended) {
            self.reset(stream, ErrorCode::NO_ERROR);
        }
    }

    /// Begins a graceful shutdown with GOAWAY (§6.8). Streams that the peer opens before it has received the
    /// GOAWAY are served. Later ones are ignored: once the peer has answered a PING, or after
    /// [`drain_now`](Connection::drain_now). A client that has opened more new streams than may be open at
    /// once must have received the GOAWAY, because it has received the end of one of them.
    pub fn drain(&mut self) {
        if self.drain != Drain::No || self.fault.is_some() {
            return;
        }
        if self.role == EndpointRole::Client {
            return self.drain_now();
        }
        self.drain = Drain::Announced(0);
        frame::write_goaway(&mut self.control, 0x7fff_ffff, ErrorCode::NO_ERROR);
        frame::write(&mut self.control, kind::PING, 0, 0, &DRAIN_PING);
    }

    /// Ends the first step of a shutdown without waiting for the peer: streams above the highest that it has
    /// opened are ignored, so it may send their requests elsewhere.
    pub fn drain_now(&mut self) {
        if matches!(self.drain, Drain::Last(_)) || self.fault.is_some() {
            return;
        }
        let last = self.last_processed();
        self.drain = Drain::Last(last);
        frame::write_goaway(&mut self.control, last, ErrorCode::NO_ERROR);
    }

    /// Whether this side has begun a shutdown.
    pub fn is_draining(&self) -> bool {
        self.drain != Drain::No
    }

    /// Whether the shutdown is in its first step: the peer has not confirmed the GOAWAY.
    pub fn is_announced(&self) -> bool {
        matches!(self.drain, Drain::Announced(_))
    }

    /// Whether the shutdown is complete: no stream is open, and none will be.
    pub fn is_drained(&self) -> bool {
        matches!(self.drain, Drain::Last(_)) && self.streams.is_empty()
    }

    /// Ends the connection for a reason other than the peer's frames, such as repeated refusals. What is
    /// [pending](Connection::flush) then is the last that is sent.
    pub fn fail(&mut self, fault: Fault) {
        if self.fault.is_some() {
            return;
        }
        self.fault = Some(fault);
        self.expect = Expect::Nothing;
        self.block = None;
        if self.control.len() > MOST_CONTROL_BYTES {
            // a flood gets no answers
            self.control = Vec::new();
        }
        let last = self.last_processed();
        frame::write_goaway(&mut self.control, last, fault.code);
    }

    /// The highest stream of the peer that was processed.
    fn last_processed(&self) -> u32 {
        match (self.role, self.drain) {
            (EndpointRole::Client, _) => 0,
            // the number never rises (RFC 9113 §6.8)
            (EndpointRole::Server, Drain::Last(last)) => last,
            (EndpointRole::Server, _) => self.highest,
        }
    }

    /// Sends a PING, which the peer answers with [`Http2Event::Pong`].
    pub fn ping(&mut self, payload: u64) {
        frame::write(&mut self.control, kind::PING, 0, 0, &payload.to_be_bytes());
    }

    /// Answers a PING, or handles the answer to one of ours: the next step of a shutdown, or of
    /// [`decline`](Connection::decline).
    pub(super) fn pinged<'i>(&mut self, is_ack: bool, payload: [u8; 8]) -> Option<Http2Event<'i>> {
        if !is_ack {
            frame::write(&mut self.control, kind::PING, flag::ACK, 0, &payload);
            return None;
        }
        if payload == DRAIN_PING && matches!(self.drain, Drain::Announced(_)) {
            self.drain_now();
            return None;
        }
        let stream = frame::number31(&payload[4..]);
        if self.role == EndpointRole::Server && payload == decline_ping(stream) {
            self.has_read(stream);
            return None;
        }
        Some(Http2Event::Pong(u64::from_be_bytes(payload)))
    }

    /// Resets a stream because of a fault of the peer, and charges the peer for it.
    pub(super) fn reset_for<'i>(&mut self, stream: u32, fault: Fault) -> Http2Event<'i> {
        let code = fault.code;
        if self.streams.place(stream).is_some() {
            self.forget(stream, StreamEnd::Reset);
        } else if self.closed.end_of(stream) != Some(StreamEnd::Reset) {
            self.closed.remember(stream, StreamEnd::Reset, self.limits.streams);
        }
        frame::write_reset(&mut self.control, stream, code);
        let abuse = match code {
            ErrorCode::REFUSED_STREAM => Abuse::Resets,
            _ => Abuse::MadeResets,
        };
        if let Err(fault) = self.budgets.charge(abuse, 1, self.now_ms) {
            self.fail(fault);
        }
        Http2Event::Reset { stream, code, fault: Some(fault.reason) }
    }

    /// Ends the peer's side of a stream.
    pub(super) fn end_incoming(&mut self, stream: u32) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        open.incoming = Incoming::Ended;
        if open.outgoing == Outgoing::Ended {
            self.forget(stream, StreamEnd::Ended);
        }
    }

    /// Ends our side of a stream.
    pub(super) fn end_outgoing(&mut self, stream: u32) {
        let Some(place) = self.streams.place(stream) else { return };
        self.ready.remove(place);
        let Some(open) = self.streams.get_mut(stream) else { return };
        open.outgoing = Outgoing::Ended;
        if open.incoming == Incoming::Ended {
            self.forget(stream, StreamEnd::Ended);
        }
    }

    /// Removes a stream that is over, and gives back what it held of the connection's window.
    pub(super) fn forget(&mut self, stream: u32, end: StreamEnd) {
        let Some(place) = self.streams.place(stream) else { return };
        self.ready.remove(place);
        if let Some(open) = self.streams.remove(stream) {
            self.release(open.receive_window.held());
        }
        self.closed.remember(stream, end, self.limits.streams);
    }
}
