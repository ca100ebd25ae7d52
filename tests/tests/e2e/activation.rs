//! Under a service manager: the sockets that it opened, and the notifications that it gets. The launcher
//! is systemd's own, `systemd-socket-activate`; the manager that listens is the test.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::upgrade::{command as upgrade_command, upgrade};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::{binary, engine_lines, free_addr};
use forebay_tests::upgrade::Successor;
use forebay_tests::wire::{PATIENCE, exchange};
use forebay_tests::{ENGINES, Options, Server, has_thread_each};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const LAUNCHER: &str = "systemd-socket-activate";
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("root/index.html", "hello");
    folder
}

/// A server that the launcher starts when the first client comes.
struct Launched(Child, PathBuf);

impl Launched {
    fn new(folder: &Folder, listen: &[&str], config: &str) -> Launched {
        let file = folder.write("forebay.toml", config);
        let said = folder.join("said");
        let mut command = Command::new(LAUNCHER);
        for listen in listen {
            command.args(["-l", listen]);
        }
        command.arg(binary()).args(["run", "-c"]).arg(file);
        let stderr = fs::File::create(&said).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn();
        let child = child.unwrap_or_else(|error| {
            panic!("{LAUNCHER} (Debian package systemd) cannot be run: {error}")
        });
        Launched(child, said)
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.1).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn has_ended(&mut self) -> bool {
        soon(PATIENCE, || matches!(self.0.try_wait(), Ok(Some(_))))
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connects as soon as the launcher listens.
fn connect(addr: SocketAddr) -> TcpStream {
    let mut stream = None;
    assert!(soon(PATIENCE, || {
        stream = TcpStream::connect(addr).ok();
        stream.is_some()
    }));
    stream.unwrap()
}

fn config(folder: &Folder, listen: &[&str], engine: &str) -> String {
    let workers = if has_thread_each(engine) { 64 } else { 3 };
    format!(
        "listen = {listen:?}\nroot = {:?}\n{}workers = {workers}\nlog.access = \"off\"\n",
        folder.join("root"),
        engine_lines(engine)
    )
}

#[test]
fn sockets_that_were_passed_on_are_served() {
    for engine in ENGINES {
        let folder = site();
        let addr = free_addr();
        let path = folder.join("http.sock");
        let (tcp, unix) = (addr.to_string(), format!("unix:{}", path.display()));
        let config = config(&folder, &[&tcp, &unix], engine);
        let mut launched = Launched::new(&folder, &[&tcp, path.to_str().unwrap()], &config);
        // this client starts the server, and waits in a queue that was there before it
        let mut first = connect(addr);
        first.set_read_timeout(Some(PATIENCE)).unwrap();
        first.write_all(GET.as_bytes()).unwrap();
        let mut answer = String::new();
        first.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("hello"), "{engine}: {answer} {}", launched.said());
        for _ in 0..20 {
            assert!(exchange(addr, GET.as_bytes()).ends_with(b"hello"));
            let mut local = UnixStream::connect(&path).unwrap();
            local.set_read_timeout(Some(PATIENCE)).unwrap();
            local.write_all(GET.as_bytes()).unwrap();
            answer.clear();
            local.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("hello"), "{engine}: {answer}");
        }
        launched.signal(Signal::TERM);
        assert!(launched.has_ended());
        assert!(path.exists(), "the file is the service manager's");
    }
}

