//! `forebay policy`, with the real program: its output about files and running servers.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::faults::process::threads;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, Options, Server};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

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
    assert!(server.wait(PATIENCE).is_some());
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

/// The status of an answer on a connection that is kept.
fn status(stream: &mut BufReader<TcpStream>, target: &str, fields: &str) -> u16 {
    let request = format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\n{fields}\r\n");
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    let (mut line, mut status, mut length) = (String::new(), 0, 0);
    stream.read_line(&mut line).unwrap();
    if let Some(code) = line.split(' ').nth(1) {
        status = code.parse().unwrap();
    }
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).unwrap();
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    stream.read_exact(&mut vec![0; length]).unwrap();
    status
}

#[test]
fn what_is_set_holds_at_once_and_until_the_next_reload() {
    for engine in ENGINES {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/site");
        let server = Server::start(&Options::new(root).engine(engine).config(POLICY));
        let file = server.file();
        let file = file.to_str().unwrap();
        let mut kept = BufReader::new(server.connect());
        assert_eq!(status(&mut kept, "/", ""), 200, "{engine}");
        let set = ["set", "-c", file, "costly search.path=/*", "costly search.action=reject"];
        let said_of_set = said(&set);
        let expected = format!(
            "costly search.path = \"/*\", was \"/search*\"\n\
             costly search.action = \"reject\", was not set\n\
             in force, and lost at the next reload, unless {file} says it too; --keep keeps it\n"
        );
        assert_eq!(said_of_set, expected, "{engine}");
        // the connection stays, and its next request is judged by the new rules
        assert_eq!(status(&mut kept, "/", ""), 403, "{engine}");
        let shown = said(&["show", "-c", file]);
        assert!(
            shown
                .contains("rule \"costly search\"\n  site        shop.example\n  path        /*\n")
        );
        assert!(shown.contains("  action      reject 403\n"), "{shown}");
        // the order of service too
        said(&["set", "-c", file, "gold.priority=2", "costly search.action=allow"]);
        assert_eq!(status(&mut kept, "/", ""), 200, "{engine}");
        assert_eq!(status(&mut BufReader::new(server.connect()), "/", ""), 200, "{engine}");
        let classes: Vec<String> = said(&["show", "-c", file]).lines().map(str::to_owned).collect();
        assert!(classes[3].starts_with("bulk") && classes[4].starts_with("gold"), "{classes:?}");
        let (code, _) = server.reload();
        assert_eq!(code, Some(0));
        let shown = said(&["show", "-c", file]);
        assert!(shown.contains("  path        /search*\n"), "{shown}");
        assert!(!shown.contains("\n  action"), "{shown}");
    }
}

/// The server's threads, without those that take commands and prepare what they ask for, which come and
/// go.
fn lasting_threads(served: &WatchedServer) -> BTreeMap<u32, String> {
    let mut threads = threads(served.pid());
    threads.retain(|_, name| !["control", "reload"].contains(&name.as_str()));
    threads
}

/// The server's lasting threads once they stay the same: a pool takes a moment to begin its threads, and
/// the kernel leaves some out of its list while another ends.
fn settled_threads(served: &WatchedServer) -> BTreeMap<u32, String> {
    loop {
        let seen = lasting_threads(served);
        std::thread::sleep(Duration::from_millis(100));
        if lasting_threads(served) == seen {
            return seen;
        }
    }
}

/// After a change of classes, and one request on `kept` that needs a job, the server has the threads it
/// had before.
fn assert_same_threads(served: &WatchedServer, kept: &mut BufReader<TcpStream>, change: impl Fn()) {
    for number in 0.. {
        let began = Instant::now();
        assert_eq!(status(kept, &format!("/missing-before-{number}"), ""), 404);
        let before = settled_threads(served);
        change();
        assert_eq!(status(kept, &format!("/missing-after-{number}"), ""), 404);
        let after = settled_threads(served);
        // A helper thread ends after 10 s without work: a machine that is so slow tries again.
        if began.elapsed() < Duration::from_secs(9) {
            let differs = |id: &u32| before.contains_key(id) != after.contains_key(id);
            let differ: Vec<_> =
                before.iter().chain(&after).filter(|(id, _)| differs(id)).collect();
            // a helper that has been idle for long, while another was not; a helper that a change has ended
            // would be started again by the request behind it
            let is_old = |(id, name): &(&u32, &String)| {
                before.contains_key(*id) && name.starts_with("helper-")
            };
            if number < 3 && !differ.is_empty() && differ.iter().all(is_old) {
                continue;
            }
            assert!(differ.is_empty(), "begun or ended: {differ:?}");
            return;
        }
    }
}

