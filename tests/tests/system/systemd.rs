//! The units of `packaging/` under a real systemd: start, reload, upgrade, rotation of
//! logs, the watchdog, restart behind sockets that systemd holds.
//!
//! `tests/tools/systemd-bed` boots systemd in namespaces of its own, from which nothing of the machine
//! can be written to. That needs root.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::binary;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A long patience, since a loaded machine takes its time to boot.
const PATIENCE: Duration = Duration::from_secs(60);

const UPGRADE: &str = "/usr/bin/forebay upgrade -c /etc/forebay/forebay.toml";

/// The bytes of a file that is read slowly: more than the buffers of a connection hold (33 MB beside 4
/// MB, on some machines).
const LARGE: usize = 120_000_000;

const GET: &str = "curl -sS --max-time 20 http://127.0.0.1/";

/// A running systemd, and a way to start processes beside its services.
struct Bed {
    outer: Child,
    /// The process of systemd.
    inner: u32,
    said: PathBuf,
}

impl Bed {
    /// Boots systemd. `None` where that is impossible, with a loud line.
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

    /// The output as of [`says`](Bed::says); the command must succeed.
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

/// Removes control groups from the leaves on, once their processes are gone.
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
    folder.write("srv/www/large.bin", "x".repeat(LARGE));
    let text = "listen = [\":80\"]\nroot = \"/srv/www\"\n[log]\naccess = \
                \"/var/log/forebay/access.log\"\n[control]\nsocket = \"/run/forebay/control.sock\"";
    folder.write("forebay.toml", text);
    let Some(bed) = Bed::new(&folder) else { return };
    start_and_reload(&bed, text);
    rotate(&bed);
    upgrade(&bed, text);
    stop_with_a_replaced_server(&bed);
    crash_after_an_upgrade(&bed);
    what_cannot_start_a_server(&bed);
    restart_behind_sockets(&bed);
    hang(&bed);

    // a wrong file is not tried again and again
    bed.does("systemctl stop forebay");
    bed.configure("root = 7");
    assert!(!bed.succeeds("systemctl start forebay"));
    assert_eq!(bed.shows("ExecMainStatus"), "78");
    assert_eq!(bed.shows("ActiveState"), "failed");
}

/// The unit counts as started when clients are served. A reload that fails says why.
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

/// Rotates as the logrotate file does.
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

