//! Applications behind, from outside the crate: the inputs that fuzzers left, and whatever resembles them;
//! and links to the next stage, simulated.
#![forbid(unsafe_code)]
#![allow(clippy::panic, reason = "a failed check panics")]

mod link;
mod seeds;

// What holds for every input, shared with the fuzz targets.
#[path = "../../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/checks/fastcgi.rs"]
mod fastcgi;
#[path = "../../../../fuzz/checks/told.rs"]
mod told;
