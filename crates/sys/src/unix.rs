//! Unix sockets that listen at a path.
//!
//! The path of a listening socket outlives the process that made it. So a file in the way is
//! removed if no process listens there, and the socket's own file is removed at the end, if it is
//! still the same one.
//!
//! A socket that is bound and does not listen yet looks like one that is left over. So a process
//! keeps the directory locked from its look at what is in the way until it listens. The kernel
//! releases the lock of a process that is killed. A lock file beside the socket would be one more
//! to remove, and would need a right to write files there that a confined server does not have. A
//! socket that listens under another name first, and is renamed, keeps that name in the kernel's
//! `getsockname`, by which a process recognises sockets that are passed to it.

use crate::file::try_lock;
use crate::unix_address::UnixAddress;
use crate::wait_budget::WaitBudget;
use rustix::fs::{Mode, OFlags, chmod};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The mode of a socket for its owner alone.
const PRIVATE: Mode = Mode::from_raw_mode(0o600);

/// The mode of a socket for every user.
const OPEN: Mode = Mode::from_raw_mode(0o666);

/// The file of a listening socket. Dropping this removes the file, unless another one has taken its
/// place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode, as long as this process has to remove the file.
    identity: Option<(u64, u64)>,
}

/// Opens a listening socket at `path`: non-blocking, and open to every user of the machine (mode
/// 0666). The rights of its directory decide which users may connect.
///
/// A directory that another process has locked is waited for within the budget. After that the
/// socket is made without the lock: any user who may read a directory may lock it, and must not
/// keep a server from starting.
///
/// # Errors
/// `AddrInUse` if a process listens there, `AlreadyExists` if there is a file that is no socket, or
/// a socket of another kind; or the error of the kernel.
pub fn listen(
    path: &Path,
    backlog: i32,
    wait: &mut WaitBudget,
) -> io::Result<(OwnedFd, SocketFile)> {
    listen_within(wait, path, backlog, OPEN, None)
}

/// Listens like [`listen`], for the user of this process: only that user and root may connect (mode
/// 0600).
///
/// # Errors
/// The errors of [`listen`].
pub fn listen_private(
    path: &Path,
    backlog: i32,
    wait: &mut WaitBudget,
) -> io::Result<(OwnedFd, SocketFile)> {
    listen_within(wait, path, backlog, PRIVATE, None)
}

/// Listens like [`listen`], in a directory where no other process makes sockets, so no lock is
/// waited for. With an owner, by numbers of user and group, only that user and root may connect.
///
/// # Errors
/// The errors of [`listen`].
pub fn listen_for(
    path: &Path,
    backlog: i32,
    owner: Option<(u32, u32)>,
) -> io::Result<(OwnedFd, SocketFile)> {
    let mode = if owner.is_some() { PRIVATE } else { OPEN };
    // a process that has it locked is one of the server's own, whose place was taken over
    listen_within(&mut WaitBudget::new(Duration::ZERO), path, backlog, mode, owner)
}

/// Opens a listening socket at an abstract name: non-blocking, and open to every process in the
/// network namespace.
///
/// # Errors
/// `AddrInUse` if a process has the name, or the error of the kernel.
pub fn listen_abstract(address: &UnixAddress, backlog: i32) -> io::Result<OwnedFd> {
    let socket = stream()?;
    net::bind(&socket, &address.to_kernel()?)?;
    net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Removes the file of a socket that no process listens at.
///
/// # Errors
/// `WouldBlock` if the directory cannot be locked within the budget; else the errors of [`listen`].
pub fn remove_dead(path: &Path, wait: &mut WaitBudget) -> io::Result<()> {
    let Some(_lock) = lock_directory(path, wait) else {
        return Err(io::ErrorKind::WouldBlock.into());
    };
    remove_stale(path, &SocketAddrUnix::new(path)?)
}

/// Listens at a path where no process does, and waits within the budget while another process
/// begins to.
fn listen_within(
    wait: &mut WaitBudget,
    path: &Path,
    backlog: i32,
    mode: Mode,
    owner: Option<(u32, u32)>,
) -> io::Result<(OwnedFd, SocketFile)> {
    // without locks, two processes that start at the same moment may both listen here
    let _lock = lock_directory(path, wait);
    let bound = bind(path, mode, owner)?;
    net::listen(&bound.0, backlog)?;
    Ok(bound)
}

/// Locks the directory of a path, until what this returns is closed, which the kernel does for a
/// process that is killed. Returns `None` if another process has it locked for all the time that is
/// left, or it has no locks, or may not be read.
fn lock_directory(path: &Path, wait: &mut WaitBudget) -> Option<OwnedFd> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // a FIFO in its place would block the open
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let lock = rustix::fs::open(directory, flags, Mode::empty()).ok()?;
    let is_locked = wait.until_locked(|| try_lock(&lock));
    is_locked.is_ok_and(|is_mine| is_mine).then_some(lock)
}

