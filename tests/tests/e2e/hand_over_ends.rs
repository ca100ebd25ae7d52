//! The ends of requests that have left with their socket, where the receiver still has it, or has done
//! something with it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::hand_over::{connect, echo, get, last_get, serve};
use forebay_tests::faults::client::Client;
use forebay_tests::faults::soon;
use forebay_tests::on_each_engine;
use forebay_tests::receiver::{ReceivedRequest, SocketReceiver};
use forebay_tests::wire::PATIENCE;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, mpsc};

on_each_engine!(
    what_is_sent_behind_a_request_stops_nothing,
    a_connection_that_came_back_is_like_a_fresh_one,
    a_connection_ends_with_the_time_whoever_has_it,
    a_connection_that_is_done_ends_whoever_has_it,
    who_keeps_a_connection_gets_all_that_has_come,
);

/// The sockets that a receiver still has open.
type HeldSockets = Arc<Mutex<Vec<TcpStream>>>;

fn hold(held: &HeldSockets, handed: &ReceivedRequest) {
    held.lock().unwrap().push(handed.client.try_clone().unwrap());
}

fn what_is_sent_behind_a_request_stops_nothing(engine: &str) {
    let receiver = SocketReceiver::start(|handed| {
        handed.client.set_nonblocking(false).unwrap();
        handed.take();
        handed.write("done");
        handed.report(b'D', 200, 4);
    });
    let (_folder, served) = serve(engine, &[&receiver], "", "");
    let mut stay = Vec::new();
    for _ in 0..8 {
        let mut client = Client::over(connect(&served));
        client.stream().write_all([&get("/app"), "X"].concat().as_bytes()).unwrap();
        assert_eq!(client.answer().unwrap().body, b"done");
        stay.push(client);
        for _ in 0..4 {
            let mut other = Client::over(connect(&served));
            assert_eq!(other.get("/").unwrap().body, b"a static page");
        }
    }
}

fn a_connection_that_came_back_is_like_a_fresh_one(engine: &str) {
    let (says, hears) = mpsc::channel();
    let receiver = SocketReceiver::start(move |handed| match handed.target().as_str() {
        "/app/dies" => {
            handed.take();
            handed.hang_up();
        }
        // a link that has nothing to do may be closed at any time
        "/app/closes" => {
            echo(handed);
            handed.hang_up();
            says.send(()).unwrap();
        }
        _ => echo(handed),
    });
    let (_folder, served) = serve(engine, &[&receiver], "max_fails = 0\nretries = 0", "");
    let mut client = Client::over(connect(&served));
    for _ in 0..5 {
        assert_eq!(client.get("/app/a").unwrap().body, b"handed /app/a");
        assert_eq!(client.get("/").unwrap().body, b"a static page");
        assert_eq!(client.get("/app/closes").unwrap().body, b"handed /app/closes");
        hears.recv_timeout(PATIENCE).unwrap();
    }
    assert_eq!(client.get("/app/a").unwrap().body, b"handed /app/a");
    assert_eq!(client.get("/app/dies").unwrap().status, 502);
}

fn a_connection_ends_with_the_time_whoever_has_it(engine: &str) {
    let held = HeldSockets::default();
    let holds = Arc::clone(&held);
    let receiver = SocketReceiver::start(move |handed| {
        hold(&holds, handed);
        handed.take();
        let _ = handed.client.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf");
        handed.wait_for_end();
    });
    let more = "max_fails = 0\ntimeouts.done = \"300ms\"";
    let (_folder, served) = serve(engine, &[&receiver], more, "");
    let mut stream = connect(&served);
    stream.write_all(get("/app").as_bytes()).unwrap();
    let mut all = Vec::new();
    let error = stream.read_to_end(&mut all).unwrap_err();
    // an orderly end would make the answer look whole
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{}", String::from_utf8_lossy(&all));
    let mut held = held.lock().unwrap().pop().unwrap();
    let is_cut = |_| held.write_all(b"more").is_err();
    assert!((0..2).any(is_cut), "nothing more is written");
}

fn a_connection_that_is_done_ends_whoever_has_it(engine: &str) {
    let held = HeldSockets::default();
    let holds = Arc::clone(&held);
    let receiver = SocketReceiver::start(move |handed| {
        hold(&holds, handed);
        handed.take();
        let _ = handed.client.write_all(b"HTTP/1.1 200 OK\r\n\r\nall of it");
        handed.report(b'D', 200, 9);
    });
    let (_folder, served) = serve(engine, &[&receiver], "", "");
    for behind in ["", "X"] {
        let mut stream = connect(&served);
        stream.write_all([&get("/app"), behind].concat().as_bytes()).unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        assert!(all.ends_with("all of it"), "{all}");
    }
    assert_eq!(held.lock().unwrap().len(), 2);
}

fn who_keeps_a_connection_gets_all_that_has_come(engine: &str) {
    let receiver = SocketReceiver::start(|handed| {
        let text = handed.text();
        let mut behind = text.split_once("\r\n\r\n").unwrap().1.as_bytes().to_vec();
        assert_eq!(handed.body_left, Some(0));
        handed.take();
        while behind.len() < 10 {
            let mut more = [0; 10];
            let count = handed.client.read(&mut more).unwrap();
            assert!(count > 0, "{behind:?}");
            behind.extend_from_slice(&more[..count]);
        }
        let _ = handed.client.write_all(&behind);
    });
    let (_folder, served) = serve(engine, &[&receiver], "keep = true", "");
    let mut stream = connect(&served);
    stream.write_all([&get("/app"), "early"].concat().as_bytes()).unwrap();
    stream.write_all(b" late").unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert_eq!(all, "early late");
    let open = || served.metric_if_answered("forebay_connections");
    assert!(soon(PATIENCE, || open() == Some(0)), "{:?}", open());
    let mut other = connect(&served);
    other.write_all(last_get("/").as_bytes()).unwrap();
    let mut all = String::new();
    other.read_to_string(&mut all).unwrap();
    assert!(all.ends_with("a static page"), "{all}");
}
