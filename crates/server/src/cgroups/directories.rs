//! The directories of control groups: made and locked, and removed when no server uses them.
//!
//! A server that uses a group holds a lock on its directory. Between the making of a directory and
//! its lock another supervisor may find it and remove it as a leftover. So a process that has
//! locked a directory checks that it is still the one at its path.
//!
//! Any process that may read a directory may lock it. A lock that another process holds is waited
//! for within a bound; then the group is used without a lock, and a log line reports that.

use super::{CgroupMissing, refused};
use forebay_sys::file::{try_lock, try_lock_shared};
use forebay_sys::folder::is_name;
use forebay_sys::stderr::say;
use forebay_sys::wait_budget::WaitBudget;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that lists the processes in a group.
pub(crate) const PROCESSES: &str = "cgroup.procs";

/// How often a group is made anew when others remove it before it is locked. Each supervisor looks
/// for groups to remove only once.
const MOST_TRIES: usize = 100;

/// How long busy groups are waited for, together when several are removed at once. The supervisor
/// does nothing else meanwhile.
pub(crate) const BUSY: Duration = Duration::from_millis(500);

/// Makes a group, or uses the existing one.
pub(crate) fn make(path: &Path) -> Result<(), CgroupMissing> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(refused(path)(error)),
        _ => Ok(()),
    }
}

/// Makes a group, or uses the existing one, and keeps other supervisors from removing it while the
/// returned file is open. `None` if another process holds the lock, which is logged: the group is
/// used without one, since otherwise any process could take its limits away with a lock.
pub(crate) fn make_locked(
    path: &Path,
    wait: &mut WaitBudget,
) -> Result<Option<File>, CgroupMissing> {
    for _ in 0..MOST_TRIES {
        make(path)?;
        let locked = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(GroupLock::Gone),
            opened => opened.and_then(|opened| lock(path, opened, wait)),
        };
        match locked.map_err(refused(path))? {
            GroupLock::Mine(lock) => return Ok(Some(lock)),
            GroupLock::Gone => {}
            GroupLock::Taken => {
                say(format_args!("{}", taken(path)));
                return Ok(None);
            }
        }
    }
    Err(refused(path)(io::Error::other("it is removed as often as it is made")))
}

/// The outcome of locking a group.
#[derive(Debug)]
enum GroupLock {
    /// The group is locked for as long as this file is open.
    Mine(File),
    /// Another supervisor had removed the group before.
    Gone,
    /// Another process held the lock until the wait was over.
    Taken,
}

/// Locks the group that was opened at this path.
fn lock(path: &Path, opened: File, wait: &mut WaitBudget) -> io::Result<GroupLock> {
    let is_mine = wait.until_locked(|| try_lock_shared(&opened))?;
    Ok(match is_at(path, &opened)? {
        false => GroupLock::Gone,
        true if is_mine => GroupLock::Mine(opened),
        true => GroupLock::Taken,
    })
}

/// The message about a group that another process has locked.
fn taken(path: &Path) -> String {
    let path = path.display();
    format!(
        "another process has the control group {path} locked: its limits hold, but another server \
         that starts may remove it while no process is in it; fuser -v {path} names who has it open"
    )
}

/// Whether an opened directory is still the one at its path. While it is open, no other directory
/// has its inode number.
fn is_at(path: &Path, opened: &File) -> io::Result<bool> {
    let identity = |found: Metadata| (found.dev(), found.ino());
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(identity(found?) == identity(opened.metadata()?)),
    }
}

/// A group that cannot be removed.
#[derive(Debug)]
struct LeftGroup {
    path: PathBuf,
    error: io::Error,
    /// The process IDs in the group, separated by white space.
    processes: String,
}

/// The largest number of processes that the message about a remaining group names.
const MOST_NAMED: usize = 8;

impl fmt::Display for LeftGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the control group {} stays: {}", self.path.display(), self.error)?;
        let processes: Vec<_> = self.processes.split_whitespace().collect();
        if processes.is_empty() {
            return f.write_str("; the next start tries again to remove it");
        }
        let named = &processes[..processes.len().min(MOST_NAMED)];
        write!(f, "; processes in it: {}", named.join(", "))?;
        match processes.len() - named.len() {
            0 => {}
            more => write!(f, " and {more} more")?,
        }
        f.write_str("; the next start removes it if they have ended by then")
    }
}

