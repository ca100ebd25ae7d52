//! The server without a window: the state by either way, on each engine.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay::{MainThread, Server};
use forebay_tests::faults::client::{Answer, Client};
use forebay_window::access::{OnMainThread, PanelAccess, UnderLock};
use forebay_window::guard::PageGuard;
use forebay_window::page::lamps;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const ENGINES: [&str; 5] = ["fibers", "event", "threads", "pool", "pipeline"];

/// A program without a window.
struct Served {
    server: Server,
    guard: PageGuard,
    address: SocketAddr,
}

fn serve(access: &impl PanelAccess, engine: &str) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let guard = PageGuard::new(address.port()).unwrap();
    let server = lamps(access, guard.clone()).engine(engine).listener(listener).unwrap().start();
    Served { server: server.unwrap(), guard, address }
}

impl Served {
    fn ask(&self, method: &str, target: &str, fields: &str) -> Answer {
        let mut client = Client::connect(self.address);
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", self.address);
        client.stream().write_all(head.as_bytes()).unwrap();
        client.answer().unwrap()
    }

    /// The fields of a request that the page itself sends.
    fn own(&self) -> String {
        format!(
            "Origin: http://{}\r\nX-Token: {}\r\nContent-Length: 0\r\n",
            self.address,
            self.guard.token()
        )
    }

    fn state(&self) -> String {
        String::from_utf8(self.ask("GET", "/lamps", "").body).unwrap()
    }

    /// Opens the stream of events.
    fn events(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }
}

/// Reads until `wanted` has come.
fn until(stream: &mut TcpStream, wanted: &str) {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&all).contains(wanted) {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&all));
        all.extend(&buffer[..count]);
    }
}

fn everything(served: &Served, engine: &str) {
    let page = served.ask("GET", "/", "");
    assert_eq!(page.status, 200, "{engine}");
    let policy = page.field("Content-Security-Policy").unwrap();
    assert!(policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
    for path in ["/page.js", "/page.css"] {
        assert_eq!(served.ask("GET", path, "").status, 200, "{path}");
    }
    let mut watchers = [served.events(), served.events()];
    watchers.iter_mut().for_each(|stream| until(stream, "[false, false"));
    let switched = served.ask("POST", "/switch?lamp=1&on=true", &served.own());
    assert_eq!(switched.body, b"on\n", "{engine}");
    watchers.iter_mut().for_each(|stream| until(stream, "[false, true"));
    assert!(served.state().contains("\"changes\":1,"), "{engine}");
    drop(watchers);
    // a faulty request is refused with the reason, and changes nothing
    for (target, status) in
        [("/switch?lamp=8&on=true", 404), ("/switch?lamp=x&on=true", 400), ("/switch", 400)]
    {
        assert_eq!(served.ask("POST", target, &served.own()).status, status, "{target}");
    }
    assert_eq!(served.ask("GET", "/switch?lamp=0&on=true", &served.own()).status, 405);
    assert_eq!(served.ask("POST", "/switch?lamp=0&on=true", "Content-Length: 0\r\n").status, 403);
    let post = served.ask("POST", "/lamps", "Content-Length: 0\r\n");
    assert_eq!((post.status, post.field("Allow")), (405, Some("GET, HEAD")));
    assert!(served.state().contains("\"changes\":1,"), "{engine}");
}

#[test]
fn the_page_reaches_a_state_under_a_lock() {
    for engine in ENGINES {
        let served = serve(&UnderLock::default(), engine);
        everything(&served, engine);
        served.server.stop().unwrap();
    }
}

#[test]
fn the_page_reaches_a_state_of_the_main_thread() {
    // each engine on a thread of its own, which has a state of its own
    let mains = ENGINES.map(|engine| std::thread::spawn(move || on_a_main_thread(engine)));
    mains.into_iter().for_each(|main| main.join().unwrap());
}

fn on_a_main_thread(engine: &'static str) {
    let (main, handle) = MainThread::new().unwrap();
    let access = OnMainThread::new(handle);
    let served = serve(&access, engine);
    drop(access);
    let client = std::thread::spawn(move || {
        everything(&served, engine);
        // the last handle goes with the server, and the main thread ends
        served.server.stop().unwrap();
    });
    main.serve().unwrap();
    client.join().unwrap();
}

/// A main thread that makes no more calls: a handler that waits for one gets an error.
#[test]
fn a_main_thread_that_has_gone_is_an_error() {
    let (main, handle) = MainThread::new().unwrap();
    let served = serve(&OnMainThread::new(handle), "fibers");
    drop(main);
    assert_eq!(served.ask("GET", "/lamps", "").status, 500);
    assert_eq!(served.ask("GET", "/", "").status, 200);
    served.server.stop().unwrap();
}
