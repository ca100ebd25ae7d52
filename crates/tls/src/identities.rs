//! The server's identities, by the name that a client asks for.

use crate::identity::Identity;
use crate::names::covers;
use crate::proofs::Proofs;
use forebay_conn::Secured;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// All identities of a server: the exact name before the wildcard, and one for all other names.
#[derive(Debug, Default)]
pub struct Identities {
    by_host: HashMap<String, Arc<Identity>>,
    /// The identities for hosts directly below a domain, as certificates are.
    by_domain: HashMap<String, Arc<Identity>>,
    /// The identities for all hosts below a domain, as sites are.
    below: HashMap<String, Arc<Identity>>,
    /// Whether some identities are for addresses.
    has_addresses: bool,
    default: Option<Arc<Identity>>,
    /// The certificates that are shown to authorities which verify that a name belongs to this
    /// server.
    proofs: Option<Arc<Proofs>>,
}

impl Identities {
    /// Identities without names yet. Without a default, a client that asks for no name or an
    /// unknown one is refused.
    pub fn new(default: Option<Arc<Identity>>) -> Identities {
        Identities { default, ..Identities::default() }
    }

    /// Adds this identity for this name: a host in lower case, or `*.` and a domain. The first
    /// identity for a name keeps it.
    pub fn add(&mut self, name: &str, identity: &Arc<Identity>) {
        let (by, name) = match name.strip_prefix("*.") {
            Some(domain) => (&mut self.by_domain, domain),
            None => (&mut self.by_host, name),
        };
        by.entry(name.to_owned()).or_insert_with(|| Arc::clone(identity));
        self.has_addresses |= is_address(name);
    }

    /// Adds like [`add`](Identities::add), for the host of a site, whose wildcards stand for hosts
    /// at any depth.
    pub fn add_site(&mut self, host: &str, identity: &Arc<Identity>) {
        if let Some(domain) = host.strip_prefix("*.") {
            self.below.entry(domain.to_owned()).or_insert_with(|| Arc::clone(identity));
        } else {
            self.add(host, identity);
        }
    }

    /// Whether a client that asks for no name may be answered by the address that it has connected
    /// to.
    pub fn has_addresses(&self) -> bool {
        self.has_addresses
    }

    /// Shows these proofs to authorities which verify that a name belongs to this server.
    #[must_use]
    pub fn with_proofs(mut self, proofs: &Arc<Proofs>) -> Identities {
        self.proofs = Some(Arc::clone(proofs));
        self
    }

    /// The identity that answers this hello, which asks for `name`. A client that asks for none may
    /// mean the address that it has connected to: addresses are no names that a client may ask for
    /// (RFC 6066 §3).
    pub(crate) fn of_hello(
        &self,
        is_proof: bool,
        name: Option<&str>,
        reached: IpAddr,
    ) -> Option<Arc<Identity>> {
        if let (true, Some(proofs), Some(name)) = (is_proof, &self.proofs, name)
            && let Some(proof) = proofs.find(name)
        {
            return Some(proof);
        }
        let address = match (name, reached.to_canonical()) {
            (None, IpAddr::V4(address)) if self.has_addresses => Some(address.to_string()),
            (None, IpAddr::V6(address)) if self.has_addresses => Some(format!("[{address}]")),
            _ => None,
        };
        self.find(name.or(address.as_deref())).cloned()
    }

    /// The identity that answers a client which asks for this name.
    pub fn find(&self, name: Option<&str>) -> Option<&Arc<Identity>> {
        let named = name.and_then(|name| {
            let dots = name.bytes().enumerate().filter(|(_, byte)| *byte == b'.');
            let mut domains = dots.map(|(dot, _)| &name[dot + 1..]);
            let below = domains.clone().find_map(|domain| self.below.get(domain));
            let right_below = || self.by_domain.get(domains.next()?);
            self.by_host.get(name).or(below).or_else(right_below)
        });
        named.or(self.default.as_ref())
    }

    /// Whether a request for this host, as it was sent but without its port, has come through a
    /// connection for another one: the certificate that was shown is not for it, and the one that
    /// would have been is another (RFC 9110 §15.5.20).
    pub fn is_misdirected(&self, secured: &Secured, host: &[u8]) -> bool {
        let is_named = |name: &str| name.as_bytes().eq_ignore_ascii_case(host);
        if host.is_empty()
            || secured.name.as_deref().is_some_and(is_named)
            || secured.hosts.iter().any(|name| name.as_bytes() == host)
        {
            return false;
        }
        let mut host = String::from_utf8_lossy(host);
        if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            host.to_mut().make_ascii_lowercase();
        }
        !covers(&secured.hosts, &host)
            && self.find(Some(&host)).is_some_and(|identity| *identity.names() != secured.hosts)
    }
}

/// Whether this is the form of an address among names: IPv6 has brackets.
fn is_address(name: &str) -> bool {
    name.starts_with('[') || name.parse::<Ipv4Addr>().is_ok()
}
