//! The bytes of a connection to an upstream: as they are, or through TLS. This is the one place where
//! they are read and written; the code above does not know which of the two it is.
//!
//! A TLS session keeps what the socket does not take, and what was received beyond what was asked
//! for. So bytes that count as sent may [wait](UpstreamStream::has_unsent) here, and there may be
//! something to read although the socket has nothing.

use forebay_sys::client;
use forebay_sys::socket::{self, Received, Sent, SocketWriter};
use forebay_tls::{ClientSession, TlsFault, TlsRefusal};
use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{fmt, io, mem};

/// How much is received at a time, before it is decrypted.
const WIRE_BYTES: usize = 64 * 1024;

thread_local! {
    /// A buffer for received bytes; nothing is kept in it between calls.
    static WIRE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// The kernel reports an error.
    Socket(io::Error),
    /// The TLS handshake has failed.
    Tls(TlsFault),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> ConnectError {
        ConnectError::Socket(error)
    }
}

/// A socket, and the TLS session over it, if there is one.
#[derive(Debug)]
pub(crate) struct UpstreamStream {
    socket: OwnedFd,
    tls: Option<Box<TlsStream>>,
}

/// A TLS session over the socket.
struct TlsStream {
    session: ClientSession,
    /// The number of the TLS clients that began the session. Their certificates and authorities may
    /// have changed since.
    clients: u64,
    /// The bytes to send in clear before the handshake.
    clear: Vec<u8>,
    /// The bytes that were received, and are not decrypted yet.
    wire: Vec<u8>,
    /// Whether the socket has not taken all that was encrypted.
    is_blocked: bool,
    /// Whether `close_notify` was sent.
    has_ended: bool,
    /// Whether another request may follow: closing the connection now ends it with `close_notify`.
    is_idle: bool,
    /// Why the session has failed.
    fault: Option<TlsFault>,
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("clients", &self.clients).finish_non_exhaustive()
    }
}

impl From<OwnedFd> for UpstreamStream {
    fn from(socket: OwnedFd) -> UpstreamStream {
        UpstreamStream { socket, tls: None }
    }
}

impl AsFd for UpstreamStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl UpstreamStream {
    /// Puts this session over the socket, which the TLS clients of this number have begun.
    pub(crate) fn seal(&mut self, session: ClientSession, clients: u64) {
        self.tls = Some(Box::new(TlsStream {
            session,
            clients,
            clear: Vec::new(),
            wire: Vec::new(),
            is_blocked: false,
            has_ended: false,
            is_idle: false,
            fault: None,
        }));
    }

    /// The number of the TLS clients that began the session; `None` without TLS.
    pub(crate) fn clients(&self) -> Option<u64> {
        self.tls.as_ref().map(|tls| tls.clients)
    }

    /// Sends these bytes in clear before the handshake. Returns whether there is one.
    pub(crate) fn begin_in_clear(&mut self, bytes: &[u8]) -> bool {
        let Some(tls) = &mut self.tls else { return false };
        tls.clear.extend_from_slice(bytes);
        true
    }

    /// Whether the handshake waits for bytes of the upstream; `None` if no handshake is under way. If
    /// it does not wait for them, the socket must take ours, or be connected first.
    pub(crate) fn handshake_reads(&self) -> Option<bool> {
        let tls = self.tls.as_ref().filter(|tls| tls.session.is_handshaking())?;
        Some(tls.clear.is_empty() && !tls.session.has_to_send())
    }

    /// Whether there is a TLS session.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Goes on with the handshake, if there is one. Returns whether it is done.
    ///
    /// # Errors
    /// Why it will not be done.
    pub(crate) fn shake(&mut self) -> Result<bool, ConnectError> {
        let socket = self.socket.as_fd();
        self.tls.as_mut().map_or(Ok(true), |tls| tls.shake(socket))
    }

