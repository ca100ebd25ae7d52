//! The `pool` engine: a fixed number of threads, each of which accepts under a mutex (duke §III).
//!
//! * **Shape.** Each thread waits for the mutex, accepts one connection, lets the next thread have
//!   the mutex, serves the connection to its end in straight-line code, and comes back. With classes it
//!   accepts what there is and serves the first of them: see `ahead.rs`.
//! * **What blocks where.** One thread in poll on listeners and bell, with the mutex; others at the
//!   mutex, in poll on their socket and the bell, or in jobs, which they run themselves; with classes
//!   also until they may answer.
//! * **Queues and their limits.** Connections that no thread is free for wait in the kernel's
//!   accept queue until one is; with classes, as many as [`StockParts::ahead`] says are put in
//!   order then. With classes, threads whose request is there wait for a permit, by rank. With or
//!   without classes, threads wait for a permit if they have a job that waits for a device: see
//!   `permits.rs`. A connection whose socket another process has keeps no thread, and waits for one
//!   when it is back, like those that were just accepted: see `away.rs`.
//! * **Heartbeats.** The thread that has the mutex shows that it turns, and so do threads that
//!   serve; those that wait for a client, or are in a job, need not.
//! * **Run and drain.** A thread's work ends when a drain was ordered and nothing is left to be
//!   accepted, or when the thread has answered an order to stop.

use crate::connection::accept::{ListenerSet, PAUSE_MS};
use crate::connection::served::Served;
use crate::connection::worker::Worker;
use crate::control::{Ended, EngineControl, LoopOrder};
use crate::straight::ahead::{AcceptStop, Ahead, NextAccepted};
use crate::straight::away::{Away, ToServe};
use crate::straight::stock::{Stock, StockParts};
use forebay_conn::{Closing, Handler};
use forebay_control::ranked::Turn;
use forebay_sys::{clock, poll};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The interval at which the accepting thread looks at the order and the clock.
const SLEEP_MS: u64 = 500;

/// The shortest time between two cuts of slow readers.
const ROOM_MS: u64 = 50;

/// The state that the threads of a pool share.
pub struct Pool<H: Handler> {
    stock: Stock<H>,
    control: Arc<EngineControl>,
    accept_state: Mutex<AcceptState<H>>,
    /// Threads without a connection.
    free: AtomicUsize,
}

/// What the thread that accepts needs, under the mutex.
struct AcceptState<H: Handler> {
    listener_set: ListenerSet,
    /// The listener that is looked at first; it moves on, so that each comes first in turn.
    first: usize,
    ahead: Ahead<H>,
    /// How connections ended that were cut before a thread had them.
    cut: Ended,
    /// The time when the slowest reader was last cut.
    made_room_ms: u64,
}

/// A connection to serve, or one to close.
enum ServeOrClose<H: Handler> {
    Serve(ToServe<H>, Turn),
    Close(Box<Served<H>>, Closing),
}

