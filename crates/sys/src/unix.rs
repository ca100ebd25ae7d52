//! Unix sockets that listen at a path.
//!
//! The path of a listening socket outlives the process that made it. So a file that is in the way is
//! removed if no process listens there, and the file is removed at the end, if it is still the same one.

use rustix::fs::{Mode, chmod};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// For the owner alone.
const PRIVATE: Mode = Mode::from_raw_mode(0o600);

/// For everybody.
const OPEN: Mode = Mode::from_raw_mode(0o666);

/// The file of a listening socket. It is removed when this is dropped, unless another has taken its
/// place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode, as long as it is there.
    identity: Option<(u64, u64)>,
}

/// Opens a listening socket at `path`: non-blocking, and open to every user of the machine (mode
/// 0666). Who may connect is decided by the directory it lies in.
///
/// # Errors
/// `AddrInUse` if a process listens there, `AlreadyExists` if there is a file that is no socket; or
/// what the kernel says.
pub fn listen(path: &Path, backlog: i32) -> io::Result<(OwnedFd, SocketFile)> {
    listen_for(path, backlog, None)
}

/// As [`listen`], for the user of this process: nobody else may connect but root (mode 0600).
///
/// # Errors
/// As [`listen`].
pub fn listen_private(path: &Path, backlog: i32) -> io::Result<(OwnedFd, SocketFile)> {
    let bound = bind(path, PRIVATE, None)?;
    net::listen(&bound.0, backlog)?;
    Ok(bound)
}

/// As [`listen`]; with an owner, by numbers of user and group, nobody else may connect but root.
///
/// # Errors
/// As [`listen`].
pub fn listen_for(
    path: &Path,
    backlog: i32,
    owner: Option<(u32, u32)>,
) -> io::Result<(OwnedFd, SocketFile)> {
    let bound = bind(path, if owner.is_some() { PRIVATE } else { OPEN }, owner)?;
    net::listen(&bound.0, backlog)?;
    Ok(bound)
}

/// A socket that has its path, and its file the mode and the owner that it is to have. It does not listen yet,
/// so that no client gets in before.
fn bind(path: &Path, mode: Mode, owner: Option<(u32, u32)>) -> io::Result<(OwnedFd, SocketFile)> {
    let address = SocketAddrUnix::new(path)?;
    remove_stale(path, &address)?;
    let socket = stream()?;
    net::bind(&socket, &address)?;
    let found = fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.to_owned(), identity: Some((found.dev(), found.ino())) };
    chmod(path, mode)?;
    if let Some((user, group)) = owner {
        std::os::unix::fs::lchown(path, Some(user), Some(group))?;
    }
    Ok((socket, file))
}

fn stream() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Removes what a server left behind that did not end well.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    match net::connect(&stream()?, address) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        Err(Errno::NOENT) => Ok(()),
        // one whose queue is full listens, too
        Ok(()) | Err(Errno::AGAIN) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) => Err(error.into()),
    }
}

impl SocketFile {
    /// Removes it now, unless another has taken its place.
    pub fn remove(&mut self) {
        // once: the number of an inode that is gone may be another's
        let Some(identity) = self.identity.take() else { return };
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == identity) {
            // after a drop of privileges the directory may not be ours any more; the next server
            // removes a file that no process listens at
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Leaves it where it is.
    pub fn leave(mut self) {
        self.identity = None;
    }

    /// Gives the file to another user, who can then remove it from a directory like `/tmp`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn give(&self, user: u32, group: u32) -> io::Result<()> {
        std::os::unix::fs::lchown(&self.path, Some(user), Some(group))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{Accepted, accept};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Where nothing is yet.
    fn path() -> PathBuf {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        std::env::temp_dir().join(format!("forebay-unix-{}-{number}", std::process::id()))
    }

    #[test]
    fn everybody_may_connect_and_has_no_address() {
        let path = path();
        let (socket, file) = listen(&path, 16).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        assert!(matches!(accept(socket.as_fd()).unwrap(), Accepted::None));
        let _client = UnixStream::connect(&path).unwrap();
        match accept(socket.as_fd()).unwrap() {
            Accepted::Connection(_, from) => {
                assert_eq!(from, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
            }
            other => panic!("{other:?}"),
        }
        drop(file);
        assert!(!path.exists());
    }

    /// A moment in which others could connect would be enough for one that waits for it.
    #[test]
    fn a_socket_has_its_mode_before_it_listens() {
        let path = path();
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let (socket, file) = bind(&path, PRIVATE, None).unwrap();
        assert_eq!(mode(), 0o600);
        let refused = UnixStream::connect(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        drop((socket, file));
        assert!(!path.exists());
        let (_socket, _file) = listen_private(&path, 1).unwrap();
        assert_eq!(mode(), 0o600);
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn only_what_nobody_listens_at_is_removed() {
        let path = path();
        drop(UnixListener::bind(&path).unwrap());
        let (_socket, file) = listen(&path, 0).unwrap();
        let refused = || listen(&path, 1).unwrap_err().kind();
        assert_eq!(refused(), io::ErrorKind::AddrInUse);
        // its queue is full now, with the connection that asked
        assert_eq!(refused(), io::ErrorKind::AddrInUse);
        drop(file);
        fs::write(&path, "precious").unwrap();
        assert_eq!(refused(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_file_of_another_server_stays() {
        let path = path();
        let (_socket, file) = listen(&path, 16).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(UnixStream::connect(&path).is_ok());
        fs::remove_file(&path).unwrap();
    }
}
