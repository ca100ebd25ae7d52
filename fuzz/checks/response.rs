//! What must hold for any bytes given to the parser of answers' heads.

use forebay_http::head::{Lines, Version};
use forebay_http::response::{
    BodyFraming, ParsedResponse, Response, ResponseContext, ResponseHeadLimits,
};

const SMALL: ResponseHeadLimits =
    ResponseHeadLimits { head_bytes: 200, head_lines: 5, bare_lf: false };

/// Panics if something does not hold for `bytes`.
pub(crate) fn check(bytes: &[u8]) {
    for limits in [ResponseHeadLimits::default(), SMALL] {
        for (is_head, upgrade) in [(false, false), (true, false), (false, true)] {
            let asked = ResponseContext { is_head, upgrade };
            let whole = parse(bytes, asked, &limits);
            for end in (0..bytes.len()).step_by(1 + bytes.len() / 64) {
                let part = parse(&bytes[..end], asked, &limits);
                let agree = part == Found::Partial || part == whole;
                assert!(agree, "{end} bytes gave {part:?}, all {whole:?}");
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Partial,
    Head(usize),
    Error,
}

fn parse(bytes: &[u8], asked: ResponseContext, limits: &ResponseHeadLimits) -> Found {
    let mut lines = Lines::new();
    match Response::parse(bytes, &mut lines, asked, limits) {
        Ok(ParsedResponse::Complete(head)) => {
            check_head(&head, bytes, asked, limits);
            Found::Head(head.len)
        }
        Ok(ParsedResponse::Partial) => {
            assert!(bytes.len() < limits.head_bytes, "waits for a head that is already too long");
            Found::Partial
        }
        Err(error) => {
            assert!(!error.reason().is_empty());
            Found::Error
        }
    }
}

fn check_head(
    head: &Response<'_>,
    bytes: &[u8],
    asked: ResponseContext,
    limits: &ResponseHeadLimits,
) {
    assert!(head.len <= bytes.len().min(limits.head_bytes));
    assert!(bytes.starts_with(b"HTTP/1.") && bytes[..head.len].ends_with(b"\r\n\r\n"));
    assert!((100..1000).contains(&head.status));
    assert!(head.fields().count() <= limits.head_lines);
    for (name, value) in head.fields() {
        assert!(!name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':'));
        assert!(!value.iter().any(|&b| matches!(b, b'\r' | b'\n' | 0)));
    }
    // nothing that two readers could take for different lengths
    let has_coding = head.values("transfer-encoding").next().is_some();
    assert!(!(has_coding && head.content_length.is_some()));
    assert!(!(has_coding && head.version == Version::Http10));
    match head.body {
        BodyFraming::None => {}
        BodyFraming::Sized(length) => assert_eq!(head.content_length, Some(length)),
        BodyFraming::Chunked => assert!(has_coding),
        BodyFraming::UntilClose => assert!(!has_coding && head.content_length.is_none()),
        BodyFraming::Upgraded => assert!(asked.upgrade && head.status == 101),
    }
    let has_body = !matches!(head.body, BodyFraming::None);
    assert!(
        !(has_body && (asked.is_head || matches!(head.status, 204 | 304) || head.is_interim()))
    );
    assert!(
        !(head.keep_alive && matches!(head.body, BodyFraming::UntilClose | BodyFraming::Upgraded))
    );
}
