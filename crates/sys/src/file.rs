//! Files: opening beneath a root, opening only regular files, and stamps that show whether a file
//! has changed.

use rustix::fs::{Access, AtFlags, FlockOperation, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The kind of thing that a descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// An ordinary file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, FIFO or socket.
    Special,
}

/// The stamp of a file's state, by which two states are distinguished without reading the file.
///
/// Two equal stamps mean the same bytes, except that a file changed twice within one tick of the
/// kernel's clock (up to 10 ms) may keep its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The kind of the file.
    pub kind: FileKind,
    /// The device that the file is on.
    pub device: u64,
    /// The number of the file on its device.
    pub inode: u64,
    /// The number of the file's names on its device. A change of content does not change it.
    pub links: u32,
    /// The size in bytes.
    pub size: u64,
    /// The last change of the content: nanoseconds since 1970, negative before.
    pub mtime_ns: i64,
    /// The last change of content or attributes, in the same unit.
    pub ctime_ns: i64,
}

/// The meaning of a failure to open or stamp, for the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFailure {
    /// The path leads to nothing, out of the root, or in circles.
    Nowhere,
    /// The path leads to something that this process may not use.
    Denied,
    /// The failure says nothing about the path: descriptors or memory are used up for now.
    Shortage,
    /// The failure says nothing about the path: the file system failed.
    Broken,
}

/// Sorts the errors of this module by what they mean for the path.
pub fn failure(error: &io::Error) -> OpenFailure {
    match error.raw_os_error().unwrap_or(0) {
        libc::ENOENT | libc::ENOTDIR | libc::EISDIR | libc::ENAMETOOLONG | libc::ELOOP => {
            OpenFailure::Nowhere
        }
        // out of the root; NUL in a name; a device or FIFO without its other side
        libc::EXDEV | libc::EINVAL | libc::ENXIO | libc::ENODEV => OpenFailure::Nowhere,
        libc::EACCES | libc::EPERM => OpenFailure::Denied,
        libc::ENFILE | libc::EMFILE | libc::ENOMEM | libc::EAGAIN => OpenFailure::Shortage,
        // rustix reports a NUL in a name without an errno of the kernel's.
        0 if error.kind() == io::ErrorKind::InvalidInput => OpenFailure::Nowhere,
        _ => OpenFailure::Broken,
    }
}

/// Opens a directory as a place to resolve names from. Needs no right to read it.
///
/// # Errors
/// The error of the kernel, `ENOENT` and `ENOTDIR` above all.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a file that an operator names, for reading. Other files than regular ones are refused
/// before they are opened: a FIFO could keep the reader waiting for ever, and opening a device may
/// have effects.
///
/// # Errors
/// The error of the kernel, or that it is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    must_be_regular(&std::fs::metadata(path)?)?;
    let file = open_listed(path)?;
    must_be_regular(&file.metadata()?)?;
    Ok(file)
}

