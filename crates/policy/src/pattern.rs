//! Hosts, paths, methods and file types as conditions.

use crate::glob::Glob;
use crate::matcher::{Matcher, RegexError};
use crate::place;
use std::fmt;

/// The longest name in DNS, in bytes (RFC 1035 §2.3.4).
pub(crate) const MOST_HOST_BYTES: usize = 253;

/// A condition on the host: `shop.example`, or `*.shop.example` for all names below it, but not for itself.
#[derive(Clone, Debug)]
pub struct SitePattern {
    text: Box<str>,
    /// The name in lower case, without `*.`.
    name: Box<str>,
    is_wildcard: bool,
}

impl SitePattern {
    /// Reads a name or an address; an IPv6 address stands in brackets. Case does not matter.
    ///
    /// # Errors
    /// [`ConditionTextError`] for any other text, in particular for one with a port.
    pub fn parse(text: &str) -> Result<SitePattern, ConditionTextError> {
        let name = text.to_ascii_lowercase();
        let (name, is_wildcard) = match name.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (&*name, false),
        };
        if is_wildcard || !name.starts_with('[') {
            check_name(text, name)?;
        } else {
            check_address(name)?;
        }
        Ok(SitePattern { text: text.into(), name: name.into(), is_wildcard })
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name in lower case, without its star, and whether it has one.
    pub(crate) fn key(&self) -> (&[u8], bool) {
        (self.name.as_bytes(), self.is_wildcard)
    }

    /// Whether the condition matches a host, given in lower case and without port.
    pub fn matches(&self, host: &[u8]) -> bool {
        match self.is_wildcard {
            false => host == self.name.as_bytes(),
            true if !is_name(host) => false,
            true => {
                host.strip_suffix(self.name.as_bytes()).is_some_and(|front| front.ends_with(b"."))
            }
        }
    }
}

/// Whether a host can be a DNS name, which a site with a star requires.
pub(crate) fn is_name(host: &[u8]) -> bool {
    let is_of_names = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    host.len() <= MOST_HOST_BYTES && host.iter().all(is_of_names)
}

impl PartialEq for SitePattern {
    fn eq(&self, other: &SitePattern) -> bool {
        (&self.name, self.is_wildcard) == (&other.name, other.is_wildcard)
    }
}

impl Eq for SitePattern {}

fn check_address(name: &str) -> Result<(), ConditionTextError> {
    let Some((address, rest)) = name[1..].split_once(']') else {
        return Err(ConditionTextError::HostAddress);
    };
    if rest.starts_with(':') {
        return Err(ConditionTextError::HostPort);
    }
    match address.parse::<std::net::Ipv6Addr>() {
        Ok(_) if rest.is_empty() => Ok(()),
        _ => Err(ConditionTextError::HostAddress),
    }
}

fn check_name(text: &str, name: &str) -> Result<(), ConditionTextError> {
    let is_wrong = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let offset = text.len() - name.len();
    match name.char_indices().find(|(_, c)| is_wrong(c)) {
        Some((_, '*')) => return Err(ConditionTextError::HostStar),
        Some((_, ':')) => return Err(ConditionTextError::HostPort),
        Some((at, character)) => {
            return Err(ConditionTextError::Character { character, at: place(text, offset + at) });
        }
        None => {}
    }
    let is_bad = |label: &str| label.is_empty() || label.len() > 63;
    if name.len() > MOST_HOST_BYTES || name.split('.').any(is_bad) {
        return Err(ConditionTextError::HostLabel);
    }
    Ok(())
}

