//! How a running engine is told to retire, to drain or to stop, and what it says at the end.

use forebay_conn::Await;
use forebay_sys::epoll::Bell;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Told from outside; every loop of an engine looks at it when its bell rings.
#[derive(Debug)]
pub struct Control {
    order: AtomicU8,
    bells: Vec<Bell>,
    beats: Vec<Beat>,
    retiring: Bell,
    draining: Bell,
    stopping: Bell,
}

/// When a loop turned last, in milliseconds of the monotonic clock; in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Beat(AtomicU64);

/// A loop that has not begun, or is no loop.
const SILENT: u64 = 0;
/// A loop that has ended.
const ENDED: u64 = u64::MAX;

/// What a loop has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Order {
    /// Serve.
    Run = 0,
    /// Others have the listeners now: accept what is queued, then nothing more; serve what is open as
    /// before, and return when it has ended.
    Retire = 1,
    /// Accept what is queued, then nothing more; finish what is open and return.
    Drain = 2,
    /// Return now.
    Stop = 3,
}

impl Control {
    /// For `loops` loops.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn new(loops: usize) -> std::io::Result<Control> {
        let bells = (0..loops).map(|_| Bell::new()).collect::<Result<_, _>>()?;
        Ok(Control {
            order: AtomicU8::new(0),
            beats: (0..loops).map(|_| Beat::default()).collect(),
            bells,
            retiring: Bell::new()?,
            draining: Bell::new()?,
            stopping: Bell::new()?,
        })
    }

    /// The bell that wakes loop `index`.
    pub fn bell(&self, index: usize) -> &Bell {
        &self.bells[index]
    }

    /// Loop `index` turns, or whatever does its work.
    #[inline]
    pub fn beat(&self, index: usize, now_ms: u64) {
        if let Some(beat) = self.beats.get(index) {
            beat.0.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Loop `index` has ended.
    pub fn beat_no_more(&self, index: usize) {
        self.beat(index, ENDED);
    }

    /// Whether every loop that has begun and not ended has turned since `since_ms`. Threads that may
    /// all wait for clients, as those of `pool` do, show no beat and are not asked for one.
    pub fn beats_since(&self, since_ms: u64) -> bool {
        let mut beats = self.beats.iter().map(|beat| beat.0.load(Ordering::Relaxed));
        beats.all(|at_ms| at_ms == SILENT || at_ms >= since_ms)
    }

    /// Gives an order. An order never takes back a stronger one.
    pub fn give(&self, order: Order) {
        self.order.fetch_max(order as u8, Ordering::AcqRel);
        self.bells.iter().for_each(Bell::ring);
        let ring_from = [
            (Order::Retire, &self.retiring),
            (Order::Drain, &self.draining),
            (Order::Stop, &self.stopping),
        ];
        ring_from.iter().filter(|(at, _)| *at <= order).for_each(|(_, bell)| bell.ring());
    }

    /// A bell that rings, for any number of threads and for ever, once there is an order stronger
    /// than `known`.
    pub fn stronger_than(&self, known: Order) -> &Bell {
        match known {
            Order::Run => &self.retiring,
            Order::Retire => &self.draining,
            Order::Drain | Order::Stop => &self.stopping,
        }
    }

    /// The order in force.
    #[inline]
    pub fn order(&self) -> Order {
        match self.order.load(Ordering::Acquire) {
            0 => Order::Run,
            1 => Order::Retire,
            2 => Order::Drain,
            _ => Order::Stop,
        }
    }
}

/// How the connections that were open when a loop began to drain have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Ended in good order.
    pub drained: u64,
    /// Cut, by what they were waiting for: a request, a job, a client that takes its answer.
    pub aborted_receiving: u64,
    /// Cut while a helper thread worked for them.
    pub aborted_in_job: u64,
    /// Cut while an answer was being sent.
    pub aborted_sending: u64,
}

impl Ended {
    /// Counts one connection that is cut.
    pub fn abort(&mut self, awaited: Await) {
        match awaited {
            Await::Idle | Await::Head | Await::Body => self.aborted_receiving += 1,
            Await::Job => self.aborted_in_job += 1,
            Await::Send => self.aborted_sending += 1,
        }
    }

    /// All that were cut.
    pub fn aborted(&self) -> u64 {
        self.aborted_receiving + self.aborted_in_job + self.aborted_sending
    }
}

impl std::ops::Add for Ended {
    type Output = Ended;

    fn add(self, other: Ended) -> Ended {
        Ended {
            drained: self.drained + other.drained,
            aborted_receiving: self.aborted_receiving + other.aborted_receiving,
            aborted_in_job: self.aborted_in_job + other.aborted_in_job,
            aborted_sending: self.aborted_sending + other.aborted_sending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_hangs_shows_and_one_that_has_ended_does_not() {
        let control = Control::new(3).unwrap();
        assert!(control.beats_since(1000), "none has begun");
        control.beat(0, 900);
        control.beat(1, 1100);
        assert!(control.beats_since(900));
        assert!(!control.beats_since(1000));
        control.beat_no_more(0);
        assert!(control.beats_since(1000));
        control.beat(9, 1);
    }
}
