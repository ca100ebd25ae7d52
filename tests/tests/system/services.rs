//! Servers from service records (SRV), which the system's resolver looks up at a real name server:
//! dnsmasq at a loopback address, which the server asks because of a mount in a namespace of its own. The
//! test needs root.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::binary;
use forebay_tests::wire::{PATIENCE, exchange};
use forebay_tests::{Options, Server, on_each_engine};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

on_each_engine!(records_say_which_servers_are_asked);

/// Whether the test can run. In CI it must.
fn can_run() -> bool {
    let lacks = match rustix::process::geteuid().is_root() {
        false => Some("root"),
        true if Command::new("dnsmasq").arg("--version").output().is_err() => Some("dnsmasq"),
        true => None,
    };
    if let Some(lacks) = lacks {
        assert!(std::env::var_os("CI").is_none(), "in CI there is {lacks}");
        // past the test harness, which would swallow it
        let _ = writeln!(io::stderr(), "SKIPPED: this test of services.rs needs {lacks}");
    }
    lacks.is_none()
}

/// A name server at an address of its own.
struct NameServer {
    at: String,
    process: Option<Child>,
}

impl NameServer {
    fn new() -> NameServer {
        static MADE: AtomicU32 = AtomicU32::new(1);
        let (own, made) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let at = format!("127.{}.{}.{}", 64 + (own >> 8) % 64, own % 256, made);
        NameServer { at, process: None }
    }

    /// Answers with these records from now on: priority, weight, port, name.
    fn says(&mut self, records: &[(u16, u16, u16, &str)]) {
        self.falls_silent();
        let mut command = Command::new("dnsmasq");
        command.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
        ]);
        command.args(["--bind-interfaces", "--user=root", "--pid-file", "--local-ttl=1"]);
        command.arg(format!("--listen-address={}", self.at));
        for (priority, weight, port, name) in records {
            let record = format!("_http._tcp.app.test,{name}.app.test,{port},{priority},{weight}");
            command.arg(format!("--srv-host={record}"));
            command.arg(format!("--host-record={name}.app.test,127.0.0.1"));
        }
        if records.is_empty() {
            command.arg("--srv-host=_http._tcp.app.test");
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().unwrap());
        // dnsmasq answers once its port is taken
        let is_there = || UdpSocket::bind((self.at.as_str(), 53)).is_err();
        assert!(soon(PATIENCE, is_there), "dnsmasq does not listen at {}", self.at);
    }

    fn falls_silent(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.falls_silent();
    }
}

/// An application that answers with its name, and its port.
fn application(name: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for line in lines.map_while(Result::ok) {
                    let host = line.strip_prefix("Host: ").map(str::to_owned);
                    if let Some(host) = host {
                        let body = format!("{name} {host}");
                        let head =
                            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                        if stream.write_all(format!("{head}{body}").as_bytes()).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    port
}

fn ask(server: &Server) -> String {
    let answer =
        exchange(server.addr(), b"GET /app HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    match head.split(' ').nth(1) {
        Some("200") => body.to_owned(),
        status => status.unwrap().to_owned(),
    }
}

/// The number of answers of each application, for this number of requests.
fn asked(server: &Server, count: usize) -> HashMap<String, usize> {
    let mut asked = HashMap::new();
    for _ in 0..count {
        *asked.entry(ask(server)).or_default() += 1;
    }
    asked
}

fn list(server: &Server) -> String {
    let command = Command::new(binary())
        .args(["upstream", "list", "-c"])
        .arg(server.file())
        .output()
        .unwrap();
    String::from_utf8(command.stdout).unwrap()
}

fn records_say_which_servers_are_asked(engine: &str) {
    if !can_run() {
        return;
    }
    let (a, b, c) = (application("a"), application("b"), application("c"));
    let mut names = NameServer::new();
    names.says(&[(10, 90, a, "a"), (10, 10, b, "b"), (20, 50, c, "c")]);
    let folder = Folder::new();
    folder.write("resolv.conf", format!("nameserver {}\noptions timeout:1 attempts:1\n", names.at));
    folder.write("site/index.html", "own");
    let lines = "[[proxy]]\npath = \"/app\"\nto = \"srv+http://_http._tcp.app.test\"\n\
                 host = \"upstream\"\nbalance = \"round-robin\"";
    let mut options = Options::new(folder.join("site")).engine(engine).config(lines);
    let mount = format!(
        "mount --bind {} /etc/resolv.conf && exec \"$0\" \"$@\"",
        folder.join("resolv.conf").display()
    );
    options.wrapper = ["unshare", "--mount", "sh", "-c", &mount].map(str::to_owned).to_vec();
    let server = Server::start(&options);
    // answers are distributed by the weights, and a backup is not asked
    let counts = asked(&server, 50);
    let expected = [("a app.test", 45), ("b app.test", 5)].map(|(name, of)| (name.to_owned(), of));
    assert_eq!(counts, HashMap::from(expected), "{engine}");
    let listed = list(&server);
    assert!(listed.contains("_http._tcp.app.test#1  asked (a.app.test:"), "{engine}: {listed}");
    assert!(listed.contains("_http._tcp.app.test#3  backup (c.app.test:"), "{engine}: {listed}");
    assert!(!listed.contains("#4"), "{engine}: {listed}");
    // other servers are named; places are filled one after the other, and no request fails meanwhile
    names.says(&[(20, 50, c, "c")]);
    let is_c_alone = || {
        let counts = asked(&server, 10);
        assert!(counts.keys().all(|answer| answer.ends_with(" app.test")), "{engine}: {counts:?}");
        counts.len() == 1 && counts.contains_key("c app.test")
    };
    assert!(soon(PATIENCE, is_c_alone), "{engine}");
    server.says("b.app.test");
    // a name service that is gone changes nothing
    names.falls_silent();
    assert!(
        soon(PATIENCE, || server.stderr().contains("its servers stay as they are")),
        "{engine}"
    );
    assert_eq!(ask(&server), "c app.test", "{engine}");
    names.says(&[(1, 1, b, "b"), (1, 1, c, "c")]);
    assert!(soon(PATIENCE, || ask(&server) == "b app.test"), "{engine}");
    // the service is said not to be there
    names.says(&[]);
    assert!(soon(PATIENCE, || ask(&server) == "503"), "{engine}");
    names.says(&[(1, 1, a, "a")]);
    assert!(soon(PATIENCE, || ask(&server) == "a app.test"), "{engine}");
}
