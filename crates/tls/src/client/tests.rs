//! Tests of sessions with the library's own server, without a socket.

use super::*;
use crate::fault::TlsFault;
use crate::roots::Roots;
use crate::terms::Trust;
use rustls::ServerConfig;
use rustls::ServerConnection;
use rustls::pki_types::PrivateKeyDer;

/// An authority, and a server with a certificate of it for `a.example`.
struct Side {
    roots: Vec<u8>,
    config: ServerConfig,
}

impl Side {
    fn new(change: impl FnOnce(&mut rcgen::CertificateParams)) -> Side {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        // no two of them have the same name
        let name = format!("{:?}", key.public_key_raw());
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let authority = params.self_signed(&key).unwrap().pem().into_bytes();
        Side { roots: authority, ..Side::signed_by(rcgen::Issuer::new(params, key), change) }
    }

    /// A server of this authority, which no client trusts yet.
    fn signed_by(
        issuer: rcgen::Issuer<'_, rcgen::KeyPair>,
        change: impl FnOnce(&mut rcgen::CertificateParams),
    ) -> Side {
        let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        change(&mut params);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
        Side { roots: Vec::new(), config }
    }

    fn terms(&self) -> TlsClientSettings {
        TlsClientSettings {
            is_post_quantum: true,
            trust: Trust::Roots(Roots::of_pem(&self.roots).unwrap()),
            versions: Versions::Both,
            is_for_http2: false,
            sessions: KeptSessions::Last,
            shows: None,
        }
    }

    fn server(&self) -> ServerConnection {
        ServerConnection::new(Arc::new(self.config.clone())).unwrap()
    }

    /// A connection of this client, after the handshake.
    fn shake(&self, client: &TlsClient) -> Result<(ClientSession, ServerConnection), TlsRefusal> {
        let (mut session, mut server) = (client.connect()?, self.server());
        talk(&mut session, &mut server, 7)?;
        assert!(!session.is_handshaking() && !server.is_handshaking());
        Ok((session, server))
    }
}

/// Passes bytes to and fro, this many at a time, until neither end has more to send. Returns what
/// the client reads.
fn talk(
    session: &mut ClientSession,
    server: &mut ServerConnection,
    step: usize,
) -> Result<Vec<u8>, TlsRefusal> {
    let (mut read, mut buffer) = (Vec::new(), [0; 100]);
    loop {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        session.flush(&mut up);
        let mut rest = &up[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            let _ = server.process_new_packets();
        }
        while server.wants_write() {
            server.write_tls(&mut down).unwrap();
        }
        for mut part in down.chunks(step) {
            loop {
                match session.receive(&mut part, &mut buffer)? {
                    0 => break,
                    count => read.extend_from_slice(&buffer[..count]),
                }
            }
        }
        if up.is_empty() && down.is_empty() {
            return Ok(read);
        }
    }
}

/// The reason why a handshake fails.
fn refused(side: &Side, terms: &TlsClientSettings, name: &str) -> String {
    let client = TlsClient::new(terms, name).unwrap();
    side.shake(&client).err().unwrap().to_string()
}

#[test]
fn a_client_resumes_its_own_session_and_no_other_ones() {
    let side = Side::new(|_| {});
    for versions in [Versions::Only12, Versions::Only13] {
        let client =
            TlsClient::new(&TlsClientSettings { versions, ..side.terms() }, "a.example").unwrap();
        let other = client.another();
        let resumed = |client: &TlsClient| {
            let (session, _) = side.shake(client).unwrap();
            session.agreed().unwrap().resumed
        };
        assert_eq!([resumed(&client), resumed(&client), resumed(&client)], [false, true, true]);
        assert!(!resumed(&other) && resumed(&other));
        let terms = TlsClientSettings { versions, sessions: KeptSessions::None, ..side.terms() };
        let client = TlsClient::new(&terms, "a.example").unwrap();
        assert!(!resumed(&client) && !resumed(&client));
        // each of several other connections uses one of the tickets of one connection
        let terms = TlsClientSettings { versions, sessions: KeptSessions::Several, ..side.terms() };
        let client = TlsClient::new(&terms, "a.example").unwrap();
        assert!(!resumed(&client));
        let begun = [client.connect().unwrap(), client.connect().unwrap()];
        for mut session in begun {
            talk(&mut session, &mut side.server(), 100).unwrap();
            assert_eq!(session.is_resumed(), Some(true));
        }
        assert!(!resumed(&client.another()));
    }
}

