//! Method and version of a request, and the protocol that an extended CONNECT asks for.

/// The request's method. Names are case-sensitive (RFC 9110 §9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `OPTIONS`
    Options,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `PATCH`
    Patch,
    /// `TRACE`
    Trace,
    /// `CONNECT`
    Connect,
    /// Any other token.
    Unknown,
}

impl Method {
    pub(crate) fn from_token(token: &str) -> Method {
        match token {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "OPTIONS" => Method::Options,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            "PATCH" => Method::Patch,
            "TRACE" => Method::Trace,
            "CONNECT" => Method::Connect,
            _ => Method::Unknown,
        }
    }
}

/// The version of the message. No other version with the major version 1 exists; one that claims to
/// be is refused with 505 like another major version. HTTP/2 has no text; its heads come
/// [decoded](super::Head::decoded).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
}

/// The protocol that an extended CONNECT of HTTP/2 asks for on its stream (RFC 8441 §4).
///
/// Such a request is the GET with `Upgrade` that it stands for in HTTP/1.1: it has the same path,
/// rules and logs. Only the change of protocol may be answered with a status of 2xx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunnel {
    /// A WebSocket (RFC 8441 §5).
    WebSocket,
    /// A protocol that is not known here.
    Unknown,
}

impl Tunnel {
    /// The protocol of a value of `:protocol`, in any case (RFC 9110 §16.7).
    pub fn from_token(token: &[u8]) -> Tunnel {
        match token.eq_ignore_ascii_case(b"websocket") {
            true => Tunnel::WebSocket,
            false => Tunnel::Unknown,
        }
    }

    /// The protocol as a word, from which it can be [read](Tunnel::from_token) again.
    pub fn token(self) -> &'static str {
        match self {
            Tunnel::WebSocket => "websocket",
            Tunnel::Unknown => "unknown",
        }
    }
}
