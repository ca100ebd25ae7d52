//! The table of hosts and their sites.

use crate::rules::{Host, MOST_HOST_BYTES};
use crate::settings::SiteSettings;
use foldhash::quality::RandomState;
use forebay_conn::Request;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::IpAddr;

/// The hosts of all sites.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// The site of all hosts that no other site has.
    default: Option<u32>,
    exact: HostTable,
    /// Sites of wildcards, by the name behind the star and its dot.
    wildcards: HostTable,
}

/// Names in lower case. Clients choose what is looked up, not what is in the table.
type HostTable = HashMap<Box<[u8]>, u32, RandomState>;

impl Hosts {
    /// The table for these sites. If two claim a host, the first has it.
    pub(crate) fn new(sites: &[SiteSettings]) -> Hosts {
        let mut hosts = Hosts::default();
        for (number, site) in (0..).zip(sites) {
            if site.hosts.is_empty() {
                hosts.default.get_or_insert(number);
            }
            for host in &site.hosts {
                let names =
                    if host.is_wildcard() { &mut hosts.wildcards } else { &mut hosts.exact };
                names.entry(host.name().as_bytes().into()).or_insert(number);
            }
        }
        hosts
    }

    /// The site of a host in lower case; the longest wildcard wins.
    fn find(&self, host: &[u8]) -> Option<u32> {
        if let Some(site) = self.exact.get(host) {
            return Some(*site);
        }
        // a longer host is none, for rules of a policy neither, and could have thousands of dots
        if !self.wildcards.is_empty() && host.len() <= MOST_HOST_BYTES && is_name(host) {
            let dots = host.iter().enumerate().filter(|(_, byte)| **byte == b'.');
            let mut parents = dots.map(|(dot, _)| &host[dot + 1..]);
            if let Some(site) = parents.find_map(|parent| self.wildcards.get(parent)) {
                return Some(*site);
            }
        }
        self.default
    }
}

/// Whether a host could be a name. A host with other characters, a comma above all, could be taken
/// for another one, or for several.
fn is_name(host: &[u8]) -> bool {
    host.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// The number of hosts that a loop remembers, a power of two. Hosts that are asked for in turn
/// mostly stay.
const REMEMBERED: usize = 128;
/// The longest host that is remembered, which bounds the memory; longer ones, which are no names,
/// are looked up each time.
const MOST_REMEMBERED_BYTES: usize = 128;

/// A loop's memory of the hosts that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    /// The sites found last, by a hash of the text that was sent. Empty until there is something to
    /// remember.
    remembered: Vec<RememberedSite>,
    hasher: foldhash::fast::RandomState,
    /// Room for the host in lower case.
    lower: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct RememberedSite {
    /// The host as it was sent, with its port.
    authority: Box<[u8]>,
    /// `None` if nothing is remembered.
    site: Option<Option<u32>>,
}

impl Memo {
    /// The site that answers for `authority`, which is a host with or without a port, or nothing.
    #[inline]
    pub(crate) fn site_of(&mut self, hosts: &Hosts, authority: &[u8]) -> Option<u32> {
        if hosts.exact.is_empty() && hosts.wildcards.is_empty() {
            return hosts.default;
        }
        let index = self.hasher.hash_one(authority) as usize % REMEMBERED;
        match self.remembered.get(index) {
            Some(RememberedSite { authority: known, site: Some(site) })
                if **known == *authority =>
            {
                *site
            }
            _ => self.look_up(hosts, authority, index),
        }
    }

    #[cold]
    fn look_up(&mut self, hosts: &Hosts, authority: &[u8], index: usize) -> Option<u32> {
        self.lower.clear();
        self.lower.extend(host_of(authority).iter().map(u8::to_ascii_lowercase));
        let site = hosts.find(&self.lower);
        if authority.len() <= MOST_REMEMBERED_BYTES {
            self.remembered.resize(REMEMBERED, RememberedSite::default());
            self.remembered[index] =
                RememberedSite { authority: authority.into(), site: Some(site) };
        }
        site
    }
}

/// The host without its port and without the dot that may end a full name.
pub fn host_of(authority: &[u8]) -> &[u8] {
    let colon = match authority {
        // an IPv6 address has colons of its own
        [b'[', ..] => authority.iter().position(|&b| b == b']').map(|end| end + 1),
        _ => authority.iter().position(|&b| b == b':'),
    };
    let host = &authority[..colon.unwrap_or(authority.len())];
    host.strip_suffix(b".").unwrap_or(host)
}

/// Passes on the host that the client asked for, in lower case; if it named none, one of the
/// site's, or the listener's address.
pub(crate) fn asked_host(request: &Request<'_>, hosts: &[Host], mut push: impl FnMut(&[u8])) {
    let host = host_of(request.head.authority);
    if !host.is_empty() {
        return host.iter().for_each(|byte| push(&[byte.to_ascii_lowercase()]));
    }
    match hosts.iter().find(|host| !host.is_wildcard()) {
        Some(host) => push(host.name().as_bytes()),
        // the address of the listener, which may be that of no interface
        None if request.peer.local.ip().is_unspecified() => push(b"localhost"),
        None => match request.peer.local.ip() {
            IpAddr::V4(address) => push(address.to_string().as_bytes()),
            IpAddr::V6(address) => push(format!("[{address}]").as_bytes()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(sites: &[&[&str]]) -> Hosts {
        let site = |hosts: &&[&str]| SiteSettings {
            hosts: hosts.iter().map(|host| Host::parse(host).unwrap()).collect(),
            ..SiteSettings::default()
        };
        Hosts::new(&sites.iter().map(site).collect::<Vec<_>>())
    }

    #[test]
    fn exact_before_wildcard_before_default() {
        let hosts = hosts(&[
            &["shop.example", "*.shop.example", "127.0.0.1", "[::1]"],
            &["www.shop.example", "*.eu.shop.example"],
            &[],
            &["shop.example"],
        ]);
        let mut memo = Memo::default();
        for (authority, expected) in [
            ("shop.example", 0),
            ("SHOP.example:8080", 0),
            ("shop.example.", 0),
            ("shop.example.:80", 0),
            ("a.shop.example", 0),
            ("a.b.shop.example", 0),
            ("www.shop.example", 1),
            ("a.eu.shop.example", 1),
            ("eu.shop.example", 0),
            ("xshop.example", 2),
            ("example", 2),
            ("", 2),
            (".", 2),
            ("127.0.0.1:8080", 0),
            ("[::1]:8080", 0),
            ("[::1]", 0),
            ("[::2]", 2),
            (&"a".repeat(1000), 2),
            (&format!("{}.shop.example", "a".repeat(240)), 0),
            (&format!("{}.shop.example", "a".repeat(241)), 2),
            (&".".repeat(10_000), 2),
            ("evil.example,a.shop.example", 2),
            ("a_b-c.shop.example", 0),
            ("a*.shop.example", 2),
        ] {
            for _ in 0..2 {
                let site = memo.site_of(&hosts, authority.as_bytes());
                assert_eq!(site, Some(expected), "{authority}");
            }
        }
    }

    #[test]
    fn without_a_default_a_stranger_has_no_site() {
        let hosts = hosts(&[&["a"], &["b"]]);
        let mut memo = Memo::default();
        assert_eq!(memo.site_of(&hosts, b""), None);
        assert_eq!(memo.site_of(&hosts, b"b"), Some(1));
        assert_eq!(memo.site_of(&hosts, b"c"), None);
        assert_eq!(memo.site_of(&hosts, b"a"), Some(0));
    }
}
