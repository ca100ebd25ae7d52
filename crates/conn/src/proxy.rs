//! The PROXY protocol, versions 1 and 2: a proxy's statement about its client, before the first byte of
//! the client's own (haproxy.org/download/3.2/doc/proxy-protocol.txt).
//!
//! Only the client's address is of interest. The rest of a header (the address that the client asked for,
//! TLS, names) is skipped.
//!
//! The header is read by code of our own because none of the small parsers does it as the server must:
//! ppp refuses some headers that come in pieces, proxy-header takes any byte after `PROXY`, and both
//! refuse a LOCAL header whose family promises addresses that are not there, which §2.2 has them skip.
//! The fuzz target `proxy` compares with ppp.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The longest header of version 1, its CR LF included (§2.1).
pub const MOST_V1_BYTES: usize = 107;
/// The longest header of version 2 that is read, its extensions included. The protocol itself would
/// allow 64 KiB; addresses take at most 232 bytes.
pub const MOST_V2_BYTES: usize = 8 * 1024;

/// How version 1 begins.
const V1_PREFIX: &[u8] = b"PROXY ";
/// How version 2 begins.
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of version 2 before the addresses: signature, version and command, family, length.
const V2_FIXED: usize = 16;
/// Version 2, command LOCAL: the proxy speaks for itself.
const V2_LOCAL: u8 = 0x20;
/// Version 2, command PROXY: the proxy speaks for a client.
const V2_PROXY: u8 = 0x21;

/// The result of reading the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedProxyHeader {
    /// No whole header yet: all bytes may be the beginning of one.
    Partial,
    /// A whole header.
    Complete {
        /// The client's address and port. `None` if the proxy speaks for itself (LOCAL), does not know
        /// its client (UNKNOWN), or names something other than an internet stream: then the address that
        /// the kernel knows holds.
        client: Option<SocketAddr>,
        /// How many bytes the header has.
        len: usize,
    },
}

/// Why something is no PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyError {
    /// The bytes begin like neither version.
    Signature,
    /// The header is longer than allowed.
    TooLong,
    /// The header begins well, but is not well-formed.
    Malformed,
}

/// Reads the header at the front of `bytes`, which may be incomplete.
///
/// ```
/// use forebay_conn::proxy::{ParsedProxyHeader, parse};
///
/// let bytes = b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\nGET / HTTP/1.1\r\n";
/// let client = Some("192.0.2.7:4711".parse().unwrap());
/// assert_eq!(parse(bytes), Ok(ParsedProxyHeader::Complete { client, len: 40 }));
/// assert_eq!(parse(&bytes[..39]), Ok(ParsedProxyHeader::Partial));
/// ```
///
/// # Errors
/// [`ProxyError`] as soon as no further byte could complete a header; for version 1, at the end of its
/// line.
pub fn parse(bytes: &[u8]) -> Result<ParsedProxyHeader, ProxyError> {
    if begins(bytes, V2_SIGNATURE) {
        parse_v2(bytes)
    } else if begins(bytes, V1_PREFIX) {
        parse_v1(bytes)
    } else {
        Err(ProxyError::Signature)
    }
}

/// Whether the bytes that are there match `prefix`, which may be longer.
fn begins(bytes: &[u8], prefix: &[u8]) -> bool {
    bytes.iter().zip(prefix).all(|(byte, wanted)| byte == wanted)
}

/// Parses version 1: `PROXY TCP4 source destination port port`, CR LF (§2.1).
fn parse_v1(bytes: &[u8]) -> Result<ParsedProxyHeader, ProxyError> {
    let most = &bytes[..bytes.len().min(MOST_V1_BYTES)];
    let Some(end) = most.iter().position(|&byte| byte == b'\n') else {
        let is_full = most.len() == MOST_V1_BYTES;
        return if is_full { Err(ProxyError::TooLong) } else { Ok(ParsedProxyHeader::Partial) };
    };
    let line = std::str::from_utf8(&bytes[..end]).map_err(|_| ProxyError::Malformed)?;
    let line = line.strip_suffix('\r').ok_or(ProxyError::Malformed)?;
    let mut words = line.split(' ').skip(1);
    let client = match words.next() {
        Some("TCP4") => Some(v1_client::<Ipv4Addr>(words)?),
        Some("TCP6") => Some(v1_client::<Ipv6Addr>(words)?),
        // the rest of the line must be skipped unread
        Some("UNKNOWN") => None,
        _ => return Err(ProxyError::Malformed),
    };
    Ok(complete(client, end + 1))
}

