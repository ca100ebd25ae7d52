//! A loop's own part of the logs: it writes lines into a buffer and hands the buffer over.

use super::choice::LogSampler;
use super::line::{self, LoggedUpstream, Subject};
use super::redaction::Redaction;
use super::request_id::{self, RequestIds};
use super::stamp::{Clf, Rfc3339};
use super::text::push_number;
use super::{LineBatch, Logs, SinkLines};
use crate::policy::{Judged, Trace};
use forebay_config::LogFormat;
use forebay_config::member::Members;
use forebay_conn::{ArrivalTimes, Request, Secured};
use forebay_metrics::{ClassSlot, Local, SiteSlot};
use forebay_sys::clock;
use forebay_upstream::request::valid_id;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The limit of a batch: it is handed over before it would become larger.
const BATCH_BYTES: usize = 64 * 1024;

/// A batch is handed over when its first line is this old.
const BATCH_AGE_MS: u64 = 100;

/// Buffers of finished lines that are kept for the next ones, and their largest size. More than a
/// few lines are open only while many clients receive long bodies.
const SPARE_LINES: usize = 64;
const SPARE_LINE_BYTES: usize = 2048;

/// The largest number of bytes that the end of a line adds: three numbers and their names.
const END_BYTES: usize = 96;

/// How long a loop that ends waits for room in the channel for its last lines.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// An answer that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct LogEntry<'r> {
    /// The site's place in the configuration; `None` if the request belongs to none.
    pub site: Option<usize>,
    /// The client; the unspecified address for one of a Unix socket.
    pub client: IpAddr,
    /// The user that the client has proved to be, by a password.
    pub user: Option<&'r [u8]>,
    /// The result of the TLS handshake; `None` if the connection is plain.
    pub secured: Option<&'r Secured>,
    /// Whether fields of proxies are believed, including their identifier of the request.
    pub via_proxy: bool,
    /// The identifier under which other servers were asked for the request.
    pub id: Option<u128>,
    /// The request; `None` if no head could be read.
    pub request: Option<&'r Request<'r>>,
    /// The verdict on the request; `None` if there is no policy, or the request was not judged.
    pub judged: Option<Judged<'r>>,
    /// The request to an application, if there was one.
    pub relayed: Option<LoggedUpstream<'r>>,
    /// The answer's status; `None` if the request was given up before it had one. Only JSON lines can
    /// say that.
    pub status: Option<u16>,
    /// When the request came.
    pub stages: ArrivalTimes,
}

/// An answer that waits for its number of bytes. It owns its text, so it may outlive the request.
#[derive(Debug)]
pub struct PendingLine {
    slot: SiteSlot,
    /// The ledger of the request's class, where there are classes.
    class: Option<ClassSlot>,
    /// When the request came, if its duration is asked for; else 0.
    begun_ns: u64,
    /// The text of the line; `None` if the site has no log.
    open: Option<Box<OpenLine>>,
}

#[derive(Debug)]
struct OpenLine {
    /// The logs that the sink number belongs to.
    logs: Arc<Logs>,
    sink: u32,
    text: Vec<u8>,
    end: LineEnd,
    /// Why the answer of an application is not complete.
    cut_off: Option<&'static str>,
    /// For a connection that was passed on: bytes of the client, and how the connection ended.
    passed_on: Option<(u64, &'static str)>,
}

impl PendingLine {
    /// Notes why the answer of an application is not complete.
    pub fn cut_off(&mut self, error: &'static str) {
        if let Some(open) = &mut self.open {
            open.cut_off = Some(error);
        }
    }

    /// Notes how many bytes the client of a passed-on connection has sent, and how the connection ended.
    pub fn passed_on(&mut self, received_bytes: u64, ended: &'static str) {
        if let Some(open) = &mut self.open {
            open.passed_on = Some((received_bytes, ended));
        }
    }
}

/// How a line ends.
#[derive(Clone, Copy, Debug)]
enum LineEnd {
    /// The number of bytes belongs at this position.
    Gap(usize),
    /// The line ends with the time of the send stage; the answer was written at `written_ns`. An
    /// application was asked at `asked_ns`, or none was.
    Json { written_ns: u64, asked_ns: Option<u64>, members: Members },
}

/// The logs and the counters of sites as one loop sees them. Never blocks, and allocates nothing
/// once it is warm.
#[derive(Debug)]
pub struct Logger {
    logs: Arc<Logs>,
    metrics: Arc<Local>,
    clf: Clf,
    rfc3339: Rfc3339,
    ids: RequestIds,
    sampler: LogSampler,
    now_ms: u64,
    /// The offset from [`Logger::tick`] to the time since 1970, in µs.
    epoch_us: u64,
    batch: LineBatch,
    /// When the first line of the batch was written.
    begun_ms: u64,
    /// Buffers of finished lines, all of `logs`, so that the next line needs no allocation and no
    /// reference count.
    #[expect(clippy::vec_box, reason = "lines own these boxes")]
    spare: Vec<Box<OpenLine>>,
}

impl Logger {
    pub(super) fn new(logs: Arc<Logs>, metrics: Arc<Local>) -> Logger {
        let mut logger = Logger {
            logs,
            metrics,
            clf: Clf::default(),
            rfc3339: Rfc3339::default(),
            ids: RequestIds::default(),
            sampler: LogSampler::default(),
            now_ms: clock::unix_coarse_ms(),
            epoch_us: 0,
            batch: LineBatch::default(),
            begun_ms: 0,
            spare: Vec::new(),
        };
        logger.read_epoch();
        logger
    }

