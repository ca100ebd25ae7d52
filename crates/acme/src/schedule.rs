//! When a certificate is replaced, and when a failed one is tried again. All times are seconds since 1970.

use std::ops::Range;
use std::time::Duration;

/// The wait after the first failure. Authorities allow five failures per hour for a name; with this wait,
/// doubled each time, there are no more.
const FIRST_PAUSE_S: u64 = 120;

/// The longest wait after a failure.
const LONGEST_PAUSE_S: u64 = 12 * 3600;

/// The shortest wait after the authority has limited the rate without saying for how long.
const LIMITED_PAUSE_S: u64 = 3600;

/// The shortest and the longest time between two requests for the authority's suggestion.
const ASK_S: Range<u64> = 60..24 * 3600;

/// The validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The beginning of the validity.
    pub not_before_s: i64,
    /// The end of the validity.
    pub not_after_s: i64,
}

impl Validity {
    /// When the certificate is replaced if the authority suggests nothing: with a third of its time left.
    pub fn renewal_s(self) -> i64 {
        let lifetime_s = (self.not_after_s - self.not_before_s).max(0);
        self.not_after_s - lifetime_s / 3
    }
}

/// The moment at the part `at`, 0 to 1, of the window that the authority suggests (RFC 9773 §4.2). If the
/// certificate has expired by then, [`Validity::renewal_s`] instead.
pub fn suggested_s(window_s: Range<i64>, at: f64, validity: Validity) -> i64 {
    let span_s = (window_s.end - window_s.start).max(0) as f64;
    let moment_s = window_s.start + (span_s * at.clamp(0.0, 1.0)) as i64;
    if moment_s < validity.not_after_s { moment_s } else { validity.renewal_s() }
}

/// How long the authority's suggestion is used.
pub fn ask_again(said: Duration) -> Duration {
    Duration::from_secs(said.as_secs().clamp(ASK_S.start, ASK_S.end))
}

/// The wait after this many failures in a row. `jitter`, 0 to 1, adds up to a quarter.
pub fn pause(failures: u32, jitter: f64) -> Duration {
    let doubled = FIRST_PAUSE_S.checked_shl(failures.saturating_sub(1).min(32)).unwrap_or(u64::MAX);
    let pause_s = doubled.min(LONGEST_PAUSE_S) as f64;
    Duration::from_secs_f64(pause_s * (1.0 + jitter.clamp(0.0, 1.0) / 4.0))
}

/// The wait if the authority has limited the rate: as long as it has said, or an hour, but not less than
/// [`pause`].
pub fn limited_pause(failures: u32, jitter: f64, said: Option<Duration>) -> Duration {
    said.unwrap_or(Duration::from_secs(LIMITED_PAUSE_S)).max(pause(failures, jitter))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600;

    #[test]
    fn a_third_of_the_time_is_left() {
        let of = |days| Validity { not_before_s: 0, not_after_s: days * DAY }.renewal_s();
        assert_eq!((of(90), of(6), of(0)), (60 * DAY, 4 * DAY, 0));
        assert_eq!(Validity { not_before_s: 5, not_after_s: 1 }.renewal_s(), 1);
    }

    #[test]
    fn the_authority_suggests_a_window() {
        let validity = Validity { not_before_s: 0, not_after_s: 90 * DAY };
        let at = |window, at| suggested_s(window, at, validity);
        assert_eq!(at(10..20, 0.5), 15);
        assert_eq!((at(10..20, -1.0), at(10..20, 2.0)), (10, 20));
        assert_eq!(at(Range { start: 20, end: 10 }, 0.5), 20);
        assert_eq!(at(90 * DAY..95 * DAY, 0.5), 60 * DAY);
        let again = |s| ask_again(Duration::from_secs(s)).as_secs();
        assert_eq!((again(0), again(6 * 3600), again(u64::MAX)), (60, 6 * 3600, 24 * 3600));
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let pauses = |failures| (pause(failures, 0.0).as_secs(), pause(failures, 1.0).as_secs());
        assert_eq!(pauses(1), (120, 150));
        assert_eq!(pauses(4), (960, 1200));
        for failures in [10, 100, u32::MAX] {
            assert_eq!(pauses(failures), (LONGEST_PAUSE_S, LONGEST_PAUSE_S * 5 / 4));
        }
        let limited = |failures, said: Option<u64>| {
            limited_pause(failures, 0.0, said.map(Duration::from_secs)).as_secs()
        };
        assert_eq!(
            (limited(1, None), limited(1, Some(7200)), limited(1, Some(1))),
            (3600, 7200, 120)
        );
    }
}
