//! A relay with HTTP/1 at one end and HTTP/2 at the other: a test that speaks HTTP/1 speaks HTTP/2 to the
//! server.

use super::Client;
use crate::faults::crowd::connect_from;
use crate::server::free_addr;
use forebay_http::status::reason;
use forebay_http2::Http2Limits;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::set_socket_linger;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// The most bytes of what a client sends that are held for it.
const HELD_BYTES: usize = 1 << 20;

/// The time for which a client that was answered, and goes on sending, is still read.
const LINGER: Duration = Duration::from_secs(2);

/// A relay that passes requests of HTTP/1, which come to an address of its own, on to a server as HTTP/2,
/// one after another, and passes the answers back as the client takes them. Fields about a connection of
/// HTTP/1 end here. The client's connection ends like that of HTTP/2: a stream that is reset resets it,
/// GOAWAY closes it.
pub struct Http2Relay {
    /// The address of the relay.
    pub addr: SocketAddr,
}

impl Http2Relay {
    /// Starts a relay to the server at `to`, whose clients keep their addresses, until `to` no longer
    /// listens.
    ///
    /// # Panics
    /// If there is no address to be had.
    pub fn start(to: SocketAddr) -> Http2Relay {
        let addr = free_addr();
        let listener = TcpListener::bind(addr).unwrap();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(from) = client.peer_addr() else { continue };
                match connect_from(from.ip(), to) {
                    Ok(server) => {
                        thread::spawn(move || Passing::new(client, server).run());
                    }
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => break,
                    Err(error) => eprintln!("relay: cannot connect from {from} to {to}: {error}"),
                }
            }
        });
        Http2Relay { addr }
    }
}

/// The way in which a connection ends once the client has taken what there is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionEnd {
    Closed,
    Reset,
}

/// One connection of a client.
struct Passing {
    client: TcpStream,
    /// The socket of `server`.
    socket: TcpStream,
    server: Client,
    /// Bytes that the client has sent and that are not passed on, and how many bytes of its input are
    /// dropped because no request needs them.
    input: Vec<u8>,
    unwanted: usize,
    input_ended: bool,
    /// Bytes that the client has not taken.
    output: Vec<u8>,
    asked: Option<PendingRequest>,
    over: Option<ConnectionEnd>,
}

/// A request that is not completely answered.
struct PendingRequest {
    stream: u32,
    is_head: bool,
    /// Whether the client wants its connection closed.
    closes: bool,
    /// Whether the client is of HTTP/1.0, and does not know of chunks.
    is_old: bool,
    /// Bytes of the request's body that are still to come.
    body_left: usize,
    /// The number of interim responses that were passed on.
    told: usize,
    /// Whether the head of the answer was passed on.
    is_begun: bool,
    /// Whether the answer's body goes to the client in chunks.
    is_chunked: bool,
    /// Bytes of the answer's body that the client has not taken yet, so the server's window is not opened
    /// for them.
    owed: usize,
}

impl Passing {
    fn new(client: TcpStream, server: TcpStream) -> Passing {
        let socket = server.try_clone().unwrap();
        let limits = Http2Limits { stream_window_bytes: 65_535, ..Http2Limits::default() };
        let mut server = Client { takes: false, ..Client::over(server, limits) };
        // like a client: a server that has received nothing sends no GOAWAY
        server.flush();
        Passing {
            client,
            socket,
            server,
            input: Vec::new(),
            unwanted: 0,
            input_ended: false,
            output: Vec::new(),
            asked: None,
            over: None,
        }
    }

    fn run(mut self) {
        self.client.set_nonblocking(true).unwrap();
        let _ = self.client.set_nodelay(true);
        let over = self.pass();
        if let Ok(ConnectionEnd::Closed) = over {
            let Passing { client, socket, server, .. } = self;
            drop((socket, server));
            return linger(client);
        }
        // the client sees no more than a reset
        eprintln!("relay: {}", self.reason(&over));
        for socket in [&self.client, &self.socket] {
            let _ = set_socket_linger(socket, Some(Duration::ZERO));
        }
    }

    /// The reason why the client's connection is reset.
    fn reason(&self, over: &io::Result<ConnectionEnd>) -> String {
        let Client { has_ended, goodbyes, answers, .. } = &self.server;
        let asked = self.asked.as_ref().map(|asked| asked.stream);
        let reset = asked.and_then(|stream| answers.get(&stream)?.reset);
        let over = over.as_ref().err();
        format!(
            "{over:?}, stream {asked:?} reset: {reset:?}, server gone: {has_ended}, {goodbyes:?}"
        )
    }

