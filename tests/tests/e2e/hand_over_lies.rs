//! Receivers that lie, or report more than they may, and the traces of that in the server.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::hand_over::{CLASSES, ask, connect, echo, get, last_get, refuse, serve};
use forebay_tests::faults::process::open_descriptors;
use forebay_tests::faults::soon;
use forebay_tests::on_each_engine;
use forebay_tests::receiver::{ReceivedRequest, SocketReceiver};
use forebay_tests::wire::PATIENCE;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

on_each_engine!(
    who_writes_without_taking_breaks_the_answer,
    lies_are_found_out,
    what_comes_on_an_idle_link_concerns_no_request,
    nothing_is_lost_among_all_that_can_happen,
);

fn who_writes_without_taking_breaks_the_answer(engine: &str) {
    let bad = SocketReceiver::start(|handed| {
        handed.write("stolen");
        handed.hang_up();
    });
    let good = SocketReceiver::start(echo);
    let more = "balance = \"round-robin\"\nmax_fails = 0";
    let (_folder, served) = serve(engine, &[&bad, &good], more, "");
    let answers: Vec<_> = (0..8).map(|_| ask(&served, &last_get("/app"))).collect();
    for answer in &answers {
        let (stolen, own) = (answer.contains("stolen"), answer.contains("handed"));
        assert!(!(stolen && own), "two answers to one request: {answer}");
        assert!(!answer.contains(" 502 "), "another answer behind what was written: {answer}");
    }
    assert!(answers.iter().any(|answer| answer.contains("handed")));
    assert!(bad.offered() > 0);
}

fn lies_are_found_out(engine: &str) {
    let receiver = SocketReceiver::start(|handed| match handed.target().as_str() {
        // a report of the end without one of the beginning
        "/app/done" => _ = handed.report(b'D', 200, 0),
        "/app/noise" => _ = handed.say(&[0xff; 64]),
        "/app/twice" => {
            handed.take();
            handed.take();
        }
        "/app/gifts" => {
            handed.take();
            handed.write("gifts");
            let mut report = [0; 16];
            report[0] = b'D';
            handed.say_with_gifts(&report, 200);
        }
        "/app/much" => {
            handed.take();
            handed.write("much");
            // the second report answers no request
            let mut report = [0; 16];
            report[0] = b'B';
            handed.say(&[report, report].concat());
        }
        _ => echo(handed),
    });
    let (_folder, served) = serve(engine, &[&receiver], "max_fails = 0\nretries = 0", "");
    for path in ["/app/done", "/app/noise", "/app/twice"] {
        let answer = ask(&served, &last_get(path));
        assert!(answer.starts_with("HTTP/1.1 502"), "{path}: {answer}");
    }
    // descriptors that a receiver sends are not kept
    let before = open_descriptors(served.pid());
    for _ in 0..3 {
        assert!(ask(&served, &last_get("/app/gifts")).ends_with("gifts"));
    }
    let now = || open_descriptors(served.pid());
    assert!(soon(PATIENCE, || now() <= before + 4), "{before} before, {} now", now());
    // a link with something unread on it is used by no other request
    for _ in 0..5 {
        assert!(ask(&served, &last_get("/app/much")).ends_with("much"));
        assert!(ask(&served, &last_get("/app/fine")).ends_with("handed /app/fine"));
    }
}

fn what_comes_on_an_idle_link_concerns_no_request(engine: &str) {
    let (says, hears) = mpsc::channel();
    let says = Mutex::new(says);
    let receiver = SocketReceiver::start(move |handed| {
        says.lock().unwrap().send(handed.link()).unwrap();
        echo(handed);
    });
    let (_folder, served) = serve(engine, &[&receiver], "max_fails = 0\nretries = 0", "");
    let answered = "forebay_upstream_requests_total{result=\"answered\"}";
    for number in 1..=20 {
        let answer = ask(&served, &last_get("/app/fine"));
        assert!(answer.ends_with("handed /app/fine"), "{number}: {answer}");
        assert!(soon(PATIENCE, || served.metric(answered) == number));
        // the next request is answered, if the server believes this
        let mut reports = [0; 32];
        (reports[0], reports[16]) = (b'T', b'D');
        let mut link: UnixStream = hears.recv().unwrap();
        link.write_all(&reports).unwrap();
    }
}

fn misbehave(number: usize, handed: &mut ReceivedRequest) {
    match number % 7 {
        0 => refuse(handed),
        1 => {
            handed.take();
            handed.hang_up();
        }
        2 => {
            handed.take();
            handed.write("done");
            handed.report(b'D', 0, 0);
        }
        3 => _ = handed.say(b"nonsense nonsense"),
        4 => {
            handed.take();
            // the client's socket as no server would leave it
            handed.client.set_nonblocking(false).unwrap();
            handed.write("back");
            handed.report(b'B', 200, 4);
        }
        5 => {
            handed.take();
            let _ = handed.client.shutdown(Shutdown::Both);
            handed.report(b'B', 200, 4);
        }
        _ => echo(handed),
    }
}

fn nothing_is_lost_among_all_that_can_happen(engine: &str) {
    let number = AtomicUsize::new(0);
    let receiver = SocketReceiver::start(move |handed| {
        misbehave(number.fetch_add(1, SeqCst), handed);
    });
    let more = "max_fails = 0\nin_flight = 4\nkeep_alive.connections = 0";
    let (_folder, served) = serve(engine, &[&receiver], more, CLASSES);
    let served = Arc::new(served);
    // what is opened once is open from here on
    ask(&served, &last_get("/"));
    ask(&served, &last_get("/app"));
    let pid = served.pid();
    let open = || served.metric_if_answered("forebay_connections");
    assert!(soon(PATIENCE, || open() == Some(0)));
    let before = open_descriptors(pid);
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let served = Arc::clone(&served);
            thread::spawn(move || {
                for turn in 0..40 {
                    let mut stream = connect(&served);
                    let path = if turn % 3 == 0 { "/app/gold" } else { "/app/bulk" };
                    let _ =
                        stream.write_all([get(path), get("/"), last_get(path)].concat().as_bytes());
                    if turn % 5 == 0 {
                        // this client does not wait
                        continue;
                    }
                    let _ = stream.read_to_end(&mut Vec::new());
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert!(soon(PATIENCE, || open() == Some(0)), "{:?} are open", open());
    let descriptors = || open_descriptors(pid);
    assert!(soon(PATIENCE, || descriptors() <= before), "{before} before, {} now", descriptors());
    // the ledger: nothing is under way, and what was admitted was settled
    let in_flight = || served.metric_if_answered("forebay_upstream_requests_in_flight");
    assert!(soon(PATIENCE, || in_flight() == Some(0)), "{:?}", in_flight());
    assert!(soon(PATIENCE, || is_settled(&served.metrics())), "{}", served.metrics());
    assert_eq!(served.metric("forebay_panics_total"), 0);
}

/// Whether no class has a request under way.
fn is_settled(metrics: &str) -> bool {
    let lines = metrics.lines().filter(|line| line.starts_with("forebay_class_in_flight{"));
    lines.clone().count() > 0 && lines.into_iter().all(|line| line.ends_with(" 0"))
}
