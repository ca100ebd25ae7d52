//! Streams through TLS, over a pair of sockets with the library's own server.

use super::*;
use forebay_sys::poll::{self, PollInterest};
use forebay_tls::{KeptSessions, Roots, TlsClient, TlsClientSettings, Trust, Versions};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// A server's certificate for `a.example`, which the client trusts.
struct Known {
    config: Arc<ServerConfig>,
    client: TlsClient,
}

impl Known {
    fn new() -> Known {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        config.send_half_rtt_data = true;
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
        let terms = TlsClientSettings {
            trust: Trust::Roots(Roots::of_pem(certificate.pem().as_bytes()).unwrap()),
            versions: Versions::Both,
            is_for_http2: false,
            sessions: KeptSessions::Several,
            is_post_quantum: true,
            shows: None,
        };
        let client = TlsClient::new(&terms, "a.example").unwrap();
        Known { config: Arc::new(config), client }
    }

    /// A connection to such a server, on which nothing was sent.
    fn open(&self) -> (UpstreamStream, Peer) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut stream = UpstreamStream::from(OwnedFd::from(ours));
        stream.seal(self.client.connect().unwrap(), 7);
        let tls = ServerConnection::new(Arc::clone(&self.config)).unwrap();
        (stream, Peer { socket: theirs, tls })
    }

    /// A connection after the handshake, on which `hello` was sent.
    fn shaken(&self) -> (UpstreamStream, Peer) {
        let (mut stream, mut peer) = self.open();
        while stream.begin(b"hello").unwrap() == Sent::Blocked {
            peer.turn();
        }
        assert_eq!(peer.hear(), b"hello");
        (stream, peer)
    }
}

/// The server's end.
struct Peer {
    socket: UnixStream,
    tls: ServerConnection,
}

impl Peer {
    /// Reads what has come, and sends what TLS requires. Returns whether the other end is gone.
    fn turn(&mut self) -> bool {
        let mut is_gone;
        loop {
            is_gone = match self.tls.read_tls(&mut self.socket) {
                Ok(count) => count == 0,
                Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
            };
            let has_more = self.tls.process_new_packets().is_ok_and(|state| {
                state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed()
            });
            let is_there = poll::wait([(self.socket.as_fd(), PollInterest::Read)], 0);
            if is_gone || !has_more || !is_there.is_ok_and(|[socket]| socket.readable) {
                break;
            }
        }
        self.flush();
        is_gone
    }

    fn flush(&mut self) {
        while self.tls.wants_write() && self.tls.write_tls(&mut self.socket).is_ok() {}
    }

    fn hear(&mut self) -> Vec<u8> {
        self.turn();
        let mut heard = Vec::new();
        let _ = self.tls.reader().read_to_end(&mut heard);
        heard
    }

    fn say(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).unwrap();
        self.flush();
    }
}

fn receive(stream: &mut UpstreamStream, most: usize) -> (Received, Vec<u8>) {
    let mut into = Vec::new();
    (stream.receive_more(&mut into, most), into)
}

#[test]
fn a_handshake_waits_for_what_it_needs() {
    let (mut stream, mut peer) = Known::new().open();
    assert_eq!(stream.handshake_reads(), Some(false));
    assert!(matches!(stream.begin(b"hello"), Ok(Sent::Blocked)));
    assert_eq!(stream.handshake_reads(), Some(true));
    // nothing has come yet
    assert!(matches!(stream.begin(b"hello"), Ok(Sent::Blocked)));
    peer.turn();
    assert_eq!(stream.is_resumed(), None);
    assert!(matches!(stream.begin(b"hello"), Ok(Sent::Bytes(5))));
    assert_eq!((stream.handshake_reads(), stream.is_resumed()), (None, Some(false)));
    assert_eq!(peer.hear(), b"hello");
}

#[test]
fn what_is_said_in_clear_comes_first() {
    let (mut stream, mut peer) = Known::new().open();
    assert!(stream.begin_in_clear(b"PROXY UNKNOWN\r\n"));
    assert!(matches!(stream.begin(b"hello"), Ok(Sent::Blocked)));
    let mut first = [0; 15];
    peer.socket.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"PROXY UNKNOWN\r\n");
    peer.turn();
    assert!(matches!(stream.begin(b"hello"), Ok(Sent::Bytes(5))));
    assert_eq!(peer.hear(), b"hello");
}

#[test]
fn a_server_may_speak_with_its_handshake() {
    let (mut stream, mut peer) = Known::new().open();
    assert!(matches!(stream.begin(b"hello"), Ok(Sent::Blocked)));
    peer.tls.writer().write_all(&[b'x'; 40_000]).unwrap();
    peer.turn();
    assert!(matches!(stream.begin(b"hello"), Ok(Sent::Bytes(5))));
    peer.turn();
    let mut heard = Vec::new();
    while heard.len() < 40_000 {
        let (received, some) = receive(&mut stream, 10_000);
        assert_eq!(received, Received::Bytes(some.len()));
        assert!(some.len() <= 10_000);
        heard.extend(some);
        peer.turn();
    }
    assert!(heard.iter().all(|byte| *byte == b'x'));
    assert_eq!(receive(&mut stream, 1).0, Received::Blocked);
}

