//! The `event` engine: one loop per core, readiness based.
//!
//! * **Shape.** Each loop owns its listening sockets, its connections, one receive buffer, one
//!   buffer for answers and one handler. Nothing on the way of a cache hit is shared with another
//!   loop.
//! * **What blocks where.** A loop blocks only in `epoll_wait`. Jobs go to the helper threads and
//!   come back through the loop's mailbox.
//! * **Queues and their limits.** The kernel's accept queue (the listener's backlog); connections
//!   that used up their turn, with classes those whose request waits to be answered, and with a
//!   send order those whose client takes more (at most one entry each); handshakes that have not
//!   begun (bounded: a connection that comes later is refused); jobs (at most one per connection).
//! * **Run, retire and drain.** [`EventLoop::run`] returns when [`EngineControl`] has ordered to retire or
//!   to drain and the last connection has ended, or at once on a stop.

mod accept;
mod connection;
mod order;

use crate::connection::accept::{Listener, ListenerSet, PAUSE_MS};
use crate::connection::worker::Worker;
use crate::control::{Ended, EngineControl, LoopOrder};
use crate::helpers::{Helpers, JobRunner, Mailbox};
use crate::loops::accepting::Accepting;
use crate::loops::send_queue::SendQueue;
use crate::loops::sockets::Sockets;
use crate::loops::timer_wheel::Wheel;
use crate::loops::watched_listeners::{BELL, FIRST_LISTENER, SOCKETS, WatchedListeners};
use crate::order::ranks::Ranks;
use crate::room::admission::ConnectionAdmission;
use crate::room::idle::Idle;
use crate::settings::LiveSettings;
use connection::LoopConnection;
use forebay_conn::{Closing, Handler, HandlerTypes as Roles, Job};
use forebay_metrics::Local;
use forebay_sys::epoll::{Epoll, Events, ReadyDescriptor};
use order::UnansweredRequests;
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// The longest sleep of a loop, as the handler's [`turn`](Handler::turn) must be called now and
/// then.
const SLEEP_MS: u64 = 500;
/// The events that are taken from the kernel at a time.
const EVENTS: usize = 512;

/// The largest number of handshakes that wait for their turn, about a second's work. A client that
/// comes then is refused before it costs anything.
pub(crate) const MOST_SHAKING: usize = 4096;

/// Everything a loop is made of.
pub struct LoopParts<H: Handler, C> {
    /// The listening sockets of the loop.
    pub listeners: Vec<Listener>,
    /// The handler, which knows the answers.
    pub handler: H,
    /// Timeouts and bounds.
    pub settings: Arc<LiveSettings>,
    /// The count of connections, shared by all loops.
    pub admission: Arc<ConnectionAdmission>,
    /// The threads for jobs, shared by all loops.
    pub helpers: C,
    /// The order of service.
    pub ranks: Ranks,
    /// The orders to the engine.
    pub control: Arc<EngineControl>,
    /// The number of this loop, and of its bell in the control.
    pub index: usize,
    /// The loop's counters.
    pub metrics: Arc<Local>,
}

/// A loop of the `event` engine, with a job runner for its jobs.
pub struct EventLoop<H: Handler, C = Helpers<<H as Roles>::Job>> {
    epoll: Epoll,
    watched_listeners: WatchedListeners,
    connections: Slab<LoopConnection<H>>,
    /// The other sockets that the connections' requests wait for.
    sockets: Sockets,
    /// A counter that distinguishes a connection from an earlier one in the same place.
    generation: u32,
    /// Connections that can go on but have used up their turn.
    yielded: VecDeque<u64>,
    /// Connections whose handshakes have not begun: those of clients of the first rank, and others.
    shaking: [VecDeque<u64>; 2],
    wheel: Wheel,
    ended: Ended,
    worker: Worker<H>,
    mailbox: Arc<Mailbox<<H::Job as Job>::Done>>,
    helpers: C,
    ranks: Ranks,
    waiting: UnansweredRequests,
    send_queue: SendQueue,
    idle: Idle,
    control: Arc<EngineControl>,
    index: usize,
}

impl<H: Handler, C: JobRunner<H::Job>> EventLoop<H, C> {
    /// Makes a loop; it serves nothing until [`run`](EventLoop::run).
    ///
    /// # Errors
    /// Lack of descriptors or memory.
    pub fn new(parts: LoopParts<H, C>) -> io::Result<EventLoop<H, C>> {
        let epoll = Epoll::new()?;
        epoll.add_reader(parts.control.bell(parts.index), BELL)?;
        let watched_listeners =
            WatchedListeners::new(ListenerSet::new(parts.listeners, parts.admission)?, &epoll)?;
        let worker = Worker::new(
            parts.handler,
            parts.settings,
            parts.metrics,
            Arc::clone(parts.control.lingering()),
        );
        Ok(EventLoop {
            epoll,
            watched_listeners,
            connections: Slab::new(),
            sockets: Sockets::default(),
            generation: 0,
            yielded: VecDeque::new(),
            shaking: Default::default(),
            wheel: Wheel::new(worker.now_ms()),
            ended: Ended::default(),
            worker,
            mailbox: Mailbox::new(Arc::clone(&parts.control), parts.index),
            helpers: parts.helpers,
            waiting: UnansweredRequests::new(&parts.ranks),
            send_queue: SendQueue::new(&parts.ranks),
            idle: Idle::new(&parts.ranks),
            ranks: parts.ranks,
            control: parts.control,
            index: parts.index,
        })
    }

