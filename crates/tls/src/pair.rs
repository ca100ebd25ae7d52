//! A certificate chain and its private key.

use crate::names::covers;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, SignatureAlgorithm};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate chain and the private key of its first certificate.
#[derive(Clone, Debug)]
pub struct Pair {
    pub(crate) key: Arc<CertifiedKey>,
    /// The names of the hosts that it is for, in lower case; `*.` and a domain for all hosts
    /// directly below it.
    pub names: Vec<String>,
    /// The time from which the certificate is valid, in seconds since 1970.
    pub not_before_s: i64,
    /// The time when the certificate expires, in seconds since 1970.
    pub not_after_s: i64,
    /// Whether a helper thread does its handshakes: an RSA signature takes a millisecond.
    pub(crate) is_dear: bool,
}

/// The reason why a pair cannot be used.
#[derive(Debug)]
pub enum PairError {
    /// The text of the certificates is no PEM.
    Certificates(pem::Error),
    /// The text of the certificates has no certificate.
    NoCertificate,
    /// The first certificate cannot be read.
    Broken(String),
    /// The text of the key is no PEM, or has no key of a known kind.
    Key(pem::Error),
    /// The key is encrypted.
    Encrypted,
    /// The key is of a kind that cannot sign here.
    Unfit(Error),
    /// The key is not that of the certificate.
    Inconsistent,
}

impl Pair {
    /// Reads a chain of certificates in PEM, the server's own first, and its key in PEM: PKCS#8, PKCS#1
    /// or SEC1, not encrypted.
    ///
    /// # Errors
    /// [`PairError`].
    pub fn read(certificates: &[u8], key: &[u8]) -> Result<Pair, PairError> {
        let (certificates, key) = (without_bom(certificates), without_bom(key));
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificates)
            .collect::<Result<_, _>>()
            .map_err(PairError::Certificates)?;
        let first = chain.first().ok_or(PairError::NoCertificate)?;
        let Described { names, not_before_s, not_after_s } = describe(first)?;
        let has = |words: &[u8]| key.windows(words.len()).any(|part| part == words);
        if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
            return Err(PairError::Encrypted);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(PairError::Key)?;
        let key = aws_lc_rs::sign::any_supported_type(&key).map_err(PairError::Unfit)?;
        let is_dear = key.algorithm() == SignatureAlgorithm::RSA;
        let key = CertifiedKey::new(chain, key);
        match key.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(_) => return Err(PairError::Inconsistent),
        }
        Ok(Pair { key: Arc::new(key), names, not_before_s, not_after_s, is_dear })
    }

    /// A pair that was just made for this host, in DER. Its certificate and key are not checked
    /// against one another: the library cannot read a certificate with a critical extension that it
    /// does not know.
    pub(crate) fn made(host: &str, certificate: &[u8], key: &[u8]) -> Result<Pair, PairError> {
        let key = PrivateKeyDer::Pkcs8(key.to_vec().into());
        let key = aws_lc_rs::sign::any_supported_type(&key).map_err(PairError::Unfit)?;
        let is_dear = key.algorithm() == SignatureAlgorithm::RSA;
        let chain = vec![CertificateDer::from(certificate.to_vec())];
        let key = Arc::new(CertifiedKey::new(chain, key));
        let names = vec![host.to_owned()];
        Ok(Pair { key, names, not_before_s: 0, not_after_s: i64::MAX, is_dear })
    }

    /// The server's own certificate.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.key.cert.first()
    }

    /// Whether the certificate is for this host, which is in lower case and without a port.
    pub fn covers(&self, host: &str) -> bool {
        covers(&self.names, host)
    }
}

/// The text without the byte order mark that some editors put before UTF-8.
pub(crate) fn without_bom(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// The content of a certificate that is used.
pub(crate) struct Described {
    pub(crate) names: Vec<String>,
    pub(crate) not_before_s: i64,
    pub(crate) not_after_s: i64,
}

/// Reads the names of a certificate, and when it is valid.
pub(crate) fn describe(certificate: &[u8]) -> Result<Described, PairError> {
    let broken = |error: &dyn fmt::Display| PairError::Broken(error.to_string());
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| broken(&error))?;
    let alternatives = parsed.subject_alternative_name().map_err(|error| broken(&error))?;
    let names = alternatives.iter().flat_map(|extension| &extension.value.general_names);
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => address(bytes),
        _ => None,
    });
    let validity = parsed.validity();
    Ok(Described {
        names: names.collect(),
        not_before_s: validity.not_before.timestamp(),
        not_after_s: validity.not_after.timestamp(),
    })
}

/// An address in the form of a Host field.
fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(bytes).to_string());
    }
    let bytes = <[u8; 16]>::try_from(bytes).ok()?;
    Some(format!("[{}]", Ipv6Addr::from(bytes)))
}

impl fmt::Display for PairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PairError::Certificates(error) => write!(f, "the certificates cannot be read: {error}"),
            PairError::NoCertificate => {
                f.write_str("the file of the certificate holds no certificate")
            }
            PairError::Broken(error) => write!(f, "the certificate is broken: {error}"),
            PairError::Key(pem::Error::NoItemsFound) => f.write_str(
                "the file of the key holds no private key (PKCS#8, PKCS#1 or SEC1 in PEM)",
            ),
            PairError::Key(error) => write!(f, "the key cannot be read: {error}"),
            PairError::Encrypted => f.write_str(
                "the key is encrypted, and nobody is there to ask for its password; \
                 \"openssl pkey -in KEY -out NEWKEY\" writes it without one",
            ),
            PairError::Unfit(error) => write!(f, "the key cannot be used: {error}"),
            PairError::Inconsistent => f.write_str("the key is not that of the certificate"),
        }
    }
}

impl std::error::Error for PairError {}
