//! The content coding that the client prefers (RFC 9110 §12.5.3).

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

    /// The suffix that a precompressed file has after the name of the original: `.br`, `.zst`,
    /// `.gz`, and none for [`Coding::Identity`].
    pub fn suffix(self) -> &'static str {
        match self {
            Coding::Identity => "",
            Coding::Br => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
        }
    }

    /// Reads the name of a coding, which is case-insensitive; `x-gzip` means gzip (RFC 9110
    /// §8.4.1.3).
    fn from_name(name: &[u8]) -> Option<Coding> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Coding::Gzip);
        }
        Coding::ALL.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.as_str().as_bytes()))
    }
}

/// The codings that the client accepts, with their weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Preference {
    /// The weight of each [`Coding`] in thousandths, `None` if not acceptable. Identity may have
    /// the weight 0: it is acceptable because nothing excludes it, but comes after everything that
    /// is listed.
    weights: [Option<u16>; 4],
}

impl Preference {
    /// Accepts only the bytes as they are.
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

    /// That of a client that names these codings, all without a weight.
    ///
    /// ```
    /// use forebay_http::coding::{Coding, Preference};
    ///
    /// let preference = Preference::naming([Coding::Gzip, Coding::Br]);
    /// assert_eq!(preference.weight(Coding::Br), Some(1000));
    /// assert_eq!((preference.weight(Coding::Identity), preference.weight(Coding::Zstd)), (Some(0), None));
    /// ```
    pub fn naming(codings: impl IntoIterator<Item = Coding>) -> Preference {
        let mut weights = Preference::IDENTITY_ONLY.weights;
        codings.into_iter().for_each(|coding| weights[coding as usize] = Some(1000));
        Preference { weights }
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

    /// The weight of this coding, in thousandths; `None` if the client does not take it. 0 is an
    /// identity that is only not excluded.
    #[inline]
    pub fn weight(&self, coding: Coding) -> Option<u16> {
        self.weights[coding as usize]
    }

    /// Whether the client takes an answer in this coding.
    pub fn accepts(&self, coding: Coding) -> bool {
        self.weight(coding).is_some()
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
        return Some((item, 1000));
    };
    let name = item[..at].trim_ascii_end();
    match item[at + 1..].trim_ascii_start() {
        [b'q' | b'Q', b'=', weight @ ..] => Some((name, read_weight(weight)?)),
        _ => None,
    }
}

/// `qvalue` (RFC 9110 §12.4.2): 0 to 1 with at most three decimals, as thousandths.
pub(crate) fn read_weight(text: &[u8]) -> Option<u16> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::tests::with_fields;

    fn preference(fields: &str) -> Preference {
        with_fields("GET", fields, Preference::of)
    }

    /// The choice for `Accept-Encoding: value` if all codings exist; br is the smallest.
    fn choice(value: &str) -> Option<Coding> {
        let available =
            [(Coding::Identity, 100), (Coding::Gzip, 30), (Coding::Zstd, 25), (Coding::Br, 20)];
        preference(&format!("Accept-Encoding: {value}\r\n")).choose(available)
    }

