//! An answer is one version of a file ("Where truth comes from" in ARCHITECTURE.md): a large file
//! changes while one answer with it is half sent.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::{Answer, Cut};
use forebay_tests::faults::site::{BLOCK_BYTES, Folder, versioned, versions};
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::PATIENCE;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

forebay_tests::on_each_engine! {
    a_file_replaced_or_removed_while_sent_is_sent_to_its_end,
    a_file_changed_in_place_while_sent_ends_its_connection,
    what_was_promised_of_a_file_that_only_grows_is_sent,
    a_log_that_is_written_all_the_time_is_answered_each_time,
}

/// The blocks of the file: 40 MiB.
const BLOCKS: usize = 640 << 10;
const CHANGED: &str = "forebay_responses_aborted_total{reason=\"file_changed\"}";

/// A server whose file has changed.
struct Changed {
    served: WatchedServer,
    _folder: Folder,
}

impl Deref for Changed {
    type Target = WatchedServer;

    fn deref(&self) -> &WatchedServer {
        &self.served
    }
}

/// A change of the file.
type Change<'c> = &'c dyn Fn(&Path);

/// Asks for a file far larger than all socket buffers, then `change`s it while most of it is unsent.
/// Returns how the answer went on, and whether the answer to a second, pipelined request followed.
fn change_while_sending(
    engine: &str,
    name: &str,
    settings: &str,
    change: Change,
) -> (Changed, Result<Answer, Cut>, bool) {
    let folder = Folder::new();
    let path = folder.write("large.bin", versioned(1, BLOCKS));
    folder.write("other.txt", "other");
    // a slow machine takes its time between the head and the rest
    let settings = format!("timeouts.send_window = \"1h\"\n{settings}");
    let served = WatchedServer::alone(engine, folder.path(), &settings);
    let mut client = served.client();
    // Otherwise the kernel lets the receive buffer grow to 32 MiB.
    rustix::net::sockopt::set_socket_recv_buffer_size(client.stream(), 64 << 10).unwrap();
    assert!(client.ask("/large.bin") && client.ask("/other.txt"));
    let head = client.head().unwrap();
    assert!(
        head.contains(&format!("Content-Length: {}\r\n", BLOCKS * BLOCK_BYTES)),
        "{name}: {head}"
    );
    change(&path);
    let result = client.body(&head, BLOCKS * BLOCK_BYTES);
    let result = result.map(|body| Answer { status: 200, head, body });
    let second = client.answer().is_ok_and(|answer| answer.body == b"other");
    (Changed { served, _folder: folder }, result, second)
}

/// A client that asked before the rename (or the removal) gets the old version to its last byte, and the
/// connection stays open.
fn a_file_replaced_or_removed_while_sent_is_sent_to_its_end(engine: &str) {
    let replace = |path: &Path| {
        let fresh = path.with_extension("fresh");
        fs::write(&fresh, versioned(2, BLOCKS)).unwrap();
        fs::rename(&fresh, path).unwrap();
    };
    let remove = |path: &Path| fs::remove_file(path).unwrap();
    for (name, change) in [("replace", &replace as Change), ("remove", &remove)] {
        let (served, result, second) = change_while_sending(engine, name, "", change);
        let answer = result.unwrap_or_else(|cut| panic!("{name}: {}", cut.brief()));
        assert_eq!(versions(&answer.body), Ok(vec![1]), "{name}");
        assert!(second, "{name}: the connection does not live on");
        assert_eq!(served.metric(CHANGED), 0, "{name}");
    }
}

/// "fstat (size, mtime, ctime) before each chunk and before the last byte; on change the connection is
/// reset, never reused, never padded."
fn a_file_changed_in_place_while_sent_ends_its_connection(engine: &str) {
    let truncate = |path: &Path| set_len(path, 20 << 20);
    let empty = |path: &Path| set_len(path, 0);
    let grow = |path: &Path| {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"more").unwrap();
    };
    let write = |path: &Path| {
        let mut file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all(&versioned(2, 1)).unwrap();
    };
    // The old modification time is restored: only ctime shows the change.
    let hide = |path: &Path| {
        let before = fs::metadata(path).unwrap().modified().unwrap();
        write(path);
        File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
    };
    let changes = [
        ("truncate", &truncate as Change),
        ("empty", &empty),
        ("grow", &grow),
        ("write", &write),
        ("hide", &hide),
    ];
    for (name, change) in changes {
        let (served, result, second) = change_while_sending(engine, name, "", change);
        let Err(Cut::Body { received, .. }) = &result else {
            panic!(
                "{name}: not cut short: {:?}",
                result.map(|answer| answer.head).map_err(|c| c.brief())
            )
        };
        let whole = &received[..received.len() / BLOCK_BYTES * BLOCK_BYTES];
        assert!(versions(whole).is_ok(), "{name}: {:?}", versions(whole));
        assert!(!second, "{name}: the connection was used again");
        assert!(soon(PATIENCE, || served.metric(CHANGED) > 0), "{name}: not counted");
        assert_eq!(served.metric(CHANGED), 1, "{name}");
    }
}

