//! Why certificates, tokens or keys cannot be used, in words.

use super::{Owner, TokensError};
use crate::certificates::acme::NoRoots;
use crate::identity::KeysError;
use forebay_tls::{ClientsError, IdentityError, PairError};
use std::path::PathBuf;
use std::{fmt, io};

/// Why certificates cannot be used.
#[derive(Debug)]
pub enum CertificateError {
    /// A file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A certificate or its key is wrong.
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The error.
        error: PairError,
    },
    /// A file about certificates of clients cannot be used.
    ClientFile {
        /// The file.
        path: PathBuf,
        /// The error.
        error: ClientsError,
    },
    /// Files about certificates of clients that do not go together.
    Clients {
        /// The owner of the files.
        owner: Owner,
        /// The error.
        error: ClientsError,
    },
    /// Pairs that contradict one another.
    Names {
        /// The owner of the pairs.
        owner: Owner,
        /// The error.
        error: IdentityError,
    },
    /// A file of tokens cannot be used.
    Token {
        /// The file.
        path: PathBuf,
        /// The error.
        error: TokensError,
    },
    /// No trusted authorities are known for requests to the ACME authority.
    Roots(NoRoots),
    /// No trusted authorities are known for TLS to applications.
    SystemRoots(NoSystemRoots),
    /// A file of authorities has none.
    NoAuthority {
        /// The file.
        path: PathBuf,
    },
    /// A file of keys of identities cannot be used.
    Keys {
        /// The file.
        path: PathBuf,
        /// The error.
        error: KeysError,
    },
    /// The system gives no random numbers.
    Tickets(String),
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
            CertificateError::ClientFile { path, error } => write!(f, "the file {path:?}: {error}"),
            CertificateError::Clients { owner, error } => {
                write!(f, "the authorities and lists for clients of {owner}: {error}")
            }
            CertificateError::Names { owner, error } => {
                write!(f, "the certificates of {owner}: {error}")
            }
            CertificateError::Token { path, error } => write!(f, "the tokens in {path:?}: {error}"),
            CertificateError::Roots(error) => write!(f, "{error}"),
            CertificateError::SystemRoots(error) => write!(f, "{error}"),
            CertificateError::NoAuthority { path } => {
                write!(f, "there is no certificate in PEM that can be read in {path:?}")
            }
            CertificateError::Keys { path, error } => write!(f, "the keys in {path:?}: {error}"),
            CertificateError::Tickets(error) => write!(f, "cannot make keys for tickets: {error}"),
        }
    }
}

impl std::error::Error for CertificateError {}

/// The machine has no list of trusted authorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSystemRoots;

impl fmt::Display for NoSystemRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "this system trusts no authority, so no certificate of an application can be verified: install \
             ca-certificates, or name the authorities in tls.ca",
        )
    }
}
