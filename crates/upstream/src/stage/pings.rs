//! Pings of a [link](crate::link) over HTTP/1.1: a connection of its own, one request that the server
//! answers at once, and the status is the answer. Pings wait for others, so they have a thread of
//! their own.

use crate::application::Application;
use crate::exchange::ATTEMPT;
use crate::link::Ping;
use crate::settings::upstream_address::UpstreamAddress;
use crate::stage::CONFIGURATION;
use crate::upstreams::UpstreamTlsFiles;
use crate::upstreams::addresses::UpstreamAddresses;
use crate::upstreams::clients::UpstreamClients;
use crate::upstreams::connection::UpstreamConnection;
use crate::upstreams::stream::ConnectError;
use forebay_sys::client;
use forebay_sys::poll::{self, PollInterest};
use forebay_sys::socket::{Received, Sent};
use forebay_tls::TlsFault;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long the thread waits at a time, in milliseconds: a new ping is late by no more than this.
const REST_MS: u64 = 50;
/// How much of an answer must be read: up to its status.
const STATUS_BYTES: usize = 12;
/// How much of the answer's head is read at most.
const HEAD_BYTES: usize = 4096;
/// The longest configuration that an answer may name.
const SAID_BYTES: usize = 64;

/// Pings that wait for their answers.
#[derive(Debug, Default)]
pub struct Pings {
    open: Vec<OpenPing>,
}

#[derive(Debug)]
struct OpenPing {
    ping: Ping,
    connection: UpstreamConnection,
    has_asked: bool,
    heard: Vec<u8>,
}

impl Pings {
    /// Sends the pings that are due for the link to `stage`, and waits a moment for answers. `now_ms`
    /// reads the clock of requests.
    pub fn run(&mut self, stage: &Application, now_ms: impl Fn() -> u64) {
        let now = now_ms();
        while let Some(ping) = stage.link().and_then(|mut link| link.ping(now)) {
            // an older ping to the same instance was given up
            self.open.retain(|one| one.ping.instance != ping.instance);
            let begun = stage.connect(ping.instance, &[], false, now);
            match begun {
                Ok(connection) => self.open.push(OpenPing::new(ping, connection)),
                // the process that connects has failed, and not the instance
                Err(error) if error.raw_os_error().is_none() || client::is_lack(&error) => {
                    if let Some(mut link) = stage.link() {
                        link.not_asked(ping, now);
                    }
                }
                Err(error) if stage.is_own(ping.instance) && has_no_listener(&error) => {
                    if let Some(mut link) = stage.link() {
                        link.takes_nothing(ping, now);
                    }
                }
                Err(_) => tell(stage, ping, false, now),
            }
        }
        let waits = self.open.iter().map(|one| (one.connection.as_fd(), one.waits()));
        // if there is no memory to poll, the thread does not wait
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

/// The answer of an instance to a ping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PingAnswer {
    /// The status of the answer.
    pub status: u16,
    /// The version and configuration of the server, if it names them.
    pub configuration: Option<String>,
}

/// Why a ping has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PingFailure {
    /// There is no connection, or no answer in time.
    Silent,
    /// The TLS handshake has failed.
    Tls(TlsFault),
}

