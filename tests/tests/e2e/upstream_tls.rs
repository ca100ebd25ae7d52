//! Applications that are spoken with through TLS: which of them the server believes, what it shows them,
//! and what becomes of requests where a connection is not safe. `proxy.rs` and `websocket.rs` test the
//! bytes that pass through, since they run with `FOREBAY_TLS_APPLICATIONS=1`, too.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::{Folder, counting};
use forebay_tests::faults::soon;
use forebay_tests::server::free_addr;
use forebay_tests::tls::{Authority, server, server_for};
use forebay_tests::wire::{self, End, PATIENCE};
use forebay_tests::{ISOLATED, Options, Server, on_each_engine, on_isolated};
use rcgen::{PKCS_ECDSA_P256_SHA256 as ECDSA, date_time_ymd};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

on_each_engine!(
    connections_are_kept_and_sessions_resumed,
    an_answer_that_is_cut_off_is_not_whole,
    who_cannot_be_trusted_is_asked_nothing,
    another_application_answers_for_one_that_is_not_trusted,
    a_handshake_that_hangs_keeps_nobody_waiting,
    certificates_are_shown_and_replaced,
    what_is_said_first_is_said_in_clear,
    checks_and_servers_that_decide_are_asked_through_tls,
);

on_isolated!(
    connections_are_kept_and_sessions_resumed,
    an_answer_that_is_cut_off_is_not_whole,
    certificates_are_shown_and_replaced,
);

/// An application that speaks TLS; the path chooses the answer.
struct Application {
    addr: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
}

impl Application {
    fn start(config: ServerConfig) -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, counts) = (listener.local_addr().unwrap(), Arc::<Counts>::default());
        let (shared, config) = (Arc::clone(&counts), Arc::new(config));
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let (counts, config) = (Arc::clone(&shared), Arc::clone(&config));
                counts.connections.fetch_add(1, SeqCst);
                thread::spawn(move || {
                    let connection = ServerConnection::new(config).unwrap();
                    socket.set_nodelay(true).unwrap();
                    let mut reader = BufReader::new(StreamOwned::new(connection, socket));
                    while serve(&mut reader, &counts).unwrap_or(false) {}
                });
            }
        });
        Application { addr, counts }
    }

    /// Starts an application with this certificate below the folder.
    fn showing(folder: &Folder, name: &str) -> Application {
        Application::start(resuming(server(folder.path(), name)))
    }

    fn requests(&self) -> usize {
        self.counts.requests.load(SeqCst)
    }

    fn connections(&self) -> usize {
        self.counts.connections.load(SeqCst)
    }
}

fn resuming(mut config: ServerConfig) -> ServerConfig {
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
    config
}

type Sealed = StreamOwned<ServerConnection, TcpStream>;

/// Serves one request. Returns whether the connection is kept.
fn serve(reader: &mut BufReader<Sealed>, counts: &Counts) -> std::io::Result<bool> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(false);
        }
    }
    counts.requests.fetch_add(1, SeqCst);
    let mut length = 0;
    for line in head.lines() {
        if let Some(text) = line.strip_prefix("Content-Length: ") {
            length = text.parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let stream = reader.get_mut();
    let tls = &stream.conn;
    let shown = tls.peer_certificates().map_or(0, <[_]>::len);
    let kind = tls.handshake_kind().map(|kind| format!("{kind:?}")).unwrap_or_default();
    let told = format!("{kind} {} {shown} {length}", tls.server_name().unwrap_or("-"));
    let sized =
        |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    match path.as_str() {
        "/big" => {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n")?;
            stream.write_all(&counting(BIG))?;
        }
        "/cut" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf")?;
            return Ok(false);
        }
        "/end" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nwhole")?;
            stream.conn.send_close_notify();
            stream.flush()?;
            return Ok(false);
        }
        "/once" => {
            stream.write_all(sized(&told).as_bytes())?;
            stream.conn.send_close_notify();
            stream.flush()?;
            return Ok(false);
        }
        "/no" => stream.write_all(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")?,
        _ => stream.write_all(sized(&told).as_bytes())?,
    }
    stream.flush()?;
    Ok(true)
}

const BIG: usize = 5 << 20;

