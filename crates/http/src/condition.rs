//! Whether the conditions of a request allow its answer (RFC 9110 §13).
//!
//! Entity tags are given in the form of `ETag`: `"text"`, or `W/"text"` when weak. An empty one
//! stands for an answer without a tag; it matches nothing but `*`.

use crate::date;
use crate::head::{Head, Method, Name};

/// The outcome of a request's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluation {
    /// Answer as if there were no conditions.
    Proceed,
    /// 304: the client has this answer already.
    NotModified,
    /// 412: a condition does not hold.
    Failed,
}

/// Evaluates all conditions but `If-Range` in the order of RFC 9110 §13.2.2.
///
/// Call this only where the answer would otherwise be a 2xx (§13.2.1): the resource exists.
/// `last_modified` is in whole seconds since 1970, the value of the answer's `Last-Modified`; for
/// an answer without one, conditions by date are ignored (§13.1.3, §13.1.4). Methods that select no
/// representation (CONNECT, OPTIONS, TRACE) have no conditions. A date that cannot be read, or that
/// is given more than once, is ignored.
#[inline]
pub fn evaluate(head: &Head<'_>, etag: &[u8], last_modified: Option<u64>) -> Evaluation {
    let is_conditional = head.has(Name::IfMatch)
        || head.has(Name::IfNoneMatch)
        || head.has(Name::IfModifiedSince)
        || head.has(Name::IfUnmodifiedSince);
    if is_conditional { in_order(head, etag, last_modified) } else { Evaluation::Proceed }
}

fn in_order(head: &Head<'_>, etag: &[u8], last_modified: Option<u64>) -> Evaluation {
    if matches!(head.method, Method::Connect | Method::Options | Method::Trace) {
        return Evaluation::Proceed;
    }
    if head.has(Name::IfMatch) {
        if !lists(head, Name::IfMatch, |tag| is_same_strongly(tag, etag)) {
            return Evaluation::Failed;
        }
    } else if dates(head, Name::IfUnmodifiedSince, last_modified)
        .is_some_and(|(date, last)| last > date)
    {
        return Evaluation::Failed;
    }
    let is_read = matches!(head.method, Method::Get | Method::Head);
    if head.has(Name::IfNoneMatch) {
        return match lists(head, Name::IfNoneMatch, |tag| is_same_weakly(tag, etag)) {
            false => Evaluation::Proceed,
            true if is_read => Evaluation::NotModified,
            true => Evaluation::Failed,
        };
    }
    match dates(head, Name::IfModifiedSince, last_modified) {
        Some((date, last)) if is_read && last <= date => Evaluation::NotModified,
        _ => Evaluation::Proceed,
    }
}

/// Whether `Range` may be honoured: `If-Range` (RFC 9110 §13.1.5) is absent or holds.
///
/// The field holds if it is the same strong entity tag, or exactly the date of `last_modified` (in
/// seconds since 1970). While the tag is weak, the file may still change within the second that its
/// date names, so the date is a weak validator too (§8.8.2.2) and nothing matches.
#[inline]
pub fn range_applies(head: &Head<'_>, etag: &[u8], last_modified: Option<u64>) -> bool {
    !head.has(Name::IfRange) || if_range_holds(head, etag, last_modified)
}

fn if_range_holds(head: &Head<'_>, etag: &[u8], last_modified: Option<u64>) -> bool {
    let Some(validator) = head.only(Name::IfRange) else { return false };
    if etag.starts_with(b"W/") {
        return false;
    }
    // a tag has a quote among its first three bytes, a date never has
    if validator.iter().take(3).any(|&b| b == b'"') {
        return is_same_strongly(validator, etag);
    }
    last_modified.is_some() && date::parse(validator) == last_modified
}

/// The field's date, if it is there once and readable, and that of the answer, if it has one.
fn dates(head: &Head<'_>, name: Name, last_modified: Option<u64>) -> Option<(u64, u64)> {
    if !head.has(name) {
        return None;
    }
    Some((date::parse(head.only(name)?)?, last_modified?))
}

