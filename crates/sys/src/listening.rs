//! Listening sockets: how they are opened, tuned, and made to ignore new connections.

use crate::clock;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The settings of a new listening socket.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// The connections that the kernel keeps until they are accepted (it admits one more, and caps
    /// the number at `net.core.somaxconn`).
    pub backlog: i32,
    /// Several sockets share the address, and the kernel spreads connections over them.
    pub reuse_port: bool,
    /// User and group that own the socket, if they are not the process's own: only sockets of one
    /// user may share an address, which the kernel checks when they are bound.
    pub owner: Option<(u32, u32)>,
}

/// Opens a listening socket: non-blocking, address reusable at once, answers sent without delay.
///
/// An IPv6 address takes IPv6 connections only, so that `[::]:80` and `0.0.0.0:80` can be bound
/// side by side.
///
/// # Errors
/// The error of the kernel: address in use, not available, or not permitted.
pub fn listen(address: SocketAddr, options: ListenOptions) -> io::Result<OwnedFd> {
    listen_timed(address, options, &mut OpenSteps::default())
}

/// Does the same as [`listen`], and adds the time of each step to `steps`.
///
/// # Errors
/// The errors of [`listen`].
pub fn listen_timed(
    address: SocketAddr,
    options: ListenOptions,
    steps: &mut OpenSteps,
) -> io::Result<OwnedFd> {
    let socket = prepare(address, options, steps)?;
    let mut watch = StepTimer::new();
    begin_listening(&socket, options.backlog)?;
    steps.listen_ns += watch.lap();
    Ok(socket)
}

/// Does the same as [`listen_timed`], but no client can connect before the socket
/// [begins](begin_listening).
///
/// # Errors
/// The errors of [`listen`].
pub fn prepare(
    address: SocketAddr,
    options: ListenOptions,
    steps: &mut OpenSteps,
) -> io::Result<OwnedFd> {
    let mut watch = StepTimer::new();
    let socket = open(address, options, &mut watch, steps)?;
    // accepted sockets inherit this, which saves a call for each of them
    sockopt::set_tcp_nodelay(&socket, true)?;
    bound_unsent(socket.as_fd(), UNSENT_BYTES)?;
    defer_accept(socket.as_fd(), DEFER_SECONDS)?;
    steps.options_ns += watch.lap();
    Ok(socket)
}

/// Has a socket that was [prepared](prepare) listen.
///
/// # Errors
/// The error of the kernel.
pub fn begin_listening(socket: impl AsFd, backlog: i32) -> io::Result<()> {
    Ok(net::listen(socket, backlog)?)
}

/// Opens a listening socket on a port of the loopback that the kernel chooses, for connections that
/// a program in the kernel makes on it. It gets no other connections: SYNs are
/// [ignored](ignore_new) before it listens.
///
/// # Errors
/// The errors of [`listen`].
pub fn listen_unreachable(is_ipv4: bool, backlog: i32) -> io::Result<OwnedFd> {
    let loopback: IpAddr =
        if is_ipv4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    let socket = bind(SocketAddr::new(loopback, 0), false)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    bound_unsent(socket.as_fd(), UNSENT_BYTES)?;
    ignore_new(&socket)?;
    net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Tunes a listening socket that another process opened as [`listen`] does its own: non-blocking,
/// and, if it is for TCP, with answers sent without delay.
///
/// # Errors
/// The error of the kernel.
pub fn tune_listener(socket: impl AsFd, is_tcp: bool) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    if is_tcp {
        sockopt::set_tcp_nodelay(&socket, true)?;
        bound_unsent(socket.as_fd(), UNSENT_BYTES)?;
        defer_accept(socket.as_fd(), DEFER_SECONDS)?;
    }
    Ok(())
}

/// Has a listening socket belong to another user: sockets that share its address later
/// ([`ListenOptions::reuse_port`]) must be of the same user as the first one.
///
/// # Errors
/// The error of the kernel.
pub fn give_listener(socket: impl AsFd, user: u32, group: u32) -> io::Result<()> {
    let owner = (rustix::fs::Uid::from_raw(user), rustix::fs::Gid::from_raw(group));
    Ok(rustix::fs::fchown(socket, Some(owner.0), Some(owner.1))?)
}

