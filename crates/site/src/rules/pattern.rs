//! Patterns for paths: with stars, or regular expressions.

use super::place;
use regex::bytes::{Regex, RegexBuilder};
use std::borrow::Cow;
use std::fmt;

/// The largest number of captures of a pattern: `$1` to `$9`.
pub const MOST_CAPTURES: usize = 9;

/// Bytes that a compiled regular expression may take, and again the tables it fills while it
/// matches.
const MOST_REGEX_BYTES: usize = 1 << 20;

/// A pattern of paths, by which a rule is chosen. It is matched with the decoded, dot-free path,
/// without the query.
///
/// With stars (`/dir/*`, `*.ext`, `/exact`): a star stands for any run of bytes, slashes included,
/// and the whole path must fit. Each star is a capture; a star takes as little as it can, the last
/// one what is left. A regular expression is found anywhere in the path unless it has anchors. Its
/// dot stands for a line feed too, and for what is no UTF-8, so that such bytes do not lead around
/// a rule.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Box<str>,
    kind: PatternKind,
}

#[derive(Clone, Debug)]
enum PatternKind {
    /// The texts between the stars.
    Stars(Box<[Box<[u8]>]>),
    Regex(Regex),
}

/// The captures of a pattern. A capture that took no part in the match is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captures<'p>([&'p [u8]; MOST_CAPTURES]);

impl<'p> Captures<'p> {
    /// The capture with this number; `$1` is number 1.
    pub fn get(&self, number: u8) -> &'p [u8] {
        let index = usize::from(number).wrapping_sub(1);
        self.0.get(index).copied().unwrap_or_default()
    }
}

impl Pattern {
    /// Reads a pattern with stars.
    ///
    /// # Errors
    /// [`PatternError`] for what could not match any path.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        if !text.starts_with(['/', '*']) {
            return Err(PatternError::Start);
        }
        let is_wrong = |c: char| c.is_control() || c == '\\' || c == '?' || c == '#';
        if let Some((at, character)) = text.char_indices().find(|(_, c)| is_wrong(*c)) {
            return Err(PatternError::Character { character, at: place(text, at) });
        }
        let pieces: Box<[Box<[u8]>]> =
            text.split('*').map(|piece| piece.as_bytes().into()).collect();
        if let Some((at, _)) = text.match_indices('*').nth(MOST_CAPTURES) {
            return Err(PatternError::Stars { at: place(text, at) });
        }
        if let Some(at) = detour(text) {
            return Err(PatternError::Detour { at: place(text, at) });
        }
        Ok(Pattern { text: text.into(), kind: PatternKind::Stars(pieces) })
    }

    /// Reads a regular expression.
    ///
    /// # Errors
    /// [`PatternError`] for what is not one, or would take more than 1 MiB.
    pub fn regex(text: &str) -> Result<Pattern, PatternError> {
        let mut builder = RegexBuilder::new(text);
        builder.size_limit(MOST_REGEX_BYTES).dfa_size_limit(MOST_REGEX_BYTES);
        match builder.dot_matches_new_line(true).build() {
            Ok(regex) => Ok(Pattern { text: text.into(), kind: PatternKind::Regex(regex) }),
            Err(regex::Error::CompiledTooBig(most_bytes)) => {
                Err(PatternError::TooLarge { most_bytes })
            }
            Err(error) => Err(PatternError::Regex(explain(&error))),
        }
    }

    /// The pattern for every path, `*`.
    pub fn any() -> Pattern {
        let pieces = [Box::default(), Box::default()];
        Pattern { text: "*".into(), kind: PatternKind::Stars(Box::new(pieces)) }
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is a regular expression.
    pub fn is_regex(&self) -> bool {
        matches!(self.kind, PatternKind::Regex(_))
    }

    /// The number of captures of the pattern, at most [`MOST_CAPTURES`].
    pub fn captures_len(&self) -> usize {
        match &self.kind {
            PatternKind::Stars(pieces) => pieces.len() - 1,
            PatternKind::Regex(regex) => (regex.captures_len() - 1).min(MOST_CAPTURES),
        }
    }

    /// Whether `path` fits.
    pub fn matches(&self, path: &[u8]) -> bool {
        match &self.kind {
            PatternKind::Stars(pieces) => fit(pieces, path).is_some(),
            PatternKind::Regex(regex) => {
                let is_replaced = |path| match String::from_utf8_lossy(path) {
                    Cow::Borrowed(_) => false,
                    Cow::Owned(replaced) => regex.is_match(replaced.as_bytes()),
                };
                regex.is_match(path) || is_replaced(path)
            }
        }
    }

    /// The captures, if `path` fits.
    pub fn captures<'p>(&self, path: &'p [u8]) -> Option<Captures<'p>> {
        match &self.kind {
            PatternKind::Stars(pieces) => fit(pieces, path),
            PatternKind::Regex(regex) => {
                let mut found = regex.capture_locations();
                let is_replaced = match String::from_utf8_lossy(path) {
                    Cow::Borrowed(_) => false,
                    Cow::Owned(replaced) => {
                        regex.captures_read(&mut found, replaced.as_bytes()).is_some()
                    }
                };
                if !is_replaced {
                    regex.captures_read(&mut found, path)?;
                }
                let at = |at| if is_replaced { place_before(path, at) } else { at };
                let mut captures = Captures::default();
                for (number, capture) in (1..found.len()).zip(&mut captures.0) {
                    if let Some((start, end)) = found.get(number) {
                        *capture = &path[at(start)..at(end)];
                    }
                }
                Some(captures)
            }
        }
    }
}

