//! Our HTTP/2 and the crate `h2`, each as client of the other, over pieces of bytes of random size.
//!
//! Both sides know a list of cases. The request and the answer follow from the case's number, so each
//! side checks everything it receives. There is no socket and no runtime: futures are polled by hand, in
//! rounds.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

mod case;
mod h2_client;
mod h2_server;
mod ours;
mod wire;
