//! Tests of sessions with the library's own client, byte by byte and at once, without a socket.

use super::*;
use crate::identity::{ACME_TLS_1, HTTP_2, Identity};
use crate::pair::{Pair, describe};
use crate::proofs::Proofs;
use crate::provider::provider;
use crate::session::WRONG_PORT;
use crate::tickets::TicketSealer;
use forebay_metrics::{Local, Stopwatch};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use std::io::{Read, Write};

mod clients;

/// A job that only does handshakes.
struct Work(Handshake);

impl Job for Work {
    type Done = Handshaken;

    fn run(self, _: &Local, _: &mut dyn Stopwatch) -> Handshaken {
        self.0.run()
    }

    fn lane(&self) -> u64 {
        0
    }
}

impl Shakes for Work {
    fn handshake(handshake: Handshake) -> Work {
        Work(handshake)
    }

    fn handshaken(done: Handshaken) -> Option<Handshaken> {
        Some(done)
    }
}

fn tickets() -> Arc<TicketSealer> {
    Arc::new(TicketSealer::new().unwrap())
}

/// Certificates for tests, and clients that trust them.
struct Ca {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    roots: RootCertStore,
    pem: String,
}

impl Ca {
    fn new() -> Ca {
        Ca::named("CA")
    }

    fn named(name: &str) -> Ca {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        Ca { issuer: rcgen::Issuer::new(params, key), roots, pem: certificate.pem() }
    }

    fn pair(&self, names: &[&str], kind: &'static rcgen::SignatureAlgorithm) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = rcgen::CertificateParams::new(names).unwrap();
        let key = rcgen::KeyPair::generate_for(kind).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair::read(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }

    fn identity(&self, names: &[&str], kind: &'static rcgen::SignatureAlgorithm) -> Arc<Identity> {
        let pair = self.pair(names, kind);
        Arc::new(Identity::new(vec![pair], tickets(), true, None).unwrap())
    }

    fn client(&self) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        Arc::new(config)
    }
}

const ECDSA: &rcgen::SignatureAlgorithm = &rcgen::PKCS_ECDSA_P256_SHA256;
const RSA: &rcgen::SignatureAlgorithm = &rcgen::PKCS_RSA_SHA256;

/// Both ends of a connection, and the number of jobs that the server has asked for.
struct Both {
    client: ClientConnection,
    server: Channel,
    is_open: bool,
    jobs: u32,
    /// The number of bytes given to the server at a time.
    step: usize,
}

impl Both {
    fn new(config: &Arc<ClientConfig>, name: &str, identities: &Arc<Identities>) -> Both {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let client = ClientConnection::new(Arc::clone(config), name).unwrap();
        let server = Channel::sealed(identities, [127, 0, 0, 1].into());
        Both { client, server, is_open: false, jobs: 0, step: usize::MAX }
    }

    fn give_server(&mut self, wire: &[u8]) -> Result<(), Broken> {
        for part in wire.chunks(self.step.min(wire.len().max(1))) {
            Transport::<Work>::receive(&mut self.server, part)?;
            if self.is_open {
                continue;
            }
            let mut opening = Transport::<Work>::open(&mut self.server, None);
            while let Opening::Job(Work(handshake)) = opening {
                self.jobs += 1;
                opening = Transport::<Work>::open(&mut self.server, Some(handshake.run()));
            }
            match opening {
                Opening::Open => self.is_open = true,
                Opening::Receive => {}
                Opening::Failed | Opening::Job(_) => return Err(Broken),
            }
        }
        Ok(())
    }

    /// Passes bytes to and fro until neither end has more to send.
    fn talk(&mut self) -> Result<(), rustls::Error> {
        loop {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            while self.client.wants_write() {
                self.client.write_tls(&mut up).unwrap();
            }
            let given = if up.is_empty() { Ok(()) } else { self.give_server(&up) };
            Transport::<Work>::flush(&mut self.server, &mut down);
            let mut rest = &down[..];
            while !rest.is_empty() {
                self.client.read_tls(&mut rest).unwrap();
                self.client.process_new_packets()?;
            }
            if given.is_err() || (up.is_empty() && down.is_empty()) {
                return Ok(());
            }
        }
    }

