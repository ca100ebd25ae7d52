//! `forebay policy`, with the real program: what it says about files and running servers.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::server::binary;
use forebay_tests::{Options, Server};
use std::io::Write;
use std::process::{Command, Output, Stdio};

const POLICY: &str = r#"
[[class]]
name = "gold"
priority = 0
[[class]]
name = "bulk"
priority = 1
share = "10%"
[[rule]]
name = "partner network"
client = "10.0.0.0/8"
class = "gold"
connections = { rate = "300/s", burst = 5 }
[[rule]]
name = "costly search"
site = "shop.example"
path = "/search*"
requests = { rate = "60/s", burst = 10 }
[[rule]]
name = "only in need"
when = "overload"
in_flight.most = 5
"#;

fn policy(arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.arg("policy").args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Standard output of a command that succeeds.
fn said(arguments: &[&str]) -> String {
    let output = policy(arguments);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {out}{err}");
    out
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn start() -> Server {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/site");
    Server::start(&Options::new(root).config(POLICY))
}

const DECIDED: [&str; 5] = [
    "connections  300/s, burst 5, over: reset, by rule \"partner network\"",
    "class        gold, by rule \"partner network\"",
    "path         /search",
    "requests     60/s, burst 10, over: reject 503, by rule \"costly search\"",
    "in_flight    none",
];

#[test]
fn a_running_server_explains() {
    let server = start();
    let file = server.file();
    let file = file.to_str().unwrap();
    let line = "GET //search?q=a HTTP/1.1";
    let ask =
        ["explain", "-c", file, "--client", "10.1.1.1:4711", "-H", "Host: Shop.Example", line];
    let explained = said(&ask);
    for line in DECIDED {
        assert!(explained.contains(line), "no {line:?} in:\n{explained}");
    }
    let overload = said(&[&ask[..], &["--overload"]].concat());
    assert!(overload.contains("in_flight    5 at once"), "{overload}");
    // the head by standard input, as curl -v or a log has it
    let mut child = Command::new(binary())
        .args(["policy", "explain", "-c", file, "--client", "10.1.1.1:4711"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let head = format!("{line}\nHost: Shop.Example\nAccept: */*\n\n");
    child.stdin.take().unwrap().write_all(head.as_bytes()).unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), explained);
}

#[test]
fn a_file_is_explained_where_no_server_runs() {
    let mut server = start();
    let (file, folder) = (server.file(), server.folder().to_owned());
    let copy = folder.join("copy.toml");
    std::fs::copy(&file, &copy).unwrap();
    let path = copy.to_str().unwrap();
    let ask =
        ["explain", "-c", path, "--client", "10.1.1.1", "-H", "Host: shop.example", "/search"];
    let output = policy(&ask);
    assert_eq!(
        text(&output.stderr),
        format!("no server runs {path}: this is what the file says\n")
    );
    let explained = text(&output.stdout);
    for line in DECIDED {
        assert!(explained.contains(line), "no {line:?} in:\n{explained}");
    }
    let offline = policy(&[&ask[..], &["--offline"]].concat());
    assert_eq!((text(&offline.stdout), text(&offline.stderr)), (explained, String::new()));
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait(std::time::Duration::from_secs(10)).is_some());
}

#[test]
fn what_cannot_be_explained_says_why() {
    let server = start();
    let file = server.file();
    let file = file.to_str().unwrap();
    let output = policy(&["explain", "-c", file, "GET / HTTP/1.1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("the server answers this head with 400"), "{output:?}");
    let output = policy(&["explain", "-c", file, "--client", "nobody", "/"]);
    assert_eq!(output.status.code(), Some(2));
    let output = policy(&["explain", "-c", "/nonexistent.toml", "/"]);
    assert_eq!(output.status.code(), Some(78));
}
