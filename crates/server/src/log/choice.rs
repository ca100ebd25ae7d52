//! Which requests have a line in a log.

use super::request_id::mixed;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;

/// A condition of lines, as `log.if` has them: `status=5xx`, `class=gold`, `site!=shop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCondition {
    of: Of,
    is_not: bool,
}

/// What a condition is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    /// Statuses of the answer, written like this.
    Status(RangeInclusive<u16>, String),
    /// The request had no answer.
    NoStatus,
    /// The name of its class.
    Class(String),
    /// The name of its site; `-` for none.
    Site(String),
}

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionError {
    /// It has no `=`.
    Form,
    /// Another sign than `=` and `!=`.
    Sign {
        /// What says the same, if something does.
        instead: Option<String>,
    },
    /// It is about something else.
    Subject,
    /// Not a status, nor several.
    Status,
    /// A list of statuses.
    List,
    /// Nothing behind the `=`.
    Empty,
}

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConditionError::Form => f.write_str(
                "expected a condition such as \"status=404\", \"status=4xx\", \"status!=200-399\", \
                 \"status=none\", \"class=gold\" or \"site!=shop\"",
            ),
            ConditionError::Sign { instead: Some(instead) } => {
                write!(f, "conditions have = or !=, write {instead:?}")
            }
            ConditionError::Sign { instead: None } => f.write_str(
                "conditions have = or !=, such as \"status=400-599\" or \"class!=gold\"",
            ),
            ConditionError::Subject => f.write_str("conditions are about status, class or site"),
            ConditionError::Status => f.write_str(
                "expected a status such as 404, several such as 4xx or 400-499, or none",
            ),
            ConditionError::List => {
                f.write_str("write a condition for each; of several about the status one is enough")
            }
            ConditionError::Empty => f.write_str("a name is missing behind the sign"),
        }
    }
}

impl LogCondition {
    /// Reads `SUBJECT=VALUE` or `SUBJECT!=VALUE`.
    ///
    /// # Errors
    /// [`ConditionError`].
    pub fn parse(text: &str) -> Result<LogCondition, ConditionError> {
        if let Some(instead) = other_sign(text) {
            return Err(ConditionError::Sign { instead });
        }
        let (subject, value) = text.split_once('=').ok_or(ConditionError::Form)?;
        let (subject, is_not) = match subject.strip_suffix('!') {
            Some(subject) => (subject.trim(), true),
            None => (subject.trim(), false),
        };
        let value = value.trim();
        if value.is_empty() {
            return Err(ConditionError::Empty);
        }
        let of = match subject {
            "status" if value == "none" => Of::NoStatus,
            "status" if value.contains(',') => return Err(ConditionError::List),
            "status" => {
                Of::Status(statuses(value).ok_or(ConditionError::Status)?, value.to_owned())
            }
            "class" => Of::Class(value.to_owned()),
            "site" => Of::Site(value.to_owned()),
            _ => return Err(ConditionError::Subject),
        };
        Ok(LogCondition { of, is_not })
    }

    /// The class it is about.
    pub fn class(&self) -> Option<&str> {
        match &self.of {
            Of::Class(name) => Some(name),
            _ => None,
        }
    }

    /// Whether it asks for requests without an answer.
    pub fn is_without_answer(&self) -> bool {
        self.of == Of::NoStatus && !self.is_not
    }

    /// The site it is about, unless that is none.
    pub fn site(&self) -> Option<&str> {
        match &self.of {
            Of::Site(name) if name != NO_SITE => Some(name),
            _ => None,
        }
    }
}

/// How a condition names that a request belongs to no site.
const NO_SITE: &str = "-";

impl fmt::Display for LogCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_not { "!=" } else { "=" };
        match &self.of {
            Of::Status(_, text) => write!(f, "status{sign}{text}"),
            Of::NoStatus => write!(f, "status{sign}none"),
            Of::Class(name) => write!(f, "class{sign}{name}"),
            Of::Site(name) => write!(f, "site{sign}{name}"),
        }
    }
}

/// If the text has a sign that conditions do not have: what says the same with those they have.
fn other_sign(text: &str) -> Option<Option<String>> {
    let is_of_sign = |c: char| matches!(c, '=' | '!' | '<' | '>' | '~');
    let begin = text.find(is_of_sign)?;
    let (subject, rest) = text.split_at(begin);
    let end = rest.find(|c| !is_of_sign(c)).unwrap_or(rest.len());
    let ((sign, value), subject) = (rest.split_at(end), subject.trim());
    let is_valid = |instead: &String| LogCondition::parse(instead).is_ok();
    let bound = || value.trim().parse::<u16>().ok().filter(|_| subject == "status");
    let instead = match sign {
        "=" | "!=" => return None,
        "==" => Some(format!("{subject}={}", value.trim())),
        "<>" | "!==" => Some(format!("{subject}!={}", value.trim())),
        ">=" | "=>" => bound().map(|from| format!("status={from}-599")),
        ">" => bound().map(|below| format!("status={}-599", below.saturating_add(1))),
        "<=" | "=<" => bound().map(|to| format!("status=100-{to}")),
        "<" => bound().map(|above| format!("status=100-{}", above.saturating_sub(1))),
        _ => None,
    };
    Some(instead.filter(is_valid))
}

