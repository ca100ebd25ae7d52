//! Tests of the head parser: bytes in, fields or an error out. Each names the rule that demands it.

use super::name::NAMES;
use super::*;

/// Parses `bytes` and shows the outcome to `look`.
pub(crate) fn parsed<R>(
    bytes: &[u8],
    look: impl FnOnce(Result<ParsedHead<'_>, HeadError>) -> R,
) -> R {
    let mut lines = Lines::new();
    look(Head::parse(bytes, &mut lines, &HeadLimits::default()))
}

/// Parses a request of HTTP/1.1 with these field lines (each ended by CR LF).
pub(crate) fn with_fields<R>(method: &str, fields: &str, look: impl FnOnce(&Head<'_>) -> R) -> R {
    let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    complete(text.as_bytes(), look)
}

fn complete<R>(bytes: &[u8], look: impl FnOnce(&Head<'_>) -> R) -> R {
    parsed(bytes, |outcome| match outcome {
        Ok(ParsedHead::Complete(head)) => look(&head),
        other => panic!("{:?} gave {other:?}", String::from_utf8_lossy(bytes)),
    })
}

fn error(bytes: &[u8]) -> HeadError {
    parsed(bytes, |outcome| match outcome {
        Err(error) => error,
        other => panic!("{:?} gave {other:?}", String::from_utf8_lossy(bytes)),
    })
}

fn assert_status(status: u16, heads: &[&[u8]]) {
    for bytes in heads {
        let error = error(bytes);
        assert_eq!(error.status(), status, "{:?}: {error:?}", String::from_utf8_lossy(bytes));
        assert!(!error.reason().is_empty());
    }
}

fn is_partial(bytes: &[u8]) -> bool {
    parsed(bytes, |outcome| matches!(outcome, Ok(ParsedHead::Partial)))
}

#[test]
fn the_parts_of_a_head() {
    let bytes =
        b"GET /a/b?c=d?e HTTP/1.1\r\nHost: Example.com:8080\r\nX-A:  1 \t\r\nx-a:\r\n\r\nrest";
    complete(bytes, |head| {
        assert_eq!(head.method, Method::Get);
        assert_eq!(head.method_text, "GET");
        assert_eq!(head.target, b"/a/b?c=d?e");
        assert_eq!(head.path, b"/a/b");
        assert_eq!(head.query, Some(&b"c=d?e"[..]));
        assert_eq!(head.authority, b"Example.com:8080");
        assert_eq!(head.version, Version::Http11);
        assert_eq!(head.framing, Framing::None);
        assert!(head.keep_alive && !head.expects_continue);
        assert_eq!(head.len, bytes.len() - 4);
        let fields: Vec<_> = head.fields().collect();
        let host = ("Host", &b"Example.com:8080"[..]);
        assert_eq!(fields, [host, ("X-A", &b"1"[..]), ("x-a", &b""[..])]);
    });
}

/// RFC 9110 §9.1: methods are case-sensitive tokens.
#[test]
fn methods() {
    use Method::*;
    for (text, method) in [
        ("GET", Get),
        ("HEAD", Head),
        ("OPTIONS", Options),
        ("POST", Post),
        ("PUT", Put),
        ("DELETE", Delete),
        ("PATCH", Patch),
        ("TRACE", Trace),
        ("get", Unknown),
        ("GETT", Unknown),
        ("BREW", Unknown),
        ("M-SEARCH", Unknown),
        ("!#$%&'*+-.^_`|~9", Unknown),
    ] {
        with_fields(text, "", |head| assert_eq!((head.method, head.method_text), (method, text)));
    }
}

/// RFC 9112 §3.2: the four forms of a target.
#[test]
fn targets() {
    for (line, authority, path, query) in [
        ("GET / HTTP/1.1", "a", "/", None),
        ("GET /? HTTP/1.1", "a", "/", Some("")),
        ("GET //x/../y HTTP/1.1", "a", "//x/../y", None),
        ("GET http://b HTTP/1.1", "b", "/", None),
        ("GET HTTP://B:81/x?y HTTP/1.1", "B:81", "/x", Some("y")),
        ("GET http://b?y/z HTTP/1.1", "b", "/", Some("y/z")),
        ("GET http://[::1]:80/ HTTP/1.1", "[::1]:80", "/", None),
        ("GET https://b HTTP/1.1", "b", "/", None),
        ("GET HTTPS://B:444/x?y HTTP/1.1", "B:444", "/x", Some("y")),
        ("GET /http://b/ HTTP/1.1", "a", "/http://b/", None),
        ("GET /https://b/ HTTP/1.1", "a", "/https://b/", None),
        ("OPTIONS * HTTP/1.1", "a", "*", None),
        ("OPTIONS http://b HTTP/1.1", "b", "*", None),
        ("OPTIONS http://b/ HTTP/1.1", "b", "/", None),
        ("OPTIONS https://b HTTP/1.1", "b", "*", None),
        ("CONNECT b:443 HTTP/1.1", "b:443", "b:443", None),
    ] {
        complete(format!("{line}\r\nHost: a\r\n\r\n").as_bytes(), |head| {
            assert_eq!(head.authority, authority.as_bytes(), "{line}");
            assert_eq!(head.path, path.as_bytes(), "{line}");
            assert_eq!(head.query, query.map(str::as_bytes), "{line}");
            let is_https = line.to_ascii_lowercase().contains(" https://");
            assert_eq!(head.is_https, is_https, "{line}");
        });
    }
    assert_status(
        400,
        &[
            b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
            b"OPTIONS *x HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET index.html HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET ?x HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET http:// HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET http://user@b/ HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET http:/b/ HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET https:// HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET https:///x HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET https://user@b/ HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET https:/b/ HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET httpss://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET ftp://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
            b"CONNECT /x HTTP/1.1\r\nHost: a\r\n\r\n",
        ],
    );
}

/// RFC 9112 §3.2: exactly one valid Host in HTTP/1.1, at most one in HTTP/1.0.
#[test]
fn host() {
    for host in ["a", "a.b-c_d", "a:80", "a:", "127.0.0.1:1", "[::1]", "[::ffff:1.2.3.4]:8", "%41"]
    {
        complete(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(), |head| {
            assert_eq!(head.authority, host.as_bytes());
        });
    }
    complete(b"GET / HTTP/1.0\r\n\r\n", |head| assert_eq!(head.authority, b""));
    complete(b"GET / HTTP/1.0\r\nHost:\r\n\r\n", |head| assert_eq!(head.authority, b""));
    assert_status(
        400,
        &[
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\nHost: \r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nhOST: b\r\n\r\n",
            b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a:x\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a:123456\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: ::1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: []\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: [g]\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\x80\r\n\r\n",
            // also where the target names the host
            b"GET http://a/ HTTP/1.1\r\nHost: a b\r\n\r\n",
        ],
    );
}

/// RFC 9112 §2.3, RFC 9110 §15.6.6.
#[test]
fn versions() {
    assert_status(
        505,
        &[
            b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
            b"GET / HTTP/0.9\r\nHost: a\r\n\r\n",
            b"\r\nGET / HTTP/3.0\r\nHost: a\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ],
    );
    assert_status(
        400,
        &[
            b"GET /\r\n\r\n",
            b"GET / \r\n\r\n",
            b"GET / http/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/11\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.10\r\nHost: a\r\n\r\n",
            b"GET / HTTP/01.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1,1\r\nHost: a\r\n\r\n",
            b"GET / HTTPS/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1 x\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        ],
    );
}

/// A version is judged when its eight bytes are there, however they arrive.
#[test]
fn a_version_in_pieces() {
    for start in ["GET / H", "GET / HTTP/2", "GET / HTTP/9.", "\r\nGET / HTTP/1."] {
        assert!(is_partial(start.as_bytes()), "{start:?}");
    }
    assert_status(505, &[b"GET / HTTP/2.0"]);
    let later = "\r\nGET /a?b HTTP/1.2\r\nHost: a\r\nX: y\r\n\r\n";
    for end in 0..later.len() {
        assert!(is_partial(&later.as_bytes()[..end]), "{:?}", &later[..end]);
    }
    for minor in 2..=9 {
        let text = later.replace("1.2", &format!("1.{minor}"));
        complete(text.as_bytes(), |head| {
            assert_eq!(
                (head.version, head.len, head.path),
                (Version::Http11, text.len(), &b"/a"[..])
            );
            assert_eq!((head.authority, head.fields().count()), (&b"a"[..], 2));
        });
    }
    assert_status(
        400,
        &[
            b"GET / X",
            b"GET / HTTP/x",
            b"GET / HTTP/2\r",
            b"GET / HTTP/2\r\nX: HTTP/2",
            b"GET / HTTP/1.2\n",
            b"GET / HTTP/1.2\rX",
            b"GET / HTTP/1.2\r\nHost: a\nX: y\r\n\r\n",
            b"GET / HTTP/1.2\r\nHost : a\r\n\r\n",
            b"GET / HTTP/1.2\r\n\r\n",
        ],
    );
}

/// RFC 9112 §3: single spaces, no control bytes. RFC 9112 §2.2: no white space before the first
/// field line, empty lines before the request are skipped.
#[test]
fn request_lines() {
    assert_status(
        400,
        &[
            b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
            b" GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /\x1f HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /\r/ HTTP/1.1\r\nHost: a\r\n\r\n",
            b"\0GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
            b"GET / HTTP/1.1\r\n\tHost: a\r\n\r\n",
        ],
    );
    complete(b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", |head| assert_eq!(head.len, 31));
    complete("GET /ä HTTP/1.1\r\nHost: a\r\n\r\n".as_bytes(), |head| {
        assert_eq!(head.path, "/ä".as_bytes());
    });
}

/// RFC 9112 §5: no white space before the colon, no folding, no control bytes, no empty names.
/// RFC 9112 §2.2: a bare LF may end a line, but not here.
#[test]
fn field_lines() {
    assert_status(
        400,
        &[
            b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost\t: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n\tb\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n \r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x01b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x7fb\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x0bb\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX(: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n\x80: b\r\n\r\n",
            b"GET / HTTP/1.1\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\n\r\n",
            b"GET / HTTP/1.1\nHost: a\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n\n",
            b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            // at once, not only when the head is complete
            b"\n",
            b"GET / HTTP/1.1\nHost",
        ],
    );
    with_fields("GET", "X: \x7e\t~\r\nY: ä\r\n", |head| {
        let values: Vec<_> = head.fields().map(|(_, value)| value).collect();
        assert_eq!(values, [&b"a"[..], b"~\t~", "ä".as_bytes()]);
    });
}

#[test]
fn reasons_say_what_is_wrong() {
    for (bytes, reason) in [
        (&b"GET / HTTP/1.1\r\nX : y\r\n\r\n"[..], "a field name is malformed"),
        (b"GET / HTTP/1.1\r\nX: \0\r\n\r\n", "a field value has a forbidden byte"),
        (b"\rGET / HTTP/1.1\r\n\r\n", "a line does not end in CR LF"),
        (b"GET / HTTP/1.1\r\nX: y\n\r\n", "a line ends in a bare LF"),
        (b"G?T / HTTP/1.1\r\n\r\n", "the request line is malformed"),
        (b"GET / HTTP\r\n\r\n", "the version is malformed"),
        (b"GET / HTTP/1.1\r\n\r\n", "Host is missing"),
        (b"GET / HTTP/2.0\r\n\r\n", "this server speaks HTTP/1.0 and HTTP/1.1"),
    ] {
        assert_eq!(error(bytes).reason(), reason, "{:?}", String::from_utf8_lossy(bytes));
    }
}

/// RFC 9112 §6.1, §6.3: whatever leaves the length in doubt is refused.
#[test]
fn framing_fields() {
    for (fields, framing) in [
        ("", Framing::None),
        ("Content-Length: 0\r\n", Framing::None),
        ("Content-Length: 007\r\n", Framing::Sized(7)),
        ("content-LENGTH:18446744073709551615\r\n", Framing::Sized(u64::MAX)),
        ("Transfer-Encoding: chunked\r\n", Framing::Chunked),
        ("transfer-encoding:\tCHUNKED \r\n", Framing::Chunked),
    ] {
        with_fields("POST", fields, |head| assert_eq!(head.framing, framing, "{fields}"));
    }
    for (status, fields) in [
        (400, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        (400, "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        (400, "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"),
        (400, "Content-Length: 5\r\nContent-Length: 5\r\n"),
        (400, "Content-Length: 5\r\nContent-Length: 6\r\n"),
        (400, "Content-Length: 5, 5\r\n"),
        (400, "Content-Length: 5,6\r\n"),
        (400, "Content-Length: +5\r\n"),
        (400, "Content-Length: -5\r\n"),
        (400, "Content-Length: 0x5\r\n"),
        (400, "Content-Length: 5 5\r\n"),
        (400, "Content-Length: 1e3\r\n"),
        (400, "Content-Length: \r\n"),
        (400, "Content-Length: 18446744073709551616\r\n"),
        (400, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        (501, "Transfer-Encoding: gzip\r\n"),
        (501, "Transfer-Encoding: gzip, chunked\r\n"),
        (400, "Transfer-Encoding: chunked, chunked\r\n"),
        (400, "Transfer-Encoding: Chunked , gzip\r\n"),
        (400, "Transfer-Encoding: gzip, chunked, gzip\r\n"),
        (400, "Transfer-Encoding: chunked,\r\n"),
        (501, "Transfer-Encoding: chunked;q=1\r\n"),
        (501, "Transfer-Encoding: identity\r\n"),
        (501, "Transfer-Encoding: xchunked\r\n"),
        (501, "Transfer-Encoding:\r\n"),
    ] {
        let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        assert_status(status, &[text.as_bytes()]);
    }
    assert_status(400, &[b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"]);
    // a control byte that some parsers take for white space
    assert_status(
        400,
        &[
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\0\r\n\r\n",
        ],
    );
}

/// RFC 9112 §9.3.
#[test]
fn persistence() {
    for (version, fields, keep_alive) in [
        ("1.1", "", true),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.1", "Connection: Close\r\n", false),
        ("1.1", "Connection: upgrade , close\r\n", false),
        ("1.1", "Connection: upgrade\r\nConnection: close\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.1", "Connection: ,, close ,\r\n", false),
        ("1.0", "Connection: , keep-alive\r\n", true),
        ("1.1", "Connection: \r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: x,keep-alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
        ("1.0", "Connection: close, keep-alive\r\n", false),
        ("1.0", "Connection: close\r\nConnection: keep-alive\r\n", false),
        ("1.0", "Keep-Alive: 5\r\n", false),
    ] {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        complete(text.as_bytes(), |head| assert_eq!(head.keep_alive, keep_alive, "{text}"));
    }
}

/// RFC 9110 §10.1.1.
#[test]
fn expectations() {
    for fields in ["Expect: 100-Continue\r\n", "Expect: ,, 100-continue ,\r\nExpect:\r\n"] {
        with_fields("POST", fields, |head| assert!(head.expects_continue));
    }
    with_fields("POST", "Expect: ,\r\n", |head| assert!(!head.expects_continue));
    assert_status(
        417,
        &[
            b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue, x\r\n\r\n",
        ],
    );
    for expectation in ["100-continue", "other"] {
        complete(format!("POST / HTTP/1.0\r\nExpect: {expectation}\r\n\r\n").as_bytes(), |head| {
            assert!(!head.expects_continue);
        });
    }
}

/// RFC 9112 §3, RFC 6585 §5.
#[test]
fn limits() {
    let limits =
        HeadLimits { head_bytes: 100, head_lines: 3, target_bytes: 40, ..HeadLimits::default() };
    let status = |text: &str| {
        let mut lines = Lines::new();
        match Head::parse(text.as_bytes(), &mut lines, &limits) {
            Ok(ParsedHead::Complete(_)) => 200,
            Ok(ParsedHead::Partial) => 100,
            Err(error) => error.status(),
        }
    };
    let target = |bytes: usize| format!("GET /{} HTTP/1.0\r\n\r\n", "x".repeat(bytes - 1));
    assert_eq!(status(&target(40)), 200);
    assert_eq!(status(&target(41)), 414);
    assert_eq!(status(&target(300)), 414);
    let size = |bytes: usize| format!("GET / HTTP/1.0\r\nA: {}\r\n\r\n", "x".repeat(bytes - 23));
    assert_eq!(size(100).len(), 100);
    assert_eq!(status(&size(100)), 200);
    assert_eq!(status(&(size(100) + "pipelined")), 200);
    assert_eq!(status(&size(101)), 431);
    assert_eq!(status(&size(101)[..99]), 100);
    assert_eq!(status(&size(101)[..100]), 431);
    assert_eq!(status(&"\r\n".repeat(50)), 414);
    let lines = |count: usize| format!("GET / HTTP/1.0\r\n{}\r\n", "A: b\r\n".repeat(count));
    assert_eq!(status(&lines(3)), 200);
    assert_eq!(status(&lines(4)), 431);
    let most = HeadLimits { head_lines: 10_000, ..HeadLimits::default() };
    for (count, is_good) in [(MOST_LINES, true), (MOST_LINES + 1, false)] {
        let mut found = Lines::new();
        let text = lines(count);
        let outcome = Head::parse(text.as_bytes(), &mut found, &most);
        assert_eq!(matches!(outcome, Ok(ParsedHead::Complete(_))), is_good, "{count} lines");
    }
}

#[test]
fn fields_by_name() {
    let fields = "Accept-encoding: br\r\nX: y\r\nACCEPT-ENCODING:\r\nRange: bytes=0-1\r\n";
    with_fields("GET", fields, |head| {
        let values: Vec<_> = head.values(Name::AcceptEncoding).collect();
        assert_eq!(values, [&b"br"[..], b""]);
        assert_eq!(head.only(Name::AcceptEncoding), None);
        assert_eq!(head.only(Name::Range), Some(&b"bytes=0-1"[..]));
        assert!(!head.has(Name::Cookie));
        assert_eq!(head.values(Name::Cookie).count(), 0);
        assert_eq!(head.only(Name::Cookie), None);
    });
}

#[test]
fn every_known_name_is_found() {
    for (place, (name, text)) in NAMES.into_iter().enumerate() {
        assert_eq!(name as usize, place, "the table is in the order of the names");
        assert_eq!(name.as_str(), text);
        assert_eq!(Name::known(text), Some(name), "{text}");
        assert_eq!(Name::known(&text.to_uppercase()), Some(name), "{text}");
        assert_eq!(Name::known(&format!("{text}x")), None);
        assert_eq!(Name::known(&text[1..]), None);
    }
}

#[test]
fn a_head_may_arrive_in_pieces() {
    let bytes = b"\r\nGET /x HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";
    for end in 0..bytes.len() {
        assert!(is_partial(&bytes[..end]), "{:?}", String::from_utf8_lossy(&bytes[..end]));
    }
    complete(bytes, |head| assert_eq!(head.len, bytes.len()));
}

#[test]
fn a_decoded_head_is_checked_as_one_in_text() {
    let decoded = |method, target, authority| {
        let names = "accept";
        let fields = [FieldSpan::new(0..6, 0..3)];
        let parts = DecodedHead {
            method,
            protocol: None,
            target,
            authority,
            names,
            values: b"*/*",
            fields: &fields,
            has_body: false,
            content_length: None,
        };
        let head = Head::decoded(&parts, &HeadLimits::default())?;
        assert_eq!(head.values(Name::Accept).collect::<Vec<_>>(), [b"*/*"]);
        assert!(head.has(Name::Accept) && !head.has(Name::Range));
        Ok((head.path.to_vec(), head.query.map(<[u8]>::to_vec)))
    };
    let tunnel = |protocol| {
        let (target, authority, names, values) =
            (&b"/chat"[..], &b"x"[..], "expect", &b"100-continue"[..]);
        let fields = [FieldSpan::new(0..6, 0..12)];
        let parts = DecodedHead {
            method: "CONNECT",
            protocol: Some(protocol),
            target,
            authority,
            names,
            values,
            fields: &fields,
            has_body: true,
            content_length: None,
        };
        let head = Head::decoded(&parts, &HeadLimits::default()).unwrap();
        assert_eq!(
            (head.method, head.method_text, head.framing),
            (Method::Get, "GET", Framing::None)
        );
        assert!(!head.expects_continue && head.path == target);
        let kept = crate::owned::OwnedHead::new(&head, b"");
        assert_eq!(kept.view().tunnel, head.tunnel);
        head.tunnel
    };
    assert_eq!(tunnel(b"WebSocket"), Some(Tunnel::WebSocket));
    assert_eq!(tunnel(b"connect-udp"), Some(Tunnel::Unknown));
    let good = |path: &[u8], query: Option<&[u8]>| Ok((path.to_vec(), query.map(<[u8]>::to_vec)));
    assert_eq!(decoded("GET", b"/a?b", b"x:80"), good(b"/a", Some(b"b")));
    assert_eq!(decoded("OPTIONS", b"*", b"x"), good(b"*", None));
    for (method, target, authority) in [
        ("GET", &b"*"[..], &b"x"[..]),
        ("GET", b"", b"x"),
        ("GET", b"a", b"x"),
        ("GET", b"http://x/", b"x"),
        ("GET", b"/a b", b"x"),
        ("GET", b"/\xff", b"x"),
        ("GET", b"/#a", b"x"),
        ("GET", b"/", b""),
        ("GET", b"/", b"a@x"),
        ("CONNECT", b"", b"x:1"),
    ] {
        let error: HeadError = decoded(method, target, authority).unwrap_err();
        assert_eq!(error.status(), 400, "{method} {target:?} {authority:?}");
    }
    let long = [b"/".as_slice(), &[b'x'; 9000]].concat();
    assert_eq!(decoded("GET", &long, b"x").unwrap_err().status(), 414);
}
