//! Whether the conditions of a request allow its answer (RFC 9110 §13).
//!
//! Entity tags are given as they stand in `ETag`: `"text"`, or `W/"text"` when weak. An empty one
//! stands for an answer without a tag; it matches nothing but `*`.

use crate::date;
use crate::head::{Head, Method, Name};

/// What the conditions ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answer as if there were no conditions.
    Proceed,
    /// 304: the client has this answer already.
    NotModified,
    /// 412: a condition does not hold.
    Failed,
}

/// Evaluates all conditions but `If-Range` in the order of RFC 9110 §13.2.2.
///
/// To be asked only where the answer would otherwise be a 2xx (§13.2.1): the resource exists.
/// `last_modified` is in whole seconds since 1970, as the answer's `Last-Modified` says.
/// Methods that select no representation (CONNECT, OPTIONS, TRACE) have no conditions. A date that
/// cannot be read, or that is given more than once, is no condition.
#[inline]
pub fn evaluate(head: &Head<'_>, etag: &[u8], last_modified: u64) -> Outcome {
    let is_conditional = head.has(Name::IfMatch)
        || head.has(Name::IfNoneMatch)
        || head.has(Name::IfModifiedSince)
        || head.has(Name::IfUnmodifiedSince);
    if is_conditional { in_order(head, etag, last_modified) } else { Outcome::Proceed }
}

fn in_order(head: &Head<'_>, etag: &[u8], last_modified: u64) -> Outcome {
    if matches!(head.method, Method::Connect | Method::Options | Method::Trace) {
        return Outcome::Proceed;
    }
    if head.has(Name::IfMatch) {
        if !lists(head, Name::IfMatch, |tag| is_same_strongly(tag, etag)) {
            return Outcome::Failed;
        }
    } else if only_date(head, Name::IfUnmodifiedSince).is_some_and(|date| last_modified > date) {
        return Outcome::Failed;
    }
    let is_read = matches!(head.method, Method::Get | Method::Head);
    if head.has(Name::IfNoneMatch) {
        return match lists(head, Name::IfNoneMatch, |tag| is_same_weakly(tag, etag)) {
            false => Outcome::Proceed,
            true if is_read => Outcome::NotModified,
            true => Outcome::Failed,
        };
    }
    match only_date(head, Name::IfModifiedSince) {
        Some(date) if is_read && last_modified <= date => Outcome::NotModified,
        _ => Outcome::Proceed,
    }
}

/// Whether `Range` may be honoured: `If-Range` (RFC 9110 §13.1.5) is absent or holds.
///
/// It holds if it is the same strong entity tag, or the very date of `last_modified` (in seconds
/// since 1970). While the tag is weak, the file may still change within the second that its date
/// names, so the date is a weak validator too (§8.8.2.2) and nothing matches.
#[inline]
pub fn range_applies(head: &Head<'_>, etag: &[u8], last_modified: u64) -> bool {
    !head.has(Name::IfRange) || if_range_holds(head, etag, last_modified)
}

fn if_range_holds(head: &Head<'_>, etag: &[u8], last_modified: u64) -> bool {
    let Some(validator) = head.only(Name::IfRange) else { return false };
    if etag.starts_with(b"W/") {
        return false;
    }
    // A tag has a quote among its first three bytes, a date never.
    if validator.iter().take(3).any(|&b| b == b'"') {
        return is_same_strongly(validator, etag);
    }
    date::parse(validator) == Some(last_modified)
}

/// The field's date, if it is there once and readable.
fn only_date(head: &Head<'_>, name: Name) -> Option<u64> {
    if head.has(name) { date::parse(head.only(name)?) } else { None }
}

/// Whether the field is `*` or lists a tag that `is_same`.
fn lists(head: &Head<'_>, name: Name, is_same: impl Fn(&[u8]) -> bool) -> bool {
    head.values(name).any(|line| line == b"*" || Tags(line).any(&is_same))
}

/// RFC 9110 §8.8.3.2: both are strong and the same.
fn is_same_strongly(left: &[u8], right: &[u8]) -> bool {
    left == right && left.starts_with(b"\"")
}

/// RFC 9110 §8.8.3.2: the same, weak or not.
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

/// A byte that may stand between the quotes of an entity tag (RFC 9110 §8.8.3).
fn is_etagc(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x7e | 0x80..)
}
