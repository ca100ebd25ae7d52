//! `forebay load` as a person types it: what it prints, what it writes, and its exit codes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::server::{binary, free_addr};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server};
use std::fs;
use std::process::{Command, Output};

/// Starts a server with one page of 100 bytes.
fn served() -> (WatchedServer, Folder) {
    let root = Folder::new();
    fs::write(root.join("page.txt"), "x".repeat(100)).unwrap();
    (WatchedServer::with(Options::new(root.join(""))), root)
}

/// Runs `forebay load` with these arguments.
fn load(args: &[&str]) -> Output {
    // answers on a machine that stands still come late
    let mut command = Command::new(binary());
    command.arg("load").args(args);
    if args.iter().any(|arg| ["-d", "--plan"].contains(arg)) {
        command.args(["--drain", "60s"]);
    }
    command.output().unwrap()
}

/// Runs `forebay load` for this time, and for longer until `is_so` holds: a closed loop whose thread
/// begins late asks for little, or for nothing.
fn load_for(first: &str, args: &[&str], is_so: impl Fn(&Output) -> bool) -> Output {
    let run = |time: &str| load(&[args, &["-d", time][..]].concat());
    let mut output = run(first);
    for time in ["4s", "16s"] {
        if is_so(&output) {
            break;
        }
        output = run(time);
    }
    output
}

/// Whether something was answered, and all conditions are met.
fn is_good(output: &Output) -> bool {
    output.status.success()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn a_closed_loop_is_measured_and_shown() {
    let (server, _root) = served();
    let url = format!("http://{}/page.txt", server.addr());
    let output = load_for("500ms", &[&url, "-c", "4", "-s", "length=100"], is_good);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    // A terminal would see progress; a pipe sees nothing.
    assert_eq!(text(&output.stderr), "");
    let table = text(&output.stdout);
    assert!(table.contains("all (closed, 4 connections, HTTP/1.1, keep-alive)"), "{table}");
    assert!(!table.contains("failures"), "{table}");
    assert!(table.contains("µs CPU per request"), "{table}");
}

#[test]
fn groups_come_from_options_and_from_a_file() {
    let (server, root) = served();
    let url = format!("http://{}/", server.addr());
    let file = root.join("plan.toml");
    let mut json = String::new();
    for (time, offered) in [("400ms", 40), ("4s", 400), ("16s", 1600)] {
        let plan = format!(
            "[run]\nurl = \"{url}\"\nduration = \"{time}\"\n\
             [[group]]\nname = \"gold\"\nrate = 100\nurl = \"/page.txt\"\n\
             [[group]]\nname = \"missing\"\nconnections = 2\nurl = \"/nothing\"\nstatus = 404\n"
        );
        fs::write(&file, plan).unwrap();
        let output = load(&["--plan", file.to_str().unwrap(), "--json", "-"]);
        json = text(&output.stdout);
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        let offered = format!("\"offered\": {offered}");
        assert!(json.contains("\"name\": \"gold\"") && json.contains(&offered), "{json}");
        // on a busy machine, the closed loop may have begun too late to send a request
        if json.contains("\"404\":") {
            break;
        }
    }
    assert!(json.contains("\"404\":"), "{json}");

    let (gold, flood) = ("gold:rate=100,url=/page.txt", "flood:connections=2,url=/nothing");
    let is_flooded =
        |output: &Output| text(&output.stdout).contains("flood failures: wrong status × ");
    let output = load_for("2s", &[&url, "--group", gold, "--group", flood], is_flooded);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert!(is_flooded(&output), "{}", text(&output.stdout));
}

/// The options that users know from ab and curl: a number of requests, field lines, a body, a method.
#[test]
fn a_number_of_requests_with_fields_and_a_body() {
    let (server, root) = served();
    let url = format!("http://{}/page.txt", server.addr());
    let output = load(&[&url, "-n", "25", "-c", "3", "-H", "Range: bytes=0-9", "-s", "length=10"]);
    let table = text(&output.stdout);
    assert_eq!(code(&output), 0, "{table}{}", text(&output.stderr));
    assert!(table.contains("all statuses: 206 × 25"), "{table}");
    assert!(table.contains(" p95 "), "{table}");
    let file = root.join("form");
    fs::write(&file, "x=1").unwrap();
    let body = format!("@{}", file.to_str().unwrap());
    let output = load(&[&url, "-n", "4", "--body", &body, "-s", "status=405"]);
    assert_eq!(code(&output), 0, "{}{}", text(&output.stdout), text(&output.stderr));
    let output = load(&[&url, "-n", "4", "--body", &body, "--method", "GET", "-s", "status=200"]);
    assert_eq!(code(&output), 0, "{}{}", text(&output.stdout), text(&output.stderr));
    for condition in ["p97.5<=1h", "errors<=0%", "rate>=0.001", "p42<1h"] {
        let output = load(&[&url, "-n", "4", "--expect", condition]);
        assert_eq!(code(&output), 0, "{condition}: {}", text(&output.stderr));
    }
}

#[test]
fn progress_is_said_where_nobody_watches_if_that_is_wanted() {
    let (server, _root) = served();
    let url = format!("http://{}/page.txt", server.addr());
    let output = load(&[&url, "-r", "50", "-d", "3s", "--progress"]);
    assert_eq!(code(&output), 0);
    let said = text(&output.stderr);
    let lines: Vec<_> = said.lines().collect();
    assert!((1..=3).contains(&lines.len()), "{said}");
    assert!(lines[0].starts_with("1/3 s  all ") || lines[0].starts_with("2/3 s  all "), "{said}");
}

#[test]
fn conditions_decide_the_exit_code() {
    let (server, root) = served();
    let url = format!("http://{}/page.txt", server.addr());
    let (json, html) = (root.join("run.json"), root.join("run.html"));
    let short = ["-r", "100", "-d", "300ms"];
    let output = load(
        &[&[&*url, "--json", json.to_str().unwrap(), "--expect", "errors<1%"], &short[..]].concat(),
    );
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let arguments = [
        &url,
        "--baseline",
        json.to_str().unwrap(),
        "--html",
        html.to_str().unwrap(),
        "--expect",
        "all.p50<1us",
    ];
    let output = load(&[&arguments[..], &short[..]].concat());
    assert_eq!(code(&output), 3);
    assert!(text(&output.stderr).starts_with("expected all.p50<1us: all has "));
    assert!(text(&output.stdout).contains("figure"));
    let page = fs::read_to_string(html).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("Compared with the run of"));
}

