//! Certificates that prove to an authority that a name belongs to this server (RFC 8737). They are
//! shown to no other client, and only while the authority verifies.

use crate::identity::Identity;
use crate::pair::{Pair, PairError};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The certificates that are shown, by host. Handshakes look here only if they ask for it.
#[derive(Debug, Default)]
pub struct Proofs(Mutex<HashMap<String, Arc<Identity>>>);

impl Proofs {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Identity>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows this certificate, in DER, whose key is `key`, in PKCS#8, to an authority which
    /// verifies that `host` belongs to this server.
    ///
    /// # Errors
    /// The error in the key.
    pub fn show(&self, host: &str, certificate: &[u8], key: &[u8]) -> Result<(), PairError> {
        let pair = Pair::made(host, certificate, key)?;
        let identity = Arc::new(Identity::proof(pair).map_err(PairError::Unfit)?);
        self.lock().insert(host.to_owned(), identity);
        Ok(())
    }

    /// Stops showing a certificate for this host.
    pub fn hide(&self, host: &str) {
        self.lock().remove(host);
    }

    pub(crate) fn find(&self, host: &str) -> Option<Arc<Identity>> {
        self.lock().get(host).cloned()
    }
}
