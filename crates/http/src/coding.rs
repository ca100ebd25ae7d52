//! Which content coding the client prefers (RFC 9110 §12.5.3).

use crate::head::{Head, Name};
use std::cmp::Reverse;

/// A content coding in which an answer may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Coding {
    /// The bytes as they are.
    Identity,
    /// Brotli (RFC 7932).
    Br,
    /// Zstandard (RFC 8878).
    Zstd,
    /// Gzip (RFC 1952).
    Gzip,
}

impl Coding {
    /// All codings.
    pub const ALL: [Coding; 4] = [Coding::Identity, Coding::Br, Coding::Zstd, Coding::Gzip];

    /// The name in `Accept-Encoding` and `Content-Encoding`.
    pub fn as_str(self) -> &'static str {
        match self {
            Coding::Identity => "identity",
            Coding::Br => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// What a precompressed file has behind the name of the original: `.br`, `.zst`, `.gz`, and
    /// nothing for [`Coding::Identity`].
    pub fn suffix(self) -> &'static str {
        match self {
            Coding::Identity => "",
            Coding::Br => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
        }
    }

    /// Names of codings are case-insensitive; `x-gzip` means gzip (RFC 9110 §8.4.1.3).
    fn from_name(name: &[u8]) -> Option<Coding> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Coding::Gzip);
        }
        Coding::ALL.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.as_str().as_bytes()))
    }
}

/// What the client accepts, and how much it likes each coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Preference {
    /// By [`Coding`]: the weight in thousandths, `None` if not acceptable. Identity may have the
    /// weight 0: acceptable because nothing excludes it, but behind everything that is listed.
    weights: [Option<u16>; 4],
}

impl Preference {
    /// Nothing but the bytes as they are.
    pub const IDENTITY_ONLY: Preference = Preference { weights: [Some(0), None, None, None] };

    /// Reads all `Accept-Encoding` lines of `head`.
    ///
    /// Without the field any coding would be acceptable; a client that does not mention codings
    /// gets none. A malformed list item is ignored. If a coding is listed more than once, its
    /// first mention counts.
    #[inline]
    pub fn of(head: &Head<'_>) -> Preference {
        if !head.has(Name::AcceptEncoding) {
            return Preference::IDENTITY_ONLY;
        }
        Preference::from_lines(head.values(Name::AcceptEncoding))
    }

    fn from_lines<'v>(lines: impl Iterator<Item = &'v [u8]>) -> Preference {
        let mut listed: [Option<u16>; 4] = [None; 4];
        let mut any_other = None;
        for item in lines.flat_map(|line| line.split(|&b| b == b',')) {
            let Some((name, weight)) = read_item(item.trim_ascii()) else { continue };
            if name == b"*" {
                any_other.get_or_insert(weight);
            } else if let Some(coding) = Coding::from_name(name) {
                listed[coding as usize].get_or_insert(weight);
            }
        }
        let mut weights = listed.map(|weight| weight.or(any_other).filter(|&weight| weight > 0));
        let identity = Coding::Identity as usize;
        if listed[identity].or(any_other).is_none() {
            weights[identity] = Some(0);
        }
        Preference { weights }
    }

    /// Whether the client takes an answer in this coding.
    pub fn accepts(&self, coding: Coding) -> bool {
        self.weights[coding as usize].is_some()
    }

    /// The best of the variants that exist, each with the size of its body in bytes: the highest
    /// weight wins, then the smaller body, then the earlier one. `None` if the client accepts
    /// none of them (406).
    #[inline]
    pub fn choose(&self, available: impl IntoIterator<Item = (Coding, u64)>) -> Option<Coding> {
        let mut best = None;
        for (coding, bytes) in available {
            let Some(weight) = self.weights[coding as usize] else { continue };
            let merit = (weight, Reverse(bytes));
            if best.is_none_or(|(most, _)| merit > most) {
                best = Some((merit, coding));
            }
        }
        best.map(|(_, coding)| coding)
    }
}

/// `codings [ weight ]`: the name and its weight in thousandths.
fn read_item(item: &[u8]) -> Option<(&[u8], u16)> {
    let Some(at) = item.iter().position(|&b| b == b';') else {
        return (!item.is_empty()).then_some((item, 1000));
    };
    let name = item[..at].trim_ascii_end();
    match item[at + 1..].trim_ascii_start() {
        [b'q' | b'Q', b'=', weight @ ..] if !name.is_empty() => Some((name, read_weight(weight)?)),
        _ => None,
    }
}

/// `qvalue` (RFC 9110 §12.4.2): 0 to 1 with at most three decimals, as thousandths.
fn read_weight(text: &[u8]) -> Option<u16> {
    let (whole, decimals) = match text {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] => (whole, decimals),
        _ => return None,
    };
    if decimals.len() > 3 || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |place: usize| decimals.get(place).map_or(0, |digit| u16::from(digit - b'0'));
    let weight = u16::from(whole - b'0') * 1000 + digit(0) * 100 + digit(1) * 10 + digit(2);
    (weight <= 1000).then_some(weight)
}
