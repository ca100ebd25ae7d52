//! Programs that change the policy over the control socket, with the real program.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::faults::soon;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const FILE: &str = "[[rule]]\nname = \"of the file\"\npath = \"/closed\"\naction = \"reject\"\n";

fn start(engine: &str) -> (Server, PathBuf) {
    start_with(engine, FILE)
}

fn start_with(engine: &str, rules: &str) -> (Server, PathBuf) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let socket = format!("forebay-agents-{}-{number}.sock", std::process::id());
    let socket = std::env::temp_dir().join(socket);
    let config = format!("control.socket = {socket:?}\n{rules}");
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/site");
    (Server::start(&Options::new(root).engine(engine).config(&config)), socket)
}

fn status(server: &Server, path: &str) -> u16 {
    let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let answer = server.exchange(head.as_bytes());
    String::from_utf8_lossy(answer.get(9..12).unwrap_or(b"0")).parse().unwrap()
}

struct Agent(BufReader<UnixStream>);

impl Agent {
    fn connect(socket: &Path, mut hello: Value) -> Agent {
        // a hello without a lease has ten seconds, in which a busy machine may do little
        if hello["lease_ms"].is_null() {
            hello["lease_ms"] = json!(600_000);
        }
        let mut agent = Agent::begin(socket);
        assert_eq!(agent.ask(hello)["ok"], json!(true));
        agent
    }

    /// A connection on which nothing was sent yet.
    fn begin(socket: &Path) -> Agent {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Agent(BufReader::new(stream))
    }

    /// Sends all of this at once.
    fn say(&mut self, lines: &str) {
        self.0.get_mut().write_all(lines.as_bytes()).unwrap();
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the connection has ended");
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, wish: Value) -> Value {
        self.say(&format!("{wish}\n"));
        loop {
            let answer = self.next();
            if answer["event"].is_null() {
                assert_eq!(answer["id"], wish["id"]);
                return answer;
            }
        }
    }

    #[track_caller]
    fn granted(&mut self, wish: Value) {
        let answer = self.ask(wish);
        assert_eq!(answer["ok"], json!(true), "{answer}");
    }

    #[track_caller]
    fn denied(&mut self, wish: Value, why: &str) {
        let answer = self.ask(wish);
        let said = answer["error"].as_str().unwrap_or_default();
        assert!(answer["ok"] == json!(false) && said.contains(why), "{answer}");
    }
}

fn closed(path: &str, status: u16) -> Value {
    json!({ "name": path, "path": path, "action": "reject", "status": status })
}

forebay_tests::on_each_engine! { rules_come_and_go_with_their_program }

/// Rules of a program hold for the next request, come before those of the file, and go with the program.
fn rules_come_and_go_with_their_program(engine: &str) {
    let (server, socket) = start(engine);
    let hello = |owner: &str| json!({ "id": 0, "do": "hello", "owner": owner });
    let mut one = Agent::connect(&socket, hello("one"));
    assert_eq!((status(&server, "/"), status(&server, "/closed")), (200, 403));
    one.granted(
        json!({ "id": 1, "do": "put", "rules": [closed("/", 410), closed("/closed", 404)] }),
    );
    assert_eq!((status(&server, "/"), status(&server, "/closed")), (410, 404));
    one.granted(json!({ "id": "b", "do": "put", "rules": [closed("/", 451)] }));
    assert_eq!(status(&server, "/"), 451);

    let mut two = Agent::connect(&socket, hello("two"));
    two.denied(json!({ "id": 1, "do": "put", "rules": [closed("/", 429)] }), "none of yours");
    two.denied(json!({ "id": 2, "do": "remove", "rules": ["of the file"] }), "none of yours");
    two.denied(json!({ "id": 3, "do": "put", "rules": [{ "name": "x", "pth": "/" }] }), "pth");
    two.denied(json!({ "id": 4, "do": "hello", "owner": "two" }), "hello was said");
    two.granted(json!({ "id": 5, "do": "put", "rules": [closed("/guide.html", 429)] }));

    // a reload keeps what programs have added
    assert_eq!(server.reload().0, Some(0));
    assert_eq!((status(&server, "/"), status(&server, "/guide.html")), (451, 429));
    one.granted(json!({ "id": 9, "do": "remove", "rules": ["/closed"] }));
    assert_eq!((status(&server, "/"), status(&server, "/closed")), (451, 403));
    drop(one);
    assert!(soon(PATIENCE, || status(&server, "/") == 200));
    assert_eq!(status(&server, "/guide.html"), 429);
    for line in ["one: put rule \"/\", rule \"/closed\"", "one: it has left: 1 rules and classes"] {
        assert!(soon(PATIENCE, || server.stderr().contains(line)), "no {line:?}");
    }
}