/// Whether the field is `*` or lists a tag that `is_same`.
fn lists(head: &Head<'_>, name: Name, is_same: impl Fn(&[u8]) -> bool) -> bool {
    head.values(name).any(|line| line == b"*" || Tags(line).any(&is_same))
}

/// Compares strongly (RFC 9110 §8.8.3.2): both tags are strong and the same.
fn is_same_strongly(left: &[u8], right: &[u8]) -> bool {
    left == right && left.starts_with(b"\"")
}

/// Compares weakly (RFC 9110 §8.8.3.2): the tags are the same, weak or not.
fn is_same_weakly(left: &[u8], right: &[u8]) -> bool {
    fn opaque(tag: &[u8]) -> &[u8] {
        tag.strip_prefix(b"W/").unwrap_or(tag)
    }
    opaque(left) == opaque(right)
}

/// The entity tags of a list, up to the first byte that fits no list. A comma within quotes belongs
/// to the tag.
struct Tags<'v>(&'v [u8]);

impl<'v> Iterator for Tags<'v> {
    type Item = &'v [u8];

    fn next(&mut self) -> Option<&'v [u8]> {
        let start = self.0.iter().position(|b| !b", \t".contains(b))?;
        let tag = &self.0[start..];
        let quote = if tag.starts_with(b"W/") { 2 } else { 0 };
        let inside = tag.get(quote..)?.strip_prefix(b"\"")?;
        let text = inside.iter().position(|&b| !is_etagc(b))?;
        if inside[text] != b'"' {
            self.0 = b"";
            return None;
        }
        let (tag, rest) = tag.split_at(quote + 1 + text + 1);
        let next = rest.trim_ascii_start();
        self.0 = if next.first().is_none_or(|&b| b == b',') { next } else { b"" };
        Some(tag)
    }
}

/// Whether a byte may be between the quotes of an entity tag (RFC 9110 §8.8.3).
fn is_etagc(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x7e | 0x80..)
}

#[cfg(test)]
mod tests {
    use super::Evaluation::*;
    use super::*;
    use crate::head::tests::with_fields;

    const ETAG: &[u8] = b"\"tag\"";
    const DATE: u64 = 784_111_777;
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn asked(method: &str, fields: &str, etag: &[u8]) -> Evaluation {
        with_fields(method, fields, |head| evaluate(head, etag, Some(DATE)))
    }

    fn assert_outcomes(cases: &[(&str, &str, Evaluation)]) {
        for (method, fields, outcome) in cases {
            let fields = fields.replace("BEFORE", BEFORE).replace("SAME", SAME);
            let fields = fields.replace("AFTER", AFTER);
            assert_eq!(asked(method, &fields, ETAG), *outcome, "{method} {fields:?}");
        }
    }

    /// RFC 9110 §13.1.1: strong comparison.
    #[test]
    fn if_match() {
        assert_outcomes(&[
            ("GET", "", Proceed),
            ("GET", "If-Match: \"tag\"\r\n", Proceed),
            ("GET", "If-Match: *\r\n", Proceed),
            ("GET", "If-Match: \"a\", W/\"b\" ,,\"tag\"\r\n", Proceed),
            ("GET", "If-Match: \"a\"\r\nIf-Match: \"tag\"\r\n", Proceed),
            ("GET", "If-Match: \"Tag\"\r\n", Failed),
            ("GET", "If-Match: W/\"tag\"\r\n", Failed),
            ("GET", "If-Match: \"a,\", \"b\"\r\n", Failed),
            ("GET", "If-Match: tag\r\n", Failed),
            ("GET", "If-Match:\r\n", Failed),
            ("HEAD", "If-Match: \"a\"\r\n", Failed),
            ("PUT", "If-Match: \"a\"\r\n", Failed),
            ("OPTIONS", "If-Match: \"a\"\r\n", Proceed),
            ("TRACE", "If-Match: \"a\"\r\n", Proceed),
        ]);
        assert_eq!(asked("GET", "If-Match: W/\"tag\"\r\n", b"W/\"tag\""), Failed);
        assert_eq!(asked("GET", "If-Match: *\r\n", b"W/\"tag\""), Proceed);
    }

