//! The admin listener: how it is secured, and who can read it.

use crate::problems::path::Path as At;
use crate::problems::problem::{Remarks, Wrong};
use crate::reading::draft::ConfigDraft;
use crate::table::ConfigReader;
use crate::{AdminConfig, Listen, ListenEndpoint};
use forebay_site::rules::Network;
use std::net::IpAddr;

impl ConfigDraft {
    /// Where the admin listener is, and where that stands.
    pub fn admin_endpoints(&self, text: Option<&ConfigReader<'_>>) -> Vec<(At, &ListenEndpoint)> {
        let list = At::default().child("admin").child("listen");
        let at = |index| match text {
            Some(text) => text.item(&list, index),
            None => list.clone(),
        };
        let endpoints = self.process.admin.listen.0.iter().enumerate();
        endpoints.map(|(index, endpoint)| (at(index), endpoint)).collect()
    }

    /// Where the admin listener speaks TLS it has a certificate, and its tokens go nowhere in clear.
    pub(crate) fn check_admin(
        &self,
        text: Option<&ConfigReader<'_>>,
        wrong: &mut Vec<(At, Wrong)>,
    ) {
        let AdminConfig { pairs, token_file, .. } = &self.process.admin;
        let top = At::default();
        let certificate = top.child("admin").child("tls").child("certificate");
        let (certificates, keys) = (pairs.certificates.len(), pairs.keys.len());
        if certificates != keys {
            wrong.push((certificate.clone(), Wrong::Unpaired { certificates, keys }));
        }
        // one that cannot be read is told by itself
        let has_one = !pairs.is_empty() || text.is_some_and(|text| text.says(&certificate));
        for (at, ListenEndpoint { listen, tls }) in self.admin_endpoints(text) {
            if *tls && !has_one {
                wrong.push((at, Wrong::NoAdminCertificate));
            } else if !tls && token_file.is_some() && !listen.is_of_this_machine() {
                wrong.push((at, Wrong::TokenInClear { listen: listen.to_string() }));
            }
        }
    }

    /// An admin listener that no client can read, or fewer than its address invites.
    pub(crate) fn remark_admin(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        let AdminConfig { allow, pairs, token_file, .. } = &self.process.admin;
        let is_open = token_file.is_none() && allow.iter().any(Network::has_everybody);
        let endpoints = self.admin_endpoints(Some(text));
        let admin = At::default().child("admin");
        if !pairs.is_empty() && !endpoints.iter().any(|(_, endpoint)| endpoint.tls) {
            let wrong = Wrong::NoTlsAddress { list: "admin.listen" };
            remarks.push((admin.child("tls.certificate"), wrong));
        }
        for (at, ListenEndpoint { listen, .. }) in endpoints {
            let wrong = match listen {
                _ if !may_anybody(allow, listen) => Wrong::Nobody { listen: listen.to_string() },
                _ if is_for_all(listen) && !text.says(&admin.child("allow")) => {
                    Wrong::ThisMachineOnly { listen: listen.to_string() }
                }
                _ if is_open && !listen.is_of_this_machine() => {
                    Wrong::AdminForAll { listen: listen.to_string() }
                }
                _ => continue,
            };
            let at = if matches!(wrong, Wrong::Nobody { .. }) { admin.child("allow") } else { at };
            remarks.push((at, wrong));
        }
    }
}

/// Whether a client among these can come to the address.
fn may_anybody(allowed: &[Network], listen: &Listen) -> bool {
    // a client that comes to an address of the network has one of the network, mostly
    let may_come = |network: &&Network| match listen {
        Listen::At(address) if !is_local(address.ip()) => network.has_others(),
        _ => true,
    };
    let able: Vec<_> = allowed.iter().filter(may_come).collect();
    let mut sources = sources(listen).iter().flat_map(|text| Network::parse(text));
    sources.any(|source| able.iter().any(|network| network.overlaps(&source)))
}

/// The addresses that clients of a listener may have, as networks.
fn sources(listen: &Listen) -> &'static [&'static str] {
    match listen {
        Listen::Unix(_) => &["unix"],
        Listen::All(_) => &["0.0.0.0/0", "::/0"],
        Listen::At(address) => match address.ip() {
            // from which of them a client comes is its choice
            IpAddr::V4(ip) if ip.is_loopback() => &["127.0.0.0/8"],
            IpAddr::V6(ip) if ip.is_loopback() => &["::1"],
            IpAddr::V4(_) => &["0.0.0.0/0"],
            IpAddr::V6(_) => &["::/0"],
        },
    }
}

/// Whether clients of this machine come to the address from loopback.
fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

fn is_for_all(listen: &Listen) -> bool {
    match listen {
        Listen::All(_) => true,
        Listen::At(address) => address.ip().is_unspecified(),
        Listen::Unix(_) => false,
    }
}
