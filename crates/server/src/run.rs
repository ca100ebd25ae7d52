//! A configuration in, a running server out; it returns when the server has stopped.
//!
//! Order at start: descriptors, sockets, content, log, loops, admin listener. At the end the same
//! backwards. Signals arrive here, and only here.

use crate::admin::{Admin, Snapshot, Source};
use crate::config::Config;
use crate::config::choice::Word;
use crate::handler::FastLane;
use crate::listen::{self, ListenError, Listener};
use crate::log::{Log, LogError};
use crate::plan::Plan;
use crossbeam_channel::{Receiver, Sender, never, unbounded};
use forebay_conn::Handler;
use forebay_engine::admission::Admission;
use forebay_engine::control::{Control, Ended, Order};
use forebay_engine::event::{EventLoop, Parts};
use forebay_engine::helpers::Helpers;
use forebay_engine::settings::Settings;
use forebay_engine::worker;
use forebay_metrics::{Gauge, Local, Totals};
use forebay_site::{Content, OpenError, Site};
use forebay_sys::{clock, process};
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io};

/// How long the last lines of the access log may take to be written.
const LOG_CLOSE: Duration = Duration::from_secs(2);

/// A signal this soon after the one that began the drain is the same one: `timeout` and some shells
/// send it to the process and to its group.
const SAME_SIGNAL: Duration = Duration::from_millis(250);

/// Why a server could not start, or did not end well.
#[derive(Debug)]
pub enum RunError {
    /// An address cannot be listened on.
    Listen(ListenError),
    /// The content cannot be served.
    Content(OpenError),
    /// The access log cannot be written.
    Log(LogError),
    /// The machine has no room for what a server needs: descriptors, threads, memory.
    Resources {
        /// What was wanted.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// A loop has ended although nobody told it to.
    LoopEnded {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Listen(error) => error.fmt(f),
            RunError::Content(error) => error.fmt(f),
            RunError::Log(error) => error.fmt(f),
            RunError::Resources { what, error } => write!(f, "cannot get {what}: {error}"),
            RunError::LoopEnded { reason } => {
                write!(f, "a loop has ended by itself ({reason}); the server stopped with it")
            }
        }
    }
}

impl std::error::Error for RunError {}

fn resources(what: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |error| RunError::Resources { what, error }
}

/// What the main thread waits for.
enum Event {
    Signal(i32),
    Ended(Result<Ended, String>),
}

/// The parts of a running server that its main thread holds.
struct Server {
    control: Arc<Control>,
    loops: Vec<JoinHandle<()>>,
    admin: Option<(Arc<Control>, JoinHandle<()>)>,
    admission: Arc<Admission>,
    log: Arc<Log>,
    drain: Duration,
    events: Receiver<Event>,
}

/// Serves what `config` says until a signal ends it.
///
/// # Errors
/// What is in the way at the start, or how a loop failed.
pub fn run(config: &Config) -> Result<(), RunError> {
    // signals wait for somebody to listen before there is anything they could interrupt
    let (to_main, events) = unbounded();
    listen_for_signals(to_main.clone()).map_err(resources("a thread for signals"))?;
    let server = Server::start(config, to_main, events)?;
    server.serve()
}

