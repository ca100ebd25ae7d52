//! Addresses and ports as conditions; two of them, for client and server, are voigt's four-tuple.

use forebay_http::cidr::{CidrBlock, CidrError, bits_of};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A set of addresses, with a range of ports:
///
/// | text | addresses and ports |
/// |---|---|
/// | `*` | everything |
/// | `10.1.1.0/24`, `192.0.2.7` | a network, an address; any port |
/// | `10.0.0.5-10.0.0.9` | a range of addresses, both ends in it; any port |
/// | `192.0.2.7:1024-2047`, `*:80` | with a range of ports, with one port |
/// | `2001:db8::/32`, `[2001:db8::]/32` | the same for IPv6; any port |
/// | `fd00::5-fd00::9`, `[fd00::5-fd00::9]` | a range; any port |
/// | `[2001:db8::1]:80`, `[2001:db8::]/32:80`, `[fd00::5-fd00::9]:80` | with a port an IPv6 address stands in brackets |
/// | `unix` | clients that came through a Unix socket |
///
/// An IPv4-mapped IPv6 address counts as IPv4. An unknown port is in no range.
#[derive(Clone, Debug)]
pub struct Endpoint {
    text: Box<str>,
    who: Who,
    ports: Option<(u16, u16)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Any,
    Nowhere,
    Unix,
    Block(CidrBlock),
    Range(AddressRange),
}

/// A range of addresses, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AddressRange {
    first: u128,
    last: u128,
    is_v4: bool,
}

/// The addresses of an [`Endpoint`], for callers that look them up in a form of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// All addresses.
    Any,
    /// No addresses.
    Nowhere,
    /// The client of a Unix socket, which has no address.
    Unix,
    /// Addresses that begin with the same bits.
    Network {
        /// The first address; an IPv4 address stands in `::ffff:0:0/96`.
        first: Ipv6Addr,
        /// How many bits are the same, including the 96 before an IPv4 address.
        len: u8,
        /// Whether the addresses are IPv4 rather than IPv6. A network never has both.
        is_v4: bool,
    },
    /// Addresses from one to another, both included.
    Range {
        /// The first address; an IPv4 address stands in `::ffff:0:0/96`.
        first: Ipv6Addr,
        /// The last address, not before the first.
        last: Ipv6Addr,
        /// Whether the addresses are IPv4 rather than IPv6. A range never has both.
        is_v4: bool,
    },
}

/// Whether this address stands for an end of a Unix socket: unspecified, with port 0.
#[inline]
pub(crate) fn is_unix(address: SocketAddr) -> bool {
    address.port() == 0 && address.ip() == IpAddr::V4(Ipv4Addr::UNSPECIFIED)
}

impl AddressRange {
    #[inline]
    fn holds(self, bits: u128, is_v4: bool) -> bool {
        is_v4 == self.is_v4 && (self.first..=self.last).contains(&bits)
    }

    /// The smallest network that contains the range.
    fn around(self) -> CidrBlock {
        CidrBlock::around(self.first, self.last, self.is_v4)
    }
}