/// The result for a whole header. The addresses `0.0.0.0` and `::` are not believed: they stand for
/// clients of Unix sockets.
fn complete(client: Option<SocketAddr>, len: usize) -> ParsedProxyHeader {
    let client = client.filter(|client| !client.ip().to_canonical().is_unspecified());
    ParsedProxyHeader::Complete { client, len }
}

/// The first of two addresses, with the first of two ports.
fn v1_client<'l, A: FromStr + Into<IpAddr>>(
    mut words: impl Iterator<Item = &'l str>,
) -> Result<SocketAddr, ProxyError> {
    let mut word = || words.next().ok_or(ProxyError::Malformed);
    let (source, destination) = (word()?, word()?);
    let (port, destination_port) = (word()?, word()?);
    let address = |text: &str| text.parse::<A>().map_err(|_| ProxyError::Malformed);
    let (client, _) = (address(source)?, address(destination)?);
    let (port, _) = (v1_port(port)?, v1_port(destination_port)?);
    match words.next() {
        None => Ok(SocketAddr::new(client.into(), port)),
        Some(_) => Err(ProxyError::Malformed),
    }
}

/// A port in digits without leading zeros, which `parse` alone would accept.
fn v1_port(text: &str) -> Result<u16, ProxyError> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit())
        && (text.len() == 1 || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_number).ok_or(ProxyError::Malformed)
}

