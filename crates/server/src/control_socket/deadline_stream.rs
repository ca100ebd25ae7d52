//! A connection with one deadline for all that is read and written.

use crate::command::CommandAnswer;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connection with a deadline for all that is read and written, not for each piece of it.
pub(super) struct DeadlineStream {
    pub(super) stream: UnixStream,
    deadline: Instant,
}

impl DeadlineStream {
    pub(super) fn new(stream: UnixStream, patience: Duration) -> DeadlineStream {
        DeadlineStream { stream, deadline: Instant::now() + patience }
    }

    /// From now on there is so much time.
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

/// Whether something was not there in time.
pub(super) fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
