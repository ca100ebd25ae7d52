//! The units of `packaging/` under a real systemd: start, reload, rotation of
//! logs, the watchdog, restart behind sockets that systemd holds.
//!
//! `tests/tools/systemd-bed` boots it in namespaces of its own from which nothing of the machine can
//! be written to. That needs root.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::binary;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A loaded machine takes its time to boot.
const PATIENCE: Duration = Duration::from_secs(60);

const GET: &str = "curl -sS --max-time 20 http://127.0.0.1/";

/// A running systemd, and a way to start processes beside its services.
struct Bed {
    outer: Child,
    /// The process that is systemd.
    inner: u32,
    said: PathBuf,
}

impl Bed {
    /// Boots it. `None` where that cannot be done, which is said loudly.
    fn new(folder: &Folder) -> Option<Bed> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let said = folder.join("bed.log");
        let log = fs::File::create(&said).unwrap();
        let outer = Command::new(repository.join("tests/tools/systemd-bed"))
            .arg(binary())
            .arg(repository.join("packaging"))
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut bed = Bed { outer, inner: 0, said };
        let mut has_ended = false;
        let is_up = soon(PATIENCE, || {
            has_ended = matches!(bed.outer.try_wait(), Ok(Some(_)));
            bed.inner = bed.child().unwrap_or(0);
            has_ended || (bed.inner != 0 && bed.succeeds("systemctl is-active bed.target"))
        });
        if is_up && !has_ended {
            return Some(bed);
        }
        let why = fs::read_to_string(&bed.said).unwrap_or_default();
        skip(&format!("systemd cannot be booted here:\n{why}"));
        None
    }

    fn child(&self) -> Option<u32> {
        let outer = self.outer.id();
        let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    /// Runs a command beside systemd.
    fn run(&self, command: &str) -> Output {
        Command::new("nsenter")
            .args(["-t", &self.inner.to_string(), "-p", "-m", "-n", "--", "sh", "-c", command])
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn succeeds(&self, command: &str) -> bool {
        self.run(command).status.success()
    }

    fn says(&self, command: &str) -> String {
        let Output { stdout, stderr, .. } = self.run(command);
        String::from_utf8([stdout, stderr].concat()).unwrap().trim().to_owned()
    }

    /// As [`says`](Bed::says); the command must succeed.
    fn does(&self, command: &str) -> String {
        let output = self.run(command);
        let state = || self.says("systemctl status forebay; tail -n 20 /run/forebay.err");
        assert!(output.status.success(), "{command}: {output:?}\n{}", state());
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn shows(&self, property: &str) -> String {
        self.does(&format!("systemctl show forebay --value -p {property}"))
    }

    fn configure(&self, text: &str) {
        let file = "/etc/forebay/forebay.toml";
        self.does(&format!("cat > {file} <<'END'\n{text}\nEND"));
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.outer.kill();
        let _ = self.outer.wait();
        let group = format!("forebay-bed-{}", self.outer.id());
        for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
            remove_groups(&Path::new(root).join(&group));
        }
    }
}

/// Control groups are removed from the leaves on, once their processes are gone.
fn remove_groups(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_groups(&entry.path());
        }
    }
    soon(Duration::from_secs(5), || !group.exists() || fs::remove_dir(group).is_ok());
}

fn skip(why: &str) {
    // past the test harness, which would swallow it
    let _ = writeln!(io::stderr(), "\n!!! SKIPPED the_units_do_what_the_manual_says: {why}\n");
}