#[test]
fn what_is_wrong_is_said_before_the_run() {
    for (args, said) in [
        (&["ftp://127.0.0.1/"][..], "only http:// and https:// URLs can be loaded"),
        (&[][..], "no URL"),
        (&["http://127.0.0.1:1/", "-s", "conections=3"], "did you mean connections?"),
        (&["http://127.0.0.1:1/", "--expect", "gold.p99<1s"], "there is no such group"),
        (&["http://127.0.0.1:1/", "--expect", "p101<1s"], "no such figure"),
        (&["http://127.0.0.1:1/", "-n", "0"], "requests=0: expected a number, 1 or more"),
        (&["http://127.0.0.1:1/", "-H", "no colon"], "expected NAME: VALUE"),
        (&["http://127.0.0.1:1/", "--body", "@/nothing/there"], "a file that can be read"),
        (
            &["http://127.0.0.1:1/", "-n", "5", "-g", "a:rate=1"],
            "--requests is not for named groups",
        ),
        (&["http://127.0.0.1:1/", "-d", "15"], "expected a duration"),
        (&["http://127.0.0.1:1/", "-r", "5", "-s", "think=1s"], "a group with a rate"),
        (&["http://127.0.0.1:1/a b"], "a URL has no blanks, write %20"),
        (&["http://127.0.0.1:1/", "-c", "3", "-s", "connections=5"], "--connections says it"),
        (&["http://127.0.0.1:1/", "--http2", "-s", "http=1.0"], "--http2 says it already"),
        (&["http://127.0.0.1:1/", "-d", "1s", "-s", "ramp=10s"], "its last clients would never"),
        (&["http://127.0.0.1:1/", "--json", "-", "--html", "-"], "both have standard output"),
    ] {
        let output = load(args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert!(text(&output.stderr).contains(said), "{args:?}: {}", text(&output.stderr));
    }
}

/// What the machine lacks is reported before the run, and before the report is written.
#[test]
fn what_cannot_be_run_is_said_before_the_run() {
    let folder = Folder::new();
    let missing = folder.join("missing").join("report");
    let missing = missing.to_str().unwrap();
    for (args, said) in [
        (&["-s", "source=192.0.2.7"][..], "all: no connection can come from 192.0.2.7 (`source`)"),
        (&["-s", "source=::1"], "127.0.0.1 is of another family"),
        (&["--cores", "4095"], "there is no core 4095 for it; there are "),
        (&["--json", missing], "No such file or directory"),
        (&["--html", missing], "No such file or directory"),
    ] {
        let output = load(&[&["http://127.0.0.1:1/", "-d", "1h"], args].concat());
        assert_eq!(code(&output), 1, "{args:?}");
        assert!(text(&output.stderr).contains(said), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
}

#[test]
fn a_page_goes_to_standard_output_and_a_file_is_replaced() {
    let (server, root) = served();
    let url = format!("http://{}/page.txt", server.addr());
    let file = root.join("report.json");
    fs::write(&file, "x".repeat(1 << 20)).unwrap();
    let args = [&*url, "--html", "-", "--json", file.to_str().unwrap()];
    let output = load_for("200ms", &args, is_good);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("<!doctype html>"));
    let json = fs::read_to_string(&file).unwrap();
    assert!(json.starts_with('{') && json.ends_with("}\n"), "{}", json.len());
}

/// The report is written all the same.
#[test]
fn a_run_without_one_good_answer_has_failed() {
    // no other process takes it meanwhile
    let free = free_addr();
    let url = format!("http://{free}/");
    let is_refused = |output: &Output| text(&output.stdout).contains(": connection refused × ");
    let run = |more: &[&str]| load_for("2s", &[&[&*url, "-c", "2"], more].concat(), is_refused);
    let output = run(&[]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stdout).contains("all failures: connection refused × "));
    assert!(text(&output.stdout).contains("all: not one good answer"));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("forebay load: not one good answer: all (connection refused × "),
        "{said}"
    );
    for condition in ["goodput<1000", "p99<1h", "errors<1%"] {
        let output = run(&["--expect", condition]);
        assert_eq!(code(&output), 3, "{condition}");
        let said = text(&output.stderr);
        assert!(said.starts_with(&format!("expected {condition}: all has ")), "{said}");
    }
    assert_eq!(code(&run(&["--expect", "errors>99%"])), 0);
}

