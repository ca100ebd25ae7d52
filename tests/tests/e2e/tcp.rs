//! Connections that are passed on as they are: by port and by the server name in a TLS ClientHello, to
//! servers of any protocol. Bytes that go through are compared; ends, resets and silences are those of
//! the other side.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::{Folder, counting};
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::server::{engine_name, free_addr};
use forebay_tests::tls::{Authority, hello};
use forebay_tests::wire::{End, PATIENCE, read_to_end};
use forebay_tests::{Options, is_full_matrix, on_each_engine, on_isolated};
use rcgen::PKCS_ECDSA_P256_SHA256 as ECDSA;
use rustix::net::sockopt::set_socket_linger;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

on_each_engine!(
    bytes_pass_both_ways_and_each_direction_ends_by_itself,
    a_name_in_a_hello_decides,
    a_name_decides_where_nothing_else_is_spoken,
    a_reset_is_passed_on,
    a_side_that_takes_nothing_holds_up_only_itself,
    another_server_is_tried_and_none_is_told,
    proxies_are_heard_and_told,
    rules_hold_by_name_and_by_address,
    connections_wait_for_a_place,
    silence_and_age_end_a_connection,
    age_ends_a_connection_whose_client_takes_nothing,
    limits_end_a_connection_by_a_reset,
    a_reload_leaves_connections_where_they_are,
    a_drain_waits_for_connections,
);

// receive passes them on by itself
on_isolated!(
    bytes_pass_both_ways_and_each_direction_ends_by_itself,
    a_name_in_a_hello_decides,
    a_name_decides_where_nothing_else_is_spoken,
    a_reset_is_passed_on,
    another_server_is_tried_and_none_is_told,
    proxies_are_heard_and_told,
    rules_hold_by_name_and_by_address,
    connections_wait_for_a_place,
    silence_and_age_end_a_connection,
    limits_end_a_connection_by_a_reset,
);

/// A server that does this with each connection.
struct Backend {
    addr: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Backend {
    fn start(act: impl Fn(TcpStream) + Send + Sync + 'static) -> Backend {
        let addr = free_addr();
        let listener = TcpListener::bind(addr).unwrap();
        let (act, accepted) = (Arc::new(act), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&accepted);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, SeqCst);
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                let act = Arc::clone(&act);
                thread::spawn(move || act(stream));
            }
        });
        Backend { addr, accepted }
    }

    /// A server that sends its name, echoes, and sends a last word when its client has ended.
    fn echo(name: &'static str) -> Backend {
        Backend::start(move |mut stream| {
            if !name.is_empty() {
                stream.write_all(name.as_bytes()).unwrap();
            }
            let mut buffer = vec![0; 64 * 1024];
            loop {
                match stream.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) if stream.write_all(&buffer[..count]).is_ok() => {}
                    _ => return,
                }
            }
            _ = stream.write_all(b"bye");
        })
    }
}

/// A server with these `[[tcp]]`, and an address where connections are passed on.
fn start(engine: &str, lines: &str) -> (WatchedServer, SocketAddr, Folder) {
    start_as(engine, lines, "")
}

fn options(folder: &Folder, engine: &str, raw: SocketAddr, lines: &str, more: &str) -> Options {
    let config = format!(
        "{lines}\n[[listener]]\nlisten = [\"tcp://{raw}\"]\nengine = \"{}\"\n{more}\n",
        engine_name(engine)
    );
    Options { log: true, ..Options::new(folder.join("site")).engine(engine).config(&config) }
}

