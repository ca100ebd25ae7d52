//! Texts with stars, each of which matches any run of bytes.

use memchr::memmem::{self, Finder};

/// A pattern with stars. Case matters. There may be any number of stars: the pieces between them
/// are searched for once, from left to right, so a match takes time in the order of the lengths of
/// the text and the pattern.
#[derive(Clone, Debug)]
pub struct Glob {
    first: Box<[u8]>,
    /// What follows the first star; `None` if there is no star.
    rest: Option<GlobRest>,
}

#[derive(Clone, Debug)]
struct GlobRest {
    middle: Box<[Finder<'static>]>,
    last: Box<[u8]>,
}

impl Glob {
    /// Compiles a pattern: every `*` in `text` matches any run of bytes, also an empty one. No
    /// other character is special.
    pub fn new(text: &[u8]) -> Glob {
        let mut pieces = text.split(|&byte| byte == b'*');
        let first = pieces.next().unwrap_or_default().into();
        let Some(last) = pieces.next_back() else { return Glob { first, rest: None } };
        // two stars in a row are one
        let middle = pieces.filter(|piece| !piece.is_empty());
        let middle = middle.map(|piece| memmem::Finder::new(piece).into_owned()).collect();
        Glob { first, rest: Some(GlobRest { middle, last: last.into() }) }
    }

    /// The bytes with which every matching text begins.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.first
    }

    /// Whether every text that begins with the prefix matches.
    pub(crate) fn is_prefix(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.middle.is_empty() && rest.last.is_empty())
    }

    /// Whether only one text matches.
    pub(crate) fn is_exact(&self) -> bool {
        self.rest.is_none()
    }

    /// Whether `text` matches as a whole.
    #[inline]
    pub fn matches(&self, text: &[u8]) -> bool {
        let Some(mut text) = text.strip_prefix(&*self.first) else { return false };
        let Some(GlobRest { middle, last }) = &self.rest else { return text.is_empty() };
        let Some(before) = text.strip_suffix(&**last) else { return false };
        text = before;
        // each piece as early as possible leaves the most bytes for the pieces after it
        for finder in middle {
            let Some(at) = finder.find(text) else { return false };
            text = &text[at + finder.needle().len()..];
        }
        true
    }

    /// The pairs of bytes that every matching text has.
    pub(crate) fn pairs(&self) -> BytePairs {
        let middle = self.rest.iter().flat_map(|rest| rest.middle.iter().map(Finder::needle));
        let last = self.rest.iter().map(|rest| &*rest.last);
        let pieces = [&*self.first].into_iter().chain(middle).chain(last);
        // a piece longer than any text that is filtered gives no useful pairs
        let pieces = pieces.filter(|piece| piece.len() <= LONG_BYTES);
        pieces.map(BytePairs::of).fold(BytePairs::default(), BytePairs::with)
    }
}

/// The longest text whose pairs are computed.
const LONG_BYTES: usize = 256;

/// A filter of the pairs of neighbouring bytes in a text, each hashed to one of 64 bits. A missing
/// bit shows cheaply that a text does not match. A long text would have nearly all bits set, so the
/// filter does not help there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BytePairs(u64);

impl BytePairs {
    #[inline]
    pub(crate) fn of(text: &[u8]) -> BytePairs {
        if text.len() > LONG_BYTES {
            return BytePairs(u64::MAX);
        }
        // an odd factor, so that each byte influences every bit of the position
        let place = |pair: &[u8]| (u32::from(pair[0]) * 37 + u32::from(pair[1]) * 101) % 64;
        BytePairs(text.windows(2).fold(0, |set, pair| set | 1 << place(pair)))
    }

    fn with(self, other: BytePairs) -> BytePairs {
        BytePairs(self.0 | other.0)
    }

    /// The pairs of both filters.
    pub(crate) fn both(self, other: BytePairs) -> BytePairs {
        BytePairs(self.0 & other.0)
    }

    /// Whether all pairs of `needed` are there.
    #[inline]
    pub(crate) fn has(self, needed: BytePairs) -> bool {
        needed.0 & !self.0 == 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition of a match, letter by letter.
    fn fits(glob: &[u8], text: &[u8]) -> bool {
        match (glob, text) {
            ([], []) => true,
            ([b'*', glob @ ..], text) => (0..=text.len()).any(|skip| fits(glob, &text[skip..])),
            ([a, glob @ ..], [b, text @ ..]) => a == b && fits(glob, text),
            _ => false,
        }
    }

    /// A search that went back to try another place for a piece would not end here.
    #[test]
    fn many_stars_take_no_longer() {
        let text = "a".repeat(100_000);
        for stars in [1, 9, 10, 1_000] {
            let fits = "*a".repeat(stars);
            assert!(Glob::new(fits.as_bytes()).matches(text.as_bytes()), "{stars}");
            for misses in [format!("{fits}b"), format!("{fits}b*"), format!("{fits}*b{fits}")] {
                assert!(!Glob::new(misses.as_bytes()).matches(text.as_bytes()), "{stars}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_star_stands_for_any_run(glob in "[ab*]{0,6}", text in "[ab]{0,8}") {
            let expected = fits(glob.as_bytes(), text.as_bytes());
            let glob = Glob::new(glob.as_bytes());
            prop_assert_eq!(glob.matches(text.as_bytes()), expected);
            if expected {
                prop_assert!(text.as_bytes().starts_with(glob.prefix()));
                prop_assert!(BytePairs::of(text.as_bytes()).has(glob.pairs()));
            }
            if glob.is_prefix() {
                prop_assert_eq!(text.as_bytes().starts_with(glob.prefix()), expected);
            }
            if glob.is_exact() {
                prop_assert_eq!(text.as_bytes() == glob.prefix(), expected);
            }
        }
    }
}
