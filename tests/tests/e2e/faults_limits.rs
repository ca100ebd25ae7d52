//! Limits: connections in total and per client, requests per connection. And a connection that is
//! closed with input unread lingers, since a reset would take the answer from its client.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::Client;
use forebay_tests::faults::crowd::{Crowd, client_address};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::{End, PATIENCE, read_to_end};
use forebay_tests::{Options, has_thread_each};
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::io::Write;
use std::time::{Duration, Instant};

forebay_tests::on_each_engine! {
    a_client_gets_no_more_connections_than_it_may,
    all_clients_together_get_no_more_connections_than_they_may,
    a_connection_makes_no_more_requests_than_it_may,
    an_early_answer_is_not_lost_to_a_reset,
    lingering_is_bounded,
    who_is_refused_keeps_nobody_waiting,
    a_half_closed_client_gets_its_answers,
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("index.html", "a");
    folder
}

fn refused(served: &WatchedServer, reason: &str) -> u64 {
    served.metric(&format!("forebay_connections_refused_total{{reason=\"{reason}\"}}"))
}

/// Whether each member of the crowd has an answer, or its connection was ended.
fn all_settled(crowd: &Crowd) -> bool {
    let is_whole = |bytes: &[u8]| bytes.windows(4).any(|four| four == b"\r\n\r\n");
    crowd.members.iter().all(|member| member.end.is_some() || is_whole(&member.received))
}

/// One client has as many connections as it may; others are served beside it; a place that is given back
/// can be taken again; and refusals are counted exactly.
fn a_client_gets_no_more_connections_than_it_may(engine: &str) {
    let folder = site();
    let served =
        WatchedServer::start(engine, folder.path(), "limits.connections_per_client = 5").settled();
    let mut crowd = Crowd::connect(served.target(), 8, 8).unwrap();
    crowd.send(GET.as_bytes());
    assert!(crowd.read_until(PATIENCE, all_settled));
    assert_eq!(crowd.answered(200), 5);
    assert!(soon(PATIENCE, || refused(&served, "client_limit") >= 3));
    assert_eq!(refused(&served, "client_limit"), 3);
    assert_eq!(crowd.answered(503) + empty(&crowd), 3, "a refusal is a 503 or a close");

    let other = served.target().connect_from(client_address(1)).unwrap();
    assert_eq!(Client::over(other).get("/").expect("another client").status, 200);

    crowd.members.retain(|member| member.end.is_none());
    crowd.members.truncate(4);
    let again = || {
        let stream = served.target().connect_from(client_address(0)).unwrap();
        Client::over(stream).get("/").is_ok_and(|answer| answer.status == 200)
    };
    assert!(soon(PATIENCE, again), "the place is not given back");
}

fn empty(crowd: &Crowd) -> usize {
    crowd.members.iter().filter(|member| member.received.is_empty()).count()
}

/// The limit on all connections holds over all loops.
fn all_clients_together_get_no_more_connections_than_they_may(engine: &str) {
    let folder = site();
    // a client that was answered keeps its place, though no place is left
    let limits = "limits.connections = 6\nlimits.connections_per_client = 6\n\
                  keep_alive.law = \"constant\"";
    let served = WatchedServer::start(engine, folder.path(), limits).settled();
    let mut crowd = Crowd::connect(served.target(), 10, 1).unwrap();
    crowd.send(GET.as_bytes());
    assert!(crowd.read_until(PATIENCE, all_settled));
    assert_eq!(crowd.answered(200), 6);
    assert!(soon(PATIENCE, || refused(&served, "limit") >= 4));
    assert_eq!(refused(&served, "limit"), 4);
    assert_eq!(crowd.answered(503) + empty(&crowd), 4, "a refusal is a 503 or a close");
    drop(crowd);
    let is_served = || served.client().get("/").is_ok_and(|answer| answer.status == 200);
    assert!(soon(PATIENCE, is_served), "the places are not given back");
}

/// The last request that a connection may make is answered with `Connection: close`, and later bytes of
/// the client do not destroy that answer.
fn a_connection_makes_no_more_requests_than_it_may(engine: &str) {
    let folder = site();
    let served = WatchedServer::start(engine, folder.path(), "limits.requests_per_connection = 3");
    for unread in [0, 7, 5_000] {
        let mut client = served.client();
        // all of it lies in the kernel at once: the server waits two seconds for a client to go on
        set_socket_send_buffer_size(client.stream(), 1 << 20).unwrap();
        client.stream().write_all(GET.repeat(3 + unread).as_bytes()).unwrap();
        for number in 1..=3 {
            let answer = client.answer().unwrap_or_else(|cut| panic!("{unread} unread: {cut:?}"));
            let closes = answer.field("connection") == Some("close");
            assert_eq!(closes, number == 3, "answer {number}: {}", answer.head);
        }
        assert!(client.is_closed());
    }
}

