//! The cryptographic primitives of handshakes and channels.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use std::sync::Arc;

/// The primitives of AWS-LC: X25519MLKEM768 first, and of the ciphers those with 128 bits, which
/// cost least.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    // the sort is stable, so ciphers of the same cost keep their order
    provider.cipher_suites.sort_by_key(|suite| {
        !suite.suite().as_str().is_some_and(|name| name.contains("AES_128_GCM"))
    });
    Arc::new(provider)
}
