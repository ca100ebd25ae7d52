//! Requests over the limit of a rule on requests at once, which wait (`in_flight.over = "queue"`): which
//! is next, which are refused, and what becomes of them when something changes meanwhile.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::queue::{
    CLASSES, Gate, ask, bulk_has_its_share, classes_with_a_share, gold_takes_the_only_place,
    refused, status,
};
use forebay_tests::faults::client::Client;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::http2;
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, has_thread_each, on_each_engine};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::Signal;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

on_each_engine!(
    higher_classes_come_first,
    a_class_with_a_share_is_not_starved,
    a_full_queue_refuses_and_lower_classes_give_way,
    nobody_waits_for_longer_than_allowed,
    who_leaves_takes_no_place,
    a_reload_finds_those_that_wait,
    those_that_wait_are_answered_in_a_drain,
    bodies_and_files_wait_too,
    streams_wait_each_for_itself,
    moments_and_places_are_waited_for_one_after_the_other,
);

/// The lines of a limit on all requests at once; `more` are further settings.
fn limit(most: u32, more: &str) -> String {
    format!(
        "[[rule]]\nname = \"few\"\nin_flight = {{ most = {most}, over = \"queue\", deadline = \"1m\"{more} }}\n"
    )
}

fn lines(gate: &Gate, classes: &str, limit: &str) -> String {
    format!("[[proxy]]\npath = \"/*/*\"\nto = \"http://{}\"\n{classes}{limit}", gate.addr)
}

/// A server in front of an application that notes which request arrives when.
fn serve(engine: &str, gate: &Gate, classes: &str, limit: &str) -> (WatchedServer, Folder) {
    let folder = Folder::new();
    folder.write("index.html", "own");
    folder.write("file", "a file");
    let options = Options::new(folder.join("")).engine(engine).config(&lines(gate, classes, limit));
    (WatchedServer::with(options), folder)
}

/// Waits until this number of requests wait for a place.
#[track_caller]
fn wait(served: &WatchedServer, count: u64) {
    let waiting = || served.metric("forebay_requests_queued");
    assert!(soon(PATIENCE, || waiting() == count), "{} wait, not {count}", waiting());
}

fn leave(mut client: Client) {
    // a reset: a client that only ends its direction may still wait for its answer
    set_socket_linger(client.stream(), Some(Duration::ZERO)).unwrap();
}

fn higher_classes_come_first(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, CLASSES, &limit(1, ""));
    let mut clients = vec![ask(&served, "/bulk/0")];
    gate.has(1);
    for (number, path) in ["/bulk/1", "/bulk/2", "/gold/1", "/gold/2"].into_iter().enumerate() {
        clients.push(ask(&served, path));
        wait(&served, number as u64 + 1);
    }
    let shown = Command::new(binary()).args(["policy", "show", "-c"]).arg(served.file()).output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    assert!(shown.contains("; 1 now, 4 wait"), "{engine}: {shown}");
    gate.answer(5);
    clients.iter_mut().for_each(|client| assert_eq!(status(client), 200, "{engine}"));
    assert_eq!(gate.came(), ["/bulk/0", "/gold/1", "/gold/2", "/bulk/1", "/bulk/2"], "{engine}");
    wait(&served, 0);
    // on the same connections, with no request before them
    gate.answer(2);
    for client in &mut clients[..2] {
        assert_eq!(client.get("/bulk/3").unwrap().status, 200, "{engine}");
    }
}

fn a_class_with_a_share_is_not_starved(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, &classes_with_a_share(), &limit(1, ""));
    bulk_has_its_share(engine, &gate, &served, wait);
}

fn a_full_queue_refuses_and_lower_classes_give_way(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, CLASSES, &limit(1, ", queue = 1"));
    let mut second = gold_takes_the_only_place(engine, &gate, &served, wait);
    // a refused client may go on
    gate.answer(1);
    assert_eq!(second.get("/bulk/3").unwrap().status, 200, "{engine}");
}