/// Makes an authority, and certificates that it has signed: `app` for the address and for a name.
fn known() -> (Folder, Authority) {
    let (folder, authority) = (Folder::new(), Authority::new());
    folder.write("root/index.html", "own");
    folder.write("ca.pem", &authority.pem);
    authority.write(folder.path(), "app", &["127.0.0.1", "app.example"], &ECDSA);
    authority.write(folder.path(), "other", &["other.example"], &ECDSA);
    authority.write_with(folder.path(), "old", &["127.0.0.1"], &ECDSA, |params| {
        params.not_after = date_time_ymd(2020, 1, 1);
    });
    Authority::named("stranger").write(folder.path(), "stranger", &["127.0.0.1"], &ECDSA);
    (folder, authority)
}

/// Starts a server with these routes, in which `CA` stands for the authority, and a listener for its
/// metrics.
fn start(engine: &str, folder: &Folder, routes: &str) -> (Server, SocketAddr) {
    let admin = free_addr();
    let ca = format!("tls.ca = [{:?}]", folder.join("ca.pem"));
    let lines = format!(
        "log.format = \"json\"\n[admin]\nlisten = [\"{admin}\"]\n{}",
        routes.replace("CA", &ca)
    );
    let options = Options { log: engine != ISOLATED, ..Options::new(folder.join("root")) };
    (Server::start(&options.engine(engine).config(&lines)), admin)
}

fn route(path: &str, to: &str, more: &str) -> String {
    format!("[[proxy]]\npath = \"{path}\"\nstrip = \"{path}\"\nto = [{to}]\n{more}\n")
}

fn at(application: &Application) -> String {
    format!("\"https://{}\"", application.addr)
}

fn get(server: &Server, path: &str) -> String {
    text(server.exchange(
        format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes(),
    ))
}

fn text(answer: Vec<u8>) -> String {
    String::from_utf8(answer).unwrap()
}

/// Whether the count of handshakes with this result is as expected.
fn are_counted(admin: SocketAddr, result: &str, is: impl Fn(u64) -> bool) -> bool {
    soon(PATIENCE, || is(counted(admin, result)))
}

fn counted(admin: SocketAddr, result: &str) -> u64 {
    let told = wire::exchange(
        admin,
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    let name = format!("forebay_upstream_tls_handshakes_total{{result=\"{result}\"}} ");
    let told = text(told);
    let line = told.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("{told}")).parse().unwrap()
}