/// Rules of the file without a name are named after their place in it, whatever programs add before them:
/// their limits go on, and no name is taken twice when programs leave.
#[test]
fn rules_without_names_keep_theirs() {
    let (server, socket) = start_with(
        "event",
        "[[rule]]\npath = \"/guide.html\"\nrequests = { rate = \"1/h\", burst = 2 }\n",
    );
    let hello = |owner: &str| json!({ "id": 0, "do": "hello", "owner": owner });
    assert_eq!([status(&server, "/guide.html"), status(&server, "/guide.html")], [200, 200]);
    let mut one = Agent::connect(&socket, hello("one"));
    one.granted(json!({ "id": 1, "do": "put", "rules": [closed("/a", 410), closed("/b", 410)] }));
    assert_eq!(status(&server, "/guide.html"), 503, "the limit has counted two");
    let mut two = Agent::connect(&socket, hello("two"));
    let called = |name: &str| json!({ "name": name, "path": "/c", "action": "reject" });
    two.denied(json!({ "id": 1, "do": "put", "rules": [called("rule 1")] }), "taken");
    two.granted(json!({ "id": 2, "do": "put", "rules": [called("rule 2"), called("rule 3")] }));
    drop(one);
    assert!(soon(PATIENCE, || status(&server, "/a") == 404), "{}", server.stderr());
    assert_eq!((status(&server, "/c"), status(&server, "/guide.html")), (403, 503));
    drop(two);
    assert!(soon(PATIENCE, || status(&server, "/c") == 404), "{}", server.stderr());
    assert_eq!(status(&server, "/guide.html"), 503);
}

