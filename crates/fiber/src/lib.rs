//! Stackful fibers for Linux: straight-line code that lets others run exactly where it waits.
//!
//! A fiber has a stack of its own, like a thread, but switching to another one is a function call of a few
//! nanoseconds, and happens only at known places: where a wait begins (Keller and Monien, *Improving
//! HTTP-Server Performance by Adapted Multithreading*, "emu"). The fibers of a thread share it and never
//! leave it, so they may share data without locks.
//!
//! This library is independent: it uses nothing of Forebay. In Forebay, the engine `fibers` serves each
//! active connection with a fiber.
//!
//! | to | use |
//! |---|---|
//! | start | [`run`], [`Scheduler`] for one thread, [`Schedulers`] for several |
//! | make a fiber | [`spawn`], [`create`] (suspended until it is unparked) |
//! | wait for another fiber | [`Fiber::join`], [`park`] and [`Fiber::unpark`], [`yield_now`] |
//! | wait for a descriptor or the clock | [`readable`], [`writable`], [`sleep`] |
//! | call a function on the main thread | [`MainHandle::call`] |
//! | clean up | [`defer`], destructors |
//! | write code that waits on fibers and on threads | [`anywhere`], [`channel()`](anywhere::channel()) |
//! | begin fibers from a loop's own code | [`Scheduler::host`], [`begin`] |
//!
//! | module | what it holds |
//! |---|---|
//! | `scheduler` | one thread's fibers: their states and their order |
//! | `threads` | several scheduler threads |
//! | `stack` | stacks: memory with a guard page, kept for the next fiber |
//! | [`anywhere`] | waits that work on a fiber and on a thread alike, and how they are interrupted |
//! | `main_thread` | calls that only one thread may make, requested by fibers on others |
//!
//! # How it behaves
//!
//! * **States** (emu, figure 3): *suspended* (created, or waiting), *yielded* (ready), *executing*,
//!   *terminated*; see [`FiberState`]. Ready fibers run first in, first out. The kernel is polled for
//!   events when no fiber is ready, and after 256 resumed fibers.
//! * **Stacks** come from a pool and have a guard page. A fiber that overflows its stack aborts the
//!   process with a line that says so; see [`Options::stack_bytes`].
//! * **Panics** end the fiber and come out of [`Fiber::join`].
//! * **A fiber that unwinds does not wait**: in destructors that run because of a panic, or because
//!   the scheduler is dropped, [`yield_now`], [`sleep`] and [`park`] return at once, and the
//!   others with an error.
//! * **A fiber that is interrupted does not wait** either: [`Fiber::interrupt`]. This is for code that should
//!   come to its end; the errors of [`anywhere`] tell it so.
//! * **A thread that blocks** (on a lock, a file, a long computation) delays all its fibers.
//!
//! The crate deliberately has no work stealing and no priorities.
//!
//! # Example
//!
//! ```
//! let sum = forebay_fiber::run(|| {
//!     let fibers: Vec<_> = (0..10u64)
//!         .map(|n| {
//!             forebay_fiber::spawn(move || {
//!                 forebay_fiber::yield_now();
//!                 n * n
//!             })
//!         })
//!         .collect::<Result<_, _>>()?;
//!     let mut sum = 0;
//!     for fiber in fibers {
//!         sum += fiber.join()?;
//!     }
//!     Ok::<u64, Box<dyn std::error::Error>>(sum)
//! })
//! .unwrap()
//! .unwrap();
//! assert_eq!(sum, 285);
//! ```

pub mod anywhere;
mod main_thread;
mod scheduler;
mod stack;
mod threads;

pub use main_thread::{MainHandle, MainThread};
pub use scheduler::entry::{FiberId, FiberState};
pub use scheduler::hosting::{Hosting, begin, is_hosted};
pub use scheduler::join::{Fiber, JoinError, Unparker};
pub use scheduler::{Options, Scheduler};
pub use threads::Schedulers;

use scheduler::SchedulerCore;
use scheduler::entry::{FiberSlot, with_running};
use scheduler::poller::Direction;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs `f` as a fiber on a new scheduler of this thread, and every fiber that it makes, until `f` has ended.
/// Fibers that remain are then unwound. A panic in `f` continues in the caller.
///
/// # Errors
/// Lack of descriptors, or of memory for a stack.
pub fn run<T: 'static>(f: impl FnOnce() -> T + 'static) -> io::Result<T> {
    Scheduler::new(Options::default()).run(f)
}

