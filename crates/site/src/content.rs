//! What all loops share: roots, the cache, and the thread that waits for changes.

use crate::auth::{Own, Realms};
use crate::entry::{DEAD, Entry, KeyRef};
use crate::graph::{Registration, Struck};
use crate::guard::{Guard, Stop};
use crate::hosts::Hosts;
use crate::memory_budget::MemoryBudget;
use crate::pages::Pages;
use crate::piped::Pipes;
use crate::read::PageCache;
use crate::root::{Root, RootDirectory, RootLook};
use crate::settings::{ContentSettings, FilesLocation, Notice, OpenError, SiteSettings};
use crate::store::Store;
use crate::turned::Turned;
use crate::vhost::VirtualHost;
use crate::watch::{FileWatcher, PathLook, Unread, Untold};
use crate::work::WorkLimit;
use forebay_conn::Request;
use std::convert::Infallible;
use std::mem::discriminant;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Between two looks at what no event tells, at most.
const TICK: Duration = Duration::from_secs(1);
/// Without watching after events were lost, in ticks.
const SUSPENDED_TICKS: u32 = 10;
/// Between two sweeps of what is watched, at most, in ticks.
const SWEEP_TICKS: u32 = 60;

/// The static content of one process. Each loop makes its own [`Site`](crate::Site) of it.
///
/// A thread of its own waits for changed files. It ends after the last reference is gone: at once if the
/// content was [retired](Content::retire), within a second if not.
pub struct Content {
    pub(crate) settings: ContentSettings,
    /// Tells this content from every other one of the process.
    pub(crate) number: u64,
    /// In the order of the settings.
    pub(crate) vhosts: Vec<VirtualHost>,
    pub(crate) hosts: Hosts,
    pub(crate) store: Store,
    pub(crate) page_cache: PageCache,
    pub(crate) memory_budget: MemoryBudget,
    pub(crate) pipes: Pipes,
    pub(crate) realms: Arc<Realms>,
    pub(crate) work_limit: WorkLimit,
    /// For requests that are no site's.
    pub(crate) pages: Pages,
    /// By site: what clients are told that policy turns away.
    turned: Mutex<Arc<[Turned]>>,
    /// Whether some site says or does something about TLS.
    pub(crate) is_about_tls: bool,
    /// Whether some site has an application.
    pub(crate) has_routes: bool,
    /// Whether nothing is kept any more.
    is_retired: AtomicBool,
    /// `None` if nothing can be watched. With the cache off it watches the ways to the roots only.
    watcher: Option<Arc<FileWatcher>>,
    /// Dropped after `watcher`, so that the thread that watches is the last to have that: the kernel may
    /// take seconds to end watching, and the thread that lets go of the content last serves others.
    _alive: Sender<Infallible>,
    invalidated: AtomicU64,
    uncompressed: AtomicU64,
    notice: Box<dyn Fn(Notice) + Send + Sync>,
    told: Mutex<Vec<std::mem::Discriminant<Notice>>>,
}

/// Figures as they are now, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Bytes held by the cache.
    pub bytes: u64,
    /// Answers held by the cache.
    pub entries: u64,
    /// Answers dropped for lack of memory, since the start.
    pub evictions: u64,
    /// Answers dropped because their files changed, since the start.
    pub invalidations: u64,
    /// Bytes of files in memory as bodies of answers, held by the cache or not.
    pub body_bytes: u64,
    /// Files sent from the disk because the memory budget was used up, since the start.
    pub crowded: u64,
    /// Files and lists loaded since the start that were too large to be compressed.
    pub uncompressed: u64,
    /// Directories watched for changes.
    pub watched_directories: u64,
}

