//! The `threads` engine: a new thread per connection, none kept (duke §III, emu's baseline).
//!
//! * **Shape.** One thread accepts; each connection gets a thread that serves it to its end in
//!   straight-line code and then ends itself. Workers (handler and buffers) are kept and reused;
//!   threads are not.
//! * **What blocks where.** The accepting thread in poll on listeners and bell; the others in poll
//!   on socket and bell, and in jobs, which they run themselves; with classes also until they may
//!   answer.
//! * **Queues and their limits.** At [`Parts::threads`] threads nothing more is accepted until
//!   one ends; connections wait in the kernel's accept queue meanwhile. With classes, threads whose
//!   request is there wait for a permit, by rank; with or without, those wait for one that have a job
//!   that waits for a device: see `permits.rs`.
//! * **Run and drain.** [`run`] returns when a drain was ordered and the last thread has ended, or
//!   when all have answered an order to stop.

use crate::accept::{Arrival, BATCH, DRAIN_BATCHES, Entrance, PAUSE_MS};
use crate::control::{Control, Ended, Order};
use crate::served::Served;
use crate::stock::{Parts, Stock};
use crate::worker::Worker;
use forebay_conn::{Closing, Handler};
use forebay_metrics::Counter;
use forebay_sys::poll;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The accepting thread looks at the order and the clock this often.
const SLEEP_MS: u64 = 500;

/// What the threads share.
struct Crew<H: Handler> {
    stock: Stock<H>,
    control: Arc<Control>,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    threads: usize,
    ended: Ended,
}

/// Serves until told to stop, or told to drain and everything has ended.
///
/// # Errors
/// Lack of descriptors at the start.
pub fn run<H>(parts: Parts<H>) -> io::Result<Ended>
where
    H: Handler + Send + 'static,
{
    let mut entrance = Entrance::new(parts.listeners, parts.admission)?;
    let control = Arc::clone(&parts.control);
    let crew = Arc::new(Crew {
        stock: Stock::new(parts.make, parts.settings, parts.threads)
            .in_order(parts.ranks, parts.jobs),
        control: Arc::clone(&control),
        state: Mutex::default(),
        ended: Condvar::new(),
    });
    let mut worker = crew.stock.take();
    while control.order() == Order::Run {
        let mut fds: Vec<_> = entrance.sockets().collect();
        fds.push(control.stronger_than(Order::Run).as_fd());
        let ready = poll::wait_readable(&fds, SLEEP_MS)?;
        worker.read_clocks();
        worker.begin_turn();
        crew.stock.keep_up(worker.now_ms());
        control.beat(0, worker.now_ms());
        for index in (0..ready.len() - 1).filter(|&index| ready[index]) {
            crew.accept(&mut entrance, index, &mut worker, parts.threads);
        }
    }
    control.beat_rests(0);
    for index in 0..entrance.sockets().count() {
        // bounded: clients that come back at once would keep it busy for ever
        for _ in 0..DRAIN_BATCHES {
            if !crew.accept(&mut entrance, index, &mut worker, parts.threads) {
                break;
            }
        }
    }
    drop((entrance, worker));
    let ended = crew.wait_for_all();
    crew.stock.clear();
    Ok(ended)
}

impl<H> Crew<H>
where
    H: Handler + Send + 'static,
{
    /// Accepts a batch; says whether more may be waiting.
    fn accept(
        self: &Arc<Self>,
        entrance: &mut Entrance,
        index: usize,
        worker: &mut Worker<H>,
        most: usize,
    ) -> bool {
        for _ in 0..BATCH {
            if !self.has_room(most) {
                return false;
            }
            match entrance.next(index, worker) {
                Arrival::Served(served) => self.spawn(served, None),
                Arrival::Refused(served, closing) => self.spawn(served, Some(closing)),
                Arrival::Gone => {}
                Arrival::Nobody => return false,
                Arrival::Exhausted => {
                    std::thread::sleep(Duration::from_millis(PAUSE_MS));
                    entrance.take_reserve();
                    return false;
                }
            }
        }
        true
    }

    /// Waits a moment for a thread to end if there are as many as there may be.
    fn has_room(&self, most: usize) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = Duration::from_millis(SLEEP_MS);
        let full = |state: &mut State| state.threads >= most.max(1);
        let waited = self.ended.wait_timeout_while(state, wait, full);
        waited.unwrap_or_else(PoisonError::into_inner).0.threads < most.max(1)
    }

    /// Serves, or closes, a connection on a thread of its own.
    fn spawn(self: &Arc<Self>, served: Served<H>, refused: Option<Closing>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).threads += 1;
        let crew = Arc::clone(self);
        let serve = move || {
            let mut worker = crew.stock.take();
            let ended = match refused {
                None => crew.stock.serve(&mut worker, served, &crew.control, None),
                Some(closing) => {
                    crew.stock.close(&mut worker, served, closing, &crew.control);
                    Ended::default()
                }
            };
            crew.stock.give_back(worker);
            crew.count_end(ended);
        };
        let thread = std::thread::Builder::new().name("connection".to_owned());
        if thread.spawn(serve).is_err() {
            // no thread to be had; the connection was dropped with the closure
            let worker = self.stock.take();
            worker.count(Counter::AcceptErrors);
            worker.count(Counter::Closed);
            self.stock.give_back(worker);
            self.count_end(Ended::default());
        }
    }

    fn count_end(&self, ended: Ended) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.threads -= 1;
        state.ended = state.ended + ended;
        self.ended.notify_all();
    }

    /// Until the last thread has ended.
    fn wait_for_all(&self) -> Ended {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = self.ended.wait_while(state, |state| state.threads > 0);
        ended.unwrap_or_else(PoisonError::into_inner).ended
    }
}
