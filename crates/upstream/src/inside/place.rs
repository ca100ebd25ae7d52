//! Where a handler runs: on a fiber of the loop that has its request, or on a thread. Both are bounded.

use super::run::HandlerRun;
use super::taken::HandlerPlace;
use super::threads::{HandlerThreads, ThreadShortage};
use forebay_fiber::Fiber;
use forebay_fiber::anywhere::ThreadInterrupt;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Places for the handlers of one server.
pub struct HandlerPlaces {
    threads: Arc<HandlerThreads>,
    fibers: Arc<AtomicUsize>,
    most_fibers: usize,
}

impl fmt::Debug for HandlerPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerPlaces")
            .field("threads", &self.threads())
            .field("fibers", &self.fibers())
            .finish()
    }
}

/// A handler that runs, as the connection's end holds it.
pub(super) enum RunningHandler {
    Fiber(Fiber<()>),
    Thread(ThreadInterrupt),
    /// Somewhere in the program: its pipe tells it.
    Detached,
}

impl RunningHandler {
    /// Its waits end.
    pub(super) fn interrupt(&self) {
        match self {
            RunningHandler::Fiber(fiber) => fiber.interrupt(),
            RunningHandler::Thread(interrupt) => interrupt.give(),
            RunningHandler::Detached => {}
        }
    }
}

impl HandlerPlaces {
    /// At most so many fibers and detached handlers, over all loops; at most so many threads, and no more than the
    /// process has [room](HandlerPlaces::thread_shortage) for, and so many requests that wait for one.
    pub fn new(most_fibers: usize, most_threads: usize, most_waiting: usize) -> HandlerPlaces {
        let threads = HandlerThreads::new(most_threads, most_waiting);
        HandlerPlaces { threads, fibers: Arc::default(), most_fibers }
    }

    /// Begins a handler: on a fiber, where the calling thread hosts some; or gives it away. `None` if there is no room
    /// for it.
    pub(super) fn begin(&self, run: HandlerRun, rank: u8) -> Option<RunningHandler> {
        if run.is_detached() {
            run.give_away(HandlerPlace::take(&self.fibers, self.most_fibers)?);
            return Some(RunningHandler::Detached);
        }
        if !forebay_fiber::is_hosted() {
            return self.threads.begin(run, rank).ok().map(RunningHandler::Thread);
        }
        let place = HandlerPlace::take(&self.fibers, self.most_fibers)?;
        let name = run.name();
        let fiber = forebay_fiber::begin(&name, move || {
            let _place = place;
            run.run();
        });
        fiber.ok().map(RunningHandler::Fiber)
    }

    /// Nothing more is begun on threads; those that run are interrupted. Waits for them, for this long at most; says
    /// whether all have ended.
    pub fn close(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let have_ended = self.threads.close(patience);
        // tasks of the program, which were told by their pipes
        while self.fibers() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        have_ended && self.fibers() == 0
    }

    /// Whether there are fewer threads than were asked for.
    pub fn thread_shortage(&self) -> Option<ThreadShortage> {
        self.threads.shortage()
    }

    /// Threads alive.
    pub fn threads(&self) -> usize {
        self.threads.threads()
    }

    /// Handlers that wait for a thread.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.threads.waiting()
    }

    /// Handlers on fibers, and detached ones, that have not ended.
    pub fn fibers(&self) -> usize {
        self.fibers.load(Ordering::Relaxed)
    }
}
