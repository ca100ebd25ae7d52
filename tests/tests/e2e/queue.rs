//! Requests that wait because applications have as much under way as they may: which is next, which are
//! refused, and what becomes of them when something changes meanwhile.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::Client;
use forebay_tests::faults::process::open_descriptors;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::server::{binary, free_addr};
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{Options, Server, http2, on_each_engine};
use rustix::net::sockopt::set_socket_linger;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

on_each_engine!(
    higher_classes_are_asked_first,
    a_class_with_a_share_is_not_starved,
    clients_of_a_class_take_turns,
    a_full_queue_refuses_and_lower_classes_give_way,
    nobody_waits_for_longer_than_allowed,
    who_leaves_is_not_asked_for,
    an_end_is_a_departure_where_that_is_said,
    a_reload_finds_those_that_wait,
    a_route_that_is_taken_away_answers_those_that_wait,
    an_application_that_ends_keeps_nobody_waiting,
    sites_that_share_an_application_count_together,
    bodies_wait_with_their_client,
    what_has_waited_is_asked_as_if_it_had_not,
    what_comes_together_waits_or_is_refused,
    a_body_that_drips_gives_its_place_up,
);

/// An application that writes down its requests, and answers when a test allows it.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) addr: SocketAddr,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    /// The paths that came, in their order.
    came: Vec<String>,
    /// The heads of these requests.
    heads: Vec<String>,
    /// The number of requests that may be answered.
    answered: usize,
    connections: usize,
    /// Whether the application has ended: it answers no further request.
    has_ended: bool,
}

impl Gate {
    pub(crate) fn start() -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate = Gate { addr: listener.local_addr().unwrap(), state: Arc::default() };
        let shared = gate.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let gate = shared.clone();
                let mut state = gate.state.0.lock().unwrap();
                state.connections += 1;
                if state.has_ended {
                    continue;
                }
                drop(state);
                thread::spawn(move || gate.serve(stream));
            }
        });
        gate
    }

    /// Serves a connection until it ends.
    fn serve(&self, mut stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let (mut head, mut line) = (String::new(), String::new());
            while line != "\r\n" {
                line.clear();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                head.push_str(&line);
            }
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            if std::io::Read::read_exact(&mut reader, &mut body).is_err() {
                return;
            }
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let (state, changed) = &*self.state;
            let mut state = state.lock().unwrap();
            state.came.push(path);
            state.heads.push(head);
            let number = state.came.len();
            while state.answered < number && !state.has_ended {
                state = changed.wait(state).unwrap();
            }
            if state.has_ended {
                return;
            }
            drop(state);
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            if stream.write_all(&[answer.as_bytes(), &body].concat()).is_err() {
                return;
            }
        }
    }

    pub(crate) fn came(&self) -> Vec<String> {
        self.state.0.lock().unwrap().came.clone()
    }

    /// The head of the last request but `back`, without the fields that differ from request to request.
    fn head(&self, back: usize) -> String {
        let state = self.state.0.lock().unwrap();
        let head = &state.heads[state.heads.len() - 1 - back];
        let lines = head.split_inclusive('\n').filter(|line| !line.starts_with("X-Request-Id: "));
        lines.collect()
    }

    /// Waits until this number of requests have come.
    #[track_caller]
    pub(crate) fn has(&self, count: usize) {
        assert!(soon(PATIENCE, || self.came().len() >= count), "{:?}", self.came());
    }

    /// Lets this number of further requests be answered.
    pub(crate) fn answer(&self, count: usize) {
        self.state.0.lock().unwrap().answered += count;
        self.state.1.notify_all();
    }

    fn end(&self) {
        self.state.0.lock().unwrap().has_ended = true;
        self.state.1.notify_all();
    }

    fn connections(&self) -> usize {
        self.state.0.lock().unwrap().connections
    }
}

/// Classes by the path: gold comes before bulk.
pub(crate) const CLASSES: &str = "[[class]]\nname = \"gold\"\npriority = 0\n\
     [[class]]\nname = \"bulk\"\npriority = 1\n\
     [[rule]]\nname = \"gold\"\npath = \"/gold/*\"\nclass = \"gold\"\n\
     [[rule]]\nname = \"bulk\"\npath = \"/bulk/*\"\nclass = \"bulk\"\n";

/// The same classes, with a share for bulk.
pub(crate) fn classes_with_a_share() -> String {
    CLASSES.replace("priority = 1\n", "priority = 1\nshare = \"40%\"\n")
}

