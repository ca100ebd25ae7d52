//! One thread's fibers: which is ready, which is next, and what becomes of the others.

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

/// Fibers resumed before the kernel is asked again what has become ready.
const RESUMED_BETWEEN_POLLS: u32 = 256;

/// Bounds of a scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of each fiber's stack, rounded up to pages; a guard page is added. Only pages that are
    /// touched take memory.
    pub stack_bytes: usize,
    /// Stacks of ended fibers that are kept for new ones.
    pub kept_stacks: usize,
}

impl Default for Options {
    /// 256 KiB, of which 1024 are kept: room for the report of a panic with a backtrace, which
    /// takes the most of what the standard library does.
    fn default() -> Options {
        Options { stack_bytes: 256 * 1024, kept_stacks: 1024 }
    }
}

/// One thread's scheduler, without what only its owner may do.
pub(crate) struct SchedulerCore {
    /// Every place there has ever been; a place is used again.
    entries: RefCell<Vec<Rc<FiberSlot>>>,
    vacant: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<Rc<FiberSlot>>>,
    alive: Cell<usize>,
    /// Fibers resumed since the kernel was asked last.
    resumed: Cell<u32>,
    /// It ends with its last fiber.
    pub(crate) closing: Cell<bool>,
    stacks: RefCell<Stacks>,
    pub(crate) poller: RefCell<Poller>,
    /// Made when it is first needed: a loop that only starts and unparks fibers needs none.
    epoll: OnceCell<OwnedFd>,
    /// Room for what the poller reports.
    woken: Cell<Vec<WaitId>>,
    /// All fibers are being unwound.
    ending: Cell<bool>,
    /// Fibers that code of the thread has begun which is none.
    hosted: Rc<Cell<usize>>,
    pub(crate) remote: Arc<Remote>,
}

