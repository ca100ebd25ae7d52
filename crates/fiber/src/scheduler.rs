//! One thread's fibers: their states, and the order in which they run.

pub(crate) mod entry;
mod here;
pub(crate) mod hosting;
pub(crate) mod interrupt;
pub(crate) mod join;
mod overflow;
pub(crate) mod poller;
pub(crate) mod remote;

use crate::stack::Stacks;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use entry::{FiberControl, FiberId, FiberSlot, FiberState, WaitId, with_running};
use hosting::Hosting;
use join::{Fiber, Packet};
use poller::Poller;
use remote::{Remote, SchedulerMessage};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of fibers resumed before the kernel is polled again.
const RESUMED_BETWEEN_POLLS: u32 = 256;

/// The limits of a scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The size of each fiber's stack in bytes, rounded up to pages; a guard page is added. Only pages that
    /// are touched take memory.
    pub stack_bytes: usize,
    /// The number of stacks of ended fibers that are kept for new ones.
    pub kept_stacks: usize,
}

impl Default for Options {
    /// 256 KiB, of which 1024 are kept. That is room for the report of a panic with a backtrace, which needs
    /// more than anything else in the standard library.
    fn default() -> Options {
        Options { stack_bytes: 256 * 1024, kept_stacks: 1024 }
    }
}

/// One thread's scheduler, without the functions that only its owner may call.
pub(crate) struct SchedulerCore {
    /// All slots that have ever been used; a slot is used again.
    entries: RefCell<Vec<Rc<FiberSlot>>>,
    vacant: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<Rc<FiberSlot>>>,
    alive: Cell<usize>,
    /// The number of fibers resumed since the kernel was last polled.
    resumed: Cell<u32>,
    /// Whether the scheduler ends with its last fiber.
    pub(crate) closing: Cell<bool>,
    stacks: RefCell<Stacks>,
    pub(crate) poller: RefCell<Poller>,
    /// The epoll, made when first needed: a loop that only starts and unparks fibers needs none.
    epoll: OnceCell<OwnedFd>,
    /// A buffer for the waits that the poller reports.
    woken: Cell<Vec<WaitId>>,
    /// Whether all fibers are being unwound.
    ending: Cell<bool>,
    /// The number of fibers begun by code of the thread outside of fibers.
    hosted: Rc<Cell<usize>>,
    pub(crate) remote: Arc<Remote>,
}

impl SchedulerCore {
    /// A fiber in the state `Suspended`, as if it were parked.
    fn create(&self, f: impl FnOnce() + 'static) -> io::Result<Rc<FiberSlot>> {
        let stack = self.stacks.borrow_mut().take()?;
        let entry = self.vacant_entry();
        entry.stack.set((stack.lowest(), stack.usable_bytes()));
        entry.state.set(FiberState::Suspended);
        entry.parked.set(true);
        let main = move |yielder: &Yielder<(), ()>, ()| {
            with_running(|_, entry| entry.yielder.set(yielder));
            // the unwinding of a fiber whose scheduler is dropped also ends here, and the coroutine accepts a
            // normal return
            let _ = catch_unwind(AssertUnwindSafe(f));
            with_running(|_, entry| entry.run_deferred());
        };
        *entry.coroutine.borrow_mut() = Some(Coroutine::with_stack(stack, main));
        self.alive.set(self.alive.get() + 1);
        Ok(entry)
    }

    fn vacant_entry(&self) -> Rc<FiberSlot> {
        let mut entries = self.entries.borrow_mut();
        if let Some(slot) = self.vacant.borrow_mut().pop() {
            return Rc::clone(&entries[slot as usize]);
        }
        let entry = Rc::new(FiberSlot::new(entries.len() as u32));
        entries.push(Rc::clone(&entry));
        entry
    }

