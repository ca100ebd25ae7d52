//! The records of answers, off the hot path: access logs, and counters per site.
//!
//! ```text
//!  loop ── line(), log() ──► Logger: a buffer of its own, for all logs
//!                               │ full, or its first line 100 ms old
//!                               ▼
//!            bounded channel ── batches ──► writer thread ──► Sink: a file, or standard output
//!                               ◄── emptied buffers ──┘  └──► Sink …
//! ```
//!
//! Each site names its log; several may name the same. [`Logs`] are the logs of one configuration. A
//! reload opens new ones, which take over every file that is named again as it is. A line belongs to the
//! logs with which it was begun, so that it ends in their file, however long its answer takes.
//!
//! A loop never waits for a log. When the channel is full or a file cannot be written, lines are dropped
//! and counted, for each log; a message on standard error says so at most once a minute. There is one
//! writer for all logs:
//!
//! * A file system that is full costs the lines of the logs on it, and no others.
//! * A pipe that is not read keeps up to 1 MiB of its lines waiting; then it costs lines of its own.
//! * A file system that *hangs* (a network file system without its server) holds up the writer, and
//!   with it all logs: the channel holds 4 MiB of lines; later ones are dropped until it goes on.
//!
//! | module | what it holds |
//! |---|---|
//! | [`line`](mod@line) | one answer as a line, common, combined or JSON, that no client can forge |
//! | [`choice`] | which requests have a line |
//! | [`redaction`] | what lines leave out |
//! | [`text`] | the pieces of a line: numbers, addresses, escapes |
//! | [`stamp`] | the time as lines show it |
//! | [`request_id`] | the identifier of a request |
//! | `scripts` | messages of scripts, on standard error |
//! | [`logger`] | [`Logger`]: what a loop owns |
//! | [`sink`] | one file, pipe or standard output, and its lines |
//! | [`writer`] | the thread that writes |

pub mod choice;
pub mod line;
pub mod logger;
pub mod redaction;
pub mod request_id;
pub(crate) mod scripts;
pub mod sink;
pub mod stamp;
pub mod text;
pub mod writer;

pub use logger::{LogEntry, Logger, PendingLine};

use choice::LogChoice;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use forebay_config::member::Members;
use forebay_config::{AccessLog, LogConfig, LogFormat};
use forebay_metrics::{Local, SiteNames, SiteSlot, SiteTotals, Totals};
use redaction::Redaction;
use sink::Sink;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use writer::Writer;

/// Batches that may wait for the writer, 4 MiB in all. More are dropped.
const WAITING_BATCHES: usize = 64;

/// The log settings of one site.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSettings {
    /// The site's name.
    pub site: String,
    /// The file or stream of its lines.
    pub access: AccessLog,
    /// The format of its lines.
    pub format: LogFormat,
    /// The choice of the requests that have a line.
    pub choice: LogChoice,
    /// The members of JSON lines.
    pub members: Members,
    /// The redaction of its lines; `None` if nothing is hidden.
    pub redaction: Option<Redaction>,
}

impl LogSettings {
    /// The settings from `log` for a site with this name, which is empty for requests that belong to no
    /// site.
    pub fn new(site: String, log: &LogConfig) -> LogSettings {
        let redaction = Redaction::of(log);
        let LogConfig { access, format, conditions, sample, sample_refused, fields, .. } =
            log.clone();
        let choice = LogChoice { conditions, sample, sample_refused };
        LogSettings { site, access, format, choice, members: Members::of(&fields), redaction }
    }
}

/// The logs of one configuration.
#[derive(Debug)]
pub struct Logs {
    /// The log of each site, by the site's place in the configuration.
    sites: Vec<LogTarget>,
    /// The log of requests that belong to no site.
    common: LogTarget,
    /// The sinks, each file once.
    sinks: Vec<Arc<Sink>>,
    /// The places of the counters of each site.
    names: SiteNames,
    /// Whether some lines say how long the stages of a request took.
    timed: bool,
    /// Whether the metrics say so.
    durations: bool,
    /// The running writer; `None` until there is something to write.
    running: Option<RunningLog>,
}