    /// Serves until the order to stop, or until all has ended after the order to drain.
    ///
    /// # Errors
    /// When the kernel refuses to wait for events, which nothing here can mend.
    pub fn run(mut self) -> io::Result<Ended> {
        let mut events = Events::with_capacity(EVENTS);
        let mut due = Vec::new();
        loop {
            let sleep_ms = self.sleep_ms();
            if sleep_ms > 0 {
                self.worker.gather();
            }
            self.epoll.wait(&mut events, sleep_ms)?;
            self.worker.read_clocks();
            self.worker.begin_turn();
            self.control.heartbeat(self.index, self.worker.now_ms());
            self.worker.observe(|| self.watched_listeners.load());
            self.begin_handshakes();
            for ready in events.iter() {
                match ready.token {
                    BELL => {
                        // before the mailbox is emptied: a result that is posted after that rings
                        // the bell again
                        self.control.bell(self.index).silence();
                        for (request, result) in self.mailbox.take() {
                            self.job_done(request, result);
                        }
                        for request in self.mailbox.take_woken() {
                            self.woken(request);
                        }
                    }
                    token if token >= FIRST_LISTENER => {
                        self.arrived((token - FIRST_LISTENER) as usize);
                    }
                    token if token >= SOCKETS => self.socket_ready(token),
                    _ => self.ready(ready),
                }
            }
            // as many as there are now: one that yields again waits for the next round, after new
            // events
            for _ in 0..self.yielded.len() {
                if let Some(token) = self.yielded.pop_front() {
                    self.take_turn(token, None);
                }
            }
            // after all that is ready was received, so that the order is one among all of it
            self.send_in_order();
            self.answer_early();
            self.answer_in_order();
            self.wheel.advance(self.worker.now_ms(), &mut due);
            for token in due.drain(..) {
                self.look_at_deadline(token);
            }
            self.watched_listeners.resume(&self.epoll, self.worker.now_ms());
            let order = self.control.order();
            match order {
                LoopOrder::Run => {}
                LoopOrder::Retire => {
                    self.leave_listeners();
                    self.control.has_left(self.index);
                }
                LoopOrder::Drain => self.begin_drain(),
                LoopOrder::Stop => break,
            }
            if order > LoopOrder::Run && self.connections.is_empty() {
                break;
            }
        }
        Ok(self.stop())
    }

    fn sleep_ms(&self) -> u64 {
        let is_shaking = self.shaking.iter().any(|waiting| !waiting.is_empty());
        let has_queue = self.waiting.has_work() || !self.send_queue.is_empty();
        if !self.yielded.is_empty() || is_shaking || has_queue {
            return 0;
        }
        let most = if self.watched_listeners.any_rests() { PAUSE_MS } else { SLEEP_MS };
        let most = self.waiting.early.sleep_ms(self.worker.now_ms(), most);
        self.wheel.sleep_ms(self.worker.now_ms(), most)
    }

    /// Begins as many handshakes as a turn has room for, those that have waited longest first.
    fn begin_handshakes(&mut self) {
        for class in 0..self.shaking.len() {
            while self.worker.handshakes[class] > 0
                && let Some(token) = self.shaking[class].pop_front()
            {
                self.take_turn(token, None);
            }
        }
    }

    /// Leaves the listeners, ends idle connections, and has others announce the end to their
    /// clients where the protocol can.
    fn begin_drain(&mut self) {
        if std::mem::replace(&mut self.worker.draining, true) {
            return;
        }
        self.leave_listeners();
        let told: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.hears_of_drain())
            .map(|(_, connection)| connection.token)
            .collect();
        // A request may have arrived since the last look, so a turn ends what is really idle.
        for token in told {
            self.ready(ReadyDescriptor {
                token,
                readable: true,
                writable: false,
                ended: false,
                broken: false,
            });
        }
    }

    fn stop(mut self) -> Ended {
        let open: Vec<_> =
            self.connections.iter().map(|(_, open)| (open.token, open.awaits())).collect();
        for (token, awaited) in open {
            self.ended.abort(awaited);
            self.close(token, Closing::Reset);
        }
        self.worker.read_clocks();
        self.worker.begin_turn();
        self.control.heartbeat_rests(self.index);
        self.ended
    }

    /// The place of the connection with this token, if it is still there.
    fn key(&self, token: u64) -> Option<usize> {
        let key = (token & 0xffff_ffff) as usize;
        self.connections.get(key).filter(|connection| connection.token == token).map(|_| key)
    }
}

/// The bytes of a connection in its loop's slab.
pub(crate) const fn descriptor_bytes<H: Handler>() -> usize {
    size_of::<LoopConnection<H>>()
}
