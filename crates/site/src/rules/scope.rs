//! Scopes: the paths that a rule about clients protects.

use super::{Pattern, PatternError};
use std::fmt;

/// The paths that an access rule or a password is for.
///
/// A path without a star (`/admin`, `/admin/`) is meant with all below it, because a rule that leaves
/// `/admin/a.txt` open protects nothing. `=/admin` is that path alone. With a star, or as a regular
/// expression, it is a [`Pattern`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    text: Box<str>,
    kind: ScopeKind,
}

/// The precedence of a scope among others for the same path, highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// One path alone.
    Exact,
    /// A pattern with a star before its end.
    Pattern,
    /// All paths with a beginning of this length. Longer ones go before shorter ones.
    Beginning(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ScopeKind {
    /// A single path.
    Exact(Box<[u8]>),
    /// A path and all below it; without the slash at its end.
    Below(Box<[u8]>),
    Pattern(Pattern),
}

impl Scope {
    /// Reads `/admin`, `=/admin` or a pattern with stars.
    ///
    /// # Errors
    /// [`ScopeError`] for what could not match any path, or not what is meant.
    pub fn parse(text: &str) -> Result<Scope, ScopeError> {
        let exact = text.strip_prefix('=');
        let path = exact.unwrap_or(text);
        if exact.is_some() && !path.starts_with('/') {
            return Err(ScopeError::Start);
        }
        let pattern = Pattern::parse(path).map_err(ScopeError::Pattern)?;
        let kind = match (exact, pattern.captures_len()) {
            (Some(_), 0) => ScopeKind::Exact(path.as_bytes().into()),
            (Some(_), _) => return Err(ScopeError::Star),
            (None, 0) => ScopeKind::Below(path.strip_suffix('/').unwrap_or(path).as_bytes().into()),
            (None, _) => ScopeKind::Pattern(pattern),
        };
        Ok(Scope { text: text.into(), kind })
    }

    /// Paths that fit a regular expression.
    ///
    /// # Errors
    /// [`PatternError`] for what is not one, or is too large.
    pub fn regex(text: &str) -> Result<Scope, PatternError> {
        Ok(Scope { text: text.into(), kind: ScopeKind::Pattern(Pattern::regex(text)?) })
    }

    /// The pattern, if it is a regular expression.
    pub fn as_regex(&self) -> Option<&Pattern> {
        match &self.kind {
            ScopeKind::Pattern(pattern) if pattern.is_regex() => Some(pattern),
            _ => None,
        }
    }

    /// All paths, `*`.
    pub fn any() -> Scope {
        Scope { text: "*".into(), kind: ScopeKind::Pattern(Pattern::any()) }
    }

    /// Patterns that are for the same paths.
    pub(crate) fn patterns(&self) -> Vec<Pattern> {
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let texts = match &self.kind {
            ScopeKind::Pattern(pattern) => return vec![pattern.clone()],
            ScopeKind::Exact(path) => vec![text(path)],
            // the root is a path, too
            ScopeKind::Below(path) if path.is_empty() => vec!["/*".to_owned()],
            ScopeKind::Below(path) => vec![text(path), text(path) + "/*"],
        };
        texts.iter().filter_map(|text| Pattern::parse(text).ok()).collect()
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The path, if the scope is a single one, alone or with all below it.
    pub fn path(&self) -> Option<&str> {
        match &self.kind {
            ScopeKind::Exact(_) => self.text.strip_prefix('='),
            ScopeKind::Below(_) => Some(&self.text),
            ScopeKind::Pattern(_) => None,
        }
    }

    /// Whether the decoded, dot-free `path` is in the scope.
    pub fn contains(&self, path: &[u8]) -> bool {
        match &self.kind {
            ScopeKind::Exact(exact) => path == &**exact,
            ScopeKind::Below(top) => {
                let rest = path.strip_prefix(&**top);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
            }
            ScopeKind::Pattern(pattern) => pattern.matches(path),
        }
    }

    /// Whether all paths that begin with `start` are certainly in the scope. For a regular
    /// expression that is not known.
    pub(crate) fn contains_all(&self, start: &[u8]) -> bool {
        match &self.kind {
            ScopeKind::Exact(_) => false,
            ScopeKind::Below(top) => {
                start.strip_prefix(&**top).is_some_and(|rest| rest.starts_with(b"/"))
            }
            ScopeKind::Pattern(pattern) => match pattern.as_str().split_once('*') {
                Some((beginning, "")) => {
                    !pattern.is_regex() && start.starts_with(beginning.as_bytes())
                }
                _ => false,
            },
        }
    }

    /// The precedence among scopes for the same path.
    pub(crate) fn reach(&self) -> Reach {
        match &self.kind {
            ScopeKind::Exact(_) => Reach::Exact,
            ScopeKind::Below(top) => Reach::Beginning(top.len()),
            ScopeKind::Pattern(pattern) => match pattern.as_str().split_once('*') {
                Some((beginning, "")) => Reach::Beginning(beginning.len()),
                _ => Reach::Pattern,
            },
        }
    }

    /// Whether each path of this scope is `base` or below it, as far as the two texts show.
    pub fn is_below(&self, base: &str) -> bool {
        match &self.kind {
            ScopeKind::Exact(path) | ScopeKind::Below(path) => {
                let rest = path.strip_prefix(base.as_bytes());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
            }
            ScopeKind::Pattern(pattern) => {
                let beginning = pattern.as_str().split('*').next().unwrap_or("");
                beginning.strip_prefix(base).is_some_and(|rest| rest.starts_with('/'))
            }
        }
    }

    /// Whether the scope is for every path, as far as the text shows.
    pub fn is_all(&self) -> bool {
        match &self.kind {
            ScopeKind::Exact(_) => false,
            ScopeKind::Below(top) => top.is_empty(),
            ScopeKind::Pattern(pattern) => {
                !pattern.is_regex() && matches!(pattern.as_str(), "*" | "/*")
            }
        }
    }

    /// Whether no path is in both scopes, as far as the two texts show: for a regular expression
    /// they do not.
    pub fn is_apart(&self, other: &Scope) -> bool {
        let starts = |scope: &'_ Scope| match &scope.kind {
            ScopeKind::Pattern(pattern) if pattern.is_regex() => None,
            ScopeKind::Pattern(pattern) => pattern.as_str().split('*').next().map(str::to_owned),
            ScopeKind::Exact(path) | ScopeKind::Below(path) => {
                Some(String::from_utf8_lossy(path).into_owned())
            }
        };
        match (&self.kind, &other.kind) {
            (ScopeKind::Exact(path), _) => !other.contains(path),
            (_, ScopeKind::Exact(path)) => !self.contains(path),
            (ScopeKind::Below(one), ScopeKind::Below(top)) => {
                !self.contains(top) && !other.contains(one)
            }
            _ => match (starts(self), starts(other)) {
                (Some(one), Some(top)) => !one.starts_with(&top) && !top.starts_with(&one),
                _ => false,
            },
        }
    }

    /// Whether all paths of `other` are in this scope, too, as far as the two texts show.
    pub fn covers(&self, other: &Scope) -> bool {
        match (&self.kind, &other.kind) {
            (ScopeKind::Pattern(all), _) if *all == Pattern::any() => true,
            (_, ScopeKind::Exact(path)) => self.contains(path),
            (ScopeKind::Below(_), ScopeKind::Below(top)) => self.contains(top),
            // of a regular expression that is not known
            (ScopeKind::Below(top), ScopeKind::Pattern(pattern)) if pattern.is_regex() => {
                top.is_empty()
            }
            // what stands before the first star
            (ScopeKind::Below(top), ScopeKind::Pattern(pattern)) => {
                let start = pattern.as_str().split('*').next().unwrap_or("").as_bytes();
                start.strip_prefix(&**top).is_some_and(|rest| rest.starts_with(b"/"))
            }
            (ScopeKind::Pattern(one), ScopeKind::Pattern(other)) => one == other,
            (ScopeKind::Pattern(_), ScopeKind::Below(_)) | (ScopeKind::Exact(_), _) => false,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The reason why a text is not a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeError {
    /// The path behind `=` does not begin with a slash.
    Start,
    /// One path alone, with a star.
    Star,
    /// The text is wrong as a pattern.
    Pattern(PatternError),
}

impl fmt::Display for ScopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScopeError::Start => f.write_str("behind = stands one path, which begins with /"),
            ScopeError::Star => f.write_str("behind = stands one path, and a star means many"),
            ScopeError::Pattern(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ScopeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_meant_with_all_below_it() {
        for (text, path, expected) in [
            ("/admin", "/admin", true),
            ("/admin", "/admin/", true),
            ("/admin", "/admin/a.txt", true),
            ("/admin", "/admin/a/b/", true),
            ("/admin", "/administrators", false),
            ("/admin", "/admin.html", false),
            ("/admin", "/x/admin", false),
            ("/admin", "/", false),
            ("/admin/", "/admin", true),
            ("/admin/", "/admin/a.txt", true),
            ("/admin/", "/adminx", false),
            ("/a/b.html", "/a/b.html", true),
            ("/", "/", true),
            ("/", "/anything/else", true),
            ("=/admin", "/admin", true),
            ("=/admin", "/admin/", false),
            ("=/admin", "/admin/a.txt", false),
            ("=/admin/", "/admin/", true),
            ("=/admin/", "/admin", false),
            ("=/", "/", true),
            ("=/", "/a", false),
            ("/admin/*", "/admin", false),
            ("/admin*", "/administrators", true),
            ("*.php", "/a/b.php", true),
            ("*.php", "/a/b.php/c", false),
            ("*", "/", true),
        ] {
            let scope = Scope::parse(text).unwrap();
            assert_eq!(scope.contains(path.as_bytes()), expected, "{text} {path}");
            assert_eq!(scope.to_string(), text);
        }
        assert_eq!(Scope::any(), Scope::parse("*").unwrap());
    }

    #[test]
    fn a_regular_expression_is_a_pattern() {
        let scope = Scope::regex(r"(?i)\.(bak|sql)$").unwrap();
        for (path, expected) in
            [("/a.bak", true), ("/x/A.SQL", true), ("/a.bak.txt", false), ("/bak", false)]
        {
            assert_eq!(scope.contains(path.as_bytes()), expected, "{path}");
        }
        assert_eq!((scope.path(), scope.as_str()), (None, r"(?i)\.(bak|sql)$"));
        assert!(scope.as_regex().is_some() && Scope::any().as_regex().is_none());
        // neither text is part of the other's meaning
        let star = Scope::parse("/a/*").unwrap();
        let regex = Scope::regex("/a/*").unwrap();
        assert!(star != regex && !star.covers(&regex) && !regex.covers(&star));
        assert!(regex.covers(&regex) && regex.covers(&Scope::parse("=/a/b").unwrap()));
        assert!(Scope::any().covers(&regex) && Scope::parse("/").unwrap().covers(&regex));
        assert!(!Scope::parse("/a").unwrap().covers(&Scope::regex("/a/b").unwrap()));
        assert!(Scope::regex("(").is_err());
    }

    #[test]
    fn one_covers_another_if_it_is_for_all_its_paths() {
        for (one, other, expected) in [
            ("*", "/admin", true),
            ("*", "=/", true),
            ("*", "*.php", true),
            ("/", "/admin", true),
            ("/", "/*.php", true),
            ("/", "*.php", false),
            ("/admin", "/admin", true),
            ("/admin", "/admin/", true),
            ("/admin/", "/admin", true),
            ("/admin", "/admin/a", true),
            ("/admin", "=/admin/a", true),
            ("/admin", "/admin/*", true),
            ("/admin", "/admin*", false),
            ("/admin", "/administrators", false),
            ("/admin/a", "/admin", false),
            ("=/admin", "=/admin", true),
            ("=/admin", "/admin", false),
            ("*.php", "*.php", true),
            ("*.php", "=/a.php", true),
            ("*.php", "/a.php", false),
            ("/admin/*", "/admin", false),
        ] {
            let covers = Scope::parse(one).unwrap().covers(&Scope::parse(other).unwrap());
            assert_eq!(covers, expected, "{one} {other}");
        }
    }

    #[test]
    fn some_have_no_path_in_common() {
        for (one, other, expected) in [
            ("/a", "/b", true),
            ("/a", "/ab", true),
            ("/a", "/a/b", false),
            ("/", "/a", false),
            ("=/a", "/a", false),
            ("=/b", "/a", true),
            ("=/", "/a", true),
            ("*.png", "/a", false),
            ("=/a.png", "*.png", false),
            ("=/a.gif", "*.png", true),
            ("/a*", "/b", true),
            ("/a*", "/ab/c", false),
            ("/ab*", "/a", false),
            ("/a/*", "/b/*", true),
            ("*", "/a", false),
        ] {
            let (one, other) = (Scope::parse(one).unwrap(), Scope::parse(other).unwrap());
            assert_eq!(one.is_apart(&other), expected, "{one} {other}");
            assert_eq!(other.is_apart(&one), expected, "{other} {one}");
        }
        let regex = Scope::regex("^/a").unwrap();
        assert!(!regex.is_apart(&Scope::parse("/b").unwrap()));
        assert!(regex.is_apart(&Scope::parse("=/b").unwrap()));
        assert!(["*", "/", "/*"].iter().all(|text| Scope::parse(text).unwrap().is_all()));
        assert!(["/a", "=/", "*.x"].iter().all(|text| !Scope::parse(text).unwrap().is_all()));
    }

    #[test]
    fn of_many_paths_it_is_for_all() {
        for (text, start, expected) in [
            ("/n", "/n/", true),
            ("/n", "/n", false),
            ("/n", "/", false),
            ("/n", "/na/", false),
            ("/n/a", "/n/", false),
            ("/", "/n/", true),
            ("/n", "", false),
            ("=/n/a/x", "/n/", false),
            ("*", "", true),
            ("/n/*", "/n/a/", true),
            ("/n/a*", "/n/", false),
            ("*.pdf", "/n/", false),
            ("/n/*/*", "/n/", false),
        ] {
            let scope = Scope::parse(text).unwrap();
            assert_eq!(scope.contains_all(start.as_bytes()), expected, "{text} {start:?}");
        }
        let regex = Scope::regex("/a*").unwrap();
        assert!(!regex.contains_all(b"/a/"));
    }

    #[test]
    fn some_are_below_a_path() {
        for (text, base, expected) in [
            ("/api", "/api", true),
            ("/api/", "/api", true),
            ("/api/v1", "/api", true),
            ("=/api", "/api", true),
            ("=/api/a", "/api", true),
            ("/api/*", "/api", true),
            ("/api/*.php", "/api", true),
            ("/apis", "/api", false),
            ("/api*", "/api", false),
            ("*.php", "/api", false),
            ("/", "/api", false),
            ("=/apis", "/api", false),
        ] {
            assert_eq!(Scope::parse(text).unwrap().is_below(base), expected, "{text} {base}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("=admin", "behind = stands one path, which begins with /"),
            ("=", "behind = stands one path, which begins with /"),
            ("=*", "behind = stands one path, which begins with /"),
            ("=/a/*", "behind = stands one path, and a star means many"),
            ("admin", "a path pattern begins with / or *"),
            ("/a?b", "? at character 3 never matches; a pattern is for the path alone"),
        ] {
            assert_eq!(Scope::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
    }
}
