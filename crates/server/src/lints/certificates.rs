//! Certificates that clients will refuse, lists that have expired, and hosts without a certificate.

use super::LintSubject;
use forebay_config::problem::Finding;
use forebay_config::{AskClients, ClientCertificates, Remarks, SiteConfig, Wrong};
use forebay_handler::certificates;
use forebay_site::rules::Host;
use forebay_sys::clock;
use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

/// A remark about a certificate, or about a list of revoked ones.
#[derive(Debug)]
enum CertificateRemark {
    /// A list of revoked certificates has expired.
    ListExpired {
        /// The whole days since.
        days: i64,
    },
    /// A site that clients may reach through TLS has no certificate.
    NoCertificateFor {
        /// One of its hosts.
        host: String,
        /// Whether clients cannot reach the site without TLS.
        only_tls: bool,
    },
    /// A certificate has expired, or will soon.
    Expires {
        /// The whole days that are left, rounded down: negative if it has expired.
        days: i64,
    },
    /// A site answers for a host that the certificate does not cover.
    NotCovered {
        /// The host.
        host: String,
    },
}

impl Finding for CertificateRemark {}

impl fmt::Display for CertificateRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateRemark::ListExpired { days } => write!(
                f,
                "the list of revoked certificates has expired {}: clients of its authority are refused",
                match days {
                    0 => "less than a day ago".to_owned(),
                    days => format!("{} ago", count_of_days(*days)),
                }
            ),
            CertificateRemark::NoCertificateFor { host, only_tls: true } => write!(
                f,
                "all addresses speak TLS, and no certificate is for {host:?}: its clients are refused, or \
                 refuse what they are shown"
            ),
            CertificateRemark::NoCertificateFor { host, only_tls: false } => write!(
                f,
                "no certificate is for {host:?}: clients that ask for it with https are refused, or refuse \
                 what they are shown; it is served without TLS alone"
            ),
            CertificateRemark::Expires { days: -1 } => {
                f.write_str("the certificate has expired, less than a day ago")
            }
            CertificateRemark::Expires { days: days @ ..0 } => {
                write!(f, "the certificate has expired, {} ago", count_of_days(-days - 1))
            }
            CertificateRemark::Expires { days: 0 } => {
                f.write_str("the certificate expires in less than a day")
            }
            CertificateRemark::Expires { days } => {
                write!(f, "the certificate expires in {}", count_of_days(*days))
            }
            CertificateRemark::NotCovered { host } => {
                write!(f, "the certificate is not for {host:?}: clients will refuse it")
            }
        }
    }
}

fn count_of_days(days: i64) -> String {
    if days == 1 { "1 day".to_owned() } else { format!("{days} days") }
}

/// Finds certificates that clients will refuse, and lists that have expired.
pub(super) fn expiry(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let now_s = (clock::unix_coarse_ms() / 1000) as i64;
    let mut told = HashSet::new();
    for (path, pairs, hosts) in of.draft.all_pairs() {
        for (index, pair) in certificates::pairs(pairs).unwrap_or_default().iter().enumerate() {
            let at = path.child("tls.certificate").item(index);
            let days = certificates::days_left(pair.not_after_s, now_s);
            if days < certificates::SOON_DAYS && told.insert(&pairs.certificates[index]) {
                remarks.push((at.clone(), Wrong::said(CertificateRemark::Expires { days })));
            }
            let others = hosts.iter().map(Host::as_str).filter(|host| !pair.covers(host));
            let others = others.filter(|host| !pair.names.iter().any(|name| name == host));
            remarks.extend(others.map(|host| {
                (at.clone(), Wrong::said(CertificateRemark::NotCovered { host: host.to_owned() }))
            }));
        }
    }
    let mut told: HashSet<PathBuf> = HashSet::new();
    for (path, site) in of.draft.every_site() {
        for (list, index, tls) in site.upstream_tls() {
            let pair = certificates::of_upstreams(&tls).ok().and_then(|(_, pair)| pair);
            let (Some(pair), Some((certificate, _))) = (pair, tls.shows) else { continue };
            let days = certificates::days_left(pair.not_after_s, now_s);
            if days < certificates::SOON_DAYS && told.insert(certificate) {
                let at = path.child(list).item(index).child("tls.certificate");
                remarks.push((at, Wrong::said(CertificateRemark::Expires { days })));
            }
        }
    }
    for (path, site) in of.draft.all_sites() {
        let ClientCertificates { asked, revoked, .. } = &site.tls.clients;
        for (index, file) in revoked.iter().enumerate() {
            let until_s = certificates::revoked(file).ok().and_then(|lists| lists.until_s());
            if let Some(until_s) = until_s.filter(|until_s| *until_s < now_s)
                && *asked != AskClients::Off
            {
                let days = certificates::days_left(now_s, until_s);
                let at = path.child("tls.client_crl").item(index);
                remarks.push((at, Wrong::said(CertificateRemark::ListExpired { days })));
            }
        }
    }
}

/// Finds sites without a certificate that clients may reach on a listener with TLS.
pub(super) fn uncovered(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let (speaks, only_tls) = of.draft.speak_tls();
    let sites = of.draft.all_sites();
    let pairs = sites.iter().filter_map(|(_, site)| certificates::pairs(&site.tls.pairs).ok());
    let pairs: Vec<_> = pairs.flatten().collect();
    let has_one = |host: &str| {
        let is_its =
            |host: &str, site: &SiteConfig| site.hosts.iter().any(|own| own.name() == host);
        pairs.iter().any(|pair| pair.covers(host) || pair.names.iter().any(|name| name == host))
            || sites.iter().any(|(_, site)| site.has_acme() && is_its(host, site))
    };
    for (path, site) in sites.iter().filter(|(_, site)| speaks && !site.has_certificate()) {
        let mut hosts = site.hosts.iter().map(Host::as_str);
        if let Some(host) = hosts.find(|host| !has_one(host)) {
            let wrong = Wrong::said(CertificateRemark::NoCertificateFor {
                host: host.to_owned(),
                only_tls,
            });
            remarks.push((path.child("hosts"), wrong));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_people_do() {
        for (days, expected) in [
            (13, "expires in 13 days"),
            (1, "expires in 1 day"),
            (0, "expires in less than a day"),
            (-1, "has expired, less than a day ago"),
            (-2, "has expired, 1 day ago"),
            (-31, "has expired, 30 days ago"),
        ] {
            assert_eq!(
                CertificateRemark::Expires { days }.to_string(),
                format!("the certificate {expected}")
            );
        }
    }
}