    /// A fiber that can be joined.
    pub(crate) fn create_joined<T: 'static>(
        &self,
        packet: &Arc<Packet<T>>,
        f: impl FnOnce() -> T + 'static,
    ) -> io::Result<Rc<FiberSlot>> {
        let promise = Packet::promise(packet);
        let entry = self.create(move || {
            let result = catch_unwind(AssertUnwindSafe(f));
            with_running(|_, entry| entry.run_deferred());
            promise.keep(result);
        })?;
        if packet.set_id(entry.id()) {
            entry.permit.set(true);
        }
        Ok(entry)
    }

    pub(crate) fn spawn<T: 'static>(
        &self,
        f: impl FnOnce() -> T + 'static,
        begin: bool,
    ) -> io::Result<Fiber<T>> {
        let packet = Packet::new();
        let entry = self.create_joined(&packet, f)?;
        if begin {
            self.make_ready(entry);
        }
        Ok(Fiber::new(packet, Arc::clone(&self.remote)))
    }

    pub(crate) fn make_ready(&self, entry: Rc<FiberSlot>) {
        entry.parked.set(false);
        entry.state.set(FiberState::Yielded);
        self.ready.borrow_mut().push_back(entry);
    }

    fn find(&self, id: u64) -> Option<Rc<FiberSlot>> {
        let entries = self.entries.borrow();
        entries.get((id & 0xffff_ffff) as usize).filter(|entry| entry.id().0 == id).cloned()
    }

    pub(crate) fn epoll(&self) -> io::Result<&OwnedFd> {
        if self.epoll.get().is_none() {
            let _ = self.epoll.set(poller::watch(&self.remote)?);
        }
        self.epoll.get().ok_or(io::ErrorKind::NotFound.into())
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.get()
    }

    pub(crate) fn state(&self, id: FiberId) -> FiberState {
        self.find(id.0).map_or(FiberState::Terminated, |entry| entry.state.get())
    }

    /// Whether this wait is still going on.
    pub(crate) fn is_waiting(&self, ticket: WaitId) -> bool {
        self.find(ticket.fiber).is_some_and(|entry| {
            entry.state.get() == FiberState::Suspended && entry.waits.get() == ticket.number
        })
    }

    /// Ends this wait, if it is still going on.
    pub(crate) fn wake(&self, ticket: WaitId) {
        if self.is_waiting(ticket)
            && let Some(entry) = self.find(ticket.fiber)
        {
            self.make_ready(entry);
        }
    }

    /// Ends the fiber's park, or makes the next one return at once.
    pub(crate) fn unpark(&self, id: FiberId) {
        let Some(entry) = self.find(id.0) else { return };
        if entry.state.get() == FiberState::Suspended && entry.parked.get() {
            self.make_ready(entry);
        } else {
            entry.permit.set(true);
        }
    }

    /// Ends the fiber's present wait, and makes later ones return at once.
    pub(crate) fn interrupt(&self, id: FiberId) {
        let Some(entry) = self.find(id.0) else { return };
        entry.interrupted.set(true);
        if entry.state.get() == FiberState::Suspended {
            self.make_ready(entry);
        }
    }

    /// Lets the fiber run until it waits, yields or ends.
    #[inline]
    fn resume(&self, entry: &Rc<FiberSlot>) {
        entry.state.set(FiberState::Executing);
        let ended = {
            let _control = FiberControl::give(self, entry);
            match entry.coroutine.borrow_mut().as_mut() {
                Some(coroutine) => coroutine.resume(()) == CoroutineResult::Return(()),
                None => false,
            }
        };
        if ended {
            self.bury(entry);
        }
    }

    fn bury(&self, entry: &FiberSlot) {
        if let Some(coroutine) = entry.coroutine.borrow_mut().take() {
            self.stacks.borrow_mut().put(coroutine.into_stack());
        }
        entry.state.set(FiberState::Terminated);
        entry.generation.set(entry.generation.get().wrapping_add(1));
        entry.parked.set(false);
        entry.permit.set(false);
        entry.interrupted.set(false);
        entry.name.set((std::ptr::null(), 0));
        self.vacant.borrow_mut().push(entry.slot);
        self.alive.set(self.alive.get() - 1);
    }

    /// Resumes every fiber that is ready now, once.
    fn run_ready(&self) {
        let count = self.ready.borrow().len();
        for _ in 0..count {
            let first = self.ready.borrow_mut().pop_front();
            let Some(entry) = first else { break };
            self.resume(&entry);
            self.resumed.set(self.resumed.get() + 1);
            if entry.state.get() == FiberState::Yielded {
                self.ready.borrow_mut().push_back(entry);
            }
        }
    }

    fn take_messages(&self) {
        for message in self.remote.take() {
            match message {
                SchedulerMessage::Wake(ticket) => self.wake(ticket),
                SchedulerMessage::Unpark(id) => self.unpark(id),
                SchedulerMessage::Interrupt(id) => self.interrupt(id),
                SchedulerMessage::Call(call) => call(self),
            }
        }
    }

    /// Polls the kernel for events, and waits for one if no fiber is ready.
    fn poll(&self, most: Option<Duration>) -> io::Result<()> {
        let nobody = self.ready.borrow().is_empty();
        if !nobody && self.resumed.get() < RESUMED_BETWEEN_POLLS {
            return Ok(());
        }
        self.resumed.set(0);
        let most = if nobody { most } else { Some(Duration::ZERO) };
        let mut woken = self.woken.take();
        let waited = self.poller.borrow_mut().wait(most, self, &mut woken);
        woken.drain(..).for_each(|ticket| self.wake(ticket));
        self.woken.set(woken);
        waited
    }

    /// Polls the kernel and other threads' messages, without waiting and without resuming a fiber.
    fn look(&self) -> io::Result<()> {
        self.take_messages();
        let mut woken = self.woken.take();
        let looked = self.poller.borrow_mut().wait(Some(Duration::ZERO), self, &mut woken);
        woken.drain(..).for_each(|ticket| self.wake(ticket));
        self.woken.set(woken);
        self.take_messages();
        looked
    }

    /// Unwinds every fiber, and those that are made by the unwinding.
    fn end_all(&self) {
        self.ending.set(true);
        loop {
            let entry = self
                .entries
                .borrow()
                .iter()
                .find(|entry| entry.coroutine.borrow().is_some())
                .cloned();
            let Some(entry) = entry else { break };
            let coroutine = entry.coroutine.borrow_mut().take();
            let control = FiberControl::give(self, &entry);
            drop(coroutine);
            drop(control);
            entry.state.set(FiberState::Terminated);
        }
    }
}

