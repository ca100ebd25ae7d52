//! Texts with stars, each of which stands for any run of bytes.

use memchr::memmem::{self, Finder};

/// A text with stars that others are held against. Case matters. There may be any number of stars:
/// what lies between them is searched for once, from left to right, so a text of `n` bytes takes a
/// time in the order of `n` and of the length of the glob.
#[derive(Clone, Debug)]
pub struct Glob {
    first: Box<[u8]>,
    /// `None` if there is no star.
    rest: Option<GlobRest>,
}

#[derive(Clone, Debug)]
struct GlobRest {
    middle: Box<[Finder<'static>]>,
    last: Box<[u8]>,
}

impl Glob {
    /// Every `*` in `text` stands for any run of bytes, also for none. Nothing else is special.
    pub fn new(text: &[u8]) -> Glob {
        let mut pieces = text.split(|&byte| byte == b'*');
        let first = pieces.next().unwrap_or_default().into();
        let Some(last) = pieces.next_back() else { return Glob { first, rest: None } };
        // two stars in a row are one
        let middle = pieces.filter(|piece| !piece.is_empty());
        let middle = middle.map(|piece| memmem::Finder::new(piece).into_owned()).collect();
        Glob { first, rest: Some(GlobRest { middle, last: last.into() }) }
    }

    /// What every text that fits begins with.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.first
    }

    /// Whether a text fits whatever follows the prefix.
    pub(crate) fn is_prefix(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.middle.is_empty() && rest.last.is_empty())
    }

    /// Whether only one text fits.
    pub(crate) fn is_exact(&self) -> bool {
        self.rest.is_none()
    }

    /// Whether `text` as a whole fits.
    #[inline]
    pub fn matches(&self, text: &[u8]) -> bool {
        let Some(mut text) = text.strip_prefix(&*self.first) else { return false };
        let Some(GlobRest { middle, last }) = &self.rest else { return text.is_empty() };
        let Some(before) = text.strip_suffix(&**last) else { return false };
        text = before;
        // each piece as early as possible leaves the most for those behind it
        for finder in middle {
            let Some(at) = finder.find(text) else { return false };
            text = &text[at + finder.needle().len()..];
        }
        true
    }

    /// The pairs of bytes that are in every text that fits.
    pub(crate) fn pairs(&self) -> BytePairs {
        let middle = self.rest.iter().flat_map(|rest| rest.middle.iter().map(Finder::needle));
        let last = self.rest.iter().map(|rest| &*rest.last);
        let pieces = [&*self.first].into_iter().chain(middle).chain(last);
        // what is longer than all texts that are looked at says nothing
        let pieces = pieces.filter(|piece| piece.len() <= LONG_BYTES);
        pieces.map(BytePairs::of).fold(BytePairs::default(), BytePairs::with)
    }
}

/// Longer texts are not asked for their pairs.
const LONG_BYTES: usize = 256;

/// Which pairs of neighbouring bytes a text has, each hashed to one of 64 bits. It tells cheaply
/// that a text does not fit; a long one would have nearly all bits, and must be looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BytePairs(u64);

impl BytePairs {
    #[inline]
    pub(crate) fn of(text: &[u8]) -> BytePairs {
        if text.len() > LONG_BYTES {
            return BytePairs(u64::MAX);
        }
        // an odd factor that lets each byte reach every bit of the place
        let place = |pair: &[u8]| (u32::from(pair[0]) * 37 + u32::from(pair[1]) * 101) % 64;
        BytePairs(text.windows(2).fold(0, |set, pair| set | 1 << place(pair)))
    }

    fn with(self, other: BytePairs) -> BytePairs {
        BytePairs(self.0 | other.0)
    }

    /// What both have.
    pub(crate) fn both(self, other: BytePairs) -> BytePairs {
        BytePairs(self.0 & other.0)
    }

    /// Whether it has all that `needed` has.
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

    /// The definition, letter by letter.
    fn fits(glob: &[u8], text: &[u8]) -> bool {
        match (glob, text) {
            ([], []) => true,
            ([b'*', glob @ ..], text) => (0..=text.len()).any(|skip| fits(glob, &text[skip..])),
            ([a, glob @ ..], [b, text @ ..]) => a == b && fits(glob, text),
            _ => false,
        }
    }

    /// A search that goes back to try another place for a piece would not come to an end here.
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
