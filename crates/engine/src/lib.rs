//! The loops that perform the request path.
//!
//! An engine receives what clients send, asks each [`Protocol`](forebay_conn::Protocol) what comes
//! next, and does it: receive, send, give a job to a helper thread, close. It imports neither
//! policy nor content; a [`Handler`](forebay_conn::Handler) brings both.
//!
//! | module | what it holds |
//! |---|---|
//! | [`threads`] | a new thread per connection, none kept |
//! | [`pool`] | a fixed number of threads, each accepts under a mutex |
//! | [`event`] | one loop per core, readiness based; jobs that would block go to helper threads |
//! | [`fibers`] | one loop per core, a fiber per active connection in straight-line code |
//! | [`pipeline`] | four phases with a list and threads each, fused while nothing waits |
//! | `connection` | one connection, in whichever of them: [`accept`], the steps of its turn for a [`worker`], [`send`] |
//! | `straight` | straight-line code for one connection, over a way of waiting: `threads`, `pool`, `fibers` |
//! | `loops` | sockets, queues and times of a loop: `event`, `fibers`, `pipeline` |
//! | `order` | which request is answered next: [`ranks`], the [`lanes`] of jobs, permits |
//! | `room` | how many connections there may be ([`admission`]), and which one is cut for another |
//! | [`helpers`] | threads for work that may block |
//! | [`settings`] | timeouts and bounds that every engine keeps |
//! | [`watch`] | the stopwatch of sampled turns |
//! | `architecture` | the engines by name, and what others must know of each |
//! | [`control`] | how a running engine is ordered to drain or to stop |
//!
//! The crate deliberately contains no `unsafe` and no async runtime.
#![forbid(unsafe_code)]

mod architecture;
mod connection;
pub mod control;
pub mod event;
pub mod fibers;
pub mod helpers;
mod loops;
mod order;
pub mod pipeline;
pub mod pool;
mod room;
pub mod settings;
mod straight;
pub mod threads;
pub mod watch;

pub use architecture::{Engine, NAMES};
pub use connection::{accept, send, served, worker};
pub use order::{lanes, ranks};
pub use room::admission;
pub use straight::stock;
