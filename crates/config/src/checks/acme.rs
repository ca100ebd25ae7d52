//! What must hold for the sites that want certificates by ACME, and rules that keep the authority out.

use crate::AddressSets;
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

/// A fault in the settings of ACME, or a remark about them.
#[derive(Debug)]
enum AcmeFinding {
    /// A certificate is wanted for a site without hosts.
    WithoutHosts,
    /// An authority gives no certificate for such a host, or not by the challenges there are.
    NotForHost {
        /// The host as the text has it.
        host: String,
        /// Whether the host is a wildcard (all hosts below a domain), and there is no command for DNS
        /// records.
        is_wildcard: bool,
    },
    /// A challenge that needs a command, and there is none.
    NoHook,
    /// The path of a command does not begin at the root.
    NotAbsolute {
        /// The path as the text has it.
        path: String,
    },
    /// The command would be run as root.
    RootHook,
    /// A command for DNS records, and no challenge uses it.
    IdleHook,
    /// The terms of the authority are not agreed to.
    Terms {
        /// The URL of the authority's directory.
        url: String,
    },
    /// There is no listener for any of the challenges.
    NoWay,
    /// A rule refuses the authority's requests.
    Refused {
        /// The host of the certificate.
        host: String,
        /// Whether the rule refuses before there is a request.
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
                "no certificate for {host} is got by ACME without acme.dns_hook: an authority wants to see a \
                 record of the name service (dns-01), and that is the command which makes it; or make one for \
                 good, and let acme.challenges have \"dns-persist-01\""
            ),
            AcmeFinding::NotForHost { host, is_wildcard: false } => {
                write!(f, "no certificate for {host} is got by ACME: it is for names only")
            }
            AcmeFinding::NoHook => f.write_str(
                "\"dns-01\" needs acme.dns_hook, the command that makes records of the name service",
            ),
            AcmeFinding::NotAbsolute { path } => write!(
                f,
                "{path} is searched for nowhere: write the path of the program from the root on, such as \
                 \"/usr/local/bin/dns-hook\", and each argument as a text of its own"
            ),
            AcmeFinding::RootHook => f.write_str(
                "no command is run as root: name a user who may change the records and nothing else",
            ),
            AcmeFinding::IdleHook => f.write_str(
                "is never run: no site with tls.acme has a host with a star, and acme.challenges has no \"dns-01\"",
            ),
            AcmeFinding::Terms { url } => write!(
                f,
                "must be true for tls.acme: you agree to the terms of the authority at {url}, to which \
                 that leads (termsOfService)"
            ),
            AcmeFinding::NoWay => f.write_str(
                "there is no listener for it: http-01 needs one without TLS, which the authority finds at \
                 port 80, and tls-alpn-01 one with https://, at port 443; dns-01 and dns-persist-01 need none",
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

/// An address that no machine has (RFC 5737), for an authority whose address is not known.
const SOMEBODY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

impl ConfigDraft {
    /// Checks that the command for DNS records can be run.
    fn check_hook(&self, wrong: &mut Vec<(At, Wrong)>) {
        let (acme, top) = (&self.process.acme, At::default());
        let hook = acme.hook();
        if let Some(path) = hook.first().filter(|path| !path.starts_with('/')) {
            let path = quote(path);
            wrong.push((
                top.child("acme.dns_hook").item(0),
                Wrong::said(AcmeFinding::NotAbsolute { path }),
            ));
        }
        if acme.dns_user.as_ref().is_some_and(|user| matches!(user.as_str(), "root" | "0")) {
            wrong.push((top.child("acme.dns_user"), Wrong::said(AcmeFinding::RootHook)));
        }
        let by_dns = acme.challenges.iter().position(|way| way.0 == ChallengeKind::Dns);
        if let Some(index) = by_dns.filter(|_| hook.is_empty()) {
            let at = top.child("acme.challenges").item(index);
            wrong.push((at, Wrong::said(AcmeFinding::NoHook)));
        }
    }

    /// Checks that the sites that want certificates can get them, and that the authority's terms are agreed
    /// to.
    pub(crate) fn check_acme(&self, text: Option<&ConfigReader<'_>>, wrong: &mut Vec<(At, Wrong)>) {
        let says = |at: &At| text.is_none_or(|text| text.says(at));
        let top = At::default();
        self.check_hook(wrong);
        // settings of the top level are inherited, and count for the sites that they fit
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
        let shows_wildcards = !acme.dns_hook.is_empty() || acme.has(ChallengeKind::Persist);
        let can = |kind: ChallengeKind| {
            let endpoints = listeners.iter().flat_map(|(_, listener)| &listener.listen);
            let mut endpoints = endpoints.filter(|endpoint| !endpoint.raw);
            kind.is_by_name_service()
                || endpoints.any(|endpoint| endpoint.tls == (kind == ChallengeKind::TlsAlpn))
        };
        let mut hosts =
            sites.iter().filter(|(_, site)| site.has_acme()).flat_map(|(_, s)| &s.hosts);
        let needs_others = hosts.any(|host| !host.is_wildcard());
        // an invalid list is reported where it is read
        if needs_others
            && !acme.challenges.is_empty()
            && !acme.challenges.iter().any(|way| can(way.0))
        {
            wrong.push((top.child("acme.challenges"), Wrong::said(AcmeFinding::NoWay)));
        }
        for (path, site) in wanting {
            for (index, host) in site.hosts.iter().enumerate() {
                if (host.is_wildcard() && !shows_wildcards) || is_address(host) {
                    let at = path.child("hosts").item(index);
                    let (host, is_wildcard) = (quote(host.as_str()), host.is_wildcard());
                    wrong.push((at, Wrong::said(AcmeFinding::NotForHost { host, is_wildcard })));
                }
            }
        }
    }

    /// Remarks on rules that keep the authority out, and on a command that is not used.
    pub(crate) fn remark_acme(&self, text: &ConfigReader<'_>, remarks: &mut Vec<(At, Wrong)>) {
        let sites = self.all_sites();
        let acme = &self.process.acme;
        if acme.dns_hook.is_empty() {
            let needs = "acme.dns_hook";
            let keys = ["acme.dns_user", "acme.dns_timeout", "acme.dns_wait"];
            let said = keys.iter().map(|key| At::default().child(key)).filter(|at| text.says(at));
            remarks.extend(said.map(|at| (at, Wrong::Idle { needs })));
        } else {
            let mut wanting = sites.iter().filter(|(_, site)| site.has_acme());
            let is_used = wanting.any(|(_, site)| {
                acme.has(ChallengeKind::Dns)
                    || (site.hosts.iter().any(Host::is_wildcard)
                        && !acme.has(ChallengeKind::Persist))
            });
            if !is_used {
                let at = At::default().child("acme.dns_hook");
                remarks.push((at, Wrong::said(AcmeFinding::IdleHook)));
            }
        }
        let is_wanted = sites.iter().any(|(_, site)| site.has_acme());
        if is_wanted
            && let Ok(policy) = lower::policy(&self.classes, &self.rules, &AddressSets::default())
        {
            let wanting = sites.iter().filter(|(_, site)| site.has_acme());
            let hosts = wanting.flat_map(|(_, site)| &site.hosts);
            // for the others, an authority looks at the name service
            let asks = acme.challenges.iter().any(|way| way.0.is_by_name_service());
            let mut hosts = hosts.filter(|host| !host.is_wildcard() && !asks);
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

    /// The rule that refuses the authority for every challenge, from any address, and whether it does so
    /// before there is a request.
    fn refused(&self, policy: &Policy, host: &Host) -> Option<(usize, bool)> {
        let listeners = self.all_listeners();
        let endpoints = listeners.iter().flat_map(|(_, listener)| &listener.listen);
        let endpoints = endpoints.filter(|endpoint| !endpoint.raw);
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
                    // tls-alpn-01 ends with the handshake, so no request comes
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
