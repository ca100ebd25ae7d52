//! Receivers that take a request by reading it (`taken_by_reading`): one message for each request, and no
//! request runs twice, whenever a receiver or the server is late, or dies.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::hand_over::{connect, echo, get, last_get, serve};
use forebay_tests::faults::client::Client;
use forebay_tests::faults::process::freeze;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::on_each_engine;
use forebay_tests::receiver::SocketReceiver;
use forebay_tests::wire::PATIENCE;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

on_each_engine!(
    one_word_is_enough_and_connections_come_back,
    who_is_slow_with_what_it_has_read_has_its_time,
    what_nobody_has_read_goes_to_another,
    who_dies_with_what_it_has_read_is_told_of,
    what_was_withdrawn_is_not_answered_twice,
);

const READING: &str = "taken_by_reading = true\n";

/// The answer on a connection of its own.
fn ask(served: &WatchedServer, path: &str) -> String {
    let mut stream = connect(served);
    stream.write_all(last_get(path).as_bytes()).unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    all
}

fn answered(served: &WatchedServer) -> u64 {
    served.metric("forebay_upstream_requests_total{result=\"answered\"}")
}

fn one_word_is_enough_and_connections_come_back(engine: &str) {
    let receiver = SocketReceiver::start(echo);
    // a receiver that reports all the same that it has the request
    let careful = SocketReceiver::start(|handed| {
        handed.is_taken = false;
        echo(handed);
    });
    for receiver in [&receiver, &careful] {
        let (_folder, served) = serve(engine, &[receiver], READING, "");
        let mut client = Client::over(connect(&served));
        for number in 0..20 {
            let path = format!("/app/{number}");
            let expected = format!("handed {path}");
            assert_eq!(client.get(&path).unwrap().body, expected.as_bytes());
        }
        assert!(ask(&served, "/app/last").ends_with("handed /app/last"));
        assert!(soon(PATIENCE, || answered(&served) == 21));
    }
}

/// The receiver has read the request and says nothing for longer than a request may stay unread: it is
/// not late.
fn who_is_slow_with_what_it_has_read_has_its_time(engine: &str) {
    let receiver = SocketReceiver::start(|handed| {
        thread::sleep(Duration::from_millis(700));
        echo(handed);
    });
    let times = format!("{READING}timeouts.taken = \"100ms\"\ntimeouts.done = \"30s\"\n");
    let (_folder, served) = serve(engine, &[&receiver], &times, "");
    let mut client = Client::over(connect(&served));
    for path in ["/app/one", "/app/two"] {
        assert_eq!(client.get(path).unwrap().body, format!("handed {path}").as_bytes());
    }
    assert_eq!(receiver.offered(), 2);
}

/// One receiver listens and reads nothing: requests lie in the sockets of its links.
fn what_nobody_has_read_goes_to_another(engine: &str) {
    let folder = forebay_tests::faults::site::Folder::new();
    let path = folder.join("deaf.sock");
    let deaf = UnixListener::bind(&path).unwrap();
    let receiver = SocketReceiver::start(echo);
    let to = format!(
        "to = [\"unix:{}\", \"{}\"]\nbalance = \"round-robin\"\nmax_fails = 0\nretry_budget = \"100%\"\n",
        path.display(),
        receiver.to()
    );
    let times = format!("{READING}{to}timeouts.taken = \"100ms\"\n");
    let (_folder, served) = serve(engine, &[], &times, "");
    for number in 0..4 {
        let path = format!("/app/{number}");
        assert!(ask(&served, &path).ends_with(&format!("handed {path}")), "{engine}");
    }
    assert_eq!(receiver.offered(), 4, "{engine}");
    // the sockets that lie there are shut, and a receiver that reads one now sees that
    drop(deaf);
}

fn who_dies_with_what_it_has_read_is_told_of(engine: &str) {
    let receiver = SocketReceiver::start(|handed| handed.hang_up());
    let (_folder, served) = serve(engine, &[&receiver], &format!("{READING}max_fails = 0\n"), "");
    let all = ask(&served, "/app/a");
    assert!(all.starts_with("HTTP/1.1 502 "), "{all}");
    assert_eq!(receiver.offered(), 1, "it may have been answered");
}

/// A receiver was stopped before it has read a request, and goes on when the request belongs to another.
fn what_was_withdrawn_is_not_answered_twice(engine: &str) {
    let (tell, told) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let may_go = Mutex::new(may_go);
    let folder = forebay_tests::faults::site::Folder::new();
    let path = folder.join("late.sock");
    let listener = UnixListener::bind(&path).unwrap();
    // a receiver that takes its time before it reads
    thread::spawn(move || {
        let (link, _) = listener.accept().unwrap();
        may_go.lock().unwrap().recv().unwrap();
        let handed = forebay_tests::receiver::ReceivedRequest::of(&link);
        tell.send(handed.is_some_and(|handed| handed.is_withdrawn())).unwrap();
    });
    let other = SocketReceiver::start(echo);
    let to = format!(
        "to = [\"unix:{}\", \"{}\"]\nbalance = \"round-robin\"\nmax_fails = 0\nretry_budget = \"100%\"\n",
        path.display(),
        other.to()
    );
    let times = format!("{READING}{to}timeouts.taken = \"100ms\"\n");
    let (_folder, served) = serve(engine, &[], &times, "");
    for path in ["/app/a", "/app/b"] {
        assert!(ask(&served, path).ends_with(&format!("handed {path}")), "{engine}");
    }
    go.send(()).unwrap();
    assert!(told.recv_timeout(PATIENCE).unwrap(), "{engine}: the late one may not answer");
}

/// The server is stopped for longer than any limit while a receiver reads a request, and answers it.
#[test]
fn what_was_read_while_the_server_was_stopped_counts() {
    let (came, comes) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let may_go = Mutex::new(may_go);
    let receiver = SocketReceiver::start(move |handed| {
        came.send(()).unwrap();
        may_go.lock().unwrap().recv().unwrap();
        echo(handed);
        came.send(()).unwrap();
    });
    let times =
        format!("{READING}retries = 0\ntimeouts.taken = \"200ms\"\ntimeouts.done = \"300ms\"\n");
    let (_folder, served) = serve("event", &[&receiver], &times, "");
    let mut stream = connect(&served);
    stream.write_all(get("/app/x").as_bytes()).unwrap();
    comes.recv_timeout(PATIENCE).unwrap();
    freeze(served.pid());
    go.send(()).unwrap();
    comes.recv_timeout(PATIENCE).unwrap();
    thread::sleep(Duration::from_millis(900));
    served.signal(Signal::CONT);
    let mut answer = [0; 64];
    let count = stream.read(&mut answer).unwrap();
    assert!(answer[..count].starts_with(b"HTTP/1.1 200 OK\r\n"));
}
