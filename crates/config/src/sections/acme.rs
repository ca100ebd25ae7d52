//! Certificates by ACME: the authority, and the sites that want them.

use crate::SiteConfig;
use crate::problems::problem::Wrong;
use crate::values::account::Account;
use crate::values::value::Written;
use crate::values::written::unfit;
use forebay_acme::{ChallengeKind, Names, Storage, WantedCertificate};
use forebay_site::rules::Host;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The challenges as they are written.
const WAYS: [(&str, ChallengeKind); 4] = [
    ("http-01", ChallengeKind::Http),
    ("tls-alpn-01", ChallengeKind::TlsAlpn),
    ("dns-01", ChallengeKind::Dns),
    ("dns-persist-01", ChallengeKind::Persist),
];

/// The longest word of a command.
const MOST_WORD_BYTES: usize = 4096;

/// The URL of an authority's directory (RFC 8555 §7.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryUrl(String);

/// A challenge by which an authority checks a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge(pub ChallengeKind);

/// An address at which an authority reaches the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact(String);

/// A word of a command: its path, or an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandWord(String);

/// The settings of the authority.
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
    /// `acme.dns_hook`
    pub dns_hook: Vec<CommandWord>,
    /// `acme.dns_user`
    pub dns_user: Option<Account>,
    /// `acme.dns_timeout`
    pub dns_timeout: Duration,
    /// `acme.dns_wait`
    pub dns_wait: Duration,
    /// `acme.ca`
    pub ca: Option<PathBuf>,
}

impl AcmeConfig {
    /// The URL of the authority's directory.
    pub fn url(&self) -> &str {
        self.directory.as_ref().map_or("", |directory| &directory.0)
    }

    /// How the authority can reach the operator.
    pub fn contacts(&self) -> Vec<String> {
        self.contact.iter().map(|contact| contact.0.clone()).collect()
    }

    /// The command that makes DNS records, its path first; empty if there is none.
    pub fn hook(&self) -> Vec<String> {
        self.dns_hook.iter().map(|word| word.0.clone()).collect()
    }

    /// Whether an authority may use this challenge.
    pub fn has(&self, kind: ChallengeKind) -> bool {
        self.challenges.iter().any(|way| way.0 == kind)
    }

    /// The directory for everything from that authority.
    pub fn files(&self) -> Storage {
        Storage::new(self.storage.as_deref().unwrap_or(Path::new("")), self.url())
    }
}

impl SiteConfig {
    /// Whether the site's certificate comes by ACME: not if it names a certificate itself.
    pub fn has_acme(&self) -> bool {
        self.tls.acme && self.tls.pairs.is_empty() && !self.hosts.is_empty()
    }

    /// Whether the site has a certificate, or will have one.
    pub fn has_certificate(&self) -> bool {
        !self.tls.pairs.is_empty() || self.has_acme()
    }

    /// The certificate that the site wants by ACME.
    pub fn wanted(&self) -> Option<WantedCertificate> {
        // authorities refuse a name that a wildcard of the same certificate is for
        let hosts = self.hosts.iter().filter(|host| !self.has_wildcard_for(host));
        let names = || Names::new(hosts.map(dns_name));
        self.has_acme().then(|| WantedCertificate { site: self.name().to_string(), names: names() })
    }

    /// Whether one of the hosts is a wildcard that covers this host: the star stands for one level.
    fn has_wildcard_for(&self, host: &Host) -> bool {
        let Some((_, above)) = host.name().split_once('.').filter(|_| !host.is_wildcard()) else {
            return false;
        };
        self.hosts.iter().any(|other| other.is_wildcard() && other.name() == above)
    }
}

/// The host as it stands in a certificate.
fn dns_name(host: &Host) -> String {
    let star = if host.is_wildcard() { "*." } else { "" };
    format!("{star}{}", host.name())
}

impl Written for CommandWord {
    const EXPECTED: &'static str =
        "the path of a program such as \"/usr/local/bin/dns-hook\", and its arguments";
    fn read(text: &str) -> Result<CommandWord, Wrong> {
        if let Some(c) = text.chars().find(|c| c.is_control()) {
            return Err(unfit(text, format!("no command has the control character {c:?}")));
        }
        if text.len() > MOST_WORD_BYTES {
            return Err(unfit(text, format!("a word has at most {MOST_WORD_BYTES} bytes")));
        }
        Ok(CommandWord(text.to_owned()))
    }
    fn text(&self) -> String {
        self.0.clone()
    }
    fn may_repeat(&self) -> bool {
        true
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
    const EXPECTED: &'static str = "\"http-01\", \"tls-alpn-01\", \"dns-01\" or \"dns-persist-01\"";
    const MAY_BE_EMPTY: bool = false;
    fn read(text: &str) -> Result<Challenge, Wrong> {
        const CHOICES: &[&str] = &[WAYS[0].0, WAYS[1].0, WAYS[2].0, WAYS[3].0];
        let found = WAYS.iter().find(|(name, _)| *name == text);
        let wrong = || Wrong::Choice { found: text.to_owned(), choices: CHOICES };
        found.map(|(_, kind)| Challenge(*kind)).ok_or_else(wrong)
    }
    fn text(&self) -> String {
        let name = WAYS.iter().find(|(_, kind)| *kind == self.0);
        name.map_or("", |(name, _)| name).to_owned()
    }
}
