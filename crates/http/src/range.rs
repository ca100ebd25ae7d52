//! Which bytes of an answer were asked for (RFC 9110 §14).
//!
//! A set of ranges costs this server no more than the whole answer would (§17.15): more than
//! [`MOST_RANGES`] are ignored, and ranges that overlap or touch become one, at the place of the
//! first of them. What remains is disjoint, in the order of the request, and never longer than the
//! answer itself.

use crate::head::{Head, Method, Name};

/// Ranges a request may list, satisfiable or not; with more the field is ignored.
pub const MOST_RANGES: usize = 16;

/// A run of bytes within an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first byte, counted from 0.
    pub start: u64,
    /// Bytes, at least 1.
    pub len: u64,
}

impl Range {
    /// One past the last byte.
    pub fn end(self) -> u64 {
        self.start + self.len
    }
}

/// What `Range` asks for.
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

/// Reads `Range` for an answer of `size` bytes. `If-Range` is not looked at:
/// [`range_applies`](crate::condition::range_applies) does that.
///
/// The field is ignored ([`Ranges::All`]) if the method is not GET, if it is repeated, has another
/// unit than `bytes`, breaks the grammar, or lists more than [`MOST_RANGES`]. The last bytes of an
/// empty answer are the whole of it.
#[inline]
pub fn parse(head: &Head<'_>, size: u64) -> Ranges {
    if !head.has(Name::Range) || head.method != Method::Get {
        return Ranges::All;
    }
    head.only(Name::Range).and_then(|value| read(value, size)).unwrap_or(Ranges::All)
}

/// `None` if the value is to be ignored.
fn read(value: &[u8], size: u64) -> Option<Ranges> {
    let (unit, list) = value.split_at(value.iter().position(|&b| b == b'=')?);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let items = list[1..].split(|&b| b == b',').map(<[u8]>::trim_ascii);
    let mut found = Found::default();
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

/// One range as it was asked for. Numbers too large for 64 bits count as the largest.
enum Spec {
    /// From the first to the last of two positions; the last may be beyond every end.
    Between(u64, u64),
    /// That many bytes at the end.
    Last(u64),
}

impl Spec {
    /// RFC 9110 §14.1.1; `None` if the item breaks the grammar or ends before it starts.
    fn read(item: &[u8]) -> Option<Spec> {
        let (first, last) = item.split_at(item.iter().position(|&b| b == b'-')?);
        match (first, &last[1..]) {
            ([], count) => Some(Spec::Last(number(count)?)),
            (first, []) => Some(Spec::Between(number(first)?, u64::MAX)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Spec::Between(first, last))
            }
        }
    }

    /// The part within an answer of `size` bytes, if there is one.
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

/// The ranges found so far: disjoint, with gaps between them.
#[derive(Default)]
struct Found {
    ranges: [Range; MOST_RANGES],
    count: usize,
}

impl Found {
    fn as_slice(&self) -> &[Range] {
        &self.ranges[..self.count]
    }

    /// Adds a range, united with all it overlaps or touches, at the place of the first of those.
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
