//! Which servers a client believes.

use super::ClientError;
use crate::pair::describe;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

/// Certificates that are trusted.
#[derive(Clone, Debug)]
pub struct Roots {
    /// Those of authorities: what they have signed is trusted.
    store: Arc<RootCertStore>,
    /// Those that are trusted as they are, where a server shows one.
    themselves: Arc<[CertificateDer<'static>]>,
}

impl Roots {
    /// Those of a text in PEM; `None` if it has none that can be read. A server may show one of them itself. What a
    /// certificate has signed is trusted where it is that of an authority.
    pub fn of_pem(text: &[u8]) -> Option<Roots> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let all = all.ok()?;
        let all: Vec<_> = all.into_iter().filter(|one| describe(one).is_ok()).collect();
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(all.iter().filter(|one| may_sign(one)).cloned());
        (!all.is_empty()).then(|| Roots { store: Arc::new(store), themselves: all.into() })
    }

    /// Those of authorities, in DER; `None` if none can be read. Authorities of a system that cannot be read are
    /// passed over: there are some everywhere.
    pub fn of_certificates<C: AsRef<[u8]>>(all: impl IntoIterator<Item = C>) -> Option<Roots> {
        let mut store = RootCertStore::empty();
        let all = all.into_iter().map(|one| CertificateDer::from(one.as_ref().to_vec()));
        let (read, _) = store.add_parsable_certificates(all);
        (read > 0).then(|| Roots { store: Arc::new(store), themselves: Arc::new([]) })
    }
}

/// Whether a certificate is that of an authority. The library asks this of all certificates of a chain but its anchor:
/// a server's own one that is trusted would be an authority for every name.
///
/// RFC 5280 §4.2.1.9 wants it said; what is older than version 3 cannot say it, and some authorities say in its place
/// that their key signs certificates.
fn may_sign(certificate: &[u8]) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return false };
    match (parsed.basic_constraints(), parsed.key_usage()) {
        (Ok(Some(constraints)), _) => constraints.value.ca,
        (Ok(None), _) if parsed.version() != X509Version::V3 => true,
        (Ok(None), Ok(Some(usage))) => usage.value.key_cert_sign(),
        _ => false,
    }
}

/// Which servers a client trusts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Servers with a certificate that one of these has signed, or that is one of these of a
    /// [text](Roots::of_pem): for their name and in force.
    Roots(Roots),
    /// Any server.
    Anybody,
}

/// What looks at certificates by this trust.
pub(super) fn verifier(
    trust: &Trust,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, ClientError> {
    let Trust::Roots(Roots { store, themselves }) = trust else {
        return Ok(Arc::new(Unverified(Arc::clone(provider))));
    };
    let authorities = match store.is_empty() {
        true => None,
        false => {
            let (store, provider) = (Arc::clone(store), Arc::clone(provider));
            let built = WebPkiServerVerifier::builder_with_provider(store, provider).build();
            Some(built.map_err(|error| ClientError::Terms(Error::General(error.to_string())))?)
        }
    };
    let themselves = Arc::clone(themselves);
    Ok(Arc::new(BelievedServers {
        authorities,
        themselves,
        signatures: Unverified(Arc::clone(provider)),
    }))
}

/// Takes what authorities have signed, and what is known itself.
#[derive(Debug)]
struct BelievedServers {
    /// If there are any.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    themselves: Arc<[CertificateDer<'static>]>,
    /// Looks at the proofs that servers have their keys.
    signatures: Unverified,
}

impl ServerCertVerifier for BelievedServers {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = match &self.authorities {
            Some(known) => known.verify_server_cert(certificate, intermediates, name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        // what others have to say against it (an authority's certificate is none of a server) holds for strangers
        let is_unsigned = matches!(
            found,
            Err(Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::Other(_)
            ))
        );
        if !is_unsigned || !self.themselves.contains(certificate) {
            return found;
        }
        let broken = || Error::InvalidCertificate(CertificateError::BadEncoding);
        let described = describe(certificate).map_err(|_| broken())?;
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if now_s > described.not_after_s {
            return Err(Error::InvalidCertificate(CertificateError::Expired));
        }
        if now_s < described.not_before_s {
            return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signatures.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signatures.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_verify_schemes()
    }
}

/// Takes every certificate. That the server has its key is still proved.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
