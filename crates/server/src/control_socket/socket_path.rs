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
/// the directory for temporary files. The name comes from the file's path, so that several servers
/// have several sockets.
pub fn path(setting: &config::ControlSocketChoice, file: &Path) -> Option<PathBuf> {
    match setting {
        config::ControlSocketChoice::Off => return None,
        config::ControlSocketChoice::At(path) => return Some(path.clone()),
        config::ControlSocketChoice::Auto => {}
    }
    let absolute = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let hash = FixedState::default().hash_one(absolute.as_os_str());
    let user = process::user();
    let directory = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user == 0 => PathBuf::from("/run/forebay"),
        Some(directory) => PathBuf::from(directory).join("forebay"),
        None => std::env::temp_dir().join(format!("forebay-{user}")),
    };
    Some(directory.join(format!("{hash:016x}.sock")))
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

/// The other sockets in the directory of [`path`]'s own choice: those of servers with other files.
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
    use std::os::unix::net::UnixListener;

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
