//! Which site asks for what of its clients.

use super::HeldCertificate;
use forebay_config::{AskClients, Config};
use forebay_conn::peer::ClientPolicy;

/// What is asked of the clients of a site.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// What they are asked for on a connection of the site; `None` within if that is nothing, and without if
    /// the site has no certificate, so that it has no connections of its own.
    pub(super) policy: Option<Option<ClientPolicy>>,
    /// Nobody is served without one.
    pub(super) is_required: bool,
    /// Clients that have come without TLS are led to it, and asked there.
    pub(super) is_redirected: bool,
}

/// What is asked of the clients of each site; nothing if no site asks for anything.
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
