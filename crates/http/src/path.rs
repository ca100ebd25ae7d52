//! The path that a target names, decoded and without `.` and `..`; and encoded for a `Location`.

use crate::readings::{PathReadings, is_ambiguous};
use std::cell::{Cell, Ref, RefCell};

/// The reason why a path names nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// `%` is not followed by two hexadecimal digits. 400.
    Encoding,
    /// `..` leads above the root. 400.
    Escapes,
    /// The path has a byte that no served name has: a control byte (NUL above all), a slash that
    /// was percent-encoded, or a backslash, which some programs read as a slash. Also a path that
    /// does not begin with a slash. 404: the path is well-formed, but nothing is there.
    Forbidden,
}

impl PathError {
    /// The status of the answer.
    pub fn status(self) -> u16 {
        match self {
            PathError::Encoding | PathError::Escapes => 400,
            PathError::Forbidden => 404,
        }
    }

    /// The error in a few words.
    pub fn reason(self) -> &'static str {
        match self {
            PathError::Encoding => "the path has a malformed percent-encoding",
            PathError::Escapes => "the path leads above the root",
            PathError::Forbidden => "the path has a byte that no served name has",
        }
    }
}

/// The normal form of one path at a time. It is made when it is first asked for, and not again
/// until it is [forgotten](NormalPath::forget); the buffer is used again.
#[derive(Debug, Default)]
pub struct NormalPath {
    made: Cell<Option<Result<(), PathError>>>,
    bytes: RefCell<Vec<u8>>,
    readings: RefCell<Option<PathReadings>>,
}

impl NormalPath {
    /// The normal form of `raw`, as by [`normalise`].
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn of(&self, raw: &[u8]) -> Result<Ref<'_, [u8]>, PathError> {
        let made = self.made.get().unwrap_or_else(|| {
            let made = normalise(raw, &mut self.bytes.borrow_mut());
            self.made.set(Some(made));
            made
        });
        made.map(|()| Ref::map(self.bytes.borrow(), Vec::as_slice))
    }

    /// The [readings](PathReadings) of `raw`; `None` if it has only one, or is a path in no
    /// reading. They, too, are made when they are first asked for.
    pub fn readings(&self, raw: &[u8]) -> Option<Ref<'_, PathReadings>> {
        if !is_ambiguous(raw) {
            return None;
        }
        if self.readings.borrow().is_none() {
            *self.readings.borrow_mut() = PathReadings::of(raw);
        }
        Ref::filter_map(self.readings.borrow(), Option::as_ref).ok()
    }

    /// The normal form, if it was made and there is one.
    pub fn made(&self) -> Option<Ref<'_, [u8]>> {
        self.made.get()?.ok()?;
        Some(Ref::map(self.bytes.borrow(), Vec::as_slice))
    }

    /// Prepares for another path.
    #[inline]
    pub fn forget(&self) {
        self.made.set(None);
        *self.readings.borrow_mut() = None;
    }

    /// Prepares for another path, whose normal form is known.
    pub fn remember(&self, normal: &[u8]) {
        self.forget();
        let mut bytes = self.bytes.borrow_mut();
        bytes.clear();
        bytes.extend_from_slice(normal);
        self.made.set(Some(Ok(())));
    }
}

/// Decodes the path `raw` (percent-encoded, as in a target) and writes it over the content of
/// `out`.
///
/// The path is decoded once, slashes are merged, and `.` and `..` are resolved as by a file system:
/// `/a//../b` is `/b`. The outcome begins with `/` and ends in one if the last segment was empty,
/// `.` or `..`. It consists of bytes, not text: names of files need not be UTF-8.
///
/// # Errors
/// [`PathError`]; `out` then has no useful content.
pub fn normalise(raw: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    out.clear();
    if is_normal(raw) {
        out.extend_from_slice(raw);
        return Ok(());
    }
    let mut rest = raw.strip_prefix(b"/").ok_or(PathError::Forbidden)?;
    out.push(b'/');
    loop {
        let end = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
        let is_last = end == rest.len();
        push_segment(&rest[..end], is_last, out)?;
        if is_last {
            return Ok(());
        }
        rest = &rest[end + 1..];
    }
}

