//! Threads for handlers where there are no fibers: a limited number, made on demand. Requests that
//! wait for a thread get one by rank; each eighth time it is the one that has waited longest.
//!
//! These are not the helper threads, so handlers that wait keep no file from being read.

use super::run::HandlerRun;
use forebay_fiber::anywhere::ThreadInterrupt;
use forebay_sys::threads::{self, ThreadBound, ThreadRoom};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A thread ends after this long without work.
const IDLE: Duration = Duration::from_secs(10);

/// How often a thread takes the request that has waited longest: once in this many times.
const OLDEST: u64 = 8;

/// A handler that waits for a thread.
struct QueuedRun {
    number: u64,
    run: HandlerRun,
    interrupt: ThreadInterrupt,
}

#[derive(Default)]
struct ThreadsState {
    /// The waiting handlers by rank, each rank in the order in which they came.
    queue: BTreeMap<u8, VecDeque<QueuedRun>>,
    waiting: usize,
    numbered: u64,
    taken: u64,
    threads: usize,
    idle: usize,
    /// The running handlers, by number.
    running: HashMap<u64, ThreadInterrupt>,
    is_closed: bool,
}

/// The threads of one server's handlers.
pub(super) struct HandlerThreads {
    state: Mutex<ThreadsState>,
    work: Condvar,
    /// Notified when a thread has ended.
    ended: Condvar,
    most: usize,
    most_waiting: usize,
    shortage: Option<ThreadShortage>,
}

/// A shortage of threads: fewer than were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadShortage {
    /// The number that was asked for.
    pub asked: usize,
    /// The number that there may be, at least one.
    pub most: usize,
    /// The limit that leaves no room for more.
    pub bound: ThreadBound,
}

impl ThreadsState {
    /// Takes the next waiting handler.
    fn take(&mut self) -> Option<QueuedRun> {
        self.taken += 1;
        let rank = match self.taken.is_multiple_of(OLDEST) {
            true => {
                let first = |(rank, queue): (&u8, &VecDeque<QueuedRun>)| {
                    Some((queue.front()?.number, *rank))
                };
                self.queue.iter().filter_map(first).min()?.1
            }
            false => *self.queue.keys().next()?,
        };
        let queue = self.queue.get_mut(&rank)?;
        let run = queue.pop_front();
        if queue.is_empty() {
            self.queue.remove(&rank);
        }
        self.waiting -= usize::from(run.is_some());
        run
    }

    /// Removes handlers whose clients have left, since no client waits for them.
    fn take_left(&mut self) -> Vec<QueuedRun> {
        let mut left = Vec::new();
        self.queue.retain(|_, queue| {
            let all = std::mem::take(queue).into_iter();
            let (gone, stay): (VecDeque<_>, _) = all.partition(|queued| queued.run.is_left());
            *queue = stay;
            left.extend(gone);
            !queue.is_empty()
        });
        self.waiting -= left.len();
        left
    }
}

impl HandlerThreads {
    /// At most `most` threads, at least one, and no more than this process has room for. At most
    /// `most_waiting` requests wait for a thread.
    pub(super) fn new(most: usize, most_waiting: usize) -> Arc<HandlerThreads> {
        HandlerThreads::within(threads::room(), most, most_waiting)
    }

    fn within(room: ThreadRoom, most: usize, most_waiting: usize) -> Arc<HandlerThreads> {
        Arc::new(HandlerThreads {
            state: Mutex::default(),
            work: Condvar::new(),
            ended: Condvar::new(),
            most: most.min(room.most).max(1),
            most_waiting,
            shortage: (most > room.most).then_some(ThreadShortage {
                asked: most,
                most: room.most.max(1),
                bound: room.bound,
            }),
        })
    }

    /// The shortage, if there are fewer threads than were asked for.
    pub(super) fn shortage(&self) -> Option<ThreadShortage> {
        self.shortage
    }

    fn lock(&self) -> MutexGuard<'_, ThreadsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a handler run as soon as there is a thread. Returns the means to end its waits; or the
    /// handler itself, if too many wait already or no thread can be made.
    #[allow(clippy::result_large_err, reason = "it goes back to who has made it")]
    pub(super) fn begin(
        self: &Arc<Self>,
        run: HandlerRun,
        rank: u8,
    ) -> Result<ThreadInterrupt, HandlerRun> {
        // declared before `state`, so that the handlers are dropped after the lock is released
        let _left;
        let mut state = self.lock();
        if self.is_full(&state) {
            _left = state.take_left();
        }
        if state.is_closed || self.is_full(&state) {
            return Err(run);
        }
        let has_thread = state.idle > state.waiting;
        if !has_thread && state.threads < self.most {
            let own = Arc::clone(self);
            let thread = std::thread::Builder::new().name("handler".to_owned());
            // a thread that gets the last memory mapping of the process would abort the process
            let has_begun = threads::has_room() && thread.spawn(move || own.work()).is_ok();
            state.threads += usize::from(has_begun);
            // without a new thread, a running one takes the handler later, if it may wait that long
            if !has_begun && (state.threads == 0 || state.waiting >= self.most_waiting) {
                return Err(run);
            }
        }
        state.numbered += 1;
        state.waiting += 1;
        let (number, interrupt) = (state.numbered, ThreadInterrupt::new());
        let queued = QueuedRun { number, run, interrupt: interrupt.clone() };
        state.queue.entry(rank).or_default().push_back(queued);
        self.work.notify_one();
        Ok(interrupt)
    }

    /// Whether one more handler would have neither a thread nor a place in the queue.
    fn is_full(&self, state: &ThreadsState) -> bool {
        state.idle <= state.waiting
            && state.threads >= self.most
            && state.waiting >= self.most_waiting
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(QueuedRun { number, run, interrupt }) = state.take() {
                state.running.insert(number, interrupt.clone());
                drop(state);
                // code of the handler also runs outside of its own function, as when its error is
                // written and dropped
                let _ = catch_unwind(AssertUnwindSafe(|| interrupt.under(|| run.run())));
                state = self.lock();
                state.running.remove(&number);
                continue;
            }
            if state.is_closed {
                break;
            }
            state.idle += 1;
            let waited = self.work.wait_timeout(state, IDLE);
            let timed_out;
            (state, timed_out) = waited.map_or_else(
                |poisoned| (poisoned.into_inner().0, false),
                |(state, timeout)| (state, timeout.timed_out()),
            );
            state.idle -= 1;
            if timed_out && state.waiting == 0 {
                break;
            }
        }
        state.threads -= 1;
        drop(state);
        self.ended.notify_all();
    }

    /// Stops starting handlers, drops those that wait for a thread, and interrupts those that run.
    /// Waits until all threads have ended, at most this long, and returns whether they have.
    pub(super) fn close(&self, patience: Duration) -> bool {
        let mut state = self.lock();
        state.is_closed = true;
        state.waiting = 0;
        let queue = std::mem::take(&mut state.queue);
        state.running.values().for_each(ThreadInterrupt::give);
        drop(state);
        drop(queue);
        self.work.notify_all();
        let until = Instant::now() + patience;
        let mut state = self.lock();
        while state.threads > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The number of handlers that wait for a thread.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// The number of threads.
    pub(super) fn threads(&self) -> usize {
        self.lock().threads
    }
}
