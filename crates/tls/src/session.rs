//! A session of TLS. The library implements TLS; this file decides when it gets which bytes, and
//! which part of its work a helper thread does.

use crate::clients;
use crate::identities::Identities;
use crate::identity::{ACME_TLS_1, HTTP_2, Identity};
use forebay_conn::transport::{Broken, Plaintext, TransportFailure, Unproven};
use forebay_conn::{Opening, Secured};
use rustls::server::{Accepted, Acceptor, ServerConfig, ServerConnection};
use rustls::{HandshakeKind, ProtocolVersion};
use std::io::{IoSlice, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;

/// The answer to a client that speaks HTTP where TLS is spoken.
pub(crate) const WRONG_PORT: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 54\r\nConnection: close\r\n\r\n\
    This port speaks HTTPS: begin the address with https.\n";

/// The fatal alert `decode_error` (RFC 8446 §6.2), before anything is encrypted.
const DECODE_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];

/// The expensive part of a handshake: agreeing on a key, and signing.
pub struct Handshake {
    accepted: Accepted,
    config: Arc<ServerConfig>,
}

/// The outcome of that part: a connection, or the alert that refuses it.
pub struct Handshaken(Result<Box<ServerConnection>, Vec<u8>>);

impl Handshake {
    /// Does this part of the handshake.
    pub fn run(self) -> Handshaken {
        let made = self.accepted.into_connection(self.config);
        Handshaken(made.map(Box::new).map_err(|(_, mut alert)| {
            let mut words = Vec::new();
            // writes to memory do not fail
            let _ = alert.write_all(&mut words);
            words
        }))
    }
}

/// A session of TLS.
pub struct Session {
    state: ChannelState,
    /// Received bytes that are not decrypted yet, while the protocol has not read what came before.
    wire: Vec<u8>,
    /// Bytes to be sent besides those of the connection.
    words: Vec<u8>,
    /// The identity that answers, when that is known.
    identity: Option<Arc<Identity>>,
    /// The reason why the session has failed, if it has.
    failure: Option<TransportFailure>,
    /// The address that the client has connected to; unspecified if that is not known.
    reached: IpAddr,
}

enum ChannelState {
    /// Nothing has arrived yet.
    New(Arc<Identities>),
    /// The client's hello is being received.
    Hello(Box<Acceptor>, Arc<Identities>),
    /// The client's hello is complete.
    Heard(Box<Accepted>, Arc<Identities>),
    /// A job does the handshake.
    Working,
    /// The handshake goes on, or is done.
    Up(Box<ServerConnection>),
    /// The session has failed.
    Over,
}

impl Session {
    /// A session whose client has connected to this address, with a server with these identities.
    pub(crate) fn new(identities: &Arc<Identities>, reached: IpAddr) -> Session {
        Session {
            state: ChannelState::New(Arc::clone(identities)),
            wire: Vec::new(),
            words: Vec::new(),
            identity: None,
            failure: None,
            reached,
        }
    }

    /// Whether HTTP/2 was negotiated.
    pub(crate) fn is_for_http2(&self) -> bool {
        match &self.state {
            ChannelState::Up(connection) => connection.alpn_protocol() == Some(HTTP_2),
            _ => false,
        }
    }

    /// The reason why the session has failed, if it has.
    pub(crate) fn failure(&self) -> Option<TransportFailure> {
        self.failure
    }

    /// What was negotiated with the client.
    pub(crate) fn secured(&self) -> Option<Secured> {
        let ChannelState::Up(connection) = &self.state else { return None };
        let version = match connection.protocol_version()? {
            ProtocolVersion::TLSv1_3 => "1.3",
            _ => "1.2",
        };
        let cipher = connection.negotiated_cipher_suite()?.suite().as_str().unwrap_or("unknown");
        let identity = self.identity.as_ref()?;
        let shown = connection.peer_certificates().and_then(|chain| chain.first());
        let text = |protocol| String::from_utf8_lossy(protocol).into();
        Some(Secured {
            name: connection.server_name().map(|name| name.to_ascii_lowercase().into()),
            version,
            cipher,
            alpn: connection.alpn_protocol().map(text),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            hosts: Arc::clone(identity.names()),
            policy: identity.policy(),
            client: shown.map(|certificate| clients::described(certificate)),
        })
    }

