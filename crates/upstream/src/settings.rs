//! What a person decides about applications behind.

use crate::{fastcgi, request};
use forebay_http::field::FieldName;
use forebay_http::response::ResponseHeadLimits;
use forebay_sys::client::{self, ConnectOptions};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

/// The longest path of a Unix socket, bytes (`sockaddr_un`, with a NUL at the end).
const MOST_UNIX_BYTES: usize = 107;

/// Where an upstream listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamAddress {
    /// At this address.
    Socket(SocketAddr),
    /// At the addresses that this name has.
    Name {
        /// The name, in lower case.
        host: Box<str>,
        /// The port.
        port: u16,
    },
    /// At a Unix socket with this path.
    Unix(PathBuf),
}

impl UpstreamAddress {
    /// Begins to connect to it. A name is not looked up.
    ///
    /// # Errors
    /// What the kernel says at once; `AddrNotAvailable` for a name.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        match self {
            UpstreamAddress::Socket(address) => {
                client::connect(*address, ConnectOptions::default())
            }
            UpstreamAddress::Unix(path) => client::connect_unix(path),
            UpstreamAddress::Name { .. } => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// Reads `http://10.0.0.1:9000`, `http://app.internal` (port 80) or `unix:/run/app.sock`.
    ///
    /// # Errors
    /// [`AddressError`] for anything else.
    pub fn http(text: &str) -> Result<UpstreamAddress, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return UpstreamAddress::unix(path);
        }
        let has_scheme = |scheme: &str| {
            text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        if has_scheme("https://") {
            return Err(AddressError::Tls);
        }
        if !has_scheme("http://") {
            return Err(AddressError::Scheme);
        }
        let authority = &text["http://".len()..];
        if authority.contains(['/', '?', '#']) {
            return Err(AddressError::Path);
        }
        UpstreamAddress::of(authority, Some(80))
    }

    /// Reads `127.0.0.1:9000` or `unix:/run/php/php-fpm.sock`.
    ///
    /// # Errors
    /// [`AddressError`] for anything else.
    pub fn fastcgi(text: &str) -> Result<UpstreamAddress, AddressError> {
        match text.strip_prefix("unix:") {
            Some(path) => UpstreamAddress::unix(path),
            None => UpstreamAddress::of(text, None),
        }
    }

    fn unix(path: &str) -> Result<UpstreamAddress, AddressError> {
        let is_good = !matches!(path, "" | "/" | "//")
            && path.len() <= MOST_UNIX_BYTES
            && !path.contains('\0')
            && !path.starts_with("//");
        is_good.then(|| UpstreamAddress::Unix(path.into())).ok_or(AddressError::Unix)
    }

    fn of(authority: &str, port: Option<u16>) -> Result<UpstreamAddress, AddressError> {
        if let Ok(address) = authority.parse::<SocketAddr>() {
            return match address.port() {
                0 => Err(AddressError::Port),
                _ => Ok(UpstreamAddress::Socket(address)),
            };
        }
        let bare = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(authority).parse::<IpAddr>() {
            return match (ip, bare, port) {
                (IpAddr::V6(_), None, _) => Err(AddressError::Form),
                (_, _, Some(port)) => Ok(UpstreamAddress::Socket((ip, port).into())),
                (_, _, None) => Err(AddressError::Port),
            };
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, digits)) => {
                let is_number = digits.bytes().all(|b| b.is_ascii_digit());
                let port = digits.parse().ok().filter(|port| is_number && *port != 0);
                (host, port.ok_or(AddressError::Port)?)
            }
            None => (authority, port.ok_or(AddressError::Port)?),
        };
        let is_label = |label: &str| {
            let is_good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
            (1..=63).contains(&label.len()) && label.bytes().all(is_good)
        };
        // what looks like an address and is none would be looked up as a name
        let is_number = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        match host.len() <= 253 && host.split('.').all(is_label) && !is_number {
            true => Ok(UpstreamAddress::Name { host: host.to_ascii_lowercase().into(), port }),
            false => Err(AddressError::Form),
        }
    }

    /// Host and port, as a request would name them; `localhost` behind a Unix socket.
    pub fn authority(&self) -> String {
        match self {
            UpstreamAddress::Unix(_) => "localhost".to_owned(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpstreamAddress::Socket(address) => address.fmt(f),
            UpstreamAddress::Name { host, port } => write!(f, "{host}:{port}"),
            UpstreamAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why a text is no address of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// TLS is asked for.
    Tls,
    /// It does not begin with `http://` or `unix:`.
    Scheme,
    /// A path follows the host.
    Path,
    /// There is no port where one is needed, or it is none.
    Port,
    /// No path of a Unix socket.
    Unix,
    /// Neither a name nor an address.
    Form,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressError::Tls => {
                "TLS is not spoken to applications; write http:// and keep the way there private"
            }
            AddressError::Scheme => "it begins with http:// or unix:",
            AddressError::Path => {
                "no path belongs here, not even /; strip and prefix say how paths change"
            }
            AddressError::Port => "a port from 1 to 65535 is needed, as in app.internal:9000",
            AddressError::Unix => "behind unix: stands the path of a socket, of at most 107 bytes",
            AddressError::Form => "it is neither a name nor an address",
        })
    }
}

