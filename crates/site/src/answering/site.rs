//! One loop's part: finds the entry for a request and answers with it.

mod brought;
pub(crate) mod hot;
mod looked;
mod stopped;
mod worked;

use self::hot::HotSlots;
use crate::access::auth::{self, Own, VerifiedPassword};
use crate::access::guard::{self, Guard, Stop};
use crate::answering::answer::{AnswerParts, Boundaries, Instead};
use crate::answering::body::{Body, BodySource};
use crate::answering::site_request::SiteRequest;
use crate::cache::entry::{Entry, EntryKind};
use crate::cache::entry_key::{EntryKey, KeyRef};
use crate::cache::front::{Front, Hit, SlotRef};
use crate::cache::listing_format::{ListingFormat, SortOrder};
use crate::content::Content;
use crate::heads::pages::RefusalPage;
use crate::making::job::{SiteJob, SiteJobDone, SiteWork};
use crate::making::load::{Loaded, Want};
use crate::routing::hosts::Memo;
use crate::routing::known::KnownOfRequest;
use crate::rules::ConditionBits;
use crate::vhost::VirtualHost;
use crate::vhost::turned::Turned;
use forebay_conn::handler::body::BodyRead;
use forebay_conn::{HeadValues, Piece, ProcessOutcome, Reply, Request, TurnTime};
use forebay_http::accept;
use forebay_http::head::{Head, Method, Name};
use forebay_metrics::{Counter, Local};
use std::net::IpAddr;
use std::sync::Arc;

/// The longest time between two sweeps of the loop's own table.
const SWEEP_MS: u64 = 1000;
/// A sweep is also due when the shared cache has evicted this share of what it may hold.
const SWEEP_SHARE: u64 = 4;

/// The process stage for static content. Its methods are those of [`Process`](forebay_conn::Process),
/// [`Bodies`](forebay_conn::Bodies) and [`Hooks`](forebay_conn::Hooks).
pub struct Site {
    pub(crate) content: Arc<Content>,
    pub(crate) metrics: Arc<Local>,
    pub(crate) front: Front,
    memo: Memo,
    pub(crate) now_ms: u64,
    swept_ms: u64,
    /// The total that the shared cache will have evicted when the next sweep is due, in bytes.
    sweep_at_bytes: u64,
    /// Room for the path that an alias leads to.
    path: Vec<u8>,
    /// A buffer in which heads are put together.
    pub(crate) head_scratch: Vec<u8>,
    pub(crate) boundaries: Boundaries,
    /// The conditions of the site that hold for the request that is answered.
    pub(crate) outcome: ConditionBits,
    /// The values of variables for that request.
    pub(crate) known: KnownOfRequest,
    /// The values of its site's header rules that have variables.
    values: Arc<HeadValues>,
    /// The verdicts on credentials that this loop has seen.
    pub(crate) credentials: Own,
    /// The answers of each site to clients that the policy refuses.
    pub(crate) turned: Arc<[Turned]>,
    /// Whether answers that are asked for again and again are noted.
    pub(crate) notes_hot: bool,
    /// Where the last answer was found, if it is asked for again and again.
    pub(crate) hot: Option<HotSlots>,
}

impl Site {
    /// Creates the stage for one loop or thread, with room for about `paths` paths in its own
    /// table. `metrics` are the loop's own; `now` is its clock, of which every later
    /// [`turn`](Site::turn) gives the time.
    pub fn new(content: Arc<Content>, metrics: Arc<Local>, now: TurnTime, paths: usize) -> Site {
        let front = Front::new(paths).with_segments(content.settings().cache.segment_bytes);
        Site {
            turned: content.turned(),
            content,
            metrics,
            front,
            memo: Memo::default(),
            now_ms: now.monotonic_ms,
            swept_ms: now.monotonic_ms,
            sweep_at_bytes: 0,
            path: Vec::new(),
            head_scratch: Vec::new(),
            boundaries: Boundaries::default(),
            outcome: ConditionBits::default(),
            known: KnownOfRequest::default(),
            values: Arc::default(),
            credentials: Own::default(),
            notes_hot: false,
            hot: None,
        }
    }

