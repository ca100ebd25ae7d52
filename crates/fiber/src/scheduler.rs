//! One thread's fibers: who is ready, who runs, and what becomes of the others.

use crate::join::{Fiber, Packet};
use crate::overflow;
use crate::poller::{self, Poller};
use crate::remote::{Message, Remote};
use crate::stack::{Stack, Stacks};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

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

/// What a fiber is doing (emu §2, figure 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Created and not yet resumed, or waiting for something.
    Suspended,
    /// Ready to run: in the list, first in, first out.
    Yielded,
    /// Running.
    Executing,
    /// Ended.
    Terminated,
}

/// A fiber of one scheduler. No fiber after it has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(pub(crate) u64);

impl Id {
    fn new(slot: u32, generation: u32) -> Id {
        Id(u64::from(generation) << 32 | u64::from(slot))
    }
}

/// One wait of one fiber. What ends a wait that is over already does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    fiber: u64,
    number: u64,
}

/// A fiber, or a place for one.
pub(crate) struct Entry {
    slot: u32,
    generation: Cell<u32>,
    state: Cell<State>,
    /// The wait is one that `unpark` ends.
    parked: Cell<bool>,
    /// It was unparked before it parked.
    permit: Cell<bool>,
    waits: Cell<u64>,
    yielder: Cell<*const Yielder<(), ()>>,
    /// Lowest address of its stack, that of the guard, and its size without the guard.
    stack: Cell<(usize, usize)>,
    coroutine: RefCell<Option<Coroutine<(), (), (), Stack>>>,
    deferred: RefCell<Vec<Box<dyn FnOnce()>>>,
}

impl Entry {
    fn new(slot: u32) -> Entry {
        Entry {
            slot,
            generation: Cell::new(0),
            state: Cell::new(State::Terminated),
            parked: Cell::new(false),
            permit: Cell::new(false),
            waits: Cell::new(0),
            yielder: Cell::new(ptr::null()),
            stack: Cell::new((0, 0)),
            coroutine: RefCell::new(None),
            deferred: RefCell::new(Vec::new()),
        }
    }

    pub(crate) fn id(&self) -> Id {
        Id::new(self.slot, self.generation.get())
    }

    /// Begins a wait; [`suspend`](Entry::suspend) performs it.
    pub(crate) fn begin_wait(&self) -> Ticket {
        self.waits.set(self.waits.get() + 1);
        Ticket { fiber: self.id().0, number: self.waits.get() }
    }

    /// Lets others run until somebody ends the wait that has begun. Only the running fiber calls
    /// this.
    pub(crate) fn suspend(&self) {
        self.switch(State::Suspended);
    }

    /// Goes to the end of the list.
    #[inline]
    pub(crate) fn give_way(&self) {
        self.switch(State::Yielded);
    }

    /// Waits until it is unparked.
    pub(crate) fn park(&self) {
        if !self.permit.replace(false) {
            self.begin_wait();
            self.parked.set(true);
            self.suspend();
            // still set if the fiber unwinds and has not waited
            self.parked.set(false);
        }
    }

