//! The floor: the least a static answer over TCP can cost a user-space server on this kernel.
//!
//! Edge-triggered epoll, one listening socket, per request one read and one write of bytes baked at
//! start. The program parses nothing and knows no files: all that a real server costs more than
//! this is its own. The head has the fields of Forebay's answers, so that both send the same bytes.
#![forbid(unsafe_code)]

use clap::{Parser, ValueEnum};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags, sockopt};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, SystemTime};

/// Event data of the listening socket; connections use their slot's number.
const LISTENER: u64 = u64::MAX;
/// A batch of 16 pipelined requests of wrk has under 2 KB.
const READ_BYTES: usize = 16 * 1024;
const EVENTS: usize = 256;

/// Answers everything it reads with the same bytes.
#[derive(Parser)]
struct Options {
    /// Port to listen on, on 127.0.0.1.
    #[arg(long)]
    port: u16,
    /// Bytes of the body.
    #[arg(long, default_value_t = 1024)]
    body_bytes: usize,
    /// Answers per read: how many requests the client sends at once.
    #[arg(long, default_value_t = 1)]
    pipelined: usize,
    /// Say `Connection: close` and close after each answer.
    #[arg(long)]
    close: bool,
    /// What is answered.
    #[arg(long, value_enum, default_value_t = StatusChoice::Ok)]
    status: StatusChoice,
}

/// The two answers a static server gives.
#[derive(Clone, Copy, ValueEnum)]
enum StatusChoice {
    /// 200 with the body
    #[value(name = "200")]
    Ok,
    /// 304 without it
    #[value(name = "304")]
    NotModified,
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))?;
    listener.set_nonblocking(true)?;
    // Accepted sockets inherit it.
    sockopt::set_tcp_nodelay(&listener, true)?;
    Server::new(listener, &options)?.run()
}

/// The bytes sent for one read.
fn answer(options: &Options) -> Vec<u8> {
    let now = SystemTime::now();
    let date = httpdate::fmt_http_date(now);
    let modified = httpdate::fmt_http_date(now - Duration::from_secs(86_400));
    let etag = "\"18c2f0a1b3d-400-65b2c7f0\"";
    let close = if options.close { "Connection: close\r\n" } else { "" };
    let length = options.body_bytes;
    let mut one = match options.status {
        StatusChoice::Ok => format!(
            "HTTP/1.1 200 OK\r\nServer: Forebay\r\nContent-Type: text/html; charset=utf-8\r\n\
             Content-Length: {length}\r\nLast-Modified: {modified}\r\nETag: {etag}\r\n\
             Accept-Ranges: bytes\r\nDate: {date}\r\n{close}\r\n"
        ),
        StatusChoice::NotModified => format!(
            "HTTP/1.1 304 Not Modified\r\nServer: Forebay\r\nETag: {etag}\r\nDate: {date}\r\n\
             {close}\r\n"
        ),
    }
    .into_bytes();
    if matches!(options.status, StatusChoice::Ok) {
        one.resize(one.len() + length, b'f');
    }
    one.repeat(options.pipelined)
}

/// One connection.
struct LimitConnection {
    socket: OwnedFd,
    /// Bytes of the answer that are still to be sent; 0 while none is under way.
    unsent: usize,
    /// Whether the kernel reported bytes that were not read yet.
    readable: bool,
    /// Whether the client will send no more.
    ended: bool,
    /// The events that epoll reports for the connection; none before the first wait.
    interest: EventFlags,
}

/// Whether a connection goes on.
#[derive(PartialEq, Eq)]
enum AfterTurn {
    Wait,
    Close,
}

/// The loop and everything it owns.
struct Server {
    epoll: OwnedFd,
    listener: TcpListener,
    clients: Vec<Option<LimitConnection>>,
    free: Vec<usize>,
    answer: Vec<u8>,
    close: bool,
    input: Box<[u8; READ_BYTES]>,
}

