//! The crate from outside: what another encoder wrote, and the inputs that fuzzers left.
#![forbid(unsafe_code)]

mod seeds;
mod stories;

// What holds for every input, shared with the fuzz targets.
#[path = "../../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/checks/hpack.rs"]
mod hpack;
#[path = "../../../../fuzz/checks/http2.rs"]
mod http2;
