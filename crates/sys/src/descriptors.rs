//! Descriptors that one process gives another through a connected pair of Unix sockets.
//!
//! In: a connection, and descriptors. Out: duplicates of them in the other process, in the same
//! order. They are sent in pieces, as the kernel passes on 253 at a time at most.

use rustix::io::Errno;
use rustix::net::{
    self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The number of descriptors in a piece.
const PIECE: usize = 64;

/// Gives these descriptors. The other end must take as many.
///
/// # Errors
/// The error of the kernel; some descriptors may have been given.
pub fn give(connection: impl AsFd, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    for piece in descriptors.chunks(PIECE) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PIECE))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        beside.push(SendAncillaryMessage::ScmRights(piece));
        // descriptors need at least one byte that carries them
        let byte = [IoSlice::new(b"+")];
        again(|| net::sendmsg(&connection, &byte, &mut beside, SendFlags::NOSIGNAL))?;
    }
    Ok(())
}

/// Takes this many descriptors, close-on-exec.
///
/// # Errors
/// `UnexpectedEof` if fewer were given; or the error of the kernel.
pub fn take(connection: impl AsFd, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut taken = Vec::with_capacity(count);
    while taken.len() < count {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PIECE))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = again(|| {
            net::recvmsg(&connection, &mut [IoSliceMut::new(&mut byte)], &mut beside, flags)
        })?;
        let before = taken.len();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                taken.extend(descriptors);
            }
        }
        // without room for descriptors the kernel gives fewer, or none
        if received.bytes == 0 || taken.len() < (before + PIECE).min(count) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(taken)
}

fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;
    use std::thread;

    #[test]
    fn more_than_the_kernel_passes_at_once_arrive_in_order() {
        let (a, b) = UnixStream::pair().unwrap();
        let files = ["/dev/null", "/dev/zero", "/dev/full"];
        let files: Vec<_> = (0..300).map(|at| File::open(files[at % 3]).unwrap()).collect();
        let number = |file: &File| file.metadata().unwrap().rdev();
        let expected: Vec<_> = files.iter().map(number).collect();
        let giver = thread::spawn(move || {
            let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            give(&a, &borrowed).unwrap();
        });
        let taken = take(&b, 300).unwrap();
        giver.join().unwrap();
        let taken: Vec<_> = taken.into_iter().map(|fd| number(&File::from(fd))).collect();
        assert_eq!(taken, expected);
    }

    #[test]
    fn fewer_than_expected_are_an_error() {
        let (a, b) = UnixStream::pair().unwrap();
        give(&a, &[a.as_fd()]).unwrap();
        drop(a);
        assert_eq!(take(&b, 2).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
