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

/// Certificates of authorities that are trusted.
#[derive(Clone, Debug)]
pub struct Roots {
    store: Arc<RootCertStore>,
    /// Those that can be trusted as they are.
    themselves: Arc<[CertificateDer<'static>]>,
}

impl Roots {
    /// Those of a text in PEM; `None` if it has none that can be read.
    pub fn of_pem(text: &[u8]) -> Option<Roots> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let all = all.ok()?;
        let roots = Roots::of_certificates(&all)?;
        Some(Roots { themselves: all.into(), ..roots })
    }

    /// These, in DER; `None` if none can be read. Authorities of a system that cannot be read are passed
    /// over: there are some everywhere.
    pub fn of_certificates<C: AsRef<[u8]>>(all: impl IntoIterator<Item = C>) -> Option<Roots> {
        let mut store = RootCertStore::empty();
        let all = all.into_iter().map(|one| CertificateDer::from(one.as_ref().to_vec()));
        let (read, _) = store.add_parsable_certificates(all);
        (read > 0).then(|| Roots { store: Arc::new(store), themselves: Arc::new([]) })
    }

    pub(super) fn store(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.store)
    }
}

/// Which authorities a client trusts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Servers with a certificate that one of these has signed, for their name and in force.
    Roots(Roots),
    /// The same; and servers that show one of these certificates [of a text](Roots::of_pem) themselves, for their name
    /// and in force: one that nobody else has signed, as internal servers have it.
    RootsOrThemselves(Roots),
    /// Any server.
    Anybody,
}

/// What looks at certificates by this trust.
pub(super) fn verifier(
    trust: &Trust,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, ClientError> {
    let by_roots = |roots: &Roots| {
        let builder =
            WebPkiServerVerifier::builder_with_provider(roots.store(), Arc::clone(provider));
        builder.build().map_err(|error| ClientError::Terms(Error::General(error.to_string())))
    };
    Ok(match trust {
        Trust::Roots(roots) => by_roots(roots)?,
        Trust::RootsOrThemselves(roots) => Arc::new(Themselves {
            by_roots: by_roots(roots)?,
            known: Arc::clone(&roots.themselves),
        }),
        Trust::Anybody => Arc::new(Unverified(Arc::clone(provider))),
    })
}

/// Takes what authorities have signed, and what is known itself.
#[derive(Debug)]
struct Themselves {
    by_roots: Arc<WebPkiServerVerifier>,
    known: Arc<[CertificateDer<'static>]>,
}

impl ServerCertVerifier for Themselves {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = self.by_roots.verify_server_cert(certificate, intermediates, name, ocsp, now);
        // what others have to say against it (an authority's certificate is none of a server) holds for strangers
        let is_unsigned = matches!(
            found,
            Err(Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::Other(_)
            ))
        );
        if !is_unsigned || !self.known.contains(certificate) {
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
        self.by_roots.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_roots.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_roots.supported_verify_schemes()
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
