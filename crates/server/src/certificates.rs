//! The certificates of all sites, read from their files, and who answers for which name.
//!
//! In: the sites of a configuration, at the start and at each reload. Out: [`Identities`] for new
//! connections. What is wrong with a file is said with its name, and what is in force stays.

use crate::config::Config;
use crate::config::site::Tls;
use forebay_tls::identity::{Tickets, tickets};
use forebay_tls::{Identities, Identity, IdentityError, Pair, PairError};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

/// Certificates that are in force.
#[derive(Default)]
pub struct Certificates {
    /// Who answers for which name.
    pub identities: Arc<Identities>,
    /// What seals the tickets of each site, by its name: they outlive a reload.
    tickets: HashMap<String, Tickets>,
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
        let mut sites = Vec::new();
        let mut kept = HashMap::new();
        for site in config.sites.iter().filter(|site| site.tls.is_on()) {
            let name = site.name().to_string();
            let tickets = match before.tickets.get(&name) {
                Some(tickets) => Arc::clone(tickets),
                None => tickets().map_err(|error| CertificateError::Tickets(error.to_string()))?,
            };
            kept.insert(name.clone(), Arc::clone(&tickets));
            let identity = Identity::new(pairs(&site.tls)?, tickets)
                .map_err(|error| CertificateError::Site { site: name, error })?;
            sites.push((site, Arc::new(identity)));
        }
        let default = sites.iter().find(|(site, _)| site.hosts.is_empty());
        let mut identities = Identities::new(default.map(|(_, identity)| Arc::clone(identity)));
        for (site, identity) in &sites {
            site.hosts.iter().for_each(|host| identities.add(&host.to_string(), identity));
        }
        // a name that no site has for itself: whoever has a certificate for it
        for (_, identity) in &sites {
            let names = identity.pairs().iter().flat_map(|pair| &pair.names);
            names.for_each(|name| identities.add(name, identity));
        }
        Ok(Certificates { identities: Arc::new(identities), tickets: kept })
    }
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
                write!(f, "cannot read the file {path:?}: {error}")
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
