//! Limits in an upgrade: the server that serves now, and the one that finishes its requests, keep them
//! together.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::queue::{Gate, ask, status};
use forebay_tests::faults::client::Client;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::upgrade::{Successor, upgrade};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, on_each_engine};
use rustix::process::Signal;
use std::time::Duration;

on_each_engine!(
    both_keep_the_places_of_an_application,
    both_keep_the_places_of_a_rule,
    the_highest_class_is_first_in_both,
    both_count_what_a_rule_and_a_client_have,
    what_is_charged_stays_charged,
    what_a_server_had_that_dies_is_free,
    a_client_has_no_more_connections_than_it_may,
);

/// A server in front of an application that notes which request arrives when.
fn serve(engine: &str, gate: &Gate, route: &str, rules: &str) -> (WatchedServer, Folder) {
    let folder = Folder::new();
    folder.write("index.html", "own");
    let lines =
        format!("[[proxy]]\npath = \"/app\"\nto = \"http://{}\"\n{route}\n{rules}", gate.addr);
    let options = Options::new(folder.join("")).engine(engine).config(&lines);
    (WatchedServer::with(options), folder)
}

#[track_caller]
fn wait(served: &WatchedServer, series: &str, count: u64) {
    let waiting = || served.metric(series);
    assert!(soon(PATIENCE, || waiting() == count), "{} wait, not {count}", waiting());
}

/// One place, which the old server has, and one request that waits for it: requests to the new server are
/// behind both, and those to the newest are the last.
fn take_turns(engine: &str, gate: &Gate, served: &WatchedServer, waiting: &str) {
    let mut clients = vec![ask(served, "/app/1")];
    gate.has(1);
    clients.push(ask(served, "/app/2"));
    wait(served, waiting, 1);
    let _second = upgrade_and_settle(served);
    for path in ["/app/3", "/app/4"] {
        clients.push(asked_of_the_new(served, path, waiting));
    }
    let _third = upgrade_and_settle(served);
    clients.push(asked_of_the_new(served, "/app/5", waiting));
    for number in 1..=5 {
        gate.has(number);
        let came = gate.came();
        assert_eq!(came.len(), number, "{engine}: more than one at once: {came:?}");
        gate.answer(1);
    }
    clients.iter_mut().for_each(|client| assert_eq!(status(client), 200, "{engine}"));
    assert_eq!(gate.came(), [1, 2, 3, 4, 5].map(|at| format!("/app/{at}")), "{engine}");
    // no server has a place any more
    let mut last = ask(served, "/app/6");
    gate.has(6);
    gate.answer(1);
    assert_eq!(status(&mut last), 200);
    wait(served, waiting, 0);
}

/// Upgrades, and waits until the server before accepts no connection any more, which may take it a
/// moment.
fn upgrade_and_settle(served: &WatchedServer) -> Successor {
    let successor = upgrade(served);
    let accepted = || served.metric("forebay_connections_accepted_total");
    let takes_all = || {
        let before = accepted();
        // some are refused where a client may have few connections
        (0..8).for_each(|_| assert!([200, 503].contains(&status(&mut ask(served, "/index.html")))));
        soon(Duration::from_millis(200), || accepted() == before + 8)
    };
    assert!(soon(PATIENCE, takes_all), "the server before accepts yet");
    successor
}

/// A request that waits in the new server.
fn asked_of_the_new(served: &WatchedServer, path: &str, waiting: &str) -> Client {
    let before = served.metric(waiting);
    let client = ask(served, path);
    wait(served, waiting, before + 1);
    client
}

fn both_keep_the_places_of_an_application(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, "in_flight = 1\nqueue.time = \"5m\"", "");
    take_turns(engine, &gate, &served, "forebay_upstream_requests_waiting");
}

fn both_keep_the_places_of_a_rule(engine: &str) {
    let gate = Gate::start();
    let rule = "[[rule]]\nname = \"few\"\npath = \"/app/*\"\nin_flight = { most = 1, over = \"queue\", deadline = \"1m\" }";
    let (served, _folder) = serve(engine, &gate, "", rule);
    take_turns(engine, &gate, &served, "forebay_requests_queued");
}

fn the_highest_class_is_first_in_both(engine: &str) {
    let gate = Gate::start();
    let classes = "[[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"bulk\"\npriority = 1\n\
                   [[rule]]\nname = \"gold\"\npath = \"/app/gold\"\nclass = \"gold\"\n\
                   [[rule]]\nname = \"bulk\"\npath = \"/app/*\"\nclass = \"bulk\"\n";
    let (served, _folder) = serve(engine, &gate, "in_flight = 1\nqueue.time = \"5m\"", classes);
    let waiting = "forebay_upstream_requests_waiting";
    let mut clients = vec![ask(&served, "/app/1"), ask(&served, "/app/2")];
    gate.has(1);
    wait(&served, waiting, 1);
    let _second = upgrade_and_settle(&served);
    for path in ["/app/3", "/app/gold"] {
        clients.push(asked_of_the_new(&served, path, waiting));
    }
    for number in 1..=4 {
        gate.has(number);
        gate.answer(1);
    }
    clients.iter_mut().for_each(|client| assert_eq!(status(client), 200, "{engine}"));
    let came = gate.came();
    assert_eq!((came[1].as_str(), came[3].as_str()), ("/app/gold", "/app/3"), "{engine}: {came:?}");
}

