//! Requests of clients whose sockets are useless to a receiver (`relay = true`): through TLS and over
//! HTTP/2 it gets one end of a pair of sockets, and its answer is passed on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::hand_over::{echo, last_get};
use forebay_tests::faults::process::open_descriptors;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::http2;
use forebay_tests::receiver::{ReceivedRequest, SocketReceiver};
use forebay_tests::server::free_addr;
use forebay_tests::tls::{Authority, TlsStream};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, on_each_engine};
use rcgen::PKCS_ECDSA_P256_SHA256 as ECDSA;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::mpsc;
use std::thread;

on_each_engine!(
    the_same_receiver_answers_through_tls,
    bodies_go_and_answers_come_as_fast_as_they_are_taken,
    streams_are_answered_at_once,
    an_answer_may_end_with_its_connection,
    what_was_not_taken_goes_to_another,
    who_dies_or_hangs_is_told_of,
    a_client_that_leaves_ends_the_pair,
    links_are_kept_and_nothing_is_lost,
);

const HOST: &str = "a.example";

/// A server that speaks TLS at the second address.
pub(crate) struct Sealed {
    authority: Authority,
    at: SocketAddr,
    served: WatchedServer,
    _folder: Folder,
}

fn serve(engine: &str, to: &[&SocketReceiver], more: &str) -> Sealed {
    let to: Vec<_> = to.iter().map(|one| one.to()).collect();
    serve_to(engine, &to, more)
}

/// Starts a server that hands over to receivers at these sockets.
pub(crate) fn serve_to(engine: &str, to: &[String], more: &str) -> Sealed {
    let (folder, authority, at) = (Folder::new(), Authority::new(), free_addr());
    folder.write("site/index.html", "a static page");
    authority.write(folder.path(), "a", &[HOST], &ECDSA);
    let to: Vec<_> = to.iter().map(|one| format!("{one:?}")).collect();
    let file = |end: &str| folder.path().join(format!("a.{end}"));
    let lines = format!(
        "[tls]\ncertificate = [{:?}]\nkey = [{:?}]\n[[listener]]\nlisten = [\"https://{at}\"]\n\
         [[hand_over]]\npath = \"/app\"\nrelay = true\nto = [{}]\n{more}\n",
        file("crt"),
        file("key"),
        to.join(", ")
    );
    let options = Options::new(folder.join("site")).engine(engine).config(&lines);
    let served = WatchedServer::with(options);
    Sealed { authority, at, served, _folder: folder }
}

impl Sealed {
    /// A client over HTTP/2 without TLS.
    pub(crate) fn http2_in_clear(&self) -> http2::Client {
        http2::Client::connect(self.served.listens_at())
    }

    fn connect(&self) -> TlsStream {
        let stream = self.authority.connect(self.at, HOST);
        stream.sock.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn http2(&self) -> http2::Client {
        http2::Client::sealed(&self.authority, self.at, HOST)
    }

    /// Asks on a connection of its own, and returns all bytes that come.
    pub(crate) fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut all = Vec::new();
        // a connection that is reset keeps the bytes that came before
        let _ = stream.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    }
}

pub(crate) fn post(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab")
}

fn the_same_receiver_answers_through_tls(engine: &str) {
    let receiver = SocketReceiver::start(|handed| {
        assert!(handed.lines.contains("client 127.0.0.1:"), "{}", handed.lines);
        assert!(handed.text().contains("\r\nHost: "), "{}", handed.text());
        echo(handed);
    });
    let sealed = serve(engine, &[&receiver], "");
    for number in 0..5 {
        let answer = sealed.ask(&last_get(&format!("/app/{number}?q")));
        assert!(answer.ends_with(&format!("handed /app/{number}?q")), "{answer}");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    // on a connection that stays, between static files
    let mut stream = sealed.connect();
    for path in ["/app/a", "/", "/app/b", "/"] {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    }
    stream.write_all(last_get("/app/last").as_bytes()).unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    let mut rest = all.as_str();
    for part in ["handed /app/a", "a static page", "handed /app/b", "a static page", "app/last"] {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part} is missing in {all}"));
        rest = &rest[at + part.len()..];
    }
    let mut client = sealed.http2();
    assert_eq!(client.get("/app/h2").body, b"handed /app/h2");
    assert_eq!(client.get("/").body, b"a static page");
    // over HTTP/2 without TLS, too; and the socket itself, where it is of use
    let mut client = sealed.http2_in_clear();
    assert_eq!(client.get("/app/clear").body, b"handed /app/clear");
    let plain = forebay_tests::wire::connect(sealed.served.listens_at());
    let mut plain = forebay_tests::faults::client::Client::over(plain);
    assert_eq!(plain.get("/app/plain").unwrap().body, b"handed /app/plain");
}

