//! The servers that a client trusts.

use super::ClientError;
use crate::pair::describe;
use crate::roots::Roots;
use crate::terms::Trust;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::Arc;

/// The verifier of certificates for this trust.
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

/// A verifier that accepts certificates signed by authorities, and certificates that are trusted
/// themselves.
#[derive(Debug)]
struct BelievedServers {
    /// The verifier by authorities, if there are any.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    themselves: Arc<[CertificateDer<'static>]>,
    /// The verifier of the proofs that servers have their keys.
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
        // `Other` is above all that an authority's certificate is none of a server, which counts
        // only against certificates that are not trusted themselves
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

/// A verifier that accepts every certificate. The proof that the server has its key is still
/// checked.
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
