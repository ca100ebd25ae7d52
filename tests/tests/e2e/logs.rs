//! Access logs of the real server: what a line says and never says, where it goes when logs are rotated
//! or replaced under load, and that none is lost.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::process::freeze;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, Options};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The time that a client pauses, and the part of it that must show: a server that is kept from its core
/// notices late that the client has begun.
const PAUSE: Duration = Duration::from_millis(1000);
const PAUSE_US: u64 = 20_000;

/// A size beyond all socket buffers.
const LARGE: usize = 16 << 20;

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("site/a.txt", "0123456789");
    let large = folder.write("site/large.bin", "");
    File::options().write(true).open(large).unwrap().set_len(LARGE as u64).unwrap();
    fs::create_dir(folder.join("logs")).unwrap();
    folder
}

fn log_settings(path: &Path, format: &str) -> String {
    // a client may take its time
    format!(
        "limits.requests_per_connection = 0\ntimeouts.send_window = \"1h\"\nlog.access = {path:?}\n\
         log.format = {format:?}"
    )
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The log, once it has this number of lines.
fn lines(path: &Path, count: usize) -> Vec<String> {
    let is_there = soon(PATIENCE, || text(path).lines().count() >= count);
    let lines: Vec<_> = text(path).lines().map(str::to_owned).collect();
    assert!(is_there, "{count} lines are wanted of {lines:#?}");
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

fn objects(path: &Path, count: usize) -> Vec<Value> {
    lines(path, count).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn send(served: &WatchedServer, request: &[u8]) -> u16 {
    let mut client = served.client();
    client.stream().write_all(request).unwrap();
    client.answer().unwrap().status
}

/// Each engine logs the same of a request, with the times that it took to come, to be answered and to be
/// sent, and none logs a secret.
#[test]
fn json_lines_say_what_was_asked_and_how_long_it_took() {
    for engine in ENGINES {
        let folder = site();
        let access = folder.join("logs/access.log");
        let options = Options::new(folder.join("site")).engine(engine);
        let served = WatchedServer::with(options.config(&log_settings(&access, "json")));
        let request = b"GET /a.txt?x=1 HTTP/1.1\r\nHost: a.example\r\nCookie: k=geheim\r\n\
            Authorization: Basic geheim\r\nReferer: http://r/\r\nUser-Agent: \"x\" \xe9\r\n\r\n";
        assert_eq!(send(&served, request), 200);
        let seen = &objects(&access, 1)[0];
        for (member, expected) in [
            ("method", "GET"),
            ("target", "/a.txt?x=1"),
            ("version", "1.1"),
            ("host", "a.example"),
            ("client", "127.0.0.1"),
            ("site", "default"),
            ("referer", "http://r/"),
            // bytes that are no UTF-8 differ from text that looks like them
            ("user_agent", "\"x\" \\xe9"),
        ] {
            assert_eq!(seen[member], expected, "{engine}: {seen}");
        }
        assert_eq!((&seen["status"], &seen["bytes"]), (&200.into(), &10.into()), "{engine}");
        assert_eq!(seen["request_id"].as_str().unwrap().len(), 32);
        let time = seen["time"].as_str().unwrap();
        assert!(time.len() == 27 && time.starts_with("20") && time.ends_with('Z'), "{time}");

        assert!(seen.get("class").is_none(), "nothing was to be judged: {seen}");

        // a head that takes its time, and a body that the client takes late. A server that is kept from its
        // core for all of a pause does not see it, and is asked again
        let mut count = 1;
        loop {
            let mut client = served.client();
            rustix::net::sockopt::set_socket_recv_buffer_size(client.stream(), 64 << 10).unwrap();
            client.stream().write_all(b"GET /large.bin HTTP/1.1\r\nHo").unwrap();
            std::thread::sleep(PAUSE);
            client.stream().write_all(b"st: a\r\n\r\n").unwrap();
            let head = client.head().unwrap();
            std::thread::sleep(PAUSE);
            client.body(&head, LARGE).unwrap();
            count += 1;
            let seen = objects(&access, count).pop().unwrap();
            assert_eq!(seen["bytes"], LARGE, "{engine}");
            let us = |stage: &str| seen[stage].as_u64().unwrap();
            assert!(us("process_us") < 60_000_000, "{engine}: {seen}");
            if us("receive_us") >= PAUSE_US && us("send_us") >= PAUSE_US {
                break;
            }
            assert!(count < 6, "{engine}: {seen}");
        }

        assert_eq!(send(&served, b"rub\x01bish\r\n\r\n"), 400);
        count += 1;
        let seen = objects(&access, count).pop().unwrap();
        assert_eq!((&seen["status"], &seen["method"]), (&400.into(), &Value::Null), "{engine}");

        // the body turns out to be malformed long after the request was judged
        let chunked =
            b"POST /a.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nrubbish";
        assert_eq!(send(&served, chunked), 400);
        let seen = objects(&access, count + 1).pop().unwrap();
        let said = ["method", "target"].map(|member| seen[member].as_str().unwrap());
        assert_eq!(said, ["POST", "/a.txt"], "{engine}");
        assert!(!text(&access).contains("geheim") && !served.stderr().contains("geheim"));
    }
}

/// A client that resets its connection before its answer can be sent is sent nothing.
#[test]
fn what_the_kernel_did_not_take_is_not_logged_as_sent() {
    for engine in ENGINES {
        let folder = site();
        let access = folder.join("logs/access.log");
        let options = Options::new(folder.join("site")).engine(engine);
        let served = WatchedServer::with(options.config(&log_settings(&access, "json")));
        let request = b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(send(&served, request), 200);
        let mut client = served.client();
        freeze(served.pid());
        client.stream().write_all(request).unwrap();
        // a reset that overtakes it leaves nothing to be accepted
        served.wait_for_delivery();
        set_socket_linger(client.stream(), Some(Duration::ZERO)).unwrap();
        drop(client);
        served.thaw();
        // two loops may log them in any order
        let seen = objects(&access, 2);
        let mut bytes: Vec<_> = seen.iter().map(|one| one["bytes"].as_u64().unwrap_or(0)).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, [0, 10], "{engine}: {seen:?}");
    }
}

/// In each format whatever a client sends is one line of printable characters, and its secrets are
/// not in it, also when the request is refused.
#[test]
fn no_format_lets_a_client_write_lines_or_shows_its_secrets() {
    for format in ["common", "combined", "json"] {
        let folder = site();
        let access = folder.join("logs/access.log");
        let settings = log_settings(&access, format);
        let served = WatchedServer::with(Options::new(folder.join("site")).config(&settings));
        let mut count = 0;
        for byte in (0..=255).filter(|byte| ![b'\r', b'\n'].contains(byte)) {
            let mut client = served.client();
            let parts: [&[u8]; 5] = [
                b"GET /\"\\%0d%0a",
                &[byte],
                b" HTTP/1.1\r\nHost: a\r\nCookie: k=geheim\r\nUser-Agent: \"\\",
                &[byte],
                b"\r\nAuthorization: Basic geheim\r\n\r\n",
            ];
            client.stream().write_all(&parts.concat()).unwrap();
            client.answer().unwrap();
            count += 1;
        }
        let lines = lines(&access, count);
        for line in &lines {
            assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line:?}");
            assert!(!line.contains("geheim"), "{line}");
            let quotes = line.matches('"').count();
            match format {
                "common" => assert_eq!(quotes, 2, "{line}"),
                "combined" => assert_eq!(quotes, 6, "{line}"),
                _ => assert!(serde_json::from_str::<Value>(line).unwrap().is_object()),
            }
        }
    }
}

/// Clients that number their requests while `meanwhile` runs. Returns how many each has sent.
fn numbering<R>(
    served: &WatchedServer,
    clients: usize,
    meanwhile: impl FnOnce() -> R,
) -> (Vec<u64>, R) {
    let stop = AtomicBool::new(false);
    let run = |client: usize| {
        let mut connection = served.client();
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            let answer = connection.get(&format!("/a.txt?{client}-{number}")).unwrap();
            assert_eq!(answer.status, 200);
            number += 1;
        }
        number
    };
    let run = &run;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|at| scope.spawn(move || run(at))).collect();
        let outcome = meanwhile();
        stop.store(true, Ordering::Relaxed);
        (threads.into_iter().map(|thread| thread.join().unwrap()).collect(), outcome)
    })
}

