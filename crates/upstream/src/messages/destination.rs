//! Addresses of resources in the fields of a request, as WebDAV has them: `Destination`, and the tags of `If`
//! (RFC 4918 §10.3, §10.4).
//!
//! A client writes them as it sees the server. Many applications compare scheme and host with those
//! of their own connection, and look for the path where they have it themselves, so that each COPY
//! and MOVE through a proxy fails. Here such addresses are rewritten to what the application would
//! have been asked for. An address of another server stays as it is: the application answers with
//! 502, as the RFC says.

use crate::messages::client_url::split;
use crate::messages::target::{self, Ambiguous, Base, JudgedPath, TargetRefusal};
use forebay_http::path;

/// The addresses that an application gets in `Destination` and `If`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DestinationTold {
    /// The client's addresses, unchanged.
    #[default]
    Client,
    /// The application's own addresses, by the connection to it.
    Upstream {
        /// Whether that connection has TLS.
        is_tls: bool,
    },
}

/// How the client's addresses are rewritten for an application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressView<'v> {
    /// The hosts by which the client knows this server.
    pub(crate) client: [&'v [u8]; 2],
    /// Whether the connection to the application has TLS.
    pub(crate) is_tls: bool,
    /// The host that the application gets.
    pub(crate) host: &'v [u8],
    /// The beginning of the client's paths, which the application does not see.
    pub(crate) strip: &'v Base,
    /// The beginning of the application's paths.
    pub(crate) prefix: &'v Base,
    /// How ambiguous paths are treated.
    pub(crate) ambiguous: Ambiguous,
}

impl AddressView<'_> {
    /// The rewritten value of `Destination`; `None` if it stays as it is.
    ///
    /// # Errors
    /// The path can be read in more than one way, or does not belong to the application.
    pub(crate) fn destination(&self, value: &[u8]) -> Result<Option<Vec<u8>>, TargetRefusal> {
        let Some((host, rest)) = parts(value) else { return Ok(None) };
        let is_own = |host: &(bool, &[u8])| self.client.iter().any(|own| is_same(*host, own));
        if host.as_ref().is_some_and(|host| !is_own(host)) {
            return Ok(None);
        }
        let mut moved = Vec::with_capacity(value.len());
        if host.is_some() {
            moved.extend_from_slice(if self.is_tls { b"https://" } else { b"http://" });
            moved.extend_from_slice(self.host);
        }
        let (begin, end) = (moved.len(), rest.iter().position(|b| matches!(b, b'?' | b'#')));
        let (raw, query) = rest.split_at(end.unwrap_or(rest.len()));
        let raw = if raw.is_empty() { b"/" } else { raw };
        let mut normal = Vec::new();
        let unread = TargetRefusal::Ambiguous("The destination has no path");
        path::normalise(raw, &mut normal).map_err(|_| unread)?;
        let judged = JudgedPath::Normal(&normal);
        // rules have judged only this reading, so the application must not find another one
        let ambiguous = match self.ambiguous {
            Ambiguous::Normalise => Ambiguous::Normalise,
            Ambiguous::Refuse | Ambiguous::Pass => Ambiguous::Refuse,
        };
        target::push(raw, judged, ambiguous, &mut moved)?;
        if !target::rebase(begin, judged, (self.strip, self.prefix), &mut moved)? {
            return Err(TargetRefusal::Elsewhere);
        }
        moved.extend_from_slice(query);
        Ok(Some(moved))
    }

    /// The value of `If` with the addresses of resources rewritten, which are in angle brackets
    /// outside of lists. Addresses that do not belong to the application, or can be read in more than
    /// one way, stay as they are.
    pub(crate) fn conditions(&self, value: &[u8]) -> Vec<u8> {
        let mut moved = Vec::with_capacity(value.len());
        let (mut depth, mut rest) = (0u32, value);
        while let Some((&first, after)) = rest.split_first() {
            let end = || after.iter().position(|&b| b == b'>');
            if first == b'<'
                && depth == 0
                && let Some(end) = end()
            {
                let tag = &after[..end];
                let own = self.destination(tag).ok().flatten();
                moved.push(b'<');
                moved.extend_from_slice(own.as_deref().unwrap_or(tag));
                rest = &after[end..];
                continue;
            }
            match first {
                b'(' => depth += 1,
                b')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            moved.push(first);
            rest = after;
        }
        moved
    }
}

/// The parts of an HTTP URL or a path: whether the scheme is `https`, and the host, if there is one;
/// and the rest.
#[expect(clippy::type_complexity, reason = "three words for one caller")]
fn parts(value: &[u8]) -> Option<(Option<(bool, &[u8])>, &[u8])> {
    let value = value.trim_ascii();
    if value.starts_with(b"/") && !value.starts_with(b"//") {
        return Some((None, value));
    }
    let starts: [(&[u8], bool); 2] = [(b"http://", false), (b"https://", true)];
    let (start, is_https) = starts.into_iter().find(|(start, _)| {
        value.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
    })?;
    let rest = &value[start.len()..];
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (host, rest) = rest.split_at(end);
    Some((Some((is_https, host)), rest))
}