impl Endpoint {
    /// Reads one of the forms above.
    ///
    /// # Errors
    /// [`EndpointError`] for any other text, and for bits set after a prefix.
    pub fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        let (address, ports) = split_ports(text)?;
        let ports = ports.map(parse_ports).transpose()?;
        let who = match address {
            "*" => Who::Any,
            "unix" if ports.is_none() => Who::Unix,
            address => match address.split_once('-') {
                Some((first, last)) => parse_range(first, last)?,
                None => Who::Block(parse_block(address)?),
            },
        };
        Ok(Endpoint { text: text.into(), who, ports })
    }

    /// The addresses of a block, with any port.
    pub fn of_block(block: CidrBlock) -> Endpoint {
        Endpoint { text: block.to_string().into(), who: Who::Block(block), ports: None }
    }

    /// The empty set, for a rule whose configured set of addresses is empty.
    pub fn nowhere() -> Endpoint {
        Endpoint { text: "nowhere".into(), who: Who::Nowhere, ports: None }
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the set contains the address and port. Port 0 is an unknown port; `0.0.0.0:0` stands for a
    /// Unix socket.
    #[inline]
    pub fn holds(&self, address: SocketAddr) -> bool {
        let holds_address = match self.who {
            Who::Any => true,
            Who::Nowhere => false,
            Who::Unix => is_unix(address),
            Who::Block(block) => block.holds(address.ip()) && !is_unix(address),
            Who::Range(range) => {
                let (bits, is_v4) = bits_of(address.ip());
                range.holds(bits, is_v4) && !is_unix(address)
            }
        };
        holds_address && self.holds_port(address.port())
    }

    #[inline]
    fn holds_port(&self, port: u16) -> bool {
        self.ports.is_none_or(|(first, last)| (first..=last).contains(&port))
    }

    /// The addresses of the set.
    pub fn addresses(&self) -> Addresses {
        match self.who {
            Who::Any => Addresses::Any,
            Who::Nowhere => Addresses::Nowhere,
            Who::Unix => Addresses::Unix,
            Who::Block(block) => {
                let first = Ipv6Addr::from_bits(block.bits());
                Addresses::Network { first, len: block.whole_len(), is_v4: block.is_ipv4() }
            }
            Who::Range(AddressRange { first, last, is_v4 }) => {
                let (first, last) = (Ipv6Addr::from_bits(first), Ipv6Addr::from_bits(last));
                Addresses::Range { first, last, is_v4 }
            }
        }
    }

    /// The ports of the set, first and last; `None` for all.
    pub fn ports(&self) -> Option<(u16, u16)> {
        self.ports
    }

    /// The network that contains all addresses of the set; `None` if the set has all addresses.
    pub(crate) fn block(&self) -> Option<CidrBlock> {
        match self.who {
            Who::Block(block) => Some(block),
            Who::Range(range) => Some(range.around()),
            Who::Any | Who::Nowhere | Who::Unix => None,
        }
    }

    /// Whether the set is smaller than that network with all ports.
    pub(crate) fn asks_more(&self) -> bool {
        self.ports.is_some() || matches!(self.who, Who::Range(_))
    }
}

/// Equality goes by addresses and ports, however they were written.
impl PartialEq for Endpoint {
    fn eq(&self, other: &Endpoint) -> bool {
        (self.who, self.ports) == (other.who, other.ports)
    }
}

impl Eq for Endpoint {}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Splits off the ports after the last colon, and removes brackets.
fn split_ports(text: &str) -> Result<(&str, Option<&str>), EndpointError> {
    if text.starts_with('[') {
        // `parse_block` reads the text in brackets again, without them
        let Some((_, rest)) = text.split_once(']') else { return Err(EndpointError::Bracket) };
        return match rest.find(':') {
            _ if rest.starts_with('-') => Err(EndpointError::Bracket),
            Some(at) => {
                let end = text.len() - rest.len() + at;
                Ok((&text[..end], Some(&text[end + 1..])))
            }
            None => Ok((text, None)),
        };
    }
    match text.split_once(':') {
        // more than one colon: an IPv6 address without a port
        Some((_, rest)) if rest.contains(':') => Ok((text, None)),
        Some((address, ports)) => Ok((address, Some(ports))),
        None => Ok((text, None)),
    }
}

/// Reads both ends of a range, which may have brackets around the whole.
fn parse_range(first: &str, last: &str) -> Result<Who, EndpointError> {
    let (first, last) = match (first.strip_prefix('['), last.strip_suffix(']')) {
        (Some(first), Some(last)) if first.contains(':') && last.contains(':') => (first, last),
        (None, None) => (first, last),
        _ => return Err(EndpointError::Bracket),
    };
    let address = |text: &str| text.parse().map_err(|_| EndpointError::Range);
    let ((first, is_v4), (last, is_last_v4)) = (bits_of(address(first)?), bits_of(address(last)?));
    if is_v4 != is_last_v4 {
        return Err(EndpointError::Families);
    }
    if first > last {
        return Err(EndpointError::BackwardsAddresses);
    }
    Ok(Who::Range(AddressRange { first, last, is_v4 }))
}

fn parse_ports(text: &str) -> Result<(u16, u16), EndpointError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (parse_port(first)?, parse_port(last)?);
    if first > last {
        return Err(EndpointError::Backwards { first, last });
    }
    Ok((first, last))
}

