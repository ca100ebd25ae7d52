//! Applications that are spoken with over HTTP/2: what they and clients get, what is asked again, and
//! what an application may do that keeps to no rule. A call of gRPC is a request of this kind; real
//! programs are in `grpc.rs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_http2::hpack::encode;
use forebay_http2::{Connection, DecodedFields, ErrorCode, Http2Event, Http2Limits, MessagePart};
use forebay_tests::faults::site::{Folder, counting};
use forebay_tests::faults::soon;
use forebay_tests::http2::Client;
use forebay_tests::tls::{Authority, SealedApplication, server};
use forebay_tests::{Options, Server, on_each_engine, on_isolated, wire};
use rcgen::PKCS_ECDSA_P256_SHA256;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

on_each_engine!(
    requests_pass_and_connections_are_kept,
    great_bodies_go_both_ways,
    both_directions_go_on_at_once,
    trailers_go_both_ways,
    what_was_not_begun_is_asked_again,
    a_client_that_leaves_resets_its_stream,
    applications_that_keep_no_rule_are_left,
    other_protocols_go_by_http1,
    calls_are_refused_in_trailers,
    a_call_waits_as_long_as_its_client,
    through_tls_an_application_must_choose_http2,
    streams_go_on_through_reloads,
);

on_isolated!(
    requests_pass_and_connections_are_kept,
    great_bodies_go_both_ways,
    both_directions_go_on_at_once,
    trailers_go_both_ways,
    what_was_not_begun_is_asked_again,
    through_tls_an_application_must_choose_http2,
);

const HEAD_OF_FLOODS: [&str; 5] = ["pings", "continuation", "window", "settings", "interim"];

/// An application that speaks HTTP/2, whose answers depend on the path; a thread for each connection.
pub(crate) struct Application {
    pub(crate) addr: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
    /// The number of streams that the other side has reset.
    resets: AtomicUsize,
    /// The number of connections of HTTP/1.1.
    plain: AtomicUsize,
}

impl Application {
    /// Starts an application at an address of its own.
    pub(crate) fn start() -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, counts) = (listener.local_addr().unwrap(), Arc::<Counts>::default());
        let shared = Arc::clone(&counts);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let counts = Arc::clone(&shared);
                counts.connections.fetch_add(1, SeqCst);
                thread::spawn(move || {
                    socket.set_nodelay(true).unwrap();
                    // a peer that leaves ends it
                    let _ = Served::new(socket, counts).run();
                });
            }
        });
        Application { addr, counts }
    }

    fn count(&self, of: impl Fn(&Counts) -> &AtomicUsize) -> usize {
        of(&self.counts).load(SeqCst)
    }
}

/// A connection of the application.
struct Served {
    socket: TcpStream,
    counts: Arc<Counts>,
    machine: Connection,
    fields: DecodedFields,
    out: Vec<u8>,
    /// The path that is asked for on each stream.
    paths: HashMap<u32, String>,
    /// The value of `traceparent` on each stream.
    told: HashMap<u32, Vec<u8>>,
    /// The body for each stream, and whether that is all.
    bodies: HashMap<u32, (Vec<u8>, bool)>,
    said: HashMap<u32, usize>,
}

impl Served {
    fn new(socket: TcpStream, counts: Arc<Counts>) -> Served {
        let limits = Http2Limits { stream_window_bytes: 65_535, ..Http2Limits::default() };
        Served {
            socket,
            counts,
            machine: Connection::server(limits),
            fields: DecodedFields::default(),
            out: Vec::new(),
            paths: HashMap::new(),
            told: HashMap::new(),
            bodies: HashMap::new(),
            said: HashMap::new(),
        }
    }

