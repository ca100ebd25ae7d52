//! What other threads may ask of a scheduler: a list of messages, and a bell.

use crate::entry::{Id, Ticket};
use crate::scheduler::Core;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a scheduler is asked to do.
pub(crate) enum Message {
    /// End this wait.
    Wake(Ticket),
    /// End this fiber's park.
    Unpark(Id),
    /// Do this on the scheduler's thread.
    Call(Box<dyn FnOnce(&Core) + Send>),
}

/// One scheduler as other threads see it.
pub(crate) struct Remote {
    /// `None` once the scheduler is gone.
    messages: Mutex<Option<Vec<Message>>>,
    /// There are messages; spares the scheduler the lock.
    waiting: AtomicBool,
    bell: OwnedFd,
}

impl Remote {
    pub(crate) fn new() -> io::Result<Remote> {
        Ok(Remote {
            messages: Mutex::new(Some(Vec::new())),
            waiting: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Message>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a message. If the scheduler is gone, it is dropped.
    pub(crate) fn post(&self, message: Message) {
        let mut messages = self.lock();
        let Some(list) = messages.as_mut() else {
            // whatever the message holds must not find this lock taken
            drop(messages);
            return drop(message);
        };
        list.push(message);
        self.waiting.store(true, Ordering::Release);
        if list.len() == 1 {
            // the only failure is a counter that is full, and then the bell rings already
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Takes all messages, in the order in which they came.
    #[inline]
    pub(crate) fn take(&self) -> Vec<Message> {
        if !self.waiting.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut messages = self.lock();
        self.waiting.store(false, Ordering::Release);
        messages.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn silence(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
    }

    /// No more messages are taken.
    pub(crate) fn close(&self) {
        let messages = self.lock().take();
        drop(messages);
    }
}

impl AsFd for Remote {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
