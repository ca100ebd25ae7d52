//! WebSockets (RFC 6455): an application that speaks them, and clients by HTTP/1.1 and by HTTP/2 (RFC 8441).
//!
//! The application knows nothing of HTTP/2. The path decides what it does.
//!
//! | path ends in | what it does |
//! |---|---|
//! | `/echo` | answers each frame by the same frame without a mask, a ping by a pong, and ends after a close |
//! | `/raw` | sends back every byte; after the client's end it says `bye` and ends |
//! | `/first` | says `first` and ends; then receives to the client's end |
//! | `/reset` | says `some`; resets the connection after the next byte |
//! | `/hold` | says `here`, then nothing, and receives nothing |
//! | `/wrong`, `/none`, `/chat` | changes the protocol with another answer to the key, without one, to another protocol |
//! | `/fine`, `/bad`, `/moved` | answers 200, 400 or 302 |
//! | `/silent` | does not answer |
//! | `/events` | sends server-sent events, counted from 0, one each few milliseconds |
//! | `/upload` | says how many bytes a chunked body had |

use crate::http2;
use crate::wire::PATIENCE;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64ct::{Base64, Encoding};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The requests that an application has got.
#[derive(Clone, Debug, Default)]
pub struct HeardRequests {
    /// Heads of requests, in their order.
    pub heads: Vec<String>,
    /// The ends of connections that were tunnels: the path, the number of bytes that came, and whether by
    /// a reset.
    pub ends: Vec<(String, u64, bool)>,
}

/// An application with a thread for each connection.
pub struct WebSocketServer {
    addr: SocketAddr,
    told: Arc<Mutex<HeardRequests>>,
}

impl WebSocketServer {
    /// Starts the application at an address of its own.
    pub fn start() -> WebSocketServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, told) = (listener.local_addr().unwrap(), Arc::<Mutex<HeardRequests>>::default());
        let shared = Arc::clone(&told);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let told = Arc::clone(&shared);
                // a client may go whenever it likes
                std::thread::spawn(move || while serve(&stream, &told).unwrap_or(false) {});
            }
        });
        WebSocketServer { addr, told }
    }

    /// The address of the application.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The requests until now.
    pub fn told(&self) -> HeardRequests {
        self.told.lock().unwrap().clone()
    }

    /// Whether a tunnel with this path has ended like this.
    pub fn has_ended(&self, path: &str, bytes: u64, by_reset: bool) -> bool {
        self.told().ends.contains(&(path.to_owned(), bytes, by_reset))
    }
}

/// The answer of a WebSocket server to a key (RFC 6455 §4.2.2).
pub fn accept(key: &str) -> String {
    let text = [key, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    Base64::encode_string(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()).as_ref())
}

/// Serves one request. Returns whether the connection is kept.
fn serve(stream: &TcpStream, told: &Mutex<HeardRequests>) -> io::Result<bool> {
    stream.set_nodelay(true)?;
    let (mut reader, mut writer) = (BufReader::with_capacity(64 * 1024, stream), stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(false);
        }
    }
    told.lock().unwrap().heads.push(head.clone());
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let without_query = path.split('?').next().unwrap_or_default();
    let kind = without_query.rsplit('/').next().unwrap_or_default();
    let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
    let answer = |key| format!("Sec-WebSocket-Accept: {}\r\n", accept(key));
    let right = key.map(answer).unwrap_or_default();
    let (upgrade, answer) = match kind {
        "fine" => return say(&mut writer, "200 OK\r\nContent-Length: 4", "fine").map(|()| true),
        "bad" => return say(&mut writer, "400 No\r\nContent-Length: 3", "bad").map(|()| true),
        "moved" => {
            let fields = "302 There\r\nLocation: /ws/echo\r\nContent-Length: 0";
            return say(&mut writer, fields, "").map(|()| true);
        }
        "silent" => return reader.read(&mut [0]).map(|_| false),
        "events" => return send_events(&mut writer).map(|()| false),
        "upload" => return count_body(&mut reader, &mut writer).map(|()| true),
        "wrong" => ("websocket", answer("another")),
        "none" => ("websocket", String::new()),
        "chat" => ("chat", right),
        _ => ("websocket", right),
    };
    let fields =
        format!("101 Yes\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\n{answer}X-App: a");
    say(&mut writer, &fields, "")?;
    let mut count = 0;
    let ended = tunnel(kind, &mut reader, stream, &mut count);
    let by_reset = ended.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset);
    told.lock().unwrap().ends.push((path, count, by_reset));
    Ok(false)
}

