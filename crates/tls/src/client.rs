//! The client's end: the servers it trusts, the sessions it resumes, and its connections.

mod belief;
mod refusal;
mod trust;

pub use refusal::TlsRefusal;

use crate::identity::{HTTP_1_1, HTTP_2};
use crate::provider::provider;
use crate::terms::{Agreed, KeptSessions, TlsClientSettings, Versions};
use rustls::client::{
    ClientConfig, ClientConnection, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{Error, HandshakeKind, NamedGroup, ProtocolVersion, SupportedProtocolVersion};
use std::fmt;
use std::io::{self, BufRead, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of tickets that are kept of one server, where several are.
const TICKETS: usize = 8;

/// A client of one server, which has sessions of its own.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    sessions: KeptSessions,
}

/// The reason why there is no such client.
#[derive(Debug)]
pub enum ClientError {
    /// The name is neither a host name nor an address.
    Name(InvalidDnsNameError),
    /// The settings contradict one another.
    Terms(Error),
}

impl TlsClient {
    /// Whether a server can have this name, or address without brackets.
    pub fn may_name(name: &str) -> bool {
        ServerName::try_from(name).is_ok()
    }

    /// A client of the server with this name, or address without brackets, with these settings.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn new(terms: &TlsClientSettings, name: &str) -> Result<TlsClient, ClientError> {
        let name = ServerName::try_from(name.to_owned()).map_err(ClientError::Name)?;
        let versions: &[&SupportedProtocolVersion] = match terms.versions {
            Versions::Both => &[&TLS13, &TLS12],
            Versions::Only12 => &[&TLS12],
            Versions::Only13 => &[&TLS13],
        };
        let mut offered = CryptoProvider::clone(&provider());
        if !terms.is_post_quantum {
            offered.kx_groups.retain(|group| group.name() != NamedGroup::X25519MLKEM768);
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(offered))
            .with_protocol_versions(versions)
            .map_err(ClientError::Terms)?;
        let verifier = trust::verifier(&terms.trust, &provider())?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match &terms.shows {
            None => builder.with_no_client_auth(),
            Some(pair) => builder
                .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&pair.key)))),
        };
        let spoken = if terms.is_for_http2 { HTTP_2 } else { HTTP_1_1 };
        config.alpn_protocols = vec![spoken.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(TlsClient { config: Arc::new(config), name, sessions: terms.sessions }.another())
    }

    /// A client of the same server with the same settings, which has not connected to it yet.
    pub fn another(&self) -> TlsClient {
        let mut client = self.clone();
        let resumption = match self.sessions {
            KeptSessions::None => return client,
            KeptSessions::Last => Resumption::store(Arc::new(LastSession::default())),
            KeptSessions::Several => Resumption::in_memory_sessions(TICKETS),
        };
        Arc::make_mut(&mut client.config).resumption = resumption;
        client
    }

    /// Begins a connection; the caller must send its [first bytes](ClientSession::flush).
    ///
    /// # Errors
    /// Lack of random numbers.
    pub fn connect(&self) -> Result<ClientSession, TlsRefusal> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let connection = connection.map_err(TlsRefusal::of)?;
        Ok(ClientSession { connection, has_ended: false })
    }
}

/// A connection of a client.
pub struct ClientSession {
    connection: ClientConnection,
    /// The server has ended the session in good order.
    has_ended: bool,
}

impl ClientSession {
    /// Whether the handshake is under way.
    #[inline]
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the server has ended the session in good order, so that it was not cut off.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Decrypts what was received, from the front of `wire`, up to the next bytes of the protocol
    /// above. Returns the number of those in `plain`; 0 if `wire` is used up and there are none.
    ///
    /// # Errors
    /// The server has broken a rule, is not trusted, or has refused. The alert that says so must
    /// then be [flushed](ClientSession::flush).
    pub fn receive(&mut self, wire: &mut &[u8], plain: &mut [u8]) -> Result<usize, TlsRefusal> {
        loop {
            // reading fails where there is nothing to read
            if let Ok(count @ 1..) = self.connection.reader().read(plain) {
                return Ok(count);
            }
            if wire.is_empty() {
                return Ok(0);
            }
            let taken = self.connection.read_tls(wire);
            if taken.map_err(too_much)? == 0 {
                // bytes after the end of the session are ignored
                *wire = &[];
                return Ok(0);
            }
            let state = self.connection.process_new_packets().map_err(TlsRefusal::of)?;
            self.has_ended |= state.peer_has_closed();
        }
    }

