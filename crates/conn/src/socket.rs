//! The sockets that requests wait for besides the client's: which one, and for what.

use std::sync::atomic::{AtomicU64, Ordering};

/// A socket that requests wait for, one after another, as long as it is open. No other in the process ever
/// has the same: descriptors have the numbers of those that were closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketId(u64);

impl SocketId {
    /// Of another socket.
    #[allow(clippy::new_without_default, reason = "each is another")]
    pub fn new() -> SocketId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        SocketId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a socket is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// That something has come, or its peer has ended.
    pub read: bool,
    /// That there is room to write.
    pub write: bool,
}
