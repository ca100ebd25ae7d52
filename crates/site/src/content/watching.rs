//! Changes of files, of the ways to roots, of files of users: the thread that waits for them, and requests that
//! look for them first.

use super::Content;
use crate::graph::Struck;
use crate::notice::{Notice, OpenError};
use crate::root::{Root, RootDirectory, RootLook};
use crate::watch::FileWatcher;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Between two looks at what no event tells, at most.
const TICK: Duration = Duration::from_secs(1);
/// Between two sweeps of what is watched, at most, in ticks.
const SWEEP_TICKS: u32 = 60;
/// Batches of changes that one request takes, at most.
const MOST_BATCHES: u32 = 8;
/// A request waits no longer for the look at roots of another: one of them may be on a file system that hangs.
const LOOK_PATIENCE: Duration = Duration::from_millis(100);

/// Looks at the roots that changes were found for. Of several threads one looks.
#[derive(Debug, Default)]
pub(super) struct RootLooks {
    /// Such changes so far, and how many of them were looked at.
    found: AtomicU64,
    seen: AtomicU64,
    /// Requests so far that were to wait for a look.
    asked: AtomicU64,
    is_looking: Mutex<bool>,
    ended: Condvar,
}

impl RootLooks {
    fn is_due(&self) -> bool {
        self.seen.load(Ordering::Acquire) < self.found.load(Ordering::Acquire)
    }

    /// Has `look` done if it is due, and waits for another that does so.
    fn settle(&self, look: impl FnOnce()) {
        let found = self.found.load(Ordering::Acquire);
        let mut is_looking = self.is_looking.lock().unwrap_or_else(PoisonError::into_inner);
        while self.seen.load(Ordering::Acquire) < found {
            if !*is_looking {
                *is_looking = true;
                drop(is_looking);
                let found = self.found.load(Ordering::Acquire);
                look();
                is_looking = self.is_looking.lock().unwrap_or_else(PoisonError::into_inner);
                *is_looking = false;
                self.seen.fetch_max(found, Ordering::AcqRel);
                return self.ended.notify_all();
            }
            let waited = self.ended.wait_timeout(is_looking, LOOK_PATIENCE);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            is_looking = guard;
            if timeout.timed_out() {
                self.seen.fetch_max(found, Ordering::AcqRel);
            }
        }
    }
}

impl Content {
    pub(super) fn start_watching(
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

    /// Roots and the numbers of their sites.
    fn places(&self) -> impl Iterator<Item = (u32, &RootDirectory)> {
        let sites = (0..).zip(&self.vhosts);
        sites.flat_map(|(site, vhost)| vhost.mounts.iter().map(move |at| (site, &at.place)))
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
        self.invalidated.fetch_add(self.store.flush(site), Ordering::Relaxed);
    }

    /// Applies the changes that happened before now, so that an answer from here is no older than one from
    /// another process. If the roots are to be [looked at](Content::settle_roots) first, a new number.
    ///
    /// A system call. Not all changes if there are many thousands: the thread that watches takes the others.
    pub(crate) fn catch_up(&self) -> Option<u64> {
        let watcher = self.watcher.as_ref()?;
        for _ in 0..MOST_BATCHES {
            if !self.take_events(watcher) {
                break;
            }
        }
        let looks = &self.root_looks;
        looks.is_due().then(|| looks.asked.fetch_add(1, Ordering::Relaxed))
    }

    /// Looks at the roots if a change was found that may concern them. May block.
    pub(crate) fn settle_roots(&self) {
        self.root_looks.settle(|| self.look_at_roots());
    }

    /// Applies a batch of the changes that happened; whether there may be more.
    fn take_events(&self, watcher: &FileWatcher) -> bool {
        let batch = watcher.take_events(|struck| {
            if self.strike(struck) {
                self.root_looks.found.fetch_add(1, Ordering::Release);
            }
        });
        if batch.is_lost {
            self.say_once(Notice::EventsLost);
        }
        batch.is_full
    }
}

/// Waits for changes, until the content is gone or retired.
fn watch(content: &Weak<Content>, watcher: Option<&FileWatcher>) {
    let mut ticked = Instant::now();
    let mut ticks = 0u32;
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
        if content.is_retired.load(Ordering::Relaxed) {
            return;
        }
        if let Some(watcher) = watcher.filter(|_| is_ready) {
            content.take_events(watcher);
            content.settle_roots();
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
            watcher.tick();
        }
    }
}
