//! HTTP/2 to an application or the next stage of this server, one request at a time on a connection.
//!
//! An exchange sends and receives what HTTP/1.1 would. Here that is converted to frames, and frames
//! to that: a head in text, then the body as it is. What HTTP/1.1 cannot express is reported
//! separately: whether an answer has ended or has broken off, and that nothing of a request has run
//! (REFUSED_STREAM, or a stream above the last of a GOAWAY).
//!
//! There is one stream at a time, because a connection then has one exchange and one loop, which
//! takes it from a pool and gives it back as one of HTTP/1.1. Nothing must be shared out between
//! streams, and what one client does not take holds up no other. Connections that requests share are
//! in [`shared`](super::shared).

pub(crate) mod text;

use crate::upstreams::stream::{ConnectError, UpstreamStream};
use forebay_http2::frame::{FrameHeader, HEADER_BYTES, kind};
use forebay_http2::{
    Connection, DecodedFields, ErrorCode, FieldLimits, Http2Event, Http2Limits, MessagePart,
};
use forebay_sys::socket::{Received, Sent};
use forebay_tls::TlsFault;
use std::io;
use std::mem;
use text::TrailerFields;

/// How much is received at a time where an answer is long.
const RECEIVE_BYTES: usize = 64 * 1024;

/// How much is received at first. A larger buffer would be mapped anew each time, and most answers
/// are short.
const FIRST_RECEIVE_BYTES: usize = 16 * 1024;

/// An answer is received as it is taken, so the window need not hold it back.
const WINDOW_BYTES: u32 = 0x7fff_ffff;

/// How much of an answer an application may send that the client does not take, before it takes more
/// of the request. All of that is kept here.
const APPLICATION_WINDOW_BYTES: u32 = 256 * 1024;

/// How much output may wait for the socket before control frames are no longer answered. When as much
/// again waits, the connection has failed.
pub(crate) const MOST_OUTPUT_BYTES: usize = 128 * 1024;

/// The limits of a head. How much of it is for the client is decided when it is text.
pub(crate) const HEAD: FieldLimits = FieldLimits { bytes: 128 * 1024, fields: 256 };

/// How the answer to a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerEnd {
    /// The answer is complete.
    Whole,
    /// Nothing of the request has run, and nothing will.
    Refused,
    /// The answer has broken off.
    Broken,
}

/// The kind of peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Http2Peer {
    /// A stage of this server.
    Stage,
    /// Any other server.
    Application,
}

/// A connection as a state machine, and the request that is under way on it.
#[derive(Debug)]
pub(crate) struct UpstreamHttp2 {
    machine: Connection,
    scheme: &'static [u8],
    fields: DecodedFields,
    /// The bytes received; those before `at` are used.
    input: Vec<u8>,
    at: usize,
    /// How much is received next.
    receive_bytes: usize,
    /// The frames; those before `sent` are sent.
    output: Vec<u8>,
    sent: usize,
    /// The bytes of the answer that were received before they were wanted; those before `ahead_at`
    /// are used.
    ahead: Vec<u8>,
    ahead_at: usize,
    /// Whether the bytes that come now are not taken yet.
    is_ahead: bool,
    /// How many bytes of the request are in the output, before the connection is established.
    queued: Option<usize>,
    /// The stream of the request.
    stream: Option<u32>,
    /// Whether the end of the request is in the output.
    has_ended: bool,
    end: Option<AnswerEnd>,
    trailers: TrailerFields,
}

impl UpstreamHttp2 {
    /// A connection on which nothing was sent.
    pub(crate) fn new(peer: Http2Peer, is_tls: bool) -> UpstreamHttp2 {
        let limits = Http2Limits {
            fields: HEAD,
            stream_window_bytes: match peer {
                Http2Peer::Stage => WINDOW_BYTES,
                Http2Peer::Application => APPLICATION_WINDOW_BYTES,
            },
            connection_window_bytes: WINDOW_BYTES,
            ..Http2Limits::default()
        };
        UpstreamHttp2 {
            machine: Connection::client(limits),
            // applications compare the scheme with how they are reached
            scheme: if is_tls { b"https" } else { b"http" },
            fields: DecodedFields::default(),
            input: Vec::new(),
            at: 0,
            receive_bytes: FIRST_RECEIVE_BYTES,
            output: Vec::new(),
            sent: 0,
            ahead: Vec::new(),
            ahead_at: 0,
            is_ahead: false,
            queued: None,
            stream: None,
            has_ended: false,
            end: None,
            trailers: Vec::new(),
        }
    }

