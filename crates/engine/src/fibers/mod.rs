//! The `fibers` engine: a stackful fiber per active connection, in straight-line code that switches
//! exactly where a wait begins (emu).
//!
//! * **Shape.** One scheduler thread per core, with listening sockets, connections, a worker and a
//!   pool of stacks of its own. When something comes for a connection at rest, the loop gives it a turn by a
//!   call. Where that ends in the middle of something, a fiber goes on with it in straight-line code until
//!   it is at rest again; then the fiber serves the next one for which something has come, or ends. So what
//!   need not wait switches to no other stack, and an idle connection costs what it costs in `event`.
//! * **What blocks where.** A fiber waits for its client or its job and lets others run meanwhile; when
//!   many wait already, the connection waits without one, and a fiber goes on with it (ADR 0025). The
//!   thread blocks only in `epoll_wait`. Jobs go to the helper threads and come back through
//!   the loop's mailbox. Fibers of a thread share its worker; none holds it across a wait, which
//!   `Wait` (`straight.rs`) makes the compiler check.
//! * **Queues and their limits.** The kernel's accept queue (the listener's backlog); fibers that
//!   are ready, first in, first out (at most one entry each); with classes, connections whose
//!   request waits to be answered, by rank, and with a send order those whose client takes more,
//!   which hold no fiber either; jobs (at most one per connection).
//! * **Code of the process.** The loop hosts fibers for handlers of a program, which may wait
//!   ([`forebay_fiber::begin`]). They wait by the scheduler's own epoll, which is in that of the
//!   loop from the first of them on, and wake their requests through the mailbox.
//! * **Run, retire and drain.** [`FiberLoop::run`] returns when [`EngineControl`] has ordered to retire or
//!   to drain and the last connection has ended, or, on a stop, when every fiber has let go of its
//!   connection.

mod accept;
mod connection;
mod order;
mod serving;
mod wait;

use crate::connection::accept::{ListenerSet, PAUSE_MS};
use crate::connection::worker::Worker;
use crate::control::{Ended, EngineControl, LoopOrder};
use crate::event::LoopParts;
use crate::helpers::{Helpers, JobRunner, Mailbox};
use crate::loops::accepting::Accepting;
use crate::loops::ready_queue::{Called, ReadyQueue};
use crate::loops::send_queue::SendQueue;
use crate::loops::sockets::Sockets;
use crate::loops::timer_wheel::Wheel;
use crate::loops::watched_listeners::{BELL, FIRST_LISTENER, SOCKETS, WatchedListeners};
use crate::order::early::Early;
use crate::order::ranks::Ranks;
use crate::room::admission::ConnectionAdmission;
use crate::room::idle::Idle;
use connection::FiberConnection;
use forebay_conn::{Handler, HandlerTypes as Roles, Job};
use forebay_fiber::{FiberId, Options, Scheduler};
use forebay_sys::epoll::{Epoll, Events};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The longest sleep of a loop, as the handler's [`turn`](Handler::turn) must be called now and
/// then.
const SLEEP_MS: u64 = 500;
/// The events that are taken from the kernel at a time.
const EVENTS: usize = 512;

/// Bytes of a fiber's stack. The code has been measured to use 22 KB, unoptimised, and 26 KB when a
/// handler panics and a backtrace is printed. Pages that are not touched take no memory.
const STACK_BYTES: usize = 128 * 1024;
/// The largest number of a loop's fibers that wait for a client or a job at the same time, and the
/// stacks that are kept for them; each keeps the two to five pages that it has ever used. A
/// connection at rest needs no fiber, and when this many wait already, no further waiting
/// connection has one.
const KEPT_STACKS: usize = 64;

/// The number of times that fibers which code of the process has begun are resumed after an order
/// to stop.
const LAST_ROUNDS: usize = 64;

/// The token of the scheduler's descriptor, beside the bell's.
const FIBERS: u64 = BELL - 1;

/// A loop of the `fibers` engine, ready to run.
pub struct FiberLoop<H: Handler, C = Helpers<<H as Roles>::Job>> {
    shared: Shared<H, C>,
    watched_listeners: WatchedListeners,
    index: usize,
}

/// A loop on its thread: a scheduler of fibers, and the events that start and wake them.
struct RunningLoop<H: Handler, C> {
    scheduler: Scheduler,
    /// The scheduler's descriptor is in the loop's epoll.
    is_watching_hosted: bool,
    shared: Rc<Shared<H, C>>,
    watched_listeners: WatchedListeners,
    /// A counter that distinguishes a connection from an earlier one in the same place.
    generation: u32,
    index: usize,
}

