//! One loop's part: finds the entry for a request and answers with it.

use crate::answer::{Answer, Boundaries};
use crate::body::{Body, Source};
use crate::content::Content;
use crate::entry::{Asked, Entry, Key};
use crate::front::Front;
use crate::job::{Done, Job, Work};
use forebay_conn::{Now, Outcome, Piece, Reply, Request};
use forebay_http::head::Method;
use forebay_http::path;
use forebay_metrics::{Counter, Local};
use std::sync::Arc;

/// Between two sweeps of the loop's own table.
const SWEEP_MS: u64 = 1000;

/// No file system has longer names (`NAME_MAX`).
const MOST_NAME_BYTES: usize = 255;

/// The process stage for static content. Its methods are those of
/// [`Handler`](forebay_conn::Handler).
pub struct Site {
    content: Arc<Content>,
    metrics: Arc<Local>,
    front: Front,
    now_ms: u64,
    swept_ms: u64,
    /// Room for the path while it is normalised.
    path: Vec<u8>,
    boundaries: Boundaries,
}

impl Site {
    /// For one loop or thread, with room for about so many paths in its own table. `metrics` are the loop's own; `now` is its clock, of which every later
    /// [`turn`](Site::turn) tells.
    pub fn new(content: Arc<Content>, metrics: Arc<Local>, now: Now, paths: usize) -> Site {
        Site {
            content,
            metrics,
            front: Front::new(paths),
            now_ms: now.monotonic_ms,
            swept_ms: now.monotonic_ms,
            path: Vec::new(),
            boundaries: Boundaries::default(),
        }
    }

    /// See [`Handler::process`](forebay_conn::Handler::process).
    #[inline]
    pub fn process(
        &mut self,
        request: &Request<'_>,
        done: Option<Done>,
        reply: &mut Reply<'_, Body>,
    ) -> Outcome<Job> {
        match request.head.method {
            Method::Get | Method::Head => self.get(request, done, reply),
            Method::Options => {
                self.content.pages.options(reply);
                Outcome::Replied
            }
            Method::Unknown => self.plain(501, "This method is not known here", reply),
            method => {
                // what follows a CONNECT may be meant for the other end of a tunnel
                reply.keep_alive &= method != Method::Connect;
                self.plain(405, "There are only files here; they can be read", reply)
            }
        }
    }

    fn plain(&self, status: u16, text: &str, reply: &mut Reply<'_, Body>) -> Outcome<Job> {
        self.content.pages.plain(status, text, reply);
        Outcome::Replied
    }

    #[inline]
    fn get(
        &mut self,
        request: &Request<'_>,
        done: Option<Done>,
        reply: &mut Reply<'_, Body>,
    ) -> Outcome<Job> {
        let site = self.site_of(request);
        let raw = request.head.path;
        if let Some(Done(Some(entry))) = done {
            return self.answer_with(entry, site, request, reply);
        }
        let spot = self.front.spot(raw);
        let Some((ticket, tell)) = self.front.find(spot, site, raw, self.now_ms) else {
            return self.search(site, request, reply);
        };
        let Some(entry) = self.front.entry(ticket).filter(|entry| is_true(entry)) else {
            return self.search(site, request, reply);
        };
        self.metrics.add(Counter::CacheHits, 1);
        if tell {
            self.content.store.touch(entry.key.asked());
        }
        let (source, pages) = (Source::Slot(ticket), &self.content.pages);
        let boundaries = &mut self.boundaries;
        let answer = Answer { pages, head: request.head, source, boundaries };
        match answer.write(entry, reply) {
            None => Outcome::Replied,
            Some(place) => compress(&self.content, entry, place),
        }
    }

    /// There is one site until there are virtual hosts.
    #[inline]
    fn site_of(&self, _request: &Request<'_>) -> u32 {
        0
    }

