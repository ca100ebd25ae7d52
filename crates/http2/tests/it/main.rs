//! Tests of the crate from outside: with the output of another encoder, and with inputs found by
//! fuzzers.
#![forbid(unsafe_code)]

mod seeds;
mod stories;

// Properties of every input, shared with the fuzz targets.
#[path = "../../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/checks/hpack.rs"]
mod hpack;
#[path = "../../../../fuzz/checks/http2.rs"]
mod http2;
