//! A configuration in, a running server out; it returns when the server has stopped.
//!
//! Order at start: descriptors, sockets, content, log, loops, admin listener. At the end the same
//! backwards. Signals arrive here, and only here.

use crate::admin::{Admin, Snapshot};
use crate::config::choice::Word;
use crate::config::{Config, Listen};
use crate::engines::{self, Outcome, Parts, Task};
use crate::listen::{self, ListenError, Listener};
use crate::log::{Log, LogError};
use crate::plan::Plan;
use crossbeam_channel::{Receiver, Sender, never, unbounded};
use forebay_engine::admission::Admission;
use forebay_engine::control::{Control, Ended, Order};
use forebay_engine::helpers::Helpers;
use forebay_engine::settings::Live;
use forebay_metrics::{Gauge, Local};
use forebay_site::{Content, OpenError};
use forebay_sys::{clock, process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::io::Write;
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
    Ended(Outcome),
}

/// The parts of a running server that its main thread holds.
struct Server {
    control: Arc<Control>,
    threads: Vec<JoinHandle<()>>,
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
    process::return_large_blocks();
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
        let listeners = listen::bind(&config.listen, plan.entrances).map_err(RunError::Listen)?;
        let admin_listener = match config.admin.listen.0 {
            Some(address) => {
                let bound = listen::bind(&[Listen::At(address)], 1).map_err(RunError::Listen)?;
                bound.into_iter().next()
            }
            None => None,
        };
        let content = Content::open(plan.site.clone(), |notice| say(format_args!("{notice}")))
            .map_err(RunError::Content)?;
        let log = Arc::new(Log::open(&config.log).map_err(RunError::Log)?);
        let control = Control::new(plan.entrances).map_err(resources("descriptors"))?;
        let helper_metrics: Arc<[Local]> = (0..plan.helpers).map(|_| Local::default()).collect();
        let start_line = start_line(config, &plan, &listeners, admin_listener.as_ref());
        let parts = Parts {
            admission: Admission::new(plan.connections, plan.connections_per_client),
            helpers: Helpers::new(Arc::clone(&helper_metrics), plan.settings.sample),
            settings: Arc::new(Live::new(plan.settings.clone())),
            register: Arc::default(),
            control: Arc::new(control),
            log,
            content,
            plan,
        };
        let admin = match admin_listener {
            Some(listener) => Some(prepare_admin(listener, parts.clone(), helper_metrics)?),
            None => None,
        };
        let tasks = parts.prepare(listeners).map_err(resources("a loop's descriptors"))?;
        // clients are served from here on
        let tell = move |outcome| drop(to_main.send(Event::Ended(outcome)));
        let spawn = |task: Task| task.spawn(tell.clone()).map_err(resources("a thread"));
        let threads = tasks.into_iter().map(spawn).collect::<Result<_, _>>()?;
        let admin = match admin {
            Some((control, task)) => {
                Some((control, task.spawn(|_| {}).map_err(resources("a thread"))?))
            }
            None => None,
        };
        let _ = writeln!(io::stderr(), "{start_line}");
        let Parts { control, admission, log, plan, .. } = parts;
        Ok(Server { control, threads, admin, admission, log, drain: plan.drain, events })
    }

    /// Waits for signals and for the loops to end.
    fn serve(self) -> Result<(), RunError> {
        let mut ended = Ended::default();
        let mut left = self.threads.len();
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
                Some(Event::Signal(SIGHUP)) => {
                    say(format_args!("SIGHUP: there is no reload yet; nothing has changed"));
                }
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
                    say(format_args!("{} again: stopping now", name(signal)));
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
                    say(format_args!(
                        "{:?} of draining are over, connections still open: {open}: \
                         stopping now",
                        self.drain
                    ));
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
        say(format_args!(
            "{signal}: draining, connections open: {open}, {bound}; again to stop now"
        ));
    }

    /// Ends what serves no clients, and says how it went.
    fn finish(self, reason: &str, ended: Ended) {
        for thread in self.threads {
            let _ = thread.join();
        }
        if let Some((control, thread)) = self.admin {
            control.give(Order::Stop);
            let _ = thread.join();
        }
        let began = Instant::now();
        if !self.log.close(LOG_CLOSE) {
            say(format_args!("the access log took no lines for {:?}", began.elapsed()));
        }
        let Ended { drained, aborted_receiving, aborted_in_job, aborted_sending } = ended;
        say(format_args!(
            "stopped ({reason}): connections: {drained} drained, {} aborted \
             ({aborted_receiving} receiving, {aborted_in_job} in a job, {aborted_sending} sending)",
            ended.aborted()
        ));
    }
}

fn prepare_admin(
    listener: Listener,
    parts: Parts,
    helper_metrics: Arc<[Local]>,
) -> Result<(Arc<Control>, Task), RunError> {
    let control = Arc::new(Control::new(1).map_err(resources("descriptors"))?);
    let started_ms = clock::coarse_ms();
    let address = listener.address;
    let source = Arc::new(move || snapshot(&parts, &helper_metrics, started_ms));
    let handler = Admin::new(source, address);
    let task = engines::prepare_apart("admin", listener, handler, Arc::clone(&control));
    Ok((control, task.map_err(resources("the admin listener's descriptors"))?))
}

fn listen_for_signals(to_main: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1])?;
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
        plan.engine.word(),
        plan.workers
    )
}

/// Everything the admin listener can report.
fn snapshot(parts: &Parts, helper_metrics: &[Local], started_ms: u64) -> Snapshot {
    let content = parts.content.figures();
    Snapshot {
        totals: parts.register.totals(helper_metrics),
        gauges: vec![
            (Gauge::Connections, parts.admission.open() as u64),
            (Gauge::CacheBytes, content.bytes),
            (Gauge::CacheEntries, content.entries),
            (Gauge::CacheEvictions, content.evictions),
            (Gauge::CacheInvalidations, content.invalidations),
            (Gauge::WatchedDirectories, content.watched_directories),
            (Gauge::Helpers, parts.helpers.threads() as u64),
            (Gauge::LogDropped, parts.log.dropped()),
            (Gauge::UptimeSeconds, (clock::coarse_ms() - started_ms) / 1000),
        ],
        info: vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("engine", parts.plan.engine.word().to_owned()),
            ("workers", parts.plan.workers.to_string()),
        ],
    }
}

/// Tells the operator; standard error may be closed, which is no reason to stop.
fn say(what: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "forebay: {what}");
}