/// Opens a file for reading that its directory has just listed as a regular one, with one call. If
/// it is something else by now, the call does not wait.
///
/// # Errors
/// The error of the kernel.
pub fn open_listed(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

fn must_be_regular(found: &Metadata) -> io::Result<()> {
    let what = match found.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "it is a directory",
        _ => "it is no regular file",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Locks a file for this process alone, until the file is closed, which the kernel does for a
/// process that ends. Returns whether it is locked; if not, another process has the lock.
///
/// # Errors
/// The error of the kernel; some file systems have no locks.
pub fn try_lock(file: impl AsFd) -> io::Result<bool> {
    try_flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Locks a file together with others; no process can lock it [alone](try_lock) until each of them
/// has closed it. Returns whether it is locked; if not, another process has it alone.
///
/// # Errors
/// The errors of [`try_lock`].
pub fn try_lock_shared(file: impl AsFd) -> io::Result<bool> {
    try_flock(file, FlockOperation::NonBlockingLockShared)
}

fn try_flock(file: impl AsFd, operation: FlockOperation) -> io::Result<bool> {
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The extended attribute of a file with this name, if it has one that is no longer than 255 bytes.
pub fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 255];
    let count = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    Some(value[..count].to_vec())
}

/// Locks like [`try_lock_shared`], for a file that only this user may open: waits for a process
/// that has it alone.
///
/// # Errors
/// The errors of [`try_lock`].
pub(crate) fn lock_shared(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::flock(file, FlockOperation::LockShared)?)
}

/// Opens `path` below `root` for reading. Never blocks on a FIFO, never leaves the root.
///
/// `path` is relative; the empty path is the root itself. Opening a device may have effects of its
/// own, so [`find_beneath`] first.
///
/// # Errors
/// `EXDEV` if the path or a link on it leads out of the root, `ELOOP` for magic links and too many
/// links, else as open(2).
pub fn open_beneath(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    beneath(root, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
}

/// Finds `path` below `root` without opening what is there, so that it can be stamped.
///
/// # Errors
/// The errors of [`open_beneath`].
pub fn find_beneath(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    beneath(root, path, OFlags::PATH)
}

/// Finds like [`find_beneath`], but a link at the end of `path` is found itself, not what it points
/// to.
///
/// # Errors
/// The errors of [`open_beneath`].
pub fn find_link_beneath(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    beneath(root, path, OFlags::PATH | OFlags::NOFOLLOW)
}

fn beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut attempts = 0;
    loop {
        match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // The kernel could not prove that `..` stays beneath the root while something was
            // being renamed, or a file system was interrupted: both are worth another try.
            Err(Errno::AGAIN | Errno::INTR) if attempts < 8 => attempts += 1,
            outcome => return Ok(outcome?),
        }
    }
}

/// The names in a directory that [`open_beneath`] opened, in no order, without `.` and `..`; at
/// most `most` of them, and whether these are all.
///
/// # Errors
/// The error of the kernel.
pub fn names(directory: BorrowedFd<'_>, most: usize) -> io::Result<(Vec<Vec<u8>>, bool)> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() == most {
            return Ok((names, false));
        }
        names.push(name.to_vec());
    }
    Ok((names, true))
}

/// The target of a link that [`find_link_beneath`] found.
///
/// # Errors
/// The error of the kernel; `ENOENT` if `link` is not a link.
pub fn link_target(link: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    Ok(rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes())
}

/// The state of an open file.
///
/// # Errors
/// The error of the kernel; file systems over a network may fail here.
pub fn stamp(file: BorrowedFd<'_>) -> io::Result<Stamp> {
    stamp_with(file, c"", AtFlags::EMPTY_PATH)
}

/// The state of an open file as far as this machine knows it: a network file system is not asked.
///
/// # Errors
/// The error of the kernel.
#[inline]
pub fn stamp_known(file: BorrowedFd<'_>) -> io::Result<Stamp> {
    stamp_with(file, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC)
}

/// The state of the file at `path`; links are followed. Takes no descriptor.
///
/// # Errors
/// The errors of stat(2).
pub fn stamp_of(path: &Path) -> io::Result<Stamp> {
    stamp_with(rustix::fs::CWD, path, AtFlags::empty())
}

/// The state of the file at `path` from `root`, which is not opened; a link at its end is not
/// followed. One system call instead of three. But links on the way are followed, out of the root
/// too: before anything about the file is answered, it must be opened with [`open_beneath`] and its
/// state compared.
///
/// # Errors
/// The errors of stat(2).
pub fn stamp_at(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<Stamp> {
    stamp_with(root, path, AtFlags::SYMLINK_NOFOLLOW)
}

fn stamp_with<P: rustix::path::Arg>(
    file: BorrowedFd<'_>,
    path: P,
    flags: AtFlags,
) -> io::Result<Stamp> {
    let wanted = StatxFlags::BASIC_STATS;
    let state = rustix::fs::statx(file, path, flags, wanted)?;
    let kind = match rustix::fs::FileType::from_raw_mode(state.stx_mode.into()) {
        rustix::fs::FileType::RegularFile => FileKind::Regular,
        rustix::fs::FileType::Directory => FileKind::Directory,
        rustix::fs::FileType::Symlink => FileKind::Link,
        _ => FileKind::Special,
    };
    let nanoseconds = |time: rustix::fs::StatxTimestamp| {
        time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.into())
    };
    Ok(Stamp {
        kind,
        device: u64::from(state.stx_dev_major) << 32 | u64::from(state.stx_dev_minor),
        inode: state.stx_ino,
        links: state.stx_nlink,
        size: state.stx_size,
        mtime_ns: nanoseconds(state.stx_mtime),
        ctime_ns: nanoseconds(state.stx_ctime),
    })
}

