//! SIGTERM and SIGINT drain until a deadline, 30 s, and then the server says what is open; a second
//! signal ends it at once. A connection that waits to be accepted is never lost.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::Options;
use forebay_tests::faults::client::Client;
use forebay_tests::faults::crowd::Crowd;
use forebay_tests::faults::process::freeze;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::{PATIENCE, exchange};
use rustix::process::Signal;
use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

forebay_tests::on_each_engine! {
    a_drain_finishes_what_is_under_way,
    a_drain_ends_at_its_deadline,
    a_second_signal_is_immediate,
    clients_are_accepted_in_the_wait_before_a_drain,
    a_wait_before_a_drain_ends_by_itself,
    no_queued_connection_and_no_received_request_is_lost,
}

/// A size far beyond all socket buffers. The file has holes, so it costs no disk.
const LARGE: usize = 64 << 20;

/// Long limits, because a slow machine takes its time to fetch [`LARGE`].
const PATIENT: &str = "timeouts.drain = \"1h\"\ntimeouts.send_window = \"1h\"\n\
                       timeouts.head = \"1h\"";

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("index.html", "a");
    let large = folder.write("large.bin", "");
    File::options().write(true).open(large).unwrap().set_len(LARGE as u64).unwrap();
    folder
}

/// A client that has the head of the large file and no more.
fn downloading(served: &WatchedServer) -> (Client, String) {
    let mut client = served.client();
    rustix::net::sockopt::set_socket_recv_buffer_size(client.stream(), 64 << 10).unwrap();
    client.ask("/large.bin");
    let head = client.head().unwrap();
    (client, head)
}

fn is_refused(addr: SocketAddr) -> bool {
    TcpStream::connect_timeout(&addr, Duration::from_secs(1)).is_err()
}

/// The status of an answer of the admin listener.
fn health(served: &WatchedServer, path: &str) -> u16 {
    let admin = served.admin();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8(exchange(admin, request.as_bytes())).unwrap();
    answer[9..12].parse().unwrap()
}

/// Waits for the end of the process. Returns its exit code, and the last line of its output.
fn end_of(served: &mut WatchedServer) -> (Option<i32>, String) {
    let status = served.wait(PATIENCE).expect("the server ends");
    let said = served.stderr();
    println!("{said}");
    (status.code(), said.lines().last().unwrap_or_default().to_owned())
}

/// During a drain no new client is let in, idle connections are closed, answers that are being sent are
/// sent to the end, and a head that has begun may still become a request; then the process ends well and
/// says so.
fn a_drain_finishes_what_is_under_way(engine: &str) {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = site();
        let mut served = WatchedServer::start(engine, folder.path(), PATIENT);
        let mut idle = Crowd::connect(served.target(), 20, 20).unwrap();
        idle.send(GET.as_bytes());
        assert!(idle.read_until(PATIENCE, |crowd| crowd.answered(200) == 20));
        let (mut active, head) = downloading(&served);
        let mut slow = served.client();
        slow.stream().write_all(&GET.as_bytes()[..10]).unwrap();
        assert_eq!(served.client().get("/").expect("an answer").status, 200);

        assert_eq!([health(&served, "/healthz"), health(&served, "/readyz")], [200, 200]);
        // the slow client's head, too: what comes when the server no longer listens is refused
        served.wait_for_delivery();
        served.signal(signal);
        assert!(idle.read_until(PATIENCE, |crowd| crowd.open() == 0), "{} idle left", idle.open());
        assert!(soon(PATIENCE, || is_refused(served.target().addr)), "it still listens");
        assert_eq!([health(&served, "/healthz"), health(&served, "/readyz")], [200, 503]);
        // nothing of a head of HTTP/2 comes before all of it has
        if !served.is_http2() {
            slow.stream().write_all(&GET.as_bytes()[10..]).unwrap();
            let answer = slow.answer().expect("an answer to the head that had begun");
            assert_eq!(answer.field("connection"), Some("close"), "{}", answer.head);
            assert!(slow.is_closed());
        }
        assert_eq!(active.body(&head, LARGE).map(|body| body.len()), Ok(LARGE));
        assert!(active.is_closed());

        let (code, last) = end_of(&mut served);
        assert_eq!(code, Some(0), "{last}");
        assert!(last.contains("drained") && last.contains("0 aborted"), "{last}");
    }
}

