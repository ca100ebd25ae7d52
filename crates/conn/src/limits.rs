//! Bounds on what one connection may ask for.

use forebay_http::head;

/// Bounds on what one connection may ask for.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Size of a request head, and of the trailer section of a chunked body.
    pub head: head::HeadLimits,
    /// Bytes of a request body that are read and discarded; the lines between chunks do not count.
    pub body_bytes: u64,
    /// Requests on one connection; the last answer says `Connection: close`.
    pub requests: u32,
    /// Requests that a client may have under way at once on a connection of HTTP/2; 0 where HTTP/2 is not
    /// spoken.
    pub streams: u32,
    /// Whether requests of HTTP/2 may open tunnels (RFC 8441), because an application may take them.
    pub tunnels: bool,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            head: head::HeadLimits::default(),
            body_bytes: 1024 * 1024,
            requests: 10_000,
            streams: 128,
            tunnels: false,
        }
    }
}