/// Reads into `buffer` from `offset` on; 0 at the end of the file. May block.
///
/// # Errors
/// The error of the kernel; an interruption is not an error.
pub fn read_at(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match rustix::io::pread(file, &mut *buffer, offset) {
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
    }
}

/// Whether all changes on the file system of `file` are made by this machine, so that inotify
/// reports them. Network and user-space file systems, and those that the kernel makes up, do not
/// report theirs.
///
/// # Errors
/// The error of the kernel.
pub fn reports_changes(file: BorrowedFd<'_>) -> io::Result<bool> {
    const SILENT: [u32; 18] = [
        0x6969,      // NFS
        0xff53_4d42, // CIFS
        0xfe53_4d42, // SMB2
        0x517b,      // SMB
        0x6573_5546, // FUSE, virtiofs
        0x0102_1997, // 9p
        0x5346_414f, // AFS (OpenAFS)
        0x6b41_4653, // AFS (kernel)
        0x7375_7245, // Coda
        0x00c3_6400, // Ceph
        0x0bd0_0bd0, // Lustre
        0x0116_1970, // GFS2
        0x7461_636f, // OCFS2
        0x4750_4653, // GPFS
        0x1983_0326, // BeeGFS
        0x786f_4256, // VirtualBox shared folders
        0x0000_9fa0, // proc
        0x6265_6572, // sysfs
    ];
    let magic = rustix::fs::fstatfs(file)?.f_type;
    // The magic numbers have 32 bits; the field's width and sign differ between architectures.
    Ok(!SILENT.contains(&(magic as u32)))
}

/// Whether this user may make files in a directory, as far as its rights tell.
///
/// # Errors
/// The reason why the user may not.
pub fn may_write(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Whether this user may connect to a Unix socket, as far as its rights tell.
///
/// # Errors
/// The reason why the user may not.
pub fn may_connect(socket: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(socket, Access::WRITE_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn scratch() -> std::path::PathBuf {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-file-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn errno(outcome: io::Result<OwnedFd>) -> i32 {
        outcome.unwrap_err().raw_os_error().unwrap()
    }

    #[test]
    fn nothing_outside_of_the_root_is_opened() {
        let dir = scratch();
        fs::create_dir(dir.join("root")).unwrap();
        fs::write(dir.join("secret"), "s").unwrap();
        fs::write(dir.join("root/page"), "page").unwrap();
        std::os::unix::fs::symlink("../secret", dir.join("root/out")).unwrap();
        std::os::unix::fs::symlink("page", dir.join("root/in")).unwrap();
        let root = open_directory(&dir.join("root")).unwrap();
        let root = root.as_fd();
        for path in [&b"out"[..], b"../secret", b"/etc/passwd"] {
            assert_eq!(errno(open_beneath(root, path)), libc::EXDEV);
        }
        let mut bytes = [0; 8];
        let file = open_beneath(root, b"in").unwrap();
        assert_eq!(read_at(file.as_fd(), &mut bytes, 1).unwrap(), 3);
        assert_eq!(&bytes[..3], b"age");
        let link = find_link_beneath(root, b"in").unwrap();
        assert_eq!(stamp(link.as_fd()).unwrap().kind, FileKind::Link);
        assert_eq!(link_target(link.as_fd()).unwrap(), b"page");
        let directory = open_beneath(root, b"").unwrap();
        assert_eq!(stamp(directory.as_fd()).unwrap().kind, FileKind::Directory);
        let (mut names, are_all) = names(directory.as_fd(), 3).unwrap();
        names.sort();
        assert_eq!((names, are_all), (vec![b"in".to_vec(), b"out".into(), b"page".into()], true));
        assert!(!super::names(directory.as_fd(), 2).unwrap().1);
        fs::remove_dir_all(dir).unwrap();
    }
}
