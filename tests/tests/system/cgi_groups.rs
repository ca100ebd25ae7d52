//! Programs for requests (CGI) in control groups: their bounds, that places are used again, and that no
//! group is left, however the server, its launcher or a program ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::cgroups::{group, missing};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ISOLATED, Options};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// Programs, and the time for which each sleeps, by which it is found.
struct Bed {
    folder: Folder,
    marker: String,
}

impl Bed {
    fn new(number: u32) -> Bed {
        let folder = Folder::new();
        folder.write("root/a.txt", "a file");
        let marker = format!("{}.7{number}", 200_000 + std::process::id());
        let programs = [
            ("told", "echo A: b; echo; cat /proc/self/cgroup"),
            ("hangs", "sleep MARK"),
            ("leaves", "setsid sleep MARK > /dev/null 2>&1 & echo A: b; echo; echo left"),
            (
                "eats",
                // if only one of the two was killed, the rest would answer
                "head -c 40000000 /dev/zero | tail -c 40000000 > /dev/null & \
                      head -c 40000000 /dev/zero | tail -c 40000000 > /dev/null; wait; sleep MARK",
            ),
            ("spins", "sleep MARK & echo A: b; echo; while :; do :; done"),
        ];
        for (name, text) in programs {
            let text = format!("#!/bin/sh\n{}\n", text.replace("MARK", &marker));
            let path = folder.write(&format!("cgi/{name}"), text);
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        for path in ["", "cgi", "root"] {
            fs::set_permissions(folder.join(path), Permissions::from_mode(0o755)).unwrap();
        }
        Bed { folder, marker }
    }

    fn options(&self, engine: &str, more: &str) -> Options {
        let directory = self.folder.join("cgi");
        let lines = format!(
            "[[cgi]]\npath = \"/cgi\"\ndirectory = {directory:?}\nuser = \"games\"\n\
             limits.memory = \"50MiB\"\nlimits.processes = 20\n{more}\n"
        );
        Options::new(self.folder.join("root")).engine(engine).config(&lines)
    }

    fn serve(&self, engine: &str, more: &str) -> WatchedServer {
        WatchedServer::with(self.options(engine, more))
    }

    /// The processes that sleep for that time.
    fn sleepers(&self) -> Vec<u32> {
        let is_one = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.starts_with(b"sleep")
                && words.windows(self.marker.len()).any(|part| part == self.marker.as_bytes())
        };
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_one).collect()
    }

    /// Asks for a program that hangs. Returns its memory group once it runs, and the connection.
    fn hang(&self, server: &WatchedServer) -> (PathBuf, std::net::TcpStream) {
        let before = self.sleepers();
        let mut stream = server.connect();
        stream.write_all(b"GET /cgi/hangs HTTP/1.0\r\n\r\n").unwrap();
        let new = || self.sleepers().into_iter().find(|pid| !before.contains(pid));
        assert!(soon(PATIENCE, || new().is_some()), "{}", server.stderr());
        (group(new().unwrap(), "memory").0, stream)
    }
}

fn get(server: &WatchedServer, path: &str) -> String {
    let answer = server.exchange(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes());
    String::from_utf8_lossy(&answer).into_owned()
}

fn is_skipped() -> bool {
    missing().is_some_and(|why| writeln!(io::stderr(), "SKIPPED: {why}").is_ok())
}

fn read(group: &Path, file: &str) -> String {
    fs::read_to_string(group.join(file)).unwrap_or_default().trim().to_owned()
}

/// The group around those of requests, and the number of the place.
fn around(group: &Path) -> (PathBuf, String) {
    let name = group.file_name().unwrap().to_str().unwrap();
    let around = group.parent().unwrap();
    let named = around.file_name().unwrap().to_str().unwrap();
    assert!(named.starts_with("forebay-cgi-"), "{group:?}");
    (around.to_owned(), name.rsplit_once('-').unwrap().1.to_owned())
}

