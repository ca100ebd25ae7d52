//! Certificates that show an authority that a name is ours (RFC 8737): shown to no other client, and
//! only while it looks.

use crate::identity::Identity;
use crate::pair::{Pair, PairError};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is shown, by host. Handshakes look here only if they ask for it.
#[derive(Debug, Default)]
pub struct Proofs(Mutex<HashMap<String, Arc<Identity>>>);

impl Proofs {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Identity>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows this certificate, in DER, whose key is `key`, in PKCS#8, to an authority that looks whether
    /// `host` is ours.
    ///
    /// # Errors
    /// What is wrong with the key.
    pub fn show(&self, host: &str, certificate: &[u8], key: &[u8]) -> Result<(), PairError> {
        let pair = Pair::made(host, certificate, key)?;
        let identity = Arc::new(Identity::proof(pair).map_err(PairError::Unfit)?);
        self.lock().insert(host.to_owned(), identity);
        Ok(())
    }

    /// Shows nothing for this host any more.
    pub fn hide(&self, host: &str) {
        self.lock().remove(host);
    }

    pub(crate) fn find(&self, host: &str) -> Option<Arc<Identity>> {
        self.lock().get(host).cloned()
    }
}