/// Nothing failed, but nothing was answered.
#[test]
fn a_run_without_any_answer_has_failed() {
    // connections are made, and no server reads them
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let trace = Folder::new();
    fs::write(trace.join("empty"), "").unwrap();
    let trace = format!("trace={}", trace.join("empty").display());
    for (args, why) in [
        (&["-c", "2"][..], "all (no answer by the end × 2)"),
        (&["-n", "3"], "all (no answer by the end × 3)"),
        (&["-s", "steps=100:0s"], "all (no request was due)"),
        (&["-s", &trace], "all (no request was due)"),
    ] {
        let expected = format!("forebay load: not one good answer: {why}\n");
        let run = |time| {
            let run = [&["load", &*url, "-d", time, "--drain", "200ms"], args].concat();
            Command::new(binary()).args(run).output().unwrap()
        };
        // a loop whose thread begins late asks for nothing
        let mut output = run("2s");
        for time in ["8s", "30s"] {
            if text(&output.stderr) == expected {
                break;
            }
            output = run(time);
        }
        assert_eq!(code(&output), 1, "{args:?}: {}", text(&output.stdout));
        assert_eq!(text(&output.stderr), expected, "{args:?}");
        assert!(text(&output.stdout).contains("all: not one good answer"), "{args:?}");
    }
}

