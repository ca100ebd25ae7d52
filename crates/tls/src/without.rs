//! Without the Cargo feature `tls`: the types are there, so that all that knows of TLS compiles, and none of their values
//! can be made. The configuration refuses TLS by name before anything here is asked.

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

/// What has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Never {}

/// Types without values. Other packages do not see that there are none: code behind one would be unreachable to them.
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
    /// What is asked of clients.
    #[derive(Debug)]
    ClientVerification,
    /// The dear part of a handshake.
    Handshake,
    /// What has come of it.
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
    /// What seals tickets.
    #[derive(Debug)]
    TicketSealer,
    /// The keys of tickets.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    TicketKeys,
    /// A client of one server.
    #[derive(Clone, Debug)]
    TlsClient,
    /// Why a connection goes no further.
    #[derive(Debug)]
    TlsRefusal,
}

/// This program was built without TLS.
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
    /// Names for which it is.
    pub names: Vec<String>,
    /// When it begins to be valid, in seconds since 1970.
    pub not_before_s: i64,
    /// When it expires, in seconds since 1970.
    pub not_after_s: i64,
}

/// How clients are asked for certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// Clients without one are served, too.
    Optional,
    /// Clients without one are refused.
    Required,
}

/// Certificates that show an authority that a name is ours: none.
#[derive(Debug, Default)]
pub struct Proofs(());

/// A session that fails at once.
#[derive(Debug)]
pub struct Session(());

impl Pair {
    /// Reads none.
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

    /// Whether it is for this host.
    pub fn covers(&self, _: &str) -> bool {
        match self.never {}
    }
}

impl Identity {
    /// Makes none.
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

    /// Whether its certificates are for this host.
    pub fn covers(&self, _: &str) -> bool {
        match self.0 {}
    }

    pub(crate) fn names(&self) -> &Arc<[String]> {
        match self.0 {}
    }

    /// What it asks of its clients.
    pub fn clients(&self) -> Option<&Arc<ClientVerification>> {
        match self.0 {}
    }

    /// What is asked of its clients, to be compared.
    pub fn policy(&self) -> Option<ClientPolicy> {
        match self.0 {}
    }

    /// The pairs it has.
    pub fn pairs(&self) -> &[Pair] {
        match self.0 {}
    }
}

impl Authorities {
    /// Reads none.
    ///
    /// # Errors
    /// Always.
    pub fn read(_: &[u8]) -> Result<Authorities, NoTls> {
        Err(NoTls)
    }
}

impl Revoked {
    /// Reads none.
    ///
    /// # Errors
    /// Always.
    pub fn read(_: &[u8]) -> Result<Revoked, NoTls> {
        Err(NoTls)
    }

    /// When the first of them expires.
    pub fn until_s(&self) -> Option<i64> {
        match self.0 {}
    }
}

impl ClientVerification {
    /// Makes none.
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

    /// The same, of one name.
    ///
    /// # Errors
    /// Never.
    pub fn of_name(self, _: &str) -> Result<ClientVerification, NoTls> {
        match self.0 {}
    }

    /// What is asked, to be compared.
    pub fn policy(&self) -> ClientPolicy {
        match self.0 {}
    }

    /// The same, with lists.
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
    /// Makes none.
    ///
    /// # Errors
    /// Always.
    pub fn new() -> Result<TicketSealer, NoTls> {
        Err(NoTls)
    }

    /// One with these keys.
    pub fn with(keys: TicketKeys) -> TicketSealer {
        match keys.0 {}
    }

    /// Its keys.
    pub fn keys(&self) -> TicketKeys {
        match self.0 {}
    }
}

impl Roots {
    /// Finds none.
    pub fn of_pem(_: &[u8]) -> Option<Roots> {
        None
    }

    /// Finds none.
    pub fn of_certificates<C: AsRef<[u8]>>(_: impl IntoIterator<Item = C>) -> Option<Roots> {
        None
    }

    /// Believes nothing.
    ///
    /// # Errors
    /// Never.
    pub fn believe(&self, _: &Pair, _: bool) -> Result<(), TlsRefusal> {
        match self.0 {}
    }
}

impl Handshake {
    /// Does it.
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
    /// Whether there may be a server with this name: that is not looked at.
    pub fn may_name(_: &str) -> bool {
        true
    }

    /// Makes none.
    ///
    /// # Errors
    /// Always.
    pub fn new(_: &TlsClientSettings, _: &str) -> Result<TlsClient, NoTls> {
        Err(NoTls)
    }

    /// Another one.
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
    /// Whose fault it is, in one word.
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

/// As far as applications are asked through it.
impl ClientSession {
    /// Whether the handshake is under way.
    pub fn is_handshaking(&self) -> bool {
        match self.0 {}
    }

    /// Whether the server has ended the session.
    pub fn has_ended(&self) -> bool {
        match self.0 {}
    }

    /// Takes apart what was received.
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

    /// What was agreed on.
    pub fn agreed(&self) -> Option<Agreed> {
        match self.0 {}
    }

    /// Seals bytes.
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

    /// Whether anything is to be sent.
    pub fn has_to_send(&self) -> bool {
        match self.0 {}
    }

    /// Says that nothing follows.
    pub fn say_end(&mut self) {
        match self.0 {}
    }
}
