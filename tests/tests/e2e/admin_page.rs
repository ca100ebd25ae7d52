//! The page of the admin listener: which clients may read it, what it says on each engine, and that a
//! browser shows the same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::isolated::{signal, stage};
use forebay_tests::faults::client::{Answer, Client};
use forebay_tests::faults::crowd::{client_address, connect_from};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, has, soon};
use forebay_tests::server::free_addr;
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{ISOLATED, Options, on_each_engine};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;

on_each_engine! {
    it_says_who_is_refused_by_which_rule,
}

#[test]
fn it_says_so_on_isolated() {
    it_says_who_is_refused_by_which_rule(ISOLATED);
}

/// Text from a client that looks like markup. The page shows it as text.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&</script>";

const RULES: &str = "[[class]]\nname = \"gold\"\npriority = 1\n[[class]]\nname = \"bulk\"\npriority = 2\ndefault = true\n\
     [[rule]]\nname = \"closed <b>\"\npath = \"/closed*\"\naction = \"reject\"\n";

fn with_page(engine: &str, settings: &str) -> (Folder, WatchedServer) {
    let folder = Folder::new();
    folder.write("site/index.html", "hello");
    let settings = format!("admin.page = true\ndurations = true\n{settings}");
    let server = WatchedServer::start(engine, &folder.join("site"), &settings);
    (folder, server)
}

/// Asks from an address of its own. Returns the answer, which may be empty.
fn ask(server: &WatchedServer, from: usize, path: &str) -> String {
    let mut stream = connect_from(client_address(from), server.addr()).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: a.example\r\nUser-Agent: {HOSTILE}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    String::from_utf8_lossy(&wire::read_to_end(&mut stream, PATIENCE).0).into_owned()
}

/// The answer of the admin listener.
fn get(server: &WatchedServer, path: &str, fields: &str) -> Answer {
    let mut client = Client::connect(server.admin());
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    client.stream().write_all(head.as_bytes()).unwrap();
    client.answer().unwrap()
}

fn read(server: &WatchedServer, path: &str) -> Value {
    serde_json::from_slice(&get(server, path, "").body).unwrap()
}

fn it_says_who_is_refused_by_which_rule(engine: &str) {
    let (_folder, server) = with_page(engine, RULES);
    // figures are of what comes after the first look
    let looks =
        || !read(&server, "/page/history?after=0")["seconds"].as_array().unwrap().is_empty();
    assert!(soon(PATIENCE, looks));
    let refused = 7;
    for _ in 0..refused {
        assert!(ask(&server, 3, "/closed?secret").starts_with("HTTP/1.1 403 "));
    }
    assert!(ask(&server, 4, "/").ends_with("hello"));
    let named = |kind: &str, name: &str| {
        let top = read(&server, "/page/top?minutes=1");
        let rows = top["kinds"][kind].as_array().unwrap().clone();
        let row = rows.into_iter().find(|row| row["name"] == name);
        row.map_or(0, |row| row["refused"].as_u64().unwrap())
    };
    let client = client_address(3).to_string();
    let network = format!("{}.0/24", client.rsplit_once('.').unwrap().0);
    for (kind, name) in [
        ("rule", "closed <b>"),
        ("address", &client),
        ("network", &network),
        ("agent", HOSTILE),
        ("path", "a.example/closed"),
    ] {
        let is_told = || named(kind, name) == refused;
        assert!(soon(PATIENCE, is_told), "{kind} {name}: {}", read(&server, "/page/top"));
    }
    // the same of the last refusals, by a client and a part of the path
    let why = read(&server, &format!("/page/why?client={client}&path=%2Fclosed"));
    let sentences = why["found"].as_array().unwrap();
    assert_eq!(sentences.len() as u64, refused, "{why}");
    let said = sentences[0].as_str().unwrap();
    assert!(said.contains("the rule \"closed <b>\" says so"), "{said}");
    assert_eq!(read(&server, "/page/why?client=192.0.2.1")["found"].as_array().unwrap().len(), 0);
    assert!(read(&server, "/page/why?client=nobody")["wrong"].is_string());
    // the figures of the time say so, too
    let answered = || {
        let history = read(&server, "/page/history?after=0");
        let columns = history["columns"].as_array().unwrap();
        let at = columns.iter().position(|one| one == &serde_json::json!(["server", "", "4xx"]));
        let rows = history["seconds"].as_array().unwrap();
        let sum: f64 = rows.iter().filter_map(|row| row[at? + 1].as_f64()).sum();
        sum
    };
    assert!(soon(PATIENCE, || answered() > 0.0), "{}", read(&server, "/page/history?after=0"));
    let status = read(&server, "/page/status");
    assert_eq!(status["sites"]["default"]["refused"]["action"], refused);
    assert_eq!(status["classes"]["bulk"]["durations"]["count"], refused + 1);
}