    /// Takes over the logs of a new configuration. Lines that are open stay with the logs with which they
    /// were begun.
    pub fn update(&mut self, logs: &Arc<Logs>) {
        self.flush();
        self.spare.clear();
        self.logs = Arc::clone(logs);
        self.read_epoch();
    }

    /// Begins a turn at `unix_ms` milliseconds since 1970, the time lines carry from now on. Hands
    /// over lines that are old enough.
    #[inline]
    pub fn turn(&mut self, unix_ms: u64) {
        if unix_ms / 1000 != self.now_ms / 1000 {
            self.read_epoch();
        }
        self.now_ms = unix_ms;
        // a clock that was set back makes every line old
        if !self.batch.parts.is_empty() && unix_ms.wrapping_sub(self.begun_ms) >= BATCH_AGE_MS {
            self.flush();
        }
    }

    /// Follows the wall clock, which may be set.
    fn read_epoch(&mut self) {
        if self.logs.is_timed() {
            self.epoch_us = clock::unix_us().wrapping_sub(clock::monotonic_ns() / 1000);
        }
    }

    /// The time for [`ArrivalTimes`], in nanoseconds; 0 if no log has durations.
    #[inline]
    pub fn tick(&self) -> u64 {
        if self.logs.is_timed() { clock::monotonic_ns() } else { 0 }
    }

    /// Whether answers of this site have lines.
    #[inline]
    pub fn writes(&self, site: Option<usize>) -> bool {
        self.logs.target(site).sink.is_some()
    }

    /// The name of a site; empty for requests that belong to none.
    pub(crate) fn site_name(&self, site: Option<usize>) -> &str {
        &self.logs.target(site).site
    }

    /// The redaction of this site's lines.
    pub(crate) fn redaction(&self, site: Option<usize>) -> Option<&Redaction> {
        self.logs.target(site).redaction.as_ref()
    }

    /// Counts an answer, or a request that was given up before it had a status, for its site, without a
    /// line. `is_read` says that the head could be read.
    #[inline]
    pub fn count(
        &self,
        site: Option<usize>,
        is_read: bool,
        trace: Option<&Trace>,
        status: Option<u16>,
        stages: ArrivalTimes,
    ) -> PendingLine {
        let slot = self.logs.target(site).slot;
        if let Some(status) = status {
            self.metrics.answered(slot, status);
        }
        if let Some((reason, _)) = trace.and_then(|trace| trace.refused) {
            self.metrics.refused_of(slot, reason);
        }
        let class = trace.map(|trace| trace.slot);
        let is_timed = self.logs.has_durations() && is_read && status.is_some();
        let begun_ns = if is_timed { stages.complete_ns } else { 0 };
        PendingLine { slot, class, begun_ns, open: None }
    }

    /// Counts an answer for its site and begins its line, if it has one.
    #[inline]
    pub fn line(&mut self, entry: &LogEntry<'_>) -> PendingLine {
        let LogEntry { site, status, stages, .. } = *entry;
        let trace = entry.judged.map(|judged| judged.trace);
        let line = self.count(site, entry.request.is_some(), trace.as_ref(), status, stages);
        let target = self.logs.target(site);
        let Some(sink) = target.sink else { return line };
        let class = || entry.judged?.said().class;
        let is_refused = entry.judged.is_some_and(|judged| judged.trace.refused.is_some());
        let sample = target.choice.sample_of(is_refused);
        let is_taken = (entry.status.is_some() || target.format == LogFormat::Json)
            && target.choice.takes(entry.status, class)
            && self.sampler.draws(sample);
        if !is_taken {
            return line;
        }
        let mut open = self.spare.pop().unwrap_or_else(|| {
            let (logs, text) = (Arc::clone(&self.logs), Vec::with_capacity(512));
            let (end, cut_off, passed_on) = (LineEnd::Gap(0), None, None);
            Box::new(OpenLine { logs, sink, text, end, cut_off, passed_on })
        });
        (open.sink, open.cut_off, open.passed_on) = (sink, None, None);
        let LogEntry { client, user, request, status, .. } = *entry;
        open.end = match target.format {
            LogFormat::Json => self.json(&mut open.text, entry, sample),
            format => {
                let is_combined = format == LogFormat::Combined;
                let time = self.clf.at(self.now_ms);
                let status = status.unwrap_or_default();
                let text = &mut open.text;
                let written = (is_combined, target.redaction.as_ref());
                LineEnd::Gap(line::clf(text, time, client, user, request, status, written))
            }
        };
        PendingLine { open: Some(open), ..line }
    }

