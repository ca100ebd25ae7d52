//! What must hold for any bytes given to the head parser.

use forebay_http::framing::Framing;
use forebay_http::head::{Head, HeadLimits, Lines, Method, Name, ParsedHead, Version};

const SMALL: HeadLimits =
    HeadLimits { head_bytes: 200, head_lines: 5, target_bytes: 60, empty_host: false };

const NAMES: [Name; 21] = [
    Name::Host,
    Name::Connection,
    Name::KeepAlive,
    Name::ContentLength,
    Name::TransferEncoding,
    Name::Expect,
    Name::Upgrade,
    Name::AcceptEncoding,
    Name::Accept,
    Name::Range,
    Name::IfRange,
    Name::IfMatch,
    Name::IfNoneMatch,
    Name::IfModifiedSince,
    Name::IfUnmodifiedSince,
    Name::UserAgent,
    Name::Referer,
    Name::Cookie,
    Name::Authorization,
    Name::XForwardedFor,
    Name::XForwardedProto,
];

/// Panics if something does not hold for `bytes`.
pub(crate) fn check(bytes: &[u8]) {
    for limits in [HeadLimits::default(), SMALL] {
        let whole = parse(bytes, &limits);
        for end in cuts(bytes.len()) {
            assert_agree(&parse(&bytes[..end], &limits), &whole, end);
        }
    }
}

#[derive(Debug)]
enum Found {
    Partial,
    Head(usize),
    Error(u16),
}

fn parse(bytes: &[u8], limits: &HeadLimits) -> Found {
    let mut lines = Lines::new();
    match Head::parse(bytes, &mut lines, limits) {
        Ok(ParsedHead::Complete(head)) => {
            check_head(&head, bytes, limits);
            Found::Head(head.len)
        }
        Ok(ParsedHead::Partial) => {
            assert!(bytes.len() < limits.head_bytes, "waits for a head that is already too long");
            Found::Partial
        }
        Err(error) => {
            assert!([400, 414, 417, 431, 501, 505].contains(&error.status()));
            assert!(!error.reason().is_empty());
            Found::Error(error.status())
        }
    }
}

/// All ends of a short input, some of a long one.
fn cuts(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(1 + len / 64)
}

/// However the bytes are cut: the first decision is the one that stands. Only a bare LF may be
/// noticed before something else that is wrong.
fn assert_agree(part: &Found, whole: &Found, end: usize) {
    let agree = match (part, whole) {
        (Found::Partial, _) => true,
        (Found::Head(part), Found::Head(whole)) => part == whole,
        (Found::Error(part), Found::Error(whole)) => part == whole || *part == 400,
        _ => false,
    };
    assert!(agree, "{end} bytes gave {part:?}, all {whole:?}");
}

fn check_head(head: &Head<'_>, bytes: &[u8], limits: &HeadLimits) {
    assert!(head.len <= bytes.len().min(limits.head_bytes));
    assert!(bytes[..head.len].ends_with(b"\r\n\r\n"));
    assert!(head.target.len() <= limits.target_bytes && !head.target.is_empty());
    assert!(head.fields().count() <= limits.head_lines);
    match head.method {
        Method::Connect => assert_eq!(head.path, head.target),
        Method::Options if head.path == b"*" => assert_eq!(head.query, None),
        _ => assert!(head.path.starts_with(b"/")),
    }
    assert!(!head.path.contains(&b'?') && !head.target.contains(&b'#'));
    let target_is_clean = head.target.iter().all(|&b| b > b' ' && b != 0x7f);
    assert!(target_is_clean && !head.authority.iter().any(|b| b"/?#@\\ \t".contains(b)));
    for (name, value) in head.fields() {
        assert!(!name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':'));
        assert!(!value.iter().any(|&b| matches!(b, b'\r' | b'\n' | 0)));
        assert_eq!(value.trim_ascii(), value);
    }
    for name in NAMES {
        let same = |other: &str| other.eq_ignore_ascii_case(name.as_str());
        let all: Vec<_> = head.fields().filter(|(other, _)| same(other)).map(|(_, v)| v).collect();
        assert_eq!(head.has(name), !all.is_empty());
        assert_eq!(head.values(name).collect::<Vec<_>>(), all);
        assert_eq!(head.only(name), if all.len() == 1 { Some(all[0]) } else { None });
    }
    check_framing(head);
}

/// RFC 9112 §6.3: nothing that two servers could read differently.
fn check_framing(head: &Head<'_>) {
    let (length, coding) = (head.has(Name::ContentLength), head.has(Name::TransferEncoding));
    assert!(!(length && coding));
    assert_eq!(coding, head.framing == Framing::Chunked);
    assert!(length || !matches!(head.framing, Framing::Sized(_)));
    if length {
        assert!(head.only(Name::ContentLength).is_some());
    }
    if head.version == Version::Http10 {
        assert!(!coding && !head.expects_continue);
    } else {
        assert!(head.only(Name::Host).is_some());
    }
}
