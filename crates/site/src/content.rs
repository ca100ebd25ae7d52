//! The content that all loops share: the sites with their roots, and the cache.

mod answer_builder;
mod watching;

pub(crate) use answer_builder::AnswerBuilder;
pub(crate) use watching::AwaitedLook;
use watching::RootLooks;

use crate::access::auth::{Own, Realms};
use crate::access::guard::{Guard, GuardRules, Stop};
use crate::bodies::memory_budget::MemoryBudget;
use crate::bodies::piped::Pipes;
use crate::bodies::read::PageCache;
use crate::cache::entry::Entry;
use crate::cache::entry_key::KeyRef;
use crate::cache::graph::Struck;
use crate::cache::known_hashes::KnownHashes;
use crate::cache::store::Store;
use crate::cache::watch::FileWatcher;
use crate::heads::pages::Pages;
use crate::notice::{Notice, OpenError};
use crate::routing::hosts::Hosts;
use crate::rules::ConditionBits;
use crate::settings::{ContentSettings, FilesLocation, SiteSettings};
use crate::vhost::VirtualHost;
use crate::vhost::turned::Turned;
use crate::work::WorkLimit;
use forebay_conn::Request;
use std::convert::Infallible;
use std::mem::discriminant;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// The static content of one process. Each loop makes its own [`Site`](crate::Site) of it.
///
/// A thread of its own waits for changed files. It ends after the last reference is gone: at once if the
/// content was [retired](Content::retire), within a second if not.
pub struct Content {
    pub(crate) settings: ContentSettings,
    /// The number of this content, which no other of the process has.
    pub(crate) number: u64,
    /// The sites, in the order of the settings.
    pub(crate) vhosts: Vec<VirtualHost>,
    pub(crate) hosts: Hosts,
    pub(crate) store: Store,
    pub(crate) page_cache: PageCache,
    pub(crate) known_hashes: KnownHashes,
    pub(crate) memory_budget: MemoryBudget,
    pub(crate) pipes: Pipes,
    pub(crate) realms: Arc<Realms>,
    pub(crate) work_limit: WorkLimit,
    /// The pages for requests that are no site's.
    pub(crate) pages: Pages,
    /// The answers of each site to clients that the policy refuses.
    turned: Mutex<Arc<[Turned]>>,
    /// Whether a site must be looked at before all else, for TLS, conditions or variables.
    pub(crate) looks_first: bool,
    /// Whether some site has an application.
    pub(crate) has_routes: bool,
    /// Whether some site hands requests over with their sockets.
    pub(crate) hands_over: bool,
    /// Whether nothing is kept any more.
    is_retired: AtomicBool,
    /// `None` if nothing can be watched. With the cache off it watches the ways to the roots only.
    watcher: Option<Arc<FileWatcher>>,
    root_looks: RootLooks,
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
    /// The number of this content, which no other content of the process has.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Opens the roots and begins to watch for changes. `notice` gets messages for the operator; it
    /// may be called from several threads.
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
            VirtualHost::open(site, first_realm, files)
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
            looks_first: vhosts.iter().any(VirtualHost::looks_first),
            turned: Mutex::new(vhosts.iter().map(Turned::read).collect()),
            has_routes: vhosts.iter().any(|vhost| !vhost.settings.routes.is_empty()),
            hands_over: vhosts.iter().any(|one| one.settings.routes.iter().any(|at| at.hands_over)),
            vhosts,
            hosts: Hosts::new(&settings.sites),
            realms,
            work_limit: WorkLimit::default(),
            pages: Pages::new(settings.server_header),
            is_retired: AtomicBool::new(false),
            store,
            page_cache: PageCache::default(),
            known_hashes: KnownHashes::default(),
            memory_budget,
            pipes: Pipes::new(settings.cache.pipes as usize),
            watcher: watcher.clone(),
            root_looks: RootLooks::default(),
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

    /// The answers of each site to clients that the policy refuses.
    pub(crate) fn turned(&self) -> Arc<[Turned]> {
        Arc::clone(&self.turned.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the error pages for clients that the policy refuses again, for loops that
    /// [take](crate::Site::take_pages) them.
    pub fn look_at_pages(&self) {
        let turned = self.vhosts.iter().map(Turned::read).collect();
        *self.turned.lock().unwrap_or_else(PoisonError::into_inner) = turned;
    }

    /// Figures of the cache: its contents and counters.
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

    /// Counts a file or list that was too large to be compressed.
    pub(crate) fn count_uncompressed(&self) {
        self.uncompressed.fetch_add(1, Relaxed);
    }

    /// The settings that the content was opened with.
    pub fn settings(&self) -> &ContentSettings {
        &self.settings
    }

    /// Lets go of all that is cached and watched and of empty pipes, and keeps nothing from now on,
    /// because other content has taken its place. A loop that still holds this content answers from
    /// the file system.
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

    /// The entry, fresh or expired, but not dead.
    pub(crate) fn cached(&self, key: KeyRef<'_>) -> Option<Arc<Entry>> {
        self.store.get(key)
    }

    /// Whether the rules about clients of this site let a request through, of which these conditions hold.
    #[inline]
    pub(crate) fn check(
        &self,
        guard: &Guard,
        site: u32,
        (request, outcome): (&Request<'_>, ConditionBits),
        client: impl FnOnce() -> IpAddr,
        own: &mut Own,
        now_ms: u64,
    ) -> Result<(), Stop> {
        let VirtualHost { settings, conditions, .. } = &self.vhosts[site as usize];
        let applies = |number| outcome.has(conditions.access(number));
        let rules = GuardRules { site: settings, realms: &self.realms, applies };
        guard.check(rules, request, client, own, now_ms)?;
        guard.check_asked(|rule| {
            // after a reload the same number may be that of another rule
            let allowed =
                request.passed.map_or(0, |passed| passed.times_allowed(self.number, rule));
            allowed > 0 && allowed >= settings.ambiguity(request).readings()
        })
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

    fn strike(&self, struck: Struck) -> bool {
        for entry in &struck.entries {
            if entry.kill() {
                self.invalidated.fetch_add(1, Relaxed);
            }
            self.store.remove(entry);
        }
        struck.roots
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

    /// Sweeps now, as is else done once a minute.
    #[cfg(test)]
    pub(crate) fn tidy(&self) {
        self.watcher.iter().for_each(|watcher| watcher.tidy(true));
    }

    /// Acts as if the kernel had lost events.
    #[cfg(test)]
    pub(crate) fn overflow(&self) {
        if let Some(watcher) = &self.watcher {
            watcher.overflow(|struck| {
                self.strike(struck);
            });
        }
        self.say_once(Notice::EventsLost);
    }

    /// The watcher, to see when it is gone.
    #[cfg(test)]
    pub(crate) fn watcher(&self) -> std::sync::Weak<FileWatcher> {
        self.watcher.as_ref().map_or_else(std::sync::Weak::new, Arc::downgrade)
    }
}
