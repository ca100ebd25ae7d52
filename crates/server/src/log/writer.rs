//! The thread that writes the access log. It alone waits for disks and pipes.

use super::{Batch, Message, Shared};
use crossbeam_channel::{Receiver, Sender};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a pipe that is full is given to become writable.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// After a failure, how long batches are dropped before the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How often is said that lines are missing.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Of a pipe that is ready, so many bytes can be written without waiting (pipe(7)).
const PIPE_BYTES: usize = 4096;

/// The largest buffer that goes back to the loops; one line may exceed a batch.
const KEPT_BYTES: usize = 128 * 1024;

pub(super) struct Writer {
    file: File,
    /// `None` for standard output.
    path: Option<PathBuf>,
    /// A regular file is written batch by batch; anything else may be a pipe and is written in
    /// pieces that it is known to have room for.
    regular: bool,
    shared: Arc<Shared>,
    return_emptied: Sender<Vec<u8>>,
    /// The last write ended within a line.
    torn: bool,
    /// Nothing is tried before then.
    retry_at: Option<Instant>,
    /// When lack of lines was last spoken of, and how many had been dropped by then.
    said_at: Option<Instant>,
    said_dropped: u64,
}

impl Writer {
    pub(super) fn new(
        file: File,
        path: Option<PathBuf>,
        shared: Arc<Shared>,
        return_emptied: Sender<Vec<u8>>,
    ) -> Writer {
        Writer {
            regular: is_regular(&file),
            file,
            path,
            shared,
            return_emptied,
            torn: false,
            retry_at: None,
            said_at: None,
            said_dropped: 0,
        }
    }

    /// Writes until told to close, or until nobody is left who could send anything.
    pub(super) fn run(mut self, from_loops: &Receiver<Message>) {
        for message in from_loops {
            if self.shared.reopen.swap(false, Ordering::Acquire) {
                self.reopen();
            }
            match message {
                Message::Lines(batch) => self.take(batch),
                Message::Reopen => {}
                Message::Close => return self.say_last(),
            }
        }
    }

    fn take(&mut self, batch: Batch) {
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            self.shared.dropped.fetch_add(batch.lines, Ordering::Relaxed);
        } else {
            match self.write(&batch.bytes) {
                Ok(()) => self.retry_at = None,
                Err((lost, error)) => {
                    self.shared.dropped.fetch_add(lost, Ordering::Relaxed);
                    self.retry_at = Some(Instant::now() + RETRY_AFTER);
                    self.say_missing(Some(&error));
                }
            }
        }
        self.say_missing(None);
        let mut bytes = batch.bytes;
        if bytes.capacity() <= KEPT_BYTES {
            bytes.clear();
            // enough buffers are waiting already: this one is freed
            let _ = self.return_emptied.try_send(bytes);
        }
    }

    /// Writes whole lines. On failure says how many were lost, the torn one included.
    fn write(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        if self.torn {
            // ends the half of a line that is there
            self.write_some(b"\n").map_err(|error| (count(lines), error))?;
            self.torn = false;
        }
        let mut rest = lines;
        while !rest.is_empty() {
            match self.write_some(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) => {
                    let written = &lines[..lines.len() - rest.len()];
                    self.torn = written.last().is_some_and(|byte| *byte != b'\n');
                    return Err((count(rest), error));
                }
            }
        }
        Ok(())
    }

    /// Writes at least one byte.
    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut piece = bytes;
        if !self.regular {
            piece = &bytes[..bytes.len().min(PIPE_BYTES)];
            if !forebay_sys::process::wait_writable(&self.file, STUCK_AFTER)? {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its reader does not read"));
            }
        }
        loop {
            match self.file.write(piece) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => return Ok(written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn reopen(&mut self) {
        let Some(path) = &self.path else { return };
        match forebay_sys::process::open_append(path) {
            Ok(file) => {
                self.regular = is_regular(&file);
                self.file = file;
                (self.torn, self.retry_at) = (false, None);
            }
            Err(error) => {
                say(&format!("{} cannot be reopened, the old file is kept: {error}", self.name()));
            }
        }
    }

    /// Says how many lines are missing that were not spoken of yet.
    fn say_last(&self) {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        if dropped > self.said_dropped {
            let news = dropped - self.said_dropped;
            say(&format!("lines dropped at the end: {news}, since the start: {dropped}."));
        }
    }

    /// Says that lines are missing, if that is news and not said too often.
    fn say_missing(&mut self, error: Option<&io::Error>) {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        let recently = self.said_at.is_some_and(|at| at.elapsed() < SAY_EVERY);
        if dropped == self.said_dropped || recently {
            return;
        }
        let reason = match error {
            Some(error) => format!("{} cannot be written: {error}; trying again", self.name()),
            // an attempt is due only later: the reason was said, or will be
            None if self.retry_at.is_some() => return,
            None => format!("{} is written too slowly, or was for a while", self.name()),
        };
        let news = dropped - self.said_dropped;
        say(&format!("{reason}. Lines dropped: {news}, since the start: {dropped}."));
        (self.said_at, self.said_dropped) = (Some(Instant::now()), dropped);
    }

    fn name(&self) -> String {
        match &self.path {
            Some(path) => format!("{path:?}"),
            None => "standard output".to_owned(),
        }
    }
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

fn say(text: &str) {
    // there is nobody left to tell if this fails
    let _ = writeln!(io::stderr(), "forebay: access log: {text}");
}
