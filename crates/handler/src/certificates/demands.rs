//! The demands of each site on its clients.

use super::HeldCertificate;
use forebay_config::{AskClients, Config};
use forebay_conn::peer::ClientPolicy;

/// The demands of a site on its clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// The policy for connections to the site. The inner `None` says that nothing is asked; the outer one
    /// that the site has no certificate, and so no connections of its own.
    pub(super) policy: Option<Option<ClientPolicy>>,
    /// Whether a client without a certificate is refused.
    pub(super) is_required: bool,
    /// Whether clients without TLS are redirected to it, and asked there.
    pub(super) is_redirected: bool,
}

/// The demands of each site on its clients; empty if no site asks for anything.
pub(super) fn demands(config: &Config, with_pairs: &[HeldCertificate]) -> Vec<Demand> {
    if with_pairs.iter().all(|held| held.identity.clients().is_none()) {
        return Vec::new();
    }
    let has_https = config.https_port().is_some();
    let mut with_pairs = with_pairs.iter();
    let demands = config.sites.iter().map(|site| {
        let held = if site.has_certificate() { with_pairs.next() } else { None };
        Demand {
            policy: held.map(|held| held.identity.policy()),
            is_required: site.tls.clients.asked == AskClients::Required,
            is_redirected: has_https && site.tls.redirect.0.is_some(),
        }
    });
    demands.collect()
}