    fn run(&mut self) -> io::Result<()> {
        let (mut input, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
        let mut is_first = true;
        loop {
            let count = self.socket.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            input.extend_from_slice(&buffer[..count]);
            if std::mem::take(&mut is_first) && !input.starts_with(b"PRI") {
                self.counts.plain.fetch_add(1, SeqCst);
                let answer =
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nplain";
                return self.socket.write_all(answer.as_bytes());
            }
            let mut at = 0;
            loop {
                let mut fields = std::mem::take(&mut self.fields);
                let received = self.machine.receive(&input[at..], &mut fields, 0);
                at += received.used;
                match received.event {
                    None => {
                        self.fields = fields;
                        break;
                    }
                    Some(Http2Event::Request { stream, ends }) => {
                        self.counts.requests.fetch_add(1, SeqCst);
                        let path = String::from_utf8(fields.path().to_vec()).unwrap();
                        self.paths.insert(stream, path);
                        let told = fields.iter().find(|(name, _)| *name == b"traceparent");
                        self.told.insert(stream, told.map_or(vec![], |(_, value)| value.to_vec()));
                        self.fields = fields;
                        self.begins(stream)?;
                        if ends {
                            self.ends(stream);
                        }
                    }
                    Some(Http2Event::Data { stream, bytes, ends }) => {
                        let bytes = bytes.to_vec();
                        self.fields = fields;
                        self.comes(stream, &bytes);
                        self.machine.consumed(stream, bytes.len());
                        if ends {
                            self.ends(stream);
                        }
                    }
                    Some(Http2Event::Trailers { stream }) => {
                        let trailers: Vec<_> = fields
                            .iter()
                            .map(|(name, value)| (name.to_vec(), value.to_vec()))
                            .collect();
                        self.fields = fields;
                        if let Some((body, _)) = self.bodies.get_mut(&stream) {
                            for (name, value) in trailers {
                                body.extend_from_slice(&[&name[..], b"=", &value].concat());
                            }
                        }
                        self.ends(stream);
                    }
                    Some(Http2Event::Reset { stream, .. }) => {
                        self.fields = fields;
                        self.counts.resets.fetch_add(1, SeqCst);
                        self.bodies.remove(&stream);
                    }
                    Some(_) => self.fields = fields,
                }
            }
            input.drain(..at);
            self.flush()?;
        }
    }

    fn head(&mut self, stream: u32, part: MessagePart, fields: &[(&str, &str)]) {
        self.machine.head(&mut self.out, stream, part, |block| {
            for (name, value) in fields {
                match (*name, value.parse()) {
                    (":status", Ok(status)) => encode::status(block, status),
                    _ => encode::raw(block, name.as_bytes(), value.as_bytes()),
                }
            }
        });
    }

    /// Handles the head of a request.
    fn begins(&mut self, stream: u32) -> io::Result<()> {
        let path = self.paths[&stream].clone();
        match &*path {
            "/hang" => {}
            "/refuse" | "/refuse-and-tell" => {
                let number = self.counts.requests.load(SeqCst);
                if number % 2 == 1 {
                    self.machine.reset(stream, ErrorCode::REFUSED_STREAM);
                } else if path == "/refuse" {
                    self.answer(stream, b"at last");
                } else {
                    self.answer(stream, &self.told[&stream].clone());
                }
            }
            "/tell" => self.answer(stream, &self.told[&stream].clone()),
            "/goaway" => {
                self.answer(stream, b"the last");
                self.machine.drain_now();
            }
            "/status" => self.head(
                stream,
                MessagePart::Last,
                &[(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "5")],
            ),
            "/echo" => {
                self.head(stream, MessagePart::Head, &[(":status", "200"), ("x-kind", "echo")]);
                self.bodies.insert(stream, (Vec::new(), false));
            }
            path if path.starts_with("/flood/") => self.flood(stream, &path[7..])?,
            path if path.starts_with("/size/") => {
                let size: usize = path[6..].parse().unwrap();
                let fields = [(":status", "200"), ("content-length", &path[6..])];
                self.head(stream, MessagePart::Head, &fields);
                self.bodies.insert(stream, (counting(size), true));
                self.machine.offer(stream);
            }
            _ => {
                self.head(stream, MessagePart::Head, &[(":status", "200")]);
                self.bodies.insert(stream, (Vec::new(), false));
            }
        }
        Ok(())
    }

    fn answer(&mut self, stream: u32, body: &[u8]) {
        self.head(stream, MessagePart::Head, &[(":status", "200")]);
        self.bodies.insert(stream, (body.to_vec(), true));
        self.machine.offer(stream);
    }

    /// Handles a part of the body of a request.
    fn comes(&mut self, stream: u32, bytes: &[u8]) {
        *self.said.entry(stream).or_default() += bytes.len();
        if self.paths.get(&stream).is_some_and(|path| path == "/echo")
            && let Some((body, _)) = self.bodies.get_mut(&stream)
        {
            body.extend_from_slice(bytes);
            self.machine.offer(stream);
        }
    }

    /// Handles the end of a request.
    fn ends(&mut self, stream: u32) {
        let said = self.said.get(&stream).copied().unwrap_or_default();
        let Some((body, is_whole)) = self.bodies.get_mut(&stream) else { return };
        if !std::mem::replace(is_whole, true) && self.paths[&stream] != "/echo" {
            body.extend_from_slice(format!("{} {said}", self.paths[&stream]).as_bytes());
        }
        self.machine.offer(stream);
    }

    /// Sends frames that no application should send.
    fn flood(&mut self, stream: u32, kind: &str) -> io::Result<()> {
        self.flush()?;
        let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
            let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
            frame.extend_from_slice(&[kind, flags]);
            frame.extend_from_slice(&stream.to_be_bytes());
            frame.extend_from_slice(payload);
            frame
        };
        let mut all = Vec::new();
        match kind {
            "pings" => (0..200_000).for_each(|_| all.extend(frame(6, 0, 0, b"pingpong"))),
            "settings" => (0..200_000).for_each(|_| all.extend(frame(4, 0, 0, b""))),
            "window" => {
                (0..3).for_each(|_| all.extend(frame(8, 0, 0, &0x7fff_ffff_u32.to_be_bytes())));
            }
            "continuation" => {
                all.extend(frame(1, 0, stream, b"\x88"));
                (0..100_000).for_each(|_| all.extend(frame(9, 0, stream, b"\x0f\x10\x01x")));
            }
            // 103
            _ => (0..100_000).for_each(|_| all.extend(frame(1, 4, stream, b"\x08\x03103"))),
        }
        self.socket.write_all(&all)?;
        // until the other side has had enough
        let mut rest = [0; 4096];
        while self.socket.read(&mut rest)? > 0 {}
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.machine.flush(&mut self.out);
        while let Some(turn) = self.machine.next() {
            let Some((body, is_whole)) = self.bodies.get_mut(&turn.stream) else {
                self.machine.pause(turn.stream);
                continue;
            };
            let count = body.len().min(turn.most as usize);
            let is_echo = self.paths[&turn.stream] == "/echo";
            let is_last = *is_whole && count == body.len();
            if count > 0 || (is_last && !is_echo) {
                let ends = is_last && !is_echo;
                let header = self.machine.data(turn.stream, count as u32, ends).unwrap();
                self.out.extend_from_slice(&header);
                self.out.extend(body.drain(..count));
            }
            if body.is_empty() {
                self.machine.pause(turn.stream);
            }
            if is_last {
                self.bodies.remove(&turn.stream);
                if is_echo {
                    self.head(turn.stream, MessagePart::Last, &[("grpc-status", "0")]);
                }
            }
        }
        // an echo of nothing more has only its trailers left
        let done: Vec<u32> = self
            .bodies
            .iter()
            .filter(|(_, (body, whole))| body.is_empty() && *whole)
            .map(|(stream, _)| *stream)
            .collect();
        for stream in done {
            self.bodies.remove(&stream);
            let is_echo = self.paths[&stream] == "/echo";
            match is_echo {
                true => self.head(stream, MessagePart::Last, &[("grpc-status", "0")]),
                false => {
                    let header = self.machine.data(stream, 0, true);
                    self.out.extend(header.into_iter().flatten());
                }
            }
        }
        self.machine.flush(&mut self.out);
        self.socket.write_all(&std::mem::take(&mut self.out))
    }
}

