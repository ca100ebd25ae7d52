//! The stages of `isolated` in control groups: their limits are in force, also of processes that are
//! started again and of those of a reload; nothing is left; and a server that may not make groups serves
//! without.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ISOLATED, Options, Server};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const LIMITS: &str = "\
isolated.cpu_weight = { receive = 200, respond = 50 }
isolated.memory_high = { respond = \"256MiB\" }
isolated.memory_max = { respond = \"512MiB\", process = \"128MiB\" }
isolated.tasks_max = { process = 64 }
";

/// The stage, its file in version 1, its file in version 2, the controller, and the value in each
/// version.
const EXPECTED: [(&str, &str, [&str; 2], [&str; 2]); 6] = [
    ("receive", "cpu", ["cpu.shares", "cpu.weight"], ["2048", "200"]),
    ("respond", "cpu", ["cpu.shares", "cpu.weight"], ["512", "50"]),
    ("respond", "memory", ["memory.soft_limit_in_bytes", "memory.high"], ["268435456"; 2]),
    ("respond", "memory", ["memory.limit_in_bytes", "memory.max"], ["536870912"; 2]),
    ("process", "memory", ["memory.limit_in_bytes", "memory.max"], ["134217728"; 2]),
    ("process", "pids", ["pids.max"; 2], ["64"; 2]),
];

fn start(folder: &Folder, user: Option<u32>) -> Server {
    folder.write("root/index.html", "own");
    let options = Options { user, ..Options::new(folder.join("root")) };
    Server::start(&options.engine(ISOLATED).config(LIMITS))
}

/// The stages of a server, by name, with their processes.
pub(crate) fn stages(server: &Server) -> Vec<(String, u32)> {
    let pid = server.pid();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    let stage = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let mut words = line.split(|&b| b == 0).map(String::from_utf8_lossy);
        words.find(|word| word == "stage")?;
        Some((words.next()?.into_owned(), pid))
    };
    children.split_whitespace().filter_map(|pid| stage(pid.parse().ok()?)).collect()
}

/// The group of a process in the hierarchy of a controller, and the version of that.
pub(crate) fn group(pid: u32, controller: &str) -> (PathBuf, usize) {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let one = Path::new("/sys/fs/cgroup").join(controller);
    let is_one = one.join("cgroup.procs").exists();
    let line = text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, parts.next()?);
        let is_it = match is_one {
            true => names.split(',').any(|name| name == controller),
            false => names.is_empty(),
        };
        is_it.then_some(path.trim_start_matches('/').to_owned())
    });
    let base = if is_one { one } else { PathBuf::from("/sys/fs/cgroup") };
    (base.join(line.unwrap_or_default()), usize::from(!is_one))
}

/// The groups of all stages, if they are as they must be.
fn groups(server: &Server) -> Option<Vec<PathBuf>> {
    let mut groups = Vec::new();
    for (stage, pid) in stages(server) {
        for (_, controller, files, values) in EXPECTED.iter().filter(|(of, ..)| *of == stage) {
            let (group, version) = group(pid, controller);
            if !group.ends_with(&stage) {
                return None;
            }
            let value = fs::read_to_string(group.join(files[version])).ok()?;
            assert_eq!(value.trim(), values[version], "{stage}: {}", files[version]);
            groups.push(group.parent()?.to_owned());
        }
    }
    groups.sort();
    groups.dedup();
    Some(groups)
}

/// The reason why groups cannot be tested here.
pub(crate) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("this test of cgroups.rs needs root".to_owned());
    }
    let own = std::process::id();
    let lacks = ["cpu", "memory", "pids"].into_iter().find(|controller| {
        let (group, version) = group(own, controller);
        let known = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
        version == 1 && !known.split_whitespace().any(|one| one == *controller)
    });
    lacks.map(|controller| format!("there is no control group controller {controller}"))
}

