//! The access logs against files, full disks and pipes without a reader: no loop ever waits, and every
//! line is either there whole, in the right file, or counted as dropped.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_config::{AccessLog, LogConfig, LogFormat, Member};
use forebay_conn::ArrivalTimes;
use forebay_handler::log::{LogEntry, LogSettings, Logger, Logs, PendingLine};
use forebay_metrics::{Local, Totals};
use std::fs;
use std::io::{PipeReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Long enough for any machine; nothing here is a measurement.
const PATIENCE: Duration = Duration::from_secs(60);

fn log(path: &Path, format: LogFormat) -> LogConfig {
    let access = AccessLog::File(path.to_owned());
    LogConfig {
        access,
        format,
        conditions: Vec::new(),
        sample: 1,
        sample_refused: 1,
        fields: Member::ALL.to_vec(),
        query: true,
        redact: Vec::new(),
    }
}

/// The log of requests that belong to no site.
fn common(path: &Path) -> LogConfig {
    log(path, LogFormat::Combined)
}

fn site(name: &str, path: &Path, format: LogFormat) -> LogSettings {
    LogSettings::new(name.to_owned(), &log(path, format))
}

fn open(path: &Path) -> Arc<Logs> {
    Logs::open(&common(path), &[], false, None).unwrap()
}

fn logger(logs: &Arc<Logs>) -> Logger {
    logs.logger(Arc::default())
}

fn begin(logger: &mut Logger, site: Option<usize>) -> PendingLine {
    let client = "127.0.0.1".parse().unwrap();
    let stages = ArrivalTimes { begun_ns: logger.tick(), complete_ns: logger.tick() };
    logger.line(&LogEntry {
        site,
        client,
        user: None,
        secured: None,
        via_proxy: false,
        id: None,
        request: None,
        judged: None,
        relayed: None,
        status: Some(400),
        stages,
    })
}

/// Writes lines with ascending numbers of bytes.
fn write(logger: &mut Logger, lines: u64) {
    write_to(logger, None, lines);
}

fn write_to(logger: &mut Logger, site: Option<usize>, lines: u64) {
    for number in 0..lines {
        let line = begin(logger, site);
        logger.log(line, number);
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The numbers of bytes in a combined log.
fn numbers(path: &Path) -> Vec<u64> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split(' ').nth(7).unwrap().parse().unwrap()).collect()
}

fn count(path: impl AsRef<Path>) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// A directory of its own for each test, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("log-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A pipe and the path that opens its writing end.
fn pipe() -> (PipeReader, std::io::PipeWriter, PathBuf) {
    let (reader, writer) = std::io::pipe().unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
    (reader, writer, path)
}

#[test]
fn all_lines_arrive_in_order_and_the_file_is_private() {
    let scratch = Scratch::new();
    let path = scratch.join("access.log");
    let logs = open(&path);
    write(&mut logger(&logs), 5000);
    assert!(logs.close(PATIENCE));
    assert_eq!(logs.dropped(), 0);
    assert_eq!(numbers(&path), (0..5000).collect::<Vec<_>>());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o137, 0);
}

#[test]
fn a_line_is_handed_over_once_it_is_old() {
    let scratch = Scratch::new();
    let path = scratch.join("access.log");
    let logs = open(&path);
    let mut logger = logger(&logs);
    logger.turn(1_000_000);
    write(&mut logger, 1);
    logger.turn(1_000_099);
    write(&mut logger, 1);
    logger.turn(1_000_100);
    // a clock that is set back by an hour: waiting lines are handed over as well
    write(&mut logger, 1);
    logger.turn(1_000);
    // the logger stays alive, so that only lines that were handed over can arrive
    assert!(logs.close(PATIENCE));
    assert_eq!(count(path), 3);
}

#[test]
fn several_lines_may_be_open_and_end_in_any_order() {
    let scratch = Scratch::new();
    let path = scratch.join("access.log");
    let logs = open(&path);
    let mut logger = logger(&logs);
    let lines: Vec<_> = (0..3).map(|_| begin(&mut logger, None)).collect();
    for (at, line) in lines.into_iter().enumerate().rev() {
        logger.log(line, at as u64);
    }
    drop(logger);
    assert!(logs.close(PATIENCE));
    assert_eq!(numbers(&path), [2, 1, 0]);
}