/// The destination of the lines of one site.
#[derive(Debug)]
pub(crate) struct LogTarget {
    /// The place of the sink in [`Logs::sinks`]; `None` if nothing is logged.
    pub(crate) sink: Option<u32>,
    pub(crate) format: LogFormat,
    pub(crate) choice: LogChoice,
    pub(crate) members: Members,
    pub(crate) redaction: Option<Redaction>,
    pub(crate) slot: SiteSlot,
    pub(crate) site: String,
}

/// Lines on their way to the writer.
#[derive(Debug, Default)]
pub(crate) struct LineBatch {
    /// The logs that the sink numbers of the parts belong to; `None` only while the batch is empty.
    pub(crate) logs: Option<Arc<Logs>>,
    /// The lines, whole.
    pub(crate) bytes: Vec<u8>,
    /// The parts of the batch, each with its sink.
    pub(crate) parts: Vec<SinkLines>,
}

/// Lines of one batch that stand together and go to the same sink.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SinkLines {
    pub(crate) sink: u32,
    /// Where the lines end; they begin where the part before ends.
    pub(crate) end: u32,
    pub(crate) lines: u32,
}

/// A message to the writer.
#[derive(Debug)]
pub(crate) enum WriterMessage {
    Lines(LineBatch),
    /// A wake-up: the writer checks the flags in [`SharedSinks`].
    Look,
    /// The last message.
    Close,
}

/// The data that loggers, the writer and all logs since the start share.
#[derive(Debug, Default)]
pub(crate) struct SharedSinks {
    /// Every sink that is open. Those of older configurations stay until no line is on its way to
    /// them; then the writer closes them: a loop would have to wait for disks.
    pub(crate) sinks: Mutex<Vec<Arc<Sink>>>,
    /// The number of lines dropped by all logs since the start.
    pub(crate) dropped: Arc<AtomicU64>,
    /// Whether all files must be opened again.
    pub(crate) reopen: AtomicBool,
    /// Whether some sinks may not be needed any more.
    pub(crate) look: AtomicBool,
}

impl SharedSinks {
    pub(crate) fn sinks(&self) -> MutexGuard<'_, Vec<Arc<Sink>>> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Debug)]
struct RunningLog {
    to_writer: Sender<WriterMessage>,
    emptied: Receiver<LineBatch>,
    shared: Arc<SharedSinks>,
    /// A channel that is disconnected when the writer has ended.
    ended: Receiver<()>,
}

/// Why logs could not be opened.
#[derive(Debug)]
pub enum LogError {
    /// The file cannot be opened for appending.
    Open {
        /// The site whose log it is; `None` for the log of everything else.
        site: Option<String>,
        /// The path of the file.
        path: PathBuf,
        /// The reason.
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
            LogError::Open { site, path, error } => {
                if let Some(site) = site {
                    write!(f, "site {site:?}: ")?;
                }
                write!(
                    f,
                    "log.access: cannot append to {path:?}: {error}; make it writable for this \
                     user, or set log.access to another file, \"-\" or \"off\""
                )
            }
            LogError::Stdout(error) => write!(
                f,
                "log.access: standard output cannot be used: {error}; set log.access to a file or \
                 \"off\""
            ),
            LogError::Thread(error) => write!(f, "log.access: no thread for the logs: {error}"),
        }
    }
}

impl std::error::Error for LogError {}

impl RunningLog {
    fn start() -> Result<RunningLog, LogError> {
        let (to_writer, from_loops) = bounded(WAITING_BATCHES);
        let (return_emptied, emptied) = bounded(WAITING_BATCHES);
        let (alive, ended) = bounded(0);
        let shared = Arc::new(SharedSinks::default());
        let writer = Writer::new(shared.clone(), return_emptied);
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || {
                writer.run(&from_loops);
                drop::<Sender<()>>(alive);
            })
            .map_err(LogError::Thread)?;
        Ok(RunningLog { to_writer, emptied, shared, ended })
    }
}

