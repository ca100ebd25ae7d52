//! The watcher: waits for listeners, idle connections and other sockets, keeps the time, takes orders.

use super::Shared;
use crate::connection::accept::{AcceptOutcome, BATCH, DRAIN_BATCHES, PAUSE_MS};
use crate::connection::worker::Worker;
use crate::control::LoopOrder;
use crate::loops::sockets::SocketReport;
use crate::loops::watched_listeners::{BELL, FIRST_LISTENER, SOCKETS};
use crate::order::ranks::RequestKey;
use forebay_conn::{Closing, Handler};
use forebay_control::allocation::Phase;
use forebay_sys::epoll::{Events, Once, ReadyDescriptor};
use std::io;
use std::sync::{Arc, PoisonError};

/// The longest sleep of the watcher, as the handler's [`turn`](Handler::turn) must be called now
/// and then.
const SLEEP_MS: u64 = 500;
/// The interval at which idle connections are looked for in a drain.
const SWEEP_MS: u64 = 100;
/// The events that are taken from the kernel at a time.
const EVENTS: usize = 512;

/// The token of listener `index`.
pub(super) fn token_of(index: usize) -> u64 {
    FIRST_LISTENER + index as u64
}

/// The wait for a thread that works on a connection whose socket is ready.
const LOCKED_MS: u64 = 1;

/// The thread that waits for all that is not in a list.
pub(super) struct ReadinessWatcher<H: Handler> {
    shared: Arc<Shared<H>>,
    worker: Worker<H>,
    due: Vec<u64>,
    /// Requests whose sockets are ready, and whose connections a thread works on.
    locked: Vec<RequestKey>,
    has_left: bool,
    /// The time when idle connections are looked for next, in a drain.
    sweep_ms: u64,
}

impl<H: Handler> ReadinessWatcher<H> {
    /// A watcher of the listeners and the bell.
    ///
    /// # Errors
    /// Lack of memory or of watches.
    pub(super) fn new(shared: Arc<Shared<H>>) -> io::Result<ReadinessWatcher<H>> {
        shared.epoll.add_reader(shared.control.bell(0), BELL)?;
        {
            let listener_set = shared.listener_set.read().unwrap_or_else(PoisonError::into_inner);
            for (index, listener) in listener_set.sockets().enumerate() {
                shared.epoll.add_once(listener, token_of(index), Once::Read)?;
            }
        }
        let worker = shared.stock.take();
        Ok(ReadinessWatcher {
            shared,
            worker,
            due: Vec::new(),
            locked: Vec::new(),
            has_left: false,
            sweep_ms: 0,
        })
    }

    /// Watches until the last connection has ended after an order to end.
    ///
    /// # Errors
    /// When the kernel refuses to wait for events.
    pub(super) fn run(mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut events = Events::with_capacity(EVENTS);
        loop {
            shared.epoll.wait(&mut events, self.sleep_ms())?;
            self.worker.read_clocks();
            self.worker.begin_turn();
            shared.stock.keep_up(self.worker.now_ms());
            shared.control.heartbeat(0, self.worker.now_ms());
            for ready in events.iter() {
                match ready.token {
                    BELL => shared.control.bell(0).silence(),
                    token if token >= FIRST_LISTENER => {
                        let index = (token - FIRST_LISTENER) as usize;
                        shared.enlist(index);
                    }
                    token if token >= SOCKETS => {
                        let owner = shared.sockets().ready(token);
                        self.locked.extend(owner.and_then(SocketReport::request));
                    }
                    _ => self.ready(ready),
                }
            }
            // the epoll reports an edge once, so a connection that a thread has locked is tried
            // again
            self.locked.retain(|key| !shared.socket_ready(*key));
            while let Some(key) = self.next_early() {
                shared.lists.push_due(key);
            }
            shared.time().wheel.advance(self.worker.now_ms(), &mut self.due);
            for token in std::mem::take(&mut self.due) {
                shared.look_at_deadline(token, &mut self.worker);
            }
            self.resume_accepting();
            let order = shared.control.order();
            match order {
                LoopOrder::Run => {}
                LoopOrder::Retire => self.leave_listeners(),
                LoopOrder::Drain => self.drain(),
                LoopOrder::Stop => break,
            }
            if order > LoopOrder::Run && shared.slab.open() == 0 {
                break;
            }
        }
        self.stop();
        shared.control.heartbeat_rests(0);
        Ok(())
    }

