//! Certificates by ACME: which sites want one, what they show until there is one, and the thread that gets
//! them.
//!
//! What the thread gets are files, taken over as those are that an operator changes. Requests and
//! handshakes of the authority are answered from [`AcmePlan`].

use crate::config::Config;
use crate::live::LiveSnapshot;
use crate::run::say;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use forebay_acme::{
    Authority, CertificateEvent, CertificateKeeper, ChallengeAnswers, ChallengeKind, Names,
    Storage, WantedCertificate, Why,
};
use forebay_metrics::{Counter, Local};
use forebay_tls::{Pair, PairError, Roots};
use rcgen::{CertificateParams, KeyPair};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Beneath this an authority asks whether a name is ours (RFC 8555 §8.3).
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

/// A self-signed certificate is good for as long, and made anew by each restart.
const TEMPORARY: Duration = Duration::from_secs(24 * 3600);

/// Where programs look for the authorities that a system trusts.
pub(crate) const ROOTS: [&str; 4] =
    ["/etc/ssl", "/etc/pki", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates"];

/// What is wanted, and from which authority.
pub struct AcmePlan {
    authority: Authority,
    wanted: Vec<WantedCertificate>,
    /// By site, in the order of the configuration: whether it wants one.
    sites: Vec<bool>,
    /// What the authority is answered.
    pub(crate) answers: Arc<ChallengeAnswers>,
}

impl AcmePlan {
    /// What `config` wants; `None` if that is nothing. What authorities are answered is as it was `before`.
    ///
    /// # Errors
    /// When it is not known which authorities to trust.
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
        };
        let authority = Authority {
            directory: acme.url().to_owned(),
            contact: acme.contacts(),
            storage: acme.files(),
            roots: roots(acme.ca.as_deref())?,
            kinds: acme.challenges.iter().map(|way| way.0).filter(can).collect(),
        };
        let sites = config.sites.iter().map(|site| site.has_acme()).collect();
        let answers = before.map_or_else(Arc::default, |before| Arc::clone(&before.answers));
        Ok(Some(Arc::new(AcmePlan { authority, wanted, sites, answers })))
    }

    /// The answer to a request for `path` of a site, by its place in the configuration, if an authority has
    /// asked that.
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

/// It is not known which authorities to trust when the authority is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoots {
    /// The file that should say it; `None` for what the system trusts.
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
        None => Roots::of_certificates(rustls_native_certs::load_native_certs().certs),
    };
    found.ok_or_else(|| NoRoots { ca: ca.map(Path::to_owned) })
}

/// Where a site's certificate comes from.
#[derive(Clone)]
pub(crate) struct CertificateSource {
    storage: Storage,
    names: Names,
}

impl CertificateSource {
    pub(crate) fn new(config: &Config, wanted: WantedCertificate) -> CertificateSource {
        CertificateSource { storage: config.acme.files(), names: wanted.names }
    }

    /// Its file.
    pub(crate) fn file(&self) -> PathBuf {
        self.storage.certificate(&self.names)
    }

    /// What is shown: the certificate, else one that was for other hosts besides, else one that nobody
    /// has signed. Says whether it is the last.
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

/// A self-signed certificate, so that handshakes go on and redirects work.
fn temporary(names: &Names) -> Result<Pair, PairError> {
    let unmade = |error: rcgen::Error| PairError::Broken(error.to_string());
    let key = KeyPair::generate().map_err(unmade)?;
    let mut params = CertificateParams::new(names.all()).map_err(unmade)?;
    let now = SystemTime::now();
    // clocks differ
    params.not_before = (now - TEMPORARY).into();
    params.not_after = (now + TEMPORARY).into();
    let certificate = params.self_signed(&key).map_err(unmade)?;
    Pair::read(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())
}

/// The thread that gets certificates. It ends when this is dropped.
pub struct Running(Sender<bool>);

impl Running {
    /// Something has changed; `at_once`: what has failed is tried again.
    pub fn look(&self, at_once: bool) {
        let _ = self.0.send(at_once);
    }
}

/// Starts the thread, which gets what the snapshot in force wants and calls `tell` when there is a new
/// certificate. Only it counts in `metrics`.
///
/// # Errors
/// Lack of threads.
pub fn start(
    live: Arc<LiveSnapshot>,
    metrics: Arc<Local>,
    tell: impl Fn() + Send + 'static,
) -> io::Result<Running> {
    let (to_thread, orders) = unbounded();
    let thread = std::thread::Builder::new().name("acme".to_owned());
    thread.spawn(move || keep(&live, &metrics, &orders, tell))?;
    Ok(Running(to_thread))
}

fn keep(live: &LiveSnapshot, metrics: &Local, orders: &Receiver<bool>, tell: impl Fn()) {
    let mut keeper = CertificateKeeper::default();
    let mut at_once = false;
    loop {
        let plan = live.get().certificates.acme().cloned();
        let pause = match plan.as_deref() {
            None => Duration::MAX,
            Some(AcmePlan { authority, wanted, answers, .. }) => {
                keeper.round(authority, wanted, answers, at_once, &mut |event| {
                    note(&event, metrics);
                    if let CertificateEvent::Issued { .. } = event {
                        tell();
                    }
                })
            }
        };
        at_once = match orders.recv_timeout(pause) {
            Ok(at_once) => at_once || orders.try_iter().any(|other| other),
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
    }
}

/// Says and then counts what has happened: the line of what was counted is there.
fn note(event: &CertificateEvent<'_>, metrics: &Local) {
    match event {
        CertificateEvent::Issued { site, .. } => {
            say(format_args!("acme: there is a new certificate for the site {site:?}"));
            metrics.add(Counter::AcmeIssued, 1);
        }
        CertificateEvent::Failed { site, failure, again } => {
            say(format_args!(
                "acme: no certificate for the site {site:?}: {failure}; tried again in {}",
                words(*again)
            ));
            metrics.add(
                match failure.why {
                    Why::Unreachable | Why::StaleNonce => Counter::AcmeUnreachable,
                    Why::RateLimited => Counter::AcmeRateLimited,
                    Why::Unproven => Counter::AcmeUnproven,
                    Why::Refused | Why::AccountUnknown => Counter::AcmeRefused,
                    Why::Storage => Counter::AcmeStorage,
                },
                1,
            );
        }
    }
}

/// A time as people say it.
fn words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_before_there_is_a_certificate_is_for_the_hosts() {
        let pair = temporary(&Names::new(["a.example", "b.example"])).unwrap();
        assert!(pair.covers("a.example") && pair.covers("b.example"));
    }

    #[test]
    fn times_are_told_in_round_numbers() {
        let told = |seconds| words(Duration::from_secs(seconds));
        assert_eq!([told(1), told(149), told(7300)], ["1 s", "2 min", "2 h"]);
    }
}