#[test]
fn tickets_are_no_answer_and_leave_a_connection_fit() {
    let known = Known::new();
    let (mut stream, mut peer) = known.shaken();
    // they came with the handshake, and were not read
    assert!(stream.is_quiet() && stream.rests());
    peer.say(b"late");
    assert!(!stream.is_quiet());
    // and sessions are resumed on other connections
    let (mut stream, _peer) = known.shaken();
    assert_eq!(stream.is_resumed(), Some(true));
    assert!(stream.rests());
}

#[test]
fn an_end_without_a_word_is_none() {
    let known = Known::new();
    let (mut stream, mut peer) = known.shaken();
    peer.say(b"all");
    peer.tls.send_close_notify();
    peer.flush();
    drop(peer);
    assert_eq!(receive(&mut stream, 10), (Received::Bytes(3), b"all".to_vec()));
    assert_eq!(receive(&mut stream, 10).0, Received::Ended);
    assert!(!stream.rests() && !stream.is_quiet());
    let (mut stream, mut peer) = known.shaken();
    peer.say(b"half");
    drop(peer);
    assert_eq!(receive(&mut stream, 10), (Received::Bytes(4), b"half".to_vec()));
    assert_eq!(receive(&mut stream, 10).0, Received::Broken);
}

#[test]
fn whoever_goes_in_order_says_so() {
    let known = Known::new();
    let says_end = |drop_it: &dyn Fn(UpstreamStream)| {
        let (stream, mut peer) = known.shaken();
        drop_it(stream);
        peer.hear();
        peer.turn();
        matches!(peer.tls.reader().read(&mut [0; 1]), Ok(0))
    };
    // an exchange that was interrupted
    assert!(!says_end(&drop));
    assert!(says_end(&|mut stream| assert!(stream.rests())));
    // an idle connection that was used again
    assert!(!says_end(&|mut stream| {
        assert!(stream.rests() && stream.is_quiet());
        stream.send(b"more");
    }));
    // one direction can end alone
    let (mut stream, mut peer) = known.shaken();
    assert!(stream.end_writing());
    peer.turn();
    assert!(matches!(peer.tls.reader().read(&mut [0; 1]), Ok(0)));
    peer.say(b"still here");
    assert_eq!(receive(&mut stream, 10).1, b"still here");
}

#[test]
fn what_the_socket_does_not_take_waits_sealed() {
    let (mut stream, mut peer) = Known::new().shaken();
    let (text, mut sent, mut heard) = (vec![b'y'; 3_000_000], 0, Vec::new());
    let mut has_waited = false;
    while sent < text.len() {
        match stream.send(&text[sent..]) {
            Sent::Bytes(count) => sent += count,
            Sent::Blocked => {
                has_waited |= stream.has_unsent();
                heard.extend(peer.hear());
            }
            Sent::Broken => panic!("at {sent}"),
        }
    }
    while !stream.end_writing() {
        heard.extend(peer.hear());
    }
    while heard.len() < text.len() {
        let more = peer.hear();
        assert!(!more.is_empty(), "at {}", heard.len());
        heard.extend(more);
    }
    assert!(has_waited && heard == text);
    drop(peer);
    assert_eq!(stream.send(b"x"), Sent::Broken);
}

#[test]
fn why_there_is_no_connection_is_told() {
    let known = Known::new();
    let fault = |stream: &mut UpstreamStream, peer: &mut Peer| loop {
        match stream.begin(b"hello") {
            Ok(Sent::Blocked) => _ = peer.turn(),
            Ok(_) => return None,
            Err(ConnectError::Tls(fault)) => return Some(fault),
            Err(error) => panic!("{error:?}"),
        }
    };
    let stranger = Known { config: Arc::clone(&known.config), ..Known::new() };
    let (mut stream, mut peer) = stranger.open();
    assert_eq!(fault(&mut stream, &mut peer), Some(TlsFault::Issuer));
    // the server gets an alert
    assert!(!peer.turn());
    let (mut stream, mut peer) = known.open();
    peer.socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    assert_eq!(fault(&mut stream, &mut peer), Some(TlsFault::NotTls));
    let (mut stream, mut peer) = known.open();
    assert!(matches!(stream.begin(b"hello"), Ok(Sent::Blocked)));
    peer.socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(fault(&mut stream, &mut peer), Some(TlsFault::Ended));
    // an alert while the request is on its way
    let (mut stream, mut peer) = known.shaken();
    peer.socket.write_all(&[21, 3, 3, 0, 2, 2, 42]).unwrap();
    assert_eq!(receive(&mut stream, 10).0, Received::Broken);
    assert!(stream.fault().is_some());
}
