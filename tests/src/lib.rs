//! End-to-end tests start the real `forebay` binary and speak real bytes over real sockets.
//!
//! This library is the code that the programs under `tests/tests/` share: [`Server`] starts the binary on
//! an address of its own, waits until it answers, and ends it by its process id.
//!
//! | module | what it holds |
//! |---|---|
//! | [`acme`] | an authority that makes certificates, as far as tests need one |
//! | [`browser`] | a Chromium that a test reads and clicks in |
//! | [`faults`] | what the fault tests share: clients, crowds, processes, file systems |
//! | [`http2`] | a client that speaks HTTP/2 |
//! | [`fuse`] | a file system in which reads hang until released |
//! | [`manual`] | pages of the manual, as tests read them |
//! | [`migration`] | a configuration of nginx beside one of Forebay, compared by what a client sees |
//! | [`nginx`] | a real nginx |
//! | [`node`] | an application in Node |
//! | [`oidc`] | a provider of identities, as far as tests need one |
//! | [`programs`] | the places of programs that are built from Go modules |
//! | [`php`] | a php-fpm, which runs the scripts of a folder |
//! | [`receiver`] | a program that requests are handed over to with their sockets |
//! | [`screen`] | a screen of X11 for programs with windows |
//! | [`server`] | the running server, and [`Options`] to start it with |
//! | [`socket`] | a client's socket, in clear or with TLS over it |
//! | [`websocket`] | WebSockets: an application, and clients by both versions |
//! | [`wire`] | bytes out, bytes in, with a deadline |
//! | [`wordpress`] | a real WordPress, with its database |
//! | [`case`] | a conformance case, read from its file |
//! | [`play`] | a case played against a server |
//! | [`answer`] | an answer read strictly, by the rules that hold for every answer |
//! | [`fixture`] | the directory for the cases |
//!
//! This crate deliberately has no client for HTTP/1: a test says which bytes it sends.
//!
//! ```no_run
//! use forebay_tests::{Options, Server};
//!
//! let server = Server::start(&Options::new("examples/site"));
//! let answer = server.exchange(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
//! assert!(answer.starts_with(b"HTTP/1.1 200 "));
//! ```
#![forbid(unsafe_code)]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

pub mod acme;
pub mod answer;
pub mod browser;
pub mod case;
pub mod faults;
pub mod fixture;
pub mod fuse;
pub mod http2;
pub mod manual;
pub mod migration;
pub mod nginx;
pub mod node;
pub mod oidc;
pub mod php;
pub mod play;
pub mod programs;
pub mod receiver;
pub mod screen;
pub mod server;
pub mod socket;
pub mod tls;
pub mod upgrade;
pub mod websocket;
pub mod wire;
pub mod wordpress;

pub use server::{Options, Server};

/// Writes [`ENGINES`] and [`on_each_engine`] from one list.
macro_rules! engines {
    ($d:tt $count:literal: $($module:ident $name:literal),+) => {
        /// Every engine there is, as [`Options::engine`] takes it. `pipeline:never` is the pipeline
        /// that never fuses.
        pub const ENGINES: [&str; $count] = [$($name),+];

        /// Makes a test for each engine from each named function, which takes an engine: `fibers::name`,
        /// `pipeline_never::name`, …
        #[macro_export]
        macro_rules! on_each_engine {
            ($d($d name:ident),+ $d(,)?) => {
                $(mod $module {
                    $d(#[test]
                    fn $d name() {
                        super::$d name($name);
                    })+
                })+
            };
        }
    };
}

engines! { $ 6:
    event "event", fibers "fibers", threads "threads", pool "pool", pipeline "pipeline",
    pipeline_never "pipeline:never"
}

/// The engine whose stages are processes. It is no row of [`ENGINES`], because not all suites of those
/// hold for it.
///
/// | suite | on `isolated` |
/// |---|---|
/// | `conformance` | whole, in pieces, through TLS and through HTTP/2 |
/// | `e2e/isolated.rs` | crashes, hangs, quarantine, reloads, other software: its own |
/// | `e2e/stages.rs` | seals, feedback, other software under load: its own |
/// | `e2e/stage_classes.rs`, `e2e/stage_commands.rs` | classes, the agent, commands and what they change: their own |
/// | `e2e/stage_engines.rs` | `[stages]` behind each engine: answers, crashes, hangs, another engine by a reload |
/// | `e2e/websocket.rs` | all but reloads without end: a reload starts other processes, and tunnels of those before last for the time of a drain. `e2e/stage_tunnels.rs`: crashes, hangs and a reload under tunnels |
/// | `e2e/on_the_way.rs` | all but the slow client: its answer waits in the sockets between two stages, and not in a buffer of one |
/// | `e2e/repeats.rs` | what may run twice, and a process that ends while it does: its own |
/// | `alone/faults_truth.rs`, `alone/faults_slow.rs` | those that [`on_isolated`] names. Not the one that counts time-outs of bodies: another stage waits for them, and receive counts only its own |
/// | `e2e/reload.rs` | no: a reload starts other processes; other listeners need a restart. `e2e/isolated.rs` reloads under load, `e2e/stages.rs` by the control socket |
/// | `e2e/faults_*.rs`, `alone/faults_memory.rs`, `system/faults_*.rs` | no: they limit or look into one process (its descriptors, memory, threads, log), and the one that is started here has no clients |
pub const ISOLATED: &str = "isolated";

/// Makes a test on [`ISOLATED`] from each named function, which takes an engine: `isolated::name`.
#[macro_export]
macro_rules! on_isolated {
    ($($name:ident),+ $(,)?) => {
        mod isolated {
            $(#[test]
            fn $name() {
                super::$name($crate::ISOLATED);
            })+
        }
    };
}

/// Whether every case is played in every way, and storms are long: `FOREBAY_MATRIX=full`, as `make
/// test-all` sets it. Otherwise tests do what `make test` has minutes for.
///
/// # Panics
/// If the variable has another value.
pub fn is_full_matrix() -> bool {
    match std::env::var("FOREBAY_MATRIX").as_deref() {
        Ok("full") => true,
        Ok("") | Err(_) => false,
        Ok(other) => panic!("FOREBAY_MATRIX is {other:?}; the only value is \"full\""),
    }
}

/// Whether a connection keeps a thread of this engine from beginning to end, even while it is idle, slow
/// or in a job. What such an engine does when it has no threads left is documented, and tested
/// separately.
pub fn has_thread_each(engine: &str) -> bool {
    matches!(engine, "threads" | "pool")
}