/// The state that the fibers of a loop share with it. No borrow of it lasts while a fiber waits.
struct Shared<H: Handler, C> {
    worker: RefCell<Worker<H>>,
    connections: RefCell<Slab<FiberConnection<H>>>,
    /// Connections at rest for which something has come.
    due: RefCell<VecDeque<u64>>,
    /// Connections whose request is there; `None` if nothing is ordered.
    ready_queue: RefCell<Option<ReadyQueue>>,
    is_ordered: bool,
    send_queue: RefCell<SendQueue>,
    idle: RefCell<Idle>,
    /// Fibers that the loop must wake.
    woken: RefCell<Vec<FiberId>>,
    /// The other sockets that requests wait for.
    sockets: RefCell<Sockets>,
    /// The number of requests of the ready queue that may still be called before the loop polls
    /// again.
    calls: Cell<usize>,
    /// The listener whose turn it is in the ready queue: the loop accepts from it.
    listener_called: Cell<Option<(usize, Called)>>,
    epoll: Epoll,
    wheel: RefCell<Wheel>,
    /// Connections whose fiber waits for the time from which a request may be answered.
    early: RefCell<Early>,
    /// The number of fibers that wait.
    waiting: Cell<usize>,
    ended: Cell<Ended>,
    mailbox: Arc<Mailbox<<H::Job as Job>::Done>>,
    helpers: C,
    ranks: Ranks,
    control: Arc<EngineControl>,
    admission: Arc<ConnectionAdmission>,
}

impl<H, C> FiberLoop<H, C>
where
    H: Handler + 'static,
    C: JobRunner<H::Job> + 'static,
{
    /// Makes a loop of the same parts as an `event` loop. The loop serves nothing until
    /// [`run`](FiberLoop::run).
    ///
    /// # Errors
    /// Lack of descriptors or memory.
    pub fn new(parts: LoopParts<H, C>) -> io::Result<FiberLoop<H, C>> {
        let epoll = Epoll::new()?;
        epoll.add_reader(parts.control.bell(parts.index), BELL)?;
        let listener_set = ListenerSet::new(parts.listeners, Arc::clone(&parts.admission))?;
        let watched_listeners = WatchedListeners::new(listener_set, &epoll)?;
        let worker = Worker::new(
            parts.handler,
            parts.settings,
            parts.metrics,
            Arc::clone(parts.control.lingering()),
        );
        let shared = Shared {
            wheel: RefCell::new(Wheel::new(worker.now_ms())),
            early: RefCell::default(),
            worker: RefCell::new(worker),
            connections: RefCell::default(),
            due: RefCell::default(),
            ready_queue: RefCell::new(ReadyQueue::new(&parts.ranks)),
            is_ordered: parts.ranks.is_ordered(),
            send_queue: RefCell::new(SendQueue::new(&parts.ranks)),
            idle: RefCell::new(Idle::new(&parts.ranks)),
            calls: Cell::new(0),
            listener_called: Cell::default(),
            woken: RefCell::default(),
            sockets: RefCell::default(),
            epoll,
            waiting: Cell::new(0),
            ended: Cell::default(),
            mailbox: Mailbox::new(Arc::clone(&parts.control), parts.index),
            helpers: parts.helpers,
            ranks: parts.ranks,
            control: parts.control,
            admission: parts.admission,
        };
        Ok(FiberLoop { shared, watched_listeners, index: parts.index })
    }

    /// Serves until the order to stop, or until all has ended after the order to drain.
    ///
    /// # Errors
    /// When the kernel refuses to wait for events, which nothing here can mend.
    pub fn run(self) -> io::Result<Ended> {
        let options = Options { stack_bytes: STACK_BYTES, kept_stacks: KEPT_STACKS };
        let scheduler = Scheduler::new(options);
        let _hosting = scheduler.host();
        self.shared.mailbox.is_at_home();
        let running = RunningLoop {
            scheduler,
            is_watching_hosted: false,
            shared: Rc::new(self.shared),
            watched_listeners: self.watched_listeners,
            generation: 0,
            index: self.index,
        };
        running.run()
    }
}

