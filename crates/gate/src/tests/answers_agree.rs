//! The program answers only what user space would answer to the same bytes, and it answers requests of real
//! clients.

use super::answers::{AT_S, BODY, DATE, SENT, answering, variant};
use super::in_namespace;
use super::packets::sent_back;
use super::steer::{PUBLIC, Steered, policy};
use super::vectors::REDIRECTED;
use crate::{AnswerCount, KernelVariant, SentVariant};
use forebay_http::coding::{Coding, Preference};
use forebay_http::condition::{Evaluation, evaluate};
use forebay_http::framing::Framing;
use forebay_http::head::{Head, HeadLimits, Lines, Method, Name, ParsedHead, Version};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use std::net::SocketAddr;

const GZIP: SentVariant<'_> = SentVariant {
    lines: b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nETag: \"abc-gzip\"\r\n",
    not_modified: b"HTTP/1.1 304 Not Modified\r\nETag: \"abc-gzip\"\r\n",
    etag: b"\"abc-gzip\"",
    body: b"as gzip",
};
const BR: SentVariant<'_> = SentVariant {
    lines: b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nETag: W/\"abc-br\"\r\n",
    not_modified: b"HTTP/1.1 304 Not Modified\r\nETag: W/\"abc-br\"\r\n",
    etag: b"W/\"abc-br\"",
    body: b"as br",
};

/// The variants of the answer. Only the server can send zstd.
fn variants() -> [KernelVariant<'static>; 4] {
    let zstd = KernelVariant { coding: Coding::Zstd, compared_bytes: 5, sent: None };
    let (gzip, br) = (variant(Coding::Gzip, GZIP), variant(Coding::Br, BR));
    [variant(Coding::Identity, SENT), br, zstd, gzip]
}

/// The answer of user space, if the request is of a kind that the program may answer.
fn plain_answer(data: &[u8]) -> Option<Vec<u8>> {
    let mut lines = Lines::new();
    let parsed = Head::parse(data, &mut lines, &HeadLimits::default());
    let Ok(ParsedHead::Complete(head)) = parsed else { return None };
    let is_read = matches!(head.method, Method::Get | Method::Head);
    let is_whole = head.len == data.len() && head.framing == Framing::None;
    let names_it = head.target == b"/a" && head.authority.eq_ignore_ascii_case(b"a");
    let leaves = [
        Name::Range,
        Name::IfRange,
        Name::Authorization,
        Name::Upgrade,
        Name::Expect,
        Name::Forwarded,
        Name::XForwardedFor,
        Name::XForwardedProto,
    ];
    if !is_read || !is_whole || !names_it || leaves.iter().any(|name| head.has(*name)) {
        return None;
    }
    // the answer on a kept HTTP/1.0 connection says so, which the program leaves to the server
    let is_kept = head.keep_alive;
    if is_kept && head.version == Version::Http10 {
        return None;
    }
    let variants = variants();
    let available = variants.iter().map(|one| (one.coding, one.compared_bytes));
    let coding = Preference::of(&head).choose(available)?;
    let sent = variants.iter().find(|one| one.coding == coding)?.sent?;
    let end = if is_kept { "\r\n\r\n" } else { "\r\nConnection: close\r\n\r\n" };
    let (lines, body) = match evaluate(&head, sent.etag, Some(AT_S)) {
        Evaluation::Proceed if head.method == Method::Head => (sent.lines, &b""[..]),
        Evaluation::Proceed => (sent.lines, sent.body),
        Evaluation::NotModified => (sent.not_modified, &b""[..]),
        Evaluation::Failed => return None,
    };
    Some([lines, DATE.as_bytes(), end.as_bytes(), body].concat())
}

