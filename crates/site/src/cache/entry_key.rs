//! Keys of answers: paths of clients, and the inner keys that several of them lead to.

use crate::cache::listing_format::ListingFormat;
use crate::rules::ConditionBits;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The key of an answer: the site and the decoded, dot-free path; or, with a first byte that no
/// path has, an [`Inner`] or an [`OutcomeKey`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryKey {
    pub(crate) site: u32,
    pub(crate) path: Arc<[u8]>,
}

impl EntryKey {
    pub(crate) fn asked(&self) -> KeyRef<'_> {
        KeyRef { site: self.site, path: &self.path }
    }
}

impl Hash for EntryKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.asked().hash(state);
    }
}

/// An [`EntryKey`] that borrows, for looking up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyRef<'k> {
    pub(crate) site: u32,
    pub(crate) path: &'k [u8],
}

impl quick_cache::Equivalent<EntryKey> for KeyRef<'_> {
    fn equivalent(&self, key: &EntryKey) -> bool {
        *self == key.asked()
    }
}

/// The key of the [`Inner`] that has the answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AliasKey(Box<[u8]>);

impl AliasKey {
    pub(crate) fn new(inner: &Inner) -> AliasKey {
        AliasKey(inner.key())
    }

    /// The memory that keeping the key costs, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Appends the key for a client. `shape` is called only if the key is a list's.
    #[inline]
    pub(crate) fn push_key(&self, shape: impl FnOnce() -> ListingFormat, key: &mut Vec<u8>) {
        let start = key.len();
        key.extend_from_slice(&self.0);
        if let Some(kind) = key.get_mut(start + 1).filter(|kind| **kind != InnerKind::File.number())
        {
            *kind = InnerKind::List(shape()).number();
        }
    }
}

/// An answer that several paths of clients lead to. In the store its key begins with a byte that no
/// path begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inner {
    pub(crate) kind: InnerKind,
    /// The status of the answer. One of an error has no conditions and no ranges.
    pub(crate) status: u16,
    /// The header rules for the path that was asked for, by number.
    pub(crate) header_rules: Box<[u16]>,
    /// The path of the file or directory.
    pub(crate) path: Vec<u8>,
}

/// The form in which the file at an [`Inner`]'s path is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InnerKind {
    /// A file or the index of a directory is the answer.
    File,
    /// A directory's files are listed.
    List(ListingFormat),
}

impl InnerKind {
    fn number(self) -> u8 {
        match self {
            InnerKind::File => 0,
            InnerKind::List(shape) => 1 + shape.number(),
        }
    }

    fn of(number: u8) -> Option<InnerKind> {
        match number.checked_sub(1) {
            None => Some(InnerKind::File),
            Some(number) => ListingFormat::of(number).map(InnerKind::List),
        }
    }
}

/// The first byte of an [`Inner`]'s key.
const INNER: u8 = 0;

impl Inner {
    pub(crate) fn key(&self) -> Box<[u8]> {
        let mut key = vec![INNER, self.kind.number()];
        key.extend(self.status.to_be_bytes());
        key.extend((self.header_rules.len() as u16).to_be_bytes());
        key.extend(self.header_rules.iter().flat_map(|number| number.to_be_bytes()));
        key.extend_from_slice(&self.path);
        key.into_boxed_slice()
    }

    pub(crate) fn of(key: &[u8]) -> Option<Inner> {
        let (&[INNER, kind, s0, s1, n0, n1], rest) = key.split_first_chunk()? else { return None };
        let kind = InnerKind::of(kind)?;
        let len = usize::from(u16::from_be_bytes([n0, n1])) * 2;
        let (numbers, path) = rest.split_at_checked(len)?;
        let number = |pair: &[u8]| u16::from_be_bytes([pair[0], pair[1]]);
        let header_rules = numbers.chunks_exact(2).map(number).collect();
        Some(Inner {
            kind,
            status: u16::from_be_bytes([s0, s1]),
            header_rules,
            path: path.to_vec(),
        })
    }
}

/// The first byte of an [`OutcomeKey`].
const OUTCOME: u8 = 1;

/// A path whose answer depends on conditions, with the conditions that hold. No path begins with
/// the key's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutcomeKey<'k> {
    pub(crate) outcome: ConditionBits,
    pub(crate) path: &'k [u8],
}

impl<'k> OutcomeKey<'k> {
    #[inline]
    pub(crate) fn push(self, key: &mut Vec<u8>) {
        key.push(OUTCOME);
        key.extend_from_slice(&self.outcome.0.to_be_bytes());
        key.extend_from_slice(self.path);
    }

    pub(crate) fn of(key: &'k [u8]) -> Option<OutcomeKey<'k>> {
        let (&[OUTCOME, bits @ ..], path) = key.split_first_chunk::<9>()? else { return None };
        Some(OutcomeKey { outcome: ConditionBits(u64::from_be_bytes(bits)), path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_key_says_all_of_it() {
        for outcome in [ConditionBits(0), ConditionBits(5), ConditionBits(u64::MAX)] {
            let (mut key, said) = (Vec::new(), OutcomeKey { outcome, path: b"/a" });
            said.push(&mut key);
            assert_eq!((OutcomeKey::of(&key), Inner::of(&key)), (Some(said), None));
        }
        assert_eq!(OutcomeKey::of(b"/path/of/a/client"), None);
    }

    #[test]
    fn an_inner_key_says_all_of_it() {
        let lists = (0..=u8::MAX).map_while(ListingFormat::of).map(InnerKind::List);
        for kind in lists.chain([InnerKind::File]) {
            for header_rules in [&[][..], &[0, 7, 300]] {
                let path = b"/404.html".to_vec();
                let inner = Inner { kind, status: 404, header_rules: header_rules.into(), path };
                assert_eq!(Inner::of(&inner.key()), Some(inner));
            }
        }
        assert_eq!(Inner::of(b"/path/of/a/client"), None);
        assert_eq!(Inner::of(&[0, 0, 0, 200, 0, 9]), None);
    }
}
