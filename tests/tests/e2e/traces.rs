//! Spans of requests, as a collector gets them, decoded with the messages of OpenTelemetry's own crate.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::told::{listen, record, request_of_fastcgi};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::free_addr;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ISOLATED, Options, Server, on_each_engine};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

on_each_engine!(
    a_file_has_its_spans,
    applications_are_told_where_a_request_stands,
    attempts_are_spans_of_their_own,
    a_refusal_says_by_which_rule,
    stages_behind_it_hang_together,
);

/// A span, and the stage that has sent it.
#[derive(Clone, Debug)]
pub(crate) struct SentSpan {
    pub(crate) span: Span,
    stage: String,
}

impl SentSpan {
    /// An attribute as text; empty if there is none.
    pub(crate) fn text(&self, key: &str) -> String {
        value(&self.span.attributes, key)
    }

    /// The id of the span.
    pub(crate) fn id(&self) -> &[u8] {
        &self.span.span_id
    }

    /// The id as `traceparent` has it.
    pub(crate) fn id_text(&self) -> String {
        self.id().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether this span began and ended within the other.
    fn is_within(&self, other: &SentSpan) -> bool {
        other.span.start_time_unix_nano <= self.span.start_time_unix_nano
            && self.span.end_time_unix_nano <= other.span.end_time_unix_nano
            && self.span.start_time_unix_nano <= self.span.end_time_unix_nano
    }
}

/// An attribute as text; empty if there is none.
fn value(attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|one| one.key == key);
    match found.and_then(|one| one.value.clone()).and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// A running collector.
pub(crate) struct Collector {
    addr: SocketAddr,
    taken: Arc<Mutex<Vec<SentSpan>>>,
}

impl Collector {
    /// Starts a collector at an address of its own.
    pub(crate) fn start() -> Collector {
        Collector::at(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn at(listener: TcpListener) -> Collector {
        let (addr, taken) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<_>>>::default());
        let into = Arc::clone(&taken);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if let Some(request) = export_of(stream) {
                    into.lock().unwrap().extend(request);
                }
            }
        });
        Collector { addr, taken }
    }

    /// Lines with which all requests are recorded, and their spans come to this collector.
    pub(crate) fn lines(&self, more: &str) -> String {
        format!("[traces]\nto = \"http://{}\"\nrate = \"100%\"\n{more}\n", self.addr)
    }

    /// The spans, once `is_so` holds for them.
    pub(crate) fn until(&self, is_so: impl Fn(&[SentSpan]) -> bool) -> Vec<SentSpan> {
        let taken = || self.taken.lock().unwrap().clone();
        assert!(soon(PATIENCE, || is_so(&taken())), "{:#?}", taken());
        taken()
    }

    /// The spans of the trace with a request for this path, once they are there.
    pub(crate) fn trace_of(&self, path: &str) -> Vec<SentSpan> {
        let is_request = |one: &SentSpan| one.span.kind == 2 && one.text("url.path") == path;
        let all = self.until(|spans| spans.iter().any(is_request));
        let request = all.iter().find(|one| is_request(one)).unwrap();
        all.iter().filter(|one| one.span.trace_id == request.span.trace_id).cloned().collect()
    }
}

/// Reads the spans of one request to a collector, and answers it.
fn export_of(stream: TcpStream) -> Option<Vec<SentSpan>> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line).ok()?;
    assert!(line.starts_with("POST /v1/traces HTTP/1.1"), "{line}");
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let field = line.split_once(": ").map(|(name, value)| (name, value.trim()));
        match field {
            Some(("Content-Length", value)) => length = value.parse().unwrap(),
            Some(("Content-Type", kind)) => assert_eq!(kind, "application/x-protobuf"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request = ExportTraceServiceRequest::decode(&body[..]).unwrap();
    (&stream)
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .ok()?;
    let mut spans = Vec::new();
    for resource in request.resource_spans {
        let attributes = resource.resource.unwrap().attributes;
        assert_eq!(value(&attributes, "service.name"), "shop");
        let stage = value(&attributes, "forebay.stage");
        for scope in resource.scope_spans {
            assert_eq!(scope.scope.unwrap().name, "forebay");
            let told = |span| SentSpan { span, stage: stage.clone() };
            spans.extend(scope.spans.into_iter().map(told));
        }
    }
    Some(spans)
}

/// An application that answers with the head of the request.
pub(crate) fn application() -> SocketAddr {
    listen(|stream| {
        let mut writer = stream.try_clone().unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while reader.read_line(&mut head).is_ok_and(|read| read > 0) {
            if head.ends_with("\r\n\r\n") {
                let answer =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len());
                if writer.write_all(answer.as_bytes()).is_err() {
                    return;
                }
                head.clear();
            }
        }
    })
}

