//! Spans beside other work of a server: calls of gRPC, upgrades, classes that wait, processes of stages
//! that end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::isolated::{signal, stage};
use crate::told::listen;
use crate::traces::{Collector, PARENT, SERVICE, SentSpan, TRACE, get, site, start};
use crate::upstream_http2::{Application, CALL};
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::http2::Client;
use forebay_tests::upgrade::upgrade;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Server, on_each_engine, on_isolated};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

on_each_engine!(
    calls_of_grpc_are_told_where_they_stand,
    a_refused_call_is_a_span_of_its_trace,
    a_stream_that_is_asked_again_is_told_its_own_span,
    an_upgrade_loses_no_span,
    a_wait_for_a_place_is_a_span,
);

on_isolated!(
    calls_of_grpc_are_told_where_they_stand,
    a_stream_that_is_asked_again_is_told_its_own_span,
    an_upgrade_loses_no_span,
);

/// Lines for an application of HTTP/2, and for clients whose trace context counts.
fn calls_to(app: &Application, collector: &Collector, more: &str) -> String {
    format!(
        "trusted_proxies = [\"127.0.0.0/8\"]\n{}[[proxy]]\npath = \"/\"\nto = \"http://{}\"\nhttp2 = true\n{more}",
        collector.lines(SERVICE),
        app.addr,
    )
}

/// Makes a call with a trace of its own. Returns the answer.
fn call(server: &Server, path: &str) -> forebay_tests::http2::Answer {
    let mut client = Client::connect(server.addr());
    let parent = PARENT.trim_end().strip_prefix("traceparent: ").unwrap();
    let fields = [CALL[0], CALL[1], ("traceparent", parent)];
    let stream = client.begin("POST", path, &fields, true);
    client.answer(stream)
}

/// The trace and the span that an application got.
fn told(body: &[u8]) -> (u128, String) {
    let text = std::str::from_utf8(body).unwrap();
    let parts: Vec<_> = text.split('-').collect();
    let ["00", trace, span, "01"] = parts[..] else { panic!("it was told {text:?}") };
    (u128::from_str_radix(trace, 16).unwrap(), span.to_owned())
}

fn calls_of_grpc_are_told_where_they_stand(engine: &str) {
    let (folder, collector, app) = (site(), Collector::start(), Application::start());
    let server = start(&folder, engine, &calls_to(&app, &collector, ""));
    let answer = call(&server, "/tell");
    let (trace, span) = told(&answer.body);
    assert_eq!(trace, TRACE);
    let is_told = |one: &SentSpan| one.span.kind == 3 && one.id_text() == span;
    let all = collector.until(|all| all.iter().any(is_told));
    let asked = all.iter().find(|one| is_told(one)).unwrap();
    let of_last_stage = |one: &&SentSpan| one.id() == asked.span.parent_span_id;
    let all = collector.until(|all| all.iter().any(|one| of_last_stage(&one)));
    let request = all.iter().find(of_last_stage).unwrap();
    assert_eq!(request.span.kind, 2);
    assert_eq!(
        (asked.text("http.response.status_code"), request.span.name.as_str()),
        ("200".into(), "POST")
    );
    assert!(all.iter().all(|one| one.span.trace_id == TRACE.to_be_bytes()), "{all:#?}");
}

fn a_refused_call_is_a_span_of_its_trace(engine: &str) {
    let (folder, collector, app) = (site(), Collector::start(), Application::start());
    let rule = "[[rule]]\nname = \"no calls\"\npath = \"/no\"\naction = \"reject\"\nstatus = 429\n";
    let server = start(&folder, engine, &calls_to(&app, &collector, rule));
    let answer = call(&server, "/no");
    assert_eq!((answer.status, answer.field("grpc-status")), (200, Some("8")));
    let spans = collector.trace_of("/no");
    let request = spans.iter().find(|one| one.span.kind == 2).unwrap();
    assert_eq!(request.span.trace_id, TRACE.to_be_bytes());
    for (key, expected) in [("forebay.verdict", "refused"), ("forebay.refused_by", "no calls")] {
        assert_eq!(request.text(key), expected, "{key}: {request:#?}");
    }
}

fn a_stream_that_is_asked_again_is_told_its_own_span(engine: &str) {
    let (folder, collector, app) = (site(), Collector::start(), Application::start());
    let server = start(&folder, engine, &calls_to(&app, &collector, ""));
    let (trace, span) = told(&call(&server, "/refuse-and-tell").body);
    assert_eq!(trace, TRACE);
    let is_told = |one: &SentSpan| one.span.kind == 3 && one.id_text() == span;
    let all = collector.until(|all| all.iter().any(is_told));
    let second = all.iter().find(|one| is_told(one)).unwrap();
    assert_eq!(second.text("http.request.resend_count"), "1", "{second:#?}");
    let mut beside = all.iter().filter(|one| {
        one.span.kind == 3
            && one.span.parent_span_id == second.span.parent_span_id
            && one.id() != second.id()
    });
    let first = beside.next().unwrap_or_else(|| panic!("{all:#?}"));
    assert!(!first.text("error.type").is_empty(), "{first:#?}");
}

