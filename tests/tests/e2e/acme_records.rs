//! Certificates by DNS records (dns-01): a command makes them, the launcher runs it, and pebble looks at
//! its own name server, `pebble-challtestsrv`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::acme::{Pebble, attempts, files, first_certificate, shown, site};
use forebay_tests::Options;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, has, soon};
use forebay_tests::programs::from_go;
use forebay_tests::server::{binary, copy_program, free_addr};
use forebay_tests::upgrade::upgrade;
use forebay_tests::wire::PATIENCE;
use rustix::process::{Signal, geteuid};
use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The command: it notes its arguments, asks the name server, and fails as the file `mode` says.
const HOOK: &str = r#"#!/bin/sh
dir=$1
env > "$dir/env"
echo "$ACME_ACTION $ACME_RECORD $ACME_VALUE" >> "$dir/log"
ask() { curl -s -o "$dir/answer" -d "$2" "http://$(cat "$dir/manage")/$1"; }
case "$(cat "$dir/mode")-$ACME_ACTION" in
fail-present) echo 'the zone is locked'; exit 3 ;;
loud-present) head -c 3000000 /dev/zero | tr '\0' x; echo; echo 'last words' >&2; exit 4 ;;
hang-present) setsid sleep 600 & echo $! > "$dir/left"; sleep 600 ;;
leave-present) setsid sh -c 'echo $$ > "$0/left"; exec sleep 600' "$dir" &
    while [ ! -s "$dir/left" ]; do sleep 0.05; done ;;
wait-present) while [ ! -e "$dir/go" ]; do sleep 0.05; done ;;
stay-cleanup) exit 5 ;;
esac
case "$ACME_ACTION" in
present) ask set-txt "{\"host\":\"$ACME_RECORD.\",\"value\":\"$ACME_VALUE\"}" ;;
cleanup) ask clear-txt "{\"host\":\"$ACME_RECORD.\"}" ;;
*) exit 1 ;;
esac
"#;

const HOSTS: [&str; 3] = ["*.a.example", "a.example", "www.a.example"];

/// An authority, its name server, and the command beside it.
struct Bed {
    folder: Folder,
    pebble: Pebble,
    names: Child,
    sealed: SocketAddr,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.names.kill();
        let _ = self.names.wait();
    }
}

impl Bed {
    /// Starts the authority and its name server; `None` if the machine lacks what they need.
    fn new() -> Option<Bed> {
        Bed::with(Path::new("pebble"), None)
    }

    /// Does the same with this pebble, whose certificates are valid for this number of seconds.
    fn with(authority: &Path, lifetime_s: Option<u32>) -> Option<Bed> {
        let test = "records of the name service";
        let program = "pebble-challtestsrv";
        let found = Command::new(program).arg("-help").output();
        has(found.map_err(|error| format!("{program} is missing: {error}")), test)?;
        let found = Command::new("curl").arg("--version").output();
        has(found.map_err(|error| format!("curl is missing: {error}")), test)?;
        let folder = site();
        let (dns, manage, sealed) = (free_addr(), free_addr(), free_addr());
        let off = ["-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv6", ""];
        let pebble = Pebble::asking(authority, lifetime_s, &folder, free_addr(), sealed, dns)?;
        let names = Command::new(program)
            .args(["-dns01", &dns.to_string(), "-management", &manage.to_string()])
            .args(off)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let bed = Bed { folder, pebble, names, sealed };
        assert!(soon(PATIENCE, || TcpStream::connect(manage).is_ok()), "no name server");
        fs::create_dir(bed.at("")).unwrap();
        // another user runs the command, and writes here
        fs::set_permissions(bed.at(""), Permissions::from_mode(0o777)).unwrap();
        fs::write(bed.at("manage"), manage.to_string()).unwrap();
        bed.behave("");
        bed.write_hook(HOOK);
        Some(bed)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join("hook").join(name)
    }

    fn behave(&self, mode: &str) {
        fs::write(self.at("mode"), mode).unwrap();
    }

    /// Replaces the command in one step, because it may be about to be run.
    fn write_hook(&self, text: &str) {
        fs::write(self.at("text"), text).unwrap();
        copy_program(&self.at("text"), &self.at("new"));
        fs::set_permissions(self.at("new"), Permissions::from_mode(0o755)).unwrap();
        fs::rename(self.at("new"), self.at("dns-hook")).unwrap();
    }

