//! The paths of control sockets, and the removal of sockets that no process listens at.

use foldhash::fast::FixedState;
use forebay_config::ControlSocketChoice;
use forebay_sys::wait_budget::WaitBudget;
use forebay_sys::{process, unix};
use std::ffi::OsStr;
use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The age beyond which a socket without a listener is dead: its server would listen by now.
const OLD: Duration = Duration::from_secs(60);

/// The path of the control socket of the server that runs `file`, if it has one. `auto` is in
/// `/run/forebay` for root, else in `$XDG_RUNTIME_DIR/forebay`, else in a directory of the user's
/// own in the directory for temporary files. The name is derived from the file's path, so that
/// several servers have several sockets.
pub(super) fn path(setting: &ControlSocketChoice, file: &Path) -> Option<PathBuf> {
    match setting {
        ControlSocketChoice::Off => None,
        ControlSocketChoice::At(path) => Some(path.clone()),
        ControlSocketChoice::Auto => {
            let real = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
            Some(directory().join(name(&real)))
        }
    }
}

/// The path at which a command finds the socket. If nothing is at the derived path, links in the
/// path of `file` may lead elsewhere than when the server was started, or the file may be gone:
/// then the command uses the link that the server has made.
pub fn find(setting: &ControlSocketChoice, file: &Path) -> Option<PathBuf> {
    let at = path(setting, file)?;
    let link = at.with_file_name(name(&named(file)));
    let is_linked = *setting == ControlSocketChoice::Auto && !at.exists() && link.exists();
    Some(if is_linked { link } else { at })
}

/// Makes a link by which the socket `at` is also found by the path by which `file` was named. The
/// server that was started last is the one found by that path.
pub(super) fn link(at: &Path, file: &Path) -> Option<PathBuf> {
    let link = at.with_file_name(name(&named(file)));
    let is_free = fs::symlink_metadata(&link).map_or(true, |found| found.is_symlink());
    if link == at || !is_free {
        return None;
    }
    let new = link.with_extension(std::process::id().to_string());
    symlink(at.file_name()?, &new).ok()?;
    fs::rename(&new, &link).ok()?;
    Some(link)
}

/// Removes a link to the socket `at`, but not one that another server has made since.
pub(super) fn unlink(link: &Path, at: &Path) {
    if fs::read_link(link).is_ok_and(|to| Some(to.as_os_str()) == at.file_name()) {
        let _ = fs::remove_file(link);
    }
}

/// The directory for sockets with `auto`.
fn directory() -> PathBuf {
    let user = process::user();
    match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user == 0 => PathBuf::from("/run/forebay"),
        Some(directory) => PathBuf::from(directory).join("forebay"),
        None => std::env::temp_dir().join(format!("forebay-{user}")),
    }
}

/// The file name of the socket for the configuration file with this path.
fn name(path: &Path) -> String {
    let hash = FixedState::default().hash_one(path.as_os_str());
    format!("{hash:016x}.sock")
}

/// The absolute path with its links kept, but with `..` resolved: only the file system knows where
/// that leads.
fn named(file: &Path) -> PathBuf {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let resolved = || {
        let up = absolute.ancestors().find(|path| path.ends_with(".."))?;
        Some(fs::canonicalize(up).ok()?.join(absolute.strip_prefix(up).ok()?))
    };
    resolved().unwrap_or_else(|| absolute.clone())
}

/// Removes sockets without a listener from the directory that `auto` uses: killed servers have left
/// them, and each configuration file has a name of its own there. A socket that was made just now
/// stays: it may belong to a server that does not listen yet, and that could not lock the
/// directory.
pub(super) fn remove_dead(beside: &Path, wait: &mut WaitBudget) {
    remove_dead_since(beside, OLD, wait);
}

/// The other sockets in the directory that `auto` uses: those of servers with other files.
pub fn beside(path: &Path) -> Vec<PathBuf> {
    let entries = path.parent().and_then(|directory| fs::read_dir(directory).ok());
    let others = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let is_other = |other: &PathBuf| other != path && is_our_kind(other) && !other.is_symlink();
    let mut others: Vec<_> = others.filter(is_other).collect();
    others.sort();
    others
}