impl Logs {
    /// Opens the logs that `common`, for requests that belong to no site, and `sites` name, and starts
    /// the writer. With `durations` each request is timed for the metrics. At a reload, `previous` are
    /// the logs in force: they hand over their writer, and every file that is still named stays open as
    /// it is. The counters of sites that are still named stay as well, with their counts.
    ///
    /// # Errors
    /// The first file that cannot be opened: better no server, or no reload, than one that logs nowhere
    /// unnoticed. The previous logs are as they were.
    pub fn open(
        common: &LogConfig,
        sites: &[LogSettings],
        durations: bool,
        previous: Option<(&Logs, &Totals)>,
    ) -> Result<Arc<Logs>, LogError> {
        let mut running = previous.and_then(|(logs, _)| logs.running.clone());
        let is_off = |access: &AccessLog| *access == AccessLog::Off;
        if running.is_none() && !(is_off(&common.access) && sites.iter().all(|s| is_off(&s.access)))
        {
            running = Some(RunningLog::start()?);
        }
        let mut known = previous.map_or_else(SiteNames::default, |(logs, _)| logs.names.clone());
        let nothing = Totals::default();
        let counted = previous.map_or(&nothing, |(_, counted)| counted);
        let names: Vec<&str> = sites.iter().map(|settings| settings.site.as_str()).collect();
        let slots = known.assign(&names, counted);
        let common = LogSettings::new(String::new(), common);
        let all = [(&common, SiteSlot::NONE)].into_iter().chain(sites.iter().zip(slots));
        let mut sinks = Vec::new();
        let mut targets = Vec::with_capacity(sites.len() + 1);
        for (settings, slot) in all {
            let LogSettings { site, format, members, redaction, .. } = settings.clone();
            let choice = settings.choice.of_site(&site);
            let sink = match (&running, &choice) {
                (Some(running), Some(_)) => open_sink(settings, &running.shared, &mut sinks)?,
                _ => None,
            };
            let choice = choice.unwrap_or_default();
            targets.push(LogTarget { sink, format, choice, members, redaction, slot, site });
        }
        if let Some(running) = &running {
            let mut open = running.shared.sinks();
            let new = sinks.iter().filter(|sink| !open.iter().any(|old| Arc::ptr_eq(old, sink)));
            let new: Vec<_> = new.cloned().collect();
            open.extend(new);
        }
        let timed = targets.iter().any(|t| t.sink.is_some() && t.format == LogFormat::Json);
        let common = targets.remove(0);
        let timed = timed || durations;
        Ok(Arc::new(Logs {
            sites: targets,
            common,
            sinks,
            names: known,
            timed,
            durations,
            running,
        }))
    }

    /// A logger for one loop, which counts the answers of each site in `metrics`.
    pub fn logger(self: &Arc<Logs>, metrics: Arc<Local>) -> Logger {
        Logger::new(Arc::clone(self), metrics)
    }

    pub(crate) fn target(&self, site: Option<usize>) -> &LogTarget {
        site.and_then(|at| self.sites.get(at)).unwrap_or(&self.common)
    }

    pub(crate) fn sink(&self, at: u32) -> &Arc<Sink> {
        &self.sinks[at as usize]
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.timed
    }

    pub(crate) fn has_durations(&self) -> bool {
        self.durations
    }

    /// Hands lines over to the writer. Returns the batch to go on with: an empty one, or the same one if
    /// the writer is behind and the batch is smaller than `kept_bytes`. If the writer is behind and the
    /// batch is larger, its lines are dropped and counted.
    pub(crate) fn send(&self, batch: LineBatch, kept_bytes: usize) -> LineBatch {
        let Some(running) = &self.running else { return batch };
        match running.to_writer.try_send(WriterMessage::Lines(batch)) {
            Ok(()) => running.emptied.try_recv().unwrap_or_default(),
            Err(TrySendError::Full(WriterMessage::Lines(batch)))
                if batch.bytes.len() < kept_bytes =>
            {
                batch
            }
            Err(error) => dropped(error.into_inner()),
        }
    }