/// Two patterns are the same if they were written the same way.
impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        (self.is_regex(), &self.text) == (other.is_regex(), &other.text)
    }
}

impl Eq for Pattern {}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Finds the pieces in order, the first at the start and the last at the end.
fn fit<'p>(pieces: &[Box<[u8]>], path: &'p [u8]) -> Option<Captures<'p>> {
    let mut captures = Captures::default();
    let (first, others) = pieces.split_first()?;
    let mut rest = path.strip_prefix(&**first)?;
    let Some((last, middle)) = others.split_last() else {
        return rest.is_empty().then_some(captures);
    };
    for (piece, place) in middle.iter().zip(&mut captures.0) {
        let at = find(rest, piece)?;
        *place = &rest[..at];
        rest = &rest[at + piece.len()..];
    }
    *captures.0.get_mut(middle.len())? = rest.strip_suffix(&**last)?;
    Some(captures)
}

/// The place in `bytes` that was `at` before what is no UTF-8 was replaced.
fn place_before(bytes: &[u8], at: usize) -> usize {
    let (mut replaced, mut place) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().len();
        if at <= replaced + valid {
            return place + at.saturating_sub(replaced);
        }
        replaced += valid + char::REPLACEMENT_CHARACTER.len_utf8();
        place += valid + chunk.invalid().len();
    }
    place
}

/// The place of something that no path has when rules see it: two slashes in a row, or a segment
/// `.` or `..`, which may be the last one.
fn detour(text: &str) -> Option<usize> {
    let within = ["//", "/./", "/../"].iter().find_map(|detour| text.find(detour));
    let is_last = |segment: &&&str| text.ends_with(**segment);
    within.or_else(|| ["/.", "/.."].iter().find(is_last).map(|last| text.len() - last.len()))
}

fn find(text: &[u8], piece: &[u8]) -> Option<usize> {
    match piece {
        [] => Some(0),
        piece => text.windows(piece.len()).position(|window| window == piece),
    }
}