/// A server in front of the application, with these settings of the route, and these classes.
fn serve(engine: &str, gate: &Gate, route: &str, classes: &str) -> (WatchedServer, Folder) {
    let folder = Folder::new();
    folder.write("index.html", "own");
    let lines = proxied(gate, route, classes);
    let options = Options::new(folder.join("")).engine(engine).config(&lines);
    (WatchedServer::with(options), folder)
}

fn proxied(gate: &Gate, route: &str, classes: &str) -> String {
    // no request waits too long while a busy machine does the rest of a test, unless that is the subject
    let is_bounded = route.contains("in_flight") && !route.contains("queue.time");
    let time = if is_bounded { "queue.time = \"5m\"\n" } else { "" };
    format!("[[proxy]]\npath = \"/\"\nto = \"http://{}\"\n{route}\n{time}{classes}", gate.addr)
}

pub(crate) fn ask(served: &WatchedServer, path: &str) -> Client {
    let mut client = served.client();
    assert!(client.ask(path));
    client
}

/// Waits until this number of requests wait.
#[track_caller]
fn wait(served: &WatchedServer, count: u64) {
    let waiting = || served.metric("forebay_upstream_requests_waiting");
    assert!(soon(PATIENCE, || waiting() == count), "{} wait, not {count}", waiting());
}

#[track_caller]
pub(crate) fn status(client: &mut Client) -> u16 {
    client.answer().unwrap().status
}

fn higher_classes_are_asked_first(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, "in_flight = 1", CLASSES);
    let mut first = ask(&served, "/bulk/0");
    gate.has(1);
    let mut others = Vec::new();
    for (number, path) in ["/bulk/1", "/bulk/2", "/gold/1", "/gold/2"].into_iter().enumerate() {
        others.push(ask(&served, path));
        wait(&served, number as u64 + 1);
    }
    assert_eq!(served.metric("forebay_upstream_requests_in_flight"), 1);
    gate.answer(5);
    assert_eq!(status(&mut first), 200);
    others.iter_mut().for_each(|client| assert_eq!(status(client), 200));
    assert_eq!(gate.came(), ["/bulk/0", "/gold/1", "/gold/2", "/bulk/1", "/bulk/2"], "{engine}");
    // the connection went from one to the next
    assert_eq!(gate.connections(), 1, "{engine}");
    wait(&served, 0);
    assert!(soon(PATIENCE, || served.metric("forebay_upstream_requests_in_flight") == 0));
}

fn a_class_with_a_share_is_not_starved(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, "in_flight = 1", &classes_with_a_share());
    bulk_has_its_share(engine, &gate, &served, wait);
}

/// Bulk is served before all of gold, whose requests keep coming: the gate lets one through at a time.
/// `wait` waits until this number of requests wait.
pub(crate) fn bulk_has_its_share(
    engine: &str,
    gate: &Gate,
    served: &WatchedServer,
    wait: impl Fn(&WatchedServer, u64),
) {
    let mut clients = vec![ask(served, "/gold/0")];
    gate.has(1);
    for number in 1..=6 {
        clients.push(ask(served, &format!("/gold/{number}")));
        clients.push(ask(served, &format!("/bulk/{number}")));
    }
    wait(served, 12);
    // the place of each is taken for as long
    for number in 1..=13 {
        gate.has(number);
        thread::sleep(Duration::from_millis(5));
        gate.answer(1);
    }
    clients.iter_mut().for_each(|client| assert_eq!(status(client), 200));
    let came = gate.came();
    let bulk_meanwhile = came[..=6].iter().filter(|path| path.starts_with("/bulk")).count();
    assert!(bulk_meanwhile >= 1, "{engine}: {came:?}");
}

/// Clients are spread over queues at random, and two share one by chance once in a thousand times. So
/// three servers in a row must fail.
fn clients_of_a_class_take_turns(engine: &str) {
    let mut orders = Vec::new();
    let are_in_turn = (0..3).any(|_| {
        let came = order_of_two_clients(engine);
        let place = |path: &str| came.iter().position(|came| came == path).unwrap();
        let is_in_turn = place("/b/1") < place("/a/2");
        orders.push(came);
        is_in_turn
    });
    assert!(are_in_turn, "{engine}: {orders:?}");
}

