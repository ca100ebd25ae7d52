//! Calls that only one thread may make, such as those of a user interface, requested by fibers on
//! other threads (emu §2: synchronisation with the main thread).

use crate::scheduler::join::{JoinError, Packet};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Call = Box<dyn FnOnce() + Send>;

struct Shared {
    /// The requested calls; `None` once the main thread makes no more.
    calls: Mutex<Option<VecDeque<Call>>>,
    /// Whether the last handle is gone.
    done: AtomicBool,
    bell: OwnedFd,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<VecDeque<Call>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // the write can only fail because the counter is full, and then the bell rings already
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// The side of the thread that makes the calls. It stays on that thread.
///
/// A thread with a loop of its own watches the descriptor and calls
/// [`make_calls`](MainThread::make_calls); one without calls [`serve`](MainThread::serve). When
/// this is dropped, callers that still wait get [`JoinError::Dropped`].
pub struct MainThread {
    shared: Arc<Shared>,
    stays: PhantomData<*const ()>,
}

/// The side of the fibers, which any thread may use.
#[derive(Clone)]
pub struct MainHandle {
    last: Arc<LastHandle>,
}

/// Held by all handles; when the last one is dropped, it wakes the main thread.
struct LastHandle(Arc<Shared>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Release);
        self.0.ring();
    }
}

impl MainThread {
    /// Makes the calling thread the main thread.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn new() -> io::Result<(MainThread, MainHandle)> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let calls = Mutex::new(Some(VecDeque::new()));
        let shared = Arc::new(Shared { calls, done: AtomicBool::new(false), bell });
        let handle = MainHandle { last: Arc::new(LastHandle(Arc::clone(&shared))) };
        Ok((MainThread { shared, stays: PhantomData }, handle))
    }

    /// Makes the requested calls, in the order in which they came. Returns how many.
    pub fn make_calls(&self) -> usize {
        let _ = rustix::io::read(&self.shared.bell, &mut [0u8; 8]);
        let calls = self.shared.lock().as_mut().map(std::mem::take).unwrap_or_default();
        let count = calls.len();
        calls.into_iter().for_each(|call| call());
        count
    }

    /// Makes calls until the last handle is gone.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn serve(self) -> io::Result<()> {
        while !self.shared.done.load(Ordering::Acquire) {
            match poll(&mut [PollFd::new(&self.shared.bell, PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => self.make_calls(),
                Err(error) => return Err(error.into()),
            };
        }
        Ok(())
    }
}

impl AsFd for MainThread {
    /// A descriptor that is readable while calls are waiting.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }
}

impl Drop for MainThread {
    fn drop(&mut self) {
        let calls = self.shared.lock().take();
        // dropping a call wakes its caller with an error
        drop(calls);
    }
}

impl MainHandle {
    /// Calls `f` on the main thread and waits for its result. A fiber lets others run meanwhile; a
    /// thread sleeps.
    ///
    /// # Errors
    /// `f` panicked, or the main thread makes no more calls.
    pub fn call<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let packet = Packet::new();
        let promise = Packet::promise(&packet);
        let call: Call = Box::new(move || promise.keep(catch_unwind(AssertUnwindSafe(f))));
        let shared = &self.last.0;
        match shared.lock().as_mut() {
            Some(calls) => calls.push_back(call),
            None => return Err(JoinError::Dropped),
        }
        shared.ring();
        packet.wait()
    }
}
