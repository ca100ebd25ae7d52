//! Access logs from outside the crate.
#![forbid(unsafe_code)]

mod log;
