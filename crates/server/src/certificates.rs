//! The certificates of all sites, read from their files, and who answers for which name.
//!
//! In: the sites of a configuration, at the start and at each reload. Out: [`Identities`] for new
//! connections. What is wrong with a file is said with its name, and what is in force stays.
//!
//! Files that change while the server runs are noticed by [`watch`].

pub mod watch;

use crate::config::Config;
use crate::config::site::Tls;
use forebay_tls::identity::{Tickets, tickets};
use forebay_tls::{Identities, Identity, IdentityError, Pair, PairError};
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

/// A certificate that expires in fewer days than these should have been replaced: those that are replaced
/// by a program are when they have a month to live.
pub(crate) const SOON_DAYS: i64 = 21;

/// Certificates that are in force.
#[derive(Default)]
pub struct Certificates {
    /// Who answers for which name.
    pub identities: Arc<Identities>,
    /// Each site that has certificates.
    sites: Vec<OfSite>,
}

/// What a site has.
#[derive(Clone)]
struct OfSite {
    name: String,
    /// Its files.
    tls: Tls,
    identity: Arc<Identity>,
    /// What seals its tickets: it outlives a reload.
    tickets: Tickets,
    /// Whether its clients may speak HTTP/2.
    with_http2: bool,
    /// What its files were when they were read.
    stamps: Stamps,
}

/// What files were at some moment; `None` where that could not be told.
type Stamps = Vec<Option<Stamp>>;

/// What a file was at some moment: another one, or another content, has another stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &PathBuf) -> Option<Stamp> {
        let found = fs::metadata(path).ok()?;
        Some(Stamp {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// What has come of files that have changed.
pub struct Renewed {
    /// What is to be in force.
    pub certificates: Certificates,
    /// Names of sites that have new ones.
    pub taken: Vec<String>,
    /// What is wrong with others, which keep what they had.
    pub errors: Vec<CertificateError>,
}

/// A certificate, and when it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The site it is for.
    pub site: String,
    /// Its file.
    pub certificate: PathBuf,
    /// Seconds since 1970.
    pub not_after_s: i64,
}

impl Expiry {
    /// A warning, if it is time for one.
    pub fn warning(&self, now_s: i64) -> Option<String> {
        let Expiry { site, certificate, not_after_s } = self;
        let days = days_left(*not_after_s, now_s);
        let when = match days {
            SOON_DAYS.. => return None,
            0.. => format!("expires in {days} days"),
            _ => format!("has expired {} days ago", -days),
        };
        Some(format!("the certificate {certificate:?} of the site {site:?} {when}"))
    }
}

/// Whole days until then; negative when it is past.
pub(crate) fn days_left(not_after_s: i64, now_s: i64) -> i64 {
    (not_after_s - now_s).div_euclid(24 * 3600)
}

/// Why certificates cannot be used.
#[derive(Debug)]
pub enum CertificateError {
    /// A file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A certificate or its key is wrong.
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What is wrong.
        error: PairError,
    },
    /// The pairs of a site do not go together.
    Site {
        /// Its name.
        site: String,
        /// What is wrong.
        error: IdentityError,
    },
    /// There are no random numbers.
    Tickets(String),
}

impl Certificates {
    /// Reads those of all sites. Sessions of clients of a site that was there `before` can be resumed.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn open(config: &Config, before: &Certificates) -> Result<Certificates, CertificateError> {
        let before: HashMap<&str, &OfSite> =
            before.sites.iter().map(|site| (site.name.as_str(), site)).collect();
        let sites = config.sites.iter().filter(|site| site.tls.is_on()).map(|site| {
            let name = site.name().to_string();
            let tickets = match before.get(name.as_str()) {
                Some(before) => Arc::clone(&before.tickets),
                None => tickets().map_err(|error| CertificateError::Tickets(error.to_string()))?,
            };
            OfSite::open(name, site.tls.clone(), tickets, config.limits.streams > 0)
        });
        Ok(Certificates::of(config, sites.collect::<Result<_, _>>()?))
    }

    /// Those of these sites, which are the sites of `config` that have any, in the same order.
    fn of(config: &Config, sites: Vec<OfSite>) -> Certificates {
        let all = || config.sites.iter().filter(|site| site.tls.is_on()).zip(&sites);
        let default = all().find(|(site, _)| site.hosts.is_empty());
        let default = default.map(|(_, of_site)| Arc::clone(&of_site.identity));
        let mut identities = Identities::new(default);
        for (site, OfSite { identity, .. }) in all() {
            site.hosts.iter().for_each(|host| identities.add(&host.to_string(), identity));
        }
        // a name that no site has for itself: whoever has a certificate for it
        for OfSite { identity, .. } in &sites {
            let names = identity.pairs().iter().flat_map(|pair| &pair.names);
            names.for_each(|name| identities.add(name, identity));
        }
        Certificates { identities: Arc::new(identities), sites }
    }

    /// Reads those again whose files have changed; `config` is what these are of.
    ///
    /// # Errors
    /// A site whose files are wrong keeps what it has; see [`Renewed::errors`].
    pub fn renewed(&self, config: &Config) -> Renewed {
        let (mut taken, mut errors) = (Vec::new(), Vec::new());
        let sites = self.sites.iter().map(|site| {
            if site.stamps_now() == site.stamps {
                return site.clone();
            }
            match site.again() {
                Ok(renewed) => {
                    taken.push(site.name.clone());
                    renewed
                }
                Err(error) => {
                    errors.push(error);
                    site.clone()
                }
            }
        });
        let sites = sites.collect();
        Renewed { certificates: Certificates::of(config, sites), taken, errors }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// The files of all, each as often as it is named.
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.sites.iter().flat_map(OfSite::files)
    }

    /// What they were when they were read.
    fn stamps(&self) -> Stamps {
        self.sites.iter().flat_map(|site| &site.stamps).copied().collect()
    }

    /// What they are now, as far as that can be told.
    fn stamps_now(&self) -> Stamps {
        self.sites.iter().flat_map(OfSite::stamps_now).collect()
    }

    /// When each expires, the next first. A certificate that several sites have is told once.
    pub fn expiries(&self) -> Vec<Expiry> {
        let mut expiries = Vec::new();
        let mut told = HashSet::new();
        for OfSite { name, tls, identity, .. } in &self.sites {
            for (certificate, pair) in tls.certificates.iter().zip(identity.pairs()) {
                if told.insert(certificate) {
                    let (site, certificate) = (name.clone(), certificate.clone());
                    expiries.push(Expiry { site, certificate, not_after_s: pair.not_after_s });
                }
            }
        }
        expiries.sort_by_key(|expiry| expiry.not_after_s);
        expiries
    }
}

