//! A client's socket that another process has for a while: it is given with the first bytes of a
//! message (`SCM_RIGHTS`, unix(7)), and what that process does to it shows on the descriptor that
//! stays here.
//!
//! Both descriptors are of one open file: a change of `O_NONBLOCK` by the other process holds here,
//! too, and a connection ends only when both are closed, or when one of them shuts it down.

use crate::socket::{Sent, SocketNumber, sent, unacknowledged};
use rustix::io::{Errno, ioctl_fionbio, ioctl_fionread};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// The offset of `tcpi_bytes_acked` (Linux 4.1) in the kernel's `struct tcp_info`; the C library's
/// structure is too short.
const BYTES_ACKED: usize = 120;

/// The bytes of the structure up to the end of that member.
const INFO_BYTES: usize = BYTES_ACKED + 8;

/// The number of further looks when a client has acknowledged something meanwhile.
const MOST_LOOKS: u32 = 8;

/// Makes the two ends of a connection, neither of which blocks: one for this process, and one that
/// another process gets instead of a client's socket.
///
/// # Errors
/// Lack of descriptors.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// The error that the kernel takes no more descriptors from this user before others have received
/// some that are on their way (ETOOMANYREFS, unix(7)). Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyInFlight;

/// Sends these bytes over a Unix socket, and a descriptor with the first of them: the process that
/// receives that byte has it.
///
/// # Errors
/// [`TooManyInFlight`].
pub fn send_with(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    given: BorrowedFd<'_>,
) -> Result<Sent, TooManyInFlight> {
    let sockets = [given];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&sockets));
    match net::sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL) {
        Err(Errno::TOOMANYREFS) => Err(TooManyInFlight),
        result => Ok(sent(result)),
    }
}

/// Receives some bytes, and the descriptor that was [sent with](send_with) them: for receivers.
///
/// # Errors
/// As `recvmsg` has them.
pub fn receive_with(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let slices = &mut [IoSliceMut::new(bytes)];
    let received = net::recvmsg(socket, slices, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let mut given = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    Ok((received.bytes, given.next()))
}

/// Shuts a connection down in both directions. What has come before can still be received.
pub fn shut_down(socket: BorrowedFd<'_>) {
    let _ = net::shutdown(socket, net::Shutdown::Both);
}

/// Ends this direction of a connection: the other side comes to the end after what was sent.
pub fn end_sending(socket: BorrowedFd<'_>) {
    let _ = net::shutdown(socket, net::Shutdown::Write);
}

/// The bytes that were sent on a TCP connection since it began, by whichever process; its end
/// counts as one. `None` for other sockets.
pub fn written(socket: BorrowedFd<'_>) -> Option<u64> {
    let mut before = acknowledged(socket)?;
    let mut looks = MOST_LOOKS;
    loop {
        let rest = unacknowledged(socket).ok()?;
        let after = acknowledged(socket)?;
        looks -= 1;
        // what is acknowledged between the two looks would be missing in both
        if after == before || looks == 0 {
            return Some(before + rest);
        }
        before = after;
    }
}

/// The number of those bytes that the client has.
fn acknowledged(socket: BorrowedFd<'_>) -> Option<u64> {
    let mut info = [0u8; INFO_BYTES];
    let mut length = mem::size_of_val(&info) as libc::socklen_t;
    // SAFETY: `info` is writable for `length` bytes, `length` is writable, both outlive the call;
    // the descriptor is open because it is borrowed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 || (length as usize) < INFO_BYTES {
        return None;
    }
    Some(u64::from_ne_bytes(*info.last_chunk()?))
}

/// Whether something has arrived that no process has received.
pub fn has_unread(socket: BorrowedFd<'_>) -> bool {
    ioctl_fionread(socket).is_ok_and(|count| count > 0)
}

/// Makes a socket non-blocking again, which another process may have made blocking.
pub fn take_back(socket: BorrowedFd<'_>) {
    // the kernel accepts this for every socket
    let _ = ioctl_fionbio(socket, true);
}

impl SocketNumber {
    /// Returns the same as [`written`], for a thread that does not own the socket. The caller must
    /// make sure that the socket is not closed before.
    pub fn written(self) -> Option<u64> {
        written(self.borrow())
    }

