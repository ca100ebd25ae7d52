//! One connection as a state machine: received bytes and calls in, [events](Http2Event) and bytes to send
//! out.

mod end;
mod head;
mod receive;
mod send;

use crate::budget::{Budgets, MOST_CONTROL_BYTES};
use crate::by_id::{ById, MOST_STREAMS};
use crate::closed::Closed;
use crate::error::{ErrorCode, Fault};
use crate::fields::FieldLimits;
use crate::flow::{MOST_WINDOW, ReceiveWindow, SendWindow};
use crate::frame::{self, PREFACE};
use crate::hpack::HpackDecoder;
use crate::order::SendHeap;
use crate::priority::Priority;
use crate::settings::{self, FIRST_WINDOW, PeerSettings, id};
use crate::stream::Stream;

pub use send::{MessagePart, SendTurn};

/// The limits of one connection. The peer learns them from SETTINGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Limits {
    /// The size of a head, and of trailers.
    pub fields: FieldLimits,
    /// The number of streams that the peer may have open at once, 1 to [`MOST_STREAMS`]. Browsers want at
    /// least 100.
    pub streams: u32,
    /// The number of bytes of one stream's body that may be on their way or not yet consumed, from 65 535 on.
    pub stream_window_bytes: u32,
    /// The same for all streams together, from 65 535 on. This limits the memory of bodies that are not read.
    pub connection_window_bytes: u32,
    /// The size of the peer's dynamic table, up to 64 KiB.
    pub table_bytes: u32,
    /// Whether requests may open tunnels (extended CONNECT, RFC 8441). Otherwise such requests are malformed.
    pub extended_connect: bool,
    /// The largest payload of the DATA frames we send, 1 byte to 16 KiB. It determines how long other streams
    /// wait.
    pub chunk_bytes: u32,
}

impl Default for Http2Limits {
    fn default() -> Http2Limits {
        Http2Limits {
            fields: FieldLimits { bytes: 16 * 1024, fields: 100 },
            streams: 128,
            stream_window_bytes: 256 * 1024,
            connection_window_bytes: 1024 * 1024,
            table_bytes: 4096,
            extended_connect: false,
            chunk_bytes: frame::PAYLOAD_BYTES as u32,
        }
    }
}

impl Http2Limits {
    /// The nearest values that are allowed.
    fn sane(mut self) -> Http2Limits {
        self.streams = self.streams.clamp(1, MOST_STREAMS);
        self.stream_window_bytes = self.stream_window_bytes.clamp(FIRST_WINDOW, MOST_WINDOW);
        self.connection_window_bytes =
            self.connection_window_bytes.clamp(FIRST_WINDOW, MOST_WINDOW);
        self.table_bytes = self.table_bytes.min(64 * 1024);
        self.chunk_bytes = self.chunk_bytes.clamp(1, frame::PAYLOAD_BYTES as u32);
        self
    }

    /// The largest header block, in encoded bytes: twice the limit of a head, because it can be refused as
    /// too large only after it has been decoded to its end, and a frame. A larger block ends the connection.
    const fn block_bytes(&self) -> usize {
        2 * self.fields.bytes + frame::PAYLOAD_BYTES
    }

    /// The most heap memory of a connection with these limits, whatever the peer does: pending frames, an
    /// incomplete header block, the dynamic table, streams. Received bytes that the caller holds are not
    /// included: part of a frame, and bodies up to their [window](Http2Limits::connection_window_bytes).
    pub const fn most_heap_bytes(&self) -> usize {
        let streams = self.streams as usize;
        // vectors double
        2 * MOST_CONTROL_BYTES
            + 2 * self.block_bytes()
            + HpackDecoder::most_heap_bytes(self.table_bytes as usize)
            + ById::<Stream>::most_heap_bytes(streams)
            + SendHeap::most_heap_bytes(streams)
            + Closed::most_heap_bytes(streams)
            + (streams.next_power_of_two() + 4) * size_of::<(u32, Priority)>()
    }
}

/// The side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointRole {
    /// The side that opens streams and sends requests.
    Client,
    /// The side that answers requests.
    Server,
}

