//! WebSockets through the server, by HTTP/1.1 and by HTTP/2 (RFC 8441), to an application that speaks
//! HTTP/1.1: which requests become tunnels, how tunnels end, and that no byte in them changes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_http2::{ErrorCode, Http2Limits};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::http2::Client;
use forebay_tests::tls::applications_at;
use forebay_tests::websocket::{
    BINARY, CLOSE, CONTINUATION, Frame, PING, PONG, TEXT, TunnelEnd, WebSocketServer, accept, begin,
};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{
    ENGINES, ISOLATED, Options, Server, is_full_matrix, on_each_engine, on_isolated,
};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

on_each_engine!(
    a_stream_becomes_a_websocket,
    only_the_right_answer_makes_a_tunnel,
    what_is_no_websocket_is_told_apart,
    each_direction_ends_by_itself,
    a_tunnel_may_end_with_its_client,
    a_reset_is_a_reset_on_the_other_side,
    a_side_that_takes_nothing_holds_up_only_itself,
    a_drain_ends_tunnels_at_its_deadline,
    clients_are_told_that_the_server_goes,
    tunnels_count_as_requests_under_way,
    reloads_cut_nothing,
);
// a reload replaces its processes, and tunnels of those that leave last for the time of a drain
on_isolated!(
    a_stream_becomes_a_websocket,
    only_the_right_answer_makes_a_tunnel,
    what_is_no_websocket_is_told_apart,
    each_direction_ends_by_itself,
    a_tunnel_may_end_with_its_client,
    a_reset_is_a_reset_on_the_other_side,
    a_side_that_takes_nothing_holds_up_only_itself,
    a_drain_ends_tunnels_at_its_deadline,
    tunnels_count_as_requests_under_way,
);

/// A server with the application at `/ws`, and files.
fn start(engine: &str, application: &WebSocketServer, proxy: &str, more: &str) -> (Server, Folder) {
    let folder = Folder::new();
    folder.write("root/index.html", "own");
    let to = application.addr();
    let to = applications_at(&format!("to = \"http://{to}\""));
    let lines = format!("{more}\n[[proxy]]\npath = \"/ws\"\n{to}\n{proxy}\n");
    let options = Options { log: true, ..Options::new(folder.join("root")) };
    (Server::start(&options.engine(engine).config(&lines)), folder)
}

fn connect(server: &Server) -> Client {
    Client::connect(server.addr())
}

fn both(server: &Server, path: &str) -> [TunnelEnd; 2] {
    let stream = TcpStream::connect(server.addr()).unwrap();
    [TunnelEnd::by_http1(stream, path), TunnelEnd::by_http2(connect(server), path)]
}

fn a_stream_becomes_a_websocket(engine: &str) {
    let application = WebSocketServer::start();
    let (server, _folder) = start(engine, &application, "", "");
    let mut client = connect(&server);
    let own = client.get("/");
    assert_eq!((own.status, own.body.as_slice()), (200, b"own".as_slice()));
    // two beside one another, and what is said before there is one
    let early = begin(&mut client, "/ws/raw?a=b");
    client.send(early, b"early", false);
    let other = begin(&mut client, "/ws/raw");
    client.until(|client| client.so_far(early).body.len() == 5);
    client.until(|client| client.so_far(other).status == 200);
    let answer = client.so_far(early).clone();
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"early".as_slice()), "{engine}");
    assert_eq!(answer.field("x-app"), Some("a"));
    for hidden in ["sec-websocket-accept", "upgrade", "connection", "content-length"] {
        assert_eq!(answer.field(hidden), None, "{engine}: {:?}", answer.fields);
    }
    // nothing on this connection waits for them
    assert_eq!(client.get("/").status, 200);
    assert_eq!(server.reload().0, Some(0));
    client.send(other, b"other", false);
    client.send(early, b", later", true);
    client.until(|client| client.so_far(other).body == b"other");
    assert_eq!(client.answer(early).body, b"early, laterbye", "{engine}");
    client.send(other, b"", true);
    assert_eq!(client.answer(other).body, b"otherbye", "{engine}");
    let heads = application.told().heads;
    let keys: Vec<_> = heads
        .iter()
        .map(|head| head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")))
        .collect();
    assert!(keys.iter().all(Option::is_some) && keys[0] != keys[1], "{keys:?}");
    let head = heads.iter().find(|head| head.contains("?a=b")).unwrap();
    assert!(head.starts_with("GET /ws/raw?a=b HTTP/1.1\r\nHost: a.example\r\n"), "{head}");
    // stages ask one another by HTTP/1.1
    let version = if engine == ISOLATED { "1.1" } else { "2" };
    for line in ["Upgrade: websocket\r\n", &format!("Via: {version} forebay\r\n")] {
        assert_eq!(head.matches(line).count(), 1, "{head}");
    }
    assert!(head.to_ascii_lowercase().contains("sec-websocket-version: 13\r\n"), "{head}");
    assert!(!head.contains("protocol") && !head.contains("Transfer-Encoding"), "{head}");
}

