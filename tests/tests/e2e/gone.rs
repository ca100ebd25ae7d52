//! Clients who leave while their requests wait for a worker: no work is done for them, clients who are
//! still there are next, and the counters add up.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::faults::client::Client;
use forebay_tests::faults::process::processor_time;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, Options, has_thread_each, on_each_engine};
use rustix::net::sockopt::set_socket_linger;
use std::net::TcpStream;
use std::num::NonZero;
use std::os::fd::AsFd;
use std::thread::available_parallelism;
use std::time::Duration;

on_each_engine!(with_classes_nobody_works_for_clients_who_have_left);

/// Helpers run at normal priority: on a machine that computes for others too, nice ones would wait for a
/// very long time.
const WORK: &str = "timeouts.job = \"1h\"\nhelpers.niceness = 0\n[[work]]\npath = \"/work\"\n";

/// Classes with a rule that decides nothing; the rule makes the server show the windows of the classes.
const CLASSES: &str = r#"
[[class]]
name = "gold"
priority = 0
[[class]]
name = "bulk"
priority = 1
[[rule]]
name = "none"
path = "/none"
when = "overload"
action = "reject"
"#;

/// The number of clients who leave. Each has asked for a second of work.
const MANY: u64 = 40;

fn serve(engine: &str, config: &str) -> (Folder, WatchedServer) {
    let folder = Folder::new();
    folder.write("site/index.html", "index");
    let options = Options::new(folder.join("site")).engine(engine).alone();
    let served = WatchedServer::with(options.config(config));
    // from here on every request of this server needs one job
    assert_eq!(served.client().get("/work").unwrap().status, 200);
    (folder, served)
}

/// A client with a long patience, since a busy machine has little CPU time to give.
fn ask(served: &WatchedServer, path: &str) -> Client {
    let mut client = served.client().patience(Duration::from_secs(600));
    assert!(client.ask(path));
    client
}

/// Has clients leave while all workers are busy. The next client is served, and none of the work of the
/// clients that left was done. `unfinished` rises with each request that waits or is at work, and falls
/// with each whose client has left. Returns how many clients have left: more than [`MANY`] where the
/// workers were done too early, because the machine kept this thread from its core.
fn they_leave(
    served: &WatchedServer,
    unfinished: impl Fn() -> u64,
    is_idle: impl Fn() -> bool,
) -> u64 {
    let given_up = || served.metric("forebay_requests_given_up_total");
    for time_ms in [400, 1_500, 5_000, 10_000] {
        let time = Duration::from_millis(time_ms);
        if let Some(used) = they_leave_while_workers_work(served, &unfinished, &is_idle, time) {
            let workers = available_parallelism().map_or(1, NonZero::get) as u32;
            let most = time * workers + Duration::from_secs(20);
            assert!(used < most, "{used:?} of processor time, the work of those who left is 40 s");
            return given_up();
        }
        println!("{time:?} of work were done too early: once more");
    }
    panic!("this machine never lets clients leave while workers work");
}

/// The processor time that was used; `None` if a worker was done with `time` of work too early.
fn they_leave_while_workers_work(
    served: &WatchedServer,
    unfinished: &impl Fn() -> u64,
    is_idle: &impl Fn() -> bool,
    time: Duration,
) -> Option<Duration> {
    let workers = available_parallelism().map_or(1, NonZero::get) as u64;
    let given_up = || served.metric("forebay_requests_given_up_total");
    let (given_up_before, used_before) = (given_up(), processor_time(served.pid()));
    assert!(soon(PATIENCE, is_idle), "{}", served.metrics());
    let unfinished_before = unfinished();
    let work = format!("/work?cpu={}ms", time.as_millis());
    let mut at_work: Vec<_> = (0..workers).map(|_| ask(served, &work)).collect();
    let duplicate =
        |it: &mut Client| TcpStream::from(it.stream().as_fd().try_clone_to_owned().unwrap());
    let streams: Vec<_> = at_work.iter_mut().map(duplicate).collect();
    let is_early = || {
        let peek = |stream: &TcpStream| {
            stream.set_nonblocking(true).unwrap();
            let is_there = stream.peek(&mut [0]).is_ok();
            stream.set_nonblocking(false).unwrap();
            is_there
        };
        streams.iter().any(peek)
    };
    let are_unfinished =
        |count| soon(PATIENCE, || unfinished() == unfinished_before + count || is_early());
    assert!(are_unfinished(workers));
    let mut waiting: Vec<_> = (0..MANY).map(|_| ask(served, "/work?cpu=1s")).collect();
    assert!(are_unfinished(workers + MANY));
    for client in &mut waiting {
        set_socket_linger(client.stream(), Some(Duration::ZERO)).unwrap();
    }
    drop(waiting);
    let have_left = || given_up() == given_up_before + MANY;
    let is_over = soon(PATIENCE, || have_left() || is_early());
    assert!(is_over, "{} and {MANY} should have left: {}", given_up_before, served.metrics());
    // the requests at work still hold their places
    assert!(are_unfinished(workers));
    let is_void = is_early() || !have_left();
    let mut late = ask(served, "/work?cpu=1ms");
    assert_eq!(late.answer().unwrap().status, 200);
    let used = processor_time(served.pid()) - used_before;
    at_work.iter_mut().for_each(|client| assert_eq!(client.answer().unwrap().status, 200));
    if is_void {
        drop((late, at_work, streams));
        // work that has begun for clients who have left ends first
        let is_over = soon(4 * PATIENCE, || served.metric("forebay_connections") == 0);
        assert!(is_over, "{}", served.metrics());
        return None;
    }
    assert!(have_left());
    Some(used)
}

fn with_classes_nobody_works_for_clients_who_have_left(engine: &str) {
    let (_folder, served) = serve(engine, &format!("{WORK}{CLASSES}"));
    let class = |what: &str| served.metric(&format!("forebay_class_{what}{{class=\"bulk\"}}"));
    let asked_before = class("requests_total");
    let unfinished = || class("unfinished_jobs");
    let left = they_leave(&served, unfinished, || unfinished() == 0);
    assert!(soon(PATIENCE, || class("in_flight") == 0));
    let ends = ["requests_total", "answered_total", "cut_total"].map(class);
    let asked = ends[0] - asked_before;
    assert!(ends[2] >= left && left >= MANY, "{left}: {ends:?}");
    assert_eq!(asked, ends[1] - asked_before + ends[2], "{ends:?}");
    assert!(soon(PATIENCE, || class("unfinished_jobs") == 0), "{}", served.metrics());
}

/// Engines without a thread for each connection. With one, no request waits without classes: all compute
/// at once.
#[test]
fn without_classes_nobody_works_for_clients_who_have_left() {
    for engine in ENGINES.into_iter().filter(|engine| !has_thread_each(engine)) {
        let (_folder, served) = serve(engine, WORK);
        let count = |what: &str| served.metric(&format!("forebay_{what}_total"));
        // the jobs of clients who have left count as well
        let unfinished = || count("jobs").saturating_sub(count("requests_given_up"));
        they_leave(&served, unfinished, || true);
    }
}