    /// The lines about the command, with more of them.
    fn hook(&self, more: &str) -> String {
        // no command is run as root
        let user = if geteuid().is_root() { "dns_user = \"nobody\"\n" } else { "" };
        let (hook, directory) = (self.at("dns-hook"), self.at(""));
        format!("dns_hook = [{hook:?}, {directory:?}]\n{user}dns_wait = \"0s\"\n{more}")
    }

    fn lines(&self, hook: &str) -> String {
        format!(
            "{}{hook}[[listener]]\nlisten = [\"https://{}\"]\n[[site]]\nhosts = {HOSTS:?}\ntls.acme = true\n",
            self.pebble.lines, self.sealed
        )
    }

    fn start(&self, more: &str) -> WatchedServer {
        let options = Options::new(self.folder.join("site")).engine("event");
        let more = format!("challenges = [\"dns-01\"]\n{more}");
        WatchedServer::with(options.config(&self.lines(&self.hook(&more))))
    }

    /// The calls of the command, in order: the first word of each line.
    fn asked(&self) -> Vec<String> {
        let log = fs::read_to_string(self.at("log")).unwrap_or_default();
        log.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }

    /// Whether notes of records exist.
    fn notes(&self) -> bool {
        !files(&self.folder.join("storage"), ".records").is_empty()
    }

    /// The process that the command has left running.
    fn left(&self) -> u32 {
        let number = || fs::read_to_string(self.at("left")).ok()?.trim().parse().ok();
        assert!(soon(PATIENCE, || number().is_some()), "{:?}", self.asked());
        number().unwrap()
    }
}

fn is_there(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

/// The launchers among the children of a server.
fn launchers(server: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{server}/task")).unwrap();
    let told = threads
        .filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("children")).ok());
    let children: String = told.collect();
    let numbers = children.split_whitespace().map(|number| number.parse().unwrap());
    let is_one = |process: &u32| {
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        name.trim() == "forebay-launch"
    };
    numbers.filter(is_one).collect()
}

