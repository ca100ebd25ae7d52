//! Folders of one process among the temporary files. They go when it ends, and those of processes that
//! were killed go when the same user makes the next.
//!
//! All that use a folder hold a shared lock on a file in it; what nobody holds is removed.

use crate::file::{lock_shared, try_lock};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The name of the file that all who use the folder have locked.
const LOCK: &str = "lock";

/// A folder that is removed with everything in it when dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The directory itself, so that no other one can have its number.
    directory: File,
    _lock: File,
}

impl Folder {
    /// A new one of this `mode`: `prefix`, the number of the process, and one that tells it from
    /// others of the same process. Those of this prefix that nobody uses any more are removed.
    ///
    /// # Errors
    /// What the system says; some file systems have no locks.
    pub fn make(prefix: &str, mode: u32) -> io::Result<Folder> {
        let base = std::env::temp_dir();
        for attempt in 0..100 {
            let path = base.join(format!("{prefix}{}-{attempt}", std::process::id()));
            match DirBuilder::new().mode(mode).create(&path) {
                Ok(()) => {
                    let folder = Folder::lock(path)?;
                    remove_abandoned(&base, prefix, folder.path.metadata()?.uid());
                    return Ok(folder);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Under its name the file is never seen without its lock.
    fn lock(path: PathBuf) -> io::Result<Folder> {
        let new = path.join("new");
        let lock = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        lock_shared(&lock)?;
        fs::rename(&new, path.join(LOCK))?;
        let directory = File::open(&path)?;
        // systemd-tmpfiles leaves a directory alone that somebody has locked (tmpfiles.d(5))
        lock_shared(&directory)?;
        Ok(Folder { path, directory, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is still there: who cleans up temporary files may have removed it.
    pub fn is_there(&self) -> bool {
        let number = |known: fs::Metadata| (known.dev(), known.ino());
        match (self.directory.metadata(), fs::symlink_metadata(&self.path)) {
            (Ok(own), Ok(found)) => number(own) == number(found),
            _ => false,
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // under the name of one that others have removed there may be the next of this process
        if self.is_there() {
            // nothing can be done about a failure
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// For as long as what this returns is open, no other process removes the folder; `None` if it is none.
pub fn hold(folder: &Path) -> Option<File> {
    let lock = File::open(folder.join(LOCK)).ok()?;
    lock_shared(&lock).ok()?;
    Some(lock)
}

/// Whether folders of this prefix are called so: `forebay-123-0`.
pub fn is_name(prefix: &str, name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbers = name.strip_prefix(prefix).and_then(|rest| rest.split_once('-'));
    numbers.is_some_and(|(pid, attempt)| is_number(pid) && is_number(attempt))
}

/// Removes folders of this user that nobody uses any more.
fn remove_abandoned(base: &Path, prefix: &str, own: u32) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| is_name(prefix, name))
            && entry.metadata().is_ok_and(|known| known.is_dir() && known.uid() == own);
        if is_ours
            && let Ok(lock) = File::open(entry.path().join(LOCK))
            && try_lock(&lock).is_ok_and(|is_mine| is_mine)
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::ManuallyDrop;
    use std::thread;
    use std::time::Duration;

    const PREFIX: &str = "forebay-folder-";

    #[test]
    fn only_what_is_made_here_is_looked_at() {
        for name in ["forebay-1-0", "forebay-4194304-12"] {
            assert!(is_name("forebay-", name), "{name}");
        }
        for name in ["forebay-1", "forebay-test-1-0", "forebay-1-0-1", "forebay--0", "x-1-0", ""] {
            assert!(!is_name("forebay-", name), "{name}");
        }
    }

    #[test]
    fn one_that_others_have_removed_does_not_remove_the_next() {
        let first = Folder::make("forebay-gone-", 0o700).unwrap();
        assert!(first.is_there());
        fs::remove_dir_all(first.path()).unwrap();
        assert!(!first.is_there());
        let next = Folder::make("forebay-gone-", 0o700).unwrap();
        assert_eq!(next.path(), first.path(), "the name is free again");
        assert!(next.is_there() && !first.is_there());
        drop(first);
        assert!(next.is_there());
    }

    #[test]
    fn what_all_have_left_is_removed_by_the_next() {
        // one that is killed does nothing
        let killed = ManuallyDrop::new(Folder::make(PREFIX, 0o700).unwrap());
        let user = hold(killed.path()).unwrap();
        killed._lock.unlock().unwrap();
        let next = Folder::make(PREFIX, 0o700).unwrap();
        assert!(killed.path().exists(), "another process has it");
        drop(user);
        // a process that another test begins has it until it runs its program
        let mut last = Folder::make(PREFIX, 0o700).unwrap();
        for _ in 0..3000 {
            if !killed.path().exists() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
            last = Folder::make(PREFIX, 0o700).unwrap();
        }
        assert!(!killed.path().exists() && next.path().exists() && last.path().exists());
        assert!(hold(killed.path()).is_none());
    }
}
