//! One cached answer: everything about one normalised path.

use crate::access::guard::Guard;
use crate::bodies::compress::OnDemand;
use crate::bodies::variant::Variant;
use crate::cache::entry_key::{AliasKey, EntryKey, OutcomeKey};
use crate::heads::pages::Page;
use crate::routing::redirection::Redirection;
use crate::rules::ConditionBits;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The memory that an entry costs besides its bytes: itself, its key, its place in the cache, and
/// the names under which changes find it. An estimate.
const OVERHEAD_BYTES: u64 = 1024;

/// A function that is called before the cache drops an answer which is kept elsewhere. It may be called
/// more than once, and from any thread, under locks of the cache: it must not call the cache.
pub type LetGo = Arc<dyn Fn() + Send + Sync>;

/// Everything about one path.
pub(crate) struct Entry {
    pub(crate) key: EntryKey,
    pub(crate) what: EntryKind,
    /// The header rules of the site that are for this path, by number.
    pub(crate) header_rules: Box<[u16]>,
    /// The rules about clients that are for this path.
    pub(crate) guard: Option<Box<Guard>>,
    /// Whether a body is sent from an open file.
    pub(crate) is_on_disk: bool,
    /// The end of the entry's freshness, in the loops' milliseconds: [`DEAD`] or an instant. Then
    /// its files are looked at again.
    fresh_until_ms: AtomicU64,
    /// The bytes of the variants made since the entry was put into the store. Changed by the store
    /// only.
    pub(crate) made_bytes: AtomicU64,
    /// The mark of the registration by which changes find the entry; set when the registration is
    /// void.
    registration: Mutex<Weak<AtomicBool>>,
    /// How often the entry was found in the shared cache since its files were last checked.
    shared_hits: AtomicU32,
    /// The functions called before the entry dies, which make keepers elsewhere drop its answer.
    let_go: Mutex<Vec<LetGo>>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.key)
            .field("what", &self.what)
            .finish_non_exhaustive()
    }
}

/// The number of hits in the shared cache from which an entry counts as asked for again and again.
const HOT_HITS: u32 = 2;
/// The number of hits after which such an entry is reported again.
const SAY_EVERY: u32 = 64;

/// The freshness of an entry whose files changed, or that was evicted.
pub(crate) const DEAD: u64 = 0;

/// The kinds of things at a path.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most entries are files, and a hit follows no pointer"
)]
pub(crate) enum EntryKind {
    /// A file, or what was made like one.
    Found(FoundFile),
    /// An answer that other paths have too.
    Alias(AliasKey),
    /// An answer that depends on conditions.
    Conditional(ConditionalPath),
    /// Work that the query asks for.
    Work,
    /// A file that an application runs.
    Script(Arc<Script>),
    /// A redirect to another address.
    Redirect(Redirection),
    /// A path at which nothing is served. 404.
    Missing,
    /// A file that may not be read. 403.
    Denied,
    /// An error that is not like those of other paths.
    Page(Box<Page>),
    /// The file system failed with this status; never cached.
    Failed(u16),
}

/// The largest number of outcomes of the conditions of one path that are kept. Others are answered
/// all the same.
const MOST_OUTCOMES: usize = 32;

/// A path whose answer depends on conditions: there is one for each outcome, under a key of its own.
#[derive(Debug)]
pub(crate) struct ConditionalPath {
    /// The conditions that matter here.
    relevant: ConditionBits,
    /// The outcomes of which answers are kept.
    kept: Mutex<Vec<ConditionBits>>,
}

impl ConditionalPath {
    pub(crate) fn new(relevant: ConditionBits) -> ConditionalPath {
        ConditionalPath { relevant, kept: Mutex::default() }
    }

    /// Appends the key of the answer to a request of which this holds.
    #[inline]
    pub(crate) fn push_key(&self, path: &[u8], outcome: ConditionBits, key: &mut Vec<u8>) {
        OutcomeKey { outcome: outcome.about(self.relevant), path }.push(key);
    }

    /// Whether the answer for an outcome is kept. Clients choose the conditions that hold for their
    /// requests, and must not be able to fill the cache with them.
    pub(crate) fn keeps(&self, outcome: ConditionBits) -> bool {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !kept.contains(&outcome);
        if is_new && kept.len() < MOST_OUTCOMES {
            kept.push(outcome);
            return true;
        }
        !is_new
    }
}

/// A file that is run by an application instead of being sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The route, by its place in [`SiteSettings::routes`](crate::SiteSettings::routes).
    pub(crate) route: u32,
    /// The path of the file in the site, decoded.
    pub name: Box<[u8]>,
    /// The part of the path that was asked for behind the file; empty, or begins with a slash.
    pub path_info: Box<[u8]>,
    /// The file's place in the file system, if an alias has it.
    pub file: Option<Box<[u8]>>,
}

