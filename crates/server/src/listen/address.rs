//! Addresses of listening sockets, and errors of opening them.

use forebay_config::Listen;
use forebay_conn::Peer;
use forebay_sys::unix_address::UnixAddress;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An internet address and port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(UnixAddress),
}

impl ListenAddress {
    /// The address as in [`Peer::local`].
    pub fn local(&self) -> SocketAddr {
        match self {
            ListenAddress::Tcp(address) => *address,
            ListenAddress::Unix(_) => Peer::UNIX,
        }
    }

    /// The port, if there is one.
    pub fn port(&self) -> Option<u16> {
        match self {
            ListenAddress::Tcp(address) => Some(address.port()),
            ListenAddress::Unix(_) => None,
        }
    }

    /// The URL for a browser or curl.
    pub fn url(&self) -> String {
        match self {
            ListenAddress::Tcp(_) => format!("http://{self}"),
            ListenAddress::Unix(_) => self.to_string(),
        }
    }
}

impl ListenAddress {
    /// The URL for a browser on this machine: a wildcard address becomes the loopback address.
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

/// The reason why sockets cannot be opened.
#[derive(Debug)]
pub enum ListenError {
    /// The address cannot be bound, or the socket cannot listen.
    Bind {
        /// The address.
        address: ListenAddress,
        /// The error of the kernel.
        error: io::Error,
    },
    /// The service manager has opened the port for both families, with a socket that
    /// this listener does not name.
    OfBoth {
        /// The address.
        address: ListenAddress,
        /// The name that the service manager gives the socket.
        name: String,
    },
    /// The sockets for classes at this address cannot be opened.
    OfClasses {
        /// The address.
        address: ListenAddress,
        /// The error of the kernel.
        error: io::Error,
    },
    /// The service manager passed a socket that no listener names.
    Unnamed {
        /// The address of the socket, if it has one that can be shown.
        address: Option<ListenAddress>,
        /// The name that the service manager gives the socket.
        name: String,
    },
    /// A socket from the service manager cannot be used.
    Inherited {
        /// The reason.
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

/// A remedy as words, if one is known.
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

/// Whether the kernel was built or booted without IPv6, or has no address of it.
pub(super) fn has_no_ipv6(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AddrNotAvailable | ErrorKind::Unsupported)
        || error.raw_os_error() == Some(97) // EAFNOSUPPORT
}

/// Converts an address of a configuration, unless it means all addresses of the machine.
impl TryFrom<&Listen> for ListenAddress {
    /// The port of an endpoint that is at all addresses of the machine.
    type Error = u16;

    fn try_from(listen: &Listen) -> Result<ListenAddress, u16> {
        match listen {
            Listen::At(address) => Ok(ListenAddress::Tcp(*address)),
            Listen::Unix(path) => Ok(ListenAddress::Unix(path.clone())),
            Listen::All(port) => Err(*port),
        }
    }
}