fn both_count_what_a_rule_and_a_client_have(engine: &str) {
    for per in ["rule", "client"] {
        let gate = Gate::start();
        let rule = format!(
            "[[rule]]\nname = \"few\"\npath = \"/app/*\"\nin_flight = {{ most = 2, per = \"{per}\", status = 503 }}"
        );
        let (served, _folder) = serve(engine, &gate, "", &rule);
        let mut first = ask(&served, "/app/1");
        gate.has(1);
        let _second = upgrade_and_settle(&served);
        let mut second = ask(&served, "/app/2");
        gate.has(2);
        assert_eq!(status(&mut ask(&served, "/app/3")), 503, "{engine}, per {per}");
        let _third = upgrade_and_settle(&served);
        assert_eq!(status(&mut ask(&served, "/app/4")), 503, "{engine}, per {per}");
        gate.answer(2);
        assert_eq!((status(&mut first), status(&mut second)), (200, 200), "{engine}, per {per}");
        gate.answer(100);
        let is_free = || status(&mut ask(&served, "/app/5")) == 200;
        assert!(soon(PATIENCE, is_free), "{engine}, per {per}");
    }
}

fn what_is_charged_stays_charged(engine: &str) {
    let gate = Gate::start();
    let rules = "[[rule]]\nname = \"all\"\npath = \"/all\"\nrequests = { rate = \"1/h\", burst = 3, per = \"rule\", status = 503 }\n\
                 [[rule]]\nname = \"each\"\npath = \"/each\"\nrequests = { rate = \"1/h\", burst = 3, per = \"client\", status = 503 }\n\
                 [[rule]]\nname = \"ignored\"\npath = \"/ignored\"\nrequests = { rate = \"1/h\", burst = 9, per = \"client\", status = 503 }";
    let (served, _folder) = serve(engine, &gate, "", rules);
    let admitted = |path: &str| status(&mut ask(&served, path)) != 503;
    for path in ["/all", "/each"] {
        assert!(admitted(path) && admitted(path), "{engine}: {path}");
    }
    // a request that the server before accepts yet is charged there
    let successors = [upgrade_and_settle(&served), upgrade_and_settle(&served)];
    for path in ["/all", "/each"] {
        assert!(admitted(path), "{engine}: {path}: one is left");
        assert!(!admitted(path), "{engine}: {path}: none is left");
    }
    drop(successors);
}

fn what_a_server_had_that_dies_is_free(engine: &str) {
    let gate = Gate::start();
    let rule = "[[rule]]\nname = \"few\"\npath = \"/app/one\"\nin_flight = { most = 1, per = \"client\", status = 503 }";
    let (served, _folder) = serve(engine, &gate, "in_flight = 1\nqueue.time = \"5m\"", rule);
    let lost = ask(&served, "/app/one");
    gate.has(1);
    let successor = upgrade_and_settle(&served);
    assert_eq!(status(&mut ask(&served, "/app/one")), 503);
    let mut waits = asked_of_the_new(&served, "/app/2", "forebay_upstream_requests_waiting");
    served.signal(Signal::KILL);
    gate.has(2);
    gate.answer(100);
    assert_eq!(status(&mut waits), 200);
    assert_eq!(status(&mut ask(&served, "/app/one")), 200);
    drop((lost, successor));
}

fn a_client_has_no_more_connections_than_it_may(engine: &str) {
    let gate = Gate::start();
    let limits = "[limits]\nconnections_per_client = 2";
    let (served, _folder) = serve(engine, &gate, "", limits);
    let mut first = ask(&served, "/app/1");
    gate.has(1);
    let _second = upgrade_and_settle(&served);
    let mut second = None;
    // connections that have just ended are counted for a moment
    let is_let_in = || {
        second = Some(ask(&served, "/app/2"));
        soon(Duration::from_secs(5), || gate.came().len() == 2)
    };
    assert!(soon(PATIENCE, is_let_in), "{engine}");
    let mut second = second.unwrap();
    assert_eq!(status(&mut ask(&served, "/app/3")), 503, "{engine}");
    gate.answer(100);
    assert_eq!((status(&mut first), status(&mut second)), (200, 200), "{engine}");
    drop((first, second));
    // the old one says once a second what it has
    let is_free = || {
        let [mut one, mut other] = [ask(&served, "/app/4"), ask(&served, "/app/5")];
        (status(&mut one), status(&mut other)) == (200, 200)
    };
    assert!(soon(PATIENCE, is_free), "{engine}");
}
