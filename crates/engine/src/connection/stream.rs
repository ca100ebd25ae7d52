//! The bytes of one connection: its socket, and the transport between that and the protocol.
//!
//! A plain transport costs nothing: bytes go to the socket and come from it as they are. What another
//! transport has made of bytes, and the client has not taken yet, waits here.

use forebay_conn::transport::{Plaintext, TransportFailure};
use forebay_conn::{
    Closing, ConnectionLimits, Handler, Job, Opening, PassedConnection, Secured, Transport,
};
use forebay_sys::socket::{self, Received, Sent};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of a file or of memory that are encrypted at a time: the most that one TLS record carries.
pub(crate) const SEAL_BYTES: usize = 16 * 1024;

/// A socket and its transport.
pub struct SocketStream<H: Handler> {
    socket: OwnedFd,
    transport: H::Transport,
    /// Encrypted bytes that the client has not taken yet.
    unsent: Option<Box<Unsent>>,
    /// This server's direction was shut down, or will be when what is unsent has left.
    has_ended: bool,
}

/// Buffers for bytes on their way between sockets and protocols. Each thread has one set, which
/// takes no memory until a connection needs it.
#[derive(Debug, Default)]
pub struct Wire {
    /// Received bytes that are still encrypted.
    received: Vec<u8>,
    /// Bytes to be encrypted.
    plain: Vec<u8>,
    /// Encrypted bytes to be sent.
    sealed: Vec<u8>,
}

impl Wire {
    fn receive_buffer(&mut self) -> &mut [u8] {
        self.received.resize(2 * SEAL_BYTES, 0);
        &mut self.received
    }

    /// Returns room for what one record carries.
    pub(crate) fn plain(&mut self) -> &mut [u8] {
        self.plain.resize(SEAL_BYTES, 0);
        &mut self.plain
    }

    /// The bytes that were encrypted and not sent.
    pub(crate) fn sealed(&self) -> &[u8] {
        &self.sealed
    }
}

#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
}

impl<H: Handler> SocketStream<H> {
    /// The stream of a connection that was just accepted.
    pub fn new(socket: OwnedFd, transport: H::Transport) -> SocketStream<H> {
        SocketStream { socket, transport, unsent: None, has_ended: false }
    }