/// Connections that are not done at the deadline are aborted, and the server says how many there were.
fn a_drain_ends_at_its_deadline(engine: &str) {
    let folder = site();
    let mut served =
        WatchedServer::start(engine, folder.path(), "timeouts.drain = \"1s\"").settled();
    let mut active: Vec<_> = (0..3).map(|_| downloading(&served)).collect();
    served.signal(Signal::TERM);
    let (code, last) = end_of(&mut served);
    assert_eq!(code, Some(0), "{last}");
    assert!(last.contains("drained") && last.contains("3 aborted"), "{last}");
    for (client, head) in &mut active {
        assert!(client.body(head, LARGE).is_err(), "a whole answer from a server that was stopped");
    }
}

/// The second signal, of either kind, ends the server at once.
fn a_second_signal_is_immediate(engine: &str) {
    for (first, second) in [(Signal::TERM, Signal::TERM), (Signal::INT, Signal::TERM)] {
        let folder = site();
        let mut served = WatchedServer::start(engine, folder.path(), PATIENT).settled();
        let _active = downloading(&served);
        served.signal(first);
        assert!(soon(PATIENCE, || is_refused(served.target().addr)), "it still listens");
        // the client that tried whether the server listens was let in meanwhile, and has left
        let is_alone = || served.is_http2() || served.metric("forebay_connections") == 1;
        assert!(soon(PATIENCE, is_alone), "{}", served.metrics());
        // Two signals within a quarter of a second are one (some shells send it twice).
        assert!(served.wait(Duration::from_millis(400)).is_none(), "it does not drain");
        served.signal(second);
        // on a machine that stands still these may be closer to each other for the server than here
        while served.wait(Duration::from_secs(10)).is_none() {
            println!("the second signal once more");
            served.signal(second);
        }
        let (_, last) = end_of(&mut served);
        // the relay to HTTP/2 has said something on the connections that tried whether it still listens
        let is_told = last.contains("aborted") && !last.contains(" 0 aborted");
        assert!(last.contains("1 aborted") || (served.is_http2() && is_told), "{last}");
    }
}

/// During the wait before a drain, `/readyz` says that the server will stop, and nothing else has
/// changed; the next signal begins the drain.
fn clients_are_accepted_in_the_wait_before_a_drain(engine: &str) {
    for signal in [Signal::TERM, Signal::QUIT] {
        let folder = site();
        let lines = "timeouts.drain_wait = \"1h\"\ntimeouts.idle = \"1h\"";
        let mut served = WatchedServer::start(engine, folder.path(), lines);
        let mut kept = served.client();
        assert_eq!(kept.get("/").expect("an answer").status, 200);
        served.signal(signal);
        assert!(soon(PATIENCE, || health(&served, "/readyz") == 503));
        assert_eq!(kept.get("/").expect("an answer on a kept connection").status, 200);
        // this client stays: a cut by a client during the drain would count as aborted
        let mut new = served.client();
        assert_eq!(new.get("/").expect("an answer to a new client").status, 200);
        let (code, said) = served.reload();
        assert_eq!(code, Some(1), "{said}");
        // two signals within a quarter of a second are one
        assert!(served.wait(Duration::from_millis(400)).is_none(), "it does not wait");
        served.signal(signal);
        // a connection that only asks whether there is a server would count as aborted
        let drains = || served.stderr().contains(": draining, connections open: ");
        while !soon(Duration::from_secs(10), drains) {
            println!("the second signal once more");
            served.signal(signal);
        }
        assert!(kept.is_closed() && new.is_closed());
        let (code, last) = end_of(&mut served);
        assert_eq!(code, Some(0), "{last}");
        assert!(last.contains(" 0 aborted"), "{last}");
    }
}

