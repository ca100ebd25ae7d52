//! Requests that wait while their applications are started again (`queue.down`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::Client;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::server::free_addr;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ISOLATED, on_each_engine, on_isolated};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

on_each_engine!(
    requests_wait_for_an_application_that_is_started_again,
    what_is_waited_for_has_bounds,
    applications_are_started_again_one_after_the_other,
);

on_isolated!(
    requests_wait_for_an_application_that_is_started_again,
    applications_are_started_again_one_after_the_other,
);

const WAITING: &str = "forebay_upstream_requests_waiting";

/// An application that answers with the request that it got. It ends like one that is stopped gracefully.
struct Application {
    addr: SocketAddr,
    is_ending: Arc<AtomicBool>,
    accepts: Option<JoinHandle<()>>,
    connections: Arc<AtomicUsize>,
}

impl Application {
    fn start(addr: SocketAddr) -> Application {
        let listener = TcpListener::bind(addr).unwrap();
        let addr = listener.local_addr().unwrap();
        let (is_ending, connections) =
            (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let ends = (Arc::clone(&is_ending), Arc::clone(&connections));
        let accepts = thread::spawn(move || {
            let (is_ending, connections) = ends;
            while let Ok((stream, _)) = listener.accept() {
                let is_over = is_ending.load(SeqCst);
                connections.fetch_add(1, SeqCst);
                let (is_ending, connections) = (Arc::clone(&is_ending), Arc::clone(&connections));
                thread::spawn(move || {
                    let _ = serve(stream, &is_ending);
                    connections.fetch_sub(1, SeqCst);
                });
                if is_over {
                    return;
                }
            }
        });
        Application { addr, is_ending, accepts: Some(accepts), connections }
    }

    /// Accepts no more, answers its requests, and ends.
    fn stop(mut self) -> SocketAddr {
        self.is_ending.store(true, SeqCst);
        // its thread notices that with the next connection
        let last = TcpStream::connect(self.addr).unwrap();
        self.accepts.take().unwrap().join().unwrap();
        drop(last);
        assert!(soon(PATIENCE, || self.connections.load(SeqCst) == 0), "a connection stays");
        self.addr
    }
}

/// Serves a connection until its client has ended it, or the application ends.
fn serve(stream: TcpStream, is_ending: &AtomicBool) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        // between two requests it may end
        while let Err(error) = reader.fill_buf() {
            let waits = matches!(error.raw_os_error(), Some(11));
            if !waits || is_ending.load(SeqCst) {
                return Err(error);
            }
        }
        let (mut length, mut line) = (0, String::new());
        loop {
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim_end().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
            line.clear();
        }
        let mut body = vec![0; length];
        let mut at = 0;
        while at < length {
            match reader.read(&mut body[at..]) {
                Ok(0) => return Ok(()),
                Ok(count) => at += count,
                Err(error) if error.raw_os_error() == Some(11) => {}
                Err(error) => return Err(error),
            }
        }
        let is_over = is_ending.load(SeqCst);
        let close = if is_over { "Connection: close\r\n" } else { "" };
        let head = format!("HTTP/1.1 200 OK\r\n{close}Content-Length: {length}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), &body].concat())?;
        if is_over {
            return Ok(());
        }
    }
}

fn serve_by(engine: &str, folder: &Folder, to: &[SocketAddr], more: &str) -> WatchedServer {
    let to: Vec<_> = to.iter().map(|to| format!("\"http://{to}\"")).collect();
    let lines = format!("[[proxy]]\npath = \"/\"\nto = [{}]\n{more}\n", to.join(", "));
    WatchedServer::start(engine, folder.path(), &lines).settled()
}

fn get(served: &WatchedServer) -> (u16, bool) {
    let mut client = served.client();
    client.ask("/");
    let answer = client.answer().unwrap();
    (answer.status, answer.field("retry-after").is_some())
}

/// Waits until this number of requests wait. Stages have no such metric.
fn wait_for(served: &WatchedServer, engine: &str, count: u64) {
    if engine != ISOLATED {
        let waiting = || served.metric(WAITING);
        assert!(soon(PATIENCE, || waiting() == count), "{engine}: {} wait", waiting());
    }
}

