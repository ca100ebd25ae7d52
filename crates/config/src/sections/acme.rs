//! Certificates by ACME: from which authority, and which sites want them.

use crate::SiteConfig;
use crate::problems::problem::Wrong;
use crate::values::value::Written;
use crate::values::written::unfit;
use forebay_acme::{ChallengeKind, Names, Storage, WantedCertificate};
use std::path::{Path, PathBuf};

/// How an authority may look whether a name is ours, as it is written.
const WAYS: [(&str, ChallengeKind); 2] =
    [("http-01", ChallengeKind::Http), ("tls-alpn-01", ChallengeKind::TlsAlpn)];

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
