//! Every engine with a handler made for the purpose: what a handler may do, and what an engine
//! guarantees it.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

mod ahead;
mod gone;
mod handler;
mod harness;
mod limits;
mod loops;
mod orders;
mod pipeline;
mod proxies;
mod ranks;
mod relays;
mod requests;
mod sends;
mod toy;