fn connections_are_kept_and_sessions_resumed(engine: &str) {
    let (folder, _authority) = known();
    let application = Application::showing(&folder, "app");
    let routes = [
        route("/app", &at(&application), "CA"),
        route("/named", &at(&application), "CA\ntls.server_name = \"app.example\""),
        route("/each", &at(&application), "CA\nkeep_alive.connections = 0"),
    ];
    let (server, admin) = start(engine, &folder, &routes.concat());
    for _ in 0..20 {
        assert!(get(&server, "/app/a").ends_with("- 0 0"), "an address is no name to be told");
    }
    // each thread or process may have one
    assert!(application.connections() <= 8, "{engine}: {}", application.connections());
    assert!(get(&server, "/named/a").ends_with("Full app.example 0 0"), "a session is one route's");
    let resumed = (0..5).filter(|_| get(&server, "/each/a").contains("Resumed")).count();
    // processes do not share them
    assert!(resumed >= 3, "{engine}: {resumed}");
    // large bodies, both ways
    let body = counting(BIG);
    let mut client = server.connect();
    let head = format!("POST /app/a HTTP/1.1\r\nHost: a\r\nContent-Length: {BIG}\r\n\r\n");
    client.write_all(&[head.as_bytes(), &body].concat()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(format!(" 0 {BIG}").as_bytes()) {
        let mut more = [0; 1000];
        let count = client.read(&mut more).unwrap();
        assert!(count > 0, "{engine}: {}", answer.escape_ascii());
        answer.extend_from_slice(&more[..count]);
    }
    let answer = server.exchange(b"GET /app/big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(answer.ends_with(&body), "{engine}: {} bytes", answer.len());
    if engine != ISOLATED {
        assert!(are_counted(admin, "full", |count| count >= 2), "{engine}");
        assert!(are_counted(admin, "resumed", |count| count >= 3), "{engine}");
    }
}

fn an_answer_that_is_cut_off_is_not_whole(engine: &str) {
    let (folder, _authority) = known();
    let application = Application::showing(&folder, "app");
    let (server, _) = start(engine, &folder, &route("/app", &at(&application), "CA"));
    let ask = |path: &str| {
        let mut client = server.connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // in chunks, whose last one says that it is whole
        while !answer.ends_with(b"\r\n0\r\n\r\n") {
            let mut more = [0; 1000];
            match client.read(&mut more) {
                Ok(count @ 1..) => answer.extend_from_slice(&more[..count]),
                _ => return (false, text(answer)),
            }
        }
        (true, text(answer))
    };
    let (is_whole, answer) = ask("/app/end");
    assert!(is_whole && answer.contains("whole"), "{engine}: {answer}");
    let (is_whole, answer) = ask("/app/cut");
    assert!(!is_whole, "{engine}: {answer}");
}

fn who_cannot_be_trusted_is_asked_nothing(engine: &str) {
    let (folder, _authority) = known();
    let all = ["other", "stranger", "old"].map(|name| Application::showing(&folder, name));
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain_at = format!("\"https://{}\"", plain.local_addr().unwrap());
    thread::spawn(move || {
        for mut socket in plain.incoming().map_while(Result::ok) {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
            let _ = socket.read(&mut [0; 1000]);
        }
    });
    let routes = [
        route("/name", &at(&all[0]), "CA"),
        route("/issuer", &at(&all[1]), "CA"),
        route("/expired", &at(&all[2]), "CA"),
        route("/not_tls", &plain_at, "CA"),
        route("/any", &at(&all[0]), "tls.verify = false"),
        route(
            "/themselves",
            &at(&all[1]),
            &format!("tls.ca = [{:?}]", folder.join("stranger.crt")),
        ),
    ];
    let (server, admin) = start(engine, &folder, &routes.concat());
    for reason in ["name", "issuer", "expired", "not_tls"] {
        let request = format!(
            "POST /{reason}/a HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret"
        );
        let answer = text(server.exchange(request.as_bytes()));
        assert!(answer.starts_with("HTTP/1.1 502 "), "{engine} {reason}: {answer}");
        // another connection would fail in the same way
        assert!(are_counted(admin, reason, |count| count == 1), "{engine} {reason}");
    }
    assert!(all.iter().all(|application| application.requests() == 0), "{engine}");
    for words in [
        "TLS: its certificate is for another name",
        "TLS: no authority that is trusted has signed its certificate",
        "TLS: its certificate has expired",
        "TLS: what it says is no TLS",
    ] {
        server.says(words);
    }
    assert!(soon(PATIENCE, || server.stdout().contains("tls_expired")), "{}", server.stdout());
    assert!(get(&server, "/any/a").starts_with("HTTP/1.1 200 "), "{engine}");
    server.says("whoever is on the way can read and change everything");
    // a self-signed certificate that is known is enough
    assert!(get(&server, "/themselves/a").starts_with("HTTP/1.1 200 "), "{engine}");
}

fn another_application_answers_for_one_that_is_not_trusted(engine: &str) {
    let (folder, _authority) = known();
    let (bad, good) = (Application::showing(&folder, "old"), Application::showing(&folder, "app"));
    let to = format!("{}, {}", at(&bad), at(&good));
    let more = "CA\nbalance = \"round-robin\"\nretry_budget = \"100%\"";
    let (server, _) = start(engine, &folder, &route("/app", &to, more));
    for _ in 0..10 {
        let request =
            b"POST /app/a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
        let answer = text(server.exchange(request));
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(" 3"),
            "{engine}: {answer}"
        );
    }
    assert_eq!((bad.requests(), good.requests()), (0, 10), "{engine}");
}

fn a_handshake_that_hangs_keeps_nobody_waiting(engine: &str) {
    let (folder, _authority) = known();
    let application = Application::showing(&folder, "app");
    // connections are taken, and nothing is said
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    let hung_at = format!("\"https://{}\"", hung.local_addr().unwrap());
    let routes = [
        route("/app", &at(&application), "CA"),
        route("/hung", &hung_at, "CA\ntimeouts.connect = \"1s\"\nretries = 0"),
    ];
    let (server, _) = start(engine, &folder, &routes.concat());
    let mut waits = server.connect();
    waits.write_all(b"GET /hung/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let (taken, _) = hung.accept().unwrap();
    // the ClientHello has come
    assert!(taken.peek(&mut [0; 1]).unwrap() == 1);
    assert!(get(&server, "/app/a").starts_with("HTTP/1.1 200 "), "{engine}");
    let (answer, end) = wire::read_to_end(&mut waits, PATIENCE);
    assert_eq!(end, End::Closed, "{engine}");
    assert!(text(answer).starts_with("HTTP/1.1 504 "), "{engine}");
    server.says("connect_timeout: in the handshake of TLS");
}

fn certificates_are_shown_and_replaced(engine: &str) {
    let (folder, authority) = known();
    let mut roots = RootCertStore::empty();
    let ca = forebay_tests::tls::first_certificate(authority.pem.as_bytes());
    roots.add(ca.into()).unwrap();
    let config = server_for(folder.path(), "app", Some(roots));
    let application = Application::start(resuming(config));
    authority.write(folder.path(), "me", &["me.example"], &ECDSA);
    let me = format!(
        "CA\ntls.certificate = {:?}\ntls.key = {:?}",
        folder.join("me.crt"),
        folder.join("me.key")
    );
    let routes = [route("/app", &at(&application), &me), route("/none", &at(&application), "CA")];
    let (server, admin) = start(engine, &folder, &routes.concat());
    assert!(get(&server, "/app/a").ends_with("- 1 0"), "{engine}");
    let answer = get(&server, "/none/a");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{engine}: {answer}");
    // between stages a request may be sent twice when a machine is busy
    if engine != ISOLATED {
        assert_eq!(application.requests(), 1, "{engine}");
        assert!(are_counted(admin, "unwelcome", |count| count >= 1), "{engine}");
        server.says("TLS: it does not take our certificate, or wants one (alert)");
    }
    // changed files are taken over; old sessions and connections are not used again
    let connections = application.connections();
    authority.write(folder.path(), "me", &["me.example"], &ECDSA);
    let is_new =
        || get(&server, "/app/a").contains("Full") && application.connections() > connections;
    assert!(soon(PATIENCE, is_new), "{engine}: {}", server.stderr());
    // a file that cannot be used changes nothing
    fs::write(folder.join("me.crt"), "nothing").unwrap();
    server.says("what is in force is kept");
    assert!(get(&server, "/app/a").ends_with("- 1 0"), "{engine}");
}

fn what_is_said_first_is_said_in_clear(engine: &str) {
    let (folder, _authority) = known();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let config = Arc::new(server(folder.path(), "app"));
    let told = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&told);
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            // up to the end of the line, and nothing of what follows
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                let mut byte = [0];
                (&socket).read_exact(&mut byte).unwrap();
                line.push(byte[0]);
            }
            *heard.lock().unwrap() = text(line);
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut reader = BufReader::new(StreamOwned::new(connection, socket));
            let _ = serve(&mut reader, &Counts::default());
        }
    });
    let routes = route("/app", &format!("\"https://{addr}\""), "CA\nproxy_protocol = \"v1\"");
    let (server, _) = start(engine, &folder, &routes);
    for _ in 0..3 {
        assert!(get(&server, "/app/a").starts_with("HTTP/1.1 200 "), "{engine}");
        assert!(told.lock().unwrap().starts_with("PROXY TCP4 127."), "{engine}");
    }
}

fn checks_and_servers_that_decide_are_asked_through_tls(engine: &str) {
    let (folder, _authority) = known();
    let (good, old) = (Application::showing(&folder, "app"), Application::showing(&folder, "old"));
    let check = "CA\ncheck = { path = \"/up\", interval = \"1s\" }";
    let routes = [
        route("/app", &at(&good), check),
        route("/old", &at(&old), check),
        format!("[[forward_auth]]\npath = \"/app\"\nto = {}\nuri = \"/yes\"\nCA\n", at(&good)),
        format!(
            "[[forward_auth]]\npath = \"/index.html\"\nto = {}\nuri = \"/no\"\nCA\n",
            at(&good)
        ),
    ];
    let (server, _) = start(engine, &folder, &routes.concat());
    assert!(get(&server, "/app/a").starts_with("HTTP/1.1 200 "), "{engine}");
    assert!(get(&server, "/index.html").starts_with("HTTP/1.1 403 "), "{engine}");
    // beside those of requests
    assert!(soon(PATIENCE, || good.requests() > 4), "{engine}");
    server.says("fails, and is asked all the same");
    assert_eq!(old.requests(), 0, "{engine}");
}
