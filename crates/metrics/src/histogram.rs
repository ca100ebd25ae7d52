//! Histograms of durations, with the same bounds wherever durations are counted.

use crate::cell::bump;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Upper bounds of the buckets, in µs; one more bucket is for longer durations.
pub const DURATION_BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// The same bounds in nanoseconds.
const BOUNDS_NS: [u64; DURATION_BOUNDS_US.len()] = {
    let mut bounds = DURATION_BOUNDS_US;
    let mut at = 0;
    while at < bounds.len() {
        bounds[at] *= 1000;
        at += 1;
    }
    bounds
};

const BUCKETS: usize = DURATION_BOUNDS_US.len() + 1;

/// A duration and its bucket, which is found once for all rows that count it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucketed {
    ns: u64,
    at: usize,
}

impl Bucketed {
    #[inline]
    pub(crate) fn of(ns: u64) -> Bucketed {
        // most durations are in the first bucket: hits of the cache
        let at = match ns <= BOUNDS_NS[0] {
            true => 0,
            false => BOUNDS_NS.partition_point(|bound_ns| *bound_ns < ns),
        };
        Bucketed { ns, at }
    }
}

/// The durations counted by one writer.
#[derive(Debug)]
pub(crate) struct DurationRow {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for DurationRow {
    fn default() -> DurationRow {
        let buckets = [const { AtomicU64::new(0) }; BUCKETS];
        DurationRow { buckets, sum_ns: AtomicU64::new(0) }
    }
}

impl DurationRow {
    #[inline]
    pub(crate) fn took(&self, Bucketed { ns, at }: Bucketed) {
        bump(&self.buckets[at], 1);
        bump(&self.sum_ns, ns);
    }

    pub(crate) fn add_to(&self, totals: &mut DurationTotals) {
        for (sum, cell) in totals.buckets.iter_mut().zip(&self.buckets) {
            *sum += cell.load(Relaxed);
        }
        totals.sum_ns += self.sum_ns.load(Relaxed);
    }
}

/// Durations counted by several threads.
#[derive(Debug, Default)]
pub struct SharedDurations(DurationRow);

impl SharedDurations {
    /// Counts a duration.
    pub fn took(&self, ns: u64) {
        self.0.buckets[Bucketed::of(ns).at].fetch_add(1, Relaxed);
        self.0.sum_ns.fetch_add(ns, Relaxed);
    }

    /// The durations counted so far.
    pub fn totals(&self) -> DurationTotals {
        let mut totals = DurationTotals::default();
        self.0.add_to(&mut totals);
        totals
    }
}

/// The number of durations in each bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationTotals {
    /// The number of durations up to each bound and above the one before; the last number is for those above
    /// all bounds.
    pub buckets: [u64; BUCKETS],
    /// The sum of the durations, in nanoseconds.
    pub sum_ns: u64,
}

impl DurationTotals {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The durations counted since `base`.
    #[must_use]
    pub fn since(&self, base: &DurationTotals) -> DurationTotals {
        let mut news = *self;
        for (new, old) in news.buckets.iter_mut().zip(base.buckets) {
            *new = new.wrapping_sub(old);
        }
        news.sum_ns = news.sum_ns.wrapping_sub(base.sum_ns);
        news
    }

    /// Adds other durations.
    pub fn add(&mut self, other: &DurationTotals) {
        for (sum, count) in self.buckets.iter_mut().zip(other.buckets) {
            *sum += count;
        }
        self.sum_ns += other.sum_ns;
    }

    /// The bound, in µs, below which this share of the durations lies: 0.99 for the 99th percentile. `None`
    /// if there are none. Durations above all bounds count as the last bound.
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let all = self.count();
        let wanted = (all as f64 * share).ceil().max(1.0) as u64;
        let mut sum = 0;
        let at = self.buckets.iter().position(|count| {
            sum += count;
            sum >= wanted
        })?;
        let last = DURATION_BOUNDS_US.len() - 1;
        (all > 0).then(|| DURATION_BOUNDS_US[at.min(last)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_under_the_next_bound() {
        let (row, shared) = (DurationRow::default(), SharedDurations::default());
        for ns in [0, 100_000, 100_001, 10_000_000_000, 10_000_000_001] {
            row.took(Bucketed::of(ns));
            shared.took(ns);
        }
        let mut totals = DurationTotals::default();
        row.add_to(&mut totals);
        assert_eq!(totals, shared.totals());
        assert_eq!(
            (totals.buckets[..2].to_vec(), totals.buckets[15..].to_vec()),
            (vec![2, 1], vec![1, 1])
        );
        assert_eq!((totals.count(), totals.sum_ns), (5, 20_000_200_002));
        assert_eq!(totals.since(&totals), DurationTotals::default());
    }

    #[test]
    fn a_quantile_is_a_bound() {
        let shared = SharedDurations::default();
        assert_eq!(shared.totals().quantile_us(0.5), None);
        (0..99).for_each(|_| shared.took(1));
        shared.took(u64::MAX / 2);
        let totals = shared.totals();
        assert_eq!(totals.quantile_us(0.5), Some(100));
        assert_eq!(totals.quantile_us(0.99), Some(100));
        assert_eq!(totals.quantile_us(1.0), Some(10_000_000));
    }
}