fn say(writer: &mut impl Write, fields: &str, body: &str) -> io::Result<()> {
    writer.write_all(format!("HTTP/1.1 {fields}\r\n\r\n{body}").as_bytes())
}

/// Serves a connection that is a tunnel.
fn tunnel(
    kind: &str,
    reader: &mut impl Read,
    mut stream: &TcpStream,
    count: &mut u64,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    match kind {
        "echo" => {
            let mut out = Vec::new();
            while let Some(frame) = Frame::read(reader)? {
                *count += 1;
                out.clear();
                frame.answer(&mut out);
                stream.write_all(&out)?;
                if frame.opcode == CLOSE {
                    break;
                }
            }
            stream.shutdown(Shutdown::Write)?;
        }
        "first" => {
            stream.write_all(b"first")?;
            stream.shutdown(Shutdown::Write)?;
        }
        "reset" => {
            stream.write_all(b"some")?;
            reader.read_exact(&mut buffer[..1])?;
            rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
            return Ok(());
        }
        "hold" => {
            stream.write_all(b"here")?;
            std::thread::sleep(4 * PATIENCE);
        }
        _ => {}
    }
    loop {
        match reader.read(&mut buffer)? {
            0 if kind == "raw" => {
                stream.write_all(b"bye")?;
                return stream.shutdown(Shutdown::Write);
            }
            0 => return Ok(()),
            some if kind == "raw" => {
                *count += some as u64;
                stream.write_all(&buffer[..some])?;
            }
            some => *count += some as u64,
        }
    }
}

fn send_events(writer: &mut impl Write) -> io::Result<()> {
    let fields = "200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked";
    say(writer, fields, "")?;
    for number in 0u64.. {
        let event = format!("data: {number:09}\n\n");
        write!(writer, "{:x}\r\n{event}\r\n", event.len())?;
        std::thread::sleep(Duration::from_millis(4));
    }
    Ok(())
}

fn count_body(reader: &mut impl BufRead, writer: &mut impl Write) -> io::Result<()> {
    let mut count = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim_end(), 16).map_err(io::Error::other)?;
        reader.read_exact(&mut vec![0; size + 2])?;
        if size == 0 {
            let body = count.to_string();
            let fields = format!("200 OK\r\nContent-Length: {}", body.len());
            return say(writer, &fields, &body);
        }
        count += size;
    }
}

/// A frame that is part of a message.
pub const CONTINUATION: u8 = 0;
/// A frame that begins, or is, a message of text.
pub const TEXT: u8 = 1;
/// A frame that begins, or is, a message of bytes.
pub const BINARY: u8 = 2;
/// A frame that ends a WebSocket.
pub const CLOSE: u8 = 8;
/// A frame that is answered by a pong.
pub const PING: u8 = 9;
/// A frame that answers a ping.
pub const PONG: u8 = 10;

/// A frame (RFC 6455 §5.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Whether the frame is the last of its message.
    pub is_last: bool,
    /// The kind of frame.
    pub opcode: u8,
    /// The mask of the payload.
    pub mask: Option<[u8; 4]>,
    /// The payload, without a mask.
    pub payload: Vec<u8>,
}

impl Frame {
    /// A whole message, or a control frame.
    pub fn whole(opcode: u8, payload: &[u8], mask: [u8; 4]) -> Frame {
        Frame { is_last: true, opcode, mask: Some(mask), payload: payload.to_vec() }
    }

