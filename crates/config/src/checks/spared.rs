//! The clients that this configuration never has ignored or banned (ADR 0081).

use crate::{AdminConfig, Config, Listen, ListenerConfig, RuleConfig};
use forebay_http::cidr::{self, CidrBlock};
use forebay_policy::endpoint::{Addresses, Endpoint};
use forebay_policy::rule::Action;
use forebay_policy::spared::{SparedAs, SparedClients};
use forebay_site::rules::Network;
use std::fmt;
use std::net::IpAddr;

/// The default of `admin.allow`.
const DEFAULT_ALLOW: [&str; 3] = ["127.0.0.0/8", "::1", "unix"];

/// The clients that this configuration spares. `held` gives the machine's present addresses, and is called
/// if they are needed.
pub fn clients(config: &Config, held: impl FnOnce() -> Vec<IpAddr>) -> SparedClients {
    of(&config.trusted_proxies, &config.listeners, &config.admin, held)
}

/// The spared clients: trusted proxies, the server's own addresses, and those that `admin.allow` names. See
/// [`clients`].
pub fn of(
    proxies: &[Network],
    listeners: &[ListenerConfig],
    admin: &AdminConfig,
    held: impl FnOnce() -> Vec<IpAddr>,
) -> SparedClients {
    let mut spared = SparedClients::default();
    let proxies = proxies.iter().flat_map(|network| network.blocks());
    proxies.for_each(|block| spared.add(block, SparedAs::TrustedProxy));
    own(listeners, held)
        .into_iter()
        .for_each(|own| spared.add(CidrBlock::of(own), SparedAs::OwnAddress));
    if !admin.listen.0.is_empty() {
        // All of loopback is allowed by default, which says what this machine is, not where its
        // administrator is. A network that has every client needs a token, and makes no client an
        // administrator, either.
        let named = admin.allow.iter().filter(|network| !network.has_everybody());
        let named = named.filter(|network| !DEFAULT_ALLOW.contains(&network.as_str()));
        let named = named.flat_map(|network| network.blocks());
        named.for_each(|block| spared.add(block, SparedAs::Administrator));
    }
    spared
}

/// The addresses that listeners have; where that is every address, the machine's present addresses.
fn own(listeners: &[ListenerConfig], held: impl FnOnce() -> Vec<IpAddr>) -> Vec<IpAddr> {
    let endpoints = listeners.iter().flat_map(|listener| &listener.listen);
    let (mut own, mut is_all) = (Vec::new(), false);
    for endpoint in endpoints {
        match &endpoint.listen {
            Listen::At(address) if !address.ip().is_unspecified() => own.push(address.ip()),
            Listen::At(_) | Listen::All(_) => is_all = true,
            Listen::Unix(_) => {}
        }
    }
    if is_all {
        own.extend(held());
    }
    own
}

/// A rule would ban a spared address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparedBan {
    /// The client that the rule names.
    pub client: String,
    /// The reason why this client is never banned.
    pub why: SparedAs,
}

impl SparedBan {
    /// The ban, if the rule bans by address, and everything that one of its conditions names is spared.
    pub fn of(rule: &RuleConfig, spared: &SparedClients) -> Option<SparedBan> {
        let lowered = rule.to_policy(0);
        let bans = matches!(lowered.action, Some(Action::Drop | Action::Reset));
        if !bans || !lowered.is_for_connections() {
            return None;
        }
        lowered.conditions.client.iter().find_map(|endpoint| {
            let why = spared.why_all(block(endpoint)?)?;
            Some(SparedBan { client: endpoint.as_str().to_owned(), why })
        })
    }

    /// The name and the ban of the first rule in `changed` that is not in `before` and would ban a spared
    /// client.
    pub fn added(
        before: &Config,
        changed: &Config,
        held: impl FnOnce() -> Vec<IpAddr>,
    ) -> Option<(String, SparedBan)> {
        let spared = clients(changed, held);
        RuleConfig::placed(&changed.rules).find_map(|(place, rule)| {
            let is_new = !before.rules.contains(rule);
            let ban = is_new.then(|| SparedBan::of(rule, &spared)).flatten();
            Some((rule.name(place), ban?))
        })
    }
}

impl fmt::Display for SparedBan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SparedBan { client, why } = self;
        write!(f, "{client:?} is {why}, and is never banned")
    }
}