fn start_as(engine: &str, lines: &str, more: &str) -> (WatchedServer, SocketAddr, Folder) {
    let (folder, raw) = (Folder::new(), free_addr());
    folder.write("site/index.html", "own");
    let options = options(&folder, engine, raw, &format!("log.format = \"json\"\n{lines}"), more);
    (WatchedServer::with(options), raw, folder)
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn read(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    stream.read_exact(&mut read).unwrap();
    read
}

/// The log lines of connections that were passed on, once there are this many.
fn lines(server: &WatchedServer, count: usize) -> Vec<Value> {
    let lines = || -> Vec<Value> {
        let text = server.stdout();
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        lines.filter(|line: &Value| line["method"] == "CONNECT").collect()
    };
    assert!(soon(PATIENCE, || lines().len() >= count), "{}", server.stdout());
    lines()
}

fn bytes_pass_both_ways_and_each_direction_ends_by_itself(engine: &str) {
    let backend = Backend::echo("hello ");
    let (server, raw, _folder) = start(engine, &format!("[[tcp]]\nto = \"{}\"", backend.addr));
    let mut client = connect(raw);
    // the server speaks first
    assert_eq!(read(&mut client, 6), b"hello ");
    let size = if is_full_matrix() { 100_000_000 } else { 8_000_000 };
    let sent = Arc::new(counting(size));
    let writer = thread::spawn({
        let (mut client, sent) = (client.try_clone().unwrap(), Arc::clone(&sent));
        move || {
            client.write_all(&sent).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        }
    });
    let (back, end) = read_to_end(&mut client, PATIENCE);
    writer.join().unwrap();
    assert_eq!(end, End::Closed, "{engine}");
    assert_eq!(back.len(), size + 3, "{engine}");
    assert!(back[..size] == sent[..] && &back[size..] == b"bye", "{engine}");
    let line = &lines(&server, 1)[0];
    let upstream = backend.addr.to_string();
    let expected = (size + 9, size, "client", upstream.as_str());
    let said = (
        line["bytes"].as_u64().unwrap() as usize,
        line["bytes_received"].as_u64().unwrap() as usize,
        line["ended"].as_str().unwrap(),
        line["upstream"].as_str().unwrap(),
    );
    assert_eq!(said, expected, "{engine}: {line}");
    assert_eq!(line["host"], raw.to_string(), "{line}");
    assert_eq!(server.metric("forebay_tcp_connections_total{result=\"passed\"}"), 1);
    assert_eq!(server.metric("forebay_tcp_bytes_total{to=\"server\"}"), size as u64);
    assert_eq!(server.metric("forebay_tcp_bytes_total{to=\"client\"}"), size as u64 + 9);
    assert_eq!(server.metric("forebay_responses_total{class=\"1xx\"}"), 0);
}

fn a_name_in_a_hello_decides(engine: &str) {
    let (folder, authority, addr) = (Folder::new(), Authority::new(), free_addr());
    folder.write("site/index.html", "own");
    authority.write(folder.path(), "own", &["own.example"], &ECDSA);
    let backend = Backend::echo("");
    let file = |end| folder.join(&format!("own.{end}"));
    let config = format!(
        "[tls]\ncertificate = [{:?}]\nkey = [{:?}]\n[[tcp]]\nnames = [\"passed.example\", \"*.db.example\"]\n\
         to = \"{}\"\n[[listener]]\nlisten = [\"https://{addr}\"]\nengine = \"{}\"\n",
        file("crt"),
        file("key"),
        backend.addr,
        engine_name(engine)
    );
    let options = Options::new(folder.join("site")).engine(engine).config(&config);
    let server = WatchedServer::with(options);
    let config = Arc::new(authority.client());
    // the bytes go on as they were sent, whole or byte by byte, and in records of any size
    for (name, most) in
        [("passed.example", 16_000), ("a.b.db.example", 16_000), ("x.db.example", 7)]
    {
        let whole = hello(&config, name);
        let sent = in_records(&whole[5..], most);
        let mut client = connect(addr);
        client.set_nodelay(true).unwrap();
        for piece in sent.chunks(if most == 7 { 1 } else { 16_000 }) {
            client.write_all(piece).unwrap();
        }
        assert_eq!(read(&mut client, sent.len()), sent, "{engine}: {name}");
        client.write_all(b"more").unwrap();
        assert_eq!(read(&mut client, 4), b"more", "{engine}: {name}");
    }
    assert_eq!(backend.accepted.load(SeqCst), 3);
    // all else ends here
    for name in ["own.example", "db.example"] {
        let mut stream = forebay_tests::tls::connect(
            &Arc::new(forebay_tests::tls::untrusting()),
            addr,
            if name == "own.example" { name } else { "own.example" },
        );
        write!(stream, "GET / HTTP/1.1\r\nHost: own.example\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        _ = stream.read_to_string(&mut answer);
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("own"),
            "{engine}: {answer}"
        );
    }
    let mut plain = connect(addr);
    plain.write_all(b"GET / HTTP/1.1\r\nHost: passed.example\r\n\r\n").unwrap();
    let (said, _) = read_to_end(&mut plain, PATIENCE);
    assert!(said.starts_with(b"HTTP/1.1 400"), "{engine}: {}", String::from_utf8_lossy(&said));
    assert_eq!(backend.accepted.load(SeqCst), 3);
    let begun = server.metric("forebay_tls_handshakes_begun_total");
    assert_eq!(begun, 3, "{engine}: what is passed on shakes no hands here");
}

/// A message of a handshake in records of at most this many bytes.
fn in_records(message: &[u8], most: usize) -> Vec<u8> {
    let record = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    message.chunks(most).flat_map(record).collect()
}

fn a_name_decides_where_nothing_else_is_spoken(engine: &str) {
    let (named, rest) = (Backend::echo(""), Backend::echo("rest"));
    let (server, raw, _folder) = start(
        engine,
        &format!(
            "[[tcp]]\nnames = \"named.example\"\nto = \"{}\"\n[[tcp]]\nto = \"{}\"",
            named.addr, rest.addr
        ),
    );
    let config = Arc::new(Authority::new().client());
    let ask = |first: &[u8]| {
        let mut client = connect(raw);
        client.write_all(first).unwrap();
        read(&mut client, 4)
    };
    let own = hello(&config, "named.example");
    assert_eq!(ask(&own), own[..4]);
    for other in
        [hello(&config, "other.example"), b"SSH-2.0-x\r\n".to_vec(), b"\0\0\0\x08".to_vec()]
    {
        assert_eq!(ask(&other), b"rest", "{engine}: {other:?}");
    }
    let hosts: Vec<_> = lines(&server, 4).iter().map(|line| line["host"].to_string()).collect();
    let name = |name: &str| format!("\"{name}:{}\"", raw.port());
    assert!(hosts.contains(&name("named.example")) && hosts.contains(&name("other.example")));
}

fn a_reset_is_passed_on(engine: &str) {
    let backend = Backend::start(|mut stream| {
        let mut first = [0; 1];
        stream.read_exact(&mut first).unwrap();
        match first[0] {
            // the server resets
            b'r' => reset(stream),
            // the server waits for the client's reset
            _ => {
                stream.write_all(b"x").unwrap();
                let error = stream.read(&mut first).unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                RESETS.fetch_add(1, SeqCst);
            }
        }
    });
    static RESETS: AtomicUsize = AtomicUsize::new(0);
    let (server, raw, _folder) = start(engine, &format!("[[tcp]]\nto = \"{}\"", backend.addr));
    let mut client = connect(raw);
    client.write_all(b"r").unwrap();
    assert_eq!(read_to_end(&mut client, PATIENCE), (Vec::new(), End::Reset), "{engine}");
    assert_eq!(lines(&server, 1)[0]["ended"], "server_reset");
    let before = RESETS.load(SeqCst);
    let mut client = connect(raw);
    client.write_all(b"c").unwrap();
    assert_eq!(read(&mut client, 1), b"x");
    reset(client);
    assert!(soon(PATIENCE, || RESETS.load(SeqCst) > before), "{engine}");
    assert_eq!(lines(&server, 2)[1]["ended"], "cut");
}

fn reset(stream: TcpStream) {
    set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

fn a_side_that_takes_nothing_holds_up_only_itself(engine: &str) {
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let backend = Backend::start(|mut stream| {
        let mut first = [0; 1];
        stream.read_exact(&mut first).unwrap();
        if first[0] == b'e' {
            _ = stream.write_all(b"echo");
            return;
        }
        let block = [7; 64 * 1024];
        while let Ok(count) = stream.write(&block) {
            WRITTEN.fetch_add(count, SeqCst);
        }
    });
    let (_server, raw, _folder) = start(engine, &format!("[[tcp]]\nto = \"{}\"", backend.addr));
    let mut slow = connect(raw);
    slow.write_all(b"s").unwrap();
    // the server has written as much as sockets hold, and no more
    let still = || {
        let before = WRITTEN.load(SeqCst);
        thread::sleep(Duration::from_millis(300));
        before > 0 && WRITTEN.load(SeqCst) == before
    };
    assert!(
        soon(PATIENCE, still),
        "{engine}: what the client does not take is taken from the server"
    );
    let held = WRITTEN.load(SeqCst);
    let mut other = connect(raw);
    other.write_all(b"e").unwrap();
    assert_eq!(read(&mut other, 4), b"echo", "{engine}");
    let mut taken = 0;
    let mut buffer = vec![0; 64 * 1024];
    while taken <= held {
        let count = slow.read(&mut buffer).unwrap();
        assert!(count > 0 && buffer[..count].iter().all(|byte| *byte == 7));
        taken += count;
    }
}

fn another_server_is_tried_and_none_is_told(engine: &str) {
    let (dead, backend) = (free_addr(), Backend::echo("here"));
    let (server, raw, _folder) = start(
        engine,
        &format!(
            "[[tcp]]\nto = [\"{dead}\", \"{}\"]\nbalance = \"round-robin\"\nmax_fails = 0",
            backend.addr
        ),
    );
    for _ in 0..6 {
        assert_eq!(read(&mut connect(raw), 4), b"here", "{engine}");
    }
    assert!(server.metric("forebay_upstream_retries_total") >= 2, "{engine}");
    let (server, raw, _folder) = start(engine, &format!("[[tcp]]\nto = \"{dead}\"\n"));
    let mut client = connect(raw);
    assert_eq!(read_to_end(&mut client, PATIENCE), (Vec::new(), End::Reset), "{engine}");
    let line = &lines(&server, 1)[0];
    assert_eq!(
        (&line["status"], &line["upstream_error"]),
        (&502.into(), &"connect".into()),
        "{line}"
    );
    assert_eq!(line["bytes"], 0, "{line}");
    assert_eq!(server.metric("forebay_tcp_connections_total{result=\"unreached\"}"), 1);
    assert_eq!(server.metric("forebay_responses_total{class=\"5xx\"}"), 0);
}

fn proxies_are_heard_and_told(engine: &str) {
    for (version, expected) in [
        ("v1", &b"PROXY TCP4 192.0.2.7 "[..]),
        ("v2", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07"),
    ] {
        let backend = Backend::echo("");
        let (_server, raw, _folder) = start_as(
            engine,
            &format!(
                "trusted_proxies = [\"127.0.0.0/8\"]\n[[tcp]]\nto = \"{}\"\nproxy_protocol = \"{version}\"",
                backend.addr
            ),
            "proxy_protocol = true",
        );
        let mut client = connect(raw);
        client.write_all(b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\nfirst").unwrap();
        assert_eq!(read(&mut client, expected.len()), expected, "{engine}");
        client.shutdown(Shutdown::Write).unwrap();
        let (rest, end) = read_to_end(&mut client, PATIENCE);
        assert!(rest.ends_with(b"firstbye") && end == End::Closed, "{engine}: {rest:?}");
    }
}

fn rules_hold_by_name_and_by_address(engine: &str) {
    let backend = Backend::echo("");
    let (server, raw, _folder) = start(
        engine,
        &format!(
            "limits.connections_per_client = 3\n\
             [[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"rest\"\npriority = 1\ndefault = true\n\
             [[rule]]\nsite = \"gold.example\"\nclass = \"gold\"\n\
             [[rule]]\nsite = \"never.example\"\naction = \"reset\"\n\
             [[rule]]\nsite = \"one.example\"\nin_flight = {{ most = 1 }}\n\
             [[rule]]\nclient = \"127.77.0.0/16\"\naction = \"reset\"\n\
             [[tcp]]\nnames = \"*.example\"\nto = \"{}\"",
            backend.addr
        ),
    );
    let config = Arc::new(Authority::new().client());
    let ask = |name: &str| {
        let mut client = connect(raw);
        let sent = hello(&config, name);
        client.write_all(&sent).unwrap();
        let mut first = [0; 1];
        (client.read(&mut first).is_ok_and(|count| count == 1), client)
    };
    let (is_passed, gold) = ask("gold.example");
    assert!(is_passed, "{engine}");
    drop(gold);
    assert_eq!(lines(&server, 1)[0]["class"], "gold");
    assert!(!ask("never.example").0, "{engine}");
    let (is_passed, _one) = ask("one.example");
    assert!(is_passed, "{engine}");
    assert!(!ask("one.example").0, "{engine}: one at a time");
    // a raw connection gets no HTTP answer, whichever limit refuses it
    let (_one, _two) = (ask("a.example"), ask("b.example"));
    let mut third = connect(raw);
    let (said, _) = read_to_end(&mut third, PATIENCE);
    assert_eq!(said, b"", "{engine}");
    if let Ok(mut other) =
        forebay_tests::faults::crowd::connect_from("127.77.0.1".parse().unwrap(), raw)
    {
        assert_eq!(read_to_end(&mut other, PATIENCE).0, b"", "{engine}");
    }
    // no route has the name
    let (server, raw, _folder) =
        start(engine, &format!("[[tcp]]\nnames = \"a.example\"\nto = \"{}\"", backend.addr));
    let mut client = connect(raw);
    client.write_all(&hello(&config, "b.example")).unwrap();
    assert_eq!(read_to_end(&mut client, PATIENCE).0, b"", "{engine}");
    assert_eq!(lines(&server, 1)[0]["status"], 404);
    assert_eq!(server.metric("forebay_tcp_connections_total{result=\"no_route\"}"), 1);
}

fn connections_wait_for_a_place(engine: &str) {
    let backend = Backend::echo("here");
    let (_server, raw, _folder) =
        start(engine, &format!("[[tcp]]\nto = \"{}\"\nin_flight = 1", backend.addr));
    let mut first = connect(raw);
    assert_eq!(read(&mut first, 4), b"here");
    let mut second = connect(raw);
    second.write_all(b"early").unwrap();
    assert!(soon(PATIENCE, || waiting(&_server) == 1), "{engine}");
    assert_eq!(backend.accepted.load(SeqCst), 1, "{engine}");
    drop(first);
    assert_eq!(read(&mut second, 9), b"hereearly", "{engine}");
}

/// The number of connections that wait, as `forebay upstream list` shows it.
fn waiting(server: &WatchedServer) -> usize {
    let list = std::process::Command::new(forebay_tests::server::binary())
        .args(["upstream", "list", "-c"])
        .arg(server.file())
        .output()
        .unwrap();
    let text = String::from_utf8(list.stdout).unwrap();
    assert!(text.lines().any(|line| line.ends_with("  tcp")), "{text}");
    let row = text.lines().nth(1).unwrap_or_default();
    let columns: Vec<_> = row.split("  ").filter(|column| !column.is_empty()).collect();
    columns[3].trim().parse().unwrap()
}

fn silence_and_age_end_a_connection(engine: &str) {
    let backend = Backend::echo("here");
    for (lines_of, word) in [
        ("timeouts.silence = \"300ms\"", "timeout"),
        ("timeouts.silence = \"1h\"\nlifetime = \"1s\"", "lifetime"),
    ] {
        let (server, raw, _folder) =
            start(engine, &format!("[[tcp]]\nto = \"{}\"\n{lines_of}", backend.addr));
        let mut client = connect(raw);
        assert_eq!(read(&mut client, 4), b"here");
        let (rest, _) = read_to_end(&mut client, PATIENCE);
        assert_eq!(rest, b"", "{engine}");
        assert_eq!(lines(&server, 1)[0]["ended"], word, "{engine}");
    }
    // the server has not ended
    let deaf = Backend::start(|mut stream| {
        let mut buffer = [0; 100];
        while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
        thread::sleep(PATIENCE);
    });
    let (server, raw, _folder) =
        start(engine, &format!("[[tcp]]\nto = \"{}\"\ntimeouts.half_close = \"300ms\"", deaf.addr));
    let mut client = connect(raw);
    client.write_all(b"all").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut client, PATIENCE).0, b"", "{engine}");
    assert_eq!(lines(&server, 1)[0]["ended"], "timeout", "{engine}");
}

fn age_ends_a_connection_whose_client_takes_nothing(engine: &str) {
    let backend = Backend::start(|mut stream| {
        let block = [7; 64 * 1024];
        while stream.write_all(&block).is_ok() {}
    });
    // without a minimum rate, only lifetime ends the connection of a slow client
    let lines_of = format!(
        "limits.send_rate = \"0B/s\"\n[[tcp]]\nto = \"{}\"\nlifetime = \"1s\"",
        backend.addr
    );
    let (server, raw, _folder) = start(engine, &lines_of);
    let _client = connect(raw);
    assert_eq!(lines(&server, 1)[0]["ended"], "lifetime", "{engine}");
}

fn limits_end_a_connection_by_a_reset(engine: &str) {
    let backend = Backend::echo("here");
    let lines_of = format!(
        "limits.connections_per_client = 1\n[[rule]]\nclient = \"127.77.0.0/16\"\naction = \"reject\"\n\
         [[tcp]]\nto = \"{}\"",
        backend.addr
    );
    let (_server, raw, _folder) = start(engine, &lines_of);
    // the connection by which the server was awaited may still be counted
    let mut first = None;
    let is_first = || {
        let mut one = connect(raw);
        let is_in = one.read_exact(&mut [0; 4]).is_ok();
        first = is_in.then_some(one);
        is_in
    };
    assert!(soon(PATIENCE, is_first), "{engine}");
    let mut second = connect(raw);
    assert_eq!(read_to_end(&mut second, PATIENCE), (Vec::new(), End::Reset), "{engine}");
    let from = "127.77.0.1".parse().unwrap();
    let mut refused = forebay_tests::faults::crowd::connect_from(from, raw).unwrap();
    assert_eq!(read_to_end(&mut refused, PATIENCE), (Vec::new(), End::Reset), "{engine}");
}

fn a_reload_leaves_connections_where_they_are(engine: &str) {
    let (one, two) = (Backend::echo("one"), Backend::echo("two"));
    let to = |addr: SocketAddr| format!("[[tcp]]\nto = \"{addr}\"");
    let (folder, raw) = (Folder::new(), free_addr());
    folder.write("site/index.html", "own");
    let server = WatchedServer::with(options(&folder, engine, raw, &to(one.addr), ""));
    let mut before = connect(raw);
    assert_eq!(read(&mut before, 3), b"one");
    server.configure(&options(&folder, engine, raw, &to(two.addr), ""));
    assert_eq!(server.reload().0, Some(0), "{engine}");
    let sees_two = || read(&mut connect(raw), 3) == b"two";
    assert!(soon(PATIENCE, sees_two), "{engine}");
    before.write_all(b"still").unwrap();
    assert_eq!(read(&mut before, 5), b"still", "{engine}");
    before.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut before, PATIENCE), (b"bye".to_vec(), End::Closed), "{engine}");
    // no route is left
    let none = Options::new(folder.join("site")).engine(engine);
    server.configure(&none);
    assert_eq!(server.reload().0, Some(0), "{engine}");
}