/// Binds a socket to its path, with the mode and the owner that its file must have. It does not
/// listen yet, so that no client connects before. The directory must stay locked until it listens.
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

/// Connects to the socket at a path, and does not wait where its queue is full. The connection
/// itself blocks.
///
/// # Errors
/// `NotFound`, `ConnectionRefused` if no process listens there, `WouldBlock` if the queue is full,
/// [another kind](is_of_another_kind), or another error of the kernel.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = stream()?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

/// Whether the error is that a socket is of another kind than those here, such as one of datagrams.
pub fn is_of_another_kind(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::PROTOTYPE)
}

/// Makes this process the owner of a listening socket, as the kernel reports it to processes that
/// connect: that is the process that has called listen(2) last, and not the one that accepts.
///
/// # Errors
/// The error of the kernel.
pub fn listen_again(socket: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    Ok(net::listen(socket, backlog)?)
}

/// The process that has the other end of a connection; `None` if this process cannot see it.
///
/// # Errors
/// The error of the kernel.
pub fn peer_process(connection: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `found`, of which any bits are a value
    let result = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut len,
        )
    };
    match result {
        0 => Ok(u32::try_from(found.pid).ok().filter(|pid| *pid > 0)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn stream() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Removes the file that a server has left behind which did not end well. The directory must be
/// locked.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    match net::connect(&stream()?, address) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        Err(Errno::NOENT) => Ok(()),
        // a socket whose queue is full listens, too
        Ok(()) | Err(Errno::AGAIN) => Err(io::ErrorKind::AddrInUse.into()),
        // a socket of datagrams belongs to another program
        Err(Errno::PROTOTYPE) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) => Err(error.into()),
    }
}