fn parse_port(text: &str) -> Result<u16, EndpointError> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| *port != 0 && is_digits);
    port.ok_or(EndpointError::Port)
}

/// Reads a network or an address; an IPv6 address may have brackets.
fn parse_block(text: &str) -> Result<CidrBlock, EndpointError> {
    let Some(rest) = text.strip_prefix('[') else { return Ok(CidrBlock::parse(text)?) };
    let (address, len) = rest.split_once(']').ok_or(EndpointError::Bracket)?;
    if address.parse::<Ipv6Addr>().is_err() || !(len.is_empty() || len.starts_with('/')) {
        return Err(EndpointError::Bracket);
    }
    Ok(CidrBlock::parse(&format!("{address}{len}"))?)
}

/// Why a text is not a set of addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointError {
    /// The text is not an address or a network.
    Block(CidrError),
    /// The text in brackets is not an IPv6 address.
    Bracket,
    /// The text is not two addresses with a dash between them.
    Range,
    /// One end of the range is IPv4, the other IPv6.
    Families,
    /// The range of addresses ends before it begins.
    BackwardsAddresses,
    /// The text after the colon is not a port.
    Port,
    /// The range of ports ends before it begins.
    Backwards {
        /// The first port.
        first: u16,
        /// The last port.
        last: u16,
    },
}

impl From<CidrError> for EndpointError {
    fn from(error: CidrError) -> EndpointError {
        EndpointError::Block(error)
    }
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndpointError::Block(CidrError::Address) => f.write_str(
                "an address, a network like 10.0.0.0/8 or fd00::/8, a range like 10.0.0.5-10.0.0.9, \"*\" or \
                 \"unix\" is expected, perhaps with ports as in 10.0.0.0/8:80 or [fd00::1]:1024-2047",
            ),
            EndpointError::Bracket => f.write_str(
                "between brackets stands an IPv6 address, as in [fd00::1]:80 or [fd00::]/8:80, or \
                 a range, as in [fd00::5-fd00::9]:80",
            ),
            EndpointError::Block(error) => error.fmt(f),
            EndpointError::Range => f.write_str(
                "a range is two addresses with a dash between them, as in 10.0.0.5-10.0.0.9",
            ),
            EndpointError::Families => {
                f.write_str("both ends of a range are IPv4 addresses, or both IPv6 addresses")
            }
            EndpointError::BackwardsAddresses => {
                f.write_str("the range of addresses ends before it begins")
            }
            EndpointError::Port => f.write_str(
                "behind the colon stands a port from 1 to 65535, or two as in 1024-2047",
            ),
            EndpointError::Backwards { first, last } => {
                write!(f, "the range of ports ends before it begins; is {last}-{first} meant?")
            }
        }
    }
}

