//! Requests that share connections to an application (`http2_connections`): they run at once, keep to the
//! application's limits, and do not affect one another.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

mod application;

use crate::upgrade::upgrade;
use application::{Application, TERMS, Terms};
use forebay_tests::faults::site::{Folder, counting};
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::http2::Client;
use forebay_tests::tls::{Authority, SealedApplication, server};
use forebay_tests::{ISOLATED, Options, Server, on_each_engine, on_isolated, wire};
use rcgen::PKCS_ECDSA_P256_SHA256;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

on_each_engine!(
    two_hundred_requests_go_on_at_once_over_two_connections,
    bodies_and_trailers_go_both_ways,
    a_client_that_takes_nothing_holds_up_no_other,
    those_beyond_the_streams_there_are_wait_for_one,
    streams_that_are_lowered_are_kept_to,
    what_a_goaway_gives_back_is_asked_again,
    what_is_refused_is_asked_again,
    a_client_that_leaves_resets_its_stream_alone,
    a_connection_that_dies_takes_only_what_may_not_be_repeated,
    windows_that_begin_closed_are_waited_for,
    places_and_the_queue_count_requests,
    streams_go_on_through_reloads,
    through_tls_connections_are_shared_too,
);

on_isolated!(
    two_hundred_requests_go_on_at_once_over_two_connections,
    bodies_and_trailers_go_both_ways,
    a_client_that_takes_nothing_holds_up_no_other,
    those_beyond_the_streams_there_are_wait_for_one,
    what_a_goaway_gives_back_is_asked_again,
    a_client_that_leaves_resets_its_stream_alone,
    through_tls_connections_are_shared_too,
);

/// The setting of connections for an engine: it counts for each process, and `isolated` has one process
/// that asks applications.
fn of_engine(engine: &str) -> &str {
    if engine == ISOLATED { "isolated.respond = 1\n" } else { "" }
}

fn lines(engine: &str, app: &Application, connections: usize, more: &str) -> String {
    let first = of_engine(engine);
    format!(
        "{first}[[proxy]]\npath = \"/\"\nto = \"http://{}\"\nhttp2 = true\nhttp2_connections = {connections}\n{more}",
        app.addr
    )
}

fn start(engine: &str, app: &Application, connections: usize, more: &str) -> (Server, Folder) {
    let folder = Folder::new();
    let options = Options::new(folder.path()).engine(engine);
    (Server::start(&options.config(&lines(engine, app, connections, more))), folder)
}

fn ask(server: &Server, method: &str, path: &str) -> String {
    let body = if method == "POST" { "Content-Length: 4\r\n\r\nbody" } else { "\r\n" };
    let text = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{body}");
    String::from_utf8_lossy(&wire::exchange(server.addr(), text.as_bytes())).into_owned()
}

fn get(server: &Server, path: &str) -> String {
    ask(server, "GET", path)
}

