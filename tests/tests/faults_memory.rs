//! "An idle keep-alive connection costs at most 1 KB of our memory (measure at 10,000)" (issue,
//! "Staying up").
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::crowd::{Crowd, allow_descriptors};
use forebay_tests::faults::process::resident_kib;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{Served, has};
use forebay_tests::wire::PATIENCE;

/// Connections that made one request and then wait.
const IDLE: usize = 10_000;

/// The server's resident memory grows by at most 1 KiB for each of ten thousand kept connections,
/// and every one of them is still served afterwards.
#[test]
fn ten_thousand_idle_connections_cost_a_kilobyte_each() {
    let enough = allow_descriptors(IDLE as u64 + 100);
    let Some(()) = has(enough, "ten_thousand_idle_connections") else { return };
    let folder = Folder::new();
    folder.write("index.html", "a");
    let settings = "timeouts.idle = \"1h\"\nlimits.connections = 15000";
    let served = Served::start(folder.path(), settings);
    let get = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: test\r\n\r\n";
    let ask_all = |crowd: &mut Crowd| {
        crowd.members.iter_mut().for_each(|member| member.received.clear());
        crowd.send(get);
        let count = crowd.members.len();
        let all = crowd.read_until(3 * PATIENCE, |crowd| crowd.answered(200) == count);
        assert!(all, "{} of {count} answered", crowd.answered(200));
    };
    // What the server needs once (buffers, threads, the cached answer) is there before the measure.
    ask_all(&mut Crowd::connect(served.addr(), 100, 100).unwrap());

    let before_kib = resident_kib(served.pid());
    let mut crowd = Crowd::connect(served.addr(), IDLE, 1000).unwrap();
    ask_all(&mut crowd);
    let grown_bytes = (resident_kib(served.pid()).saturating_sub(before_kib)) * 1024;
    println!("{} bytes per idle connection", grown_bytes as usize / IDLE);
    assert!(grown_bytes as usize <= IDLE * 1024, "{grown_bytes} bytes for {IDLE} connections");
    ask_all(&mut crowd);
}
