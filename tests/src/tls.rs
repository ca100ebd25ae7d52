//! Certificates for tests, and a client that speaks TLS.

use crate::faults::crowd::connect_from;
use crate::faults::site::Folder;
use crate::server::free_addr;
use crate::wire;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams,
    CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod,
    KeyPair, PKCS_ECDSA_P256_SHA256, RevokedCertParams, SignatureAlgorithm, date_time_ymd,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::set_socket_linger;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, Connection, DEFAULT_VERSIONS, DigitallySignedStruct,
    RootCertStore, ServerConfig, ServerConnection, SignatureScheme, StreamOwned,
    SupportedProtocolVersion,
};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use std::{env, fs, io, thread};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A client's end of a connection.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// An authority that signs certificates, and clients that trust it.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The authority's own certificate in PEM.
    pub pem: String,
    roots: RootCertStore,
    client: Arc<ClientConfig>,
}

fn client(roots: RootCertStore, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    // a resumed session would show the old certificate
    client.resumption = Resumption::disabled();
    client
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

impl Authority {
    /// Makes a new authority.
    pub fn new() -> Authority {
        Authority::named("authority")
    }

    /// Makes a new authority with this name.
    pub fn named(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let client = Arc::new(client(roots.clone(), DEFAULT_VERSIONS));
        Authority { issuer: Issuer::new(params, key), pem: certificate.pem(), roots, client }
    }

    /// Writes a certificate for these names to NAME.crt below `folder`, and its key to NAME.key.
    pub fn write(
        &self,
        folder: &Path,
        name: &str,
        hosts: &[&str],
        kind: &'static SignatureAlgorithm,
    ) {
        self.write_with(folder, name, hosts, kind, |_| {});
    }

    /// Writes a certificate and its key, with changes to the certificate's parameters.
    pub fn write_with(
        &self,
        folder: &Path,
        name: &str,
        hosts: &[&str],
        kind: &'static SignatureAlgorithm,
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let key = KeyPair::generate_for(kind).unwrap();
        let mut params = CertificateParams::new(hosts).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(folder.join(format!("{name}.crt")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// The configuration of the authority's clients: they resume no sessions.
    pub fn client(&self) -> ClientConfig {
        ClientConfig::clone(&self.client)
    }

    /// The configuration of clients that speak these versions only.
    pub fn client_speaking(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        client(self.roots.clone(), versions)
    }

    /// The configuration of a client that shows a certificate which this authority has signed, with this
    /// common name and serial number.
    pub fn known(&self, mut client: ClientConfig, name: &str, serial: u8) -> ClientConfig {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.serial_number = Some(vec![serial].into());
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap();
        let shown = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
        client.client_auth_cert_resolver = Arc::new(shown);
        client
    }

    /// Signs the certificate for this request (PKCS#10, in DER). Returns its chain in PEM.
    pub fn sign(&self, request: Vec<u8>) -> String {
        let mut request = CertificateSigningRequestParams::from_der(&request.into()).unwrap();
        request.params.use_authority_key_identifier_extension = true;
        let now = SystemTime::now();
        request.params.not_before = (now - DAY).into();
        request.params.not_after = (now + 89 * DAY).into();
        request.params.serial_number = Some(rcgen::SerialNumber::from(fastrand::u64(1..1 << 60)));
        request.signed_by(&self.issuer).unwrap().pem() + &self.pem
    }

    /// A revocation list in PEM with this serial number.
    pub fn list(&self, serial: u8) -> String {
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2999, 1, 1),
            crl_number: vec![1].into(),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: vec![serial].into(),
                revocation_time: date_time_ymd(2020, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// A connection to a server with this host name. The handshake comes with the first byte.
    pub fn connect(&self, addr: SocketAddr, host: &str) -> TlsStream {
        connect(&self.client, addr, host)
    }
}

/// A connection with the client's configuration of the test.
pub fn connect(client: &Arc<ClientConfig>, addr: SocketAddr, host: &str) -> TlsStream {
    over(client, wire::connect(addr), host)
}

/// A TLS session over a socket that is connected.
pub fn over(client: &Arc<ClientConfig>, socket: TcpStream, host: &str) -> TlsStream {
    let name = ServerName::try_from(host.to_owned()).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::clone(client), name).unwrap(), socket)
}

/// The configuration of a client that accepts every certificate.
pub fn untrusting() -> ClientConfig {
    let mut client = client(RootCertStore::empty(), DEFAULT_VERSIONS);
    client.dangerous().set_certificate_verifier(Arc::new(Untrusting));
    client
}

/// A verifier that accepts every certificate.
#[derive(Debug)]
struct Untrusting;

impl ServerCertVerifier for Untrusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The first certificate of a text in PEM, in DER.
pub fn first_certificate(pem: &[u8]) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem).unwrap().to_vec()
}

/// The configuration of a server that shows NAME.crt below `folder`.
pub fn server(folder: &Path, name: &str) -> ServerConfig {
    server_for(folder, name, None)
}

/// The configuration of a server that takes only clients whose certificates one of these has signed.
pub fn server_for(folder: &Path, name: &str, clients: Option<RootCertStore>) -> ServerConfig {
    let file = |end| folder.join(format!("{name}.{end}"));
    let chain = CertificateDer::pem_file_iter(file("crt")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_protocol_versions(DEFAULT_VERSIONS).unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(roots) => {
            let roots = Arc::new(roots);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        }
    };
    builder.with_single_cert(chain, key).unwrap()
}

/// The ClientHello of a client: enough to have the server do its part of a handshake.
pub fn hello(client: &Arc<ClientConfig>, host: &str) -> Vec<u8> {
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut words = Vec::new();
    client.write_tls(&mut words).unwrap();
    words
}

/// A relay that passes bytes at an address of its own on to a server through TLS, with each end and each
/// reset. A test that speaks plain bytes there speaks them to the server.
pub struct TlsRelay {
    /// The address of the relay.
    pub addr: SocketAddr,
}

impl TlsRelay {
    /// Starts a relay to the server at `to`, which has this host name; it runs until the process ends.
    /// Bytes for a slow client are held as the kernel would hold them.
    pub fn start(authority: &Authority, to: SocketAddr, host: &str) -> TlsRelay {
        TlsRelay::holding(authority, to, host, usize::MAX)
    }

    /// Starts a relay whose clients keep their addresses, with little room for bytes that a client does
    /// not take.
    pub fn narrow(authority: &Authority, to: SocketAddr, host: &str) -> TlsRelay {
        TlsRelay::holding(authority, to, host, 64 * 1024)
    }

    fn holding(authority: &Authority, to: SocketAddr, host: &str, most: usize) -> TlsRelay {
        let addr = free_addr();
        let listener = TcpListener::bind(addr).unwrap();
        let (config, host) = (Arc::clone(&authority.client), host.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let name = ServerName::try_from(host.clone()).unwrap();
                let connection = ClientConnection::new(Arc::clone(&config), name).unwrap();
                let Ok(from) = client.peer_addr() else { continue };
                let Ok(server) = connect_from(from.ip(), to) else { continue };
                let connection = connection.into();
                thread::spawn(move || Passing { client, server, connection, most }.run());
            }
        });
        TlsRelay { addr }
    }
}

