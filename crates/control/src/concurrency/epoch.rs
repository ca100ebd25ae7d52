//! What is measured between two changes of a limit.

/// Requests that have ended while as many were under way as may be, and for how long that was so.
#[derive(Clone, Debug, Default)]
pub(super) struct Epoch {
    /// Ends that are waited for before anything counts: by then those are over that began under another limit.
    settling: u32,
    /// When it began to count.
    since_ns: u64,
    /// When the last request has ended.
    ended_ns: u64,
    good: u32,
    bad: u32,
    /// How long those took that were answered well, and the squares of that.
    took_s: f64,
    squares: f64,
    /// How long all took.
    all_took_s: f64,
    /// Requests under way, over time.
    area_s: f64,
    /// How long as many were under way as may be.
    full_s: f64,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct EpochMeasures {
    /// Requests under way, on average.
    pub(super) under_way: f64,
    /// The logarithm of good answers in each second.
    pub(super) ln_goodput: f64,
    /// How many good answers there were.
    pub(super) answers: u32,
    /// How much requests differ: the variance of what they took, in squares of its mean.
    pub(super) spread: f64,
}

/// How an epoch has ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum EpochEnd {
    /// Enough was measured.
    Measured(EpochMeasures),
    /// The limit was not what bound.
    Unbound,
    /// Too much failed.
    Failing,
}

/// Epochs are at least so long.
const LEAST_S: f64 = 0.1;
/// As many were under way as may be for so much of the time, or the limit was not what bound.
const FULL: f64 = 0.9;

impl Epoch {
    /// Begins under a limit of so many.
    pub(super) fn new(limit: u32, now_ns: u64) -> Epoch {
        Epoch { settling: limit, since_ns: now_ns, ..Epoch::default() }
    }

    /// For so long as many were under way; if that `is_full`, as many as may be.
    pub(super) fn passed(&mut self, under_way: u32, is_full: bool, seconds: f64) {
        if self.settling > 0 {
            return;
        }
        self.area_s += f64::from(under_way) * seconds;
        self.full_s += if is_full { seconds } else { 0.0 };
    }

    /// A request has ended that took so long; `is_good` says whether well, `None` that nothing is known.
    pub(super) fn ended(&mut self, took_s: f64, is_good: Option<bool>, now_ns: u64) {
        // those that end at the same time belong together: where all workers end at once, a part of them is no average
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

    /// How it has ended, if so many answers are enough, before something ends now. `is_new` says that as many as may be
    /// under way were never measured: then errors count first, which may be so fast that they keep the limit from being
    /// what binds.
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
            // by Little's law, and not by counting: where all workers end at the same time, a count is off by as many
            // as there are workers. What failed has used time, and is no goodput
            ln_goodput: (under_way * good / self.all_took_s).ln(),
            answers: self.good,
            spread: (self.squares / good / (mean * mean) - 1.0).max(0.0),
        }))
    }
}
