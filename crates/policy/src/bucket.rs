//! A token bucket in one word: the generic cell rate algorithm (ITU-T I.371, Annex A).
//!
//! The word holds the *theoretical arrival time* of the next event, in nanoseconds of a clock that
//! never goes back. An event at `t` conforms if the word is at most `t + (burst − 1)·interval`; the
//! word then becomes `max(word, t) + interval`. A word of 0 is a full bucket, and a full bucket needs
//! no upkeep, so nothing has to run while no request comes.
//!
//! This guarantees that of the admitted events at most `burst + floor(d / interval)` begin within any time
//! `d`. For callers on several threads it holds by the times they state, in whatever order; a caller whose
//! clock lags does not get more events admitted.
//!
//! An event that comes too early can *reserve* its turn: the word moves on as if the event had conformed, and
//! the caller learns how long to wait. So waiting requests need neither a list nor a thread that looks after
//! it. A turn that is given up is free again as long as it is the last one reserved. Otherwise the turns
//! after it have been announced already, and a newcomer in the free one would begin together with the last.

use crate::rule::{Limit, Over};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The terms of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketTerms {
    /// The average time between two events, at least 1 ns.
    pub interval_ns: u64,
    /// How much too early an event may come: `(burst − 1)·interval`.
    pub tolerance_ns: u64,
    /// How long an event may wait for its turn; 0 if it may not wait.
    pub most_wait_ns: u64,
}

impl BucketTerms {
    /// `burst` events at once, then one in each interval. 0 counts as 1.
    pub fn new(interval_ns: u64, burst: u32) -> BucketTerms {
        let interval_ns = interval_ns.max(1);
        let tolerance_ns = interval_ns.saturating_mul(u64::from(burst.max(1)) - 1);
        BucketTerms { interval_ns, tolerance_ns, most_wait_ns: 0 }
    }

    /// The terms of a limit. Where at most `most` requests wait at once, the last of them waits `most`
    /// intervals, so the number is limited by limiting the time.
    pub fn of(limit: &Limit) -> BucketTerms {
        BucketTerms::of_interval(limit, limit.rate.interval_ns())
    }

    /// The same terms at another rate.
    pub(crate) fn of_interval(limit: &Limit, interval_ns: u64) -> BucketTerms {
        let terms = BucketTerms::new(interval_ns, limit.burst);
        let most_wait_ns = match limit.over {
            Over::Queue { deadline_ms, most } => {
                let deadline_ns = u64::from(deadline_ms) * 1_000_000;
                deadline_ns.min(terms.interval_ns.saturating_mul(u64::from(most)))
            }
            Over::Reject { .. } | Over::Reset | Over::Drop => 0,
        };
        BucketTerms { most_wait_ns, ..terms }
    }

    /// How far ahead of the time the word can be.
    pub(crate) fn most_ahead_ns(&self) -> u64 {
        self.tolerance_ns.saturating_add(self.interval_ns).saturating_add(self.most_wait_ns)
    }
}

/// Charges an event at `now_ns`; returns how long it must wait. The call takes no lock.
///
/// # Errors
/// The event is not admitted; the error is the time after which it would be, in nanoseconds. Nothing was
/// charged.
#[inline]
pub fn charge(word: &AtomicU64, now_ns: u64, terms: &BucketTerms) -> Result<u64, u64> {
    let mut arrival = word.load(Relaxed);
    loop {
        let wait_ns = arrival.saturating_sub(terms.tolerance_ns).saturating_sub(now_ns);
        if wait_ns > terms.most_wait_ns {
            return Err(wait_ns - terms.most_wait_ns);
        }
        let next = arrival.max(now_ns).saturating_add(terms.interval_ns);
        match word.compare_exchange_weak(arrival, next, Relaxed, Relaxed) {
            Ok(_) => return Ok(wait_ns),
            Err(other) => arrival = other,
        }
    }
}

/// Takes back what [`charge`] has done, because the event does not happen for another reason. Exact if less
/// than an interval has passed since. Later, the bucket might get back what it had regained by itself, and
/// admit one event too many. Without a refund, a client whose request had to wait before it was refused would
/// be refused once more for something it did not get, which is worse.
#[inline]
pub fn refund(word: &AtomicU64, terms: &BucketTerms) {
    let give_back = |arrival: u64| Some(arrival.saturating_sub(terms.interval_ns));
    let _ = word.fetch_update(Relaxed, Relaxed, give_back);
}

/// Gives up a turn that [`charge`] has reserved, at `turn_ns`: the stated time plus the wait. If no later
/// turn is reserved, all is as if the event had never come, however late the call is; otherwise nothing
/// changes.
pub fn give_up(word: &AtomicU64, turn_ns: u64, terms: &BucketTerms) {
    let before = turn_ns.saturating_add(terms.tolerance_ns);
    let reserved = before.saturating_add(terms.interval_ns);
    let _ = word.compare_exchange(reserved, before, Relaxed, Relaxed);
}

