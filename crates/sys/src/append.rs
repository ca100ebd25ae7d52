//! The two calls by which a thread writes a log without ever hanging on it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Opens the file `name` in `directory` for appending and creates it (mode 0640) if it is not there.
/// Does not wait for the reader of a FIFO, and writing to one that is full fails instead of waiting.
///
/// # Errors
/// The error of the kernel; `ENXIO` for a FIFO without a reader.
pub fn open_append(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<File> {
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP;
    Ok(File::from(rustix::fs::openat(directory, name, flags | OFlags::NOCTTY, mode)?))
}

/// Waits until something can be written to one of `fds`, at most `timeout`; returns whether it can.
/// To a pipe that is ready, 4096 bytes can be written without waiting (pipe(7)).
///
/// # Errors
/// None in practice; an interrupted wait counts as one that timed out.
pub fn wait_writable<F: AsFd>(fds: &[F], timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    let mut set: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::OUT)).collect();
    match poll(&mut set, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_full_pipe_is_not_writable() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert!(wait_writable(&[&writer], Duration::ZERO).unwrap());
        while wait_writable(&[&writer], Duration::ZERO).unwrap() {
            writer.write_all(&[b'x'; 4096]).unwrap();
        }
        drop(reader);
        // a broken pipe is reported as writable, and the write then returns the error
        assert!(wait_writable(&[&writer], Duration::ZERO).unwrap());
    }
}