impl Server {
    fn start(
        config: &Config,
        to_main: Sender<Event>,
        events: Receiver<Event>,
    ) -> Result<Server, RunError> {
        let descriptors = process::raise_descriptor_limit().map_err(resources("descriptors"))?;
        let plan = Plan::new(config, process::usable_cores(), descriptors);
        let listeners = listen::bind(&config.listen, plan.workers).map_err(RunError::Listen)?;
        let admin_listener = match config.admin.listen.0 {
            Some(address) => {
                let wanted = [crate::config::Listen::At(address)];
                Some(listen::bind(&wanted, 1).map_err(RunError::Listen)?.remove(0))
            }
            None => None,
        };
        let content = Content::open(plan.site.clone(), |notice| eprintln!("forebay: {notice}"))
            .map_err(RunError::Content)?;
        let log = Arc::new(Log::open(&config.log).map_err(RunError::Log)?);
        let control = Arc::new(Control::new(plan.workers).map_err(resources("descriptors"))?);
        let admission = Admission::new(plan.connections, plan.connections_per_client);
        let loop_metrics: Vec<_> = (0..plan.workers).map(|_| Arc::new(Local::default())).collect();
        let helper_metrics: Arc<[Local]> = (0..plan.helpers).map(|_| Local::default()).collect();
        let helpers = Helpers::new(Arc::clone(&helper_metrics), plan.engine.sample);

        let start_line = start_line(config, &plan, &listeners, admin_listener.as_ref());
        let mut loops = Vec::new();
        for (index, sockets) in by_loop(listeners, plan.workers).into_iter().enumerate() {
            let metrics = Arc::clone(&loop_metrics[index]);
            let now = worker::read_clocks();
            let site = Site::new(Arc::clone(&content), Arc::clone(&metrics), now);
            let parts = Parts {
                listeners: sockets,
                handler: FastLane::new(site, log.logger()),
                settings: plan.engine.clone(),
                admission: Arc::clone(&admission),
                helpers: helpers.clone(),
                control: Arc::clone(&control),
                index,
                metrics,
            };
            loops.push(spawn(format!("event-{index}"), parts, Some(to_main.clone()))?);
        }
        let admin = match admin_listener {
            Some(listener) => {
                let figures = Figures {
                    content,
                    loop_metrics,
                    helper_metrics,
                    admission: Arc::clone(&admission),
                    helpers,
                    log: Arc::clone(&log),
                    started_ms: clock::coarse_ms(),
                    engine: config.engine.word().to_owned(),
                    workers: plan.workers,
                };
                Some(start_admin(listener, Arc::new(move || figures.snapshot()))?)
            }
            None => None,
        };
        eprintln!("{start_line}");
        Ok(Server { control, loops, admin, admission, log, drain: plan.drain, events })
    }

    /// Waits for signals and for the loops to end.
    fn serve(self) -> Result<(), RunError> {
        let mut ended = Ended::default();
        let mut left = self.loops.len();
        let mut failure = None;
        let mut reason = None;
        let mut deadline = never();
        let mut drain_began = Instant::now();
        while left > 0 {
            let event = crossbeam_channel::select! {
                recv(self.events) -> event => event.ok(),
                recv(deadline) -> _ => None,
            };
            match event {
                Some(Event::Signal(SIGUSR1)) => self.log.reopen(),
                Some(Event::Signal(signal)) if reason.is_none() => {
                    reason = Some(name(signal));
                    drain_began = Instant::now();
                    self.control.give(Order::Drain);
                    if signal != SIGQUIT {
                        deadline = crossbeam_channel::after(self.drain);
                    }
                    self.say_draining(name(signal), signal != SIGQUIT);
                }
                Some(Event::Signal(_)) if drain_began.elapsed() < SAME_SIGNAL => {}
                Some(Event::Signal(signal)) => {
                    eprintln!("forebay: {} again: stopping now", name(signal));
                    self.control.give(Order::Stop);
                }
                Some(Event::Ended(Ok(of_loop))) => {
                    ended = ended + of_loop;
                    left -= 1;
                }
                Some(Event::Ended(Err(reason))) => {
                    failure = Some(reason);
                    left -= 1;
                    self.control.give(Order::Stop);
                }
                None => {
                    let open = self.admission.open();
                    eprintln!(
                        "forebay: {:?} of draining are over, {open} connections still open: \
                         stopping now",
                        self.drain
                    );
                    deadline = never();
                    self.control.give(Order::Stop);
                }
            }
        }
        self.finish(reason.unwrap_or("failure"), ended);
        match failure {
            Some(reason) => Err(RunError::LoopEnded { reason }),
            None => Ok(()),
        }
    }

    fn say_draining(&self, signal: &str, bounded: bool) {
        let open = self.admission.open();
        let bound = if bounded { format!("at most {:?}", self.drain) } else { "no limit".into() };
        eprintln!("forebay: {signal}: draining {open} connections, {bound}; again to stop now");
    }

    /// Ends what serves no clients, and says how it went.
    fn finish(self, reason: &str, ended: Ended) {
        for thread in self.loops {
            let _ = thread.join();
        }
        if let Some((control, thread)) = self.admin {
            control.give(Order::Stop);
            let _ = thread.join();
        }
        let began = Instant::now();
        let log_is_whole = Arc::into_inner(self.log).is_none_or(|log| log.close(LOG_CLOSE));
        if !log_is_whole {
            eprintln!("forebay: the access log took no lines for {:?}", began.elapsed());
        }
        let Ended { drained, aborted_receiving, aborted_in_job, aborted_sending } = ended;
        eprintln!(
            "forebay: stopped ({reason}): {drained} connections drained, {} aborted \
             ({aborted_receiving} receiving, {aborted_in_job} in a job, {aborted_sending} sending)",
            ended.aborted()
        );
    }
}

