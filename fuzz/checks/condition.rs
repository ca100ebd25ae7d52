//! What must hold for any field lines: conditions, `If-Range`, `Accept-Encoding` and `Accept`.

use forebay_http::accept;
use forebay_http::coding::{Coding, Preference};
use forebay_http::condition::{self, Evaluation};
use forebay_http::head::{Head, HeadLimits, Lines, Method, Name, ParsedHead};

const DATE: u64 = 784_111_777;

/// Panics if something does not hold for these field lines (without the last CR LF).
pub(crate) fn check(fields: &[u8]) {
    for method in ["GET", "HEAD", "PUT", "OPTIONS"] {
        let start = format!("{method} / HTTP/1.1\r\nHost: a\r\n");
        let bytes = [start.as_bytes(), fields, b"\r\n\r\n"].concat();
        let mut lines = Lines::new();
        if let Ok(ParsedHead::Complete(head)) =
            Head::parse(&bytes, &mut lines, &HeadLimits::default())
        {
            for etag in [&b"\"tag\""[..], b"W/\"tag\"", b"\"a,b\"", b"\"\"", b""] {
                check_conditions(&head, etag);
                check_if_range(&head, etag);
            }
            check_codings(&head);
            check_types(&head);
        }
    }
}

/// Of two types at most one is preferred to the other, and none to itself.
fn check_types(head: &Head<'_>) {
    let (json, html) = ("application/json", "text/html");
    let is_either = accept::prefers(head, json, html) || accept::prefers(head, html, json);
    assert!(!is_either || head.has(Name::Accept));
    assert!(!(accept::prefers(head, json, html) && accept::prefers(head, html, json)));
    assert!(!accept::prefers(head, json, json));
}

fn check_conditions(head: &Head<'_>, etag: &[u8]) {
    let is_read = matches!(head.method, Method::Get | Method::Head);
    let opaque = etag.strip_prefix(b"W/").unwrap_or(etag);
    let (matches, none_match) = (head.has(Name::IfMatch), head.has(Name::IfNoneMatch));
    match condition::evaluate(head, etag, Some(DATE)) {
        Evaluation::NotModified => {
            assert!(is_read);
            assert!(match none_match {
                true => mentions(head, Name::IfNoneMatch, opaque),
                false => head.has(Name::IfModifiedSince),
            });
            assert!(!matches || mentions(head, Name::IfMatch, opaque));
        }
        Evaluation::Failed => {
            assert!(head.method != Method::Options);
            assert!(matches || head.has(Name::IfUnmodifiedSince) || (none_match && !is_read));
        }
        Evaluation::Proceed if head.method != Method::Options => {
            assert!(!matches || mentions(head, Name::IfMatch, opaque));
            assert!(!matches || etag.starts_with(b"\"") || is_any(head, Name::IfMatch));
            assert!(!is_any(head, Name::IfNoneMatch));
            assert!(etag.is_empty() || head.only(Name::IfNoneMatch) != Some(etag));
        }
        Evaluation::Proceed => {}
    }
}

/// Whether the field is `*` or has the tag somewhere. An empty tag is mentioned nowhere.
fn mentions(head: &Head<'_>, name: Name, opaque: &[u8]) -> bool {
    let has = |value: &[u8]| !opaque.is_empty() && value.windows(opaque.len()).any(|w| w == opaque);
    is_any(head, name) || head.values(name).any(has)
}

fn is_any(head: &Head<'_>, name: Name) -> bool {
    head.values(name).any(|value| value == b"*")
}

fn check_if_range(head: &Head<'_>, etag: &[u8]) {
    let applies = condition::range_applies(head, etag, Some(DATE));
    match head.only(Name::IfRange) {
        None => assert_eq!(applies, !head.has(Name::IfRange)),
        Some(_) if etag.starts_with(b"W/") => assert!(!applies),
        Some(value) if value.contains(&b'"') => assert_eq!(applies, value == etag),
        Some(value) => {
            assert_eq!(applies, forebay_http::date::parse(value) == Some(DATE));
        }
    }
}

fn check_codings(head: &Head<'_>) {
    let preference = Preference::of(head);
    let sizes = Coding::ALL.map(|coding| (coding, 10 - coding as u64));
    let accepted = Coding::ALL.map(|coding| preference.accepts(coding));
    match preference.choose(sizes) {
        None => assert_eq!(accepted, [false; 4]),
        Some(best) => {
            assert!(preference.accepts(best));
            for (coding, _) in sizes {
                let pair = [(best, 5), (coding, 6)];
                assert_eq!(preference.choose(pair), Some(best));
            }
        }
    }
    for coding in Coding::ALL {
        assert_eq!(preference.choose([(coding, 1)]).is_some(), preference.accepts(coding));
        let lists = |text: &str| {
            let has =
                |v: &[u8]| v.to_ascii_lowercase().windows(text.len()).any(|w| w == text.as_bytes());
            head.values(Name::AcceptEncoding).any(has)
        };
        if coding == Coding::Identity {
            assert!(preference.accepts(coding) || lists("identity") || lists("*"));
        } else {
            assert!(!preference.accepts(coding) || lists(coding.as_str()) || lists("*"));
        }
    }
}