/// The order in which requests reach the gate of a new server.
fn order_of_two_clients(engine: &str) -> Vec<String> {
    let gate = Gate::start();
    let folder = Folder::new();
    let lines = proxied(&gate, "in_flight = 1", CLASSES);
    let lines = format!("trusted_proxies = [\"127.0.0.0/8\"]\n{lines}");
    let served = WatchedServer::with(Options::new(folder.join("")).engine(engine).config(&lines));
    let ask_as = |client: &str, path: &str| {
        let mut asked = served.client();
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\n\r\n");
        asked.stream().write_all(head.as_bytes()).unwrap();
        asked
    };
    let mut clients = vec![ask_as("192.0.2.1", "/a/0")];
    gate.has(1);
    for (number, (client, path)) in [
        ("192.0.2.1", "/a/1"),
        ("192.0.2.1", "/a/2"),
        ("192.0.2.1", "/a/3"),
        ("198.51.100.2", "/b/1"),
    ]
    .into_iter()
    .enumerate()
    {
        clients.push(ask_as(client, path));
        wait(&served, number as u64 + 1);
    }
    gate.answer(5);
    clients.iter_mut().for_each(|client| assert_eq!(status(client), 200));
    gate.came()
}

fn a_full_queue_refuses_and_lower_classes_give_way(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, "in_flight = 1\nqueue.requests = 1", CLASSES);
    gold_takes_the_only_place(engine, &gate, &served, wait);
    let unavailable = "forebay_upstream_requests_total{result=\"unavailable\"}";
    assert_eq!(served.metric(unavailable), 3);
    // with no place to wait
    let (served, _folder) = serve(engine, &gate, "in_flight = 1\nqueue.requests = 0", CLASSES);
    let mut only = ask(&served, "/bulk/3");
    gate.has(3);
    assert_eq!(status(&mut ask(&served, "/gold/3")), 503);
    gate.answer(1);
    assert_eq!(status(&mut only), 200);
}

/// Fills the server: one request is let through and one may wait, whose place gold takes; others are
/// refused. `wait` waits until this number of requests wait. Returns the client that gave way.
pub(crate) fn gold_takes_the_only_place(
    engine: &str,
    gate: &Gate,
    served: &WatchedServer,
    wait: impl Fn(&WatchedServer, u64),
) -> Client {
    let mut first = ask(served, "/bulk/0");
    gate.has(1);
    let mut second = ask(served, "/bulk/1");
    wait(served, 1);
    let answer = ask(served, "/bulk/2").answer().unwrap();
    assert_eq!((answer.status, answer.field("retry-after")), (503, Some("1")), "{engine}");
    let mut gold = ask(served, "/gold/1");
    assert_eq!(status(&mut second), 503, "{engine}");
    assert_eq!(status(&mut ask(served, "/gold/2")), 503, "{engine}");
    gate.answer(2);
    assert_eq!((status(&mut first), status(&mut gold)), (200, 200));
    assert_eq!(gate.came(), ["/bulk/0", "/gold/1"]);
    let counted = (refused(served, "gold"), refused(served, "bulk"));
    assert_eq!(counted, (1, 2), "{engine}: {}", served.metrics());
    second
}

/// The number of a class's requests that were refused because they would have waited too long, or had no
/// place to wait.
pub(crate) fn refused(served: &WatchedServer, class: &str) -> u64 {
    served.metric(&format!(
        "forebay_class_refused_total{{class=\"{class}\",place=\"request\",reason=\"queue\"}}"
    ))
}

fn nobody_waits_for_longer_than_allowed(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, "in_flight = 1\nqueue.time = \"50ms\"", CLASSES);
    let mut first = ask(&served, "/bulk/0");
    gate.has(1);
    let late = ask(&served, "/gold/1").answer().unwrap();
    assert_eq!((late.status, late.field("retry-after")), (503, Some("1")), "{engine}");
    wait(&served, 0);
    assert_eq!(served.metric("forebay_timeouts_total{kind=\"upstream_queue\"}"), 1);
    gate.answer(1);
    assert_eq!(status(&mut first), 200);
    assert_eq!(gate.came(), ["/bulk/0"]);
}

