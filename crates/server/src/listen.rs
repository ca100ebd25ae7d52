//! Listening sockets: one per loop and address, so that loops share nothing when they accept. They
//! are kept in a book for as long as their address is wanted, because closing one loses the
//! connections that wait in its queue; who accepts gets duplicates.

use crate::config::Listen;
use forebay_sys::socket::{self, ListenOptions};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Connections the kernel keeps for a loop until they are accepted.
const BACKLOG: i32 = 4096;

/// The sockets of one address: as many as there are loops.
#[derive(Debug)]
pub struct Listener {
    /// What was asked for.
    wanted: Listen,
    /// What it is bound to; a port 0 is resolved.
    pub address: SocketAddr,
    /// One for each loop.
    pub sockets: Vec<OwnedFd>,
}

/// A socket to accept with, and the address it is bound to.
pub type Socket = (OwnedFd, SocketAddr);

/// All listening sockets of the process.
#[derive(Debug, Default)]
pub struct Listeners {
    open: Vec<Listener>,
}

impl Listeners {
    /// Sockets for `wanted`, dealt out to `loops` loops; each loop has at least one of each
    /// address. What is open already stays open and is not bound again. After an error everything
    /// is as it was before.
    ///
    /// # Errors
    /// The first address that cannot be had.
    pub fn take(
        &mut self,
        wanted: &[Listen],
        loops: usize,
    ) -> Result<Vec<Vec<Socket>>, ListenError> {
        let known = self.open.len();
        for listen in wanted {
            if !self.open.iter().any(|listener| listener.wanted == *listen) {
                match bind(&[*listen], loops) {
                    Ok(bound) => self.open.extend(bound),
                    Err(error) => {
                        self.open.truncate(known);
                        return Err(error);
                    }
                }
            }
        }
        let mut hands: Vec<Vec<Socket>> = (0..loops).map(|_| Vec::new()).collect();
        for listener in self.open.iter().filter(|listener| wanted.contains(&listener.wanted)) {
            let most = loops.max(listener.sockets.len());
            for turn in 0..most {
                let socket = &listener.sockets[turn % listener.sockets.len()];
                let copy = socket
                    .try_clone()
                    .map_err(|error| ListenError { address: listener.address, error })?;
                hands[turn % loops].push((copy, listener.address));
            }
        }
        Ok(hands)
    }

    /// The addresses sockets are bound to for `wanted`.
    pub fn addresses(&self, wanted: &[Listen]) -> Vec<SocketAddr> {
        let bound = self.open.iter().filter(|listener| wanted.contains(&listener.wanted));
        bound.map(|listener| listener.address).collect()
    }

    /// Lets nothing new into the queues of what is not in `wanted`, and takes it out of the book.
    /// The sockets are to be dropped when nobody accepts from them any more and their queues are
    /// empty, at the earliest after [`LEAVE`].
    pub fn leave(&mut self, wanted: &[Listen]) -> Vec<Listener> {
        let (kept, left) =
            std::mem::take(&mut self.open).into_iter().partition(|l| wanted.contains(&l.wanted));
        self.open = kept;
        left
    }
}

/// How long a handshake that has begun may take until its connection is in the queue.
pub const LEAVE: Duration = Duration::from_millis(1500);

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
            Listen::At(address) => listeners.push(bind_one(*listen, address, loops)?),
            Listen::All(port) => {
                let v4 = bind_one(*listen, (Ipv4Addr::UNSPECIFIED, port).into(), loops)?;
                let port = v4.address.port();
                listeners.push(v4);
                match bind_one(*listen, (Ipv6Addr::UNSPECIFIED, port).into(), loops) {
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

fn bind_one(listen: Listen, wanted: SocketAddr, loops: usize) -> Result<Listener, ListenError> {
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
    let (probe, address) = bind(wanted, false)?;
    drop(probe);
    let sockets = (0..loops).map(|_| Ok(bind(address, true)?.0)).collect::<Result<_, _>>()?;
    Ok(Listener { wanted: listen, address, sockets })
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
