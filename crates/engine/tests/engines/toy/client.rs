//! A client, veiled or not.

use super::veil::{self, Opener};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

/// A message of the toy protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) id: u32,
    pub(super) kind: u8,
    pub(super) payload: Vec<u8>,
}

pub(super) const ASK: u8 = 1;
pub(super) const DATA: u8 = 2;
pub(super) const END: u8 = 3;
pub(super) const ANSWER: u8 = 4;
pub(super) const CHUNK: u8 = 5;
pub(super) const DONE: u8 = 6;
pub(super) const RESET: u8 = 7;
pub(super) const UPGRADE: u8 = 8;

/// The bytes of a message before its payload.
pub(super) const HEADER: usize = 7;

/// Adds a message to `bytes`.
pub(super) fn message(id: u32, kind: u8, payload: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend(id.to_be_bytes());
    bytes.push(kind);
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend(payload);
}

/// The header at the start of `bytes`: request, kind and length, if it is complete.
pub(super) fn header(bytes: &[u8]) -> Option<(u32, u8, usize)> {
    let [a, b, c, d, kind, high, low] = *bytes.first_chunk::<HEADER>()?;
    let len = usize::from(u16::from_be_bytes([high, low]));
    Some((u32::from_be_bytes([a, b, c, d]), kind, len))
}

pub(super) struct Client {
    socket: TcpStream,
    opener: Option<Opener>,
    /// The server has said hello.
    is_greeted: bool,
    /// The server has ended in good order.
    pub(super) has_ended: bool,
    plain: Vec<u8>,
}

const NONCE: u64 = 4711;

impl Client {
    pub(super) fn new(socket: TcpStream, veiled: bool) -> Client {
        let opener = veiled.then(Opener::default);
        let mut client =
            Client { socket, opener, is_greeted: false, has_ended: false, plain: Vec::new() };
        if veiled {
            let mut hello = Vec::new();
            veil::seal(veil::HELLO, &NONCE.to_be_bytes(), &mut hello);
            // in two parts, so that one is not enough
            client.socket.write_all(&hello[..5]).unwrap();
            client.socket.write_all(&hello[5..]).unwrap();
        }
        client
    }

    /// A second handle of the client, which writes from another thread.
    pub(super) fn writer(&self) -> Client {
        Client {
            socket: self.socket.try_clone().unwrap(),
            opener: self.opener.as_ref().map(|_| Opener::default()),
            is_greeted: true,
            has_ended: false,
            plain: Vec::new(),
        }
    }

    /// Sends bytes; returns `false` if the connection has failed.
    pub(super) fn try_send(&mut self, bytes: &[u8]) -> bool {
        let mut wire = Vec::new();
        match self.opener {
            Some(_) => veil::seal(veil::DATA, bytes, &mut wire),
            None => wire.extend(bytes),
        }
        self.socket.write_all(&wire).is_ok()
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        assert!(self.try_send(bytes), "the connection has failed");
    }

    pub(super) fn say(&mut self, id: u32, kind: u8, payload: &[u8]) {
        let mut bytes = Vec::new();
        message(id, kind, payload, &mut bytes);
        self.send(&bytes);
    }

    pub(super) fn ask(&mut self, id: u32, path: &str) {
        self.say(id, ASK, path.as_bytes());
    }

    /// Ends the client's direction.
    pub(super) fn end(&mut self) {
        if self.opener.is_some() {
            let mut wire = Vec::new();
            veil::seal(veil::END, &[], &mut wire);
            let _ = self.socket.write_all(&wire);
        }
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Receives more bytes; none at the end.
    pub(super) fn receive(&mut self) -> Vec<u8> {
        if !self.plain.is_empty() {
            return std::mem::take(&mut self.plain);
        }
        let mut buffer = [0; 16 * 1024];
        loop {
            let count = match self.socket.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("nothing has come for a long time")
                }
                Err(_) => 0,
            };
            let Some(opener) = &mut self.opener else { return buffer[..count].to_vec() };
            if count == 0 {
                return Vec::new();
            }
            opener.give(&buffer[..count]);
            let mut plain = Vec::new();
            while let Some((kind, payload)) = opener.next().unwrap() {
                match (kind, self.is_greeted) {
                    (veil::HELLO, false) => {
                        assert_eq!(payload, veil::checksum(NONCE).to_be_bytes());
                        self.is_greeted = true;
                    }
                    (veil::DATA, true) if !self.has_ended => plain.extend(payload),
                    (veil::END, true) => self.has_ended = true,
                    other => panic!("{other:?} is out of place"),
                }
            }
            if !plain.is_empty() {
                return plain;
            }
        }
    }

    /// Receives everything until the end.
    pub(super) fn receive_all(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let more = self.receive();
            if more.is_empty() {
                return all;
            }
            all.extend(more);
        }
    }

    /// Receives the next message; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Message> {
        let mut bytes = std::mem::take(&mut self.plain);
        loop {
            if let Some((id, kind, len)) = header(&bytes)
                && bytes.len() >= HEADER + len
            {
                let payload = bytes[HEADER..HEADER + len].to_vec();
                self.plain = bytes.split_off(HEADER + len);
                return Some(Message { id, kind, payload });
            }
            let more = self.receive();
            if more.is_empty() {
                assert!(bytes.is_empty(), "it ends within a message");
                return None;
            }
            bytes.extend(more);
        }
    }

    /// Receives the whole answer to the request whose answer is over next: its number, how it
    /// ended, its status and its bytes. Those of other requests are kept in `others`.
    pub(super) fn answer(&mut self, others: &mut Vec<Answer>) -> Answer {
        loop {
            let Message { id, kind, payload } = self.next().expect("the connection has ended");
            let at = others.iter().position(|answer| answer.id == id).unwrap_or_else(|| {
                others.push(Answer { id, status: 0, body: Vec::new(), reset: None });
                others.len() - 1
            });
            let answer = &mut others[at];
            match kind {
                ANSWER => {
                    assert_eq!(answer.status, 0, "answered twice");
                    answer.status = u16::from_be_bytes([payload[0], payload[1]]);
                }
                CHUNK => {
                    assert!(answer.status > 0, "a body before its head");
                    answer.body.extend(payload);
                }
                DONE => return others.remove(at),
                RESET => {
                    answer.reset = Some(payload[0]);
                    return others.remove(at);
                }
                other => panic!("{other} is no answer"),
            }
        }
    }

    /// Resets the connection.
    pub(super) fn leave(self) {
        forebay_sys::socket::reset_on_close(std::os::fd::AsFd::as_fd(&self.socket));
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) id: u32,
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    pub(super) reset: Option<u8>,
}

impl Answer {
    /// The number and the bytes as text; for a reset, `reset` and the reason.
    pub(super) fn text(&self) -> (u32, String) {
        let text = match self.reset {
            Some(reason) => format!("reset {reason}"),
            None => String::from_utf8(self.body.clone()).unwrap(),
        };
        (self.id, text)
    }
}

impl Client {
    /// A client on a connection on which a hello has been sent.
    pub(super) fn resume(socket: TcpStream) -> Client {
        Client {
            socket,
            opener: Some(Opener::default()),
            is_greeted: false,
            has_ended: false,
            plain: Vec::new(),
        }
    }
}