/// The regex crate shows the expression with a mark below it; one line is enough. The crate of policies
/// has the same: neither imports the other.
fn explain(error: &regex::Error) -> String {
    let text = error.to_string();
    let what = text.lines().rev().find_map(|line| line.trim().strip_prefix("error: "));
    let is_mark =
        |line: &&str| line.contains('^') && line.bytes().all(|byte| b" ^".contains(&byte));
    let mark = text.lines().rev().find(is_mark);
    // the expression stands four columns in
    let column = mark.and_then(|line| line.find('^')).and_then(|at| at.checked_sub(3));
    match (what, column) {
        (Some(what), Some(column)) => format!("{what}, at character {column}"),
        (Some(what), None) => what.to_owned(),
        _ => text.lines().last().unwrap_or_default().trim().to_owned(),
    }
}

/// The reason why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// The text begins with neither a slash nor a star.
    Start,
    /// A character that is in no path the pattern is matched with.
    Character {
        /// The character.
        character: char,
        /// The character's place; the first is 1.
        at: usize,
    },
    /// Two slashes in a row, or a segment `.` or `..`: paths have none when rules see them.
    Detour {
        /// The place of its first slash.
        at: usize,
    },
    /// More stars than there are captures.
    Stars {
        /// The place of the first that is too many.
        at: usize,
    },
    /// The error of the regular expression, and its place.
    Regex(String),
    /// The regular expression needs too much memory.
    TooLarge {
        /// The memory that it may need.
        most_bytes: usize,
    },
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternError::Start => f.write_str("a path pattern begins with / or *"),
            PatternError::Character { character: character @ ('?' | '#'), at } => {
                write!(
                    f,
                    "{character} at character {at} never matches; a pattern is for the path alone"
                )
            }
            PatternError::Character { character, at } => {
                write!(f, "{character:?} at character {at} is in no path")
            }
            PatternError::Detour { at } => write!(
                f,
                "no path has what begins at character {at}; slashes are merged and dots resolved \
                 before rules are applied"
            ),
            PatternError::Stars { at } => write!(
                f,
                "a pattern has at most {MOST_CAPTURES} stars, and the one at character {at} is too \
                 many; a regular expression may do"
            ),
            PatternError::Regex(what) => f.write_str(what),
            PatternError::TooLarge { most_bytes } => {
                write!(f, "the regular expression needs more than {} KiB", most_bytes >> 10)
            }
        }
    }
}