/// `ListenStream=80` is one socket for both families, whatever addresses the file names for them.
#[test]
fn one_socket_for_both_families_is_named_in_each_way() {
    let folder = site();
    let port = free_addr().port();
    let [any, v4, v6] = [":", "0.0.0.0:", "[::]:"].map(|ip| format!("{ip}{port}"));
    for listen in [&[&*any][..], &[&v4, &v6], &[&v6, &v4]] {
        let config = config(&folder, listen, "event");
        let mut launched = Launched::new(&folder, &[&port.to_string()], &config);
        for ip in ["127.0.0.1", "[::1]"] {
            let addr = format!("{ip}:{port}").parse().unwrap();
            let mut stream = connect(addr);
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(GET.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("hello"), "{listen:?} {ip}: {answer} {}", launched.said());
        }
        // and goes on to after a reload
        let mut reload = Command::new(binary());
        let output =
            reload.args(["reload", "-c"]).arg(folder.join("forebay.toml")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let serves = || {
            [IpAddr::from([127, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()]
                .map(|ip| exchange((ip, port).into(), GET.as_bytes()).ends_with(b"hello"))
        };
        assert_eq!(serves(), [true, true], "{listen:?}: {}", launched.said());
        // and in a server that takes its place
        let mut upgrade = Command::new(binary());
        let output =
            upgrade.args(["upgrade", "-c"]).arg(folder.join("forebay.toml")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{listen:?}: {said}");
        let successor = Successor::of_said(&said);
        assert!(launched.has_ended(), "{}", launched.said());
        assert_eq!(serves(), [true, true], "{listen:?}: {}", launched.said());
        drop(successor);
    }
    let config = config(&folder, &[&v4], "event");
    let mut launched = Launched::new(&folder, &[&port.to_string()], &config);
    drop(connect(([127, 0, 0, 1], port).into()));
    assert!(launched.has_ended());
    let said = launched.said();
    assert!(said.contains(&format!("passed for [::]:{port} (")), "{said}");
    assert!(said.contains("takes IPv4 as well"), "{said}");
}

#[test]
fn a_socket_that_no_listener_names_is_an_error() {
    let folder = site();
    let (addr, other) = (free_addr(), free_addr());
    let config = config(&folder, &[&other.to_string()], "event");
    let mut launched = Launched::new(&folder, &[&addr.to_string()], &config);
    drop(connect(addr));
    assert!(launched.has_ended());
    let said = launched.said();
    let expected = format!("the service manager passed a socket for {addr}");
    assert!(said.contains(&expected) && said.contains("no listener names"), "{said}");
}

#[test]
fn a_reload_that_forgets_a_passed_socket_changes_nothing() {
    let folder = site();
    let (addr, other) = (free_addr(), free_addr());
    let text = config(&folder, &[&addr.to_string()], "event");
    let launched = Launched::new(&folder, &[&addr.to_string()], &text);
    let mut first = connect(addr);
    first.write_all(GET.as_bytes()).unwrap();
    first.read_exact(&mut [0; 12]).unwrap();
    let file = folder.join("forebay.toml");
    let reload = || {
        let output = Command::new(binary()).args(["reload", "-c"]).arg(&file).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    fs::write(&file, text.replace(&addr.to_string(), &other.to_string())).unwrap();
    let (ok, said) = reload();
    assert!(!ok && said.contains("no listener names"), "{said} {}", launched.said());
    assert!(TcpStream::connect(other).is_err(), "the new address was opened all the same");
    // one more address, and more loops on the same socket
    let both = text.replace(&format!("{addr}\""), &format!("{addr}\", \"{other}\""));
    fs::write(&file, both.replace("workers = 3", "workers = 5")).unwrap();
    assert!(reload().0);
    for addr in [addr, other] {
        assert!(exchange(addr, GET.as_bytes()).ends_with(b"hello"));
    }
}

/// The socket at which a service manager gets notifications.
struct Ear(UnixDatagram);

impl Ear {
    fn new(path: &Path) -> Ear {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Ear(socket)
    }

    /// The next notification that is not a sign of life.
    fn hear(&self) -> String {
        loop {
            let mut text = [0; 4096];
            let length = self.0.recv(&mut text).expect("the server says nothing");
            let text = String::from_utf8_lossy(&text[..length]).into_owned();
            if text != "WATCHDOG=1\n" {
                return text;
            }
        }
    }

    fn hears_life(&self) -> bool {
        let mut text = [0; 4096];
        let length = self.0.recv(&mut text).expect("the server gives no sign of life");
        &text[..length] == b"WATCHDOG=1\n"
    }
}

#[test]
fn the_service_manager_hears_what_happens() {
    let folder = site();
    let path = folder.join("notify");
    let ear = Ear::new(&path);
    let mut options = Options::new(folder.join("root")).config("");
    options.wrapper = vec!["env".into(), format!("NOTIFY_SOCKET={}", path.display())];
    let mut server = Server::start(&options);
    let ready = ear.hear();
    assert!(ready.starts_with("READY=1\nSTATUS=forebay "), "{ready}");

    let reloads = |expected: &str| {
        let reloading = ear.hear();
        assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
        let ready = ear.hear();
        assert!(ready.starts_with("READY=1\n") && ready.contains(expected), "{ready}");
    };
    server.signal(Signal::HUP);
    reloads("generation 2");
    server.configure_with("root = 7");
    assert_eq!(server.reload().0, Some(78));
    reloads("nothing has changed");

    server.signal(Signal::TERM);
    assert!(ear.hear().starts_with("STOPPING=1\n"));
    assert!(server.wait(PATIENCE).unwrap().success());
}

/// The manager learns which process is the server before that process sends anything itself.
#[test]
fn the_service_manager_hears_of_an_upgrade() {
    let folder = site();
    let path = folder.join("notify");
    let ear = Ear::new(&path);
    let mut options = Options::new(folder.join("root")).config("");
    options.wrapper = vec!["env".into(), format!("NOTIFY_SOCKET={}", path.display())];
    let server = Server::start(&options);
    assert!(ear.hear().starts_with("READY=1\n"));
    let successor = upgrade(&server);
    let main = format!("MAINPID={}\n", successor.number());
    assert_eq!(ear.hear(), main, "{}", server.stderr());
    assert!(ear.hear().starts_with("READY=1\nSTATUS=forebay "));
    // a server that cannot be had any more is the one that it was
    let mut good = std::fs::read_to_string(server.file()).unwrap();
    good.push_str("\n[nonsense]\n");
    server.configure_with(&good);
    assert_eq!(upgrade_command(&server).0, Some(78));
    drop(successor);
    assert!(ear.hear().starts_with("STOPPING=1\n"));
}

#[test]
fn signs_of_life_come_while_the_loops_turn() {
    for engine in ENGINES {
        let folder = site();
        let path = folder.join("notify");
        let ear = Ear::new(&path);
        let mut options = Options::new(folder.join("root")).engine(engine).config("");
        let socket = format!("NOTIFY_SOCKET={}", path.display());
        options.wrapper = vec!["env".into(), socket, "WATCHDOG_USEC=400000".into()];
        let server = Server::start(&options);
        assert!(ear.hear().starts_with("READY=1\n"));
        // longer than the patience with a loop, so that a loop that shows nothing would be noticed
        for _ in 0..12 {
            assert!(ear.hears_life(), "{engine}: {}", server.stderr());
        }
    }
}
