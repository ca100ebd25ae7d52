//! The `threads` engine: a new thread per connection, none kept (duke §III, emu's baseline).
//!
//! * **Shape.** One thread accepts; each connection gets a thread that serves it to its end in
//!   straight-line code and then ends itself. Workers (handler and buffers) are kept and reused;
//!   threads are not.
//! * **What blocks where.** The accepting thread in poll on listeners and bell; the others in poll
//!   on socket and bell, and in jobs, which they run themselves; with classes also until they may
//!   answer.
//! * **Queues and their limits.** At [`StockParts::threads`] threads nothing more is accepted until
//!   one ends; connections wait in the kernel's accept queue meanwhile. With classes, as many as
//!   [`StockParts::ahead`] says are put in order when one ends: see `ahead.rs`. With classes,
//!   threads whose request is there wait for a permit, by rank. With or without classes, threads
//!   wait for a permit if they have a job that waits for a device: see `permits.rs`. A connection
//!   whose socket another process has keeps no thread, and gets a new one when it is back: see
//!   `away.rs`.
//! * **Run and drain.** [`Threads::run`] returns when a drain was ordered and the last thread has ended, or
//!   when all have answered an order to stop.

use crate::connection::accept::{BATCH, ListenerSet, PAUSE_MS};
use crate::connection::served::Served;
use crate::connection::worker::Worker;
use crate::control::{Ended, EngineControl, LoopOrder};
use crate::straight::ahead::{AcceptStop, Ahead, NextAccepted};
use crate::straight::away::{Away, ToServe};
use crate::straight::stock::{Stock, StockParts};
use crate::watch::TurnStopwatch;
use forebay_conn::{Closing, Handler};
use forebay_control::ranked::Turn;
use forebay_metrics::{Activity, Counter, Stopwatch};
use forebay_sys::{clock, poll};
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The interval at which the accepting thread looks at the order and the clock.
const SLEEP_MS: u64 = 500;

/// The state that the threads share.
struct ThreadGroup<H: Handler> {
    stock: Stock<H>,
    control: Arc<EngineControl>,
    state: Mutex<ThreadGroupState>,
    ended: Condvar,
    /// The largest number of threads at once.
    most: usize,
}

#[derive(Default)]
struct ThreadGroupState {
    threads: usize,
    ended: Ended,
    /// The times for which connections have had their threads, until the accepting thread takes
    /// them over.
    ran: Vec<(Turn, u64)>,
}

/// A connection to serve, or one to close, on a thread of its own.
enum ServeOrClose<H: Handler> {
    Serve(ToServe<H>, Turn),
    Close(Box<Served<H>>, Closing),
}

/// The thread that accepts.
struct Acceptor<H: Handler> {
    job_runner: Arc<ThreadGroup<H>>,
    listener_set: ListenerSet,
    ahead: Ahead<H>,
    worker: Worker<H>,
    /// The listener that is looked at first; it moves on, so that each comes first in turn.
    first: usize,
    /// The number of threads begun so far; the beginning of some is timed.
    begun: u32,
}

/// The engine, ready to run: it has all descriptors that it needs.
pub struct Threads<H: Handler>(Acceptor<H>);

impl<H> Threads<H>
where
    H: Handler + Send + 'static,
{
    /// An engine that serves nothing until [`run`](Threads::run).
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn new(parts: StockParts<H>) -> io::Result<Threads<H>> {
        let listener_set = ListenerSet::new(parts.listeners, parts.admission)?;
        let ahead = Ahead::new(&parts.ranks, parts.ahead);
        let stock = Stock::new(
            parts.make,
            parts.settings,
            parts.threads,
            Arc::clone(parts.control.lingering()),
        );
        let away = Away::new(&parts.control)?;
        let job_runner = Arc::new(ThreadGroup {
            stock: stock.in_order(parts.ranks, parts.answering, parts.jobs).with_away(away),
            control: parts.control,
            state: Mutex::default(),
            ended: Condvar::new(),
            most: parts.threads.max(1),
        });
        let worker = job_runner.stock.take();
        let (first, begun) = (0, 0);
        Ok(Threads(Acceptor { job_runner, listener_set, ahead, worker, first, begun }))
    }

    /// Serves until the order to stop, or until all has ended after the order to drain.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn run(self) -> io::Result<Ended> {
        let Threads(mut acceptor) = self;
        let job_runner = Arc::clone(&acceptor.job_runner);
        while job_runner.control.order() == LoopOrder::Run {
            acceptor.turn()?;
        }
        job_runner.control.heartbeat_rests(0);
        let cut = acceptor.leave();
        let ended = job_runner.wait_for_all() + job_runner.stock.end_away();
        job_runner.stock.clear();
        Ok(ended + cut)
    }
}

