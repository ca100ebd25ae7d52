//! Lines for the operator about upstreams: that one is left alone and asked again, and that requests
//! to one fail. There is a line for each change, and otherwise at most one in [this time](EVERY_MS).

use crate::group::MemberIndex;
use crate::group::health::UpstreamCondition;

/// The least time between two lines about failed requests of one upstream, in milliseconds.
pub const EVERY_MS: u64 = 10_000;

/// What was said of the upstreams of a group, and what will be.
#[derive(Debug)]
pub struct Notices(Vec<UpstreamNotice>);

#[derive(Clone, Debug)]
struct UpstreamNotice {
    condition: UpstreamCondition,
    /// The number of requests that have failed since the last line.
    failures: u64,
    /// When the first of those requests failed.
    since_ms: u64,
    last: &'static str,
    said_ms: Option<u64>,
    /// Why the last check has failed; empty if that is not known.
    check: &'static str,
}

impl Notices {
    /// Notices for `count` upstreams, of which the last `backups` are backups.
    pub fn new(count: usize, backups: usize) -> Notices {
        let notice = |condition| UpstreamNotice {
            condition,
            failures: 0,
            since_ms: 0,
            last: "",
            said_ms: None,
            check: "",
        };
        let first_backup = count.saturating_sub(backups);
        let condition = |at| match at < first_backup {
            true => UpstreamCondition::Well,
            false => UpstreamCondition::Backup,
        };
        Notices((0..count).map(condition).map(notice).collect())
    }

    /// Notes that a request to an upstream has failed now, and why.
    pub fn failed(&mut self, member: MemberIndex, why: &'static str, now_ms: u64) {
        if let Some(one) = self.0.get_mut(member) {
            if one.failures == 0 {
                one.since_ms = now_ms;
            }
            (one.failures, one.last) = (one.failures + 1, why);
        }
    }

    /// Notes that a check of an upstream has failed, and why.
    pub fn check_failed(&mut self, member: MemberIndex, why: &'static str) {
        if let Some(one) = self.0.get_mut(member) {
            one.check = why;
        }
    }