/// Checks that every numbered request is in exactly one of the logs, once. A download may be there, too.
fn assert_all_logged(sent: &[u64], logs: impl Fn() -> Vec<PathBuf>) {
    let total: u64 = sent.iter().sum();
    let whole = |text: &str| {
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.filter(|line| !line.contains("GET /large.bin")).collect::<String>()
    };
    let all = || logs().iter().map(|log| whole(&text(log))).collect::<String>();
    let count = || all().lines().count() as u64;
    assert!(soon(PATIENCE, || count() >= total), "{} lines for {total} requests", count());
    let mut seen = HashMap::<String, u32>::new();
    for line in all().lines() {
        let target = line.split(' ').nth(6).unwrap();
        *seen.entry(target.to_owned()).or_default() += 1;
    }
    for (client, count) in sent.iter().enumerate() {
        for number in 0..*count {
            assert_eq!(seen.remove(&format!("/a.txt?{client}-{number}")), Some(1));
        }
    }
    assert!(seen.is_empty(), "nobody asked for {seen:?}");
}

fn logs_in(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Logs are renamed and opened again twenty times while requests come: each is in one of the files.
#[test]
fn a_rotation_under_load_loses_no_line() {
    let folder = site();
    let (logs, access) = (folder.join("logs"), folder.join("logs/access.log"));
    let settings = log_settings(&access, "combined");
    let served = WatchedServer::with(Options::new(folder.join("site")).config(&settings));
    let (sent, ()) = numbering(&served, 4, || {
        for rotation in 0..20 {
            assert!(soon(PATIENCE, || !text(&access).is_empty()), "nothing in the new file");
            fs::rename(&access, logs.join(format!("access.log.{rotation}"))).unwrap();
            served.signal(Signal::USR1);
            assert!(soon(PATIENCE, || access.exists()), "the log is not opened again");
        }
    });
    assert_all_logged(&sent, || logs_in(&logs));
    assert_eq!(served.metric("forebay_log_dropped_lines_total"), 0);
}

const POLICY: &str = r#"
[[work]]
path = "/work"
[[class]]
name = "gold"
priority = 0
[[class]]
name = "bulk"
priority = 1
share = "10%"
default = true
[[rule]]
name = "buyers"
cookie = "tier=gold"
class = "gold"
[[rule]]
name = "costly"
path = "/a.txt"
requests = { rate = "1/h", burst = 1 }
[[rule]]
name = "closed"
path = "/closed"
action = "reject"
"#;

/// A line has the class of its request and the reason for it; for a refused request it has the reason,
/// and the rule, if a rule has refused it.
#[test]
fn json_lines_say_how_a_request_was_judged() {
    for engine in ENGINES {
        let folder = site();
        let access = folder.join("logs/access.log");
        let settings = log_settings(&access, "json") + "\n" + POLICY;
        let options = Options::new(folder.join("site")).engine(engine);
        let served = WatchedServer::with(options.clone().config(&settings));
        let told_by = |served: &WatchedServer, number: usize, request: &str, status: u16| {
            assert_eq!(send(served, request.as_bytes()), status, "{engine}: {request}");
            let seen = objects(&access, number).pop().unwrap();
            ["class", "rule", "refused", "refused_by"]
                .map(|member| seen.get(member).map(|said| said.as_str().unwrap().to_owned()))
                .map(Option::unwrap_or_default)
        };
        let told = |number, request: &str, status| told_by(&served, number, request, status);
        let plain = told(1, "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n", 200);
        assert_eq!(plain, ["bulk", "", "", ""], "{engine}");
        let gold = "GET /a.txt HTTP/1.1\r\nHost: a\r\nCookie: tier=gold\r\n\r\n";
        assert_eq!(told(2, gold, 503), ["gold", "buyers", "requests", "costly"], "{engine}");
        let closed = told(3, "GET /closed HTTP/1.1\r\nHost: a\r\n\r\n", 403);
        assert_eq!(closed, ["bulk", "", "action", "closed"], "{engine}");
        // with a thread for each connection, no thread looks at the clock meanwhile
        if engine == "event" {
            let settings = format!("timeouts.job = \"100ms\"\n{settings}");
            let hasty = WatchedServer::with(options.config(&settings));
            let request = "GET /work?cpu=10s HTTP/1.1\r\nHost: a\r\n\r\n";
            let late = told_by(&hasty, 4, request, 503);
            assert_eq!(late, ["bulk", "", "expired", ""], "{engine}");
            assert_eq!(objects(&access, 4)[3]["target"], "/work?cpu=10s");
        }
    }
}

/// The log moves to other files by reloads while requests come, and a download that began with the
/// first ends in that.
#[test]
fn a_reload_moves_the_log_and_loses_no_line() {
    let folder = site();
    let logs = folder.join("logs");
    let settings = |number: usize| log_settings(&logs.join(number.to_string()), "combined");
    let options = Options::new(folder.join("site"));
    let served = WatchedServer::with(options.clone().config(&settings(0)));
    let mut download = served.client();
    rustix::net::sockopt::set_socket_recv_buffer_size(download.stream(), 64 << 10).unwrap();
    download.ask("/large.bin");
    let head = download.head().unwrap();
    let (sent, ()) = numbering(&served, 4, || {
        for number in (1..10).chain([3]) {
            served.reload_with(options.clone().config(&settings(number)));
            let log = logs.join(number.to_string());
            let before = text(&log).len();
            assert!(soon(PATIENCE, || text(&log).len() > before), "nothing goes to {log:?}");
        }
    });
    download.body(&head, LARGE).unwrap();
    let is_there = || text(&logs.join("0")).contains("GET /large.bin");
    assert!(soon(PATIENCE, is_there), "the download is not in the log it began with");
    assert!(text(&logs.join("0")).starts_with("127.0.0.1 - - ["));
    assert_all_logged(&sent, || logs_in(&logs));
    // files that are not used any more are closed
    let open = || {
        let fds = fs::read_dir(format!("/proc/{}/fd", served.pid())).unwrap().flatten();
        fds.filter_map(|fd| fs::read_link(fd.path()).ok())
            .filter(|link| link.starts_with(&logs))
            .collect::<Vec<_>>()
    };
    assert!(
        soon(PATIENCE, || open().iter().filter(|link| link.is_file()).count() == 1),
        "{:?}",
        open()
    );
}

/// A server without root whose path to the log's directory was closed after the start can still open the
/// log again there.
#[test]
fn logs_are_opened_again_where_the_way_is_closed() {
    const USER: u32 = 65_534;
    let folder = site();
    fs::create_dir_all(folder.join("way/logs")).unwrap();
    let (way, logs) = (folder.join("way"), folder.join("way/logs"));
    let access = logs.join("access.log");
    if rustix::process::geteuid().is_root() {
        chown(&logs, Some(USER), Some(USER)).unwrap();
    }
    let options = Options { user: Some(USER), ..Options::new(folder.join("site")) };
    let served = WatchedServer::with(options.config(&log_settings(&access, "common")));
    send(&served, b"GET /a.txt?before HTTP/1.1\r\nHost: a\r\n\r\n");
    lines(&access, 1);
    let close = |mode| fs::set_permissions(&way, PermissionsExt::from_mode(mode)).unwrap();
    fs::rename(&access, logs.join("access.log.1")).unwrap();
    close(0o000);
    served.signal(Signal::USR1);
    // a test without root cannot list the directory meanwhile, but sees what the server has open
    let has_open = |name: &str| {
        let fds = fs::read_dir(format!("/proc/{}/fd", served.pid())).unwrap().flatten();
        let links = fds.filter_map(|fd| fs::read_link(fd.path()).ok()).collect::<Vec<_>>();
        links.iter().any(|link| *link == logs.join(name))
    };
    let is_opened = soon(PATIENCE, || has_open("access.log") && !has_open("access.log.1"));
    send(&served, b"GET /a.txt?after HTTP/1.1\r\nHost: a\r\n\r\n");
    close(0o755);
    assert!(is_opened, "{}", served.stderr());
    assert!(lines(&access, 1)[0].contains("?after"), "{}", served.stderr());
    assert_eq!(lines(&logs.join("access.log.1"), 1).len(), 1);
}

/// Two sites on one address: each has its own log and format, and names itself in it; requests without a
/// site are in neither.
#[test]
fn each_site_has_its_own_log() {
    let folder = site();
    let [shop, blog] = ["shop", "blog"].map(|name| folder.join("logs").join(name));
    let sites = format!(
        "[[site]]\nhosts = [\"shop.example\"]\nname = \"shop\"\nlog.access = {shop:?}\nlog.format = \
         \"json\"\n[[site]]\nhosts = [\"blog.example\"]\nlog.access = {blog:?}\nlog.format = \
         \"common\""
    );
    let rest = folder.join("logs/rest");
    let settings = format!("{}\n{sites}", log_settings(&rest, "combined"));
    let served = WatchedServer::with(Options::new(folder.join("site")).config(&settings));
    for (host, status) in [("shop.example", 200), ("blog.example", 200), ("stranger", 421)] {
        let request = format!("GET /a.txt?{host} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(send(&served, request.as_bytes()), status, "{host}");
    }
    let line = &objects(&shop, 1)[0];
    assert_eq!((&line["site"], &line["target"]), (&"shop".into(), &"/a.txt?shop.example".into()));
    let line = &lines(&blog, 1)[0];
    assert!(line.ends_with("\"GET /a.txt?blog.example HTTP/1.1\" 200 10"), "{line}");
    assert!(lines(&rest, 1)[0].contains("GET /a.txt?stranger HTTP/1.1\" 421 "));
    assert_eq!(served.metric("forebay_site_responses_total{site=\"shop\",class=\"2xx\"}"), 1);
    assert_eq!(served.metric("forebay_site_responses_total{site=\"-\",class=\"4xx\"}"), 1);
}

/// A trusted proxy states the client and the id of a request; a stranger that states the same is not
/// believed, also after a reload that no longer trusts.
#[test]
fn only_a_trusted_proxy_names_clients_and_requests() {
    let folder = site();
    let access = folder.join("logs/access.log");
    let options = Options::new(folder.join("site")).config(&log_settings(&access, "json"));
    let trusting = |served: Option<&WatchedServer>, proxies: &str| {
        let admin = served.map_or(String::new(), |s| format!("admin.listen = \"{}\"\n", s.admin()));
        let trusted = format!("trusted_proxies = [{proxies}]\n");
        Options { config: trusted + &admin + &options.config, ..options.clone() }
    };
    let served = WatchedServer::with(trusting(None, "\"127.0.0.0/8\""));
    let mut client = served.client();
    let mut ask = |name: &str| {
        let fields = format!("X-Forwarded-For: 192.0.2.7\r\nX-Request-Id: {name}\r\n");
        let request = format!("GET /a.txt HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        client.stream().write_all(request.as_bytes()).unwrap();
        assert_eq!(client.answer().unwrap().status, 200);
    };
    ask("a-1");
    ask("with \"quotes\"");
    served.configure(&trusting(Some(&served), ""));
    assert_eq!(served.reload().0, Some(0));
    // the connection is the same
    ask("a-2");
    let seen = objects(&access, 3);
    let of = |at: usize| (seen[at]["client"].as_str(), seen[at]["request_id"].as_str().unwrap());
    assert_eq!(of(0), (Some("192.0.2.7"), "a-1"));
    assert_eq!((of(1).0, of(1).1.len()), (Some("192.0.2.7"), 32));
    assert_eq!((of(2).0, of(2).1.len()), (Some("127.0.0.1"), 32));
}

/// The hidden value is not in the log, in any format, and however a client writes it.
#[test]
fn what_is_redacted_is_in_no_line() {
    let secret = "GEHEIM";
    for engine in ENGINES {
        for format in ["common", "combined", "json"] {
            let folder = site();
            let (access, short) = (folder.join("logs/access.log"), folder.join("logs/short.log"));
            let root = folder.join("site");
            let config = format!(
                "{}\nlog.redact = [\"query.token\", \"header.User-Agent\"]\n\
                 [[site]]\nhosts = [\"a.example\"]\nroot = {root:?}\n\
                 [[site]]\nhosts = [\"b.example\"]\nroot = {root:?}\n[site.log]\naccess = {short:?}\n\
                 query = false\nredact = []\n",
                log_settings(&access, format)
            );
            let served = WatchedServer::with(Options::new(&root).engine(engine).config(&config));
            let targets = ["/a.txt?x=1&token=", "/a.txt?to%6ben=", "/none;token="];
            let asked = |target: &str, host: &str| {
                let request = format!(
                    "GET {target}{secret} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {secret}\r\n\
                     Referer: https://r.example/x?next=%3Ftoken%3D{secret}&y=1\r\n\r\n"
                );
                send(&served, request.as_bytes())
            };
            let statuses: Vec<_> =
                targets.iter().map(|target| asked(target, "a.example")).collect();
            assert_eq!(statuses, [200, 200, 404], "{engine} {format}");
            // a request of no site has what the top level says
            assert_eq!(asked("/a.txt?token=", "c.example"), 421);
            let lines = lines(&access, 4);
            let text = lines.join("\n");
            assert!(!text.contains(secret), "{engine}: {text}");
            assert!(
                text.contains("/a.txt?x=1&token=***") && text.contains("/none;token=***"),
                "{text}"
            );
            assert_eq!(
                text.contains("https://r.example/x?next=%3Ftoken%3D***&y=1"),
                format != "common"
            );
            let request = format!(
                "GET /a.txt?{secret} HTTP/1.1\r\nHost: b.example\r\nUser-Agent: curl\r\n\
                 Referer: https://r.example/x?{secret}\r\n\r\n"
            );
            assert_eq!(send(&served, request.as_bytes()), 200);
            let line = &self::lines(&short, 1)[0];
            assert!(!line.contains(secret) && line.contains("/a.txt"), "{engine}: {line}");
            assert_eq!(line.contains("curl"), format != "common", "{line}");
        }
    }
}