/// The output of `forebay upgrade`, and its exit code.
fn try_upgrade(bed: &Bed) -> (i32, String) {
    let Output { status, stdout, stderr } = bed.run(UPGRADE);
    (status.code().unwrap(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

/// Upgrades, and checks that another process is the server. Returns its number.
fn upgraded(bed: &Bed) -> String {
    let before = bed.shows("MainPID");
    let (code, said) = try_upgrade(bed);
    let main = bed.shows("MainPID");
    assert_eq!(code, 0, "{said}{}", bed.says("systemctl status forebay; tail /run/forebay.err"));
    let expected = format!("forebay.service: process {main} serves in place of process {before}\n");
    assert_eq!(said, expected);
    assert_ne!(main, before);
    // a process whose parent is another one is not watched by systemd as it should be
    assert_eq!(bed.does(&format!("ps -o ppid= -p {main}")).trim(), "1");
    assert_eq!(bed.does(&format!("ps -o user= -p {main}")), "forebay");
    assert!(bed.shows("StatusText").contains(": serving "), "{}", bed.shows("StatusText"));
    main
}

/// Whether the service has this number of processes.
fn has_processes(bed: &Bed, count: usize) -> bool {
    soon(PATIENCE, || bed.does("pgrep -c -x forebay || true") == count.to_string())
}

/// The new server is started where the old one is, by systemd; and only when that was asked for.
fn upgrade(bed: &Bed, text: &str) {
    let first = bed.shows("MainPID");
    let rights = |process: &str| {
        let what = "grep -hE 'Cap|NoNewPrivs|Uid|Gid|Groups|::|systemd'";
        let of = format!("/proc/{process}");
        bed.does(&format!("{what} {of}/status {of}/cgroup; grep files {of}/limits"))
    };
    let before = rights(&first);
    let second = upgraded(bed);
    assert_eq!(rights(&second), before);
    // the paths that it may not write to, and its own /tmp
    assert!(!bed.succeeds(&format!("nsenter -t {second} -m -- touch /srv/www/new")));
    assert_eq!(bed.does(GET), "hello");
    assert!(has_processes(bed, 1));

    // no reload changes the program by itself, be it another by now
    bed.does("cp /usr/bin/forebay /usr/bin/next && mv /usr/bin/next /usr/bin/forebay");
    bed.does("systemctl reload forebay");
    assert_eq!(bed.shows("MainPID"), second);
    let said = bed.does("cat /run/forebay.err");
    assert!(said.contains("another program lies at /usr/bin/forebay since the start"), "{said}");

    // a server that cannot serve changes nothing, and the command that asked for it says why
    bed.configure(&text.replace("root = ", "root = 7 # "));
    let (code, said) = try_upgrade(bed);
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("root: expected a path"), "{said}");
    assert!(said.contains("the running one goes on as before"), "{said}");
    bed.configure(&text.replace("listen = [", "listen = [\"192.0.2.1:81\", "));
    let (code, said) = try_upgrade(bed);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("192.0.2.1:81"), "{said}");
    assert_eq!((bed.shows("MainPID"), bed.does(GET)), (second.clone(), "hello".to_owned()));
    assert_eq!(
        (bed.shows("ActiveState"), bed.shows("Result")),
        ("active".into(), "success".into())
    );
    bed.configure(text);
    // a file that is no program, and a program that is killed before it serves
    for program in ["exit 3", "kill -9 $$"] {
        bed.does("mv /usr/bin/forebay /usr/bin/good");
        bed.does(&format!(
            "printf '#!/bin/sh\n{program}\n' > /usr/bin/forebay; chmod 755 /usr/bin/forebay"
        ));
        let Output { status, stderr, .. } =
            bed.run(&UPGRADE.replace("/usr/bin/forebay", "/usr/bin/good"));
        bed.does("mv /usr/bin/good /usr/bin/forebay");
        assert_eq!(status.code(), Some(1), "{}", String::from_utf8_lossy(&stderr));
        assert_eq!((bed.shows("MainPID"), bed.does(GET)), (second.clone(), "hello".to_owned()));
    }
    // the next reload does not repeat a failed upgrade
    bed.does("systemctl reload forebay");
    assert_eq!(bed.shows("MainPID"), second);

    // inside of the service the command is enough
    bed.does("mkdir -p /run/systemd/system/forebay.service.d");
    let reload = "[Service]\\nExecReload=\\nExecReload=/usr/bin/forebay upgrade -c /etc/forebay/forebay.toml\\n";
    bed.does(&format!("printf '{reload}' > /run/systemd/system/forebay.service.d/up.conf && systemctl daemon-reload"));
    bed.does("systemctl reload forebay");
    let third = bed.shows("MainPID");
    assert_ne!(third, second);
    assert_eq!(bed.does(&format!("ps -o ppid= -p {third}")).trim(), "1");
    bed.does("rm /run/systemd/system/forebay.service.d/up.conf && systemctl daemon-reload");
    assert!(has_processes(bed, 1));
    assert!(bed.succeeds("test -S /run/forebay/control.sock"));
    upgraded(bed);
}

/// `systemctl stop` ends both servers in order: connections of the older one are not cut because the
/// newer one has none.
fn stop_with_a_replaced_server(bed: &Bed) {
    // at this rate it takes 8 s
    let slow =
        "curl -sS --max-time 60 --limit-rate 15M http://127.0.0.1/large.bin | wc -c > /run/got";
    bed.does(&format!("({slow}) > /dev/null 2>&1 & sleep 0.5; {UPGRADE}; echo"));
    assert!(has_processes(bed, 2));
    // the older one, too, goes on in the new log
    let log = "/var/log/forebay/access.log";
    bed.does(&format!("mv {log} {log}.2 && install -m 640 -o forebay -g adm /dev/null {log}"));
    bed.does("systemctl kill --kill-who=main --signal=USR1 forebay.service");
    let writes_there = format!("readlink /proc/[0-9]*/fd/* | grep -qx {log}.2");
    assert!(soon(PATIENCE, || !bed.succeeds(&writes_there)), "the older one has the old log");
    bed.does("systemctl stop forebay");
    assert!(
        soon(PATIENCE, || bed.says("cat /run/got") == LARGE.to_string()),
        "{}",
        bed.says("cat /run/got")
    );
    assert!(
        bed.succeeds(&format!("grep -q large.bin {log}")),
        "{}",
        bed.says(&format!("tail {log} {log}.2"))
    );
    assert_eq!(bed.shows("Result"), "success");
    assert!(has_processes(bed, 0));
    assert!(!bed.succeeds("test -e /run/forebay/control.sock"));
    bed.does("systemctl start forebay");
    assert_eq!(bed.does(GET), "hello");
}

/// The watchdog watches the new server like the first one.
fn crash_after_an_upgrade(bed: &Bed) {
    let main = upgraded(bed);
    let restarts = bed.shows("NRestarts");
    bed.does(&format!("kill -9 {main}"));
    assert!(soon(PATIENCE, || bed.shows("NRestarts") != restarts), "it is not started again");
    assert!(soon(PATIENCE, || bed.says(GET) == "hello"));
    // the one that was replaced, and drains, is not the service
    let slow = "curl -sS --max-time 60 --limit-rate 1M http://127.0.0.1/large.bin > /dev/null";
    bed.does(&format!("({slow}) > /dev/null 2>&1 & sleep 0.5"));
    let old = bed.shows("MainPID");
    let main = upgraded(bed);
    bed.does(&format!("kill -9 {old}"));
    assert!(has_processes(bed, 1));
    assert_eq!((bed.shows("MainPID"), bed.does(GET)), (main, "hello".to_owned()));
}

/// An upgrade reports when systemd would not start the server, or would not know it.
fn what_cannot_start_a_server(bed: &Bed) {
    let with = |lines: &str| {
        bed.does("mkdir -p /run/systemd/system/forebay.service.d");
        let file = "/run/systemd/system/forebay.service.d/odd.conf";
        bed.does(&format!("printf '[Service]\n{lines}' > {file} && systemctl daemon-reload"));
        bed.does("systemctl restart forebay");
        // with Type=exec systemd does not wait until the server serves
        assert!(soon(PATIENCE, || bed.says(GET) == "hello"));
        let main = bed.shows("MainPID");
        let (code, said) = try_upgrade(bed);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("the running one goes on as before"), "{said}");
        assert_eq!((bed.shows("MainPID"), bed.does(GET)), (main, "hello".to_owned()));
        bed.does(&format!("rm {file} && systemctl daemon-reload"));
        said
    };
    let said = with("Type=exec\nWatchdogSec=0\n");
    assert!(said.contains("has to say Type=notify"), "{said}");
    let said = with("ExecReload=\nExecReload=/bin/kill -HUP $MAINPID\n");
    assert!(said.contains("ExecReload= of the unit has to run `forebay reload`"), "{said}");
    let said = with("ExecReload=\n");
    assert!(said.contains("reload is not applicable"), "{said}");
    bed.does("systemctl restart forebay");
}