    /// Whether the bytes of the socket are those of the protocol.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.transport.is_plain()
    }

    /// Whether encrypted bytes wait for the client to take them.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.unsent.is_some()
    }

    /// The number of encrypted bytes that wait to be sent.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.unsent.as_ref().map_or(0, |unsent| (unsent.bytes.len() - unsent.sent) as u64)
    }

    /// The protocol that is spoken, once the transport is open.
    pub(crate) fn speak(&self, handler: &mut H, limits: &ConnectionLimits) -> H::Protocol {
        handler.protocol(&self.transport, limits)
    }

    /// What was agreed with the client (TLS version, name, certificate), once the transport is
    /// open.
    pub(crate) fn secured(&self) -> Option<Box<Secured>> {
        self.transport.secured()
    }

    /// Whether the transport is not known yet.
    pub(crate) fn is_undecided(&self) -> bool {
        self.transport.is_undecided()
    }

    /// Whether nothing may be sent before the protocol begins, though the transport is plain.
    pub(crate) fn is_silent(&self) -> bool {
        self.transport.is_silent()
    }

    /// The target of a connection whose bytes are passed on as they are; `None` for others.
    pub(crate) fn passed(&self) -> Option<Box<PassedConnection>> {
        self.transport.passed()
    }

    /// Takes what was received before that was known.
    pub(crate) fn take_received(&mut self) -> Vec<u8> {
        self.transport.take_received()
    }

    /// Receives bytes for the protocol. Returns whether there may be more before the socket is
    /// reported again.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8], wire: &mut Wire) -> (Received, bool) {
        if self.transport.is_plain() {
            let received = socket::receive(self.socket.as_fd(), buffer);
            return (received, received == Received::Bytes(buffer.len()));
        }
        self.receive_sealed(buffer, wire)
    }

    #[cold]
    fn receive_sealed(&mut self, buffer: &mut [u8], wire: &mut Wire) -> (Received, bool) {
        let mut filled = 0;
        // less arrived than there was room for: the socket is empty
        let mut is_drained = false;
        loop {
            match self.transport.read(&mut buffer[filled..]) {
                Plaintext::Bytes(count) => {
                    filled += count;
                    if filled == buffer.len() || !is_drained {
                        return (Received::Bytes(filled), true);
                    }
                }
                Plaintext::End if filled > 0 => return (Received::Bytes(filled), true),
                Plaintext::End => return (Received::Ended, false),
                Plaintext::Nothing if filled > 0 => return (Received::Bytes(filled), false),
                Plaintext::Nothing => match self.receive_wire(wire) {
                    Received::Bytes(count) => is_drained = count < wire.received.len(),
                    other => return (other, false),
                },
            }
        }
    }

    /// Gives the transport what has arrived, at most as much as the wire's buffer takes.
    fn receive_wire(&mut self, wire: &mut Wire) -> Received {
        let buffer = wire.receive_buffer();
        let received = socket::receive(self.socket.as_fd(), buffer);
        let Received::Bytes(count) = received else { return received };
        match self.transport.receive(&buffer[..count]) {
            Ok(()) => received,
            Err(_) => {
                self.say();
                Received::Broken
            }
        }
    }

    /// Gives the transport what arrived before its first step; for use before the protocol begins.
    /// Returns whether the transport can go on.
    pub(crate) fn take_raw(&mut self, raw: &[u8]) -> bool {
        let is_broken = self.transport.receive(raw).is_err();
        self.say();
        !is_broken
    }

    /// Takes the transport's next step; for use before the protocol begins.
    pub(crate) fn open(&mut self, done: Option<<H::Job as Job>::Done>) -> Opening<H::Job> {
        if self.transport.is_plain() {
            return Opening::Open;
        }
        let opening = self.transport.open(done);
        self.say();
        opening
    }

    /// Why the transport could not be opened; `None` if the socket was the cause.
    pub(crate) fn failure(&self) -> Option<TransportFailure> {
        self.transport.failure()
    }

    /// Receives more bytes for the transport; for use before the protocol begins.
    pub(crate) fn receive_opening(&mut self, wire: &mut Wire) -> Received {
        self.receive_wire(wire)
    }

    /// Encrypts bytes for the client.
    pub(crate) fn seal(&mut self, plain: &[u8]) {
        let unsent = self.unsent.get_or_insert_default();
        self.transport.write(plain, &[], &mut unsent.bytes);
    }

    /// Encrypts bytes of heads and of memory into the wire.
    pub(crate) fn seal_memory(&mut self, head: &[u8], body: &[u8], wire: &mut Wire) {
        self.transport.write(head, body, &mut wire.sealed);
    }

    /// Encrypts bytes of heads, and `count` bytes of the [plain](Wire::plain) room, into the wire.
    pub(crate) fn seal_plain(&mut self, head: &[u8], count: usize, wire: &mut Wire) {
        self.transport.write(head, &wire.plain[..count], &mut wire.sealed);
    }

    /// Sends the encrypted bytes of the wire; what the client does not take at once waits here.
    /// Returns the number of bytes it took. If the connection has failed, the next
    /// [`flush`](SocketStream::flush) finds out.
    pub(crate) fn send_sealed(&mut self, wire: &mut Wire) -> usize {
        let mut sent = 0;
        if self.unsent.is_none()
            && let Sent::Bytes(count) = socket::send(self.socket.as_fd(), &wire.sealed, false)
        {
            sent = count;
        }
        if sent < wire.sealed.len() {
            let unsent = self.unsent.get_or_insert_default();
            unsent.bytes.extend_from_slice(&wire.sealed[sent..]);
        }
        wire.sealed.clear();
        sent
    }

    /// Encrypts what the transport itself has to send, such as alerts.
    fn say(&mut self) {
        let mut unsent = self.unsent.take().unwrap_or_default();
        self.transport.flush(&mut unsent.bytes);
        if unsent.bytes.len() > unsent.sent {
            self.unsent = Some(unsent);
        }
    }

    /// Encrypts the end of this server's direction; [`flush`](SocketStream::flush) does what is
    /// left to do.
    pub(crate) fn end(&mut self) {
        if !self.transport.is_plain() && !std::mem::replace(&mut self.has_ended, true) {
            let unsent = self.unsent.get_or_insert_default();
            self.transport.end(&mut unsent.bytes);
        }
    }

    /// Ends a connection that cannot go on. What the transport has to say about that is sent, if
    /// the client takes it at once. Returns how to close.
    #[cold]
    pub(crate) fn end_broken(&mut self) -> Closing {
        match self.unsent {
            None => Closing::Reset,
            Some(_) => {
                let _ = self.flush();
                Closing::Linger
            }
        }
    }

    /// Ends this server's direction and nothing else, when what is encrypted has been sent.
    pub(crate) fn end_output(&mut self) {
        self.end();
        self.has_ended = true;
        if self.unsent.is_none() {
            socket::shut_down_writing(self.socket.as_fd());
        }
    }

    /// Whether this server's direction has been ended. Then the kernel reports the connection as
    /// gone in both directions as soon as the client ends its own, whatever is left to receive.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Sends what is encrypted, as far as the client takes it. Returns the number of bytes that it
    /// took.
    pub(crate) fn flush(&mut self) -> (Sent, usize) {
        let mut all = 0;
        while let Some(unsent) = &mut self.unsent {
            let bytes = &unsent.bytes[unsent.sent..];
            if bytes.is_empty() {
                self.unsent = None;
                if self.has_ended {
                    socket::shut_down_writing(self.socket.as_fd());
                }
                break;
            }
            match socket::send(self.socket.as_fd(), bytes, false) {
                Sent::Bytes(count) => {
                    unsent.sent += count;
                    all += count;
                }
                other => return (other, all),
            }
        }
        (Sent::Bytes(all), all)
    }

    /// Returns the socket, for another process; all that was encrypted must have been sent.
    pub(crate) fn into_socket(self) -> OwnedFd {
        self.socket
    }
}

impl<H: Handler> AsFd for SocketStream<H> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
