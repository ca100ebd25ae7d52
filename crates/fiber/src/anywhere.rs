//! Waits that code has on a fiber and on a thread alike: a fiber lets others run meanwhile, a thread sleeps.
//!
//! | to wait for | there is |
//! |---|---|
//! | some time | [`sleep`] |
//! | values from elsewhere | [`channel()`] |
//! | a descriptor | [`readable`], [`writable`] |
//! | whatever has the [`unparker`] | [`park`] |
//!
//! All of them end early, with [`Interrupted`], once the fiber was [interrupted](crate::Fiber::interrupt), or the
//! thread by the [`ThreadInterrupt`] under which it works.
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

/// The wait was ended before what was waited for had come: the code should come to its end.
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

/// What ends a [`park`], from any thread.
#[derive(Clone)]
pub struct AnyUnparker(UnparkerOf);

#[derive(Clone)]
enum UnparkerOf {
    Fiber(Unparker),
    Thread(Thread),
}

impl AnyUnparker {
    /// Ends the park, or the next one at once.
    pub fn unpark(&self) {
        match &self.0 {
            UnparkerOf::Fiber(unparker) => unparker.unpark(),
            UnparkerOf::Thread(thread) => thread.unpark(),
        }
    }
}

/// What ends the next [`park`] of the running fiber or of this thread.
pub fn unparker() -> AnyUnparker {
    let fiber = with_running(|core, entry| Unparker::new(entry.id(), Arc::clone(&core.remote)));
    AnyUnparker(match fiber {
        Some(unparker) => UnparkerOf::Fiber(unparker),
        None => UnparkerOf::Thread(std::thread::current()),
    })
}

/// Waits until it is [unparked](AnyUnparker::unpark), or until this time. It may end without either: look again at what
/// is waited for.
///
/// # Errors
/// The wait was interrupted.
pub fn park(until: Option<Instant>) -> Result<(), Interrupted> {
    if is_interrupted() {
        return Err(Interrupted);
    }
    if with_running(|core, entry| entry.park(core, until)).is_none() {
        match until {
            Some(at) => std::thread::park_timeout(at.saturating_duration_since(Instant::now())),
            None => std::thread::park(),
        }
    }
    if is_interrupted() { Err(Interrupted) } else { Ok(()) }
}

/// Waits for at least this long.
///
/// # Errors
/// The wait was interrupted.
pub fn sleep(time: Duration) -> Result<(), Interrupted> {
    // so late that it is not seen
    let longest = Duration::from_secs(100 * 365 * 86_400);
    let at = Instant::now() + time.min(longest);
    loop {
        park(Some(at))?;
        // a fiber that unwinds does not wait
        if Instant::now() >= at || std::thread::panicking() {
            return Ok(());
        }
    }
}

/// Waits until `fd` can be read or has come to its end. The descriptor should be non-blocking.
///
/// # Errors
/// As [`crate::readable`]; `ConnectionAborted` if the wait was interrupted.
pub fn readable(fd: impl AsFd) -> io::Result<()> {
    ready(fd.as_fd(), PollFlags::IN)
}

/// Waits until `fd` can be written. The descriptor should be non-blocking.
///
/// # Errors
/// As [`readable`].
pub fn writable(fd: impl AsFd) -> io::Result<()> {
    ready(fd.as_fd(), PollFlags::OUT)
}

fn ready(fd: BorrowedFd<'_>, wanted: PollFlags) -> io::Result<()> {
    if is_interrupted() {
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
        // it may have been given before there was a bell
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
    if is_interrupted() { Err(Interrupted.into()) } else { Ok(()) }
}