/// A condition on the path: `/x` matches that path, `/x*` everything that begins with it, and in any other
/// text a star matches any run of bytes, slashes included. A regular expression follows `~`. The condition is
/// compared with the decoded and normalised path, without the query. Case counts unless the rule ignores it.
#[derive(Clone, Debug)]
pub struct PathPattern {
    text: Box<str>,
    matcher: Matcher,
    ignores_case: bool,
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`ConditionTextError`] for a text that cannot match any path.
    pub fn parse(text: &str) -> Result<PathPattern, ConditionTextError> {
        let matcher = Matcher::parse(text).map_err(ConditionTextError::Regex)?;
        let pattern = PathPattern { text: text.into(), matcher, ignores_case: false };
        if Matcher::is_regex(text) {
            return Ok(pattern);
        }
        if !text.starts_with(['/', '*']) {
            return Err(ConditionTextError::PathStart);
        }
        let is_wrong = |c: char| c.is_control() || matches!(c, '\\' | '?' | '#');
        if let Some((at, character)) = text.char_indices().find(|(_, c)| is_wrong(*c)) {
            return Err(ConditionTextError::Character { character, at: place(text, at) });
        }
        if let Some(at) = detour(text) {
            return Err(ConditionTextError::PathDetour { at: place(text, at) });
        }
        Ok(pattern)
    }

    /// The same condition, ignoring case.
    ///
    /// # Errors
    /// The pattern takes too much memory.
    pub fn ignoring_case(&self) -> Result<PathPattern, RegexError> {
        let matcher = Matcher::parse_ignoring_case(&self.text)?;
        Ok(PathPattern { text: self.text.clone(), matcher, ignores_case: true })
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the condition matches a path.
    #[inline]
    pub fn matches(&self, path: &[u8]) -> bool {
        self.matcher.matches(path)
    }

    /// The pattern with stars, unless the condition is a regular expression or ignores case.
    pub(crate) fn glob(&self) -> Option<&Glob> {
        self.matcher.glob()
    }
}

/// The path of the file of which `path` is a compressed form: `/a.css` for `/a.css.gz`. A client that asks
/// for the compressed form gets the content of the file, so rules for the file must match.
#[inline]
pub(crate) fn original(path: &[u8]) -> Option<&[u8]> {
    // the last byte excludes most other paths
    let file = match path.last()? {
        b'z' => path.strip_suffix(b".gz"),
        b'r' => path.strip_suffix(b".br"),
        b't' => path.strip_suffix(b".zst"),
        _ => None,
    };
    file.filter(|file| !matches!(file.last(), None | Some(b'/')))
}

/// The position of something that no path has when rules see it: two slashes in a row, or a segment `.` or
/// `..`, also as the last one.
fn detour(text: &str) -> Option<usize> {
    let within = ["//", "/./", "/../"].iter().find_map(|detour| text.find(detour));
    let is_last = |segment: &&&str| text.ends_with(**segment);
    within.or_else(|| ["/.", "/.."].iter().find(is_last).map(|last| text.len() - last.len()))
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &PathPattern) -> bool {
        (&self.text, self.ignores_case) == (&other.text, other.ignores_case)
    }
}

impl Eq for PathPattern {}

/// A condition on the method, such as `GET`. Case counts (RFC 9110 §9.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodPattern(Box<str>);

impl MethodPattern {
    /// Reads a method.
    ///
    /// # Errors
    /// [`ConditionTextError::Method`] for any other text, and for small letters: no method in use has any.
    pub fn parse(text: &str) -> Result<MethodPattern, ConditionTextError> {
        let is_good = |c: char| is_token(c) && !c.is_ascii_lowercase();
        if text.is_empty() || !text.chars().all(is_good) {
            return Err(ConditionTextError::Method);
        }
        Ok(MethodPattern(text.into()))
    }

    /// The method.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A condition on the extension of a file's name, such as `php`. Case does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileType(Box<str>);

impl FileType {
    /// Reads an extension without its dot.
    ///
    /// # Errors
    /// [`ConditionTextError`] for any other text.
    pub fn parse(text: &str) -> Result<FileType, ConditionTextError> {
        if text.starts_with('.') {
            return Err(ConditionTextError::TypeDot);
        }
        let is_wrong = |c: char| c.is_control() || matches!(c, '.' | '/' | '*' | '\\' | '?' | '#');
        match text.char_indices().find(|(_, c)| is_wrong(*c)) {
            _ if text.is_empty() => Err(ConditionTextError::TypeDot),
            Some((at, character)) => {
                Err(ConditionTextError::Character { character, at: place(text, at) })
            }
            None => Ok(FileType(text.into())),
        }
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the last segment of a path has this extension. `/.php` is a name without an extension.
    pub fn matches(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let dot = name.iter().rposition(|&byte| byte == b'.');
        dot.is_some_and(|at| at > 0 && name[at + 1..].eq_ignore_ascii_case(self.0.as_bytes()))
    }
}

/// Whether a token may have this character (RFC 9110 §5.6.2).
pub(crate) fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

macro_rules! display {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )*};
}
display!(SitePattern, PathPattern, MethodPattern, FileType);

