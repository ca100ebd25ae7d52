//! A connection with one deadline for all its reads and writes.

use crate::command::CommandAnswer;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connection with one deadline for all its reads and writes together, not one for each.
pub(super) struct DeadlineStream {
    pub(super) stream: UnixStream,
    deadline: Instant,
}

impl DeadlineStream {
    pub(super) fn new(stream: UnixStream, patience: Duration) -> DeadlineStream {
        DeadlineStream { stream, deadline: Instant::now() + patience }
    }

    /// Sets the deadline anew, `patience` from now.
    pub(super) fn extend(&mut self, patience: Duration) {
        self.deadline = Instant::now() + patience;
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        match self.deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }

    pub(super) fn answer(
        &mut self,
        CommandAnswer { code, text }: &CommandAnswer,
    ) -> io::Result<()> {
        self.write_all(format!("{code}\n{text}").as_bytes())
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(piece)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether an error means that the deadline has passed.
pub(super) fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
