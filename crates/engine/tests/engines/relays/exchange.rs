//! A handler that has requests answered by the server behind it, and the exchanges with that
//! server: a line with the path, then the body in pieces that begin with a length; see `server.rs`.

use super::{Books, Limits};
use forebay_conn::handler::relay::{RelayNext, RelayRead};
use forebay_conn::*;
use forebay_http::framing::Framing;
use forebay_sys::clock;
use forebay_sys::socket::{self, Received, Sent};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

/// The largest number of bytes that is held for the server.
const UP_BYTES: usize = 64 * 1024;

pub(super) struct Front {
    books: Arc<Mutex<Books>>,
    server: SocketAddr,
    limits: Limits,
}

impl Front {
    pub(super) fn new(books: Arc<Mutex<Books>>, server: SocketAddr, limits: Limits) -> Front {
        Front { books, server, limits }
    }
}

/// An exchange with the server.
pub(super) struct Exchange {
    socket: TcpStream,
    socket_id: SocketId,
    to: Vec<u8>,
    from: Vec<u8>,
    can_read: bool,
    can_write: bool,
    is_finished: bool,
    /// The client has ended a tunnel, and the server has learned it.
    is_closed: bool,
    is_shut: bool,
    /// The head of the answer: its status, and how much of the body is left, if that is known.
    head: Option<(u16, Option<u64>)>,
    failed: Option<u16>,
    is_told: bool,
    has_ended: bool,
    is_broken: bool,
    moved_ms: u64,
    limits: Limits,
}

impl Exchange {
    fn new(server: SocketAddr, path: &str, has_body: bool, limits: Limits) -> Exchange {
        let socket = TcpStream::connect(server).unwrap();
        socket.set_nonblocking(true).unwrap();
        Exchange {
            socket,
            socket_id: SocketId::new(),
            to: format!("{path}\n").into_bytes(),
            from: Vec::new(),
            can_read: true,
            can_write: true,
            is_finished: !has_body,
            is_closed: false,
            is_shut: false,
            head: None,
            failed: None,
            is_told: false,
            has_ended: false,
            is_broken: false,
            moved_ms: clock::coarse_ms(),
            limits,
        }
    }

    fn is_tunnel(&self) -> bool {
        matches!(self.head, Some((101, _)))
    }

    /// Gives the server what it takes.
    fn write(&mut self, now_ms: u64) {
        assert!(self.to.len() <= UP_BYTES + 100, "too much is held");
        while self.can_write && !self.to.is_empty() {
            match socket::send(self.socket.as_fd(), &self.to, false) {
                Sent::Bytes(count) => {
                    self.to.drain(..count);
                    self.moved_ms = now_ms;
                }
                Sent::Blocked => self.can_write = false,
                // the server may have answered before
                Sent::Broken => (self.can_write, self.is_broken) = (false, true),
            }
        }
        if self.to.is_empty() && self.is_closed && self.is_tunnel() && !self.is_shut {
            self.is_shut = true;
            socket::shut_down_writing(self.socket.as_fd());
        }
    }

    /// Takes at most `most` bytes from the server.
    fn receive(&mut self, into: &mut Vec<u8>, most: usize, now_ms: u64) -> RelayRead {
        if self.has_ended {
            return RelayRead::End;
        }
        if !self.can_read {
            return RelayRead::Nothing;
        }
        match socket::receive_more(self.socket.as_fd(), into, most) {
            Received::Bytes(count) => {
                self.moved_ms = now_ms;
                RelayRead::Bytes(count)
            }
            Received::Blocked => {
                self.can_read = false;
                RelayRead::Nothing
            }
            Received::Ended => {
                self.has_ended = true;
                RelayRead::End
            }
            Received::Broken => RelayRead::Broken,
        }
    }
}

impl Relay for Exchange {
    fn takes_body(&self) -> bool {
        true
    }

    fn cut(&mut self) {}

    fn aborts_on_close(&self) -> bool {
        false
    }

