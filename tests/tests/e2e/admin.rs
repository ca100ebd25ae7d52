//! The admin listener: which clients may read from it, and where it can be.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::Client;
use forebay_tests::faults::crowd::{client_address, connect_from};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::server::{free_addr, free_at_all_addresses};
use forebay_tests::tls::Authority;
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{Options, Server};
use rcgen::{PKCS_ECDSA_P256_SHA256 as ECDSA, PKCS_RSA_SHA256 as RSA};
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

fn options() -> (Options, Folder) {
    let folder = Folder::new();
    folder.write("site/index.html", "hello");
    (Options::new(folder.join("site")), folder)
}

fn request(host: &str) -> String {
    format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

/// The first line of the answer to the client with this number.
fn asked_by(number: usize, admin: SocketAddr, host: &str) -> String {
    let mut stream = connect_from(client_address(number), admin).unwrap();
    stream.write_all(request(host).as_bytes()).unwrap();
    let (answer, _) = wire::read_to_end(&mut stream, PATIENCE);
    String::from_utf8_lossy(&answer).lines().next().unwrap_or("").to_owned()
}

fn asked_at(path: &Path, host: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request(host).as_bytes()).unwrap();
    let mut answer = String::new();
    // a refused client may be reset behind the answer
    let _ = stream.read_to_string(&mut answer);
    answer.lines().next().unwrap_or("").to_owned()
}

/// The listener is at all addresses of the machine, for the named clients alone, by an address and by no
/// other name.
#[test]
fn it_is_read_from_the_addresses_that_are_allowed() {
    let (options, _folder) = options();
    let admin = free_at_all_addresses();
    let allowed = client_address(1);
    let settings =
        |allow: &str| format!("admin.listen = \":{}\"\nadmin.allow = [{allow}]", admin.port());
    let server =
        Server::start(&options.clone().config(&settings(&format!("\"{allowed}\", \"unix\""))));
    for host in [admin.to_string(), allowed.to_string(), "[2001:db8::1]:9090".to_owned()] {
        assert_eq!(asked_by(1, admin, &host), "HTTP/1.1 200 OK", "{host}");
    }
    assert_eq!(asked_by(2, admin, "localhost"), "HTTP/1.1 403 Forbidden");
    assert!(asked_by(1, admin, "metrics.example:9090").starts_with("HTTP/1.1 421 "));
    // a reload changes which clients may read
    let others = format!("\"{}\"", client_address(2));
    server.configure(&options.config(&settings(&others)));
    assert_eq!(server.reload().0, Some(0), "{}", server.stderr());
    assert_eq!(asked_by(2, admin, "localhost"), "HTTP/1.1 200 OK");
    assert_eq!(asked_by(1, admin, "localhost"), "HTTP/1.1 403 Forbidden");
}