/// Removes a group and the groups in it, unless processes are in them, and returns those that stay.
/// A group that stays only because one in it does is not returned.
fn remove(path: &Path, wait: &mut WaitBudget) -> Vec<LeftGroup> {
    let inside = fs::read_dir(path).into_iter().flatten().flatten();
    let mut inside: Vec<_> =
        inside.filter(|one| one.path().is_dir()).map(|one| one.path()).collect();
    inside.sort_unstable();
    let mut left: Vec<_> = inside.into_iter().filter_map(|one| remove_one(one, wait)).collect();
    let around = remove_one(path.to_owned(), wait);
    if left.is_empty() {
        left.extend(around);
    }
    left
}

fn remove_one(path: PathBuf, wait: &mut WaitBudget) -> Option<LeftGroup> {
    match remove_directory(&path, wait) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let processes = fs::read_to_string(path.join(PROCESSES)).unwrap_or_default();
            Some(LeftGroup { path, error, processes })
        }
        _ => None,
    }
}

/// Removes the directory of a group, and waits while it is busy: from Linux 6.19 on, it is busy for
/// a moment after its last process was waited for (wait(2)).
pub(crate) fn remove_directory(path: &Path, wait: &mut WaitBudget) -> io::Result<()> {
    unless_busy(|| fs::remove_dir(path), wait)
}

fn unless_busy(
    mut remove: impl FnMut() -> io::Result<()>,
    wait: &mut WaitBudget,
) -> io::Result<()> {
    let removed = wait.until(|| match remove() {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => None,
        removed => Some(removed),
    });
    // the error of the last attempt is the one that is reported
    removed.unwrap_or_else(remove)
}

/// Removes a group and the groups in it, and logs which stay.
pub(crate) fn remove_and_tell(path: &Path, wait: &mut WaitBudget) {
    remove(path, wait).iter().for_each(|left| say(format_args!("{left}")));
}

/// Removes groups whose names begin with `prefix` and that no server uses any more.
pub(crate) fn remove_abandoned(base: &Path, prefix: &str) {
    let mut wait = WaitBudget::new(BUSY);
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| is_name(prefix, name))
            && let Ok(opened) = File::open(entry.path())
        {
            remove_if_abandoned(&entry.path(), &opened, &mut wait);
        }
    }
}

/// Removes an opened group if no server uses it, but not a group that was made at its path since.
fn remove_if_abandoned(path: &Path, opened: &File, wait: &mut WaitBudget) {
    let is_free = try_lock(opened).is_ok_and(|is_mine| is_mine);
    if is_free && is_at(path, opened).is_ok_and(|is_it| is_it) {
        kill(path);
        remove_and_tell(path, wait);
    }
}

