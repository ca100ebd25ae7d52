//! Tests of the load generator against servers made for each test.
#![forbid(unsafe_code)]

mod failures;
mod http2;
mod loops;
mod reports;
mod target;
mod tls;