    /// Decrypts like `receive`, appended to `plain`: at most `most` bytes. Returns their number; if
    /// it is below `most`, `wire` is used up.
    ///
    /// # Errors
    /// The errors of [`receive`](ClientSession::receive). Bytes from before the error are in
    /// `plain`.
    pub fn receive_more(
        &mut self,
        wire: &mut &[u8],
        plain: &mut Vec<u8>,
        most: usize,
    ) -> Result<usize, TlsRefusal> {
        let begin = plain.len();
        loop {
            let mut reader = self.connection.reader();
            // reading fails where there is nothing to read
            while let Ok(bytes @ [_, ..]) = reader.fill_buf() {
                let count = bytes.len().min(most - (plain.len() - begin));
                if count == 0 {
                    return Ok(most);
                }
                plain.extend_from_slice(&bytes[..count]);
                reader.consume(count);
            }
            if wire.is_empty() {
                return Ok(plain.len() - begin);
            }
            if self.connection.read_tls(wire).map_err(too_much)? == 0 {
                // bytes after the end of the session are ignored
                *wire = &[];
            }
            let state = self.connection.process_new_packets().map_err(TlsRefusal::of)?;
            self.has_ended |= state.peer_has_closed();
        }
    }

    /// Whether bytes of the protocol above were received and not read.
    #[inline]
    pub fn has_unread(&mut self) -> bool {
        matches!(self.connection.reader().fill_buf(), Ok([_, ..]))
    }

    /// Whether the session continues an earlier one; `None` while the handshake is under way.
    #[inline]
    pub fn is_resumed(&self) -> Option<bool> {
        let kind = self.connection.handshake_kind().filter(|_| !self.is_handshaking());
        kind.map(|kind| kind == HandshakeKind::Resumed)
    }

    /// The result of the negotiation; `None` while the handshake is under way.
    pub fn agreed(&self) -> Option<Agreed> {
        let connection = &self.connection;
        let version = match connection.protocol_version()? {
            ProtocolVersion::TLSv1_3 => "1.3",
            _ => "1.2",
        };
        let group = connection.negotiated_key_exchange_group();
        Some(Agreed {
            version,
            cipher: connection.negotiated_cipher_suite()?.suite().as_str().unwrap_or("unknown"),
            group: group.map(|group| group.name().as_str().unwrap_or("unknown")),
            // a server can choose only what was offered
            alpn: connection.alpn_protocol().map(|name| match name {
                name if name == HTTP_2 => "h2",
                _ => "http/1.1",
            }),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        })
    }

    /// Encrypts bytes of the protocol above, and appends them to what is sent, after what waits.
    pub fn write(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        let mut rest = plain;
        self.flush(wire);
        while !rest.is_empty() {
            // the writer takes as much as it may hold, and fails only where it holds too much,
            // which was flushed
            let Ok(count @ 1..) = self.connection.writer().write(rest) else { return };
            rest = &rest[count..];
            self.flush(wire);
        }
    }

    /// Encrypts as many bytes of the protocol above as the session may hold, after what waits to be
    /// sent. Returns their number.
    pub fn seal(&mut self, plain: &[u8]) -> usize {
        self.connection.writer().write(plain).unwrap_or_default()
    }

    /// Sends what waits, without copying it together before.
    ///
    /// # Errors
    /// The errors of `to`; bytes that were not taken then still wait.
    pub fn flush_to(&mut self, to: &mut impl Write) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(to)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Whether anything must be [flushed](ClientSession::flush).
    #[inline]
    pub fn has_to_send(&self) -> bool {
        self.connection.wants_write()
    }

    /// Appends bytes of handshakes, keys and alerts that must be sent.
    pub fn flush(&mut self, wire: &mut Vec<u8>) {
        // writes to memory do not fail
        while self.connection.wants_write() && self.connection.write_tls(wire).is_ok() {}
    }

    /// Ends this direction with a `close_notify`, which must be [flushed](ClientSession::flush_to).
    pub fn say_end(&mut self) {
        self.connection.send_close_notify();
    }

    /// Ends this direction with a `close_notify`, appended to `wire`.
    pub fn end(&mut self, wire: &mut Vec<u8>) {
        self.connection.send_close_notify();
        self.flush(wire);
    }
}

/// The error for a message that is longer than the library takes.
fn too_much(error: io::Error) -> TlsRefusal {
    TlsRefusal::of(Error::General(error.to_string()))
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Name(error) => write!(f, "no name of a server: {error}"),
            ClientError::Terms(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for ClientError {}

/// The session that can be resumed next. Of several tickets the newest is kept: a client without
/// parallel connections needs no other.
#[derive(Debug, Default)]
struct LastSession(Mutex<StoredSession>);

#[derive(Debug, Default)]
struct StoredSession {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tls13: Option<Tls13ClientSessionValue>,
}

impl LastSession {
    /// Runs `look` with the session. A panic cannot leave that broken, as each change is one
    /// assignment.
    fn with<T>(&self, look: impl FnOnce(&mut StoredSession) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientSessionStore for LastSession {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.with(|session| session.group = Some(group));
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.with(|session| session.group)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.with(|session| session.tls12 = Some(value));
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.with(|session| session.tls12.clone())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.with(|session| session.tls12 = None);
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.with(|session| session.tls13 = Some(value));
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.with(|session| session.tls13.take())
    }
}

#[cfg(test)]
mod tests;
