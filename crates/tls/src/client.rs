//! The client's end: what it trusts, what it resumes, and one connection of it.

use crate::identity::{HTTP_1_1, HTTP_2};
use crate::provider::provider;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientConfig, ClientConnection, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, Error, HandshakeKind, NamedGroup,
    ProtocolVersion, RootCertStore, SignatureScheme, SupportedProtocolVersion,
};
use std::fmt;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Certificates of authorities that are trusted.
#[derive(Clone, Debug)]
pub struct Roots(Arc<RootCertStore>);

impl Roots {
    /// Those of a text in PEM; `None` if it has none that can be read.
    pub fn of_pem(text: &[u8]) -> Option<Roots> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        Roots::of_certificates(all.ok()?)
    }

    /// These, in DER; `None` if none can be read. Authorities of a system that cannot be read are passed
    /// over: there are some everywhere.
    pub fn of_certificates<C: AsRef<[u8]>>(all: impl IntoIterator<Item = C>) -> Option<Roots> {
        let mut store = RootCertStore::empty();
        let all = all.into_iter().map(|one| CertificateDer::from(one.as_ref().to_vec()));
        let (read, _) = store.add_parsable_certificates(all);
        (read > 0).then(|| Roots(Arc::new(store)))
    }
}

/// Which authorities a client trusts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Servers with a certificate that one of these has signed, for their name and in force.
    Roots(Roots),
    /// Any server.
    Anybody,
}

/// Which versions of TLS a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// 1.3, and 1.2 with servers that do not speak it.
    #[default]
    Both,
    /// 1.2 only.
    Only12,
    /// 1.3 only.
    Only13,
}

/// What a client asks of its servers.
#[derive(Clone, Debug)]
pub struct TlsClientSettings {
    /// Which authorities it trusts.
    pub trust: Trust,
    /// Which versions it speaks.
    pub versions: Versions,
    /// It speaks HTTP/2 and nothing else; HTTP/1.1 otherwise.
    pub is_for_http2: bool,
    /// It resumes the session it had last; each handshake is a full one otherwise.
    pub resumes: bool,
    /// It offers X25519 with ML-KEM first, as new browsers do; X25519 first otherwise.
    pub is_post_quantum: bool,
}

/// A client of one server. It has sessions of its own.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    resumes: bool,
}

/// Why there is no such client.
#[derive(Debug)]
pub enum ClientError {
    /// Neither a name nor an address.
    Name(InvalidDnsNameError),
    /// The terms contradict one another.
    Terms(Error),
}

impl TlsClient {
    /// A client of the server with this name, or address without brackets, on these terms.
    ///
    /// # Errors
    /// See [`ClientError`].
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
        let builder = match &terms.trust {
            Trust::Roots(Roots(roots)) => builder.with_root_certificates(Arc::clone(roots)),
            Trust::Anybody => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Unverified(provider()))),
        };
        let mut config = builder.with_no_client_auth();
        let spoken = if terms.is_for_http2 { HTTP_2 } else { HTTP_1_1 };
        config.alpn_protocols = vec![spoken.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(TlsClient { config: Arc::new(config), name, resumes: terms.resumes }.another())
    }

    /// A client of the same server on the same terms, which has not spoken with it yet.
    pub fn another(&self) -> TlsClient {
        let mut client = self.clone();
        if self.resumes {
            let config = Arc::make_mut(&mut client.config);
            config.resumption = Resumption::store(Arc::new(LastSession::default()));
        }
        client
    }

    /// Begins a connection: its [first words](ClientSession::flush) are to be sent.
    ///
    /// # Errors
    /// Lack of random numbers.
    pub fn connect(&self) -> Result<ClientSession, TlsRefusal> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let connection = connection.map_err(TlsRefusal)?;
        Ok(ClientSession { connection, has_ended: false })
    }
}

/// What was agreed on in a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// `1.2` or `1.3`.
    pub version: &'static str,
    /// The suite of ciphers, by its registered name.
    pub cipher: &'static str,
    /// The group of the key exchange; `None` if there was none, as in resuming TLS 1.2.
    pub group: Option<&'static str>,
    /// The protocol above, if the server has chosen one.
    pub alpn: Option<&'static str>,
    /// It continues an earlier session.
    pub resumed: bool,
}

/// One connection of a client.
pub struct ClientSession {
    connection: ClientConnection,
    /// The server has said its last word.
    has_ended: bool,
}

/// Why a connection goes no further.
#[derive(Debug)]
pub struct TlsRefusal(Error);

