//! Networks of addresses (CIDR, RFC 4632), as every setting and command writes them.
//!
//! A socket for both families shows an IPv4 client as `::ffff:a.b.c.d` (RFC 4291 §2.5.5.2), and
//! people copy that into their rules. So an address in that form is IPv4, wherever it is written
//! and wherever it comes from.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The number of bits before an IPv4 address within an IPv6 address.
const V4_LEN: u8 = 96;

/// Addresses of one family that begin with the same bits: `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.7`.
///
/// ```
/// use forebay_http::cidr::CidrBlock;
///
/// let written = CidrBlock::parse("::ffff:10.0.0.0/104").unwrap();
/// assert_eq!(written, CidrBlock::parse("10.0.0.0/8").unwrap());
/// assert!(written.holds("10.1.1.1".parse().unwrap()));
/// assert!(written.holds("::ffff:10.1.1.1".parse().unwrap()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CidrBlock {
    /// The bits of the first address; an IPv4 address is in `::ffff:0:0/96`.
    bits: u128,
    /// The number of bits that count, including those before an IPv4 address.
    len: u8,
    is_v4: bool,
}

/// An address as 128 bits, and whether it is IPv4. IPv4 addresses are those of `::ffff:0:0/96`.
#[inline]
pub fn bits_of(address: IpAddr) -> (u128, bool) {
    match address.to_canonical() {
        IpAddr::V4(address) => (address.to_ipv6_mapped().to_bits(), true),
        IpAddr::V6(address) => (address.to_bits(), false),
    }
}

/// The address in the notation of its own family.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        // an IPv6 address keeps its zone
        IpAddr::V6(_) => address,
        ip => SocketAddr::new(ip, address.port()),
    }
}

/// The first `len` of 128 bits.
#[inline]
pub fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

/// The smallest set of prefixes that have all numbers of 128 bits from `first` to `last` and no
/// others: the bits of each, and how many count.
pub fn prefixes_between(first: u128, last: u128) -> Vec<(u128, u8)> {
    let (mut parts, mut next) = (Vec::new(), Some(first));
    while let Some(first) = next.filter(|first| *first <= last) {
        // the largest prefix that begins there and does not end too late
        let fits = |len: &u8| first & !mask(*len) == 0 && !mask(*len) <= last - first;
        let len = (0..=128).find(fits).unwrap_or(128);
        parts.push((first, len));
        next = (first | !mask(len)).checked_add(1);
    }
    parts
}

impl CidrBlock {
    /// The smallest set of blocks that have all addresses from `first` to `last`, both included;
    /// none if the two are not of one family, or in the wrong order.
    pub fn between(first: IpAddr, last: IpAddr) -> Vec<CidrBlock> {
        let ((first, is_v4), (last, is_last_v4)) = (bits_of(first), bits_of(last));
        if is_v4 != is_last_v4 {
            return Vec::new();
        }
        let parts = prefixes_between(first, last).into_iter();
        parts.map(|(bits, len)| CidrBlock { bits, len, is_v4 }).collect()
    }

