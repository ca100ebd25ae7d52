//! Making one answer from the file system: what is at the path, how it is read, how long it holds.

use crate::bake::{self, Common, WEAK_NS};
use crate::compress::OnDemand;
use crate::content::{Claim, Content};
use crate::disk::DiskFile;
use crate::entry::{DEAD, Entry, Found, Key, Variant, What, is_unchanged};
use forebay_http::coding::Coding;
use forebay_metrics::{Activity, Stopwatch};
use forebay_sys::file::{self, Failure, Kind, Stamp};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Changes that nobody tells of are possible even where changes are told: through a name that was
/// made or removed elsewhere later, a mapping of the file, a file system mounted over a directory.
/// There a file is looked at again after so many intervals.
const TOLD_INTERVALS: u64 = 10;

/// How often a file that changes while it is read is tried, before it is sent from the disk with
/// a check of every chunk.
const ATTEMPTS: u32 = 3;

/// The answer for `key`, as fresh as a request at `asked_ms` needs. May block.
pub(crate) fn load(
    content: &Content,
    key: &Key,
    asked_ms: u64,
    watch: &mut dyn Stopwatch,
) -> Arc<Entry> {
    let known = content.cached(key.asked());
    if let Some(entry) = known.as_ref().filter(|entry| entry.is_fresh(asked_ms)) {
        return Arc::clone(entry);
    }
    for attempt in 1..=ATTEMPTS {
        let Some(mut claim) = content.claim(key.site) else { break };
        let seen = look(content, &mut claim, &key.path, watch);
        if let Some(known) = known.as_ref().filter(|known| seen.is(known)) {
            let until_ms = until(content, &claim, known, asked_ms);
            claim.settle(known, until_ms, false);
            return Arc::clone(known);
        }
        let mut reader = Reader { content, claim: &claim, is_last: attempt == ATTEMPTS, watch };
        let what = match reader.make(&seen, &key.path) {
            Ok(what) => what,
            Err(Trouble::Changed) => continue,
            Err(Trouble::Denied) => What::Denied,
            Err(Trouble::Gone) => What::Missing,
            Err(Trouble::Failed(status)) => What::Failed(status),
        };
        let entry = Arc::new(Entry::new(key.clone(), what));
        let is_kept = attempt < ATTEMPTS && !matches!(entry.what, What::Failed(_));
        let until_ms = if is_kept { until(content, &claim, &entry, asked_ms) } else { DEAD };
        claim.settle(&entry, until_ms, true);
        return entry;
    }
    let entry = Entry::new(key.clone(), What::Failed(503));
    entry.kill();
    Arc::new(entry)
}

/// What is at the path, by stamps alone.
struct Seen {
    outcome: Outcome,
    /// If a file was found: it, and its precompressed siblings.
    files: Vec<(Coding, Vec<u8>, Stamp)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Found,
    Redirect,
    Missing,
    Denied,
    Failed(u16),
}

impl Seen {
    fn none(outcome: Outcome) -> Seen {
        Seen { outcome, files: Vec::new() }
    }

    /// Whether this is what `entry` was made from.
    fn is(&self, entry: &Entry) -> bool {
        match (&entry.what, self.outcome) {
            (What::Found(found), Outcome::Found) => {
                let made = found.variants().map(|variant| (variant.coding, variant.stamp));
                made.eq(self.files.iter().map(|(coding, _, stamp)| (*coding, *stamp)))
                    && !found.variants().any(Variant::is_weak)
            }
            (What::Redirect(_), Outcome::Redirect) | (What::Missing, Outcome::Missing) => true,
            // A file that may not be read is found by its stamp, and refused when it is opened.
            _ => false,
        }
    }
}

fn look(content: &Content, claim: &mut Claim<'_>, path: &[u8], watch: &mut dyn Stopwatch) -> Seen {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let is_directory = path.is_empty() || path.ends_with(b"/");
    if !is_directory {
        let outcome = look_at(claim, path, watch);
        return outcome.map_or_else(Seen::none, |stamp| see(content, claim, path, stamp, watch));
    }
    for index in &content.settings.sites[0].index {
        let path = [path, index.as_bytes()].concat();
        match look_at(claim, &path, watch) {
            Ok(stamp) => return see(content, claim, &path, stamp, watch),
            Err(Outcome::Missing | Outcome::Redirect) => {}
            Err(outcome) => return Seen::none(outcome),
        }
    }
    Seen::none(Outcome::Missing)
}

