//! What lies between the bytes of a socket and those of a protocol: nothing, or encryption.
//!
//! A transport is pure: received bytes go in, bytes to be sent come out. The engine owns the socket,
//! keeps what the client has not taken yet, and asks a [plain](Transport::is_plain) one for nothing.

use crate::handler::Job;
use crate::passing::PassedConnection;
use crate::peer::Secured;

/// Both directions of one connection. `J` is the handler's job: what takes CPU time in a handshake is
/// one, and comes back with its result.
pub trait Transport<J: Job>: Default + Send {
    /// Whether the bytes of the socket are those of the protocol. Then the kernel may send files
    /// (`sendfile`, `splice`), and none of the other methods is called.
    fn is_plain(&self) -> bool;

    /// The next step until the protocol may begin; `done` is the result of a job that it has asked for.
    /// Called after each [`receive`](Transport::receive) until it says [`Opening::Open`].
    fn open(&mut self, done: Option<J::Done>) -> Opening<J>;

    /// What was agreed with the client, once it is [open](Opening::Open).
    fn secured(&self) -> Option<Box<Secured>> {
        None
    }

    /// Whether it is not known yet what lies between: more must be received first.
    fn is_undecided(&self) -> bool {
        false
    }

    /// That the bytes are passed on as they are, once that is known; then it [is plain](Transport::is_plain), and
    /// nothing is said to the client by this server.
    fn passed(&self) -> Option<Box<PassedConnection>> {
        None
    }

    /// Whether nothing may be said to the client before the protocol begins, though the transport is plain.
    fn is_silent(&self) -> bool {
        false
    }

    /// What was received before it was known that the bytes are passed on. They are the protocol's.
    fn take_received(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Why it has [failed](Opening::Failed), or is [`Broken`]; `None` if it is not.
    fn failure(&self) -> Option<TransportFailure> {
        None
    }

    /// Takes bytes from the socket: all of them, at most as many as are received at a time. It is
    /// [`read`](Transport::read) until it has nothing more before it is given others.
    ///
    /// # Errors
    /// [`Broken`] if the peer does not keep to the rules; what is to be said about that is in
    /// [`flush`](Transport::flush).
    fn receive(&mut self, wire: &[u8]) -> Result<(), Broken>;

    /// Bytes for the protocol.
    fn read(&mut self, buffer: &mut [u8]) -> Plaintext;

    /// Adds what carries `head` and then `body` to `wire`. Either may be empty.
    fn write(&mut self, head: &[u8], body: &[u8], wire: &mut Vec<u8>);

    /// Adds what the transport itself has to say.
    fn flush(&mut self, wire: &mut Vec<u8>);

    /// Adds the words that end this direction. Nothing is written after it.
    fn end(&mut self, wire: &mut Vec<u8>);
}

/// How far the beginning of a connection has come.
#[derive(Debug)]
pub enum Opening<J> {
    /// The protocol may begin.
    Open,
    /// More bytes are needed.
    Receive,
    /// This must be done first.
    Job(J),
    /// It cannot go on; what is to be said about that is in [`Transport::flush`].
    Failed,
}

/// Why a transport cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportFailure {
    /// The client speaks something else.
    Protocol,
    /// No identity here has the name it asks for.
    Name,
    /// The client does not want what it was shown.
    Client,
    /// The client has not shown a certificate that is good.
    Unproven(Unproven),
    /// None: the authority has seen what it came for, that a name is ours (RFC 8737).
    Proof,
    /// The client does not keep to the rules, or nothing could be agreed on.
    Rules,
}

/// Why a client's certificate is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unproven {
    /// There is none.
    Missing,
    /// No authority that is trusted has signed it.
    Untrusted,
    /// It has expired, or is not valid yet.
    Expired,
    /// It was revoked.
    Revoked,
    /// No list says whether it was revoked, or the list has expired.
    Unlisted,
    /// It is wrong in another way.
    Wrong,
}

/// What [`Transport::read`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plaintext {
    /// So many bytes, at least one.
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