/// With sockets that systemd holds no client is refused while the server restarts.
fn restart_behind_sockets(bed: &Bed) {
    bed.does("systemctl stop forebay");
    assert!(!bed.succeeds(GET));
    bed.does("systemctl start forebay.socket");
    assert_eq!(bed.does(GET), "hello", "the first client starts it");
    let clients = format!("for i in $(seq 60); do {GET} || exit 1; sleep 0.02; done > /dev/null");
    bed.does(&format!("({clients}) & clients=$!; systemctl restart forebay; wait $clients"));
    // and the server that an upgrade has started can be restarted like that, too
    bed.does(&format!(
        "({clients}) & clients=$!; {UPGRADE} && systemctl restart forebay; wait $clients"
    ));
    upgraded(bed);
    bed.does("systemctl stop forebay.socket forebay");
}

/// The watchdog ends a server that hangs, and another takes its place.
fn hang(bed: &Bed) {
    // a machine that delays the notifications must not end it earlier
    let lines = "[Service]\\nWatchdogSec=12s\\n";
    bed.does(&format!("printf '{lines}' > /etc/systemd/system/forebay.service.d/dog.conf"));
    bed.does("systemctl daemon-reload && systemctl start forebay");
    // the one that is watched is that of an upgrade
    let pid = upgraded(bed);
    let fed = bed.shows("WatchdogTimestampMonotonic");
    assert!(soon(PATIENCE, || bed.shows("WatchdogTimestampMonotonic") != fed), "no sign of life");
    bed.does(&format!("kill -STOP {pid}"));
    assert!(soon(PATIENCE, || bed.shows("NRestarts") == "1"), "it hangs on");
    assert!(soon(PATIENCE, || bed.says(GET) == "hello"));
}
