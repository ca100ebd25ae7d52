//! One connection as a state machine: bytes and orders in, [events](Http2Event) and bytes out.

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

/// What one connection may use. The peer is told by SETTINGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Limits {
    /// Size of a head, and of trailers.
    pub fields: FieldLimits,
    /// Streams that the peer may have open at once, 1 to [`MOST_STREAMS`]. Browsers want 100 at least.
    pub streams: u32,
    /// Bytes of one stream's body that may be on their way or not yet used, from 65 535 on.
    pub stream_window_bytes: u32,
    /// The same for all streams together, from 65 535 on. It bounds what bodies that are not read hold.
    pub connection_window_bytes: u32,
    /// The peer's table of fields, up to 64 KiB.
    pub table_bytes: u32,
    /// Whether requests may open tunnels (extended CONNECT, RFC 8441). Without it they are malformed.
    pub extended_connect: bool,
    /// Payload of the DATA frames we send, 1 byte to 16 KiB, and so how long others wait for one.
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
    /// The nearest limits that hold together.
    fn sane(mut self) -> Http2Limits {
        self.streams = self.streams.clamp(1, MOST_STREAMS);
        self.stream_window_bytes = self.stream_window_bytes.clamp(FIRST_WINDOW, MOST_WINDOW);
        self.connection_window_bytes =
            self.connection_window_bytes.clamp(FIRST_WINDOW, MOST_WINDOW);
        self.table_bytes = self.table_bytes.min(64 * 1024);
        self.chunk_bytes = self.chunk_bytes.clamp(1, frame::PAYLOAD_BYTES as u32);
        self
    }

    /// Encoded bytes of one header block: twice what it may say, since it may be told to be too large
    /// only when it was decoded to its end, and a frame. Above that the connection ends.
    const fn block_bytes(&self) -> usize {
        2 * self.fields.bytes + frame::PAYLOAD_BYTES
    }

    /// The most heap memory of a connection with these limits, whatever the peer does: frames that
    /// wait, a header block that is not whole, the table of fields, streams. Not counted are received
    /// bytes that the caller holds: part of one frame, and bodies up to their
    /// [window](Http2Limits::connection_window_bytes).
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

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointRole {
    /// It opens streams and sends requests.
    Client,
    /// It answers them.
    Server,
}

/// What has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http2Event<'i> {
    /// A request; its head is in the [`DecodedFields`](crate::DecodedFields) that were lent. `ends` if it has no body.
    Request {
        /// The stream it came on, and is answered on.
        stream: u32,
        /// Nothing follows.
        ends: bool,
    },
    /// A request whose head is larger than [allowed](Http2Limits::fields), of which only some is known: to be
    /// answered with 431. What follows of it is to be dropped.
    TooLarge {
        /// The stream it came on.
        stream: u32,
        /// Nothing follows.
        ends: bool,
    },
    /// The response to a request of ours; its head is in the fields.
    Response {
        /// The stream of the request.
        stream: u32,
        /// Nothing follows.
        ends: bool,
    },
    /// A response before the last one (1xx); its head is in the fields.
    Informational {
        /// The stream of the request.
        stream: u32,
    },
    /// Some of a body. The peer may send as much again only when it is told to by
    /// [`consumed`](Connection::consumed).
    Data {
        /// Its stream.
        stream: u32,
        /// The bytes, which may be none if the body ends.
        bytes: &'i [u8],
        /// It was the last of the message.
        ends: bool,
    },
    /// What follows a body, in the fields. The message is over.
    Trailers {
        /// Its stream.
        stream: u32,
    },
    /// A stream is over before its messages are. Nothing more can be sent on it.
    Reset {
        /// The stream; it may be one that no event has named, if its head was faulty.
        stream: u32,
        /// What it was reset with.
        code: ErrorCode,
        /// What the peer did wrong, if it was reset by us for that; else the peer has reset it.
        fault: Option<&'static str>,
    },
    /// The peer will process no streams of ours above `last`. Those that there are follow as
    /// [`Reset`](Http2Event::Reset) with REFUSED_STREAM: they may be sent again elsewhere.
    GoAway {
        /// The last stream it processes.
        last: u32,
        /// Why.
        code: ErrorCode,
    },
    /// The answer to [`ping`](Connection::ping).
    Pong(u64),
    /// The peer has broken the protocol, or a budget. What is [pending](Connection::flush) is to be sent,
    /// then the connection is closed.
    Failed(Fault),
}

