//! A log that cannot be written drops and counts lines, and never blocks the server: the device is full,
//! the file system is full, the pipe has a reader that does not read, or no reader.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::Options;
use forebay_tests::faults::site::{Folder, Tmpfs};
use forebay_tests::faults::{WatchedServer, has, soon};
use forebay_tests::wire::PATIENCE;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

forebay_tests::on_each_engine! {
    a_full_device_costs_lines_and_no_request,
    a_limit_of_files_costs_lines_and_no_request,
    a_full_disk_costs_lines_until_there_is_room,
    a_pipe_that_nobody_reads_costs_lines_until_somebody_reads,
    a_closed_or_stuck_pipe_does_not_keep_the_server,
}

const DROPPED: &str = "forebay_log_dropped_lines_total";
/// The number of requests that are sent in one go.
const BATCH: usize = 100;

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("site/index.html", "a");
    folder
}

/// A server over `folder/site` that writes its access log to `access`.
fn logging_to(engine: &str, folder: &Folder, access: &str, wrapper: Vec<String>) -> WatchedServer {
    let options =
        Options { log: true, wrapper, ..Options::new(folder.join("site")).engine(engine) };
    WatchedServer::with(options.config(&format!("log.access = {access:?}")))
}

/// Sends `BATCH` pipelined requests whose target ends in `mark`; every one must be answered.
fn send_batch(served: &WatchedServer, mark: &str) {
    let mut client = served.client();
    let one =
        format!("GET /?{mark} HTTP/1.1\r\nHost: a\r\nUser-Agent: {}\r\n\r\n", "u".repeat(100));
    client.stream().write_all(one.repeat(BATCH).as_bytes()).unwrap();
    for _ in 0..BATCH {
        assert_eq!(client.answer().expect("an answer, whatever the log does").status, 200);
    }
}

/// Sends batches until lines are dropped; returns the number of requests.
fn send_until_dropped(served: &WatchedServer) -> usize {
    for batch in 1..=2000 {
        send_batch(served, "before");
        if soon(std::time::Duration::ZERO, || served.metric(DROPPED) > 0) {
            return batch * BATCH;
        }
    }
    panic!("no line was dropped after {} requests", 2000 * BATCH);
}

/// The number of whole lines in `log`, and of torn ones.
fn lines(log: &str) -> (usize, usize) {
    let is_whole = |line: &&str| line.starts_with("127.") && line.ends_with("uuuu\"");
    let (whole, torn): (Vec<_>, Vec<_>) = log.lines().partition(is_whole);
    let is_a_beginning = |line: &&str| whole[0].starts_with(&line[..line.len().min(15)]);
    assert!(torn.iter().all(is_a_beginning), "not the beginning of a line: {torn:?}");
    (whole.len(), torn.len())
}

/// Every write fails: every line is dropped and counted, every request is answered.
fn a_full_device_costs_lines_and_no_request(engine: &str) {
    let folder = site();
    let served = logging_to(engine, &folder, "/dev/full", Vec::new());
    (0..5).for_each(|_| send_batch(&served, "full"));
    let all = (5 * BATCH) as u64;
    assert!(soon(PATIENCE, || served.metric(DROPPED) == all), "{} dropped", served.metric(DROPPED));
}

/// The log file may not grow any more (RLIMIT_FSIZE); the signal for that ends processes that do not
/// expect it.
fn a_limit_of_files_costs_lines_and_no_request(engine: &str) {
    let folder = site();
    let access = folder.join("access.log");
    let wrapper = ["prlimit", "--fsize=100000:100000"].map(str::to_owned).to_vec();
    let served = logging_to(engine, &folder, access.to_str().unwrap(), wrapper);
    let requests = send_until_dropped(&served);
    assert_ledger(&served, requests, || fs::read_to_string(&access).unwrap());
}

