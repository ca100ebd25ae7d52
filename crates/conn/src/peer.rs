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
    /// What was agreed with the client, once that is done; `None` where nothing is encrypted.
    pub secured: Option<Box<Secured>>,
    /// Its bytes are passed on as they are; `None` where something is spoken here.
    pub passed: Option<Box<PassedConnection>>,
    /// The rank of its first request, if the kernel has queued it by that.
    pub queued: Option<Rank>,
    /// Another stage of this server has it: what was agreed for it says nothing of a client.
    pub is_stage: bool,
    /// How long the connection lives.
    pub life: ConnectionLife,
}

/// The life of a connection. What is kept for this connection alone sees by it when the connection has ended, and no
/// other has the same.
#[derive(Clone, Debug, Default)]
pub struct ConnectionLife(OnceLock<Arc<()>>);

impl ConnectionLife {
    /// Lives as long as the connection, or what holds it. Made when it is asked for first.
    pub fn token(&self) -> &Arc<()> {
        self.0.get_or_init(Arc::default)
    }
}

/// It says nothing of the ends of the connection.
impl PartialEq for ConnectionLife {
    fn eq(&self, _: &ConnectionLife) -> bool {
        true
    }
}

impl Eq for ConnectionLife {}

/// What was agreed with the client of an encrypted connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secured {
    /// The name it has asked for (SNI), in small letters.
    pub name: Option<Box<str>>,
    /// The version of TLS: `1.2` or `1.3`.
    pub version: &'static str,
    /// The cipher suite, by its name in the registry of IANA.
    pub cipher: &'static str,
    /// The protocol that was agreed on (ALPN), by its name in the registry of IANA.
    pub alpn: Option<Box<str>>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// The hosts for which the certificate is that was shown, in small letters; `*.` and a domain stands
    /// for all right below it.
    pub hosts: Arc<[String]>,
    /// What was asked of the client; `None` where no certificate is asked for.
    pub policy: Option<ClientPolicy>,
    /// The certificate it has shown, which was found good.
    pub client: Option<ClientCertificate>,
}

/// What is asked of clients: whether they must show a certificate, and which authorities may have signed
/// it. The same for all connections of which the same is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPolicy(pub [u8; 32]);

/// The certificate of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Its subject, as RFC 4514 writes names, in ASCII: `CN=worker,O=Example`.
    pub subject: Box<str>,
    /// Its SHA-256 in small hexadecimal digits.
    pub fingerprint: Box<str>,
}

impl Peer {
    /// What stands for either end of a Unix socket, which has no address and port.
    pub const UNIX: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

    /// Both ends as the kernel knows them.
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

    /// A stage of this server, wherever it is: all of them are as those that come through a Unix socket.
    pub fn stage() -> Peer {
        Peer { is_stage: true, ..Peer::new(Peer::UNIX, Peer::UNIX) }
    }

    /// Whether the connection came through a Unix socket.
    pub fn is_unix(&self) -> bool {
        self.remote == Peer::UNIX
    }

    /// The client's address and port: what a trusted proxy has stated, or where the connection comes
    /// from.
    #[inline]
    pub fn address(&self) -> SocketAddr {
        self.stated.unwrap_or(self.remote)
    }

    /// The client, as clients are counted.
    pub fn client(&self) -> ClientKey {
        ClientKey::of(self.address().ip())
    }
}
