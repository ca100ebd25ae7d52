//! Requests that their client gives up over HTTP/2 as soon as it has made them: what an application gets of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::queue::Gate;
use forebay_tests::faults::WatchedServer;
use forebay_tests::faults::site::Folder;
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{Options, http2, on_each_engine};
use std::io::Write;
use std::thread;
use std::time::Duration;

on_each_engine!(
    what_is_given_up_in_the_same_write_is_not_asked_for,
    what_is_given_up_later_keeps_its_place,
);

/// What every client sends first, and empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A GET without a body, in literals.
fn get(stream: u32, path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x01, 1, b'a', 0x04, u8::try_from(path.len()).unwrap()];
    block.extend(path.as_bytes());
    frame(1, 0b101, stream, &block)
}

fn reset(stream: u32) -> Vec<u8> {
    frame(3, 0, stream, &8u32.to_be_bytes())
}

fn serve(engine: &str, gate: &Gate, in_flight: u32) -> (WatchedServer, Folder) {
    let folder = Folder::new();
    let route = format!("in_flight = {in_flight}\nqueue.time = \"5m\"");
    let lines = format!("[[proxy]]\npath = \"/\"\nto = \"http://{}\"\n{route}\n", gate.addr);
    let options = Options::new(folder.join("")).engine(engine).config(&lines);
    (WatchedServer::with(options), folder)
}

/// Three hundred, more than may be under way; behind them one that is not given up.
fn what_is_given_up_in_the_same_write_is_not_asked_for(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, 4);
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

/// No more than may be under way, whatever their clients do.
fn what_is_given_up_later_keeps_its_place(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, 2);
    let stream = wire::connect(served.addr());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = http2::Client::on(stream);
    for stream in [client.ask("/0"), client.ask("/1")] {
        gate.has(stream as usize / 2 + 1);
        client.reset(stream);
    }
    let waits = client.ask("/2");
    thread::sleep(Duration::from_millis(200));
    assert_eq!(gate.came().len(), 2, "{engine}: {:?}", gate.came());
    gate.answer(2);
    gate.has(3);
    gate.answer(1);
    assert_eq!(client.answer(waits).status, 200, "{engine}");
}
