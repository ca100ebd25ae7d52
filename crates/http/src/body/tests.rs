//! Tests of bodies. Each body is decoded as a whole, byte by byte, and cut in two at every place
//! (at some of a long one); the results must be the same.

use super::*;
use crate::framing::Framing;
use crate::head::HeadLimits;

const LIMITS: HeadLimits =
    HeadLimits { head_bytes: 100, head_lines: 3, target_bytes: 0, empty_host: false };

/// The decoded content of a body.
#[derive(Debug, PartialEq)]
struct Found {
    data: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
    /// The bytes of the body, `None` if more must come.
    end: Result<Option<usize>, BodyError>,
}

impl Found {
    fn data(&self) -> &str {
        std::str::from_utf8(&self.data).unwrap()
    }

    fn trailers(&self) -> Vec<(&str, &str)> {
        let text = |value| std::str::from_utf8(value).unwrap();
        self.trailers.iter().map(|(name, value)| (name.as_str(), text(value))).collect()
    }
}

fn decode(body: &[u8], allowance: u64) -> Found {
    let whole = in_pieces([body], allowance);
    assert_eq!(whole, in_pieces(body.chunks(1), allowance), "{:?}", body.escape_ascii());
    for cut in (0..body.len()).step_by(1 + body.len().pow(2) / 1_000_000) {
        let (one, two) = body.split_at(cut);
        assert_eq!(
            whole,
            in_pieces([one, two], allowance),
            "{:?} cut at {cut}",
            body.escape_ascii()
        );
    }
    whole
}

/// Decodes pieces and keeps data and trailers. A second decoder skips the same pieces; it must find
/// the same end.
fn in_pieces<'b>(pieces: impl IntoIterator<Item = &'b [u8]>, allowance: u64) -> Found {
    let mut decoder =
        BodyDecoder::new(Framing::Chunked, allowance, Trailers::Keep, &LIMITS).unwrap();
    let mut skipper =
        BodyDecoder::new(Framing::Chunked, allowance, Trailers::Discard, &LIMITS).unwrap();
    let (mut data, mut used, mut end) = (Vec::new(), 0, Ok(None));
    for piece in pieces {
        let one = take(&mut decoder, piece, &mut data);
        assert_eq!(one, skipper.skip(piece));
        assert_eq!(decoder.is_done(), skipper.is_done());
        match one {
            Ok(count) => used += count,
            Err(error) => end = Err(error),
        }
    }
    if decoder.is_done() {
        end = Ok(Some(used));
    }
    assert_eq!(skipper.trailers().count(), 0);
    let owned = |(name, value): (&str, &[u8])| (name.to_owned(), value.to_vec());
    Found { data, trailers: decoder.trailers().map(owned).collect(), end }
}

fn take(decoder: &mut BodyDecoder, piece: &[u8], data: &mut Vec<u8>) -> Result<usize, BodyError> {
    let mut used = 0;
    while used < piece.len() && !decoder.is_done() {
        let decoded = decoder.next(&piece[used..])?;
        assert!(decoded.used > 0);
        used += decoded.used;
        assert!(piece[..used].ends_with(decoded.data) && decoded.data.len() <= decoded.used);
        data.extend_from_slice(decoded.data);
    }
    Ok(used)
}

/// The reason for which `body` is refused with 400.
fn malformed(body: &str) -> &'static str {
    match decode(body.as_bytes(), 1000).end {
        Err(BodyError::Malformed(reason)) => reason,
        end => panic!("{body:?} gave {end:?}"),
    }
}

fn assert_is_whole(body: &str, data: &str) {
    let with_more = format!("{body}GET / HTTP/1.1\r\n");
    let found = decode(with_more.as_bytes(), 1_000_000);
    assert_eq!((found.end, found.data()), (Ok(Some(body.len())), data), "{body:?}");
    for end in (0..body.len()).step_by(1 + body.len() / 100) {
        assert_eq!(
            in_pieces([&body.as_bytes()[..end]], 1_000_000).end,
            Ok(None),
            "{end}: {body:?}"
        );
    }
}

