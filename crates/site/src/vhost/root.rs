//! The directory a site is served from, which may be replaced by another under the same path.

use arc_swap::ArcSwap;
use forebay_sys::file::{self, Stamp};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Links looked at on the way to a root, as in the kernel.
const MOST_LINKS: u32 = 40;

/// An open root. It stays the same directory even if its path leads elsewhere later.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) directory: OwnedFd,
    /// The directory's place when it was opened, without links.
    pub(crate) path: PathBuf,
    /// The number of this root, which no other of the process has.
    pub(crate) number: u64,
    stamp: Stamp,
}

/// The configured place of a site's root, and the directory that it leads to now.
#[derive(Debug)]
pub(crate) struct RootDirectory {
    /// The path as configured, for messages.
    pub(crate) configured: PathBuf,
    absolute: PathBuf,
    current: ArcSwap<Root>,
    is_missing: AtomicBool,
}

/// The outcome of a look at the root's path.
#[derive(Debug)]
pub(crate) enum RootLook {
    /// The directory that is being served.
    Same,
    /// Another directory, which is served from now on. The one before is returned.
    Changed(Arc<Root>),
    /// Nothing, since just now.
    Missing(io::Error),
    /// Nothing, as before.
    StillMissing,
}

impl Root {
    fn open(path: &Path) -> io::Result<Root> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let directory = file::open_directory(path)?;
        let stamp = file::stamp(directory.as_fd())?;
        let path = path.canonicalize()?;
        Ok(Root { directory, path, number: NUMBER.fetch_add(1, Relaxed), stamp })
    }

    fn is_same(&self, other: &Root) -> bool {
        self.is(&other.stamp, &other.path)
    }

    /// Whether the root is still the directory at `path`. Takes no descriptor.
    fn is_at(&self, path: &Path) -> bool {
        let stamp = file::stamp_of(path);
        stamp.is_ok_and(|stamp| path.canonicalize().is_ok_and(|path| self.is(&stamp, &path)))
    }

    fn is(&self, stamp: &Stamp, path: &Path) -> bool {
        // a root that was moved may lie within another of the site now, whose rules hold for it
        self.path == path && (self.stamp.device, self.stamp.inode) == (stamp.device, stamp.inode)
    }
}

impl RootDirectory {
    pub(crate) fn open(configured: &Path) -> io::Result<RootDirectory> {
        let absolute = std::path::absolute(configured)?;
        let current = ArcSwap::from_pointee(Root::open(&absolute)?);
        let configured = configured.to_owned();
        Ok(RootDirectory { configured, absolute, current, is_missing: AtomicBool::new(false) })
    }

    pub(crate) fn current(&self) -> Arc<Root> {
        self.current.load_full()
    }

    /// Looks where the path leads now.
    pub(crate) fn look(&self) -> RootLook {
        let current = self.current();
        // a lack of descriptors does not mean that the root is gone
        if current.is_at(&self.absolute) {
            self.is_missing.store(false, Relaxed);
            return RootLook::Same;
        }
        match Root::open(&self.absolute) {
            Ok(root) if root.is_same(&current) => {
                self.is_missing.store(false, Relaxed);
                RootLook::Same
            }
            Ok(root) => {
                self.is_missing.store(false, Relaxed);
                RootLook::Changed(self.current.swap(Arc::new(root)))
            }
            Err(_) if self.is_missing.swap(true, Relaxed) => RootLook::StillMissing,
            Err(error) => RootLook::Missing(error),
        }
    }

    /// The names that decide where the path leads: every link on it, and its last name. A renamed
    /// directory in the middle is not among them; the periodic look finds that.
    pub(crate) fn signposts(&self) -> Vec<(PathBuf, Vec<u8>)> {
        signposts(&self.absolute)
    }
}

/// The directories in which a root may be replaced by another, with everything beneath them: those
/// that hold a link on its path, and the one that holds its last name. A root right beneath `/` is
/// taken by itself.
pub fn root_directories(root: &Path) -> Vec<PathBuf> {
    let absolute = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    let directories = signposts(&absolute).into_iter().map(|(directory, name)| {
        let is_all = directory == Path::new("/");
        if is_all { directory.join(OsString::from_vec(name)) } else { directory }
    });
    directories.collect()
}

fn signposts(absolute: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut signposts = Vec::new();
    let mut names = Vec::new();
    push_names(absolute, &mut names);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = names.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let path = at.join(&name);
        match std::fs::read_link(&path) {
            Ok(target) if links < MOST_LINKS => {
                links += 1;
                signposts.push((at.clone(), name.into_vec()));
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                push_names(&target, &mut names);
            }
            _ => {
                if names.is_empty() {
                    signposts.push((at.clone(), name.as_bytes().to_vec()));
                }
                at = path;
            }
        }
    }
    signposts
}

/// Pushes the names of `path`, the first one last.
fn push_names(path: &Path, names: &mut Vec<OsString>) {
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => names.push(name.to_owned()),
            Component::ParentDir => names.push("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_link_on_the_way_is_a_signpost() {
        let folder = Folder::new();
        let base = folder.path().canonicalize().unwrap();
        folder.write("releases/42/index.html", "42");
        symlink("releases/42", base.join("current")).unwrap();
        symlink(base.join("current"), base.join("www")).unwrap();
        let place = RootDirectory::open(&base.join("www")).unwrap();
        let name = |dir: &str, name: &str| (base.join(dir), name.as_bytes().to_vec());
        let expected = [name("", "www"), name("", "current"), name("releases", "42")];
        let normal: Vec<_> = place.signposts();
        let clean = |(dir, name): &(PathBuf, Vec<u8>)| {
            (dir.components().collect::<PathBuf>(), name.clone())
        };
        assert_eq!(
            normal.iter().map(clean).collect::<Vec<_>>(),
            expected.iter().map(clean).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_look_notices_another_directory() {
        let folder = Folder::new();
        folder.write("a/x", "");
        folder.write("b/x", "");
        let path = folder.path().join("a");
        let place = RootDirectory::open(&path).unwrap();
        assert!(matches!(place.look(), RootLook::Same));
        std::fs::rename(&path, folder.path().join("c")).unwrap();
        assert!(matches!(place.look(), RootLook::Missing(_)));
        assert!(matches!(place.look(), RootLook::StillMissing));
        std::fs::rename(folder.path().join("b"), &path).unwrap();
        assert!(matches!(place.look(), RootLook::Changed(_)));
        assert!(matches!(place.look(), RootLook::Same));
    }
}