impl std::error::Error for AddressError {}

/// Which upstream is asked next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// One after the other.
    RoundRobin,
    /// The one with the fewest requests under way.
    #[default]
    Least,
    /// Of two that are drawn, the one with fewer.
    TwoChoices,
    /// The same for the same key, unless it has far more than its share.
    Hash,
}

/// What decides where requests go that are balanced by hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BalanceKey {
    /// The client.
    #[default]
    Client,
    /// The target.
    Url,
    /// A cookie; the client, if it has none.
    Cookie(Box<str>),
}

/// Idle connections to one upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAliveSettings {
    /// So many at most; 0 keeps none.
    pub connections: u32,
    /// For so long.
    pub idle: Duration,
}

/// Requests that wait while all upstreams have as much under way as they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// So many at most; with 0 none does.
    pub requests: u32,
    /// For so long.
    pub time: Duration,
}

/// How long an upstream may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// Until there is a connection.
    pub connect: Duration,
    /// From the last byte of the request to the last byte of the answer's head.
    pub head: Duration,
    /// Between two bytes of a body, in either direction.
    pub silence: Duration,
}

/// When and how upstreams are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheckSettings {
    /// For this path.
    pub path: Box<str>,
    /// So often.
    pub interval: Duration,
    /// It is well if it answers with one of these, bounds included.
    pub statuses: Vec<(u16, u16)>,
}

/// What is said of a client's address before anything else (PROXY protocol).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// In a line.
    V1,
    /// In bytes.
    V2,
}

/// Several upstreams that do the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// Where they are; at least one.
    pub to: Vec<UpstreamAddress>,
    /// Which is asked.
    pub balance: Balance,
    /// By what, if that is by hash.
    pub key: BalanceKey,
    /// Requests under way to each, at most.
    pub in_flight: Option<u32>,
    /// Those that wait while all have as many.
    pub queue: QueueSettings,
    /// Idle connections to each.
    pub keep_alive: KeepAliveSettings,
    /// How long each may take.
    pub timeouts: UpstreamTimeouts,
    /// How often one request is sent again, at most.
    pub retries: u32,
    /// How many requests of all may be sent again, in thousandths.
    pub retry_permille: u32,
    /// So many failures in a row put one out; 0 never does.
    pub max_fails: u32,
    /// For so long, at first, and then twice as long each time.
    pub fail_time: Duration,
    /// In so long one that is back gets its whole share.
    pub slow_start: Duration,
    /// Whether they are asked before there are requests for them.
    pub check: Option<HealthCheckSettings>,
    /// Whether a client that has shut down writing has left.
    pub abort_on_close: bool,
}

impl GroupSettings {
    /// Whether both have the same upstreams, and know the same of them: what is decided about these is,
    /// and not what is decided about a request. Then they share them.
    pub fn shares_with(&self, other: &GroupSettings) -> bool {
        let shared = |group: &GroupSettings| GroupSettings {
            key: BalanceKey::default(),
            keep_alive: other.keep_alive,
            timeouts: other.timeouts,
            retries: other.retries,
            abort_on_close: other.abort_on_close,
            ..group.clone()
        };
        shared(self) == shared(other)
    }
}

/// What becomes of the bodies of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodySettings {
    /// They may have so many bytes.
    pub most_bytes: u64,
    /// One with so many is collected before an application is asked that speaks FastCGI.
    pub spool_bytes: u64,
}

/// What answers where an upstream has answered with an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Errors {
    /// The upstream.
    #[default]
    Theirs,
    /// The site, with its page for the status.
    Ours,
}

/// A route to upstreams that speak HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// The upstreams that answer.
    pub group: GroupSettings,
    /// What they are told.
    pub request: request::RequestSettings,
    /// The bodies of requests.
    pub bodies: BodySettings,
    /// Whether addresses and cookies in answers are rewritten to lead back here.
    pub rewrites: bool,
    /// How large the heads of answers may be.
    pub limits: ResponseHeadLimits,
    /// Which error pages clients see.
    pub errors: Errors,
    /// What is said of the client first.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// So much of an answer is received before its client takes it, in bytes.
    pub buffer_bytes: u64,
    /// It answers no requests, but says which may pass.
    pub authority: Option<ForwardAuthSettings>,
}