/// Why a text is not a condition on host, path, method or file type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionTextError {
    /// A character that no text compared with the pattern can have.
    Character {
        /// The character.
        character: char,
        /// The position of the character, from 1.
        at: usize,
    },
    /// The text has a star that is not the whole first label of a host.
    HostStar,
    /// The host has a port.
    HostPort,
    /// A label of the host is empty or longer than 63 bytes, or the host is longer than 253.
    HostLabel,
    /// The text in brackets is not an IPv6 address.
    HostAddress,
    /// The path begins with neither a slash nor a star.
    PathStart,
    /// The path has two slashes in a row, or a segment `.` or `..`: paths have none when rules see them.
    PathDetour {
        /// The position of the first slash of it, from 1.
        at: usize,
    },
    /// The text is not a method.
    Method,
    /// The file type is empty, or has its dot.
    TypeDot,
    /// The text after `~` is not a regular expression.
    Regex(RegexError),
}

impl fmt::Display for ConditionTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConditionTextError::Character { character, at } => {
                write!(f, "{character:?} at character {at} never matches")
            }
            ConditionTextError::HostStar => {
                f.write_str("a star stands only for the first label, as in *.example.com")
            }
            ConditionTextError::HostPort => {
                f.write_str("a host has no port here; \"local\" is the condition for ports")
            }
            ConditionTextError::HostLabel => f.write_str(
                "a host name has 1 to 63 characters between its dots, none at its end, and at \
                 most 253 in all",
            ),
            ConditionTextError::HostAddress => f.write_str("an IPv6 address is written [::1]"),
            ConditionTextError::PathStart => {
                f.write_str("a path pattern begins with / or *, a regular expression with ~")
            }
            ConditionTextError::PathDetour { at } => write!(
                f,
                "no path has what begins at character {at}; slashes are merged and dots resolved \
                 before rules are applied"
            ),
            ConditionTextError::Method => {
                f.write_str("a method is a word in capitals, such as GET")
            }
            ConditionTextError::TypeDot => {
                f.write_str("a file type is what stands behind the last dot, such as php")
            }
            ConditionTextError::Regex(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConditionTextError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (pattern, host, expected) in [
            ("shop.example", "shop.example", true),
            ("Shop.Example", "shop.example", true),
            ("shop.example", "www.shop.example", false),
            ("*.shop.example", "www.shop.example", true),
            ("*.shop.example", "a.b.shop.example", true),
            ("*.shop.example", "shop.example", false),
            ("*.shop.example", "xshop.example", false),
            ("*.shop.example", "evil.example,a.shop.example", false),
            ("[::1]", "[::1]", true),
            ("127.0.0.1", "127.0.0.1", true),
        ] {
            let site = SitePattern::parse(pattern).unwrap();
            assert_eq!(site.matches(host.as_bytes()), expected, "{pattern} {host}");
            assert_eq!(site.to_string(), pattern);
        }
        for (text, error) in [
            ("", ConditionTextError::HostLabel),
            ("a..b", ConditionTextError::HostLabel),
            ("*", ConditionTextError::HostStar),
            ("a.*", ConditionTextError::HostStar),
            ("a:80", ConditionTextError::HostPort),
            ("[::1]:80", ConditionTextError::HostPort),
            ("[::g]", ConditionTextError::HostAddress),
            ("*.a/b", ConditionTextError::Character { character: '/', at: 4 }),
        ] {
            assert_eq!(SitePattern::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn paths() {
        for (pattern, path, expected) in [
            ("/shop.html", "/shop.html", true),
            ("/shop.html", "/shop.html/", false),
            ("/cgi-bin/*", "/cgi-bin/", true),
            ("/cgi-bin/*", "/cgi-bin/a/b", true),
            ("/cgi-bin/*", "/cgi-bin", false),
            ("*noaccess*", "/a/noaccess/b", true),
            ("*noaccess*", "/a/no/access", false),
            ("/a/*.php", "/a/b/c.php", true),
            ("/a/*.php", "/a/b/c.PHP", false),
            ("*", "/", true),
            ("/.*", "/.env", true),
            ("/a...", "/a...", true),
            // rules see decoded paths, so this matches what was sent as /a%2520b
            ("/a%20b", "/a b", false),
            ("/a b", "/a b", true),
            ("/a%20b", "/a%20b", true),
        ] {
            let found = PathPattern::parse(pattern).unwrap();
            assert_eq!(found.matches(path.as_bytes()), expected, "{pattern} {path}");
        }
        for (text, error) in [
            ("", ConditionTextError::PathStart),
            ("a", ConditionTextError::PathStart),
            ("/a?b", ConditionTextError::Character { character: '?', at: 3 }),
            ("/ä\\", ConditionTextError::Character { character: '\\', at: 3 }),
            ("/a//b", ConditionTextError::PathDetour { at: 3 }),
            ("/a/../b", ConditionTextError::PathDetour { at: 3 }),
            ("/a/..", ConditionTextError::PathDetour { at: 3 }),
            ("*/.", ConditionTextError::PathDetour { at: 2 }),
        ] {
            assert_eq!(PathPattern::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_compressed_form_has_an_original() {
        for (path, expected) in [
            ("/a.css.gz", Some("/a.css")),
            ("/a.br", Some("/a")),
            ("/a.zst", Some("/a")),
            ("/a.css", None),
            ("/agz", None),
            ("/.gz", None),
            ("/b/.br", None),
            (".gz", None),
            ("", None),
        ] {
            assert_eq!(original(path.as_bytes()), expected.map(str::as_bytes), "{path}");
        }
    }

    #[test]
    fn regular_expressions_and_capitals() {
        for (pattern, ignoring, path, expected) in [
            ("~^/a/[0-9]+$", false, "/a/12", true),
            ("~^/a/[0-9]+$", false, "/a/1x", false),
            ("/Shop/*", true, "/shop/A", true),
            ("/Shop/*", false, "/shop/A", false),
        ] {
            let mut found = PathPattern::parse(pattern).unwrap();
            if ignoring {
                found = found.ignoring_case().unwrap();
            }
            assert_eq!(found.matches(path.as_bytes()), expected, "{pattern} {path}");
            assert_eq!(found.to_string(), pattern);
        }
        assert!(matches!(PathPattern::parse("~("), Err(ConditionTextError::Regex(_))));
    }

    #[test]
    fn methods_and_types() {
        assert_eq!(MethodPattern::parse("M-SEARCH").unwrap().as_str(), "M-SEARCH");
        for text in ["", "get", "GET ", "G/T"] {
            assert_eq!(MethodPattern::parse(text), Err(ConditionTextError::Method), "{text}");
        }
        for (path, expected) in [
            ("/a.php", true),
            ("/a.PHP", true),
            ("/a.b/c.php", true),
            ("/a.php/b", false),
            ("/a.php/", false),
            ("/php", false),
            ("/.php", false),
            ("/a.php5", false),
            ("/a.x.php", true),
        ] {
            assert_eq!(
                FileType::parse("php").unwrap().matches(path.as_bytes()),
                expected,
                "{path}"
            );
        }
        assert_eq!(FileType::parse(".php"), Err(ConditionTextError::TypeDot));
        assert_eq!(FileType::parse(""), Err(ConditionTextError::TypeDot));
        let slash = ConditionTextError::Character { character: '/', at: 2 };
        assert_eq!(FileType::parse("a/b"), Err(slash));
    }
}
