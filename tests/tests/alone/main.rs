//! The real program under load: what has the machine for itself, or as many descriptors as it may.
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

/// Held by a test that measures, storms or opens thousands of connections.
static ALONE: Mutex<()> = Mutex::new(());