/// A wildcard and the name above it have records of one name, which exist at the same time. Hosts that
/// the wildcard covers are not ordered separately. The command has a clean environment, and no record is
/// left.
#[test]
fn a_star_and_the_name_above_it_are_in_one_certificate() {
    let Some(bed) = Bed::new() else { return };
    let mut served = bed.start("");
    assert!(soon(4 * PATIENCE, || attempts(&served, "issued") == 1), "{}", served.stderr());
    let [file] = &files(&bed.folder.join("storage"), ".pem")[..] else {
        panic!("{}", served.stderr())
    };
    let first = first_certificate(file);
    let hosts = ["a.example", "www.a.example", "any.a.example"];
    let is_shown = || hosts.iter().all(|host| shown(bed.sealed, host) == first);
    assert!(soon(PATIENCE, is_shown), "{}", served.stderr());
    assert_eq!(bed.asked(), ["present", "present", "cleanup", "cleanup"]);
    assert!(!bed.notes());
    let log = fs::read_to_string(bed.at("log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert!(log.lines().all(|line| line.contains(" _acme-challenge.a.example ")), "{log}");
    assert_ne!(lines[0], lines[1], "each has a value of its own");
    let environment = fs::read_to_string(bed.at("env")).unwrap();
    let names = environment.lines().filter_map(|line| line.split('=').next());
    let of_shells = ["PWD", "OLDPWD", "SHLVL", "_"];
    let mut names: Vec<&str> = names.filter(|name| !of_shells.contains(name)).collect();
    names.sort_unstable();
    let expected = [
        "ACME_ACCOUNT",
        "ACME_ACTION",
        "ACME_HOST",
        "ACME_RECORD",
        "ACME_TOKEN",
        "ACME_VALUE",
        "HOME",
        "LOGNAME",
        "PATH",
        "USER",
    ];
    assert_eq!(names, expected, "{environment}");
    assert!(environment.contains("ACME_HOST=a.example\n"), "{environment}");
    // the launcher ends with the server, and leaves no child
    let [launcher] = launchers(served.pid())[..] else { panic!("one launcher") };
    served.signal(Signal::TERM);
    assert!(served.wait(PATIENCE).is_some_and(|status| status.success()), "{}", served.stderr());
    assert!(!is_there(launcher));
    // a server that begins orders nothing, and has nothing to remove
    let served = bed.start("");
    assert!(shown(bed.sealed, "a.example") == first, "{}", served.stderr());
    assert_eq!(bed.asked().len(), 4);
}

/// Certificates are renewed without an operator, as long as the server runs: each time with records of
/// its own, none of which is left, even when the command has failed in between.
#[test]
fn certificates_are_replaced_by_new_records() {
    let Some(bed) = Bed::with(Path::new("pebble"), Some(20)) else { return };
    let served = bed.start("");
    let issued = |count: u64| {
        let is_so = || attempts(&served, "issued") >= count;
        assert!(soon(6 * PATIENCE, is_so), "{}", served.stderr());
    };
    issued(1);
    let [file] = &files(&bed.folder.join("storage"), ".pem")[..] else {
        panic!("{}", served.stderr())
    };
    let first = first_certificate(file);
    issued(3);
    assert_ne!(first_certificate(file), first);
    let is_replaced = || shown(bed.sealed, "any.a.example") != first;
    assert!(soon(PATIENCE, is_replaced), "{}", served.stderr());
    // each value is used once
    let log = fs::read_to_string(bed.at("log")).unwrap();
    let presented: Vec<&str> = log.lines().filter(|line| line.starts_with("present ")).collect();
    let different: std::collections::HashSet<_> = presented.iter().collect();
    // a name that the authority holds for proven needs no record: that happens to one in a hundred later
    // certificates, although pebble is configured never to do so (it compares a number of 0 to 99 by >,
    // wfe.go)
    assert!(presented.len() > 2 && different.len() == presented.len(), "{log}");
    // a command that fails is reported, tried again, and leaves the certificate in force meanwhile
    bed.behave("fail");
    assert!(soon(6 * PATIENCE, || attempts(&served, "hook") >= 1), "{}", served.stderr());
    assert!(soon(PATIENCE, || !bed.notes()), "{}", served.stderr());
    bed.behave("");
    let before = attempts(&served, "issued");
    assert_eq!(served.reload().0, Some(0), "{}", served.stderr());
    issued(before + 1);
    assert!(soon(PATIENCE, || !bed.notes()), "{:?}", bed.asked());
}

/// Each failure is reported, and tried again when an operator asks; the order is the same.
#[test]
fn a_command_that_fails_is_told_and_leaves_nothing() {
    let Some(bed) = Bed::new() else { return };
    bed.behave("fail");
    let served = bed.start("dns_timeout = \"2s\"\n");
    let failed = |count: u64, words: &[&str]| {
        assert!(soon(4 * PATIENCE, || attempts(&served, "hook") == count), "{}", served.stderr());
        words.iter().for_each(|words| served.says(words));
        // a command that cannot be run cannot remove anything either
        assert!(count > 3 || soon(PATIENCE, || !bed.notes()), "{}", served.stderr());
        assert_eq!(launchers(served.pid()).len(), 1, "{}", served.stderr());
    };
    failed(
        1,
        &[
            "acme.dns_hook has not made _acme-challenge.a.example: it has ended with exit code 3",
            "acme.dns_hook said: the zone is locked",
        ],
    );
    let again = |mode: &str| {
        bed.behave(mode);
        assert_eq!(served.reload().0, Some(0), "{}", served.stderr());
    };
    again("loud");
    failed(2, &["ended with exit code 4", "acme.dns_hook said: last words"]);
    assert!(served.stderr().len() < 20_000, "{}", served.stderr());
    again("hang");
    let left = bed.left();
    failed(3, &["it has not ended within 2s, and was killed"]);
    assert!(!is_there(left), "what has left the process group");
    // the file changes on the disk, and is not the same any more
    bed.behave("");
    fs::set_permissions(bed.at("dns-hook"), Permissions::from_mode(0o644)).unwrap();
    served.reload();
    failed(4, &["it must be a file that its user may execute"]);
    fs::remove_file(bed.at("dns-hook")).unwrap();
    served.reload();
    failed(5, &["it, or the interpreter that its first line names, is not there"]);
    fs::create_dir(bed.at("dns-hook")).unwrap();
    served.reload();
    failed(6, &["cannot run "]);
    fs::remove_dir(bed.at("dns-hook")).unwrap();
    bed.write_hook("#!/nowhere\n");
    served.reload();
    failed(7, &[]);
    // a command that works, and leaves a process
    fs::remove_file(bed.at("left")).unwrap();
    bed.write_hook(HOOK);
    again("leave");
    assert!(soon(4 * PATIENCE, || attempts(&served, "issued") == 1), "{}", served.stderr());
    assert!(!is_there(bed.left()));
    assert!(!bed.notes());
}

/// A server that is killed takes the launcher with it, and what that runs. The next server removes the
/// records.
#[test]
fn a_crash_leaves_neither_processes_nor_records() {
    let Some(bed) = Bed::new() else { return };
    bed.behave("hang");
    let served = bed.start("");
    let left = bed.left();
    let [launcher] = launchers(served.pid())[..] else { panic!("one launcher") };
    assert!(bed.notes());
    served.signal(Signal::KILL);
    assert!(soon(PATIENCE, || !is_there(launcher) && !is_there(left)));
    drop(served);
    assert!(bed.notes());
    bed.behave("");
    let served = bed.start("");
    assert!(soon(4 * PATIENCE, || attempts(&served, "issued") == 1), "{}", served.stderr());
    // both records had been noted, and one was begun
    let expected = ["present", "cleanup", "cleanup", "present", "present", "cleanup", "cleanup"];
    assert_eq!(bed.asked(), expected);
    assert!(!bed.notes());
}

/// The records stay noted and are reported, and an operator has them tried again. They do not prevent a
/// certificate.
#[test]
fn records_that_cannot_be_removed_are_told_and_tried_again() {
    let Some(bed) = Bed::new() else { return };
    bed.behave("stay");
    // a star is shown by a record whatever stands in challenges
    let lines = bed.lines(&bed.hook("")).replace(&format!("{HOSTS:?}"), "[\"*.a.example\"]");
    let options = Options::new(bed.folder.join("site")).engine("event");
    let served = WatchedServer::with(options.config(&lines));
    assert!(soon(4 * PATIENCE, || attempts(&served, "issued") == 1), "{}", served.stderr());
    served.says("acme.dns_hook has not removed _acme-challenge.a.example with ");
    assert!(bed.notes());
    bed.behave("");
    served.reload();
    assert!(soon(PATIENCE, || !bed.notes()), "{}", served.stderr());
}

/// While the command runs, reloads are answered, and may change it; one that names a command that cannot
/// be run changes nothing.
#[test]
fn a_reload_changes_the_command_from_outside_of_the_sandbox() {
    let Some(bed) = Bed::new() else { return };
    bed.behave("wait");
    let served = bed.start("");
    let is_asked = |count: usize| soon(4 * PATIENCE, || bed.asked().len() == count);
    assert!(is_asked(1), "{}", served.stderr());
    let text = fs::read_to_string(served.file()).unwrap();
    // an order is under way with the old command
    fs::copy(bed.at("dns-hook"), bed.at("other-hook")).unwrap();
    served.configure_with(&text.replace("dns-hook", "other-hook"));
    let (code, said) = served.reload();
    assert_eq!(code, Some(0), "{said}");
    fs::rename(bed.at("dns-hook"), bed.at("old-hook")).unwrap();
    fs::write(bed.at("go"), "").unwrap();
    assert!(soon(4 * PATIENCE, || attempts(&served, "issued") == 1), "{}", served.stderr());
    assert_eq!(bed.asked(), ["present", "present", "cleanup", "cleanup"]);
    if geteuid().is_root() {
        served.configure_with(&text.replace("\"nobody\"", "\"nobody-has-this-name\""));
        let (code, said) = served.reload();
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("acme.dns_user: there is no user \"nobody-has-this-name\""),
            "{said}"
        );
        assert!(said.contains("nothing has changed"), "{said}");
    }
    // without the command nothing can be run, and with it again something
    let without: String = text
        .lines()
        .filter(|line| !line.starts_with("dns_") && !line.starts_with("challenges"))
        .map(|line| line.to_owned() + "\n")
        .collect();
    served.configure_with(&without.replace("\"*.a.example\", ", ""));
    let (code, said) = served.reload();
    assert_eq!(code, Some(0), "{said}");
    served.configure_with(&text.replace("dns-hook", "other-hook"));
    let (code, said) = served.reload();
    assert_eq!(code, Some(0), "{said}");
}

/// A server that has begun without commands has no launcher, says so, and gets one by an upgrade.
#[test]
fn an_upgrade_starts_what_a_reload_cannot() {
    let Some(bed) = Bed::new() else { return };
    let options = Options::new(bed.folder.join("site")).engine("event");
    let hook = bed.hook("challenges = [\"dns-01\"]\n");
    let (hosts, with_hook) = (format!("{HOSTS:?}"), bed.lines(&hook));
    let before = bed.lines("").replace(&hosts, "[\"a.example\"]");
    let served = WatchedServer::with(options.config(&before));
    assert!(launchers(served.pid()).is_empty());
    let text = fs::read_to_string(served.file()).unwrap();
    served.configure_with(&text.replace(&before, &with_hook));
    let (code, said) = served.reload();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("forebay upgrade starts such a server in place of this one"), "{said}");
    bed.behave("wait");
    let first = upgrade(&served);
    assert!(soon(PATIENCE, || !bed.asked().is_empty()), "{}", served.stderr());
    // the next one is begun while the command runs, and waits for the order
    let second = upgrade(&served);
    fs::write(bed.at("go"), "").unwrap();
    let is_there = || files(&bed.folder.join("storage"), ".pem").len() == 1;
    assert!(soon(4 * PATIENCE, is_there), "{}", served.stderr());
    let file = files(&bed.folder.join("storage"), ".pem").remove(0);
    let is_shown = || shown(bed.sealed, "x.a.example") == first_certificate(&file);
    assert!(soon(PATIENCE, is_shown), "{}", served.stderr());
    assert!(soon(PATIENCE, || !bed.notes()), "{}", served.stderr());
    assert_eq!(launchers(second.number().try_into().unwrap()).len(), 1);
    drop(first);
}

