//! HTTP/2 to an application over connections that requests share (`http2_connections`).
//!
//! Requests of all loops and threads have their streams on the same few connections. One thread of
//! the process, the carrier, reads each connection. An exchange sends by itself, and an eventfd tells
//! it when something has come, as with its turn in a queue. So an exchange waits for a descriptor of
//! its own on every engine, and no exchange reads for another.
//!
//! | file | what it holds |
//! |---|---|
//! | `shared/request.rs` | what has come for one request and was not taken |
//! | `shared/connection.rs` | one connection: its streams, their requests, frames that wait |
//! | `shared/set.rs` | the connections to one upstream: which request has which, which wait for a stream |
//! | `shared/carrier.rs` | the thread that reads |
//! | `shared/stream.rs` | a stream as its exchange has it |
//!
//! The part of an answer that its client does not take is kept here, up to the window of its stream,
//! and the connection is read on: a slow client holds up no other. Everything that belongs to one
//! upstream is under one lock, and nothing that blocks is done under it.

mod carrier;
mod connection;
mod request;
mod set;
mod stream;

use set::SharedSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

pub(crate) use set::SharedConnectionLimits;
pub(crate) use stream::SharedStream;

/// The connections to one upstream that requests share.
#[derive(Debug)]
pub(crate) struct SharedConnections(Mutex<SharedSet>);

impl Default for SharedConnections {
    fn default() -> SharedConnections {
        SharedConnections(Mutex::new(SharedSet::new()))
    }
}

/// The counts of shared connections, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedConnectionCounts {
    /// The number of open connections.
    pub connections: u64,
    /// The number of requests that have a stream there, or wait for one.
    pub streams: u64,
    /// The number of GOAWAYs that have come.
    pub goaways: u64,
}

impl SharedConnectionCounts {
    /// The sum of both.
    #[must_use]
    pub fn and(self, other: SharedConnectionCounts) -> SharedConnectionCounts {
        SharedConnectionCounts {
            connections: self.connections + other.connections,
            streams: self.streams + other.streams,
            goaways: self.goaways + other.goaways,
        }
    }
}

impl SharedConnections {
    /// The counts for metrics.
    pub(crate) fn counts(&self) -> SharedConnectionCounts {
        self.with(|set| set.counts())
    }

    fn with<R>(&self, act: impl FnOnce(&mut SharedSet) -> R) -> R {
        let mut set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let done = act(&mut set);
        let closed = std::mem::take(&mut set.closed);
        drop(set);
        carrier::forget(&closed);
        done
    }
}

/// A unique number for a connection.
fn next_connection() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}
