//! Whether an upstream is asked: what its requests tell of it, and what it says when it is asked whether
//! it is well.
//!
//! ```text
//!            max_fails in a row                  the time is over
//!     Well ─────────────────────► Out (a time) ─────────────────► one request is let through
//!      ▲                            ▲                                │           │
//!      │                            └───── it fails: twice the time ─┘           │
//!      └───────────────────────────────────────────────────────── it succeeds ───┘
//! ```
//!
//! The head of an answer brings an upstream back: the rest may take for ever. Failures in a row are counted to the
//! end of a whole answer, for there are upstreams that break off what they have begun; and an answer that began before
//! its upstream failed brings nothing back when it ends.
//!
//! Time is in milliseconds of any clock that never goes back.

use crate::group::balance::WHOLE;
use crate::settings::HealthCheckSettings;
use std::time::Duration;

/// The time out grows to so many times the first one.
const MOST_TIMES: u64 = 32;

/// Checks that fail in a row put an upstream out, and so many that succeed bring it back.
const FALL: u32 = 3;
const RISE: u32 = 2;

/// The least share of one that starts slowly: it must be asked to show that it is well.
const LEAST_SHARE: u64 = 20;

/// What a request has told of its upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthSign {
    /// It has answered.
    Well,
    /// It could not be reached, was silent, or could not be understood.
    Failed,
    /// Nothing: the client was gone before, or the request was never sent.
    Nothing,
    /// The head of its answer is there: the rest may take for ever.
    Head,
    /// Its answer, of which the head was told, has ended whole.
    Whole,
}

/// The health of one upstream.
#[derive(Clone, Debug)]
pub struct Health {
    max_fails: u32,
    fail_ms: u64,
    slow_start_ms: u64,
    state: HealthState,
    /// Since when it has been well, if it was not before.
    back_ms: Option<u64>,
    /// Since when it is not asked, for reports.
    since_ms: u64,
    is_draining: bool,
    checks: Option<CheckState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HealthState {
    /// With so many failures in a row.
    Well(u32),
    /// Nothing is asked until then, which is so long after it failed.
    Out { until_ms: u64, time_ms: u64 },
    /// One request is let through.
    Trial { time_ms: u64 },
}

/// What is known by asking.
#[derive(Clone, Debug)]
struct CheckState {
    interval_ms: u64,
    next_ms: u64,
    is_under_way: bool,
    is_well: bool,
    /// How many in a row have said the opposite.
    against: u32,
}

/// How an upstream stands, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthGrade {
    /// As far as is known, it answers.
    Well,
    /// It has failed, and a request may try it now and then.
    Out,
    /// Its checks fail.
    Unwell,
    /// An operator has taken it out.
    Draining,
}

/// What is to be told of an upstream that is not asked, or in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamCondition {
    /// It is asked.
    Well,
    /// It is well, and asked once none of the others is.
    Backup,
    /// It has failed; the number says since when.
    Out {
        /// Since when.
        since_ms: u64,
    },
    /// Its checks fail.
    Unwell {
        /// Since when.
        since_ms: u64,
    },
    /// It has failed, or its checks do, and it is asked all the same: none is well.
    Failing {
        /// Since when.
        since_ms: u64,
    },
    /// An operator wants it to come to an end.
    Draining,
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Health {
    /// It is another upstream from now on, of which nothing is known.
    pub(super) fn renew(&mut self, now_ms: u64) {
        (self.state, self.back_ms, self.is_draining) = (HealthState::Well(0), None, false);
        if let Some(checks) = &mut self.checks {
            (checks.next_ms, checks.is_well, checks.against) = (now_ms, true, 0);
        }
    }

    /// An upstream that is well as far as is known. If it is checked, then from `now_ms` on.
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

    /// Goes by other settings from now on; what is known of it stays, as far as it still counts.
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

    /// Its share now, of [`WHOLE`]; 0 if nothing is to be asked.
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
        // the part is less than the whole
        (part as u16).max(LEAST_SHARE as u16)
    }

    /// How it stands.
    pub fn grade(&self) -> HealthGrade {
        match self.condition() {
            UpstreamCondition::Well | UpstreamCondition::Backup => HealthGrade::Well,
            UpstreamCondition::Out { .. } | UpstreamCondition::Failing { .. } => HealthGrade::Out,
            UpstreamCondition::Unwell { .. } => HealthGrade::Unwell,
            UpstreamCondition::Draining => HealthGrade::Draining,
        }
    }

    /// A request goes to it.
    pub fn begin(&mut self, now_ms: u64) {
        if let HealthState::Out { until_ms, time_ms } = self.state
            && now_ms >= until_ms
        {
            self.state = HealthState::Trial { time_ms };
        }
    }

    /// A request to it has told this, when that became known or when it was over.
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
            // what was under way when it went out says nothing new
            (HealthSign::Failed, out) => out,
            // another may try
            (HealthSign::Nothing, HealthState::Trial { time_ms }) => {
                HealthState::Out { until_ms: now_ms, time_ms }
            }
            (HealthSign::Head, HealthState::Out { .. } | HealthState::Trial { .. }) => {
                self.back_ms = Some(now_ms);
                // one more failure puts it out again
                HealthState::Well(self.max_fails - 1)
            }
            (HealthSign::Whole, HealthState::Well(_)) => HealthState::Well(0),
            (HealthSign::Nothing | HealthSign::Head | HealthSign::Whole, state) => state,
        };
    }

    /// Takes it out, or back in.
    pub fn drain(&mut self, is_draining: bool, now_ms: u64) {
        if self.is_draining && !is_draining {
            self.back_ms = Some(now_ms);
        }
        self.is_draining = is_draining;
    }

    /// When it is to be asked whether it is well; `None` if it is not, or is being asked.
    pub fn next_check_ms(&self) -> Option<u64> {
        self.checks.as_ref().filter(|checks| !checks.is_under_way).map(|checks| checks.next_ms)
    }

    /// Whether it is to be asked now; then the answer must be [told](Health::checked).
    pub fn begin_check(&mut self, now_ms: u64) -> bool {
        let Some(checks) = &mut self.checks else { return false };
        let is_due = !checks.is_under_way && now_ms >= checks.next_ms;
        if is_due {
            checks.is_under_way = true;
            // from the beginning of one to that of the next, and none is made up for
            checks.next_ms = now_ms.saturating_add(checks.interval_ms);
        }
        is_due
    }

    /// What came of asking: no answer in the time between two checks is a failure.
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

    /// What is to be told of it, as far as it alone is concerned.
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
        // late failures do not prolong it
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
        // what requests say does not bring it back
        one.told(HealthSign::Well, now_ms);
        assert_eq!(one.share(now_ms), 0);
    }

    proptest! {
        /// Whatever happens and in whatever order: of one that is out at most one request is under way
        /// as a trial, and one that only succeeds from some moment on is asked again within the longest
        /// time.
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
