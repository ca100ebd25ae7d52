//! Making one answer from the file system: the file at the path, the way it is read, the time it
//! holds.

use crate::bodies::compress::OnDemand;
use crate::bodies::disk::DiskFile;
use crate::bodies::memory_budget::MemoryReservation;
use crate::bodies::piped::Piped;
use crate::bodies::read::FileAt;
use crate::bodies::variant::{Variant, is_kept};
use crate::cache::entry::{DEAD, Entry, EntryKind, FoundFile};
use crate::cache::entry_key::{EntryKey, KeyRef, OutcomeKey};
use crate::cache::listing_format::ListingFormat;
use crate::content::{AnswerBuilder, Content};
use crate::heads::entity_tag::{ContentHash, EntityTag, Validator};
use crate::heads::fields::HeaderRuleSet;
use crate::heads::media_types::content_type;
use crate::making::bake::{BodyAt, CommonHead, Heads};
use crate::making::listing::Listing;
use crate::making::look::{Look, Lookup, PathContents, Resolution, Trouble};
use crate::vhost::VirtualHost;
use forebay_http::coding::Coding;
use forebay_metrics::{Activity, Stopwatch};
use forebay_sys::file::{self, FileKind, Stamp};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The number of check intervals after which a file is looked at again although its changes are
/// reported. Some changes are not: through a name that was made or removed elsewhere later, a
/// mapping of the file, a file system mounted over a directory.
const TOLD_INTERVALS: u64 = 10;

/// The number of attempts to read a file that changes meanwhile. Then it is sent from the disk with
/// a check of every chunk.
const ATTEMPTS: u32 = 3;

/// The wishes of a request besides its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    /// The format of a list.
    pub(crate) shape: ListingFormat,
    /// Whether the whole file is wanted: neither a part nor only its head, and without conditions.
    pub(crate) wants_all: bool,
    /// The time at which the request came, in the loops' milliseconds: the answer must be as fresh
    /// as that.
    pub(crate) asked_ms: u64,
}

/// The answer to a path of a client; if that is an alias, the answer it leads to; and the body of
/// either, if it was read for this request alone.
pub(crate) struct Loaded {
    pub(crate) entry: Arc<Entry>,
    pub(crate) inner: Option<Arc<Entry>>,
    pub(crate) piped: Option<Box<Piped>>,
}

/// The answer for `key`. May block.
pub(crate) fn load(
    content: &Content,
    key: &EntryKey,
    want: Want,
    watch: &mut dyn Stopwatch,
) -> Loaded {
    let mut piped = None;
    let is_kept = keeps(content, key);
    let entry = load_one(content, key, want, is_kept, &mut piped, watch);
    let inner = match &entry.what {
        EntryKind::Alias(alias) => {
            let mut path = Vec::new();
            alias.push_key(|| want.shape, &mut path);
            let key = EntryKey { site: key.site, path: path.into() };
            Some(load_one(content, &key, want, is_kept, &mut piped, watch))
        }
        _ => None,
    };
    Loaded { entry, inner, piped }
}

/// Whether an answer is kept: all are, but for those to one of too many outcomes.
fn keeps(content: &Content, key: &EntryKey) -> bool {
    let Some(OutcomeKey { outcome, path }) = OutcomeKey::of(&key.path) else { return true };
    let entry = content.cached(KeyRef { site: key.site, path });
    match entry.as_deref().map(|entry| &entry.what) {
        Some(EntryKind::Conditional(path)) => path.keeps(outcome),
        _ => false,
    }
}