/// A class of a program goes with it, so no rule of the file may give it.
#[test]
fn a_class_of_a_program_is_for_programs() {
    let (server, socket) = start("event");
    let mut agent = Agent::connect(&socket, json!({ "id": 0, "do": "hello", "owner": "a" }));
    let classes = [json!({ "name": "slow", "priority": 9 })];
    agent.granted(json!({ "id": 1, "do": "put", "classes": classes, "rules": [closed("/", 410)] }));
    let set = |assignment: &str| {
        let mut command = Command::new(forebay_tests::server::binary());
        command.args(["policy", "set", "-c"]).arg(server.file()).arg(assignment);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = set("of the file.class=slow");
    assert!(code == Some(2) && said.contains("there is no class \"slow\""), "{code:?} {said}");
    assert_eq!(set("/.class=slow").0, Some(0), "that rule goes with the program");
    drop(agent);
    assert!(soon(PATIENCE, || status(&server, "/") == 200), "{}", server.stderr());
}

/// A line that is no request, that is too long or incomplete, is answered and changes nothing.
#[test]
fn odd_lines_are_answered() {
    let (server, socket) = start("event");
    let mut agent = Agent::connect(&socket, json!({ "id": 0, "do": "hello", "owner": "odd" }));
    let hundred_and_one: Vec<_> = (0..101).map(|n| closed(&format!("/{n}"), 410)).collect();
    let put = |rule: &str| format!("{{\"do\":\"put\",\"rules\":[{rule}]}}");
    let deep = put(&format!("{{\"name\":\"a\",\"path\":{}{}}}", "[".repeat(100), "]".repeat(100)));
    for (line, why) in [
        ("", "a line is one object of JSON"),
        ("[1]", "a line is one object of JSON"),
        ("{\"do\":1}", "\"do\" is hello"),
        (&*put("{\"path\":\"/\",\"action\":\"reset\"}"), "a rule has a name"),
        (&put("{\"name\":\"a\\nb\",\"action\":\"reset\"}"), "rule.name"),
        (&put("{\"name\":\"a\u{7f}\",\"action\":\"reset\"}"), "odd: invalid basic string"),
        (&put("{\"name\":\"a\",\"owner\":\"b\",\"action\":\"reset\"}"), "rule.owner: unknown key"),
        (&put("{\"name\":\"a\",\"path\":\"~((\",\"action\":\"reset\"}"), "regular expression"),
        (&deep, "recurse"),
        (&json!({ "do": "put", "rules": hundred_and_one }).to_string(), "at most 100 rules"),
    ] {
        writeln!(agent.0.get_mut(), "{line}").unwrap();
        let answer = agent.next();
        let said = answer["error"].as_str().unwrap_or_default();
        assert!(answer["ok"] == json!(false) && said.contains(why), "{line}: {answer}");
    }
    agent.granted(json!({ "id": 1, "do": "put", "rules": [closed("/", 410)] }));
    // half a line is no request, and the name has no owner
    write!(agent.0.get_mut(), "{{\"do\":\"remove\",\"rules\":[\"/\"]").unwrap();
    assert_eq!(status(&server, "/"), 410);
    drop(agent);
    assert!(soon(PATIENCE, || status(&server, "/") == 200));
    let mut long = Agent::connect(&socket, json!({ "id": 0, "do": "hello", "owner": "long" }));
    long.granted(json!({ "id": 1, "do": "put", "rules": [closed("/", 410)] }));
    let writer = long.0.get_ref().try_clone().unwrap();
    let sends = std::thread::spawn(move || {
        // the server goes away before it has read all of that
        let _ = (&writer).write_all(&[b'{'; 300 * 1024]);
    });
    let answer = long.next();
    assert_eq!(answer["error"], json!("a line has at most 256 KiB"));
    sends.join().unwrap();
    assert!(soon(PATIENCE, || status(&server, "/") == 200));
}

/// A program that is silent for longer than its lease loses its rules, even while it is connected.
#[test]
fn a_lease_ends() {
    let (server, socket) = start("event");
    let hello = json!({ "id": 0, "do": "hello", "owner": "silent", "lease_ms": 500 });
    let put = json!({ "id": 1, "do": "put", "rules": [closed("/", 410)] });
    let mut silent = Agent::begin(&socket);
    // both come at once: the lease does not end between them
    silent.say(&format!("{hello}\n{put}\n"));
    for id in [0, 1] {
        let answer = silent.next();
        assert_eq!((&answer["id"], &answer["ok"]), (&json!(id), &json!(true)), "{answer}");
    }
    assert_eq!(silent.next(), json!({ "event": "lease_ended" }));
    assert!(soon(PATIENCE, || status(&server, "/") == 200));
    assert!(soon(PATIENCE, || server.stderr().contains("silent: its lease has ended")));
    // an agent that sends no hello, or nonsense, changes nothing
    let mut nobody = Agent::begin(&socket);
    let put = json!({ "id": 1, "do": "put", "rules": [] });
    // at once, too: a hello is waited for for 5 s
    nobody.say(&format!("{put}\n{{nonsense\n"));
    let answer = nobody.next();
    let said = answer["error"].as_str().unwrap_or_default();
    assert!(answer["ok"] == json!(false) && said.contains("say hello first"), "{answer}");
    assert_eq!(answer["id"], json!(1));
    assert_eq!(nobody.next()["ok"], json!(false));
}

/// Statistics come as long as the program wants them, and a class of its own goes with it.
#[test]
fn statistics_are_sent_and_classes_go() {
    let (server, socket) = start("event");
    let mut agent = Agent::connect(&socket, json!({ "id": 0, "do": "hello", "owner": "a" }));
    let class = json!({ "name": "slow", "priority": 9 });
    let rule = json!({ "name": "r", "path": "/", "class": "slow" });
    let gold = json!({ "name": "gold", "priority": 0, "default": true });
    agent.granted(json!({ "id": 1, "do": "put", "classes": [gold, class], "rules": [rule] }));
    assert_eq!(status(&server, "/"), 200);
    agent.granted(json!({ "id": 2, "do": "stats", "every_ms": 100 }));
    assert!(soon(PATIENCE, || {
        let event = agent.next();
        let stats = &event["stats"];
        stats["rules"]["r"]["matched"] == json!(1)
            && stats["classes"]["slow"]["offered"] == json!(1)
    }));
    drop(agent);
    assert!(soon(PATIENCE, || server.stderr().contains("a: it has left: 3 rules and classes")));
    assert!(soon(PATIENCE, || status(&server, "/") == 200));
}

/// The example works as it is described.
#[test]
fn the_example_slows_a_class_down() {
    let (server, socket) = start("event");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/agent.py");
    let text = std::fs::read_to_string(script).unwrap();
    assert!(text.lines().count() <= 60, "it is to be read at a glance");
    let said = |text: &str| server.stderr().matches(text).count();
    let has_put = || said("example: put rule \"too much of default\"") > 0;
    let mut attempts = 0;
    while !has_put() {
        let mut example = Command::new("python3")
            .arg(script)
            .arg(&socket)
            .args(["default", "5"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let is_slowed = soon(PATIENCE, || {
            (0..20).any(|_| status(&server, "/") == 503) || example.try_wait().unwrap().is_some()
        });
        let _ = example.kill();
        let output = example.wait_with_output().unwrap();
        assert!(is_slowed, "{output:?}\n{}", server.stderr());
        attempts += 1;
        // the program ends with its lease of 5 s on a machine that does something else for that time
        let is_lost = || attempts < 3 && said("example: its lease has ended") == attempts;
        assert!(soon(PATIENCE, || has_put() || is_lost()), "{output:?}\n{}", server.stderr());
    }
    // with it, or before: it takes its rule back when few ask, as here while the machine is busy
    assert!(soon(PATIENCE, || (0..40).all(|_| status(&server, "/") == 200)));
}
