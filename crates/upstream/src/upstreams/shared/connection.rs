//! A connection that requests share, as a state machine over its socket: its streams, their requests,
//! and frames that wait.

use super::request::{RequestPlace, SharedRequest};
use crate::upstreams::http2::text::{self, OpenedStream};
use crate::upstreams::http2::{AnswerEnd, HEAD, MOST_OUTPUT_BYTES};
use crate::upstreams::stream::{ConnectError, UpstreamStream};
use forebay_http2::{Connection, DecodedFields, ErrorCode, Http2Event, Http2Limits, MessagePart};
use forebay_sys::socket::{Received, Sent};
use forebay_tls::TlsFault;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::{io, mem};

/// How much of an answer may come that its client does not take. It is kept, so that other answers go
/// on.
const STREAM_WINDOW_BYTES: u32 = 128 * 1024;

/// The window of the connection, which never limits a stream: the windows of the streams are the
/// limit.
const CONNECTION_WINDOW_BYTES: u32 = 0x7fff_ffff;

/// The largest number of streams of one connection, whatever the application allows, because all of
/// them fail with it.
const MOST_STREAMS: u32 = 1000;

/// How much is received at a time.
const RECEIVE_BYTES: usize = 64 * 1024;

/// After how long without a word a connection is probed, since a request that was given up was sent.
const SILENT_MS: u64 = 1_000;

/// How long a connection may be silent after that; and how long after its last byte an answer may
/// end.
const PATIENCE_MS: u64 = 5_000;

/// The payload of the probe.
const PROBE: u64 = 0x666f_7265_6261_793f;

/// All requests that share connections to one upstream, by number.
pub(super) type Requests = HashMap<u64, SharedRequest>;

/// The request that gets what comes on a stream.
#[derive(Clone, Copy, Debug)]
enum StreamOwner {
    Request(u64),
    /// No request: it has all it wants, and only the end is still to come.
    Nobody {
        since_ms: u64,
    },
}

/// A connection of HTTP/2 that requests share.
#[derive(Debug)]
pub(super) struct SharedConnection {
    pub(super) number: u64,
    stream: UpstreamStream,
    /// The address of the connection, if the upstream has a name.
    pub(super) address: Option<SocketAddr>,
    machine: Connection,
    scheme: &'static [u8],
    /// Whether the connection is established.
    pub(super) is_up: bool,
    /// Whether the TLS session was resumed, until the first request takes this.
    handshake: Option<bool>,
    begun_ms: u64,
    heard_ms: u64,
    /// Since when the connection has no request.
    rests_ms: u64,
    /// Since when an answer to a probe is due.
    doubted_ms: Option<u64>,
    /// Whether the application takes no further requests on the connection.
    pub(super) is_leaving: bool,
    /// The number of GOAWAYs that have come.
    pub(super) goaways: u32,
    /// The number of requests on this connection, or waiting for it to be established.
    pub(super) load: usize,
    /// Whether the connection has been idle since it was used.
    has_rested: bool,
    fields: DecodedFields,
    /// The bytes received; those before `at` are used.
    input: Vec<u8>,
    at: usize,
    /// The frames that are not sent yet.
    output: Vec<u8>,
    streams: HashMap<u32, StreamOwner>,
    /// The requests with more to send than there is room for.
    wanting: Vec<u64>,
}

impl SharedConnection {
    /// A connection that was just begun.
    pub(super) fn new(
        number: u64,
        stream: UpstreamStream,
        address: Option<SocketAddr>,
        now_ms: u64,
    ) -> SharedConnection {
        let limits = Http2Limits {
            fields: HEAD,
            streams: MOST_STREAMS,
            stream_window_bytes: STREAM_WINDOW_BYTES,
            connection_window_bytes: CONNECTION_WINDOW_BYTES,
            ..Http2Limits::default()
        };
        SharedConnection {
            number,
            // applications compare the scheme with how they are reached
            scheme: if stream.is_tls() { b"https" } else { b"http" },
            stream,
            address,
            machine: Connection::client(limits),
            is_up: false,
            handshake: None,
            begun_ms: now_ms,
            heard_ms: now_ms,
            rests_ms: now_ms,
            doubted_ms: None,
            is_leaving: false,
            goaways: 0,
            load: 0,
            has_rested: false,
            fields: DecodedFields::default(),
            input: Vec::new(),
            at: 0,
            output: Vec::new(),
            streams: HashMap::new(),
            wanting: Vec::new(),
        }
    }