/// Has this number of clients ask this at the same time, each once. Returns what they got.
fn at_once(server: &Server, count: usize, method: &str, path: &str) -> Vec<String> {
    let barrier = Barrier::new(count);
    thread::scope(|scope| {
        let one = || {
            barrier.wait();
            ask(server, method, path)
        };
        let all: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

fn are_well(answers: &[String], body: &str) {
    for answer in answers {
        let is_well = answer.starts_with("HTTP/1.1 200 ") && answer.contains(body);
        assert!(is_well, "{answer}");
    }
}

const CALL: [(&str, &str); 2] = [("content-type", "application/grpc"), ("te", "trailers")];

fn two_hundred_requests_go_on_at_once_over_two_connections(engine: &str) {
    let app = Application::start(TERMS);
    let (server, _folder) = start(engine, &app, 2, "");
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(server.addr())).collect();
    for round in 0..2 {
        let begun = std::time::Instant::now();
        let asked: Vec<Vec<u32>> = clients
            .iter_mut()
            .map(|client| client.ask_at_once(&[("/sleep/100", &[][..]); 50]))
            .collect();
        for (client, streams) in clients.iter_mut().zip(asked) {
            for stream in streams {
                let answer = client.answer(stream);
                assert_eq!((answer.status, &answer.body[..]), (200, &b"slept"[..]));
            }
        }
        // for a reader of the output: no test asserts a time
        println!("round {round} on {engine}: {:?}", begun.elapsed());
    }
    assert!(app.count(|counts| &counts.connections) <= 2);
    let peak = app.count(|counts| &counts.peak);
    assert!(peak >= 50, "{peak} at once on a connection");
}

fn bodies_and_trailers_go_both_ways(engine: &str) {
    let app = Application::start(TERMS);
    let (server, _folder) = start(engine, &app, 1, "");
    are_well(&[ask(&server, "POST", "/said")], "/said 4");
    let head = ask(&server, "HEAD", "/size/500");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(get(&server, "/size/3000000").len() > 3_000_000);
    let mut client = Client::connect(server.addr());
    let body = counting(1_000_000);
    let stream = client.begin("POST", "/echo", &CALL, false);
    client.send_all(stream, &body);
    let answer = client.answer(stream);
    assert!(answer.body == body, "{} bytes", answer.body.len());
    assert_eq!(answer.trailers, [("grpc-status".to_owned(), "0".to_owned())]);
    // in turns, too, and with trailers of the client's
    let stream = client.begin("POST", "/echo", &CALL, false);
    client.until(|client| client.so_far(stream).status == 200);
    for number in 1..=5 {
        client.send(stream, b"piece", false);
        client.until(|client| client.so_far(stream).body.len() == 5 * number);
    }
    client.trail(stream, &[("check", "1")]);
    assert_eq!(client.answer(stream).body.len(), 25);
    assert_eq!(app.count(|counts| &counts.connections), 1);
    assert_eq!(app.count(|counts| &counts.resets), 0);
}

fn a_client_that_takes_nothing_holds_up_no_other(engine: &str) {
    let app = Application::start(TERMS);
    let (server, _folder) = start(engine, &app, 1, "");
    let mut slow = Client::connect(server.addr());
    slow.takes = false;
    let stream = slow.ask("/size/20000000");
    slow.until(|client| client.so_far(stream).body.len() > 60_000);
    let mut fast = Client::connect(server.addr());
    for _ in 0..20 {
        assert_eq!(fast.get("/size/300000").body.len(), 300_000);
    }
    // the bytes that the client has, those in the server or between its stages, and the window of the
    // stream
    let sent = app.counts.sent.lock().unwrap()[&20_000_000];
    let most = if engine == ISOLATED { 2_000_000 } else { 600_000 };
    assert!(sent <= most, "{sent} bytes have come for whoever takes none");
    slow.reset(stream);
    assert!(soon(wire::PATIENCE, || app.count(|counts| &counts.resets) == 1));
    assert_eq!(app.count(|counts| &counts.connections), 1);
}

fn those_beyond_the_streams_there_are_wait_for_one(engine: &str) {
    let app = Application::start(Terms { streams: 5, ..TERMS });
    let (server, _folder) = start(engine, &app, 1, "queue.time = \"300ms\"\nmax_fails = 1\n");
    // each waits for those before it, and not for a connection
    are_well(&at_once(&server, 20, "GET", "/sleep/20"), "slept");
    assert_eq!(app.count(|counts| &counts.peak), 5);
    let mut client = Client::connect(server.addr());
    let hang: Vec<u32> = (0..5).map(|_| client.begin("POST", "/hang", &[], true)).collect();
    assert!(soon(wire::PATIENCE, || app.count(|counts| &counts.requests) == 25));
    let late = get(&server, "/late");
    assert!(late.starts_with("HTTP/1.1 503 "), "{late}");
    // streams were short, and the application has not failed
    client.reset(hang[0]);
    are_well(&[get(&server, "/soon")], "/soon 0");
    assert_eq!(app.count(|counts| &counts.connections), 1);
}

fn streams_that_are_lowered_are_kept_to(engine: &str) {
    let app = Application::start(TERMS);
    let (server, _folder) = start(engine, &app, 1, "");
    let mut client = Client::connect(server.addr());
    let sleeps: Vec<u32> = (0..10).map(|_| client.ask("/sleep/50")).collect();
    assert!(soon(wire::PATIENCE, || app.count(|counts| &counts.requests) == 10));
    are_well(&[get(&server, "/lower/2")], "lowered");
    app.counts.peak.store(0, SeqCst);
    for stream in sleeps {
        assert_eq!(client.answer(stream).status, 200);
    }
    are_well(&at_once(&server, 12, "GET", "/sleep/10"), "slept");
    let peak = app.count(|counts| &counts.peak);
    assert!(peak <= 2, "{peak} at once");
    assert_eq!(app.count(|counts| &counts.connections), 1);
}

fn what_a_goaway_gives_back_is_asked_again(engine: &str) {
    let app = Application::start(TERMS);
    // the application stays within these bounds: nothing has failed
    let (server, _folder) = start(engine, &app, 1, "retries = 0\nmax_fails = 1\n");
    let mut client = Client::connect(server.addr());
    let first = client.begin("POST", "/echo", &CALL, false);
    client.until(|client| client.so_far(first).status == 200);
    let held: Vec<u32> = (0..20).map(|_| client.begin("POST", "/hold", &[], true)).collect();
    assert!(soon(wire::PATIENCE, || app.count(|counts| &counts.requests) == 21));
    are_well(&[get(&server, "/goaway")], "/goaway 0");
    for stream in held {
        let answer = client.answer(stream);
        assert_eq!((answer.status, &answer.body[..]), (200, &b"/hold 0"[..]));
    }
    // the one that was begun goes on where it is
    client.send(first, b"and on", true);
    assert_eq!(client.answer(first).body, b"and on");
    assert_eq!(app.count(|counts| &counts.connections), 2);
    assert!(soon(wire::PATIENCE, || app.count(|counts| &counts.open) == 1));
}

fn what_is_refused_is_asked_again(engine: &str) {
    let app = Application::start(TERMS);
    let (server, _folder) = start(engine, &app, 1, "max_fails = 1\n");
    let number = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let path = format!("/refuse/{}", number.fetch_add(1, SeqCst));
                    are_well(&[ask(&server, "POST", &path)], &format!("{path} 4"));
                }
            });
        }
    });
    assert_eq!(app.count(|counts| &counts.requests), 80);
    assert_eq!(app.count(|counts| &counts.connections), 1);
}

