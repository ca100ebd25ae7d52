//! TLS handshakes that servers do not complete properly. Those that succeed are tested with the
//! real server.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use crate::target::{Server, run_until, serve};
use forebay_load::{GroupDraft, LoadTarget};
use std::io::{Read, Write};

/// The only kind of failure, and its only reason.
fn only(server: &Server, settings: &str) -> (String, String) {
    let target = LoadTarget::parse(&format!("https://{}/", server.address)).unwrap();
    let draft = GroupDraft::parse(&format!("test:insecure=true,{settings}"), Some(&target));
    let group = draft.unwrap().finish().unwrap();
    let report = run_until(200, &group, |report| report.groups[0].failed > 2);
    let all = &report.groups[0];
    assert_eq!((all.good, all.tls.as_ref().unwrap().full), (0, 0));
    assert!(!all.tls.as_ref().unwrap().verified);
    let kinds: Vec<_> = all.failures.keys().filter(|kind| *kind != "unfinished").collect();
    let reasons: Vec<_> = all.reasons.values().flatten().collect();
    assert_eq!((kinds.len(), reasons.len()), (1, 1), "{:?} {:?}", all.failures, all.reasons);
    assert_eq!(all.failures[kinds[0]], *reasons[0].1);
    (kinds[0].clone(), reasons[0].0.clone())
}

fn handshake(why: &str) -> (String, String) {
    ("handshake".to_owned(), why.to_owned())
}

#[test]
fn a_server_that_speaks_plain_http() {
    let server = serve(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    assert_eq!(only(&server, ""), handshake("what the server says is no TLS"));
}

#[test]
fn a_server_that_is_silent() {
    let server = serve(|mut stream| while let Ok(1..) = stream.read(&mut [0; 4096]) {});
    // longer than the thread is likely to be delayed by what happens before
    for settings in ["connections=4,connect_timeout=3s", "rate=20,connect_timeout=3s,http=2"] {
        let (kind, why) = only(&server, settings);
        assert_eq!((&*kind, &*why), ("connect_timeout", "within the handshake of TLS"));
    }
}

#[test]
fn a_server_that_closes_or_refuses() {
    let server = serve(|mut stream| drop(stream.read(&mut [0; 4096])));
    assert_eq!(only(&server, ""), handshake("the server has closed the connection"));
    let server = serve(|mut stream| {
        let _ = stream.read(&mut [0; 100]);
        // unread input makes the close a reset
    });
    assert_eq!(only(&server, ""), handshake("the server has reset the connection"));
    let server = serve(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(&[21, 3, 3, 0, 2, 2, 40]);
    });
    assert_eq!(only(&server, ""), handshake("the server refused: HandshakeFailure"));
    // half of a record
    let server = serve(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(&[22, 3, 3, 1, 0, 2]);
    });
    assert_eq!(only(&server, "http=2"), handshake("the server has closed the connection"));
}