/// The launcher's end is reported, the server serves on, and a reload that changes nothing about commands
/// does not start another launcher.
#[test]
fn a_launcher_that_is_killed_is_told() {
    let Some(bed) = Bed::new() else { return };
    bed.behave("hang");
    let served = bed.start("");
    let left = bed.left();
    let [launcher] = launchers(served.pid())[..] else { panic!("one launcher") };
    let number = rustix::process::Pid::from_raw(launcher.try_into().unwrap()).unwrap();
    rustix::process::kill_process(number, Signal::KILL).unwrap();
    served.says(
        "the process that runs commands has ended; forebay upgrade, or a restart, begins another",
    );
    assert!(soon(PATIENCE, || attempts(&served, "hook") == 1), "{}", served.stderr());
    assert!(soon(PATIENCE, || launchers(served.pid()).is_empty()), "no zombie");
    // no process is left that would end what a command has started beside it
    let left = rustix::process::Pid::from_raw(left.try_into().unwrap()).unwrap();
    let _ = rustix::process::kill_process(left, Signal::KILL);
    assert_eq!(served.reload().0, Some(0), "{}", served.stderr());
    assert!(soon(PATIENCE, || attempts(&served, "hook") == 2), "{}", served.stderr());
    bed.behave("");
    let _second = upgrade(&served);
    assert_eq!(served.reload().0, Some(0), "{}", served.stderr());
    let is_there = || files(&bed.folder.join("storage"), ".pem").len() == 1;
    assert!(soon(4 * PATIENCE, is_there), "{}", served.stderr());
}