fn only_the_right_answer_makes_a_tunnel(engine: &str) {
    let application = WebSocketServer::start();
    let (server, _folder) = start(engine, &application, "max_fails = 0", "");
    let mut client = connect(&server);
    // a 200 would say that there is a tunnel
    let expected =
        [("wrong", 502), ("none", 502), ("chat", 502), ("fine", 502), ("bad", 400), ("moved", 302)];
    for (path, status) in expected {
        let stream = begin(&mut client, &format!("/ws/{path}"));
        client.send(stream, b"unheard", false);
        let answer = client.answer(stream);
        assert_eq!(answer.status, status, "{engine}: {path}: {answer:?}");
        assert!(answer.is_whole, "{engine}: {path}");
    }
    let stream = begin(&mut client, "/ws/bad");
    assert_eq!(client.answer(stream).body, b"bad", "{engine}");
    // the frames of those clients have reached no other application
    assert_eq!(client.get("/ws/fine").body, b"fine");
    assert!(application.told().heads.iter().all(|head| head.starts_with("GET /ws/")));
}

fn what_is_no_websocket_is_told_apart(engine: &str) {
    let application = WebSocketServer::start();
    let rules = "[[access]]\npath = \"/ws/closed\"\ndeny = [\"127.0.0.0/8\"]\n";
    let (server, _folder) = start(engine, &application, "", rules);
    let mut client = connect(&server);
    let websocket = [(":protocol", "websocket")];
    for (method, path, more, expected) in [
        // rules hold, and files are no tunnels
        ("CONNECT", "/ws/closed", &websocket[..], Ok(403)),
        ("CONNECT", "/", &websocket[..], Ok(501)),
        ("CONNECT", "/ws/echo", &[(":protocol", "connect-udp")][..], Ok(501)),
        ("CONNECT", "/ws/echo", &[][..], Err(ErrorCode::PROTOCOL_ERROR)),
        ("GET", "/ws/echo", &websocket[..], Err(ErrorCode::PROTOCOL_ERROR)),
        ("CONNECT", "/ws/echo", &[(":protocol", "")][..], Err(ErrorCode::PROTOCOL_ERROR)),
        (
            "CONNECT",
            "/ws/echo",
            &[(":protocol", "websocket"), ("content-length", "5")][..],
            Err(ErrorCode::PROTOCOL_ERROR),
        ),
    ] {
        let stream = client.begin(method, path, more, false);
        let answer = client.answer(stream);
        match expected {
            Ok(status) => assert_eq!(answer.status, status, "{engine}: {path} {more:?}"),
            Err(code) => assert_eq!(answer.reset, Some(code.0), "{engine}: {path} {more:?}"),
        }
    }
    // nothing but DATA belongs into a tunnel
    let stream = begin(&mut client, "/ws/raw");
    client.until(|client| client.so_far(stream).status == 200);
    client.trail(stream, &[("a", "b")]);
    assert_eq!(client.answer(stream).reset, Some(ErrorCode::PROTOCOL_ERROR.0), "{engine}");
    assert_eq!(client.get("/").status, 200, "{engine}: the connection goes on");
    assert!(application.told().heads.iter().all(|head| head.starts_with("GET /ws/raw ")));

    // asked before the server's settings have come
    let mut client = connect(&server);
    let stream = client.begin("CONNECT", "/ws/raw", &websocket, false);
    client.until(|client| client.so_far(stream).status == 200);
    // where no application may be asked for one, the server does not announce them
    let (closed, _folder) = start(engine, &application, "upgrade = false", "");
    let mut client = connect(&closed);
    assert_eq!(client.get("/").status, 200);
    assert!(!client.may_open_tunnels(), "{engine}");
    let stream = client.begin("CONNECT", "/ws/raw", &websocket, false);
    assert_eq!(client.answer(stream).reset, Some(ErrorCode::PROTOCOL_ERROR.0), "{engine}");
}

