//! The bytes of an answer that a request asks for (RFC 9110 §14).
//!
//! A set of ranges costs this server no more than the whole answer would (§17.15): more than
//! [`MOST_RANGES`] are ignored, and ranges that overlap or touch become one, at the place of the
//! first of them. What remains is disjoint, in the order of the request, and never longer than the
//! answer itself.

use crate::head::{Head, Method, Name};

/// The most ranges that a request may list, satisfiable or not; with more the field is ignored.
pub const MOST_RANGES: usize = 16;

/// A run of bytes within an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first byte, counted from 0.
    pub start: u64,
    /// The number of bytes, at least 1.
    pub len: u64,
}

impl Range {
    /// The position after the last byte.
    pub fn end(self) -> u64 {
        self.start + self.len
    }
}

/// The outcome of a `Range` field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// Everything: 200.
    All,
    /// One range: 206.
    One(Range),
    /// Two or more disjoint ranges in the order of the request: 206 as `multipart/byteranges`.
    Many(Vec<Range>),
    /// None of the ranges lies within the answer: 416 with `Content-Range: bytes */size`.
    Unsatisfiable,
}

/// Reads `Range` for an answer of `size` bytes. `If-Range` is not considered;
/// [`range_applies`](crate::condition::range_applies) does that.
///
/// The field is ignored ([`Ranges::All`]) if the method is not GET, or if the field is repeated,
/// has another unit than `bytes`, breaks the grammar, or lists more than [`MOST_RANGES`]. The last
/// bytes of an empty answer are the whole of it.
#[inline]
pub fn parse(head: &Head<'_>, size: u64) -> Ranges {
    if !head.has(Name::Range) || head.method != Method::Get {
        return Ranges::All;
    }
    head.only(Name::Range).and_then(|value| read(value, size)).unwrap_or(Ranges::All)
}

/// Reads the value; `None` if it must be ignored.
fn read(value: &[u8], size: u64) -> Option<Ranges> {
    let (unit, list) = value.split_at(value.iter().position(|&b| b == b'=')?);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let items = list[1..].split(|&b| b == b',').map(<[u8]>::trim_ascii);
    let mut found = RangeSet::default();
    let mut listed = 0;
    let mut is_whole = false;
    for item in items.filter(|item| !item.is_empty()) {
        listed += 1;
        if listed > MOST_RANGES {
            return None;
        }
        match Spec::read(item)? {
            Spec::Last(count) if size == 0 && count > 0 => is_whole = true,
            spec => spec.within(size).into_iter().for_each(|range| found.insert(range)),
        }
    }
    match found.as_slice() {
        _ if listed == 0 || is_whole => None,
        [] => Some(Ranges::Unsatisfiable),
        [range] => Some(Ranges::One(*range)),
        ranges => Some(Ranges::Many(ranges.to_vec())),
    }
}

/// A range as it was requested. Numbers too large for 64 bits count as the largest.
enum Spec {
    /// The bytes from the first to the last of two positions; the last may be beyond any end.
    Between(u64, u64),
    /// This many bytes at the end.
    Last(u64),
}

impl Spec {
    /// Reads an item (RFC 9110 §14.1.1); `None` if it breaks the grammar or ends before it starts.
    fn read(item: &[u8]) -> Option<Spec> {
        let (first, last) = item.split_at(item.iter().position(|&b| b == b'-')?);
        match (first, &last[1..]) {
            ([], count) => Some(Spec::Last(number(count)?)),
            (first, []) => Some(Spec::Between(number(first)?, u64::MAX)),
            (first, last) => {
                let spec = Spec::Between(number(first)?, number(last)?);
                (magnitude(first) <= magnitude(last)).then_some(spec)
            }
        }
    }

