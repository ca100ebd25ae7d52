//! The server's identities, by the name a client asks for.

use crate::clients::ClientVerification;
use crate::pair::{Pair, covers};
use crate::proofs::{ACME_TLS_1, Proofs};
use forebay_conn::Secured;
use forebay_conn::peer::ClientPolicy;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert, ServerConfig,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// What a server says it speaks (RFC 7301).
pub(crate) const HTTP_1_1: &[u8] = b"http/1.1";
pub(crate) const HTTP_2: &[u8] = b"h2";

/// One identity: the pairs of a site, of different kinds of keys, and what is agreed with its clients.
#[derive(Debug)]
pub struct Identity {
    pub(crate) config: Arc<ServerConfig>,
    pairs: Vec<Pair>,
    pub(crate) names: Arc<[String]>,
    pub(crate) clients: Option<Arc<ClientVerification>>,
    /// It shows an authority that a name is ours, and says nothing else.
    pub(crate) is_proof: bool,
}

/// All identities of a server: the exact name before the wildcard, and one for all other names.
#[derive(Debug, Default)]
pub struct Identities {
    by_host: HashMap<String, Arc<Identity>>,
    /// For the hosts right below a domain.
    by_domain: HashMap<String, Arc<Identity>>,
    default: Option<Arc<Identity>>,
    /// What authorities are shown that look whether a name is ours.
    proofs: Option<Arc<Proofs>>,
}

/// Why there is no identity of these pairs.
#[derive(Debug)]
pub enum IdentityError {
    /// There are none.
    NoPairs,
    /// They are not for the same names: this one is missing from one of them.
    Names(String),
    /// The settings contradict one another.
    Settings(rustls::Error),
}

/// Chooses among the pairs by what the client can verify: the first that fits.
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
    /// Of these pairs, the preferred one first. `tickets` seals what clients bring to resume: it must be
    /// shared by those only that may resume each other's sessions, and never by two that ask for other
    /// certificates of clients ([`ClientVerification::stamp`]). Clients may speak HTTP/2 if `with_http2`; they are
    /// asked for certificates if `clients` says so.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn new(
        pairs: Vec<Pair>,
        tickets: Tickets,
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
        let spoken = if with_http2 { &[HTTP_2, HTTP_1_1][..] } else { &[HTTP_1_1] };
        let config = config(&pairs, clients.as_deref(), spoken);
        let mut config = config.map_err(IdentityError::Settings)?;
        config.ticketer = tickets;
        // one is enough: a client that opens several connections gets one with each
        config.send_tls13_tickets = 1;
        Ok(Identity { config: Arc::new(config), pairs, names, clients, is_proof: false })
    }

    /// For an authority that looks whether a name is ours, and for no other client.
    pub(crate) fn proof(pair: Pair) -> Result<Identity, rustls::Error> {
        let (names, pairs) = (pair.names.clone().into(), vec![pair]);
        let mut config = config(&pairs, None, &[ACME_TLS_1])?;
        config.send_tls13_tickets = 0;
        Ok(Identity { config: Arc::new(config), pairs, names, clients: None, is_proof: true })
    }

    /// Whether its certificates are for this host, which is in small letters and without a port.
    pub fn covers(&self, host: &str) -> bool {
        covers(&self.names, host)
    }

    /// What it asks of its clients.
    pub fn clients(&self) -> Option<&Arc<ClientVerification>> {
        self.clients.as_ref()
    }

    /// What is asked of its clients, to be compared.
    pub fn policy(&self) -> Option<ClientPolicy> {
        self.clients.as_ref().map(|clients| clients.policy())
    }

    /// The pairs it has.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Whether the signature for this client takes so long that it is for a helper thread.
    pub(crate) fn is_dear(&self, hello: &ClientHello<'_>) -> bool {
        let fits = |pair: &&Pair| pair.key.key.choose_scheme(hello.signature_schemes()).is_some();
        self.pairs.iter().find(fits).is_some_and(|pair| pair.is_dear)
    }
}

/// What is agreed with clients that are shown one of `pairs`. Sessions are not resumed.
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

impl Identities {
    /// Without a default, a client that asks for no name or an unknown one is refused.
    pub fn new(default: Option<Arc<Identity>>) -> Identities {
        Identities { default, ..Identities::default() }
    }

    /// This identity answers for this name: a host in small letters, or `*.` and a domain. The first one
    /// for a name keeps it.
    pub fn add(&mut self, name: &str, identity: &Arc<Identity>) {
        let (by, name) = match name.strip_prefix("*.") {
            Some(domain) => (&mut self.by_domain, domain),
            None => (&mut self.by_host, name),
        };
        by.entry(name.to_owned()).or_insert_with(|| Arc::clone(identity));
    }

    /// Authorities that look whether a name is ours are shown these.
    #[must_use]
    pub fn with_proofs(mut self, proofs: &Arc<Proofs>) -> Identities {
        self.proofs = Some(Arc::clone(proofs));
        self
    }

    /// Which identity answers this hello, which asks for `name`.
    pub(crate) fn of_hello(
        &self,
        hello: &ClientHello<'_>,
        name: Option<&str>,
    ) -> Option<Arc<Identity>> {
        if let (Some(proofs), Some(name)) = (&self.proofs, name)
            && hello.alpn().is_some_and(|mut spoken| spoken.any(|one| one == ACME_TLS_1))
            && let Some(proof) = proofs.find(name)
        {
            return Some(proof);
        }
        self.find(name).cloned()
    }

    /// Which identity answers a client that asks for this name.
    pub fn find(&self, name: Option<&str>) -> Option<&Arc<Identity>> {
        let named = name.and_then(|name| {
            let wildcard = || self.by_domain.get(name.split_once('.')?.1);
            self.by_host.get(name).or_else(wildcard)
        });
        named.or(self.default.as_ref())
    }

    /// Whether a request for this host, as it was sent but without its port, has come through a connection
    /// for another one: the certificate that was shown is not for it, and the one that would have been is
    /// another (RFC 9110 §15.5.20).
    pub fn is_misdirected(&self, secured: &Secured, host: &[u8]) -> bool {
        let is_named = |name: &str| name.as_bytes().eq_ignore_ascii_case(host);
        if host.is_empty()
            || secured.name.as_deref().is_some_and(is_named)
            || secured.hosts.iter().any(|name| name.as_bytes() == host)
        {
            return false;
        }
        let mut host = String::from_utf8_lossy(host);
        if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            host.to_mut().make_ascii_lowercase();
        }
        !covers(&secured.hosts, &host)
            && self.find(Some(&host)).is_some_and(|identity| identity.names != secured.hosts)
    }
}

/// What seals tickets.
pub type Tickets = Arc<dyn ProducesTickets>;

/// Tickets that are sealed with keys of their own, which change every six hours; one is taken for twelve.
///
/// # Errors
/// Lack of random numbers.
pub fn tickets() -> Result<Tickets, rustls::Error> {
    aws_lc_rs::Ticketer::new()
}

/// The primitives of AWS-LC: X25519MLKEM768 first, and of ciphers those of 128 bits, which cost least.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    // stable: what costs the same keeps its order
    provider.cipher_suites.sort_by_key(|suite| {
        !suite.suite().as_str().is_some_and(|name| name.contains("AES_128_GCM"))
    });
    Arc::new(provider)
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