/// `404`, `4xx` or `400-499`.
fn statuses(text: &str) -> Option<RangeInclusive<u16>> {
    let status = |text: &str| text.parse().ok().filter(|status| (100..=599).contains(status));
    if let Some(class) = text.strip_suffix("xx") {
        let first = status(&format!("{class}00"))?;
        return Some(first..=first + 99);
    }
    match text.split_once('-') {
        Some((first, last)) => Some(status(first)?..=status(last)?).filter(|all| !all.is_empty()),
        None => status(text).map(|status| status..=status),
    }
}

/// Which requests have a line.
#[derive(Clone, Debug, PartialEq)]
pub struct LogChoice {
    /// All that must hold: of those about the same thing without a `!`, one; and each with a `!`.
    pub conditions: Vec<LogCondition>,
    /// Of those for which that is so, one in so many.
    pub sample: u64,
    /// Of those among them that were refused, again one in so many.
    pub sample_refused: u64,
}

impl Default for LogChoice {
    /// All of them.
    fn default() -> LogChoice {
        LogChoice { conditions: Vec::new(), sample: 1, sample_refused: 1 }
    }
}

impl LogChoice {
    /// What is left to ask of each request of a site, whose name is empty for those of none; `None`
    /// if none of them has a line.
    pub fn of_site(&self, site: &str) -> Option<LogChoice> {
        let name = if site.is_empty() { NO_SITE } else { site };
        let is_asked = |condition: &&LogCondition| matches!(condition.of, Of::Site(_));
        let about = self.conditions.iter().filter(is_asked);
        let holds = |condition: &LogCondition| match &condition.of {
            Of::Site(asked) => asked == name,
            _ => true,
        };
        let conditions = self.conditions.iter().filter(|condition| !is_asked(condition));
        hold(about, holds).then(|| LogChoice { conditions: conditions.cloned().collect(), ..*self })
    }

    /// One in how many requests has a line: of those that were refused, or of the others.
    #[inline]
    pub fn sample_of(&self, is_refused: bool) -> u64 {
        if is_refused { self.sample.saturating_mul(self.sample_refused) } else { self.sample }
    }

    /// Whether a request with this status, if it had an answer, and this class has a line, but for
    /// the sample.
    #[inline]
    pub fn takes<'c>(&self, status: Option<u16>, class: impl FnOnce() -> Option<&'c str>) -> bool {
        self.conditions.is_empty() || self.asks(status, class())
    }

    fn asks(&self, status: Option<u16>, class: Option<&str>) -> bool {
        let about = |of: fn(&Of) -> bool| {
            let conditions = self.conditions.iter().filter(move |condition| of(&condition.of));
            hold(conditions, |condition| match &condition.of {
                Of::Status(statuses, _) => status.is_some_and(|status| statuses.contains(&status)),
                Of::NoStatus => status.is_none(),
                Of::Class(name) => class == Some(name.as_str()),
                Of::Site(_) => true,
            })
        };
        about(|of| matches!(of, Of::Status(..) | Of::NoStatus))
            && about(|of| matches!(of, Of::Class(_)))
    }
}

/// Whether one of those without a `!` holds, if there are any, and none of those with one.
fn hold<'c>(
    conditions: impl Iterator<Item = &'c LogCondition>,
    holds: impl Fn(&LogCondition) -> bool,
) -> bool {
    let (mut any, mut is_one) = (false, false);
    for condition in conditions {
        match (condition.is_not, holds(condition)) {
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

/// Draws lines for samples: each by itself, so that no order of requests evades it.
#[derive(Debug)]
pub(super) struct LogSampler(u64);

impl Default for LogSampler {
    fn default() -> LogSampler {
        // keyed by the operating system's random numbers
        LogSampler(RandomState::new().hash_one(0))
    }
}

impl LogSampler {
    /// Whether this is the one in so many.
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
    fn conditions_are_read_and_written() {
        for text in
            ["status=404", "status!=2xx", "status=400-499", "status=none", "class!=gold", "site=-"]
        {
            assert_eq!(LogCondition::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(LogCondition::parse("status != 404").unwrap().to_string(), "status!=404");
        for (text, error) in [
            ("404", ConditionError::Form),
            ("status!404", ConditionError::Sign { instead: None }),
            ("path=/a", ConditionError::Subject),
            ("status=", ConditionError::Empty),
            ("status=6xx", ConditionError::Status),
            ("status=xx", ConditionError::Status),
            ("status=99", ConditionError::Status),
            ("status=499-400", ConditionError::Status),
            ("status=often", ConditionError::Status),
            ("status=404,5xx", ConditionError::List),
        ] {
            assert_eq!(LogCondition::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn for_other_signs_there_is_what_says_the_same() {
        for (text, expected) in [
            ("status>=400", Some("status=400-599")),
            ("status => 400", Some("status=400-599")),
            ("status>399", Some("status=400-599")),
            ("status<=399", Some("status=100-399")),
            ("status < 400", Some("status=100-399")),
            ("status==404", Some("status=404")),
            ("status<>404", Some("status!=404")),
            ("class==gold", Some("class=gold")),
            ("status>=600", None),
            ("status>599", None),
            ("status<100", None),
            ("status>=4xx", None),
            ("class>=gold", None),
            ("status=~4..", None),
            ("status~4", None),
            ("!status=404", None),
            ("status==", None),
        ] {
            let instead = expected.map(str::to_owned);
            assert_eq!(LogCondition::parse(text), Err(ConditionError::Sign { instead }), "{text}");
        }
        // values may have such signs
        assert!(LogCondition::parse("class=a<b").is_ok());
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