/// The wait before a drain ends by itself, and Ctrl-C does not wait at all.
fn a_wait_before_a_drain_ends_by_itself(engine: &str) {
    for (wait, signal, waits) in [("300ms", Signal::TERM, true), ("1h", Signal::INT, false)] {
        let folder = site();
        let lines = format!("timeouts.drain_wait = \"{wait}\"");
        let mut served = WatchedServer::start(engine, folder.path(), &lines).settled();
        served.signal(signal);
        let (code, last) = end_of(&mut served);
        assert_eq!(code, Some(0), "{last}");
        let has_waited = served.stderr().contains("clients are accepted for 300ms yet");
        assert_eq!(has_waited, waits, "{}", served.stderr());
    }
}

/// The process is stopped while clients connect and send, so that their connections lie in the accept
/// queue when the drain begins. Each of them gets its answer; so does a request that had arrived on a
/// kept connection.
fn no_queued_connection_and_no_received_request_is_lost(engine: &str) {
    const QUEUED: usize = 60;
    for round in 0..3 {
        let folder = site();
        let mut served = WatchedServer::start(engine, folder.path(), "");
        let mut kept = Crowd::connect(served.target(), 10, 10).unwrap();
        kept.send(GET.as_bytes());
        assert!(kept.read_until(PATIENCE, |crowd| crowd.answered(200) == 10));
        kept.members.iter_mut().for_each(|member| member.received.clear());

        freeze(served.pid());
        let mut queued = Crowd::connect(served.target(), QUEUED, QUEUED).unwrap();
        queued.send(GET.as_bytes());
        kept.send(GET.as_bytes());
        served.signal(Signal::TERM);
        served.thaw();

        let all = queued.read_until(PATIENCE, |crowd| crowd.open() == 0);
        let answered = queued.answered(200);
        assert!(all && answered == QUEUED, "round {round}: {answered} of {QUEUED} queued answered");
        kept.read_until(PATIENCE, |crowd| crowd.open() == 0);
        assert_eq!(kept.answered(200), 10, "round {round}: requests on kept connections are lost");
        let (code, last) = end_of(&mut served);
        assert_eq!(code, Some(0), "{last}");
    }
}

/// Connections in the kernel's queue are served though all threads were busy when the drain began, and no
/// new client is let in until they are done.
fn what_is_queued_is_served_by_busy_threads(engine: &str) {
    const QUEUED: usize = 6;
    let folder = site();
    let config = format!("{PATIENT}\nlimits.connections_per_client = 100");
    let options = Options { workers: 2, ..Options::new(folder.path()).engine(engine) };
    let mut served = WatchedServer::with(options.config(&config)).settled();
    let (mut first, first_head) = downloading(&served);
    let (mut second, second_head) = downloading(&served);
    let mut queued = Crowd::connect(served.target(), QUEUED, QUEUED).unwrap();
    queued.send(GET.as_bytes());
    served.wait_for_clients(2 + QUEUED);
    served.signal(Signal::TERM);
    if engine == "threads" {
        assert!(soon(PATIENCE, || is_refused(served.target().addr)), "it still listens");
    }
    assert_eq!(first.body(&first_head, LARGE).map(|body| body.len()), Ok(LARGE));
    let all = queued.read_until(PATIENCE, |crowd| crowd.open() == 0);
    assert!(all && queued.answered(200) == QUEUED, "{} answered", queued.answered(200));
    assert!(soon(PATIENCE, || is_refused(served.target().addr)), "it still listens");
    assert_eq!(second.body(&second_head, LARGE).map(|body| body.len()), Ok(LARGE));
    let (code, last) = end_of(&mut served);
    assert_eq!(code, Some(0), "{last}");
    assert!(last.contains("drained") && last.contains("0 aborted"), "{last}");
}

#[test]
fn threads_serve_what_is_queued() {
    what_is_queued_is_served_by_busy_threads("threads");
}

#[test]
fn a_pool_serves_what_is_queued() {
    what_is_queued_is_served_by_busy_threads("pool");
}
