//! Whether an upstream gets requests: what requests show of its health, and what health checks find.
//!
//! ```text
//!            max_fails in a row                  the time is over
//!     Well ─────────────────────► Out (a time) ─────────────────► one request is let through
//!      ▲                            ▲                                │           │
//!      │                            └───── it fails: twice the time ─┘           │
//!      └───────────────────────────────────────────────────────── it succeeds ───┘
//! ```
//!
//! The head of an answer brings an upstream back, since the rest may take for ever. Only the end of a
//! whole answer clears the count of failures in a row, because some upstreams break off what they have
//! begun. An answer that began before its upstream failed brings nothing back when it ends.
//!
//! Time is in milliseconds of any clock that never goes back.

use crate::group::balance::WHOLE;
use crate::settings::HealthCheckSettings;
use std::time::Duration;

/// The longest time out, as a multiple of the first one.
const MOST_TIMES: u64 = 32;

/// How many checks in a row must fail to put an upstream out (`FALL`), and succeed to bring it back
/// (`RISE`).
const FALL: u32 = 3;
const RISE: u32 = 2;

/// The least share of an upstream that starts slowly. It needs requests to show that it is well.
const LEAST_SHARE: u64 = 20;

/// What a request has shown of its upstream's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthSign {
    /// The upstream has answered.
    Well,
    /// The upstream could not be reached, was silent, or could not be understood.
    Failed,
    /// The request shows nothing: its client left before, or it was never sent.
    Nothing,
    /// The head of the answer is there. The rest may take for ever.
    Head,
    /// The answer has ended whole; its head was reported before.
    Whole,
}

/// The health of one upstream.
#[derive(Clone, Debug)]
pub struct Health {
    max_fails: u32,
    fail_ms: u64,
    slow_start_ms: u64,
    state: HealthState,
    /// When the upstream last came back; `None` if it always was well.
    back_ms: Option<u64>,
    /// When the upstream was last put out, for reports.
    since_ms: u64,
    is_draining: bool,
    checks: Option<CheckState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HealthState {
    /// In use, with this number of failures in a row.
    Well(u32),
    /// Out until then; `time_ms` is the length of that time.
    Out { until_ms: u64, time_ms: u64 },
    /// Out, while one request tries the upstream.
    Trial { time_ms: u64 },
}

/// What health checks have found.
#[derive(Clone, Debug)]
struct CheckState {
    interval_ms: u64,
    next_ms: u64,
    is_under_way: bool,
    is_well: bool,
    /// The number of checks in a row that contradict `is_well`.
    against: u32,
}

/// The health of an upstream, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthGrade {
    /// The upstream answers, as far as is known.
    Well,
    /// Requests have failed; now and then one may try the upstream.
    Out,
    /// The upstream's checks fail.
    Unwell,
    /// An operator has taken the upstream out.
    Draining,
}

