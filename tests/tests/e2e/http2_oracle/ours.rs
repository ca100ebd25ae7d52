//! Our side: the state machine, its received messages, and those it has to send.

use super::case::Message;
use fastrand::Rng;
use forebay_http2::hpack::encode;
use forebay_http2::{
    Connection, DecodedFields, EndpointRole, Http2Event, Http2Limits, MessagePart,
};
use std::collections::HashMap;

/// The message that was received on a stream.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) path: String,
    pub(super) method: String,
    pub(super) status: u16,
    pub(super) informational: u32,
    pub(super) message: Message,
    pub(super) is_over: bool,
}

/// Gives the answer to a request: the status, whether a 103 goes first, and the message.
type Answer = Box<dyn Fn(&Seen) -> (u16, bool, Message)>;

/// A message that is being sent on a stream.
struct Sending {
    body: Vec<u8>,
    at: usize,
    trailers: Vec<(String, Vec<u8>)>,
}

/// Our end of the wire.
pub(super) struct Ours {
    pub(super) connection: Connection,
    fields: DecodedFields,
    held: Vec<u8>,
    out: Vec<u8>,
    sending: HashMap<u32, Sending>,
    pub(super) seen: HashMap<u32, Seen>,
    /// The answers, if this end is a server.
    answer: Option<Answer>,
    /// The requests that a client has not sent yet.
    pub(super) waiting: Vec<(String, String, Message)>,
    now_ms: u64,
}

impl Ours {
    pub(super) fn server(answer: impl Fn(&Seen) -> (u16, bool, Message) + 'static) -> Ours {
        let limits = Http2Limits { table_bytes: 1000, ..Http2Limits::default() };
        Ours::of(Connection::server(limits), Some(Box::new(answer)))
    }

    pub(super) fn client(waiting: Vec<(String, String, Message)>) -> Ours {
        Ours { waiting, ..Ours::of(Connection::client(Http2Limits::default()), None) }
    }

    fn of(connection: Connection, answer: Option<Answer>) -> Ours {
        Ours {
            connection,
            fields: DecodedFields::default(),
            held: Vec::new(),
            out: Vec::new(),
            sending: HashMap::new(),
            seen: HashMap::new(),
            answer,
            waiting: Vec::new(),
            now_ms: 0,
        }
    }