fn each_direction_ends_by_itself(engine: &str) {
    let application = WebSocketServer::start();
    let (server, _folder) = start(engine, &application, "", "");
    // the client's end first
    for mut tunnel in both(&server, "/ws/raw") {
        tunnel.send(b"all");
        tunnel.finish();
        assert_eq!(tunnel.rest(), b"allbye", "{engine}");
    }
    // and the application's
    for (round, mut tunnel) in both(&server, "/ws/first").into_iter().enumerate() {
        assert_eq!(tunnel.rest(), b"first", "{engine}");
        tunnel.send(&vec![7; 100_000 + round]);
        tunnel.send(b"still");
        tunnel.finish();
        let bytes = 100_005 + round as u64;
        let has_ended = || application.has_ended("/ws/first", bytes, false);
        assert!(soon(PATIENCE, has_ended), "{engine}: {:?}", application.told().ends);
    }
    // a tunnel that ends before it begins
    let mut client = connect(&server);
    client.raw(b"");
    client.until(Client::may_open_tunnels);
    let stream = client.begin("CONNECT", "/ws/raw", &[(":protocol", "websocket")], true);
    assert_eq!(client.answer(stream).body, b"bye", "{engine}");
}

/// A tunnel to an application that sees the end of its client and does not end itself.
fn a_tunnel_may_end_with_its_client(engine: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (heard, hears) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let heard = heard.clone();
            thread::spawn(move || heard.send(stubborn(stream)));
        }
    });
    let folder = Folder::new();
    folder.write("root/index.html", "own");
    let lines = format!("[[proxy]]\npath = \"/ws\"\nto = \"http://{addr}\"\nhalf_close = false\n");
    let server = Server::start(&Options::new(folder.join("root")).engine(engine).config(&lines));
    for mut tunnel in both(&server, "/ws") {
        let all = vec![7; 300_000];
        tunnel.send(&all);
        tunnel.finish();
        assert_eq!(tunnel.rest(), b"", "{engine}");
        assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), all.len(), "{engine}");
    }
}

/// Reads all bytes of a tunnel and then waits until it cannot write any more. Returns the number of bytes
/// read.
fn stubborn(stream: TcpStream) -> usize {
    let mut reader = BufReader::new(stream);
    let mut key = String::new();
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap() > 2 {
        if let Some(sent) = line.to_ascii_lowercase().strip_prefix("sec-websocket-key: ") {
            key = line[line.len() - sent.len()..].trim().to_owned();
        }
        line.clear();
    }
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        accept(&key)
    );
    reader.get_mut().write_all(head.as_bytes()).unwrap();
    let taken = std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    // the other side is gone as soon as something that is said to it is refused
    let is_gone = soon(PATIENCE, || reader.get_mut().write_all(b"still").is_err());
    assert!(is_gone, "the tunnel is kept");
    taken as usize
}

