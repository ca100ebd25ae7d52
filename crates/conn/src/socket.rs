//! The sockets that requests wait for besides the client's: which one, and for what.

use std::sync::atomic::{AtomicU64, Ordering};

/// The identity of an open socket that requests wait for, one after another. No other socket of the
/// process ever has the same, unlike descriptors, which get the numbers of closed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketId(u64);

impl SocketId {
    /// The identity of a new socket.
    #[allow(clippy::new_without_default, reason = "each is another")]
    pub fn new() -> SocketId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        SocketId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The events for which a socket is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Bytes have come, or the peer has ended its direction.
    pub read: bool,
    /// There is room to write.
    pub write: bool,
}
