//! How much a client takes of its answers in a window of time, and what the kernel keeps unsent for it.

use forebay_sys::socket::{self, UNSENT_BYTES};
use std::os::fd::BorrowedFd;

/// A client that takes this many bytes per second …
const FAST_BYTES_PER_S: u64 = 8 << 20;

/// … and has taken this many …
const FAST_BYTES: u64 = 4 << 20;

/// … has this many unsent in the kernel. Others have [`UNSENT_BYTES`], which are gone in 8 ms at 30
/// MB/s, so that a path of 80 ms runs empty meanwhile (ADR 0074).
const FAST_UNSENT_BYTES: u32 = 1 << 20;

/// The bytes that a client has taken since the window began.
#[derive(Debug, Default)]
pub(crate) struct TakenWindow {
    /// Bytes given to the kernel since then …
    bytes: u64,
    /// … and bytes the client had not acknowledged then.
    queued: u64,
    /// The time when the window began, in milliseconds of the clock of turns.
    begun_ms: u64,
    /// The kernel keeps [`FAST_UNSENT_BYTES`] for this client.
    is_fast: bool,
}

impl TakenWindow {
    /// Begins a new window.
    pub(crate) fn begin(&mut self, socket: BorrowedFd<'_>, now_ms: u64) {
        self.begun_ms = now_ms;
        self.bytes = 0;
        self.queued = unacknowledged(socket);
    }

    /// Counts bytes that were given to the kernel.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Notes that the kernel takes no more for now; from now on it keeps more for a client that is
    /// fast.
    #[inline]
    pub(crate) fn blocked(&mut self, socket: BorrowedFd<'_>, now_ms: u64) {
        if self.bytes >= FAST_BYTES && !self.is_fast && self.is_fast_with(self.bytes, now_ms) {
            self.is_fast = true;
            // a socket other than TCP has no such bound
            _ = socket::bound_unsent(socket, FAST_UNSENT_BYTES);
        }
    }

    /// Returns the bytes that the client has taken since the window began, and begins a new one. If
    /// the client has taken all that there was, returns the largest number.
    pub(crate) fn look(&mut self, socket: BorrowedFd<'_>, now_ms: u64) -> u64 {
        let left = unacknowledged(socket);
        let taken = (self.queued + self.bytes).saturating_sub(left);
        if self.is_fast && !self.is_fast_with(taken, now_ms) {
            self.is_fast = false;
            // as in `blocked`
            _ = socket::bound_unsent(socket, UNSENT_BYTES);
        }
        *self = TakenWindow { bytes: 0, queued: left, begun_ms: now_ms, is_fast: self.is_fast };
        if left == 0 { u64::MAX } else { taken }
    }

    /// Bytes per second that the client has taken since the window began.
    pub(crate) fn taken_per_s(&self, socket: BorrowedFd<'_>, now_ms: u64) -> u64 {
        let taken = (self.queued + self.bytes).saturating_sub(unacknowledged(socket));
        taken.saturating_mul(1000) / self.ms(now_ms).max(1)
    }

    fn is_fast_with(&self, bytes: u64, now_ms: u64) -> bool {
        bytes.saturating_mul(1000) / FAST_BYTES_PER_S >= self.ms(now_ms)
    }

    fn ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.begun_ms)
    }
}

/// The bytes that were sent and that the client's kernel has not acknowledged. This is a system
/// call.
pub(crate) fn unacknowledged(socket: BorrowedFd<'_>) -> u64 {
    socket::unacknowledged(socket).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_sys::socket::unsent_bound;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    /// A client that takes 8 MiB a second has more unsent in the kernel, until it takes less.
    #[test]
    fn a_fast_client_has_more_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        socket::bound_unsent(server.as_fd(), UNSENT_BYTES).unwrap();
        let mut window = TakenWindow::default();
        let bound = |server: &TcpStream| unsent_bound(server.as_fd()).unwrap();
        window.begin(server.as_fd(), 1000);
        window.sent(FAST_BYTES - 1);
        window.blocked(server.as_fd(), 1100);
        assert_eq!(bound(&server), UNSENT_BYTES, "it has taken too little to be known");
        window.sent(1);
        window.blocked(server.as_fd(), 1501);
        assert_eq!(bound(&server), UNSENT_BYTES, "it is not fast");
        window.blocked(server.as_fd(), 1500);
        assert_eq!(bound(&server), FAST_UNSENT_BYTES);
        assert_eq!(window.look(server.as_fd(), 1500), u64::MAX);
        assert_eq!(bound(&server), FAST_UNSENT_BYTES);
        // the client takes some of what it gets
        server.set_nonblocking(true).unwrap();
        while let Ok(count) = server.write(&[0; 65_536]) {
            window.sent(count as u64);
        }
        client.read_exact(&mut [0; 1024]).unwrap();
        let taken = window.look(server.as_fd(), 4000);
        assert!(taken < FAST_BYTES, "{taken}");
        assert_eq!(bound(&server), UNSENT_BYTES);
    }
}
