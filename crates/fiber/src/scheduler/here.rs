//! The scheduler of this thread, for code outside of fibers.

use super::SchedulerCore;
use super::entry::with_running;
use super::remote::Remote;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

thread_local! {
    /// The scheduler on which code of this thread outside of fibers begins fibers.
    static HOST: RefCell<Weak<SchedulerCore>> = const { RefCell::new(Weak::new()) };
}

/// The scheduler on which code of this thread outside of fibers begins fibers.
pub(super) fn host() -> Option<Rc<SchedulerCore>> {
    HOST.with_borrow(Weak::upgrade)
}

/// Makes this scheduler the host.
pub(super) fn set_host(core: Weak<SchedulerCore>) {
    HOST.set(core);
}

/// Removes this scheduler as the host, if it is the host.
pub(super) fn leave_host(core: &Weak<SchedulerCore>) {
    HOST.with_borrow_mut(|host| {
        if host.ptr_eq(core) {
            *host = Weak::new();
        }
    });
}

/// Calls `act` with this thread's scheduler, if `remote` belongs to it: the scheduler whose fiber runs, or
/// the host. Returns whether it did.
pub(super) fn on_this_thread(remote: &Arc<Remote>, act: impl FnOnce(&SchedulerCore)) -> bool {
    let mut act = Some(act);
    let mut try_on = |core: &SchedulerCore| {
        let here = Arc::ptr_eq(&core.remote, remote);
        if here && let Some(act) = act.take() {
            act(core);
        }
        here
    };
    with_running(|core, _| try_on(core)) == Some(true) || host().is_some_and(|core| try_on(&core))
}
