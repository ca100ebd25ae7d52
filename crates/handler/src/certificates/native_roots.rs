//! The authorities that the system trusts.

use forebay_tls::Roots;

/// Finds all of them; `None` if there are none, or this program was built without TLS.
pub(super) fn find() -> Option<Roots> {
    #[cfg(feature = "tls")]
    return Roots::of_certificates(rustls_native_certs::load_native_certs().certs);
    #[cfg(not(feature = "tls"))]
    return None;
}