/// The program's answer to a first request on a new connection.
fn answer_of(steered: &Steered, port: &Cell<u16>, data: &[u8]) -> Option<Vec<u8>> {
    port.set(port.get() % 60_000 + 1);
    let client = SocketAddr::new("127.0.0.1".parse().unwrap(), port.get());
    let segment = steered.begin(client, PUBLIC[0].parse().unwrap(), true, data.to_vec());
    let before = steered.answered(AnswerCount::Ok) + steered.answered(AnswerCount::NotModified);
    let (verdict, packet) = steered.ask(&segment);
    let after = steered.answered(AnswerCount::Ok) + steered.answered(AnswerCount::NotModified);
    assert_eq!(after - before, u64::from(verdict == REDIRECTED));
    (verdict == REDIRECTED).then(|| sent_back(&packet, &segment).data)
}

#[test]
fn real_clients_are_answered() {
    in_namespace(|| {
        let steered = answering(&policy(Vec::new()));
        steered.learn("/a", &variants());
        let port = Cell::new(0);
        let mut records = steered.gate.records().unwrap();
        let chromium = "Connection: keep-alive\r\nCache-Control: max-age=0\r\n\
            sec-ch-ua: \"Chromium\";v=\"124\", \"Not-A.Brand\";v=\"99\"\r\nsec-ch-ua-mobile: ?0\r\n\
            sec-ch-ua-platform: \"Linux\"\r\nUpgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 \
            (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 Safari/537.36\r\n\
            Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
            Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\n\
            Sec-Fetch-Dest: document\r\nAccept-Encoding: gzip, deflate, br\r\n\
            Accept-Language: en-US,en;q=0.9\r\nCookie: session=8f14e45fceea167a; theme=dark\r\n";
        let again = format!(
            "{chromium}If-None-Match: W/\"abc-br\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
        );
        for (fields, expected) in [
            // curl, wget, a health checker of HAProxy, ab -k of HTTP/1.1, Python's requests, Chromium
            ("User-Agent: curl/8.5.0\r\nAccept: */*\r\n", BODY),
            (
                "User-Agent: Wget/1.21.3\r\nAccept: */*\r\nAccept-Encoding: identity\r\n\
                 Connection: Keep-Alive\r\n",
                BODY,
            ),
            ("connection: close\r\nuser-agent: HAProxy\r\n", BODY),
            ("Accept-Encoding: gzip, deflate\r\nUser-Agent: python-requests/2.31\r\n", GZIP.body),
            (chromium, BR.body),
            (&again, b"\r\n\r\n"),
        ] {
            let data = format!("GET /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes();
            let answer = answer_of(&steered, &port, &data);
            let counts = steered.gate.answer_counts();
            let answer = answer.unwrap_or_else(|| panic!("{fields}: {counts:?}"));
            assert_eq!(Some(&answer), plain_answer(&data).as_ref(), "{fields}");
            assert!(answer.ends_with(expected), "{fields}");
            let mut head = Vec::new();
            records.read(|record| head = record.head.to_vec()).unwrap();
            assert_eq!(head, data);
        }
    });
}

fn coding() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        8 => select(vec!["gzip", "br", "identity", "*", "GZIP", "x-gzip", "deflate", "zstd"])
            .prop_map(str::to_owned),
        1 => "[a-z*-]{0,9}",
    ];
    let weight = prop_oneof![
        6 => Just(String::new()),
        6 => select(vec![";q=0", "; q=0.5", ";Q=1", ";q=0.001", " ; q=1.000 ", ";q=0.", ";q=0.99"])
            .prop_map(str::to_owned),
        1 => ";[ q=01.]{0,6}",
    ];
    (name, weight).prop_map(|(name, weight)| name + &weight)
}