fn a_reset_is_a_reset_on_the_other_side(engine: &str) {
    let application = WebSocketServer::start();
    let (server, _folder) = start(engine, &application, "", "");
    let mut client = connect(&server);
    let stream = begin(&mut client, "/ws/reset");
    client.until(|client| client.so_far(stream).body == b"some");
    client.send(stream, b"x", false);
    assert_eq!(client.answer(stream).reset, Some(ErrorCode::CANCEL.0), "{engine}");
    // the client's
    let mut tunnel = TunnelEnd::by_http2(client, "/ws/raw?cut");
    tunnel.send(b"some");
    assert_eq!(tunnel.take(4), b"some");
    tunnel.cut();
    let is_reset = || application.has_ended("/ws/raw?cut", 4, true);
    assert!(soon(PATIENCE, is_reset), "{engine}: {:?}", application.told().ends);
    // over HTTP/1.1, in both directions
    let stream = TcpStream::connect(server.addr()).unwrap();
    let mut tunnel = TunnelEnd::by_http1(stream, "/ws/reset");
    assert_eq!(tunnel.take(4), b"some");
    tunnel.send(b"x");
    tunnel.ends_in_disorder();
    let stream = TcpStream::connect(server.addr()).unwrap();
    let mut tunnel = TunnelEnd::by_http1(stream, "/ws/raw?torn");
    tunnel.send(b"some");
    assert_eq!(tunnel.take(4), b"some");
    tunnel.cut();
    let is_reset = || application.has_ended("/ws/raw?torn", 4, true);
    assert!(soon(PATIENCE, is_reset), "{engine}: {:?}", application.told().ends);
    // a tunnel that is given up before it is answered
    let mut client = connect(&server);
    let stream = begin(&mut client, "/ws/silent");
    let is_asked = || application.told().heads.iter().any(|head| head.contains("/ws/silent"));
    assert!(soon(PATIENCE, is_asked));
    client.reset(stream);
    assert_eq!(client.get("/").status, 200, "{engine}");
}

fn a_side_that_takes_nothing_holds_up_only_itself(engine: &str) {
    let application = WebSocketServer::start();
    let (server, _folder) = start(engine, &application, "", "timeouts.send_window = \"1h\"");
    // the application
    let mut client = connect(&server);
    let stream = begin(&mut client, "/ws/hold");
    client.until(|client| client.so_far(stream).body == b"here");
    // the window does not open again once all buffers on the way are full
    let piece = vec![1; 64 * 1024];
    let mut sent = 0;
    loop {
        let count = client.send(stream, &piece, false);
        sent += count;
        assert!(sent < 64 * 1024 * 1024, "{engine}: somebody keeps all of it");
        // an answer that is asked for now comes, whatever has happened to windows before
        if count == 0 {
            assert_eq!(client.get("/").status, 200, "{engine}");
            if client.send(stream, &piece, false) == 0 {
                break;
            }
        }
    }
    drop(client);
    // the client: it gives no window back
    let limits = Http2Limits { stream_window_bytes: 65_535, ..Http2Limits::default() };
    let mut client = Client::with(server.addr(), limits);
    client.takes = false;
    let stream = begin(&mut client, "/ws/raw");
    let all: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
    let mut at = 0;
    while at < all.len() {
        match client.send(stream, &all[at..], false) {
            0 => client.receive(),
            count => at += count,
        }
    }
    client.until(|client| client.so_far(stream).body.len() == 65_535);
    assert_eq!(client.get("/").status, 200, "{engine}");
    assert_eq!(client.so_far(stream).body.len(), 65_535, "{engine}");
    client.takes = true;
    client.consume(stream, 65_535);
    client.send(stream, b"", true);
    let answer = client.answer(stream);
    let (body, end) = answer.body.split_at(all.len());
    assert!(answer.is_whole && body == all && end == b"bye", "{engine}");
}

