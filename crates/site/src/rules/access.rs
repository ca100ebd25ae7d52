//! Access to paths by clients' addresses.

use super::header::vary;
use super::{GuardedPaths, HeaderRule, Network, RequestConditions};
use std::net::IpAddr;

/// A rule that admits clients by their addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRule {
    /// The paths that the rule protects.
    pub paths: GuardedPaths,
    /// Networks that are admitted, also if they are denied too.
    pub allow: Vec<Network>,
    /// Networks that are denied. Without any, all clients that are not allowed are denied.
    pub deny: Vec<Network>,
    /// The requests that the rule is for. Others are not looked at.
    pub conditions: RequestConditions,
    /// The text for a client that is not admitted: HTML, without the full stop. `None`: a text
    /// about its address.
    pub refusal: Option<&'static str>,
}

impl AccessRule {
    /// The rules that add a `Vary` to the answers, if they need one.
    pub(crate) fn varying(&self) -> impl Iterator<Item = HeaderRule> {
        // the address alone is in no Vary: the operator keeps answers for some addresses out of
        // caches
        let patterns = self.paths.path.patterns().into_iter();
        patterns.filter_map(|path| vary(Some(path), &self.conditions, std::iter::empty()))
    }

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
    use crate::rules::Scope;

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
            let access = AccessRule {
                paths: Scope::any().into(),
                allow: networks(allow),
                deny: networks(deny),
                conditions: RequestConditions::default(),
                refusal: None,
            };
            assert_eq!(access.admits(client.parse().unwrap()), expected, "{access:?} {client}");
        }
    }
}