impl std::error::Error for PatternError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn captured(pattern: &Pattern, path: &str) -> Option<Vec<String>> {
        let captures = pattern.captures(path.as_bytes())?;
        assert!(pattern.matches(path.as_bytes()));
        let text = |n| String::from_utf8(captures.get(n).to_vec()).unwrap();
        Some((1..=pattern.captures_len() as u8).map(text).collect())
    }

    #[test]
    fn stars_stand_for_any_run() {
        for (pattern, path, expected) in [
            ("/exact", "/exact", Some(vec![])),
            ("/exact", "/exact/", None),
            ("/dir/*", "/dir/", Some(vec![""])),
            ("/dir/*", "/dir/a/b", Some(vec!["a/b"])),
            ("/dir/*", "/dir", None),
            ("*.ext", "/a/b.ext", Some(vec!["/a/b"])),
            ("*.ext", "/a/b.ext.gz", None),
            ("*", "/", Some(vec!["/"])),
            ("/a/*/b/*", "/a/x/y/b/z/b/", Some(vec!["x/y", "z/b/"])),
            ("/a*a", "/a", None),
            ("/a*a", "/aa", Some(vec![""])),
            ("/**x", "/abx", Some(vec!["", "ab"])),
        ] {
            let got = captured(&Pattern::parse(pattern).unwrap(), path);
            let expected = expected.map(|list| list.into_iter().map(str::to_owned).collect());
            assert_eq!(got, expected, "{pattern} {path}");
        }
    }

    #[test]
    fn regular_expressions_capture_nine() {
        let pattern = Pattern::regex(r"^/blog/(\d+)(?:-(\w+))?$").unwrap();
        assert_eq!(captured(&pattern, "/blog/12-ab"), Some(vec!["12".into(), "ab".into()]));
        assert_eq!(captured(&pattern, "/blog/12"), Some(vec!["12".into(), String::new()]));
        assert_eq!(captured(&pattern, "/blog/x"), None);
        let many = Pattern::regex(&"(a)".repeat(12)).unwrap();
        assert_eq!(many.captures_len(), 9);
        assert_eq!(many.captures(&[b'a'; 12]).unwrap().get(9), b"a");
        assert_eq!(many.captures(&[b'a'; 12]).unwrap().get(0), b"");
    }

    #[test]
    fn bytes_that_are_no_text_fit_where_any_character_does() {
        for (regex, path, expected) in [
            (r"^/api/(.*)$", &b"/api/a\xff\xfeb"[..], Some(&b"a\xff\xfeb"[..])),
            (r"^/api/(.*)", b"/api/a\xffb", Some(b"a\xffb")),
            (r"^/([^/]+)/x$", b"/\xc3/x", Some(b"\xc3")),
            (r"^/.*/(x+)$", b"/\xf0\x9f\x98/\xff\xc3\xa4/xx", Some(b"xx")),
            (r"(.)$", b"/\xc3\xa4\x80", Some(b"\x80")),
            (r"^/a(.*)b$", b"/a\n\nb", Some(b"\n\n")),
            (r"(?-u)/(\xff)", b"/\xff", Some(b"\xff")),
            (r"^/(\w*)$", b"/a\xff", None),
        ] {
            let pattern = Pattern::regex(regex).unwrap();
            assert_eq!(pattern.matches(path), expected.is_some(), "{regex} {path:?}");
            let captures = pattern.captures(path);
            assert_eq!(captures.map(|captures| captures.get(1)), expected, "{regex} {path:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("", "a path pattern begins with / or *"),
            ("a/*", "a path pattern begins with / or *"),
            ("/a?b", "? at character 3 never matches; a pattern is for the path alone"),
            ("/ä\u{7}", "'\\u{7}' at character 3 is in no path"),
            (
                "/a//b",
                "no path has what begins at character 3; slashes are merged and dots resolved \
                 before rules are applied",
            ),
            (
                "/**********",
                "a pattern has at most 9 stars, and the one at character 11 is too many; a regular \
                 expression may do",
            ),
        ] {
            assert_eq!(Pattern::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
        for (text, expected) in [
            ("^/a(b", "unclosed group, at character 4"),
            (r"^/\d{3", "unclosed counted repetition, at character 5"),
            (r"(\w{200}){200}", "the regular expression needs more than 1024 KiB"),
        ] {
            assert_eq!(Pattern::regex(text).unwrap_err().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn as_written() {
        let star = Pattern::parse("/a*").unwrap();
        let regex = Pattern::regex("/a*").unwrap();
        assert_eq!((star.to_string(), regex.to_string()), ("/a*".to_owned(), "/a*".to_owned()));
        assert_ne!(star, regex);
        assert_eq!(Pattern::any(), Pattern::parse("*").unwrap());
    }

    proptest! {
        /// The captures, put between the fixed texts, give the path again.
        #[test]
        fn captures_fill_the_stars(text in "/[ab*]{0,8}", path in "/[ab]{0,12}") {
            let Ok(pattern) = Pattern::parse(&text) else { return Ok(()) };
            let same = Pattern::regex(&format!("^{}$", text.replace('*', "(?s:.*)"))).unwrap();
            let captures = pattern.captures(path.as_bytes());
            prop_assert_eq!(captures.is_some(), same.matches(path.as_bytes()));
            let Some(captures) = captures else { return Ok(()) };
            let mut filled = Vec::new();
            let mut star = 0;
            for byte in text.bytes() {
                if byte == b'*' {
                    star += 1;
                    filled.extend_from_slice(captures.get(star));
                } else {
                    filled.push(byte);
                }
            }
            prop_assert_eq!(filled, path.into_bytes());
        }
    }
}