    /// Does what [`send`](Logs::send) does, but waits for room.
    pub(crate) fn send_last(&self, batch: LineBatch, within: Duration) {
        let Some(running) = &self.running else { return };
        if let Err(error) = running.to_writer.send_timeout(WriterMessage::Lines(batch), within) {
            dropped(error.into_inner());
        }
    }

    /// The counts of each site; see [`SiteNames::rows`].
    pub fn sites(&self, counted: &Totals) -> Vec<(String, SiteTotals)> {
        self.names.rows(counted)
    }

    /// The number of lines dropped since the start, by all logs there were.
    pub fn dropped(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.shared.dropped.load(Ordering::Relaxed))
    }

    /// The number of lines dropped by each of these logs since it was opened.
    pub fn dropped_by_log(&self) -> Vec<(String, u64)> {
        self.sinks.iter().map(|sink| (sink.label(), sink.dropped())).collect()
    }

    /// Opens all files again under their names, soon, after they were rotated. Where that fails, the old
    /// file is kept, and a message says so.
    ///
    /// The files at their paths now are opened, as at the start. The directories are kept open: where the
    /// process may no longer search the way to one, the name is looked up in the open directory.
    pub fn reopen(&self) {
        if let Some(running) = &self.running {
            running.shared.reopen.store(true, Ordering::Release);
            // a full channel has a batch in it, and the flag is also checked before each batch
            let _ = running.to_writer.try_send(WriterMessage::Look);
        }
    }

    /// Writes the lines that were handed over, and ends the writer. Loggers must be dropped before; they
    /// hand over their last lines. Waits at most `within`; returns whether the writer ended in time.
    pub fn close(&self, within: Duration) -> bool {
        let Some(running) = &self.running else { return true };
        let deadline = Instant::now() + within;
        if running.to_writer.send_timeout(WriterMessage::Close, within).is_err() {
            return false;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        running.ended.recv_timeout(left) == Err(RecvTimeoutError::Disconnected)
    }
}

impl Drop for Logs {
    /// The last line of these logs is written: the writer may close the files that no other logs use.
    fn drop(&mut self) {
        self.sinks.clear();
        if let Some(running) = &self.running {
            running.shared.look.store(true, Ordering::Release);
            let _ = running.to_writer.try_send(WriterMessage::Look);
        }
    }
}

/// The place in `sinks` of the log that `settings` name; `None` if nothing is logged. A sink that is open
/// is not opened again.
fn open_sink(
    settings: &LogSettings,
    shared: &SharedSinks,
    sinks: &mut Vec<Arc<Sink>>,
) -> Result<Option<u32>, LogError> {
    if settings.access == AccessLog::Off {
        return Ok(None);
    }
    let is_it = |sink: &&Arc<Sink>| *sink.access() == settings.access;
    let at = match sinks.iter().position(|sink| is_it(&sink)) {
        Some(at) => at,
        None => {
            let open = shared.sinks().iter().find(is_it).cloned();
            let sink = match open {
                Some(sink) => sink,
                None => Arc::new(Sink::open(settings, Arc::clone(&shared.dropped))?),
            };
            sinks.push(sink);
            sinks.len() - 1
        }
    };
    Ok(u32::try_from(at).ok())
}

/// Counts the lines of a batch that is not taken, and returns the batch empty.
fn dropped(message: WriterMessage) -> LineBatch {
    let WriterMessage::Lines(mut batch) = message else { return LineBatch::default() };
    if let Some(logs) = batch.logs.take() {
        batch.parts.iter().for_each(|part| logs.sink(part.sink).drop_lines(part.lines.into()));
    }
    batch.clear();
    batch
}

impl LineBatch {
    pub(crate) fn clear(&mut self) {
        self.logs = None;
        self.bytes.clear();
        self.parts.clear();
    }
}
