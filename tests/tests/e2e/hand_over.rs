//! Requests that leave with their socket: what receivers get, what clients get, and what becomes of
//! requests whose receivers die or hang.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::Client;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::receiver::{ReceivedRequest, SocketReceiver};
use forebay_tests::server::binary;
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{Options, Server, http2, on_each_engine};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;

on_each_engine!(
    connections_come_back_between_static_files,
    bodies_stay_in_the_socket,
    a_connection_that_is_done_is_closed,
    what_was_not_taken_goes_to_another_if_that_is_safe,
    who_dies_with_a_request_is_told_of,
    receivers_that_hang_have_their_time,
    requests_wait_in_the_order_of_their_classes,
    kept_connections_are_gone,
    a_stop_cuts_what_is_elsewhere,
    a_reload_leaves_what_is_elsewhere,
    no_spelling_gets_past_a_rule,
    large_heads_and_sent_files_are_no_matter,
);

/// A server with a file, which hands `/app` over to these receivers.
pub(crate) fn serve(
    engine: &str,
    to: &[&SocketReceiver],
    more: &str,
    before: &str,
) -> (Folder, WatchedServer) {
    let folder = Folder::new();
    folder.write("site/index.html", "a static page");
    folder.write("site/large.bin", vec![b'x'; 3 << 20]);
    let served = WatchedServer::with(options(&folder, engine, to, more, before));
    (folder, served)
}

fn options(
    folder: &Folder,
    engine: &str,
    to: &[&SocketReceiver],
    more: &str,
    before: &str,
) -> Options {
    let to: Vec<_> = to.iter().map(|one| format!("{:?}", one.to())).collect();
    // else `more` says where they are
    let to = if to.is_empty() { String::new() } else { format!("to = [{}]", to.join(", ")) };
    let lines = format!("{before}\n[[hand_over]]\npath = \"/app\"\n{to}\n{more}\n");
    Options::new(folder.join("site")).engine(engine).config(&lines)
}

/// Answers with a text that names the request.
pub(crate) fn echo(handed: &mut ReceivedRequest) {
    let body = format!("handed {}", handed.target());
    handed.answer(&body);
}