#[test]
fn requests_have_groups_which_are_used_again_and_go_with_the_server() {
    if is_skipped() {
        return;
    }
    for engine in ["event", "threads", ISOLATED] {
        let bed = Bed::new(1);
        let mut server = bed.serve(engine, "limits.cpu = \"50%\"\n");
        let (first, stream) = bed.hang(&server);
        let (root, place) = around(&first);
        assert_eq!(place, "0", "{engine}");
        let pid = bed.sleepers()[0];
        let (memory, version) = group(pid, "memory");
        let bound = read(&memory, ["memory.limit_in_bytes", "memory.max"][version]);
        assert_eq!(bound, (50 << 20).to_string(), "{engine}");
        assert_eq!(read(&group(pid, "pids").0, "pids.max"), "84", "{engine}");
        let (cpu, version) = group(pid, "cpu");
        let (weights, weight) = around(&cpu);
        assert_eq!(weight, "0");
        assert_eq!(read(&weights, ["cpu.shares", "cpu.weight"][version]), ["102", "10"][version]);
        let part = read(&cpu, ["cpu.cfs_quota_us", "cpu.max"][version]);
        assert_eq!(part, ["50000", "50000 100000"][version], "{engine}");
        // the server and the attendant are in none of these
        assert!(!group(server.pid(), "cpu").0.starts_with(&weights));
        // another program at the same time has the next place; when both are over, the first is used again
        let (second, other) = bed.hang(&server);
        assert_eq!(around(&second), (root.clone(), "1".to_owned()), "{engine}");
        drop((stream, other));
        assert!(soon(PATIENCE, || bed.sleepers().is_empty()), "{engine}");
        let is_back = || get(&server, "/cgi/told").contains("-0\n");
        assert!(soon(PATIENCE, is_back), "{engine}: {}", get(&server, "/cgi/told"));
        // a process that a program leaves in another session is killed with its group
        assert!(get(&server, "/cgi/leaves").ends_with("left\n"));
        assert!(bed.sleepers().is_empty(), "{engine}");
        server.signal(Signal::TERM);
        assert!(server.wait(PATIENCE).expect("it ends").success(), "{}", server.stderr());
        assert!(!root.exists() && !weights.exists(), "{engine}: {root:?} is left");
        assert!(!server.stderr().contains("control group"), "{}", server.stderr());
    }
}

#[test]
fn programs_that_take_all_memory_are_ended_and_the_log_says_why() {
    if is_skipped() {
        return;
    }
    let bed = Bed::new(2);
    let server = bed.serve("event", "");
    let answer = get(&server, "/cgi/eats");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    server.says("of memory (limits.memory)");
    assert!(soon(PATIENCE, || bed.sleepers().is_empty()));
    // the place is as good as before
    assert!(get(&server, "/cgi/told").starts_with("HTTP/1.1 200 "));
}

#[test]
fn whoever_is_killed_leaves_no_group_beyond_the_next_start() {
    if is_skipped() {
        return;
    }
    let kill = |pid: u32| {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    };
    let bed = Bed::new(3);
    // the server alone: its launcher ends in order
    let mut server = bed.serve("event", "");
    let (hangs, _stream) = bed.hang(&server);
    let (root, _) = around(&hangs);
    server.signal(Signal::KILL);
    server.wait(PATIENCE).unwrap();
    assert!(soon(PATIENCE, || bed.sleepers().is_empty() && !root.exists()), "{root:?}");
    // the server and its launcher, whose number the group has
    let mut server = bed.serve("event", "");
    let (hangs, _stream) = bed.hang(&server);
    let (root, _) = around(&hangs);
    let name = root.file_name().unwrap().to_str().unwrap();
    kill(name.split('-').nth(2).unwrap().parse().unwrap());
    server.signal(Signal::KILL);
    server.wait(PATIENCE).unwrap();
    // the group may be left; another server that has begun meanwhile may have removed it
    assert!(soon(PATIENCE, || bed.sleepers().is_empty()));
    // no process has it locked once the attendant has ended, too
    let server = soon(PATIENCE, || {
        let next = bed.serve("event", "");
        assert!(get(&next, "/cgi/told").starts_with("HTTP/1.1 200 "));
        !root.exists()
    });
    assert!(server, "{root:?} is left");
}

/// Two servers both have groups, and neither removes those of the other.
#[test]
fn an_upgrade_has_programs_of_both_servers() {
    if is_skipped() {
        return;
    }
    let bed = Bed::new(4);
    let server = bed.serve("event", "");
    let (hangs, stream) = bed.hang(&server);
    let next = forebay_tests::upgrade::upgrade(&server);
    assert!(hangs.exists());
    let is_other = || {
        let told = get(&server, "/cgi/told");
        told.contains("forebay-cgi-")
            && !told.contains(around(&hangs).0.file_name().unwrap().to_str().unwrap())
    };
    assert!(soon(PATIENCE, is_other));
    assert_eq!(bed.sleepers().len(), 1, "what is under way goes on");
    drop(stream);
    assert!(soon(PATIENCE, || !around(&hangs).0.exists()), "{hangs:?} is left");
    assert!(get(&server, "/cgi/told").starts_with("HTTP/1.1 200 "));
    drop(next);
}

#[test]
fn who_may_make_no_groups_runs_programs_without_and_says_so() {
    let bed = Bed::new(5);
    let options = bed.options("event", "limits.cpu = \"50%\"\n");
    let config = options.config.replace("user = \"games\"\n", "");
    let server = WatchedServer::with(Options { user: Some(65534), config, ..options });
    let answer = get(&server, "/cgi/told");
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("forebay-cgi-"), "{answer}");
    let word = "CGI programs have no control group (";
    server.says(word);
    let mut status = std::process::Command::new(forebay_tests::server::binary());
    // run as the server's user
    let status = status.args(["status", "-c"]).arg(server.file()).uid(65534).output().unwrap();
    assert!(String::from_utf8_lossy(&status.stdout).contains(word), "{status:?}");
}
