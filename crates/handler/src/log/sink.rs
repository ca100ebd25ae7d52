//! One file, pipe or standard output that lines go to. Loops count the lines that they drop in it;
//! everything else here is done by the writer, which alone waits for disks.

use super::{LogError, LogSettings};
use forebay_config::AccessLog;
use forebay_sys::{file, process};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// After a failure, how long lines are dropped before the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The time between two messages that lines are missing.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// How many bytes a pipe that is ready takes without blocking (pipe(7)).
const PIPE_BYTES: usize = 4096;

/// Bytes that may wait for the reader of a pipe. More are dropped.
const WAITING_BYTES: usize = 1024 * 1024;

/// The destination of lines.
#[derive(Debug)]
pub(crate) struct Sink {
    access: AccessLog,
    dropped: AtomicU64,
    /// The number of lines dropped by all sinks.
    dropped_by_all: Arc<AtomicU64>,
    /// The state of the sink; only the writer locks it.
    state: Mutex<SinkState>,
}

/// A name in a directory that is kept open, so that the file can be opened again even if the process may
/// no longer search the path to it.
#[derive(Debug)]
struct WritePlace {
    directory: OwnedFd,
    name: OsString,
}

impl WritePlace {
    fn open(&self) -> io::Result<File> {
        process::open_append(self.directory.as_fd(), &self.name)
    }

    /// Whether another directory is at this path now. The process may be allowed to see it, but not to
    /// write in it.
    fn is_replaced(&self, path: &Path) -> bool {
        let states = (file::stamp(self.directory.as_fd()), file::stamp_of(directory_of(path)));
        let (Ok(kept), Ok(there)) = states else { return false };
        (kept.device, kept.inode) != (there.device, there.inode)
    }
}

#[derive(Debug)]
pub(super) struct SinkState {
    pub(super) file: File,
    /// The place of the file; `None` for standard output.
    place: Option<WritePlace>,
    /// Whether it is a regular file, which is written whole. Anything else may be a pipe, and is written
    /// in pieces that it is known to have room for.
    is_regular: bool,
    /// Lines that a pipe has no room for; the first may be a partial line.
    waiting: Vec<u8>,
    /// Whether the last write ended within a line whose rest is lost.
    torn: bool,
    /// The time before which no write is tried.
    retry_at: Option<Instant>,
    /// When the last message about missing lines was written, and how many had been dropped by then.
    said_at: Option<Instant>,
    said_dropped: u64,
}

/// Why a write stopped before its end.
enum WriteStop {
    /// There is no room for now.
    Full,
    Failed(io::Error),
}

impl Sink {
    /// Opens the sink that `settings` name. `dropped_by_all` counts the lines dropped by any sink.
    pub(super) fn open(
        settings: &LogSettings,
        dropped_by_all: Arc<AtomicU64>,
    ) -> Result<Sink, LogError> {
        let (file, place) = match &settings.access {
            AccessLog::File(path) => {
                let (file, place) = open_file(path).map_err(|error| LogError::Open {
                    site: (!settings.site.is_empty()).then(|| settings.site.clone()),
                    path: path.clone(),
                    error,
                })?;
                (file, Some(place))
            }
            AccessLog::Stdout | AccessLog::Off => {
                let stdout = io::stdout().as_fd().try_clone_to_owned();
                (File::from(stdout.map_err(LogError::Stdout)?), None)
            }
        };
        Ok(Sink {
            access: settings.access.clone(),
            dropped: AtomicU64::new(0),
            dropped_by_all,
            state: Mutex::new(SinkState {
                is_regular: is_regular(&file),
                file,
                place,
                waiting: Vec::new(),
                torn: false,
                retry_at: None,
                said_at: None,
                said_dropped: 0,
            }),
        })
    }

    pub(super) fn access(&self) -> &AccessLog {
        &self.access
    }

    /// The name of the sink in metrics.
    pub(super) fn label(&self) -> String {
        match &self.access {
            AccessLog::File(path) => path.to_string_lossy().into_owned(),
            AccessLog::Stdout | AccessLog::Off => "-".to_owned(),
        }
    }

    /// The name of the sink in messages.
    fn name(&self) -> String {
        match &self.access {
            AccessLog::File(path) => format!("{path:?}"),
            AccessLog::Stdout | AccessLog::Off => "standard output".to_owned(),
        }
    }

