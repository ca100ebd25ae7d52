//! One cached answer: everything about one normalised path.

use crate::compress::OnDemand;
use crate::disk::DiskFile;
use crate::guard::Guard;
use crate::listing::ListingFormat;
use crate::memory_budget::MemoryReservation;
use crate::pages::Page;
use forebay_http::coding::Coding;
use forebay_sys::file::{self, Stamp};
use std::hash::{Hash, Hasher};
use std::os::fd::AsFd;
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
    pub(crate) what: What,
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
pub(crate) enum What {
    /// A file, or what was made like one.
    Found(Found),
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

/// A redirect.
#[derive(Debug)]
pub(crate) struct Redirection {
    pub(crate) status: u16,
    /// Whether it only adds the slash of a directory.
    pub(crate) is_for_slash: bool,
    /// Up to `Location`.
    pub(crate) head: Box<[u8]>,
    /// The value of `Location`.
    pub(crate) to: Box<[LocationPart]>,
}

/// A part of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LocationPart {
    Text(Box<[u8]>),
    /// The host that was asked for.
    Host,
    /// The path that was asked for.
    Path,
    /// The client's query with its question mark.
    Query,
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
pub(crate) struct Found {
    /// 200, or that of an error.
    pub(crate) status: u16,
    /// Whether it is one file, which can be asked for in part or only if it changed.
    pub(crate) is_file: bool,
    pub(crate) identity: Variant,
    pub(crate) encoded: Vec<Variant>,
    /// What can be made of it besides.
    pub(crate) on_demand: Option<Box<OnDemand>>,
}

impl Found {
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

/// The answer in one content coding.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) coding: Coding,
    /// The file as it was when the head was written.
    pub(crate) stamp: Stamp,
    /// Bytes of the body.
    pub(crate) size: u64,
    /// Seconds since 1970, as the head says.
    pub(crate) last_modified: u64,
    pub(crate) etag: Box<[u8]>,
    /// The head of a 304.
    pub(crate) not_modified: Box<[u8]>,
    /// Where the parts of the 200 head end.
    pub(crate) layout: Layout,
    /// The 200 head, the same as a block of HTTP/2, and where [`Layout::body_start`] says the body, unless
    /// there is a `file`.
    pub(crate) ready: Box<[u8]>,
    /// The open file, if it is too large for memory, or if the memory budget was used up.
    pub(crate) file: Option<DiskFile>,
    /// Its body's part of the memory budget, if that was read from a file.
    pub(crate) reservation: Option<Box<MemoryReservation>>,
}

/// Where the parts of a 200 head end: status line, `Content-Type`, fields that a 206 has too,
/// `Content-Length`, and the block; and where the body begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) status_end: usize,
    pub(crate) type_end: usize,
    pub(crate) fields_end: usize,
    pub(crate) head_end: usize,
    pub(crate) block_end: usize,
    /// At the end of the block, or a little behind it where the kernel wants it.
    pub(crate) body_start: usize,
}

impl Drop for Variant {
    fn drop(&mut self) {
        if let Some(reservation) = &self.reservation {
            reservation.vacate(std::mem::take(&mut self.ready).into_vec());
        }
    }
}

impl Variant {
    /// The head of a 200.
    #[inline]
    pub(crate) fn head(&self) -> &[u8] {
        &self.ready[..self.layout.head_end]
    }

    /// The same as a block of HTTP/2.
    #[inline]
    pub(crate) fn block(&self) -> &[u8] {
        &self.ready[self.layout.head_end..self.layout.block_end]
    }

    /// The line `Content-Type`.
    pub(crate) fn type_line(&self) -> &[u8] {
        &self.ready[self.layout.status_end..self.layout.type_end]
    }

    /// The fields that a 206 has too.
    pub(crate) fn fields(&self) -> &[u8] {
        &self.ready[self.layout.type_end..self.layout.fields_end]
    }

    /// The body, if it is in memory.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&[u8]> {
        match self.file {
            None => self.ready.get(self.layout.body_start..)?.get(..self.size as usize),
            Some(_) => None,
        }
    }

    /// Whether the open file is still the one the head was written for. True without a system call
    /// if the body is in memory.
    pub(crate) fn is_intact(&self) -> bool {
        let Some(file) = &self.file else { return true };
        let stamp = || file::stamp_known(file.as_fd());
        let is_same = || stamp().is_ok_and(|now| is_unchanged(&self.stamp, &now));
        // The kernel reads the number of names first and the time of change later, without a lock: a
        // look in the middle of a removal may find the one of before it and the other of after it.
        is_same() || is_same()
    }

    /// The body, read from its file; `None` if that fails or the file has changed. May block.
    pub(crate) fn read_whole(&self) -> Option<Vec<u8>> {
        let file = self.file.as_ref()?;
        let mut body = vec![0; usize::try_from(self.size).ok()?];
        let mut done = 0;
        while done < body.len() {
            match file::read_at(file.as_fd(), &mut body[done..], done as u64) {
                Ok(0) | Err(_) => return None,
                Ok(count) => done += count,
            }
        }
        self.is_intact().then_some(body)
    }

    /// What its heads and its body in memory cost to keep, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        (self.ready.len() + self.not_modified.len()) as u64
    }

    pub(crate) fn is_weak(&self) -> bool {
        self.etag.starts_with(b"W/")
    }
}

impl Entry {
    /// An entry that is not fresh until [`freshen`](Entry::freshen) says so.
    pub(crate) fn new(key: EntryKey, what: What, header_rules: Box<[u16]>) -> Entry {
        let is_on_disk = match &what {
            What::Found(found) => found.variants().any(|variant| variant.file.is_some()),
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
            What::Found(found) => found.variants().all(Variant::is_intact),
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
            What::Found(found) => {
                for variant in found.variants() {
                    weight += variant.weight();
                    weight += variant.file.as_ref().map_or(0, |file| file_bytes + file.weight());
                }
            }
            What::Alias(alias) => weight += alias.0.len() as u64,
            What::Redirect(redirection) => weight += 512 + redirection.head.len() as u64,
            What::Page(page) => weight += page.bytes() as u64,
            What::Script(script) => weight += (script.name.len() + script.path_info.len()) as u64,
            What::Work | What::Missing | What::Denied | What::Failed(_) => {}
        }
        weight
    }
}

/// Whether the content is the same. The time of the last change of attributes moves whenever
/// content does, but also when the file loses a name because it was removed or another was renamed
/// over it; then the content is still whole. A file that was opened while its last name was being
/// taken has none before and none after: ext4 counts the name first and sets the time later.
pub(crate) fn is_unchanged(before: &Stamp, after: &Stamp) -> bool {
    let lost_a_name = before.links != after.links || before.links == 0;
    (before.device, before.inode, before.size, before.mtime_ns)
        == (after.device, after.inode, after.size, after.mtime_ns)
        && (before.ctime_ns == after.ctime_ns || lost_a_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_loses_its_name_is_unchanged() {
        let stamp = |links, ctime_ns, mtime_ns| Stamp {
            kind: forebay_sys::file::FileKind::Regular,
            device: 1,
            inode: 2,
            links,
            size: 3,
            mtime_ns,
            ctime_ns,
        };
        let is_unchanged =
            |before, after| is_unchanged(&stamp(before, 10, 10), &stamp(after, 20, 10));
        assert!(is_unchanged(1, 0), "removed");
        assert!(is_unchanged(0, 0), "opened in the middle of its removal");
        assert!(!is_unchanged(1, 1), "written, and its time set back");
        assert!(!super::is_unchanged(&stamp(0, 10, 10), &stamp(0, 20, 20)), "written");
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