    /// Chooses the identity that answers the client's hello, and decides whether that takes a job.
    fn greet(&mut self) -> Opening<Handshake> {
        let (accepted, identities) = match std::mem::replace(&mut self.state, ChannelState::Over) {
            ChannelState::Heard(accepted, identities) => (*accepted, identities),
            state => {
                self.state = state;
                return Opening::Receive;
            }
        };
        let hello = accepted.client_hello();
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let is_proof = hello.alpn().is_some_and(|mut spoken| spoken.any(|one| one == ACME_TLS_1));
        let identity = identities.of_hello(is_proof, name.as_deref(), self.reached);
        let Some(identity) = identity else {
            // the fatal alert unrecognized_name (RFC 6066 §3)
            self.words.extend_from_slice(&[21, 3, 3, 0, 2, 2, 112]);
            self.failure = Some(TransportFailure::Name);
            return self.fail();
        };
        let is_dear = identity.is_dear(&hello);
        let handshake = Handshake { accepted, config: Arc::clone(&identity.config) };
        self.identity = Some(identity);
        self.state = ChannelState::Working;
        if is_dear {
            return Opening::Job(handshake);
        }
        self.go_on(handshake.run())
    }

    /// Goes on after the expensive part of the handshake.
    fn go_on(&mut self, Handshaken(made): Handshaken) -> Opening<Handshake> {
        match made {
            Ok(connection) => self.state = ChannelState::Up(connection),
            Err(alert) => {
                self.words.extend_from_slice(&alert);
                return self.fail();
            }
        }
        let wire = std::mem::take(&mut self.wire);
        match self.take(&wire) {
            Ok(()) => self.progress(),
            Err(Broken) => self.fail(),
        }
    }

    fn progress(&mut self) -> Opening<Handshake> {
        match &mut self.state {
            ChannelState::Up(connection) if !connection.is_handshaking() => {
                if self.identity.as_ref().is_some_and(|identity| identity.is_proof) {
                    // the handshake is all that the authority wants
                    connection.send_close_notify();
                    self.failure = Some(TransportFailure::Proof);
                    return self.fail();
                }
                if self.is_past() {
                    self.failure = Some(TransportFailure::Unproven(Unproven::Expired));
                    return self.fail();
                }
                Opening::Open
            }
            ChannelState::New(_)
            | ChannelState::Hello(..)
            | ChannelState::Heard(..)
            | ChannelState::Working
            | ChannelState::Up(_) => Opening::Receive,
            ChannelState::Over => Opening::Failed,
        }
    }

    /// Whether a session is resumed that a client began with a certificate which would not be
    /// accepted now.
    fn is_past(&self) -> bool {
        let ChannelState::Up(connection) = &self.state else { return false };
        let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let clients = self.identity.as_ref().and_then(|identity| identity.clients());
        let Some(clients) = clients.filter(|_| is_resumed) else { return false };
        let shown = connection.peer_certificates().and_then(|chain| chain.first());
        shown.is_some_and(|certificate| clients.is_over(certificate))
    }

    fn fail(&mut self) -> Opening<Handshake> {
        if let ChannelState::Up(connection) = &mut self.state {
            // the alert, which would be lost with the connection
            while connection.wants_write() && connection.write_tls(&mut self.words).is_ok() {}
        }
        self.state = ChannelState::Over;
        self.failure.get_or_insert(TransportFailure::Rules);
        Opening::Failed
    }