fn load_one(
    content: &Content,
    key: &EntryKey,
    want: Want,
    is_kept: bool,
    piped: &mut Option<Box<Piped>>,
    watch: &mut dyn Stopwatch,
) -> Arc<Entry> {
    let Want { wants_all, asked_ms, .. } = want;
    let known = content.cached(key.asked());
    if let Some(entry) = known.as_ref().filter(|entry| entry.is_fresh(asked_ms)) {
        return Arc::clone(entry);
    }
    let Some(vhost) = content.vhosts.get(key.site as usize) else {
        return failed(key);
    };
    let order = Lookup::of(vhost, &key.path);
    if let Some(what) = order.without_files(vhost) {
        let guard = order.guard(vhost, None);
        let entry = Entry::new(key.clone(), what, order.header_rules).guarded(guard);
        let entry = Arc::new(entry);
        match is_kept {
            true => content.keep(&entry),
            false => _ = entry.kill(),
        }
        return entry;
    }
    for attempt in 1..=ATTEMPTS {
        let Some(mut builder) = content.builder(key.site) else { break };
        let seen = Look { vhost, order: &order, builder: &mut builder, watch }.see();
        let guard = order.guard(vhost, Some(&seen));
        let is_same = |known: &&Arc<Entry>| seen.is(known) && known.guard == guard;
        if let Some(known) = known.as_ref().filter(is_same) {
            let until_ms = until(content, &builder, known, asked_ms);
            builder.settle(known, until_ms, false);
            return Arc::clone(known);
        }
        // an answer that is not kept is sent from the disk
        let is_last = attempt == ATTEMPTS || (!is_kept && content.store.is_on());
        let header_rules = vhost.header_rules_with(&order.header_rules, guard.as_deref());
        let mut reader = EntryReader {
            content,
            vhost,
            order: &order,
            header_rules: vhost.header_rules(&header_rules),
            builder: &builder,
            is_last,
            wants_all,
            is_crowded: false,
            is_appended: false,
            piped: None,
            watch,
        };
        let Some(what) = reader.make(seen) else { continue };
        *piped = reader.piped.take();
        // such an answer is not kept: when there is memory again, the next request shall find the
        // file there
        let is_passing = is_last || reader.is_crowded || piped.is_some();
        let entry = Entry::new(key.clone(), what, header_rules).guarded(guard);
        let entry = Arc::new(entry);
        let is_kept = !is_passing && !matches!(entry.what, EntryKind::Failed(_));
        let until_ms = if is_kept { until(content, &builder, &entry, asked_ms) } else { DEAD };
        builder.settle(&entry, until_ms, true);
        return entry;
    }
    failed(key)
}

fn failed(key: &EntryKey) -> Arc<Entry> {
    let entry = Entry::new(key.clone(), EntryKind::Failed(503), Box::default());
    entry.kill();
    Arc::new(entry)
}

/// A reader of the file that was seen.
struct EntryReader<'r> {
    content: &'r Content,
    vhost: &'r VirtualHost,
    order: &'r Lookup,
    /// The header rules for the answer.
    header_rules: HeaderRuleSet<'r>,
    builder: &'r AnswerBuilder<'r>,
    /// Whether a file that changes again may be sent from the disk.
    is_last: bool,
    /// Whether the body may be read for one answer.
    wants_all: bool,
    /// Whether a file is sent from the disk because the memory budget is used up.
    is_crowded: bool,
    /// Whether the file only grows.
    is_appended: bool,
    /// The body, if it was read for one answer.
    piped: Option<Box<Piped>>,
    watch: &'r mut dyn Stopwatch,
}