#[test]
fn one_group_that_is_served_makes_a_result() {
    let (server, _root) = served();
    let url = format!("http://{}/", server.addr());
    let groups = ["--group", "gold:connections=1,url=/page.txt", "--group", "lost:rate=20,url=/no"];
    let output = load_for("1s", &[&[&*url], &groups[..]].concat(), is_good);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("lost: not one good answer"));
    let expect = ["-d", "1s", "--expect", "lost.rate>1"];
    let output = load(&[&[&*url], &groups[..], &expect[..]].concat());
    assert_eq!(code(&output), 3);
    let said = text(&output.stderr);
    assert!(said.contains("lost has not one good answer (wrong status × "), "{said}");
}

#[test]
fn an_interrupt_ends_the_run_with_its_report() {
    let (server, _root) = served();
    let url = format!("http://{}/page.txt", server.addr());
    let mut command = Command::new(binary());
    command.args(["load", &url, "-d", "60s"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    // an answer is counted before it is sent: at this number most have come
    assert!(soon(PATIENCE, || server.metric("forebay_responses_total{class=\"2xx\"}") > 100));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0);
    assert!(text(&output.stdout).contains("answers/s"));
    let said = text(&output.stderr);
    assert!(said.starts_with("forebay load: stopped by a signal after "), "{said}");
    assert!(said.ends_with(" s of 60.0 s\n"), "{said}");
}

#[test]
fn a_file_set_is_written_served_and_asked_for() {
    let root = Folder::new();
    let dir = root.join("");
    let output = load(&["fileset", "webstone", dir.to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let lengths = ["500", "5k", "50k", "500k", "5m"]
        .map(|size| fs::metadata(root.join(&format!("file{size}.html"))).unwrap().len());
    assert_eq!(lengths, [500, 5_120, 51_200, 512_000, 5_242_880]);
    let server = Server::start(&Options::new(&dir));
    let url = format!("http://{}/", server.addr());
    let args = [&*url, "-c", "4", "-s", "set=webstone", "--expect", "errors<0.001%"];
    // failures do not depend on time
    let is_over =
        |output: &Output| is_good(output) || text(&output.stdout).contains("all failures: ");
    let output = load_for("500ms", &args, is_over);
    assert_eq!(code(&output), 0, "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn the_highest_rate_is_looked_for() {
    let (server, root) = served();
    let url = format!("http://{}/page.txt", server.addr());
    let find = |condition: &str, more: &[&str]| {
        let all =
            [&[&url, "-d", "200ms", "--find", condition, "--between", "20-80"], more].concat();
        load(&all)
    };
    // a condition that always holds, and one that never does
    let json = root.join("best.json");
    let output = find("p99<1h", &["--json", json.to_str().unwrap()]);
    let table = text(&output.stdout);
    assert_eq!(code(&output), 0, "{table}{}", text(&output.stderr));
    // a busy machine is warned of between them
    let words = table.lines().filter_map(|line| line.split_whitespace().next());
    let rates: Vec<_> = words.filter(|word| word.ends_with("/s")).collect();
    assert_eq!(rates[..3], ["20/s", "40/s", "80/s"], "{table}");
    assert!(
        table.ends_with("it holds at 80/s, the highest rate that was to be tried (--between)\n"),
        "{table}"
    );
    let report = fs::read_to_string(json).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["groups"][0]["offered"], 16, "{report}");
    let output = find("p99<1us", &["--tries", "3"]);
    assert_eq!(code(&output), 3, "{}", text(&output.stdout));
    assert_eq!(
        text(&output.stdout).matches("expected p99<1us").count(),
        2,
        "{}",
        text(&output.stdout)
    );
    assert!(text(&output.stderr).contains("does not hold at 20/s"), "{}", text(&output.stderr));
    // an error status does not count as an answer
    let gone = format!("{url}/none");
    let output = load(&[&gone, "-d", "200ms", "--find", "p99<1h", "--between", "20-80"]);
    assert_eq!(code(&output), 3);
    let table = text(&output.stdout);
    assert!(table.contains("not one good answer"), "{table}");
    for wrong in [&["--rate", "5"][..], &["--group", "a:rate=1"], &["-n", "5"], &["--tries", "0"]] {
        assert_eq!(code(&find("p99<1h", wrong)), 2, "{wrong:?}");
    }
}