/// Whether the path is its own normal form: the common case, decided in one pass.
fn is_normal(raw: &[u8]) -> bool {
    let mut before = b'/';
    for &byte in &raw[raw.len().min(1)..] {
        let is_detour = before == b'/' && (byte == b'/' || byte == b'.');
        if is_detour || byte == b'%' || is_forbidden(byte) {
            return false;
        }
        before = byte;
    }
    raw.first() == Some(&b'/')
}

/// Adds one segment to `out`, which ends in a slash and will again unless this is the last segment.
fn push_segment(raw: &[u8], is_last: bool, out: &mut Vec<u8>) -> Result<(), PathError> {
    let start = out.len();
    let mut bytes = raw.iter();
    while let Some(&byte) = bytes.next() {
        let byte = match byte {
            b'%' => match decoded(&mut bytes).ok_or(PathError::Encoding)? {
                b'/' => return Err(PathError::Forbidden),
                byte => byte,
            },
            byte => byte,
        };
        if is_forbidden(byte) {
            return Err(PathError::Forbidden);
        }
        out.push(byte);
    }
    match &out[start..] {
        b"" => {}
        b"." => out.truncate(start),
        b".." => {
            let parent = out[..start - 1].iter().rposition(|&b| b == b'/');
            out.truncate(parent.ok_or(PathError::Escapes)? + 1);
        }
        _ if is_last => {}
        _ => out.push(b'/'),
    }
    Ok(())
}

fn decoded<'b>(bytes: &mut impl Iterator<Item = &'b u8>) -> Option<u8> {
    let mut digit = || char::from(*bytes.next()?).to_digit(16);
    let (high, low) = (digit()?, digit()?);
    u8::try_from(high << 4 | low).ok()
}

fn is_forbidden(byte: u8) -> bool {
    byte.is_ascii_control() || byte == b'\\'
}

/// Makes one slash of those that an address begins with at `start`: two would name a host, and a
/// client must not choose that.
pub fn keep_on_host(address: &mut Vec<u8>, start: usize) {
    let slashes = address[start..].iter().take_while(|&&byte| byte == b'/').count();
    address.drain(start..start + slashes.saturating_sub(1));
}

/// Appends `path` to `out` with everything percent-encoded that may not be in the path of a URI
/// (RFC 3986 §3.3). This is the inverse of [`normalise`] for every path that it writes.
pub fn encode(path: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in path {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte) {
            out.push(byte);
        } else {
            let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
            out.extend_from_slice(&[b'%', DIGITS[high], DIGITS[low]]);
        }
    }
}

