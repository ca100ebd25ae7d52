//! What is wanted, of which authority, and what has come of it.

use crate::answers::ChallengeKind;
use crate::order_failure::OrderFailure;
use crate::storage::{Names, Storage};
use forebay_tls::Roots;
use std::time::Duration;

/// Which authority makes certificates, on what terms, and where they are kept.
#[derive(Clone, Debug)]
pub struct AuthoritySettings {
    /// Where its directory is, with https.
    pub directory: String,
    /// How it reaches the operator: `mailto:` and such.
    pub contact: Vec<String>,
    /// Where everything is kept.
    pub storage: Storage,
    /// Which authorities to trust when it is asked.
    pub roots: Roots,
    /// How it may look, the preferred way first.
    pub kinds: Vec<ChallengeKind>,
    /// How long is waited after records of the name service are made, before it looks.
    pub record_wait: Duration,
    /// There is a command that makes them.
    pub has_hook: bool,
}

/// A certificate that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCertificate {
    /// The name of the site that wants it.
    pub site: String,
    /// What it is for.
    pub names: Names,
}

/// What has happened.
#[derive(Debug)]
pub enum CertificateEvent<'e> {
    /// There is a new certificate.
    Issued {
        /// The site it is for.
        site: &'e str,
        /// When it expires, in seconds since 1970.
        not_after_s: i64,
    },
    /// An attempt has failed.
    Failed {
        /// The site it was for.
        site: &'e str,
        /// Why.
        failure: &'e OrderFailure,
        /// After how long is tried again.
        again: Duration,
    },
}
