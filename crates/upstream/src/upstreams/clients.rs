//! The TLS clients for the upstreams of a group: two for each, by the version of HTTP, with sessions
//! of their own.
//!
//! They are made anew when files of certificates have changed. Connections that older clients have
//! begun are not used again, and sessions do not outlive their clients: what was trusted once counts
//! no longer.

use crate::settings::UpstreamTlsSettings;
use crate::settings::upstream_address::UpstreamAddress;
use crate::upstreams::connection::UpstreamConnection;
use forebay_tls::{
    ClientError, KeptSessions, Pair, Roots, TlsClient, TlsClientSettings, Trust, Versions,
};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The contents of the TLS files that settings name.
#[derive(Debug)]
pub struct UpstreamTlsFiles {
    /// The unique number of these contents.
    number: u64,
    terms: TlsClientSettings,
    name: Option<Box<str>>,
}

impl UpstreamTlsFiles {
    /// The contents for these settings. `roots` were read from the files they name, or are those of
    /// the system; `pair` is the client certificate and its key.
    pub fn new(
        settings: &UpstreamTlsSettings,
        roots: Option<Roots>,
        pair: Option<Pair>,
    ) -> UpstreamTlsFiles {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        // without roots, nothing is verified
        let trust = roots.map_or(Trust::Anybody, Trust::Roots);
        let terms = TlsClientSettings {
            trust,
            versions: if settings.is_1_3 { Versions::Only13 } else { Versions::Both },
            is_for_http2: false,
            sessions: KeptSessions::Several,
            is_post_quantum: true,
            shows: pair,
        };
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        UpstreamTlsFiles { number, terms, name: settings.name.clone() }
    }
}

/// The TLS clients of one group; none before the files were read.
#[derive(Debug, Default)]
pub(crate) struct UpstreamClients(RwLock<Option<Arc<ClientsInForce>>>);

#[derive(Debug)]
struct ClientsInForce {
    /// The number of their files.
    number: u64,
    /// The clients by upstream: for HTTP/1.1, and for HTTP/2.
    each: Vec<[TlsClient; 2]>,
}

impl UpstreamClients {
    fn in_force(&self) -> Option<Arc<ClientsInForce>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(Arc::clone)
    }

    /// Takes over these files, for upstreams at these addresses. The same files change nothing.
    pub(crate) fn set<'t>(
        &self,
        files: &UpstreamTlsFiles,
        to: impl Iterator<Item = &'t UpstreamAddress>,
    ) -> Result<(), ClientError> {
        let number = files.number;
        if self.in_force().is_some_and(|known| known.number == number) {
            return Ok(());
        }
        let for_http2 = TlsClientSettings { is_for_http2: true, ..files.terms.clone() };
        let client = |address: &UpstreamAddress| {
            let host = address.host();
            let name = files.name.as_deref().unwrap_or(&host);
            Ok([TlsClient::new(&files.terms, name)?, TlsClient::new(&for_http2, name)?])
        };
        let each = to.map(client).collect::<Result<_, ClientError>>()?;
        let next = Arc::new(ClientsInForce { number, each });
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(next);
        Ok(())
    }

    /// Begins a session over a connection to this upstream, for one of the versions of HTTP.
    pub(crate) fn begin(
        &self,
        member: usize,
        is_http2: bool,
        connection: UpstreamConnection,
    ) -> io::Result<UpstreamConnection> {
        let clients = self.in_force();
        let client = clients.as_ref().and_then(|clients| clients.each.get(member));
        let unknown = || io::Error::other("no certificates are known");
        let [for_http1, for_http2] = client.ok_or_else(unknown)?;
        let client = if is_http2 { for_http2 } else { for_http1 };
        let session = client.connect().map_err(io::Error::other)?;
        Ok(connection.with_tls(session, clients.map_or(0, |clients| clients.number)))
    }

    /// Whether the current clients have this number, and so have begun the session.
    pub(crate) fn have_begun(&self, number: Option<u64>) -> bool {
        self.in_force().is_some_and(|clients| number == Some(clients.number))
    }
}
