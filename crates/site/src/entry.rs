//! One cached answer: everything about one normalised path.

use crate::compress::OnDemand;
use crate::guard::Guard;
use crate::listing::ListingFormat;
use crate::pages::Page;
use crate::redirection::Redirection;
use crate::variant::Variant;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What an entry costs besides its bytes: itself, its key, its place in the cache, and the names
/// under which changes find it. An estimate.
const OVERHEAD_BYTES: u64 = 1024;

/// What the answer depends on: the site and the decoded, dot-free path; or, with a first byte that
/// no path has, an [`Inner`].
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

/// Everything about one path.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: EntryKey,
    pub(crate) what: EntryKind,
    /// The header rules of the site that are for this path, by number.
    pub(crate) header_rules: Box<[u16]>,
    /// The rules about clients that are for this path.
    pub(crate) guard: Option<Box<Guard>>,
    /// Whether a body is sent from an open file.
    pub(crate) is_on_disk: bool,
    /// Until when it may be answered with, in the loops' milliseconds: [`DEAD`] or an instant. Then
    /// its files are looked at again.
    fresh_until_ms: AtomicU64,
    /// What was made of it since it was put into the store. Changed by the store only.
    pub(crate) made_bytes: AtomicU64,
}

/// Its files changed, or it was evicted.
pub(crate) const DEAD: u64 = 0;

/// What is at the path.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most entries are files, and a hit follows no pointer"
)]
pub(crate) enum EntryKind {
    /// A file, or what was made like one.
    Found(FoundFile),
    /// What other paths have too.
    Alias(AliasKey),
    /// Whatever work the query asks for.
    Work,
    /// A file that an application runs.
    Script(Script),
    /// Another address.
    Redirect(Redirection),
    /// Nothing that is served. 404.
    Missing,
    /// A file that may not be read. 403.
    Denied,
    /// An error that is not like those of other paths.
    Page(Box<Page>),
    /// The file system failed with this status; never cached.
    Failed(u16),
}

/// Where the answer is: the key of an [`Inner`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AliasKey(Box<[u8]>);

impl AliasKey {
    pub(crate) fn new(inner: &Inner) -> AliasKey {
        AliasKey(inner.key())
    }

    /// Appends the key for a client, which is asked for the shape of a list only if it is one.
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

/// A file that an application runs instead of its being sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The route, by its place in [`SiteSettings::routes`](crate::SiteSettings::routes).
    pub(crate) route: u32,
    /// The path of the file in the site, decoded.
    pub name: Box<[u8]>,
    /// What follows it in the path that was asked for; empty, or begins with a slash.
    pub path_info: Box<[u8]>,
    /// Where it is, if an alias has it.
    pub file: Option<Box<[u8]>>,
}

/// What several paths of clients lead to. Where it is kept among them, its key begins with a byte
/// that no path begins with.
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

/// What is made of an [`Inner`]'s path.
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

/// A file and its precompressed siblings.
#[derive(Debug)]
pub(crate) struct FoundFile {
    /// 200, or that of an error.
    pub(crate) status: u16,
    /// Whether it is one file, which can be asked for in part or only if it changed.
    pub(crate) is_file: bool,
    pub(crate) identity: Variant,
    pub(crate) encoded: Vec<Variant>,
    /// What can be made of it besides.
    pub(crate) on_demand: Option<Box<OnDemand>>,
}

impl FoundFile {
    /// Variant 0 is the identity; those made on demand come after those that files have.
    #[inline]
    pub(crate) fn variant(&self, index: usize) -> Option<&Variant> {
        let Some(index) = index.checked_sub(1) else { return Some(&self.identity) };
        match index.checked_sub(self.encoded.len()) {
            None => self.encoded.get(index),
            Some(place) => self.on_demand.as_ref()?.variant(place),
        }
    }

    /// The number of the variant that is made on demand for this place.
    pub(crate) fn made_index(&self, place: usize) -> usize {
        1 + self.encoded.len() + place
    }

    /// The variants that files have.
    pub(crate) fn variants(&self) -> impl Iterator<Item = &Variant> + Clone {
        std::iter::once(&self.identity).chain(&self.encoded)
    }
}

impl Entry {
    /// An entry that is not fresh until [`freshen`](Entry::freshen) says so.
    pub(crate) fn new(key: EntryKey, what: EntryKind, header_rules: Box<[u16]>) -> Entry {
        let is_on_disk = match &what {
            EntryKind::Found(found) => found.variants().any(|variant| variant.file.is_some()),
            _ => false,
        };
        let fresh_until_ms = AtomicU64::new(1);
        let (guard, made_bytes) = (None, AtomicU64::new(0));
        Entry { key, what, header_rules, guard, is_on_disk, fresh_until_ms, made_bytes }
    }

    /// The same with rules about clients.
    pub(crate) fn guarded(self, guard: Option<Box<Guard>>) -> Entry {
        Entry { guard, ..self }
    }

    /// Whether every open file is still what its head says. One system call for each.
    pub(crate) fn is_intact(&self) -> bool {
        match &self.what {
            EntryKind::Found(found) => found.variants().all(Variant::is_intact),
            _ => true,
        }
    }

    #[inline]
    pub(crate) fn is_fresh(&self, now_ms: u64) -> bool {
        // Relaxed: a hit needs no order with other memory; the bytes never change.
        now_ms < self.fresh_until_ms.load(Relaxed)
    }

    /// Marks it dead; whether it was alive.
    pub(crate) fn kill(&self) -> bool {
        self.fresh_until_ms.swap(DEAD, Relaxed) != DEAD
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.fresh_until_ms.load(Relaxed) == DEAD
    }

    /// Lets it be answered with until `until_ms`, unless it is dead.
    pub(crate) fn freshen(&self, until_ms: u64) {
        let alive = |old| (old != DEAD).then_some(until_ms.max(1));
        // Err only says that it is dead, which is what must stay so.
        let _ = self.fresh_until_ms.fetch_update(Relaxed, Relaxed, alive);
    }

    /// What it costs to keep, in bytes; an open file costs `file_bytes`.
    pub(crate) fn weight(&self, file_bytes: u64) -> u64 {
        // the path stands in the graph of directories once more
        let mut weight =
            OVERHEAD_BYTES + 2 * (self.key.path.len() + self.header_rules.len()) as u64;
        weight += self.made_bytes.load(Relaxed);
        match &self.what {
            EntryKind::Found(found) => {
                for variant in found.variants() {
                    weight += variant.weight();
                    weight += variant.file.as_ref().map_or(0, |file| file_bytes + file.weight());
                }
            }
            EntryKind::Alias(alias) => weight += alias.0.len() as u64,
            EntryKind::Redirect(redirection) => weight += 512 + redirection.head.len() as u64,
            EntryKind::Page(page) => weight += page.bytes() as u64,
            EntryKind::Script(script) => {
                weight += (script.name.len() + script.path_info.len()) as u64
            }
            EntryKind::Work | EntryKind::Missing | EntryKind::Denied | EntryKind::Failed(_) => {}
        }
        weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
