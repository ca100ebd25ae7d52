//! The request, as a handler gets it. It owns its data, whatever becomes of the connection's buffers.

use super::pipe::HandlerPipe;
use crate::messages::request::protocols;
use forebay_http::head::{Head, Method, Tunnel};
use std::error::Error;
use std::fmt;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

/// The parts of a request.
#[derive(Clone, Debug)]
pub struct RequestParts {
    /// The method as it was sent.
    pub method: Box<str>,
    /// The path, decoded and without `.` and `..`.
    pub path: Box<[u8]>,
    /// The target as it was sent.
    pub target: Box<[u8]>,
    /// The query: what follows the first `?` of the target.
    pub query: Option<Box<[u8]>>,
    /// The host and port that were asked for.
    pub host: Box<[u8]>,
    /// The version of HTTP: 10, 11 or 20.
    pub version: u8,
    /// Whether the client came by https.
    pub is_secure: bool,
    /// The names and values of the fields, in their order.
    pub fields: Vec<(Box<str>, Box<[u8]>)>,
    /// The client's end of the connection, or the client that a trusted proxy names, with port 0.
    pub client: SocketAddr,
    /// The end of the connection that the client has reached.
    pub local: Option<SocketAddr>,
    /// The class of the request; empty without a policy.
    pub class: Box<str>,
    /// The user, if the site has asked for a password.
    pub user: Option<Box<[u8]>>,
    /// The number of the request in logs.
    pub id: Box<str>,
    /// The other protocols that the client asks for, if the handler may change to one.
    pub upgrade: Option<UpgradeParts>,
}

/// The other protocols that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeParts {
    /// One protocol, or several in the order of the client's preference, as in the field `Upgrade`.
    pub protocols: Box<str>,
    /// The answer to the key of a WebSocket.
    pub accept: Option<Box<str>>,
}

/// The other protocols that a request asks for, if its method and framing allow a change. `tunnel` is
/// the protocol of an extended CONNECT.
pub fn asked_protocols(head: &Head<'_>, tunnel: Option<Tunnel>) -> Option<Box<str>> {
    let protocols = protocols(head, tunnel);
    let is_asked = !protocols.is_empty() && head.method != Method::Head;
    is_asked.then(|| String::from_utf8_lossy(&protocols).into())
}

/// A request, as a handler has it: head, client, and the body to read.
#[derive(Debug)]
pub struct InsideRequest {
    parts: RequestParts,
    pipe: Arc<HandlerPipe>,
}

/// The error for a body with more bytes than the handler takes.
#[derive(Debug)]
struct BodyTooLarge {
    most: usize,
}

impl fmt::Display for BodyTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the body of the request has more than {} bytes", self.most)
    }
}

impl Error for BodyTooLarge {}

