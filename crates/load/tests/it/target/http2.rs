//! HTTP/2 servers made for each test.

use super::{Server, serve};
use forebay_http2::frame::{self, kind};
use forebay_http2::hpack::encode;
use forebay_http2::{Connection, DecodedFields, ErrorCode, Http2Event, Http2Limits, MessagePart};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The server's end of a connection.
pub(crate) struct Peer {
    stream: TcpStream,
    pub(crate) machine: Connection,
    /// Whether the window is opened again for each received byte at once.
    pub(crate) is_stingy: bool,
    /// The codes with which the client has reset streams.
    pub(crate) resets: Vec<ErrorCode>,
    /// Whether the server has closed its direction.
    has_closed: bool,
    out: Vec<u8>,
}

/// A request that has been received completely.
pub(crate) struct Request {
    pub(crate) stream: u32,
    /// Method, authority and path, then the other fields.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Peer {
    /// Answers with this status and body.
    pub(crate) fn answer(&mut self, stream: u32, status: u16, body: &str) {
        let part = if body.is_empty() { MessagePart::Last } else { MessagePart::Head };
        self.machine.head(&mut self.out, stream, part, |block| {
            encode::status(block, status);
            encode::field(block, b"content-length", body.len().to_string().as_bytes());
        });
        if !body.is_empty() {
            self.data(stream, body, true);
        }
    }

    /// Sends a part of a body.
    pub(crate) fn data(&mut self, stream: u32, body: &str, ends: bool) {
        let header = self.machine.data(stream, body.len() as u32, ends);
        self.out.extend_from_slice(&header.unwrap());
        self.out.extend_from_slice(body.as_bytes());
    }

    pub(crate) fn reset(&mut self, stream: u32, code: ErrorCode) {
        self.machine.reset(stream, code);
    }

    /// Sends a frame with this payload.
    pub(crate) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.machine.flush(&mut self.out);
        frame::write(&mut self.out, kind, flags, stream, payload);
    }

    /// Sends the pending output; returns whether the client still takes it.
    pub(crate) fn send(&mut self) -> bool {
        self.machine.flush(&mut self.out);
        let sent = self.stream.write_all(&self.out).is_ok();
        self.out.clear();
        sent
    }

    /// From now on the server sends a PING whenever the client is silent for 5 ms.
    pub(crate) fn be_restless(&self) {
        self.stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    }

    /// Closes the server's direction when everything has been sent. Further input is still read until the
    /// client closes, too: otherwise the kernel would answer it with a reset, which may overtake what was
    /// sent.
    pub(crate) fn close(&mut self) {
        self.send();
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        self.has_closed = true;
    }
}

/// Calls `answer` with each complete request, until the client ends.
pub(crate) fn http2(
    limits: Http2Limits,
    answer: impl Fn(&mut Peer, &Request) + Send + Sync + 'static,
) -> Server {
    serve(move |stream| {
        stream.set_nodelay(true).unwrap();
        let machine = Connection::server(limits);
        let mut peer = Peer {
            stream,
            machine,
            is_stingy: false,
            resets: Vec::new(),
            has_closed: false,
            out: Vec::new(),
        };
        let (mut fields, mut received, mut buffer) =
            (DecodedFields::default(), Vec::new(), vec![0; 65_536]);
        let mut requests: Vec<Request> = Vec::new();
        while peer.send() {
            let count = match peer.stream.read(&mut buffer) {
                Ok(count @ 1..) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    peer.machine.ping(0);
                    continue;
                }
                Ok(0) | Err(_) => return,
            };
            received.extend_from_slice(&buffer[..count]);
            let mut used = 0;
            loop {
                let taken = peer.machine.receive(&received[used..], &mut fields, 0);
                used += taken.used;
                let (stream, ends) = match taken.event {
                    None => break,
                    Some(Http2Event::Request { stream, ends }) => {
                        let head = told(&fields);
                        requests.push(Request { stream, head, body: Vec::new() });
                        (stream, ends)
                    }
                    Some(Http2Event::Data { stream, bytes, ends }) => {
                        peer.machine.consumed(stream, bytes.len());
                        if peer.is_stingy && !ends {
                            let more = (bytes.len() as u32).to_be_bytes();
                            peer.frame(kind::WINDOW_UPDATE, 0, stream, &more);
                        }
                        let request = requests.iter_mut().find(|one| one.stream == stream);
                        request.unwrap().body.extend_from_slice(bytes);
                        (stream, ends)
                    }
                    Some(Http2Event::Reset { code, .. }) => {
                        peer.resets.push(code);
                        continue;
                    }
                    Some(_) => continue,
                };
                if ends {
                    let place = requests.iter().position(|one| one.stream == stream).unwrap();
                    answer(&mut peer, &requests.swap_remove(place));
                }
                if peer.has_closed {
                    while let Ok(1..) = peer.stream.read(&mut buffer) {}
                    return;
                }
            }
            received.drain(..used);
        }
    })
}

fn told(fields: &DecodedFields) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (method, host, path) = (fields.method(), fields.authority(), fields.path());
    let mut all = format!("{} {} {}", text(method), text(host), text(path));
    for (name, value) in fields.iter() {
        all += &format!(" {}={}", text(name), text(value));
    }
    all
}

/// The payload of a SETTINGS frame with one setting.
pub(crate) fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// A server that sends these settings, and then only reads.
pub(crate) fn mute(settings: Vec<u8>) -> Server {
    serve(move |mut stream| {
        let mut first = Vec::new();
        frame::write(&mut first, kind::SETTINGS, 0, 0, &settings);
        let _ = stream.write_all(&first);
        while let Ok(1..) = stream.read(&mut [0; 4096]) {}
    })
}
