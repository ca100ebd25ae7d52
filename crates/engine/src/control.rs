//! How a running engine is ordered to retire, to drain or to stop, and whether its threads turn.

mod ended;

pub use ended::Ended;

use crate::room::linger::Lingering;
use forebay_sys::epoll::Bell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// The orders to an engine. Every loop of the engine looks at them when its bell rings.
#[derive(Debug)]
pub struct EngineControl {
    order: AtomicU8,
    bells: Vec<Bell>,
    heartbeats: Vec<Heartbeat>,
    /// The loops that accept nothing more.
    left: Vec<AtomicBool>,
    thread_heartbeats: Vec<Heartbeat>,
    retiring: Bell,
    draining: Bell,
    stopping: Bell,
    lingering: Arc<Lingering>,
}

/// The time of the last turn of a loop or a thread, in milliseconds of the monotonic clock; in a
/// cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Heartbeat(AtomicU64);

/// The value of a thread that shows no heartbeat and is not asked for one.
const SILENT: u64 = 0;

impl Heartbeat {
    /// The time of the last heartbeat, unless there is none.
    fn at_ms(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|at_ms| *at_ms != SILENT)
    }
}

/// An order to the loops of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LoopOrder {
    /// Serve.
    Run = 0,
    /// Others have the listeners now: accept what is queued, then nothing more; serve what is open
    /// as before, and return when it has ended.
    Retire = 1,
    /// Accept what is queued, then nothing more; finish what is open and return.
    Drain = 2,
    /// Return now.
    Stop = 3,
}

impl EngineControl {
    /// The orders for an engine with `loops` loops.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn new(loops: usize) -> std::io::Result<EngineControl> {
        let bells = (0..loops).map(|_| Bell::new()).collect::<Result<_, _>>()?;
        Ok(EngineControl {
            order: AtomicU8::new(0),
            heartbeats: (0..loops).map(|_| Heartbeat::default()).collect(),
            left: (0..loops).map(|_| AtomicBool::new(false)).collect(),
            thread_heartbeats: Vec::new(),
            bells,
            retiring: Bell::new()?,
            draining: Bell::new()?,
            stopping: Bell::new()?,
            lingering: Arc::new(Lingering::new()?),
        })
    }

    /// Adds `threads` threads, which show that they turn.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> EngineControl {
        self.thread_heartbeats = (0..threads).map(|_| Heartbeat::default()).collect();
        self
    }

    /// The bell that wakes loop `index`.
    pub fn bell(&self, index: usize) -> &Bell {
        &self.bells[index]
    }

    /// Shows that loop `index` turns, or what does its work.
    #[inline]
    pub fn heartbeat(&self, index: usize, now_ms: u64) {
        show(&self.heartbeats, index, now_ms);
    }

    /// Notes that loop `index` has ended, or that no thread runs it now: it is not asked for a
    /// heartbeat.
    pub fn heartbeat_rests(&self, index: usize) {
        show(&self.heartbeats, index, SILENT);
    }

    /// Shows that thread `number` turns.
    #[inline]
    pub fn thread_heartbeat(&self, number: usize, now_ms: u64) {
        show(&self.thread_heartbeats, number, now_ms);
    }

    /// Notes that thread `number` has ended, or may wait for long, for a client or in a job: it is
    /// not asked for a heartbeat.
    #[inline]
    pub fn thread_heartbeat_rests(&self, number: usize) {
        show(&self.thread_heartbeats, number, SILENT);
    }

    /// Whether every loop that is asked for a heartbeat has turned since `since_ms`, and of the threads that
    /// are asked for one, if there are any, at least one: where there are many, one may wait long for a
    /// processor, but not all.
    pub fn heartbeats_since(&self, since_ms: u64) -> bool {
        let is_late = |at_ms| at_ms < since_ms;
        let any_loop_is_late = self.heartbeats.iter().filter_map(Heartbeat::at_ms).any(is_late);
        let last_of_threads = self.thread_heartbeats.iter().filter_map(Heartbeat::at_ms).max();
        !any_loop_is_late && !last_of_threads.is_some_and(is_late)
    }

    /// Has every loop turn; [`lag_ms`](EngineControl::lag_ms) then says how long that took.
    pub fn ring(&self) {
        self.bells.iter().for_each(Bell::ring);
    }

    /// How late the loops have turned, or are by `now_ms`, after they were
    /// [rung](EngineControl::ring) at `rung_ms`, and whether all have turned since. A loop that is
    /// not asked for a heartbeat is not late.
    pub fn lag_ms(&self, rung_ms: u64, now_ms: u64) -> (u64, bool) {
        let heartbeats = self.heartbeats.iter().filter_map(Heartbeat::at_ms);
        heartbeats.fold((0, true), |(lag_ms, have_all), at_ms| match at_ms.checked_sub(rung_ms) {
            Some(late_ms) => (lag_ms.max(late_ms), have_all),
            None => (lag_ms.max(now_ms.saturating_sub(rung_ms)), false),
        })
    }

    /// Gives an order. An order never takes back a stronger one.
    pub fn give(&self, order: LoopOrder) {
        self.order.fetch_max(order as u8, Ordering::AcqRel);
        self.bells.iter().for_each(Bell::ring);
        let ring_from = [
            (LoopOrder::Retire, &self.retiring),
            (LoopOrder::Drain, &self.draining),
            (LoopOrder::Stop, &self.stopping),
        ];
        ring_from.iter().filter(|(at, _)| *at <= order).for_each(|(_, bell)| bell.ring());
        if order == LoopOrder::Stop {
            self.lingering.stop();
        }
    }

    /// The lingering connections of the engine.
    pub(crate) fn lingering(&self) -> &Arc<Lingering> {
        &self.lingering
    }

    /// Waits until none of the engine's connections lingers any more, or there is an order to stop.
    /// For use when the engine has returned.
    pub fn wait_for_lingering(&self) {
        self.lingering.wait();
    }

    /// Notes that loop `index`, or what stands for it, has left its listeners.
    pub fn has_left(&self, index: usize) {
        self.left.get(index).into_iter().for_each(|left| left.store(true, Ordering::Release));
    }

    /// Notes that no loop accepts any more: one thread accepts for all, and has left.
    pub fn all_have_left(&self) {
        self.left.iter().for_each(|left| left.store(true, Ordering::Release));
    }

    /// Whether the order is to leave the listeners to others, and a loop may still accept.
    pub fn is_leaving(&self) -> bool {
        self.order() == LoopOrder::Retire
            && self.left.iter().any(|left| !left.load(Ordering::Acquire))
    }

    /// Returns a bell that rings, for any number of threads and for ever, once there is an order
    /// stronger than `known`.
    pub fn stronger_than(&self, known: LoopOrder) -> &Bell {
        match known {
            LoopOrder::Run => &self.retiring,
            LoopOrder::Retire => &self.draining,
            LoopOrder::Drain | LoopOrder::Stop => &self.stopping,
        }
    }

    /// The order in force.
    #[inline]
    pub fn order(&self) -> LoopOrder {
        match self.order.load(Ordering::Acquire) {
            0 => LoopOrder::Run,
            1 => LoopOrder::Retire,
            2 => LoopOrder::Drain,
            _ => LoopOrder::Stop,
        }
    }
}

