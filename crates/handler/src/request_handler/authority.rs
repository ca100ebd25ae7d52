//! The answers of deciding servers: where users sign in, which cookies they get; no cache keeps a
//! decision.

use forebay_conn::Request;
use forebay_http::head::Head;
use forebay_http::path;
use forebay_http::response::Response;
use forebay_site::host_of;
use forebay_upstream::settings::{ProxySettings, SignInPart};
use std::borrow::Cow;
use std::sync::Arc;

/// The field in which browsers say what they use an answer for.
const MODE: &str = "Sec-Fetch-Mode";

/// Where the client of a request goes to sign in, if that is configured and a user has opened a page.
pub(super) fn sign_in(
    proxy: &ProxySettings,
    request: &Request<'_>,
    is_secure: bool,
) -> Option<Vec<u8>> {
    let parts = proxy.authority.as_ref()?.sign_in.as_ref()?;
    opens_page(request.head).then(|| address(parts, request, is_secure))
}

/// Whether a request may come from a user who opens a page. Clients that do not send the field may be
/// such.
fn opens_page(head: &Head<'_>) -> bool {
    let mut modes = head.fields().filter(|(name, _)| name.eq_ignore_ascii_case(MODE));
    head.tunnel.is_none() && modes.all(|(_, mode)| mode.eq_ignore_ascii_case(b"navigate"))
}

fn address(parts: &[SignInPart], request: &Request<'_>, is_secure: bool) -> Vec<u8> {
    let head = request.head;
    let mut writer = AddressWriter { out: Vec::new(), is_query: false };
    for part in parts {
        match part {
            SignInPart::Text(text) => {
                writer.is_query |= text.contains('?');
                writer.out.extend_from_slice(text.as_bytes());
            }
            SignInPart::Scheme => {
                writer.out.extend_from_slice(if is_secure { b"https" } else { b"http" });
            }
            SignInPart::Host => {
                let host = host_of(head.authority).to_ascii_lowercase();
                match writer.is_query {
                    true => writer.value(&host),
                    false => writer.out.extend_from_slice(&host),
                }
            }
            // the URL that the client wants, which is encoded once more where it is a value
            SignInPart::Path => {
                let mut encoded = Vec::new();
                match request.path() {
                    Ok(normal) => path::encode(&normal, &mut encoded),
                    Err(_) => encoded.extend_from_slice(head.path),
                }
                match writer.is_query {
                    true => writer.value(&encoded),
                    false => writer.out.extend_from_slice(&encoded),
                }
            }
            SignInPart::Query => {
                for part in head.query.iter().flat_map(|query| [b"?", *query]) {
                    match writer.is_query {
                        true => writer.value(part),
                        false => writer.out.extend_from_slice(part),
                    }
                }
            }
        }
    }
    path::keep_on_host(&mut writer.out, 0);
    writer.out
}

/// Writes a URL.
struct AddressWriter {
    out: Vec<u8>,
    /// Whether the writer is behind a question mark.
    is_query: bool,
}

impl AddressWriter {
    /// Appends text of a client, encoded so that it never ends its part of the URL.
    fn value(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
                self.out.push(byte);
            } else {
                self.out.extend_from_slice(format!("%{byte:02X}").as_bytes());
            }
        }
    }
}

/// Turns an answer into a redirect to where users sign in.
pub(super) fn lead_to<'h>(address: Vec<u8>, said: &mut Vec<(&'h str, Cow<'h, [u8]>)>) {
    let is_replaced = |name: &str| {
        ["WWW-Authenticate", "Location"].iter().any(|other| name.eq_ignore_ascii_case(other))
    };
    said.retain(|(name, _)| !is_replaced(name));
    said.push(("Location", Cow::Owned(address)));
}

/// Has caches keep no redirect in `head`, unless the head says for how long: after the sign-in the page
/// is asked for again.
pub(super) fn keep_from_caches(status: u16, head: &mut Vec<u8>) {
    const NAME: &[u8] = b"cache-control:";
    let is_it =
        |line: &[u8]| line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME));
    if (300..400).contains(&status) && !head.split(|&b| b == b'\n').any(is_it) {
        head.extend_from_slice(b"Cache-Control: no-store\r\n");
    }
}

/// These field lines, followed by those for the cookies that another deciding server has set.
pub(super) fn cookies(known: Option<Arc<[u8]>>, answer: &Response<'_>) -> Option<Arc<[u8]>> {
    let mut lines = Vec::new();
    for value in answer.values("Set-Cookie") {
        for part in [b"Set-Cookie: ", value, b"\r\n"] {
            lines.extend_from_slice(part);
        }
    }
    match known {
        _ if lines.is_empty() => known,
        Some(known) => Some([&known, lines.as_slice()].concat().into()),
        None => Some(lines.into()),
    }
}
