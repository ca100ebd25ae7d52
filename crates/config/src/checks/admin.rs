//! The admin listener: how it is secured, and which clients can read it.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Remarks, Wrong};
use crate::reading::draft::ConfigDraft;
use crate::table::ConfigReader;
use crate::{AdminConfig, Listen, ListenEndpoint};
use forebay_site::rules::Network;
use std::fmt;
use std::net::IpAddr;

/// A fault in the admin listener, or a remark about it.
#[derive(Debug)]
enum AdminFinding {
    /// The admin listener speaks TLS and has no certificate.
    NoCertificate,
    /// Tokens would go over the network in clear.
    TokenInClear {
        /// The address of the listener.
        listen: String,
    },
    /// A page for browsers where strangers may come, without TLS or without a token.
    PageInTheOpen {
        /// The address of the listener.
        listen: String,
        /// What is missing.
        lack: &'static str,
    },
    /// The list of clients names none that can come to the address.
    Nobody {
        /// The address of the listener.
        listen: String,
    },
    /// An address for all clients, where only those of this machine are answered.
    ThisMachineOnly {
        /// The address of the listener.
        listen: String,
    },
    /// An admin listener that strangers may read.
    ForAll {
        /// The address of the listener.
        listen: String,
    },
}

impl Finding for AdminFinding {}

impl fmt::Display for AdminFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminFinding::NoCertificate => f.write_str(
                "TLS is to be spoken here, and there is no admin.tls.certificate and admin.tls.key",
            ),
            AdminFinding::TokenInClear { listen } => write!(
                f,
                "the tokens of admin.token_file would go to {listen:?} in clear, for everybody on the way \
                 to read; write \"https://{listen}\", or listen at loopback or a Unix socket"
            ),
            AdminFinding::PageInTheOpen { listen, lack } => write!(
                f,
                "admin.page shows who asks for what, and others than this machine reach {listen:?}: {lack}, or \
                 listen at loopback or a Unix socket"
            ),
            AdminFinding::Nobody { listen } => write!(
                f,
                "names nobody who can come to {listen:?}; add the address of the machine that reads \
                 it, such as \"10.0.0.7\""
            ),
            AdminFinding::ThisMachineOnly { listen } => write!(
                f,
                "{listen:?} is all addresses, and only clients of this machine are answered there: name \
                 others in admin.allow, or listen at 127.0.0.1"
            ),
            AdminFinding::ForAll { listen } => write!(
                f,
                "everybody who reaches {listen} reads metrics and status, as no token is asked for: write \
                 admin.token_file, or allow fewer networks"
            ),
        }
    }
}

impl ConfigDraft {
    /// The addresses of the admin listener, each with its place in the configuration.
    pub fn admin_endpoints(&self, text: Option<&ConfigReader<'_>>) -> Vec<(At, &ListenEndpoint)> {
        let list = At::default().child("admin").child("listen");
        let at = |index| match text {
            Some(text) => text.item(&list, index),
            None => list.clone(),
        };
        let endpoints = self.process.admin.listen.0.iter().enumerate();
        endpoints.map(|(index, endpoint)| (at(index), endpoint)).collect()
    }

    /// Checks that the admin listener has a certificate where it speaks TLS, and that no token crosses a
    /// network in clear.
    pub(crate) fn check_admin(
        &self,
        text: Option<&ConfigReader<'_>>,
        wrong: &mut Vec<(At, Wrong)>,
    ) {
        let AdminConfig { pairs, token_file, page, .. } = &self.process.admin;
        let top = At::default();
        let certificate = top.child("admin").child("tls").child("certificate");
        let (certificates, keys) = (pairs.certificates.len(), pairs.keys.len());
        if certificates != keys {
            wrong.push((certificate.clone(), Wrong::Unpaired { certificates, keys }));
        }
        // a certificate that cannot be read is reported where it is read
        let has_one = !pairs.is_empty() || text.is_some_and(|text| text.says(&certificate));
        for (at, ListenEndpoint { listen, tls, .. }) in self.admin_endpoints(text) {
            if *tls && !has_one {
                wrong.push((at, Wrong::said(AdminFinding::NoCertificate)));
            } else if !tls && token_file.is_some() && !listen.is_of_this_machine() {
                wrong.push((
                    at,
                    Wrong::said(AdminFinding::TokenInClear { listen: listen.to_string() }),
                ));
            } else if *page
                && !listen.is_of_this_machine()
                && let Some(lack) = lack_of_page(*tls, token_file.is_some())
            {
                let listen = listen.to_string();
                wrong.push((at, Wrong::said(AdminFinding::PageInTheOpen { listen, lack })));
            }
        }
    }

    /// Remarks on an admin listener that no client can read, or fewer than its address invites.
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
            let listed = admin.child("allow");
            let (at, finding) = match listen {
                _ if !may_anybody(allow, listen) => {
                    (listed, AdminFinding::Nobody { listen: listen.to_string() })
                }
                _ if is_for_all(listen) && !text.says(&listed) => {
                    (at, AdminFinding::ThisMachineOnly { listen: listen.to_string() })
                }
                _ if is_open && !listen.is_of_this_machine() => {
                    (at, AdminFinding::ForAll { listen: listen.to_string() })
                }
                _ => continue,
            };
            remarks.push((at, Wrong::said(finding)));
        }
    }
}

/// What a page for browsers lacks where others than this machine reach it.
fn lack_of_page(has_tls: bool, has_token: bool) -> Option<&'static str> {
    match (has_tls, has_token) {
        (true, true) => None,
        (true, false) => Some("write admin.token_file"),
        (false, true) => Some("write \"https://\" before the address"),
        (false, false) => Some("write \"https://\" before the address and admin.token_file"),
    }
}

/// Whether a client among these can come to the address.
fn may_anybody(allowed: &[Network], listen: &Listen) -> bool {
    // a client that comes to a network address mostly has a network address itself
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
            // a client chooses which of them it comes from
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
