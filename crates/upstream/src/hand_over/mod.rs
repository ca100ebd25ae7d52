//! Requests that leave with their socket: another process, a *receiver*, reads and answers them on the client's own
//! connection (keta §3). The connection stays one of its loop or thread, with its place, its count of requests, its
//! ticket and its deadline; what leaves is its socket.
//!
//! | module | what it holds |
//! |---|---|
//! | `link` | a link to a receiver, and the client's socket while that has it |
//! | [`exchange`] | one request: which receiver, in which order, for how long |
//!
//! What is said over a link stands in [`receivers`](crate::receivers). A client whose own socket is of no use to a
//! receiver is an application's, over [a pair of sockets](crate::upstreams::offered).

pub mod exchange;
mod link;