impl OfSite {
    fn open(
        name: String,
        tls: Tls,
        tickets: Tickets,
        with_http2: bool,
    ) -> Result<OfSite, CertificateError> {
        // before they are read: what changes meanwhile is noticed afterwards
        let stamps = files(&tls).map(Stamp::of).collect();
        let identity = match Identity::new(pairs(&tls)?, Arc::clone(&tickets), with_http2) {
            Ok(identity) => Arc::new(identity),
            Err(error) => return Err(CertificateError::Site { site: name, error }),
        };
        Ok(OfSite { name, tls, identity, tickets, with_http2, stamps })
    }

    /// The same, with what its files are now.
    fn again(&self) -> Result<OfSite, CertificateError> {
        let OfSite { name, tls, tickets, with_http2, .. } = self.clone();
        OfSite::open(name, tls, tickets, with_http2)
    }

    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        files(&self.tls)
    }

    /// What its files are now. One that cannot be looked at, or is not there, is what it was.
    fn stamps_now(&self) -> Stamps {
        let known = self.stamps.iter();
        self.files().zip(known).map(|(path, known)| Stamp::of(path).or(*known)).collect()
    }
}

fn files(tls: &Tls) -> impl Iterator<Item = &PathBuf> {
    tls.certificates.iter().chain(&tls.keys)
}

/// The pairs of a site.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn pairs(tls: &Tls) -> Result<Vec<Pair>, CertificateError> {
    let read = |path: &Path| {
        let unreadable = |error| CertificateError::Unreadable { path: path.to_owned(), error };
        fs::read(path).map_err(unreadable)
    };
    let pairs = tls.certificates.iter().zip(&tls.keys).map(|(certificate, key)| {
        let pair = Pair::read(&read(certificate)?, &read(key)?);
        pair.map_err(|error| {
            let (certificate, key) = (certificate.clone(), key.clone());
            CertificateError::Pair { certificate, key, error }
        })
    });
    pairs.collect()
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateError::Unreadable { path, error } => {
                write!(f, "cannot read the file {path:?}: {error}")?;
                match error.kind() {
                    io::ErrorKind::PermissionDenied => f.write_str(
                        "; the user of the server must be able to read it, or it is read at a restart \
                         by root",
                    ),
                    _ => Ok(()),
                }
            }
            CertificateError::Pair { certificate, key, error } => {
                write!(f, "the certificate {certificate:?} with the key {key:?}: {error}")
            }
            CertificateError::Site { site, error } => {
                write!(f, "the certificates of the site {site:?}: {error}")
            }
            CertificateError::Tickets(error) => write!(f, "cannot make keys for tickets: {error}"),
        }
    }
}

impl std::error::Error for CertificateError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_expires_soon_is_warned_of() {
        const DAY: i64 = 24 * 3600;
        let warning = |left_s| {
            let (site, certificate) = ("shop".to_owned(), PathBuf::from("/a.pem"));
            Expiry { site, certificate, not_after_s: 1_900_000_000 + left_s }.warning(1_900_000_000)
        };
        let said =
            |when: &str| Some(format!("the certificate \"/a.pem\" of the site \"shop\" {when}"));
        assert_eq!(warning(21 * DAY), None);
        assert_eq!(warning(21 * DAY - 1), said("expires in 20 days"));
        assert_eq!(warning(0), said("expires in 0 days"));
        assert_eq!(warning(-1), said("has expired 1 days ago"));
    }
}
