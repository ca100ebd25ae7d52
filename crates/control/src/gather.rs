//! The pause of a loop that mostly refuses requests, so that it finds several at once.
//!
//! A refusal costs a loop two system calls. Where requests arrive one by one and workers use the cores, it
//! costs several times as much: the loop is woken for each request, and each time a worker is interrupted.
//! Network drivers have the same problem and moderate their interrupts. Likewise, a loop that refuses more
//! than [`PER_S`] requests a second while workers compute rests for [`PAUSE`] before it looks again, and then
//! finds several. No request waits for longer than that pause, and at lower rates there is none.

use std::time::Duration;

/// The number of refusals per second from which on a loop pauses: about one per [`PAUSE`].
pub const PER_S: u32 = 2000;
/// The length of a pause.
pub const PAUSE: Duration = Duration::from_micros(500);
/// The time over which refusals are counted, in milliseconds.
const WINDOW_MS: u64 = 20;

/// One loop's count of refusals.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gather {
    since_ms: u64,
    refused: u32,
    pauses: bool,
}

impl Gather {
    /// Counts a refused request.
    #[inline]
    pub fn refused(&mut self) {
        self.refused = self.refused.saturating_add(1);
    }

    /// How long the loop should rest before it looks for new events. Called once per turn, with the time of a
    /// clock that never goes back.
    #[inline]
    pub fn pause(&mut self, now_ms: u64) -> Option<Duration> {
        let elapsed_ms = now_ms.saturating_sub(self.since_ms);
        if elapsed_ms >= WINDOW_MS {
            self.pauses = u64::from(self.refused) * 1000 >= elapsed_ms * u64::from(PER_S);
            (self.since_ms, self.refused) = (now_ms, 0);
        }
        self.pauses.then_some(PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether there is a pause at the end of each of `ms` milliseconds with `refused` refusals.
    fn pauses(gather: &mut Gather, from_ms: u64, ms: u64, refused: u32) -> bool {
        let mut paused = false;
        for now_ms in from_ms..from_ms + ms {
            (0..refused).for_each(|_| gather.refused());
            paused = gather.pause(now_ms).is_some();
        }
        paused
    }

    #[test]
    fn many_refusals_are_gathered_while_they_last() {
        let mut gather = Gather::default();
        assert!(!pauses(&mut gather, 1000, 100, 1));
        assert!(pauses(&mut gather, 1100, 100, 3));
        assert!(!pauses(&mut gather, 1200, 100, 0));
    }

    #[test]
    fn a_loop_that_has_slept_long_does_not_pause_for_a_burst() {
        let mut gather = Gather::default();
        (0..100).for_each(|_| gather.refused());
        assert_eq!(gather.pause(60_000), None);
        assert_eq!(gather.pause(120_000), None);
    }
}