fn start(engine: &str, app: &Application, more: &str) -> (Server, Folder) {
    let folder = Folder::new();
    let lines =
        format!("[[proxy]]\npath = \"/\"\nto = \"http://{}\"\nhttp2 = true\n{more}", app.addr);
    let options = Options::new(folder.path()).engine(engine).config(&lines);
    (Server::start(&options), folder)
}

fn ask(server: &Server, text: &str) -> String {
    String::from_utf8_lossy(&wire::exchange(server.addr(), text.as_bytes())).into_owned()
}

fn get(server: &Server, path: &str) -> String {
    ask(server, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
}

/// The fields of a call of gRPC.
pub(crate) const CALL: [(&str, &str); 2] =
    [("content-type", "application/grpc"), ("te", "trailers")];

fn requests_pass_and_connections_are_kept(engine: &str) {
    let app = Application::start();
    let (server, _folder) = start(engine, &app, "");
    for _ in 0..10 {
        let answer = get(&server, "/hello");
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("/hello 0"),
            "{answer}"
        );
    }
    let post =
        "POST /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
    assert!(ask(&server, post).contains("/hello 5"));
    let chunks = "POST /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert!(ask(&server, chunks).contains("/hello 3"));
    let answer = ask(&server, "HEAD /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    let mut client = Client::connect(server.addr());
    for _ in 0..3 {
        assert_eq!(client.get("/hello").body, b"/hello 0");
    }
    // a stated length, and a head that is all
    assert_eq!(client.get("/size/70000").body, counting(70_000));
    let answer = client.get("/status");
    assert_eq!(
        (answer.status, answer.field("grpc-status"), answer.body.len()),
        (200, Some("5"), 0)
    );
    assert!(app.count(|counts| &counts.connections) < 10, "each loop keeps its own");
}

fn great_bodies_go_both_ways(engine: &str) {
    let app = Application::start();
    let (server, _folder) = start(engine, &app, "");
    let body = counting(3_000_000);
    let mut client = Client::connect(server.addr());
    let stream = client.begin("POST", "/echo", &CALL, false);
    // the client takes its answer as it comes, and sends on
    client.send_all(stream, &body);
    let answer = client.answer(stream);
    assert!(answer.body == body, "{} bytes", answer.body.len());
    let got = get(&server, "/size/3000000");
    assert!(got.len() > 3_000_000);
}

fn both_directions_go_on_at_once(engine: &str) {
    let app = Application::start();
    let (server, _folder) = start(engine, &app, "");
    let mut client = Client::connect(server.addr());
    let stream = client.begin("POST", "/echo", &CALL, false);
    client.until(|client| client.so_far(stream).status == 200);
    for (number, piece) in ["one", "two", "three"].iter().enumerate() {
        client.send(stream, piece.as_bytes(), false);
        let so_far: usize =
            ["one", "two", "three"][..=number].iter().map(|piece| piece.len()).sum();
        client.until(|client| client.so_far(stream).body.len() == so_far);
    }
    client.send(stream, b"", true);
    let answer = client.answer(stream);
    assert_eq!(
        (answer.body, answer.fields.iter().any(|(name, _)| name == "x-kind")),
        (b"onetwothree".to_vec(), true)
    );
}

fn trailers_go_both_ways(engine: &str) {
    let app = Application::start();
    let (server, _folder) = start(engine, &app, "");
    let mut client = Client::connect(server.addr());
    let stream = client.begin("POST", "/echo", &CALL, false);
    client.send(stream, b"body ", false);
    client.trail(stream, &[("check", "1")]);
    let answer = client.answer(stream);
    assert_eq!(answer.body, b"body check=1");
    assert_eq!(answer.trailers, [("grpc-status".to_owned(), "0".to_owned())]);
    // a body of nothing is a body: its end does not come with the head
    let stream = client.begin("POST", "/echo", &CALL, false);
    client.send(stream, b"", true);
    let answer = client.answer(stream);
    assert_eq!((answer.body.len(), answer.trailers.len()), (0, 1));
}

fn what_was_not_begun_is_asked_again(engine: &str) {
    let app = Application::start();
    let (server, _folder) = start(engine, &app, "");
    let post = |path: &str| {
        let head = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody";
        ask(&server, &format!("POST {path} {head}"))
    };
    for number in 1..=3 {
        let answer = post("/refuse");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("at last"), "{answer}");
        assert_eq!(app.count(|counts| &counts.requests), 2 * number);
    }
    for _ in 0..3 {
        let answer = post("/goaway");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("the last"), "{answer}");
    }
}

