//! An eventfd for requests that code of this process wakes, where the engine leaves nothing in the
//! [slot](forebay_conn::WakeSlot). It takes the place of an exchange's socket. Loops leave a waker,
//! so that they need neither a descriptor nor a system call; a thread that waits in `poll` needs an
//! eventfd.

use forebay_conn::{SocketId, WakeSlot, Wants};
use forebay_sys::epoll::Bell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};

/// An eventfd that is made when it is first waited for.
#[derive(Debug, Default)]
pub struct WakeBell(OnceLock<Option<Arc<RungBell>>>);

#[derive(Debug)]
struct RungBell {
    socket_id: SocketId,
    bell: Bell,
}

impl Wake for RungBell {
    fn wake(self: Arc<Self>) {
        self.bell.ring();
    }
}

impl WakeBell {
    /// The eventfd to wait for; `None` while the engine uses the slot.
    pub fn socket(&self, slot: &WakeSlot) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        if self.0.get().is_none() && slot.is_set() {
            return None;
        }
        let rung = self.0.get_or_init(|| {
            let rung = Arc::new(RungBell { socket_id: SocketId::new(), bell: Bell::new().ok()? });
            slot.set(Waker::from(Arc::clone(&rung)));
            Some(rung)
        });
        let RungBell { socket_id, bell } = &**rung.as_ref()?;
        Some((*socket_id, bell.as_fd(), Wants { read: true, write: false }))
    }

    /// Silences the eventfd, before the request looks at what there is for it.
    pub fn silence(&self) {
        if let Some(Some(rung)) = self.0.get() {
            rung.bell.silence();
        }
    }

    /// Whether no descriptor was free for the eventfd, so that nothing would wake a thread that waits
    /// in `poll`.
    pub fn is_deaf(&self) -> bool {
        matches!(self.0.get(), Some(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_sys::poll;

    #[test]
    fn a_call_that_came_before_anything_waits_is_heard() {
        let (slot, bell) = (WakeSlot::default(), WakeBell::default());
        slot.wake();
        let (_, socket, _) = bell.socket(&slot).unwrap();
        assert_eq!(poll::wait_readable(&[socket], 60_000).unwrap(), [true]);
        bell.silence();
        assert_eq!(poll::wait_readable(&[socket], 0).unwrap(), [false]);
        assert!(!bell.is_deaf());
    }

    #[test]
    fn a_request_that_its_loop_wakes_has_no_descriptor() {
        let (slot, bell) = (WakeSlot::default(), WakeBell::default());
        slot.set(Waker::noop().clone());
        assert!(bell.socket(&slot).is_none() && !bell.is_deaf());
    }
}
