//! HTTP/2 to the next stage of this server, one request at a time on a connection.
//!
//! An exchange sends and receives what HTTP/1.1 would say; here that becomes frames, and frames become that:
//! a head in text, then the body as it is. What HTTP/1.1 cannot say is told beside it: whether an answer
//! has ended or has broken off, and that nothing of a request has run (REFUSED_STREAM, or a stream above
//! the last of a GOAWAY).
//!
//! One stream at a time, because a connection then has one exchange and one loop, which takes it from a pool
//! and gives it back as one of HTTP/1.1. Nothing is to be shared out between streams, and what a client
//! does not take holds up no other client.

use forebay_http2::frame::{FrameHeader, HEADER_BYTES, kind};
use forebay_http2::hpack::encode;
use forebay_http2::{
    Connection, DecodedFields, ErrorCode, FieldLimits, Http2Event, Http2Limits, MessagePart,
};
use forebay_sys::socket::{self, Received, Sent};
use std::io::Write;
use std::os::fd::BorrowedFd;

/// So much is received at a time.
const RECEIVE_BYTES: usize = 64 * 1024;

/// An answer is received as it is taken, so the window need not hold it back.
const WINDOW_BYTES: u32 = 0x7fff_ffff;

/// A head may say so much; how much of it is for the client is decided when it is text.
const HEAD: FieldLimits = FieldLimits { bytes: 128 * 1024, fields: 256 };

/// How the answer to a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerEnd {
    /// All of it is there.
    Whole,
    /// Nothing of the request has run, and none will.
    Refused,
    /// There should be more.
    Broken,
}

/// A connection as a state machine, and the request that is under way on it.
#[derive(Debug)]
pub(crate) struct UpstreamHttp2 {
    machine: Connection,
    fields: DecodedFields,
    /// Received; from `at` on not used.
    input: Vec<u8>,
    at: usize,
    /// Frames; from `sent` on not sent.
    output: Vec<u8>,
    sent: usize,
    /// The stream of the request.
    stream: Option<u32>,
    /// The end of the request is in the output.
    has_ended: bool,
    end: Option<AnswerEnd>,
    trailers: Vec<(Box<str>, Box<[u8]>)>,
}

impl UpstreamHttp2 {
    /// A connection on which nothing was said.
    pub(crate) fn new() -> UpstreamHttp2 {
        let limits = Http2Limits {
            fields: HEAD,
            stream_window_bytes: WINDOW_BYTES,
            connection_window_bytes: WINDOW_BYTES,
            ..Http2Limits::default()
        };
        UpstreamHttp2 {
            machine: Connection::client(limits),
            fields: DecodedFields::default(),
            input: Vec::new(),
            at: 0,
            output: Vec::new(),
            sent: 0,
            stream: None,
            has_ended: false,
            end: None,
            trailers: Vec::new(),
        }
    }

    /// Whether nothing of the request has run for certain, because the stage has said so.
    pub(crate) fn is_refused(&self) -> bool {
        self.end == Some(AnswerEnd::Refused)
    }

    /// Whether all of an answer is there.
    pub(crate) fn is_over(&self) -> bool {
        self.end == Some(AnswerEnd::Whole)
    }

    /// What followed the body of the answer.
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

    /// The next request begins, if there may be one. What has come meanwhile is looked at: it may be that
    /// the stage is about to end.
    pub(crate) fn is_fit(&mut self, socket: BorrowedFd<'_>, now_ms: u64) -> bool {
        let mut nothing = Vec::new();
        self.receive(socket, &mut nothing, RECEIVE_BYTES, now_ms) == Received::Blocked
            && self.machine.can_open()
            && !self.has_unsent()
    }

    /// Whether the request that was under way leaves nothing behind; then it is forgotten.
    pub(crate) fn ends_clean(&mut self, socket: BorrowedFd<'_>) -> bool {
        // what its settings are answered with
        self.write(socket);
        let is_clean = self.is_over()
            && self.has_ended
            && self.machine.open_streams() == 0
            && self.machine.can_open()
            && !self.has_unsent();
        if is_clean {
            (self.stream, self.end, self.has_ended) = (None, None, false);
            self.trailers.clear();
            if self.at == self.input.len() {
                // what waits for long takes no memory
                (self.input, self.at) = (Vec::new(), 0);
            }
            self.output = Vec::new();
            self.sent = 0;
        }
        is_clean
    }