fn who_leaves_is_not_asked_for(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, "in_flight = 1", CLASSES);
    let mut first = ask(&served, "/bulk/0");
    gate.has(1);
    let mut leaves = ask(&served, "/gold/1");
    wait(&served, 1);
    let mut stays = ask(&served, "/bulk/1");
    wait(&served, 2);
    // a reset: a client that only ends its direction may still wait for its answer
    set_socket_linger(leaves.stream(), Some(Duration::ZERO)).unwrap();
    drop(leaves);
    wait(&served, 1);
    gate.answer(2);
    assert_eq!((status(&mut first), status(&mut stays)), (200, 200));
    assert_eq!(gate.came(), ["/bulk/0", "/bulk/1"], "{engine}");
    // a client that leaves while its request is at the application makes room when that has finished
    let mut leaves = ask(&served, "/bulk/2");
    gate.has(3);
    let mut next = ask(&served, "/bulk/3");
    wait(&served, 1);
    set_socket_linger(leaves.stream(), Some(Duration::ZERO)).unwrap();
    drop(leaves);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(gate.came().len(), 3, "{engine}: more is under way than may be");
    gate.answer(1);
    gate.has(4);
    gate.answer(1);
    assert_eq!(status(&mut next), 200);
}

/// With `abort_on_close` a FIN ends a request that waits, and one that is under way: its place is free
/// when the application has finished.
fn an_end_is_a_departure_where_that_is_said(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, "in_flight = 1\nabort_on_close = true", CLASSES);
    let end = |client: &mut Client| client.stream().shutdown(Shutdown::Write).unwrap();
    let mut first = ask(&served, "/bulk/0");
    gate.has(1);
    let mut second = ask(&served, "/gold/1");
    wait(&served, 1);
    let mut third = ask(&served, "/bulk/2");
    wait(&served, 2);
    // one request that waits, and one that is at the application
    end(&mut second);
    wait(&served, 1);
    end(&mut first);
    assert!(first.answer().is_err() && second.answer().is_err(), "{engine}");
    assert_eq!(gate.came(), ["/bulk/0"], "{engine}");
    gate.answer(1);
    gate.has(2);
    assert_eq!(gate.came(), ["/bulk/0", "/bulk/2"], "{engine}");
    // further requests of such a client keep nothing
    let head = "GET /bulk/5 HTTP/1.1\r\nHost: a\r\n\r\n";
    third.stream().write_all(head.as_bytes()).unwrap();
    end(&mut third);
    assert!(third.answer().is_err(), "{engine}");
    let mut fourth = ask(&served, "/bulk/3");
    gate.answer(1);
    gate.has(3);
    gate.answer(1);
    assert_eq!(status(&mut fourth), 200, "{engine}");
    // a stream is reset, and then its connection ends while another stream waits
    let stream = wire::connect(served.addr());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = http2::Client::on(stream.try_clone().unwrap());
    let reset = client.ask("/bulk/4");
    gate.has(4);
    let kept = client.ask("/bulk/6");
    wait(&served, 1);
    client.reset(reset);
    gate.answer(1);
    gate.has(5);
    let mut last = ask(&served, "/bulk/7");
    wait(&served, 1);
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(client.answer(kept).reset.is_some(), "{engine}");
    gate.answer(1);
    gate.has(6);
    gate.answer(1);
    assert_eq!(status(&mut last), 200, "{engine}");
    assert_eq!(gate.came()[3..], ["/bulk/4", "/bulk/6", "/bulk/7"], "{engine}");
}

fn a_reload_finds_those_that_wait(engine: &str) {
    let gate = Gate::start();
    let (served, folder) = serve(engine, &gate, "in_flight = 1", CLASSES);
    let mut clients = vec![ask(&served, "/bulk/0")];
    gate.has(1);
    for number in 1..=3 {
        clients.push(ask(&served, &format!("/bulk/{number}")));
        wait(&served, number);
    }
    let reload = |lines: &str| {
        served.reload_with(Options::new(folder.join("")).engine(engine).config(lines));
    };
    // there is room for two of them now
    reload(&proxied(&gate, "in_flight = 3", CLASSES));
    gate.has(3);
    wait(&served, 1);
    // then there is room for fewer requests than are in flight, and there is one more class: the last
    // request keeps its place in the queue
    let more = format!("{CLASSES}[[class]]\nname = \"least\"\npriority = 2\n");
    reload(&proxied(&gate, "in_flight = 2", &more));
    wait(&served, 1);
    gate.answer(1);
    assert!(soon(PATIENCE, || served.metric("forebay_upstream_requests_in_flight") == 2));
    wait(&served, 1);
    gate.answer(3);
    clients.iter_mut().for_each(|client| assert_eq!(status(client), 200, "{engine}"));
    // without a bound no request waits
    let mut clients: Vec<_> = (4..8).map(|n| ask(&served, &format!("/bulk/{n}"))).collect();
    wait(&served, 2);
    reload(&proxied(&gate, "", CLASSES));
    gate.has(8);
    gate.answer(4);
    clients.iter_mut().for_each(|client| assert_eq!(status(client), 200, "{engine}"));
}