impl Content {
    /// Opens the roots and begins to watch for changes. `notice` is told what the operator should
    /// know; it may be called from several threads.
    ///
    /// # Errors
    /// [`OpenError`] if a root cannot be entered or no thread can be started.
    pub fn open(
        settings: ContentSettings,
        notice: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Arc<Content>, OpenError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (mut realms, files) = (0, settings.files);
        let open = |site: &SiteSettings| {
            let first_realm = realms;
            realms += site.auth.len() as u32;
            VirtualHost::open(site, first_realm, settings.server_header, files)
        };
        let vhosts = settings.sites.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let realms = Realms::new(settings.sites.iter().flat_map(|site| &site.auth));
        let realms = Arc::new(realms.map_err(|error| OpenError::Random { error: error.into() })?);
        let store = Store::new(&settings.cache);
        let memory_budget =
            MemoryBudget::new(settings.cache.bytes.saturating_add(settings.cache.in_flight_bytes));
        let most =
            if files == FilesLocation::Here { settings.cache.watched_directories } else { 0 };
        let (watcher, trouble) = match (most > 0).then(|| FileWatcher::new(most)) {
            Some(Ok(watcher)) => (Some(Arc::new(watcher)), None),
            Some(Err(error)) => (None, Some(Notice::CannotWatch { error })),
            None => (None, None),
        };
        let (alive, gone) = channel();
        let content = Arc::new(Content {
            number: NUMBER.fetch_add(1, Relaxed),
            is_about_tls: vhosts.iter().any(VirtualHost::is_about_tls),
            turned: Mutex::new(vhosts.iter().map(Turned::read).collect()),
            has_routes: vhosts.iter().any(|vhost| !vhost.settings.routes.is_empty()),
            vhosts,
            hosts: Hosts::new(&settings.sites),
            realms,
            work_limit: WorkLimit::default(),
            pages: Pages::new(settings.server_header),
            is_retired: AtomicBool::new(false),
            store,
            page_cache: PageCache::default(),
            memory_budget,
            pipes: Pipes::new(settings.cache.pipes as usize),
            watcher: watcher.clone(),
            _alive: alive,
            invalidated: AtomicU64::new(0),
            uncompressed: AtomicU64::new(0),
            notice: Box::new(notice),
            told: Mutex::default(),
            settings,
        });
        trouble.into_iter().for_each(|trouble| content.say_once(trouble));
        if files == FilesLocation::Here {
            content.look_at_users();
            content.start_watching(watcher, gone)?;
        }
        Ok(content)
    }

