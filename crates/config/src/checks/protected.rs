//! Checks of the servers besides this one that the kernel protects: none stands twice, and none is this
//! one.

use crate::Listen;
use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Wrong};
use crate::reading::draft::{ConfigDraft, numbered};
use crate::sections::protect::{MOST_PROTECTED, MachineAddress};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A fault in a protected server.
#[derive(Debug)]
enum ProtectFault {
    TooMany {
        found: usize,
    },
    Twice,
    /// This server listens at the port.
    Own {
        port: u16,
    },
    /// The address is one of this machine.
    Here,
}

impl Finding for ProtectFault {}

impl fmt::Display for ProtectFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtectFault::TooMany { found } => {
                write!(f, "there are {found} of them, and at most {MOST_PROTECTED} can be")
            }
            ProtectFault::Twice => f.write_str("another [[protect]] has the same port and address"),
            ProtectFault::Own { port } => {
                write!(f, "this server itself listens at port {port}, where its rules hold anyway")
            }
            ProtectFault::Here => f.write_str(
                "packets for it are passed on to no other machine; a server on this one is named by its port alone",
            ),
        }
    }
}

/// Whether an address can only be one of this machine.
fn is_here(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || address.is_unspecified()
}

impl ConfigDraft {
    pub(crate) fn check_protected(&self, wrong: &mut Vec<(At, Wrong)>) {
        let listeners = self.all_listeners();
        let own = listeners.iter().flat_map(|(_, listener)| listener.listen.iter());
        let port = |listen: &Listen| match listen {
            Listen::At(address) => Some(address.port()),
            Listen::All(port) => Some(*port),
            Listen::Unix(_) => None,
        };
        let own: Vec<&Listen> = own.map(|one| &one.listen).collect();
        let own_addresses: Vec<SocketAddr> = own
            .iter()
            .filter_map(|listen| match listen {
                Listen::At(address) => {
                    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
                }
                Listen::All(_) | Listen::Unix(_) => None,
            })
            .collect();
        let own: Vec<u16> = own.into_iter().filter_map(port).collect();
        for (index, (at, other)) in numbered("protect", &self.protects).enumerate() {
            let is_same = |known: &&crate::ProtectConfig| {
                (known.port(), known.address) == (other.port(), other.address)
            };
            let fault = if index == MOST_PROTECTED {
                ProtectFault::TooMany { found: self.protects.len() }
            } else if self.protects[..index].iter().any(|known| is_same(&known)) {
                ProtectFault::Twice
            } else if other.address.is_none() && own.contains(&other.port()) {
                ProtectFault::Own { port: other.port() }
            } else if let Some(MachineAddress(address)) = other.address
                && own_addresses.contains(&SocketAddr::new(address.to_canonical(), other.port()))
            {
                ProtectFault::Own { port: other.port() }
            } else if other.address.is_some_and(|MachineAddress(address)| is_here(address)) {
                wrong.push((at.child("address"), Wrong::said(ProtectFault::Here)));
                continue;
            } else {
                continue;
            };
            wrong.push((at.child("port"), Wrong::said(fault)));
        }
    }
}
