//! Certificates for tests, and a client that speaks TLS.

use crate::wire;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SignatureAlgorithm};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

/// A client's end.
pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// An authority that signs certificates, and clients that trust it.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate in PEM.
    pub pem: String,
    client: Arc<ClientConfig>,
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

impl Authority {
    /// A new one.
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        // what is resumed shows the certificate of before
        client.resumption = Resumption::disabled();
        let pem = certificate.pem();
        Authority { issuer: Issuer::new(params, key), pem, client: Arc::new(client) }
    }

    /// Writes a certificate for these names to NAME.crt below `folder`, and its key to NAME.key.
    pub fn write(
        &self,
        folder: &Path,
        name: &str,
        hosts: &[&str],
        kind: &'static SignatureAlgorithm,
    ) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let key = KeyPair::generate_for(kind).unwrap();
        let certificate =
            CertificateParams::new(hosts).unwrap().signed_by(&key, &self.issuer).unwrap();
        fs::write(folder.join(format!("{name}.crt")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// A connection to a server that is asked for by this name. The handshake comes with the first byte.
    pub fn connect(&self, addr: SocketAddr, host: &str) -> Stream {
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let client = ClientConnection::new(Arc::clone(&self.client), name).unwrap();
        StreamOwned::new(client, wire::connect(addr))
    }
}
