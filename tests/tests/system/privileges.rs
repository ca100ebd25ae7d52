//! The rights that the server gives up at its start: root, and most of the file system. Most of these
//! tests need root, and a kernel with Landlock.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::cgroups::{has_ended, stages};
use forebay_tests::acme::Acme;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::{binary, copy_program, free_addr};
use forebay_tests::upgrade::{Successor, command};
use forebay_tests::wire::{PATIENCE, exchange};
use forebay_tests::{ISOLATED, Options, Server};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
/// The user that serves: Debian's `nobody`.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        // past the test harness, which would swallow it
        let _ = writeln!(io::stderr(), "SKIPPED: this test of privileges.rs needs root");
    }
    is_root
}

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("app/root/index.html", "hello");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    folder
}

fn hello(addr: SocketAddr) -> bool {
    exchange(addr, GET).ends_with(b"hello")
}

/// A line of `/proc/PID/status` of every thread.
fn status(server: &Server, name: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let line = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        line.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    threads
        .filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("status")).ok())
        .map(line)
        .collect()
}

#[test]
fn a_server_that_root_starts_becomes_the_user() {
    if !is_root() {
        return;
    }
    let folder = site();
    folder.write("app/root/secret", "root's own");
    fs::set_permissions(folder.join("app/root/secret"), Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(folder.join("logs")).unwrap();
    let [low, lower] = [81, 82].map(|port| SocketAddr::new(free_addr().ip(), port));
    let log = folder.join("logs/access.log");
    let with = |workers: usize, low: &[SocketAddr]| {
        let low: Vec<_> = low.iter().map(SocketAddr::to_string).collect();
        let lines = format!(
            "user = \"nobody\"\nlog.access = {log:?}\n[[listener]]\nlisten = {low:?}\nworkers = \
             {workers}"
        );
        Options::new(folder.join("app/root")).config(&lines)
    };
    let mut server = Server::start(&with(2, &[low]));
    for name in ["Uid:", "Gid:"] {
        let four = [NOBODY.to_string().as_str(); 4].join(" ");
        let all = status(&server, name);
        assert!(all.len() > 3 && all.iter().all(|ids| *ids == four), "{name} {all:?}");
    }
    // CAP_NET_BIND_SERVICE is number 10
    for name in ["CapPrm:", "CapEff:", "CapBnd:"] {
        let all = status(&server, name);
        assert!(all.iter().all(|set| *set == "0000000000000400"), "{name} {all:?}");
    }
    assert!(status(&server, "NoNewPrivs:").iter().all(|is_set| is_set == "1"));
    let groups = status(&server, "Groups:");
    assert!(groups.iter().all(|groups| !groups.split(' ').any(|group| group == "0")), "{groups:?}");

    assert!(hello(low) && hello(server.addr()));
    let secret = exchange(server.addr(), &[b"GET /secret", &GET[5..]].concat());
    assert!(!secret.windows(6).any(|bytes| bytes == b"root's"));
    assert_eq!(fs::metadata(&log).unwrap().uid(), NOBODY);
    assert!(soon(PATIENCE, || fs::read_to_string(&log).unwrap().lines().count() >= 3));

    // a reload can still bind low ports, and add sockets to a group that root has opened
    server.configure(&with(4, &[low, lower]));
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    assert!(hello(low) && hello(lower));
    server.signal(Signal::TERM);
    assert!(server.wait(PATIENCE).unwrap().success());
}

/// A line of `/proc/PID/status` of a process.
fn of_process(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The stages with the content and the clients become the configured user; the stage that decides becomes
/// `nobody`; the first process stays root, and so does what it reads and writes.
#[test]
fn stages_that_root_starts_become_the_user() {
    if !is_root() {
        return;
    }
    // a number that is no user's: nothing is shared with it by chance
    const USER: u32 = 54_321;
    let folder = site();
    folder.write("app/root/secret", "root's own");
    fs::set_permissions(folder.join("app/root/secret"), Permissions::from_mode(0o600)).unwrap();
    let lines = format!("user = \"{USER}\"\ngroup = \"{USER}\"\n");
    let options = Options::new(folder.join("app/root")).engine(ISOLATED).config(&lines);
    let mut server = Server::start(&options);
    let are_confined = |server: &Server| {
        let all = stages(server);
        assert_eq!(all.len(), 5, "{all:?}");
        for (name, pid) in all {
            let user = if name == "process" { NOBODY } else { USER };
            let four = [user.to_string().as_str(); 4].join(" ");
            for line in ["Uid:", "Gid:"] {
                assert_eq!(of_process(pid, line), four, "{name} {line}");
            }
            assert_eq!(of_process(pid, "NoNewPrivs:"), "1", "{name}");
            // root's rights are gone, but for that to bind low ports
            let rights = u64::from_str_radix(&of_process(pid, "CapBnd:"), 16).unwrap();
            assert_eq!(rights & !0x400, 0, "{name}");
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            let mut words = line.split(|&b| b == 0).map(String::from_utf8_lossy);
            words.find(|word| word == "--links").unwrap();
            let links = PathBuf::from(words.next().unwrap().into_owned());
            // stages may reach each other's sockets, and change nothing that root reads
            let of = |name: &str| fs::metadata(links.join(name)).unwrap();
            assert_eq!((of("").uid(), of("").mode() & 0o777), (0, 0o711));
            for file in ["configuration.json", "ends", "lock"] {
                assert_eq!((of(file).uid(), of(file).mode() & 0o777), (0, 0o600), "{file}");
            }
            for socket in ["process-1.sock", "respond-2.sock"] {
                let of = of(socket);
                assert_eq!((of.uid(), of.mode() & 0o777), (USER, 0o600), "{socket}");
            }
        }
    };
    are_confined(&server);
    assert!(hello(server.addr()));
    let secret = exchange(server.addr(), &[b"GET /secret", &GET[5..]].concat());
    assert!(!secret.windows(6).any(|bytes| bytes == b"root's"));
    // a stage that crashes is started again, and a reload starts all again
    let (_, pid) = stages(&server).into_iter().find(|(name, _)| name == "respond").unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    assert!(hello(server.addr()));
    assert!(soon(PATIENCE, || stages(&server).len() == 5));
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    assert!(hello(server.addr()));
    assert!(soon(PATIENCE, || stages(&server).len() == 5));
    are_confined(&server);
    server.signal(Signal::TERM);
    assert!(server.wait(PATIENCE).unwrap().success());
    // stages of another user end all the same, although the kernel does not signal the end of the first
    // process to them
    let mut server = Server::start(&options);
    let all = stages(&server);
    assert_eq!(all.len(), 5, "{all:?}");
    server.signal(Signal::KILL);
    server.wait(PATIENCE).unwrap();
    let is_left = |(_, pid): &(String, u32)| !has_ended(*pid);
    assert!(soon(PATIENCE, || !all.iter().any(is_left)), "{all:?}");
    let said = refused(&folder, "engine = \"isolated\"\nuser = \"root\"", Some(NOBODY));
    assert!(said.contains("user: only root can become root"), "{said}");
}

/// A server that root starts in place of another user's server would run as root.
#[test]
fn root_takes_the_place_of_no_other_users_server() {
    if !is_root() {
        return;
    }
    for engine in ["event", ISOLATED] {
        let folder = site();
        fs::create_dir(folder.join("run")).unwrap();
        fs::set_permissions(folder.join("run"), Permissions::from_mode(0o777)).unwrap();
        let lines = format!("control.socket = {:?}\n", folder.join("run/control.sock"));
        let mut options = Options::new(folder.join("app/root")).engine(engine).config(&lines);
        options.user = Some(NOBODY);
        let server = Server::start(&options);
        let (code, said) = command(&server);
        assert_eq!(code, Some(1), "{engine}: {said}");
        for words in [
            "the running server was started by the user nobody, and the one in its place would be root's",
            "sudo -u nobody",
            "the running one goes on as before",
        ] {
            assert!(said.contains(words), "{engine}: {said}");
        }
        server.says("nothing has changed");
        assert!(hello(server.addr()), "{engine}");
        // the server's own user may upgrade
        let copy = folder.join("forebay");
        copy_program(&binary(), &copy);
        let mut command = Command::new(&copy);
        command.args(["upgrade", "-c"]).arg(server.file()).uid(NOBODY).gid(NOBODY);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{engine}: {said} {}", server.stderr());
        let successor = Successor::of_said(&said);
        assert!(hello(server.addr()), "{engine}");
        drop(successor);
    }
}

/// Runs the server with this configuration until it ends by itself. Returns its output.
fn refused(folder: &Folder, lines: &str, user: Option<u32>) -> String {
    let text =
        format!("listen = [\"{}\"]\nroot = {:?}\n{lines}\n", free_addr(), folder.join("app/root"));
    let file = folder.write("forebay.toml", text);
    let copy = folder.join("forebay");
    copy_program(&binary(), &copy);
    let mut command = Command::new(copy);
    command.args(["run", "-c"]).arg(file);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn who_cannot_be_the_user_is_told_so() {
    let folder = site();
    if is_root() {
        let said = refused(&folder, "user = \"nobody-has-this-name\"", None);
        assert!(said.contains("user: there is no user \"nobody-has-this-name\""), "{said}");
        let said = refused(&folder, "user = \"4242\"", None);
        assert!(said.contains("group: must be set"), "{said}");
        let said = refused(&folder, "user = \"root\"\ncontrol.socket = \"off\"", Some(NOBODY));
        assert!(said.contains("user: only root can become root"), "{said}");
    } else {
        let said = refused(&folder, "user = \"root\"\ncontrol.socket = \"off\"", None);
        assert!(said.contains("user: only root can become root"), "{said}");
    }
}

#[test]
fn whoever_is_the_user_already_may_say_so() {
    let folder = site();
    let user = if is_root() { Some(NOBODY) } else { None };
    let me = user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let group = user.unwrap_or_else(|| rustix::process::getegid().as_raw());
    let lines = format!("user = \"{me}\"\ngroup = \"{group}\"\ncontrol.socket = \"off\"");
    let options = Options { user, ..Options::new(folder.join("app/root")).config(&lines) };
    let server = Server::start(&options);
    assert!(hello(server.addr()));
    assert!(status(&server, "NoNewPrivs:").iter().all(|is_set| is_set == "1"));
}

/// Whether the kernel can confine a process; reports loudly if not.
fn has_landlock(folder: &Folder) -> bool {
    let options = Options::new(folder.join("app/root"));
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let probe = refused_or_served(&options.config("sandbox.landlock = \"on\""));
    if let Err(said) = &probe {
        let _ = writeln!(io::stderr(), "SKIPPED: no Landlock on Linux {}: {said}", text.trim());
    }
    probe.is_ok()
}

fn refused_or_served(options: &Options) -> Result<Server, String> {
    let start = std::panic::catch_unwind(|| Server::start(options));
    start.map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

#[test]
fn a_reload_that_needs_more_than_the_sandbox_has_fails_as_a_whole() {
    let folder = site();
    if !has_landlock(&folder) {
        return;
    }
    folder.write("app/next/index.html", "next");
    folder.write("elsewhere/index.html", "elsewhere");
    let root = |name: &str, lines: &str| Options::new(folder.join(name)).config(lines);
    let says = |server: &Server, text: &str| server.exchange(GET).ends_with(text.as_bytes());

    let server = Server::start(&root("app/root", "sandbox.landlock = \"on\""));
    server.configure(&root("elsewhere", "sandbox.landlock = \"on\""));
    let (code, said) = server.reload();
    let path = folder.join("elsewhere").display().to_string();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(folder.path().to_str().unwrap()) && said.contains("restart"), "{said}");
    assert!(says(&server, "hello"), "{path}");
    let alias = |directory: &str| {
        let to = folder.join(directory);
        let lines = format!("sandbox.landlock = \"on\"\n[[alias]]\npath = \"/docs\"\nto = {to:?}");
        root("app/root", &lines)
    };
    server.configure(&alias("elsewhere"));
    let (code, said) = server.reload();
    assert!(code == Some(1) && said.contains("alias.to"), "{said}");
    assert!(says(&server, "hello"));
    let aliased = Server::start(&alias("elsewhere"));
    let docs = [b"GET /docs/", &GET[5..]].concat();
    assert!(aliased.exchange(&docs).ends_with(b"elsewhere"));
    // beside the root there is room for its next version
    server.configure(&root("app/next", "sandbox.landlock = \"on\""));
    assert_eq!(server.reload().0, Some(0));
    assert!(says(&server, "next"));

    for lines in
        [format!("sandbox.read = [{:?}]", folder.path()), "sandbox.landlock = \"off\"".to_owned()]
    {
        let server = Server::start(&root("app/root", &lines));
        server.configure(&root("elsewhere", &lines));
        let (code, said) = server.reload();
        assert_eq!(code, Some(0), "{said}");
        assert!(says(&server, "elsewhere"));
    }
}

#[test]
fn a_root_is_re_pointed_and_replaced_in_the_sandbox() {
    let folder = site();
    if !has_landlock(&folder) {
        return;
    }
    for version in 1..=3 {
        folder.write(&format!("app/releases/{version}/index.html"), version.to_string());
    }
    let point = |version: usize| {
        let _ = fs::remove_file(folder.join("app/next"));
        symlink(format!("releases/{version}"), folder.join("app/next")).unwrap();
        fs::rename(folder.join("app/next"), folder.join("app/current")).unwrap();
    };
    point(1);
    let options = Options::new(folder.join("app/current")).config("sandbox.landlock = \"on\"");
    let server = Server::start(&options);
    for version in [1, 2, 3] {
        point(version);
        let served = || server.exchange(GET).ends_with(version.to_string().as_bytes());
        assert!(soon(PATIENCE, served), "version {version}: {}", server.stderr());
    }
    // another directory of the same name
    let server = Server::start(&Options { root: folder.join("app/root"), ..options });
    folder.write("app/new/index.html", "replaced");
    fs::rename(folder.join("app/root"), folder.join("app/old")).unwrap();
    fs::rename(folder.join("app/new"), folder.join("app/root")).unwrap();
    assert!(soon(PATIENCE, || server.exchange(GET).ends_with(b"replaced")), "{}", server.stderr());
}

/// Certificates by ACME are made by the server's user, in a directory that root has made for it, beneath
/// the paths that the sandbox lets it write to.
#[test]
fn certificates_by_acme_are_kept_by_the_user() {
    if !is_root() {
        return;
    }
    let folder = site();
    let (acme, storage) = (Acme::start(folder.path()), folder.join("state/acme"));
    let addr = free_addr();
    let lines = format!(
        "user = \"nobody\"\n{}[[listener]]\nlisten = [\"https://{addr}\"]\n[[site]]\nhosts = \
         [\"a.example\"]\ntls.acme = true\n",
        acme.lines(folder.path(), &storage)
    );
    let server = Server::start(&Options::new(folder.join("app/root")).config(&lines));
    let is_trusted = || {
        let mut stream = acme.authority.connect(addr, "a.example");
        let asked = stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        asked.and_then(|()| stream.flush()).is_ok()
    };
    assert!(soon(4 * PATIENCE, is_trusted), "{}", server.stderr());
    let directory = fs::read_dir(&storage).unwrap().next().unwrap().unwrap().path();
    for path in [&folder.join("state"), &storage, &directory] {
        let found = fs::metadata(path).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (NOBODY, 0o700), "{path:?}");
    }
    for entry in fs::read_dir(&directory).unwrap() {
        let (path, found) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (NOBODY, 0o600), "{path:?}");
    }
}