    fn read_server(&mut self, wanted: usize) -> Vec<u8> {
        let mut all = Vec::new();
        let mut buffer = [0; 10_000];
        while all.len() < wanted {
            match Transport::<Work>::read(&mut self.server, &mut buffer) {
                Plaintext::Bytes(count) => all.extend_from_slice(&buffer[..count]),
                Plaintext::Nothing | Plaintext::End => break,
            }
        }
        all
    }

    fn secured(&self) -> Secured {
        *Transport::<Work>::secured(&self.server).unwrap()
    }
}

#[test]
fn bytes_go_both_ways_however_they_are_cut() {
    let ca = Ca::new();
    let identities = Arc::new(Identities::new(Some(ca.identity(&["a.example"], ECDSA))));
    for step in [1, 7, 100, usize::MAX] {
        let mut both = Both::new(&ca.client(), "a.example", &identities);
        both.step = step;
        both.talk().unwrap();
        assert!(both.is_open && both.jobs == 0, "{step}");
        let asked: Vec<u8> = (0..60_000u32).map(|at| (at % 251) as u8).collect();
        let mut seen = Vec::new();
        for part in asked.chunks(20_000) {
            both.client.writer().write_all(part).unwrap();
            both.talk().unwrap();
            seen.extend(both.read_server(part.len()));
        }
        assert!(seen == asked, "{step}: {} bytes", seen.len());
        let mut wire = Vec::new();
        // either part may be empty, and they may be more than the connection takes at a time
        for (at, part) in (0..).zip(asked.chunks(16_384)) {
            let (head, body) = part.split_at([0, 200, 16_000, part.len()][at % 4]);
            Transport::<Work>::write(&mut both.server, head, body, &mut wire);
        }
        let large = vec![7; 200_000];
        Transport::<Work>::write(&mut both.server, &large[..90_000], &large[90_000..], &mut wire);
        let asked = [asked, large].concat();
        Transport::<Work>::end(&mut both.server, &mut wire);
        let (mut rest, mut answered) = (&wire[..], Vec::new());
        while !rest.is_empty() {
            both.client.read_tls(&mut rest).unwrap();
            both.client.process_new_packets().unwrap();
            let mut buffer = [0; 20_000];
            while let Ok(count @ 1..) = both.client.reader().read(&mut buffer) {
                answered.extend_from_slice(&buffer[..count]);
            }
        }
        assert!(answered == asked);
        both.client.send_close_notify();
        both.talk().unwrap();
        let end = Transport::<Work>::read(&mut both.server, &mut [0; 9]);
        assert_eq!(end, Plaintext::End);
    }
}

/// The client sends more than the library keeps unread; the rest waits encrypted.
#[test]
fn what_comes_at_once_is_read_as_it_is_wanted() {
    let ca = Ca::new();
    let identities = Arc::new(Identities::new(Some(ca.identity(&["a.example"], ECDSA))));
    let mut both = Both::new(&ca.client(), "a.example", &identities);
    both.talk().unwrap();
    both.client.set_buffer_limit(None);
    let asked = vec![7; 100_000];
    both.client.writer().write_all(&asked).unwrap();
    both.talk().unwrap();
    assert_eq!(both.read_server(asked.len()).len(), asked.len());
}

