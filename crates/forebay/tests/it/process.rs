//! The traces that servers leave in their process.

use crate::client::{Client, get, soon};
use forebay::Server;
use std::fs;

/// The names of the threads of this process.
fn threads() -> Vec<String> {
    let all = fs::read_dir("/proc/self/task").unwrap();
    let names = all.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.map(|name| name.trim_end().to_owned()).collect()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Bytes of the heap that are in use.
fn heap() -> usize {
    crate::HEAP.current_usage()
}

/// Each engine in turn: it serves a handler that waits and a file, and is stopped while a connection is open.
fn start_and_stop(number: usize) {
    let engines = ["fibers", "event", "threads", "pool", "pipeline"];
    let server = Server::builder()
        .engine(engines[number % engines.len()])
        .root(env!("CARGO_MANIFEST_DIR"))
        .handler("/wait", |_, response| {
            forebay::sleep(std::time::Duration::from_millis(1))?;
            Ok(response.text("waited")?)
        })
        .start()
        .unwrap();
    let address = server.addresses()[0];
    let mut open = Client::connect(address);
    assert_eq!(open.get("/wait").text(), "waited");
    assert_eq!(get(address, "/Cargo.toml").status, 200);
    server.stop().unwrap();
}

/// Starts and stops a server with all its auxiliary threads: for files of bans, the page of the admin
/// listener, and the agent.
fn start_and_stop_with_all() {
    let bans = std::env::temp_dir().join(format!("forebay-bans-of-{}", std::process::id()));
    fs::write(&bans, "192.0.2.1\n").unwrap();
    let text = format!(
        "agent = \"on\"\n[admin]\nlisten = \"127.0.0.1:0\"\npage = true\n[policy]\nban_files = [{bans:?}]\n\
         [[class]]\nname = \"all\"\npriority = 0\n"
    );
    let server = Server::builder().config(&text).root(env!("CARGO_MANIFEST_DIR")).start();
    let server = server.unwrap();
    for name in ["ban files", "page", "agent"] {
        soon(name, || threads().iter().any(|thread| thread == name));
    }
    server.stop().unwrap();
    fs::remove_file(bans).unwrap();
}

/// This test is alone in its process, because others would have threads, too.
#[test]
#[ignore = "counts what all of the process has: `alone` runs it"]
fn a_hundred_servers_leave_nothing() {
    // the first servers make what is made once for a process
    (0..20).for_each(start_and_stop);
    start_and_stop_with_all();
    let settled = || {
        // the main thread, and that of the test
        soon("threads end", || threads().len() <= 2);
        (threads().len(), descriptors(), heap())
    };
    let before = settled();
    (0..100).for_each(start_and_stop);
    let after = settled();
    println!("before {before:?}, after {after:?}");
    assert_eq!(before, after, "threads, descriptors, bytes of the heap");
}

/// This test has a process of its own, because it counts the process's memory.
#[test]
fn alone() {
    let own = std::env::current_exe().unwrap();
    let output = std::process::Command::new(own)
        .args(["--ignored", "--exact", "process::a_hundred_servers_leave_nothing", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
