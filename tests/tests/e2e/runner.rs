//! The runner of the conformance cases must be able to fail: it plays cases against servers that are
//! wrong in one way each, and has to find each of them.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on panics")]

use forebay_tests::case::Case;
use forebay_tests::play::{Manner, play};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::SystemTime;

/// Plays a case against a server that reads once, answers with these bytes and closes. `DATE`
/// stands for now.
fn outcome(case: &str, answer: &str) -> Result<(), String> {
    outcome_after("", case, answer)
}

/// The outcome with more lines behind the request.
fn outcome_after(more: &str, case: &str, answer: &str) -> Result<(), String> {
    let date = httpdate::fmt_http_date(SystemTime::now());
    let answer = answer.replace('\n', "\r\n").replace("DATE", &date).into_bytes();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            serve(stream.unwrap(), &answer);
        }
    });
    let case = format!("# RFC\n# a case\nGET / HTTP/1.1\nHost: a\n\n{more}---\n{case}");
    play(&Case::parse(&case).unwrap(), addr, Path::new("/"), Manner::Whole)
}

fn serve(mut stream: TcpStream, answer: &[u8]) {
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.write_all(answer);
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read(&mut [0; 4096]);
}

const CASE: &str = "HTTP/1.1 200 OK\nX-A: b\n! X-B\nETag: \"$tag\"\nbody: \"hi\"\nclosed\n";
const GOOD: &str = "HTTP/1.1 200 OK\nDate: DATE\nContent-Type: text/plain\nX-A: b\nETag: \"t\"\n\
                    Content-Length: 2\nConnection: close\n\nhi";

#[test]
fn a_right_answer_passes() {
    assert_eq!(outcome(CASE, GOOD), Ok(()));
    assert_eq!(outcome("HTTP/1.1 200 OK\nbody: ~^hi$\nclosed\n", GOOD), Ok(()));
    assert_eq!(outcome("nothing\nclosed\n", ""), Ok(()));
}

#[test]
fn a_wrong_answer_is_found_out() {
    for (from, to, found) in [
        ("200 OK", "201 Created", "status line"),
        ("X-A: b", "X-A: c", "X-A is \"c\""),
        ("X-A: b\n", "", "X-A is missing"),
        ("X-A: b", "X-A: b\nX-B: c", "X-B should not be there"),
        ("X-A: b", "X-A: b\nX-A: b", "a field is repeated"),
        ("X-A: b", "X-A: b\n c", "malformed field line"),
        ("ETag: \"t\"", "ETag: \"\"", "ETag is"),
        ("Date: DATE\n", "", "Date is missing"),
        ("DATE", "Thu, 29 Feb 2024 12:00:00 GMT", "Date is not now"),
        ("hi", "ho", "differs at byte 1"),
        ("hi", "h", "1 bytes before the body's end"),
        ("hi", "hi!", "more came"),
        ("Length: 2", "Length: 1", "differs"),
        ("Content-Length: 2\n", "", "0 Content-Length"),
        ("Connection: close\n", "", "does not say `Connection: close`"),
    ] {
        let what = outcome(CASE, &GOOD.replace(from, to)).expect_err(found);
        assert!(what.contains(found), "{found:?} is not in:\n{what}");
    }
}

#[test]
fn a_wrong_end_is_found_out() {
    for (case, answer, found) in [
        ("HTTP/1.1 200 OK\nopen\n", GOOD, "the connection should be open"),
        ("HTTP/1.1 200 OK\nreset\n", GOOD, "should be Reset, but is Closed"),
        ("HTTP/1.1 200 OK\nbody: none\nclosed\n", GOOD, "more came"),
        ("nothing\nclosed\n", GOOD, "more came"),
        ("nothing\nopen\n", GOOD, "something came"),
        ("HTTP/1.1 200 OK\nclosed\n", "", "ended before a whole head"),
        ("HTTP/1.1 200 OK\nHTTP/1.1 200 OK\nclosed\n", GOOD, "ended before a whole head"),
        ("HTTP/1.1 200 OK\nbody: 3 bytes\nclosed\n", GOOD, "2 bytes, not 3"),
        ("HTTP/1.1 200 OK\nbody: empty\nclosed\n", GOOD, "2 bytes, should be 0"),
        ("HTTP/1.1 200 OK\nbody: ~ho\nclosed\n", GOOD, "does not match"),
    ] {
        // silence is accepted soon, so a server that must break it has its time before
        let is_silence = found == "something came";
        let more = if is_silence { "\\pause(2000ms)\n" } else { "" };
        let what = outcome_after(more, case, answer).expect_err(found);
        assert!(what.contains(found), "{found:?} is not in:\n{what}");
    }
}