impl<H, C> RunningLoop<H, C>
where
    H: Handler + 'static,
    C: JobRunner<H::Job> + 'static,
{
    fn run(mut self) -> io::Result<Ended> {
        let mut events = Events::with_capacity(EVENTS);
        let mut due = Vec::new();
        loop {
            let sleep_ms = self.sleep_ms();
            if sleep_ms > 0 {
                self.shared.worker.borrow_mut().gather();
            }
            self.shared.epoll.wait(&mut events, sleep_ms)?;
            self.read_clocks();
            self.shared.worker.borrow_mut().begin_turn();
            let mut is_told = false;
            for ready in events.iter() {
                match ready.token {
                    BELL => {
                        // before the mailbox is emptied: a result that is posted after that rings
                        // the bell again
                        self.shared.control.bell(self.index).silence();
                        for (request, result) in self.shared.mailbox.take() {
                            self.job_done(request, result);
                        }
                    }
                    FIBERS => is_told = true,
                    token if token >= FIRST_LISTENER => {
                        self.arrived((token - FIRST_LISTENER) as usize);
                    }
                    token if token >= SOCKETS => self.socket_ready(token),
                    _ => self.ready(ready),
                }
            }
            self.serve_due();
            self.wake_early();
            self.look_at_hosted(is_told)?;
            self.scheduler.run_ready();
            self.wake_woken();
            // after all that is ready was received, so that the order is one among all of it
            self.send_in_order();
            self.answer_in_order();
            self.look_at_deadlines(&mut due);
            let now_ms = self.now_ms();
            self.watched_listeners.resume(&self.shared.epoll, now_ms);
            let order = self.shared.control.order();
            match order {
                LoopOrder::Run => {}
                LoopOrder::Retire => {
                    self.leave_listeners();
                    self.shared.control.has_left(self.index);
                }
                LoopOrder::Drain => self.begin_drain(),
                LoopOrder::Stop => break,
            }
            let is_last = self.shared.connections.borrow().is_empty();
            if order > LoopOrder::Run && is_last {
                break;
            }
        }
        Ok(self.stop())
    }

    /// Finds the fibers of handlers in this process whose wait is over. They wait for the kernel and
    /// for other threads, which the scheduler's descriptor reports, or for a time.
    fn look_at_hosted(&mut self, is_told: bool) -> io::Result<()> {
        let Some(descriptor) = self.scheduler.watched() else { return Ok(()) };
        let begins = !self.is_watching_hosted;
        if begins {
            self.shared.epoll.add_reader(descriptor, FIBERS)?;
            self.is_watching_hosted = true;
        }
        let is_due = || self.scheduler.wakes_at().is_some_and(|at| at <= Instant::now());
        if begins || is_told || is_due() { self.scheduler.look() } else { Ok(()) }
    }

    fn look_at_deadlines(&mut self, due: &mut Vec<u64>) {
        let now_ms = self.now_ms();
        self.shared.wheel.borrow_mut().advance(now_ms, due);
        for token in due.drain(..) {
            self.look_at_deadline(token, now_ms);
        }
        self.serve_due();
    }

    /// Reads the clocks, once per round for all fibers.
    fn read_clocks(&mut self) {
        let mut worker = self.shared.worker.borrow_mut();
        worker.read_clocks();
        self.shared.control.heartbeat(self.index, worker.now_ms());
        worker.observe(|| self.shared.admission.load());
    }

    fn now_ms(&self) -> u64 {
        self.shared.worker.borrow().now_ms()
    }

    fn sleep_ms(&self) -> u64 {
        let has_queue = self.shared.has_ready() || !self.shared.send_queue.borrow().is_empty();
        if self.scheduler.has_ready() || has_queue {
            return 0;
        }
        if self.shared.mailbox.has_woken() {
            return 0;
        }
        let most = if self.watched_listeners.any_rests() { PAUSE_MS } else { SLEEP_MS };
        let most = match self.scheduler.wakes_at() {
            // rounded up: rounded down, the loop would spin until the time has come
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                most.min(left.as_micros().div_ceil(1000).try_into().unwrap_or(SLEEP_MS))
            }
            None => most,
        };
        let now_ms = self.now_ms();
        let most = self.shared.early.borrow().sleep_ms(now_ms, most);
        self.shared.wheel.borrow().sleep_ms(now_ms, most)
    }

    /// Leaves the listeners, and ends what is idle.
    fn begin_drain(&mut self) {
        let was_draining = std::mem::replace(&mut self.shared.worker.borrow_mut().draining, true);
        if !was_draining {
            self.leave_listeners();
            self.end_idle();
            // what is under way is served to its end, and the client learns that the connection
            // closes
            self.wake_all();
        }
    }

    /// Lets every fiber see the order to stop, and closes what has none.
    fn stop(mut self) -> Ended {
        self.read_clocks();
        self.serve_all();
        while self.scheduler.alive() > self.scheduler.hosted() {
            self.wake_all();
            self.scheduler.run_ready();
        }
        // fibers that code of the process has begun know of the stop; those that go on all the same
        // are unwound
        for _ in 0..LAST_ROUNDS {
            if !self.scheduler.run_ready() {
                break;
            }
        }
        self.shared.worker.borrow_mut().begin_turn();
        self.shared.control.heartbeat_rests(self.index);
        self.shared.ended.get()
    }
}
