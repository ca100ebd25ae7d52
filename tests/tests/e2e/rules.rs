//! The conditions and settings of `[[rule]]`, asked for with real bytes.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::http2::Client;
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server};
use std::io::{Read, Write};
use std::process::Command;

fn start(engine: &str, policy: &str) -> Server {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/site");
    Server::start(&Options::new(root).engine(engine).config(policy))
}

/// The status of the only answer to this request; 0 for a reset.
fn status(server: &Server, target: &str, fields: &str) -> u16 {
    let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n");
    let mut stream = server.connect();
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let code = answer.get(9..12).map(|code| String::from_utf8_lossy(code).into_owned());
    code.map_or(0, |code| code.parse().unwrap())
}

forebay_tests::on_each_engine! {
    conditions_hold_for_what_is_meant,
    a_connection_ends_with_its_last_request,
    refusals_look_like_other_errors,
}

/// Ranges of addresses, queries, capitals, regular expressions, compressed forms.
fn conditions_hold_for_what_is_meant(engine: &str) {
    let server = start(
        engine,
        r#"
[[rule]]
client = "10.0.0.5-10.0.0.9"
action = "reset"
[[rule]]
client = "127.0.0.1-127.0.0.9"
query = ["debug", "n=~^[0-9]{4,}$"]
action = "reject"
status = 404
[[rule]]
path = ["/PRIVATE/*", "/css/site.css"]
ignore_case = true
action = "reject"
status = 410
[[rule]]
path = '~^/blog/\d+$'
action = "reject"
status = 451
[[rule]]
header = "User-Agent=~(?i)bot|spider"
action = "reset"
[[rule]]
name = "files"
path = ["/index.html"]
action = "reject"
status = 403
"#,
    );
    for (target, fields, expected) in [
        ("/", "", 200),
        ("/?debug", "", 404),
        ("/?x=1&%64ebug=2", "", 404),
        ("/?debugger", "", 200),
        ("/?n=1234", "", 404),
        ("/?n=123", "", 200),
        ("/private/a", "", 410),
        ("/Css/Site.CSS", "", 410),
        ("/Css/Site.CSS.gz", "", 410),
        ("/blog/12", "", 451),
        ("/blog/12x", "", 404),
        ("/", "User-Agent: AhrefsBot\r\n", 0),
        ("/", "User-Agent: curl\r\n", 200),
        ("/index.html", "", 403),
        ("/index.html.gz", "", 403),
        ("/index.html.br", "", 403),
        ("/index.html%2ezst", "", 403),
        ("/index.html.bz2", "", 404),
    ] {
        assert_eq!(status(&server, target, fields), expected, "{target} {fields}");
    }
}