fn nobody_waits_for_longer_than_allowed(engine: &str) {
    let gate = Gate::start();
    let limit = limit(1, "").replace("1m", "50ms");
    let (served, _folder) = serve(engine, &gate, CLASSES, &limit);
    let mut first = ask(&served, "/bulk/0");
    gate.has(1);
    let late = ask(&served, "/gold/1").answer().unwrap();
    assert_eq!((late.status, late.field("retry-after")), (503, Some("1")), "{engine}");
    wait(&served, 0);
    assert_eq!(served.metric("forebay_timeouts_total{kind=\"queue\"}"), 1, "{engine}");
    assert_eq!((refused(&served, "gold"), refused(&served, "bulk")), (1, 0), "{engine}");
    gate.answer(1);
    assert_eq!(status(&mut first), 200);
    assert_eq!(gate.came(), ["/bulk/0"]);
}

fn who_leaves_takes_no_place(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, CLASSES, &limit(1, ""));
    let mut first = ask(&served, "/bulk/0");
    gate.has(1);
    let leaves = ask(&served, "/gold/1");
    wait(&served, 1);
    let mut stays = ask(&served, "/bulk/1");
    wait(&served, 2);
    leave(leaves);
    wait(&served, 1);
    gate.answer(2);
    assert_eq!((status(&mut first), status(&mut stays)), (200, 200));
    assert_eq!(gate.came(), ["/bulk/0", "/bulk/1"], "{engine}");
    // a client that leaves while its request has a place gives it up
    let leaves = ask(&served, "/bulk/2");
    gate.has(3);
    let mut next = ask(&served, "/bulk/3");
    wait(&served, 1);
    leave(leaves);
    gate.has(4);
    gate.answer(2);
    assert_eq!(status(&mut next), 200);
}

fn a_reload_finds_those_that_wait(engine: &str) {
    let gate = Gate::start();
    let (served, folder) = serve(engine, &gate, CLASSES, &limit(1, ""));
    let mut clients = vec![ask(&served, "/bulk/0")];
    gate.has(1);
    for number in 1..=5 {
        clients.push(ask(&served, &format!("/bulk/{number}")));
        wait(&served, number);
    }
    let reload = |lines: &str, workers: usize| {
        let options = Options::new(folder.join("")).engine(engine).config(lines);
        served.reload_with(Options { workers, ..options });
    };
    // two more may be under way; another number of threads serves clients that come from now on
    let workers = if has_thread_each(engine) { 20 } else { 2 };
    reload(&lines(&gate, CLASSES, &limit(3, "")), workers);
    gate.has(3);
    wait(&served, 3);
    clients.push(ask(&served, "/gold/6"));
    wait(&served, 4);
    // there is no room for another request before enough have ended
    reload(&lines(&gate, CLASSES, &limit(2, "")), workers);
    gate.answer(1);
    let under_way = || served.metric("forebay_upstream_requests_in_flight");
    assert!(soon(PATIENCE, || under_way() == 2), "{engine}");
    wait(&served, 4);
    gate.answer(1);
    gate.has(4);
    assert_eq!(gate.came()[3], "/gold/6", "{engine}");
    // without the limit, it still holds for the requests that wait, and for no other
    reload(&lines(&gate, CLASSES, ""), workers);
    clients.push(ask(&served, "/bulk/7"));
    gate.has(5);
    assert_eq!(gate.came()[4], "/bulk/7", "{engine}");
    gate.answer(6);
    clients.iter_mut().for_each(|client| assert_eq!(status(client), 200, "{engine}"));
}

