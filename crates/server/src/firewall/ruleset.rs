//! The server's own table of nftables: its contents, and the JSON with which `nft` makes it.
//!
//! One transaction replaces the whole table, so packets meet the old one or the new one. Each rule
//! first asks whether the set `alive` has its one element, which expires unless it is renewed: a
//! table that outlives every process that could remove it has no effect any more after [`ALIVE_S`].

use forebay_http::client::ClientKey;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// How long the table is in force after it was last renewed, in seconds.
pub const ALIVE_S: u64 = 120;

/// The priority of our chains, before the tables of other programs, whose usual priority is 0. What
/// those drop stays dropped, and what they accept can still be dropped here.
const PRIORITY: i32 = -10;

const V4: &str = "clients4";
const V6: &str = "clients6";

/// The contents of the table, except for clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruleset {
    /// The table's name.
    pub table: String,
    /// The addresses at which connections are judged.
    pub listeners: Vec<SocketAddr>,
    /// The address lists, in the order in which they are tried.
    pub lists: Vec<AddressList>,
    /// The largest number of clients that are dropped at once.
    pub most_clients: u32,
}

/// A list of addresses, and what happens to SYNs from them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressList {
    /// Whether SYNs from the list are dropped; otherwise the server judges them.
    pub is_dropped: bool,
    /// Inclusive ranges that do not overlap, in ascending order, IPv4 before IPv6; `None` for every
    /// address.
    pub ranges: Option<Vec<(IpAddr, IpAddr)>>,
}

/// A client, and for how many seconds it is dropped, at least 1.
pub type Ban = (IpAddr, u64);

/// The address that stands for a client in a set: an IPv4 address, or the first of an IPv6 /64;
/// `None` for a program on a Unix socket.
pub fn client(address: IpAddr) -> Option<IpAddr> {
    match address.to_canonical() {
        ip if ip.is_unspecified() => None,
        IpAddr::V4(ip) => Some(ip.into()),
        ip => Some(Ipv6Addr::from_bits(u128::from(ClientKey::of(ip).as_u64()) << 64).into()),
    }
}

/// The document that makes the table anew, with these clients in it.
pub fn install(rules: &Ruleset, clients: &[Ban]) -> Value {
    let table = &rules.table;
    let mut commands = vec![
        // a table can be deleted only if it exists, so it is added first
        add("table", json!({"family": "inet", "name": table})),
        delete_table(table),
        add("table", json!({"family": "inet", "name": table})),
        set(table, "alive", "inet_proto", json!({"flags": ["timeout"]})),
    ];
    // expired elements count until the kernel has collected them
    let size = rules.most_clients.saturating_mul(2).max(2);
    for (name, kind) in [(V4, "ipv4_addr"), (V6, "ipv6_addr")] {
        commands.push(set(table, name, kind, json!({"flags": ["timeout"], "size": size})));
    }
    for name in ["clients", "listed"] {
        commands.push(add("counter", json!({"family": "inet", "table": table, "name": name})));
    }
    commands.push(add("chain", json!({"family": "inet", "table": table, "name": "judge"})));
    commands.push(add(
        "chain",
        json!({
            "family": "inet", "table": table, "name": "input", "type": "filter", "hook": "input",
            "prio": PRIORITY, "policy": "accept",
        }),
    ));
    let drop = |counter: &str| [json!({"counter": counter}), json!({"drop": null})];
    let mut judge = |mut expression: Vec<Value>, end: &[Value]| {
        expression.extend_from_slice(end);
        commands.push(rule(table, "judge", expression));
    };
    judge(vec![equal(payload("ip", "saddr"), json!(format!("@{V4}")))], &drop("clients"));
    let network = json!({"&": [payload("ip6", "saddr"), "ffff:ffff:ffff:ffff::"]});
    judge(vec![equal(network, json!(format!("@{V6}")))], &drop("clients"));
    let mut sets = Vec::new();
    for (number, list) in rules.lists.iter().enumerate() {
        let end = match list.is_dropped {
            true => drop("listed").to_vec(),
            // back to the input chain, which accepts: the server judges these addresses
            false => vec![json!({"return": null})],
        };
        let Some(ranges) = &list.ranges else {
            judge(Vec::new(), &end);
            continue;
        };
        for (is_v4, protocol, kind) in [(true, "ip", "ipv4_addr"), (false, "ip6", "ipv6_addr")] {
            let of_kind = ranges.iter().filter(|(first, _)| first.is_ipv4() == is_v4);
            let elements: Vec<Value> = of_kind.map(range).collect();
            if !elements.is_empty() {
                let name = format!("list{number}_{protocol}");
                let more = json!({"flags": ["interval"], "elem": elements});
                judge(vec![equal(payload(protocol, "saddr"), json!(format!("@{name}")))], &end);
                sets.push(set(table, &name, kind, more));
            }
        }
    }
    // sets come before the rules that name them
    let rules_from = commands.iter().position(|command| command["add"].get("rule").is_some());
    let at = rules_from.unwrap_or(commands.len());
    commands.splice(at..at, sets);
    for listener in &rules.listeners {
        let mut expression = vec![
            // the set holds the number of TCP while the table is renewed: one match checks both
            equal(json!({"meta": {"key": "l4proto"}}), json!("@alive")),
            equal(
                json!({"&": [payload("tcp", "flags"), ["fin", "syn", "rst", "ack"]]}),
                json!("syn"),
            ),
        ];
        expression.push(match listener.ip().to_canonical() {
            IpAddr::V4(ip) if ip.is_unspecified() => family("ipv4"),
            IpAddr::V6(ip) if ip.is_unspecified() => family("ipv6"),
            IpAddr::V4(ip) => equal(payload("ip", "daddr"), json!(ip.to_string())),
            IpAddr::V6(ip) => equal(payload("ip6", "daddr"), json!(ip.to_string())),
        });
        expression.push(equal(payload("tcp", "dport"), json!(listener.port())));
        expression.push(json!({"jump": {"target": "judge"}}));
        commands.push(rule(table, "input", expression));
    }
    commands.push(live(table));
    commands.extend(elements("add", table, clients));
    document(commands)
}

