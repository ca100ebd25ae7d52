//! What is known of a connection or a request when it is judged.

use crate::certificate::CertificateFacts;
use std::net::SocketAddr;

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// The client's address and port. Port 0 if only the address is known, `0.0.0.0:0` for a program
    /// that came through a Unix socket.
    pub client: SocketAddr,
    /// The address and port that it reached, the real ones also where a listener is bound to all
    /// addresses.
    pub local: SocketAddr,
}

/// A request. Nothing is copied.
#[derive(Clone, Debug)]
pub struct RequestFacts<'f, F> {
    /// The client and the address it reached. Behind a trusted proxy the client is the one that
    /// the proxy states.
    pub ends: ConnectionFacts,
    /// The host in lower case, without port and without a dot at its end; empty if there is none.
    pub host: &'f [u8],
    /// The method as it was sent.
    pub method: &'f str,
    /// The path, decoded and without detours.
    pub path: &'f [u8],
    /// The query as it was sent, without its question mark; empty if there is none.
    pub query: &'f [u8],
    /// The certificate that the client has shown.
    pub certificate: Option<CertificateFacts<'f>>,
    /// The identity that the client has proven.
    pub identity: Option<&'f str>,
    /// All header fields, name and value; values come without surrounding blanks. Walked over only
    /// where a rule asks for fields, and then once for each such rule.
    pub fields: F,
}
