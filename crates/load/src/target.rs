//! The server that requests go to: an `http://` or `https://` URL, parsed and resolved once.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

/// A server, and the default path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadTarget {
    /// The address to connect to.
    pub address: SocketAddr,
    /// Whether the server speaks TLS.
    pub is_tls: bool,
    /// The value of `Host`: name and port as written.
    pub authority: String,
    /// Path and query, at least `/`.
    pub path: String,
}

/// Why a URL is not a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetError {
    /// The scheme is neither `http` nor `https`.
    Scheme(String),
    /// The URL has a character that no URL may have.
    Sign(String, char),
    /// The URL has no host, or its port is not a number.
    Authority(String),
    /// The host name has no address.
    Unresolved(String),
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetError::Scheme(url) => {
                write!(f, "{url}: only http:// and https:// URLs can be loaded")?;
                match url.contains("://") {
                    true => Ok(()),
                    false => write!(f, ", did you mean http://{url}?"),
                }
            }
            TargetError::Sign(url, ' ') => write!(f, "{url}: a URL has no blanks, write %20"),
            TargetError::Sign(url, sign) => {
                let encoded = |byte| format!("%{byte:02X}");
                let bytes: String = sign.encode_utf8(&mut [0; 4]).bytes().map(encoded).collect();
                write!(f, "{url:?}: a URL has no {sign:?}, write {bytes}")
            }
            TargetError::Authority(url) => write!(f, "{url}: no host, or its port is wrong"),
            TargetError::Unresolved(host) => write!(f, "{host}: the name has no address"),
        }
    }
}

impl TargetError {
    /// Whether the only error is that the name has no address.
    pub fn is_unresolved(&self) -> bool {
        matches!(self, TargetError::Unresolved(_))
    }
}

impl LoadTarget {
    /// Parses `http[s]://host[:port][/path]` and resolves the host; the first address is used.
    ///
    /// # Errors
    /// The text is not such a URL, or the name has no address.
    pub fn parse(url: &str) -> Result<LoadTarget, TargetError> {
        let (is_tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            (None, None) => return Err(TargetError::Scheme(url.to_owned())),
        };
        if let Some(sign) = rest.chars().find(|sign| !sign.is_ascii_graphic()) {
            return Err(TargetError::Sign(url.to_owned(), sign));
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = match path {
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/{path}"),
        };
        let wrong = || TargetError::Authority(url.to_owned());
        let has_port = authority.rfind(':') > authority.rfind(']');
        let (host, port) = match authority.rsplit_once(':').filter(|_| has_port) {
            Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
            None => (authority, if is_tls { 443 } else { 80 }),
        };
        let host = unbracketed(host);
        if host.is_empty() {
            return Err(wrong());
        }
        let mut addresses =
            (host, port).to_socket_addrs().map_err(|_| TargetError::Unresolved(host.to_owned()))?;
        let address = addresses.next().ok_or_else(|| TargetError::Unresolved(host.to_owned()))?;
        Ok(LoadTarget { address, is_tls, authority: authority.to_owned(), path })
    }

    /// The scheme of the URL.
    pub fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }
}

/// The host in a value of `Host`: without port and without brackets.
pub(crate) fn host(authority: &str) -> &str {
    let has_port = authority.rfind(':') > authority.rfind(']');
    let host = authority.rsplit_once(':').filter(|_| has_port).map_or(authority, |(host, _)| host);
    unbracketed(host)
}

fn unbracketed(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let target = LoadTarget::parse("http://127.0.0.1:8080/a?b=c").unwrap();
        assert_eq!(target.address, "127.0.0.1:8080".parse().unwrap());
        assert_eq!((&*target.authority, &*target.path), ("127.0.0.1:8080", "/a?b=c"));
        let target = LoadTarget::parse("http://[::1]").unwrap();
        assert_eq!(target.address, "[::1]:80".parse().unwrap());
        assert_eq!(target.path, "/");
        let target = LoadTarget::parse("https://[::1]").unwrap();
        assert_eq!(target.address, "[::1]:443".parse().unwrap());
        assert!(target.is_tls && host(&target.authority) == "::1");
        assert_eq!(
            (host("a.example:8443"), host("a.example"), host("[::1]:8")),
            ("a.example", "a.example", "::1")
        );
    }

    #[test]
    fn what_cannot_be_loaded_is_said() {
        assert!(matches!(LoadTarget::parse("ftp://a/"), Err(TargetError::Scheme(_))));
        let said = LoadTarget::parse("127.0.0.1:80/a").unwrap_err().to_string();
        assert!(said.ends_with(", did you mean http://127.0.0.1:80/a?"), "{said}");
        assert!(matches!(LoadTarget::parse("http:///"), Err(TargetError::Authority(_))));
        assert!(matches!(LoadTarget::parse("http://a:b/"), Err(TargetError::Authority(_))));
        let said = LoadTarget::parse("http://127.0.0.1/a b").unwrap_err().to_string();
        assert_eq!(said, "http://127.0.0.1/a b: a URL has no blanks, write %20");
        let said = LoadTarget::parse("http://127.0.0.1/\u{e9}").unwrap_err().to_string();
        assert!(said.ends_with("a URL has no '\u{e9}', write %C3%A9"), "{said}");
    }
}