fn a_client_that_leaves_resets_its_stream_alone(engine: &str) {
    let app = Application::start(TERMS);
    let (server, _folder) = start(engine, &app, 1, "in_flight = 20\nabort_on_close = true\n");
    let mut stays = Client::connect(server.addr());
    let stream = stays.begin("POST", "/echo", &CALL, false);
    stays.until(|client| client.so_far(stream).status == 200);
    let mut leaves = Client::connect(server.addr());
    let hang: Vec<u32> = (0..10).map(|_| leaves.begin("POST", "/hang", &CALL, true)).collect();
    assert!(soon(wire::PATIENCE, || app.count(|counts| &counts.requests) == 11));
    leaves.reset(hang[0]);
    assert!(soon(wire::PATIENCE, || app.count(|counts| &counts.resets) == 1));
    drop(leaves);
    assert!(soon(wire::PATIENCE, || app.count(|counts| &counts.resets) == 10));
    stays.send(stream, b"still here", true);
    assert_eq!(stays.answer(stream).body, b"still here");
    // all places are free
    are_well(&at_once(&server, 20, "GET", "/sleep/10"), "slept");
    assert_eq!(app.count(|counts| &counts.connections), 1);
}

fn a_connection_that_dies_takes_only_what_may_not_be_repeated(engine: &str) {
    let app = Application::start(TERMS);
    let (server, _folder) = start(engine, &app, 1, "retry_budget = \"100%\"\nmax_fails = 0\n");
    let mut client = Client::connect(server.addr());
    let begin = |client: &mut Client, method: &str| -> Vec<u32> {
        (0..25).map(|_| client.begin(method, "/hold", &[], true)).collect()
    };
    let (safe, unsafe_ones) = (begin(&mut client, "GET"), begin(&mut client, "POST"));
    assert!(soon(wire::PATIENCE, || app.count(|counts| &counts.requests) == 50));
    are_well(&[get(&server, "/die")], "/die 0");
    for stream in safe {
        let answer = client.answer(stream);
        assert_eq!((answer.status, &answer.body[..]), (200, &b"/hold 0"[..]));
    }
    for stream in unsafe_ones {
        assert_eq!(client.answer(stream).status, 502);
    }
    // 51, and those that were asked again
    assert_eq!(app.count(|counts| &counts.requests), 51 + 26);
    assert_eq!(app.count(|counts| &counts.connections), 2);
}

