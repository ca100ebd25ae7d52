//! The measurement between two changes of a limit.

/// The requests that have ended in an epoch, and the time for which the limit was reached.
#[derive(Clone, Debug, Default)]
pub(super) struct Epoch {
    /// The number of requests that must end before anything counts: by then those have ended that began under
    /// another limit.
    settling: u32,
    /// The time at which the epoch began to count.
    since_ns: u64,
    /// The time at which the last request ended.
    ended_ns: u64,
    good: u32,
    bad: u32,
    /// The sum of the durations of well answered requests, and of their squares.
    took_s: f64,
    squares: f64,
    /// The sum of the durations of all requests.
    all_took_s: f64,
    /// The number of requests under way, integrated over time.
    area_s: f64,
    /// The time for which the limit was reached.
    full_s: f64,
}

/// The measurements of an epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct EpochMeasures {
    /// The mean number of requests under way.
    pub(super) under_way: f64,
    /// The logarithm of the good answers per second.
    pub(super) ln_goodput: f64,
    /// The number of good answers.
    pub(super) answers: u32,
    /// How much requests differ: the variance of their durations, divided by the square of the mean.
    pub(super) spread: f64,
}

/// The result of an epoch.
#[derive(Clone, Copy, Debug)]
pub(super) enum EpochEnd {
    /// The epoch has enough measurements.
    Measured(EpochMeasures),
    /// The limit was not reached for long enough.
    Unbound,
    /// Most answers were errors.
    Failing,
}

/// The shortest epoch.
const LEAST_S: f64 = 0.1;
/// The part of the time for which the limit must have been reached.
const FULL: f64 = 0.9;

impl Epoch {
    /// An epoch under this limit.
    pub(super) fn new(limit: u32, now_ns: u64) -> Epoch {
        Epoch { settling: limit, since_ns: now_ns, ..Epoch::default() }
    }

    /// Records that `under_way` requests were under way for this time; with `is_full`, the limit was reached.
    pub(super) fn passed(&mut self, under_way: u32, is_full: bool, seconds: f64) {
        if self.settling > 0 {
            return;
        }
        self.area_s += f64::from(under_way) * seconds;
        self.full_s += if is_full { seconds } else { 0.0 };
    }

    /// Records that a request has ended after `took_s`; `is_good` says whether the answer was good, `None`
    /// that this is unknown.
    pub(super) fn ended(&mut self, took_s: f64, is_good: Option<bool>, now_ns: u64) {
        // requests that end at the same time belong together: where all workers end at once, a part of them
        // has no meaningful average
        let is_with_last = std::mem::replace(&mut self.ended_ns, now_ns) == now_ns;
        if self.settling > 0 || (self.since_ns == now_ns && is_with_last) {
            self.settling = self.settling.saturating_sub(1);
            self.since_ns = now_ns;
            return;
        }
        self.all_took_s += took_s;
        match is_good {
            Some(true) => {
                self.good += 1;
                self.took_s += took_s;
                self.squares += took_s * took_s;
            }
            Some(false) => self.bad += 1,
            None => {}
        }
    }

    /// The result of the epoch, if `enough` answers have come, evaluated before the next one is recorded.
    /// With `is_new`, the limit was never measured before. Then errors count even if the limit was not
    /// reached: they may be so fast that it cannot be.
    pub(super) fn end(&self, enough: u32, is_new: bool, now_ns: u64) -> Option<EpochEnd> {
        if self.ended_ns == now_ns {
            return None;
        }
        let seconds = now_ns.saturating_sub(self.since_ns) as f64 / 1e9;
        if self.settling > 0 || seconds < LEAST_S || self.good.saturating_add(self.bad) < enough {
            return None;
        }
        let is_failing = self.bad > self.good;
        if self.full_s < FULL * seconds {
            return Some(if is_new && is_failing { EpochEnd::Failing } else { EpochEnd::Unbound });
        }
        if is_failing || self.took_s <= 0.0 {
            return Some(EpochEnd::Failing);
        }
        let (good, under_way) = (f64::from(self.good), self.area_s / seconds);
        let mean = self.took_s / good;
        Some(EpochEnd::Measured(EpochMeasures {
            under_way,
            // by Little's law, not by counting: where all workers end at the same time, a count is off by as
            // many as there are workers. Failed requests have used time, but are no goodput.
            ln_goodput: (under_way * good / self.all_took_s).ln(),
            answers: self.good,
            spread: (self.squares / good / (mean * mean) - 1.0).max(0.0),
        }))
    }
}
