//! The PROXY header, versions 1 and 2, in which an application gets the client of a connection before its
//! request. `forebay_conn::proxy` reads such headers.

use forebay_conn::Peer;
use forebay_upstream::settings::ProxyProtocol;
use std::net::{IpAddr, SocketAddr};

/// The client's address and its port; 0 where only a proxy before this server knows the port.
pub(super) fn source_of(peer: &Peer, client: IpAddr) -> SocketAddr {
    let address = peer.address();
    let port =
        if address.ip().to_canonical() == client.to_canonical() { address.port() } else { 0 };
    SocketAddr::new(client, port)
}

/// The PROXY header for a connection of the client at `from`, which has reached `to`.
pub(super) fn preface(way: ProxyProtocol, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
    let (source, target) = (from.ip().to_canonical(), to.ip().to_canonical());
    let addresses = match (source, target) {
        _ if source.is_unspecified() => None,
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            Some(("TCP4", 0x11, [source.octets(), target.octets()].concat()))
        }
        (source, target) => {
            let six = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            Some(("TCP6", 0x21, [six(source).octets(), six(target).octets()].concat()))
        }
    };
    match (way, addresses) {
        (ProxyProtocol::V1, None) => b"PROXY UNKNOWN\r\n".to_vec(),
        (ProxyProtocol::V1, Some((family, _, octets))) => {
            let text = |octets: &[u8]| match <[u8; 4]>::try_from(octets) {
                Ok(four) => IpAddr::from(four).to_string(),
                Err(_) => <[u8; 16]>::try_from(octets)
                    .map_or_else(|_| String::new(), |six| IpAddr::from(six).to_string()),
            };
            let (source, target) = octets.split_at(octets.len() / 2);
            let (source, target) = (text(source), text(target));
            format!("PROXY {family} {source} {target} {} {}\r\n", from.port(), to.port()).into()
        }
        (ProxyProtocol::V2, None) => [SIGNATURE, b"\x20\0\0\0"].concat(),
        (ProxyProtocol::V2, Some((_, family, octets))) => {
            let len = (octets.len() as u16 + 4).to_be_bytes();
            let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
            [SIGNATURE, &[0x21, family], &len, &octets, &ports].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_conn::proxy::{ParsedProxyHeader, parse};

    #[test]
    fn connections_begin_with_whom_they_are_for() {
        let peer =
            |remote: &str, local: &str| Peer::new(remote.parse().unwrap(), local.parse().unwrap());
        let four = peer("192.0.2.7:4711", "10.0.0.1:80");
        let six = peer("[2001:db8::1]:4711", "[::1]:443");
        let made =
            |way, peer: &Peer| preface(way, source_of(peer, peer.address().ip()), peer.local);
        let v1 = |peer| String::from_utf8(made(ProxyProtocol::V1, peer)).unwrap();
        assert_eq!(v1(&four), "PROXY TCP4 192.0.2.7 10.0.0.1 4711 80\r\n");
        assert_eq!(v1(&six), "PROXY TCP6 2001:db8::1 ::1 4711 443\r\n");
        let unix = Peer::new(Peer::UNIX, Peer::UNIX);
        assert_eq!(v1(&unix), "PROXY UNKNOWN\r\n");
        // a client that a proxy before this server has named, without its port
        let named = source_of(&four, "203.0.113.9".parse().unwrap());
        let header = preface(ProxyProtocol::V1, named, four.local);
        assert_eq!(header, b"PROXY TCP4 203.0.113.9 10.0.0.1 0 80\r\n");
        for (peer, stated) in [(&four, true), (&six, true), (&unix, false)] {
            let bytes = made(ProxyProtocol::V2, peer);
            let client = stated.then_some(peer.remote);
            let len = bytes.len();
            assert_eq!(parse(&bytes), Ok(ParsedProxyHeader::Complete { client, len }));
        }
    }
}