/// The stamp of a regular file, else what the path is answered with.
fn look_at(
    claim: &mut Claim<'_>,
    path: &[u8],
    watch: &mut dyn Stopwatch,
) -> Result<Stamp, Outcome> {
    claim.follow(path);
    let found = file::find_beneath(claim.root.directory.as_fd(), path);
    watch.lap(Activity::Open);
    let stamp = found.and_then(|found| file::stamp(found.as_fd()));
    watch.lap(Activity::Stat);
    match stamp {
        Ok(stamp) => match stamp.kind {
            Kind::Regular => Ok(stamp),
            Kind::Directory => Err(Outcome::Redirect),
            // Devices, FIFOs and sockets are as good as not there.
            Kind::Link | Kind::Special => Err(Outcome::Missing),
        },
        Err(error) => Err(match Trouble::from(&error) {
            Trouble::Denied => Outcome::Denied,
            Trouble::Failed(status) => Outcome::Failed(status),
            Trouble::Gone | Trouble::Changed => Outcome::Missing,
        }),
    }
}

/// A file was found; looks for its precompressed siblings.
fn see(
    content: &Content,
    claim: &mut Claim<'_>,
    path: &[u8],
    stamp: Stamp,
    watch: &mut dyn Stopwatch,
) -> Seen {
    let mut files = vec![(Coding::Identity, path.to_vec(), stamp)];
    if content.settings.sites[0].precompressed {
        for coding in [Coding::Br, Coding::Zstd, Coding::Gzip] {
            let path = [path, coding.suffix().as_bytes()].concat();
            if let Ok(stamp) = look_at(claim, &path, watch) {
                files.push((coding, path, stamp));
            }
        }
    }
    Seen { outcome: Outcome::Found, files }
}

/// Why no answer could be made from what was seen.
enum Trouble {
    /// It changed while it was read.
    Changed,
    /// It is not there any more, or was never to be served.
    Gone,
    /// It may not be read.
    Denied,
    /// The file system failed; the status says whose fault that is.
    Failed(u16),
}

impl From<&io::Error> for Trouble {
    fn from(error: &io::Error) -> Trouble {
        match file::failure(error) {
            Failure::Nowhere => Trouble::Gone,
            Failure::Denied => Trouble::Denied,
            Failure::Shortage => Trouble::Failed(503),
            Failure::Broken => Trouble::Failed(500),
        }
    }
}

/// Reads what was seen.
struct Reader<'r> {
    content: &'r Content,
    claim: &'r Claim<'r>,
    /// Whether a file that changes again may be sent from the disk.
    is_last: bool,
    watch: &'r mut dyn Stopwatch,
}