/// The document that has clients dropped: `fresh` are in no set; `again` may be, and get their new
/// time.
pub fn ban(table: &str, fresh: &[Ban], again: &[Ban]) -> Value {
    let mut commands: Vec<Value> = elements("add", table, fresh).collect();
    // an element that is added once more keeps its old time, and one can be deleted only if it
    // exists
    for verb in ["add", "delete", "add"] {
        commands.extend(elements(verb, table, again));
    }
    document(commands)
}

/// The document that keeps the table in force for another while, and takes its counters.
pub fn renew(table: &str) -> Value {
    let alive = json!({"set": {"family": "inet", "table": table, "name": "alive"}});
    document(vec![json!({"flush": alive}), live(table), counters(table)])
}

/// The document that takes and resets the table's counters. Listing them would have `nft` read all
/// sets first, which takes it 0.3 s where they hold 50,000 elements.
pub fn count(table: &str) -> Value {
    document(vec![counters(table)])
}

/// The document that removes the table.
pub fn remove(table: &str) -> Value {
    document(vec![delete_table(table)])
}

/// The document that lists a set of any table with its elements.
pub fn list_set(family: &str, table: &str, name: &str) -> Value {
    let of = json!({"family": family, "table": table, "name": name});
    document(vec![json!({"list": {"set": of}})])
}

/// The values of our counters in the output of `nft`: SYNs of clients, and of addresses in lists.
pub fn counted(said: &Value) -> Option<[u64; 2]> {
    let items = said.get("nftables")?.as_array()?;
    let packets = |name: &str| {
        let counters = items.iter().filter_map(|item| item.get("counter"));
        let mut found = counters.filter(|counter| counter.get("name").is_some_and(|n| n == name));
        found.next()?.get("packets")?.as_u64()
    };
    Some([packets("clients")?, packets("listed")?])
}

fn document(commands: Vec<Value>) -> Value {
    json!({ "nftables": commands })
}

fn add(what: &str, of: Value) -> Value {
    json!({"add": {what: of}})
}

fn delete_table(table: &str) -> Value {
    json!({"delete": {"table": {"family": "inet", "name": table}}})
}

