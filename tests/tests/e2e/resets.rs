//! Requests that their client gives up over HTTP/2 as soon as it has made them, and the part of them that
//! an application gets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::queue::Gate;
use forebay_http2::ErrorCode;
use forebay_tests::faults::WatchedServer;
use forebay_tests::faults::site::Folder;
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{ISOLATED, Options, http2, on_each_engine};
use rustix::net::sockopt::set_socket_linger;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

on_each_engine!(
    what_is_given_up_in_the_same_write_is_not_asked_for,
    what_is_given_up_later_keeps_its_place,
    what_a_client_gives_up_is_summed_over_its_connections,
    a_connection_that_closes_counts_with_all_its_requests,
    who_takes_nothing_keeps_no_place,
    a_trusted_proxy_may_give_up_what_its_clients_do,
);

/// With stages, requests that are given up count in receive, and wait there.
#[test]
fn between_stages_no_more_is_asked_for() {
    what_is_given_up_in_the_same_write_is_not_asked_for(ISOLATED);
    what_a_client_gives_up_is_summed_over_its_connections(ISOLATED);
    a_trusted_proxy_may_give_up_what_its_clients_do(ISOLATED);
}

/// The bytes that every client sends first, and empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The frame of a GET without a body, in literals.
fn get(stream: u32, path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x01, 1, b'a', 0x04, u8::try_from(path.len()).unwrap()];
    block.extend(path.as_bytes());
    frame(1, 0b101, stream, &block)
}

/// The frames of a POST with a short body, which [`Gate`] sends back.
fn post(stream: u32, path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x01, 1, b'a', 0x04, u8::try_from(path.len()).unwrap()];
    block.extend(path.as_bytes());
    block.extend([0x0f, 13, 2, b'1', b'0']);
    [frame(1, 0b100, stream, &block), frame(0, 1, stream, b"0123456789")].concat()
}

fn reset(stream: u32) -> Vec<u8> {
    frame(3, 0, stream, &8u32.to_be_bytes())
}

fn serve(engine: &str, gate: &Gate, more: &str) -> (WatchedServer, Folder) {
    serve_with(engine, gate, more, "in_flight = 4\nqueue.time = \"5m\"")
}

fn serve_with(engine: &str, gate: &Gate, more: &str, route: &str) -> (WatchedServer, Folder) {
    let folder = Folder::new();
    let lines =
        format!("{more}\n[[proxy]]\npath = \"/\"\nto = \"http://{}\"\n{route}\n", gate.addr);
    let options = Options::new(folder.join("")).engine(engine).config(&lines);
    (WatchedServer::with(options), folder)
}

/// Three hundred requests are given up, more than may be under way; the request behind them is not.
fn what_is_given_up_in_the_same_write_is_not_asked_for(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, "");
    let mut bytes = PREFACE.to_vec();
    for stream in (1..600).step_by(2) {
        bytes.extend(get(stream, "/given-up"));
        bytes.extend(reset(stream));
    }
    bytes.extend(get(601, "/wanted"));
    let mut client = wire::connect(served.addr());
    client.write_all(&bytes).unwrap();
    gate.has(1);
    // a kernel may cut the write between a request and its end
    let came = gate.came();
    let given_up = came.iter().filter(|path| *path == "/given-up").count();
    assert!(given_up <= 6 && came.contains(&"/wanted".to_owned()), "{engine}: {came:?}");
    gate.answer(came.len());
}

/// No more requests are under way than may be, whatever their clients do.
fn what_is_given_up_later_keeps_its_place(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, "");
    let stream = wire::connect(served.addr());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = http2::Client::on(stream);
    for number in 1..=4 {
        let stream = client.ask("/given-up");
        gate.has(number);
        client.reset(stream);
    }
    let waits = client.ask("/waits");
    thread::sleep(Duration::from_millis(200));
    assert_eq!(gate.came().len(), 4, "{engine}: {:?}", gate.came());
    gate.answer(4);
    gate.has(5);
    gate.answer(1);
    assert_eq!(client.answer(waits).status, 200, "{engine}");
}

/// Makes requests on a connection of its own, and gives them up at once or not.
fn make(served: &WatchedServer, count: u32, gives_up: bool) -> TcpStream {
    let mut bytes = PREFACE.to_vec();
    for stream in (1..2 * count).step_by(2) {
        bytes.extend(get(stream, "/given-up"));
        if gives_up {
            bytes.extend(reset(stream));
        }
    }
    bytes.extend(frame(6, 0, 0, b"still up"));
    let mut client = wire::connect(served.addr());
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    // the connection may end before everything is written
    let _ = client.write_all(&bytes);
    client
}