/// Whether the host of a URL is one by which the client knows this server. The default port of the
/// scheme counts as no port.
fn is_same((is_https, host): (bool, &[u8]), own: &[u8]) -> bool {
    let usual: &[u8] = if is_https { b"443" } else { b"80" };
    let plain = |authority: &[u8]| {
        let (name, port) = split(authority);
        let port = if port == usual { b"" } else { port };
        (name.to_ascii_lowercase(), port.to_vec())
    };
    !own.is_empty() && plain(host) == plain(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(text: &str) -> Base {
        if text.is_empty() { Base::default() } else { Base::parse(text).unwrap() }
    }

    fn view<'v>(strip: &'v Base, prefix: &'v Base) -> AddressView<'v> {
        AddressView {
            client: [b"dav.example", b"outer.example:8443"],
            is_tls: false,
            host: b"10.0.0.1:8080",
            strip,
            prefix,
            ambiguous: Ambiguous::Refuse,
        }
    }

    #[test]
    fn destinations_become_the_applications() {
        let (strip, none, prefix) = (base("/dav"), base(""), base("/v1"));
        let ambiguous = Err("The path has a detour: //, /./ or /../; see `ambiguous`");
        for (strip, prefix, value, expected) in [
            (
                &strip,
                &none,
                "https://dav.example/dav/a%20b",
                Ok(Some("http://10.0.0.1:8080/a%20b")),
            ),
            (&strip, &none, "https://DAV.example:443/dav", Ok(Some("http://10.0.0.1:8080/"))),
            (&strip, &none, "http://dav.example/dav/x?y", Ok(Some("http://10.0.0.1:8080/x?y"))),
            (&strip, &none, "https://outer.example:8443/dav/x", Ok(Some("http://10.0.0.1:8080/x"))),
            (&strip, &none, "/dav/x", Ok(Some("/x"))),
            (&strip, &prefix, "https://dav.example/dav/x/", Ok(Some("http://10.0.0.1:8080/v1/x/"))),
            (&none, &none, "https://dav.example/dav/x", Ok(Some("http://10.0.0.1:8080/dav/x"))),
            (&none, &none, "https://dav.example", Ok(Some("http://10.0.0.1:8080/"))),
            // other servers, other ports, and what is no address
            (&strip, &none, "https://other.example/dav/x", Ok(None)),
            (&strip, &none, "https://dav.example:8443/dav/x", Ok(None)),
            (&strip, &none, "https://dav.example@other.example/dav/x", Ok(None)),
            (&strip, &none, "//dav.example/dav/x", Ok(None)),
            (&strip, &none, "ftp://dav.example/dav/x", Ok(None)),
            (&strip, &none, "", Ok(None)),
            // the application would take this path for one of its own
            (
                &strip,
                &none,
                "https://dav.example/davx/x",
                Err("The destination is not within this application"),
            ),
            (&strip, &none, "/other/x", Err("The destination is not within this application")),
            (&strip, &none, "https://dav.example/dav/../other", ambiguous),
            (&strip, &none, "/dav//x", ambiguous),
        ] {
            let moved = view(strip, prefix).destination(value.as_bytes());
            let moved = moved.map(|moved| moved.map(|bytes| String::from_utf8(bytes).unwrap()));
            assert_eq!(
                moved.as_ref().map(Option::as_deref).map_err(|error| error.reason()),
                expected,
                "{value}"
            );
        }
    }

    #[test]
    fn tags_of_conditions_become_the_applications() {
        let (strip, none) = (base("/dav"), base(""));
        for (value, expected) in [
            (
                "<https://dav.example/dav/a> (<urn:uuid:1> [\"e\"]) (Not <DAV:no-lock>) </dav/b> (<urn:uuid:2>)",
                "<http://10.0.0.1:8080/a> (<urn:uuid:1> [\"e\"]) (Not <DAV:no-lock>) </b> (<urn:uuid:2>)",
            ),
            ("(<https://dav.example/dav/a>)", "(<https://dav.example/dav/a>)"),
            ("<https://other.example/dav/a> ([\"e\"])", "<https://other.example/dav/a> ([\"e\"])"),
            ("</other/a> ([\"e\"])", "</other/a> ([\"e\"])"),
            ("<https://dav.example/dav/a", "<https://dav.example/dav/a"),
            (")<", ")<"),
        ] {
            let moved = view(&strip, &none).conditions(value.as_bytes());
            assert_eq!(String::from_utf8(moved).unwrap(), expected);
        }
    }
}