    fn sleep_ms(&self) -> u64 {
        let most = if !self.locked.is_empty() {
            LOCKED_MS
        } else if self.worker.draining {
            SWEEP_MS
        } else if self.shared.paused().is_empty() {
            SLEEP_MS
        } else {
            PAUSE_MS
        };
        let now_ms = self.worker.now_ms();
        let mut time = self.shared.time();
        let most = time.early.sleep_ms(now_ms, most);
        let sleep_ms = time.wheel.sleep_ms(now_ms, most);
        time.next_ms = now_ms + sleep_ms;
        sleep_ms
    }

    /// Takes an early request whose time has come.
    fn next_early(&self) -> Option<RequestKey> {
        self.shared.time().early.next(self.worker.now_ms())
    }

    /// Handles a report of the kernel about a connection.
    fn ready(&mut self, ready: ReadyDescriptor) {
        let Some(mut slot) = self.shared.slab.lock(ready.token) else { return };
        let Some(connection) = slot.connection() else { return };
        let phase = connection.goes_on_in(ready);
        if connection.is_listed() {
            // a thread will come to the connection anyway
            return;
        }
        if ready.broken && !connection.served.stream.has_ended() {
            return self.shared.close(slot, Closing::Now, &mut self.worker);
        }
        match phase {
            Some(phase) => self.shared.list(slot, phase),
            None => {
                if !self.shared.leave(connection, &self.worker) {
                    self.shared.close(slot, Closing::Reset, &mut self.worker);
                }
            }
        }
    }

    /// Watches the listeners again that have rested long enough.
    fn resume_accepting(&mut self) {
        let (shared, now_ms) = (&self.shared, self.worker.now_ms());
        let listener_set = shared.listener_set.read().unwrap_or_else(PoisonError::into_inner);
        shared.paused().retain(|&(index, until_ms)| {
            if now_ms < until_ms {
                return true;
            }
            listener_set.take_reserve();
            listener_set.listener(index).is_some_and(|it| {
                shared.epoll.watch_again(&it.socket, token_of(index), Once::Read).is_err()
            })
        });
    }

    /// Takes what the listeners have queued, and closes them.
    fn leave_listeners(&mut self) {
        if std::mem::replace(&mut self.has_left, true) {
            return;
        }
        let shared = &self.shared;
        // once this is locked, no thread is accepting any more
        let mut listener_set = shared.listener_set.write().unwrap_or_else(PoisonError::into_inner);
        for index in 0..listener_set.sockets().count() {
            // out of epoll while the socket is still open, as another process may share it and keep
            // it open
            if let Some(listener) = listener_set.listener(index) {
                let _ = shared.epoll.remove(&listener.socket);
            }
            // bounded, as clients that connect again at once would keep the thread busy for ever
            for _ in 0..DRAIN_BATCHES * BATCH {
                match listener_set.next(index, &mut self.worker) {
                    AcceptOutcome::Served(served) => {
                        shared.admit(served, &mut self.worker);
                    }
                    AcceptOutcome::Refused(served, closing) => {
                        shared.refuse(served, closing, &mut self.worker);
                    }
                    AcceptOutcome::Gone => {}
                    AcceptOutcome::Nobody | AcceptOutcome::Exhausted => break,
                }
            }
        }
        listener_set.close();
        shared.control.all_have_left();
        shared.paused().clear();
    }

    /// Leaves the listeners, ends idle connections, and has others announce the end to their clients
    /// where the protocol can. Done more than once, as a thread that was at work when the order came
    /// may not have seen it.
    fn drain(&mut self) {
        self.worker.draining = true;
        self.leave_listeners();
        let now_ms = self.worker.now_ms();
        if now_ms < self.sweep_ms {
            return;
        }
        self.sweep_ms = now_ms + SWEEP_MS;
        for place in self.shared.slab.places() {
            let Ok(mut slot) = place.try_lock() else { continue };
            let Some(connection) = slot.connection() else { continue };
            if connection.hears_of_drain() {
                // A request may have arrived since the last look, so a turn ends what is really
                // idle.
                let _ = self.shared.arm(connection, Once::End);
                connection.served.readable = true;
                self.shared.list(slot, Phase::Receive);
            }
        }
    }

    /// Cuts all open connections.
    fn stop(&mut self) {
        self.leave_listeners();
        let (shared, worker) = (&self.shared, &mut self.worker);
        for place in shared.slab.places() {
            // a thread that works on the connection sees the order and unlocks it soon, from poll
            // too; jobs hold no lock
            let mut slot = place.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(connection) = slot.connection() else { continue };
            shared.ended().abort(connection.awaits());
            shared.close(slot, Closing::Reset, worker);
        }
        worker.read_clocks();
        worker.begin_turn();
        worker.handler.rest();
    }
}
