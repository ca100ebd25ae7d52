//! Certificates by ACME: from which authority, and what must hold for the sites that want them.

use super::draft::ConfigDraft;
use super::draft::numbered;
use super::path::Path as At;
use super::problem::Wrong;
use super::table::ConfigReader;
use super::value::{Written, quote};
use super::written::unfit;
use super::{SiteConfig, lower};
use forebay_acme::{ChallengeKind, Names, Storage, WantedCertificate};
use forebay_policy::Policy;
use forebay_policy::facts::{ConnectionFacts, RequestFacts};
use forebay_policy::rule::{Action, Degree};
use forebay_site::rules::Host;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// How an authority may look whether a name is ours, as it is written.
const WAYS: [(&str, ChallengeKind); 2] =
    [("http-01", ChallengeKind::Http), ("tls-alpn-01", ChallengeKind::TlsAlpn)];

/// An address that no machine has (RFC 5737), for an authority that may come from anywhere.
const SOMEBODY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// Where the directory of an authority is (RFC 8555 §7.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryUrl(String);

/// One way for an authority to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge(pub ChallengeKind);

/// How an authority reaches the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact(String);

/// What is said about the authority.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AcmeConfig {
    /// `acme.directory`; it has a default
    pub directory: Option<DirectoryUrl>,
    /// `acme.agree`
    pub agree: bool,
    /// `acme.contact`
    pub contact: Vec<Contact>,
    /// `acme.storage`; it has a default
    pub storage: Option<PathBuf>,
    /// `acme.challenges`
    pub challenges: Vec<Challenge>,
    /// `acme.ca`
    pub ca: Option<PathBuf>,
}

impl AcmeConfig {
    /// Where the authority's directory is.
    pub fn url(&self) -> &str {
        self.directory.as_ref().map_or("", |directory| &directory.0)
    }

    /// What the authority is told of the operator.
    pub fn contacts(&self) -> Vec<String> {
        self.contact.iter().map(|contact| contact.0.clone()).collect()
    }

    /// Where everything from that authority is kept.
    pub fn files(&self) -> Storage {
        Storage::new(self.storage.as_deref().unwrap_or(Path::new("")), self.url())
    }
}

impl SiteConfig {
    /// Whether its certificate comes by ACME: one that it names itself stands.
    pub fn has_acme(&self) -> bool {
        self.tls.acme && self.tls.pairs.is_empty() && !self.hosts.is_empty()
    }

    /// Whether it has a certificate, or will have one.
    pub fn has_certificate(&self) -> bool {
        !self.tls.pairs.is_empty() || self.has_acme()
    }

    /// The certificate that it wants by ACME.
    pub fn wanted(&self) -> Option<WantedCertificate> {
        let names = || Names::new(self.hosts.iter().map(|host| host.name()));
        self.has_acme().then(|| WantedCertificate { site: self.name().to_string(), names: names() })
    }
}

impl Written for DirectoryUrl {
    const EXPECTED: &'static str = "an address such as \"https://acme.example/directory\"";
    fn read(text: &str) -> Result<DirectoryUrl, Wrong> {
        let rest = text.strip_prefix("https://").ok_or_else(|| DirectoryUrl::misread(text))?;
        let host = rest.split(['/', '?']).next().unwrap_or("");
        if host.is_empty()
            || !text.bytes().all(|b| b.is_ascii_graphic())
            || text.contains(['"', '#', '@'])
        {
            return Err(DirectoryUrl::misread(text));
        }
        Ok(DirectoryUrl(text.to_owned()))
    }
    fn text(&self) -> String {
        self.0.clone()
    }
}

impl Written for Contact {
    const EXPECTED: &'static str = "an address such as \"mailto:admin@shop.example\"";
    fn read(text: &str) -> Result<Contact, Wrong> {
        let is_mail = text.strip_prefix("mailto:").is_some_and(|mail| mail.contains('@'));
        if !is_mail || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Contact::misread(text));
        }
        Ok(Contact(text.to_owned()))
    }
    fn text(&self) -> String {
        self.0.clone()
    }
}

impl Written for Challenge {
    const EXPECTED: &'static str = "\"http-01\" or \"tls-alpn-01\"";
    const MAY_BE_EMPTY: bool = false;
    fn read(text: &str) -> Result<Challenge, Wrong> {
        if text == "dns-01" {
            let reason = "it needs access to the name servers, which is not offered here: let certbot \
                          or lego get such certificates, and name their files in tls.certificate";
            return Err(unfit(text, reason));
        }
        const CHOICES: &[&str] = &[WAYS[0].0, WAYS[1].0];
        let found = WAYS.iter().find(|(name, _)| *name == text);
        let wrong = || Wrong::Choice { found: text.to_owned(), choices: CHOICES };
        found.map(|(_, kind)| Challenge(*kind)).ok_or_else(wrong)
    }
    fn text(&self) -> String {
        let name = WAYS.iter().find(|(_, kind)| *kind == self.0);
        name.map_or("", |(name, _)| name).to_owned()
    }
}

impl ConfigDraft {
    /// Sites want certificates that an authority gives, and agree to its terms.
    pub(super) fn check_acme(&self, text: Option<&ConfigReader<'_>>, wrong: &mut Vec<(At, Wrong)>) {
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
                wrong.push((at, Wrong::AcmeWithoutHosts));
            }
        }
        let sites = self.all_sites();
        let mut wanting = sites.iter().filter(|(_, site)| site.has_acme()).peekable();
        if wanting.peek().is_none() {
            return;
        }
        let acme = &self.process.acme;
        if !acme.agree {
            wrong.push((top.child("acme.agree"), Wrong::AcmeTerms { url: acme.url().to_owned() }));
        }
        let listeners = self.all_listeners();
        let can = |kind| {
            let mut endpoints = listeners.iter().flat_map(|(_, listener)| &listener.listen);
            endpoints.any(|endpoint| endpoint.tls == (kind == ChallengeKind::TlsAlpn))
        };
        // a list with something wrong in it is told by itself
        if !acme.challenges.is_empty() && !acme.challenges.iter().any(|way| can(way.0)) {
            wrong.push((top.child("acme.challenges"), Wrong::AcmeNoWay));
        }
        for (path, site) in wanting {
            for (index, host) in site.hosts.iter().enumerate() {
                if host.is_wildcard() || is_address(host) {
                    let at = path.child("hosts").item(index);
                    let (host, is_wildcard) = (quote(host.as_str()), host.is_wildcard());
                    wrong.push((at, Wrong::AcmeHost { host, is_wildcard }));
                }
            }
        }
    }

    /// Rules that keep the authority out.
    pub(super) fn remark_acme(&self, remarks: &mut Vec<(At, Wrong)>) {
        let sites = self.all_sites();
        let is_wanted = sites.iter().any(|(_, site)| site.has_acme());
        if is_wanted && let Ok(policy) = lower::policy(&self.classes, &self.rules) {
            let wanting = sites.iter().filter(|(_, site)| site.has_acme());
            let mut hosts = wanting.flat_map(|(_, site)| &site.hosts);
            let refused = hosts.find_map(|host| Some((host, self.refused(&policy, host)?)));
            if let Some((host, (rule, is_early))) = refused
                && let Some((at, _)) = numbered("rule", &self.rules).nth(rule)
            {
                let wrong = Wrong::AcmeRefused { host: quote(host.as_str()), is_early };
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
