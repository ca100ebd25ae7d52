//! Two network namespaces, a server in one, its clients in the other, and a pair of interfaces between
//! them whose checksums are not left to a device. The tests need root, in CI without exception.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::server::binary;
use forebay_tests::upgrade::{Successor, upgrade_of};
use forebay_tests::wire::PATIENCE;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const SERVER4: &str = "10.99.0.1";
pub(super) const SERVER6: &str = "fd99::1";
pub(super) const CLIENT4: &str = "10.99.0.2";
pub(super) const CLIENT6: &str = "fd99::2";

pub(super) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        assert!(std::env::var_os("CI").is_none(), "in CI the gate is tested as root");
        // past the test harness, which would swallow it
        let _ = writeln!(io::stderr(), "SKIPPED: this test of gate.rs needs root");
    }
    is_root
}

/// Two network namespaces, with an interface in each. They are gone when this is dropped.
pub(super) struct Net {
    pub(super) server: String,
    pub(super) client: String,
}

impl Net {
    pub(super) fn new() -> Net {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("fb{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let net = Net { server: format!("{name}s"), client: format!("{name}c") };
        ip(&format!("netns add {}", net.server));
        ip(&format!("netns add {}", net.client));
        ip(&format!("-n {} link add v0 type veth peer name v1 netns {}", net.server, net.client));
        for (namespace, device, at) in [(&net.server, "v0", 1), (&net.client, "v1", 2)] {
            let offload = "tx off rx off gro off gso off tso off";
            run("ip", &format!("netns exec {namespace} ethtool -K {device} {offload}"));
            ip(&format!("-n {namespace} link set lo up"));
            ip(&format!("-n {namespace} addr add 10.99.0.{at}/24 dev {device}"));
            ip(&format!("-n {namespace} addr add fd99::{at}/64 dev {device} nodad"));
            ip(&format!("-n {namespace} link set {device} up"));
        }
        // answers to addresses that no machine has go nowhere at once
        ip(&format!("-n {} route add blackhole 10.7.0.0/16", net.server));
        net
    }

    /// Runs a function in the clients' namespace.
    pub(super) fn client<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        within(&self.client, what)
    }

    /// Runs a function in the server's namespace.
    pub(super) fn server<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        within(&self.server, what)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for namespace in [&self.server, &self.client] {
            let _ = Command::new("ip").args(["netns", "del", namespace]).status();
        }
    }
}

pub(super) fn within<T: Send + 'static>(
    namespace: &str,
    what: impl FnOnce() -> T + Send + 'static,
) -> T {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    let thread = thread::spawn(move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        what()
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

pub(super) fn run(program: &str, words: &str) {
    let output = Command::new(program).args(words.split_whitespace()).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {words}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

pub(super) fn ip(words: &str) {
    run("ip", words);
}

/// The server in its namespace; dropping it kills it.
pub(super) struct Server {
    pub(super) child: Child,
    pub(super) folder: Folder,
}

impl Server {
    /// Starts a server with these lines in its configuration, at every address of its namespace, as
    /// another user.
    pub(super) fn start(net: &Net, lines: &str) -> Server {
        Server::start_by(net, &[], lines)
    }

    /// Starts a server by a program with these words, which takes rights away from it.
    pub(super) fn start_by(net: &Net, program: &[&str], lines: &str) -> Server {
        let folder = Folder::new();
        folder.write("root/index.html", "hello");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        configure(&folder, lines);
        let child = Command::new("ip")
            .args(["netns", "exec", &net.server])
            .args(program)
            .arg(binary())
            .args(["run", "-c"])
            .arg(folder.join("forebay.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("said")).unwrap())
            .spawn()
            .unwrap();
        let mut server = Server { child, folder };
        let deadline = Instant::now() + PATIENCE;
        while !server.said().contains(": serving ") {
            let ended = server.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", server.said());
            assert!(Instant::now() < deadline, "{}", server.said());
            thread::sleep(Duration::from_millis(10));
        }
        server
    }

    pub(super) fn file(&self) -> PathBuf {
        self.folder.join("forebay.toml")
    }

    pub(super) fn said(&self) -> String {
        fs::read_to_string(self.folder.join("said")).unwrap_or_default()
    }

    /// Puts another process in the place of this one, which takes over what it has.
    pub(super) fn upgrade(&self, net: &Net) -> Successor {
        let file = self.file();
        net.server(move || upgrade_of(&file))
    }

    pub(super) fn command(&self, words: &[&str]) -> String {
        let [first, rest @ ..] = words else { panic!() };
        let mut command = Command::new(binary());
        command.args(first.split(' ')).arg("-c").arg(self.file()).args(rest);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {said}");
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the server said:\n{}", self.said());
        }
    }
}

pub(super) fn configure(folder: &Folder, lines: &str) {
    let at = folder.path().display();
    let mut text = format!(
        "listen = [\"{SERVER4}:80\", \"[{SERVER6}]:80\"]\nroot = \"{at}/root\"\n\
         control.socket = \"{at}/control\"\nadmin.listen = \"127.0.0.1:9090\"\n"
    );
    for (key, value) in [("workers", "2"), ("log.access", "\"off\"")] {
        if !lines.contains(&format!("{key} = ")) {
            text += &format!("{key} = {value}\n");
        }
    }
    text += &lines.replace("FOLDER", &at.to_string());
    fs::write(folder.join("forebay.toml"), text).unwrap();
}

pub(super) const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

pub(super) fn get(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(GET)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The number of connections that are served, of this number of tries; the others are refused by a reset.
pub(super) fn served(net: &Net, ip: &str, tries: usize) -> usize {
    let address = SocketAddr::new(ip.parse().unwrap(), 80);
    net.client(move || {
        let outcomes = (0..tries).map(|_| match get(address) {
            Ok(answer) => {
                assert!(answer.ends_with("hello"), "{answer}");
                1
            }
            Err(error) => {
                let kind = error.kind();
                assert_eq!(kind, io::ErrorKind::ConnectionRefused, "{error}");
                0
            }
        });
        outcomes.sum()
    })
}

/// All metrics.
pub(super) fn metrics(net: &Net) -> String {
    net.server(|| {
        let mut stream = TcpStream::connect(("127.0.0.1", 9090)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    })
}

/// The value of a metric with these labels.
pub(super) fn metric(net: &Net, name: &str) -> u64 {
    let text = metrics(net);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

/// Waits until a metric has the expected value.
pub(super) fn wait_for(net: &Net, name: &str, expected: u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = metric(net, name);
        if found == expected {
            return;
        }
        assert!(found < expected && Instant::now() < deadline, "{name}: {found} of {expected}");
        thread::sleep(Duration::from_millis(20));
    }
}