    /// Takes up the error pages, after a reload has looked at them again.
    pub fn take_pages(&mut self) {
        self.turned = self.content.turned();
    }

    /// Whether requests are answered from this content.
    pub fn serves(&self, content: &Arc<Content>) -> bool {
        Arc::ptr_eq(&self.content, content)
    }

    /// The content that requests are answered from.
    pub fn content(&self) -> &Arc<Content> {
        &self.content
    }

    /// Answers from another content for a moment, until the one that is returned is given back.
    pub fn swap_content(&mut self, content: Arc<Content>) -> Arc<Content> {
        std::mem::replace(&mut self.content, content)
    }

    /// The number of the present content. Numbers of sites and rules are valid within one content
    /// only.
    pub fn content_number(&self) -> u64 {
        self.content.number
    }

    /// Whether the result of a job belongs to the present content.
    pub fn has_made(&self, done: &SiteJobDone) -> bool {
        done.0.content == self.content.number
    }

    /// The site of a request, as its place in
    /// [`ContentSettings::sites`](crate::ContentSettings::sites); `None` if no site has its host.
    #[inline]
    pub fn site_of(&mut self, request: &Request<'_>) -> Option<u32> {
        self.memo.site_of(&self.content.hosts, request.head.authority)
    }

    /// The user who gets the answer: the name in the credentials of the request that was processed
    /// last, if credentials were asked for and are right.
    #[inline]
    pub fn user(&self, request: &Request<'_>) -> Option<Box<[u8]>> {
        if self.credentials.has_passed { auth::name(request.head) } else { None }
    }

    /// Takes note of every change of files until now, with a system call. For callers that promise
    /// that no answer is older than one that another process has given before; without it a change
    /// is seen a moment later. Returns the job that must be done before the request is processed,
    /// if there is one.
    pub fn catch_up(&self) -> Option<SiteJob> {
        let awaited = self.content.catch_up()?;
        let content = Arc::clone(&self.content);
        Some(SiteJob(SiteWork::Roots { content, awaited }))
    }

