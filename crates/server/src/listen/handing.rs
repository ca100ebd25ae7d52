//! Listening sockets on their way between a predecessor and a successor. Both processes hold them
//! then, so that the queues stay open whichever ends first.

use super::of_class::SocketsOfClasses;
use super::{
    AcceptSocket, AddressSockets, BACKLOG, ListenAddress, ListenError, Listeners, SocketOrigin,
    SocketsFor,
};
use forebay_config::{Listen, ListenEndpoint};
use forebay_sys::inherited::{self, InheritedAddress};
use forebay_sys::socket;
use forebay_sys::unix::SocketFile;
use forebay_sys::unix_address::UnixAddress;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedSocket {
    /// The address in the configuration.
    pub wanted: HandedAddress,
    /// The address that the socket is bound to.
    pub bound: HandedAddress,
    /// The origin of the socket.
    pub origin: HandedOrigin,
}

/// The address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandedAddress {
    /// An internet address and port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Path(PathBuf),
    /// A name in the abstract namespace.
    Abstract(String),
}

/// The origin of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandedOrigin {
    /// Bound by the server.
    Bound,
    /// Bound by the server to a file.
    File,
    /// Opened by the service manager, which keeps it open.
    Inherited {
        /// The name that the service manager gives the socket.
        name: String,
        /// Whether a socket at `[::]` takes IPv4 connections as well.
        with_ipv4: bool,
    },
}

impl Listeners {
    /// Duplicates of all sockets in use, for the process that takes the place of this one.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn hand(&self) -> io::Result<(Vec<HandedSocket>, Vec<OwnedFd>)> {
        let (mut handed, mut sockets) = (Vec::new(), Vec::new());
        for open in self.open.iter().filter(|open| open.left.is_none()) {
            let of_address = HandedSocket {
                wanted: (&open.wanted).into(),
                bound: (&open.address).into(),
                origin: match &open.origin {
                    SocketOrigin::Bound => HandedOrigin::Bound,
                    SocketOrigin::File(_) => HandedOrigin::File,
                    SocketOrigin::Inherited { name, with_ipv4 } => {
                        HandedOrigin::Inherited { name: name.clone(), with_ipv4: *with_ipv4 }
                    }
                },
            };
            for socket in &open.sockets {
                sockets.push(socket.try_clone()?);
                handed.push(of_address.clone());
            }
        }
        Ok((handed, sockets))
    }

    /// Takes the sockets that another process has handed over. That process may be under an
    /// attacker's control, and this one may be root, so each socket must listen at the address that
    /// is stated for it.
    ///
    /// # Errors
    /// The kernel's error for a socket; `InvalidData` if it is not what is stated.
    pub fn handed(handed: Vec<HandedSocket>, sockets: Vec<OwnedFd>) -> io::Result<Listeners> {
        let mut listeners = Listeners { is_silent: true, ..Listeners::default() };
        for (HandedSocket { wanted, bound, origin }, socket) in handed.into_iter().zip(sockets) {
            let (wanted, address) = (ListenAddress::from(wanted), ListenAddress::from(bound));
            let found = inherited::bound(&socket)?;
            if super::address_of(&found).as_ref() != Some(&address) || !may_be_for(&wanted, &found)
            {
                let text = format!("a socket that was handed does not listen on {address}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            socket::tune_listener(&socket, matches!(found, InheritedAddress::Internet { .. }))?;
            let known = listeners.open.iter_mut().find(|open| open.address == address);
            if let Some(known) = known {
                known.sockets.push(socket);
                continue;
            }
            let origin = match (origin, &address) {
                (HandedOrigin::File, ListenAddress::Unix(UnixAddress::Path(path))) => {
                    SocketOrigin::File(SocketFile::lent(path))
                }
                (HandedOrigin::Inherited { name, with_ipv4 }, _) => {
                    SocketOrigin::Inherited { name, with_ipv4 }
                }
                (HandedOrigin::Bound | HandedOrigin::File, _) => {
                    // sockets that are opened beside these must belong to the same user
                    listeners.owner = Some(socket::owner(&socket)?);
                    SocketOrigin::Bound
                }
            };
            listeners.open.push(AddressSockets {
                wanted,
                address,
                origin,
                sockets: vec![socket],
                in_force: 0,
                of_classes: SocketsOfClasses::default(),
                silent: 0,
                purpose: SocketsFor::default(),
                left: None,
            });
        }
        Ok(listeners)
    }

    /// Makes the sockets listen that were opened beside those handed over; later ones listen at
    /// once. Before this call, clients in their queues would be lost if this process failed to
    /// become the server.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn begin_listening(&mut self) -> io::Result<()> {
        self.is_silent = false;
        for open in &mut self.open {
            let silent = std::mem::take(&mut open.silent);
            for socket in open.sockets.iter().rev().take(silent) {
                socket::begin_listening(socket, BACKLOG)?;
            }
        }
        Ok(())
    }

    /// The addresses of the sockets that `wanted` does not name.
    pub fn unnamed(&self, wanted: &[Listen]) -> Vec<HandedAddress> {
        let unnamed = self.open.iter().filter(|open| !open.is_wanted(wanted));
        unnamed.map(|open| (&open.address).into()).collect()
    }

    /// Sockets for one loop, at those addresses of `endpoints` that the successor does not have.
    ///
    /// # Errors
    /// As [`take`](Listeners::take).
    pub fn take_left(
        &mut self,
        endpoints: &[ListenEndpoint],
        left: &[HandedAddress],
    ) -> Result<Vec<AcceptSocket>, ListenError> {
        let mut exact = Vec::new();
        for endpoint in endpoints {
            let bound = self.addresses(std::slice::from_ref(&endpoint.listen));
            let is_left = |address: &ListenAddress| left.contains(&HandedAddress::from(address));
            exact.extend(bound.into_iter().filter(is_left).map(|address| {
                let listen = match address {
                    ListenAddress::Tcp(address) => Listen::At(address),
                    ListenAddress::Unix(address) => Listen::Unix(address),
                };
                ListenEndpoint { listen, ..endpoint.clone() }
            }));
        }
        Ok(self.take_endpoints(&exact, 1)?.pop().unwrap_or_default())
    }

    /// Takes over the files of the Unix sockets that `wanted` names, because the process that has
    /// lent the sockets does not need them any more. It stated the files of the others itself, at
    /// any path, so those stay.
    pub fn own(&mut self, wanted: &[Listen]) {
        for open in self.open.iter_mut().filter(|open| open.is_wanted(wanted)) {
            if let SocketOrigin::File(file) = &mut open.origin {
                file.own();
            }
        }
    }

    /// Leaves all sockets to the successor, which also removes their files. At the addresses in
    /// `left` no process listens any more: this process removes their files.
    pub fn hand_over(&mut self, left: &[HandedAddress]) {
        for open in self.open.drain(..) {
            let address = HandedAddress::from(&open.address);
            match open.origin {
                SocketOrigin::File(file) if !left.contains(&address) => file.leave(),
                // their files are removed when they are dropped
                _ => {}
            }
        }
    }
}