#[test]
fn what_was_agreed_on_is_told() {
    let side = Side::new(|_| {});
    let terms = TlsClientSettings { is_for_http2: true, ..side.terms() };
    let client = TlsClient::new(&terms, "a.example").unwrap();
    assert_eq!(client.connect().unwrap().agreed(), None);
    let agreed = side.shake(&client).unwrap().0.agreed().unwrap();
    assert_eq!((agreed.version, agreed.alpn, agreed.resumed), ("1.3", Some("h2"), false));
    assert_eq!(agreed.cipher, "TLS13_AES_128_GCM_SHA256");
    assert!(agreed.group.is_some());
}

#[test]
fn bytes_arrive_in_any_pieces_and_however_many() {
    let side = Side::new(|_| {});
    let client = TlsClient::new(&side.terms(), "a.example").unwrap();
    let (mut session, mut server) = side.shake(&client).unwrap();
    let sent: Vec<u8> = (0..200_000).map(|at| (at % 251) as u8).collect();
    let mut wire = Vec::new();
    session.write(&sent, &mut wire);
    let (mut rest, mut received) = (&wire[..], Vec::new());
    while !rest.is_empty() {
        server.read_tls(&mut rest).unwrap();
        server.process_new_packets().unwrap();
        let _ = server.reader().read_to_end(&mut received);
    }
    assert!(received == sent, "{} of {}", received.len(), sent.len());
    server.writer().write_all(&sent[..50_000]).unwrap();
    server.send_close_notify();
    assert!(!session.has_ended());
    assert!(talk(&mut session, &mut server, 1000).unwrap() == sent[..50_000]);
    assert!(session.has_ended());
}

