//! Both ends of a connection.

use crate::passing::PassedConnection;
use crate::rank::Rank;
use forebay_http::client::ClientKey;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

/// Both ends of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address and port the connection comes from; [`UNIX`](Peer::UNIX) if it came through a
    /// Unix socket.
    pub remote: SocketAddr,
    /// The address and port of the listener it came through; unspecified (`0.0.0.0`, `::`) if that
    /// listens on all addresses, and [`UNIX`](Peer::UNIX) if it is a Unix socket.
    pub local: SocketAddr,
    /// The client's address and port, if a trusted proxy has stated them in a PROXY header.
    pub stated: Option<SocketAddr>,
    /// The result of the TLS handshake, once that is done; `None` where nothing is encrypted.
    pub secured: Option<Box<Secured>>,
    /// How the connection is passed on as it is; `None` where something is spoken here.
    pub passed: Option<Box<PassedConnection>>,
    /// The rank of its first request, if the kernel has queued the connection by that.
    pub queued: Option<Rank>,
    /// Whether another stage of this server has the connection: what was agreed for it says nothing of a
    /// client.
    pub is_stage: bool,
    /// The token of the connection's life.
    pub life: ConnectionLife,
}

/// The life of a connection, which no other connection shares. Data kept for this connection alone holds
/// it, and sees by it when the connection has ended.
#[derive(Clone, Debug, Default)]
pub struct ConnectionLife(OnceLock<Arc<()>>);

impl ConnectionLife {
    /// The token, which lives as long as the connection and its other holders. Made at the first call.
    pub fn token(&self) -> &Arc<()> {
        self.0.get_or_init(Arc::default)
    }
}

/// All lives are equal: two peers are compared by their ends only.
impl PartialEq for ConnectionLife {
    fn eq(&self, _: &ConnectionLife) -> bool {
        true
    }
}

impl Eq for ConnectionLife {}

/// The result of the handshake with the client of an encrypted connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secured {
    /// The name that the client has asked for (SNI), in small letters.
    pub name: Option<Box<str>>,
    /// The version of TLS: `1.2` or `1.3`.
    pub version: &'static str,
    /// The cipher suite, by its name in the registry of IANA.
    pub cipher: &'static str,
    /// The protocol that was agreed on (ALPN), by its name in the registry of IANA.
    pub alpn: Option<Box<str>>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// The hosts that the server's certificate is for, in small letters; `*.` and a domain stands for all
    /// hosts right below it.
    pub hosts: Arc<[String]>,
    /// What clients must show; `None` where no certificate is asked for.
    pub policy: Option<ClientPolicy>,
    /// The client's certificate, which was verified.
    pub client: Option<ClientCertificate>,
}

/// The rules for client certificates: whether one must be shown, and which authorities may have signed
/// it. Connections with the same rules have equal values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPolicy(pub [u8; 32]);

/// The certificate of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate's subject, as RFC 4514 writes names, in ASCII: `CN=worker,O=Example`.
    pub subject: Box<str>,
    /// The certificate's SHA-256 in small hexadecimal digits.
    pub fingerprint: Box<str>,
}

impl Peer {
    /// The address that stands for either end of a Unix socket, which has no address and port.
    pub const UNIX: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

    /// Both ends, as the kernel knows them.
    pub fn new(remote: SocketAddr, local: SocketAddr) -> Peer {
        let life = ConnectionLife::default();
        Peer {
            remote,
            local,
            stated: None,
            secured: None,
            passed: None,
            queued: None,
            is_stage: false,
            life,
        }
    }

    /// A stage of this server, wherever it runs: all stages have the ends of a Unix socket.
    pub fn stage() -> Peer {
        Peer { is_stage: true, ..Peer::new(Peer::UNIX, Peer::UNIX) }
    }

    /// Whether the connection came through a Unix socket.
    pub fn is_unix(&self) -> bool {
        self.remote == Peer::UNIX
    }

    /// The client's address and port: those that a trusted proxy has stated, or those that the connection
    /// comes from.
    #[inline]
    pub fn address(&self) -> SocketAddr {
        self.stated.unwrap_or(self.remote)
    }

    /// The client, in the form in which clients are counted.
    pub fn client(&self) -> ClientKey {
        ClientKey::of(self.address().ip())
    }
}
