//! Heads between the two versions: decoded fields as a [`Head`], and a head in text as a field block.

use forebay_http::head::{DecodedHead, FieldSpan, Head, HeadError, HeadLimits};
use forebay_http2::hpack::{KnownName, encode};
use forebay_http2::{DecodedFields, Field};
use std::ops::Range;

/// The memory for one head. A loop, thread or fiber owns one and lends it to every connection.
#[derive(Debug, Default)]
pub struct HeadBuffer {
    /// The parts of the head. Made when the first head comes; absent while a head is judged.
    pub(crate) head: Option<Box<HeadParts>>,
}

/// The memory for one head.
#[derive(Debug, Default)]
pub(crate) struct HeadParts {
    pub(crate) fields: DecodedFields,
    /// Where the fields stand.
    spans: Vec<FieldSpan>,
}

impl HeadParts {
    /// The head that was received last. `ends` says that the request has no body.
    pub(crate) fn head(&mut self, ends: bool, limits: &HeadLimits) -> Result<Head<'_>, HeadError> {
        let span = |field: &Field| {
            let (name, value) = (field.name, field.value);
            FieldSpan::new(name.start..name.end, value.start..value.end)
        };
        self.spans.clear();
        self.spans.extend(self.fields.list().iter().map(span));
        let fields = &self.fields;
        let parts = DecodedHead {
            method: std::str::from_utf8(fields.method()).unwrap_or_default(),
            protocol: fields.protocol(),
            target: fields.path(),
            authority: fields.authority(),
            names: fields.names(),
            values: fields.values(),
            fields: &self.spans,
            has_body: !ends,
            content_length: fields.content_length(),
        };
        Head::decoded(&parts, limits)
    }
}

/// The field block for a head in text that begins with a status line.
pub fn bake(text: &[u8]) -> Box<[u8]> {
    let digits = text.get(STATUS_AT).and_then(|digits| std::str::from_utf8(digits).ok());
    let status = digits.and_then(|digits| digits.parse().ok()).unwrap_or_default();
    let mut block = Vec::with_capacity(text.len());
    encode_head(&mut block, status, text);
    block.into_boxed_slice()
}

/// The position of the status in a status line, behind the version.
const STATUS_AT: Range<usize> = 9..12;

/// Writes the fields of a head in text that begins with a status line and has this status.
pub(crate) fn encode_head(block: &mut Vec<u8>, status: u16, text: &[u8]) {
    encode::status(block, status);
    if let Some(end) = memchr::memchr(b'\n', text) {
        encode_lines(block, &text[end + 1..]);
    }
}

/// Writes the fields of a text, except those that are about the connection (RFC 9113 §8.2.2).
pub(crate) fn encode_lines(block: &mut Vec<u8>, text: &[u8]) {
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let line = line.trim_ascii_end();
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        encode_field(block, &line[..colon], line[colon + 1..].trim_ascii_start());
    }
}

/// Writes one field, unless it is about the connection.
pub(crate) fn encode_field(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let mut buffer = [0; 64];
    let long;
    let lower = match buffer.get_mut(..name.len()) {
        Some(lower) => {
            lower.copy_from_slice(name);
            lower.make_ascii_lowercase();
            &*lower
        }
        None => {
            long = name.to_ascii_lowercase();
            &long
        }
    };
    let known = KnownName::of(lower);
    if known.is_of_connection() {
        return;
    }
    if known.as_str().is_some() {
        encode::plain(block, known, value);
    } else {
        encode::field(block, lower, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_stay() {
        let name = "x".repeat(100);
        let mut block = Vec::new();
        encode_lines(&mut block, format!("{name}: 1\r\n{}: 2\r\n", &name[..65]).as_bytes());
        let mut expected = Vec::new();
        encode::field(&mut expected, name.as_bytes(), b"1");
        encode::field(&mut expected, &name.as_bytes()[..65], b"2");
        assert_eq!(block, expected);
    }

    #[test]
    fn a_baked_head_has_the_status_of_its_line() {
        let mut expected = Vec::new();
        encode_head(&mut expected, 404, b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n");
        assert_eq!(*bake(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n"), *expected);
        assert_eq!(expected[0], 0x80 | 13);
    }

    #[test]
    fn names_may_be_of_any_length() {
        let name = "X-Long-".repeat(20);
        let mut block = Vec::new();
        encode_head(&mut block, 200, format!("HTTP/1.1 200 OK\r\n{name}: v\r\n\r\n").as_bytes());
        let mut expected = Vec::new();
        encode::status(&mut expected, 200);
        encode::field(&mut expected, name.to_lowercase().as_bytes(), b"v");
        assert_eq!(block, expected);
    }

    #[test]
    fn what_is_about_the_connection_stays_here() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Own: a b\r\nDate: now\r\n\
            Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\n";
        let mut block = Vec::new();
        encode_head(&mut block, 200, text);
        let mut expected = Vec::new();
        encode::status(&mut expected, 200);
        encode::plain(&mut expected, KnownName::of(b"content-length"), b"5");
        encode::field(&mut expected, b"x-own", b"a b");
        encode::plain(&mut expected, KnownName::of(b"date"), b"now");
        assert_eq!(block, expected);
    }
}
