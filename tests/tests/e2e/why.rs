//! `forebay why`: error pages have an id, and the server knows the decision behind it.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::operator_bans::{OTHER, PROXY, STRANGER, done, forebay, start};
use forebay_tests::faults::crowd::connect_from;
use forebay_tests::faults::soon;
use forebay_tests::server::free_addr;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ISOLATED, Server, on_each_engine};
use std::io::{Read, Write};
use std::net::IpAddr;

on_each_engine! {
    who_is_refused_can_be_told_why,
    an_application_that_is_down_is_named,
}

/// Reads a whole answer on a connection of its own.
fn ask(server: &Server, from: &str, path: &str, fields: &str) -> String {
    let from: IpAddr = from.parse().unwrap();
    let mut stream = connect_from(from, server.addr()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{fields}Connection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The id in the head, which must also be in the text of a page of the server's own.
#[track_caller]
fn id_of(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut ids = head.lines().filter_map(|line| line.strip_prefix("X-Request-ID: "));
    let id = ids.next().unwrap_or_else(|| panic!("{answer}")).to_owned();
    assert!(ids.next().is_none(), "{answer}");
    assert!(body.contains(&format!("<code>{id}</code>")), "{answer}");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    assert_eq!(length.parse(), Ok(body.len()), "{answer}");
    id
}

fn why(server: &Server, id: &str) -> String {
    done(server, &["why", id])
}

fn who_is_refused_can_be_told_why(engine: &str) {
    let rules = "[[rule]]\nname = \"each\"\npath = \"/*.html\"\n\
                 requests = { rate = \"1/h\", burst = 1, per = \"client\" }\n\
                 [[rule]]\nname = \"closed\"\npath = \"/closed\"\naction = \"reject\"\n";
    let log = "log.access = \"access.log\"\nlog.format = \"json\"\n";
    let (_folder, server) =
        start(engine, &format!("trusted_proxies = [\"{PROXY}\"]\n{log}{rules}"));
    let served = ask(&server, STRANGER, "/index.html", "");
    assert!(served.ends_with("hello") && !served.contains("X-Request-ID"), "{served}");
    let (code, said) = forebay(&server, &["why", "abc"]);
    assert!(code == Some(1) && said.contains("no request was refused since the start"), "{said}");
    let limited = ask(&server, STRANGER, "/index.html?token=secret", "");
    assert!(limited.starts_with("HTTP/1.1 429 "), "{limited}");
    let id = id_of(&limited);
    let said = why(&server, &id);
    assert!(
        said.contains(&format!(
            ": GET a.example/index.html of {STRANGER} got 429, because it was over the limit of the rule \
             \"each\" (requests); class \"default\""
        )),
        "{said}"
    );
    // the log has the same
    let log = || std::fs::read_to_string(server.folder().join("access.log")).unwrap_or_default();
    let is_logged = || log().contains(&format!("\"request_id\":\"{id}\""));
    assert!(soon(PATIENCE, is_logged), "{}", log());
    let closed = ask(&server, OTHER, "/closed", "");
    let said = why(&server, &id_of(&closed));
    assert!(said.contains("got 403, because the rule \"closed\" says so (action)"), "{said}");
    // a request id of a proxy takes precedence, and the client is the one that it states
    done(&server, &["policy", "ban", "203.0.113.0/24", "--why", "a flood"]);
    let fields = "X-Forwarded-For: 203.0.113.9\r\nX-Request-ID: of-the-proxy.1\r\n";
    let banned = ask(&server, PROXY, "/", fields);
    assert_eq!(id_of(&banned), "of-the-proxy.1");
    let said = why(&server, "of-the-proxy.1");
    let because =
        "of 203.0.113.9 got 403, because its client was banned with 203.0.113.0/24: a flood";
    assert!(said.contains(because), "{said}");
    // a stranger's is not believed
    let stranger = ask(&server, STRANGER, "/closed", "X-Request-ID: of-a-stranger\r\n");
    assert_ne!(id_of(&stranger), "of-a-stranger");
    // a missing file is no refusal
    let missing = ask(&server, OTHER, "/missing", "");
    assert!(missing.starts_with("HTTP/1.1 404 ") && !missing.contains("X-Request-ID"), "{missing}");
    let (code, said) = forebay(&server, &["why", "0123"]);
    assert!(
        code == Some(1) && said.contains("the last 4 refusals are remembered, since 20"),
        "{said}"
    );
}

fn an_application_that_is_down_is_named(engine: &str) {
    let gone = free_addr();
    let proxy = format!("[[proxy]]\npath = \"/app\"\nto = \"http://{gone}\"\n");
    let (_folder, server) = start(engine, &proxy);
    let answer = ask(&server, STRANGER, "/app/x", "");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    let said = why(&server, &id_of(&answer));
    let because = format!(
        "got 502, because the upstream {gone} was asked: The application cannot be reached"
    );
    assert!(said.contains(&because), "{said}");
    // on the next, too, which finds the application left alone or asks it again
    let answer = ask(&server, STRANGER, "/app/y", "");
    assert!(why(&server, &id_of(&answer)).contains("GET a.example/app/y"), "{answer}");
}

#[test]
fn of_one_that_is_not_known_the_log_is_named() {
    for engine in ["event", ISOLATED] {
        let (_folder, server) = start(engine, "");
        let (code, said) = forebay(&server, &["why", "abc"]);
        assert!(code == Some(1) && said.contains("the access log has the others"), "{said}");
    }
}