    /// The part of the range within an answer of `size` bytes, if there is one.
    fn within(self, size: u64) -> Option<Range> {
        let (start, end) = match self {
            Spec::Between(first, last) => (first, last.saturating_add(1).min(size)),
            Spec::Last(count) => (size.saturating_sub(count), size),
        };
        (start < end).then(|| Range { start, len: end - start })
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add((digit - b'0').into());
    Some(digits.iter().fold(0, add))
}

/// A key that orders digits by the numbers they spell, also those beyond 64 bits.
fn magnitude(digits: &[u8]) -> (usize, &[u8]) {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    (digits.len() - zeros, &digits[zeros..])
}

/// The ranges found so far: disjoint, with gaps between them.
#[derive(Default)]
struct RangeSet {
    ranges: [Range; MOST_RANGES],
    count: usize,
}

impl RangeSet {
    fn as_slice(&self) -> &[Range] {
        &self.ranges[..self.count]
    }

    /// Adds a range, united with all those it overlaps or touches, at the place of the first of
    /// them.
    fn insert(&mut self, mut range: Range) {
        let mut place = None;
        let mut kept = 0;
        for at in 0..self.count {
            let other = self.ranges[at];
            if other.start <= range.end() && range.start <= other.end() {
                let start = range.start.min(other.start);
                range = Range { start, len: range.end().max(other.end()) - start };
                if place.is_some() {
                    continue;
                }
                place = Some(kept);
            }
            self.ranges[kept] = other;
            kept += 1;
        }
        let place = place.unwrap_or(kept);
        self.count = kept.max(place + 1);
        self.ranges[place] = range;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::tests::with_fields;

    /// The ranges as `start-last`, comma separated; `all`, `none`.
    fn asked(method: &str, fields: &str, size: u64) -> String {
        let text = |range: &Range| format!("{}-{}", range.start, range.end() - 1);
        match with_fields(method, fields, |head| parse(head, size)) {
            Ranges::All => "all".into(),
            Ranges::Unsatisfiable => "none".into(),
            Ranges::One(range) => text(&range),
            Ranges::Many(ranges) => {
                assert!(ranges.len() > 1);
                ranges.iter().map(text).collect::<Vec<_>>().join(",")
            }
        }
    }

    fn assert_ranges(cases: &[(&str, u64, &str)]) {
        for (value, size, outcome) in cases {
            let fields = format!("Range: {value}\r\n");
            assert_eq!(asked("GET", &fields, *size), *outcome, "{value:?} of {size}");
        }
    }

    /// RFC 9110 §14.1.2, with its examples for 10,000 bytes.
    #[test]
    fn single_ranges() {
        assert_ranges(&[
            ("bytes=0-499", 10_000, "0-499"),
            ("bytes=500-999", 10_000, "500-999"),
            ("bytes=-500", 10_000, "9500-9999"),
            ("bytes=9500-", 10_000, "9500-9999"),
            ("BYTES=0-0", 10, "0-0"),
            ("bytes=9-9", 10, "9-9"),
            ("bytes=0-", 10, "0-9"),
            ("bytes=5-10", 10, "5-9"),
            ("bytes=5-99999999999999999999999999", 10, "5-9"),
            ("bytes=-10", 10, "0-9"),
            ("bytes=-11", 10, "0-9"),
            ("bytes=-99999999999999999999999999", 10, "0-9"),
            ("bytes=007-008", 10, "7-8"),
            ("bytes=0009-10", 10, "9-9"),
            ("bytes=18446744073709551614-", u64::MAX, "18446744073709551614-18446744073709551614"),
            ("bytes=-1", u64::MAX, "18446744073709551614-18446744073709551614"),
        ]);
    }

    /// RFC 9110 §14.1.2, §15.5.17.
    #[test]
    fn unsatisfiable() {
        assert_ranges(&[
            ("bytes=10-", 10, "none"),
            ("bytes=10-10", 10, "none"),
            ("bytes=-0", 10, "none"),
            ("bytes=10-11,20-, -0", 10, "none"),
            ("bytes=99999999999999999999999999-", 10, "none"),
            ("bytes=99999999999999999999999999-99999999999999999999999999", u64::MAX, "none"),
            ("bytes=10-11,3-3,-0", 10, "3-3"),
            // ranges of an empty answer
            ("bytes=0-", 0, "none"),
            ("bytes=0-0", 0, "none"),
            ("bytes=-0", 0, "none"),
            ("bytes=-1", 0, "all"),
            ("bytes=0-,-1", 0, "all"),
        ]);
    }

    /// RFC 9110 §14.1.1, §14.2: another unit, an invalid set, another method: ignored.
    #[test]
    fn ignored() {
        assert_ranges(&[
            ("", 10, "all"),
            ("bytes", 10, "all"),
            ("bytes=", 10, "all"),
            ("bytes=,", 10, "all"),
            ("bytes=-", 10, "all"),
            ("bytes=--1", 10, "all"),
            ("bytes=1", 10, "all"),
            ("bytes=2-1", 10, "all"),
            ("bytes=99-98", 10, "all"),
            ("bytes=18446744073709551617-18446744073709551616", 10, "all"),
            ("bytes=100000000000000000000-99999999999999999999", 10, "all"),
            ("bytes=0-1,2-1", 10, "all"),
            ("bytes=0-1,x", 10, "all"),
            ("bytes=0-1;2-3", 10, "all"),
            ("bytes=0 - 1", 10, "all"),
            ("bytes=0- 1", 10, "all"),
            ("bytes=+0-1", 10, "all"),
            ("bytes=0x0-1", 10, "all"),
            ("bytes=0-1-2", 10, "all"),
            ("bytes =0-1", 10, "all"),
            ("bytes:0-1", 10, "all"),
            ("byte=0-1", 10, "all"),
            ("items=0-1", 10, "all"),
            ("0-1", 10, "all"),
        ]);
        for method in ["HEAD", "POST", "PUT", "OPTIONS", "get"] {
            assert_eq!(asked(method, "Range: bytes=0-1\r\n", 10), "all", "{method}");
        }
        assert_eq!(asked("GET", "", 10), "all");
        assert_eq!(asked("GET", "Range: bytes=0-1\r\nRange: bytes=0-1\r\n", 10), "all");
    }

    /// RFC 9110 §15.3.7.2, §17.15.
    #[test]
    fn several_ranges() {
        assert_ranges(&[
            ("bytes=0-0,-1", 10_000, "0-0,9999-9999"),
            ("bytes= 0-999, 4500-5499, -1000", 10_000, "0-999,4500-5499,9000-9999"),
            ("bytes=,0-0 ,\t,2-2,", 10, "0-0,2-2"),
            // the order of the request is kept
            ("bytes=8-8,0-0,4-4", 10, "8-8,0-0,4-4"),
            // ranges that overlap or touch become one, at the place of the first of them
            ("bytes=500-600,601-999", 10_000, "500-999"),
            ("bytes=500-700,601-999", 10_000, "500-999"),
            ("bytes=601-999,500-600", 10_000, "500-999"),
            ("bytes=8-8,0-1,7-7", 10, "7-8,0-1"),
            ("bytes=0-1,8-8,1-2", 10, "0-2,8-8"),
            ("bytes=0-1,8-8,3-4,2-2", 10, "0-4,8-8"),
            ("bytes=8-8,0-1,3-4,6-6,1-6", 10, "8-8,0-6"),
            ("bytes=0-,0-,0-", 10, "0-9"),
            ("bytes=0-9,3-3", 10, "0-9"),
        ]);
        let apart = |count: u64| {
            let items: Vec<_> = (0..count).map(|at| format!("{}-{}", at * 2, at * 2)).collect();
            items.join(",")
        };
        let most = MOST_RANGES as u64;
        assert_eq!(asked("GET", &format!("Range: bytes={}\r\n", apart(most)), 1000), apart(most));
        assert_ranges(&[
            (&format!("bytes={}", apart(most + 1)), 1000, "all"),
            // the count holds also if they become one, or are not satisfiable
            (&format!("bytes={}", ["0-0"; MOST_RANGES].join(",")), 1000, "0-0"),
            (&format!("bytes={}", ["0-0"; MOST_RANGES + 1].join(",")), 1000, "all"),
            (&format!("bytes={}", ["9-"; MOST_RANGES + 1].join(",")), 5, "all"),
        ]);
    }
}
