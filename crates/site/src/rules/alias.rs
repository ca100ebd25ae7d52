//! Directories that are served beneath a path, besides the root.

use std::fmt;
use std::path::{Path, PathBuf};

/// Another directory beneath a path of the site: its files take the place of what the root has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    path: MountPath,
    /// The directory. Links on the way to it are followed, wherever they lead.
    pub to: PathBuf,
}

impl Alias {
    /// The files of `to` beneath `path`.
    pub fn new(path: MountPath, to: impl Into<PathBuf>) -> Alias {
        Alias { path, to: to.into() }
    }

    /// Beneath which path.
    pub fn path(&self) -> &MountPath {
        &self.path
    }
}

/// A path beneath which another directory is served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountPath(Box<str>);

impl MountPath {
    /// Reads `/docs` or `/docs/`, decoded.
    ///
    /// # Errors
    /// [`MountPathError`] for what is no path of a directory below the root.
    pub fn parse(text: &str) -> Result<MountPath, MountPathError> {
        let inside = text.strip_prefix('/').ok_or(MountPathError)?;
        let inside = inside.strip_suffix('/').unwrap_or(inside);
        let is_name = |name: &str| !["", ".", ".."].contains(&name);
        let is_good = inside.split('/').all(is_name)
            && !inside.chars().any(|c| c.is_control() || ['\\', '*'].contains(&c));
        is_good.then(|| MountPath(format!("/{inside}").into())).ok_or(MountPathError)
    }

    /// Without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where it would lie below a root.
    pub fn below(&self, root: &Path) -> PathBuf {
        root.join(self.0.trim_start_matches('/'))
    }
}

impl fmt::Display for MountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// It is no path of a directory below the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountPathError;

impl fmt::Display for MountPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path of the site below / is expected, without stars and dots")
    }
}

impl std::error::Error for MountPathError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_the_root() {
        for (text, expected) in [("/docs", "/docs"), ("/docs/", "/docs"), ("/a b/ü", "/a b/ü")] {
            assert_eq!(MountPath::parse(text).unwrap().as_str(), expected);
        }
        for text in
            ["", "/", "//", "docs", "/a//b", "/a/../b", "/.", "/a*", "/a\\b", "/a\n", "/a//"]
        {
            assert_eq!(MountPath::parse(text), Err(MountPathError), "{text:?}");
        }
    }
}
