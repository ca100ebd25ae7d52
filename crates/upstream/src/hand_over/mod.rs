//! Requests that leave with their socket: another process, a *receiver*, reads and answers them on
//! the client's own connection (keta §3). The connection still belongs to its loop or thread, with
//! its place, its count of requests, its ticket and its deadline; only its socket leaves.
//!
//! | module | what it holds |
//! |---|---|
//! | `link` | a link to a receiver, and the client's socket while the receiver has it |
//! | [`exchange`] | one request: which receiver gets it, in which order, for how long |
//!
//! The messages on a link are in [`receivers`](crate::receivers). A client whose own socket is of no
//! use to a receiver is served over [a pair of sockets](crate::upstreams::offered), as by an
//! application.

pub mod exchange;
mod link;