fn a_drain_ends_tunnels_at_its_deadline(engine: &str) {
    let application = WebSocketServer::start();
    let ends = || application.told().ends.len();
    // open tunnels go on until then: no client is so slow that it comes after an hour
    let (mut server, _folder) = start(engine, &application, "", "timeouts.drain = \"1h\"");
    let [mut one, mut two] = both(&server, "/ws/raw");
    server.signal(Signal::TERM);
    server.says(": draining, ");
    for tunnel in [&mut one, &mut two] {
        tunnel.send(b"on");
        assert_eq!(tunnel.take(2), b"on", "{engine}");
    }
    // a second signal ends it, unless it is taken for the first one
    let is_over = || {
        server.signal(Signal::TERM);
        server.wait(Duration::from_millis(300)).is_some()
    };
    assert!(soon(PATIENCE, is_over), "{engine}");
    drop((one, two));
    assert!(soon(PATIENCE, || ends() == 2), "{engine}: {:?}", application.told().ends);
    // and ends then
    let (mut server, _folder) = start(engine, &application, "", "timeouts.drain = \"1s\"");
    let tunnels = both(&server, "/ws/raw");
    server.signal(Signal::TERM);
    let status = server.wait(PATIENCE).expect("it ends");
    let said = server.stderr();
    assert!(status.code().is_some(), "{engine}: {status}: {said}");
    assert!(said.contains("1s of draining are over"), "{engine}: {said}");
    drop(tunnels);
    assert!(soon(PATIENCE, || ends() == 4), "{engine}: {:?}", application.told().ends);
}

fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    Frame::whole(opcode, payload, [1, 2, 3, 4]).write(&mut frame);
    frame
}

/// The server sends a close frame shortly before the end of a drain, between two frames; in the middle of
/// a frame there is no place for one.
fn clients_are_told_that_the_server_goes(engine: &str) {
    let application = WebSocketServer::start();
    let (mut server, _folder) = start(engine, &application, "", "timeouts.drain = \"10s\"");
    let mut tunnels = both(&server, "/ws/echo");
    let mut in_a_frame = both(&server, "/ws/raw");
    for tunnel in &mut tunnels {
        tunnel.send(&masked(TEXT, b"hello"));
        assert_eq!(tunnel.take(7), b"\x81\x05hello", "{engine}");
    }
    for tunnel in &mut in_a_frame {
        tunnel.send(&[0x82, 5, b'a']);
        assert_eq!(tunnel.take(3), [0x82, 5, b'a'], "{engine}");
    }
    server.signal(Signal::TERM);
    for mut tunnel in tunnels {
        assert_eq!(tunnel.take(4), [0x88, 2, 0x03, 0xe9], "{engine}");
        tunnel.send(&masked(CLOSE, &[0x03, 0xe9]));
        assert_eq!(tunnel.rest(), b"", "{engine}");
    }
    for mut tunnel in in_a_frame {
        assert_eq!(tunnel.rest(), b"", "{engine}");
    }
    assert!(server.wait(PATIENCE).is_some(), "{engine}");
    let said = server.stderr();
    assert!(said.contains("WebSockets open: 4, their clients are told"), "{engine}: {said}");
}

/// There may be as many tunnels as there may be requests under way; a further one waits, and gets 503
/// when that takes too long.
fn tunnels_count_as_requests_under_way(engine: &str) {
    let application = WebSocketServer::start();
    let proxy = "in_flight = 2\nqueue.time = \"200ms\"\n";
    // each process of respond counts its own
    let more = if engine == ISOLATED { "isolated.respond = 1" } else { "" };
    let (server, _folder) = start(engine, &application, proxy, more);
    let [one, mut two] = both(&server, "/ws/raw");
    let mut client = connect(&server);
    let third = begin(&mut client, "/ws/raw");
    assert_eq!(client.answer(third).status, 503, "{engine}");
    drop(one);
    let is_free = || {
        let fourth = begin(&mut client, "/ws/raw");
        client.until(|client| client.so_far(fourth).status != 0);
        let status = client.so_far(fourth).status;
        client.reset(fourth);
        status == 200
    };
    assert!(soon(PATIENCE, is_free), "{engine}");
    two.finish();
    assert_eq!(two.rest(), b"bye", "{engine}");
}