/// How far a call of [`Connection::receive`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveProgress<'i> {
    /// So many bytes from the front were used.
    pub used: usize,
    /// What they were; `None` if the rest is not enough to go on.
    pub event: Option<Http2Event<'i>>,
}

/// What comes next on the wire.
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
    /// The rest of a frame that says nothing.
    Skip(usize),
    /// Nothing: it has failed.
    Nothing,
}

/// A header block of which CONTINUATION is to follow.
#[derive(Debug)]
struct HeaderBlock {
    stream: u32,
    ends: bool,
    depends_on: u32,
    continuations: u32,
    bytes: Vec<u8>,
}

/// How far we have said goodbye.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    No,
    /// The peer was told that we will, and has opened so many streams since.
    Announced(u32),
    /// Streams above this one are ignored.
    Last(u32),
}

/// One connection.
///
/// An idle one has little memory of its own, see [`heap_bytes`](Connection::heap_bytes), and never more
/// than [`Http2Limits::most_heap_bytes`].
#[derive(Debug)]
pub struct Connection {
    role: EndpointRole,
    limits: Http2Limits,
    expect: Expect,
    block: Option<Box<HeaderBlock>>,
    decoder: HpackDecoder,
    peer: PeerSettings,
    /// The peer's decoder was told that no table is used.
    is_table_closed: bool,
    streams: ById<Stream>,
    closed: Closed,
    ready: SendHeap,
    turns: u64,
    /// The highest stream that the client has opened; a client's own.
    highest: u32,
    send_window: SendWindow,
    receive_window: ReceiveWindow,
    /// Priorities of streams to come.
    early: Vec<(u32, Priority)>,
    /// Frames that are not about the bodies of streams and wait to be sent.
    control: Vec<u8>,
    budgets: Budgets,
    now_ms: u64,
    drain: Drain,
    /// Streams above this one are refused by the peer.
    refused_above: Option<u32>,
    fault: Option<Fault>,
    is_fault_told: bool,
}

/// The payload of the PING that comes back when the peer knows that we say goodbye.
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

    /// What we send first.
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

    /// Which end this is.
    pub fn role(&self) -> EndpointRole {
        self.role
    }

    /// What the peer allows.
    pub fn peer(&self) -> &PeerSettings {
        &self.peer
    }

    /// How many streams are open.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether a stream is open, or half of it.
    pub fn is_open(&self, stream: u32) -> bool {
        self.streams.place(stream).is_some()
    }

    /// Whether the beginning of a head has come whose end has not.
    pub fn is_within_head(&self) -> bool {
        self.block.is_some()
    }

    /// Whether the peer has said who it is: its preface and its settings have come.
    pub fn is_introduced(&self) -> bool {
        !matches!(self.expect, Expect::Preface | Expect::Settings)
    }

    /// What the peer did wrong, if the connection has failed.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Whether frames wait for [`flush`](Connection::flush).
    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.control.is_empty()
    }

    /// Appends the frames that wait to be sent and are not about bodies: settings, pongs, resets,
    /// windows. To be called when events have been looked at and before data is sent, so that an
    /// acknowledgement goes before what it allows; never within a DATA frame.
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

    /// `bytes` of the body of a stream were used: as many may come again. Also for a stream that is over.
    pub fn consumed(&mut self, stream: u32, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        // what a stream has held is given back when it ends
        let Some(open) = self.streams.get_mut(stream) else { return };
        let bytes = open.receive_window.release(bytes);
        if open.incoming != crate::stream::Incoming::Ended
            && let Some(more) = open.receive_window.allow()
        {
            frame::write_window_update(&mut self.control, stream, more);
        }
        self.release(bytes);
    }

    /// Whether the peer may send next to nothing of any stream, until more of what has come is used.
    pub fn is_shut(&self) -> bool {
        self.receive_window.is_shut()
    }

    /// Bytes that the connection's window counts are used.
    fn release(&mut self, bytes: u32) {
        self.receive_window.release(bytes);
        if let Some(more) = self.receive_window.allow() {
            frame::write_window_update(&mut self.control, 0, more);
        }
    }

    /// Heap memory it has.
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
