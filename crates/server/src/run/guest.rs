//! A server that is a part of another program. It has threads of its own, and does not change the
//! process: no signal handler, user, limit, umask, panic hook, sandbox or environment variable, and
//! it writes nothing to standard output.

use super::{Event, Server};
use crate::engines::Common;
use crate::listen::ListenAddress;
use crate::start_error::RunError;
use crate::start_error::resources;
use crate::status::Status;
use crate::why;
use crossbeam_channel::{Sender, bounded, unbounded};
use forebay_config::Config;
use forebay_metrics::render;
use forebay_sys::clock;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io};

/// How long it may take to put a given configuration in force.
const LONGEST_RELOAD: Duration = Duration::from_secs(60);

/// The longest drain.
const LONGEST_DRAIN: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How long threads without work may take to end.
const LAST_THREADS: Duration = Duration::from_secs(5);

/// A running server, as the program holds it. Dropping it stops the server.
pub struct GuestServer {
    to_main: Sender<Event>,
    thread: Option<JoinHandle<Result<(), RunError>>>,
    urls: Vec<String>,
    addresses: Vec<SocketAddr>,
    /// The sources of metrics and other information while the server runs.
    running: Option<(Arc<Status>, Common)>,
}

/// Ends a [`GuestServer`].
#[derive(Clone)]
pub struct GuestEnd(Sender<Event>);

impl GuestEnd {
    /// Drains the server as [`GuestServer::drain`] does. This has no effect on a server that has ended.
    pub fn drain(&self, within: Duration) {
        let _ = self.0.send(Event::EndWithin(within.min(LONGEST_DRAIN)));
    }
}

/// The reason why a server inside another program fails.
#[derive(Debug)]
pub enum GuestError {
    /// A setting needs other processes, which would be copies of the program.
    NeedsProcess {
        /// The setting.
        what: &'static str,
    },
    /// The server could not be started, or has ended with an error.
    Run(RunError),
}

impl fmt::Display for GuestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuestError::NeedsProcess { what } => write!(
                f,
                "{what} is for the program forebay: it starts processes, which a server inside another program does \
                 not"
            ),
            GuestError::Run(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GuestError {}

impl From<RunError> for GuestError {
    fn from(error: RunError) -> GuestError {
        GuestError::Run(error)
    }
}

/// Starts a server with this configuration, which must be [read for a
/// guest](crate::config_file::load_guest). `given` are listening sockets at addresses that the
/// configuration names.
///
/// # Errors
/// The obstacle at the start.
pub fn start(config: Config, given: Vec<OwnedFd>) -> Result<GuestServer, GuestError> {
    check(&config)?;
    let (to_main, events) = unbounded();
    let server = Server::start(config, None, None, None, given, to_main.clone(), events)?;
    let (urls, addresses) = {
        let listeners = server.listeners();
        let groups = || server.plan.groups.iter();
        let urls = groups().flat_map(|group| listeners.urls(&group.listen)).collect();
        let wanted: Vec<_> = groups().flat_map(|group| &group.listen).collect();
        let wanted: Vec<_> = wanted.into_iter().map(|endpoint| endpoint.listen.clone()).collect();
        let addresses = listeners.addresses(&wanted).into_iter().filter_map(|bound| match bound {
            ListenAddress::Tcp(address) => Some(address),
            ListenAddress::Unix(_) => None,
        });
        (urls, addresses.collect())
    };
    let running = Some((Arc::clone(&server.status), server.common.clone()));
    let thread = std::thread::Builder::new().name("forebay".to_owned());
    let thread = thread.spawn(move || server.serve()).map_err(resources("a thread"))?;
    Ok(GuestServer { to_main, thread: Some(thread), urls, addresses, running })
}

/// Checks that a configuration has only settings for a guest.
fn check(config: &Config) -> Result<(), GuestError> {
    let sites = || config.sites.iter();
    let needs = [
        (config.has_stages(), "[stages] (engine = \"isolated\")"),
        (sites().any(|site| !site.cgi.is_empty()), "[[cgi]]"),
        (config.gate != forebay_config::GateMode::Off, "gate"),
        (config.firewall.mode != forebay_config::FirewallMode::Off, "firewall"),
        (!crate::firewall::sets::named(&config.rules).is_empty(), "client_set"),
        (config.user.is_some(), "user"),
    ];
    match needs.into_iter().find(|(is_wanted, _)| *is_wanted) {
        Some((_, what)) => Err(GuestError::NeedsProcess { what }),
        None => Ok(()),
    }
}

impl GuestServer {
    /// The URL of each socket, for a browser or curl.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The addresses at which the server listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// All metrics, in the format of Prometheus.
    pub fn metrics(&self) -> String {
        let running = self.running.as_ref();
        running.map(|(status, _)| render::prometheus(&status.snapshot())).unwrap_or_default()
    }

    /// The decision about a request that was refused or not answered, by the
    /// request's id, if it is remembered.
    pub fn why(&self, id: &str) -> Option<String> {
        let (_, common) = self.running.as_ref()?;
        let live = common.live.get();
        let answer = why::answer(id, &live.refusals, clock::unix_coarse_ms());
        (answer.code == 0).then(|| answer.text.trim_end().to_owned())
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.running.as_ref().map_or(0, |(_, common)| common.admission.open())
    }

    /// Puts another configuration in force. Open connections stay.
    ///
    /// # Errors
    /// The reason why nothing has changed.
    pub fn reload(&self, config: Config) -> Result<(), String> {
        check(&config).map_err(|error| error.to_string())?;
        let (reply, answer) = bounded(1);
        let gone = || "the server has ended".to_owned();
        self.to_main.send(Event::Given(Box::new(config), reply)).map_err(|_| gone())?;
        let answer = answer.recv_timeout(LONGEST_RELOAD).map_err(|_| gone())?;
        if answer.code == 0 { Ok(()) } else { Err(answer.text.trim_end().to_owned()) }
    }

    /// Stops accepting. Open connections may finish within this time, and are cut then. Returns at once.
    pub fn drain(&self, within: Duration) {
        self.end().drain(within);
    }

    /// A handle that ends the server from another thread, also during [`wait`](GuestServer::wait).
    pub fn end(&self) -> GuestEnd {
        GuestEnd(self.to_main.clone())
    }

    /// Waits until the server has ended, by [`drain`](GuestServer::drain) or by itself.
    ///
    /// # Errors
    /// The failure of the server.
    pub fn wait(&mut self) -> Result<(), GuestError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = thread.join();
        // idle helper threads would otherwise stay for seconds
        if let Some((_, common)) = self.running.take() {
            common.helpers.close();
            let until = Instant::now() + LAST_THREADS;
            while common.helpers.threads() > 0 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        match ended {
            Ok(ended) => Ok(ended?),
            Err(_) => Err(resources("its main thread")(io::Error::other("it panicked")).into()),
        }
    }
}

impl Drop for GuestServer {
    fn drop(&mut self) {
        self.drain(Duration::ZERO);
        // the result cannot be reported from here
        let _ = self.wait();
    }
}