fn those_that_wait_are_answered_in_a_drain(engine: &str) {
    let gate = Gate::start();
    let (mut served, _folder) = serve(engine, &gate, CLASSES, &limit(1, ""));
    let mut clients = vec![ask(&served, "/bulk/0")];
    gate.has(1);
    for (number, path) in ["/bulk/1", "/gold/1"].into_iter().enumerate() {
        clients.push(ask(&served, path));
        wait(&served, number as u64 + 1);
    }
    served.signal(Signal::TERM);
    gate.answer(3);
    clients.iter_mut().for_each(|client| assert_eq!(status(client), 200, "{engine}"));
    assert_eq!(gate.came(), ["/bulk/0", "/gold/1", "/bulk/1"], "{engine}");
    assert!(served.wait(PATIENCE).is_some_and(|status| status.success()), "{engine}");
}

fn bodies_and_files_wait_too(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, CLASSES, &limit(1, ""));
    let post = |path: &str, body: &str| {
        let mut client = served.client();
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        client.stream().write_all((head + body).as_bytes()).unwrap();
        client
    };
    let mut first = ask(&served, "/bulk/0");
    gate.has(1);
    let body = "b".repeat(100_000);
    let mut uploads = post("/gold/1", &body);
    wait(&served, 1);
    let mut empty = post("/gold/2", "");
    wait(&served, 2);
    let mut file = ask(&served, "/file");
    wait(&served, 3);
    // a whole pipeline: what follows one that waits waits with it
    let mut several = served.client();
    let two = "GET /file HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2);
    several.stream().write_all(two.as_bytes()).unwrap();
    wait(&served, 4);
    gate.answer(3);
    assert_eq!(status(&mut first), 200);
    let answer = uploads.answer().unwrap();
    assert!(answer.status == 200 && answer.body == body.as_bytes(), "{engine}: {}", answer.head);
    assert_eq!((status(&mut empty), status(&mut file)), (200, 200), "{engine}");
    assert_eq!((status(&mut several), status(&mut several)), (200, 200), "{engine}");
    wait(&served, 0);
}

/// A request that waits does not stop the others on its HTTP/2 connection.
fn streams_wait_each_for_itself(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, CLASSES, &limit(1, ""));
    let mut client = http2::Client::of(&served);
    let first = client.ask("/bulk/0");
    gate.has(1);
    let low = client.ask("/bulk/1");
    wait(&served, 1);
    let uploads = client.begin("POST", "/gold/1", &[("content-length", "3")], false);
    assert_eq!(client.send(uploads, b"abc", true), 3);
    wait(&served, 2);
    // the end of the body comes by itself, and the application has to learn of it
    let empty = client.begin("POST", "/gold/2", &[("content-length", "0")], false);
    client.send(empty, b"", true);
    wait(&served, 3);
    let given_up = client.ask("/gold/3");
    wait(&served, 4);
    client.reset(given_up);
    wait(&served, 3);
    gate.answer(4);
    let answers = [first, low, empty, uploads].map(|stream| client.answer(stream));
    assert!(answers.iter().all(|answer| answer.status == 200), "{engine}: {answers:?}");
    assert_eq!(gate.came(), ["/bulk/0", "/gold/1", "/gold/2", "/bulk/1"], "{engine}");
    assert_eq!(answers[3].body, b"abc", "{engine}");
}

/// A request over a rate waits for its time, and then for its place.
fn moments_and_places_are_waited_for_one_after_the_other(engine: &str) {
    let gate = Gate::start();
    let paced = "[[rule]]\nname = \"paced\"\n\
                 requests = { rate = \"20/s\", burst = 1, over = \"queue\", deadline = \"1m\" }\n";
    let (served, _folder) = serve(engine, &gate, CLASSES, &(limit(1, "") + paced));
    let mut clients = vec![ask(&served, "/gold/0")];
    gate.has(1);
    for number in 1..=3 {
        clients.push(ask(&served, &format!("/gold/{number}")));
        wait(&served, number);
    }
    gate.answer(4);
    clients.iter_mut().for_each(|client| assert_eq!(status(client), 200, "{engine}"));
    assert_eq!(gate.came(), ["/gold/0", "/gold/1", "/gold/2", "/gold/3"], "{engine}");
    wait(&served, 0);
}
