//! The settings of a listener: addresses, and the engine that serves their clients.

use crate::table::{Preset, Section, Setting};
use crate::{AutoCount, ListenEndpoint};
use forebay_engine::Engine;

/// The default number of threads of a pool.
pub const POOL_THREADS: u64 = 64;
/// The default largest number of threads of `threads`.
pub const MOST_THREADS: u64 = 1024;

/// Addresses that are served in the same way.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerConfig {
    /// `listen`
    pub listen: Vec<ListenEndpoint>,
    /// `engine`
    pub engine: Engine,
    /// `workers`; `auto` depends on the engine
    pub workers: AutoCount,
    /// `answering`; `auto` is one per core
    pub answering: AutoCount,
    /// `accept_ahead`
    pub accept_ahead: u64,
    /// `upstream_threads`; `auto` is three quarters of the workers
    pub upstream_threads: AutoCount,
    /// `tunnel_threads`; `auto` is half of the workers
    pub tunnel_threads: AutoCount,
    /// `proxy_protocol`
    pub proxy_protocol: bool,
}

/// The address where connections are accepted if none is configured.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

impl ListenerConfig {
    /// The settings that a `[[listener]]` inherits: all but the addresses.
    pub(crate) fn heir(&self) -> ListenerConfig {
        ListenerConfig { listen: Vec::new(), ..self.clone() }
    }

    /// Whether each connection keeps a thread, and as many threads exist as may answer at once.
    pub(crate) fn has_all_answering(&self) -> bool {
        let are_there = match self.answering {
            AutoCount::Fixed(answering) => answering <= self.workers.or(self.engine_threads()),
            AutoCount::Auto => true,
        };
        self.engine.has_thread_each() && are_there
    }

    /// The most threads that an engine with a thread for each connection has, unless a number is
    /// configured.
    fn engine_threads(&self) -> u64 {
        if self.engine == Engine::Pool { POOL_THREADS } else { MOST_THREADS }
    }
}

impl Default for ListenerConfig {
    /// Every setting at its default, without an address.
    fn default() -> ListenerConfig {
        ListenerConfig::preset()
    }
}

impl Section for ListenerConfig {
    const SETTINGS: &'static [Setting<ListenerConfig>] = SETTINGS;

    fn blank() -> ListenerConfig {
        ListenerConfig {
            listen: Vec::new(),
            engine: Engine::default(),
            workers: AutoCount::Auto,
            answering: AutoCount::Auto,
            accept_ahead: 0,
            upstream_threads: AutoCount::Auto,
            tunnel_threads: AutoCount::Auto,
            proxy_protocol: false,
        }
    }
}

const SETTINGS: &[Setting<ListenerConfig>] = &[
    Setting {
        key: "listen",
        preset: Preset::Unset("127.0.0.1:8080 if there is no listener at all"),
        range: None,
        meaning: "Addresses connections are accepted at; \":8080\" is port 8080 of all addresses. \
                  \"unix:\" and a path is a Unix socket. With \"https://\" before it, TLS is spoken \
                  there, by the certificates of the sites (tls.certificate). With \"tcp://\" nothing is: \
                  connections are passed on as they are (tcp).",
        example: "[\"0.0.0.0:80\", \"[::]:80\", \"tcp://0.0.0.0:5432\"]",
        at: |l| &mut l.listen,
    },
    Setting {
        key: "engine",
        preset: Preset::Value("event"),
        range: None,
        meaning: "What performs the steps of the request path: event, fibers, pipeline, pool or threads; or isolated, which has \
                  stages in processes of their own.",
        example: "\"pool\"",
        at: |l| &mut l.engine,
    },
    Setting {
        key: "workers",
        preset: Preset::Value("auto"),
        range: Some(("1", "65536")),
        meaning: "Loops (event, fibers, pipeline: auto is one per core) or most threads (pool: auto is 64, \
                  threads: 1024). There are no more threads than fit into half of the memory there is, \
                  at 96 KiB each, nor than the process has addresses and mappings for (RLIMIT_AS, vm.max_map_count), \
                  of which a quarter is left.",
        example: "4",
        at: |l| &mut l.workers,
    },
    Setting {
        key: "answering",
        preset: Preset::Value("auto"),
        range: Some(("1", "65536")),
        meaning: "Threads of pool and threads that may answer at once where there are classes; others wait \
                  for one to end, by class. auto is one per core. As many as workers: only who gets a \
                  thread is decided by class, as in a server of processes.",
        example: "50",
        at: |l| &mut l.answering,
    },
    Setting {
        key: "accept_ahead",
        preset: Preset::Value("1024"),
        range: Some(("0", "65536")),
        meaning: "Where there are classes, pool and threads accept so many connections before there is a \
                  thread for them, and serve the first by class; what comes beyond, or beyond \
                  limits.connections, waits in the kernel's queue as it comes. With 0 all does.",
        example: "256",
        at: |l| &mut l.accept_ahead,
    },
    Setting {
        key: "upstream_threads",
        preset: Preset::Value("auto"),
        range: Some(("1", "65536")),
        meaning: "Threads of pool and threads that may be kept at once by requests for applications, be they \
                  answered or waiting; more are answered with 503, so that slow applications leave threads \
                  to everybody else. auto is three quarters of workers.",
        example: "48",
        at: |l| &mut l.upstream_threads,
    },
    Setting {
        key: "tunnel_threads",
        preset: Preset::Value("auto"),
        range: Some(("1", "65536")),
        meaning: "How many of these may be kept by WebSockets and other tunnels, or requests for them; more \
                  are answered with 503. auto is half of workers.",
        example: "16",
        at: |l| &mut l.tunnel_threads,
    },
    Setting {
        key: "proxy_protocol",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether connections begin with the PROXY protocol, version 1 or 2. Only proxies in \
                  trusted_proxies may connect then.",
        example: "true",
        at: |l| &mut l.proxy_protocol,
    },
];
