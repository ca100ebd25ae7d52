//! The layer between the bytes of a socket and those of a protocol: nothing, or encryption.
//!
//! A transport is pure: received bytes go in, bytes to be sent come out. The engine owns the socket,
//! keeps what the client has not taken yet, and asks a [plain](Transport::is_plain) one for nothing.

use crate::handler::Job;
use crate::passing::PassedConnection;
use crate::peer::Secured;

/// The transport of one connection, in both directions. `J` is the handler's job: CPU-heavy work of a
/// handshake is a job, and its result comes back.
pub trait Transport<J: Job>: Default + Send {
    /// Whether the bytes of the socket are those of the protocol. Then the kernel may send files
    /// (`sendfile`, `splice`), and no other method is called.
    fn is_plain(&self) -> bool;

    /// The next step until the protocol may begin; `done` is the result of a job that the transport has
    /// asked for. Called after each [`receive`](Transport::receive) until it returns [`Opening::Open`].
    fn open(&mut self, done: Option<J::Done>) -> Opening<J>;

    /// The result of the handshake with the client, once the transport is [open](Opening::Open).
    fn secured(&self) -> Option<Box<Secured>> {
        None
    }

    /// Whether it is not known yet which transport the connection has: more must be received first.
    fn is_undecided(&self) -> bool {
        false
    }

    /// The connection's route, once its bytes are known to be passed on as they are. Then the transport
    /// [is plain](Transport::is_plain), and this server sends the client nothing.
    fn passed(&self) -> Option<Box<PassedConnection>> {
        None
    }

    /// Whether nothing may be sent to the client before the protocol begins, although the transport is
    /// plain.
    fn is_silent(&self) -> bool {
        false
    }

    /// Takes the bytes received before it was known that they are passed on. They belong to the protocol.
    fn take_received(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Why the transport has [failed](Opening::Failed), or is [`Broken`]; `None` if it is not.
    fn failure(&self) -> Option<TransportFailure> {
        None
    }

    /// Takes bytes from the socket: all of them, at most as many as are received at a time. Before the
    /// next call, the transport is [`read`](Transport::read) until it has nothing more.
    ///
    /// # Errors
    /// [`Broken`] if the peer does not keep to the rules; [`flush`](Transport::flush) has the alert for
    /// the peer.
    fn receive(&mut self, wire: &[u8]) -> Result<(), Broken>;

    /// Reads bytes for the protocol.
    fn read(&mut self, buffer: &mut [u8]) -> Plaintext;

    /// Appends `head` and then `body`, in the form of the transport, to `wire`. Either may be empty.
    fn write(&mut self, head: &[u8], body: &[u8], wire: &mut Vec<u8>);

    /// Appends the transport's own messages to `wire`.
    fn flush(&mut self, wire: &mut Vec<u8>);

    /// Appends the message that ends this direction. Nothing is written after it.
    fn end(&mut self, wire: &mut Vec<u8>);
}

/// The state of the beginning of a connection.
#[derive(Debug)]
pub enum Opening<J> {
    /// The protocol may begin.
    Open,
    /// More bytes are needed.
    Receive,
    /// This job must be done first.
    Job(J),
    /// The transport cannot go on; [`Transport::flush`] has the alert for the peer.
    Failed,
}

/// Why a transport cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportFailure {
    /// The client does not speak the protocol of the transport.
    Protocol,
    /// No certificate here has the name that the client asks for.
    Name,
    /// The client does not accept the certificate or parameters it was shown.
    Client,
    /// The client has not shown a valid certificate.
    Unproven(Unproven),
    /// No failure: the authority of ACME has seen the proof that a name is ours (RFC 8737).
    Proof,
    /// The client does not keep to the rules, or no parameters could be agreed on.
    Rules,
}

/// Why a client's certificate is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unproven {
    /// The client has shown none.
    Missing,
    /// No trusted authority has signed it.
    Untrusted,
    /// The certificate has expired, or is not valid yet.
    Expired,
    /// The certificate was revoked.
    Revoked,
    /// No list says whether it was revoked, or the list has expired.
    Unlisted,
    /// The certificate is wrong in another way.
    Wrong,
}

/// The result of [`Transport::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plaintext {
    /// This many bytes, at least one.
    Bytes(usize),
    /// Nothing until more is received.
    Nothing,
    /// The peer has ended its direction in good order.
    End,
}

/// The peer does not keep to the rules of the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// No transport: the bytes of the socket are those of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlainTransport;

impl<J: Job> Transport<J> for PlainTransport {
    #[inline]
    fn is_plain(&self) -> bool {
        true
    }

    fn open(&mut self, _: Option<J::Done>) -> Opening<J> {
        Opening::Open
    }

    fn receive(&mut self, _: &[u8]) -> Result<(), Broken> {
        Ok(())
    }

    fn read(&mut self, _: &mut [u8]) -> Plaintext {
        Plaintext::Nothing
    }

    fn write(&mut self, head: &[u8], body: &[u8], wire: &mut Vec<u8>) {
        wire.extend_from_slice(head);
        wire.extend_from_slice(body);
    }

    fn flush(&mut self, _: &mut Vec<u8>) {}

    fn end(&mut self, _: &mut Vec<u8>) {}
}
