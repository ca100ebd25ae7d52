//! The timer of an instance: how long an acknowledgement may take, as TCP's retransmission timer (RFC
//! 6298).

/// The timer before the first sample, in milliseconds.
const INITIAL_MS: u64 = 1000;
/// How often the timer is doubled at most.
const MOST_DOUBLED: u32 = 6;
/// The clock's step, in microseconds.
const STEP_US: u64 = 1000;

/// The timer of one instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct InstanceTimer {
    floor_ms: u64,
    ceiling_ms: u64,
    /// The smoothed time, in microseconds; `None` before the first sample.
    smoothed_us: Option<u64>,
    deviation_us: u64,
    doubled: u32,
}

impl InstanceTimer {
    pub(super) fn new(floor_ms: u64, ceiling_ms: u64) -> InstanceTimer {
        InstanceTimer {
            floor_ms: floor_ms.max(1),
            ceiling_ms: ceiling_ms.max(floor_ms).max(1),
            smoothed_us: None,
            deviation_us: 0,
            doubled: 0,
        }
    }

    /// Takes the time of an acknowledgement. Attempts are distinguished, so every sample is good (no
    /// Karn's rule).
    pub(super) fn sample(&mut self, took_ms: u64) {
        let took_us = took_ms.saturating_mul(1000);
        self.doubled = 0;
        match &mut self.smoothed_us {
            None => {
                self.smoothed_us = Some(took_us);
                self.deviation_us = took_us / 2;
            }
            Some(smoothed_us) => {
                let off_us = smoothed_us.abs_diff(took_us);
                self.deviation_us = (3 * self.deviation_us + off_us) / 4;
                *smoothed_us = (7 * *smoothed_us + took_us) / 8;
            }
        }
    }

    /// Takes the time of an acknowledgement that came after its attempt was given up, perhaps because
    /// the instance stood still. It counts for at most twice the floor: the next attempt is still
    /// given up in time, and an instance that has become slow is known after a few samples.
    pub(super) fn sample_late(&mut self, took_ms: u64) {
        self.sample(took_ms.min(2 * self.floor_ms));
    }

    /// The time that an acknowledgement hardly ever exceeds: the mean and four deviations, without a
    /// floor. `None` before the first sample.
    pub(super) fn usual_ms(&self) -> Option<u64> {
        let smoothed_us = self.smoothed_us?;
        Some((smoothed_us + (4 * self.deviation_us).max(STEP_US)).div_ceil(1000))
    }

    /// Doubles the timer: no acknowledgement came in time.
    pub(super) fn back_off(&mut self) {
        self.doubled = (self.doubled + 1).min(MOST_DOUBLED);
    }

    /// How long an acknowledgement may take now, in milliseconds.
    pub(super) fn ms(&self) -> u64 {
        let plain_ms = self.usual_ms().unwrap_or(INITIAL_MS);
        (plain_ms.clamp(self.floor_ms, self.ceiling_ms) << self.doubled)
            .clamp(self.floor_ms, self.ceiling_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_what_is_measured_between_floor_and_ceiling() {
        let mut timer = InstanceTimer::new(50, 2000);
        assert_eq!(timer.ms(), 1000);
        timer.sample(100);
        assert_eq!(timer.ms(), 300, "smoothed, and four deviations");
        for _ in 0..100 {
            timer.sample(100);
        }
        assert_eq!(timer.ms(), 101);
        for _ in 0..100 {
            timer.sample(0);
        }
        assert_eq!(timer.ms(), 50);
        for _ in 0..3 {
            timer.sample(60_000);
        }
        assert_eq!(timer.ms(), 2000);
    }

    #[test]
    fn what_is_missed_doubles_it_until_something_comes() {
        let mut timer = InstanceTimer::new(50, 2000);
        timer.sample(10);
        let mut times = Vec::new();
        for _ in 0..8 {
            times.push(timer.ms());
            timer.back_off();
        }
        assert_eq!(times, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        timer.sample(10);
        assert_eq!(timer.ms(), 50);
    }
}
