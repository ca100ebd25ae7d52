//! Messages from other threads to a scheduler, and its bell.

use super::SchedulerCore;
use super::entry::{FiberId, WaitId};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A request to a scheduler.
pub(crate) enum SchedulerMessage {
    /// Ends this wait.
    Wake(WaitId),
    /// Ends this fiber's park.
    Unpark(FiberId),
    /// Ends this fiber's present wait, and later ones.
    Interrupt(FiberId),
    /// Calls this on the scheduler's thread.
    Call(Box<dyn FnOnce(&SchedulerCore) + Send>),
}

/// One scheduler as other threads see it.
pub(crate) struct Remote {
    /// The messages; `None` once the scheduler is gone.
    messages: Mutex<Option<Vec<SchedulerMessage>>>,
    /// Whether there are messages; spares the scheduler the lock.
    waiting: AtomicBool,
    /// The eventfd, made when the scheduler first waits in the kernel; before that it need not be
    /// woken.
    bell: OnceLock<OwnedFd>,
}

impl Remote {
    pub(crate) fn new() -> Remote {
        Remote {
            messages: Mutex::new(Some(Vec::new())),
            waiting: AtomicBool::new(false),
            bell: OnceLock::new(),
        }
    }

    /// The descriptor that a message makes readable. Messages from before it was made do not ring
    /// it.
    pub(crate) fn bell(&self) -> io::Result<BorrowedFd<'_>> {
        if self.bell.get().is_none() {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            // only the scheduler's thread sets it
            let _ = self.bell.set(bell);
        }
        self.bell.get().map(AsFd::as_fd).ok_or(io::ErrorKind::NotFound.into())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<SchedulerMessage>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message. If the scheduler is gone, the message is dropped.
    pub(crate) fn post(&self, message: SchedulerMessage) {
        let mut messages = self.lock();
        let Some(list) = messages.as_mut() else {
            // dropping the message must not happen under this lock, which it may need
            drop(messages);
            return drop(message);
        };
        list.push(message);
        self.waiting.store(true, Ordering::Release);
        // only the first message rings: the scheduler takes all of them at once
        if list.len() == 1
            && let Some(bell) = self.bell.get()
        {
            // the write can only fail because the counter is full, and then the bell rings already
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    /// Takes all messages, in the order in which they came.
    #[inline]
    pub(crate) fn take(&self) -> Vec<SchedulerMessage> {
        if !self.waiting.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut messages = self.lock();
        self.waiting.store(false, Ordering::Release);
        messages.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn silence(&self) {
        if let Some(bell) = self.bell.get() {
            let _ = rustix::io::read(bell, &mut [0u8; 8]);
        }
    }

    /// Drops all messages, and accepts no more.
    pub(crate) fn close(&self) {
        let messages = self.lock().take();
        drop(messages);
    }
}
