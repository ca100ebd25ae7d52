//! Streams that last long: WebSockets, calls of gRPC, server-sent events.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::soon;
use forebay_tests::migration::{APPLICATIONS, Migration, Reached, request, site, whole};
use forebay_tests::node::NodeServer;
use forebay_tests::programs::from_go;
use forebay_tests::server::free_addr;
use forebay_tests::websocket::{Frame, TunnelEnd, WebSocketServer};
use forebay_tests::wire::{self, PATIENCE};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Frames of each length that has a form of its own, masked as clients do.
fn frames() -> Vec<Vec<u8>> {
    [0, 1, 125, 126, 65_535, 65_536, 300_000]
        .map(|length| {
            let payload: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let mut bytes = Vec::new();
            Frame::whole(2, &payload, [1, 2, 3, 4]).write(&mut bytes);
            bytes
        })
        .to_vec()
}

#[test]
fn websockets() {
    let test = "migrations::websockets";
    let application = WebSocketServer::start();
    let folder = site(&[("root/index.html", "home")]);
    let case = Migration::read(APPLICATIONS, "## WebSocket")
        .with("127.0.0.1:3000", application.addr())
        .with_folder("/srv/www", &folder.join("root"));
    case.compare(test, |Reached { addr, .. }, seen| {
        let mut pieces = frames();
        let mut close = Vec::new();
        Frame::whole(9, b"are you there", [5, 6, 7, 8]).write(&mut close);
        Frame::whole(8, &[3, 232], [9, 9, 9, 9]).write(&mut close);
        pieces.push(close);
        let tunnel = TunnelEnd::by_http1(wire::connect(addr), "/ws/echo");
        let echoed = tunnel.talk(pieces);
        let sum = echoed.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
        seen.note("/ws/echo", "frames", format!("{} bytes, {sum:x}", echoed.len()));
        // the application may be the first to speak
        let mut tunnel = TunnelEnd::by_http1(wire::connect(addr), "/ws/first");
        let first = tunnel.take(5);
        seen.note("/ws/first", "frames", String::from_utf8(first).unwrap());
        let mut tunnel = TunnelEnd::by_http1(wire::connect(addr), "/ws/raw");
        tunnel.send(b"a few bytes");
        let raw = tunnel.take(11);
        seen.note("/ws/raw", "bytes", String::from_utf8(raw).unwrap());
        tunnel.cut();
        let mut tunnel = TunnelEnd::by_http1(wire::connect(addr), "/ws/reset");
        assert_eq!(tunnel.take(4), b"some");
        tunnel.send(b"x");
        let TunnelEnd::Http1(mut reader) = tunnel else { panic!("by HTTP/1.1") };
        let end = match reader.read(&mut [0]) {
            Ok(0) => "an end",
            Ok(_) => "more",
            Err(_) => "a reset",
        };
        seen.note("/ws/reset", "end", end);
        for path in ["/ws/bad", "/ws/fine", "/ws/moved", "/none/echo", "/"] {
            let answer = TunnelEnd::try_http1(wire::connect(addr), path);
            seen.note(
                path,
                "status",
                answer.map_or_else(|(status, _)| status, |_| 101).to_string(),
            );
        }
        // the head of the change
        let fields = [
            "Connection: keep-alive, Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: chat, superchat",
        ];
        let mut stream = wire::connect(addr);
        stream.write_all(&request("GET /ws/first", &fields, b"")).unwrap();
        let bytes = head(&mut stream);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        for name in ["upgrade", "connection", "sec-websocket-accept", "x-app"] {
            let mut lines = text.lines().filter_map(|line| line.split_once(": "));
            let value = lines.find(|(other, _)| other.eq_ignore_ascii_case(name));
            let value = value.map_or("none", |(_, value)| value).to_ascii_lowercase();
            seen.note("/ws/first with protocols", name, value);
        }
        seen.ask(addr, "GET /ws/fine", &[], b"");
        seen.ask(addr, "GET /", &[], b"");
    });
}

