//! Facts about a request that are not in its head.

use std::net::SocketAddr;

/// The scheme by which a client has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestScheme {
    /// Through TLS, to this server or to a proxy.
    Https,
    /// Without TLS, to this server.
    Http,
    /// Without TLS, to a proxy that says so.
    ProxiedHttp,
}

/// The client of a request, and other facts that are not in its head. Each is found out only when a
/// rule of a site depends on it.
pub trait RequestContext {
    /// The client's address. Port 0 if only the address is known, `0.0.0.0:0` for a program that came through
    /// a Unix socket.
    fn client(&self) -> SocketAddr;

    /// The scheme by which the client has asked.
    fn scheme(&self) -> RequestScheme;

    /// Begins with another request; facts kept for the last one are dropped.
    fn begin(&self) {}

    /// Appends the name by which logs know the request.
    fn request_id(&self, id: &mut Vec<u8>);

    /// The class that the rules of the policy have given to the request; empty if that is not known.
    fn class(&self) -> &str;

    /// The server's degree of overload, from 0 to 3.
    fn overload(&self) -> u8 {
        0
    }

    /// The address of the application that has answered; empty if none has.
    fn upstream(&self) -> &str {
        ""
    }
}