/// The user of the command is the configured one, or otherwise the server's. Another user needs the
/// rights of root.
#[test]
fn no_command_is_run_as_root() {
    if has(
        geteuid().is_root().then_some(()).ok_or("only root can become another user"),
        "users of commands",
    )
    .is_none()
    {
        return;
    }
    let Some(bed) = Bed::new() else { return };
    let plain = "challenges = [\"dns-01\"]\n";
    let with = |dns_user: &str, more: &str| {
        let hook = bed.hook(plain).replace("dns_user = \"nobody\"\n", dns_user);
        let lines = bed.lines(&hook).replace("[acme]\n", &format!("{more}\n[acme]\n"));
        Options::new(bed.folder.join("site")).engine("event").config(&lines)
    };
    let users = |name: &str| {
        let environment = fs::read_to_string(bed.at("env")).unwrap_or_default();
        environment.lines().any(|line| line == format!("USER={name}"))
    };
    // the next command writes the same files, as another user
    let again = || {
        let _ = fs::remove_dir_all(bed.folder.join("storage"));
        ["env", "log", "answer"].iter().for_each(|name| drop(fs::remove_file(bed.at(name))));
    };
    let anybody = "user = \"daemon\"\n";
    let free = "user = \"daemon\"\nsandbox.landlock = \"off\"\n";
    for (dns_user, more, user) in [
        ("", anybody, "daemon"),
        ("dns_user = \"nobody\"\n", anybody, "nobody"),
        ("dns_user = \"nobody\"\n", free, "nobody"),
    ] {
        again();
        let served = WatchedServer::with(with(dns_user, more));
        assert!(soon(4 * PATIENCE, || attempts(&served, "issued") == 1), "{}", served.stderr());
        assert!(users(user), "{user}: {}", served.stderr());
    }
    // without rights it is the user that has started the server
    again();
    fs::set_permissions(bed.folder.path(), Permissions::from_mode(0o777)).unwrap();
    bed.behave("leave");
    let mut options = with("", "");
    options.user = Some(65534);
    let served = WatchedServer::with(options);
    assert!(soon(4 * PATIENCE, || attempts(&served, "issued") == 1), "{}", served.stderr());
    assert!(users("nobody"), "{}", served.stderr());
    assert!(!is_there(bed.left()));
    drop(served);
    // and where that is root, or another one is named without rights, the server does not start
    copy_program(&binary(), &bed.folder.join("forebay"));
    let refused = |options: &Options, words: &str| {
        let file = bed.folder.join("refused.toml");
        fs::write(&file, &options.config).unwrap();
        // the build directory may be closed to other users
        let program = bed.folder.join("forebay");
        let mut command = Command::new(&program);
        if options.user.is_some() {
            command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
        }
        let said = command.arg("run").arg("-c").arg(&file).output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr);
        assert!(!said.status.success() && text.contains(words), "{text}");
    };
    again();
    let root = format!("root = {:?}\n", bed.folder.join("site"));
    let mut options = with("", &root);
    refused(&options, "no command is run as root: name another user in acme.dns_user");
    options = with("dns_user = \"daemon\"\n", &root);
    options.user = Some(65534);
    refused(&options, "acme.dns_user: only root can become daemon");
}

