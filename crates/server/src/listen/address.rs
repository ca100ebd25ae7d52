//! Where a listening socket is bound, and why one cannot be had.

use forebay_config::Listen;
use forebay_conn::Peer;
use forebay_sys::unix_address::UnixAddress;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Where a socket is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An internet address and port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(UnixAddress),
}

impl ListenAddress {
    /// How [`Peer::local`] says it.
    pub fn local(&self) -> SocketAddr {
        match self {
            ListenAddress::Tcp(address) => *address,
            ListenAddress::Unix(_) => Peer::UNIX,
        }
    }

    /// Its port, if it has one.
    pub fn port(&self) -> Option<u16> {
        match self {
            ListenAddress::Tcp(address) => Some(address.port()),
            ListenAddress::Unix(_) => None,
        }
    }

    /// What a person can click on or give to curl.
    pub fn url(&self) -> String {
        match self {
            ListenAddress::Tcp(_) => format!("http://{self}"),
            ListenAddress::Unix(_) => self.to_string(),
        }
    }
}

impl ListenAddress {
    /// What a browser on this machine can open: all addresses are reached by loopback.
    pub fn local_url(&self) -> Option<String> {
        let ListenAddress::Tcp(address) = self else { return None };
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        Some(format!("http://{}/", SocketAddr::new(ip, address.port())))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => write!(f, "{address}"),
            ListenAddress::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

impl From<(IpAddr, u16)> for ListenAddress {
    fn from(address: (IpAddr, u16)) -> ListenAddress {
        ListenAddress::Tcp(address.into())
    }
}

/// Why sockets cannot be had.
#[derive(Debug)]
pub enum ListenError {
    /// An address cannot be listened on.
    Bind {
        /// The address.
        address: ListenAddress,
        /// What the kernel said.
        error: io::Error,
    },
    /// The service manager has opened its port for both families, in a socket that this listener does not name.
    OfBoth {
        /// The address.
        address: ListenAddress,
        /// What the service manager calls the socket.
        name: String,
    },
    /// There can be no sockets for its classes.
    OfClasses {
        /// The address.
        address: ListenAddress,
        /// What the kernel said.
        error: io::Error,
    },
    /// The service manager passed a socket that no listener names.
    Unnamed {
        /// Where it listens, if that can be said.
        address: Option<ListenAddress>,
        /// What the service manager calls it.
        name: String,
    },
    /// What the service manager passed cannot be taken.
    Inherited {
        /// What is wrong.
        error: io::Error,
    },
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenError::Bind { address, error } => {
                write!(f, "cannot listen on {address}: {error}")?;
                f.write_str(hint(address, error))
            }
            ListenError::OfBoth { address, name } => {
                let port = address.port().unwrap_or_default();
                write!(
                    f,
                    "cannot listen on {address}: the socket that the service manager passed for [::]:{port} \
                     ({name}) takes IPv4 as well; write \":{port}\" in listen, or BindIPv6Only=ipv6-only and a \
                     ListenStream= for each address into the .socket unit"
                )
            }
            ListenError::OfClasses { address, error } => write!(
                f,
                "cannot listen for the classes of {address} on a port of the loopback: {error}; \
                 gate = \"address\" does without"
            ),
            ListenError::Unnamed { address: Some(address), name } => write!(
                f,
                "the service manager passed a socket for {address} ({name}), but no listener names \
                 that address: add it to listen, or take it out of the .socket unit"
            ),
            ListenError::Unnamed { address: None, name } => write!(
                f,
                "the service manager passed {name:?}, which does not listen for streams at an \
                 address or a path: the .socket unit needs ListenStream="
            ),
            ListenError::Inherited { error } => {
                write!(f, "cannot take the sockets of the service manager: {error}")
            }
        }
    }
}

impl std::error::Error for ListenError {}

/// What helps, if that is known.
fn hint(address: &ListenAddress, error: &io::Error) -> &'static str {
    match (address, error.kind()) {
        (_, ErrorKind::AddrInUse) => "; stop what uses it, or choose another address",
        (ListenAddress::Tcp(_), ErrorKind::PermissionDenied) => {
            "; ports below 1024 need root or CAP_NET_BIND_SERVICE"
        }
        (ListenAddress::Unix(_), ErrorKind::PermissionDenied) => {
            "; the directory must be writable for the server"
        }
        (ListenAddress::Unix(_), ErrorKind::NotFound) => "; the directory must be there",
        (ListenAddress::Unix(_), ErrorKind::AlreadyExists) => "; there is a file with this name",
        (ListenAddress::Tcp(_), ErrorKind::AddrNotAvailable) => {
            "; this machine does not have that address"
        }
        _ => "",
    }
}

/// The kernel was built or booted without IPv6, or has no address of it.
pub(super) fn has_no_ipv6(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AddrNotAvailable | ErrorKind::Unsupported)
        || error.raw_os_error() == Some(97) // EAFNOSUPPORT
}

/// An address of a configuration that is one address, and not all of the machine.
impl TryFrom<&Listen> for ListenAddress {
    /// The port.
    type Error = u16;

    fn try_from(listen: &Listen) -> Result<ListenAddress, u16> {
        match listen {
            Listen::At(address) => Ok(ListenAddress::Tcp(*address)),
            Listen::Unix(path) => Ok(ListenAddress::Unix(path.clone())),
            Listen::All(port) => Err(*port),
        }
    }
}
