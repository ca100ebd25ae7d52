//! Services of `tower` beside the sites of a server inside a program: an `axum::Router`, or anything else that is a
//! `tower::Service` of requests of the crate `http`.
//!
//! ```
//! use forebay_tower::TowerHandler;
//!
//! let app = axum::Router::new()
//!     .route("/api/hello", axum::routing::get(|| async { "from axum\n" }));
//! let server = forebay::Server::builder()
//!     .detached("/api", forebay::HandlerOptions::default(), TowerHandler::new(app)?)
//!     .start()?;
//! # use std::io::{Read, Write};
//! # let mut client = std::net::TcpStream::connect(server.addresses()[0])?;
//! # client.write_all(b"GET /api/hello HTTP/1.0\r\n\r\n")?;
//! # let mut answer = String::new();
//! # client.read_to_string(&mut answer)?;
//! # assert!(answer.ends_with("from axum\n"), "{answer}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Forebay accepts, speaks TLS, HTTP/1 and HTTP/2, and decides: classes, rules and passwords come before
//! the service, the access log after it. An admitted request goes to the service as a task of a tokio
//! runtime, which only this crate uses: one that it makes ([`TowerHandler::new`]), or the program's own
//! ([`TowerHandler::on`]).
//!
//! * Bodies stream both ways. A client that does not take its answer is waited for, and of one that sends faster than
//!   the service reads no more than 64 KiB are kept.
//! * When the client leaves, when the time for the answer is over
//!   ([`HandlerOptions::answer_within`](forebay::HandlerOptions)) and when the server stops, the service's future is
//!   dropped.
//! * A service that fails or panics is a 500 if nothing was sent; else the client sees that the answer is broken.
//! * The path of the request is the one that rules have judged: decoded, without `.` and `..`, and encoded again. A path
//!   that the client has written in another way cannot lead to another route than the one that was judged.
//! * `axum`'s WebSockets work, over HTTP/1 and HTTP/2, where
//!   [`HandlerOptions::upgrades`](forebay::HandlerOptions) is set.
//!
//! | module | what it holds |
//! |---|---|
//! | `handler` | [`TowerHandler`] |
//! | `runtime` | the runtime of its tasks |
//! | `serving` | one request: the service is asked, its answer sent |
//! | `request` | a request as a service has it, [`AskedRequest`] beside it |
//! | `body` | [`RequestBody`] |
//! | `upgrade` | another protocol on the connection |
//!
//! This crate deliberately has no layers: timeouts, limits and compression are those of the server, or of
//! `tower` and `tower-http`, around the service.
#![forbid(unsafe_code)]

mod body;
mod handler;
mod request;
mod runtime;
mod serving;
mod upgrade;

pub use body::RequestBody;
pub use handler::TowerHandler;
pub use request::AskedRequest;