pub(crate) fn connect(served: &WatchedServer) -> TcpStream {
    let stream = wire::connect(served.listens_at());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Asks on a connection of its own, and returns all bytes that come.
pub(crate) fn ask(served: &WatchedServer, request: &str) -> String {
    let mut stream = connect(served);
    stream.write_all(request.as_bytes()).unwrap();
    let mut all = Vec::new();
    // a connection that is reset keeps the bytes that came before
    let _ = stream.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

pub(crate) fn last_get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

pub(crate) fn post(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab")
}

fn connections_come_back_between_static_files(engine: &str) {
    let receiver = SocketReceiver::start(|handed| {
        assert!(
            handed.request.ends_with(b"\r\n\r\n"),
            "nothing of what follows: {}",
            handed.text()
        );
        assert_eq!(handed.text().matches("HTTP/1.1").count(), 1);
        assert!(handed.lines.contains("client 127.0.0.1:"), "{}", handed.lines);
        assert_eq!(handed.body_left, Some(0));
        echo(handed);
    });
    let (_folder, served) = serve(engine, &[&receiver], "", "");
    let mut client = Client::over(connect(&served));
    for number in 0..50 {
        assert_eq!(client.get("/").unwrap().body, b"a static page");
        let answer = client.get(&format!("/app/{number}?q")).unwrap();
        assert_eq!(answer.body, format!("handed /app/{number}?q").as_bytes());
    }
    // all at once
    let pipeline = [get("/"), get("/app/a"), get("/"), get("/app/b"), last_get("/")].concat();
    let all = ask(&served, &pipeline);
    let order =
        ["a static page", "handed /app/a", "a static page", "handed /app/b", "a static page"];
    let mut rest = all.as_str();
    for part in order {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part} is missing in {all}"));
        rest = &rest[at + part.len()..];
    }
    assert_eq!(receiver.offered(), 52);
    assert!(soon(PATIENCE, || served
        .metric("forebay_upstream_requests_total{result=\"answered\"}")
        == 52));
}

fn bodies_stay_in_the_socket(engine: &str) {
    let receiver = SocketReceiver::start(|handed| {
        let mut body = handed.text().split_once("\r\n\r\n").unwrap().1.to_owned();
        if handed.text().contains("chunked") {
            assert_eq!(handed.body_left.unwrap_or(u64::MAX) > 0, !body.ends_with("0\r\n\r\n"));
            while !body.ends_with("0\r\n\r\n") {
                let mut more = [0; 100];
                let count = handed.client.read(&mut more).unwrap();
                body.push_str(std::str::from_utf8(&more[..count]).unwrap());
            }
        } else {
            body.push_str(std::str::from_utf8(&handed.rest()).unwrap());
        }
        handed.answer(&format!("body {body:?}"));
    });
    let (_folder, served) = serve(engine, &[&receiver], "", "");
    let mut client = Client::over(connect(&served));
    let head = "POST /app HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n";
    for split in [0, 4, 9] {
        let (first, second) = "one two 3".split_at(split);
        client.stream().write_all([head, first].concat().as_bytes()).unwrap();
        // a part of the body comes while the socket is elsewhere, or not: both must work
        thread::yield_now();
        client.stream().write_all(second.as_bytes()).unwrap();
        assert_eq!(client.answer().unwrap().body, b"body \"one two 3\"");
    }
    let head = "POST /app HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.stream().write_all([head, "3\r\nab"].concat().as_bytes()).unwrap();
    client.stream().write_all(b"c\r\n0\r\n\r\n").unwrap();
    let answer = client.answer().unwrap();
    assert_eq!(answer.body, br#"body "3\r\nabc\r\n0\r\n\r\n""#);
    // and with the next request behind it
    client.stream().write_all([head, "0\r\n\r\n", &get("/")].concat().as_bytes()).unwrap();
    assert_eq!(client.answer().unwrap().body, br#"body "0\r\n\r\n""#);
    assert_eq!(client.answer().unwrap().body, b"a static page");
}

fn a_connection_that_is_done_is_closed(engine: &str) {
    let receiver = SocketReceiver::start(|handed| {
        handed.take();
        handed.write("done");
        handed.report(b'D', 201, 4);
    });
    let log = Folder::new();
    let path = log.join("access.log");
    let config = format!("log.access = {path:?}\nlog.format = \"json\"");
    let (_folder, served) = serve(engine, &[&receiver], "", &config);
    for _ in 0..3 {
        assert!(ask(&served, &get("/app/x")).ends_with("done"));
    }
    // a client that asks for the end of its connection gets it
    assert!(ask(&served, &last_get("/app/x")).contains("Connection: close"));
    let lines = || fs::read_to_string(&path).unwrap_or_default();
    assert!(soon(PATIENCE, || lines().lines().count() == 4), "{}", lines());
    let lines = lines();
    let line = lines.lines().next().unwrap();
    for part in ["\"status\":201", "\"upstream\":\"unix:", "\"upstream_status\":201"] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
}

/// Ends the receiver's link silently.
pub(crate) fn refuse(handed: &mut ReceivedRequest) {
    handed.hang_up();
}

fn what_was_not_taken_goes_to_another_if_that_is_safe(engine: &str) {
    let (bad, good) = (SocketReceiver::start(refuse), SocketReceiver::start(echo));
    let more = "balance = \"round-robin\"\nmax_fails = 0\nretry_budget = \"100%\"";
    let (_folder, served) = serve(engine, &[&bad, &good], more, "");
    for _ in 0..6 {
        assert!(ask(&served, &last_get("/app")).ends_with("handed /app"));
    }
    assert!(bad.offered() >= 2, "{}", bad.offered());
    let (bad, good) = (bad.offered(), good.offered());
    let answers: Vec<_> = (0..6).map(|_| ask(&served, &post("/app"))).collect();
    let refused = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 502")).count();
    let answered = answers.iter().filter(|answer| answer.ends_with("handed /app")).count();
    assert_eq!((refused > 0, answered > 0, refused + answered), (true, true, 6), "{answers:?}");
    let _ = (bad, good);
}

fn who_dies_with_a_request_is_told_of(engine: &str) {
    let receiver = SocketReceiver::start(|handed| {
        handed.take();
        if handed.target().ends_with("half") {
            let _ = handed.client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        }
        handed.hang_up();
    });
    let (_folder, served) = serve(engine, &[&receiver], "max_fails = 0\nretries = 3", "");
    for request in [last_get("/app"), post("/app"), get("/app")] {
        let answer = ask(&served, &request);
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(answer.contains("ended without an answer"), "{answer}");
    }
    assert_eq!(receiver.offered(), 3, "what was taken goes to nobody else");
    let answer = ask(&served, &get("/app/half"));
    assert!(!answer.contains("502"), "{answer}");
    // a file that was sent before is no writing of others
    let mut client = Client::over(connect(&served));
    assert_eq!(client.get("/large.bin").unwrap().body.len(), 3 << 20);
    assert_eq!(client.get("/app").unwrap().status, 502);
}

fn receivers_that_hang_have_their_time(engine: &str) {
    let receiver = SocketReceiver::start(|handed| {
        if handed.target().contains("taken") {
            handed.take();
        }
        if handed.target().contains("half") {
            let _ = handed.client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        }
        handed.wait_for_end();
    });
    let more = "max_fails = 0\ntimeouts.taken = \"200ms\"\ntimeouts.done = \"300ms\"";
    let (_folder, served) = serve(engine, &[&receiver], more, "");
    for path in ["/app/taken", "/app/never"] {
        for request in [last_get(path), post(path)] {
            let answer = ask(&served, &request);
            assert!(answer.starts_with("HTTP/1.1 504"), "{path}: {answer}");
        }
    }
    assert!(!ask(&served, &get("/app/taken/half")).contains("504"));
    assert_eq!(ask(&served, &last_get("/")).matches("a static page").count(), 1);
}

/// A gate that lets through as many requests as a test allows.
#[derive(Clone, Default)]
pub(crate) struct Turnstile(Arc<(Mutex<Passages>, Condvar)>);

#[derive(Default)]
struct Passages {
    open: usize,
    came: Vec<String>,
}

impl Turnstile {
    pub(crate) fn pass(&self, handed: &mut ReceivedRequest) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.came.push(handed.target());
        let number = state.came.len();
        while state.open < number {
            state = changed.wait(state).unwrap();
        }
        drop(state);
        echo(handed);
    }

    pub(crate) fn came(&self) -> Vec<String> {
        self.0.0.lock().unwrap().came.clone()
    }

    pub(crate) fn open(&self, count: usize) {
        self.0.0.lock().unwrap().open += count;
        self.0.1.notify_all();
    }
}

pub(crate) const CLASSES: &str = r#"
[[class]]
name = "gold"
priority = 0
[[class]]
name = "bulk"
priority = 1
[[rule]]
path = "/app/gold*"
class = "gold"
[[rule]]
path = "/*"
class = "bulk"
"#;

fn requests_wait_in_the_order_of_their_classes(engine: &str) {
    let turnstile = Turnstile::default();
    let passes = turnstile.clone();
    let receiver = SocketReceiver::start(move |handed| passes.pass(handed));
    let more = "in_flight = 1\nqueue.requests = 3\nqueue.time = \"1h\"\ntimeouts.taken = \"5m\"";
    let (_folder, served) = serve(engine, &[&receiver], more, CLASSES);
    let waiting = || served.metric_if_answered("forebay_upstream_requests_waiting");
    let mut clients = Vec::new();
    let mut ask_for = |path: &str, waits: u64| {
        let mut client = Client::over(connect(&served));
        assert!(client.ask(path));
        clients.push(client);
        assert!(soon(PATIENCE, || waiting() == Some(waits)), "{path}: {:?}", waiting());
    };
    ask_for("/app/first", 0);
    assert!(soon(PATIENCE, || turnstile.came().len() == 1));
    ask_for("/app/bulk-1", 1);
    ask_for("/app/bulk-2", 2);
    ask_for("/app/gold-1", 3);
    // another request has no room
    let mut late = Client::over(connect(&served));
    let answer = late.get("/app/bulk-3").unwrap();
    assert_eq!((answer.status, answer.field("Retry-After").is_some()), (503, true));
    for _ in 0..4 {
        turnstile.open(1);
    }
    for client in &mut clients {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    let came = turnstile.came();
    assert_eq!(came, ["/app/first", "/app/gold-1", "/app/bulk-1", "/app/bulk-2"]);
    assert!(soon(PATIENCE, || waiting() == Some(0)));
}

/// A receiver with `keep` takes each connection for good, and serves it itself.
fn kept_connections_are_gone(engine: &str) {
    let (says, hears) = mpsc::channel();
    let receiver = SocketReceiver::start(move |handed| {
        let mut client = handed.client.try_clone().unwrap();
        assert!(handed.take());
        says.send(()).unwrap();
        thread::spawn(move || {
            let mut byte = [0; 1];
            while client.read(&mut byte).unwrap_or(0) == 1 {
                client.write_all(&byte).unwrap();
            }
        });
    });
    let (_folder, served) = serve(engine, &[&receiver], "keep = true", "");
    let open = || served.metric_if_answered("forebay_connections");
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(&served);
        stream.write_all(get("/app/chat").as_bytes()).unwrap();
        hears.recv_timeout(PATIENCE).unwrap();
        streams.push(stream);
    }
    assert!(soon(PATIENCE, || open() == Some(0)), "{:?}", open());
    for stream in &mut streams {
        stream.write_all(b"hello").unwrap();
        let mut back = [0; 5];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"hello");
    }
}

fn a_stop_cuts_what_is_elsewhere(engine: &str) {
    let (says, hears) = mpsc::channel();
    let receiver = SocketReceiver::start(move |handed| {
        handed.take();
        says.send(()).unwrap();
        // the other end of the client's socket, which this process has open
        let end = handed.client.read(&mut [0; 1]);
        assert!(matches!(end, Ok(0) | Err(_)));
    });
    let before = "timeouts.drain = \"100ms\"";
    let (_folder, mut served) = serve(engine, &[&receiver], "timeouts.done = \"1h\"", before);
    let mut stream = connect(&served);
    stream.write_all(get("/app").as_bytes()).unwrap();
    hears.recv_timeout(PATIENCE).unwrap();
    served.signal(rustix::process::Signal::TERM);
    assert!(served.wait(PATIENCE).is_some());
    let end = stream.read(&mut [0; 1]);
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

fn a_reload_leaves_what_is_elsewhere(engine: &str) {
    let turnstile = Turnstile::default();
    let passes = turnstile.clone();
    let receiver = SocketReceiver::start(move |handed| passes.pass(handed));
    let (folder, served) = serve(engine, &[&receiver], "", "");
    let mut client = Client::over(connect(&served));
    assert!(client.ask("/app/before"));
    assert!(soon(PATIENCE, || turnstile.came().len() == 1));
    served.reload_with(options(&folder, engine, &[&receiver], "in_flight = 9", ""));
    turnstile.open(2);
    assert_eq!(client.answer().unwrap().body, b"handed /app/before");
    assert_eq!(client.get("/app/behind").unwrap().body, b"handed /app/behind");
}

const GUARDED: &str = r#"
[[access]]
path = "/app/secret"
allow = ["192.0.2.1"]
"#;

fn no_spelling_gets_past_a_rule(engine: &str) {
    let receiver = SocketReceiver::start(|handed| {
        assert!(!handed.text().contains("ecret"), "{}", handed.text());
        echo(handed);
    });
    let (_folder, served) = serve(engine, &[&receiver], "", GUARDED);
    for path in [
        "/app/secret",
        "/app/%73ecret",
        "/app//secret",
        "/app/./secret",
        "/app/x/../secret",
        "/app%2fsecret",
        "/app/x/%2e%2e/secret",
        "//app/secret",
        "/app/secret;a=b",
        "/app/secret/",
        "/app/secret%5c",
        "/app/;/secret",
        "http://a/app/secret",
    ] {
        let answer = ask(&served, &last_get(path));
        let status = answer.get(9..12).unwrap_or_default();
        assert!(["400", "403", "404"].contains(&status), "{path}: {answer}");
    }
    // a path that a receiver could read in another way is not for it either
    for path in ["/app//a", "/app/./a", "/app/%2e/a", "http://b/app/a"] {
        let answer = ask(&served, &last_get(path));
        assert!(answer.starts_with("HTTP/1.1 400"), "{path}: {answer}");
    }
    assert!(ask(&served, &last_get("/app/%41")).ends_with("handed /app/%41"));
}

fn large_heads_and_sent_files_are_no_matter(engine: &str) {
    let receiver = SocketReceiver::start(echo);
    let (_folder, served) = serve(engine, &[&receiver], "", "");
    let mut client = Client::over(connect(&served));
    let field = "x".repeat(12_000);
    for _ in 0..3 {
        assert_eq!(client.get("/large.bin").unwrap().body.len(), 3 << 20);
        let request = format!("GET /app/a HTTP/1.1\r\nHost: a\r\nX: {field}\r\n\r\n");
        client.stream().write_all(request.as_bytes()).unwrap();
        assert_eq!(client.answer().unwrap().body, b"handed /app/a");
    }
}

/// A request that is handed over does not enter the queue of the phase `process`.
#[test]
fn requests_leave_at_the_end_of_receive() {
    let receiver = SocketReceiver::start(echo);
    let (_folder, served) = serve("pipeline:never", &[&receiver], "", "");
    let process = || served.metric("forebay_pipeline_arrivals_total{phase=\"process\"}");
    let receive = || served.metric("forebay_pipeline_arrivals_total{phase=\"receive\"}");
    let mut client = Client::over(connect(&served));
    assert_eq!(client.get("/").unwrap().status, 200);
    assert!(soon(PATIENCE, || process() > 0), "the count counts");
    let (process_before, receive_before) = (process(), receive());
    for _ in 0..20 {
        assert_eq!(client.get("/app/a").unwrap().status, 200);
    }
    // counters are shown once in a period, all together
    assert!(soon(PATIENCE, || receive() >= receive_before + 20));
    assert_eq!(process(), process_before);
}

/// A stream of HTTP/2 has no socket that could be handed over.
#[test]
fn streams_of_http2_are_told_to_come_by_http1() {
    let receiver = SocketReceiver::start(echo);
    let (_folder, served) = serve("event", &[&receiver], "", "");
    let mut client = http2::Client::connect(served.listens_at());
    let answer = client.get("/app/a");
    assert_eq!(answer.reset, Some(0xd), "HTTP_1_1_REQUIRED");
    assert_eq!(receiver.offered(), 0);
}

#[test]
fn check_says_what_cannot_be_and_what_no_longer_holds() {
    let folder = Folder::new();
    folder.write("site/index.html", "");
    let check = |text: &str| {
        let file = folder.write("forebay.toml", format!("root = \"site\"\n{text}"));
        let checked = Command::new(binary()).arg("check").arg("-c").arg(file).output().unwrap();
        let said = [checked.stdout, checked.stderr].concat();
        (checked.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let route = "[[hand_over]]\npath = \"/app\"\nto = \"unix:app.sock\"\n";
    let (is_good, said) = check(route);
    assert!(is_good, "{said}");
    let (is_good, said) = check(&format!("engine = \"isolated\"\n{route}"));
    assert!(!is_good && said.contains("no socket of a client"), "{said}");
    let (is_good, said) = check("[[hand_over]]\nto = \"127.0.0.1:9000\"\n");
    assert!(!is_good && said.contains("over a Unix socket"), "{said}");
    let rule = "[[rule]]\nname = \"slow down\"\npath = \"/app*\"\nrequests.rate = \"9/s\"\n";
    let (is_good, said) = check(&format!("{route}keep = true\n{rule}"));
    assert!(is_good && said.contains("no longer hold [[rule]] \"slow down\""), "{said}");
}

/// Without any receiver, clients still get an answer.
#[test]
fn nobody_listens() {
    let folder = Folder::new();
    folder.write("site/index.html", "");
    let lines = "[[hand_over]]\npath = \"/app\"\nto = \"unix:nowhere.sock\"\n";
    let server = Server::start(&Options::new(folder.join("site")).config(lines));
    let answer = server.exchange(post("/app").as_bytes());
    assert!(answer.starts_with(b"HTTP/1.1 502"), "{}", String::from_utf8_lossy(&answer));
}
