//! The exporter: a thread that sends the spans of requests to a collector.
//!
//! The thread looks at the queue twice a second, and is not woken, so that a recorded request costs
//! its loop no system call. A batch that the collector does not take is sent again, each time later.
//! Meanwhile the queue fills, and further spans are dropped and counted. Loops notice none of it.
//!
//! | module | what it holds |
//! |---|---|
//! | `otlp` | spans in the format of OTLP |
//! | `collector` | one request to a collector |

pub(crate) mod collector;
mod otlp;

use collector::CollectorFailure;
use forebay_handler::live::{LiveSnapshot, ServingSnapshot};
use forebay_handler::traces::Tracing;
use forebay_sys::stderr::say;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The interval at which the queue is read.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The approximate number of spans in a batch.
const BATCH_SPANS: usize = 512;

/// How often a batch is sent before its spans are dropped. The waits between are 0.5, 1, 2 and 4 s.
const MOST_TRIES: u32 = 5;

/// The interval at which errors are logged.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// How long an ending server waits for its last spans to be sent.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The exporter's handle; its thread runs only while spans go to a collector.
#[derive(Debug, Default)]
pub(crate) struct Exporter(Arc<ExporterShared>);

#[derive(Debug, Default)]
struct ExporterShared {
    state: Mutex<ExporterState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ExporterState {
    is_running: bool,
    /// Whether the server ends.
    is_ending: bool,
}

impl ExporterShared {
    fn lock(&self) -> MutexGuard<'_, ExporterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this time, or until the server ends. The result is whether it ends.
    fn rest(&self, time: Duration) -> bool {
        let wait = self.changed.wait_timeout_while(self.lock(), time, |state| !state.is_ending);
        wait.unwrap_or_else(PoisonError::into_inner).0.is_ending
    }

    /// Whether the thread has nothing more to do. Then it ends, and another may begin.
    fn leaves(&self, is_over: impl FnOnce() -> bool) -> bool {
        let mut state = self.lock();
        let leaves = is_over();
        if leaves {
            state.is_running = false;
            self.changed.notify_all();
        }
        leaves
    }
}

impl Exporter {
    /// Starts the thread if spans go to a collector and none runs. It ends when they go to no
    /// collector any more.
    ///
    /// # Errors
    /// Lack of threads.
    pub(crate) fn keep_up(&self, live: &Arc<LiveSnapshot>) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.is_running || live.get().traces.config.to.is_none() {
            return Ok(());
        }
        let (shared, live) = (Arc::clone(&self.0), Arc::downgrade(live));
        let run = move || ExporterRun::default().run(&shared, &live);
        std::thread::Builder::new().name("traces".to_owned()).spawn(run)?;
        state.is_running = true;
        Ok(())
    }

    /// Has the last spans sent at the end of the server, if the collector takes them at once.
    pub(crate) fn end(&self) {
        let mut state = self.0.lock();
        state.is_ending = true;
        self.0.changed.notify_all();
        let wait = self.0.changed.wait_timeout_while(state, LAST_WAIT, |state| state.is_running);
        drop(wait);
    }
}

/// The state of the thread.
#[derive(Default)]
struct ExporterRun {
    /// The batch that the collector has not taken yet.
    batch: Option<SpanBatch>,
    said: Option<Instant>,
}

struct SpanBatch {
    body: Vec<u8>,
    spans: u64,
    tries: u32,
}

impl ExporterRun {
    fn run(mut self, shared: &ExporterShared, live: &Weak<LiveSnapshot>) {
        loop {
            let Some(serving) = live.upgrade().map(|live| live.get()) else {
                shared.leaves(|| true);
                return;
            };
            let tries = self.send_all(&serving);
            drop(serving);
            // the waits grow while the collector does not answer
            let is_ending = shared.rest(LOOK_EVERY * (1 << tries.min(MOST_TRIES)) / 2);
            if is_ending && let Some(live) = live.upgrade() {
                self.send_all(&live.get());
            }
            let is_wanted =
                || live.upgrade().is_some_and(|live| live.get().traces.config.to.is_some());
            if shared.leaves(|| is_ending || !is_wanted()) {
                return;
            }
        }
    }

    /// Sends batches until the queue is empty or the collector does not take one. The result is the
    /// number of attempts at the last batch, from 1.
    fn send_all(&mut self, serving: &ServingSnapshot) -> u32 {
        let traces = &*serving.traces;
        loop {
            let Some(mut batch) = self.batch.take().or_else(|| batch_of(traces)) else { return 1 };
            let queue = &traces.queue;
            match collector::send(serving, &batch.body) {
                Ok(()) => {
                    queue.exported.fetch_add(batch.spans, Relaxed);
                }
                Err(failure) => {
                    batch.tries += 1;
                    self.say_trouble(traces, &failure);
                    if failure.is_final() || batch.tries >= MOST_TRIES {
                        queue.failed.fetch_add(batch.spans, Relaxed);
                        return batch.tries;
                    }
                    let tries = batch.tries;
                    self.batch = Some(batch);
                    return tries;
                }
            }
        }
    }

    fn say_trouble(&mut self, traces: &Tracing, failure: &CollectorFailure) {
        if self.said.is_some_and(|said| said.elapsed() < SAY_EVERY) {
            return;
        }
        self.said = Some(Instant::now());
        if let Some(to) = &traces.config.to {
            say(format_args!(
                "traces.to: {to} takes no spans: {failure}; what is not taken in {MOST_TRIES} tries is dropped"
            ));
        }
    }
}

/// The next spans of the queue, as one request; `None` if there are none.
fn batch_of(traces: &Tracing) -> Option<SpanBatch> {
    let (mut finished, mut spans) = (Vec::new(), 0);
    while spans < BATCH_SPANS
        && let Some(trace) = traces.queue.take()
    {
        spans += trace.spans.len();
        finished.push(trace);
    }
    let body = (spans > 0).then(|| otlp::request(traces, &finished))?;
    Some(SpanBatch { body, spans: spans as u64, tries: 0 })
}
