//! The thread that writes all logs. No other thread waits for disks.

use super::sink::Sink;
use super::{LineBatch, SharedSinks, SinkLines, WriterMessage};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use forebay_sys::process;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a pipe for which lines wait is given to become writable before other logs have their turn.
const TURN: Duration = Duration::from_millis(20);

/// How long pipes that are full are given to become writable at the end.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The largest buffer that goes back to the loops; one line may exceed a batch.
const KEPT_BYTES: usize = 128 * 1024;

pub(super) struct Writer {
    shared: Arc<SharedSinks>,
    return_emptied: Sender<LineBatch>,
    /// Pipes for which lines wait.
    behind: Vec<Arc<Sink>>,
    /// The lines of one batch for one sink.
    gathered: Vec<u8>,
}

impl Writer {
    pub(super) fn new(shared: Arc<SharedSinks>, return_emptied: Sender<LineBatch>) -> Writer {
        Writer { shared, return_emptied, behind: Vec::new(), gathered: Vec::new() }
    }

    /// Writes until it gets the message to close, or until no sender is left.
    pub(super) fn run(mut self, from_loops: &Receiver<WriterMessage>) {
        while let Some(message) = self.next(from_loops) {
            if self.shared.reopen.swap(false, Ordering::Acquire) {
                self.shared.sinks().clone().iter().for_each(|sink| sink.reopen());
            }
            match message {
                WriterMessage::Lines(batch) => self.take(batch),
                WriterMessage::Look => {}
                WriterMessage::Close => break,
            }
            if self.shared.look.swap(false, Ordering::Acquire) {
                // no other reference exists, and none can be made: the sink is found only with the lock
                // held
                let is_unused = |sink: &mut Arc<Sink>| Arc::strong_count(sink) == 1;
                let unused: Vec<_> = self.shared.sinks().extract_if(.., is_unused).collect();
                drop(unused);
            }
        }
        self.finish();
    }

    /// The next message; `None` when no sender is left. Waiting lines are written to pipes meanwhile.
    fn next(&mut self, from_loops: &Receiver<WriterMessage>) -> Option<WriterMessage> {
        while !self.behind.is_empty() {
            self.behind.retain(|sink| sink.catch_up());
            match from_loops.try_recv() {
                Ok(message) => return Some(message),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => self.wait_for_pipes(TURN),
            }
        }
        from_loops.recv().ok()
    }

    fn wait_for_pipes(&self, most: Duration) {
        let states: Vec<_> = self.behind.iter().map(|sink| sink.state()).collect();
        let files: Vec<_> = states.iter().map(|state| &state.file).collect();
        if !files.is_empty() && process::wait_writable(&files, most).is_err() {
            std::thread::sleep(most);
        }
    }

    /// Gives each sink its lines of the batch, in one piece.
    fn take(&mut self, mut batch: LineBatch) {
        let Some(logs) = batch.logs.take() else { return };
        if let [part] = batch.parts[..] {
            self.give(logs.sink(part.sink), &batch.bytes, part.lines.into());
        } else {
            for run in by_sink(&batch.parts).chunk_by(|a, b| a.0 == b.0) {
                let mut gathered = std::mem::take(&mut self.gathered);
                gathered.clear();
                let mut lines = 0;
                for (_, begin, part) in run {
                    gathered.extend_from_slice(&batch.bytes[*begin as usize..part.end as usize]);
                    lines += u64::from(part.lines);
                }
                self.give(logs.sink(run[0].0), &gathered, lines);
                self.gathered = gathered;
            }
        }
        batch.clear();
        if batch.bytes.capacity() <= KEPT_BYTES {
            // enough buffers are waiting already, so that this one is freed
            let _ = self.return_emptied.try_send(batch);
        }
    }

    fn give(&mut self, sink: &Arc<Sink>, bytes: &[u8], lines: u64) {
        let waits = sink.take(bytes, lines);
        if waits && !self.behind.iter().any(|behind| Arc::ptr_eq(behind, sink)) {
            self.behind.push(Arc::clone(sink));
        }
    }

    fn finish(mut self) {
        let deadline = Instant::now() + LAST_WAIT;
        while !self.behind.is_empty() && Instant::now() < deadline {
            self.wait_for_pipes(TURN);
            self.behind.retain(|sink| sink.catch_up());
        }
        self.shared.sinks().iter().for_each(|sink| sink.finish());
    }
}

/// The parts with their sinks and their beginnings; those of one sink stand together, in their order.
fn by_sink(parts: &[SinkLines]) -> Vec<(u32, u32, SinkLines)> {
    let begins = [0].into_iter().chain(parts.iter().map(|part| part.end));
    let mut sorted: Vec<_> =
        parts.iter().zip(begins).map(|(part, begin)| (part.sink, begin, *part)).collect();
    sorted.sort_by_key(|(sink, _, _)| *sink);
    sorted
}