    /// The line that is due for an upstream in this condition now, if any.
    pub fn next(
        &mut self,
        member: MemberIndex,
        condition: UpstreamCondition,
        now_ms: u64,
    ) -> Option<String> {
        let one = self.0.get_mut(member)?;
        let (failures, last) = (one.failures, one.last);
        let lasted_s = now_ms.saturating_sub(one.since_ms) / 1000;
        let what = || match (failures, lasted_s) {
            (1, _) => format!("a request has failed: {last}"),
            (many, 0) => format!("{many} requests have failed, the last: {last}"),
            (many, s) => format!("{many} requests have failed in {s} s, the last: {last}"),
        };
        let failed = || if failures == 0 { String::new() } else { format!("; {}", what()) };
        let before = std::mem::replace(&mut one.condition, condition);
        let for_s = |since_ms: u64| now_ms.saturating_sub(since_ms) / 1000;
        let said = match (before, condition) {
            (UpstreamCondition::Out { .. }, UpstreamCondition::Out { .. })
            | (UpstreamCondition::Unwell { .. }, UpstreamCondition::Unwell { .. })
            | (UpstreamCondition::Failing { .. }, UpstreamCondition::Failing { .. })
            | (UpstreamCondition::Well, UpstreamCondition::Well)
            | (UpstreamCondition::Backup, UpstreamCondition::Backup)
            | (UpstreamCondition::Draining, UpstreamCondition::Draining) => None,
            (_, UpstreamCondition::Out { .. }) => Some(format!("is left alone{}", failed())),
            (_, UpstreamCondition::Unwell { .. }) => {
                let why = match std::mem::take(&mut one.check) {
                    "" => String::new(),
                    why => format!(" ({why})"),
                };
                Some(format!("is not asked: its checks fail{why}{}", failed()))
            }
            (_, UpstreamCondition::Failing { .. }) => {
                Some(format!("fails, and is asked all the same: none is well{}", failed()))
            }
            (UpstreamCondition::Backup, UpstreamCondition::Well) => {
                Some("is a backup, and is asked: none of the others is well".to_owned())
            }
            (UpstreamCondition::Well, UpstreamCondition::Backup) => {
                Some("is a backup, and is not asked any more: one of the others is well".to_owned())
            }
            (
                UpstreamCondition::Failing { since_ms },
                UpstreamCondition::Well | UpstreamCondition::Backup,
            ) => Some(format!("is well again, after {} s{}", for_s(since_ms), failed())),
            (
                UpstreamCondition::Out { since_ms } | UpstreamCondition::Unwell { since_ms },
                UpstreamCondition::Well | UpstreamCondition::Backup,
            ) => Some(format!("is asked again, after {} s{}", for_s(since_ms), failed())),
            // the operator who has taken it out knows
            (_, UpstreamCondition::Draining)
            | (UpstreamCondition::Draining, UpstreamCondition::Well | UpstreamCondition::Backup) => {
                None
            }
        };
        // a change is always reported; failures alone only once in this time
        let may = one.said_ms.is_none_or(|said_ms| now_ms.saturating_sub(said_ms) >= EVERY_MS);
        let said = said.or_else(|| match failures {
            0 => None,
            _ if !may => None,
            _ => Some(what()),
        })?;
        (one.failures, one.said_ms) = (0, Some(now_ms));
        Some(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_said_at_once_and_failures_now_and_then() {
        let mut notices = Notices::new(2, 0);
        let out = UpstreamCondition::Out { since_ms: 4_000 };
        assert_eq!(notices.next(0, UpstreamCondition::Well, 0), None);
        notices.failed(0, "connect", 900);
        let said = notices.next(0, UpstreamCondition::Well, 1_000);
        assert_eq!(said.as_deref(), Some("a request has failed: connect"));
        for why in ["connect", "timeout"] {
            notices.failed(0, why, 2_000);
            assert_eq!(notices.next(0, UpstreamCondition::Well, 2_000), None);
        }
        let said = notices.next(0, out, 4_100);
        assert_eq!(
            said.as_deref(),
            Some("is left alone; 2 requests have failed in 2 s, the last: timeout")
        );
        assert_eq!(notices.next(0, out, 30_000), None);
        let said = notices.next(0, UpstreamCondition::Well, 34_900);
        assert_eq!(said.as_deref(), Some("is asked again, after 30 s"));
        let unwell = UpstreamCondition::Unwell { since_ms: 35_000 };
        let said = notices.next(0, unwell, 35_000);
        assert_eq!(said.as_deref(), Some("is not asked: its checks fail"));
        let mut checks = Notices::new(1, 0);
        checks.check_failed(0, "TLS: x");
        let said = checks.next(0, unwell, 35_000);
        assert_eq!(said.as_deref(), Some("is not asked: its checks fail (TLS: x)"));
        assert_eq!(notices.next(0, UpstreamCondition::Draining, 35_000), None);
        assert_eq!(notices.next(0, UpstreamCondition::Well, 36_000), None);
        assert_eq!(notices.next(1, UpstreamCondition::Well, 36_000), None);
        notices.failed(1, "connect", 37_000);
        let failing = UpstreamCondition::Failing { since_ms: 37_000 };
        for (condition, expected) in [
            (
                failing,
                Some(
                    "fails, and is asked all the same: none is well; a request has failed: connect",
                ),
            ),
            (failing, None),
            (UpstreamCondition::Out { since_ms: 37_000 }, Some("is left alone")),
            (failing, Some("fails, and is asked all the same: none is well")),
            (UpstreamCondition::Well, Some("is well again, after 3 s")),
        ] {
            assert_eq!(notices.next(1, condition, 40_000).as_deref(), expected);
        }
    }
}
