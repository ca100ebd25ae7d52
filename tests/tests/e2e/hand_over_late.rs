//! A server that was stopped for longer than any time limit: the reports of its receivers meanwhile still
//! count, and so does a place that has become free.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::hand_over::{connect, echo, get, last_get, serve};
use forebay_tests::faults::client::Client;
use forebay_tests::faults::process::freeze;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::on_each_engine;
use forebay_tests::receiver::{ReceivedRequest, SocketReceiver};
use forebay_tests::wire::PATIENCE;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

on_each_engine!(
    what_was_said_while_the_server_was_stopped_counts,
    what_was_taken_before_counts_too,
    who_is_late_writes_nothing_behind_the_answer_of_the_server,
);

/// The time limits of a request.
const TIMES: &str =
    "max_fails = 0\nretries = 0\ntimeouts.taken = \"200ms\"\ntimeouts.done = \"300ms\"";

/// A time that is longer than any of the limits.
const LONG: Duration = Duration::from_millis(900);

/// Channels by which a receiver reports its steps to the test, and waits for it.
fn steps() -> (Sender<()>, Mutex<Receiver<()>>, Receiver<()>, Sender<()>) {
    let ((came, comes), (goes, may_go)) = (mpsc::channel(), mpsc::channel());
    (came, Mutex::new(may_go), comes, goes)
}

fn stopped_for_long(served: &WatchedServer, meanwhile: impl FnOnce()) {
    freeze(served.pid());
    meanwhile();
    thread::sleep(LONG);
    served.signal(Signal::CONT);
}

fn what_was_said_while_the_server_was_stopped_counts(engine: &str) {
    let (came, may_go, comes, goes) = steps();
    let receiver = SocketReceiver::start(move |handed| {
        came.send(()).unwrap();
        may_go.lock().unwrap().recv().unwrap();
        echo(handed);
        came.send(()).unwrap();
    });
    let (_folder, served) =
        serve(engine, &[&receiver], &format!("in_flight = 1\nqueue.time = \"400ms\"\n{TIMES}"), "");
    let mut first = Client::over(connect(&served));
    assert!(first.ask("/app/first"));
    comes.recv_timeout(PATIENCE).unwrap();
    stopped_for_long(&served, || {
        // taken and given back
        goes.send(()).unwrap();
        comes.recv_timeout(PATIENCE).unwrap();
    });
    assert_eq!(first.answer().unwrap().body, b"handed /app/first");
    goes.send(()).unwrap();
    assert_eq!(first.get("/app/behind").unwrap().body, b"handed /app/behind");
    let answered = || served.metric("forebay_upstream_requests_total{result=\"answered\"}");
    assert!(soon(PATIENCE, || answered() == 2));
}

fn what_was_taken_before_counts_too(engine: &str) {
    let (came, may_go, comes, goes) = steps();
    let receiver = SocketReceiver::start(move |handed| {
        handed.take();
        came.send(()).unwrap();
        may_go.lock().unwrap().recv().unwrap();
        handed.write("done");
        handed.report(b'D', 200, 4);
        came.send(()).unwrap();
    });
    let (_folder, served) = serve(engine, &[&receiver], TIMES, "");
    let mut stream = connect(&served);
    stream.write_all(get("/app").as_bytes()).unwrap();
    comes.recv_timeout(PATIENCE).unwrap();
    stopped_for_long(&served, || {
        goes.send(()).unwrap();
        comes.recv_timeout(PATIENCE).unwrap();
    });
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert!(all.ends_with("\r\n\r\ndone"), "{all}");
}

/// The receiver has taken the request, ended its link, and lives: what it writes after the server's
/// answer comes to nothing.
fn who_is_late_writes_nothing_behind_the_answer_of_the_server(engine: &str) {
    let (came, may_go, comes, goes) = steps();
    let receiver = SocketReceiver::start(move |handed: &mut ReceivedRequest| {
        handed.take();
        handed.hang_up();
        may_go.lock().unwrap().recv().unwrap();
        // the first may go into a socket whose end is on its way
        let is_cut = |_| handed.client.write_all(b"late").is_err();
        assert!((0..1000).any(is_cut), "it is shut down");
        came.send(()).unwrap();
    });
    let (_folder, served) = serve(engine, &[&receiver], "max_fails = 0", "");
    let mut stream = connect(&served);
    stream.write_all(last_get("/app").as_bytes()).unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 502") && !all.contains("late"), "{all}");
    goes.send(()).unwrap();
    comes.recv_timeout(PATIENCE).unwrap();
    assert_eq!(stream.read(&mut [0; 9]).unwrap_or(0), 0);
}
