//! The address of an upstream: an IP address and a port, a name, or the path of a Unix socket.

use forebay_http::cidr;
use forebay_sys::client::{self, ConnectOptions};
use forebay_sys::unix_address::{UnixAddress, UnixAddressError};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::{fmt, io};

/// The address of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamAddress {
    /// An IP address and a port.
    Socket(SocketAddr),
    /// A name, with the addresses that it has.
    Name {
        /// The name, in lower case.
        host: Box<str>,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(UnixAddress),
    /// No server: the launcher of this server runs a program for each request.
    Launched(LaunchedUpstream),
    /// One of the servers that the records of a service name (SRV, RFC 2782).
    Service(ServicePlace),
}

/// A place for one of the servers of a service. Which server has it changes with the records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServicePlace {
    /// The name that has the records, in lower case, as in `_http._tcp.app.internal`.
    pub name: Box<str>,
    /// The number of the place.
    pub place: u16,
}

impl ServicePlace {
    /// The largest number of servers of a service.
    pub const MOST: u16 = 32;

    /// The domain: the name without service and protocol, as operators have written it, and not what
    /// a name service says. TLS and `Host` use this name.
    fn domain(&self) -> &str {
        self.name.splitn(3, '.').nth(2).unwrap_or(&self.name)
    }

    /// Reads `_http._tcp.app.internal`.
    fn parse(name: &str) -> Result<UpstreamAddress, AddressError> {
        let is_prefixed = |label: Option<&str>| {
            label.and_then(|label| label.strip_prefix('_')).is_some_and(|rest| !rest.is_empty())
        };
        let mut labels = name.splitn(3, '.');
        let is_service = is_prefixed(labels.next()) && is_prefixed(labels.next());
        let is_name = is_name(name) && labels.next().is_some();
        match is_service && is_name {
            true => Ok(UpstreamAddress::Service(ServicePlace {
                name: name.to_ascii_lowercase().into(),
                place: 0,
            })),
            false => Err(AddressError::Service),
        }
    }
}

/// Whether a text can be the name of a host.
fn is_name(host: &str) -> bool {
    let is_label = |label: &str| {
        let is_good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.bytes().all(is_good)
    };
    // an invalid IP address must not be looked up as a name
    let is_number = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    host.len() <= 253 && host.split('.').all(is_label) && !is_number
}

/// Programs that the launcher of this server runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LaunchedUpstream {
    /// The number by which the launcher knows the program, its user and its limits.
    pub route: u64,
    /// The name of the programs in logs.
    pub name: Box<str>,
}