    /// What clients are told that policy turns away.
    pub(crate) fn turned(&self) -> Arc<[Turned]> {
        Arc::clone(&self.turned.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the error pages for those that policy turns away again, for loops that
    /// [take](crate::Site::take_pages) them.
    pub fn look_at_pages(&self) {
        let turned = self.vhosts.iter().map(Turned::read).collect();
        *self.turned.lock().unwrap_or_else(PoisonError::into_inner) = turned;
    }

    /// What the cache holds and did.
    pub fn figures(&self) -> CacheFigures {
        CacheFigures {
            bytes: self.store.bytes(),
            entries: self.store.entries(),
            evictions: self.store.evictions(),
            invalidations: self.invalidated.load(Relaxed),
            body_bytes: self.memory_budget.bytes(),
            crowded: self.memory_budget.refused(),
            uncompressed: self.uncompressed.load(Relaxed),
            watched_directories: self.watcher.as_ref().map_or(0, |at| at.graph().len() as u64),
        }
    }

    /// Something was too large to be compressed.
    pub(crate) fn count_uncompressed(&self) {
        self.uncompressed.fetch_add(1, Relaxed);
    }

    /// What it was opened with.
    pub fn settings(&self) -> &ContentSettings {
        &self.settings
    }

    /// Lets go of all that is cached and watched and of empty pipes, and keeps nothing from now on,
    /// because other content has taken its place. A loop that still holds it answers from the file system.
    pub fn retire(&self) {
        let mut struck = Struck::default();
        {
            // Answers are settled under this lock, and none after it.
            let graph = self.watcher.as_ref().map(|watcher| watcher.graph());
            self.is_retired.store(true, Relaxed);
            drop(graph);
        }
        self.watcher.iter().for_each(|watcher| watcher.retire(&mut struck));
        self.strike(struck);
        for (site, _) in (0..).zip(&self.vhosts) {
            self.store.flush(site);
        }
        self.pipes.retire();
    }

    fn start_watching(
        self: &Arc<Content>,
        watcher: Option<Arc<FileWatcher>>,
        gone: Receiver<Infallible>,
    ) -> Result<(), OpenError> {
        self.look_at_roots();
        let content = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("watch".to_owned());
        let run = move || {
            watch(&content, watcher.as_deref());
            // until the content has let go of its watcher
            let _ = gone.recv();
        };
        thread.spawn(run).map_err(|error| OpenError::Thread { error })?;
        Ok(())
    }

    /// The entry, fresh or expired, but not dead.
    pub(crate) fn cached(&self, key: KeyRef<'_>) -> Option<Arc<Entry>> {
        self.store.get(key)
    }

    /// Whether the rules about clients of this site let a request through.
    #[inline]
    pub(crate) fn check(
        &self,
        guard: &Guard,
        site: u32,
        request: &Request<'_>,
        client: impl FnOnce() -> IpAddr,
        own: &mut Own,
        now_ms: u64,
    ) -> Result<(), Stop> {
        let settings = &self.vhosts[site as usize].settings;
        guard.check(settings, &self.realms, request, client, own, now_ms)
    }

    /// Begins to make an answer for a site: whatever changes from now on is noticed.
    pub(crate) fn builder(&self, site: u32) -> Option<AnswerBuilder<'_>> {
        let vhost = self.vhosts.get(site as usize)?;
        let ticket = Arc::default();
        let roots = vhost.mounts.iter().map(|mount| mount.place.current()).collect();
        let is_kept = self.store.is_on() && !self.is_retired.load(Relaxed);
        let is_told = self.watcher.is_some() && is_kept;
        Some(AnswerBuilder { content: self, vhost, roots, ticket, is_told })
    }

    /// Keeps an answer that depends on no file.
    pub(crate) fn keep(&self, entry: &Arc<Entry>) {
        let graph = self.watcher.as_ref().map(|watcher| watcher.graph());
        if self.store.is_on() && !self.is_retired.load(Relaxed) {
            entry.freshen(u64::MAX);
            self.store.insert(Arc::clone(entry));
        } else {
            entry.kill();
        }
        drop(graph);
    }

    /// Roots and the numbers of their sites.
    fn places(&self) -> impl Iterator<Item = (u32, &RootDirectory)> {
        let sites = (0..).zip(&self.vhosts);
        sites.flat_map(|(site, vhost)| vhost.mounts.iter().map(move |at| (site, &at.place)))
    }

    fn strike(&self, struck: Struck) -> bool {
        for entry in &struck.entries {
            if entry.kill() {
                self.invalidated.fetch_add(1, Relaxed);
            }
            self.store.remove(entry);
        }
        struck.roots
    }

    /// Follows the roots' paths anew, and drops what came from a root that serves no longer.
    fn look_at_roots(&self) {
        // First the signposts, then the look: a change between the two is told. A path that leads
        // elsewhere has other signposts. What changes faster than that is looked at in a tick.
        for _ in 0..4 {
            if let Some(watcher) = &self.watcher {
                let signposts = self.places().flat_map(|(_, place)| place.signposts());
                watcher.set_signposts(signposts);
            }
            let changed = self.places().filter(|(site, place)| self.look_at_root(*site, place));
            if changed.count() == 0 {
                return;
            }
        }
    }

    /// Reads the files of users that changed, as is done once a second anyway. May block.
    pub fn look_at_users(&self) {
        for (file, error) in self.realms.look() {
            (self.notice)(Notice::Users { file, error });
        }
    }

    /// Whether the path leads to another directory than before.
    fn look_at_root(&self, site: u32, place: &RootDirectory) -> bool {
        let root = place.configured.clone();
        match place.look() {
            RootLook::Same | RootLook::StillMissing => false,
            RootLook::Missing(error) => {
                self.flush(site, &place.current());
                (self.notice)(Notice::RootMissing { root, error });
                false
            }
            RootLook::Changed(before) => {
                self.flush(site, &before);
                (self.notice)(Notice::RootChanged { root });
                true
            }
        }
    }

    fn flush(&self, site: u32, before: &Root) {
        // The lock keeps answers from the root before out of the store from now on.
        let mut graph = self.watcher.as_ref().map(|watcher| watcher.graph());
        let mut struck = Struck::default();
        if let Some(graph) = &mut graph {
            graph.forget_root(before.number, &mut struck);
        }
        self.strike(struck);
        self.invalidated.fetch_add(self.store.flush(site), Relaxed);
    }

    fn say_once(&self, notice: Notice) {
        let kind = discriminant(&notice);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.contains(&kind) {
            told.push(kind);
            drop(told);
            (self.notice)(notice);
        }
    }

    /// Applies the changes that happened; whether events were lost.
    fn take_events(&self, watcher: &FileWatcher) -> bool {
        let mut look = false;
        let is_lost = watcher.take_events(|struck| look = self.strike(struck));
        if is_lost {
            self.say_once(Notice::EventsLost);
        }
        if look {
            self.look_at_roots();
        }
        is_lost
    }

    /// As if a minute had passed.
    #[cfg(test)]
    pub(crate) fn tidy(&self) {
        self.watcher.iter().for_each(|watcher| watcher.tidy(true));
    }

    /// As if the kernel had lost events.
    #[cfg(test)]
    pub(crate) fn overflow(&self) {
        if let Some(watcher) = &self.watcher {
            watcher.overflow(|struck| {
                self.strike(struck);
            });
        }
        self.say_once(Notice::EventsLost);
    }

    /// What it watches with.
    #[cfg(test)]
    pub(crate) fn watcher(&self) -> Weak<FileWatcher> {
        self.watcher.as_ref().map_or_else(Weak::new, Arc::downgrade)
    }
}

/// Waits for changes, until the content is gone or retired.
fn watch(content: &Weak<Content>, watcher: Option<&FileWatcher>) {
    let mut ticked = Instant::now();
    let (mut ticks, mut suspended_ticks) = (0u32, 0u32);
    loop {
        let left = TICK.saturating_sub(ticked.elapsed());
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(0) + 1;
        let is_ready = match watcher {
            Some(watcher) => watcher.wait(left_ms),
            None => {
                std::thread::sleep(left);
                false
            }
        };
        let Some(content) = content.upgrade() else { return };
        if content.is_retired.load(Relaxed) {
            return;
        }
        if is_ready && watcher.is_some_and(|watcher| content.take_events(watcher)) {
            suspended_ticks = SUSPENDED_TICKS;
        }
        if ticked.elapsed() < TICK {
            continue;
        }
        ticked = Instant::now();
        content.look_at_roots();
        content.look_at_users();
        if let Some(watcher) = watcher {
            ticks = ticks.wrapping_add(1);
            watcher.tidy(ticks.is_multiple_of(SWEEP_TICKS));
            suspended_ticks = suspended_ticks.saturating_sub(1);
            if suspended_ticks == 0 {
                watcher.resume();
            }
        }
    }
}

/// An answer in the making.
pub(crate) struct AnswerBuilder<'c> {
    content: &'c Content,
    vhost: &'c VirtualHost,
    /// Of each mount, the directory that it is now.
    roots: Vec<Arc<Root>>,
    ticket: Arc<Registration>,
    /// Whether every change is told.
    is_told: bool,
}

