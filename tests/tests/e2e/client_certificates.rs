//! Certificates of clients with the real server: which clients come in, what is logged, what rules make
//! of it, and what becomes of changed files.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::upgrade::upgrade;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::http2::Client;
use forebay_tests::server::free_addr;
use forebay_tests::tls::{Authority, TlsStream, connect};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, Options};
use rcgen::PKCS_ECDSA_P256_SHA256 as ECDSA;
use rustls::client::Resumption;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind};
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Three sites with one certificate: `open.example` asks for no client certificate, `may.example` asks,
/// `must.example` insists.
struct Edge {
    folder: Folder,
    servers: Authority,
    clients: Authority,
    served: WatchedServer,
    addr: SocketAddr,
}

impl Edge {
    fn start(engine: &str, lines: &str) -> Edge {
        let (folder, servers) = (Folder::new(), Authority::named("servers"));
        let clients = Authority::named("clients");
        for site in ["open", "may", "must"] {
            folder.write(&format!("{site}/file"), site);
        }
        let hosts = ["open.example", "may.example", "must.example"];
        servers.write(folder.path(), "a", &hosts, &ECDSA);
        folder.write("ca.pem", &clients.pem);
        folder.write("ca.crl", clients.list(99));
        let addr = free_addr();
        let config = format!(
            "{lines}\n[[listener]]\nlisten = [\"https://{addr}\"]\n{}{}{}",
            site(folder.path(), "open", "off"),
            site(folder.path(), "may", "optional"),
            site(folder.path(), "must", "required")
        );
        let options = Options::new(folder.join("open")).engine(engine).config(&config);
        Edge { folder, servers, clients, served: WatchedServer::with(options), addr }
    }

    /// The configuration of a client with a certificate.
    fn known(&self, name: &str, serial: u8) -> Arc<ClientConfig> {
        Arc::new(self.clients.known(self.servers.client(), name, serial))
    }

    fn bare(&self) -> Arc<ClientConfig> {
        Arc::new(self.servers.client())
    }

    /// The status and text that a new connection for the name `name` gets from the site of `host`.
    fn get(&self, client: &Arc<ClientConfig>, name: &str, host: &str) -> Option<(u16, String)> {
        get(&mut connect(client, self.addr, name), host)
    }

    fn count(&self, result: &str) -> u64 {
        self.served.metric(&format!("forebay_tls_handshakes_total{{result=\"{result}\"}}"))
    }
}

fn site(folder: &Path, name: &str, client: &str) -> String {
    let file = |name: &str| folder.join(name);
    let asks = match client {
        "off" => String::new(),
        _ => format!(
            "client = \"{client}\"\nclient_ca = [{:?}]\nclient_crl = [{:?}]\n",
            file("ca.pem"),
            file("ca.crl")
        ),
    };
    format!(
        "[[site]]\nhosts = [\"{name}.example\"]\nroot = {:?}\n[site.tls]\ncertificate = [{:?}]\n\
         key = [{:?}]\n{asks}",
        file(name),
        file("a.crt"),
        file("a.key")
    )
}

/// The status and the body of an answer, or nothing if the connection is over.
fn get(stream: &mut TlsStream, host: &str) -> Option<(u16, String)> {
    write!(stream, "GET /file HTTP/1.1\r\nHost: {host}\r\n\r\n").ok()?;
    stream.flush().ok()?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).ok()?;
    Some((head[9..12].parse().unwrap(), String::from_utf8(body).unwrap()))
}

fn found(body: &str) -> Option<(u16, String)> {
    Some((200, body.to_owned()))
}

fn status(answer: Option<(u16, String)>) -> Option<u16> {
    answer.map(|(status, _)| status)
}

