//! Requests that a receiver has, and those that wait for one, keep no thread of the server: on two
//! threads many requests wait while others are answered, and a connection that comes back waits for a
//! thread like one that was just accepted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::hand_over::{CLASSES, Turnstile, get, last_get};
use forebay_tests::faults::client::Client;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::receiver::SocketReceiver;
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{Options, on_each_engine};
use rustix::process::Signal;
use std::io::{Read, Write};

on_each_engine!(
    receivers_keep_no_thread,
    who_is_queued_for_a_receiver_may_leave,
    a_drain_waits_for_what_is_elsewhere,
    connections_that_are_back_are_served_by_class,
    times_are_over_without_a_thread,
);

/// Starts a server with this number of workers, and this route.
fn serve(
    engine: &str,
    workers: usize,
    receiver: &SocketReceiver,
    more: &str,
) -> (Folder, WatchedServer) {
    serve_with(engine, workers, receiver, more, "")
}

fn serve_with(
    engine: &str,
    workers: usize,
    receiver: &SocketReceiver,
    more: &str,
    before: &str,
) -> (Folder, WatchedServer) {
    let folder = Folder::new();
    folder.write("site/index.html", "a static page");
    let route = format!("[[hand_over]]\npath = \"/app\"\nto = {:?}\n{more}\n", receiver.to());
    // all clients come from one address
    let lines = format!("limits.connections_per_client = 100\n{before}\n{route}");
    let options = Options::new(folder.join("site")).engine(engine).config(&lines);
    let served = WatchedServer::with(Options { workers, ..options });
    (folder, served)
}

/// A receiver whose requests wait until the test lets them through.
fn slow() -> (Turnstile, SocketReceiver) {
    let turnstile = Turnstile::default();
    let passes = turnstile.clone();
    (turnstile, SocketReceiver::start(move |handed| passes.pass(handed)))
}

fn ask(served: &WatchedServer, path: &str) -> Client {
    let mut client = Client::over(wire::connect(served.listens_at()));
    assert!(client.ask(path));
    client
}

fn is_static(served: &WatchedServer) {
    let mut client = Client::over(wire::connect(served.listens_at()));
    client.stream().write_all(last_get("/").as_bytes()).unwrap();
    assert_eq!(client.answer().unwrap().body, b"a static page");
}

fn receivers_keep_no_thread(engine: &str) {
    let (turnstile, receiver) = slow();
    let (_folder, served) =
        serve(engine, 2, &receiver, "in_flight = 3\nqueue.time = \"1h\"\ntimeouts.taken = \"5m\"");
    let mut clients: Vec<_> = (0..12).map(|_| ask(&served, "/app/slow")).collect();
    assert!(soon(PATIENCE, || turnstile.came().len() == 3));
    let waiting = || served.metric_if_answered("forebay_upstream_requests_waiting");
    assert!(soon(PATIENCE, || waiting() == Some(9)), "{:?}", waiting());
    for _ in 0..10 {
        is_static(&served);
    }
    turnstile.open(12);
    for client in &mut clients {
        assert_eq!(client.answer().unwrap().body, b"handed /app/slow");
    }
    drop(clients);
    is_static(&served);
    let open = || served.metric_if_answered("forebay_connections");
    assert!(soon(PATIENCE, || open() == Some(0)), "{:?}", open());
    assert_eq!(served.metric("forebay_panics_total"), 0);
}

fn who_is_queued_for_a_receiver_may_leave(engine: &str) {
    let (turnstile, receiver) = slow();
    let more = "in_flight = 1\nqueue.time = \"1h\"\ntimeouts.taken = \"5m\"\nabort_on_close = true";
    let (_folder, served) = serve(engine, 2, &receiver, more);
    let mut first = ask(&served, "/app/first");
    assert!(soon(PATIENCE, || turnstile.came().len() == 1));
    let leaves: Vec<_> = (0..4).map(|_| ask(&served, "/app/leaves")).collect();
    let waiting = || served.metric_if_answered("forebay_upstream_requests_waiting");
    assert!(soon(PATIENCE, || waiting() == Some(4)), "{:?}", waiting());
    drop(leaves);
    assert!(soon(PATIENCE, || waiting() == Some(0)), "{:?}", waiting());
    turnstile.open(1);
    assert_eq!(first.answer().unwrap().body, b"handed /app/first");
    assert_eq!(turnstile.came(), ["/app/first"]);
}

fn a_drain_waits_for_what_is_elsewhere(engine: &str) {
    let (turnstile, receiver) = slow();
    let more = "in_flight = 2\nqueue.time = \"1h\"\ntimeouts.taken = \"5m\"";
    let (_folder, mut served) = serve_with(engine, 2, &receiver, more, "timeouts.drain = \"1h\"");
    let mut clients: Vec<_> = (0..5).map(|_| ask(&served, "/app/slow")).collect();
    assert!(soon(PATIENCE, || turnstile.came().len() == 2));
    let waiting = || served.metric_if_answered("forebay_upstream_requests_waiting");
    assert!(soon(PATIENCE, || waiting() == Some(3)), "{:?}", waiting());
    served.signal(Signal::TERM);
    // the server accepts no more, and has begun to end
    assert!(soon(PATIENCE, || std::net::TcpStream::connect(served.listens_at()).is_err()));
    turnstile.open(5);
    for client in &mut clients {
        assert_eq!(client.answer().unwrap().body, b"handed /app/slow");
        let mut rest = Vec::new();
        client.stream().read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
    }
    assert!(served.wait(PATIENCE).is_some_and(|status| status.success()));
}

fn connections_that_are_back_are_served_by_class(engine: &str) {
    let (turnstile, receiver) = slow();
    let (_folder, served) = serve_with(engine, 1, &receiver, "timeouts.taken = \"5m\"", CLASSES);
    // two requests each: the second is judged when the connection is back
    let twice = |path: &str| {
        let mut client = Client::over(wire::connect(served.listens_at()));
        let second = format!("/app/{path}-2");
        let both = [get(&format!("/app/{path}")), last_get(&second)].concat();
        client.stream().write_all(both.as_bytes()).unwrap();
        client
    };
    let mut clients = vec![twice("bulk")];
    assert!(soon(PATIENCE, || turnstile.came().len() == 1));
    clients.push(twice("gold"));
    assert!(soon(PATIENCE, || turnstile.came().len() == 2));
    turnstile.open(4);
    for client in &mut clients {
        assert_eq!(client.answer().unwrap().status, 200);
        assert_eq!(client.answer().unwrap().status, 200);
        assert!(client.is_closed());
    }
    let mut came = turnstile.came();
    came.sort();
    assert_eq!(came, ["/app/bulk", "/app/bulk-2", "/app/gold", "/app/gold-2"]);
}

fn times_are_over_without_a_thread(engine: &str) {
    let (turnstile, receiver) = slow();
    let more = "in_flight = 1\nqueue.time = \"300ms\"\ntimeouts.taken = \"100ms\"\nmax_fails = 0\n\
                timeouts.done = \"200ms\"\nretries = 0";
    let (_folder, served) = serve(engine, 2, &receiver, more);
    let mut clients: Vec<_> = (0..6).map(|_| ask(&served, "/app/slow")).collect();
    for client in &mut clients {
        let status = client.answer().unwrap().status;
        assert!([503, 504].contains(&status), "{status}");
    }
    is_static(&served);
    turnstile.open(6);
}