    /// Returns the same as [`has_unread`], for a thread that does not own the socket. The caller
    /// must make sure that the socket is not closed before.
    pub fn has_unread(self) -> bool {
        has_unread(self.borrow())
    }

    /// Resets the connection at once, also if another process has the socket open, so that its
    /// client knows that what has arrived is not all. No process can use it any more. The caller
    /// must make sure that the socket is not closed before.
    pub fn reset(self) {
        // connect(2) with no address dissolves a TCP connection, which sends a RST
        let nowhere = libc::sockaddr { sa_family: libc::AF_UNSPEC as _, sa_data: [0; 14] };
        // SAFETY: the kernel reads the address, which lives across the call; a number that is not
        // open is refused.
        unsafe {
            libc::connect(
                self.number(),
                &raw const nowhere,
                mem::size_of_val(&nowhere) as libc::socklen_t,
            );
        }
        // for other sockets, and where the kernel refuses that because a thread waits for the
        // socket
        self.cut();
    }

    /// Does the same as [`take_back`], for a thread that does not own the socket. The caller must
    /// make sure that the socket is not closed before.
    pub fn take_back(self) {
        take_back(self.borrow());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn a_descriptor_goes_with_the_first_byte() {
        let (mut client, server) = connection();
        let (here, there) = UnixStream::pair().unwrap();
        assert_eq!(send_with(here.as_fd(), b"hello", server.as_fd()), Ok(Sent::Bytes(5)));
        let mut bytes = [0; 2];
        let (count, given) = receive_with(there.as_fd(), &mut bytes).unwrap();
        assert_eq!((count, &bytes), (2, b"he"));
        assert_eq!(receive_with(there.as_fd(), &mut [0; 9]).unwrap().0, 3);
        let mut given = TcpStream::from(given.unwrap());
        given.write_all(b"from elsewhere").unwrap();
        drop((given, server));
        let mut all = String::new();
        client.read_to_string(&mut all).unwrap();
        assert_eq!(all, "from elsewhere");
        drop(there);
        assert_eq!(send_with(here.as_fd(), b"hello", client.as_fd()), Ok(Sent::Broken));
    }

    #[test]
    fn what_another_process_has_written_is_seen() {
        let (mut client, mut server) = connection();
        assert_eq!(written(server.as_fd()), Some(0));
        server.write_all(b"12345").unwrap();
        assert_eq!(written(server.as_fd()), Some(5));
        client.read_exact(&mut [0; 5]).unwrap();
        // acknowledged or not
        assert_eq!(SocketNumber::of(server.as_fd()).written(), Some(5));
        let mut other = server.try_clone().unwrap();
        other.write_all(b"67").unwrap();
        assert_eq!(written(server.as_fd()), Some(7));
        let (unix, _other_end) = UnixStream::pair().unwrap();
        assert_eq!(written(unix.as_fd()), None);
    }

    #[test]
    fn a_reset_ends_what_another_process_has_open() {
        let (mut client, server) = connection();
        let mut other = server.try_clone().unwrap();
        other.write_all(b"half").unwrap();
        SocketNumber::of(server.as_fd()).reset();
        let mut all = Vec::new();
        assert_eq!(client.read_to_end(&mut all).unwrap_err().kind(), ErrorKind::ConnectionReset);
        let _ = other.write(b"more");
        assert_eq!(other.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
        drop(server);
    }

    #[test]
    fn what_nobody_has_received_is_seen() {
        let (mut client, mut server) = connection();
        assert!(!has_unread(server.as_fd()));
        client.write_all(b"ab").unwrap();
        server.read_exact(&mut [0; 1]).unwrap();
        assert!(SocketNumber::of(server.as_fd()).has_unread());
        server.read_exact(&mut [0; 1]).unwrap();
        assert!(!has_unread(server.as_fd()));
    }

    #[test]
    fn what_was_made_blocking_elsewhere_is_taken_back() {
        let (_client, server) = connection();
        let mut copy = server.try_clone().unwrap();
        copy.set_nonblocking(false).unwrap();
        SocketNumber::of(server.as_fd()).take_back();
        assert_eq!(copy.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