impl SchedulerCore {
    /// A fiber in state `Suspended`, as if it were parked.
    fn create(&self, f: impl FnOnce() + 'static) -> io::Result<Rc<FiberSlot>> {
        let stack = self.stacks.borrow_mut().take()?;
        let entry = self.vacant_entry();
        entry.stack.set((stack.lowest(), stack.usable_bytes()));
        entry.state.set(FiberState::Suspended);
        entry.parked.set(true);
        let main = move |yielder: &Yielder<(), ()>, ()| {
            with_running(|_, entry| entry.yielder.set(yielder));
            // Also what unwinds the fiber when its scheduler is dropped ends here; the coroutine
            // takes a return for an answer.
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

    /// A fiber whose end can be waited for.
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

    /// Whether this wait is not over yet.
    pub(crate) fn is_waiting(&self, ticket: WaitId) -> bool {
        self.find(ticket.fiber).is_some_and(|entry| {
            entry.state.get() == FiberState::Suspended && entry.waits.get() == ticket.number
        })
    }

    /// Ends this wait.
    pub(crate) fn wake(&self, ticket: WaitId) {
        if self.is_waiting(ticket)
            && let Some(entry) = self.find(ticket.fiber)
        {
            self.make_ready(entry);
        }
    }

    /// Ends the fiber's park, or its next one at once.
    pub(crate) fn unpark(&self, id: FiberId) {
        let Some(entry) = self.find(id.0) else { return };
        if entry.state.get() == FiberState::Suspended && entry.parked.get() {
            self.make_ready(entry);
        } else {
            entry.permit.set(true);
        }
    }

    /// Ends whatever wait the fiber is in, and those that it begins from now on.
    pub(crate) fn interrupt(&self, id: FiberId) {
        let Some(entry) = self.find(id.0) else { return };
        entry.interrupted.set(true);
        if entry.state.get() == FiberState::Suspended {
            self.make_ready(entry);
        }
    }

    /// Lets the fiber run until it waits, gives way or ends.
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

    /// Asks the kernel what has become ready, and waits for it if no fiber is.
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

    /// Asks the kernel and other threads for news, without waiting and without resuming a fiber.
    fn look(&self) -> io::Result<()> {
        self.take_messages();
        let mut woken = self.woken.take();
        let looked = self.poller.borrow_mut().wait(Some(Duration::ZERO), self, &mut woken);
        woken.drain(..).for_each(|ticket| self.wake(ticket));
        self.woken.set(woken);
        self.take_messages();
        looked
    }

    /// Unwinds every fiber there is, and those that this creates.
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

/// The fibers of one thread. It stays on the thread that made it, and its fibers with it.
///
/// Dropping it unwinds the fibers that have not ended: their destructors and what they deferred
/// run, and the fibers that join them are told.
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

    /// Runs `f` as a fiber, and all others, until it has ended. A panic in it goes on here. Fibers
    /// that are left wait for the next call, or for the end of the scheduler.
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

    /// A new fiber that cannot be joined, which runs at once and until it first waits. Nothing is
    /// allocated if there is a kept stack. Returns it if it has not ended by then.
    ///
    /// For loops that start a fiber for each event: one that does not wait leaves its stack, warm,
    /// to the next.
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

    /// Ends the fiber's park, or its next one at once.
    pub fn unpark(&self, id: FiberId) {
        self.core.unpark(id);
    }

    /// Resumes every fiber that is ready now, once, in the order in which they became ready. Says
    /// whether some are ready again.
    #[inline]
    pub fn run_ready(&self) -> bool {
        self.core.run_ready();
        self.has_ready()
    }

    /// Whether some fiber is ready.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.core.ready.borrow().is_empty()
    }

    /// Resumes what is ready once; if nothing is, waits for it, for `most` at most. A loop of its
    /// own calls this when the scheduler's descriptor is readable.
    ///
    /// # Errors
    /// Lack of descriptors at the first turn: a scheduler that waits for the kernel has two.
    pub fn turn(&self, most: Option<Duration>) -> io::Result<()> {
        // first what wakes it, so that no message is overlooked
        self.core.epoll()?;
        self.core.take_messages();
        self.core.poll(most)?;
        self.core.take_messages();
        self.core.run_ready();
        Ok(())
    }

    /// Readable when a turn has something to do besides fibers that are ready and those that sleep.
    ///
    /// # Errors
    /// Lack of descriptors, when it is asked for first.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.core.epoll()?.as_fd())
    }

    /// Lets code of this thread that is no fiber [begin](crate::begin) fibers here, until the guard is dropped or
    /// another scheduler of the thread does the same. The loop that owns the scheduler then has to
    /// [look](Scheduler::look) when the [descriptor](Scheduler::watched) is readable or the
    /// [first sleeper](Scheduler::wakes_at) wakes.
    pub fn host(&self) -> Hosting {
        hosting::host(&self.core)
    }

    /// Fibers begun by code of this thread that have not ended.
    pub fn hosted(&self) -> usize {
        self.core.hosted.get()
    }

    /// The [descriptor](Scheduler::descriptor), once something waits for the kernel or for other threads.
    #[inline]
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.core.epoll.get().map(AsFd::as_fd)
    }

    /// When the first fiber that sleeps is to wake.
    #[inline]
    pub fn wakes_at(&self) -> Option<Instant> {
        self.core.poller.borrow().first_timer()
    }

    /// Finds out which waits are over. Their fibers are ready then; none is resumed.
    ///
    /// # Errors
    /// Lack of descriptors, or the kernel refuses to be asked.
    pub fn look(&self) -> io::Result<()> {
        self.core.look()
    }

    /// Fibers that have not ended.
    pub fn alive(&self) -> usize {
        self.core.alive.get()
    }

    /// How deep stacks have been used, to the word, as far as they are idle now. For choosing
    /// [`Options::stack_bytes`]; it looks at all of their memory.
    pub fn deepest_bytes(&self) -> usize {
        self.core.stacks.borrow().deepest_bytes()
    }

    /// Until the last fiber has ended after it was told to close.
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
