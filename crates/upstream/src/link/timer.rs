//! How long an acknowledgement may take: as TCP's retransmission timer (RFC 6298), by what was measured.

/// What is taken before anything was measured, in milliseconds.
const INITIAL_MS: u64 = 1000;
/// It is doubled so often at most.
const MOST_DOUBLED: u32 = 6;
/// The clock's step, in microseconds.
const STEP_US: u64 = 1000;

/// The timer of one instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct InstanceTimer {
    floor_ms: u64,
    ceiling_ms: u64,
    /// Smoothed, in microseconds; `None` before the first sample.
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

    /// An acknowledgement took so long. Each attempt is told apart, so that every sample is good.
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

    /// One took so long that had been given up, perhaps because its instance stood still: it counts for no more than twice the
    /// floor, so that the next one is given up in time, too, and one that has become slow is known after a few.
    pub(super) fn sample_late(&mut self, took_ms: u64) {
        self.sample(took_ms.min(2 * self.floor_ms));
    }

    /// How long one hardly ever takes: the mean and four deviations, without a floor. `None` before anything was measured.
    pub(super) fn usual_ms(&self) -> Option<u64> {
        let smoothed_us = self.smoothed_us?;
        Some((smoothed_us + (4 * self.deviation_us).max(STEP_US)).div_ceil(1000))
    }

    /// None came in time.
    pub(super) fn back_off(&mut self) {
        self.doubled = (self.doubled + 1).min(MOST_DOUBLED);
    }

    /// How long one may take now, in milliseconds.
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
