//! The directory with the sockets of the stages, and who removes it.
//!
//! A supervisor makes one at its start and one at each reload, and removes it when its stages have ended. What
//! one leaves that is killed goes when the same user starts the next: all that use a directory hold a shared
//! lock on a file in it, and what nobody holds is removed. The stages cannot do it, Landlock keeps them out.
//!
//! Nobody but this user may enter it. Where stages become another user (`user`), that one may connect to sockets in
//! it, and no more: what root reads and writes there must not be others' to change.

use super::stage::Role;
use forebay_sys::clock;
use forebay_sys::file::{lock_shared, try_lock};
use forebay_upstream::ends::{End, Ends};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// The name of the configuration that the stages share, among their sockets.
const COPY: &str = "forebay.toml";

/// The name of the file that all who use the directory have locked.
const LOCK: &str = "lock";

/// The name of the file in which the supervisor says how processes have ended.
const ENDS: &str = "ends";

/// Where stages say that they are ready.
const NOTIFY: &str = "notify.sock";

/// How directories are called, before the number of the process.
const PREFIX: &str = "forebay-";

/// The directory with the sockets of stages; it goes with the supervisor.
pub(super) struct Links {
    path: PathBuf,
    _lock: File,
    ends: File,
}

impl Links {
    /// `is_entered`: by stages that are another user.
    pub(super) fn make(is_entered: bool) -> io::Result<Links> {
        let base = std::env::temp_dir();
        let mode = if is_entered { 0o711 } else { 0o700 };
        for attempt in 0..100 {
            let path = base.join(format!("{PREFIX}{}-{attempt}", std::process::id()));
            match DirBuilder::new().mode(mode).create(&path) {
                Ok(()) => {
                    let links = Links::lock(path)?;
                    remove_abandoned(&base, links.path.metadata()?.uid());
                    return Ok(links);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Under its name the file is never seen without its lock.
    fn lock(path: PathBuf) -> io::Result<Links> {
        let new = path.join("new");
        let lock = own_file().write(true).open(&new)?;
        lock_shared(&lock)?;
        fs::rename(&new, path.join(LOCK))?;
        let ends = own_file().append(true).open(path.join(ENDS))?;
        Ok(Links { path, _lock: lock, ends })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What it is called, as nothing else of another supervisor.
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The configuration as it is now, for all processes that have this directory.
    pub(super) fn keep(&self, file: &Path) -> io::Result<()> {
        let mut copy = own_file().write(true).open(self.path.join(COPY))?;
        io::copy(&mut File::open(file)?, &mut copy).map(drop)
    }

    /// Tells those who ask this instance, from 1, that its process has ended.
    pub(super) fn tell_end(&self, role: Role, instance: u64, was_by_itself: bool) {
        let end = End {
            at_ms: clock::coarse_ms(),
            stage: role.number(),
            instance: usize::try_from(instance.saturating_sub(1)).unwrap_or(usize::MAX),
            was_by_itself,
        };
        // who is not told counts no end
        let _ = end.append(&mut &self.ends);
    }

    /// Where stages say that they are ready.
    pub(super) fn notify(&self) -> PathBuf {
        self.path.join(NOTIFY)
    }

    /// Hears that stages are ready, for as long as somebody wants to know.
    pub(super) fn hear(&self) -> io::Result<UnixDatagram> {
        UnixDatagram::bind(self.notify())
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A new file that nobody else may read.
fn own_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create_new(true).mode(0o600);
    options
}

/// The copy of the configuration that a supervisor has left for its stages, if there is one.
pub fn copy(links: &Path) -> Option<PathBuf> {
    Some(links.join(COPY)).filter(|copy| copy.exists())
}

/// For as long as what this returns is open, no other supervisor removes the directory; `None` if it is no
/// supervisor's.
pub fn hold(links: &Path) -> Option<File> {
    let lock = File::open(links.join(LOCK)).ok()?;
    lock_shared(&lock).ok()?;
    Some(lock)
}

/// What the supervisor says of the processes of a stage from now on; `None` if there is no supervisor.
pub(super) fn ends(links: &Path, role: Role) -> Option<Ends> {
    let file = File::open(links.join(ENDS)).ok()?;
    Ends::new(file, role.number()).ok()
}

/// Removes directories of this user that nobody uses any more.
fn remove_abandoned(base: &Path, own: u32) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(is_name)
            && entry.metadata().is_ok_and(|known| known.is_dir() && known.uid() == own);
        if is_ours
            && let Ok(lock) = File::open(entry.path().join(LOCK))
            && try_lock(&lock).is_ok_and(|is_mine| is_mine)
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether directories of supervisors are called so: `forebay-123-0`.
pub(super) fn is_name(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbers = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    numbers.is_some_and(|(pid, attempt)| is_number(pid) && is_number(attempt))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::ManuallyDrop;

    #[test]
    fn only_what_supervisors_make_is_looked_at() {
        for name in ["forebay-1-0", "forebay-4194304-12"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["forebay-1", "forebay-test-1-0", "forebay-1-0-1", "forebay--0", "x-1-0", ""] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn what_all_have_left_is_removed_by_the_next() {
        // one that is killed does nothing
        let killed = ManuallyDrop::new(Links::make(false).unwrap());
        let stage = hold(killed.path()).unwrap();
        killed._lock.unlock().unwrap();
        let next = Links::make(false).unwrap();
        assert!(killed.path().exists(), "a stage has it");
        drop(stage);
        let last = Links::make(false).unwrap();
        assert!(!killed.path().exists() && next.path().exists() && last.path().exists());
        assert!(hold(killed.path()).is_none());
    }
}