fn requests_wait_for_an_application_that_is_started_again(engine: &str) {
    let (folder, application) = (Folder::new(), Application::start(free_addr()));
    let lines = "abort_on_close = true\nqueue = { down = \"wait\", time = \"60s\" }";
    let served = serve_by(engine, &folder, &[application.addr], lines);
    // each process of a stage has heard of it
    (0..8).for_each(|_| assert_eq!(get(&served).0, 200, "{engine}"));
    let addr = application.stop();
    let mut clients: Vec<_> = (0..5).map(|_| served.client()).collect();
    for client in &mut clients {
        client.ask("/");
    }
    let mut posts = served.client();
    let body = "x".repeat(100_000);
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    posts.stream().write_all(head.as_bytes()).unwrap();
    wait_for(&served, engine, 6);
    // a client that leaves does not wait
    drop(clients.pop());
    wait_for(&served, engine, 5);
    let application = Application::start(addr);
    posts.stream().write_all(body.as_bytes()).unwrap();
    for client in &mut clients {
        assert_eq!(client.answer().unwrap().status, 200, "{engine}");
    }
    let answer = posts.answer().unwrap();
    assert!(answer.status == 200 && answer.body == body.as_bytes(), "{engine}");
    wait_for(&served, engine, 0);
    assert_eq!(get(&served).0, 200, "{engine}");
    application.stop();
}

fn what_is_waited_for_has_bounds(engine: &str) {
    let (folder, application) = (Folder::new(), Application::start(free_addr()));
    let to = [application.addr];
    let at_once = serve_by(engine, &folder, &to, "");
    let short = serve_by(engine, &folder, &to, "queue = { down = \"wait\", time = \"50ms\" }");
    let few =
        serve_by(engine, &folder, &to, "queue = { down = \"wait\", time = \"60s\", requests = 1 }");
    for served in [&at_once, &short, &few] {
        assert_eq!(get(served).0, 200, "{engine}");
    }
    let never = serve_by(engine, &folder, &to, "queue = { down = \"wait\", time = \"60s\" }");
    let addr = application.stop();
    assert_eq!(get(&at_once), (502, false), "{engine}: nobody has asked for more");
    assert_eq!(get(&never), (502, false), "{engine}: it has not answered yet");
    assert_eq!(get(&short), (503, true), "{engine}");
    let mut waits = few.client();
    waits.ask("/");
    wait_for(&few, engine, 1);
    assert_eq!(get(&few), (502, false), "{engine}: one waits already");
    let application = Application::start(addr);
    assert_eq!(waits.answer().unwrap().status, 200, "{engine}");
    application.stop();
}

/// Two applications are restarted in turn, again and again, while clients ask: no client notices.
fn applications_are_started_again_one_after_the_other(engine: &str) {
    let folder = Folder::new();
    let mut applications: Vec<_> = (0..2).map(|_| Application::start(free_addr())).collect();
    let to: Vec<_> = applications.iter().map(|one| one.addr).collect();
    // a connection that an application has not taken when it ends is closed with the request on it
    let lines =
        "retries = 10\nretry_budget = \"100%\"\nqueue = { down = \"wait\", time = \"60s\" }";
    let served = serve_by(engine, &folder, &to, lines);
    // both have answered
    (0..16).for_each(|_| assert_eq!(get(&served).0, 200, "{engine}"));
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client: Client = served.client();
                while !is_over.load(SeqCst) {
                    client.ask("/");
                    let status = client.answer().unwrap().status;
                    if status != 200 {
                        is_over.store(true, SeqCst);
                        panic!("{engine}: {status}\n{}", served.stderr());
                    }
                    asked.fetch_add(1, SeqCst);
                }
            });
        }
        for turn in 0..6 {
            let before = asked.load(SeqCst);
            let is_asked = || asked.load(SeqCst) > before + 20 || is_over.load(SeqCst);
            assert!(soon(4 * PATIENCE, is_asked), "{engine}: nobody asks");
            let addr = applications.remove(0).stop();
            if turn % 3 == 2 {
                // and once no application is left at all
                let other = applications.remove(0).stop();
                wait_for(&served, engine, 8);
                applications.push(Application::start(other));
            }
            applications.push(Application::start(addr));
        }
        is_over.store(true, SeqCst);
    });
    assert!(asked.load(SeqCst) > 100, "{engine}");
    for application in applications {
        application.stop();
    }
}
