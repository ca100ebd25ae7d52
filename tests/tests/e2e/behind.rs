//! Behind others: Unix sockets, the PROXY protocol, X-Forwarded-For. Logs and limits go by the client
//! that a trusted proxy states, and believe no other source.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, has, soon};
use forebay_tests::server::{engine_name, free_addr};
use forebay_tests::wire::{End, PATIENCE, exchange, read_to_end};
use forebay_tests::{ENGINES, Options, Server};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::{fs, thread};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("root/index.html", "hello");
    folder
}

fn options(folder: &Folder, engine: &str, lines: &str) -> Options {
    let options = Options { log: true, ..Options::new(folder.join("root")) };
    options.engine(engine).config(lines)
}

/// The answer of a Unix socket.
fn exchange_unix(path: &Path, request: &str) -> String {
    exchange_on(UnixStream::connect(path).unwrap(), request)
}

fn exchange_on(mut stream: UnixStream, request: &str) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn text(answer: Vec<u8>) -> String {
    String::from_utf8(answer).unwrap()
}

/// The clients in the access log, once there are `count` lines.
fn clients(server: &Server, count: usize) -> Vec<String> {
    assert!(soon(PATIENCE, || server.stdout().lines().count() >= count), "{}", server.stdout());
    let log = server.stdout();
    log.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn a_unix_socket_is_served_and_removed() {
    for engine in ENGINES {
        let folder = site();
        let path = folder.join("http.sock");
        let (listen, name) = (path.display(), engine_name(engine));
        let lines = format!("[[listener]]\nlisten = [\"unix:{listen}\"]\nengine = \"{name}\"");
        let options = options(&folder, engine, &lines);
        let mut server = Server::start(&options);
        server.says(&format!("unix:{}", path.display()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        // more clients at once than there are loops
        let answers: Vec<_> = (0..16)
            .map(|_| {
                let path = path.clone();
                thread::spawn(move || exchange_unix(&path, &format!("{GET}\r\n")))
            })
            .collect();
        for answer in answers {
            let answer = answer.join().unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"), "{answer}");
        }
        assert_eq!(clients(&server, 16)[0], "unix", "a client without an address");
        server.signal(Signal::TERM);
        assert!(server.wait(PATIENCE).unwrap().success());
        assert!(!path.exists(), "the socket's file is left behind");
    }
}

/// An abstract socket has no file (unix(7)). TLS and HTTP/2 work as elsewhere, because they do not depend
/// on the address.
#[test]
fn an_abstract_socket_is_served_without_a_file() {
    for engine in ENGINES {
        let folder = site();
        let at = format!("forebay-behind-{}-{engine}", std::process::id());
        let connect = || UnixStream::connect_addr(&abstract_name(&at));
        let lines = format!("[[listener]]\nlisten = [\"unix:@{at}\"]");
        let options = options(&folder, engine, &lines);
        let mut server = Server::start(&options);
        server.says(&format!("unix:@{at}"));
        for _ in 0..3 {
            let answer = exchange_on(connect().unwrap(), &format!("{GET}\r\n"));
            assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"), "{answer}");
        }
        assert_eq!(clients(&server, 3)[0], "unix", "a client without an address");
        // curl is a client that others have written
        let curl =
            Command::new("curl").args(["-s", "--abstract-unix-socket", &at, "http://a/"]).output();
        if let Some(curl) = has(curl, "curl at an abstract socket") {
            assert_eq!(String::from_utf8_lossy(&curl.stdout), "hello");
        }
        let (code, said) = server.reload();
        assert_eq!(code, Some(0), "{said}");
        assert!(exchange_on(connect().unwrap(), &format!("{GET}\r\n")).ends_with("hello"));
        let has_file = |name: &str| Path::new(name).exists() || folder.join(name).exists();
        assert!(!has_file(&at) && !has_file(&format!("@{at}")), "a name without a file has one");
        server.signal(Signal::TERM);
        assert!(server.wait(PATIENCE).unwrap().success());
        assert!(connect().is_err(), "who listens there?");
    }
}

fn abstract_name(name: &str) -> std::os::unix::net::SocketAddr {
    std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap()
}

#[test]
fn the_socket_of_a_server_that_was_killed_is_no_obstacle() {
    let folder = site();
    let path = folder.join("http.sock");
    let lines = format!("[[listener]]\nlisten = [\"unix:{}\"]", path.display());
    let options = options(&folder, "event", &lines);
    let mut server = Server::start(&options);
    server.signal(Signal::KILL);
    server.wait(PATIENCE).unwrap();
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
    let server = Server::start(&options);
    assert!(exchange_unix(&path, &format!("{GET}\r\n")).ends_with("hello"));
    // a second server fails with that reason, and takes nothing away
    let second = std::process::Command::new(forebay_tests::server::binary())
        .args(["run", "-c"])
        .arg(server.file())
        .output()
        .unwrap();
    assert!(!second.status.success());
    assert!(exchange_unix(&path, &format!("{GET}\r\n")).ends_with("hello"));
}

#[test]
fn a_reload_opens_and_closes_unix_sockets() {
    let folder = site();
    let paths = [folder.join("one.sock"), folder.join("two.sock")];
    let with = |path: &Path| {
        options(&folder, "event", &format!("[[listener]]\nlisten = [\"unix:{}\"]", path.display()))
    };
    let server = Server::start(&with(&paths[0]));
    for turn in 1..5 {
        let (now, before) = (&paths[turn % 2], &paths[1 - turn % 2]);
        server.configure(&with(now));
        let (code, said) = server.reload();
        assert_eq!(code, Some(0), "{said}");
        assert!(exchange_unix(now, &format!("{GET}\r\n")).ends_with("hello"));
        assert!(!before.exists());
    }
}

/// A server with a listener for proxies beside its own, both of which trust this machine.
fn behind(folder: &Folder, engine: &str, more: &str) -> (WatchedServer, SocketAddr) {
    let proxied = free_addr();
    let lines = format!(
        "trusted_proxies = [\"127.0.0.0/8\", \"unix\"]\n{more}\n[[listener]]\nlisten = \
         [\"{proxied}\"]\nproxy_protocol = true\nengine = \"{}\"",
        engine_name(engine)
    );
    (WatchedServer::with(options(folder, engine, &lines)), proxied)
}

/// Version 2, from 192.0.2.9 port 4711 over IPv4, with an extension behind the addresses.
fn v2() -> Vec<u8> {
    let addresses = [192, 0, 2, 9, 192, 0, 2, 1, 0x12, 0x67, 0, 80];
    let extension = [4, 0, 3, 0, 0, 0];
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x12", &addresses[..], &extension].concat()
}

#[test]
fn the_proxy_protocol_states_who_is_logged() {
    for engine in ENGINES {
        let folder = site();
        let (served, proxied) = behind(&folder, engine, "");
        let get = format!("{GET}\r\n");
        let v1 = format!("PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n{get}");
        assert!(text(exchange(proxied, v1.as_bytes())).ends_with("hello"), "{engine}");
        assert!(text(exchange(proxied, &[&v2(), get.as_bytes()].concat())).ends_with("hello"));
        let v6 = format!("PROXY TCP6 2001:db8::7 ::1 4711 80\r\n{get}");
        assert!(text(exchange(proxied, v6.as_bytes())).ends_with("hello"));
        // a health check of the proxy's own
        assert!(text(exchange(proxied, format!("PROXY UNKNOWN\r\n{get}").as_bytes())).len() > 100);
        // loops log each for itself
        let mut logged = clients(&served, 4);
        logged.sort();
        assert_eq!(logged, ["127.0.0.1", "192.0.2.7", "192.0.2.9", "2001:db8::7"], "{engine}");
        // a connection without the header
        let mut stream = TcpStream::connect(proxied).unwrap();
        stream.write_all(get.as_bytes()).unwrap();
        assert_eq!(read_to_end(&mut stream, PATIENCE), (Vec::new(), End::Reset));
        let series = "forebay_connections_refused_total{reason=\"proxy_header\"}";
        assert_eq!(served.metric(series), 1);
    }
}

#[test]
fn only_trusted_proxies_may_come_to_a_listener_for_proxies() {
    let folder = site();
    let proxied = free_addr();
    let lines = format!(
        "trusted_proxies = [\"10.0.0.0/8\"]\n[[listener]]\nlisten = [\"{proxied}\"]\n\
         proxy_protocol = true"
    );
    let served = WatchedServer::with(options(&folder, "event", &lines));
    let mut stream = TcpStream::connect(proxied).unwrap();
    // refused by its address alone, before it sends anything
    assert_eq!(read_to_end(&mut stream, PATIENCE), (Vec::new(), End::Reset));
    let series = "forebay_connections_refused_total{reason=\"untrusted_proxy\"}";
    assert_eq!(served.metric(series), 1);
    // a reload lets it in
    let lines = lines.replace("10.0.0.0/8", "127.0.0.0/8");
    served.configure(&options(&folder, "event", &lines));
    assert_eq!(served.reload().0, Some(0));
    let request = format!("PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\n{GET}\r\n");
    assert!(text(exchange(proxied, request.as_bytes())).ends_with("hello"));
}

#[test]
fn clients_behind_proxies_have_their_own_limits() {
    for engine in ENGINES {
        let folder = site();
        let limits = "[limits]\nconnections_per_client = 2";
        let (served, proxied) = behind(&folder, engine, limits);
        let open = |client: &str| {
            let mut stream = TcpStream::connect(proxied).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
            let first = format!("PROXY TCP4 {client} 192.0.2.1 4711 80\r\n{request}");
            stream.write_all(first.as_bytes()).unwrap();
            let mut status = [0; 12];
            stream.read_exact(&mut status).unwrap();
            (stream, text(status.to_vec()))
        };
        let all: Vec<_> =
            ["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.2", "192.0.2.3"].map(open).into();
        assert!(all.iter().all(|(_, status)| status == "HTTP/1.1 200"), "{engine}");
        assert_eq!(open("192.0.2.1").1, "HTTP/1.1 503", "{engine}");
        // and a place that is given back can be taken again
        drop(all);
        assert!(soon(PATIENCE, || open("192.0.2.1").1 == "HTTP/1.1 200"), "{engine}");
        let series = "forebay_connections_refused_total{reason=\"client_limit\"}";
        assert!(served.metric(series) >= 1);
    }
}

#[test]
fn x_forwarded_for_is_believed_of_trusted_proxies_only() {
    let folder = site();
    let path = folder.join("http.sock");
    let with = |trusted: &str| {
        let lines = format!(
            "trusted_proxies = [{trusted}]\n[[listener]]\nlisten = [\"unix:{}\"]",
            path.display()
        );
        options(&folder, "event", &lines)
    };
    let server = Server::start(&with("\"127.0.0.0/8\", \"unix\""));
    let request = format!("{GET}X-Forwarded-For: 6.6.6.6, 192.0.2.7\r\n\r\n");
    server.exchange(request.as_bytes());
    exchange_unix(&path, &request);
    assert_eq!(clients(&server, 2), ["192.0.2.7", "192.0.2.7"]);
    server.configure(&with("\"10.0.0.0/8\""));
    assert_eq!(server.reload().0, Some(0));
    server.exchange(request.as_bytes());
    exchange_unix(&path, &request);
    let mut logged = clients(&server, 4).split_off(2);
    logged.sort();
    assert_eq!(logged, ["127.0.0.1", "unix"]);
}
