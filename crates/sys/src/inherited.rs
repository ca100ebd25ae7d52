//! Listening sockets that were opened and passed on by a service manager (sd_listen_fds(3)), or by
//! the process that has started this one ([`passing`](crate::passing)).

use crate::socket;
use crate::unix_address::UnixAddress;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, getsockname, sockopt};
use std::env;
use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::parent_id;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The number of the first socket.
pub(crate) const FIRST: RawFd = 3;

/// The variable in which the process that has started this one gives its own number: what it passes
/// on is for its children. It does not know their numbers, as `LISTEN_PID` has them, before they
/// are started.
pub(crate) const SUPERVISOR: &str = "FOREBAY_SUPERVISOR";

/// A socket that was passed on.
#[derive(Debug)]
pub struct Inherited {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// The service manager's name for it (`FileDescriptorName=`); empty if there is none.
    pub name: String,
    /// The address at which it listens.
    pub bound: InheritedAddress,
}

/// The address at which a socket listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InheritedAddress {
    /// At an internet address.
    Internet {
        /// The address.
        address: SocketAddr,
        /// The address is `::`, and IPv4 connections come to it as well.
        with_ipv4: bool,
    },
    /// At a Unix socket with a name.
    Unix(UnixAddress),
    /// The socket does not listen for streams of either kind.
    Otherwise,
}

/// Takes the sockets that were passed to this process; a second call finds none. Must be called
/// first of all, before anything is opened.
///
/// # Errors
/// `InvalidData` if the environment promises what is not there.
pub fn take() -> io::Result<Vec<Inherited>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let is_ours = number("LISTEN_PID").is_some_and(|pid| pid == std::process::id() as RawFd)
        || number(SUPERVISOR).is_some_and(|pid| pid == parent_id() as RawFd);
    if !is_ours || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let count =
        number("LISTEN_FDS").filter(|count| (0..=1024).contains(count)).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "LISTEN_FDS is not a number of descriptors")
        })?;
    let sockets = (FIRST..FIRST + count).map(|fd| {
        let socket = adopt(fd)?;
        let name = names.next().unwrap_or_default().to_owned();
        let bound = bound(&socket)?;
        socket::tune_listener(&socket, matches!(bound, InheritedAddress::Internet { .. }))?;
        Ok(Inherited { socket, name, bound })
    });
    sockets.collect()
}

/// Takes a socket that this program has bound itself, and at which it listens for streams.
///
/// # Errors
/// `InvalidInput` if the socket does not listen for streams; or the error of the kernel.
pub fn given(socket: OwnedFd) -> io::Result<Inherited> {
    let bound = bound(&socket)?;
    if bound == InheritedAddress::Otherwise {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it does not listen for streams"));
    }
    socket::tune_listener(&socket, matches!(bound, InheritedAddress::Internet { .. }))?;
    Ok(Inherited { socket, name: String::new(), bound })
}

/// Whether the process that has started this one gives the number of a descriptor in a variable.
pub(crate) fn is_named(name: &str) -> bool {
    has_supervisor() && number(name).is_some_and(|number| number >= FIRST)
}

/// Whether the process that has started this one passes something on.
pub(crate) fn has_supervisor() -> bool {
    number(SUPERVISOR).is_some_and(|pid| pid == parent_id() as RawFd)
}

/// Takes the descriptor whose number the process that has started this one gives in a variable; a
/// second call finds none.
pub(crate) fn take_named(name: &'static str) -> io::Result<Option<OwnedFd>> {
    static TAKEN: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let Some(number) = number(name).filter(|_| is_named(name)) else { return Ok(None) };
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if taken.contains(&name) {
        return Ok(None);
    }
    taken.push(name);
    adopt(number).map(Some)
}

fn number(name: &str) -> Option<RawFd> {
    env::var(name).ok()?.parse().ok()
}

fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: asking about a number that is no descriptor fails and does nothing else; it is not
    // used beyond this line.
    let flags = fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) });
    let flags = flags.map_err(|_| {
        let text = format!("LISTEN_FDS promises descriptor {fd}, which is not open");
        io::Error::new(io::ErrorKind::InvalidData, text)
    })?;
    // SAFETY: it is open, and by LISTEN_PID it was passed to this process to own. Nothing else here
    // knows its number: descriptors that the process opens itself get others, and `take` gives each
    // away once.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    fcntl_setfd(&socket, flags | FdFlags::CLOEXEC)?;
    Ok(socket)
}

/// The address at which a socket listens, as the kernel reports it.
///
/// # Errors
/// The error of the kernel.
pub fn bound(socket: &OwnedFd) -> io::Result<InheritedAddress> {
    let is_stream = sockopt::socket_acceptconn(socket).unwrap_or(false)
        && sockopt::socket_type(socket)? == rustix::net::SocketType::STREAM;
    if !is_stream {
        return Ok(InheritedAddress::Otherwise);
    }
    let address: SocketAddrAny = getsockname(socket)?;
    if address.address_family() == AddressFamily::UNIX {
        let address = SocketAddrUnix::try_from(address)?;
        let path =
            address.path_bytes().map(|path| UnixAddress::Path(OsStr::from_bytes(path).into()));
        let name = address.abstract_name().and_then(|name| std::str::from_utf8(name).ok());
        let name = name.map(|name| UnixAddress::Abstract(name.into()));
        return Ok(path.or(name).map_or(InheritedAddress::Otherwise, InheritedAddress::Unix));
    }
    let Ok(address) = SocketAddr::try_from(address) else { return Ok(InheritedAddress::Otherwise) };
    let with_ipv4 = address.is_ipv6()
        && address.ip().is_unspecified()
        && !sockopt::ipv6_v6only(socket).unwrap_or(true);
    Ok(InheritedAddress::Internet { address, with_ipv4 })
}
