//! What must hold for whatever a client sends where TLS is spoken.
//!
//! An input is a kind, the size of the pieces in which bytes come, and bytes:
//!
//! - `0`: they come as they are;
//! - `1`: they change what a client says in its handshake: a place and what is added to it, two bytes each;
//! - `2`: they change what it says after its handshake, in the same way.
//!
//! Letters (`a` for `1`, `b` for `2`) are for a server that wants certificates of its clients.

use forebay_conn::transport::{Broken, Opening, Plaintext};
use forebay_conn::{Job, Transport};
use forebay_metrics::{Local, Stopwatch};
use forebay_tls::{
    Authorities, Channel, ClientAuth, ClientVerification, Handshake, Handshaken, Identities,
    Identity, Pair, Shakes, TicketSealer,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::Write;
use std::sync::{Arc, OnceLock};

/// A job that does nothing but handshakes.
struct HandshakeJob(Handshake);

impl Job for HandshakeJob {
    type Done = Handshaken;

    fn run(self, _: &Local, _: &mut dyn Stopwatch) -> Handshaken {
        self.0.run()
    }

    fn lane(&self) -> u64 {
        0
    }
}

impl Shakes for HandshakeJob {
    fn handshake(handshake: Handshake) -> HandshakeJob {
        HandshakeJob(handshake)
    }

    fn handshaken(done: Handshaken) -> Option<Handshaken> {
        Some(done)
    }
}

/// Both ends of all connections.
struct TlsEnds {
    client: Arc<ClientConfig>,
    /// One that asks for nothing, and one that wants certificates.
    servers: [Arc<Identities>; 2],
}

fn ends() -> &'static TlsEnds {
    static ENDS: OnceLock<TlsEnds> = OnceLock::new();
    ENDS.get_or_init(|| {
        let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap();
        let issuer = rcgen::Issuer::new(params, key);
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        let authorities = Authorities::read(root.pem().as_bytes()).unwrap();
        let asks = ClientVerification::new(ClientAuth::Required, &[authorities], &[]).unwrap();
        let server = |clients: Option<ClientVerification>| {
            let pair = Pair::read(certificate.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
            let clients = clients.map(Arc::new);
            let identity =
                Identity::new(vec![pair], Arc::new(TicketSealer::new().unwrap()), true, clients)
                    .unwrap();
            Arc::new(Identities::new(Some(Arc::new(identity))))
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        TlsEnds { client: Arc::new(client), servers: [server(None), server(Some(asks))] }
    })
}

/// A server, as an engine has it.
struct Server {
    channel: Channel,
    step: usize,
    is_open: bool,
    is_over: bool,
    /// What the protocol was given.
    plain: Vec<u8>,
}

impl Server {
    fn receive(&mut self, wire: &[u8]) {
        for part in wire.chunks(self.step) {
            if self.is_over {
                return;
            }
            if let Err(Broken) = Transport::<HandshakeJob>::receive(&mut self.channel, part) {
                assert!(
                    Transport::<HandshakeJob>::failure(&self.channel).is_some(),
                    "without a reason"
                );
                self.is_over = true;
            } else if !self.is_open {
                self.open();
            }
            if self.is_open {
                self.read();
            }
        }
    }

    fn open(&mut self) {
        let mut opening = Transport::<HandshakeJob>::open(&mut self.channel, None);
        while let Opening::Job(HandshakeJob(handshake)) = opening {
            opening = Transport::<HandshakeJob>::open(&mut self.channel, Some(handshake.run()));
        }
        match opening {
            Opening::Open => {
                assert!(Transport::<HandshakeJob>::secured(&self.channel).is_some());
                self.is_open = true;
            }
            Opening::Failed => {
                assert!(
                    Transport::<HandshakeJob>::failure(&self.channel).is_some(),
                    "without a reason"
                );
                self.is_over = true;
            }
            Opening::Receive | Opening::Job(_) => {}
        }
    }

    fn read(&mut self) {
        let mut buffer = [0; 700];
        loop {
            match Transport::<HandshakeJob>::read(&mut self.channel, &mut buffer) {
                Plaintext::Bytes(count) => self.plain.extend_from_slice(&buffer[..count]),
                Plaintext::Nothing => return,
                Plaintext::End => {
                    self.is_over = true;
                    return;
                }
            }
        }
    }

    fn said(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        Transport::<HandshakeJob>::flush(&mut self.channel, &mut wire);
        wire
    }
}

/// Panics if something does not hold for `bytes`.
pub(crate) fn check(bytes: &[u8]) {
    let [kind, step, rest @ ..] = bytes else { return };
    let asks = usize::from(*kind >= b'a');
    let (kind, ends) = (kind & 3, ends());
    let mut server = Server {
        channel: Channel::sealed(&ends.servers[asks], [127, 0, 0, 1].into()),
        step: usize::from(*step).max(1),
        is_open: false,
        is_over: false,
        plain: Vec::new(),
    };
    if kind & 3 == 0 {
        server.receive(rest);
        assert!(!server.is_open && server.plain.is_empty(), "nobody agreed on anything");
        let words = server.said();
        assert!(words.len() < 16 * 1024 && server.said().is_empty());
        return;
    }
    let name = ServerName::try_from("a.example").unwrap();
    let mut client = ClientConnection::new(Arc::clone(&ends.client), name).unwrap();
    let asked: Vec<u8> = (0..3000_u32).map(|at| (at % 251) as u8).collect();
    let mut changes = rest.chunks_exact(4);
    let (mut at, mut has_asked) = (0, false);
    // a handshake takes few rounds
    for _ in 0..8 {
        let mut wire = Vec::new();
        if !client.is_handshaking() && !has_asked {
            client.writer().write_all(&asked).unwrap();
            has_asked = true;
        }
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        if (kind & 3 == 1) != has_asked {
            for change in changes.by_ref() {
                let place = usize::from(u16::from_be_bytes([change[0], change[1]]));
                let Some(byte) = place.checked_sub(at).and_then(|place| wire.get_mut(place)) else {
                    break;
                };
                *byte = byte.wrapping_add(change[2]);
            }
            at += wire.len();
        }
        server.receive(&wire);
        let said = server.said();
        if wire.is_empty() && said.is_empty() {
            break;
        }
        let mut rest = &said[..];
        while !rest.is_empty() && client.read_tls(&mut rest).is_ok() {
            if client.process_new_packets().is_err() {
                return;
            }
        }
    }
    assert!(asked.starts_with(&server.plain), "what the client has not said");
    if asks == 1 {
        assert!(server.plain.is_empty(), "from a client without a certificate");
    } else if rest.len() < 4 {
        assert_eq!(server.plain.len(), asked.len(), "what nobody has changed");
    }
}
