//! The assignment of sockets from a service manager or a program to listeners.

use super::of_class::SocketsOfClasses;
use super::{
    AddressSockets, ListenAddress, ListenError, Listeners, SocketOrigin, address_of, all_addresses,
};
use forebay_config::{Listen, ListenEndpoint};
use forebay_sys::inherited::{Inherited, InheritedAddress};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

impl Listeners {
    /// The service manager's name of the socket that it has opened at this port for both
    /// families, if there is one.
    pub(super) fn passed_for_both(&self, port: u16) -> Option<&str> {
        let [_, v6] = all_addresses(port);
        let passed = self.inherited.iter().find(|passed| {
            let InheritedAddress::Internet { with_ipv4: true, .. } = passed.bound else {
                return false;
            };
            address_of(&passed.bound).as_ref() == Some(&v6)
        });
        let open = || {
            self.open.iter().find_map(|open| match &open.origin {
                SocketOrigin::Inherited { name, with_ipv4: true } if open.address == v6 => {
                    Some(&**name)
                }
                _ => None,
            })
        };
        passed.map(|passed| &*passed.name).or_else(open)
    }

    /// Whether a socket for both families takes the connections of this endpoint, and its listener
    /// names the wildcard addresses of both families, so that the connections are its own there, too.
    pub(super) fn comes_to_both(
        &self,
        endpoint: &ListenEndpoint,
        wanted: &[ListenEndpoint],
    ) -> bool {
        let Listen::At(address) = endpoint.listen else { return false };
        let [v4, v6] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]
            .map(|ip: IpAddr| SocketAddr::new(ip, address.port()));
        let both = ListenEndpoint { listen: Listen::At(v6), ..endpoint.clone() };
        address == v4 && wanted.contains(&both) && self.passed_for_both(v4.port()).is_some()
    }

    pub(super) fn take_inherited(&mut self, wanted: &ListenAddress) -> Option<AddressSockets> {
        let is_wanted = |passed: &Inherited| match (address_of(&passed.bound), wanted) {
            // a wanted port 0 matches any port
            (Some(ListenAddress::Tcp(bound)), ListenAddress::Tcp(asked)) if asked.port() == 0 => {
                bound.ip() == asked.ip()
            }
            (bound, wanted) => bound.as_ref() == Some(wanted),
        };
        let passed = self.inherited.swap_remove(self.inherited.iter().position(is_wanted)?);
        let address = address_of(&passed.bound).unwrap_or_else(|| wanted.clone());
        // several sockets share an address where another process had one for each loop
        let is_same = |other: &mut Inherited| other.bound == passed.bound;
        let others = self.inherited.extract_if(.., is_same).map(|other| other.socket);
        let others: Vec<_> = others.collect();
        let with_ipv4 = matches!(passed.bound, InheritedAddress::Internet { with_ipv4: true, .. });
        Some(AddressSockets {
            wanted: wanted.clone(),
            purpose: self.purpose,
            address,
            origin: SocketOrigin::Inherited { name: passed.name, with_ipv4 },
            sockets: std::iter::once(passed.socket).chain(others).collect(),
            in_force: 0,
            of_classes: SocketsOfClasses::default(),
            silent: 0,
            left: None,
        })
    }

    /// Checks that `wanted` names every socket from the service manager. It would go on to queue
    /// connections at the others, which are not accepted.
    ///
    /// # Errors
    /// [`ListenError::Unnamed`] for the first that is not named.
    pub fn check_inherited(&self, wanted: &[Listen]) -> Result<(), ListenError> {
        if let Some(passed) = self.inherited.first() {
            let (address, name) = (address_of(&passed.bound), passed.name.clone());
            return Err(ListenError::Unnamed { address, name });
        }
        let unnamed = self.open.iter().filter(|open| !open.is_wanted(wanted));
        let mut names = unnamed.filter_map(|open| match &open.origin {
            SocketOrigin::Inherited { name, .. } => Some((open.address.clone(), name.clone())),
            _ => None,
        });
        match names.next() {
            Some((address, name)) => Err(ListenError::Unnamed { address: Some(address), name }),
            None => Ok(()),
        }
    }
}