/// A client that first sends everything it has, and only then reads, still reads the whole answer
/// to the request that was refused, and an orderly end.
fn an_early_answer_is_not_lost_to_a_reset(engine: &str) {
    let folder = site();
    let settings = "limits.body_bytes = \"1KiB\"\nlimits.head_bytes = \"4KiB\"";
    let served = WatchedServer::start(engine, folder.path(), settings);
    let body = "b".repeat(150 << 10);
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let head = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
    let cases = [
        ("413", head(&format!("Content-Length: {}", body.len())) + &body),
        ("413", head("Transfer-Encoding: chunked") + &chunks),
        ("400", format!("GET / HTTP/1.1\r\nHost : a\r\n\r\n{body}")),
        ("414", format!("GET /{body} HTTP/1.1\r\nHost: a\r\n\r\n")),
        ("431", format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {body}\r\n\r\n")),
    ];
    for (status, request) in &cases {
        for round in 0..20 {
            // the server waits for two seconds: a client that was kept from its core is too late
            let mut sends = (0..10).map(|_| {
                let mut stream = served.target().connect();
                let begun = Instant::now();
                let sent = stream.write_all(request.as_bytes());
                (stream, sent, begun.elapsed())
            });
            let in_time = |time: &Duration| *time < Duration::from_secs(1);
            let sent = sends.find(|(_, sent, took)| sent.is_ok() || in_time(took));
            let (mut stream, sent, _) = sent.expect("a client that is in time");
            assert!(sent.is_ok(), "{status}, round {round}: {sent:?} while sending");
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let (answer, end) = read_to_end(&mut stream, PATIENCE);
            let text = String::from_utf8_lossy(&answer);
            assert!(
                text.starts_with(&format!("HTTP/1.1 {status} ")),
                "{status}: {text:?}, {end:?}"
            );
            assert_eq!(end, End::Closed, "{status}, round {round}");
            assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{text}");
        }
    }
}

/// Lingering is bounded: a client that never stops sending is cut off, and does not keep others
/// from being served.
fn lingering_is_bounded(engine: &str) {
    let folder = site();
    let served = WatchedServer::alone(engine, folder.path(), "limits.body_bytes = \"1KiB\"");
    let mut endless: Vec<_> = (0..20).map(|_| served.target().connect()).collect();
    for stream in &mut endless {
        stream
            .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")
            .unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    }
    let (block, mut client) = (vec![b'b'; 64 << 10], served.client());
    let is_cut = |error: std::io::Error| error.kind() != std::io::ErrorKind::WouldBlock;
    // each may linger for 30 s
    let all_cut = soon(3 * PATIENCE, || {
        endless.retain_mut(|stream| !stream.write(&block).is_err_and(is_cut));
        assert_eq!(client.get("/").expect("another client's answer").status, 200);
        endless.is_empty()
    });
    assert!(all_cut, "{} may send for ever", endless.len());
    assert!(soon(PATIENCE, || served.metric("forebay_connections") <= 1), "not closed");
}

/// A client that has all the connections it may have, and comes again and again, holds up no other
/// client: not even where each refusal takes a thread that waits for the client to go.
fn who_is_refused_keeps_nobody_waiting(engine: &str) {
    let folder = site();
    let settings = "limits.connections_per_client = 8";
    let mut options = Options::new(folder.path()).engine(engine).config(settings);
    if has_thread_each(engine) {
        options.workers = 16;
    }
    let served = WatchedServer::with(options).settled();
    let come = || Client::over(served.target().connect_from(client_address(0)).unwrap());
    let mut kept: Vec<_> = (0..8).map(|_| come()).collect();
    kept.iter_mut().for_each(|client| assert_eq!(client.get("/").unwrap().status, 200));
    let mut refused = Vec::new();
    // The server waits two seconds for a refused client that stays, in each round again. On a busy machine
    // some rounds take as long for other reasons.
    let (mut quick, mut rounds) = (0, 0);
    while quick < 10 {
        for _ in 0..8 {
            let mut client = come();
            client.ask("/");
            refused.push(client);
        }
        let begun = Instant::now();
        let other = served.target().connect_from(client_address(1)).unwrap();
        assert_eq!(Client::over(other).get("/").expect("another client").status, 200);
        quick += usize::from(begun.elapsed() < Duration::from_secs(1));
        rounds += 1;
        assert!(rounds < 60, "{quick} of {rounds} requests took less than a second");
    }
}

/// A client that closes its sending direction still gets its whole answers.
fn a_half_closed_client_gets_its_answers(engine: &str) {
    let folder = site();
    let served = WatchedServer::start(engine, folder.path(), "");
    for count in [1, 3, 300] {
        let mut stream = served.target().connect();
        stream.write_all(GET.repeat(count).as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let (answers, end) = read_to_end(&mut stream, PATIENCE);
        let whole = String::from_utf8_lossy(&answers).matches("HTTP/1.1 200 ").count();
        assert_eq!((whole, end), (count, End::Closed));
    }
}
