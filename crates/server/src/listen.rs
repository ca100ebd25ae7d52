//! Listening sockets: one per loop and address, so that loops share nothing when they accept.

use crate::config::Listen;
use forebay_sys::socket::{self, ListenOptions};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// Connections the kernel keeps for a loop until they are accepted.
const BACKLOG: i32 = 4096;

/// The sockets of one address: as many as there are loops.
#[derive(Debug)]
pub struct Listener {
    /// What it is bound to; a port 0 is resolved.
    pub address: SocketAddr,
    /// One for each loop.
    pub sockets: Vec<OwnedFd>,
}

/// An address that cannot be listened on.
#[derive(Debug)]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// What the kernel said.
    pub error: io::Error,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ListenError { address, error } = self;
        write!(f, "cannot listen on {address}: {error}")?;
        match error.kind() {
            ErrorKind::AddrInUse => write!(f, "; stop what uses it, or choose another port"),
            ErrorKind::PermissionDenied => {
                write!(f, "; ports below 1024 need root or CAP_NET_BIND_SERVICE")
            }
            ErrorKind::AddrNotAvailable => write!(f, "; this machine does not have that address"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Binds all of `wanted`, `loops` sockets each.
///
/// # Errors
/// The first address that cannot be had.
pub fn bind(wanted: &[Listen], loops: usize) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = Vec::new();
    for listen in wanted {
        match *listen {
            Listen::At(address) => listeners.push(bind_one(address, loops)?),
            Listen::All(port) => {
                let v4 = bind_one((Ipv4Addr::UNSPECIFIED, port).into(), loops)?;
                let port = v4.address.port();
                listeners.push(v4);
                match bind_one((Ipv6Addr::UNSPECIFIED, port).into(), loops) {
                    Ok(v6) => listeners.push(v6),
                    Err(refused) if has_no_ipv6(&refused.error) => {}
                    Err(refused) => return Err(refused),
                }
            }
        }
    }
    Ok(listeners)
}

/// The kernel was built or booted without IPv6, or has no address of it.
fn has_no_ipv6(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AddrNotAvailable | ErrorKind::Unsupported)
        || error.raw_os_error() == Some(97) // EAFNOSUPPORT
}

fn bind_one(wanted: SocketAddr, loops: usize) -> Result<Listener, ListenError> {
    let bind = |address, reuse_port| {
        let options = ListenOptions { backlog: BACKLOG, reuse_port };
        let listened = socket::listen(address, options).and_then(|socket| {
            let address = socket::local_address(&socket)?;
            Ok((socket, address))
        });
        listened.map_err(|error| ListenError { address: wanted, error })
    };
    // Without sharing, so that a second server on the same address is told so. Sockets that share
    // the address would let it take half of the connections unnoticed.
    let (first, address) = bind(wanted, false)?;
    if loops == 1 {
        return Ok(Listener { address, sockets: vec![first] });
    }
    drop(first);
    let sockets = (0..loops).map(|_| Ok(bind(address, true)?.0)).collect::<Result<_, _>>()?;
    Ok(Listener { address, sockets })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_on_the_same_address_is_refused() {
        let any = Listen::At((Ipv4Addr::LOCALHOST, 0).into());
        for loops in [1, 2] {
            let listeners = bind(&[any], loops).unwrap();
            let address = listeners[0].address;
            assert_eq!(listeners[0].sockets.len(), loops);
            let refused = bind(&[Listen::At(address)], loops).unwrap_err();
            assert_eq!(refused.error.kind(), ErrorKind::AddrInUse);
            assert!(refused.to_string().contains("stop what uses it"));
        }
    }
}