    /// RFC 9110 §13.1.2: weak comparison; 304 for GET and HEAD, 412 for others.
    #[test]
    fn if_none_match() {
        assert_outcomes(&[
            ("GET", "If-None-Match: \"tag\"\r\n", NotModified),
            ("HEAD", "If-None-Match: \"tag\"\r\n", NotModified),
            ("POST", "If-None-Match: \"tag\"\r\n", Failed),
            ("DELETE", "If-None-Match: *\r\n", Failed),
            ("OPTIONS", "If-None-Match: *\r\n", Proceed),
            ("GET", "If-None-Match: *\r\n", NotModified),
            ("GET", "If-None-Match: W/\"tag\"\r\n", NotModified),
            ("GET", "If-None-Match: \"a\",\"b\",\"tag\"\r\n", NotModified),
            ("GET", "If-None-Match: , \"a\" ,\t\"tag\" ,\r\n", NotModified),
            ("GET", "If-None-Match: \"a\"\r\nIf-None-Match: \"tag\"\r\n", NotModified),
            ("GET", "If-None-Match: \"a\"\r\n", Proceed),
            ("GET", "If-None-Match: \"tag\r\n", Proceed),
            ("GET", "If-None-Match: tag\r\n", Proceed),
            ("GET", "If-None-Match: w/\"tag\"\r\n", Proceed),
            ("GET", "If-None-Match: \"a,\"tag\"\r\n", Proceed),
            ("GET", "If-None-Match: \"a\" \"tag\"\r\n", Proceed),
            ("GET", "If-None-Match: \"a b\", \"tag\"\r\n", Proceed),
            ("GET", "If-None-Match: \"x\", *\r\n", Proceed),
            ("GET", "If-None-Match: W\r\n", Proceed),
            ("GET", "If-None-Match: W/\r\n", Proceed),
            ("GET", "If-None-Match: \"\r\n", Proceed),
            ("GET", "If-None-Match:\r\n", Proceed),
        ]);
        assert_eq!(asked("GET", "If-None-Match: \"tag\"\r\n", b"W/\"tag\""), NotModified);
        assert_eq!(asked("GET", "If-None-Match: \"a,b\"\r\n", b"\"a,b\""), NotModified);
        assert_eq!(asked("GET", "If-None-Match: \"\"\r\n", b"\"\""), NotModified);
        assert_eq!(asked("GET", "If-None-Match: \"\", tag\r\n", b""), Proceed);
        assert_eq!(asked("GET", "If-None-Match: *\r\n", b""), NotModified);
    }

    /// RFC 9110 §13.1.3 and §13.1.4: dates compare by whole seconds; invalid and repeated dates are
    /// ignored.
    #[test]
    fn dates() {
        assert_outcomes(&[
            ("GET", "If-Modified-Since: BEFORE\r\n", Proceed),
            ("GET", "If-Modified-Since: SAME\r\n", NotModified),
            ("GET", "If-Modified-Since: AFTER\r\n", NotModified),
            ("HEAD", "If-Modified-Since: SAME\r\n", NotModified),
            ("POST", "If-Modified-Since: SAME\r\n", Proceed),
            ("GET", "If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT\r\n", NotModified),
            ("GET", "If-Modified-Since: Sun Nov  6 08:49:37 1994\r\n", NotModified),
            ("GET", "If-Modified-Since: 784111777\r\n", Proceed),
            ("GET", "If-Modified-Since: \r\n", Proceed),
            ("GET", "If-Modified-Since: SAME\r\nIf-Modified-Since: SAME\r\n", Proceed),
            ("GET", "If-Unmodified-Since: BEFORE\r\n", Failed),
            ("GET", "If-Unmodified-Since: SAME\r\n", Proceed),
            ("GET", "If-Unmodified-Since: AFTER\r\n", Proceed),
            ("PUT", "If-Unmodified-Since: BEFORE\r\n", Failed),
            ("GET", "If-Unmodified-Since: yesterday\r\n", Proceed),
            ("GET", "If-Unmodified-Since: BEFORE, BEFORE\r\n", Proceed),
            ("GET", "If-Unmodified-Since: BEFORE\r\nIf-Unmodified-Since: BEFORE\r\n", Proceed),
        ]);
    }

