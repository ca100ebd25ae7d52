//! Properties that hold for every input. The checks are those of the fuzz targets; here the inputs
//! are made of the words that matter, so that most of them get past the first byte.

use crate::{body, condition, head, range, target_path};
use forebay_http::body::{BodyDecoder, Encoder, Trailers};
use forebay_http::framing::Framing;
use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead, Version};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Some of `words`, one after the other.
fn text(words: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(select(words), 0..most).prop_map(|words| words.concat().into_bytes())
}

const HEAD: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n",
    "POST /x?y HTTP/1.1\r\nHost: a\r\n",
    "OPTIONS * HTTP/1.0\r\n",
    "GET ",
    "/",
    "http://",
    "https://",
    "a",
    "[::1]",
    ":80",
    "#",
    "*",
    " ",
    "\t",
    " HTTP/1.1",
    " HTTP/1.0",
    " HTTP/2.0",
    " HTTP/",
    "\r\n",
    "\r\n",
    "\n",
    "\r",
    "\0",
    "Host: b\r\n",
    "X: y\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Content-Length: 3\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Expect: 100-continue\r\n",
];

const BODY: &[&str] = &[
    "3\r\nabc\r\n",
    "3\r\nabc\r\n",
    "3;x\r\nabc\r\n",
    "1 ;x=\"y\"\r\na\r\n",
    "0\r\n",
    "0\r\n",
    "\r\n",
    "\r\n",
    "T: u\r\n",
    "Host: u\r\n",
    "0",
    "0000000000000000",
    "1",
    "f",
    "fffffffffffffff",
    ";",
    "=",
    "\"",
    "\\",
    " ",
    "\t",
    "a",
    ":",
    "\n",
    "\r",
    "\0",
    "\u{e4}",
];

const PATH: &[&str] = &[
    "/",
    "/",
    "/",
    ".",
    "..",
    "...",
    "a",
    "b%20",
    "%2e",
    "%2E",
    "%2f",
    "%5c",
    "\\",
    "%00",
    "%25",
    "%",
    "%4",
    "%61",
    "%c3%a4",
    ".well-known",
    "?",
    "\t",
    "~",
];

const RANGE: &[&str] = &[
    "bytes=",
    "bytes=",
    "BYTES=",
    "-",
    "-",
    "-",
    ",",
    ",",
    ",",
    " ",
    "0",
    "1",
    "2",
    "5",
    "9",
    "10",
    "40",
    "99",
    "100",
    "18446744073709551615",
    "99999999999999999999",
    "x",
];

const FIELDS: &[&str] = &[
    "\r\nIf-Match: ",
    "\r\nIf-None-Match: ",
    "\r\nIf-None-Match: ",
    "\r\nIf-Modified-Since: ",
    "\r\nIf-Unmodified-Since: ",
    "\r\nIf-Range: ",
    "\r\nAccept-Encoding: ",
    "\r\nAccept: ",
    "application/json",
    "text/html",
    "text/*",
    "*/*",
    "\r\nAccept-Encoding: ",
    "\"tag\"",
    "W/\"tag\"",
    "\"a,b\"",
    "\"",
    "W/",
    "*",
    ",",
    ", ",
    " ",
    "Sun, 06 Nov 1994 08:49:36 GMT",
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "Sun Nov  6 08:49:38 1994",
    "br",
    "gzip",
    "x-gzip",
    "zstd",
    "identity",
    ";q=0",
    ";q=0.5",
    ";q=1.001",
    "; Q=1",
];