    /// Sends the next bytes of a request in HTTP/1.1, without chunks: its head as a whole, and its body as far
    /// as the window goes. `ends` if they are its last. Says how many were taken; with none, the window is closed
    /// or there were none.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, bytes: &[u8], ends: bool) -> Sent {
        match self.write(socket) {
            (_, Sent::Bytes(_)) => {}
            (_, other) => return other,
        }
        let mut used = 0;
        let stream = match self.stream {
            Some(stream) => stream,
            None => match self.open(bytes, ends) {
                Some((stream, head_bytes)) => {
                    used = head_bytes;
                    stream
                }
                None => {
                    self.end = Some(AnswerEnd::Refused);
                    return Sent::Broken;
                }
            },
        };
        while !self.has_ended {
            let rest = &bytes[used..];
            let count = rest.len().min(self.machine.send_capacity(stream) as usize);
            let is_last = ends && count == rest.len();
            if count == 0 && !is_last {
                break;
            }
            // no more than there is room for
            let Some(header) = self.machine.data(stream, count as u32, is_last) else { break };
            self.output.extend_from_slice(&header);
            self.output.extend_from_slice(&rest[..count]);
            used += count;
            self.has_ended = is_last;
        }
        match self.write(socket) {
            (0, Sent::Broken) => Sent::Broken,
            // what is not sent is kept here
            _ => Sent::Bytes(used),
        }
    }

    /// What follows the body of the request, as lines of HTTP/1.1, which ends it.
    pub(crate) fn end_with(&mut self, socket: BorrowedFd<'_>, trailers: &[u8]) {
        let Some(stream) = self.stream.filter(|_| !self.has_ended) else { return };
        self.has_ended = true;
        self.machine
            .head(&mut self.output, stream, MessagePart::Last, |block| lines(block, trailers));
        self.write(socket);
    }

    /// Opens a stream for the head at the front of `bytes`. Says how long that is.
    fn open(&mut self, bytes: &[u8], ends: bool) -> Option<(u32, usize)> {
        const END: &[u8] = b"\r\n\r\n";
        let head_bytes = memchr::memmem::find(bytes, END)? + END.len();
        let (head, is_last) = (&bytes[..head_bytes], ends && head_bytes == bytes.len());
        let line_end = memchr::memchr(b'\r', head)?;
        let mut words = head[..line_end].split(|&byte| byte == b' ');
        let (method, target) = (words.next()?, words.next()?);
        let is_head = method == b"HEAD";
        let stream = self.machine.open(&mut self.output, is_last, is_head, |block| {
            encode::field(block, b":method", method);
            encode::field(block, b":scheme", b"http");
            encode::raw(block, b":path", target);
            lines(block, &head[line_end + 2..]);
        })?;
        (self.stream, self.has_ended) = (Some(stream), is_last);
        Some((stream, head_bytes))
    }

    /// Sends what waits. Says how much of it was taken, and what became of the rest.
    fn write(&mut self, socket: BorrowedFd<'_>) -> (usize, Sent) {
        let begin = self.sent;
        while self.has_unsent() {
            match socket::send(socket, &self.output[self.sent..], false) {
                Sent::Bytes(count) => self.sent += count,
                other => return (self.sent - begin, other),
            }
        }
        self.output.clear();
        let count = self.sent - begin;
        self.sent = 0;
        (count, Sent::Bytes(count))
    }

    /// Appends what comes of the answer to `into`: heads as HTTP/1.1 has them, and at most `most` bytes of a body.
    /// The end is that of the answer.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        into: &mut Vec<u8>,
        most: usize,
        now_ms: u64,
    ) -> Received {
        let begin = into.len();
        loop {
            self.use_input(into, begin + most, now_ms);
            self.machine.flush(&mut self.output);
            if into.len() > begin {
                return Received::Bytes(into.len() - begin);
            }
            match self.end {
                Some(AnswerEnd::Whole) => return Received::Ended,
                Some(AnswerEnd::Refused | AnswerEnd::Broken) => return Received::Broken,
                None => {}
            }
            match socket::receive_more(socket, &mut self.input, RECEIVE_BYTES) {
                Received::Bytes(_) => {}
                Received::Blocked => {
                    // settings and windows; what is not taken now goes with the next bytes
                    self.write(socket);
                    return Received::Blocked;
                }
                Received::Ended | Received::Broken => {
                    self.end = Some(AnswerEnd::Broken);
                    return Received::Broken;
                }
            }
        }
    }

    /// Uses what was received, until `into` has `most` bytes.
    fn use_input(&mut self, into: &mut Vec<u8>, most: usize, now_ms: u64) {
        while into.len() < most {
            let rest = &self.input[self.at..];
            let left = most - into.len();
            let mut received =
                self.machine.receive(&rest[..rest.len().min(left)], &mut self.fields, now_ms);
            if received.used == 0 && received.event.is_none() && rest.len() > left {
                // the rest of a frame, but not of its body
                let Some(header) = FrameHeader::read(rest) else { break };
                let len = if header.kind == kind::DATA { left.min(header.len) } else { header.len };
                let end = rest.len().min(HEADER_BYTES + len);
                received = self.machine.receive(&rest[..end], &mut self.fields, now_ms);
            }
            self.at += received.used;
            match received.event {
                None if received.used == 0 => break,
                None => {}
                Some(Http2Event::Informational { .. }) => head(&self.fields, into),
                Some(Http2Event::Response { ends, .. }) => {
                    head(&self.fields, into);
                    self.ends(ends);
                }
                Some(Http2Event::Data { stream, bytes, ends }) => {
                    into.extend_from_slice(bytes);
                    self.machine.consumed(stream, bytes.len());
                    self.ends(ends);
                }
                Some(Http2Event::Trailers { .. }) => {
                    let text = |name| std::str::from_utf8(name).unwrap_or_default();
                    let fields = self.fields.iter();
                    self.trailers =
                        fields.map(|(name, value)| (text(name).into(), value.into())).collect();
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

/// Appends a head in text.
fn head(fields: &DecodedFields, into: &mut Vec<u8>) {
    // writing into a vector does not fail
    let _ = write!(into, "HTTP/1.1 {} \r\n", fields.status());
    for (name, value) in fields.iter() {
        push_name(name, into);
        for part in [b": ", value, b"\r\n"] {
            into.extend_from_slice(part);
        }
    }
    into.extend_from_slice(b"\r\n");
}

/// Appends a name as HTTP/1.1 is used to it: HTTP/2 has lost its capitals, and some clients look for them.
fn push_name(name: &[u8], into: &mut Vec<u8>) {
    match name {
        b"etag" => return into.extend_from_slice(b"ETag"),
        b"www-authenticate" => return into.extend_from_slice(b"WWW-Authenticate"),
        _ => {}
    }
    let begin = into.len();
    into.extend_from_slice(name);
    let mut is_first = true;
    for byte in &mut into[begin..] {
        if is_first {
            byte.make_ascii_uppercase();
        }
        is_first = *byte == b'-';
    }
}

/// Writes fields in text, but for those that are about the connection (RFC 9113 §8.2.2).
fn lines(block: &mut Vec<u8>, text: &[u8]) {
    let mut lower = Vec::with_capacity(64);
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii_end();
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let value = line[colon + 1..].trim_ascii_start();
        lower.clear();
        lower.extend_from_slice(&line[..colon]);
        lower.make_ascii_lowercase();
        match &*lower {
            b"connection" | b"transfer-encoding" | b"keep-alive" | b"upgrade" => {}
            b"host" => encode::raw(block, b":authority", value),
            name => encode::raw(block, name, value),
        }
    }
}

#[cfg(test)]
#[path = "http2_tests.rs"]
mod tests;
