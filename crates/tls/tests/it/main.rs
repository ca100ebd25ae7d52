//! Tests of the crate from outside: inputs that a fuzzer found, and those it begins with.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "../../../../fuzz/checks/tls.rs"]
mod checks;
#[path = "../../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn tls_seeds() {
    corpus::each_seed("tls", checks::check);
}