/// The operator makes the persistent record once, and no command is run.
#[test]
fn a_record_that_stays_is_enough() {
    // Debian 12 has pebble 2.4; 2.10 is the first with this challenge
    let Some(pebble) = from_go("pebble", "records that stay") else { return };
    let Some(bed) = Bed::with(&pebble, None) else { return };
    let lines = bed.lines("challenges = [\"dns-persist-01\"]\n");
    let options = Options::new(bed.folder.join("site")).engine("event");
    let served = WatchedServer::with(options.config(&lines));
    served.says("no certificate for the site");
    let said = served.stderr();
    let record = said.split("this record must stand: ").nth(1).unwrap_or_default();
    let (name, value) = record.split_once(" TXT \"").unwrap_or_default();
    let (value, _) = value.split_once('"').unwrap_or_default();
    assert_eq!(name, "_validation-persist.a.example.", "{said}");
    assert!(value.ends_with("; policy=wildcard"), "{said}");
    let manage = fs::read_to_string(bed.at("manage")).unwrap();
    let body = serde_json::json!({ "host": name, "value": value }).to_string();
    let address = format!("http://{manage}/set-txt");
    let set = Command::new("curl").args(["-s", "-d", &body, &address]).status().unwrap();
    assert!(set.success());
    assert_eq!(served.reload().0, Some(0), "{}", served.stderr());
    assert!(soon(4 * PATIENCE, || attempts(&served, "issued") == 1), "{}", served.stderr());
    assert!(bed.asked().is_empty());
}
