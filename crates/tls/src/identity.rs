//! One identity of the server: its certificates, and what is negotiated with clients that are shown
//! one.

use crate::clients::ClientVerification;
use crate::names::covers;
use crate::pair::Pair;
use crate::provider::provider;
use crate::tickets::TicketSealer;
use forebay_conn::peer::ClientPolicy;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerConfig, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// The names of protocols for a server (RFC 7301).
pub(crate) const HTTP_1_1: &[u8] = b"http/1.1";
/// HTTP/1.0, which is the same to a server: the version is in each request. There are clients that
/// offer nothing else.
const HTTP_1_0: &[u8] = b"http/1.0";
pub(crate) const HTTP_2: &[u8] = b"h2";

/// The protocol of an authority that verifies that a name belongs to this server, and of no other
/// client (RFC 8737 §6.2).
pub(crate) const ACME_TLS_1: &[u8] = b"acme-tls/1";

/// One identity: the certificate pairs of a site, of different kinds of keys, and what is
/// negotiated with its clients.
#[derive(Debug)]
pub struct Identity {
    pub(crate) config: Arc<ServerConfig>,
    pairs: Vec<Pair>,
    names: Arc<[String]>,
    pub(crate) clients: Option<Arc<ClientVerification>>,
    /// Whether the identity is only the proof of a name for an authority, and has no other use.
    pub(crate) is_proof: bool,
}

/// The reason why there is no identity of these pairs.
#[derive(Debug)]
pub enum IdentityError {
    /// There are no pairs.
    NoPairs,
    /// The pairs are not for the same names: this one is missing from one of them.
    Names(String),
    /// The settings contradict one another.
    Settings(rustls::Error),
}

/// The choice among the pairs by what the client can verify: the first that fits.
#[derive(Debug)]
struct KeyChoice(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for KeyChoice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let fits =
            |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        self.0.iter().find(fits).or(self.0.first()).cloned()
    }
}

impl Identity {
    /// An identity of these pairs, the preferred one first. `tickets` encrypts the tickets that
    /// clients bring to resume. It must be shared only by those that may resume each other's
    /// sessions, and never by two with different requirements on client certificates
    /// ([`ClientVerification::stamp`]). Clients may speak HTTP/2 if `with_http2`; they are asked
    /// for certificates if `clients` is set.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn new(
        pairs: Vec<Pair>,
        tickets: Arc<TicketSealer>,
        with_http2: bool,
        clients: Option<Arc<ClientVerification>>,
    ) -> Result<Identity, IdentityError> {
        let names: Arc<[String]> =
            pairs.first().ok_or(IdentityError::NoPairs)?.names.clone().into();
        let of_first: HashSet<&String> = names.iter().collect();
        for pair in &pairs {
            let of_other: HashSet<&String> = pair.names.iter().collect();
            if let Some(name) = of_first.symmetric_difference(&of_other).next() {
                return Err(IdentityError::Names((*name).clone()));
            }
        }
        let spoken = [HTTP_2, HTTP_1_1, HTTP_1_0];
        let spoken = if with_http2 { &spoken[..] } else { &spoken[1..] };
        let config = config(&pairs, clients.as_deref(), spoken);
        let mut config = config.map_err(IdentityError::Settings)?;
        config.ticketer = tickets;
        // one is enough: a client that opens several connections gets one with each
        config.send_tls13_tickets = 1;
        Ok(Identity { config: Arc::new(config), pairs, names, clients, is_proof: false })
    }

    /// An identity for an authority that verifies that a name belongs to this server, and for no
    /// other client.
    pub(crate) fn proof(pair: Pair) -> Result<Identity, rustls::Error> {
        let (names, pairs) = (pair.names.clone().into(), vec![pair]);
        let mut config = config(&pairs, None, &[ACME_TLS_1])?;
        config.send_tls13_tickets = 0;
        Ok(Identity { config: Arc::new(config), pairs, names, clients: None, is_proof: true })
    }

    /// Whether the certificates are for this host, which is in lower case and without a port.
    pub fn covers(&self, host: &str) -> bool {
        covers(&self.names, host)
    }

    /// The names that the certificates are for.
    pub(crate) fn names(&self) -> &Arc<[String]> {
        &self.names
    }

    /// The requirements on its clients' certificates.
    pub fn clients(&self) -> Option<&Arc<ClientVerification>> {
        self.clients.as_ref()
    }

    /// The policy for its clients' certificates, for comparisons.
    pub fn policy(&self) -> Option<ClientPolicy> {
        self.clients.as_ref().map(|clients| clients.policy())
    }

    /// The pairs of certificates and keys.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Whether the signature for this client takes so long that a helper thread computes it.
    pub(crate) fn is_dear(&self, hello: &ClientHello<'_>) -> bool {
        let fits = |pair: &&Pair| pair.key.key.choose_scheme(hello.signature_schemes()).is_some();
        self.pairs.iter().find(fits).is_some_and(|pair| pair.is_dear)
    }
}

/// The configuration for clients that are shown one of `pairs`. Sessions are not resumed.
fn config(
    pairs: &[Pair],
    clients: Option<&ClientVerification>,
    spoken: &[&[u8]],
) -> Result<ServerConfig, rustls::Error> {
    let choice = KeyChoice(pairs.iter().map(|pair| Arc::clone(&pair.key)).collect());
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_client_cert_verifier(match clients {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(clients) => Arc::clone(&clients.verifier),
        })
        .with_cert_resolver(Arc::new(choice));
    config.ignore_client_order = true;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.alpn_protocols = spoken.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdentityError::NoPairs => f.write_str("there is no certificate"),
            IdentityError::Names(name) => {
                write!(f, "not all of its certificates are for {name:?}")
            }
            IdentityError::Settings(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for IdentityError {}
