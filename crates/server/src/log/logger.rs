//! What a loop owns of the access log: it writes lines into a buffer and hands the buffer over.

use super::line::{self, Stamp};
use super::{Batch, Message, Shared};
use crate::config::LogFormat;
use crossbeam_channel::{Receiver, SendTimeoutError, Sender, TrySendError};
use forebay_conn::{Peer, Request};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A batch is handed over before it would become larger than this.
const BATCH_BYTES: usize = 64 * 1024;

/// A batch is handed over when its first line is this old.
const BATCH_AGE_MS: u64 = 100;

/// Buffers of finished lines that are kept for the next ones, and their largest size. More than a
/// few lines are open only while many clients receive long bodies.
const SPARE_LINES: usize = 64;
const SPARE_LINE_BYTES: usize = 2048;

/// How long a loop that ends waits for room in the channel for its last lines.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// A line that waits for its number of bytes. It owns its text, so it may outlive the request.
#[derive(Debug)]
pub struct Line {
    text: Vec<u8>,
    /// Where the number belongs.
    gap: usize,
}

/// The access log as one loop sees it. Never blocks, and allocates nothing once it is warm.
#[derive(Debug)]
pub struct Logger {
    outlet: Option<Outlet>,
    stamp: Stamp,
    now_ms: u64,
    batch: Batch,
    /// When the first line of the batch was written.
    begun_ms: u64,
    /// Empty buffers for lines.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Outlet {
    format: LogFormat,
    to_writer: Sender<Message>,
    emptied: Receiver<Vec<u8>>,
    shared: Arc<Shared>,
}

impl Logger {
    /// One that logs nothing.
    pub fn off() -> Logger {
        Logger {
            outlet: None,
            stamp: Stamp::default(),
            now_ms: 0,
            batch: Batch { bytes: Vec::new(), lines: 0 },
            begun_ms: 0,
            spare: Vec::new(),
        }
    }

    pub(super) fn new(
        format: LogFormat,
        to_writer: Sender<Message>,
        emptied: Receiver<Vec<u8>>,
        shared: Arc<Shared>,
    ) -> Logger {
        let mut logger = Logger::off();
        logger.outlet = Some(Outlet { format, to_writer, emptied, shared });
        logger.batch.bytes.reserve(BATCH_BYTES);
        logger.turn(forebay_sys::clock::unix_coarse_ms());
        logger
    }

    /// Begins a turn at `unix_ms` milliseconds since 1970, the time lines carry from now on. Hands
    /// over lines that are old enough.
    #[inline]
    pub fn turn(&mut self, unix_ms: u64) {
        if self.outlet.is_none() {
            return;
        }
        self.now_ms = unix_ms;
        self.stamp.set(unix_ms);
        // a clock that was set back makes every line old
        if self.batch.lines > 0 && unix_ms.wrapping_sub(self.begun_ms) >= BATCH_AGE_MS {
            self.flush();
        }
    }

    /// Begins a line for a request that is being answered; `None` if nothing is logged. `request`
    /// is `None` if no head could be read.
    #[inline]
    pub fn line(
        &mut self,
        peer: &Peer,
        request: Option<&Request<'_>>,
        status: u16,
    ) -> Option<Line> {
        let format = self.outlet.as_ref()?.format;
        let mut text = self.spare.pop().unwrap_or_default();
        let write = match format {
            LogFormat::Combined => line::combined,
            LogFormat::Json => line::json,
        };
        let gap = write(&mut text, &self.stamp, peer, request, status);
        Some(Line { text, gap })
    }

    /// Ends a line: `body_bytes` of the answer's body were sent.
    #[inline]
    pub fn log(&mut self, line: Line, body_bytes: u64) {
        let Line { mut text, gap } = line;
        // no number has more than 20 digits
        if self.batch.bytes.len() + text.len() + 20 > BATCH_BYTES {
            self.flush();
        }
        if self.batch.lines == 0 {
            self.begun_ms = self.now_ms;
        }
        let (before, after) = text.split_at(gap);
        self.batch.bytes.extend_from_slice(before);
        line::push_number(&mut self.batch.bytes, body_bytes);
        self.batch.bytes.extend_from_slice(after);
        self.batch.lines += 1;
        if text.capacity() <= SPARE_LINE_BYTES && self.spare.len() < SPARE_LINES {
            text.clear();
            self.spare.push(text);
        }
    }

    /// Lines dropped since the start, by all loops and the writer.
    pub fn dropped(&self) -> u64 {
        self.outlet.as_ref().map_or(0, |outlet| outlet.shared.dropped.load(Ordering::Relaxed))
    }

    /// Hands all finished lines over to the writer. If it is too far behind they are dropped and
    /// counted.
    pub fn flush(&mut self) {
        let Some(outlet) = &self.outlet else { return };
        if self.batch.lines == 0 {
            return;
        }
        match outlet.to_writer.try_send(Message::Lines(self.batch.take())) {
            Ok(()) => {
                let emptied = outlet.emptied.try_recv();
                self.batch.bytes = emptied.unwrap_or_else(|_| Vec::with_capacity(BATCH_BYTES));
            }
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => {
                let Message::Lines(mut batch) = message else { return };
                outlet.shared.dropped.fetch_add(batch.lines, Ordering::Relaxed);
                batch.bytes.clear();
                self.batch.bytes = batch.bytes;
            }
        }
    }
}

impl Batch {
    fn take(&mut self) -> Batch {
        std::mem::replace(self, Batch { bytes: Vec::new(), lines: 0 })
    }
}

impl Drop for Logger {
    fn drop(&mut self) {
        let Some(outlet) = &self.outlet else { return };
        let batch = self.batch.take();
        if batch.lines == 0 {
            return;
        }
        let lost = match outlet.to_writer.send_timeout(Message::Lines(batch), LAST_WAIT) {
            Ok(()) => return,
            Err(SendTimeoutError::Timeout(message) | SendTimeoutError::Disconnected(message)) => {
                message
            }
        };
        if let Message::Lines(batch) = lost {
            outlet.shared.dropped.fetch_add(batch.lines, Ordering::Relaxed);
        }
    }
}
