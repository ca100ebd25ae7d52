//! HTTP/2: requests are streams, and the failures that a server causes are distinguished.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use crate::target::http2::{http2, mute, setting};
use crate::target::{always, group, run_for, run_until, until};
use forebay_http2::frame::{flag, kind};
use forebay_http2::hpack::encode;
use forebay_http2::{ErrorCode, Http2Limits, MessagePart};
use forebay_load::report::GroupReport;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A server that answers every request with five bytes.
fn well() -> crate::target::Server {
    http2(Http2Limits::default(), |peer, request| peer.answer(request.stream, 200, "hello"))
}

/// The report on a group that has run until `enough` holds.
fn found(
    address: SocketAddr,
    settings: &str,
    is_enough: impl Fn(&GroupReport) -> bool,
) -> GroupReport {
    let group = group(address, &format!("http=2,{settings}"));
    let mut report = run_until(200, &group, |report| is_enough(&report.groups[0]));
    report.groups.remove(0)
}

/// The kinds of the group's failures, except those from the end of the run, and their reasons.
fn failures(group: &GroupReport) -> (Vec<&str>, Vec<&str>) {
    let kinds = group.failures.keys().map(String::as_str).filter(|kind| *kind != "unfinished");
    let reasons = group.reasons.values().flat_map(BTreeMap::keys).map(String::as_str);
    (kinds.collect(), reasons.collect())
}

#[test]
fn requests_are_streams_of_few_connections() {
    let server = well();
    let settings = "connections=2,streams=5,length=5,body=3610a686";
    let all = found(server.address, settings, |all| all.good > 100);
    assert!(all.good > 100 && all.failed == 0, "{all:?}");
    assert_eq!((all.connections.opened, all.statuses[&200]), (2, all.good));
    assert!(all.load.ends_with("HTTP/2, 5 streams at once, keep-alive"), "{}", all.load);
}

#[test]
fn a_connection_carries_as_many_streams_as_it_was_told() {
    let server = well();
    let all = found(server.address, "requests=40,per_connection=4,streams=3", |all| all.good == 40);
    assert_eq!((all.good, all.failed), (40, 0));
    assert_eq!(all.connections.opened, 10);
}

#[test]
fn requests_are_what_was_asked_for() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let server = http2(Http2Limits::default(), move |peer, request| {
        notes.lock().unwrap().push((request.head.clone(), request.body.len()));
        peer.answer(request.stream, 200, "");
    });
    let ask = |settings: &str| {
        let all = found(server.address, &format!("requests=3,{settings}"), |all| all.good == 3);
        assert_eq!((all.good, all.failed), (3, 0), "{settings}: {:?}", all.failures);
        std::mem::take(&mut *seen.lock().unwrap()).pop().unwrap()
    };
    let at = server.address;
    assert_eq!(ask("url=/a?b"), (format!("GET {at} /a?b"), 0));
    let head = "HEAD shop.example / x-a=b".to_owned();
    assert_eq!(ask("method=HEAD,header=Host: shop.example,header=X-A: b"), (head, 0));
    assert_eq!(ask("request_body=x=1").0, format!("POST {at} / content-length=3"));
    // a body larger than windows and frames
    let file = std::env::temp_dir().join(format!("forebay-load-body-{}", std::process::id()));
    std::fs::write(&file, vec![b'x'; 300_000]).unwrap();
    let (_, len) = ask(&format!("request_body=@{},streams=3", file.display()));
    assert_eq!(len, 300_000);
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn small_windows_are_waited_for() {
    let server = http2(Http2Limits::default(), |peer, request| {
        assert_eq!(request.body.len(), 100);
        if !peer.is_stingy {
            // from now on streams begin with a window of a few bytes
            peer.frame(kind::SETTINGS, 0, 0, &setting(4, 30));
            peer.is_stingy = true;
        }
        peer.answer(request.stream, 200, "");
    });
    let settings = format!("requests=40,streams=2,request_body={}", "x".repeat(100));
    let all = found(server.address, &settings, |all| all.good == 40);
    assert_eq!((all.good, all.failed), (40, 0), "{:?} {:?}", all.failures, all.reasons);
    // and with none
    let server = mute(setting(4, 0));
    let all = found(server.address, "request_body=x,timeout=100ms", |all| all.failed > 1);
    assert_eq!((failures(&all).0, all.good), (vec!["timeout"], 0));
}