/// Tests both versions of TLS and of HTTP.
#[test]
fn clients_come_in_by_their_certificates() {
    for engine in ENGINES {
        let edge = Edge::start(engine, "");
        for version in [&TLS12, &TLS13] {
            let base = edge.servers.client_speaking(&[version]);
            let known = Arc::new(edge.clients.known(base.clone(), "worker", 7));
            let revoked = Arc::new(edge.clients.known(base.clone(), "gone", 99));
            let stranger = Authority::named("strangers");
            let stranger = Arc::new(stranger.known(base.clone(), "worker", 7));
            let bare = Arc::new(base);
            for (client, may, must) in [
                (&known, true, true),
                (&bare, true, false),
                (&revoked, false, false),
                (&stranger, false, false),
            ] {
                let host = "open.example";
                assert_eq!(edge.get(client, host, host), found("open"), "{engine}");
                for (host, body, comes_in) in
                    [("may.example", "may", may), ("must.example", "must", must)]
                {
                    let expected = if comes_in { found(body) } else { None };
                    assert_eq!(edge.get(client, host, host), expected, "{engine}: {host}");
                }
            }
        }
        let counts = || {
            ["missing", "revoked", "untrusted", "expired", "unlisted", "wrong"]
                .map(|reason| edge.count(&format!("client_certificate_{reason}")))
        };
        // a client may know before it is counted
        let are_counted = || counts().iter().sum::<u64>() >= 10;
        assert!(soon(PATIENCE, are_counted), "{engine}: {:?}", counts());
        assert_eq!(counts(), [2, 4, 4, 0, 0, 0], "{engine}");
        let known = ClientConfig::clone(&edge.known("worker", 7));
        let mut client = Client::sealed_by(known, edge.addr, "must.example");
        let answer = client.get("/file");
        assert_eq!((answer.status, &answer.body[..]), (200, &b"must"[..]), "{engine}");
    }
}

/// The certificate covers all three sites, but they ask clients for different things.
#[test]
fn a_connection_is_for_sites_that_ask_the_same() {
    for engine in ENGINES {
        let edge = Edge::start(engine, "");
        let known = edge.known("worker", 7);
        let hosts = ["open.example", "may.example", "must.example"];
        for name in hosts {
            let mut stream = connect(&known, edge.addr, name);
            for host in hosts {
                let expected = if host == name { 200 } else { 421 };
                assert_eq!(
                    status(get(&mut stream, host)),
                    Some(expected),
                    "{engine}: {name} {host}"
                );
            }
        }
        // without TLS no client shows a certificate
        for (host, expected) in [("open", "200"), ("may", "200"), ("must", "403")] {
            let request = format!("GET /file HTTP/1.0\r\nHost: {host}.example\r\n\r\n");
            let answer = edge.served.exchange(request.as_bytes());
            let answer = String::from_utf8(answer).unwrap();
            assert_eq!(&answer[9..12], expected, "{engine}: {host}");
        }
    }
}

/// A proxy's statement about its client shows no certificate: a client that `tls.redirect` does not
/// redirect is refused.
#[test]
fn a_proxy_that_says_https_shows_no_certificate() {
    for engine in ENGINES {
        let edge = Edge::start(engine, "trusted_proxies = [\"127.0.0.0/8\"]\ntls.redirect = 308");
        for (host, says, expected) in [
            ("must", "", "308"),
            ("must", "X-Forwarded-Proto: http\r\n", "308"),
            ("must", "X-Forwarded-Proto: https\r\n", "403"),
            ("may", "X-Forwarded-Proto: https\r\n", "200"),
            ("open", "X-Forwarded-Proto: https\r\n", "200"),
        ] {
            let request = format!("GET /file HTTP/1.0\r\nHost: {host}.example\r\n{says}\r\n");
            let answer = edge.served.exchange(request.as_bytes());
            let answer = String::from_utf8(answer).unwrap();
            assert_eq!(&answer[9..12], expected, "{engine}: {host} {says}");
        }
        // a certificate that is shown does not make up for what the client has sent in clear
        let mut stream = connect(&edge.known("worker", 7), edge.addr, "must.example");
        let request = "GET /file HTTP/1.1\r\nHost: must.example\r\nX-Forwarded-Proto: http\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        stream.flush().unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status[9..], b"308", "{engine}");
    }
}

