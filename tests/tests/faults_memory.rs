//! "An idle keep-alive connection costs at most 1 KB of our memory (measure at 10,000)" (issue,
//! "Staying up"); a thread, where each connection has one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::crowd::{Crowd, allow_descriptors};
use forebay_tests::faults::process::resident_kib;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{Served, has};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, has_thread_each};
use std::sync::{Mutex, PoisonError};

forebay_tests::on_each_engine! {
    an_idle_connection_costs_little,
}

/// Connections that made one request and then wait.
const IDLE: usize = 10_000;
/// The same where each of them keeps a thread.
const IDLE_THREADS: usize = 1_000;

/// Bytes that a thread with its connection may cost: what it has touched of its stack, and a worker
/// with its buffers and the paths it has found.
const THREAD_BYTES: usize = 128 * 1024;

/// One after the other: all of them together have more connections than one process may.
static ALONE: Mutex<()> = Mutex::new(());

/// The server's resident memory grows by at most 1 KiB for each of ten thousand kept connections,
/// and every one of them is still served afterwards. Where each keeps a thread, it costs one.
fn an_idle_connection_costs_little(engine: &str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let threads = has_thread_each(engine);
    let (idle, most_bytes) = if threads { (IDLE_THREADS, THREAD_BYTES) } else { (IDLE, 1024) };
    let enough = allow_descriptors(idle as u64 + 100);
    let Some(()) = has(enough, "an_idle_connection_costs_little") else { return };
    let folder = Folder::new();
    folder.write("index.html", "a");
    let settings = "timeouts.idle = \"1h\"\nlimits.connections = 15000";
    let mut options = Options::new(folder.path()).engine(engine).config(settings);
    if threads {
        options.workers = IDLE_THREADS + 100;
    }
    let served = Served::with(options);
    let get = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: test\r\n\r\n";
    let ask_all = |crowd: &mut Crowd| {
        crowd.members.iter_mut().for_each(|member| member.received.clear());
        crowd.send(get);
        let count = crowd.members.len();
        let all = crowd.read_until(3 * PATIENCE, |crowd| crowd.answered(200) == count);
        assert!(all, "{} of {count} answered", crowd.answered(200));
    };
    // What the server needs once (buffers, threads, the cached answer) is there before the measure.
    // A thread that is used once has what it needs: those are measured.
    let first = if threads { 1 } else { 100 };
    ask_all(&mut Crowd::connect(served.addr(), first, first).unwrap());

    let before_kib = resident_kib(served.pid());
    let mut crowd = Crowd::connect(served.addr(), idle, 500).unwrap();
    ask_all(&mut crowd);
    let grown_bytes = (resident_kib(served.pid()).saturating_sub(before_kib)) * 1024;
    println!("{} bytes per idle connection", grown_bytes as usize / idle);
    assert!(
        grown_bytes as usize <= idle * most_bytes,
        "{grown_bytes} bytes for {idle} connections"
    );
    ask_all(&mut crowd);
}