#[test]
fn a_changed_class_keeps_threads_connections_and_tables_of_paths() {
    for engine in ENGINES.iter().copied().chain(["pipeline:never"]) {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/site");
        let options = Options::new(root).engine(engine);
        // the pipeline's controller may want other threads at any time
        let options = match engine.starts_with("pipeline") {
            true => options.config("pipeline.by = \"fixed\""),
            false => options,
        };
        let served = WatchedServer::with(options.clone().config(POLICY));
        if engine == "pool" {
            let begun =
                || threads(served.pid()).values().filter(|it| it.starts_with("pool-")).count();
            assert!(soon(PATIENCE, || begun() == options.workers), "{} threads", begun());
        }
        let file = served.file();
        let file = file.to_str().unwrap();
        let mut kept = BufReader::new(served.connect());
        // a miss, a hit for all, and from then on one of this loop's or thread's own
        assert_eq!([(); 3].map(|()| status(&mut kept, "/", "")), [200; 3], "{engine}");
        let shared = || served.metric("forebay_cache_shared_hits_total");
        let before = shared();
        assert!(before > 0, "{engine}");
        assert_same_threads(&served, &mut kept, || {
            let assignments =
                ["bulk.share=25%", "gold.delay=7ms", "partner network.connections.rate=200/s"];
            said(&[&["set", "-c", file][..], &assignments].concat());
        });
        let shown = said(&["show", "-c", file]);
        assert!(shown.contains("25%") && shown.contains("7 ms"), "{engine}: {shown}");
        assert!(shown.contains("200/s"), "{engine}: {shown}");
        assert_eq!(status(&mut kept, "/", ""), 200, "{engine}");
        // threads lay their tables down when they wait; loops keep theirs
        if ["event", "fibers", "pipeline"].contains(&engine) {
            assert_eq!(shared(), before, "{engine}");
        }

        // another name is another ledger, in the same threads
        let admin = format!("admin.listen = \"{}\"", served.admin());
        let configure = |policy: &str| {
            served.configure(&options.clone().config(&admin).config(policy));
            let (code, said) = served.reload();
            assert_eq!(code, Some(0), "{engine}: {said}");
        };
        let renamed = POLICY.replace("\"bulk\"", "\"economy\"");
        assert_same_threads(&served, &mut kept, || configure(&renamed));
        assert_eq!(status(&mut kept, "/", ""), 200, "{engine}");
        let series = "forebay_class_worker_seconds_total{class=\"economy\"} ";
        let has_worked = || {
            let metrics = served.metrics();
            let worked = metrics.lines().find_map(|line| line.strip_prefix(series));
            worked.is_some_and(|seconds| seconds.parse::<f64>().unwrap() > 0.0)
        };
        // a thread of process says so a moment after the client has its answer
        assert!(soon(PATIENCE, has_worked), "{engine}: {}", served.metrics());

        // another class needs other workers, and the connection stays with the old ones
        configure(&format!("{renamed}[[class]]\nname = \"least\"\npriority = 2\n"));
        assert_eq!(status(&mut kept, "/", ""), 200, "{engine}");
        assert_eq!(status(&mut BufReader::new(served.connect()), "/", ""), 200, "{engine}");
    }
}

