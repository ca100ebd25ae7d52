//! Connections to applications that wait for their next request: those of a loop, or those of all
//! threads.

use forebay_conn::SocketId;
use forebay_upstream::pool::ConnectionPool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections that wait for their next request: a loop's own, or those that threads share.
#[derive(Debug)]
pub enum Pools {
    /// The connections of this loop, which [reports](Pools::stirred) their events.
    Own(ConnectionPool),
    /// The connections of all threads.
    Shared(Arc<Mutex<ConnectionPool>>),
}

impl Pools {
    /// Calls `act` with the connections.
    pub fn with<R>(&mut self, act: impl FnOnce(&mut ConnectionPool) -> R) -> R {
        match self {
            Pools::Own(pool) => act(pool),
            Pools::Shared(pool) => act(&mut lock(pool)),
        }
    }

    /// Notes an event on a socket that no request waits for. Only a loop's own connections use this:
    /// shared ones may be taken by any thread, so they are checked when they are taken.
    pub fn stirred(&mut self, socket: SocketId, now_ms: u64) {
        if let Pools::Own(pool) = self {
            pool.stirred(socket, now_ms);
        }
    }

    /// Closes connections that have ended, from time to time. Threads do not wait for one another for
    /// that.
    #[inline]
    pub fn look(&mut self, now_ms: u64) {
        match self {
            Pools::Own(pool) => pool.look(now_ms),
            Pools::Shared(pool) => {
                if let Ok(mut pool) = pool.try_lock() {
                    pool.look(now_ms);
                }
            }
        }
    }
}

fn lock(pool: &Mutex<ConnectionPool>) -> MutexGuard<'_, ConnectionPool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}