/// A killed process of a stage is counted, and is an event with its time.
#[test]
fn a_killed_stage_is_seen() {
    let (_folder, server) = with_page(ISOLATED, "");
    let stages = || read(&server, "/page/facts")["stages"].as_array().unwrap().clone();
    assert_eq!(stages().iter().filter(|one| one["ended"] == 0).count(), stages().len());
    assert!(stages().iter().any(|one| one["stage"] == "process" && one["instance"] == 1));
    // events before the first look are not shown
    let looks =
        || !read(&server, "/page/history?after=0")["seconds"].as_array().unwrap().is_empty();
    assert!(soon(PATIENCE, looks));
    let killed = stage(&server, "process 1", 0);
    signal(killed, Signal::KILL);
    let is_seen = || {
        let mut all = stages().into_iter();
        let one = all.find(|one| one["stage"] == "process" && one["instance"] == 1).unwrap();
        one["ended"] == 1 && one["last_ms"].is_u64()
    };
    assert!(soon(PATIENCE, is_seen), "{:?}", stages());
    let events = read(&server, "/page/events?after=0").to_string();
    assert!(events.contains("stage process, instance 1: its process has ended"), "{events}");
    stage(&server, "process 1", killed);
}

/// A reload can add the page and take it away, and with it the page's memory.
#[test]
fn a_reload_brings_it_and_takes_it_away() {
    let folder = Folder::new();
    folder.write("site/index.html", "hello");
    let options = |settings: &str| Options::new(folder.join("site")).config(settings);
    let server = WatchedServer::with(options("admin.page = false\n"));
    for path in ["/page", "/page/page.js", "/page/status", "/page/top"] {
        assert_eq!(get(&server, path, "").status, 404, "{path}");
    }
    server.reload_with(options("admin.page = true\n"));
    let is_there = || get(&server, "/page", "").status == 200;
    assert!(soon(PATIENCE, is_there));
    let rows = || read(&server, "/page/history?after=0")["seconds"].as_array().unwrap().len();
    assert!(soon(PATIENCE, || rows() > 0));
    server.reload_with(options("admin.page = true\nadmin.page_addresses = \"networks\"\n"));
    let is_cut = || read(&server, "/page/facts")["addresses"] == "networks";
    assert!(soon(PATIENCE, is_cut) && rows() > 0);
    let says_reload = || read(&server, "/page/events?after=0").to_string().contains("is in force");
    assert!(soon(PATIENCE, says_reload));
    ask(&server, 3, "/");
    assert!(read(&server, "/page/top")["kinds"].get("address").is_none());
    server.reload_with(options("admin.page = false\n"));
    assert!(soon(PATIENCE, || get(&server, "/page", "").status == 404));
}

