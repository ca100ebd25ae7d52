//! One fiber: its state, its waits, and the pointer to the running fiber.

use super::SchedulerCore;
use crate::stack::FiberStack;
use corosensei::{Coroutine, Yielder};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::Instant;

/// The state of a fiber (emu §2, figure 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FiberState {
    /// Created and not yet resumed, or waiting.
    Suspended,
    /// Ready to run, in a list that is first in, first out.
    Yielded,
    /// Running.
    Executing,
    /// Ended.
    Terminated,
}

/// The number of a fiber. No later fiber of the scheduler has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FiberId(pub(crate) u64);

impl FiberId {
    fn new(slot: u32, generation: u32) -> FiberId {
        FiberId(u64::from(generation) << 32 | u64::from(slot))
    }
}

/// One wait of one fiber. Ending a wait that is over already does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaitId {
    pub(crate) fiber: u64,
    pub(crate) number: u64,
}

/// A fiber, or a slot for one.
pub(crate) struct FiberSlot {
    pub(crate) slot: u32,
    pub(crate) generation: Cell<u32>,
    pub(crate) state: Cell<FiberState>,
    /// Whether the present wait is a park, which `unpark` ends.
    pub(crate) parked: Cell<bool>,
    /// Whether the fiber was unparked before it parked.
    pub(crate) permit: Cell<bool>,
    /// Whether its waits end at once from now on.
    pub(crate) interrupted: Cell<bool>,
    pub(crate) waits: Cell<u64>,
    /// The fiber's name for the message about an overflow: a text that the fiber's own code holds; null for
    /// none.
    pub(crate) name: Cell<(*const u8, usize)>,
    pub(crate) yielder: Cell<*const Yielder<(), ()>>,
    /// The lowest address of its stack, where the guard is, and its size without the guard.
    pub(crate) stack: Cell<(usize, usize)>,
    pub(crate) coroutine: RefCell<Option<Coroutine<(), (), (), FiberStack>>>,
    deferred: RefCell<Vec<Box<dyn FnOnce()>>>,
}

impl FiberSlot {
    pub(crate) fn new(slot: u32) -> FiberSlot {
        FiberSlot {
            slot,
            generation: Cell::new(0),
            state: Cell::new(FiberState::Terminated),
            parked: Cell::new(false),
            permit: Cell::new(false),
            interrupted: Cell::new(false),
            waits: Cell::new(0),
            name: Cell::new((ptr::null(), 0)),
            yielder: Cell::new(ptr::null()),
            stack: Cell::new((0, 0)),
            coroutine: RefCell::new(None),
            deferred: RefCell::new(Vec::new()),
        }
    }

    pub(crate) fn id(&self) -> FiberId {
        FiberId::new(self.slot, self.generation.get())
    }

    /// Begins a wait; [`suspend`](FiberSlot::suspend) carries it out.
    pub(crate) fn begin_wait(&self) -> WaitId {
        self.waits.set(self.waits.get() + 1);
        WaitId { fiber: self.id().0, number: self.waits.get() }
    }

    /// Lets others run until the begun wait is ended. Only the running fiber calls this.
    pub(crate) fn suspend(&self) {
        self.switch(FiberState::Suspended);
    }

    /// Moves the running fiber to the end of the ready list.
    #[inline]
    pub(crate) fn give_way(&self) {
        self.switch(FiberState::Yielded);
    }

    /// Waits until the fiber is unparked, or until this time.
    pub(crate) fn park(&self, core: &SchedulerCore, until: Option<Instant>) {
        if !self.permit.replace(false) {
            let ticket = self.begin_wait();
            if let Some(at) = until {
                core.poller.borrow_mut().add_timer(at, ticket);
            }
            self.parked.set(true);
            self.suspend();
            // still set if the fiber unwinds and has not waited
            self.parked.set(false);
        }
    }

    #[inline]
    fn switch(&self, state: FiberState) {
        // a fiber that unwinds does not wait, because the next fiber would find the thread panicking
        let is_wait = state == FiberState::Suspended;
        if std::thread::panicking() || (is_wait && self.interrupted.get()) {
            return;
        }
        self.state.set(state);
        // SAFETY: only the running fiber comes here, and it has set the pointer to the yielder of
        // its own main function, which is below on this very stack.
        unsafe { (*self.yielder.get()).suspend(()) };
    }

    pub(crate) fn defer(&self, work: Box<dyn FnOnce()>) {
        self.deferred.borrow_mut().push(work);
    }

    /// Runs the deferred work, the last first; a panic in one does not keep the others from running.
    pub(crate) fn run_deferred(&self) {
        loop {
            let last = self.deferred.borrow_mut().pop();
            let Some(work) = last else { break };
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
    }
}

/// The running fiber and its scheduler; null outside of fibers.
#[derive(Clone, Copy)]
struct CurrentFiber {
    core: *const SchedulerCore,
    entry: *const FiberSlot,
}

thread_local! {
    static RUNNING: Cell<CurrentFiber> =
        const { Cell::new(CurrentFiber { core: ptr::null(), entry: ptr::null() }) };
}

/// A guard while a fiber has control; it restores the state before when it is dropped, also by a panic.
pub(crate) struct FiberControl {
    before: CurrentFiber,
}

impl FiberControl {
    #[inline]
    pub(crate) fn give(core: &SchedulerCore, entry: &FiberSlot) -> FiberControl {
        FiberControl { before: RUNNING.replace(CurrentFiber { core, entry }) }
    }
}

impl Drop for FiberControl {
    #[inline]
    fn drop(&mut self) {
        RUNNING.set(self.before);
    }
}

/// Calls `f` with the running fiber and its scheduler, or not at all outside of fibers.
#[inline]
pub(crate) fn with_running<R>(f: impl FnOnce(&SchedulerCore, &FiberSlot) -> R) -> Option<R> {
    let running = RUNNING.get();
    if running.core.is_null() {
        return None;
    }
    // SAFETY: `FiberControl` sets both pointers for as long as the fiber has control; `resume` and
    // `end_all`, who give it, hold its entry and the core for longer.
    Some(unsafe { f(&*running.core, &*running.entry) })
}

/// The name of the running fiber. May be called in a signal handler.
pub(crate) fn running_name() -> Option<(*const u8, usize)> {
    with_running(|_, entry| entry.name.get()).filter(|(text, _)| !text.is_null())
}

/// The lowest address of the running fiber's stack, where the guard is, and its size without the guard. May
/// be called in a signal handler.
pub(crate) fn running_stack() -> Option<(usize, usize)> {
    with_running(|_, entry| entry.stack.get())
}
