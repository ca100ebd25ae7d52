//! Who may ask for a path, by address.

use super::{Network, Scope};
use std::net::IpAddr;

/// Admits clients by their address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRule {
    /// Which paths.
    pub path: Scope,
    /// These are admitted, also if they are denied too.
    pub allow: Vec<Network>,
    /// These are not. Without any, all clients that are not allowed are denied.
    pub deny: Vec<Network>,
}

impl AccessRule {
    /// Whether a client with this address is admitted.
    pub fn admits(&self, client: IpAddr) -> bool {
        let is_among = |networks: &[Network]| networks.iter().any(|at| at.contains(client));
        let is_denied =
            if self.deny.is_empty() { !self.allow.is_empty() } else { is_among(&self.deny) };
        !is_denied || is_among(&self.allow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allow_overrules_deny() {
        let networks =
            |texts: &[&str]| texts.iter().map(|at| Network::parse(at).unwrap()).collect();
        for (allow, deny, client, expected) in [
            (&["10.0.0.0/8"][..], &["all"][..], "10.1.1.1", true),
            (&["10.0.0.0/8"], &["all"], "8.8.8.8", false),
            (&["10.0.0.0/8"], &[], "8.8.8.8", false),
            (&["10.0.0.0/8"], &[], "10.1.1.1", true),
            (&[], &["10.0.0.0/8"], "10.1.1.1", false),
            (&[], &["10.0.0.0/8"], "8.8.8.8", true),
            (&[], &[], "8.8.8.8", true),
        ] {
            let access =
                AccessRule { path: Scope::any(), allow: networks(allow), deny: networks(deny) };
            assert_eq!(access.admits(client.parse().unwrap()), expected, "{access:?} {client}");
        }
    }
}
