//! Prepares the engine a plan names. Each loop or thread gets a handler and counters of its own; the
//! counters are kept in a register for whoever reports them.

use crate::config::Engine;
use crate::handler::FastLane;
use crate::listen::Listener;
use crate::log::Log;
use crate::plan::Plan;
use forebay_conn::Handler;
use forebay_engine::admission::Admission;
use forebay_engine::control::{Control, Ended};
use forebay_engine::event::{self, EventLoop};
use forebay_engine::helpers::Helpers;
use forebay_engine::settings::{Live, Settings};
use forebay_engine::{blocking, pool, threads, worker};
use forebay_metrics::{Local, Totals};
use forebay_site::{Content, Site};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Paths a loop finds without asking the shared cache, and a thread, of which there may be many.
const PATHS_OF_A_LOOP: usize = 4096;
const PATHS_OF_A_THREAD: usize = 128;

/// All counters of an engine: those of its loops and threads, and those of its helpers.
#[derive(Default)]
pub struct Register(Mutex<Vec<Arc<Local>>>);

impl Register {
    /// New counters.
    fn add(&self) -> Arc<Local> {
        let local = Arc::new(Local::default());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&local));
        local
    }

    /// What they add up to, with those of `helpers`.
    pub fn totals(&self, helpers: &[Local]) -> Totals {
        let locals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Totals::of(locals.iter().map(Arc::as_ref).chain(helpers))
    }
}

/// What engines are made of.
#[derive(Clone)]
pub struct Parts {
    /// What was configured.
    pub plan: Plan,
    /// Timeouts and bounds.
    pub settings: Arc<Live>,
    /// What is served.
    pub content: Arc<Content>,
    /// Where it is logged.
    pub log: Arc<Log>,
    /// Where orders come from.
    pub control: Arc<Control>,
    /// The count of connections.
    pub admission: Arc<Admission>,
    /// Where the counters are kept.
    pub register: Arc<Register>,
    /// Threads for jobs.
    pub helpers: Helpers<forebay_site::Job>,
}

/// A listening socket and the address it is bound to.
type Socket = (OwnedFd, SocketAddr);

/// How an engine's thread has ended: with its figures, or why it could not go on.
pub type Outcome = Result<Ended, String>;

/// A thread that is ready to run: it has all descriptors it needs. Clients come with the first one
/// that runs, and would take them.
pub struct Task {
    name: String,
    run: Box<dyn FnOnce() -> io::Result<Ended> + Send>,
}

impl Task {
    fn new(
        name: impl Into<String>,
        run: impl FnOnce() -> io::Result<Ended> + Send + 'static,
    ) -> Task {
        Task { name: name.into(), run: Box::new(run) }
    }

    /// Runs it on a thread of its own, which tells `tell` how it has ended.
    ///
    /// # Errors
    /// Lack of threads.
    pub fn spawn(self, tell: impl Fn(Outcome) + Send + 'static) -> io::Result<JoinHandle<()>> {
        let Task { name, run } = self;
        let run = move || {
            tell(match catch_unwind(AssertUnwindSafe(run)) {
                Ok(Ok(ended)) => Ok(ended),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("it panicked".to_owned()),
            });
        };
        std::thread::Builder::new().name(name).spawn(run)
    }
}

impl Parts {
    /// Prepares the engine's threads for these listeners.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn prepare(&self, listeners: Vec<Listener>) -> io::Result<Vec<Task>> {
        let mut entrances = by_entrance(listeners, self.plan.entrances).into_iter();
        match self.plan.engine {
            Engine::Event => entrances
                .enumerate()
                .map(|(index, listeners)| {
                    let event_loop = self.event_loop(index, listeners)?;
                    Ok(Task::new(format!("event-{index}"), move || event_loop.run()))
                })
                .collect(),
            Engine::Threads => {
                let parts = self.blocking(entrances.next());
                Ok(vec![Task::new("threads", || threads::run(parts))])
            }
            Engine::Pool => {
                let parts = self.blocking(entrances.next());
                Ok(vec![Task::new("pool", || pool::run(parts))])
            }
        }
    }

    fn event_loop(&self, index: usize, listeners: Vec<Socket>) -> io::Result<EventLoop<FastLane>> {
        let metrics = self.register.add();
        EventLoop::new(event::Parts {
            listeners,
            handler: self.handler(Arc::clone(&metrics), PATHS_OF_A_LOOP),
            settings: Arc::clone(&self.settings),
            admission: Arc::clone(&self.admission),
            helpers: self.helpers.clone(),
            control: Arc::clone(&self.control),
            index,
            metrics,
        })
    }

    fn blocking(&self, entrance: Option<Vec<Socket>>) -> blocking::Parts<FastLane> {
        let parts = self.clone();
        let make = move || {
            let metrics = parts.register.add();
            (parts.handler(Arc::clone(&metrics), PATHS_OF_A_THREAD), metrics)
        };
        blocking::Parts {
            listeners: entrance.unwrap_or_default(),
            make: Box::new(make),
            settings: Arc::clone(&self.settings),
            admission: Arc::clone(&self.admission),
            control: Arc::clone(&self.control),
            threads: self.plan.workers,
        }
    }

    fn handler(&self, metrics: Arc<Local>, paths: usize) -> FastLane {
        let now = worker::read_clocks();
        let site = Site::new(Arc::clone(&self.content), metrics, now, paths);
        FastLane::new(site, self.log.logger())
    }
}

/// Each entrance's sockets, with the addresses they are bound to.
fn by_entrance(listeners: Vec<Listener>, entrances: usize) -> Vec<Vec<Socket>> {
    let mut by_entrance: Vec<Vec<_>> = (0..entrances).map(|_| Vec::new()).collect();
    for Listener { address, sockets } in listeners {
        for (sockets_of_one, socket) in by_entrance.iter_mut().zip(sockets) {
            sockets_of_one.push((socket, address));
        }
    }
    by_entrance
}

/// Prepares to serve a handler of its own on one loop, apart from the engine: the admin listener.
///
/// # Errors
/// Lack of descriptors.
pub fn prepare_apart<H>(
    name: &str,
    listener: Listener,
    handler: H,
    control: Arc<Control>,
) -> io::Result<Task>
where
    H: Handler + Send + 'static,
    H::Body: Send,
    H::Line: Send,
    H::Job: Send,
{
    let event_loop = EventLoop::new(event::Parts {
        handler,
        listeners: by_entrance(vec![listener], 1).remove(0),
        settings: Arc::new(Live::new(Settings { sample: 0, ..Settings::default() })),
        admission: Admission::new(256, 256),
        helpers: Helpers::new(Arc::new([]), 0),
        control,
        index: 0,
        metrics: Arc::default(),
    })?;
    Ok(Task::new(name, move || event_loop.run()))
}
