//! Tests of applications from outside the crate: inputs that fuzzers left, and variations of them;
//! and simulated links to the next stage.
#![forbid(unsafe_code)]
#![allow(clippy::panic, reason = "a failed check panics")]

mod link;
mod seeds;

// Properties that hold for every input, shared with the fuzz targets.
#[path = "../../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/checks/fastcgi.rs"]
mod fastcgi;
#[path = "../../../../fuzz/checks/told.rs"]
mod told;
