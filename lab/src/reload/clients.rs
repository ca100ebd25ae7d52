//! Clients that ask for a version, with TLS or without, while the server is reloaded with the next
//! one.

use crate::Error;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counters of what happened to the clients.
#[derive(Debug, Default)]
pub struct ReloadCounts {
    /// Answers that came whole.
    pub answers: AtomicU64,
    /// A request was sent, and the connection ended before an answer began.
    pub lost: AtomicU64,
    /// The server said `Connection: close`, or closed a connection that was idle.
    pub sent_away: AtomicU64,
    /// A connection could not be made.
    pub refused: AtomicU64,
    /// An older version, or an older certificate on a new connection, than one whose reload was
    /// confirmed before the request was sent or the connection made.
    pub stale: AtomicU64,
    /// The version that was confirmed last.
    pub confirmed: AtomicU64,
    /// Whether the clients must end.
    pub stop: AtomicBool,
}

/// The server that is asked, and the way to ask it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The server's address.
    pub address: SocketAddr,
    /// The TLS settings, if TLS is used.
    pub tls: Option<Arc<ClientConfig>>,
}

/// A certificate for each version, signed by one authority that the clients trust.
#[derive(Debug)]
pub struct VersionCertificates {
    dir: PathBuf,
    client: Arc<ClientConfig>,
}

impl VersionCertificates {
    /// Makes the certificates of the versions 0 to `last` in a folder.
    pub fn make(dir: &Path, last: u64) -> Result<VersionCertificates, Error> {
        let failed =
            |error: rcgen::Error| Error::Client(format!("cannot make a certificate: {error}"));
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new([]).map_err(failed)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "reload");
        let authority = params.self_signed(&key).map_err(failed)?;
        let issuer = Issuer::new(params, key);
        for version in 0..=last {
            let key = KeyPair::generate().map_err(failed)?;
            let names = ["localhost".to_owned(), name(version)];
            let params = CertificateParams::new(names).map_err(failed)?;
            let made = params.signed_by(&key, &issuer).map_err(failed)?;
            let [certificate, file] = files(dir, version);
            for (path, text) in [(certificate, made.pem()), (file, key.serialize_pem())] {
                fs::write(&path, text).map_err(Error::io("cannot write", &path))?;
            }
        }
        let mut roots = RootCertStore::empty();
        roots
            .add(authority.der().clone())
            .map_err(|error| Error::Client(format!("cannot trust a certificate: {error}")))?;
        let mut client =
            ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        // a session that is resumed shows no certificate
        client.resumption = Resumption::disabled();
        Ok(VersionCertificates { dir: dir.to_owned(), client: Arc::new(client) })
    }

    /// The certificate of a version, and its key.
    pub fn files(&self, version: u64) -> [PathBuf; 2] {
        files(&self.dir, version)
    }

    /// The TLS settings of a client.
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }
}

fn files(dir: &Path, version: u64) -> [PathBuf; 2] {
    ["pem", "key"].map(|kind| dir.join(format!("{version}.{kind}")))
}

/// A name that is in the certificate of this version, and in no other.
fn name(version: u64) -> String {
    format!("version-{version}.example")
}

/// The version whose certificate this is.
fn version_of(certificate: &[u8]) -> Option<u64> {
    let before = b"version-";
    let at = certificate.windows(before.len()).position(|words| words == before)?;
    let digits = certificate[at + before.len()..].iter().take_while(|byte| byte.is_ascii_digit());
    let digits: Vec<u8> = digits.copied().collect();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

/// One connection.
struct ReloadConnection {
    bytes: BufReader<Bytes>,
}

enum Bytes {
    Plain(TcpStream),
    Sealed(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Bytes::Plain(stream) => stream.read(buffer),
            Bytes::Sealed(stream) => stream.read(buffer),
        }
    }
}

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Bytes::Plain(stream) => stream.write(bytes),
            Bytes::Sealed(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Bytes::Plain(stream) => stream.flush(),
            Bytes::Sealed(stream) => stream.flush(),
        }
    }
}

