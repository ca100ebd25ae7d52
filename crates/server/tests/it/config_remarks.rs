//! The warnings of `forebay check` about settings that are valid but probably not intended.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

mod applications;
mod files;
mod process;
mod rules;
mod tls;
mod unused;
