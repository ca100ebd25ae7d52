//! Connections to applications that wait for their next request: of a loop, or of all threads.

use forebay_conn::SocketId;
use forebay_upstream::pool::ConnectionPool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections that wait for their next request: a loop's own, or those that threads share.
#[derive(Debug)]
pub enum Pools {
    /// Of this loop, which [says](Pools::stirred) what comes on them.
    Own(ConnectionPool),
    /// Of all threads.
    Shared(Arc<Mutex<ConnectionPool>>),
}

impl Pools {
    /// Does something with them.
    pub fn with<R>(&mut self, act: impl FnOnce(&mut ConnectionPool) -> R) -> R {
        match self {
            Pools::Own(pool) => act(pool),
            Pools::Shared(pool) => act(&mut lock(pool)),
        }
    }

    /// Something has come on a socket that no request waits for. The loop that has heard of it is not the one that takes
    /// connections out of what threads share, so these are looked at when they are taken.
    pub fn stirred(&mut self, socket: SocketId, now_ms: u64) {
        if let Pools::Own(pool) = self {
            pool.stirred(socket, now_ms);
        }
    }

    /// Once in a while those are closed that have ended. Threads do not wait for one another for that.
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
