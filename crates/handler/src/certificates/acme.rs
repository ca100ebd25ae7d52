//! Certificates by ACME: which sites want one, and what they show until there is one. `acme_thread` of
//! the server gets the certificates.
//!
//! The thread gets files, which are taken over like files that an operator changes. Requests and
//! handshakes of the authority are answered from [`AcmePlan`].

use forebay_acme::{
    AuthoritySettings, ChallengeAnswers, ChallengeKind, Names, Storage, WantedCertificate,
};
use forebay_config::Config;
use forebay_tls::{Pair, PairError, Roots};
#[cfg(feature = "acme")]
use rcgen::{CertificateParams, KeyPair};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "acme")]
use std::time::Duration;
#[cfg(feature = "acme")]
use std::time::SystemTime;

/// The path prefix under which an authority checks that a name is ours (RFC 8555 §8.3).
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

/// How long a self-signed certificate is valid; each restart makes it anew.
#[cfg(feature = "acme")]
const TEMPORARY: Duration = Duration::from_secs(24 * 3600);

/// The directories where programs look for the authorities that a system trusts.
pub const ROOTS: [&str; 4] =
    ["/etc/ssl", "/etc/pki", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates"];

/// The wanted certificates, and their authority.
pub struct AcmePlan {
    /// The authority, and how it is asked.
    pub authority: AuthoritySettings,
    /// The wanted certificates.
    pub wanted: Vec<WantedCertificate>,
    /// Whether each site wants a certificate, in the order of the configuration.
    sites: Vec<bool>,
    /// The answers to the authority's challenges.
    pub answers: Arc<ChallengeAnswers>,
}

impl AcmePlan {
    /// The certificates that `config` wants; `None` if there are none. Answers to authorities are kept
    /// from `before`.
    ///
    /// # Errors
    /// [`NoRoots`] if it is not known which authorities to trust.
    pub fn new(
        config: &Config,
        before: Option<&AcmePlan>,
    ) -> Result<Option<Arc<AcmePlan>>, NoRoots> {
        let wanted: Vec<WantedCertificate> =
            config.sites.iter().filter_map(|site| site.wanted()).collect();
        if wanted.is_empty() {
            return Ok(None);
        }
        let acme = &config.acme;
        let endpoints = || config.listeners.iter().flat_map(|listener| &listener.listen);
        let (plain, sealed) = (endpoints().any(|at| !at.tls), endpoints().any(|at| at.tls));
        let can = |kind: &ChallengeKind| match kind {
            ChallengeKind::Http => plain,
            ChallengeKind::TlsAlpn => sealed,
            ChallengeKind::Dns => !acme.dns_hook.is_empty(),
            ChallengeKind::Persist => true,
        };
        let authority = AuthoritySettings {
            directory: acme.url().to_owned(),
            contact: acme.contacts(),
            storage: acme.files(),
            roots: roots(acme.ca.as_deref())?,
            kinds: acme.challenges.iter().map(|way| way.0).filter(can).collect(),
            record_wait: acme.dns_wait,
            has_hook: !acme.dns_hook.is_empty(),
        };
        let sites = config.sites.iter().map(|site| site.has_acme()).collect();
        let answers = before.map_or_else(Arc::default, |before| Arc::clone(&before.answers));
        Ok(Some(Arc::new(AcmePlan { authority, wanted, sites, answers })))
    }

    /// The answer to a request for `path` of a site, by its place in the configuration, if the path is an
    /// authority's challenge.
    pub fn answer(&self, site: usize, path: &[u8]) -> Option<String> {
        let token = path.strip_prefix(CHALLENGES)?;
        if self.sites.get(site) != Some(&true) {
            return None;
        }
        self.answers.to_token(token)
    }

    /// Whether a request may be an authority's.
    #[inline]
    pub fn is_for(path: &[u8]) -> bool {
        path.starts_with(CHALLENGES)
    }
}

/// No trusted authorities are known for requests to the ACME authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoots {
    /// The file that should have them; `None` for those that the system trusts.
    pub ca: Option<PathBuf>,
}

impl std::fmt::Display for NoRoots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.ca {
            Some(path) => write!(f, "acme.ca: there is no certificate in {}", path.display()),
            None => f.write_str(
                "acme: this system trusts no authority; install ca-certificates, or say acme.ca",
            ),
        }
    }
}

fn roots(ca: Option<&Path>) -> Result<Roots, NoRoots> {
    let found = match ca {
        Some(path) => fs::read(path).ok().and_then(|text| Roots::of_pem(&text)),
        None => super::native_roots::find(),
    };
    found.ok_or_else(|| NoRoots { ca: ca.map(Path::to_owned) })
}

/// The source of a site's certificate.
#[derive(Clone)]
pub(crate) struct CertificateSource {
    storage: Storage,
    names: Names,
}

impl CertificateSource {
    pub(crate) fn new(config: &Config, wanted: WantedCertificate) -> CertificateSource {
        CertificateSource { storage: config.acme.files(), names: wanted.names }
    }

    /// The file of the certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.storage.certificate(&self.names)
    }

    /// The pair that is shown: the certificate, else one for the same and other hosts, else a self-signed
    /// one. The flag says whether it is self-signed.
    ///
    /// # Errors
    /// Lack of random numbers.
    pub(crate) fn pair(&self) -> Result<(Pair, bool), PairError> {
        let read = |path: &PathBuf| {
            let text = fs::read(path).ok()?;
            Pair::read(&text, &text).ok()
        };
        let others = || self.storage.others(&self.names);
        match read(&self.file()).or_else(|| others().iter().find_map(read)) {
            Some(pair) => Ok((pair, false)),
            None => Ok((temporary(&self.names)?, true)),
        }
    }
}

/// Stands in for the self-signed certificate without the feature; the configuration has refused sites
/// that want one.
#[cfg(not(feature = "acme"))]
fn temporary(_: &Names) -> Result<Pair, PairError> {
    Pair::read(&[], &[])
}

/// A self-signed certificate, so that handshakes succeed and redirects work.
#[cfg(feature = "acme")]
fn temporary(names: &Names) -> Result<Pair, PairError> {
    let unmade = |error: rcgen::Error| PairError::Broken(error.to_string());
    let key = KeyPair::generate().map_err(unmade)?;
    let mut params = CertificateParams::new(names.all()).map_err(unmade)?;
    let now = SystemTime::now();
    // clocks differ between machines
    params.not_before = (now - TEMPORARY).into();
    params.not_after = (now + TEMPORARY).into();
    let certificate = params.self_signed(&key).map_err(unmade)?;
    Pair::read(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())
}

#[cfg(test)]
#[cfg(feature = "acme")]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_before_there_is_a_certificate_is_for_the_hosts() {
        let pair = temporary(&Names::new(["a.example", "b.example"])).unwrap();
        assert!(pair.covers("a.example") && pair.covers("b.example"));
    }
}
