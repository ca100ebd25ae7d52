//! Handles of fibers: to get a fiber's result, and to wake it.

use super::entry::{FiberId, FiberState, WaitId, with_running};
use super::here;
use super::interrupt;
use super::remote::{Remote, SchedulerMessage};
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// Why there is no result.
pub enum JoinError {
    /// The fiber panicked, with this payload.
    Panicked(Box<dyn Any + Send>),
    /// The fiber was ended before it had a result, or could not be started.
    Dropped,
    /// The waiting fiber was interrupted, not the one it waits for.
    Interrupted,
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Panicked(payload) => {
                let text = payload.downcast_ref::<&str>().copied();
                let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
                write!(f, "the fiber panicked: {}", text.unwrap_or("no message"))
            }
            JoinError::Dropped => f.write_str("the fiber was ended before it had a result"),
            JoinError::Interrupted => f.write_str("the wait for the result was interrupted"),
        }
    }
}

impl std::error::Error for JoinError {}

/// The waiter for a result.
enum Waiter {
    Nobody,
    Fiber {
        ticket: WaitId,
        remote: Arc<Remote>,
    },
    /// A parked thread.
    Thread(Thread),
}

enum JoinOutcome<T> {
    Open(Waiter),
    Ended(Result<T, JoinError>),
    Taken,
}

/// The place for a result, shared between the fiber and its handle.
pub(crate) struct Packet<T> {
    /// The number of the fiber; until it is created, one of the two constants below.
    id: AtomicU64,
    outcome: Mutex<JoinOutcome<T>>,
}

/// The fiber is not created yet; the second constant says that it has been unparked already.
const UNKNOWN: u64 = u64::MAX;
const UNKNOWN_UNPARKED: u64 = u64::MAX - 1;

impl<T> Packet<T> {
    pub(crate) fn new() -> Arc<Packet<T>> {
        Arc::new(Packet {
            id: AtomicU64::new(UNKNOWN),
            outcome: Mutex::new(JoinOutcome::Open(Waiter::Nobody)),
        })
    }

    pub(crate) fn promise(packet: &Arc<Packet<T>>) -> Promise<T> {
        Promise { packet: Arc::clone(packet) }
    }

    /// Sets the fiber's number. Returns whether the fiber has been unparked already.
    pub(crate) fn set_id(&self, id: FiberId) -> bool {
        self.id.swap(id.0, Ordering::AcqRel) == UNKNOWN_UNPARKED
    }

    fn id(&self) -> FiberId {
        FiberId(self.id.load(Ordering::Acquire))
    }

