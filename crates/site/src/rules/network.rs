//! Sets of addresses.

use ipnet::IpNet;
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
    Prefix(IpNet),
}

impl Network {
    /// Reads an address, an address with the length of its prefix, `all` or `unix`.
    ///
    /// # Errors
    /// [`NetworkError`] for anything else, and for bits behind the prefix.
    pub fn parse(text: &str) -> Result<Network, NetworkError> {
        let kind = match text {
            "all" => NetworkKind::All,
            "unix" => NetworkKind::Unix,
            text => parse_prefix(text)?,
        };
        Ok(Network { text: text.into(), kind })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it has addresses of other machines.
    pub fn has_others(&self) -> bool {
        match self.kind {
            NetworkKind::All => true,
            NetworkKind::Unix => false,
            NetworkKind::Prefix(prefix) => {
                !prefix.addr().is_loopback() || !prefix.broadcast().is_loopback()
            }
        }
    }

    /// Whether some address is in both.
    pub fn overlaps(&self, other: &Network) -> bool {
        match (self.kind, other.kind) {
            (NetworkKind::All, _)
            | (_, NetworkKind::All)
            | (NetworkKind::Unix, NetworkKind::Unix) => true,
            (NetworkKind::Prefix(one), NetworkKind::Prefix(two)) => {
                one.contains(&two) || two.contains(&one)
            }
            _ => false,
        }
    }

    /// Whether it is `unix`.
    pub fn is_unix(&self) -> bool {
        self.kind == NetworkKind::Unix
    }

    /// Whether the address is in it. An IPv4 address in IPv6's form counts as IPv4; `0.0.0.0` is
    /// what a client on a Unix socket has, and only `all` and `unix` hold it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_unix = address == IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        match (self.kind, address) {
            (NetworkKind::All, _) => true,
            (NetworkKind::Unix, _) => is_unix,
            (NetworkKind::Prefix(prefix), address) => !is_unix && prefix.contains(&address),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn parse_prefix(text: &str) -> Result<NetworkKind, NetworkError> {
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| NetworkError::Address)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let len = match len {
        None => most,
        Some(digits) => {
            let is_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
            let len = digits.parse().ok().filter(|len| *len <= most && is_digits);
            len.ok_or(NetworkError::Length { most })?
        }
    };
    let prefix = IpNet::new(address, len).map_err(|_| NetworkError::Length { most })?;
    if prefix.network() != address {
        return Err(NetworkError::Bits { meant: prefix.network(), len });
    }
    Ok(NetworkKind::Prefix(prefix))
}

/// Why a text is not a set of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkError {
    /// Not an address.
    Address,
    /// Not the length of a prefix.
    Length {
        /// The longest.
        most: u8,
    },
    /// The address has bits behind the prefix.
    Bits {
        /// The address without them.
        meant: IpAddr,
        /// The length of the prefix.
        len: u8,
    },
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkError::Address => f.write_str(
                "an address, a network like 10.0.0.0/8 or fd00::/8, \"all\" or \"unix\" is expected",
            ),
            NetworkError::Length { most } => {
                write!(f, "behind / stands how many bits count, from 0 to {most}")
            }
            NetworkError::Bits { meant, len } => {
                write!(f, "the address has bits behind the first {len}; is {meant}/{len} meant?")
            }
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
            ("fd00::1/16", "the address has bits behind the first 16; is fd00::/16 meant?"),
            ("10.0.0.0/33", "behind / stands how many bits count, from 0 to 32"),
            ("::/+8", "behind / stands how many bits count, from 0 to 128"),
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