/// Only the stream is given up; the connection continues.
#[test]
fn a_stream_times_out_alone() {
    let resets = Arc::new(AtomicU32::new(0));
    let server = {
        let (resets, count) = (resets.clone(), AtomicU32::new(0));
        http2(Http2Limits::default(), move |peer, request| {
            assert!(peer.resets.iter().all(|code| *code == ErrorCode::CANCEL));
            resets.fetch_max(peer.resets.len() as u32, Ordering::Relaxed);
            if count.fetch_add(1, Ordering::Relaxed) % 4 > 0 {
                peer.answer(request.stream, 200, "hello");
            }
        })
    };
    let settings = "streams=2,timeout=100ms,connections=1,pause=0";
    let all = found(server.address, settings, |all| all.good > 2 && all.failed > 2);
    assert!(all.good > 2 && all.failures["timeout"] > 2, "{:?}", all.failures);
    assert_eq!((failures(&all).0, all.connections.opened), (vec!["timeout"], 1));
    until("streams were reset", || resets.load(Ordering::Relaxed) > 0);
}

#[test]
fn resets_are_told_by_their_code() {
    let code = |code: ErrorCode| {
        let server =
            http2(Http2Limits::default(), move |peer, request| peer.reset(request.stream, code));
        let all = found(server.address, "streams=3", |all| all.failed > 10);
        assert_eq!((all.good, all.connections.opened), (0, 1));
        let (kinds, reasons) = failures(&all);
        (kinds.join(" "), reasons.join(" "))
    };
    assert_eq!(code(ErrorCode::REFUSED_STREAM), ("stream_refused".to_owned(), String::new()));
    let calm = ("stream_reset".to_owned(), "ENHANCE_YOUR_CALM".to_owned());
    assert_eq!(code(ErrorCode::ENHANCE_YOUR_CALM), calm);
}

/// A server may refuse more than a thousand requests on one connection without ending it.
#[test]
fn a_server_may_refuse_as_often_as_it_likes() {
    let server = http2(Http2Limits::default(), |peer, request| {
        peer.reset(request.stream, ErrorCode::REFUSED_STREAM);
    });
    let all = found(server.address, "requests=3000,streams=50,pause=0", |all| all.failed == 3000);
    assert_eq!((all.failures["stream_refused"], all.failed), (3000, 3000), "{:?}", all.failures);
    assert_eq!(all.connections.opened, 1);
}

#[test]
fn a_server_says_goodbye_and_nothing_is_lost() {
    let server = http2(Http2Limits::default(), |peer, request| {
        peer.answer(request.stream, 200, "hello");
        if request.stream >= 5 {
            peer.machine.drain();
        }
    });
    let all = found(server.address, "connections=2", |all| all.connections.goaways > 3);
    assert_eq!(all.failed, 0, "{:?}", all.failures);
    assert!(all.connections.goaways > 3 && all.connections.opened >= all.connections.goaways);
}

#[test]
fn what_a_goodbye_leaves_undone_has_failed() {
    let server = http2(Http2Limits::default(), |peer, request| {
        // the first of two streams is processed, and GOAWAY has a reason
        let calm = [1u32.to_be_bytes(), ErrorCode::ENHANCE_YOUR_CALM.0.to_be_bytes()].concat();
        if request.stream == 3 {
            peer.frame(kind::GOAWAY, 0, 0, &calm);
            peer.close();
        }
    });
    let all = found(server.address, "streams=2", |all| all.failed > 5);
    let (kinds, reasons) = failures(&all);
    assert_eq!((kinds, all.good), (vec!["goaway"], 0));
    assert_eq!(reasons, ["ENHANCE_YOUR_CALM", "not processed"]);
}

