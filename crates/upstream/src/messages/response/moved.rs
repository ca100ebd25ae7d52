//! Addresses in an answer that name the upstream, or a path as the upstream sees it. They are
//! rewritten so that they lead to this server.

use crate::messages::target::Base;
use forebay_http::path;

/// The address of an upstream as it sees itself, and as the client sees it.
#[derive(Clone, Copy, Debug)]
pub struct Moved<'m> {
    /// The host and port of the upstream.
    pub authority: &'m str,
    /// Whether the connection to the upstream has TLS.
    pub is_tls: bool,
    /// The host that the upstream got in the request, if that is another. An address that names it
    /// with another scheme stays as it is: the upstream wants the scheme to change, and otherwise the
    /// client would be redirected to the same address without end.
    pub named: Option<&'m str>,
    /// The host that the client has asked for.
    pub client: &'m [u8],
    /// The beginning of the client's paths.
    pub strip: &'m Base,
    /// The beginning of the upstream's paths.
    pub prefix: &'m Base,
    /// The beginning of the client's paths before `strip`, as a trusted proxy says: see
    /// `client_url::outer_prefix`.
    pub outer: &'m [u8],
}

impl Moved<'_> {
    /// The rewritten value of `Location`; `None` if it stays as it is.
    pub(super) fn address(&self, value: &[u8]) -> Option<Vec<u8>> {
        let (was_named, rest) = match host_of(value) {
            Some((is_https, authority, rest)) if self.is_upstream(is_https, authority) => {
                (true, rest)
            }
            Some(_) => return None,
            None => (false, value),
        };
        let path = match rest.first() {
            Some(b'/') => rest,
            // the address ends with its host
            None | Some(b'?' | b'#') if was_named => &[b"/", rest].concat(),
            _ => return None,
        };
        let end = path.iter().position(|b| matches!(b, b'?' | b'#')).unwrap_or(path.len());
        let moved = self.path(&path[..end]);
        if moved.is_none() && !was_named {
            return None;
        }
        let mut moved = moved.unwrap_or_else(|| path[..end].to_vec());
        // two slashes would begin a host, and browsers take a backslash for a slash
        if matches!(moved[..], [b'/', b'/' | b'\\', ..]) {
            return None;
        }
        moved.extend_from_slice(&path[end..]);
        Some(moved)
    }

    /// The rewritten value of `Refresh`, which has seconds and an address.
    pub(super) fn refresh(&self, value: &[u8]) -> Option<Vec<u8>> {
        let is_url = |four: &[u8]| four.eq_ignore_ascii_case(b"url=");
        let at = value.windows(4).position(is_url)? + 4;
        let (start, address) = value.split_at(at);
        let mut moved = start.to_vec();
        match address {
            [quote @ (b'"' | b'\''), inside @ .., last] if quote == last => {
                moved.push(*quote);
                moved.extend(self.address(inside)?);
                moved.push(*quote);
            }
            address => moved.extend(self.address(address)?),
        }
        Some(moved)
    }

    /// The rewritten value of `Set-Cookie`. A domain that the client's host is not in is left out,
    /// and the path begins as the client's paths do. A cookie that is bound to its host by its name
    /// has no other path than `/` (RFC 6265bis §4.1.3.2).
    pub(super) fn cookie(&self, value: &[u8]) -> Option<Vec<u8>> {
        const BOUND: &[u8] = b"__Host-";
        let mut parts = value.split(|&b| b == b';');
        let mut moved = parts.next()?.to_vec();
        let name = moved.trim_ascii_start();
        if name.get(..BOUND.len()).is_some_and(|start| start.eq_ignore_ascii_case(BOUND)) {
            return None;
        }
        let mut is_other = false;
        for part in parts {
            let equals = part.iter().position(|&b| b == b'=');
            let (name, text) = part.split_at(equals.unwrap_or(part.len()));
            let text = text.get(1..).unwrap_or_default().trim_ascii();
            let is = |other: &[u8]| name.trim_ascii().eq_ignore_ascii_case(other);
            if is(b"domain") && self.is_theirs_alone(text) {
                is_other = true;
                continue;
            }
            moved.push(b';');
            match Some(text).filter(|_| is(b"path")).and_then(|text| self.cookie_path(text)) {
                Some(path) => {
                    is_other = true;
                    moved.extend_from_slice(b" Path=");
                    moved.extend(path);
                }
                None => moved.extend_from_slice(part),
            }
        }
        is_other.then_some(moved)
    }

    /// The rewritten path of a cookie. There `/api` is `/api` and all beneath it, and `/api/` is not
    /// `/api` (RFC 6265 §5.1.4), so a path that covers all of the upstream must cover all that the
    /// client sees of it.
    fn cookie_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        let whole = match self.prefix.len_in(path) {
            Some(len) if &path[len..] == b"/" => &path[..len],
            _ => path,
        };
        self.path(whole)
    }

    /// The client's path for one of the upstream's; `None` if they are the same.
    fn path(&self, path: &[u8]) -> Option<Vec<u8>> {
        if self.strip == self.prefix {
            return None;
        }
        let len = self.prefix.len_in(path)?;
        // an application that knows the stripped path (X-Forwarded-Prefix) has put it there itself
        if self.prefix.is_empty() && self.leads_back(path) {
            return None;
        }
        let mut moved = Vec::new();
        path::encode(self.strip.as_str().as_bytes(), &mut moved);
        moved.extend_from_slice(&path[len..]);
        if moved.is_empty() {
            moved.push(b'/');
        }
        Some(moved)
    }

    /// Whether a path is already as the client sees it.
    fn leads_back(&self, path: &[u8]) -> bool {
        let inner = path.strip_prefix(self.outer).filter(|_| !self.outer.is_empty());
        [Some(path), inner].into_iter().flatten().any(|path| self.strip.len_in(path).is_some())
    }

    fn is_upstream(&self, is_https: bool, authority: &[u8]) -> bool {
        let usual: &[u8] = if self.is_tls { b":443" } else { b":80" };
        let plain = |authority: &[u8]| {
            let name = authority.strip_suffix(usual).unwrap_or(authority);
            name.to_ascii_lowercase()
        };
        let found = plain(authority);
        let is = |known: &str| plain(known.as_bytes()) == found;
        is(self.authority) || self.named.is_some_and(|named| is_https == self.is_tls && is(named))
    }

    /// Whether a domain covers the upstream and not the client's host.
    fn is_theirs_alone(&self, domain: &[u8]) -> bool {
        let domain = domain.strip_prefix(b".").unwrap_or(domain);
        let has = |authority: &[u8]| {
            let host = without_port(authority).to_ascii_lowercase();
            let front = host.strip_suffix(&domain.to_ascii_lowercase()[..]);
            front.is_some_and(|front| front.is_empty() || front.ends_with(b"."))
        };
        !domain.is_empty()
            && [Some(self.authority), self.named]
                .iter()
                .flatten()
                .any(|known| has(known.as_bytes()))
            && !has(self.client)
    }
}

