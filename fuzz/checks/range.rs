//! What must hold for any bytes given as the value of `Range`.

use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
use forebay_http::range::{self, MOST_RANGES, Range, Ranges};
use std::collections::BTreeSet;

/// Panics if something does not hold for `value`.
pub(crate) fn check(value: &[u8]) {
    for size in [0, 1, 2, 10, 100, 10_000, u64::MAX] {
        let get = asked("GET", value, size);
        let Some(ranges) = get else { return };
        check_ranges(&ranges, size);
        if size <= 100 {
            assert_eq!(bytes_of(&ranges), reference(value, size), "of {size} bytes");
        }
        assert_eq!(asked("HEAD", value, size), Some(Ranges::All));
    }
}

/// `None` if the value cannot stand in a field.
fn asked(method: &str, value: &[u8], size: u64) -> Option<Ranges> {
    let start = format!("{method} / HTTP/1.1\r\nHost: a\r\nRange: ");
    let bytes = [start.as_bytes(), value, b"\r\n\r\n"].concat();
    let mut lines = Lines::new();
    match Head::parse(&bytes, &mut lines, &HeadLimits::default()) {
        Ok(ParsedHead::Complete(head)) if head.len == bytes.len() && head.fields().count() == 2 => {
            Some(range::parse(&head, size))
        }
        _ => None,
    }
}

/// Ranges lie within the answer, are not empty, and neither overlap nor touch.
fn check_ranges(ranges: &Ranges, size: u64) {
    let ranges: &[Range] = match ranges {
        Ranges::All | Ranges::Unsatisfiable => &[],
        Ranges::One(range) => std::slice::from_ref(range),
        Ranges::Many(ranges) => {
            assert!((2..=MOST_RANGES).contains(&ranges.len()));
            ranges
        }
    };
    for (place, range) in ranges.iter().enumerate() {
        assert!(range.len > 0 && range.start < size && range.len <= size - range.start);
        for other in &ranges[..place] {
            assert!(other.end() < range.start || range.end() < other.start);
        }
    }
}

/// `Err(())` for a value that is ignored, else the positions that were asked for.
type Positions = Result<BTreeSet<u64>, ()>;

fn bytes_of(ranges: &Ranges) -> Positions {
    match ranges {
        Ranges::All => Err(()),
        Ranges::Unsatisfiable => Ok(BTreeSet::new()),
        Ranges::One(range) => Ok((range.start..range.end()).collect()),
        Ranges::Many(ranges) => Ok(ranges.iter().flat_map(|r| r.start..r.end()).collect()),
    }
}

/// The same in the plainest way, for small answers: position by position.
fn reference(value: &[u8], size: u64) -> Positions {
    let text = std::str::from_utf8(value).map_err(drop)?.trim_matches([' ', '\t']);
    let (unit, list) = text.split_once('=').ok_or(())?;
    let items: Vec<&str> = list
        .split(',')
        .map(|item| item.trim_matches([' ', '\t']))
        .filter(|i| !i.is_empty())
        .collect();
    if !unit.eq_ignore_ascii_case("bytes") || items.is_empty() || items.len() > MOST_RANGES {
        return Err(());
    }
    let mut wanted = BTreeSet::new();
    let mut wants_whole_of_nothing = false;
    for item in items {
        match item.split_once('-').ok_or(())? {
            ("", count) => {
                let count = number(count)?;
                wants_whole_of_nothing |= size == 0 && count > 0;
                wanted.extend((0..size).filter(|&at| u128::from(size - at) <= count));
            }
            (first, last) => {
                let from = number(first)?;
                let to = if last.is_empty() { u128::MAX } else { number(last)? };
                if !last.is_empty() && is_more(first, last) {
                    return Err(());
                }
                wanted.extend((0..size).filter(|&at| (from..=to).contains(&at.into())));
            }
        }
    }
    if wants_whole_of_nothing { Err(()) } else { Ok(wanted) }
}

fn number(digits: &str) -> Result<u128, ()> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(());
    }
    Ok(digits.parse().unwrap_or(u128::MAX))
}

/// Compares digits as numbers of any size.
fn is_more(first: &str, last: &str) -> bool {
    let width = first.len().max(last.len());
    format!("{first:0>width$}") > format!("{last:0>width$}")
}