/// Whether a process is gone, or a zombie that its parent has not waited for yet.
pub(crate) fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

/// Whether no thread is in the groups of stages.
fn is_empty(group: &Path) -> bool {
    let stages = fs::read_dir(group).unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let threads = |stage: PathBuf| ["tasks", "cgroup.threads"].map(|file| stage.join(file));
    stages.flat_map(threads).all(|file| fs::read_to_string(file).unwrap_or_default().is_empty())
}

fn is_gone(groups: &[PathBuf]) -> bool {
    groups.iter().all(|group| !group.exists())
}

/// The server's groups, once each stage is in its own: a stage may serve before it has been put there.
fn settled_groups(server: &Server) -> Vec<PathBuf> {
    assert!(soon(PATIENCE, || groups(server).is_some()), "a stage is in no group");
    groups(server).unwrap()
}

#[test]
fn stages_have_their_limits_and_nothing_is_left() {
    if let Some(why) = missing() {
        let _ = writeln!(io::stderr(), "SKIPPED: {why}");
        return;
    }
    let folder = Folder::new();
    let mut server = start(&folder, None);
    assert_eq!(stages(&server).len(), 5, "{}", server.stderr());
    let first = settled_groups(&server);
    assert!(!first.is_empty() && !server.stderr().contains("has no"), "{}", server.stderr());
    // a process that is started again
    let (_, pid) = stages(&server).into_iter().find(|(stage, _)| stage == "respond").unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    let is_again = || {
        let stages = stages(&server);
        stages.len() == 5 && stages.iter().all(|(_, other)| *other != pid)
    };
    assert!(soon(PATIENCE, is_again), "{}", server.stderr());
    assert!(soon(PATIENCE, || groups(&server).as_ref() == Some(&first)));
    // the processes after a reload
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    let is_replaced = || stages(&server).len() == 5 && is_gone(&first);
    assert!(soon(PATIENCE, is_replaced), "{first:?} are left: {}", server.stderr());
    let second = settled_groups(&server);
    assert_ne!(second, first);
    assert!(server.exchange(b"GET / HTTP/1.0\r\n\r\n").starts_with(b"HTTP/1.1 200 OK\r\n"));
    server.signal(Signal::TERM);
    assert!(server.wait(PATIENCE).expect("it ends").success(), "{}", server.stderr());
    assert!(is_gone(&second), "{second:?} are left");
    // the next server removes the groups of one that was killed
    let mut killed = start(&folder, None);
    let left = settled_groups(&killed);
    let all = stages(&killed);
    killed.signal(Signal::KILL);
    killed.wait(PATIENCE).unwrap();
    assert!(soon(PATIENCE, || all.iter().all(|(_, pid)| has_ended(*pid))), "{all:?}");
    // the first thread of a process may have ended before the others
    assert!(soon(PATIENCE, || left.iter().all(|group| is_empty(group))), "{left:?}");
    let next = start(&folder, None);
    assert!(is_gone(&left), "{left:?} are left");
    settled_groups(&next);
}

#[test]
fn who_may_make_no_groups_serves_without_and_says_so() {
    let folder = Folder::new();
    let mut server = start(&folder, Some(65534));
    assert!(server.exchange(b"GET / HTTP/1.0\r\n\r\n").starts_with(b"HTTP/1.1 200 OK\r\n"));
    let said = server.stderr();
    for limit in [
        "receive has no isolated.cpu_weight",
        "respond has no isolated.cpu_weight",
        "respond has no isolated.memory_high",
        "respond has no isolated.memory_max",
        "process has no isolated.memory_max",
        "process has no isolated.tasks_max",
    ] {
        let line = format!("forebay: stage {limit}: ");
        assert_eq!(said.matches(&line).count(), 1, "{line}: {said}");
    }
    server.signal(Signal::TERM);
    assert!(server.wait(PATIENCE).expect("it ends").success(), "{}", server.stderr());
}