#[test]
fn the_name_decides_who_answers() {
    let ca = Ca::new();
    let mut identities = Identities::new(None);
    identities.add("a.example", &ca.identity(&["a.example"], ECDSA));
    identities.add("*.a.example", &ca.identity(&["*.a.example"], ECDSA));
    identities.add("b.a.example", &ca.identity(&["b.a.example"], ECDSA));
    let identities = Arc::new(identities);
    for (name, names) in [
        ("a.example", Some("a.example")),
        ("A.Example", Some("a.example")),
        ("x.a.example", Some("*.a.example")),
        ("b.a.example", Some("b.a.example")),
        ("x.x.a.example", None),
        ("other.example", None),
    ] {
        let mut both = Both::new(&ca.client(), name, &identities);
        let talked = both.talk();
        match names {
            Some(names) => {
                let shown = both.client.peer_certificates().unwrap()[0].to_vec();
                assert_eq!(describe(&shown).unwrap().names, [names], "{name}");
                let secured = both.secured();
                assert_eq!(secured.name.as_deref(), Some(&*name.to_ascii_lowercase()));
                assert_eq!((secured.version, secured.resumed), ("1.3", false));
                assert_eq!((secured.cipher, secured.alpn), ("TLS13_AES_128_GCM_SHA256", None));
            }
            None => {
                let alert = rustls::AlertDescription::UnrecognisedName;
                assert_eq!(talked, Err(rustls::Error::AlertReceived(alert)), "{name}");
            }
        }
    }
}

#[test]
fn a_host_whose_certificate_is_another_is_misdirected() {
    let ca = Ca::new();
    let mut identities = Identities::new(Some(ca.identity(&["c.example"], ECDSA)));
    let a = ca.identity(&["a.example", "*.a.example"], ECDSA);
    for name in ["a.example", "*.a.example", "covered.example"] {
        identities.add(name, &a);
    }
    identities.add("x.a.example", &ca.identity(&["x.a.example"], ECDSA));
    identities.add("b.example", &ca.identity(&["b.example"], ECDSA));
    let identities = Arc::new(identities);
    let mut both = Both::new(&ca.client(), "a.example", &identities);
    both.talk().unwrap();
    let secured = both.secured();
    for (host, expected) in [
        ("a.example", false),
        ("A.Example", false),
        // its certificate would be another, but this one is for it, too
        ("x.a.example", false),
        // the same certificate would have been shown
        ("covered.example", false),
        ("b.example", true),
        ("B.EXAMPLE", true),
        // a name of the default identity
        ("other.example", true),
        ("", false),
    ] {
        assert_eq!(identities.is_misdirected(&secured, host.as_bytes()), expected, "{host}");
    }
    let without_default = Identities::new(None);
    assert!(!without_default.is_misdirected(&secured, b"b.example"));
}

#[test]
fn a_dear_signature_is_a_job_and_a_resumed_session_needs_its_name() {
    let ca = Ca::new();
    let identity = ca.identity(&["a.example", "b.example"], RSA);
    let identities = Arc::new(Identities::new(Some(identity)));
    let client = ca.client();
    let talk = |name: &str| {
        let mut both = Both::new(&client, name, &identities);
        both.talk().unwrap();
        assert!(both.is_open);
        (both.jobs, both.secured().resumed)
    };
    assert_eq!(talk("a.example"), (1, false));
    assert!(talk("a.example").1, "the second is resumed");
    assert!(!talk("b.example").1, "but not under another name");
}

#[test]
fn two_pairs_serve_clients_of_both_kinds() {
    let ca = Ca::new();
    let pairs = vec![ca.pair(&["a.example"], ECDSA), ca.pair(&["a.example"], RSA)];
    let identity = Identity::new(pairs, tickets(), true, None).unwrap();
    let identities = Arc::new(Identities::new(Some(Arc::new(identity))));
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite().as_str().unwrap().contains("_RSA_"));
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(ca.roots.clone())
        .with_no_client_auth();
    for (config, jobs) in [(Arc::new(config), None), (ca.client(), Some(0))] {
        let mut both = Both::new(&config, "a.example", &identities);
        both.talk().unwrap();
        assert!(both.is_open && jobs.is_none_or(|jobs| both.jobs == jobs));
    }
    let others = vec![ca.pair(&["a.example"], ECDSA), ca.pair(&["b.example"], RSA)];
    let error = Identity::new(others, tickets(), true, None).unwrap_err().to_string();
    assert!(error.contains(".example"), "{error}");
}