/// An event on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http2Event<'i> {
    /// A request; its head is in the [`DecodedFields`](crate::DecodedFields) passed to the call. `ends` if it
    /// has no body.
    Request {
        /// The stream of the request and its answer.
        stream: u32,
        /// Whether the message is complete.
        ends: bool,
    },
    /// A request whose head is larger than [allowed](Http2Limits::fields), of which only a part is known. The
    /// caller should answer 431, and drop the rest of the request.
    TooLarge {
        /// The stream of the request and its answer.
        stream: u32,
        /// Whether the message is complete.
        ends: bool,
    },
    /// The response to a request of ours; its head is in the fields.
    Response {
        /// The stream of the request.
        stream: u32,
        /// Whether the message is complete.
        ends: bool,
    },
    /// An informational response (1xx); its head is in the fields.
    Informational {
        /// The stream of the request.
        stream: u32,
    },
    /// A part of a body. The peer may send as much again only when [`consumed`](Connection::consumed) has
    /// been called.
    Data {
        /// The stream of the body.
        stream: u32,
        /// The bytes; may be empty if the body ends.
        bytes: &'i [u8],
        /// Whether these were the last bytes of the message.
        ends: bool,
    },
    /// The trailers after a body, in the fields. The message is complete.
    Trailers {
        /// The stream of the message.
        stream: u32,
    },
    /// A stream that is over before its messages are complete. Nothing more can be sent on it.
    Reset {
        /// The stream; if its head was faulty, no earlier event may have named it.
        stream: u32,
        /// The error code of the reset.
        code: ErrorCode,
        /// What the peer did wrong, if we reset the stream for that; `None` if the peer reset it.
        fault: Option<&'static str>,
    },
    /// The peer will process no streams of ours above `last`. Open ones above it follow as
    /// [`Reset`](Http2Event::Reset) with REFUSED_STREAM: their requests may be sent again elsewhere.
    GoAway {
        /// The last stream that the peer processes.
        last: u32,
        /// The error code of the GOAWAY.
        code: ErrorCode,
    },
    /// The answer to [`ping`](Connection::ping).
    Pong(u64),
    /// The peer has violated the protocol, or exceeded a budget. The caller must send what is
    /// [pending](Connection::flush), and then close the connection.
    Failed(Fault),
}

/// The result of a call of [`Connection::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveProgress<'i> {
    /// The number of bytes that were used from the front.
    pub used: usize,
    /// The event that they amount to; `None` if the rest is not enough for one.
    pub event: Option<Http2Event<'i>>,
}

/// What is expected next in the input.
#[derive(Clone, Copy, Debug)]
enum Expect {
    /// The client's preface.
    Preface,
    /// The peer's first SETTINGS.
    Settings,
    /// A frame.
    Frame,
    /// The rest of a DATA frame.
    Data { stream: u32, bytes: usize, padding: usize, ends: bool },
    /// The rest of a frame that is ignored.
    Skip(usize),
    /// Nothing, because the connection has failed.
    Nothing,
}

/// A header block that is not complete: CONTINUATION must follow.
#[derive(Debug)]
struct HeaderBlock {
    stream: u32,
    ends: bool,
    depends_on: u32,
    continuations: u32,
    bytes: Vec<u8>,
}

/// The state of the shutdown that we have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    No,
    /// The peer was sent a GOAWAY without a last stream, and has opened this many streams since.
    Announced(u32),
    /// The peer was sent the last stream; later ones are ignored.
    Last(u32),
}

/// One connection.
///
/// An idle connection has little memory of its own, see [`heap_bytes`](Connection::heap_bytes), and never
/// more than [`Http2Limits::most_heap_bytes`].
#[derive(Debug)]
pub struct Connection {
    role: EndpointRole,
    limits: Http2Limits,
    expect: Expect,
    block: Option<Box<HeaderBlock>>,
    decoder: HpackDecoder,
    peer: PeerSettings,
    /// Whether we have announced to the peer's decoder that no table is used.
    is_table_closed: bool,
    streams: ById<Stream>,
    closed: Closed,
    ready: SendHeap,
    turns: u64,
    /// The highest stream opened by the client; on a client, its own.
    highest: u32,
    send_window: SendWindow,
    receive_window: ReceiveWindow,
    /// The priorities of future streams.
    early: Vec<(u32, Priority)>,
    /// Pending frames, other than those of messages.
    control: Vec<u8>,
    budgets: Budgets,
    now_ms: u64,
    drain: Drain,
    /// The stream above which the peer refuses ours.
    refused_above: Option<u32>,
    fault: Option<Fault>,
    is_fault_told: bool,
}

/// The payload of the PING whose answer shows that the peer has received our GOAWAY.
const DRAIN_PING: [u8; 8] = *b"goodbye!";

impl Connection {
    /// The server's end of a connection.
    pub fn server(limits: Http2Limits) -> Connection {
        Connection::new(EndpointRole::Server, limits)
    }

    /// The client's end of a connection.
    pub fn client(limits: Http2Limits) -> Connection {
        Connection::new(EndpointRole::Client, limits)
    }

