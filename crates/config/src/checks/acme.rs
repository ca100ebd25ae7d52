//! What must hold for the sites that want certificates by ACME, and rules that keep the authority out.

use crate::lower;
use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Wrong};
use crate::problems::quoted::quote;
use crate::reading::draft::{ConfigDraft, numbered};
use crate::table::ConfigReader;
use forebay_acme::ChallengeKind;
use forebay_policy::Policy;
use forebay_policy::facts::{ConnectionFacts, RequestFacts};
use forebay_policy::rule::{Action, Degree};
use forebay_site::rules::Host;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// What is said of certificates by ACME.
#[derive(Debug)]
enum AcmeFinding {
    /// A certificate is to be got for no host.
    WithoutHosts,
    /// An authority gives no certificate for such a host, or not in the ways that there are.
    NotForHost {
        /// As it was written.
        host: String,
        /// It stands for all hosts below a domain.
        is_wildcard: bool,
    },
    /// The terms of the authority are not agreed to.
    Terms {
        /// Its directory.
        url: String,
    },
    /// There is no listener for any way in which the authority may look.
    NoWay,
    /// A rule keeps the authority from looking.
    Refused {
        /// The host that it wants a certificate for.
        host: String,
        /// It does so before there is a request.
        is_early: bool,
    },
}

impl Finding for AcmeFinding {}

impl fmt::Display for AcmeFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcmeFinding::WithoutHosts => f.write_str(
                "an authority makes certificates for names, and this site has none: say them in hosts",
            ),
            AcmeFinding::NotForHost { host, is_wildcard: true } => write!(
                f,
                "no certificate for {host} is got by ACME: an authority would have to see a change at the \
                 name servers (dns-01), which is not offered here; name the hosts one by one, or let \
                 certbot or lego get it and name its files in tls.certificate"
            ),
            AcmeFinding::NotForHost { host, is_wildcard: false } => {
                write!(f, "no certificate for {host} is got by ACME: it is for names only")
            }
            AcmeFinding::Terms { url } => write!(
                f,
                "must be true for tls.acme: you agree to the terms of the authority at {url}, to which \
                 that leads (termsOfService)"
            ),
            AcmeFinding::NoWay => f.write_str(
                "there is no listener for it: http-01 needs one without TLS, which the authority finds at \
                 port 80, and tls-alpn-01 one with https://, at port 443",
            ),
            AcmeFinding::Refused { host, is_early } => {
                let early = if *is_early { "say path = \"/*\" here, and " } else { "" };
                write!(
                    f,
                    "also refuses the authority that is to give a certificate for {host}: {early}let a rule \
                     before it have path = \"/.well-known/acme-challenge/*\", action = \"allow\" and stop = true"
                )
            }
        }
    }
}

/// An address that no machine has (RFC 5737), for an authority that may come from anywhere.
const SOMEBODY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

impl ConfigDraft {
    /// Sites want certificates that an authority gives, and agree to its terms.
    pub(crate) fn check_acme(&self, text: Option<&ConfigReader<'_>>, wrong: &mut Vec<(At, Wrong)>) {
        let says = |at: &At| text.is_none_or(|text| text.says(at));
        let top = At::default();
        // what the top level says is inherited, and then is for those that it fits
        for (path, site) in self.every_site().into_iter().filter(|(_, site)| site.tls.acme) {
            let at = path.child("tls.acme");
            if !says(&at) {
                continue;
            }
            if !site.tls.pairs.is_empty() && says(&path.child("tls.certificate")) {
                wrong.push((at, Wrong::Both { other: "tls.certificate" }));
            } else if site.hosts.is_empty() && (!path.exact.is_empty() || self.sites.is_empty()) {
                wrong.push((at, Wrong::said(AcmeFinding::WithoutHosts)));
            }
        }
        let sites = self.all_sites();
        let mut wanting = sites.iter().filter(|(_, site)| site.has_acme()).peekable();
        if wanting.peek().is_none() {
            return;
        }
        let acme = &self.process.acme;
        if !acme.agree {
            wrong.push((
                top.child("acme.agree"),
                Wrong::said(AcmeFinding::Terms { url: acme.url().to_owned() }),
            ));
        }
        let listeners = self.all_listeners();
        let can = |kind| {
            let mut endpoints = listeners.iter().flat_map(|(_, listener)| &listener.listen);
            endpoints.any(|endpoint| endpoint.tls == (kind == ChallengeKind::TlsAlpn))
        };
        // a list with something wrong in it is told by itself
        if !acme.challenges.is_empty() && !acme.challenges.iter().any(|way| can(way.0)) {
            wrong.push((top.child("acme.challenges"), Wrong::said(AcmeFinding::NoWay)));
        }
        for (path, site) in wanting {
            for (index, host) in site.hosts.iter().enumerate() {
                if host.is_wildcard() || is_address(host) {
                    let at = path.child("hosts").item(index);
                    let (host, is_wildcard) = (quote(host.as_str()), host.is_wildcard());
                    wrong.push((at, Wrong::said(AcmeFinding::NotForHost { host, is_wildcard })));
                }
            }
        }
    }