/// Calls `f` with the running fiber.
#[track_caller]
#[inline]
fn running<R>(f: impl FnOnce(&SchedulerCore, &FiberSlot) -> R) -> R {
    #[expect(
        clippy::expect_used,
        reason = "documented: a mistake in the program, not in its input"
    )]
    with_running(f).expect("called outside of a fiber")
}

/// Makes a fiber on this scheduler, ready to run. It runs when the calling fiber waits.
///
/// # Errors
/// Lack of memory for a stack.
///
/// # Panics
/// Outside of a fiber.
#[track_caller]
pub fn spawn<T: 'static>(f: impl FnOnce() -> T + 'static) -> io::Result<Fiber<T>> {
    running(|core, _| core.spawn(f, true))
}

/// Makes a fiber on this scheduler that does not run before it is [unparked](Fiber::unpark).
///
/// # Errors
/// Lack of memory for a stack.
///
/// # Panics
/// Outside of a fiber.
#[track_caller]
pub fn create<T: 'static>(f: impl FnOnce() -> T + 'static) -> io::Result<Fiber<T>> {
    running(|core, _| core.spawn(f, false))
}

/// Lets every ready fiber run before this one continues.
///
/// # Panics
/// Outside of a fiber.
#[track_caller]
#[inline]
pub fn yield_now() {
    running(|_, entry| entry.give_way());
}

/// Waits until this fiber is unparked; returns at once if that has happened since the last park.
///
/// # Panics
/// Outside of a fiber.
#[track_caller]
pub fn park() {
    running(|core, entry| entry.park(core, None));
}

/// The handle that ends a park of the running fiber.
///
/// # Panics
/// Outside of a fiber.
#[track_caller]
pub fn unparker() -> Unparker {
    running(|core, entry| Unparker::new(entry.id(), Arc::clone(&core.remote)))
}

/// The number of the running fiber.
///
/// # Panics
/// Outside of a fiber.
#[track_caller]
#[inline]
pub fn id() -> FiberId {
    running(|_, entry| entry.id())
}

/// Waits for at least this long; the kernel counts in milliseconds.
///
/// # Panics
/// Outside of a fiber.
#[track_caller]
pub fn sleep(time: Duration) {
    running(|core, entry| {
        // far enough in the future to mean never
        let longest = Duration::from_secs(100 * 365 * 86_400);
        let at = Instant::now() + time.min(longest);
        core.poller.borrow_mut().add_timer(at, entry.begin_wait());
        entry.suspend();
    });
}

/// Waits until `fd` can be read or has come to its end. The descriptor should be non-blocking.
///
/// # Errors
/// Another fiber waits for the same (`ResourceBusy`), the kernel cannot watch such a descriptor (a file on a
/// disk: `PermissionDenied`), or the fiber unwinds (`Interrupted`).
///
/// # Panics
/// Outside of a fiber.
#[track_caller]
pub fn readable(fd: impl AsFd) -> io::Result<()> {
    wait_for(fd.as_fd(), Direction::Read)
}

/// Waits until `fd` can be written. The descriptor should be non-blocking.
///
/// # Errors
/// The same as of [`readable`].
///
/// # Panics
/// Outside of a fiber.
#[track_caller]
pub fn writable(fd: impl AsFd) -> io::Result<()> {
    wait_for(fd.as_fd(), Direction::Write)
}

#[track_caller]
fn wait_for(fd: BorrowedFd<'_>, direction: Direction) -> io::Result<()> {
    running(|core, entry| {
        if std::thread::panicking() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let ticket = entry.begin_wait();
        core.poller.borrow_mut().add_descriptor(fd, direction, ticket, core)?;
        entry.suspend();
        Ok(())
    })
}

/// Calls `work` when this fiber ends, in whatever way. Work that was deferred last is called first, and all
/// of it before a fiber that joins this one gets the result.
///
/// # Panics
/// Outside of a fiber.
#[track_caller]
pub fn defer(work: impl FnOnce() + 'static) {
    running(|_, entry| entry.defer(Box::new(work)));
}
