//! `forebay calibrate` as a person types it. What it measures is for a quiet machine, and tested in
//! parts; here it is what is left when it is stopped.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::server::binary;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The processes whose command line names `text`.
fn processes(text: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(text)).collect()
}

#[test]
fn an_interrupted_calibration_leaves_nothing_behind() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = Folder::new();
        let scratch = folder.join("scratch");
        fs::create_dir(&scratch).unwrap();
        let out = folder.join("calibration.toml");
        let child = Command::new(binary())
            .args(["calibrate", "--quick", "--out"])
            .arg(&out)
            .env("TMPDIR", &scratch)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // both servers are up, and asked
        let name = format!("{}/forebay-calibrate-{}", scratch.display(), child.id());
        let end = Instant::now() + PATIENCE;
        while processes(&format!("run -c {name}")).len() < 2 {
            assert!(Instant::now() < end, "no servers: {:?}", child.wait_with_output());
            sleep(Duration::from_millis(10));
        }
        sleep(Duration::from_millis(500));
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "forebay calibrate: interrupted, nothing was written\n");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        assert!(processes(&name).is_empty(), "{:?}", processes(&name));
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
        assert!(!out.exists());
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_anything_is_measured() {
    let folder = Folder::new();
    fs::create_dir(folder.join("directory")).unwrap();
    let missing = folder.join("missing").join("calibration.toml");
    for (out, why) in [
        (missing.as_path(), "No such file or directory"),
        (&folder.join("directory"), "it is a directory"),
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
    fs::write(folder.join("file"), "kept").unwrap();
    std::os::unix::fs::symlink("file", folder.join("link")).unwrap();
    let socket = UnixListener::bind(folder.join("socket")).unwrap();
        (&folder.join("link"), "it is a symbolic link"),
        (&folder.join("socket"), "it is no regular file"),
        (Path::new("/dev/null"), "it is no regular file"),
