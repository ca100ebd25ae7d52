//! The descriptor that wakes a loop or a thread from outside.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The wake-up of a loop that waits in [`Epoll::wait`](crate::epoll::Epoll::wait); any thread may
/// ring it.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A silent bell.
    ///
    /// # Errors
    /// Lack of descriptors or memory.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the bell readable.
    pub fn ring(&self) {
        // A write can fail only because the counter is full, and then the bell is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes the bell silent again.
    pub fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::{Epoll, Events};

    #[test]
    fn a_bell_ends_a_short_wait() {
        let (epoll, bell) = (Epoll::new().unwrap(), Bell::new().unwrap());
        epoll.add_reader(&bell, 7).unwrap();
        bell.ring();
        let mut events = Events::with_capacity(4);
        epoll.wait_ns(&mut events, 60_000_000_000).unwrap();
        assert_eq!(events.iter().map(|ready| ready.token).collect::<Vec<_>>(), [7]);
    }
}
