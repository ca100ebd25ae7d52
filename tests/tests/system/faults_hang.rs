//! A file whose read hangs does not delay other requests, and what is not in memory never blocks a
//! loop. The hanging disk is a FUSE file system below the root.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::Answer;
use forebay_tests::faults::crowd::{Crowd, CrowdMember};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, has, soon};
use forebay_tests::fuse::{HangingFile, HangingFiles, Hangs};
use forebay_tests::has_thread_each;
use forebay_tests::wire::PATIENCE;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::thread;
use std::time::Duration;

forebay_tests::on_each_engine! {
    a_file_that_hangs_delays_nobody_else,
    more_hanging_files_than_helpers_leave_the_hot_ones,
    a_request_that_waits_too_long_for_the_disk_is_given_up,
    a_fifo_is_neither_served_nor_waited_for,
}

/// Long limits: a call that hangs here hangs until the test releases it.
const PATIENT: &str = "timeouts.job = \"1h\"\ntimeouts.send_window = \"1h\"";

/// The number of requests that wait for a file that hangs.
const WAITING: usize = 40;
/// The number of files that were never asked for before.
const COLD: usize = 60;

/// A root with files of its own and `files` in the directory `mnt`.
fn site(test: &str, files: Vec<HangingFile>) -> Option<(Folder, HangingFiles)> {
    let folder = Folder::new();
    folder.write("hot.txt", "hot");
    folder.write("large.bin", vec![b'l'; 3 << 20]);
    for number in 0..COLD {
        folder.write(&format!("cold/{number}.txt"), format!("cold {number}"));
    }
    // a new file is read again two seconds later, for which there may be no helper
    folder.age();
    fs::create_dir(folder.join("mnt")).unwrap();
    let mounted = has(HangingFiles::mount(&folder.join("mnt"), files), test)?;
    Some((folder, mounted))
}

fn ask(served: &WatchedServer, path: &str, count: usize) -> Crowd {
    let mut crowd = Crowd::connect(served.target(), count, count).unwrap();
    crowd.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    crowd
}

/// Whether every client has the whole file.
fn have_all(crowd: &Crowd, file: &HangingFile) -> bool {
    let content = file.content();
    crowd.members.iter().all(|member| {
        member.received.starts_with(b"HTTP/1.1 200 ") && member.received.ends_with(&content)
    })
}

/// Asks for everything that does not hang: hot, cold, large, missing, a listing refused, and a
/// file of the hanging file system itself. Each must be answered while the others hang.
fn serves_the_others(served: &WatchedServer) {
    for round in 0..3 {
        let mut client = served.client();
        for number in (round..COLD).step_by(3) {
            assert_eq!(client.get("/hot.txt").expect("hot").body, b"hot");
            let cold = client.get(&format!("/cold/{number}.txt")).expect("cold");
            assert_eq!(cold.body, format!("cold {number}").as_bytes());
        }
        assert_eq!(client.get("/large.bin").expect("large").body, vec![b'l'; 3 << 20]);
        assert_eq!(client.get(&format!("/missing-{round}")).expect("missing").status, 404);
        assert_eq!(client.get("/cold").expect("a directory").status, 301);
        let quick = client.get("/mnt/quick.txt").expect("a file beside the one that hangs");
        assert_eq!(quick.status, 200);
    }
}

/// Forty requests for a file that hangs, in each of the ways a file can hang, and meanwhile every
/// other file is served, by one loop. What hung is answered completely in the end.
fn a_file_that_hangs_delays_nobody_else(engine: &str) {
    let ways = [
        ("small", HangingFile::new("hung", 1024, Hangs::ReadFrom(0))),
        ("open", HangingFile::new("hung", 1024, Hangs::Open)),
        ("large", HangingFile::new("hung", 3 << 20, Hangs::ReadFrom(0))),
        ("sending", HangingFile::new("hung", 8 << 20, Hangs::ReadFrom(6 << 20))),
    ];
    for (way, hung) in ways {
        let quick = HangingFile::new("quick.txt", 100, Hangs::Never);
        let Some((folder, mounted)) = site(way, vec![hung.clone(), quick]) else { return };
        let served = WatchedServer::alone(engine, folder.path(), PATIENT);
        let _at_end = mounted.release_at_end();
        assert_eq!(served.client().get("/hot.txt").expect("hot").body, b"hot");
        // Eight megabytes each are kept here until they are compared.
        let count = if way == "sending" { 16 } else { WAITING };
        let mut waiting = ask(&served, "/mnt/hung", count);
        let begun = |crowd: &Crowd| match way {
            // Some of what comes before the place that hangs; a chunk may reach over it. What is not
            // read here keeps the server from coming that far.
            "sending" => {
                let has_begun = |member: &CrowdMember| member.received.len() > 1 << 20;
                mounted.hanging() > 0 && crowd.members.iter().all(has_begun)
            }
            _ => mounted.hanging() > 0,
        };
        assert!(waiting.read_until(PATIENCE, begun), "{way}: it does not hang");

        serves_the_others(&served);

        waiting.read();
        assert!(mounted.hanging() > 0, "{way}: nothing hung meanwhile");
        assert_eq!(waiting.open(), count, "{way}: somebody was cut off");
        let early = waiting.members.iter().filter(|m| m.received.len() as u64 > hung.len).count();
        assert_eq!(early, 0, "{way}: answered while it hung");
        mounted.release();
        let all = waiting.read_until(PATIENCE, |crowd| have_all(crowd, &hung));
        assert!(all, "{way}: not everybody has the whole file after its release");
    }
}

