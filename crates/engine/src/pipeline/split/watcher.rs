//! The watcher: waits for listeners and idle connections, keeps the time, takes orders.

use super::Shared;
use super::slab::State;
use crate::accept::{Arrival, BATCH, DRAIN_BATCHES, PAUSE_MS};
use crate::control::Order;
use crate::worker::Worker;
use forebay_conn::{Await, Closing, Handler};
use forebay_control::allocation::Phase;
use forebay_sys::epoll::{Events, Ready};
use std::io;
use std::sync::{Arc, PoisonError};

/// The longest it sleeps: the handler's [`turn`](Handler::turn) wants to be called.
const SLEEP_MS: u64 = 500;
/// How often idle connections are looked for in a drain.
const SWEEP_MS: u64 = 100;
/// Events taken from the kernel at a time.
const EVENTS: usize = 512;

/// Tokens above all connections': listeners, then the bell.
const BELL: u64 = u64::MAX;
const FIRST_LISTENER: u64 = u64::MAX - 1024;

/// The token of listener `index`.
pub(super) fn token_of(index: usize) -> u64 {
    FIRST_LISTENER + index as u64
}

/// The thread that waits for everybody.
pub(super) struct Watcher<H: Handler> {
    shared: Arc<Shared<H>>,
    worker: Worker<H>,
    due: Vec<u64>,
    has_left: bool,
    /// When idle connections are looked for next, in a drain.
    sweep_ms: u64,
}

impl<H: Handler> Watcher<H> {
    /// Watches the listeners and the bell.
    ///
    /// # Errors
    /// Lack of memory or of watches.
    pub(super) fn new(shared: Arc<Shared<H>>) -> io::Result<Watcher<H>> {
        shared.epoll.add_reader(shared.control.bell(0), BELL)?;
        {
            let entrance = shared.entrance.read().unwrap_or_else(PoisonError::into_inner);
            for (index, listener) in entrance.sockets().enumerate() {
                shared.epoll.add_once(listener, token_of(index))?;
            }
        }
        let worker = shared.stock.take();
        Ok(Watcher { shared, worker, due: Vec::new(), has_left: false, sweep_ms: 0 })
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
            shared.control.beat(0, self.worker.now_ms());
            for ready in events.iter() {
                match ready.token {
                    BELL => shared.control.bell(0).silence(),
                    token if token >= FIRST_LISTENER => {
                        let index = (token - FIRST_LISTENER) as usize;
                        shared.lists.push_accept(Phase::Accept, index);
                    }
                    _ => self.ready(ready),
                }
            }
            while let Some(token) = self.next_early() {
                shared.answer_early(token, &self.worker);
            }
            shared.time().wheel.advance(self.worker.now_ms(), &mut self.due);
            for token in std::mem::take(&mut self.due) {
                shared.look_at_deadline(token, &mut self.worker);
            }
            self.resume_accepting();
            match shared.control.order() {
                Order::Run => {}
                Order::Retire => self.leave_listeners(),
                Order::Drain => self.drain(),
                Order::Stop => break,
            }
            if shared.control.order() > Order::Run && shared.slab.open() == 0 {
                break;
            }
        }
        self.stop();
        shared.control.beat_rests(0);
        Ok(())
    }

    fn sleep_ms(&self) -> u64 {
        let most = if self.worker.draining {
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

    /// Somebody who came early and whose time has come.
    fn next_early(&self) -> Option<u64> {
        self.shared.time().early.next(self.worker.now_ms())
    }

    /// The kernel reports a connection.
    fn ready(&mut self, ready: Ready) {
        let Some(mut slot) = self.shared.slab.lock(ready.token) else { return };
        let Some(connection) = slot.connection() else { return };
        connection.served.readable |= ready.readable;
        connection.served.ended |= ready.ended;
        match connection.state {
            State::Watched | State::InJob | State::Lingering(_) if ready.broken => {
                self.shared.close(slot, Closing::Now, &mut self.worker);
            }
            State::Watched => {
                self.shared.wakes(connection);
                drop(slot);
                self.shared.lists.push_receive(ready.token);
            }
            State::Lingering(_) => {
                drop(slot);
                self.shared.lists.push_receive(ready.token);
            }
            State::Moving | State::InJob => {}
        }
    }

    /// Watches those listeners again that have rested long enough.
    fn resume_accepting(&mut self) {
        let (shared, now_ms) = (&self.shared, self.worker.now_ms());
        let entrance = shared.entrance.read().unwrap_or_else(PoisonError::into_inner);
        shared.paused().retain(|&(index, until_ms)| {
            if now_ms < until_ms {
                return true;
            }
            entrance.take_reserve();
            entrance
                .listener(index)
                .is_some_and(|it| shared.epoll.watch_again(&it.socket, token_of(index)).is_err())
        });
    }

    /// Takes what the listeners have queued, and closes them.
    fn leave_listeners(&mut self) {
        if std::mem::replace(&mut self.has_left, true) {
            return;
        }
        let shared = &self.shared;
        // whoever accepts now has finished when this is locked
        let mut entrance = shared.entrance.write().unwrap_or_else(PoisonError::into_inner);
        for index in 0..entrance.sockets().count() {
            // out of epoll while it is still open: others may share the socket and keep it open
            if let Some(listener) = entrance.listener(index) {
                let _ = shared.epoll.remove(&listener.socket);
            }
            // bounded: clients that come back at once would keep it busy for ever
            for _ in 0..DRAIN_BATCHES * BATCH {
                match entrance.next(index, &mut self.worker) {
                    Arrival::Served(served) => {
                        shared.admit(served, &mut self.worker);
                    }
                    Arrival::Refused(served, closing) => {
                        shared.refuse(served, closing, &mut self.worker);
                    }
                    Arrival::Gone => {}
                    Arrival::Nobody | Arrival::Exhausted => break,
                }
            }
        }
        entrance.close();
        shared.paused().clear();
    }

    /// Leaves the listeners, and ends what is idle. More than once: who was at work when the order came
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
            if connection.state == State::Watched && connection.awaits() == Await::Idle {
                // A request may have come since the last look: what is really idle ends in its turn.
                let token = connection.token;
                let _ = self.shared.epoll.watch_end(&connection.served.socket, token);
                connection.served.readable = true;
                self.shared.wakes(connection);
                drop(slot);
                self.shared.lists.push_receive(token);
            }
        }
    }

    /// Cuts what is open.
    fn stop(&mut self) {
        self.leave_listeners();
        let (shared, worker) = (&self.shared, &mut self.worker);
        for place in shared.slab.places() {
            // who works on it sees the order and comes back soon, from poll too; jobs hold no lock
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