fn a_route_that_is_taken_away_answers_those_that_wait(engine: &str) {
    let gate = Gate::start();
    let route = "in_flight = 1\nconnection_auth = \"request\"";
    let (served, folder) = serve(engine, &gate, route, CLASSES);
    let mut clients = vec![ask(&served, "/bulk/0")];
    gate.has(1);
    clients.push(ask(&served, "/bulk/1"));
    wait(&served, 1);
    let elsewhere = proxied(&gate, route, CLASSES).replace("path = \"/\"", "path = \"/else/\"");
    served.reload_with(Options::new(folder.join("")).engine(engine).config(&elsewhere));
    gate.answer(1);
    gate.has(2);
    gate.answer(1);
    clients.iter_mut().for_each(|client| assert_eq!(status(client), 200, "{engine}"));
}

fn an_application_that_ends_keeps_nobody_waiting(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, "in_flight = 1\nretries = 0", CLASSES);
    let mut clients = vec![ask(&served, "/bulk/0")];
    gate.has(1);
    for number in 1..=8 {
        clients.push(ask(&served, &format!("/bulk/{number}")));
        wait(&served, number);
    }
    gate.end();
    let failed = clients.iter_mut().filter_map(|client| client.answer().ok());
    assert_eq!(failed.map(|answer| answer.status).collect::<Vec<_>>(), [502; 9], "{engine}");
    wait(&served, 0);
    let failed = "forebay_upstream_requests_total{result=\"failed\"}";
    assert_eq!(served.metric(failed), 9);
}

fn sites_that_share_an_application_count_together(engine: &str) {
    let gate = Gate::start();
    let folder = Folder::new();
    let site = |name: &str, more: &str| {
        format!(
            "[[site]]\nname = \"{name}\"\nhosts = [\"{name}.example\"]\nroot = \"{}\"\n\
             [[site.proxy]]\npath = \"/\"\nto = \"http://{}\"\nin_flight = 1\n{more}\n",
            folder.join("").display(),
            gate.addr
        )
    };
    // settings of a route for its own requests do not make another application of it
    let lines = site("one", "timeouts.head = \"5m\"") + &site("two", "prefix = \"/v2\"");
    let served = WatchedServer::with(Options::new(folder.join("")).engine(engine).config(&lines));
    let ask_of = |site: &str| {
        let mut client = served.client();
        let head = format!("GET /{site} HTTP/1.1\r\nHost: {site}.example\r\n\r\n");
        client.stream().write_all(head.as_bytes()).unwrap();
        client
    };
    let mut one = ask_of("one");
    gate.has(1);
    let mut two = ask_of("two");
    wait(&served, 1);
    gate.answer(2);
    assert_eq!((status(&mut one), status(&mut two)), (200, 200), "{engine}");
}

