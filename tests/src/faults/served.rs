//! A server with an admin listener, and its counters.

use crate::faults::client::Client;
use crate::faults::soon;
use crate::server::free_addr;
use crate::wire::PATIENCE;
use crate::{Options, Server};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// A running server whose counters can be read.
#[derive(Debug)]
pub struct WatchedServer {
    server: Server,
    admin: SocketAddr,
}

impl WatchedServer {
    /// Serves `root` on this engine with these lines of configuration.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn start(engine: &str, root: &Path, settings: &str) -> WatchedServer {
        WatchedServer::with(Options::new(root).engine(engine).config(settings))
    }

    /// Serves `root` in the same way with one loop: see [`Options::alone`].
    ///
    /// # Panics
    /// If the server does not start.
    pub fn alone(engine: &str, root: &Path, settings: &str) -> WatchedServer {
        WatchedServer::with(Options::new(root).engine(engine).alone().config(settings))
    }

    /// Starts a server with `options`, to which the admin listener is added.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn with(options: Options) -> WatchedServer {
        let admin = free_addr();
        WatchedServer { server: Server::start(&with_admin(admin, options)), admin }
    }

    /// Has the server read `options` in the place of its own; the admin listener stays.
    ///
    /// # Panics
    /// If it does not take them.
    #[track_caller]
    pub fn reload_with(&self, options: Options) {
        self.configure(&with_admin(self.admin, options));
        let (code, said) = self.reload();
        assert_eq!(code, Some(0), "{said}");
    }

    /// Waits until the connection that tried the server at its start is counted and has ended, for tests
    /// that count connections.
    ///
    /// # Panics
    /// If that connection stays.
    #[must_use]
    pub fn settled(self) -> WatchedServer {
        let is_over = || {
            let came = self.metric("forebay_connections_accepted_total");
            came > 0 && self.metric("forebay_connections") == 0
        };
        let is_over = soon(4 * PATIENCE, is_over);
        assert!(is_over, "the first connection stays: {}{}", self.stderr(), self.metrics());
        self
    }

    /// Opens a new connection to the server.
    pub fn client(&self) -> Client {
        Client::connect(self.server.target())
    }

    /// Lets a frozen server go on, when everything that clients have sent meanwhile has arrived.
    ///
    /// # Panics
    /// If that does not come, or it listens elsewhere than at an address of IPv4.
    pub fn thaw(&self) {
        self.wait_for_delivery();
        self.signal(Signal::CONT);
    }

    /// The value of one line of `/metrics`; `series` is its name, with labels as they are written
    /// there. 0 if there is no such line.
    ///
    /// # Panics
    /// If the admin listener does not answer.
    pub fn metric(&self, series: &str) -> u64 {
        value_of(series, &self.metrics())
    }

    /// The value like [`metric`](WatchedServer::metric); nothing if the admin listener has no descriptor
    /// for the answer.
    pub fn metric_if_answered(&self, series: &str) -> Option<u64> {
        let text = self.admin_answer();
        text.starts_with("HTTP/1.1 200 ").then(|| value_of(series, &text))
    }

    /// All of `/metrics`, with the head of the answer.
    ///
    /// # Panics
    /// If the admin listener does not answer.
    pub fn metrics(&self) -> String {
        let text = self.admin_answer();
        assert!(text.starts_with("HTTP/1.1 200 "), "/metrics: {text}");
        text
    }

    fn admin_answer(&self) -> String {
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.admin);
        let answer = crate::wire::exchange(self.admin, request.as_bytes());
        String::from_utf8(answer).expect("metrics are text")
    }

    /// The address of the admin listener.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }
}

impl Deref for WatchedServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for WatchedServer {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

/// The value of a line of `/metrics`, 0 if there is none.
fn value_of(series: &str, metrics: &str) -> u64 {
    let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map_or(0, |value| value.trim().parse::<f64>().expect("a number") as u64)
}

/// The options with an admin listener at this address.
fn with_admin(admin: SocketAddr, options: Options) -> Options {
    let config = format!("admin.listen = \"{admin}\"\n{}", options.config);
    Options { config, ..options }
}
