//! A bounded channel between fibers and threads of any kind.

use super::{AnyUnparker, Interrupted, park, unparker};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Why no value was received or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// The other side is gone.
    Closed,
    /// No value came in time, or there was no room.
    TimedOut,
    /// The wait was interrupted.
    Interrupted,
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChannelError::Closed => "the other side of the channel is gone",
            ChannelError::TimedOut => "the time for the channel is over",
            ChannelError::Interrupted => "the wait at the channel was interrupted",
        })
    }
}

impl std::error::Error for ChannelError {}

impl From<Interrupted> for ChannelError {
    fn from(_: Interrupted) -> ChannelError {
        ChannelError::Interrupted
    }
}

impl From<ChannelError> for io::Error {
    fn from(error: ChannelError) -> io::Error {
        let kind = match error {
            ChannelError::Closed => io::ErrorKind::BrokenPipe,
            ChannelError::TimedOut => io::ErrorKind::TimedOut,
            ChannelError::Interrupted => io::ErrorKind::ConnectionAborted,
        };
        io::Error::new(kind, error)
    }
}

struct ChannelContent<T> {
    values: VecDeque<T>,
    most: usize,
    senders: usize,
    receivers: usize,
    /// The fibers and threads that wait for a value, and those that wait for room.
    wanting: WaitingEnds,
    giving: WaitingEnds,
}

/// The fibers and threads that wait at one end of the channel, each with a number.
#[derive(Default)]
struct WaitingEnds {
    last: u64,
    all: Vec<(u64, AnyUnparker)>,
}

impl WaitingEnds {
    /// Adds the running fiber or this thread to those that wait; returns its number.
    fn enter(&mut self) -> u64 {
        self.last += 1;
        self.all.push((self.last, unparker()));
        self.last
    }

    /// Removes the waiter with this number.
    fn leave(&mut self, number: u64) {
        self.all.retain(|(one, _)| *one != number);
    }

    /// Wakes all waiters, which check the channel again: it is not known here which of them can
    /// continue.
    fn wake(&mut self) {
        self.all.drain(..).for_each(|(_, one)| one.unpark());
    }
}

type SharedChannel<T> = Arc<Mutex<ChannelContent<T>>>;

/// The sending end. Clones are further senders.
pub struct ChannelSender<T>(SharedChannel<T>);

/// The receiving end. Each value goes to one receiver. Clones are further receivers.
pub struct ChannelReceiver<T>(SharedChannel<T>);

/// A channel that holds at most `most` values, at least one.
pub fn channel<T>(most: usize) -> (ChannelSender<T>, ChannelReceiver<T>) {
    let state = ChannelContent {
        values: VecDeque::new(),
        most: most.max(1),
        senders: 1,
        receivers: 1,
        wanting: WaitingEnds::default(),
        giving: WaitingEnds::default(),
    };
    let channel = Arc::new(Mutex::new(state));
    (ChannelSender(Arc::clone(&channel)), ChannelReceiver(channel))
}

fn lock<T>(channel: &SharedChannel<T>) -> MutexGuard<'_, ChannelContent<T>> {
    channel.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> ChannelSender<T> {
    /// Sends `value`; waits while there is no room.
    ///
    /// # Errors
    /// All receivers are gone, or the wait was interrupted; the value is dropped.
    pub fn send(&self, value: T) -> Result<(), ChannelError> {
        loop {
            let mut state = lock(&self.0);
            if state.receivers == 0 {
                return Err(ChannelError::Closed);
            }
            if state.values.len() < state.most {
                state.values.push_back(value);
                state.wanting.wake();
                return Ok(());
            }
            let number = state.giving.enter();
            drop(state);
            let parked = park(None);
            lock(&self.0).giving.leave(number);
            parked?;
        }
    }

    /// Sends `value` if there is room now.
    ///
    /// # Errors
    /// `TimedOut` if there is no room; `Closed` if all receivers are gone.
    pub fn try_send(&self, value: T) -> Result<(), ChannelError> {
        let mut state = lock(&self.0);
        if state.receivers == 0 {
            return Err(ChannelError::Closed);
        }
        if state.values.len() >= state.most {
            return Err(ChannelError::TimedOut);
        }
        state.values.push_back(value);
        state.wanting.wake();
        Ok(())
    }
}

impl<T> ChannelReceiver<T> {
    /// Waits for the next value.
    ///
    /// # Errors
    /// All senders are gone and no value is left, or the wait was interrupted.
    pub fn recv(&self) -> Result<T, ChannelError> {
        self.receive_until(None)
    }

    /// Waits for the next value, for this long at most.
    ///
    /// # Errors
    /// The same as of [`recv`](ChannelReceiver::recv), and `TimedOut`.
    pub fn recv_timeout(&self, time: Duration) -> Result<T, ChannelError> {
        self.receive_until(Instant::now().checked_add(time))
    }

    /// The next value, if there is one now.
    ///
    /// # Errors
    /// `TimedOut` if there is none yet; `Closed` if all senders are gone.
    pub fn try_recv(&self) -> Result<T, ChannelError> {
        self.receive_until(Some(Instant::now()))
    }

    fn receive_until(&self, until: Option<Instant>) -> Result<T, ChannelError> {
        loop {
            let mut state = lock(&self.0);
            if let Some(value) = state.values.pop_front() {
                state.giving.wake();
                return Ok(value);
            }
            if state.senders == 0 {
                return Err(ChannelError::Closed);
            }
            if until.is_some_and(|at| at <= Instant::now()) {
                return Err(ChannelError::TimedOut);
            }
            let number = state.wanting.enter();
            drop(state);
            let parked = park(until);
            lock(&self.0).wanting.leave(number);
            parked?;
        }
    }
}

impl<T> Clone for ChannelSender<T> {
    fn clone(&self) -> Self {
        lock(&self.0).senders += 1;
        ChannelSender(Arc::clone(&self.0))
    }
}

impl<T> Clone for ChannelReceiver<T> {
    fn clone(&self) -> Self {
        lock(&self.0).receivers += 1;
        ChannelReceiver(Arc::clone(&self.0))
    }
}

impl<T> Drop for ChannelSender<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.senders -= 1;
        if state.senders == 0 {
            state.wanting.wake();
        }
    }
}

impl<T> Drop for ChannelReceiver<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.receivers -= 1;
        if state.receivers == 0 {
            state.giving.wake();
            // the values may need this lock when they are dropped
            let values = std::mem::take(&mut state.values);
            drop(state);
            drop(values);
        }
    }
}
