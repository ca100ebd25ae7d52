//! How streams and the connection end.

use super::{Connection, DRAIN_PING, Drain, EndpointRole, Expect, Http2Event};
use crate::budget::{Abuse, MOST_CONTROL_BYTES};
use crate::closed::StreamEnd;
use crate::error::{ErrorCode, Fault};
use crate::frame::{self, flag, kind};
use crate::stream::{Incoming, Outgoing};

/// What was wrong with a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum FrameError {
    /// The connection ends with it (RFC 9113 §5.4.1).
    Connection(Fault),
    /// Its stream ends with it (§5.4.2).
    Stream(u32, Fault),
}

/// The payload of the PING that comes back when the client has read the answer on this stream.
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
    /// Gives a stream up: it is reset with this code. Nothing happens if it is over.
    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        if self.streams.place(stream).is_some() {
            frame::write_reset(&mut self.control, stream, code);
            self.forget(stream, StreamEnd::Reset);
        }
    }

    /// A server has answered in full and wants no more of the request. The client is told by RST_STREAM with
    /// NO_ERROR (§8.1), and not before it has read the answer, as its answer to a PING shows: clients drop an
    /// answer if the reset comes with it while they send (curl 7.88). Until then the client may go on, as what
    /// comes is [used](Connection::consumed).
    pub fn decline(&mut self, stream: u32) {
        if self.streams.place(stream).is_some() {
            frame::write(&mut self.control, kind::PING, 0, 0, &decline_ping(stream));
        }
    }

    /// The client has read an answer that was given before the end of its request, if it is still sending that.
    fn has_read(&mut self, stream: u32) {
        if self.streams.get(stream).is_some_and(|open| open.outgoing == Outgoing::Ended) {
            self.reset(stream, ErrorCode::NO_ERROR);
        }
    }

    /// Says goodbye (§6.8): the peer is told that no further streams are wanted. Those that it opens
    /// before it knows are served; when it knows, or after [`drain_now`](Connection::drain_now), others
    /// are ignored. A client that has opened more of them than may be open at once knows: it was told
    /// before that one of them was over.
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

    /// The second step of a goodbye, without waiting for the peer: streams above the highest it has
    /// opened are ignored, so that it may send their requests elsewhere.
    pub fn drain_now(&mut self) {
        if matches!(self.drain, Drain::Last(_)) || self.fault.is_some() {
            return;
        }
        let last = self.last_processed();
        self.drain = Drain::Last(last);
        frame::write_goaway(&mut self.control, last, ErrorCode::NO_ERROR);
    }

    /// Whether a goodbye was begun, by us.
    pub fn is_draining(&self) -> bool {
        self.drain != Drain::No
    }

    /// Whether only the first step of a goodbye is done: the peer has not answered that it knows.
    pub fn is_announced(&self) -> bool {
        matches!(self.drain, Drain::Announced(_))
    }

    /// Whether the goodbye is over: no stream is open and none will be.
    pub fn is_drained(&self) -> bool {
        matches!(self.drain, Drain::Last(_)) && self.streams.is_empty()
    }

    /// Ends the connection for a reason of our own, such as repeated refusals. What is
    /// [pending](Connection::flush) then is the last that is sent.
    pub fn fail(&mut self, fault: Fault) {
        if self.fault.is_some() {
            return;
        }
        self.fault = Some(fault);
        self.expect = Expect::Nothing;
        self.block = None;
        if self.control.len() > MOST_CONTROL_BYTES {
            // a flood is not answered
            self.control = Vec::new();
        }
        let last = self.last_processed();
        frame::write_goaway(&mut self.control, last, fault.code);
    }

    /// The highest stream of the peer's that was looked at.
    fn last_processed(&self) -> u32 {
        match (self.role, self.drain) {
            (EndpointRole::Client, _) => 0,
            // it never rises (RFC 9113 §6.8)
            (EndpointRole::Server, Drain::Last(last)) => last,
            (EndpointRole::Server, _) => self.highest,
        }
    }

    /// Asks the peer to answer with [`Http2Event::Pong`].
    pub fn ping(&mut self, payload: u64) {
        frame::write(&mut self.control, kind::PING, 0, 0, &payload.to_be_bytes());
    }

    /// Answers a PING, or goes the second step of a goodbye.
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

    /// Resets a stream for a fault of the peer's, which is charged for it.
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

    /// The peer has ended its side of a stream.
    pub(super) fn end_incoming(&mut self, stream: u32) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        open.incoming = Incoming::Ended;
        if open.outgoing == Outgoing::Ended {
            self.forget(stream, StreamEnd::Ended);
        }
    }

    /// We have ended our side of a stream.
    pub(super) fn end_outgoing(&mut self, stream: u32) {
        let Some(place) = self.streams.place(stream) else { return };
        self.ready.remove(place);
        let Some(open) = self.streams.get_mut(stream) else { return };
        open.outgoing = Outgoing::Ended;
        if open.incoming == Incoming::Ended {
            self.forget(stream, StreamEnd::Ended);
        }
    }

    /// A stream is over. What it held of the connection's window is given back.
    pub(super) fn forget(&mut self, stream: u32, end: StreamEnd) {
        let Some(place) = self.streams.place(stream) else { return };
        self.ready.remove(place);
        if let Some(open) = self.streams.remove(stream) {
            self.release(open.receive_window.held());
        }
        self.closed.remember(stream, end, self.limits.streams);
    }
}