/// User and group that own a listening socket.
///
/// # Errors
/// The error of the kernel.
pub fn owner(socket: impl AsFd) -> io::Result<(u32, u32)> {
    let found = rustix::fs::fstat(socket)?;
    Ok((found.st_uid, found.st_gid))
}

/// The time that each step of opening listening sockets took, in nanoseconds, summed over the
/// sockets (duke §VI.F).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenSteps {
    /// The time in `socket`.
    pub socket_ns: u64,
    /// The time in `setsockopt`.
    pub options_ns: u64,
    /// The time in `bind`.
    pub bind_ns: u64,
    /// The time in `listen`.
    pub listen_ns: u64,
}

/// A clock that measures the time since the last step.
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

/// Takes an address like [`listen`], but does not listen, so no client can connect.
///
/// # Errors
/// The errors of [`listen`].
pub fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<OwnedFd> {
    let options = ListenOptions { backlog: 0, reuse_port, owner: None };
    open(address, options, &mut StepTimer::new(), &mut OpenSteps::default())
}

fn open(
    address: SocketAddr,
    options: ListenOptions,
    watch: &mut StepTimer,
    steps: &mut OpenSteps,
) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    steps.socket_ns += watch.lap();
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if let Some((user, group)) = options.owner {
        give_listener(&socket, user, group)?;
    }
    if options.reuse_port {
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

/// The bytes that the kernel takes ahead of what the network, or the client's window, lets it send.
/// Bytes under way do not count (ADR 0074).
pub const UNSENT_BYTES: u32 = 256 * 1024;

/// Limits what the kernel keeps unsent (`TCP_NOTSENT_LOWAT`), which is megabytes otherwise. A
/// socket has room again when half of the limit is sent. Accepted sockets inherit the listening
/// socket's limit (`sk_clone_lock` copies the whole socket), which saves a call for each of them.
///
/// # Errors
/// The socket is not one of TCP.
pub fn bound_unsent(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    // SAFETY: the option is one int, which lives across the call; the descriptor is borrowed.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The limit that [`bound_unsent`] has set, on this socket or on the listening socket before.
///
/// # Errors
/// The socket is not one of TCP.
pub fn unsent_bound(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bytes = 0_u32;
    let mut length = size_of_val(&bytes) as libc::socklen_t;
    // SAFETY: the option is one int, which is writable across the call, as its length is; the
    // descriptor is borrowed.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw mut bytes).cast(),
            &raw mut length,
        )
    };
    if outcome == 0 { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

/// The time that `defer_accept` waits for first bytes.
const DEFER_SECONDS: libc::c_int = 1;

/// Has the kernel ignore new connections to a listening socket, while those whose handshake has
/// begun still come into its queue. What is in the queue of a socket when it is closed is lost.
///
/// Clients without an answer try again for minutes, and reach the process that listens by then. The
/// filter looks at the flags of each segment; accepted connections inherit it, and it never matches
/// theirs.
///
/// # Errors
/// The error of the kernel, above all lack of memory.
pub fn ignore_new(listener: impl AsFd) -> io::Result<()> {
    // so that a client that is connected but has sent nothing is reported now
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
/// The error of the kernel.
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

/// Sets whether connections to a listening TCP socket are reported at once, for servers that may
/// speak first, or when their first bytes have arrived.
///
/// # Errors
/// The error of the kernel.
pub fn report_at_once(listener: impl AsFd, at_once: bool) -> io::Result<()> {
    defer_accept(listener.as_fd(), if at_once { 0 } else { DEFER_SECONDS })
}

/// Has connections reported only when their first bytes have arrived, or after about a second
/// without any (tcp(7)). So the first look at a connection finds its request, and clients that send
/// nothing cost the kernel a few hundred bytes and this process nothing.
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
