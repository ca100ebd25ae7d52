//! A client that speaks HTTP/2, over plain bytes or through TLS, and a relay by which tests that speak HTTP/1
//! reach a server as HTTP/2.

mod relay;

pub use relay::Http2Relay;

use crate::faults::WatchedServer;
use crate::tls::Authority;
use crate::wire;
use forebay_http2::hpack::encode;
use forebay_http2::{Connection, DecodedFields, ErrorCode, Http2Event, Http2Limits, MessagePart};
use rustls::ClientConfig;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

/// A connection of a client.
pub struct Client {
    stream: Box<dyn ByteStream>,
    /// The host of the requests.
    host: String,
    machine: Connection,
    fields: DecodedFields,
    out: Vec<u8>,
    received: Vec<u8>,
    answers: BTreeMap<u32, Answer>,
    /// The error codes of GOAWAY frames from the server.
    pub goodbyes: Vec<ErrorCode>,
    /// Whether the windows are opened again as the bytes of bodies come.
    pub takes: bool,
    /// Whether frames are kept back for now.
    is_holding: bool,
    has_ended: bool,
}

/// A connection for the bytes.
trait ByteStream: Read + Write + Send {}
impl<T: Read + Write + Send> ByteStream for T {}

/// The part of an answer that has come on a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status; 0 before the head has come.
    pub status: u16,
    /// All fields in their order.
    pub fields: Vec<(String, String)>,
    /// The body so far.
    pub body: Vec<u8>,
    /// The trailers behind the body.
    pub trailers: Vec<(String, String)>,
    /// The statuses of interim responses.
    pub informational: Vec<u16>,
    /// Whether the answer is complete.
    pub is_whole: bool,
    /// The error code, if the stream was reset.
    pub reset: Option<u32>,
}

impl Answer {
    /// The value of the first field with this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|(known, _)| known == name);
        field.map(|(_, value)| value.as_str())
    }

    fn is_over(&self) -> bool {
        self.is_whole || self.reset.is_some()
    }
}

impl Client {
    /// A client over a connection that is there.
    fn over(stream: impl Read + Write + Send + 'static, limits: Http2Limits) -> Client {
        Client {
            stream: Box::new(stream),
            host: "a.example".to_owned(),
            machine: Connection::client(limits),
            fields: DecodedFields::default(),
            out: Vec::new(),
            received: Vec::new(),
            answers: BTreeMap::new(),
            goodbyes: Vec::new(),
            takes: true,
            is_holding: false,
            has_ended: false,
        }
    }

    /// Connects, and sends nothing before the first request.
    ///
    /// # Panics
    /// If no server accepts.
    pub fn connect(addr: SocketAddr) -> Client {
        Client::with(addr, Http2Limits::default())
    }

    /// Connects with windows and other limits of its own.
    ///
    /// # Panics
    /// If no server accepts.
    pub fn with(addr: SocketAddr, limits: Http2Limits) -> Client {
        let stream = wire::connect(addr);
        stream.set_read_timeout(Some(wire::PATIENCE)).unwrap();
        Client::over(stream, limits)
    }

    /// A client over a connection that is there, of which the test keeps a handle.
    pub fn on(stream: TcpStream) -> Client {
        Client::over(stream, Http2Limits::default())
    }

    /// Connects to the site of a server.
    pub fn of(served: &WatchedServer) -> Client {
        Client::connect(served.addr())
    }

    /// Connects through TLS, in whose handshake HTTP/2 is agreed on.
    ///
    /// # Panics
    /// If no server accepts.
    pub fn sealed(authority: &Authority, addr: SocketAddr, host: &str) -> Client {
        Client::sealed_by(authority.client(), addr, host)
    }

    /// Connects through TLS with the configuration of the test.
    ///
    /// # Panics
    /// If no server accepts.
    pub fn sealed_by(mut config: ClientConfig, addr: SocketAddr, host: &str) -> Client {
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = crate::tls::connect(&Arc::new(config), addr, host);
        stream.sock.set_read_timeout(Some(wire::PATIENCE)).unwrap();
        Client { host: host.to_owned(), ..Client::over(stream, Http2Limits::default()) }
    }