#[test]
fn who_speaks_http_is_told_so_and_rubbish_ends() {
    let ca = Ca::new();
    let identities = Arc::new(Identities::new(Some(ca.identity(&["a.example"], ECDSA))));
    for (wire, words) in [
        (&b"GET / HTTP/1.1\r\n"[..], &b"HTTP/1.1 400"[..]),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", b"\x15\x03"),
        (b"\x00\x00\x00\x00\x00\x00\x00\x00", b"\x15\x03"),
    ] {
        let mut server = Channel::sealed(&identities, [127, 0, 0, 1].into());
        let received = Transport::<Work>::receive(&mut server, wire).is_ok();
        let failed =
            !received || matches!(Transport::<Work>::open(&mut server, None), Opening::Failed);
        assert!(failed, "{wire:?}");
        let mut said = Vec::new();
        Transport::<Work>::flush(&mut server, &mut said);
        assert!(said.starts_with(words), "{wire:?}: {said:?}");
    }
    let body = WRONG_PORT.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
    let length = format!("Content-Length: {}\r\n", WRONG_PORT.len() - body);
    assert!(String::from_utf8_lossy(WRONG_PORT).contains(&length), "{length}");
}

#[test]
fn a_pair_says_what_is_wrong_with_it() {
    let ca = Ca::new();
    let params = || rcgen::CertificateParams::new(vec!["A.example".to_owned()]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params().signed_by(&key, &ca.issuer).unwrap().pem();
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----";
    let key = key.serialize_pem();
    let told =
        |certificate: &str, key: &str| match Pair::read(certificate.as_bytes(), key.as_bytes()) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
    assert_eq!(told(&certificate, &key), "");
    assert!(told(&certificate, &other).contains("not that of"), "{}", told(&certificate, &other));
    assert!(told(&certificate, encrypted).contains("openssl pkey"));
    assert!(told(&certificate, "nothing").contains("no private key"));
    assert!(told("nothing", &key).contains("no certificate"));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(told(broken, &key).contains("broken"), "{}", told(broken, &key));
    let pair = Pair::read(certificate.as_bytes(), key.as_bytes()).unwrap();
    assert!(pair.covers("a.example") && !pair.covers("b.example"));
}

/// An authority verifies the certificate by itself: the library does not know its extension, which
/// is critical.
#[derive(Debug)]
struct Looking;

impl ServerCertVerifier for Looking {
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
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// The proof is shown only to a client that asks for it, while it is shown, and only for that name;
/// the connection ends with the handshake.
#[test]
fn who_looks_whether_a_name_is_ours_is_shown_a_proof() {
    let (ca, proofs) = (Ca::new(), Arc::<Proofs>::default());
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    params.custom_extensions = vec![rcgen::CustomExtension::new_acme_identifier(&[7; 32])];
    let proof = params.self_signed(&key).unwrap().der().clone();
    proofs.show("a.example", &proof, &key.serialize_der()).unwrap();
    let identities = Identities::new(Some(ca.identity(&["a.example", "b.example"], ECDSA)));
    let identities = Arc::new(identities.with_proofs(&proofs));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let look = |name: &str, spoken: &[u8]| {
            let mut client = ClientConfig::builder_with_provider(provider())
                .with_protocol_versions(&[version])
                .unwrap()
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Looking))
                .with_no_client_auth();
            client.alpn_protocols = vec![spoken.to_vec()];
            let mut both = Both::new(&Arc::new(client), name, &identities);
            let talked = both.talk();
            let shown = both.client.peer_certificates().map(|chain| chain[0].clone());
            let failure = Transport::<Work>::failure(&both.server);
            (talked.is_ok(), both.is_open, shown, failure, both.client.is_handshaking())
        };
        proofs.show("a.example", &proof, &key.serialize_der()).unwrap();
        let seen = (true, false, Some(proof.clone()), Some(TransportFailure::Proof), false);
        assert_eq!(look("a.example", ACME_TLS_1), seen);
        let (talked, is_open, shown, ..) = look("a.example", HTTP_2);
        assert!(talked && is_open && shown.is_some_and(|shown| shown != proof));
        let (talked, is_open, ..) = look("a.example", b"http/1.0");
        assert!(talked && is_open, "there are clients that offer nothing else");
        let is_refused = |name: &str| {
            let (talked, is_open, _, failure, _) = look(name, ACME_TLS_1);
            !talked && !is_open && failure != Some(TransportFailure::Proof)
        };
        assert!(is_refused("b.example"));
        proofs.hide("a.example");
        assert!(is_refused("a.example"));
    }
}