fn remove_dead_since(beside: &Path, least_age: Duration, wait: &mut WaitBudget) {
    let entries = beside.parent().and_then(|directory| fs::read_dir(directory).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let path = entry.path();
        if path == beside || !is_our_kind(&path) || !is_older(&path, least_age) {
            continue;
        }
        // a socket with a listener stays, and one that cannot be removed does no harm
        let removed = match path.is_symlink() {
            true if path.exists() => continue,
            true => fs::remove_file(&path),
            false => unix::remove_dead(&path, wait),
        };
        // the directory cannot be locked, not for the other sockets either
        if removed.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            return;
        }
    }
}

/// Whether this is a name of the form that [`path`] gives.
fn is_our_kind(path: &Path) -> bool {
    let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or("");
    path.extension() == Some(OsStr::new("sock"))
        && stem.len() == 16
        && stem.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_older(path: &Path, least_age: Duration) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|found| found.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age >= least_age))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A link leads to another version of the file after an update.
    #[test]
    fn a_server_is_found_by_the_path_it_was_started_with_wherever_links_lead() {
        let process = std::process::id();
        let directory = std::env::temp_dir().join(format!("forebay-control-links-{process}"));
        fs::create_dir_all(&directory).unwrap();
        let directory = fs::canonicalize(directory).unwrap();
        let file = |version: &str| {
            fs::create_dir_all(directory.join(version)).unwrap();
            let file = directory.join(version).join("b.toml");
            fs::write(&file, "").unwrap();
            file
        };
        let (first, second) = (file("v1"), file("v2"));
        let lead_to = |version: &str| {
            let _ = fs::remove_file(directory.join("current"));
            symlink(version, directory.join("current")).unwrap();
        };
        let (current, at) =
            (directory.join("current/b.toml"), |file: &Path| directory.join(name(file)));
        let led_to = |file: &Path| fs::canonicalize(at(&named(file))).ok();
        lead_to("v1");
        let _first = UnixListener::bind(at(&first)).unwrap();
        assert_eq!(link(&at(&first), &first), None, "it has that name");
        let of_first = link(&at(&first), &current).unwrap();
        lead_to("v2");
        assert_eq!(led_to(&current), Some(at(&first)));
        assert_eq!(named(&directory.join("v2/../current/./b.toml")), current);
        // two versions at a time, for a while
        let _second = UnixListener::bind(at(&second)).unwrap();
        let of_second = link(&at(&second), &current).unwrap();
        unlink(&of_first, &at(&first));
        assert_eq!((led_to(&current), &of_first), (Some(at(&second)), &of_second));
        assert_eq!(beside(&at(&first)), [at(&second)], "links are no servers");
        let mut wait = WaitBudget::default();
        remove_dead_since(&at(&first), Duration::ZERO, &mut wait);
        assert!(of_second.is_symlink());
        unlink(&of_second, &at(&second));
        assert!(!of_second.is_symlink());
        // the link of a server that was killed
        fs::remove_file(at(&first)).unwrap();
        symlink(at(&first), &of_first).unwrap();
        remove_dead_since(&at(&second), Duration::ZERO, &mut wait);
        assert!(!of_first.is_symlink() && at(&second).exists());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn dead_sockets_are_removed_and_nothing_else() {
        let process = std::process::id();
        let directory = std::env::temp_dir().join(format!("forebay-control-dead-{process}"));
        fs::create_dir_all(&directory).unwrap();
        let names = ["0123456789abcdef.sock", "fedcba9876543210.sock", "mine.sock"];
        let [dead, alive, other] = names.map(|name| directory.join(name));
        for path in [&dead, &other] {
            drop(UnixListener::bind(path).unwrap());
        }
        let _alive = UnixListener::bind(&alive).unwrap();
        let file = directory.join("00000000000000aa.sock");
        fs::write(&file, "").unwrap();
        let own = directory.join("ffffffffffffffff.sock");
        let mut wait = WaitBudget::default();
        remove_dead(&own, &mut wait);
        assert!(dead.exists(), "it may be about to be listened at");
        remove_dead_since(&own, Duration::ZERO, &mut wait);
        assert!(!dead.exists());
        assert!(alive.exists() && other.exists() && file.exists());
        fs::remove_dir_all(directory).unwrap();
    }
}