    /// Sends the head of a request; returns its stream. `ends` means that it has no body.
    ///
    /// # Panics
    /// If the server takes no more streams.
    pub fn begin(&mut self, method: &str, path: &str, more: &[(&str, &str)], ends: bool) -> u32 {
        let first = [(":method", method), (":scheme", "http"), (":path", path)];
        let host = self.host.clone();
        let host = [(":authority", &*host)];
        let all = first.iter().chain(&host).chain(more);
        let all: Vec<(&str, &[u8])> = all.map(|(name, value)| (*name, value.as_bytes())).collect();
        self.open(&all, method == "HEAD", ends)
    }

    /// Sends these fields as the head of a request.
    fn open(&mut self, fields: &[(&str, &[u8])], is_head: bool, ends: bool) -> u32 {
        let write = |block: &mut Vec<u8>| {
            for (name, value) in fields {
                encode::field(block, name.as_bytes(), value);
            }
        };
        let stream = self.machine.open(&mut self.out, ends, is_head, write);
        let stream = stream.expect("the server takes another stream");
        self.answers.insert(stream, Answer::default());
        self.flush();
        stream
    }

    /// Sends a GET for a path; returns its stream.
    pub fn ask(&mut self, path: &str) -> u32 {
        self.begin("GET", path, &[], true)
    }

    /// Sends these requests in one piece of bytes, each with fields of its own.
    pub fn ask_at_once(&mut self, requests: &[(&str, &[(&str, &str)])]) -> Vec<u32> {
        self.is_holding = true;
        let ask = |(path, more): &(&str, &[(&str, &str)])| self.begin("GET", path, more, true);
        let streams = requests.iter().map(ask).collect();
        self.is_holding = false;
        self.flush();
        streams
    }

    /// Sends a GET, and waits for the answer.
    pub fn get(&mut self, path: &str) -> Answer {
        let stream = self.ask(path);
        self.answer(stream)
    }

    /// Sends a part of a body, as far as the windows are open; returns its length.
    ///
    /// # Panics
    /// If the stream is over.
    pub fn send(&mut self, stream: u32, body: &[u8], ends: bool) -> usize {
        self.machine.offer(stream);
        let mut at = 0;
        loop {
            let most = self.machine.next().map_or(0, |turn| turn.most as usize);
            let count = most.min(body.len() - at);
            if count == 0 && !(ends && at == body.len()) {
                break;
            }
            let is_last = ends && at + count == body.len();
            let header = self.machine.data(stream, count as u32, is_last).unwrap();
            self.out.extend_from_slice(&header);
            self.out.extend_from_slice(&body[at..at + count]);
            at += count;
            if is_last || at == body.len() {
                break;
            }
        }
        self.flush();
        at
    }

    /// Sends a whole body, and waits for windows that are closed.
    ///
    /// # Panics
    /// If the stream is over, or nothing is taken for longer than [`wire::PATIENCE`].
    pub fn send_all(&mut self, stream: u32, body: &[u8]) {
        let (mut at, mut deadline) = (0, Instant::now() + wire::PATIENCE);
        while at < body.len() {
            let count = self.send(stream, &body[at..], true);
            at += count;
            if count == 0 {
                assert!(Instant::now() < deadline, "no window opens, {}", self.unfinished());
                self.receive();
            } else {
                deadline = Instant::now() + wire::PATIENCE;
            }
        }
    }

    /// Sends trailers, which end a request.
    pub fn trail(&mut self, stream: u32, trailers: &[(&str, &str)]) {
        self.machine.head(&mut self.out, stream, MessagePart::Last, |block| {
            for (name, value) in trailers {
                encode::field(block, name.as_bytes(), value.as_bytes());
            }
        });
        self.flush();
    }

    /// Resets the stream of a request.
    pub fn reset(&mut self, stream: u32) {
        self.machine.reset(stream, ErrorCode::CANCEL);
        self.flush();
    }

    /// Opens the windows for bytes of a body, where that does not happen as they come.
    pub fn consume(&mut self, stream: u32, bytes: usize) {
        self.machine.consumed(stream, bytes);
        self.flush();
    }

