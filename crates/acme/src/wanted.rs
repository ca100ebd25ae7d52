//! The certificates to get, their authority, and the results.

use crate::answers::ChallengeKind;
use crate::order_failure::OrderFailure;
use crate::storage::{Names, Storage};
use forebay_tls::Roots;
use std::time::Duration;

/// The settings of an authority: its URL, the account, and where certificates are stored.
#[derive(Clone, Debug)]
pub struct AuthoritySettings {
    /// The https URL of its directory.
    pub directory: String,
    /// The contacts of the operator: `mailto:` and others.
    pub contact: Vec<String>,
    /// The storage of certificates and orders.
    pub storage: Storage,
    /// The certificate authorities that are trusted in connections to it.
    pub roots: Roots,
    /// The kinds of challenges that may be used, the preferred one first.
    pub kinds: Vec<ChallengeKind>,
    /// The wait between making DNS records and their validation.
    pub record_wait: Duration,
    /// Whether a command that makes DNS records is configured.
    pub has_hook: bool,
}

/// A certificate that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCertificate {
    /// The name of the site that wants it.
    pub site: String,
    /// The hosts of the certificate.
    pub names: Names,
}

/// The result of an attempt.
#[derive(Debug)]
pub enum CertificateEvent<'e> {
    /// A new certificate was installed.
    Issued {
        /// The site that wanted the certificate.
        site: &'e str,
        /// When it expires, in seconds since 1970.
        not_after_s: i64,
    },
    /// An attempt has failed.
    Failed {
        /// The site that wanted the certificate.
        site: &'e str,
        /// The failure.
        failure: &'e OrderFailure,
        /// The time until the next attempt.
        again: Duration,
    },
}