    fn new(role: EndpointRole, limits: Http2Limits) -> Connection {
        let limits = limits.sane();
        let mut connection = Connection {
            role,
            limits,
            expect: if role == EndpointRole::Server { Expect::Preface } else { Expect::Settings },
            block: None,
            decoder: HpackDecoder::new(limits.table_bytes as usize),
            peer: PeerSettings::default(),
            is_table_closed: false,
            streams: ById::default(),
            closed: Closed::default(),
            ready: SendHeap::default(),
            turns: 0,
            highest: 0,
            send_window: SendWindow::new(FIRST_WINDOW),
            receive_window: ReceiveWindow::new(limits.connection_window_bytes),
            early: Vec::new(),
            control: Vec::new(),
            budgets: Budgets::default(),
            now_ms: 0,
            drain: Drain::No,
            refused_above: None,
            fault: None,
            is_fault_told: false,
        };
        connection.introduce();
        connection
    }

    /// Writes what each side sends first.
    fn introduce(&mut self) {
        let Http2Limits { fields, streams, stream_window_bytes, table_bytes, .. } = self.limits;
        let list_bytes = u32::try_from(fields.bytes).unwrap_or(u32::MAX);
        let mut all = vec![
            (id::INITIAL_WINDOW_SIZE, stream_window_bytes),
            (id::MAX_HEADER_LIST_SIZE, list_bytes),
        ];
        if table_bytes != 4096 {
            all.push((id::HEADER_TABLE_SIZE, table_bytes));
        }
        match self.role {
            EndpointRole::Client => {
                self.control.extend_from_slice(PREFACE);
                all.push((id::ENABLE_PUSH, 0));
            }
            EndpointRole::Server => {
                all.push((id::MAX_CONCURRENT_STREAMS, streams));
                all.push((id::NO_RFC7540_PRIORITIES, 1));
                if self.limits.extended_connect {
                    all.push((id::ENABLE_CONNECT_PROTOCOL, 1));
                }
            }
        }
        settings::write(&mut self.control, &all);
        let more = self.limits.connection_window_bytes - FIRST_WINDOW;
        if more > 0 {
            frame::write_window_update(&mut self.control, 0, more);
        }
    }

    /// The side of the connection.
    pub fn role(&self) -> EndpointRole {
        self.role
    }

    /// The settings of the peer.
    pub fn peer(&self) -> &PeerSettings {
        &self.peer
    }

    /// The number of open streams.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether a stream is open, or half open.
    pub fn is_open(&self, stream: u32) -> bool {
        self.streams.place(stream).is_some()
    }

    /// Whether a head is incomplete so far.
    pub fn is_within_head(&self) -> bool {
        self.block.is_some()
    }

    /// Whether the peer's preface and first settings have come.
    pub fn is_introduced(&self) -> bool {
        !matches!(self.expect, Expect::Preface | Expect::Settings)
    }

    /// What the peer did wrong, if the connection has failed.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Whether frames are waiting for [`flush`](Connection::flush).
    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.control.is_empty()
    }

    /// Appends the pending frames, other than those of messages: settings, pongs, resets, window updates.
    /// Call this after events have been handled and before data is sent, so that an acknowledgement precedes
    /// what it allows, but never within a DATA frame.
    #[inline]
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if self.control.is_empty() {
            return;
        }
        out.extend_from_slice(&self.control);
        self.control.clear();
        if self.control.capacity() > 512 {
            self.control = Vec::new();
        }
    }

    /// Reports that `bytes` of a stream's body were used, so that as many may come again. Also for a stream
    /// that is over.
    pub fn consumed(&mut self, stream: u32, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        // when a stream ends, all that it held is given back
        let Some(open) = self.streams.get_mut(stream) else { return };
        let bytes = open.receive_window.release(bytes);
        if open.incoming != crate::stream::Incoming::Ended
            && let Some(more) = open.receive_window.allow()
        {
            frame::write_window_update(&mut self.control, stream, more);
        }
        self.release(bytes);
    }

    /// Whether the peer may send next to nothing on any stream, until more of the received data is consumed.
    pub fn is_shut(&self) -> bool {
        self.receive_window.is_shut()
    }

    /// Gives back bytes of the connection's window.
    fn release(&mut self, bytes: u32) {
        self.receive_window.release(bytes);
        if let Some(more) = self.receive_window.allow() {
            frame::write_window_update(&mut self.control, 0, more);
        }
    }

    /// The heap memory of the connection.
    pub fn heap_bytes(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |block| block.bytes.capacity());
        self.control.capacity()
            + block
            + self.decoder.heap_bytes()
            + self.streams.heap_bytes()
            + self.closed.heap_bytes()
            + self.ready.heap_bytes()
            + self.early.capacity() * size_of::<(u32, Priority)>()
    }
}

#[cfg(test)]
mod tests;