/// A command takes an upstream out, and it stays out through a reload.
#[test]
fn an_upstream_is_taken_out_and_back_in() {
    let (one, other) = (Gate::start(), Gate::start());
    let folder = Folder::new();
    let config = |fields: &str| {
        format!(
            "[[proxy]]\npath = \"/\"\nto = [\"http://{}\", \"http://{}\"]\n\
             balance = \"round-robin\"\nin_flight = 8\n{fields}",
            one.addr, other.addr
        )
    };
    let options = Options::new(folder.join("")).config(&config(""));
    let server = Server::start(&options);
    let command = |words: &[&str]| {
        let mut command = Command::new(binary());
        let output = command.arg("upstream").args(words).arg("-c").arg(server.file()).output();
        let output = output.unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    one.answer(1000);
    other.answer(1000);
    let asked = |gate: &Gate| {
        let before = gate.came().len();
        for _ in 0..6 {
            let answer = server.exchange(b"GET /a HTTP/1.0\r\nHost: a\r\n\r\n");
            assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", answer.escape_ascii());
        }
        gate.came().len() - before
    };
    assert_eq!(asked(&one), 3);
    let label = one.addr.to_string();
    let (code, said) = command(&["drain", &format!("http://{label}")]);
    assert!(code == Some(0) && said.starts_with(&format!("{label} is drained")), "{said}");
    assert_eq!((asked(&one), asked(&other)), (0, 6));
    let (code, said) = command(&["list"]);
    let line = said.lines().find(|line| line.starts_with(&label)).unwrap();
    assert!(code == Some(0) && line.contains("drained") && line.contains("0 of 8"), "{said}");
    // through a change of what is said of it, and of what is beside it
    for fields in ["max_fails = 7", "timeouts.head = \"5s\""] {
        server.configure(&Options::new(folder.join("")).config(&config(fields)));
        assert_eq!(server.reload().0, Some(0));
        assert_eq!((asked(&one), asked(&other)), (0, 6), "{fields}");
    }
    let alone = format!("[[proxy]]\npath = \"/\"\nto = \"http://{label}\"\n");
    server.configure(&Options::new(folder.join("")).config(&alone));
    assert_eq!(server.reload().0, Some(0));
    let answer = server.exchange(b"GET /a HTTP/1.0\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with(b"HTTP/1.1 503 "), "{}", answer.escape_ascii());
    let (code, said) = command(&["drain", "10.9.9.9:1"]);
    assert!(code == Some(1) && said.contains(&label), "{said}");
    let (code, said) = command(&["resume", &label]);
    assert_eq!((code, said.as_str()), (Some(0), format!("{label} is asked again\n").as_str()));
    assert_eq!(asked(&one), 6);
}

/// Log lines show what happened to requests, and the failure of an application is reported.
#[test]
fn the_log_says_which_upstream_was_asked_and_what_came_of_it() {
    let gate = Gate::start();
    let folder = Folder::new();
    let lines = format!(
        "log.format = \"json\"\nlog.access = \"-\"\n[[proxy]]\npath = \"/\"\nto = \"http://{}\"\n\
         in_flight = 1\nqueue.requests = 1\nqueue.time = \"100ms\"\nmax_fails = 1\n",
        gate.addr
    );
    let server = Server::start(&Options::new(folder.join("")).config(&lines));
    let ask = |path: &str| {
        let mut client = Client::connect(server.addr());
        assert!(client.ask(path));
        client
    };
    let mut first = ask("/first");
    gate.has(1);
    let mut second = ask("/late");
    assert_eq!(status(&mut second), 503);
    let mut third = ask("/waits");
    // it waits by then, or is late as well
    let full = soon(PATIENCE, || ask("/full").answer().unwrap().status == 503);
    assert!(full);
    gate.answer(2);
    assert_eq!(status(&mut first), 200);
    let _ = status(&mut third);
    gate.end();
    assert!(soon(PATIENCE, || status(&mut ask("/ended")) == 502));
    let line = |path: &str, has: &[&str]| {
        let has_line = || {
            let text = server.stdout();
            let mut lines = text.lines().filter(|line| line.contains(&format!("\"{path}\"")));
            lines.any(|line| has.iter().all(|part| line.contains(part)))
        };
        assert!(soon(PATIENCE, has_line), "{path} {has:?}: {}", server.stdout());
    };
    let upstream = format!("\"upstream\":\"{}\"", gate.addr);
    line(
        "/first",
        &[&upstream, "\"upstream_status\":200", "\"upstream_attempts\":1", "\"upstream_us\":"],
    );
    line("/first", &["\"upstream_queue_us\":0,\"upstream_connect_us\":", "\"upstream_head_us\":"]);
    line(
        "/late",
        &["\"upstream_error\":\"queue_timeout\",\"upstream_attempts\":0,\"upstream_queue"],
    );
    line("/ended", &[&upstream, "\"upstream_error\":\"closed\"", "\"status\":502"]);
    let said =
        format!("forebay: upstream {}: fails, and is asked all the same: none is well", gate.addr);
    assert!(soon(PATIENCE, || server.stderr().contains(&said)), "{}", server.stderr());
}

fn bodies_wait_with_their_client(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gate, "in_flight = 1", CLASSES);
    let mut first = ask(&served, "/bulk/0");
    gate.has(1);
    let mut second = served.client();
    let head = "POST /bulk/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n";
    second.stream().write_all(head.as_bytes()).unwrap();
    wait(&served, 1);
    gate.answer(2);
    assert_eq!(status(&mut first), 200);
    // the body is received as the application takes it
    second.stream().write_all(&vec![b'x'; 200_000]).unwrap();
    let answer = second.answer().unwrap();
    assert_eq!((answer.status, answer.body.len()), (200, 200_000), "{engine}");
}

/// The fields for the application are written anew when a request has its turn.
fn what_has_waited_is_asked_as_if_it_had_not(engine: &str) {
    let gate = Gate::start();
    let route = "in_flight = 1\nset = { X-Asked = \"$path $header.X-Mine\" }\nprefix = \"/app\"";
    let (served, _folder) = serve(engine, &gate, route, CLASSES);
    let head = "POST /bulk/a%20b?c HTTP/1.1\r\nHost: a\r\nX-Mine: m\r\nCookie: d=e\r\n\
                Content-Length: 3\r\n\r\nxyz";
    let asked = || {
        let mut client = served.client();
        client.stream().write_all(head.as_bytes()).unwrap();
        client
    };
    let mut first = asked();
    gate.has(1);
    let mut second = asked();
    wait(&served, 1);
    gate.answer(2);
    for client in [&mut first, &mut second] {
        let answer = client.answer().unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"xyz"[..]), "{engine}");
    }
    assert!(gate.head(0).contains("X-Asked: "), "{}", gate.head(0));
    assert_eq!(gate.head(0), gate.head(1), "{engine}");
}

