//! The crate without the Cargo feature `tls`: the types exist, so that all code that uses TLS
//! compiles, and none of their values can be made. The configuration refuses TLS by name before
//! anything here is called.

use crate::identities::Identities;
use crate::terms::{Agreed, TlsClientSettings};
use forebay_conn::peer::ClientPolicy;
use forebay_conn::transport::{Broken, Plaintext, TransportFailure};
use forebay_conn::{Opening, Secured};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::{error, fmt};

/// A type that has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Never {}

/// Defines types without values. Other packages do not see that there are none, or the compiler
/// would warn them of unreachable code.
macro_rules! absent {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {
        $($(#[$meta])*
        pub struct $name(Never);)+
    };
}

absent! {
    /// Certificates of authorities.
    #[derive(Clone, Debug)]
    Authorities,
    /// A session of a client.
    ClientSession,
    /// The requirements on client certificates.
    #[derive(Debug)]
    ClientVerification,
    /// The expensive part of a handshake.
    Handshake,
    /// The outcome of that part.
    Handshaken,
    /// The certificates of a site.
    #[derive(Debug)]
    Identity,
    /// Lists of revoked certificates.
    #[derive(Clone, Debug)]
    Revoked,
    /// Certificates that are trusted.
    #[derive(Clone, Debug)]
    Roots,
    /// The encryption of tickets.
    #[derive(Debug)]
    TicketSealer,
    /// The keys of tickets.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    TicketKeys,
    /// A client of one server.
    #[derive(Clone, Debug)]
    TlsClient,
    /// The reason why a connection goes no further.
    #[derive(Debug)]
    TlsRefusal,
}

/// The error that this program was built without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTls;

pub use NoTls as ClientError;
pub use NoTls as ClientsError;
pub use NoTls as IdentityError;
pub use NoTls as PairError;

impl fmt::Display for NoTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this program was built without TLS (the Cargo feature tls)")
    }
}

impl error::Error for NoTls {}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct Pair {
    never: Never,
    /// The names that it is for.
    pub names: Vec<String>,
    /// The time from which it is valid, in seconds since 1970.
    pub not_before_s: i64,
    /// The time when it expires, in seconds since 1970.
    pub not_after_s: i64,
}

/// Whether a client must show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// Clients without one are served, too.
    Optional,
    /// Clients without one are refused.
    Required,
}

/// Certificates that prove to an authority that a name belongs to this server: there are none.
#[derive(Debug, Default)]
pub struct Proofs(());

/// A session that fails at once.
#[derive(Debug)]
pub struct Session(());

impl Pair {
    /// Reads no pair.
    ///
    /// # Errors
    /// Always.
    pub fn read(_: &[u8], _: &[u8]) -> Result<Pair, NoTls> {
        Err(NoTls)
    }

    /// The certificate.
    pub fn certificate(&self) -> Option<&Vec<u8>> {
        match self.never {}
    }

    /// Whether the certificate is for this host.
    pub fn covers(&self, _: &str) -> bool {
        match self.never {}
    }
}

impl Identity {
    /// Makes no identity.
    ///
    /// # Errors
    /// Always.
    pub fn new(
        _: Vec<Pair>,
        _: Arc<TicketSealer>,
        _: bool,
        _: Option<Arc<ClientVerification>>,
    ) -> Result<Identity, NoTls> {
        Err(NoTls)
    }

    /// Whether the certificates are for this host.
    pub fn covers(&self, _: &str) -> bool {
        match self.0 {}
    }

    pub(crate) fn names(&self) -> &Arc<[String]> {
        match self.0 {}
    }

    /// The requirements on its clients' certificates.
    pub fn clients(&self) -> Option<&Arc<ClientVerification>> {
        match self.0 {}
    }

    /// The policy for its clients' certificates, for comparisons.
    pub fn policy(&self) -> Option<ClientPolicy> {
        match self.0 {}
    }

    /// The pairs of certificates and keys.
    pub fn pairs(&self) -> &[Pair] {
        match self.0 {}
    }
}

impl Authorities {
    /// Reads no authorities.
    ///
    /// # Errors
    /// Always.
    pub fn read(_: &[u8]) -> Result<Authorities, NoTls> {
        Err(NoTls)
    }
}

impl Revoked {
    /// Reads no lists.
    ///
    /// # Errors
    /// Always.
    pub fn read(_: &[u8]) -> Result<Revoked, NoTls> {
        Err(NoTls)
    }

    /// The time when the first of the lists expires.
    pub fn until_s(&self) -> Option<i64> {
        match self.0 {}
    }
}

impl ClientVerification {
    /// Makes no requirements.
    ///
    /// # Errors
    /// Always.
    pub fn new(
        _: ClientAuth,
        _: &[Authorities],
        _: &[Revoked],
    ) -> Result<ClientVerification, NoTls> {
        Err(NoTls)
    }

    /// Accepts only those clients whose certificates have this name.
    ///
    /// # Errors
    /// Never.
    pub fn of_name(self, _: &str) -> Result<ClientVerification, NoTls> {
        match self.0 {}
    }