    /// Whether requests may still be given to the connection.
    pub(super) fn is_open(&self) -> bool {
        !self.is_leaving && self.machine.fault().is_none()
    }

    /// Whether an answer to a probe is due.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubted_ms.is_some()
    }

    /// The number of the TLS clients that began the session; `None` without TLS.
    pub(super) fn clients(&self) -> Option<u64> {
        self.stream.clients()
    }

    /// How many streams may be opened now. That is one before the application has said how many it
    /// takes: some applications close the connection if there are more.
    pub(super) fn free_streams(&self) -> usize {
        let is_blocked = self.output.len() >= MOST_OUTPUT_BYTES;
        if !self.is_up || !self.is_open() || is_blocked || !self.machine.can_open() {
            return 0;
        }
        let most = match self.machine.is_introduced() {
            true => self.machine.peer().max_concurrent_streams.min(MOST_STREAMS),
            false => 1,
        };
        (most as usize).saturating_sub(self.machine.open_streams())
    }

    /// Looks whether the connection is established.
    ///
    /// # Errors
    /// Why it is not, and will not be.
    pub(super) fn come_about(&mut self) -> Result<bool, ConnectError> {
        if self.is_up {
            return Ok(true);
        }
        if !self.stream.shake()? {
            return Ok(false);
        }
        if !self.stream.is_for_http2() {
            return Err(ConnectError::Tls(TlsFault::NoHttp2));
        }
        self.machine.flush(&mut self.output);
        match self.stream.begin(&self.output)? {
            Sent::Bytes(count) => _ = self.output.drain(..count),
            Sent::Blocked => return Ok(false),
            Sent::Broken => return Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        }
        (self.is_up, self.handshake) = (true, self.stream.is_resumed());
        Ok(true)
    }

    /// Whether the TLS session was resumed; returned only once.
    pub(super) fn take_handshake(&mut self) -> Option<bool> {
        self.handshake.take()
    }

    /// Counts a request.
    pub(super) fn enters(&mut self) {
        self.load += 1;
    }

    /// Uncounts a request.
    pub(super) fn leaves(&mut self, now_ms: u64) {
        self.load = self.load.saturating_sub(1);
        if self.load == 0 {
            (self.rests_ms, self.has_rested) = (now_ms, true);
        }
    }

    /// Opens a stream for a request, and sends its first bytes. Returns how many were taken; `None`
    /// if the connection takes no request.
    pub(super) fn open(
        &mut self,
        id: u64,
        request: &mut SharedRequest,
        bytes: &[u8],
        ends: bool,
        now_ms: u64,
    ) -> Option<usize> {
        let (machine, output) = (&mut self.machine, &mut self.output);
        let opened = text::open(machine, output, self.scheme, bytes, ends)?;
        let OpenedStream { number: stream, head_bytes, has_ended } = opened;
        self.streams.insert(stream, StreamOwner::Request(id));
        request.place = RequestPlace::On { connection: self.number, stream };
        request.has_ended = has_ended;
        request.is_late_guest = self.load == 1 && mem::take(&mut self.has_rested);
        request.opened_ms = now_ms;
        Some(head_bytes + self.send(id, stream, request, &bytes[head_bytes..], ends))
    }

    /// Sends the next bytes of a request's body, as far as there is room; `ends` says that they are
    /// the last. Returns how many were taken. The request's bell rings when there is room for more.
    pub(super) fn send(
        &mut self,
        id: u64,
        stream: u32,
        request: &mut SharedRequest,
        bytes: &[u8],
        ends: bool,
    ) -> usize {
        if request.has_ended {
            self.write();
            return 0;
        }
        let (machine, output) = (&mut self.machine, &mut self.output);
        let (used, has_ended) = text::data(machine, output, MOST_OUTPUT_BYTES, stream, bytes, ends);
        request.has_ended = has_ended;
        if used < bytes.len() {
            self.want_room(id);
        }
        self.write();
        self.note_end(stream);
        used
    }

    /// Has the request notified when there is room for more.
    pub(super) fn want_room(&mut self, id: u64) {
        if !self.wanting.contains(&id) {
            self.wanting.push(id);
        }
    }

    /// Sends the trailers of a request, given as lines of HTTP/1.1.
    pub(super) fn end_with(&mut self, stream: u32, request: &mut SharedRequest, trailers: &[u8]) {
        if mem::replace(&mut request.has_ended, true) {
            return;
        }
        self.machine.head(&mut self.output, stream, MessagePart::Last, |block| {
            text::lines(block, trailers);
        });
        self.write();
        self.note_end(stream);
    }

    /// Whether some of a body may be sent now.
    pub(super) fn has_room(&self, stream: u32) -> bool {
        self.output.len() < MOST_OUTPUT_BYTES && self.machine.send_capacity(stream) > 0
    }

    /// Whether the end of a request may be sent now.
    pub(super) fn may_end(&self, stream: u32) -> bool {
        self.machine.is_open(stream)
    }

    /// Notes that this much of a body was taken, which opens the window.
    pub(super) fn consumed(&mut self, stream: u32, bytes: usize) {
        self.machine.consumed(stream, bytes);
        if self.machine.has_pending() {
            self.write();
        }
    }

    /// Gives up a request's stream. `is_done` says that only the end of the answer is missing, which
    /// may come after its last byte.
    pub(super) fn give_up(&mut self, stream: u32, is_done: bool, opened_ms: u64, now_ms: u64) {
        self.leaves(now_ms);
        if !self.machine.is_open(stream) {
            self.streams.remove(&stream);
        } else if is_done {
            self.streams.insert(stream, StreamOwner::Nobody { since_ms: now_ms });
        } else {
            self.streams.remove(&stream);
            self.machine.reset(stream, ErrorCode::CANCEL);
            let is_silent = self.heard_ms <= opened_ms && now_ms >= opened_ms + SILENT_MS;
            if is_silent && self.doubted_ms.is_none() {
                // the peer may have gone without closing: the probe finds out, so that no other
                // request has to wait for it
                self.doubted_ms = Some(now_ms);
                self.machine.ping(PROBE);
            }
            self.write();
        }
    }

    /// Forgets a stream that is over in both directions.
    fn note_end(&mut self, stream: u32) {
        if !self.machine.is_open(stream) {
            self.streams.remove(&stream);
        }
    }

    /// Sends what waits. What the socket does not take is sent later; a failure of the connection is
    /// noticed when it is read.
    fn write(&mut self) {
        if !self.is_up {
            return;
        }
        // frames that are not about bodies wait in the machine, which limits them
        if self.output.len() < MOST_OUTPUT_BYTES {
            self.machine.flush(&mut self.output);
        }
        let mut sent = 0;
        // a call without bytes sends what TLS has sealed
        while sent < self.output.len() || self.stream.has_unsent() {
            match self.stream.send(&self.output[sent..]) {
                Sent::Bytes(0) if sent == self.output.len() => break,
                Sent::Bytes(count) => sent += count,
                Sent::Blocked | Sent::Broken => break,
            }
        }
        self.output.drain(..sent);
        if self.output.is_empty() && self.output.capacity() > MOST_OUTPUT_BYTES {
            self.output = Vec::new();
        }
    }

    /// Goes on as far as the socket allows: sends what waits, and receives once. Returns whether more
    /// may be there.
    ///
    /// # Errors
    /// The connection has failed, or is at its end; perhaps for a fault of TLS.
    pub(super) fn turn(
        &mut self,
        requests: &mut Requests,
        now_ms: u64,
    ) -> Result<bool, Option<TlsFault>> {
        self.write();
        // the rest of a frame moves to the front, or the buffer would only grow
        self.input.drain(..mem::take(&mut self.at));
        let received = self.stream.receive_more(&mut self.input, RECEIVE_BYTES);
        match received {
            Received::Bytes(_) => {
                (self.heard_ms, self.doubted_ms) = (now_ms, None);
                self.use_input(requests, now_ms);
            }
            Received::Blocked => {}
            Received::Ended | Received::Broken => return Err(self.stream.fault()),
        }
        self.write();
        if self.machine.fault().is_some() {
            return Err(None);
        }
        // a connection without stream numbers left is replaced by a new one
        self.is_leaving |= !self.machine.has_numbers();
        self.tell_room(requests);
        Ok(received != Received::Blocked)
    }

    /// Notifies the requests that wait for room, and have some.
    fn tell_room(&mut self, requests: &mut Requests) {
        let mut wanting = mem::take(&mut self.wanting);
        wanting.retain(|id| {
            let Some(request) = requests.get_mut(id) else { return false };
            let RequestPlace::On { stream, .. } = request.place else { return false };
            let has_room = self.has_room(stream);
            if has_room {
                request.ring();
            }
            !has_room
        });
        self.wanting = wanting;
    }

    /// Uses all that was received. The windows limit how much that is for each stream.
    fn use_input(&mut self, requests: &mut Requests, now_ms: u64) {
        loop {
            let rest = &self.input[self.at..];
            let received = self.machine.receive(rest, &mut self.fields, now_ms);
            let used = received.used;
            match received.event {
                None if used == 0 => break,
                None => {}
                Some(Http2Event::Informational { stream }) => {
                    let fields = &self.fields;
                    if let Some(request) = heard_by(&self.streams, requests, stream) {
                        request.put_head(|into| text::head(fields, into));
                    }
                }
                Some(Http2Event::Response { stream, ends }) => {
                    let fields = &self.fields;
                    if let Some(request) = heard_by(&self.streams, requests, stream) {
                        request.put_head(|into| text::head(fields, into));
                    }
                    self.ends(requests, stream, ends);
                }
                Some(Http2Event::Data { stream, bytes, ends }) => {
                    match heard_by(&self.streams, requests, stream) {
                        // the window opens when the exchange takes the bytes: `consumed`
                        Some(request) => request.put_body(bytes),
                        // more bytes came than the head has announced
                        None if !bytes.is_empty() => {
                            self.streams.remove(&stream);
                            self.machine.reset(stream, ErrorCode::CANCEL);
                        }
                        None => {}
                    }
                    self.ends(requests, stream, ends);
                }
                Some(Http2Event::Trailers { stream }) => {
                    if let Some(request) = heard_by(&self.streams, requests, stream) {
                        request.trailers = text::trailers(&self.fields);
                    }
                    self.ends(requests, stream, true);
                }
                Some(Http2Event::Reset { stream, code, fault }) => {
                    let is_refused = code == ErrorCode::REFUSED_STREAM && fault.is_none();
                    let end = if is_refused { AnswerEnd::Refused } else { AnswerEnd::Broken };
                    if let Some(request) = heard_by(&self.streams, requests, stream) {
                        request.ends(end);
                    }
                    self.streams.remove(&stream);
                }
                Some(Http2Event::GoAway { .. }) => {
                    self.goaways += 1;
                    self.is_leaving = true;
                }
                Some(_) => {}
            }
            self.at += used;
        }
        if self.at == self.input.len() {
            self.input.clear();
            self.at = 0;
        }
    }

    /// Notes that the answer on a stream has ended, if it `ends`.
    fn ends(&mut self, requests: &mut Requests, stream: u32, ends: bool) {
        if !ends {
            return;
        }
        if let Some(request) = heard_by(&self.streams, requests, stream) {
            request.ends(AnswerEnd::Whole);
        }
        self.note_end(stream);
    }

    /// Handles deadlines. Returns whether the connection must be closed, because it was not
    /// established in `connect_ms`, or does not answer a probe. Streams whose answers do not end in
    /// time are given up.
    pub(super) fn is_late(&mut self, connect_ms: u64, now_ms: u64) -> bool {
        if !self.is_up {
            return now_ms >= self.begun_ms.saturating_add(connect_ms);
        }
        let is_over = |since_ms: u64| now_ms >= since_ms + PATIENCE_MS;
        let left = self.streams.iter().filter_map(|(stream, owner)| match owner {
            StreamOwner::Nobody { since_ms } if is_over(*since_ms) => Some(*stream),
            _ => None,
        });
        let left: Vec<u32> = left.collect();
        for stream in left {
            self.streams.remove(&stream);
            self.machine.reset(stream, ErrorCode::CANCEL);
        }
        self.write();
        self.doubted_ms.is_some_and(is_over)
    }

    /// Whether the connection was idle for this long, or can take no more requests and has none.
    pub(super) fn is_done(&self, idle_ms: u64, now_ms: u64) -> bool {
        let is_idle = self.load == 0 && self.streams.is_empty() && self.is_up;
        is_idle && (!self.is_open() || now_ms >= self.rests_ms.saturating_add(idle_ms))
    }

    /// Sends the last frames before the connection is closed.
    pub(super) fn close(&mut self) {
        self.machine.flush(&mut self.output);
        self.write();
        // so that the TLS session ends with `close_notify`
        let _ = self.stream.rests();
    }
}

/// The request that gets what comes on a stream.
fn heard_by<'r>(
    streams: &HashMap<u32, StreamOwner>,
    requests: &'r mut Requests,
    stream: u32,
) -> Option<&'r mut SharedRequest> {
    match streams.get(&stream)? {
        StreamOwner::Request(id) => requests.get_mut(id),
        StreamOwner::Nobody { .. } => None,
    }
}
