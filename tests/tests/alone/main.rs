//! Tests of the real program under load, which need the machine for themselves, or as many descriptors as
//! there are.
//!
//! A file is a module: `cargo test -p forebay-tests --test alone faults_truth::`. A test that must not
//! run beside another holds [`ALONE`].
#![forbid(unsafe_code)]

use std::sync::Mutex;

mod agent;
mod faults_memory;
mod faults_slow;
mod faults_truth;
mod http2_abuse;
mod websockets;

/// A lock that a test holds while it measures, storms or opens thousands of connections.
static ALONE: Mutex<()> = Mutex::new(());
