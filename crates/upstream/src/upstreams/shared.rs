//! HTTP/2 to an application over connections that requests share (`http2_connections`).
//!
//! Requests of all loops and threads have their streams on the same few connections. Each connection is read by one
//! thread of the process, the carrier; an exchange sends by itself, and is told by an eventfd what has come, as it is
//! told of its turn in a queue. So an exchange waits for a descriptor of its own, on every engine, and none reads
//! for another.
//!
//! | file | what it holds |
//! |---|---|
//! | `shared/request.rs` | what has come for one request and was not taken |
//! | `shared/connection.rs` | one connection: streams, whose they are, frames that wait |
//! | `shared/set.rs` | the connections to one upstream: who has which, who waits for a stream |
//! | `shared/carrier.rs` | the thread that reads |
//! | `shared/stream.rs` | a stream as its exchange has it |
//!
//! What an answer has that its client does not take is kept here, up to the window of its stream, and the connection
//! is read on: a slow client holds up no other. All that belongs to one upstream is under one lock; nothing that
//! blocks is done beneath it.

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

/// What is to be told of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedConnectionCounts {
    /// Connections that are open.
    pub connections: u64,
    /// Requests that have a stream there, or wait for one.
    pub streams: u64,
    /// GOAWAYs that have come.
    pub goaways: u64,
}

impl SharedConnectionCounts {
    /// Those of both.
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
    /// What is to be told of them.
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

/// A number that no other connection has.
fn next_connection() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}