/// A folder for [`start`].
pub(crate) fn site() -> Folder {
    let folder = Folder::new();
    folder.write("site/index.html", "hello");
    folder
}

/// A server with one file.
pub(crate) fn start(folder: &Folder, engine: &str, lines: &str) -> Server {
    let root = folder.join("site");
    Server::start(&Options::new(root).engine(engine).config(lines))
}

/// The answer to a request with these fields.
pub(crate) fn get(server: &Server, path: &str, fields: &str) -> String {
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n{fields}\r\n");
    String::from_utf8_lossy(&server.exchange(head.as_bytes())).into_owned()
}

/// The name of the service, which the collector expects.
pub(crate) const SERVICE: &str = "service = \"shop\"";

/// The trace context of a trusted proxy.
pub(crate) const PARENT: &str =
    "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
/// The trace of [`PARENT`].
pub(crate) const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;

fn a_file_has_its_spans(engine: &str) {
    let (folder, collector) = (site(), Collector::start());
    let server = start(&folder, engine, &collector.lines(SERVICE));
    assert!(get(&server, "/index.html?secret", PARENT).ends_with("hello"));
    let spans = collector.trace_of("/index.html");
    let request = spans.iter().find(|one| one.span.kind == 2).unwrap();
    assert_ne!(request.span.trace_id, TRACE.to_be_bytes(), "a stranger's word for it");
    assert_eq!(request.span.name, "GET");
    assert!(request.span.parent_span_id.is_empty());
    for (key, expected) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("http.response.body.size", "5"),
        ("url.scheme", if server.is_sealed() { "https" } else { "http" }),
        ("server.address", "shop.example"),
        ("client.address", "127.0.0.1"),
        ("forebay.site", "default"),
        ("error.type", ""),
        ("forebay.class", ""),
    ] {
        assert_eq!(request.text(key), expected, "{key}: {request:#?}");
    }
    let names: Vec<_> = spans.iter().map(|one| one.span.name.as_str()).collect();
    // the first request for a path is a job
    for name in ["receive", "job", "send"] {
        let part = spans.iter().find(|one| one.span.name == name);
        let part = part.unwrap_or_else(|| panic!("{name}: {names:?}"));
        assert_eq!(part.span.parent_span_id, request.id(), "{name}");
        assert!(part.is_within(request), "{name}: {spans:#?}");
    }
}

