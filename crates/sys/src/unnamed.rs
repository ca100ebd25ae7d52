//! Files without a name (`O_TMPFILE`): no other process finds them, and they are gone when they are
//! closed, also when the process is killed.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The magic numbers of file systems that are in memory: tmpfs and ramfs.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// A new file in the file system of `directory`, for this process alone. May block.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] where the file system has no such files; else the error of the
/// kernel.
pub fn create(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
    match rustix::fs::openat(directory, ".", flags, Mode::RUSR | Mode::WUSR) {
        // a kernel or file system that does not know the flag tries to open a directory for writing
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            Err(io::ErrorKind::Unsupported.into())
        }
        outcome => Ok(outcome?),
    }
}

/// Writes all of `bytes` from `offset` on. May block.
///
/// # Errors
/// The error of the kernel; an interruption is not an error.
pub fn write_all_at(file: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether what is written to the file system of `directory` stays in memory.
///
/// # Errors
/// The error of the kernel.
pub fn is_in_memory(directory: BorrowedFd<'_>) -> io::Result<bool> {
    let magic = rustix::fs::fstatfs(directory)?.f_type;
    // The magic numbers have 32 bits; the field's width and sign differ between architectures.
    Ok(IN_MEMORY.contains(&(magic as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{open_directory, read_at};
    use std::fs;
    use std::os::fd::AsFd;
    use std::path::Path;

    #[test]
    fn a_file_has_no_name_and_what_was_written() {
        let path = std::env::temp_dir().join(format!("forebay-unnamed-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let directory = open_directory(&path).unwrap();
        let file = create(directory.as_fd()).unwrap();
        write_all_at(file.as_fd(), b"hello", 3).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        let mut read = [0; 16];
        assert_eq!(read_at(file.as_fd(), &mut read, 0).unwrap(), 8);
        assert_eq!(&read[..8], b"\0\0\0hello");
        fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn the_kernel_has_none_in_what_it_makes_up() {
        let directory = open_directory(Path::new("/proc/self")).unwrap();
        create(directory.as_fd()).unwrap_err();
        assert!(!is_in_memory(directory.as_fd()).unwrap());
    }
}