impl UpstreamAddress {
    /// Begins to connect to the address. A name is not looked up.
    ///
    /// # Errors
    /// What the kernel says at once; `AddrNotAvailable` for names, services and launched programs.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        match self {
            UpstreamAddress::Socket(address) => {
                client::connect(*address, ConnectOptions::default())
            }
            UpstreamAddress::Unix(address) => client::connect_unix(address),
            UpstreamAddress::Name { .. }
            | UpstreamAddress::Launched(_)
            | UpstreamAddress::Service(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// Reads `http://10.0.0.1:9000`, `http://app.internal` (port 80) or `unix:/run/app.sock`.
    ///
    /// # Errors
    /// [`AddressError`] for anything else.
    pub fn http(text: &str) -> Result<UpstreamAddress, AddressError> {
        match HttpUpstream::parse(text)? {
            HttpUpstream { is_tls: true, .. } => Err(AddressError::Tls),
            HttpUpstream { address, .. } => Ok(address),
        }
    }

    /// Reads `127.0.0.1:9000`, `unix:/run/php/php-fpm.sock` or `srv://_fcgi._tcp.app.internal`.
    ///
    /// # Errors
    /// [`AddressError`] for anything else.
    pub fn fastcgi(text: &str) -> Result<UpstreamAddress, AddressError> {
        match (text.strip_prefix("unix:"), text.strip_prefix("srv://")) {
            (Some(path), _) => UpstreamAddress::unix(path),
            (_, Some(name)) => ServicePlace::parse(name),
            (None, None) => UpstreamAddress::of(text, None),
        }
    }

    /// Reads `10.0.0.2:9443` or `b.example:9443`.
    ///
    /// # Errors
    /// [`AddressError`] for anything else.
    pub fn host_and_port(text: &str) -> Result<UpstreamAddress, AddressError> {
        UpstreamAddress::of(text, None)
    }

    fn unix(path: &str) -> Result<UpstreamAddress, AddressError> {
        // unix://run/app.sock, as other servers write it, is not the path it looks like
        match path.strip_prefix("//") {
            Some(_) => Err(AddressError::UnixSlashes),
            None => Ok(UpstreamAddress::Unix(UnixAddress::parse(path)?)),
        }
    }

    fn of(authority: &str, port: Option<u16>) -> Result<UpstreamAddress, AddressError> {
        if let Ok(address) = authority.parse::<SocketAddr>() {
            return match address.port() {
                0 => Err(AddressError::Port),
                _ => Ok(UpstreamAddress::Socket(cidr::canonical(address))),
            };
        }
        let bare = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(authority).parse::<IpAddr>() {
            return match (ip, bare, port) {
                (IpAddr::V6(_), None, _) => Err(AddressError::Form),
                (_, _, Some(port)) => Ok(UpstreamAddress::Socket((ip.to_canonical(), port).into())),
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
        match is_name(host) {
            true => Ok(UpstreamAddress::Name { host: host.to_ascii_lowercase().into(), port }),
            false => Err(AddressError::Form),
        }
    }

    /// Whether a name service knows the address.
    pub fn is_looked_up(&self) -> bool {
        matches!(self, UpstreamAddress::Name { .. } | UpstreamAddress::Service(_))
    }

    /// The places for servers that the address stands for: several for a service.
    pub fn places(self) -> Vec<UpstreamAddress> {
        match self {
            UpstreamAddress::Service(service) => (0..ServicePlace::MOST)
                .map(|place| UpstreamAddress::Service(ServicePlace { place, ..service.clone() }))
                .collect(),
            other => vec![other],
        }
    }

    /// The name or the address alone, as TLS names a server. It is `localhost` for Unix sockets and
    /// launched programs, and the domain for a service, which is what an operator has written and not
    /// what its records say.
    pub fn host(&self) -> String {
        match self {
            UpstreamAddress::Socket(address) => address.ip().to_string(),
            UpstreamAddress::Name { host, .. } => host.to_string(),
            UpstreamAddress::Unix(_) | UpstreamAddress::Launched(_) => "localhost".to_owned(),
            UpstreamAddress::Service(service) => service.domain().to_owned(),
        }
    }

    /// The host and port, as a request names them; `localhost` for Unix sockets and launched
    /// programs, and the domain for a service.
    pub fn authority(&self) -> String {
        match self {
            UpstreamAddress::Unix(_)
            | UpstreamAddress::Launched(_)
            | UpstreamAddress::Service(_) => self.host(),
            other => other.to_string(),
        }
    }
}

/// The address of an upstream that speaks HTTP, and whether the connection has TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUpstream {
    /// The address.
    pub address: UpstreamAddress,
    /// Whether the connection has TLS.
    pub is_tls: bool,
}

impl HttpUpstream {
    /// Reads what [`UpstreamAddress::http`] does, and `https://app.internal` (port 443). Each may also have
    /// `srv+` before it and the name of a service.
    ///
    /// # Errors
    /// [`AddressError`] for anything else.
    pub fn parse(text: &str) -> Result<HttpUpstream, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(HttpUpstream { address: UpstreamAddress::unix(path)?, is_tls: false });
        }
        let (is_service, text) = match text.get(..4).is_some_and(|s| s.eq_ignore_ascii_case("srv+"))
        {
            true => (true, &text[4..]),
            false => (false, text),
        };
        let without = |scheme: &str| {
            let start = text.get(..scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then(|| &text[scheme.len()..])
        };
        let (authority, is_tls) = match (without("http://"), without("https://")) {
            (Some(authority), _) => (authority, false),
            (_, Some(authority)) => (authority, true),
            (None, None) => return Err(AddressError::Scheme),
        };
        if authority.contains(['/', '?', '#']) {
            return Err(AddressError::Path);
        }
        if is_service {
            return Ok(HttpUpstream { address: ServicePlace::parse(authority)?, is_tls });
        }
        let port = if is_tls { 443 } else { 80 };
        Ok(HttpUpstream { address: UpstreamAddress::of(authority, Some(port))?, is_tls })
    }
}

impl fmt::Display for HttpUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.address, self.is_tls) {
            (unix @ (UpstreamAddress::Unix(_) | UpstreamAddress::Launched(_)), _) => unix.fmt(f),
            (UpstreamAddress::Service(service), is_tls) => {
                write!(f, "srv+{}://{}", if is_tls { "https" } else { "http" }, service.name)
            }
            (address, false) => write!(f, "http://{address}"),
            (address, true) => write!(f, "https://{address}"),
        }
    }
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpstreamAddress::Socket(address) => address.fmt(f),
            UpstreamAddress::Name { host, port } => write!(f, "{host}:{port}"),
            UpstreamAddress::Unix(path) => write!(f, "unix:{path}"),
            UpstreamAddress::Launched(launched) => f.write_str(&launched.name),
            // people count from one
            UpstreamAddress::Service(service) => {
                write!(f, "{}#{}", service.name, service.place + 1)
            }
        }
    }
}