    /// See [`Process::process`](forebay_conn::Process::process); called once
    /// [`secures`](Site::secures) has let the request by. A `done` of other content is ignored.
    /// `client` gives the client's address, for rules about clients.
    #[inline]
    pub fn process(
        &mut self,
        request: &Request<'_>,
        client: impl Fn() -> IpAddr,
        done: Option<SiteJobDone>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<SiteJob> {
        self.credentials.has_passed = false;
        self.hot = None;
        let Some(site) = self.site_of(request) else { return self.misdirected(request, reply) };
        let asked = &mut SiteRequest { site, request, reply };
        match request.head.method {
            Method::Get | Method::Head if done.is_none() => self.get(client, asked),
            _ => self.other(client, done, asked),
        }
    }

    /// Answers a request that was processed before, or does not read a file.
    #[cold]
    fn other(
        &mut self,
        client: impl Fn() -> IpAddr,
        done: Option<SiteJobDone>,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        let SiteRequest { site, request, .. } = *asked;
        if let Some(done) = done.filter(|done| done.0.content == self.content.number) {
            return self.go_on(client, done, asked);
        }
        // a request about the server as a whole, or about another one, has no path
        let has_path = request.head.path.starts_with(b"/");
        if has_path && let Err(error) = request.path() {
            return self.refuse_no_path(error, asked);
        }
        let vhost = self.vhost(site);
        match request.head.method {
            Method::Get | Method::Head => self.get(client, asked),
            Method::Options => {
                self.options(asked);
                ProcessOutcome::Replied
            }
            Method::Unknown => {
                let refusal = RefusalPage::new(501, "This method is not known here");
                self.refuse_path(refusal, asked)
            }
            Method::Connect | Method::Trace => self.not_allowed(asked),
            // a redirect may be for forms, too
            _ if !vhost.settings.redirects.is_empty() => self.search(client, asked),
            _ => self.not_allowed(asked),
        }
    }

    #[inline]
    fn get(
        &mut self,
        client: impl Fn() -> IpAddr,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        let SiteRequest { site, request, .. } = *asked;
        let Site {
            content,
            front,
            boundaries,
            head_scratch,
            known,
            outcome,
            credentials,
            now_ms,
            ..
        } = self;
        let raw = request.head.path;
        let Some(hit) = front.find(front.front_key(site, raw), site, raw, *now_ms) else {
            return self.search(client, asked);
        };
        let Hit { ticket, tell, is_hot, entry } = hit;
        let hot = HotSlots { site, asked: ticket, inner: None };
        // this guard is the path's; `follow` checks that of the file which an alias leads to
        if let Some(guard) = &entry.guard
            && let Err(stop) =
                content.check(guard, site, (request, *outcome), &client, credentials, *now_ms)
        {
            let entry = Arc::clone(entry);
            return self.stop_at(&entry, stop, asked);
        }
        let (Some(vhost), true) = (content.vhosts.get(site as usize), is_true(entry)) else {
            // not `search`: the rules about clients have let the request through already
            return self.search_on(client, asked);
        };
        if tell {
            content.store.touch(entry.key.asked());
        }
        let answer = AnswerParts {
            vhost,
            request,
            source: BodySource::Slot(ticket),
            boundaries,
            head_scratch,
            known,
        };
        match answer.write(entry, asked.reply) {
            Ok(()) => {
                self.metrics.add(Counter::CacheHits, 1);
                if is_hot && self.notes_hot {
                    self.hot = Some(hot);
                }
                ProcessOutcome::Replied
            }
            Err(Instead::Follow) => {
                self.path.clear();
                let outer = match &entry.what {
                    EntryKind::Alias(alias) => {
                        alias.push_key(|| shape(request.head), &mut self.path);
                        Some(ticket)
                    }
                    EntryKind::Conditional(path) => {
                        path.push_key(&entry.key.path, self.outcome, &mut self.path);
                        None
                    }
                    _ => None,
                };
                self.follow(outer, client, asked)
            }
            Err(instead) => {
                let entry = Arc::clone(entry);
                self.answer_instead(instead, entry, None, asked)
            }
        }
    }

    /// Answers with the entry for the key in `self.path`: the target of the alias in slot `outer`
    /// of the loop's own table, or the outcome of the path's conditions.
    fn follow(
        &mut self,
        outer: Option<SlotRef>,
        client: impl Fn() -> IpAddr,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        let SiteRequest { site, request, .. } = *asked;
        let Site {
            content,
            front,
            boundaries,
            head_scratch,
            known,
            outcome,
            path,
            credentials,
            now_ms,
            ..
        } = self;
        let hit = front.find(front.front_key(site, path), site, path, *now_ms);
        let (Some(Hit { ticket, tell, is_hot, entry }), Some(vhost)) =
            (hit.filter(|hit| is_true(hit.entry)), content.vhosts.get(site as usize))
        else {
            return self.search_on(client, asked);
        };
        // the file may be protected where the path that led here is not
        if let Some(guard) = &entry.guard
            && let Err(stop) =
                content.check(guard, site, (request, *outcome), &client, credentials, *now_ms)
        {
            let entry = Arc::clone(entry);
            return self.stop_at(&entry, stop, asked);
        }
        if tell {
            content.store.touch(entry.key.asked());
        }
        let answer = AnswerParts {
            vhost,
            request,
            source: BodySource::Slot(ticket),
            boundaries,
            head_scratch,
            known,
        };
        match answer.write(entry, asked.reply) {
            Ok(()) => {
                self.metrics.add(Counter::CacheHits, 1);
                // an answer that conditions have led to has no slot of its path
                if is_hot
                    && self.notes_hot
                    && let Some(asked) = outer
                {
                    self.hot = Some(HotSlots { site, asked, inner: Some(ticket) });
                }
                ProcessOutcome::Replied
            }
            Err(Instead::Follow) if outer.is_none() => {
                path.clear();
                if let EntryKind::Alias(alias) = &entry.what {
                    alias.push_key(|| shape(request.head), path);
                }
                self.follow(Some(ticket), client, asked)
            }
            Err(instead) => {
                let entry = Arc::clone(entry);
                let Some(outer) = outer else {
                    return self.answer_instead(instead, entry, None, asked);
                };
                match self.front.entry(outer).cloned() {
                    Some(outer) => self.answer_instead(instead, outer, Some(entry), asked),
                    None => self.search_on(client, asked),
                }
            }
        }
    }

    /// Does what must come before, or instead of, the answer of `entry`, or of `inner` if that is
    /// there.
    #[cold]
    fn answer_instead(
        &mut self,
        instead: Instead,
        entry: Arc<Entry>,
        inner: Option<Arc<Entry>>,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        match instead {
            Instead::Refuse(refusal) => {
                let (header_rules, passed) = (entry.header_rules.clone(), entry.guard.as_deref());
                self.refuse_with(*refusal, header_rules, passed, asked)
            }
            Instead::Make(place) => {
                let content = Arc::clone(&self.content);
                ProcessOutcome::Job(SiteJob(SiteWork::Compress { content, entry, inner, place }))
            }
            Instead::Work => self.work(entry, asked),
            // an alias never leads to another alias
            Instead::Follow => self.refuse_with(RefusalPage::of(500), Box::default(), None, asked),
        }
    }

    /// Answers a request that is not in the loop's own table: checks the rules about clients, then
    /// asks the shared cache.
    #[cold]
    fn search(
        &mut self,
        client: impl Fn() -> IpAddr,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        let SiteRequest { site, request, .. } = *asked;
        // a request without a normal path is refused for every client
        if let Ok(path) = request.path() {
            let guard = self.vhost(site).guard_of(&[&path]);
            if let Err(stop) = self.check(guard.as_deref(), asked, &client) {
                let header_rules = self.header_rules_of(site, request);
                return self.stop(stop, header_rules, asked);
            }
        }
        self.search_on(client, asked)
    }

    /// Asks the shared cache by the normal path, for a request that rules allow.
    #[cold]
    fn search_on(
        &mut self,
        client: impl Fn() -> IpAddr,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        let SiteRequest { site, request, .. } = *asked;
        let path = match request.path() {
            Ok(path) => path,
            Err(error) => return self.refuse_no_path(error, asked),
        };
        let Some(entry) = self.cached(KeyRef { site, path: &path }) else {
            return self.load(EntryKey { site, path: (*path).into() }, request);
        };
        self.metrics.add(Counter::CacheHits, 1);
        self.metrics.add(Counter::CacheShared, 1);
        // Asked for before, so worth a place in the loop's own table. What a job has just made is not:
        // a client that asks for many files once would have the table hold what the store lets go of.
        self.remember(site, request.head.path, &entry);
        let hot = self.notes_hot.then(|| Arc::clone(&entry)).filter(|entry| entry.is_hot());
        let loaded = Loaded { entry, inner: None, piped: None };
        let outcome = self.answer_with(loaded, client, asked);
        if let (Some(entry), ProcessOutcome::Replied) = (hot, &outcome) {
            self.note_shared(&entry, asked);
        }
        outcome
    }

    /// The entry from the shared cache if it can be answered with.
    pub(crate) fn cached(&self, asked: KeyRef<'_>) -> Option<Arc<Entry>> {
        let is_good = |entry: &Arc<Entry>| entry.is_fresh(self.now_ms) && is_true(entry);
        self.content.cached(asked).filter(is_good)
    }

    pub(crate) fn load(&self, key: EntryKey, request: &Request<'_>) -> ProcessOutcome<SiteJob> {
        self.metrics.add(Counter::CacheMisses, 1);
        let content = Arc::clone(&self.content);
        let shape = shape(request.head);
        let wants_all = wants_all(request.head);
        let want = Want { shape, wants_all, asked_ms: self.now_ms };
        ProcessOutcome::Job(SiteJob(SiteWork::Load { content, key, want, refusal: None }))
    }

    /// Answers with an entry that is not in the loop's own table, or was not a moment ago, if the
    /// rules about clients let it through: the file may be protected where its path is not. The
    /// target of an alias may still be missing.
    fn answer_with(
        &mut self,
        loaded: Loaded,
        client: impl Fn() -> IpAddr,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        let SiteRequest { site, request, .. } = *asked;
        let Loaded { entry, inner, piped } = loaded;
        let is_read = matches!(request.head.method, Method::Get | Method::Head);
        if !is_read && !matches!(entry.what, EntryKind::Redirect(_) | EntryKind::Conditional(_)) {
            return self.not_allowed(asked);
        }
        if let Err(stop) = self.check(entry.guard.as_deref(), asked, &client) {
            return self.stop_at(&entry, stop, asked);
        }
        if let EntryKind::Conditional(conditional) = &entry.what {
            let mut path = Vec::new();
            conditional.push_key(&entry.key.path, self.outcome, &mut path);
            return match self.cached(KeyRef { site, path: &path }) {
                Some(entry) => {
                    self.remember(site, &path, &entry);
                    let loaded = Loaded { entry, inner: None, piped: None };
                    self.answer_with(loaded, client, asked)
                }
                None => self.load(EntryKey { site, path: path.into() }, request),
            };
        }
        let inner = match &entry.what {
            EntryKind::Alias(alias) => {
                let mut path = Vec::new();
                alias.push_key(|| shape(request.head), &mut path);
                if inner.is_some() {
                    inner
                } else if let Some(cached) = self.cached(KeyRef { site, path: &path }) {
                    self.remember(site, &path, &cached);
                    Some(cached)
                } else {
                    return self.load(entry.key.clone(), request);
                }
            }
            _ => None,
        };
        if let Some(inner) = &inner
            && let Err(stop) = self.check(inner.guard.as_deref(), asked, &client)
        {
            return self.stop(stop, inner.header_rules.clone(), asked);
        }
        let Site { content, boundaries, head_scratch, known, .. } = self;
        let Some(vhost) = content.vhosts.get(site as usize) else { return ProcessOutcome::Replied };
        let answer_with = inner.as_ref().unwrap_or(&entry);
        let source = match piped {
            Some(piped) => BodySource::Piped(piped),
            None => BodySource::Held(Arc::clone(answer_with)),
        };
        match (AnswerParts { vhost, request, source, boundaries, head_scratch, known })
            .write(answer_with, asked.reply)
        {
            Ok(()) => ProcessOutcome::Replied,
            Err(instead) => self.answer_instead(instead, entry, inner, asked),
        }
    }

    /// Notes the verdict of a job on credentials. Refuses the request if they do not let it
    /// through.
    pub(crate) fn take_verified(&mut self, verified: &VerifiedPassword) -> Result<(), Stop> {
        let Site { content, credentials, .. } = self;
        let realms = &content.realms;
        guard::stop(realms.take(verified, credentials), realms, verified.realm())
    }

    /// Whether the rules about clients let an answer through, where some concern it.
    pub(crate) fn check(
        &mut self,
        guard: Option<&Guard>,
        asked: &SiteRequest<'_, '_>,
        client: impl Fn() -> IpAddr,
    ) -> Result<(), Stop> {
        let Some(guard) = guard else { return Ok(()) };
        let SiteRequest { site, request, .. } = *asked;
        let Site { content, outcome, credentials, now_ms, .. } = self;
        content.check(guard, site, (request, *outcome), client, credentials, *now_ms)
    }

    pub(crate) fn remember(&mut self, site: u32, path: &[u8], entry: &Arc<Entry>) {
        if entry.is_fresh(self.now_ms) {
            let front_key = self.front.front_key(site, path);
            self.front.insert(front_key, site, path, Arc::clone(entry));
        }
    }

    /// The site with this number, which is one that [`site_of`](Site::site_of) gave.
    pub(crate) fn vhost(&self, site: u32) -> &VirtualHost {
        &self.content.vhosts[site as usize]
    }

    /// See [`Bodies::piece`](forebay_conn::Bodies::piece).
    #[inline]
    pub fn piece<'b>(&'b self, body: &'b Body) -> Option<Piece<'b>> {
        body.piece(&self.front)
    }

    /// See [`Bodies::left`](forebay_conn::Bodies::left).
    pub fn left(&self, body: &Body) -> u64 {
        body.left()
    }

    /// See [`Bodies::advance`](forebay_conn::Bodies::advance).
    #[inline]
    pub fn advance(&self, body: &mut Body, count: u64) {
        body.advance(count);
    }

    /// See [`Bodies::read`](forebay_conn::Bodies::read). Two system calls if the body is a file.
    pub fn read(&self, body: &mut Body, buffer: &mut [u8]) -> BodyRead {
        body.read(&self.front, buffer)
    }

    /// See [`Bodies::is_intact`](forebay_conn::Bodies::is_intact). A system call if the body is
    /// a file; always true for memory, which does not change.
    pub fn is_intact(&self, body: &Body) -> bool {
        body.is_intact(&self.front)
    }

    /// See [`Bodies::hold`](forebay_conn::Bodies::hold).
    pub fn hold(&mut self, body: &mut Body) {
        body.hold(&self.front);
    }

    /// See [`Bodies::warm_bytes`](forebay_conn::Bodies::warm_bytes).
    pub fn warm_bytes(&self, body: &Body) -> u64 {
        body.warm_bytes(&self.front)
    }

    /// See [`Bodies::warm`](forebay_conn::Bodies::warm).
    pub fn warm(&mut self, body: &Body) -> Option<SiteJob> {
        let (entry, variant, offset) = body.next_place(&self.front)?;
        Some(SiteJob(SiteWork::Warm { entry: Arc::clone(entry), variant, offset }))
    }

    /// See [`Hooks::rest`](forebay_conn::Hooks::rest). What is cached stays with the shared
    /// cache alone, which knows how much there may be.
    pub fn rest(&mut self) {
        self.front.clear();
    }

    /// See [`Hooks::turn`](forebay_conn::Hooks::turn).
    #[inline]
    pub fn turn(&mut self, now: TurnTime) {
        self.now_ms = now.monotonic_ms;
        let store = &self.content.store;
        if self.now_ms.saturating_sub(self.swept_ms) >= SWEEP_MS
            || store.evicted_bytes() >= self.sweep_at_bytes
        {
            self.swept_ms = self.now_ms;
            let most = self.content.settings.cache.bytes / SWEEP_SHARE;
            self.sweep_at_bytes = store.evicted_bytes().saturating_add(most.max(1));
            self.front.sweep(self.now_ms);
        }
    }
}

/// Whether nothing but a whole file will do.
fn wants_all(head: &Head<'_>) -> bool {
    let conditions = [
        Name::Range,
        Name::IfMatch,
        Name::IfNoneMatch,
        Name::IfModifiedSince,
        Name::IfUnmodifiedSince,
    ];
    head.method == Method::Get && !conditions.into_iter().any(|name| head.has(name))
}

/// The format of a directory's list for the client.
fn shape(head: &Head<'_>) -> ListingFormat {
    let is_json = accept::prefers(head, "application/json", "text/html");
    ListingFormat { is_json, order: SortOrder::of(head.query.unwrap_or_default()) }
}

/// Whether an entry is still current. A file that is sent from the disk may have changed a moment
/// ago, before the watcher has seen it; then the head would promise what cannot be kept.
#[inline]
fn is_true(entry: &Arc<Entry>) -> bool {
    if !entry.is_on_disk || entry.is_current() {
        return true;
    }
    entry.kill();
    false
}
