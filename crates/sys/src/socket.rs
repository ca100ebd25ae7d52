//! Sockets: listeners, accept, receive, send, and closing with and without mercy.

use crate::clock;
use rustix::io::Errno;
use rustix::ioctl::{Getter, ioctl};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io::{self, IoSlice};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// How a listening socket is made.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Connections the kernel keeps until they are accepted (it admits one more, and caps it at
    /// `net.core.somaxconn`).
    pub backlog: i32,
    /// Several sockets share the address, and the kernel spreads connections over them.
    pub reuse_port: bool,
}

/// Opens a listening socket: non-blocking, address reusable at once, answers sent without delay.
///
/// An IPv6 address takes IPv6 connections only, so that `[::]:80` and `0.0.0.0:80` can be bound
/// side by side.
///
/// # Errors
/// What the kernel says: address in use, not available, or not permitted.
pub fn listen(address: SocketAddr, options: ListenOptions) -> io::Result<OwnedFd> {
    listen_timed(address, options, &mut OpenSteps::default())
}

/// As [`listen`]; adds how long the steps took.
///
/// # Errors
/// As [`listen`].
pub fn listen_timed(
    address: SocketAddr,
    options: ListenOptions,
    steps: &mut OpenSteps,
) -> io::Result<OwnedFd> {
    let mut watch = StepTimer::new();
    let socket = open(address, options.reuse_port, &mut watch, steps)?;
    // Accepted sockets inherit it, which saves a call for each of them.
    sockopt::set_tcp_nodelay(&socket, true)?;
    defer_accept(socket.as_fd(), DEFER_SECONDS)?;
    steps.options_ns += watch.lap();
    net::listen(&socket, options.backlog)?;
    steps.listen_ns += watch.lap();
    Ok(socket)
}

/// Opens a listening socket on a port of the loopback that the kernel chooses, for connections that a program
/// in the kernel makes on it. Nobody else's come: SYNs are [ignored](ignore_new) before it listens.
///
/// # Errors
/// As [`listen`].
pub fn listen_unreachable(is_ipv4: bool, backlog: i32) -> io::Result<OwnedFd> {
    let loopback: IpAddr =
        if is_ipv4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    let socket = bind(SocketAddr::new(loopback, 0), false)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    ignore_new(&socket)?;
    net::listen(&socket, backlog)?;
    Ok(socket)
}

/// How many connections wait in the accept queue of a listening socket.
///
/// # Errors
/// What the kernel says.
pub fn accept_queue(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // of a socket that listens the field says this, and takes no lock (Linux 4.0)
    Ok(tcp_info(socket)?.tcpi_unacked)
}

/// What the kernel tells of a TCP socket; what it does not know is 0.
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

/// How long the steps of opening listening sockets took, in nanoseconds, all of them together (duke §VI.F).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenSteps {
    /// `socket`
    pub socket_ns: u64,
    /// `setsockopt`
    pub options_ns: u64,
    /// `bind`
    pub bind_ns: u64,
    /// `listen`
    pub listen_ns: u64,
}

/// The time since the last step.
struct StepTimer(u64);

impl StepTimer {
    fn new() -> StepTimer {
        StepTimer(clock::monotonic_ns())
    }

    fn lap(&mut self) -> u64 {
        let now_ns = clock::monotonic_ns();
        now_ns.saturating_sub(mem::replace(&mut self.0, now_ns))
    }
}

/// As [`listen`], but no client can connect: the address is taken, and no more.
///
/// # Errors
/// As [`listen`].
pub fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<OwnedFd> {
    open(address, reuse_port, &mut StepTimer::new(), &mut OpenSteps::default())
}

fn open(
    address: SocketAddr,
    reuse_port: bool,
    watch: &mut StepTimer,
    steps: &mut OpenSteps,
) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    steps.socket_ns += watch.lap();
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if reuse_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    steps.options_ns += watch.lap();
    net::bind(&socket, &address)?;
    steps.bind_ns += watch.lap();
    Ok(socket)
}

/// See `defer_accept`.
const DEFER_SECONDS: libc::c_int = 1;

/// Has the kernel ignore new connections to a listening socket, while those whose handshake has
/// begun still come into its queue: what is in the queue of a socket that is closed is lost.
///
/// Clients without an answer try again for minutes and reach the process that listens by then. The filter
/// looks at the flags of each segment; accepted connections inherit it, and it never concerns them.
///
/// # Errors
/// What the kernel says; without memory, above all.
pub fn ignore_new(listener: impl AsFd) -> io::Result<()> {
    // a client that is connected but has sent nothing is reported now
    defer_accept(listener.as_fd(), 0)?;
    let (load, mask) = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, libc::BPF_ALU | libc::BPF_AND);
    let (test, leave) = (libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_RET);
    // byte 13 of a TCP header: SYN is 0x02, ACK is 0x10
    let program = [
        (load, 0, 0, 13),
        (mask, 0, 0, 0x12),
        (test, 0, 1, 0x02),
        (leave, 0, 0, 0),
        (leave, 0, 0, u32::MAX),
    ];
    let mut program =
        program.map(|(code, jt, jf, k)| libc::sock_filter { code: code as u16, jt, jf, k });
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the option is a sock_fprog, which lives across the call together with the program it
    // points to; the kernel copies both. The descriptor is borrowed.
    let outcome = unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes back [`ignore_new`].
