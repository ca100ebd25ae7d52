//! Interrupts: the waits of a fiber or a thread end before their event has come.

use super::entry::with_running;
use rustix::event::{EventfdFlags, eventfd};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

/// A handle that ends the waits of a thread, from any other thread.
#[derive(Clone, Debug)]
pub struct ThreadInterrupt(Arc<InterruptState>);

#[derive(Debug)]
struct InterruptState {
    is_given: AtomicBool,
    /// The thread that works under the interrupt.
    thread: OnceLock<Thread>,
    /// The eventfd that wakes the thread, made when it first waits for a descriptor.
    bell: OnceLock<OwnedFd>,
}

thread_local! {
    /// The interrupt under which this thread works.
    static CURRENT: RefCell<Option<ThreadInterrupt>> = const { RefCell::new(None) };
}

impl ThreadInterrupt {
    /// An interrupt under which no thread works yet.
    #[allow(clippy::new_without_default, reason = "each is another")]
    pub fn new() -> ThreadInterrupt {
        let (is_given, thread, bell) = (AtomicBool::new(false), OnceLock::new(), OnceLock::new());
        ThreadInterrupt(Arc::new(InterruptState { is_given, thread, bell }))
    }

    /// Calls `work` on this thread. Its waits end once the interrupt is [given](ThreadInterrupt::give). Each
    /// interrupt is for one piece of work.
    pub fn under<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Restored(Option<ThreadInterrupt>);
        impl Drop for Restored {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _ = self.0.thread.set(std::thread::current());
        let _restored = Restored(CURRENT.replace(Some(self.clone())));
        work()
    }

    /// Ends the present wait of the work, and makes later ones return at once.
    pub fn give(&self) {
        self.0.is_given.store(true, Ordering::SeqCst);
        if let Some(thread) = self.0.thread.get() {
            thread.unpark();
        }
        if let Some(bell) = self.0.bell.get() {
            // the write can only fail because the counter is full, and then the bell rings already
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn is_given(&self) -> bool {
        self.0.is_given.load(Ordering::SeqCst)
    }

    pub(crate) fn bell(&self) -> io::Result<BorrowedFd<'_>> {
        if self.0.bell.get().is_none() {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let _ = self.0.bell.set(bell);
        }
        self.0.bell.get().map(AsFd::as_fd).ok_or(io::ErrorKind::NotFound.into())
    }
}

/// Whether the running fiber, or this thread, should no longer wait.
pub fn is_interrupted() -> bool {
    let by_fiber = with_running(|_, entry| entry.interrupted.get());
    by_fiber.unwrap_or_else(|| {
        CURRENT.with_borrow(|current| current.as_ref().is_some_and(ThreadInterrupt::is_given))
    })
}

/// The interrupt under which this thread works.
pub(crate) fn of_this_thread() -> Option<ThreadInterrupt> {
    CURRENT.with_borrow(Clone::clone)
}
