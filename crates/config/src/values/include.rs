//! A path with stars, which names files that belong to a configuration.

use crate::problems::problem::Wrong;
use crate::values::value::Written;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// A path whose stars each stand for any run of characters of one name; it names files of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncludePattern(pub PathBuf);

impl IncludePattern {
    /// Whether the path has a star.
    pub fn has_star(&self) -> bool {
        self.0.as_os_str().as_encoded_bytes().contains(&b'*')
    }

    /// The directory that all its files are in: the part of the path before the first name with a star.
    pub fn directory(&self) -> PathBuf {
        let is_fixed = |part: &Component<'_>| !part.as_os_str().as_encoded_bytes().contains(&b'*');
        let fixed: PathBuf = self.0.components().take_while(is_fixed).collect();
        match self.has_star() {
            true => fixed,
            false => fixed.parent().map(Path::to_owned).unwrap_or_default(),
        }
    }

    /// Whether a pattern of one name fits a name. A star does not match a dot at the beginning, because
    /// such files are hidden.
    pub fn fits(pattern: &OsStr, name: &OsStr) -> bool {
        let (pattern, name) = (pattern.as_encoded_bytes(), name.as_encoded_bytes());
        if name.starts_with(b".") && !pattern.starts_with(b".") {
            return false;
        }
        let mut parts = pattern.split(|byte| *byte == b'*');
        let first = parts.next().unwrap_or_default();
        let Some(last) = parts.next_back() else { return pattern == name };
        let Some(mut rest) = name.strip_prefix(first) else { return false };
        for part in parts.filter(|part| !part.is_empty()) {
            let Some(at) = rest.windows(part.len()).position(|window| window == part) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

impl Written for IncludePattern {
    const EXPECTED: &'static str = "a path such as \"sites/*.toml\"";
    fn read(text: &str) -> Result<IncludePattern, Wrong> {
        if text.is_empty() || text.ends_with('/') || text.contains(['\0']) {
            return Err(IncludePattern::misread(text));
        }
        Ok(IncludePattern(PathBuf::from(text)))
    }
    fn text(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_run_of_characters_of_a_name() {
        for (pattern, name, expected) in [
            ("*.toml", "a.toml", true),
            ("*.toml", ".toml", false),
            ("*.toml", ".#a.toml", false),
            ("*.toml", "a.toml~", false),
            ("*", "a", true),
            (".*", ".a", true),
            ("a*b", "ab", true),
            ("a*b", "a", false),
            ("ab*b", "ab", false),
            ("a*b*c", "axbxbxc", true),
            ("a*b*c", "axc", false),
            ("**", "a", true),
            ("a", "a", true),
            ("a", "ab", false),
        ] {
            let fits = IncludePattern::fits(OsStr::new(pattern), OsStr::new(name));
            assert_eq!(fits, expected, "{pattern} {name}");
        }
    }

    #[test]
    fn its_directory_has_no_star() {
        for (pattern, directory) in [
            ("/etc/forebay/sites/*.toml", "/etc/forebay/sites"),
            ("/srv/*/site.toml", "/srv"),
            ("/etc/a.toml", "/etc"),
            ("*.toml", ""),
            ("a.toml", ""),
        ] {
            assert_eq!(
                IncludePattern(pattern.into()).directory(),
                Path::new(directory),
                "{pattern}"
            );
        }
    }
}