#[test]
fn who_is_not_trusted_is_refused_for_a_reason() {
    let side = Side::new(|_| {});
    assert_eq!(
        refused(&side, &side.terms(), "b.example"),
        "certificate for another name than b.example"
    );
    let stranger = Side::new(|_| {});
    let why = refused(&side, &stranger.terms(), "a.example");
    assert_eq!(why, "certificate not trusted: unknown issuer");
    let old = Side::new(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    assert_eq!(refused(&old, &old.terms(), "a.example"), "certificate expired");
    let new = Side::new(|params| params.not_before = rcgen::date_time_ymd(2100, 1, 1));
    assert_eq!(refused(&new, &new.terms(), "a.example"), "certificate not valid yet");
    // all of them are accepted, where no name is checked
    let anybody = TlsClientSettings { trust: Trust::Anybody, ..side.terms() };
    for side in [&side, &old, &new] {
        assert!(side.shake(&TlsClient::new(&anybody, "b.example").unwrap()).is_ok());
        let terms = TlsClientSettings { versions: Versions::Only12, ..anybody.clone() };
        assert!(side.shake(&TlsClient::new(&terms, "192.0.2.1").unwrap()).is_ok());
    }
}

#[test]
fn a_server_that_refuses_is_quoted() {
    let mut side = Side::new(|_| {});
    side.config.alpn_protocols = vec![b"other".to_vec()];
    let why = refused(&side, &side.terms(), "a.example");
    assert_eq!(why, "the server does not speak this version of HTTP (alert)");
    let client = TlsClient::new(&side.terms(), "a.example").unwrap();
    let mut session = client.connect().unwrap();
    let mut wire: &[u8] = &[21, 3, 3, 0, 2, 2, 40];
    let refusal = session.receive(&mut wire, &mut [0; 9]).unwrap_err();
    assert!(refusal.is_by_server());
    assert_eq!(refusal.to_string(), "the server refused: HandshakeFailure");
    let mut session = client.connect().unwrap();
    let mut wire: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    let refusal = session.receive(&mut wire, &mut [0; 9]).unwrap_err();
    assert_eq!(refusal.to_string(), "what the server says is no TLS");
    assert!(!refusal.is_by_server() && session.has_to_send());
}

#[test]
fn nonsense_is_no_trust_and_no_name() {
    assert!(Roots::of_pem(b"").is_none() && Roots::of_pem(b"-----BEGIN").is_none());
    assert!(Roots::of_certificates([b"x"]).is_none());
    assert!(TlsClient::new(&Side::new(|_| {}).terms(), "a b").is_err());
}

#[test]
fn who_is_known_itself_need_not_be_signed_by_another() {
    let alone = |change: &dyn Fn(&mut rcgen::CertificateParams)| {
        let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        change(&mut params);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let mut side = Side::new(|_| {});
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        side.config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        side.roots = certificate.pem().into_bytes();
        side
    };
    // as "openssl req -x509" makes them
    let of_authority = |params: &mut rcgen::CertificateParams| {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    };
    let terms = |side: &Side| TlsClientSettings {
        trust: Trust::Roots(Roots::of_pem(&side.roots).unwrap()),
        ..side.terms()
    };
    let fault = |side: &Side, terms: &TlsClientSettings, name: &str| {
        let client = TlsClient::new(terms, name).unwrap();
        side.shake(&client).err().map(|refusal| refusal.fault())
    };
    for side in [alone(&|_| {}), alone(&of_authority)] {
        assert_eq!(fault(&side, &terms(&side), "a.example"), None);
        assert_eq!(fault(&side, &terms(&side), "b.example"), Some(TlsFault::Name));
        let stranger = alone(&of_authority);
        assert_eq!(fault(&side, &terms(&stranger), "a.example"), Some(TlsFault::Issuer));
    }
    let old = alone(&|params| {
        of_authority(params);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    assert_eq!(fault(&old, &terms(&old), "a.example"), Some(TlsFault::Expired));
    // other certificates are accepted as before
    let side = Side::new(|_| {});
    assert_eq!(fault(&side, &terms(&side), "a.example"), None);
}

/// The owner of a trusted server's key can act as that server only.
#[test]
fn a_server_that_is_known_itself_is_no_authority() {
    use rcgen::{BasicConstraints, IsCa, KeyUsagePurpose};
    type Change = fn(&mut rcgen::CertificateParams);
    let changes: [(Change, bool); 4] = [
        (|params| params.is_ca = IsCa::ExplicitNoCa, false),
        (|params| params.is_ca = IsCa::NoCa, false),
        (|params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature], false),
        (|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained), true),
    ];
    for (number, (change, is_authority)) in changes.into_iter().enumerate() {
        let mut params = rcgen::CertificateParams::new(vec!["pin.example".to_owned()]).unwrap();
        change(&mut params);
        let key = rcgen::KeyPair::generate().unwrap();
        let pinned = params.self_signed(&key).unwrap().pem();
        let side = Side::signed_by(rcgen::Issuer::new(params, key), |_| {});
        let another = Side::new(|_| {});
        // alone, and beside an authority
        for text in [pinned.clone(), format!("{pinned}{}", String::from_utf8_lossy(&another.roots))]
        {
            let trust = Trust::Roots(Roots::of_pem(text.as_bytes()).unwrap());
            let client =
                TlsClient::new(&TlsClientSettings { trust, ..another.terms() }, "a.example");
            let refused = side.shake(&client.unwrap()).err().map(|refusal| refusal.fault());
            let expected = (!is_authority).then_some(TlsFault::Issuer);
            assert_eq!(refused, expected, "{number}");
        }
    }
}

#[test]
fn each_fault_has_a_word_of_its_own() {
    let words: std::collections::HashSet<_> =
        TlsFault::ALL.iter().flat_map(|fault| [fault.word(), fault.words()]).collect();
    assert_eq!(words.len(), 2 * TlsFault::ALL.len());
}

#[test]
fn what_is_received_is_read_in_parts_of_any_size() {
    let side = Side::new(|_| {});
    let client = TlsClient::new(&side.terms(), "a.example").unwrap();
    let (mut session, mut server) = side.shake(&client).unwrap();
    let sent: Vec<u8> = (0..50_000_u32).map(|number| number as u8).collect();
    server.writer().write_all(&sent).unwrap();
    server.send_close_notify();
    let mut wire = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut wire).unwrap();
    }
    let (mut rest, mut read) = (&wire[..], Vec::new());
    for most in [1, 17_000, 5, 16_384, 100_000] {
        let before = read.len();
        let count = session.receive_more(&mut rest, &mut read, most).unwrap();
        assert_eq!(count, most.min(sent.len() - before));
    }
    assert!(read == sent && rest.is_empty() && session.has_ended() && !session.has_unread());
}
