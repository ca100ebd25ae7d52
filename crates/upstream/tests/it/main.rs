//! Applications behind, from outside the crate: the inputs that fuzzers left, and whatever resembles them.
#![forbid(unsafe_code)]
#![allow(clippy::panic, reason = "a failed check panics")]

mod seeds;

// What holds for every input, shared with the fuzz targets.
#[path = "../../../../fuzz/checks/fastcgi.rs"]
mod fastcgi;
#[path = "../../../../fuzz/checks/told.rs"]
mod told;
