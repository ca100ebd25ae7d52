//! Folders of one process among the temporary files. They are removed when the process ends; those
//! of processes that were killed are removed when the same user makes the next folder.
//!
//! All processes that use a folder hold a shared lock on a file in it; a folder whose lock no
//! process holds is removed.

use crate::file::{lock_shared, try_lock};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The name of the file that all processes which use the folder have locked.
const LOCK: &str = "lock";

/// A folder that is removed with everything in it when dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The directory itself, kept open so that no other directory can get its number.
    directory: File,
    _lock: File,
}

impl Folder {
    /// Makes a folder of this `mode`, whose name is `prefix`, the number of the process, and a
    /// number that distinguishes it from others of the same process. Folders of this prefix that no
    /// process uses any more are removed.
    ///
    /// # Errors
    /// The error of the system; some file systems have no locks.
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

    /// Locks the file before it gets its name, so that it is never seen without the lock.
    fn lock(path: PathBuf) -> io::Result<Folder> {
        let new = path.join("new");
        let lock = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        lock_shared(&lock)?;
        fs::rename(&new, path.join(LOCK))?;
        let directory = File::open(&path)?;
        // systemd-tmpfiles leaves a directory alone that some process has locked (tmpfiles.d(5))
        lock_shared(&directory)?;
        Ok(Folder { path, directory, _lock: lock })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the folder is still there: a program that cleans up temporary files may have removed
    /// it.
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
        // if others have removed this folder, the next one of this process may have its name
        if self.is_there() {
            // nothing can be done about a failure
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Keeps other processes from removing the folder for as long as the file is open that this
/// returns; `None` if it is no such folder.
pub fn hold(folder: &Path) -> Option<File> {
    let lock = File::open(folder.join(LOCK)).ok()?;
    lock_shared(&lock).ok()?;
    Some(lock)
}

/// Whether folders of this prefix have names like this one: `forebay-123-0`.
pub fn is_name(prefix: &str, name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbers = name.strip_prefix(prefix).and_then(|rest| rest.split_once('-'));
    numbers.is_some_and(|(pid, attempt)| is_number(pid) && is_number(attempt))
}

/// Removes folders of this user that no process uses any more.
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
        // a process that is killed removes nothing
        let killed = ManuallyDrop::new(Folder::make(PREFIX, 0o700).unwrap());
        let user = hold(killed.path()).unwrap();
        killed._lock.unlock().unwrap();
        let next = Folder::make(PREFIX, 0o700).unwrap();
        assert!(killed.path().exists(), "another process has it");
        drop(user);
        // a process that another test begins has the lock until it runs its program
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