/// The fibers of one thread. The scheduler stays on the thread that made it, and its fibers with it.
///
/// Dropping it unwinds the fibers that have not ended: their destructors and deferred work run, and fibers
/// that join them get an error.
pub struct Scheduler {
    core: Rc<SchedulerCore>,
}

impl Scheduler {
    /// A scheduler without fibers.
    pub fn new(options: Options) -> Scheduler {
        overflow::watch();
        let core = SchedulerCore {
            entries: RefCell::default(),
            vacant: RefCell::default(),
            ready: RefCell::default(),
            alive: Cell::new(0),
            resumed: Cell::new(0),
            closing: Cell::new(false),
            stacks: RefCell::new(Stacks::new(options.stack_bytes, options.kept_stacks)),
            epoll: OnceCell::new(),
            poller: RefCell::default(),
            woken: Cell::default(),
            ending: Cell::new(false),
            hosted: Rc::default(),
            remote: Arc::new(Remote::new()),
        };
        Scheduler { core: Rc::new(core) }
    }

    /// Runs `f` as a fiber, and all other fibers, until `f` has ended. A panic in `f` continues in the
    /// caller. Fibers that remain wait for the next call, or for the end of the scheduler.
    ///
    /// # Errors
    /// Lack of memory for a stack, or of descriptors.
    pub fn run<T: 'static>(&self, f: impl FnOnce() -> T + 'static) -> io::Result<T> {
        let fiber = self.spawn(f)?;
        while !fiber.is_finished() {
            self.turn(None)?;
        }
        match fiber.join() {
            Ok(result) => Ok(result),
            Err(crate::JoinError::Panicked(payload)) => resume_unwind(payload),
            Err(crate::JoinError::Dropped | crate::JoinError::Interrupted) => {
                Err(io::ErrorKind::Interrupted.into())
            }
        }
    }

    /// A new fiber, ready to run.
    ///
    /// # Errors
    /// Lack of memory for a stack.
    pub fn spawn<T: 'static>(&self, f: impl FnOnce() -> T + 'static) -> io::Result<Fiber<T>> {
        self.core.spawn(f, true)
    }

    /// Makes a fiber that cannot be joined and runs it at once, until it first waits. Nothing is allocated if
    /// there is a kept stack. Returns the fiber's number if it has not ended by then.
    ///
    /// This is for loops that start a fiber for each event: a fiber that does not wait leaves its stack,
    /// still in the cache, to the next.
    ///
    /// # Errors
    /// Lack of memory for a stack.
    #[inline]
    pub fn start(&self, f: impl FnOnce() + 'static) -> io::Result<Option<FiberId>> {
        let entry = self.core.create(f)?;
        let id = entry.id();
        entry.parked.set(false);
        self.core.resume(&entry);
        match entry.state.get() {
            FiberState::Terminated => return Ok(None),
            FiberState::Yielded => self.core.ready.borrow_mut().push_back(entry),
            FiberState::Suspended | FiberState::Executing => {}
        }
        Ok(Some(id))
    }

    /// Ends the fiber's park, or makes the next one return at once.
    pub fn unpark(&self, id: FiberId) {
        self.core.unpark(id);
    }

    /// Resumes every fiber that is ready now, once, in the order in which they became ready. Returns whether
    /// some are ready again.
    #[inline]
    pub fn run_ready(&self) -> bool {
        self.core.run_ready();
        self.has_ready()
    }

    /// Whether any fiber is ready.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.core.ready.borrow().is_empty()
    }

    /// Resumes the ready fibers once; if none is ready, waits for one, at most for `most`. A loop of another
    /// kind calls this when the scheduler's descriptor is readable.
    ///
    /// # Errors
    /// Lack of descriptors at the first call: a scheduler that waits for the kernel has two.
    pub fn turn(&self, most: Option<Duration>) -> io::Result<()> {
        // the epoll and its bell must exist before messages are taken, so that a later message wakes the wait
        self.core.epoll()?;
        self.core.take_messages();
        self.core.poll(most)?;
        self.core.take_messages();
        self.core.run_ready();
        Ok(())
    }

    /// A descriptor that is readable when a turn has something to do other than resuming ready fibers and
    /// waking sleeping ones.
    ///
    /// # Errors
    /// Lack of descriptors, at the first call.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.core.epoll()?.as_fd())
    }

    /// Lets code of this thread outside of fibers [begin](crate::begin) fibers here, until the guard is
    /// dropped or another scheduler of the thread is the host. The loop that owns the scheduler then has to
    /// call [look](Scheduler::look) when the [descriptor](Scheduler::watched) is readable or the [first
    /// sleeper](Scheduler::wakes_at) wakes.
    pub fn host(&self) -> Hosting {
        hosting::host(&self.core)
    }

    /// The number of fibers begun by code outside of fibers that have not ended.
    pub fn hosted(&self) -> usize {
        self.core.hosted.get()
    }

    /// The [descriptor](Scheduler::descriptor), once a fiber waits for the kernel or for other threads.
    #[inline]
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.core.epoll.get().map(AsFd::as_fd)
    }

    /// The time at which the first sleeping fiber wakes.
    #[inline]
    pub fn wakes_at(&self) -> Option<Instant> {
        self.core.poller.borrow().first_timer()
    }

    /// Finds the waits that are over and makes their fibers ready; none is resumed.
    ///
    /// # Errors
    /// Lack of descriptors, or a failure of the kernel's poll.
    pub fn look(&self) -> io::Result<()> {
        self.core.look()
    }

    /// The number of fibers that have not ended.
    pub fn alive(&self) -> usize {
        self.core.alive.get()
    }

    /// The largest number of bytes that any idle stack has used, exact to the word. For choosing
    /// [`Options::stack_bytes`]; the call reads the whole memory of the stacks.
    pub fn deepest_bytes(&self) -> usize {
        self.core.stacks.borrow().deepest_bytes()
    }

    /// Runs until the last fiber has ended after the scheduler was closed.
    pub(crate) fn run_until_closed(&self) -> io::Result<()> {
        while !(self.core.closing.get() && self.alive() == 0) {
            self.turn(None)?;
        }
        Ok(())
    }

    pub(crate) fn remote(&self) -> Arc<Remote> {
        Arc::clone(&self.core.remote)
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.core.remote.close();
        self.core.end_all();
        self.core.ready.borrow_mut().clear();
    }
}