/// A hello may be longer than a record, in pieces of any size (RFC 8446 §5.1); one that is longer
/// than the library takes is refused with an alert.
#[test]
fn hellos_of_any_length_are_heard_or_refused_with_an_alert() {
    let ca = Ca::new();
    let identities = Arc::new(Identities::new(Some(ca.identity(&["a.example"], ECDSA))));
    for bytes in [1, 15_000, 40_000, 60_000] {
        for step in [usize::MAX, 65_536, 16_384, 5_000, 77] {
            let mut config = ClientConfig::clone(&ca.client());
            config.alpn_protocols = vec![vec![b'a'; 250]; bytes / 251];
            config.alpn_protocols.push(b"http/1.1".to_vec());
            let mut both = Both::new(&Arc::new(config), "a.example", &identities);
            both.step = step;
            both.talk().unwrap();
            assert!(both.is_open, "{bytes} bytes, {step} at a time");
        }
    }
    let begin = [&b"\x16\x03\x01\x40\x00\x01\x01\x11\x70"[..], &[0; 0x3ffc]].concat();
    let more = [&b"\x16\x03\x01\x40\x00"[..], &[0; 0x4000]].concat();
    let wire = [&begin[..], &more, &more, &more, &more].concat();
    for step in [wire.len(), 16_384, 77] {
        let mut server = Channel::sealed(&identities, [127, 0, 0, 1].into());
        let failed = wire.chunks(step).any(|part| {
            Transport::<Work>::receive(&mut server, part).is_err()
                || matches!(Transport::<Work>::open(&mut server, None), Opening::Failed)
        });
        let mut said = Vec::new();
        Transport::<Work>::flush(&mut server, &mut said);
        assert!(failed && said.starts_with(b"\x15\x03"), "{step} at a time: {said:?}");
    }
}

/// A client cannot ask for an address by name, so the address that it has connected to decides (RFC
/// 6066 §3).
#[test]
fn who_asks_for_no_name_is_answered_by_the_address_reached() {
    let ca = Ca::new();
    let mut identities = Identities::new(None);
    identities.add("127.0.0.1", &ca.identity(&["127.0.0.1"], ECDSA));
    identities.add("[::1]", &ca.identity(&["::1"], ECDSA));
    assert!(identities.has_addresses());
    let identities = Arc::new(identities);
    for (name, reached, is_served) in [
        ("127.0.0.1", "127.0.0.1", true),
        ("127.0.0.1", "::ffff:127.0.0.1", true),
        ("::1", "::1", true),
        ("127.0.0.1", "127.0.0.2", false),
        ("127.0.0.1", "0.0.0.0", false),
    ] {
        let mut both = Both::new(&ca.client(), name, &identities);
        both.server = Channel::sealed(&identities, reached.parse().unwrap());
        assert_eq!(both.talk().is_ok() && both.is_open, is_served, "{name} at {reached}");
    }
}

/// Wildcards of sites stand for hosts at any depth, those of certificates for one level.
#[test]
fn a_wildcard_of_a_site_is_for_all_levels() {
    let ca = Ca::new();
    let (site, other) =
        (ca.identity(&["*.w.example"], ECDSA), ca.identity(&["*.c.example"], ECDSA));
    let mut identities = Identities::new(None);
    identities.add_site("*.w.example", &site);
    identities.add_site("*.deep.w.example", &other);
    identities.add("*.c.example", &other);
    for (name, expected) in [
        ("a.w.example", Some(&site)),
        ("b.a.w.example", Some(&site)),
        ("b.deep.w.example", Some(&other)),
        ("a.c.example", Some(&other)),
        ("b.a.c.example", None),
        ("w.example", None),
    ] {
        let found = identities.find(Some(name));
        assert_eq!(found.map(Arc::as_ptr), expected.map(Arc::as_ptr), "{name}");
    }
}