fn applications_are_told_where_a_request_stands(engine: &str) {
    let (folder, collector) = (site(), Collector::start());
    let program = listen(|mut stream| {
        let Some(params) = request_of_fastcgi(&mut stream) else { return };
        let said = |name: &str| params.get(name).cloned().unwrap_or_default();
        let text = format!(
            "Content-Type: text/plain\r\n\r\ntraceparent: {}\ntracestate: {}\n",
            said("HTTP_TRACEPARENT"),
            said("HTTP_TRACESTATE")
        );
        let answer = [record(6, text.as_bytes()), record(6, b""), record(3, &[0; 8])].concat();
        let _ = stream.write_all(&answer);
    });
    let lines = format!(
        "{}[[proxy]]\npath = \"/app\"\nto = \"http://{}\"\n\
         [[fastcgi]]\npath = \"/run\"\nto = \"{program}\"\ncheck_local = false\n",
        collector.lines(SERVICE),
        application(),
    );
    for trusted in [false, true] {
        let top = if trusted { "trusted_proxies = [\"127.0.0.0/8\"]\n" } else { "" };
        let server = start(&folder, engine, &format!("{top}{lines}"));
        let fields = format!("{PARENT}tracestate: a=1\r\nTraceState: b=2\r\n");
        for (path, name) in [("/app", "proxy"), ("/run", "fastcgi")] {
            let path = format!("{path}/{trusted}.php");
            let answer = get(&server, &path, &fields);
            let told = |name: &str| {
                let mut lines = answer.lines().filter_map(|line| line.split_once(": "));
                let (_, value) = lines.find(|(key, _)| *key == name).unwrap_or_default();
                value.to_owned()
            };
            assert_eq!(told("tracestate"), if trusted { "a=1,b=2" } else { "" }, "{name} {answer}");
            let parent = told("traceparent");
            let parts: Vec<_> = parent.split('-').collect();
            let [version, trace, span, flags] = parts[..] else { panic!("{name} {answer}") };
            assert_eq!((version, flags), ("00", "01"));
            let trace = u128::from_str_radix(trace, 16).unwrap();
            assert_eq!(trace == TRACE, trusted, "{name} {answer}");
            let spans = collector.trace_of(&path);
            let is_it = |one: &&SentSpan| one.span.kind == 2 && one.text("url.path") == path;
            let request = spans.iter().find(is_it).unwrap();
            assert_eq!(request.span.trace_id, trace.to_be_bytes());
            assert_eq!(request.span.parent_span_id.is_empty(), !trusted);
            assert_eq!(request.span.trace_state, told("tracestate"));
            let mut below = spans.iter().filter(|one| one.span.parent_span_id == request.id());
            let asked = below.find(|one| one.span.kind == 3).unwrap();
            assert_eq!(asked.id(), u64::from_str_radix(span, 16).unwrap().to_be_bytes());
            assert_eq!(asked.text("http.response.status_code"), "200");
            assert!(asked.is_within(request), "{spans:#?}");
        }
    }
    // what the proxy has not recorded is not recorded here, and the application gets that flag
    let server = start(&folder, engine, &format!("trusted_proxies = [\"127.0.0.0/8\"]\n{lines}"));
    let not = PARENT.replace("-01\r", "-00\r");
    assert!(get(&server, "/app/not", &not).contains("-00\r\n"));
    assert!(get(&server, "/app/then", PARENT).contains("-01\r\n"));
    let all = collector.until(|all| all.iter().any(|one| one.text("url.path") == "/app/then"));
    assert!(!all.iter().any(|one| one.text("url.path") == "/app/not"));
}

fn attempts_are_spans_of_their_own(engine: &str) {
    let (folder, collector, dead) = (site(), Collector::start(), free_addr());
    let good = application();
    let lines = format!(
        "{}[[proxy]]\npath = \"/app\"\nto = [\"http://{dead}\", \"http://{good}\"]\nretries = 1\n",
        collector.lines(SERVICE)
    );
    let server = start(&folder, engine, &lines);
    // one of the two requests begins with the application that is not there
    let answers: Vec<_> = (0..2).map(|at| get(&server, &format!("/app/{at}"), "")).collect();
    let all = collector.until(|all| {
        let of_requests = all.iter().filter(|one| one.span.kind == 2);
        of_requests.count() == 2
    });
    let failed = all.iter().find(|one| one.text("server.port") == dead.port().to_string());
    let failed = failed.unwrap_or_else(|| panic!("{all:#?}"));
    assert_eq!((failed.span.kind, failed.text("error.type").as_str()), (3, "connect"));
    assert_eq!(failed.span.status.as_ref().map(|status| status.code), Some(2));
    let mut others = all.iter().filter(|one| {
        one.span.kind == 3 && one.id() != failed.id() && one.span.trace_id == failed.span.trace_id
    });
    let second = others.next().unwrap();
    assert_eq!(second.text("http.request.resend_count"), "1");
    assert_eq!(second.span.parent_span_id, failed.span.parent_span_id);
    // the second attempt got the id of its own span
    let id = format!("-{}-01", second.id_text());
    assert!(answers.iter().any(|answer| answer.contains(&id)), "{answers:?}");
}

fn a_refusal_says_by_which_rule(engine: &str) {
    let (folder, collector) = (site(), Collector::start());
    let lines = format!(
        "{}[[class]]\nname = \"gold\"\npriority = 1\n[[class]]\nname = \"bulk\"\npriority = 2\ndefault = true\n\
         [[rule]]\nname = \"closed\"\npath = \"/closed*\"\naction = \"reject\"\n",
        collector.lines(SERVICE)
    );
    let server = start(&folder, engine, &lines);
    let refused = get(&server, "/closed", "");
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    assert!(get(&server, "/index.html", "").ends_with("hello"));
    let spans = collector.trace_of("/closed");
    let request = spans.iter().find(|one| one.span.kind == 2).unwrap();
    for (key, expected) in [
        ("forebay.verdict", "refused"),
        ("forebay.refused_by", "closed"),
        ("forebay.class", "bulk"),
        ("forebay.level", "normal"),
        ("http.response.status_code", "403"),
        ("error.type", ""),
    ] {
        assert_eq!(request.text(key), expected, "{key}: {request:#?}");
    }
    // the id on the page leads to the trace
    let id: String = request.span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(request.text("forebay.request_id"), id);
    assert!(refused.contains(&id), "{id}: {refused}");
    let spans = collector.trace_of("/index.html");
    let request = spans.iter().find(|one| one.span.kind == 2).unwrap();
    assert_eq!(request.text("forebay.verdict"), "admitted");
}