/// Kills all processes of a group and of the groups in it, where the kernel can do that at once
/// (version 2, from Linux 5.14 on).
pub(crate) fn kill(path: &Path) {
    // older kernels and version 1 have no such file
    let file = fs::OpenOptions::new().write(true).open(path.join("cgroup.kill"));
    let _ = file.and_then(|mut file| file.write_all(b"1"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_config::Role;
    use std::cell::Cell;

    /// A budget that allows no wait.
    fn none() -> WaitBudget {
        WaitBudget::new(Duration::ZERO)
    }

    /// A directory in which others stand for groups.
    fn folder(test: &str) -> PathBuf {
        let name = format!("forebay-cgroups-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Another supervisor takes a group that is not locked yet for a leftover.
    #[test]
    fn a_group_that_is_removed_before_it_is_locked_is_made_anew() {
        let folder = folder("anew");
        let path = folder.join("forebay-1-0");
        let open = || File::open(&path).unwrap();
        make(&path).unwrap();
        let (early, late) = (open(), open());
        let is_gone = |opened: File| {
            let locked = lock(&path, opened, &mut WaitBudget::default());
            matches!(locked.unwrap(), GroupLock::Gone)
        };
        remove_if_abandoned(&path, &open(), &mut none());
        assert!(!path.exists());
        assert!(is_gone(early), "nothing is at its path");
        make(&path).unwrap();
        assert!(is_gone(late), "another is at its path");
        let locked = make_locked(&path, &mut WaitBudget::default()).unwrap().unwrap();
        assert!(is_at(&path, &locked).unwrap());
        remove_if_abandoned(&path, &open(), &mut none());
        assert!(path.exists(), "it is locked");
        drop(locked);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_group_that_takes_the_place_of_an_abandoned_one_stays() {
        let folder = folder("place");
        let path = folder.join("forebay-1-0");
        make(&path).unwrap();
        let abandoned = File::open(&path).unwrap();
        fs::remove_dir(&path).unwrap();
        let _locked = make_locked(&path, &mut WaitBudget::default()).unwrap().unwrap();
        make(&path.join("respond")).unwrap();
        remove_if_abandoned(&path, &abandoned, &mut none());
        assert!(path.join("respond").exists());
        fs::remove_dir_all(folder).unwrap();
    }

    /// Any user that may read a directory may lock it.
    #[test]
    fn a_lock_that_stays_keeps_no_group_from_being_used() {
        let folder = folder("taken");
        let path = folder.join("forebay-1-0");
        make(&path).unwrap();
        let other = File::open(&path).unwrap();
        assert!(try_lock(&other).unwrap());
        let mut wait = WaitBudget::new(Duration::from_millis(50));
        assert!(make_locked(&path, &mut wait).unwrap().is_none());
        assert_eq!(wait, none());
        let told = taken(&path);
        let names = format!("another process has the control group {} locked: ", path.display());
        assert!(told.starts_with(&names), "{told}");
        // the group may have been removed during the wait
        let opened = File::open(&path).unwrap();
        fs::remove_dir(&path).unwrap();
        let locked = lock(&path, opened, &mut none()).unwrap();
        assert!(matches!(locked, GroupLock::Gone), "{locked:?}");
        assert!(make_locked(&path, &mut none()).unwrap().is_some(), "the new one is free");
        fs::remove_dir_all(folder).unwrap();
    }

    /// The kernel reports EBUSY for a moment after the end of the last process.
    #[test]
    fn a_group_that_is_busy_for_a_moment_is_removed() {
        let tries = Cell::new(0);
        let removed = |busy: u32, mut wait: WaitBudget| {
            tries.set(0);
            let attempt = || -> io::Result<()> {
                tries.set(tries.get() + 1);
                if tries.get() > busy { Ok(()) } else { Err(io::ErrorKind::ResourceBusy.into()) }
            };
            unless_busy(attempt, &mut wait).map_err(|error| error.kind())
        };
        assert_eq!(removed(3, WaitBudget::new(Duration::from_secs(60))), Ok(()));
        assert_eq!(tries.get(), 4);
        assert_eq!(removed(u32::MAX, none()), Err(io::ErrorKind::ResourceBusy));
        assert_eq!(tries.get(), 2, "the last try says why");
    }

    #[test]
    fn a_group_that_cannot_be_removed_is_told_with_its_processes() {
        let folder = folder("left");
        let path = folder.join("forebay-1-0");
        let stage = path.join("respond");
        for role in Role::ALL {
            fs::create_dir_all(path.join(role.name())).unwrap();
        }
        let told = |processes: &str| {
            // in this test's directories a file takes the part of a process
            fs::write(stage.join(PROCESSES), processes).unwrap();
            let left = remove(&path, &mut none());
            let told: Vec<_> = left.iter().map(ToString::to_string).collect();
            told.join("\n").replace(stage.to_str().unwrap(), "PATH")
        };
        let stays = "the control group PATH stays: Directory not empty (os error 39)";
        let until = "the next start removes it if they have ended by then";
        assert_eq!(told("71\n72\n"), format!("{stays}; processes in it: 71, 72; {until}"));
        let many: String = (1..=10).map(|process| format!("{process}\n")).collect();
        let named = "1, 2, 3, 4, 5, 6, 7, 8 and 2 more";
        assert_eq!(told(&many), format!("{stays}; processes in it: {named}; {until}"));
        assert_eq!(told(""), format!("{stays}; the next start tries again to remove it"));
        assert!(!path.join("receive").exists(), "others go");
        fs::remove_file(stage.join(PROCESSES)).unwrap();
        assert!(remove(&path, &mut none()).is_empty() && !path.exists());
        assert!(remove(&path, &mut none()).is_empty(), "it is gone");
        fs::remove_dir(folder).unwrap();
    }
}