#[test]
fn what_cannot_be_set_says_why_and_changes_nothing() {
    let server = start();
    let file = server.file();
    let file = file.to_str().unwrap();
    let before = said(&["show", "-c", file]);
    for (assignments, expected) in [
        (&["gold"][..], "\"gold\" is no assignment: NAME.KEY=VALUE is expected"),
        (
            &["gold.delay=1ms", "gold.dealy=1ms"],
            "the class \"gold\" has no setting \"dealy\", did you mean \"delay\"?",
        ),
        (&["bulk.share=120%"], "bulk.share: 120% is out of range, from 0% to 100% is allowed"),
        (
            &["partner network.class=silver"],
            "rule \"partner network\": class: there is no class \"silver\", only \"gold\", \"bulk\"",
        ),
    ] {
        let output = policy(&[&["set", "-c", file][..], assignments].concat());
        assert_eq!(output.status.code(), Some(2), "{assignments:?}");
        let message = text(&output.stderr);
        assert!(message.starts_with(expected), "{message}");
        assert!(message.ends_with("nothing has changed: generation 1\n"), "{message}");
        assert_eq!(said(&["show", "-c", file]), before);
    }
    assert_eq!(policy(&["set", "-c", file]).status.code(), Some(2));
}

#[test]
fn requests_are_counted_by_class_and_watched() {
    let server = start();
    let file = server.file();
    let file = file.to_str().unwrap();
    let mut watch = Command::new(binary())
        .args(["policy", "watch", "-c", file, "--seconds", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut client = BufReader::new(server.connect());
    let mut count = 0;
    while watch.try_wait().unwrap().is_none() {
        assert_eq!(status(&mut client, "/", ""), 200);
        count += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = text(&watch.wait_with_output().unwrap().stdout);
    let lines: Vec<Vec<&str>> =
        output.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..3], ["class", "offered/s", "admitted/s"], "{output}");
    let classes: Vec<&str> = lines[1..].iter().map(|line| line[0]).collect();
    assert_eq!(classes, ["gold", "bulk", "gold", "bulk"], "{output}");
    // a request that no rule classifies is of the last class
    let offered = |line: usize| lines[line][1].parse::<f64>().unwrap();
    assert!(offered(2) + offered(4) > 0.0, "{output}");
    assert_eq!((lines[1][1], lines[1][3]), ("0", "0"), "{output}");
    // offered and answered; the last may still be settled
    let is_counted = || {
        let shown = said(&["show", "-c", file]);
        let bulk = shown.lines().find(|line| line.starts_with("bulk")).unwrap();
        bulk.split_whitespace().nth(7) == Some(&*count.to_string())
    };
    assert!(soon(PATIENCE, is_counted), "not {count} in {}", said(&["show", "-c", file]));
}

#[test]
fn many_rules_are_told_in_few_lines() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/site");
    let rule = |number: u32| {
        format!(
            "[[rule]]\nname = \"site {number}\"\nsite = \"shop{number}.example\"\npath = \"/a\"\n\
             class = \"gold\"\n"
        )
    };
    let rules: String = (0..3000).map(rule).collect();
    let closed = "[[rule]]\nname = \"closed\"\npath = \"/closed\"\naction = \"reject\"\n";
    let server = Server::start(&Options::new(root).config(&format!("{POLICY}{rules}{closed}")));
    let file = server.file();
    let file = file.to_str().unwrap();

    let explain = ["explain", "-c", file, "-H", "Host: shop1234.example", "/a"];
    let told = said(&explain);
    assert!(told.contains("  \"site 1234\": matches, decides class\n"), "{told}");
    assert!(told.contains("  \"site 0\": site does not match\n"), "{told}");
    assert!(told.ends_with("  not shown: 2979 near, 3 not matching\n"), "{told}");
    assert!(told.lines().count() < 50, "{told}");
    let all = said(&[&explain[..], &["--all"]].concat());
    assert_eq!(all.matches("  \"site 7\": site does not match\n").count(), 1);
    assert!(all.lines().count() > 2 * 3000, "each in both phases");

    let mut client = BufReader::new(server.connect());
    let mut shown = said(&["show", "-c", file]);
    let names = |text: &str| {
        let names = text.lines().filter_map(|line| Some(line.strip_prefix("rule ")?.to_owned()));
        names.collect::<Vec<_>>()
    };
    let limiting = ["\"partner network\"", "\"costly search\"", "\"only in need\""];
    assert_eq!(names(&shown), limiting, "{shown}");
    assert!(shown.ends_with("have decided nothing: 3001 (--all)\n"), "{shown}");
    assert_eq!([0; 2].map(|_| status(&mut client, "/closed", "")), [403; 2]);
    shown = said(&["show", "-c", file]);
    assert_eq!(names(&shown)[3..], ["\"closed\""], "{shown}");
    assert!(
        shown.contains("  action      reject 403\n  so far      2 matched, 2 refused\n"),
        "{shown}"
    );
    assert!(shown.ends_with("have decided nothing: 3000 (--all)\n"), "{shown}");

    shown = said(&["show", "-c", file, "site *99"]);
    assert_eq!(names(&shown).len(), 30, "{shown}");
    assert!(shown.starts_with("agent off, load "), "{shown}");
    let is_normal = || said(&["show", "-c", file]).starts_with("agent off, load normal\n");
    assert!(soon(PATIENCE, is_normal), "{}", said(&["show", "-c", file]));
    assert!(shown.contains("  class       gold\n  so far      has decided nothing\n"), "{shown}");
    shown = said(&["show", "-c", file, "site9"]);
    assert!(shown.ends_with("no rule is called \"site9\", of 3004\n"), "{shown}");
    assert_eq!(names(&said(&["show", "-c", file, "--all"])).len(), 3004);
    assert_eq!(policy(&["show", "-c", file, "--all", "closed"]).status.code(), Some(2));
}