/// More files hang than there are helpers. What is hot needs no helper and is served; what hung is
/// answered in the end, and so is what waited for a helper. With a thread for each connection, no request
/// waits for a helper, and what is cold is served at once.
fn more_hanging_files_than_helpers_leave_the_hot_ones(engine: &str) {
    let name = |number: usize| format!("hung-{number}");
    let file = |number| HangingFile::new(name(number), 1024, Hangs::ReadFrom(0));
    let files = (0..WAITING).map(file).collect();
    let Some((folder, mounted)) = site("more hanging files than helpers", files) else { return };
    // no helper is free to check whether hot files have changed, either
    let settings = format!("helpers.threads = 4\ncache.check_interval = \"1h\"\n{PATIENT}");
    let served = WatchedServer::alone(engine, folder.path(), &settings);
    let _at_end = mounted.release_at_end();
    let mut client = served.client();
    assert_eq!(client.get("/hot.txt").expect("hot").body, b"hot");
    let mut waiting: Vec<_> =
        (0..WAITING).map(|number| ask(&served, &format!("/mnt/{}", name(number)), 1)).collect();
    assert!(soon(PATIENCE, || mounted.hanging() > 0), "nothing hangs");
    let mut cold = served.client();
    cold.ask("/cold/0.txt");
    if has_thread_each(engine) {
        assert_eq!(cold.answer().expect("cold, while others hang").body, b"cold 0");
        cold.ask("/cold/0.txt");
    }
    for _ in 0..500 {
        assert_eq!(client.get("/hot.txt").expect("hot").body, b"hot");
    }
    assert_eq!(served.client().get("/hot.txt").expect("hot, newly connected").body, b"hot");
    assert!(mounted.hanging() > 0, "nothing hung meanwhile");
    mounted.release();
    assert_eq!(cold.answer().expect("cold").body, b"cold 0");
    for (number, crowd) in waiting.iter_mut().enumerate() {
        let file = file(number);
        assert!(crowd.read_until(PATIENCE, |crowd| have_all(crowd, &file)), "{}", name(number));
    }
}

/// A request that waits too long for the disk is given up and counted; clients that leave while their
/// request hangs leave nothing behind; and after the release the file is served. A thread that does its
/// connection's jobs itself cannot give one up: there every client is answered in the end, and clients
/// that have left are noticed then.
fn a_request_that_waits_too_long_for_the_disk_is_given_up(engine: &str) {
    let hung = HangingFile::new("hung", 1024, Hangs::ReadFrom(0));
    let Some((folder, mounted)) = site("waits too long", vec![hung.clone()]) else { return };
    let served = WatchedServer::alone(engine, folder.path(), "timeouts.job = \"1s\"");
    let _at_end = mounted.release_at_end();
    let left = ask(&served, "/mnt/hung", WAITING);
    assert!(soon(PATIENCE, || mounted.hanging() > 0), "nothing hangs");
    drop(left);
    let mut waiting = ask(&served, "/mnt/hung", WAITING);
    if has_thread_each(engine) {
        thread::sleep(Duration::from_secs(2));
        waiting.read();
        assert_eq!(waiting.open(), WAITING, "somebody was given up");
        mounted.release();
        let all = waiting.read_until(PATIENCE, |crowd| have_all(crowd, &hung));
        assert!(all, "not everybody has the file after its release");
        drop(waiting);
        assert!(soon(PATIENCE, || served.metric("forebay_connections") == 0), "some are left");
        return;
    }
    let all_ended = waiting.read_until(PATIENCE, |crowd| crowd.open() == 0);
    assert!(all_ended, "{} still wait", waiting.open());
    assert_eq!(waiting.answered(200), 0, "answered while it hung");
    let counted = served.metric("forebay_timeouts_total{kind=\"job\"}");
    assert!(counted >= WAITING as u64, "{counted}");
    assert!(soon(PATIENCE, || served.metric("forebay_connections") == 0), "connections are left");
    assert!(mounted.hanging() > 0, "nothing hung meanwhile");
    mounted.release();
    // a request that is given up again may cost its connection
    let is_whole = |answer: Answer| answer.body == hung.content();
    let is_there = || served.client().get("/mnt/hung").is_ok_and(is_whole);
    assert!(soon(PATIENCE, is_there), "not served after its release");
}

/// "FIFOs and devices: never served, never blocking": opening a FIFO waits for its writer.
fn a_fifo_is_neither_served_nor_waited_for(engine: &str) {
    let folder = Folder::new();
    folder.write("hot.txt", "hot");
    mknodat(CWD, folder.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let served = WatchedServer::alone(engine, folder.path(), "helpers.threads = 1");
    let mut client = served.client();
    for _ in 0..3 {
        let answer = client.get("/fifo").expect("an answer");
        assert!([403, 404].contains(&answer.status), "{}", answer.head);
        assert_eq!(client.get("/hot.txt").expect("hot").body, b"hot");
    }
}
