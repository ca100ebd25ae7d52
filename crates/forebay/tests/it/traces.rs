//! Handlers and spans: a handler gets the trace context of its request, and asking it is a span.

use crate::client::{Client, LONG, soon};
use crate::handlers::builder;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

on_each_engine! {
    a_handler_is_told_where_its_request_stands,
    a_handler_that_fails_has_its_span,
}

/// The trace context of a trusted proxy, and its ids as OTLP writes them.
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: [u8; 16] = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();

/// A collector whose bytes are searched: ids and texts of spans stand in them as they are.
struct Collector {
    addr: SocketAddr,
    taken: Arc<Mutex<Vec<u8>>>,
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, taken) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let into = Arc::clone(&taken);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                into.lock().unwrap().extend(body_of(&stream));
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = (&stream).write_all(answer);
            }
        });
        Collector { addr, taken }
    }

    fn has(&self, bytes: &[u8]) -> bool {
        self.taken.lock().unwrap().windows(bytes.len()).any(|part| part == bytes)
    }
}

/// Reads the body of a request.
fn body_of(stream: &TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim_end().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    body
}

/// Decodes hexadecimal digits.
fn bytes(digits: &str) -> Vec<u8> {
    u64::from_str_radix(digits, 16).unwrap().to_be_bytes().to_vec()
}

fn a_handler_is_told_where_its_request_stands(engine: &str) {
    let collector = Collector::start();
    let server = builder(engine)
        .config("trusted_proxies = [\"127.0.0.0/8\"]")
        .set("traces.to", format!("http://{}", collector.addr))
        .set("traces.rate", "0%")
        .handler("/told", |request, response| {
            let said = |name: &str| request.field(name).unwrap_or("nothing").to_owned();
            Ok(response.text(format!("{} {}", said("traceparent"), said("tracestate")))?)
        })
        .start()
        .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    let asked = |fields: &str| format!("GET /told HTTP/1.1\r\nHost: here\r\n{fields}\r\n");
    let answer = client.ask(&asked(&format!("traceparent: {PARENT}\r\ntracestate: a=1\r\n")));
    let (place, state) = answer.text().split_once(' ').unwrap();
    let parts: Vec<_> = place.split('-').collect();
    assert_eq!((parts.len(), parts[0], parts[3], state), (4, "00", "01", "a=1"), "{place}");
    assert_eq!(u128::from_str_radix(parts[1], 16).unwrap().to_be_bytes(), TRACE);
    assert_ne!(parts[2], "00f067aa0ba902b7", "a span of its own");
    // the span that the handler got is one of those that the collector has
    soon("its spans", || collector.has(&TRACE) && collector.has(&bytes(parts[2])));
    assert!(collector.has(b"upstream") && collector.has(b"/told"));
    // what the proxy does not record is not recorded, and the handler can see that
    let answer = client.ask(&asked(&format!("traceparent: {}00\r\n", &PARENT[..53])));
    assert!(answer.text().ends_with("-00 nothing"), "{}", answer.text());
}

fn a_handler_that_fails_has_its_span(engine: &str) {
    let collector = Collector::start();
    let server = builder(engine)
        .set("traces.to", format!("http://{}", collector.addr))
        .set("traces.rate", "100%")
        .handler("/error", |_, _| Err("no".into()))
        .handler("/well", |_, response| Ok(response.text("well")?))
        .start()
        .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    assert_eq!(client.get("/error").status, 500);
    assert_eq!(client.get("/well").text(), "well");
    soon("their spans", || collector.has(b"/error") && collector.has(b"/well"));
    assert!(collector.has(b"error.type"));
    // spans that wait are sent before the server has ended
    assert_eq!(client.get("/well/last").text(), "well");
    server.stop().unwrap();
    assert!(collector.has(b"/well/last"));
}
