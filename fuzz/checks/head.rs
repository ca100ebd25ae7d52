//! What must hold for any bytes given to the head parser, and for any body that follows.

use forebay_http::framing::{Framing, SkipError, Skipper};
use forebay_http::head::{Head, Limits, Lines, Method, Name, Parsed, Version};

const SMALL: Limits = Limits { head_bytes: 200, head_lines: 5, target_bytes: 60 };

const NAMES: [Name; 19] = [
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
];

/// Panics if something does not hold for `bytes`.
pub(crate) fn check(bytes: &[u8]) {
    for limits in [Limits::default(), SMALL] {
        let whole = parse(bytes, &limits);
        for end in cuts(bytes.len()) {
            assert_agree(&parse(&bytes[..end], &limits), &whole, end);
        }
        if let Found::Head(len, framing) = whole {
            check_body(framing, &bytes[len..]);
            check_body(Framing::Chunked, &bytes[len..]);
        }
    }
}

#[derive(Debug)]
enum Found {
    Partial,
    Head(usize, Framing),
    Error(u16),
}

fn parse(bytes: &[u8], limits: &Limits) -> Found {
    let mut lines = Lines::new();
    match Head::parse(bytes, &mut lines, limits) {
        Ok(Parsed::Complete(head)) => {
            check_head(&head, bytes, limits);
            Found::Head(head.len, head.framing)
        }
        Ok(Parsed::Partial) => {
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
        (Found::Head(part, _), Found::Head(whole, _)) => part == whole,
        (Found::Error(part), Found::Error(whole)) => part == whole || *part == 400,
        _ => false,
    };
    assert!(agree, "{end} bytes gave {part:?}, all {whole:?}");
}

fn check_head(head: &Head<'_>, bytes: &[u8], limits: &Limits) {
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

fn check_body(framing: Framing, body: &[u8]) {
    for allowance in [0, 10, 100, u64::MAX] {
        let expected = reference(framing, allowance, body);
        assert_eq!(skip(framing, allowance, body, body.len().max(1)), expected);
        for size in [1, 2, 3, 7] {
            assert_eq!(skip(framing, allowance, body, size), expected, "in pieces of {size}");
        }
    }
}

/// Bytes of the body if it ends, `None` if more must come, or the status of the error.
type Skipped = Result<Option<usize>, u16>;

fn skip(framing: Framing, allowance: u64, body: &[u8], size: usize) -> Skipped {
    let mut skipper = Skipper::new(framing, allowance).map_err(SkipError::status)?;
    let mut skipped = 0;
    for piece in body.chunks(size) {
        let count = skipper.skip(piece).map_err(SkipError::status)?;
        assert!(count == piece.len() || skipper.is_done());
        skipped += count;
    }
    Ok(skipper.is_done().then_some(skipped))
}

/// The same in the plainest way: reads the body from start to end as RFC 9112 §7.1 has it.
fn reference(framing: Framing, allowance: u64, body: &[u8]) -> Skipped {
    let seen = body.len().min(usize::try_from(allowance).unwrap_or(usize::MAX));
    let mut bytes = body[..seen].iter().copied();
    let end = match framing {
        Framing::None => Ok(()),
        Framing::Sized(length) if length > allowance => return Err(413),
        Framing::Sized(length) => pass(&mut bytes, length),
        Framing::Chunked => pass_chunks(&mut bytes, allowance - seen as u64),
    };
    match end {
        Ok(()) => Ok(Some(seen - bytes.len())),
        Err(Stop::Wrong(status)) => Err(status),
        Err(Stop::More) if seen < body.len() => Err(413),
        Err(Stop::More) => Ok(None),
    }
}

enum Stop {
    More,
    Wrong(u16),
}

fn next(bytes: &mut impl Iterator<Item = u8>) -> Result<u8, Stop> {
    bytes.next().ok_or(Stop::More)
}

fn expect(bytes: &mut impl Iterator<Item = u8>, wanted: u8) -> Result<(), Stop> {
    if next(bytes)? == wanted { Ok(()) } else { Err(Stop::Wrong(400)) }
}

fn pass(bytes: &mut impl Iterator<Item = u8>, count: u64) -> Result<(), Stop> {
    (0..count).try_for_each(|_| next(bytes).map(drop))
}

/// Passes the rest of a line whose first byte is `first`.
fn pass_line(bytes: &mut impl Iterator<Item = u8>, first: u8) -> Result<(), Stop> {
    let mut byte = first;
    while byte != b'\r' {
        if byte == b'\n' || byte == 0 {
            return Err(Stop::Wrong(400));
        }
        byte = next(bytes)?;
    }
    expect(bytes, b'\n')
}

/// `beyond` bytes are still allowed after the last of `bytes`.
fn pass_chunks(bytes: &mut impl ExactSizeIterator<Item = u8>, beyond: u64) -> Result<(), Stop> {
    loop {
        let size = pass_chunk_size(bytes)?;
        if size == 0 {
            break;
        }
        if size > beyond + bytes.len() as u64 {
            return Err(Stop::Wrong(413));
        }
        pass(bytes, size)?;
        expect(bytes, b'\r')?;
        expect(bytes, b'\n')?;
    }
    loop {
        match next(bytes)? {
            b'\r' => return expect(bytes, b'\n'),
            first => pass_line(bytes, first)?,
        }
    }
}

fn pass_chunk_size(bytes: &mut impl Iterator<Item = u8>) -> Result<u64, Stop> {
    let mut digits = String::new();
    loop {
        match next(bytes)? {
            digit if digit.is_ascii_hexdigit() && digits.len() == 15 => {
                return Err(Stop::Wrong(413));
            }
            digit if digit.is_ascii_hexdigit() => digits.push(char::from(digit)),
            end @ (b'\r' | b';') if !digits.is_empty() => {
                pass_line(bytes, end)?;
                return u64::from_str_radix(&digits, 16).map_err(|_| Stop::Wrong(400));
            }
            _ => return Err(Stop::Wrong(400)),
        }
    }
}