///
/// # Errors
/// What the kernel says.
pub fn welcome_new(listener: impl AsFd) -> io::Result<()> {
    let nothing: libc::c_int = 0;
    // SAFETY: the kernel reads one int, which lives across the call. The descriptor is borrowed.
    let outcome = unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_DETACH_FILTER,
            (&raw const nothing).cast(),
            size_of_val(&nothing) as libc::socklen_t,
        )
    };
    let error = io::Error::last_os_error();
    // without a filter there is nothing to take back
    if outcome != 0 && error.raw_os_error() != Some(libc::ENOENT) {
        return Err(error);
    }
    defer_accept(listener.as_fd(), DEFER_SECONDS)
}

/// Reports a connection only when its first bytes have come, or after about a second without any
/// (tcp(7)). So the first look at it finds its request, and clients that send nothing cost the
/// kernel a few hundred bytes and us nothing.
fn defer_accept(socket: BorrowedFd<'_>, seconds: libc::c_int) -> io::Result<()> {
    // SAFETY: the option is one int, which lives across the call; the descriptor is borrowed.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of_val(&seconds) as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What stands for the address of a Unix socket's end.
const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// What an accept brought.
#[derive(Debug)]
pub enum Accepted {
    /// A connection, and where it comes from; `0.0.0.0:0` if from a Unix socket, which has no address
    /// and port.
    Connection(OwnedFd, SocketAddr),
    /// No connection waits.
    None,
    /// The connection failed before it was accepted; there may be more behind it.
    Failed,
    /// No descriptor or memory is left for it.
    Exhausted,
}

/// Accepts the next connection, non-blocking.
///
/// # Errors
/// When the listener itself is broken.
#[inline]
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Accepted> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match net::acceptfrom_with(listener, flags) {
        Ok((socket, address)) => match address.map(SocketAddr::try_from) {
            Some(Ok(address)) => Ok(Accepted::Connection(socket, canonical(address))),
            // clients of Unix sockets have no name unless they take one
            Some(Err(_)) | None => Ok(Accepted::Connection(socket, NO_ADDRESS)),
        },
        Err(Errno::AGAIN) => Ok(Accepted::None),
        Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Ok(Accepted::Exhausted),
        Err(Errno::BADF | Errno::INVAL | Errno::NOTSOCK) => {
            Err(io::Error::other("the listener is closed"))
        }
        // accept(2): errors of the new connection itself are reported here, too
        Err(_) => Ok(Accepted::Failed),
    }
}

/// An IPv4 client of a socket for both versions is an IPv4 client.
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

/// Makes a listening socket that another process opened what [`listen`] makes of its own:
/// non-blocking, and, if it is for TCP, with answers sent without delay.
///
/// # Errors
/// What the kernel says.
pub fn tune_listener(socket: impl AsFd, is_tcp: bool) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    if is_tcp {
        sockopt::set_tcp_nodelay(&socket, true)?;
        defer_accept(socket.as_fd(), DEFER_SECONDS)?;
    }
    Ok(())
}

/// Has a listening socket belong to another user: who shares its address later
/// ([`ListenOptions::reuse_port`]) must be the same user as the first one.
///
/// # Errors
/// What the kernel says.
pub fn give_listener(socket: impl AsFd, user: u32, group: u32) -> io::Result<()> {
    let owner = (rustix::fs::Uid::from_raw(user), rustix::fs::Gid::from_raw(group));
    Ok(rustix::fs::fchown(socket, Some(owner.0), Some(owner.1))?)
}

/// The address this end of a socket has.
///
/// # Errors
/// When the socket is not an internet socket.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    let address = net::getsockname(socket)?;
    SocketAddr::try_from(address).map_err(|_| io::Error::other("not an internet address"))
}

/// What came of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes.
    Bytes(usize),
    /// Nothing is there now.
    Blocked,
    /// The client has shut down writing.
    Ended,
    /// The connection failed.
    Broken,
}

/// Receives what is there.
#[inline]
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Received {
    match net::recv(socket, buffer, RecvFlags::empty()) {
        Ok((0, _)) => Received::Ended,
        Ok((count, _)) => Received::Bytes(count),
        Err(Errno::AGAIN | Errno::INTR) => Received::Blocked,
        Err(_) => Received::Broken,
    }
}

/// As [`receive`], appended to `into`: at most `most` bytes, for which no memory is written before.
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

/// What came of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// So many bytes were taken.
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

/// Sends `count` bytes of a file from `offset` without copying them through this process. Blocks on
/// a file that is not in memory; see [`crate::file`].
///
/// `Bytes(0)` means that the file ends before `offset`.
#[inline]
pub fn send_file(socket: BorrowedFd<'_>, file: BorrowedFd<'_>, offset: u64, count: usize) -> Sent {
    let mut offset = offset;
    sent(rustix::fs::sendfile(socket, file, Some(&mut offset), count))
}

/// Announces the end of what is sent; the client can still be read.
pub fn shut_down_writing(socket: BorrowedFd<'_>) {
    let _ = net::shutdown(socket, net::Shutdown::Write);
}

/// Makes the coming close send a RST: unread and unsent bytes are dropped on both sides.
///
/// A close with unread bytes does that by itself, but to ask for them costs as much as this call, and
/// [`listen`]'s deferred accept does not promise any: not with SYN cookies, not when its time is over.
pub fn reset_on_close(socket: BorrowedFd<'_>) {
    let _ = sockopt::set_socket_linger(socket, Some(std::time::Duration::ZERO));
}

/// Bytes that were sent here but are not yet acknowledged by the client (`SIOCOUTQ`, tcp(7)).
///
/// # Errors
/// When the socket is not connected.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: TIOCOUTQ, which is SIOCOUTQ, takes no input and writes one int.
    let queued = unsafe { Getter::<{ libc::TIOCOUTQ as _ }, i32>::new() };
    // SAFETY: see above; `socket` is open while it is borrowed.
    let count = unsafe { ioctl(socket, queued)? };
    Ok(count.max(0) as u64)
}