/// An address that speaks TLS, and passes bytes on to an application that does not, with each end and
/// each reset.
pub struct SealedApplication {
    /// The address that speaks TLS.
    pub addr: SocketAddr,
}

impl SealedApplication {
    /// Starts before the application at `to`; it runs until the process ends.
    pub fn start(config: ServerConfig, to: SocketAddr) -> SealedApplication {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, config) = (listener.local_addr().unwrap(), Arc::new(config));
        thread::spawn(move || {
            for server in listener.incoming().map_while(Result::ok) {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap().into();
                let Ok(client) = TcpStream::connect(to) else { continue };
                thread::spawn(move || Passing { client, server, connection, most: 1 << 20 }.run());
            }
        });
        SealedApplication { addr }
    }
}

/// The value of `to` in a route, with the settings that belong to it: the addresses of applications as
/// they are in `to` (`"http://127.0.0.1:9000"`), or, with `FOREBAY_TLS_APPLICATIONS=1`, through TLS.
pub fn applications_at(to: &str) -> String {
    if env::var("FOREBAY_TLS_APPLICATIONS").as_deref() != Ok("1") {
        return to.to_owned();
    }
    static KNOWN: OnceLock<(Folder, ServerConfig)> = OnceLock::new();
    let (folder, config) = KNOWN.get_or_init(|| {
        let (folder, authority) = (Folder::new(), Authority::new());
        authority.write(folder.path(), "app", &["127.0.0.1", "localhost"], &PKCS_ECDSA_P256_SHA256);
        folder.write("ca.pem", &authority.pem);
        let config = server(folder.path(), "app");
        (folder, config)
    });
    let mut said = String::new();
    for (at, part) in to.split("\"http://").enumerate() {
        let address = part.split_once('"').filter(|_| at > 0);
        let Some((address, rest)) = address else {
            said.push_str(part);
            continue;
        };
        let sealed = SealedApplication::start(config.clone(), address.parse().unwrap());
        said.push_str(&format!("\"https://{}\"{rest}", sealed.addr));
    }
    match said.contains("https://") {
        true => format!("{said}\ntls.ca = [{:?}]", folder.join("ca.pem")),
        false => said,
    }
}