    /// Whether every message that was begun is over.
    pub(super) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.connection.open_streams() == 0
    }

    pub(super) fn receive(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
        let held = std::mem::take(&mut self.held);
        let (mut used, mut over) = (0, Vec::new());
        self.now_ms += 1;
        loop {
            let received = self.connection.receive(&held[used..], &mut self.fields, self.now_ms);
            used += received.used;
            let Some(event) = received.event else { break };
            over.extend(note(&mut self.connection, &self.fields, &mut self.seen, event));
        }
        self.held = held[used..].to_vec();
        for stream in over {
            self.end(stream);
        }
    }

    fn end(&mut self, stream: u32) {
        let seen = self.seen.get_mut(&stream).unwrap();
        seen.is_over = true;
        let Some(answer) = &self.answer else { return };
        let (status, is_early, message) = answer(seen);
        if is_early {
            self.connection.head(&mut self.out, stream, MessagePart::Informational, |block| {
                encode::status(block, 103);
                encode::field(block, b"link", b"</style.css>; rel=preload");
            });
        }
        let is_last = message.body.is_empty() && message.trailers.is_empty();
        let part = if is_last { MessagePart::Last } else { MessagePart::Head };
        let written = self.connection.head(&mut self.out, stream, part, |block| {
            encode::status(block, status);
            write(block, &message.fields);
        });
        assert!(written);
        self.offer(stream, message);
    }

    fn offer(&mut self, stream: u32, message: Message) {
        let Message { body, trailers, .. } = message;
        if !body.is_empty() || !trailers.is_empty() {
            self.sending.insert(stream, Sending { body, at: 0, trailers });
            self.connection.offer(stream);
            self.end_sending(stream);
        }
    }

    /// The bytes that our side sends now: whole frames, up to a random number.
    pub(super) fn send(&mut self, random: &mut Rng) -> Vec<u8> {
        while self.connection.role() == EndpointRole::Client
            && self.connection.is_introduced()
            && self.connection.can_open()
            && let Some((method, path, message)) = self.waiting.pop()
        {
            let is_last = message.body.is_empty() && message.trailers.is_empty();
            let stream = self.connection.open(&mut self.out, is_last, false, |block| {
                for (name, value) in [
                    (":method", &*method),
                    (":scheme", "http"),
                    (":authority", "example.com"),
                    (":path", &*path),
                ] {
                    encode::field(block, name.as_bytes(), value.as_bytes());
                }
                write(block, &message.fields);
            });
            let stream = stream.unwrap();
            self.seen.insert(stream, Seen { path, ..Seen::default() });
            self.offer(stream, message);
        }
        self.connection.flush(&mut self.out);
        for _ in 0..random.usize(..5) {
            let Some(turn) = self.connection.next() else { break };
            let sending = self.sending.get_mut(&turn.stream).unwrap();
            let left = sending.body.len() - sending.at;
            let len = left.min(turn.most as usize).min(random.usize(1..20_000));
            let ends = len == left && sending.trailers.is_empty();
            let header = self.connection.data(turn.stream, len as u32, ends).unwrap();
            self.out.extend_from_slice(&header);
            self.out.extend_from_slice(&sending.body[sending.at..sending.at + len]);
            sending.at += len;
            self.end_sending(turn.stream);
        }
        std::mem::take(&mut self.out)
    }

    /// Sends trailers when the body was sent.
    fn end_sending(&mut self, stream: u32) {
        let sending = &self.sending[&stream];
        if sending.at < sending.body.len() || sending.trailers.is_empty() {
            return;
        }
        let sending = self.sending.remove(&stream).unwrap();
        let write = |block: &mut Vec<u8>| write(block, &sending.trailers);
        assert!(self.connection.head(&mut self.out, stream, MessagePart::Last, write));
    }
}

fn write(block: &mut Vec<u8>, fields: &[(String, Vec<u8>)]) {
    for (name, value) in fields {
        encode::field(block, name.as_bytes(), value);
    }
}

/// Notes an event; returns the stream if its message is over.
fn note(
    connection: &mut Connection,
    fields: &DecodedFields,
    seen: &mut HashMap<u32, Seen>,
    event: Http2Event<'_>,
) -> Option<u32> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let list = || fields.iter().map(|(name, value)| (text(name), value.to_vec())).collect();
    match event {
        Http2Event::Request { stream, ends } => {
            let new = seen.entry(stream).or_default();
            (new.method, new.path) = (text(fields.method()), text(fields.path()));
            assert_eq!(fields.authority(), b"example.com");
            new.message.fields = list();
            ends.then_some(stream)
        }
        Http2Event::Response { stream, ends } => {
            let old = seen.get_mut(&stream).unwrap();
            (old.status, old.message.fields) = (fields.status(), list());
            ends.then_some(stream)
        }
        Http2Event::Informational { stream } => {
            assert_eq!(fields.status(), 103);
            seen.get_mut(&stream).unwrap().informational += 1;
            None
        }
        Http2Event::Data { stream, bytes, ends } => {
            seen.get_mut(&stream).unwrap().message.body.extend_from_slice(bytes);
            connection.consumed(stream, bytes.len());
            ends.then_some(stream)
        }
        Http2Event::Trailers { stream } => {
            seen.get_mut(&stream).unwrap().message.trailers = list();
            Some(stream)
        }
        Http2Event::GoAway { .. } | Http2Event::Pong(_) => None,
        Http2Event::TooLarge { .. } | Http2Event::Reset { .. } | Http2Event::Failed(_) => {
            panic!("{event:?}: {:?}", connection.fault())
        }
    }
}
