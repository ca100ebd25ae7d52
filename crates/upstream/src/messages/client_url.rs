//! The beginning of URLs as clients see them, which applications are informed of: host, port and the
//! path that is stripped.
//!
//! | the client has asked for | port that is sent |
//! |---|---|
//! | a host with a port, IPv6 or not | that port |
//! | a host without one | the default port of the scheme |
//! | no host (HTTP/1.0) | none: the host that is sent is the application's own |
//!
//! The port that a connection has come to is not used: behind a proxy that ends TLS, or behind a
//! mapped port, no client can reach it.

use crate::messages::target::Base;
use forebay_http::forwarded::{Element, ForwardedFamily, members_from_last};
use forebay_http::head::Head;
use forebay_http::path;
use std::borrow::Cow;

/// What a trusted proxy says about the client's URL. Empty by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientUrl<'h> {
    /// `X-Forwarded-Host`, or `host` of `Forwarded`.
    pub host: Option<Cow<'h, [u8]>>,
    /// `X-Forwarded-Port`
    pub port: Option<&'h [u8]>,
    /// `X-Forwarded-Prefix`
    pub prefix: Option<&'h [u8]>,
}

impl<'h> ClientUrl<'h> {
    /// Reads the head of a trusted proxy. Of its `Forwarded`, the last `elements` elements count.
    pub fn of(head: &Head<'h>, family: ForwardedFamily, elements: usize) -> ClientUrl<'h> {
        match family {
            ForwardedFamily::XForwarded => ClientUrl {
                host: last(head, "X-Forwarded-Host").map(Cow::Borrowed),
                port: last(head, "X-Forwarded-Port"),
                prefix: last(head, "X-Forwarded-Prefix"),
            },
            ForwardedFamily::Forwarded => {
                let outermost = elements.checked_sub(1);
                let member = outermost.and_then(|at| members_from_last(head).nth(at));
                let host = member.and_then(Element::parse).and_then(|element| {
                    element.get("host").filter(|host| is_host(host)).map(<[u8]>::to_vec)
                });
                ClientUrl { host: host.map(Cow::Owned), ..ClientUrl::default() }
            }
        }
    }

    /// The path before the stripped one in the client's URL; empty if there is none. It concerns addresses
    /// that an application has written with a prefix of its own.
    pub fn outer_prefix(&self) -> &'h [u8] {
        let outer = self.prefix.unwrap_or_default();
        outer.strip_suffix(b"/").unwrap_or(outer)
    }

    /// The path in the client's URL before the one that the application sees: what a trusted proxy
    /// has stripped, then what is stripped here. The latter is left out if the application's paths
    /// begin with `prefix`, since such an application writes it itself.
    pub(crate) fn whole_prefix(
        &self,
        (strip, prefix): (&Base, &Base),
        is_stripped: bool,
    ) -> Vec<u8> {
        let mut whole = self.prefix.unwrap_or_default().to_vec();
        if is_stripped && prefix.is_empty() {
            if whole.ends_with(b"/") {
                whole.pop();
            }
            path::encode(strip.as_str().as_bytes(), &mut whole);
        }
        whole
    }
}

/// Whether a quoted text may be in a host field. A proxy may have quoted anything that its client has
/// sent.
fn is_host(text: &[u8]) -> bool {
    let is_part = |b: &u8| b.is_ascii_alphanumeric() || b"-._~%:[]".contains(b);
    !text.is_empty() && text.iter().all(is_part)
}

/// The last element of a list. Elements to its left may come from the client itself.
fn last<'h>(head: &Head<'h>, name: &str) -> Option<&'h [u8]> {
    let values = head.fields().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    let (_, last) = values.last()?;
    let last = last.rsplit(|&b| b == b',').next().unwrap_or_default().trim_ascii();
    (!last.is_empty()).then_some(last)
}

/// The port of the `host` that a client has asked for; `None` if it has named no host.
pub(crate) fn port(host: &[u8], is_secure: bool) -> Option<&[u8]> {
    if host.is_empty() {
        return None;
    }
    let (_, port) = split(host);
    let is_number = !port.is_empty() && port.iter().all(u8::is_ascii_digit);
    let usual: &[u8] = if is_secure { b"443" } else { b"80" };
    Some(if is_number { port } else { usual })
}

/// Splits an authority into host and port; the port is empty if there is none.
pub(crate) fn split(authority: &[u8]) -> (&[u8], &[u8]) {
    let bracket = authority.iter().rposition(|&b| b == b']');
    match authority.iter().rposition(|&b| b == b':') {
        Some(colon) if bracket.is_none_or(|bracket| bracket < colon) => {
            (&authority[..colon], &authority[colon + 1..])
        }
        _ => (authority, b""),
    }
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