impl AnswerBuilder<'_> {
    /// The directory that has what is at a path of the site, and where within it.
    pub(crate) fn locate<'p>(&self, path: &'p [u8]) -> Option<(&Root, &'p [u8])> {
        let (mount, inside) = self.vhost.locate(path)?;
        Some((&**self.roots.get(mount)?, inside))
    }

    /// The way to `path`, one of the site, matters for the answer. What was seen on it holds as long as
    /// the answer. `with_forms` asks for the forms of the file, too.
    pub(crate) fn follow(&mut self, path: &[u8], with_forms: bool) -> PathLook {
        let watcher = self.content.watcher.as_ref().filter(|_| self.is_told);
        // One untold change is enough to make the answer expire.
        let Some(watcher) = watcher else { return PathLook::default() };
        let Some((root, inside)) = self.locate(path) else { return PathLook::default() };
        let untold = match watcher.follow(root, inside, &self.ticket, with_forms) {
            Ok(way) => return way,
            Err(untold) => untold,
        };
        self.is_told = false;
        if let Untold::Notice(notice) = untold {
            self.content.say_once(notice);
        }
        PathLook::default()
    }

    /// Reads a directory that was seen on the way to `path`.
    pub(crate) fn read(&self, path: &[u8], unread: &Unread) {
        if let (Some(watcher), Some((root, _))) = (&self.content.watcher, self.locate(path)) {
            watcher.read(root, unread);
        }
    }

    /// Whether every change on the ways followed is told.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Puts the answer into the cache, fresh until then, unless something changed meanwhile or it
    /// is to be [`DEAD`] anyway.
    pub(crate) fn settle(self, entry: &Arc<Entry>, until_ms: u64, is_new: bool) {
        let graph = self.content.watcher.as_ref().map(|watcher| watcher.graph());
        let mut mounts = self.roots.iter().zip(&self.vhost.mounts);
        let is_current = mounts.all(|(root, mount)| Arc::ptr_eq(root, &mount.place.current()));
        let is_right = !self.ticket.is_void() && is_current && until_ms != DEAD;
        let is_kept = self.content.store.is_on() && !self.content.is_retired.load(Relaxed);
        if !is_kept || !is_right {
            entry.kill();
            return;
        }
        self.ticket.stand_for(entry);
        entry.freshen(until_ms);
        if is_new {
            self.content.store.insert(Arc::clone(entry));
        }
        drop(graph);
    }
}

impl Drop for AnswerBuilder<'_> {
    fn drop(&mut self) {
        // A settled ticket lives on with its entry.
        if !self.ticket.is_settled() {
            self.ticket.give_up();
        }
    }
}