impl<H> Acceptor<H>
where
    H: Handler + Send + 'static,
{
    /// Waits for connections while there is room for them, and begins threads for the first of
    /// those that have come.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    fn turn(&mut self) -> io::Result<()> {
        self.make_room();
        let free = self.wait_for_room();
        let control = &self.job_runner.control;
        let mut fds: Vec<_> = self.listener_set.sockets().collect();
        let listeners = fds.len();
        fds.push(control.stronger_than(LoopOrder::Run).as_fd());
        fds.extend(self.job_runner.stock.away_bell().map(|bell| bell.as_fd()));
        let wait_ms = if free > 0 && self.ahead.is_empty() { SLEEP_MS } else { 0 };
        let ready = poll::wait_readable(&fds, wait_ms)?;
        self.worker.read_clocks();
        self.worker.begin_turn();
        self.job_runner.stock.keep_up(self.worker.now_ms());
        control.heartbeat(0, self.worker.now_ms());
        if ready.get(listeners + 1) == Some(&true) {
            self.take_back();
        }
        self.first += 1;
        let in_turn = (0..listeners).map(|at| (at + self.first) % listeners);
        let indexes: Vec<_> = in_turn.filter(|&index| ready[index]).collect();
        let left = indexes.into_iter().fold(free, |free, index| self.accept(index, free).0);
        self.begin(left);
        Ok(())
    }

    /// Accepts a batch from listener `index` if threads are free. Returns how many are free then,
    /// for connections that are refused need one at once, and whether more may be waiting.
    fn accept(&mut self, index: usize, mut free: usize) -> (usize, bool) {
        while free > 0 {
            let Acceptor { listener_set, ahead, worker, .. } = self;
            match ahead.fill(listener_set, index, free.min(BATCH), worker) {
                AcceptStop::Refused(served, closing) => {
                    self.spawn(ServeOrClose::Close(served, closing));
                    free -= 1;
                }
                AcceptStop::Full => return (free, true),
                AcceptStop::Nobody => return (free, false),
                AcceptStop::Exhausted => {
                    if self.ahead.is_empty() {
                        std::thread::sleep(Duration::from_millis(PAUSE_MS));
                    }
                    self.listener_set.take_reserve();
                    return (free, false);
                }
            }
        }
        (0, true)
    }

    /// Takes back connections whose sockets another process had.
    fn take_back(&mut self) {
        let back = self.job_runner.stock.take_back();
        back.into_iter().for_each(|back| self.ahead.push_back(back));
    }

    /// Begins a thread for each of the first `free` connections.
    fn begin(&mut self, free: usize) {
        for free in (1..=free).rev() {
            let task = match self.ahead.pop(free, &self.listener_set, &mut self.worker) {
                Some(NextAccepted::Serve(served, turn)) => ServeOrClose::Serve(served, turn),
                Some(NextAccepted::Refused(served, closing)) => {
                    ServeOrClose::Close(served, closing)
                }
                Some(NextAccepted::Exhausted) => {
                    std::thread::sleep(Duration::from_millis(PAUSE_MS));
                    self.listener_set.take_reserve();
                    break;
                }
                None => break,
            };
            self.spawn(task);
        }
    }

    /// Begins a thread for a connection.
    fn spawn(&mut self, task: ServeOrClose<H>) {
        let Worker { settings, metrics, .. } = &self.worker;
        self.begun = self.begun.wrapping_add(1);
        let sampled = settings.sample != 0 && self.begun.is_multiple_of(settings.sample);
        let mut watch = TurnStopwatch::new(metrics, sampled);
        self.job_runner.spawn(task);
        watch.lap(Activity::Thread);
    }

    /// Cuts the slowest reader if no more threads may begin and clients wait for one.
    fn make_room(&self) {
        let waits = || !self.ahead.is_empty() || self.listener_set.has_waiting();
        if !self.job_runner.has_room() && waits() {
            self.listener_set.make_room(&self.worker);
        }
    }

    /// Waits a moment for a thread to end if there are as many as there may be. Returns how many
    /// more there may be.
    fn wait_for_room(&mut self) -> usize {
        let ThreadGroup { state, ended, most, .. } = &*self.job_runner;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = Duration::from_millis(SLEEP_MS);
        let waited = ended.wait_timeout_while(state, wait, |state| state.threads >= *most);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        for (turn, ns) in state.ran.drain(..) {
            self.ahead.ran(turn, ns);
        }
        most.saturating_sub(state.threads)
    }

    /// Waits, in a drain, until a thread has ended, a connection is back, or there is another
    /// order; or for a moment.
    fn wait_for_end(&self) {
        let ThreadGroup { control, stock, .. } = &*self.job_runner;
        let mut fds = vec![control.stronger_than(control.order()).as_fd()];
        fds.extend(stock.away_bell().map(|bell| bell.as_fd()));
        let _ = poll::wait_readable(&fds, SLEEP_MS);
    }

    /// Takes what the listeners have queued, and closes them. Returns when all connections have a
    /// thread and none is away, or all are cut.
    fn leave(mut self) -> Ended {
        while let Some((served, closing)) =
            self.ahead.leave(&mut self.listener_set, &mut self.worker)
        {
            match self.job_runner.has_room() {
                true => self.spawn(ServeOrClose::Close(served, closing)),
                false => self.worker.close(*served, Closing::Now),
            }
        }
        self.job_runner.control.all_have_left();
        loop {
            // threads first, then those that are away: a connection moves from a thread to there
            let is_busy = self.job_runner.is_busy();
            self.take_back();
            if self.job_runner.control.order() == LoopOrder::Stop {
                return self.ahead.cut(&mut self.worker);
            }
            if !self.ahead.is_empty() {
                let free = self.wait_for_room();
                self.begin(free);
            } else if is_busy || self.job_runner.stock.has_away() {
                self.wait_for_end();
            } else {
                return Ended::default();
            }
        }
    }
}