/// What is asked of a server that says which requests may pass, and what becomes of its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardAuthSettings {
    /// The path, decoded, and the query that it is asked for.
    pub path: Box<[u8]>,
    /// The query.
    pub query: Option<Box<[u8]>>,
    /// Fields of its answer that the request has from then on, instead of the client's.
    pub copy: Vec<FieldName>,
}

/// A route to upstreams that speak FastCGI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCgiSettings {
    /// The upstreams that answer.
    pub group: GroupSettings,
    /// What they are told.
    pub request: fastcgi::ScriptSettings,
    /// The bodies of requests.
    pub bodies: BodySettings,
    /// How large the heads of answers may be.
    pub limits: ResponseHeadLimits,
    /// Which error pages clients see.
    pub errors: Errors,
    /// So much of an answer is received before its client takes it, in bytes.
    pub buffer_bytes: u64,
}

/// A route to an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationSettings {
    /// One that speaks HTTP.
    Proxy(ProxySettings),
    /// One that speaks FastCGI.
    FastCgi(FastCgiSettings),
}

impl ApplicationSettings {
    /// The upstreams that answer.
    pub fn group(&self) -> &GroupSettings {
        match self {
            ApplicationSettings::Proxy(proxy) => &proxy.group,
            ApplicationSettings::FastCgi(fastcgi) => &fastcgi.group,
        }
    }

    /// How large the heads of answers may be.
    pub fn limits(&self) -> ResponseHeadLimits {
        match self {
            ApplicationSettings::Proxy(proxy) => proxy.limits,
            ApplicationSettings::FastCgi(fastcgi) => fastcgi.limits,
        }
    }

    /// What becomes of the bodies of requests.
    pub fn bodies(&self) -> BodySettings {
        match self {
            ApplicationSettings::Proxy(proxy) => proxy.bodies,
            ApplicationSettings::FastCgi(fastcgi) => fastcgi.bodies,
        }
    }

    /// Which error pages clients see.
    pub fn errors(&self) -> Errors {
        match self {
            ApplicationSettings::Proxy(proxy) => proxy.errors,
            ApplicationSettings::FastCgi(fastcgi) => fastcgi.errors,
        }
    }

    /// So much of an answer is received before its client takes it, in bytes.
    pub fn buffer_bytes(&self) -> u64 {
        match self {
            ApplicationSettings::Proxy(proxy) => proxy.buffer_bytes,
            ApplicationSettings::FastCgi(fastcgi) => fastcgi.buffer_bytes,
        }
    }

    /// What one that speaks HTTP has alone.
    pub fn proxy(&self) -> Option<&ProxySettings> {
        match self {
            ApplicationSettings::Proxy(proxy) => Some(proxy),
            ApplicationSettings::FastCgi(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_upstreams() {
        for (text, expected) in [
            ("http://10.0.0.1:9000", "10.0.0.1:9000"),
            ("HTTP://10.0.0.1", "10.0.0.1:80"),
            ("http://[::1]:9000", "[::1]:9000"),
            ("http://[::1]", "[::1]:80"),
            ("http://App.internal", "app.internal:80"),
            ("http://app_1:8080", "app_1:8080"),
            ("unix:/run/app.sock", "unix:/run/app.sock"),
            ("unix:app.sock", "unix:app.sock"),
        ] {
            assert_eq!(
                UpstreamAddress::http(text).map(|address| address.to_string()).as_deref(),
                Ok(expected)
            );
        }
        use AddressError::*;
        for (text, expected) in [
            ("https://10.0.0.1", Tls),
            ("10.0.0.1:9000", Scheme),
            ("ftp://10.0.0.1", Scheme),
            ("", Scheme),
            ("http://10.0.0.1:9000/", Path),
            ("http://10.0.0.1?x", Path),
            ("http://10.0.0.1:0", Port),
            ("http://app:99999", Port),
            ("http://app:", Port),
            ("http://app:+80", Port),
            ("http://", Form),
            ("http://::1", Form),
            ("http://a@b", Form),
            ("http://10.0.0.256", Form),
            ("http://a..b", Form),
            ("unix:", Unix),
            ("unix://run/app.sock", Unix),
        ] {
            assert_eq!(UpstreamAddress::http(text), Err(expected), "{text}");
            assert!(!expected.to_string().is_empty());
        }
        assert_eq!(UpstreamAddress::http("unix:/a").unwrap().authority(), "localhost");
        for (text, expected) in [
            ("127.0.0.1:9000", Ok("127.0.0.1:9000")),
            ("php:9000", Ok("php:9000")),
            ("unix:/run/php/php-fpm.sock", Ok("unix:/run/php/php-fpm.sock")),
            ("127.0.0.1", Err(Port)),
            ("php", Err(Port)),
            ("http://php:9000", Err(Form)),
        ] {
            let found = UpstreamAddress::fastcgi(text).map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected.as_deref(), "{text}");
        }
    }
}