impl Reader<'_> {
    fn make(&mut self, seen: &Seen, path: &[u8]) -> Result<What, Trouble> {
        let pages = &self.content.pages;
        match seen.outcome {
            Outcome::Found => self.found(&seen.files),
            Outcome::Redirect => {
                let body_bytes = pages.redirect.len();
                Ok(What::Redirect(bake::redirect(pages.server_line, path, body_bytes)))
            }
            Outcome::Missing => Err(Trouble::Gone),
            Outcome::Denied => Err(Trouble::Denied),
            Outcome::Failed(status) => Err(Trouble::Failed(status)),
        }
    }

    fn found(&mut self, files: &[(Coding, Vec<u8>, Stamp)]) -> Result<What, Trouble> {
        let Some(((_, path, _), siblings)) = files.split_first() else {
            return Err(Trouble::Gone);
        };
        let content_type = bake::content_type(path);
        let on_demand = self.on_demand(files, &content_type);
        let common = Common {
            constant: &self.content.pages.constant,
            content_type: &content_type,
            varies: !siblings.is_empty() || on_demand.is_some(),
            now_ns: now_ns(),
        };
        let identity = self.variant(&common, Coding::Identity, path)?;
        let mut encoded = Vec::with_capacity(siblings.len());
        for (coding, path, _) in siblings {
            match self.variant(&common, *coding, path) {
                Ok(variant) => encoded.push(variant),
                Err(Trouble::Changed) => return Err(Trouble::Changed),
                // One that cannot be read is left out; its original still answers.
                Err(_) => {}
            }
        }
        // what is sent from the disk stays as it is
        let on_demand = on_demand.filter(|_| identity.memory().is_some()).map(Box::new);
        Ok(What::Found(Found { identity, encoded, on_demand }))
    }

    /// Codings that the files do not have. Without a cache each request would compress anew, so
    /// there are none.
    fn on_demand(
        &self,
        files: &[(Coding, Vec<u8>, Stamp)],
        content_type: &str,
    ) -> Option<OnDemand> {
        let (_, _, stamp) = files.first()?;
        if !self.content.store.is_on() || stamp.size > self.most_in_memory() {
            return None;
        }
        let wanted = &self.content.settings.sites[0].compress;
        let present: Vec<Coding> = files.iter().map(|(coding, ..)| *coding).collect();
        OnDemand::new(wanted, &present, content_type, stamp.size)
    }

    fn variant(
        &mut self,
        common: &Common<'_>,
        coding: Coding,
        path: &[u8],
    ) -> Result<Variant, Trouble> {
        let file = file::open_beneath(self.claim.root.directory.as_fd(), path);
        self.watch.lap(Activity::Open);
        let file = file.map_err(|error| Trouble::from(&error))?;
        let stamp = file::stamp(file.as_fd());
        self.watch.lap(Activity::Stat);
        let stamp = stamp.map_err(|error| Trouble::from(&error))?;
        if stamp.kind != Kind::Regular {
            return Err(Trouble::Gone);
        }
        let heads = common.heads(coding, &stamp);
        let (ready, file) = self.body(heads.ok, file, &stamp)?;
        Ok(Variant {
            coding,
            stamp,
            size: stamp.size,
            last_modified: heads.last_modified,
            etag: heads.etag,
            not_modified: heads.not_modified,
            layout: heads.layout,
            ready: ready.into_boxed_slice(),
            file: file.map(|file| DiskFile::new(file, stamp.size)),
        })
    }

    /// Puts the body behind the head, or keeps the file.
    fn body(
        &mut self,
        mut ready: Vec<u8>,
        file: OwnedFd,
        stamp: &Stamp,
    ) -> Result<(Vec<u8>, Option<OwnedFd>), Trouble> {
        let size = usize::try_from(stamp.size).unwrap_or(usize::MAX);
        if self.is_last || stamp.size > self.most_in_memory() {
            return Ok((ready, Some(file)));
        }
        let head_end = ready.len();
        ready.resize(head_end + size, 0);
        let read = read_whole(&file, &mut ready[head_end..]);
        let after = file::stamp(file.as_fd());
        self.watch.lap(Activity::Load);
        let is_whole = read.map_err(|error| Trouble::from(&error))?;
        let after = after.map_err(|error| Trouble::from(&error))?;
        if is_whole && is_unchanged(stamp, &after) {
            Ok((ready, None))
        } else {
            Err(Trouble::Changed)
        }
    }

    fn most_in_memory(&self) -> u64 {
        let cache = &self.content.settings.cache;
        if cache.bytes == 0 { cache.file_bytes } else { cache.file_bytes.min(cache.bytes / 16) }
    }
}

/// Fills `buffer` from the start of the file; `false` if the file is shorter.
fn read_whole(file: &OwnedFd, buffer: &mut [u8]) -> io::Result<bool> {
    let mut done = 0;
    while done < buffer.len() {
        match file::read_at(file.as_fd(), &mut buffer[done..], done as u64)? {
            0 => return Ok(false),
            count => done += count,
        }
    }
    Ok(true)
}

/// Whether a file could be written through a name in a directory that is not watched.
fn has_other_names(what: &What) -> bool {
    match what {
        What::Found(found) => found.variants().any(|variant| variant.stamp.links > 1),
        _ => false,
    }
}

/// Until when the entry may be answered with.
fn until(content: &Content, claim: &Claim<'_>, entry: &Entry, asked_ms: u64) -> u64 {
    let interval = content.settings.cache.check_interval.as_millis();
    let interval_ms = u64::try_from(interval).unwrap_or(u64::MAX);
    let told = claim.is_told() && !has_other_names(&entry.what);
    let looks = if told { TOLD_INTERVALS } else { 1 };
    let until_ms = asked_ms.saturating_add(interval_ms.saturating_mul(looks));
    until_ms.min(strong_at_ms(&entry.what, asked_ms))
}

/// When all tags can be strong.
fn strong_at_ms(what: &What, asked_ms: u64) -> u64 {
    let What::Found(found) = what else { return u64::MAX };
    let weak = found.variants().filter(|variant| variant.is_weak());
    let Some(youngest_ns) = weak.map(|variant| variant.stamp.mtime_ns).max() else {
        return u64::MAX;
    };
    let left_ns = youngest_ns.saturating_add(WEAK_NS).saturating_sub(now_ns()).max(0);
    asked_ms.saturating_add(u64::try_from(left_ns / 1_000_000).unwrap_or(0) + 1)
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
