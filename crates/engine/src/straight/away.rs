//! Connections whose request another process answers on the client's own socket, in engines in
//! which each connection keeps a thread. While they wait for that process, or for their turn to be
//! given to it, they keep no thread.
//!
//! One thread of the engine, the watcher, has them all, in an epoll of its own. It hears what
//! receivers report, lends sockets whose turn has come, and ends what is over; each of these takes
//! no longer than a turn of a loop. A connection that is back goes to the engine's threads again
//! like one that was accepted, in the order of its class. The watcher begins with the first such
//! connection, and ends with the engine.
//!
//! ```text
//!  thread ──► arriving ──► watcher ──► back ──► the thread that accepts ──► thread
//!                             └──► closed
//! ```

mod watcher;

use crate::connection::served::Served;
use crate::connection::turn::Fate;
use crate::connection::worker::Worker;
use crate::control::{Ended, EngineControl, LoopOrder};
use crate::order::ranks::Ranks;
use forebay_conn::{Closing, Handler, Protocol};
use forebay_sys::epoll::Bell;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use watcher::AwayWatcher;

/// A connection that a thread serves next, and the fate of its last turn, if that must still be
/// carried out.
pub(crate) struct ToServe<H: Handler> {
    pub(crate) served: Box<Served<H>>,
    pub(crate) begun: Option<Fate<H::Job>>,
}

impl<H: Handler> From<Box<Served<H>>> for ToServe<H> {
    fn from(served: Box<Served<H>>) -> ToServe<H> {
        ToServe { served, begun: None }
    }
}

/// All such connections of an engine.
pub(crate) struct Away<H: Handler> {
    state: Mutex<AwayState<H>>,
    /// The bell that rings when connections have come for the watcher.
    arrived: Bell,
    /// The bell that rings when connections are back, and when the last one has left.
    back: Bell,
    watcher_ended: Condvar,
    control: Arc<EngineControl>,
    begin: BeginWatcher<H>,
}

/// Begins the thread of a watcher.
type BeginWatcher<H> = fn(AwayWatcher<H>) -> io::Result<()>;

struct AwayState<H: Handler> {
    /// Connections that have come for the watcher.
    arriving: Vec<Box<Served<H>>>,
    /// Connections that are back for threads.
    back: VecDeque<ToServe<H>>,
    /// The number of connections that no thread serves: those in the two lists, and those that the
    /// watcher has.
    inside: usize,
    has_watcher: bool,
    /// The share of all threads that have a connection, when it was last reported.
    load: f64,
    ended: Ended,
}

impl<H: Handler + Send + 'static> Away<H> {
    /// The state in which no connection is away.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub(crate) fn new(control: &Arc<EngineControl>) -> io::Result<Arc<Away<H>>> {
        let state = AwayState {
            arriving: Vec::new(),
            back: VecDeque::new(),
            inside: 0,
            has_watcher: false,
            load: 0.0,
            ended: Ended::default(),
        };
        Ok(Arc::new(Away {
            state: Mutex::new(state),
            arrived: Bell::new()?,
            back: Bell::new()?,
            watcher_ended: Condvar::new(),
            control: Arc::clone(control),
            begin: |watcher| {
                let thread = std::thread::Builder::new().name("away".to_owned());
                thread.spawn(move || watcher.run()).map(drop)
            },
        }))
    }
}

impl<H: Handler> Away<H> {
    fn state(&self) -> MutexGuard<'_, AwayState<H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives this connection to the watcher, while the threads have this load. `worker` makes a
    /// worker if there is no watcher yet.
    ///
    /// # Errors
    /// The connection, if no watcher can be started.
    pub(crate) fn take(
        self: &Arc<Self>,
        served: Box<Served<H>>,
        load: f64,
        ranks: &Ranks,
        worker: impl FnOnce() -> Worker<H>,
    ) -> Result<(), Box<Served<H>>> {
        let mut state = self.state();
        if !state.has_watcher {
            let watcher = AwayWatcher::new(self, &self.control, ranks, worker);
            if watcher.and_then(|watcher| (self.begin)(watcher)).is_err() {
                return Err(served);
            }
            state.has_watcher = true;
        }
        state.load = load;
        state.inside += 1;
        state.arriving.push(served);
        let is_first = state.arriving.len() == 1;
        drop(state);
        if is_first {
            self.arrived.ring();
        }
        Ok(())
    }

    /// Whether every connection has a thread, or has ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().inside == 0
    }

    /// Whether connections are back and wait for a thread.
    pub(crate) fn has_back(&self) -> bool {
        !self.state().back.is_empty()
    }

    /// The bell that rings when there is something to [take back](Away::take_back).
    pub(crate) fn bell(&self) -> &Bell {
        &self.back
    }

    /// Takes the connections that are back; the caller owns them from now on.
    pub(crate) fn take_back(&self) -> VecDeque<ToServe<H>> {
        self.back.silence();
        let mut state = self.state();
        let back = std::mem::take(&mut state.back);
        state.inside -= back.len();
        back
    }

    /// Waits until the watcher has ended: after an order to end that is when it has no connection,
    /// and after one to stop at once. Cuts connections that are back and were not taken. Returns
    /// how the connections ended that no thread had.
    pub(crate) fn wait(&self, worker: &mut Worker<H>) -> Ended {
        self.arrived.ring();
        let state = self.watcher_ended.wait_while(self.state(), |state| state.has_watcher);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let mut ended = std::mem::take(&mut state.ended);
        let back = std::mem::take(&mut state.back);
        state.inside -= back.len();
        drop(state);
        for ToServe { served, .. } in back {
            ended.abort(served.awaits().what);
            worker.close(*served, Closing::Reset);
        }
        ended
    }

    fn load(&self) -> f64 {
        self.state().load
    }

    /// Takes, for the watcher, the connections that have come.
    fn take_arriving(&self) -> Vec<Box<Served<H>>> {
        self.arrived.silence();
        std::mem::take(&mut self.state().arriving)
    }

    /// Gives the threads a connection of the watcher.
    fn give_back(&self, served: ToServe<H>) {
        let mut state = self.state();
        state.back.push_back(served);
        let is_first = state.back.len() == 1;
        drop(state);
        if is_first {
            self.back.ring();
        }
    }

    /// Counts a connection that has ended with the watcher.
    fn closed(&self) {
        let mut state = self.state();
        state.inside -= 1;
        let is_last = state.inside == 0;
        drop(state);
        // threads that have nothing else to do end when this was the last
        if is_last && self.control.order() != LoopOrder::Run {
            self.back.ring();
        }
    }

    /// Whether the watcher ends now; after an order to end it does as soon as no connection is
    /// away. If it does, those that wait for that are woken.
    fn watcher_ends(&self, is_cut: bool, ended: Ended) -> bool {
        let mut state = self.state();
        // a connection that comes at the last moment is cut, too
        let is_over = if is_cut { state.arriving.is_empty() } else { state.inside == 0 };
        if !is_over {
            return false;
        }
        state.has_watcher = false;
        state.ended = state.ended + ended;
        self.watcher_ended.notify_all();
        true
    }
}

impl<H: Handler> Served<H> {
    /// Whether the connection waits only for another process that has its socket, or will have it.
    pub(crate) fn is_away(&self) -> bool {
        self.conn.stays_in_receive()
            && self.conn.has_sockets()
            && self.pending.is_none()
            && self.opening.is_none()
            && self.inbox.is_empty()
            && self.waits.is_empty()
    }
}
