//! A web server inside your program: files and applications as the program `forebay` serves them, and beside them
//! handlers, which are plain functions that may wait.
//!
//! ```
//! use forebay::Server;
//! use std::io::{Read, Write};
//!
//! let server = Server::builder()
//!     .handler("/hello", |request, response| {
//!         let name = request.parameter("name").unwrap_or_else(|| "world".to_owned());
//!         Ok(response.text(format!("Hello, {name}!\n"))?)
//!     })
//!     .start()?;
//!
//! let mut client = std::net::TcpStream::connect(server.addresses()[0])?;
//! client.write_all(b"GET /hello?name=you HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//! assert!(answer.ends_with("Hello, you!\n"));
//! server.stop()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A handler is straight-line code
//!
//! A handler gets a [`Request`] that is its own and writes a [`Response`]; both may wait for the client. It
//! may also wait for anything else: a [`sleep`], a [`channel`], a socket ([`readable`], [`writable`]), or
//! what the program's main thread returns ([`MainHandle::call`]). With the engine `fibers`, which is the
//! default, each request has a fiber, and others go on meanwhile; with the other engines it has one of a
//! bounded number of threads. The source is the same.
//!
//! * The handler's waits end with an error when the client leaves, when the time for the answer is over
//!   ([`HandlerOptions::answer_within`]) and when the server stops: pass it on with `?`.
//! * An error or a panic is 500 if nothing of the answer was sent; else the client sees that it is broken. The program
//!   goes on.
//! * The handler may change the protocol, to a WebSocket for one ([`Response::switch`],
//!   [`HandlerOptions::upgrades`]).
//! * On `fibers` a wait of the standard library (`std::thread::sleep`, `Mutex::lock` for long, a blocking socket)
//!   holds up all clients of the loop; use those of this crate, or an engine with threads.
//!
//! A [detached handler](ServerBuilder::detached) is given its requests to keep, and answers them from tasks or threads
//! of the program's own: with the crate `forebay-tower`, services of `tower` and `axum` do.
//!
//! # What the process keeps
//!
//! A server changes nothing of the process it is in: no signal is caught (but for SIGSEGV, whose handler
//! passes on to the one before it, and names the handler whose stack has overflowed before it ends the
//! process), no user, limit, umask, panic hook or environment, nothing goes to standard output. It listens on
//! loopback unless configured otherwise. There may be several in one process; one that was stopped leaves no
//! thread and no descriptor. What needs other processes is for the program `forebay`: `engine = "isolated"`,
//! `[[cgi]]`, `gate`, `firewall`, `user`. Lines for an operator go to standard error.
//!
//! | module | what it holds |
//! |---|---|
//! | `builder` | [`ServerBuilder`]: configuration, listeners, handlers |
//! | `parts` | what a server is made of, into a configuration |
//! | `server` | [`Server`]: addresses, reload, drain, stop |
//! | `error` | [`ServerError`] |
//!
//! Cargo features: `tls` and `acme`, both there by default. A configuration that wants one which is not built is
//! refused.
//!
//! This crate deliberately has no router beyond paths, no templates and no async runtime.
#![forbid(unsafe_code)]

mod builder;
mod error;
mod parts;
mod server;

/// The examples of the manual's page are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/manual/library.md")]
struct ManualPage;

pub use builder::ServerBuilder;
pub use error::ServerError;
pub use forebay_fiber::anywhere::{
    ChannelError, ChannelReceiver as Receiver, ChannelSender as Sender, Interrupted, channel,
    is_interrupted, readable, sleep, writable,
};
pub use forebay_fiber::{JoinError, MainHandle, MainThread};
pub use forebay_upstream::inside::{
    DetachedCode as DetachedHandler, HandlerResult, InsideRequest as Request,
    InsideResponse as Response, RequestCode as Handler, SwitchedStream,
};
pub use parts::HandlerOptions;
pub use server::{Server, Stopper};
