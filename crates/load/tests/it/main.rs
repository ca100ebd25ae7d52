//! The load generator against servers that behave as a test wants.
#![forbid(unsafe_code)]

mod failures;
mod http2;
mod loops;
mod reports;
mod target;
mod tls;