fn set(table: &str, name: &str, kind: &str, more: Value) -> Value {
    let mut of = json!({"family": "inet", "table": table, "name": name, "type": kind});
    if let (Some(of), Value::Object(more)) = (of.as_object_mut(), more) {
        of.extend(more);
    }
    add("set", of)
}

fn rule(table: &str, chain: &str, expression: Vec<Value>) -> Value {
    add("rule", json!({"family": "inet", "table": table, "chain": chain, "expr": expression}))
}

fn payload(protocol: &str, field: &str) -> Value {
    json!({"payload": {"protocol": protocol, "field": field}})
}

fn equal(left: Value, right: Value) -> Value {
    json!({"match": {"op": "==", "left": left, "right": right}})
}

fn family(name: &str) -> Value {
    equal(json!({"meta": {"key": "nfproto"}}), json!(name))
}

fn range((first, last): &(IpAddr, IpAddr)) -> Value {
    match first == last {
        true => json!(first.to_string()),
        false => json!({"range": [first.to_string(), last.to_string()]}),
    }
}

fn live(table: &str) -> Value {
    let elements = json!([{"elem": {"val": "tcp", "timeout": ALIVE_S}}]);
    let of = json!({"family": "inet", "table": table, "name": "alive", "elem": elements});
    add("element", of)
}

/// Adds clients to their sets, or deletes them there.
fn elements(verb: &str, table: &str, clients: &[Ban]) -> impl Iterator<Item = Value> {
    let of = |name: &str, is_v4: bool| {
        let those = clients.iter().filter(|(ip, _)| ip.is_ipv4() == is_v4);
        let elements: Vec<Value> = those
            .map(|(ip, seconds)| match verb {
                "add" => json!({"elem": {"val": ip.to_string(), "timeout": seconds}}),
                _ => json!(ip.to_string()),
            })
            .collect();
        let of = json!({"family": "inet", "table": table, "name": name, "elem": elements});
        (!elements.is_empty()).then(|| json!({verb: {"element": of}}))
    };
    [of(V4, true), of(V6, false)].into_iter().flatten()
}

fn counters(table: &str) -> Value {
    json!({"reset": {"counters": {"family": "inet", "table": table}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_address_or_a_network_of_64_bits() {
        for (address, expected) in [
            ("192.0.2.7", Some("192.0.2.7")),
            ("::ffff:192.0.2.7", Some("192.0.2.7")),
            ("2001:db8:1:2:3:4:5:6", Some("2001:db8:1:2::")),
            ("0.0.0.0", None),
        ] {
            let expected = expected.map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(client(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn what_is_counted_is_found_among_what_nft_says() {
        let said = json!({"nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"counter": {"name": "clients", "packets": 3}},
            {"counter": {"name": "listed", "packets": 4}},
        ]});
        assert_eq!(counted(&said), Some([3, 4]));
        assert_eq!(counted(&json!({"nftables": []})), None);
        assert_eq!(counted(&Value::Null), None);
    }

    #[test]
    fn sets_come_before_the_rules_that_name_them() {
        let range = ("10.0.0.5".parse().unwrap(), "10.0.0.9".parse().unwrap());
        let rules = Ruleset {
            table: "t".to_owned(),
            listeners: vec!["0.0.0.0:80".parse().unwrap(), "[fd00::1]:80".parse().unwrap()],
            lists: vec![
                AddressList { is_dropped: false, ranges: Some(vec![range]) },
                AddressList { is_dropped: true, ranges: None },
            ],
            most_clients: 10,
        };
        let made = install(&rules, &[("192.0.2.1".parse().unwrap(), 5)]);
        let commands = made["nftables"].as_array().unwrap();
        let at = |what: &str| commands.iter().position(|one| one["add"].get(what).is_some());
        let last_set = commands.iter().rposition(|one| one["add"].get("set").is_some());
        assert!(last_set < at("rule"), "{made}");
        let text = made.to_string();
        for part in ["@list0_ip", "10.0.0.9", "192.0.2.1", "\"nfproto\"", "fd00::1"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("list0_ip6") && !text.contains("clients6\",\"elem"), "{text}");
    }
}
