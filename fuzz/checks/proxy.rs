//! What must hold for any bytes that may be a PROXY header.

use forebay_conn::proxy::{self, MOST_V1_BYTES, MOST_V2_BYTES, ParsedProxyHeader};
use ppp::{v1, v2};
use std::net::SocketAddr;

/// Panics if something does not hold for `bytes`.
pub(crate) fn check(bytes: &[u8]) {
    let outcome = proxy::parse(bytes);
    check_pieces(bytes);
    let most = if bytes.starts_with(b"P") { MOST_V1_BYTES } else { MOST_V2_BYTES };
    match outcome {
        Ok(ParsedProxyHeader::Partial) => {
            assert!(bytes.len() < most, "it waits for more than it may")
        }
        Ok(ParsedProxyHeader::Complete { client, len }) => {
            assert!(len <= bytes.len().min(most));
            assert_eq!(proxy::parse(&bytes[..len]), outcome, "what follows does not matter");
            if client.is_some() {
                assert_eq!(second_opinion(&bytes[..len]), client);
            }
        }
        Err(_) => {
            let short = &bytes[..bytes.len().min(most)];
            // the other one takes a port with a sign, and a space for the CR
            let is_lax = short.contains(&b'+') || short.windows(2).any(|pair| pair == b" \n");
            assert!(second_opinion(short).is_none() || is_lax);
        }
    }
}

/// However they arrive, the same is made of them.
fn check_pieces(bytes: &[u8]) {
    let whole = proxy::parse(bytes);
    let mut ends = (0..=bytes.len()).map(|end| proxy::parse(&bytes[..end]));
    if let Some(settled) = ends.find(|outcome| *outcome != Ok(ParsedProxyHeader::Partial)) {
        assert_eq!(settled, whole);
    }
}

/// The client that another parser finds.
fn second_opinion(bytes: &[u8]) -> Option<SocketAddr> {
    if let Ok(header) = v1::Header::try_from(bytes) {
        return match header.addresses {
            v1::Addresses::Tcp4(ip) => Some((ip.source_address, ip.source_port).into()),
            v1::Addresses::Tcp6(ip) => Some((ip.source_address, ip.source_port).into()),
            v1::Addresses::Unknown => None,
        };
    }
    let header = v2::Header::try_from(bytes).ok()?;
    if header.command == v2::Command::Local || header.protocol != v2::Protocol::Stream {
        return None;
    }
    match header.addresses {
        v2::Addresses::IPv4(ip) => Some((ip.source_address, ip.source_port).into()),
        v2::Addresses::IPv6(ip) => Some((ip.source_address, ip.source_port).into()),
        v2::Addresses::Unix(_) | v2::Addresses::Unspecified => None,
    }
}
