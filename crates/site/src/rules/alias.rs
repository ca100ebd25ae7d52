//! Directories that are served beneath a path, besides the root, and files that are served at one.

use forebay_http::coding::Coding;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Another directory beneath a path of the site, or one of its files at a path: they take the place of what the root
/// has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    path: MountPath,
    /// The directory. Links on the way to it are followed, wherever they lead.
    pub to: PathBuf,
    /// For an alias of one file: the file, and the forms that may lie beside it.
    files: Box<[AliasFile]>,
}

/// A file at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AliasFile {
    /// The path of the site.
    pub(crate) path: Box<[u8]>,
    /// The file's name in its directory.
    pub(crate) name: Box<[u8]>,
}

impl Alias {
    /// The files of `to` beneath `path`.
    pub fn new(path: MountPath, to: impl Into<PathBuf>) -> Alias {
        Alias { path, to: to.into(), files: Box::default() }
    }

    /// The file at `path`, with the compressed forms that lie beside it; `None` if it has no name.
    pub fn of_file(path: MountPath, file: &Path) -> Option<Alias> {
        let name = file.file_name()?.as_bytes();
        let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
        let form = |suffix: &str| {
            let with = |name: &[u8]| [name, suffix.as_bytes()].concat().into_boxed_slice();
            AliasFile { path: with(path.as_str().as_bytes()), name: with(name) }
        };
        let forms = [Coding::Br, Coding::Zstd, Coding::Gzip]
            .into_iter()
            .map(|coding| form(coding.suffix()));
        let files = std::iter::once(form("")).chain(forms).collect();
        let to = directory.unwrap_or(Path::new(".")).to_owned();
        Some(Alias { path, to, files })
    }

    /// The file, if it is for one.
    pub fn file(&self) -> Option<PathBuf> {
        Some(self.to.join(OsStr::from_bytes(&self.files.first()?.name)))
    }

    /// The name of the file, if it is for one at this path.
    pub fn file_name_at(&self, path: &str) -> Option<&str> {
        let is_here = self.path.as_str() == path;
        let name = &self.files.first().filter(|_| is_here)?.name;
        std::str::from_utf8(name).ok()
    }

    pub(crate) fn files(&self) -> &[AliasFile] {
        &self.files
    }

    /// The path within the directory that a path of the site leads to, if it leads there.
    pub fn inside<'p>(&'p self, path: &'p [u8]) -> Option<&'p [u8]> {
        place_in(&self.files, self.path.as_str().as_bytes(), path)
    }

    /// The path beneath which the directory is served.
    pub fn path(&self) -> &MountPath {
        &self.path
    }
}

/// The rest of a path of the site that lies beneath another.
pub(crate) fn inside<'p>(beneath: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    match path.strip_prefix(beneath)? {
        [] => Some(&[]),
        [b'/', inside @ ..] => Some(inside),
        _ => None,
    }
}

/// The path within a directory of a path that is one of these files or, without any, lies beneath
/// another path.
pub(crate) fn place_in<'p>(
    files: &'p [AliasFile],
    beneath: &[u8],
    path: &'p [u8],
) -> Option<&'p [u8]> {
    match files {
        [] => inside(beneath, path),
        files => files.iter().find(|file| *file.path == *path).map(|file| &*file.name),
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

    /// The path without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory's place below a root.
    pub fn below(&self, root: &Path) -> PathBuf {
        root.join(self.0.trim_start_matches('/'))
    }
}

impl fmt::Display for MountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no path of a directory below the root.
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
