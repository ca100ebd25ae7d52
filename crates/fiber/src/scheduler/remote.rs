//! What other threads may ask of a scheduler: a list of messages, and a bell.

use super::SchedulerCore;
use super::entry::{FiberId, WaitId};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What a scheduler is asked to do.
pub(crate) enum SchedulerMessage {
    /// End this wait.
    Wake(WaitId),
    /// End this fiber's park.
    Unpark(FiberId),
    /// End the wait of this fiber, and those that follow.
    Interrupt(FiberId),
    /// Do this on the scheduler's thread.
    Call(Box<dyn FnOnce(&SchedulerCore) + Send>),
}

/// One scheduler as other threads see it.
pub(crate) struct Remote {
    /// `None` once the scheduler is gone.
    messages: Mutex<Option<Vec<SchedulerMessage>>>,
    /// There are messages; spares the scheduler the lock.
    waiting: AtomicBool,
    /// Made when the scheduler first waits in the kernel; before that it need not be woken.
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

    /// What becomes readable with a message. Those that came before it was made do not ring it.
    pub(crate) fn bell(&self) -> io::Result<BorrowedFd<'_>> {
        if self.bell.get().is_none() {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            // only the scheduler makes it
            let _ = self.bell.set(bell);
        }
        self.bell.get().map(AsFd::as_fd).ok_or(io::ErrorKind::NotFound.into())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<SchedulerMessage>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a message. If the scheduler is gone, it is dropped.
    pub(crate) fn post(&self, message: SchedulerMessage) {
        let mut messages = self.lock();
        let Some(list) = messages.as_mut() else {
            // whatever the message holds must not find this lock taken
            drop(messages);
            return drop(message);
        };
        list.push(message);
        self.waiting.store(true, Ordering::Release);
        if list.len() == 1
            && let Some(bell) = self.bell.get()
        {
            // the only failure is a counter that is full, and then the bell rings already
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

    /// No more messages are taken.
    pub(crate) fn close(&self) {
        let messages = self.lock().take();
        drop(messages);
    }
}
