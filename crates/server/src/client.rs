//! Which client a request comes from, when proxies stand between: the rightmost address that no trusted
//! proxy has.
//!
//! Each proxy adds to X-Forwarded-For, on the right, the address that its connection came from. So
//! what a trusted proxy has added is believed, and what stands left of the first address that is not
//! trusted was brought along by a stranger and may say anything.

use forebay_conn::Peer;
use forebay_http::head::{Head, Name};
use forebay_site::rules::Network;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The proxies whose word about their clients counts. Default: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<Network>);

impl TrustedProxies {
    /// All addresses of these networks; `unix` are clients that come through a Unix socket.
    pub fn new(networks: Vec<Network>) -> TrustedProxies {
        TrustedProxies(networks)
    }

    /// The same, to be shared by all handlers.
    pub fn shared(networks: &[Network]) -> Arc<TrustedProxies> {
        Arc::new(TrustedProxies::new(networks.to_vec()))
    }

    /// Whether this address is a trusted proxy's; `0.0.0.0` stands for a Unix socket.
    #[inline]
    pub fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Whether the connection comes from a trusted proxy, whatever it states.
    #[inline]
    pub fn trust(&self, peer: &Peer) -> bool {
        self.contain(peer.remote.ip())
    }

    /// Whether fields that proxies add are believed: who sends them is one that is trusted. One that has stated
    /// no client passes bytes on: what they say is the client's own.
    #[inline]
    pub fn are_believed(&self, peer: &Peer) -> bool {
        peer.stated != Some(peer.remote) && self.contain(peer.address().ip().to_canonical())
    }
}

/// The client of a request: logs, limits and rules go by its address. `0.0.0.0` if it is a program
/// that came through a Unix socket and stated nothing.
///
/// ```
/// use forebay_conn::Peer;
/// use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
/// use forebay_server::client::{TrustedProxies, client_of};
/// use forebay_site::rules::Network;
///
/// let trusted = TrustedProxies::new(vec![Network::parse("10.0.0.0/8").unwrap()]);
/// let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1, 192.0.2.7, 10.0.0.2\r\n\r\n";
/// let mut lines = Lines::new();
/// let Ok(ParsedHead::Complete(head)) = Head::parse(bytes, &mut lines, &HeadLimits::default()) else {
///     panic!("the head is whole");
/// };
/// let from = |ip: &str| Peer::new((ip.parse::<std::net::IpAddr>().unwrap(), 4711).into(), Peer::UNIX);
/// // through two proxies; what the client itself sent is not believed
/// assert_eq!(client_of(&from("10.0.0.1"), &head, &trusted).to_string(), "192.0.2.7");
/// // somebody else who says the same
/// assert_eq!(client_of(&from("203.0.113.9"), &head, &trusted).to_string(), "203.0.113.9");
/// ```
#[inline]
pub fn client_of(peer: &Peer, head: &Head<'_>, trusted: &TrustedProxies) -> IpAddr {
    let nearest = peer.address().ip().to_canonical();
    if !head.has(Name::XForwardedFor) || !trusted.are_believed(peer) {
        return nearest;
    }
    let values = head.values(Name::XForwardedFor).rev();
    behind(nearest, values, trusted)
}

/// Walks from `nearest`, a trusted proxy, over what the proxies have added, the last value first.
fn behind<'h>(
    nearest: IpAddr,
    values: impl Iterator<Item = &'h [u8]>,
    trusted: &TrustedProxies,
) -> IpAddr {
    let mut client = nearest;
    for element in values.flat_map(|value| value.rsplit(|&byte| byte == b',')) {
        let element = element.trim_ascii();
        if element.is_empty() {
            // an empty element of a list says nothing (RFC 9110 §5.6.1)
            continue;
        }
        // what cannot be read ends the walk at the proxy that wrote it
        let Some(address) = read(element) else { break };
        client = address;
        if !trusted.contain(address) {
            break;
        }
    }
    client
}