    /// Not in the loop's own table: normalises the path and asks the shared cache.
    #[cold]
    fn search(
        &mut self,
        site: u32,
        request: &Request<'_>,
        reply: &mut Reply<'_, Body>,
    ) -> Outcome<Job> {
        if let Err(error) = path::normalise(request.head.path, &mut self.path) {
            let (status, text) = (error.status(), error.reason());
            match status {
                404 => self.content.pages.missing(reply),
                _ => self.content.pages.plain(status, text, reply),
            }
            return Outcome::Replied;
        }
        let is_too_long = self.path.split(|&b| b == b'/').any(|name| name.len() > MOST_NAME_BYTES);
        if is_too_long || !self.content.settings.sites[0].hidden && path::is_hidden(&self.path) {
            self.content.pages.missing(reply);
            return Outcome::Replied;
        }
        let cached = self.content.cached(Asked { site, path: &self.path });
        let is_good = |entry: &Arc<Entry>| entry.is_fresh(self.now_ms) && is_true(entry);
        if let Some(entry) = cached.filter(is_good) {
            self.metrics.add(Counter::CacheHits, 1);
            return self.answer_with(entry, site, request, reply);
        }
        self.metrics.add(Counter::CacheMisses, 1);
        let key = Key { site, path: self.path.as_slice().into() };
        let content = Arc::clone(&self.content);
        Outcome::Job(Job(Work::Load { content, key, asked_ms: self.now_ms }))
    }

    /// Answers with an entry that is not in the loop's own table yet.
    fn answer_with(
        &mut self,
        entry: Arc<Entry>,
        site: u32,
        request: &Request<'_>,
        reply: &mut Reply<'_, Body>,
    ) -> Outcome<Job> {
        if entry.is_fresh(self.now_ms) {
            let raw = request.head.path;
            self.front.insert(self.front.spot(raw), site, raw, Arc::clone(&entry));
        }
        let source = Source::Held(Arc::clone(&entry));
        let pages = &self.content.pages;
        let boundaries = &mut self.boundaries;
        let answer = Answer { pages, head: request.head, source, boundaries };
        match answer.write(&entry, reply) {
            None => Outcome::Replied,
            Some(place) => compress(&self.content, &entry, place),
        }
    }

    /// See [`Handler::refuse`](forebay_conn::Handler::refuse).
    pub fn refuse(&mut self, status: u16, reason: &'static str, reply: &mut Reply<'_, Body>) {
        self.content.pages.plain(status, reason, reply);
    }

    /// See [`Handler::piece`](forebay_conn::Handler::piece).
    #[inline]
    pub fn piece<'b>(&'b self, body: &'b Body) -> Option<Piece<'b>> {
        body.piece(&self.front)
    }

    /// See [`Handler::advance`](forebay_conn::Handler::advance).
    #[inline]
    pub fn advance(&self, body: &mut Body, count: u64) {
        body.advance(count);
    }

    /// See [`Handler::is_intact`](forebay_conn::Handler::is_intact). A system call if the body is
    /// a file; always true for memory, which does not change.
    pub fn is_intact(&self, body: &Body) -> bool {
        body.is_intact(&self.front)
    }

    /// See [`Handler::hold`](forebay_conn::Handler::hold).
    pub fn hold(&mut self, body: &mut Body) {
        body.hold(&self.front);
    }

    /// See [`Handler::warm_bytes`](forebay_conn::Handler::warm_bytes).
    pub fn warm_bytes(&self, body: &Body) -> u64 {
        body.warm_bytes(&self.front)
    }

    /// See [`Handler::warm`](forebay_conn::Handler::warm).
    pub fn warm(&mut self, body: &Body) -> Job {
        let (entry, variant, offset) = body.next_place(&self.front);
        Job(Work::Warm { entry, variant, offset })
    }

    /// See [`Handler::rest`](forebay_conn::Handler::rest). What is cached stays with the shared
    /// cache alone, which knows how much there may be.
    pub fn rest(&mut self) {
        self.front.clear();
    }

    /// See [`Handler::turn`](forebay_conn::Handler::turn).
    #[inline]
    pub fn turn(&mut self, now: Now) {
        self.now_ms = now.monotonic_ms;
        if self.now_ms.saturating_sub(self.swept_ms) >= SWEEP_MS {
            self.swept_ms = self.now_ms;
            self.front.sweep(self.now_ms);
        }
    }
}

#[cold]
fn compress(content: &Arc<Content>, entry: &Arc<Entry>, place: usize) -> Outcome<Job> {
    let (content, entry) = (Arc::clone(content), Arc::clone(entry));
    Outcome::Job(Job(Work::Compress { content, entry, place }))
}

/// A file that is sent from the disk may have changed a moment ago, before anyone was told. Then
/// the head would promise what cannot be kept.
#[inline]
fn is_true(entry: &Arc<Entry>) -> bool {
    if !entry.is_on_disk || entry.is_intact() {
        return true;
    }
    entry.kill();
    false
}