/// One connection of a relay.
struct Passing {
    client: TcpStream,
    server: TcpStream,
    connection: Connection,
    /// The most bytes that may wait for the client.
    most: usize,
}

impl Passing {
    fn run(mut self) {
        self.client.set_nonblocking(true).unwrap();
        self.server.set_nonblocking(true).unwrap();
        let _ = (self.client.set_nodelay(true), self.server.set_nodelay(true));
        if self.pass().is_err() {
            // whatever has failed at one end fails at the other
            for socket in [&self.client, &self.server] {
                let _ = set_socket_linger(socket, Some(Duration::ZERO));
            }
        }
    }

    fn pass(&mut self) -> io::Result<()> {
        let (mut up, mut down) = (true, true);
        let (mut to_client, mut buffer) = (Vec::new(), [0; 16 * 1024]);
        while up || down || !to_client.is_empty() || self.connection.wants_write() {
            let sealed = self.connection.wants_write();
            // nothing may be sent before the handshake is done, least of all the end
            let may_say = up && !sealed && !self.connection.is_handshaking();
            let wants = |read, write| {
                let read = if read { PollFlags::IN } else { PollFlags::empty() };
                let write = if write { PollFlags::OUT } else { PollFlags::empty() };
                read | write
            };
            let reads = down && to_client.len() < self.most;
            let mut fds = [
                PollFd::new(&self.client, wants(may_say, !to_client.is_empty())),
                PollFd::new(&self.server, wants(reads, sealed)),
            ];
            poll(&mut fds, None)?;
            if sealed {
                // a server that refuses may have closed, and its answer is on its way
                if would_block(self.connection.write_tls(&mut self.server)).is_err() {
                    up = false;
                    while self.connection.wants_write() {
                        self.connection.write_tls(&mut io::sink())?;
                    }
                }
            } else if may_say && let Some(count) = would_block(self.client.read(&mut buffer))? {
                match count {
                    0 => {
                        up = false;
                        self.connection.send_close_notify();
                    }
                    count => self.connection.writer().write_all(&buffer[..count])?,
                }
            }
            // all that comes, as the kernel would hold it for a client that takes its time
            if reads {
                match would_block(self.connection.read_tls(&mut self.server))? {
                    None => {}
                    Some(count) => {
                        self.connection.process_new_packets().map_err(io::Error::other)?;
                        while let Ok(count @ 1..) = self.connection.reader().read(&mut buffer) {
                            to_client.extend_from_slice(&buffer[..count]);
                        }
                        down = count > 0;
                    }
                }
            }
            if !to_client.is_empty()
                && let Some(count) = would_block(self.client.write(&to_client))?
            {
                to_client.drain(..count);
            }
            if !down && to_client.is_empty() {
                let _ = self.client.shutdown(Shutdown::Write);
            }
        }
        Ok(())
    }
}

/// The result of a call; `None` if the call has to be repeated.
fn would_block(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