fn field() -> impl Strategy<Value = String> {
    let codings = prop::collection::vec(coding(), 0..5);
    prop_oneof![
        6 => (codings, select(vec![",", ", ", " ,\t", ",,"]))
            .prop_map(|(codings, comma)| format!("Accept-Encoding: {}", codings.join(comma))),
        3 => select(vec![
            "If-None-Match: \"abc\"",
            "If-None-Match:W/\"abc-br\"",
            "If-None-Match: \"abc-gzip\"",
            "if-none-match: \"other\"",
            "If-None-Match: \"a\", \"abc\"",
            "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT",
            "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT",
            "If-Match: \"x\"",
            "If-None-Match: *",
        ]).prop_map(str::to_owned),
        2 => select(vec!["Connection: close", "connection:keep-alive", "Connection: Keep-Alive",
            "Connection: close, x", "Connection: upgrade", "Connection:  CLOSE"])
            .prop_map(str::to_owned),
        4 => "[A-Z][a-z-]{0,33}: ?[ -~]{0,40}",
        1 => "[!-~]{1,9} ?:[ -~\t]{0,9}",
        1 => select(vec!["Range: bytes=0-1", "Content-Length: 0", "Content-Length: 4", "Host: b",
            "Transfer-Encoding: chunked", "Expect: 100-continue", "Upgrade: x", "Cookie: a=b",
            "Authorization: x", "Forwarded: for=a"]).prop_map(str::to_owned),
    ]
}

/// Heads that are valid, and some that are damaged.
fn heads() -> impl Strategy<Value = Vec<u8>> {
    let method =
        prop_oneof![12 => Just("GET"), 4 => Just("HEAD"), 1 => Just("POST"), 1 => Just("get")];
    let target =
        prop_oneof![16 => Just("/a"), 1 => Just("/a?b"), 1 => Just("/b"), 1 => Just("http://a/a")];
    let version =
        prop_oneof![12 => Just("1.1"), 3 => Just("1.0"), 1 => Just("1.2"), 1 => Just("2.0")];
    let host = prop_oneof![
        12 => Just("Host: a"), 1 => Just("host:A "), 1 => Just("HOST:\ta"), 1 => Just("Host: a:80"),
        1 => Just("Host:"), 1 => Just("X: y")
    ];
    let fields = prop::collection::vec(field(), 0..5);
    let bent = prop::option::weighted(0.2, (0..400_usize, any::<u8>()));
    let rest = prop_oneof![12 => Just(""), 1 => Just("\r\n"), 1 => Just("GET /a HTTP/1.1\r\n\r\n")];
    let first = any::<bool>();
    (method, target, version, host, fields, bent, rest, first).prop_map(
        |(method, target, version, host, mut fields, bent, rest, is_first)| {
            let at = if is_first { 0 } else { fields.len() };
            fields.insert(at, host.to_owned());
            let fields = fields.join("\r\n");
            let text = format!("{method} {target} HTTP/{version}\r\n{fields}\r\n\r\n{rest}");
            let mut data = text.into_bytes();
            if let Some((at, byte)) = bent {
                let at = at % data.len();
                data[at] = byte;
            }
            data.truncate(1400);
            data
        },
    )
}

#[test]
fn the_kernel_answers_as_a_plain_reading_does() {
    in_namespace(|| {
        let steered = answering(&policy(Vec::new()));
        steered.learn("/a", &variants());
        let port = Cell::new(0);
        let (answered, plain) = (Cell::new(0), Cell::new(0));
        let mut records = steered.gate.records().unwrap();
        let mut runner = TestRunner::new(ProptestConfig { cases: 6000, ..Default::default() });
        let agreed = runner.run(&heads(), |data| {
            let expected = plain_answer(&data);
            plain.set(plain.get() + u32::from(expected.is_some()));
            if let Some(answer) = answer_of(&steered, &port, &data) {
                answered.set(answered.get() + 1);
                let text = String::from_utf8_lossy(&data).into_owned();
                let answer = String::from_utf8_lossy(&answer).into_owned();
                let expected = expected.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                prop_assert_eq!(Some(answer), expected, "{:?}", text);
            }
            Ok(())
        });
        agreed.unwrap();
        let read = records.read(|_| ()).unwrap();
        println!("{} answered of {}, {read} records", answered.get(), plain.get());
        // about half of the random heads that could be answered are: chance does not come near this bound
        assert!(answered.get() * 5 > plain.get() * 2 && answered.get() > 500);
        assert_eq!(read, answered.get() as usize);
    });
}