const LARGE: usize = 4 << 20;

/// Reads a body of a known length, and answers with its length.
fn swallow(handed: &mut ReceivedRequest) {
    handed.take();
    let body = handed.text().split_once("\r\n\r\n").unwrap().1.len();
    let rest = handed.rest();
    assert_eq!(body + rest.len(), LARGE);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
    handed.client.write_all(head.as_bytes()).unwrap();
    let _ = handed.client.write_all(&vec![b'y'; LARGE]);
    handed.report(b'D', 200, LARGE as u64);
}

fn bodies_go_and_answers_come_as_fast_as_they_are_taken(engine: &str) {
    let receiver = SocketReceiver::start(swallow);
    let sealed = serve(engine, &[&receiver], "");
    let mut stream = sealed.connect();
    let head = format!(
        "POST /app HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b'x'; LARGE]).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let head = all.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(all.len() - head, LARGE);
    assert!(all[head..].iter().all(|byte| *byte == b'y'));
    let mut client = sealed.http2();
    let length = LARGE.to_string();
    let stream = client.begin("POST", "/app", &[("content-length", &length)], false);
    client.send_all(stream, &vec![b'x'; LARGE]);
    assert_eq!(client.answer(stream).body.len(), LARGE);
}

fn streams_are_answered_at_once(engine: &str) {
    const STREAMS: usize = 40;
    let (says, hears) = mpsc::channel();
    let receiver = SocketReceiver::start(move |handed| {
        says.send(()).unwrap();
        echo(handed);
    });
    let sealed = serve(engine, &[&receiver], "in_flight = 8");
    let mut client = sealed.http2();
    let paths: Vec<String> = (0..STREAMS).map(|number| format!("/app/{number}")).collect();
    let asked: Vec<(&str, &[(&str, &str)])> =
        paths.iter().map(|path| (path.as_str(), &[][..])).collect();
    let streams = client.ask_at_once(&asked);
    for (stream, path) in streams.into_iter().zip(&paths) {
        let answer = client.answer(stream);
        assert_eq!(answer.body, format!("handed {path}").as_bytes());
        assert!(answer.is_whole);
    }
    assert_eq!(hears.try_iter().count(), STREAMS);
}

fn an_answer_may_end_with_its_connection(engine: &str) {
    let receiver = SocketReceiver::start(|handed| {
        handed.take();
        let _ = handed.client.write_all(b"HTTP/1.0 200 OK\r\n\r\nuntil the end");
        match handed.target().as_str() {
            // a child has the descriptor still
            "/app/child" => {
                let child = handed.client.try_clone().unwrap();
                handed.report(b'D', 200, 13);
                thread::spawn(move || {
                    let _ = (&child).read(&mut [0; 1]);
                });
            }
            "/app/dies" => {
                let _ = handed.client.shutdown(Shutdown::Both);
                handed.hang_up();
            }
            _ => {
                let _ = handed.client.shutdown(Shutdown::Both);
                handed.report(b'D', 200, 13);
            }
        }
    });
    let sealed = serve(engine, &[&receiver], "max_fails = 0");
    for path in ["/app", "/app/child"] {
        let answer = sealed.ask(&last_get(path));
        assert!(answer.contains("until the end"), "{path}: {answer}");
        let mut client = sealed.http2();
        let answer = client.get(path);
        assert_eq!((answer.body.as_slice(), answer.is_whole), (&b"until the end"[..], true));
    }
    // a request without a report of its end has not ended
    let mut client = sealed.http2();
    let stream = client.ask("/app/dies");
    let answer = client.answer(stream);
    assert!(answer.reset.is_some() && !answer.is_whole, "{answer:?}");
}

fn what_was_not_taken_goes_to_another(engine: &str) {
    let bad = SocketReceiver::start(ReceivedRequest::hang_up);
    let good = SocketReceiver::start(echo);
    let more = "balance = \"round-robin\"\nmax_fails = 0\nretry_budget = \"100%\"";
    let sealed = serve(engine, &[&bad, &good], more);
    for _ in 0..6 {
        assert!(sealed.ask(&last_get("/app")).ends_with("handed /app"));
    }
    assert!(bad.offered() >= 2, "{}", bad.offered());
    let answers: Vec<_> = (0..6).map(|_| sealed.ask(&post("/app"))).collect();
    let refused = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 502")).count();
    let answered = answers.iter().filter(|answer| answer.ends_with("handed /app")).count();
    assert_eq!((refused > 0, answered > 0, refused + answered), (true, true, 6), "{answers:?}");
}

fn who_dies_or_hangs_is_told_of(engine: &str) {
    let receiver = SocketReceiver::start(|handed| {
        let target = handed.target();
        if !target.contains("never") {
            handed.take();
        }
        if target.contains("half") {
            let _ = handed.client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        }
        if target.contains("without") {
            let _ = handed.client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlies");
        }
        match target.contains("hangs") {
            true => handed.wait_for_end(),
            false => handed.hang_up(),
        }
    });
    let more = "max_fails = 0\nretries = 3\nretry_budget = \"100%\"\ntimeouts.taken = \"200ms\"\n\
                timeouts.done = \"300ms\"";
    let sealed = serve(engine, &[&receiver], more);
    for request in [last_get("/app"), post("/app")] {
        let answer = sealed.ask(&request);
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    }
    assert_eq!(receiver.offered(), 2, "what was taken goes to nobody else");
    for path in ["/app/hangs", "/app/never/hangs"] {
        let answer = sealed.ask(&post(path));
        assert!(answer.starts_with("HTTP/1.1 504"), "{path}: {answer}");
        assert_eq!(sealed.http2().get(path).status, 504, "{path}");
    }
    // nothing is believed that was written without taking the request
    assert!(sealed.ask(&post("/app/never/without")).starts_with("HTTP/1.1 502"));
    let mut client = sealed.http2();
    let stream = client.ask("/app/half");
    let answer = client.answer(stream);
    assert!(answer.reset.is_some() && !answer.is_whole, "{answer:?}");
    // other requests on the connection go on
    assert_eq!(client.get("/").body, b"a static page");
}

fn a_client_that_leaves_ends_the_pair(engine: &str) {
    let (says, hears) = mpsc::channel();
    let receiver = SocketReceiver::start(move |handed| {
        handed.take();
        says.send("has it").unwrap();
        let end = handed.client.read(&mut [0; 1]);
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
        says.send("sees the end").unwrap();
        handed.report(b'D', 0, 0);
    });
    let sealed = serve(engine, &[&receiver], "in_flight = 1\nabort_on_close = true");
    for _ in 0..2 {
        let mut stream = sealed.connect();
        stream.write_all(last_get("/app").as_bytes()).unwrap();
        assert_eq!(hears.recv_timeout(PATIENCE), Ok("has it"));
        drop(stream);
        assert_eq!(hears.recv_timeout(PATIENCE), Ok("sees the end"));
    }
    let mut client = sealed.http2();
    let stream = client.ask("/app");
    assert_eq!(hears.recv_timeout(PATIENCE), Ok("has it"));
    client.reset(stream);
    assert_eq!(hears.recv_timeout(PATIENCE), Ok("sees the end"));
    let in_flight = || sealed.served.metric_if_answered("forebay_upstream_requests_in_flight");
    assert!(soon(PATIENCE, || in_flight() == Some(0)), "{:?}", in_flight());
}

fn links_are_kept_and_nothing_is_lost(engine: &str) {
    let receiver = SocketReceiver::start(echo);
    let sealed = serve(engine, &[&receiver], "in_flight = 4");
    let pid = sealed.served.pid();
    let open = || sealed.served.metric_if_answered("forebay_connections");
    sealed.ask(&last_get("/app"));
    assert!(soon(PATIENCE, || open() == Some(0)));
    let before = open_descriptors(pid);
    for _ in 0..20 {
        let mut client = sealed.http2();
        for _ in 0..3 {
            assert_eq!(client.get("/app/a").body, b"handed /app/a");
        }
        assert!(sealed.ask(&last_get("/app/b")).ends_with("handed /app/b"));
    }
    assert!(soon(PATIENCE, || open() == Some(0)));
    // links that are kept are some, in each loop
    let now = || open_descriptors(pid);
    assert!(soon(PATIENCE, || now() <= before + 16), "{before} before, {} now", now());
    let answered = || sealed.served.metric("forebay_upstream_requests_total{result=\"answered\"}");
    assert!(soon(PATIENCE, || answered() == 81), "{}", answered());
}