/// The smallest block with all addresses of an endpoint; `None` if it names none or all.
fn block(endpoint: &Endpoint) -> Option<CidrBlock> {
    let (first, last, is_v4) = match endpoint.addresses() {
        Addresses::Any | Addresses::Nowhere | Addresses::Unix => return None,
        Addresses::Network { first, len, is_v4 } => {
            (first.to_bits(), first.to_bits() | !cidr::mask(len), is_v4)
        }
        Addresses::Range { first, last, is_v4 } => (first.to_bits(), last.to_bits(), is_v4),
    };
    Some(CidrBlock::around(first, last, is_v4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_sys::addresses;

    fn held() -> Vec<IpAddr> {
        addresses::held().unwrap()
    }

    fn why(text: &str, address: &str) -> Option<SparedAs> {
        let config = crate::parse(&format!("root = \"/\"\n{text}"), "/etc/f.toml").unwrap();
        clients(&config, held).why(address.parse().unwrap())
    }

    #[test]
    fn a_configuration_says_who_is_spared() {
        let proxy = "trusted_proxies = [\"10.0.0.0/24\"]\n";
        let admin = "admin = { listen = \"127.0.0.1:9090\", allow = [\"192.0.2.7\"] }\n";
        let open = "admin = { listen = \"127.0.0.1:9090\", allow = [\"all\"] }\n";
        let loopback = "admin = { listen = \"127.0.0.1:9090\", allow = [\"127.0.0.5\"] }\n\
                        listen = [\"192.0.2.1:80\"]\n";
        let idle = "admin = { allow = [\"192.0.2.7\"] }\n";
        let by_default = "admin.listen = \"127.0.0.1:9090\"\nlisten = [\"192.0.2.1:80\"]\n";
        for (text, address, expected) in [
            (proxy, "10.0.0.9", Some(SparedAs::TrustedProxy)),
            (proxy, "10.0.1.9", None),
            (admin, "192.0.2.7", Some(SparedAs::Administrator)),
            (admin, "192.0.2.8", None),
            (open, "192.0.2.7", None),
            (idle, "192.0.2.7", None),
            (by_default, "127.0.0.5", None),
            (loopback, "127.0.0.5", Some(SparedAs::Administrator)),
            (loopback, "127.0.0.6", None),
            ("listen = [\"192.0.2.1:80\"]\n", "192.0.2.1", Some(SparedAs::OwnAddress)),
            ("listen = [\"192.0.2.1:80\"]\n", "192.0.2.2", None),
            ("listen = [\"127.0.0.1:80\"]\n", "127.0.0.1", Some(SparedAs::OwnAddress)),
            ("listen = [\"127.0.0.1:80\"]\n", "127.0.0.2", None),
            ("listen = [\":80\"]\n", "127.0.0.1", Some(SparedAs::OwnAddress)),
            ("listen = [\":80\"]\n", "127.0.0.2", None),
            ("listen = [\":80\"]\n", "203.0.113.9", None),
        ] {
            assert_eq!(why(text, address), expected, "{text} {address}");
        }
    }

    #[test]
    fn a_rule_bans_who_is_spared_if_all_of_a_condition_is() {
        let proxies = "trusted_proxies = [\"10.0.0.0/24\"]\n";
        let ban = |rule: &str| {
            let text = format!("root = \"/\"\n{proxies}[[rule]]\n{rule}\n");
            let config = crate::parse(&text, "/etc/f.toml").unwrap();
            SparedBan::of(&config.rules[0], &clients(&config, held)).map(|ban| ban.to_string())
        };
        let never = |client: &str| {
            Some(format!("{client:?} is a trusted proxy (trusted_proxies), and is never banned"))
        };
        assert_eq!(ban("client = \"10.0.0.5\"\naction = \"drop\""), never("10.0.0.5"));
        assert_eq!(
            ban("client = [\"192.0.2.1\", \"10.0.0.5-10.0.0.9\"]\naction = \"reset\""),
            never("10.0.0.5-10.0.0.9")
        );
        // others are meant, too
        assert_eq!(ban("client = \"10.0.0.0/8\"\naction = \"drop\""), None);
        assert_eq!(ban("action = \"drop\""), None);
        // a rule for a path says what the client may do, and bans no client
        assert_eq!(ban("client = \"10.0.0.5\"\npath = \"/a\"\naction = \"drop\""), None);
        assert_eq!(ban("client = \"10.0.0.5\"\naction = \"reject\""), None);
    }
}