    /// Whether HTTP/2 may be spoken. Without TLS, no protocol is negotiated.
    pub(crate) fn is_for_http2(&self) -> bool {
        let agreed = self.tls.as_ref().map(|tls| tls.session.agreed());
        agreed.is_none_or(|agreed| agreed.is_some_and(|agreed| agreed.alpn == Some("h2")))
    }

    /// Whether the TLS session was resumed; `None` without TLS.
    pub(crate) fn is_resumed(&self) -> Option<bool> {
        self.tls.as_ref()?.session.is_resumed()
    }

    /// Why the session has failed, if so.
    pub(crate) fn fault(&self) -> Option<TlsFault> {
        self.tls.as_ref()?.fault
    }

    /// Whether bytes wait for the socket to take more.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_blocked)
    }

    /// Whether nothing has come since the last answer except messages of TLS itself.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let Some(tls) = &mut self.tls else { return client::is_quiet(self.socket.as_fd()) };
        // tickets for later sessions may come at any time
        let nothing = &mut Vec::new();
        tls.receive(self.socket.as_fd(), nothing, 1) == Received::Blocked && !tls.is_blocked
    }

    /// Whether nothing is left of the last exchange; then the connection is idle from now on.
    pub(crate) fn rests(&mut self) -> bool {
        let Some(tls) = &mut self.tls else { return true };
        let is_clean = tls.wire.is_empty()
            && !tls.is_blocked
            && !tls.session.has_unread()
            && !tls.session.has_ended()
            && tls.fault.is_none();
        if is_clean {
            // an idle connection takes no memory
            (tls.wire, tls.is_idle) = (Vec::new(), true);
        }
        is_clean
    }

    /// Sends the first bytes, if the connection is established, and its handshake is done.
    ///
    /// # Errors
    /// Why it is not, and will not be.
    pub(crate) fn begin(&mut self, bytes: &[u8]) -> Result<Sent, ConnectError> {
        let socket = self.socket.as_fd();
        let Some(tls) = &mut self.tls else { return Ok(client::send_first(socket, bytes)?) };
        if !tls.shake(socket)? {
            return Ok(Sent::Blocked);
        }
        Ok(match tls.send(socket, bytes) {
            Sent::Broken => return Err(ConnectError::Tls(TlsFault::Ended)),
            sent => sent,
        })
    }

    /// Sends these bytes. What TLS has encrypted counts as sent.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Sent {
        match &mut self.tls {
            None => socket::send(self.socket.as_fd(), bytes, false),
            Some(tls) => tls.send(self.socket.as_fd(), bytes),
        }
    }

    /// Appends at most `most` bytes of what is there. With TLS, an end without `close_notify` is not
    /// `Ended` but `Broken`: bytes may be missing.
    pub(crate) fn receive_more(&mut self, into: &mut Vec<u8>, most: usize) -> Received {
        match &mut self.tls {
            None => socket::receive_more(self.socket.as_fd(), into, most),
            Some(tls) => tls.receive(self.socket.as_fd(), into, most),
        }
    }

    /// Shuts down sending; the upstream can still send. Returns whether that is done: the socket may
    /// have to take more before.
    pub(crate) fn end_writing(&mut self) -> bool {
        let socket = self.socket.as_fd();
        if let Some(tls) = &mut self.tls {
            if !mem::replace(&mut tls.has_ended, true) {
                tls.session.say_end();
            }
            if matches!(tls.flush(socket), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            {
                return false;
            }
        }
        socket::shut_down_writing(socket);
        true
    }
}

impl Drop for UpstreamStream {
    fn drop(&mut self) {
        // an exchange that was interrupted must not look as if it had ended in order
        if let Some(tls) = self.tls.as_mut().filter(|tls| tls.is_idle) {
            tls.session.say_end();
            // the upstream may be gone, and then needs no `close_notify`
            let _ = tls.flush(self.socket.as_fd());
        }
    }
}

