//! How a client's address of a resource begins, as an application is told it: host, port and the path that is
//! stripped.
//!
//! | the client has asked for | port that is told |
//! |---|---|
//! | a host with a port, IPv6 or not | that port |
//! | a host without one | the usual one of the scheme |
//! | no host (HTTP/1.0) | none: the host that is told is the application's own |
//!
//! The port that a connection has come to is not among them: behind a proxy that ends TLS, or behind a port that
//! is mapped, no client can reach it.

use crate::target::Base;
use forebay_http::head::Head;
use forebay_http::path;

/// The port of what a client calls `host`; `None` if it has named no host.
pub(crate) fn port(host: &[u8], is_secure: bool) -> Option<&[u8]> {
    if host.is_empty() {
        return None;
    }
    let (_, port) = split(host);
    let is_number = !port.is_empty() && port.iter().all(u8::is_ascii_digit);
    let usual: &[u8] = if is_secure { b"443" } else { b"80" };
    Some(if is_number { port } else { usual })
}

/// A host, and its port; empty if it has none.
pub(crate) fn split(authority: &[u8]) -> (&[u8], &[u8]) {
    let bracket = authority.iter().rposition(|&b| b == b']');
    match authority.iter().rposition(|&b| b == b':') {
        Some(colon) if bracket.is_none_or(|bracket| bracket < colon) => {
            (&authority[..colon], &authority[colon + 1..])
        }
        _ => (authority, b""),
    }
}

/// What the nearest proxy, if it is trusted, has said in a field: the last element, for what stands left of
/// that may be the client's own.
pub(crate) fn told<'h>(head: &Head<'h>, is_trusted: bool, name: &str) -> Option<&'h [u8]> {
    let values = head.fields().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    let (_, last) = values.last().filter(|_| is_trusted)?;
    let last = last.rsplit(|&b| b == b',').next().unwrap_or_default().trim_ascii();
    (!last.is_empty()).then_some(last)
}

/// What the client's path has before the one that the application sees: what a trusted proxy has stripped, then
/// what is stripped here. Empty if there is none, or none that could be put before it: an application whose paths
/// begin with `prefix` writes them so itself.
pub(crate) fn prefix(
    head: &Head<'_>,
    is_trusted: bool,
    (strip, prefix): (&Base, &Base),
    is_stripped: bool,
) -> Vec<u8> {
    let mut whole = told(head, is_trusted, "X-Forwarded-Prefix").unwrap_or_default().to_vec();
    if is_stripped && prefix.is_empty() {
        if whole.ends_with(b"/") {
            whole.pop();
        }
        path::encode(strip.as_str().as_bytes(), &mut whole);
    }
    whole
}

/// The path that a client's address has before what is stripped here, as a trusted proxy has it; empty if there is
/// none. For what an application has put before its own addresses.
pub fn outer_prefix<'h>(head: &Head<'h>, is_trusted: bool) -> &'h [u8] {
    let outer = told(head, is_trusted, "X-Forwarded-Prefix").unwrap_or_default();
    outer.strip_suffix(b"/").unwrap_or(outer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_fits_host_and_scheme() {
        for (host, plain, secure) in [
            ("a.example", Some("80"), Some("443")),
            ("a.example:8443", Some("8443"), Some("8443")),
            ("a.example:", Some("80"), Some("443")),
            ("a.example:x", Some("80"), Some("443")),
            ("[2001:db8::1]", Some("80"), Some("443")),
            ("[2001:db8::1]:81", Some("81"), Some("81")),
            ("192.0.2.1:443", Some("443"), Some("443")),
            ("", None, None),
        ] {
            for (is_secure, expected) in [(false, plain), (true, secure)] {
                let found = port(host.as_bytes(), is_secure);
                assert_eq!(found, expected.map(str::as_bytes), "{host} {is_secure}");
            }
        }
    }
}
