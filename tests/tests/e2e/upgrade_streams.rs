//! Streams that last longer than an answer, over upgrades: uploads, WebSockets, server-sent events,
//! orders of certificates.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::upgrade::upgrade;
use forebay_tests::acme::Acme;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::http2;
use forebay_tests::server::free_addr;
use forebay_tests::websocket::{TunnelEnd, WebSocketServer};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, on_each_engine};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;

on_each_engine! {
    what_is_under_way_goes_on,
    what_outlives_two_more_upgrades_is_cut_and_counted,
    what_outlives_its_time_is_cut_and_counted,
    an_order_of_a_certificate_goes_on,
}

fn start(folder: &Folder, engine: &str, application: &WebSocketServer, lines: &str) -> Server {
    folder.write("site/index.html", "hello");
    let proxy = format!("[[proxy]]\npath = \"/ws/*\"\nto = \"http://{}\"\n", application.addr());
    let options = Options::new(folder.join("site")).engine(engine);
    Server::start(&options.config(&format!("{lines}\n{proxy}")))
}

/// A stream of events of which some have been read.
struct Events {
    reader: BufReader<TcpStream>,
    next: u64,
}

impl Events {
    fn open(server: &Server) -> Events {
        let stream = connect(server);
        (&stream).write_all(b"GET /ws/events HTTP/1.0\r\nHost: a\r\n\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0, "no answer");
        }
        Events { reader, next: 0 }
    }

    /// Checks that all next events come, and come now.
    fn goes_on(&mut self) {
        // buffered events are older than the expected ones
        for _ in 0..50 {
            let mut event = [0; "data: 000000000\n\n".len()];
            self.reader.read_exact(&mut event).unwrap();
            assert_eq!(String::from_utf8_lossy(&event), format!("data: {:09}\n\n", self.next));
            self.next += 1;
        }
    }
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Checks that a tunnel echoes.
fn echoes(tunnel: &mut TunnelEnd) {
    tunnel.send(b"a word");
    assert_eq!(tunnel.take(6), b"a word");
}

/// Whether the process has ended, even if its parent has not waited for it yet.
fn is_gone(process: u32) -> bool {
    let status =
        std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("status"));
    status.map_or(true, |status| status.contains("State:\tZ"))
}

/// Whether a process has the other end of a connection.
fn is_with(process: u32, stream: &TcpStream) -> bool {
    let hex = |addr: SocketAddr| match addr.ip() {
        IpAddr::V4(ip) => format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), addr.port()),
        IpAddr::V6(_) => String::new(),
    };
    let (server, client) = (stream.peer_addr().unwrap(), stream.local_addr().unwrap());
    let ends = format!(" {} {} ", hex(server), hex(client));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let row = table.lines().find(|row| row.contains(&ends));
    let Some(inode) = row.and_then(|row| row.split_whitespace().nth(9)) else { return false };
    let entries = std::fs::read_dir(Path::new("/proc").join(process.to_string()).join("fd"));
    let mut links =
        entries.into_iter().flatten().flatten().map(|entry| std::fs::read_link(entry.path()));
    let socket = format!("socket:[{inode}]");
    links.any(|link| link.is_ok_and(|link| link.as_os_str() == socket.as_str()))
}

/// Opens a WebSocket to this process. For some milliseconds after an upgrade the old process may still
/// accept, too.
fn tunnel_with(process: u32, server: &Server) -> TunnelEnd {
    let mut found = None;
    let is_there = soon(PATIENCE, || {
        let tunnel = TunnelEnd::by_http1(connect(server), "/ws/raw");
        let TunnelEnd::Http1(reader) = &tunnel else { return false };
        is_with(process, reader.get_ref()).then(|| found = Some(tunnel)).is_some()
    });
    assert!(is_there, "{}", server.stderr());
    found.unwrap()
}

/// Uploads, WebSockets by HTTP/1 and HTTP/2, and a stream of events: none of them notices two upgrades.
fn what_is_under_way_goes_on(engine: &str) {
    let folder = Folder::new();
    let application = WebSocketServer::start();
    let server = start(&folder, engine, &application, "");
    let mut tunnels = [
        TunnelEnd::by_http1(connect(&server), "/ws/raw"),
        TunnelEnd::by_http2(http2::Client::connect(server.addr()), "/ws/raw"),
    ];
    let mut events = Events::open(&server);
    let upload = connect(&server);
    let head = "POST /ws/upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    (&upload).write_all(head.as_bytes()).unwrap();
    let (mut size, mut last) = (0, None);
    let mut go_on = || {
        tunnels.iter_mut().for_each(echoes);
        events.goes_on();
        let piece = [b'x'; 0x4000];
        (&upload).write_all(b"4000\r\n").unwrap();
        (&upload).write_all(&[&piece[..], b"\r\n"].concat()).unwrap();
        size += piece.len();
    };
    go_on();
    let mut replaced = vec![server.pid()];
    for _ in 0..2 {
        let successor = upgrade(&server);
        go_on();
        replaced.push(successor.number() as u32);
        let before = last.replace(successor);
        // this server has no clients, and the test must not end it
        std::mem::forget(before);
    }
    // a new client comes to the newest one
    echoes(&mut TunnelEnd::by_http1(connect(&server), "/ws/raw"));
    (&upload).write_all(b"0\r\n\r\n").unwrap();
    let mut answer = String::new();
    let mut reader = BufReader::new(&upload);
    while !answer.ends_with(&size.to_string()) {
        let mut byte = [0];
        assert_eq!(reader.read(&mut byte).unwrap(), 1, "{engine}: {answer}");
        answer.push(char::from(byte[0]));
    }
    for mut tunnel in tunnels {
        tunnel.finish();
        assert_eq!(tunnel.rest(), b"bye", "{engine}");
    }
    drop((events, upload));
    let all_but_last = &replaced[..replaced.len() - 1];
    let are_gone = || all_but_last.iter().all(|process| is_gone(*process));
    assert!(soon(PATIENCE, are_gone), "{engine}: {}", server.stderr());
    let said = server.stderr();
    assert!(!said.contains(" 1 aborted"), "{engine}: {said}");
}

