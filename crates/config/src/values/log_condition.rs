//! Conditions of lines in a log, as a file writes them.

use std::fmt;
use std::ops::RangeInclusive;

/// A condition of lines, as `log.if` has them: `status=5xx`, `class=gold`, `site!=shop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCondition {
    of: ConditionSubject,
    is_not: bool,
}

/// The subject of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionSubject {
    /// Statuses of the answer, written like this.
    Status(RangeInclusive<u16>, String),
    /// The request had no answer.
    NoStatus,
    /// The name of the request's class.
    Class(String),
    /// The name of the request's site; `-` for none.
    Site(String),
}

/// A reason why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionError {
    /// The text has no `=`.
    Form,
    /// The text has another sign than `=` and `!=`.
    Sign {
        /// A condition that means the same, if there is one.
        instead: Option<String>,
    },
    /// The text is about something that no condition knows.
    Subject,
    /// The value is no status and no range of statuses.
    Status,
    /// The value is a list of statuses.
    List,
    /// The value behind the `=` is missing.
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
            "status" if value == "none" => ConditionSubject::NoStatus,
            "status" if value.contains(',') => return Err(ConditionError::List),
            "status" => ConditionSubject::Status(
                statuses(value).ok_or(ConditionError::Status)?,
                value.to_owned(),
            ),
            "class" => ConditionSubject::Class(value.to_owned()),
            "site" => ConditionSubject::Site(value.to_owned()),
            _ => return Err(ConditionError::Subject),
        };
        Ok(LogCondition { of, is_not })
    }

    /// The subject of the condition.
    #[inline]
    pub fn of(&self) -> &ConditionSubject {
        &self.of
    }

    /// Whether the condition has a `!`.
    #[inline]
    pub fn is_not(&self) -> bool {
        self.is_not
    }

    /// The class that the condition names.
    pub fn class(&self) -> Option<&str> {
        match &self.of {
            ConditionSubject::Class(name) => Some(name),
            _ => None,
        }
    }

    /// Whether the condition asks for requests without an answer.
    pub fn is_without_answer(&self) -> bool {
        self.of == ConditionSubject::NoStatus && !self.is_not
    }

    /// The site that the condition names, unless that is none.
    pub fn site(&self) -> Option<&str> {
        match &self.of {
            ConditionSubject::Site(name) if name != NO_SITE => Some(name),
            _ => None,
        }
    }
}

/// The word in a condition for requests that belong to no site.
pub const NO_SITE: &str = "-";

impl fmt::Display for LogCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_not { "!=" } else { "=" };
        match &self.of {
            ConditionSubject::Status(_, text) => write!(f, "status{sign}{text}"),
            ConditionSubject::NoStatus => write!(f, "status{sign}none"),
            ConditionSubject::Class(name) => write!(f, "class{sign}{name}"),
            ConditionSubject::Site(name) => write!(f, "site{sign}{name}"),
        }
    }
}

/// The replacement, if the text has a sign that conditions do not have: a condition that means the same
/// with the signs they have.
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

/// Reads `404`, `4xx` or `400-499`.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        // values may contain such signs
        assert!(LogCondition::parse("class=a<b").is_ok());
    }
}
