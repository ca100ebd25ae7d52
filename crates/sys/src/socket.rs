//! Sockets: accept, receive, send, and closing with and without mercy.

pub use crate::listening::{
    ListenOptions, OpenSteps, UNSENT_BYTES, begin_listening, bind, bound_unsent, give_listener,
    ignore_new, listen, listen_timed, listen_unreachable, owner, prepare, report_at_once,
    tune_listener, unsent_bound, welcome_new,
};
use rustix::io::Errno;
use rustix::ioctl::{Getter, ioctl};
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags, sockopt};
use std::io::{self, IoSlice};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The number of connections in the accept queue of a listening socket.
///
/// # Errors
/// The error of the kernel.
pub fn accept_queue(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // for a listening socket this field is the length of the queue, and is read without a lock
    // (Linux 4.0)
    Ok(tcp_info(socket)?.tcpi_unacked)
}

/// The kernel's information on a TCP socket; fields that the kernel does not know are 0.
pub(crate) fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<libc::tcp_info> {
    // SAFETY: `tcp_info` consists of integers only; all zeroes is a value of it.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut length = mem::size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `info` is writable for `length` bytes, `length` is writable, both outlive the call;
    // the descriptor is open because it is borrowed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

/// The address of a Unix socket's end, which has none.
const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The outcome of an accept.
#[derive(Debug)]
pub enum Accepted {
    /// A connection, and the address it comes from; `0.0.0.0:0` for a Unix socket, which has no
    /// address and port.
    Connection(OwnedFd, SocketAddr),
    /// No connection waits.
    None,
    /// The connection failed before it was accepted; there may be more behind it.
    Failed,
    /// No descriptor or memory is left for the connection.
    Exhausted,
}

/// Accepts the next connection, non-blocking.
///
/// # Errors
/// The listener itself is broken.
#[inline]
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Accepted> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match net::acceptfrom_with(listener, flags) {
        Ok((socket, address)) => match address.map(SocketAddr::try_from) {
            Some(Ok(address)) => Ok(Accepted::Connection(socket, canonical(address))),
            // clients of Unix sockets have no name unless they bind one
            Some(Err(_)) | None => Ok(Accepted::Connection(socket, NO_ADDRESS)),
        },
        Err(Errno::AGAIN) => Ok(Accepted::None),
        Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Ok(Accepted::Exhausted),
        Err(Errno::BADF | Errno::INVAL | Errno::NOTSOCK) => {
            Err(io::Error::other("the listener is closed"))
        }
        // errors of the new connection itself are reported here, too (accept(2))
        Err(_) => Ok(Accepted::Failed),
    }
}

/// Turns the IPv4-mapped address of a client of a socket for both versions into an IPv4 address.
#[inline]
fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => address,
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(ip) => (ip, v6.port()).into(),
            None => address,
        },
    }
}

/// The address of this end of a socket.
///
/// # Errors
/// The socket is not an internet socket.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    let address = net::getsockname(socket)?;
    SocketAddr::try_from(address).map_err(|_| io::Error::other("not an internet address"))
}

/// The outcome of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// This many bytes were received.
    Bytes(usize),
    /// Nothing is there now.
    Blocked,
    /// The client has shut down writing.
    Ended,
    /// The connection failed.
    Broken,
}

/// Receives what is there, and never waits, even if another process that has the socket, too, has
/// made it blocking.
#[inline]
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Received {
    match net::recv(socket, buffer, RecvFlags::DONTWAIT) {
        Ok((0, _)) => Received::Ended,
        Ok((count, _)) => Received::Bytes(count),
        Err(Errno::AGAIN | Errno::INTR) => Received::Blocked,
        Err(_) => Received::Broken,
    }
}

/// Receives like [`receive`], appended to `into`: at most `most` bytes, for which no memory is
/// initialised before.
pub fn receive_more(socket: BorrowedFd<'_>, into: &mut Vec<u8>, most: usize) -> Received {
    into.reserve(most);
    let spare = into.spare_capacity_mut();
    let most = most.min(spare.len());
    match net::recv(socket, &mut spare[..most], RecvFlags::empty()) {
        Ok((_, 0)) => Received::Ended,
        Ok(((received, _), count)) => {
            let count = count.min(received.len());
            let len = into.len() + count;
            // SAFETY: rustix has initialised the first `count` bytes of the spare capacity.
            unsafe { into.set_len(len) };
            Received::Bytes(count)
        }
        Err(Errno::AGAIN | Errno::INTR) => Received::Blocked,
        Err(_) => Received::Broken,
    }
}

/// The outcome of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// This many bytes were taken.
    Bytes(usize),
    /// The send buffer is full.
    Blocked,
    /// The connection failed.
    Broken,
}