/// Without `admin.allow`, only this machine may read from an address of the network.
#[test]
fn nobody_else_is_allowed_unless_it_is_said() {
    let (options, _folder) = options();
    let admin = free_at_all_addresses();
    let server = Server::start(&options.config(&format!("admin.listen = \":{}\"", admin.port())));
    assert_eq!(asked_by(1, admin, "localhost"), "HTTP/1.1 200 OK");
    let file = server.file();
    let check = std::process::Command::new(forebay_tests::server::binary())
        .args(["check", "-c", file.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8(check.stderr).unwrap();
    assert!(
        said.contains("admin.listen: ") && said.contains("only clients of this machine"),
        "{said}"
    );
}

/// The listener shows the progress of a drain over a Unix socket, too; then its file is gone.
#[test]
fn its_unix_socket_stays_while_the_server_drains() {
    let (options, folder) = options();
    folder.write("site/large.bin", "0123456789abcdef".repeat(512 << 10));
    let admin = folder.join("a.sock");
    // this directory is not there for another user to write to
    let options = Options { user: None, ..options };
    let settings = format!(
        "admin.listen = \"unix:{}\"\ncache.bytes = \"0B\"\ntimeouts.send_window = \"1h\"\n\
         timeouts.drain = \"1h\"",
        admin.display()
    );
    let mut server = Server::start(&options.config(&settings));
    let ready = |path: &str| {
        let mut stream = UnixStream::connect(&admin).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer[9..12].to_owned()
    };
    // a client that takes nothing of a large file keeps the drain waiting
    let mut slow = server.connect();
    rustix::net::sockopt::set_socket_recv_buffer_size(&slow, 64 << 10).unwrap();
    slow.write_all(b"GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    slow.read_exact(&mut [0; 16]).unwrap();
    assert_eq!([ready("/healthz"), ready("/readyz")], ["200", "200"]);
    server.signal(rustix::process::Signal::TERM);
    let drains = || server.stderr().contains("draining");
    assert!(soon(PATIENCE, drains), "{}", server.stderr());
    assert_eq!([ready("/healthz"), ready("/readyz")], ["200", "503"]);
    drop(slow);
    assert!(server.wait(PATIENCE).is_some_and(|status| status.success()));
    assert!(fs::symlink_metadata(&admin).is_err(), "the file of the socket is left");
}

/// The listener is a Unix socket, where the rights of the file decide, whatever host the request names.
#[test]
fn it_is_read_over_a_unix_socket() {
    let (options, folder) = options();
    let (first, second) = (folder.join("a.sock"), folder.join("b.sock"));
    let at = |path: &Path| format!("admin.listen = \"unix:{}\"", path.display());
    // this directory is not there for another user to write to
    let options = Options { user: None, ..options };
    let mut server = Server::start(&options.clone().config(&at(&first)));
    server.says("a.sock");
    for host in ["localhost", "whatever.example"] {
        assert_eq!(asked_at(&first, host), "HTTP/1.1 200 OK", "{host}");
    }
    server.configure(&options.clone().config(&at(&second)));
    assert_eq!(server.reload().0, Some(0), "{}", server.stderr());
    assert_eq!(asked_at(&second, "localhost"), "HTTP/1.1 200 OK");
    // from the end of a reload on its rules hold, whatever process still has the socket
    for _ in 0..8 {
        let nobody = "admin.allow = [\"127.0.0.1\"]";
        for (rule, expected) in [(nobody, "HTTP/1.1 403 Forbidden"), ("", "HTTP/1.1 200 OK")] {
            server.configure(&options.clone().config(&format!("{}\n{rule}", at(&second))));
            assert_eq!(server.reload().0, Some(0), "{}", server.stderr());
            assert_eq!(asked_at(&second, "localhost"), expected, "{rule}");
        }
    }
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait(PATIENCE).is_some_and(|status| status.success()));
    assert!(fs::symlink_metadata(&second).is_err(), "the file of the socket is left");
}

/// The rules in force count for an open connection, not those of the time when it was made.
#[test]
fn an_open_connection_goes_by_the_rules_in_force() {
    let (options, _folder) = options();
    let served = WatchedServer::with(options.clone());
    let mut client = Client::connect(served.admin());
    let mut ask = || {
        let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        client.stream().write_all(request).unwrap();
        client.answer().unwrap()
    };
    assert_eq!(ask().status, 200);
    served.reload_with(options.config("admin.allow = [\"192.0.2.1\"]"));
    let answer = ask();
    assert_eq!((answer.status, answer.is_last()), (403, true), "{}", answer.head);
}

/// The number of the server's threads with this name.
fn threads_named(server: &Server, name: &str) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.trim_end() == name).count()
}

/// Without TLS, the admin listener does not redirect to TLS.
#[test]
fn it_has_no_helpers_without_tls() {
    let (options, _folder) = options();
    let served = WatchedServer::with(options);
    // a thread has its name when it runs
    let are_there = || ["admin", "helpers"].iter().all(|name| threads_named(&served, name) > 0);
    assert!(soon(PATIENCE, are_there));
    served.metrics();
    assert_eq!(threads_named(&served, "admin"), 1);
    assert_eq!(threads_named(&served, "helpers"), 1);
}