/// Whether connections to the address `wanted` come to a socket that is bound to `bound`. A wanted
/// port 0 matches any port.
fn may_be_for(wanted: &ListenAddress, bound: &InheritedAddress) -> bool {
    let (ListenAddress::Tcp(wanted), InheritedAddress::Internet { address, with_ipv4 }) =
        (wanted, bound)
    else {
        return super::address_of(bound).as_ref() == Some(wanted);
    };
    let is_same = wanted.ip() == address.ip()
        || (*with_ipv4 && wanted.ip() == IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    is_same && (wanted.port() == address.port() || wanted.port() == 0)
}

impl From<&ListenAddress> for HandedAddress {
    fn from(address: &ListenAddress) -> HandedAddress {
        match address {
            ListenAddress::Tcp(address) => HandedAddress::Tcp(*address),
            ListenAddress::Unix(UnixAddress::Path(path)) => HandedAddress::Path(path.clone()),
            ListenAddress::Unix(UnixAddress::Abstract(name)) => {
                HandedAddress::Abstract(name.to_string())
            }
        }
    }
}

impl From<HandedAddress> for ListenAddress {
    fn from(address: HandedAddress) -> ListenAddress {
        match address {
            HandedAddress::Tcp(address) => ListenAddress::Tcp(address),
            HandedAddress::Path(path) => ListenAddress::Unix(UnixAddress::Path(path)),
            HandedAddress::Abstract(name) => {
                ListenAddress::Unix(UnixAddress::Abstract(name.into()))
            }
        }
    }
}