pub(crate) fn sent(result: rustix::io::Result<usize>) -> Sent {
    match result {
        Ok(count) => Sent::Bytes(count),
        Err(Errno::AGAIN | Errno::INTR) => Sent::Blocked,
        Err(_) => Sent::Broken,
    }
}

/// Sends from one place. With `more`, the kernel may wait for what follows to fill a segment.
#[inline]
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], more: bool) -> Sent {
    let flags = if more { SendFlags::MORE } else { SendFlags::empty() };
    sent(net::send(socket, bytes, flags | SendFlags::NOSIGNAL))
}

/// Sends from two places in one call.
#[inline]
pub fn send_two(socket: BorrowedFd<'_>, first: &[u8], second: &[u8]) -> Sent {
    let slices = [IoSlice::new(first), IoSlice::new(second)];
    let mut control = net::SendAncillaryBuffer::default();
    sent(net::sendmsg(socket, &slices, &mut control, SendFlags::NOSIGNAL))
}

/// A writer that sends what is written to it, for libraries that write what they have in several
/// places.
pub struct SocketWriter<'s>(pub BorrowedFd<'s>);

/// Writes do not block: for a full send buffer, or a connection that is not established yet, they
/// return [`WouldBlock`](io::ErrorKind::WouldBlock).
impl io::Write for SocketWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if let [one] = slices {
            return self.write(one);
        }
        let mut control = net::SendAncillaryBuffer::default();
        Ok(net::sendmsg(self.0, slices, &mut control, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends `count` bytes of a file from `offset` without copying them through this process. Blocks on
/// a file that is not in memory; see [`crate::file`].
///
/// `Bytes(0)` means that the file ends before `offset`.
#[inline]
pub fn send_file(socket: BorrowedFd<'_>, file: BorrowedFd<'_>, offset: u64, count: usize) -> Sent {
    let mut offset = offset;
    sent(rustix::fs::sendfile(socket, file, Some(&mut offset), count))
}

/// Makes a socket non-blocking: reads and writes that cannot be done return at once.
///
/// # Errors
/// None in practice.
pub fn never_wait(socket: BorrowedFd<'_>) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    Ok(fcntl_setfl(socket, fcntl_getfl(socket)? | OFlags::NONBLOCK)?)
}

/// Announces the end of what is sent; the client can still be read.
pub fn shut_down_writing(socket: BorrowedFd<'_>) {
    let _ = net::shutdown(socket, net::Shutdown::Write);
}

/// Makes the coming close send a RST: unread and unsent bytes are dropped on both sides.
///
/// A close with unread bytes does that by itself, but to ask for them costs as much as this call,
/// and [`listen`]'s deferred accept does not guarantee any: not with SYN cookies, and not when its
/// time is over.
pub fn reset_on_close(socket: BorrowedFd<'_>) {
    let _ = sockopt::set_socket_linger(socket, Some(std::time::Duration::ZERO));
}

/// The number of a connection's socket, for a thread that ends the connection and does not own the
/// socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketNumber(RawFd);

impl SocketNumber {
    /// The number of this socket. It stays the socket's until that is closed.
    pub fn of(socket: BorrowedFd<'_>) -> SocketNumber {
        SocketNumber(socket.as_raw_fd())
    }

    /// Ends the connection in both directions, and has the close reset it; a thread that waits for
    /// the socket finds it broken. The caller must make sure that the socket is not closed before.
    pub fn cut(self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        // SAFETY: the kernel reads the option, which lives across the call; a number that is not
        // open is refused.
        unsafe {
            libc::setsockopt(
                self.0,
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const linger).cast(),
                size_of_val(&linger) as libc::socklen_t,
            );
        }
        self.shut(libc::SHUT_RDWR);
    }

    /// Ends the receiving direction: the owner comes to the end after what has arrived. The caller
    /// must make sure that the socket is not closed before.
    pub fn end_reading(self) {
        self.shut(libc::SHUT_RD);
    }

    pub(crate) fn number(self) -> RawFd {
        self.0
    }

    /// The socket with this number.
    pub(crate) fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: the number is used only while the socket is open, as each function here requires
        // of its caller; at worst it is another open one, on which no memory depends.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }

    fn shut(self, how: libc::c_int) {
        // SAFETY: no memory is involved; a number that is not open is refused.
        unsafe {
            libc::shutdown(self.0, how);
        }
    }
}

/// The bytes that were sent and are not yet acknowledged by the client (`SIOCOUTQ`, tcp(7)).
///
/// # Errors
/// The socket is not connected.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: TIOCOUTQ, which is SIOCOUTQ, takes no input and writes one int.
    let queued = unsafe { Getter::<{ libc::TIOCOUTQ as _ }, i32>::new() };
    // SAFETY: see above; `socket` is open while it is borrowed.
    let count = unsafe { ioctl(socket, queued)? };
    Ok(count.max(0) as u64)
}