/// Two servers that were replaced may go on; a third has the time of a drain.
fn what_outlives_two_more_upgrades_is_cut_and_counted(engine: &str) {
    let folder = Folder::new();
    let application = WebSocketServer::start();
    let server = start(&folder, engine, &application, "timeouts.drain = \"1s\"");
    let mut tunnels = vec![tunnel_with(server.pid(), &server)];
    let mut successors = Vec::new();
    for _ in 0..3 {
        tunnels.iter_mut().for_each(echoes);
        let successor = upgrade(&server);
        tunnels.push(tunnel_with(successor.number() as u32, &server));
        successors.push(successor);
    }
    assert!(soon(PATIENCE, || is_gone(server.pid())), "{engine}: {}", server.stderr());
    server.says("stopped (replaced): connections: 0 drained, 1 aborted");
    // the others do not notice
    let mut first = tunnels.remove(0);
    tunnels.iter_mut().for_each(echoes);
    if let TunnelEnd::Http1(reader) = &mut first {
        // an end or a reset
        assert_eq!(reader.read(&mut [0]).unwrap_or(0), 0, "{engine}");
    }
    drop(tunnels);
    assert!(soon(PATIENCE, || successors[..2].iter().all(|it| is_gone(it.number() as u32))));
    let said = server.stderr();
    assert_eq!(said.matches(" 1 aborted").count(), 1, "{engine}: {said}");
}

/// A server that was replaced has `timeouts.upgrade`.
fn what_outlives_its_time_is_cut_and_counted(engine: &str) {
    let folder = Folder::new();
    let application = WebSocketServer::start();
    let server = start(&folder, engine, &application, "timeouts.upgrade = \"1s\"");
    let mut tunnel = TunnelEnd::by_http1(connect(&server), "/ws/raw");
    let mut events = Events::open(&server);
    events.goes_on();
    echoes(&mut tunnel);
    let _successor = upgrade(&server);
    assert!(soon(PATIENCE, || is_gone(server.pid())), "{engine}: {}", server.stderr());
    server.says("stopped (replaced): connections: 0 drained, 2 aborted");
    echoes(&mut TunnelEnd::by_http1(connect(&server), "/ws/raw"));
}

/// The new server goes on with what the old one has stored of it: the authority sees one order and one account.
fn an_order_of_a_certificate_goes_on(engine: &str) {
    let folder = Folder::new();
    folder.write("site/index.html", "hello");
    let acme = Acme::start(folder.path());
    let (plain, sealed) = (free_addr(), free_addr());
    acme.behave(|how| {
        how.looks_at = Some(plain);
        how.holds_certificates = true;
    });
    let lines = format!(
        "{}challenges = [\"http-01\"]\n[[listener]]\nlisten = [\"{plain}\", \"https://{sealed}\"]\n[[site]]\n\
         hosts = [\"a.example\"]\n[site.tls]\nacme = true\n",
        acme.lines(folder.path(), &folder.join("storage"))
    );
    let options = Options::new(folder.join("site")).engine(engine).config(&lines);
    let served = WatchedServer::with(options);
    let is_noted = || {
        let storage = std::fs::read_dir(folder.join("storage")).into_iter().flatten().flatten();
        let mut beneath = storage.flat_map(|at| std::fs::read_dir(at.path()).into_iter().flatten());
        beneath.any(|file| file.unwrap().path().extension().is_some_and(|end| end == "order"))
    };
    assert!(soon(PATIENCE, is_noted), "{engine}: {}", served.stderr());
    let _successor = upgrade(&served);
    acme.behave(|how| how.holds_certificates = false);
    let is_trusted = || {
        let mut stream = acme.authority.connect(sealed, "a.example");
        let request = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
        stream.write_all(request.as_bytes()).and_then(|()| stream.flush()).is_ok()
    };
    assert!(soon(4 * PATIENCE, is_trusted), "{engine}: {}", served.stderr());
    let seen = acme.seen();
    assert_eq!((seen.orders.len(), seen.accounts), (1, 1), "{engine}: {seen:?}");
}
