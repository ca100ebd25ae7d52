//! A pipe as a place in the kernel where bytes of a file wait to be sent: on their way from the
//! disk to a client they are never copied into this process.

use crate::pages::AROUND_BYTES;
use crate::socket::{Sent, sent};
use rustix::io::Errno;
use rustix::pipe::{self, PipeFlags, SpliceFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Both ends of a pipe.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
}

impl Pipe {
    /// A pipe that takes this many bytes in whole pages.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`; `EPERM` if it may not have so much room (`/proc/sys/fs/pipe-*`).
    pub fn new(bytes: usize) -> io::Result<Pipe> {
        let (read, write) = pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let capacity = pipe::fcntl_getpipe_size(&write)?;
        let capacity =
            if capacity < bytes { pipe::fcntl_setpipe_size(&write, bytes)? } else { capacity };
        Ok(Pipe { read, write, capacity })
    }

    /// The bytes that the pipe takes in whole pages.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Puts the first `size` bytes of a file into the empty pipe; fewer if the file ends before, or
    /// if there is no more room; and up to [`AROUND_BYTES`] more if it does not end there, as the
    /// file may be read around the page cache ([`pages::read_around`](crate::pages::read_around)).
    /// May block.
    ///
    /// # Errors
    /// The error of the kernel; `EINVAL` where the file system cannot do that. Then something may
    /// be in the pipe.
    pub fn fill(&self, file: BorrowedFd<'_>, size: usize) -> io::Result<usize> {
        let mut done = 0;
        while done < size {
            let mut offset = done as u64;
            let count = (size - done).next_multiple_of(AROUND_BYTES);
            let flags = SpliceFlags::empty();
            match pipe::splice(file, Some(&mut offset), &self.write, None, count, flags) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if done > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }
}

/// The descriptor of a pipe is its reading end.
impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

/// Sends `count` bytes that wait in a pipe; there must be some.
#[inline]
pub fn send(socket: BorrowedFd<'_>, pipe: BorrowedFd<'_>, count: usize) -> Sent {
    sent(pipe::splice(pipe, None, socket, None, count, SpliceFlags::NONBLOCK))
}

/// Takes bytes that wait in a pipe, as many as there is room for; 0 if it is empty and no writer
/// can fill it.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if the pipe is empty.
pub fn read(pipe: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(pipe, &mut *buffer) {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages;
    use std::fs;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_is_in_a_file_comes_out_of_the_socket() {
        // not in /tmp, which may be in memory
        let path = std::env::current_exe().unwrap();
        let path = path.with_file_name(format!("pipe-{}", std::process::id()));
        for size in [0_usize, 1, 4096, 65_000, 65_536, 200_001] {
            let content: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
            fs::write(&path, &content).unwrap();
            for is_around in [false, true] {
                let file = fs::File::open(&path).unwrap();
                if is_around && pages::read_around(file.as_fd(), true).is_err() {
                    eprintln!("SKIPPED: cannot be read around here");
                    continue;
                }
                let capacity = size.next_multiple_of(AROUND_BYTES);
                let pipe = Pipe::new(capacity).unwrap();
                assert!(pipe.capacity() >= capacity);
                assert_eq!(pipe.fill(file.as_fd(), size).unwrap(), size);
                let (ours, mut theirs) = UnixStream::pair().unwrap();
                ours.set_nonblocking(true).unwrap();
                let mut come = Vec::new();
                while come.len() < size {
                    match send(ours.as_fd(), pipe.as_fd(), size - come.len()) {
                        Sent::Bytes(count) => assert!(count > 0),
                        Sent::Blocked => {}
                        Sent::Broken => panic!("broken"),
                    }
                    let mut some = [0; 50_000];
                    let count = theirs.read(&mut some).unwrap();
                    come.extend_from_slice(&some[..count]);
                }
                assert!(come == content, "{size} {is_around}");
                assert_eq!(send(ours.as_fd(), pipe.as_fd(), 1), Sent::Blocked, "it is empty");
                assert_eq!(pipe.fill(file.as_fd(), capacity + 1).unwrap(), size, "and used again");
                let less = size.saturating_sub(5000);
                let more = Pipe::new(capacity).unwrap().fill(file.as_fd(), less).unwrap();
                assert!(more >= less && more < less + AROUND_BYTES, "{size} {less} {more}");
            }
        }
        fs::remove_file(path).unwrap();
    }
}