/// With `appended` a file may grow while it is sent. The next answer has all of it, and another tag. A
/// file that becomes shorter cannot be sent.
fn what_was_promised_of_a_file_that_only_grows_is_sent(engine: &str) {
    let grow = |path: &Path| {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(&versioned(2, 3)).unwrap();
    };
    let roll = |path: &Path| {
        grow(path);
        fs::rename(path, path.with_extension("1")).unwrap();
        fs::write(path, "begun anew").unwrap();
    };
    let shorten = |path: &Path| set_len(path, 20 << 20);
    let settings = "appended = [\"/large.bin\"]";
    for (name, change) in [("grow", &grow as Change), ("roll", &roll)] {
        let (served, result, second) = change_while_sending(engine, name, settings, change);
        let answer = result.unwrap_or_else(|cut| panic!("{name}: {}", cut.brief()));
        assert_eq!(versions(&answer.body), Ok(vec![1]), "{name}");
        assert!(second, "{name}: the connection does not live on");
        assert_eq!(served.metric(CHANGED), 0, "{name}");
        let next = served.client().get("/large.bin").unwrap();
        let (all, added) = (BLOCKS * BLOCK_BYTES, 3 * BLOCK_BYTES);
        assert_eq!(next.body.len(), if name == "grow" { all + added } else { 10 }, "{name}");
        assert_ne!(next.field("etag"), answer.field("etag"), "{name}");
    }
    let (served, result, second) = change_while_sending(engine, "shorten", settings, &shorten);
    assert!(matches!(result, Err(Cut::Body { .. })), "what is gone cannot be sent");
    assert!(!second && soon(PATIENCE, || served.metric(CHANGED) == 1));
}

/// A growing log is asked for in memory and from the disk, plain and compressed, in parts: each answer is
/// the beginning of the file, and no connection ends.
fn a_log_that_is_written_all_the_time_is_answered_each_time(engine: &str) {
    let folder = Folder::new();
    let line = |number: usize| format!("line {number:010}\n");
    let text: String = (0..100_000).map(line).collect();
    let small = folder.write("logs/small.txt", &text[..16 * 2000]);
    let large = folder.write("logs/large.txt", &text);
    let settings = "appended = [\"/logs\"]\ntimeouts.send_window = \"1h\"";
    let served = WatchedServer::alone(engine, folder.path(), settings);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let write = |path: &Path, from: usize| {
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            for number in from.. {
                file.write_all(line(number).as_bytes()).unwrap();
                if is_over.load(Relaxed) {
                    break;
                }
                // thousands of lines a second
                std::thread::sleep(Duration::from_micros(100));
            }
        };
        scope.spawn(move || write(&small, 2000));
        scope.spawn(move || write(&large, 100_000));
        let over = Over(&is_over);
        let mut client = served.client();
        let mut last = 0;
        for path in ["/logs/small.txt", "/logs/large.txt"].repeat(10) {
            let answer = client.get(path).unwrap_or_else(|cut| panic!("{path}: {}", cut.brief()));
            assert_eq!(answer.status, 200, "{path}");
            let lines = answer.body.split_inclusive(|byte| *byte == b'\n').enumerate();
            let is_right = |(number, found): (usize, &[u8])| found == line(number).as_bytes();
            assert!(lines.into_iter().all(is_right), "{path}");
            if path.contains("large") {
                assert!(answer.body.len() >= last, "{path} was longer");
                last = answer.body.len();
            }
            for more in ["Range: bytes=100-1600099", "Accept-Encoding: gzip"] {
                let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n\r\n");
                client.stream().write_all(request.as_bytes()).unwrap();
                let answer = client.answer();
                let answer = answer.unwrap_or_else(|cut| panic!("{path} {more}: {}", cut.brief()));
                let wanted = if more.contains("Range") { 206 } else { 200 };
                assert_eq!(answer.status, wanted, "{path} {more}");
            }
        }
        drop(over);
    });
    assert_eq!(served.metric(CHANGED), 0);
}

/// Ends the threads that write, even where a check fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn set_len(path: &Path, len: u64) {
    File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}
