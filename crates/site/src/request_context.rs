//! Who asks, as far as a request does not say it itself.

use std::net::SocketAddr;

/// By which scheme a client has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestScheme {
    /// Through TLS, to this server or to a proxy.
    Https,
    /// Without TLS, to this server.
    Http,
    /// Without TLS, to a proxy that says so.
    ProxiedHttp,
}

/// Who asks. Each is found out when it is asked for, and that is where a site has rules that go by it.
pub trait RequestContext {
    /// The client's address. Port 0 if only the address is known, `0.0.0.0:0` for a program that came through
    /// a Unix socket.
    fn client(&self) -> SocketAddr;

    /// By which scheme it asks.
    fn scheme(&self) -> RequestScheme;

    /// The request is looked at anew: what was made for another is not its own.
    fn begin(&self) {}

    /// Appends the name by which logs know the request.
    fn request_id(&self, id: &mut Vec<u8>);

    /// The class that the rules of the policy have given to the request; empty if that is not known.
    fn class(&self) -> &str;

    /// How overloaded the server is, from 0 to 3.
    fn overload(&self) -> u8 {
        0
    }

    /// The address of the application that has answered; empty if none has.
    fn upstream(&self) -> &str {
        ""
    }
}
