//! The requests that have a line in an access log, and what the line says of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, on_each_engine};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

on_each_engine!(a_request_that_was_given_up_has_a_line);

struct Logged {
    server: Server,
    log: PathBuf,
    _folder: Folder,
}

impl Logged {
    /// A server with the log `access.log`; `SITE` in the settings is its root.
    fn start(engine: Option<&str>, settings: &str) -> Logged {
        let folder = Folder::new();
        folder.write("site/a.txt", "a");
        let log = folder.join("access.log");
        let options = Options { user: None, ..Options::new(folder.join("site")) };
        let options = match engine {
            Some(engine) => options.engine(engine),
            None => options,
        };
        let lines = format!("log.access = {:?}\n{settings}", log.to_str().unwrap());
        let options = Options { log: true, ..options.config(&lines) };
        Logged { server: Server::start(&options), log, _folder: folder }
    }

    fn get(&self, host: &str, path: &str) {
        let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
        assert!(!self.server.exchange(request.as_bytes()).is_empty());
    }

    /// All lines, once there are at least this many.
    fn lines(&self, least: usize) -> Vec<String> {
        let read = || -> Vec<String> {
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        };
        assert!(soon(PATIENCE, || read().len() >= least), "{:?}", read());
        read()
    }
}

/// Lines that a condition leaves out are not written; the lines after them show that.
#[test]
fn lines_have_conditions() {
    let logged = Logged::start(
        None,
        "log.format = \"json\"\nlog.if = [\"status=4xx\", \"status!=405\", \"site!=quiet\"]\n\
         log.fields = [\"site\", \"target\", \"status\"]\n\
         [[site]]\nhosts = [\"loud.example\"]\nname = \"loud\"\n\
         [[site]]\nhosts = [\"quiet.example\"]\nname = \"quiet\"\n",
    );
    // on one connection: lines of two may be written in either order
    let requests = [
        "GET /a.txt HTTP/1.1\r\nHost: loud.example\r\n\r\n",
        "GET /none HTTP/1.1\r\nHost: loud.example\r\n\r\n",
        "GET /a.txt HTTP/1.1\r\nHost: quiet.example\r\n\r\n",
        "GET /none HTTP/1.1\r\nHost: quiet.example\r\n\r\n",
        "POST /post HTTP/1.1\r\nHost: loud.example\r\n\r\n",
        "GET /last HTTP/1.1\r\nHost: loud.example\r\nConnection: close\r\n\r\n",
    ];
    let answers = logged.server.exchange(requests.concat().as_bytes());
    let answers = String::from_utf8_lossy(&answers);
    assert_eq!(answers.matches("HTTP/1.1 ").count(), requests.len(), "{answers}");
    assert_eq!(
        logged.lines(2),
        [
            r#"{"site":"loud","target":"/none","status":404}"#,
            r#"{"site":"loud","target":"/last","status":404}"#
        ]
    );
}

#[test]
fn lines_of_a_class_are_written() {
    let logged = Logged::start(
        None,
        "log.format = \"json\"\nlog.if = [\"class=gold\"]\nlog.fields = [\"target\", \"class\"]\n\
         [[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"bulk\"\npriority = 1\n\
         default = true\n[[rule]]\npath = \"/gold\"\nclass = \"gold\"\n",
    );
    logged.get("a", "/a.txt");
    logged.get("a", "/gold");
    assert_eq!(logged.lines(1), [r#"{"target":"/gold","class":"gold"}"#]);
}

/// Each line of a sample says how many it stands for.
#[test]
fn a_sample_says_what_it_is() {
    let logged = Logged::start(None, "log.format = \"json\"\nlog.sample = 2\n");
    let mut asked = 0;
    while fs::metadata(&logged.log).map_or(0, |found| found.len()) == 0 && asked < 1_000 {
        logged.get("a", "/a.txt");
        asked += 1;
    }
    let line: Value = serde_json::from_str(&logged.lines(1)[0]).unwrap();
    assert_eq!(line["sample"], 2, "{line}");
}

/// The client leaves before it has sent the announced body. There is no answer, so there is no status;
/// formats that need one have no line.
fn a_request_that_was_given_up_has_a_line(engine: &str) {
    let logged = Logged::start(
        Some(engine),
        "log.format = \"json\"\nlog.if = [\"status=none\", \"status=404\"]\n",
    );
    let mut stream = logged.server.connect();
    stream.write_all(b"GET /left HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf").unwrap();
    drop(stream);
    let line: Value = serde_json::from_str(&logged.lines(1)[0]).unwrap();
    assert_eq!((&line["target"], &line["given_up"]), (&"/left".into(), &true.into()), "{line}");
    assert!(line.get("status").is_none() && line["bytes"] == 0, "{line}");
    // an answer is one line, and not given up
    logged.get("a", "/none");
    let lines = logged.lines(2);
    let line: Value = serde_json::from_str(&lines[1]).unwrap();
    assert!(
        lines.len() == 2 && line["status"] == 404 && line.get("given_up").is_none(),
        "{lines:?}"
    );
}

#[test]
fn other_formats_have_no_place_for_it() {
    let logged = Logged::start(None, "log.format = \"common\"\n");
    let mut stream = logged.server.connect();
    stream.write_all(b"GET /left HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf").unwrap();
    drop(stream);
    logged.get("a", "/a.txt");
    assert!(logged.lines(1)[0].contains("/a.txt"));
}
