//! The predecessor's end: it hands over what it has, and once the other serves says each second which
//! connections are left.

use super::handed::{self, Handed, LastWords, NewServer, OpenConnections};
use crossbeam_channel::{Sender, bounded};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How often is said which connections there are.
const EVERY: Duration = Duration::from_secs(1);

/// What is said once this server accepts no more, and the service manager knows the other.
pub(super) const LEFT: &str = "left\n";

/// The longest line, with many addresses.
const MOST_LINE_BYTES: usize = 1 << 20;

/// How long is waited for loops that still accept: each leaves at its next turn.
const LEAVES: Duration = Duration::from_secs(1);

/// Between two looks whether they have left.
const LOOK: Duration = Duration::from_millis(1);

/// How long a successor may take until it serves: it reads certificates, opens roots and fills nothing.
const RISES: Duration = Duration::from_secs(300);

/// What a successor has said, or has been told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuccessorSays {
    /// It serves. What this server knows last is to be answered.
    Serves(NewServer),
    /// It was told that: from now on it is alone in accepting.
    WasTold(NewServer),
    /// Log files were moved.
    ReopenLogs,
    /// What is left is to come to its end.
    End,
    /// What is left is cut.
    Stop,
}

/// What a server hears of its successor.
#[derive(Debug)]
pub enum SuccessorEvent {
    /// It has said something, or was told; to be answered if it serves.
    Says(SuccessorSays, Sender<LastWords>),
    /// It has ended, or given up, before it served.
    Failed(io::Error),
    /// It has ended.
    Ended,
}

/// Hands over to a successor on a thread of its own. `tell` hears of it; `open` says which connections there are, and
/// `is_leaving` whether a loop that was told to leave its listeners may still accept.
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

/// Hands over, and hears what the successor says; returns when it has gone. What `tell` returns when it serves are the
/// last words; once they are sent, this server may end at any time.
///
/// # Errors
/// When the successor has gone before it serves: nothing is to be changed.
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
    // what this server closes is to be closed
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
    // whoever asks once the upgrade is done is answered by the new server, however late a loop of this one has its turn
    wait_until_left(is_leaving);
    stream.write_all(LEFT.as_bytes())?;
    stream.set_read_timeout(Some(EVERY))?;
    loop {
        match hear(&mut stream, &mut line) {
            Ok(Heard::Line(said)) => drop(tell(said)),
            // in one piece: two processes may read
            Ok(Heard::Nothing) => {
                let line = format!("{}\n", serde_json::to_string(&open())?);
                if stream.write_all(line.as_bytes()).is_err() {
                    return Ok(());
                }
            }
            // a later version may say more
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
            // it has ended, and this server goes on with what it has
            Err(_) => return Ok(()),
        }
    }
}

/// Waits for loops that still accept, for a second at most.
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

/// The next line, or nothing in the time that there is.
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