/// A browser signs in with a token, and gets a cookie that scripts do not see and that is good for
/// nothing else.
#[test]
fn a_browser_signs_in() {
    let folder = Folder::new();
    folder.write("site/index.html", "hello");
    folder.write("admin.tokens", "secret-of-today\n");
    let tokens = folder.join("admin.tokens");
    let settings = format!("admin.page = true\nadmin.token_file = \"{}\"\n", tokens.display());
    let server = WatchedServer::with(Options::new(folder.join("site")).config(&settings));
    for path in ["/page", "/page/page.js", "/page/page.css", "/page/uplot.js"] {
        let file = get(&server, path, "");
        assert_eq!(file.status, 200, "{path}: it says nothing of the server");
        let policy = file.field("Content-Security-Policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
    let figures = ["/page/status", "/page/history", "/page/top", "/page/why", "/page/facts"];
    for path in figures {
        assert_eq!(get(&server, path, "").status, 401, "{path}");
        assert_eq!(get(&server, path, "Cookie: forebay_page=1.x\r\n").status, 401, "{path}");
    }
    let sign_in = |token: &str| {
        let mut client = Client::connect(server.admin());
        let head = format!(
            "POST /page/sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\
             Authorization: Bearer {token}\r\n\r\n"
        );
        client.stream().write_all(head.as_bytes()).unwrap();
        client.answer().unwrap()
    };
    let refused = sign_in("secret-of-yesterday");
    assert_eq!((refused.status, refused.field("Set-Cookie")), (401, None));
    let signed = sign_in("secret-of-today");
    let cookie = signed.field("Set-Cookie").unwrap();
    for part in ["Path=/page", "HttpOnly", "SameSite=Strict", "Max-Age=43200"] {
        assert!(cookie.split("; ").any(|one| one == part), "{cookie}");
    }
    let field = format!("Cookie: other=1; {}\r\n", cookie.split(';').next().unwrap());
    for path in figures {
        assert_eq!(get(&server, path, &field).status, 200, "{path}");
    }
    for path in ["/metrics", "/status", "/"] {
        assert_eq!(get(&server, path, &field).status, 401, "{path}: the cookie is for the page");
    }
    // signing out ends what a copy of the cookie could still read
    let mut client = Client::connect(server.admin());
    let head = format!(
        "POST /page/sign-out HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{field}\r\n"
    );
    client.stream().write_all(head.as_bytes()).unwrap();
    assert_eq!(client.answer().unwrap().status, 200);
    assert_eq!(get(&server, "/page/status", &field).status, 401, "it is signed out");
    let signed = sign_in("secret-of-today");
    let cookie = signed.field("Set-Cookie").unwrap();
    let field = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert_eq!(get(&server, "/page/status", &field).status, 200, "it is signed in again");
    // the token goes, and the cookie with it
    folder.write("admin.tokens", "secret-of-tomorrow\n");
    assert!(soon(PATIENCE, || get(&server, "/page/status", &field).status == 401));
}

/// A page on the internet reads nothing: its host name is wrong, and it may not frame or read this page.
#[test]
fn other_pages_get_nothing() {
    let (_folder, server) = with_page("event", "");
    let mut client = Client::connect(server.admin());
    client.stream().write_all(b"GET /page/status HTTP/1.1\r\nHost: evil.example\r\n\r\n").unwrap();
    assert_eq!(client.answer().unwrap().status, 421);
    let page = get(&server, "/page", "Origin: https://evil.example\r\n");
    assert_eq!(page.field("X-Frame-Options"), Some("DENY"));
    assert_eq!(page.field("Cross-Origin-Resource-Policy"), Some("same-origin"));
    assert_eq!(page.field("Access-Control-Allow-Origin"), None);
    let mut client = Client::connect(server.admin());
    client
        .stream()
        .write_all(b"POST /page/status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    assert_eq!(client.answer().unwrap().status, 405);
}

/// The page in Chromium: no error, nothing hostile becomes markup, and each total equals `/metrics`.
#[test]
fn chromium_shows_what_metrics_say() {
    let there = Command::new("chromium").arg("--version").output();
    let there = there.map_err(|_| "there is no chromium, see scripts/install");
    let Some(_) = has(there, "chromium_shows_what_metrics_say") else { return };
    // no server listens there
    let dead = free_addr();
    let settings = format!("{RULES}[[site.proxy]]\npath = \"/app\"\nto = \"http://{dead}\"\n");
    let (folder, server) = with_page("event", &settings.replacen("[[site.proxy]]", "[[proxy]]", 1));
    for _ in 0..20 {
        ask(&server, 3, "/closed");
        ask(&server, 4, "/");
    }
    assert!(ask(&server, 4, "/app").starts_with("HTTP/1.1 502 "));
    let is_told = || read(&server, "/page/top?minutes=1").to_string().contains("closed <b>");
    assert!(soon(PATIENCE, is_told));
    let shown = |arguments: &[&str]| {
        let profile = format!("--user-data-dir={}", folder.join("profile").display());
        let output = Command::new("timeout")
            .args(["240", "chromium", "--headless", "--no-sandbox", "--disable-gpu", &profile])
            .args(["--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"])
            .args(arguments)
            .arg(format!("http://{}/page", server.admin()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let console: Vec<_> = said.lines().filter(|line| line.contains(":CONSOLE")).collect();
        assert!(console.is_empty(), "the console says {console:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for arguments in
        [&["--window-size=1280,900"][..], &["--window-size=390,800", "--force-dark-mode"]]
    {
        let dom = shown(arguments);
        let metrics = server.metrics();
        let totals = totals(&dom);
        assert!(totals.len() >= 9, "{dom}");
        for (series, value) in &totals {
            assert_eq!(metric(&metrics, series), Some(*value), "{series}");
        }
        assert!(totals.contains_key("forebay_class_answered_total{class=\"bulk\"}"), "{totals:?}");
        let failed = totals.keys().find(|series| series.starts_with("forebay_upstream_failed"));
        assert!(failed.is_some_and(|series| series.contains(&dead.to_string())), "{totals:?}");
        // it stands there as text, and nowhere as an element
        assert!(dom.contains("&lt;img src=x onerror=alert(1)&gt;"), "{dom}");
        assert!(!dom.contains("<img src=x") && !dom.contains("closed <b>"), "{dom}");
        assert!(
            dom.contains("Policy refuses") || dom.contains("Most of what was refused"),
            "{dom}"
        );
    }
}

/// The series that elements of the page name, with the values shown.
fn totals(dom: &str) -> BTreeMap<String, u64> {
    let named = dom.split("data-metric=\"").skip(1).filter_map(|part| {
        let (series, rest) = part.split_once('"')?;
        let value = rest.split_once("data-value=\"")?.1.split('"').next()?.parse().ok()?;
        let text = [("&quot;", "\""), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
        let series = text.iter().fold(series.to_owned(), |text, (from, to)| text.replace(from, to));
        Some((series, value))
    });
    named.collect()
}

fn metric(metrics: &str, series: &str) -> Option<u64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    line.parse().ok()
}
