//! The `pool` engine: a fixed number of threads, each of which accepts under a mutex (duke §III).
//!
//! * **Shape.** Each thread waits for the mutex, accepts one connection, lets the next thread have
//!   the mutex, serves the connection to its end in straight-line code, and comes back.
//! * **What blocks where.** One thread in poll on listeners and bell, with the mutex; others at the
//!   mutex, in poll on their socket and the bell, or in jobs, which they run themselves; with classes
//!   also until they may answer.
//! * **Queues and their limits.** Connections that no thread is free for wait in the kernel's accept
//!   queue, whatever their class: nobody knows it yet. With classes, threads whose request is there
//!   wait for a permit, by rank; with or without, those wait for one that have a job that waits for a
//!   device: see `permits.rs`.
//! * **Beats.** Whoever has the mutex shows that it turns, and so do threads that serve; those that wait
//!   for a client, or are in a job, need not.
//! * **Run and drain.** [`run`] returns when a drain was ordered and all threads are free, or when
//!   all have answered an order to stop.

use crate::accept::{Arrival, Entrance, PAUSE_MS};
use crate::control::{Control, Ended, Order};
use crate::served::Served;
use crate::stock::{Parts, Stock};
use crate::worker::Worker;
use forebay_conn::{Closing, Handler};
use forebay_sys::poll;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The accepting thread looks at the order and the clock this often.
const SLEEP_MS: u64 = 500;

struct Pool<H: Handler> {
    stock: Stock<H>,
    control: Arc<Control>,
    /// With the listener that is looked at first, so that each comes first in turn.
    entrance: Mutex<(Entrance, usize)>,
}

/// A connection somebody came with, or how it is to be closed.
enum Task<H: Handler> {
    Serve(Served<H>),
    Close(Served<H>, Closing),
}

/// Serves until told to stop, or told to drain and everything has ended.
///
/// # Errors
/// Lack of descriptors or threads at the start.
pub fn run<H>(parts: Parts<H>) -> io::Result<Ended>
where
    H: Handler + Send,
{
    let pool = Pool {
        stock: Stock::new(parts.make, parts.settings, parts.threads)
            .in_order(parts.ranks, parts.jobs),
        control: parts.control,
        entrance: Mutex::new((Entrance::new(parts.listeners, parts.admission)?, 0)),
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..parts.threads.max(1))
            .map(|number| {
                let thread = std::thread::Builder::new().name(format!("pool-{number}"));
                let pool = &pool;
                thread.spawn_scoped(scope, move || pool.work(number))
            })
            .collect::<Result<_, _>>()
            .inspect_err(|_| pool.control.give(Order::Stop))?;
        let ended = threads.into_iter().filter_map(|thread| thread.join().ok());
        Ok(ended.fold(Ended::default(), |sum, ended| sum + ended))
    })
}

impl<H: Handler> Pool<H> {
    /// Thread `number`, from begin to end.
    fn work(&self, number: usize) -> Ended {
        let mut ended = Ended::default();
        while let Some((task, mut worker)) = self.next() {
            match task {
                Task::Serve(served) => {
                    let control = &self.control;
                    ended = ended + self.stock.serve(&mut worker, served, control, Some(number));
                }
                Task::Close(served, closing) => {
                    self.stock.close(&mut worker, served, closing, &self.control);
                }
            }
            self.stock.give_back(worker);
        }
        ended
    }

    /// The next connection and a worker for it, or `None` when nothing more is accepted.
    fn next(&self) -> Option<(Task<H>, Worker<H>)> {
        let mut guard = self.entrance.lock().unwrap_or_else(PoisonError::into_inner);
        let (entrance, first) = &mut *guard;
        let mut worker = self.stock.take();
        let task = self.accept(entrance, first, &mut worker);
        // while all threads serve, nobody accepts
        self.control.beat_rests(0);
        if task.is_none() {
            self.stock.clear();
        }
        Some((task?, worker))
    }

    fn accept(
        &self,
        entrance: &mut Entrance,
        first: &mut usize,
        worker: &mut Worker<H>,
    ) -> Option<Task<H>> {
        loop {
            let order = self.control.order();
            if order == Order::Stop {
                return None;
            }
            let mut fds: Vec<_> = entrance.sockets().collect();
            let listeners = fds.len();
            // in a drain only what is queued is taken
            let wait_ms = if order == Order::Run { SLEEP_MS } else { 0 };
            fds.push(self.control.stronger_than(order).as_fd());
            let ready = poll::wait_readable(&fds, wait_ms).unwrap_or_default();
            worker.read_clocks();
            self.control.beat(0, worker.now_ms());
            worker.begin_turn();
            self.stock.keep_up(worker.now_ms());
            *first += 1;
            let index = (0..listeners)
                .map(|at| (at + *first) % listeners)
                .find(|&at| ready.get(at).is_some_and(|&ready| ready));
            match index.map(|index| entrance.next(index, worker)) {
                Some(Arrival::Served(served)) => return Some(Task::Serve(served)),
                Some(Arrival::Refused(served, closing)) => {
                    return Some(Task::Close(served, closing));
                }
                Some(Arrival::Exhausted) => {
                    std::thread::sleep(Duration::from_millis(PAUSE_MS));
                    entrance.take_reserve();
                }
                Some(Arrival::Gone) => {}
                Some(Arrival::Nobody) | None if order == Order::Run => {}
                Some(Arrival::Nobody) | None => {
                    entrance.close();
                    return None;
                }
            }
        }
    }
}