    /// Passes bytes until the connection is over. An error if the client is gone.
    fn pass(&mut self) -> io::Result<ConnectionEnd> {
        loop {
            self.ask();
            self.answer();
            self.write()?;
            // the client has taken the answer, so the next request may begin
            if self.output.is_empty() {
                if let Some(over) = self.over {
                    return Ok(over);
                }
                if self.asked.is_none() && (self.input_ended || self.head_bytes().is_some()) {
                    continue;
                }
            }
            self.wait()?;
        }
    }

    /// Waits until something happens, and reads what has come.
    fn wait(&mut self) -> io::Result<()> {
        let reads = !self.input_ended && self.over.is_none() && self.input.len() < HELD_BYTES;
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, reads);
        flags.set(PollFlags::OUT, !self.output.is_empty());
        let mut fds = vec![PollFd::new(&self.client, flags)];
        if !self.server.has_ended {
            fds.push(PollFd::new(&self.socket, PollFlags::IN));
        }
        poll(&mut fds, None)?;
        let has_come = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        let is_gone = fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP);
        if reads {
            self.read()?;
        } else if is_gone {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if has_come {
            self.server.receive();
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 64 * 1024];
        match self.client.read(&mut buffer) {
            Ok(0) => self.input_ended = true,
            Ok(count) => self.input.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let count = self.unwanted.min(self.input.len());
        self.input.drain(..count);
        self.unwanted -= count;
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.client.write(&self.output) {
                Ok(count) => {
                    self.output.drain(..count);
                    if let Some(PendingRequest { stream, owed, .. }) = &mut self.asked {
                        let taken = count.min(*owed);
                        *owed -= taken;
                        self.server.consume(*stream, taken);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The length of the next head, if all of it has come.
    fn head_bytes(&self) -> Option<usize> {
        self.input.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
    }

    /// Passes on the part of the next request that is there.
    fn ask(&mut self) {
        if self.over.is_some() {
            return;
        }
        if self.asked.is_none() {
            let is_closing = self.server.has_ended || !self.server.goodbyes.is_empty();
            let Some(len) = self.head_bytes().filter(|_| !is_closing) else {
                self.over = (is_closing || self.input_ended).then_some(ConnectionEnd::Closed);
                return;
            };
            let head: Vec<u8> = self.input.drain(..len).collect();
            let Some(request) = RelayedRequest::parse(&head) else {
                self.over = Some(ConnectionEnd::Closed);
                return;
            };
            let RelayedRequest { fields, is_head, is_old, body, closes } = request;
            let fields: Vec<(&str, &[u8])> =
                fields.iter().map(|(name, value)| (&**name, &**value)).collect();
            self.asked = Some(PendingRequest {
                stream: self.server.open(&fields, is_head, body == 0),
                is_head,
                closes,
                is_old,
                body_left: body,
                told: 0,
                is_begun: false,
                is_chunked: false,
                owed: 0,
            });
        }
        let Some(asked) = &mut self.asked else { return };
        let there = asked.body_left.min(self.input.len());
        if there > 0 && !self.server.so_far(asked.stream).is_over() {
            let is_last = there == asked.body_left;
            let count = self.server.send(asked.stream, &self.input[..there], is_last);
            self.input.drain(..count);
            asked.body_left -= count;
        }
        if self.input_ended && self.input.is_empty() && asked.body_left > 0 {
            self.over = Some(ConnectionEnd::Reset);
        }
    }

    /// Passes on the part of the answer that is there.
    fn answer(&mut self) {
        if self.over.is_some() {
            return;
        }
        let is_closing = !self.server.goodbyes.is_empty();
        let Some(asked) = &mut self.asked else { return };
        let Some(answer) = self.server.answers.get_mut(&asked.stream) else { return };
        for status in &answer.informational[asked.told..] {
            let line = format!("HTTP/1.1 {status} {}\r\n\r\n", reason(*status));
            self.output.extend_from_slice(line.as_bytes());
        }
        asked.told = answer.informational.len();
        if !asked.is_begun && answer.status != 0 {
            asked.is_begun = true;
            asked.closes |= is_closing;
            let mut head = format!("HTTP/1.1 {} {}\r\n", answer.status, reason(answer.status));
            for (name, value) in &answer.fields {
                head += &format!("{}: {value}\r\n", capitalized(name));
            }
            let is_empty = asked.is_head || matches!(answer.status, 204 | 304);
            if !is_empty && answer.field("content-length").is_none() {
                // HTTP/1.0 has no chunks: the end of the connection ends the body
                asked.closes |= asked.is_old;
                asked.is_chunked = !asked.is_old;
            }
            head += if asked.is_chunked { "Transfer-Encoding: chunked\r\n" } else { "" };
            head += if asked.closes { "Connection: close\r\n\r\n" } else { "\r\n" };
            self.output.extend_from_slice(head.as_bytes());
        }
        let body = std::mem::take(&mut answer.body);
        asked.owed += body.len();
        if asked.is_chunked && !body.is_empty() {
            self.output.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
        }
        self.output.extend_from_slice(&body);
        if asked.is_chunked && !body.is_empty() {
            self.output.extend_from_slice(b"\r\n");
        }
        if answer.is_whole {
            if asked.is_chunked {
                self.output.extend_from_slice(b"0\r\n\r\n");
            }
            // the answer came before the whole body, whose rest must not be taken for the next request
            let count = asked.body_left.min(self.input.len());
            self.input.drain(..count);
            self.unwanted = asked.body_left - count;
            self.over = asked.closes.then_some(ConnectionEnd::Closed);
            self.server.answers.remove(&asked.stream);
            self.asked = None;
        } else if answer.reset.is_some() || self.server.has_ended {
            self.over = Some(ConnectionEnd::Reset);
        }
    }
}

/// Closes in order, though the client may still be sending.
fn linger(mut client: TcpStream) {
    let _ = client.shutdown(Shutdown::Write);
    let _ = client.set_nonblocking(false);
    let _ = client.set_read_timeout(Some(LINGER));
    let (deadline, mut buffer) = (Instant::now() + LINGER, [0; 64 * 1024]);
    while Instant::now() < deadline && client.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

/// The name of a field as servers of HTTP/1 write it.
fn capitalized(name: &str) -> String {
    let mut is_first = true;
    let capitalize = |letter: char| {
        let begins = std::mem::replace(&mut is_first, letter == '-');
        if begins { letter.to_ascii_uppercase() } else { letter }
    };
    name.chars().map(capitalize).collect()
}

/// The head of a request that came as text.
struct RelayedRequest {
    /// The fields, pseudo-fields first.
    fields: Vec<(String, Vec<u8>)>,
    is_head: bool,
    is_old: bool,
    /// The length of the body.
    body: usize,
    closes: bool,
}

impl RelayedRequest {
    /// Parses a head; `None` if HTTP/2 has no such requests.
    fn parse(head: &[u8]) -> Option<RelayedRequest> {
        let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        let mut words = lines.next()?.split(|byte| *byte == b' ').map(<[u8]>::to_vec);
        let (method, target) = (words.next()?, words.next()?);
        let (is_old, is_head) = (words.next()? == b"HTTP/1.0", method == b"HEAD");
        let mut fields = vec![(":method".to_owned(), method), (":path".to_owned(), target)];
        fields.push((":scheme".to_owned(), b"http".to_vec()));
        let (mut closes, mut keeps, mut body) = (false, false, 0);
        for line in lines.filter(|line| !line.is_empty()) {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = String::from_utf8(line[..colon].to_ascii_lowercase()).ok()?;
            let value = line[colon + 1..].trim_ascii().to_vec();
            match &*name {
                "host" => fields.insert(3, (":authority".to_owned(), value)),
                "connection" => {
                    closes |= value.eq_ignore_ascii_case(b"close");
                    keeps |= value.eq_ignore_ascii_case(b"keep-alive");
                }
                "keep-alive" | "upgrade" => {}
                "content-length" => {
                    body = std::str::from_utf8(&value).ok()?.parse().ok()?;
                    fields.push((name, value));
                }
                _ => fields.push((name, value)),
            }
        }
        if is_old && !fields.iter().any(|(name, _)| name == ":authority") {
            // HTTP/2 needs a host
            fields.insert(3, (":authority".to_owned(), b"a.example".to_vec()));
        }
        Some(RelayedRequest { fields, is_head, is_old, body, closes: closes || is_old && !keeps })
    }
}