impl<H: Handler + Send + 'static> Pool<H> {
    /// A pool of `parts.threads` threads, which serve nothing until they [`work`](Pool::work).
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn new(parts: StockParts<H>) -> io::Result<Arc<Pool<H>>> {
        let accept_state = AcceptState {
            listener_set: ListenerSet::new(parts.listeners, parts.admission)?,
            first: 0,
            ahead: Ahead::new(&parts.ranks, parts.ahead),
            cut: Ended::default(),
            made_room_ms: 0,
        };
        let threads = parts.threads.max(1);
        let stock =
            Stock::new(parts.make, parts.settings, threads, Arc::clone(parts.control.lingering()));
        let away = Away::new(&parts.control)?;
        Ok(Arc::new(Pool {
            stock: stock.in_order(parts.ranks, parts.answering, parts.jobs).with_away(away),
            control: parts.control,
            accept_state: Mutex::new(accept_state),
            free: AtomicUsize::new(threads),
        }))
    }

    /// Runs thread `number`, from beginning to end.
    pub fn work(&self, number: usize) -> Ended {
        let mut ended = Ended::default();
        let mut ran = None;
        while let Some((task, mut worker)) = self.next(ran.take()) {
            match task {
                ServeOrClose::Serve(served, turn) => {
                    let (control, began_ns) = (&self.control, clock::monotonic_ns());
                    let make_room = |worker: &Worker<H>| self.make_room(worker);
                    ended = ended
                        + self.stock.serve(&mut worker, served, control, Some(number), &make_room);
                    ran = Some((turn, clock::monotonic_ns().saturating_sub(began_ns)));
                }
                ServeOrClose::Close(served, closing) => {
                    self.stock.close(&mut worker, served, closing, &self.control);
                }
            }
            self.stock.give_back(worker);
            self.free.fetch_add(1, Relaxed);
        }
        let ended = ended + std::mem::take(&mut self.accept_state().cut) + self.stock.end_away();
        self.stock.clear();
        ended
    }

    /// Cuts the slowest reader if no thread is free and clients wait for one. Threads with slow
    /// readers call this, because no thread accepts then.
    fn make_room(&self, worker: &Worker<H>) {
        if self.free.load(Relaxed) > 0 {
            return;
        }
        let Ok(mut accept_state) = self.accept_state.try_lock() else { return };
        let AcceptState { listener_set, ahead, made_room_ms, .. } = &mut *accept_state;
        // the thread of the connection that was cut takes the next client a moment later
        let is_new = worker.now_ms() >= *made_room_ms + ROOM_MS;
        let waits = !ahead.is_empty() || self.stock.has_back();
        if is_new && (waits || listener_set.has_waiting()) {
            *made_room_ms = worker.now_ms();
            listener_set.make_room(worker);
        }
    }

    fn accept_state(&self) -> MutexGuard<'_, AcceptState<H>> {
        self.accept_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next connection and a worker for it; `None` when nothing more is accepted.
    /// `ran` is the time for which the thread had its last connection.
    fn next(&self, ran: Option<(Turn, u64)>) -> Option<(ServeOrClose<H>, Worker<H>)> {
        let mut accept_state = self.accept_state();
        if let Some((turn, ns)) = ran {
            accept_state.ahead.ran(turn, ns);
        }
        let mut worker = self.stock.take();
        let task = self.accept(&mut accept_state, &mut worker);
        self.free.fetch_sub(1, Relaxed);
        // while all threads serve, no thread accepts
        self.control.heartbeat_rests(0);
        if task.is_none() {
            self.stock.clear();
        }
        Some((task?, worker))
    }

    fn accept(
        &self,
        accept_state: &mut AcceptState<H>,
        worker: &mut Worker<H>,
    ) -> Option<ServeOrClose<H>> {
        let AcceptState { listener_set, first, ahead, cut, .. } = accept_state;
        loop {
            let order = self.control.order();
            if order == LoopOrder::Stop {
                *cut = *cut + ahead.cut(worker);
                return None;
            }
            let mut fds: Vec<_> = listener_set.sockets().collect();
            let listeners = fds.len();
            // after an order to end, only connections that are away come back
            let may_come = order == LoopOrder::Run || self.stock.has_away();
            let waits = ahead.is_empty() && may_come;
            let wait_ms = if waits { SLEEP_MS } else { 0 };
            fds.push(self.control.stronger_than(order).as_fd());
            fds.extend(self.stock.away_bell().map(|bell| bell.as_fd()));
            let ready = poll::wait_readable(&fds, wait_ms).unwrap_or_default();
            worker.read_clocks();
            self.control.heartbeat(0, worker.now_ms());
            worker.begin_turn();
            self.stock.keep_up(worker.now_ms());
            if order != LoopOrder::Run
                && let Some((served, closing)) = ahead.leave(listener_set, worker)
            {
                return Some(ServeOrClose::Close(served, closing));
            }
            if order != LoopOrder::Run {
                self.control.all_have_left();
            }
            if ready.get(listeners + 1).is_some_and(|&ready| ready) {
                self.stock.take_back().into_iter().for_each(|back| ahead.push_back(back));
            }
            *first += 1;
            let in_turn = (0..listeners).map(|at| (at + *first) % listeners);
            let mut is_exhausted = false;
            for index in in_turn.filter(|&at| ready.get(at).is_some_and(|&ready| ready)) {
                match ahead.fill(listener_set, index, 1, worker) {
                    AcceptStop::Nobody | AcceptStop::Full => {}
                    AcceptStop::Refused(served, closing) => {
                        return Some(ServeOrClose::Close(served, closing));
                    }
                    AcceptStop::Exhausted => is_exhausted = true,
                }
            }
            let mut next = ahead.pop(self.free.load(Relaxed), listener_set, worker);
            is_exhausted |= next.take_if(|next| matches!(next, NextAccepted::Exhausted)).is_some();
            if is_exhausted {
                if next.is_none() {
                    std::thread::sleep(Duration::from_millis(PAUSE_MS));
                }
                listener_set.take_reserve();
            }
            match next {
                Some(NextAccepted::Serve(served, turn)) => {
                    return Some(ServeOrClose::Serve(served, turn));
                }
                Some(NextAccepted::Refused(served, closing)) => {
                    return Some(ServeOrClose::Close(served, closing));
                }
                Some(NextAccepted::Exhausted) | None => {}
            }
            // all clients that were accepted ahead may have left
            if order != LoopOrder::Run && ahead.is_empty() && !self.stock.has_away() {
                return None;
            }
        }
    }
}
