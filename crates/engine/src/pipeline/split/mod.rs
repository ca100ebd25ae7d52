//! `fuse = "never"`: keta to the letter. Every boundary between two phases is a list, and every
//! phase has threads of its own.
//!
//! One more thread, the watcher, waits in epoll for listeners, idle connections and the other
//! sockets of requests, and puts what is ready into the lists; it also keeps the time and takes
//! orders.
//!
//! A connection itself is in the lists of receive and send, at most once in each. The list of
//! process has its requests, each on its own: one that waits to be answered, the job of one, or the
//! result of a job; and the connection itself before its handshake begins, in the order of the
//! ranks. While a connection has something to send, what has happened to its requests waits until
//! that is sent.
//!
//! A connection is locked by the thread that works on it. When the client takes nothing, a thread
//! of send stays with its connection for a while, in poll on the socket and the bell (`send.rs`),
//! and keeps it locked: with HTTP/1, nothing else could be done for it. Then, and where a
//! connection has other requests or other sockets at once, it goes back to the epoll until there is
//! room. So any other thread waits for the lock for a moment only, and clients that take nothing
//! hold no thread.

mod connection;
mod phases;
mod pipeline_connection;
mod send;
mod shaking;
mod slab;
mod watcher;

use super::lists::PhaseLists;
use super::{Counters, PipelineCore, PipelineSettings, Spawn, begin};
use crate::connection::accept::{Listener, ListenerSet};
use crate::connection::worker;
use crate::control::{Ended, EngineControl};
use crate::loops::sockets::Sockets;
use crate::loops::timer_wheel::Wheel;
use crate::order::early::Early;
use crate::room::admission::ConnectionAdmission;
use crate::room::idle::Idle;
use crate::straight::stock::{Make, Stock};
use forebay_conn::Handler;
use forebay_control::allocation::Phase;
use forebay_sys::epoll::Epoll;
use pipeline_connection::PipelineConnection;
use shaking::Shaking;
use slab::Slab;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use watcher::ReadinessWatcher;

/// The places for connections that are refused and closed at once, beside those that are counted.
const SPARE: usize = 64;

/// The phases, their threads and the watcher.
pub(super) struct Split<H: Handler> {
    shared: Arc<Shared<H>>,
    watcher: ReadinessWatcher<H>,
}

/// The state that all threads share.
struct Shared<H: Handler> {
    lists: Arc<PhaseLists<H::Job>>,
    slab: Slab<H>,
    epoll: Epoll,
    listener_set: RwLock<ListenerSet>,
    admission: Arc<ConnectionAdmission>,
    /// The listeners that rest, and until when.
    paused: Mutex<Vec<(usize, u64)>>,
    stock: Stock<H>,
    control: Arc<EngineControl>,
    time: Mutex<Time>,
    shaking: Shaking,
    idle: Mutex<Idle>,
    /// The other sockets that requests wait for.
    sockets: Mutex<Sockets>,
    ended: Mutex<Ended>,
    /// The time for which a thread of send stays with a client that takes nothing.
    send_wait_ms: u64,
}

/// The deadlines, and the time when the watcher looks at them next.
struct Time {
    wheel: Wheel,
    early: Early,
    next_ms: u64,
}

impl<H> Split<H>
where
    H: Handler + Send + 'static,
{
    /// The phases of a pipeline that accepts from these listeners.
    ///
    /// # Errors
    /// Lack of descriptors or memory.
    pub(super) fn new(
        core: PipelineCore<H>,
        listeners: Vec<Listener>,
        settings: &PipelineSettings,
    ) -> io::Result<Split<H>> {
        let PipelineCore { make, settings: live, admission, helpers, ranks, control, counters } =
            core;
        let now_ms = worker::read_clocks().monotonic_ms;
        let idle = Mutex::new(Idle::new(&ranks));
        let shared = Arc::new(Shared {
            lists: Arc::new(PhaseLists::new(settings.allocation.initial, ranks, helpers)),
            slab: Slab::new(settings.connections + SPARE),
            epoll: Epoll::new()?,
            listener_set: RwLock::new(ListenerSet::new(listeners, Arc::clone(&admission))?),
            admission,
            paused: Mutex::default(),
            stock: Stock::new(
                counted(make, counters),
                live,
                settings.allocation.most as usize,
                Arc::clone(control.lingering()),
            ),
            control,
            time: Mutex::new(Time {
                wheel: Wheel::new(now_ms),
                early: Early::default(),
                next_ms: now_ms,
            }),
            shaking: Shaking::default(),
            idle,
            sockets: Mutex::new(Sockets::shared()),
            ended: Mutex::default(),
            send_wait_ms: settings.send_wait_ms,
        });
        let watcher = ReadinessWatcher::new(Arc::clone(&shared))?;
        Ok(Split { shared, watcher })
    }

    /// The lists of the phases.
    pub(super) fn lists(&self) -> &Arc<PhaseLists<H::Job>> {
        &self.shared.lists
    }

    /// Begins a thread of a phase.
    pub(super) fn spawner(&self) -> Spawn {
        let shared = Arc::clone(&self.shared);
        Box::new(move |phase: Phase, worker_slot| {
            let of_thread = Arc::clone(&shared);
            begin(&shared.lists, phase, worker_slot, move || of_thread.work(phase, worker_slot))
        })
    }

    /// Serves until the last connection has ended after an order to end.
    ///
    /// # Errors
    /// When the kernel refuses to wait for events.
    pub(super) fn run(self) -> io::Result<Ended> {
        let Split { shared, watcher } = self;
        watcher.run()?;
        shared.lists.close();
        shared.lists.wait_for_threads();
        shared.stock.clear();
        let ended = *shared.ended();
        Ok(ended)
    }
}

/// Makes handlers whose counters are among those of the pipeline.
fn counted<H: Handler + 'static>(make: Make<H>, counters: Arc<Counters>) -> Make<H> {
    Box::new(move || {
        let (handler, metrics) = make();
        counters.add(&metrics);
        (handler, metrics)
    })
}

/// Bytes of a descriptor.
pub(super) const fn descriptor_bytes<H: Handler>() -> usize {
    size_of::<PipelineConnection<H>>()
}

impl<H: Handler> Shared<H> {
    fn time(&self) -> MutexGuard<'_, Time> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> MutexGuard<'_, Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sockets(&self) -> MutexGuard<'_, Sockets> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn paused(&self) -> MutexGuard<'_, Vec<(usize, u64)>> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the watcher.
    fn ring(&self) {
        self.control.bell(0).ring();
    }
}
