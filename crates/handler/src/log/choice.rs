//! Which requests have a line in a log.

use super::request_id::mixed;
use forebay_config::log_condition::{ConditionSubject, LogCondition, NO_SITE};
use std::hash::{BuildHasher, RandomState};

/// Which requests have a line.
#[derive(Clone, Debug, PartialEq)]
pub struct LogChoice {
    /// The conditions that must hold. Among those about the same subject without a `!`, one must hold;
    /// with a `!`, each.
    pub conditions: Vec<LogCondition>,
    /// The sampling ratio: one in this many of the requests for which the conditions hold has a line.
    pub sample: u64,
    /// The further sampling ratio for refused requests: again one in this many of those.
    pub sample_refused: u64,
}

impl Default for LogChoice {
    /// All requests have a line.
    fn default() -> LogChoice {
        LogChoice { conditions: Vec::new(), sample: 1, sample_refused: 1 }
    }
}

impl LogChoice {
    /// The choice that is left for requests of a site, whose name is empty for requests of no site;
    /// `None` if none of them has a line.
    pub fn of_site(&self, site: &str) -> Option<LogChoice> {
        let name = if site.is_empty() { NO_SITE } else { site };
        let is_asked =
            |condition: &&LogCondition| matches!(condition.of(), ConditionSubject::Site(_));
        let about = self.conditions.iter().filter(is_asked);
        let holds = |condition: &LogCondition| match condition.of() {
            ConditionSubject::Site(asked) => asked == name,
            _ => true,
        };
        let conditions = self.conditions.iter().filter(|condition| !is_asked(condition));
        hold(about, holds).then(|| LogChoice { conditions: conditions.cloned().collect(), ..*self })
    }

    /// The sampling ratio: of refused requests, or of the others, one in this many has a line.
    #[inline]
    pub fn sample_of(&self, is_refused: bool) -> u64 {
        if is_refused { self.sample.saturating_mul(self.sample_refused) } else { self.sample }
    }

    /// Whether a request with this status, if it had an answer, and this class has a line, apart from
    /// sampling.
    #[inline]
    pub fn takes<'c>(&self, status: Option<u16>, class: impl FnOnce() -> Option<&'c str>) -> bool {
        self.conditions.is_empty() || self.asks(status, class())
    }

    fn asks(&self, status: Option<u16>, class: Option<&str>) -> bool {
        let about = |of: fn(&ConditionSubject) -> bool| {
            let conditions = self.conditions.iter().filter(move |condition| of(condition.of()));
            hold(conditions, |condition| match condition.of() {
                ConditionSubject::Status(statuses, _) => {
                    status.is_some_and(|status| statuses.contains(&status))
                }
                ConditionSubject::NoStatus => status.is_none(),
                ConditionSubject::Class(name) => class == Some(name.as_str()),
                ConditionSubject::Site(_) => true,
            })
        };
        about(|of| matches!(of, ConditionSubject::Status(..) | ConditionSubject::NoStatus))
            && about(|of| matches!(of, ConditionSubject::Class(_)))
    }
}

/// Whether one of the conditions without a `!` holds, if there are any, and none of those with one.
fn hold<'c>(
    conditions: impl Iterator<Item = &'c LogCondition>,
    holds: impl Fn(&LogCondition) -> bool,
) -> bool {
    let (mut any, mut is_one) = (false, false);
    for condition in conditions {
        match (condition.is_not(), holds(condition)) {
            (true, true) => return false,
            (true, false) => {}
            (false, held) => {
                any = true;
                is_one |= held;
            }
        }
    }
    !any || is_one
}

/// Draws the lines of a sample independently of one another, so that no order of requests evades it.
#[derive(Debug)]
pub(super) struct LogSampler(u64);

impl Default for LogSampler {
    fn default() -> LogSampler {
        // keyed by random numbers of the operating system
        LogSampler(RandomState::new().hash_one(0))
    }
}

impl LogSampler {
    /// Whether this request is in the sample of one in `one_in`.
    #[inline]
    pub(super) fn draws(&mut self, one_in: u64) -> bool {
        if one_in <= 1 {
            return true;
        }
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0).is_multiple_of(one_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(conditions: &[&str]) -> LogChoice {
        let conditions = conditions.iter().map(|text| LogCondition::parse(text).unwrap()).collect();
        LogChoice { conditions, ..LogChoice::default() }
    }

    #[test]
    fn what_is_about_the_same_is_one_of_several() {
        let takes = |conditions: &[&str], status: Option<u16>, class: &str| {
            choice(conditions).takes(status, || Some(class))
        };
        let errors = &["status=4xx", "status=500-599", "status!=404"];
        for (status, expected) in [
            (Some(200), false),
            (Some(403), true),
            (Some(404), false),
            (Some(503), true),
            (None, false),
        ] {
            assert_eq!(takes(errors, status, "gold"), expected, "{status:?}");
        }
        assert!(takes(&["status!=2xx"], None, "gold"));
        assert!(takes(&["status=none", "status=5xx"], None, "gold"));
        let gold = &["class=gold", "class=silver", "status=5xx"];
        assert!(takes(gold, Some(500), "silver") && !takes(gold, Some(200), "silver"));
        assert!(!takes(gold, Some(500), "bulk"));
        assert!(choice(&["class!=gold"]).takes(Some(200), || None));
        assert!(!choice(&["class=gold"]).takes(Some(200), || None));
        assert!(choice(&[]).takes(Some(200), || panic!("nobody asks for the class")));
    }

    #[test]
    fn sites_are_asked_for_once() {
        let shop = choice(&["site=shop", "status=5xx"]);
        assert_eq!(shop.of_site("shop"), Some(choice(&["status=5xx"])));
        assert_eq!(shop.of_site("blog"), None);
        assert_eq!(shop.of_site(""), None);
        assert_eq!(choice(&["site!=shop"]).of_site(""), Some(choice(&[])));
        assert_eq!(choice(&["site=-"]).of_site(""), Some(choice(&[])));
    }

    #[test]
    fn a_sample_is_about_as_large_as_it_should_be() {
        let mut sampler = LogSampler(1);
        let drawn = (0..100_000).filter(|_| sampler.draws(10)).count();
        assert!((9_000..11_000).contains(&drawn), "{drawn}");
        assert!((0..100).all(|_| sampler.draws(1) && sampler.draws(0)));
    }
}