    /// Whether it is certain that nothing of the request has run, because the peer has said so.
    pub(crate) fn is_refused(&self) -> bool {
        self.end == Some(AnswerEnd::Refused)
    }

    /// Whether all of an answer was received, and taken.
    pub(crate) fn is_over(&self) -> bool {
        self.end == Some(AnswerEnd::Whole) && !self.has_ahead()
    }

    /// Whether some of the answer was received before it was wanted.
    pub(crate) fn has_ahead(&self) -> bool {
        self.ahead_at < self.ahead.len()
    }

    /// The trailers of the answer.
    pub(crate) fn trailers(&self) -> &[(Box<str>, Box<[u8]>)] {
        &self.trailers
    }

    /// Whether frames wait for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Whether a call of [`send`](UpstreamHttp2::send) without bytes does something.
    pub(crate) fn wants_to_send(&self, ends: bool) -> bool {
        let is_open = self.stream.is_none_or(|stream| self.machine.is_open(stream));
        self.has_unsent() || (ends && !self.has_ended && self.end.is_none() && is_open)
    }

    /// Whether some of a body may be sent now.
    pub(crate) fn has_room(&self) -> bool {
        self.stream.is_none_or(|stream| self.machine.send_capacity(stream) > 0)
    }

    /// Whether the next request may begin. What has come meanwhile is read, since the peer may be
    /// about to end.
    pub(crate) fn is_fit(&mut self, stream: &mut UpstreamStream, now_ms: u64) -> bool {
        let mut nothing = Vec::new();
        let mut received = self.receive(stream, &mut nothing, RECEIVE_BYTES, now_ms);
        if received == Received::Ended {
            // the end of the answer before, whose body was complete without it
            self.end = None;
            self.trailers.clear();
            received = self.receive(stream, &mut nothing, RECEIVE_BYTES, now_ms);
        }
        received == Received::Blocked
            && self.machine.open_streams() == 0
            && self.machine.can_open()
            && !self.has_unsent()
    }

    /// Whether the request leaves nothing behind; then its state is cleared.
    pub(crate) fn ends_clean(&mut self, stream: &mut UpstreamStream) -> bool {
        let mut nothing = Vec::new();
        if self.end.is_none() {
            // the end of a body of known length may come after its last byte, and need not be waited
            // for
            self.receive(stream, &mut nothing, RECEIVE_BYTES, 0);
        }
        let lags = self.end.is_none() && nothing.is_empty();
        // the acknowledgement of the peer's settings
        self.machine.flush(&mut self.output);
        self.write(stream);
        let is_clean = (lags || (self.is_over() && self.machine.open_streams() == 0))
            && self.has_ended
            && self.machine.can_open()
            && !self.has_unsent();
        if is_clean {
            (self.stream, self.end, self.has_ended) = (None, None, false);
            (self.ahead, self.ahead_at) = (Vec::new(), 0);
            self.trailers.clear();
            if self.at == self.input.len() {
                // an idle connection takes no memory
                (self.input, self.at) = (Vec::new(), 0);
            }
            self.output = Vec::new();
            self.sent = 0;
        }
        is_clean
    }