    /// Appends the frame.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_last) << 7 | self.opcode);
        let masked = u8::from(self.mask.is_some()) << 7;
        match self.payload.len() {
            len @ 0..=125 => out.push(masked | len as u8),
            len @ 126..=0xffff => {
                out.push(masked | 126);
                out.extend_from_slice(&(len as u16).to_be_bytes());
            }
            len => {
                out.push(masked | 127);
                out.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        let start = out.len();
        if let Some(mask) = self.mask {
            out.extend_from_slice(&mask);
            out.extend_from_slice(&self.payload);
            unmask(&mut out[start + 4..], mask);
        } else {
            out.extend_from_slice(&self.payload);
        }
    }

    /// Reads the next frame; `None` where the connection ends before its first byte.
    ///
    /// # Errors
    /// The error of the connection, or that it ends within a frame.
    pub fn read(reader: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut first = [0];
        if reader.read(&mut first)? == 0 {
            return Ok(None);
        }
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        let len = match byte[0] & 0x7f {
            126 => {
                let mut len = [0; 2];
                reader.read_exact(&mut len)?;
                u16::from_be_bytes(len).into()
            }
            127 => {
                let mut len = [0; 8];
                reader.read_exact(&mut len)?;
                u64::from_be_bytes(len) as usize
            }
            len => len.into(),
        };
        let mut mask = None;
        if byte[0] & 0x80 != 0 {
            let mut bytes = [0; 4];
            reader.read_exact(&mut bytes)?;
            mask = Some(bytes);
        }
        let mut payload = vec![0; len];
        reader.read_exact(&mut payload)?;
        unmask(&mut payload, mask.unwrap_or_default());
        Ok(Some(Frame { is_last: first[0] & 0x80 != 0, opcode: first[0] & 0x0f, mask, payload }))
    }

    /// Writes the answer of `/echo` to the frame.
    fn answer(&self, out: &mut Vec<u8>) {
        let opcode = match self.opcode {
            PONG => return,
            PING => PONG,
            other => other,
        };
        let payload = self.payload.clone();
        Frame { is_last: self.is_last, opcode, mask: None, payload }.write(out);
    }
}

fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    for (byte, mask) in payload.iter_mut().zip(mask.into_iter().cycle()) {
        *byte ^= mask;
    }
}

/// A client's end of a tunnel.
pub enum TunnelEnd {
    /// A connection of HTTP/1.1, and the bytes behind the head of its answer.
    Http1(BufReader<TcpStream>),
    /// A stream of HTTP/2, and how many of its bytes were taken.
    Http2 {
        /// The connection.
        client: Box<http2::Client>,
        /// The stream.
        stream: u32,
        /// Bytes that were taken.
        taken: usize,
    },
}

impl TunnelEnd {
    /// Opens a tunnel over HTTP/1.1.
    ///
    /// # Panics
    /// If the server does not open it.
    pub fn by_http1(stream: TcpStream, path: &str) -> TunnelEnd {
        TunnelEnd::try_http1(stream, path).unwrap_or_else(|(_, head)| panic!("{head}"))
    }

