//! Texts with stars, each of which stands for any run of bytes.

use memchr::memmem::{self, Finder};

/// What a text is held against.
#[derive(Clone, Debug)]
pub(crate) struct Glob {
    first: Box<[u8]>,
    /// `None` if there is no star.
    rest: Option<Rest>,
}

#[derive(Clone, Debug)]
struct Rest {
    middle: Box<[Finder<'static>]>,
    last: Box<[u8]>,
}

impl Glob {
    pub(crate) fn new(text: &[u8]) -> Glob {
        let mut pieces = text.split(|&byte| byte == b'*');
        let first = pieces.next().unwrap_or_default().into();
        let Some(last) = pieces.next_back() else { return Glob { first, rest: None } };
        // two stars in a row are one
        let middle = pieces.filter(|piece| !piece.is_empty());
        let middle = middle.map(|piece| memmem::Finder::new(piece).into_owned()).collect();
        Glob { first, rest: Some(Rest { middle, last: last.into() }) }
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

    #[inline]
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let Some(mut text) = text.strip_prefix(&*self.first) else { return false };
        let Some(Rest { middle, last }) = &self.rest else { return text.is_empty() };
        // each piece as early as possible leaves the most for those behind it
        for finder in middle {
            let Some(at) = finder.find(text) else { return false };
            text = &text[at + finder.needle().len()..];
        }
        text.ends_with(last)
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

    proptest! {
        #[test]
        fn a_star_stands_for_any_run(glob in "[ab*]{0,6}", text in "[ab]{0,8}") {
            let expected = fits(glob.as_bytes(), text.as_bytes());
            let glob = Glob::new(glob.as_bytes());
            prop_assert_eq!(glob.matches(text.as_bytes()), expected);
            if expected {
                prop_assert!(text.as_bytes().starts_with(glob.prefix()));
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
