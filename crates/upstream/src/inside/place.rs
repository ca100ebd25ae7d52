//! The places of handlers: on fibers of the loop that has the request, or on threads. Both are
//! limited.

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

/// A running handler, as the connection's end holds it.
pub(super) enum RunningHandler {
    Fiber(Fiber<()>),
    Thread(ThreadInterrupt),
    /// The handler has given its request to other code of the program, which is reached only by the
    /// pipe.
    Detached,
}

impl RunningHandler {
    /// Ends the handler's waits.
    pub(super) fn interrupt(&self) {
        match self {
            RunningHandler::Fiber(fiber) => fiber.interrupt(),
            RunningHandler::Thread(interrupt) => interrupt.give(),
            RunningHandler::Detached => {}
        }
    }
}

impl HandlerPlaces {
    /// Places for at most `most_fibers` fibers and detached handlers over all loops, `most_threads`
    /// threads, and `most_waiting` requests that wait for a thread. There are no more threads than the
    /// process has [room](HandlerPlaces::thread_shortage) for.
    pub fn new(most_fibers: usize, most_threads: usize, most_waiting: usize) -> HandlerPlaces {
        let threads = HandlerThreads::new(most_threads, most_waiting);
        HandlerPlaces { threads, fibers: Arc::default(), most_fibers }
    }

    /// Begins a handler: on a fiber, where the calling thread hosts some, or on a thread; a detached
    /// one is given its request. Returns `None` if there is no room.
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

    /// Stops starting handlers on threads, interrupts those that run, and waits for them, at most
    /// this long. Returns whether all have ended.
    pub fn close(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let have_ended = self.threads.close(patience);
        // detached tasks were notified by their pipes, and end on their own
        while self.fibers() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        have_ended && self.fibers() == 0
    }

    /// The shortage of threads, if there are fewer than were asked for.
    pub fn thread_shortage(&self) -> Option<ThreadShortage> {
        self.threads.shortage()
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.threads.threads()
    }

    /// The number of handlers that wait for a thread.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.threads.waiting()
    }

    /// The number of handlers on fibers, and detached ones, that have not ended.
    pub fn fibers(&self) -> usize {
        self.fibers.load(Ordering::Relaxed)
    }
}
