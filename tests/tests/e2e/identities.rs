//! Identities that clients prove by a signed cookie, with the real program.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::http2::Client;
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, on_each_engine};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread;

on_each_engine!(only_who_proves_it_is_gold, streams_of_one_connection_prove_each_for_itself);

const KEY: &str = "k1 0123456789abcdef0123456789abcdef\n";
const OTHER: &str = "k2 fedcba9876543210fedcba9876543210\n";

const POLICY: &str = r#"
[identity]
cookie = "id"
[[rule]]
name = "gold"
identity = "gold*"
action = "allow"
stop = true
[[rule]]
name = "others"
path = ["/", "/closed/*", "/app/*"]
action = "reject"
"#;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("site/index.html", "index");
    folder.write("site/closed/index.html", "closed");
    folder.write("site/open.txt", "open");
    folder.write("keys", KEY);
    folder
}

fn serve(folder: &Folder, engine: &str, more: &str) -> WatchedServer {
    let keys = folder.join("keys");
    let identity = format!("[identity]\nkeys = {keys:?}");
    let policy = POLICY.replace("[identity]", &identity);
    let log = format!("log.access = {:?}\nlog.format = \"json\"\n", folder.join("access.log"));
    let lines = format!("{log}{more}\n{policy}");
    WatchedServer::with(Options::new(folder.join("site")).engine(engine).config(&lines))
}

fn policy_token(folder: &Folder, arguments: &[&str]) -> Output {
    policy_token_by(folder, "keys", arguments)
}