fn a_client_that_leaves_resets_its_stream(engine: &str) {
    let app = Application::start();
    let (server, _folder) = start(engine, &app, "in_flight = 4\n");
    let mut client = Client::connect(server.addr());
    let stream = client.begin("POST", "/hang", &CALL, true);
    assert!(soon(wire::PATIENCE, || app.count(|counts| &counts.requests) == 1));
    client.reset(stream);
    assert!(soon(wire::PATIENCE, || app.count(|counts| &counts.resets) == 1));
    // in the middle of an answer, too, and with its connection
    let stream = client.begin("POST", "/echo", &CALL, false);
    client.until(|client| client.so_far(stream).status == 200);
    drop(client);
    assert!(soon(wire::PATIENCE, || app.count(|counts| &counts.resets) == 2));
    // the places are free
    assert!(get(&server, "/hello").contains("/hello 0"));
}

fn applications_that_keep_no_rule_are_left(engine: &str) {
    let app = Application::start();
    let (server, _folder) = start(engine, &app, "max_fails = 0\nretries = 0\n");
    for kind in HEAD_OF_FLOODS {
        let answer = get(&server, &format!("/flood/{kind}"));
        assert!(
            answer.contains("HTTP/1.1 502"),
            "{kind}: {}",
            &answer[answer.len().saturating_sub(300)..]
        );
        assert!(get(&server, "/hello").contains("/hello 0"), "{kind}");
    }
}

