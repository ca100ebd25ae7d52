//! Servers that behave as a test wants: one thread per connection, blocking, a few lines each.
#![allow(dead_code, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on panics")]

pub(crate) mod http2;

use forebay_load::{ClientGroup, GroupDraft, LoadPlan, LoadTarget, Report, run};
use forebay_sys::socket;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A listening server; dropping it ends it, open connections live on until their clients end.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // wakes the accept
        let _ = TcpStream::connect(self.address);
    }
}

/// Gives every accepted connection to `serve`, on a thread of its own.
pub(crate) fn serve(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (stopping, serve) = (stop.clone(), Arc::new(serve));
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            if stopping.load(Ordering::Relaxed) {
                return;
            }
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    Server { address, stop }
}

/// Calls `answer` with each request's head until the client ends or `answer` returns false.
pub(crate) fn requests(stream: TcpStream, mut answer: impl FnMut(&str, &mut TcpStream) -> bool) {
    stream.set_nodelay(true).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        loop {
            let before = head.len();
            match reader.read_line(&mut head) {
                Ok(0) | Err(_) => return,
                Ok(_) if &head[before..] == "\r\n" => break,
                Ok(_) => {}
            }
        }
        if !answer(&head, &mut writer) {
            return;
        }
    }
}

/// Sends `text`; whether the client still takes it.
pub(crate) fn say(writer: &mut TcpStream, text: &str) -> bool {
    writer.write_all(text.as_bytes()).is_ok()
}

/// A server that gives everybody the same bytes and keeps connections.
pub(crate) fn always(answer: &'static str) -> Server {
    serve(move |stream| requests(stream, |_, writer| say(writer, answer)))
}

/// A server that writes down every request's first line.
pub(crate) fn recording(answer: &'static str) -> (Server, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let server = serve(move |stream| {
        requests(stream, |head, writer| {
            notes.lock().unwrap().push(head.lines().next().unwrap().to_owned());
            say(writer, answer)
        });
    });
    (server, seen)
}

/// A group from the settings of the command line.
pub(crate) fn group(address: SocketAddr, settings: &str) -> ClientGroup {
    let target = LoadTarget::parse(&format!("http://{address}/")).unwrap();
    let draft = GroupDraft::parse(&format!("test:{settings}"), Some(&target));
    draft.and_then(GroupDraft::finish).unwrap_or_else(|error| panic!("{settings}: {error}"))
}

/// A short run of one group.
pub(crate) fn run_for(ms: u64, group: ClientGroup) -> Report {
    let plan = LoadPlan { duration: Duration::from_millis(ms), ..plan(group) };
    run(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

/// A run of one group until it has made all its requests, however late its thread begins.
pub(crate) fn run_all(group: ClientGroup) -> Report {
    run_for(120_000, group)
}

/// Runs, each longer than the one before, until one has done enough: a short run is over before a
/// machine that stands still has asked for anything. The last one is returned, done or not.
pub(crate) fn run_until(
    ms: u64,
    group: &ClientGroup,
    is_enough: impl Fn(&Report) -> bool,
) -> Report {
    let mut report = run_for(ms, group.clone());
    for ms in [4 * ms, 16 * ms, 64 * ms] {
        if is_enough(&report) {
            break;
        }
        report = run_for(ms, group.clone());
    }
    report
}

fn plan(group: ClientGroup) -> LoadPlan {
    LoadPlan {
        // only used up where an answer does not come
        drain: Duration::from_secs(30),
        // These tests share their cores with others.
        spin: Duration::ZERO,
        groups: vec![group],
        ..LoadPlan::default()
    }
}

/// Waits until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// An address at which nobody listens, and the socket that keeps it: other tests take free ports too, and a client
/// that was given this one for itself would be connected to itself.
pub(crate) fn refusing() -> (SocketAddr, OwnedFd) {
    let kept = socket::bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).unwrap();
    (socket::local_address(&kept).unwrap(), kept)
}