    fn json(&mut self, text: &mut Vec<u8>, entry: &LogEntry<'_>, sample: u64) -> LineEnd {
        let written_ns = self.tick();
        let ArrivalTimes { begun_ns, complete_ns } = entry.stages;
        let made;
        let given = entry.request.filter(|_| entry.via_proxy);
        let given = given.and_then(|request| valid_id(request.head));
        let request_id = match given {
            Some(given) => given,
            None => {
                made = request_id::text(entry.id.unwrap_or_else(|| self.ids.number()));
                &made
            }
        };
        let target = self.logs.target(entry.site);
        let subject = Subject {
            members: target.members,
            redaction: target.redaction.as_ref(),
            sample,
            time: self.rfc3339.at(self.epoch_us.wrapping_add(begun_ns / 1000)),
            request_id,
            site: &target.site,
            client: entry.client,
            user: entry.user,
            secured: entry.secured,
            judged: entry.judged.map(|judged| judged.said()).unwrap_or_default(),
            relayed: entry.relayed,
            receive_us: complete_ns.saturating_sub(begun_ns) / 1000,
            process_us: written_ns.saturating_sub(complete_ns) / 1000,
        };
        line::json(text, &subject, entry.request, entry.status);
        let asked_ns = entry.relayed.filter(|one| one.attempts > 0 && one.total_us.is_none());
        let asked_ns = asked_ns.map(|relayed| relayed.begun_ns);
        LineEnd::Json { written_ns, asked_ns, members: subject.members }
    }

    /// Ends a line: the answer was sent, with `body_bytes` of its body.
    #[inline]
    pub fn log(&mut self, line: PendingLine, body_bytes: u64) {
        let PendingLine { slot, class, .. } = line;
        let is_timed = line.begun_ns != 0;
        let took_ns = is_timed.then(|| clock::monotonic_ns().saturating_sub(line.begun_ns));
        self.metrics.sent(slot, class, body_bytes, took_ns);
        let Some(mut open) = line.open else { return };
        if !Arc::ptr_eq(&open.logs, &self.logs) {
            return self.log_late(&open, body_bytes);
        }
        if self.batch.bytes.len() + open.text.len() + END_BYTES > BATCH_BYTES {
            self.flush();
        }
        if self.batch.parts.is_empty() {
            self.begun_ms = self.now_ms;
            self.batch.bytes.reserve(BATCH_BYTES);
        }
        open.finish(&mut self.batch, body_bytes);
        if open.text.capacity() <= SPARE_LINE_BYTES && self.spare.len() < SPARE_LINES {
            open.text.clear();
            self.spare.push(open);
        }
    }

    /// Ends a line that was begun with the logs of an older configuration.
    #[cold]
    fn log_late(&mut self, open: &OpenLine, body_bytes: u64) {
        let mut batch = LineBatch::default();
        open.finish(&mut batch, body_bytes);
        batch.logs = Some(Arc::clone(&open.logs));
        open.logs.send(batch, 0);
    }

    /// Hands all finished lines over to the writer. If the writer is too far behind, the lines stay for
    /// the next time, or are dropped and counted when they are many.
    pub fn flush(&mut self) {
        if let Some(batch) = self.take() {
            self.batch = self.logs.send(batch, BATCH_BYTES / 2);
        }
    }

    fn take(&mut self) -> Option<LineBatch> {
        if self.batch.parts.is_empty() {
            return None;
        }
        self.batch.logs = Some(Arc::clone(&self.logs));
        Some(std::mem::take(&mut self.batch))
    }
}

impl OpenLine {
    /// Adds the complete line to a batch.
    #[inline]
    fn finish(&self, batch: &mut LineBatch, body_bytes: u64) {
        let out = &mut batch.bytes;
        match self.end {
            LineEnd::Gap(gap) => {
                let (before, after) = self.text.split_at(gap);
                out.extend_from_slice(before);
                push_number(out, body_bytes);
                out.extend_from_slice(after);
            }
            LineEnd::Json { written_ns, asked_ns, members } => {
                let start = out.len();
                out.extend_from_slice(&self.text);
                let now_ns = clock::monotonic_ns();
                let since_us = |ns: u64| now_ns.saturating_sub(ns) / 1000;
                let (asked_us, sent_us) = (asked_ns.map(since_us), since_us(written_ns));
                if let Some(error) = self.cut_off {
                    line::cut_off(out, members, error);
                }
                let ends =
                    line::LineEnds { asked_us, sent_us, body_bytes, passed_on: self.passed_on };
                line::json_end(out, start, members, &ends);
            }
        }
        // a batch is far from 4 GiB: only the largest head makes it larger than BATCH_BYTES
        let end = out.len() as u32;
        match batch.parts.last_mut() {
            Some(part) if part.sink == self.sink => {
                part.end = end;
                part.lines += 1;
            }
            _ => batch.parts.push(SinkLines { sink: self.sink, end, lines: 1 }),
        }
    }
}

impl Drop for Logger {
    fn drop(&mut self) {
        if let Some(batch) = self.take() {
            self.logs.send_last(batch, LAST_WAIT);
        }
    }
}