/// The bytes of a client of WebSockets, random and the same for the same seed: messages of all sizes up
/// to `most` bytes, in fragments, with pings between them, and an end with this close frame.
fn conversation(seed: u64, most: usize, close: &[u8]) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut out = Vec::new();
    let mask = |random: &mut fastrand::Rng| match random.u8(0..4) {
        0 => [0; 4],
        _ => random.u32(..).to_be_bytes(),
    };
    let sizes =
        [0, 1, 2, 125, 126, 127, 128, 4096, 65_534, 65_535, 65_536, 300_000, 1 << 20, 16 << 20];
    for size in sizes.into_iter().filter(|size| *size <= most) {
        let payload: Vec<u8> =
            std::iter::repeat_with(|| random.u8(b' '..=b'~')).take(size).collect();
        let opcode = if random.bool() { TEXT } else { BINARY };
        Frame::whole(opcode, &payload, mask(&mut random)).write(&mut out);
        // the same in fragments, which may be empty
        let mut at = 0;
        let mut is_first = true;
        loop {
            let count = random.usize(0..=size).max(size / 8).min(size - at);
            let is_last = at + count == size && random.bool();
            let opcode = if is_first { opcode } else { CONTINUATION };
            let payload = payload[at..at + count].to_vec();
            Frame { is_last, opcode, mask: Some(mask(&mut random)), payload }.write(&mut out);
            (at, is_first) = (at + count, false);
            if is_last {
                break;
            }
            let ping: Vec<u8> = (0..random.u8(0..=125)).collect();
            let opcode = if random.bool() { PING } else { PONG };
            Frame::whole(opcode, &ping, mask(&mut random)).write(&mut out);
        }
    }
    Frame::whole(CLOSE, close, mask(&mut random)).write(&mut out);
    out
}

/// The bytes in pieces of at most `most` bytes.
fn pieces(seed: u64, all: &[u8], most: usize) -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut at, mut pieces) = (0, Vec::new());
    while at < all.len() {
        let count = random.usize(1..=most).min(all.len() - at);
        pieces.push(all[at..at + count].to_vec());
        at += count;
    }
    pieces
}

/// Through the server, the application's answers are the same as without it, to the byte.
fn nothing_changes_on_the_way(engine: &str) {
    let application = WebSocketServer::start();
    let (server, _folder) = start(engine, &application, "", "");
    let most = if is_full_matrix() { 16 << 20 } else { 1 << 20 };
    let mut cases = vec![(most, 1 << 20, b"\x03\xe8".to_vec()), (4096, 1, b"\x03\xe8bye".to_vec())];
    let codes = [1000u16, 1001, 1002, 1003, 1005, 1007, 1011, 1015, 2999, 3000, 4999, 65_535];
    let close =
        |code: u16| [&code.to_be_bytes()[..], &vec![b'r'; usize::from(code % 124)]].concat();
    cases.extend(codes.map(|code| (127, 40, close(code))));
    cases.push((127, 3, Vec::new()));
    cases.push((127, 3, vec![3]));
    for (seed, (most, chop, close)) in cases.into_iter().enumerate() {
        let all = conversation(seed as u64, most, &close);
        let said = || pieces(seed as u64, &all, chop);
        let direct = TcpStream::connect(application.addr()).unwrap();
        let expected = TunnelEnd::by_http1(direct, "/ws/echo").talk(said());
        let [one, two] = both(&server, "/ws/echo");
        for (version, tunnel) in [("HTTP/1.1", one), ("HTTP/2", two)] {
            let got = tunnel.talk(said());
            let same = got.iter().zip(&expected).take_while(|(a, b)| a == b).count();
            let lens = (got.len(), expected.len());
            assert!(got == expected, "{engine}, {version}, {seed}: {lens:?} differ at {same}");
        }
    }
}

