//! Pings of a [link](crate::link) over HTTP/1.1: a connection of its own, one request that its server
//! answers at once, and the status is the answer. They wait for others, so a thread of its own does it.

use crate::application::Application;
use crate::exchange::ATTEMPT;
use crate::link::Ping;
use crate::settings::upstream_address::UpstreamAddress;
use forebay_sys::client;
use forebay_sys::poll::{self, PollInterest};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long is waited at a time, in milliseconds: what is due is known late by no more.
const REST_MS: u64 = 50;
/// An answer is read as far as its status.
const STATUS_BYTES: usize = 12;

/// Pings that wait for their answers.
#[derive(Debug, Default)]
pub struct Pings {
    open: Vec<OpenPing>,
}

#[derive(Debug)]
struct OpenPing {
    ping: Ping,
    /// It behaves as one of TCP does.
    socket: TcpStream,
    has_asked: bool,
    heard: Vec<u8>,
}

impl Pings {
    /// Does what is due for the link to `stage`, and waits a moment for what is not. `now_ms` reads the
    /// clock of requests.
    pub fn run(&mut self, stage: &Application, now_ms: impl Fn() -> u64) {
        let now = now_ms();
        while let Some(ping) = stage.link().and_then(|mut link| link.ping(now)) {
            // one that was given up is closed
            self.open.retain(|one| one.ping.instance != ping.instance);
            let begun = stage.connect(ping.instance, &[], false, now);
            match begun.and_then(|connection| connection.as_fd().try_clone_to_owned()) {
                Ok(socket) => self.open.push(OpenPing::new(ping, socket)),
                // of the process that connects, and not of the instance
                Err(error) if error.raw_os_error().is_none() || client::is_lack(&error) => {
                    if let Some(mut link) = stage.link() {
                        link.not_asked(ping, now);
                    }
                }
                Err(error) if stage.is_own() && has_no_listener(&error) => {
                    if let Some(mut link) = stage.link() {
                        link.takes_nothing(ping, now);
                    }
                }
                Err(_) => tell(stage, ping, false, now),
            }
        }
        let waits = self.open.iter().map(|one| (one.socket.as_fd(), one.waits()));
        // without memory for it nothing is waited for
        let _ = poll::wait_any(&waits.collect::<Vec<_>>(), REST_MS);
        let now = now_ms();
        self.open.retain_mut(|one| match one.go_on() {
            Ok(false) => true,
            Ok(true) => {
                tell(stage, one.ping, true, now);
                false
            }
            Err(_) => {
                tell(stage, one.ping, false, now);
                false
            }
        });
    }
}

/// Whether a server answers a ping within this time.
pub fn answers(to: &UpstreamAddress, patience: Duration) -> bool {
    let Ok(socket) = to.connect() else { return false };
    let mut open = OpenPing::new(Ping { instance: 0, number: 0 }, socket);
    let end = Instant::now() + patience;
    loop {
        match open.go_on() {
            Ok(true) => return true,
            Ok(false) => {}
            Err(_) => return false,
        }
        let left = end.saturating_duration_since(Instant::now());
        let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        if left == 0 || poll::wait([(open.socket.as_fd(), open.waits())], left).is_err() {
            return false;
        }
    }
}

fn tell(stage: &Application, ping: Ping, is_there: bool, now_ms: u64) {
    if let Some(mut link) = stage.link() {
        link.pong(ping, is_there, now_ms);
    }
}

impl OpenPing {
    fn new(ping: Ping, socket: OwnedFd) -> OpenPing {
        OpenPing { ping, socket: TcpStream::from(socket), has_asked: false, heard: Vec::new() }
    }

    fn waits(&self) -> PollInterest {
        if self.has_asked { PollInterest::Read } else { PollInterest::Write }
    }

    /// Whether the answer has come.
    fn go_on(&mut self) -> io::Result<bool> {
        if !self.has_asked {
            let text = format!(
                "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n{ATTEMPT}: 0\r\nConnection: close\r\n\r\n"
            );
            match self.socket.write(text.as_bytes()) {
                // it is short: a socket that takes some of it takes all
                Ok(count) if count == text.len() => self.has_asked = true,
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if is_early(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        let mut buffer = [0; STATUS_BYTES];
        match self.socket.read(&mut buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.heard.extend_from_slice(&buffer[..count]);
                Ok(self.heard.len() >= STATUS_BYTES && self.heard.starts_with(b"HTTP/1."))
            }
            Err(error) if is_early(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A Unix socket that is no more listened at.
fn has_no_listener(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

/// Nothing is there yet.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected)
}