/// Reads until the end of a head.
fn head(stream: &mut TcpStream) -> Vec<u8> {
    until(stream, |bytes| bytes.windows(4).any(|four| four == b"\r\n\r\n"))
}

fn until(stream: &mut TcpStream, is_enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let (mut bytes, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while !is_enough(&bytes) {
        let end = wire::read_some(stream, &mut bytes, deadline);
        assert_eq!(end, None, "{}", String::from_utf8_lossy(&bytes));
    }
    bytes
}

/// Has the application send the next event of a stream. Returns its report of the stream.
fn next(node: SocketAddr, key: &str) -> String {
    let line = format!("GET /next?key={key}");
    let answer = whole(&wire::exchange(node, &request(&line, &[], b"")), false).unwrap();
    String::from_utf8(answer.body).unwrap()
}

#[test]
fn server_sent_events() {
    let test = "migrations::server_sent_events";
    let Some(node) = NodeServer::start("events", test) else { return };
    let streams = AtomicU32::new(0);
    let case = Migration::read(APPLICATIONS, "## Server-sent events");
    let case = case.with("127.0.0.1:3000", node.addr());
    case.compare(test, |Reached { addr, .. }, seen| {
        let key = streams.fetch_add(1, Ordering::Relaxed).to_string();
        let mut stream = wire::connect(addr);
        let line = format!("GET /events?key={key}");
        let fields = ["Accept: text/event-stream", "Accept-Encoding: gzip, br"];
        stream.write_all(&request(&line, &fields, b"")).unwrap();
        // each event is there before the next is sent
        let mut bytes = Vec::new();
        for number in 1..=3 {
            let event = format!("data: event {number}\n\n");
            bytes.extend(until(&mut stream, |bytes| {
                String::from_utf8_lossy(bytes).contains(&event)
            }));
            if number < 3 {
                assert_eq!(next(node.addr(), &key), "sent", "{test}");
            }
        }
        let (rest, _) = wire::read_to_end(&mut stream, PATIENCE);
        bytes.extend(rest);
        seen.note_answer("GET /events", &whole(&bytes, false).unwrap(), false);
        // the application learns of a client that leaves
        let key = format!("{key}-left");
        let mut stream = wire::connect(addr);
        stream.write_all(&request(&format!("GET /events?key={key}"), &fields, b"")).unwrap();
        until(&mut stream, |bytes| String::from_utf8_lossy(bytes).contains("event 1\n\n"));
        rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
        drop(stream);
        let is_told = soon(PATIENCE, || next(node.addr(), &key) == "closed");
        seen.note("GET /events, and leave", "the application hears of it", is_told.to_string());
    });
}

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The calls that need neither accounts nor another server.
const CALLS: [&str; 13] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "custom_metadata",
];

#[test]
fn calls_of_grpc() {
    let test = "migrations::calls_of_grpc";
    let programs = ["grpc-interop-client", "grpc-interop-server"].map(|it| from_go(it, test));
    let [Some(client), Some(application)] = programs else { return };
    let at = free_addr();
    let mut command = Command::new(application);
    command.args(["-port", &at.port().to_string()]).stderr(Stdio::null());
    let _application = Program(command.spawn().unwrap());
    assert!(soon(PATIENCE, || TcpStream::connect(at).is_ok()));
    let case = Migration::read(APPLICATIONS, "## gRPC").with("127.0.0.1:50051", at);
    case.compare(test, |Reached { addr, .. }, seen| {
        let (host, port) = (addr.ip().to_string(), addr.port().to_string());
        for call in CALLS {
            let mut command = Command::new(&client);
            command.args(["-use_tls=false", "-server_host", &host, "-server_port", &port]);
            let said = command.args(["-test_case", call]).output().unwrap();
            let done = if said.status.success() { "as without a server between" } else { "fails" };
            seen.note(call, "call", done);
        }
    });
}