fn a_drain_waits_for_connections(engine: &str) {
    let backend = Backend::echo("here");
    for (drain, is_kept) in [("30s", true), ("300ms", false)] {
        let (mut server, raw, _folder) = start(
            engine,
            &format!("timeouts.drain = \"{drain}\"\n[[tcp]]\nto = \"{}\"", backend.addr),
        );
        let mut client = connect(raw);
        assert_eq!(read(&mut client, 4), b"here");
        server.signal(rustix::process::Signal::TERM);
        if is_kept {
            assert!(soon(PATIENCE, || TcpStream::connect(raw).is_err()), "{engine}");
            client.write_all(b"still").unwrap();
            assert_eq!(read(&mut client, 5), b"still", "{engine}");
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read_to_end(&mut client, PATIENCE).0, b"bye", "{engine}");
        } else {
            assert_eq!(read_to_end(&mut client, PATIENCE).0, b"", "{engine}");
        }
        assert!(server.wait(PATIENCE).is_some(), "{engine}");
    }
}

/// PostgreSQL, where it is installed: `psql` through the server, plain and through TLS that it asks for
/// itself.
#[test]
fn a_database_answers() {
    let binaries =
        std::fs::read_dir("/usr/lib/postgresql").ok().and_then(|mut all| all.next()?.ok());
    let Some(binaries) = binaries.map(|one| one.path().join("bin")) else {
        return println!("PostgreSQL is not installed: not tested");
    };
    let (folder, addr) = (Folder::new(), free_addr());
    let data = folder.join("data");
    let run = |program: &str, args: &[&str]| {
        let mut command = std::process::Command::new("runuser");
        command.args(["-u", "nobody", "--"]).arg(binaries.join(program)).args(args);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command
    };
    std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534)).unwrap();
    let at = data.to_str().unwrap();
    let made = run("initdb", &["-D", at, "-U", "me", "-A", "trust", "--no-sync"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let (port, sockets) = (addr.port().to_string(), folder.path().to_str().unwrap());
    let host = addr.ip().to_string();
    let mut database = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--pdeathsig=KILL", "--"])
        .arg(binaries.join("postgres"))
        .args(["-D", at, "-p", &port, "-k", sockets, "-h", &host, "-F"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert!(soon(PATIENCE, || TcpStream::connect(addr).is_ok()));
    let (_server, raw, _folder) = start("event", &format!("[[tcp]]\nto = \"{addr}\""));
    let (host, port) = (raw.ip().to_string(), raw.port().to_string());
    let ask = |query: &str| {
        let said = std::process::Command::new("psql")
            .args(["-h", &host, "-p", &port, "-U", "me", "-d", "postgres", "-Atc", query])
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        (String::from_utf8(said.stdout).unwrap(), error)
    };
    let ready = || ask("select 6 * 7").0 == "42\n";
    assert!(soon(PATIENCE, ready), "{:?}", ask("select 1"));
    let (many, error) = ask("select sum(length(repeat('x', 1000))) from generate_series(1, 20000)");
    assert_eq!(many, "20000000\n", "{error}");
    _ = database.kill();
    _ = database.wait();
}
