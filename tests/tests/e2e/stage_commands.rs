//! Commands to a server with stages: receive answers those about the policy, and the changes outlive it.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::isolated::{UNHURRIED, signal, stage};
use crate::operator_bans::{OTHER, STRANGER, ask, done, forebay, start};
use forebay_tests::faults::soon;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ISOLATED, Server};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

const RULES: &str = "
[[class]]
name = \"gold\"
priority = 0
[[class]]
name = \"bulk\"
priority = 1
[[rule]]
name = \"each\"
requests = { rate = \"100/s\", burst = 1000, per = \"client\" }
";

fn served() -> (forebay_tests::faults::site::Folder, Server) {
    start(ISOLATED, &format!("{UNHURRIED}{RULES}"))
}

/// Kills receive, and waits until another answers commands.
fn crash_receive(server: &Server) {
    let pid = stage(server, "receive 1", 0);
    signal(pid, Signal::KILL);
    stage(server, "receive 1", pid);
    assert!(soon(PATIENCE, || forebay(server, &["policy", "bans"]).0 == Some(0)));
}

#[test]
fn commands_about_the_policy_are_answered() {
    let (_folder, server) = served();
    assert_eq!(ask(&server, OTHER, ""), 200);
    let show = done(&server, &["policy", "show"]);
    assert!(show.contains("gold") && show.contains("bulk") && show.contains("each"), "{show}");
    let explained = done(&server, &["policy", "explain", "GET /"]);
    assert!(explained.contains("bulk"), "{explained}");
    done(&server, &["policy", "rule", "add", "closed", "path=/index*", "action=reject"]);
    let refused =
        server.exchange(b"GET /index.html HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(refused.starts_with(b"HTTP/1.1 403 "), "{}", String::from_utf8_lossy(&refused));
    done(&server, &["policy", "rule", "remove", "closed"]);
    let (code, said) = forebay(&server, &["policy", "set", "silver.delay=5ms"]);
    assert!(code == Some(2) && said.contains("silver"), "{code:?} {said}");
    assert_eq!(done(&server, &["upstream", "list"]), "no applications\n");
    let (code, said) = forebay(&server, &["why", "nothing"]);
    assert!(code == Some(1) && said.contains("nothing"), "{code:?} {said}");
}

#[test]
fn what_commands_have_changed_outlives_receive() {
    let (_folder, server) = served();
    done(&server, &["policy", "ban", STRANGER, "--for", "2h", "--why", "a flood"]);
    done(&server, &["policy", "set", "--keep", "each.requests.burst=1"]);
    done(&server, &["policy", "set", "each.requests.rate=1/h"]);
    for _ in 0..2 {
        crash_receive(&server);
        assert_eq!(ask(&server, STRANGER, ""), 0);
        assert_eq!([ask(&server, OTHER, ""), ask(&server, OTHER, "")], [200, 429]);
        let status = done(&server, &["status"]);
        for line in [
            "receive  1",
            "bans: 1 by command",
            "policy set: each.requests.burst=1 (kept through reloads)",
            "policy set: each.requests.rate=1/h (until the next reload)",
        ] {
            assert!(status.contains(line), "{line}: {status}");
        }
    }
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    crash_receive(&server);
    let status = done(&server, &["status"]);
    assert!(status.contains("burst=1 (kept") && !status.contains("rate="), "{status}");
    assert_eq!(ask(&server, STRANGER, ""), 0);
    done(&server, &["policy", "unban", STRANGER]);
    crash_receive(&server);
    assert_eq!(ask(&server, STRANGER, ""), 200);
}

/// A change during a reload is either made in the old stages, and carried over to the new ones, or made
/// in the new ones.
#[test]
fn no_change_is_lost_in_a_reload() {
    let (_folder, server) = served();
    let bans = thread::scope(|scope| {
        let reloads = scope.spawn(|| {
            for _ in 0..3 {
                let (code, said) = server.reload();
                assert_eq!(code, Some(0), "{said}");
            }
        });
        let mut bans = Vec::new();
        while !reloads.is_finished() {
            bans.push(format!("203.0.113.{}", bans.len() + 1));
            done(&server, &["policy", "ban", bans.last().unwrap()]);
        }
        bans
    });
    let shown = done(&server, &["policy", "bans"]);
    for ban in &bans {
        assert!(shown.lines().any(|line| line.starts_with(&format!("{ban} "))), "{ban}: {shown}");
    }
}

/// Adds a rule as a program does, and stays connected.
fn program(socket: &Path) -> BufReader<UnixStream> {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut program = BufReader::new(stream);
    let put = "{\"id\":1,\"do\":\"put\",\"rules\":[{\"name\":\"shut\",\"path\":\"/\",\"action\":\"reject\"}]}\n";
    let hello = "{\"id\":0,\"do\":\"hello\",\"owner\":\"one\",\"lease_ms\":600000}\n";
    program.get_mut().write_all(format!("{hello}{put}").as_bytes()).unwrap();
    for _ in 0..2 {
        let mut answer = String::new();
        program.read_line(&mut answer).unwrap();
        assert!(answer.contains("\"ok\":true"), "{answer}");
    }
    program
}

#[test]
fn a_program_that_stays_speaks_with_receive_and_hears_when_that_ends() {
    let socket = format!("forebay-stage-commands-{}.sock", std::process::id());
    let socket = std::env::temp_dir().join(socket);
    let config = format!("control.socket = {socket:?}\n{UNHURRIED}{RULES}");
    let (_folder, server) = start(ISOLATED, &config);
    let left = program(&socket);
    assert_eq!(ask(&server, OTHER, ""), 403);
    drop(left);
    assert!(soon(PATIENCE, || ask(&server, OTHER, "") == 200), "its rules go with it");
    let mut crashed = program(&socket);
    crash_receive(&server);
    assert_eq!(crashed.read(&mut [0; 64]).unwrap(), 0);
    assert!(soon(PATIENCE, || ask(&server, OTHER, "") == 200), "its rules went with receive");
    let mut replaced = program(&socket);
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(replaced.read(&mut [0; 64]).unwrap(), 0);
    assert!(soon(PATIENCE, || ask(&server, OTHER, "") == 200), "its rules went with receive");
    drop(program(&socket));
}

/// Answers each request with its name, and ends the connection.
fn named(name: &'static str) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                    head.push(byte[0]);
                }
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{name}",
                    name.len()
                );
                let _ = stream.write_all(answer.as_bytes());
            });
        }
    });
    addr
}

