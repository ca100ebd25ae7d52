//! Certificates that a client trusts.

use crate::pair::describe;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

/// Certificates that are trusted.
#[derive(Clone, Debug)]
pub struct Roots {
    /// The certificates of authorities: what they have signed is trusted.
    pub(crate) store: Arc<RootCertStore>,
    /// The certificates that are trusted themselves, where a server shows one.
    pub(crate) themselves: Arc<[CertificateDer<'static>]>,
}

impl Roots {
    /// The certificates of a text in PEM; `None` if it has none that can be read. A server may show
    /// one of them itself. What a certificate has signed is trusted if it is that of an authority.
    pub fn of_pem(text: &[u8]) -> Option<Roots> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let all = all.ok()?;
        let all: Vec<_> = all.into_iter().filter(|one| describe(one).is_ok()).collect();
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(all.iter().filter(|one| may_sign(one)).cloned());
        (!all.is_empty()).then(|| Roots { store: Arc::new(store), themselves: all.into() })
    }

    /// The certificates of authorities, in DER; `None` if none can be read. Certificates of a
    /// system that cannot be read are skipped, as every system has some.
    pub fn of_certificates<C: AsRef<[u8]>>(all: impl IntoIterator<Item = C>) -> Option<Roots> {
        let mut store = RootCertStore::empty();
        let all = all.into_iter().map(|one| CertificateDer::from(one.as_ref().to_vec()));
        let (read, _) = store.add_parsable_certificates(all);
        (read > 0).then(|| Roots { store: Arc::new(store), themselves: Arc::new([]) })
    }
}

/// Whether a certificate is that of an authority. The library checks this for all certificates of a
/// chain except its anchor: a server's own certificate that is trusted would otherwise be an
/// authority for every name.
///
/// RFC 5280 §4.2.1.9 wants a certificate to state it; those older than version 3 cannot, and some
/// authorities state instead that their key signs certificates.
fn may_sign(certificate: &[u8]) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return false };
    match (parsed.basic_constraints(), parsed.key_usage()) {
        (Ok(Some(constraints)), _) => constraints.value.ca,
        (Ok(None), _) if parsed.version() != X509Version::V3 => true,
        (Ok(None), Ok(Some(usage))) => usage.value.key_cert_sign(),
        _ => false,
    }
}