    /// Decrypts what was received, as far as the protocol has read what came before. The rest
    /// waits.
    fn take(&mut self, wire: &[u8]) -> Result<(), Broken> {
        let mut rest = wire;
        if let ChannelState::New(identities) = &self.state {
            // a record of TLS begins with a small number
            if rest.first().is_some_and(u8::is_ascii_alphabetic) {
                self.words.extend_from_slice(WRONG_PORT);
                self.failure = Some(TransportFailure::Protocol);
                self.state = ChannelState::Over;
                return Err(Broken);
            }
            self.state = ChannelState::Hello(Box::default(), Arc::clone(identities));
        }
        match &mut self.state {
            ChannelState::Hello(acceptor, identities) => {
                // the acceptor holds one record, or a message that it knows to be longer, so it
                // looks at each piece before it gets the next
                while !rest.is_empty() {
                    if !matches!(acceptor.read_tls(&mut rest), Ok(1..)) {
                        self.words.extend_from_slice(&DECODE_ERROR);
                        return Err(Broken);
                    }
                    match acceptor.accept() {
                        Ok(None) => {}
                        Ok(Some(accepted)) => {
                            let identities = Arc::clone(identities);
                            self.state = ChannelState::Heard(Box::new(accepted), identities);
                            self.wire = rest.to_vec();
                            break;
                        }
                        Err((_, mut alert)) => {
                            // writes to memory do not fail
                            let _ = alert.write_all(&mut self.words);
                            // the library sends no alert for a message that is too long
                            if self.words.is_empty() {
                                self.words.extend_from_slice(&DECODE_ERROR);
                            }
                            return Err(Broken);
                        }
                    }
                }
            }
            ChannelState::Up(connection) => {
                while !rest.is_empty() {
                    match connection.read_tls(&mut rest) {
                        // a message that is longer than the library takes
                        Err(_) if connection.is_handshaking() => {
                            connection.send_close_notify();
                            return Err(Broken);
                        }
                        // the client has ended its direction; or what came before must be read
                        // first
                        Ok(0) | Err(_) => break,
                        Ok(_) => {}
                    }
                    let state = match connection.process_new_packets() {
                        Ok(state) => state,
                        Err(error) => {
                            self.failure = match error {
                                rustls::Error::AlertReceived(_) => Some(TransportFailure::Client),
                                _ => clients::unproven(&error).map(TransportFailure::Unproven),
                            };
                            return Err(Broken);
                        }
                    };
                    if state.plaintext_bytes_to_read() > 0 {
                        break;
                    }
                }
                self.wire = rest.to_vec();
            }
            ChannelState::Heard(..) | ChannelState::Working => self.wire = rest.to_vec(),
            ChannelState::New(_) | ChannelState::Over => return Err(Broken),
        }
        Ok(())
    }

    /// Takes the next step of the handshake; `made` is the outcome of the part that was a job.
    pub(crate) fn open(&mut self, made: Option<Handshaken>) -> Opening<Handshake> {
        match (&self.state, made) {
            (ChannelState::Working, Some(handshaken)) => self.go_on(handshaken),
            (ChannelState::Hello(..) | ChannelState::Heard(..), None) => self.greet(),
            (ChannelState::Working, None) => self.fail(),
            _ => self.progress(),
        }
    }

    /// Takes bytes from the socket.
    pub(crate) fn receive(&mut self, wire: &[u8]) -> Result<(), Broken> {
        let taken = if self.wire.is_empty() {
            self.take(wire)
        } else {
            let mut all = std::mem::take(&mut self.wire);
            all.extend_from_slice(wire);
            self.take(&all)
        };
        if taken.is_err() {
            self.failure.get_or_insert(TransportFailure::Rules);
        }
        taken
    }

    /// Decrypts bytes for the protocol.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Plaintext {
        loop {
            let ChannelState::Up(connection) = &mut self.state else { return Plaintext::End };
            match connection.reader().read(buffer) {
                Ok(0) => return Plaintext::End,
                Ok(count) => return Plaintext::Bytes(count),
                Err(_) if self.wire.is_empty() => return Plaintext::Nothing,
                Err(_) => {}
            }
            let wire = std::mem::take(&mut self.wire);
            let count = wire.len();
            if self.take(&wire).is_err() || self.wire.len() == count {
                self.wire.clear();
                return Plaintext::End;
            }
        }
    }

    /// Encrypts head and body, and appends them to `wire`.
    pub(crate) fn write(&mut self, head: &[u8], body: &[u8], wire: &mut Vec<u8>) {
        if let ChannelState::Up(connection) = &mut self.state {
            let both = &mut [IoSlice::new(head), IoSlice::new(body)];
            let mut rest = &mut both[..];
            // skips empty parts
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                // the writer takes as much as it may hold, and fails only where it holds too much
                let Ok(count @ 1..) = connection.writer().write_vectored(rest) else { return };
                IoSlice::advance_slices(&mut rest, count);
                // writes to memory do not fail
                while connection.wants_write() && connection.write_tls(wire).is_ok() {}
            }
        }
    }

    /// Appends what the session itself has to send.
    pub(crate) fn flush(&mut self, wire: &mut Vec<u8>) {
        wire.append(&mut self.words);
        if let ChannelState::Up(connection) = &mut self.state {
            while connection.wants_write() && connection.write_tls(wire).is_ok() {}
        }
    }

    /// Appends the bytes that end this direction.
    pub(crate) fn end(&mut self, wire: &mut Vec<u8>) {
        if let ChannelState::Up(connection) = &mut self.state {
            connection.send_close_notify();
        }
        self.flush(wire);
    }
}