#[test]
fn no_more_streams_are_opened_than_the_server_takes() {
    let (most, peak) = (2, Arc::new(AtomicU32::new(0)));
    let seen = peak.clone();
    let limits = Http2Limits { streams: most, ..Http2Limits::default() };
    let server = http2(limits, move |peer, request| {
        seen.fetch_max(peer.machine.open_streams() as u32, Ordering::Relaxed);
        peer.answer(request.stream, 200, "hello");
    });
    let all = found(server.address, "streams=10", |all| all.good > 50);
    // only the requests sent before the client received the GOAWAY fail
    assert!(all.good > 50 && all.failed <= 8, "{:?}", all.failures);
    assert!(failures(&all).0.iter().all(|kind| *kind == "stream_refused"));
    assert!(peak.load(Ordering::Relaxed) <= most);
}

#[test]
fn a_server_that_takes_no_stream_is_not_waited_for_for_ever() {
    let server = mute(setting(3, 0));
    // the first request was sent before the client received the settings
    let is_told = |all: &GroupReport| all.reasons.contains_key("timeout");
    let all = found(server.address, "timeout=100ms", is_told);
    assert_eq!(failures(&all), (vec!["timeout"], vec!["the server takes no stream"]), "{all:?}");
    let server = mute(setting(3, 0));
    let all = found(server.address, "rate=50,timeout=100ms,connections=2", |all| all.failed > 5);
    assert!(failures(&all).0.iter().all(|kind| ["timeout", "unsent"].contains(kind)), "{all:?}");
}

#[test]
fn rules_that_a_server_breaks_are_named() {
    let broken = |answer: fn(&mut crate::target::http2::Peer, u32)| {
        let server =
            http2(Http2Limits::default(), move |peer, request| answer(peer, request.stream));
        let all = found(server.address, "", |all| all.failed > 2);
        assert_eq!((all.good, failures(&all).0), (0, vec!["protocol"]), "{:?}", all.failures);
        failures(&all).1.join(" ")
    };
    let pushed = broken(|peer, stream| {
        peer.frame(kind::PUSH_PROMISE, flag::END_HEADERS, stream, &[0, 0, 0, 2, 0x88]);
    });
    assert_eq!(pushed, "the peer may not push");
    let short = broken(|peer, stream| {
        let mut block = vec![0x88];
        encode::field(&mut block, b"content-length", b"9");
        peer.frame(kind::HEADERS, flag::END_HEADERS, stream, &block);
        peer.frame(kind::DATA, flag::END_STREAM, stream, b"hello");
    });
    assert_eq!(short, "a body has another length than its head says");
    let large = broken(|peer, stream| {
        peer.machine.head(&mut Vec::new(), stream, MessagePart::Last, |_| {});
        let mut block = vec![0x88];
        for place in 0..70 {
            let name = format!("x-{place}");
            encode::field(&mut block, name.as_bytes(), "<".repeat(1000).as_bytes());
        }
        let mut pieces = block.chunks(16_000).enumerate().peekable();
        while let Some((place, piece)) = pieces.next() {
            let is_last = pieces.peek().is_none();
            let kind = if place == 0 { kind::HEADERS } else { kind::CONTINUATION };
            let ends = if place == 0 { flag::END_STREAM } else { 0 };
            peer.frame(kind, ends | if is_last { flag::END_HEADERS } else { 0 }, stream, piece);
        }
    });
    assert_eq!(large, "a head is too large");
    let flood = broken(|peer, stream| {
        peer.frame(kind::HEADERS, flag::END_STREAM, stream, &[0x88]);
        for _ in 0..40 {
            peer.frame(kind::CONTINUATION, 0, stream, &[]);
        }
    });
    assert_eq!(flood, "a header block does not end");
    let window = broken(|peer, _| peer.frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]));
    assert_eq!(window, "WINDOW_UPDATE by nothing");
}

#[test]
fn a_head_in_pieces_trailers_and_early_responses_are_understood() {
    let server = http2(Http2Limits::default(), |peer, request| {
        let stream = request.stream;
        peer.machine.head(&mut Vec::new(), stream, MessagePart::Last, |_| {});
        let mut early = Vec::new();
        encode::status(&mut early, 103);
        peer.frame(kind::HEADERS, flag::END_HEADERS, stream, &early);
        peer.frame(kind::HEADERS, 0, stream, &[0x88]);
        let mut rest = Vec::new();
        encode::field(&mut rest, b"x-a", b"b");
        peer.frame(kind::CONTINUATION, flag::END_HEADERS, stream, &rest);
        peer.frame(kind::DATA, flag::PADDED, stream, b"\x02hello\0\0");
        peer.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &rest);
    });
    let all = found(server.address, "length=5,body=same,streams=2", |all| all.good > 10);
    assert!(all.good > 10 && all.failed == 0, "{:?} {:?}", all.failures, all.reasons);
}