    /// The policy, for comparisons.
    pub fn policy(&self) -> ClientPolicy {
        match self.0 {}
    }

    /// The digest of policy and lists.
    pub fn stamp(&self) -> [u8; 32] {
        match self.0 {}
    }
}

impl Proofs {
    pub(crate) fn find(&self, _: &str) -> Option<Arc<Identity>> {
        None
    }
}

impl TicketSealer {
    /// Makes no sealer.
    ///
    /// # Errors
    /// Always.
    pub fn new() -> Result<TicketSealer, NoTls> {
        Err(NoTls)
    }

    /// A sealer with these keys.
    pub fn with(keys: TicketKeys) -> TicketSealer {
        match keys.0 {}
    }

    /// The current keys.
    pub fn keys(&self) -> TicketKeys {
        match self.0 {}
    }
}

impl Roots {
    /// Finds no certificates.
    pub fn of_pem(_: &[u8]) -> Option<Roots> {
        None
    }

    /// Finds no certificates.
    pub fn of_certificates<C: AsRef<[u8]>>(_: impl IntoIterator<Item = C>) -> Option<Roots> {
        None
    }

    /// Trusts no certificate.
    ///
    /// # Errors
    /// Never.
    pub fn believe(&self, _: &Pair, _: bool) -> Result<(), TlsRefusal> {
        match self.0 {}
    }
}

impl Handshake {
    /// Does this part of the handshake.
    pub fn run(self) -> Handshaken {
        match self.0 {}
    }
}

impl Session {
    pub(crate) fn new(_: &Arc<Identities>, _: IpAddr) -> Session {
        Session(())
    }

    pub(crate) fn is_for_http2(&self) -> bool {
        false
    }

    pub(crate) fn failure(&self) -> Option<TransportFailure> {
        Some(TransportFailure::Name)
    }

    pub(crate) fn secured(&self) -> Option<Secured> {
        None
    }

    pub(crate) fn open(&mut self, _: Option<Handshaken>) -> Opening<Handshake> {
        Opening::Failed
    }

    pub(crate) fn receive(&mut self, _: &[u8]) -> Result<(), Broken> {
        Err(Broken)
    }

    pub(crate) fn read(&mut self, _: &mut [u8]) -> Plaintext {
        Plaintext::End
    }

    pub(crate) fn write(&mut self, _: &[u8], _: &[u8], _: &mut Vec<u8>) {}

    pub(crate) fn flush(&mut self, _: &mut Vec<u8>) {}

    pub(crate) fn end(&mut self, _: &mut Vec<u8>) {}
}

impl TlsClient {
    /// Whether a server can have this name, which is not checked here.
    pub fn may_name(_: &str) -> bool {
        true
    }

    /// Makes no client.
    ///
    /// # Errors
    /// Always.
    pub fn new(_: &TlsClientSettings, _: &str) -> Result<TlsClient, NoTls> {
        Err(NoTls)
    }

    /// A client of the same server.
    #[must_use]
    pub fn another(&self) -> TlsClient {
        match self.0 {}
    }

    /// Begins a connection.
    ///
    /// # Errors
    /// Never: there is no client.
    pub fn connect(&self) -> Result<ClientSession, TlsRefusal> {
        match self.0 {}
    }
}

impl TlsRefusal {
    /// The kind of fault, in one word.
    pub fn fault(&self) -> crate::fault::TlsFault {
        match self.0 {}
    }
}

impl fmt::Display for TlsRefusal {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl error::Error for TlsRefusal {}

/// The part of a client's session that applications need.
impl ClientSession {
    /// Whether the handshake is under way.
    pub fn is_handshaking(&self) -> bool {
        match self.0 {}
    }

    /// Whether the server has ended the session.
    pub fn has_ended(&self) -> bool {
        match self.0 {}
    }

    /// Decrypts what was received.
    ///
    /// # Errors
    /// Never: there is no session.
    pub fn receive_more(
        &mut self,
        _: &mut &[u8],
        _: &mut Vec<u8>,
        _: usize,
    ) -> Result<usize, TlsRefusal> {
        match self.0 {}
    }

    /// Whether bytes were received and not read.
    pub fn has_unread(&mut self) -> bool {
        match self.0 {}
    }

    /// Whether the session continues an earlier one.
    pub fn is_resumed(&self) -> Option<bool> {
        match self.0 {}
    }

    /// The result of the negotiation.
    pub fn agreed(&self) -> Option<Agreed> {
        match self.0 {}
    }

    /// Encrypts bytes.
    pub fn seal(&mut self, _: &[u8]) -> usize {
        match self.0 {}
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// Never: there is no session.
    pub fn flush_to(&mut self, _: &mut impl Write) -> io::Result<()> {
        match self.0 {}
    }

    /// Whether anything must be sent.
    pub fn has_to_send(&self) -> bool {
        match self.0 {}
    }

    /// Ends this direction.
    pub fn say_end(&mut self) {
        match self.0 {}
    }
}
