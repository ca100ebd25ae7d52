//! Fibers begun by code of a scheduler's thread outside of fibers, such as the turn of a loop.

use super::SchedulerCore;
use super::entry::with_running;
use super::here;
use super::join::Fiber;
use std::cell::Cell;
use std::io;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// A guard that lets code of this thread [begin] fibers until it is dropped.
pub struct Hosting {
    core: Weak<SchedulerCore>,
}

/// Lets code of this thread begin fibers on `core`.
pub(crate) fn host(core: &Rc<SchedulerCore>) -> Hosting {
    let core = Rc::downgrade(core);
    here::set_host(core.clone());
    Hosting { core }
}

impl Drop for Hosting {
    fn drop(&mut self) {
        here::leave_host(&self.core);
    }
}

/// Whether code of this thread may [begin] fibers.
pub fn is_hosted() -> bool {
    here::host().is_some()
}

/// Makes a fiber on the scheduler that [hosts](crate::Scheduler::host) those of this thread. It runs when
/// that scheduler resumes its ready fibers. If it overflows its stack, the message has `name`.
///
/// # Errors
/// `NotFound` if there is no such scheduler; lack of memory for a stack, or of descriptors for its waits.
pub fn begin<T: 'static>(name: &Arc<str>, f: impl FnOnce() -> T + 'static) -> io::Result<Fiber<T>> {
    let core = here::host().ok_or(io::ErrorKind::NotFound)?;
    // the fiber's waits need the scheduler's bell
    core.epoll()?;
    let hosted = HostedFiber::new(&core.hosted, name);
    core.spawn(
        move || {
            hosted.give_name();
            f()
        },
        true,
    )
}

/// A counted fiber, with its name. The count ends with the fiber, also by a panic.
struct HostedFiber {
    count: Rc<Cell<usize>>,
    name: Arc<str>,
}

impl HostedFiber {
    fn new(count: &Rc<Cell<usize>>, name: &Arc<str>) -> HostedFiber {
        count.set(count.get() + 1);
        HostedFiber { count: Rc::clone(count), name: Arc::clone(name) }
    }

    /// Sets the running fiber's name until this is dropped.
    fn give_name(&self) {
        with_running(|_, entry| entry.name.set((self.name.as_ptr(), self.name.len())));
    }
}

impl Drop for HostedFiber {
    fn drop(&mut self) {
        with_running(|_, entry| entry.name.set((ptr::null(), 0)));
        self.count.set(self.count.get() - 1);
    }
}