/// Requests of one connection that come while others wait: as many as may do, too, without a descriptor where a loop
/// waits for them.
fn what_comes_together_waits_or_is_refused(engine: &str) {
    let gate = Gate::start();
    let route = "in_flight = 1\nqueue.requests = 30\nqueue.time = \"5m\"";
    let (served, _folder) = serve(engine, &gate, route, CLASSES);
    let mut first = ask(&served, "/bulk/0");
    gate.has(1);
    let mut second = ask(&served, "/bulk/1");
    wait(&served, 1);
    let before = open_descriptors(served.pid());
    let mut client = http2::Client::of(&served);
    let streams = client.ask_at_once(&[("/bulk/many", &[][..]); 40]);
    wait(&served, 30);
    client.until(|client| {
        streams.iter().filter(|stream| client.so_far(**stream).is_whole).count() == 11
    });
    let taken = open_descriptors(served.pid()).saturating_sub(before);
    if ["event", "fibers"].contains(&engine) {
        assert!(taken < 15, "{taken} more descriptors for 29 requests that wait");
    }
    gate.answer(31);
    assert_eq!((status(&mut first), status(&mut second)), (200, 200), "{engine}");
    let statuses: Vec<_> = streams.iter().map(|stream| client.answer(*stream).status).collect();
    let count = |status| statuses.iter().filter(|one| **one == status).count();
    assert_eq!((count(200), count(503)), (29, 11), "{engine}: {statuses:?}");
    wait(&served, 0);
}

/// A body that comes too slowly has its place for as long as nobody else wants it.
fn a_body_that_drips_gives_its_place_up(engine: &str) {
    let gate = Gate::start();
    let route = "in_flight = 1\ntimeouts.body = \"100ms\"";
    let (served, _folder) = serve(engine, &gate, route, CLASSES);
    let in_flight = || served.metric("forebay_upstream_requests_in_flight");
    let mut drips = served.client();
    let head = "POST /bulk/0 HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    drips.stream().write_all(head.as_bytes()).unwrap();
    assert!(soon(PATIENCE, || in_flight() == 1), "{engine}");
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(60));
        drips.stream().write_all(b"x").unwrap();
    }
    assert_eq!(in_flight(), 1, "{engine}");
    gate.answer(1);
    assert_eq!(status(&mut ask(&served, "/bulk/1")), 200, "{engine}");
    assert_eq!(status(&mut drips), 408, "{engine}");
    assert!(soon(PATIENCE, || in_flight() == 0), "{engine}");
    // and so has a stream of HTTP/2
    let mut client = http2::Client::of(&served);
    let length = [("content-length", "100000")];
    let drips = client.begin("POST", "/bulk/2", &length, false);
    client.send(drips, b"x", false);
    assert!(soon(PATIENCE, || in_flight() == 1), "{engine}");
    gate.answer(1);
    assert_eq!(status(&mut ask(&served, "/bulk/3")), 200, "{engine}");
    assert_eq!(client.answer(drips).status, 408, "{engine}");
    assert_eq!(gate.came(), ["/bulk/1", "/bulk/3"], "{engine}");
    // the check of the body is no timeout, and the application is not blamed
    let late = || served.metric("forebay_timeouts_total{kind=\"upstream_flow\"}");
    assert!(soon(PATIENCE, || late() == 2), "{engine}: {}", late());
    assert_eq!(served.metric("forebay_upstream_requests_total{result=\"failed\"}"), 0);
}