    /// RFC 9110 §13.1.3 to §13.1.5: without a date there is nothing to compare with.
    #[test]
    fn an_answer_without_a_date() {
        for (method, field) in [
            ("GET", "If-Modified-Since: "),
            ("GET", "If-Unmodified-Since: "),
            ("PUT", "If-Unmodified-Since: "),
        ] {
            for date in [BEFORE, AFTER, "Thu, 01 Jan 1970 00:00:00 GMT"] {
                let fields = format!("{field}{date}\r\n");
                let outcome = with_fields(method, &fields, |head| evaluate(head, ETAG, None));
                assert_eq!(outcome, Proceed, "{method} {fields}");
            }
        }
        for (value, applies) in [(SAME, false), ("yesterday", false), ("\"tag\"", true)] {
            let fields = format!("If-Range: {value}\r\n");
            let outcome = with_fields("GET", &fields, |head| range_applies(head, ETAG, None));
            assert_eq!(outcome, applies, "{value}");
        }
    }

    /// RFC 9110 §13.2.2.
    #[test]
    fn precedence() {
        let hit = "If-None-Match: \"tag\"\r\n";
        let miss = "If-None-Match: \"a\"\r\n";
        assert_outcomes(&[
            // a tag overrides the date of the same kind
            ("GET", "If-Match: \"tag\"\r\nIf-Unmodified-Since: BEFORE\r\n", Proceed),
            ("GET", "If-Unmodified-Since: AFTER\r\nIf-Match: \"a\"\r\n", Failed),
            ("GET", &format!("{miss}If-Modified-Since: SAME\r\n"), Proceed),
            ("GET", &format!("If-Modified-Since: BEFORE\r\n{hit}"), NotModified),
            ("GET", "If-None-Match:\r\nIf-Modified-Since: SAME\r\n", Proceed),
            // the state that is demanded comes before the state that is known
            ("GET", &format!("{hit}If-Match: \"a\"\r\n"), Failed),
            ("GET", &format!("{hit}If-Match: \"tag\"\r\n"), NotModified),
            ("GET", &format!("{hit}If-Unmodified-Since: BEFORE\r\n"), Failed),
            ("GET", "If-Modified-Since: AFTER\r\nIf-Unmodified-Since: BEFORE\r\n", Failed),
            ("GET", "If-Modified-Since: AFTER\r\nIf-Unmodified-Since: AFTER\r\n", NotModified),
        ]);
    }

    /// RFC 9110 §13.1.5.
    #[test]
    fn if_range() {
        for (fields, etag, applies) in [
            ("", ETAG, true),
            ("If-Range: \"tag\"\r\n", ETAG, true),
            ("If-Range: \"a\"\r\n", ETAG, false),
            ("If-Range: W/\"tag\"\r\n", ETAG, false),
            ("If-Range: W/\"tag\"\r\n", b"W/\"tag\"", false),
            ("If-Range: \"tag\"\r\n", b"W/\"tag\"", false),
            ("If-Range: \"tag\", \"tag\"\r\n", ETAG, false),
            ("If-Range: \"tag\"\r\nIf-Range: \"tag\"\r\n", ETAG, false),
            ("If-Range: *\r\n", ETAG, false),
            ("If-Range:\r\n", ETAG, false),
            ("If-Range:\r\n", b"", false),
            ("If-Range: SAME\r\n", ETAG, true),
            ("If-Range: SAME\r\n", b"", true),
            ("If-Range: SAME\r\n", b"W/\"tag\"", false),
            ("If-Range: BEFORE\r\n", ETAG, false),
            ("If-Range: AFTER\r\n", ETAG, false),
        ] {
            let fields = fields.replace("BEFORE", BEFORE).replace("SAME", SAME);
            let fields = fields.replace("AFTER", AFTER);
            let outcome = with_fields("GET", &fields, |head| range_applies(head, etag, Some(DATE)));
            assert_eq!(outcome, applies, "{fields:?} for {:?}", String::from_utf8_lossy(etag));
        }
    }
}
