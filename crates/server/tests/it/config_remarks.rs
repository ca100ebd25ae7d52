//! What `forebay check` warns of: what is right and yet hardly meant.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

mod applications;
mod files;
mod process;
mod rules;
mod tls;
mod unused;