/// Each stage has a span of the request, below the span by which the stage before has asked it.
#[test]
fn stages_hang_together() {
    each_stage_has_its_span(ISOLATED, "");
}

/// Each stage has a span where the stages are behind an engine, too.
fn stages_behind_it_hang_together(engine: &str) {
    each_stage_has_its_span(engine, "stages.process = 1\nstages.respond = 1\n");
}

fn each_stage_has_its_span(engine: &str, top: &str) {
    let (folder, collector) = (site(), Collector::start());
    let lines = format!(
        "{top}{}[[proxy]]\npath = \"/app\"\nto = \"http://{}\"\n",
        collector.lines(SERVICE),
        application(),
    );
    let server = start(&folder, engine, &lines);
    let answer = get(&server, "/app", PARENT);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let of_stage = |spans: &[SentSpan], kind: i32, stage: &str| {
        spans.iter().find(|one| one.span.kind == kind && one.stage == stage).cloned()
    };
    let stages = ["receive", "process", "respond"];
    // each of them sends its own
    let all = collector.until(|all| {
        stages
            .iter()
            .all(|stage| of_stage(all, 2, stage).is_some() && of_stage(all, 3, stage).is_some())
    });
    let first = of_stage(&all, 2, "receive").unwrap();
    assert!(first.span.parent_span_id.is_empty(), "a stranger's word for it");
    for pair in stages.windows(2) {
        let (before, after) =
            (of_stage(&all, 3, pair[0]).unwrap(), of_stage(&all, 2, pair[1]).unwrap());
        assert_eq!(after.span.trace_id, first.span.trace_id);
        assert_eq!(after.span.parent_span_id, before.id(), "{pair:?}: {all:#?}");
    }
    // the application gets the last of them
    let last = of_stage(&all, 3, "respond").unwrap();
    assert!(answer.contains(&format!("-{}-01", last.id_text())), "{answer}");
}

/// A collector that is gone, or does not answer, does not affect clients; spans that it misses are
/// counted.
#[test]
fn without_a_collector_requests_are_answered_and_spans_are_counted() {
    let folder = site();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap();
    let lines = |addr: SocketAddr| {
        format!("[traces]\nto = \"http://{addr}\"\nrate = \"100%\"\n{SERVICE}\n")
    };
    let server = start(&folder, "event", &lines(addr));
    let mut client = server.connect();
    let request = b"GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n";
    for _ in 0..3000 {
        client.write_all(request).unwrap();
        let mut answer = [0; 4096];
        assert!(client.read(&mut answer).unwrap() > 0);
    }
    // spans that were not taken are sent again when the collector takes them
    let collector = Collector::at(silent);
    collector.until(|all| all.iter().filter(|one| one.span.kind == 2).count() > 1000);
}

/// A reload can send spans elsewhere, or nowhere.
#[test]
fn a_reload_decides_where_spans_go() {
    let (folder, first, second) = (site(), Collector::start(), Collector::start());
    let server = start(&folder, "event", &first.lines(SERVICE));
    let options = |lines: &str| Options::new(folder.join("site")).engine("event").config(lines);
    get(&server, "/index.html?1", "");
    first.trace_of("/index.html");
    server.configure(&options(&second.lines(SERVICE)));
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    get(&server, "/index.html?2", "");
    second.trace_of("/index.html");
    server.configure(&options(""));
    assert_eq!(server.reload().0, Some(0));
    get(&server, "/off", "");
    server.configure(&options(&second.lines(SERVICE)));
    assert_eq!(server.reload().0, Some(0));
    get(&server, "/on", "");
    let all = second.until(|all| all.iter().any(|one| one.text("url.path") == "/on"));
    assert!(!all.iter().any(|one| one.text("url.path") == "/off"));
}