/// The listener speaks TLS, with any kind of certificate: with a token everything is answered, without
/// one only the paths for probes. Changed tokens and certificates are taken over, and faulty ones are
/// not.
#[test]
fn it_is_read_over_tls_with_a_token() {
    let (options, folder) = options();
    let authority = Authority::new();
    let admin = free_addr();
    authority.write(folder.path(), "admin", &["web1.example"], &ECDSA);
    folder.write("tokens", "# prometheus\nfirst-token\n");
    let files = |end| folder.join(&format!("admin.{end}"));
    let settings = format!(
        "[admin]\nlisten = \"https://{admin}\"\ntoken_file = {:?}\n\
         tls = {{ certificate = [{:?}], key = [{:?}] }}",
        folder.join("tokens"),
        files("crt"),
        files("key")
    );
    let server = Server::start(&options.config(&settings));
    server.says(&format!("admin on https://{admin}"));
    let ask = |path: &str, fields: &str| {
        let mut stream = authority.connect(admin, "web1.example");
        let host = format!("web1.example:{}", admin.port());
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let certificate = stream.conn.peer_certificates().unwrap()[0].to_vec();
        (answer, certificate)
    };
    let status = |path: &str, token: &str| {
        ask(path, &format!("Authorization: Bearer {token}\r\n")).0[9..12].to_owned()
    };
    let (refused, shown) = ask("/metrics", "");
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    assert!(refused.contains("\r\nWWW-Authenticate: Bearer\r\n"), "{refused}");
    assert!(!refused.contains("forebay_"), "{refused}");
    assert_eq!(status("/metrics", "second-token"), "401");
    assert_eq!(status("/metrics", "first-token"), "200");
    for path in ["/healthz", "/readyz"] {
        assert!(ask(path, "").0.starts_with("HTTP/1.1 200 "), "{path}");
    }
    // a file of tokens takes the place of another, as editors write it
    fs::write(folder.join("new"), "second-token\nthird-token\n").unwrap();
    fs::rename(folder.join("new"), folder.join("tokens")).unwrap();
    let is_new = || status("/metrics", "second-token") == "200";
    assert!(soon(PATIENCE, is_new), "{}", server.stderr());
    assert_eq!(status("/metrics", "third-token"), "200");
    assert_eq!(status("/metrics", "first-token"), "401");
    // a faulty file of tokens admits no new client and shuts none out
    folder.write("tokens", "# none\n");
    let is_told = || server.stderr().contains("what is in force is kept");
    assert!(soon(PATIENCE, is_told), "{}", server.stderr());
    assert_eq!(status("/metrics", "second-token"), "200");
    // a key whose signatures are work for a helper
    folder.write("tokens", "fourth-token\n");
    authority.write(folder.path(), "admin", &["web1.example"], &RSA);
    let is_new = || ask("/healthz", "").1 != shown && status("/metrics", "fourth-token") == "200";
    assert!(soon(PATIENCE, is_new), "{}", server.stderr());
    // a client that speaks without TLS learns that, and nothing else
    let mut plain = wire::connect(admin);
    plain.write_all(request("localhost").as_bytes()).unwrap();
    let (answer, _) = wire::read_to_end(&mut plain, PATIENCE);
    assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", answer.escape_ascii());
}

/// Each address counts by itself: over the Unix socket and loopback a token may go in clear.
#[test]
fn it_listens_at_several_addresses() {
    let (options, folder) = options();
    let (admin, socket) = (free_addr(), folder.join("a.sock"));
    folder.write("tokens", "token\n");
    // this directory is not there for another user to write to
    let options = Options { user: None, ..options };
    let listen = |rest: &str| {
        let tokens = folder.join("tokens");
        format!("[admin]\nlisten = [\"{admin}\"{rest}]\ntoken_file = {tokens:?}")
    };
    let both = listen(&format!(", \"unix:{}\"", socket.display()));
    let server = Server::start(&options.clone().config(&both));
    assert!(asked_by(1, admin, "localhost").starts_with("HTTP/1.1 401 "));
    assert!(asked_at(&socket, "localhost").starts_with("HTTP/1.1 401 "));
    let with_token = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                      Authorization: Bearer token\r\n\r\n";
    let mut stream = wire::connect(admin);
    stream.write_all(with_token.as_bytes()).unwrap();
    assert!(wire::read_to_end(&mut stream, PATIENCE).0.starts_with(b"HTTP/1.1 200 "));
    // a reload gives up one of them, and tokens in clear are refused as at the start
    server.configure(&options.clone().config(&listen("")));
    assert_eq!(server.reload().0, Some(0), "{}", server.stderr());
    let is_gone = || UnixStream::connect(&socket).is_err();
    assert!(soon(PATIENCE, is_gone), "{}", server.stderr());
    server.configure(&options.config(&listen(", \"10.255.255.1:1\"")));
    let (code, said) = server.reload();
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("in clear"), "{said}");
}