impl Target {
    /// Whether the server accepts connections.
    pub fn is_there(&self) -> bool {
        self.connect().is_some()
    }

    fn connect(&self) -> Option<(ReloadConnection, Option<u64>)> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        let Some(config) = &self.tls else {
            return Some((ReloadConnection { bytes: BufReader::new(Bytes::Plain(stream)) }, None));
        };
        let name = ServerName::try_from("localhost").ok()?;
        let mut session = ClientConnection::new(Arc::clone(config), name).ok()?;
        while session.is_handshaking() {
            session.complete_io(&mut stream).ok()?;
        }
        let shown = session.peer_certificates().and_then(|chain| version_of(chain.first()?));
        let sealed = Bytes::Sealed(Box::new(StreamOwned::new(session, stream)));
        Some((ReloadConnection { bytes: BufReader::new(sealed) }, shown))
    }
}

impl ReloadConnection {
    /// Asks once. Returns the answer's version, and whether the connection stays; `None` if no
    /// answer came.
    fn ask(&mut self, keep: bool) -> Option<(u64, bool)> {
        let close = if keep { "" } else { "Connection: close\r\n" };
        let request = format!("GET /version HTTP/1.1\r\nHost: localhost\r\n{close}\r\n");
        self.bytes.get_mut().write_all(request.as_bytes()).ok()?;
        let (mut line, mut length, mut stays) = (String::new(), 0, keep);
        while line != "\r\n" {
            line.clear();
            if self.bytes.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length: ") {
                length = value.trim().parse().ok()?;
            }
            stays &= lower.trim() != "connection: close";
        }
        let mut body = vec![0; length];
        self.bytes.read_exact(&mut body).ok()?;
        Some((String::from_utf8(body).ok()?.trim().parse().ok()?, stays))
    }

    /// Whether the server has closed a connection that waits for a request.
    fn is_closed(&self) -> bool {
        let socket = match self.bytes.get_ref() {
            Bytes::Plain(stream) => stream,
            Bytes::Sealed(stream) => &stream.sock,
        };
        let peeked = socket.set_nonblocking(true).and_then(|()| socket.peek(&mut [0]));
        let _ = socket.set_nonblocking(false);
        !matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

/// Runs one client until it must stop. `keep` says whether it keeps its connection.
pub fn client(counts: &ReloadCounts, target: &Target, keep: bool, number: u64) {
    let mut kept: Option<ReloadConnection> = None;
    let mut pause = number;
    while !counts.stop.load(Relaxed) {
        if kept.as_ref().is_some_and(ReloadConnection::is_closed) {
            counts.sent_away.fetch_add(1, Relaxed);
            kept = None;
        }
        let confirmed = counts.confirmed.load(Relaxed);
        let Some((mut open, shown)) =
            kept.take().map(|open| (open, None)).or_else(|| target.connect())
        else {
            counts.refused.fetch_add(1, Relaxed);
            continue;
        };
        match open.ask(keep) {
            None => drop(counts.lost.fetch_add(1, Relaxed)),
            Some((version, stays)) => {
                counts.answers.fetch_add(1, Relaxed);
                let is_stale = version.min(shown.unwrap_or(version)) < confirmed;
                counts.stale.fetch_add(u64::from(is_stale), Relaxed);
                if stays {
                    kept = Some(open);
                } else if keep {
                    counts.sent_away.fetch_add(1, Relaxed);
                }
            }
        }
        // between 0 and 19 ms, another order for each client
        pause = pause.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number | 1);
        std::thread::sleep(Duration::from_millis((pause >> 33) % 20));
    }
}

#[cfg(test)]
mod tests {
    use super::version_of;

    #[test]
    fn the_version_stands_in_the_certificate() {
        assert_eq!(version_of(b"0localhost0version-17.example0"), Some(17));
        assert_eq!(version_of(b"localhost"), None);
        assert_eq!(version_of(b"version-"), None);
    }
}