impl TlsStream {
    /// Goes on with the handshake as far as the socket allows. Returns whether it is done; its last
    /// bytes may have to be sent with what follows.
    fn shake(&mut self, socket: BorrowedFd<'_>) -> Result<bool, ConnectError> {
        loop {
            while !self.clear.is_empty() {
                match client::send_first(socket, &self.clear)? {
                    Sent::Bytes(count) => _ = self.clear.drain(..count),
                    Sent::Blocked => return Ok(false),
                    Sent::Broken => return Err(ConnectError::Tls(TlsFault::Ended)),
                }
            }
            if !self.session.is_handshaking() {
                return Ok(true);
            }
            match self.flush(socket) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
            match self.take(socket, &mut Vec::new(), 0) {
                Received::Bytes(_) => {}
                Received::Blocked => return Ok(false),
                Received::Ended | Received::Broken => {
                    return Err(ConnectError::Tls(self.fault.unwrap_or(TlsFault::Ended)));
                }
            }
        }
    }

    fn send(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> Sent {
        self.is_idle = false;
        // no more is encrypted than the socket is about to take
        if self.is_blocked {
            match self.flush(socket) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Sent::Blocked,
                Err(_) => return Sent::Broken,
            }
        }
        let count = self.session.seal(bytes);
        match self.flush(socket) {
            Ok(()) => Sent::Bytes(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Sent::Bytes(count),
            Err(_) => Sent::Broken,
        }
    }

    /// Sends what is encrypted.
    fn flush(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let sent = self.session.flush_to(&mut SocketWriter(socket));
        self.is_blocked = matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        sent
    }

    /// Appends at most `most` decrypted bytes.
    fn receive(&mut self, socket: BorrowedFd<'_>, into: &mut Vec<u8>, most: usize) -> Received {
        loop {
            if self.fault.is_some() {
                return Received::Broken;
            }
            let mut wire = mem::take(&mut self.wire);
            let mut rest = &wire[..];
            let opened = self.session.receive_more(&mut rest, into, most);
            let used = wire.len() - rest.len();
            wire.drain(..used);
            self.wire = wire;
            match opened {
                Ok(0) if self.session.has_ended() => return Received::Ended,
                Ok(0) => {}
                Ok(count) => return Received::Bytes(count),
                Err(refusal) => return self.fail(socket, &refusal),
            }
            match self.take(socket, into, most) {
                // only messages of TLS itself have come
                Received::Bytes(0) => {}
                other => return other,
            }
        }
    }

    /// Receives once, and appends at most `most` of the bytes that are decrypted. Returns `Bytes(0)`
    /// if there are none.
    fn take(&mut self, socket: BorrowedFd<'_>, into: &mut Vec<u8>, most: usize) -> Received {
        WIRE.with_borrow_mut(|wire| {
            wire.clear();
            // about as much as is wanted, so that little is left over: a record adds at most some 280
            // bytes
            let bytes = most.saturating_add(most / 32 + 1024).min(WIRE_BYTES);
            match socket::receive_more(socket, wire, bytes) {
                Received::Bytes(_) => {}
                // the end came without `close_notify`
                Received::Ended => return Received::Broken,
                other => return other,
            }
            let mut rest = &wire[..];
            let opened = self.session.receive_more(&mut rest, into, most);
            self.wire.extend_from_slice(rest);
            if let Err(refusal) = opened {
                return self.fail(socket, &refusal);
            }
            if self.session.has_to_send() && !self.session.is_handshaking() && !self.is_blocked {
                // a key update is answered; what the socket does not take goes with what is sent next
                let _ = self.flush(socket);
            }
            Received::Bytes(opened.unwrap_or_default())
        })
    }

    /// Notes that the session has failed.
    fn fail(&mut self, socket: BorrowedFd<'_>, refusal: &TlsRefusal) -> Received {
        self.fault = Some(refusal.fault());
        // sends the alert, without waiting for the upstream to take it
        let _ = self.flush(socket);
        Received::Broken
    }
}

#[cfg(test)]
#[cfg(feature = "tls")]
#[path = "stream_tests.rs"]
mod tests;