/// The host of an address that has one, and the rest; the flag says whether the scheme is `https`.
fn host_of(address: &[u8]) -> Option<(bool, &[u8], &[u8])> {
    let starts: [&[u8]; 3] = [b"http://", b"https://", b"//"];
    let start = starts.iter().find(|start| {
        address.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
    })?;
    let rest = &address[start.len()..];
    let is_end = |b: &u8| matches!(b, b'/' | b'?' | b'#' | b'\\');
    let (host, rest) = rest.split_at(rest.iter().position(is_end).unwrap_or(rest.len()));
    Some((start.len() == b"https://".len(), host, rest))
}

fn without_port(authority: &[u8]) -> &[u8] {
    match authority.iter().rposition(|&b| b == b':') {
        Some(at) if authority[at + 1..].iter().all(u8::is_ascii_digit) => &authority[..at],
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(text: &str) -> Base {
        if text.is_empty() { Base::default() } else { Base::parse(text).unwrap() }
    }

    /// The rewritten value; `None` if it stays as it is.
    fn moved(
        act: impl Fn(&Moved<'_>, &[u8]) -> Option<Vec<u8>>,
        strip: &str,
        prefix: &str,
        value: &str,
    ) -> Option<String> {
        let (strip, prefix) = (base(strip), base(prefix));
        let moved = Moved {
            authority: "app.internal:9000",
            is_tls: false,
            named: Some("10.0.0.1:80"),
            client: b"shop.example:8443",
            strip: &strip,
            prefix: &prefix,
            outer: b"/outer",
        };
        act(&moved, value.as_bytes()).map(|value| String::from_utf8(value).unwrap())
    }

    #[test]
    fn redirects_of_upstreams_behind_tls_lead_back_here() {
        let (strip, prefix) = (base(""), base(""));
        let moved = Moved {
            authority: "app.internal:443",
            is_tls: true,
            named: Some("shop.example"),
            client: b"shop.example",
            strip: &strip,
            prefix: &prefix,
            outer: b"",
        };
        for (value, expected) in [
            ("https://app.internal/a", Some("/a")),
            ("https://app.internal:443/a", Some("/a")),
            ("https://shop.example/a", Some("/a")),
            ("http://shop.example/a", None),
            ("https://other.internal/a", None),
        ] {
            let found = moved.address(value.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{value}");
        }
    }

    #[test]
    fn redirects_lead_back_here() {
        for (strip, prefix, value, expected) in [
            ("", "", "http://10.0.0.1:80/a?b#c", Some("/a?b#c")),
            ("", "", "http://10.0.0.1/a", Some("/a")),
            ("", "", "https://APP.internal:9000", Some("/")),
            ("", "", "//app.internal:9000?q", Some("/?q")),
            ("", "", "http://app.internal/a", None),
            ("", "", "http://shop.example/a", None),
            ("", "", "https://10.0.0.1/a", None),
            ("", "", "/a", None),
            ("", "", "a/b", None),
            ("", "", "?a", None),
            ("", "", "", None),
            ("/api", "", "/a?b", Some("/api/a?b")),
            ("/api", "", "http://10.0.0.1/a", Some("/api/a")),
            ("/api", "/v1", "/v1/a", Some("/api/a")),
            ("/api", "/v1", "/v1", Some("/api")),
            ("/api", "/v1", "/v1?q", Some("/api?q")),
            ("/api", "/v1", "/v10/a", None),
            ("", "/v1", "/v1", Some("/")),
            ("", "/v1", "/v1/a", Some("/a")),
            ("/a b", "", "/c", Some("/a%20b/c")),
            // the application has added the prefix itself
            ("/api", "", "/api/a?b", None),
            ("/api", "", "/api", None),
            ("/api", "", "/api?q", None),
            ("/a b", "", "/a%20b/c", None),
            ("/api", "", "/outer/api/a", None),
            ("/api", "", "/outer/a", Some("/api/outer/a")),
            ("/api", "", "/apis", Some("/api/apis")),
            ("/api", "", "http://10.0.0.1/api/a", Some("/api/a")),
            ("/api", "/api/v1", "/api/v1/a", Some("/api/a")),
            ("/api/v1", "/api", "/api/v1/a", Some("/api/v1/v1/a")),
            // never a redirect to another host
            ("", "", "http://10.0.0.1//evil.example/", None),
            ("", "", "http://10.0.0.1/\\evil.example/", None),
            ("", "", "http://10.0.0.1\\@evil.example/", None),
            ("", "/v1", "/v1//evil.example/", None),
            ("", "", "http://10.0.0.1@evil.example/", None),
        ] {
            let found = moved(|moved, value| moved.address(value), strip, prefix, value);
            assert_eq!(found.as_deref(), expected, "{strip} {prefix} {value}");
        }
    }

    #[test]
    fn so_do_pages_that_refresh() {
        for (value, expected) in [
            ("5; url=/a", Some("5; url=/api/a")),
            ("0;URL=\"http://10.0.0.1/a\"", Some("0;URL=\"/api/a\"")),
            ("0; url='/a'", Some("0; url='/api/a'")),
            ("5", None),
            ("5; url=https://other.example/", None),
        ] {
            assert_eq!(
                moved(|moved, value| moved.refresh(value), "/api", "", value).as_deref(),
                expected,
                "{value}"
            );
        }
    }

    #[test]
    fn cookies_come_back_here() {
        for (strip, value, expected) in [
            ("", "a=b; Path=/; HttpOnly", None),
            ("", "a=b; Domain=app.internal; Secure", Some("a=b; Secure")),
            ("", "a=b; domain=.Internal", Some("a=b")),
            ("", "a=b; Domain=shop.example", None),
            ("", "a=b; Domain=", None),
            ("", "a=b; Domain=pp.internal", None),
            ("/api", "a=b; Path=/api", None),
            ("/api", "a=b; Path=/api/; Secure", None),
            ("/api", "a=b; Path=/outer/api", None),
            ("/api", "a=b;path=/;Secure", Some("a=b; Path=/api;Secure")),
            ("/api", "a=b; Path=/x/", Some("a=b; Path=/api/x/")),
            ("/api", "__Host-a=b; Path=/; Secure", None),
            ("/api", "__HOST-a=b; Secure; Path=/", None),
            ("/api", "__Secure-a=b; Path=/", Some("__Secure-a=b; Path=/api")),
            ("/api", "a=Path=/; Path=/x; Max-Age=5", Some("a=Path=/; Path=/api/x; Max-Age=5")),
            ("/api", "a=b", None),
        ] {
            let found = moved(|moved, value| moved.cookie(value), strip, "", value);
            assert_eq!(found.as_deref(), expected, "{strip} {value}");
        }
    }
}
