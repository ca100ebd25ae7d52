//! The client of a request, when proxies stand between: the rightmost address that is no trusted proxy's.
//! And the scheme by which the client has asked.
//!
//! Each proxy adds to X-Forwarded-For, on the right, the address that its connection came from. So the
//! entries of trusted proxies are believed. Entries left of the first untrusted address were sent by an
//! untrusted client, and may say anything.
//!
//! X-Forwarded-Proto has no addresses to walk over, and most proxies set it or pass it on as it is. So
//! only its last value is believed: the one that the nearest proxy has written, or vouches for. Values to
//! the left of it may be the client's own, as where a proxy adds a line (`http-request add-header` of
//! HAProxy) and removes none.
//!
//! `Forwarded` has addresses and schemes together. It is walked in the same way; the scheme is that of
//! the outermost element that a trusted proxy has written. Only one of the two families counts: the
//! fields of the other may be the client's own, since a proxy that writes one family passes the other on
//! as it comes.

use forebay_config::{Config, Role};
use forebay_conn::Peer;
use forebay_http::field::FieldName;
use forebay_http::forwarded::{Element, ForwardedFamily, members_from_last};
use forebay_http::head::{Head, Name};
use forebay_site::RequestScheme;
use forebay_site::rules::Network;
use forebay_sys::stderr::say;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The proxies whose statements about their clients are trusted. Default: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<Network>,
    /// The family of fields that counts.
    counts: ForwardedFamily,
    /// The family of fields that applications get besides X-Forwarded.
    told: ForwardedFamily,
    /// The field in which the proxies name their client.
    client: ClientField,
    /// The further field in which applications get the client's address.
    named: Option<FieldName>,
}

/// The field in which trusted proxies name their client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum ClientField {
    /// `X-Forwarded-For`
    #[default]
    XForwardedFor,
    /// `Forwarded`
    Forwarded,
    /// A field that has one address, and nothing else.
    Named(FieldName),
}

impl TrustedProxies {
    /// Trusts all addresses of these networks; `unix` are clients that come through a Unix socket.
    pub fn new(networks: Vec<Network>) -> TrustedProxies {
        TrustedProxies { networks, ..TrustedProxies::default() }
    }

    /// The trusted proxies of a configuration.
    pub fn of(config: &Config) -> TrustedProxies {
        // stages use the fields of X-Forwarded between them, whatever the clients' proxies use
        let is_behind = config.place.as_ref().is_some_and(|place| place.role != Role::Receive);
        let counts = if is_behind { ForwardedFamily::XForwarded } else { config.forwarded };
        let named = config.trusted_header.clone();
        let client = match (counts, named.clone().filter(|_| !is_behind)) {
            (_, Some(name)) => ClientField::Named(name),
            (ForwardedFamily::XForwarded, None) => ClientField::XForwardedFor,
            (ForwardedFamily::Forwarded, None) => ClientField::Forwarded,
        };
        let networks = config.trusted_proxies.clone();
        TrustedProxies { networks, counts, told: config.forwarded, client, named }
    }

    /// Whether the proxies name their client in a field with one address, so that no list of addresses
    /// counts.
    pub fn name_one(&self) -> bool {
        matches!(self.client, ClientField::Named(_))
    }

    /// The field in which applications get the client's address, if the proxies use one.
    pub fn told_field(&self) -> Option<&FieldName> {
        self.named.as_ref()
    }

    /// The name of the field in which the proxies name their client.
    pub fn client_field(&self) -> &str {
        match &self.client {
            ClientField::XForwardedFor => "X-Forwarded-For",
            ClientField::Forwarded => "Forwarded",
            ClientField::Named(name) => name.as_str(),
        }
    }

    /// The trusted proxies of a configuration, to be shared by all handlers.
    pub fn shared(config: &Config) -> Arc<TrustedProxies> {
        Arc::new(TrustedProxies::of(config))
    }

    /// The family of fields that counts.
    pub fn counts(&self) -> ForwardedFamily {
        self.counts
    }

    /// Whether applications get `Forwarded`.
    pub fn tell_forwarded(&self) -> bool {
        self.told == ForwardedFamily::Forwarded
    }

    /// Whether this address is a trusted proxy's; `0.0.0.0` stands for a Unix socket.
    #[inline]
    pub fn contain(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }

    /// Whether the connection comes from a trusted proxy, whatever it states.
    #[inline]
    pub fn trust(&self, peer: &Peer) -> bool {
        self.contain(peer.remote.ip())
    }

    /// Whether the client of this connection, or of a request on it, is a trusted proxy that names no
    /// other client: then the client is not known.
    #[inline]
    pub fn speaks_for_itself(&self, peer: &Peer, client: IpAddr) -> bool {
        client.to_canonical() == peer.remote.ip().to_canonical() && self.trust(peer)
    }

    /// Whether fields that proxies add are believed: their sender must be trusted. A sender that has a
    /// PROXY header without a client passes bytes on: their fields are the client's own.
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
/// use forebay_handler::client::{TrustedProxies, client_of};
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
    let (counts, dropped) = match &trusted.client {
        ClientField::XForwardedFor => (Name::XForwardedFor, Name::Forwarded),
        ClientField::Forwarded => (Name::Forwarded, Name::XForwardedFor),
        ClientField::Named(name) => return named_client(nearest, name, peer, head, trusted),
    };
    if head.has(dropped) && trusted.are_believed(peer) {
        say_dropped(nearest, trusted.counts);
    }
    if !head.has(counts) || !trusted.are_believed(peer) {
        return nearest;
    }
    match trusted.counts {
        ForwardedFamily::XForwarded => behind(nearest, forwarders(head), trusted),
        ForwardedFamily::Forwarded => Believed::of(nearest, head, trusted).client,
    }
}

/// The client in the field of this name. A proxy that adds a line, or an item, to its client's adds it at
/// the end; if that is no address, no client is named.
fn named_client(
    nearest: IpAddr,
    name: &FieldName,
    peer: &Peer,
    head: &Head<'_>,
    trusted: &TrustedProxies,
) -> IpAddr {
    if !trusted.are_believed(peer) {
        return nearest;
    }
    let last = head.fields().filter(|(field, _)| name.is(field)).last();
    let last = last.and_then(|(_, value)| value.rsplit(|&byte| byte == b',').next());
    last.map(<[u8]>::trim_ascii).and_then(read).unwrap_or(nearest)
}

/// The client of a request with its port, which is 0 where a proxy states only the address.
#[inline]
pub fn client_end(peer: &Peer, head: &Head<'_>, trusted: &TrustedProxies) -> SocketAddr {
    let nearest = peer.address();
    match client_of(peer, head, trusted) {
        stated if stated == nearest.ip().to_canonical() => nearest,
        stated => SocketAddr::new(stated, 0),
    }
}

/// How many elements of `Forwarded`, from the last, trusted proxies have written; 0 if the field does not
/// count.
pub fn believed_elements(peer: &Peer, head: &Head<'_>, trusted: &TrustedProxies) -> usize {
    let counts = trusted.counts == ForwardedFamily::Forwarded && head.has(Name::Forwarded);
    if !counts || !trusted.are_believed(peer) {
        return 0;
    }
    Believed::of(peer.address().ip().to_canonical(), head, trusted).elements
}

/// The part of `Forwarded` that trusted proxies have written.
struct Believed<'h> {
    /// The client: the first address from the right that is no trusted proxy's.
    client: IpAddr,
    /// How many elements trusted proxies have written, from the last.
    elements: usize,
    /// The element of the proxy that the client has reached.
    outermost: Option<Element<'h>>,
}

impl<'h> Believed<'h> {
    /// Walks from `nearest`, a trusted proxy.
    fn of(nearest: IpAddr, head: &Head<'h>, trusted: &TrustedProxies) -> Believed<'h> {
        let mut believed = Believed { client: nearest, elements: 0, outermost: None };
        for member in members_from_last(head) {
            // an element that cannot be read ends the walk at the proxy that wrote it
            let Some(element) = Element::parse(member) else { break };
            let client = element.client();
            believed.elements += 1;
            believed.outermost = Some(element);
            // a proxy that hides its client ends the walk: the author of the next element is unknown
            let Some(client) = client else { break };
            believed.client = client;
            if !trusted.contain(client) {
                break;
            }
        }
        believed
    }
}

/// Warns the operator once that a trusted proxy uses fields that do not count.
fn say_dropped(proxy: IpAddr, counts: ForwardedFamily) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if IS_SAID.load(Ordering::Relaxed) || IS_SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    // in a thread of its own: a loop does not wait for the reader of standard error
    let tell = move || match counts {
        ForwardedFamily::XForwarded => say(format_args!(
            "the trusted proxy {proxy} sends Forwarded, which is dropped: X-Forwarded-* count; \
             forwarded = \"forwarded\" has Forwarded count"
        )),
        ForwardedFamily::Forwarded => say(format_args!(
            "the trusted proxy {proxy} sends X-Forwarded-For, and all X-Forwarded-* are dropped: Forwarded \
             counts; forwarded = \"x-forwarded\" has those count"
        )),
    };
    let _ = thread::Builder::new().name("notice".to_owned()).spawn(tell);
}