impl std::error::Error for EndpointError {}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_http::cidr::mask;
    use proptest::prelude::*;

    #[test]
    fn addresses_and_ports_are_held() {
        for (endpoint, address, expected) in [
            ("*", "8.8.8.8:53", true),
            ("*", "0.0.0.0:0", true),
            ("*:80", "8.8.8.8:80", true),
            ("*:80", "8.8.8.8:81", false),
            ("*:80", "[::1]:80", true),
            ("10.1.1.0/24", "10.1.1.255:9", true),
            ("10.1.1.0/24", "10.1.2.0:9", false),
            ("10.1.1.0/24", "[::ffff:10.1.1.7]:9", true),
            ("192.0.2.7:1024-2047", "192.0.2.7:1024", true),
            ("192.0.2.7:1024-2047", "192.0.2.7:2047", true),
            ("192.0.2.7:1024-2047", "192.0.2.7:2048", false),
            ("192.0.2.7:1024-2047", "192.0.2.7:0", false),
            ("192.0.2.7:1024-2047", "192.0.2.8:1024", false),
            ("2001:db8::/32", "[2001:db8:1::1]:9", true),
            ("[2001:db8::]/32", "[2001:db9::1]:9", false),
            ("[2001:db8::]/32:80", "[2001:db8::1]:80", true),
            ("[2001:db8::]/32:80", "[2001:db8::1]:81", false),
            ("[2001:db8::1]:80", "[2001:db8::1]:80", true),
            ("0.0.0.0/0", "8.8.8.8:0", true),
            ("0.0.0.0/0", "[::1]:1", false),
            ("0.0.0.0/0", "0.0.0.0:0", false),
            ("0.0.0.0/0:80", "0.0.0.0:80", true),
            ("::/0", "[::1]:1", true),
            ("::/0", "8.8.8.8:1", false),
            ("::ffff:10.0.0.0/104", "10.1.1.1:1", true),
            ("10.0.0.5-10.0.0.9", "10.0.0.4:1", false),
            ("10.0.0.5-10.0.0.9", "10.0.0.5:1", true),
            ("10.0.0.5-10.0.0.9", "10.0.0.9:1", true),
            ("10.0.0.5-10.0.0.9", "[::ffff:10.0.0.9]:1", true),
            ("10.0.0.5-10.0.0.9", "10.0.0.10:1", false),
            ("10.0.0.5-10.0.0.9:80", "10.0.0.7:80", true),
            ("10.0.0.5-10.0.0.9:80-90", "10.0.0.7:91", false),
            ("0.0.0.0-255.255.255.255", "0.0.0.0:0", false),
            ("fd00::5-fd00::9", "[fd00::7]:1", true),
            ("fd00::5-fd00::9", "[fd00::a]:1", false),
            ("[fd00::5-fd00::9]", "[fd00::9]:1", true),
            ("[fd00::5-fd00::9]:80", "[fd00::9]:81", false),
            ("::-ffff::", "8.8.8.8:1", false),
            ("unix", "0.0.0.0:0", true),
            ("unix", "0.0.0.0:80", false),
        ] {
            let endpoint = Endpoint::parse(endpoint).unwrap();
            assert_eq!(endpoint.holds(address.parse().unwrap()), expected, "{endpoint} {address}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("10.0.0.1/8", "the address has bits behind the first 8; is 10.0.0.0/8 meant?"),
            ("[fd00::1]/16", "the address has bits behind the first 16; is fd00::/16 meant?"),
            ("10.0.0.0/33", "behind / stands how many bits count, from 0 to 32"),
            ("::/+8", "behind / stands how many bits count, from 0 to 128"),
            ("10.0.0.9-10.0.0.5", "the range of addresses ends before it begins"),
            ("10.0.0.9-fd00::1", "both ends of a range are IPv4 addresses, or both IPv6 addresses"),
            (
                "10.0.0.1-9",
                "a range is two addresses with a dash between them, as in 10.0.0.5-10.0.0.9",
            ),
            ("*:0", "behind the colon stands a port from 1 to 65535, or two as in 1024-2047"),
            ("*:+1", "behind the colon stands a port from 1 to 65535, or two as in 1024-2047"),
            ("*:", "behind the colon stands a port from 1 to 65535, or two as in 1024-2047"),
            ("*:9-1", "the range of ports ends before it begins; is 1-9 meant?"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
        for text in ["", "localhost", "10.0.0", "a:80", "unix:80", "**"] {
            assert_eq!(
                Endpoint::parse(text),
                Err(EndpointError::Block(CidrError::Address)),
                "{text}"
            );
        }
        for text in [
            "[",
            "[::1",
            "[::1]x",
            "[10.0.0.1]:80",
            "[::1]8:80",
            "[a]",
            "[fd00::1]-[fd00::2]",
            "[fd00::1-fd00::2",
        ] {
            assert_eq!(Endpoint::parse(text), Err(EndpointError::Bracket), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_network_holds_its_own_addresses(bits: u128, len in 0u8..=128, other: u128, port: u16) {
            let meant = Ipv6Addr::from_bits(bits & mask(len));
            let endpoint = Endpoint::parse(&format!("[{meant}]/{len}")).unwrap();
            let other = Ipv6Addr::from_bits(other & !mask(len) | bits & mask(len));
            prop_assume!(other.to_ipv4_mapped().is_none());
            prop_assert!(endpoint.holds(SocketAddr::from((other, port))));
        }

        #[test]
        fn nothing_is_read_that_panics(text in "[0-9a-f:.*/\\[\\]ux-]{0,24}") {
            if let Ok(endpoint) = Endpoint::parse(&text) {
                prop_assert_eq!(endpoint.as_str(), text);
            }
        }
    }
}