/// Makes 900 requests that are given up at once: fewer than end a connection. Returns whether the
/// connection is still there.
fn give_up_900(served: &WatchedServer) -> bool {
    let ended = why_it_ended(&mut make(served, 900, true));
    assert!(ended.is_none_or(|code| code == ErrorCode::ENHANCE_YOUR_CALM.0), "{ended:?}");
    ended.is_none()
}

/// The code of the GOAWAY that comes; `None` if a PING is answered before.
fn why_it_ended(client: &mut TcpStream) -> Option<u32> {
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        client.read_exact(&mut payload).unwrap();
        match (head[3], head[4]) {
            (6, 1) => return None,
            (7, _) => return Some(u32::from_be_bytes(payload[4..8].try_into().unwrap())),
            _ => {}
        }
    }
}

/// One connection may give up 1000 requests. All connections of a client together may give up 4000, new
/// ones included; the connection that goes beyond ends, and the others go on.
fn what_a_client_gives_up_is_summed_over_its_connections(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, "");
    let stream = wire::connect(served.addr());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut calm = http2::Client::on(stream);
    let under_way = calm.ask("/under-way");
    gate.has(1);
    // as many more are allowed as expire meanwhile
    let stays = (0..30).take_while(|_| give_up_900(&served)).count();
    assert!((4..30).contains(&stays), "{engine}: {stays} connections of 900 each");
    let given_up = gate.came().len();
    // the client takes turns, and a request that takes long stops no other
    let next = calm.ask("/next");
    gate.has(given_up + 1);
    gate.answer(given_up + 1);
    assert_eq!(calm.answer(under_way).status, 200, "{engine}");
    assert_eq!(calm.answer(next).status, 200, "{engine}");
}

/// All requests of a connection that closes count: otherwise a reset of the connection would be cheaper
/// than resets of streams.
fn a_connection_that_closes_counts_with_all_its_requests(engine: &str) {
    for is_fault in [false, true] {
        let gate = Gate::start();
        let (served, _folder) = serve(engine, &gate, "");
        for _ in 0..60 {
            let mut client = make(&served, 100, false);
            assert_eq!(why_it_ended(&mut client), None, "{engine}");
            if is_fault {
                // a PING of one byte
                client.write_all(&frame(6, 0, 0, b"x")).unwrap();
                let fault = Some(ErrorCode::FRAME_SIZE_ERROR.0);
                assert_eq!(why_it_ended(&mut client), fault, "{engine}");
            } else {
                set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
            }
        }
        // three times would be well without those
        assert!((0..3).any(|_| !give_up_900(&served)), "{engine}: by a fault {is_fault}");
        gate.answer(gate.came().len());
    }
}

/// The application has answered, and the client's windows are closed: the client stays, or resets its
/// streams.
fn who_takes_nothing_keeps_no_place(engine: &str) {
    for in_flight in [1, 4] {
        let gate = Gate::start();
        let route = format!("in_flight = {in_flight}\nqueue.time = \"5m\"");
        let (served, _folder) = serve_with(engine, &gate, "", &route);
        let mut others = http2::Client::on(wire::connect(served.addr()));
        let shut = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
        let mut stays = wire::connect(served.addr());
        stays.write_all(&[PREFACE, &shut].concat()).unwrap();
        for resets in [false, true] {
            let before = gate.came().len();
            let first = if resets { 101 } else { 1 };
            for number in 0..in_flight {
                stays.write_all(&post(first + 2 * number, "/takes-nothing")).unwrap();
                gate.has(before + number as usize + 1);
            }
            gate.answer(in_flight as usize);
            if resets {
                (0..in_flight).for_each(|it| stays.write_all(&reset(first + 2 * it)).unwrap());
            }
            let all: Vec<u32> = (0..in_flight).map(|_| others.ask("/others")).collect();
            gate.has(before + 2 * in_flight as usize);
            gate.answer(in_flight as usize);
            assert!(all.into_iter().all(|it| others.answer(it).status == 200), "{engine}");
        }
    }
}

/// A proxy speaks for many clients.
fn a_trusted_proxy_may_give_up_what_its_clients_do(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, "trusted_proxies = [\"127.0.0.1\"]");
    assert!((0..8).all(|_| give_up_900(&served)), "{engine}");
}
