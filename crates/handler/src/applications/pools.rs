//! Connections to applications that wait for their next request: of a loop, or of all threads.

use forebay_upstream::pool::ConnectionPool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections that wait for their next request: a loop's own, or those that threads share.
#[derive(Debug)]
pub enum Pools {
    /// Of this loop.
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