/// Why a text is no address of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// The address asks for TLS.
    Tls,
    /// The address does not begin with `http://`, `https://` or `unix:`.
    Scheme,
    /// A path follows the host.
    Path,
    /// The port is missing where one is needed, or is not a port.
    Port,
    /// The text is no name of a Unix socket.
    Unix(UnixAddressError),
    /// There are two slashes behind `unix:`.
    UnixSlashes,
    /// The text is no name of a service.
    Service,
    /// The text is neither a name nor an address.
    Form,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            AddressError::Unix(error) => return error.fmt(f),
            AddressError::Tls => {
                "TLS is not spoken here; write http:// and keep the way there private"
            }
            AddressError::Scheme => {
                "it begins with http://, https:// or unix:, or with srv+http:// or srv+https://"
            }
            AddressError::Path => {
                "no path belongs here, not even /; strip and prefix say how paths change"
            }
            AddressError::Port => "a port from 1 to 65535 is needed, as in app.internal:9000",
            AddressError::UnixSlashes => {
                "behind unix: stands the path of a socket, with one slash before it"
            }
            AddressError::Service => {
                "the name of a service begins with two labels of its own, as in _http._tcp.app.internal, and has no \
                 port: its records say which"
            }
            AddressError::Form => "it is neither a name nor an address",
        };
        f.write_str(text)
    }
}

impl From<UnixAddressError> for AddressError {
    fn from(error: UnixAddressError) -> AddressError {
        AddressError::Unix(error)
    }
}

impl std::error::Error for AddressError {}

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
            ("unix:@app", "unix:@app"),
            ("http://[::ffff:127.0.0.1]:9000", "127.0.0.1:9000"),
            ("http://[::ffff:127.0.0.1]", "127.0.0.1:80"),
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
            ("unix:", Unix(UnixAddressError::Empty)),
            ("unix:@", Unix(UnixAddressError::Empty)),
            ("unix:/", Unix(UnixAddressError::Directory)),
            ("unix://run/app.sock", UnixSlashes),
        ] {
            assert_eq!(UpstreamAddress::http(text), Err(expected), "{text}");
            assert!(!expected.to_string().is_empty());
        }
        assert_eq!(UpstreamAddress::http("unix:/a").unwrap().authority(), "localhost");
        for (text, expected, host) in [
            ("https://10.0.0.1", "https://10.0.0.1:443", "10.0.0.1"),
            ("HTTPS://App.internal:8443", "https://app.internal:8443", "app.internal"),
            ("https://[::1]", "https://[::1]:443", "::1"),
            ("http://app", "http://app:80", "app"),
            ("unix:/run/app.sock", "unix:/run/app.sock", "localhost"),
        ] {
            let read = HttpUpstream::parse(text).unwrap();
            assert_eq!(read.to_string(), expected);
            assert_eq!(read.address.host(), host);
            assert_eq!(read.is_tls, expected.starts_with("https"));
        }
        assert_eq!(HttpUpstream::parse("https://"), Err(Form));
        assert_eq!(HttpUpstream::parse("https://a/b"), Err(Path));
        for (text, expected) in [
            ("127.0.0.1:9000", Ok("127.0.0.1:9000")),
            ("[::ffff:127.0.0.1]:9000", Ok("127.0.0.1:9000")),
            ("unix:@php", Ok("unix:@php")),
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