#[test]
fn limits_keep_what_they_have_counted() {
    const LIMIT: &str = r#"
[[rule]]
name = "few"
path = "/few*"
requests = { rate = "1/h", burst = 3 }
"#;
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/site");
    let server = Server::start(&Options::new(root).config(LIMIT));
    let file = server.file();
    let file = file.to_str().unwrap();
    let mut client = BufReader::new(server.connect());
    let mut ask = || status(&mut client, "/few", "");
    assert_eq!([ask(), ask()], [404, 404]);
    let left = |count: u32| {
        let shown = said(&["show", "-c", file]);
        assert!(shown.contains(&format!("over: reject 503; {count} left now\n")), "{shown}");
    };
    left(1);
    // another setting of the rule changes, and then the whole file is read again: the bucket stays
    said(&["set", "-c", file, "few.stop=true"]);
    left(1);
    assert_eq!(server.reload().0, Some(0));
    left(1);
    assert_eq!([ask(), ask()], [404, 503]);
    // the bucket may hold one more than have been taken
    said(&["set", "-c", file, "few.requests.burst=4"]);
    assert_eq!([ask(), ask()], [404, 503]);
    said(&["set", "-c", file, "few.requests=none", "few.class=default"]);
    assert_eq!([ask(), ask()], [404, 404]);
}

/// The bounds of a rate that the agent may move, and its present value; nothing moves while no request
/// comes.
#[test]
fn a_rate_that_may_move_is_shown() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/site");
    let lines = "agent = \"on\"\n[[rule]]\nname = \"search\"\npath = \"/search*\"\nmetric = true\n\
                 requests = { rate = \"100/s\", rate_min = \"10/s\", rate_max = \"200/s\" }\n";
    let served = WatchedServer::with(Options::new(root).config(lines));
    let file = served.file();
    let file = file.to_str().unwrap();
    let shown = said(&["show", "-c", file]);
    let expected = "  requests    100/s, burst 1, over: reject 503; 100.0/s now; 1 left now\n  \
                    moved       between 10/s and 200/s\n";
    assert!(shown.contains(expected), "{shown}");
    let explained = said(&["explain", "-c", file, "GET /search"]);
    let expected =
        "requests     100/s, burst 1, over: reject 503, moved between 10/s and 200/s, by rule";
    assert!(explained.contains(expected), "{explained}");
    let series = "forebay_rule_rate_requests_per_second{rule=\"search\"}";
    assert!(served.metrics().contains(&format!("{series} 100.000\n")), "{}", served.metrics());
    said(&["set", "-c", file, "search.requests.rate=20/s", "search.requests.rate_max=20/s"]);
    assert!(served.metrics().contains(&format!("{series} 20.000\n")), "{}", served.metrics());
    let output = policy(&["set", "-c", file, "search.requests.rate_min=21/s"]);
    let why = text(&output.stderr);
    assert!(
        !output.status.success() && why.contains("rate_min, 21/s, is above the rate, 20/s"),
        "{why}"
    );
}
