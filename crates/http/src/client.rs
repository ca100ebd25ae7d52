//! The unit that counts as one client: an IPv4 address or an IPv6 /64, everywhere in Forebay.
//!
//! Limits and turns are per client. A client with an IPv6 connection has at least a /64 (RFC 6177
//! §2), and could otherwise appear as as many clients as that has addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The bits before an IPv4 address: the upper half of the lower half of `::ffff:a.b.c.d`.
const V4: u64 = 0xffff << 32;

/// A client: the part that all of its addresses have in common. An address of the form
/// `::ffff:a.b.c.d` is IPv4. A program that connects through a Unix socket is `0.0.0.0`.
///
/// The key is one word, so that tables and queues of clients stay small. For that, the networks in
/// `0:ffff::/32` share it with the IPv4 addresses; they are reserved (RFC 4291 §2.4), and no client
/// has one.
///
/// ```
/// use forebay_http::client::ClientKey;
/// use std::net::IpAddr;
///
/// let client = |text: &str| ClientKey::of(text.parse::<IpAddr>().unwrap());
/// assert_eq!(client("192.0.2.7"), client("::ffff:192.0.2.7"));
/// assert_eq!(client("2001:db8:1:2::7"), client("2001:db8:1:2:ffff::9"));
/// assert_ne!(client("2001:db8:1:2::7"), client("2001:db8:1:3::7"));
/// assert_eq!(client("2001:db8:1:2::7").to_string(), "2001:db8:1:2::/64");
/// assert_eq!(client("192.0.2.7").to_string(), "192.0.2.7");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(u64);

impl ClientKey {
    /// The client that has this address.
    #[inline]
    pub fn of(address: IpAddr) -> ClientKey {
        ClientKey(match address.to_canonical() {
            IpAddr::V4(ip) => V4 | u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
        })
    }

    /// The key as one word, for queues and hashes: equal for the same client, different for
    /// different ones. Its lowest bits differ most.
    #[inline]
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// The client with [this word](ClientKey::as_u64).
    pub fn from_u64(word: u64) -> ClientKey {
        ClientKey(word)
    }
}

impl fmt::Display for ClientKey {
    /// Writes the IPv4 address, or the IPv6 network with its length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >> 32 == V4 >> 32 {
            Ipv4Addr::from_bits(self.0 as u32).fmt(f)
        } else {
            write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(self.0) << 64))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whether two addresses are one client, computed in another way.
    fn is_one(a: IpAddr, b: IpAddr) -> bool {
        match (a.to_canonical(), b.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => a == b,
            (IpAddr::V6(a), IpAddr::V6(b)) => a.segments()[..4] == b.segments()[..4],
            _ => false,
        }
    }

    fn address() -> impl Strategy<Value = IpAddr> {
        // few of each, so that some are one client
        let v4 = (0u32..3).prop_map(|ip| Ipv4Addr::from_bits(0xc000_0200 + ip));
        let network = prop_oneof![0u64..3, 0x2001_0db8_0000_0000..0x2001_0db8_0000_0003u64];
        let v6 = (network, prop_oneof![0u64..3, any::<u64>()])
            .prop_map(|(network, host)| u128::from(network) << 64 | u128::from(host));
        prop_oneof![
            v4.clone().prop_map(IpAddr::V4),
            v4.prop_map(|ip| IpAddr::V6(ip.to_ipv6_mapped())),
            v6.prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
            any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
            any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
        ]
    }

    proptest! {
        #[test]
        fn one_key_is_one_client(a in address(), b in address()) {
            let is_reserved =
                |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.segments()[..2] == [0, 0xffff]);
            prop_assume!(!is_reserved(a) && !is_reserved(b));
            let keys = [a, b].map(ClientKey::of);
            prop_assert_eq!(keys[0] == keys[1], is_one(a, b), "{} {}", a, b);
            prop_assert_eq!(keys[0].as_u64() == keys[1].as_u64(), is_one(a, b));
            prop_assert_eq!(keys[0].to_string() == keys[1].to_string(), is_one(a, b));
        }

        /// A client is shown as one of its addresses.
        #[test]
        fn a_client_is_shown_as_an_address_of_it(a in address()) {
            let shown = ClientKey::of(a).to_string();
            let first: IpAddr = shown.strip_suffix("/64").unwrap_or(&shown).parse().unwrap();
            prop_assert_eq!(ClientKey::of(first), ClientKey::of(a));
        }
    }

    #[test]
    fn loopback_and_unix_sockets_are_clients_of_their_own() {
        let client = |text: &str| ClientKey::of(text.parse().unwrap());
        assert_eq!(client("0.0.0.0").to_string(), "0.0.0.0");
        assert_eq!(client("::1").to_string(), "::/64");
        assert_ne!(client("0.0.0.0"), client("::1"));
    }
}
