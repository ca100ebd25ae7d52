//! Without the Cargo feature `acme`: nothing is ordered.

use crate::answers::ChallengeAnswers;
use crate::records::RecordHook;
use crate::wanted::{AuthoritySettings, CertificateEvent, WantedCertificate};
use std::time::Duration;

/// Keeps no certificates.
#[derive(Debug, Default)]
pub struct CertificateKeeper(());

impl CertificateKeeper {
    /// Does nothing, and has nothing to do for ever.
    pub fn round(
        &mut self,
        _: &AuthoritySettings,
        _: &[WantedCertificate],
        _: &ChallengeAnswers,
        _: Option<RecordHook<'_>>,
        _: bool,
        _: &mut dyn FnMut(CertificateEvent<'_>),
    ) -> Duration {
        Duration::MAX
    }
}
