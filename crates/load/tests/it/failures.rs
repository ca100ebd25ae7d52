//! Every kind of failure is recognised, and distinguished from the others.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use crate::target::{always, group, refusing, requests, run_until, say, serve};
use forebay_load::Report;
use std::io::Write;
use std::net::{Shutdown, TcpListener};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// The only kind of failure that occurs with these settings.
fn only(address: std::net::SocketAddr, settings: &str) -> String {
    let of = |report: &Report| report.groups[0].failures.keys().any(|kind| kind != "unfinished");
    let report = run_until(200, &group(address, settings), of);
    let failures = &report.groups[0].failures;
    // The end of a short run may cut off a request, and an open loop may find no connection in time.
    let is_luck =
        |kind: &str| kind == "unfinished" || kind == "unsent" && settings.contains("rate");
    let kinds: Vec<_> = failures.keys().filter(|kind| !is_luck(kind)).collect();
    assert_eq!(kinds.len(), 1, "{failures:?}");
    assert_eq!(report.groups[0].good, 0, "{settings}");
    kinds[0].clone()
}

#[test]
fn nothing_fails_when_all_is_well() {
    let server = always(OK);
    let group = group(server.address, "connections=3,length=5,body=3610a686");
    let report = run_until(300, &group, |report| report.groups[0].good > 10);
    let all = &report.groups[0];
    assert!(all.good > 10 && all.failed == 0, "{all:?}");
    assert_eq!(all.statuses[&200], all.good);
    assert_eq!(all.connections.opened, 3);
}

#[test]
fn a_refused_connection() {
    let (free, _kept) = refusing();
    assert_eq!(only(free, ""), "refused");
    assert_eq!(only(free, "rate=50"), "refused");
    assert_eq!(only(free, "rate=50,per_connection=1"), "refused");
}

#[test]
fn a_reset_connection() {
    // closing with unread input sends a RST, so a request has to be there
    let server = serve(|stream| drop(stream.peek(&mut [0])));
    assert_eq!(only(server.address, "pause=50ms"), "reset");
}

#[test]
fn a_connection_closed_without_an_answer() {
    let server = serve(|stream| requests(stream, |_, _| false));
    assert_eq!(only(server.address, ""), "closed");
}

#[test]
fn a_cut_answer() {
    let server = serve(|stream| {
        requests(stream, |_, writer| {
            say(writer, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell");
            let _ = writer.shutdown(Shutdown::Both);
            false
        });
    });
    assert_eq!(only(server.address, ""), "short");
}

#[test]
fn a_silent_server() {
    let server = serve(|stream| requests(stream, |_, _| true));
    // a connection may take as long, and is established at once
    assert_eq!(only(server.address, "timeout=3s"), "timeout");
    assert_eq!(only(server.address, "rate=50,timeout=3s"), "timeout");
}

#[test]
fn something_that_is_not_http() {
    let server = serve(|mut stream| {
        let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        requests(stream, |_, _| true);
    });
    assert_eq!(only(server.address, ""), "malformed");
}

#[test]
fn a_wrong_body() {
    let server = always(OK);
    assert_eq!(only(server.address, "length=6"), "wrong_body");
    assert_eq!(only(server.address, "body=deadbeef"), "wrong_body");
}

#[test]
fn a_body_that_changes() {
    let server = serve(|stream| {
        let mut count = 0;
        requests(stream, |_, writer| {
            count += 1;
            let body = if count == 3 { "jello" } else { "hello" };
            say(writer, &format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}"))
        });
    });
    let group = group(server.address, "body=same");
    let report = run_until(200, &group, |report| report.groups[0].good > 3);
    // one failure on each connection
    let all = &report.groups[0];
    assert_eq!(all.failures["wrong_body"], all.connections.opened, "{all:?}");
    assert!(all.good > 3);
}

#[test]
fn a_status() {
    let server = always("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(only(server.address, ""), "status");
    let group = group(server.address, "status=503");
    let report = run_until(100, &group, |report| report.groups[0].good > 0);
    assert!(report.groups[0].good > 0 && report.groups[0].failed == 0);
}

#[test]
fn a_full_backlog() {
    // The listener never accepts: the kernel takes a few connections, then silently drops SYNs.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let plan = group(address, "connections=400,connect_timeout=2500ms");
    let is_full = |report: &Report| report.groups[0].failures.contains_key("connect_timeout");
    let report = run_until(100, &plan, is_full);
    let group = &report.groups[0];
    assert!(group.failures["connect_timeout"] > 0, "{:?}", group.failures);
    assert!(group.connections.syn_retried >= group.failures["connect_timeout"]);
}