/// How many events would be admitted at once, without waiting.
pub fn available(word: &AtomicU64, now_ns: u64, terms: &BucketTerms) -> u32 {
    let used_ns = word.load(Relaxed).saturating_sub(now_ns);
    let free_ns = (terms.tolerance_ns.saturating_add(terms.interval_ns)).saturating_sub(used_ns);
    u32::try_from(free_ns / terms.interval_ns).unwrap_or(u32::MAX)
}

/// Lowers a word that was charged under other terms to the most that these terms can charge, so that no
/// request waits longer than they allow.
pub(crate) fn fit(word: u64, now_ns: u64, terms: &BucketTerms) -> u64 {
    word.min(now_ns.saturating_add(terms.most_ahead_ns()))
}

/// Converts a word charged at one interval to another: the same part of the burst stays used.
pub(crate) fn rescale(word: u64, now_ns: u64, before_ns: u64, interval_ns: u64) -> u64 {
    let used_ns = u128::from(word.saturating_sub(now_ns));
    let used_ns = used_ns * u128::from(interval_ns) / u128::from(before_ns.max(1));
    now_ns.saturating_add(u64::try_from(used_ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;
    use proptest::prelude::*;
    use std::sync::Mutex;

    /// No window holds more than `burst + d / interval`.
    fn assert_bound(mut begun: Vec<u64>, interval_ns: u64, burst: u32) {
        begun.sort_unstable();
        // the shortest window around n events lies between the first and the last; a running maximum finds
        // the worst of all windows in one pass
        let mut most: i128 = i128::MIN;
        for (number, at) in begun.iter().enumerate() {
            let place = number as i128 * i128::from(interval_ns) - i128::from(*at);
            most = most.max(-place);
            let excess = place + most + i128::from(interval_ns);
            assert!(excess <= i128::from(burst) * i128::from(interval_ns), "{number} at {at}");
        }
    }

    #[test]
    fn the_bound_is_checked() {
        assert_bound(vec![0, 0, 10, 20, 20], 10, 3);
        let too_many = || assert_bound(vec![0, 0, 10, 10, 10], 10, 3);
        assert!(std::panic::catch_unwind(too_many).is_err());
    }

    #[test]
    fn a_burst_then_the_rate() {
        let (word, terms) = (AtomicU64::new(0), BucketTerms::new(100, 3));
        let now = 1_000_000;
        assert_eq!(available(&word, now, &terms), 3);
        assert_eq!([(); 3].map(|()| charge(&word, now, &terms)), [Ok(0); 3]);
        assert_eq!(available(&word, now, &terms), 0);
        assert_eq!(charge(&word, now, &terms), Err(100));
        assert_eq!(charge(&word, now + 40, &terms), Err(60));
        assert_eq!(charge(&word, now + 100, &terms), Ok(0));
        assert_eq!(charge(&word, now + 100, &terms), Err(100));
        refund(&word, &terms);
        assert_eq!(charge(&word, now + 100, &terms), Ok(0));
        // full again, and no fuller than the burst
        assert_eq!(available(&word, now + 10_000, &terms), 3);
    }

    #[test]
    fn who_queues_is_told_when_it_is_his_turn() {
        let over = Over::Queue { deadline_ms: 35, most: 100 };
        let limit = Limit { over, ..Limit::new(Rate::per_second(100), 1) };
        let (word, terms) = (AtomicU64::new(0), BucketTerms::of(&limit));
        const MS: u64 = 1_000_000;
        let now = 1000 * MS;
        let waits = [(); 5].map(|()| charge(&word, now, &terms));
        assert_eq!(waits, [Ok(0), Ok(10 * MS), Ok(20 * MS), Ok(30 * MS), Err(5 * MS)]);
        assert_eq!(charge(&word, now + 5 * MS, &terms), Ok(35 * MS));
        // two places
        let over = Over::Queue { deadline_ms: 35, most: 2 };
        let terms = BucketTerms::of(&Limit { over, ..limit });
        let word = AtomicU64::new(0);
        let waits = [(); 4].map(|()| charge(&word, now, &terms));
        assert_eq!(waits, [Ok(0), Ok(10 * MS), Ok(20 * MS), Err(10 * MS)]);
    }

    #[test]
    fn the_last_turn_that_is_given_up_is_the_next_ones() {
        let terms = BucketTerms { most_wait_ns: 30, ..BucketTerms::new(10, 2) };
        let (word, now) = (AtomicU64::new(0), 1_000_000);
        let waits = [(); 6].map(|()| charge(&word, now, &terms));
        assert_eq!(waits, [Ok(0), Ok(0), Ok(10), Ok(20), Ok(30), Err(10)]);
        // the turns after this one have been announced: nothing changes
        give_up(&word, now + 10, &terms);
        assert_eq!(charge(&word, now, &terms), Err(10));
        give_up(&word, now + 30, &terms);
        give_up(&word, now + 20, &terms);
        // a turn is given up only once
        give_up(&word, now + 20, &terms);
        let waits = [(); 3].map(|()| charge(&word, now, &terms));
        assert_eq!(waits, [Ok(20), Ok(30), Err(10)]);
        // its time has come, and no request has come since
        give_up(&word, now + 30, &terms);
        assert_eq!(charge(&word, now + 30, &terms), Ok(0));
    }

    proptest! {
        #[test]
        fn the_same_as_counting_tokens(
            interval in 1u64..50, burst in 1u32..8, steps in prop::collection::vec(0u64..80, 0..80),
        ) {
            let (word, terms) = (AtomicU64::new(0), BucketTerms::new(interval, burst));
            // the model counts in parts of a token, so that nothing is rounded
            let (mut tokens, mut now) = (u64::from(burst) * interval, 1_000_000);
            for step in steps {
                now += step;
                tokens = (tokens + step).min(u64::from(burst) * interval);
                prop_assert_eq!(u64::from(available(&word, now, &terms)), tokens / interval);
                let expected = tokens >= interval;
                prop_assert_eq!(charge(&word, now, &terms).is_ok(), expected);
                if expected {
                    tokens -= interval;
                }
            }
        }

        #[test]
        fn never_more_than_burst_and_rate(
            interval in 1u64..50,
            burst in 1u32..8,
            most_wait_ns in 0u64..200,
            events in prop::collection::vec((0u64..60, any::<bool>()), 0..80),
        ) {
            let word = AtomicU64::new(0);
            let terms = BucketTerms { most_wait_ns, ..BucketTerms::new(interval, burst) };
            let (mut now, mut begun) = (1_000_000, Vec::new());
            for (step, is_refunded) in events {
                now += step;
                match charge(&word, now, &terms) {
                    Ok(_) if is_refunded => refund(&word, &terms),
                    Ok(wait_ns) => {
                        prop_assert!(wait_ns <= most_wait_ns);
                        begun.push(now + wait_ns);
                    }
                    Err(retry_ns) => {
                        // the announced time is exact: the event is admitted then, and not a nanosecond
                        // earlier
                        let copy = AtomicU64::new(word.load(Relaxed));
                        prop_assert!(charge(&copy, now + retry_ns - 1, &terms).is_err());
                        prop_assert!(charge(&copy, now + retry_ns, &terms).is_ok());
                    }
                }
            }
            assert_bound(begun, interval, burst);
        }

        #[test]
        fn turns_that_are_given_up_make_no_more_of_them(
            interval in 1u64..50,
            burst in 1u32..8,
            most_wait_ns in 0u64..400,
            events in prop::collection::vec((0u64..40, 0usize..8), 0..80),
        ) {
            let word = AtomicU64::new(0);
            let terms = BucketTerms { most_wait_ns, ..BucketTerms::new(interval, burst) };
            let (mut now, mut turns): (u64, Vec<u64>) = (1_000_000, Vec::new());
            for (step, leaves) in events {
                now += step;
                // the last ones leave, some others, or none
                let place = turns.len().checked_sub(leaves);
                match place.filter(|place| turns.get(*place).is_some_and(|turn| *turn > now)) {
                    Some(place) => give_up(&word, turns.remove(place), &terms),
                    None => turns.extend(charge(&word, now, &terms).map(|wait_ns| now + wait_ns)),
                }
            }
            assert_bound(turns, interval, burst);
        }

        #[test]
        fn a_word_of_other_terms_is_made_to_fit(
            old in 1u64..1_000_000, interval in 1u64..1000, burst in 1u32..8,
        ) {
            let (old, terms) = (BucketTerms::new(old, 3), BucketTerms::new(interval, burst));
            let (word, now) = (AtomicU64::new(0), 1_000_000);
            while charge(&word, now, &old).is_ok() {}
            word.store(fit(word.load(Relaxed), now, &terms), Relaxed);
            prop_assert!(charge(&word, now + interval, &terms).is_ok());
        }
    }

    #[test]
    fn threads_that_charge_at_once_get_no_more() {
        let terms = BucketTerms { most_wait_ns: 300, ..BucketTerms::new(50, 7) };
        let (word, clock) = (AtomicU64::new(0), AtomicU64::new(1_000_000));
        let begun = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (word, clock, begun) = (&word, &clock, &begun);
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    for step in 0..20_000 {
                        // each thread's clock lags behind the others' by a little
                        let now = clock.fetch_add(step % 17, Relaxed) - thread * 10;
                        if let Ok(wait_ns) = charge(word, now, &terms) {
                            mine.push(now + wait_ns);
                        }
                    }
                    begun.lock().unwrap().extend(mine);
                });
            }
        });
        let begun = begun.into_inner().unwrap();
        let end = clock.load(Relaxed);
        // and callers got all that the rate allows
        let least = (end - 1_000_000) / 50;
        assert!(begun.len() as u64 >= least, "{} of {least}", begun.len());
        assert_bound(begun, 50, 7);
    }
}