/// RFC 9112 §7.1.
#[test]
fn a_chunked_body_ends_where_it_says() {
    for (body, data) in [
        ("0\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("a\r\n0123456789\r\nA\r\n0123456789\r\n000\r\n\r\n", "01234567890123456789"),
        ("1F\r\n0123456789012345678901234567890\r\n00\r\n\r\n", "0123456789012345678901234567890"),
        ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n"),
        ("5\r\n0\r\n\r\n\r\n0\r\n\r\n", "0\r\n\r\n"),
    ] {
        assert_is_whole(body, data);
    }
}

/// RFC 9112 §7.1: a size has any number of leading zeros, as far as its line is bounded.
#[test]
fn leading_zeros_mean_nothing() {
    assert_is_whole("0000000000000000005\r\nhello\r\n0000000000000000000\r\n\r\n", "hello");
    let most = "0".repeat(usize::from(CHUNK_LINE_BYTES) - 3);
    assert_is_whole(&format!("{most}1\r\na\r\n0\r\n\r\n"), "a");
    let end = decode(format!("{most}01\r\na\r\n0\r\n\r\n").as_bytes(), 1_000_000).end;
    assert_eq!(end, Err(BodyError::ExtensionsTooLarge));
}

/// RFC 9112 §7.1.1, RFC 9110 §5.6.
#[test]
fn extensions_are_passed_over() {
    for line in [
        "1;x",
        "1;x=y",
        "1;x;y;z=1",
        "1;x=\"\"",
        "1;x=\"a;b=c\"",
        "1;x=\"a\\\"b\\\\\"",
        "1;x=\"\t \u{e4}\\\u{e4}\"",
        "1 \t; \tx \t= \ty \t; \tz",
        "1 ;x=\"y\" ;z",
        "1;!#$%&'*+-.^_`|~=0",
    ] {
        assert_is_whole(&format!("{line}\r\na\r\n0;last\r\n\r\n"), "a");
    }
}

/// RFC 9112 §7.1, and what request smuggling makes of leniency.
#[test]
fn broken_sizes_are_errors() {
    for body in ["\r\n", "x\r\n", "-1\r\n", "+1\r\n", "0x1\r\n", " 1\r\n", "\t1\r\n", "1\na\r\n"] {
        assert_eq!(malformed(body), "a chunk size is not a number", "{body:?}");
    }
    for body in ["1,\r\n", "1_0\r\n", "1\0\r\n", ";x\r\n", "\u{661}\r\n"] {
        assert_eq!(malformed(body), "a chunk size is not a number", "{body:?}");
    }
    for body in ["1\r\ra", "1\r\nab\r\n", "1\r\na\n0\r\n\r\n", "1\r\na0\r\n\r\n", "1;a\rb\r\n"] {
        assert_eq!(malformed(body), "a chunk does not end in CR LF", "{body:?}");
    }
    assert_eq!(BodyError::Malformed("").status(), 400);
}

/// RFC 9112 §7.1.1.
#[test]
fn broken_extensions_are_errors() {
    for line in [
        "1 \r\n",
        "1 1\r\n",
        "1;\r\n",
        "1; \r\n",
        "1;;\r\n",
        "1;a;\r\n",
        "1;a \r\n",
        "1;a b\r\n",
        "1;a=\r\n",
        "1;a= \r\n",
        "1;a==b\r\n",
        "1;=b\r\n",
        "1;a=b \r\n",
        "1;a=b c\r\n",
        "1;a=b=c\r\n",
        "1;a,b\r\n",
        "1;\u{e4}\r\n",
        "1;a=\u{e4}\r\n",
        "1;\"a\"\r\n",
        "1;a=b\"c\"\r\n",
        "1;a=\"b\"c\r\n",
        "1;a=\"b\" \r\n",
        "1;a=\"b\r\n",
        "1;a=\"b\\\r\n",
        "1;a=\"b\\\"\r\n",
    ] {
        assert_eq!(malformed(line), "a chunk extension is malformed", "{line:?}");
    }
    for line in [
        "1;a\nb\r\n",
        "1;\n",
        "1;a\0\r\n",
        "1;a=\x01\r\n",
        "1;a=\"\x1f\"\r\n",
        "1;a=\"\x7f\"\r\n",
        "1;a=\"\\\0\"\r\n",
        "1;a=\"b\nc\"\r\n",
        "1 \x0b;a\r\n",
    ] {
        assert_eq!(malformed(line), "a chunk extension has a forbidden byte", "{line:?}");
    }
}

/// RFC 9112 §7.1.1: the length of extensions is bounded.
#[test]
fn extensions_have_a_bound() {
    let line = |len: u16| "x".repeat(usize::from(len) - "1;\r\n".len());
    assert_is_whole(&format!("1;{}\r\na\r\n0\r\n\r\n", line(CHUNK_LINE_BYTES)), "a");
    let end = decode(format!("1;{}", line(CHUNK_LINE_BYTES + 3)).as_bytes(), u64::MAX).end;
    assert_eq!(end, Err(BodyError::ExtensionsTooLarge));
    assert_eq!(BodyError::ExtensionsTooLarge.status(), 413);

    // as many chunks as are allowed, with four bytes of extension each
    let chunk = "1;a=b\r\na\r\n";
    let most = usize::from(EXTENSION_BYTES) / 4;
    assert_is_whole(&format!("{}0\r\n\r\n", chunk.repeat(most)), &"a".repeat(most));
    let found = decode((chunk.repeat(most) + "1;").as_bytes(), u64::MAX);
    assert_eq!(found.end, Err(BodyError::ExtensionsTooLarge));
    assert_eq!(found.data().len(), most);

    // zeros beyond a size in full count too, those within do not
    let chunk = "00000000000000001\r\na\r\n";
    let most = usize::from(EXTENSION_BYTES);
    let end = in_pieces([chunk.repeat(most).as_bytes()], u64::MAX).end;
    assert_eq!(end, Ok(None));
    let end = in_pieces([chunk.repeat(most + 1).as_bytes()], u64::MAX).end;
    assert_eq!(end, Err(BodyError::ExtensionsTooLarge));
    let end = in_pieces(["0000000000000001\r\na\r\n".repeat(most + 1).as_bytes()], u64::MAX).end;
    assert_eq!(end, Ok(None));
}

/// RFC 9112 §7.1: a recipient must not overflow on large chunk sizes.
#[test]
fn a_body_comes_within_its_allowance() {
    let end = |body: &[u8], allowance| decode(body, allowance).end;
    let body = b"5\r\nhello\r\n0\r\n\r\n";
    // the data counts, and not the lines between the chunks
    assert_eq!(end(body, 5), Ok(Some(body.len())));
    assert_eq!(end(body, 4), Err(BodyError::TooLarge));
    assert_eq!(end(b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", 4), Err(BodyError::TooLarge));
    assert_eq!(end(b"ffffffffffffffff\r\n", 1000), Err(BodyError::TooLarge));
    assert_eq!(end(b"10000000000000000", u64::MAX), Err(BodyError::TooLarge));
    assert_eq!(end(b"00ffffffffffffffff", u64::MAX), Ok(None));
    assert_eq!(end(b"ffffffffffffffff\r\n", u64::MAX), Ok(None));
    assert_eq!(end(b"1\r\na\r\nffffffffffffffff\r\n", u64::MAX), Err(BodyError::TooLarge));
    // refused as soon as the size is known
    assert_eq!(end(b"3e8\r\n", 999), Err(BodyError::TooLarge));
    assert_eq!(end(b"3e8\r\n", 1000), Ok(None));
    assert_eq!(BodyError::TooLarge.status(), 413);
}

/// RFC 9112 §7.1.2, §5.
#[test]
fn trailers_are_read() {
    let body = "1\r\na\r\n0\r\nX: y\r\nZ:\r\nx-\u{7e}:\t a b\u{e4}\t \r\n\r\n";
    assert_is_whole(body, "a");
    let found = decode(body.as_bytes(), 1000);
    assert_eq!(found.trailers(), [("X", "y"), ("Z", ""), ("x-~", "a b\u{e4}")]);
    // none before the body has ended
    assert_eq!(decode(&body.as_bytes()[..body.len() - 1], 1000).trailers(), []);
}

/// RFC 9110 §6.5.1.
#[test]
fn fields_that_are_decided_before_the_trailers_are_dropped() {
    for name in [
        "Transfer-Encoding",
        "content-length",
        "HOST",
        "Trailer",
        "Content-Encoding",
        "Content-Type",
        "Content-Range",
        "Authorization",
        "Proxy-Authorization",
        "Cookie",
        "Connection",
        "Range",
        "If-Match",
        "If-",
        "X-Forwarded-For",
    ] {
        let body = format!("0\r\nA: b\r\n{name}: 1\r\nC: d\r\n\r\n");
        assert_is_whole(&body, "");
        assert_eq!(decode(body.as_bytes(), 1000).trailers(), [("A", "b"), ("C", "d")], "{name}");
    }
    for name in ["ETag", "Accept-Ranges", "Authentication-Info", "Hosts", "If", "X-Forwarded"] {
        let body = format!("0\r\n{name}: 1\r\n\r\n");
        assert_eq!(decode(body.as_bytes(), 1000).trailers(), [(name, "1")]);
    }
}

/// RFC 9112 §5.1, §5.2; RFC 9110 §5.1, §5.5.
#[test]
fn broken_trailers_are_errors() {
    for line in ["X : y", "X\t: y", ": y", "X", "X y: z", "X\u{e4}: y", "X\x01: y", "\r"] {
        let reason = malformed(&format!("0\r\n{line}\r\n\r\n"));
        let expected = match line {
            "\r" => "a trailer line does not end in CR LF",
            _ => "a trailer name is malformed",
        };
        assert_eq!(reason, expected, "{line:?}");
    }
    for line in ["X: \0", "X: y\n", "X: y\nZ: z", "X: \x1f", "X: \x7f", "\n", "X\n", "X\0: y"] {
        let reason = malformed(&format!("0\r\n{line}\r\n\r\n"));
        assert_eq!(reason, "a trailer has a forbidden byte", "{line:?}");
    }
    for lines in [" X: y", "\tX: y", "X: y\r\n z", "X: y\r\n\tz"] {
        assert_eq!(malformed(&format!("0\r\n{lines}\r\n\r\n")), "a trailer line is folded");
    }
    for body in ["0\r\nX: y\rz\r\n", "0\r\n\rx", "0\r\nX: y\r\r\n"] {
        assert_eq!(malformed(body), "a trailer line does not end in CR LF", "{body:?}");
    }
}

/// RFC 6585 §5 names 431 for fields; the bounds are those of a head.
#[test]
fn a_trailer_section_has_the_bounds_of_a_head() {
    let end = |body: String| decode(body.as_bytes(), u64::MAX).end;
    assert_is_whole("0\r\na: b\r\na: b\r\na: b\r\n\r\n", "");
    let more = end("0\r\na: b\r\na: b\r\na: b\r\na".to_owned());
    assert_eq!(more, Err(BodyError::TrailersTooLarge));
    let value = "x".repeat(LIMITS.head_bytes - "a:\r\n\r\n".len());
    assert_is_whole(&format!("0\r\na:{value}\r\n\r\n"), "");
    assert_eq!(end(format!("0\r\na:{value}x\r\n\r\n")), Err(BodyError::TrailersTooLarge));
    assert_eq!(BodyError::TrailersTooLarge.status(), 431);
}

#[test]
fn a_sized_body() {
    let new = |framing| BodyDecoder::new(framing, 10, Trailers::Discard, &LIMITS);
    assert_eq!(new(Framing::Sized(11)).err(), Some(BodyError::TooLarge));
    for framing in [Framing::None, Framing::Sized(0)] {
        let mut decoder = new(framing).unwrap();
        assert!(decoder.is_done());
        assert_eq!(decoder.skip(b"GET"), Ok(0));
        assert_eq!(decoder.next(b"GET"), Ok(DecodedPiece { used: 0, data: b"" }));
    }
    let mut decoder = new(Framing::Sized(10)).unwrap();
    assert_eq!(decoder.next(b"0123456"), Ok(DecodedPiece { used: 7, data: b"0123456" }));
    assert!(!decoder.is_done());
    assert_eq!(decoder.next(b""), Ok(DecodedPiece { used: 0, data: b"" }));
    assert_eq!(decoder.next(b"789GET"), Ok(DecodedPiece { used: 3, data: b"789" }));
    assert!(decoder.is_done());
    assert_eq!(decoder.trailers().count(), 0);
}

#[test]
fn an_error_stays() {
    let mut decoder = BodyDecoder::new(Framing::Chunked, 100, Trailers::Discard, &LIMITS).unwrap();
    let error = decoder.next(b"x").unwrap_err();
    assert_eq!(decoder.next(b"0\r\n\r\n"), Err(error));
    assert_eq!(decoder.skip(b"0\r\n\r\n"), Err(error));
    assert!(!decoder.is_done());
}

/// The deviations that an application may be allowed, and a client is not.
#[test]
fn an_application_may_have_blanks_behind_sizes_and_bare_lf_where_that_is_said() {
    let take = |text: &str, tolerance| {
        let decoder = BodyDecoder::new(Framing::Chunked, 1000, Trailers::Keep, &LIMITS);
        let mut decoder = decoder.unwrap().tolerating(tolerance);
        let mut data = Vec::new();
        // one byte at a time, so that no state is skipped
        for byte in text.as_bytes().chunks(1) {
            data.extend_from_slice(decoder.next(byte)?.data);
        }
        let trailers: Vec<_> = decoder.trailers().map(|(name, _)| name.to_owned()).collect();
        Ok::<_, BodyError>((decoder.is_done(), String::from_utf8(data).unwrap(), trailers))
    };
    let none = ChunkTolerance::default();
    let blanks = ChunkTolerance { blanks: true, bare_lf: false };
    let both = ChunkTolerance { blanks: true, bare_lf: true };
    let whole = |data: &str, trailers: &[&str]| {
        Ok((true, data.to_owned(), trailers.iter().map(|name| (*name).to_owned()).collect()))
    };
    let blank = "3  \r\nabc\r\n2;a=b \t\r\nde\r\n0 \r\n\r\n";
    assert!(take(blank, none).is_err());
    assert_eq!(take(blank, blanks), whole("abcde", &[]));
    for text in ["3\nabc\n0\n\n", "3 \nabc\n0;a\nX-A: b\nX-B: c\n\n", "3\r\nabc\n0\nX-A: b\r\n\n"] {
        assert!(take(text, blanks).is_err(), "{text:?}");
        let trailers: &[&str] = match text.contains("X-B") {
            true => &["X-A", "X-B"],
            false if text.contains("X-A") => &["X-A"],
            false => &[],
        };
        assert_eq!(take(text, both), whole("abc", trailers), "{text:?}");
    }
    for wrong in [" 3\r\n", "3 4\r\n", "3 \r\r\n", "3\rabc", "\n3\n", "3;\n", "3;a=\n", "3;a=\"b\n"]
    {
        assert!(take(wrong, both).is_err(), "{wrong:?}");
    }
}