#[test]
fn a_server_of_another_protocol_is_recognised() {
    let server = always("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let all = found(server.address, "", |all| all.failed > 2);
    assert_eq!(failures(&all), (vec!["malformed"], vec!["the server speaks HTTP/1"]));
    let server = mute(Vec::new());
    let report = run_until(200, &group(server.address, ""), |report| report.groups[0].failed > 2);
    let all = &report.groups[0];
    assert_eq!(failures(all), (vec!["malformed"], vec!["the server speaks HTTP/2"]));
}

#[test]
fn a_connection_that_ends_cuts_its_streams() {
    let server = http2(Http2Limits::default(), |peer, request| {
        if request.stream == 1 {
            peer.machine.head(&mut Vec::new(), 1, MessagePart::Head, |_| {});
            peer.frame(kind::HEADERS, flag::END_HEADERS, 1, &[0x88]);
            peer.frame(kind::DATA, 0, 1, b"hell");
        } else {
            peer.close();
        }
    });
    let all = found(server.address, "streams=2", |all| all.failed > 3);
    assert_eq!((failures(&all).0, all.good), (vec!["closed", "short"], 0), "{:?}", all.failures);
}

#[test]
fn an_open_loop_shares_connections() {
    let server = http2(Http2Limits::default(), |peer, request| {
        peer.answer(request.stream, 200, "hello");
    });
    let all = found(server.address, "rate=200,streams=10,requests=60", |all| all.offered == 60);
    assert_eq!((all.offered, all.good, all.failed), (60, 60, 0));
    let settings = "rate=100,per_connection=3,requests=60,streams=2";
    let all = found(server.address, settings, |all| all.offered == 60);
    assert_eq!((all.good, all.failed, all.connections.opened), (60, 0, 20));
}

/// Bursts of a hundred requests use five connections of twenty streams, not a hundred of one.
#[test]
fn a_pool_fills_its_connections() {
    let server = http2(Http2Limits::default(), |peer, request| {
        thread::sleep(Duration::from_millis(1));
        peer.answer(request.stream, 200, "hello");
    });
    let settings = "bursts=100-100@2/s,streams=20,connections=50,requests=100";
    let all = found(server.address, settings, |all| all.offered == 100);
    assert_eq!((all.good, all.failed, all.connections.waited), (100, 0, 0), "{:?}", all.failures);
    assert!(all.connections.opened <= 5, "{:?}", all.connections);
}

#[test]
fn a_narrow_line_is_no_wider_than_it_says() {
    let body: &str = Box::leak("x".repeat(10_000).into_boxed_str());
    let server = http2(Http2Limits::default(), move |peer, request| {
        peer.answer(request.stream, 200, body);
    });
    let plan = group(server.address, "http=2,connections=2,streams=3,receive=400kbit/s");
    let report = run_for(1500, plan);
    let clients = report.groups[0].clients.unwrap();
    assert!(clients.max_bit_per_s <= 404_000.0, "{clients:?}");
    assert_eq!(report.groups[0].failed, 0, "{:?}", report.groups[0].failures);
}

/// Frames about the connection do not restart the pause.
#[test]
fn a_client_thinks_while_it_is_talked_to() {
    let server = http2(Http2Limits::default(), |peer, request| {
        peer.be_restless();
        peer.answer(request.stream, 200, "hello");
    });
    let all = found(server.address, "think=100ms,requests=3", |all| all.good == 3);
    assert_eq!((all.good, all.failed), (3, 0));
}

#[test]
fn a_pause_to_think_comes_when_all_streams_are_answered() {
    let server = well();
    let all = found(server.address, "streams=4,think=10ms,requests=40", |all| all.good == 40);
    assert_eq!((all.good, all.failed, all.connections.opened), (40, 0, 1));
    // four at a time, ten times, with nine pauses in between
    assert!(all.seconds >= 0.09, "{}", all.seconds);
}