#[test]
fn nothing_changes_on_the_way_of_a_websocket() {
    let engines = if is_full_matrix() { &ENGINES[..] } else { &["event", "threads"] };
    engines.iter().chain(&[ISOLATED]).for_each(|engine| nothing_changes_on_the_way(engine));
}

#[test]
fn a_tunnel_without_a_word_ends_in_time() {
    let application = WebSocketServer::start();
    let (server, _folder) = start("event", &application, "timeouts.silence = \"2s\"", "");
    let mut client = connect(&server);
    let stream = begin(&mut client, "/ws/raw");
    let mut count = 0;
    let rest = loop {
        let tunnel = TcpStream::connect(server.addr()).unwrap();
        let TunnelEnd::Http1(mut reader) = TunnelEnd::by_http1(tunnel, "/ws/raw") else {
            panic!("it is by HTTP/1.1")
        };
        count += 1;
        // a client that is kept from its core for that time finds the tunnel at its end
        let is_sent = reader.get_mut().write_all(b"some").is_ok();
        let mut back = [0; 4];
        if is_sent && reader.read_exact(&mut back).is_ok() {
            assert_eq!(&back, b"some");
            break TunnelEnd::Http1(reader).rest();
        }
        assert!(count < 5, "each ends before a word has come back");
    };
    assert_eq!(rest, b"");
    let answer = client.answer(stream);
    assert_eq!((answer.status, answer.reset), (200, Some(ErrorCode::CANCEL.0)));
    let have_ended = || application.told().ends.len() == count + 1;
    assert!(soon(PATIENCE, have_ended), "{count}: {:?}", application.told().ends);
}

/// The state that clients share which stay through many reloads.
#[derive(Default)]
struct Stay {
    is_over: AtomicBool,
    /// The number of messages, events and uploads.
    count: AtomicU64,
}

impl Stay {
    fn counts(&self) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed);
        !self.is_over.load(Ordering::Acquire)
    }
}

/// Sends numbered messages until the test is over, and then ends.
fn chat(mut tunnel: TunnelEnd, stay: &Stay) {
    let mut number = 0u64;
    while stay.counts() {
        let mut said = Vec::new();
        Frame::whole(BINARY, &number.to_be_bytes(), [1, 2, 3, 4]).write(&mut said);
        tunnel.send(&said);
        let mut expected = Vec::new();
        let payload = number.to_be_bytes().to_vec();
        Frame { is_last: true, opcode: BINARY, mask: None, payload }.write(&mut expected);
        assert_eq!(tunnel.take(expected.len()), expected);
        number += 1;
        std::thread::sleep(Duration::from_millis(3));
    }
    tunnel.finish();
    assert_eq!(tunnel.rest(), b"");
}

/// Whether these are events in their order, perhaps with the beginning of one more.
fn check_events(body: &[u8]) {
    for (number, event) in body.chunks_exact("data: 000000000\n\n".len()).enumerate() {
        assert_eq!(String::from_utf8_lossy(event), format!("data: {number:09}\n\n"));
    }
}

/// Reads server-sent events until the test is over.
fn listen(server: SocketAddr, by_http2: bool, stay: &Stay) {
    let mut body = Vec::new();
    if by_http2 {
        let mut client = Client::connect(server);
        let stream = client.ask("/ws/events");
        while stay.counts() {
            let before = client.so_far(stream).body.len();
            client.until(|client| client.so_far(stream).body.len() > before);
            assert!(!client.so_far(stream).is_whole && client.so_far(stream).reset.is_none());
        }
        body.extend_from_slice(&client.so_far(stream).body);
    } else {
        let stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        (&stream).write_all(b"GET /ws/events HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0);
        }
        while stay.counts() {
            line.clear();
            reader.read_line(&mut line).unwrap();
            let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
            assert!(size > 0, "it has ended");
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).unwrap();
            body.extend_from_slice(&chunk[..size]);
        }
    }
    assert!(!body.is_empty());
    check_events(&body);
}

