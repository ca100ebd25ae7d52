//! Waiting for a few descriptors at once, for threads that serve one connection each.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::BorrowedFd;

/// The events that are waited for on a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollInterest {
    /// Something to read, or the end of the stream.
    Read,
    /// Room to write.
    Write,
    /// Something to read, or room to write.
    Both,
    /// Only that the peer has shut down writing, whatever is left to read, or that the connection
    /// failed.
    PeerEnd,
    /// Only that the connection is gone in both directions, or failed.
    End,
}

/// The state of a descriptor after a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Something that was waited for has happened.
    pub ready: bool,
    /// There is something to read, or the end of the stream.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The peer has shut down writing.
    pub ended: bool,
    /// The connection is gone in both directions, or failed.
    pub broken: bool,
}

/// Waits until one of the descriptors is ready, at most `timeout_ms`. An interrupted wait reports
/// nothing.
///
/// # Errors
/// Lack of memory, or more descriptors than may be open.
pub fn wait<const N: usize>(
    descriptors: [(BorrowedFd<'_>, PollInterest); N],
    timeout_ms: u64,
) -> io::Result<[Readiness; N]> {
    let mut set = descriptors.map(watched);
    poll_all(&mut set, timeout_ms)?;
    Ok(set.each_ref().map(readiness))
}

/// Waits like [`wait`], for any number of descriptors.
///
/// # Errors
/// The errors of [`wait`].
pub fn wait_any(
    descriptors: &[(BorrowedFd<'_>, PollInterest)],
    timeout_ms: u64,
) -> io::Result<Vec<Readiness>> {
    let mut set: Vec<_> = descriptors.iter().copied().map(watched).collect();
    poll_all(&mut set, timeout_ms)?;
    Ok(set.iter().map(readiness).collect())
}

fn watched((fd, interest): (BorrowedFd<'_>, PollInterest)) -> PollFd<'_> {
    let read = PollFlags::IN | PollFlags::RDHUP;
    let flags = match interest {
        PollInterest::Read => read,
        PollInterest::Write => PollFlags::OUT,
        PollInterest::Both => read | PollFlags::OUT,
        PollInterest::PeerEnd => PollFlags::RDHUP,
        PollInterest::End => PollFlags::empty(),
    };
    PollFd::from_borrowed_fd(fd, flags)
}

/// Waits like [`wait`], for reading from any number of descriptors.
///
/// # Errors
/// The errors of [`wait`].
pub fn wait_readable(descriptors: &[BorrowedFd<'_>], timeout_ms: u64) -> io::Result<Vec<bool>> {
    let mut set: Vec<_> =
        descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    poll_all(&mut set, timeout_ms)?;
    Ok(set.iter().map(|fd| !fd.revents().is_empty()).collect())
}

fn poll_all(set: &mut [PollFd<'_>], timeout_ms: u64) -> io::Result<()> {
    let timeout = Timespec {
        tv_sec: (timeout_ms / 1000) as i64,
        tv_nsec: (timeout_ms % 1000 * 1_000_000) as _,
    };
    match poll(set, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn readiness(fd: &PollFd<'_>) -> Readiness {
    let flags = fd.revents();
    Readiness {
        ready: !flags.is_empty(),
        readable: flags.intersects(PollFlags::IN | PollFlags::RDHUP | PollFlags::HUP),
        writable: flags.contains(PollFlags::OUT),
        ended: flags.contains(PollFlags::RDHUP),
        broken: flags.intersects(PollFlags::HUP | PollFlags::ERR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_is_ready_is_told() {
        let (left, mut right) = UnixStream::pair().unwrap();
        let fds = [(left.as_fd(), PollInterest::Read), (right.as_fd(), PollInterest::Write)];
        let [read, write] = wait(fds, 1000).unwrap();
        assert!(!read.ready && write.ready);
        right.write_all(b"x").unwrap();
        assert_eq!(wait_readable(&[left.as_fd(), right.as_fd()], 1000).unwrap(), [true, false]);
        // bytes to read are not what `PeerEnd` waits for
        let [end] = wait([(left.as_fd(), PollInterest::PeerEnd)], 0).unwrap();
        assert!(!end.ready);
        right.shutdown(std::net::Shutdown::Write).unwrap();
        let ends = [PollInterest::PeerEnd, PollInterest::End].map(|end| (left.as_fd(), end));
        let [half, whole] = wait(ends, 1000).unwrap();
        assert!(half.ended && !half.broken && !whole.ready);
        drop(right);
        let [read] = wait([(left.as_fd(), PollInterest::Read)], 1000).unwrap();
        assert!(read.ready && read.ended);
    }
}