/// The answer to a request for another protocol.
fn change(server: &Server, path: &str) -> String {
    let mut stream = wire::connect(server.addr());
    let asks = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    stream.write_all(asks.as_bytes()).unwrap();
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    stream.set_read_timeout(Some(wire::PATIENCE)).unwrap();
    while !said.ends_with(b"plain") {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            count => said.extend_from_slice(&buffer[..count]),
        }
    }
    String::from_utf8(said).unwrap()
}

fn other_protocols_go_by_http1(engine: &str) {
    let app = Application::start();
    let (server, _folder) = start(engine, &app, "");
    assert!(get(&server, "/hello").contains("/hello 0"));
    let answer = change(&server, "/talk");
    assert!(answer.ends_with("plain"), "{answer}");
    assert_eq!((app.count(|counts| &counts.plain), app.count(|counts| &counts.requests)), (1, 1));
    assert!(get(&server, "/hello").contains("/hello 0"));
}

fn calls_are_refused_in_trailers(engine: &str) {
    let app = Application::start();
    let more = "in_flight = 1\nqueue.requests = 0\n\n[[rule]]\nname = \"no\"\npath = \"/no\"\naction = \"reject\"\nstatus = 429\n";
    let (server, _folder) = start(engine, &app, more);
    let mut client = Client::connect(server.addr());
    let hangs = client.begin("POST", "/hang", &CALL, true);
    assert!(soon(wire::PATIENCE, || app.count(|counts| &counts.requests) == 1));
    for (path, status) in [("/x.Y/Z", "14"), ("/no", "8")] {
        let stream = client.begin("POST", path, &CALL, true);
        let answer = client.answer(stream);
        assert_eq!(
            (
                answer.status,
                answer.field("grpc-status"),
                answer.field("content-type"),
                answer.body.len()
            ),
            (200, Some(status), Some("application/grpc"), 0),
            "{path}"
        );
    }
    // a request that is no call gets a page
    assert!(get(&server, "/x.Y/Z").starts_with("HTTP/1.1 503"));
    client.reset(hangs);
}