/// An application that reports the path of its request, and answers when the test allows it.
fn waiting_application() -> (SocketAddr, Receiver<String>, Sender<()>) {
    let (asked, hears) = channel();
    let (release, released) = channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let addr = listen(move |mut stream| {
        let (mut head, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            head.extend_from_slice(&piece[..count]);
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            let path = String::from_utf8_lossy(&head).split(' ').nth(1).unwrap().to_owned();
            head.clear();
            if asked.send(path).is_err() || released.lock().unwrap().recv().is_err() {
                return;
            }
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").is_err() {
                return;
            }
        }
    });
    (addr, hears, release)
}

/// A request that is under way when another process takes over ends with the old one, which sends its
/// spans; the new one sends those of later requests.
fn an_upgrade_loses_no_span(engine: &str) {
    let (folder, collector) = (site(), Collector::start());
    let (app, asked, release) = waiting_application();
    let lines =
        format!("{}[[proxy]]\npath = \"/app\"\nto = \"http://{app}\"\n", collector.lines(SERVICE));
    let server = start(&folder, engine, &lines);
    let successor = thread::scope(|scope| {
        let before = scope.spawn(|| get(&server, "/app/before", ""));
        assert_eq!(asked.recv_timeout(PATIENCE).unwrap(), "/app/before");
        let successor = upgrade(&server);
        release.send(()).unwrap();
        assert!(before.join().unwrap().ends_with("done"));
        successor
    });
    assert!(get(&server, "/index.html", "").ends_with("hello"));
    for path in ["/app/before", "/index.html"] {
        let spans = collector.trace_of(path);
        assert!(spans.iter().any(|one| one.span.name == "send"), "{path}: {spans:#?}");
    }
    drop(successor);
}

/// A request that waits for a place at its application has a span for that, with its class.
fn a_wait_for_a_place_is_a_span(engine: &str) {
    let (folder, collector) = (site(), Collector::start());
    let (app, asked, release) = waiting_application();
    let lines = format!(
        "{}[[class]]\nname = \"gold\"\npriority = 1\ndefault = true\n[[class]]\nname = \"bulk\"\npriority = 2\n\
         [[proxy]]\npath = \"/app\"\nto = \"http://{app}\"\nin_flight = 1\nqueue.time = \"1h\"\n",
        collector.lines(SERVICE)
    );
    let server = WatchedServer::start(engine, &folder.join("site"), &lines);
    let mut http2 = Client::connect(server.addr());
    let first = http2.begin("GET", "/app/first", &[], true);
    assert_eq!(asked.recv_timeout(PATIENCE).unwrap(), "/app/first");
    let second = http2.begin("GET", "/app/second", &[], true);
    let waits = || server.metrics().contains("\nforebay_upstream_requests_waiting 1\n");
    assert!(soon(PATIENCE, waits), "{}", server.metrics());
    release.send(()).unwrap();
    assert_eq!(asked.recv_timeout(PATIENCE).unwrap(), "/app/second");
    release.send(()).unwrap();
    for stream in [first, second] {
        assert_eq!(http2.answer(stream).body, b"done");
    }
    let queue = |path: &str| {
        let spans = collector.trace_of(path);
        let request = spans.iter().find(|one| one.span.kind == 2).unwrap();
        assert_eq!(request.text("forebay.class"), "gold");
        spans.iter().filter(|one| one.span.name == "queue").count()
    };
    assert_eq!((queue("/app/first"), queue("/app/second")), (0, 1));
}

/// A process of a stage ends while it has a request: the attempt is a span that failed, and the next one
/// has the answer.
#[test]
fn a_killed_stage_is_an_attempt_that_failed() {
    let (folder, collector) = (site(), Collector::start());
    let (app, asked, release) = waiting_application();
    let lines = format!(
        "stages.process = 1\nstages.respond = 2\n{}[[proxy]]\npath = \"/app\"\nto = \"http://{app}\"\n",
        collector.lines(SERVICE)
    );
    let server = start(&folder, "event", &lines);
    thread::scope(|scope| {
        let answer = scope.spawn(|| get(&server, "/app/killed", ""));
        assert_eq!(asked.recv_timeout(PATIENCE).unwrap(), "/app/killed");
        // it is not known which of the two has the request: the other one is asked in any case
        let pids = ["respond 1", "respond 2"].map(|name| stage(&server, name, 0));
        for pid in pids {
            signal(pid, Signal::KILL);
        }
        assert!(soon(PATIENCE, || asked.try_recv().is_ok()), "{}", server.stderr());
        (0..3).for_each(|_| release.send(()).unwrap());
        assert!(answer.join().unwrap().ends_with("done"));
    });
    let failed = |one: &SentSpan| one.span.kind == 3 && !one.text("error.type").is_empty();
    let all = collector.until(|all| all.iter().any(failed));
    let first = all.iter().find(|one| failed(one)).unwrap();
    let again = |one: &SentSpan| {
        one.span.parent_span_id == first.span.parent_span_id
            && one.text("http.request.resend_count") == "1"
    };
    collector.until(|all| all.iter().any(again));
}
