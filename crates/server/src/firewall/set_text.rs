//! Parses a set of addresses as `nft` prints it into the networks in it.

use forebay_http::cidr::CidrBlock;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The largest number of networks in a set; a larger set is an error.
const MOST_NETWORKS: usize = 65_536;

/// The networks of a set that `nft -j list set` has printed, by their first address and prefix
/// length. The kernel does not list expired elements.
///
/// # Errors
/// Which element is no address, or that there are too many networks.
pub(super) fn networks(said: &Value) -> Result<Vec<(IpAddr, u8)>, String> {
    let items = said.get("nftables").and_then(Value::as_array);
    let set = items.into_iter().flatten().find_map(|item| item.get("set"));
    let set = set.ok_or("nft lists no such set")?;
    if let Some(kind) = set.get("type").filter(|kind| !is_of_addresses(kind)) {
        return Err(format!("it holds {}, not addresses", named(kind)));
    }
    // each once and in order, so that a set that is read again can be compared
    let mut found = BTreeSet::new();
    for element in set.get("elem").and_then(Value::as_array).into_iter().flatten() {
        let blocks =
            blocks(element).ok_or_else(|| format!("{element} in it is no address or network"))?;
        found.extend(blocks.into_iter().map(|block| (block.first(), block.prefix_len())));
        if found.len() > MOST_NETWORKS {
            return Err(format!("it holds more than {MOST_NETWORKS} networks"));
        }
    }
    Ok(found.into_iter().collect())
}

/// Whether elements of this type can be addresses. For a `typeof`, each element shows it.
fn is_of_addresses(kind: &Value) -> bool {
    match kind {
        Value::String(name) => matches!(&**name, "ipv4_addr" | "ipv6_addr"),
        // the "typeof" of newer nft versions
        Value::Object(_) => true,
        _ => false,
    }
}

fn named(kind: &Value) -> String {
    match kind {
        Value::String(name) => name.clone(),
        Value::Array(parts) => parts.iter().map(named).collect::<Vec<_>>().join(" . "),
        other => other.to_string(),
    }
}

/// The networks of an element: an address, a network, a range, or one of these with a time, a
/// counter or a comment. IPv6 addresses that stand for IPv4 ones are left out: no packet has such a
/// source, and the blocks of a policy would take them for IPv4 addresses.
fn blocks(element: &Value) -> Option<Vec<CidrBlock>> {
    let address = |value: &Value| value.as_str()?.parse::<IpAddr>().ok();
    let is_mapped = |ip: IpAddr| ip.is_ipv6() && ip.to_canonical().is_ipv4();
    if let Some(address) = address(element) {
        return Some(if is_mapped(address) { Vec::new() } else { vec![CidrBlock::of(address)] });
    }
    if let Some(more) = element.get("elem") {
        return blocks(more.get("val")?);
    }
    if let Some(network) = element.get("prefix") {
        let len = network.get("len")?.as_u64()?.try_into().ok()?;
        let first = address(network.get("addr")?)?;
        if is_mapped(first) {
            return Some(Vec::new());
        }
        return Some(vec![CidrBlock::new(first, len).ok()?]);
    }
    let [first, last] = element.get("range")?.as_array()?.as_slice() else { return None };
    let (first, last) = (address(first)?, address(last)?);
    if is_mapped(first) && is_mapped(last) {
        return Some(Vec::new());
    }
    Some(CidrBlock::between(first, last)).filter(|blocks| !blocks.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(kind: Value, elements: Value) -> Value {
        json!({"nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"set": {"family": "inet", "name": "b", "table": "t", "type": kind, "elem": elements}},
        ]})
    }

    fn texts(said: &Value) -> Result<Vec<String>, String> {
        Ok(networks(said)?.iter().map(|(ip, len)| format!("{ip}/{len}")).collect())
    }

    #[test]
    fn addresses_networks_and_ranges_are_networks() {
        let elements = json!([
            "192.0.2.7",
            {"elem": {"val": "192.0.2.8", "timeout": 60, "expires": 3}},
            {"prefix": {"addr": "10.0.0.0", "len": 8}},
            {"elem": {"val": {"range": ["192.0.2.16", "192.0.2.18"]}, "comment": "few"}},
            "192.0.2.7",
        ]);
        let expected =
            ["10.0.0.0/8", "192.0.2.7/32", "192.0.2.8/32", "192.0.2.16/31", "192.0.2.18/32"];
        assert_eq!(texts(&set(json!("ipv4_addr"), elements)).unwrap(), expected);
        let elements = json!(["fd00::1", {"prefix": {"addr": "2001:db8::", "len": 32}}]);
        let newer = json!({"typeof": {"payload": {"protocol": "ip6", "field": "saddr"}}});
        for kind in [json!("ipv6_addr"), newer] {
            let found = texts(&set(kind, elements.clone())).unwrap();
            assert_eq!(found, ["2001:db8::/32", "fd00::1/128"]);
        }
        assert!(texts(&set(json!("ipv4_addr"), Value::Null)).unwrap().is_empty());
        // such addresses occur in lists of bogus sources
        let mapped = json!([
            {"prefix": {"addr": "::ffff:0:0", "len": 96}},
            "::ffff:192.0.2.1",
            {"range": ["::ffff:192.0.2.1", "::ffff:192.0.2.9"]},
            "2001:db8::1",
        ]);
        assert_eq!(texts(&set(json!("ipv6_addr"), mapped)).unwrap(), ["2001:db8::1/128"]);
    }

    #[test]
    fn what_is_no_address_is_named() {
        let why = |kind, elements| texts(&set(kind, elements)).unwrap_err();
        assert_eq!(why(json!("inet_service"), json!([80])), "it holds inet_service, not addresses");
        assert_eq!(
            why(json!(["ipv4_addr", "inet_service"]), json!([])),
            "it holds ipv4_addr . inet_service, not addresses"
        );
        let newer = json!({"typeof": {"payload": {"protocol": "tcp", "field": "dport"}}});
        assert_eq!(why(newer, json!([80])), "80 in it is no address or network");
        assert_eq!(texts(&json!({})).unwrap_err(), "nft lists no such set");
        let address = |number: u32| json!(std::net::Ipv4Addr::from_bits(number).to_string());
        let many = |count: u32| json!((0..count).map(address).collect::<Vec<_>>());
        assert_eq!(texts(&set(json!("ipv4_addr"), many(65_536))).unwrap().len(), 65_536);
        let error = why(json!("ipv4_addr"), many(65_537));
        assert_eq!(error, "it holds more than 65536 networks");
    }
}
