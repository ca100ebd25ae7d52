//! The access log against files, full disks and pipes that nobody reads: no loop ever waits, and
//! every line is either there whole or counted as dropped.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_conn::Peer;
use forebay_server::config::{self, Access, LogFormat};
use forebay_server::log::{Log, Logger};
use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Long enough for any machine; nothing here is a measurement.
const PATIENCE: Duration = Duration::from_secs(20);

fn open(path: &Path) -> Log {
    let access = Access::File(path.to_owned());
    Log::open(&config::Log { access, format: LogFormat::Combined }).unwrap()
}

fn write(logger: &mut Logger, lines: u64) {
    let address = "127.0.0.1:1".parse().unwrap();
    let peer = Peer::new(address, address);
    for number in 0..lines {
        let line = logger.line(&peer, None, 400).unwrap();
        logger.log(line, number);
    }
}

/// A directory of its own for each test, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn all_lines_arrive_in_order_and_the_file_is_private() {
    let scratch = Scratch::new("log-order");
    let path = scratch.0.join("access.log");
    let log = open(&path);
    let mut logger = log.logger();
    write(&mut logger, 5000);
    drop(logger);
    assert_eq!(log.dropped(), 0);
    assert!(log.close(PATIENCE));
    let text = fs::read_to_string(&path).unwrap();
    let numbers: Vec<u64> =
        text.lines().map(|line| line.split(' ').nth(7).unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, (0..5000).collect::<Vec<_>>());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o137, 0);
}

#[test]
fn a_line_is_handed_over_once_it_is_old() {
    let scratch = Scratch::new("log-age");
    let path = scratch.0.join("access.log");
    let log = open(&path);
    let mut logger = log.logger();
    logger.turn(1_000_000);
    write(&mut logger, 1);
    logger.turn(1_000_099);
    write(&mut logger, 1);
    logger.turn(1_000_100);
    // set back by an hour: what waits is handed over as well
    write(&mut logger, 1);
    logger.turn(1_000);
    // leaves the logger alive, so that only what was handed over can arrive
    assert!(log.close(PATIENCE));
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 3);
}

#[test]
fn several_lines_may_be_open_and_end_in_any_order() {
    let scratch = Scratch::new("log-open-lines");
    let path = scratch.0.join("access.log");
    let log = open(&path);
    let mut logger = log.logger();
    let peer = |port| {
        let remote = format!("127.0.0.{port}:1").parse().unwrap();
        Peer::new(remote, "127.0.0.1:80".parse().unwrap())
    };
    let lines: Vec<_> = (1..=3).map(|n| logger.line(&peer(n), None, 400).unwrap()).collect();
    for (at, line) in lines.into_iter().enumerate().rev() {
        logger.log(line, at as u64);
    }
    drop(logger);
    assert!(log.close(PATIENCE));
    let text = fs::read_to_string(&path).unwrap();
    let first: Vec<_> = text.lines().map(|line| &line[..9]).collect();
    assert_eq!(first, ["127.0.0.3", "127.0.0.2", "127.0.0.1"]);
}

#[test]
fn a_full_disk_costs_lines_and_nothing_else() {
    let log = open(Path::new("/dev/full"));
    let mut logger = log.logger();
    write(&mut logger, 200_000);
    logger.turn(u64::MAX);
    write(&mut logger, 1);
    drop(logger);
    let shared = log.logger();
    assert!(log.close(PATIENCE));
    assert_eq!(shared.dropped(), 200_001);
}

#[test]
fn a_pipe_that_nobody_reads_costs_lines_and_none_is_torn() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let log = open(Path::new(&format!("/proc/self/fd/{}", writer.as_raw_fd())));
    drop(writer);
    let mut logger = log.logger();
    // about 10 MB: more than the pipe and the channel hold
    write(&mut logger, 200_000);
    drop(logger);
    let shared = log.logger();
    assert!(log.close(PATIENCE));
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let (whole, torn) = text.rsplit_once('\n').unwrap();
    let whole = whole.lines().count() as u64;
    assert!(whole < 200_000);
    assert_eq!(whole + shared.dropped(), 200_000, "and the torn rest {torn:?}");
}

#[test]
fn a_closed_pipe_is_no_reason_to_die() {
    let (reader, writer) = std::io::pipe().unwrap();
    let log = open(Path::new(&format!("/proc/self/fd/{}", writer.as_raw_fd())));
    drop((reader, writer));
    let mut logger = log.logger();
    write(&mut logger, 10);
    drop(logger);
    let shared = log.logger();
    assert!(log.close(PATIENCE));
    assert_eq!(shared.dropped(), 10);
}

#[test]
fn after_a_rotation_lines_go_to_the_new_file() {
    let scratch = Scratch::new("log-rotation");
    let path = scratch.0.join("access.log");
    let log = open(&path);
    let mut logger = log.logger();
    write(&mut logger, 3);
    logger.flush();
    // in the old file before it is renamed
    while fs::metadata(&path).unwrap().len() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    fs::rename(&path, scratch.0.join("access.log.1")).unwrap();
    log.reopen();
    write(&mut logger, 2);
    drop(logger);
    assert!(log.close(PATIENCE));
    let count = |name| fs::read_to_string(scratch.0.join(name)).unwrap().lines().count();
    assert_eq!((count("access.log.1"), count("access.log")), (3, 2));
}

#[test]
fn what_cannot_be_opened_is_said_at_the_start() {
    let access = Access::File(PathBuf::from("/nonexistent/access.log"));
    let error = Log::open(&config::Log { access, format: LogFormat::Json }).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("log.access: cannot append to \"/nonexistent/access.log\": No such"));
}

#[test]
fn off_logs_nothing() {
    let log = Log::open(&config::Log::default()).unwrap();
    let address = "127.0.0.1:1".parse().unwrap();
    let peer = Peer::new(address, address);
    assert!(log.logger().line(&peer, None, 400).is_none());
    assert!(log.close(PATIENCE));
}
