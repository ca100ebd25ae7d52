//! Client sockets: connecting without waiting, from a chosen address, and the outcome.
//!
//! The load generator and connections to applications use these. A connection is begun with
//! [`connect`]; when its socket becomes writable, [`connect_result`] returns how it ended, and
//! [`retransmitted`] how many segments the kernel had to repeat until then, which for a fresh
//! connection are its SYNs.

use crate::socket::Sent;
use crate::unix_address::UnixAddress;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The source of a connection, and how much it takes in.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectOptions {
    /// The local address. With port 0 the kernel chooses the port, and it may use the same port
    /// towards several targets; with any other port, exactly that one is taken.
    pub source: Option<SocketAddr>,
    /// The receive buffer, bytes; the kernel doubles the number for its own use. A small one makes
    /// a slow reader felt by the sender. It must be set before the handshake, which announces it.
    pub receive_buffer_bytes: Option<usize>,
}

/// Begins to connect, non-blocking. Small requests are sent without delay (`TCP_NODELAY`).
///
/// # Errors
/// The kernel's immediate error: no descriptor (`EMFILE`), no free local port (`EADDRNOTAVAIL`),
/// the source in use (`EADDRINUSE`), no route. A refusal comes later, from [`connect_result`], or
/// here when the target is this machine.
pub fn connect(target: SocketAddr, options: ConnectOptions) -> io::Result<OwnedFd> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    if let Some(bytes) = options.receive_buffer_bytes {
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    if let Some(source) = options.source {
        if source.port() == 0 {
            choose_port_late(&socket)?;
        } else {
            sockopt::set_socket_reuseaddr(&socket, true)?;
        }
        net::bind(&socket, &source)?;
    }
    match net::connect(&socket, &target) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Begins to connect to a Unix socket.
///
/// # Errors
/// As [`connect`]; also when there is no such socket, or too many wait there.
pub fn connect_unix(address: &UnixAddress) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &address.to_kernel()?)?;
    Ok(socket)
}

/// The keep-alive times: how long a connection is silent before the kernel asks the other end, how
/// often it asks, both in seconds, and after how many questions without an answer the connection
/// has ended.
const IDLE_S: u64 = 10;
const ASK_EVERY_S: u64 = 5;
const QUESTIONS: u32 = 3;

/// Has the kernel find out that the other machine has ended, or was restarted, while its answer is
/// waited for (keep-alive of TCP, RFC 9293 §3.8.4).
///
/// # Errors
/// The error of the kernel, also for a socket other than TCP.
pub fn ask_other_end(socket: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(IDLE_S))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(ASK_EVERY_S))?;
    sockopt::set_tcp_keepcnt(socket, QUESTIONS)?;
    Ok(())
}

/// Whether nothing has arrived on a connection, not even its end.
pub fn is_quiet(socket: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(net::recv(socket, &mut [0; 1], flags), Err(Errno::AGAIN | Errno::INTR))
}

/// Takes the outcome of a connection that has become writable, or has failed.
///
/// # Errors
/// Refused, reset, timed out, unreachable: what the kernel noted on the socket.
pub fn connect_result(socket: BorrowedFd<'_>) -> io::Result<()> {
    match sockopt::socket_error(socket)? {
        Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends the first bytes over a connection that may still be being established; until it is, the
/// result is [`Blocked`](Sent::Blocked).
///
/// # Errors
/// The reason why there is no connection: refused, reset, timed out, unreachable.
pub fn send_first(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Sent> {
    match net::send(socket, bytes, SendFlags::NOSIGNAL) {
        Ok(count) => Ok(Sent::Bytes(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Sent::Blocked),
        Err(error) => Err(error.into()),
    }
}

/// Whether the error is a lack of this machine's descriptors or memory, so that no connection could
/// be begun.
pub fn is_lack(error: &io::Error) -> bool {
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| lacks.contains(&errno))
}

/// The segments that the kernel has sent more than once on this connection so far
/// (`tcpi_total_retrans`). Before the first data is sent, they are repeated SYNs. 0 where the
/// kernel does not report it.
pub fn retransmitted(socket: BorrowedFd<'_>) -> u32 {
    crate::socket::tcp_info(socket).map_or(0, |info| info.tcpi_total_retrans)
}

/// Leaves the choice of the local port to `connect`, which can then use one port towards several
/// targets. Without this `bind` takes a port exclusively, and there are only about 28,000.
fn choose_port_late(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: `on` is readable for the length given and outlives the call; the descriptor is open
    // because it is borrowed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            mem::size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::{Epoll, Events};
    use std::net::{IpAddr, Ipv4Addr, TcpListener};

    fn settled(socket: &OwnedFd) -> io::Result<()> {
        let epoll = Epoll::new().unwrap();
        epoll.add_connection(socket, 1).unwrap();
        epoll.wait_ns(&mut Events::with_capacity(1), 60_000_000_000).unwrap();
        connect_result(socket.as_fd())
    }

    #[test]
    fn a_connection_comes_from_the_address_it_was_given() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let source = SocketAddr::new(IpAddr::from([127, 0, 0, 9]), 0);
        let options = ConnectOptions { source: Some(source), receive_buffer_bytes: Some(8192) };
        let socket = connect(listener.local_addr().unwrap(), options).unwrap();
        settled(&socket).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip(), source.ip());
        assert_eq!(retransmitted(socket.as_fd()), 0);
    }

    #[test]
    fn a_refusal_is_told() {
        // bound, so that no other process listens there, and not listening
        let taken = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::bind(&taken, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = SocketAddr::try_from(net::getsockname(&taken).unwrap()).unwrap();
        let error = match connect(address, ConnectOptions::default()) {
            Ok(socket) => settled(&socket).unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
