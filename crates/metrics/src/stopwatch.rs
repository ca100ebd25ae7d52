//! Time per activity of sampled requests.

use crate::Activity;

/// Divides the time of one turn among activities: each lap ends the current one.
///
/// The engine brings the clock. On most turns it passes [`Off`], so that a request that is not
/// sampled never reads a clock.
pub trait Stopwatch {
    /// The time since the start or the last lap went into `activity`.
    fn lap(&mut self, activity: Activity);
}

/// Measures nothing.
#[derive(Clone, Copy, Debug)]
pub struct Off;

impl Stopwatch for Off {
    #[inline]
    fn lap(&mut self, _: Activity) {}
}
