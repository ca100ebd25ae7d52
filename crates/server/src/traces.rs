//! The exporter: a thread that sends the spans of requests to a collector.
//!
//! It looks at the queue twice a second, and nobody wakes it: a request that is recorded costs its loop no system
//! call. A batch that the collector does not take is sent again, later each time; meanwhile the queue fills, and
//! what does not fit is dropped and counted. Loops notice none of it.
//!
//! | module | what it holds |
//! |---|---|
//! | `otlp` | spans as OTLP writes them |
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

/// How often the queue is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Spans of one batch, about.
const BATCH_SPANS: usize = 512;

/// How often a batch is sent before its spans are given up. The waits between are 0.5, 1, 2 and 4 s.
const MOST_TRIES: u32 = 5;

/// How often trouble is said.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// How long a server that ends waits for its last spans.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The thread that sends spans, if there is one.
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
    /// The server ends.
    is_ending: bool,
}

impl ExporterShared {
    fn lock(&self) -> MutexGuard<'_, ExporterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for so long, or until the server ends. Says whether it does.
    fn rest(&self, time: Duration) -> bool {
        let wait = self.changed.wait_timeout_while(self.lock(), time, |state| !state.is_ending);
        wait.unwrap_or_else(PoisonError::into_inner).0.is_ending
    }

    /// Whether there is nothing more to do: then the thread ends, and another may begin.
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
    /// Starts the thread if spans go to a collector and there is none. It ends when they do no more.
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

    /// The server ends: the last spans are sent, if the collector takes them at once.
    pub(crate) fn end(&self) {
        let mut state = self.0.lock();
        state.is_ending = true;
        self.0.changed.notify_all();
        let wait = self.0.changed.wait_timeout_while(state, LAST_WAIT, |state| state.is_running);
        drop(wait);
    }
}

/// What the thread has to send.
#[derive(Default)]
struct ExporterRun {
    /// What the collector has not taken yet.
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
            // a collector that does not answer is asked less and less
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

    /// Sends what waits, until there is no more or the collector does not take it: says how often that was tried,
    /// from 1.
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

/// The next spans that wait, as one request; `None` if there are none.
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
