//! The stopwatch of sampled turns.

use forebay_metrics::{Activity, Local, Stopwatch};
use forebay_sys::clock;

/// A stopwatch that times one turn in `n` by activity; on all others it reads no clock.
#[derive(Debug)]
pub struct TurnStopwatch<'m> {
    metrics: &'m Local,
    /// The time when the last lap ended; 0 while this turn is not timed.
    last_ns: u64,
}

impl<'m> TurnStopwatch<'m> {
    /// A watch that runs if `sampled`.
    #[inline]
    pub fn new(metrics: &'m Local, sampled: bool) -> TurnStopwatch<'m> {
        TurnStopwatch { metrics, last_ns: if sampled { clock::monotonic_ns() } else { 0 } }
    }
}

impl Stopwatch for TurnStopwatch<'_> {
    #[inline]
    fn lap(&mut self, activity: Activity) {
        if self.last_ns != 0 {
            let now_ns = clock::monotonic_ns();
            self.metrics.time(activity, now_ns - self.last_ns);
            self.last_ns = now_ns;
        }
    }
}
