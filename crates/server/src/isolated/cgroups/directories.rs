//! The directories of groups: made and locked, and removed when nobody uses them.
//!
//! Who uses a group holds a lock on its directory. Between its making and its lock another supervisor may find it,
//! and remove it as one that is left over. So whoever has locked a directory looks whether it is still the one at
//! its path.

use super::{Missing, refused};
use crate::isolated::links::is_name;
use crate::isolated::role::Role;
use crate::stderr::say;
use forebay_sys::file::{lock_shared, try_lock};
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file that says which processes are in a group.
pub(super) const PROCESSES: &str = "cgroup.procs";

/// So often a group is made anew that others remove before it is locked. Each supervisor looks once for groups to
/// remove.
const MOST_TRIES: usize = 100;

/// Makes a group, or takes that which is there.
pub(super) fn make(path: &Path) -> Result<(), Missing> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(refused(path)(error)),
        _ => Ok(()),
    }
}

/// Makes a group, or takes that which is there, and keeps other supervisors from removing it for as long as what
/// this returns is open.
pub(super) fn make_locked(path: &Path) -> Result<File, Missing> {
    for _ in 0..MOST_TRIES {
        make(path)?;
        let locked = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.and_then(|opened| lock(path, opened)),
        };
        if let Some(lock) = locked.map_err(refused(path))? {
            return Ok(lock);
        }
    }
    Err(refused(path)(io::Error::other("it is removed as often as it is made")))
}

/// Locks a group that was opened; `None` if another supervisor has removed it before.
fn lock(path: &Path, opened: File) -> io::Result<Option<File>> {
    lock_shared(&opened)?;
    Ok(is_at(path, &opened)?.then_some(opened))
}

/// Whether a directory that was opened is still the one at its path. For as long as it is open, no other has its
/// number.
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
    /// The numbers of those in it, apart by white space.
    processes: String,
}

/// So many processes of a group that is left are named.
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

/// Removes a group with those of stages in it, if no process is in them, and returns those that stay. Where one of a
/// stage stays, so does the group around it, which needs no word.
fn remove(path: &Path) -> Vec<LeftGroup> {
    let stages = Role::ALL.into_iter().map(|role| path.join(role.name()));
    let mut left: Vec<_> = stages.filter_map(remove_one).collect();
    let around = remove_one(path.to_owned());
    if left.is_empty() {
        left.extend(around);
    }
    left
}

fn remove_one(path: PathBuf) -> Option<LeftGroup> {
    match fs::remove_dir(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let processes = fs::read_to_string(path.join(PROCESSES)).unwrap_or_default();
            Some(LeftGroup { path, error, processes })
        }
        _ => None,
    }
}

/// Removes a group with those of stages in it, and tells which stay.
pub(super) fn remove_and_tell(path: &Path) {
    remove(path).iter().for_each(|left| say(format_args!("{left}")));
}

/// Removes groups of generations that nobody uses any more.
pub(super) fn remove_abandoned(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_name)
            && let Ok(opened) = File::open(entry.path())
        {
            remove_if_abandoned(&entry.path(), &opened);
        }
    }
}

/// Removes a group that was opened, if nobody uses it: not one that has been made at its path since.
fn remove_if_abandoned(path: &Path, opened: &File) {
    let is_free = try_lock(opened).is_ok_and(|is_mine| is_mine);
    if is_free && is_at(path, opened).is_ok_and(|is_it| is_it) {
        remove_and_tell(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory in which others stand for groups.
    fn folder(test: &str) -> PathBuf {
        let name = format!("forebay-cgroups-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// It is found by another supervisor, to which it looks like one that is left over.
    #[test]
    fn a_group_that_is_removed_before_it_is_locked_is_made_anew() {
        let folder = folder("anew");
        let path = folder.join("forebay-1-0");
        let open = || File::open(&path).unwrap();
        make(&path).unwrap();
        let (early, late) = (open(), open());
        remove_if_abandoned(&path, &open());
        assert!(!path.exists());
        assert!(lock(&path, early).unwrap().is_none(), "nothing is at its path");
        make(&path).unwrap();
        assert!(lock(&path, late).unwrap().is_none(), "another is at its path");
        let locked = make_locked(&path).unwrap();
        assert!(is_at(&path, &locked).unwrap());
        remove_if_abandoned(&path, &open());
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
        let _locked = make_locked(&path).unwrap();
        make(&path.join("respond")).unwrap();
        remove_if_abandoned(&path, &abandoned);
        assert!(path.join("respond").exists());
        fs::remove_dir_all(folder).unwrap();
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
            // what is in the way in a directory is a file
            fs::write(stage.join(PROCESSES), processes).unwrap();
            let told: Vec<_> = remove(&path).iter().map(ToString::to_string).collect();
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
        assert!(remove(&path).is_empty() && !path.exists());
        assert!(remove(&path).is_empty(), "it is gone");
        fs::remove_dir(folder).unwrap();
    }
}