impl EntryReader<'_> {
    /// The answer made of what is at the path; `None` if that changed meanwhile.
    fn make(&mut self, seen: PathContents) -> Option<EntryKind> {
        let outcome = match seen.outcome {
            Resolution::Found => match self.found(&seen.files) {
                Ok(found) => return Some(EntryKind::Found(found)),
                Err(Trouble::Changed) => return None,
                Err(trouble) => self.order.instead(self.vhost, Resolution::of(&trouble)),
            },
            Resolution::Listed(path) => match self.list(&path) {
                Ok(found) => return Some(EntryKind::Found(found)),
                Err(trouble) => Resolution::of(&trouble),
            },
            outcome => outcome,
        };
        Some(self.order.what(self.vhost, outcome))
    }

    fn found(&mut self, files: &[(Coding, Vec<u8>, Stamp)]) -> Result<FoundFile, Trouble> {
        let Some(((coding, path, stamp), siblings)) = files.split_first() else {
            return Err(Trouble::Gone);
        };
        self.is_appended = self.vhost.settings.grows(path);
        let content_type = content_type(&self.vhost.settings.types, path);
        let present: Vec<Coding> = files.iter().map(|(coding, ..)| *coding).collect();
        let on_demand = match coding {
            Coding::Identity => self.on_demand(&present, &content_type, stamp.size),
            // never compressed twice
            _ => None,
        };
        let common = CommonHead {
            status: self.order.status,
            is_server_named: self.vhost.pages.is_server_named,
            cache_control: self.vhost.settings.cache_control.as_deref(),
            content_type: &content_type,
            vary: (!siblings.is_empty() || on_demand.is_some()).then_some("Accept-Encoding"),
            header_rules: self.header_rules,
            now_ns: now_ns(),
        };
        let identity = self.variant(&common, *coding, path, stamp)?;
        let mut encoded = Vec::with_capacity(siblings.len());
        for (coding, path, stamp) in siblings {
            match self.variant(&common, *coding, path, stamp) {
                Ok(variant) => encoded.push(variant),
                Err(Trouble::Changed) => return Err(Trouble::Changed),
                // A form that cannot be read is left out; its original still answers.
                Err(_) => {}
            }
        }
        // an answer that is not kept would be compressed for each request anew
        let on_demand = on_demand.filter(|_| !self.is_last && !self.is_crowded);
        let status = self.order.status;
        Ok(FoundFile { status, is_file: status == 200, identity, encoded, on_demand })
    }

    fn list(&mut self, directory: &[u8]) -> Result<FoundFile, Trouble> {
        let vhost = self.vhost;
        let shape = self.order.shape();
        let (root, inside) = self.builder.locate(directory).ok_or(Trouble::Gone)?;
        let listing = Listing::read(root, inside, vhost, directory, shape.order);
        self.watch.lap(Activity::Load);
        let listing = listing.map_err(|error| Trouble::from(&error))?;
        let (content_type, body) = match shape.is_json {
            true => ("application/json", listing.json()),
            false => ("text/html; charset=utf-8", listing.html()),
        };
        let on_demand = self.on_demand(&[], content_type, body.len() as u64);
        let common = CommonHead {
            status: 200,
            is_server_named: vhost.pages.is_server_named,
            cache_control: vhost.settings.cache_control.as_deref(),
            content_type,
            vary: Some(if on_demand.is_some() { "Accept, Accept-Encoding" } else { "Accept" }),
            header_rules: self.header_rules,
            now_ns: now_ns(),
        };
        Ok(FoundFile { on_demand, ..common.found(body.into_bytes()) })
    }

    /// The codings that the files do not have. Without a cache there are none, as each request
    /// would compress anew.
    fn on_demand(
        &self,
        present: &[Coding],
        content_type: &str,
        bytes: u64,
    ) -> Option<Box<OnDemand>> {
        let Content { store, settings, .. } = self.content;
        if !store.is_on() {
            return None;
        }
        let site = &self.vhost.settings;
        let on_demand = OnDemand::new(&site.compress, present, content_type, bytes)?;
        if bytes > site.compress_bytes.min(settings.cache.bytes / 16) {
            self.content.count_uncompressed();
            return None;
        }
        Some(Box::new(on_demand))
    }

    fn variant(
        &mut self,
        common: &CommonHead<'_>,
        coding: Coding,
        path: &[u8],
        seen: &Stamp,
    ) -> Result<Variant, Trouble> {
        let (root, inside) = self.builder.locate(path).ok_or(Trouble::Gone)?;
        let file = file::open_beneath(root.directory.as_fd(), inside);
        self.watch.lap(Activity::Open);
        let file = file.map_err(|error| Trouble::from(&error))?;
        if self.is_last || seen.size > self.most_in_memory() {
            return self.on_disk(common, coding, file);
        }
        let Some(reservation) = self.content.memory_budget.take(seen.size) else {
            self.is_crowded = true;
            return self.on_disk(common, coding, file);
        };
        self.in_memory(common, coding, &file, seen, reservation)
    }

    /// Reads a file for the cache, or for one answer.
    fn in_memory(
        &mut self,
        common: &CommonHead<'_>,
        coding: Coding,
        file: &OwnedFd,
        seen: &Stamp,
        reservation: MemoryReservation,
    ) -> Result<Variant, Trouble> {
        let Content { page_cache, memory_budget, known_hashes, pipes, .. } = self.content;
        let hashes = self.hashes(common, seen);
        let known = if hashes { known_hashes.get(seen) } else { None };
        let is_plain = coding == Coding::Identity && common.status == 200 && common.vary.is_none();
        // this process does not see the bytes in a pipe
        let may_pipe = self.wants_all && is_plain && (known.is_some() || !hashes);
        let pipes = may_pipe.then_some(pipes);
        let room = common.room(coding, seen);
        let spare = memory_budget.spare();
        let read = page_cache.read(file, seen, room, spare, pipes, self.is_appended);
        // it shows, too, whether what was opened is what was seen
        let after = file::stamp(file.as_fd());
        self.watch.lap(Activity::Load);
        let after = after.map_err(|error| Trouble::from(&error))?;
        if !is_kept(seen, &after, self.is_appended) {
            return Err(Trouble::Changed);
        }
        let read = read.map_err(|error| Trouble::from(&error))?;
        match read.ok_or(Trouble::Changed)? {
            FileAt::Memory { ready, start } => {
                let body = ready.get(start..).and_then(|body| body.get(..seen.size as usize));
                let hash = body.filter(|_| hashes).map(ContentHash::of);
                self.watch.lap(Activity::Compute);
                hash.inspect(|hash| known_hashes.learn(seen, *hash));
                let heads = self.heads(common, coding, seen, hash).before(ready, start);
                let heads = heads.ok_or(Trouble::Changed)?;
                Ok(heads.variant(coding, seen, BodyAt::Memory(reservation)))
            }
            FileAt::Pipe(filled) => {
                self.piped = Some(Box::new(Piped { filled, _reservation: reservation }));
                let heads = self.heads(common, coding, seen, known);
                Ok(heads.variant(coding, seen, BodyAt::Nowhere))
            }
        }
    }

    /// An answer with a file that is sent from the disk.
    fn on_disk(
        &mut self,
        common: &CommonHead<'_>,
        coding: Coding,
        file: OwnedFd,
    ) -> Result<Variant, Trouble> {
        let stamp = file::stamp(file.as_fd());
        self.watch.lap(Activity::Stat);
        let stamp = stamp.map_err(|error| Trouble::from(&error))?;
        if stamp.kind != FileKind::Regular {
            return Err(Trouble::Gone);
        }
        let heads = match self.hashes(common, &stamp) {
            false => self.heads(common, coding, &stamp, None),
            true => match self.hash(&file, &stamp)? {
                Some(hash) => self.heads(common, coding, &stamp, Some(hash)),
                None if !self.is_last => return Err(Trouble::Changed),
                None => {
                    let tag = EntityTag::of_moment(coding, &stamp, common.now_ns);
                    common.heads(coding, &stamp, tag)
                }
            },
        };
        let file = DiskFile::new(file, stamp.size, self.is_appended);
        Ok(heads.variant(coding, &stamp, BodyAt::Disk(file)))
    }

    /// Whether a file gets a tag of its bytes.
    fn hashes(&self, common: &CommonHead<'_>, stamp: &Stamp) -> bool {
        let file_bytes = self.content.settings.cache.file_bytes;
        common.status == 200 && self.vhost.settings.etag.is_of_content(stamp.size, file_bytes)
    }

    /// The hash of a file that is not read otherwise; `None` if it changed meanwhile.
    fn hash(&mut self, file: &OwnedFd, stamp: &Stamp) -> Result<Option<ContentHash>, Trouble> {
        let known_hashes = &self.content.known_hashes;
        if let Some(hash) = known_hashes.get(stamp) {
            return Ok(Some(hash));
        }
        let hash = ContentHash::read(file, stamp.size);
        let after = file::stamp(file.as_fd());
        self.watch.lap(Activity::Load);
        let after = after.map_err(|error| Trouble::from(&error))?;
        let hash = hash.map_err(|error| Trouble::from(&error))?;
        let hash = hash.filter(|_| is_kept(stamp, &after, self.is_appended));
        hash.inspect(|hash| known_hashes.learn(stamp, *hash));
        Ok(hash)
    }

    /// The heads of a file with this stamp, and with this content if the tag depends on it.
    fn heads(
        &self,
        common: &CommonHead<'_>,
        coding: Coding,
        stamp: &Stamp,
        hash: Option<ContentHash>,
    ) -> Heads {
        let validator = hash.map_or(Validator::Stat, Validator::Content);
        let mode = self.vhost.settings.etag;
        let tag = EntityTag::of_file(validator, coding, stamp, mode, common.now_ns);
        common.heads(coding, stamp, tag)
    }

    fn most_in_memory(&self) -> u64 {
        let cache = &self.content.settings.cache;
        if cache.bytes == 0 { cache.file_bytes } else { cache.file_bytes.min(cache.bytes / 16) }
    }
}