#[test]
fn an_upstream_is_drained_in_all_processes_and_stays_so() {
    let [one, two] = ["one", "two"].map(named);
    let lines =
        format!("{UNHURRIED}[[proxy]]\npath = \"/\"\nto = [\"http://{one}\", \"http://{two}\"]\n");
    let (_folder, server) = start(ISOLATED, &lines);
    let who = || -> BTreeSet<String> {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let answers = (0..20).map(|_| server.exchange(request));
        let texts = answers.map(|answer| String::from_utf8(answer).unwrap());
        texts.map(|text| text.rsplit("\r\n").next().unwrap().to_owned()).collect()
    };
    let both = BTreeSet::from(["one", "two"].map(str::to_owned));
    let last = BTreeSet::from(["two".to_owned()]);
    assert!(soon(PATIENCE, || who() == both));
    let list = done(&server, &["upstream", "list"]);
    assert!(list.contains(&one.to_string()) && list.contains("proxy /"), "{list}");
    let said = done(&server, &["upstream", "drain", &format!("http://{one}/")]);
    assert!(said.contains("is drained"), "{said}");
    assert_eq!(who(), last);
    // processes that come later are told
    for name in ["respond 1", "respond 2"] {
        let pid = stage(&server, name, 0);
        signal(pid, Signal::KILL);
        stage(&server, name, pid);
    }
    assert!(soon(PATIENCE, || who() == last));
    done(&server, &["reload"]);
    assert!(soon(PATIENCE, || who() == last));
    done(&server, &["upstream", "resume", &one.to_string()]);
    assert!(soon(PATIENCE, || who() == both));
    let (code, said) = forebay(&server, &["upstream", "drain", "10.0.0.3:9000"]);
    assert!(code == Some(1) && said.contains("no upstream is called"), "{code:?} {said}");
}
