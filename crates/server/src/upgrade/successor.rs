//! The predecessor's end of the connection: it hands over what it has, and once the successor
//! serves, reports each second which connections are left.

use super::handed::{self, Handed, LastWords, NewServer, OpenConnections};
use crossbeam_channel::{Sender, bounded};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How often the open connections are reported.
const EVERY: Duration = Duration::from_secs(1);

/// The line that says that this server accepts no more, and that the service manager knows the successor.
pub(super) const LEFT: &str = "left\n";

/// The longest line of a successor; it may list many addresses.
const MOST_LINE_BYTES: usize = 1 << 20;

/// How long this server waits for loops that still accept: each leaves its listeners at its next turn.
const LEAVES: Duration = Duration::from_secs(1);

/// The interval at which the loops are asked.
const LOOK: Duration = Duration::from_millis(1);

/// How long a successor may take until it serves: it reads certificates and opens roots, but fills no cache.
const RISES: Duration = Duration::from_secs(300);

/// A message of a successor, or the confirmation that one was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuccessorSays {
    /// The successor serves. The answer is the last state of this server.
    Serves(NewServer),
    /// The answer was sent: from now on the successor alone accepts.
    WasTold(NewServer),
    /// Open the log files again: they were moved.
    ReopenLogs,
    /// Bring what is left to its end.
    End,
    /// Cut what is left.
    Stop,
}

/// An event at the connection to the successor.
#[derive(Debug)]
pub enum SuccessorEvent {
    /// A message, or a confirmation; [`SuccessorSays::Serves`] must be answered on the channel.
    Says(SuccessorSays, Sender<LastWords>),
    /// The successor has ended, or given up, before it served.
    Failed(io::Error),
    /// The successor has ended.
    Ended,
}

/// Hands over to a successor on a thread of its own. `tell` gets each event, `open` returns the open
/// connections, and `is_leaving` whether a loop that must leave its listeners may still accept.
///
/// # Errors
/// Lack of threads.
pub fn start(
    stream: UnixStream,
    handed: Handed,
    descriptors: Vec<OwnedFd>,
    open: impl Fn() -> OpenConnections + Send + 'static,
    is_leaving: impl Fn() -> bool + Send + 'static,
    tell: impl Fn(SuccessorEvent) -> bool + Send + 'static,
) -> io::Result<()> {
    let serve = move || {
        let says = |said| {
            let (words, told) = bounded(1);
            tell(SuccessorEvent::Says(said, words)).then(|| told.recv().ok()).flatten()
        };
        let ended = serve(stream, &handed, descriptors, open, is_leaving, says);
        tell(ended.map_or_else(SuccessorEvent::Failed, |()| SuccessorEvent::Ended));
    };
    std::thread::Builder::new().name("successor".to_owned()).spawn(serve).map(drop)
}

/// Hands over, and receives the successor's messages; returns when the successor has gone. What
/// `tell` returns when the successor serves is this server's last state; once that is sent, this
/// server may end at any time.
///
/// # Errors
/// When the successor has gone before it serves. Nothing may change then.
fn serve(
    stream: UnixStream,
    handed: &Handed,
    descriptors: Vec<OwnedFd>,
    open: impl Fn() -> OpenConnections,
    is_leaving: impl Fn() -> bool,
    tell: impl Fn(SuccessorSays) -> Option<LastWords>,
) -> io::Result<()> {
    let mut stream = stream;
    stream.set_write_timeout(Some(RISES))?;
    stream.write_all(b"0\n")?;
    handed::send(&stream, handed)?;
    handed::give(&stream, &descriptors)?;
    // otherwise a socket that this server closes would stay open through its duplicate
    drop(descriptors);
    stream.set_read_timeout(Some(RISES))?;
    let mut line = Vec::new();
    let Heard::Line(SuccessorSays::Serves(new)) = hear(&mut stream, &mut line)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let words = tell(SuccessorSays::Serves(new.clone())).ok_or(io::ErrorKind::BrokenPipe)?;
    handed::send(&stream, &words)?;
    if words.keeps_place.is_some() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    tell(SuccessorSays::WasTold(new));
    // so that a client that connects after the upgrade reaches the new server, even if a loop of
    // this one has its next turn late
    wait_until_left(is_leaving);
    stream.write_all(LEFT.as_bytes())?;
    stream.set_read_timeout(Some(EVERY))?;
    loop {
        match hear(&mut stream, &mut line) {
            Ok(Heard::Line(said)) => drop(tell(said)),
            // one write for the whole line: two processes may read from this socket
            Ok(Heard::Nothing) => {
                let line = format!("{}\n", serde_json::to_string(&open())?);
                if stream.write_all(line.as_bytes()).is_err() {
                    return Ok(());
                }
            }
            // a later version may send messages that this one does not know
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
            // the successor has ended, and this server goes on with its connections
            Err(_) => return Ok(()),
        }
    }
}

/// Waits until no loop accepts any more, for a second at most.
pub fn wait_until_left(is_leaving: impl Fn() -> bool) {
    let until = Instant::now() + LEAVES;
    while is_leaving() && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Line(SuccessorSays),
    Nothing,
}

fn parse(line: &[u8]) -> Option<SuccessorSays> {
    match line {
        b"reopen" => Some(SuccessorSays::ReopenLogs),
        b"end" => Some(SuccessorSays::End),
        b"stop" => Some(SuccessorSays::Stop),
        _ => {
            let new = serde_json::from_slice(line.strip_prefix(b"serves ")?);
            new.ok().map(SuccessorSays::Serves)
        }
    }
}

/// The next line, or nothing if the read times out.
fn hear(stream: &mut UnixStream, line: &mut Vec<u8>) -> io::Result<Heard> {
    loop {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if byte == *b"\n" => {
                let line = std::mem::take(line);
                return parse(&line).map(Heard::Line).ok_or(io::ErrorKind::InvalidData.into());
            }
            Ok(_) if line.len() > MOST_LINE_BYTES => return Err(io::ErrorKind::InvalidData.into()),
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                return Ok(Heard::Nothing);
            }
            Err(error) => return Err(error),
        }
    }
}
