//! Where control sockets are, and which of them nobody listens at.

use crate::config;
use foldhash::fast::FixedState;
use forebay_sys::process;
use std::ffi::OsStr;
use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A socket that is older than this belongs to a server that listens, or to none.
const OLD: Duration = Duration::from_secs(60);

/// Where the control socket of the server that runs `file` is, if it has one. `auto` is in
/// `/run/forebay` for root, else `$XDG_RUNTIME_DIR/forebay`, else a directory of the user's own in
/// the directory for temporary files. The name comes from the path that the file was named by, so that
/// several servers have several sockets, and a server keeps its own when a link on the way there is
/// pointed elsewhere.
pub(super) fn path(setting: &config::ControlSocketChoice, file: &Path) -> Option<PathBuf> {
    match setting {
        config::ControlSocketChoice::Off => None,
        config::ControlSocketChoice::At(path) => Some(path.clone()),
        config::ControlSocketChoice::Auto => Some(directory().join(name(file))),
    }
}

/// Where a command finds the server that runs `file`, if that has a control socket. With `auto` the server
/// may have been started with the path that links lead to: that is where it is if nothing is at the
/// command's own.
pub fn find(setting: &config::ControlSocketChoice, file: &Path) -> Option<PathBuf> {
    match setting {
        config::ControlSocketChoice::Auto => Some(find_in(&directory(), file)),
        _ => path(setting, file),
    }
}

fn find_in(directory: &Path, file: &Path) -> PathBuf {
    let named = directory.join(name(file));
    let real = fs::canonicalize(file).map(|real| directory.join(name(&real)));
    match real {
        Ok(real) if !named.exists() && real.exists() => real,
        _ => named,
    }
}

/// The directory of `auto`.
fn directory() -> PathBuf {
    let user = process::user();
    match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user == 0 => PathBuf::from("/run/forebay"),
        Some(directory) => PathBuf::from(directory).join("forebay"),
        None => std::env::temp_dir().join(format!("forebay-{user}")),
    }
}

/// What the socket of the server that was started with `file` is called there.
fn name(file: &Path) -> String {
    let hash = FixedState::default().hash_one(named(file).as_os_str());
    format!("{hash:016x}.sock")
}

/// The path with its links, but without `..`: only the file system knows where that leads.
fn named(file: &Path) -> PathBuf {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let resolved = || {
        let up = absolute.ancestors().find(|path| path.ends_with(".."))?;
        Some(fs::canonicalize(up).ok()?.join(absolute.strip_prefix(up).ok()?))
    };
    resolved().unwrap_or_else(|| absolute.clone())
}

/// A socket file that no process listens at is left over from a server that was killed.
pub(super) fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match UnixStream::connect(path) {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            // a socket of another kind is another program's
            Err(_) => Err(io::ErrorKind::AlreadyExists.into()),
        },
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => Ok(()),
    }
}

/// Removes sockets that no process listens at from the directory of [`path`]'s own choice: servers that
/// were killed have left them, and each configuration file has a name of its own there. One that was
/// made just now may belong to a server that does not listen yet.
pub(super) fn remove_dead(beside: &Path) {
    remove_dead_since(beside, OLD);
}

/// The other sockets in the directory of [`find`]'s own choice: those of servers with other files.
pub fn beside(path: &Path) -> Vec<PathBuf> {
    let entries = path.parent().and_then(|directory| fs::read_dir(directory).ok());
    let others = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let mut others: Vec<_> = others.filter(|other| other != path && is_our_kind(other)).collect();
    others.sort();
    others
}

fn remove_dead_since(beside: &Path, least_age: Duration) {
    let entries = beside.parent().and_then(|directory| fs::read_dir(directory).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let path = entry.path();
        if path != beside && is_our_kind(&path) && is_older(&path, least_age) {
            // one that is listened at stays, and what cannot be removed does no harm
            let _ = remove_stale(&path);
        }
    }
}

/// Whether this is a name as [`path`] chooses them.
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
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    /// A link that is pointed elsewhere, as at a release, does not hide the server.
    #[test]
    fn a_server_is_found_by_its_path_whatever_links_lead_to() {
        let process = std::process::id();
        let directory = std::env::temp_dir().join(format!("forebay-control-links-{process}"));
        for version in ["v1", "v2"] {
            fs::create_dir_all(directory.join(version)).unwrap();
            fs::write(directory.join(version).join("b.toml"), "").unwrap();
        }
        // its own path has no links
        let directory = fs::canonicalize(directory).unwrap();
        let [current, direct] = ["current/b.toml", "v1/b.toml"].map(|file| directory.join(file));
        symlink("v1", directory.join("current")).unwrap();
        let name_of_server = name(&current);
        assert_ne!(name_of_server, name(&direct));
        assert_eq!(name(&directory.join("v2/../v1/./b.toml")), name(&direct));
        let at = |file: &Path| directory.join(name(file));
        // started with what the link leads to
        let server = UnixListener::bind(at(&direct)).unwrap();
        assert_eq!(find_in(&directory, &current), at(&direct));
        assert_eq!(find_in(&directory, &direct), at(&direct));
        // a server of the link's own comes first
        let _server_of_link = UnixListener::bind(at(&current)).unwrap();
        assert_eq!(find_in(&directory, &current), at(&current));
        drop(server);
        fs::remove_file(directory.join("current")).unwrap();
        symlink("v2", directory.join("current")).unwrap();
        assert_eq!(find_in(&directory, &current), directory.join(&name_of_server));
        fs::remove_dir_all(directory.join("v2")).unwrap();
        assert_eq!(find_in(&directory, &current), directory.join(&name_of_server));
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
        remove_dead(&own);
        assert!(dead.exists(), "it may be about to be listened at");
        remove_dead_since(&own, Duration::ZERO);
        assert!(!dead.exists());
        assert!(alive.exists() && other.exists() && file.exists());
        fs::remove_dir_all(directory).unwrap();
    }
}
