//! DESIGN §3, "Truth": a large file changes while one answer with it is half sent.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::{Answer, Cut};
use forebay_tests::faults::site::{BLOCK_BYTES, Folder, versioned, versions};
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::PATIENCE;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

forebay_tests::on_each_engine! {
    a_file_replaced_or_removed_while_sent_is_sent_to_its_end,
    a_file_changed_in_place_while_sent_ends_its_connection,
}

/// Blocks of the file: 40 MiB.
const BLOCKS: usize = 640 << 10;
const CHANGED: &str = "forebay_responses_aborted_total{reason=\"file_changed\"}";

/// What happens to the file.
type Change<'c> = &'c dyn Fn(&Path);

/// Asks for a file far larger than all socket buffers, then `change`s it with most of it unsent.
/// Returns how the answer went on, and whether the answer to a second, pipelined request followed.
fn change_while_sending(
    engine: &str,
    name: &str,
    change: Change,
) -> (WatchedServer, Result<Answer, Cut>, bool) {
    let folder = Folder::new();
    let path = folder.write("large.bin", versioned(1, BLOCKS));
    folder.write("other.txt", "other");
    // a slow machine takes its time between the head and the rest
    let served = WatchedServer::alone(engine, folder.path(), "timeouts.send_window = \"1h\"");
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
    (served, result, second)
}

/// Whoever asked before the rename (or the removal) gets the old version to its last byte, and the
/// connection lives on.
fn a_file_replaced_or_removed_while_sent_is_sent_to_its_end(engine: &str) {
    let replace = |path: &Path| {
        let fresh = path.with_extension("fresh");
        fs::write(&fresh, versioned(2, BLOCKS)).unwrap();
        fs::rename(&fresh, path).unwrap();
    };
    let remove = |path: &Path| fs::remove_file(path).unwrap();
    for (name, change) in [("replace", &replace as Change), ("remove", &remove)] {
        let (served, result, second) = change_while_sending(engine, name, change);
        let answer = result.unwrap_or_else(|cut| panic!("{name}: {}", cut.brief()));
        assert_eq!(versions(&answer.body), Ok(vec![1]), "{name}");
        assert!(second, "{name}: the connection does not live on");
        assert_eq!(served.metric(CHANGED), 0, "{name}");
    }
}

/// "fstat (size, mtime, ctime) before each chunk and before the last byte; on change the connection
/// is reset, never reused, never padded."
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
    // Its old time is given back: only ctime tells.
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
        let (served, result, second) = change_while_sending(engine, name, change);
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

fn set_len(path: &Path, len: u64) {
    File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}
