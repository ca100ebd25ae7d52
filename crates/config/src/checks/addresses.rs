//! Checks that no two sockets want the same address, and that a listener for proxies has proxies.

use crate::checks::text::Text;
use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Wrong, see};
use crate::problems::quoted::quote;
use crate::problems::text_place::TextPlace;
use crate::reading::draft::ConfigDraft;
use crate::{ControlSocketChoice, Listen, Role};
use forebay_sys::unix_address::UnixAddress;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A fault in addresses.
#[derive(Debug)]
enum AddressFault {
    /// Two listening sockets have an address in common.
    Overlap {
        /// The later address.
        found: String,
        /// The earlier address.
        other: String,
        /// The line and column of the earlier address.
        place: Option<TextPlace>,
    },
    /// A listener for proxies, and no proxy is trusted.
    NoProxy,
}

impl Finding for AddressFault {}

impl fmt::Display for AddressFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressFault::Overlap { found, other, place } => {
                write!(f, "{found:?} overlaps with {other:?}")?;
                see(f, place)
            }
            AddressFault::NoProxy => {
                write!(f, "nobody could connect: set trusted_proxies to the proxies that may")
            }
        }
    }
}

impl ConfigDraft {
    /// Checks that no two sockets want the same address.
    pub(crate) fn check_addresses(&self, text: Text<'_>, wrong: &mut Vec<(At, Wrong)>) {
        let listeners = self.all_listeners();
        let mut known: Vec<(&Listen, At)> = Vec::new();
        for (path, listener) in &listeners {
            if listener.listen.is_empty() {
                let example = "listen = [\"127.0.0.1:8080\"]".to_owned();
                wrong.push((path.child("listen"), Wrong::Missing { example }));
            }
            for (index, endpoint) in listener.listen.iter().enumerate() {
                let (at, listen) = (path.child("listen").item(index), &endpoint.listen);
                let other = known.iter().find(|(other, _)| overlap(listen, other));
                if let Some((other, first)) = other {
                    wrong.push((at, overlapping(listen, other, first, text)));
                } else {
                    known.push((listen, at));
                }
            }
        }
        let control = match &self.process.control.socket {
            ControlSocketChoice::At(path) => Some(Listen::Unix(UnixAddress::Path(path.clone()))),
            ControlSocketChoice::Auto | ControlSocketChoice::Off => None,
        };
        let admin = self.admin_endpoints(text.0).into_iter();
        let admin = admin.map(|(at, endpoint)| (at, endpoint.listen.clone()));
        let control = control.map(|listen| (At::default().child("control.socket"), listen));
        // a stage takes any peer at this listener for another stage, so clients must not reach it
        let keys = [("process_listen", Role::Process), ("respond_listen", Role::Respond)];
        let asked = keys.into_iter().flat_map(|(key, role)| {
            let listen = self.process.isolated.listen(role).iter().enumerate();
            listen.map(move |(index, listen)| {
                (At::default().child("isolated").child(key).item(index), listen.clone())
            })
        });
        let others: Vec<_> = admin.chain(control).chain(asked).collect();
        for (at, listen) in &others {
            if let Some((other, first)) = known.iter().find(|(other, _)| overlap(listen, other)) {
                wrong.push((at.clone(), overlapping(listen, other, first, text)));
            } else {
                known.push((listen, at.clone()));
            }
        }
    }

    /// Checks that a listener for proxies has proxies.
    pub(crate) fn check_proxies(&self, wrong: &mut Vec<(At, Wrong)>) {
        if !self.process.trusted_proxies.is_empty() {
            return;
        }
        for (path, _) in self.all_listeners().iter().filter(|(_, l)| l.proxy_protocol) {
            wrong.push((path.child("proxy_protocol"), Wrong::said(AddressFault::NoProxy)));
        }
    }
}

/// What is wrong with an address that overlaps with another one, which stands at `first`.
fn overlapping(listen: &Listen, other: &Listen, first: &At, text: Text<'_>) -> Wrong {
    let (found, place) = (listen.to_string(), text.place(first));
    match listen == other {
        true => Wrong::Taken { found: quote(&found), by: first.shown.clone(), place },
        false => Wrong::said(AddressFault::Overlap { found, other: other.to_string(), place }),
    }
}

/// Whether the two want the same port of the same address. Port 0 never does: the kernel chooses another
/// one each time.
fn overlap(one: &Listen, other: &Listen) -> bool {
    if let (Listen::Unix(one), Listen::Unix(other)) = (one, other) {
        return one == other;
    }
    let share = |one: &SocketAddr| {
        addresses(other).iter().any(|other| {
            let same_family = one.is_ipv4() == other.is_ipv4();
            let any = one.ip().is_unspecified() || other.ip().is_unspecified();
            // each interface has link-local addresses of its own
            let scopes = [scope(one), scope(other)];
            let same_scope = scopes[0] == scopes[1] || scopes.contains(&0);
            let same = (one.ip() == other.ip() && same_scope) || (same_family && any);
            one.port() == other.port() && one.port() != 0 && same
        })
    };
    addresses(one).iter().any(share)
}

fn scope(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

fn addresses(listen: &Listen) -> Vec<SocketAddr> {
    match listen {
        Listen::At(address) => vec![*address],
        Listen::All(port) => {
            let any = [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
            any.iter().map(|ip| (*ip, *port).into()).collect()
        }
        Listen::Unix(_) => Vec::new(),
    }
}