#[inline]
fn show(heartbeats: &[Heartbeat], number: usize, at_ms: u64) {
    if let Some(heartbeat) = heartbeats.get(number) {
        heartbeat.0.store(at_ms, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_leave_one_by_one() {
        let control = EngineControl::new(2).unwrap();
        assert!(!control.is_leaving(), "nobody was told to");
        control.give(LoopOrder::Retire);
        control.has_left(0);
        assert!(control.is_leaving());
        control.has_left(1);
        assert!(!control.is_leaving());
        let control = EngineControl::new(2).unwrap();
        control.give(LoopOrder::Retire);
        control.all_have_left();
        assert!(!control.is_leaving());
    }

    #[test]
    fn a_loop_that_hangs_shows_and_one_that_has_ended_does_not() {
        let control = EngineControl::new(3).unwrap();
        assert!(control.heartbeats_since(1000), "none has begun");
        control.heartbeat(0, 900);
        control.heartbeat(1, 1100);
        assert!(control.heartbeats_since(900));
        assert!(!control.heartbeats_since(1000));
        control.heartbeat_rests(0);
        assert!(control.heartbeats_since(1000));
        control.heartbeat(9, 1);
    }

    #[test]
    fn loops_are_late_until_they_have_turned() {
        let control = EngineControl::new(3).unwrap();
        assert_eq!(control.lag_ms(1_000, 1_500), (0, true), "none has begun");
        control.heartbeat(0, 1_003);
        control.heartbeat(1, 900);
        control.ring();
        assert_eq!(control.lag_ms(1_000, 1_040), (40, false));
        control.heartbeat(1, 1_060);
        assert_eq!(control.lag_ms(1_000, 1_070), (60, true));
    }

    #[test]
    fn of_threads_that_turn_one_is_enough_and_those_that_wait_are_not_asked() {
        let control = EngineControl::new(1).unwrap().with_threads(3);
        assert!(control.heartbeats_since(1000), "all wait");
        control.thread_heartbeat(0, 900);
        assert!(!control.heartbeats_since(1000), "the only one that turns hangs");
        control.thread_heartbeat(1, 1100);
        assert!(control.heartbeats_since(1000));
        control.thread_heartbeat_rests(1);
        assert!(!control.heartbeats_since(1000), "another waits");
        control.thread_heartbeat_rests(0);
        control.heartbeat(0, 900);
        control.thread_heartbeat(2, 1100);
        assert!(!control.heartbeats_since(1000), "nobody accepts");
        control.heartbeat_rests(0);
        assert!(control.heartbeats_since(1000));
    }
}