/// An address as proxies write it, perhaps with a port.
fn read(element: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(element).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse().map(|address: SocketAddr| address.ip()).ok();
    let address = bare.parse().ok().or_else(with_port)?;
    let address = IpAddr::to_canonical(&address);
    // the address that is none would pass for a Unix socket
    (!address.is_unspecified()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_http::head::{HeadLimits, Lines, ParsedHead};
    use proptest::prelude::*;

    fn proxies(networks: &[&str]) -> TrustedProxies {
        TrustedProxies::new(networks.iter().map(|text| Network::parse(text).unwrap()).collect())
    }

    fn peer(address: &str) -> Peer {
        let local = "192.0.2.1:80".parse().unwrap();
        match address {
            "unix" => Peer::new(Peer::UNIX, Peer::UNIX),
            address => Peer::new((address.parse::<IpAddr>().unwrap(), 4711).into(), local),
        }
    }

    fn client(peer: &Peer, values: &[&str], trusted: &TrustedProxies) -> String {
        let mut text = "GET / HTTP/1.1\r\nHost: a\r\n".to_owned();
        values.iter().for_each(|value| text += &format!("x-forwarded-FOR: {value}\r\n"));
        text += "\r\n";
        let mut lines = Lines::new();
        match Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default()) {
            Ok(ParsedHead::Complete(head)) => client_of(peer, &head, trusted).to_string(),
            other => panic!("{other:?} of {text}"),
        }
    }

    #[test]
    fn the_client_stands_left_of_the_trusted_proxies() {
        let trusted = proxies(&["10.0.0.0/8", "2001:db8::/32", "unix"]);
        for (from, values, expected) in [
            ("192.0.2.7", &["1.1.1.1"][..], "192.0.2.7"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["1.1.1.1"], "1.1.1.1"),
            ("10.0.0.1", &["6.6.6.6, 1.1.1.1"], "1.1.1.1"),
            ("10.0.0.1", &["6.6.6.6,1.1.1.1 ,10.0.0.2", "10.0.0.3"], "1.1.1.1"),
            ("10.0.0.1", &["10.0.0.9, 10.0.0.2"], "10.0.0.9"),
            ("10.0.0.1", &["1.1.1.1, , ,"], "1.1.1.1"),
            ("unix", &["1.1.1.1"], "1.1.1.1"),
            ("unix", &[], "0.0.0.0"),
            ("2001:db8::1", &["1.1.1.1:4711"], "1.1.1.1"),
            ("2001:db8::1", &["[2a00::1]:4711"], "2a00::1"),
            ("2001:db8::1", &["[2a00::1]"], "2a00::1"),
            ("2001:db8::1", &["2a00::1"], "2a00::1"),
            ("::ffff:10.0.0.1", &["::ffff:1.1.1.1"], "1.1.1.1"),
            // garbage ends the walk at the proxy that passed it on
            ("10.0.0.1", &["1.1.1.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["1.1.1.1, unknown, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["1.1.1.1, 0.0.0.0"], "10.0.0.1"),
            ("10.0.0.1", &["1.1.1.1, \"10.0.0.2\""], "10.0.0.1"),
        ] {
            assert_eq!(client(&peer(from), values, &trusted), expected, "{from} {values:?}");
        }
    }

    #[test]
    fn what_the_proxy_protocol_states_is_the_first_step() {
        let trusted = proxies(&["10.0.0.0/8"]);
        let mut through = peer("10.0.0.1");
        through.stated = Some("192.0.2.7:4711".parse().unwrap());
        assert_eq!(client(&through, &["1.1.1.1"], &trusted), "192.0.2.7");
        through.stated = Some("10.0.0.2:4711".parse().unwrap());
        assert_eq!(client(&through, &["1.1.1.1"], &trusted), "1.1.1.1");
    }

    /// An element of the list: an address of a trusted proxy, of another client, or anything.
    fn element() -> impl Strategy<Value = String> {
        prop_oneof![
            (0u8..4).prop_map(|n| format!("10.0.0.{n}")),
            (0u8..4).prop_map(|n| format!("192.0.2.{n}")),
            "[ !-~]{0,12}",
        ]
    }

    proptest! {
        /// Nothing that a client sends gives it another address.
        #[test]
        fn an_untrusted_peer_is_who_it_is(values in prop::collection::vec("[ -~]{0,40}", 0..4)) {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            let trusted = proxies(&["10.0.0.0/8", "unix"]);
            prop_assert_eq!(client(&peer("192.0.2.7"), &values, &trusted), "192.0.2.7");
            prop_assert_eq!(client(&peer("10.0.0.1"), &values, &proxies(&[])), "10.0.0.1");
        }

        /// Whatever a client writes left of what the proxy adds, it stays the client.
        #[test]
        fn what_a_client_brings_along_does_not_matter(
            brought in prop::collection::vec(element(), 0..6),
            hops in 0u8..4,
        ) {
            let trusted = proxies(&["10.0.0.0/8"]);
            let mut list = brought;
            list.push("203.0.113.9".to_owned());
            list.extend((0..hops).map(|hop| format!("10.1.0.{hop}")));
            prop_assert_eq!(client(&peer("10.0.0.1"), &[&list.join(", ")], &trusted), "203.0.113.9");
        }

        /// The result is always the last trusted hop or the one before it.
        #[test]
        fn the_walk_never_leaves_the_chain_of_trust(list in prop::collection::vec(element(), 0..8)) {
            let trusted = proxies(&["10.0.0.0/8"]);
            let found = client(&peer("10.0.0.1"), &[&list.join(",")], &trusted);
            let joined = list.join(",");
            let mut last = "10.0.0.1".to_owned();
            for element in joined.split(',').rev().map(str::trim).filter(|text| !text.is_empty()) {
                let Some(address) = read(element.as_bytes()) else { break };
                last = address.to_string();
                if !last.starts_with("10.") {
                    break;
                }
            }
            prop_assert_eq!(found, last);
        }
    }
}