/// CVE-2025-23419: a client that has a session with a site that asks for nothing does not resume it with
/// one that does, under whatever name.
#[test]
fn a_session_opens_no_site_that_asks_for_more() {
    for engine in ENGINES {
        for version in [&TLS12, &TLS13] {
            let edge = Edge::start(engine, "");
            let mut client = edge.servers.client_speaking(&[version]);
            client.resumption = Resumption::in_memory_sessions(8);
            let client = Arc::new(client);
            let talk = |client: &Arc<ClientConfig>, host: &str| {
                let mut stream = connect(client, edge.addr, host);
                let answer = get(&mut stream, host);
                (status(answer), stream.conn.handshake_kind())
            };
            let resumed = Some(HandshakeKind::Resumed);
            assert_eq!(talk(&client, "open.example").0, Some(200), "{engine}");
            assert_eq!(talk(&client, "open.example"), (Some(200), resumed), "{engine}");
            // from now on the site asks for certificates under the name of the session
            let config = fs::read_to_string(edge.served.file()).unwrap();
            let asks = format!(
                "[site.tls]\nclient = \"required\"\nclient_ca = [{:?}]\n",
                edge.folder.join("ca.pem")
            );
            // only in the section of the first site
            edge.served.configure_with(&config.replacen("[site.tls]\n", &asks, 1));
            let mut kept = connect(&client, edge.addr, "open.example");
            assert_eq!(status(get(&mut kept, "open.example")), Some(200), "{engine}");
            assert_eq!(edge.served.reload().0, Some(0), "{engine}: {}", edge.served.stderr());
            assert_eq!(talk(&client, "open.example").0, None, "{engine}: {version:?}");
            // an open connection does not serve the site either
            assert_eq!(status(get(&mut kept, "open.example")), Some(421), "{engine}");
            // clients that have shown a certificate do resume
            let mut known =
                edge.clients.known(edge.servers.client_speaking(&[version]), "worker", 7);
            known.resumption = Resumption::in_memory_sessions(8);
            let known = Arc::new(known);
            assert_eq!(talk(&known, "open.example").0, Some(200), "{engine}");
            assert_eq!(talk(&known, "open.example"), (Some(200), resumed), "{engine}");
        }
    }
}

/// A session is resumed with the process that has taken the place of the one where it began, unless the
/// new one asks for more.
#[test]
fn sessions_survive_an_upgrade() {
    for engine in ENGINES {
        let edge = Edge::start(engine, "");
        let [bare, known] =
            [edge.servers.client(), { edge.clients.known(edge.servers.client(), "worker", 7) }]
                .map(|mut client| {
                    client.resumption = Resumption::in_memory_sessions(8);
                    Arc::new(client)
                });
        let talk = |client: &Arc<ClientConfig>, host: &str| {
            let mut stream = connect(client, edge.addr, host);
            let answer = get(&mut stream, host);
            (status(answer), stream.conn.handshake_kind() == Some(HandshakeKind::Resumed))
        };
        assert_eq!(talk(&bare, "open.example"), (Some(200), false), "{engine}");
        assert_eq!(talk(&known, "must.example"), (Some(200), false), "{engine}");
        let mut successors = vec![upgrade(&edge.served)];
        assert_eq!(talk(&bare, "open.example"), (Some(200), true), "{engine}");
        // the keys go on to the next
        successors.push(upgrade(&edge.served));
        assert_eq!(talk(&bare, "open.example"), (Some(200), true), "{engine}");
        assert_eq!(talk(&known, "must.example"), (Some(200), true), "{engine}");
        edge.folder.write("ca.crl", edge.clients.list(7));
        successors.push(upgrade(&edge.served));
        // the one before accepts for a moment yet
        assert!(soon(PATIENCE, || talk(&known, "must.example").0.is_none()), "{engine}");
        assert_eq!(talk(&bare, "open.example"), (Some(200), true), "{engine}");
    }
}