/// Makes a token by the keys in this file.
fn policy_token_by(folder: &Folder, keys: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(["policy", "token", "--keys"]).arg(folder.join(keys)).args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

fn token(folder: &Folder, arguments: &[&str]) -> String {
    token_by(folder, "keys", arguments)
}

fn token_by(folder: &Folder, keys: &str, arguments: &[&str]) -> String {
    let output = policy_token_by(folder, keys, arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The status of an answer on a connection that stays.
fn ask(stream: &mut BufReader<TcpStream>, path: &str, cookie: &str) -> u16 {
    let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\nCookie: {cookie}\r\n\r\n");
    stream.get_mut().write_all(head.as_bytes()).unwrap();
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let begin = head.len();
        assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
        if let Some(value) = head[begin..].to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    stream.read_exact(&mut vec![0; length]).unwrap();
    head[9..12].parse().unwrap()
}

fn connect(served: &WatchedServer) -> BufReader<TcpStream> {
    BufReader::new(forebay_tests::wire::connect(served.addr()))
}

fn only_who_proves_it_is_gold(engine: &str) {
    let folder = folder();
    let served = serve(&folder, engine, "");
    let gold = token(&folder, &["gold"]);
    let mut stream = connect(&served);
    assert_eq!(ask(&mut stream, "/open.txt", "a=b"), 200);
    assert_eq!(ask(&mut stream, "/", "a=b"), 403);
    let here = token(&folder, &["gold-7", "--network", "127.0.0.0/8"]);
    for good in [format!("id={gold}"), format!("a=b; id={here};c=d"), format!("id={gold}")] {
        for path in ["/", "/closed/", "/closed/index.html"] {
            assert_eq!(ask(&mut stream, path, &good), 200, "{good}");
        }
    }
    // copied elsewhere, it is good unless it is bound
    let elsewhere = token(&folder, &["gold", "--network", "192.0.2.0/24"]);
    let expired = token(&folder, &["gold", "--for", "0s"]);
    let cut = &gold[..gold.len() - 1];
    // beside the file of the server, which would take over what is in it for a moment
    folder.write("foreign/keys", OTHER);
    let foreign = token_by(&folder, "foreign/keys", &["gold"]);
    let silver = token(&folder, &["silver"]);
    for bad in [
        &*elsewhere,
        &expired,
        cut,
        &foreign,
        &foreign.replace("k2", "k1"),
        &silver,
        &silver.replace("silver", "gold"),
        "gold",
        "",
    ] {
        assert_eq!(ask(&mut stream, "/", &format!("id={bad}")), 403, "{bad}");
        assert_eq!(ask(&mut connect(&served), "/", &format!("id={bad}")), 403, "{bad}");
    }
    let metrics = served.metrics();
    for (result, count) in [
        ("accepted", 9 + 2),
        ("elsewhere", 2),
        ("expired", 2),
        ("malformed", 6),
        ("unknown_key", 2),
        ("forged", 4),
    ] {
        let line = format!("forebay_identity_tokens_total{{result=\"{result}\"}} {count}");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let log = folder.join("access.log");
    let is_told = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let told = |said: &&str| text.contains(&format!("\"token\":\"{said}\""));
        ["accepted", "forged", "expired"].iter().all(told)
    };
    assert!(soon(PATIENCE, is_told));
    assert!(!std::fs::read_to_string(&log).unwrap().contains(&gold), "it is a secret");
}

/// The first of two cookies counts, and only a whole token does.
#[test]
fn what_is_odd_proves_nothing() {
    let folder = folder();
    let served = serve(&folder, "event", "");
    let gold = token(&folder, &["gold", "--for", "2h"]);
    let parts: Vec<&str> = gold.split('.').collect();
    let [_, _, until, _, _, mac] = parts[..] else { panic!("{gold}") };
    let with = |at: usize, part: &str| {
        let mut parts = parts.clone();
        parts[at] = part;
        parts.join(".")
    };
    // the last digit has two bits that say nothing
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let last = digits.find(&mac[mac.len() - 1..]).unwrap();
    let loose = format!("{}{}", &gold[..gold.len() - 1], &digits[last + 1..last + 2]);
    let later = (until.parse::<u64>().unwrap() + 1).to_string();
    let mut stream = connect(&served);
    for good in [format!("id={gold}"), format!("a={}; id={gold}", "a".repeat(4096))] {
        assert_eq!(ask(&mut stream, "/", &good), 200, "{good}");
    }
    for bad in [
        format!("id=x; id={gold}"),
        format!("a=b; ID={gold}"),
        format!("id=\"{gold}\""),
        format!("id={gold}="),
        format!("id={gold}."),
        format!("id={gold}x"),
        format!("id={loose}"),
        format!("id={}", gold.to_uppercase()),
        format!("id={}", with(0, "f2")),
        format!("id={}", with(1, "")),
        format!("id={}", with(2, &later)),
        format!("id={}", with(2, "99999999999999999999")),
        format!("id={}", with(3, "")),
        format!("id={}", with(4, "7f000001-32")),
        format!("id={}", with(5, "")),
        format!("id={}", "a".repeat(8192)),
        format!("id={}", ".".repeat(8192)),
    ] {
        assert_eq!(ask(&mut stream, "/", &bad), 403, "{bad}");
        assert_eq!(ask(&mut stream, "/", &format!("id={gold}")), 200, "after {bad}");
    }
    let fields = format!("Cookie: id=x\r\nCookie: id={gold}\r\n");
    let head = format!("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n");
    assert!(served.exchange(head.as_bytes()).starts_with(b"HTTP/1.1 403 "));
}

/// A connection's memory of a token ends with the token.
#[test]
fn a_token_expires_on_the_connection_that_has_shown_it() {
    let folder = folder();
    let served = serve(&folder, "event", "");
    let mut stream = connect(&served);
    // on a machine that is busy one may have expired before it is shown
    let mut shown = (0..20).map(|_| format!("id={}", token(&folder, &["gold", "--for", "2s"])));
    let shown = shown.find(|cookie| ask(&mut stream, "/", cookie) == 200).unwrap();
    assert!(soon(PATIENCE, || ask(&mut stream, "/", &shown) == 403));
    assert_eq!(ask(&mut connect(&served), "/", &shown), 403);
}

/// The cookies of streams come one by one, and none counts for another request.
fn streams_of_one_connection_prove_each_for_itself(engine: &str) {
    let folder = folder();
    let served = serve(&folder, engine, "");
    let gold = format!("id={}", token(&folder, &["gold"]));
    let silver = format!("id={}", token(&folder, &["silver"]));
    let mut client = Client::of(&served);
    for _ in 0..3 {
        let mut expected = Vec::new();
        for (cookies, status) in [
            (&[("cookie", "a=b"), ("cookie", &*gold), ("cookie", "c=d")][..], 200),
            (&[("cookie", "a=b"), ("cookie", &*silver)], 403),
            (&[], 403),
            (&[("cookie", &*gold)], 200),
        ] {
            expected.push((client.begin("GET", "/", cookies, true), status));
        }
        for (stream, status) in expected {
            assert_eq!(client.answer(stream).status, status);
        }
    }
}

/// Keys are replaced while clients come: both are good until the old one is gone.
#[test]
fn keys_are_taken_over_by_a_reload() {
    let folder = folder();
    let served = serve(&folder, "event", "");
    let old = format!("id={}", token(&folder, &["gold"]));
    let mut stream = connect(&served);
    assert_eq!(ask(&mut stream, "/", &old), 200);
    folder.write("keys", format!("{OTHER}{KEY}"));
    let new = format!("id={}", token(&folder, &["gold"]));
    assert!(new.starts_with("id=f1.k2."), "the first key signs: {new}");
    let reload = || assert_eq!(served.reload().0, Some(0));
    reload();
    assert_eq!((ask(&mut stream, "/", &old), ask(&mut stream, "/", &new)), (200, 200));
    folder.write("keys", OTHER);
    reload();
    assert_eq!((ask(&mut stream, "/", &old), ask(&mut stream, "/", &new)), (403, 200));
    // a file that has changed is looked at without a reload, too
    folder.write("keys", KEY);
    assert!(soon(PATIENCE, || ask(&mut stream, "/", &old) == 200));
    assert_eq!(ask(&mut stream, "/", &new), 403);
    folder.write("keys", OTHER);
    reload();
    assert_eq!((ask(&mut stream, "/", &old), ask(&mut stream, "/", &new)), (403, 200));
    // a faulty file of keys changes nothing
    folder.write("keys", "k3 short\n");
    let (code, said) = served.reload();
    assert!(code != Some(0) && said.contains("less than 32"), "{said}");
    assert_eq!((ask(&mut stream, "/", &old), ask(&mut stream, "/", &new)), (403, 200));
}

/// An application does not get the cookie, if that is configured, and gets all others.
#[test]
fn an_application_need_not_see_it() {
    let folder = folder();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (mut reader, mut head) = (BufReader::new(&stream), String::new());
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap_or(0) > 0 {}
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{head}",
                head.len()
            );
            let _ = (&stream).write_all(answer.as_bytes());
        }
    });
    let gold = token(&folder, &["gold"]);
    let route = format!("[[proxy]]\npath = \"/app/*\"\nto = \"http://{addr}\"\n");
    for (remove, expected) in [
        ("remove = true", "cookie: a=b; c=d\r\n".to_owned()),
        ("remove = false", format!("cookie: a=b; id={gold}; c=d\r\n").to_lowercase()),
    ] {
        let served = serve(&folder, "event", "");
        let file = std::fs::read_to_string(served.file()).unwrap();
        let file = file.replace("cookie = \"id\"", &format!("cookie = \"id\"\n{remove}"));
        served.configure_with(&format!("{file}\n{route}"));
        assert_eq!(served.reload().0, Some(0));
        let head = format!(
            "GET /app/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nCookie: a=b; id={gold}; c=d\r\n\r\n"
        );
        let told = String::from_utf8(served.exchange(head.as_bytes())).unwrap().to_lowercase();
        assert!(told.contains(&expected), "{told}");
    }
}

#[test]
fn a_token_is_made_and_checked_by_the_command() {
    let folder = folder();
    let gold = token(&folder, &["gold", "--for", "2h", "--network", "10.1.2.3/16"]);
    let said = token(&folder, &["--check", &gold, "--client", "10.1.9.9"]);
    assert!(said.starts_with("gold, in 10.1.0.0/16, for 7"), "{said}");
    let expired = token(&folder, &["gold", "--for", "0s"]);
    for (arguments, why) in [
        (&["--check", &*gold, "--client", "10.2.0.1"][..], "another network"),
        (&["--check", &expired], "has expired"),
        (&["--check", &gold[..gold.len() - 1]], "not the form"),
        (&["--check", ""], "not the form"),
        (&["--check", &gold[1..]], "not the form"),
        (&["a.b"], "letters of ASCII"),
        (&["gold", "--key", "k9"], "there are k1"),
    ] {
        let output = policy_token(&folder, arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
    let output = policy_token(&folder, &["gold", "--for", "soon"]);
    assert_eq!(output.status.code(), Some(2));
}