#[test]
fn each_site_has_its_lines_and_its_counters_and_sites_may_share_a_file() {
    let scratch = Scratch::new();
    let [shared, json, rest] = ["shared", "json", "rest"].map(|name| scratch.join(name));
    let sites = [
        site("shop", &shared, LogFormat::Combined),
        site("wiki", &json, LogFormat::Json),
        site("blog", &shared, LogFormat::Common),
        LogSettings { access: AccessLog::Off, ..site("quiet", &json, LogFormat::Json) },
    ];
    let logs = Logs::open(&common(&rest), &sites, false, None).unwrap();
    let metrics = Arc::new(Local::default());
    let mut logger = logs.logger(Arc::clone(&metrics));
    for _ in 0..1000 {
        for site in [Some(0), Some(1), None, Some(2), Some(3)] {
            write_to(&mut logger, site, 2);
        }
    }
    drop(logger);
    assert!(logs.close(PATIENCE));
    assert_eq!((count(&shared), count(&json), count(&rest)), (4000, 2000, 2000));
    // in the order they were written, in the format of their site
    let text = fs::read_to_string(&shared).unwrap();
    for four in text.lines().collect::<Vec<_>>().chunks(4) {
        let ends = ["400 0 \"-\" \"-\"", "400 1 \"-\" \"-\"", "400 0", "400 1"];
        assert!(four.iter().zip(ends).all(|(line, end)| line.ends_with(end)), "{four:?}");
    }
    for line in fs::read_to_string(&json).unwrap().lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(object["site"], "wiki");
        assert_eq!(object["request_id"].as_str().unwrap().len(), 32);
        assert!(object["send_us"].is_u64());
    }
    let rows = logs.sites(&Totals::of([metrics.as_ref()]));
    let named: Vec<_> = rows.iter().map(|row| row.0.as_str()).collect();
    assert_eq!(named, ["shop", "wiki", "blog", "quiet", "-", "other"]);
    let counted = |row: usize| (rows[row].1.responses, rows[row].1.body_bytes);
    (0..5).for_each(|row| assert_eq!(counted(row), ([0, 0, 0, 2000, 0], 1000)));
    assert_eq!(counted(5), ([0; 5], 0));
}

#[test]
fn lines_begun_before_a_reload_end_where_they_began() {
    let scratch = Scratch::new();
    let [kept, left, new] = ["kept", "left", "new"].map(|name| scratch.join(name));
    let before = [site("a", &kept, LogFormat::Combined), site("b", &left, LogFormat::Combined)];
    let before = Logs::open(&common(&kept), &before, false, None).unwrap();
    let mut logger = logger(&before);
    let (of_a, of_b) = (begin(&mut logger, Some(0)), begin(&mut logger, Some(1)));
    write_to(&mut logger, Some(1), 1);
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let file = inode(&kept);
    // renamed: opening the path again gives another file
    fs::rename(&kept, scratch.join("moved")).unwrap();

    let after = [site("b", &new, LogFormat::Combined), site("a", &kept, LogFormat::Combined)];
    let counted = Totals::default();
    let after = Logs::open(&common(&kept), &after, false, Some((&before, &counted))).unwrap();
    drop(before);
    logger.update(&after);
    write_to(&mut logger, Some(0), 2);
    write_to(&mut logger, Some(1), 4);
    logger.log(of_a, 77);
    logger.log(of_b, 88);
    logger.flush();
    until("the last line of the old logs is written", || count(&left) == 2);
    assert_eq!(numbers(&left), [0, 88]);
    let is_open = |path: &Path| {
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|link| link == path)
    };
    until("a file that is not needed any more is closed", || !is_open(&left));
    assert!(is_open(&new));
    drop(logger);
    assert!(after.close(PATIENCE));
    assert_eq!(numbers(&new), [0, 1]);
    let mut of_kept = numbers(&scratch.join("moved"));
    of_kept.sort();
    assert_eq!(of_kept, [0, 1, 2, 3, 77]);
    assert_eq!(inode(&scratch.join("moved")), file);
    assert!(!kept.exists());
    assert_eq!(after.dropped(), 0);
}

