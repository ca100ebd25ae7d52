//! The request path, written once: one connection as a state machine.
//!
//! Events go in (bytes received, a job done, bytes sent, the stream ended), a small [`Step`] comes
//! out (receive, send, process this job, hand over, close). An *engine* is whatever loop performs
//! the steps; a *handler* knows what an answer is. Both are met here and nowhere else:
//!
//! ```text
//!  engine ── bytes ──► Conn::advance ── Request ──► Handler::verdict, Handler::process
//!         ◄── Step ──                ◄── Outcome ─ (answer written into Out)
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`conn`] | [`Conn`]: the four stages and what is remembered between two events |
//! | [`step`] | what passes between it and the engine: bounds, a turn's tools, the next [`Step`] |
//! | [`handler`] | the traits an engine is given: [`Handler`], [`Job`], what a [`Verdict`] may say |
//! | [`input`] | [`Input`], the buffer bytes are received into |
//! | [`proxy`] | what a proxy states about its client before the first head |
//! | [`reply`] | [`Out`], where an answer is written, and [`Reply`], the pen |
//!
//! It deliberately has no socket, no clock and no thread: time and system calls are the engine's.
#![forbid(unsafe_code)]

pub mod conn;
pub mod handler;
pub mod input;
pub mod proxy;
pub mod reply;
pub mod step;

pub use conn::Conn;
pub use handler::{
    Admitted, Handler, Job, Kind, Now, Outcome, Peer, Piece, Rank, Refusal, Request, Settled,
    Stages, Verdict,
};
pub use input::Input;
pub use reply::{Out, Reply};
pub use step::{Await, Closing, Context, Limits, Step};
