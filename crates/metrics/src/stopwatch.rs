//! The time per activity of sampled requests.

use crate::Activity;

/// Divides the time of one turn among activities: each lap ends the current one.
///
/// The engine provides the clock. On most turns it passes [`Off`], so that a request that is not
/// sampled never reads a clock.
pub trait Stopwatch {
    /// Assigns the time since the start or the last lap to `activity`.
    fn lap(&mut self, activity: Activity);
}

/// A stopwatch that measures nothing.
#[derive(Clone, Copy, Debug)]
pub struct Off;

impl Stopwatch for Off {
    #[inline]
    fn lap(&mut self, _: Activity) {}
}