fn config() -> ProptestConfig {
    // Failing inputs are kept in fuzz/seeds, not in files of proptest's own.
    ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..200)) {
        head::check(&bytes);
        body::check(&bytes);
        target_path::check(&bytes);
        target_path::check(&[b"/", &bytes[..]].concat());
        range::check(&bytes);
        condition::check(&bytes);
    }

    #[test]
    fn heads_of_words(bytes in text(HEAD, 14)) {
        head::check(&bytes);
    }

    #[test]
    fn bodies_of_words(bytes in text(BODY, 14)) {
        body::check(&bytes);
    }

    #[test]
    fn paths_of_words(bytes in text(PATH, 12)) {
        target_path::check(&[b"/", &bytes[..]].concat());
    }

    #[test]
    fn ranges_of_words(bytes in text(RANGE, 24)) {
        range::check(&bytes);
    }

    #[test]
    fn ranges_of_numbers(specs in vec((0..120u64, 0..120u64), 1..18)) {
        let items: Vec<String> = specs.iter().map(|(first, more)| match first {
            0..10 => format!("-{more}"),
            10..20 => format!("{more}-"),
            _ => format!("{}-{}", first - 20, first - 20 + more / 8),
        }).collect();
        range::check(format!("bytes={}", items.join(",")).as_bytes());
    }

    #[test]
    fn field_lines_of_words(bytes in text(FIELDS, 16)) {
        condition::check(&[b"X: y", &bytes[..]].concat());
    }

    /// A head that is written reads back as what was meant.
    #[test]
    fn a_written_head_reads_back(
        method in "[A-Z]{1,8}",
        path in "(/[!$-.0-9:-;=@-Z_a-z~]{0,9}){1,5}",
        query in proptest::option::of("[!$-;=?-Z_a-z~]{0,20}"),
        is_old in any::<bool>(),
        fields in vec(("x-[!#-'*+.0-9A-Z^_`a-z|~-]{1,9}", "([!-~\u{e4}]([ \t!-~]{0,20}[!-~])?)?"), 0..10),
    ) {
        prop_assume!(method != "CONNECT");
        let target = query.iter().fold(path.clone(), |path, query| format!("{path}?{query}"));
        let mut bytes = format!("{method} {target} HTTP/1.{}\r\nHost: a\r\n", u8::from(!is_old));
        fields.iter().for_each(|(name, value)| bytes += &format!("{name}: \t{value} \r\n"));
        bytes += "\r\n";
        let mut lines = Lines::new();
        let parsed = Head::parse(bytes.as_bytes(), &mut lines, &HeadLimits::default());
        let Ok(ParsedHead::Complete(head)) = parsed else {
            return Err(TestCaseError::fail(format!("{parsed:?}")));
        };
        prop_assert_eq!(head.method_text, &method);
        prop_assert_eq!(head.target, target.as_bytes());
        prop_assert_eq!(head.path, path.as_bytes());
        prop_assert_eq!(head.query, query.as_ref().map(String::as_bytes));
        prop_assert_eq!(head.version == Version::Http10, is_old);
        prop_assert_eq!(head.len, bytes.len());
        let read: Vec<_> = head.fields().skip(1).collect();
        let meant: Vec<_> = fields.iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
        prop_assert_eq!(read, meant);
    }

    /// A chunked body, with all that the grammar allows and cut anywhere, holds what was written.
    #[test]
    fn a_written_chunked_body_reads_back(
        chunks in vec((vec(any::<u8>(), 1..40), "0{0,20}", EXTENSIONS), 0..6),
        trailers in vec(("x-[a-z]{1,5}", "([!-~]([ \t!-~]{0,7}[!-~])?)?"), 0..3),
        cuts in vec(1..30usize, 1..50),
    ) {
        let mut bytes = Vec::new();
        for (data, zeros, extensions) in &chunks {
            bytes.extend(format!("{zeros}{:x}{extensions}\r\n", data.len()).bytes());
            bytes.extend(data);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\n");
        trailers.iter().for_each(|(n, value)| bytes.extend(format!("{n}:\t{value} \r\n").bytes()));
        bytes.extend(b"\r\n");
        let data: Vec<u8> = chunks.into_iter().flat_map(|(data, ..)| data).collect();
        assert_reads_back(&bytes, &cuts, &data, &trailers)?;
    }

    /// The decoder reads what the encoder writes.
    #[test]
    fn an_encoded_body_reads_back(
        pieces in vec(vec(any::<u8>(), 0..300), 0..6),
        trailers in vec(("x-[a-z]{1,5}", "([!-~]([ \t!-~]{0,7}[!-~])?)?"), 0..3),
        cuts in vec(1..90usize, 1..50),
    ) {
        let (mut encoder, mut bytes) = (Encoder::chunked(), Vec::new());
        for piece in &pieces {
            encoder.write(piece, &mut bytes).map_err(failed)?;
        }
        let fields = trailers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        encoder.finish(fields, &mut bytes).map_err(failed)?;
        prop_assert!(encoder.is_complete());
        assert_reads_back(&bytes, &cuts, &pieces.concat(), &trailers)?;
    }
}

/// `chunk-ext` (RFC 9112 §7.1.1).
const EXTENSIONS: &str = "([ \t]?;[ \t]?[!#-'*+.0-9A-Z^-z|~-]{1,4}([ \t]?=[ \t]?([a-z]{1,3}|\"([ !#-\\[\\]-~\u{e4}]|\\\\[ -~]){0,5}\"))?){0,2}";

fn failed(error: impl std::fmt::Debug) -> TestCaseError {
    TestCaseError::fail(format!("{error:?}"))
}

/// Decodes `body` with another message behind it, in pieces of the lengths `cuts`.
fn assert_reads_back(
    body: &[u8],
    cuts: &[usize],
    data: &[u8],
    trailers: &[(String, String)],
) -> Result<(), TestCaseError> {
    let bytes = [body, b"GET / HTTP/1.1\r\n"].concat();
    let (allowance, limits) = (body.len() as u64, HeadLimits::default());
    let mut decoder =
        BodyDecoder::new(Framing::Chunked, allowance, Trailers::Keep, &limits).map_err(failed)?;
    let (mut at, mut read, mut cuts) = (0, Vec::new(), cuts.iter().cycle());
    while !decoder.is_done() {
        let piece = &bytes[at..bytes.len().min(at + cuts.next().unwrap_or(&1))];
        let decoded = decoder.next(piece).map_err(failed)?;
        read.extend_from_slice(decoded.data);
        at += decoded.used;
    }
    prop_assert_eq!(at, body.len());
    prop_assert_eq!(read, data);
    let meant = trailers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    prop_assert!(decoder.trailers().eq(meant));
    Ok(())
}