    fn socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        let read = !self.can_read && !self.has_ended && self.failed.is_none();
        let wants = Wants { read, write: !self.can_write && !self.to.is_empty() };
        Some((self.socket_id, self.socket.as_fd(), wants))
    }

    fn ready(&mut self) {
        (self.can_read, self.can_write) = (true, !self.is_broken);
    }

    fn capacity(&self) -> usize {
        if self.is_broken { 0 } else { (UP_BYTES).saturating_sub(self.to.len()) }
    }

    fn give(&mut self, bytes: &[u8]) {
        if !self.is_tunnel() {
            self.to.extend((bytes.len() as u32).to_be_bytes());
        }
        self.to.extend_from_slice(bytes);
    }

    fn finish<'t>(&mut self, _: &mut dyn Iterator<Item = (&'t str, &'t [u8])>) {
        if !self.is_tunnel() {
            self.to.extend([0; 4]);
        }
        (self.is_closed, self.is_finished) = (self.is_tunnel(), true);
    }

    fn advance(&mut self, now_ms: u64) -> RelayNext {
        self.write(now_ms);
        while self.head.is_none() && self.failed.is_none() {
            let mut from = std::mem::take(&mut self.from);
            let given = self.receive(&mut from, 1000, now_ms);
            self.from = from;
            if let Some(end) = self.from.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.from.drain(..=end).collect();
                let line = String::from_utf8(line).unwrap();
                let (status, length) = line.trim_end().split_once(' ').unwrap();
                self.head = Some((status.parse().unwrap(), length.parse().ok()));
            }
            match given {
                RelayRead::Bytes(_) => {}
                RelayRead::Nothing => break,
                RelayRead::End | RelayRead::Broken if self.head.is_some() => {}
                RelayRead::End | RelayRead::Broken => self.failed = Some(502),
            }
        }
        let is_there = self.head.is_some() || self.failed.is_some();
        if is_there && !self.is_told { RelayNext::Answer } else { RelayNext::Wait }
    }

    fn length(&self) -> Option<u64> {
        self.head.and_then(|(_, length)| length)
    }

    fn resume(&mut self, now_ms: u64) {
        self.moved_ms = now_ms;
    }

    fn read(&mut self, out: &mut Vec<u8>, most: usize, now_ms: u64) -> RelayRead {
        let count = self.from.len().min(most);
        if count > 0 {
            out.extend(self.from.drain(..count));
            return RelayRead::Bytes(count);
        }
        self.receive(out, most, now_ms)
    }

    fn awaits(&self) -> Await {
        if self.is_told || !self.is_finished { Await::Flow } else { Await::Answer }
    }

    fn deadline_ms(&self) -> u64 {
        let for_ms = match self.awaits() {
            Await::Flow => self.limits.silence_ms,
            _ => self.limits.head_ms,
        };
        self.moved_ms + for_ms
    }

    fn expire(&mut self) {
        self.failed = Some(504);
    }
}

impl HandlerTypes for Front {
    type Body = NoBody;
    type Job = NoJob;
    type Relay = Exchange;
    type Line = u16;
    type Ticket = ();
    type Record = ();
}

impl Handler for Front {
    type Protocol = Http<Front>;
    type Transport = PlainTransport;
}

impl Admission for Front {
    fn verdict(&mut self, request: &Request<'_>, (): &mut ()) -> Verdict<()> {
        self.books.lock().unwrap().judged += 1;
        Verdict::Admit(Admitted::at_once(Rank(request.head.path.len() as u8 % 3), ()))
    }

    fn settle(&mut self, (): &mut (), end: Settled) {
        self.books.lock().unwrap().settled.push(end);
    }
}

impl Process for Front {
    fn decide(&mut self, _: &Request<'_>, (): &mut (), _: Option<NoJob>) -> BodyDecision<NoJob> {
        BodyDecision::Stream(1 << 30)
    }

    fn process(
        &mut self,
        request: &Request<'_>,
        (): &mut (),
        _: Option<NoJob>,
        reply: &mut Reply<'_, NoBody>,
    ) -> ProcessOutcome<NoJob, Exchange> {
        let path = std::str::from_utf8(request.head.path).unwrap();
        if path == "/own" {
            reply.head(200, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n");
            reply.copy(b"own");
            return ProcessOutcome::Replied;
        }
        let has_body = request.head.framing != Framing::None;
        ProcessOutcome::Relay(Exchange::new(self.server, path, has_body, self.limits))
    }

    fn relayed(
        &mut self,
        _: &Request<'_>,
        (): &mut (),
        relay: &mut Exchange,
        reply: &mut Reply<'_, NoBody>,
    ) -> Relayed<NoJob> {
        relay.is_told = true;
        match (relay.failed, relay.head) {
            (None, Some((101, _))) => {
                reply.switch(b"HTTP/1.1 101 Switch\r\nUpgrade: echo\r\n");
                Relayed::Switched
            }
            (None, Some((status, length))) => {
                let head = format!("HTTP/1.1 {status} Up\r\n");
                reply.relayed(status, head.as_bytes(), length, false);
                Relayed::Body
            }
            (failed, _) => {
                self.refuse(failed.unwrap_or(502), "", reply);
                Relayed::Own
            }
        }
    }

    fn refuse(&mut self, status: u16, _: &'static str, reply: &mut Reply<'_, NoBody>) {
        reply.head(status, format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n").as_bytes());
    }
}

impl Bodies for Front {}

impl Journal for Front {
    fn line(&mut self, answered: &Answered<'_, ()>) -> Option<u16> {
        Some(answered.status)
    }

    fn log(&mut self, status: u16, body_bytes: u64) {
        self.books.lock().unwrap().lines.push((status, body_bytes));
    }
}

impl Hooks for Front {}
