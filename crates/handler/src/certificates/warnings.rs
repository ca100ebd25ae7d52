//! Warnings for the operator: certificates that expire, hosts without one, lists that have expired.

use super::held::HeldCertificate;
use super::{Certificates, Owner};
use forebay_config::Config;
use forebay_site::rules::Host;
use std::collections::HashSet;
use std::path::PathBuf;

/// How many days before its expiry a certificate is late: programs replace certificates that have a month
/// to live.
pub const SOON_DAYS: i64 = 21;

/// A certificate, and when it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The owner of the certificate.
    pub owner: Owner,
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// When the certificate expires, in seconds since 1970.
    pub not_after_s: i64,
    /// Whether the certificate is self-signed, because ACME has not got one yet.
    pub is_temporary: bool,
}

impl Expiry {
    /// A warning, if it is time for one.
    pub fn warning(&self, now_s: i64) -> Option<String> {
        let Expiry { owner, certificate, not_after_s, is_temporary } = self;
        if *is_temporary {
            return Some(format!(
                "{owner} shows a certificate that nobody has signed, until there is one by ACME"
            ));
        }
        let days = days_left(*not_after_s, now_s);
        let when = match days {
            SOON_DAYS.. => return None,
            0.. => format!("expires in {days} days"),
            _ => format!("has expired {} days ago", -days),
        };
        Some(format!("the certificate {certificate:?} of {owner} {when}"))
    }
}

/// Whole days until the expiry; negative when it is past.
pub fn days_left(not_after_s: i64, now_s: i64) -> i64 {
    (not_after_s - now_s).div_euclid(24 * 3600)
}

impl Certificates {
    /// The expiry of each certificate, the next first. A certificate that several owners have appears
    /// once.
    pub fn expiries(&self) -> Vec<Expiry> {
        let mut expiries = Vec::new();
        let mut told = HashSet::new();
        for HeldCertificate { owner, files, identity, is_temporary, .. } in self.held() {
            for (certificate, pair) in files.pairs.certificates.iter().zip(identity.pairs()) {
                if told.insert(certificate) {
                    let (owner, certificate) = (owner.clone(), certificate.clone());
                    let (not_after_s, is_temporary) = (pair.not_after_s, *is_temporary);
                    expiries.push(Expiry { owner, certificate, not_after_s, is_temporary });
                }
            }
        }
        for held in &self.upstreams {
            if let (Some(certificate), Some(not_after_s)) = (held.certificate(), held.not_after_s) {
                let owner = held.owner.clone();
                let certificate = certificate.to_owned();
                expiries.push(Expiry { owner, certificate, not_after_s, is_temporary: false });
            }
        }
        expiries.sort_by_key(|expiry| expiry.not_after_s);
        expiries
    }

    /// Messages about hosts for which no certificate is shown, which say what happens to clients that ask
    /// for them through TLS.
    pub fn uncovered(&self, config: &Config) -> Vec<String> {
        let told = config.sites.iter().flat_map(|site| {
            let hosts = site.hosts.iter().map(Host::as_str);
            hosts.filter_map(move |host| match self.identities.find(Some(host)) {
                Some(identity) if identity.covers(host) => None,
                _ if site.has_certificate() => Some(format!(
                    "the certificate of {} is not for {host:?}: clients that ask for it with https will \
                     refuse it",
                    Owner::Site(site.name().to_string())
                )),
                found => {
                    let what = match found {
                        None => "are refused",
                        Some(_) => {
                            "are shown the certificate of the default site, which they will refuse"
                        }
                    };
                    Some(format!(
                        "no certificate is for {host:?}: clients that ask for it with https {what}"
                    ))
                }
            })
        });
        told.collect()
    }

    /// Messages about expired lists of revoked certificates, which say what happens to clients.
    pub fn expired_lists(&self, now_s: i64) -> Vec<String> {
        let lists = self.sites.iter().flat_map(|held| {
            held.lists.iter().map(move |(path, until_s)| (&held.owner, path, *until_s))
        });
        let expired = lists.filter(|(_, _, until_s)| *until_s < now_s);
        let told = expired.map(|(owner, path, until_s)| {
            let days = days_left(now_s, until_s);
            format!(
                "the list of revoked certificates {path:?} of {owner} has expired {days} days ago: clients \
                 of its authority are refused"
            )
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_expires_soon_is_warned_of() {
        const DAY: i64 = 24 * 3600;
        let warning = |left_s| {
            let owner = Owner::Site("shop".to_owned());
            let (certificate, not_after_s) = (PathBuf::from("/a.pem"), 1_900_000_000 + left_s);
            let expiry = Expiry { owner, certificate, not_after_s, is_temporary: false };
            expiry.warning(1_900_000_000)
        };
        let said =
            |when: &str| Some(format!("the certificate \"/a.pem\" of the site \"shop\" {when}"));
        assert_eq!(warning(21 * DAY), None);
        assert_eq!(warning(21 * DAY - 1), said("expires in 20 days"));
        assert_eq!(warning(0), said("expires in 0 days"));
        assert_eq!(warning(-1), said("has expired 1 days ago"));
    }
}