fn windows_that_begin_closed_are_waited_for(engine: &str) {
    let app = Application::start(Terms { is_shut: true, ..TERMS });
    let (server, _folder) = start(engine, &app, 1, "");
    let body = counting(500_000);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect(server.addr());
                let stream = client.begin("POST", "/said", &[], false);
                client.send_all(stream, &body);
                assert_eq!(client.answer(stream).body, b"/said 500000");
            });
        }
    });
    assert_eq!(app.count(|counts| &counts.connections), 1);
}

fn places_and_the_queue_count_requests(engine: &str) {
    let app = Application::start(TERMS);
    let folder = Folder::new();
    let options = Options::new(folder.path()).engine(engine);
    let served = WatchedServer::with(options.config(&lines(engine, &app, 1, "in_flight = 10\n")));
    let in_flight = || served.metric("forebay_upstream_requests_in_flight");
    let mut client = Client::of(&served);
    let all: Vec<u32> = (0..30).map(|_| client.ask("/sleep/100")).collect();
    assert!(soon(wire::PATIENCE, || in_flight() == 10));
    for stream in all {
        assert_eq!(client.answer(stream).status, 200);
    }
    assert_eq!(app.count(|counts| &counts.peak), 10);
    assert!(soon(wire::PATIENCE, || in_flight() == 0));
    assert_eq!(app.count(|counts| &counts.connections), 1);
}

fn streams_go_on_through_reloads(engine: &str) {
    let app = Application::start(TERMS);
    let folder = Folder::new();
    let options = |connections: usize| {
        Options::new(folder.path()).engine(engine).config(&lines(engine, &app, connections, ""))
    };
    let server = Server::start(&options(1));
    let mut client = Client::connect(server.addr());
    let stream = client.begin("POST", "/echo", &CALL, false);
    client.until(|client| client.so_far(stream).status == 200);
    for number in 1..=3 {
        server.configure(&options(number));
        assert_eq!(server.reload().0, Some(0));
        client.send(stream, b"more", false);
        client.until(|client| client.so_far(stream).body.len() == 4 * number);
        are_well(&at_once(&server, 6, "GET", "/sleep/20"), "slept");
        assert!(app.count(|counts| &counts.open) <= number + 1);
    }
    let next = upgrade(&server);
    are_well(&at_once(&server, 6, "GET", "/sleep/20"), "slept");
    client.send(stream, b"", true);
    assert_eq!(client.answer(stream).trailers, [("grpc-status".to_owned(), "0".to_owned())]);
    drop(next);
}

fn through_tls_connections_are_shared_too(engine: &str) {
    let (app, folder, authority) = (Application::start(TERMS), Folder::new(), Authority::new());
    authority.write(folder.path(), "app", &["localhost"], &PKCS_ECDSA_P256_SHA256);
    folder.write("ca.pem", &authority.pem);
    let mut config = server(folder.path(), "app");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let sealed = SealedApplication::start(config, app.addr);
    let mut config = server(folder.path(), "app");
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let not = SealedApplication::start(config, app.addr);
    let route = |path: &str, port: u16| {
        format!(
            "[[proxy]]\npath = \"{path}\"\nto = \"https://localhost:{port}\"\nhttp2 = true\n\
             http2_connections = 2\ntls.ca = [\"{}\"]\n\n",
            folder.join("ca.pem").display()
        )
    };
    let routes = [route("/not", not.addr.port()), route("/*", sealed.addr.port())].concat();
    let lines = format!("{}{routes}", of_engine(engine));
    let server = Server::start(&Options::new(folder.path()).engine(engine).config(&lines));
    are_well(&at_once(&server, 40, "GET", "/sleep/50"), "slept");
    assert!(app.count(|counts| &counts.connections) <= 2);
    assert!(get(&server, "/size/1000000").len() > 1_000_000);
    assert!(get(&server, "/not").starts_with("HTTP/1.1 502 "));
}
