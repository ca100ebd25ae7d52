//! A session of TLS. The library keeps the rules of TLS; here is when it is given what, and what of it is work for a
//! helper thread.

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

/// What a client hears that speaks HTTP where TLS is spoken.
pub(crate) const WRONG_PORT: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 54\r\nConnection: close\r\n\r\n\
    This port speaks HTTPS: begin the address with https.\n";

/// The alert that is fatal and says `decode_error` (RFC 8446 §6.2), before anything is encrypted.
const DECODE_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];

/// The dear part of a handshake: agreeing on a key, and signing.
pub struct Handshake {
    accepted: Accepted,
    config: Arc<ServerConfig>,
}

/// What has come of it: a connection, or the alert that tells why not.
pub struct Handshaken(Result<Box<ServerConnection>, Vec<u8>>);

impl Handshake {
    /// Does it.
    pub fn run(self) -> Handshaken {
        let made = self.accepted.into_connection(self.config);
        Handshaken(made.map(Box::new).map_err(|(_, mut alert)| {
            let mut words = Vec::new();
            // writing to memory does not fail
            let _ = alert.write_all(&mut words);
            words
        }))
    }
}

/// A session of TLS.
pub struct Session {
    state: ChannelState,
    /// Received, and not taken apart while the protocol has not read what came before.
    wire: Vec<u8>,
    /// To be said, apart from what the connection says.
    words: Vec<u8>,
    /// Which identity answers, since that is known.
    identity: Option<Arc<Identity>>,
    /// Why it has failed, if it has.
    failure: Option<TransportFailure>,
    /// The address that the client has reached; unspecified if that is not known.
    reached: IpAddr,
}

enum ChannelState {
    /// Nothing has come yet.
    New(Arc<Identities>),
    /// The client's hello is received.
    Hello(Box<Acceptor>, Arc<Identities>),
    /// It is whole.
    Heard(Box<Accepted>, Arc<Identities>),
    /// A job does the handshake.
    Working,
    /// The handshake goes on, or is done.
    Up(Box<ServerConnection>),
    /// It has failed.
    Over,
}

impl Session {
    /// One whose client has reached this address, with a server with these identities.
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

    /// Whether HTTP/2 was agreed on.
    pub(crate) fn is_for_http2(&self) -> bool {
        match &self.state {
            ChannelState::Up(connection) => connection.alpn_protocol() == Some(HTTP_2),
            _ => false,
        }
    }

    /// Why it has failed, if it has.
    pub(crate) fn failure(&self) -> Option<TransportFailure> {
        self.failure
    }

    /// What was agreed with the client.
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

    /// The client's hello: which identity answers it, and whether that is a job.
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
            // fatal, unrecognized_name (RFC 6066 §3)
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

    /// The dear part of the handshake is done.
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
                    // the handshake was all of it
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

    /// Whether a session is resumed that a client began with a certificate that would not be taken now.
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
            // the alert, which would be lost with it
            while connection.wants_write() && connection.write_tls(&mut self.words).is_ok() {}
        }
        self.state = ChannelState::Over;
        self.failure.get_or_insert(TransportFailure::Rules);
        Opening::Failed
    }

    /// Takes apart what was received, as far as the protocol has read what came before. The rest waits.
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
                // it holds a record, or a message that it knows to be longer: it looks at each piece before the next
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
                            // writing to memory does not fail
                            let _ = alert.write_all(&mut self.words);
                            // of a message that is too long it says nothing
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
                        // the client has ended its direction; or what came before is to be read first
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

    /// The next step of the handshake; `made` is what has come of the part that was a job.
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

    /// Bytes for the protocol.
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

    /// Appends what carries both to `wire`.
    pub(crate) fn write(&mut self, head: &[u8], body: &[u8], wire: &mut Vec<u8>) {
        if let ChannelState::Up(connection) = &mut self.state {
            let both = &mut [IoSlice::new(head), IoSlice::new(body)];
            let mut rest = &mut both[..];
            // leaves out what is empty
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                // it takes as much as it may hold, and fails only where it holds too much
                let Ok(count @ 1..) = connection.writer().write_vectored(rest) else { return };
                IoSlice::advance_slices(&mut rest, count);
                // writing to memory does not fail
                while connection.wants_write() && connection.write_tls(wire).is_ok() {}
            }
        }
    }

    /// Appends what the session itself has to say.
    pub(crate) fn flush(&mut self, wire: &mut Vec<u8>) {
        wire.append(&mut self.words);
        if let ChannelState::Up(connection) = &mut self.state {
            while connection.wants_write() && connection.write_tls(wire).is_ok() {}
        }
    }

    /// Appends the words that end this direction.
    pub(crate) fn end(&mut self, wire: &mut Vec<u8>) {
        if let ChannelState::Up(connection) = &mut self.state {
            connection.send_close_notify();
        }
        self.flush(wire);
    }
}