    /// Sends these bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.flush();
    }

    /// The part of an answer that has come on a stream so far.
    pub fn so_far(&self, stream: u32) -> &Answer {
        &self.answers[&stream]
    }

    /// Waits until a stream is over.
    ///
    /// # Panics
    /// If that takes too long or the connection ends before.
    pub fn answer(&mut self, stream: u32) -> Answer {
        self.until(|client| client.answers[&stream].is_over());
        self.answers[&stream].clone()
    }

    /// Waits until `is_so` holds.
    ///
    /// # Panics
    /// If that takes longer than [`wire::PATIENCE`], or the connection ends before.
    pub fn until(&mut self, is_so: impl Fn(&Client) -> bool) {
        let deadline = Instant::now() + wire::PATIENCE;
        while !is_so(self) {
            assert!(!self.has_ended, "the connection has ended: {:?}", self.goodbyes);
            assert!(Instant::now() < deadline, "nothing more came, {}", self.unfinished());
            self.receive();
        }
    }

    /// Waits until the server has closed the connection.
    ///
    /// # Panics
    /// If that takes longer than [`wire::PATIENCE`].
    pub fn until_closed(&mut self) {
        let deadline = Instant::now() + wire::PATIENCE;
        while !self.has_ended {
            assert!(Instant::now() < deadline, "it is still open");
            self.receive();
        }
    }

    /// Whether the server has closed the connection.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The streams that are not over, each with its status and the bytes of its body.
    fn unfinished(&self) -> String {
        let open = self.answers.iter().filter(|(_, answer)| !answer.is_over());
        let told = |(stream, answer): (&u32, &Answer)| {
            format!("{stream}: {} {} bytes", answer.status, answer.body.len())
        };
        open.map(told).collect::<Vec<_>>().join(", ")
    }

    fn flush(&mut self) {
        self.machine.flush(&mut self.out);
        if self.is_holding {
            return;
        }
        // a server that is gone is noticed when receiving
        let _ = self.stream.write_all(&self.out).and_then(|()| self.stream.flush());
        self.out.clear();
    }

    /// Whether the server has said that streams may become tunnels (RFC 8441 §3).
    pub fn may_open_tunnels(&self) -> bool {
        self.machine.peer().extended_connect
    }

    /// Reads what comes next, and waits for it.
    pub fn receive(&mut self) {
        let mut buffer = [0; 32 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.has_ended = true,
            Ok(count) => self.received.extend_from_slice(&buffer[..count]),
            // a process that was stopped has its reading interrupted
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return;
            }
            Err(_) => self.has_ended = true,
        }
        let received = std::mem::take(&mut self.received);
        let mut at = 0;
        loop {
            let taken = self.machine.receive(&received[at..], &mut self.fields, 0);
            at += taken.used;
            let Some(event) = taken.event else { break };
            self.take(event);
        }
        self.received = received[at..].to_vec();
        self.flush();
    }

    fn take(&mut self, event: Http2Event<'_>) {
        let Client { answers, fields, machine, .. } = self;
        fn list(fields: &DecodedFields) -> Vec<(String, String)> {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            fields.iter().map(|(name, value)| (text(name), text(value))).collect()
        }
        fn of(answers: &mut BTreeMap<u32, Answer>, stream: u32) -> &mut Answer {
            answers.entry(stream).or_default()
        }
        match event {
            Http2Event::Response { stream, ends } => {
                let answer = of(answers, stream);
                (answer.status, answer.fields) = (fields.status(), list(fields));
                answer.is_whole = ends;
            }
            Http2Event::Informational { stream } => {
                of(answers, stream).informational.push(fields.status())
            }
            Http2Event::Data { stream, bytes, ends } => {
                let answer = of(answers, stream);
                answer.body.extend_from_slice(bytes);
                answer.is_whole = ends;
                if self.takes {
                    machine.consumed(stream, bytes.len());
                }
            }
            Http2Event::Trailers { stream } => {
                let answer = of(answers, stream);
                (answer.is_whole, answer.trailers) = (true, list(fields));
            }
            Http2Event::Reset { stream, code, .. } => of(answers, stream).reset = Some(code.0),
            Http2Event::GoAway { code, .. } => self.goodbyes.push(code),
            Http2Event::Failed(fault) => panic!("the server broke the protocol: {}", fault.reason),
            Http2Event::Pong(_) | Http2Event::Request { .. } | Http2Event::TooLarge { .. } => {}
        }
    }
}