/// Each loop's sockets, with the addresses they are bound to.
fn by_loop(listeners: Vec<Listener>, loops: usize) -> Vec<Vec<(OwnedFd, SocketAddr)>> {
    let mut by_loop: Vec<Vec<_>> = (0..loops).map(|_| Vec::new()).collect();
    for Listener { address, sockets } in listeners {
        for (sockets_of_loop, socket) in by_loop.iter_mut().zip(sockets) {
            sockets_of_loop.push((socket, address));
        }
    }
    by_loop
}

/// Runs a loop on a thread of its own; how it ended is told to `to_main`.
fn spawn<H: Handler + Send + 'static>(
    name: String,
    parts: Parts<H>,
    to_main: Option<Sender<Event>>,
) -> Result<JoinHandle<()>, RunError>
where
    H::Body: Send,
    H::Line: Send,
{
    let event_loop = EventLoop::new(parts).map_err(resources("a loop's descriptors"))?;
    let serve = move || {
        let result = match catch_unwind(AssertUnwindSafe(|| event_loop.run())) {
            Ok(Ok(ended)) => Ok(ended),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it panicked".to_owned()),
        };
        if let Some(to_main) = to_main {
            let _ = to_main.send(Event::Ended(result));
        }
    };
    std::thread::Builder::new().name(name).spawn(serve).map_err(resources("a thread"))
}

fn start_admin(
    listener: Listener,
    source: Source,
) -> Result<(Arc<Control>, JoinHandle<()>), RunError> {
    let control = Arc::new(Control::new(1).map_err(resources("descriptors"))?);
    let metrics = Arc::new(Local::default());
    let parts = Parts {
        handler: Admin::new(source, listener.address),
        listeners: listener.sockets.into_iter().map(|fd| (fd, listener.address)).collect(),
        settings: Settings { sample: 0, ..Settings::default() },
        admission: Admission::new(256, 256),
        helpers: Helpers::new(Arc::new([]), 0),
        control: Arc::clone(&control),
        index: 0,
        metrics,
    };
    Ok((control, spawn("admin".to_owned(), parts, None)?))
}

fn listen_for_signals(to_main: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGUSR1])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if to_main.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    })?;
    Ok(())
}

fn name(signal: i32) -> &'static str {
    match signal {
        SIGTERM => "SIGTERM",
        SIGINT => "SIGINT",
        SIGQUIT => "SIGQUIT",
        _ => "signal",
    }
}

/// The first line: what is served, where, how.
fn start_line(
    config: &Config,
    plan: &Plan,
    listeners: &[Listener],
    admin: Option<&Listener>,
) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let root = config.root.display();
    let addresses: Vec<_> =
        listeners.iter().map(|listener| format!("http://{}", listener.address)).collect();
    let admin = admin.map_or(String::new(), |admin| format!(", admin on {}", admin.address));
    format!(
        "forebay {version}: serving {root} on {} (engine {}, workers {}{admin})",
        addresses.join(" "),
        config.engine.word(),
        plan.workers
    )
}

/// Everything the admin listener can report.
struct Figures {
    content: Arc<Content>,
    loop_metrics: Vec<Arc<Local>>,
    helper_metrics: Arc<[Local]>,
    admission: Arc<Admission>,
    helpers: Helpers<forebay_site::Job>,
    log: Arc<Log>,
    started_ms: u64,
    engine: String,
    workers: usize,
}

impl Figures {
    fn snapshot(&self) -> Snapshot {
        let locals = self.loop_metrics.iter().map(Arc::as_ref).chain(self.helper_metrics.iter());
        let content = self.content.figures();
        Snapshot {
            totals: Totals::of(locals),
            gauges: vec![
                (Gauge::Connections, self.admission.open() as u64),
                (Gauge::CacheBytes, content.bytes),
                (Gauge::CacheEntries, content.entries),
                (Gauge::CacheEvictions, content.evictions),
                (Gauge::CacheInvalidations, content.invalidations),
                (Gauge::WatchedDirectories, content.watched_directories),
                (Gauge::Helpers, self.helpers.threads() as u64),
                (Gauge::LogDropped, self.log.dropped()),
                (Gauge::UptimeSeconds, (clock::coarse_ms() - self.started_ms) / 1000),
            ],
            info: vec![
                ("version", env!("CARGO_PKG_VERSION").to_owned()),
                ("engine", self.engine.clone()),
                ("workers", self.workers.to_string()),
            ],
        }
    }
}
