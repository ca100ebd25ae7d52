//! Listening sockets that go to another process, and come from one. Both have them then: the queues stay open
//! whoever ends first.

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
    /// What was asked for.
    pub wanted: HandedAddress,
    /// Where it is bound.
    pub bound: HandedAddress,
    /// Who opened it.
    pub origin: HandedOrigin,
}

/// Where a socket listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandedAddress {
    /// At an internet address.
    Tcp(SocketAddr),
    /// At the path of a Unix socket.
    Path(PathBuf),
    /// At a name in the abstract namespace.
    Abstract(String),
}

/// Who opened a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandedOrigin {
    /// The server.
    Bound,
    /// The server, with a file.
    File,
    /// The service manager, which keeps it open.
    Inherited {
        /// What the service manager calls it.
        name: String,
        /// IPv4 connections come to `[::]` as well.
        with_ipv4: bool,
    },
}

impl Listeners {
    /// Duplicates of all that are listened at, for the process that takes the place of this one.
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

    /// Those that another process has handed. The other may be anybody's by now, and this one may be root: each has to
    /// listen where it is said to.
    ///
    /// # Errors
    /// What the kernel says of one; `InvalidData` if it is not what it is said to be.
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
                    // sockets that are added to these belong to the same user
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

    /// Sockets that were opened beside those that were handed listen from now on, and later ones at once. Before,
    /// clients would wait in their queues, and be lost if this process did not come to serve.
    ///
    /// # Errors
    /// What the kernel says.
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

    /// Where those are that `wanted` does not name.
    pub fn unnamed(&self, wanted: &[Listen]) -> Vec<HandedAddress> {
        let unnamed = self.open.iter().filter(|open| !open.is_wanted(wanted));
        unnamed.map(|open| (&open.address).into()).collect()
    }

    /// Sockets for one loop, of those addresses of `endpoints` that the process which takes the place of this one leaves.
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

    /// The process that has lent them has no use for them any more: the files of Unix sockets that `wanted` names are this
    /// one's. Those of others it may have put anywhere.
    pub fn own(&mut self, wanted: &[Listen]) {
        for open in self.open.iter_mut().filter(|open| open.is_wanted(wanted)) {
            if let SocketOrigin::File(file) = &mut open.origin {
                file.own();
            }
        }
    }

    /// Another process has all of them, but for these, which nobody has any more: their files go. It removes those of
    /// the others.
    pub fn hand_over(&mut self, left: &[HandedAddress]) {
        for open in self.open.drain(..) {
            let address = HandedAddress::from(&open.address);
            match open.origin {
                SocketOrigin::File(file) if !left.contains(&address) => file.leave(),
                // they are removed when they are dropped
                _ => {}
            }
        }
    }
}

/// Whether clients of one address come to a socket that is bound so: with any port if none was asked for.
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