/// The scheme by which the client of a request has asked: as a trusted proxy says, or else as the request
/// has come to this process.
///
/// A trusted proxy has the last word in both directions: a request that its client has sent in clear does
/// not become secure by TLS between the proxy and this server.
#[inline]
pub fn scheme_of(peer: &Peer, head: &Head<'_>, trusted: &TrustedProxies) -> RequestScheme {
    let of_connection = match peer.secured {
        Some(_) => RequestScheme::Https,
        None => RequestScheme::Http,
    };
    let counts = match trusted.counts {
        ForwardedFamily::XForwarded => Name::XForwardedProto,
        ForwardedFamily::Forwarded => Name::Forwarded,
    };
    if !head.has(counts) || !trusted.are_believed(peer) {
        return of_connection;
    }
    if trusted.counts == ForwardedFamily::Forwarded {
        let nearest = peer.address().ip().to_canonical();
        let outermost = Believed::of(nearest, head, trusted).outermost;
        let proto = outermost.as_ref().and_then(|element| element.get("proto"));
        return proto.and_then(named).unwrap_or(of_connection);
    }
    let last = head.values(Name::XForwardedProto).next_back();
    let last = last.and_then(|value| value.rsplit(|&byte| byte == b',').next());
    // an unknown scheme says nothing, and the values to its left may be the client's
    last.map(<[u8]>::trim_ascii).and_then(named).unwrap_or(of_connection)
}

/// Whether the client of a request came through TLS.
#[inline]
pub fn is_secure(peer: &Peer, head: &Head<'_>, trusted: &TrustedProxies) -> bool {
    scheme_of(peer, head, trusted) == RequestScheme::Https
}

/// The scheme that a proxy's word stands for. Traefik names the scheme of a WebSocket.
fn named(scheme: &[u8]) -> Option<RequestScheme> {
    let is = |name: &[u8]| scheme.eq_ignore_ascii_case(name);
    if is(b"https") || is(b"wss") {
        Some(RequestScheme::Https)
    } else if is(b"http") || is(b"ws") {
        Some(RequestScheme::ProxiedHttp)
    } else {
        None
    }
}