    #[inline]
    fn switch(&self, state: State) {
        // Whoever ran next would find the thread panicking: a fiber that unwinds does not wait.
        if std::thread::panicking() {
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

    /// What was deferred last runs first, whatever becomes of the others.
    fn run_deferred(&self) {
        loop {
            let last = self.deferred.borrow_mut().pop();
            let Some(work) = last else { break };
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
    }
}

/// The running fiber and its scheduler; null outside of fibers.
#[derive(Clone, Copy)]
struct Running {
    core: *const Core,
    entry: *const Entry,
}

thread_local! {
    static RUNNING: Cell<Running> =
        const { Cell::new(Running { core: ptr::null(), entry: ptr::null() }) };
}

/// A fiber has control until this is dropped, however that comes about.
struct Control {
    before: Running,
}

impl Control {
    #[inline]
    fn give(core: &Core, entry: &Entry) -> Control {
        Control { before: RUNNING.replace(Running { core, entry }) }
    }
}

impl Drop for Control {
    #[inline]
    fn drop(&mut self) {
        RUNNING.set(self.before);
    }
}

/// Calls `f` with the running fiber and its scheduler, or not at all outside of fibers.
#[inline]
pub(crate) fn with_running<R>(f: impl FnOnce(&Core, &Entry) -> R) -> Option<R> {
    let running = RUNNING.get();
    if running.core.is_null() {
        return None;
    }
    // SAFETY: `Control` sets both pointers for as long as the fiber has control; `resume` and
    // `end_all`, who give it, hold its entry and the core for longer.
    Some(unsafe { f(&*running.core, &*running.entry) })
}

/// Lowest address of the running fiber's stack, and its size without the guard there. May be called in a signal handler.
pub(crate) fn running_stack() -> Option<(usize, usize)> {
    with_running(|_, entry| entry.stack.get())
}

/// One thread's scheduler, without what only its owner may do.
pub(crate) struct Core {
    /// Every place there has ever been; a place is used again.
    entries: RefCell<Vec<Rc<Entry>>>,
    vacant: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<Rc<Entry>>>,
    alive: Cell<usize>,
    /// Fibers resumed since the kernel was asked last.
    resumed: Cell<u32>,
    /// It ends with its last fiber.
    pub(crate) closing: Cell<bool>,
    stacks: RefCell<Stacks>,
    pub(crate) poller: RefCell<Poller>,
    epoll: Rc<OwnedFd>,
    /// Room for what the poller reports.
    woken: Cell<Vec<Ticket>>,
    /// All fibers are being unwound.
    ending: Cell<bool>,
    pub(crate) remote: Arc<Remote>,
}

impl Core {
    /// A fiber in state `Suspended`, as if it were parked.
    fn create(&self, f: impl FnOnce() + 'static) -> io::Result<Rc<Entry>> {
        let stack = self.stacks.borrow_mut().take()?;
        let entry = self.vacant_entry();
        entry.stack.set((stack.lowest(), stack.usable_bytes()));
        entry.state.set(State::Suspended);
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

    fn vacant_entry(&self) -> Rc<Entry> {
        let mut entries = self.entries.borrow_mut();
        if let Some(slot) = self.vacant.borrow_mut().pop() {
            return Rc::clone(&entries[slot as usize]);
        }
        let entry = Rc::new(Entry::new(entries.len() as u32));
        entries.push(Rc::clone(&entry));
        entry
    }

    /// A fiber whose end can be waited for.
    pub(crate) fn create_joined<T: 'static>(
        &self,
        packet: &Arc<Packet<T>>,
        f: impl FnOnce() -> T + 'static,
    ) -> io::Result<Rc<Entry>> {
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

    pub(crate) fn make_ready(&self, entry: Rc<Entry>) {
        entry.parked.set(false);
        entry.state.set(State::Yielded);
        self.ready.borrow_mut().push_back(entry);
    }

    fn find(&self, id: u64) -> Option<Rc<Entry>> {
        let entries = self.entries.borrow();
        entries.get((id & 0xffff_ffff) as usize).filter(|entry| entry.id().0 == id).cloned()
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.get()
    }

    pub(crate) fn state(&self, id: Id) -> State {
        self.find(id.0).map_or(State::Terminated, |entry| entry.state.get())
    }

    /// Whether this wait is not over yet.
    pub(crate) fn is_waiting(&self, ticket: Ticket) -> bool {
        self.find(ticket.fiber).is_some_and(|entry| {
            entry.state.get() == State::Suspended && entry.waits.get() == ticket.number
        })
    }

    /// Ends this wait.
    pub(crate) fn wake(&self, ticket: Ticket) {
        if self.is_waiting(ticket)
            && let Some(entry) = self.find(ticket.fiber)
        {
            self.make_ready(entry);
        }
    }

    /// Ends the fiber's park, or its next one at once.
    pub(crate) fn unpark(&self, id: Id) {
        let Some(entry) = self.find(id.0) else { return };
        if entry.state.get() == State::Suspended && entry.parked.get() {
            self.make_ready(entry);
        } else {
            entry.permit.set(true);
        }
    }

    /// Lets the fiber run until it waits, gives way or ends.
    #[inline]
    fn resume(&self, entry: &Rc<Entry>) {
        entry.state.set(State::Executing);
        let ended = {
            let _control = Control::give(self, entry);
            match entry.coroutine.borrow_mut().as_mut() {
                Some(coroutine) => coroutine.resume(()) == CoroutineResult::Return(()),
                None => false,
            }
        };
        if ended {
            self.bury(entry);
        }
    }

    fn bury(&self, entry: &Entry) {
        if let Some(coroutine) = entry.coroutine.borrow_mut().take() {
            self.stacks.borrow_mut().put(coroutine.into_stack());
        }
        entry.state.set(State::Terminated);
        entry.generation.set(entry.generation.get().wrapping_add(1));
        entry.parked.set(false);
        entry.permit.set(false);
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
            if entry.state.get() == State::Yielded {
                self.ready.borrow_mut().push_back(entry);
            }
        }
    }

    fn take_messages(&self) {
        for message in self.remote.take() {
            match message {
                Message::Wake(ticket) => self.wake(ticket),
                Message::Unpark(id) => self.unpark(id),
                Message::Call(call) => call(self),
            }
        }
    }

    /// Asks the kernel what has become ready, and waits for it if nobody is.
    fn poll(&self, most: Option<Duration>) -> io::Result<()> {
        let nobody = self.ready.borrow().is_empty();
        if !nobody && self.resumed.get() < RESUMED_BETWEEN_POLLS {
            return Ok(());
        }
        self.resumed.set(0);
        let most = if nobody { most } else { Some(Duration::ZERO) };
        let mut woken = self.woken.take();
        let waited = self.poller.borrow_mut().wait(most, &mut woken);
        woken.drain(..).for_each(|ticket| self.wake(ticket));
        self.woken.set(woken);
        waited
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
            let control = Control::give(self, &entry);
            drop(coroutine);
            drop(control);
            entry.state.set(State::Terminated);
        }
    }
}

/// What a scheduler needs of the kernel. It may be made on another thread, so that whoever starts
/// the scheduler's knows that it will not lack them.
pub struct Descriptors {
    epoll: OwnedFd,
    remote: Arc<Remote>,
}

impl Descriptors {
    /// Two descriptors.
    ///
    /// # Errors
    /// Lack of them.
    pub fn new() -> io::Result<Descriptors> {
        let remote = Arc::new(Remote::new()?);
        Ok(Descriptors { epoll: poller::watch(&remote)?, remote })
    }
}

/// The fibers of one thread. It stays on the thread that made it, and its fibers with it.
///
/// Dropping it unwinds the fibers that have not ended: their destructors and what they deferred
/// run, and whoever joins them is told.
pub struct Scheduler {
    core: Rc<Core>,
}

impl Scheduler {
    /// A scheduler without fibers.
    ///
    /// # Errors
    /// Lack of [`Descriptors`].
    pub fn new(options: Options) -> io::Result<Scheduler> {
        Ok(Scheduler::on(Descriptors::new()?, options))
    }

    /// A scheduler without fibers, with descriptors that were made before.
    pub fn on(descriptors: Descriptors, options: Options) -> Scheduler {
        overflow::watch();
        let Descriptors { epoll, remote } = descriptors;
        let poller = Poller::new(epoll, &remote);
        let core = Core {
            entries: RefCell::default(),
            vacant: RefCell::default(),
            ready: RefCell::default(),
            alive: Cell::new(0),
            resumed: Cell::new(0),
            closing: Cell::new(false),
            stacks: RefCell::new(Stacks::new(options.stack_bytes, options.kept_stacks)),
            epoll: poller.epoll(),
            poller: RefCell::new(poller),
            woken: Cell::default(),
            ending: Cell::new(false),
            remote,
        };
        Scheduler { core: Rc::new(core) }
    }

    /// Runs `f` as a fiber, and all others, until it has ended. A panic in it goes on here. Fibers
    /// that are left wait for the next call, or for the end of the scheduler.
    ///
    /// # Errors
    /// Lack of memory for a stack.
    pub fn run<T: 'static>(&self, f: impl FnOnce() -> T + 'static) -> io::Result<T> {
        let fiber = self.spawn(f)?;
        while !fiber.is_finished() {
            self.turn(None)?;
        }
        match fiber.join() {
            Ok(result) => Ok(result),
            Err(crate::JoinError::Panicked(payload)) => resume_unwind(payload),
            Err(crate::JoinError::Dropped) => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    /// A new fiber, ready to run.
    ///
    /// # Errors
    /// Lack of memory for a stack.
    pub fn spawn<T: 'static>(&self, f: impl FnOnce() -> T + 'static) -> io::Result<Fiber<T>> {
        self.core.spawn(f, true)
    }

    /// A new fiber that nobody can join, which runs at once and until it first waits. Nothing is
    /// allocated if there is a kept stack. Returns it if it has not ended by then.
    ///
    /// For loops that start a fiber for each event: one that does not wait leaves its stack, warm,
    /// to the next.
    ///
    /// # Errors
    /// Lack of memory for a stack.
    #[inline]
    pub fn start(&self, f: impl FnOnce() + 'static) -> io::Result<Option<Id>> {
        let entry = self.core.create(f)?;
        let id = entry.id();
        entry.parked.set(false);
        self.core.resume(&entry);
        match entry.state.get() {
            State::Terminated => return Ok(None),
            State::Yielded => self.core.ready.borrow_mut().push_back(entry),
            State::Suspended | State::Executing => {}
        }
        Ok(Some(id))
    }

    /// Ends the fiber's park, or its next one at once.
    pub fn unpark(&self, id: Id) {
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
    /// When the kernel refuses to wait for events.
    pub fn turn(&self, most: Option<Duration>) -> io::Result<()> {
        self.core.take_messages();
        self.core.poll(most)?;
        self.core.take_messages();
        self.core.run_ready();
        Ok(())
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

    /// Until the last fiber has ended after somebody has told it to close.
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

impl AsFd for Scheduler {
    /// Readable when a turn has something to do besides fibers that are ready and those that sleep.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.epoll.as_fd()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.core.remote.close();
        self.core.end_all();
        self.core.ready.borrow_mut().clear();
    }
}
