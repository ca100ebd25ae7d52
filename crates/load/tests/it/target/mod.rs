//! Servers made for each test: one thread per connection, blocking, a few lines each.
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

/// A listening server. Dropping it closes the listener; open connections continue until their clients end.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // wakes the thread in accept
        let _ = TcpStream::connect(self.address);
    }
}

/// Passes every accepted connection to `serve`, on a thread of its own.
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

/// Sends `text`; returns whether the client still takes it.
pub(crate) fn say(writer: &mut TcpStream, text: &str) -> bool {
    writer.write_all(text.as_bytes()).is_ok()
}

/// A server that sends every client the same bytes and keeps connections.
pub(crate) fn always(answer: &'static str) -> Server {
    serve(move |stream| requests(stream, |_, writer| say(writer, answer)))
}

/// A server that records the first line of every request.
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

/// A group with these settings, written as on the command line.
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

/// Runs the group, each time longer than before, until `enough` holds: a short run may be over before a slow
/// machine has sent anything. The last report is returned in any case.
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
        // the drain lasts only as long as an answer is missing
        drain: Duration::from_secs(30),
        // these tests share their cores with others
        spin: Duration::ZERO,
        groups: vec![group],
        ..LoadPlan::default()
    }
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// An address without a listener, and the socket that reserves it: other tests take free ports too, and a
/// client whose own port is this one would be connected to itself.
pub(crate) fn refusing() -> (SocketAddr, OwnedFd) {
    let kept = socket::bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).unwrap();
    (socket::local_address(&kept).unwrap(), kept)
}