/// Asks a server once whether it lives, through TLS if there are `files` for that. Names are looked
/// up, which may take longer than `patience`.
///
/// # Errors
/// Why the server has not answered.
pub fn ask(
    to: &UpstreamAddress,
    files: Option<&UpstreamTlsFiles>,
    patience: Duration,
) -> Result<PingAnswer, PingFailure> {
    let connect = || -> io::Result<UpstreamConnection> {
        let addresses = UpstreamAddresses::new(to.clone());
        addresses.look_up();
        let connection = addresses.connect(&[], 0)?;
        let Some(files) = files else { return Ok(connection) };
        let clients = UpstreamClients::default();
        clients.set(files, std::iter::once(to)).map_err(io::Error::other)?;
        clients.begin(0, false, connection)
    };
    let connection = connect().map_err(|_| PingFailure::Silent)?;
    let mut open = OpenPing::new(Ping { instance: 0, number: 0 }, connection);
    let end = Instant::now() + patience;
    loop {
        match open.go_on() {
            Ok(true) if open.is_whole() => return Ok(open.answer()),
            Ok(_) => {}
            Err(ConnectError::Tls(fault)) => return Err(PingFailure::Tls(fault)),
            // what has come is enough: the server lives
            Err(ConnectError::Socket(_)) if open.is_answered() => return Ok(open.answer()),
            Err(ConnectError::Socket(_)) => return Err(PingFailure::Silent),
        }
        let left = end.saturating_duration_since(Instant::now());
        let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        if left == 0 || poll::wait([(open.connection.as_fd(), open.waits())], left).is_err() {
            return match open.is_answered() {
                true => Ok(open.answer()),
                false => Err(PingFailure::Silent),
            };
        }
    }
}

fn tell(stage: &Application, ping: Ping, is_there: bool, now_ms: u64) {
    if let Some(mut link) = stage.link() {
        link.pong(ping, is_there, now_ms);
    }
}

impl OpenPing {
    fn new(ping: Ping, connection: UpstreamConnection) -> OpenPing {
        OpenPing { ping, connection, has_asked: false, heard: Vec::new() }
    }

    fn waits(&self) -> PollInterest {
        let reads = match self.has_asked {
            true => !self.connection.has_unsent(),
            false => self.connection.wants_to_connect().read,
        };
        if reads { PollInterest::Read } else { PollInterest::Write }
    }

    /// Whether a server has answered.
    fn is_answered(&self) -> bool {
        self.heard.len() >= STATUS_BYTES && self.heard.starts_with(b"HTTP/1.")
    }

    /// Whether the head of the answer is complete.
    fn is_whole(&self) -> bool {
        self.heard.windows(4).any(|end| end == b"\r\n\r\n") || self.heard.len() >= HEAD_BYTES
    }

    /// The answer, as far as its head has come.
    fn answer(&self) -> PingAnswer {
        let text = String::from_utf8_lossy(&self.heard);
        let fields = text.lines().filter_map(|line| line.split_once(": "));
        let mut fields = fields.filter(|(name, _)| name.eq_ignore_ascii_case(CONFIGURATION));
        let said = fields.next().map(|(_, value)| value).filter(|value| is_printable(value));
        // "HTTP/1.1 200"
        let status = text.get(9..STATUS_BYTES).and_then(|status| status.parse().ok());
        PingAnswer { status: status.unwrap_or(0), configuration: said.map(str::to_owned) }
    }

    /// Whether the answer has come.
    fn go_on(&mut self) -> Result<bool, ConnectError> {
        if !self.has_asked {
            let text = format!(
                "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n{ATTEMPT}: 0\r\nConnection: close\r\n\r\n"
            );
            match self.connection.begin(text.as_bytes(), true) {
                // the request is short: a socket that takes some of it takes all
                Ok(Sent::Bytes(count)) if count == text.len() => self.has_asked = true,
                Ok(Sent::Bytes(_)) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(Sent::Blocked) => return Ok(false),
                Ok(Sent::Broken) => return Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
                Err(ConnectError::Socket(error)) if error.kind() == io::ErrorKind::NotConnected => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        if self.connection.has_unsent() {
            self.connection.send(&[], true);
        }
        match self.connection.receive_more(&mut self.heard, HEAD_BYTES, 0) {
            Received::Bytes(_) => Ok(self.is_answered()),
            Received::Blocked => Ok(false),
            Received::Ended | Received::Broken => Err(match self.connection.fault() {
                Some(fault) => ConnectError::Tls(fault),
                None => io::Error::from(io::ErrorKind::UnexpectedEof).into(),
            }),
        }
    }
}

/// Whether a text may be shown on a terminal: a server may send anything.
fn is_printable(said: &str) -> bool {
    said.len() <= SAID_BYTES && said.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Whether no process listens at the Unix socket any more.
fn has_no_listener(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}