/// Counters distinguish 502, 503 and 504 in the place of an application for each class.
#[test]
fn what_is_not_answered_is_counted_by_class() {
    let (gate, late) = (Gate::start(), Gate::start());
    // no other process takes it meanwhile
    let ended = free_addr();
    let folder = Folder::new();
    let lines = format!(
        "log.format = \"json\"\nlog.access = \"-\"\n\
         [[proxy]]\npath = \"/gold/full\"\nto = \"http://{}\"\nin_flight = 1\nqueue.requests = 0\n\
         [[proxy]]\npath = \"/bulk/late\"\nto = \"http://{}\"\ntimeouts.head = \"100ms\"\n\
         [[proxy]]\npath = \"/bulk/ended\"\nto = \"http://{ended}\"\nmax_fails = 0\n{CLASSES}",
        gate.addr, late.addr
    );
    let served = WatchedServer::with(Options::new(folder.join("")).config(&lines));
    let mut first = ask(&served, "/gold/full");
    gate.has(1);
    assert_eq!(status(&mut ask(&served, "/gold/full")), 503);
    assert_eq!(status(&mut ask(&served, "/bulk/late")), 504);
    assert_eq!([0; 2].map(|_| status(&mut ask(&served, "/bulk/ended"))), [502; 2]);
    gate.answer(1);
    assert_eq!(status(&mut first), 200);
    let metric = "forebay_class_unanswered_total";
    let counted = |class| {
        ["502", "503", "504"].map(|status| {
            served.metric(&format!("{metric}{{class=\"{class}\",status=\"{status}\"}}"))
        })
    };
    assert_eq!((counted("gold"), counted("bulk")), ([0, 1, 0], [2, 0, 1]));
    let mut command = Command::new(binary());
    let output = command.args(["policy", "show", "-c"]).arg(served.file()).output();
    let shown = String::from_utf8(output.unwrap().stdout).unwrap();
    let rows: Vec<Vec<&str>> =
        shown.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [["gold", "503", "1"], ["bulk", "502", "2"], ["bulk", "504", "1"]] {
        assert!(rows.iter().any(|known| known == &row), "{row:?}: {shown}");
    }
    // a client leaves: its line has the application that was asked
    let mut leaves = ask(&served, "/gold/full?leaves");
    gate.has(2);
    set_socket_linger(leaves.stream(), Some(Duration::ZERO)).unwrap();
    drop(leaves);
    let has =
        ["\"/gold/full?leaves\"", "\"given_up\":true", &format!("\"upstream\":\"{}\"", gate.addr)];
    let line = || {
        let text = served.stdout();
        text.lines().any(|line| has.iter().all(|part| line.contains(part)))
    };
    assert!(soon(PATIENCE, line), "{}", served.stdout());
}

/// A wait for an application beyond the limit of its class is overload: rules for overload hold, with and
/// without the agent, and no longer than it lasts.
#[test]
fn who_waits_for_an_application_brings_rules_for_overload_into_force() {
    for agent in ["off", "on"] {
        let gate = Gate::start();
        let folder = Folder::new();
        folder.write("robots/a", "page");
        let lines = format!(
            "agent = \"{agent}\"\n[[proxy]]\npath = \"/app\"\nto = \"http://{}\"\nin_flight = 1\nqueue.time = \"5m\"\n\
             [[class]]\nname = \"gold\"\npriority = 0\ndelay = \"50ms\"\n\
             [[rule]]\nname = \"robots\"\npath = \"/robots/*\"\nwhen = \"overload\"\naction = \"reject\"\n\
             status = 429\n",
            gate.addr
        );
        let served = WatchedServer::with(Options::new(folder.join("")).config(&lines));
        let robot = || served.client().get("/robots/a").unwrap().status;
        // a machine that is busy with something else may be overloaded for a moment
        assert!(soon(PATIENCE, || robot() == 200), "agent {agent}");
        let mut first = ask(&served, "/app/0");
        gate.has(1);
        let mut second = ask(&served, "/app/1");
        wait(&served, 1);
        assert!(soon(PATIENCE, || robot() == 429), "agent {agent}");
        // and nothing beyond
        let lines =
            ["forebay_overload_cause{cause=\"applications\"} 1\n", "forebay_overload_level 1\n"];
        let is_so = || {
            let metrics = served.metrics();
            lines.iter().all(|line| metrics.contains(line))
        };
        assert!(soon(PATIENCE, is_so), "agent {agent}: {}", served.metrics());
        gate.answer(2);
        assert_eq!((status(&mut first), status(&mut second)), (200, 200));
        assert!(soon(PATIENCE, || robot() == 200), "agent {agent}");
    }
}