    /// Opens a tunnel over HTTP/1.1, where another status is a valid answer, too.
    ///
    /// # Errors
    /// That status, and everything known of the answer.
    ///
    /// # Panics
    /// If there is no answer, or the answer to the key is wrong.
    pub fn try_http1(stream: TcpStream, path: &str) -> Result<TunnelEnd, (u16, String)> {
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let text = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        (&stream).write_all(text.as_bytes()).unwrap();
        let (mut reader, mut head) = (BufReader::with_capacity(64 * 1024, stream), String::new());
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{head:?}");
        }
        let status = head.get(9..12).and_then(|text| text.parse::<u16>().ok()).unwrap_or_default();
        if status != 101 {
            return Err((status, head));
        }
        assert!(head.starts_with("HTTP/1.1 101 ") && head.contains(&accept(key)), "{head}");
        Ok(TunnelEnd::Http1(reader))
    }

    /// Opens a tunnel over HTTP/2.
    ///
    /// # Panics
    /// If the server does not open it.
    pub fn by_http2(client: http2::Client, path: &str) -> TunnelEnd {
        TunnelEnd::try_http2(client, path).unwrap_or_else(|(_, answer)| panic!("{answer}"))
    }

    /// Opens a tunnel over HTTP/2, where another status is a valid answer, too.
    ///
    /// # Errors
    /// That status, and everything known of the answer.
    ///
    /// # Panics
    /// If there is no answer.
    pub fn try_http2(mut client: http2::Client, path: &str) -> Result<TunnelEnd, (u16, String)> {
        let stream = begin(&mut client, path);
        client.until(|client| client.so_far(stream).status != 0);
        let answer = client.so_far(stream);
        if answer.status != 200 || answer.reset.is_some() {
            return Err((answer.status, format!("{answer:?}")));
        }
        Ok(TunnelEnd::Http2 { client: Box::new(client), stream, taken: 0 })
    }

    /// Sends all bytes.
    ///
    /// # Panics
    /// If it is not taken.
    pub fn send(&mut self, bytes: &[u8]) {
        match self {
            TunnelEnd::Http1(reader) => reader.get_mut().write_all(bytes).unwrap(),
            TunnelEnd::Http2 { client, stream, .. } => {
                let mut at = 0;
                while at < bytes.len() {
                    match client.send(*stream, &bytes[at..], false) {
                        0 => client.receive(),
                        count => at += count,
                    }
                    assert_eq!(client.so_far(*stream).reset, None);
                }
            }
        }
    }

    /// Sends all pieces while it receives; returns the bytes that came before the other end.
    ///
    /// # Panics
    /// If it is not taken, or the tunnel ends in disorder.
    pub fn talk(mut self, pieces: Vec<Vec<u8>>) -> Vec<u8> {
        if let TunnelEnd::Http1(reader) = &self {
            let mut writer = reader.get_ref().try_clone().unwrap();
            let sends = std::thread::spawn(move || {
                pieces.iter().for_each(|piece| writer.write_all(piece).unwrap());
            });
            let rest = self.rest();
            sends.join().unwrap();
            return rest;
        }
        pieces.iter().for_each(|piece| self.send(piece));
        self.rest()
    }

    /// Ends the sending direction.
    pub fn finish(&mut self) {
        match self {
            TunnelEnd::Http1(reader) => reader.get_ref().shutdown(Shutdown::Write).unwrap(),
            TunnelEnd::Http2 { client, stream, .. } => {
                client.send(*stream, b"", true);
            }
        }
    }

    /// Reads the next `count` bytes.
    ///
    /// # Panics
    /// If they do not come.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        match self {
            TunnelEnd::Http1(reader) => {
                let mut bytes = vec![0; count];
                reader.read_exact(&mut bytes).unwrap();
                bytes
            }
            TunnelEnd::Http2 { client, stream, taken } => {
                let (stream, end) = (*stream, *taken + count);
                client.until(|client| client.so_far(stream).body.len() >= end);
                let bytes = client.so_far(stream).body[*taken..end].to_vec();
                *taken = end;
                bytes
            }
        }
    }

    /// Reads all bytes until the other end, which must be orderly.
    ///
    /// # Panics
    /// If the end is not orderly.
    pub fn rest(&mut self) -> Vec<u8> {
        match self {
            TunnelEnd::Http1(reader) => {
                let mut bytes = Vec::new();
                reader.read_to_end(&mut bytes).unwrap();
                bytes
            }
            TunnelEnd::Http2 { client, stream, taken } => {
                let stream = *stream;
                client.until(|client| {
                    let answer = client.so_far(stream);
                    answer.is_whole || answer.reset.is_some()
                });
                let answer = client.so_far(stream);
                assert_eq!(answer.reset, None);
                answer.body[*taken..].to_vec()
            }
        }
    }

    /// Waits until the tunnel ends, in another way than by an orderly end.
    ///
    /// # Panics
    /// If the tunnel does not end, or bytes come before that.
    pub fn ends_in_disorder(self) {
        match self {
            TunnelEnd::Http1(mut reader) => {
                let error = reader.read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            }
            TunnelEnd::Http2 { mut client, stream, .. } => {
                client.until(|client| client.so_far(stream).reset.is_some());
            }
        }
    }

    /// Breaks the connection off.
    pub fn cut(self) {
        match self {
            TunnelEnd::Http1(reader) => {
                let stream = reader.get_ref();
                rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
            }
            TunnelEnd::Http2 { mut client, stream, .. } => client.reset(stream),
        }
    }
}

/// Asks for a WebSocket over HTTP/2, when the server's settings allow it; returns the stream.
///
/// # Panics
/// If the server does not allow it.
pub fn begin(client: &mut http2::Client, path: &str) -> u32 {
    // the server's settings, which allow tunnels, come when it has the client's preface
    client.raw(b"");
    client.until(http2::Client::may_open_tunnels);
    let more = [(":protocol", "websocket"), ("sec-websocket-version", "13")];
    client.begin("CONNECT", path, &more, false)
}