/// A rule and a class count the requests of each connection; their last one is answered.
fn a_connection_ends_with_its_last_request(engine: &str) {
    let server = start(
        engine,
        r#"
[[class]]
name = "all"
priority = 0
requests_per_connection = 5
[[rule]]
name = "styles"
file_type = "css"
requests_per_connection = 2
"#,
    );
    let last = |targets: &[&str]| -> (usize, bool) {
        let asked =
            targets.iter().map(|target| format!("HEAD {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let mut stream = server.connect();
        stream.write_all(asked.collect::<String>().as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        (answers.matches("HTTP/1.1 ").count(), answers.contains("Connection: close"))
    };
    assert_eq!(last(&["/css/site.css", "/", "/", "/css/site.css", "/"]), (4, true));
    assert_eq!(last(&["/"; 9]), (5, true));
    assert_eq!(last(&["/"; 3]).0, 3);
}

#[test]
fn a_connection_of_http2_is_drained_after_its_last_request() {
    let server = start("event", "[[rule]]\npath = \"/*\"\nrequests_per_connection = 3\n");
    let mut client = Client::connect(server.addr());
    for _ in 0..3 {
        assert_eq!(client.get("/").status, 200);
    }
    client.until_closed();
}

/// Requests that an earlier rule leaves unlimited are not limited by a later one.
#[test]
fn unlimited_keeps_later_limits_away() {
    let server = start(
        "event",
        r#"
[[rule]]
path = "/css/site.css"
requests.rate = "unlimited"
[[rule]]
requests = { rate = "1/h" }
"#,
    );
    assert_eq!(status(&server, "/", ""), 200);
    assert_eq!(status(&server, "/", ""), 503);
    for _ in 0..5 {
        assert_eq!(status(&server, "/css/site.css", ""), 200);
    }
}

/// `policy show` and the metrics show the effect of rules; logs may have fewer lines of refusals.
#[test]
fn what_has_come_of_a_rule_is_seen() {
    let folder = Folder::new();
    folder.write("site/a.txt", "0123456789");
    let log = folder.join("access.log");
    let config = format!(
        r#"
durations = true
limits.connections = 100
log.access = {log:?}
log.format = "json"
log.sample_refused = 1000000
[[rule]]
name = "each"
client = "127.0.0.0/8"
requests = {{ rate = "1/h", burst = 2, per = "client" }}
metric = true
[[rule]]
name = "none"
path = "/none"
action = "reject"
"#
    );
    let served = WatchedServer::with(Options::new(folder.join("site")).config(&config));
    let mut client = served.client();
    let mut statuses = Vec::new();
    for path in ["/a.txt", "/b.txt", "/a.txt", "/a.txt", "/none"] {
        let text = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        client.stream().write_all(text.as_bytes()).unwrap();
        statuses.push(client.answer().unwrap().status);
    }
    assert_eq!(statuses, [200, 404, 429, 429, 403]);
    let metric = |name: &str, value| {
        assert!(soon(PATIENCE, || served.metric(name) == value), "{name}: {}", served.metric(name));
    };
    metric("forebay_rule_matches_total{rule=\"each\"}", 5);
    metric("forebay_rule_refused_total{rule=\"each\"}", 2);
    for (status, count) in [(200, 1), (403, 1), (404, 1), (429, 2)] {
        metric(&format!("forebay_status_responses_total{{status=\"{status}\"}}"), count);
    }
    metric("forebay_request_duration_seconds_count", 5);
    metric("forebay_request_duration_seconds_bucket{le=\"+Inf\"}", 5);
    assert!(!served.metrics().contains("rule=\"none\""));
    let file = served.file();
    let shown = Command::new(binary()).args(["policy", "show", "-c"]).arg(file).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    for line in [
        "  so far      5 matched, 2 refused\n  refused     most often: 127.0.0.1 (2 times)\n",
        "  so far      1 matched, 1 refused\n",
        ", at most 100\nof one client at most 50, by auto\nrequests per connection: 10000, ",
    ] {
        assert!(shown.contains(line), "no {line:?} in:\n{shown}");
    }
    assert!(soon(PATIENCE, || std::fs::read_to_string(&log).unwrap().lines().count() == 2));
}

/// A client that a rule refuses gets the site's page for the error, with its header rules, as for every
/// other error.
fn refusals_look_like_other_errors(engine: &str) {
    let folder = Folder::new();
    folder.write("site/index.html", "in");
    folder.write("site/busy.html", "Come back later.");
    folder.write("site/errors/no.txt", "no");
    let config = r#"
errors = { 503 = "/busy.html", 403 = "/errors/no.txt", 451 = "/missing.html" }
[[header]]
set = { X-Site = "one" }
[[header]]
path = "/a/*"
set = { X-Path = "a" }
[[rule]]
path = "/a/*"
action = "reject"
[[rule]]
path = "/b"
action = "reject"
status = 451
[[rule]]
path = "/"
requests = { rate = "1/h", burst = 1 }
"#;
    let options = || Options::new(folder.join("site")).engine(engine).config(config);
    let server = Server::start(&options());
    let ask = |method: &str, path: &str| -> String {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        String::from_utf8(server.exchange(head.as_bytes())).unwrap()
    };
    let in_order = |text: &str, parts: &[&str]| {
        let mut rest = text;
        for part in parts {
            let Some(at) = rest.find(part) else { panic!("no {part:?} in:\n{text}") };
            rest = &rest[at..];
        }
    };
    assert!(ask("GET", "/").starts_with("HTTP/1.1 200 "));
    let busy = ask("GET", "/");
    in_order(
        &busy,
        &["HTTP/1.1 503 ", "Content-Type: text/html", "X-Site: one\r\n", "Content-Length: 16\r\n"],
    );
    assert!(busy.ends_with("\r\n\r\nCome back later.") && busy.contains("\r\nRetry-After: "));
    assert!(!busy.contains("X-Path"));
    let head = ask("HEAD", "/");
    assert!(head.contains("Content-Length: 16\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    let no = ask("GET", "/a/b");
    in_order(&no, &["HTTP/1.1 403 ", "Content-Type: text/plain", "X-Path: a\r\n", "\r\n\r\nno"]);
    // a page that is not there is a short one of the server's own
    in_order(&ask("GET", "/b"), &["HTTP/1.1 451 ", "X-Site: one\r\n", "<h1>451 "]);
    // the page is read again at a reload
    folder.write("site/busy.html", "Tomorrow.");
    assert_eq!(server.reload().0, Some(0));
    assert!(soon(PATIENCE, || ask("GET", "/").ends_with("\r\n\r\nTomorrow.")));
}

/// Refusals look like other errors over HTTP/2, too.
#[test]
fn refusals_in_http2_have_the_page_of_the_site() {
    let folder = Folder::new();
    folder.write("site/no.html", "no");
    let config = "errors = { 403 = \"/no.html\" }\n[[header]]\nset = { X-Site = \"one\" }\n\
                  [[rule]]\npath = \"/a\"\naction = \"reject\"\n";
    let server = Server::start(&Options::new(folder.join("site")).engine("event").config(config));
    let answer = Client::connect(server.addr()).get("/a");
    assert_eq!((answer.status, &*answer.body), (403, &b"no"[..]));
    assert_eq!(answer.field("x-site"), Some("one"));
}