    /// Reads an address, or an address, `/` and how many bits count.
    ///
    /// # Errors
    /// [`CidrError`] for anything else, for bits after those that count, and for a prefix that has
    /// more than all of IPv4 when the address is IPv4 in IPv6's form.
    pub fn parse(text: &str) -> Result<CidrBlock, CidrError> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| CidrError::Address)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => most,
            Some(digits) => {
                let is_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
                let len = digits.parse().ok().filter(|_| is_digits);
                len.ok_or(CidrError::Length { most })?
            }
        };
        CidrBlock::new(address, len)
    }

    /// The addresses whose first `len` bits are those of `address`, in the form in which it is
    /// written: 96 bits come before an IPv4 address in IPv6's form.
    ///
    /// # Errors
    /// The errors of [`CidrBlock::parse`].
    pub fn new(address: IpAddr, len: u8) -> Result<CidrBlock, CidrError> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        if len > most {
            return Err(CidrError::Length { most });
        }
        let (bits, is_v4) = bits_of(address);
        let whole_len = if address.is_ipv4() { len + V4_LEN } else { len };
        if is_v4 && whole_len < V4_LEN {
            return Err(CidrError::Mapped { len });
        }
        let kept = bits & mask(whole_len);
        if kept != bits {
            let meant = Ipv6Addr::from_bits(kept);
            let meant = if address.is_ipv4() { meant.to_canonical() } else { meant.into() };
            return Err(CidrError::Bits { meant, len });
        }
        Ok(CidrBlock { bits, len: whole_len, is_v4 })
    }

    /// All of IPv4.
    pub const ALL_IPV4: CidrBlock = CidrBlock {
        bits: Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().to_bits(),
        len: V4_LEN,
        is_v4: true,
    };
    /// All of IPv6.
    pub const ALL_IPV6: CidrBlock = CidrBlock { bits: 0, len: 0, is_v4: false };

    /// The block of this address alone.
    pub fn of(address: IpAddr) -> CidrBlock {
        let (bits, is_v4) = bits_of(address);
        CidrBlock { bits, len: 128, is_v4 }
    }

    /// The smallest block with both of these addresses, given as by [`bits_of`]; they are of one
    /// family.
    pub fn around(first: u128, last: u128, is_v4: bool) -> CidrBlock {
        let len = (first ^ last).leading_zeros() as u8;
        CidrBlock { bits: first & mask(len), len, is_v4 }
    }

    /// Whether the address is in the block.
    #[inline]
    pub fn holds(self, address: IpAddr) -> bool {
        let (bits, is_v4) = bits_of(address);
        self.holds_bits(bits, is_v4)
    }

    /// Whether the address that [`bits_of`] has turned into these bits is in the block.
    #[inline]
    pub fn holds_bits(self, bits: u128, is_v4: bool) -> bool {
        is_v4 == self.is_v4 && bits & mask(self.len) == self.bits
    }

    /// Whether all addresses of the other block are in this one.
    pub fn surrounds(self, inner: CidrBlock) -> bool {
        self.len <= inner.len && self.holds_bits(inner.bits, inner.is_v4)
    }

    /// Whether the 128 bits alone show that an address is in the block. They do not for a part of
    /// IPv6 that has `::ffff:0:0/96` in it, which is the place of IPv4.
    pub fn is_pure(self) -> bool {
        let place_of_ipv4 = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().to_bits();
        self.is_v4 || place_of_ipv4 & mask(self.len) != self.bits
    }

    /// Whether the block is of IPv4 addresses, or of IPv6 addresses. It never has both.
    pub fn is_ipv4(self) -> bool {
        self.is_v4
    }

    /// The bits of the first address; an IPv4 address is in `::ffff:0:0/96`.
    pub fn bits(self) -> u128 {
        self.bits
    }

    /// The number of those bits that count, from 0 to 128: for IPv4 from 96.
    pub fn whole_len(self) -> u8 {
        self.len
    }

    /// The number of bits of an address of its family that count: from 0 to 32 for IPv4, to 128 for
    /// IPv6.
    pub fn prefix_len(self) -> u8 {
        if self.is_v4 { self.len - V4_LEN } else { self.len }
    }

    /// The first address.
    pub fn first(self) -> IpAddr {
        self.address(self.bits)
    }

    /// The last address.
    pub fn last(self) -> IpAddr {
        self.address(self.bits | !mask(self.len))
    }

    fn address(self, bits: u128) -> IpAddr {
        match self.is_v4 {
            true => Ipv4Addr::from_bits(bits as u32).into(),
            false => Ipv6Addr::from_bits(bits).into(),
        }
    }
}

impl fmt::Display for CidrBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first(), self.prefix_len())
    }
}

/// The reason why a text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CidrError {
    /// The text is not an address.
    Address,
    /// The prefix has no valid length.
    Length {
        /// The longest valid length.
        most: u8,
    },
    /// The block has more than all of IPv4, but is written with an IPv4 address in IPv6's form.
    Mapped {
        /// The length of the prefix.
        len: u8,
    },
    /// The address has bits after the prefix.
    Bits {
        /// The address without them.
        meant: IpAddr,
        /// The length of the prefix.
        len: u8,
    },
}

impl fmt::Display for CidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CidrError::Address => f.write_str(
                "an address or a network is expected, such as 192.0.2.7, 192.0.2.0/24 or 2001:db8::/64",
            ),
            CidrError::Length { most } => {
                write!(f, "behind / stands how many bits count, from 0 to {most}")
            }
            CidrError::Mapped { len } => {
                write!(f, "/{len} with an IPv4 address in IPv6's form holds more than all of IPv4")?;
                match len {
                    0..=32 => write!(f, "; write the IPv4 address with /{len}, or /{} here", len + V4_LEN),
                    _ => write!(f, "; from /{V4_LEN} to /128 is possible here"),
                }
            }
            CidrError::Bits { meant, len } => {
                write!(f, "the address has bits behind the first {len}; is {meant}/{len} meant?")
            }
        }
    }
}

