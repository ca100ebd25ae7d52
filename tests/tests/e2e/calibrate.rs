//! `forebay calibrate` as a person types it. Its measurements need a quiet machine, and are tested in
//! parts; this file tests what a stopped calibration leaves behind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::server::binary;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A time that is longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The processes whose command line names `text`: their numbers and lines.
fn numbered(text: &str) -> Vec<(Pid, String)> {
    let process = |entry: fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&line).replace('\0', " ")))
    };
    let all = fs::read_dir("/proc").unwrap().flatten().filter_map(process);
    all.filter(|(_, line)| line.contains(text)).collect()
}

fn processes(text: &str) -> Vec<String> {
    numbered(text).into_iter().map(|(_, line)| line).collect()
}

/// The number of servers with a configuration in this folder that answer.
fn listening(folder: &Path) -> usize {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let address = |text: String| {
        let (_, rest) = text.split_once("\nlisten = [\"")?;
        rest.split_once('"').map(|(address, _)| address.to_owned())
    };
    let addresses =
        files.filter_map(|file| fs::read_to_string(file.path()).ok()).filter_map(address);
    addresses.filter(|address| TcpStream::connect(address).is_ok()).count()
}

/// Starts a calibration, waits until its first two servers are up and asked, and returns the name of its
/// files. It may have ended already.
fn under_way(scratch: &Path, out: &Path) -> (Child, String) {
    let mut command = Command::new(binary());
    command.args(["calibrate", "--quick", "--out"]).arg(out).env("TMPDIR", scratch);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let name = format!("{}/forebay-calibrate-{}", scratch.display(), child.id());
    let mut is_over = || child.try_wait().unwrap().is_some();
    until("no servers", || processes(&format!("run -c {name}")).len() == 2 || is_over());
    until("they do not listen", || listening(Path::new(&format!("{name}-0"))) == 2 || is_over());
    sleep(Duration::from_millis(500));
    (child, name)
}

/// Starts a calibration that this signal ends while it is under way. Returns its output, the name of its
/// files, and the number of folders before. A calibration whose servers are kept from their cores for a
/// whole measurement gives up: then another is begun.
fn ended_by(signal: Signal, scratch: &Path, out: &Path) -> (Output, String, usize) {
    for _ in 0..5 {
        let (mut child, name) = under_way(scratch, out);
        let folders = fs::read_dir(scratch).unwrap().count();
        if child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&child), signal).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        if !output.stderr.starts_with(b"forebay calibrate: no answer for ") {
            return (output, name, folders);
        }
        assert!(processes(&name).is_empty(), "{:?}", processes(&name));
    }
    panic!("its servers answer nothing")
}

fn until(lacks: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{lacks}");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_interrupted_calibration_leaves_nothing_behind() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = Folder::new();
        let scratch = folder.join("scratch");
        fs::create_dir(&scratch).unwrap();
        let out = folder.join("calibration.toml");
        let (output, name, _) = ended_by(signal, &scratch, &out);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "forebay calibrate: interrupted, nothing was written\n");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        assert!(processes(&name).is_empty(), "{:?}", processes(&name));
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
        assert!(!out.exists());
    }
}

/// A killed calibration cannot clean up: the kernel ends its servers, and the next calibration removes
/// its folder.
#[test]
fn what_a_killed_calibration_leaves_goes_with_the_next() {
    let folder = Folder::new();
    let (scratch, out) = (folder.join("scratch"), folder.join("calibration.toml"));
    fs::create_dir(&scratch).unwrap();
    let (output, name, _) = ended_by(Signal::KILL, &scratch, &out);
    assert_eq!(output.status.code(), None, "{output:?}");
    until("its servers are left", || processes(&name).is_empty());
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 1);
    let (_, _, folders) = ended_by(Signal::INT, &scratch, &out);
    assert_eq!(folders, 1, "its own");
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
}

#[test]
fn servers_that_do_not_answer_have_not_failed() {
    let folder = Folder::new();
    let (scratch, out) = (folder.join("scratch"), folder.join("calibration.toml"));
    fs::create_dir(&scratch).unwrap();
    let (child, name) = under_way(&scratch, &out);
    for (pid, _) in numbered(&name) {
        // the calibration may have given up before
        let _ = kill_process(pid, Signal::STOP);
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("forebay calibrate: no answer for http://"), "{said}");
    assert!(said.contains(" within ") && output.status.code() == Some(1), "{said}");
    assert!(!out.exists());
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_anything_is_measured() {
    let folder = Folder::new();
    fs::create_dir(folder.join("directory")).unwrap();
    let missing = folder.join("missing").join("calibration.toml");
    fs::write(folder.join("file"), "kept").unwrap();
    std::os::unix::fs::symlink("file", folder.join("link")).unwrap();
    let socket = UnixListener::bind(folder.join("socket")).unwrap();
    for (out, why) in [
        (missing.as_path(), "No such file or directory"),
        (&folder.join("directory"), "it is a directory"),
        (&folder.join("link"), "it is a symbolic link"),
        (&folder.join("socket"), "it is no regular file"),
        (Path::new("/dev/null"), "it is no regular file"),
        (&folder.join(".."), "it names no file"),
    ] {
        let mut command = Command::new(binary());
        let output = command.args(["calibrate", "--out"]).arg(out).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("cannot write") && said.contains(why), "{said}");
        assert_eq!(output.status.code(), Some(1), "{said}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "nothing is left");
    assert_eq!(fs::read_to_string(folder.join("link")).unwrap(), "kept");
    assert_eq!(fs::read_link(folder.join("link")).unwrap(), Path::new("file"));
    drop(socket);
}