    /// The fiber to unpark; `None` if that will happen when the fiber is created.
    fn id_to_unpark(&self) -> Option<FiberId> {
        match self.id.compare_exchange(
            UNKNOWN,
            UNKNOWN_UNPARKED,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) | Err(UNKNOWN_UNPARKED) => None,
            Err(id) => Some(FiberId(id)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, JoinOutcome<T>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_ended(&self) -> bool {
        !matches!(*self.lock(), JoinOutcome::Open(_))
    }

    /// Waits for the result: a fiber lets others run meanwhile, a thread sleeps.
    pub(crate) fn wait(&self) -> Result<T, JoinError> {
        loop {
            let mut outcome = self.lock();
            if !matches!(*outcome, JoinOutcome::Open(_)) {
                return match std::mem::replace(&mut *outcome, JoinOutcome::Taken) {
                    JoinOutcome::Ended(result) => result,
                    JoinOutcome::Open(_) | JoinOutcome::Taken => Err(JoinError::Dropped),
                };
            }
            // a fiber that unwinds cannot wait
            if std::thread::panicking() {
                return Err(JoinError::Dropped);
            }
            if interrupt::is_interrupted() {
                return Err(JoinError::Interrupted);
            }
            let begun = with_running(|core, entry| {
                let remote = Arc::clone(&core.remote);
                *outcome = JoinOutcome::Open(Waiter::Fiber { ticket: entry.begin_wait(), remote });
            });
            if begun.is_some() {
                drop(outcome);
                with_running(|_, entry| entry.suspend());
            } else {
                *outcome = JoinOutcome::Open(Waiter::Thread(std::thread::current()));
                drop(outcome);
                std::thread::park();
            }
        }
    }
}

/// The fiber's side, which stores the result.
pub(crate) struct Promise<T> {
    packet: Arc<Packet<T>>,
}

impl<T> Promise<T> {
    pub(crate) fn keep(self, result: Result<T, Box<dyn Any + Send>>) {
        self.end(match result {
            Ok(result) => Ok(result),
            Err(payload) if is_unwound_by_force() => {
                drop(payload);
                Err(JoinError::Dropped)
            }
            Err(payload) => Err(JoinError::Panicked(payload)),
        });
    }

    fn end(&self, result: Result<T, JoinError>) {
        let mut outcome = self.packet.lock();
        let JoinOutcome::Open(waiter) = &mut *outcome else { return };
        let waiter = std::mem::replace(waiter, Waiter::Nobody);
        *outcome = JoinOutcome::Ended(result);
        drop(outcome);
        let (ticket, remote) = match waiter {
            Waiter::Nobody => return,
            Waiter::Thread(thread) => return thread.unpark(),
            Waiter::Fiber { ticket, remote } => (ticket, remote),
        };
        if !here::on_this_thread(&remote, |core| core.wake(ticket)) {
            remote.post(SchedulerMessage::Wake(ticket));
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        // has no effect if a result was stored
        self.end(Err(JoinError::Dropped));
    }
}

/// Whether the running fiber is being unwound with its scheduler.
fn is_unwound_by_force() -> bool {
    with_running(|core, _| core.is_ending()).unwrap_or(false)
}

/// A fiber that can be joined. If the handle is dropped, the fiber continues by itself.
pub struct Fiber<T> {
    packet: Arc<Packet<T>>,
    remote: Arc<Remote>,
}

impl<T> Fiber<T> {
    pub(crate) fn new(packet: Arc<Packet<T>>, remote: Arc<Remote>) -> Fiber<T> {
        Fiber { packet, remote }
    }

    /// Waits for the fiber's end and takes its result. A fiber that calls this lets others run meanwhile.
    /// Outside of fibers the thread sleeps, which must not be the thread that runs the fiber.
    ///
    /// # Errors
    /// The reason why there is no result.
    pub fn join(self) -> Result<T, JoinError> {
        self.packet.wait()
    }

    /// Whether the fiber has ended.
    pub fn is_finished(&self) -> bool {
        self.packet.has_ended()
    }

    /// The fiber's state; `None` if the fiber belongs to another scheduler than the calling one.
    pub fn state(&self) -> Option<FiberState> {
        with_running(|core, _| {
            let here = Arc::ptr_eq(&core.remote, &self.remote);
            here.then(|| core.state(self.packet.id()))
        })
        .flatten()
    }

    /// Ends the fiber's [`park`](crate::park), or makes the next one return at once; resumes it if it was
    /// created suspended. Any thread may call this.
    pub fn unpark(&self) {
        if let Some(id) = self.packet.id_to_unpark() {
            unpark(id, &self.remote);
        }
    }
}

impl<T> Fiber<T> {
    /// Ends the fiber's present wait, and makes later ones return at once. The waits of
    /// [`anywhere`](crate::anywhere) then return an error. Any thread may call this.
    pub fn interrupt(&self) {
        let id = self.packet.id();
        if !here::on_this_thread(&self.remote, |core| core.interrupt(id)) {
            self.remote.post(SchedulerMessage::Interrupt(id));
        }
    }
}

/// A handle that wakes one fiber, from any thread.
#[derive(Clone)]
pub struct Unparker {
    id: FiberId,
    remote: Arc<Remote>,
}

impl Unparker {
    pub(crate) fn new(id: FiberId, remote: Arc<Remote>) -> Unparker {
        Unparker { id, remote }
    }

    /// Ends the fiber's [`park`](crate::park), or makes the next one return at once. If the fiber has ended,
    /// nothing happens.
    pub fn unpark(&self) {
        unpark(self.id, &self.remote);
    }
}

fn unpark(id: FiberId, remote: &Arc<Remote>) {
    if !here::on_this_thread(remote, |core| core.unpark(id)) {
        remote.post(SchedulerMessage::Unpark(id));
    }
}
