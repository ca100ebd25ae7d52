//! The keeper without the Cargo feature `acme`: it orders nothing.

use crate::answers::ChallengeAnswers;
use crate::records::RecordHook;
use crate::wanted::{AuthoritySettings, CertificateEvent, WantedCertificate};
use std::time::Duration;

/// A keeper that keeps no certificates.
#[derive(Debug, Default)]
pub struct CertificateKeeper(());

impl CertificateKeeper {
    /// Does nothing, and returns the longest time.
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