/// The condition of an upstream, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamCondition {
    /// The upstream gets requests.
    Well,
    /// The upstream is well, and gets requests once none of the others is.
    Backup,
    /// The upstream gets no requests, because some have failed.
    Out {
        /// When it was put out.
        since_ms: u64,
    },
    /// The upstream's checks fail.
    Unwell {
        /// Since when they fail.
        since_ms: u64,
    },
    /// The upstream has failed, or its checks fail, and it gets requests all the same: none is well.
    Failing {
        /// When it was put out.
        since_ms: u64,
    },
    /// An operator has taken the upstream out; requests under way finish.
    Draining,
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Health {
    /// Forgets all that is known: there is another server in this place.
    pub(super) fn renew(&mut self, now_ms: u64) {
        (self.state, self.back_ms, self.is_draining) = (HealthState::Well(0), None, false);
        if let Some(checks) = &mut self.checks {
            (checks.next_ms, checks.is_well, checks.against) = (now_ms, true, 0);
        }
    }

    /// The health of an upstream that is well as far as is known. Health checks, if there are any,
    /// begin at `now_ms`.
    pub fn new(
        max_fails: u32,
        fail_time: Duration,
        slow_start: Duration,
        check: Option<&HealthCheckSettings>,
        now_ms: u64,
    ) -> Health {
        let checks = check.map(|check| CheckState {
            interval_ms: milliseconds(check.interval).max(1),
            next_ms: now_ms,
            is_under_way: false,
            is_well: true,
            against: 0,
        });
        Health {
            max_fails,
            fail_ms: milliseconds(fail_time).max(1),
            slow_start_ms: milliseconds(slow_start),
            state: HealthState::Well(0),
            back_ms: None,
            since_ms: now_ms,
            is_draining: false,
            checks,
        }
    }

    /// Takes over other settings; what is known of the upstream stays, as far as it still counts.
    pub fn set(
        &mut self,
        max_fails: u32,
        fail_time: Duration,
        slow_start: Duration,
        check: Option<&HealthCheckSettings>,
        now_ms: u64,
    ) {
        let next = Health::new(max_fails, fail_time, slow_start, check, now_ms);
        let known = std::mem::replace(self, next);
        if max_fails > 0 {
            self.state = known.state;
        }
        if let (Some(checks), Some(known)) = (&mut self.checks, known.checks) {
            let next_ms = known.next_ms.min(now_ms.saturating_add(checks.interval_ms));
            *checks = CheckState { interval_ms: checks.interval_ms, next_ms, ..known };
        }
        (self.back_ms, self.since_ms) = (known.back_ms, known.since_ms);
        self.is_draining = known.is_draining;
    }

    /// The upstream's share now, in parts of [`WHOLE`]; 0 if it gets no requests.
    pub fn share(&self, now_ms: u64) -> u16 {
        let is_well = self.checks.as_ref().is_none_or(|checks| checks.is_well);
        if self.is_draining || !is_well {
            return 0;
        }
        match self.state {
            HealthState::Well(_) => self.slow_share(now_ms),
            HealthState::Out { until_ms, .. } if now_ms >= until_ms => WHOLE,
            HealthState::Out { .. } | HealthState::Trial { .. } => 0,
        }
    }

    fn slow_share(&self, now_ms: u64) -> u16 {
        let well_ms = self.back_ms.map_or(u64::MAX, |back_ms| now_ms.saturating_sub(back_ms));
        if well_ms >= self.slow_start_ms {
            return WHOLE;
        }
        let part = u128::from(well_ms) * u128::from(WHOLE) / u128::from(self.slow_start_ms);
        // the division yields less than `WHOLE`, so the cast loses nothing
        (part as u16).max(LEAST_SHARE as u16)
    }

    /// The health of the upstream as a grade.
    pub fn grade(&self) -> HealthGrade {
        match self.condition() {
            UpstreamCondition::Well | UpstreamCondition::Backup => HealthGrade::Well,
            UpstreamCondition::Out { .. } | UpstreamCondition::Failing { .. } => HealthGrade::Out,
            UpstreamCondition::Unwell { .. } => HealthGrade::Unwell,
            UpstreamCondition::Draining => HealthGrade::Draining,
        }
    }

    /// Notes that a request goes to the upstream.
    pub fn begin(&mut self, now_ms: u64) {
        if let HealthState::Out { until_ms, time_ms } = self.state
            && now_ms >= until_ms
        {
            self.state = HealthState::Trial { time_ms };
        }
    }

    /// Takes what a request has shown of the upstream, when that became known or when the request
    /// ended.
    pub fn told(&mut self, told: HealthSign, now_ms: u64) {
        self.state = match (told, self.state) {
            (_, state) if self.max_fails == 0 => state,
            (HealthSign::Well, HealthState::Well(_)) => HealthState::Well(0),
            (HealthSign::Well, _) => {
                self.back_ms = Some(now_ms);
                HealthState::Well(0)
            }
            (HealthSign::Failed, HealthState::Well(fails)) if fails + 1 < self.max_fails => {
                HealthState::Well(fails + 1)
            }
            (HealthSign::Failed, HealthState::Well(_)) => {
                self.since_ms = now_ms;
                let time_ms = self.fail_ms;
                HealthState::Out { until_ms: now_ms.saturating_add(time_ms), time_ms }
            }
            (HealthSign::Failed, HealthState::Trial { time_ms }) => {
                let most_ms = self.fail_ms.saturating_mul(MOST_TIMES);
                let time_ms = time_ms.saturating_mul(2).min(most_ms);
                HealthState::Out { until_ms: now_ms.saturating_add(time_ms), time_ms }
            }
            // requests that were under way when the upstream was put out show nothing new
            (HealthSign::Failed, out) => out,
            // the trial showed nothing: another request may be the trial at once
            (HealthSign::Nothing, HealthState::Trial { time_ms }) => {
                HealthState::Out { until_ms: now_ms, time_ms }
            }
            (HealthSign::Head, HealthState::Out { .. } | HealthState::Trial { .. }) => {
                self.back_ms = Some(now_ms);
                // only a whole answer clears the failures; one more failure puts the upstream out
                // again
                HealthState::Well(self.max_fails - 1)
            }
            (HealthSign::Whole, HealthState::Well(_)) => HealthState::Well(0),
            (HealthSign::Nothing | HealthSign::Head | HealthSign::Whole, state) => state,
        };
    }

    /// Takes the upstream out, or back in.
    pub fn drain(&mut self, is_draining: bool, now_ms: u64) {
        if self.is_draining && !is_draining {
            self.back_ms = Some(now_ms);
        }
        self.is_draining = is_draining;
    }

    /// When the next check is due; `None` without checks, or while one is under way.
    pub fn next_check_ms(&self) -> Option<u64> {
        self.checks.as_ref().filter(|checks| !checks.is_under_way).map(|checks| checks.next_ms)
    }

    /// Whether a check is due now; then its result must be passed to [`checked`](Health::checked).
    pub fn begin_check(&mut self, now_ms: u64) -> bool {
        let Some(checks) = &mut self.checks else { return false };
        let is_due = !checks.is_under_way && now_ms >= checks.next_ms;
        if is_due {
            checks.is_under_way = true;
            // intervals run from the start of one check to that of the next; a missed check is not
            // made up for
            checks.next_ms = now_ms.saturating_add(checks.interval_ms);
        }
        is_due
    }

    /// Takes the result of a check. A check without an answer in the interval has failed.
    pub fn checked(&mut self, is_good: bool, now_ms: u64) {
        let Some(checks) = &mut self.checks else { return };
        checks.is_under_way = false;
        if is_good == checks.is_well {
            checks.against = 0;
            return;
        }
        checks.against += 1;
        if checks.against < if checks.is_well { FALL } else { RISE } {
            return;
        }
        checks.against = 0;
        checks.is_well = is_good;
        if is_good {
            self.back_ms = Some(now_ms);
            self.state = HealthState::Well(0);
        } else {
            self.since_ms = now_ms;
        }
    }

    /// The condition of this upstream alone, without regard to the others of its group.
    pub fn condition(&self) -> UpstreamCondition {
        let since_ms = self.since_ms;
        match self.state {
            _ if self.is_draining => UpstreamCondition::Draining,
            _ if self.checks.as_ref().is_some_and(|checks| !checks.is_well) => {
                UpstreamCondition::Unwell { since_ms }
            }
            HealthState::Well(_) => UpstreamCondition::Well,
            HealthState::Out { .. } | HealthState::Trial { .. } => {
                UpstreamCondition::Out { since_ms }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1000;

    fn health(max_fails: u32, slow_start_s: u64) -> Health {
        let slow_start = Duration::from_secs(slow_start_s);
        Health::new(max_fails, Duration::from_secs(10), slow_start, None, 0)
    }

    #[test]
    fn failures_in_a_row_put_it_out_and_one_request_may_try() {
        let mut one = health(3, 0);
        for told in [
            HealthSign::Failed,
            HealthSign::Failed,
            HealthSign::Well,
            HealthSign::Failed,
            HealthSign::Failed,
        ] {
            one.told(told, 0);
            assert_eq!(one.share(0), WHOLE);
        }
        one.told(HealthSign::Nothing, 0);
        one.told(HealthSign::Failed, S);
        assert_eq!((one.share(S), one.condition()), (0, UpstreamCondition::Out { since_ms: S }));
        // late failures do not prolong the time out
        one.told(HealthSign::Failed, 5 * S);
        assert_eq!(one.share(11 * S - 1), 0);
        assert_eq!(one.share(11 * S), WHOLE);
        one.begin(11 * S);
        assert_eq!(one.share(11 * S), 0, "one is enough");
        one.told(HealthSign::Failed, 12 * S);
        assert_eq!((one.share(31 * S), one.share(32 * S)), (0, WHOLE), "twice as long");
        one.begin(32 * S);
        one.told(HealthSign::Nothing, 33 * S);
        assert_eq!(one.share(33 * S), WHOLE, "its client was gone: another may try");
        one.begin(33 * S);
        one.told(HealthSign::Whole, 33 * S);
        assert_eq!(one.share(33 * S), 0, "an old answer is over, and the trial goes on");
        one.told(HealthSign::Head, 34 * S);
        assert_eq!((one.share(34 * S), one.condition()), (WHOLE, UpstreamCondition::Well));
        let mut never = health(0, 0);
        (0..100).for_each(|_| never.told(HealthSign::Failed, 0));
        assert_eq!(never.share(0), WHOLE);
    }

    #[test]
    fn the_time_out_has_a_bound() {
        let mut one = health(1, 0);
        one.told(HealthSign::Failed, 0);
        let mut now_ms = 0;
        let mut last_ms = 0;
        for _ in 0..20 {
            let begin = now_ms;
            while one.share(now_ms) == 0 {
                now_ms += S;
            }
            last_ms = now_ms - begin;
            one.begin(now_ms);
            one.told(HealthSign::Failed, now_ms);
        }
        assert_eq!(last_ms, 320 * S);
    }

    #[test]
    fn one_that_is_back_starts_slowly() {
        let mut one = health(1, 100);
        assert_eq!(one.share(0), WHOLE, "not when the server starts");
        one.told(HealthSign::Failed, 0);
        one.begin(10 * S);
        one.told(HealthSign::Well, 10 * S);
        let shares: Vec<_> = [10, 15, 60, 109, 110].map(|s| one.share(s * S)).into();
        assert_eq!(shares, [20, 50, 500, 990, WHOLE]);
        one.drain(true, 200 * S);
        assert_eq!((one.share(200 * S), one.condition()), (0, UpstreamCondition::Draining));
        assert_eq!(one.grade(), HealthGrade::Draining);
        one.drain(false, 300 * S);
        assert_eq!(one.share(350 * S), 500);
    }

    #[test]
    fn checks_put_it_out_and_bring_it_back() {
        let check = HealthCheckSettings {
            path: "/".into(),
            interval: Duration::from_secs(5),
            statuses: Vec::new(),
        };
        let mut one =
            Health::new(3, Duration::from_secs(10), Duration::ZERO, Some(&check), 100 * S);
        assert_eq!(one.next_check_ms(), Some(100 * S));
        let mut now_ms = 100 * S;
        let mut ask = |one: &mut Health, is_good: bool| {
            assert!(one.begin_check(now_ms) && !one.begin_check(now_ms));
            assert_eq!(one.next_check_ms(), None);
            now_ms += S;
            one.checked(is_good, now_ms);
            now_ms += 4 * S;
            assert_eq!(one.next_check_ms(), Some(now_ms));
            one.share(now_ms)
        };
        let asked = [false, false, true, false, false, false, true, false, true, true];
        let shares = asked.map(|is_good| ask(&mut one, is_good));
        let w = WHOLE;
        assert_eq!(shares, [w, w, w, w, w, 0, 0, 0, 0, w]);
        assert_eq!(one.condition(), UpstreamCondition::Well);
        let shares = [false; 3].map(|is_good| ask(&mut one, is_good));
        assert_eq!(shares, [w, w, 0]);
        assert!(matches!(one.condition(), UpstreamCondition::Unwell { .. }));
        assert_eq!(one.grade(), HealthGrade::Unwell);
        // successful requests do not bring back an upstream whose checks fail
        one.told(HealthSign::Well, now_ms);
        assert_eq!(one.share(now_ms), 0);
    }

    proptest! {
        /// For all sequences of events: an upstream that is out has at most one request under way as
        /// a trial; and one that only succeeds from some moment on is asked again within the longest
        /// time out.
        #[test]
        fn it_always_comes_back(
            steps in prop::collection::vec((0u64..20_000, 0u8..6), 0..60), max_fails in 1u32..4,
        ) {
            let mut one = health(max_fails, 30);
            let mut now_ms = 0;
            let mut trials = 0i32;
            for (pass_ms, what) in steps {
                now_ms += pass_ms;
                match what {
                    0 if one.share(now_ms) > 0 => {
                        let was_out = matches!(one.state, HealthState::Out { .. });
                        one.begin(now_ms);
                        trials += i32::from(was_out);
                        prop_assert!(trials <= 1);
                    }
                    0 => {}
                    what => {
                        use HealthSign::{Failed, Head, Nothing, Well, Whole};
                        let told = [Well, Failed, Nothing, Head, Whole][usize::from(what) - 1];
                        one.told(told, now_ms);
                        if !matches!(one.state, HealthState::Trial { .. }) {
                            trials = 0;
                        }
                    }
                }
                prop_assert!(one.share(now_ms) <= WHOLE);
            }
            let deadline_ms = now_ms + 10 * S * MOST_TIMES;
            one.told(HealthSign::Nothing, now_ms);
            while one.condition() != UpstreamCondition::Well {
                prop_assert!(now_ms <= deadline_ms);
                if one.share(now_ms) > 0 {
                    one.begin(now_ms);
                    one.told(HealthSign::Well, now_ms);
                }
                now_ms += S;
            }
            prop_assert_eq!(one.share(now_ms + 30 * S), WHOLE);
        }
    }
}