/// Whether a handler has returned the error of [`InsideRequest::body`] for a body that is too large.
pub(super) fn is_body_too_large(error: &(dyn Error + 'static)) -> bool {
    let from_body = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    from_body.is_some_and(|inner| inner.is::<BodyTooLarge>())
}

/// The bytes as text; empty if they are not UTF-8. The bytes themselves have a function of their own.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

impl InsideRequest {
    pub(super) fn new(parts: RequestParts, pipe: Arc<HandlerPipe>) -> InsideRequest {
        InsideRequest { parts, pipe }
    }

    /// The method, such as `GET`.
    pub fn method(&self) -> &str {
        &self.parts.method
    }

    /// The path, decoded and without `.` and `..`, as rules have judged it; empty if it is not UTF-8.
    pub fn path(&self) -> &str {
        text(&self.parts.path)
    }

    /// The path as bytes, decoded and without `.` and `..`.
    pub fn path_bytes(&self) -> &[u8] {
        &self.parts.path
    }

    /// The target as the client has sent it.
    pub fn target(&self) -> &[u8] {
        &self.parts.target
    }

    /// The query, as it was sent; empty without one.
    pub fn query(&self) -> &str {
        text(self.parts.query.as_deref().unwrap_or_default())
    }

    /// The value of a parameter of the query, decoded: `+` is a space, `%41` an A. If several have
    /// this name, the first.
    pub fn parameter(&self, name: &str) -> Option<String> {
        parameter(self.parts.query.as_deref()?, name)
    }

    /// The host and port that were asked for.
    pub fn host(&self) -> &str {
        text(&self.parts.host)
    }

    /// The version of HTTP: 10, 11 or 20.
    pub fn version(&self) -> u8 {
        self.parts.version
    }

    /// Whether the client came by https, to this server or to a proxy that is trusted.
    pub fn is_secure(&self) -> bool {
        self.parts.is_secure
    }

    /// The value of a field, or of the first with this name; `None` also if it is not UTF-8.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.field_bytes(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The value of a field as bytes.
    pub fn field_bytes(&self, name: &str) -> Option<&[u8]> {
        self.fields().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All fields, in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.parts.fields.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The address of the client.
    pub fn client(&self) -> IpAddr {
        self.parts.client.ip().to_canonical()
    }

    /// The client's end of the connection. If a proxy names the client, the port is 0.
    pub fn client_address(&self) -> SocketAddr {
        self.parts.client
    }

    /// The end of the connection that the client has reached, if it is known.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.parts.local
    }

    /// The class that rules have given to the request; empty without a policy.
    pub fn class(&self) -> &str {
        &self.parts.class
    }

    /// The name of the user that has signed in, where the site asks for a password.
    pub fn user(&self) -> Option<&str> {
        self.parts.user.as_deref().map(text)
    }

    /// The number of the request in logs.
    pub fn id(&self) -> &str {
        &self.parts.id
    }

    /// The other protocol that the client asks for, such as `websocket`; if there are several, all,
    /// with commas. `None` also where the handler takes no upgrades. To accept, the handler [changes
    /// to one](super::InsideResponse::switch); any other answer refuses.
    pub fn upgrade(&self) -> Option<&str> {
        self.parts.upgrade.as_ref().map(|upgrade| &*upgrade.protocols)
    }

    /// The answer to the key of a WebSocket, if the client asks for this protocol.
    pub(super) fn switches_to(&self, protocol: &str) -> Option<Option<&str>> {
        let upgrade = self.parts.upgrade.as_ref()?;
        let mut asked = upgrade.protocols.split(',').map(str::trim);
        let is_asked = asked.any(|asked| asked.eq_ignore_ascii_case(protocol));
        let accept = upgrade.accept.as_deref();
        is_asked.then(|| accept.filter(|_| protocol.eq_ignore_ascii_case("websocket")))
    }

    /// Reads the body for a task, which is woken when more of it has come. 0 at the end of the body.
    ///
    /// # Errors
    /// The client has left.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        self.pipe.poll_read_body(cx, out)
    }

    /// Reads the whole body, of at most `most` bytes.
    ///
    /// # Errors
    /// `FileTooLarge` if the body is longer: if a handler returns this error, its client gets 413.
    /// Another error if the client has left.
    pub fn body(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
        Read::take(&mut *self, limit).read_to_end(&mut bytes)?;
        if bytes.len() > most {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, BodyTooLarge { most }));
        }
        Ok(bytes)
    }

    /// The trailers, once all of the body was read.
    pub fn trailers(&self) -> Vec<(Box<str>, Box<[u8]>)> {
        self.pipe.request_trailers()
    }

    /// Whether all of the body was read, or there is none.
    pub fn is_at_end(&self) -> bool {
        self.pipe.is_upload_over()
    }

    /// Whether the client has left. No client reads an answer any more then.
    pub fn is_left(&self) -> bool {
        self.pipe.is_left()
    }
}

/// Reads the body, and waits for more of it.
impl Read for InsideRequest {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.pipe.read_body(out)
    }
}

/// The first parameter of a query with this name, decoded.
fn parameter(query: &[u8], name: &str) -> Option<String> {
    let pairs = query.split(|&b| b == b'&').map(|pair| {
        let end = pair.iter().position(|&b| b == b'=').unwrap_or(pair.len());
        (&pair[..end], pair.get(end + 1..).unwrap_or_default())
    });
    let mut found = pairs.filter(|(key, _)| decoded(key) == name.as_bytes());
    found.next().map(|(_, value)| String::from_utf8_lossy(&decoded(value)).into_owned())
}

fn decoded(text: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    let digit = |at: usize| text.get(at).and_then(|&b| (b as char).to_digit(16));
    while let Some(&byte) = text.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
                continue;
            }
            (b'+', ..) => out.push(b' '),
            _ => out.push(byte),
        }
        at += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = b"a=1&b=x+y%21&c&=none&b=second&%64=%zz%4";
        let get = |name| parameter(query, name);
        assert_eq!(get("a").as_deref(), Some("1"));
        assert_eq!(get("b").as_deref(), Some("x y!"));
        assert_eq!(get("c").as_deref(), Some(""));
        assert_eq!(get("d").as_deref(), Some("%zz%4"), "what is no code stays");
        assert_eq!(get("e"), None);
        assert_eq!(parameter(b"", "a"), None);
    }
}