#[test]
fn a_reload_that_fails_leaves_the_logs_as_they_were() {
    let scratch = Scratch::new();
    let path = scratch.join("access.log");
    let logs = open(&path);
    let nowhere = site("shop", &scratch.join("none/access.log"), LogFormat::Json);
    let counted = Totals::default();
    let error = Logs::open(&common(&path), &[nowhere], false, Some((&logs, &counted))).unwrap_err();
    assert!(error.to_string().starts_with("site \"shop\": log.access: cannot append to "));
    write(&mut logger(&logs), 3);
    assert!(logs.close(PATIENCE));
    assert_eq!(count(&path), 3);
}

#[test]
fn a_full_disk_costs_lines_of_its_log_and_nothing_else() {
    let scratch = Scratch::new();
    let path = scratch.join("access.log");
    let full = site("full", Path::new("/dev/full"), LogFormat::Combined);
    let logs = Logs::open(&common(&path), &[full], false, None).unwrap();
    let mut logger = logger(&logs);
    let mut written = 0;
    for _ in 0..100 {
        write_to(&mut logger, Some(0), 100);
        write_to(&mut logger, None, 100);
        written += 100;
        logger.flush();
        // no batch is dropped for lack of a place in the channel
        let is_there = || count(&path) as u64 + logs.dropped_by_log()[0].1 == written;
        until("what was handed over is written", is_there);
    }
    drop(logger);
    assert!(logs.close(PATIENCE));
    let dropped = logs.dropped_by_log();
    let access = path.to_string_lossy().into_owned();
    assert_eq!(dropped, [(access, 0), ("/dev/full".to_owned(), 10_000)]);
    assert_eq!(logs.dropped(), 10_000);
}

#[test]
fn a_pipe_that_nobody_reads_costs_lines_of_its_own_and_none_is_torn() {
    let scratch = Scratch::new();
    let path = scratch.join("access.log");
    let (mut reader, writer, stuck) = pipe();
    let stuck = site("stuck", &stuck, LogFormat::Combined);
    let logs = Logs::open(&common(&path), &[stuck], false, None).unwrap();
    drop(writer);
    let mut logger = logger(&logs);
    let (mut lines, mut batches) = (0, 0);
    // more than the pipe holds and than may wait for it
    while logs.dropped() == 0 {
        write_to(&mut logger, Some(0), 1000);
        write_to(&mut logger, None, 1);
        logger.flush();
        (lines, batches) = (lines + 1000, batches + 1);
        until("another log goes on", || count(&path) == batches);
    }
    drop(logger);
    assert!(logs.close(PATIENCE));
    let (dropped, dropped_by_log) = (logs.dropped(), logs.dropped_by_log());
    // drops the other end of the pipe as well
    drop(logs);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let (whole, torn) = text.rsplit_once('\n').unwrap();
    let whole = whole.lines().count() as u64;
    assert!(whole < lines);
    assert_eq!(whole + dropped, lines, "and the torn rest {torn:?}");
    assert_eq!(dropped_by_log[0].1, 0);
}

#[test]
fn a_reader_that_is_slow_gets_every_line() {
    let (mut reader, writer, path) = pipe();
    let logs = open(&path);
    drop(writer);
    let mut logger = logger(&logs);
    // more than the pipe holds, less than may wait
    write(&mut logger, 5000);
    logger.flush();
    let lines = Arc::new(AtomicUsize::new(0));
    let read = std::thread::spawn({
        let lines = Arc::clone(&lines);
        move || {
            let (mut text, mut buffer) = (Vec::new(), [0; 1000]);
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                text.extend_from_slice(&buffer[..count]);
                let ends = buffer[..count].iter().filter(|byte| **byte == b'\n').count();
                lines.fetch_add(ends, Ordering::Relaxed);
                std::thread::yield_now();
            }
            String::from_utf8(text).unwrap()
        }
    });
    drop(logger);
    // the end waits for a reader no longer than a second
    until("every line is read", || lines.load(Ordering::Relaxed) == 5000);
    assert!(logs.close(PATIENCE));
    assert_eq!(logs.dropped(), 0);
    drop(logs);
    let numbers = read.join().unwrap();
    let numbers =
        numbers.lines().map(|line| line.split(' ').nth(7).unwrap().parse::<i32>().unwrap());
    assert!(numbers.eq(0..5000));
}

