//! Paths that a rule about clients closes: those it is for, without the exceptions it makes.

use super::Scope;

/// The paths that a rule about clients closes.
///
/// An exception opens plain paths only: one that an application could still take for something else, because it
/// decodes twice or goes by backslashes, stays closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedPaths {
    /// The paths that the rule is for.
    pub path: Scope,
    /// The paths among these that stay open.
    pub except: Vec<Scope>,
}

impl From<Scope> for GuardedPaths {
    fn from(path: Scope) -> GuardedPaths {
        GuardedPaths { path, except: Vec::new() }
    }
}

impl GuardedPaths {
    /// Whether the decoded, dot-free `path` is closed.
    pub fn contains(&self, path: &[u8]) -> bool {
        self.path.contains(path) && !self.opens(path)
    }

    /// Whether an exception is for the path.
    fn opens(&self, path: &[u8]) -> bool {
        self.except.iter().any(|open| open.contains(path)) && is_plain(path)
    }

    /// Whether the rule is for all paths that begin with `start`, and no exception is for all of
    /// them. Where an exception is for some, others stay closed.
    pub(crate) fn contains_all(&self, start: &[u8]) -> bool {
        let is_open = || self.except.iter().any(|open| open.contains_all(start));
        self.path.contains_all(start) && !is_open()
    }

    /// Whether all paths that `other` closes are closed, as far as the texts show.
    pub fn covers(&self, other: &GuardedPaths) -> bool {
        let is_open_there = |open: &Scope| other.except.iter().any(|known| known.covers(open));
        self.path.covers(&other.path)
            && self.except.iter().all(|open| is_open_there(open) || open.is_apart(&other.path))
    }
}

/// Whether no application can take a path for another one: nothing in it is still encoded, and it
/// has no separator of other systems and no dots that an application would resolve.
fn is_plain(path: &[u8]) -> bool {
    let is_escape = |three: &[u8]| three[0] == b'%' && three[1..].iter().all(u8::is_ascii_hexdigit);
    let is_dots = |segment: &[u8]| {
        let name = segment.split(|&b| b == b';').next().unwrap_or_default();
        matches!(name, b"." | b"..")
    };
    !path.contains(&b'\\')
        && !path.windows(3).any(is_escape)
        && !path.split(|&b| b == b'/').any(is_dots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(path: &str, except: &[&str]) -> GuardedPaths {
        let scope = |text: &str| Scope::parse(text).unwrap();
        GuardedPaths { path: scope(path), except: except.iter().map(|text| scope(text)).collect() }
    }

    #[test]
    fn exceptions_are_for_plain_paths() {
        let rule = guarded("/", &["/_ping", "=/a", "/pub*"]);
        for (path, is_closed) in [
            ("/", true),
            ("/_ping", false),
            ("/_ping/", false),
            ("/_ping/deep/er", false),
            ("/_ping/100%", false),
            ("/_ping/a..b", false),
            ("/_pingx", true),
            ("/_PING", true),
            ("/_ping.", true),
            ("/_ping ", true),
            ("/_ping;x", true),
            ("/_ping/;x", false),
            ("/_ping/..", true),
            ("/_ping/../x", true),
            ("/_ping/..;/x", true),
            ("/_ping/.;a/x", true),
            ("/_ping/..\\x", true),
            ("/_ping\\..\\x", true),
            ("/_ping/%2e%2e/x", true),
            ("/_ping/%2E%2e%2fx", true),
            ("/%5fping", true),
            ("/x/_ping", true),
            ("//_ping", true),
            ("/a", false),
            ("/a/", true),
            ("/public", false),
            ("/pub/x", false),
        ] {
            assert_eq!(rule.contains(path.as_bytes()), is_closed, "{path}");
        }
        // outside of the rule nothing is closed, whatever is excepted
        let rule = guarded("/in", &["/in/open", "/out"]);
        for (path, is_closed) in [("/out", false), ("/in/open/x", false), ("/in/x", true)] {
            assert_eq!(rule.contains(path.as_bytes()), is_closed, "{path}");
        }
    }

    #[test]
    fn of_many_paths_some_are_closed() {
        let rule = guarded("/n", &["/n/open"]);
        assert!(rule.contains_all(b"/n/") && rule.contains_all(b"/n/o"));
        assert!(!rule.contains_all(b"/n/open/") && !rule.contains_all(b"/m/"));
    }

    #[test]
    fn one_covers_another_if_it_leaves_nothing_of_it_open() {
        for (one, other, expected) in [
            (("/", &["/a"][..]), ("/b", &[][..]), true),
            (("/", &["/a"]), ("/a", &[]), false),
            (("/", &["/a/x"]), ("/a", &[]), false),
            (("/", &["/a/x"]), ("/a", &["/a/x"]), true),
            (("/", &["/a/x"]), ("/a", &["/a"]), true),
            (("/", &["*.png"]), ("/a", &[]), false),
            (("/", &[]), ("/a", &["/a/x"]), true),
        ] {
            let covers = guarded(one.0, one.1).covers(&guarded(other.0, other.1));
            assert_eq!(covers, expected, "{one:?} {other:?}");
        }
    }
}
