//! The clients that are never ignored, and that neither the kernel nor a firewall drops. This is the only
//! place that lists them.
//!
//! A limit with `ignore` shuts an address out for a while, for everything that comes from it. That is right
//! for a client. But behind the address of a trusted proxy are clients that have done nothing; an address of
//! this machine is used by its own health checks; and administrators of the server must be able to look at
//! it. What is kept for IPv6 clients is kept for a /64, so no address in the /64 of a spared address is
//! ignored.
//!
//! Limits and actions of rules still hold for spared clients: a request over a limit is refused, but the next
//! one is looked at again.

use forebay_http::cidr::{CidrBlock, mask};
use std::fmt;
use std::net::IpAddr;

/// Bits of an IPv6 address that tell clients apart.
const CLIENT_LEN: u8 = 64;

/// Why an address is spared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SparedAs {
    /// Clients come through this address: `trusted_proxies`.
    TrustedProxy,
    /// The server listens at this address, or a program has come through a Unix socket.
    OwnAddress,
    /// This client may read from the admin listener: `admin.allow`.
    Administrator,
}

impl fmt::Display for SparedAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SparedAs::TrustedProxy => "a trusted proxy (trusted_proxies)",
            SparedAs::OwnAddress => "an address of this server (listen)",
            SparedAs::Administrator => "an administrator (admin.allow)",
        })
    }
}

/// Addresses that are never ignored or banned.
///
/// ```
/// use forebay_http::cidr::CidrBlock;
/// use forebay_policy::spared::{SparedAs, SparedClients};
///
/// let mut spared = SparedClients::default();
/// spared.add(CidrBlock::parse("10.0.0.5").unwrap(), SparedAs::TrustedProxy);
/// assert_eq!(spared.why("10.0.0.5".parse().unwrap()), Some(SparedAs::TrustedProxy));
/// assert_eq!(spared.why("10.0.0.6".parse().unwrap()), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparedClients(Vec<(CidrBlock, SparedAs)>);

impl SparedClients {
    /// Adds all addresses of this block. If an address has several reasons, the first counts.
    pub fn add(&mut self, block: CidrBlock, why: SparedAs) {
        if !self.0.iter().any(|(known, _)| known.surrounds(block)) {
            self.0.push((block, why));
        }
    }

    /// Why this client may not be ignored; `None` if it may. For an IPv6 client the answer is that for its
    /// whole /64.
    pub fn why(&self, client: IpAddr) -> Option<SparedAs> {
        let client = client.to_canonical();
        if client.is_unspecified() {
            return Some(SparedAs::OwnAddress);
        }
        self.0.iter().find(|(block, _)| as_client(*block).holds(client)).map(|(_, why)| *why)
    }

    /// Why all addresses of this block are spared; `None` if some are not.
    pub fn why_all(&self, block: CidrBlock) -> Option<SparedAs> {
        self.0.iter().find(|(known, _)| known.surrounds(block)).map(|(_, why)| *why)
    }

    /// The spared blocks within this block, with the reason for each; no block is listed twice.
    pub fn within(&self, block: CidrBlock) -> impl Iterator<Item = (CidrBlock, SparedAs)> + '_ {
        self.0.iter().filter(move |(known, _)| block.surrounds(*known)).copied()
    }

    /// The blocks of addresses that no filter may drop before a rule of the server has seen them.
    pub fn blocks(&self) -> impl Iterator<Item = CidrBlock> + '_ {
        self.0.iter().map(|(block, _)| *block)
    }
}

/// The block extended to whole clients: an IPv6 block smaller than a /64 becomes the /64.
fn as_client(block: CidrBlock) -> CidrBlock {
    match block.is_ipv4() || block.whole_len() <= CLIENT_LEN {
        true => block,
        false => {
            let host = !mask(CLIENT_LEN);
            CidrBlock::around(block.bits() & !host, block.bits() | host, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spared(blocks: &[(&str, SparedAs)]) -> SparedClients {
        let mut spared = SparedClients::default();
        for (block, why) in blocks {
            spared.add(CidrBlock::parse(block).unwrap(), *why);
        }
        spared
    }

    #[test]
    fn whoever_is_kept_as_one_client_with_a_spared_address_is_spared() {
        use SparedAs::{Administrator, OwnAddress, TrustedProxy};
        let spared = spared(&[
            ("10.0.0.0/24", TrustedProxy),
            ("10.0.0.7", Administrator),
            ("192.0.2.1", OwnAddress),
            ("2001:db8:0:1::7", Administrator),
            ("2001:db8:5::/48", TrustedProxy),
        ]);
        for (client, expected) in [
            ("10.0.0.7", Some(TrustedProxy)),
            ("::ffff:10.0.0.7", Some(TrustedProxy)),
            ("10.0.1.0", None),
            ("192.0.2.1", Some(OwnAddress)),
            ("192.0.2.2", None),
            ("2001:db8:0:1:ffff::1", Some(Administrator)),
            ("2001:db8:0:2::7", None),
            ("2001:db8:5:ffff::1", Some(TrustedProxy)),
            ("2001:db8:6::1", None),
            // the address of a program that came through a Unix socket
            ("0.0.0.0", Some(OwnAddress)),
        ] {
            assert_eq!(spared.why(client.parse().unwrap()), expected, "{client}");
        }
        assert_eq!(spared.blocks().count(), 4);
        let exact = CidrBlock::parse("2001:db8:0:1::7").unwrap();
        assert!(spared.blocks().any(|block| block == exact), "a rule about a neighbour holds");
    }

    #[test]
    fn a_block_is_spared_if_all_of_it_is() {
        let spared = spared(&[("10.0.0.0/24", SparedAs::TrustedProxy)]);
        let why = |text: &str| spared.why_all(CidrBlock::parse(text).unwrap());
        assert_eq!(why("10.0.0.128/25"), Some(SparedAs::TrustedProxy));
        assert_eq!(why("10.0.0.0/23"), None);
        assert_eq!(why("10.0.1.0/24"), None);
    }

    #[test]
    fn all_of_a_family_can_be_spared() {
        let spared = spared(&[("0.0.0.0/0", SparedAs::TrustedProxy)]);
        assert!(spared.why("203.0.113.9".parse().unwrap()).is_some());
        assert!(spared.why("2001:db8::1".parse().unwrap()).is_none());
    }
}