/// Whether a normalised path has a segment that begins with a dot, other than `.well-known` as the
/// first one (RFC 8615). Such names are configuration and histories, not content.
pub fn is_hidden(path: &[u8]) -> bool {
    let segments = path.strip_prefix(b"/").unwrap_or(path);
    let rest = match segments.strip_prefix(b".well-known") {
        Some(rest @ ([] | [b'/', ..])) => rest,
        _ => segments,
    };
    rest.split(|&b| b == b'/').any(|segment| segment.starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(raw: &[u8]) -> Result<String, PathError> {
        let mut out = b"left over".to_vec();
        normalise(raw, &mut out)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    #[test]
    fn an_address_stays_on_its_host() {
        for (address, kept) in
            [("", ""), ("/", "/"), ("/a//b", "/a//b"), ("//a", "/a"), ("///", "/")]
        {
            let mut bytes = format!("//x{address}").into_bytes();
            keep_on_host(&mut bytes, 3);
            assert_eq!(bytes, format!("//x{kept}").as_bytes());
        }
    }

    /// RFC 3986 §5.2.4, §6.2.2.
    #[test]
    fn paths_become_normal() {
        for (raw, path) in [
            ("/", "/"),
            ("/a", "/a"),
            ("/a/", "/a/"),
            ("/a/b.c", "/a/b.c"),
            ("/a.b./c..", "/a.b./c.."),
            ("/.well-known/x", "/.well-known/x"),
            ("/...", "/..."),
            ("/.a/..b/c", "/.a/..b/c"),
            // encodings, decoded once
            ("/%61%2E%7e", "/a.~"),
            ("/%C3%A4/%c3%b6", "/ä/ö"),
            ("/a%20b+c", "/a b+c"),
            ("/%2561", "/%61"),
            ("/%252e%252e/", "/%2e%2e/"),
            ("/a%3Fb%23c", "/a?b#c"),
            // slashes
            ("//", "/"),
            ("//a///b//", "/a/b/"),
            // dot segments
            ("/.", "/"),
            ("/./", "/"),
            ("/a/.", "/a/"),
            ("/./a/./b/./", "/a/b/"),
            ("/a/..", "/"),
            ("/a/../", "/"),
            ("/a/b/..", "/a/"),
            ("/a/b/../c", "/a/c"),
            ("/a/b/c/../../d", "/a/d"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.%2e/b/%2e", "/b/"),
            ("/a//../b", "/b"),
            ("/a/b/c/./../../g", "/a/g"),
        ] {
            assert_eq!(normal(raw.as_bytes()).as_deref(), Ok(path), "{raw}");
        }
        assert_eq!(normal(b"/\xff%FF").as_deref(), Ok("/\u{fffd}\u{fffd}"), "not UTF-8");
    }

    #[test]
    fn paths_that_name_nothing() {
        use PathError::*;
        for (raw, error) in [
            ("/%", Encoding),
            ("/%4", Encoding),
            ("/%/a", Encoding),
            ("/%4/1", Encoding),
            ("/%4g", Encoding),
            ("/%%41", Encoding),
            ("/%u0041", Encoding),
            ("/%+1", Encoding),
            ("/..", Escapes),
            ("/../", Escapes),
            ("/../etc/passwd", Escapes),
            ("/a/../../b", Escapes),
            ("/./..", Escapes),
            ("//..", Escapes),
            ("/%2e%2e/x", Escapes),
            ("/a/..//../x", Escapes),
            ("/%00", Forbidden),
            ("/a%00.html", Forbidden),
            ("/a%0d%0aX:y", Forbidden),
            ("/%7F", Forbidden),
            ("/\t", Forbidden),
            ("/a%2fb", Forbidden),
            ("/..%2F..%2Fetc", Forbidden),
            ("/a\\b", Forbidden),
            ("/a%5C..%5Cb", Forbidden),
            ("", Forbidden),
            ("*", Forbidden),
            ("a/b", Forbidden),
        ] {
            assert_eq!(normal(raw.as_bytes()), Err(error), "{raw}");
            assert!(!error.reason().is_empty());
        }
        assert_eq!([Encoding, Escapes, Forbidden].map(PathError::status), [400, 400, 404]);
    }

    #[test]
    fn encoded_for_a_location() {
        let mut out = b"http://a".to_vec();
        encode("/a b/ä%?#\"<>~'(x);=@:".as_bytes(), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "http://a/a%20b/%C3%A4%25%3F%23%22%3C%3E~'(x);=@:");
    }

    #[test]
    fn hidden_names() {
        for (path, hidden) in [
            ("/", false),
            ("/a.b/c.", false),
            ("/.git/config", true),
            ("/.htaccess", true),
            ("/a/.b", true),
            ("/a/.b/", true),
            ("/a/.../b", true),
            ("/.well-known", false),
            ("/.well-known/", false),
            ("/.well-known/acme-challenge/x", false),
            ("/.well-known/.x", true),
            ("/.well-knownx", true),
            ("/.well-known.", true),
            ("/a/.well-known/x", true),
        ] {
            assert_eq!(is_hidden(path.as_bytes()), hidden, "{path}");
        }
    }
}