/// A file and its precompressed siblings.
#[derive(Debug)]
pub(crate) struct FoundFile {
    /// 200, or the status of an error.
    pub(crate) status: u16,
    /// Whether it is one file, which can be asked for in part or only if it changed.
    pub(crate) is_file: bool,
    /// The file itself; in a coding only if its name says so.
    pub(crate) identity: Variant,
    pub(crate) encoded: Vec<Variant>,
    /// The variants that can be made of the file besides.
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
    /// An entry that is not fresh until [`freshen`](Entry::freshen) is called.
    pub(crate) fn new(key: EntryKey, what: EntryKind, header_rules: Box<[u16]>) -> Entry {
        let is_on_disk = match &what {
            EntryKind::Found(found) => found.variants().any(|variant| variant.file.is_some()),
            _ => false,
        };
        let fresh_until_ms = AtomicU64::new(1);
        let (guard, made_bytes, registration) = (None, AtomicU64::new(0), Mutex::default());
        let (shared_hits, let_go) = (AtomicU32::new(0), Mutex::default());
        Entry {
            key,
            what,
            header_rules,
            guard,
            is_on_disk,
            fresh_until_ms,
            made_bytes,
            registration,
            shared_hits,
            let_go,
        }
    }

    /// The same with rules about clients.
    pub(crate) fn guarded(self, guard: Option<Box<Guard>>) -> Entry {
        Entry { guard, ..self }
    }

    /// Notes the mark of the entry's new registration. The registration before becomes void: it
    /// would stay as long as the entry does, however often that is looked at again.
    pub(crate) fn is_registered_by(&self, mark: &Arc<AtomicBool>) {
        let mut last = self.registration.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *last, Arc::downgrade(mark));
        if let Some(before) = before.upgrade() {
            before.store(true, Relaxed);
        }
    }

    /// Whether every open file is still what its head says. One system call for each.
    pub(crate) fn is_current(&self) -> bool {
        match &self.what {
            EntryKind::Found(found) => found.variants().all(Variant::is_current),
            _ => true,
        }
    }

    #[inline]
    pub(crate) fn is_fresh(&self, now_ms: u64) -> bool {
        // Relaxed: a hit needs no order with other memory; the bytes never change.
        now_ms < self.fresh_until_ms.load(Relaxed)
    }

    /// Marks the entry dead. Returns whether it was alive. Before that, keepers such as the kernel drop
    /// its answer.
    pub(crate) fn kill(&self) -> bool {
        self.is_let_go();
        let was_alive = self.fresh_until_ms.swap(DEAD, Relaxed) != DEAD;
        // a keeper may have begun to keep the answer between the first call and the swap
        self.is_let_go();
        was_alive
    }

    /// Has every keeper elsewhere drop the answer.
    fn is_let_go(&self) {
        // a copy: the functions take locks of their own, under which other threads may call the next
        // method
        let called = self.let_go.lock().unwrap_or_else(PoisonError::into_inner).clone();
        called.iter().for_each(|let_go| let_go());
    }

    /// Has `let_go` called before the entry dies, for a keeper that gives its answer elsewhere. The
    /// keeper must check afterwards whether the entry is [dead](Entry::is_dead): the lock orders the two.
    pub(crate) fn keep_elsewhere(&self, let_go: &LetGo) {
        self.let_go.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(let_go));
    }

    /// Ends the calls of this `let_go`: its keeper does not give the answer any more.
    pub(crate) fn release(&self, let_go: &LetGo) {
        let mut called = self.let_go.lock().unwrap_or_else(PoisonError::into_inner);
        called.retain(|one| !Arc::ptr_eq(one, let_go));
    }

    /// Counts a hit in the shared cache. Returns, now and then, whether hits occur again and again.
    pub(crate) fn is_hot(&self) -> bool {
        let hits = self.shared_hits.fetch_add(1, Relaxed) + 1;
        hits == HOT_HITS || hits.is_multiple_of(SAY_EVERY)
    }

    /// The time until which the entry may be used for answers; [`DEAD`] if not any more.
    pub(crate) fn fresh_until_ms(&self) -> u64 {
        self.fresh_until_ms.load(Relaxed)
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.fresh_until_ms.load(Relaxed) == DEAD
    }

    /// Makes the entry fresh until `until_ms`, unless it is dead.
    pub(crate) fn freshen(&self, until_ms: u64) {
        let alive = |old| (old != DEAD).then_some(until_ms.max(1));
        self.shared_hits.store(0, Relaxed);
        // Err only means that the entry is dead, which must stay so.
        let _ = self.fresh_until_ms.fetch_update(Relaxed, Relaxed, alive);
    }

    /// The memory that keeping the entry costs, in bytes; an open file costs `file_bytes`.
    pub(crate) fn weight(&self, file_bytes: u64) -> u64 {
        // the path is in the graph of directories once more
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
            EntryKind::Alias(alias) => weight += alias.bytes() as u64,
            EntryKind::Conditional(_) => weight += 8 * MOST_OUTCOMES as u64,
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