    /// The number of lines dropped since the sink was opened.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Counts lines that will not be written.
    pub(super) fn drop_lines(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
        self.dropped_by_all.fetch_add(lines, Ordering::Relaxed);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes this many complete lines, or keeps them while a pipe has no room, or drops them. Returns
    /// whether some wait.
    pub(super) fn take(&self, bytes: &[u8], lines: u64) -> bool {
        let mut state = self.state();
        if state.retry_at.is_some_and(|at| Instant::now() < at) {
            self.drop_lines(lines);
        } else if state.waiting.is_empty() {
            let written = self.write(&mut state, bytes);
            state.waiting.extend_from_slice(&bytes[written..]);
        } else if state.waiting.len() + bytes.len() <= WAITING_BYTES {
            state.waiting.extend_from_slice(bytes);
        } else {
            self.drop_lines(lines);
        }
        self.say_missing(&mut state, None);
        !state.waiting.is_empty()
    }

    /// Writes waiting lines, as far as there is room. Returns whether some still wait.
    pub(super) fn catch_up(&self) -> bool {
        let mut state = self.state();
        let mut waiting = std::mem::take(&mut state.waiting);
        let written = self.write(&mut state, &waiting);
        waiting.drain(..written);
        state.waiting = waiting;
        !state.waiting.is_empty()
    }

    /// Writes as far as there is room; returns how many bytes were written. Bytes that cannot be written
    /// at all are dropped, and count as written.
    fn write(&self, state: &mut SinkState, bytes: &[u8]) -> usize {
        let (rest, outcome) = state.write(bytes);
        let written = bytes.len() - rest.len();
        match outcome {
            Ok(()) => state.retry_at = None,
            Err(WriteStop::Full) => return written,
            Err(WriteStop::Failed(error)) => {
                if let Some(last) = bytes[..written].last() {
                    state.torn = *last != b'\n';
                }
                // the lines include the torn one
                self.drop_lines(count_lines(rest));
                state.retry_at = Some(Instant::now() + RETRY_AFTER);
                self.say_missing(state, Some(&error));
            }
        }
        bytes.len()
    }

    /// Opens the file again under its path, with no more rights than at first. If the path is closed to
    /// this process by now, the file is opened under its name in the directory that is kept open. If that
    /// fails, too, the old file is kept.
    pub(super) fn reopen(&self) {
        let AccessLog::File(path) = &self.access else { return };
        let mut state = self.state();
        let opened = match open_file(path) {
            Ok((file, place)) => {
                state.place = Some(place);
                Ok(file)
            }
            Err(error) => self.reopen_kept(path, &state, error),
        };
        match opened {
            Ok(file) => {
                state.is_regular = is_regular(&file);
                state.file = file;
                (state.torn, state.retry_at) = (false, None);
            }
            Err(error) => {
                let name = self.name();
                say(&format!("{name} cannot be reopened, the old file is kept: {error}"));
            }
        }
    }

    /// Opens the file again in the directory that is kept open, because its path cannot be opened for
    /// this reason.
    fn reopen_kept(&self, path: &Path, state: &SinkState, error: io::Error) -> io::Result<File> {
        let Some(place) = &state.place else { return Err(error) };
        let file = place.open()?;
        if place.is_replaced(path) {
            let name = self.name();
            say(&format!("{name} cannot be opened, lines go on to its old directory: {error}"));
        }
        Ok(file)
    }

    /// Gives up the lines that still wait, and reports missing lines that were not reported yet.
    pub(super) fn finish(&self) {
        let state = self.state();
        self.drop_lines(count_lines(&state.waiting));
        let dropped = self.dropped();
        if dropped > state.said_dropped {
            let news = dropped - state.said_dropped;
            let name = self.name();
            say(&format!("{name}: lines dropped at the end: {news}, since the start: {dropped}."));
        }
    }

    /// Reports missing lines, unless that was done before or not long ago.
    fn say_missing(&self, state: &mut SinkState, error: Option<&io::Error>) {
        let dropped = self.dropped();
        let recently = state.said_at.is_some_and(|at| at.elapsed() < SAY_EVERY);
        if dropped == state.said_dropped || recently {
            return;
        }
        let name = self.name();
        let reason = match error {
            Some(error) => format!("{name} cannot be written: {error}; trying again"),
            // the next attempt is due later: the reason was reported, or will be
            None if state.retry_at.is_some() => return,
            None => format!("{name} is written too slowly, or was for a while"),
        };
        let news = dropped - state.said_dropped;
        say(&format!("{reason}. Lines dropped: {news}, since the start: {dropped}."));
        (state.said_at, state.said_dropped) = (Some(Instant::now()), dropped);
    }
}

impl SinkState {
    /// Writes as much as there is room for; returns the rest.
    fn write<'b>(&mut self, bytes: &'b [u8]) -> (&'b [u8], Result<(), WriteStop>) {
        if self.torn && !bytes.is_empty() {
            // ends the partial line in the file
            match self.write_some(b"\n") {
                Ok(_) => self.torn = false,
                Err(stop) => return (bytes, Err(stop)),
            }
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.write_some(rest) {
                Ok(written) => rest = &rest[written..],
                Err(stop) => return (rest, Err(stop)),
            }
        }
        (rest, Ok(()))
    }

    /// Writes at least one byte.
    fn write_some(&mut self, bytes: &[u8]) -> Result<usize, WriteStop> {
        let mut piece = bytes;
        if !self.is_regular {
            piece = &bytes[..bytes.len().min(PIPE_BYTES)];
            match process::wait_writable(&[&self.file], Duration::ZERO) {
                Ok(true) => {}
                Ok(false) => return Err(WriteStop::Full),
                Err(error) => return Err(WriteStop::Failed(error)),
            }
        }
        loop {
            match self.file.write(piece) {
                Ok(0) => return Err(WriteStop::Failed(io::ErrorKind::WriteZero.into())),
                Ok(written) => return Ok(written),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => return Err(WriteStop::Full),
                    _ => return Err(WriteStop::Failed(error)),
                },
            }
        }
    }
}

fn open_file(path: &Path) -> io::Result<(File, WritePlace)> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    let place = WritePlace { directory: file::open_directory(directory_of(path))?, name };
    Ok((place.open()?, place))
}

fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

fn say(text: &str) {
    // a failure of this can be reported nowhere
    let _ = writeln!(io::stderr(), "forebay: access log: {text}");
}