impl std::error::Error for CidrError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_range_is_the_fewest_blocks() {
        let between = |first: &str, last: &str| {
            let blocks = CidrBlock::between(first.parse().unwrap(), last.parse().unwrap());
            blocks.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let few = between("10.0.0.5", "10.0.0.9");
        assert_eq!(few, ["10.0.0.5/32", "10.0.0.6/31", "10.0.0.8/31"]);
        assert_eq!(between("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(between("fd00::", "fd00::ffff"), ["fd00::/112"]);
        assert_eq!(between("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["::/0"]);
        assert!(
            between("10.0.0.9", "10.0.0.5").is_empty() && between("10.0.0.1", "::1").is_empty()
        );
        assert_eq!(prefixes_between(7, 7), [(7, 128)]);
        assert_eq!(prefixes_between(1, u128::MAX - 1).len(), 254);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("10.0.0.1/8", "the address has bits behind the first 8; is 10.0.0.0/8 meant?"),
            ("fd00::1/16", "the address has bits behind the first 16; is fd00::/16 meant?"),
            (
                "::ffff:10.0.0.1/104",
                "the address has bits behind the first 104; is ::ffff:10.0.0.0/104 meant?",
            ),
            ("10.0.0.0/33", "behind / stands how many bits count, from 0 to 32"),
            ("::ffff:10.0.0.0/129", "behind / stands how many bits count, from 0 to 128"),
            ("::/+8", "behind / stands how many bits count, from 0 to 128"),
            ("::/999", "behind / stands how many bits count, from 0 to 128"),
            ("::/", "behind / stands how many bits count, from 0 to 128"),
            (
                "::ffff:10.0.0.0/8",
                "/8 with an IPv4 address in IPv6's form holds more than all of IPv4; write the IPv4 \
                 address with /8, or /104 here",
            ),
            (
                "::ffff:0:0/95",
                "/95 with an IPv4 address in IPv6's form holds more than all of IPv4; from /96 to /128 \
                 is possible here",
            ),
        ] {
            assert_eq!(CidrBlock::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
        for text in
            ["", "localhost", "10.0.0", "[::1]", "10.0.0.0-10.0.0.9", "::ffff:10.0.0", "010.0.0.1"]
        {
            assert_eq!(CidrBlock::parse(text), Err(CidrError::Address), "{text}");
        }
    }

    #[test]
    fn an_address_keeps_its_zone_and_leaves_the_form_of_another_family() {
        for (text, expected) in [
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80"),
            ("[::ffff:7f00:1]:80", "127.0.0.1:80"),
            ("[::ffff:0:0]:80", "0.0.0.0:80"),
            ("[::1]:80", "[::1]:80"),
            ("[::127.0.0.1]:80", "[::127.0.0.1]:80"),
            ("[fe80::1%2]:80", "[fe80::1%2]:80"),
            ("127.0.0.1:80", "127.0.0.1:80"),
        ] {
            let expected: SocketAddr = expected.parse().unwrap();
            assert_eq!(canonical(text.parse().unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn only_the_surroundings_of_ipv4_are_not_pure() {
        for (text, expected) in [
            ("0.0.0.0/0", true),
            ("10.0.0.0/8", true),
            ("::/0", false),
            ("::/64", false),
            ("::1", true),
            ("fd00::/8", true),
            ("::ffff:0:0/96", true),
        ] {
            assert_eq!(CidrBlock::parse(text).unwrap().is_pure(), expected, "{text}");
        }
    }

    proptest! {
        /// The same network in both forms, and its members computed in another way.
        #[test]
        fn a_network_is_the_same_in_either_form(bits: u32, len in 0u8..=32, other: u32) {
            let first = Ipv4Addr::from_bits(bits & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0));
            let block = CidrBlock::parse(&format!("{first}/{len}")).unwrap();
            let mapped = format!("{}/{}", first.to_ipv6_mapped(), len + 96);
            prop_assert_eq!(CidrBlock::parse(&mapped), Ok(block));
            let last = first.to_bits() | u32::MAX.checked_shr(len.into()).unwrap_or(0);
            prop_assert_eq!((block.first(), block.last()), (first.into(), Ipv4Addr::from_bits(last).into()));
            prop_assert_eq!(block.prefix_len(), len);
            let is_in = (first.to_bits()..=last).contains(&other);
            let other = Ipv4Addr::from_bits(other);
            prop_assert_eq!(block.holds(other.into()), is_in);
            prop_assert_eq!(block.holds(other.to_ipv6_mapped().into()), is_in);
        }

        #[test]
        fn the_block_around_two_addresses_is_the_smallest(a: u128, b: u128) {
            let block = CidrBlock::around(a, b, false);
            prop_assert!(block.holds_bits(a, false) && block.holds_bits(b, false));
            let smaller = CidrBlock { bits: a & mask(block.len + 1), len: block.len + 1, ..block };
            prop_assert!(!smaller.holds_bits(b, false));
        }
    }
}