/// Parses version 2: signature, version and command, family and protocol, length; addresses; extensions
/// (§2.2).
fn parse_v2(bytes: &[u8]) -> Result<ParsedProxyHeader, ProxyError> {
    let Some(fixed) = bytes.first_chunk::<V2_FIXED>() else {
        return Ok(ParsedProxyHeader::Partial);
    };
    let [.., command, family, high, low] = *fixed;
    let len = V2_FIXED + usize::from(u16::from_be_bytes([high, low]));
    if !matches!(command, V2_LOCAL | V2_PROXY) {
        return Err(ProxyError::Malformed);
    }
    if len > MOST_V2_BYTES {
        return Err(ProxyError::TooLong);
    }
    let Some(rest) = bytes.get(V2_FIXED..len) else { return Ok(ParsedProxyHeader::Partial) };
    let client = match (command, family) {
        (V2_PROXY, 0x11) => {
            let addresses = rest.first_chunk::<12>().ok_or(ProxyError::Malformed)?;
            let [a, b, c, d, _, _, _, _, high, low, _, _] = *addresses;
            Some((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])).into())
        }
        (V2_PROXY, 0x21) => {
            let addresses = rest.first_chunk::<36>().ok_or(ProxyError::Malformed)?;
            let [.., high, low, _, _] = *addresses;
            let source = addresses.first_chunk::<16>().ok_or(ProxyError::Malformed)?;
            Some((Ipv6Addr::from(*source), u16::from_be_bytes([high, low])).into())
        }
        // LOCAL, whose family does not count; datagrams; Unix sockets; what is not known yet
        _ => None,
    };
    Ok(complete(client, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = (rest.len() as u16).to_be_bytes();
        [V2_SIGNATURE, &[command, family], &length, rest].concat()
    }

    fn client(bytes: &[u8]) -> Option<SocketAddr> {
        match parse(bytes) {
            Ok(ParsedProxyHeader::Complete { client, .. }) => client,
            other => panic!("{other:?} of {bytes:?}"),
        }
    }

    /// Source 192.0.2.7:4711, then the destination.
    const V4: [u8; 12] = [192, 0, 2, 7, 192, 0, 2, 1, 0x12, 0x67, 0, 80];

    #[test]
    fn the_client_is_found_in_both_versions() {
        let stated = Some("192.0.2.7:4711".parse().unwrap());
        assert_eq!(client(b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n"), stated);
        assert_eq!(client(&v2(0x21, 0x11, &V4)), stated);
        // a header with extensions
        assert_eq!(client(&v2(0x21, 0x11, &[&V4[..], &[4, 0, 2, 0, 0]].concat())), stated);
        let stated = Some("[2001:db8::7]:1".parse().unwrap());
        assert_eq!(client(b"PROXY TCP6 2001:db8::7 ::1 1 80\r\n"), stated);
        let mut v6 = [0; 36];
        v6[..16].copy_from_slice(&"2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets());
        v6[33] = 1;
        assert_eq!(client(&v2(0x21, 0x21, &v6)), stated);
    }

    #[test]
    fn who_speaks_for_nobody_changes_nothing() {
        assert_eq!(client(b"PROXY UNKNOWN\r\n"), None);
        assert_eq!(client(b"PROXY UNKNOWN ffff::1 ::2 1 2\r\n"), None);
        assert_eq!(client(b"PROXY TCP4 0.0.0.0 192.0.2.1 4711 80\r\n"), None);
        assert_eq!(client(b"PROXY TCP6 ::ffff:0.0.0.0 ::1 4711 80\r\n"), None);
        for (command, family, rest) in [
            (0x20, 0x00, &[][..]),
            // health checks of some proxies name a family and give no address
            (0x20, 0x11, &[]),
            (0x20, 0x11, &V4),
            (0x21, 0x00, &[]),
            // a datagram
            (0x21, 0x12, &V4),
            (0x21, 0x31, &[7; 216]),
            (0x21, 0x41, &V4),
        ] {
            assert_eq!(client(&v2(command, family, rest)), None, "{command:x} {family:x}");
        }
    }

    #[test]
    fn nonsense_is_refused_as_soon_as_it_is_seen() {
        for bytes in [
            &b"G"[..],
            b"PROXX",
            b"PROXY TCP5 ::1 ::1 1 1\r\n",
            b"PROXY  TCP4 192.0.2.7 192.0.2.1 4711 80\r\n",
            b"PROXY TCP4 192.0.2.7 192.0.2.1 +4711 80\r\n",
            b"PROXY TCP4 192.0.2.7 192.0.2.1 04711 80\r\n",
            b"PROXY TCP4\r\n",
            b"PROXY TCP4 192.0.2.7\r\n",
            b"PROXY TCP4 ::1 ::1 1 1\r\n",
            b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 80 more\r\n",
            b"PROXY TCP4 192.0.2.7 192.0.2.1 70000 80\r\n",
            b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\n",
            b"\r\n\r\n\0\r\nQUIT\r",
            &v2(0x11, 0x11, &V4),
            &v2(0x22, 0x11, &V4),
            &v2(0x21, 0x11, &V4[..11]),
        ] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn nobody_can_make_it_wait_for_ever() {
        let long = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat();
        assert_eq!(parse(&long[..MOST_V1_BYTES - 1]), Ok(ParsedProxyHeader::Partial));
        assert_eq!(parse(&long[..MOST_V1_BYTES]), Err(ProxyError::TooLong));
        let announced = v2(0x21, 0x11, &vec![0; MOST_V2_BYTES]);
        assert_eq!(parse(&announced[..V2_FIXED]), Err(ProxyError::TooLong));
        let local = v2(0x20, 0, &vec![0; MOST_V2_BYTES]);
        assert_eq!(parse(&local[..V2_FIXED]), Err(ProxyError::TooLong));
    }

    proptest! {
        /// The result for all bytes at once equals the result for bytes that come one by one.
        #[test]
        fn a_header_may_come_in_any_pieces(bytes in headers()) {
            let whole = parse(&bytes);
            for end in 0..bytes.len() {
                match parse(&bytes[..end]) {
                    Ok(ParsedProxyHeader::Partial) => {}
                    settled => {
                        prop_assert_eq!(settled, whole);
                        break;
                    }
                }
            }
        }
    }

    /// Headers with a changed byte here and there, and bytes behind them.
    fn headers() -> impl Strategy<Value = Vec<u8>> {
        let v1 = prop_oneof![
            Just("PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\nGET".to_owned()),
            Just("PROXY TCP6 2001:db8::7 ::1 4711 80\r\nGET".to_owned()),
            Just("PROXY UNKNOWN what ever\r\nGET".to_owned()),
            "PROXY (TCP4|TCP6|UNKNOWN|)[ 0-9:.\r\n]{0,120}",
        ];
        let v1 = v1.prop_map(String::into_bytes);
        let v2 = (0x20u8..0x23, 0u8..0x34, prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(command, family, rest)| v2(command, family, &rest));
        let change = prop::option::of((any::<prop::sample::Index>(), any::<u8>()));
        (prop_oneof![v1, v2], change).prop_map(|(mut bytes, change)| {
            if let Some((at, byte)) = change {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        })
    }
}