    /// Puts these bytes before the preface of HTTP/2.
    pub(crate) fn begin_in_clear(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Sends the first bytes of a request, if the connection is established, and was agreed to be
    /// HTTP/2.
    ///
    /// # Errors
    /// Why the connection is not established, and will not be.
    pub(crate) fn begin(
        &mut self,
        stream: &mut UpstreamStream,
        bytes: &[u8],
        ends: bool,
    ) -> Result<Sent, ConnectError> {
        if !stream.shake()? {
            return Ok(Sent::Blocked);
        }
        if !stream.is_for_http2() {
            return Err(ConnectError::Tls(TlsFault::NoHttp2));
        }
        let queued = match self.queued {
            Some(queued) => queued,
            None => self
                .queue(bytes, ends)
                .ok_or(io::ErrorKind::NotConnected)
                .map_err(io::Error::from)?,
        };
        self.queued = Some(queued);
        Ok(match stream.begin(&self.output[self.sent..])? {
            Sent::Bytes(count) => {
                self.sent += count;
                self.queued = None;
                Sent::Bytes(queued)
            }
            other => other,
        })
    }

    /// Sends the next bytes of a request in HTTP/1.1, without chunks: its head as a whole, and its
    /// body as far as the window allows. `ends` says that they are the last. Returns how many were
    /// taken; none if the window is closed or there were none.
    pub(crate) fn send(&mut self, stream: &mut UpstreamStream, bytes: &[u8], ends: bool) -> Sent {
        match self.write(stream) {
            (_, Sent::Bytes(_)) => {}
            (_, other) => return other,
        }
        let Some(used) = self.queue(bytes, ends) else {
            self.end = Some(AnswerEnd::Refused);
            return Sent::Broken;
        };
        match self.write(stream) {
            (0, Sent::Broken) => Sent::Broken,
            // unsent frames are kept here
            _ => Sent::Bytes(used),
        }
    }

    /// Makes frames of the next bytes of a request, as far as the window allows. Returns how many
    /// bytes were used; `None` if the peer takes no request.
    fn queue(&mut self, bytes: &[u8], ends: bool) -> Option<usize> {
        let (stream, used) = match self.stream {
            Some(stream) => (stream, 0),
            None => self.open(bytes, ends)?,
        };
        if self.has_ended {
            return Some(used);
        }
        let (machine, output) = (&mut self.machine, &mut self.output);
        let (more, has_ended) =
            text::data(machine, output, usize::MAX, stream, &bytes[used..], ends);
        self.has_ended = has_ended;
        Some(used + more)
    }

    /// Cancels the answer: the stream is reset, if it is not over.
    pub(crate) fn cancel(&mut self, stream: &mut UpstreamStream) {
        self.reset();
        self.machine.flush(&mut self.output);
        self.write(stream);
    }

    /// Resets the stream, if it is open.
    fn reset(&mut self) {
        if let Some(stream) = self.stream {
            self.machine.reset(stream, ErrorCode::CANCEL);
        }
    }

    /// Sends the trailers of a request, given as lines of HTTP/1.1, which end it.
    pub(crate) fn end_with(&mut self, to: &mut UpstreamStream, trailers: &[u8]) {
        let Some(stream) = self.stream.filter(|_| !self.has_ended) else { return };
        self.has_ended = true;
        self.machine.head(&mut self.output, stream, MessagePart::Last, |block| {
            text::lines(block, trailers)
        });
        self.write(to);
    }

    /// Opens a stream for the head at the front of `bytes`. Returns the stream and the length of the
    /// head.
    fn open(&mut self, bytes: &[u8], ends: bool) -> Option<(u32, usize)> {
        let opened = text::open(&mut self.machine, &mut self.output, self.scheme, bytes, ends)?;
        (self.stream, self.has_ended) = (Some(opened.number), opened.has_ended);
        Some((opened.number, opened.head_bytes))
    }

    /// Sends what waits. Returns how much was taken, and what became of the rest.
    fn write(&mut self, stream: &mut UpstreamStream) -> (usize, Sent) {
        let begin = self.sent;
        while self.has_unsent() {
            match stream.send(&self.output[self.sent..]) {
                Sent::Bytes(count) => self.sent += count,
                other => return (self.sent - begin, other),
            }
        }
        self.output.clear();
        let count = self.sent - begin;
        self.sent = 0;
        (count, Sent::Bytes(count))
    }

    /// Appends what comes of the answer to `into`: heads as in HTTP/1.1, and at most `most` bytes of
    /// a body. `Ended` means the end of the answer.
    pub(crate) fn receive(
        &mut self,
        stream: &mut UpstreamStream,
        into: &mut Vec<u8>,
        most: usize,
        now_ms: u64,
    ) -> Received {
        let begin = into.len();
        loop {
            if self.has_ahead() {
                let count = self.take_ahead(into, most);
                self.write(stream);
                return Received::Bytes(count);
            }
            self.use_input(into, begin + most, now_ms);
            self.flush();
            if into.len() > begin {
                if self.end.is_none() {
                    // the peer's window opens now, without waiting until all is used
                    self.write(stream);
                }
                return Received::Bytes(into.len() - begin);
            }
            match self.end {
                Some(AnswerEnd::Whole) => return Received::Ended,
                Some(AnswerEnd::Refused | AnswerEnd::Broken) => return Received::Broken,
                None => {}
            }
            match self.receive_input(stream) {
                Received::Bytes(_) => {}
                Received::Blocked => {
                    // acknowledgements and window updates; what the socket does not take now goes
                    // with the next bytes
                    self.write(stream);
                    return Received::Blocked;
                }
                Received::Ended | Received::Broken => {
                    self.end = Some(AnswerEnd::Broken);
                    return Received::Broken;
                }
            }
        }
    }

    /// Receives once.
    fn receive_input(&mut self, stream: &mut UpstreamStream) -> Received {
        // the rest of a frame moves to the front, or the buffer would only grow
        self.input.drain(..mem::take(&mut self.at));
        let received = stream.receive_more(&mut self.input, self.receive_bytes);
        self.receive_bytes = match received {
            Received::Bytes(count) if count >= self.receive_bytes => RECEIVE_BYTES,
            Received::Bytes(_) => FIRST_RECEIVE_BYTES,
            _ => self.receive_bytes,
        };
        received
    }

    /// Puts control frames into the output, unless the peer takes none. Then they wait in the
    /// machine, which limits them.
    fn flush(&mut self) {
        if self.output.len() - self.sent < MOST_OUTPUT_BYTES {
            self.machine.flush(&mut self.output);
        }
    }

    /// Receives bytes that are not wanted yet, so that what follows them can open the window for the
    /// request. The answer's own window limits how much. Returns whether more may be there.
    pub(crate) fn look_ahead(&mut self, stream: &mut UpstreamStream, now_ms: u64) -> bool {
        while !self.has_room() && self.end.is_none() {
            let mut ahead = mem::take(&mut self.ahead);
            self.is_ahead = true;
            self.use_input(&mut ahead, usize::MAX, now_ms);
            self.is_ahead = false;
            self.ahead = ahead;
            self.flush();
            if self.has_room() || self.end.is_some() {
                break;
            }
            match self.receive_input(stream) {
                Received::Bytes(_) => {}
                Received::Blocked => {
                    self.write(stream);
                    return false;
                }
                Received::Ended | Received::Broken => {
                    self.end = Some(AnswerEnd::Broken);
                }
            }
        }
        true
    }

    /// Takes some of the bytes that were received before they were wanted.
    fn take_ahead(&mut self, into: &mut Vec<u8>, most: usize) -> usize {
        let count = most.min(self.ahead.len() - self.ahead_at);
        into.extend_from_slice(&self.ahead[self.ahead_at..self.ahead_at + count]);
        self.ahead_at += count;
        if let Some(stream) = self.stream {
            self.machine.consumed(stream, count);
        }
        if !self.has_ahead() {
            (self.ahead, self.ahead_at) = (Vec::new(), 0);
        }
        self.flush();
        count
    }

    /// Uses the received bytes, until `into` has `most` bytes.
    fn use_input(&mut self, into: &mut Vec<u8>, most: usize, now_ms: u64) {
        while into.len() < most {
            let rest = &self.input[self.at..];
            // the machine gets at most `left` bytes, so that a body never has more than `most`
            let left = most - into.len();
            let mut received =
                self.machine.receive(&rest[..rest.len().min(left)], &mut self.fields, now_ms);
            if received.used == 0 && received.event.is_none() && rest.len() > left {
                // the rest of a frame, but only a part of a body
                let Some(header) = FrameHeader::read(rest) else { break };
                let len = if header.kind == kind::DATA { left.min(header.len) } else { header.len };
                let end = rest.len().min(HEADER_BYTES + len);
                received = self.machine.receive(&rest[..end], &mut self.fields, now_ms);
            }
            self.at += received.used;
            match received.event {
                None if received.used == 0 => break,
                None => {}
                Some(Http2Event::Informational { .. }) => text::head(&self.fields, into),
                Some(Http2Event::Response { ends, .. }) => {
                    text::head(&self.fields, into);
                    self.ends(ends);
                }
                Some(Http2Event::Data { stream, bytes, ends }) => {
                    into.extend_from_slice(bytes);
                    // bytes that are received ahead open the window when they are taken
                    if !self.is_ahead {
                        self.machine.consumed(stream, bytes.len());
                    }
                    self.ends(ends);
                }
                Some(Http2Event::Trailers { .. }) => {
                    self.trailers = text::trailers(&self.fields);
                    self.ends(true);
                }
                Some(Http2Event::Reset { code, fault, .. }) => {
                    let is_refused = code == ErrorCode::REFUSED_STREAM && fault.is_none();
                    let end = if is_refused { AnswerEnd::Refused } else { AnswerEnd::Broken };
                    self.end.get_or_insert(end);
                }
                Some(Http2Event::Failed(_)) => _ = self.end.get_or_insert(AnswerEnd::Broken),
                Some(_) => {}
            }
        }
        if self.at == self.input.len() {
            self.input.clear();
            self.at = 0;
        }
    }

    fn ends(&mut self, ends: bool) {
        if ends {
            self.end.get_or_insert(AnswerEnd::Whole);
        }
    }
}

#[cfg(test)]
#[path = "http2_tests.rs"]
mod tests;