/// Uploads slowly, again and again, until the test is over.
fn upload(server: SocketAddr, by_http2: bool, stay: &Stay) {
    const PIECES: usize = 40;
    let piece = [b'x'; 1000];
    let pause = || std::thread::sleep(Duration::from_millis(8));
    let expected = (PIECES * piece.len()).to_string();
    let mut client = by_http2.then(|| Client::connect(server));
    let connect = || {
        let stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    };
    let mut kept = (!by_http2).then(connect);
    loop {
        if let Some(client) = &mut client {
            let stream = client.begin("POST", "/ws/upload", &[], false);
            for at in 0..PIECES {
                assert_eq!(client.send(stream, &piece, at + 1 == PIECES), piece.len());
                pause();
            }
            let answer = client.answer(stream);
            assert_eq!((answer.status, answer.body.as_slice()), (200, expected.as_bytes()));
        } else if let Some(reader) = &mut kept {
            let head = "POST /ws/upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            reader.get_mut().write_all(head.as_bytes()).unwrap();
            for _ in 0..PIECES {
                let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat();
                reader.get_mut().write_all(&chunk).unwrap();
                pause();
            }
            reader.get_mut().write_all(b"0\r\n\r\n").unwrap();
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert!(reader.read_line(&mut head).unwrap() > 0, "{head:?}");
            }
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            let mut body = vec![0; expected.len()];
            reader.read_exact(&mut body).unwrap();
            assert_eq!(body, expected.as_bytes());
        }
        if !stay.counts() {
            return;
        }
    }
}

/// Reloads that change the site and the application's settings, under clients that stay.
fn reloads_cut_nothing(engine: &str) {
    let reloads = if is_full_matrix() { 200 } else { 12 };
    let application = WebSocketServer::start();
    let folder = Folder::new();
    folder.write("root/index.html", "own");
    let to = application.addr();
    let options = |version: usize| {
        let lines = format!(
            "limits.requests_per_connection = 0\n\
             [[header]]\npath = \"/*\"\nset = {{ X-Version = \"{version}\" }}\n\
             [[proxy]]\npath = \"/ws\"\nto = \"http://{to}\"\nbody_bytes = \"{}B\"\n",
            1_000_000_000 + version
        );
        Options::new(folder.join("root")).engine(engine).config(&lines)
    };
    let mut server = Server::start(&options(0));
    let addr = server.addr();
    let stay = Arc::<Stay>::default();
    let mut clients = Vec::new();
    let mut begin = |client: Box<dyn FnOnce(&Stay) + Send>| {
        let stay = Arc::clone(&stay);
        clients.push(std::thread::spawn(move || client(&stay)));
    };
    for _ in 0..2 {
        for tunnel in both(&server, "/ws/echo") {
            begin(Box::new(move |stay| chat(tunnel, stay)));
        }
        for by_http2 in [false, true] {
            begin(Box::new(move |stay| listen(addr, by_http2, stay)));
            begin(Box::new(move |stay| upload(addr, by_http2, stay)));
        }
    }
    for version in 1..=reloads {
        server.configure(&options(version));
        let (code, said) = server.reload();
        assert_eq!(code, Some(0), "{said}");
    }
    let mut client = connect(&server);
    let version = client.get("/").field("x-version").map(str::to_owned);
    assert_eq!(version, Some(reloads.to_string()), "{engine}");
    stay.is_over.store(true, Ordering::Release);
    let count = clients.len();
    for client in clients {
        client.join().expect("nothing is cut");
    }
    let messages = stay.count.load(Ordering::Relaxed);
    assert!(messages > 2 * count as u64, "{engine}: {messages} messages");
    eprintln!("{engine}: {reloads} reloads, {messages} messages");
    server.signal(Signal::TERM);
    assert!(server.wait(2 * PATIENCE).expect("it ends").success(), "{}", server.stderr());
}
