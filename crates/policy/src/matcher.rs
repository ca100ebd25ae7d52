//! Patterns for a text: one with stars, or a regular expression.

use crate::glob::Glob;
use regex::bytes::{Regex, RegexBuilder};
use std::borrow::Cow;
use std::fmt;

/// The sign before a regular expression.
const REGEX: char = '~';

/// The most memory that a regular expression may take, and its cache on each thread that uses it, in bytes.
const MOST_REGEX_BYTES: usize = 1 << 20;

/// A pattern for a text. A pattern with stars costs less; no code of regular expressions runs where no rule
/// has one.
#[derive(Clone, Debug)]
pub(crate) enum Matcher {
    /// A pattern with stars, which must match the whole text.
    Glob(Glob),
    /// A regular expression, which may match anywhere unless it is anchored. Its dot matches a line feed too,
    /// and bytes that are not UTF-8.
    Regex(Box<Regex>),
}

impl Matcher {
    /// Reads a pattern with stars, or `~` and a regular expression.
    pub(crate) fn parse(text: &str) -> Result<Matcher, RegexError> {
        match text.strip_prefix(REGEX) {
            Some(regex) => compile(regex, false),
            None => Ok(Matcher::Glob(Glob::new(text.as_bytes()))),
        }
    }

    /// Reads the same, ignoring case.
    pub(crate) fn parse_ignoring_case(text: &str) -> Result<Matcher, RegexError> {
        match text.strip_prefix(REGEX) {
            Some(regex) => compile(regex, true),
            None => {
                let pieces: Vec<String> = text.split('*').map(regex::escape).collect();
                compile(&format!("\\A{}\\z", pieces.join("(?s-u:.)*")), true)
            }
        }
    }

    /// Whether `text` is a regular expression rather than a pattern with stars.
    pub(crate) fn is_regex(text: &str) -> bool {
        text.starts_with(REGEX)
    }

    /// The pattern with stars, if this is one.
    pub(crate) fn glob(&self) -> Option<&Glob> {
        match self {
            Matcher::Glob(glob) => Some(glob),
            Matcher::Regex(_) => None,
        }
    }

    /// Whether the pattern matches `text`.
    #[inline]
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        match self {
            Matcher::Glob(glob) => glob.matches(text),
            Matcher::Regex(regex) => {
                let is_replaced = |text| match String::from_utf8_lossy(text) {
                    Cow::Borrowed(_) => false,
                    Cow::Owned(replaced) => regex.is_match(replaced.as_bytes()),
                };
                regex.is_match(text) || is_replaced(text)
            }
        }
    }
}

fn compile(text: &str, ignore_case: bool) -> Result<Matcher, RegexError> {
    let mut builder = RegexBuilder::new(text);
    builder.size_limit(MOST_REGEX_BYTES).dfa_size_limit(MOST_REGEX_BYTES);
    match builder.case_insensitive(ignore_case).dot_matches_new_line(true).build() {
        Ok(regex) => Ok(Matcher::Regex(Box::new(regex))),
        Err(regex::Error::CompiledTooBig(most_bytes)) => Err(RegexError::TooLarge { most_bytes }),
        Err(error) => Err(RegexError::Syntax(explain(&error))),
    }
}

/// The reason for an error without its context, in one line, and the column.
fn explain(error: &regex::Error) -> Box<str> {
    let text = error.to_string();
    let what = text.lines().rev().find_map(|line| line.trim().strip_prefix("error: "));
    let is_mark =
        |line: &&str| line.contains('^') && line.bytes().all(|byte| b" ^".contains(&byte));
    let mark = text.lines().rev().find(is_mark);
    // the message indents the expression by four columns
    let column = mark.and_then(|line| line.find('^')).and_then(|at| at.checked_sub(3));
    match (what, column) {
        (Some(what), Some(column)) => format!("{what}, at character {column} of it").into(),
        (Some(what), None) => what.into(),
        _ => text.lines().last().unwrap_or_default().trim().into(),
    }
}

/// Why a text is not a regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegexError {
    /// The expression has this error.
    Syntax(Box<str>),
    /// The compiled expression takes too much memory.
    TooLarge {
        /// The most memory that is allowed, in bytes.
        most_bytes: usize,
    },
}

impl fmt::Display for RegexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegexError::Syntax(reason) => {
                write!(f, "behind ~ stands a regular expression, and this is none: {reason}")
            }
            RegexError::TooLarge { most_bytes } => {
                write!(f, "the regular expression takes more than {} KiB", most_bytes >> 10)
            }
        }
    }
}

impl std::error::Error for RegexError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_regular_expressions() {
        for (text, ignore_case, against, expected) in [
            ("/a*", false, "/ab", true),
            ("/a*", false, "/Ab", false),
            ("/a*", true, "/Ab", true),
            ("/a*", true, "x/Ab", false),
            ("/a.c", true, "/abc", false),
            ("/ä*z", true, "/Ä\nZ", true),
            ("*", true, "", true),
            ("~^/a$", false, "/a", true),
            ("~^/a$", false, "/A", false),
            ("~^/a$", true, "/A", true),
            ("~b", false, "abc", true),
        ] {
            let matcher = match ignore_case {
                true => Matcher::parse_ignoring_case(text),
                false => Matcher::parse(text),
            };
            assert_eq!(matcher.unwrap().matches(against.as_bytes()), expected, "{text} {against}");
        }
        let any = Matcher::parse_ignoring_case("a*b").unwrap();
        assert!(any.matches(b"A\xff\xfeB"));
        for text in [&b"/a"[..], b"/a\xff", b"/\x80/a", b"/a\n"] {
            let matcher = Matcher::parse("~^/.+$").unwrap();
            assert!(matcher.matches(text), "nobody walks around it: {text:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = Matcher::parse("~a(").unwrap_err().to_string();
        assert!(error.ends_with("this is none: unclosed group, at character 2 of it"), "{error}");
        let error = Matcher::parse(r"~\w{500}{500}").unwrap_err();
        assert_eq!(error, RegexError::TooLarge { most_bytes: MOST_REGEX_BYTES });
    }
}
