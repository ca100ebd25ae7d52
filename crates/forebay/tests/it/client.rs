//! A client that sends what a test asks for, and waits as long as a busy machine takes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A time that is longer than a busy machine takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// An answer of HTTP/1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// A connection of HTTP/1.
pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Reads the head of an answer, without the empty line; interim answers are skipped.
    pub(crate) fn head(&mut self) -> (u16, String) {
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert!(self.stream.read_line(&mut head).unwrap() > 0, "no head: {head:?}");
            }
            let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
            if status >= 200 {
                return (status, head);
            }
        }
    }

    /// Reads one chunk of a body; empty at its end.
    pub(crate) fn chunk(&mut self) -> Vec<u8> {
        let mut size = String::new();
        self.stream.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        if size > 0 {
            self.stream.read_exact(&mut chunk).unwrap();
        }
        chunk.truncate(size);
        chunk
    }

    /// Reads an answer with all of its body.
    pub(crate) fn answer(&mut self) -> Answer {
        let (status, head) = self.head();
        let field = |name: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name))
        };
        let mut body = Vec::new();
        if let Some((_, length)) = field("Content-Length") {
            body.resize(length.parse().unwrap(), 0);
            self.stream.read_exact(&mut body).unwrap();
        } else if field("Transfer-Encoding").is_some() {
            loop {
                let chunk = self.chunk();
                if chunk.is_empty() {
                    // the end, or the trailers
                    let mut line = String::new();
                    while line != "\r\n" {
                        line.clear();
                        assert!(self.stream.read_line(&mut line).unwrap() > 0);
                    }
                    break;
                }
                body.extend(chunk);
            }
        } else if status != 204 {
            self.stream.read_to_end(&mut body).unwrap();
        }
        Answer { status, head, body }
    }

    pub(crate) fn ask(&mut self, request: &str) -> Answer {
        self.send(request);
        self.answer()
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.ask(&format!("GET {target} HTTP/1.1\r\nHost: here\r\n\r\n"))
    }
}

/// Sends one request on a connection of its own.
pub(crate) fn get(address: SocketAddr, target: &str) -> Answer {
    Client::connect(address).get(target)
}

/// Waits until this holds.
#[track_caller]
pub(crate) fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