fn a_call_waits_as_long_as_its_client(engine: &str) {
    let app = Application::start();
    let (server, _folder) = start(engine, &app, "in_flight = 1\nqueue.time = \"1h\"\n");
    let mut client = Client::connect(server.addr());
    let hangs = client.begin("POST", "/hang", &CALL, true);
    assert!(soon(wire::PATIENCE, || app.count(|counts| &counts.requests) == 1));
    let call = [CALL[0], CALL[1], ("grpc-timeout", "100m")];
    let stream = client.begin("POST", "/x.Y/Z", &call, true);
    let answer = client.answer(stream);
    assert_eq!((answer.status, answer.field("grpc-status")), (200, Some("4")));
    assert_eq!(app.count(|counts| &counts.requests), 1);
    client.reset(hangs);
}

fn through_tls_an_application_must_choose_http2(engine: &str) {
    let (app, folder, authority) = (Application::start(), Folder::new(), Authority::new());
    authority.write(folder.path(), "app", &["localhost"], &PKCS_ECDSA_P256_SHA256);
    folder.write("ca.pem", &authority.pem);
    let sealed = |alpn: &[&[u8]]| {
        let mut config = server(folder.path(), "app");
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        SealedApplication::start(config, app.addr)
    };
    let (speaks, not, silent) =
        (sealed(&[b"h2", b"http/1.1"]), sealed(&[b"http/1.1"]), sealed(&[]));
    let route = |path: &str, at: SocketAddr| {
        format!(
            "[[proxy]]\npath = \"{path}\"\nto = \"https://localhost:{}\"\nhttp2 = true\ntls.ca = [\"{}\"]\n\n",
            at.port(),
            folder.join("ca.pem").display()
        )
    };
    let lines =
        [route("/hello", speaks.addr), route("/not", not.addr), route("/silent", silent.addr)];
    let options = Options::new(folder.path()).engine(engine).config(&lines.concat());
    let server = Server::start(&options);
    for _ in 0..3 {
        assert!(get(&server, "/hello").contains("/hello 0"));
    }
    assert!(get(&server, "/not").starts_with("HTTP/1.1 502"));
    assert!(get(&server, "/silent").starts_with("HTTP/1.1 502"));
    assert_eq!(app.count(|counts| &counts.plain), 0);
    assert!(change(&server, "/hello").ends_with("plain"));
}

fn streams_go_on_through_reloads(engine: &str) {
    let app = Application::start();
    let (server, _folder) = start(engine, &app, "");
    let mut client = Client::connect(server.addr());
    let stream = client.begin("POST", "/echo", &CALL, false);
    client.until(|client| client.so_far(stream).status == 200);
    for number in 1..=3 {
        assert_eq!(server.reload().0, Some(0));
        client.send(stream, b"more", false);
        client.until(|client| client.so_far(stream).body.len() == 4 * number);
        assert!(get(&server, "/hello").contains("/hello 0"));
    }
    client.send(stream, b"", true);
    assert_eq!(client.answer(stream).trailers, [("grpc-status".to_owned(), "0".to_owned())]);
}
