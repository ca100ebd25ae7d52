//! Readiness: which sockets can go on.

pub use crate::eventfd::Bell;
use rustix::event::{Timespec, epoll};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// A set of watched descriptors, edge-triggered for connections.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// The events that a descriptor is reported for once. The kernel always reports the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Once {
    /// Something to read, or its peer has shut down writing.
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

impl Once {
    fn flags(self) -> epoll::EventFlags {
        let read = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        let what = match self {
            Once::Read => read,
            Once::Write => epoll::EventFlags::OUT,
            Once::Both => read | epoll::EventFlags::OUT,
            Once::PeerEnd => epoll::EventFlags::RDHUP,
            Once::End => epoll::EventFlags::empty(),
        };
        what | epoll::EventFlags::ONESHOT
    }
}

/// The events on one descriptor.
#[derive(Clone, Copy, Debug)]
pub struct ReadyDescriptor {
    /// The token that the descriptor was added with.
    pub token: u64,
    /// The descriptor can be read, or its peer has shut down writing.
    pub readable: bool,
    /// The descriptor can be written.
    pub writable: bool,
    /// The peer has shut down writing: the end of the stream is near or reached.
    pub ended: bool,
    /// The connection is gone in both directions, or failed.
    pub broken: bool,
}

/// Room for the events of one wait.
pub struct Events(Vec<epoll::Event>);

impl Events {
    /// Room for `count` events.
    pub fn with_capacity(count: usize) -> Events {
        Events(Vec::with_capacity(count))
    }

    /// Whether the last wait reported nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there may be more events than the last wait reported.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.0.len() == self.0.capacity()
    }

    /// The events of the last wait.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = ReadyDescriptor> + '_ {
        self.0.iter().map(|event| {
            let flags = event.flags;
            ReadyDescriptor {
                token: event.data.u64(),
                readable: flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP),
                writable: flags.contains(epoll::EventFlags::OUT),
                ended: flags.contains(epoll::EventFlags::RDHUP),
                broken: flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR),
            }
        })
    }
}

/// The events that a socket is watched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    /// Whether the socket is watched for something to read.
    pub read: bool,
    /// Whether the socket is watched for room to write.
    pub write: bool,
}

impl Edges {
    fn flags(self) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::ET;
        if self.read {
            flags |= epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        }
        if self.write {
            flags |= epoll::EventFlags::OUT;
        }
        flags
    }
}

impl std::ops::BitOr for Edges {
    type Output = Edges;

