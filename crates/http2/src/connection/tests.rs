//! Tests of the state machine from outside: frames in, events and frames out.

mod abuse;
mod client;
mod drain;
mod flow;
mod frames;
mod messages;
mod split;

use super::{Connection, Http2Event, Http2Limits, MessagePart};
use crate::error::ErrorCode;
use crate::fields::DecodedFields;
use crate::frame::{self, FrameHeader, HEADER_BYTES, PREFACE, flag, kind};
use crate::hpack::encode;

const END: u8 = flag::END_STREAM;
const WHOLE: u8 = flag::END_HEADERS;

/// Encodes a frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(&mut out, kind, flags, stream, payload);
    out
}

/// Encodes a list of fields.
fn block(list: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in list {
        encode::field(&mut out, name.as_bytes(), value.as_bytes());
    }
    out
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a")];

const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "a")];

/// A request without a body.
fn get(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, END | WHOLE, stream, &block(&GET))
}

/// The head of a request with a body.
fn post(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, WHOLE, stream, &block(&POST))
}

fn data(stream: u32, bytes: &[u8], flags: u8) -> Vec<u8> {
    frame(kind::DATA, flags, stream, bytes)
}

fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

fn rst(stream: u32, code: ErrorCode) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes())
}

fn settings(list: &[(u16, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    crate::settings::write(&mut out, list);
    out
}

/// A frame that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn parse(mut bytes: &[u8]) -> Vec<Sent> {
    bytes = bytes.strip_prefix(PREFACE).unwrap_or(bytes);
    let mut all = Vec::new();
    while let Some(FrameHeader { len, kind, flags, stream }) = FrameHeader::read(bytes) {
        let payload = bytes[HEADER_BYTES..HEADER_BYTES + len].to_vec();
        all.push(Sent { kind, flags, stream, payload });
        bytes = &bytes[HEADER_BYTES + len..];
    }
    assert!(bytes.is_empty(), "half a frame came out");
    all
}

/// One side of a connection, with the heads and frames that it has received.
struct End {
    connection: Connection,
    fields: DecodedFields,
    now_ms: u64,
    out: Vec<u8>,
    /// The last heads: method or status, path, number of fields.
    heads: Vec<String>,
}

impl End {
    fn of(connection: Connection) -> End {
        End {
            connection,
            fields: DecodedFields::default(),
            now_ms: 0,
            out: Vec::new(),
            heads: Vec::new(),
        }
    }

    /// A server that has received a client's preface and settings, and has nothing to send.
    fn server() -> End {
        End::server_with(Http2Limits::default(), &[])
    }

    fn server_with(limits: Http2Limits, client: &[(u16, u32)]) -> End {
        let mut end = End::of(Connection::server(limits));
        assert!(end.get(&[PREFACE.to_vec(), settings(client)].concat()).is_empty());
        let sent = end.sent();
        assert_eq!(sent[0].kind, kind::SETTINGS);
        assert_eq!(sent.last().map(|frame| (frame.kind, frame.flags)), Some((kind::SETTINGS, 1)));
        end
    }

    /// Feeds bytes, all of which are used, and returns the events.
    fn get(&mut self, bytes: &[u8]) -> Vec<String> {
        let (events, used) = self.take(bytes);
        assert_eq!(used, bytes.len(), "left over");
        events
    }

    /// Feeds bytes, and returns the events and the number of bytes used.
    fn take(&mut self, bytes: &[u8]) -> (Vec<String>, usize) {
        let (mut events, mut used) = (Vec::new(), 0);
        loop {
            let received = self.connection.receive(&bytes[used..], &mut self.fields, self.now_ms);
            used += received.used;
            let Some(event) = received.event else { return (events, used) };
            self.note(event);
            events.push(text(event));
        }
    }

    fn note(&mut self, event: Http2Event<'_>) {
        let fields = &self.fields;
        let first = match event {
            Http2Event::Request { .. } => String::from_utf8_lossy(fields.method()).into_owned(),
            Http2Event::Response { .. } | Http2Event::Informational { .. } => {
                fields.status().to_string()
            }
            Http2Event::Trailers { .. } => String::new(),
            _ => return,
        };
        let path = String::from_utf8_lossy(fields.path());
        self.heads.push(format!("{first} {path} {}", fields.list().len()));
    }

    /// The frames that were sent.
    fn sent(&mut self) -> Vec<Sent> {
        self.connection.flush(&mut self.out);
        parse(&std::mem::take(&mut self.out))
    }

    /// Writes a head with status 200.
    fn answer(&mut self, stream: u32, part: MessagePart) -> bool {
        let write = |block: &mut Vec<u8>| encode::status(block, 200);
        self.connection.head(&mut self.out, stream, part, write)
    }

    /// Checks that the connection fails with this code, and sends it.
    fn assert_failed(&mut self, bytes: &[u8], code: ErrorCode) {
        let (events, _) = self.take(bytes);
        let last = events.last().map(String::as_str);
        assert_eq!(
            last,
            Some(&*format!("failed {}", code.0)),
            "{events:?} {:?}",
            self.connection.fault()
        );
        let goaway = self.sent().pop().unwrap();
        assert_eq!((goaway.kind, &goaway.payload[4..]), (kind::GOAWAY, &code.0.to_be_bytes()[..]));
        // it sends the GOAWAY once, and ignores further input
        assert_eq!(self.take(&get(101)), (vec![], get(101).len()));
        assert_eq!(self.sent(), []);
    }

    /// Checks that the stream is reset with this code, and that the peer gets the reset.
    fn assert_reset(&mut self, bytes: &[u8], stream: u32, code: ErrorCode) {
        let events = self.get(bytes);
        let expected = format!("{stream} broken {}", code.0);
        assert!(events.contains(&expected), "{events:?} {:?}", self.connection.fault());
        let rst = Sent {
            kind: kind::RST_STREAM,
            flags: 0,
            stream,
            payload: code.0.to_be_bytes().to_vec(),
        };
        assert!(self.sent().contains(&rst));
        assert!(!self.connection.is_open(stream));
    }
}

fn text(event: Http2Event<'_>) -> String {
    let ends = |ends| if ends { " ends" } else { "" };
    match event {
        Http2Event::Request { stream, ends: last } => format!("{stream} request{}", ends(last)),
        Http2Event::TooLarge { stream, ends: last } => format!("{stream} too large{}", ends(last)),
        Http2Event::Response { stream, ends: last } => format!("{stream} response{}", ends(last)),
        Http2Event::Informational { stream } => format!("{stream} informational"),
        Http2Event::Data { stream, bytes, ends: last } => {
            format!("{stream} data {}{}", String::from_utf8_lossy(bytes), ends(last))
        }
        Http2Event::Trailers { stream } => format!("{stream} trailers"),
        Http2Event::Reset { stream, code, fault: None } => format!("{stream} reset {}", code.0),
        Http2Event::Reset { stream, code, fault: Some(_) } => format!("{stream} broken {}", code.0),
        Http2Event::GoAway { last, code } => format!("goaway {last} {}", code.0),
        Http2Event::Pong(payload) => format!("pong {payload}"),
        Http2Event::Failed(fault) => format!("failed {}", fault.code.0),
    }
}