/// The file system fills: requests go on and lines are dropped. When there is room again, lines are
/// written again, each request is either logged or counted as dropped, and the beginning of the line that
/// found no room stays, on a line of its own.
fn a_full_disk_costs_lines_until_there_is_room(engine: &str) {
    let folder = site();
    fs::create_dir(folder.join("disk")).unwrap();
    let mounted = Tmpfs::mount(&folder.join("disk"), 256);
    let Some(_disk) = has(mounted, "a full disk below the log") else { return };
    let ballast = folder.write("disk/ballast", vec![b'b'; 192 << 10]);
    let access = folder.join("disk/access.log");
    let served = logging_to(engine, &folder, access.to_str().unwrap(), Vec::new());

    // lines that wait are written or dropped before there is room, and before more come: otherwise they
    // could fill the disk again
    let settle =
        |requests| assert_ledger(&served, requests, || fs::read_to_string(&access).unwrap());
    let mut requests = send_until_dropped(&served);
    settle(requests);
    fs::remove_file(ballast).unwrap();
    let is_resumed = soon(PATIENCE, || {
        send_batch(&served, "after");
        requests += BATCH;
        settle(requests);
        fs::read_to_string(&access).unwrap().contains("/?after")
    });
    assert!(is_resumed, "nothing is logged after there is room");
    let torn = lines(&fs::read_to_string(&access).unwrap()).1;
    assert!(torn <= 1, "{torn} lines are torn, by one disk that was full");
}

/// In the end every request is a whole line of the log or counted as dropped, exactly.
fn assert_ledger(served: &WatchedServer, requests: usize, mut log: impl FnMut() -> String) {
    let mut counts = (0, 0);
    let is_settled = soon(PATIENCE, || {
        counts = (lines(&log()).0, served.metric(DROPPED) as usize);
        counts.0 + counts.1 >= requests
    });
    assert!(is_settled, "{requests} requests, but {counts:?} logged and dropped");
    assert_eq!(counts.0 + counts.1, requests, "{counts:?} logged and dropped");
}

/// A pipe on standard output whose other end is `reader`, and a shell that connects it.
fn pipe_at(folder: &Folder) -> (File, Vec<String>) {
    let fifo = folder.join("pipe");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let reader = open(&fifo, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
    let shell = ["sh", "-c", &format!("exec \"$@\" > {}", fifo.display()), "sh"];
    (File::from(reader.unwrap()), shell.map(str::to_owned).to_vec())
}

/// While the pipe is not read, requests go on. When it is read again, lines come again, and none is torn.
fn a_pipe_that_nobody_reads_costs_lines_until_somebody_reads(engine: &str) {
    let folder = site();
    let (mut reader, shell) = pipe_at(&folder);
    let served = logging_to(engine, &folder, "-", shell);
    let mut requests = send_until_dropped(&served);
    let mut log = Vec::new();
    let is_resumed = soon(PATIENCE, || {
        read_all(&mut reader, &mut log);
        send_batch(&served, "after");
        requests += BATCH;
        String::from_utf8_lossy(&log).contains("/?after")
    });
    assert!(is_resumed, "nothing is logged after somebody reads");
    assert_ledger(&served, requests, || {
        read_all(&mut reader, &mut log);
        String::from_utf8(log.clone()).unwrap()
    });
    let torn = lines(&String::from_utf8(log).unwrap()).1;
    assert!(torn <= 1, "{torn} lines are torn, by one pipe that was full");
}

/// Reads the bytes in the pipe, without waiting.
fn read_all(pipe: &mut File, into: &mut Vec<u8>) {
    match pipe.read_to_end(into) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
    }
}

/// The other end of the pipe is closed, and the server gets a signal to stop while its log is stuck:
/// neither ends or holds up anything.
fn a_closed_or_stuck_pipe_does_not_keep_the_server(engine: &str) {
    let folder = site();
    let (reader, shell) = pipe_at(&folder);
    let mut served = logging_to(engine, &folder, "-", shell);
    send_until_dropped(&served);
    served.signal(Signal::TERM);
    let status = served.wait(PATIENCE).expect("the end, in spite of lines nobody reads");
    assert_eq!(status.code(), Some(0), "{}", served.stderr());
    drop((served, reader));

    fs::remove_file(folder.join("pipe")).unwrap();
    let (reader, shell) = pipe_at(&folder);
    let served = logging_to(engine, &folder, "-", shell);
    send_batch(&served, "read");
    drop(reader);
    (0..5).for_each(|_| send_batch(&served, "closed"));
    assert!(soon(PATIENCE, || served.metric(DROPPED) > 0), "lines to nobody are not counted");
    assert!(Path::new(&format!("/proc/{}", served.pid())).exists());
}