/// Whether a file could be written through a name in a directory that is not watched.
fn has_other_names(what: &EntryKind) -> bool {
    match what {
        EntryKind::Found(found) => found.variants().any(|variant| variant.stamp.links > 1),
        _ => false,
    }
}

/// The end of the time in which the entry may be answered with.
fn until(content: &Content, builder: &AnswerBuilder<'_>, entry: &Entry, asked_ms: u64) -> u64 {
    let interval = content.settings.cache.check_interval.as_millis();
    let interval_ms = u64::try_from(interval).unwrap_or(u64::MAX);
    let told = builder.is_told() && !has_other_names(&entry.what);
    // a change of a file's size is not reported to what watches its directory
    let is_list =
        matches!(&entry.what, EntryKind::Found(found) if !found.is_file && found.status == 200);
    let looks = if told && !is_list { TOLD_INTERVALS } else { 1 };
    let until_ms = asked_ms.saturating_add(interval_ms.saturating_mul(looks));
    until_ms.min(strong_at_ms(&entry.what, asked_ms))
}

/// The time at which all tags can be strong.
fn strong_at_ms(what: &EntryKind, asked_ms: u64) -> u64 {
    let EntryKind::Found(found) = what else { return u64::MAX };
    let young_until = found.variants().filter_map(|variant| variant.tag.young_until_ns);
    let Some(last_ns) = young_until.max() else { return u64::MAX };
    let left_ns = last_ns.saturating_sub(now_ns()).max(0);
    asked_ms.saturating_add(u64::try_from(left_ns / 1_000_000).unwrap_or(0) + 1)
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