/// The pipe is open for a moment in a program that another test starts, and an open pipe takes lines.
#[test]
fn a_closed_pipe_is_no_reason_to_die() {
    let dropped = || {
        let (reader, writer, path) = pipe();
        let logs = open(&path);
        drop((reader, writer));
        write(&mut logger(&logs), 10);
        assert!(logs.close(PATIENCE));
        logs.dropped()
    };
    assert!((0..5).any(|_| dropped() == 10));
}

#[test]
fn after_a_rotation_lines_go_to_the_new_files() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("logs")).unwrap();
    let [one, two] = ["logs/one", "logs/two"].map(|name| scratch.join(name));
    let logs =
        Logs::open(&common(&one), &[site("two", &two, LogFormat::Combined)], false, None).unwrap();
    let mut logger = logger(&logs);
    write(&mut logger, 3);
    write_to(&mut logger, Some(0), 4);
    logger.flush();
    until("in the old files before they are renamed", || (count(&one), count(&two)) == (3, 4));
    fs::rename(&one, scratch.join("logs/one.1")).unwrap();
    fs::rename(&two, scratch.join("logs/two.1")).unwrap();
    // the path to the directory may be closed to this process by now: the directory itself is open
    fs::rename(scratch.join("logs"), scratch.join("elsewhere")).unwrap();
    logs.reopen();
    write(&mut logger, 2);
    write_to(&mut logger, Some(0), 1);
    drop(logger);
    assert!(logs.close(PATIENCE));
    let counts = ["one.1", "one", "two.1", "two"];
    let counts = counts.map(|name| count(scratch.join("elsewhere").join(name)));
    assert_eq!(counts, [3, 2, 4, 1]);
}

/// The directory itself may be rotated, too: the one that is at the path counts.
#[test]
fn after_a_rotation_of_the_directory_lines_go_to_the_new_one() {
    let scratch = Scratch::new();
    let [directory, path] = ["logs", "logs/access.log"].map(|name| scratch.join(name));
    fs::create_dir(&directory).unwrap();
    let logs = open(&path);
    let mut logger = logger(&logs);
    write(&mut logger, 3);
    logger.flush();
    until("in the first directory", || count(&path) == 3);
    fs::rename(&directory, scratch.join("first")).unwrap();
    fs::create_dir(&directory).unwrap();
    logs.reopen();
    write(&mut logger, 2);
    logger.flush();
    until("in the second directory", || count(&path) == 2);
    // with nothing at the path, the second directory is the one kept open
    fs::rename(&directory, scratch.join("second")).unwrap();
    logs.reopen();
    write(&mut logger, 4);
    drop(logger);
    assert!(logs.close(PATIENCE));
    let counts = ["first", "second"].map(|name| count(scratch.join(name).join("access.log")));
    assert_eq!(counts, [3, 6]);
}

#[test]
fn a_file_that_cannot_be_opened_again_is_kept() {
    let scratch = Scratch::new();
    let path = scratch.join("access.log");
    let logs = open(&path);
    let mut logger = logger(&logs);
    fs::rename(&path, scratch.join("access.log.1")).unwrap();
    fs::create_dir(&path).unwrap();
    logs.reopen();
    write(&mut logger, 2);
    drop(logger);
    assert!(logs.close(PATIENCE));
    assert_eq!(count(scratch.join("access.log.1")), 2);
}

#[test]
fn what_cannot_be_opened_is_said_at_the_start() {
    let error =
        Logs::open(&common(Path::new("/nonexistent/access.log")), &[], false, None).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("log.access: cannot append to \"/nonexistent/access.log\": No such"));
}

#[test]
fn off_logs_nothing_and_still_counts() {
    let off = LogSettings {
        site: "quiet".to_owned(),
        access: AccessLog::Off,
        ..site("", Path::new(""), LogFormat::Json)
    };
    let logs = Logs::open(&LogConfig::default(), &[off], false, None).unwrap();
    let metrics = Arc::new(Local::default());
    let mut logger = logs.logger(Arc::clone(&metrics));
    assert_eq!(logger.tick(), 0);
    write_to(&mut logger, Some(0), 3);
    let rows = logs.sites(&Totals::of([metrics.as_ref()]));
    assert_eq!(rows[0].1.responses, [0, 0, 0, 3, 0]);
    assert!(logs.close(PATIENCE));
}
