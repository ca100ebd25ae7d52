//! Certificates of clients: which are accepted, which were revoked, and whether a client must show
//! one.

use crate::distinguished_name::distinguished;
use crate::pair::without_bom;
use crate::provider::provider;
use forebay_conn::peer::{ClientCertificate, ClientPolicy};
use forebay_conn::transport::Unproven;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_name;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

/// The requirements of a site on its clients' certificates.
#[derive(Debug)]
pub struct ClientVerification {
    pub(crate) verifier: Arc<dyn ClientCertVerifier>,
    policy: ClientPolicy,
    /// A digest of the policy, and of what was revoked: sessions are resumed while this is the
    /// same.
    stamp: [u8; 32],
    /// The time when the first of the lists expires, in seconds since 1970.
    lists_until_s: Option<i64>,
}

/// Whether a client must show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// A client may connect without a certificate; one that it shows must be valid.
    Optional,
    /// A client must show a certificate.
    Required,
}

/// Certificates of authorities. Client certificates that they have signed are accepted.
#[derive(Clone, Debug)]
pub struct Authorities(Vec<CertificateDer<'static>>);

/// Lists of certificates that authorities have revoked.
#[derive(Clone, Debug)]
pub struct Revoked(Vec<(CertificateRevocationListDer<'static>, Option<i64>)>);

/// The reason why a file of authorities, or of what they have revoked, cannot be used.
#[derive(Debug)]
pub enum ClientsError {
    /// The text is no PEM.
    Text(pem::Error),
    /// The file has no certificate.
    NoCertificate,
    /// A certificate in the file cannot be read.
    Broken(String),
    /// This certificate, by its subject, is not that of an authority.
    NoAuthority(String),
    /// The file has no list of revoked certificates.
    NoList,
    /// A list in the file cannot be read.
    BrokenList(String),
    /// Authorities and lists do not fit together.
    Unfit(VerifierBuilderError),
    /// A certificate cannot anchor trust.
    Anchor(Error),
    /// No certificate can have this name.
    Name(String),
}

impl Authorities {
    /// Reads certificates in PEM.
    ///
    /// # Errors
    /// [`ClientsError`].
    pub fn read(text: &[u8]) -> Result<Authorities, ClientsError> {
        let all = CertificateDer::pem_slice_iter(without_bom(text)).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(ClientsError::Text)?;
        if all.is_empty() {
            return Err(ClientsError::NoCertificate);
        }
        for one in &all {
            let parsed = X509Certificate::from_der(one);
            let (_, parsed) = parsed.map_err(|error| ClientsError::Broken(error.to_string()))?;
            if !parsed.is_ca() {
                return Err(ClientsError::NoAuthority(distinguished(parsed.subject())));
            }
        }
        Ok(Authorities(all))
    }
}

impl Revoked {
    /// Reads lists in PEM.
    ///
    /// # Errors
    /// [`ClientsError`].
    pub fn read(text: &[u8]) -> Result<Revoked, ClientsError> {
        let all = CertificateRevocationListDer::pem_slice_iter(without_bom(text))
            .collect::<Result<Vec<_>, _>>();
        let all = all.map_err(ClientsError::Text)?;
        if all.is_empty() {
            return Err(ClientsError::NoList);
        }
        let described = all.into_iter().map(|list| {
            let parsed = CertificateRevocationList::from_der(&list);
            let (_, parsed) =
                parsed.map_err(|error| ClientsError::BrokenList(error.to_string()))?;
            let until_s = parsed.next_update().map(|until| until.timestamp());
            Ok((list, until_s))
        });
        Ok(Revoked(described.collect::<Result<_, _>>()?))
    }

    /// The time when the first of the lists expires, in seconds since 1970.
    pub fn until_s(&self) -> Option<i64> {
        self.0.iter().filter_map(|(_, until_s)| *until_s).min()
    }
}

impl ClientVerification {
    /// The requirement that a client's certificate is signed by these authorities, and not revoked.
    /// If there is a list, every certificate between the client and an authority must be covered by
    /// one, and none of the lists may have expired.
    ///
    /// # Errors
    /// [`ClientsError`].
    pub fn new(
        asked: ClientAuth,
        authorities: &[Authorities],
        revoked: &[Revoked],
    ) -> Result<ClientVerification, ClientsError> {
        let mut roots = RootCertStore::empty();
        let mut content = vec![match asked {
            ClientAuth::Optional => 1,
            ClientAuth::Required => 2,
        }];
        for authority in authorities.iter().flat_map(|some| &some.0) {
            roots.add(authority.clone()).map_err(ClientsError::Anchor)?;
            content.extend_from_slice(authority);
        }
        let policy = ClientPolicy(digest(&content));
        let lists = || revoked.iter().flat_map(|some| &some.0);
        lists().for_each(|(list, _)| content.extend_from_slice(list));
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            .with_crls(lists().map(|(list, _)| list.clone()))
            .enforce_revocation_expiration();
        let verifier = match asked {
            ClientAuth::Optional => verifier.allow_unauthenticated(),
            ClientAuth::Required => verifier,
        };
        Ok(ClientVerification {
            verifier: verifier.build().map_err(ClientsError::Unfit)?,
            policy,
            stamp: digest(&content),
            lists_until_s: revoked.iter().filter_map(Revoked::until_s).min(),
        })
    }

    /// Accepts only those clients whose certificates have this name.
    ///
    /// # Errors
    /// The name is no host name.
    pub fn of_name(self, name: &str) -> Result<ClientVerification, ClientsError> {
        let read = ServerName::try_from(name.to_owned());
        let read = read.map_err(|_| ClientsError::Name(name.to_owned()))?;
        // with another name to check for, earlier sessions are not resumed
        let stamp = digest(&[&self.stamp[..], name.as_bytes()].concat());
        let verifier = Arc::new(NamedClients { signed: self.verifier, name: read });
        Ok(ClientVerification { verifier, stamp, ..self })
    }

    /// The policy, by which the requirements of sites are compared.
    pub fn policy(&self) -> ClientPolicy {
        self.policy
    }

    /// The digest that changes with the policy and with what was revoked.
    pub fn stamp(&self) -> [u8; 32] {
        self.stamp
    }

    /// Whether the certificate of a session that is resumed would not be accepted any more: it has
    /// expired, or a list has.
    pub(crate) fn is_over(&self, certificate: &[u8]) -> bool {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = now_s.map_or(0, |now| now.as_secs()) as i64;
        let until_s = X509Certificate::from_der(certificate)
            .map_or(0, |(_, parsed)| parsed.validity().not_after.timestamp());
        until_s < now_s || self.lists_until_s.is_some_and(|until_s| until_s < now_s)
    }
}

/// A verifier that accepts signed certificates that are for one name.
#[derive(Debug)]
struct NamedClients {
    /// The verifier of all other requirements.
    signed: Arc<dyn ClientCertVerifier>,
    name: ServerName<'static>,
}

impl ClientCertVerifier for NamedClients {
    fn offer_client_auth(&self) -> bool {
        self.signed.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.signed.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let found = self.signed.verify_client_cert(certificate, intermediates, now)?;
        verify_server_name(&ParsedCertificate::try_from(certificate)?, &self.name)?;
        Ok(found)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// The reason why a client's certificate was not accepted, if the error is about that.
pub(crate) fn unproven(error: &Error) -> Option<Unproven> {
    let error = match error {
        Error::NoCertificatesPresented => return Some(Unproven::Missing),
        Error::InvalidCertificate(error) => error,
        _ => return None,
    };
    Some(match error {
        CertificateError::UnknownIssuer => Unproven::Untrusted,
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => Unproven::Expired,
        CertificateError::Revoked => Unproven::Revoked,
        CertificateError::UnknownRevocationStatus
        | CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => Unproven::Unlisted,
        _ => Unproven::Wrong,
    })
}

/// A client's certificate in the form of logs and rules.
pub(crate) fn described(certificate: &[u8]) -> ClientCertificate {
    let subject = X509Certificate::from_der(certificate)
        .map_or_else(|_| String::new(), |(_, parsed)| distinguished(parsed.subject()));
    let mut fingerprint = String::with_capacity(64);
    for byte in digest(certificate) {
        let _ = write!(fingerprint, "{byte:02x}");
    }
    ClientCertificate { subject: subject.into(), fingerprint: fingerprint.into() }
}

/// The SHA-256 digest of these bytes.
fn digest(bytes: &[u8]) -> [u8; 32] {
    let suite = TLS13_AES_128_GCM_SHA256.tls13();
    let hash = suite.map(|suite| suite.common.hash_provider.hash(bytes));
    // that suite is one of TLS 1.3, and its hash has 32 bytes
    hash.and_then(|hash| hash.as_ref().try_into().ok()).unwrap_or_default()
}

impl fmt::Display for ClientsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientsError::Text(error) => write!(f, "it cannot be read: {error}"),
            ClientsError::NoCertificate => f.write_str("it holds no certificate in PEM"),
            ClientsError::Broken(error) => write!(f, "a certificate in it is broken: {error}"),
            ClientsError::NoAuthority(subject) => write!(
                f,
                "the certificate of {subject:?} in it is not that of an authority (its basic constraints \
                 do not say CA)"
            ),
            ClientsError::NoList => f.write_str(
                "it holds no list of revoked certificates in PEM; \
                 \"openssl crl -inform DER -in LIST -out NEWLIST\" makes PEM of others",
            ),
            ClientsError::BrokenList(error) => write!(f, "a list in it is broken: {error}"),
            ClientsError::Unfit(error) => write!(f, "{error}"),
            ClientsError::Anchor(error) => write!(f, "an authority cannot be used: {error}"),
            ClientsError::Name(name) => write!(f, "{name:?} is not the name of a host"),
        }
    }
}

impl std::error::Error for ClientsError {}