/// A revoked client does not come in again, not with a session either; a faulty list changes nothing.
#[test]
fn changed_lists_and_authorities_are_taken_over() {
    for engine in ENGINES {
        let edge = Edge::start(engine, "");
        let mut known = ClientConfig::clone(&edge.known("worker", 7));
        known.resumption = Resumption::in_memory_sessions(8);
        let known = Arc::new(known);
        let host = "must.example";
        for _ in 0..2 {
            assert_eq!(edge.get(&known, host, host), found("must"), "{engine}");
        }
        let mut kept = connect(&known, edge.addr, host);
        assert_eq!(get(&mut kept, host), found("must"), "{engine}");
        edge.folder.write("ca.crl", "no list");
        let stderr = || edge.served.stderr();
        assert!(
            soon(PATIENCE, || stderr().contains("what is in force is kept")),
            "{engine}: {}",
            stderr()
        );
        assert!(stderr().contains("ca.crl") && stderr().contains("holds no list"), "{}", stderr());
        let (code, said) = edge.served.reload();
        assert!(code != Some(0) && said.contains("ca.crl"), "{engine}: {said}");
        assert_eq!(edge.get(&known, host, host), found("must"), "{engine}");
        edge.folder.write("ca.crl", edge.clients.list(7));
        assert!(
            soon(PATIENCE, || edge.get(&known, host, host).is_none()),
            "{engine}: {}",
            stderr()
        );
        // a client that was there is served on
        assert_eq!(get(&mut kept, host), found("must"), "{engine}");
        // another authority, with its own revocation list
        let others = Authority::named("others");
        edge.folder.write("ca.pem", &others.pem);
        edge.folder.write("ca.crl", others.list(7));
        let other = Arc::new(others.known(edge.servers.client(), "other", 8));
        assert!(soon(PATIENCE, || edge.get(&other, host, host) == found("must")), "{}", stderr());
        assert_eq!(status(get(&mut kept, host)), Some(421), "{engine}");
    }
}

/// A rule's condition on certificates, and the fields of certificates in the log.
#[test]
fn rules_and_lines_know_who_it_is() {
    for engine in ENGINES {
        let log = Folder::new();
        let file = log.join("access.log");
        let lines = format!(
            "log.access = {file:?}\nlog.format = \"json\"\nlog.fields = [\"status\", \"client_subject\", \
             \"client_fingerprint\"]\n[[rule]]\nsite = \"may.example\"\ncertificate = \"subject=CN=worker*\"\n\
             action = \"allow\"\n[[rule]]\nsite = \"may.example\"\ncertificate = \"any\"\naction = \
             \"reject\"\nstatus = 404\n[[rule]]\nsite = \"may.example\"\naction = \"reject\"\n"
        );
        let edge = Edge::start(engine, &lines);
        let host = "may.example";
        for (client, expected) in
            [(&edge.known("worker 1", 7), 200), (&edge.known("boss", 8), 404), (&edge.bare(), 403)]
        {
            assert_eq!(status(edge.get(client, host, host)), Some(expected), "{engine}");
        }
        let read = || fs::read_to_string(&file).unwrap_or_default();
        assert!(soon(PATIENCE, || read().lines().count() == 3), "{engine}: {}", read());
        let text = read();
        let of = |status: &str| text.lines().find(|line| line.contains(status)).unwrap();
        let worker = of("\"status\":200");
        assert!(worker.contains("\"client_subject\":\"CN=worker 1\""), "{engine}: {text}");
        let digits = worker.split("\"client_fingerprint\":\"").nth(1).unwrap();
        assert_eq!(digits.find('"'), Some(64), "{engine}: {text}");
        assert!(of("\"status\":404").contains("CN=boss"), "{engine}: {text}");
        assert!(!of("\"status\":403").contains("client_"), "{engine}: {text}");
    }
}
