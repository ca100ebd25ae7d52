//! The facts about a connection or a request by which it is judged.

use crate::certificate::CertificateFacts;
use std::net::SocketAddr;

/// The addresses of both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// The client's address and port. Port 0 means that only the address is known, `0.0.0.0:0` that
    /// the client came through a Unix socket.
    pub client: SocketAddr,
    /// The server's address and port that the client reached: the real ones, also where a listener
    /// is bound to all addresses.
    pub local: SocketAddr,
}

/// The facts about a request. Nothing is copied.
#[derive(Clone, Debug)]
pub struct RequestFacts<'f, F> {
    /// The client and the address it reached. For a request from a trusted proxy, the client is the
    /// one that the proxy states.
    pub ends: ConnectionFacts,
    /// The host in lower case, without the port and without a trailing dot; empty if there is none.
    pub host: &'f [u8],
    /// The method as it was sent.
    pub method: &'f str,
    /// The path, decoded and normalised.
    pub path: &'f [u8],
    /// The query as it was sent, without its question mark; empty if there is none.
    pub query: &'f [u8],
    /// The certificate that the client has presented.
    pub certificate: Option<CertificateFacts<'f>>,
    /// The identity that the client has proven.
    pub identity: Option<&'f str>,
    /// All header fields, name and value; values come without surrounding blanks. The iterator runs
    /// only where a rule has conditions on fields, and then once for each such rule.
    pub fields: F,
}