impl Server {
    fn new(listener: TcpListener, options: &Options) -> io::Result<Server> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let data = EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, EventFlags::IN | EventFlags::ET)?;
        Ok(Server {
            epoll,
            listener,
            clients: Vec::new(),
            free: Vec::new(),
            answer: answer(options),
            close: options.close,
            input: Box::new([0; READ_BYTES]),
        })
    }

    /// One epoll_wait per batch of events, for ever.
    fn run(mut self) -> io::Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        loop {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    slot => self.serve(slot as usize, event.flags)?,
                }
            }
        }
    }

    /// Takes every connection that waits. The first read is tried at once: on a busy server the
    /// request is already there, and a connection that is closed right away never enters epoll.
    fn accept(&mut self) -> io::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            let socket = match net::accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::CONNABORTED) => continue,
                Err(error) => return Err(error.into()),
            };
            let client = LimitConnection {
                socket,
                unsent: 0,
                readable: true,
                ended: false,
                interest: EventFlags::empty(),
            };
            let slot = match self.free.pop() {
                Some(slot) => {
                    self.clients[slot] = Some(client);
                    slot
                }
                None => {
                    self.clients.push(Some(client));
                    self.clients.len() - 1
                }
            };
            self.serve(slot, EventFlags::empty())?;
        }
    }

    /// Does what an event allows on one connection.
    fn serve(&mut self, slot: usize, event: EventFlags) -> io::Result<()> {
        let Some(client) = &mut self.clients[slot] else { return Ok(()) };
        client.readable |= event.contains(EventFlags::IN);
        client.ended |= event.contains(EventFlags::RDHUP);
        let broken = event.intersects(EventFlags::ERR | EventFlags::HUP);
        let next = if broken {
            AfterTurn::Close
        } else {
            client.turn(&mut self.input[..], &self.answer, self.close)
        };
        if next == AfterTurn::Close {
            self.clients[slot] = None;
            self.free.push(slot);
            return Ok(());
        }
        client.watch(self.epoll.as_fd(), slot as u64)
    }
}

impl LimitConnection {
    /// Sends what is under way, then reads once and answers, while there is something to read.
    fn turn(&mut self, input: &mut [u8], answer: &[u8], close: bool) -> AfterTurn {
        loop {
            if self.unsent > 0 {
                match self.send(answer) {
                    Ok(()) if self.unsent > 0 => return AfterTurn::Wait,
                    Ok(()) if close => return AfterTurn::Close,
                    Ok(()) => {}
                    Err(_) => return AfterTurn::Close,
                }
            }
            if !self.readable {
                return if self.ended { AfterTurn::Close } else { AfterTurn::Wait };
            }
            match net::recv(&self.socket, &mut *input, RecvFlags::empty()) {
                Ok((0, _)) => return AfterTurn::Close,
                Ok((count, _)) => {
                    // A short read emptied the socket: the next bytes raise a new edge.
                    self.readable = count == input.len();
                    self.unsent = answer.len();
                }
                Err(Errno::AGAIN) => self.readable = false,
                Err(_) => return AfterTurn::Close,
            }
        }
    }

    /// One write, as much as the socket takes. A short one means its buffer is full.
    fn send(&mut self, answer: &[u8]) -> Result<(), Errno> {
        let rest = &answer[answer.len() - self.unsent..];
        match net::send(&self.socket, rest, SendFlags::NOSIGNAL) {
            Ok(count) => self.unsent -= count,
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Sets the events that epoll reports; most connections need one call in their life. Write
    /// readiness is asked for from the first short write on, and each later one raises its own
    /// edge.
    fn watch(&mut self, epoll: rustix::fd::BorrowedFd<'_>, slot: u64) -> io::Result<()> {
        let wanted = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(slot);
        if self.interest.is_empty() {
            let out = if self.unsent > 0 { EventFlags::OUT } else { EventFlags::empty() };
            self.interest = wanted | out;
            epoll::add(epoll, &self.socket, data, self.interest)?;
        } else if self.unsent > 0 && !self.interest.contains(EventFlags::OUT) {
            self.interest = wanted | EventFlags::OUT;
            epoll::modify(epoll, &self.socket, data, self.interest)?;
        }
        Ok(())
    }
}
