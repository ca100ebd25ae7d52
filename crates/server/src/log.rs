//! The access log, off the hot path.
//!
//! ```text
//!  loop ── line(), log() ──► Logger: a buffer of its own
//!                               │ full, or its first line 100 ms old
//!                               ▼
//!            bounded channel ── batches ──► writer thread ──► file or standard output
//!                               ◄── emptied buffers ──┘
//! ```
//!
//! A loop never waits for the log. When the channel is full or the file cannot be written, lines
//! are dropped and counted; what is missing is said on standard error at most once a minute.
//!
//! | module | what it holds |
//! |---|---|
//! | [`line`](mod@line) | one request as a line, combined or JSON, that no client can forge |
//! | [`logger`] | [`Logger`]: what a loop owns |
//! | [`writer`] | the thread that writes |

pub mod line;
pub mod logger;
pub mod writer;

pub use logger::{Line, Logger};

use crate::config::{self, Access};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use writer::Writer;

/// Batches that may wait for the writer, 4 MiB in all. More are dropped.
const WAITING_BATCHES: usize = 64;

/// Lines on their way to the writer.
#[derive(Debug)]
pub struct Batch {
    /// Whole lines.
    pub(crate) bytes: Vec<u8>,
    /// How many.
    pub(crate) lines: u64,
}

/// What the writer is sent.
#[derive(Debug)]
pub(crate) enum Message {
    Lines(Batch),
    /// Nothing but a reason to look at [`Shared::reopen`].
    Reopen,
    /// The last message.
    Close,
}

/// What loggers, writer and handle share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) dropped: AtomicU64,
    pub(crate) reopen: AtomicBool,
}

/// The running access log, or one that is off.
#[derive(Debug)]
pub struct Log {
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    format: config::LogFormat,
    to_writer: Sender<Message>,
    emptied: Receiver<Vec<u8>>,
    shared: Arc<Shared>,
    /// Disconnected when the writer has ended.
    ended: Receiver<()>,
}

/// Why the log could not be started.
#[derive(Debug)]
pub enum LogError {
    /// The file cannot be opened for appending.
    Open {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Standard output is closed.
    Stdout(io::Error),
    /// No thread could be started.
    Thread(io::Error),
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Open { path, error } => write!(
                f,
                "log.access: cannot append to {path:?}: {error}; make it writable for this user, \
                 or set log.access to another file, \"-\" or \"off\""
            ),
            LogError::Stdout(error) => write!(
                f,
                "log.access: standard output cannot be used: {error}; set log.access to a file or \
                 \"off\""
            ),
            LogError::Thread(error) => write!(f, "log.access: no thread for the log: {error}"),
        }
    }
}

impl std::error::Error for LogError {}

impl Log {
    /// Opens what `settings` name and starts the writer.
    ///
    /// # Errors
    /// When the file cannot be opened: better no server than one that logs nowhere unnoticed.
    pub fn open(settings: &config::Log) -> Result<Log, LogError> {
        let (file, path) = match &settings.access {
            Access::Off => return Ok(Log { running: None }),
            Access::Stdout => {
                let stdout = io::stdout().as_fd().try_clone_to_owned();
                (File::from(stdout.map_err(LogError::Stdout)?), None)
            }
            Access::File(path) => {
                let open = |error| LogError::Open { path: path.clone(), error };
                (forebay_sys::process::open_append(path).map_err(open)?, Some(path.clone()))
            }
        };
        let (to_writer, from_loops) = bounded(WAITING_BATCHES);
        let (return_emptied, emptied) = bounded(WAITING_BATCHES);
        let (alive, ended) = bounded(0);
        let shared = Arc::new(Shared::default());
        let writer = Writer::new(file, path, shared.clone(), return_emptied);
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || {
                writer.run(&from_loops);
                drop::<Sender<()>>(alive);
            })
            .map_err(LogError::Thread)?;
        let format = settings.format;
        Ok(Log { running: Some(Running { format, to_writer, emptied, shared, ended }) })
    }

    /// A logger for one loop.
    pub fn logger(&self) -> Logger {
        match &self.running {
            None => Logger::off(),
            Some(running) => Logger::new(
                running.format,
                running.to_writer.clone(),
                running.emptied.clone(),
                running.shared.clone(),
            ),
        }
    }

    /// Lines dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.shared.dropped.load(Ordering::Relaxed))
    }

    /// Opens the file again under its name, soon: for when it was rotated. If that fails the old
    /// one is kept.
    pub fn reopen(&self) {
        if let Some(running) = &self.running {
            running.shared.reopen.store(true, Ordering::Release);
            // a full channel has a batch in it, before which the flag is looked at as well
            let _ = running.to_writer.try_send(Message::Reopen);
        }
    }

    /// Writes what was handed over and ends the writer. Loggers should be dropped before; they hand
    /// over their last lines. Waits at most `within`; says whether the writer ended in time.
    pub fn close(&self, within: Duration) -> bool {
        let Some(running) = &self.running else { return true };
        let deadline = Instant::now() + within;
        if running.to_writer.send_timeout(Message::Close, within).is_err() {
            return false;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        running.ended.recv_timeout(left) == Err(RecvTimeoutError::Disconnected)
    }
}