impl ClientSession {
    /// Whether the handshake is under way.
    #[inline]
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the server has ended the session, and it was not cut off.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Takes apart what was received, from the front of `wire`, up to the next bytes of the protocol above.
    /// Returns how many of those are in `plain`; 0 if `wire` is used up and there are none.
    ///
    /// # Errors
    /// The server has broken a rule, is not trusted, or has refused. What is to be
    /// [flushed](ClientSession::flush) then tells it so.
    pub fn receive(&mut self, wire: &mut &[u8], plain: &mut [u8]) -> Result<usize, TlsRefusal> {
        loop {
            // it fails where there is nothing to read
            if let Ok(count @ 1..) = self.connection.reader().read(plain) {
                return Ok(count);
            }
            if wire.is_empty() {
                return Ok(0);
            }
            let taken = self.connection.read_tls(wire);
            if taken.map_err(|error| TlsRefusal(Error::General(error.to_string())))? == 0 {
                // what follows the end of the session is not looked at
                *wire = &[];
                return Ok(0);
            }
            let state = self.connection.process_new_packets().map_err(TlsRefusal)?;
            self.has_ended |= state.peer_has_closed();
        }
    }

    /// What was agreed on; `None` while the handshake is under way.
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
            // a server cannot choose what it was not offered
            alpn: connection.alpn_protocol().map(|name| match name {
                name if name == HTTP_2 => "h2",
                _ => "http/1.1",
            }),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        })
    }

    /// Seals bytes of the protocol above, and appends them to what is sent, behind what waits.
    pub fn write(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        let mut rest = plain;
        self.flush(wire);
        while !rest.is_empty() {
            // it takes as much as it may hold, and fails only where it holds too much: that was flushed
            let Ok(count @ 1..) = self.connection.writer().write(rest) else { return };
            rest = &rest[count..];
            self.flush(wire);
        }
    }

    /// Whether anything is to be [flushed](ClientSession::flush).
    #[inline]
    pub fn has_to_send(&self) -> bool {
        self.connection.wants_write()
    }

    /// Appends what is to be sent of handshakes, keys and alerts.
    pub fn flush(&mut self, wire: &mut Vec<u8>) {
        // writing to memory does not fail
        while self.connection.wants_write() && self.connection.write_tls(wire).is_ok() {}
    }

    /// Says that nothing follows.
    pub fn end(&mut self, wire: &mut Vec<u8>) {
        self.connection.send_close_notify();
        self.flush(wire);
    }
}

impl TlsRefusal {
    /// Whether the server has refused, by an alert.
    pub fn is_by_server(&self) -> bool {
        matches!(self.0, Error::AlertReceived(_))
    }
}

/// In few words, of which there are not many: times and other numbers are left out.
impl fmt::Display for TlsRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use CertificateError as Of;
        match &self.0 {
            Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
                f.write_str("the server does not speak this version of HTTP (alert)")
            }
            Error::AlertReceived(alert) => {
                write!(f, "the server refused: {}", alert.as_str().unwrap_or("unknown alert"))
            }
            Error::InvalidCertificate(Of::Expired | Of::ExpiredContext { .. }) => {
                f.write_str("certificate expired")
            }
            Error::InvalidCertificate(Of::NotValidYet | Of::NotValidYetContext { .. }) => {
                f.write_str("certificate not valid yet")
            }
            Error::InvalidCertificate(Of::NotValidForNameContext { expected, .. }) => {
                write!(f, "certificate for another name than {}", expected.to_str())
            }
            Error::InvalidCertificate(Of::UnknownIssuer) => {
                f.write_str("certificate not trusted: unknown issuer")
            }
            Error::InvalidCertificate(Of::Other(_)) => f.write_str("certificate not trusted"),
            Error::InvalidCertificate(error) => write!(f, "certificate not trusted: {error}"),
            Error::InvalidMessage(_) => f.write_str("what the server says is no TLS"),
            Error::PeerIncompatible(why) => write!(f, "nothing in common: {why:?}"),
            Error::PeerMisbehaved(why) => write!(f, "the server breaks the rules: {why:?}"),
            error => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for TlsRefusal {}

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
/// connections side by side needs no other.
#[derive(Debug, Default)]
struct LastSession(Mutex<StoredSession>);

#[derive(Debug, Default)]
struct StoredSession {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tls13: Option<Tls13ClientSessionValue>,
}

impl LastSession {
    /// What a panic cannot leave broken: each change is one assignment.
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

/// Takes every certificate. That the server has its key is still proved.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
