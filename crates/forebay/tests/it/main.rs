//! Servers inside a program, as the program sees them.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

/// An allocator that counts the bytes in use.
#[global_allocator]
static HEAP: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

#[macro_use]
mod engines;
mod client;
mod examples;
mod handlers;
mod http2;
mod limits;
mod policy;
mod process;
mod servers;
mod traces;
mod upgrades;