/// The elements of X-Forwarded-For that proxies have written, the last first. Empty elements are skipped
/// (RFC 9110 §5.6.1).
fn forwarders<'h>(head: &Head<'h>) -> impl Iterator<Item = &'h [u8]> + use<'h> {
    let values = head.values(Name::XForwardedFor).rev();
    let elements = values.flat_map(|value| value.rsplit(|&byte| byte == b','));
    elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Walks from `nearest`, a trusted proxy, over the elements that the proxies have added, the last first.
fn behind<'h>(
    nearest: IpAddr,
    elements: impl Iterator<Item = &'h [u8]>,
    trusted: &TrustedProxies,
) -> IpAddr {
    let mut client = nearest;
    for element in elements {
        // an element that cannot be read ends the walk at the proxy that wrote it
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
    // the unspecified address would pass for a Unix socket
    (!address.is_unspecified()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_conn::Secured;
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

    /// The result of `say` for a head with lines of this name.
    fn said<T>(name: &str, values: &[&str], say: impl FnOnce(&Head<'_>) -> T) -> T {
        let mut text = "GET / HTTP/1.1\r\nHost: a\r\n".to_owned();
        values.iter().for_each(|value| text += &format!("{name}: {value}\r\n"));
        text += "\r\n";
        let mut lines = Lines::new();
        match Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default()) {
            Ok(ParsedHead::Complete(head)) => say(&head),
            other => panic!("{other:?} of {text}"),
        }
    }

    fn client(peer: &Peer, values: &[&str], trusted: &TrustedProxies) -> String {
        said("x-forwarded-FOR", values, |head| client_of(peer, head, trusted).to_string())
    }

    fn is_https(peer: &Peer, values: &[&str], trusted: &TrustedProxies) -> bool {
        said("x-forwarded-PROTO", values, |head| is_secure(peer, head, trusted))
    }

    /// The same peer, with TLS.
    fn secured(peer: Peer) -> Peer {
        let secured = Secured {
            name: None,
            version: "1.3",
            cipher: "TLS13_AES_128_GCM_SHA256",
            alpn: None,
            resumed: false,
            hosts: [].into(),
            policy: None,
            client: None,
        };
        Peer { secured: Some(Box::new(secured)), ..peer }
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

    #[test]
    fn the_last_scheme_that_a_trusted_proxy_says_counts() {
        let trusted = proxies(&["10.0.0.0/8", "unix"]);
        for (values, expected) in [
            (&["https"][..], true),
            (&["http"], false),
            (&["HttpS"], true),
            (&["HTTP"], false),
            // on lines of their own, and in a list: those before the last may be the client's
            (&["https", "http"], false),
            (&["http", "https"], true),
            (&["https, http"], false),
            (&["http,https"], true),
            (&["https", "https, http"], false),
            (&["http, http", "http ,\tHTTPS"], true),
            // the schemes of a WebSocket
            (&["wss"], true),
            (&["https, ws"], false),
        ] {
            for from in ["10.0.0.1", "unix", "::ffff:10.0.0.1"] {
                assert_eq!(is_https(&peer(from), values, &trusted), expected, "{from} {values:?}");
                let sealed = secured(peer(from));
                assert_eq!(is_https(&sealed, values, &trusted), expected, "TLS {from} {values:?}");
            }
        }
    }

    #[test]
    fn where_a_proxy_says_no_scheme_the_connection_tells() {
        let trusted = proxies(&["10.0.0.0/8"]);
        let (plain, sealed) = (peer("10.0.0.1"), secured(peer("10.0.0.1")));
        for values in [
            &[""][..],
            &[" , ,"],
            &["https", ""],
            &["https, ,"],
            &["http", "on"],
            &["https, httpss"],
            &["\"https\""],
            &[],
        ] {
            assert!(!is_https(&plain, values, &trusted), "{values:?}");
            assert!(is_https(&sealed, values, &trusted), "{values:?}");
        }
        // a name that applications take for this one is another field
        let read = said("X_Forwarded_Proto", &["https"], |head| is_secure(&plain, head, &trusted));
        assert!(!read);
    }

    #[test]
    fn what_others_say_of_their_scheme_does_not_count() {
        let (trusted, nobody) = (proxies(&["10.0.0.0/8"]), proxies(&[]));
        // bytes that a proxy passes on are its client's, whether it states that or not
        let mut through = peer("10.0.0.1");
        through.stated = Some("192.0.2.7:4711".parse().unwrap());
        let mut unstated = peer("10.0.0.1");
        unstated.stated = Some(unstated.remote);
        for (from, trusted) in [
            (peer("192.0.2.7"), &trusted),
            (peer("unix"), &trusted),
            (peer("10.0.0.1"), &nobody),
            (through, &trusted),
            (unstated, &trusted),
        ] {
            for values in [&["https"][..], &["http"], &["http", "https"], &["https, http"], &[]] {
                assert!(!is_https(&from, values, trusted), "{from:?} {values:?}");
                assert!(is_https(&secured(from.clone()), values, trusted), "{from:?} {values:?}");
            }
        }
        // a stated client that is a trusted proxy itself is believed
        let mut behind = peer("10.0.0.1");
        behind.stated = Some("10.0.0.2:4711".parse().unwrap());
        assert!(is_https(&behind, &["https"], &trusted));
    }

    #[test]
    fn what_a_proxy_says_of_http_is_told_from_a_connection_without_tls() {
        let trusted = proxies(&["10.0.0.0/8"]);
        let (proxy, stranger) = (peer("10.0.0.1"), peer("192.0.2.7"));
        let sealed = secured(proxy.clone());
        for (from, values, expected) in [
            (&proxy, &["http"][..], RequestScheme::ProxiedHttp),
            (&proxy, &["https, ws"], RequestScheme::ProxiedHttp),
            (&sealed, &["http"], RequestScheme::ProxiedHttp),
            (&proxy, &["https"], RequestScheme::Https),
            (&proxy, &["https", "on"], RequestScheme::Http),
            (&proxy, &[], RequestScheme::Http),
            (&sealed, &[], RequestScheme::Https),
            (&stranger, &["http"], RequestScheme::Http),
        ] {
            let scheme = said("X-Forwarded-Proto", values, |head| scheme_of(from, head, &trusted));
            assert_eq!(scheme, expected, "{from:?} {values:?}");
        }
    }

    /// What `Forwarded` says: the client, its scheme, and how many elements count.
    fn by_forwarded(from: &Peer, values: &[&str], trusted: &TrustedProxies) -> String {
        let counts = ForwardedFamily::Forwarded;
        let trusted = &TrustedProxies {
            counts,
            told: counts,
            client: ClientField::Forwarded,
            ..trusted.clone()
        };
        said("Forwarded", values, |head| {
            let scheme = match scheme_of(from, head, trusted) {
                RequestScheme::Https => "https",
                RequestScheme::ProxiedHttp => "http",
                RequestScheme::Http => "-",
            };
            let client = client_of(from, head, trusted);
            format!("{client} {scheme} {}", believed_elements(from, head, trusted))
        })
    }

    #[test]
    fn forwarded_is_walked_over_trusted_proxies() {
        let trusted = proxies(&["10.0.0.0/8", "2001:db8::/32", "unix"]);
        for (from, values, expected) in [
            ("192.0.2.7", &["for=1.1.1.1;proto=https"][..], "192.0.2.7 - 0"),
            ("10.0.0.1", &[], "10.0.0.1 - 0"),
            ("10.0.0.1", &["for=1.1.1.1;proto=https"], "1.1.1.1 https 1"),
            ("unix", &["For=1.1.1.1;PROTO=HTTP"], "1.1.1.1 http 1"),
            ("unix", &["by=_a"], "0.0.0.0 - 1"),
            ("2001:db8::1", &["for=\"[2a00::1]:4711\";proto=\"wss\""], "2a00::1 https 1"),
            // of several elements, those that trusted proxies have written
            ("10.0.0.1", &["for=6.6.6.6;proto=https, for=1.1.1.1;proto=http"], "1.1.1.1 http 1"),
            (
                "10.0.0.1",
                &["for=6.6.6.6", "for=1.1.1.1;proto=https,, for=10.0.0.2", ""],
                "1.1.1.1 https 2",
            ),
            ("10.0.0.1", &["for=\"[2001:db8::9]\"", "for=10.0.0.2;proto=https"], "2001:db8::9 - 2"),
            // the scheme of an element that hides its client counts; the author of the one before is unknown
            ("10.0.0.1", &["for=6.6.6.6, for=_hidden;proto=https"], "10.0.0.1 https 1"),
            ("10.0.0.1", &["for=6.6.6.6, for=unknown, for=10.0.0.2"], "10.0.0.2 - 2"),
            ("10.0.0.1", &["for=6.6.6.6, proto=https"], "10.0.0.1 https 1"),
            ("10.0.0.1", &["for=6.6.6.6, for=0.0.0.0"], "10.0.0.1 - 1"),
            // an element that cannot be read ends the walk
            ("10.0.0.1", &["for=6.6.6.6, for=1.1.1.1;for=2.2.2.2"], "10.0.0.1 - 0"),
            ("10.0.0.1", &["for=6.6.6.6, 1.1.1.1"], "10.0.0.1 - 0"),
            (
                "10.0.0.1",
                &["for=6.6.6.6, for=\"x\"y, for=10.0.0.2;proto=https"],
                "10.0.0.2 https 1",
            ),
            // a quote that a client has left open hides nothing
            ("10.0.0.1", &["for=\"6.6.6.6, for=1.1.1.1;proto=http"], "1.1.1.1 http 1"),
            ("10.0.0.1", &["for=\"6.6.6.6, for=\"[2a00::1]\""], "2a00::1 - 1"),
            ("10.0.0.1", &["for=\"6.6.6.6", "for=1.1.1.1"], "1.1.1.1 - 1"),
            ("10.0.0.1", &["for=1.1.1.1;proto=on"], "1.1.1.1 - 1"),
        ] {
            assert_eq!(by_forwarded(&peer(from), values, &trusted), expected, "{from} {values:?}");
        }
        // a proxy that has only passed bytes on
        let mut through = peer("10.0.0.1");
        through.stated = Some(through.remote);
        assert_eq!(by_forwarded(&through, &["for=1.1.1.1"], &trusted), "10.0.0.1 - 0");
    }

    #[test]
    fn one_family_counts() {
        let trusted = proxies(&["10.0.0.0/8"]);
        let from = peer("10.0.0.1");
        assert_eq!(
            said("Forwarded", &["for=1.1.1.1;proto=https"], |head| {
                (
                    client_of(&from, head, &trusted),
                    scheme_of(&from, head, &trusted),
                    believed_elements(&from, head, &trusted),
                )
            }),
            ("10.0.0.1".parse().unwrap(), RequestScheme::Http, 0)
        );
        let counts = ForwardedFamily::Forwarded;
        let other = TrustedProxies { counts, client: ClientField::Forwarded, ..trusted };
        assert_eq!(client(&from, &["1.1.1.1"], &other), "10.0.0.1");
        assert!(!is_https(&from, &["https"], &other));
    }

    #[test]
    fn a_field_of_its_own_has_the_client() {
        let field = FieldName::parse("CF-Connecting-IP").unwrap();
        let client = ClientField::Named(field);
        let trusted = TrustedProxies { client, ..proxies(&["10.0.0.0/8", "unix"]) };
        let found = |from: &Peer, name: &str, values: &[&str]| {
            said(name, values, |head| client_of(from, head, &trusted).to_string())
        };
        for (from, values, expected) in [
            ("192.0.2.7", &["1.1.1.1"][..], "192.0.2.7"),
            ("10.0.0.1", &["1.1.1.1"], "1.1.1.1"),
            ("unix", &["1.1.1.1"], "1.1.1.1"),
            ("10.0.0.1", &["1.1.1.1:4711"], "1.1.1.1"),
            ("10.0.0.1", &["2a00::1"], "2a00::1"),
            ("10.0.0.1", &["[2a00::1]:4711"], "2a00::1"),
            ("10.0.0.1", &["::ffff:1.1.1.1"], "1.1.1.1"),
            // a proxy that adds has the last word, also where its client is a trusted proxy
            ("10.0.0.1", &["6.6.6.6", "1.1.1.1"], "1.1.1.1"),
            ("10.0.0.1", &["6.6.6.6, 1.1.1.1"], "1.1.1.1"),
            ("10.0.0.1", &["6.6.6.6", "10.0.0.5"], "10.0.0.5"),
            // a value that is no address names no client, whatever stands before it
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("10.0.0.1", &["1.1.1.1", ""], "10.0.0.1"),
            ("10.0.0.1", &["1.1.1.1,"], "10.0.0.1"),
            ("10.0.0.1", &["1.1.1.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["1.1.1.1 2.2.2.2"], "10.0.0.1"),
            ("10.0.0.1", &["fe80::1%eth0"], "10.0.0.1"),
            ("10.0.0.1", &["0.0.0.0"], "10.0.0.1"),
            ("10.0.0.1", &["1.1.1.1/32"], "10.0.0.1"),
        ] {
            assert_eq!(
                found(&peer(from), "cf-connecting-ip", values),
                expected,
                "{from} {values:?}"
            );
        }
        // other fields, and other spellings of this one, say nothing
        for name in ["X-Forwarded-For", "CF_Connecting_IP", "X-Real-IP", "Forwarded"] {
            assert_eq!(
                found(&peer("10.0.0.1"), name, &["for=1.1.1.1", "1.1.1.1"]),
                "10.0.0.1",
                "{name}"
            );
        }
        // a proxy that passes bytes on has said nothing
        let mut through = peer("10.0.0.1");
        through.stated = Some(through.remote);
        assert_eq!(found(&through, "CF-Connecting-IP", &["1.1.1.1"]), "10.0.0.1");
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

        /// A client stays the client, whatever it writes to the left of what the proxy adds.
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

        /// A client stays the client in `Forwarded` too, whatever quotes it leaves open.
        #[test]
        fn nor_does_it_in_forwarded(brought in "[ -~]{0,60}", hops in 0u8..4) {
            let trusted = proxies(&["10.0.0.0/8"]);
            let mut list = vec![brought, "for=203.0.113.9;host=\"a,b\";proto=https".to_owned()];
            list.extend((0..hops).map(|hop| format!("for=10.1.0.{hop};proto=http")));
            let found = by_forwarded(&peer("10.0.0.1"), &[&list.join(", ")], &trusted);
            prop_assert_eq!(found, format!("203.0.113.9 https {}", hops + 1));
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
