//! The addresses that the firewall may drop by a policy's rules, before the server sees a
//! connection.
//!
//! The firewall drops only what the server would refuse by `action = "drop"` in any case. Where the
//! decision needs more than an address, or an earlier rule decides otherwise, the connection is
//! left to the server: an address too many there changes nothing but the costs.

use super::ruleset::AddressList;
use forebay_http::cidr;
use forebay_policy::Policy;
use forebay_policy::endpoint::{Addresses, Endpoint};
use std::net::{IpAddr, Ipv6Addr};

/// The largest number of ranges of addresses.
pub const MOST_RANGES: usize = 65_536;

/// The lists of a policy, in the order of its rules; and the name of the first rule for which there
/// was no room.
pub fn of(policy: &Policy) -> (Vec<AddressList>, Option<String>) {
    let (mut lists, mut left) = (Vec::<AddressList>::new(), None);
    let spared = spared(policy);
    let mut free = MOST_RANGES.saturating_sub(spared.len());
    if !spared.is_empty() {
        // before every rule: rules about spared addresses are left to the server
        lists.push(AddressList { is_dropped: false, ranges: Some(spared) });
    }
    for rule in policy.rules() {
        let decides = rule.action.is_some() || rule.stop;
        if !rule.is_for_connections() || !decides {
            continue;
        }
        let list = AddressList {
            is_dropped: rule.drops_addresses(),
            ranges: ranges(&rule.conditions.client),
        };
        let Some(rest) = free.checked_sub(list.ranges.as_ref().map_or(0, Vec::len)) else {
            // later rules are left out, too: this one might have decided otherwise
            left = Some(rule.name.clone());
            break;
        };
        free = rest;
        let is_all = list.ranges.is_none();
        if list.ranges.as_ref().is_none_or(|ranges| !ranges.is_empty()) {
            lists.push(list);
        }
        if is_all {
            break;
        }
    }
    // lists after the last dropped one change nothing
    let last = lists.iter().rposition(|list| list.is_dropped);
    lists.truncate(last.map_or(0, |at| at + 1));
    (lists, left)
}

/// The addresses that are never dropped here.
fn spared(policy: &Policy) -> Vec<(IpAddr, IpAddr)> {
    let blocks = policy.spared().blocks();
    merged(blocks.map(|block| {
        let first = block.bits();
        (!block.is_ipv4(), first, first | !cidr::mask(block.whole_len()))
    }))
}

/// The addresses of all these endpoints; `None` for every address.
fn ranges(endpoints: &[Endpoint]) -> Option<Vec<(IpAddr, IpAddr)>> {
    let mut found = Vec::new();
    for endpoint in endpoints {
        found.push(match endpoint.addresses() {
            Addresses::Any => return None,
            Addresses::Nowhere | Addresses::Unix => continue,
            Addresses::Network { first, len, is_v4 } => {
                let host = u128::MAX.checked_shr(len.into()).unwrap_or(0);
                (!is_v4, first.to_bits(), first.to_bits() | host)
            }
            Addresses::Range { first, last, is_v4 } => (!is_v4, first.to_bits(), last.to_bits()),
        });
    }
    if endpoints.is_empty() {
        return None;
    }
    Some(merged(found))
}