    fn bitor(self, other: Edges) -> Edges {
        Edges { read: self.read | other.read, write: self.write | other.write }
    }
}

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    /// Lack of descriptors or memory.
    pub fn new() -> io::Result<Epoll> {
        Ok(Epoll(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Watches a connection for everything, edge-triggered.
    ///
    /// # Errors
    /// Lack of memory or of watches (`fs.epoll.max_user_watches`).
    pub fn add_connection(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        Ok(epoll::add(&self.0, socket, epoll::EventData::new_u64(token), flags)?)
    }

    /// Watches a socket for these events, edge-triggered; also for its end and failure.
    ///
    /// # Errors
    /// The errors of [`add_connection`](Epoll::add_connection); also when the socket is watched
    /// already.
    pub fn add_edges(&self, socket: impl AsFd, token: u64, edges: Edges) -> io::Result<()> {
        Ok(epoll::add(&self.0, socket, epoll::EventData::new_u64(token), edges.flags())?)
    }

    /// Changes the events that an added socket is watched for, and its token. What is ready already
    /// is reported at once.
    ///
    /// # Errors
    /// The socket was not added.
    pub fn change_edges(&self, socket: impl AsFd, token: u64, edges: Edges) -> io::Result<()> {
        Ok(epoll::modify(&self.0, socket, epoll::EventData::new_u64(token), edges.flags())?)
    }

    /// Watches a descriptor for reading, level-triggered.
    ///
    /// # Errors
    /// As [`add_connection`](Epoll::add_connection).
    pub fn add_reader(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
    }

    /// Watches a descriptor for this until it is reported once; then
    /// [`watch_again`](Epoll::watch_again) is needed. So a set can serve several threads.
    ///
    /// # Errors
    /// As [`add_connection`](Epoll::add_connection).
    pub fn add_once(&self, fd: impl AsFd, token: u64, what: Once) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, epoll::EventData::new_u64(token), what.flags())?)
    }

    /// Has a descriptor reported once more, for this and nothing else; at once if it is ready
    /// already.
    ///
    /// # Errors
    /// The descriptor was not added.
    pub fn watch_again(&self, fd: impl AsFd, token: u64, what: Once) -> io::Result<()> {
        Ok(epoll::modify(&self.0, fd, epoll::EventData::new_u64(token), what.flags())?)
    }

    /// Watches like [`add_reader`](Epoll::add_reader), for a descriptor that other sets watch, too:
    /// the kernel wakes only one of the waiting threads, that of the set that has been watching
    /// longest (`EPOLLEXCLUSIVE`).
    ///
    /// # Errors
    /// As [`add_connection`](Epoll::add_connection).
    pub fn add_shared_reader(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        Ok(epoll::add(&self.0, fd, epoll::EventData::new_u64(token), flags)?)
    }

    /// Stops watching a descriptor. A closed descriptor is removed by itself.
    ///
    /// # Errors
    /// The descriptor was not watched.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, fd)?)
    }

    /// Waits until something happens, at most `timeout_ms`; an interrupted wait reports nothing.
    ///
    /// # Errors
    /// None in practice.
    #[inline]
    pub fn wait(&self, events: &mut Events, timeout_ms: u64) -> io::Result<()> {
        let timeout = Timespec {
            tv_sec: (timeout_ms / 1000) as i64,
            tv_nsec: (timeout_ms % 1000 * 1_000_000) as _,
        };
        events.0.clear();
        let spare = rustix::buffer::spare_capacity(&mut events.0);
        match epoll::wait(&self.0, spare, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits like [`wait`](Epoll::wait), with a timeout in nanoseconds: the kernel wakes the thread
    /// some 50 µs late unless its timer slack is smaller ([`crate::process::wake_sharply`]).
    ///
    /// # Errors
    /// `ENOSYS` before Linux 5.11, which has no such call.
    #[inline]
    pub fn wait_ns(&self, events: &mut Events, timeout_ns: u64) -> io::Result<()> {
        let timeout = libc::timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as _,
            tv_nsec: (timeout_ns % 1_000_000_000) as _,
        };
        events.0.clear();
        let spare = events.0.spare_capacity_mut();
        // rustix rounds the timeout up to milliseconds and asks the older call.
        // SAFETY: `spare` is writable for as many events as are announced, and rustix's `Event` has
        // the layout of the kernel's; `timeout` outlives the call; no signal mask is passed.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.0.as_raw_fd(),
                spare.as_mut_ptr(),
                spare.len() as libc::c_int,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            let interrupted = error.kind() == io::ErrorKind::Interrupted;
            return if interrupted { Ok(()) } else { Err(error) };
        }
        // SAFETY: the kernel has written the first `count` events, which is at most `room.len()`.
        unsafe { events.0.set_len(count as usize) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock, process};
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_short_wait_lasts_as_long_as_it_says() {
        process::wake_sharply().unwrap();
        let epoll = Epoll::new().unwrap();
        let mut events = Events::with_capacity(4);
        let (begin_ns, cpu_ns) = (clock::monotonic_ns(), clock::thread_cpu_ns());
        epoll.wait_ns(&mut events, 30_000_000).unwrap();
        let took_ns = clock::monotonic_ns() - begin_ns;
        assert!(events.is_empty() && took_ns >= 30_000_000);
        // the thread sleeps during the wait
        assert!(clock::thread_cpu_ns() - cpu_ns < took_ns);
    }

    #[test]
    fn once_is_once_until_it_is_watched_again() {
        let (epoll, bell) = (Epoll::new().unwrap(), Bell::new().unwrap());
        let mut events = Events::with_capacity(4);
        let mut is_reported = || {
            epoll.wait(&mut events, 0).unwrap();
            !events.is_empty()
        };
        epoll.add_once(&bell, 7, Once::Read).unwrap();
        bell.ring();
        assert!(is_reported() && !is_reported());
        epoll.watch_again(&bell, 7, Once::Read).unwrap();
        assert!(is_reported() && !is_reported());
        epoll.watch_again(&bell, 7, Once::Read).unwrap();
        epoll.watch_again(&bell, 7, Once::End).unwrap();
        assert!(!is_reported());
    }

    #[test]
    fn an_end_is_reported_when_nothing_else_is() {
        let epoll = Epoll::new().unwrap();
        let mut events = Events::with_capacity(4);
        let mut broken = || {
            epoll.wait(&mut events, 0).unwrap();
            events.iter().map(|ready| (ready.token, ready.broken)).collect::<Vec<_>>()
        };
        let (one, other) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        epoll.add_once(&one.0, 1, Once::End).unwrap();
        epoll.add_once(&other.0, 2, Once::Read).unwrap();
        epoll.watch_again(&other.0, 2, Once::End).unwrap();
        for mut peer in [&one.1, &other.1] {
            peer.write_all(b"more").unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
        }
        assert_eq!(broken(), [], "a half close is no end");
        drop((one.1, other.1));
        let mut ends = broken();
        ends.sort_unstable();
        assert_eq!(ends, [(1, true), (2, true)]);
        assert_eq!(broken(), []);
    }

    #[test]
    fn room_is_reported_when_the_peer_has_taken_something() {
        let (epoll, (mut ours, mut theirs)) = (Epoll::new().unwrap(), UnixStream::pair().unwrap());
        ours.set_nonblocking(true).unwrap();
        while ours.write(&[0; 4096]).is_ok() {}
        epoll.add_once(&ours, 3, Once::Write).unwrap();
        let mut events = Events::with_capacity(4);
        let mut writable = || {
            epoll.wait(&mut events, 0).unwrap();
            events.iter().any(|ready| ready.token == 3 && ready.writable)
        };
        theirs.write_all(b"more").unwrap();
        assert!(!writable(), "what has come is not asked for");
        theirs.set_nonblocking(true).unwrap();
        while theirs.read(&mut [0; 4096]).is_ok() {}
        assert!(writable() && !writable());
    }
}
