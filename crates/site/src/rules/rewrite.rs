//! Rules that look for the files of another path, unseen by the client.

use super::header::vary;
use super::template::no_capture;
use super::{HeaderRule, Pattern, RequestConditions, Template, TemplatePart};
use std::fmt;

/// A rule by which the files of another path are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    pattern: Pattern,
    to: Template,
    conditions: RequestConditions,
}

impl Rewrite {
    /// A rewrite of paths that fit `pattern`. `to` is a decoded path.
    ///
    /// # Errors
    /// [`RewriteError`] if `to` is not a path of the site.
    pub fn new(pattern: Pattern, to: Template) -> Result<Rewrite, RewriteError> {
        if !to.begins_with_slash() {
            return Err(RewriteError::Start);
        }
        let captures = pattern.captures_len();
        match to.stranger(captures, |part| *part == TemplatePart::Path) {
            None => Ok(Rewrite { pattern, to, conditions: RequestConditions::default() }),
            Some(name) if !is_capture(&name) => Err(RewriteError::Variable { name }),
            Some(name) => Err(RewriteError::Capture { name, captures }),
        }
    }

    /// The same for requests that meet these conditions.
    #[must_use]
    pub fn under(self, conditions: RequestConditions) -> Rewrite {
        Rewrite { conditions, ..self }
    }

    /// The requests that the rewrite is for.
    pub fn conditions(&self) -> &RequestConditions {
        &self.conditions
    }

    /// The rule that adds a `Vary` to the answers, if they need one.
    pub(crate) fn varying(&self) -> Option<HeaderRule> {
        vary(Some(self.pattern.clone()), &self.conditions, std::iter::empty())
    }

    /// The paths that the rewrite is for.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// The path that is looked for instead.
    pub fn to(&self) -> &Template {
        &self.to
    }
}

/// Whether this is the name of a capture.
fn is_capture(name: &str) -> bool {
    name[1..].starts_with(|c: char| c.is_ascii_digit())
}

/// The reason why a rewrite is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RewriteError {
    /// The target does not begin with a slash or `$path`.
    Start,
    /// The pattern captures less.
    Capture {
        /// The variable.
        name: String,
        /// The number of captures that the pattern has.
        captures: usize,
    },
    /// A variable that is not part of a path.
    Variable {
        /// The variable.
        name: String,
    },
}

impl fmt::Display for RewriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RewriteError::Start => f.write_str("a rewrite leads to a path of the site, from / on"),
            RewriteError::Capture { name, captures } => no_capture(f, name, *captures),
            RewriteError::Variable { name } => write!(
                f,
                "{name} cannot be used here: which file is meant depends on the path alone, and \
                 the query stays as it is"
            ),
        }
    }
}

impl std::error::Error for RewriteError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewrite_stays_in_the_site() {
        let variable = "cannot be used here: which file is meant depends on the path alone, and the \
                        query stays as it is";
        for (to, expected) in [
            ("/app/$1", None),
            ("$path.html", None),
            ("app/$1", Some("a rewrite leads to a path of the site, from / on".to_owned())),
            ("$1", Some("a rewrite leads to a path of the site, from / on".to_owned())),
            ("/$host/$1", Some(format!("$host {variable}"))),
            ("/a$query", Some(format!("$query {variable}"))),
            ("/$9", Some("$9 stands for nothing: the pattern captures $1 only".to_owned())),
        ] {
            let pattern = Pattern::parse("/*").unwrap();
            let got = Rewrite::new(pattern, Template::parse(to).unwrap());
            assert_eq!(got.err().map(|error| error.to_string()), expected, "{to}");
        }
    }
}