    /// RFC 9110 §12.5.3.
    #[test]
    fn the_best_coding_is_chosen() {
        use Coding::*;
        for (value, coding) in [
            ("", Some(Identity)),
            ("gzip", Some(Gzip)),
            ("GZip", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("gzip, deflate, br, zstd", Some(Br)),
            ("gzip, deflate", Some(Gzip)),
            ("deflate", Some(Identity)),
            ("br;q=0.5, gzip", Some(Gzip)),
            ("br;q=0.999,gzip;q=1.000", Some(Gzip)),
            ("br;q=0.001", Some(Br)),
            ("br \t;\t q=0.5 , gzip;Q=0.4", Some(Br)),
            ("*", Some(Br)),
            ("*;q=0.5, gzip;q=0.6", Some(Gzip)),
            ("br;q=0, *", Some(Zstd)),
            ("br;q=0", Some(Identity)),
            ("br;q=0.2, identity;q=0.3", Some(Identity)),
            ("identity, br", Some(Br)),
            // excluded
            ("identity;q=0", None),
            ("*;q=0", None),
            ("*;q=0.000, deflate", None),
            ("identity;q=0, gzip", Some(Gzip)),
            ("*;q=0, gzip", Some(Gzip)),
            ("*;q=0, identity", Some(Identity)),
            ("*;q=0, identity;q=0.1, br;q=0.2", Some(Br)),
            ("identity;q=0, *;q=0.1", Some(Br)),
            // the first mention counts
            ("gzip;q=0, gzip", Some(Identity)),
            ("gzip, x-gzip;q=0", Some(Gzip)),
        ] {
            assert_eq!(choice(value), coding, "{value:?}");
        }
    }

    /// RFC 9110 §12.4.2 allows at most three decimals and nothing above 1.
    #[test]
    fn malformed_items_are_ignored() {
        for value in [
            "br;q=2",
            "br;q=1.001",
            "br;q=0.1234",
            "br;q=.5",
            "br;q=",
            "br;q",
            "br;",
            "br;x=1",
            "br;q=0.5;x=1",
            "br;q=-1",
            "br q=1",
            ";q=1",
            "b r",
        ] {
            assert_eq!(choice(value), Some(Coding::Identity), "{value:?}");
            assert_eq!(choice(&format!(",, {value} ,,gzip,")), Some(Coding::Gzip), "{value:?}");
        }
    }

    #[test]
    fn weights_are_thousandths() {
        for (text, weight) in [
            ("0", Some(0)),
            ("0.", Some(0)),
            ("0.5", Some(500)),
            ("0.05", Some(50)),
            ("0.005", Some(5)),
            ("0.123", Some(123)),
            ("0.999", Some(999)),
            ("1", Some(1000)),
            ("1.000", Some(1000)),
            ("1.001", None),
            ("0.0000", None),
            ("00", None),
            ("2", None),
            ("", None),
        ] {
            assert_eq!(read_weight(text.as_bytes()), weight, "{text:?}");
        }
    }

    #[test]
    fn all_lines_count() {
        let both = preference("Accept-Encoding: gzip;q=0.5\r\nX: y\r\naccept-encoding: br\r\n");
        assert!(both.accepts(Coding::Gzip) && both.accepts(Coding::Br));
        assert!(!both.accepts(Coding::Zstd));
        assert_eq!(
            [Coding::Gzip, Coding::Br, Coding::Identity].map(|at| both.weight(at)),
            [Some(500), Some(1000), Some(0)]
        );
        assert_eq!(preference(""), Preference::IDENTITY_ONLY);
        assert_eq!(preference("Accept-Encoding:\r\n"), Preference::IDENTITY_ONLY);
    }

    #[test]
    fn among_equals_the_smaller_body_wins() {
        let all = preference("Accept-Encoding: gzip, br, zstd, identity\r\n");
        let choose = |available: &[(Coding, u64)]| all.choose(available.iter().copied());
        assert_eq!(choose(&[(Coding::Br, 9), (Coding::Gzip, 8)]), Some(Coding::Gzip));
        assert_eq!(choose(&[(Coding::Br, 8), (Coding::Gzip, 8)]), Some(Coding::Br));
        assert_eq!(choose(&[(Coding::Br, 20), (Coding::Identity, 10)]), Some(Coding::Identity));
        assert_eq!(choose(&[]), None);
        let gzip = preference("Accept-Encoding: gzip\r\n");
        let larger = [(Coding::Identity, 10), (Coding::Gzip, 20)];
        assert_eq!(gzip.choose(larger), Some(Coding::Gzip), "an unlisted identity comes last");
        assert_eq!(gzip.choose([(Coding::Br, 1)]), None);
    }

    #[test]
    fn names_and_suffixes() {
        for coding in Coding::ALL {
            assert_eq!(Coding::from_name(coding.as_str().as_bytes()), Some(coding));
            assert_eq!(Coding::ALL[coding as usize], coding);
            assert_eq!(coding.suffix().is_empty(), coding == Coding::Identity);
        }
    }
}