/// Sorts ranges of both families, and merges those that meet.
fn merged(ranges: impl IntoIterator<Item = (bool, u128, u128)>) -> Vec<(IpAddr, IpAddr)> {
    let mut found: Vec<_> = ranges.into_iter().collect();
    found.sort_unstable();
    let mut merged: Vec<(bool, u128, u128)> = Vec::new();
    for (is_v6, first, last) in found {
        match merged.last_mut() {
            Some((kind, _, end)) if *kind == is_v6 && first <= end.saturating_add(1) => {
                *end = last.max(*end);
            }
            _ => merged.push((is_v6, first, last)),
        }
    }
    let address = |is_v6: bool, bits: u128| match (is_v6, Ipv6Addr::from_bits(bits)) {
        (true, ip) => IpAddr::V6(ip),
        (false, ip) => IpAddr::V6(ip).to_canonical(),
    };
    merged.into_iter().map(|(v6, a, b)| (address(v6, a), address(v6, b))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_http::cidr::CidrBlock;
    use forebay_policy::condition::Conditions;
    use forebay_policy::facts::ConnectionFacts;
    use forebay_policy::rule::{Action, Degree, Rule, When};
    use forebay_policy::spared::{SparedAs, SparedClients};
    use proptest::prelude::*;

    fn endpoints(texts: &[&str]) -> Vec<Endpoint> {
        texts.iter().map(|text| Endpoint::parse(text).unwrap()).collect()
    }

    fn rule(client: &[&str], action: Option<Action>) -> Rule {
        let conditions = Conditions { client: endpoints(client), ..Conditions::default() };
        Rule { name: client.join(" "), conditions, action, ..Rule::default() }
    }

    fn shown(list: &AddressList) -> String {
        let what = if list.is_dropped { "drop" } else { "leave" };
        let range = |(first, last): &(IpAddr, IpAddr)| format!(" {first}-{last}");
        let ranges = list.ranges.as_ref().map(|ranges| ranges.iter().map(range).collect());
        format!("{what}{}", ranges.unwrap_or_else(|| " all".to_owned()))
    }

    #[test]
    fn ranges_are_merged_and_in_order() {
        let found = ranges(&endpoints(&[
            "10.0.1.0/24",
            "10.0.0.0/24",
            "fd00::5-fd00::9",
            "10.0.0.7",
            "0.0.0.1",
            "fd00::/16",
        ]));
        let list = AddressList { is_dropped: true, ranges: found };
        let v6 = "fd00::-fd00:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        assert_eq!(shown(&list), format!("drop 0.0.0.1-0.0.0.1 10.0.0.0-10.0.1.255 {v6}"));
        assert_eq!(ranges(&endpoints(&["*"])), None);
        assert_eq!(ranges(&endpoints(&["unix"])), Some(Vec::new()));
    }

    #[test]
    fn who_is_decided_about_before_is_left_to_the_server() {
        let rules = vec![
            Rule { class: None, stop: true, ..rule(&["10.1.0.0/16"], None) },
            rule(&["10.2.0.0/16:1-9"], Some(Action::Drop)),
            Rule { when: When::Overload, ..rule(&["10.3.0.0/16"], Some(Action::Drop)) },
            rule(&["10.0.0.0/8", "fd00::/8"], Some(Action::Drop)),
            rule(&["unix"], Some(Action::Drop)),
            rule(&["192.0.2.0/24"], Some(Action::Reset)),
        ];
        let policy = Policy::new(&[], rules).unwrap();
        let (lists, left) = of(&policy);
        let lists: Vec<_> = lists.iter().map(shown).collect();
        let v6 = "fd00::-fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        assert_eq!(
            lists,
            [
                "leave 10.1.0.0-10.1.255.255",
                "leave 10.2.0.0-10.2.255.255",
                "leave 10.3.0.0-10.3.255.255",
                &format!("drop 10.0.0.0-10.255.255.255 {v6}"),
            ]
        );
        assert_eq!(left, None);
    }

    #[test]
    fn what_finds_no_room_is_left_with_all_behind_it() {
        let many: Vec<String> = (0..MOST_RANGES as u32)
            .map(|number| std::net::Ipv4Addr::from_bits(0x0a00_0000 + number * 2).to_string())
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let drop = Some(Action::Drop);
        let rules = vec![rule(&["192.0.2.1"], drop), rule(&many, drop), rule(&["192.0.2.2"], drop)];
        let (lists, left) = of(&Policy::new(&[], rules).unwrap());
        assert_eq!(lists.len(), 1);
        assert!(left.is_some_and(|name| name.starts_with("10.0.0.0 ")));
    }

    #[test]
    fn who_is_spared_is_left_to_the_server_before_every_rule() {
        let drop = Some(Action::Drop);
        let policy = || Policy::new(&[], vec![rule(&["10.0.0.0/8"], drop), rule(&["*"], drop)]);
        let mut spared = SparedClients::default();
        for block in ["10.0.0.5", "192.0.2.0/24", "2001:db8::7"] {
            spared.add(CidrBlock::parse(block).unwrap(), SparedAs::TrustedProxy);
        }
        let (lists, _) = of(&policy().unwrap().sparing(spared));
        let v6 = "2001:db8::7-2001:db8::7";
        let left = format!("leave 10.0.0.5-10.0.0.5 192.0.2.0-192.0.2.255 {v6}");
        let lists: Vec<_> = lists.iter().map(shown).collect();
        assert_eq!(lists, [&*left, "drop 10.0.0.0-10.255.255.255", "drop all"]);
        // a policy that drops nothing has no lists
        let policy = Policy::new(&[], vec![rule(&["10.0.0.0/8"], Some(Action::Reset))]).unwrap();
        let mut spared = SparedClients::default();
        spared.add(CidrBlock::parse("10.0.0.5").unwrap(), SparedAs::OwnAddress);
        assert!(of(&policy.sparing(spared)).0.is_empty());
    }

    /// Whether a firewall with these lists drops a SYN of this client.
    fn drops(lists: &[AddressList], client: IpAddr) -> bool {
        let holds = |list: &&AddressList| {
            list.ranges.as_ref().is_none_or(|ranges| {
                let is_in = |(first, last): &(IpAddr, IpAddr)| {
                    first.is_ipv4() == client.is_ipv4() && (*first..=*last).contains(&client)
                };
                ranges.iter().any(is_in)
            })
        };
        lists.iter().find(holds).is_some_and(|list| list.is_dropped)
    }

    proptest! {
        /// No client is dropped that the server would not drop.
        #[test]
        fn what_is_dropped_the_server_would_drop(
            rules in prop::collection::vec(
                (
                    prop::collection::vec((0u8..4, 28u8..=32, any::<bool>()), 0..3),
                    prop::option::of(0usize..4),
                    any::<bool>(),
                    0usize..3,
                    any::<bool>(),
                ),
                0..6,
            ),
            degree in 0u8..4,
        ) {
            let action = [Action::Drop, Action::Allow, Action::Reset, Action::Reject(403)];
            let when = [When::Always, When::Overload, When::From(Degree::CLASS_ORDER)];
            let mut made = Vec::new();
            for (number, (client, acts, stop, from, is_local)) in rules.into_iter().enumerate() {
                let client = client.into_iter().map(|(part, len, with_ports)| {
                    let ports = if with_ports { ":1-9" } else { "" };
                    let bits = 0x0a00_0000 | u32::from(part) << 2;
                    let network = bits >> (32 - len) << (32 - len);
                    let network = std::net::Ipv4Addr::from_bits(network);
                    Endpoint::parse(&format!("{network}/{len}{ports}")).unwrap()
                });
                let local = if is_local { endpoints(&["127.0.0.1"]) } else { Vec::new() };
                let conditions =
                    Conditions { client: client.collect(), local, ..Conditions::default() };
                let action = acts.map(|at| action[at]);
                let class = Some("one".to_owned());
                let (name, when) = (number.to_string(), when[from]);
                made.push(Rule { name, conditions, action, stop, when, class, ..Rule::default() });
            }
            let classes = [forebay_policy::class::Class::new("one", 0)];
            let policy = Policy::new(&classes, made).unwrap();
            let (lists, _) = of(&policy);
            for host in 0..20u32 {
                for port in [5, 4711] {
                    let client = std::net::Ipv4Addr::from_bits(0x0a00_0000 | host);
                    let ends = ConnectionFacts {
                        client: (client, port).into(),
                        local: "127.0.0.2:80".parse().unwrap(),
                    };
                    let decided = policy.connection(&ends, Degree::of(degree));
                    let rule = decided.action.and_then(|at| policy.rules().get(at as usize));
                    let would = rule.is_some_and(|rule| rule.action == Some(Action::Drop));
                    prop_assert!(would || !drops(&lists, client.into()), "{client}: {lists:?}");
                }
            }
        }
    }
}