impl<H> ThreadGroup<H>
where
    H: Handler + Send + 'static,
{
    /// Serves, or closes, a connection on a thread of its own.
    fn spawn(self: &Arc<Self>, task: ServeOrClose<H>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).threads += 1;
        let turn = match &task {
            ServeOrClose::Serve(_, turn) => Some(*turn),
            ServeOrClose::Close(..) => None,
        };
        let job_runner = Arc::clone(self);
        let serve = move || {
            let mut worker = job_runner.stock.take();
            let began_ns = clock::monotonic_ns();
            let ended = match task {
                ServeOrClose::Serve(served, _) => {
                    job_runner.stock.serve(&mut worker, served, &job_runner.control, None, &|_| ())
                }
                ServeOrClose::Close(served, closing) => {
                    job_runner.stock.close(&mut worker, served, closing, &job_runner.control);
                    Ended::default()
                }
            };
            job_runner.stock.give_back(worker);
            job_runner.count_end(ended, turn, clock::monotonic_ns().saturating_sub(began_ns));
        };
        let thread = std::thread::Builder::new().name("connection".to_owned());
        if thread.spawn(serve).is_err() {
            // no thread could be started; the connection was dropped with the closure
            let worker = self.stock.take();
            worker.count(Counter::AcceptErrors);
            worker.count(Counter::Closed);
            self.stock.give_back(worker);
            self.count_end(Ended::default(), turn, 0);
        }
    }

    /// Whether any thread has a connection.
    fn is_busy(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).threads > 0
    }

    fn has_room(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).threads < self.most
    }

    /// Counts the end of a thread, which had a connection for this long.
    fn count_end(&self, ended: Ended, turn: Option<Turn>, ns: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.threads -= 1;
        state.ended = state.ended + ended;
        state.ran.extend(turn.map(|turn| (turn, ns)));
        self.ended.notify_all();
        drop(state);
        if self.control.order() != LoopOrder::Run
            && let Some(bell) = self.stock.away_bell()
        {
            bell.ring();
        }
    }

    /// Waits until the last thread has ended.
    fn wait_for_all(&self) -> Ended {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = self.ended.wait_while(state, |state| state.threads > 0);
        ended.unwrap_or_else(PoisonError::into_inner).ended
    }
}
