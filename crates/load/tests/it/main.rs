//! The load generator against servers that behave as a test wants.
#![forbid(unsafe_code)]

mod failures;
mod loops;
mod reports;
mod target;
