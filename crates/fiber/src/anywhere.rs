//! Waits that work on a fiber and on a thread alike: a fiber lets others run meanwhile, a thread sleeps.
//!
//! | to wait for | call |
//! |---|---|
//! | some time | [`sleep`] |
//! | values from elsewhere | [`channel()`] |
//! | a descriptor | [`readable`], [`writable`] |
//! | a call of the [`unparker`] | [`park`] |
//!
//! All of them end early, with [`Interrupted`], once the fiber was [interrupted](crate::Fiber::interrupt), or
//! the thread by the [`ThreadInterrupt`] under which it works. Each time, the fiber lets others run before
//! the call returns, so code that ignores the error and never ends does not block other fibers. In a fiber
//! that panics, waits do not wait and return the same error.
//!
//! ```
//! use forebay_fiber::anywhere::{channel, sleep};
//! use std::time::Duration;
//!
//! let (sender, receiver) = channel(8);
//! // on a thread
//! sleep(Duration::from_millis(1)).unwrap();
//! sender.send("by a thread").unwrap();
//! // and on a fiber
//! let received = forebay_fiber::run(move || receiver.recv()).unwrap();
//! assert_eq!(received.unwrap(), "by a thread");
//! ```

mod channel;

pub use channel::{ChannelError, ChannelReceiver, ChannelSender, channel};

use crate::scheduler::entry::with_running;
use crate::scheduler::interrupt::of_this_thread;
pub use crate::scheduler::interrupt::{ThreadInterrupt, is_interrupted};
use crate::scheduler::join::Unparker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The error of a wait that ended before its event came: the code should come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the wait was interrupted")
    }
}

impl std::error::Error for Interrupted {}

impl From<Interrupted> for io::Error {
    fn from(interrupted: Interrupted) -> io::Error {
        // not `Interrupted`, on which loops of the standard library try again
        io::Error::new(io::ErrorKind::ConnectionAborted, interrupted)
    }
}

/// The handle that ends a [`park`], from any thread.
#[derive(Clone)]
pub struct AnyUnparker(UnparkerOf);

#[derive(Clone)]
enum UnparkerOf {
    Fiber(Unparker),
    Thread(Thread),
}

impl AnyUnparker {
    /// Ends the park, or makes the next one return at once.
    pub fn unpark(&self) {
        match &self.0 {
            UnparkerOf::Fiber(unparker) => unparker.unpark(),
            UnparkerOf::Thread(thread) => thread.unpark(),
        }
    }
}

/// The handle that ends the next [`park`] of the running fiber or of this thread.
pub fn unparker() -> AnyUnparker {
    let fiber = with_running(|core, entry| Unparker::new(entry.id(), Arc::clone(&core.remote)));
    AnyUnparker(match fiber {
        Some(unparker) => UnparkerOf::Fiber(unparker),
        None => UnparkerOf::Thread(std::thread::current()),
    })
}

/// Waits until the fiber or thread is [unparked](AnyUnparker::unpark), or until this time. The wait may also
/// end without either, so the caller must check its condition again.
///
/// # Errors
/// The wait was interrupted, or the fiber panics.
pub fn park(until: Option<Instant>) -> Result<(), Interrupted> {
    if ends_at_once() {
        return Err(Interrupted);
    }
    if with_running(|core, entry| entry.park(core, until)).is_none() {
        match until {
            Some(at) => std::thread::park_timeout(at.saturating_duration_since(Instant::now())),
            None => std::thread::park(),
        }
    }
    if ends_at_once() { Err(Interrupted) } else { Ok(()) }
}

/// Whether a wait must end before its event has come. If so, the fiber has let others run, unless it unwinds.
fn ends_at_once() -> bool {
    let of_fiber = with_running(|_, entry| {
        let ends = entry.interrupted.get() || std::thread::panicking();
        if ends {
            entry.give_way();
        }
        ends
    });
    of_fiber.unwrap_or_else(is_interrupted)
}

/// Waits for at least this long.
///
/// # Errors
/// The same as of [`park`].
pub fn sleep(time: Duration) -> Result<(), Interrupted> {
    // far enough in the future to mean never
    let longest = Duration::from_secs(100 * 365 * 86_400);
    let at = Instant::now() + time.min(longest);
    loop {
        park(Some(at))?;
        if Instant::now() >= at {
            return Ok(());
        }
    }
}

/// Waits until `fd` can be read or has come to its end. The descriptor should be non-blocking.
///
/// # Errors
/// The same as of [`crate::readable`]; `ConnectionAborted` if the wait was interrupted.
pub fn readable(fd: impl AsFd) -> io::Result<()> {
    ready(fd.as_fd(), PollFlags::IN)
}

/// Waits until `fd` can be written. The descriptor should be non-blocking.
///
/// # Errors
/// The same as of [`readable`].
pub fn writable(fd: impl AsFd) -> io::Result<()> {
    ready(fd.as_fd(), PollFlags::OUT)
}

fn ready(fd: BorrowedFd<'_>, wanted: PollFlags) -> io::Result<()> {
    if ends_at_once() {
        return Err(Interrupted.into());
    }
    if with_running(|_, _| ()).is_some() {
        match wanted {
            PollFlags::IN => crate::readable(fd)?,
            _ => crate::writable(fd)?,
        }
    } else {
        let current = of_this_thread();
        let bell = current.as_ref().map(ThreadInterrupt::bell).transpose()?;
        // the interrupt may have been given before the bell existed
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = current.as_ref().is_some_and(ThreadInterrupt::is_given).then_some(none);
        let mut set: Vec<_> =
            bell.map(|bell| PollFd::from_borrowed_fd(bell, PollFlags::IN)).into_iter().collect();
        set.push(PollFd::from_borrowed_fd(fd, wanted));
        loop {
            match poll(&mut set, timeout.as_ref()) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    if ends_at_once() { Err(Interrupted.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Scheduler};
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn an_interrupted_fiber_that_asks_again_and_again_lets_others_run() {
        for waits in
            [|| sleep(Duration::from_secs(3600)).is_err(), || readable(std::io::stdin()).is_err()]
        {
            let scheduler = Scheduler::new(Options::default());
            let done = Rc::<Cell<bool>>::default();
            let seen = Rc::clone(&done);
            let stubborn = scheduler.spawn(move || while waits() && !seen.get() {}).unwrap();
            stubborn.interrupt();
            scheduler.run(move || done.set(true)).unwrap();
            scheduler.turn(Some(Duration::ZERO)).unwrap();
            assert!(stubborn.is_finished());
        }
    }

    #[test]
    fn a_fiber_that_panics_is_told_that_it_does_not_wait() {
        struct Waits(Rc<Cell<u32>>);
        impl Drop for Waits {
            fn drop(&mut self) {
                let (sender, receiver) = channel(1);
                sender.send(()).unwrap();
                let told = [
                    park(None).is_err(),
                    sleep(Duration::from_secs(3600)).is_err(),
                    sender.send(()).is_err(),
                    receiver.recv().is_ok() && receiver.recv().is_err(),
                ];
                self.0.set(told.into_iter().map(u32::from).sum());
            }
        }
        let scheduler = Scheduler::new(Options::default());
        let told = Rc::<Cell<u32>>::default();
        let waits = Waits(Rc::clone(&told));
        let fiber = scheduler.spawn(move || {
            let _waits = waits;
            std::panic::resume_unwind(Box::new("a panic that says nothing"));
        });
        let fiber = fiber.unwrap();
        scheduler.run(|| crate::yield_now()).unwrap();
        assert!(fiber.is_finished());
        assert_eq!(told.get(), 4);
    }
}