impl SocketFile {
    /// Removes the file now, unless another one has taken its place.
    pub fn remove(&mut self) {
        // once only, as the number of an inode that is gone may become another's
        let Some(identity) = self.identity.take() else { return };
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == identity) {
            // after a change of user this process may not write the directory; the next server
            // removes a file that no process listens at
            let _ = fs::remove_file(&self.path);
        }
    }

    /// The file of a socket that another process has opened and lends this one. It is not removed,
    /// until this process [owns](SocketFile::own) it.
    pub fn lent(path: &Path) -> SocketFile {
        SocketFile { path: path.to_owned(), identity: None }
    }

    /// Whether another process removes the file.
    pub fn is_lent(&self) -> bool {
        self.identity.is_none()
    }

    /// Has this process remove the file.
    pub fn own(&mut self) {
        let found = fs::symlink_metadata(&self.path).ok().filter(|at| at.file_type().is_socket());
        self.identity = found.map(|found| (found.dev(), found.ino()));
    }

    /// Has another process remove the file.
    pub fn lend(&mut self) {
        self.identity = None;
    }

    /// Leaves the file where it is.
    pub fn leave(mut self) {
        self.identity = None;
    }

    /// Gives the file to another user, who can then remove it from a directory like `/tmp`.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn give(&self, user: u32, group: u32) -> io::Result<()> {
        if self.identity.is_none() {
            // another process may have put anything in the file's place
            return Ok(());
        }
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
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    /// A budget for what is sure to come.
    fn long() -> WaitBudget {
        WaitBudget::new(Duration::from_secs(60))
    }

    /// A budget without any wait.
    fn none() -> WaitBudget {
        WaitBudget::new(Duration::ZERO)
    }

    /// A path where no file is yet.
    fn path() -> PathBuf {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        std::env::temp_dir().join(format!("forebay-unix-{}-{number}", std::process::id()))
    }

    /// A directory that no other test locks.
    fn folder() -> PathBuf {
        let folder = path();
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn everybody_may_connect_and_has_no_address() {
        let path = path();
        let (socket, file) = listen(&path, 16, &mut long()).unwrap();
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

    /// If others could connect for a moment, a process that waits for that would succeed.
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
        let (_socket, _file) = listen_private(&path, 1, &mut long()).unwrap();
        assert_eq!(mode(), 0o600);
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn only_what_nobody_listens_at_is_removed() {
        let path = path();
        drop(UnixListener::bind(&path).unwrap());
        let (_socket, file) = listen(&path, 0, &mut long()).unwrap();
        let refused = || listen(&path, 1, &mut long()).unwrap_err().kind();
        assert_eq!(refused(), io::ErrorKind::AddrInUse);
        // the queue is full now, with the connection that asked
        assert_eq!(refused(), io::ErrorKind::AddrInUse);
        drop(file);
        fs::write(&path, "precious").unwrap();
        assert_eq!(refused(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
        let _other = UnixDatagram::bind(&path).unwrap();
        assert_eq!(refused(), io::ErrorKind::AlreadyExists);
        fs::remove_file(&path).unwrap();
    }

    /// Between the two steps the socket refuses connections, as one that is left over does.
    #[test]
    fn a_socket_that_does_not_listen_yet_is_not_taken_for_a_dead_one() {
        let folder = folder();
        let path = folder.join("socket");
        let lock = lock_directory(&path, &mut none()).unwrap();
        let (socket, file) = bind(&path, PRIVATE, None).unwrap();
        let refused = UnixStream::connect(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert!(lock_directory(&path, &mut none()).is_none(), "another may look at it");
        let begin = || listen_private(&path, 16, &mut long()).map(drop);
        thread::scope(|scope| {
            let other = scope.spawn(begin);
            net::listen(&socket, 16).unwrap();
            drop(lock);
            let refused = other.join().unwrap().unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        });
        assert!(UnixStream::connect(&path).is_ok());
        drop((socket, file));
        fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn of_servers_that_start_at_once_one_listens() {
        const SERVERS: usize = 8;
        let folder = folder();
        let path = folder.join("socket");
        let start = Barrier::new(SERVERS);
        let begin = || {
            start.wait();
            listen_private(&path, 16, &mut long())
        };
        for _ in 0..20 {
            // the file of a server that was killed
            drop(UnixListener::bind(&path).unwrap());
            let begun: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> = (0..SERVERS).map(|_| scope.spawn(begin)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let refused = begun.iter().filter_map(|outcome| outcome.as_ref().err());
            let refused: Vec<_> = refused.map(io::Error::kind).collect();
            assert_eq!(refused, [io::ErrorKind::AddrInUse; SERVERS - 1]);
            assert!(UnixStream::connect(&path).is_ok(), "the one that listens is found");
        }
        fs::remove_dir(folder).unwrap();
    }

    /// Any user who may read a directory may lock it.
    #[test]
    fn a_lock_that_stays_keeps_no_server_from_starting_and_is_waited_for_once() {
        let folder = folder();
        let [path, private, dead] = ["path", "private", "dead"].map(|name| folder.join(name));
        for path in [&path, &dead] {
            drop(UnixListener::bind(path).unwrap());
        }
        let lock = lock_directory(&path, &mut none()).unwrap();
        let mut wait = WaitBudget::new(Duration::from_millis(50));
        let (_socket, file) = listen(&path, 16, &mut wait).unwrap();
        assert_eq!(wait, none(), "nothing is left for the others");
        let (_private_socket, private_file) = listen_private(&private, 16, &mut wait).unwrap();
        assert!(UnixStream::connect(&path).is_ok() && UnixStream::connect(&private).is_ok());
        let refused = remove_dead(&dead, &mut wait).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        // a process that another test starts may have the lock for a moment
        remove_dead(&dead, &mut long()).unwrap();
        drop((file, private_file));
        fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn a_dead_socket_is_removed_and_one_that_listens_stays() {
        let (first, second) = (folder(), folder());
        let [dead, alive] = [&first, &second].map(|folder| folder.join("socket"));
        drop(UnixListener::bind(&dead).unwrap());
        remove_dead(&dead, &mut long()).unwrap();
        assert!(!dead.exists());
        let _alive = UnixListener::bind(&alive).unwrap();
        let refused = remove_dead(&alive, &mut long()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert!(UnixStream::connect(&alive).is_ok());
        fs::remove_dir(first).unwrap();
        fs::remove_dir_all(second).unwrap();
    }

    #[test]
    fn the_file_of_another_server_stays() {
        let path = path();
        let (_socket, file) = listen(&path, 16, &mut long()).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(UnixStream::connect(&path).is_ok());
        fs::remove_file(&path).unwrap();
    }
}
