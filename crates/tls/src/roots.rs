//! Certificates that a client trusts.

use crate::client::TlsRefusal;
use crate::pair::{Pair, describe};
use crate::provider::provider;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, Error, RootCertStore};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

/// Certificates that are trusted.
#[derive(Clone, Debug)]
pub struct Roots {
    /// Those of authorities: what they have signed is trusted.
    pub(crate) store: Arc<RootCertStore>,
    /// Those that are trusted as they are, where a server shows one.
    pub(crate) themselves: Arc<[CertificateDer<'static>]>,
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

    /// Whether an authority among them has signed this certificate, for a server or for a client, and it is good today.
    /// Names are not looked at.
    ///
    /// # Errors
    /// Why it would not be believed.
    pub fn believe(&self, pair: &Pair, is_server: bool) -> Result<(), TlsRefusal> {
        self.look_at(pair, is_server).map_err(TlsRefusal::of)
    }

    fn look_at(&self, pair: &Pair, is_server: bool) -> Result<(), Error> {
        let (own, others) = pair.key.cert.split_first().ok_or(CertificateError::BadEncoding)?;
        let (now, provider) = (UnixTime::now(), provider());
        if is_server {
            let (own, known) = (ParsedCertificate::try_from(own)?, &self.store);
            let algorithms = provider.signature_verification_algorithms.all;
            return verify_server_cert_signed_by_trust_anchor(&own, known, others, now, algorithms);
        }
        let built = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.store), provider);
        let built = built.build().map_err(|error| Error::General(error.to_string()))?;
        built.verify_client_cert(own, others, now).map(drop)
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