#[test]
fn the_units_do_what_the_manual_says() {
    if !rustix::process::geteuid().is_root() {
        return skip("booting systemd needs root");
    }
    let folder = Folder::new();
    folder.write("srv/www/index.html", "hello");
    folder.write("srv/next/index.html", "next");
    let text = "listen = [\"0.0.0.0:80\", \"[::]:80\"]\nroot = \"/srv/www\"\n[log]\naccess = \
                \"/var/log/forebay/access.log\"\n[control]\nsocket = \"/run/forebay/control.sock\"";
    folder.write("forebay.toml", text);
    let Some(bed) = Bed::new(&folder) else { return };
    start_and_reload(&bed, text);
    rotate(&bed);
    restart_behind_sockets(&bed);
    hang(&bed);

    // a wrong file is not tried again and again
    bed.does("systemctl stop forebay");
    bed.configure("root = 7");
    assert!(!bed.succeeds("systemctl start forebay"));
    assert_eq!(bed.shows("ExecMainStatus"), "78");
    assert_eq!(bed.shows("ActiveState"), "failed");
}

/// It is started when clients are served. A reload that fails says why.
fn start_and_reload(bed: &Bed, text: &str) {
    bed.does("systemctl start forebay");
    assert_eq!(bed.does(GET), "hello");
    assert_eq!(bed.does("curl -sS --max-time 20 'http://[::1]/'"), "hello");
    let pid = bed.shows("MainPID");
    assert_eq!(bed.does(&format!("ps -o user= -p {pid}")), "forebay");
    assert!(bed.shows("StatusText").contains(": serving "), "{}", bed.shows("StatusText"));

    bed.configure(&text.replace("/srv/www", "/srv/next"));
    bed.does("systemctl reload forebay");
    assert_eq!(bed.does(GET), "next");
    bed.configure("root = 7");
    assert!(!bed.succeeds("systemctl reload forebay"));
    let said = bed.does("cat /run/forebay.err");
    assert!(said.contains("root: expected a path"), "{said}");
    assert_eq!(bed.does(GET), "next");
    bed.configure(text);
    bed.does("systemctl reload forebay");
    assert_eq!((bed.does(GET).as_str(), bed.shows("MainPID")), ("hello", pid));
}

/// What the logrotate file does.
fn rotate(bed: &Bed) {
    let log = "/var/log/forebay/access.log";
    assert!(soon(PATIENCE, || bed.succeeds(&format!("test -s {log}"))));
    bed.does(&format!("mv {log} {log}.1 && install -m 640 -o forebay -g adm /dev/null {log}"));
    bed.does("systemctl kill --kill-who=main --signal=USR1 forebay.service");
    assert!(soon(PATIENCE, || {
        bed.does(GET);
        bed.succeeds(&format!("test -s {log}"))
    }));
}

/// With sockets that systemd holds no client is refused while the server restarts.
fn restart_behind_sockets(bed: &Bed) {
    bed.does("systemctl stop forebay");
    assert!(!bed.succeeds(GET));
    bed.does("systemctl start forebay.socket");
    assert_eq!(bed.does(GET), "hello", "the first client starts it");
    let clients = format!("for i in $(seq 60); do {GET} || exit 1; sleep 0.02; done > /dev/null");
    bed.does(&format!("({clients}) & clients=$!; systemctl restart forebay; wait $clients"));
    bed.does("systemctl stop forebay.socket forebay");
}

/// The watchdog ends a server that hangs, and another takes its place.
fn hang(bed: &Bed) {
    // it is not ended before by a machine that keeps it from showing itself
    let lines = "[Service]\\nWatchdogSec=12s\\n";
    bed.does(&format!("printf '{lines}' > /etc/systemd/system/forebay.service.d/dog.conf"));
    bed.does("systemctl daemon-reload && systemctl start forebay");
    let pid = bed.shows("MainPID");
    let fed = bed.shows("WatchdogTimestampMonotonic");
    assert!(soon(PATIENCE, || bed.shows("WatchdogTimestampMonotonic") != fed), "no sign of life");
    bed.does(&format!("kill -STOP {pid}"));
    assert!(soon(PATIENCE, || bed.shows("NRestarts") == "1"), "it hangs on");
    assert!(soon(PATIENCE, || bed.says(GET) == "hello"));
}
