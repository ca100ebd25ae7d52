//! The messages between a successor and the command that starts it, through a socket that is the
//! successor's standard input.
//!
//! The command may be ended while it waits, by its caller or by a service manager that waits no
//! longer. Then nothing may change, so the successor asks the command before it accepts
//! connections. By then the successor is an orphan: its parent is the service manager, which can
//! supervise only such a process properly.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// How long the command may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The successor's first message, which the command answers.
const PREPARED: &str = "prepared\n";
/// The command's answer to [`PREPARED`].
const GO: &str = "go\n";
/// The successor's message that it serves.
const SERVES: &str = "serves\n";
/// The successor's message that it has failed; the exit code follows, and the reason on the next lines.
const FAILED: &str = "failed ";

/// The command that has started this process.
#[derive(Clone, Debug)]
pub struct StartingCommand(Arc<UnixStream>);

impl StartingCommand {
    /// The command at the other end of this socket.
    pub fn new(socket: OwnedFd) -> StartingCommand {
        StartingCommand(Arc::new(UnixStream::from(socket)))
    }

    /// Reports that all is ready, and waits for the command's consent.
    ///
    /// # Errors
    /// When the command has gone, or does not answer.
    pub fn agrees(&self) -> io::Result<()> {
        let mut socket = &*self.0;
        socket.set_read_timeout(Some(PATIENCE))?;
        let has_gone = || io::Error::other("it was ended before this server was ready");
        socket.write_all(PREPARED.as_bytes()).map_err(|_| has_gone())?;
        let mut answer = [0; GO.len()];
        socket.read_exact(&mut answer).map_err(|_| has_gone())?;
        match answer == *GO.as_bytes() {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Reports that clients are served.
    pub fn serves(&self) {
        // the command may have been ended
        let _ = (&*self.0).write_all(SERVES.as_bytes());
    }

    /// Reports that this process will not serve, and why.
    pub fn failed(&self, code: u8, why: &str) {
        // as above
        let _ = (&*self.0).write_all(format!("{FAILED}{code}\n{why}").as_bytes());
    }
}

/// The successor, from the side of the command that has started it.
#[derive(Debug)]
pub struct StartedSuccessor(UnixStream);

/// What has become of a successor.
#[derive(Debug, PartialEq, Eq)]
pub enum SuccessorFate {
    /// The successor serves.
    Serves,
    /// The successor has ended, and has said why.
    Failed {
        /// The exit code.
        code: u8,
        /// The reason.
        why: String,
    },
    /// The successor has ended without a message.
    Ended,
}

impl StartedSuccessor {
    /// The two ends of the socket.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn pair() -> io::Result<(StartedSuccessor, OwnedFd)> {
        let (hears, tells) = UnixStream::pair()?;
        Ok((StartedSuccessor(hears), tells.into()))
    }

    /// Waits until the successor serves or has ended. By then it is not a child of this process any more.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn wait(self) -> io::Result<SuccessorFate> {
        let mut lines = BufReader::new(&self.0);
        loop {
            let mut line = String::new();
            // a process that ends with unread bytes resets the connection, which reads as an error
            if lines.read_line(&mut line).unwrap_or(0) == 0 {
                return Ok(SuccessorFate::Ended);
            }
            match line.as_str() {
                PREPARED => (&self.0).write_all(GO.as_bytes())?,
                SERVES => return Ok(SuccessorFate::Serves),
                _ => {
                    let code =
                        line.strip_prefix(FAILED).and_then(|code| code.trim_end().parse().ok());
                    let Some(code) = code else { continue };
                    let mut why = String::new();
                    lines.read_to_string(&mut why)?;
                    return Ok(SuccessorFate::Failed { code, why });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_successor_goes_on_if_the_command_is_there() {
        let (started, socket) = StartedSuccessor::pair().unwrap();
        let command = StartingCommand::new(socket);
        let hears = thread::spawn(move || started.wait().unwrap());
        command.agrees().unwrap();
        command.serves();
        assert_eq!(hears.join().unwrap(), SuccessorFate::Serves);
        let (started, socket) = StartedSuccessor::pair().unwrap();
        drop(started);
        let why = StartingCommand::new(socket).agrees().unwrap_err().to_string();
        assert_eq!(why, "it was ended before this server was ready");
    }

    #[test]
    fn a_successor_that_ends_says_why() {
        let (started, socket) = StartedSuccessor::pair().unwrap();
        StartingCommand::new(socket).failed(78, "a.toml: no\nand no");
        let failed = SuccessorFate::Failed { code: 78, why: "a.toml: no\nand no".to_owned() };
        assert_eq!(started.wait().unwrap(), failed);
        let (started, socket) = StartedSuccessor::pair().unwrap();
        drop(socket);
        assert_eq!(started.wait().unwrap(), SuccessorFate::Ended);
    }
}