    /// Rules that keep the authority out.
    pub(crate) fn remark_acme(&self, remarks: &mut Vec<(At, Wrong)>) {
        let sites = self.all_sites();
        let is_wanted = sites.iter().any(|(_, site)| site.has_acme());
        if is_wanted && let Ok(policy) = lower::policy(&self.classes, &self.rules) {
            let wanting = sites.iter().filter(|(_, site)| site.has_acme());
            let mut hosts = wanting.flat_map(|(_, site)| &site.hosts);
            let refused = hosts.find_map(|host| Some((host, self.refused(&policy, host)?)));
            if let Some((host, (rule, is_early))) = refused
                && let Some((at, _)) = numbered("rule", &self.rules).nth(rule)
            {
                let wrong =
                    Wrong::said(AcmeFinding::Refused { host: quote(host.as_str()), is_early });
                remarks.push((at.child("action"), wrong));
            }
        }
    }

    /// The rule that refuses an authority, wherever it comes from, in every way it may look, and whether it
    /// does so before there is a request.
    fn refused(&self, policy: &Policy, host: &Host) -> Option<(usize, bool)> {
        let listeners = self.all_listeners();
        let endpoints = listeners.iter().flat_map(|(_, listener)| &listener.listen);
        let says = |kind| match &self.process.acme.challenges[..] {
            [] => true,
            ways => ways.iter().any(|way| way.0 == kind),
        };
        let mut refused = None;
        for (kind, port) in [(ChallengeKind::Http, 80), (ChallengeKind::TlsAlpn, 443)] {
            if says(kind) && endpoints.clone().any(|on| on.tls == (kind == ChallengeKind::TlsAlpn))
            {
                let local = SocketAddr::from((SOMEBODY, port));
                let ends = ConnectionFacts { client: SocketAddr::from((SOMEBODY, 40_000)), local };
                let facts = RequestFacts {
                    ends,
                    host: host.name().as_bytes(),
                    method: "GET",
                    path: b"/.well-known/acme-challenge/token",
                    query: b"",
                    certificate: None,
                    identity: None,
                    fields: std::iter::empty(),
                };
                let refuses = |action: Option<u32>| {
                    let rule = action? as usize;
                    let refuses = policy.rules().get(rule)?.action? != Action::Allow;
                    refuses.then_some(rule)
                };
                let by = policy.explain_connection(&ends, Degree::NORMAL).decisions.action;
                let by = refuses(by).map(|rule| (rule, true)).or_else(|| {
                    // in a handshake nothing is asked for
                    let is_asked = kind == ChallengeKind::Http;
                    let asked = || policy.explain_request(&facts, Degree::NORMAL).decisions.action;
                    is_asked.then(asked).and_then(refuses).map(|rule| (rule, false))
                });
                refused = refused.or(Some(by?));
            }
        }
        refused
    }
}

fn is_address(host: &Host) -> bool {
    host.name().starts_with('[') || host.name().parse::<IpAddr>().is_ok()
}
