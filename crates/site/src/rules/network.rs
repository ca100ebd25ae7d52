//! Sets of addresses.

use forebay_http::cidr::{CidrBlock, CidrError};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// A set of addresses: `10.0.0.0/8`, `::1`, `all`, or `unix` for clients without an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    text: Box<str>,
    kind: NetworkKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NetworkKind {
    All,
    Unix,
    Block(CidrBlock),
}

impl Network {
    /// Reads an address, an address with the length of its prefix, `all` or `unix`. An IPv4 address in IPv6's
    /// form is IPv4.
    ///
    /// # Errors
    /// [`NetworkError`] for anything else, and for bits behind the prefix.
    pub fn parse(text: &str) -> Result<Network, NetworkError> {
        let kind = match text {
            "all" => NetworkKind::All,
            "unix" => NetworkKind::Unix,
            text => NetworkKind::Block(CidrBlock::parse(text)?),
        };
        Ok(Network { text: text.into(), kind })
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the set has addresses of other machines.
    pub fn has_others(&self) -> bool {
        match self.kind {
            NetworkKind::All => true,
            NetworkKind::Unix => false,
            NetworkKind::Block(block) => {
                !block.first().is_loopback() || !block.last().is_loopback()
            }
        }
    }

    /// Whether the set has all addresses of a family.
    pub fn has_everybody(&self) -> bool {
        match self.kind {
            NetworkKind::All => true,
            NetworkKind::Unix => false,
            NetworkKind::Block(block) => block.prefix_len() == 0,
        }
    }

    /// Whether some address is in both.
    pub fn overlaps(&self, other: &Network) -> bool {
        match (self.kind, other.kind) {
            (NetworkKind::All, _)
            | (_, NetworkKind::All)
            | (NetworkKind::Unix, NetworkKind::Unix) => true,
            (NetworkKind::Block(one), NetworkKind::Block(two)) => {
                one.surrounds(two) || two.surrounds(one)
            }
            _ => false,
        }
    }

    /// The blocks of addresses in it: none for `unix`, one for each family for `all`.
    pub fn blocks(&self) -> Vec<CidrBlock> {
        match self.kind {
            NetworkKind::All => vec![CidrBlock::ALL_IPV4, CidrBlock::ALL_IPV6],
            NetworkKind::Unix => Vec::new(),
            NetworkKind::Block(block) => vec![block],
        }
    }

    /// Whether the set is `unix`.
    pub fn is_unix(&self) -> bool {
        self.kind == NetworkKind::Unix
    }

    /// Whether the address is in the set. An IPv4 address in IPv6's form counts as IPv4; `0.0.0.0`
    /// is the address of a client on a Unix socket, and only `all` and `unix` hold it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_unix = address == IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        match (self.kind, address) {
            (NetworkKind::All, _) => true,
            (NetworkKind::Unix, _) => is_unix,
            (NetworkKind::Block(block), address) => !is_unix && block.holds(address),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The reason why a text is not a set of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkError(CidrError);

impl From<CidrError> for NetworkError {
    fn from(error: CidrError) -> NetworkError {
        NetworkError(error)
    }
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            CidrError::Address => f.write_str(
                "an address, a network like 10.0.0.0/8 or fd00::/8, \"all\" or \"unix\" is expected",
            ),
            error => error.fmt(f),
        }
    }
}

impl std::error::Error for NetworkError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_in_networks() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("::ffff:10.0.0.0/104", "10.1.1.1", true),
            ("::ffff:10.0.0.0/104", "::ffff:10.1.1.1", true),
            ("::ffff:10.0.0.0/104", "11.0.0.0", false),
            ("::ffff:127.0.0.1", "127.0.0.1", true),
            ("::ffff:0:0/96", "8.8.8.8", true),
            ("::ffff:0:0/96", "::1", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("0.0.0.0/0", "::1", false),
            ("0.0.0.0/0", "0.0.0.0", false),
            ("::/0", "::1", true),
            ("::/0", "8.8.8.8", false),
            ("fd00::/8", "fd12::1", true),
            ("all", "8.8.8.8", true),
            ("all", "0.0.0.0", true),
            ("unix", "0.0.0.0", true),
            ("unix", "127.0.0.1", false),
        ] {
            let network = Network::parse(network).unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), expected, "{network} {address}");
        }
    }

    #[test]
    fn networks_meet_if_one_holds_the_other() {
        for (one, other, expected) in [
            ("127.0.0.0/8", "127.0.0.2", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "10.0.0.7", true),
            ("0.0.0.0/0", "::/0", false),
            ("fd00::/8", "fd12::/16", true),
            ("fd00::/8", "::1", false),
            ("::ffff:10.0.0.0/104", "10.0.0.7", true),
            ("::/0", "::ffff:10.0.0.7", false),
            ("unix", "unix", true),
            ("unix", "127.0.0.0/8", false),
            ("all", "unix", true),
            ("all", "::1", true),
        ] {
            let (a, b) = (Network::parse(one).unwrap(), Network::parse(other).unwrap());
            assert_eq!((a.overlaps(&b), b.overlaps(&a)), (expected, expected), "{one} {other}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("10.0.0.1/8", "the address has bits behind the first 8; is 10.0.0.0/8 meant?"),
            (
                "localhost",
                "an address, a network like 10.0.0.0/8 or fd00::/8, \"all\" or \"unix\" is expected",
            ),
        ] {
            assert_eq!(Network::parse(text).unwrap_err().to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn a_network_holds_its_own_addresses(bits: u32, len in 0u32..=32, other: u32) {
            let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
            let text = format!("{}/{len}", Ipv4Addr::from(bits & mask));
            let network = Network::parse(&text).unwrap();
            prop_assert_eq!(network.to_string(), text);
            prop_assume!(bits != 0 && other != 0);
            prop_assert!(network.contains(IpAddr::V4(bits.into())));
            let shares = other & mask == bits & mask;
            prop_assert_eq!(network.contains(IpAddr::V4(other.into())), shares);
        }
    }
}
