//! The transport: plain, a [session](Session) of TLS, or bytes that are passed on as they are,
//! which the client's hello may decide.

use crate::identities::Identities;
use crate::session::{Handshake, Handshaken, Session};
use forebay_conn::hello::FirstBytes;
use forebay_conn::transport::{Broken, Plaintext, TransportFailure};
use forebay_conn::{Job, Opening, PassRoutes, PassedConnection, Secured, Transport};
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The transport of one connection.
#[derive(Default)]
pub enum Channel {
    /// The bytes of the socket are those of the protocol.
    #[default]
    Plain,
    /// The bytes are encrypted in a TLS session.
    Sealed(Box<Session>),
    /// The client's hello decides between TLS and passing on.
    Undecided(Box<UndecidedChannel>),
    /// No protocol is spoken, and the bytes are passed on as they are.
    Passed(Box<PassedChannel>),
}

/// A connection of which it is not known yet whether it is passed on.
pub struct UndecidedChannel {
    routes: Arc<PassRoutes>,
    /// The identities for TLS with connections that are not passed on; without identities all are.
    identities: Option<Arc<Identities>>,
    /// The address that the client has connected to.
    reached: SocketAddr,
    received: Vec<u8>,
}

/// A connection that is passed on.
pub struct PassedChannel {
    connection: PassedConnection,
    /// The address that the client has connected to.
    reached: SocketAddr,
    /// The bytes that have arrived, until the protocol takes them.
    received: Vec<u8>,
}

/// A job type that can do handshakes.
pub trait Shakes: Job {
    /// The job for this handshake.
    fn handshake(handshake: Handshake) -> Self;

    /// The handshake in this result; `None` if it is the result of another job.
    fn handshaken(done: Self::Done) -> Option<Handshaken>;
}

impl Channel {
    /// The transport of a new connection to a server with these identities, whose client has
    /// connected to this address.
    pub fn sealed(identities: &Arc<Identities>, reached: IpAddr) -> Channel {
        Channel::Sealed(Box::new(Session::new(identities, reached)))
    }

    /// The transport of a new connection whose client has connected to this address, and which may
    /// be passed on for the name in its hello. Without identities it is passed on in any case.
    pub fn undecided(
        routes: &Arc<PassRoutes>,
        identities: Option<&Arc<Identities>>,
        reached: SocketAddr,
    ) -> Channel {
        match (routes.ask_names(reached.port()), identities) {
            (true, _) => Channel::Undecided(Box::new(UndecidedChannel {
                routes: Arc::clone(routes),
                identities: identities.map(Arc::clone),
                reached,
                received: Vec::new(),
            })),
            (false, Some(identities)) => Channel::sealed(identities, reached.ip()),
            (false, None) => {
                let connection = PassedConnection { name: None, is_raw: true };
                let received = Vec::new();
                Channel::Passed(Box::new(PassedChannel { connection, reached, received }))
            }
        }
    }

    /// Whether HTTP/2 was negotiated.
    pub fn is_for_http2(&self) -> bool {
        match self {
            Channel::Plain | Channel::Undecided(_) | Channel::Passed(_) => false,
            Channel::Sealed(session) => session.is_for_http2(),
        }
    }
}

impl PassedChannel {
    /// The name and port of the server that the client wants: the name in its hello, or else the
    /// address that it has connected to.
    pub fn wanted(&self) -> (Cow<'_, str>, u16) {
        let name = match (&self.connection.name, self.reached.ip()) {
            (Some(name), _) => Cow::Borrowed(&**name),
            (None, IpAddr::V4(ip)) => Cow::Owned(ip.to_string()),
            (None, IpAddr::V6(ip)) => Cow::Owned(format!("[{ip}]")),
        };
        (name, self.reached.port())
    }
}

impl UndecidedChannel {
    /// Takes bytes that were received. Returns what the connection is from then on; `None` while
    /// that is not known.
    fn decide(&mut self, wire: &[u8]) -> Option<(Channel, Vec<u8>)> {
        self.received.extend_from_slice(wire);
        let name = match FirstBytes::look(&self.received) {
            FirstBytes::Partial => return None,
            FirstBytes::Hello(name) => name,
            FirstBytes::Other => None,
        };
        let received = std::mem::take(&mut self.received);
        let connection = PassedConnection { name, is_raw: self.identities.is_none() };
        let is_for_others = |_: &&_| self.routes.find(self.reached.port(), &connection).is_none();
        match self.identities.as_ref().filter(is_for_others) {
            Some(identities) => Some((Channel::sealed(identities, self.reached.ip()), received)),
            None => {
                let passed = PassedChannel { connection, reached: self.reached, received };
                Some((Channel::Passed(Box::new(passed)), Vec::new()))
            }
        }
    }
}

impl<J: Shakes> Transport<J> for Channel {
    #[inline]
    fn is_plain(&self) -> bool {
        matches!(self, Channel::Plain | Channel::Passed(_))
    }

    #[inline]
    fn is_undecided(&self) -> bool {
        matches!(self, Channel::Undecided(_))
    }

    fn passed(&self) -> Option<Box<PassedConnection>> {
        let Channel::Passed(passed) = self else { return None };
        Some(Box::new(passed.connection.clone()))
    }

    #[inline]
    fn is_silent(&self) -> bool {
        matches!(self, Channel::Passed(_))
    }

    fn take_received(&mut self) -> Vec<u8> {
        match self {
            Channel::Passed(passed) => std::mem::take(&mut passed.received),
            _ => Vec::new(),
        }
    }

    fn secured(&self) -> Option<Box<Secured>> {
        let Channel::Sealed(session) = self else { return None };
        session.secured().map(Box::new)
    }

    fn failure(&self) -> Option<TransportFailure> {
        match self {
            Channel::Plain | Channel::Undecided(_) | Channel::Passed(_) => None,
            Channel::Sealed(session) => session.failure(),
        }
    }

    fn open(&mut self, done: Option<J::Done>) -> Opening<J> {
        let Channel::Sealed(session) = self else { return Opening::Open };
        match session.open(done.and_then(J::handshaken)) {
            Opening::Open => Opening::Open,
            Opening::Receive => Opening::Receive,
            Opening::Job(handshake) => Opening::Job(J::handshake(handshake)),
            Opening::Failed => Opening::Failed,
        }
    }

    fn receive(&mut self, wire: &[u8]) -> Result<(), Broken> {
        let received;
        let wire = match self {
            Channel::Undecided(undecided) => {
                let Some((channel, rest)) = undecided.decide(wire) else { return Ok(()) };
                (*self, received) = (channel, rest);
                if received.is_empty() {
                    return Ok(());
                }
                &received
            }
            _ => wire,
        };
        let Channel::Sealed(session) = self else { return Err(Broken) };
        session.receive(wire)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Plaintext {
        let Channel::Sealed(session) = self else { return Plaintext::Nothing };
        session.read(buffer)
    }

    fn write(&mut self, head: &[u8], body: &[u8], wire: &mut Vec<u8>) {
        if let Channel::Sealed(session) = self {
            session.write(head, body, wire);
        }
    }

    fn flush(&mut self, wire: &mut Vec<u8>) {
        if let Channel::Sealed(session) = self {
            session.flush(wire);
        }
    }

    fn end(&mut self, wire: &mut Vec<u8>) {
        if let Channel::Sealed(session) = self {
            session.end(wire);
        }
    }
}

#[cfg(test)]
#[cfg(feature = "tls")]
mod tests;
